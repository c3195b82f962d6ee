#include "runtime/diag/traceback.h"

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/unwind.h"
#include "runtime/sched/runtime2.h"

namespace gump::rt {

// With external linkage, so that it has a name worth finding.
__attribute__((noinline)) void WalkFromHere(Frames* out, int depth) {
  if (depth > 0) {
    WalkFromHere(out, depth - 1);
  } else {
    walkHere(out);
  }
  asm volatile("");  // no tail call
}

namespace {

std::string Header(const GRecord& r, bool pointers = false) {
  char buf[512];
  Writer w{.buf = buf, .cap = sizeof(buf)};
  printHeader(&w, r, pointers);
  return std::string(buf, w.len);
}

std::string Text(const Frames& f, int32_t level = 2, uint32_t first = 0) {
  std::vector<char> buf(1 << 20);
  Writer w{.buf = buf.data(), .cap = buf.size()};
  printFrames(&w, f, level, first, /*known=*/nullptr);
  return std::string(buf.data(), w.len);
}

size_t Count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + 1)) {
    n++;
  }
  return n;
}

// Recursion is a stack of n frames of a user's function.
Frames Recursion(uint64_t n) {
  Frames f;
  f.clear();
  auto pc = reinterpret_cast<uintptr_t>(&testing::UnitTest::GetInstance);
  for (uint64_t i = 0; i < n; i++) f.add(pc + 1);
  f.finish();
  return f;
}

TEST(HeaderTest, IsAsGoPrintsIt) {
  GRecord r;
  r.goid = 7;
  r.status = kGwaiting;
  r.reason = WaitReason::kChanReceive;
  EXPECT_EQ(Header(r), "goroutine 7 [chan receive]:\n");
  r.minutes = 3;
  r.locked = true;
  EXPECT_EQ(Header(r),
            "goroutine 7 [chan receive, 3 minutes, locked to thread]:\n");
}

TEST(HeaderTest, ShowsTheStatusOfAGoroutineThatDoesNotWait) {
  GRecord r;
  r.goid = 1;
  r.reason = WaitReason::kSelect;  // of an earlier wait
  const std::pair<uint32_t, const char*> kCases[] = {
      {kGidle, "idle"},
      {kGrunnable, "runnable"},
      {kGrunning, "running"},
      {kGsyscall, "syscall"},
      {kGwaiting, "select"},
      {kGdead, "dead"},
      {99, "???"},
  };
  for (auto [status, text] : kCases) {
    r.status = status;
    EXPECT_EQ(Header(r), "goroutine 1 [" + std::string(text) + "]:\n");
  }
  r.status = kGwaiting;
  r.reason = WaitReason::kZero;
  EXPECT_EQ(Header(r), "goroutine 1 [waiting]:\n");
}

TEST(HeaderTest, ShowsTheScanBit) {
  GRecord r;
  r.goid = 9;
  r.status = kGwaiting | kGscan;
  r.reason = WaitReason::kChanSend;
  EXPECT_EQ(Header(r), "goroutine 9 [chan send (scan)]:\n");
}

// Go: TestTracebackGoroutineLabels; PrintTest has the texts in quotes.
TEST(HeaderTest, ShowsTheNameAsALabelBehindTheBrackets) {
  GRecord r;
  r.goid = 7;
  r.status = kGwaiting;
  r.reason = WaitReason::kChanReceive;
  strcpy(r.name, "pump");
  EXPECT_EQ(Header(r), "goroutine 7 [chan receive] {name: pump}:\n");
  r.locked = true;
  strcpy(r.name, "a/b_c.9");
  EXPECT_EQ(Header(r),
            "goroutine 7 [chan receive, locked to thread] {name: a/b_c.9}:\n");
  for (const char* text : {"two words", "a-b", "a:b", "{a}", "a,b"}) {
    strcpy(r.name, text);
    EXPECT_EQ(Header(r),
              "goroutine 7 [chan receive, locked to thread] {name: \"" +
                  std::string(text) + "\"}:\n");
  }
  strcpy(r.name, "pump \"a\"\n");
  EXPECT_EQ(Header(r), R"(goroutine 7 [chan receive, locked to thread] )"
                       R"({name: "pump \"a\"\n"}:)"
                       "\n");
}

