// The claims of Go's os/signal/signal_test.go, and of runtime/signal_test.go,
// under its names, in our words. Most of them use raise, which sends to the
// calling thread and is handled before it returns.
#include "gump/signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::WaitGroup;
using testing::Eventually;
using testing::RunWith;

using GoSignalTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GoSignalTest);

const absl::Status kCanceled = absl::CancelledError("context canceled");

// Drain receives values until it gets sig.
void Drain(const chan<int>& c, int sig) {
  while (c.Recv() != sig) {
  }
}

bool Nothing(const chan<int>& c) { return select(Recv(c), Default()) == 1; }

TEST_P(GoSignalTest, TestSignal) {
  Run([] {
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGHUP});
    raise(SIGHUP);
    EXPECT_EQ(c.Recv(), SIGHUP);
    // A channel for all signals gets those that another one gets, too. It has
    // room for those of the runtime's own.
    auto all = make_chan<int>(1000);
    signal::Notify(all);
    raise(SIGWINCH);
    Drain(all, SIGWINCH);
    raise(SIGHUP);
    EXPECT_EQ(c.Recv(), SIGHUP);
    Drain(all, SIGHUP);
    signal::Stop(c);
    raise(SIGHUP);
    Drain(all, SIGHUP);
    EXPECT_TRUE(Nothing(c));
    signal::Stop(all);
  });
}

// One goroutine sends signals, another receives them, and a third computes and
// yields.
TEST(GoSignalStressTest, TestStress) {
  RunWith(4, [] {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    std::atomic<bool> stop = false;
    std::atomic<int> received = 0;
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGUSR1});
    WaitGroup wg;
    wg.Go([&] {
      while (!stop) {
        raise(SIGUSR1);
        runtime::Gosched();
      }
      signal::Stop(c);
      c.Close();
    });
    wg.Go([&] {
      for (int sig : c) {
        EXPECT_EQ(sig, SIGUSR1);
        received++;
      }
    });
    while (std::chrono::steady_clock::now() < end) runtime::Gosched();
    EXPECT_TRUE(Eventually([&] { return received > 0; }));
    stop = true;
    wg.Wait();
  });
}

// Ignore and Reset undo Notify for the signals that they name.
void CancelNotify(bool ignore) {
  auto c1 = make_chan<int>(1);
  auto c2 = make_chan<int>(1);
  signal::Notify(c1, {SIGWINCH});
  signal::Notify(c2, {SIGHUP});
  raise(SIGWINCH);
  EXPECT_EQ(c1.Recv(), SIGWINCH);
  raise(SIGHUP);
  EXPECT_EQ(c2.Recv(), SIGHUP);
  if (ignore) {
    signal::Ignore({SIGWINCH, SIGHUP});
    raise(SIGHUP);
  } else {
    signal::Reset({SIGWINCH, SIGHUP});
  }
  raise(SIGWINCH);  // ignored by default
  // A signal that is sent later and arrives shows that those would have
  // arrived.
  auto c3 = make_chan<int>(1);
  signal::Notify(c3, {SIGUSR2});
  raise(SIGUSR2);
  EXPECT_EQ(c3.Recv(), SIGUSR2);
  EXPECT_TRUE(Nothing(c1));
  EXPECT_TRUE(Nothing(c2));
  signal::Stop(c3);
  signal::Reset({SIGWINCH, SIGHUP});
}

TEST_P(GoSignalTest, TestReset) {
  Run([] { CancelNotify(/*ignore=*/false); });
}

TEST_P(GoSignalTest, TestIgnore) {
  Run([] { CancelNotify(/*ignore=*/true); });
}

TEST_P(GoSignalTest, TestIgnored) {
  Run([] {
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGWINCH});
    EXPECT_FALSE(signal::Ignored(SIGWINCH));
    signal::Stop(c);
    signal::Ignore({SIGWINCH});
    EXPECT_TRUE(signal::Ignored(SIGWINCH));
    signal::Reset();
    EXPECT_FALSE(signal::Ignored(SIGWINCH));
  });
}

TEST_P(GoSignalTest, TestStop) {
  Run([] {
    for (int sig : {SIGWINCH, SIGHUP, SIGUSR1}) {
      auto c = make_chan<int>(1);
      signal::Notify(c, {sig});
      raise(sig);
      EXPECT_EQ(c.Recv(), sig);
      signal::Stop(c);
      if (sig == SIGWINCH) raise(sig);  // the others would end the process
      EXPECT_TRUE(Nothing(c));
    }
  });
}

// A process that nohup started goes on ignoring SIGHUP, and Notify ends that
// for as long as a channel wants it.
TEST(GoSignalDeathTest, TestNohup) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::signal(SIGHUP, SIG_IGN);
        gump::Run([] {
          // _exit, because a goroutine that has not parked runs on the thread
          // of Run. LeakSanitizer then does not see the frames below Run, and
          // at exit reports what only they point to.
          raise(SIGHUP);
          if (!signal::Ignored(SIGHUP)) _exit(2);
          auto c = make_chan<int>(1);
          signal::Notify(c, {SIGHUP});
          raise(SIGHUP);
          if (c.Recv() != SIGHUP) _exit(3);
          signal::Stop(c);
          raise(SIGHUP);
          _exit(signal::Ignored(SIGHUP) ? 0 : 4);
        });
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_P(GoSignalTest, TestSIGCONT) {
  Run([] {
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGCONT});
    raise(SIGCONT);
    EXPECT_EQ(c.Recv(), SIGCONT);
    signal::Stop(c);
  });
}

