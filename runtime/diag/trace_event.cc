// The events of the execution trace: what each change of state writes.
//
// The events of one goroutine have the order of its changes, because its owner
// makes each change inside of a TraceScope that covers both the change and the
// event. Sequence numbers tell readers the order of events of different threads
// (TraceMark).
#include <algorithm>
#include <utility>

#include "runtime/diag/panic.h"
#include "runtime/diag/trace.h"
#include "runtime/diag/trace_state.h"
#include "runtime/diag/traceback.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

constinit Atomic<uint32_t> traceHint;
constinit TraceState traceState;

// ---- TraceMark --------------------------------------------------------------

bool TraceMark::markSlow(uint64_t gen) {
  for (;;) {
    const uint64_t word = word_.load(relaxed);
    const uint64_t last = word >> 1;
    if (last == gen) return false;
    if (last > gen) {  // we end gen, and the owner is in the next generation
      if ((word & 1) != 0) return false;
      if (word_.cas(word, word | 1, relaxed)) return true;
      continue;
    }
    const uint64_t before = last + 1 == gen ? 1 : 0;
    if (word_.cas(word, (gen << 1) | before, relaxed)) return true;
  }
}

// The cell may have been another goroutine's in the generation before, and the
// thread that ends that generation may not be done. So the bit for it stays.
void TraceMark::born(uint64_t gen) {
  for (;;) {
    const uint64_t word = word_.load(relaxed);
    const uint64_t last = word >> 1;
    const uint64_t before = last == gen ? word & 1 : uint64_t{last + 1 == gen};
    if (word_.cas(word, (gen << 1) | before, relaxed)) break;
  }
  seqGen_ = gen;
  seq_ = 0;
}

bool TraceMark::marked(uint64_t gen) const {
  const uint64_t word = word_.load(relaxed);
  return word >> 1 == gen || word == (((gen + 1) << 1) | 1);
}

uint64_t traceThread(const M* mp) {
  constexpr uint64_t kForeign = uint64_t{1} << 32;
  const auto tid = static_cast<uint64_t>(mp->procid.load(relaxed));
  const G* gp = mp->curg.load(relaxed);  // a foreign one stays for long
  return gp != nullptr && gp->foreign ? tid | kForeign : tid;
}

TraceMark* traceMarkOf(G* gp) {
  GExtra* extra = gp->extra.load(acquire);  // pairs with extraOf
  if (GUMP_UNLIKELY(extra == nullptr)) extra = extraOf(gp);
  return extra == nullptr ? nullptr : &extra->trace;
}

// ---- TraceScope -------------------------------------------------------------

// enterScope begins a TraceScope. Returns the M, or nullptr if there is none or
// no trace.
//
// The thread stores `writing` and then loads the generation. The thread that
// ends the generation stores the new one, calls asymmetricHeavy, and then loads
// `writing`. So it waits for a TraceScope that has the old generation.
static M* enterScope(const G* gp) {
  if (!mayTrace()) return nullptr;
  const G* self = getg();
  if (self != nullptr) gp = self;
  if (gp == nullptr || gp->m == nullptr) return nullptr;
  M* mp = gp->m;
  // Not acquirem: the M may be in the middle of losing its P.
  mp->locks.store(mp->locks.load(relaxed) + 1, relaxed);
  TraceM* t = &mp->trace;
  if (t->nested++ == 0) {
    t->now = 0;
    t->writing.store(true, relaxed);
    asymmetricLight();
    t->gen = traceState.gen.load(acquire);  // pairs with traceBeginGeneration
  }
  return mp;
}

// holdScope keeps the current TraceScope open until another leaveScope.
static void holdScope(M* mp) {
  mp->locks.store(mp->locks.load(relaxed) + 1, relaxed);
  mp->trace.nested++;
}

static void leaveScope(M* mp) {
  TraceM* t = &mp->trace;
  // Pairs with traceAwaitScopes.
  if (--t->nested == 0) t->writing.store(false, release);
  mp->locks.store(mp->locks.load(relaxed) - 1, release);  // as releasem
}

// boundTo returns the goroutine that is in a call on the thread of mp, as the
// trace sees it, or nullptr. The caller is that thread.
static G* boundTo(const M* mp) {
  G* gp = mp->curg.load(relaxed);  // written by us
  if (gp == nullptr) return nullptr;
  const uint32_t status = readgstatus(gp) & ~uint32_t{kGscan};
  if (gp->foreign) return status == kGdead ? nullptr : gp;
  const bool away =
      status == kGsyscall || (status == kGrunning && mp->p == nullptr);
  return away && !mp->trace.hidden.load(relaxed) ? gp : nullptr;
}

