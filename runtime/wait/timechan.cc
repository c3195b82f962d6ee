// Channels of time, the timers of AfterFunc, and sleeping. All three use the
// heap in time.cc. The invariants are in timechan.h.
#include "runtime/wait/timechan.h"

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "runtime/diag/panic.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/synctest.h"

namespace gump::rt {

// ---- Cells ------------------------------------------------------------------

namespace {

// Cells are also freed on g0, so they do not come from malloc; see mem.h.
struct FreeCell {
  FreeCell* next;
};
static_assert(sizeof(TimerCells::head) == sizeof(FreeCell*));

constexpr uint32_t kCellCacheMax = 64;

// CellPool holds the cells that Ps have too many of. There is one for each
// size.
struct CellPool {
  Mutex lock{LockRank::kLeaf};
  FreeCell* head ABSL_GUARDED_BY(lock) = nullptr;
  Atomic<uint32_t> n;  // written under the lock
};
constinit CellPool funcPool;
constinit CellPool chanPool;
constinit CellPool sleepPool;

FreeCell* popCell(TimerCells* cells) {
  auto* c = static_cast<FreeCell*>(cells->head);
  if (c != nullptr) {
    cells->head = c->next;
    cells->n--;
  }
  return c;
}

void pushCell(TimerCells* cells, FreeCell* c) {
  c->next = static_cast<FreeCell*>(cells->head);
  cells->head = c;
  cells->n++;
}

// fill moves up to n cells from a pool to `cells`. drain moves the cells beyond
// `keep` back to the pool.
void fill(TimerCells* cells, CellPool* pool, uint32_t n) {
  if (pool->n.load(relaxed) == 0) return;  // a stale zero costs a fresh cell
  LockScope l(&pool->lock);
  for (; n > 0 && pool->head != nullptr; n--) {
    FreeCell* c = pool->head;
    pool->head = c->next;
    pool->n.add(static_cast<uint32_t>(-1), relaxed);  // a hint outside the lock
    pushCell(cells, c);
  }
}

void drain(TimerCells* cells, CellPool* pool, uint32_t keep) {
  LockScope l(&pool->lock);
  while (cells->n > keep) {
    FreeCell* c = popCell(cells);
    c->next = pool->head;
    pool->head = c;
    pool->n.add(1, relaxed);  // as above
  }
}

// allocCell returns room for a T, or nullptr if there is no memory. `cells` are
// those of the P, or nullptr if there is no P. freeCell gives the room back.
// Both:
// On: any, m.locks > 0.  P: needed unless cells is nullptr.
// Locks: take a leaf, kMem.  Parks: no.
template <class T>
void* allocCell(TimerCells* cells, CellPool* pool) {
  TimerCells none;
  if (cells == nullptr) {
    fill(&none, pool, 1);
    cells = &none;
  } else if (cells->n == 0) {
    fill(cells, pool, kCellCacheMax / 2);
  }
  if (FreeCell* c = popCell(cells)) return c;
  return persistentalloc(alignUp(sizeof(T), kCacheLine), kCacheLine);
}

void freeCell(void* cell, TimerCells* cells, CellPool* pool) {
  TimerCells none;
  auto* c = new (cell) FreeCell{nullptr};
  if (cells == nullptr) {
    pushCell(&none, c);
    drain(&none, pool, 0);
    return;
  }
  pushCell(cells, c);
  if (cells->n >= kCellCacheMax) drain(cells, pool, kCellCacheMax / 2);
}

TimerCells* funcCells(P* pp) {
  return pp == nullptr ? nullptr : &pp->funcCells;
}
TimerCells* chanCells(P* pp) {
  return pp == nullptr ? nullptr : &pp->chanCells;
}
TimerCells* sleepCells(P* pp) {
  return pp == nullptr ? nullptr : &pp->sleepCells;
}

}  // namespace

void timerCellsFlush(P* pp) {
  drain(&pp->funcCells, &funcPool, 0);
  drain(&pp->chanCells, &chanPool, 0);
  drain(&pp->sleepCells, &sleepPool, 0);
}

void* allocTimerCell(P* pp) {
  return allocCell<TimerCell>(funcCells(pp), &funcPool);
}

void freeTimer(Timer* t) {
  P* pp = getg()->m->p;
  // Relaxed: no other thread knows t any more.
  if ((t->state.load(relaxed) & kTimerChan) == 0) {
    static_assert(std::is_trivially_destructible_v<FuncTimer>);
    groupReleaseId(cellOf(t)->group);
    freeCell(t, funcCells(pp), &funcPool);
    return;
  }
  auto* tc = static_cast<TimerChan*>(t->arg);
  tc->~TimerChan();
  freeCell(tc, chanCells(pp), &chanPool);
}

// ---- Channel and timer ------------------------------------------------------

namespace {

TimerChan* chanOf(const Timer* t) { return static_cast<TimerChan*>(t->arg); }

// wallAt returns the wall clock's time at which the monotonic clock was `when`.
// A thread may lose its processor between reading the one clock and the other.
// So wallAt reads both up to kTries times, and uses the two readings that were
// closest to each other. Otherwise a tick could get a later time than the next
// tick. The order of the readings matters: time that passes between them makes
// the result later, but never too early.
int64_t wallAt(int64_t when) {
  constexpr int kTries = 4;
  constexpr int64_t kClose = 20'000;  // ns
  int64_t closest = INT64_MAX;
  int64_t wall = 0;
  for (int i = 0; i < kTries && closest > kClose; i++) {
    const int64_t before = nanotime();
    const int64_t now = walltime();
    const int64_t apart = nanotime() - before;
    if (apart >= closest) continue;
    closest = apart;
    wall = now - (before - when);
  }
  return wall;
}

// sendTime is the function that a channel's timer calls.
void sendTime(void* arg, uint64_t, int64_t when)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the lock belongs to arg's channel
  auto* tc = static_cast<TimerChan*>(arg);
  alignas(16) unsigned char value[sizeof(tc->slot)];
  // A bubble's clock is also its wall clock. Otherwise wallAt reads both clocks
  // now, because the reading that found the timer due may be old.
  tc->encode(value, tc->c.bubble != 0 ? when : wallAt(when));
  lock(&tc->c.lock);
  // If no goroutine waits and the slot is full, this tick is lost.
  const ChanStep step = sendLocked(&tc->c, value);
  unlock(&tc->c.lock);
  if (step.wake == nullptr) return;
  G* gp = step.wake->g;  // as in wakeWaiter
  step.wake->success = true;
  gp->param = step.wake;
  goreadyQuiet(gp);
}

}  // namespace

