// Scopes as dumps show them, and the misuse of scopes that ends the process.
#include "gump/scope.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "tests/sched/crash_testing.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

// Functions whose names the tests look for in dumps.
namespace crashtest {

__attribute__((noinline)) void Fetch(gump::chan<int> c) {
  gump::Scope scope(gump::context::Background(), "fetch");
  scope.Go([c] { ParkedReceiver(c); });
  (void)scope.Wait();
}

}  // namespace crashtest

namespace gump {
namespace {

using testing::CrashDeathTest;
using testing::Died;
using testing::EventuallyParked;
using testing::Matches;

using ScopeDeathTest = CrashDeathTest;

// InAll returns a dump of all goroutines, once n of them wait for a channel.
std::string InAll(size_t n) {
  EXPECT_TRUE(EventuallyParked("chan receive", n));
  return runtime::Stack(true);
}

TEST(ScopeDumpTest, NamesTheScopeBehindTheCreator) {
  std::string dump;
  testing::RunWith(2, [&] {
    const chan<int> c = make_chan<int>();
    sync::WaitGroup owner;
    owner.Go([&] { crashtest::Fetch(c); });
    dump = InAll(1);
    c.Close();
    owner.Wait();
  });
  EXPECT_TRUE(Matches(
      dump,
      ".*\n\ngoroutine [0-9]+ \\[Scope.Wait\\]:\n[^[]*crashtest::Fetch.*"))
      << dump;
  EXPECT_TRUE(Matches(
      dump,
      ".*\n\ngoroutine [0-9]+ \\[chan receive\\]:\ncrashtest::ParkedReceiver"
      "[^[]*\ncreated by crashtest::Fetch in goroutine [0-9]+ in scope "
      "\"fetch\" of goroutine [0-9]+\n\t[^\n]+\n.*"))
      << dump;
}

TEST(ScopeDumpTest, NamesTheInnermostScopeAGoroutineRunsIn) {
  std::string dump;
  testing::RunWith(2, [&] {
    const chan<int> c = make_chan<int>();
    Scope outer(context::Background(), "outer");
    outer.Go([&] {
      Scope inner(context::Background(), "a \"quoted\" name");
      inner.Go([&] { (void)c.Recv(); });
      (void)inner.Wait();
    });
    Scope nameless;
    nameless.Go([&] { (void)c.Recv(); });
    dump = InAll(2);
    c.Close();
  });
  // The goroutine that owns the inner scope runs in the outer one.
  EXPECT_TRUE(Matches(dump,
                      ".*\\[Scope.Wait\\]:\n[^[]* in goroutine [0-9]+ in scope "
                      "\"outer\" of goroutine [0-9]+\n.*"))
      << dump;
  EXPECT_TRUE(Matches(dump,
                      ".*\\[chan receive\\]:\n[^[]* in scope \"a "
                      "\\\\\"quoted\\\\\" name\" of goroutine [0-9]+\n.*"))
      << dump;
  EXPECT_TRUE(Matches(dump,
                      ".*\\[chan receive\\]:\n[^[]* in goroutine [0-9]+ in "
                      "scope of goroutine [0-9]+\n.*"))
      << dump;
}

TEST(ScopeDumpTest, ShowsTheScopeOfAGoroutineThatHasNotBegun) {
  testing::RunWith(1, [] {
    Scope scope(context::Background(), "queue");
    // Main may be preempted before it takes the dump. Then the goroutine has
    // ended by that time, and main starts another one.
    std::string dump;
    EXPECT_TRUE(testing::Eventually([&] {
      scope.Go([] {});
      dump = runtime::Stack(true);
      return dump.find("[runnable]") != std::string::npos;
    }));
    EXPECT_TRUE(Matches(dump,
                        ".*\\[runnable\\]:\n[^[]*in scope \"queue\" of "
                        "goroutine [0-9]+\n.*"));
  });
}

TEST(ScopeDumpTest, SaysNothingOfOtherGoroutines) {
  testing::RunWith(1, [] {
    Scope scope(context::Background(), "own");
    const chan<int> c = make_chan<int>();
    sync::WaitGroup wg;
    wg.Go([&] { (void)c.Recv(); });
    EXPECT_EQ(InAll(1).find(" in scope "), std::string::npos);
    c.Close();
    wg.Wait();
  });
}

// With GODEBUG=scopes=1, which the runtime reads when it starts.
TEST_F(ScopeDeathTest, TreeEndsADumpOfAllGoroutinesIfAskedFor) {
  const auto die = [](const char* godebug) {
    RunWith({{"GODEBUG", godebug}, {"GOTRACEBACK", "all"}}, [] {
      const chan<int> c = make_chan<int>();
      Scope outer(context::Background(), "serve");
      outer.Go([&] { crashtest::Fetch(c); });
      outer.Go([&] { (void)c.Recv(); });
      EXPECT_TRUE(EventuallyParked("Scope.Wait", 1));
      EXPECT_TRUE(EventuallyParked("chan receive", 2));
      panic("dead");
    });
  };
  const std::string tree =
      "\n\nscopes:\n"
      "  scope \"serve\" of goroutine 1\n"
      "    goroutine ([0-9]+) \\[Scope.Wait\\]\n"
      "      scope \"fetch\" of goroutine [0-9]+\n"
      "        goroutine [0-9]+ \\[chan receive\\]\n"
      "    goroutine [0-9]+ \\[chan receive\\]\n$";
  EXPECT_EXIT(die("scopes=1"), Died(), tree);
  EXPECT_EXIT(die("scopes=0"), Died(), "created by [^\n]*\n\t[^\n]*\n$");
}

TEST_F(ScopeDeathTest, TreeIsInStackToo) {
  EXPECT_EXIT(RunWith({{"GODEBUG", "scopes=1"}},
                      [] {
                        const chan<int> c = make_chan<int>();
                        Scope outer(context::Background(), "outer");
                        Scope inner(context::Background(), "inner");
                        outer.Go([&] { (void)c.Recv(); });
                        inner.Go([&] { (void)c.Recv(); });
                        std::fputs(InAll(2).c_str(), stderr);
                        c.Close();
                      }),
              ::testing::ExitedWithCode(0),
              "\n\nscopes:\n"
              "  scope \"outer\" of goroutine 1\n"
              "    goroutine [0-9]+ \\[chan receive\\]\n"
              "    scope \"inner\" of goroutine 1\n"
              "      goroutine [0-9]+ \\[chan receive\\]\n$");
}

TEST_F(ScopeDeathTest, UncaughtExceptionOfAScopeIsAPanicOfTheOwner) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        Scope scope;
                        scope.Go([] { panic("of a child"); });
                        (void)scope.Wait();
                      }),
              Died(), "^panic: of a child\n\ngoroutine 1 \\[running\\]:\n");
}

