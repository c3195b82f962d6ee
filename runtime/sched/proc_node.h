// The scheduler with several NUMA nodes (proc_node.cc). With one node, each
// function here is a test of one word, or is not called.
#ifndef RUNTIME_SCHED_PROC_NODE_H_
#define RUNTIME_SCHED_PROC_NODE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct Runnable;
enum class Find : uint8_t;

// Unless a comment says otherwise:
// On: any.  P: either.  Locks: none.  Parks: no.

// severalNodes returns true if more than one node has Ps. The answer changes
// only while the world is stopped.
inline bool severalNodes() {
  return GUMP_UNLIKELY(sched.nnodes.load(relaxed) > 1);
}

// nodeOf returns the node of a P; of an M, that of its P, or of the last P that
// it held; of a G, that on which it ran last. The second form needs a P, or
// sched.lock.
inline SchedNode* nodeOf(const P* pp) {
  return &sched.nodes[pp->node.load(relaxed)];
}
[[nodiscard]] SchedNode* nodeOfSlow(const M* mp);
inline SchedNode* nodeOf(const M* mp) {
  return severalNodes() ? nodeOfSlow(mp) : &sched.nodes[0];
}
inline SchedNode* nodeOf(const G* gp) {
  // gp->node may be from a time when there were more nodes.
  return severalNodes() && gp->node < sched.nnodes.load(relaxed)
             ? &sched.nodes[gp->node]
             : &sched.nodes[0];
}

// queuedOn returns how many goroutines are in np's part of the global queue. It
// counts those that a thread has posted while the number of nodes grew. A hint
// without sched.lock.
inline int32_t queuedOn(const SchedNode* np) {
  if (!severalNodes()) return globalSize(relaxed);
  const int32_t posted = sched.nposted.load(acquire);  // as globalSize
  return posted + np->runqsize.load(relaxed);
}

// nodeToQueue returns the node whose part of the global queue gets gp. That is
// the node of the caller's P, which a wakep after this looks after. If the
// caller has no P, it is the node on which gp ran last, or, if gp has not
// begun, one that has an idle P. Locks: caller holds sched.lock.
[[nodiscard]] SchedNode* nodeToQueueSlow(const G* gp);
inline SchedNode* nodeToQueue(const G* gp) {
  return severalNodes() ? nodeToQueueSlow(gp) : &sched.nodes[0];
}

// nodeToResume returns the node whose part of the global queue gets gp, if gp
// shares no data with the caller: that on which gp ran last. For a gp that has
// not begun, it is that of nodeToQueue. Locks: caller holds sched.lock.
inline SchedNode* nodeToResume(const G* gp) {
  return gp->stack.lo != 0 ? nodeOf(gp) : nodeToQueue(gp);
}

// inUse returns np, or another node if np has lost its Ps. A thread without a P
// chooses a node before it takes the lock, and the world may be stopped in
// between.
// Locks: caller holds sched.lock.
[[nodiscard]] inline SchedNode* inUse(SchedNode* np)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Changes under sched.lock.
  return np - sched.nodes < sched.nnodes.load(relaxed) ? np : &sched.nodes[0];
}

// nearestWithIdleP returns the node nearest to `near` that has an idle P, or
// one without if none has. `near` may have lost its Ps. nearestIdleM returns
// the idle M of another node, the nearest one that has some, or nullptr. Locks:
// caller holds sched.lock.
[[nodiscard]] SchedNode* nearestWithIdlePSlow(SchedNode* near)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
inline SchedNode* nearestWithIdleP(SchedNode* near)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return severalNodes() ? nearestWithIdlePSlow(near) : &sched.nodes[0];
}
[[nodiscard]] M* nearestIdleM(SchedNode* near)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);

// memoryNode returns the node on which memory for pp, or, if pp is nullptr, for
// the calling thread, is to lie: an index in topology.nodes, so it stays the
// same when nodes come and go. While there has been only one node, it is 0.
// P: pp, owned by the caller, or nullptr.
[[nodiscard]] uint32_t memoryNodeSlow(const P* pp);
inline uint32_t memoryNode(const P* pp) {
  // Written with the world stopped.
  return GUMP_UNLIKELY(sched.places.load(relaxed)) ? memoryNodeSlow(pp) : 0;
}

// forEachIdleP calls f for every idle P.
// Locks: caller holds sched.lock.
template <class F>
void forEachIdleP(F&& f) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  const int32_t n = sched.nnodes.load(relaxed);  // changes under sched.lock
  for (int32_t k = 0; k < n; k++) {
    for (P* pp = sched.nodes[k].pidle; pp != nullptr; pp = pp->link) f(pp);
  }
}

// ---- Whose goroutine it is --------------------------------------------------

// The values of SchedNode::waits.
enum NodeWaits : uint32_t {
  kWaitsNot = 0,
  kWaits = 1,    // sysmon must look
  kOverdue = 2,  // sysmon has seen a goroutine wait for kNodePatience
};

// crowded returns true if more goroutines wait on a node than it has Ps, and it
// has had no idle P for kCrowdPatience. Of the rings it counts only that of pp,
// a P of the node or nullptr. The caller has found no idle P of the node.
[[nodiscard]] bool crowded(const SchedNode* np, const P* pp);
// mayTakeFrom returns true if an M of another node may take goroutines from
// np's queue and from the ring of its P victim, which may be nullptr (N2).
[[nodiscard]] bool mayTakeFrom(const SchedNode* np, const P* victim);