void timerChanBegin(Timer* t) {
  TimerChan* tc = chanOf(t);
  chanRetain(&tc->c);  // (C3); the caller or a waiter holds a reference
  if (t->period == 0) tc->sending = true;
}

void timerChanSend(Timer* t, TimerFunc f, uint64_t seq, int64_t when) {
  TimerChan* tc = chanOf(t);
  lock(&tc->sendLock);
  // A stop or reset that waits for the sendLock comes after the value, and
  // takes it out of the slot.
  if (seq == t->seq && when > tc->lastSent) {  // (C1), (C4)
    tc->sending = false;
    tc->lastSent = when;
    f(tc, seq, when);
  }
  unlock(&tc->sendLock);
  chanRelease(&tc->c);
}

void timerChanLock(Timer* t)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // timerChanUnlock releases it
  lock(&chanOf(t)->sendLock);
}

bool timerChanForget(Timer* t) {
  TimerChan* tc = chanOf(t);
  t->seq++;
  tc->lastSent = 0;
  return std::exchange(tc->sending, false);
}

bool timerChanUnlock(Timer* t)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // timerChanLock took the sendLock
  Hchan* c = &chanOf(t)->c;
  lock(&c->lock);
  const bool had = c->qcount.load(relaxed) > 0;  // we hold the lock
  c->qcount.store(0, relaxed);                   // peeks read only the number
  c->recvx = 0;
  c->sendx = 0;
  unlock(&c->lock);
  unlock(&chanOf(t)->sendLock);
  return had;
}

void timerChanFree(Hchan* c) {
  // This may be a foreign thread that was never in the runtime, or one
  // that has returned from Run. Do not call runtimeEntry, because that may
  // yield.
  if (getg() == nullptr) needm();
  M* mp = acquirem();
  timerDrop(&timerChanOf(c)->t);
  releasem(mp);
}

// ---- What linkname.h offers -------------------------------------------------

