// The portable half of the poller: which goroutine waits for which descriptor,
// until when, and how it is told. A back end (backend.h) reports the kernel's
// events.
//
// Before the first descriptor there is no back end. The M that blocks here then
// sleeps on a futex until a given time, or until it is woken. A break is a flag
// that stays up until a blocking poll takes it. So a break that comes before
// the sleep also ends it, and many breaks are as good as one.
//
// No break is lost when the back end is published. A breaker raises the flag
// and then looks which back end there is. startBackend stores the back end,
// raises the flag, wakes the futex, and wakes the back end too. A breaker that
// still saw no back end raised the flag before that store, so startBackend's
// own wake stands for it.
#include "runtime/sched/netpoll.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "netpoll/backend.h"
#include "netpoll/polldesc.h"
#include "netpoll/ring.h"
#include "netpoll/wakeup_lead.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/home.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

Atomic<bool> inited;
Atomic<uint32_t> wakeSig;  // 1: break; the futex word
// nullptr until there is a descriptor; written once.
Atomic<const NetpollBackend*> backend;
// Goroutines (and foreign threads) that wait for a descriptor, or for the ring.
Atomic<int32_t> netpollWaiters;
// Used by the M that polls; sched.lastpoll passes it from one M to the next.
constinit WakeupLead lead;

// PunctualSleep is one sleep of the M that polls. The kernel is asked to end
// the sleep earlier than due (wakeup_lead.h), and the thread spends the rest
// awake. The rest is short, WakeupLead::kMost at most, so the network is not
// looked at meanwhile.
class PunctualSleep {
 public:
  // Sleeps `delay` ns, which is not 0. A negative delay has no end.
  explicit PunctualSleep(int64_t delay) : delay_(delay) {
    // The model's clock advances only while all threads sleep.
    if (delay <= 0 || kModelBuild) return;
    ahead_ = lead.of(delay);
    asked_ = nanotime() + delay - ahead_;
  }

  // delay is the delay to ask the kernel for.
  int64_t delay() const { return delay_ - ahead_; }

  // waitForTheRest follows a sleep that no break has ended and that has made no
  // goroutine runnable. It waits until the time is over, or `word` is set.
  void waitForTheRest(const Atomic<uint32_t>& word) const {
    if (asked_ == 0) return;
    int64_t now = nanotime();
    if (now < asked_) return;  // a signal or a stale event ended the sleep
    lead.learn(now - asked_);
    // Relaxed: this load does not take the break. Without a back end our caller
    // takes it, and with one the next poll does.
    while (now < asked_ + ahead_ && word.load(relaxed) == 0) {
      procyield(10);
      now = nanotime();
    }
  }

 private:
  int64_t delay_;
  int64_t ahead_ = 0;
  int64_t asked_ = 0;  // when the kernel should end the sleep; 0: no rest
};

struct PollCache {
  // Guards the list. Forbidden while holding it: everything but kMem.
  Mutex lock{LockRank::kPollCache};
  PollDesc* first ABSL_GUARDED_BY(lock) = nullptr;

  PollDesc* alloc();
  void free(PollDesc* pd);
};
constinit PollCache pollcache;

void deadlinePassed(void* arg, uint64_t, int64_t);

PollDesc* PollCache::alloc() {
  LockScope l(&lock);
  PollDesc* pd = first;
  if (pd != nullptr) {
    first = pd->link;
    return pd;
  }
  pd = persistentallocOf<PollDesc>();
  if (pd == nullptr) return nullptr;
  // Not set again when pd is reused: see (N2).
  pd->timer.f = deadlinePassed;
  pd->timer.arg = pd;
  return pd;
}

void PollCache::free(PollDesc* pd) {
  // (N3). Release: a thread that sees the new tag knows that the old owner has
  // gone.
  pd->tag.add(1, release);
  LockScope l(&lock);
  pd->link = first;
  first = pd;
}

// chooseBackend returns the first back end that works here, with *err == 0, or
// nullptr.
const NetpollBackend* chooseBackend(int* err) {
  if (debug.netpoll == NetpollChoice::kUring) {
    *err = kUringBackend.init();
    if (*err == 0) return &kUringBackend;
    printf(
        "runtime: no io_uring here (errno %d; it needs Linux 5.13, a seccomp "
        "filter that allows it, and kernel.io_uring_disabled=0), using epoll\n",
        *err);
  }
  *err = kEpollBackend.init();
  return *err == 0 ? &kEpollBackend : nullptr;
}

