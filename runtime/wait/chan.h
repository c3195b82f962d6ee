// Channels: the header of a channel, its wait queues, and the two steps that
// can be made on a locked one.
//
// A channel is one allocation: this header, then the ring. It counts its
// handles (chanRetain, chanRelease). The caller of an operation holds a handle,
// so the channel outlives the call.
//
// Invariants, whenever c->lock is free:
// (I1) At least one of sendq and recvq is empty. The exception is one G that
//      selects on both directions of an unbuffered channel: then each queue
//      holds that G's sudogs, which cannot pair because the G is asleep.
// (I2) Buffered: qcount > 0 implies that recvq is empty, and qcount < dataqsiz
//      implies that sendq is empty.
// (I3) The slots [recvx, recvx + qcount) of the ring, modulo dataqsiz, hold
//      constructed elements. All others are raw.
// (I4) closed implies that both queues are empty. It never goes back to 0.
// (I5) A queued sudog belongs to a G that is kGwaiting, or to one that another
//      case of its select has woken. Such a G has yet to take this sudog out,
//      and its selectDone is 1 until it has done so. So the sudog's memory,
//      which is on the G's own stack, is valid.
//
// In these invariants "empty" means that the queue has no sudog that dequeue
// would return. A queue may also hold sudogs of selects that another case has
// woken.
//
// Waiting and waking. The waiter checks the channel and enqueues in one locked
// section, and unlocks once it is kGwaiting. The waker changes the channel and
// dequeues in one locked section. So either the waiter sees the change, or the
// waker sees the sudog, and no wake-up is lost. Only the waker may touch a
// sudog that it has dequeued, and only until it calls goready.
//
// Rejected:
// - A lock-free ring. Go's semantics need close, length and queues to change
//   together, and under the lock a buffered operation is some ten instructions.
// - A count of references held by sleeping operations. It costs two atomic
//   read-modify-writes a park, for a guarantee that the handle already gives.
// - operator new with an alignment. glibc's goes past the thread cache, and
//   aligning by hand costs 48 bytes.
#ifndef RUNTIME_WAIT_CHAN_H_
#define RUNTIME_WAIT_CHAN_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/sched/hibernate.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

// Waitq is a FIFO of sudogs, guarded by the channel's lock. `first` is atomic
// only for the peeks without the lock, which compare it with nullptr and never
// follow it. `last` means nothing while first is nullptr.
struct Waitq {
  Atomic<Sudog*> first;  // written under the lock
  Sudog* last = nullptr;
};

// ElemKind says how to copy an element; the common sizes come first. Elements
// of the kinds up to kLastFast are copied without a call.
enum class ElemKind : uint8_t {
  kWord8,   // 8 bytes, trivially copyable
  kWord4,   // 4 bytes, trivially copyable
  kEmpty,   // chan<void>
  kWord16,  // 16 bytes, trivially copyable
  kWord1,   // 1 byte, trivially copyable
  kBytes,   // any other size, trivially copyable
  kObject,  // has a move function, maybe a destroy function
};
inline constexpr ElemKind kLastFast = ElemKind::kWord1;

// Hchan fills two cache lines. The first has all that a buffered operation
// writes; the second is hardly ever written.
struct alignas(kCacheLine) Hchan {
  // Guards everything that is written after makechan, except refs. Forbidden
  // under it:
  // - parking and malloc;
  // - destructors of values (moves, and the destructors of moved-from shells,
  //   do run under it);
  // - any lock except channels of higher addresses and those goready takes.
  Mutex lock{LockRank::kHchan};
  Atomic<uint32_t> closed;  // 0 or 1; peeked at without the lock
  Atomic<size_t> qcount;    // elements in the ring; peeked at without the lock
  uint32_t sendx ABSL_GUARDED_BY(lock) = 0;  // next slot to fill
  uint32_t recvx ABSL_GUARDED_BY(lock) = 0;  // next slot to take
  Waitq recvq;
  Waitq sendq;

