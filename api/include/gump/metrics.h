// Package metrics reads what the runtime counts and measures about itself.
//
//   metrics::Sample samples[] = {{"/sched/goroutines:goroutines", {}},
//                                {"/sched/latencies:seconds", {}}};
//   metrics::Read(absl::MakeSpan(samples));
//   std::printf("%d goroutines\n",
//               static_cast<int>(samples[0].value.Uint64()));
//   const metrics::Float64Histogram& h = samples[1].value.Histogram();
//   for (size_t i = 0; i < h.counts.size(); i++) {
//     if (h.counts[i] == 0) continue;
//     std::printf("%d waited for %g s or more, and less than %g s\n",
//                 static_cast<int>(h.counts[i]), h.buckets[i],
//                 h.buckets[i + 1]);
//   }
//
// A metric has a name, which ends with its unit: "/sched/latencies:seconds".
// Names, kinds and meanings are those of Go's runtime/metrics where Go has the
// metric. Those that only this library has begin with /gump/. docs/metrics.md
// lists all, and says which of Go's do not exist here, and why.
//
// A metric that is cumulative only grows, from the start of the process on. So
// a program takes the difference of two samples. A histogram that is cumulative
// has counts that only grow.
//
// To read metrics does not stop the world and needs no goroutine. Counts that
// are read at the same time need not add up, because the program goes on
// meanwhile. Latencies are measured for one in eight of the times that a
// goroutine becomes runnable, as in Go. Where that happens more often than once
// in 4 microseconds on a P, fewer are measured, and each stands for several.
//
// All functions may be called from goroutines and from plain threads, before
// Run, inside it and after it. None parks. The first call starts the runtime.
// In a child of fork they end the process, as all of the library does.
//
// Source: Go's runtime/metrics. The names of Prometheus() are those of
// client_golang.
#ifndef GUMP_METRICS_H_
#define GUMP_METRICS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::metrics {

// Kind tells what a Value holds.
enum class Kind : uint8_t {
  kBad,  // nothing: there is no metric of that name
  kUint64,
  kFloat64,
  kFloat64Histogram,
};

// Description describes a metric.
struct Description {
  // A path that begins with a slash, a colon, and the unit: "seconds",
  // "goroutines", "cpu-seconds". The unit of a histogram is that of its
  // buckets.
  std::string_view name;
  std::string_view description;  // in English
  Kind kind = Kind::kBad;
  // The value, or each count of the histogram, only grows.
  bool cumulative = false;
};

// All returns the descriptions of all metrics, sorted by name. They live as
// long as the process.
absl::Span<const Description> All();

// Float64Histogram is a distribution of values.
struct Float64Histogram {
  // counts[i] values were at least buckets[i] and less than buckets[i + 1].
  std::vector<uint64_t> counts;
  // The bounds, one more than counts, in ascending order. The first one is
  // minus infinity and the last one is infinity. They are the same for each
  // sample of a metric, and live as long as the process.
  absl::Span<const double> buckets;
};

// Value is the value of a metric when it was read. A copy shares nothing with
// the original. Not thread-safe.
class Value {
 public:
  // Kind tells which of the functions below may be called.
  [[nodiscard]] metrics::Kind Kind() const { return kind_; }
  // Uint64, Float64 and Histogram return the value. Each panics if the value is
  // of another kind: "called Uint64 on non-uint64 metric value". The histogram
  // belongs to the Value, and changes when the Value is read again.
  [[nodiscard]] uint64_t Uint64() const;
  [[nodiscard]] double Float64() const;
  [[nodiscard]] const Float64Histogram& Histogram() const;

 private:
  friend struct ValueWriter;

  metrics::Kind kind_ = metrics::Kind::kBad;
  uint64_t uint64_ = 0;
  double float64_ = 0;
  Float64Histogram histogram_;
};

// Sample is a metric to be read. The caller sets the name, which must live
// until Read returns, and Read sets the value.
struct Sample {
  std::string_view name;
  Value value;
};

// Read sets the value of each sample. If there is no metric of that name, the
// kind of the value is Kind::kBad. A histogram is read into the memory that the
// value already has, so to read the same samples again allocates nothing.
// Throws std::bad_alloc if there is no memory. Several threads may call it at
// the same time with different samples.
void Read(absl::Span<Sample> samples);

// Prometheus returns all metrics in Prometheus' text format, with the names of
// client_golang. There "/sched/latencies:seconds" is
// go_sched_latencies_seconds, and the name of a counter ends with _total. As
// there, each bucket of a histogram of times is about ten times as large as the
// one before, up to a second. The text also has client_golang's go_goroutines
// and go_threads. Throws std::bad_alloc if there is no memory.
std::string Prometheus();

}  // namespace gump::metrics

#pragma GCC visibility pop

#endif  // GUMP_METRICS_H_
