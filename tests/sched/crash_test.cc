// How programs end when they must, seen from outside: the text on standard
// error and the exit status. Compiled with -fstack-clash-protection, which
// makes a frame larger than a guard page touch each page it spans.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "runtime/sys/sanitizer.h"
#include "tests/sched/crash_testing.h"

// Functions whose names the tests look for in dumps. The empty asm prevents
// tail calls and clones.
namespace crashtest {

__attribute__((noinline)) void Thrower() {
  gump::panic("boom");
  asm volatile("");
}

__attribute__((noinline)) int Endless(int n) {
  volatile char frame[1024];  // large, as a sanitizer counts few frames
  frame[0] = static_cast<char>(n);
  if (n < 0) return 0;  // never
  int r = Endless(n + 1) + frame[0];
  asm volatile("");
  return r;
}

__attribute__((noinline)) void HugeFrame() {
  volatile char frame[4 << 20];  // a sanitizer's stacks are larger
  frame[0] = 1;
  asm volatile("" ::"r"(frame) : "memory");
}

}  // namespace crashtest

namespace gump {
namespace {

using testing::CrashDeathTest;
using testing::Died;

#if defined(GUMP_TSAN)
constexpr bool kTsan = true;
#else
constexpr bool kTsan = false;
#endif

TEST_F(CrashDeathTest, PanicInMainShowsTheThrowSite) {
  EXPECT_EXIT(RunWith({}, [] { crashtest::Thrower(); }), Died(),
              "^panic: boom\n\ngoroutine 1 \\[running\\]:\n"
              "gump::panic\\(\\.\\.\\.\\)\n\t/[^\n]+\n"
              "crashtest::Thrower\\(\\.\\.\\.\\)\n");
}

TEST_F(CrashDeathTest, TheWorldNeedNotFreeze) {
  EXPECT_EXIT(RunWith({{"GODEBUG", "dontfreezetheworld=1"}},
                      [] { crashtest::Thrower(); }),
              Died(), "^panic: [^\n]*\n\ngoroutine 1 \\[running\\]:\n");
}

TEST_F(CrashDeathTest, PanicInAGoroutineShowsThatOneOnly) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        go([] { crashtest::Thrower(); });
                        make_chan<int>().Recv();
                      }),
              Died(),
              "^panic: boom\n\ngoroutine [0-9]+ \\[running\\]:\n.*"
              "crashtest::Thrower\\(\\.\\.\\.\\)\n.*"
              "created by [^\n]+ in goroutine 1\n\t[^\n]+\n$");
}

TEST_F(CrashDeathTest, ExceptionOfTheStandardLibraryShowsTextAndType) {
  EXPECT_EXIT(RunWith({}, [] { throw std::out_of_range("too far"); }), Died(),
              "^panic: too far\n\\[exception std::out_of_range\\]\n\n"
              "goroutine 1 \\[running\\]:\n");
}

TEST_F(CrashDeathTest, OtherExceptionShowsItsType) {
  EXPECT_EXIT(RunWith({}, [] { throw 42; }), Died(),
              "^panic: int\n\ngoroutine 1 \\[running\\]:\n");
}

TEST_F(CrashDeathTest, ExceptionOnAPlainThreadIsTheProgramsOwn) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        std::thread([] {
                          throw std::runtime_error("not ours");
                        }).join();
                      }),
              ::testing::KilledBySignal(SIGABRT),
              "terminate called after throwing an instance of "
              "'std::runtime_error'");
}

TEST_F(CrashDeathTest, TerminateWithoutAnExceptionIsAPanic) {
  EXPECT_EXIT(RunWith({}, [] { std::terminate(); }), Died(),
              "^panic: std::terminate called without an active exception\n\n");
}

TEST_F(CrashDeathTest, GoOfANilFunctionIsFatal) {
  EXPECT_EXIT(RunWith({}, [] { go(std::function<void()>()); }), Died(),
              "^fatal error: go of nil func value\n\n"
              "goroutine 1 \\[running\\]:\n");
}

TEST_F(CrashDeathTest, ExceedingTheThreadLimitIsFatal) {
  EXPECT_EXIT(RunWith({}, [] { debug::SetMaxThreads(1); }), Died(),
              "runtime: program exceeds 1-thread limit\n"
              "fatal error: thread exhaustion\n");
}

// Occurs returns how often `what` occurs in the text.
size_t Occurs(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at++) {
    n++;
  }
  return n;
}

// SaysOnce matches a report that has each of these texts once.
class SaysOnce {
 public:
  using is_gtest_matcher = void;
  SaysOnce(std::initializer_list<std::string_view> texts) : texts_(texts) {}
  bool MatchAndExplain(const std::string& report, std::ostream*) const {
    return std::all_of(texts_.begin(), texts_.end(),
                       [&](auto text) { return Occurs(report, text) == 1; });
  }
  void DescribeTo(std::ostream* out) const {
    *out << "has each of these once:";
    for (std::string_view text : texts_) *out << ' ' << text;
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "has not each of these once";
  }

 private:
  std::vector<std::string_view> texts_;
};

// The goroutines that the limit stops are on several threads, and each of them
// finds that there is no thread for the next.
TEST_F(CrashDeathTest, ThreadLimitMetByManyGoroutinesIsReportedOnce) {
  for (const char* procs : {"2", "4", "8"}) {
    for (int i = 0; i < 4; i++) {
      EXPECT_EXIT(RunWith({{"GOMAXPROCS", procs}},
                          [] {
                            debug::SetMaxThreads(10);
                            for (int n = 0; n < 100; n++) {
                              go([] {
                                runtime::LockOSThread();
                                chan<void>().Recv();
                              });
                            }
                            for (;;) runtime::Gosched();
                          }),
                  Died(),
                  SaysOnce({"limit\nfatal error: thread exhaustion\n",
                            "fatal error: "}));
    }
  }
}

