// GoroutinesJSON and the texts of /debug/goroutines.
#include "api/debug/goroutines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/debug/json.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/debug.h"
#include "gump/go.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/scope.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/json_reader.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

// Functions whose names the tests look for.
namespace livetest {

__attribute__((noinline)) void Receiver(gump::chan<int> c) {
  c.Recv();
  asm volatile("");
}

}  // namespace livetest

namespace gump {
namespace {

using testing::Json;
using testing::ReadJson;

Json Read(std::string_view text) {
  std::string error;
  Json all = ReadJson(text, &error);
  EXPECT_EQ(error, "") << text;
  return all;
}

std::vector<Json> Goroutines() { return Read(debug::GoroutinesJSON()).items; }

// Named returns the goroutine with a name, or a null.
Json Named(const std::vector<Json>& all, std::string_view name) {
  for (const Json& g : all) {
    if (g.At("name").text == name) return g;
  }
  return {};
}

bool HasFrame(const Json& g, std::string_view function) {
  const std::vector<Json>& frames = g.At("frames").items;
  return std::any_of(frames.begin(), frames.end(), [&](const Json& f) {
    return f.text.find(function) != f.text.npos;
  });
}

// Text and JsonText return what a list writes.
std::string Text(const internal::GoroutineQuery& query) {
  std::string text;
  EXPECT_TRUE(internal::GoroutineList(query).WriteText([&](auto part) {
    text += part;
    return true;
  }));
  return text;
}
std::string JsonText(const internal::GoroutineQuery& query) {
  std::string text;
  EXPECT_TRUE(internal::GoroutineList(query).WriteJson([&](auto part) {
    text += part;
    return true;
  }));
  return text;
}

std::string Quoted(std::string_view s) {
  std::string out;
  internal::AppendJsonString(&out, s);
  return out;
}

TEST(JsonTest, StringsAreEscaped) {
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted("a\"b\\c/"), "\"a\\\"b\\\\c/\"");
  EXPECT_EQ(Quoted("\n\r\t\b"), "\"\\n\\r\\t\\u0008\"");
  EXPECT_EQ(Quoted(std::string_view("\0\x1f\x7f", 3)),
            "\"\\u0000\\u001f\x7f\"");
  EXPECT_EQ(Quoted("ä€\xf0\x9f\x90\xb9"), "\"ä€\xf0\x9f\x90\xb9\"");
}

TEST(JsonTest, BytesThatAreNotUtf8AreReplaced) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(Quoted("\xff"), "\"" + r + "\"");
  EXPECT_EQ(Quoted("a\x80z"), "\"a" + r + "z\"");
  EXPECT_EQ(Quoted("\xc3"), "\"" + r + "\"");
  EXPECT_EQ(Quoted("\xc3\""), "\"" + r + "\\\"\"");
  EXPECT_EQ(Quoted("\xc0\xaf"), "\"" + r + r + "\"");          // too long
  EXPECT_EQ(Quoted("\xe0\x80\xaf"), "\"" + r + r + r + "\"");  // too long
  EXPECT_EQ(Quoted("\xed\xa0\x80"), "\"" + r + r + r + "\"");  // surrogate
  EXPECT_EQ(Quoted("\xf4\x90\x80\x80"), "\"" + r + r + r + r + "\"");
  EXPECT_EQ(Quoted("\xf0\x9f\x90"), "\"" + r + r + r + "\"");  // cut off
}

// Each byte, each pair of bytes, and each control character is read back.
TEST(JsonTest, AllPairsOfBytesGiveJson) {
  for (int a = 0; a < 256; a++) {
    for (int b = 0; b < 256; b++) {
      const std::string s = {static_cast<char>(a), static_cast<char>(b)};
      std::string error;
      const Json v = ReadJson(Quoted(s), &error);
      ASSERT_EQ(error, "") << a << " " << b;
      if (a < 0x80 && b < 0x80) {
        ASSERT_EQ(v.text, s);
      }
    }
  }
}

using GoroutinesTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GoroutinesTest);

TEST_P(GoroutinesTest, MembersStandInOrder) {
  Run([] {
    const std::vector<Json> all = Goroutines();
    ASSERT_FALSE(all.empty());
    for (const Json& g : all) {
      EXPECT_EQ(g.names, (std::vector<std::string>{
                             "id", "state", "reason", "wait_ms", "name",
                             "labels", "group", "scope", "parent", "frames"}));
    }
  });
}

