// Semaphores by address, and the ticket lists of condition variables.
//
// Invariants:
//  (I1) A Sudog is on at most one list of one root: of its treap, or `handed`.
//       It lies on the stack of whoever waits, who has not left semacquire.
//  (I2) Whoever dequeues a Sudog, or takes it off a NotifyList, is the only one
//       to call goready for its G. After that the Sudog is gone, unless it is
//       in `handed`: there it stays until its goroutine or semaMainEnded
//       removes it, under the root's lock.
//  (I3) After R1, *addr is touched only under the root's lock, for a Sudog of
//       addr that is queued, handed or just dequeued: its goroutine is inside
//       semacquire, so the object around addr is alive (that of a goroutine
//       which main leaves behind, too). Otherwise addr is a number.
//  (I4) A notifier does not touch a NotifyList after releasing its lock.
//  (I5) When main has ended, no count is kept for a goroutine that has not run
//       yet, and no plain thread sleeps on addr while *addr > 0; see below.
// (I3) and (I4) are what lets a woken goroutine destroy the object at once.
//
// The protocol for a count that is not handed over, against lost wake-ups:
//
//   semacquire                             semrelease
//   A0 mark the page of the table
//   A1 nwait += 1                          R1 *addr += 1
//   A2 *addr > 0? take it, do not sleep    R2 nwait == 0? nobody to wake
//   A3 enter the treap, park               R3 lock, take a waiter, wake it
//
// A1, A2, R1, R2 are seq_cst, so in their one total order either A1 precedes R2
// or R1 precedes A2: the releaser sees the waiter, or the waiter the count. In
// the first case R3 finds the waiter in the treap, because A1..A3 happen under
// the root's lock and that is released only when the waiter is parked.
//
// A woken waiter competes for the count with whoever comes by (barging), unless
// the releaser takes the count on its behalf (hand-off).
//
// After main has returned nobody runs the goroutines that are left over, and
// what was given to one would be lost on the plain threads that wait behind it;
// hence (I5). A thread that comes takes the count (A2). As for those that sleep
// already, semrelease asks under the root's lock whether main has ended. If so,
// it wakes threads first and hands nothing over. What it gave to goroutines
// before, semaMainEnded undoes when it takes the lock in its turn: it takes
// back what they were handed and have not claimed, under this lock, and wakes
// the threads whose count is then positive.
//
// It passes over a root whose page is not marked or whose nwait is 0; those in
// `handed` count in nwait. Then A0 or A1 of any waiter comes after that look,
// and so after mainEnded was stored; if its A2 misses a count, that R1 comes
// later still, and its release sees mainEnded. All of these are seq_cst.
//
// Run returns after that, so what a goroutine has been handed and not claimed
// is still there.
//
// Rejected: a wait queue inside each lock. It costs two words in every object
// and a second lock word, and the waker has to touch them when the object may
// be gone. Rejected: Go's pool of sudogs. Go needs it because its stacks move;
// ours do not, and a Sudog on the waiter's stack is already in its cache.
#include "runtime/sema.h"

#include <algorithm>

#include "gump/internal/linkname.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/proc.h"
#include "runtime/waitreason.h"

