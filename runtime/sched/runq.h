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
//  * pushYielded queues gp at the tail of the global queue, all of which is
//    then in yielded.
//  * popYielded takes from the head of yielded. Returns nullptr if it is empty.
//    With adopt it looks at the rest of the global queue as well.
//  * flushYielded moves yielded to the front of the global queue.
// Locks: pushYielded, and popYielded with adopt, take sched.lock unless that
// queue is empty. flushYielded takes it unless yielded is empty.
void pushYielded(P* pp, G* gp);
[[nodiscard]] G* popYielded(P* pp, bool adopt);
void flushYielded(P* pp);
// The global queue has a queue for each node. globrunqput and globrunqputbatch
// queue at the tail of one, globrunqputhead at its head: the one of the
// caller's P, or, if the caller has no P, of the node where the (first)
// goroutine ran last. The functions that end in On queue at the tail of np's.
// globrunqputfront is for yielded: it puts q in front of the sole queue.
// globrunqget takes one goroutine from the head of np's queue. globrunqgetbatch
// returns one and moves up to n-1 more to pp's empty ring, but at most
// size/gomaxprocs+1 in all, or a share of the node's Ps if pp is among them.
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

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_RUNQ_H_
