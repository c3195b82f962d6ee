// selectgo. select.h describes the passes and why they are sound; chan.h
// describes waking and sleeping.
#include "runtime/wait/select.h"

#include <new>

#include "runtime/diag/mprof.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rand.h"
#include "runtime/sched/runtime2.h"
#include "runtime/wait/synctest.h"
#include "runtime/wait/timechan.h"

namespace gump::rt {

namespace {
// checkBubble raises a fatal error if the caller is not in the bubble of c.
void checkBubble(const Hchan* c) {
  bubbleCheck(c->bubble, "select on synctest channel from outside bubble");
}
}  // namespace

// ---- Orders -----------------------------------------------------------------

void pollOrder(Select* s, M* mp) {
  uint32_t n = 0;
  for (size_t i = 0; i < s->n; i++) {
    const Hchan* c = s->cases[i].c;
    if (c == nullptr) continue;
    if (GUMP_UNLIKELY(c->bubble != 0)) checkBubble(c);
    uint32_t j = cheaprandn(mp, n + 1);  // inside-out shuffle
    s->pollorder[n] = s->pollorder[j];
    s->pollorder[j] = static_cast<uint16_t>(i);
    n++;
  }
  s->norder = n;
}

namespace {

uintptr_t sortkey(const Select* s, uint16_t i) {
  return reinterpret_cast<uintptr_t>(s->cases[i].c);
}

// siftDown restores the heap order of order[0, n) below i. The largest address
// is at the root.
void siftDown(const Select* s, uint16_t* order, uint32_t i, uint32_t n) {
  uint16_t x = order[i];
  uintptr_t key = sortkey(s, x);
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= n) break;
    if (child + 1 < n &&
        sortkey(s, order[child]) < sortkey(s, order[child + 1])) {
      child++;
    }
    if (key >= sortkey(s, order[child])) break;
    order[i] = order[child];
    i = child;
  }
  order[i] = x;
}

// sortFew sorts order[0, n). It keeps the order of cases of one channel, and
// returns true if there are such cases. It is an insertion sort: faster than a
// heap for so few.
bool sortFew(const Select* s, uint16_t* order, uint32_t n) {
  bool twice = false;
  for (uint32_t i = 1; i < n; i++) {
    const uint16_t x = order[i];
    const uintptr_t key = sortkey(s, x);
    uint32_t j = i;
    for (; j > 0 && sortkey(s, order[j - 1]) > key; j--) {
      order[j] = order[j - 1];
    }
    order[j] = x;
    twice |= j > 0 && sortkey(s, order[j - 1]) == key;
  }
  return twice;
}

}  // namespace

// A waker takes the first of the sudogs that wait in a channel, and pass 2
// enqueues them in lock order. So cases of one channel must stay in poll order,
// or the first of them would always win.
void lockOrder(Select* s) {
  uint32_t n = s->norder;
  uint16_t* order = s->lockorder;
  if (n <= kStackSelect) {
    // Begin with the cases as they are given, not as pollOrder has shuffled
    // them. So a select that runs again takes the same branches, and the
    // processor predicts them.
    uint32_t end = 0;
    for (size_t i = 0; end < n; i++) {
      if (s->cases[i].c != nullptr) order[end++] = static_cast<uint16_t>(i);
    }
    if (GUMP_LIKELY(!sortFew(s, order, n))) return;
    memcpy(order, s->pollorder, n * sizeof(order[0]));
    (void)sortFew(s, order, n);
    return;
  }
  memcpy(order, s->pollorder, n * sizeof(order[0]));
  for (uint32_t i = n / 2; i > 0; i--) siftDown(s, order, i - 1, n);
  for (uint32_t end = n - 1; end > 0; end--) {
    uint16_t largest = order[0];
    order[0] = order[end];
    order[end] = largest;
    siftDown(s, order, 0, end);
  }
}

void sellock(const Select* s)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the set of locks is known at run time
  Hchan* last = nullptr;
  for (uint32_t i = 0; i < s->norder; i++) {
    Hchan* c = s->cases[s->lockorder[i]].c;
    if (c != last) lock(&c->lock);
    last = c;
  }
}

