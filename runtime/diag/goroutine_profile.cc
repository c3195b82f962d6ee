// The goroutine profile: all goroutines as they were at one moment, with a stop
// of the world that only marks that moment. The idea is Go's (runtime/mprof.go,
// goroutineProfileWithLabelsConcurrent). A profile may be of stacks alone
// (visitGoroutines), or of all that a dump shows (traceback.cc).
//
// At the moment of the stop no goroutine runs, except the caller. So the stack
// of a goroutine stays what it was then until the goroutine runs again. After
// the stop, the caller visits all goroutines. A goroutine that is about to run
// before it was visited is recorded first, by the thread that is to run it.
// Either way each goroutine is recorded once, and as it was at the stop.
//
// Protocol. Each profile has a number, and G::profiled says how far the
// goroutine is in the profile of that number:
//
//   absent ──claim (CAS)──▶ in progress ──(store)──▶ done
//
// Any value of another profile means absent. The thread that wins the claim
// walks the stack, if there is something to record, and stores done, with
// release. A thread that wants to change the status of the goroutine waits for
// that (profileBefore), so the stack does not change under a claim.
//
// A thread that readies a goroutine before it is done does not claim it. It
// adds kWoken, which says that the goroutine was waiting at the stop.
//
// The holder of a claim takes no lock and does not wait, with two exceptions:
// the scan bit, which a reclamation cycle holds for a moment, and libc's list
// of libraries, where the unwinder needs it ((PL4) of parklocks.cc). The holder
// has m.locks raised, so it keeps its thread.
//
// Which thread may walk which stack, and when:
//  * kGwaiting: the visitor, with the claim and the scan bit. The bit keeps the
//    reclamation cycle away, which drops pages of such stacks. A waker of the
//    goroutine waits for the bit. `scanners` is raised before the stop, so that
//    the bit counts (noScanner).
//  * kGrunnable, also if preempted in place: the holder of the claim. The
//    goroutine runs only after `execute` or releasePreempted has changed its
//    status to kGrunning, and that change goes through profileBefore. Before it
//    is given its first stack it goes through profileBind.
//  * kGsyscall, and kGrunning without a P: none, because the thread uses the
//    stack. The goroutine is recorded with its start function. Where it leaves
//    this state, profileBefore records it in the same way.
//  * kGrunning with a P: none. Such a goroutine has run since the stop, so it
//    is done. Or it was presumed blocked at the stop and has been given its P
//    back; it is recorded with its start function, too.
//
// (GP1) A thread that changes a status as the holder of a P sees the profile
//       from its beginning. The profile begins while the world is stopped, so
//       the thread has got its P later.
// (GP2) A thread without a P may miss the beginning. Then one of these holds:
//        * It makes a goroutine (a foreign thread). The goroutine was not
//          visible to any thread before, so it may count as made before the
//          stop. It is recorded when it runs first, as one that has not begun.
//        * It returns from a call: kGrunning to kGsyscall, or kGsyscall to
//          kGrunnable. The goroutine runs no code of the program before its
//          thread has a P, and that change is another one, which (GP1) covers.
//        * It is in releasePreempted. That holds sched.lock, which the stop
//          has held before the profile began, and startTheWorld after that.
// (GP3) A goroutine that is made during the profile is done from its birth. The
//       mark is published with its status. The visitor makes dead cells done as
//       well, so after a profile each cell has the number of that profile, or
//       has never been part of one. So two numbers are enough, and each profile
//       takes the one that the last one did not take.
// (GP4) The memory of the profile is used by the visitor, and by threads that
//       are counted in `profileRecorders`. Such a thread first counts itself,
//       and then reads the number. profileEnd first stores 0 as the number, and
//       then waits for the count to be 0. So no thread writes to the memory
//       later, and none changes G::profiled for a profile that has ended.
// (GP5) One profile at a time: takeProfile has a semaphore. A goroutine that
//       has it may yield between two visits. So a foreign thread does not wait
//       for it: if main has ended, that goroutine goes on only with the next
//       Run. The thread stops the world for the whole of its profile instead
//       (takeStopped). That only reads, so it may do so beside a profile.
// (GP6) The hint is read without an order. So it is cleared only when each P
//       has passed a safe point since the end. Before that, a thread that holds
//       a P reads the number, or what the visitor has stored in G::profiled.
//       After that, it has got its P, or has been at its safe point, later. So
//       the visitor's reads of a stack happen before the stack changes.
//
// A goroutine that parks or yields does not switch straight to the next one
// meanwhile (kRecordProfile), because walking a stack takes some KiB of the
// walker's, and it may have no more than it needs to park. It goes by way of
// g0. In `execute`, g0 holds no lock.
//
// Without a profile all this costs a switch nothing: casgstatus reads the hint
// of traces anyway, and a switch reads P::records for other reasons as well.
// Only bindStack reads the hint once more.
//
// Rejected: a second stop of the world at the end, as in Go. Rejected: labels
// and stacks of goroutines in declared calls. The function that is called may
// change both. Rejected: to record a goroutine when it is readied. Its waker
// may have little stack, and kWoken says all that changes.
#include "runtime/diag/goroutine_profile.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "gump/internal/linkname_pprof.h"
#include "runtime/diag/traceback.h"
#include "runtime/diag/unwind.h"
#include "runtime/sched/labels.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/sema.h"

