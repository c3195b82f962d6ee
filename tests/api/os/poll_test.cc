// os::Poll, as programs use it. poll_diff_test.cc compares it with poll(2).
#include "gump/os/poll.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/runtime/thread.h"
#include "gump/status.h"
#include "gump/sync/waitgroup.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/no_descriptors.h"
#include "tests/testing/parked.h"
#include "tests/testing/status.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using namespace std::chrono_literals;

using PollTest = WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PollTest);

using Clock = std::chrono::steady_clock;

constexpr absl::Duration kForever = absl::InfiniteDuration();

pollfd Of(const File& f, int events) {
  return {f.fd(), static_cast<int16_t>(events), 0};
}

// PollOne returns the revents of one descriptor.
int PollOne(int fd, int events, internal::DurationArg timeout = kForever) {
  pollfd p[] = {{fd, static_cast<int16_t>(events), 0}};
  const int n = Ready(os::Poll(p, timeout));
  EXPECT_EQ(n, p[0].revents != 0 ? 1 : 0);
  return p[0].revents;
}

// Poller is a goroutine that polls one descriptor without a limit.
class Poller {
 public:
  Poller(const File& f, int events) {
    wg_.Go([this, fd = f.fd(), events] {
      revents_ = PollOne(fd, events);
      done_ = true;
    });
  }
  ~Poller() { wg_.Wait(); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;
  bool done() const { return done_; }
  int Result() {
    wg_.Wait();
    return revents_;
  }

 private:
  sync::WaitGroup wg_;
  int revents_ = 0;
  std::atomic<bool> done_ = false;
};

bool EventuallyWaiting(size_t n) { return EventuallyParked("IO wait", n); }

size_t Threads() {
  size_t n = 0;
  std::error_code gone;  // a thread may end while we look
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task", gone)) {
    (void)task;
    n++;
  }
  return n;
}

// ---- Results

TEST_P(PollTest, ReadyDescriptorReturnsAtOnce) {
  Run([] {
    for (const Kind kind : kKinds) {
      const Ends e(kind);
      e.Signal();
      for (const absl::Duration d :
           {absl::ZeroDuration(), absl::Seconds(60), kForever}) {
        EXPECT_EQ(PollOne(e.out.fd(), POLLIN, d), POLLIN);
      }
    }
  });
}

TEST_P(PollTest, TimeoutOfZeroDoesNotWait) {
  Run([] {
    const Ends e;
    EXPECT_EQ(PollOne(e.out.fd(), POLLIN, absl::ZeroDuration()), 0);
    EXPECT_EQ(PollOne(e.out.fd(), POLLIN, 0s), 0);
  });
}

TEST_P(PollTest, WaitEndsWhenTheDescriptorIsReady) {
  Run([] {
    for (const Kind kind : kKinds) {
      const Ends e(kind);
      for (int i = 0; i < 10; i++) {
        Poller p(e.out, POLLIN);
        ASSERT_TRUE(EventuallyWaiting(1));
        EXPECT_FALSE(p.done());
        e.Signal();
        EXPECT_EQ(p.Result(), POLLIN);
        e.Drain();
      }
    }
  });
}

TEST_P(PollTest, BlockingDescriptorsWork) {
  Run([] {
    int fd[2];
    ASSERT_EQ(::pipe(fd), 0);
    const File out(fd[0]);
    const File in(fd[1]);
    Poller p(out, POLLIN);
    ASSERT_TRUE(EventuallyWaiting(1));
    ASSERT_EQ(::write(in.fd(), "x", 1), 1);
    EXPECT_EQ(p.Result(), POLLIN);
    EXPECT_EQ(::fcntl(out.fd(), F_GETFL) & O_NONBLOCK, 0);
  });
}

TEST_P(PollTest, PlainThreadWakesTheGoroutine) {
  Run([] {
    const Ends e;
    Poller p(e.out, POLLIN);
    ASSERT_TRUE(EventuallyWaiting(1));
    std::vector<std::thread> threads;
    threads.emplace_back([&] { e.Signal(); });
    EXPECT_EQ(p.Result(), POLLIN);
    JoinAll(threads);
  });
}

