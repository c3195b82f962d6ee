// How programs end when they must, seen from outside: the text on standard
// error and the exit status. Compiled with -fstack-clash-protection, which
// makes a frame larger than a guard page touch each page it spans.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/diag/panic.h"
#include "runtime/sys/os_linux.h"
#include "tests/testing/with_gomaxprocs.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GUMP_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GUMP_TEST_SANITIZED 1
#endif
#endif

// Functions with names worth finding in a dump. asm: no tail calls, no clones.
namespace crashtest {

__attribute__((noinline)) void ParkedReceiver(gump::chan<int> c) {
  c.Recv();
  asm volatile("");
}

__attribute__((noinline)) void ParkedSender(gump::chan<int> c) {
  c.Send(1);
  asm volatile("");
}

__attribute__((noinline)) void Spawner(gump::chan<int> c) {
  gump::go([c] { ParkedReceiver(c); });
  asm volatile("");
}

__attribute__((noinline)) void Thrower() {
  gump::panic("boom");
  asm volatile("");
}

__attribute__((noinline)) int Endless(int n) {
  volatile char frame[1024];  // no more frames than a sanitizer can count
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

#if defined(__SANITIZE_THREAD__)
constexpr bool kTsan = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kTsan = true;
#else
constexpr bool kTsan = false;
#endif
#else
constexpr bool kTsan = false;
#endif

#if defined(GUMP_TEST_SANITIZED)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

::testing::ExitedWithCode Died() { return ::testing::ExitedWithCode(2); }

// Matches tells whether the whole text has the form of a regular expression.
bool Matches(const std::string& text, const std::string& form) {
  return ::testing::Matcher<const std::string&>(::testing::MatchesRegex(form))
      .Matches(text);
}

class CrashDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // A shell that runs us in the background may ignore it, and then it would
    // stay ignored.
    ::signal(SIGQUIT, SIG_DFL);
  }

  // RunWith sets variables of the environment, which the runtime reads when it
  // starts, and runs f as main.
  template <class F>
  static void RunWith(std::vector<std::pair<const char*, const char*>> env,
                      F f) {
    for (auto [name, value] : env) setenv(name, value, 1);
    gump::Run(f);
    std::exit(0);
  }
};

// AwaitParked yields until n goroutines are parked in ParkedReceiver.
void AwaitParked(size_t n) {
  bool ok = testing::Eventually([n] {
    constexpr std::string_view kParked = "[chan receive";
    std::string text = runtime::Stack(true);
    size_t found = 0;
    for (size_t at = text.find(kParked); at != std::string::npos;
         at = text.find(kParked, at + 1)) {
      found++;
    }
    return found == n;
  });
  if (!ok) std::abort();
}

TEST_F(CrashDeathTest, DeadlockOfMainAloneIsReported) {
  EXPECT_EXIT(RunWith({}, [] { make_chan<int>().Recv(); }), Died(),
              "^fatal error: all goroutines are asleep - deadlock!\n\n"
              "goroutine 1 \\[chan receive\\]:\n");
}

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

TEST_F(CrashDeathTest, DeadlockShowsEveryGoroutineAndItsMaker) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        auto c = make_chan<int>();
                        auto d = make_chan<int>();
                        crashtest::Spawner(c);
                        go([d] { crashtest::ParkedSender(d); });
                        chan<int>().Recv();
                      }),
              Died(),
              "^fatal error: all goroutines are asleep - deadlock!\n\n"
              "goroutine 1 \\[chan receive \\(nil chan\\)\\]:\n.*"
              "\n\ngoroutine [0-9]+ \\[chan receive\\]:\n.*"
              "crashtest::ParkedReceiver\\(\\.\\.\\.\\)\n"
              "\t/[^\n]+ \\+0x[0-9a-f]+\n.*"
              "created by crashtest::Spawner in goroutine 1\n"
              "\t/[^\n]+ \\+0x[0-9a-f]+\n\n"
              "goroutine [0-9]+ \\[chan send\\]:\n.*"
              "crashtest::ParkedSender\\(\\.\\.\\.\\)\n.*"
              "created by [^\n]+ in goroutine 1\n");
}