TEST_F(CrashDeathTest, ThreadLimitSetTooLowByManyThreadsIsReportedOnce) {
  constexpr int kThreads = 8;
  for (int i = 0; i < 4; i++) {
    EXPECT_EXIT(RunWith({},
                        [] {
                          static std::atomic<int> ready = 0;
                          for (int n = 0; n < kThreads; n++) {
                            std::thread([] {
                              ready++;
                              while (ready < kThreads)
                                std::this_thread::yield();
                              debug::SetMaxThreads(1);
                            }).detach();
                          }
                          blocking([] { pause(); });
                        }),
                Died(),
                SaysOnce({"runtime: program exceeds 1-thread limit\n",
                          "fatal error: "}));
  }
}

TEST_F(CrashDeathTest, TwoQuitsAtOnceMakeOneReport) {
  constexpr int kThreads = 4;
  for (int i = 0; i < 10; i++) {
    EXPECT_EXIT(RunWith({},
                        [] {
                          static std::atomic<int> ready = 0;
                          for (int n = 0; n < kThreads; n++) {
                            std::thread([] {
                              ready++;
                              while (ready < kThreads) {
                                std::this_thread::yield();
                              }
                              pthread_kill(pthread_self(), SIGQUIT);
                              pause();
                            }).detach();
                          }
                          blocking([] { pause(); });
                        }),
                Died(), SaysOnce({"SIGQUIT: quit\n"}));
  }
}

TEST_F(CrashDeathTest, EndlessRecursionInAGoroutineIsAnOverflow) {
  if (kTsan) GTEST_SKIP() << "the guard may be met inside its entry hook";
  EXPECT_EXIT(
      RunWith({},
              [] {
                go([] { crashtest::Endless(0); });
                make_chan<int>().Recv();
              }),
      Died(),
      "^runtime: goroutine stack exceeds (262144|524288|1048576)-byte limit\n"
      "fatal error: stack overflow\n\n"
      "goroutine [0-9]+ \\[running\\]:\n"
      "crashtest::Endless\\(\\.\\.\\.\\)\n.*"
      "\n\\.\\.\\.[0-9]+ frames elided\\.\\.\\.\n"
      "crashtest::Endless\\(\\.\\.\\.\\)\n.*"
      "created by [^\n]+ in goroutine 1\n");
}

TEST_F(CrashDeathTest, EndlessRecursionInMainIsAnOverflow) {
  if (kTsan) GTEST_SKIP() << "the guard may be met inside its entry hook";
  EXPECT_EXIT(RunWith({}, [] { crashtest::Endless(0); }), Died(),
              "fatal error: stack overflow\n\ngoroutine 1 \\[running\\]:\n");
}

TEST_F(CrashDeathTest, OneFrameLargerThanTheStackIsAnOverflow) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        go([] { crashtest::HugeFrame(); });
                        make_chan<int>().Recv();
                      }),
              Died(),
              "fatal error: stack overflow\n\ngoroutine [0-9]+ \\[running\\]:\n"
              "crashtest::HugeFrame\\(\\.\\.\\.\\)\n");
}

TEST_F(CrashDeathTest, OtherFaultsStillEndTheProcess) {
  if (rt::kSanitizerBuild)
    GTEST_SKIP() << "the sanitizer reports faults itself";
  EXPECT_EXIT(RunWith({},
                      [] {
                        volatile uintptr_t page_one = 4096;
                        auto* nowhere =
                            reinterpret_cast<volatile int*>(page_one);
                        *nowhere = 1;
                      }),
              ::testing::KilledBySignal(SIGSEGV), "^$");
  EXPECT_EXIT(RunWith({}, [] { raise(SIGBUS); }),
              ::testing::KilledBySignal(SIGBUS), "^$");
}

TEST_F(CrashDeathTest, HandlerInstalledBeforeGetsOtherFaults) {
  EXPECT_EXIT(
      {
        struct sigaction mine = {};
        mine.sa_handler = [](int) { _exit(7); };
        sigaction(SIGSEGV, &mine, nullptr);
        RunWith({}, [] { raise(SIGSEGV); });
      },
      ::testing::ExitedWithCode(7), "^$");
}

TEST_F(CrashDeathTest, HandlerInstalledBeforeMayBeForOnce) {
  if (rt::kSanitizerBuild)
    GTEST_SKIP() << "the sanitizer reports faults itself";
  EXPECT_EXIT(
      {
        struct sigaction mine = {};
        mine.sa_handler = [](int) { (void)!write(STDERR_FILENO, "once\n", 5); };
        mine.sa_flags = static_cast<int>(SA_RESETHAND);
        sigaction(SIGSEGV, &mine, nullptr);
        RunWith({}, [] {
          raise(SIGSEGV);
          raise(SIGSEGV);
        });
      },
      ::testing::KilledBySignal(SIGSEGV), "^once\n$");
}

TEST_F(CrashDeathTest, HandlerInstalledBeforeDoesNotGetOverflows) {
  if (kTsan) GTEST_SKIP() << "the guard may be met inside its entry hook";
  EXPECT_EXIT(
      {
        struct sigaction mine = {};
        mine.sa_handler = [](int) { _exit(7); };
        sigaction(SIGSEGV, &mine, nullptr);
        RunWith({}, [] { crashtest::Endless(0); });
      },
      Died(), "fatal error: stack overflow\n");
}

}  // namespace
}  // namespace gump
