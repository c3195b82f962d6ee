// The channel operations. chan.h describes the structure, its invariants and
// why no wake-up is lost.
//
// Every operation has the same shape:
//   1. If it may not wait, peek without the lock.
//   2. Lock, make one step (sendLocked or recvLocked), unlock.
//   3. Wake the waiter that the step paired with.
// If the step found nothing, the operation takes the slow path. It still holds
// the lock there, and the park releases it. So an operation locks only once. (A
// receive from a channel of time locks again; see recvTimer.) The usual case
// takes the same steps in fewer instructions: see "The fast paths" below.
#include "runtime/wait/chan.h"

#include <new>

#include "runtime/diag/mprof.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/synctest.h"
#include "runtime/wait/timechan.h"

namespace gump::rt {

// ---- Making and destroying --------------------------------------------------

namespace {

// The alignment that operator new gives; makechan adds the rest by hand.
constexpr size_t kNewAlign = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

ElemKind elemKind(const ElemType* t) {
  if (t->size == 0) return ElemKind::kEmpty;
  if (t->move != nullptr) return ElemKind::kObject;
  if (t->size == 8) return ElemKind::kWord8;
  if (t->size == 4) return ElemKind::kWord4;
  if (t->size == 16) return ElemKind::kWord16;
  if (t->size == 1) return ElemKind::kWord1;
  return ElemKind::kBytes;
}

}  // namespace

Hchan* makechan(const ElemType* t, size_t cap) noexcept {
  size_t bytes = 0;
  if (cap > PTRDIFF_MAX || (t->size != 0 && cap > kMaxRing) ||
      __builtin_mul_overflow(cap, t->size, &bytes) || bytes > kMaxChanBytes) {
    return nullptr;
  }
  size_t align = t->align > kCacheLine ? t->align : kCacheLine;
  size_t ring = alignUp(sizeof(Hchan), t->align);
  void* base = ::operator new(ring + bytes + align - kNewAlign, std::nothrow);
  if (base == nullptr) return nullptr;
  uintptr_t at = alignUp(reinterpret_cast<uintptr_t>(base), align);
  auto* c = new (reinterpret_cast<void*>(at)) Hchan;
  c->dataqsiz = cap;
  c->elemsize = t->size;
  c->buf = reinterpret_cast<unsigned char*>(at) + ring;
  c->move = t->move;
  c->destroy = t->destroy;
  c->base = base;
  c->kind = elemKind(t);
  c->elemalign = static_cast<uint32_t>(t->align);
  // A foreign thread without a G is in no bubble.
  if (const G* gp = getg(); GUMP_UNLIKELY(gp != nullptr && gp->special)) {
    c->bubble = currentBubble();
  }
  c->fast = c->kind <= kLastFast && c->bubble == 0;
  return c;
}

// A channel that was made in a bubble never becomes `fast`.
void chanLeaveBubble(Hchan* c) noexcept { c->bubble = 0; }

void chanRetain(Hchan* c) noexcept {
  // The caller's handle keeps the count above 0, and nothing is published.
  c->refs.add(1, relaxed);
}

// Relaxed: every handle that the caller knows of has been counted already.
bool chanShared(const Hchan* c) noexcept { return c->refs.load(relaxed) > 1; }

void chanRelease(Hchan* c) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // last handle: no other thread uses c
  // Release: all that this handle's holder did to c happens before the
  // destruction. Acquire: so does all that the other holders did.
  if (c->refs.add(static_cast<uint32_t>(-1), acq_rel) != 0) return;
  if (GUMP_UNLIKELY(c->isTimer)) {
    timerChanFree(c);
    return;
  }
  if (c->destroy != nullptr) {
    uint32_t x = c->recvx;
    for (size_t n = c->qcount.load(relaxed); n > 0; n--) {  // last handle
      c->destroy(chanbuf(c, x));
      x = x + 1 == c->dataqsiz ? 0 : x + 1;
    }
  }
  void* base = c->base;
  c->~Hchan();
  ::operator delete(base);
}

void typedmemmoveSlow(const Hchan* c, void* dst, void* src) {
  if (GUMP_LIKELY(c->kind == ElemKind::kObject)) {
    c->move(dst, src);
  } else {
    memcpy(dst, src, c->elemsize);
  }
}

