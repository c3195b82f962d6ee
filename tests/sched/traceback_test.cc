// Dumps of goroutines as a program gets them: by SIGQUIT, by GOTRACEBACK when
// it dies, and by runtime::Stack.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/synctest.h"
#include "runtime/diag/panic.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/sched/crash_testing.h"
#include "tests/testing/with_gomaxprocs.h"

// Functions whose names the tests look for in dumps. The empty asm prevents
// tail calls and clones.
namespace crashtest {

// Spinner occupies its P for good.
__attribute__((noinline)) void Spinner(std::atomic<bool>* spinning) {
  for (;;) spinning->store(true);
}

// Hog computes until it is told to stop. Its values show whether a walk has
// disturbed it.
__attribute__((noinline)) uint64_t HogStep(uint64_t x) {
  for (int i = 0; i < 1000; i++) x = x * 6364136223846793005 + 1;
  // ThreadSanitizer delivers signals when the program calls libc.
  (void)std::getenv("NONESUCH");
  asm volatile("");
  return x;
}

__attribute__((noinline)) void Hog(const std::atomic<bool>* stop,
                                   std::atomic<int>* begun) {
  (*begun)++;
  const uint64_t expected = HogStep(7);
  while (!stop->load(std::memory_order_relaxed)) {
    if (HogStep(7) != expected) std::abort();
  }
  asm volatile("");
}

}  // namespace crashtest

namespace gump {
namespace {

using testing::AwaitParked;
using testing::CrashDeathTest;
using testing::Died;
using testing::Matches;

// MakeGrandchild starts a goroutine in which crashtest::Spawner starts another.
__attribute__((noinline)) void MakeGrandchild(const chan<int>& c) {
  go([c] {
    crashtest::Spawner(c);
    chan<int>().Recv();
  });
}

TEST_F(CrashDeathTest, AncestorsAreShownIfAskedFor) {
  const std::string child =
      "goroutine [0-9]+ \\[chan receive\\]:\n[^[]*"
      "created by crashtest::Spawner in goroutine [0-9]+\n\t[^\n]+\n";
  const std::string parent =
      "\\[originating from goroutine [0-9]+\\]:\n"
      "crashtest::Spawner\\(\\.\\.\\.\\)\n[^[]*"
      "created by [^\n]*MakeGrandchild\n\t[^\n]+\n";
  const std::string grandparent =
      "\\[originating from goroutine 1\\]:\n[^[]*MakeGrandchild[^[]*";
  const auto die = [](const char* n) {
    const std::string godebug = std::string("tracebackancestors=") + n;
    RunWith({{"GODEBUG", godebug.c_str()}}, [] {
      MakeGrandchild(make_chan<int>());
      chan<int>().Recv();
    });
  };
  EXPECT_EXIT(die("0"), Died(), child + "(\n.*)?$");
  EXPECT_EXIT(die("1"), Died(), child + parent + "(\n.*)?$");
  EXPECT_EXIT(die("5"), Died(), child + parent + grandparent + "(\n.*)?$");
}

TEST_F(CrashDeathTest, AncestorsAreShownByStackToo) {
  EXPECT_EXIT(RunWith({{"GODEBUG", "tracebackancestors=5"}},
                      [] {
                        auto c = make_chan<int>();
                        MakeGrandchild(c);
                        AwaitParked(2);
                        std::fputs(runtime::Stack(true).c_str(), stderr);
                      }),
              ::testing::ExitedWithCode(0),
              "created by crashtest::Spawner in goroutine [0-9]+\n\t[^\n]+\n"
              "\\[originating from goroutine [0-9]+\\]:\ncrashtest::Spawner.*"
              "\\[originating from goroutine 1\\]:\n");
}

// ---- SIGQUIT

TEST_F(CrashDeathTest, QuitDumpsAllGoroutines) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        auto c = make_chan<int>();
                        crashtest::Spawner(c);
                        go(GoOptions{.stack_size = 0, .name = "pump"},
                           [c] { crashtest::ParkedReceiver(c); });
                        AwaitParked(2);
                        raise(SIGQUIT);
                      }),
              Died(),
              "^SIGQUIT: quit\nPC=0x[0-9a-f]+ m=[0-9]+ sigcode=-?[0-9]+\n\n"
              "goroutine 1 \\[running\\]:\n.*"
              "\n\ngoroutine [0-9]+ \\[chan receive\\]:\n"
              "crashtest::ParkedReceiver\\(\\.\\.\\.\\)\n.*"
              "created by crashtest::Spawner in goroutine 1\n.*"
              "\n\ngoroutine [0-9]+ \\[chan receive\\] \\{name: pump\\}:\n"
              "crashtest::ParkedReceiver\\(\\.\\.\\.\\)\n");
}

