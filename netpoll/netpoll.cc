// The poller's portable half: who waits for what, until when, and how they are
// told. What the kernel has to say comes from a back end (backend.h).
//
// Before the first descriptor there is no back end: the M that blocks here
// waits for a time, or to be woken, on a futex. A break is a flag that stays up
// until a blocking poll takes it, so that one that comes before the sleep ends
// it as well, and many are as good as one.
//
// No break is lost when the back end comes: a breaker raises the flag, then
// looks which one there is; startBackend stores the back end, raises the flag,
// wakes the futex, and wakes the back end too. A breaker that still saw none
// has raised the flag before, so startBackend's own wake stands for it.
#include "runtime/netpoll.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "netpoll/backend.h"
#include "netpoll/lead.h"
#include "netpoll/polldesc.h"
#include "netpoll/ring.h"
#include "runtime/atomic.h"
#include "runtime/base.h"
#include "runtime/mem.h"
#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/proc.h"
#include "runtime/runtime2.h"

namespace gump::rt {

namespace {

Atomic<bool> inited;
Atomic<uint32_t> wakeSig;  // 1: break; the futex word
// nullptr until there is a descriptor; written once.
Atomic<const NetpollBackend*> backend;
// Goroutines (and plain threads) that wait for a descriptor, or for the ring.
Atomic<int32_t> netpollWaiters;
// Of the M that polls; sched.lastpoll hands it on.
constinit Lead lead;

// PunctualSleep is one sleep of the M that polls. The kernel is asked to end it
// sooner than due (lead.h), and what is left is waited for awake. That wait is
// short, Lead::kMost at most, so the network is not looked at meanwhile.
class PunctualSleep {
 public:
  // For `delay` ns, not 0; negative: for ever.
  explicit PunctualSleep(int64_t delay) : delay_(delay) {
    // The model's clock goes on only while everybody sleeps.
    if (delay <= 0 || kModelBuild) return;
    ahead_ = lead.of(delay);
    asked_ = nanotime() + delay - ahead_;
  }

  // What to ask the kernel for.
  int64_t delay() const { return delay_ - ahead_; }

  // waitForTheRest follows a sleep that no break has ended and that has made
  // nobody runnable. It waits until it is time, or `word` is set.
  void waitForTheRest(const Atomic<uint32_t>& word) const {
    if (asked_ == 0) return;
    int64_t now = nanotime();
    if (now < asked_) return;  // ended by a signal, or a stale event
    lead.learn(now - asked_);
    // Relaxed: it is taken afterwards, by the next poll if there is a back end.
    while (now < asked_ + ahead_ && word.load(relaxed) == 0) {
      procyield(10);
      now = nanotime();
    }
  }

