#include "runtime/diag/panic.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/print.h"
#include "runtime/sys/signal.h"

#if defined(__SANITIZE_THREAD__)
#define GUMP_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GUMP_TEST_TSAN 1
#endif
#endif

namespace gump::rt {
namespace {

#if defined(GUMP_TEST_TSAN)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// Format returns the output of print for these arguments.
template <class... A>
std::string Format(const char* format, A... args) {
  char buf[256];
  Writer w{.buf = buf, .cap = sizeof(buf)};
  print(&w, format, args...);
  return std::string(buf, w.len);
}

TEST(PrintTest, FormatsNumbersOfBothWidths) {
  EXPECT_EQ(Format("%d %u %x", -1, 4294967295u, 0xbeefu), "-1 4294967295 beef");
  EXPECT_EQ(Format("%D", INT64_MIN), "-9223372036854775808");
  EXPECT_EQ(Format("%D %U", int64_t{0}, UINT64_MAX), "0 18446744073709551615");
  EXPECT_EQ(Format("%X", uint64_t{0xdeadbeef00}), "deadbeef00");
}

TEST(PrintTest, FormatsTextAndPointers) {
  const char* none = nullptr;
  EXPECT_EQ(Format("<%s|%s|%c>", "a", none, 'b'), "<a|nil|b>");
  EXPECT_EQ(Format("%p", reinterpret_cast<void*>(0x10)), "0x10");
  EXPECT_EQ(Format("100%%"), "100%");
}

TEST(PrintTest, QuotesCharactersThatCouldBreakALine) {
  EXPECT_EQ(Format("%Q", "a\"b\\c\nd"), R"("a\"b\\c\nd")");
  EXPECT_EQ(Format("%Q", "\r\t\x1b\x7f"), R"("\r\t\x1b\u007f")");
}

TEST(PrintTest, QuotesCharactersBeyondAsciiByTheirNumbers) {
  EXPECT_EQ(Format("%Q", "\u1234\u03a3"), R"("\u1234\u03a3")");
  EXPECT_EQ(Format("%Q", "\U00045678boop"), R"("\U00045678boop")");
  EXPECT_EQ(Format("%Q", "\ufffd"), R"("\ufffd")");
  EXPECT_EQ(Format("%Q", "\u0080\u07ff\u0800\uffff\U00010000\U0010ffff"),
            R"("\u0080\u07ff\u0800\uffff\U00010000\U0010ffff")");
}

TEST(PrintTest, QuotesBytesThatAreNotUtf8ByTheirValues) {
  const std::pair<const char*, const char*> kCases[] = {
      {"a\xff"
       "b",
       R"("a\xffb")"},
      {"\x80", R"("\x80")"},
      {"\xce", R"("\xce")"},          // truncated
      {"\xe1\x88", R"("\xe1\x88")"},  // truncated
      {"\xe1"
       "a",
       R"("\xe1a")"},                                 // no continuation
      {"\xc0\x8a", R"("\xc0\x8a")"},                  // too long a form
      {"\xe0\x80\x8a", R"("\xe0\x80\x8a")"},          // too long a form
      {"\xed\xa0\x80", R"("\xed\xa0\x80")"},          // a surrogate
      {"\xf4\x90\x80\x80", R"("\xf4\x90\x80\x80")"},  // above U+10FFFF
      {"\xf8\x88\x80\x80\x80", R"("\xf8\x88\x80\x80\x80")"},
  };
  for (auto [text, quoted] : kCases) EXPECT_EQ(Format("%Q", text), quoted);
}

TEST(PrintTest, ShowsAnUnknownVerb) { EXPECT_EQ(Format("%z %"), "%z "); }

// GrowByTen makes the string at arg ten bytes larger. At 30 bytes it refuses,
// but only once.
char* GrowByTen(void* arg, size_t* size) {
  auto& s = *static_cast<std::string*>(arg);
  static bool refused = false;
  if (s.size() == 30 && !std::exchange(refused, true)) return nullptr;
  s.resize(s.size() + 10);
  *size = s.size();
  return s.data();
}

TEST(PrintTest, MemoryWriterGrowsAsLongAsThereIsRoom) {
  std::string text;
  Writer w{.grow = GrowByTen, .arg = &text};
  print(&w, "%s", "twenty-three characters");
  EXPECT_EQ(w.len, 23);
  EXPECT_EQ(std::string_view(text).substr(0, w.len), "twenty-three characters");
  print(&w, "%s", " and 14 more.");
  EXPECT_EQ(w.len, 30);
  EXPECT_EQ(w.total, 36);
  EXPECT_EQ(text, "twenty-three characters and 14");
  print(&w, "%s", "behind a hole");
  EXPECT_EQ(text, "twenty-three characters and 14");
}

TEST(PrintTest, MemoryWriterCountsBytesThatDoNotFit) {
  char buf[4];
  Writer w{.buf = buf, .cap = sizeof(buf)};
  print(&w, "%s", "abcdefgh");
  EXPECT_EQ(std::string(buf, w.len), "abcd");
  EXPECT_EQ(w.total, 8u);
}

class PanicDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

// Broken makes a goroutine with a saved context that leads nowhere, so that a
// thread that walks its stack faults.
void Broken() {
  G* gp = malg(/*pp=*/nullptr);
  gp->stack.lo = 1 << 12;
  gp->stack.hi = 1 << 20;
  gp->sched.sp = 1 << 19;
  casgstatus(gp, kGdead, kGrunnable);
}

TEST_F(PanicDeathTest, FatalExitsWithTwo) {
  EXPECT_EXIT(fatal("the end"), ::testing::ExitedWithCode(2),
              "^fatal error: the end\n");
}

TEST_F(PanicDeathTest, FatalAllExitsWithTwo) {
  EXPECT_EXIT(fatalAll("the end"), ::testing::ExitedWithCode(2),
              "^fatal error: the end\n");
}

TEST_F(PanicDeathTest, ThrowExitsWithTwo) {
  EXPECT_EXIT(fatalthrow("broken"), ::testing::ExitedWithCode(2),
              "^fatal error: broken\n\nruntime stack:\n");
}

TEST_F(PanicDeathTest, PanicShowsTheExceptionTypeOnItsOwnLine) {
  EXPECT_EXIT(fatalpanic("boom", 4, "std::runtime_error"),
              ::testing::ExitedWithCode(2),
              "^panic: boom\n\\[exception std::runtime_error\\]\n\n");
  EXPECT_EXIT(fatalpanic("boom", 4), ::testing::ExitedWithCode(2),
              "^panic: boom\n\n");
}

TEST_F(PanicDeathTest, LaterLinesOfAPanicAreIndented) {
  EXPECT_EXIT(fatalpanic("a\n\nb", 4), ::testing::ExitedWithCode(2),
              "^panic: a\n\t\n\tb\n\n");
  EXPECT_EXIT(fatalPanicTwice("a\nb", 3, "c\nd"), ::testing::ExitedWithCode(2),
              "^panic: a\n\tb\n\tpanic: c\n\td\n\n");
}

TEST_F(PanicDeathTest, FaultInTheDumpIsReportedAndEndsIt) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "its wrapper of handlers does not survive a nested fault";
  }
  M m;
  EXPECT_EXIT(
      {
        initsig();
        minitSignalStack(&m);
        Broken();
        fatalAll("first");
      },
      ::testing::ExitedWithCode(4),
      "^fatal error: first\n(.*\n)?panic during panic\n(.*\n)?"
      "stack trace unavailable\n$");
}

