// Signals by channels. The tests mostly use raise, which sends to the calling
// thread and is handled before it returns. The reason is ThreadSanitizer, which
// keeps a signal back that arrives outside of a libc call of its thread, until
// the next such call.
#include "gump/signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/defer.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

// The dispositions, as the kernel reports them.
bool IsDefault(int sig) {
  struct sigaction now = {};
  return sigaction(sig, nullptr, &now) == 0 && now.sa_handler == SIG_DFL;
}

std::atomic<int> handled;
void Count(int) { handled++; }

// Handle installs a handler of the program.
void Handle(int sig, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaddset(&action.sa_mask, SIGWINCH);
  ASSERT_EQ(sigaction(sig, &action, nullptr), 0);
}

using SignalTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(SignalTest);

// ---- Notify

TEST_P(SignalTest, GoroutinesAndThreadsSend) {
  Run([] {
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGUSR1, SIGUSR2});
    for (int i = 0; i < 100; i++) {
      raise(SIGUSR1);
      ASSERT_EQ(c.Recv(), SIGUSR1);
    }
    std::thread t = testing::KnownThread([] { raise(SIGUSR2); });
    EXPECT_EQ(c.Recv(), SIGUSR2);
    blocking([&] { t.join(); });
    go([] { raise(SIGUSR1); });
    EXPECT_EQ(c.Recv(), SIGUSR1);
    signal::Stop(c);
    EXPECT_TRUE(IsDefault(SIGUSR1));
    EXPECT_TRUE(IsDefault(SIGUSR2));
  });
}

// The signal goes to the process. Any thread may get it, even one that sleeps.
TEST_P(SignalTest, KillReachesTheProcess) {
  Run([] {
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGTERM});
    for (int i = 0; i < 100; i++) {
      kill(getpid(), SIGTERM);
      ASSERT_EQ(c.Recv(), SIGTERM);
    }
    signal::Stop(c);
  });
}

// Only the kernel will wake main, and that is no deadlock.
TEST_P(SignalTest, WaitingForASignalIsNoDeadlock) {
  Run([] {
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGALRM});
    itimerval soon = {};
    soon.it_value.tv_usec = 50'000;
    setitimer(ITIMER_REAL, &soon, nullptr);
    EXPECT_EQ(c.Recv(), SIGALRM);
    signal::Stop(c);
  });
}

TEST_P(SignalTest, AReceiverThatWaitsNeedsNoRoom) {
  Run([] {
    auto c = make_chan<int>();
    signal::Notify(c, {SIGUSR1});
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_EQ(c.Recv(), SIGUSR1); });
    EXPECT_TRUE(testing::EventuallyParked("chan receive", 1));
    raise(SIGUSR1);
    wg.Wait();
    signal::Stop(c);
  });
}

TEST_P(SignalTest, AFullChannelLosesAndHoldsUpNoOther) {
  Run([] {
    auto full = make_chan<int>(1);
    auto unbuffered = make_chan<int>();
    auto c = make_chan<int>(1);
    full.Send(-1);
    signal::Notify(full, {SIGUSR1});
    signal::Notify(unbuffered, {SIGUSR1});
    signal::Notify(c, {SIGUSR1});
    for (int i = 0; i < 100; i++) {
      raise(SIGUSR1);
      ASSERT_EQ(c.Recv(), SIGUSR1);
    }
    signal::Reset({SIGUSR1});
    EXPECT_EQ(full.Len(), 1u);
    EXPECT_EQ(full.Recv(), -1);
  });
}

TEST_P(SignalTest, CallsAddUp) {
  Run([] {
    auto c = make_chan<int>(8);
    signal::Notify(c, {SIGUSR1});
    signal::Notify(c, {SIGUSR2, SIGUSR1});
    signal::Notify(c, {SIGUSR1});
    raise(SIGUSR1);
    EXPECT_EQ(c.Recv(), SIGUSR1);
    raise(SIGUSR2);
    EXPECT_EQ(c.Recv(), SIGUSR2);
    signal::Stop(c);
    EXPECT_EQ(c.Len(), 0u);  // one copy of each
  });
}

