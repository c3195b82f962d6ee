// The heap of timers, and the protocol between the heap and its timers; the
// invariants are in time.h. proc.cc decides which M waits for the earliest
// timer, and when that M is woken.
#include "runtime/sched/time.h"

#include <cstring>

#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/synctest.h"
#include "runtime/wait/timechan.h"

namespace gump::rt {

PMask timerpMask;

// ---- The heap itself --------------------------------------------------------

namespace {

constexpr uint32_t kArity = 4;
constexpr uint32_t kFirstCap = kPageSize / sizeof(TimerWhen);

void siftUp(TimerWhen* heap, uint32_t i) {
  const TimerWhen x = heap[i];
  while (i > 0) {
    const uint32_t parent = (i - 1) / kArity;
    if (x.when >= heap[parent].when) break;
    heap[i] = heap[parent];
    i = parent;
  }
  heap[i] = x;
}

// leastOfFour is the earliest of the four from i on. The result is
// unpredictable, so select it with conditional moves instead of branches.
uint32_t leastOfFour(const TimerWhen* heap, uint32_t i) {
  static_assert(kArity == 4);
  const bool b = heap[i + 1].when < heap[i].when;
  const uint32_t left = b ? i + 1 : i;
  const int64_t leftWhen = b ? heap[i + 1].when : heap[i].when;
  const bool d = heap[i + 3].when < heap[i + 2].when;
  const uint32_t right = d ? i + 3 : i + 2;
  const int64_t rightWhen = d ? heap[i + 3].when : heap[i + 2].when;
  return rightWhen < leftWhen ? right : left;
}

// leastChild is the earliest child. The children start at `first`, and there is
// at least one.
uint32_t leastChild(const TimerWhen* heap, uint32_t n, uint32_t first) {
  if (GUMP_LIKELY(first + kArity <= n)) return leastOfFour(heap, first);
  uint32_t least = first;
  for (uint32_t c = first + 1; c < n; c++) {
    if (heap[c].when < heap[least].when) least = c;
  }
  return least;
}

void siftDown(TimerWhen* heap, uint32_t n, uint32_t i) {
  const TimerWhen x = heap[i];
  for (;;) {
    const uint32_t first = i * kArity + 1;
    if (first >= n) break;
    const uint32_t least = leastChild(heap, n, first);
    if (x.when <= heap[least].when) break;
    heap[i] = heap[least];
    i = least;
  }
  heap[i] = x;
}

void heapify(TimerWhen* heap, uint32_t n) {
  if (n < 2) return;
  for (uint32_t i = (n - 2) / kArity + 1; i-- > 0;) siftDown(heap, n, i);
}

// length is the length of the heap. It is a hint unless the caller holds
// ts->mu.
uint32_t length(const Timers* ts) { return ts->len.load(relaxed); }

void updateMinWhenHeap(Timers* ts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  // seq_cst: see markModified and wakeNetPoller.
  if (length(ts) != 0) {
    ts->minWhenHeap.store(ts->heap[0].when, seq_cst);
    return;
  }
  ts->minWhenHeap.store(0, seq_cst);
  // The time left here was set by timers that have since left the heap. No
  // timer can be marked while the heap is empty, except as timersTake says.
  ts->minWhenModified.store(0, seq_cst);
}

// grow makes room for one more timer.
GUMP_NOINLINE void grow(Timers* ts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  const uint32_t cap = ts->cap == 0 ? kFirstCap : 2 * ts->cap;
  auto* heap =
      static_cast<TimerWhen*>(sysReserve(size_t{cap} * sizeof(TimerWhen)));
  if (heap == nullptr) fatalAll("out of memory (timers)");
  if (ts->cap != 0) {
    memcpy(heap, ts->heap, length(ts) * sizeof(TimerWhen));
    sysFree(ts->heap, size_t{ts->cap} * sizeof(TimerWhen));
  }
  ts->heap = heap;
  ts->cap = cap;
}

// push appends t to the array, without restoring the order of the heap.
void push(Timers* ts, Timer* t, int64_t when)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  const uint32_t n = length(ts);
  if (n == ts->cap) grow(ts);
  ts->heap[n] = {t, when};
  ts->len.store(n + 1, relaxed);  // read without the lock only as a hint
  if (n == 0 && ts->id >= 0 &&
      !timerpMask.read(static_cast<uint32_t>(ts->id))) {
    timerpMask.set(static_cast<uint32_t>(ts->id));
  }
}

// pop drops the last place of the heap.
void pop(Timers* ts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  ts->len.store(length(ts) - 1, relaxed);  // as in push
}

// deleteMin takes the head out of the heap.
void deleteMin(Timers* ts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  const uint32_t last = length(ts) - 1;
  ts->heap[0] = ts->heap[last];
  pop(ts);
  if (last > 1) siftDown(ts->heap, last, 0);
  updateMinWhenHeap(ts);
}

// addHeap puts t, which is in no heap, into that of ts.
void addHeap(Timers* ts, Timer* t)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu, t->mu) {
  t->ts = ts;
  // Relaxed: all other readers hold t->mu, or hold ts->mu and have found t in
  // the heap.
  t->state.store(t->state.load(relaxed) | kTimerHeaped, relaxed);
  push(ts, t, t->when);
  siftUp(ts->heap, length(ts) - 1);
  if (ts->heap[0].timer == t) updateMinWhenHeap(ts);
}