// When a select parks, this runs after the switch. After the first unlock a
// waker may ready the goroutine, which owns *s and the cases. But the goroutine
// does not return before the last unlock here. The waker may need the lock that
// is unlocked last, to ready the goroutine. If it does not, pass 3 needs that
// lock, to withdraw from the channel. So *s and the cases are valid until the
// last unlock, and are not read after it.
void selunlock(const Select* s)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the set of locks is known at run time
  Hchan* last = nullptr;
  for (uint32_t i = 0, n = s->norder; i < n; i++) {
    Hchan* c = s->cases[s->lockorder[i]].c;
    if (c == last) continue;
    if (last != nullptr) unlock(&last->lock);
    last = c;
  }
  if (last != nullptr) unlock(&last->lock);
}

namespace {

// ---- One case ---------------------------------------------------------------

// target returns the address that the value of a receive goes to.
GUMP_ALWAYS_INLINE void* target(const Select* s, const Scase& cas) {
  if (GUMP_UNLIKELY(cas.elem == nullptr && cas.c->destroy != nullptr)) {
    return s->discard;
  }
  return cas.elem;
}

// looksReady is a peek. Its answer may be out of date, so only pass 1 may
// conclude that no case is ready. If a channel of time is empty but its timer
// is due, looksReady runs the timer and returns true.
GUMP_ALWAYS_INLINE bool looksReady(const Scase& cas) {
  const Hchan* c = cas.c;
  return !(cas.dir == SelectDir::kRecv ? empty(c) : full(c)) ||
         c->closed.load(relaxed) != 0 ||  // rechecked under the lock
         (GUMP_UNLIKELY(c->isTimer) && timerRunIfDue(&timerChanOf(cas.c)->t));
}

GUMP_ALWAYS_INLINE ChanStep tryCase(const Select* s, const Scase& cas)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(cas.c->lock) {
  return cas.dir == SelectDir::kRecv ? recvLocked(cas.c, target(s, cas))
                                     : sendLocked(cas.c, cas.elem);
}

constexpr SelectResult kNothing = {-1, ChanResult::kWouldBlock};

// ---- The passes -------------------------------------------------------------

// pass0 does one of the cases that look ready, and locks that case's channel
// only. It looks at all cases in the order in which they are written, and then
// chooses among those that look ready. That is as fair as to take the first of
// them in a random order. But the branches are then predicted: a case that was
// ready in one run of a select is mostly ready in the next.
// On: any.  P: needed, m.locks > 0.  Locks: takes one channel's.  Parks: no.
SelectResult pass0(const Select* s, M* mp) {
  uint16_t* ready = s->pollorder;  // free until run calls pollOrder
  uint32_t n = 0;
  for (size_t i = 0; i < s->n; i++) {
    const Scase& cas = s->cases[i];
    if (cas.c == nullptr) continue;
    if (GUMP_UNLIKELY(cas.c->bubble != 0)) checkBubble(cas.c);
    ready[n] = static_cast<uint16_t>(i);
    if (looksReady(cas)) n++;
  }
  while (n > 0) {
    const uint32_t k = cheaprandn(mp, n);
    const uint16_t ci = ready[k];
    const Scase& cas = s->cases[ci];
    lock(&cas.c->lock);
    ChanStep step = tryCase(s, cas);
    unlock(&cas.c->lock);
    if (GUMP_LIKELY(step.result != ChanResult::kWouldBlock)) {
      if (step.wake != nullptr) wakeWaiter(step.wake);
      return {ci, step.result};
    }
    ready[k] = ready[--n];
  }
  return kNothing;
}

// pass1 does the first case that is ready, in poll order, and unlocks. If no
// case is ready it leaves all channels locked.
// On: any.  P: needed, m.locks > 0.  Locks: caller holds all channels'.
// Parks: no.
SelectResult pass1(const Select* s)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the set of locks is known at run time
  for (uint32_t i = 0; i < s->norder; i++) {
    uint16_t ci = s->pollorder[i];
    ChanStep step = tryCase(s, s->cases[ci]);
    if (step.result == ChanResult::kWouldBlock) continue;
    selunlock(s);
    if (step.wake != nullptr) wakeWaiter(step.wake);
    return {ci, step.result};
  }
  return kNothing;
}

bool selparkcommit(G*, void* s) {
  selunlock(static_cast<const Select*>(s));
  return true;
}