TEST_F(CrashDeathTest, DeadlockIsSeenOnAnyNumberOfPs) {
  for (const char* procs : {"1", "2", "4", "8"}) {
    EXPECT_EXIT(RunWith({{"GOMAXPROCS", procs}},
                        [] {
                          auto c = make_chan<int>();
                          for (int i = 0; i < 100; i++) {
                            go([c] { crashtest::ParkedReceiver(c); });
                          }
                          c.Recv();
                        }),
                Died(), "all goroutines are asleep - deadlock!");
  }
}

TEST_F(CrashDeathTest, GoexitOfMainWithNoGoroutineLeftIsFatal) {
  EXPECT_EXIT(RunWith({}, [] { runtime::Goexit(); }), Died(),
              "^fatal error: no goroutines \\(main called runtime.Goexit\\) - "
              "deadlock!\n");
}

TEST_F(CrashDeathTest, GoexitOfMainWithOthersAsleepIsADeadlock) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        auto c = make_chan<int>();
                        go([c] { crashtest::ParkedReceiver(c); });
                        runtime::Goexit();
                      }),
              Died(),
              "^fatal error: all goroutines are asleep - deadlock!\n\n"
              "goroutine [0-9]+ \\[chan receive\\]:\n");
}

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

TEST_F(CrashDeathTest, OtherFaultsKillAsEver) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer reports faults itself";
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
  if (kSanitized) GTEST_SKIP() << "the sanitizer reports faults itself";
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
              "\n\ngoroutine [0-9]+ \\[chan receive, name \"pump\"\\]:\n"
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
  if (kSanitized) GTEST_SKIP() << "a sanitizer holds back signals to sleepers";
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
                "gump::rt::.*\ngump::rt::chanrecv\\(\\.\\.\\.\\)\n");
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

// Capture turns standard error into a pipe, so that a program can read what its
// own runtime prints.
class Capture {
 public:
  Capture() {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    in_ = fdopen(ends[0], "r");
  }
  std::string Line() {
    char* line = nullptr;
    size_t size = 0;
    ssize_t n = getline(&line, &size, in_);
    std::string text(line, n > 0 ? static_cast<size_t>(n) : 0);
    std::free(line);
    return text;
  }

 private:
  FILE* in_;
};

// Check ends the death test's process with the verdict.
void Check(bool ok, const std::string& text) {
  if (!ok) std::printf("unexpected: <%s>\n", text.c_str());
  std::fflush(stdout);
  std::_Exit(ok ? 0 : 1);
}

