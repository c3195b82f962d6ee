// Semaphores by address, and the ticket lists of condition variables.
//
// Invariants:
//  (I1) A Sudog is on at most one list of one root: its treap, or `handed`. It
//       lies on the stack of the waiter, which has not left semacquire.
//  (I2) Only the thread that dequeues a Sudog, or takes it off a NotifyList,
//       calls goready for its G. After that the Sudog is gone, unless it is in
//       `handed`: there it stays until its goroutine or semaMainEnded removes
//       it, under the root's lock.
//  (I3) After R1, *addr is touched only under the root's lock, for a Sudog of
//       addr that is queued, handed or just dequeued. Its goroutine is inside
//       semacquire, so the object around addr is alive. (So is the object of a
//       goroutine that main leaves behind.) Otherwise addr is only a number.
//  (I4) A notifier does not touch a NotifyList after releasing its lock.
//  (I5) When main has ended, no count is kept for a goroutine that has not run
//       yet, and no foreign thread sleeps on addr while *addr > 0; see below.
// (I3) and (I4) allow a woken goroutine to destroy the object at once.
//
// The protocol for a count that is not handed over, against lost wake-ups:
//
//   semacquire                             semrelease
//   A0 mark the page of the table
//   A1 nwait += 1                          R1 *addr += 1
//   A2 *addr > 0? take it, do not sleep    R2 nwait == 0? no waiter to wake
//   A3 enter the treap, park               R3 lock, take a waiter, wake it
//
// A1, A2, R1, R2 are seq_cst, so in their one total order either A1 precedes R2
// or R1 precedes A2: the releaser sees the waiter, or the waiter sees the
// count. In the first case R3 finds the waiter in the treap, because A1..A3
// happen under the root's lock, which is released only when the waiter is
// parked.
//
// A woken waiter competes for the count with goroutines that call semacquire in
// the meantime (barging), unless the releaser takes the count on the waiter's
// behalf (hand-off).
//
// After main has returned, no M runs the goroutines that are left over. A count
// given to one of them would be lost to the foreign threads that wait behind
// it, which is why (I5) must hold. A foreign thread that arrives later takes
// the count at A2. For foreign threads that sleep already:
// - semrelease checks under the root's lock whether main has ended. If so, it
//   wakes foreign threads first and hands nothing over.
// - semaMainEnded undoes the hand-offs that semrelease made before that. Under
//   the same lock it takes back the counts that goroutines were handed and have
//   not claimed. Then it wakes the foreign threads that have a positive count.
//
// semaMainEnded skips a root if its page is not marked or its nwait is 0.
// (Waiters in `handed` count in nwait.) For such a root, A0 or A1 of any waiter
// comes after that check, and so after mainEnded was stored. If the waiter's A2
// misses a count, the R1 of that count comes later still, and its release sees
// mainEnded. All of these are seq_cst.
//
// Run returns only after semaMainEnded. So an object with a count that was
// handed over and not claimed still exists when semaMainEnded touches it.
//
// Rejected:
// - A wait queue inside each lock. It costs two words in every object and a
//   second lock word, and the waker would have to touch them when the object
//   may be gone.
// - Go's pool of sudogs. Go needs it because its stacks move. Ours do not, and
//   a Sudog on the waiter's stack is already in its cache.
#include "runtime/wait/sema.h"

#include <algorithm>

#include "gump/internal/linkname.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/waitreason.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