// pass2 enqueues a sudog per case and parks. All channels stay locked from the
// time pass 1 found nothing until gp is kGwaiting. A goroutine that makes a
// case ready locks its channel either before that or after. If before, pass 1
// saw the change. If after, it finds our sudog.
// On: user, or a foreign thread.  P: needed.
// Locks: releases all channels' and ends the caller's acquirem.  Parks: yes.
void pass2(Select* s, G* gp) {
  // After the loop, true if the goroutine and all channels are in one bubble.
  bool inside = gp->bubble != nullptr;
  for (uint32_t i = 0; i < s->norder; i++) {
    const Scase& cas = s->cases[s->lockorder[i]];
    auto* sg = new (&s->sudogs[i]) Sudog;
    sg->g = gp;
    sg->isSelect = true;
    sg->c = cas.c;
    inside = inside && cas.c->bubble != 0;
    if (cas.dir == SelectDir::kRecv) {
      sg->elem = target(s, cas);
      enqueue(&cas.c->recvq, sg);
      if (GUMP_UNLIKELY(cas.c->isTimer)) {
        chanRetain(cas.c);  // timechan.h, (C3)
        timerBlock(&timerChanOf(cas.c)->t);
        s->hasTimer = true;
      }
    } else {
      sg->elem = cas.elem;
      enqueue(&cas.c->sendq, sg);
    }
  }
  gp->param = s;  // for leaks.cc, until the waker sets it
  goparkcommit(selparkcommit, s,
               inside ? WaitReason::kSynctestSelect : WaitReason::kSelect);
}

GUMP_NOINLINE void unblockTimers(const Select* s) {
  for (uint32_t i = 0; i < s->norder; i++) {
    Hchan* c = s->cases[s->lockorder[i]].c;
    if (!c->isTimer) continue;
    timerUnblock(&timerChanOf(c)->t);
    chanRelease(c);
  }
}

// pass3 finds out which case fired and withdraws the others.
// On: user, or a foreign thread.  P: either.
// Locks: takes one channel's after another.  Parks: no.
SelectResult pass3(const Select* s, G* gp)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // one lock is kept from case to case
  auto* fired = static_cast<Sudog*>(gp->param);
  gp->param = nullptr;
  SelectResult r = kNothing;
  M* mp = acquiremOf(gp);
  Hchan* locked = nullptr;
  for (uint32_t i = 0; i < s->norder; i++) {
    Sudog* sg = &s->sudogs[i];
    const Scase& cas = s->cases[s->lockorder[i]];
    if (sg == fired) {  // the waker dequeued it; since goready it is ours alone
      r.index = s->lockorder[i];
      r.result = sg->success ? ChanResult::kOk : ChanResult::kClosed;
      continue;
    }
    if (cas.c != locked) {
      if (locked != nullptr) unlock(&locked->lock);
      locked = cas.c;
      lock(&locked->lock);
    }
    dequeueSudoG(cas.dir == SelectDir::kRecv ? &cas.c->recvq : &cas.c->sendq,
                 sg);
  }
  if (locked != nullptr) unlock(&locked->lock);
  if (GUMP_UNLIKELY(s->hasTimer)) unblockTimers(s);
  // Relaxed: the next waker reads it under the lock of a channel on which our
  // next select enqueues, and that comes after this store.
  gp->selectDone.store(0, relaxed);
  releasem(mp);
  if (GUMP_UNLIKELY(r.index < 0)) fatalthrow("selectgo: bad wakeup");
  return r;
}

// waitProfiled is pass2 and pass3 while the block profile is on.
// On, P, Locks, Parks: as pass2.
GUMP_COLD SelectResult waitProfiled(Select* s, G* gp) {
  const int64_t since = nanotime();
  pass2(s, gp);
  const SelectResult r = pass3(s, gp);
  blockEvent(since);
  return r;
}

SelectResult run(Select* s, bool block)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // from sellock to selunlock or gopark
  G* gp = enterRuntime();
  M* mp = acquiremOf(gp);
  SelectResult r = pass0(s, mp);
  if (r.index >= 0) {
    releasem(mp);
    return r;
  }
  pollOrder(s, mp);
  lockOrder(s);
  sellock(s);
  r = pass1(s);
  if (r.index >= 0) {
    releasem(mp);
    return r;
  }
  if (!block) {
    selunlock(s);
    releasem(mp);
    return kNothing;
  }
  if (blockProfiled()) return waitProfiled(s, gp);
  pass2(s, gp);
  return pass3(s, gp);
}

// givenOrder is pollOrder without the shuffle.
// On: any.  P: either.  Locks: none.  Parks: no.
void givenOrder(Select* s) {
  s->norder = 0;
  for (size_t i = 0; i < s->n; i++) {
    const Hchan* c = s->cases[i].c;
    if (c == nullptr) continue;
    if (GUMP_UNLIKELY(c->bubble != 0)) checkBubble(c);
    s->pollorder[s->norder++] = static_cast<uint16_t>(i);
  }
}

// ---- Memory -----------------------------------------------------------------

