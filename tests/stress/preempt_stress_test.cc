// Endurance of preemption. Goroutines that compute are interrupted a thousand
// times a second, at every point, and each result is the same as without
// goroutines. Channels and mutexes carry work and results between them.
//
// The slice of 10 ms stays as it is, because sysmon would not look every
// millisecond anyway. A thread of the test makes the requests that sysmon
// makes, the flag and the signal. It does so for every P that runs, whether its
// goroutine computes or is in the runtime, so that the handler gives each of
// its answers.
//
// tools/gump soak runs this for a long time. tests/testing/stress.h says how to
// repeat a run.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/checked_work.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::CheckedResults;
using testing::Rng;

// A run ends only when goroutines have been preempted in place this often. A
// run of several seconds needs this number for each second. The number is half
// of the requests that one P gets in a second. Under TSan, one is enough for
// the whole run. TSan delivers signals late, and never to a thread that does
// not call libc.
#if defined(GUMP_TSAN)
constexpr int64_t kLeastPreemptions = 1;
#else
constexpr int64_t kLeastPreemptions = rt::kSanitizerBuild ? 50 : 500;
#endif

uint64_t LeastPreemptions(std::chrono::nanoseconds time) {
  const bool rated = kLeastPreemptions > 1;
  const int64_t ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return static_cast<uint64_t>(
      std::max(kLeastPreemptions, rated ? kLeastPreemptions * ms / 1000 : 0));
}

uint64_t Preemptions() {
  return rt::stats.preemptions.load(rt::relaxed);  // a count
}

// SIGUSR1 ends the test before its time (tests/gdb/attach.sh).
volatile sig_atomic_t asked_to_end = 0;
void EndOnSIGUSR1() {
  struct sigaction sa = {};
  sa.sa_handler = [](int) { asked_to_end = 1; };
  sa.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &sa, nullptr);
}

// Presser asks every running P for a preemption once a millisecond.
class Presser {
 public:
  Presser()
      : thread_(testing::KnownThread([this] {
          while (!stop_) {
            rt::preemptall();
            Signal();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        })) {}
  ~Presser() {
    stop_ = true;
    blocking([this] { thread_.join(); });
  }

 private:
  static void Signal() {
    const int32_t n = rt::gomaxprocs.load(rt::acquire);
    for (int32_t i = 0; i < n; i++) {
      // As forcePreempt does, but in every state of the thread. Ms are never
      // freed.
      rt::M* mp = rt::allp[i]->m.load(rt::acquire);
      if (mp != nullptr) rt::preemptM(mp);
    }
  }
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Endurance is one run. Some workers get their jobs over a channel, each in an
// order of its own and in batches between which they enter the runtime. Others
// stay with one kind of work and do not enter it for many steps. All of them
// send each result on. The receiver compares it and adds it up under a mutex.
class Endurance {
 public:
  Endurance(const CheckedResults& reference, std::chrono::nanoseconds time,
            uint64_t seed)
      : reference_(reference),
        end_(std::chrono::steady_clock::now() + time),
        rng_(seed),
        preemptions_(Preemptions()),
        least_(LeastPreemptions(time)) {}

  void Run() {
    const Presser presser;
    sync::WaitGroup checkers;
    for (int i = 0; i < 2; i++) checkers.Go([this] { Check(); });
    sync::WaitGroup workers;
    for (int i = 0; i < 6; i++) workers.Go([this] { WorkOnDemand(); });
    for (uint64_t kind = 0; kind < testing::AllCheckedWork().size(); kind++) {
      workers.Go([this, kind] { WorkAlone(kind); });
    }
    while (!Over()) jobs_.Send(rng_.Below(reference_.jobs()));
    jobs_.Close();
    workers.Wait();
    results_.Close();
    checkers.Wait();
  }

  void Report() const {
    EXPECT_EQ(wrong_, "");
    EXPECT_EQ(sum_, expected_);
    std::printf("%llu steps, %llu preemptions\n",
                static_cast<unsigned long long>(steps_),
                static_cast<unsigned long long>(Preemptions() - preemptions_));
    std::fflush(stdout);
  }

 private:
  struct Result {
    uint64_t job;
    uint64_t value;
  };

  bool Over() const {
    return asked_to_end != 0 || (std::chrono::steady_clock::now() >= end_ &&
                                 Preemptions() - preemptions_ >= least_);
  }

  void WorkOnDemand() {
    for (const uint64_t job : jobs_)
      results_.Send({job, CheckedResults::Step(job)});
  }

  void WorkAlone(uint64_t kind) {
    while (!Over()) {
      for (uint64_t seed = 0; seed < CheckedResults::kSeeds && !Over();
           seed++) {
        const uint64_t job = kind * CheckedResults::kSeeds + seed;
        uint64_t value = CheckedResults::Step(job);
        for (int i = 0; i < 4; i++) {
          // A single wrong result must not be covered by the next.
          if (const uint64_t again = CheckedResults::Step(job); again != value)
            value = again ^ value;
        }
        results_.Send({job, value});
      }
    }
  }

  void Check() {
    for (const Result& r : results_) {
      mu_.Lock();
      steps_++;
      sum_ += r.value;
      expected_ += reference_[r.job];
      if (r.value != reference_[r.job] && wrong_.size() < 1000) {
        wrong_ += CheckedResults::NameOf(r.job) + " ";
      }
      mu_.Unlock();
    }
  }

  const CheckedResults& reference_;
  const std::chrono::steady_clock::time_point end_;
  Rng rng_;
  const uint64_t preemptions_;  // of the process, before this run
  const uint64_t least_;        // of this run
  const chan<uint64_t> jobs_ = make_chan<uint64_t>();
  const chan<Result> results_ = make_chan<Result>(8);
  sync::Mutex mu_;
  uint64_t steps_ = 0, sum_ = 0, expected_ = 0;  // guarded by mu_
  std::string wrong_;                            // guarded by mu_
};

using PreemptStressTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PreemptStressTest);

// StressTime is divided among the values of GOMAXPROCS.
TEST_P(PreemptStressTest, ResultsStayRight) {
  EndOnSIGUSR1();
  const uint64_t seed = testing::StressSeed();
  static const CheckedResults reference;  // takes seconds under ASan
  Run([&] {
    Endurance e(reference, testing::StressTime(rt::kSanitizerBuild ? 4 : 8) / 4,
                seed);
    e.Run();
    e.Report();
  });
}

}  // namespace
}  // namespace gump
