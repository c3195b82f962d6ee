// Locks that plain threads share with goroutines when main has returned. Nobody
// runs a goroutine that is left over in the queue of a lock, so the lock must
// not be kept for it: a thread waits only for who has it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gump/context.h"
#include "gump/go.h"
#include "gump/mutex.h"
#include "gump/runtime.h"

namespace gump {
namespace {

using namespace std::chrono_literals;

// In programs of their own, since a thread that waits for ever cannot be
// joined: the alarm ends those.
class AfterRunLockDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

constexpr unsigned kTooLong = 30;  // s

// AwaitQueue waits until n wait for Mutexes.
void AwaitQueue(size_t n) {
  constexpr std::string_view kWaits = "[sync.Mutex.Lock]:\n";
  for (;;) {
    const std::string dump = runtime::Stack(true);
    size_t found = 0;
    size_t at = 0;
    while ((at = dump.find(kWaits, at)) != std::string::npos) {
      found++;
      at += kWaits.size();
    }
    if (found >= n) return;
    runtime::Gosched();
  }
}

// The goroutine is first, and has been woken, but has not run.
TEST_F(AfterRunLockDeathTest, WhoWasWokenInVainIsReplaced) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        sync::Mutex mu;
        std::thread t;
        gump::Run([&] {
          runtime::GOMAXPROCS(1);
          mu.Lock();
          go([&] {
            mu.Lock();
            mu.Unlock();
          });
          AwaitQueue(1);
          t = std::thread([&] {
            mu.Lock();
            mu.Unlock();
          });
          AwaitQueue(2);
          mu.Unlock();
        });
        t.join();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// The lock is given back when main has returned. The goroutine gets it in the
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
            mu.Lock();
            mu.Unlock();
            done = true;
          });
          AwaitQueue(1);
          for (size_t i = 0; i < 3; i++) {
            threads.emplace_back([&] {
              mu.Lock();
              mu.Unlock();
            });
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

// The goroutine has waited for long and lost once: Unlock would hand it the
// lock.
TEST_F(AfterRunLockDeathTest, NobodyIsHandedTheLockWhoDoesNotRun) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        sync::Mutex mu;
        bool done = false;
        gump::Run([&] {
          runtime::GOMAXPROCS(1);
          mu.Lock();
          go([&] {
            mu.Lock();
            done = true;
            mu.Unlock();
          });
          AwaitQueue(1);
          usleep(2'000);
          mu.Unlock();
          mu.Lock();  // it is awake, but this goroutine runs
          AwaitQueue(1);
        });
        mu.Unlock();
        for (int i = 0; i < 3; i++) {
          mu.Lock();
          if (done) std::_Exit(1);
          mu.Unlock();
        }
        if (!mu.TryLock()) std::_Exit(2);
        mu.Unlock();
        gump::Run([&] {
          while (!done) runtime::Gosched();
          mu.Lock();  // nothing is left behind
          mu.Unlock();
        });
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// The goroutine has been handed the lock, but has not run.
TEST_F(AfterRunLockDeathTest, WhoWasHandedTheLockInVainLosesIt) {
  EXPECT_EXIT(
      {
        alarm(kTooLong);
        sync::Mutex mu;
        bool done = false;
        gump::Run([&] {
          runtime::GOMAXPROCS(1);
          mu.Lock();
          go([&] {
            mu.Lock();
            done = true;
            mu.Unlock();
          });
          AwaitQueue(1);
          usleep(2'000);
          mu.Unlock();
          mu.Lock();
          AwaitQueue(1);
          std::atomic<bool> unlocked = false;
          std::thread([&] {
            mu.Unlock();
            unlocked = true;
          }).detach();
          while (!unlocked) {  // the goroutine does not run meanwhile
          }
        });
        mu.Lock();
        mu.Unlock();
        gump::Run([&] {
          while (!done) runtime::Gosched();
          mu.Lock();
          mu.Unlock();
        });
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// Main returns while goroutines and threads are at it.
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

// The library's own locks are such, too. Goroutines that never wait go on for
// as long as the program.
TEST_F(AfterRunLockDeathTest, AContextIsCancelled) {
  for (int i = 0; i < 8; i++) {
    EXPECT_EXIT(
        {
          alarm(kTooLong);
          const auto made = context::WithCancel(context::Background());
          gump::Run([ctx = made.first] {
            runtime::GOMAXPROCS(4);
            for (int k = 0; k < 6; k++) {
              go([ctx] {
                for (;;) context::WithCancel(ctx).second();
              });
            }
            std::this_thread::sleep_for(10ms);
          });
          made.second();
          std::_Exit(0);
        },
        ::testing::ExitedWithCode(0), "^$");
  }
}

}  // namespace
}  // namespace gump
