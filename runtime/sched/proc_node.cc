// The scheduler with several NUMA nodes.
//
// A goroutine that moves to another node leaves its data behind: on a cold
// cache, and in memory that is far away. So each node has its own idle Ps, idle
// Ms and part of the global queue, and what happens on a node stays there, if
// it can. Three rules say when work moves:
//  (N1) A goroutine becomes runnable on a node without an idle P, while another
//       node has one. That P is woken at once if the node is crowded, that is,
//       if more goroutines wait than it has Ps, and it has had no idle P for
//       kCrowdPatience. Otherwise one of the node's own Ps will take the
//       goroutine in a moment. If that takes kNodePatience, or if the node is
//       crowded by then, sysmon wakes the other P (lookAtNodes).
//  (N2) An M that looks for work takes goroutines of another node only under
//       the same two conditions: that node has no idle P, and it is crowded or
//       sysmon has found a goroutine that waits for kNodePatience (kOverdue).
//  (N3) A goroutine that the poller or a timer finds ready goes to the node
//       where it ran last (G::node). So does one for which its group has got a
//       slot (place of group.cc). One that a goroutine readies goes to the P of
//       that goroutine, as with one node, because the two share data.
// The time in "crowded" is for bursts. A poll may ready twenty goroutines of a
// node with idle Ps. Until the threads of these are awake and have worked it
// off, the queue is long and no P is idle, although the node can cope. Without
// that time, a thread of another node that happened to be awake took half of
// each burst: of the goroutines of a server with 100 connections, every tenth
// that went on did so on another node (LOCALITY/echo). A goroutine that has to
// wait meanwhile is not forgotten, because kNodePatience is shorter.
// What a goroutine of a runtime::Thread needs is the thread of its home, which
// is of no node. For the home's token see (T7) of home.cc.
//
// The lost wake-up. sched.nmspinning counts the spinners of all nodes, and the
// argument of proc.cc holds for that sum. A waker that finds a spinner, of any
// node, relies on it, and the spinner keeps its promise although it is choosy:
//  * In its search it may skip a goroutine of another node (N2). But after S1,
//    it looks again at every queue (lookAgainOnNodes, S2). If the goroutine is
//    still there, the M takes it now, if it may, or hands it over to its node
//    (handOver). If that node has an idle P, it calls wakeOn for the node.
//    wakeOn reads nmspinning, after our S1. Either it finds another spinner,
//    whose S2 comes later still, or it starts one on that node. If the node has
//    no idle P, the M leaves the goroutine to it as a waker does, by W3 below.
//  * If it finds work, it ends its search by wakepAnywhere (wakeNextSpinner),
//    which knows nothing of N1. Wakers of all nodes may have relied on it.
//
// A waker that does not wake a P of another node (N1) relies on its own node:
//
//   waker (W)                             M that gives up a P of the node
//     W1  publish the G                     under sched.lock:
//     W2  read nmspinning: 0                  I1  read needspinning of the node
//     W3  under sched.lock: no P of the       I2  put the P on the node's list
//         node is idle, so set needspinning
//         of the node
//
// If I comes after W3, I1 finds the flag, and the M searches instead
// (mustSearch). If I comes before W3, W3 finds the idle P, unless an M has
// taken it since, and then that M will give it up again, and do I. A spinner of
// the node clears the flag before it searches (becomeSpinning). So a later
// waker that finds the flag still set knows that such a search is yet to come,
// and need not take the lock.
//
// sysmon is the third party to N1: `waits` of the node asks it to look. The
// waker publishes the G, then sets `waits`, and then looks at when sysmon will
// wake (hurrySysmon). sysmon clears `waits`, then looks at the queues, and sets
// it again if a goroutine waits. Before it sleeps it says until when, and then
// reads `waits` (shortSleep). So sysmon sees the goroutine or the flag.
//
// One more idea was rejected: a lock for each node's part of the global queue.
// releaseP and S2 look at that queue in the same section of sched.lock in which
// they move an idle P, and would need both locks. The queues of the nodes are
// short, since goroutines leave them in batches.
#include "runtime/sched/proc_node.h"

#include <algorithm>

#include "runtime/diag/fuzzsched.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_find.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

int32_t indexOf(const SchedNode* np) {
  return static_cast<int32_t>(np - sched.nodes);
}