namespace gump::rt {

namespace {

constinit SemaRoot semtable[kSemTabSize];
// The pages of semtable on which somebody has waited, marked at A0:
// semaMainEnded leaves the others alone, which are not resident.
constexpr uintptr_t kRootsPerPage =
    std::min<uintptr_t>(kSemTabSize, 4096 / sizeof(SemaRoot));
constinit Atomic<bool> semtableUsed[kSemTabSize / kRootsPerPage];

struct alignas(kFalseSharing) NotifyLock {
  // Guards head, tail and the writing of notify in every NotifyList whose
  // address falls here. Forbidden while holding it: malloc, readying.
  Mutex lock{LockRank::kNotifyList};
};
constexpr uintptr_t kNotifyTabSize = 61;  // prime
constinit NotifyLock notifytable[kNotifyTabSize];

Mutex* notifyLock(const NotifyList* l) {
  return &notifytable[(reinterpret_cast<uintptr_t>(l) >> 3) % kNotifyTabSize]
              .lock;
}

// cansemacquire takes one from *addr if it is positive.
// On: any.  P: either.  Locks: none.  Parks: no.
bool cansemacquire(Atomic<uint32_t>* addr) {
  uint32_t v = addr->load(seq_cst);  // A2: pairs with R1, after A1
  while (v > 0) {
    // Acquire: pairs with R1, so that what preceded the release is seen.
    if (addr->casWeak(v, v - 1, acquire)) return true;
  }
  return false;
}

WaitReason semaWaitReason(SemaReason reason) {
  switch (reason) {
    case SemaReason::kSemacquire:
      return WaitReason::kSemacquire;
    case SemaReason::kMutexLock:
      return WaitReason::kSyncMutexLock;
    case SemaReason::kRWMutexRLock:
      return WaitReason::kSyncRWMutexRLock;
    case SemaReason::kRWMutexLock:
      return WaitReason::kSyncRWMutexLock;
    case SemaReason::kWaitGroupWait:
      return WaitReason::kSyncWaitGroupWait;
    case SemaReason::kWaitGroupWaitDurable:
      return WaitReason::kSynctestWaitGroupWait;
  }
  fatalthrow("semacquire: bad reason");
}

// mayYield tells whether the caller may give its slice to the goroutine it has
// just readied: only a goroutine that runs on its own stack, pins nothing, and
// has not given its P up in a system call.
bool mayYield() {
  const G* gp = getg();
  return !gp->foreign && gp == gp->m->curg.load(relaxed) &&
         gp->m->locks.load(relaxed) == 0 &&  // written by this thread only
         (readgstatus(gp) & ~uint32_t{kGscan}) != kGsyscall;
}

// ticketLess orders tickets, which wrap around: at most 2^31 waiters at a time.
bool ticketLess(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) < 0;
}

uintptr_t key(const void* addr) { return reinterpret_cast<uintptr_t>(addr); }

}  // namespace

// ---- The treap --------------------------------------------------------------

SemaRoot* semroot(const Atomic<uint32_t>* addr) {
  // Fibonacci hashing: neighbouring words spread over the table.
  uint64_t h = (reinterpret_cast<uintptr_t>(addr) >> 2) * 0x9e3779b97f4a7c15u;
  return &semtable[h >> (64 - kSemTabBits)];
}

void SemaRoot::replaceChild(Sudog* parent, const Sudog* from, Sudog* to) {
  if (to != nullptr) to->parent = parent;
  if (parent == nullptr) {
    treap = to;
  } else if (parent->prev == from) {
    parent->prev = to;
  } else {
    parent->next = to;
  }
}

void SemaRoot::rotateLeft(Sudog* x) {
  Sudog* y = x->next;
  Sudog* middle = y->prev;
  replaceChild(x->parent, x, y);
  y->prev = x;
  x->parent = y;
  x->next = middle;
  if (middle != nullptr) middle->parent = x;
}

void SemaRoot::rotateRight(Sudog* x) {
  Sudog* y = x->prev;
  Sudog* middle = y->next;
  replaceChild(x->parent, x, y);
  y->next = x;
  x->parent = y;
  x->prev = middle;
  if (middle != nullptr) middle->parent = x;
}

void SemaRoot::queue(Atomic<uint32_t>* addr, Sudog* s, bool lifo,
                     uint32_t priority) {
  s->elem = addr;
  s->next = nullptr;
  s->prev = nullptr;
  s->waitlink = nullptr;
  s->waittail = nullptr;
  s->ticket = 0;

  Sudog* last = nullptr;
  Sudog* t = treap;
  while (t != nullptr && t->elem != addr) {
    last = t;
    t = key(addr) < key(t->elem) ? t->prev : t->next;
  }
  if (t != nullptr && lifo) {
    // s becomes the node, with t's place and heap key; t heads the list below.
    s->ticket = t->ticket;
    s->prev = t->prev;
    s->next = t->next;
    if (s->prev != nullptr) s->prev->parent = s;
    if (s->next != nullptr) s->next->parent = s;
    replaceChild(t->parent, t, s);
    s->waitlink = t;
    s->waittail = t->waittail == nullptr ? t : t->waittail;
    t->parent = nullptr;
    t->prev = nullptr;
    t->next = nullptr;
    t->waittail = nullptr;
    t->ticket = 0;
    return;
  }
  if (t != nullptr) {
    if (t->waittail == nullptr) {
      t->waitlink = s;
    } else {
      t->waittail->waitlink = s;
    }
    t->waittail = s;
    return;
  }
  // A new address: a leaf, lifted until its parent's key is not greater.
  s->ticket = priority;
  s->parent = last;
  if (last == nullptr) {
    treap = s;
  } else if (key(addr) < key(last->elem)) {
    last->prev = s;
  } else {
    last->next = s;
  }
  while (s->parent != nullptr && s->parent->ticket > s->ticket) {
    if (s->parent->prev == s) {
      rotateRight(s->parent);
    } else {
      rotateLeft(s->parent);
    }
  }
}