TEST_P(PollTest, TimeoutReturnsZeroAndIsNeverEarly) {
  Run([] {
    const Ends e;
    for (const auto d : {1us, 500us, 3000us}) {
      const auto begin = Clock::now();
      EXPECT_EQ(PollOne(e.out.fd(), POLLIN, d), 0);
      EXPECT_GE(Clock::now() - begin, d);
    }
  });
}

TEST_P(PollTest, NegativeTimeoutIsNone) {
  Run([] {
    for (const absl::Duration d :
         {absl::Nanoseconds(-1), absl::Seconds(-5), -kForever, kForever}) {
      const Ends e;
      sync::WaitGroup wg;
      wg.Go([&] { EXPECT_EQ(PollOne(e.out.fd(), POLLIN, d), POLLIN); });
      EXPECT_TRUE(EventuallyWaiting(1));
      e.Signal();
      wg.Wait();
    }
  });
}

TEST_P(PollTest, EmptyArray_Sleeps) {
  Run([] {
    const auto begin = Clock::now();
    EXPECT_EQ(Ready(os::Poll({}, 2ms)), 0);
    pollfd p[] = {{-1, POLLIN, 77}, {-5, POLLIN, 77}};
    EXPECT_EQ(Ready(os::Poll(p, 2ms)), 0);
    EXPECT_GE(Clock::now() - begin, 4ms);
    EXPECT_EQ(p[0].revents, 0);
    EXPECT_EQ(p[1].revents, 0);
  });
}

TEST_P(PollTest, NegativeNumbersAreIgnored) {
  Run([] {
    const Ends e;
    pollfd p[] = {{-1, POLLIN, 77}, Of(e.out, POLLIN)};
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_EQ(Ready(os::Poll(p, kForever)), 1); });
    EXPECT_TRUE(EventuallyWaiting(1));
    e.Signal();
    wg.Wait();
    EXPECT_EQ(p[0].revents, 0);
    EXPECT_EQ(p[1].revents, POLLIN);
  });
}

TEST_P(PollTest, ClosedNumberHasPollnval) {
  Run([] {
    const Ends open;
    constexpr int kClosed = 500;  // no thread takes so high a number meanwhile
    pollfd p[] = {Of(open.out, POLLIN), {kClosed, POLLIN, 0}};
    EXPECT_EQ(Ready(os::Poll(p, kForever)), 1);
    EXPECT_EQ(p[0].revents, 0);
    EXPECT_EQ(p[1].revents, POLLNVAL);
  });
}

TEST_P(PollTest, RegularFileIsReadyAtOnce) {
  Run([] {
    const File f(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    ASSERT_GE(f.fd(), 0);
    EXPECT_EQ(PollOne(f.fd(), POLLIN | POLLOUT), POLLIN | POLLOUT);
  });
}

TEST_P(PollTest, RegularFileThatIsNeverReadyDoesNotDisturbOthers) {
  Run([] {
    const File f(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    const Ends e;
    EXPECT_EQ(PollOne(f.fd(), POLLPRI, 2ms), 0);
    pollfd p[] = {Of(f, POLLPRI), Of(e.out, POLLIN)};
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_EQ(Ready(os::Poll(p, kForever)), 1); });
    EXPECT_TRUE(EventuallyWaiting(1));
    e.Signal();
    wg.Wait();
    EXPECT_EQ(p[0].revents, 0);
  });
}

TEST_P(PollTest, HangupWakesAPollerOfNoEvents) {
  Run([] {
    Ends e(Kind::kPipe);
    Poller p(e.out, 0);
    ASSERT_TRUE(EventuallyWaiting(1));
    e.in.Close();
    EXPECT_EQ(p.Result(), POLLHUP);
  });
}

TEST_P(PollTest, HalfCloseIsRdhup) {
  Run([] {
    const Ends e;
    Poller p(e.out, POLLRDHUP);
    ASSERT_TRUE(EventuallyWaiting(1));
    ASSERT_EQ(::shutdown(e.in.fd(), SHUT_WR), 0);
    EXPECT_EQ(p.Result(), POLLRDHUP);
  });
}