// ---- Marks ------------------------------------------------------------------

bool has(uint32_t state, uint32_t bit) { return (state & bit) != 0; }

// isFake reads a bit that is constant.
bool isFake(const Timer* t) { return has(t->state.load(relaxed), kTimerFake); }

// marks peeks at what has happened to t since the heap was last adjusted.
// seq_cst: see markModified.
uint32_t marks(const Timer* t) {
  return t->state.load(seq_cst) & (kTimerModified | kTimerZombie);
}

// markModified records that t, which is in a heap, has a new `when` and is no
// zombie (any more). Returns true if the wake time of the heap is earlier now.
//
// adjust clears minWhenModified and then loads the marks. We set the mark and
// then load minWhenModified. All four are seq_cst, so either adjust sees the
// mark, or we see the word cleared and set it again.
//
// The return value relies on the same argument. timersCheck stores minWhenHeap
// and then loads minWhenModified; we do the reverse, so one side sees the
// other's store. Either timersCheck takes our time into account, or we compare
// our time with the minWhenHeap that timersCheck has stored.
bool markModified(Timer* t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(t->mu) {
  Timers* ts = t->ts;
  const uint32_t s = t->state.load(relaxed);               // we hold mu
  if (has(s, kTimerZombie)) ts->zombies.add(-1, relaxed);  // a count
  t->state.store((s & ~uint32_t{kTimerZombie}) | kTimerModified, seq_cst);
  int64_t min = ts->minWhenModified.load(seq_cst);
  while (min == 0 || t->when < min) {
    if (!ts->minWhenModified.casWeak(min, t->when, seq_cst)) continue;
    const int64_t heap = ts->minWhenHeap.load(seq_cst);
    return heap == 0 || t->when < heap;
  }
  return false;
}

// markZombie records that t has nothing to do in its heap, if it is in one.
void markZombie(Timer* t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(t->mu) {
  const uint32_t s = t->state.load(relaxed);  // we hold mu
  if (!has(s, kTimerHeaped) || has(s, kTimerZombie)) return;
  t->state.store(s | kTimerZombie, relaxed);  // peeks are hints
  t->ts->zombies.add(1, relaxed);             // a count
}

// unheap records that the caller is taking t out of its heap. Returns true
// if the caller must free t after unlocking it.
bool unheap(Timer* t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(t->mu) {
  const uint32_t s = t->state.load(relaxed);                  // we hold mu
  if (has(s, kTimerZombie)) t->ts->zombies.add(-1, relaxed);  // a count
  t->ts = nullptr;
  constexpr uint32_t kOfHeap = kTimerHeaped | kTimerModified | kTimerZombie;
  t->state.store(s & ~kOfHeap, relaxed);  // as in addHeap
  return has(s, kTimerDropped);
}

// wantsHeap tells whether t should be in a heap but is in none.
bool wantsHeap(const Timer* t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(t->mu) {
  const uint32_t s = t->state.load(relaxed);  // we hold mu
  return !has(s, kTimerHeaped) && t->when > 0 &&
         (!has(s, kTimerChan) || t->blocked > 0);  // (T6)
}

// ---- Following the marks ----------------------------------------------------

// refreshHead applies the marks of the head. Returns false if it has none.
bool refreshHead(Timers* ts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  Timer* t = ts->heap[0].timer;
  if (t->ts != ts) fatalthrow("timers: bad ts");
  if (GUMP_LIKELY(marks(t) == 0)) return false;
  lock(&t->mu);
  const uint32_t s = t->state.load(relaxed);  // we hold mu
  bool dropped = false;
  if (has(s, kTimerZombie)) {
    dropped = unheap(t);
    deleteMin(ts);
  } else {
    t->state.store(s & ~uint32_t{kTimerModified}, relaxed);  // (T2)
    ts->heap[0].when = t->when;
    siftDown(ts->heap, length(ts), 0);
    updateMinWhenHeap(ts);
  }
  unlock(&t->mu);
  if (dropped) freeTimer(t);
  return true;
}

// popZombie removes the last timer of the heap if it is a zombie. That costs no
// sift. It also means that the timer which deleteMin moves to the head is more
// likely to stay in the heap.
bool popZombie(Timers* ts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  Timer* t = ts->heap[length(ts) - 1].timer;
  if (!has(marks(t), kTimerZombie)) return false;
  lock(&t->mu);
  const bool still = has(t->state.load(relaxed), kTimerZombie);  // we hold mu
  bool dropped = false;
  if (still) {
    dropped = unheap(t);
    pop(ts);
    if (length(ts) == 0) updateMinWhenHeap(ts);
  }
  unlock(&t->mu);
  if (dropped) freeTimer(t);
  return still;
}

// cleanHead leaves a head without marks and a last timer that is no zombie.
void cleanHead(Timers* ts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  while (length(ts) > 0 && (popZombie(ts) || refreshHead(ts))) {
  }
}

// adjust applies all marks in the heap, either always or only if a modified
// timer may be due.
void adjust(Timers* ts, int64_t now, bool always)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  const int64_t first = ts->minWhenModified.load(seq_cst);  // markModified
  if (!always && (first == 0 || first > now)) return;
  // Clear minWhenModified before the scan, so that a mark set during the scan
  // is counted. Until the scan ends, minWhenHeap stands in for the cleared
  // word. Otherwise the wake time would be too late (T4).
  ts->minWhenHeap.store(wakeTime(ts), seq_cst);
  ts->minWhenModified.store(0, seq_cst);
  bool changed = false;
  for (uint32_t i = 0; i < length(ts); i++) {
    Timer* t = ts->heap[i].timer;
    if (t->ts != ts) fatalthrow("timers: bad ts");
    if (marks(t) == 0) continue;
    lock(&t->mu);
    const uint32_t s = t->state.load(relaxed);  // we hold mu
    bool dropped = false;
    if (has(s, kTimerZombie)) {
      dropped = unheap(t);
      ts->heap[i] = ts->heap[length(ts) - 1];
      pop(ts);
      i--;
    } else {
      t->state.store(s & ~uint32_t{kTimerModified}, relaxed);  // (T2)
      ts->heap[i].when = t->when;
    }
    changed = true;
    unlock(&t->mu);
    if (dropped) freeTimer(t);
  }
  if (changed) heapify(ts->heap, length(ts));
  updateMinWhenHeap(ts);
}

// ---- Running ----------------------------------------------------------------

// nextWhen returns the time at which t is due again, if it was due at t->when
// and runs `delay` later. It skips the ticks that were missed. 0 means never.
int64_t nextWhen(const Timer* t, int64_t delay)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(t->mu) {
  if (t->period <= 0) return 0;
  int64_t skip;
  int64_t next;
  if (__builtin_mul_overflow(t->period, 1 + delay / t->period, &skip) ||
      __builtin_add_overflow(t->when, skip, &next)) {
    return kMaxWhen;
  }
  return next;
}

// fire unlocks t, which is due, and the heap ts if there is one, and calls f.
// After the first unlock t may be gone, unless it is a channel's.
void fire(Timers* ts, Timer* t, int64_t now)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // unlocks what the caller has locked
  const TimerFunc f = t->f;
  void* arg = t->arg;
  prefetch(arg);  // the G of a sleeping goroutine is cold by now
  const uint64_t seq = t->seq;
  const int64_t when = t->when;
  t->when = nextWhen(t, now - when);
  if (ts != nullptr && t->when == 0) {
    (void)unheap(t);  // not dropped: it was pending
    deleteMin(ts);
  } else if (ts != nullptr) {
    ts->heap[0].when = t->when;
    siftDown(ts->heap, length(ts), 0);
    updateMinWhenHeap(ts);
  }
  const bool isChan = has(t->state.load(relaxed), kTimerChan);  // constant
  if (isChan) timerChanBegin(t);
  unlock(&t->mu);
  if (ts != nullptr) unlock(&ts->mu);
  if (isChan) {
    timerChanSend(t, f, seq, when);
  } else {
    f(arg, seq, when);
  }
}

// lookAhead prefetches the timers one of which will be the next head. In a
// large heap each of them is cold.
void lookAhead(const Timers* ts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(ts->mu) {
  for (uint32_t c = 1; c <= kArity && c < length(ts); c++) {
    prefetch(ts->heap[c].timer);
  }
}

// runHead runs the head if it is due. Returns false if it is not due, or if the
// heap is empty.
bool runHead(Timers* ts,
             int64_t now) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // fire unlocks
  while (length(ts) > 0) {
    if (refreshHead(ts)) continue;
    if (ts->heap[0].when > now) return false;
    Timer* t = ts->heap[0].timer;
    lock(&t->mu);
    // If t was marked since refreshHead, look again. Without marks, its place
    // in the heap tells when it is due.
    if (marks(t) != 0) {
      unlock(&t->mu);
      continue;
    }
    lookAhead(ts);
    fire(ts, t, now);
    lock(&ts->mu);
    return true;
  }
  return false;
}

bool manyZombies(const Timers* ts) {
  // Both are counts read without the lock. A wrong one only makes us clean
  // earlier or later.
  return ts->zombies.load(relaxed) >
         static_cast<int32_t>(ts->len.load(relaxed) / 4);
}

}  // namespace

int64_t wakeTime(const Timers* ts) {
  // The order matters, because adjust moves a time from minWhenModified to
  // minWhenHeap. seq_cst: see markModified and wakeNetPoller.
  const int64_t modified = ts->minWhenModified.load(seq_cst);
  const int64_t heap = ts->minWhenHeap.load(seq_cst);
  return heap == 0 || (modified != 0 && modified < heap) ? modified : heap;
}

TimerCheck timersCheck(Timers* ts, int64_t* now, bool tidy) {
  const int64_t next = wakeTime(ts);
  if (next == 0) return {0, false};
  if (*now == 0) *now = nanotime();
  if (*now < next && !(tidy && manyZombies(ts))) return {next, false};
  bool ran = false;
  lock(&ts->mu);
  adjust(ts, *now, /*always=*/false);
  while (runHead(ts, *now)) ran = true;
  if (tidy && manyZombies(ts)) adjust(ts, *now, /*always=*/true);
  // The time of the head, or of a timer modified meanwhile. A thread that
  // modifies a timer after this look wakes an M.
  const int64_t wake = wakeTime(ts);
  unlock(&ts->mu);
  return {wake, ran};
}

bool timersDueNow(const Timers* ts) {
  const int64_t next = wakeTime(ts);
  return next != 0 && next <= nanotime();
}

bool timersDue(Timers* ts) {
  return ++ts->skipped % 16 == 0 && timersDueNow(ts);
}

// ---- Adding, modifying, stopping --------------------------------------------

namespace {

// sweepTimers removes stopped timers if there are many.
void sweepTimers(Timers* ts) {
  constexpr uint32_t kWorthIt = 64;
  if (length(ts) < kWorthIt || !manyZombies(ts)) return;  // both are hints
  lock(&ts->mu);
  adjust(ts, 0, /*always=*/true);
  unlock(&ts->mu);
}

// insertFake adds t to the heap of the caller's bubble. No M has to know: the
// bubble's root looks at the heap when no other goroutine of the bubble runs.
void insertFake(Timer* t) { (void)timerAdd(bubbleTimers(), t); }

// beginFake lets t, which was set and is in no heap, fire at once if it is due,
// and puts it into the heap of the caller's bubble otherwise. (Go: modify.) A
// timer of a P need not fire at once, because some M soon looks at it. The root
// of a bubble looks only when all other goroutines are blocked, and one of them
// may be waiting for t by other means, such as a loop.
//
// The caller holds no lock. If another goroutine has stopped or reset t
// meanwhile, both calls below go by its new state.
void beginFake(Timer* t) {
  // The timer of a function may be gone after it has fired.
  const bool isChan = has(t->state.load(relaxed), kTimerChan);  // constant
  if (timerRunIfDue(t) && !isChan) return;
  insertFake(t);  // does nothing if t is not pending any more
}

// insertReal adds t to the heap of the current P and wakes an M that must know
// of it. Without a P it uses the heap of P 0, which never goes away. `parks`
// says that the caller is about to park.
void insertReal(Timer* t, bool parks) {
  netpollGenericInit();
  M* mp = getg()->m;
  P* pp = mp->p;
  const int64_t when =
      timerAdd(pp != nullptr ? &pp->timers : &allp[0]->timers, t);
  // An M with a P enters the scheduler, and timersCheck removes zombies there.
  // But P 0 may be idle until its first timer is due, while foreign threads
  // create and stop others.
  if (pp == nullptr) sweepTimers(&allp[0]->timers);
  if (when == 0) return;
  // This M may become the one that sleeps in the poller. If we woke another M
  // now, that M would find nothing to do. The scheduler calls wakeNetPoller
  // later if it is still needed.
  if (parks && pp != nullptr) {
    mp->timerAdded = true;
  } else {
    wakeNetPoller(when);
  }
}

}  // namespace

int64_t timerAdd(Timers* ts, Timer* t) {
  int64_t earlier = 0;
  lock(&ts->mu);
  cleanHead(ts);
  lock(&t->mu);
  if (wantsHeap(t)) {
    const int64_t before = wakeTime(ts);
    if (before == 0 || t->when < before) earlier = t->when;
    addHeap(ts, t);
  }
  unlock(&t->mu);
  unlock(&ts->mu);
  return earlier;
}

namespace {
// begin inserts t, which the caller has just set. insertToPark inserts t when
// the caller is about to park, with the lock of t's channel held.
void begin(Timer* t) {
  if (GUMP_UNLIKELY(isFake(t))) {
    beginFake(t);
  } else {
    insertReal(t, /*parks=*/false);
  }
}
void insertToPark(Timer* t) {
  if (GUMP_UNLIKELY(isFake(t))) {
    insertFake(t);
  } else {
    insertReal(t, /*parks=*/true);
  }
}
}  // namespace

bool timerModify(Timer* t, int64_t when, int64_t period)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // takes the channel's lock if t has one
  if (when <= 0) fatalthrow("timer when must be positive");
  if (period < 0) fatalthrow("timer period must be non-negative");
  const bool isChan = has(t->state.load(relaxed), kTimerChan);  // constant
  if (isChan) timerChanLock(t);
  lock(&t->mu);
  bool pending = t->when > 0;
  if (isChan) pending |= timerChanForget(t);
  t->when = when;
  t->period = period;
  const bool heaped = has(t->state.load(relaxed), kTimerHeaped);
  // A channel's timer on which no goroutine waits stays a zombie in its heap
  // (T6).
  const bool earlier = heaped && (!isChan || t->blocked > 0) && markModified(t);
  const bool add = wantsHeap(t);
  unlock(&t->mu);
  if (isChan) pending |= timerChanUnlock(t);
  if (add) begin(t);
  if (earlier && !isFake(t)) wakeNetPoller(when);
  return pending;
}

