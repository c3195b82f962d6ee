// Run queues (proc_runq.cc): the ring and runnext of a P, the global queue, and
// the front of the global queue that a sole P keeps to itself. The functions
// for the ring and runnext touch nothing but the P. Only a full ring overflows
// to the global queue.
#ifndef RUNTIME_SCHED_RUNQ_H_
#define RUNTIME_SCHED_RUNQ_H_

#include <cstdint>

#include "runtime/sched/gqueue.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {

// Unless a comment says otherwise:
// On: any.  P: pp, owned by the caller.  Locks: none.  Parks: no.

// runqput queues gp on pp. With next, gp takes runnext, and the old runnext is
// kicked into the ring.
// Locks: takes sched.lock if the ring is full.
void runqput(P* pp, G* gp, bool next);
// runqputNow is runqput without schedule fuzzing, even if that is on.
// Locks: as runqput.
void runqputNow(P* pp, G* gp, bool next);
// runqputslow moves half of the full ring [h, t), and gp behind it, to the
// global queue. Returns false if a thief has made room meanwhile.
// Locks: takes sched.lock.
[[nodiscard]] bool runqputslow(P* pp, G* gp, uint32_t h, uint32_t t);
// runqputbatch moves as many Gs of q as fit into the ring. The rest stays in q.
void runqputbatch(P* pp, GQueue* q);
// runqget takes runnext, which inherits the slice, or the head of the ring. gp
// is nullptr if there is neither.
struct RunqGet {
  G* gp;
  bool inheritTime;
};
[[nodiscard]] RunqGet runqget(P* pp);
// swapRunnext puts gp into runnext, and returns the G that was there, which is
// in no queue then.
[[nodiscard]] G* swapRunnext(P* pp, G* gp);
// takeRunnext and takeRingHead are the two halves of runqget. They take the G
// that the caller has read from runnext, or from the slot at head h, or return
// false if a thief has taken it.
[[nodiscard]] bool takeRunnext(P* pp, G* next);
[[nodiscard]] bool takeRingHead(P* pp, uint32_t h);
// runqempty and runqlen (ring only) may be called for any P.
[[nodiscard]] bool runqempty(const P* pp);
[[nodiscard]] uint32_t runqlen(const P* pp);
// runqdrain empties pp into a queue. runnext comes first.
[[nodiscard]] GQueue runqdrain(P* pp);
// runqgrab takes half of pp's ring (rounded up), or its runnext, into batch
// starting at batchHead. Returns how many it took. pp may be any P.
[[nodiscard]] uint32_t runqgrab(P* pp, Atomic<G*>* batch, uint32_t batchHead,
                                bool stealRunNextG);
// runqsteal takes half of the victim's Gs. It returns one and puts the rest
// into pp's empty ring.
[[nodiscard]] G* runqsteal(P* pp, P* victim, bool stealRunNextG);

// soleP tells whether there is only one P. Then no M can steal from it, and its
// owner needs no atomic read-modify-write. The number of Ps changes only while
// the world is stopped.
inline bool soleP() { return gomaxprocs.load(relaxed) == 1; }
// pp->yielded is for a sole P.
//  * adoptGlobal appends the rest of the global queue to yielded. If it reads a
//    stale zero, that only delays the move.
//  * pushYielded queues gp at the tail of the global queue, all of which is
//    then in yielded. pushYieldedHere is pushYielded if there is no rest.
//  * popYielded takes from the head of yielded. Returns nullptr if it is empty.
//  * flushYielded moves yielded to the front of the global queue.
// Locks: adoptGlobal and pushYielded take sched.lock unless that rest is empty.
// flushYielded takes it unless yielded is empty.
void adoptGlobal(P* pp);
void pushYielded(P* pp, G* gp);
void pushYieldedHere(P* pp, G* gp);
[[nodiscard]] G* popYielded(P* pp);
void flushYielded(P* pp);
// The global queue has a queue for each node. globrunqput and globrunqputbatch
// queue at the tail of one, globrunqputhead at its head: the one of the
// caller's P, or, if the caller has no P, of the node where the (first)
// goroutine ran last. The functions that end in On queue at the tail of np's.
// globrunqputfront is for yielded: it puts q in front of the sole queue.
// globrunqget takes one goroutine from the head of np's queue. globrunqgetbatch
// returns one and moves up to n-1 more to pp's ring, which must have room for
// them, but at most size/gomaxprocs+1 in all, or a share of the node's Ps if pp
// is among them.
// globrunqchanged is called after np->runq has changed otherwise. All of them:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void globrunqput(G* gp);
void globrunqputhead(G* gp);
void globrunqputbatch(GQueue* q);
void globrunqputOn(SchedNode* np, G* gp);
void globrunqputbatchOn(SchedNode* np, GQueue* q);
void globrunqputfront(GQueue* q);
[[nodiscard]] G* globrunqget(SchedNode* np);
[[nodiscard]] G* globrunqgetbatch(SchedNode* np, P* pp, int32_t n);
void globrunqchanged(SchedNode* np, int32_t change);
// globrunqpost is globrunqput for a thread that has no P and does not hold
// sched.lock. globrunqget, globrunqgetbatch and adoptGlobal first collect what
// was posted. (P) in proc_runq.cc has the protocol.
// On: any, m.locks > 0.  P: none.  Locks: may take sched.lock.  Parks: no.
void globrunqpost(G* gp);
// globrunqcollect moves all that was posted to the tail of the global queue.
// globrunqcollectPosted is its rare part.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void globrunqcollectPosted();
inline void globrunqcollect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // seq_cst: this is S2 of the essay in proc.cc.
  if (GUMP_UNLIKELY(sched.posted.load(seq_cst) != nullptr)) {
    globrunqcollectPosted();
  }
}
// globalSize returns the length of the global queue, and counts what is posted.
// The result may be too large for a moment. It is a hint outside of sched.lock.
inline int32_t globalSize(std::memory_order order) {
  // First, and at least acquire: pairs with globrunqcollectPosted, see (P).
  const int32_t posted = sched.nposted.load(order == relaxed ? acquire : order);
  return posted + sched.runqsize.load(order);
}
// globalWaits tells whether globalSize is not 0. A sum of the two words would
// need a second register, and directNext would have to save one.
GUMP_ALWAYS_INLINE bool globalWaits() {
  return sched.nposted.load(acquire) != 0 ||  // as above
         sched.runqsize.load(relaxed) != 0;
}

