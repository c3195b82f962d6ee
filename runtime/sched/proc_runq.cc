// Run queues: the ring of a P with its runnext, and the global queue.
//
// Ring invariants:
//  (R1) Only the owner writes runqtail. Owner and thieves write runqhead, by
//       CAS (by a store if soleP). tail - head <= kRunqSize.
//  (R2) A slot in [head, tail) holds a G that is kGrunnable and on no other
//       queue.
//  (R3) An M that advances head has read the slots before its CAS. The CAS
//       decides whether the reading counts.
//  (R4) Only the owner writes slots, and only outside [head, tail). So a slot
//       is rewritten only after its reader's CAS.
//  (R5) Only the owner makes runnext non-null.
// The ring's functions work on a bare P. Of a G they touch only schedlink, to
// chain several in a GQueue; but lookAhead reads more, as a hint. Only
// runqputslow needs more than the P: the global queue, and memory for a batch.
//
// The global queue is a queue for each node, all under sched.lock.
// sched.runqsize is the sum of their lengths.
//
// (P) A thread without a P, such as a plain thread, does not take sched.lock
// for each goroutine that it makes runnable. It would compete with every M that
// looks for work. It posts the goroutine: it pushes the G onto sched.posted by
// a CAS. An M that takes from the global queue holds the lock. It first
// collects all Gs that were posted, and appends them to the queue in the order
// of the posts.
//  * No wake-up is lost. The CAS is W1 of the essay in proc.cc, the posting
//    thread then does W2 (wakep), and S2 collects. All of them are seq_cst, as
//    for a G that is published in runnext.
//  * A goroutine is collected once. A thread only pushes, and an M takes all by
//    an exchange. So there is no ABA problem.
//  * Once main has ended, W2 wakes no M. W2 reads mainEnded after nmspinning.
//    If it reads the value from before the next Run, that Run's wakep comes
//    later, and the M that this wakep starts finds the goroutine. (The read is
//    relaxed. x86 and AArch64 keep it behind a seq_cst load.)
//  * nposted is raised before the push. It is lowered after runqsize was raised
//    for the same goroutines. A reader of both reads nposted first. So their
//    sum is never too small, except for a reader that sees old values.
//  * The list is kept short, because the M that collects reverses a list of
//    cold cells under the lock. A thread that posts the kMaxPosted-th goroutine
//    collects itself, and has most of the cells in its own cache.
// With several nodes the thread does not post. It takes the lock and chooses a
// node (nodeToQueue). If the number of nodes grows while a thread posts, the M
// that collects chooses.
#include "runtime/diag/fuzzsched.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {

void runqput(P* pp, G* gp, bool next) {
  if (GUMP_UNLIKELY(pp->fuzz != 0)) {
    fuzzPut(pp, gp, next);
  } else {
    runqputNow(pp, gp, next);
  }
}

namespace {
// putIntoRing puts gp at the tail of the ring. Returns false if it is full.
GUMP_ALWAYS_INLINE bool putIntoRing(P* pp, G* gp) {
  // Pairs with cas-release in runqgrab, so the slots below h have been read.
  const uint32_t h = pp->runqhead.load(acquire);
  const uint32_t t = pp->runqtail.load(relaxed);  // (R1) we are its only writer
  if (GUMP_UNLIKELY(t - h >= kRunqSize)) return false;
  pp->runq[t % kRunqSize].store(gp, relaxed);  // published by the next line
  // Pairs with load-acquire in runqgrab.
  pp->runqtail.store(t + 1, release);
  return true;
}

// runqputFull is the end of runqputNow if the ring was full.
GUMP_NOINLINE void runqputFull(P* pp, G* gp) {
  do {
    const uint32_t h = pp->runqhead.load(acquire);  // as in putIntoRing
    const uint32_t t = pp->runqtail.load(relaxed);
    if (t - h == kRunqSize && runqputslow(pp, gp, h, t)) return;
    // A thief has made room.
  } while (!putIntoRing(pp, gp));
}
}  // namespace

void runqputNow(P* pp, G* gp, bool next) {
  if (next) {
    gp = swapRunnext(pp, gp);
    if (gp == nullptr) return;
    // Move the old runnext to the ring. Meanwhile it is in neither place, but
    // runnext is not null, so the P does not look empty (runqempty).
  }
  if (GUMP_UNLIKELY(!putIntoRing(pp, gp))) runqputFull(pp, gp);
}