TraceScope::TraceScope(const G* gp) : mp_(enterScope(gp)) {
  if (mp_ == nullptr) return;
  gen_ = mp_->trace.gen;
  if (gen_ == 0 || mp_->trace.nested != 1) return;
  // To readers, a thread has no goroutine unless its first event binds it to
  // one. If the generation ends before this thread leaves the call, the thread
  // that ends it writes that the goroutine is in a call on this thread. That
  // must not contradict the first event.
  if (G* bound = boundTo(mp_)) goStatus(bound, TraceGo::kSyscall);
}

TraceScope::~TraceScope() {
  if (mp_ != nullptr) leaveScope(mp_);
}

namespace {

// newRoom puts an empty buffer of thread tid into *slot. A buffer that is there
// goes to the list of full ones. Returns nullptr if the kernel has no memory.
GUMP_NOINLINE TraceBuf* newRoom(TraceBuf** slot, uint64_t gen, uint64_t tid) {
  if (TraceBuf* b = *slot) {
    traceState.full[gen % 2].push(b);
    traceState.bytes.add(b->pos, relaxed);  // a hint
  }
  *slot = nullptr;
  if (traceState.failed[gen % 2].load(relaxed)) return nullptr;
  TraceBuf* b = newTraceBuf();
  *slot = b;
  if (b == nullptr) {
    // The thread that ends the generation reads this.
    traceState.failed[gen % 2].store(true, relaxed);
    return nullptr;
  }
  b->begin(gen, tid, traceState.now(gen));
  return b;
}

// roomIn returns a buffer of thread tid with room for an event, or nullptr if
// the kernel has no memory. The buffer is in *slot.
TraceBuf* roomIn(TraceBuf** slot, uint64_t gen, uint64_t tid) {
  TraceBuf* b = *slot;
  const bool fits = b != nullptr && b->tid == tid &&
                    b->pos + TraceBuf::kMostEvent < TraceBuf::kSize;
  return GUMP_LIKELY(fits) ? b : newRoom(slot, gen, tid);
}

}  // namespace

// The events of a scope are one step, so one reading of the clock is enough for
// all of them. TraceBuf::time keeps them apart. A direct switch is one scope,
// so it reads the clock once.
int64_t TraceScope::now() {
  int64_t* now = &mp_->trace.now;
  if (*now == 0) *now = traceState.now(gen_);
  return *now;
}

TraceBuf* TraceScope::room() {
  return roomIn(&mp_->trace.buf[gen_ % 2], gen_, traceThread(mp_));
}

void TraceScope::ownP(TraceProc status) {
  P* pp = mp_->p;
  if (pp != nullptr && GUMP_UNLIKELY(pp->trace.mark(gen_))) {
    procStatus(pp, status);
  }
}

GUMP_NOINLINE void TraceScope::procStatus(const P* pp, TraceProc status) {
  event(TraceEv::kProcStatus, pp->id, status);
}

void TraceScope::goStatus(G* gp, TraceGo status) {
  TraceMark* mark = traceMarkOf(gp);
  if (mark == nullptr || GUMP_LIKELY(!mark->mark(gen_))) return;
  goStatusEvent(gp, status);
}

GUMP_NOINLINE void TraceScope::goStatusEvent(const G* gp, TraceGo status) {
  const bool onThread =
      status == TraceGo::kRunning || status == TraceGo::kSyscall;
  event(TraceEv::kGoStatus, traceGoid(gp->goid),
        onThread ? traceThread(mp_) : kNoTraceThread, status);
}

void traceWriteLoss(const TraceM::Loss& loss, uint64_t gen, uint64_t tid,
                    TraceBuf* b) {
  if (loss.needsStatus) {
    b->event(TraceEv::kProcStatus, loss.time, loss.p, TraceProc::kRunning);
  }
  TraceMark* mark = traceMarkOf(loss.gp);
  if (mark != nullptr && mark->mark(gen)) {
    b->event(TraceEv::kGoStatus, loss.time, loss.goid, tid, TraceGo::kRunning);
  }
  b->event(TraceEv::kGoSyscallBegin, loss.time, loss.pseq, 0);
}