DiscardBuffer::DiscardBuffer(size_t size, size_t align) : align_(align) {
  if (size <= sizeof(small_) && align <= 16) return;
  heap_ = ::operator new (size, std::align_val_t{align}, std::nothrow);
  if (heap_ == nullptr) fatalAll("out of memory");
}

DiscardBuffer::~DiscardBuffer() {
  if (heap_ != nullptr) ::operator delete (heap_, std::align_val_t{align_});
}

// ---- Parking ----------------------------------------------------------------

void chanparkforever(WaitReason reason) {
  (void)acquiremOf(enterRuntime());  // gopark ends it
  gopark(nullptr, nullptr, reason);
  fatalthrow("unreachable");
}

namespace {

// waitReason returns `inside` if c belongs to a bubble, and `outside`
// otherwise. In the first case the caller is in that bubble too.
GUMP_ALWAYS_INLINE WaitReason waitReason(const Hchan* c, WaitReason outside,
                                         WaitReason inside) {
  return GUMP_UNLIKELY(c->bubble != 0) ? inside : outside;
}
WaitReason recvReason(const Hchan* c) {
  return waitReason(c, WaitReason::kChanReceive,
                    WaitReason::kSynctestChanReceive);
}
WaitReason sendReason(const Hchan* c) {
  return waitReason(c, WaitReason::kChanSend, WaitReason::kSynctestChanSend);
}

// sleepOn is parkOn.
// On, P, Locks, Parks: as parkOn.
GUMP_ALWAYS_INLINE ChanResult sleepOn(Hchan* c, Waitq* q, G* gp, void* elem,
                                      WaitReason reason, const char* spurious)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the lock is released after the switch
  Sudog sg;
  sg.g = gp;
  sg.elem = elem;
  sg.c = c;
  enqueue(q, &sg);
  gp->param = c;  // for leaks.cc, until the waker sets it
  // The step that found nothing and this enqueue are one locked section, which
  // ends once gp is kGwaiting. A goroutine that could satisfy us locks c either
  // before this section or after it. If before, our step would have found its
  // change. If after, it finds sg.
  goparkunlock(&c->lock, reason);
  if (GUMP_UNLIKELY(gp->param != &sg)) fatalthrow(spurious);
  gp->param = nullptr;
  return sg.success ? ChanResult::kOk : ChanResult::kClosed;
}

// parkProfiled is parkOn while the block profile is on.
// On, P, Locks, Parks: as parkOn.
GUMP_COLD ChanResult parkProfiled(Hchan* c, Waitq* q, G* gp, void* elem,
                                  WaitReason reason, const char* spurious) {
  const int64_t since = nanotime();
  const ChanResult r = sleepOn(c, q, gp, elem, reason, spurious);
  blockEvent(since);
  return r;
}

// parkOn enqueues the caller on q and sleeps until a waker has moved its value
// or has closed the channel. After a value, parkOn does not touch the channel
// again. So the call is safe even if the waker then destroys the handle that
// the caller uses.
// On: user, or a foreign thread.  P: needed.
// Locks: releases c->lock and ends the caller's acquirem.  Parks: yes.
GUMP_NOINLINE ChanResult parkOn(Hchan* c, Waitq* q, G* gp, void* elem,
                                WaitReason reason,
                                const char* spurious) noexcept {
  if (blockProfiled()) return parkProfiled(c, q, gp, elem, reason, spurious);
  return sleepOn(c, q, gp, elem, reason, spurious);
}

// recvTimer continues a receive that has found a channel of time empty. It runs
// the timer if that is due. Otherwise it keeps the timer in a heap while the
// caller waits.
// On: user, or a foreign thread.  P: needed.
// Locks: as parkOn.  Parks: yes.
GUMP_NOINLINE ChanResult recvTimer(Hchan* c, G* gp, M* mp, void* elem) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as chanrecv
  Timer* t = &timerChanOf(c)->t;
  unlock(&c->lock);
  (void)timerRunIfDue(t);
  chanRetain(c);  // timechan.h, (C3)
  lock(&c->lock);
  ChanStep step = recvLocked(c, elem);
  if (step.result == ChanResult::kWouldBlock) {
    timerBlock(t);
    step.result = parkOn(c, &c->recvq, gp, elem, recvReason(c),
                         "chanrecv: spurious wakeup");
    mp = acquiremOf(gp);
    timerUnblock(t);
  } else {
    unlock(&c->lock);
  }
  chanRelease(c);
  releasem(mp);
  return step.result;
}

