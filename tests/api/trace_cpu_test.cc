// CPU samples in the execution trace (runtime/diag/trace_cpu.cc).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "gump/gump.h"
#include "gump/pprof.h"
#include "gump/trace.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/trace_file.h"
#include "tests/testing/with_gomaxprocs.h"
#include "tools/trace/model.h"

// Functions whose names the tests look for in traces.
namespace cpusamples {

int64_t CpuNanos() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::atomic<uint64_t> sink;

__attribute__((noinline)) void Spin() {
  uint64_t x = 1;
  for (uint64_t i = 0; i < 20'000; i++) x = x * 6364136223846793005u + i;
  sink.store(x, std::memory_order_relaxed);
}

// Busy computes until the process has used `ms` of processor time.
__attribute__((noinline)) void Busy(int64_t ms) {
  const int64_t end = CpuNanos() + ms * 1'000'000;
  while (CpuNanos() < end) Spin();
}

__attribute__((noinline)) void Early() {
  Busy(100);
  asm volatile("");
}
__attribute__((noinline)) void Middle() {
  Busy(100);
  asm volatile("");
}
__attribute__((noinline)) void Late() {
  Busy(100);
  asm volatile("");
}

}  // namespace cpusamples

namespace gump {
namespace {

using cpusamples::Busy;
using cpusamples::Early;
using cpusamples::Late;
using cpusamples::Middle;
using testing::ReadTrace;
using testing::TempFile;
using testing::Traced;
using testing::TracedSample;
using trace_tool::kNoId;

// True if a sample has the stack of the moment of its signal. ThreadSanitizer
// calls handlers later.
constexpr bool kStacksCount = !rt::kSanitizerDefersHandlers;

// A CPU profile that is thrown away.
class Profiling {
 public:
  explicit Profiling(int hz = 1000) {
    EXPECT_TRUE(pprof::StartCPUProfile(file_.fd(), hz).ok());
  }
  ~Profiling() { Stop(); }
  Profiling(const Profiling&) = delete;
  Profiling& operator=(const Profiling&) = delete;
  void Stop() { pprof::StopCPUProfile(); }

