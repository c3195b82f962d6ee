// Semaphores at the end of main: (I5) of sema.cc.
//
// After main has returned, no M runs the goroutines that are left over. A count
// given to one of them would be lost to the foreign threads that wait behind
// it, which is why (I5) must hold. A foreign thread that arrives later takes
// the count at A2. For foreign threads that sleep already:
// - semrelease checks under the root's lock whether main has ended. If so, it
//   wakes foreign threads first and hands nothing over.
// - semaMainEnded undoes the hand-offs that semrelease made before that. Under
//   the same lock it takes back the counts that goroutines were handed and have
//   not claimed. Then it wakes the foreign threads whose count is positive.
//
// semaMainEnded skips a root if its page is not marked or its nwait is 0.
// (Waiters in `handed` count in nwait.) For such a root, A0 or A1 of any waiter
// comes after that check, and so after mainEnded was stored. If the waiter's A2
// misses a count, the R1 of that count comes later still, and its release sees
// mainEnded. All of these are seq_cst.
//
// Run returns only after semaMainEnded. So an object with a count that was
// handed over and not claimed still exists when semaMainEnded touches it.
#include <cstdint>

#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/wait/sema.h"

namespace gump::rt {

namespace {

// hasThreadWaiter returns true if a foreign thread is among the waiters of
// node.
bool hasThreadWaiter(const Sudog* node) {
  while (node != nullptr && !node->g->foreign) node = node->waitlink;
  return node != nullptr;
}

// takeThread dequeues, from the tree of t, a foreign thread whose count is
// positive. Returns nullptr if there is none.
// On: any.  P: either.  Locks: caller holds root->lock.  Parks: no.
Sudog* takeThread(SemaRoot* root, Sudog* t)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(root->lock) {
  if (t == nullptr) return nullptr;
  auto* addr = static_cast<Atomic<uint32_t>*>(t->elem);
  // Look for a thread first, because an object on which goroutines alone wait
  // may be gone since an earlier Run. If this load misses a count, the releaser
  // of that count has yet to lock the root. It sees mainEnded then, and gives
  // the count to a thread itself.
  if (hasThreadWaiter(t) && addr->load(relaxed) > 0) {
    return root->dequeueThread(addr);
  }
  if (Sudog* s = takeThread(root, t->prev); s != nullptr) return s;
  return takeThread(root, t->next);
}

// wakeThreadsFirst takes back the counts that goroutines of root were handed
// and have not claimed, and wakes the foreign threads whose count is positive.
// On: g0.  P: either.  Locks: takes root->lock.  Parks: no.
void wakeThreadsFirst(SemaRoot* root) {
  Sudog* first = nullptr;
  Sudog** last = &first;
  lock(&root->lock);
  while (Sudog* s = root->handed) {
    auto* addr = static_cast<Atomic<uint32_t>*>(s->elem);
    root->removeHanded(s);
    // A waiter on addr either gets the lock after us and takes the count, or is
    // seen below. Relaxed: this continues the release sequence of R1.
    addr->add(1, relaxed);
  }
  // Search from the top each time, because each removal rotates the treap. Few
  // foreign threads wait.
  while (Sudog* s = takeThread(root, root->treap)) {
    root->nwait.add(UINT32_MAX, relaxed);  // under the lock
    *last = s;
    last = &s->waitlink;
  }
  unlock(&root->lock);
  while (first != nullptr) {
    Sudog* s = first;
    first = s->waitlink;
    goready(s->g);  // (I2)
  }
}

}  // namespace

void semaMainEnded() {
  for (uintptr_t i = 0; i < kSemTabSize; i++) {
    if (!semtableUsed[i / kRootsPerPage].load(seq_cst)) continue;  // A0
    SemaRoot& root = semtable[i];
    if (root.nwait.load(seq_cst) == 0) continue;  // A1
    wakeThreadsFirst(&root);
  }
}

}  // namespace gump::rt