void TraceScope::claimLoss() {
  TraceM::Loss* loss = &mp_->trace.loss[gen_ % 2];
  if (loss->gen.load(relaxed) != gen_) return;  // published by A4
  loss->gen.store(0, relaxed);
  if (TraceBuf* b = room()) traceWriteLoss(*loss, gen_, traceThread(mp_), b);
}

// ---- Stacks and strings -----------------------------------------------------

namespace {

constexpr size_t kMostFrames = 32;

// Where a saved context (asm_*.S) has the return address and the frame pointer.
#if defined(__x86_64__)
constexpr size_t kSavedPC = 7;
constexpr size_t kSavedFP = 6;
#else
constexpr size_t kSavedPC = 1;
constexpr size_t kSavedFP = 0;
#endif

// stackFrom returns the id of a stack, or 0 if the stack has no frame or the
// kernel has no memory. The frames are the one at pc, unless pc is 0, and those
// of the callers to which the frame pointers from fp lead, inside of [lo, hi).
// Code without frame pointers has no frame in the stack.
//
// A thread mostly meets stacks that it met a moment ago. So the walk compares
// each frame with that of one such stack, and reads each frame once. The depth
// of fp chooses that stack, and not the address of fp. So one stack serves all
// goroutines that wait in the same place.
GUMP_NO_SANITIZE uint64_t stackFrom(TraceBuf* b, uintptr_t pc, uintptr_t fp,
                                    uintptr_t lo, uintptr_t hi) {
  const TraceNode** known =
      &b->stacks[(((hi - fp) / 16) ^ pc ^ (pc / 64)) % TraceBuf::kStacks];
  const TraceNode* node = *known;
  const uintptr_t* want = nullptr;
  size_t count = 0;
  if (node != nullptr) {
    want = static_cast<const uintptr_t*>(node->bytes());
    count = node->size / sizeof(want[0]);
  }
  uintptr_t pcs[kMostFrames];
  size_t n = 0;
  bool same = true;
  auto add = [&](uintptr_t at) {
    same = same && n < count && want[n] == at;
    pcs[n++] = at;
  };
  if (pc != 0) add(pc);
  while (n < kMostFrames && fp >= lo && fp + 16 <= hi && fp % 8 == 0) {
    const auto* frame = reinterpret_cast<const uintptr_t*>(fp);
    if (frame[1] == 0) break;
    add(frame[1] - 1);  // inside of the call
    if (frame[0] <= fp) break;
    lo = fp;
    fp = frame[0];
  }
  if (n == 0) return 0;
  if (GUMP_LIKELY(same && n == count)) return node->id;
  node = traceState.stacks[b->gen % 2].put(pcs, n * sizeof(pcs[0]));
  if (node == nullptr) return 0;
  *known = node;
  return node->id;
}

// creatorOf returns the id of a stack of one frame, the call of go that made
// gp. Returns 0 if that call is not known. Readers name a goroutine after the
// function with that call, because the function that the goroutine runs is
// mostly a lambda in there.
uint64_t creatorOf(TraceBuf* b, const G* gp) {
  const uintptr_t pc = gp->gopc;
  return pc == 0 ? 0 : stackFrom(b, pc - 1, 0, 0, 0);  // inside of the call
}

}  // namespace

GUMP_NO_SANITIZE uint64_t TraceScope::stackHere() {
  const G* gp = getg();
  const auto fp = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  TraceBuf* b = room();
  if (b == nullptr || gp == nullptr || fp < gp->stack.lo ||
      fp >= gp->stack.hi) {
    return 0;
  }
  return stackFrom(b, 0, fp, gp->stack.lo, gp->stack.hi);
}

GUMP_NO_SANITIZE uint64_t TraceScope::stackSaved(const G* gp) {
  if (gp->onOtherStack || gp->inPlace) return 0;
  const uintptr_t sp = gp->sched.sp;
  TraceBuf* b = room();
  if (b == nullptr || sp < gp->stack.lo || sp + 64 > gp->stack.hi) return 0;
  const auto* frame = reinterpret_cast<const uintptr_t*>(sp);
  return stackFrom(b, frame[kSavedPC] - 1, frame[kSavedFP], sp + 1,
                   gp->stack.hi);
}

uint64_t TraceScope::string(const char* text, size_t size) const {
  const TraceNode* node =
      traceState.strings[gen_ % 2].put(text, std::min(size, size_t{1024}));
  return node == nullptr ? 0 : kTraceStringFirst + node->id;
}

// ---- Goroutines -------------------------------------------------------------