bool runqputslow(P* pp, G* gp, uint32_t h, uint32_t t) {
  constexpr uint32_t kHalf = kRunqSize / 2;
  static_assert(kRunqBatch == kHalf + 1);
  if (t - h != kRunqSize) fatalthrow("runqputslow: queue is not full");
  RunqBatch local;
  RunqBatch* b = pp->spareBatch;
  if (b == nullptr) b = pp->spareBatch = persistentallocOf<RunqBatch>();
  if (b == nullptr) b = &local;  // no memory: only the chain has them then
  for (uint32_t i = 0; i < kHalf; i++) {
    // (R4) written by us.
    b->gs[i] = pp->runq[(h + i) % kRunqSize].load(relaxed);
  }
  // (R3) commits; pairs with the acquire in runqput.
  if (!pp->runqhead.cas(h, h + kHalf, release)) return false;
  b->gs[kHalf] = gp;
  b->begin = 0;
  b->end = kRunqBatch;
  GQueue q;
  for (G* g : b->gs) q.pushBack(g);
  LockScope l(&sched.lock);
  SchedNode* np = nodeToQueue(q.head);
  if (b == &local) {
    np->runq.pushBackAll(&q);
  } else {
    np->runq.pushBackBatch(&q, b);
    pp->spareBatch = np->runq.takeFree();
  }
  globrunqchanged(np, kRunqBatch);
  return true;
}

void runqputbatch(P* pp, GQueue* q) {
  uint32_t h = pp->runqhead.load(acquire);  // as in runqput
  uint32_t t = pp->runqtail.load(relaxed);  // (R1)
  while (!q->empty() && t - h < kRunqSize) {
    pp->runq[t % kRunqSize].store(q->pop(), relaxed);  // published below
    t++;
  }
  pp->runqtail.store(t, release);  // pairs with load-acquire in runqgrab
}

RunqGet runqget(P* pp) {
  // A thief may have cleared runnext meanwhile. Only we set it, so one attempt
  // is enough.
  G* next = pp->runnext.load(relaxed);
  if (next != nullptr && takeRunnext(pp, next)) {
    return {next, /*inheritTime=*/true};
  }
  for (;;) {
    // Pairs with cas-release of other consumers.
    const uint32_t h = pp->runqhead.load(acquire);
    if (h == pp->runqtail.load(relaxed)) return {nullptr, false};  // (R1)
    G* gp = pp->runq[h % kRunqSize].load(relaxed);  // (R4) written by us
    if (takeRingHead(pp, h)) return {gp, /*inheritTime=*/false};
  }
}

bool runqempty(const P* pp) {
  // runqput sets the new runnext, and then moves the old one to the ring. A
  // thief may take the new one right after that. So the ring and runnext must
  // be read as of one moment. If tail is the same before and after runnext is
  // read, no G was put into the ring in between.
  for (;;) {
    // Pairs with cas-release of consumers.
    uint32_t h = pp->runqhead.load(acquire);
    // Pairs with store-release of the owner.
    uint32_t t = pp->runqtail.load(acquire);
    // seq_cst: the parking recheck relies on it (proc.cc).
    G* next = pp->runnext.load(seq_cst);
    if (t == pp->runqtail.load(acquire)) return h == t && next == nullptr;
  }
}

uint32_t runqlen(const P* pp) {
  uint32_t h = pp->runqhead.load(acquire);  // approximate by nature
  uint32_t t = pp->runqtail.load(acquire);
  return t - h;
}

GQueue runqdrain(P* pp) {
  GQueue q;
  G* next = pp->runnext.load(relaxed);
  // As in runqget.
  if (next != nullptr && pp->runnext.cas(next, nullptr, acquire)) {
    q.pushBack(next);
  }
  for (;;) {
    uint32_t h = pp->runqhead.load(acquire);  // as in runqget
    uint32_t t = pp->runqtail.load(relaxed);  // (R1)
    uint32_t n = t - h;
    if (n == 0) return q;
    if (n > kRunqSize) continue;  // head moved on between the loads
    G* batch[kRunqSize];
    for (uint32_t i = 0; i < n; i++) {
      batch[i] = pp->runq[(h + i) % kRunqSize].load(relaxed);  // (R4)
    }
    if (!pp->runqhead.cas(h, h + n, release)) continue;  // (R3)
    for (uint32_t i = 0; i < n; i++) q.pushBack(batch[i]);
    return q;
  }
}