  // Constant after makechan.
  size_t dataqsiz = 0;
  size_t elemsize = 0;
  unsigned char* buf = nullptr;
  void (*move)(void* dst, void* src) noexcept = nullptr;
  void (*destroy)(void* elem) noexcept = nullptr;
  void* base = nullptr;  // the pointer that operator new returned
  ElemKind kind = ElemKind::kEmpty;
  bool isTimer = false;  // part of a TimerChan (timechan.h)
  // The fast paths of chan.cc apply: made by makechan, outside of bubbles, and
  // its elements are copied without a call. Constant.
  bool fast = false;
  uint32_t elemalign = 1;

  Atomic<uint32_t> refs{1};  // handles
  uint32_t bubble = 0;       // Bubble::id (synctest.h), or 0
};
static_assert(sizeof(Hchan) == 2 * kCacheLine);
static_assert(offsetof(Hchan, dataqsiz) == kCacheLine,
              "the fields that operations write fill the first line exactly");

// The ring is indexed with 32 bits, so that the first line stays one line.
// (Unlike in Go, makechan refuses a larger capacity, unless elements have size
// 0.)
inline constexpr size_t kMaxRing = UINT32_MAX;
// More bytes than a process can address, so there is no need to ask operator
// new.
inline constexpr size_t kMaxChanBytes = size_t{1} << 47;

// enterRuntime is runtimeEntry with its usual case inline: a G that has not
// been asked to yield.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: may yield.
GUMP_ALWAYS_INLINE G* enterRuntime() {
  G* gp = getg();
  // Relaxed: a request, not data. If this load misses it, the next one sees it.
  if (GUMP_UNLIKELY(gp == nullptr || gp->preempt.load(relaxed))) {
    return runtimeEntry();
  }
  return gp;
}

// pollPreempt is for operations that end without taking a lock. It honours a
// request to yield but does not lend a G to a foreign thread.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: may yield.
GUMP_ALWAYS_INLINE void pollPreempt() {
  G* gp = getg();
  // As in enterRuntime.
  if (GUMP_UNLIKELY(gp != nullptr && gp->preempt.load(relaxed))) {
    (void)runtimeEntry();
  }
}

// acquiremOf is acquirem for a caller that already has its G. It saves two
// loads.
GUMP_ALWAYS_INLINE M* acquiremOf(G* gp) { return acquirem(gp->m); }

// ---- Wait queues ------------------------------------------------------------
// All three functions:
// On: any.  P: either.  Locks: caller holds the channel's lock.  Parks: no.

inline void enqueue(Waitq* q, Sudog* sg) {
  sg->next = nullptr;
  if (q->first.load(relaxed) == nullptr) {  // we hold the lock
    sg->prev = nullptr;
    q->first.store(sg, relaxed);  // peeks only compare it with nullptr
  } else {
    nearStack(q->last);
    sg->prev = q->last;
    q->last->next = sg;
  }
  q->last = sg;
}

// dequeue takes out the first sudog that can still be woken, or returns
// nullptr. A select's sudog counts only if this channel wins selectDone. A
// sudog that dequeue passes over leaves the queue too (both links null, not
// first), which dequeueSudoG recognizes.
GUMP_ALWAYS_INLINE Sudog* dequeue(Waitq* q) {
  for (;;) {
    Sudog* sg = q->first.load(relaxed);  // we hold the lock
    if (sg == nullptr) return nullptr;
    nearStack(sg);
    Sudog* y = sg->next;
    q->first.store(y, relaxed);  // as in enqueue
    if (y != nullptr) {
      nearStack(y);
      y->prev = nullptr;
      sg->next = nullptr;
    }
    // Relaxed: several channels compete for this one word, each under its own
    // lock, and only the order of its values decides. goready publishes all
    // that the winner writes. The 0 that the CAS expects was stored before the
    // sudog was enqueued under this lock.
    if (sg->isSelect && GUMP_UNLIKELY(!sg->g->selectDone.cas(0, 1, relaxed))) {
      continue;
    }
    return sg;
  }
}

// dequeueSudoG takes sg out of the middle of its queue, in constant time, if no
// waker has done so yet.
inline void dequeueSudoG(Waitq* q, Sudog* sg) {
  Sudog* x = sg->prev;
  Sudog* y = sg->next;
  if (x != nullptr) {  // behind another
    x->next = y;
    if (y != nullptr) {
      y->prev = x;
    } else {
      q->last = x;
    }
  } else if (q->first.load(relaxed) == sg) {  // first; we hold the lock
    q->first.store(y, relaxed);               // as in enqueue
    if (y != nullptr) y->prev = nullptr;
  }
  sg->next = nullptr;
  sg->prev = nullptr;
}