TEST_P(SignalTest, EachChannelGetsItsCopyOfItsSignals) {
  Run([] {
    auto one = make_chan<int>(8);
    auto two = make_chan<int>(8);
    auto both = make_chan<int>(8);
    signal::Notify(one, {SIGUSR1});
    signal::Notify(two, {SIGUSR2});
    signal::Notify(both, {SIGUSR1, SIGUSR2});
    raise(SIGUSR1);
    EXPECT_EQ(both.Recv(), SIGUSR1);
    raise(SIGUSR2);
    EXPECT_EQ(both.Recv(), SIGUSR2);
    signal::Reset();
    EXPECT_EQ(one.Len(), 1u);
    EXPECT_EQ(one.Recv(), SIGUSR1);
    EXPECT_EQ(two.Len(), 1u);
    EXPECT_EQ(two.Recv(), SIGUSR2);
  });
}

TEST_P(SignalTest, EverySignalThatCanBeCaughtIsSent) {
  Run([] {
    auto c = make_chan<int>(64);
    signal::Notify(c);
    for (int sig : {SIGHUP,   SIGINT,  SIGQUIT, SIGILL,  SIGTRAP,   SIGABRT,
                    SIGBUS,   SIGFPE,  SIGUSR1, SIGSEGV, SIGUSR2,   SIGPIPE,
                    SIGALRM,  SIGTERM, SIGCHLD, SIGCONT, SIGTSTP,   SIGTTIN,
                    SIGTTOU,  SIGURG,  SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF,
                    SIGWINCH, SIGIO,   SIGPWR,  SIGSYS,  SIGRTMAX}) {
      raise(sig);
      // Other signals may come: SIGURG, from the runtime.
      while (*c.Recv() != sig) {
      }
    }
    signal::Stop(c);
    for (int sig : {SIGHUP, SIGXCPU, SIGTERM, SIGRTMAX}) {
      EXPECT_TRUE(IsDefault(sig)) << sig;
    }
    // The handler of a CPU profile stays: a late signal would end the process.
    if (std::getenv("GUMP_TEST_WATCH") == nullptr) {
      EXPECT_TRUE(IsDefault(SIGPROF));
    }
  });
}

TEST_P(SignalTest, SignalsThatCannotBeCaughtAreSkipped) {
  Run([] {
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGKILL, SIGSTOP, 32, 33, 0, -1, 65, 1'000'000});
    signal::Notify(c, {0});
    signal::Ignore({SIGKILL, 0, -1, 65});
    signal::Reset({SIGKILL, 0, -1, 65});
    for (int sig : {SIGKILL, 0, -1, 65}) EXPECT_FALSE(signal::Ignored(sig));
    signal::Stop(c);
    signal::Stop(c);
    signal::Stop(nullptr);
    EXPECT_EQ(
        testing::PanicText([] { signal::Notify(chan<int>(), {SIGUSR1}); }),
        "os/signal: Notify using nil channel");
  });
}

TEST_P(SignalTest, TheReceiverIsNoGoroutineOfTheProgram) {
  Run([] {
    const int before = runtime::NumGoroutine();
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGUSR1});
    raise(SIGUSR1);
    EXPECT_EQ(c.Recv(), SIGUSR1);
    EXPECT_EQ(runtime::NumGoroutine(), before);
    signal::Stop(c);
  });
}

// ---- Stop, Reset, Ignore

TEST_P(SignalTest, StopSendsArrivedSignalsAndNoLaterOnes) {
  Run([] {
    auto other = make_chan<int>(1000);
    signal::Notify(other, {SIGUSR1});
    for (int i = 0; i < 100; i++) {
      auto c = make_chan<int>(8);
      signal::Notify(c, {SIGUSR1});
      raise(SIGUSR1);
      signal::Stop(c);
      ASSERT_EQ(c.Len(), 1u);
      raise(SIGUSR1);
      ASSERT_EQ(other.Recv(), SIGUSR1);
      ASSERT_EQ(other.Recv(), SIGUSR1);
      ASSERT_EQ(c.Len(), 1u);
    }
    signal::Stop(other);
  });
}

