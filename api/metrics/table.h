// The table of all metrics: what each is, and where its value comes from.
#ifndef API_METRICS_TABLE_H_
#define API_METRICS_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "gump/internal/linkname_metrics.h"
#include "gump/metrics.h"

namespace gump::metrics {

// Figures reads the groups of the runtime's figures that are asked for, each
// once.
class Figures {
 public:
  const rt::SchedMetrics& Sched() { return Get(&sched_, rt::readSchedMetrics); }
  const rt::CpuMetrics& Cpu() { return Get(&cpu_, rt::readCpuMetrics); }
  const rt::MemoryMetrics& Memory() {
    return Get(&memory_, rt::readMemoryMetrics);
  }
  const rt::EventMetrics& Events() {
    return Get(&events_, rt::readEventMetrics);
  }

 private:
  template <class T>
  static const T& Get(std::optional<T>* group, void (*read)(T*) noexcept) {
    if (!group->has_value()) read(&group->emplace());
    return **group;
  }

  std::optional<rt::SchedMetrics> sched_;
  std::optional<rt::CpuMetrics> cpu_;
  std::optional<rt::MemoryMetrics> memory_;
  std::optional<rt::EventMetrics> events_;
};

// Source tells where the value of a metric comes from. One member is set, or
// none, if the metric is a histogram that stays empty.
struct Source {
  uint64_t (*uint64)(Figures&) = nullptr;
  double (*float64)(Figures&) = nullptr;
  std::optional<rt::TimeHist> histogram;
};

// SourceOf returns the source of All()[i].
const Source& SourceOf(size_t i);
// Find returns the place of a name in All(), or All().size().
size_t Find(std::string_view name);

// ValueWriter sets Values.
struct ValueWriter {
  // Write sets the value of All()[i].
  static void Write(size_t i, Figures& figures, Value* v);
  static void WriteBad(Value* v) { v->kind_ = Kind::kBad; }
};

}  // namespace gump::metrics

#endif  // API_METRICS_TABLE_H_