void timerStart(Timer* t, int64_t when) {
  // No lock is needed: no other thread knows t, and insert publishes it under
  // t->mu.
  t->when = when;
  begin(t);
}

bool timerStop(Timer* t) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as timerModify
  const bool isChan = has(t->state.load(relaxed), kTimerChan);  // constant
  if (isChan) timerChanLock(t);
  lock(&t->mu);
  bool pending = t->when > 0;
  if (isChan) pending |= timerChanForget(t);
  t->when = 0;
  markZombie(t);
  unlock(&t->mu);
  if (isChan) pending |= timerChanUnlock(t);
  return pending;
}

void timerDrop(Timer* t) {
  lock(&t->mu);
  const uint32_t s = t->state.load(relaxed);  // we hold mu
  const bool heaped = has(s, kTimerHeaped);
  if (heaped && !has(s, kTimerZombie)) fatalthrow("timerDrop: timer in use");
  t->state.store(s | kTimerDropped, relaxed);  // read under mu
  unlock(&t->mu);
  if (!heaped) freeTimer(t);
}

void timerBlock(Timer* t) {
  lock(&t->mu);
  bool earlier = false;
  // `when` does not change here. But while t was a zombie, the heap's wake time
  // did not have to account for it.
  t->blocked++;
  if (has(t->state.load(relaxed), kTimerZombie) && t->when > 0) {
    earlier = markModified(t);
  }
  const bool add = wantsHeap(t);
  const int64_t when = t->when;
  unlock(&t->mu);
  if (add) insertToPark(t);
  if (earlier && !isFake(t)) wakeNetPoller(when);
}

