// Bubbles; the protocol is in synctest.h.
#include "runtime/wait/synctest.h"

#include <new>

#include "gump/internal/linkname.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/home.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/timechan.h"

namespace gump::rt {

// Every WaitGroup::Add reads it. It is hardly ever written, and neither are the
// variables that follow it.
alignas(kFalseSharing) Atomic<uint32_t> nbubbles;

namespace {

// Midnight UTC, 1 January 2000.
constexpr int64_t kFirstNow = 946'684'800'000'000'000;

Mutex bubblesLock{LockRank::kLeaf};
Bubble* bubblesFree ABSL_GUARDED_BY(bubblesLock) = nullptr;
uint32_t lastId ABSL_GUARDED_BY(bubblesLock) = 0;

// newBubble returns a bubble without goroutines, or nullptr.
Bubble* newBubble() {
  uint32_t id;
  Bubble* b;
  {
    LockScope l(&bubblesLock);
    if (++lastId == 0) lastId = 1;
    id = lastId;
    b = bubblesFree;
    if (b != nullptr) bubblesFree = b->next;
  }
  if (b == nullptr) b = persistentallocOf<Bubble>();
  if (b == nullptr) return nullptr;
  b->id = id;
  b->now.store(kFirstNow, relaxed);  // no goroutine is in it yet
  // Relaxed: a goroutine that joins later learns of the bubble by other means.
  nbubbles.add(1, relaxed);
  return b;
}

void freeBubble(Bubble* b) {
  nbubbles.add(static_cast<uint32_t>(-1), relaxed);  // as above
  LockScope l(&bubblesLock);
  b->next = bubblesFree;
  bubblesFree = b;
}

// settle lowers busy by one. If that picks a goroutine, returns it, otherwise
// nullptr.
G* settle(Bubble* b) ABSL_EXCLUSIVE_LOCKS_REQUIRED(b->mu) {
  if (--b->busy > 0) return nullptr;
  if (b->busy < 0) fatalthrow("synctest: busy < 0");
  // No goroutine of the bubble runs, so none changes its timers. The wake time
  // may be too early, because of timers that were stopped. The root then finds
  // that none is due, and makes the wake time exact (tick).
  const int64_t wake = wakeTime(&b->timers);
  const bool due = wake != 0 && wake <= b->now.load(relaxed);  // none runs
  G* gp = nullptr;
  if (b->waiter != nullptr && !(due && b->idle)) {
    gp = b->waiter;
    b->waiter = nullptr;
  } else if (b->idle) {
    gp = b->root;
    b->idle = false;
  }
  if (gp != nullptr) b->busy = 1;
  return gp;
}

// enter makes gp, the caller, the root of b. leave ends that, and returns true
// if no goroutine is left.
void enter(Bubble* b, G* gp) {
  LockScope l(&b->mu);
  b->busy = 1;
  b->total = 1;
  b->idle = false;
  b->ended = false;
  b->mainGoid = 0;
  b->root = gp;
  b->waiter = nullptr;
  gp->bubble = b;
  gp->special = true;
}
bool leave(Bubble* b, G* gp) {
  LockScope l(&b->mu);
  gp->bubble = nullptr;
  gp->special = gp->foreign || gp->group != 0 || homeOf(gp) != nullptr ||
                sanitizerOfProgram() || debug.parklocks != 0;
  b->root = nullptr;
  b->busy--;
  return --b->total == 0;
}

// settled parks the root until no other goroutine of the bubble can run, and
// every timer that is due has been run.
void settled(Bubble* b) {
  (void)acquirem();                    // gopark ends it
  int64_t now = b->now.load(relaxed);  // written by us
  if (timersCheck(&b->timers, &now, /*tidy=*/true).ran) {
    // No M has been woken for the goroutines that the timers readied. This
    // fence is W1 of the essay in proc.cc, as in injectglist.
    fence(seq_cst);
    wakep();
  }
  lock(&b->mu);
  b->idle = true;
  unlock(&b->mu);
  gopark(nullptr, nullptr, WaitReason::kSynctestRun);
}

enum class Next : uint8_t {
  kGoOn,       // settle again
  kLast,       // all goroutines have ended
  kDeadlock,   // the goroutines wait for good
  kLeftovers,  // the main goroutine has ended, and others wait
};

// tick finds out what to do once the bubble has settled. If time must pass, it
// moves the clock to the next timer.
Next tick(Bubble* b) {
  M* mp = acquirem();
  const int64_t next = timersFirst(&b->timers);
  lock(&b->mu);
  Next r = Next::kGoOn;
  const int64_t now = b->now.load(relaxed);  // written by us
  if (b->total == 1) {
    r = Next::kLast;
  } else if (b->waiter != nullptr || (next != 0 && next <= now)) {
    // A timer is due; or a goroutine is in Wait, and the root's park picks it.
  } else if (b->ended) {
    r = Next::kLeftovers;  // time ends with the main goroutine
  } else if (next == 0 || next == kMaxWhen) {
    r = Next::kDeadlock;
  } else {
    b->now.store(next, relaxed);  // no other goroutine runs
  }
  unlock(&b->mu);
  releasem(mp);
  return r;
}

// discardPending destroys the function of an AfterFunc that will not be called.
// Only the root is left in the bubble. The destruction runs in a new goroutine
// of the bubble, because the objects that the function holds may park, start
// goroutines, and stop timers that are still pending. Returns false if no timer
// is pending.
bool discardPending(Bubble* b) {
  M* mp = acquirem();
  Timer* t = timersTakePending(&b->timers);
  if (t != nullptr) {
    funcTimerDiscard(t);
    fence(seq_cst);  // as in settled
    wakep();
  }
  releasem(mp);
  return t != nullptr;
}

}  // namespace

// ---- Transitions ------------------------------------------------------------

void bubbleBlocked(Bubble* b) {
  lock(&b->mu);
  G* gp = settle(b);
  unlock(&b->mu);
  if (gp != nullptr) goready(gp);
}

void bubbleReady(G* gp) {
  const WaitReason r = gp->waitreason;
  // The root and the goroutine in Wait were counted when they were picked.
  if (!isIdleInSynctest(r) || r == WaitReason::kSynctestRun ||
      r == WaitReason::kSynctestWait) {
    return;
  }
  Bubble* b = gp->bubble;
  lock(&b->mu);
  b->busy++;
  unlock(&b->mu);
}

void bubbleJoin(Bubble* b, G* gp) {
  gp->bubble = b;
  gp->special = true;
  lock(&b->mu);
  b->busy++;
  b->total++;
  if (b->mainGoid == 0) b->mainGoid = gp->goid;
  unlock(&b->mu);
}

void bubbleLeave(Bubble* b, uint64_t goid) {
  lock(&b->mu);
  b->total--;
  if (goid == b->mainGoid) b->ended = true;
  G* gp = settle(b);
  unlock(&b->mu);
  if (gp != nullptr) goready(gp);
}

// ---- What belongs to a bubble -----------------------------------------------

uint32_t currentBubble() noexcept {
  const G* gp = getg();
  if (gp == nullptr || gp->bubble == nullptr) return 0;
  return gp->bubble->id;
}

void bubbleCheck(uint32_t id, const char* goText) {
  if (currentBubble() != id) fatal(goText);
}

int64_t bubbleNow() { return getg()->bubble->now.load(relaxed); }

Timers* bubbleTimers() { return &getg()->bubble->timers; }

// ---- What linkname.h offers -------------------------------------------------

BubbleResult bubbleEnter() noexcept {
  G* gp = runtimeEntry();
  if (gp->bubble != nullptr) return BubbleResult::kNested;
  Bubble* b = newBubble();
  if (b == nullptr) return BubbleResult::kNoMemory;
  enter(b, gp);
  return BubbleResult::kOk;
}

BubbleEnd bubbleRun() noexcept {
  G* gp = getg();
  Bubble* b = gp->bubble;
  Next next = Next::kGoOn;
  while (next == Next::kGoOn) {
    settled(b);
    next = tick(b);
    if (next == Next::kLast && discardPending(b)) next = Next::kGoOn;
  }
  // Goroutines that are left keep their bubble for good.
  if (leave(b, gp)) freeBubble(b);
  switch (next) {
    case Next::kDeadlock:
      return BubbleEnd::kDeadlock;
    case Next::kLeftovers:
      return BubbleEnd::kLeftovers;
    default:
      return BubbleEnd::kOk;
  }
}

void bubbleAbandon() noexcept {
  G* gp = getg();
  Bubble* b = gp->bubble;
  if (leave(b, gp)) freeBubble(b);
}

BubbleResult bubbleWait() noexcept {
  G* gp = runtimeEntry();
  Bubble* b = gp->bubble;
  if (b == nullptr) return BubbleResult::kOutside;
  M* mp = acquirem();
  lock(&b->mu);
  const bool busy = b->waiter != nullptr;
  if (!busy) b->waiter = gp;
  unlock(&b->mu);
  if (busy) {
    releasem(mp);
    return BubbleResult::kInProgress;
  }
  gopark(nullptr, nullptr, WaitReason::kSynctestWait);
  return BubbleResult::kOk;
}

int64_t bubbleNanos() noexcept { return bubbleNow(); }

}  // namespace gump::rt
