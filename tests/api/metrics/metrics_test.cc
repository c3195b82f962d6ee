// gump/metrics.h: names, kinds, and what the values mean. The claims are those
// of Go's tests: TestReadMetrics, TestReadMetricsConsistency,
// TestReadMetricsCumulative, TestReadMetricsSched, TestSchedPauseMetrics,
// TestMutexWaitTimeMetric (runtime/metrics_test.go, testprog/schedmetrics.go).
#include "gump/metrics.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/runtime/group.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using metrics::Description;
using metrics::Float64Histogram;
using metrics::Kind;
using metrics::Sample;
using metrics::Value;
using testing::Eventually;
using testing::RunWith;

Value Get(std::string_view name) {
  Sample s{name, {}};
  metrics::Read(absl::MakeSpan(&s, 1));
  return s.value;
}

uint64_t Number(std::string_view name) { return Get(name).Uint64(); }

uint64_t Sum(const Value& v) {
  uint64_t sum = 0;
  for (const uint64_t n : v.Histogram().counts) sum += n;
  return sum;
}

std::vector<Sample> AllSamples() {
  std::vector<Sample> samples;
  for (const Description& d : metrics::All()) samples.push_back({d.name, {}});
  return samples;
}

// This must be the first test: the runtime has not started.
TEST(MetricsTest, PlainThreadReadsBeforeThereIsARun) {
  std::vector<Sample> samples = AllSamples();
  metrics::Read(absl::MakeSpan(samples));
  for (const Sample& s : samples) EXPECT_NE(s.value.Kind(), Kind::kBad);
  EXPECT_GE(Number("/sched/gomaxprocs:threads"), 1u);
}

TEST(MetricsTest, AllIsSortedAndEachNameHasAUnit) {
  const std::regex valid("(/[a-z0-9-]+)+:[a-z-]+");
  std::string last;
  for (const Description& d : metrics::All()) {
    const std::string name(d.name);
    EXPECT_TRUE(std::regex_match(name, valid)) << name;
    EXPECT_LT(last, name);
    EXPECT_NE(d.kind, Kind::kBad) << name;
    ASSERT_FALSE(d.description.empty()) << name;
    EXPECT_EQ(d.description.back(), '.') << name;
    last = name;
  }
}

TEST(MetricsTest, EachValueHasTheKindOfItsDescription) {
  RunWith(2, [] {
    std::vector<Sample> samples = AllSamples();
    metrics::Read(absl::MakeSpan(samples));
    for (size_t i = 0; i < samples.size(); i++) {
      EXPECT_EQ(samples[i].value.Kind(), metrics::All()[i].kind)
          << samples[i].name;
    }
  });
}

TEST(MetricsTest, UnknownNameGivesAValueOfNoKind) {
  const char* const names[] = {"",
                               "/",
                               "/sched/gomaxprocs",
                               "/sched/gomaxprocs:thread",
                               "/gc/heap/live:bytes",
                               "~"};
  for (const char* name : names) {
    EXPECT_EQ(Get(name).Kind(), Kind::kBad) << name;
  }
  // A value that was good before becomes bad.
  Sample s{"/sched/gomaxprocs:threads", {}};
  metrics::Read(absl::MakeSpan(&s, 1));
  EXPECT_EQ(s.value.Kind(), Kind::kUint64);
  s.name = "/sched/gomaxprocs:bytes";
  metrics::Read(absl::MakeSpan(&s, 1));
  EXPECT_EQ(s.value.Kind(), Kind::kBad);
  metrics::Read({});  // reads nothing
}

template <class F>
std::string PanicOf(F f) {
  try {
    f();
  } catch (const PanicError& e) {
    return e.what();
  }
  return "none";
}