 private:
  const TempFile file_;
};

// NotRunning returns how many samples in a function are not those of a
// goroutine that runs at this time.
size_t NotRunning(const std::string& bytes, const std::string& function) {
  const absl::StatusOr<trace_tool::Model> model = trace_tool::BuildModel(bytes);
  EXPECT_TRUE(model.ok()) << model.status();
  size_t not_running = 0;
  for (const trace_tool::Sample& s : model->samples) {
    bool in = false;
    for (const trace_tool::ModelFrame& f : model->stacks[s.stack]) {
      in |= model->texts[f.function] == function;
    }
    if (!in) continue;
    auto state = trace_tool::GoStatus::kNone;
    if (s.g != 0) {
      for (const trace_tool::GChange& c : model->gs[s.g - 1].changes) {
        if (c.ns <= s.ns) state = c.state;
      }
    }
    if (state != trace_tool::GoStatus::kRunning) not_running++;
  }
  return not_running;
}

using TraceCpuTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TraceCpuTest);

TEST_P(TraceCpuTest, SamplesHaveTheGoroutineTheProcAndTheFunction) {
  const TempFile file;
  Run([&] {
    const Profiling profile;
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    sync::WaitGroup wg;
    wg.Go(Early);
    wg.Go(Late);
    wg.Wait();
    trace::Stop();
  });
  const Traced t = ReadTrace(file.Contents());
  EXPECT_FALSE(t.samples.empty());
  if (!kStacksCount) return;
  EXPECT_GT(t.In("cpusamples::Early"), 5u);
  EXPECT_GT(t.In("cpusamples::Late"), 5u);
  std::map<std::string, std::set<uint64_t>> goroutines;
  size_t all = 0, with_proc = 0;
  for (const TracedSample& s : t.samples) {
    for (const char* function : {"cpusamples::Early", "cpusamples::Late"}) {
      if (!s.Has(function)) continue;
      goroutines[function].insert(s.g);
      all++;
      if (s.p < 64) with_proc++;
    }
  }
  ASSERT_EQ(goroutines.size(), 2u);
  for (const auto& [function, ids] : goroutines) {
    EXPECT_EQ(ids.size(), 1u) << function;
    EXPECT_NE(*ids.begin(), kNoId) << function;
  }
  EXPECT_NE(goroutines["cpusamples::Early"], goroutines["cpusamples::Late"]);
  // The goroutine may lose its P, and continue without one, for a moment.
  EXPECT_GT(with_proc, all / 2);
}

TEST_P(TraceCpuTest, GoroutineRunsAtTheTimeOfItsSample) {
  const TempFile file;
  Run([&] {
    const Profiling profile;
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) wg.Go(Middle);
    wg.Wait();
    trace::Stop();
  });
  const std::string bytes = file.Contents();
  const size_t all = ReadTrace(bytes).In("cpusamples::Middle");
  if (!kStacksCount) return;
  EXPECT_GT(all, 10u);
  EXPECT_LT(NotRunning(bytes, "cpusamples::Middle"), all / 4);
}

TEST_P(TraceCpuTest, OnlyTheTimeOfBothIsInTheTrace) {
  const TempFile first, second;
  Run([&] {
    {
      Profiling profile;
      Early();
      ASSERT_TRUE(trace::Start(first.fd()).ok());
      Middle();
      profile.Stop();
      Late();
      trace::Stop();
    }
    ASSERT_TRUE(trace::Start(second.fd()).ok());
    Early();
    Profiling profile;
    Middle();
    trace::Stop();
    Late();
  });
  for (const TempFile* file : {&first, &second}) {
    const Traced t = ReadTrace(file->Contents());
    if (!kStacksCount) continue;
    EXPECT_GT(t.In("cpusamples::Middle"), 5u);
    EXPECT_EQ(t.In("cpusamples::Early"), 0u);
    EXPECT_EQ(t.In("cpusamples::Late"), 0u);
  }
}

TEST_P(TraceCpuTest, TraceWithoutAProfileHasNoSamples) {
  const TempFile file;
  Run([&] {
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    Middle();
    trace::Stop();
  });
  EXPECT_TRUE(ReadTrace(file.Contents()).samples.empty());
}

TEST_P(TraceCpuTest, RecorderHasSamples) {
  const TempFile file;
  Run([&] {
    trace::FlightRecorder recorder;
    ASSERT_TRUE(recorder.Start().ok());
    const Profiling profile;
    Middle();
    ASSERT_TRUE(recorder.WriteTo(file.fd()).ok());
  });
  const Traced t = ReadTrace(file.Contents());
  EXPECT_FALSE(t.samples.empty());
  if (kStacksCount) {
    EXPECT_GT(t.In("cpusamples::Middle"), 5u);
  }
}

TEST_P(TraceCpuTest, TraceWithAPlainThreadThatComputesIsValid) {
  const TempFile file;
  Run([&] {
    const Profiling profile;
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    std::thread thread([] {
      const chan<int> c = make_chan<int>();
      go([=] { c.Send(1); });
      EXPECT_EQ(c.Recv(), 1);
      Middle();
    });
    thread.join();
    trace::Stop();
  });
  (void)ReadTrace(file.Contents());
}

// ---- Signals anywhere

// Every thread gets SIGPROF as often as the kernel allows, while goroutines
// switch, wait, call the kernel and end, and generations change. ReadTrace
// checks that the generation of each sample has its stack.
TEST_P(TraceCpuTest, GenerationsChangeUnderAStormOfSamples) {
  constexpr int kGenerations = rt::kSanitizerBuild ? 20 : 100;
  const TempFile file, recorded;
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(null, 0);
  Run([&] {
    const Profiling profile(10'000);
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    trace::FlightRecorder recorder;
    ASSERT_TRUE(recorder.Start().ok());
    std::atomic<bool> over = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&over] {
        while (!over) testing::Work();
      });
      wg.Go([&over] {
        while (!over) {
          Busy(1);
          runtime::Gosched();
        }
      });
    }
    std::thread thread([&over] {
      while (!over) {
        const chan<int> c = make_chan<int>();
        go([=] { c.Send(1); });
        EXPECT_EQ(c.Recv(), 1);
      }
    });
    for (int i = 0; i < kGenerations; i++) {
      Busy(2);
      EXPECT_TRUE(recorder.WriteTo(null).ok());
    }
    EXPECT_TRUE(recorder.WriteTo(recorded.fd()).ok());
    over = true;
    wg.Wait();
    thread.join();
    recorder.Stop();
    trace::Stop();
  });
  ::close(null);
  const Traced t = ReadTrace(file.Contents());
  EXPECT_GE(t.generations, size_t{kGenerations});
  std::set<uint64_t> generations;
  for (const TracedSample& s : t.samples) generations.insert(s.generation);
  EXPECT_GT(generations.size(), size_t{kGenerations} / 10);
  (void)ReadTrace(recorded.Contents());
}

// A trace and a profile start and stop independently, so each may do so at any
// moment of the other.
TEST_P(TraceCpuTest, TracesAreValidWhileProfilesStartAndStop) {
  Run([] {
    std::atomic<bool> over = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      wg.Go([&over] {
        while (!over) testing::Work();
      });
    }
    wg.Go([&over] {
      while (!over) {
        const TempFile profile;
        if (pprof::StartCPUProfile(profile.fd(), 10'000).ok()) Busy(3);
        pprof::StopCPUProfile();
      }
    });
    size_t samples = 0;
    // On a machine with much to do, 30 traces may get no sample.
    for (int i = 0; i < 30 || samples == 0; i++) {
      const TempFile file;
      ASSERT_TRUE(trace::Start(file.fd()).ok());
      Busy(10);
      trace::Stop();
      samples += ReadTrace(file.Contents()).samples.size();
    }
    over = true;
    wg.Wait();
    EXPECT_GT(samples, 0u);
  });
}

}  // namespace
}  // namespace gump
