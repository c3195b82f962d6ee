// GODEBUG=parklocks=1: what is reported, and what is not. Each test runs a
// program of its own and looks at its standard error.
#include "runtime/diag/parklocks.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <ostream>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/sched/crash_testing.h"

// Functions whose names the tests look for. The empty asm prevents tail calls.
namespace locktest {

std::mutex mu;
std::shared_mutex shared;

__attribute__((noinline)) void Parker() {
  gump::time::Sleep(absl::Milliseconds(1));
  asm volatile("");
}
__attribute__((noinline)) void Yielder() {
  gump::runtime::Gosched();
  asm volatile("");
}
__attribute__((noinline)) void Locker() {
  const std::lock_guard<std::mutex> l(mu);
  Parker();
  asm volatile("");
}
__attribute__((noinline)) void Careful() {
  { const std::lock_guard<std::mutex> l(mu); }
  Parker();
  asm volatile("");
}

}  // namespace locktest

namespace gump {
namespace {

// ThreadSanitizer watches locks itself. clang puts its sanitizers into the
// program, and with them the lock functions.
#if defined(GUMP_TSAN) || (defined(GUMP_ASAN) && defined(__clang__))
#define GUMP_PARKLOCKS_REFUSES 1
#endif

// Stderr matches an output by the number of reports in it, by a text that it
// must contain, and by its end. The end is the line that the program prints
// last.
class Stderr : public ::testing::MatcherInterface<const std::string&> {
 public:
  Stderr(int least, int most, std::string text)
      : least_(least), most_(most), text_(std::move(text)) {}

  bool MatchAndExplain(const std::string& out,
                       ::testing::MatchResultListener* why) const override {
    int n = 0;
    constexpr std::string_view kHead = "parklocks: ";
    for (size_t at = 0; (at = out.find(kHead, at)) != out.npos; at++) n++;
    *why << n << " reports";
    return n >= least_ && n <= most_ && out.find(text_) != out.npos &&
           out.ends_with("end\n");
  }
  void DescribeTo(std::ostream* os) const override {
    *os << least_ << " to " << most_ << " reports, and the text " << text_;
  }