TEST_P(PollTest, TooManyElementsAreAnError) {
  Run([] {
    rlimit limit;
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur > 2'000'000) GTEST_SKIP() << "no limit";
    std::vector<pollfd> p(limit.rlim_cur + 1, pollfd{-1, 0, 0});
    const absl::StatusOr<int> n =
        os::Poll(absl::MakeSpan(p), absl::Seconds(60));
    EXPECT_EQ(Text(n), "poll: invalid argument");
    EXPECT_EQ(Errno(n.status()), EINVAL);
  });
}

// ---- Several

TEST_P(PollTest, AnyOfManyDescriptorsEndsTheWait) {
  Run([] {
    constexpr size_t kMany = 40;  // more than lie on the stack
    std::vector<std::unique_ptr<Ends>> ends;
    std::vector<pollfd> p;
    for (size_t i = 0; i < kMany; i++) {
      ends.push_back(std::make_unique<Ends>(kKinds[i % 3]));
      p.push_back(Of(ends.back()->out, POLLIN));
    }
    for (size_t i = 0; i < kMany; i++) {
      sync::WaitGroup wg;
      wg.Go(
          [&] { EXPECT_EQ(Ready(os::Poll(absl::MakeSpan(p), kForever)), 1); });
      ASSERT_TRUE(EventuallyWaiting(1));
      ends[i]->Signal();
      wg.Wait();
      EXPECT_EQ(p[i].revents, POLLIN);
      ends[i]->Drain();
    }
  });
}

TEST_P(PollTest, SameDescriptorTwiceReportsEachElement) {
  Run([] {
    const Ends e;
    pollfd p[] = {Of(e.out, POLLIN), Of(e.out, POLLRDHUP), Of(e.out, POLLIN)};
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_EQ(Ready(os::Poll(p, kForever)), 2); });
    ASSERT_TRUE(EventuallyWaiting(1));
    e.Signal();
    wg.Wait();
    EXPECT_EQ(p[0].revents, POLLIN);
    EXPECT_EQ(p[1].revents, 0);
    EXPECT_EQ(p[2].revents, POLLIN);
  });
}

TEST_P(PollTest, AllPollersOfOneDescriptorWake) {
  Run([] {
    const Ends e;
    Poller a(e.out, POLLIN);
    Poller b(e.out, POLLIN);
    Poller c(e.out, POLLIN | POLLRDHUP);
    ASSERT_TRUE(EventuallyWaiting(3));
    e.Signal();
    EXPECT_EQ(a.Result(), POLLIN);
    EXPECT_EQ(b.Result(), POLLIN);
    EXPECT_EQ(c.Result(), POLLIN);
  });
}

TEST_P(PollTest, ReaderAndWriterOfOneDescriptorWakeForTheirOwnEvents) {
  Run([] {
    for (const bool read_first : {true, false}) {
      const Ends e;
      char zeros[4096] = {};
      while (::write(e.out.fd(), zeros, sizeof(zeros)) > 0) {
      }
      Poller reader(e.out, POLLIN);
      Poller writer(e.out, POLLOUT);
      ASSERT_TRUE(EventuallyWaiting(2));
      const auto give = [&] { e.Signal(); };
      const auto take = [&] {
        while (::read(e.in.fd(), zeros, sizeof(zeros)) > 0) {
        }
      };
      if (read_first) {
        give();
        EXPECT_EQ(reader.Result(), POLLIN);
        EXPECT_FALSE(writer.done());
        take();
        EXPECT_EQ(writer.Result(), POLLOUT);
      } else {
        take();
        EXPECT_EQ(writer.Result(), POLLOUT);
        EXPECT_FALSE(reader.done());
        give();
        EXPECT_EQ(reader.Result(), POLLIN);
      }
    }
  });
}

TEST_P(PollTest, ThousandsOfGoroutinesWaitOnFewThreads) {
  Run([] {
    const int pollers = kManyGoroutines / 10;
    constexpr int kDescriptors = 50;
    std::vector<std::unique_ptr<Ends>> ends;
    for (int i = 0; i < kDescriptors; i++) {
      ends.push_back(std::make_unique<Ends>(Kind::kEventfd));
    }
    sync::WaitGroup wg;
    std::atomic<int> woken = 0;
    for (int i = 0; i < pollers; i++) {
      wg.Go([&, i] {
        const int fd = ends[static_cast<size_t>(i % kDescriptors)]->out.fd();
        if (PollOne(fd, POLLIN, absl::Seconds(600)) == POLLIN) woken++;
      });
    }
    ASSERT_TRUE(EventuallyWaiting(static_cast<size_t>(pollers)));
    EXPECT_LT(Threads(), 50u);
    for (const auto& e : ends) e->Signal();
    wg.Wait();
    EXPECT_EQ(woken, pollers);
  });
}