// timerHasRun runs the timer of c, a channel of time, if that is due. Returns
// true if it was due, so that c may hold a value now.
GUMP_NOINLINE bool timerHasRun(Hchan* c) {
  M* mp = acquiremOf(enterRuntime());
  const bool ran = timerRunIfDue(&timerChanOf(c)->t);
  releasem(mp);
  return ran;
}

}  // namespace

// ---- Send and receive in general --------------------------------------------
// These functions handle all cases. A fast path that meets an unusual one
// continues in one of them, at the point that it has reached.

namespace {

// finishSend sends on a locked channel, and waits if it has to.
// On: user, or a foreign thread.  P: needed.
// Locks: releases c->lock and ends the caller's acquirem.  Parks: if block.
GUMP_ALWAYS_INLINE ChanResult finishSend(Hchan* c, void* elem, bool block,
                                         M* mp) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // parkOn releases the lock
  ChanStep step = sendLocked(c, elem);
  if (GUMP_LIKELY(step.result != ChanResult::kWouldBlock || !block)) {
    unlock(&c->lock);
    if (step.wake != nullptr) wakeWaiter(step.wake);
    releasem(mp);
    return step.result;
  }
  return parkOn(c, &c->sendq, getg(), elem, sendReason(c),
                "chansend: spurious wakeup");
}

// sendHolding is finishSend out of line.
// On, P, Locks, Parks: as finishSend.
GUMP_NOINLINE ChanResult
sendHolding(Hchan* c, void* elem, bool block,
            M* mp) noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishSend
  return finishSend(c, elem, block, mp);
}

// sendContended continues a send that has found the channel locked.
// On, P, Parks: as finishSend.  Locks: takes c->lock.
GUMP_COLD ChanResult
sendContended(Hchan* c, void* elem, bool block,
              M* mp) noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishSend
  lockAfterTry(&c->lock);
  return sendHolding(c, elem, block, mp);
}

// sendReentering continues a send that has found mp presumed blocked.
// On: user; m.locks is 1.  P: maybe lost.  Locks: takes c->lock.  Parks: yes.
GUMP_COLD ChanResult sendReentering(Hchan* c, void* elem, bool block,
                                    M* mp) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishSend
  mp = reenter(mp);
  lock(&c->lock);
  return sendHolding(c, elem, block, mp);
}

// sendInGeneral is chansend for all cases.
// On: user, or a foreign thread.  P: needed.  Locks: takes c->lock.
// Parks: if block.
GUMP_NOINLINE ChanResult sendInGeneral(Hchan* c, void* elem,
                                       bool block) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishSend
  if (GUMP_UNLIKELY(c == nullptr)) {
    if (!block) return ChanResult::kWouldBlock;
    chanparkforever(WaitReason::kChanSendNilChan);
  }
  if (GUMP_UNLIKELY(c->bubble != 0)) {
    bubbleCheck(c->bubble, "send on synctest channel from outside bubble");
  }
  // A channel that is seen open and then full was open and full at one moment,
  // because closing a channel does not fill it.
  if (!block && c->closed.load(acquire) == 0 &&  // before the peek of full()
      full(c)) {
    pollPreempt();
    return ChanResult::kWouldBlock;
  }
  M* mp = acquiremOf(enterRuntime());
  lock(&c->lock);
  return finishSend(c, elem, block, mp);
}