TEST_P(GoroutinesTest, CallerRunsAndItsFramesAreThere) {
  Run([] {
    const std::vector<Json> all = Goroutines();
    ASSERT_FALSE(all.empty());
    const Json& main = all.front();
    EXPECT_EQ(main.At("id").text, "1");
    EXPECT_EQ(main.At("state").text, "running");
    EXPECT_EQ(main.At("reason").text, "");
    EXPECT_TRUE(main.At("wait_ms").is_null());
    EXPECT_TRUE(main.At("labels").is_null());
    EXPECT_EQ(main.At("parent").text, "0");
    EXPECT_TRUE(HasFrame(main, "CallerRunsAndItsFramesAreThere"));
  });
}

TEST_P(GoroutinesTest, WaitingGoroutineHasItsNamesAndFrames) {
  Run([] {
    runtime::Group group("tenants \"a\"");
    chan<int> c = make_chan<int>();
    sync::WaitGroup wg;
    wg.Add(1);
    go(GoOptions{.group = &group}, [&wg, c] {
      pprof::Do(context::Background(), {{"k\x01", "v\xff"}, {"tenant", "a\nb"}},
                [&](const context::Context& ctx) {
                  Scope scope(ctx, "fetch");
                  scope.Go([c] { livetest::Receiver(c); });
                  (void)scope.Wait();
                });
      wg.Done();
    });
    ASSERT_TRUE(testing::Eventually([] {
      const std::vector<Json> all = Goroutines();
      return std::any_of(all.begin(), all.end(), [](const Json& g) {
        return g.At("state").text == "waiting" &&
               HasFrame(g, "livetest::Receiver");
      });
    }));
    for (const Json& g : Goroutines()) {
      if (!HasFrame(g, "livetest::Receiver")) continue;
      EXPECT_EQ(g.At("reason").text, "chan receive");
      EXPECT_FALSE(g.At("wait_ms").is_null());
      EXPECT_EQ(g.At("group").text, "tenants \"a\"");
      EXPECT_EQ(g.At("scope").text, "fetch");
      EXPECT_NE(g.At("parent").text, "0");
      EXPECT_EQ(g.At("labels").At("tenant").text, "a\nb");
      EXPECT_EQ(g.At("labels").At("k\x01").text, "v\xef\xbf\xbd");
    }
    c.Close();
    wg.Wait();
  });
}

TEST_P(GoroutinesTest, NameStandsInItsMember) {
  Run([] {
    chan<int> c = make_chan<int>();
    go(GoOptions{.name = "worker \\ \x02"}, [c] { livetest::Receiver(c); });
    ASSERT_TRUE(testing::Eventually([] {
      return Named(Goroutines(), "worker \\ \x02").At("state").text ==
             "waiting";
    }));
    const Json g = Named(Goroutines(), "worker \\ \x02");
    EXPECT_EQ(g.At("state").text, "waiting");
    EXPECT_EQ(g.At("parent").text, "1");
    c.Close();
  });
}

TEST_P(GoroutinesTest, PlainThreadThatIsParkedIsListed) {
  Run([] {
    chan<int> c = make_chan<int>();
    std::thread t([c] { c.Recv(); });
    ASSERT_TRUE(testing::EventuallyParked("chan receive", 1));
    const std::vector<Json> all = Goroutines();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const Json& g) {
      return g.At("reason").text == "chan receive" &&
             g.At("frames").items.empty();
    }));
    c.Close();
    blocking([&] { t.join(); });
  });
}

TEST(GoroutinesOutsideTest, PlainThreadMayAskWithoutRun) {
  EXPECT_FALSE(Goroutines().empty());
}

TEST_P(GoroutinesTest, WaitGrowsFromTheFirstLook) {
  Run([] {
    chan<int> c = make_chan<int>();
    go(GoOptions{.name = "old"}, [c] { livetest::Receiver(c); });
    ASSERT_TRUE(testing::Eventually([] {
      return Named(Goroutines(), "old").At("state").text == "waiting";
    }));
    ASSERT_TRUE(testing::Eventually([] {
      const Json g = Named(Goroutines(), "old");
      return !g.At("wait_ms").is_null() && g.At("wait_ms").text != "0";
    }));
    c.Close();
  });
}

