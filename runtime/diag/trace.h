// The execution trace, as the scheduler sees it: what it calls when a goroutine
// or a P changes its state while a trace is written. The format is Go's
// (internal/trace/tracev2), so that `go tool trace` reads it. trace.cc starts
// and stops traces, and explains the protocol.
#ifndef RUNTIME_DIAG_TRACE_H_
#define RUNTIME_DIAG_TRACE_H_

#include <cstdint>

#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct G;
struct M;
struct P;
struct TraceBuf;

// 1 while a trace may be written, else 0. A hint for the callers of the
// functions below. Each of them looks at the generation again.
extern Atomic<uint32_t> traceHint;
GUMP_ALWAYS_INLINE bool tracing() {
  return !kModelBuild && GUMP_UNLIKELY(traceHint.load(relaxed) != 0);
}

// TraceMark is what the trace knows of a G or a P: in which generation its
// status was last written, and how many of the events that carry a sequence
// number there have been since.
class TraceMark {
 public:
  // mark returns true if the caller must write the status, because it has not
  // been written in generation gen. The thread that owns the G or the P calls
  // this, and so may, for the generation before the current one, the thread
  // that ends that generation.
  bool mark(uint64_t gen);
  // marked returns true if the status has been written in gen, which is the
  // current generation or the one before.
  bool marked(uint64_t gen) const;
  // born is mark for a G that begins with an event of its own.
  void born(uint64_t gen);
  uint64_t next() { return ++seq_; }
  // peekNext returns what next will return after mark(gen). The caller may not
  // own the P yet, and uses the number only if it does later.
  uint64_t peekNext(uint64_t gen) const {
    return marked(gen) ? peek(seq_) + 1 : 1;
  }

 private:
  // The generation times 2, plus 1 if the status was also written in the
  // generation before; 0: in none. Relaxed: a G or P passes from owner to owner
  // with more than this word, and the thread that ends a generation reads it
  // after it has seen every M outside of its TraceScope.
  Atomic<uint64_t> word_;
  uint64_t seq_ = 0;
};

// TraceM is the trace's part of an M. Unless a remark says otherwise, only the
// thread of the M uses it, in a TraceScope.
struct TraceM {
  // The thread is in a TraceScope. Read by the thread that ends a generation.
  Atomic<bool> writing;
  uint32_t nested = 0;  // TraceScopes inside of the outermost one
  uint64_t gen = 0;     // of the outermost TraceScope
  // By parity of the generation. Once a generation has ended and the thread is
  // in no TraceScope, the buffer is the property of the thread that ends it.
  TraceBuf* buf[2] = {};
  // releasePreempted lets the goroutine run without a P, and in the trace it
  // waits for one.
  bool hidden = false;
  bool kept = false;       // it has its P back, which no thread had taken
  bool preempted = false;  // the goroutine that yields was asked to
  // The current goroutine switches straight to this one, which is current
  // already, although the other has not yet parked or yielded. The event of the
  // other comes first, so this one's is written with it. Meanwhile a TraceScope
  // is open.
  G* entering = nullptr;

  // The goroutine has lost its P to presumeBlocked: in the trace it is in a
  // system call, and this is the event by which that begins. The asker fills
  // this in before A4 of preempt_blocked.cc. The thread writes the event when
  // it next enters the runtime in the same generation. Otherwise the thread
  // that ends the generation does.
  struct Loss {
    Atomic<uint64_t> gen;  // 0: none
    int64_t time = 0;
    uint64_t pseq = 0;
    G* gp = nullptr;
    uint64_t goid = 0;
    int32_t p = 0;
    bool needsStatus = false;  // of the P
  };
  Loss loss;
};

// All of these do nothing if no trace is being written. Unless they say
// otherwise:
// On: any.  P: either.  Locks: none.  Parks: no.

// traceStatus is casgstatus with an event.
void traceStatus(G* gp, uint32_t oldval, uint32_t newval);
// traceProcStart is called when this M has got pp, and traceProcStop when it is
// about to give it up.
// P: needed.
void traceProcStart(P* pp);
void traceProcStop(P* pp);
// traceTakeP is pcasstatus for a P in a system call: the P is taken from its M,
// perhaps by that M itself. Returns false if the CAS failed.
bool traceTakeP(P* pp, uint32_t newval);
// traceRegainP is traceTakeP for the M that comes back from its call: if no
// thread has taken pp meanwhile, it was never lost.
bool traceRegainP(P* pp);
// traceMoveP is called when the M that stops the world continues with another
// P: first with begins false, then with begins true.
void traceMoveP(P* pp, bool begins);
// TraceTaking is used by presumeBlocked: before A4, and afterwards.
class TraceTaking {
 public:
  // given: the P was given back before, and the M does not know it yet.
  TraceTaking(P* pp, M* mp, G* gp, bool given);
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
// traceStop is called when the caller stops the world, and when it has started
// it again.
void traceStopBegins(const char* reason);
void traceStopEnds();
// traceProcs is called when the number of Ps has changed.
void traceProcs(int32_t n);
// traceProcStatus writes the status of a P that no thread changes now.
void traceProcStatus(P* pp);

// traceAdvanceDue tells sysmon that a generation is over.
bool traceAdvanceDue(int64_t now);
// traceAdvance starts a goroutine that ends the generation.
// On: sysmon.  Locks: takes sched.lock.
void traceAdvance();
// traceMainEnds is called when the function of Run has returned. It waits until
// no goroutine changes the generation, and lets none begin to before
// traceMainBegins.
// On: the main goroutine.  P: needed.  Parks: yes.
void traceMainEnds();
void traceMainBegins();
// traceFromEnv starts the trace that GUMP_TRACE asks for, once in a process. It
// is called here, and not before Run, so that main has the number, the P and the
// thread that it would have without a trace.
// On: the main goroutine, before its function.  P: needed.  Parks: yes.
void traceFromEnv();
// traceForked ends the trace in a child of fork, without a word into the file.
// On: the child's only thread.
void traceForked();

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACE_H_