// NodeSet is a set of nodes.
class NodeSet {
 public:
  void add(const SchedNode* np) { bits_ |= uint64_t{1} << indexOf(np); }
  // take removes a node and returns it, or returns nullptr if there is none.
  SchedNode* take() {
    if (bits_ == 0) return nullptr;
    const int k = __builtin_ctzll(bits_);
    bits_ &= bits_ - 1;
    return &sched.nodes[k];
  }

 private:
  static_assert(kMaxNodes <= 64);
  uint64_t bits_ = 0;
};

}  // namespace

// ---- Where things belong ----------------------------------------------------

SchedNode* nodeOfSlow(const M* mp) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // see .h
  if (mp->p != nullptr) return nodeOf(mp->p);
  return &sched.nodes[sched.nodeIndex[mp->node]];
}

uint32_t memoryNodeSlow(const P* pp) {
  if (pp == nullptr) return static_cast<uint32_t>(getg()->m->node);
  return static_cast<uint32_t>(nodeOf(pp)->topologyIndex.load(relaxed));
}

SchedNode* nodeToQueueSlow(const G* gp) {
  const M* mp = getg()->m;  // the holder of sched.lock keeps its P
  if (mp->p != nullptr) return nodeOf(mp->p);
  SchedNode* best = nodeOf(gp);
  if (gp->stack.lo != 0) return best;
  // It has not begun, so no node has its data: take one with an idle P, or else
  // the one with the shortest queue.
  const int32_t n = sched.nnodes.load(relaxed);  // changes under sched.lock
  for (int32_t k = 0; k < n && best->pidle == nullptr; k++) {
    SchedNode* np = &sched.nodes[k];
    if (np->pidle != nullptr || np->runq.size() < best->runq.size()) best = np;
  }
  return best;
}

SchedNode* nearestWithIdlePSlow(SchedNode* near) {
  near = inUse(near);
  const int32_t n = sched.nnodes.load(relaxed);  // changes under sched.lock
  for (int32_t k = 0; k < n; k++) {
    SchedNode* np = &sched.nodes[near->nearest[k].load(relaxed)];
    if (np->pidle != nullptr) return np;
  }
  return near;
}

M* nearestIdleM(SchedNode* near) {
  const int32_t n = sched.nnodes.load(relaxed);  // as above
  for (int32_t k = 1; k < n; k++) {
    M* mp = sched.nodes[near->nearest[k].load(relaxed)].midle;
    if (mp != nullptr) return mp;
  }
  return nullptr;
}

void recordExecuted(G* gp) {
  if (fuzzing()) fuzzExecuted(gp);
  P* pp = gp->m->p;
  if ((pp->records.load(relaxed) & kRecordNode) == 0) return;
  const uint8_t here = pp->node.load(relaxed);  // we hold the P
  if (gp->sched.fresh == 0) {
    NodeCounts* c = &pp->counts;
    // Written by us only.
    c->runs.store(c->runs.load(relaxed) + 1, relaxed);
    if (gp->node != here) c->moves.store(c->moves.load(relaxed) + 1, relaxed);
  }
  gp->node = here;
}

// ---- Waking -----------------------------------------------------------------

