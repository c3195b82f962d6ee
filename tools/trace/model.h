// The content of a trace: the states of each goroutine and each P over time,
// the wake-ups between goroutines, and how long goroutines waited for each
// reason.
#ifndef TOOLS_TRACE_MODEL_H_
#define TOOLS_TRACE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/trace/format.h"
#include "tools/trace/order.h"
#include "tools/trace/reader.h"

namespace trace_tool {

// Indices into the tables of the model. The first entry of each table is empty.
using TextId = uint32_t;
using StackId = uint32_t;
using WhyId = uint32_t;

struct ModelFrame {
  TextId function = 0, file = 0;
  uint64_t line = 0;
  bool operator==(const ModelFrame&) const = default;
};

// Why a goroutine left its P, and where it was.
struct Why {
  TextId reason = 0;
  StackId stack = 0;
  bool operator==(const Why&) const = default;
};

// From ns on the goroutine is in this state. kNone ends its life.
struct GChange {
  uint64_t ns = 0;
  GoStatus state = GoStatus::kNone;
  // For a goroutine that runs or is in a call: its P, or kNoP. For one that
  // waits, and for a runnable one that has left its P by itself: a WhyId.
  uint32_t detail = 0;
};
inline constexpr uint32_t kNoP = ~uint32_t{0};

struct Goroutine {
  uint64_t id = 0;
  TextId name = 0;
  // If the goroutine starts with a lambda: the outermost function of the
  // program that is not one. It tells more than `name`, because all goroutines
  // that one function starts may have lambdas of that function.
  TextId role = 0;
  uint32_t maker = 0;  // an index into Model::gs plus 1; 0 if it is not known
  std::vector<GChange> changes;
  // Sums in ns, of the time from the first change to the end of the trace.
  uint64_t total[5] = {};   // by GoStatus
  uint64_t longest = 0;     // the longest wait, or time spent runnable
  uint64_t longest_at = 0;  // when it began
  WhyId longest_why = 0;    // 0: it was runnable, or the reason is not known
  bool longest_waiting = false;  // not runnable
  bool longest_open = false;     // until the end of the trace
};

// From ns on the P has no M, or has an M that looks for work, or runs a
// goroutine.
struct PChange {
  uint64_t ns = 0;
  uint32_t g = 0;  // kPIdle, kPSearches, or an index into Model::gs plus 2
  bool in_call = false;
};
inline constexpr uint32_t kPIdle = 0;
inline constexpr uint32_t kPSearches = 1;
inline constexpr uint32_t kPFirstG = 2;

struct Proc {
  uint64_t id = 0;
  std::vector<PChange> changes;
};

struct Wake {
  uint64_t ns = 0;
  uint32_t from_g = 0;     // an index plus 1; 0: no goroutine
  uint32_t from_p = kNoP;  // if there is no goroutine
  uint32_t to = 0;         // an index
};

struct Region {
  uint32_t g = 0;
  uint64_t begin = 0, end = 0;
  TextId name = 0;
};
struct Task {
  uint64_t id = 0, parent = 0, begin = 0, end = 0;
  TextId name = 0;
};
struct Log {
  uint64_t ns = 0;
  uint32_t g = 0;
  TextId text = 0;
};
// A sample of the CPU profile.
struct Sample {
  uint64_t ns = 0;
  uint32_t g = 0;  // an index plus 1; 0: no goroutine
  StackId stack = 0;
};
struct Pause {  // the world was stopped, or stopping
  uint64_t begin = 0, end = 0;
  TextId reason = 0;
};

// Durations of one kind.
struct Distribution {
  static constexpr size_t kBuckets = 48;
  uint64_t count = 0, sum = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
  uint64_t buckets[kBuckets] = {};  // bucket i has those below 2^i ns

  // Of returns the distribution of the values, and empties *values.
  static Distribution Of(std::vector<uint64_t>* values);
};
struct Blocking {
  TextId reason = 0;
  Distribution waits;
};

struct Model {
  int version = 0;
  uint64_t generations = 0, events = 0, batches = 0;
  uint64_t begin = 0, end = 0;  // ns
  uint64_t procs = 0;           // the largest GOMAXPROCS in the trace
  // The fault of the file, or "" for a whole and valid trace. The model has all
  // events before the fault.
  std::string problem;

  std::vector<std::string> texts;
  std::vector<std::vector<ModelFrame>> stacks;  // innermost first
  std::vector<Why> whys;
  std::vector<Goroutine> gs;
  std::vector<Proc> ps;
  std::vector<Wake> wakes;
  std::vector<Region> regions;
  std::vector<Task> tasks;
  std::vector<Log> logs;
  std::vector<Pause> pauses;
  std::vector<Sample> samples;  // by their times

  Distribution latency;            // from runnable to running
  std::vector<Blocking> blocking;  // by reason, the largest sum first

  // Where returns the function of the program where the goroutine was: the
  // innermost frame that is not of the library.
  absl::string_view Where(StackId stack) const;
};

// BuildModel reads a trace. Fails only if `bytes` has no trace at all. Other
// faults are in Model::problem.
absl::StatusOr<Model> BuildModel(absl::string_view bytes);

}  // namespace trace_tool

#endif  // TOOLS_TRACE_MODEL_H_