// Frame is the working memory of a select of up to N cases.
template <size_t N>
struct Frame {
  alignas(Sudog) unsigned char sudogs[N * sizeof(Sudog)];
  uint16_t pollorder[N];
  uint16_t lockorder[N];
};

// runOnStack keeps the sudogs in its frame. It is out of line so that a small
// select does not touch the stack that a larger one needs.
template <size_t N>
GUMP_NOINLINE SelectResult runOnStack(Select* s, bool block) {
  Frame<N> f;
  s->pollorder = f.pollorder;
  s->lockorder = f.lockorder;
  s->sudogs = reinterpret_cast<Sudog*>(f.sudogs);
  return run(s, block);
}

GUMP_NOINLINE SelectResult runOnHeap(Select* s, bool block) {
  size_t bytes = s->n * (sizeof(Sudog) + 2 * sizeof(uint16_t));
  void* mem = ::operator new(bytes, std::nothrow);  // before any lock
  if (mem == nullptr) fatalAll("out of memory");
  s->sudogs = static_cast<Sudog*>(mem);
  s->pollorder = reinterpret_cast<uint16_t*>(s->sudogs + s->n);
  s->lockorder = s->pollorder + s->n;
  SelectResult r = run(s, block);
  ::operator delete(mem);
  return r;
}

SelectResult runSized(Select* s, bool block) {
  if (s->n <= kSmallSelect) return runOnStack<kSmallSelect>(s, block);
  if (s->n <= kStackSelect) return runOnStack<kStackSelect>(s, block);
  return runOnHeap(s, block);
}

// discards returns true if the case receives a value that the caller does not
// want and that must be destroyed.
bool discards(const Scase& cas) {
  return cas.dir == SelectDir::kRecv && cas.elem == nullptr &&
         cas.c != nullptr && cas.c->destroy != nullptr;
}

// runDiscarding gives one buffer to all cases that discard, because only the
// case that proceeds writes to it.
GUMP_NOINLINE SelectResult runDiscarding(Select* s, bool block) {
  size_t size = 0;
  size_t align = 1;
  for (size_t i = 0; i < s->n; i++) {
    if (!discards(s->cases[i])) continue;
    const Hchan* c = s->cases[i].c;
    if (c->elemsize > size) size = c->elemsize;
    if (c->elemalign > align) align = c->elemalign;
  }
  DiscardBuffer tmp(size, align);
  s->discard = tmp.get();
  SelectResult r = runSized(s, block);
  if (r.index >= 0 && r.result == ChanResult::kOk &&
      discards(s->cases[r.index])) {
    s->cases[r.index].c->destroy(tmp.get());
  }
  return r;
}

}  // namespace

SelectResult selectgo(const Scase* cases, size_t n, bool block) noexcept {
  if (n == 0) {
    if (!block) return kNothing;
    chanparkforever(WaitReason::kSelectNoCases);
  }
  if (n == 1) {  // a plain send or receive
    ChanResult r = cases->dir == SelectDir::kRecv
                       ? chanrecv(cases->c, cases->elem, block)
                       : chansend(cases->c, cases->elem, block);
    if (r == ChanResult::kWouldBlock) return kNothing;
    return {0, r};
  }
  if (n > kMaxSelectCases) fatalthrow("selectgo: too many cases");
  Select s;
  s.cases = cases;
  s.n = n;
  for (size_t i = 0; i < n; i++) {
    if (GUMP_UNLIKELY(discards(cases[i]))) return runDiscarding(&s, block);
  }
  return runSized(&s, block);
}

// There is no pass 0, which looks at one channel at a time. Pass 1 sees all
// channels at one moment, so an earlier case that was ready before the call
// wins.
SelectResult selectgoInOrder(const Scase* cases, size_t n) noexcept
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as run
  if (n > kSmallSelect) fatalthrow("selectgoInOrder: too many cases");
  Frame<kSmallSelect> f;
  Select s;
  s.cases = cases;
  s.n = n;
  s.pollorder = f.pollorder;
  s.lockorder = f.lockorder;
  s.sudogs = reinterpret_cast<Sudog*>(f.sudogs);
  G* gp = enterRuntime();
  M* mp = acquiremOf(gp);
  givenOrder(&s);
  lockOrder(&s);
  sellock(&s);
  const SelectResult r = pass1(&s);
  if (r.index >= 0) {
    releasem(mp);
    return r;
  }
  pass2(&s, gp);
  return pass3(&s, gp);
}

}  // namespace gump::rt