namespace {

// Guards the buffers for goroutines that are created without a P.
Mutex noPLock{LockRank::kLeaf};
TraceBuf* noPBuf[2] ABSL_GUARDED_BY(noPLock) = {};
uint64_t noPGen ABSL_GUARDED_BY(noPLock) = 0;

void create(TraceScope* s, G* gp) {
  TraceMark* mark = traceMarkOf(gp);
  if (mark == nullptr) return;
  mark->born(s->gen());
  if (gp->goid == kMainGoid) {
    traceState.mainId.add(uint64_t{1} << 40, relaxed);  // no other main lives
  }
  if (s->m()->p != nullptr) {
    TraceBuf* b = s->room();
    const uint64_t first = b == nullptr ? 0 : creatorOf(b, gp);
    const uint64_t stack = s->stackHere();
    s->ownP(TraceProc::kRunning);
    if (G* self = getg(); self != &s->m()->g0) {
      s->goStatus(self, TraceGo::kRunning);
    }
    s->event(TraceEv::kGoCreate, traceGoid(gp->goid), first, stack);
    return;
  }
  lock(&noPLock);
  const uint64_t gen = s->gen();
  if (TraceBuf* b = roomIn(&noPBuf[gen % 2], gen, kNoProcThread)) {
    const int64_t now = traceState.now(gen);
    if (std::exchange(noPGen, gen) != gen) {
      b->event(TraceEv::kProcStatus, now, kNoProcP, TraceProc::kRunning);
    }
    b->event(TraceEv::kGoCreate, now, traceGoid(gp->goid), creatorOf(b, gp), 0);
  }
  unlock(&noPLock);
}

void unblock(TraceScope* s, G* gp) {
  s->goStatus(gp, TraceGo::kWaiting);
  TraceMark* mark = traceMarkOf(gp);
  if (mark == nullptr) return;
  s->event(TraceEv::kGoUnblock, traceGoid(gp->goid), mark->next(s->gen()),
           s->stackHere());
}

void start(TraceScope* s, G* gp) {
  s->ownP(TraceProc::kRunning);
  s->goStatus(gp, TraceGo::kRunnable);
  TraceMark* mark = traceMarkOf(gp);
  if (mark == nullptr) return;
  s->event(TraceEv::kGoStart, traceGoid(gp->goid), mark->next(s->gen()));
}

// enter is start. If the goroutine before has yet to park or yield, it leaves
// the event to traceStatus, which then writes it after that goroutine's event.
void enter(TraceScope* s, G* gp) {
  M* mp = s->m();
  const G* self = getg();
  if (self == gp || self == &mp->g0) {
    start(s, gp);
    return;
  }
  mp->trace.entering = gp;
  holdScope(mp);
}

void block(TraceScope* s, G* gp) {
  s->ownP(TraceProc::kRunning);
  s->goStatus(gp, TraceGo::kRunning);
  s->event(TraceEv::kGoBlock,
           kTraceBlockFirst + static_cast<uint32_t>(gp->waitreason),
           s->stackSaved(gp));
}

void endSyscall(TraceScope* s, G* gp) {
  s->goStatus(gp, TraceGo::kSyscall);
  s->event(TraceEv::kGoSyscallEndBlocked);
}

bool takeHidden(TraceM* t) {
  const bool was = t->hidden.load(relaxed);
  if (was) t->hidden.store(false, relaxed);
  return was;
}

void stop(TraceScope* s, G* gp) {
  TraceM* t = &s->m()->trace;
  if (takeHidden(t)) return;
  if (s->m()->p == nullptr) {  // it was taken
    endSyscall(s, gp);
    return;
  }
  const bool preempted = std::exchange(t->preempted, false) || gp->inPlace;
  s->ownP(TraceProc::kRunning);
  s->goStatus(gp, TraceGo::kRunning);
  s->event(TraceEv::kGoStop, preempted ? kTracePreempted : kTraceGosched,
           s->stackSaved(gp));
}

void beginSyscall(TraceScope* s, G* gp) {
  P* pp = s->m()->p;
  if (pp == nullptr) return;  // it was taken, so gp has long been in a call
  s->ownP(TraceProc::kRunning);
  s->goStatus(gp, TraceGo::kRunning);
  pp->traceTid = s->m()->procid.load(relaxed);  // our own
  s->event(TraceEv::kGoSyscallBegin, pp->trace.next(s->gen()), s->stackHere());
}

// regain writes that gp has returned from its call and still has its P.
void regain(TraceScope* s, G* gp) {
  s->m()->trace.kept = false;
  s->ownP(TraceProc::kSyscall);
  s->goStatus(gp, TraceGo::kSyscall);
  s->event(TraceEv::kGoSyscallEnd);
}

void leaveSyscall(TraceScope* s, G* gp, uint32_t newval) {
  TraceM* t = &s->m()->trace;
  const bool runs = newval == kGrunning;
  if (t->kept) {
    regain(s, gp);
    if (!runs) stop(s, gp);
    return;
  }
  if (!takeHidden(t)) endSyscall(s, gp);
  if (runs) start(s, gp);
}

void transition(TraceScope* s, G* gp, uint32_t oldval, uint32_t newval) {
  switch (newval) {
    case kGrunnable:
      if (oldval == kGdead) {
        create(s, gp);
      } else if (gp->foreign) {
        break;
      } else if (oldval == kGwaiting) {
        unblock(s, gp);
      } else if (oldval == kGrunning) {
        stop(s, gp);
      } else {
        leaveSyscall(s, gp, newval);
      }
      break;
    case kGrunning:
      if (gp->foreign) break;
      if (oldval == kGsyscall) {
        leaveSyscall(s, gp, newval);
      } else if (s->m()->curg.load(relaxed) == gp) {  // written by us
        enter(s, gp);
      } else {
        gp->lockedm->trace.hidden.store(true, relaxed);  // releasePreempted
      }
      break;
    case kGwaiting:
      if (!gp->foreign) block(s, gp);
      break;
    case kGsyscall:
      if (oldval != kGdead) {
        beginSyscall(s, gp);
      } else if (TraceMark* mark = traceMarkOf(gp)) {
        mark->born(s->gen());
        s->event(TraceEv::kGoCreateSyscall, gp->goid);
      }
      break;
    case kGdead:
      if (gp->foreign) {
        s->goStatus(gp, TraceGo::kSyscall);
        s->event(TraceEv::kGoDestroySyscall);
      } else {
        s->ownP(TraceProc::kRunning);
        s->goStatus(gp, TraceGo::kRunning);
        s->event(TraceEv::kGoDestroy);
      }
      break;
    default:
      break;
  }
}

}  // namespace