TEST_F(CrashDeathTest, SchedtraceLineIsGos) {
  EXPECT_EXIT(
      {
        setenv("GODEBUG", "schedtrace=10", 1);
        setenv("GOMAXPROCS", "2", 1);
        Capture err;
        gump::Run([&err] {
          std::string first = blocking([&err] { return err.Line(); });
          std::string second = blocking([&err] { return err.Line(); });
          std::string form(
              "SCHED [0-9]+ms: gomaxprocs=2 idleprocs=[0-2] threads=[0-9]+ "
              "spinningthreads=[0-9]+ needspinning=[01] idlethreads=[0-9]+ "
              "runqueue=[0-9]+ \\[ [0-9]+ [0-9]+ \\] "
              "schedticks=\\[ [0-9]+ [0-9]+ \\]\n");
          Check(first.find("SCHED 0ms: ") == 0 && Matches(first, form) &&
                    Matches(second, form),
                first + second);
        });
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CrashDeathTest, SchedtraceBeginsAtOnce) {
  EXPECT_EXIT(
      {
        setenv("GODEBUG", "schedtrace=1000000", 1);
        Capture err;
        gump::Run([&err] {
          const std::string first = blocking([&err] { return err.Line(); });
          Check(first.find("SCHED 0ms: ") == 0, first);
        });
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CrashDeathTest, ScheddetailIsGos) {
  EXPECT_EXIT(
      {
        setenv("GODEBUG", "schedtrace=10,scheddetail=1", 1);
        setenv("GOMAXPROCS", "2", 1);
        Capture err;
        gump::Run([&err] {
          auto c = make_chan<int>();
          go([c] { crashtest::ParkedReceiver(c); });
          AwaitParked(1);
          std::string text = blocking([&err] {
            std::string all = err.Line();  // the first trace ...
            while (all.find("(chan receive)") == std::string::npos ||
                   all.rfind("\nSCHED ") == std::string::npos) {
              all += err.Line();  // ... up to the head of a later one
            }
            return all;
          });
          std::string form(
              "(SCHED [0-9]+ms: gomaxprocs=2 idleprocs=[0-2] threads=[0-9]+ "
              "spinningthreads=[0-9]+ needspinning=[01] idlethreads=[0-9]+ "
              "runqueue=[0-9]+ gcwaiting=(true|false) nmidlelocked=-?[0-9]+ "
              "stopwait=[0-9]+ sysmonwait=(true|false)\n"
              "|  P[01]: status=[0-4] schedtick=[0-9]+ syscalltick=[0-9]+ "
              "m=([0-9]+|nil) runqsize=[0-9]+ gfreecnt=[0-9]+ timerslen=0\n"
              "|  M[0-9]+: p=([0-9]+|nil) curg=([0-9]+|nil) mallocing=0 "
              "throwing=0 preemptoff= locks=[0-9]+ dying=0 "
              "spinning=(true|false) blocked=(true|false) "
              "lockedg=([0-9]+|nil)\n"
              "|  G[0-9]+: status=[0-9]+\\([a-z() ]*\\) m=([0-9]+|nil) "
              "lockedm=([0-9]+|nil)\n)+");
          Check(Matches(text, form), text);
          // The line of the template thread, at least.
          Check(text.find("curg=nil mallocing=0 throwing=0 preemptoff= "
                          "locks=0 ") != std::string::npos,
                text);
        });
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CrashDeathTest, SchedtraceIsPrintedBeforeTheStacks) {
  EXPECT_EXIT(RunWith({{"GODEBUG", "schedtrace=1000000,scheddetail=1"}},
                      [] { panic("boom"); }),
              Died(),
              "SCHED [0-9]+ms: .*\n  G1: status=2\\([^\n]*\n.*"
              "panic: boom\n\ngoroutine 1 ");
}

// ShortOfStacks starts a goroutine that cannot begin, and parks.
void ShortOfStacks() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  // Enough for threads, and for the memory that malloc reserves for each.
  limit.rlim_cur = static_cast<rlim_t>(pages) * 4096 + (512 << 20);
  setrlimit(RLIMIT_AS, &limit);
  go(GoOptions{.stack_size = 1 << 30, .name = {}}, [] {});
  make_chan<int>().Recv();
}

TEST_F(CrashDeathTest, NoMemoryForAStackIsNotCalledADeadlock) {
  if (kSanitized) GTEST_SKIP() << "the shadow does not fit under RLIMIT_AS";
  // Many times. Sysmon makes the goroutine try again, and must not do so
  // between the last look of the last M at the queues and the sleep of that M.
  for (int i = 0; i < 30; i++) {
    EXPECT_EXIT(
        RunWith({}, ShortOfStacks), Died(),
        "runtime: 1 goroutines cannot begin: .*\nfatal error: all other "
        "goroutines are asleep and no memory for a stack - "
        "deadlock!\n");
  }
}

TEST(StackTest, OfTheCallerIsOneBlock) {
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
      for (int i = 0; i < 100; i++) (void)runtime::Stack(true);
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