TEST(MetricsTest, ValueOfAnotherKindPanics) {
  const Value bad;
  const Value number = Get("/sched/gomaxprocs:threads");
  EXPECT_EQ(PanicOf([&] { (void)bad.Uint64(); }),
            "called Uint64 on non-uint64 metric value");
  EXPECT_EQ(PanicOf([&] { (void)number.Float64(); }),
            "called Float64 on non-float64 metric value");
  EXPECT_EQ(PanicOf([&] { (void)number.Histogram(); }),
            "called Histogram on non-Float64Histogram metric value");
  EXPECT_EQ(PanicOf([&] { (void)number.Uint64(); }), "none");
}

TEST(MetricsTest, BoundsOfHistogramsAreThoseOfGo) {
  const Value v = Get("/sched/latencies:seconds");
  const Float64Histogram& h = v.Histogram();
  ASSERT_EQ(h.counts.size(), 162u);
  ASSERT_EQ(h.buckets.size(), 163u);
  EXPECT_EQ(h.buckets[0], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(h.buckets[1], 0);
  EXPECT_EQ(h.buckets[2], 64e-9);
  EXPECT_EQ(h.buckets[9], 512e-9);
  EXPECT_EQ(h.buckets[161], static_cast<double>(uint64_t{1} << 47) / 1e9);
  EXPECT_EQ(h.buckets[162], std::numeric_limits<double>::infinity());
  for (size_t i = 1; i < h.buckets.size(); i++) {
    EXPECT_LT(h.buckets[i - 1], h.buckets[i]);
  }
}

TEST(MetricsTest, ReadingAgainUsesTheSameMemory) {
  Sample s{"/sched/latencies:seconds", {}};
  metrics::Read(absl::MakeSpan(&s, 1));
  const uint64_t* counts = s.value.Histogram().counts.data();
  const double* bounds = s.value.Histogram().buckets.data();
  metrics::Read(absl::MakeSpan(&s, 1));
  EXPECT_EQ(s.value.Histogram().counts.data(), counts);
  EXPECT_EQ(s.value.Histogram().buckets.data(), bounds);
  const Value copy = s.value;
  EXPECT_NE(copy.Histogram().counts.data(), counts);
}

TEST(MetricsTest, FiguresAgreeWithThoseOfTheRuntime) {
  RunWith(3, [] {
    EXPECT_EQ(Number("/sched/gomaxprocs:threads"), 3u);
    EXPECT_EQ(Number("/gc/stack/starting-size:bytes") % 1024, 0u);
    EXPECT_TRUE(Eventually([] {
      return Number("/sched/goroutines:goroutines") ==
             static_cast<uint64_t>(runtime::NumGoroutine());
    }));
    const debug::SchedStats s = debug::ReadSchedStats();
    EXPECT_EQ(Number("/gc/cycles/total:gc-cycles"), s.reclaim_cycles);
    EXPECT_GE(Number("/sched/threads/total:threads"), 2u);
    const uint64_t forced = Number("/gc/cycles/forced:gc-cycles");
    runtime::GC();
    EXPECT_EQ(Number("/gc/cycles/forced:gc-cycles"), forced + 1);
  });
}

TEST(MetricsTest, ClassesAddUpToTheTotals) {
  RunWith(2, [] {
    Sample s[] = {{"/memory/classes/total:bytes", {}},
                  {"/memory/classes/heap/stacks:bytes", {}},
                  {"/memory/classes/metadata/other:bytes", {}},
                  {"/memory/classes/os-stacks:bytes", {}},
                  {"/cpu/classes/total:cpu-seconds", {}},
                  {"/cpu/classes/idle:cpu-seconds", {}},
                  {"/cpu/classes/user:cpu-seconds", {}},
                  {"/gc/cycles/total:gc-cycles", {}},
                  {"/gc/cycles/automatic:gc-cycles", {}},
                  {"/gc/cycles/forced:gc-cycles", {}}};
    metrics::Read(absl::MakeSpan(s));
    EXPECT_EQ(s[0].value.Uint64(),
              s[1].value.Uint64() + s[2].value.Uint64() + s[3].value.Uint64());
    EXPECT_NEAR(s[4].value.Float64(),
                s[5].value.Float64() + s[6].value.Float64(), 1e-6);
    EXPECT_GT(s[4].value.Float64(), 0);
    EXPECT_EQ(s[7].value.Uint64(), s[8].value.Uint64() + s[9].value.Uint64());
  });
}

TEST(MetricsTest, IdlePsAreIdleAndBusyOnesAreNot) {
  RunWith(2, [] {
    Sample s[] = {{"/cpu/classes/total:cpu-seconds", {}},
                  {"/cpu/classes/idle:cpu-seconds", {}}};
    const auto read = [&s] {
      metrics::Read(absl::MakeSpan(s));
      return std::pair(s[0].value.Float64(), s[1].value.Float64());
    };
    const auto [total0, idle0] = read();
    time::Sleep(absl::Milliseconds(50));
    const auto [total1, idle1] = read();
    EXPECT_GE(total1 - total0, 0.1);  // two Ps
    EXPECT_GE(idle1 - idle0, 0.05) << "at least the other P was idle";
    // This goroutine runs, so one P at most is idle.
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (std::chrono::steady_clock::now() < end) {
    }
    const auto [total2, idle2] = read();
    EXPECT_GE(total2 - total1, 0.1);
    EXPECT_LE(idle2 - idle1, (total2 - total1) * 0.75);
  });
}

class MetricsSchedTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(MetricsSchedTest);

TEST_P(MetricsSchedTest, CreatedGrowsByEachGoroutine) {
  Run([] {
    for (const int n : {1, 7, 16, 100, 1000}) {
      const uint64_t before = Number("/sched/goroutines-created:goroutines");
      sync::WaitGroup wg;
      for (int i = 0; i < n; i++) wg.Go([] {});
      wg.Wait();
      EXPECT_EQ(Number("/sched/goroutines-created:goroutines"),
                before + static_cast<uint64_t>(n));
    }
    // A plain thread counts what it starts, and not itself.
    const uint64_t before = Number("/sched/goroutines-created:goroutines");
    sync::WaitGroup wg;
    std::thread t([&wg] {
      for (int i = 0; i < 5; i++) wg.Go([] {});
    });
    blocking([&t] { t.join(); });
    wg.Wait();
    EXPECT_EQ(Number("/sched/goroutines-created:goroutines"), before + 5);
  });
}

TEST_P(MetricsSchedTest, WaitingGoroutinesAreCounted) {
  Run([] {
    constexpr uint64_t kWaiting = 1000;
    auto stop = make_chan<int>();
    sync::WaitGroup wg;
    for (uint64_t i = 0; i < kWaiting; i++) {
      wg.Go([=] { (void)stop.Recv(); });
    }
    EXPECT_TRUE(Eventually([] {
      return Number("/sched/goroutines/waiting:goroutines") >= kWaiting;
    }));
    EXPECT_LE(Number("/sched/goroutines/waiting:goroutines"), kWaiting + 20);
    EXPECT_GE(Number("/sched/goroutines:goroutines"), kWaiting + 1);
    stop.Close();
    wg.Wait();
  });
}

TEST_P(MetricsSchedTest, ReadStopsNoWorld) {
  Run([] {
    constexpr uint64_t kReads = 100;
    std::vector<Sample> samples = AllSamples();
    const uint64_t before = debug::ReadSchedStats().world_stops;
    for (uint64_t i = 0; i < kReads; i++)
      metrics::Read(absl::MakeSpan(samples));
    // There may be one for another reason.
    EXPECT_LT(debug::ReadSchedStats().world_stops - before, kReads);
  });
}

TEST_P(MetricsSchedTest, RunningAndRunnableGoroutinesAreCounted) {
  Run([] {
    constexpr uint64_t kCount = 10;
    const auto procs = static_cast<uint64_t>(GetParam());
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (uint64_t i = 0; i < kCount; i++) {
      wg.Go([&stop] {
        while (!stop) {
        }
      });
    }
    EXPECT_TRUE(Eventually([procs] {
      Sample s[] = {{"/sched/goroutines/running:goroutines", {}},
                    {"/sched/goroutines/runnable:goroutines", {}}};
      metrics::Read(absl::MakeSpan(s));
      EXPECT_LE(s[0].value.Uint64(), procs);
      EXPECT_LE(s[1].value.Uint64(), kCount + 5);
      return s[0].value.Uint64() == procs &&
             s[1].value.Uint64() >= kCount + 1 - procs;
    }));
    stop = true;
    wg.Wait();
  });
}

TEST_P(MetricsSchedTest, GoroutinesThatWaitForRoomInTheirGroupAreRunnable) {
  Run([] {
    constexpr int kCount = 10;
    runtime::Group group("full", {.max_procs = 1});
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < kCount; i++) {
      wg.Add(1);
      go(GoOptions{.group = &group}, [&] {
        while (!stop) {
        }
        wg.Done();
      });
    }
    EXPECT_TRUE(Eventually([] {
      return Number("/sched/goroutines/runnable:goroutines") >= kCount - 1;
    }));
    stop = true;
    wg.Wait();
  });
}