Sudog* SemaRoot::find(const Atomic<uint32_t>* addr) const {
  Sudog* s = treap;
  while (s != nullptr && s->elem != addr) {
    s = key(addr) < key(s->elem) ? s->prev : s->next;
  }
  return s;
}

Sudog* SemaRoot::dequeue(Atomic<uint32_t>* addr) {
  Sudog* s = find(addr);
  if (s == nullptr) return nullptr;

  if (Sudog* t = s->waitlink; t != nullptr) {
    // The next waiter takes the node over.
    t->ticket = s->ticket;
    t->prev = s->prev;
    t->next = s->next;
    if (t->prev != nullptr) t->prev->parent = t;
    if (t->next != nullptr) t->next->parent = t;
    replaceChild(s->parent, s, t);
    t->waittail = t->waitlink == nullptr ? nullptr : s->waittail;
  } else {
    // Rotate s down until it is a leaf, the smaller child up each time.
    while (s->prev != nullptr || s->next != nullptr) {
      if (s->next == nullptr ||
          (s->prev != nullptr && s->prev->ticket < s->next->ticket)) {
        rotateRight(s);
      } else {
        rotateLeft(s);
      }
    }
    replaceChild(s->parent, s, nullptr);
  }
  s->parent = nullptr;
  s->elem = nullptr;
  s->next = nullptr;
  s->prev = nullptr;
  s->waitlink = nullptr;
  s->waittail = nullptr;
  s->ticket = 0;
  return s;
}

Sudog* SemaRoot::dequeueThread(Atomic<uint32_t>* addr) {
  Sudog* node = find(addr);
  if (node == nullptr || node->g->foreign) return dequeue(addr);
  Sudog* before = node;
  while (before->waitlink != nullptr && !before->waitlink->g->foreign) {
    before = before->waitlink;
  }
  Sudog* s = before->waitlink;
  if (s == nullptr) return nullptr;
  before->waitlink = s->waitlink;
  if (node->waittail == s) node->waittail = before == node ? nullptr : before;
  s->elem = nullptr;
  s->waitlink = nullptr;
  return s;
}

void SemaRoot::addHanded(Atomic<uint32_t>* addr, Sudog* s) {
  s->elem = addr;
  s->prev = nullptr;
  s->next = handed;
  if (handed != nullptr) handed->prev = s;
  handed = s;
}

void SemaRoot::removeHanded(Sudog* s) {
  (s->prev == nullptr ? handed : s->prev->next) = s->next;
  if (s->next != nullptr) s->next->prev = s->prev;
  s->elem = nullptr;
  nwait.add(UINT32_MAX, relaxed);  // under the lock
}

// ---- Semaphores -------------------------------------------------------------

namespace {

// markUsed notes that somebody waits on the page of root.
// On: any.  P: either.  Locks: none.  Parks: no.
void markUsed(const SemaRoot* root) {
  Atomic<bool>& used =
      semtableUsed[static_cast<uintptr_t>(root - semtable) / kRootsPerPage];
  if (!used.load(seq_cst)) used.store(true, seq_cst);  // A0: semaMainEnded
}

// takeHanded tells whether the count that the caller was handed is still his.
// On: user; m.locks > 0.  P: needed.  Locks: takes root->lock.  Parks: no.
bool takeHanded(SemaRoot* root, Sudog* s) {
  lock(&root->lock);
  const bool mine = s->elem != nullptr;
  if (mine) root->removeHanded(s);
  unlock(&root->lock);
  return mine;
}

}  // namespace

// Not analysed: goparkunlock takes the root's lock along and releases it once
// this goroutine is parked.
M* semacquirePinned(Atomic<uint32_t>* addr, bool lifo,
                    SemaReason reason) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Sudog s;
  s.g = runtimeEntry();
  SemaRoot* root = semroot(addr);
  markUsed(root);  // A0
  M* mp = acquirem();
  for (;;) {
    lock(&root->lock);
    // A1 then A2; the releaser's R1 then R2. See the top of the file.
    root->nwait.add(1, seq_cst);
    if (cansemacquire(addr)) {
      root->nwait.add(UINT32_MAX, relaxed);  // too high for a moment: harmless
      unlock(&root->lock);
      return mp;
    }
    // A releaser that saw A1 waits for the lock, and so for us to be parked.
    root->queue(addr, &s, lifo, cheaprand(mp) | 1);
    goparkunlock(&root->lock, semaWaitReason(reason));  // ends acquirem
    mp = acquirem();
    // ticket: written by the releaser before goready, which orders it.
    if (s.ticket != 0) {
      if (s.g->foreign || takeHanded(root, &s)) return mp;
      s.ticket = 0;
    }
    if (cansemacquire(addr)) return mp;
  }
}

