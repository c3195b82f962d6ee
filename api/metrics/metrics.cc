#include "gump/metrics.h"

#include "api/metrics/table.h"
#include "gump/panic.h"

namespace gump::metrics {

uint64_t Value::Uint64() const {
  if (kind_ != metrics::Kind::kUint64) {
    panic("called Uint64 on non-uint64 metric value");
  }
  return uint64_;
}

double Value::Float64() const {
  if (kind_ != metrics::Kind::kFloat64) {
    panic("called Float64 on non-float64 metric value");
  }
  return float64_;
}

const Float64Histogram& Value::Histogram() const {
  if (kind_ != metrics::Kind::kFloat64Histogram) {
    panic("called Histogram on non-Float64Histogram metric value");
  }
  return histogram_;
}

void Read(absl::Span<Sample> samples) {
  Figures figures;
  for (Sample& s : samples) {
    const size_t i = Find(s.name);
    if (i == All().size()) {
      ValueWriter::WriteBad(&s.value);
    } else {
      ValueWriter::Write(i, figures, &s.value);
    }
  }
}

}  // namespace gump::metrics