// The compiler inlines all but the rare parts. Otherwise a switch takes three
// calls.
__attribute__((flatten)) void traceStatus(G* gp, uint32_t oldval,
                                          uint32_t newval) {
  TraceScope s(gp);
  // Tokens of homes, and new cells, have no number.
  if (s.on() && gp->goid != 0) transition(&s, gp, oldval, newval);
  setgstatus(gp, oldval, newval);
  // parkCommit or yieldCommit: gp has left.
  if (s.on() && oldval == kGrunning && s.m()->trace.entering != nullptr) {
    start(&s, std::exchange(s.m()->trace.entering, nullptr));
    leaveScope(s.m());
  }
}

// ---- Ps ---------------------------------------------------------------------

void traceProcStart(P* pp) {
  TraceScope s;
  if (!s.on() || s.m()->trace.kept) return;
  if (pp->trace.mark(s.gen())) {
    s.event(TraceEv::kProcStatus, pp->id, TraceProc::kIdle);
  }
  s.event(TraceEv::kProcStart, pp->id, pp->trace.next(s.gen()));
}

void traceProcStop(P*) {
  TraceScope s;
  if (!s.on()) return;
  s.ownP(TraceProc::kRunning);
  s.event(TraceEv::kProcStop);
}

namespace {

// steal writes that pp was taken from the thread that took it into a call.
void steal(TraceScope* s, P* pp) {
  if (pp->trace.mark(s->gen())) {
    s->event(TraceEv::kProcStatus, pp->id, TraceProc::kSyscallAbandoned);
  }
  s->event(TraceEv::kProcSteal, pp->id, pp->trace.next(s->gen()),
           std::exchange(pp->traceTid, 0));
}

}  // namespace

bool traceTakeP(P* pp, uint32_t newval) {
  TraceScope s;
  if (!pcasstatus(pp, kPsyscall, newval)) return false;
  if (s.on()) steal(&s, pp);
  return true;
}

bool traceRegainP(P* pp) {
  TraceScope s;
  if (!pcasstatus(pp, kPsyscall, kPidle)) return false;
  if (!s.on()) return true;
  // Otherwise pp was taken, and another thread has left it for a call since.
  if (pp->traceTid == s.m()->procid.load(relaxed)) {
    s.m()->trace.kept = true;
    pp->traceTid = 0;
  } else {
    steal(&s, pp);
  }
  return true;
}

