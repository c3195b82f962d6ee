// The slots of a group: which goroutines have one, and which one gets the next.
//
// A goroutine of a group has a slot exactly while it runs with a P. So each
// path on which a G begins to run takes a slot, and each path on which it stops
// gives the slot up:
//   takes                                 gives
//    * execute (groupAdmit)                * gopark (groupLeave, groupNext)
//    * exitsyscall (groupEnter)            * the end of the goroutine
//    * the hand-over of a P to a locked    * gosched, goyield, gopreempt
//      M (groupGrant), and to a thread     * entersyscall
//      that is preempted in place          * presumeBlocked (groupTaken)
//      (groupGrantInPlace)                 * preemption in place
//                                          * moveIn of home.cc (groupLeave)
//
// A goroutine on a home is in no group: (T6) of home.cc. One that comes back
// from there joins as a runnable goroutine (moveOut), and takes a slot as any
// other.
//
// Runnable goroutines wait in the same queues as all others. Only when one is
// about to run does it turn out that its group is full. Then it goes into the
// group's queue, and the M looks for other work. A goroutine that gives its
// slot up takes the next one out of that queue, makes it an ordinary runnable
// goroutine again, and keeps the slot for it ("released"). So no goroutine of a
// full group occupies a P, and run queues and stealing know nothing of groups.
//
// One race remains. A goroutine finds its group full and is about to queue,
// while the last slot becomes free and the giver finds the queue empty. So both
// sides write first and read second:
//
//   a goroutine that queues (enqueue)     a goroutine that leaves (leave)
//     E1  push it; queued = size            L1  running -= 1
//         -- StoreLoad --                       -- StoreLoad --
//     E2  is a slot free? Then take the     L2  is queued != 0? Then take the
//         next of the queue                     next of the queue
//
// All four are seq_cst. If L2 reads the value from before E1, then L1 precedes
// E2 in their single total order, and E2 finds the slot. SetMaxProcs that
// raises the limit is a leaver too: it stores the limit (L1), and then reads
// queued (L2). Taking the next of the queue is done under mu, slot by slot,
// until the queue is empty or no slot is free. So a thread that is in E2 or L2
// meanwhile either sees the other's change or waits for mu and looks after it.
//
// Invariants:
//  (U1) running + released <= limit. Two exceptions: SetMaxProcs has lowered
//       the limit, or (U5).
//  (U2) The queue is not empty only if no slot is free, or if a thread is
//       between E1 and E2, or between L1 and L2.
//  (U3) A released goroutine is in a run queue. It has been published there as
//       any goroutine that is readied, and wakep was called after that (place).
//       So the essay of proc.cc makes an M find it. (One that is kept over a
//       stop of the world is found as the others that are kept.) If the slot
//       that is kept for it has been taken (U5), or the limit was lowered, it
//       goes to the front of the group's queue. With several NUMA nodes, that
//       run queue is one of the node where it ran last ((N3) of proc_node.cc),
//       and the M is woken by wakepAnywhere.
//  (U4) A granted goroutine has its slot, and a P is on its way to its thread.
//       If the P comes back (requeueDuringStop), so does the slot.
//  (U5) A goroutine that is preempted in place may hold a lock that all threads
//       need, for example malloc's. A new thread needs it, too, and a P may
//       wait for a new thread (startm). So that P goes to such a goroutine,
//       even if that one is in a group's queue (groupsTakeInPlace), and even if
//       its slot is kept for another. Only goroutines that really run can keep
//       it from its slot. They are preempted after their slice, because sysmon
//       looks at the queue of their group (groupWants).
//
// What runs without a slot is what runs without a P: a goroutine that comes
// back from an undeclared call during which its P was taken, until it enters
// the runtime or is preempted in place; and a goroutine that main leaves
// behind.
//
// Costs: park, ready, yield and execute test G::special. A goroutine without a
// group pays no more.
//
// Rejected:
//  - A slot that stays with a goroutine in a system call until another wants
//    it, as a P does. The goroutine that wants it would have to wait for
//    sysmon.
//  - Queueing a goroutine of a full group when it is readied. The group may
//    have a slot by the time that a P is free.
#include "runtime/sched/group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "gump/internal/linkname.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runq.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

Atomic<Group*> groupChunks[kGroupChunks];