TEST_P(MetricsSchedTest, GoroutinesInCallsAreNotInGo) {
  Run([] {
    constexpr uint64_t kCount = 5;
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    sync::WaitGroup wg;
    for (uint64_t i = 0; i < 2 * kCount; i++) {
      const bool declared = i < kCount;
      wg.Go([declared, fd = fds[0]] {
        char c;
        if (declared) {
          blocking([&] { (void)!read(fd, &c, 1); });
        } else {
          (void)!read(fd, &c, 1);
        }
      });
    }
    // The undeclared ones follow when sysmon, or a stop, finds them asleep.
    EXPECT_TRUE(Eventually([] {
      return Number("/sched/goroutines/not-in-go:goroutines") >= 2 * kCount;
    }));
    EXPECT_LE(Number("/sched/goroutines/not-in-go:goroutines"), 2 * kCount + 1);
    close(fds[1]);
    wg.Wait();
    close(fds[0]);
    EXPECT_TRUE(Eventually(
        [] { return Number("/sched/goroutines/not-in-go:goroutines") == 0; }));
  });
}

TEST_P(MetricsSchedTest, LatenciesAreMeasured) {
  Run([] {
    const uint64_t before = Sum(Get("/sched/latencies:seconds"));
    sync::WaitGroup wg;
    for (int i = 0; i < 100; i++) {
      wg.Go([] {
        for (int k = 0; k < 100; k++) runtime::Gosched();
      });
    }
    wg.Wait();
    const Value v = Get("/sched/latencies:seconds");
    EXPECT_GE(Sum(v) - before, 10'000u / 8 / 2);
    EXPECT_LE(Sum(v) - before, 20'000u / 8 + 2000);
    EXPECT_EQ(v.Histogram().counts.front(), 0u) << "no time is negative";
  });
}

TEST_P(MetricsSchedTest, StopsOfTheWorldAreMeasured) {
  Run([] {
    const auto sum = [](std::string_view name) { return Sum(Get(name)); };
    const uint64_t stopping = sum("/sched/pauses/stopping/other:seconds");
    const uint64_t total = sum("/sched/pauses/total/other:seconds");
    const int n = GetParam();
    runtime::GOMAXPROCS(n + 1);
    runtime::GOMAXPROCS(n);
    (void)runtime::Stack(/*all=*/true);
    EXPECT_GE(sum("/sched/pauses/stopping/other:seconds"), stopping + 3);
    EXPECT_GE(sum("/sched/pauses/total/other:seconds"), total + 3);
    runtime::GC();
    EXPECT_EQ(sum("/sched/pauses/stopping/gc:seconds"), 0u);
    EXPECT_EQ(sum("/sched/pauses/total/gc:seconds"), 0u);
    EXPECT_EQ(sum("/gc/pauses:seconds"), 0u);
  });
}

TEST_P(MetricsSchedTest, ReadingDoesNotStopTheWorld) {
  Run([] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&stop] {
        while (!stop) runtime::Gosched();
      });
    }
    const uint64_t stops = debug::ReadSchedStats().world_stops;
    std::vector<Sample> samples = AllSamples();
    for (int i = 0; i < 100; i++) {
      metrics::Read(absl::MakeSpan(samples));
      (void)metrics::Prometheus();
    }
    EXPECT_EQ(debug::ReadSchedStats().world_stops, stops);
    stop = true;
    wg.Wait();
  });
}

