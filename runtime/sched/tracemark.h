// What the execution trace keeps in a G, an M and a P. runtime/diag/trace.h has
// the functions.
#ifndef RUNTIME_SCHED_TRACEMARK_H_
#define RUNTIME_SCHED_TRACEMARK_H_

#include <cstdint>

#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct G;
struct TraceBuf;

// TraceMark is what the trace knows of a G or a P: the generation in which its
// status was last written, and the last sequence number of its events there.
class TraceMark {
 public:
  // mark returns true if the caller must write the status, because it has not
  // been written in generation gen. The thread that owns the G or the P calls
  // this. The thread that ends a generation may call it too, for that
  // generation.
  bool mark(uint64_t gen) {
    return GUMP_UNLIKELY(word_.load(relaxed) >> 1 != gen) && markSlow(gen);
  }
  // marked returns true if the status has been written in gen, which is the
  // current generation or the one before.
  bool marked(uint64_t gen) const;
  // born marks a G that is created in gen. Its creation is an event of its own.
  void born(uint64_t gen);
  // next returns the next sequence number of generation gen. Only the thread
  // that owns the G or the P calls it. So mark does not touch the number: the
  // thread that ends a generation may be in mark while the owner is in the next
  // generation.
  uint64_t next(uint64_t gen) {
    if (seqGen_ != gen) {
      seqGen_ = gen;
      seq_ = 0;
    }
    return ++seq_;
  }
  // peekNext returns what next will return. The caller may not own the P yet,
  // and uses the number only if it does later.
  uint64_t peekNext(uint64_t gen) const {
    return peek(seqGen_) == gen ? peek(seq_) + 1 : 1;
  }

 private:
  bool markSlow(uint64_t gen);  // mark, if the word has another generation

  // The generation times 2, plus 1 if the status was also written in the
  // generation before; 0 if it was written in none. Relaxed is enough: a G or P
  // passes from owner to owner by stronger operations than on this word. The
  // thread that ends a generation reads it after it has seen every M outside of
  // its TraceScope.
  Atomic<uint64_t> word_;
  uint64_t seqGen_ = 0;  // the generation of seq_
  uint64_t seq_ = 0;
};

// TraceM is the trace's part of an M. Unless a comment says otherwise, only the
// thread of the M uses it, in a TraceScope.
struct TraceM {
  // The thread is in a TraceScope. Read by the thread that ends a generation.
  Atomic<bool> writing;
  uint32_t nested = 0;  // TraceScopes inside of the outermost one
  uint64_t gen = 0;     // of the outermost TraceScope
  int64_t now = 0;      // the time of all its events; 0: not read yet
  // By parity of the generation. Once a generation has ended and the thread is
  // in no TraceScope, the buffer belongs to the thread that ends the
  // generation.
  TraceBuf* buf[2] = {};
  // The same for CPU samples. Only the handler of SIGPROF fills them
  // (trace_cpu.cc).
  TraceBuf* samples[2] = {};
  // releasePreempted lets the goroutine run without a P. In the trace the
  // goroutine waits for one. Relaxed: written by the thread of the M, or for it
  // by the thread that lets the goroutine run. The thread that ends a
  // generation reads it, too. If it changes meanwhile, the goroutine has an
  // event.
  Atomic<bool> hidden;
  bool kept = false;       // it has its P back, which no thread had taken
  bool preempted = false;  // the goroutine that yields was asked to
  // The goroutine to which the M switches directly. It is current already,
  // although the goroutine before has not yet parked or yielded. The event of
  // that one comes first, so the start of this one is written after it.
  // Meanwhile a TraceScope is open.
  G* entering = nullptr;

  // The goroutine has lost its P to presumeBlocked: in the trace it is in a
  // system call, and this is the event by which that begins. The asker fills
  // this in before A4 of preempt_blocked.cc. The thread writes the event when
  // it next enters the runtime in the same generation. Otherwise the thread
  // that ends the generation does.
  //
  // There is one by parity of the generation, and none is overwritten before
  // its event is written:
  //  - The Loss of the same generation. An asker fills one in only if A3 has
  //    found the thread outside of the runtime, with its P. So the thread has
  //    been in the runtime since its last loss, and has written that event.
  //  - That of the generation before. It is the other one. The thread may leave
  //    it, lose its next P, and so on, while the thread that ends that
  //    generation is late.
  //  - Earlier ones. A generation begins only when the thread that ended the
  //    last but one has taken what was left: it holds traceSema until then.
  struct Loss {
    Atomic<uint64_t> gen;  // 0: none
    int64_t time = 0;
    uint64_t pseq = 0;
    G* gp = nullptr;
    uint64_t goid = 0;
    int32_t p = 0;
    bool needsStatus = false;  // of the P
  };
  Loss loss[2];
};

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_TRACEMARK_H_