namespace {

// GroupState has two counts in one word.
//
//   | released: 16 | running: 16 |
//
//   running   has a slot: runs, or is granted one
//   released  slots that are kept: (U3)
constexpr uint32_t kRunning = 1;
constexpr uint32_t kReleased = 1 << 16;
static_assert(2 * kMaxGomaxprocs < 1 << 16);

int32_t runningOf(uint32_t s) { return static_cast<int32_t>(s & 0xffff); }
int32_t releasedOf(uint32_t s) { return static_cast<int32_t>(s >> 16); }
int32_t usedOf(uint32_t s) { return runningOf(s) + releasedOf(s); }

// countAnew is countRunnable for a P that counts another group, or for no P.
// On, P, Locks, Parks: as countRunnable.
GUMP_NOINLINE void countAnew(P* pp, Group* g, int32_t n) {
  if (pp == nullptr) {
    g->runnable.add(n, relaxed);
    return;
  }
  // Both are written by us only.
  if (Group* old = pp->countedGroup.load(relaxed); old != nullptr) {
    LockScope l(&old->mu);
    old->runnable.add(pp->countedRunnable.load(relaxed), relaxed);
    pp->countedRunnable.store(0, relaxed);
    pp->countedGroup.store(nullptr, relaxed);
  }
  pp->countedGroup.store(g, release);  // pairs with groupRunnable
  pp->countedRunnable.store(n, relaxed);
}

// countRunnable adds n to the number of runnable goroutines of g. A P keeps the
// changes of one group to itself, because a read-modify-write for each wake-up
// and each switch would cost more than the rest of it. mu is held while they
// move to the group, so that groupRunnable misses none of them. That is the mu
// of another group, so the caller holds none.
// On: any, m.locks > 0.  P: either.  Locks: takes a leaf.  Parks: no.
GUMP_ALWAYS_INLINE void countRunnable(Group* g, int32_t n) {
  P* pp = getg()->m->p;
  // Both are written by us only.
  if (GUMP_UNLIKELY(pp == nullptr || pp->countedGroup.load(relaxed) != g)) {
    countAnew(pp, g, n);
    return;
  }
  pp->countedRunnable.store(pp->countedRunnable.load(relaxed) + n, relaxed);
}

// The groups. Guards the free list, and the making of cells.
Mutex groupsLock{LockRank::kLeaf};
Group* groupsFree ABSL_GUARDED_BY(groupsLock) = nullptr;
Atomic<uint32_t> lastGroup;  // the highest id; written under groupsLock

// tooMany tells whether more goroutines of g run than may, because the limit
// was lowered. A hint.
bool tooMany(const Group* g) {
  return runningOf(g->state.load(relaxed)) > g->limit.load(relaxed);
}

// ---- Slots ------------------------------------------------------------------

// takeSlot takes a slot for gp, which is runnable. Returns false if the group
// is full. Slots that are kept for others count as taken if `keptCount`. After
// true the caller counts gp as one that runs.
bool takeSlot(Group* g, const G* gp, bool keptCount) {
  const bool kept = gp->groupFlags == kGroupReleased;
  uint32_t s = g->state.load(relaxed);  // a guess; the CAS decides
  for (;;) {
    // If it is stale, enqueue looks again (E2).
    const int32_t limit = g->limit.load(relaxed);
    const int32_t used = kept || !keptCount ? runningOf(s) : usedOf(s);
    if (used >= limit) return false;
    // Relaxed: a slot that is taken is no news for E2 and L2. The queue has
    // ordered us after the goroutine's last run.
    if (g->state.casWeak(s, s + kRunning - (kept ? kReleased : 0), relaxed)) {
      return true;
    }
  }
}

// runs is takeSlot, and counts gp as one that runs.
bool runs(Group* g, const G* gp, bool keptCount) {
  if (!takeSlot(g, gp, keptCount)) return false;
  countRunnable(g, -1);
  return true;
}

// keepSlot keeps a free slot for the next goroutine of the queue. Returns false
// if no slot is free.
bool keepSlot(Group* g) {
  // Both seq_cst: E2.
  uint32_t s = g->state.load(seq_cst);
  while (usedOf(s) < g->limit.load(seq_cst)) {
    if (g->state.casWeak(s, s + kReleased, seq_cst)) return true;
  }
  return false;
}

// push queues gp. One for which a slot was kept in vain goes to the front.
void push(Group* g, G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(g->mu) {
  const bool front = gp->groupFlags == kGroupReleased;
  if (front) g->state.add(uint32_t{0} - kReleased, seq_cst);
  gp->groupFlags = kGroupQueued;
  if (front) {
    g->queue.push(gp);
  } else {
    g->queue.pushBack(gp);
  }
  g->queued.store(g->queue.size, seq_cst);  // E1
}

// takeNext moves goroutines for which there are slots from the queue to *out.
void takeNext(Group* g, GQueue* out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(g->mu) {
  while (!g->queue.empty() && keepSlot(g)) {
    G* gp = g->queue.pop();
    gp->groupFlags = kGroupReleased;
    out->pushBack(gp);
  }
  g->queued.store(g->queue.size, seq_cst);  // L2: is it 0?
}

// Where says which run queue a released goroutine goes to.
enum class Where : uint8_t {
  kLocal,   // the ring of this P, as a goroutine that is readied
  kGlobal,  // the global queue, as one that has yielded
};

// isElsewhere returns true if gp, which may not have begun, has run last on
// another node than that of pp.
bool isElsewhere(const G* gp, const P* pp) {
  return severalNodes() && gp->stack.lo != 0 && nodeOf(gp) != nodeOf(pp);
}

// queueEach puts the goroutines of q, which are released, into the global
// queue, each on the node where it ran last (nodeToResume). An M is woken for
// them by wakepAnywhere.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void queueEach(GQueue* q) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  while (G* gp = q->pop()) globrunqputOn(nodeToResume(gp), gp);
}

// place makes the goroutines of q, which are released, ordinary runnable ones,
// and wakes an M for them (U3).
void place(GQueue* q, Where where) {
  if (q->empty()) return;
  P* pp = getg()->m->p;
  GQueue global;
  while (G* gp = q->pop()) {
    if (pp != nullptr && isElsewhere(gp, pp)) {
      global.pushBack(gp);  // (N3) of proc_node.cc
    } else if (pp != nullptr && where == Where::kLocal && !gp->inPlace) {
      runqput(pp, gp, /*next=*/false);
    } else if (pp != nullptr && !gp->inPlace && soleP()) {
      pushYielded(pp, gp);
    } else {
      global.pushBack(gp);  // startm finds those that are preempted in place
    }
  }
  if (!global.empty()) {
    LockScope l(&sched.lock);
    queueEach(&global);
  }
  fence(seq_cst);  // W1 of proc.cc: runqput has published by a plain release
  wakepAnywhere();
}

// leave gives up a slot.
GUMP_NOINLINE void leave(Group* g, Where where) {
  g->state.add(uint32_t{0} - kRunning, seq_cst);  // L1
  if (g->queued.load(seq_cst) == 0) return;       // L2
  GQueue next;
  {
    LockScope l(&g->mu);
    takeNext(g, &next);
  }
  place(&next, where);
}

// passOn gives the slot of the goroutine that leaves this M to the first of the
// queue, if that one can run here at once and schedule would find no other
// goroutine. It never comes to a run queue, so no M need be woken. Returns
// nullptr if nothing has happened. Otherwise the caller counts the G as one
// that runs.
G* passOn(Group* g) ABSL_EXCLUSIVE_LOCKS_REQUIRED(g->mu) {
  G* gp = g->queue.head;
  const M* mp = getg()->m;
  if (gp == nullptr || gp->lockedm != nullptr || tooMany(g) ||
      isElsewhere(gp, mp->p) || !nothingElseToRun(mp)) {
    return nullptr;
  }
  (void)g->queue.pop();
  g->queued.store(g->queue.size, seq_cst);  // as in takeNext
  gp->groupFlags = kGroupGranted;
  return gp;
}

// enqueueInPlace is enqueue for a gp that is preempted in place. Once main has
// ended, no M takes it from there. endMain looks at the queues under sched.lock
// (groupsFlushInPlace).
void enqueueInPlace(Group* g, G* gp) {
  GQueue next;
  {
    LockScope l(&sched.lock);
    if (sched.mainEnded.load(relaxed)) {  // written under sched.lock
      globrunqput(gp);
      releasePreempted();
      return;
    }
    LockScope q(&g->mu);
    push(g, gp);
    takeNext(g, &next);  // E2
  }
  place(&next, Where::kGlobal);
}

// enqueue puts gp into the queue of its group, which was full. From then on it
// may run elsewhere.
GUMP_NOINLINE void enqueue(Group* g, G* gp) {
  if (gp->inPlace) {
    enqueueInPlace(g, gp);
    return;
  }
  GQueue next;
  {
    LockScope l(&g->mu);
    push(g, gp);
    takeNext(g, &next);  // E2
  }
  place(&next, Where::kLocal);
}

// takeOver tries to give gp the slot of the goroutine that is about to leave
// this M (groupNext).
GUMP_ALWAYS_INLINE bool takeOver(const G* gp, M* mp) {
  Group* g = mp->handing;
  if (g == nullptr || g->id != gp->group || gp->groupFlags != 0) return false;
  // Hints. A goroutine that queues now finds the group full, as it is, and gets
  // the next slot.
  if (g->queued.load(relaxed) != 0 || tooMany(g)) return false;
  mp->handing = nullptr;
  // gp is not runnable any more, but if the other one yields, it is now.
  if (!mp->handingYields) countRunnable(g, -1);
  return true;
}

// admit is groupAdmit for a gp that takes over no slot.
GUMP_NOINLINE bool admit(G* gp) {
  Group* g = groupOf(gp);
  if (g == nullptr) return true;
  if (gp->groupFlags != kGroupGranted && !runs(g, gp, /*keptCount=*/true)) {
    enqueue(g, gp);
    return false;
  }
  gp->groupFlags = 0;
  return true;
}

}  // namespace

// ---- A goroutine begins to run ----------------------------------------------

bool groupAdmit(G* gp) { return takeOver(gp, getg()->m) || admit(gp); }

bool groupGrant(G* gp) {
  Group* g = groupOf(gp);
  if (g == nullptr) return true;
  if (!runs(g, gp, /*keptCount=*/true)) {
    enqueue(g, gp);
    return false;
  }
  gp->groupFlags = kGroupGranted;
  return true;
}

bool groupGrantInPlace(G* gp) {
  Group* g = groupOf(gp);
  if (g == nullptr) return true;
  if (!runs(g, gp, /*keptCount=*/false)) return false;
  gp->groupFlags = kGroupGranted;
  return true;
}

void groupUngrant(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (gp->groupFlags != kGroupGranted) return;
  Group* g = groupOf(gp);
  gp->groupFlags = 0;
  countRunnable(g, 1);
  g->state.add(uint32_t{0} - kRunning, seq_cst);  // L1
  if (g->queued.load(seq_cst) == 0) return;       // L2
  GQueue next;
  LockScope l(&g->mu);
  takeNext(g, &next);
  // The caller's stop of the world ends with a wakepAnywhere, and so does the
  // wait for the next Run.
  queueEach(&next);
}

void groupRefuse(G* gp) {
  Group* g = groupOf(gp);
  if (g == nullptr) return;
  countRunnable(g, 1);
  leave(g, Where::kGlobal);
}

bool groupEnter(const G* gp) {
  Group* g = groupOf(gp);
  if (g == nullptr) return true;
  uint32_t s = g->state.load(relaxed);  // a guess; the CAS decides
  // If the limit is stale, the caller goes to groupAdmit.
  while (usedOf(s) < g->limit.load(relaxed)) {
    if (g->state.casWeak(s, s + kRunning, relaxed)) return true;  // as takeSlot
  }
  return false;
}

// ---- A goroutine stops running ----------------------------------------------

void groupLeave(Group* g) { leave(g, Where::kLocal); }

void groupTaken(Group* g) { leave(g, Where::kGlobal); }

G* groupParked(Group* g) {
  if (g->queued.load(relaxed) != 0) {  // a hint; leave looks again
    G* next;
    {
      LockScope l(&g->mu);
      next = passOn(g);
    }
    if (next != nullptr) {
      countRunnable(g, -1);
      return next;
    }
  }
  leave(g, Where::kLocal);
  return nullptr;
}

void groupKeep(G* gp) {
  if (gp->group != 0) gp->groupFlags = kGroupGranted;
}

bool groupYield(G* gp, G** next) {
  Group* g = groupOf(gp);
  if (g == nullptr) return false;
  countRunnable(g, 1);
  if (g->queued.load(relaxed) == 0) {  // a hint; leave looks again
    leave(g, Where::kGlobal);
    return false;
  }
  // gp would go to the group's queue as soon as an M took it from the global
  // one. The goroutines that wait there take its place in the global queue.
  GQueue out;
  {
    LockScope l(&g->mu);
    *next = passOn(g);
    push(g, gp);
    if (*next == nullptr) g->state.add(uint32_t{0} - kRunning, seq_cst);
    // E2, and in the second case L2. If passOn has emptied the queue, a
    // goroutine that left meanwhile has found no other.
    takeNext(g, &out);
  }
  if (*next != nullptr) countRunnable(g, -1);
  place(&out, Where::kGlobal);
  return true;
}

void groupYieldNow(G* gp) {
  Group* g = groupOf(gp);
  if (g == nullptr) return;
  countRunnable(g, 1);
  leave(g, Where::kGlobal);
}

void groupHold(G* gp) {
  Group* g = groupOf(gp);
  if (g == nullptr) return;
  // No slot becomes free. (If the limit was lowered, groupAdmit finds out.)
  gp->groupFlags = kGroupReleased;
  countRunnable(g, 1);
  g->state.add(kReleased - kRunning, seq_cst);
}

bool groupPreempted(G* gp, bool lost)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  Group* g = groupOf(gp);
  if (g == nullptr) return false;
  countRunnable(g, 1);
  if (lost) return false;
  g->state.add(uint32_t{0} - kRunning, seq_cst);   // L1
  if (g->queued.load(seq_cst) == 0) return false;  // L2
  GQueue next;
  LockScope l(&g->mu);
  takeNext(g, &next);
  const bool any = !next.empty();
  queueEach(&next);
  return any;
}

