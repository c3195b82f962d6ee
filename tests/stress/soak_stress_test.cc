// Everything in one process: rounds of workers at trades (soak/soak.h) that are
// drawn from the seed. Workers are goroutines, some of them locked to their
// threads, and plain threads. After each round all work has ended, all values
// that went in have come out, and nothing is left of it. In the end the process
// is as small as it was, and no wake-up was lost on the way.
//
// Round r of seed s is round 0 of seed s + r. A round prints this when it
// begins, so the last line before a crash or a hang names the round to repeat.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sys/sanitizer.h"
#include "tests/stress/soak/soak.h"
#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/resident_bytes.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::soak {
namespace {

using Clock = std::chrono::steady_clock;
using testing::Counted;
using testing::Eventually;

// A round that takes longer than this, in seconds, hangs.
constexpr unsigned kHang = rt::kSanitizerBuild ? 300 : 60;

// A goroutine that sleeps in the kernel, or was preempted in place, has a
// thread. More threads than this are the fatal error "thread exhaustion".
constexpr int kMostThreads = 400;
constexpr int64_t kMostBytes = int64_t{rt::kSanitizerBuild ? 4096 : 128} << 20;

// Set before main, because a goroutine dump may start the runtime, which reads
// it. GODEBUG may hold other settings.
[[maybe_unused]] const int watchdog = ::setenv("GUMP_DEBUG", "watchdog=1", 1);

std::vector<TradeMaker> AllTrades() {
  std::vector<TradeMaker> all;
  for (const auto trades :
       {ChanTrades(), SyncTrades(), IoTrades(), SchedTrades()}) {
    all.insert(all.end(), trades.begin(), trades.end());
  }
  return all;
}

// DumpOnAlarm prints every goroutine if a round hangs.
void DumpOnAlarm() {
  struct sigaction sa = {};
  sa.sa_handler = [](int) {
    constexpr char kText[] = "the round hangs\n";
    (void)!::write(STDERR_FILENO, kText, sizeof(kText) - 1);
    ::kill(::getpid(), SIGQUIT);
  };
  sa.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigaction(SIGALRM, &sa, nullptr);
}

// Round is a number of workers at trades, for some time.
class Round {
 public:
  Round(std::span<const TradeMaker> makers, uint64_t seed)
      : rng_(seed),
        end_(Clock::now() + std::chrono::milliseconds(200 + rng_.Below(600))) {
    for (const TradeMaker make : makers) trades_.push_back(make());
  }

  // Run returns how many pieces of work were done.
  uint64_t Run() {
    std::vector<std::thread> threads;
    sync::WaitGroup wg;
    for (uint64_t n = 4 + rng_.Below(40); n > 0; n--) {
      Trade* trade = trades_[rng_.Below(trades_.size())].get();
      const auto work = [this, trade, seed = rng_.Next()] {
        Work(trade, seed);
      };
      switch (rng_.Below(6)) {
        case 0:
          threads.push_back(testing::KnownThread(work));
          break;
        case 1:
          wg.Go([work] {  // its thread ends with it
            runtime::LockOSThread();
            work();
          });
          break;
        default:
          wg.Go(work);
          break;
      }
    }
    wg.Wait();
    testing::JoinAll(threads);
    for (const auto& t : trades_) t->Close();
    return pieces_;
  }

 private:
  void Work(Trade* trade, uint64_t seed) {
    Rng rng(seed);
    do {
      trade->Piece(rng);
      pieces_++;
    } while (Clock::now() < end_);
  }

  Rng rng_;
  const Clock::time_point end_;
  std::vector<std::unique_ptr<Trade>> trades_;
  std::atomic<uint64_t> pieces_ = 0;
};

// NothingIsLeft checks the conditions that hold between two rounds.
void NothingIsLeft() {
  EXPECT_TRUE(Eventually([] { return runtime::NumGoroutine() == 1; }))
      << runtime::Stack(/*all=*/true);
  EXPECT_TRUE(Eventually([] { return Counted::objects() == 0; }))
      << Counted::objects() << " parcels are left";
  EXPECT_EQ(debug::ReadSchedStats().stalls, 0u) << "a wake-up was lost";
  EXPECT_LE(testing::ResidentBytes(), kMostBytes);
}

// ThreadsGo checks that threads that are not needed any more end. That takes a
// few seconds.
void ThreadsGo() {
  debug::SchedStats s;
  EXPECT_TRUE(Eventually([&] {
    time::Sleep(std::chrono::milliseconds(10));
    s = debug::ReadSchedStats();
    return s.threads <= s.procs + 8;
  })) << s.threads
      << " threads for " << s.procs << " Ps";
}

void Report(uint64_t rounds, uint64_t pieces) {
  const debug::SchedStats s = debug::ReadSchedStats();
  std::printf(
      "%llu rounds, %llu pieces, %llu preemptions, %llu presumptions, "
      "%llu stops, %llu threads retired, %lld MB\n",
      static_cast<unsigned long long>(rounds),
      static_cast<unsigned long long>(pieces),
      static_cast<unsigned long long>(s.preemptions),
      static_cast<unsigned long long>(s.presumptions),
      static_cast<unsigned long long>(s.world_stops),
      static_cast<unsigned long long>(s.threads_retired),
      static_cast<long long>(testing::ResidentBytes() >> 20));
}

TEST(SoakStressTest, EverythingHoldsTogether) {
  const std::vector<TradeMaker> makers = AllTrades();
  const uint64_t seed = testing::StressSeed();
  const Clock::time_point end = Clock::now() + testing::StressTime();
  DumpOnAlarm();
  gump::Run([&] {
    debug::SetMaxThreads(kMostThreads);
    uint64_t pieces = 0;
    uint64_t r = 0;
    do {
      std::printf("round %llu: GUMP_STRESS_SEED=%llu\n",
                  static_cast<unsigned long long>(r),
                  static_cast<unsigned long long>(seed + r));
      std::fflush(stdout);
      ::alarm(kHang);
      {
        Round round(makers, seed + r);
        pieces += round.Run();
      }
      NothingIsLeft();
      ::alarm(0);
      r++;
    } while (Clock::now() < end && !::testing::Test::HasFailure());
    ThreadsGo();
    Report(r, pieces);
  });
}

}  // namespace
}  // namespace gump::soak