// Everything that the runtime counts goes on meanwhile.
TEST_P(MetricsSchedTest, CumulativeMetricsNeverDecrease) {
  Run([] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    sync::Mutex mu;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        while (!stop) {
          mu.Lock();
          runtime::Gosched();
          mu.Unlock();
          sync::WaitGroup inner;
          for (int k = 0; k < 20; k++) inner.Go([] {});
          inner.Wait();
          time::Sleep(absl::Microseconds(10));
        }
      });
    }
    const auto reader = [&stop] {
      std::vector<Sample> last = AllSamples();
      metrics::Read(absl::MakeSpan(last));
      std::vector<Sample> now = AllSamples();
      while (!stop) {
        metrics::Read(absl::MakeSpan(now));
        for (size_t i = 0; i < now.size(); i++) {
          const Description& d = metrics::All()[i];
          if (!d.cumulative) continue;
          const Value& a = last[i].value;
          const Value& b = now[i].value;
          if (d.kind == Kind::kUint64) {
            EXPECT_LE(a.Uint64(), b.Uint64()) << d.name;
          } else if (d.kind == Kind::kFloat64) {
            EXPECT_LE(a.Float64(), b.Float64()) << d.name;
          } else {
            for (size_t k = 0; k < a.Histogram().counts.size(); k++) {
              EXPECT_LE(a.Histogram().counts[k], b.Histogram().counts[k])
                  << d.name;
            }
          }
        }
        last.swap(now);
        runtime::Gosched();
      }
    };
    wg.Go(reader);
    std::thread plain(reader);
    for (int i = 0; i < 20; i++) {
      runtime::GOMAXPROCS(1 + (GetParam() + i) % 8);
      runtime::SetFinalizer([] {});
      if (i % 5 == 0) runtime::GC();
      time::Sleep(absl::Milliseconds(1));
    }
    stop = true;
    wg.Wait();
    blocking([&plain] { plain.join(); });
  });
}