// ---- Counting spinners, by node ---------------------------------------------

// SchedNode::nmspinning is a hint: all accesses are relaxed. countStart counts
// an M that is about to be started with pp, spinning. takeCount makes that
// count the M's own. countOnNode counts an M that begins to spin on its P, and
// uncountOnNode ends what the last two have begun.
inline void countStart(const P* pp) {
  if (severalNodes()) nodeOf(pp)->nmspinning.add(1, relaxed);
}
inline void takeCount(M* mp, const P* pp) {
  if (severalNodes()) {
    mp->spinningNode = static_cast<int8_t>(pp->node.load(relaxed));
  }
}
inline void countOnNode(M* mp) {
  countStart(mp->p);
  takeCount(mp, mp->p);
}
inline void uncountOnNode(M* mp) {
  if (GUMP_LIKELY(mp->spinningNode < 0)) return;
  sched.nodes[mp->spinningNode].nmspinning.add(-1, relaxed);
  mp->spinningNode = -1;
}

// mustSearch returns true if an M that is about to give up pp must look for
// work first, because a thread has readied a goroutine and woken no M for it.
// Locks: caller holds sched.lock.
inline bool mustSearch(const P* pp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return sched.needspinning.load(relaxed) == 1 ||  // both set under sched.lock
         (severalNodes() && nodeOf(pp)->needspinning.load(relaxed) == 1);
}
// mustLookElsewhere is mustSearch for the goroutines of other nodes, which an M
// may have to hand over to their node (S2). A thread that queued one there,
// and woke no M because no P was idle, relies on the next M that gives up a P.
// Locks: caller holds sched.lock.
[[nodiscard]] bool mustLookElsewhereSlow()
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
inline bool mustLookElsewhere() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return severalNodes() && mustLookElsewhereSlow();
}
// clearNeedspinning clears what mustSearch reads. The caller then makes an M
// search with pp. seq_cst: see becomeSpinning.
inline void clearNeedspinning(const P* pp) {
  sched.needspinning.store(0, seq_cst);
  if (severalNodes()) nodeOf(pp)->needspinning.store(0, seq_cst);
}

// ---- The steps of the scheduler, with several nodes -------------------------

// wakepNear is wakep of a caller that has a P. Returns false if the caller has
// none, and then it has done nothing.
// Locks: takes sched.lock.
[[nodiscard]] bool wakepNear();
// nodeToWake returns the node whose P wakepAnywhere wakes.
// Locks: caller holds sched.lock.
[[nodiscard]] SchedNode* nodeToWakeSlow()
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
inline SchedNode* nodeToWake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  return severalNodes() ? nodeToWakeSlow() : &sched.nodes[0];
}
// lookAgainOnNodes is S2 of the essay in proc.cc.
// On: g0.  P: none; needed unless it returns kNothing.
// Locks: takes sched.lock.
[[nodiscard]] Find lookAgainOnNodes(M* mp, Runnable* out);
// globalOfOthers is globrunqgetbatch from the queue of the nearest other node
// from which pp may take (mayTakeFrom).
// P: pp, owned by the caller.  Locks: caller holds sched.lock.
[[nodiscard]] G* globalOfOthers(P* pp, int32_t n)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
// injectOnNodes is injectglist: each goroutine goes to the node on which it ran
// last.
// Locks: takes sched.lock.
void injectOnNodes(GList* glist);
// popNear takes from the list the first goroutine that ran last on the node of
// pp. With one node that is the first. Returns nullptr if there is none.
[[nodiscard]] G* popNearSlow(GList* list, const P* pp);
inline G* popNear(GList* list, const P* pp) {
  return severalNodes() ? popNearSlow(list, pp) : list->pop();
}
// readyOnItsNode readies gp, which waits, on the node on which it ran last, and
// wakes an M there. Returns false if that is the node of mp's P, or if mp has
// none. Then it has done nothing.
// Locks: takes sched.lock.
[[nodiscard]] bool readyOnItsNode(const M* mp, G* gp);

// recordExecuted is called when gp has been made current, and P::records is not
// 0. It records what that asks for.
// P: needed.
void recordExecuted(G* gp);

// placeThread is called when mp has got pp, which may be of another node than
// the P that it had before. From then on mp is an M of that node.
// On: g0, or user with m.locks > 0; the thread of mp.  P: pp.
void placeThread(M* mp, const P* pp);

// ---- For sysmon -------------------------------------------------------------

// kNodePatience is how long, in ns, a goroutine waits on a busy node before a P
// of another node takes it (N1). kCrowdPatience is how long a node must have
// been busy to count as crowded: longer than a burst lasts, and shorter than
// the millisecond that no goroutine is to wait beside an idle P. It is the time
// after which silk's thieves turn to another socket.
inline constexpr int64_t kNodePatience = 50'000;
inline constexpr int64_t kCrowdPatience = 500'000;
// lookAtNodes wakes an M of another node for a goroutine that has waited since
// a look kNodePatience earlier. nodesWait returns true if sysmon must look
// again within that time. Only sysmon calls them.
// Locks: lookAtNodes takes sched.lock.
void lookAtNodes(int64_t now);
[[nodiscard]] bool nodesWait();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_PROC_NODE_H_