// ---- Elements ---------------------------------------------------------------

void typedmemmoveSlow(const Hchan* c, void* dst, void* src);

// copyWord is typedmemmove for kinds up to kLastFast.
// On: any.  P: either.  Locks: c's.  Parks: no.
GUMP_ALWAYS_INLINE void copyWord(const Hchan* c, void* dst, const void* src) {
  if (GUMP_LIKELY(c->kind == ElemKind::kWord8)) {
    memcpy(dst, src, 8);
  } else if (c->kind == ElemKind::kWord4) {
    memcpy(dst, src, 4);
  } else if (c->kind == ElemKind::kWord16) {
    memcpy(dst, src, 16);
  } else if (c->kind == ElemKind::kWord1) {
    memcpy(dst, src, 1);
  }
}

// typedmemmove move-constructs an element at dst.
// On: any.  P: either.  Locks: c's.  Parks: no.
GUMP_ALWAYS_INLINE void typedmemmove(const Hchan* c, void* dst, void* src) {
  if (GUMP_LIKELY(c->kind <= kLastFast)) {
    copyWord(c, dst, src);
  } else {
    typedmemmoveSlow(c, dst, src);
  }
}

GUMP_ALWAYS_INLINE unsigned char* chanbuf(const Hchan* c, uint32_t i) {
  return c->buf + size_t{i} * c->elemsize;
}

// takeSlot moves the element of a ring slot to elem and leaves the slot raw. If
// elem is nullptr it drops the element, which is allowed only for a type
// without destroy.
GUMP_ALWAYS_INLINE void takeSlot(const Hchan* c, void* elem, void* slot) {
  if (GUMP_LIKELY(elem != nullptr)) typedmemmove(c, elem, slot);
  if (GUMP_UNLIKELY(c->destroy != nullptr)) c->destroy(slot);
}

// ---- The ring of a channel with `fast` --------------------------------------
// All functions:
// On: any.  P: either.  Locks: caller holds c->lock.  Parks: no.

// pushBack copies *elem into the ring, which has n elements and room for more.
GUMP_ALWAYS_INLINE void pushBack(Hchan* c, const void* elem, size_t n)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c->lock) {
  const uint32_t x = c->sendx;
  copyWord(c, chanbuf(c, x), elem);
  c->sendx = x + 1 == c->dataqsiz ? 0 : x + 1;
  c->qcount.store(n + 1, relaxed);  // peeks read it as a number only
}
// popFront takes the first of the n elements out of the ring, and copies it to
// *elem, unless elem is nullptr.
GUMP_ALWAYS_INLINE void popFront(Hchan* c, void* elem, size_t n)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c->lock) {
  const uint32_t x = c->recvx;
  if (GUMP_LIKELY(elem != nullptr)) copyWord(c, elem, chanbuf(c, x));
  c->recvx = x + 1 == c->dataqsiz ? 0 : x + 1;
  c->qcount.store(n - 1, relaxed);  // peeks read it as a number only
}

// ---- The two steps on a locked channel --------------------------------------

struct ChanStep {
  ChanResult result;  // kWouldBlock: nothing was changed
  Sudog* wake;        // pass it to wakeWaiter after the unlock; may be nullptr
};

// sendLocked sends *elem if it can do so without waiting.
// On: any.  P: either.  Locks: caller holds c->lock.  Parks: no.
GUMP_ALWAYS_INLINE ChanStep sendLocked(Hchan* c, void* elem)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c->lock) {
  if (GUMP_UNLIKELY(c->closed.load(relaxed) != 0)) {  // we hold the lock
    return {ChanResult::kClosed, nullptr};
  }
  if (Sudog* sg = dequeue(&c->recvq)) {
    // A receiver is waiting: move the value to its variable directly.
    if (sg->elem != nullptr) typedmemmove(c, sg->elem, elem);
    return {ChanResult::kOk, sg};
  }
  size_t n = c->qcount.load(relaxed);  // we hold the lock
  if (n < c->dataqsiz) {
    uint32_t x = c->sendx;
    typedmemmove(c, chanbuf(c, x), elem);
    c->sendx = x + 1 == c->dataqsiz ? 0 : x + 1;
    c->qcount.store(n + 1, relaxed);  // peeks read it as a number only
    return {ChanResult::kOk, nullptr};
  }
  return {ChanResult::kWouldBlock, nullptr};
}