TEST_F(CrashDeathTest, QuitDumpsWhileEveryThreadIsBusyElsewhere) {
  EXPECT_EXIT(RunWith({{"GOMAXPROCS", "4"}},
                      [] {
                        static std::atomic<bool> spinning = false;
                        go([] { crashtest::Spinner(&spinning); });
                        testing::Eventually([] { return spinning.load(); });
                        blocking([] { raise(SIGQUIT); });
                      }),
              Died(),
              "^SIGQUIT: quit\n.*goroutine 1 \\[syscall\\]:\n.*"
              // Runnable, if it has been preempted in place by now.
              "goroutine [0-9]+ \\[runn(ing|able)\\]:\n"
              "(\tgoroutine running on other thread; stack unavailable\n|"
              "([^\n]+\n\t[^\n]+\n)*crashtest::Spinner\\(\\.\\.\\.\\)\n.*)"
              "created by [^\n]+ in goroutine 1\n");
}

size_t Count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at++) {
    n++;
  }
  return n;
}

constexpr std::string_view kHogFrame = "crashtest::Hog(...)\n";

TEST_F(CrashDeathTest, QuitShowsTheStacksOfHogs) {
  // With one P, at most one of them is not preempted in place.
  for (const char* procs : {"1", "2"}) {
    EXPECT_EXIT(RunWith({{"GOMAXPROCS", procs}},
                        [] {
                          static std::atomic<bool> stop = false;
                          static std::atomic<int> begun = 0;
                          for (int i = 0; i < 6; i++) {
                            go([] { crashtest::Hog(&stop, &begun); });
                          }
                          testing::Eventually([] { return begun == 6; });
                          // This stops the world under all of them.
                          (void)runtime::Stack(true);
                          raise(SIGQUIT);
                        }),
                Died(),
                "^SIGQUIT: quit\n.*goroutine 1 \\[running\\]:\n.*"
                "(goroutine [0-9]+ \\[runnable\\]:\n([^\n]+\n"
                "\t[^\n]+\n)*crashtest::Hog\\(\\.\\.\\.\\)\n.*"
                "created by [^\n]+ in goroutine 1\n.*){3}");
  }
}

// SignalWhenParked sends SIGQUIT to a thread once the goroutine that is locked
// to it has parked. It uses the runtime first, so that its thread counts as one
// that might still wake others.
void SignalWhenParked(pthread_t thread, std::atomic<bool>* ready) {
  (void)runtime::Stack(false);
  ready->store(true);
  testing::Eventually([] {
    return runtime::Stack(true).find("[chan receive, locked to thread]") !=
           std::string::npos;
  });
  pthread_kill(thread, SIGQUIT);
  pause();
}

TEST_F(CrashDeathTest, QuitOnAnIdleThreadDumpsGoroutine0) {
  if (rt::kSanitizerBuild)
    GTEST_SKIP() << "a sanitizer holds back signals to sleepers";
  EXPECT_EXIT(
      RunWith({},
              [] {
                runtime::LockOSThread();
                static std::atomic<bool> ready = false;
                std::thread(SignalWhenParked, pthread_self(), &ready).detach();
                testing::Eventually([] { return ready.load(); });
                make_chan<int>().Recv();
              }),
      Died(),
      "^SIGQUIT: quit\nPC=0x[0-9a-f]+ m=[0-9]+ sigcode=-6\n\n"
      "goroutine 0 \\[idle\\]:\n.*"
      "\n\ngoroutine 1 \\[chan receive, locked to thread\\]:\n");
}