// startBackend makes sure that there is a back end. Returns 0, or the errno
// that explains why there is none.
int startBackend() {
  // Guards the choice. Forbidden while holding it: everything. No other thread
  // can open a descriptor until the choice is made.
  static constinit Mutex starting{LockRank::kLeaf};
  netpollGenericInit();
  // Pairs with the store below.
  if (GUMP_LIKELY(backend.load(acquire) != nullptr)) return 0;
  // The first call of ringStart takes locks; later ones take none. So make that
  // call before the lock is held.
  if (debug.netpoll == NetpollChoice::kUring) (void)ringStart();
  const StandardHold hold;  // it takes a lock, too
  LockScope l(&starting);
  if (backend.load(relaxed) != nullptr) return 0;  // written under `starting`
  int err;
  const NetpollBackend* b = chooseBackend(&err);
  if (b == nullptr) return err;
  // seq_cst: we store backend and then wakeSig. netpollBreak writes wakeSig and
  // then loads backend. The argument is at the top of the file.
  backend.store(b, seq_cst);
  wakeSig.xchg(1, seq_cst);
  futexwakeup(&wakeSig, 1);
  b->wake();
  return 0;
}

Atomic<uintptr_t>* waiterOf(PollDesc* pd, PollMode mode) {
  return mode == PollMode::kRead ? &pd->rg : &pd->wg;
}

bool has(PollMode mode, PollMode bit) {
  return (static_cast<int>(mode) & static_cast<int>(bit)) != 0;
}

// checkErr returns 0 if an operation in this direction can proceed or wait,
// otherwise the error.
int checkErr(const PollDesc* pd, PollMode mode) {
  const uint32_t info = pd->info.load(seq_cst);  // the argument in polldesc.h
  if ((info & kPollClosing) != 0) return kErrClosing;
  const uint32_t expired =
      mode == PollMode::kRead ? kPollReadExpired : kPollWriteExpired;
  if ((info & expired) != 0) return kErrTimeout;
  if ((info & kPollGone) != 0) return kErrNotPollable;
  // Only for reads: a write meets the error itself, and learns which it is.
  if (mode == PollMode::kRead && (info & kPollEventErr) != 0) {
    return kErrNotPollable;
  }
  return kPollOk;
}

// tagOf is pd's tag, in its place in info.
uint32_t tagOf(const PollDesc* pd) {
  // Relaxed: used by the owner, or compared in a CAS.
  return (pd->tag.load(relaxed) & PollTag::kMask) << kPollTagShift;
}

