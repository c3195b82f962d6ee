// Preemption beside handlers of the program: for SIGURG, before ours or in its
// place, and for signals of its own on our signal stacks.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/sched/preempt_testing.h"
#include "tests/testing/talk.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::ComputeBesideOthers;
using testing::Eventually;
using testing::Talk;
using namespace std::chrono_literals;

using PreemptTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PreemptTest);

std::atomic<int> urgents;

// A handler that the program installed before ours sees every SIGURG.
TEST(PreemptSignalDeathTest, HandlersOfTheProgramAreCalledToo) {
  // A process of its own, in which the handler of the program comes first.
  EXPECT_EXIT(
      {
        std::signal(SIGURG, [](int) { urgents++; });
        gump::Run([] {
          raise(SIGURG);
          for (int i = 0; i < 100; i++) {
            kill(getpid(), SIGURG);
            runtime::Gosched();
          }
          Talk(100);
        });
        std::exit(urgents >= 2 ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

struct sigaction replaced;
void CallReplaced(int sig, siginfo_t* info, void* context) {
  urgents++;
  replaced.sa_sigaction(sig, info, context);
}

// A handler that comes after ours, and calls the one that it replaces, changes
// nothing.
TEST(PreemptSignalDeathTest, HandlersThatPassOnMayReplaceOurs) {
  EXPECT_EXIT(
      {
        bool all = false;
        testing::RunWith(2, [&] {
          struct sigaction action = {};
          action.sa_sigaction = CallReplaced;
          action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
          sigaction(SIGURG, &action, &replaced);
          all = ComputeBesideOthers();
        });
        std::exit(all && urgents > 0 ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

// If the handler in force does not call ours, goroutines still yield when they
// enter the runtime. The same holds for threads that block the signal.
TEST(PreemptSignalDeathTest, GoroutinesThatTakeNoSignalYieldByThemselves) {
  EXPECT_EXIT(
      {
        testing::RunWith(1, [&] {
          std::signal(SIGURG, SIG_IGN);
          std::atomic<bool> stop = false;
          sync::WaitGroup wg;
          wg.Go([&] {
            wg.Go([&] { stop = true; });
            auto c = make_chan<int>(1);
            while (!stop) {
              c.Send(1);
              c.Recv();
            }
          });
          wg.Wait();
          Talk(100);
        });
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

// A program that starts with the signal blocked gets threads that let it
// through. A parent that blocks the signal starts its children like that.
TEST(PreemptSignalDeathTest, SignalMayBeBlockedWhenTheRuntimeStarts) {
  EXPECT_EXIT(
      {
        sigset_t urgent;
        sigemptyset(&urgent);
        sigaddset(&urgent, SIGURG);
        pthread_sigmask(SIG_BLOCK, &urgent, nullptr);
        bool all = false;
        testing::RunWith(1, [&] { all = ComputeBesideOthers(); });
        std::exit(all ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

// HogIsStoppedAfter starts a goroutine that computes. For a while
// `lose_signals` handles SIGURG, then our handler does again. Returns whether
// the goroutine is preempted in the end, so that the world can be stopped.
bool HogIsStoppedAfter(void (*lose_signals)(int)) {
  bool yielded = false;
  testing::RunWith(1, [&] {
    std::atomic<bool> stop = false;
    std::atomic<bool> ours = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      struct sigaction before;
      sigaction(SIGURG, nullptr, &before);
      std::signal(SIGURG, lose_signals);
      const auto end = std::chrono::steady_clock::now() + 100ms;
      while (std::chrono::steady_clock::now() < end) {
      }
      sigaction(SIGURG, &before, nullptr);
      ours = true;
      const auto limit = std::chrono::steady_clock::now() + 30s;
      while (!stop && std::chrono::steady_clock::now() < limit) {
      }
      yielded = stop;
    });
    while (!ours) runtime::Gosched();
    (void)runtime::Stack(true);
    stop = true;
    wg.Wait();
  });
  return yielded;
}

// A handler that replaces ours for a while does no lasting harm: the runtime
// sends the lost signals again.
TEST(PreemptSignalDeathTest, SignalsIgnoredForAWhileAreSentAgain) {
  EXPECT_EXIT(std::exit(HogIsStoppedAfter(SIG_IGN) ? 7 : 1),
              ::testing::ExitedWithCode(7), "");
}

TEST(PreemptSignalDeathTest, SignalsForAnotherHandlerAreSentAgain) {
  EXPECT_EXIT(std::exit(HogIsStoppedAfter([](int) {}) ? 7 : 1),
              ::testing::ExitedWithCode(7), "");
}

[[gnu::noinline]] void UseSignalStack(int) {
  volatile char room[40 << 10];
  for (size_t i = 0; i < sizeof(room); i += 512) room[i] = 1;
  urgents += room[512];
}

// The signal stack of our threads has room for the program's handlers.
TEST_P(PreemptTest, SignalStackHasRoomForHandlers) {
  struct sigaction action = {};
  action.sa_handler = UseSignalStack;
  action.sa_flags = SA_ONSTACK;
  struct sigaction before;
  sigaction(SIGUSR2, &action, &before);
  gump::Run([] {
    stack_t stack;
    sigaltstack(nullptr, &stack);
    EXPECT_GE(stack.ss_size, size_t{64} << 10);
    const int had = urgents;
    sync::WaitGroup wg;
    for (int i = 0; i < 10; i++) wg.Go([] { raise(SIGUSR2); });
    wg.Wait();
    EXPECT_EQ(urgents, had + 10);
  });
  sigaction(SIGUSR2, &before, nullptr);
}

// With SA_RESTART, a read that SIGURG interrupts goes on.
TEST_P(PreemptTest, ReadsAreRestarted) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  gump::Run([&] {
    std::atomic<pid_t> reader = 0;
    sync::WaitGroup wg;
    wg.Go([&] {
      reader = gettid();
      char c = 0;
      EXPECT_EQ(read(fds[0], &c, 1), 1) << strerror(errno);
      EXPECT_EQ(c, 'x');
    });
    EXPECT_TRUE(testing::Eventually([&] { return reader != 0; }));
    for (int i = 0; i < 200; i++) {
      syscall(SYS_tgkill, getpid(), reader.load(), SIGURG);
      runtime::Gosched();
    }
    EXPECT_EQ(write(fds[1], "x", 1), 1);
    wg.Wait();
  });
  close(fds[0]);
  close(fds[1]);
}

}  // namespace
}  // namespace gump