// A signal from another thread goes to the channel or to the earlier handler.
TEST_P(SignalTest, NoneIsLostBetweenNotifyAndStop) {
  Run([] {
    handled = 0;
    // No other test may use this signal. If one had put its handler over the
    // library's, the library would not send refused signals again (Refuse in
    // api/signal.cc), and some would be lost.
    const int sig = SIGRTMAX - 1;
    Handle(sig, Count);
    std::atomic<bool> ended = false;
    int received = 0;
    int sent = 0;
    // One signal at a time, so that no two become one.
    std::atomic<int> got = 0;
    std::thread t = testing::KnownThread([&] {
      for (; sent < 300; sent++) {
        raise(sig);
        while (got + handled == sent) std::this_thread::yield();
      }
      ended = true;
    });
    while (!ended) {
      auto c = make_chan<int>(8);
      signal::Notify(c, {sig});
      runtime::Gosched();
      signal::Stop(c);
      received += static_cast<int>(c.Len());
      got = received;
    }
    blocking([&] { t.join(); });
    EXPECT_EQ(received + handled, sent);
    Handle(sig, SIG_DFL);
  });
}

TEST_P(SignalTest, TheProgramsHandlerComesBack) {
  Run([] {
    handled = 0;
    Handle(SIGUSR1, Count);
    struct sigaction mine = {};
    sigaction(SIGUSR1, nullptr, &mine);
    const auto signals = make_chan<int>(1);
    const auto give_up = std::vector<void (*)(const chan<int>&)>{
        [](const chan<int>& c) { signal::Stop(c); },
        [](const chan<int>&) { signal::Reset({SIGUSR1}); },
        [](const chan<int>&) { signal::Reset(); },
        [](const chan<int>&) {
          signal::Ignore({SIGUSR1});
          raise(SIGUSR1);
          signal::Reset({SIGUSR1});
        },
        [](const chan<int>& c) {
          signal::Ignore({SIGUSR1});
          signal::Notify(c, {SIGUSR1});
          signal::Stop(c);
        },
    };
    for (auto f : give_up) {
      handled = 0;
      signal::Notify(signals, {SIGUSR1});
      raise(SIGUSR1);
      EXPECT_EQ(signals.Recv(), SIGUSR1);
      EXPECT_EQ(handled, 0);
      f(signals);
      raise(SIGUSR1);
      EXPECT_EQ(handled, 1);
      EXPECT_EQ(signals.Len(), 0u);
      struct sigaction now = {};
      sigaction(SIGUSR1, nullptr, &now);
      EXPECT_EQ(now.sa_handler, mine.sa_handler);
      EXPECT_EQ(now.sa_flags, mine.sa_flags);
      EXPECT_TRUE(sigismember(&now.sa_mask, SIGWINCH));
    }
    Handle(SIGUSR1, SIG_DFL);
  });
}

TEST_P(SignalTest, AHandlerInstalledMeanwhileStays) {
  Run([] {
    handled = 0;
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGUSR1});
    Handle(SIGUSR1, Count);
    signal::Stop(c);
    raise(SIGUSR1);
    EXPECT_EQ(handled, 1);
    signal::Ignore({SIGUSR1});
    raise(SIGUSR1);
    EXPECT_EQ(handled, 1);
    Handle(SIGUSR1, Count);
    signal::Reset({SIGUSR1});
    raise(SIGUSR1);
    EXPECT_EQ(handled, 2);
    Handle(SIGUSR1, SIG_DFL);
  });
}