// finishRecv receives from a locked channel, and waits if it has to.
// On, P, Locks, Parks: as finishSend.
GUMP_ALWAYS_INLINE ChanResult finishRecv(Hchan* c, void* elem, bool block,
                                         M* mp) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // parkOn releases the lock
  ChanStep step = recvLocked(c, elem);
  if (GUMP_LIKELY(step.result != ChanResult::kWouldBlock || !block)) {
    unlock(&c->lock);
    if (step.wake != nullptr) wakeWaiter(step.wake);
    releasem(mp);
    return step.result;
  }
  G* gp = getg();
  if (GUMP_UNLIKELY(c->isTimer)) return recvTimer(c, gp, mp, elem);
  return parkOn(c, &c->recvq, gp, elem, recvReason(c),
                "chanrecv: spurious wakeup");
}

// recvHolding is finishRecv out of line.
// On, P, Locks, Parks: as finishRecv.
GUMP_NOINLINE ChanResult
recvHolding(Hchan* c, void* elem, bool block,
            M* mp) noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishRecv
  return finishRecv(c, elem, block, mp);
}

// recvContended continues a receive that has found the channel locked.
// On, P, Locks, Parks: as sendContended.
GUMP_COLD ChanResult
recvContended(Hchan* c, void* elem, bool block,
              M* mp) noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishRecv
  lockAfterTry(&c->lock);
  return recvHolding(c, elem, block, mp);
}

// recvReentering continues a receive that has found mp presumed blocked.
// On, P, Locks, Parks: as sendReentering.
GUMP_COLD ChanResult recvReentering(Hchan* c, void* elem, bool block,
                                    M* mp) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishRecv
  mp = reenter(mp);
  lock(&c->lock);
  return recvHolding(c, elem, block, mp);
}

// recvDiscard receives a value that the caller does not want. The value leaves
// the ring under the lock, and its destructor runs after the unlock.
// On: user, or a foreign thread.  P: needed.  Locks: takes c->lock.
// Parks: if block.
GUMP_NOINLINE ChanResult recvDiscard(Hchan* c, bool block) {
  DiscardBuffer tmp(c->elemsize, c->elemalign);
  void (*destroy)(void*) noexcept = c->destroy;
  ChanResult r = chanrecv(c, tmp.get(), block);
  if (r == ChanResult::kOk) destroy(tmp.get());
  return r;
}

// recvInGeneral is chanrecv for all cases.
// On, P, Locks, Parks: as sendInGeneral.
GUMP_NOINLINE ChanResult recvInGeneral(Hchan* c, void* elem,
                                       bool block) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishRecv
  if (GUMP_UNLIKELY(c == nullptr)) {
    if (!block) return ChanResult::kWouldBlock;
    chanparkforever(WaitReason::kChanReceiveNilChan);
  }
  if (GUMP_UNLIKELY(c->bubble != 0)) {
    bubbleCheck(c->bubble, "receive on synctest channel from outside bubble");
  }
  if (!block && empty(c)) {
    // If c is open now, it was open at the first peek too, which found it
    // empty. If it is closed, look again, because a value may have come between
    // the first peek and the close. This load comes after empty()'s peek, and
    // pairs with the store-release in closechan.
    if (c->closed.load(acquire) == 0) {
      if (GUMP_LIKELY(!c->isTimer) || !timerHasRun(c)) {
        pollPreempt();
        return ChanResult::kWouldBlock;
      }
    } else if (empty(c)) {
      return ChanResult::kClosed;
    }
  }
  if (GUMP_UNLIKELY(elem == nullptr && c->destroy != nullptr)) {
    return recvDiscard(c, block);
  }
  M* mp = acquiremOf(enterRuntime());
  lock(&c->lock);
  return finishRecv(c, elem, block, mp);
}

// ---- The fast paths ---------------------------------------------------------
// chansend and chanrecv contain only the usual case: the channel is `fast`, the
// ring has a place or a value, no goroutine is in the queue, the lock is free,
// and the caller need not yield. In every other case they end with a call of a
// function that continues from there. So they keep no value across a call, and
// save no registers. The next locked instruction waits until all earlier stores
// are in the cache, so six stores fewer save two nanoseconds of seven (Zen 3).
//
// The compiler must turn these calls into jumps. Otherwise a park is one level
// of calls deeper, and the processor predicts one more return wrongly. In a
// noexcept function a call becomes a jump only if the callee is noexcept too.
// The figures are in docs/decisions/013-a-ready-channel-saves-no-registers.md.