// One line starts all three goroutines, so their stacks are equal.
TEST_P(GoroutinesTest, EqualStacksAreShownTogether) {
  Run([] {
    chan<int> c = make_chan<int>();
    for (int i = 0; i < 3; i++) go([c] { livetest::Receiver(c); });
    ASSERT_TRUE(testing::EventuallyParked("chan receive", 3));
    const std::string text = Text({});
    EXPECT_NE(text.find("3 goroutines [chan receive], for "), text.npos)
        << text;
    EXPECT_NE(text.find("#\tlivetest::Receiver\t/"), text.npos) << text;
    EXPECT_NE(text.find("#\tcreated by "), text.npos) << text;
    EXPECT_EQ(text.rfind("goroutines: total ", 0), 0U) << text;
    c.Close();
  });
}

TEST_P(GoroutinesTest, StateAndGroupSelectGoroutines) {
  Run([] {
    runtime::Group group("mail");
    chan<int> c = make_chan<int>();
    go(GoOptions{.group = &group}, [c] { livetest::Receiver(c); });
    go([c] { livetest::Receiver(c); });
    ASSERT_TRUE(testing::Eventually([] {
      return Read(JsonText({.state = "chan receive", .group = ""}))
                 .items.size() == 2;
    }));
    const auto count = [](const char* state, const char* name) {
      const std::string json = JsonText({.state = state, .group = name});
      return Read(json).items.size();
    };
    EXPECT_EQ(count("waiting", ""), 2U);
    EXPECT_EQ(count("", "mail"), 1U);
    EXPECT_EQ(count("running", "mail"), 0U);
    EXPECT_EQ(count("running", ""), 1U);
    EXPECT_EQ(count("", "no such group"), 0U);
    EXPECT_EQ(count("no such state", ""), 0U);
    EXPECT_EQ(JsonText({.state = "no such state", .group = ""}), "[\n]\n");
    c.Close();
  });
}

TEST_P(GoroutinesTest, GroupingCountsGoroutinesByKey) {
  Run([] {
    chan<int> c = make_chan<int>();
    for (int i = 0; i < 3; i++) go([c] { livetest::Receiver(c); });
    ASSERT_TRUE(testing::EventuallyParked("chan receive", 3));
    const std::string by_state = Text({.state = "", .group = "state"});
    EXPECT_NE(by_state.find("\n3 goroutines [chan receive], "), by_state.npos)
        << by_state;
    EXPECT_EQ(by_state.find('#'), by_state.npos) << by_state;
    const std::string by_where = Text({.state = "waiting", .group = "where"});
    EXPECT_NE(by_where.find("\n3 goroutines livetest::Receiver, "),
              by_where.npos)
        << by_where;
    const std::string by_maker = Text({.state = "waiting", .group = "maker"});
    EXPECT_NE(by_maker.find("\n3 goroutines created by "), by_maker.npos)
        << by_maker;
    c.Close();
  });
}

TEST_P(GoroutinesTest, ManyGoroutinesAreAllThere) {
  Run([] {
    constexpr size_t kMany = rt::kSanitizerBuild ? 100 : 500;
    chan<int> c = make_chan<int>();
    for (size_t i = 0; i < kMany; i++) go([c] { livetest::Receiver(c); });
    ASSERT_TRUE(testing::EventuallyParked("chan receive", kMany));
    EXPECT_EQ(Goroutines().size(), kMany + 1);
    c.Close();
  });
}

// Goroutines start, end and wait while they are listed.
TEST_P(GoroutinesTest, ListIsWholeWhileGoroutinesComeAndGo) {
  Run([] {
    chan<int> stop = make_chan<int>();
    sync::WaitGroup wg;
    for (int i = 0; i < 8; i++) {
      wg.Go([stop] {
        while (!stop.IsClosed()) {
          chan<int> c = make_chan<int>();
          go([c] { c.Send(1); });
          pprof::Do(context::Background(), {{"k", "v"}},
                    [&](const context::Context&) { (void)c.Recv(); });
        }
      });
    }
    for (int i = 0; i < (rt::kSanitizerBuild ? 3 : 10); i++) {
      EXPECT_GE(Goroutines().size(), 9U);
    }
    stop.Close();
    wg.Wait();
  });
}

}  // namespace
}  // namespace gump