TEST_P(SignalTest, IgnoredSignalsReachNoChannel) {
  Run([] {
    auto c = make_chan<int>(8);
    signal::Notify(c, {SIGUSR1, SIGUSR2});
    EXPECT_FALSE(signal::Ignored(SIGUSR1));
    raise(SIGUSR1);
    // The runtime keeps its handlers for the last three.
    signal::Ignore({SIGUSR1, SIGSEGV, SIGBUS, SIGURG});
    EXPECT_EQ(c.Len(), 1u);  // had arrived
    for (int sig : {SIGUSR1, SIGSEGV, SIGBUS, SIGURG}) {
      EXPECT_TRUE(signal::Ignored(sig)) << sig;
      raise(sig);
    }
    EXPECT_FALSE(signal::Ignored(SIGUSR2));
    raise(SIGUSR2);  // still wanted
    EXPECT_EQ(c.Recv(), SIGUSR1);
    EXPECT_EQ(c.Recv(), SIGUSR2);
    signal::Stop(c);
    EXPECT_TRUE(signal::Ignored(SIGUSR1));
    signal::Notify(c, {SIGUSR1});
    EXPECT_FALSE(signal::Ignored(SIGUSR1));
    raise(SIGUSR1);
    EXPECT_EQ(c.Recv(), SIGUSR1);
    signal::Stop(c);
    EXPECT_TRUE(IsDefault(SIGUSR1));
    signal::Reset();
    EXPECT_FALSE(signal::Ignored(SIGSEGV));
    EXPECT_FALSE(signal::Ignored(SIGURG));
  });
}

TEST_P(SignalTest, ASignalThatWasIgnoredIsSoAgain) {
  Run([] {
    Handle(SIGHUP, SIG_IGN);  // as nohup
    EXPECT_TRUE(signal::Ignored(SIGHUP));
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGHUP});
    EXPECT_FALSE(signal::Ignored(SIGHUP));
    raise(SIGHUP);
    EXPECT_EQ(c.Recv(), SIGHUP);
    signal::Reset({SIGHUP});
    EXPECT_TRUE(signal::Ignored(SIGHUP));
    raise(SIGHUP);
    Handle(SIGHUP, SIG_DFL);
  });
}

// ---- NotifyContext

TEST_P(SignalTest, ASignalCancelsTheContext) {
  Run([] {
    const struct {
      int sig;
      const char* text;
    } cases[] = {{SIGINT, "interrupt signal received"},
                 {SIGTERM, "terminated signal received"},
                 {SIGUSR1, "user defined signal 1 signal received"},
                 {SIGSYS, "bad system call signal received"},
                 {40, "signal 40 signal received"}};
    for (const auto& [sig, text] : cases) {
      auto [ctx, stop] =
          signal::NotifyContext(context::Background(), {SIGWINCH, sig});
      EXPECT_TRUE(ctx.Err().ok());
      raise(sig);
      ctx.Done().Recv();
      EXPECT_EQ(ctx.Err(), absl::CancelledError("context canceled"));
      EXPECT_EQ(context::Cause(ctx), absl::CancelledError(text));
      raise(sig);  // still ours
      EXPECT_FALSE(IsDefault(sig));
      stop();
      EXPECT_TRUE(IsDefault(sig));
      stop();
      EXPECT_EQ(context::Cause(ctx), absl::CancelledError(text));
    }
    EXPECT_TRUE(
        testing::Eventually([] { return runtime::NumGoroutine() == 1; }));
  });
}

TEST_P(SignalTest, TheContextEndsByStopOrByItsParent) {
  Run([] {
    {
      auto [ctx, stop] = signal::NotifyContext(context::Background());
      const signal::StopFunc copy = stop;
      copy();
      EXPECT_EQ(ctx.Err(), absl::CancelledError("context canceled"));
      EXPECT_EQ(context::Cause(ctx), absl::CancelledError("context canceled"));
      EXPECT_TRUE(IsDefault(SIGTERM));
    }
    auto [parent, cancel] = context::WithCancelCause(context::Background());
    auto [ctx, stop] = signal::NotifyContext(parent, {SIGTERM});
    defer _{stop};
    cancel(absl::AbortedError("enough"));
    ctx.Done().Recv();
    EXPECT_EQ(context::Cause(ctx), absl::AbortedError("enough"));
    auto [late, stop_late] = signal::NotifyContext(parent, {SIGTERM});
    defer _2{stop_late};
    EXPECT_EQ(context::Cause(late), absl::AbortedError("enough"));
    signal::StopFunc()();
    EXPECT_TRUE(
        testing::Eventually([] { return runtime::NumGoroutine() == 1; }));
  });
}

// ---- Crowds, threads, several Runs