TEST(MetricsTest, WaitsForMutexesAreMeasured) {
  RunWith(2, [] {
    const double before = Get("/sync/mutex/wait/total:seconds").Float64();
    sync::Mutex mu;
    mu.Lock();
    // A plain thread is measured each time.
    std::thread plain([&mu] {
      mu.Lock();
      mu.Unlock();
    });
    time::Sleep(absl::Milliseconds(20));
    mu.Unlock();
    blocking([&plain] { plain.join(); });
    // The thread may have come late, so this is not certain, but soon true.
    EXPECT_TRUE(Eventually([&] {
      mu.Lock();
      std::thread again([&mu] {
        mu.Lock();
        mu.Unlock();
      });
      time::Sleep(absl::Milliseconds(20));
      mu.Unlock();
      blocking([&again] { again.join(); });
      return Get("/sync/mutex/wait/total:seconds").Float64() - before >= 0.01;
    }));
  });
}

TEST(MetricsTest, FinalizersAreCounted) {
  RunWith(2, [] {
    const uint64_t queued = Number("/gc/finalizers/queued:finalizers");
    const uint64_t executed = Number("/gc/finalizers/executed:finalizers");
    for (int i = 0; i < 3; i++) runtime::SetFinalizer([] {});
    EXPECT_EQ(Number("/gc/finalizers/queued:finalizers"), queued + 3);
    EXPECT_TRUE(Eventually([=] {
      return Number("/gc/finalizers/executed:finalizers") == executed + 3;
    }));
  });
}

