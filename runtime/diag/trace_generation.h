// Generations of the execution trace: how one begins, and the steps that end
// it.
#ifndef RUNTIME_DIAG_TRACE_GENERATION_H_
#define RUNTIME_DIAG_TRACE_GENERATION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/diag/trace_buf.h"
#include "runtime/diag/trace_state.h"

namespace gump::rt {

// traceLastGeneration returns the number of the generation that has begun last,
// or 0.
// On: any.  P: either.  Locks: traceSema is held.  Parks: no.
[[nodiscard]] uint64_t traceLastGeneration();

// The holder of traceSema takes these steps, in this order. The models take
// them without it.

// TraceUntraced is a goroutine without an event in the generation, and its
// status.
struct TraceUntraced {
  G* gp;
  uint64_t goid;
  uint64_t tid;
  TraceGo status;
};
// traceCollect returns the goroutines that have no event in generation gen.
// Throws std::bad_alloc.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: no.
std::vector<TraceUntraced> traceCollect(uint64_t gen);
// traceBeginGeneration makes gen the current one. With 0 the trace ends.
// On: any.  P: either.  Locks: worldsema is held, or the world is stopped.
// Parks: no.
void traceBeginGeneration(uint64_t gen);
// traceAwaitScopes returns when no M is in a TraceScope that began before. It
// spins, and then sleeps.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: no.
void traceAwaitScopes();
// traceTakeEvents returns the events of generation gen, which has ended, and
// the statuses of those goroutines in `untraced` that still have no event.
// On: user, or a foreign thread.  P: either.  Locks: takes noPLock.  Parks: no.
TraceBuf* traceTakeEvents(uint64_t gen,
                          const std::vector<TraceUntraced>& untraced);

// TraceHead is the first batch of a generation. It is made while m.locks > 0,
// so without malloc.
struct TraceHead {
  uint8_t bytes[48];  // 38 at most
  size_t size;

  void make(uint64_t gen, int64_t now);

 private:
  void number(uint64_t n) { size += putNumber(bytes + size, n); }
  void byte(TraceEv kind) { bytes[size++] = static_cast<uint8_t>(kind); }
};
// traceHead returns the head of generation gen, which has ended.
// On: any.  P: either.  Locks: traceSema is held.  Parks: no.
const TraceHead& traceHead(uint64_t gen);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACE_GENERATION_H_
