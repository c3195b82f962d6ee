// WaitLists: the waiters of an object that lets all of them go at once, such as
// a sync::WaitGroup or a Scope.
//
// A waiter counts itself in the object before it calls waitListWait. So the
// thread that calls waitListRelease, the releaser, knows how many waiters there
// are. Some of them may not be in the list yet, and the releaser leaves a grant
// for each of those. The whole state is one word:
//
//   0                  no waiter is in the list, and there are no grants
//   a pointer          the WaitNode of the waiter that came last
//   2 * grants + 1     so many waiters may go on as soon as they come
//
// The word changes by read-modify-writes alone, so its changes have one order,
// and no wake-up is lost:
//
//   a waiter (arrive), once it is parked     the releaser
//     grants > 0: takes one, goes on           takes the list, and readies each
//     else: puts itself before the list        none left to come: done
//                                              else: leaves grants, but only if
//                                              the list is still empty
//
// A waiter that comes before the releaser's last exchange is in the list that
// the releaser takes. One that comes later finds a grant. If the releaser finds
// grants of an earlier release, it adds its own to them.
//
// Invariants:
//  (WL1) A waiter enters the list when its context is saved and its status is
//        kGwaiting. So the releaser may ready it at once.
//  (WL2) Each waiter that has counted itself goes on once, by one grant or by
//        one goready. It returns no earlier, so the object lives until the
//        releaser has let the last waiter go. After that the releaser does not
//        touch the object again.
//  (WL3) The releaser keeps its M until all are let go, so the end of main
//        cannot stop it half-way. No grant belongs to a certain waiter, and
//        there is one for each. So a goroutine that main leaves behind
//        withholds no grant from a thread.
//
// Unlike a semaphore by address (sema.cc), a WaitList needs no table, no lock
// and no tree. That makes the join of a goroutine a third cheaper (W12). A lock
// cannot use a WaitList: its waiters leave one by one, when the object may be
// gone.
//
// The list is Treiber's stack (IBM RJ 5118, 1986). A thread takes it only as a
// whole, so there is no ABA problem.
#include "runtime/wait/waitlist.h"

#include <cstdint>

#include "gump/internal/linkname.h"
#include "runtime/diag/mprof.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/sema.h"

namespace gump::rt {

namespace {

bool hasGrants(uintptr_t word) { return (word & 1) != 0; }

// lessOne returns the word with one grant less.
uintptr_t lessOne(uintptr_t word) { return word == 3 ? 0 : word - 2; }

// takeGrant takes a grant. Returns false if there is none.
bool takeGrant(WaitList* l) {
  uintptr_t word = l->word.load(relaxed);  // a guess; the CAS decides
  while (hasGrants(word)) {
    // Acquire: pairs with the release in leaveGrants.
    if (l->word.casWeak(word, lessOne(word), acquire)) return true;
  }
  return false;
}

// arrive is the unlockf of waitListWait. It never refuses, so gp may have
// switched directly to the next goroutine.
// On: g0, a foreign thread, or the stack of the next goroutine; m.locks > 0.
// P: either.  Locks: as goready.  Parks: no.
bool arrive(G* gp, void* arg) {
  auto* node = static_cast<WaitNode*>(arg);
  WaitList* l = node->list;
  uintptr_t word = l->word.load(relaxed);  // a guess; the CAS decides
  for (;;) {
    if (hasGrants(word)) {
      // Acquire: as in takeGrant. gp gets the order from the run queue.
      if (!l->word.casWeak(word, lessOne(word), acquire)) continue;
      goready(gp);
      return true;
    }
    node->next = reinterpret_cast<WaitNode*>(word);
    // Release: the releaser reads the node.
    if (l->word.casWeak(word, reinterpret_cast<uintptr_t>(node), release)) {
      return true;
    }
  }
}

// reversed returns the waiters of a list in the order in which they came.
WaitNode* reversed(WaitNode* node) {
  WaitNode* first = nullptr;
  while (node != nullptr) {
    nearStack(node);
    WaitNode* next = node->next;
    node->next = first;
    first = node;
    node = next;
  }
  return first;
}

// leaveGrants leaves n grants. It leaves none and returns false if a waiter has
// come meanwhile.
bool leaveGrants(WaitList* l, uint32_t n) {
  // Release: pairs with the acquire of the waiters that take them.
  return l->word.cas(0, 2 * uintptr_t{n} + 1, release);
}

}  // namespace

const WaitList* waitListOf(const G* gp) {
  switch (gp->waitreason) {
    case WaitReason::kSyncWaitGroupWait:
    case WaitReason::kSynctestWaitGroupWait:
    case WaitReason::kScopeWait:
    case WaitReason::kScopeJoin:
    case WaitReason::kSynctestScopeJoin:
      return gp->param == nullptr ? nullptr
                                  : static_cast<WaitNode*>(gp->param)->list;
    default:
      return nullptr;
  }
}

void waitListWait(WaitList* l, SemaReason reason) noexcept {
  WaitNode node;
  G* gp = runtimeEntry();
  node.g = gp;
  node.list = l;
  if (takeGrant(l)) return;
  const int64_t since = waitsProfiled() ? blockStart() : 0;
  (void)acquirem();   // goparkcommit ends it
  gp->param = &node;  // for waitListOf
  goparkcommit(arrive, &node, semaWaitReason(reason));
  if (GUMP_UNLIKELY(since != 0)) {
    M* mp = acquirem();
    blockEvent(since);
    releasem(mp);
  }
}

void waitListRelease(WaitList* l, uint32_t n) noexcept {
  // Not runtimeEntry, and not acquirem: see wakeWaiters of sema.cc.
  if (getg() == nullptr) needm();
  M* mp = getg()->m;
  const bool lost = acquiremNoPark(mp);
  do {
    // Acquire: pairs with the release in arrive.
    const uintptr_t word = l->word.xchg(0, acquire);
    if (GUMP_UNLIKELY(hasGrants(word))) {
      // A waiter that was let go before has not come yet: the object is used
      // again too early, or main has left the waiter behind.
      n += static_cast<uint32_t>(word / 2);
      continue;
    }
    auto* node = reversed(reinterpret_cast<WaitNode*>(word));
    while (node != nullptr) {
      WaitNode* next = node->next;
      n--;
      goready(node->g);  // node is gone, and so is l after the last one
      node = next;
    }
  } while (n != 0 && !leaveGrants(l, n));
  if (lost) markPLost(mp);
  releasem(mp);
}

}  // namespace gump::rt