void timerUnblock(Timer* t) {
  lock(&t->mu);
  // `when` stays, because a later receive goes by it (timerRunIfDue).
  if (--t->blocked == 0) markZombie(t);
  unlock(&t->mu);
}

bool timerRunIfDue(Timer* t) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // fire unlocks
  lock(&t->mu);
  const uint32_t s = t->state.load(relaxed);  // we hold mu
  const int64_t now = isFake(t) ? bubbleNow() : nanotime();
  // If t is in a heap and no zombie, a goroutine waits on it. Leave it to its
  // heap.
  if ((has(s, kTimerHeaped) && !has(s, kTimerZombie)) || t->when == 0 ||
      t->when > now) {
    unlock(&t->mu);
    return false;
  }
  fire(nullptr, t, now);
  wakep();  // a goroutine may have begun to wait, and f has readied it
  return true;
}

void timersTake(Timers* dst, Timers* src)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the array is moved between two locks
  lock(&src->mu);
  // No M runs timers now, but threads without a P may stop and reset them. As
  // soon as t->ts is dst, such a thread marks dst, although t gets there a
  // little later. Until then the mark may be lost, because cleanHead clears
  // minWhenModified of an empty heap. So adjust looks at all timers of dst at
  // the end.
  uint32_t n = 0;
  for (uint32_t i = 0; i < length(src); i++) {
    Timer* t = src->heap[i].timer;
    lock(&t->mu);
    const uint32_t s = t->state.load(relaxed);  // we hold mu
    if (has(s, kTimerZombie)) {
      const bool dropped = unheap(t);
      unlock(&t->mu);
      if (dropped) freeTimer(t);
      continue;
    }
    t->ts = dst;
    t->state.store(s & ~uint32_t{kTimerModified}, relaxed);  // as in adjust
    src->heap[n++] = {t, t->when};
    unlock(&t->mu);
  }
  TimerWhen* heap = src->heap;
  const uint32_t cap = src->cap;
  src->heap = nullptr;
  src->cap = 0;
  src->len.store(0, relaxed);          // as in push
  src->minWhenHeap.store(0, relaxed);  // unread: the P is going away
  src->minWhenModified.store(0, relaxed);
  unlock(&src->mu);
  if (cap == 0) return;
  lock(&dst->mu);
  for (uint32_t i = 0; i < n; i++) push(dst, heap[i].timer, heap[i].when);
  heapify(dst->heap, length(dst));
  adjust(dst, 0, /*always=*/true);
  updateMinWhenHeap(dst);
  unlock(&dst->mu);
  sysFree(heap, size_t{cap} * sizeof(TimerWhen));
}