Hchan* newTimerChan(const ElemType* et,
                    void (*encode)(void* elem, int64_t unixNanos)) noexcept {
  runtimeEntry();
  M* mp = acquirem();
  void* cell = allocCell<TimerChan>(chanCells(mp->p), &chanPool);
  releasem(mp);
  if (cell == nullptr) return nullptr;
  auto* tc = new (cell) TimerChan;
  if (et->size > sizeof(tc->slot) || et->align > 16 || et->move != nullptr) {
    fatalthrow("newTimerChan: bad element type");
  }
  tc->c.dataqsiz = 1;
  tc->c.elemsize = et->size;
  tc->c.elemalign = static_cast<uint32_t>(et->align);
  tc->c.buf = tc->slot;
  tc->c.kind = ElemKind::kBytes;
  tc->c.isTimer = true;
  tc->encode = encode;
  tc->t.f = sendTime;
  tc->t.arg = tc;
  tc->c.bubble = currentBubble();
  const uint32_t fake = tc->c.bubble != 0 ? uint32_t{kTimerFake} : 0;
  tc->t.state.store(kTimerChan | fake, relaxed);  // not yet published
  return &tc->c;
}

namespace {
// after returns the time that is `ns` from now. If bubble is 0, the time is on
// the monotonic clock. Otherwise it is on the clock of that bubble, which must
// be the caller's.
int64_t after(uint32_t bubble, int64_t ns) {
  return timeAfter(bubble != 0 ? bubbleNow() : nanotime(), ns);
}

void checkReset(uint32_t bubble) {
  if (GUMP_LIKELY(bubble == 0)) return;
  bubbleCheck(bubble, "reset of synctest timer from outside bubble");
}
void checkStop(uint32_t bubble) {
  if (GUMP_LIKELY(bubble == 0)) return;
  bubbleCheck(bubble, "stop of synctest timer from outside bubble");
}
}  // namespace

bool timerChanReset(Hchan* c, int64_t ns, int64_t period) noexcept {
  runtimeEntry();
  checkReset(c->bubble);
  M* mp = acquirem();
  const int64_t when = after(c->bubble, ns);
  const bool pending = timerModify(&timerChanOf(c)->t, when, period);
  releasem(mp);
  return pending;
}

bool timerChanStop(Hchan* c) noexcept {
  runtimeEntry();
  checkStop(c->bubble);
  M* mp = acquirem();
  const bool pending = timerStop(&timerChanOf(c)->t);
  releasem(mp);
  return pending;
}

namespace {
// goFunc is the function that AfterFunc's timer calls.
void goFunc(void* arg, uint64_t, int64_t) {
  const auto* ft = static_cast<const FuncTimer*>(arg);
  // Only goroutines of a bubble run the timers of that bubble. So if the timer
  // has a bubble, it is the bubble of the current goroutine.
  Bubble* b = ft->bubble != 0 ? getg()->bubble : nullptr;
  // When newprocTimer returns, the goroutine may be over, and *ft gone.
  void* closure = ft->closure;
  if (!newprocTimer(ft->ft, &closure, ft->pc, b, ft->group)) {
    fatalAll("out of memory");
  }
}

constexpr FuncType kDiscard = {
    [](void*) {},
    [](void* of) {
      FuncTimer* ft = *static_cast<FuncTimer**>(of);
      void* closure = ft->closure;
      ft->ft->destroy(&closure);  // *ft may be gone when this returns
    },
    [](void* dst, void* src) noexcept {
      *static_cast<FuncTimer**>(dst) = *static_cast<FuncTimer**>(src);
    }};
}  // namespace

void funcTimerDiscard(Timer* t) {
  auto* ft = static_cast<FuncTimer*>(cellOf(t));
  if (!newprocTimer(&kDiscard, &ft, ft->pc, getg()->bubble, ft->group)) {
    fatalAll("out of memory");
  }
}

FuncTimer* newFuncTimer(const FuncType* ft, void* closure,
                        uintptr_t pc) noexcept {
  runtimeEntry();
  M* mp = acquirem();
  void* cell = allocTimerCell(mp->p);
  releasem(mp);
  if (cell == nullptr) return nullptr;
  auto* t = new (cell) FuncTimer;
  t->t.f = goFunc;
  t->t.arg = t;
  t->ft = ft;
  t->closure = closure;
  t->pc = pc;
  t->bubble = currentBubble();
  t->group = currentGroupId();
  groupRetainId(t->group);
  // No other thread knows t yet.
  if (t->bubble != 0) t->t.state.store(kTimerFake, relaxed);
  return t;
}