TEST_F(PanicDeathTest, SecondFinderUnlocksAndStaysSilent) {
  EXPECT_EXIT(
      {
        Mutex mu{LockRank::kLeaf};
        lock(&mu);
        std::atomic<bool> held = false;
        std::thread second([&] {
          lock(&mu);
          held = true;
          claimDeathAndUnlock(&mu);
          fatal("second");
        });
        claimDeathAndUnlock(&mu);
        EXPECT_TRUE(isDeathClaimed());
        while (!held) std::this_thread::yield();
        lock(&mu);  // returns when the second finder has unlocked mu
        unlock(&mu);
        fatal("first");
      },
      ::testing::ExitedWithCode(2), "^fatal error: first\n\n");
}

TEST_F(PanicDeathTest, ClaimantMayClaimAgain) {
  EXPECT_EXIT(
      {
        Mutex mu{LockRank::kLeaf};
        for (int i = 0; i < 2; i++) {
          lock(&mu);
          claimDeathAndUnlock(&mu);
        }
        EXPECT_FALSE(claimDeath());
        fatal("first");
      },
      ::testing::ExitedWithCode(2), "^fatal error: first\n\n");
}

TEST_F(PanicDeathTest, TracebackNonePrintsNoStacks) {
  EXPECT_EXIT(
      {
        setenv("GOTRACEBACK", "none", 1);
        initsig();
        fatalthrow("quiet");
      },
      ::testing::ExitedWithCode(2), "^fatal error: quiet\n$");
}

TEST_F(PanicDeathTest, TracebackCrashDiesByAbort) {
  EXPECT_EXIT(
      {
        setenv("GUMP_TRACEBACK", "crash", 1);
        initsig();
        fatal("dump core");
      },
      ::testing::KilledBySignal(SIGABRT), "^fatal error: dump core\n");
}

}  // namespace
}  // namespace gump::rt