// ---- For bubbles ------------------------------------------------------------

int64_t timersFirst(Timers* ts) {
  lock(&ts->mu);
  adjust(ts, kMaxWhen, /*always=*/false);
  cleanHead(ts);
  const int64_t first = length(ts) == 0 ? 0 : ts->heap[0].when;
  unlock(&ts->mu);
  return first;
}

namespace {

// takeLast takes the last timer out of the heap, or returns nullptr if the heap
// is empty. It sets *had to true if the timer was pending, and the caller must
// then discard the timer. Otherwise the timer may have been freed.
Timer* takeLast(Timers* ts, bool* had) {
  M* mp = acquirem();
  Timer* t = nullptr;
  bool dropped = false;
  lock(&ts->mu);
  if (length(ts) > 0) {
    t = ts->heap[length(ts) - 1].timer;
    lock(&t->mu);
    const uint32_t s = t->state.load(relaxed);  // we hold mu
    *had = !has(s, kTimerZombie);
    if (*had && has(s, kTimerChan)) {
      fatalthrow("timersTakePending: timer in use");
    }
    t->when = 0;
    dropped = unheap(t);
    pop(ts);
    unlock(&t->mu);
  }
  if (length(ts) == 0) updateMinWhenHeap(ts);
  unlock(&ts->mu);
  if (dropped) freeTimer(t);
  releasem(mp);
  return t;
}

}  // namespace