namespace {

// hurrySysmon makes sysmon look at the nodes soon.
void hurrySysmon() {
  // seq_cst: see the head of the file. 0 means that sysmon is awake, and then
  // it reads `waits` before it sleeps.
  if (sched.sysmonLook.load(seq_cst) - nanotime() < 2 * kNodePatience) return;
  // Relaxed: it pairs with no other access, as in wakeSysmonBy.
  if (sched.sysmonWakeNow.cas(0, 1, relaxed)) {
    futexwakeup(&sched.sysmonWakeNow, 1);
  }
}

// leaveToNode is W3: no P of np was idle a moment ago, but a P of another node
// was. Returns true if a P of np will take the goroutine, and false if the
// caller must wake an M, because a P of np is idle now.
// Locks: takes sched.lock.
bool leaveToNode(SchedNode* np) {
  {
    LockScope l(&sched.lock);
    if (inUse(np) != np) return false;  // its goroutines have moved
    if (np->pidle != nullptr) return false;
    np->needspinning.store(1, seq_cst);
    // If sysmon sleeps deeply, hurrySysmon does not wake it.
    wakeSysmonLocked();
  }
  // seq_cst: the caller has published the goroutine. See the head of the file.
  if (np->waits.load(seq_cst) == kWaitsNot &&
      np->waits.cas(kWaitsNot, kWaits, seq_cst)) {
    hurrySysmon();
  }
  return true;
}

// isLeft returns true if leaveToNode need not be called, because a search with
// a P of np is yet to come, and sysmon looks, too. The caller has published a
// goroutine, and then found no idle P of np.
bool isLeft(const SchedNode* np) {
  // seq_cst: see the head of the file.
  return np->needspinning.load(seq_cst) == 1 &&
         np->waits.load(seq_cst) != kWaitsNot;
}

// wakeOn is wakep for a goroutine in the queues of np, or in those of pp, one
// of its Ps. pp may be nullptr.
// On: any; m.locks > 0.  P: either.  Locks: takes sched.lock.
void wakeOn(SchedNode* np, const P* pp) {
  // W2 of the essay in proc.cc, and of the head of this file. All loads are
  // seq_cst and follow the caller's publication.
  const bool local = np->npidle.load(seq_cst) > 0;
  const bool spins = sched.nmspinning.load(seq_cst) > 0;
  // A spinner of another node would only hand the goroutine over to this one.
  // So if the node has an idle P, but no spinner, start one here as well.
  if (spins && (!local || np->nmspinning.load(relaxed) > 0)) return;
  if (!local && isLeft(np) && !crowded(np, pp)) return;
  if (!local && sched.npidle.load(seq_cst) == 0) {
    // As in wakep.
    if (sched.needspinning.load(seq_cst) == 1) return;
  } else if (!local && !crowded(np, pp) && leaveToNode(np)) {
    return;
  }
  // Once main has ended, work waits for the next Run (wakep).
  if (GUMP_UNLIKELY(sched.mainEnded.load(relaxed))) {
    wakepAnywhere();
    return;
  }
  if (spins) {
    sched.nmspinning.add(1, seq_cst);
  } else if (!sched.nmspinning.cas(0, 1, seq_cst)) {
    return;
  }
  startSpinner(np);
}

}  // namespace

// A heuristic: if it is wrong, sysmon will look. The other rings are on the
// caches of other processors, so it does not look at them.
bool crowded(const SchedNode* np, const P* pp) {
  const int32_t local = pp == nullptr ? 0 : static_cast<int32_t>(runqlen(pp));
  return local + np->runqsize.load(relaxed) > np->nprocs.load(relaxed) &&
         nanotime() - np->busySince.load(relaxed) >= kCrowdPatience;
}

bool mayTakeFrom(const SchedNode* np, const P* victim) {
  // Hints: handOver sees to what is left.
  return np->npidle.load(relaxed) == 0 &&
         (crowded(np, victim) || np->waits.load(relaxed) == kOverdue);
}

bool wakepNear() {
  M* mp = acquirem();
  const P* pp = mp->p;
  if (pp != nullptr) wakeOn(nodeOf(pp), pp);
  releasem(mp);
  return pp != nullptr;
}

SchedNode* nodeToWakeSlow() {
  SchedNode* near = nodeOf(getg()->m);
  const int32_t n = sched.nnodes.load(relaxed);  // changes under sched.lock
  for (int32_t k = 0; k < n; k++) {
    SchedNode* np = &sched.nodes[near->nearest[k].load(relaxed)];
    if (!np->runq.empty() && np->pidle != nullptr) return np;
  }
  return near;
}

bool mustLookElsewhereSlow() {
  // Both change under sched.lock.
  if (globalSize(relaxed) > 0) return true;
  const int32_t n = sched.nnodes.load(relaxed);
  for (int32_t k = 0; k < n; k++) {
    if (sched.nodes[k].needspinning.load(relaxed) == 1) return true;
  }
  return false;
}

// ---- S2: looking again ------------------------------------------------------