namespace {

constinit SemaRoot semtable[kSemTabSize];
// The pages of semtable on which there has been a waiter, marked at A0.
// semaMainEnded skips the others, which are not resident.
constexpr uintptr_t kRootsPerPage =
    std::min<uintptr_t>(kSemTabSize, 4096 / sizeof(SemaRoot));
constinit Atomic<bool> semtableUsed[kSemTabSize / kRootsPerPage];

struct alignas(kFalseSharing) NotifyLock {
  // Guards head, tail and the writing of notify in every NotifyList whose
  // address hashes to this lock. Forbidden while holding it: malloc, readying a
  // goroutine.
  Mutex lock{LockRank::kNotifyList};
};
constexpr uintptr_t kNotifyTabSize = 61;  // prime
constinit NotifyLock notifytable[kNotifyTabSize];

Mutex* notifyLock(const NotifyList* l) {
  return &notifytable[(reinterpret_cast<uintptr_t>(l) >> 3) % kNotifyTabSize]
              .lock;
}

// cansemacquire takes one from *addr if it is positive. Returns true if it did.
// On: any.  P: either.  Locks: none.  Parks: no.
bool cansemacquire(Atomic<uint32_t>* addr) {
  uint32_t v = addr->load(seq_cst);  // A2: pairs with R1, after A1
  while (v > 0) {
    // Acquire: pairs with R1, so that all that preceded the release is visible.
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

// mayYield returns true if the caller may give its slice to the goroutine that
// it has just readied. To do so the caller must be a goroutine that runs on its
// own stack, pins nothing, and has not given up its P in a system call.
bool mayYield() {
  const G* gp = getg();
  return !gp->foreign && gp == gp->m->curg.load(relaxed) &&
         gp->m->locks.load(relaxed) == 0 &&  // written by this thread only
         (readgstatus(gp) & ~uint32_t{kGscan}) != kGsyscall;
}

// ticketLess orders tickets. They wrap around, so it is right for at most 2^31
// waiters at a time.
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
    // s becomes the node, with t's place and heap key. t becomes the head of
    // the list below s.
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
  // A new address: insert a leaf and lift it until its parent's key is not
  // greater.
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
    // The next waiter takes over the node.
    t->ticket = s->ticket;
    t->prev = s->prev;
    t->next = s->next;
    if (t->prev != nullptr) t->prev->parent = t;
    if (t->next != nullptr) t->next->parent = t;
    replaceChild(s->parent, s, t);
    t->waittail = t->waitlink == nullptr ? nullptr : s->waittail;
  } else {
    // Rotate s down until it is a leaf, each time below its smaller child.
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

// markUsed records that the page of root has had a waiter.
// On: any.  P: either.  Locks: none.  Parks: no.
void markUsed(const SemaRoot* root) {
  Atomic<bool>& used =
      semtableUsed[static_cast<uintptr_t>(root - semtable) / kRootsPerPage];
  if (!used.load(seq_cst)) used.store(true, seq_cst);  // A0: for semaMainEnded
}

// takeHanded claims the count that the caller was handed. Returns false if
// semaMainEnded has taken the count back.
// On: user; m.locks > 0.  P: needed.  Locks: takes root->lock.  Parks: no.
bool takeHanded(SemaRoot* root, Sudog* s) {
  lock(&root->lock);
  const bool mine = s->elem != nullptr;
  if (mine) root->removeHanded(s);
  unlock(&root->lock);
  return mine;
}

}  // namespace

// Not analysed: goparkunlock releases the root's lock once this goroutine is
// parked.
M* semacquirePinned(Atomic<uint32_t>* addr, bool lifo,
                    SemaReason reason) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Sudog s;
  s.g = runtimeEntry();
  SemaRoot* root = semroot(addr);
  markUsed(root);  // A0
  M* mp = acquirem();
  for (;;) {
    lock(&root->lock);
    // A1, then A2. The releaser does R1, then R2. See the top of the file.
    root->nwait.add(1, seq_cst);
    if (cansemacquire(addr)) {
      root->nwait.add(UINT32_MAX, relaxed);  // too high for a moment: harmless
      unlock(&root->lock);
      return mp;
    }
    // A releaser that saw A1 waits for the lock, and so until we are parked.
    root->queue(addr, &s, lifo, cheaprand(mp) | 1);
    goparkunlock(&root->lock, semaWaitReason(reason));  // ends acquirem
    mp = acquirem();
    // The releaser writes ticket before goready, which orders it.
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

// wakeWaiter is R3. Returns true if the waiter has been handed the count.
// On: any.  P: either, m.locks > 0.  Locks: takes root->lock.  Parks: no.
bool wakeWaiter(SemaRoot* root, Atomic<uint32_t>* addr, bool handoff) {
  lock(&root->lock);
  const bool ended = sched.mainEnded.load(seq_cst);  // (I5)
  Sudog* s = GUMP_UNLIKELY(ended) ? root->dequeueThread(addr) : nullptr;
  // This finds no waiter if another goroutine has already taken the count, or
  // if the root has waiters on other addresses only.
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

// releaseN is semrelease of n. Returns true if the waiter that it woke (the
// last one, if several) has been handed the count and may have our P.
// On: any.  P: either.  Locks: takes that of the root.  Parks: no.
bool releaseN(Atomic<uint32_t>* addr, uint32_t n, bool handoff) {
  SemaRoot* root = semroot(addr);
  addr->add(n, seq_cst);                             // R1; from here on (I3)
  if (root->nwait.load(seq_cst) == 0) return false;  // R2: pairs with A1

  // runtimeEntry is not called here because it may yield. Between R1 and the
  // wake-up that would leave the waiter asleep all the while, although the
  // count is there.
  if (getg() == nullptr) needm();
  M* mp = getg()->m;
  // acquiremNoPark does not wait for a P. If main has ended, such a wait would
  // withhold the count that we release (I5), and all that our caller will
  // release after it.
  const bool lost = acquiremNoPark(mp);
  bool handed = false;
  for (; n != 0 && root->nwait.load(seq_cst) != 0; n--) {  // R2, each time
    handed = wakeWaiter(root, addr, handoff);
  }
  if (lost) markPLost(mp);
  releasem(mp);
  return handed && !lost;
}

}  // namespace

void semrelease(Atomic<uint32_t>* addr, bool handoff, bool yield) noexcept {
  // The new owner runs at once, in the rest of this slice. Otherwise every
  // release of a starving lock would leave the lock idle until we block.
  if (releaseN(addr, 1, handoff) && yield && mayYield()) goyield();
}

void semreleaseN(Atomic<uint32_t>* addr, uint32_t n) noexcept {
  releaseN(addr, n, /*handoff=*/false);
}

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
  // Start from the top each time, because taking one turns the tree. There are
  // few.
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

// ---- Notification lists -----------------------------------------------------
//
// A waiter draws a ticket while it holds the user's lock, releases that lock,
// and only then enters the list. A notification in between must not be lost.
// notify is the first ticket that has not been notified, so the waiter finds
// its ticket below notify and does not sleep. Both sides look at notify under
// the list's lock.

uint32_t notifyListAdd(NotifyList* l) noexcept {
  // The user's lock orders this for a notifier. Without it no order is
  // promised.
  return l->wait.add(1, acq_rel) - 1;
}

// Not analysed: goparkunlock releases the lock, as in semacquire.
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
  // Acquire: pairs with notifyListAdd. If they are equal, no waiter has drawn a
  // ticket since the last notification, at least none that drew it before this
  // call in happens-before order.
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
  // The waiter with ticket t is in the list, or will find t < notify and not
  // enter it. The order of tickets and of the list differs only among waiters
  // that are between drawing and entering, so the search is short.
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
    60;  // pauses per round; Go has 30, of a slower kind
}  // namespace

// Spinning pays only while the holder can be running elsewhere. So there must
// be another core and another busy P, and nothing else for this P to run. A
// foreign thread keeps no P from working, so only the cores count for it.
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