Timer* timersTakePending(Timers* ts) {
  for (;;) {
    bool had = false;
    Timer* t = takeLast(ts, &had);
    if (t == nullptr || had) return t;
  }
}

// ---- For the scheduler ------------------------------------------------------

int64_t timeSleepUntil() {
  // Orders the caller's store before the mask loads below, which are only
  // acquire loads.
  fence(seq_cst);
  int64_t first = kMaxWhen;
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    if (!timerpMask.read(static_cast<uint32_t>(i))) continue;
    const int64_t w = wakeTime(&allp[i]->timers);
    if (w != 0 && w < first) first = w;
  }
  return first;
}

int64_t timersTogether(int64_t first) {
  // If the tops show so many, there are probably more below them.
  constexpr int kMany = 3;
  int64_t last = first;
  int together = 0;
  const int64_t end = timeAfter(first, kTogetherNS);
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    Timers* ts = &allp[i]->timers;
    if (!timerpMask.read(static_cast<uint32_t>(i)) || wakeTime(ts) > end) {
      continue;
    }
    // If the lock is held, an M is awake and may work on this heap for long.
    // No M polls the network while we wait, so do without this heap.
    if (!trylock(&ts->mu)) continue;
    // The head and its children. T1 keeps the timers, while we hold ts->mu.
    const uint32_t top = std::min(length(ts), 1 + kArity);
    for (uint32_t k = 0; k < top; k++) {
      const int64_t when = ts->heap[k].when;
      if (when <= first || when > end) continue;
      // A timer with a mark was stopped, or its time here is stale. If it is
      // due soon nevertheless, leaving it out costs a wake-up.
      if (marks(ts->heap[k].timer) != 0) continue;
      last = std::max(last, when);
      together++;
    }
    unlock(&ts->mu);
  }
  return together < kMany ? last : end;
}