 private:
  int64_t delay_;
  int64_t ahead_ = 0;
  int64_t asked_ = 0;  // when the kernel is to end it; 0: never
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
  // Never again: see (N2).
  pd->timer.f = deadlinePassed;
  pd->timer.arg = pd;
  return pd;
}

void PollCache::free(PollDesc* pd) {
  // (N3). Release: whoever sees the new tag knows that the old owner has gone.
  pd->tag.add(1, release);
  LockScope l(&lock);
  pd->link = first;
  first = pd;
}

// chooseBackend returns the first that works here, with *err == 0.
const NetpollBackend* chooseBackend(int* err) {
  if (debug.netpoll == NetpollChoice::kUring) {
    *err = kUringBackend.init();
    if (*err == 0) return &kUringBackend;
    printf("runtime: no io_uring here (errno %d), using epoll\n", *err);
  }
  *err = kEpollBackend.init();
  return *err == 0 ? &kEpollBackend : nullptr;
}

// startBackend makes sure that there is a back end; 0, or why there is none.
int startBackend() {
  // Guards the choice. Forbidden while holding it: everything; nobody else can
  // want a descriptor meanwhile.
  static constinit Mutex starting{LockRank::kLeaf};
  netpollGenericInit();
  // Pairs with the store below.
  if (GUMP_LIKELY(backend.load(acquire) != nullptr)) return 0;
  // It takes locks; once it has been called, it does not.
  if (debug.netpoll == NetpollChoice::kUring) (void)ringStart();
  LockScope l(&starting);
  if (backend.load(relaxed) != nullptr) return 0;  // written under starting
  int err;
  const NetpollBackend* b = chooseBackend(&err);
  if (b == nullptr) return err;
  // The argument at the top of the file. seq_cst: store backend, then write
  // wakeSig / netpollBreak: write wakeSig, then load backend.
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

// checkErr says whether an operation in this direction can go on, or wait.
int checkErr(const PollDesc* pd, PollMode mode) {
  const uint32_t info = pd->info.load(seq_cst);  // polldesc.h: the argument
  if ((info & kPollClosing) != 0) return kErrClosing;
  const uint32_t expired =
      mode == PollMode::kRead ? kPollReadExpired : kPollWriteExpired;
  if ((info & expired) != 0) return kErrTimeout;
  if ((info & kPollGone) != 0) return kErrNotPollable;
  // Only reads: a write will meet the error itself, and say which it is.
  if (mode == PollMode::kRead && (info & kPollEventErr) != 0) {
    return kErrNotPollable;
  }
  return kPollOk;
}

// tagOf is pd's tag, in its place in info.
uint32_t tagOf(const PollDesc* pd) {
  // Relaxed: for the owner, or to be compared in a CAS.
  return (pd->tag.load(relaxed) & PollTag::kMask) << kPollTagShift;
}

// publishInfo copies what the lock guards to info (N1).
void publishInfo(PollDesc* pd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(pd->lock) {
  uint32_t info = 0;
  if (pd->closing) info |= kPollClosing;
  if (pd->rd < 0) info |= kPollReadExpired;
  if (pd->wd < 0) info |= kPollWriteExpired;
  info |= tagOf(pd);
  // Events may set theirs meanwhile. seq_cst: polldesc.h.
  uint32_t old = pd->info.load(relaxed);
  constexpr uint32_t kEvents = kPollEventErr | kPollGone;
  while (!pd->info.casWeak(old, (old & kEvents) | info, seq_cst)) {
  }
}

// unblock moves a direction on, to pdReady or, if that is false, to pdNil; it
// returns the G that slept, which is the caller's to ready. seq_cst:
// polldesc.h.
G* unblock(PollDesc* pd, PollMode mode, bool toReady) {
  Atomic<uintptr_t>* gpp = waiterOf(pd, mode);
  for (;;) {
    const uintptr_t old = gpp->load(seq_cst);
    if (old == pdReady) return nullptr;
    // It is the waiter's own check that ends a wait not yet begun.
    if (old == pdNil && !toReady) return nullptr;
    if (!gpp->cas(old, toReady ? pdReady : pdNil, seq_cst)) continue;
    return old == pdWait || old == pdNil ? nullptr : reinterpret_cast<G*>(old);
  }
}

// netpollgoready readies a G that has been taken from a PollDesc, if there is
// one. quiet: see goreadyQuiet.
void netpollgoready(G* gp, bool quiet) {
  if (gp == nullptr) return;
  if (quiet) {
    goreadyQuiet(gp);
  } else {
    goready(gp);
  }
  netpollAdjustWaiters(-1);
}

// commitWait publishes gp as the one that sleeps; false: it must not, since
// somebody moved the word on.
bool commitWait(G* gp, void* gpp) {
  // A plain thread may run on as soon as it is published.
  const bool foreign = gp->foreign;
  // Before: once it is published, the count may go down. seq_cst: the M that
  // goes idle stores that it does, then looks at the count.
  netpollAdjustWaiters(1);
  if (!static_cast<Atomic<uintptr_t>*>(gpp)->cas(
          pdWait, reinterpret_cast<uintptr_t>(gp), seq_cst)) {
    netpollAdjustWaiters(-1);  // too high for a moment: harmless
    return false;
  }
  // A goroutine's M looks for work now, and so into the poller. On behalf of a
  // plain thread, somebody has to.
  if (foreign && sched.lastpoll.load(seq_cst) != 0) wakep();
  return true;
}

// block waits for a direction to become ready; false: it was woken for another
// reason, or was not allowed to sleep.
bool block(PollDesc* pd, PollMode mode) {
  Atomic<uintptr_t>* gpp = waiterOf(pd, mode);
  // seq_cst: polldesc.h; and the event's stores are seen.
  for (;;) {
    if (gpp->cas(pdReady, pdNil, seq_cst)) return true;
    if (gpp->cas(pdNil, pdWait, seq_cst)) break;
    const uintptr_t v = gpp->load(relaxed);  // only looked at
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

// expire ends the waits whose deadline is not after now.
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

// deadlinePassed is what the timer calls. It may come late, to a PollDesc that
// has another owner: then it does what that one's own timer would.
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

PollDesc* pollOpen(int fd, int* err) {
  (void)runtimeEntry();
  *err = startBackend();
  if (*err != 0) return nullptr;
  PollDesc* pd = pollcache.alloc();
  if (pd == nullptr) {
    *err = ENOMEM;
    return nullptr;
  }
  const uintptr_t rg = pd->rg.load(relaxed);  // nobody else's, any more
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
    // Relaxed: a late event of the old owner can at worst make us ask the
    // kernel once more.
    pd->rg.store(pdNil, relaxed);
    pd->wg.store(pdNil, relaxed);
    pd->hungUp.store(false, relaxed);
    pd->info.store(tagOf(pd), relaxed);
  }
  *err = backend.load(relaxed)->open(pd);  // seen by startBackend
  if (*err == 0) return pd;
  pollcache.free(pd);
  return nullptr;
}

void pollClose(PollDesc* pd) {
  {
    LockScope l(&pd->lock);
    if (!pd->closing) fatalthrow("runtime: close polldesc w/o unblock");
  }
  // Nobody waits, and nobody will.
  if (pd->rg.load(relaxed) > pdReady || pd->wg.load(relaxed) > pdReady) {
    fatalthrow("runtime: blocked read or write on closing polldesc");
  }
  backend.load(relaxed)->close(pd);  // it opened pd
  pollcache.free(pd);
}

void pollUnblock(PollDesc* pd) {
  (void)runtimeEntry();
  M* mp = acquirem();  // nobody else will wake those whom we have taken off it
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
  // seq_cst: the system call that follows sees whatever an event before this
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
  if (when < 0) when = 1;  // long ago; negative means that it has been seen
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

void netpolldeliver(NetpollResult* r, G* gp) {
  if (gp == nullptr) return;
  if (gp->foreign) {  // on no queue
    netpollgoready(gp, /*quiet=*/false);
    // The thread may run, and park again for good, while netpollWaiters still
    // counts it: then its own checkdead stayed silent. After main, an M that
    // polls comes by checkdead later, but the ring's thread does not; so ask
    // here. Pairs with endMain.
    if (GUMP_UNLIKELY(sched.mainEnded.load(acquire))) {
      LockScope l(&sched.lock);
      checkdead();
    }
    return;
  }
  r->toRun.push(gp);
  r->delta--;
}

void netpollready(NetpollResult* r, PollDesc* pd, bool read, bool write) {
  if (read) netpolldeliver(r, unblock(pd, PollMode::kRead, /*toReady=*/true));
  if (write) netpolldeliver(r, unblock(pd, PollMode::kWrite, /*toReady=*/true));
}

void pollSetEventErr(PollDesc* pd, bool err, uint32_t tag) {
  const uint32_t bit = err ? uint32_t{kPollEventErr} : 0;
  uint32_t old = pd->info.load(relaxed);  // the CAS decides
  while ((old & kPollEventErr) != bit) {
    // Another owner's info is not touched: it has another tag.
    if (((old >> kPollTagShift ^ tag) & PollTag::kMask) != 0) return;
    const uint32_t info = (old & ~uint32_t{kPollEventErr}) | bit;
    if (pd->info.casWeak(old, info, seq_cst)) return;
  }
}

// seq_cst: polldesc.h, as if it closed.
void pollSetGone(PollDesc* pd) { pd->info.or_(kPollGone, seq_cst); }

// ---- For the scheduler ------------------------------------------------------

void netpollGenericInit() {
  // Nothing hangs on it but that somebody polls.
  if (!inited.load(relaxed)) inited.store(true, relaxed);
}
bool netpollinited() { return inited.load(relaxed); }

NetpollResult netpoll(int64_t delay) {
  NetpollResult r;
  // seq_cst: the argument at the top.
  const NetpollBackend* b = backend.load(seq_cst);
  if (delay == 0) {
    // What becomes ready while nobody waits is noted by the next poll.
    if (b != nullptr && netpollAnyWaiters()) (void)b->poll(0, &r);
    return r;
  }
  if (delay > kMaxDelay) delay = kMaxDelay;
  if (delay > 0) preciseSleeps(getg()->m);
  const PunctualSleep sleep(delay);
  if (b != nullptr) {
    // seq_cst: a breaker that finds the flag up wants this poll to end, and it
    // does.
    if (b->poll(sleep.delay(), &r)) {
      wakeSig.store(0, seq_cst);
    } else if (r.toRun.empty()) {
      sleep.waitForTheRest(wakeSig);
    }
    return r;
  }
  // Acquire: pairs with netpollBreak; what the breaker did before is seen.
  if (wakeSig.xchg(0, acquire) == 0) {
    futexsleep(&wakeSig, 0, sleep.delay());
    // Relaxed: it is taken in the next line.
    if (wakeSig.load(relaxed) == 0) sleep.waitForTheRest(wakeSig);
    wakeSig.xchg(0, acquire);  // as above
  }
  return r;
}

void netpollBreak() {
  // Already up: whoever polls next, or now, will see it. seq_cst: the argument
  // at the top; pairs with the xchg in netpoll.
  if (!wakeSig.cas(0, 1, seq_cst)) return;
  const NetpollBackend* b = backend.load(seq_cst);
  if (b == nullptr) {
    futexwakeup(&wakeSig, 1);
  } else {
    b->wake();
  }
}

// Acquire: who saw the waiters go sees them runnable.
bool netpollAnyWaiters() { return netpollWaiters.load(seq_cst) > 0; }
// seq_cst: as in commitWait.
void netpollAdjustWaiters(int32_t delta) {
  if (delta != 0) netpollWaiters.add(delta, seq_cst);
}

}  // namespace gump::rt