G* groupNext(const G* gp, M* mp, bool yields) {
  Group* g = groupOf(gp);
  mp->handing = g;
  mp->handingYields = yields;
  G* next = directNext(mp);
  const bool kept = std::exchange(mp->handing, nullptr) != nullptr;
  if (next == nullptr) {
    if (!kept) fatalthrow("groupNext: slot lost");
    return nullptr;
  }
  if (kept) {
    if (yields) countRunnable(g, 1);
    leave(g, yields ? Where::kGlobal : Where::kLocal);
  }
  return next;
}

// ---- Goroutines that no scheduler looks for ---------------------------------

namespace {

// takeInPlaceOf takes from g's queue the first goroutine that is preempted in
// place and for which there is a slot, or, if `any`, without a slot.
G* takeInPlaceOf(Group* g, bool any) {
  if (g->queued.load(relaxed) == 0) return nullptr;  // a hint
  G* found = nullptr;
  {
    LockScope l(&g->mu);
    GQueue before;
    while (G* gp = g->queue.pop()) {
      if (gp->inPlace && (any || takeSlot(g, gp, /*keptCount=*/false))) {
        found = gp;
        break;
      }
      before.pushBack(gp);
    }
    before.pushBackAll(&g->queue);
    g->queue = before;
    g->queued.store(g->queue.size, seq_cst);  // as in takeNext
  }
  if (found == nullptr || any) return found;
  countRunnable(g, -1);
  found->groupFlags = kGroupGranted;
  return found;
}

}  // namespace