int64_t timersDelay(int64_t first) {
  // Read the clock last: the thread may be preempted during the look.
  const int64_t until = timersTogether(first);
  const int64_t now = nanotime();
  return now < first ? until - now : 0;
}

int64_t timeAfter(int64_t now, int64_t ns) {
  int64_t when;
  if (ns <= 0) return now;
  return __builtin_add_overflow(now, ns, &when) ? kMaxWhen : when;
}

void breakPollAfter(int64_t when) {
  // 0 means that the poll has no end, or that the M is on its way in or out.
  // seq_cst: see wakeNetPoller.
  const int64_t until = sched.pollUntil.load(seq_cst);
  if (until == 0 || until > when) netpollBreak();
}

namespace {
// wakeSysmonBy does not end a short sleep that would end less than this many ns
// after the timer.
constexpr int64_t kWakeSysmonSlackNS = 1'000'000;
}  // namespace

void wakeSysmonBy(int64_t when) {
  // seq_cst: see shortSleep in sysmon.cc.
  if (sched.sysmonLook.load(seq_cst) - when < kWakeSysmonSlackNS) return;
  // Relaxed: it pairs with no other access, because sysmon reads the timers
  // again.
  if (sched.sysmonWakeNow.cas(0, 1, relaxed)) {
    futexwakeup(&sched.sysmonWakeNow, 1);
  }
}

void wakeNetPoller(int64_t when) {
  // The caller's stores to minWhenHeap or minWhenModified were A1 of the essay
  // in proc.cc; this is A2. Because of this fence, neither those stores nor the
  // loads below have to be seq_cst for that argument.
  fence(seq_cst);
  fuzzPoint();
  // npidle and nmspinning are hints. An M that is idle or looks for work will
  // run the timer. If it finds other work, or no P, it calls wakeSysmonBy
  // itself.
  if (sched.npidle.load(relaxed) + sched.nmspinning.load(relaxed) == 0) {
    wakeSysmonBy(when);
  }
  if (sched.lastpoll.load(seq_cst) == 0) {
    breakPollAfter(when);
  } else {
    // A new spinning M looks at the timers, then sleeps in the poller.
    wakepAnywhere();
  }
}

}  // namespace gump::rt