uint32_t runqgrab(P* pp, Atomic<G*>* batch, uint32_t batchHead,
                  bool stealRunNextG) {
  for (;;) {
    // Pairs with cas-release of other consumers.
    uint32_t h = pp->runqhead.load(acquire);
    // Pairs with store-release of the owner: slots below t are written.
    uint32_t t = pp->runqtail.load(acquire);
    uint32_t n = t - h;
    n -= n / 2;  // half, rounded up
    if (n == 0) {
      if (!stealRunNextG) return 0;
      G* next = pp->runnext.load(relaxed);
      if (next == nullptr) return 0;
      if (pp->status.load(acquire) == kPrunning && !fuzzing()) {
        // The owner has just readied next, and will most likely block and run
        // it at once. Give it the time to do so. If we took next now, every
        // synchronous exchange between two goroutines would cross processors.
        usleep(3);
      }
      // Pairs with xchg in runqput: we see *next.
      if (!pp->runnext.cas(next, nullptr, acquire)) continue;
      // Ours until runqsteal publishes it.
      batch[batchHead % kRunqSize].store(next, relaxed);
      return 1;
    }
    if (n > kRunqSize / 2) continue;  // h and t were read at different moments
    for (uint32_t i = 0; i < n; i++) {
      // Published by the tail we loaded.
      G* gp = pp->runq[(h + i) % kRunqSize].load(relaxed);
      batch[(batchHead + i) % kRunqSize].store(gp, relaxed);  // as above
    }
    if (pp->runqhead.cas(h, h + n, release)) return n;  // (R3) commits
  }
}

G* runqsteal(P* pp, P* victim, bool stealRunNextG) {
  uint32_t t = pp->runqtail.load(relaxed);  // (R1)
  uint32_t n = runqgrab(victim, pp->runq, t, stealRunNextG);
  if (n == 0) return nullptr;
  n--;
  G* gp = pp->runq[(t + n) % kRunqSize].load(relaxed);  // just written by us
  if (n == 0) return gp;
  // Pairs with cas-release of consumers of our ring.
  uint32_t h = pp->runqhead.load(acquire);
  if (t - h + n >= kRunqSize) fatalthrow("runqsteal: runq overflow");
  pp->runqtail.store(t + n, release);  // pairs with load-acquire in runqgrab
  return gp;
}

// ---- The global queue, all under sched.lock ---------------------------------

namespace {

GUMP_NOINLINE void changedOfSeveral(SchedNode* np, int32_t change)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Both are written under the lock, and are hints outside of it.
  np->runqsize.store(np->runq.size(), relaxed);
  sched.runqsize.store(sched.runqsize.load(relaxed) + change, relaxed);
}

}  // namespace

void globrunqchanged(SchedNode* np, int32_t change)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (severalNodes()) {
    changedOfSeveral(np, change);
  } else {
    sched.runqsize.store(np->runq.size(), relaxed);  // as above
  }
}

void globrunqputOn(SchedNode* np, G* gp)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  np->runq.pushBack(gp);
  globrunqchanged(np, 1);
}

namespace {
GUMP_NOINLINE void globrunqputOfSeveral(G* gp)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  globrunqputOn(nodeToQueueSlow(gp), gp);
}
}  // namespace

void globrunqput(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (severalNodes()) {
    globrunqputOfSeveral(gp);
  } else {
    sched.nodes[0].runq.pushBack(gp);
    sched.runqsize.store(sched.nodes[0].runq.size(), relaxed);  // as above
  }
}

GUMP_NOINLINE void adoptGlobal(P* pp) {
  if (GUMP_LIKELY(globalSize(relaxed) == 0)) return;
  LockScope l(&sched.lock);
  globrunqcollect();
  SchedNode* np = &sched.nodes[0];  // a sole P is on the only node
  const int32_t n = np->runq.size();
  np->runq.moveTo(&pp->yielded);
  globrunqchanged(np, -n);
}

void pushYielded(P* pp, G* gp) {
  adoptGlobal(pp);
  pushYieldedHere(pp, gp);
}

void flushYielded(P* pp) {
  if (GUMP_LIKELY(pp->yielded.empty())) return;
  LockScope l(&sched.lock);
  globrunqputfront(&pp->yielded);
  pp->nyielded.store(0, relaxed);  // a hint for others
}

