// CPU samples in the execution trace, as in Go (runtime/tracecpu.go). While a
// trace is written and a CPU profile runs, each sample goes into both.
//
// Each M has a buffer of samples for each parity of the generation. The handler
// of SIGPROF alone fills the buffer of its own M, and the thread that ends the
// generation takes it. So handlers share nothing but the table of stacks.
//
// The handler may have interrupted any code of its thread, even a TraceScope or
// the code that fills the M's buffer of events. That is safe:
//
//  (S1) The handler uses no state that the interrupted code may be changing. It
//       does not enter a TraceScope, because the interrupted code may be about
//       to store the counter and the time of one. It writes to no buffer of
//       events. No second handler of SIGPROF interrupts it ((I4) of signal.cc).
//
//  (S2) The handler takes memory from the kernel, as all of trace_buf.h does.
//       The table of stacks and the lists have no lock. To them, the
//       interrupted code and the handler are like two threads.
//
//  (S3) The generation does not end while the handler writes to it. The handler
//       stores `writing` unless it is set, and then loads the generation, as
//       enterScope does. If `writing` was set, the interrupted TraceScope keeps
//       it until after the handler. That scope may have loaded an earlier
//       generation than the handler does. The later generation ends after the
//       earlier one, so its end waits for `writing`, too.
//
//       If the handler has set `writing`, it also clears it. The interrupted
//       code may have counted its TraceScope and not yet set `writing`. Then
//       that code loads the generation only after it has set `writing` again.
//
//  (S4) The M of a G that the handler finds belongs to this thread ((H3) of
//       cpuprof.cc), and is on allm. So the thread that ends the generation
//       looks at it.
//
// In a generation, samples have no place among the events. Readers find the
// place by the time of the sample. A sample in the middle of a switch may name
// the goroutine that runs next, a moment before the event of its start.
//
// Rejected: Go has one buffer for all threads, with a lock on which handlers
// spin, and a goroutine that empties the buffer ten times a second. The holder
// of the lock may have no processor, and that goroutine would be in each trace.
#include "runtime/diag/trace.h"
#include "runtime/diag/trace_buf.h"
#include "runtime/diag/trace_state.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"

namespace gump::rt {

namespace {

// roomForSample returns the buffer of mp with room for a sample, or nullptr if
// the kernel has no memory. Then the sample is lost. Readers need every event
// of a generation, but not every sample.
// On: a handler, on the thread of mp, with `writing` set.  P: either.
// Locks: none.  Parks: no.
TraceBuf* roomForSample(M* mp, uint64_t gen) {
  TraceBuf** slot = &mp->trace.samples[gen % 2];
  TraceBuf* b = *slot;
  if (b != nullptr && b->pos + TraceBuf::kMostEvent < TraceBuf::kSize) return b;
  if (b != nullptr) {
    traceState.full[gen % 2].push(b);
    traceState.bytes.add(b->pos, relaxed);  // a hint
  }
  *slot = b = newTraceBuf();
  if (b == nullptr) return nullptr;
  b->begin(gen, kNoTraceThread, traceState.now(gen));
  b->byte(static_cast<uint8_t>(TraceEv::kCPUSamples));
  return b;
}

// sampleStack returns the id of a stack, or 0 if the kernel has no memory.
// On: a handler, with `writing` set.  P: either.  Locks: none.  Parks: no.
uint64_t sampleStack(uint64_t gen, const uintptr_t* pcs, uint32_t n) {
  uintptr_t whole[1 + kMostSampled];
  whole[0] = kTraceWholeStack;
  for (uint32_t i = 0; i < n; i++) whole[1 + i] = pcs[i];
  const TraceNode* node =
      traceState.stacks[gen % 2].put(whole, (1 + n) * sizeof(whole[0]));
  return node == nullptr ? 0 : node->id;
}

// writeSample writes a sample of the interrupted goroutine gp, or of none if gp
// is nullptr.
// On: a handler, on the thread of mp, with `writing` set.  P: either.
// Locks: none.  Parks: no.
void writeSample(uint64_t gen, M* mp, const G* gp, const uintptr_t* pcs,
                 uint32_t n) {
  const uint64_t stack = sampleStack(gen, pcs, n);
  if (stack == 0) return;
  TraceBuf* b = roomForSample(mp, gen);
  if (b == nullptr) return;
  // The M may have lost its P to presumeBlocked without knowing it yet.
  const P* pp = mp->p;
  const bool has = pp != nullptr && pp->m.load(relaxed) == mp;  // our own store
  b->byte(static_cast<uint8_t>(TraceEv::kCPUSample));
  b->number(static_cast<uint64_t>(traceState.now(gen)));
  b->number(traceThread(mp));
  b->number(has ? static_cast<uint64_t>(pp->id) : kNoTraceProc);
  b->number(gp == nullptr ? 0 : traceGoid(gp->goid));
  b->number(stack);
}

}  // namespace

void traceCpuSample(const G* self, const uintptr_t* pcs, uint32_t n) {
  if (!mayTrace() || self == nullptr || self->m == nullptr) return;
  M* mp = self->m;
  const bool inScope = mp->trace.writing.load(relaxed);  // our own store
  if (!inScope) mp->trace.writing.store(true, relaxed);
  // The interrupted scope may not have come to its own barrier yet.
  asymmetricLight();
  // Acquire: pairs with traceBeginGeneration.
  if (const uint64_t gen = traceState.gen.load(acquire); gen != 0) {
    // On g0, the thread works for the goroutine that it runs, if there is one.
    const G* gp = self == &mp->g0 ? mp->curg.load(relaxed) : self;
    writeSample(gen, mp, gp, pcs, n);
  }
  // Release: pairs with traceAwaitScopes.
  if (!inScope) mp->trace.writing.store(false, release);
}

void traceTakeSamples(M* mp, uint64_t gen) {
  TraceBuf** slot = &mp->trace.samples[gen % 2];
  if (*slot != nullptr) traceState.full[gen % 2].push(*slot);
  *slot = nullptr;
}

}  // namespace gump::rt