TEST_F(CrashDeathTest, QuitHandlerInstalledBeforeIsKept) {
  EXPECT_EXIT(
      {
        struct sigaction mine = {};
        mine.sa_handler = [](int) { _exit(7); };
        sigaction(SIGQUIT, &mine, nullptr);
        RunWith({}, [] { raise(SIGQUIT); });
      },
      ::testing::ExitedWithCode(7), "^$");
}

// ---- GOTRACEBACK

// DeadlockAt deadlocks and PanicAt panics, at a level of GOTRACEBACK and with
// one parked goroutine.
void DeadlockAt(const char* level) {
  setenv("GOTRACEBACK", level, 1);
  gump::Run([] {
    auto c = make_chan<int>();
    go([c] { crashtest::ParkedReceiver(c); });
    c.Recv();
  });
}

void PanicAt(const char* level) {
  setenv("GOTRACEBACK", level, 1);
  gump::Run([] {
    auto c = make_chan<int>();
    go([c] { crashtest::ParkedReceiver(c); });
    AwaitParked(1);
    panic("boom");
  });
}

TEST_F(CrashDeathTest, TracebackNoneShowsNoStack) {
  EXPECT_EXIT(DeadlockAt("none"), Died(),
              "^fatal error: all goroutines are asleep - deadlock!\n$");
  EXPECT_EXIT(PanicAt("none"), Died(), "^panic: boom\n$");
}

TEST_F(CrashDeathTest, TracebackAllShowsOthersAfterAPanic) {
  for (const char* level : {"all", "1"}) {
    EXPECT_EXIT(PanicAt(level), Died(),
                "^panic: boom\n\ngoroutine 1 \\[running\\]:\n.*"
                "\n\ngoroutine [0-9]+ \\[chan receive\\]:\n"
                "crashtest::ParkedReceiver");
  }
}

TEST_F(CrashDeathTest, TracebackSystemShowsTheRuntime) {
  for (const char* level : {"system", "2"}) {
    EXPECT_EXIT(DeadlockAt(level), Died(),
                "\n\ngoroutine 1 gp=0x[0-9a-f]+ m=[^ ]+ [^\n]*"
                "\\[chan receive\\]:\n"
                "gump::rt::.*::DeadlockAt\\(");
  }
}

TEST_F(CrashDeathTest, TracebackCrashAsksEveryThread) {
  EXPECT_EXIT(DeadlockAt("crash"), ::testing::KilledBySignal(SIGABRT),
              "^fatal error: all goroutines are asleep - deadlock!\n.*"
              "\n-----\n\n.*gump::rt::.*\n-----\n\n");
}

TEST_F(CrashDeathTest, TracebackCrashAsksThemThoughQuitIsIgnored) {
  EXPECT_EXIT(
      {
        ::signal(SIGQUIT, SIG_IGN);
        DeadlockAt("crash");
      },
      ::testing::KilledBySignal(SIGABRT),
      "^fatal error: all goroutines are asleep - deadlock!\n.*"
      "\n-----\n\n.*gump::rt::.*\n-----\n\n");
}

