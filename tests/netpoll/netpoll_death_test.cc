// The poller in processes of their own: errors that end a process, and
// conditions that must not.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/time.h"
#include "netpoll/polldesc.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sys/os_linux.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/scoped_env.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using rt::kErrTimeout;
using rt::kPollOk;
using rt::nanotime;
using namespace std::chrono_literals;

// InChild is the body of a death test. The end of f is the end of the process.
template <class F>
void InChild(int procs, F f) {
  gump::Run([&] {
    runtime::GOMAXPROCS(procs);
    f();
  });
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

// Alarm returns a descriptor that becomes readable after 200 ms.
File Alarm() {
  File f(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  itimerspec in{};
  in.it_value.tv_nsec = 200'000'000;
  EXPECT_EQ(::timerfd_settime(f.fd(), 0, &in, nullptr), 0);
  return f;
}

// WakesUnread returns how many wakes there are in this process's eventfds.
int WakesUnread() {
  int sum = 0;
  for (int fd = 3; fd < 64; fd++) {
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
    for (std::string key, value; info >> key >> value;) {
      if (key == "eventfd-count:") sum += std::stoi(value, nullptr, 16);
    }
  }
  return sum;
}

// Runs in a process in which no other thread polls, with a back end that counts
// wakes.
[[noreturn]] void BreakOften() {
  (void)rt::runtimeEntry();
  Ends e;  // not waited for
  int err;
  if (rt::pollOpen(e.out.fd(), &err) == nullptr) std::_Exit(91);
  (void)rt::netpoll(kMillisecond);  // takes the wake that starts it
  if (WakesUnread() != 0) std::_Exit(92);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 1000; i++) rt::netpollBreak();
    if (WakesUnread() != 1) std::_Exit(93);
    (void)rt::netpoll(kHour);
    if (WakesUnread() != 0) std::_Exit(94);
  }
  std::_Exit(10);
}

TEST(NetpollDeathTest, AThousandBreaksAreOneWake) {
  const ScopedEnv godebug("GODEBUG", "netpoll=epoll");
  EXPECT_EXIT(BreakOften(), ::testing::ExitedWithCode(10), "");
}

TEST(NetpollDeathTest, AWaitForADescriptorIsNoDeadlock) {
  for (const int procs : {1, 4}) {
    EXPECT_EXIT(InChild(procs,
                        [] {
                          File alarm = Alarm();
                          Polled p(alarm.fd());
                          auto done = make_chan<int>();
                          go([&] { done.Send(p.Wait(kRead)); });
                          EXPECT_EQ(done.Recv(), kPollOk);
                        }),
                ::testing::ExitedWithCode(0), "");
    EXPECT_EXIT(InChild(procs,
                        [] {
                          File alarm = Alarm();
                          Polled p(alarm.fd());
                          EXPECT_EQ(p.Wait(kRead), kPollOk);
                        }),
                ::testing::ExitedWithCode(0), "");
  }
}

TEST(NetpollDeathTest, AfterTheLastDescriptorADeadlockIsReported) {
  EXPECT_EXIT(InChild(2,
                      [] {
                        File alarm = Alarm();
                        Polled p(alarm.fd());
                        EXPECT_EQ(p.Wait(kRead), kPollOk);
                        p.SetDeadline(nanotime() + kHour, kRead);
                        p.Close();
                        make_chan<void>().Recv();
                      }),
              ::testing::ExitedWithCode(2), "all goroutines are asleep");
}

TEST(NetpollDeathTest, ThreadsWaitForDescriptorsWithoutRun) {
  EXPECT_EXIT(
      {
        Ends e;
        Polled p(e.out.fd());
        std::thread other([&] {
          while (!Asleep(p, kRead)) std::this_thread::yield();
          e.Signal();
        });
        EXPECT_EQ(p.Wait(kRead), kPollOk);
        other.join();
        p.SetDeadline(nanotime() + 200 * kMillisecond, kRead);
        EXPECT_EQ(p.Reset(kRead), kPollOk);
        EXPECT_EQ(p.Wait(kRead), kErrTimeout);
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(NetpollDeathTest, TwoWaitsInOneDirectionAreFatal) {
  EXPECT_EXIT(InChild(2,
                      [] {
                        Ends e;
                        Polled p(e.out.fd());
                        go([&] { (void)p.Wait(kRead); });
                        (void)EventuallyAsleep(p, kRead);
                        (void)p.Wait(kRead);
                      }),
              ::testing::ExitedWithCode(2), "runtime: double wait");
}

TEST(NetpollDeathTest, ClosingOutOfOrderIsFatal) {
  EXPECT_EXIT(InChild(2,
                      [] {
                        Ends e;
                        Polled p(e.out.fd());
                        rt::pollClose(p.get());
                      }),
              ::testing::ExitedWithCode(2),
              "runtime: close polldesc w/o unblock");
  EXPECT_EXIT(InChild(2,
                      [] {
                        Ends e;
                        Polled p(e.out.fd());
                        rt::pollUnblock(p.get());
                        rt::pollUnblock(p.get());
                      }),
              ::testing::ExitedWithCode(2),
              "runtime: unblock on closing polldesc");
}

#ifdef SYS_epoll_pwait2
TEST(NetpollDeathTest, WithoutEpollPwait2WaitsStillEndInTime) {
  for (const int err : {ENOSYS, EPERM}) {
    EXPECT_EXIT(
        {
          Refuse(SYS_epoll_pwait2, err);
          InChild(2, [] {
            Ends e;
            Polled p(e.out.fd());
            for (int i = 0; i < 10; i++) {
              const int64_t when = nanotime() + 2 * kMillisecond;
              p.SetDeadline(when, kRead);
              EXPECT_EQ(p.Wait(kRead), kErrTimeout);
              EXPECT_GE(nanotime(), when);
              p.SetDeadline(nanotime() + kHour, kRead);
              EXPECT_EQ(p.Reset(kRead), kPollOk);
              Waiter w(p, kRead);
              time::Sleep(1ms);
              e.Signal();
              EXPECT_EQ(w.Result(), kPollOk);
              e.Drain();
            }
          });
        },
        ::testing::ExitedWithCode(0), "")
        << err;
  }
}
#endif

}  // namespace
}  // namespace gump::testing
