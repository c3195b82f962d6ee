// The block and mutex profiles. Tests with a name of Go's are those of
// runtime/pprof/pprof_test.go.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/testing/parked.h"
#include "tests/testing/profile_reader.h"
#include "tests/testing/with_gomaxprocs.h"

// Functions whose names the tests look for in profiles. The empty asm prevents
// tail calls.
namespace contentiontest {

#define NOINLINE __attribute__((noinline))

NOINLINE void Recv(gump::chan<int> c) {
  (void)c.Recv();
  asm volatile("");
}
NOINLINE void Send(gump::chan<int> c) {
  c.Send(1);
  asm volatile("");
}
NOINLINE void SelectRecv(gump::chan<int> c, gump::chan<int> never) {
  int v;
  gump::select(gump::Recv(c, &v), gump::Recv(never, &v));
  asm volatile("");
}
NOINLINE void LockIt(gump::sync::Mutex* mu) {
  mu->Lock();
  asm volatile("");
}
NOINLINE void UnlockIt(gump::sync::Mutex* mu) {
  mu->Unlock();
  asm volatile("");
}
NOINLINE void UnlockWriter(gump::sync::RWMutex* mu) {
  mu->Unlock();
  asm volatile("");
}
NOINLINE void WaitCond(gump::sync::Cond* cond) {
  cond->Wait();
  asm volatile("");
}
NOINLINE void WaitGroup(gump::sync::WaitGroup* wg) {
  wg->Wait();
  asm volatile("");
}

#undef NOINLINE

}  // namespace contentiontest

namespace gump {
namespace {

using testing::EventuallyParked;
using testing::Profile;

std::string Written(std::string_view name, int debug = 0) {
  std::string path = ::testing::TempDir() + "contention-XXXXXX";
  const int fd = mkstemp(path.data());
  unlink(path.c_str());
  EXPECT_TRUE(pprof::WriteProfile(name, fd, debug).ok());
  std::string all;
  std::array<char, 65536> part;
  ssize_t n;
  for (off_t at = 0; (n = pread(fd, part.data(), part.size(), at)) > 0;
       at += n) {
    all.append(part.data(), static_cast<size_t>(n));
  }
  close(fd);
  return all;
}

Profile Read(std::string_view name) {
  Profile p = testing::ReadProfile(Written(name));
  EXPECT_EQ(p.error, "");
  return p;
}

// Gain is what a profile has recorded of a function since the Gain was made.
// Profiles are of the process, and tests run one after the other in it.
class Gain {
 public:
  Gain(std::string_view profile, std::string_view function)
      : profile_(profile), function_(function), count_(Count()), ns_(Ns()) {}
  int64_t count() const { return Count() - count_; }
  int64_t ns() const { return Ns() - ns_; }