// unlockWaking ends an operation after an unlock that has found a sleeper.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_COLD ChanResult unlockWaking(Mutex* l, M* mp) noexcept {
  unlockSlow(l);
  releasem(mp);
  return ChanResult::kOk;
}

// wakeAndRelease ends an operation that has paired with sg. It keeps no value
// across a call either. wakeSpecialAndRelease is the rest of it.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_NOINLINE ChanResult wakeSpecialAndRelease(Sudog* sg, M* mp) noexcept {
  wakeWaiter(sg);
  releasem(mp);
  return ChanResult::kOk;
}
GUMP_NOINLINE ChanResult wakeAndRelease(Sudog* sg, M* mp) noexcept {
  if (GUMP_UNLIKELY(sg->g->special)) return wakeSpecialAndRelease(sg, mp);
  wakeWaiterAndRelease(sg, mp);
  return ChanResult::kOk;
}

// unlockWakingBoth is unlockWaking for an operation that has paired with sg.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_COLD ChanResult unlockWakingBoth(Mutex* l, Sudog* sg, M* mp) noexcept {
  unlockSlow(l);
  return wakeAndRelease(sg, mp);
}

// unlockPaired ends an operation that has paired with sg.
// On: any.  P: either.  Locks: releases c->lock.  Parks: no.
GUMP_ALWAYS_INLINE ChanResult unlockPaired(Hchan* c, Sudog* sg, M* mp)
    ABSL_UNLOCK_FUNCTION(c->lock) {
  if (unlockSilently(&c->lock)) return unlockWakingBoth(&c->lock, sg, mp);
  return wakeAndRelease(sg, mp);
}

// sendToWaiter continues a send that has found a receiver in the queue.
// On, P, Locks, Parks: as finishSend.
GUMP_NOINLINE ChanResult
sendToWaiter(Hchan* c, void* elem, bool block,
             M* mp) noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishSend
  Sudog* sg = dequeue(&c->recvq);
  if (GUMP_UNLIKELY(sg == nullptr)) return sendHolding(c, elem, block, mp);
  if (sg->elem != nullptr) copyWord(c, sg->elem, elem);
  return unlockPaired(c, sg, mp);
}

// recvFromWaiter continues a receive that has found a sender in the queue.
// On, P, Locks, Parks: as finishSend.
GUMP_NOINLINE ChanResult recvFromWaiter(Hchan* c, void* elem, bool block,
                                        M* mp) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as finishRecv
  if (c->dataqsiz != 0) return recvHolding(c, elem, block, mp);
  Sudog* sg = dequeue(&c->sendq);
  if (GUMP_UNLIKELY(sg == nullptr)) return recvHolding(c, elem, block, mp);
  if (elem != nullptr) copyWord(c, elem, sg->elem);
  return unlockPaired(c, sg, mp);
}

// unlockDone ends an operation that has woken no goroutine. locks is m.locks
// before the acquirem, so that no load has to wait for the lock.
// On: any.  P: either.  Locks: releases c->lock.  Parks: no.
GUMP_ALWAYS_INLINE ChanResult unlockDone(Hchan* c, M* mp, int32_t locks)
    ABSL_UNLOCK_FUNCTION(c->lock) {
  if (unlockSilently(&c->lock)) return unlockWaking(&c->lock, mp);
  mp->locks.store(locks, release);  // as in releasem
  return ChanResult::kOk;
}

}  // namespace

// ---- Send, receive, close ---------------------------------------------------