namespace gump::rt {

constinit Atomic<uint32_t> goroutineProfile;

namespace {

struct ProfileEntry {
  const LabelSet* labels;  // with a reference
  uint64_t n;
  // uintptr_t pcs[n] follow
};

// The memory of the profile (GP4). Written with the world stopped.
const ProfileKind* profileKind;
int64_t profileMoment;  // nanotime
char* profileMemory;
size_t profileSize;
Atomic<size_t> profileUsed;
Atomic<uint64_t> profileLost;      // goroutines that did not fit
Atomic<int32_t> profileRecorders;  // threads in profileBefore or profileBind
uint32_t lastProfile = 2;          // 1 or 2: the last number; under profileSema

// The value of G::profiled between the claim and profileDone.
uint8_t beingRecorded(uint32_t number) {
  return static_cast<uint8_t>(2 * number);
}
// kWoken is a bit of G::profiled: the goroutine was waiting at the stop, and
// has been readied. finishRecord clears it. It is never left from another
// profile, because the visitor makes each goroutine done that waits.
constexpr uint8_t kWoken = 8;

// awaitRecorder waits for another thread, which needs some microseconds.
// `tries` says how often the caller has waited already. The thread may be of a
// lower real-time priority, and on our processor: see scanWait.
void awaitRecorder(int tries) {
  constexpr int kSpins = kModelBuild ? 1 : 1000;
  if (tries < kSpins) {
    procyield(1);
  } else if (tries < kSpins + 100) {
    osyield();
  } else {
    usleep(50);
  }
}

// addRecord adds an entry, or counts one that does not fit.
void addRecord(const LabelSet* labels, const uintptr_t* pcs, size_t n) {
  char* at = profileRoom(sizeof(ProfileEntry) + n * sizeof(*pcs));
  if (at == nullptr) {
    releaseLabels(labels);
    return;
  }
  const ProfileEntry e = {labels, n};
  std::memcpy(at, &e, sizeof(e));
  std::memcpy(at + sizeof(e), pcs, n * sizeof(*pcs));
}

// recordStart records gp by its start function.
void recordStart(const LabelSet* labels, const FuncType* fn) {
  const uintptr_t start =
      fn == nullptr ? 0 : reinterpret_cast<uintptr_t>(fn->run);
  addRecord(labels, &start, start == 0 ? 0 : 1);
}

// recordParked records gp, which does not move. It is apart from recordStack
// because Frames is large, and a goroutine that records itself may have little
// stack left.
GUMP_NOINLINE void recordParked(G* gp) {
  const LabelSet* labels = labelsOf(gp);
  retainLabels(labels);
  if (gp->stack.lo == 0 || gp->sched.fresh != 0) {
    recordStart(labels, gp->fn);
    return;
  }
  Frames frames;
  walkParked(gp, &frames);
  if (frames.kept == 0) {
    recordStart(labels, gp->fn);
  } else {
    addRecord(labels, frames.pcs, frames.kept);
  }
}

// recordStack records gp for a profile of stacks.
void recordStack(G* gp, const ProfileView& view) {
  if (view.moves) {
    // gp may be ending, if it is back from an undeclared call.
    recordStart(nullptr, peek(gp->fn));
  } else {
    recordParked(gp);
  }
}

// callRecorder records gp for the holder of the claim.
void callRecorder(G* gp, uint32_t status, bool moves) {
  ProfileView view = {.status = status, .moves = moves, .now = profileMoment};
  // Relaxed: the waker has set it before it has changed the status to what the
  // caller has seen.
  if (status == kGrunnable && (gp->profiled.load(relaxed) & kWoken) != 0) {
    view.status = kGwaiting;
    view.woken = true;
  }
  profileKind->record(gp, view);
}

// recordClaimed records gp for the visitor, which has the claim.
void recordClaimed(G* gp) {
  for (int tries = 0;; tries++) {
    const uint32_t status = readgstatus(gp);
    if (status == kGidle || status == kGdead) return;
    if (isSystemGoroutine(gp)) return;  // published with the status
    switch (status) {
      case kGrunnable:
        callRecorder(gp, status, /*moves=*/false);
        return;
      case kGwaiting:
        // If this fails, gp has just been readied, or a reclamation cycle has
        // the bit.
        if (!castogscanstatus(gp, kGwaiting)) continue;
        callRecorder(gp, status, /*moves=*/false);
        casfrom_Gscanstatus(gp, kGwaiting);
        return;
      case kGwaiting | kGscan:
        awaitRecorder(tries);
        continue;
      default:
        callRecorder(gp, status, /*moves=*/true);
        return;
    }
  }
}

// claimRecord returns true if the caller has claimed gp. Otherwise gp is done.
bool claimRecord(G* gp, uint32_t number) {
  for (int tries = 0;; tries++) {
    const uint8_t s = gp->profiled.load(acquire);  // pairs with finishRecord
    if (s == profileDone(number)) return false;
    const auto woken = static_cast<uint8_t>(s & kWoken);
    if (s == (beingRecorded(number) | woken)) {
      awaitRecorder(tries);
    } else if (gp->profiled.cas(
                   s, static_cast<uint8_t>(beingRecorded(number) | woken),
                   acquire)) {
      return true;
    }
  }
}

// noteWoken tells the recorder of gp, which may be at work, that gp was waiting
// at the stop.
void noteWoken(G* gp, uint32_t number) {
  for (;;) {
    const uint8_t s = gp->profiled.load(relaxed);
    if (s == profileDone(number) || (s & kWoken) != 0) return;
    // Relaxed: the change of the status publishes it.
    if (gp->profiled.cas(s, static_cast<uint8_t>(s | kWoken), relaxed)) return;
  }
}

void finishRecord(G* gp, uint32_t number) {
  // The next change of gp, which pairs with this, follows our walk.
  gp->profiled.store(profileDone(number), release);
}

// RecorderCount is the counted section of (GP4).
class RecorderCount {
 public:
  // Both seq_cst: we count, and then read the number. profileEnd stores the
  // number, and then reads the count.
  RecorderCount() {
    profileRecorders.add(1, seq_cst);
    number_ = goroutineProfile.load(seq_cst);
  }
  // Pairs with the load in profileEnd.
  ~RecorderCount() { profileRecorders.add(-1, release); }
  RecorderCount(const RecorderCount&) = delete;
  RecorderCount& operator=(const RecorderCount&) = delete;
  uint32_t number() const { return number_; }  // 0: the profile has ended

