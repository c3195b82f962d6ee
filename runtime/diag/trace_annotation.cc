// Tasks, regions and messages of the program in the execution trace
// (gump/trace.h).
#include <cstdint>
#include <string_view>

#include "gump/internal/linkname.h"
#include "runtime/diag/trace.h"
#include "runtime/diag/trace_state.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

M* pinForTrace() {
  (void)runtimeEntry();
  return acquirem();
}

// Annotation is an event that a running goroutine writes about itself.
class Annotation {
 public:
  Annotation() {
    G* gp = getg();
    if (!s_.on() || gp->foreign || s_.m()->p == nullptr) return;
    s_.ownP(TraceProc::kRunning);
    s_.goStatus(gp, TraceGo::kRunning);
    on_ = true;
  }
  bool on() const { return on_; }
  TraceScope* operator->() { return &s_; }
  uint64_t string(std::string_view text) const {
    return s_.string(text.data(), text.size());
  }

 private:
  TraceScope s_;
  bool on_ = false;
};

}  // namespace

bool tracesAnnotations() noexcept { return mayTrace(); }

uint64_t traceTaskBegin(uint64_t parent, std::string_view type) noexcept {
  static constinit Atomic<uint64_t> ids;
  const uint64_t id = ids.add(1, relaxed);  // only its uniqueness matters
  if (!mayTrace()) return id;
  M* mp = pinForTrace();
  if (Annotation a; a.on()) {
    a->event(TraceEv::kUserTaskBegin, id, parent, a.string(type),
             a->stackHere());
  }
  releasem(mp);
  return id;
}

void traceTaskEnd(uint64_t id) noexcept {
  if (!mayTrace()) return;
  M* mp = pinForTrace();
  if (Annotation a; a.on()) {
    a->event(TraceEv::kUserTaskEnd, id, a->stackHere());
  }
  releasem(mp);
}

bool traceRegion(uint64_t task, bool begins, std::string_view type) noexcept {
  if (!mayTrace()) return false;
  M* mp = pinForTrace();
  bool written = false;
  if (Annotation a; a.on()) {
    a->event(begins ? TraceEv::kUserRegionBegin : TraceEv::kUserRegionEnd, task,
             a.string(type), a->stackHere());
    written = true;
  }
  releasem(mp);
  return written;
}

void traceLog(uint64_t task, std::string_view category,
              std::string_view message) noexcept {
  if (!mayTrace()) return;
  M* mp = pinForTrace();
  if (Annotation a; a.on()) {
    a->event(TraceEv::kUserLog, task, a.string(category), a.string(message),
             a->stackHere());
  }
  releasem(mp);
}

}  // namespace gump::rt
