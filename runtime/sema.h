// Sleep and wake on an address: the one primitive under every lock of sync.
//
// What a goroutine waits on is the address of a counter inside the user's
// object. The waiters are kept beside it, in a table of roots chosen by a
// hash of the address, so that a Mutex is eight bytes and nothing of it has to
// outlive the wake-up. A root holds a treap of the distinct addresses that are
// waited on; the node of an address is its first waiter, the others hang on it
// in a list. So neither many waiters on one address nor many addresses in one
// root make an operation linear.
#ifndef RUNTIME_SEMA_H_
#define RUNTIME_SEMA_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/base.h"
#include "runtime/lock_futex.h"
#include "runtime/runtime2.h"

namespace gump::rt {

// SemaRoot is one bucket of the table.
//
// `lock` guards the treap, `handed`, and every Sudog in either. Forbidden while
// holding it: malloc, readying a goroutine, touching the user's object other
// than through the counter whose waiters are being looked at.
struct alignas(kCacheLine) SemaRoot {
  Mutex lock{LockRank::kSemaRoot};
  // Search tree by Sudog::elem, heap by Sudog::ticket (smallest at the root).
  Sudog* treap ABSL_GUARDED_BY(lock) = nullptr;
  // Goroutines that were handed their count and have not claimed it yet; linked
  // by next and prev, elem being the address.
  Sudog* handed ABSL_GUARDED_BY(lock) = nullptr;
  // Waiters of all addresses: those in the treap or in `handed`, and those that
  // hold the lock on their way in or out. Written under the lock, read without
  // it by semrelease. May be stale-high, never stale-low: see semacquire.
  Atomic<uint32_t> nwait;

  // queue adds s as a waiter on addr: last in its list, or with lifo first, in
  // which case s takes over the position of the node it displaces. priority is
  // the heap key if s starts a node; it must be random and odd, since 0 and 1
  // in Sudog::ticket mean something else to a waiter that has been woken.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  void queue(Atomic<uint32_t>* addr, Sudog* s, bool lifo, uint32_t priority)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // dequeue removes and returns the first waiter on addr, nullptr if there is
  // none. Its links are cleared and its ticket is 0.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  [[nodiscard]] Sudog* dequeue(Atomic<uint32_t>* addr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // dequeueThread removes and returns the first waiter on addr that is a plain
  // thread, as dequeue does; nullptr if none is.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  [[nodiscard]] Sudog* dequeueThread(Atomic<uint32_t>* addr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // addHanded adds s, which has been dequeued and counts as waiting, to
  // `handed`; removeHanded removes it from there, and from the count.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  void addHanded(Atomic<uint32_t>* addr, Sudog* s)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  void removeHanded(Sudog* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // rotateLeft lifts x's right child above x; rotateRight its left child.
  // On: any.  P: either.  Locks: caller holds lock.  Parks: no.
  void rotateLeft(Sudog* x) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  void rotateRight(Sudog* x) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);

 private:
  // find returns the node of addr, nullptr if nobody waits there.
  [[nodiscard]] Sudog* find(const Atomic<uint32_t>* addr) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  // replaceChild makes `to` (or nothing) the child of parent that `from` is.
  void replaceChild(Sudog* parent, const Sudog* from, Sudog* to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
};

// Unlike Go, which has 251: a fork-join program parks a goroutine per address
// by the hundred thousand, and a lookup then walks a tree of cold stacks. With
// this many roots, of which only those in use are ever resident, trees stay
// shallow.
inline constexpr unsigned kSemTabBits = kModelBuild ? 2 : 13;
inline constexpr uintptr_t kSemTabSize = uintptr_t{1} << kSemTabBits;

// semroot returns the root for addr.
// On: any.  P: either.  Parks: no.
[[nodiscard]] SemaRoot* semroot(const Atomic<uint32_t>* addr);

// semacquirePinned is semacquire for a caller that must get to its semrelease:
// it ends in acquirem, and returns the M. Call releasem afterwards.
// On: user, or a plain thread.  P: either.  Locks: takes the root's.
// Parks: yes.
[[nodiscard]] M* semacquirePinned(Atomic<uint32_t>* addr, bool lifo,
                                  SemaReason reason);

// semaMainEnded gives to plain threads what semrelease has meant for
// goroutines that have not run since. mainEnded has been set; see (I5) in
// sema.cc.
// On: g0 of m0.  P: either.  Locks: takes those of the roots.  Parks: no.
void semaMainEnded();

}  // namespace gump::rt

#endif  // RUNTIME_SEMA_H_
