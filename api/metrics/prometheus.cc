// Metrics in the text format of Prometheus, as its client for Go writes them:
// the same names, the same buckets, the same bounds. So dashboards that were
// made for programs in Go work.
//
// Source: client_golang, prometheus/internal/go_runtime_metrics.go.
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "api/metrics/table.h"
#include "gump/metrics.h"

namespace gump::metrics {

namespace {

// AppendReplaced appends text, with '-' and '*' replaced by '_', and '/' by
// slash.
void AppendReplaced(std::string* out, std::string_view text,
                    std::string_view slash) {
  for (const char c : text) {
    if (c == '/') {
      *out += slash;
    } else {
      *out += c == '-' || c == '*' ? '_' : c;
    }
  }
}

// NameOf is the name of a metric in Prometheus.
std::string NameOf(const Description& d) {
  const size_t colon = d.name.find(':');
  std::string name = "go";
  AppendReplaced(&name, d.name.substr(0, colon), "_");
  name += '_';
  AppendReplaced(&name, d.name.substr(colon + 1), "_per_");
  if (d.cumulative && d.kind != Kind::kFloat64Histogram) name += "_total";
  return name;
}

// AppendNumber appends the shortest text that stands for x. Infinity is "+Inf".
void AppendNumber(std::string* out, double x) {
  if (std::isinf(x)) {
    *out += x > 0 ? "+Inf" : "-Inf";
    return;
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), x).ptr;
  out->append(text, end);
}

void AppendNumber(std::string* out, uint64_t n) { *out += std::to_string(n); }

void AppendHead(std::string* out, std::string_view name, std::string_view help,
                std::string_view source, std::string_view type) {
  // The descriptions have neither a backslash nor a newline in them, which
  // would have to be escaped.
  out->append("# HELP ").append(name).append(" ").append(help);
  if (!source.empty()) out->append(" Sourced from ").append(source).append(".");
  out->append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
}

template <class N>
void AppendSample(std::string* out, std::string_view name,
                  std::string_view labels, N value) {
  out->append(name).append(labels).append(" ");
  AppendNumber(out, value);
  *out += '\n';
}

// UpperBounds are the upper bounds of the buckets of times, exclusive. They
// begin with the first bound above 0 of the metric. Then follows each bound
// that is at least ten times the last one, up to a second. The last is
// infinity.
std::vector<double> UpperBounds(absl::Span<const double> buckets) {
  constexpr double kLargest = 1;  // second
  std::vector<double> bounds;
  double next = 0;
  for (const double b : buckets.subspan(2)) {  // after -Inf and 0
    if (b < next) continue;
    if (b > kLargest) break;
    bounds.push_back(b);
    next = 10 * b;
  }
  bounds.push_back(std::numeric_limits<double>::infinity());
  return bounds;
}

void AppendHistogram(std::string* out, const std::string& name,
                     const Float64Histogram& h) {
  const std::string bucket = name + "_bucket";
  const std::vector<double> bounds = UpperBounds(h.buckets);
  uint64_t count = 0;
  double sum = 0;
  size_t from = 0;  // the first count of the present bucket
  double low = 0;   // and its lower bound, as the client for Go has it
  for (const double bound : bounds) {
    uint64_t n = 0;
    for (; from < h.counts.size() && h.buckets[from + 1] <= bound; from++) {
      n += h.counts[from];
    }
    count += n;
    // The sum is not known. This is a lower bound.
    sum += low * static_cast<double>(n);
    low = bound;
    // Bounds are inclusive in Prometheus, and exclusive here.
    std::string label = "{le=\"";
    AppendNumber(&label, std::isinf(bound) ? bound : std::nextafter(bound, 0));
    AppendSample(out, bucket, label + "\"}", count);
  }
  AppendSample(out, name + "_sum", "", sum);
  AppendSample(out, name + "_count", "", count);
}

void AppendMetric(std::string* out, const Description& d, const Value& v) {
  const std::string name = NameOf(d);
  if (d.kind == Kind::kFloat64Histogram) {
    AppendHead(out, name, d.description, d.name, "histogram");
    AppendHistogram(out, name, v.Histogram());
    return;
  }
  AppendHead(out, name, d.description, d.name,
             d.cumulative ? "counter" : "gauge");
  if (d.kind == Kind::kUint64) {
    AppendSample(out, name, "", v.Uint64());
  } else {
    AppendSample(out, name, "", v.Float64());
  }
}

}  // namespace

std::string Prometheus() {
  std::string out;
  out.reserve(size_t{24} << 10);
  Figures figures;
  const absl::Span<const Description> all = All();
  Value v;
  for (size_t i = 0; i < all.size(); i++) {
    ValueWriter::Write(i, figures, &v);
    AppendMetric(&out, all[i], v);
  }
  AppendHead(&out, "go_goroutines",
             "Number of goroutines that currently exist.", "", "gauge");
  AppendSample(&out, "go_goroutines", "", figures.Sched().goroutines);
  AppendHead(&out, "go_threads", "Number of OS threads created.", "", "gauge");
  AppendSample(&out, "go_threads", "", figures.Sched().threads);
  return out;
}

}  // namespace gump::metrics