void globrunqputfront(GQueue* q) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  SchedNode* np = &sched.nodes[0];  // as in adoptGlobal
  const int32_t n = q->size;
  np->runq.pushAll(q);
  globrunqchanged(np, n);
}

void globrunqputhead(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  SchedNode* np = nodeToQueue(gp);
  np->runq.push(gp);
  globrunqchanged(np, 1);
}

void globrunqputbatch(GQueue* q) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (!q->empty()) globrunqputbatchOn(nodeToQueue(q->head), q);
}

void globrunqputbatchOn(SchedNode* np, GQueue* q)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  const int32_t n = q->size;
  np->runq.pushBackAll(q);
  globrunqchanged(np, n);
}

namespace {
constexpr int32_t kMaxPosted = kModelBuild ? 2 : 32;  // see (P)
}  // namespace

void globrunqpost(G* gp) {
  if (severalNodes()) {
    LockScope l(&sched.lock);
    globrunqput(gp);
    return;
  }
  const int32_t n = sched.nposted.add(1, relaxed);  // before the push: see (P)
  G* last = sched.posted.load(relaxed);             // the CAS looks again
  do {
    gp->schedlink = last;
  } while (!sched.posted.casWeak(last, gp, seq_cst));  // W1
  fuzzPoint();
  if (GUMP_LIKELY(n < kMaxPosted)) return;
  LockScope l(&sched.lock);
  globrunqcollect();
}

GUMP_NOINLINE void globrunqcollectPosted()
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  GQueue q;
  // Pairs with the CAS of each thread that has posted, because all these CASes
  // are in one release sequence.
  G* gp = sched.posted.xchg(nullptr, acquire);
  while (gp != nullptr) {
    G* before = gp->schedlink;
    q.push(gp);
    gp = before;
  }
  const int32_t n = q.size;
  if (severalNodes()) {
    while (G* each = q.pop()) globrunqput(each);
  } else {
    globrunqputbatchOn(&sched.nodes[0], &q);
  }
  sched.nposted.add(-n, release);  // not before runqsize: see (P)
}

G* globrunqget(SchedNode* np) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  globrunqcollect();
  G* gp = np->runq.pop();
  if (gp != nullptr) globrunqchanged(np, -1);
  return gp;
}

namespace {

// getBatch is globrunqgetbatch for a queue that is not empty.
// On: any.  P: pp, owned by the caller.  Locks: caller holds sched.lock.
// Parks: no.
GUMP_NOINLINE G* getBatch(SchedNode* np, P* pp, int32_t n)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  // Written with the world stopped. A P of another node takes no more than it
  // would if the queue were that of all Ps.
  const int32_t procs = severalNodes() && np == nodeOf(pp)
                            ? np->nprocs.load(relaxed)
                            : gomaxprocs.load(relaxed);
  const int32_t before = np->runq.size();
  int32_t share = before / procs + 1;
  if (n > share) n = share;
  if (n > before) n = before;
  const uint32_t h = pp->runqhead.load(acquire);  // as in runqput
  const uint32_t t = pp->runqtail.load(relaxed);  // (R1)
  if (t - h + static_cast<uint32_t>(n) - 1 > kRunqSize) {
    fatalthrow("Couldn't put Gs into empty local runq");
  }
  G* gp = np->runq.pop();
  const uint32_t end = t + static_cast<uint32_t>(n) - 1;
  uint32_t at = t;
  while (at != end) {
    const uint32_t taken = np->runq.popBatch(pp->runq, at, end - at);
    at += taken;
    if (taken != 0) continue;
    // A goroutine that is preempted in place stays in the global queue, where
    // startm can find it.
    if (np->runq.head()->inPlace) break;
    pp->runq[at++ % kRunqSize].store(np->runq.pop(), relaxed);
  }
  // Pairs with load-acquire in runqgrab.
  if (at != t) pp->runqtail.store(at, release);
  globrunqchanged(np, np->runq.size() - before);
  return gp;
}

}  // namespace

G* globrunqgetbatch(SchedNode* np, P* pp, int32_t n)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  globrunqcollect();
  const int32_t size = np->runq.size();
  if (size == 0) return nullptr;
  // The share of each P is one. Written with the world stopped.
  if (!severalNodes() && size < gomaxprocs.load(relaxed)) {
    G* gp = np->runq.pop();
    sched.runqsize.store(np->runq.size(), relaxed);  // as above
    return gp;
  }
  return getBatch(np, pp, n);
}

}  // namespace gump::rt
