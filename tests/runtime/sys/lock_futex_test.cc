#include "runtime/sys/lock_futex.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "runtime/sched/mlocks.h"
#include "runtime/sys/os_linux.h"

namespace gump {
namespace {

using rt::acquire;
using rt::Atomic;
using rt::LockScope;
using rt::Mutex;
using rt::Note;
using rt::release;

constexpr int64_t kSecond = 1000000000;

class LockTest : public testing::TestWithParam<bool> {
 protected:
  // Both halves of the asymmetric fence: with membarrier(2), and without.
  void SetUp() override {
    rt::membarrierInit();
    if (!GetParam()) {
      rt::membarrierState.store(rt::Membarrier::kDenied, rt::relaxed);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Fence, LockTest, testing::Bool());

TEST_P(LockTest, HasOneHolderAtATime) {
  Mutex mutex;
  int64_t counter = 0;  // plain: only the lock protects it
  constexpr int kThreads = 8;
  constexpr int kRounds = 20000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      for (int k = 0; k < kRounds; k++) {
        LockScope scope(&mutex);
        counter++;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(counter, int64_t{kThreads} * kRounds);
}

// In each round all threads sleep behind a holder that keeps the lock for
// longer than they spin. A lost wake-up leaves the test hanging.
TEST_P(LockTest, NoSleeperIsForgotten) {
  Mutex mutex;
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  Atomic<int> done;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      for (int k = 0; k < kRounds; k++) {
        LockScope scope(&mutex);
        rt::usleep(20);
      }
      done.add(1, release);  // pairs with load-acquire below
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(done.load(acquire), kThreads);  // pairs with add-release above
}

bool TryOnce(Mutex* mutex) {
  if (!rt::trylock(mutex)) return false;
  rt::unlock(mutex);
  return true;
}

TEST(MutexTest, TrylockTakesOnlyAFreeLock) {
  Mutex mutex;
  EXPECT_TRUE(TryOnce(&mutex));
  bool taken = true;
  {
    LockScope scope(&mutex);
    std::thread([&] { taken = TryOnce(&mutex); }).join();
  }
  EXPECT_FALSE(taken);
  EXPECT_TRUE(TryOnce(&mutex));
}

TEST(NoteTest, WakeUpMayComeFirst) {
  Note note;
  rt::notewakeup(&note);
  rt::notesleep(&note);
  rt::noteclear(&note);
  EXPECT_FALSE(rt::notetsleep(&note, 0));
}

TEST(NoteTest, SleeperSeesTheWritesOfTheWaker) {
  constexpr int kRounds = 5000;
  Note there;
  Note back;
  int value = 0;
  std::thread t([&] {
    for (int i = 1; i <= kRounds; i++) {
      rt::notesleep(&there);
      rt::noteclear(&there);
      value++;
      rt::notewakeup(&back);
    }
  });
  for (int i = 1; i <= kRounds; i++) {
    rt::notewakeup(&there);
    rt::notesleep(&back);
    rt::noteclear(&back);
    ASSERT_EQ(value, i);
  }
  t.join();
}

TEST(NoteTest, TimedSleepEndsAtItsDeadline) {
  Note note;
  const int64_t start = rt::nanotime();
  EXPECT_FALSE(rt::notetsleep(&note, 2000000));
  EXPECT_GE(rt::nanotime() - start, 2000000);
}

TEST(NoteTest, TimedSleepIsCutShortByAWakeUp) {
  Note note;
  std::thread t([&] { rt::notewakeup(&note); });
  EXPECT_TRUE(rt::notetsleep(&note, 60 * kSecond));
  t.join();
}

TEST(NoteTest, NegativeTimeSleepsUntilTheWakeUp) {
  Note note;
  std::thread t([&] { rt::notewakeup(&note); });
  EXPECT_TRUE(rt::notetsleep(&note, -1));
  t.join();
}

TEST(NoteDeathTest, SecondWakeUpThrows) {
  EXPECT_DEATH(
      {
        Note note;
        rt::notewakeup(&note);
        rt::notewakeup(&note);
      },
      "fatal error: notewakeup - double wakeup");
}

TEST(OsLinuxTest, KernelCallsLeaveErrnoAlone) {
  errno = 4711;
  Atomic<uint32_t> word;
  rt::futexsleep(&word, 1, -1);    // EAGAIN
  rt::futexsleep(&word, 0, 1000);  // ETIMEDOUT
  rt::futexwakeup(&word, 1);
  rt::usleep(1);
  rt::osyield();
  EXPECT_EQ(rt::sysReserve(~size_t{0} / 2), nullptr);  // ENOMEM
  EXPECT_GE(rt::getproccount(), 1);
  EXPECT_EQ(errno, 4711);
}

TEST(OsLinuxTest, ClocksAdvance) {
  const int64_t a = rt::nanotime();
  rt::usleep(1000);
  EXPECT_GE(rt::nanotime() - a, 1000000);
  EXPECT_GT(rt::walltime(), int64_t{1700000000} * kSecond);
}

}  // namespace
}  // namespace gump