 private:
  int64_t Count() const { return Read(profile_).Sum(function_, 0); }
  int64_t Ns() const { return Read(profile_).Sum(function_, 1); }
  const std::string profile_, function_;
  const int64_t count_, ns_;
};

constexpr int64_t kMilli = 1'000'000;
constexpr absl::Duration kDelay = absl::Milliseconds(10);

class ContentionTest : public testing::WithGomaxprocs {
 protected:
  void TearDown() override {
    pprof::SetBlockProfileRate(0);
    pprof::SetMutexProfileFraction(0);
  }
  // Blocks runs `wait` on a goroutine, and `end` once it has waited for 10 ms.
  template <class W, class E>
  static void Blocks(std::string_view function, std::string_view reason, W wait,
                     E end) {
    pprof::SetBlockProfileRate(1);
    const Gain gain("block", function);
    sync::WaitGroup wg;
    wg.Go(wait);
    EXPECT_TRUE(EventuallyParked(reason, 1)) << reason;
    time::Sleep(kDelay);
    end();
    wg.Wait();
    EXPECT_EQ(gain.count(), 1) << function;
    EXPECT_GE(gain.ns(), 10 * kMilli) << function;
    EXPECT_LE(gain.ns(), 60'000 * kMilli) << function;
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(ContentionTest);

TEST_P(ContentionTest, TestBlockProfile) {
  Run([] {
    chan<int> c = make_chan<int>();
    Blocks(
        "contentiontest::Recv", "chan receive",
        [=] { contentiontest::Recv(c); }, [=] { c.Send(1); });
    Blocks(
        "contentiontest::Send", "chan send", [=] { contentiontest::Send(c); },
        [=] { (void)c.Recv(); });
    chan<int> never = make_chan<int>();
    Blocks(
        "contentiontest::SelectRecv", "select",
        [=] { contentiontest::SelectRecv(c, never); }, [=] { c.Send(1); });
    chan<int> closed = make_chan<int>();
    Blocks(
        "contentiontest::Recv", "chan receive",
        [=] { contentiontest::Recv(closed); }, [=] { closed.Close(); });
    sync::Mutex mu;
    mu.Lock();
    Blocks(
        "contentiontest::LockIt", "sync.Mutex.Lock",
        [&] {
          contentiontest::LockIt(&mu);
          mu.Unlock();
        },
        [&] { mu.Unlock(); });
    sync::Cond cond(mu);
    Blocks(
        "contentiontest::WaitCond", "sync.Cond.Wait",
        [&] {
          mu.Lock();
          contentiontest::WaitCond(&cond);
          mu.Unlock();
        },
        [&] { cond.Signal(); });
    sync::WaitGroup other;
    other.Add(1);
    Blocks(
        "contentiontest::WaitGroup", "sync.WaitGroup.Wait",
        [&] { contentiontest::WaitGroup(&other); }, [&] { other.Done(); });
    const std::string text = Written("block", 1);
    EXPECT_EQ(text.find("--- contention:\ncycles/second=1000000000\n"), 0u);
    EXPECT_NE(text.find("contentiontest::Recv"), std::string::npos);
    EXPECT_EQ(text.find("gump::rt::parkOn"), std::string::npos) << text;
  });
}

TEST_P(ContentionTest, ProfilesThatAreOffRecordNothing) {
  Run([] {
    const Gain block("block", "");
    const Gain mutex("mutex", "");
    chan<int> c = make_chan<int>();
    sync::WaitGroup wg;
    for (int i = 0; i < 100; i++) {
      wg.Go([c] { c.Send(1); });
      (void)c.Recv();
    }
    wg.Wait();
    EXPECT_EQ(block.count(), 0);
    EXPECT_EQ(mutex.count(), 0);
  });
}

// Short waits are recorded seldom, and scaled so that the sum stays right on
// average (TestBlockProfileBias).
TEST_P(ContentionTest, LongWaitIsRecordedOnceAtAnyRate) {
  Run([] {
    pprof::SetBlockProfileRate(5 * kMilli);
    const Gain gain("block", "contentiontest::Recv");
    chan<int> c = make_chan<int>();
    sync::WaitGroup wg;
    wg.Go([c] { contentiontest::Recv(c); });
    EXPECT_TRUE(EventuallyParked("chan receive", 1));
    time::Sleep(kDelay);
    c.Send(1);
    wg.Wait();
    EXPECT_EQ(gain.count(), 1);
    EXPECT_GE(gain.ns(), 10 * kMilli);
  });
}

TEST_P(ContentionTest, TestMutexProfile) {
  Run([] {
    EXPECT_EQ(pprof::SetMutexProfileFraction(1), 0);
    const Gain unlock("mutex", "contentiontest::UnlockIt");
    const Gain lock("mutex", "contentiontest::LockIt");
    constexpr int kWaiters = 10;
    sync::Mutex mu;
    sync::WaitGroup wg;
    mu.Lock();
    for (int i = 0; i < kWaiters; i++) {
      wg.Go([&mu] {
        contentiontest::LockIt(&mu);
        mu.Unlock();
      });
    }
    EXPECT_TRUE(EventuallyParked("sync.Mutex.Lock", kWaiters));
    time::Sleep(kDelay);
    contentiontest::UnlockIt(&mu);
    wg.Wait();
    EXPECT_EQ(unlock.count(), 1);
    // All ten have waited for that unlock.
    EXPECT_GE(unlock.ns(), kWaiters * 10 * kMilli * 9 / 10);
    EXPECT_EQ(lock.count(), 0);
    const std::string text = Written("mutex", 1);
    EXPECT_EQ(text.find("--- mutex:\ncycles/second=1000000000\nsampling "
                        "period=1\n"),
              0u);
    EXPECT_NE(text.find("contentiontest::UnlockIt"), std::string::npos);
    EXPECT_EQ(pprof::SetMutexProfileFraction(-1), 1);
    EXPECT_EQ(pprof::SetMutexProfileFraction(0), 1);
  });
}

TEST_P(ContentionTest, RWMutexUnlockIsChargedWithItsReaders) {
  Run([] {
    pprof::SetMutexProfileFraction(1);
    const Gain gain("mutex", "contentiontest::UnlockWriter");
    constexpr int kReaders = 5;
    sync::RWMutex mu;
    sync::WaitGroup wg;
    mu.Lock();
    for (int i = 0; i < kReaders; i++) {
      wg.Go([&mu] {
        mu.RLock();
        mu.RUnlock();
      });
    }
    EXPECT_TRUE(EventuallyParked("sync.RWMutex.RLock", kReaders));
    time::Sleep(kDelay);
    contentiontest::UnlockWriter(&mu);
    wg.Wait();
    EXPECT_GE(gain.count(), 1);
    EXPECT_GE(gain.ns(), kReaders * 10 * kMilli * 9 / 10);
  });
}

// TestMutexProfileRateAdjust of Go: a fraction scales what it records.
TEST_P(ContentionTest, TestMutexProfileRateAdjust) {
  Run([] {
    pprof::SetMutexProfileFraction(2);
    const Gain gain("mutex", "contentiontest::UnlockIt");
    sync::Mutex mu;
    for (int i = 0; i < 40; i++) {
      sync::WaitGroup wg;
      mu.Lock();
      wg.Go([&mu] {
        mu.Lock();
        mu.Unlock();
      });
      EXPECT_TRUE(EventuallyParked("sync.Mutex.Lock", 1));
      contentiontest::UnlockIt(&mu);
      wg.Wait();
    }
    EXPECT_EQ(gain.count() % 2, 0);
    EXPECT_GT(gain.count(), 0);   // fails once in 2^40
    EXPECT_LE(gain.count(), 80);  // at most all, times 2
  });
}

TEST_P(ContentionTest, TimedWaitsAreRecorded) {
  Run([] {
    pprof::SetBlockProfileRate(1);
    const Gain gain("block", "gump::sync::Mutex");
    sync::Mutex mu;
    mu.Lock();
    sync::WaitGroup wg;
    wg.Go([&mu] { EXPECT_FALSE(mu.TryLockFor(kDelay)); });
    wg.Wait();
    EXPECT_GE(gain.count(), 1);
    EXPECT_GE(gain.ns(), 9 * kMilli);
    mu.Unlock();
  });
}

TEST(ContentionThreadTest, PlainThreadsAreRecorded) {
  pprof::SetBlockProfileRate(1);
  pprof::SetMutexProfileFraction(1);
  const Gain wait("block", "contentiontest::LockIt");
  const Gain unlock("mutex", "contentiontest::UnlockIt");
  sync::Mutex mu;
  mu.Lock();
  std::thread waiter([&mu] {
    contentiontest::LockIt(&mu);
    mu.Unlock();
  });
  EXPECT_TRUE(EventuallyParked("sync.Mutex.Lock", 1));
  contentiontest::UnlockIt(&mu);
  waiter.join();
  EXPECT_EQ(wait.count(), 1);
  EXPECT_EQ(unlock.count(), 1);
  pprof::SetBlockProfileRate(0);
  pprof::SetMutexProfileFraction(0);
}

// Profiles are switched, written and read while locks and channels are used.
TEST_P(ContentionTest, SettingsMayChangeWhileEventsAreRecorded) {
  Run([] {
    std::atomic<bool> stop{false};
    sync::Mutex mu;
    chan<int> c = make_chan<int>();
    sync::WaitGroup load;
    for (int i = 0; i < 4; i++) {
      load.Go([&] {
        while (!stop) {
          mu.Lock();
          runtime::Gosched();
          mu.Unlock();
          if (mu.TryLockFor(absl::Microseconds(1))) mu.Unlock();
        }
      });
    }
    load.Go([&] {
      while (!stop) c.Send(1);
      c.Close();
    });
    load.Go([&] {
      while (c.Recv().has_value()) {
      }
    });
    for (int i = 0; i < 12; i++) {  // each pair of the two settings
      pprof::SetBlockProfileRate(i % 3);
      pprof::SetMutexProfileFraction(i % 4);
      (void)Read("block");
      (void)Read("mutex");
      runtime::Gosched();
    }
    stop = true;
    load.Wait();
  });
}

}  // namespace
}  // namespace gump