// No runtimeEntry here: newFuncTimer has just called it. The bubble is the
// caller's.
void funcTimerStart(FuncTimer* t, int64_t ns) noexcept {
  M* mp = acquirem();
  timerStart(&t->t, after(t->bubble, ns));
  releasem(mp);
}

bool funcTimerReset(FuncTimer* t, int64_t ns) noexcept {
  runtimeEntry();
  checkReset(t->bubble);
  M* mp = acquirem();
  const bool pending = timerModify(&t->t, after(t->bubble, ns), 0);
  releasem(mp);
  return pending;
}

bool funcTimerStop(FuncTimer* t) noexcept {
  runtimeEntry();
  checkStop(t->bubble);
  M* mp = acquirem();
  const bool pending = timerStop(&t->t);
  releasem(mp);
  return pending;
}

void funcTimerFree(FuncTimer* t) noexcept {
  runtimeEntry();
  M* mp = acquirem();
  timerDrop(&t->t);
  releasem(mp);
}

// ---- Sleeping ---------------------------------------------------------------

namespace {

void goroutineReady(void* arg, uint64_t, int64_t) {
  goreadyQuiet(static_cast<G*>(arg));
}

// armSleepFake is armSleep in a bubble. The bubble's root looks at the timers
// only after this, when the goroutine has been counted as blocked.
bool armSleepFake(G* gp, void* arg) {
  (void)timerAdd(&gp->bubble->timers, static_cast<Timer*>(arg));
  return true;
}

// armSleep runs when the goroutine is kGwaiting, so the timer cannot fire too
// early.
bool armSleep(G*, void* arg) {
  auto* t = static_cast<Timer*>(arg);
  M* mp = getg()->m;
  // After timerAdd *t may be gone, because it may have fired.
  const int64_t when = timerAdd(&mp->p->timers, t);
  if (when == 0) return true;
  // On g0 this M may still become the one that sleeps in the poller. In a
  // direct switch, this runs on the stack of the next goroutine, and the M has
  // already found work.
  if (getg() == &mp->g0) {
    mp->timerAdded = true;
  } else {
    wakeNetPoller(when);
  }
  return true;
}

// sleepForeign makes a foreign thread sleep.
void sleepForeign(int64_t when) {
  Atomic<uint32_t> word;
  for (;;) {
    const int64_t left = when - nanotime();
    if (left <= 0) return;
    futexsleep(&word, 0, left < kMaxDelay ? left : kMaxDelay);
  }
}

}  // namespace

// A sleeper's timer is not on its stack. Each stack is in a page of its own,
// and an M that runs the timers of many sleepers would have to translate the
// address of each page. Cells lie side by side. The sleeper gives its cell back
// when it has woken: nothing else refers to the timer then.
void timeSleep(int64_t ns) noexcept {
  if (ns <= 0) return;
  G* gp = runtimeEntry();
  if (gp->foreign) {
    sleepForeign(timeAfter(nanotime(), ns));
    return;
  }
  const bool fake = gp->bubble != nullptr;
  if (!fake) netpollGenericInit();
  M* mp = acquirem();
  alignas(Timer) std::byte onStack[sizeof(Timer)];  // if there is no memory
  void* cell = allocCell<Timer>(sleepCells(mp->p), &sleepPool);
  auto* t = new (cell != nullptr ? cell : onStack) Timer;
  t->f = goroutineReady;
  t->arg = gp;
  if (GUMP_UNLIKELY(fake)) {
    t->when = timeAfter(bubbleNow(), ns);
    t->state.store(kTimerFake, relaxed);  // no other thread knows t yet
    goparkcommit(armSleepFake, t, WaitReason::kSleep);
  } else {
    t->when = timeAfter(nanotime(), ns);
    goparkcommit(armSleep, t, WaitReason::kSleep);
  }
  if (GUMP_UNLIKELY(cell == nullptr)) return;
  mp = acquirem();
  freeCell(t, sleepCells(mp->p), &sleepPool);
  releasem(mp);
}

}  // namespace gump::rt