TEST_P(SignalTest, StormReachesEveryChannel) {
  Run([] {
    constexpr int kRounds = 250;
    const std::vector<int> signals = {SIGUSR1, SIGUSR2, SIGHUP, SIGWINCH};
    std::vector<chan<int>> channels;
    for (int i = 0; i < 4; i++) {
      channels.push_back(make_chan<int>(4 * kRounds));
      signal::Notify(channels.back(), {SIGUSR1, SIGUSR2, SIGHUP, SIGWINCH});
    }
    std::atomic<bool> ended = false;
    sync::WaitGroup others;
    others.Go([&] {  // its channels come and go
      while (!ended) {
        auto c = make_chan<int>(1);
        signal::Notify(c);
        runtime::Gosched();
        signal::Stop(c);
      }
    });
    sync::WaitGroup wg;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 4; i++) {
      const auto storm = [sig = signals[i]] {
        for (int k = 0; k < kRounds; k++) raise(sig);
      };
      if (i % 2 == 0) {
        wg.Go(storm);
      } else {
        threads.push_back(testing::KnownThread(storm));
      }
    }
    wg.Wait();
    testing::JoinAll(threads);
    ended = true;
    others.Wait();
    for (const chan<int>& c : channels) {
      signal::Stop(c);
      std::set<int> seen;
      const size_t n = c.Len();
      EXPECT_LE(n, size_t{4 * kRounds});
      for (size_t k = 0; k < n; k++) seen.insert(*c.Recv());
      EXPECT_EQ(seen, std::set<int>(signals.begin(), signals.end()));
    }
    for (int sig : signals) EXPECT_TRUE(IsDefault(sig));
  });
}

TEST_P(SignalTest, SignalsBetweenTwoRunsAreDeliveredByTheNext) {
  auto c = make_chan<int>(4);
  Run([&] { signal::Notify(c, {SIGUSR1, SIGUSR2}); });
  for (int i = 0; i < 3; i++) {
    raise(SIGUSR1);
    Run([&] {
      EXPECT_EQ(c.Recv(), SIGUSR1);
      raise(SIGUSR2);
      EXPECT_EQ(c.Recv(), SIGUSR2);
    });
  }
  raise(SIGUSR1);
  signal::Stop(c);  // on a plain thread, and nothing is scheduled
  EXPECT_EQ(c.Len(), 1u);
  EXPECT_TRUE(IsDefault(SIGUSR1));
}

#if !defined(GUMP_TSAN)  // TSan waits for its threads before it forks
TEST_P(SignalTest, AChildOfForkHasTheEarlierHandlers) {
  Run([] {
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGTERM});
    const pid_t child = fork();
    if (child == 0) {
      raise(SIGTERM);
      _exit(1);
    }
    int status = 0;
    blocking([&] { waitpid(child, &status, 0); });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
    signal::Stop(c);
    EXPECT_EQ(c.Len(), 0u);
  });
}
#endif

// ---- Signals that the runtime itself uses

// Each case is a process of its own.
class SignalDeathTest : public ::testing::Test {};

TEST_F(SignalDeathTest, AFaultReachesItsHandlerThoughIgnored) {
  EXPECT_EXIT(
      {
        // The signal of a trap depends on the processor.
        for (int sig : {SIGILL, SIGTRAP}) Handle(sig, [](int) { _exit(3); });
        gump::Run([] {
          signal::Ignore({SIGILL, SIGTRAP});
          raise(SIGILL);
          __builtin_trap();
        });
      },
      ::testing::ExitedWithCode(3), "");
}