// A thread that does not answer delays the end of the process. Meanwhile
// another thread sends SIGQUIT to the dying thread, and then dies itself.
void DieSlowly() {
  alarm(60);
  setenv("GOTRACEBACK", "crash", 1);
  gump::Run([] {
    auto silent = make_chan<void>();
    go([silent] {
      blocking([&] {
        sigset_t quit;
        sigemptyset(&quit);
        sigaddset(&quit, SIGQUIT);
        pthread_sigmask(SIG_BLOCK, &quit, nullptr);
        silent.Close();
        for (;;) pause();
      });
    });
    silent.Recv();
    runtime::LockOSThread();
    const int32_t dying = rt::gettid();
    // This is no thread of the runtime, because those are asked for their
    // stacks and stay there.
    std::thread other([dying] {
      while (!rt::isPanicking()) usleep(100);
      for (int i = 0; i < 20; i++) {
        usleep(10'000);
        rt::tgkill(dying, SIGQUIT);
      }
      rt::fatal("another");
    });
    panic("boom");
  });
}

TEST_F(CrashDeathTest, TracebackCrashEndsThoughAnotherDies) {
  EXPECT_EXIT(DieSlowly(), ::testing::KilledBySignal(SIGABRT),
              "^panic: boom\n.*\n-----\n\n");
}

TEST_F(CrashDeathTest, TracebackLabelsOffShowsNoName) {
  EXPECT_EXIT(RunWith({{"GODEBUG", "tracebacklabels=0"}},
                      [] {
                        go(GoOptions{.name = "pump"},
                           [] { crashtest::ParkedReceiver(make_chan<int>()); });
                        AwaitParked(1);
                        raise(SIGQUIT);
                      }),
              Died(), "\n\ngoroutine [0-9]+ \\[chan receive\\]:\n");
}

// ---- How many goroutines a fatal error shows

// Mistake is one that a goroutine makes, and the error that it gets.
struct Mistake {
  const char* text;
  void (*make)();
};

const Mistake kMistakes[] = {
    {"sync: unlock of unlocked mutex", [] { sync::Mutex().Unlock(); }},
    {"sync: Unlock of unlocked RWMutex", [] { sync::RWMutex().Unlock(); }},
    {"sync: RUnlock of unlocked RWMutex", [] { sync::RWMutex().RUnlock(); }},
    {"go of nil func value", [] { go(std::function<void()>()); }},
    {"receive on synctest channel from outside bubble",
     [] {
       chan<int> inside;
       synctest::Run([&] { inside = make_chan<int>(); });
       inside.Recv();
     }},
    {"WaitGroup.Add called from inside and outside synctest bubble",
     [] {
       sync::WaitGroup wg;
       wg.Add(1);
       synctest::Run([&] { wg.Add(1); });
     }},
    {"goroutine parks inside gump::blocking",
     [] { blocking([] { make_chan<int>().Recv(); }); }},
};

// Fail makes a mistake beside a goroutine that is parked.
void Fail(const char* level, void (*make)()) {
  if (level != nullptr) setenv("GOTRACEBACK", level, 1);
  gump::Run([make] {
    go([] { crashtest::ParkedReceiver(make_chan<int>()); });
    AwaitParked(1);
    make();
  });
}

constexpr char kOneStack[] = "\n\ngoroutine [0-9]+ [^\n]+:\n([^\n]+\n)+$";
constexpr char kParkedToo[] =
    "\n\ngoroutine [0-9]+ [^\n]+:\n([^\n]+\n)+"
    "(.*\n)?\ngoroutine [0-9]+ \\[chan receive\\]:\n"
    "([^\n]+\n\t[^\n]+\n)*crashtest::ParkedReceiver";

TEST_F(CrashDeathTest, MistakeOfAGoroutineShowsThatOneOnly) {
  for (const Mistake& m : kMistakes) {
    const std::string error = "^fatal error: [^\n]*" + std::string(m.text);
    EXPECT_EXIT(Fail(nullptr, m.make), Died(), error + kOneStack);
    EXPECT_EXIT(Fail("single", m.make), Died(), error + kOneStack);
    EXPECT_EXIT(Fail("all", m.make), Died(), error + kParkedToo);
  }
}

TEST_F(CrashDeathTest, FailureOfTheProgramShowsEveryGoroutine) {
  EXPECT_EXIT(Fail(nullptr, [] { rt::fatalAll("out of memory"); }), Died(),
              std::string("^fatal error: out of memory") + kParkedToo);
  EXPECT_EXIT(Fail(nullptr, [] { make_chan<int>().Recv(); }), Died(),
              std::string("^fatal error: [^\n]+ - deadlock!") + kParkedToo);
  EXPECT_EXIT(Fail(nullptr, [] { raise(SIGQUIT); }), Died(),
              std::string("^SIGQUIT: quit\n[^\n]+") + kParkedToo);
}

TEST_F(CrashDeathTest, BrokenInvariantShowsEveryGoroutineAndTheRuntime) {
  EXPECT_EXIT(Fail(nullptr, [] { rt::fatalthrow("broken"); }), Died(),
              "^fatal error: broken\n\ngoroutine 1 gp=0x.*"
              "\n\ngoroutine [0-9]+ gp=0x[^\n]+ \\[chan receive\\]:\n"
              ".*gump::rt::.*crashtest::ParkedReceiver");
}

// ---- runtime::Stack

TEST(StackTest, StackOfTheCallerIsOneBlock) {
  gump::Run([] {
    std::string text = runtime::Stack(false);
    EXPECT_EQ(
        text.find("goroutine 1 [running]:\ngump::runtime::Stack(...)\n\t"), 0u)
        << text;
    EXPECT_EQ(text.find("\n\n"), std::string::npos) << text;
  });
}

TEST(StackTest, OfAllShowsParkedGoroutinesAndTheirMaker) {
  gump::Run([] {
    auto c = make_chan<int>();
    crashtest::Spawner(c);
    std::string text;
    do {
      runtime::Gosched();
      text = runtime::Stack(true);
    } while (text.find("[chan receive]:\ncrashtest::ParkedReceiver(...)\n") ==
             std::string::npos);
    EXPECT_EQ(text.find("goroutine 1 [running]:\n"), 0u) << text;
    EXPECT_NE(text.find("\ncreated by crashtest::Spawner in goroutine 1\n\t/"),
              std::string::npos)
        << text;
    c.Send(1);
  });
}

TEST(StackTest, OfAllShowsWhereHogsArePreempted) {
  constexpr int kHogs = 4;
  for (int procs : {1, 2, 4}) {
    testing::RunWith(procs, [] {
      std::atomic<bool> stop = false;
      std::atomic<int> begun = 0;
      sync::WaitGroup wg;
      for (int i = 0; i < kHogs; i++) {
        wg.Go([&] { crashtest::Hog(&stop, &begun); });
      }
      EXPECT_TRUE(testing::Eventually([&] { return begun == kHogs; }));
      // A hog that was caught in a page fault looks asleep and is passed over.
      std::string text;
      EXPECT_TRUE(testing::Eventually([&] {
        text = runtime::Stack(true);
        return Count(text, kHogFrame) == kHogs;
      })) << text;
      EXPECT_GE(Count(text, "[runnable]:\n"), size_t{kHogs}) << text;
      for (int i = 0; i < (rt::kSanitizerBuild ? 20 : 100); i++) {
        (void)runtime::Stack(true);
      }
      stop = true;
      wg.Wait();
    });
  }
}

TEST(StackTest, OfAllWorksWhileOthersComeAndGo) {
  gump::Run([] {
    auto done = make_chan<void>();
    for (int g = 0; g < 8; g++) {
      go([done]() mutable {
        for (int i = 0; i < 200; i++) {
          auto c = make_chan<int>();
          go([c] { crashtest::ParkedReceiver(c); });
          c.Send(i);
        }
        done.Send();
      });
    }
    for (int i = 0; i < 20; i++) {
      EXPECT_EQ(runtime::Stack(true).find("goroutine 1 [running]:\n"), 0u);
    }
    for (int g = 0; g < 8; g++) done.Recv();
  });
}

// A dump that did not fit was once thrown away, and the world was stopped for
// another. Other stops (of reclamation) may come in between, but not so many.
TEST(StackTest, StopsTheWorldOnceHoweverLongTheTextIs) {
  gump::Run([] {
    auto c = make_chan<int>();
    constexpr int kGoroutines = 500;
    for (int i = 0; i < kGoroutines; i++) {
      go([c] { crashtest::ParkedReceiver(c); });
    }
    AwaitParked(kGoroutines);
    constexpr uint64_t kDumps = 20;
    const uint64_t before = debug::ReadSchedStats().world_stops;
    for (uint64_t i = 0; i < kDumps; i++) {
      const std::string text = runtime::Stack(true);
      EXPECT_GT(text.size(), size_t{64} << 10);
      EXPECT_EQ(text.back(), '\n');
      EXPECT_EQ(text.find('\0'), std::string::npos);
    }
    EXPECT_LT(debug::ReadSchedStats().world_stops, before + 2 * kDumps);
    c.Close();
  });
}

TEST(StackTest, OfAPlainThreadShowsThatThread) {
  for (bool all : {false, true}) {
    std::string text;
    std::thread([&text, all] { text = runtime::Stack(all); }).join();
    EXPECT_TRUE(Matches(text,
                        "goroutine [0-9]+ \\[running\\]:\n"
                        "gump::runtime::Stack\\(\\.\\.\\.\\)\n.*"))
        << text;
  }
}

}  // namespace
}  // namespace gump
