// Sleep and wake on an address: the one primitive under every lock of sync.
//
// A goroutine waits on the address of a counter inside the user's object. The
// waiters are kept apart from it, in a table of roots chosen by a hash of the
// address. So a Mutex is eight bytes, and the object need not outlive the
// wake-up. A root holds a treap of the distinct addresses that have waiters.
// The node of an address is its first waiter, and the other waiters hang on it
// in a list. So an operation is linear neither in the waiters on one address
// nor in the addresses in one root.
#ifndef RUNTIME_WAIT_SEMA_H_
#define RUNTIME_WAIT_SEMA_H_

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lock_futex.h"

namespace gump::rt {

// What Sudog::ticket tells a waiter that has been woken, and whether a waiter
// is in `handed`. The values are even, because heap keys are odd.
enum SemaTicket : uint32_t {
  kSemaWoken = 0,     // it may compete for the count
  kSemaHanded = 2,    // it has the count
  kSemaTimedOut = 4,  // its time has passed (sema_timed.cc)
};

// SemaRoot is one bucket of the table.
//
// `lock` guards the treap, `handed`, and every Sudog in either. Forbidden while
// holding it: malloc, readying a goroutine, and touching the user's object
// other than through the counter whose waiters are being looked at.
struct alignas(kCacheLine) SemaRoot {
  Mutex lock{LockRank::kSemaRoot};
  // Search tree by Sudog::elem, heap by Sudog::ticket (smallest at the root).
  Sudog* treap ABSL_GUARDED_BY(lock) = nullptr;
  // Goroutines that were handed their count and have not claimed it yet. They
  // are linked by next and prev, and elem is the address.
  Sudog* handed ABSL_GUARDED_BY(lock) = nullptr;
  // Waiters of all addresses: those in the treap or in `handed`, and those that
  // hold the lock on their way in or out. Written under the lock; semrelease
  // reads it without. It may be too high for a moment, never too low: see
  // semacquire.
  Atomic<uint32_t> nwait;

  // queue adds s as a waiter on addr, last in its list, or first if lifo is
  // set. If first, s takes over the position of the node it displaces. priority
  // is the heap key if s starts a node. It must be random and odd, because even
  // values of Sudog::ticket have another meaning (SemaTicket).
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  void queue(Atomic<uint32_t>* addr, Sudog* s, bool lifo, uint32_t priority)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // dequeue removes and returns the first waiter on addr, with its links
  // cleared and its ticket 0. Returns nullptr if there is none.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  [[nodiscard]] Sudog* dequeue(Atomic<uint32_t>* addr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // dequeueThread is dequeue for the first waiter on addr that is a foreign
  // thread. Returns nullptr if there is none.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  [[nodiscard]] Sudog* dequeueThread(Atomic<uint32_t>* addr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // chargeWaits returns about how long the waiters on addr have waited in all
  // since they came or were last charged, and charges them: the average of the
  // first and the last, times their number, as Go does. Returns 0 if the first
  // one came while the mutex profile was off.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  [[nodiscard]] int64_t chargeWaits(const Atomic<uint32_t>* addr, int64_t now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // remove takes s out of the treap and the count, wherever it stands among the
  // waiters of its address. Returns false if s is not in the treap.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  [[nodiscard]] bool remove(Sudog* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // addHanded adds s, which has been dequeued and still counts as waiting, to
  // `handed`. removeHanded removes it from there, and from the count.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  void addHanded(Atomic<uint32_t>* addr, Sudog* s)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  void removeHanded(Sudog* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // rotateLeft lifts x's right child above x; rotateRight lifts its left child.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  void rotateLeft(Sudog* x) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  void rotateRight(Sudog* x) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);

 private:
  // find returns the node of addr, or nullptr if addr has no waiter.
  [[nodiscard]] Sudog* find(const Atomic<uint32_t>* addr) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // unlink takes s, which is not the node, out of the list of `node`.
  static void unlink(Sudog* node, Sudog* s);
  // replaceChild puts `to`, which may be nullptr, in the place of parent's
  // child `from`.
  void replaceChild(Sudog* parent, const Sudog* from, Sudog* to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
};

// Unlike Go, which has 251 roots. A fork-join program parks goroutines by the
// hundred thousand, each on an address of its own, and a lookup then walks a
// tree of cold stacks. With this many roots the trees stay shallow, and only
// the roots in use are ever resident.
inline constexpr unsigned kSemTabBits = kModelBuild ? 2 : 13;
inline constexpr uintptr_t kSemTabSize = uintptr_t{1} << kSemTabBits;

// The table of roots, chosen by a hash of the address.
extern SemaRoot semtable[kSemTabSize];
// The pages of semtable on which there has been a waiter, marked at A0 of
// sema.cc. semaMainEnded skips the other pages, which are not resident.
inline constexpr uintptr_t kRootsPerPage =
    std::min<uintptr_t>(kSemTabSize, 4096 / sizeof(SemaRoot));
extern Atomic<bool> semtableUsed[kSemTabSize / kRootsPerPage];

// semroot returns the root for addr.
// On: any.  P: either.  Parks: no.
[[nodiscard]] SemaRoot* semroot(const Atomic<uint32_t>* addr);

// semacquirePinned is semacquire, then acquirem. It is for a caller that must
// reach its semrelease in any case, even after the end of main. Returns the M.
// The caller ends with semrelease and releasem, or with semreleasePinned, which
// is both. semreleasePinned hands the count to the first waiter that belongs to
// no home and no group. It only wakes the waiters before that one, and these
// try again. Their thread or slot may be busy for long, and the count must not
// wait for that. The price: they get no count while others wait all the time.
// On: user, or a foreign thread.  P: either.  Locks: takes the root's.
// Parks: yes.
[[nodiscard]] M* semacquirePinned(Atomic<uint32_t>* addr, bool lifo,
                                  SemaReason reason);
// On: as semacquirePinned.  P: either.  Locks: takes the root's.  Parks: no.
void semreleasePinned(M* mp, Atomic<uint32_t>* addr);

// cansemacquire takes one from *addr if it is positive. Returns true if it did.
// semaWaitReason is the reason that dumps show.
// Both:
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool cansemacquire(Atomic<uint32_t>* addr);
[[nodiscard]] WaitReason semaWaitReason(SemaReason reason);
// semaStart returns Sudog::acquiretime for a wait that begins: the time, if the
// wait is for a lock and the mutex profile is on, and 0 otherwise.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] int64_t semaStart(SemaReason reason);
// semaMarkUsed records that the page of root has had a waiter (A0).
// On: any.  P: either.  Locks: none.  Parks: no.
void semaMarkUsed(const SemaRoot* root);
// semaTakeHanded claims the count that s, the caller's, was handed. Returns
// false if semaMainEnded has taken the count back.
// On: user; m.locks > 0.  P: needed.  Locks: takes root->lock.  Parks: no.
[[nodiscard]] bool semaTakeHanded(SemaRoot* root, Sudog* s);

// semaMainEnded gives to foreign threads the counts that semrelease had meant
// for goroutines that have not run since. mainEnded has been set. Defined in
// sema_end.cc, which has the argument.
// On: g0 of m0.  P: either.  Locks: takes those of the roots.  Parks: no.
void semaMainEnded();

}  // namespace gump::rt

#endif  // RUNTIME_WAIT_SEMA_H_
