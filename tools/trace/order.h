// Puts the events of a generation in order, and checks them.
//
// In the file, the events of one M are in their order. Between Ms the clock is
// only a hint. Sequence numbers of goroutines and Ps, and the states that an
// event needs, tell which event came first. Order follows the scheduler through
// the events. An event that is not possible yet waits for events of other Ms.
// An event that can never become possible is an error. The rules are those of
// Go's reader, so `go tool trace` opens a trace that Order accepts.
#ifndef TOOLS_TRACE_ORDER_H_
#define TOOLS_TRACE_ORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/trace/format.h"
#include "tools/trace/reader.h"

namespace trace_tool {

// An event in its place. m is its M, and p and g are the P and the goroutine
// that the M had before the event.
struct Event {
  Ev type = Ev::kNone;
  uint64_t ns = 0;  // never less than that of the event before
  uint64_t m = kNoId, p = kNoId, g = kNoId;
  std::array<uint64_t, kMaxArgs> args = {};
  size_t offset = 0;  // in the file
};

class Order {
 public:
  // Run calls `use` for each event of the generation, in order. The caller
  // passes the generations in their order, each once. If an event breaks a
  // rule, Run stops there and returns an error that names the generation, the
  // M, the event and its place in the file. The Order is of no use after that.
  absl::Status Run(const Generation& generation,
                   absl::FunctionRef<void(const Event&)> use);

 private:
  enum class Step { kDone, kWait, kError };
  enum class Must { kHave, kMay, kLack };

  struct GState {
    GoStatus status = GoStatus::kNone;
    uint64_t generation = 0;  // of seq
    uint64_t seq = 0;
  };
  struct PState {
    ProcStatus status = ProcStatus::kNone;
    uint64_t generation = 0;
    uint64_t seq = 0;
  };
  struct MState {
    uint64_t p = kNoId, g = kNoId;
  };
  // The events of one M that have not happened yet.
  struct Thread {
    uint64_t m;
    const std::vector<Batch>* batches;
    size_t batch = 0;  // of the cursor
    Cursor in{{}, 0};
    uint64_t ticks = 0;
    Event next;
  };
  struct Range {
    Ev begin;
    uint64_t kind;
    bool operator==(const Range&) const = default;
  };
  struct Region {
    uint64_t task;
    absl::string_view name;
    bool operator==(const Region&) const = default;
  };

  // Read reads t->next. Returns false at the end, or if it sets error_.
  bool Read(Thread* t);
  bool ReadEvent(Thread* t);
  // Try lets t->next happen if it is possible.
  Step Try(Thread* t);
  // Advance applies the rules of event_, whose M has the state *ms.
  Step Advance(MState* ms);
  bool RunOthers();
  absl::Status Stuck();
  absl::Status Broken(const Thread& t) const;
  std::string Explain(const Thread& t);
  std::string ExplainG(const GState* g, uint64_t id, GoStatus want,
                       uint64_t seq) const;
  std::string ExplainP(const PState* p, uint64_t id, uint64_t seq,
                       absl::string_view want) const;

  Step Fail(std::string what);
  bool Needs(const MState& ms, Must p, Must g);
  GState* CurrentG(const MState& ms, GoStatus want);
  void Destroy(uint64_t id);
  GState* FindG(uint64_t id);
  PState* FindP(uint64_t id);
  bool Follows(const GState& g, uint64_t seq) const;
  bool Follows(const PState& p, uint64_t seq) const;

  Step ProcStatusEvent(MState* ms);
  Step ProcStart(MState* ms);
  Step ProcStop(MState* ms);
  Step ProcSteal(MState* ms);
  Step GoStatusEvent(MState* ms);
  Step GoSyscallStatus(MState* ms, uint64_t id, uint64_t m);
  Step GoCreate(MState* ms);
  Step GoCreateSyscall(MState* ms);
  Step GoDestroySyscall(MState* ms);
  Step GoStart(MState* ms);
  Step GoStopping(MState* ms);
  Step GoUnblock();
  Step GoSwitch(MState* ms);
  Step GoSyscallBegin(MState* ms);
  Step GoSyscallEnd(MState* ms);
  Step GoSyscallEndBlocked(MState* ms);
  Step RangeBegin(std::vector<Range>* ranges, uint64_t kind);
  Step RangeEnd(std::vector<Range>* ranges, Ev begin);
  Step RangeActive(std::vector<Range>* ranges, Ev begin);
  Step RangeEvent(MState* ms);
  Step Gc(MState* ms);
  Step TaskOrRegion(MState* ms);

  const Generation* generation_ = nullptr;
  uint64_t first_ = 0;  // the first generation
  uint64_t last_ns_ = 0;
  Event* event_ = nullptr;  // the one that is tried
  std::string error_;
  std::vector<Thread> threads_;
  std::vector<size_t> heap_;  // of threads_, by the time of the next event

  absl::flat_hash_map<uint64_t, GState> gs_;
  absl::flat_hash_map<uint64_t, PState> ps_;
  absl::flat_hash_map<uint64_t, MState> ms_;
  absl::flat_hash_map<uint64_t, std::vector<Range>> g_ranges_, p_ranges_;
  absl::flat_hash_map<uint64_t, std::vector<Region>> regions_;
  absl::flat_hash_map<uint64_t, bool> tasks_;  // the active ones
  enum class GcState { kUnknown, kOff, kOn } gc_ = GcState::kUnknown;
  uint64_t gc_seq_ = 0;
};

}  // namespace trace_tool

#endif  // TOOLS_TRACE_ORDER_H_