// ---- Callers

TEST(PollThreadTest, PlainThreadPollsWithoutTheRuntime) {
  const Ends e;
  EXPECT_EQ(PollOne(e.out.fd(), POLLIN, 0s), 0);
  const auto begin = Clock::now();
  EXPECT_EQ(PollOne(e.out.fd(), POLLIN, 2ms), 0);
  EXPECT_GE(Clock::now() - begin, 2ms);
  std::thread t([&] { e.Signal(); });
  EXPECT_EQ(PollOne(e.out.fd(), POLLIN), POLLIN);
  t.join();
}

TEST_P(PollTest, KnownThreadBlocksBesideGoroutines) {
  Run([] {
    const Ends e;
    std::vector<std::thread> threads;
    threads.push_back(
        KnownThread([&] { EXPECT_EQ(PollOne(e.out.fd(), POLLIN), POLLIN); }));
    time::Sleep(1ms);
    e.Signal();
    JoinAll(threads);
  });
}

TEST_P(PollTest, InsideBlockingOthersRun) {
  Run([] {
    const Ends e;
    const Ends quiet;
    sync::WaitGroup wg;
    wg.Go([&] {
      blocking([&] {
        EXPECT_EQ(PollOne(quiet.out.fd(), POLLIN, 1ms), 0);
        EXPECT_EQ(PollOne(e.out.fd(), POLLIN), POLLIN);
      });
    });
    wg.Go([&] {
      time::Sleep(2ms);
      e.Signal();
    });
    wg.Wait();
  });
}

TEST_P(PollTest, LockedGoroutineKeepsItsThread) {
  Run([] {
    const Ends e;
    sync::WaitGroup wg;
    wg.Go([&] {
      runtime::LockOSThread();
      const std::thread::id id = testing::CurrentThread();
      EXPECT_EQ(PollOne(e.out.fd(), POLLIN), POLLIN);
      EXPECT_EQ(testing::CurrentThread(), id);
      runtime::UnlockOSThread();
    });
    ASSERT_TRUE(EventuallyParked("IO wait, locked to thread", 1));
    e.Signal();
    wg.Wait();
  });
}

TEST_P(PollTest, GoroutinesOfARuntimeThreadShareItWhileTheyWait) {
  Run([] {
    constexpr int kGoroutines = 20;
    Ends ends[kGoroutines];
    std::atomic<int> woken = 0;
    sync::WaitGroup wg;
    wg.Add(kGoroutines);
    {
      runtime::Thread thread("poll");
      for (const Ends& e : ends) {
        go(GoOptions{.thread = &thread}, [&] {
          EXPECT_EQ(PollOne(e.out.fd(), POLLIN), POLLIN);
          woken++;
          wg.Done();
        });
      }
    }
    ASSERT_TRUE(EventuallyParked("IO wait, on thread \"poll\"", kGoroutines));
    for (const Ends& e : ends) e.Signal();
    wg.Wait();
    EXPECT_EQ(woken, kGoroutines);
  });
}

TEST_P(PollTest, ChildOfForkBlocksInPoll) {
  Run([] {
    const Ends e;
    const Ends quiet;
    EXPECT_EQ(PollOne(quiet.out.fd(), POLLIN, 1us), 0);  // the poller has begun
    const pid_t pid = ::fork();
    if (pid == 0) {
      pollfd q[] = {Of(quiet.out, POLLIN)};
      pollfd p[] = {Of(e.out, POLLIN)};
      const bool late = os::Poll(q, 1ms).value_or(-1) == 0;
      const bool woken = os::Poll(p, kForever).value_or(-1) == 1;
      _exit(late && woken ? 7 : 8);
    }
    ASSERT_GT(pid, 0);
    e.Signal();
    int status = 0;
    blocking([&] { EXPECT_EQ(::waitpid(pid, &status, 0), pid); });
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 7);
  });
}