TEST_F(SignalDeathTest, SignalsAreDeliveredWithoutRun) {
  EXPECT_EXIT(
      {
        auto c = make_chan<int>(1);
        signal::Notify(c, {SIGUSR1});
        int good = 0;
        for (int i = 0; i < 3; i++) {
          raise(SIGUSR1);
          good += c.Recv() == SIGUSR1 ? 1 : 0;
          std::thread([&] {
            raise(SIGUSR1);
            good += c.Recv() == SIGUSR1 ? 1 : 0;
          }).join();
        }
        signal::Stop(c);
        std::exit(good + 1);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_F(SignalDeathTest, ResetMakesItDeadlyAgain) {
  EXPECT_EXIT(gump::Run([] {
                auto c = make_chan<int>(1);
                signal::Notify(c, {SIGTERM});
                raise(SIGTERM);
                if (c.Recv() != SIGTERM) std::_Exit(1);
                signal::Reset({SIGTERM});
                raise(SIGTERM);
                std::_Exit(2);
              }),
              ::testing::KilledBySignal(SIGTERM), "");
}

TEST_F(SignalDeathTest, QuitDumpsUnlessAsked) {
  EXPECT_EXIT(gump::Run([] {
                auto c = make_chan<int>(1);
                signal::Notify(c, {SIGQUIT});
                raise(SIGQUIT);
                if (c.Recv() != SIGQUIT) std::_Exit(1);
                signal::Stop(c);
                raise(SIGQUIT);
                std::_Exit(1);
              }),
              ::testing::ExitedWithCode(2), "^SIGQUIT: quit\n");
}

// WriteToForbidden faults. (Not at null: UBSan would notice first.)
void WriteToForbidden() {
  void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                    /*fd=*/-1, /*offset=*/0);
  *static_cast<volatile int*>(page) = 1;
}

TEST_F(SignalDeathTest, FaultsAreNotDelivered) {
#if defined(GUMP_ASAN) || defined(GUMP_TSAN)
  GTEST_SKIP() << "the sanitizer's reports come first";
#endif
  EXPECT_EXIT(gump::Run([] {
                signal::Notify(make_chan<int>(1));
                WriteToForbidden();
                std::_Exit(1);
              }),
              ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(gump::Run([] {
                signal::Ignore({SIGSEGV});
                WriteToForbidden();
                std::_Exit(1);
              }),
              ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(gump::Run([] {
                signal::Notify(make_chan<int>(1));
                __builtin_trap();
              }),
              ::testing::KilledBySignal(SIGILL), "");
}

__attribute__((noinline)) int Endless(int n) {
  volatile char frame[512];
  frame[0] = static_cast<char>(n);
  if (n < 0) return 0;  // never
  const int r = Endless(n + 1) + frame[0];
  asm volatile("");
  return r;
}

TEST_F(SignalDeathTest, StackOverflowIsReportedAllTheSame) {
#if defined(GUMP_TSAN)
  GTEST_SKIP() << "the guard may be met inside its entry hook";
#endif
  EXPECT_EXIT(gump::Run([] {
                signal::Notify(make_chan<int>(1));
                auto c = make_chan<int>();
                go([c] { c.Send(Endless(0)); });
                c.Recv();
              }),
              ::testing::ExitedWithCode(2), "fatal error: stack overflow\n");
}

TEST_F(SignalDeathTest, AClosedChannelPanics) {
  EXPECT_EXIT(gump::Run([] {
                auto c = make_chan<int>(1);
                signal::Notify(c, {SIGUSR1});
                c.Close();
                raise(SIGUSR1);
                make_chan<int>().Recv();
              }),
              ::testing::ExitedWithCode(2), "^panic: send on closed channel\n");
}

TEST_F(SignalDeathTest, DeadlocksAreReportedUnlessNotified) {
  EXPECT_EXIT(gump::Run([] {
                signal::Ignore({SIGUSR1});
                signal::Reset();
                signal::Stop(make_chan<int>(1));
                make_chan<int>().Recv();
              }),
              ::testing::ExitedWithCode(2), "all goroutines are asleep");
}

#if !defined(GUMP_TSAN)  // under TSan signals wait for a call of libc
TEST_P(SignalTest, PreemptionGoesOnWhileAChannelWantsItsSignal) {
  Run([] {
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGURG});
    std::atomic<int> turns = 0;
    sync::WaitGroup wg;
    const int n = GetParam() + 1;  // more than there are Ps
    for (int i = 0; i < n; i++) {
      wg.Go([&] {
        turns++;
        while (turns < n) {
        }
      });
    }
    wg.Wait();
    raise(SIGURG);
    EXPECT_EQ(c.Recv(), SIGURG);
    signal::Stop(c);
  });
}
#endif

}  // namespace
}  // namespace gump