// publishInfo copies to info the state that the lock guards (N1).
void publishInfo(PollDesc* pd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(pd->lock) {
  uint32_t info = 0;
  if (pd->closing) info |= kPollClosing;
  if (pd->rd < 0) info |= kPollReadExpired;
  if (pd->wd < 0) info |= kPollWriteExpired;
  info |= tagOf(pd);
  // Events may set their bits meanwhile. seq_cst: polldesc.h.
  uint32_t old = pd->info.load(relaxed);
  constexpr uint32_t kEvents = kPollEventErr | kPollGone;
  while (!pd->info.casWeak(old, (old & kEvents) | info, seq_cst)) {
  }
}

// unblock moves a direction to pdReady, or to pdNil if toReady is false. It
// returns the G that slept there, which the caller must ready. seq_cst:
// polldesc.h.
G* unblock(PollDesc* pd, PollMode mode, bool toReady) {
  Atomic<uintptr_t>* gpp = waiterOf(pd, mode);
  for (;;) {
    const uintptr_t old = gpp->load(seq_cst);
    if (old == pdReady) return nullptr;
    // A wait that has not begun is ended by the waiter's own check.
    if (old == pdNil && !toReady) return nullptr;
    if (!gpp->cas(old, toReady ? pdReady : pdNil, seq_cst)) continue;
    return old == pdWait || old == pdNil ? nullptr : reinterpret_cast<G*>(old);
  }
}

// netpollgoready readies gp, if it is not null. gp has been taken from a
// PollDesc. quiet: see goreadyQuiet.
void netpollgoready(G* gp, bool quiet) {
  if (gp == nullptr) return;
  if (quiet) {
    goreadyQuiet(gp);
  } else {
    goready(gp);
  }
  netpollAdjustWaiters(-1);
}

// commitWait publishes gp as the sleeping waiter. Returns false if gp must not
// sleep, because another thread has moved the word on.
bool commitWait(G* gp, void* gpp) {
  // A foreign thread may run on as soon as it is published.
  const bool foreign = gp->foreign;
  // Count first, because the count may go down as soon as gp is published.
  // seq_cst: an M that goes idle stores that it is idle, and then loads the
  // count.
  netpollAdjustWaiters(1);
  if (!static_cast<Atomic<uintptr_t>*>(gpp)->cas(
          pdWait, reinterpret_cast<uintptr_t>(gp), seq_cst)) {
    netpollAdjustWaiters(-1);  // too high for a moment: harmless
    return false;
  }
  // The M of a goroutine now looks for work, and so comes to the poller. For a
  // foreign thread, wake an M, which will poll.
  if (foreign && sched.lastpoll.load(seq_cst) != 0) wakepAnywhere();
  return true;
}

// block waits for a direction to become ready. Returns false if it was woken
// for another reason, or was not allowed to sleep.
bool block(PollDesc* pd, PollMode mode) {
  Atomic<uintptr_t>* gpp = waiterOf(pd, mode);
  // seq_cst: polldesc.h. It also makes the event's stores visible.
  for (;;) {
    if (gpp->cas(pdReady, pdNil, seq_cst)) return true;
    if (gpp->cas(pdNil, pdWait, seq_cst)) break;
    const uintptr_t v = gpp->load(relaxed);  // only for the check below
    if (v != pdReady && v != pdNil) fatalthrow("runtime: double wait");
  }
  if (checkErr(pd, mode) == kPollOk) {
    (void)acquirem();  // gopark ends it
    gopark(commitWait, gpp, WaitReason::kIOWait);
  }
  const uintptr_t old = gpp->xchg(pdNil, seq_cst);
  if (old > pdWait) fatalthrow("runtime: corrupted polldesc");
  return old == pdReady;
}

// rearm sets the timer to the earlier deadline, unless it is armed for that
// time or before (N2).
void rearm(PollDesc* pd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(pd->lock) {
  int64_t first = pd->rd > 0 ? pd->rd : 0;
  if (pd->wd > 0 && (first == 0 || pd->wd < first)) first = pd->wd;
  if (first == 0) {
    if (pd->armed != 0) timerStop(&pd->timer);
  } else if (pd->armed == 0 || first < pd->armed) {
    timerModify(&pd->timer, first, /*period=*/0);
  } else {
    return;
  }
  pd->armed = first;
}

struct Woken {
  G* reader = nullptr;
  G* writer = nullptr;
};

// expire ends the waits whose deadline is now or earlier.
Woken expire(PollDesc* pd, int64_t now)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(pd->lock) {
  const bool read = pd->rd > 0 && pd->rd <= now;
  const bool write = pd->wd > 0 && pd->wd <= now;
  if (read) pd->rd = -1;
  if (write) pd->wd = -1;
  publishInfo(pd);
  Woken w;
  if (read) w.reader = unblock(pd, PollMode::kRead, /*toReady=*/false);
  if (write) w.writer = unblock(pd, PollMode::kWrite, /*toReady=*/false);
  return w;
}

// deadlinePassed is the timer's function. It may come late, when the PollDesc
// already has another owner. It then does the same as that owner's own timer.
void deadlinePassed(void* arg, uint64_t, int64_t) {
  auto* pd = static_cast<PollDesc*>(arg);
  Woken w;
  {
    LockScope l(&pd->lock);
    if (pd->closing) return;
    pd->armed = 0;
    w = expire(pd, nanotime());
    rearm(pd);
  }
  netpollgoready(w.reader, /*quiet=*/true);
  netpollgoready(w.writer, /*quiet=*/true);
}

}  // namespace

// ---- Descriptors ------------------------------------------------------------

namespace {

// openDesc starts the back end, and returns a PollDesc for fd that the back end
// does not know yet. Returns nullptr and sets *err if either fails.
PollDesc* openDesc(int fd, int* err, PollHandler handler) {
  (void)runtimeEntry();
  *err = startBackend();
  if (*err != 0) return nullptr;
  PollDesc* pd = pollcache.alloc();
  if (pd == nullptr) {
    *err = ENOMEM;
    return nullptr;
  }
  const uintptr_t rg = pd->rg.load(relaxed);  // no other thread writes it now
  const uintptr_t wg = pd->wg.load(relaxed);
  if (rg > pdReady || wg > pdReady) {
    fatalthrow("runtime: blocked read or write on free polldesc");
  }
  {
    LockScope l(&pd->lock);
    pd->fd = fd;
    pd->closing = false;
    pd->rd = 0;
    pd->wd = 0;
    pd->armed = 0;
    // Relaxed: at worst a late event of the old owner makes us ask the kernel
    // once more.
    pd->rg.store(pdNil, relaxed);
    pd->wg.store(pdNil, relaxed);
    pd->hungUp.store(false, relaxed);
    // Release: a late event of the old owner may call the handler.
    pd->handler.store(handler, release);
    pd->info.store(tagOf(pd), relaxed);
  }
  return pd;
}

}  // namespace

PollDesc* pollOpen(int fd, int* err, PollHandler handler) {
  PollDesc* pd = openDesc(fd, err, handler);
  if (pd == nullptr) return nullptr;
  // Relaxed: startBackend has seen the store.
  *err = backend.load(relaxed)->open(pd);
  if (*err == 0) return pd;
  pollcache.free(pd);
  return nullptr;
}

void pollClose(PollDesc* pd) {
  {
    LockScope l(&pd->lock);
    if (!pd->closing) fatalthrow("runtime: close polldesc w/o unblock");
  }
  // No goroutine waits, and none will.
  if (pd->rg.load(relaxed) > pdReady || pd->wg.load(relaxed) > pdReady) {
    fatalthrow("runtime: blocked read or write on closing polldesc");
  }
  // Relaxed: pollOpen has used the back end, so this thread sees it.
  backend.load(relaxed)->close(pd);
  pollcache.free(pd);
}

PollDesc* pollOpenBare(int* err) { return openDesc(-1, err, nullptr); }

void pollCloseBare(PollDesc* pd) {
  {
    LockScope l(&pd->lock);
    pd->closing = true;
    pd->rd = 0;
    rearm(pd);
  }
  if (pd->rg.load(relaxed) > pdReady) {
    fatalthrow("runtime: blocked read on closing polldesc");
  }
  pollcache.free(pd);
}

void pollUnblock(PollDesc* pd) {
  (void)runtimeEntry();
  // Stay on this M: no other M would wake the goroutines that we take off pd.
  M* mp = acquirem();
  Woken w;
  {
    LockScope l(&pd->lock);
    if (pd->closing) fatalthrow("runtime: unblock on closing polldesc");
    pd->closing = true;
    pd->rd = 0;
    pd->wd = 0;
    rearm(pd);
    publishInfo(pd);
    w.reader = unblock(pd, PollMode::kRead, /*toReady=*/false);
    w.writer = unblock(pd, PollMode::kWrite, /*toReady=*/false);
  }
  netpollgoready(w.reader, /*quiet=*/false);
  netpollgoready(w.writer, /*quiet=*/false);
  releasem(mp);
}

int pollReset(PollDesc* pd, PollMode mode) {
  const int err = checkErr(pd, mode);
  if (err != kPollOk) return err;
  // seq_cst: the system call that follows sees all data that an earlier event
  // announced.
  waiterOf(pd, mode)->store(pdNil, seq_cst);
  return kPollOk;
}

int pollWait(PollDesc* pd, PollMode mode) {
  (void)runtimeEntry();
  int err = checkErr(pd, mode);
  while (err == kPollOk && !block(pd, mode)) err = checkErr(pd, mode);
  return err;
}

void pollSetDeadline(PollDesc* pd, int64_t when, PollMode mode) {
  (void)runtimeEntry();
  if (when < 0) when = 1;  // long ago; in rd and wd, < 0 means passed
  M* mp = acquirem();      // as in pollUnblock
  Woken w;
  {
    LockScope l(&pd->lock);
    if (!pd->closing) {
      if (has(mode, PollMode::kRead)) pd->rd = when;
      if (has(mode, PollMode::kWrite)) pd->wd = when;
      w = expire(pd, when == 0 ? 0 : nanotime());
      rearm(pd);
    }
  }
  netpollgoready(w.reader, /*quiet=*/false);
  netpollgoready(w.writer, /*quiet=*/false);
  releasem(mp);
}

// ---- For back ends ----------------------------------------------------------

namespace {
// deliverSpecial is netpolldeliver for a gp that is special. Returns false if
// gp is to be delivered like any other.
GUMP_NOINLINE bool deliverSpecial(G* gp) {
  if (!gp->foreign) return homeDeliver(gp);
  netpollgoready(gp, /*quiet=*/false);  // it is on no queue
  // The thread may run, and park again for good, while netpollWaiters still
  // counts it. Its own checkdead then reports nothing. After main has ended, an
  // M that polls calls checkdead later, but the ring's thread does not. So call
  // it here. Pairs with endMain.
  if (GUMP_UNLIKELY(sched.mainEnded.load(acquire))) {
    LockScope l(&sched.lock);
    checkdead();
  }
  return true;
}
}  // namespace

void netpolldeliver(NetpollResult* r, G* gp) {
  if (gp == nullptr) return;
  if (GUMP_UNLIKELY(gp->special) && deliverSpecial(gp)) return;
  r->toRun.push(gp);
  r->delta--;
}

void netpollready(NetpollResult* r, PollDesc* pd, bool read, bool write) {
  // Acquire: pairs with openDesc.
  if (const PollHandler handler = pd->handler.load(acquire);
      GUMP_UNLIKELY(handler != nullptr)) {
    handler(r);
    return;
  }
  if (read) netpolldeliver(r, unblock(pd, PollMode::kRead, /*toReady=*/true));
  if (write) netpolldeliver(r, unblock(pd, PollMode::kWrite, /*toReady=*/true));
}

void pollSetEventErr(PollDesc* pd, bool err, uint32_t tag) {
  const uint32_t bit = err ? uint32_t{kPollEventErr} : 0;
  uint32_t old = pd->info.load(relaxed);  // the CAS decides
  while ((old & kPollEventErr) != bit) {
    // Leave the info of another owner alone: it has another tag.
    if (((old >> kPollTagShift ^ tag) & PollTag::kMask) != 0) return;
    const uint32_t info = (old & ~uint32_t{kPollEventErr}) | bit;
    if (pd->info.casWeak(old, info, seq_cst)) return;
  }
}

// seq_cst: as for a close, see polldesc.h.
void pollSetGone(PollDesc* pd) { pd->info.or_(kPollGone, seq_cst); }

// ---- For the scheduler ------------------------------------------------------

void netpollGenericInit() {
  // Relaxed: nothing depends on it, except that an M polls.
  if (!inited.load(relaxed)) inited.store(true, relaxed);
}
bool netpollinited() { return inited.load(relaxed); }

namespace {
// countReady counts the goroutines that a poll has found.
void countReady(const NetpollResult& r) {
  if (r.delta != 0) {
    stats.polledReady.add(static_cast<uint64_t>(-r.delta), relaxed);
  }
}
}  // namespace

NetpollResult netpoll(int64_t delay) {
  NetpollResult r;
  // seq_cst: the argument is at the top.
  const NetpollBackend* b = backend.load(seq_cst);
  if (delay == 0) {
    // While no goroutine waits, do not poll: a later poll gets the events.
    if (b != nullptr && netpollAnyWaiters()) {
      (void)b->poll(0, &r);
      countReady(r);
    }
    return r;
  }
  stats.blockingPolls.add(1, relaxed);  // a figure
  if (delay > kMaxDelay) delay = kMaxDelay;
  if (delay > 0) preciseSleeps(getg()->m);
  const PunctualSleep sleep(delay);
  if (b != nullptr) {
    // seq_cst: a breaker that still finds the flag up does nothing more. It
    // need not, because it wants this poll to end, and the poll has ended.
    if (b->poll(sleep.delay(), &r)) {
      wakeSig.store(0, seq_cst);
    } else if (r.toRun.empty()) {
      sleep.waitForTheRest(wakeSig);
    }
    countReady(r);
    return r;
  }
  // Acquire: pairs with netpollBreak; makes the breaker's earlier stores
  // visible.
  if (wakeSig.xchg(0, acquire) == 0) {
    futexsleep(&wakeSig, 0, sleep.delay());
    // Relaxed: this load does not take the break; the xchg below does.
    if (wakeSig.load(relaxed) == 0) sleep.waitForTheRest(wakeSig);
    wakeSig.xchg(0, acquire);  // as above
  }
  return r;
}

void netpollBreak() {
  // If the flag is already up, the present or the next poll will see it.
  // seq_cst: the argument is at the top. Pairs with the xchg in netpoll.
  if (!wakeSig.cas(0, 1, seq_cst)) return;
  stats.pollBreaks.add(1, relaxed);  // a figure
  const NetpollBackend* b = backend.load(seq_cst);
  if (b == nullptr) {
    futexwakeup(&wakeSig, 1);
  } else {
    b->wake();
  }
}

// seq_cst: as in commitWait. It also acquires: a thread that sees the count at
// 0 sees that the goroutines that waited are runnable.
bool netpollAnyWaiters() { return netpollWaiters.load(seq_cst) > 0; }
int32_t netpollCountWaiters() { return netpollWaiters.load(relaxed); }
// seq_cst: as in commitWait.
void netpollAdjustWaiters(int32_t delta) {
  if (delta != 0) netpollWaiters.add(delta, seq_cst);
}

}  // namespace gump::rt