TEST_P(PollTest, WaitsSurviveChangesOfGomaxprocs) {
  Run([n = GetParam()] {
    const Ends e;
    sync::WaitGroup wg;
    for (int i = 0; i < 20; i++) {
      wg.Go([&, i] {
        if (i % 2 == 0) {
          EXPECT_EQ(PollOne(e.out.fd(), POLLIN), POLLIN);
        } else {
          EXPECT_EQ(PollOne(e.out.fd(), POLLPRI, 5ms), 0);
        }
      });
    }
    for (const int procs : {1, 4, 2, 8, n}) {
      runtime::GOMAXPROCS(procs);
      time::Sleep(1ms);
    }
    e.Signal();
    wg.Wait();
  });
}

TEST_P(PollTest, WaitGoesOnInALaterRun) {
  const Ends e;
  std::atomic<bool> done = false;
  Run([&] {
    go([&] {
      EXPECT_EQ(PollOne(e.out.fd(), POLLIN), POLLIN);
      done = true;
    });
    ASSERT_TRUE(EventuallyWaiting(1));
  });
  e.Signal();
  Run([&] { EXPECT_TRUE(Eventually([&] { return done.load(); })); });
}

TEST_P(PollTest, ContextEndsAWaitThroughAnEventfd) {
  Run([] {
    const Ends e;
    const Ends cancelled(Kind::kEventfd);
    auto [ctx, cancel] = context::WithCancel(context::Background());
    chan<void> signalled = make_chan<void>();
    auto stop = context::AfterFunc(ctx, [&cancelled, signalled] {
      cancelled.Signal();
      signalled.Close();
    });
    sync::WaitGroup wg;
    wg.Go([&] {
      pollfd p[] = {Of(e.out, POLLIN), Of(cancelled.out, POLLIN)};
      EXPECT_EQ(Ready(os::Poll(p, kForever)), 1);
      EXPECT_EQ(p[0].revents, 0);
    });
    ASSERT_TRUE(EventuallyWaiting(1));
    cancel();
    wg.Wait();
    EXPECT_FALSE(stop());
    signalled.Recv();  // the function has done with `cancelled`
  });
}

// ---- Bubbles

TEST_P(PollTest, InABubbleAWaitForADescriptorTakesRealTime) {
  Run([] {
    const auto begin = Clock::now();
    const Ends e;
    synctest::Run([&] {
      const absl::Time now = synctest::Now();
      EXPECT_EQ(PollOne(e.out.fd(), POLLIN, 2ms), 0);
      EXPECT_EQ(synctest::Now(), now);
    });
    EXPECT_GE(Clock::now() - begin, 2ms);
  });
}

TEST_P(PollTest, InABubbleEmptyArray_SleepsByTheClockOfTheBubble) {
  Run([] {
    synctest::Run([] {
      const absl::Time now = synctest::Now();
      EXPECT_EQ(Ready(os::Poll({}, 24h)), 0);
      EXPECT_EQ(synctest::Now() - now, absl::Hours(24));
    });
  });
}

// ---- Want

// A process of its own, because the poller starts only once.
TEST(PollDeathTest, WithoutDescriptorsForThePollerTheThreadWaits) {
  EXPECT_EXIT(
      {
        gump::Run([] {
          const Ends e;
          const Ends quiet;
          std::atomic<bool> written = false;
          {
            const NoDescriptors none;
            sync::WaitGroup wg;
            wg.Go([&] {
              if (PollOne(quiet.out.fd(), POLLIN, 1ms) != 0) std::_Exit(8);
              if (PollOne(e.out.fd(), POLLIN) != POLLIN) std::_Exit(9);
              if (!written) std::_Exit(10);
            });
            time::Sleep(5ms);
            written = true;
            e.Signal();
            wg.Wait();
          }
          e.Drain();
          Poller p(e.out, POLLIN);  // now the poller starts
          if (!EventuallyWaiting(1)) std::_Exit(11);
          e.Signal();
          if (p.Result() != POLLIN) std::_Exit(12);
        });
        std::_Exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(PollDeathTest, EmptyArrayWithoutLimit_IsADeadlock) {
  EXPECT_EXIT(gump::Run([] { (void)os::Poll({}, kForever); }),
              ::testing::ExitedWithCode(2), "all goroutines are asleep");
}

}  // namespace
}  // namespace gump::testing