TEST(MetricsTest, TimersAndWaitersOfThePollerAreCounted) {
  RunWith(2, [] {
    const uint64_t before = Number("/gump/timers/pending:timers");
    std::vector<time::Timer> timers;
    for (int i = 0; i < 10; i++) {
      timers.push_back(time::AfterFunc(absl::Hours(1), [] {}));
    }
    EXPECT_EQ(Number("/gump/timers/pending:timers"), before + 10);
    for (time::Timer& t : timers) t.Stop();
    EXPECT_EQ(Number("/gump/timers/pending:timers"), before);

    auto pipe = net::Pipe();
    ASSERT_TRUE(pipe.ok());
    sync::WaitGroup wg;
    wg.Go([&] {
      char c;
      (void)pipe->first.Read(absl::MakeSpan(&c, 1));
    });
    EXPECT_TRUE(Eventually(
        [] { return Number("/gump/netpoll/waiting:goroutines") == 1; }));
    const uint64_t readied = Number("/gump/netpoll/readied:goroutines");
    (void)pipe->second.Write("x");
    wg.Wait();
    EXPECT_EQ(Number("/gump/netpoll/waiting:goroutines"), 0u);
    EXPECT_GE(Number("/gump/netpoll/readied:goroutines"), readied);
    (void)pipe->first.Close();
    (void)pipe->second.Close();
  });
}

TEST(MetricsTest, StacksAreCounted) {
  RunWith(1, [] {
    const uint64_t made = Number("/gump/stacks/made:stacks");
    auto stop = make_chan<int>();
    sync::WaitGroup wg;
    for (int i = 0; i < 2000; i++) {
      wg.Go([=] { (void)stop.Recv(); });
    }
    EXPECT_TRUE(Eventually(
        [] { return Number("/sched/goroutines/waiting:goroutines") >= 2000; }));
    EXPECT_GE(Number("/gump/stacks/made:stacks"), 2000u);
    EXPECT_GE(Number("/gump/stacks/made:stacks"), made);
    EXPECT_GE(Number("/gump/goroutines/cells:cells"), 2000u);
    EXPECT_GE(Number("/memory/classes/heap/stacks:bytes"),
              2000 * Number("/gc/stack/starting-size:bytes"));
    const uint64_t free = Number("/gump/stacks/free:stacks");
    stop.Close();
    wg.Wait();
    runtime::GC();  // takes those that Ps have cached
    EXPECT_TRUE(Eventually(
        [free] { return Number("/gump/stacks/free:stacks") >= free + 1900; }));
  });
}

// ---- Prometheus -------------------------------------------------------------

struct Exposition {
  std::map<std::string, std::string> types;
  std::map<std::string, double> samples;  // by name with labels
};

// Parse checks the form of the text.
Exposition Parse(const std::string& text) {
  Exposition e;
  const std::regex help("# HELP ([a-z_]+) [^\n]+");
  const std::regex type("# TYPE ([a-z_]+) (counter|gauge|histogram)");
  const std::regex sample(
      "([a-z_]+)(\\{le=\"[^\"]+\"\\})? ([-+0-9.e]+|\\+Inf|NaN)");
  std::string helped;
  std::string name;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_NE(end, std::string::npos) << "the last line ends";
    if (end == std::string::npos) break;
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    std::smatch m;
    if (std::regex_match(line, m, help)) {
      helped = m[1];
    } else if (std::regex_match(line, m, type)) {
      name = m[1];
      EXPECT_EQ(name, helped) << line;
      EXPECT_EQ(e.types.count(name), 0u) << "twice: " << line;
      e.types[name] = m[2];
    } else if (std::regex_match(line, m, sample)) {
      EXPECT_EQ(m[1].str().rfind(name, 0), 0u) << line;
      EXPECT_EQ(e.samples.count(m[1].str() + m[2].str()), 0u) << line;
      e.samples[m[1].str() + m[2].str()] = std::stod(m[3].str());
    } else {
      ADD_FAILURE() << "not a line of the format: " << line;
    }
  }
  return e;
}