// ---- Misuse

TEST_F(ScopeDeathTest, DestructionByAnotherGoroutineIsFatal) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        auto scope = std::make_unique<Scope>();
                        sync::WaitGroup wg;
                        wg.Go([&] { scope.reset(); });
                        wg.Wait();
                      }),
              Died(),
              "^fatal error: scope: Scope destroyed by a goroutine that does "
              "not own it\n");
}

TEST_F(ScopeDeathTest, DestructionInTheWrongOrderIsFatal) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        auto outer = std::make_unique<Scope>();
                        Scope inner;
                        outer.reset();
                      }),
              Died(),
              "^fatal error: scope: Scope destroyed before a Scope inside of "
              "it\n");
}

TEST_F(ScopeDeathTest, GoroutineThatEndsWithAnOpenScopeIsFatal) {
  constexpr char kText[] =
      "^fatal error: scope: a goroutine has ended without destroying its "
      "Scope\n";
  const auto leave = [] {
    static Scope* scope = new Scope;
    (void)scope;
  };
  EXPECT_EXIT(RunWith({},
                      [&] {
                        go(leave);
                        select();
                      }),
              Died(), kText);
  EXPECT_EXIT(RunWith({},
                      [&] {
                        Scope scope;
                        scope.Go(leave);
                        (void)scope.Wait();
                      }),
              Died(), kText);
  EXPECT_EXIT(std::thread(leave).join(), Died(), kText);
}

TEST_F(ScopeDeathTest, NullFunctionIsFatal) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        Scope scope;
                        void (*f)() = nullptr;
                        scope.Go(f);
                      }),
              Died(), "^fatal error: go of nil func value\n");
}

}  // namespace
}  // namespace gump
