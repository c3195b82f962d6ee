// The execution trace, as the scheduler sees it: the functions that it calls
// when a goroutine or a P changes its state while a trace is written. The
// format is Go's (internal/trace/tracev2), so that `go tool trace` reads it.
// trace.cc starts and stops traces, and explains the protocol.
#ifndef RUNTIME_DIAG_TRACE_H_
#define RUNTIME_DIAG_TRACE_H_

#include <cstdint>

#include "runtime/sched/g.h"
#include "runtime/sched/tracemark.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct M;
struct P;

// traceHint says what a change of a status must report to: a trace, a goroutine
// profile, or both. A bit is set at least while there is one. The functions
// below look at the generation again, and so does the profile at its number.
inline constexpr uint32_t kTraceHint = 1;
inline constexpr uint32_t kProfileHint = 2;
extern Atomic<uint32_t> traceHint __attribute__((visibility("hidden")));
// Only some models trace (tests/model/trace_model.cc). In the others, the load
// would add a point to every change of a status.
extern bool modelTraces;
GUMP_ALWAYS_INLINE uint32_t traceHints() {
  if (kModelBuild && !modelTraces) return 0;
  return traceHint.load(relaxed);
}
// mayTrace returns true while a trace may be written. Only then do the
// functions below do anything, except for traceStatus. profilesGoroutines
// (goroutine_profile.h) is the same for a profile.
GUMP_ALWAYS_INLINE bool mayTrace() {
  return GUMP_UNLIKELY((traceHints() & kTraceHint) != 0);
}
// isPlain tells whether casgstatus would only store the new status: gp has
// status oldval and no hidden bit, and no trace or profile is told. gp is the
// caller's. If oldval is kGwaiting or kGsyscall, the caller has a P, and
// scanners is 0. The paths of a switch then store the status themselves, and
// are so short that they save no registers. (It would stand beside casgstatus
// in proc.h, but no header of sched includes one of diag.)
[[nodiscard]] GUMP_ALWAYS_INLINE bool isPlain(const G* gp, uint32_t oldval) {
  // The models check casgstatus. Acquire as there.
  return !kModelBuild && traceHints() == 0 &&
         gp->atomicstatus.load(acquire) == oldval;
}

// The functions below write nothing if no trace is being written. Unless their
// comments say otherwise:
// On: any.  P: either.  Locks: none.  Parks: no.

// traceStatus is casgstatus with an event. It changes the status in any case.
void traceStatus(G* gp, uint32_t oldval, uint32_t newval);
// traceProcStart is called when this M has got pp, and traceProcStop when it is
// about to give it up.
// P: needed.
void traceProcStart(P* pp);
void traceProcStop(P* pp);
// traceTakeP is pcasstatus for a P in a system call, with an event: the P is
// taken from its M, perhaps by that M itself. Returns false if the CAS failed.
bool traceTakeP(P* pp, uint32_t newval);
// traceRegainP is traceTakeP for an M that comes back from its call. If no
// thread has taken pp meanwhile, the trace shows that the M never lost it.
bool traceRegainP(P* pp);
// traceMoveP is called when the M that stops the world continues with another
// P: first with begins false, then with begins true.
void traceMoveP(P* pp, bool begins);
// TraceTaking is the event of a P that presumeBlocked takes. The constructor
// runs before A4, and `taken` after it if the asker has won.
class TraceTaking {
 public:
  // untold: the trace learns nothing, because the P stays with the M (A3 has
  // failed), or was given back before and the M does not know it yet.
  TraceTaking(P* pp, M* mp, G* gp, bool untold);
  ~TraceTaking();
  TraceTaking(const TraceTaking&) = delete;
  TraceTaking& operator=(const TraceTaking&) = delete;
  void taken();

 private:
  P* const pp_;
  M* const mp_;
  M* self_ = nullptr;  // in a TraceScope, so that the generation stays
  uint64_t gen_ = 0;
  bool taken_ = false;
};
// traceLost is called on the thread that finds that its P was taken. m.locks >
// 0.
void traceLost();
// traceGiven is called on the thread that finds that its P was taken and given
// back. m.locks > 0.
// P: needed.
void traceGiven();
// traceStopBegins is called when the caller stops the world, and traceStopEnds
// when it has started the world again.
void traceStopBegins(const char* reason);
void traceStopEnds();
// traceProcs is called when the number of Ps has changed.
void traceProcs(int32_t n);
// traceProcStatus writes the status of a P that no thread changes now.
void traceProcStatus(P* pp);

// A CPU sample has at most kMostSampled frames. They take 512 bytes of the
// handler's stack.
inline constexpr uint32_t kMostSampled = 64;
// traceCpuSample writes a sample of the CPU profile: the n addresses of the
// interrupted stack, the innermost first, at most kMostSampled. `self` is the G
// of the thread, or nullptr. A thread without an M has no place in a trace, so
// its samples are only in the profile.
// On: any, in the handler of SIGPROF.  P: either.  Locks: none.  Parks: no.
void traceCpuSample(const G* self, const uintptr_t* pcs, uint32_t n);

// traceAdvanceDue returns true if the generation is to end: it has lasted for a
// second, or has many events. sysmon asks.
bool traceAdvanceDue(int64_t now);
// traceAdvance starts a goroutine that ends the generation.
// On: sysmon.  Locks: takes sched.lock.
void traceAdvance();
// traceMainEnds is called when the function of Run has returned, and what main
// owned has been destroyed. It waits until no goroutine changes the generation.
// No goroutine changes it again before traceMainBegins.
// On: the main goroutine.  P: needed.  Parks: yes.
void traceMainEnds();
void traceMainBegins();
// traceFromEnv starts the trace that GUMP_TRACE asks for, once in a process.
// The main goroutine calls it, and not Run before it, so that main has the
// number, the P and the thread that it would have without a trace.
// On: the main goroutine, before its function.  P: needed.  Parks: yes.
void traceFromEnv();
// traceForked ends the trace in a child of fork, and writes nothing.
// On: the child's only thread.
void traceForked();

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACE_H_