TEST(PrometheusTest, EveryMetricHasTheNameThatClientGolangGivesIt) {
  RunWith(2, [] {
    const Exposition e = Parse(metrics::Prometheus());
    // go_goroutines and go_threads are not in All.
    EXPECT_EQ(e.types.size(), metrics::All().size() + 2);
    const std::map<std::string, std::string> expected = {
        {"go_sched_gomaxprocs_threads", "gauge"},
        {"go_sched_goroutines_goroutines", "gauge"},
        {"go_sched_goroutines_created_goroutines_total", "counter"},
        {"go_sched_goroutines_not_in_go_goroutines", "gauge"},
        {"go_sched_latencies_seconds", "histogram"},
        {"go_sched_pauses_stopping_gc_seconds", "histogram"},
        {"go_sync_mutex_wait_total_seconds_total", "counter"},
        {"go_cpu_classes_idle_cpu_seconds_total", "counter"},
        {"go_gc_cycles_total_gc_cycles_total", "counter"},
        {"go_gump_netpoll_waiting_goroutines", "gauge"},
        {"go_goroutines", "gauge"},
        {"go_threads", "gauge"},
    };
    for (const auto& [name, type] : expected) {
      ASSERT_EQ(e.types.count(name), 1u) << name;
      EXPECT_EQ(e.types.at(name), type) << name;
    }
    EXPECT_EQ(e.samples.at("go_sched_gomaxprocs_threads"), 2);
  });
}

TEST(PrometheusTest, HistogramsHaveClientGolangsBucketsAndAreCumulative) {
  RunWith(2, [] {
    sync::WaitGroup wg;
    for (int i = 0; i < 1000; i++) wg.Go([] { runtime::Gosched(); });
    wg.Wait();
    const std::string text = metrics::Prometheus();
    const Exposition e = Parse(text);
    // These bounds are what client_golang prints for Go's histogram.
    const char* const bounds[] = {
        "6.399999999999999e-08", "6.399999999999999e-07",
        "7.167999999999999e-06", "8.191999999999999e-05",
        "0.0009175039999999999", "0.010485759999999998",
        "0.11744051199999998",   "+Inf"};
    double last = 0;
    size_t found = 0;
    for (const char* bound : bounds) {
      const std::string name = "go_sched_latencies_seconds_bucket{le=\"" +
                               std::string(bound) + "\"}";
      ASSERT_EQ(e.samples.count(name), 1u) << name << "\n" << text;
      EXPECT_GE(e.samples.at(name), last);
      last = e.samples.at(name);
      found++;
    }
    for (const auto& [name, value] : e.samples) {
      if (name.rfind("go_sched_latencies_seconds_bucket", 0) == 0) found--;
    }
    EXPECT_EQ(found, 0u) << "there are others";
    EXPECT_EQ(e.samples.at("go_sched_latencies_seconds_count"), last);
    EXPECT_GT(last, 0);
    EXPECT_GE(e.samples.at("go_sched_latencies_seconds_sum"), 0);
  });
}

// ---- At the edges of a process ----------------------------------------------

TEST(MetricsTest, PlainThreadReadsAfterRunHasReturned) {
  RunWith(2, [] {});
  EXPECT_EQ(Number("/sched/gomaxprocs:threads"), 2u);
  std::vector<Sample> samples = AllSamples();
  metrics::Read(absl::MakeSpan(samples));
  EXPECT_FALSE(metrics::Prometheus().empty());
}

TEST(MetricsTest, ReadingInAChildOfForkEndsItAndNeverHangs) {
  RunWith(2, [] {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(fds[1], STDERR_FILENO);
      close(fds[0]);
      close(fds[1]);
      (void)Number("/sched/gomaxprocs:threads");
      _exit(3);
    }
    close(fds[1]);
    std::string errors;
    char buf[512];
    for (ssize_t n; (n = read(fds[0], buf, sizeof(buf))) > 0;) {
      errors.append(buf, static_cast<size_t>(n));
    }
    close(fds[0]);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << status;
    EXPECT_EQ(
        errors.rfind("fatal error: use of goroutines in a child of fork", 0),
        0u)
        << errors;
  });
}

}  // namespace
}  // namespace gump