 private:
  const int least_;
  const int most_;
  const std::string text_;
};

::testing::Matcher<const std::string&> ReportsBetween(int least, int most,
                                                      std::string text) {
  return ::testing::Matcher<const std::string&>(
      new Stderr(least, most, std::move(text)));
}
::testing::Matcher<const std::string&> Reports(int n, std::string text = "") {
  return ReportsBetween(n, n, std::move(text));
}

class ParklocksDeathTest : public testing::CrashDeathTest {
 protected:
  // Program runs f as main with parklocks=1, and ends with 0.
  template <class F>
  [[noreturn]] static void Program(F f, const char* procs = "4",
                                   const char* debug = "parklocks=1") {
    setenv("GODEBUG", debug, 1);
    setenv("GOMAXPROCS", procs, 1);
    gump::Run(f);
    std::fprintf(stderr, "end\n");
    std::exit(0);
  }
};

const ::testing::ExitedWithCode kFine(0);

#if defined(GUMP_PARKLOCKS_REFUSES)

TEST_F(ParklocksDeathTest, SanitizerInTheWayIsReported) {
  EXPECT_EXIT(Program([] { locktest::Careful(); }), kFine,
              Reports(0, "gump: GODEBUG=parklocks=1 has no effect: "));
}

#else

TEST_F(ParklocksDeathTest, MutexHeldAcrossAParkIsReportedWithBothPlaces) {
  EXPECT_EXIT(Program([] { locktest::Locker(); }), kFine,
              Reports(1, "parklocks: locktest::Locker has locked a mutex (0x"));
  EXPECT_EXIT(
      Program([] { locktest::Locker(); }), kFine,
      Reports(1, "), and locktest::Parker parks [sleep], in goroutine 1\n"));
  EXPECT_EXIT(Program([] { locktest::Locker(); }), kFine,
              Reports(1, "\nlocktest::Locker(...)\n\t"));
  EXPECT_EXIT(Program([] { locktest::Locker(); }), kFine,
              Reports(1, "\nparks at:\n"));
  // Without optimisation, Sleep comes before it.
  EXPECT_EXIT(Program([] { locktest::Locker(); }), kFine,
              Reports(1, "\nlocktest::Parker(...)\n\t"));
}

TEST_F(ParklocksDeathTest, PairOfPlacesIsReportedOnce) {
  for (const char* procs : {"1", "2", "4", "8"}) {
    EXPECT_EXIT(Program(
                    [] {
                      for (int i = 0; i < 20; i++) locktest::Locker();
                      sync::WaitGroup wg;
                      for (int i = 0; i < 20; i++) {
                        wg.Go([] {
                          std::mutex own;
                          for (int k = 0; k < 20; k++) {
                            const std::lock_guard<std::mutex> l(own);
                            locktest::Parker();
                          }
                        });
                      }
                      wg.Wait();
                    },
                    procs),
                kFine, Reports(2));
  }
}

TEST_F(ParklocksDeathTest, NothingIsReportedWithoutAPark) {
  EXPECT_EXIT(Program([] {
                for (int i = 0; i < 10; i++) locktest::Careful();
                const std::lock_guard<std::mutex> l(locktest::mu);
                const std::shared_lock<std::shared_mutex> r(locktest::shared);
              }),
              kFine, Reports(0));
}

TEST_F(ParklocksDeathTest, NothingIsReportedUnlessItIsAskedFor) {
  for (const char* debug : {"", "parklocks=0", "parklocks=x"}) {
    EXPECT_EXIT(Program([] { locktest::Locker(); }, "4", debug), kFine,
                ::testing::Matcher<const std::string&>("end\n"));
  }
}

// Each function that locks, with a place of its own. An unlock of an rwlock by
// another thread would leave it locked, so the goroutine stays on its thread.
TEST_F(ParklocksDeathTest, EachLockFunctionCounts) {
  EXPECT_EXIT(Program([] {
                runtime::LockOSThread();
                pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
                pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
                timespec t;
                clock_gettime(CLOCK_REALTIME, &t);
                t.tv_sec += 100;
                const auto mutex = [&](int locked) {
                  if (locked != 0) abort();
                  locktest::Yielder();
                  pthread_mutex_unlock(&m);
                  locktest::Yielder();
                };
                const auto rwlock = [&](int locked) {
                  if (locked != 0) abort();
                  locktest::Yielder();
                  pthread_rwlock_unlock(&rw);
                  locktest::Yielder();
                };
                mutex(pthread_mutex_lock(&m));
                mutex(pthread_mutex_trylock(&m));
                mutex(pthread_mutex_timedlock(&m, &t));
                mutex(pthread_mutex_clocklock(&m, CLOCK_REALTIME, &t));
                rwlock(pthread_rwlock_rdlock(&rw));
                rwlock(pthread_rwlock_tryrdlock(&rw));
                rwlock(pthread_rwlock_timedrdlock(&rw, &t));
                rwlock(pthread_rwlock_clockrdlock(&rw, CLOCK_REALTIME, &t));
                rwlock(pthread_rwlock_wrlock(&rw));
                rwlock(pthread_rwlock_trywrlock(&rw));
                rwlock(pthread_rwlock_timedwrlock(&rw, &t));
                rwlock(pthread_rwlock_clockwrlock(&rw, CLOCK_REALTIME, &t));
              }),
              kFine, Reports(12, "has locked an rwlock for writing (0x"));
}

TEST_F(ParklocksDeathTest, SharedMutexIsAnRwlock) {
  EXPECT_EXIT(Program([] {
                const std::shared_lock<std::shared_mutex> l(locktest::shared);
                locktest::Parker();
              }),
              kFine, Reports(1, "has locked an rwlock for reading (0x"));
}

TEST_F(ParklocksDeathTest, LockThatFailsDoesNotCount) {
  EXPECT_EXIT(Program([] {
                std::mutex m;
                std::thread holder([&] { m.lock(); });
                holder.join();
                if (m.try_lock()) abort();
                locktest::Parker();
              }),
              kFine, Reports(0));
}

TEST_F(ParklocksDeathTest, RecursiveLockIsHeldUntilItsLastUnlock) {
  EXPECT_EXIT(Program([] {
                std::recursive_mutex m;
                m.lock();
                m.lock();
                m.unlock();
                locktest::Parker();
                m.unlock();
                locktest::Yielder();
              }),
              kFine, Reports(1, "locktest::Parker parks"));
}

TEST_F(ParklocksDeathTest, YieldIsReported) {
  EXPECT_EXIT(Program([] {
                const std::lock_guard<std::mutex> l(locktest::mu);
                locktest::Yielder();
              }),
              kFine,
              Reports(1, "locktest::Yielder yields [Gosched], in goroutine 1"));
}

// The other goroutine takes the only P, and keeps it until the first one is
// queued for it.
TEST_F(ParklocksDeathTest, WaitForAPBehindADeclaredCallIsReported) {
  EXPECT_EXIT(Program(
                  [] {
                    std::atomic<bool> taken = false;
                    go([&] {
                      taken = true;
                      while (debug::ReadSchedStats().runnable == 0) {
                      }
                    });
                    const std::lock_guard<std::mutex> l(locktest::mu);
                    blocking([&] {
                      while (!taken) usleep(100);
                    });
                  },
                  "1"),
              kFine, Reports(1, "waits [for a P], in goroutine 1"));
}

TEST_F(ParklocksDeathTest, VisitOfAThreadIsReported) {
  // There and back are two places if the compiler inlines Thread::Run.
  EXPECT_EXIT(Program([] {
                runtime::Thread gui("gui");
                const std::lock_guard<std::mutex> l(locktest::mu);
                gui.Run([] {});
              }),
              kFine,
              ReportsBetween(1, 2, "moves [to a Thread], in goroutine 1"));
}

TEST_F(ParklocksDeathTest, WaitForAConditionIsNoPark) {
  EXPECT_EXIT(Program([] {
                std::mutex m;
                std::condition_variable cond;
                bool ready = false;
                std::thread t([&] {
                  const std::lock_guard<std::mutex> l(m);
                  ready = true;
                  cond.notify_one();
                });
                {
                  std::unique_lock<std::mutex> l(m);
                  cond.wait(l, [&] { return ready; });
                }
                locktest::Parker();
                t.join();
              }),
              kFine, Reports(0));
}

TEST_F(ParklocksDeathTest, PlainThreadIsNotWatched) {
  EXPECT_EXIT(Program([] {
                chan<int> c = make_chan<int>();
                std::thread t([c] {
                  const std::lock_guard<std::mutex> l(locktest::mu);
                  c.Recv();
                });
                c.Send(1);
                blocking([&] { t.join(); });
              }),
              kFine, Reports(0));
}

TEST_F(ParklocksDeathTest, LockFromBeforeTheStartIsNotWatched) {
  EXPECT_EXIT(
      {
        locktest::mu.lock();
        Program([] {
          locktest::Parker();
          locktest::mu.unlock();
          locktest::Parker();
        });
      },
      kFine, Reports(0));
}

// That is not allowed, but works with glibc.
TEST_F(ParklocksDeathTest, UnlockByAnotherGoroutineEndsTheHold) {
  EXPECT_EXIT(Program([] {
                std::mutex m;
                std::atomic<int> step = 0;
                sync::WaitGroup wg;
                wg.Go([&] {
                  m.lock();
                  step = 1;
                  while (step != 2) {
                  }
                  locktest::Parker();
                });
                wg.Go([&] {
                  while (step != 1) {
                  }
                  m.unlock();
                  step = 2;
                });
                wg.Wait();
              }),
              kFine, Reports(0));
}

TEST_F(ParklocksDeathTest, ChildOfForkMayLock) {
  EXPECT_EXIT(Program([] {
                const pid_t child = fork();
                if (child == 0) {
                  locktest::mu.lock();
                  locktest::mu.unlock();
                  _exit(7);
                }
                int status = 0;
                blocking([&] { waitpid(child, &status, 0); });
                if (WEXITSTATUS(status) != 7) abort();
              }),
              kFine, Reports(0));
}

// Handlers are not allowed to lock. Those that do, and only try, go on working.
TEST_F(ParklocksDeathTest, HandlerOfASignalMayTryALock) {
  EXPECT_EXIT(Program([] {
                static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
                struct sigaction action = {};
                action.sa_handler = [](int) {
                  if (pthread_mutex_trylock(&m) == 0) pthread_mutex_unlock(&m);
                };
                action.sa_flags = SA_ONSTACK | SA_RESTART;
                sigaction(SIGUSR1, &action, nullptr);
                std::atomic<bool> stop = false;
                std::thread storm([&] {
                  while (!stop) {
                    kill(getpid(), SIGUSR1);
                    usleep(50);
                  }
                });
                sync::WaitGroup wg;
                for (int i = 0; i < 4; i++) {
                  wg.Go([] {
                    std::mutex own;
                    for (int k = 0; k < 2000; k++) {
                      const std::lock_guard<std::mutex> l(own);
                    }
                  });
                }
                wg.Wait();
                stop = true;
                blocking([&] { storm.join(); });
              }),
              kFine, Reports(0));
}

TEST_F(ParklocksDeathTest, ErrnoIsKept) {
  EXPECT_EXIT(Program([] {
                errno = EDOM;
                {
                  const std::lock_guard<std::mutex> l(locktest::mu);
                  if (errno != EDOM) abort();
                }
                if (errno != EDOM) abort();
              }),
              kFine, Reports(0));
}

TEST_F(ParklocksDeathTest, ManyGoroutinesWithManyLocksGoOn) {
  for (const char* procs : {"1", "2", "4", "8"}) {
    EXPECT_EXIT(Program(
                    [] {
                      sync::WaitGroup wg;
                      for (int i = 0; i < 50; i++) {
                        wg.Go([] {
                          std::vector<std::mutex> own(8);
                          for (int k = 0; k < 20; k++) {
                            for (std::mutex& m : own) m.lock();
                            runtime::Gosched();
                            for (std::mutex& m : own) m.unlock();
                            locktest::Parker();
                          }
                        });
                      }
                      wg.Wait();
                    },
                    procs),
                kFine, Reports(1));
  }
}

#endif  // GUMP_PARKLOCKS_REFUSES

}  // namespace
}  // namespace gump