// recvLocked receives into elem if it can do so without waiting. If senders are
// queued behind a full ring, the ring turns by one: its head goes to elem, and
// the first sender's value goes into the freed slot, which is also the tail.
// On: any.  P: either.  Locks: caller holds c->lock.  Parks: no.
GUMP_ALWAYS_INLINE ChanStep recvLocked(Hchan* c, void* elem)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c->lock) {
  Sudog* sg = dequeue(&c->sendq);      // none if closed (I4)
  size_t n = c->qcount.load(relaxed);  // we hold the lock
  if (n > 0) {
    uint32_t x = c->recvx;
    unsigned char* slot = chanbuf(c, x);
    takeSlot(c, elem, slot);
    c->recvx = x + 1 == c->dataqsiz ? 0 : x + 1;
    if (sg != nullptr) {
      typedmemmove(c, slot, sg->elem);
      c->sendx = c->recvx;
    } else {
      c->qcount.store(n - 1, relaxed);  // peeks read it as a number only
    }
    return {ChanResult::kOk, sg};
  }
  if (sg != nullptr) {
    if (elem != nullptr) typedmemmove(c, elem, sg->elem);
    return {ChanResult::kOk, sg};
  }
  return {GUMP_UNLIKELY(c->closed.load(relaxed) != 0)  // we hold the lock
              ? ChanResult::kClosed
              : ChanResult::kWouldBlock,
          nullptr};
}

// wakeWaiter readies the G of a sudog that a step has paired with. Everything
// that the G must see is written before goready.
// On: any.  P: either.  Locks: no channel's.  Parks: no.
GUMP_ALWAYS_INLINE void wakeWaiter(Sudog* sg) {
  G* gp = sg->g;
  sg->success = true;
  gp->param = sg;
  goready(gp);
}
// wakeWaiterAndRelease is wakeWaiter, and then releasem(mp), for a G that is
// not special.
// On, Locks, Parks: as wakeWaiter; m.locks > 0.
GUMP_ALWAYS_INLINE void wakeWaiterAndRelease(Sudog* sg, M* mp) {
  G* gp = sg->g;
  sg->success = true;
  gp->param = sg;
  readyAndRelease(mp, gp, kGwaiting);
}

// ---- Peeks without the lock -------------------------------------------------
// Each reads a single word and answers for one moment. The loads are acquire,
// so that a second peek comes after the first.

// full returns true if a send on c would have to wait, provided that c is open.
inline bool full(const Hchan* c) {
  if (c->dataqsiz == 0) {
    // Acquire orders the peeks; it pairs with no store.
    return c->recvq.first.load(acquire) == nullptr;
  }
  return c->qcount.load(acquire) == c->dataqsiz;  // as above
}

// empty returns true if a receive from c would have to wait, provided that c is
// open.
inline bool empty(const Hchan* c) {
  if (c->dataqsiz == 0) {
    // Acquire orders the peeks; it pairs with no store.
    return c->sendq.first.load(acquire) == nullptr;
  }
  return c->qcount.load(acquire) == 0;  // as above
}

// DiscardBuffer is raw storage for one element that is about to be destroyed.
// It is made before the lock is taken.
class DiscardBuffer {
 public:
  DiscardBuffer(size_t size, size_t align);
  ~DiscardBuffer();
  DiscardBuffer(const DiscardBuffer&) = delete;
  DiscardBuffer& operator=(const DiscardBuffer&) = delete;
  void* get() { return heap_ != nullptr ? heap_ : small_; }

 private:
  alignas(16) unsigned char small_[64];
  void* heap_ = nullptr;
  size_t align_;
};

// chanparkforever parks the caller forever.
// On: user, or a foreign thread.  P: needed.  Locks: none.  Parks: yes.
[[noreturn]] void chanparkforever(WaitReason reason);

}  // namespace gump::rt

#endif  // RUNTIME_WAIT_CHAN_H_
