// Hibernation: which goroutines sleep, and when. hibernate.cc has the protocol
// by which a stack goes away and comes back.
//
// sysmon starts a pass when one is due. A pass is a goroutine that visits all
// others. The first one starts the thread gump-faults, or says why it cannot.
//
// Which goroutines sleep. maySleep excludes all that are in doubt.
//
// When they sleep. Parking does not read the clock. So a pass notes since when
// a goroutine waits, as a dump does, and a later pass finds that this is long
// ago. A goroutine therefore sleeps between once and twice hibernateAfter after
// it has parked. If passes have found nothing for a while, it sleeps up to two
// seconds later.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>

#include "gump/internal/linkname.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/home.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/reclaim.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"
#include "runtime/sched/tracking.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/userfault_linux.h"

namespace gump::rt {

Atomic<int64_t> hibernateAfter;

namespace {

// ---- Which goroutines -------------------------------------------------------

// waitsLong returns true if a goroutine that parks for this reason may sleep.
// Not in kRingWait, where the kernel fills a buffer of the goroutine. The other
// reasons that are missing here are the runtime's own.
bool waitsLong(WaitReason r) {
  switch (r) {
    case WaitReason::kIOWait:
    case WaitReason::kSemacquire:
    case WaitReason::kSleep:
    case WaitReason::kChanReceiveNilChan:
    case WaitReason::kChanSendNilChan:
    case WaitReason::kSelectNoCases:
    case WaitReason::kSelect:
    case WaitReason::kChanReceive:
    case WaitReason::kChanSend:
    case WaitReason::kSyncCondWait:
    case WaitReason::kSyncMutexLock:
    case WaitReason::kSyncRWMutexRLock:
    case WaitReason::kSyncRWMutexLock:
    case WaitReason::kSyncWaitGroupWait:
    case WaitReason::kSyncEventWait:
    case WaitReason::kScopeJoin:
    case WaitReason::kScopeWait:
      return true;
    default:
      return false;
  }
}

// maySleep returns false if there is any doubt. The caller holds gp's scan bit.
bool maySleep(const G* gp) {
  return !gp->foreign && !gp->systemG && gp->stack.lo != 0 &&
         gp->sched.fresh == 0 && !gp->inPlace && !gp->onOtherStack &&
         !gp->unguarded && gp->lockedm == nullptr && gp->bubble == nullptr &&
         waitsLong(gp->waitreason);
}

// ---- The thread gump-faults -------------------------------------------------

enum class Hibernation : uint8_t { kUntried, kStarting, kReady, kRefused };
// Written by passes, of which there is one at a time, and by gump-faults.
Atomic<Hibernation> hibernation;

[[noreturn]] void faultsMain() {
  becomeSystemThread();
  // A handler may touch a stack that is away. That of SIGQUIT dumps them all.
  declineSignals();
  sigset_t quit;
  sigemptyset(&quit);
  sigaddset(&quit, SIGQUIT);
  pthread_sigmask(SIG_BLOCK, &quit, nullptr);
  systemThreadRunsOnWake();
  hibernation.store(Hibernation::kReady, release);  // pairs with hibernateBegin
  answerFaults();
}

void refuse(const char* why, int err) {
  hibernation.store(Hibernation::kRefused, relaxed);
  printf("runtime: goroutines do not hibernate: %s (errno=%d)\n", why, err);
}

// start makes the pages and the thread gump-faults, or refuses.
void start() {
  // ASan and LSan read all stacks. TSan touches memory while it holds locks
  // that gump-faults needs.
  if (sanitizerReadsStacks() || sanitizerOfProgram() ||
      kSanitizerDefersHandlers) {
    refuse("the program has a sanitizer", 0);
    return;
  }
  const int err = userfaultOpen();
  if (err != 0) {
    refuse(err == EPERM ? "no userfaultfd for this process; see "
                          "vm.unprivileged_userfaultfd"
                        : "this kernel cannot move pages (Linux 6.8 can)",
           err);
    return;
  }
  if (!hibernatePages()) {
    refuse("no memory", ENOMEM);
    return;
  }
  hibernation.store(Hibernation::kStarting, relaxed);
  M* mp = acquirem();
  newSystemM([] { faultsMain(); }, "gump-faults");
  releasem(mp);
}

// ---- A pass -----------------------------------------------------------------

constexpr int64_t kRestInterval = 1'000'000'000;  // ns
constexpr int64_t kLeastSleep = 1'000'000;        // ns; of sysmon

int64_t passTime;           // nanotime of the pass; written before it
Atomic<int64_t> lastPass;   // nanotime when the last pass began
Atomic<bool> passStarting;  // the goroutine of a pass is on its way
// Goroutines of this pass that it has put to sleep, or that a later one will.
Atomic<uint32_t> found;
// How many passes in a row have found none. Written by passes; set back by
// gump-faults and by the program.
Atomic<int32_t> idlePasses;

constexpr FuncType kHibernatePass = systemFunc([](void*) {
  hibernatePass();
  passStarting.store(false, release);  // pairs with the cas in hibernateDue
});

// passInterval is the time between two passes for a given hibernateAfter. If
// passes find nothing to do, it doubles, up to two seconds.
int64_t passInterval(int64_t after) {
  constexpr int64_t kLeast = 1'000'000;
  constexpr int64_t kMost = 2'000'000'000;
  constexpr int32_t kDoublings = 11;
  const int64_t plain = std::max(after / 2, kLeast);
  const int32_t idle = std::min(idlePasses.load(relaxed), kDoublings);
  return plain >= kMost ? plain : std::min(plain << idle, kMost);
}

}  // namespace

void hibernateinit() {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  if (debug.hibernate <= 0) return;
  hibernateAfter.store(debug.hibernate * kNsPerSecond, relaxed);
}

int64_t setHibernation(int64_t after) noexcept {
  const int64_t old = hibernateAfter.xchg(after < 0 ? 0 : after, relaxed);
  idlePasses.store(0, relaxed);
  return old;
}

void hibernateSoon() { idlePasses.store(0, relaxed); }

void hibernateDue(int64_t now) {
  const int64_t after = hibernateAfter.load(relaxed);  // a setting
  // Passes go on for the images that were in use when the program switched
  // hibernation off.
  const bool rest = after == 0 && hibernateImagesLeft();
  if (after == 0 && !rest) return;
  if (hibernation.load(relaxed) == Hibernation::kRefused) return;
  if (sched.mainEnded.load(relaxed)) return;  // a pass would not run
  if (now - lastPass.load(relaxed) <
      (rest ? kRestInterval : passInterval(after))) {
    return;
  }
  if (!passStarting.cas(false, true, acquire)) return;
  lastPass.store(now, relaxed);
  if (!startSystemG(&kHibernatePass)) passStarting.store(false, release);
}

int64_t hibernateSleep(int64_t now) {
  const int64_t after = hibernateAfter.load(relaxed);  // as above
  if (after == 0 || hibernation.load(relaxed) == Hibernation::kRefused) {
    return kMaxWhen;
  }
  // Hints. If main has ended, or the world is stopped, a pass may be on its way
  // for long. sysmon must not look for its end all the time.
  if (passStarting.load(relaxed) || sched.mainEnded.load(relaxed)) {
    return kRestInterval;
  }
  const int64_t left = lastPass.load(relaxed) + passInterval(after) - now;
  return std::max(left, kLeastSleep);
}

bool hibernateBegin() {
  // Relaxed: passes come one after the other.
  if (hibernation.load(relaxed) == Hibernation::kUntried) start();
  // Pairs with the store in faultsMain. Until then there is no pass.
  if (hibernation.load(acquire) != Hibernation::kReady) return false;
  passTime = nanotime();
  found.store(0, relaxed);
  return true;
}

void hibernateVisit(G* gp, void*) {
  // Hints. We look again under the scan bit.
  if (readgstatus(gp) != kGwaiting || peek(gp->stack.lo) == 0) return;
  const int64_t after = hibernateAfter.load(relaxed);  // a setting
  if (after == 0) return;
  M* mp = acquirem();  // gp's waker waits for us
  if (castogscanstatus(gp, kGwaiting)) {
    if (maySleep(gp)) {
      if (gp->waitsince == 0 || passTime - gp->waitsince < after) {
        noteWaitSince(gp, passTime);
        found.add(1, relaxed);
      } else if (hibernateStack(gp)) {
        found.add(1, relaxed);
        stats.hibernated.add(1, relaxed);  // a figure
      }
    }
    casfrom_Gscanstatus(gp, kGwaiting);
  }
  releasem(mp);
}

void hibernateEnd() {
  if (found.load(relaxed) == 0) {
    idlePasses.add(1, relaxed);
  } else {
    idlePasses.store(0, relaxed);
  }
  hibernateTidy();
}

}  // namespace gump::rt