void semacquire(Atomic<uint32_t>* addr, bool lifo, SemaReason reason) noexcept {
  if (cansemacquire(addr)) return;
  releasem(semacquirePinned(addr, lifo, reason));
}

namespace {

// wakeWaiter is R3. True: the waiter has been handed the count.
// On: any.  P: either, m.locks > 0.  Locks: takes root->lock.  Parks: no.
bool wakeWaiter(SemaRoot* root, Atomic<uint32_t>* addr, bool handoff) {
  lock(&root->lock);
  const bool ended = sched.mainEnded.load(seq_cst);  // (I5)
  Sudog* s = GUMP_UNLIKELY(ended) ? root->dequeueThread(addr) : nullptr;
  // None: another took the count, or the root has waiters on other addresses
  // only.
  if (s == nullptr) s = root->dequeue(addr);
  const bool handed = s != nullptr && handoff && !ended && cansemacquire(addr);
  if (handed) s->ticket = 1;
  if (handed && !s->g->foreign) {
    root->addHanded(addr, s);
  } else if (s != nullptr) {
    root->nwait.add(UINT32_MAX, relaxed);  // under the lock
  }
  unlock(&root->lock);
  if (s != nullptr) goready(s->g);  // (I2): s is gone, unless handed
  return handed;
}

// releaseN is semrelease of n. True: the one waiter has been handed the count,
// and may have our P.
// On: any.  P: either.  Locks: takes that of the root.  Parks: no.
bool releaseN(Atomic<uint32_t>* addr, uint32_t n, bool handoff) {
  SemaRoot* root = semroot(addr);
  addr->add(n, seq_cst);                             // R1; from here on (I3)
  if (root->nwait.load(seq_cst) == 0) return false;  // R2: pairs with A1

  // Not runtimeEntry: to yield between R1 and the wake-up would leave the
  // waiter asleep for as long, although the count is there.
  if (getg() == nullptr) needm();
  M* mp = getg()->m;
  // As it is: if main has ended, to wait for a P would be to keep for ourselves
  // what we release (I5), and what our caller will release after this.
  const bool lost = acquiremAsIs(mp);
  bool handed = false;
  for (; n != 0 && root->nwait.load(seq_cst) != 0; n--) {  // R2, each time
    handed = wakeWaiter(root, addr, handoff);
  }
  if (lost) stayLost(mp);
  releasem(mp);
  return handed && !lost;
}

}  // namespace

void semrelease(Atomic<uint32_t>* addr, bool handoff, bool yield) noexcept {
  // The new owner runs at once, in the rest of this slice: otherwise every
  // release of a starving lock would leave it idle until we block.
  if (releaseN(addr, 1, handoff) && yield && mayYield()) goyield();
}

void semreleaseN(Atomic<uint32_t>* addr, uint32_t n) noexcept {
  releaseN(addr, n, /*handoff=*/false);
}

namespace {

// aThreadWaits tells whether a plain thread is among those of a node.
bool aThreadWaits(const Sudog* node) {
  while (node != nullptr && !node->g->foreign) node = node->waitlink;
  return node != nullptr;
}

// takeThread dequeues a plain thread whose count is positive from the tree of
// t; nullptr: there is none.
// On: any.  P: either.  Locks: caller holds root->lock.  Parks: no.
Sudog* takeThread(SemaRoot* root, Sudog* t)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(root->lock) {
  if (t == nullptr) return nullptr;
  auto* addr = static_cast<Atomic<uint32_t>*>(t->elem);
  // The thread first: what goroutines alone wait on may be gone since an
  // earlier Run. A count that this misses is its releaser's to give, who has
  // yet to lock the root, and sees mainEnded then.
  if (aThreadWaits(t) && addr->load(relaxed) > 0) {
    return root->dequeueThread(addr);
  }
  if (Sudog* s = takeThread(root, t->prev); s != nullptr) return s;
  return takeThread(root, t->next);
}

// favourThreads takes back what goroutines of root were handed and have not
// claimed, and wakes the threads whose count is positive.
// On: g0.  P: either.  Locks: takes root->lock.  Parks: no.
void favourThreads(SemaRoot* root) {
  Sudog* first = nullptr;
  Sudog** last = &first;
  lock(&root->lock);
  while (Sudog* s = root->handed) {
    auto* addr = static_cast<Atomic<uint32_t>*>(s->elem);
    root->removeHanded(s);
    // Its waiters have the lock next, or are seen below. relaxed: it continues
    // the release sequence of R1.
    addr->add(1, relaxed);
  }
  // From the top each time, since taking one turns the tree; there are few.
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
    favourThreads(&root);
  }
}