void traceMoveP(P* pp, bool begins) {
  TraceScope s;
  G* gp = getg();
  if (!s.on() || gp->foreign) return;
  if (begins) {
    start(&s, gp);
    return;
  }
  if (s.m()->p != pp) return;
  s.ownP(TraceProc::kRunning);
  s.goStatus(gp, TraceGo::kRunning);
  s.event(TraceEv::kGoStop, kTracePreempted, s.stackHere());
  s.event(TraceEv::kProcStop);
}

void traceProcStatus(P* pp) {
  TraceScope s;
  if (!s.on()) return;
  if (pp != s.m()->p) {
    if (pp->trace.mark(s.gen())) s.procStatus(pp, TraceProc::kIdle);
    return;
  }
  s.ownP(TraceProc::kRunning);
  // The goroutine that ends the generation may have run for all of it, without
  // an event. No other goroutine can: each gives its P up for this function.
  G* self = getg();
  if (self != &s.m()->g0 && !self->foreign) {
    s.goStatus(self, TraceGo::kRunning);
  }
}

TraceTaking::TraceTaking(P* pp, M* mp, G* gp, bool untold)
    : pp_(pp), mp_(mp), self_(enterScope(nullptr)) {
  if (self_ == nullptr || self_->trace.gen == 0 || untold) return;
  gen_ = self_->trace.gen;
  TraceM::Loss* loss = &mp->trace.loss[gen_ % 2];
  loss->time = traceState.now(gen_);
  loss->needsStatus = !pp->trace.marked(gen_);
  loss->pseq = pp->trace.peekNext(gen_);
  loss->p = pp->id;
  loss->gp = gp;
  loss->goid = traceGoid(peek(gp->goid));
  loss->gen.store(gen_, relaxed);  // published by A4
}

void TraceTaking::taken() {
  taken_ = true;
  if (gen_ == 0) return;
  TraceScope s;
  (void)pp_->trace.mark(gen_);
  (void)pp_->trace.next(gen_);  // Loss::pseq
  s.event(TraceEv::kProcSteal, pp_->id, pp_->trace.next(gen_),
          traceThread(mp_));
}

TraceTaking::~TraceTaking() {
  if (gen_ != 0 && !taken_) mp_->trace.loss[gen_ % 2].gen.store(0, relaxed);
  if (self_ != nullptr) leaveScope(self_);
}

// The caller has no other P yet.
void traceLost() {
  TraceScope s;
  if (s.on()) s.claimLoss();
}

void traceGiven() {
  TraceScope s;
  if (!s.on()) return;
  G* gp = s.m()->curg.load(relaxed);  // ours
  s.claimLoss();
  traceProcStart(s.m()->p);
  endSyscall(&s, gp);
  start(&s, gp);
}

// ---- Stopping the world -----------------------------------------------------

namespace {
bool stopTraced = false;  // guarded by worldsema
}  // namespace

void traceStopBegins(const char* reason) {
  TraceScope s;
  G* gp = getg();
  if (!s.on() || gp->foreign || s.m()->p == nullptr) return;
  stopTraced = true;
  s.ownP(TraceProc::kRunning);
  s.goStatus(gp, TraceGo::kRunning);
  s.event(TraceEv::kSTWBegin, s.string(reason, __builtin_strlen(reason)),
          s.stackHere());
}

void traceStopEnds() {
  if (!std::exchange(stopTraced, false)) return;
  TraceScope s;
  if (!s.on()) return;
  s.ownP(TraceProc::kRunning);
  s.goStatus(getg(), TraceGo::kRunning);
  s.event(TraceEv::kSTWEnd);
}

void traceProcs(int32_t n) {
  TraceScope s;
  G* gp = getg();
  if (!s.on() || gp->foreign || s.m()->p == nullptr) return;
  s.ownP(TraceProc::kRunning);
  s.goStatus(gp, TraceGo::kRunning);
  s.event(TraceEv::kProcsChange, n, s.stackHere());
}

// traceEndNoP takes the buffer for goroutines that were created without a P.
TraceBuf* traceEndNoP(uint64_t gen) {
  LockScope l(&noPLock);
  return std::exchange(noPBuf[gen % 2], nullptr);
}

}  // namespace gump::rt
