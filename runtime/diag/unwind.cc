#include "runtime/diag/unwind.h"

#include <unwind.h>

#include <algorithm>

#include "runtime/sched/runtime2.h"
#include "runtime/sched/switch.h"

namespace gump::rt {

namespace {

struct Walk {
  Frames* out;
  uint32_t skip;    // own frames that are still to be skipped
  bool fromSignal;  // start again at the frame that the signal interrupted
  bool thatOnly = false;  // and stop there
  uintptr_t lastPC = 0;
  uintptr_t lastCFA = 0;
};

GUMP_NO_SANITIZE _Unwind_Reason_Code addFrame(_Unwind_Context* context,
                                              void* arg) {
  Walk* w = static_cast<Walk*>(arg);
  int interrupted = 0;  // 1: a signal came at pc; 0: pc is behind a call
  uintptr_t pc = _Unwind_GetIPInfo(context, &interrupted);
  uintptr_t cfa = _Unwind_GetCFA(context);
  if (pc == 0 || (pc == w->lastPC && cfa == w->lastCFA)) {
    return _URC_END_OF_STACK;  // outermost, or tables that lead nowhere
  }
  w->lastPC = pc;
  w->lastCFA = cfa;
  if (interrupted != 0 && w->fromSignal) {
    w->fromSignal = false;
    w->skip = 0;
    w->out->clear();
  }
  if (w->skip > 0) {
    w->skip--;
    return _URC_NO_REASON;
  }
  if (w->out->kept + w->out->lost == Frames::kMaxWalk) {
    w->out->truncated = true;
    return _URC_END_OF_STACK;
  }
  w->out->add(interrupted != 0 ? pc : pc - 1);
  return interrupted != 0 && w->thatOnly ? _URC_END_OF_STACK : _URC_NO_REASON;
}

// collect walks from its own frame, which is the first that addFrame sees.
GUMP_NO_SANITIZE void collect(void* arg) {
  _Unwind_Backtrace(addFrame, arg);
  asm volatile("");  // no tail call: callers skip this frame
}

}  // namespace

GUMP_NO_SANITIZE void Frames::clear() {
  kept = 0;
  lost = 0;
  truncated = false;
}

GUMP_NO_SANITIZE void Frames::add(uintptr_t pc) {
  if (kept < 2 * kKeep) {
    pcs[kept++] = pc;
  } else {
    pcs[kKeep + lost % kKeep] = pc;  // overwrites the oldest of the outer half
    lost++;
  }
}

void Frames::finish() {
  std::rotate(pcs + kKeep, pcs + kKeep + lost % kKeep, pcs + 2 * kKeep);
}

void unwindinit() {
  // One frame is enough: the unwinder makes its tables when a walk begins, and
  // addFrame calls all the functions that the loader binds at their first call.
  Frames frames;
  frames.clear();
  Walk w{.out = &frames, .skip = 0, .fromSignal = false};
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* arg) {
        (void)addFrame(context, arg);
        return _URC_END_OF_STACK;
      },
      &w);
}

GUMP_NO_SANITIZE void walkHere(Frames* out) {
  out->clear();
  // Skipped: collect and walkHere.
  Walk w{.out = out, .skip = 2, .fromSignal = false};
  collect(&w);
  out->finish();
}

GUMP_NO_SANITIZE void walkSignal(Frames* out) {
  out->clear();
  Walk w{.out = out, .skip = 2, .fromSignal = true};
  collect(&w);
  out->finish();
}

GUMP_NO_SANITIZE void walkParked(const G* gp, Frames* out) {
  out->clear();
  if (gp->onOtherStack && !gp->inPlace) return;
  // Skipped: collect and gumpCallAtop. If gp is preempted in place, the handler
  // in which it sleeps is skipped too.
  Walk w{.out = out,
         .skip = 2,
         .fromSignal = gp->inPlace,
         .thatOnly = gp->onOtherStack};
  gumpCallAtop(gp->sched.sp, collect, &w);
  out->finish();
}

}  // namespace gump::rt