// Go: TestTracebackGoroutineLabelsDisabledGODEBUG.
TEST(HeaderTest, LeavesOutLabelsThatAreSwitchedOff) {
  GRecord r;
  r.goid = 7;
  r.status = kGrunning;
  strcpy(r.name, "pump");
  debug.tracebacklabels = 0;
  EXPECT_EQ(Header(r), "goroutine 7 [running]:\n");
  debug.tracebacklabels = 1;
  EXPECT_EQ(Header(r), "goroutine 7 [running] {name: pump}:\n");
}

TEST(LabelsTest, SeveralAreSeparatedByCommas) {
  const auto print = [](std::initializer_list<Label> labels) {
    char buf[256];
    Writer w{.buf = buf, .cap = sizeof(buf)};
    printLabels(&w, labels.begin(), labels.size());
    return std::string(buf, w.len);
  };
  EXPECT_EQ(print({}), "");
  EXPECT_EQ(print({{"fizzle", "bit"}, {"foobar:", "baz\n"}, {"", "a b"}}),
            R"( {fizzle: bit, "foobar:": "baz\n", : "a b"})");
}

TEST(HeaderTest, ShowsTheBubble) {
  GRecord r;
  r.goid = 9;
  r.bubble = 3;
  r.status = kGwaiting;
  r.reason = WaitReason::kSleep;
  EXPECT_EQ(Header(r), "goroutine 9 [sleep (durable), synctest bubble 3]:\n");
  r.reason = WaitReason::kSynctestSelect;
  EXPECT_EQ(Header(r), "goroutine 9 [select (durable), synctest bubble 3]:\n");
  r.reason = WaitReason::kSyncMutexLock;
  EXPECT_EQ(Header(r), "goroutine 9 [sync.Mutex.Lock, synctest bubble 3]:\n");
  r.status = kGrunnable;
  EXPECT_EQ(Header(r), "goroutine 9 [runnable, synctest bubble 3]:\n");
}

TEST(HeaderTest, ShowsPointersWhenAsked) {
  GRecord r;
  r.goid = 2;
  r.status = kGrunning;
  r.gp = reinterpret_cast<const G*>(0x1000);
  EXPECT_EQ(Header(r, true), "goroutine 2 gp=0x1000 m=nil [running]:\n");
  r.mp = reinterpret_cast<const M*>(0x2000);
  r.mid = 3;
  EXPECT_EQ(Header(r, true),
            "goroutine 2 gp=0x1000 m=3 mp=0x2000 [running]:\n");
}

TEST(FramesTest, KeepBothEndsOfADeepStack) {
  Frames f;
  f.clear();
  for (uintptr_t i = 1; i <= 1000; i++) f.add(i);
  f.finish();
  EXPECT_EQ(f.kept, 2 * Frames::kKeep);
  EXPECT_EQ(f.lost, 1000 - 2 * Frames::kKeep);
  for (uint32_t i = 0; i < Frames::kKeep; i++) {
    EXPECT_EQ(f.pcs[i], i + 1);
    EXPECT_EQ(f.pcs[Frames::kKeep + i], 1000 - Frames::kKeep + i + 1);
  }
}

TEST(FramesTest, WalkBeginsWithTheCaller) {
  Frames f;
  WalkFromHere(&f, 0);
  EXPECT_EQ(Text(f).find("gump::rt::WalkFromHere(...)\n\t/"), 0u);
}

TEST(FramesTest, WalkCountsEveryFrame) {
  Frames shallow;
  Frames deep;
  WalkFromHere(&shallow, 0);
  WalkFromHere(&deep, 5000);
  EXPECT_EQ(deep.kept + deep.lost, shallow.kept + shallow.lost + 5000);
  EXPECT_EQ(deep.pcs[2 * Frames::kKeep - 1], shallow.pcs[shallow.kept - 1]);
}

