// Trades with the scheduler: computing, threads, and stopping the world.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "gump/chan.h"
#include "gump/gls.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sched/stw.h"
#include "tests/stress/soak/soak.h"
#include "tests/testing/checked_work.h"
#include "tests/testing/errno_access.h"

namespace gump::soak {
namespace {

const testing::CheckedResults& Results() {
  static const testing::CheckedResults results;
  return results;
}

// Goroutines compute for some slices and are preempted in place.
class ComputeTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    const uint64_t job = rng.Below(Results().jobs());
    for (uint64_t n = 1 + rng.Below(16); n > 0; n--) {
      EXPECT_EQ(testing::CheckedResults::Step(job), Results()[job])
          << testing::CheckedResults::NameOf(job);
    }
  }
};

// A goroutine keeps its own data on whichever thread it goes on.
class OwnTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    sync::WaitGroup wg;
    Crowd(rng, 8, wg, [](Rng& own) {
      const auto mark = static_cast<int>(1 + own.Below(1000));
      *kMark = mark;
      testing::SetErrno(mark);
      for (uint64_t n = own.Below(20); n > 0; n--) {
        Pause(own);
        EXPECT_EQ(testing::GetErrno(), mark);
        EXPECT_EQ(*kMark, mark);
      }
    });
    wg.Wait();
  }

 private:
  inline static const gls<int> kMark{0};
};

// A goroutine that is locked to a thread stays there. If it ends without
// unlocking the thread, the thread ends, too.
class ThreadTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    sync::WaitGroup wg;
    const auto c = make_chan<long>();
    Crowd(rng, 3, wg, [&c](Rng& own) {
      runtime::LockOSThread();
      const long self = Self();
      for (uint64_t n = own.Below(6); n > 0; n--) {
        if (own.OneIn(2)) {
          select(Send(c, self), Recv(time::After(Short(own))));
        } else {
          select(Recv(c, [=](long other) { EXPECT_NE(other, self); }),
                 Recv(time::After(Short(own))));
        }
        Pause(own);
        EXPECT_EQ(Self(), self);
      }
      switch (own.Below(3)) {
        case 0:
          runtime::Goexit();
        case 1:
          runtime::UnlockOSThread();
          break;
        default:
          break;
      }
    });
    wg.Wait();
  }

 private:
  __attribute__((noinline)) static long Self() { return syscall(SYS_gettid); }
};

// The number of Ps goes up and down.
class ProcsTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    const int n = static_cast<int>(1 + rng.Below(8));
    EXPECT_GE(runtime::GOMAXPROCS(n), 1);
    time::Sleep(std::chrono::milliseconds(rng.Below(10)));
  }
  void Close() override { runtime::SetDefaultGOMAXPROCS(); }
};

// The world stops. A goroutine that is just back from a system call goes on
// without a P, but not past its next call into the runtime.
class StopTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    std::atomic<uint64_t> moves = 0;
    std::atomic<bool> over = false;
    sync::WaitGroup wg;
    for (uint64_t i = 0; i < kMovers; i++) {
      wg.Go([&] {
        while (!over) {
          moves++;
          runtime::Gosched();
        }
      });
    }
    Pause(rng);
    rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
    const uint64_t before = moves;
    uint64_t after = before;
    for (int i = 0; i < 10'000; i++) after = moves;
    rt::startTheWorld();
    EXPECT_LE(after - before, kMovers);
    over = true;
    wg.Wait();
    time::Sleep(std::chrono::milliseconds(rng.Below(5)));
  }

 private:
  static constexpr uint64_t kMovers = 3;
};

// A worker looks at all goroutines.
class DumpTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    const std::string all = runtime::Stack(/*all=*/true);
    EXPECT_EQ(all.find("goroutine "), 0u);
    EXPECT_NE(all.find("goroutine 1 ["), std::string::npos);
    EXPECT_GE(debug::ReadSchedStats().procs, 1);
    time::Sleep(std::chrono::milliseconds(rng.Below(20)));
  }
};

// Memory is given back to the kernel.
class ReclaimTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    std::atomic<int> done = 0;
    runtime::SetFinalizer([&] { done++; });
    if (rng.OneIn(2)) {
      runtime::GC();
    } else {
      debug::FreeOSMemory();
    }
    while (done == 0) runtime::Gosched();
    time::Sleep(std::chrono::milliseconds(rng.Below(20)));
  }
};

constexpr TradeMaker kTrades[] = {
    MakeTrade<ComputeTrade>, MakeTrade<OwnTrade>,  MakeTrade<ThreadTrade>,
    MakeTrade<ProcsTrade>,   MakeTrade<StopTrade>, MakeTrade<DumpTrade>,
    MakeTrade<ReclaimTrade>,
};

}  // namespace

std::span<const TradeMaker> SchedTrades() {
  (void)Results();  // computed before there are goroutines
  return kTrades;
}

}  // namespace gump::soak