 private:
  uint32_t number_;
};

// isRecorded returns true if profileBefore has nothing to do. A thread without
// a P may read an old number (GP2).
bool isRecorded(const G* gp) {
  const uint32_t number = goroutineProfile.load(acquire);
  // Acquire: pairs with finishRecord.
  return number == 0 || gp->profiled.load(acquire) == profileDone(number);
}

}  // namespace

void profileBefore(G* gp, uint32_t oldval, uint32_t newval) {
  // Foreign threads, tokens of homes and new cells are no goroutines.
  if (gp->foreign || gp->goid == 0) return;
  if (isRecorded(gp)) return;
  const RecorderCount c;
  if (c.number() == 0) return;
  if (oldval == kGwaiting) return noteWoken(gp, c.number());
  if (!claimRecord(gp, c.number())) return;
  // (GP3): a goroutine that is made has no record.
  if (oldval != kGdead && !isSystemGoroutine(gp)) {
    const bool starts = oldval == kGrunnable && newval == kGrunning;
    callRecorder(gp, oldval, /*moves=*/!starts);
  }
  finishRecord(gp, c.number());
}

void profileBind(G* gp) { profileBefore(gp, kGrunnable, kGrunning); }

const ProfileKind kStackProfile = {
    .each = sizeof(ProfileEntry) + 2 * Frames::kKeep * sizeof(uintptr_t),
    .record = recordStack,
    .atStop = nullptr};

char* profileRoom(size_t n) {
  size_t at = profileUsed.load(relaxed);
  do {
    if (profileSize - at < n) {
      profileLost.add(1, relaxed);  // read after (GP4)
      return nullptr;
    }
  } while (!profileUsed.casWeak(at, at + n, relaxed));
  return profileMemory + at;
}

void profileBegin(const ProfileKind& kind, char* base, size_t size, G* self) {
  profileKind = &kind;
  profileMemory = base;
  profileSize = size;
  profileUsed.store(0, relaxed);  // the world is stopped
  profileLost.store(0, relaxed);
  lastProfile = 3 - lastProfile;
  if (self != nullptr) self->profiled.store(profileDone(lastProfile), relaxed);
  // Publishes the above to threads without a P. It is seq_cst as in profileEnd,
  // so that all numbers are in one order.
  goroutineProfile.store(lastProfile, seq_cst);
  (void)traceHint.or_(kProfileHint, relaxed);
}

void profileVisit(G* gp) {
  M* mp = acquirem();  // others wait for us
  if (claimRecord(gp, lastProfile)) {
    recordClaimed(gp);
    finishRecord(gp, lastProfile);
  }
  releasem(mp);
}

size_t profileEnd(uint64_t* lost) {
  goroutineProfile.store(0, seq_cst);  // (GP4)
  // seq_cst: see RecorderCount. Acquire is part of it: we see the entries.
  for (int tries = 0; profileRecorders.load(seq_cst) != 0; tries++)
    awaitRecorder(tries);
  *lost = profileLost.load(relaxed);
  return profileUsed.load(relaxed);
}

namespace {

// leaveProfile lets a goroutine of pp switch straight to the next one again.
void leaveProfile(P* pp) {
  // Only the owner writes it, and we are in its place.
  const uint8_t records = pp->records.load(relaxed);
  pp->records.store(static_cast<uint8_t>(records & ~kRecordProfile), relaxed);
}

// 1 while no thread takes a profile (GP5).
constinit Atomic<uint32_t> profileSema(1);

}  // namespace

ProfileMemory reserveProfile(size_t each) {
  constexpr size_t kLeast = 1 << 20;
  constexpr size_t kMost = size_t{1} << 32;
  constexpr uint64_t kNewcomers = 256;  // started between now and the stop
  uint64_t all = gcountAll() + kNewcomers;
  {
    LockScope l(&sched.lock);
    all += static_cast<uint64_t>(sched.nmextraAll);  // of foreign threads
  }
  size_t want = std::min(all * each, kMost);
  do {
    want = alignUp(want, kPageSize);
    if (char* base = static_cast<char*>(sysReserve(want))) {
      return {.base = base, .size = want};
    }
    want /= 2;
  } while (want >= kLeast);
  return {};
}

bool takeProfile(const ProfileKind& kind, G* self, ProfileMemory* out) {
  if (!self->foreign) {
    semacquire(&profileSema, /*lifo=*/false, SemaReason::kSemacquire);
  } else if (!cansemacquire(&profileSema)) {
    return false;  // (GP5)
  }
  *out = reserveProfile(kind.each);
  scanners.add(1, seq_cst);  // before the stop
  stopTheWorld(WaitReason::kStoppingTheWorld);
  profileMoment = nanotime();
  profileBegin(kind, out->base, out->size, self->foreign ? nullptr : self);
  if (kind.atStop != nullptr) kind.atStop(self);
  startTheWorld();
  forEachG(
      [](G* each, void*) {
        profileVisit(each);
        runtimeEntry();  // yields, if it is time or the world is to stop
      },
      nullptr);
  out->used = profileEnd(&out->lost);
  // Pairs with the load in noScanner: all scan bits are clear.
  scanners.add(-1, release);
  forEachP(WaitReason::kFlushProcCaches, leaveProfile);  // (GP6)
  (void)traceHint.and_(~kProfileHint, relaxed);
  semrelease(&profileSema, /*handoff=*/false);
  return true;
}

void freeProfile(const ProfileMemory& m) {
  if (m.base != nullptr) sysFree(m.base, m.size);
}

// A goroutine whose stack is unavailable, because it is in a system call, is
// counted at its start function, as is one that has not begun.
bool visitGoroutines(StackVisitor visit, void* arg) noexcept {
  G* gp = runtimeEntry();
  if (!gp->foreign) {
    Frames here;
    walkHere(&here);
    visit(arg, {here.pcs, here.kept, labelsOf(gp)});
  }
  ProfileMemory m;
  if (!takeProfile(kStackProfile, gp, &m)) return visitStopped(visit, arg, gp);
  for (size_t at = 0; at < m.used;) {
    ProfileEntry e;
    std::memcpy(&e, m.base + at, sizeof(e));
    at += sizeof(e);
    visit(arg,
          {reinterpret_cast<const uintptr_t*>(m.base + at), e.n, e.labels});
    releaseLabels(e.labels);
    at += e.n * sizeof(uintptr_t);
  }
  freeProfile(m);
  return m.lost == 0;
}

}  // namespace gump::rt