TEST(PrintFramesTest, PrintsUpToAHundredFrames) {
  std::string text = Text(Recursion(100));
  EXPECT_EQ(Count(text, "(...)\n"), 100u);
  EXPECT_EQ(Count(text, "elided"), 0u);
}

TEST(PrintFramesTest, ElidesTheMiddleOfMore) {
  for (uint64_t n : {101u, 150u, 192u, 193u, 5000u}) {
    std::string text = Text(Recursion(n));
    EXPECT_EQ(Count(text, "(...)\n"), 100u) << n;
    std::string note =
        "\n..." + std::to_string(n - 100) + " frames elided...\n";
    EXPECT_EQ(Count(text, note), 1u) << n;
    EXPECT_EQ(Count(text.substr(0, text.find(note)), "(...)\n"), 50u) << n;
  }
}

TEST(PrintFramesTest, HidesTheRuntimeBelowLevelTwo) {
  Frames f;
  WalkFromHere(&f, 2);
  EXPECT_EQ(Count(Text(f, 1), "gump::rt::"), 0u);
  EXPECT_EQ(Count(Text(f, 2), "gump::rt::WalkFromHere"), 3u);
}

TEST(PrintFramesTest, SaysWhereNoFileIs) {
  Frames f;
  f.clear();
  f.add(0x10);
  f.finish();
  EXPECT_NE(Text(f).find("\n\t? +0x10\n"), std::string::npos) << Text(f);
}

TEST(PrintFramesTest, StartsWhereItIsTold) {
  EXPECT_EQ(Count(Text(Recursion(10), 2, 4), "(...)\n"), 6u);
  EXPECT_EQ(Count(Text(Recursion(500), 2, 4), "...396 frames elided..."), 1u);
}

// There are more addresses than places, so some addresses share a place.
TEST(PrintFramesTest, RememberedTextsAreThoseOfTheirFrames) {
  const auto first =
      reinterpret_cast<uintptr_t>(&testing::UnitTest::GetInstance);
  const auto known = std::make_unique<FrameTexts>();
  for (int round = 0; round < 2; round++) {
    for (uintptr_t i = 0; i < 600; i++) {
      char fresh[2048];
      Writer f{.buf = fresh, .cap = sizeof(fresh)};
      printFrame(&f, first + 16 * i, /*level=*/2, /*known=*/nullptr);
      char remembered[2048];
      Writer r{.buf = remembered, .cap = sizeof(remembered)};
      printFrame(&r, first + 16 * i, /*level=*/2, known.get());
      ASSERT_EQ(std::string(remembered, r.len), std::string(fresh, f.len));
    }
  }
}

TEST(PrintFramesTest, LocationIsAModuleAndAnOffset) {
  std::string text = Text(Recursion(1));
  testing::Matcher<const std::string&> form = testing::MatchesRegex(
      "testing::UnitTest::GetInstance\\(\\.\\.\\.\\)\n"
      "\t/[^ ]+ \\+0x[0-9a-f]+\n");
  EXPECT_TRUE(form.Matches(text)) << text;
}

TEST(TracebackModeTest, KnowsGosWords) {
  auto is = [](const char* value, int32_t level, bool all, bool crash) {
    TracebackMode m = parseTraceback(value);
    return m.level == level && m.all == all && m.crash == crash;
  };
  EXPECT_TRUE(is(nullptr, 1, false, false));
  EXPECT_TRUE(is("", 1, false, false));
  EXPECT_TRUE(is("single", 1, false, false));
  EXPECT_TRUE(is("none", 0, false, false));
  EXPECT_TRUE(is("all", 1, true, false));
  EXPECT_TRUE(is("system", 2, true, false));
  EXPECT_TRUE(is("crash", 2, true, true));
}

TEST(TracebackModeTest, NumbersAreLevels) {
  EXPECT_EQ(parseTraceback("0").level, 0);
  EXPECT_EQ(parseTraceback("1").level, 1);
  EXPECT_TRUE(parseTraceback("1").all);
  EXPECT_EQ(parseTraceback("2").level, 2);
}

}  // namespace
}  // namespace gump::rt