G* groupsTakeInPlace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  const uint32_t n = lastGroup.load(acquire);  // pairs with takeCell
  for (uint32_t id = 1; id <= n; id++) {
    if (G* gp = takeInPlaceOf(groupAt(id), /*any=*/false)) return gp;
  }
  return nullptr;
}

void groupsFlushInPlace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  const uint32_t n = lastGroup.load(acquire);  // pairs with takeCell
  for (uint32_t id = 1; id <= n; id++) {
    while (G* gp = takeInPlaceOf(groupAt(id), /*any=*/true)) {
      gp->groupFlags = 0;
      globrunqput(gp);
    }
  }
}

void groupUncount(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  Group* g = groupOf(gp);
  if (g == nullptr) return;
  const bool kept = gp->groupFlags == kGroupReleased;
  gp->groupFlags = 0;
  countRunnable(g, -1);
  if (!kept) return;
  g->state.add(uint32_t{0} - kReleased, seq_cst);  // L1
  if (g->queued.load(seq_cst) == 0) return;        // L2
  // The slot that was kept for gp is free.
  GQueue next;
  LockScope l(&g->mu);
  takeNext(g, &next);
  queueEach(&next);  // for the next Run
}

// ---- Members ----------------------------------------------------------------

void groupReady(const G* gp) {
  if (Group* g = groupOf(gp)) countRunnable(g, 1);
}