ChanResult chansend(Hchan* c, void* elem, bool block) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // tail calls release the lock
  G* gp = getg();
  if (GUMP_UNLIKELY(c == nullptr || !c->fast || gp == nullptr ||
                    gp->preempt.load(relaxed))) {  // as in enterRuntime
    return sendInGeneral(c, elem, block);
  }
  // As in sendInGeneral.
  if (!block && c->closed.load(acquire) == 0 && full(c)) {
    return ChanResult::kWouldBlock;
  }
  M* mp = gp->m;
  // As in acquirem.
  const int32_t locks = mp->locks.load(relaxed);
  mp->locks.store(locks + 1, relaxed);
  compilerFence();
  if (GUMP_UNLIKELY(mp->presumed.load(relaxed) != kPresumedNot)) {
    return sendReentering(c, elem, block, mp);
  }
  if (GUMP_UNLIKELY(!trylock(&c->lock))) {
    return sendContended(c, elem, block, mp);
  }
  // Relaxed, here and below: we hold the lock.
  if (c->recvq.first.load(relaxed) != nullptr) {
    return sendToWaiter(c, elem, block, mp);
  }
  const size_t n = c->qcount.load(relaxed);
  if (n == c->dataqsiz || c->closed.load(relaxed) != 0) {
    return sendHolding(c, elem, block, mp);
  }
  pushBack(c, elem, n);
  return unlockDone(c, mp, locks);
}

ChanResult chanrecv(Hchan* c, void* elem, bool block) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // tail calls release the lock
  G* gp = getg();
  if (GUMP_UNLIKELY(c == nullptr || !c->fast || gp == nullptr ||
                    gp->preempt.load(relaxed))) {  // as in enterRuntime
    return recvInGeneral(c, elem, block);
  }
  if (!block && empty(c)) {
    // As in recvInGeneral, which also handles the close.
    if (c->closed.load(acquire) == 0) return ChanResult::kWouldBlock;
    return recvInGeneral(c, elem, block);
  }
  M* mp = gp->m;
  // As in acquirem.
  const int32_t locks = mp->locks.load(relaxed);
  mp->locks.store(locks + 1, relaxed);
  compilerFence();
  if (GUMP_UNLIKELY(mp->presumed.load(relaxed) != kPresumedNot)) {
    return recvReentering(c, elem, block, mp);
  }
  if (GUMP_UNLIKELY(!trylock(&c->lock))) {
    return recvContended(c, elem, block, mp);
  }
  // Relaxed, here and below: we hold the lock.
  if (c->sendq.first.load(relaxed) != nullptr) {
    return recvFromWaiter(c, elem, block, mp);
  }
  const size_t n = c->qcount.load(relaxed);
  if (n == 0) return recvHolding(c, elem, block, mp);
  popFront(c, elem, n);
  return unlockDone(c, mp, locks);
}

CloseResult closechan(Hchan* c) noexcept {
  if (c == nullptr) return CloseResult::kNilChannel;
  if (GUMP_UNLIKELY(c->bubble != 0)) {
    bubbleCheck(c->bubble, "close of synctest channel from outside bubble");
  }
  M* mp = acquiremOf(enterRuntime());
  lock(&c->lock);
  if (c->closed.load(relaxed) != 0) {  // we hold the lock
    unlock(&c->lock);
    releasem(mp);
    return CloseResult::kAlreadyClosed;
  }
  c->closed.store(1, release);  // pairs with load-acquire in chanrecv's peek:
                                // everything before the close is visible
  GList wake;
  for (Waitq* q : {&c->recvq, &c->sendq}) {
    while (Sudog* sg = dequeue(q)) {
      if (const Sudog* ahead = q->first.load(relaxed); ahead != nullptr) {
        prefetch(ahead->g);  // if there are many waiters, all of this is cold
        prefetch(ahead->next);
      }
      sg->success = false;
      sg->g->param = sg;
      wake.push(sg->g);
    }
  }
  unlock(&c->lock);
  while (G* gp = wake.pop()) {  // last queued first, as in Go
    prefetch(wake.head);
    goready(gp);
  }
  releasem(mp);
  return CloseResult::kOk;
}

size_t chanlen(const Hchan* c) noexcept {
  pollPreempt();
  // The number at one moment. A channel of time appears as unbuffered.
  return c == nullptr || c->isTimer ? 0 : c->qcount.load(relaxed);
}

size_t chancap(const Hchan* c) noexcept {
  return c == nullptr || c->isTimer ? 0 : c->dataqsiz;
}

bool chanclosed(const Hchan* c) noexcept {
  pollPreempt();
  // Acquire: pairs with the release in closechan.
  return c != nullptr && c->closed.load(acquire) != 0;
}

}  // namespace gump::rt