// ---- Notification lists -----------------------------------------------------
//
// A waiter draws a ticket while it holds the user's lock, releases that lock,
// and only then enters the list. A notification in between must not be lost:
// notify is the first ticket not yet notified, so the waiter finds its ticket
// below it and does not sleep. Both look at notify under the list's lock.

uint32_t notifyListAdd(NotifyList* l) noexcept {
  // Ordered for a notifier by the user's lock; otherwise no order is promised.
  return l->wait.add(1, acq_rel) - 1;
}

// Not analysed: goparkunlock takes the lock along, as in semacquire.
void notifyListWait(NotifyList* l,
                    uint32_t ticket) noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Sudog s;
  s.g = runtimeEntry();
  Mutex* lk = notifyLock(l);
  M* mp = acquirem();  // gopark ends it
  lock(lk);
  if (ticketLess(ticket, l->notify.load(relaxed))) {  // written under lk
    unlock(lk);
    releasem(mp);
    return;
  }
  s.ticket = ticket;
  if (l->tail == nullptr) {
    l->head = &s;
  } else {
    l->tail->next = &s;
  }
  l->tail = &s;
  goparkunlock(lk, WaitReason::kSyncCondWait);
}

void notifyListNotifyAll(NotifyList* l) noexcept {
  // Acquire: pairs with notifyListAdd. Equal: nobody has waited since the last
  // notification, nobody at least whose ticket happens before this call.
  if (l->wait.load(acquire) == l->notify.load(acquire)) return;

  runtimeEntry();
  Mutex* lk = notifyLock(l);
  M* mp = acquirem();
  lock(lk);
  Sudog* s = l->head;
  l->head = nullptr;
  l->tail = nullptr;
  l->notify.store(l->wait.load(acquire), release);  // pairs with the load above
  unlock(lk);                                       // (I4)
  while (s != nullptr) {
    Sudog* next = s->next;
    goready(s->g);  // (I2)
    s = next;
  }
  releasem(mp);
}

void notifyListNotifyOne(NotifyList* l) noexcept {
  if (l->wait.load(acquire) == l->notify.load(acquire)) return;  // as above

  runtimeEntry();
  Mutex* lk = notifyLock(l);
  M* mp = acquirem();
  lock(lk);
  const uint32_t t = l->notify.load(relaxed);  // written under lk
  if (t == l->wait.load(acquire)) {
    unlock(lk);
    releasem(mp);
    return;
  }
  l->notify.store(t + 1, release);  // pairs with the load before the lock
  // The holder of ticket t is in the list, or will find t < notify and not
  // enter it. Tickets and list positions differ only among waiters that are
  // between drawing and entering, so the search is short.
  Sudog* prev = nullptr;
  Sudog* s = l->head;
  while (s != nullptr && s->ticket != t) {
    prev = s;
    s = s->next;
  }
  if (s != nullptr) {
    (prev == nullptr ? l->head : prev->next) = s->next;
    if (l->tail == s) l->tail = prev;
  }
  unlock(lk);                       // (I4)
  if (s != nullptr) goready(s->g);  // (I2)
  releasem(mp);
}

// ---- Spinning ---------------------------------------------------------------

namespace {
constexpr int kActiveSpin = 4;  // rounds before giving up
constexpr int kActiveSpinCnt =
    60;  // pauses per round; Go's 30 of a slower kind
}  // namespace

// Spinning is worth it only while the holder can be running elsewhere: there is
// another core, another P that is busy, and nothing else for this P to run. A
// plain thread keeps no P from working, so only the cores count for it.
bool canSpin(int i) noexcept {
  if (i >= kActiveSpin || ncpu <= 1) return false;
  const G* gp = getg();
  const P* pp = gp == nullptr ? nullptr : gp->m->p;
  if (pp == nullptr) return true;
  // A guess: all three may change at any time, and nothing depends on them.
  if (gomaxprocs.load(relaxed) <=
      sched.npidle.load(relaxed) + sched.nmspinning.load(relaxed) + 1) {
    return false;
  }
  return runqempty(pp);
}

void doSpin() noexcept { procyield(kActiveSpinCnt); }

int64_t monotonicNanos() noexcept { return nanotime(); }

}  // namespace gump::rt