namespace {

// queuesAgain is S2 for the global queue. It adds to *over the nodes to which
// goroutines are to be handed over.
// On: g0.  P: none; needed if it returns true.  Locks: takes sched.lock.
bool queuesAgain(M* mp, Runnable* out, NodeSet* over) {
  P* pp = nullptr;
  {
    LockScope l(&sched.lock);
    globrunqcollect();
    if (sched.runqsize.load(relaxed) == 0) return false;  // changes under it
    SchedNode* own = nodeOf(mp);
    const int32_t n = sched.nnodes.load(relaxed);  // as above
    for (int32_t k = 0; k < n; k++) {
      SchedNode* np = &sched.nodes[own->nearest[k].load(relaxed)];
      if (np->runq.empty()) continue;
      if (np != own && !mayTakeFrom(np, /*victim=*/nullptr)) {
        over->add(np);
        continue;
      }
      pp = pidlegetSpinning(own);
      if (pp != nullptr) out->gp = globrunqgetbatch(np, pp, kRunqSize / 2);
      break;
    }
  }
  if (pp == nullptr) return false;
  acquirep(pp);
  becomeSpinning(mp);
  return true;
}

// ringsAgain is S2 for the rings. Otherwise it is as queuesAgain.
bool ringsAgain(M* mp, NodeSet* over) {
  // A fence, as in loseSpinning.
  fence(seq_cst);
  const SchedNode* own;
  {
    LockScope l(&sched.lock);
    own = nodeOf(mp);
  }
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize's store
  for (int32_t i = 0; i < n; i++) {
    const P* pp = allp[i];
    if (idlepMask.read(static_cast<uint32_t>(i)) || runqempty(pp)) continue;
    const SchedNode* np = nodeOf(pp);
    if (np != own && !mayTakeFrom(np, pp)) {
      over->add(np);
    } else {
      return takeIdleP(mp);
    }
  }
  return false;
}

// handOver sees to it that goroutines which we have left to np are run.
// On: g0.  P: none.  Locks: takes sched.lock.
void handOver(SchedNode* np) {
  // seq_cst: the loads follow S1, and we have seen the goroutine.
  const bool left =
      np->npidle.load(seq_cst) == 0 && (isLeft(np) || leaveToNode(np));
  if (!left) wakeOn(np, /*pp=*/nullptr);
}

}  // namespace

Find lookAgainOnNodes(M* mp, Runnable* out) {
  NodeSet over;
  if (queuesAgain(mp, out, &over)) return Find::kFound;
  if (ringsAgain(mp, &over)) return Find::kAgain;
  // If we have found work above, we spin again, and the next S2 hands over.
  while (SchedNode* np = over.take()) handOver(np);
  return Find::kNothing;
}

G* globalOfOthers(P* pp, int32_t n) {
  const SchedNode* own = nodeOf(pp);
  const int32_t nodes = sched.nnodes.load(relaxed);  // changes under sched.lock
  for (int32_t k = 1; k < nodes; k++) {
    SchedNode* np = &sched.nodes[own->nearest[k].load(relaxed)];
    if (!mayTakeFrom(np, /*victim=*/nullptr)) continue;  // (N2)
    if (G* gp = globrunqgetbatch(np, pp, n)) return gp;
  }
  return nullptr;
}

// ---- N3: to the node where it ran last --------------------------------------

namespace {

// startOn gives up to n idle Ps of np, and of no other node, to Ms. Returns how
// many.
// Locks: takes sched.lock.
int32_t startOn(SchedNode* np, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    P* pp = nullptr;
    {
      LockScope l(&sched.lock);
      if (np->pidle != nullptr) pp = pidleget(np);
    }
    if (pp == nullptr) return i;
    startm(pp, /*spinning=*/false);
  }
  return n;
}

}  // namespace

void injectOnNodes(GList* glist) {
  GQueue queues[kMaxNodes];
  NodeSet nodes;
  M* mp = acquirem();
  while (G* gp = glist->pop()) {
    casgstatus(gp, kGwaiting, kGrunnable);
    if (GUMP_UNLIKELY(gp->special)) groupReady(gp);
    SchedNode* np = nodeOf(gp);
    queues[indexOf(np)].pushBack(gp);
    nodes.add(np);
  }
  fuzzPoint();  // they are runnable, and on no queue
  P* pp = mp->p;
  while (SchedNode* np = nodes.take()) {
    GQueue* q = &queues[indexOf(np)];
    const int32_t size = q->size;
    // Of our own node's goroutines, those for which it has no idle P go into
    // our ring. npidle is a hint.
    const bool own = pp != nullptr && np == nodeOf(pp);
    GQueue global;
    const int32_t idle = own ? np->npidle.load(relaxed) : size;
    for (int32_t i = 0; i < idle && !q->empty(); i++) global.pushBack(q->pop());
    if (own) runqputbatch(pp, q);
    global.pushBackAll(q);
    {
      LockScope l(&sched.lock);
      // If the nodes change from here on, startTheWorld wakes an M for what is
      // in the queues.
      np = inUse(np);
      globrunqputbatchOn(np, &global);
    }
    fence(seq_cst);  // W1: runqputbatch published by a plain release
    (void)startOn(np, std::min(idle, size));
    wakeOn(np, own ? pp : nullptr);
  }
  releasem(mp);
}

G* popNearSlow(GList* list, const P* pp) {
  const SchedNode* np = nodeOf(pp);
  for (G** at = &list->head; *at != nullptr; at = &(*at)->schedlink) {
    G* gp = *at;
    if (nodeOf(gp) != np) continue;
    *at = gp->schedlink;
    return gp;
  }
  return nullptr;
}