// ---- The paths of a switch, inlined -----------------------------------------

// lookAhead starts loading the data that the next goroutines of a queue need:
// the stack of the next one, and the first two lines of the cell of the one
// after it, which are all that a switch reads. With many goroutines, each of
// them comes back to a cold cache. n1 and n2 may be nullptr, and may have left
// the queue by now. That is harmless, because a prefetch of any address is, and
// so is a stale sp.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE void lookAhead(const G* n1, const G* n2) {
  if constexpr (kSanitizerBuild) return;  // they report n1->sched.sp as a race
  if (n1 != nullptr) {
    const uintptr_t sp = peek(n1->sched.sp);
    prefetch(reinterpret_cast<const void*>(sp));
    prefetch(reinterpret_cast<const void*>(sp + kCacheLine));
  }
  prefetch(n2);
  prefetch(reinterpret_cast<const char*>(n2) + kCacheLine);
}

GUMP_ALWAYS_INLINE G* swapRunnext(P* pp, G* gp) {
  if (soleP()) {
    G* old = pp->runnext.load(relaxed);  // written by us only
    pp->runnext.store(gp, relaxed);      // read by us only
    return old;
  }
  // seq_cst: this publishes gp, and the load of nmspinning in wakep must not
  // pass it (see wakep). It also pairs with the acquire-cas in runqgrab, so
  // that the thief sees *gp.
  return pp->runnext.xchg(gp, seq_cst);
}

GUMP_ALWAYS_INLINE bool takeRunnext(P* pp, G* next) {
  if (soleP()) {
    pp->runnext.store(nullptr, relaxed);
    return true;
  }
  // Acquire: pairs with xchg in runqput. Release: a thread that sees runnext
  // empty also sees the G that runqput kicked out of it into the ring
  // (runqempty).
  return pp->runnext.cas(next, nullptr, acq_rel);
}

GUMP_ALWAYS_INLINE bool takeRingHead(P* pp, uint32_t h) {
  if (soleP()) {
    pp->runqhead.store(h + 1, release);  // for readers of the length
  } else if (GUMP_UNLIKELY(!pp->runqhead.cas(h, h + 1, release))) {
    return false;  // (R3) the CAS commits
  }
  if (pp->runqtail.load(relaxed) - h >= 3) {  // (R1), (R4) written by us
    lookAhead(pp->runq[(h + 1) % kRunqSize].load(relaxed),
              pp->runq[(h + 2) % kRunqSize].load(relaxed));
  }
  return true;
}

GUMP_ALWAYS_INLINE G* popYielded(P* pp) {
  G* gp = pp->yielded.pop();
  pp->nyielded.store(pp->yielded.size, relaxed);            // a hint for others
  const G* next = gp != nullptr ? gp->schedlink : nullptr;  // the head now
  if (next != nullptr) lookAhead(next, next->schedlink);
  return gp;
}

GUMP_ALWAYS_INLINE void pushYieldedHere(P* pp, G* gp) {
  pp->yielded.pushBack(gp);
  pp->nyielded.store(pp->yielded.size, relaxed);  // as above
}

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_RUNQ_H_