// Each signal either ends the process or reaches the channel, although another
// goroutine stops the channel meanwhile.
[[noreturn]] void AtomicStop() {
  ::signal(SIGINT, SIG_DFL);
  RunWith(2, [] {
    for (int i = 0; i < 10; i++) {
      auto c = make_chan<int>(1);
      signal::Notify(c, {SIGINT});
      WaitGroup wg;
      wg.Go([=] { signal::Stop(c); });
      kill(getpid(), SIGINT);
      if (!Eventually([&] { return !Nothing(c); })) std::exit(3);
      wg.Wait();
    }
  });
  std::exit(0);
}

TEST(GoSignalDeathTest, TestAtomicStop) {
#if defined(GUMP_TSAN)
  GTEST_SKIP() << "TSan keeps a signal back, and drops it if the handler is "
                  "gone by then";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int i = 0; i < 5; i++) {
    EXPECT_EXIT(
        AtomicStop(),
        [](int status) {
          return (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                 (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
        },
        "");
  }
}

// The clock, which the kernel lends to the process, is read beside signals.
TEST_P(GoSignalTest, TestTime) {
  Run([] {
    std::atomic<bool> stop = false;
    auto c = make_chan<int>(1);
    signal::Notify(c, {SIGUSR1});
    WaitGroup wg;
    wg.Go([&] {
      while (!stop) {
        raise(SIGUSR1);
        runtime::Gosched();
      }
    });
    wg.Go([&] {
      while (!stop) {
        (void)select(Recv(c), Default());
        runtime::Gosched();
      }
    });
    auto last = std::chrono::steady_clock::now();
    for (int i = 0; i < 2000; i++) {
      const auto now = std::chrono::steady_clock::now();
      ASSERT_GE(now, last);
      last = now;
      if (i % 100 == 0) runtime::Gosched();
    }
    stop = true;
    wg.Wait();
    signal::Stop(c);
  });
}

// The first signal ends the context. Those that follow before stop are ignored
// by it, and do not end the process.
TEST_P(GoSignalTest, TestNotifyContextNotifications) {
  Run([] {
    for (int n : {1, 10}) {
      auto [ctx, stop] = signal::NotifyContext(context::Background(), {SIGINT});
      WaitGroup wg;
      for (int i = 0; i < n; i++) wg.Go([] { raise(SIGINT); });
      wg.Wait();
      ctx.Done().Recv();
      EXPECT_EQ(context::Cause(ctx).message(), "interrupt signal received");
      stop();
    }
  });
}

TEST_P(GoSignalTest, TestNotifyContextStop) {
  Run([] {
    signal::Ignore({SIGHUP});
    EXPECT_TRUE(signal::Ignored(SIGHUP));
    auto [ctx, stop] = signal::NotifyContext(context::Background(), {SIGHUP});
    EXPECT_FALSE(signal::Ignored(SIGHUP));
    EXPECT_TRUE(ctx.Err().ok());
    stop();
    ctx.Done().Recv();
    EXPECT_EQ(ctx.Err(), kCanceled);
    EXPECT_EQ(context::Cause(ctx), kCanceled);
    signal::Reset({SIGHUP});
  });
}

TEST_P(GoSignalTest, TestNotifyContextCancelParent) {
  Run([] {
    const absl::Status because = absl::InternalError("parent canceled");
    auto [parent, cancel] = context::WithCancelCause(context::Background());
    auto [ctx, stop] = signal::NotifyContext(parent, {SIGINT});
    cancel(because);
    ctx.Done().Recv();
    EXPECT_EQ(ctx.Err(), kCanceled);
    EXPECT_EQ(context::Cause(ctx), because);
    stop();
  });
}

TEST_P(GoSignalTest, TestNotifyContextPrematureCancelParent) {
  Run([] {
    const absl::Status because = absl::InternalError("parent canceled");
    auto [parent, cancel] = context::WithCancelCause(context::Background());
    cancel(because);
    auto [ctx, stop] = signal::NotifyContext(parent, {SIGINT});
    ctx.Done().Recv();
    EXPECT_EQ(ctx.Err(), kCanceled);
    EXPECT_EQ(context::Cause(ctx), because);
    stop();
  });
}

TEST_P(GoSignalTest, TestNotifyContextSimultaneousStop) {
  Run([] {
    auto [ctx, stop] = signal::NotifyContext(context::Background(), {SIGINT});
    WaitGroup wg;
    for (int i = 0; i < 10; i++) wg.Go(stop);
    wg.Wait();
    ctx.Done().Recv();
    EXPECT_EQ(ctx.Err(), kCanceled);
  });
}

// The cause of a signal's context is a cancellation, as its error is.
TEST_P(GoSignalTest, TestNotifyContextCause) {
  Run([] {
    auto [ctx, stop] = signal::NotifyContext(context::Background(), {SIGINT});
    raise(SIGINT);
    ctx.Done().Recv();
    EXPECT_TRUE(absl::IsCancelled(ctx.Err()));
    EXPECT_TRUE(absl::IsCancelled(context::Cause(ctx)));
    stop();
  });
}

// ---- runtime/signal_test.go

// A number that is no signal is skipped, and a list of such numbers alone is
// not the list of all signals.
TEST_P(GoSignalTest, TestSignalBogus) {
  Run([] {
    auto c = make_chan<int>(10);
    signal::Notify(c, {0xdead});
    raise(SIGWINCH);
    EXPECT_TRUE(Nothing(c));
    signal::Stop(c);
    signal::Notify(c, {0xdead, SIGWINCH});
    raise(SIGWINCH);
    EXPECT_EQ(c.Recv(), SIGWINCH);
    signal::Stop(c);
  });
}

}  // namespace
}  // namespace gump