void groupJoin(G* gp, uint32_t id) {
  Group* g = groupAt(id);
  groupRetain(g);
  gp->group = id;
  gp->groupFlags = 0;
  gp->special = true;
  countRunnable(g, 1);
}

void groupEnd(Group* g) {
  leave(g, Where::kLocal);
  groupRelease(g);
}

void groupRetainId(uint32_t id) {
  if (id != 0) groupRetain(groupAt(id));
}
void groupReleaseId(uint32_t id) {
  if (id != 0) groupRelease(groupAt(id));
}

namespace {

// groupOn returns the group of the goroutine that runs on pp, or nullptr. All
// that it reads is a hint, and Gs and groups are type-stable.
const Group* groupOn(const P* pp) {
  const M* mp = pp->m.load(acquire);  // pairs with acquirep
  const G* gp = mp == nullptr ? nullptr : mp->curg.load(acquire);
  if (gp == nullptr || !peek(gp->special)) return nullptr;
  const uint32_t id = peek(gp->group);
  return id == 0 ? nullptr : groupAt(id);
}

}  // namespace

bool groupWants(const P* pp) {
  const Group* g = groupOn(pp);
  return g != nullptr && (g->queued.load(relaxed) > 0 || tooMany(g));
}

// ---- Groups -----------------------------------------------------------------