bool readyOnItsNode(const M* mp, G* gp) {
  if (mp->p == nullptr || nodeOf(gp) == nodeOf(mp->p)) return false;
  SchedNode* np = nodeOf(gp);
  casgstatus(gp, kGwaiting, kGrunnable);
  {
    LockScope l(&sched.lock);
    globrunqputOn(np, gp);
  }
  wakeOn(np, /*pp=*/nullptr);
  return true;
}

// ---- Threads ----------------------------------------------------------------

void placeThread(M* mp, const P* pp) {
  // We hold the P, so the world is not stopped.
  mp->node = static_cast<int8_t>(nodeOf(pp)->topologyIndex.load(relaxed));
}

// ---- For sysmon -------------------------------------------------------------

namespace {

// Waiting is the goroutine at the head of a queue, as the last look found it.
struct Waiting {
  const G* gp = nullptr;
  uint32_t place = 0;  // changes when the queue moves
  int64_t since = 0;   // the time of the first look that found it there

  // update takes the result of a look. Returns how long the goroutine has been
  // at the head, or -1 if there is none.
  int64_t update(const G* head, uint32_t at, int64_t now) {
    if (head != gp || at != place || head == nullptr) {
      gp = head;
      place = at;
      since = now;
    }
    return head == nullptr ? -1 : now - since;
  }
};
// Used by sysmon only: by node, and by P.
constinit Waiting queueHeads[kMaxNodes];
constinit Waiting ringHeads[kMaxGomaxprocs];

// headOf returns the goroutine that waits longest on a P, or nullptr, and a
// number that changes when another one takes its place. All that it reads are
// hints.
const G* headOf(const P* pp, uint32_t* place) {
  *place = pp->runqhead.load(acquire);
  if (*place != pp->runqtail.load(acquire)) {
    return pp->runq[*place % kRunqSize].load(relaxed);
  }
  *place = pp->schedtick.load(relaxed);
  return pp->runnext.load(relaxed);
}

// longestWait returns for how long a goroutine has been at the head of a queue
// of the node, or -1 if all queues are empty.
int64_t longestWait(int32_t node, int64_t now) {
  SchedNode* np = &sched.nodes[node];
  const G* head;
  {
    LockScope l(&sched.lock);
    head = np->runq.head();
  }
  int64_t longest = queueHeads[node].update(head, 0, now);
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    const P* pp = allp[i];
    if (pp->node.load(relaxed) != node) continue;
    uint32_t place;
    head = headOf(pp, &place);
    longest = std::max(longest, ringHeads[i].update(head, place, now));
  }
  return longest;
}

}  // namespace

namespace {

// anyCrowded returns true if the node is crowded with one of its rings.
bool anyCrowded(int32_t node) {
  const int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    const P* pp = allp[i];
    if (pp->node.load(relaxed) == node && crowded(&sched.nodes[node], pp)) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool nodesWait() {
  const int32_t n = sched.nnodes.load(relaxed);  // a stale one: the next round
  for (int32_t k = 0; n > 1 && k < n; k++) {
    // seq_cst: sysmon has stored until when it sleeps. See the head of the
    // file.
    if (sched.nodes[k].waits.load(seq_cst) != kWaitsNot) return true;
  }
  return false;
}

void lookAtNodes(int64_t now) {
  const int32_t n = sched.nnodes.load(relaxed);  // as above
  for (int32_t k = 0; n > 1 && k < n; k++) {
    SchedNode* np = &sched.nodes[k];
    // Before we look: see the head of the file.
    if (np->waits.xchg(kWaitsNot, seq_cst) == kWaitsNot) continue;
    const int64_t waited = longestWait(k, now);
    // If the node has an idle P, wakers have woken it. If no other node has
    // one, there is nothing to wake: an M that gives up a P looks at all nodes
    // first (mustLookElsewhere).
    if (waited < 0 || np->npidle.load(seq_cst) > 0 ||
        sched.npidle.load(seq_cst) == 0) {
      continue;
    }
    const bool overdue = waited >= kNodePatience;
    np->waits.store(overdue ? kOverdue : kWaits, seq_cst);
    if (!overdue && !anyCrowded(k)) continue;
    if (!sched.nmspinning.cas(0, 1, seq_cst)) continue;
    const AwakeScope awake;
    startSpinner(np);
  }
}

}  // namespace gump::rt
