// Locks that plain threads share with goroutines after main has returned. A
// goroutine that is left over in the queue of a lock never runs, so the lock
// must not be kept for it. A thread waits only for the holder of the lock.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/linkname.h"
#include "gump/runtime.h"
#include "gump/sync/mutex.h"
#include "gump/sync/rwmutex.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/parked.h"

namespace gump {
namespace {

using namespace std::chrono_literals;

// Each case is a process of its own, because a thread that waits for ever
// cannot be joined. An alarm ends such a process.
class AfterRunLockDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

constexpr unsigned kTooLong = 60;  // s

// Compute most probably keeps the P, which a sleep would lose.
void Compute(std::chrono::microseconds d) {
  const auto end = std::chrono::steady_clock::now() + d;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// AwaitQueue waits until n waiters are parked in Mutex::Lock.
void AwaitQueue(size_t n) {
  if (!testing::EventuallyParked("sync.Mutex.Lock", n)) std::_Exit(100);
}

// LockOnce and ReadOnce wait until they may have the lock, and release it.
void LockOnce(sync::Mutex* l) {
  l->Lock();
  l->Unlock();
}
void ReadOnce(sync::RWMutex* l) {
  l->RLock();
  l->RUnlock();
}

// The goroutine is first in the queue and has been woken, but has not run.
TEST_F(AfterRunLockDeathTest, WaiterThatWasWokenInVainIsReplaced) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        sync::Mutex mu;
        std::thread t;
        gump::Run([&] {
          runtime::GOMAXPROCS(1);
          mu.Lock();
          go([&] { LockOnce(&mu); });
          AwaitQueue(1);
          t = std::thread([&] { LockOnce(&mu); });
          AwaitQueue(2);
          mu.Unlock();
        });
        t.join();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// The lock is released when main has returned. The goroutine gets it in the
// next Run.
TEST_F(AfterRunLockDeathTest, ThreadsAreWokenFirst) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        sync::Mutex mu;
        std::atomic<bool> done = false;
        std::vector<std::thread> threads;
        gump::Run([&] {
          runtime::GOMAXPROCS(1);
          mu.Lock();
          go([&] {
            LockOnce(&mu);
            done = true;
          });
          AwaitQueue(1);
          for (size_t i = 0; i < 3; i++) {
            threads.emplace_back([&] { LockOnce(&mu); });
            AwaitQueue(2 + i);
          }
        });
        mu.Unlock();
        for (std::thread& t : threads) t.join();
        if (done) std::_Exit(1);
        gump::Run([&] {
          while (!done) runtime::Gosched();
        });
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// Starving is a goroutine that has waited for mu so long, and lost it once,
// that the next Unlock would hand the lock to it.
struct Starving {
  sync::Mutex mu;
  std::atomic<bool> done = false;

  // Make returns holding mu, in a Run with one P. It tries again if this
  // goroutine loses the P at the wrong moment.
  void Make() {
    for (bool made = false; !made;) {
      done = false;
      mu.Lock();
      go([this] {
        mu.Lock();
        done = true;
        mu.Unlock();
      });
      AwaitQueue(1);
      Compute(1500us);
      mu.Unlock();
      mu.Lock();  // the waiter is awake, but this goroutine runs
      runtime::Gosched();
      made = !done;
      if (!made) mu.Unlock();
    }
    AwaitQueue(1);
  }
};

TEST_F(AfterRunLockDeathTest, LockIsNotHandedToAGoroutineThatCannotRun) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        Starving s;
        gump::Run([&] {
          runtime::GOMAXPROCS(1);
          s.Make();
        });
        s.mu.Unlock();
        for (int i = 0; i < 3; i++) {
          s.mu.Lock();
          if (s.done) std::_Exit(1);
          s.mu.Unlock();
        }
        if (!s.mu.TryLock()) std::_Exit(2);
        s.mu.Unlock();
        gump::Run([&] {
          while (!s.done) runtime::Gosched();
          s.mu.Lock();  // nothing is left behind
          s.mu.Unlock();
        });
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// The goroutine has been handed the lock, but has not run.
TEST_F(AfterRunLockDeathTest, WaiterThatWasHandedTheLockInVainLosesIt) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        Starving s;
        gump::Run([&] {
          runtime::GOMAXPROCS(1);
          s.Make();
          std::atomic<bool> unlocked = false;
          std::thread([&] {
            s.mu.Unlock();
            unlocked = true;
          }).detach();
          while (!unlocked) {  // the goroutine does not run meanwhile
          }
        });
        s.mu.Lock();
        s.mu.Unlock();
        gump::Run([&] {
          while (!s.done) runtime::Gosched();
          s.mu.Lock();
          s.mu.Unlock();
        });
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// ComeBack starts a goroutine that blocks in the kernel while it holds l. It
// loses its P, main returns, then it comes back and gets no further than its
// Unlock. The Unlock lets in the n threads that are parked for `reason` in
// `enter`. `others` more goroutines wait for l before these threads.
template <typename Lock>
void ComeBack(Lock* l, size_t n, const char* reason, void (*enter)(Lock*),
              int others = 0) {
  alarm(kTooLong);
  int fds[2];
  if (pipe(fds) != 0) std::_Exit(1);
  std::vector<std::thread> threads;
  gump::Run([&] {
    runtime::GOMAXPROCS(1);
    go([&] {
      l->Lock();
      char c;
      if (read(fds[0], &c, 1) != 1) std::_Exit(2);
      l->Unlock();
      runtime::Gosched();
      std::_Exit(3);
    });
    runtime::Gosched();
    for (int i = 0; i < others; i++) go([l] { l->Lock(); });
    runtime::Gosched();
    for (size_t i = 0; i < n; i++) threads.emplace_back(enter, l);
    if (!testing::EventuallyParked(reason, n)) std::_Exit(100);
  });
  if (write(fds[1], "", 1) != 1) std::_Exit(4);
  for (std::thread& t : threads) t.join();
  std::_Exit(0);
}

TEST_F(AfterRunLockDeathTest, GoroutineBackFromTheKernelStillUnlocks) {
  EXPECT_EXIT(
      {
        sync::Mutex mu;
        ComeBack(&mu, 1, "sync.Mutex.Lock", LockOnce);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(AfterRunLockDeathTest, GoroutineBackFromTheKernelLetsReadersIn) {
  EXPECT_EXIT(
      {
        sync::RWMutex rw;
        ComeBack(&rw, 3, "sync.RWMutex.RLock", ReadOnce);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(AfterRunLockDeathTest, AWriterThatWaitsKeepsNoReaderOut) {
  EXPECT_EXIT(
      {
        sync::RWMutex rw;
        ComeBack(&rw, 3, "sync.RWMutex.RLock", ReadOnce,
                 /*others=*/1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// The writer has the next turn, because it starves. It must not run before the
// readers have been woken, because main is next and ends.
TEST_F(AfterRunLockDeathTest, AWriterThatStarvesKeepsNoReaderOut) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        sync::RWMutex rw;
        std::vector<std::thread> threads;
        gump::Run([&] {
          runtime::GOMAXPROCS(1);
          const auto done = make_chan<void>(1);
          go([&, done] {
            rw.Lock();
            go([&] { rw.Lock(); });
            AwaitQueue(1);
            Compute(1500us);
            rw.Unlock();
            rw.Lock();  // the writer is awake, but this goroutine runs
            AwaitQueue(1);
            for (int i = 0; i < 3; i++) {
              threads.emplace_back([&] { ReadOnce(&rw); });
            }
            if (!testing::EventuallyParked("sync.RWMutex.RLock", 3)) {
              std::_Exit(100);
            }
            done.Send();
            rw.Unlock();
          });
          done.Recv();
        });
        for (std::thread& t : threads) t.join();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// Array is n objects of T, all zero. Its pages fault when they are touched
// after it has gone.
template <typename T>
class Array {
 public:
  explicit Array(size_t n) : n_(n) {
    void* p = mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::_Exit(101);
    elements_ = static_cast<T*>(p);
    for (T& t : *this) new (&t) T;
  }
  ~Array() { munmap(elements_, n_ * sizeof(T)); }
  T* begin() { return elements_; }
  T* end() { return elements_ + n_; }

 private:
  size_t n_;
  T* elements_;
};

// The next Run does not look at the locks for which left-over goroutines wait.
// The locks may have gone, because these goroutines will never run.
TEST_F(AfterRunLockDeathTest, NextRunKnowsNothingOfTheLocksOfThisOne) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        {
          Array<sync::Mutex> one(1);
          gump::Run([mu = one.begin()] {
            mu->Lock();
            go([mu] { mu->Lock(); });
            AwaitQueue(1);
          });
        }
        gump::Run([] {});
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// Units that were handed to left-over goroutines, and that these have not yet
// taken, are taken back before Run returns. The thread on which main has ended
// makes no difference.
TEST_F(AfterRunLockDeathTest, SemaphoresMayBeFreedWhenRunHasReturned) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        constexpr size_t kWaiters = rt::kSanitizerBuild ? 200 : 20000;
        const std::thread::id self = std::this_thread::get_id();
        {
          Array<rt::Atomic<uint32_t>> words(kWaiters);
          gump::Run([&] {
            runtime::GOMAXPROCS(1);
            for (auto& word : words) {
              go([sema = &word] {
                rt::semacquire(sema, /*lifo=*/false,
                               rt::SemaReason::kSemacquire);
              });
            }
            if (!testing::EventuallyParked("semacquire", kWaiters)) {
              std::_Exit(100);
            }
            runtime::Gosched();  // main leaves its thread for another
            if (std::this_thread::get_id() == self) std::_Exit(1);
            std::atomic<bool> released = false;
            std::thread([&] {
              for (auto& w : words) rt::semrelease(&w, /*handoff=*/true);
              released = true;
            }).detach();
            while (!released) {  // most of the waiters do not run meanwhile
            }
          });
        }
        runtime::GC();  // waits for every thread that is at work with a P
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// Main returns while goroutines and threads take the lock.
TEST_F(AfterRunLockDeathTest, ThreadsGoOnWhereverGoroutinesWere) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        for (int round = 0; round < 20; round++) {
          sync::Mutex mu;
          int inside = 0;
          std::atomic<bool> ended = false;
          std::atomic<int> left = 0;
          const auto take = [&] {
            mu.Lock();
            if (++inside != 1) std::_Exit(1);
            --inside;
            mu.Unlock();
          };
          std::vector<std::thread> threads;
          gump::Run([&] {
            runtime::GOMAXPROCS(4);
            for (int i = 0; i < 6; i++) {
              left++;
              go([&] {
                while (!ended) take();
                left--;
              });
            }
            for (int i = 0; i < 2; i++) {
              threads.emplace_back([&] {
                while (!ended) take();
                for (int k = 0; k < 100; k++) take();
              });
            }
            std::this_thread::sleep_for(3ms);
          });
          ended = true;
          for (int k = 0; k < 100; k++) take();
          for (std::thread& t : threads) t.join();
          gump::Run([&] {
            while (left > 0) runtime::Gosched();
          });
        }
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace gump