namespace {

int32_t slotsFor(int32_t max_procs) {
  return max_procs <= 0 ? kNoGroupLimit : std::min(max_procs, kNoGroupLimit);
}

// takeFree takes a cell that is not in use. A thread may still be about to give
// up a slot in it (groupTaken). Such a cell is left for later. (What the Ps
// have counted, and `runnable`, add up to 0 by now.)
Group* takeFree() ABSL_EXCLUSIVE_LOCKS_REQUIRED(groupsLock) {
  for (Group** at = &groupsFree; *at != nullptr; at = &(*at)->next) {
    Group* g = *at;
    if (g->state.load(acquire) != 0) continue;  // pairs with leave
    *at = g->next;
    return g;
  }
  return nullptr;
}

struct Chunk {
  Group cells[kGroupChunk];
};

// takeCell takes a free cell, or makes the next one. If that takes a new chunk,
// takeCell uses *chunk, and returns nullptr if it is nullptr. It also returns
// nullptr if all ids are in use; then *full is true.
Group* takeCell(std::unique_ptr<Chunk>* chunk, bool* full) {
  LockScope l(&groupsLock);
  if (Group* g = takeFree()) return g;
  const uint32_t id = lastGroup.load(relaxed) + 1;  // written under this lock
  const uint32_t n = id / kGroupChunk;
  *full = n == kGroupChunks;
  if (*full) return nullptr;
  Group* cells = groupChunks[n].load(relaxed);
  if (cells == nullptr) {
    if (*chunk == nullptr) return nullptr;
    cells = chunk->release()->cells;  // for good
    for (uint32_t i = 0; i < kGroupChunk; i++) {
      cells[i].id = n * kGroupChunk + i;
    }
    groupChunks[n].store(cells, release);  // pairs with groupAt
  }
  lastGroup.store(id, release);  // pairs with the loops over all groups
  return &cells[id % kGroupChunk];
}

// newCell returns nullptr if there is no memory, or if all ids are in use.
Group* newCell() {
  std::unique_ptr<Chunk> chunk;  // made without the lock, which is a leaf
  for (;;) {
    bool full = false;
    if (Group* g = takeCell(&chunk, &full)) return g;
    if (full) return nullptr;
    chunk.reset(new (std::nothrow) Chunk);
    if (chunk == nullptr) return nullptr;
  }
}

// cutName copies as much of the name as dumps show, and no half character.
void cutName(Group* g, const char* name, size_t size) {
  size_t n = std::min(size, sizeof(g->shortName) - 1);
  if (n < size) {
    while (n > 0 && (name[n] & 0xc0) == 0x80) n--;  // UTF-8 goes on here
  }
  memcpy(g->shortName, name, n);
  g->shortName[n] = '\0';
}

}  // namespace

Group* newGroup(const char* name, size_t size, int32_t max_procs) noexcept {
  char* copy = nullptr;
  if (size > 0) {
    copy = static_cast<char*>(std::malloc(size));
    if (copy == nullptr) return nullptr;
    memcpy(copy, name, size);
  }
  schedinit();
  (void)runtimeEntry();
  Group* g = newCell();
  char* old = copy;
  if (g != nullptr) {
    old = std::exchange(g->name, copy);
    g->nameSize = size;
    cutName(g, name, size);
    g->limit.store(slotsFor(max_procs), relaxed);  // no goroutine is in it yet
    g->refs.store(1, relaxed);
  }
  std::free(old);
  return g;
}

// Relaxed: the caller has a reference already, and nothing is published.
void groupRetain(Group* g) noexcept { g->refs.add(1, relaxed); }

void groupRelease(Group* g) noexcept {
  // Orders the use of the group by all others before its reuse.
  if (g->refs.add(static_cast<uint32_t>(-1), acq_rel) != 0) return;
  // In a child of fork the lock may be held for good.
  if (forked.load(relaxed)) return;  // if set, this very thread has set it
  LockScope l(&groupsLock);
  g->next = groupsFree;
  groupsFree = g;
}

void setGroupMaxProcs(Group* g, int32_t max_procs) noexcept {
  G* self = runtimeEntry();
  M* mp = acquirem();
  g->limit.store(slotsFor(max_procs), seq_cst);  // L1
  if (g->queued.load(seq_cst) != 0) {            // L2
    GQueue next;
    {
      LockScope l(&g->mu);
      takeNext(g, &next);
    }
    place(&next, Where::kLocal);
  }
  // If too many run now, ask them to yield. sysmon repeats the request, and
  // forces them off their Ps after a slice (groupWants). preemptone leaves the
  // caller alone.
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n && tooMany(g); i++) {
    if (groupOn(allp[i]) == g) (void)preemptone(allp[i]);
  }
  if (groupOf(self) == g && tooMany(g)) self->preempt.store(true, relaxed);
  releasem(mp);
}

int32_t groupRunning(const Group* g) noexcept {
  return runningOf(g->state.load(relaxed));
}
int32_t groupRunnable(Group* g) noexcept {
  LockScope l(&g->mu);  // see countRunnable
  int32_t n = g->runnable.load(relaxed);
  // The entries of allp are never unset. A P that has gone keeps its count.
  for (int32_t i = 0; i < kMaxGomaxprocs; i++) {
    const P* pp = peek(allp[i]);
    if (pp == nullptr) break;
    // Pairs with countRunnable.
    if (pp->countedGroup.load(acquire) == g) {
      n += pp->countedRunnable.load(relaxed);
    }
  }
  // A goroutine that went from one P to another meanwhile may have been counted
  // only where it left.
  return std::max(n, 0);
}
uint32_t groupId(const Group* g) noexcept { return g->id; }
const char* groupName(const Group* g, size_t* size) noexcept {
  *size = g->nameSize;
  return g->name;
}

Group* currentGroup() noexcept {
  const G* gp = getg();
  return gp == nullptr ? nullptr : groupOf(gp);
}
uint32_t currentGroupId() noexcept {
  const G* gp = getg();
  return gp == nullptr ? 0 : gp->group;
}
void groupRefId(uint32_t id) noexcept { groupRetainId(id); }
void groupUnrefId(uint32_t id) noexcept { groupReleaseId(id); }

// ---- For dumps and traces ---------------------------------------------------

int32_t groupsQueued() {
  int32_t sum = 0;
  const uint32_t n = lastGroup.load(acquire);  // pairs with takeCell
  for (uint32_t id = 1; id <= n; id++) {
    sum += groupAt(id)->queued.load(relaxed);  // a trace
  }
  return sum;
}

void traceGroups(Writer* w) {
  const uint32_t n = lastGroup.load(acquire);  // pairs with takeCell
  for (uint32_t id = 1; id <= n; id++) {
    const Group* g = groupAt(id);
    if (g->refs.load(relaxed) == 0) continue;  // a trace
    const uint32_t s = g->state.load(relaxed);
    const int32_t limit = g->limit.load(relaxed);
    print(w, "  group %Q: maxprocs=%d running=%d released=%d queued=%d\n",
          g->shortName, limit == kNoGroupLimit ? 0 : limit, runningOf(s),
          releasedOf(s), g->queued.load(relaxed));
  }
}

}  // namespace gump::rt
