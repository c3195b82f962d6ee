// The CPU profile, as Go does it (runtime/cpuprof.go, os_linux.go).
//
// While there is a profile, each thread that runs goroutines has a timer of the
// kernel (timer_create). The timer counts the thread's own processor time, and
// sends SIGPROF to that very thread. So a thread is sampled in proportion to
// the time that it uses. Threads that are not ours share the timer of the
// process (ITIMER_PROF). Its signals come to all threads, and a thread with a
// timer of its own drops them. If the program has armed ITIMER_PROF itself, it
// keeps that timer, and threads that are not ours are not sampled.
//
// The handler walks the stack by frame pointers, and counts it in a table that
// was mapped before. The table has a bucket for each stack and set of labels.
//
// A signal may land anywhere: in a switch, on g0, in malloc, in dlopen, in a
// thread that ends. That is safe:
//
//  (H1) The handler uses its own stack, the table, and the memory that (H2) to
//       (H4) name. While a trace is written, it also uses the memory that (S2)
//       of trace_cpu.cc names. It never calls malloc. Of libc, it calls only
//       getpid, clock_gettime and mmap.
//       It reads no thread-local variable but gumpTlsG, which is initial-exec.
//       It takes no lock that code outside of it holds for long. All other
//       signals wait for its end ((I4) of signal.cc), so the thread cannot be
//       preempted in place in it.
//
//  (H2) The handler reads the interrupted stack directly only if that is the
//       stack of the current goroutine, or, if it has interrupted another
//       handler, the M's signal stack. Either contains the interrupted stack
//       pointer, so the thread is on it, and it is mapped up to its end. The
//       kernel reads other stacks (readMemory), and fails where nothing is
//       mapped. These are the stacks of g0, of a foreign thread and of a
//       coroutine. Between two instructions of a switch it is also that of the
//       goroutine that is no longer current, or not yet.
//
//  (H3) gumpTlsG is nullptr before an M has the thread and after it (mstart,
//       runMain, needm, dropm). So a G that the handler finds there, and the M
//       of that G, belong to this thread. In a switch the G is g0 or the next
//       goroutine, not one that has been published (K2).
//
//  (H4) The labels of that G are in a list that only this thread changes, and
//       which is whole at each instruction (L1 of labels.cc). A set in it has a
//       reference. The handler adds one for the bucket, before the interrupted
//       code can drop its own. So the table refers to no set that is freed.
//
//  (H5) The table has a lock of its own. A handler gives up after a while, and
//       counts a lost sample, because the holder may have no processor, or may
//       be the code that this handler has interrupted (stopCpuProfile).
//
// A thread's timer is made and deleted under timersLock: by the thread itself
// when it starts and ends, or by the thread that starts and stops the profile.
// minit and unminit take the lock, so no timer is made for a thread that has
// ended, nor for another one that has its number.
//
// After stopCpuProfile a handler may still be running, because the thread had
// taken the signal before. The handler looks at `open` under the table's lock.
// So either it finds the table open, and counts before stopCpuProfile closes
// it, or it finds the table closed.
//
// A child of fork has no timers, and its SIGPROF is the program's.
//
// Rejected: a buffer from which a goroutine reads (Go's profBuf). It needs a
// reader that wakes ten times a second. Go needs the buffer because a handler
// must not write pointers to labels where the collector would miss them.
//
// Rejected: a timer that execute makes (Go's setThreadCPUProfiler). It costs
// each switch a load and a branch. The kernel lets any thread of the process
// make a timer for another one.
#include "runtime/diag/cpuprof.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "absl/base/thread_annotations.h"
#include "gump/internal/linkname.h"
#include "runtime/diag/framewalk.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/labels.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rand.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/raw_syscall.h"
#include "runtime/sys/signal.h"
#include "runtime/sys/threadstate_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

constexpr size_t kTableSize = 32 << 20;
constexpr size_t kSampleChains = 4096;

// SampleBucket counts the samples with one stack and one set of labels.
struct SampleBucket {
  SampleBucket* next;
  uint64_t hash;
  const LabelSet* labels;
  int64_t count;
  uint32_t n;
  uintptr_t pcs[kMostSampled];  // only the first n are allocated
};

// SampleTable is guarded by its lock while it is open. Otherwise it belongs to
// the thread that has changed profileState.
struct SampleTable {
  Atomic<uint32_t> lock;  // 1: held
  Atomic<int64_t> lost;   // samples for which there was no lock or no memory
  bool open = false;
  uintptr_t memory = 0;  // kTableSize bytes
  uintptr_t next = 0;    // the part of it that is not used yet
  SampleBucket* chains[kSampleChains] = {};
};
constinit SampleTable samples;

enum class ProfileState : uint8_t { kOff, kOn, kEnding };

Mutex timersLock{LockRank::kLeaf};
ProfileState profileState ABSL_GUARDED_BY(timersLock) = ProfileState::kOff;
int64_t samplePeriod ABSL_GUARDED_BY(timersLock);  // ns of a sample
// True if ITIMER_PROF is that of the last profile, and not the program's. The
// signals of the timer may come late, so the value stays until the next
// profile.
Atomic<bool> processTimer;

// ---- The table

// tryLockTable returns false if another thread, or the code that a handler has
// interrupted, holds the lock for long (H5).
bool tryLockTable() {
  constexpr int kTries = 1000;  // some 50 µs
  for (int i = 0; i < kTries; i++) {
    // Acquire: pairs with the release in unlockTable.
    if (samples.lock.load(relaxed) == 0 && samples.lock.cas(0, 1, acquire)) {
      return true;
    }
    archPause();
  }
  return false;
}

void unlockTable() { samples.lock.store(0, release); }

uint64_t hashOfSample(const uintptr_t* pcs, uint32_t n,
                      const LabelSet* labels) {
  uint64_t h = n ^ reinterpret_cast<uintptr_t>(labels);
  for (uint32_t i = 0; i < n; i++) h = (h ^ pcs[i]) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}

bool sameStack(const uintptr_t* a, const uintptr_t* b, uint32_t n) {
  while (n > 0 && a[n - 1] == b[n - 1]) n--;
  return n == 0;
}

// sampleBucket returns the bucket of a stack. It makes one at the first call.
// Returns nullptr if the table is full.
// On: a handler, with the table's lock.  P: either.  Locks: none.  Parks: no.
SampleBucket* sampleBucket(const uintptr_t* pcs, uint32_t n,
                           const LabelSet* labels) {
  const uint64_t hash = hashOfSample(pcs, n, labels);
  SampleBucket** chain = &samples.chains[hash % kSampleChains];
  for (SampleBucket* b = *chain; b != nullptr; b = b->next) {
    if (b->hash == hash && b->n == n && b->labels == labels &&
        sameStack(b->pcs, pcs, n)) {
      return b;
    }
  }
  const size_t size = offsetof(SampleBucket, pcs) + n * sizeof(*pcs);
  if (samples.memory + kTableSize - samples.next < size) return nullptr;
  auto* b = reinterpret_cast<SampleBucket*>(samples.next);
  samples.next += size;
  b->next = *chain;
  b->hash = hash;
  b->labels = labels;
  b->count = 0;
  b->n = n;
  for (uint32_t i = 0; i < n; i++) b->pcs[i] = pcs[i];
  retainLabels(labels);  // (H4)
  *chain = b;
  return b;
}

// countSample counts a stack `ticks` times.
// On: a handler.  P: either.  Locks: that of the table, for a moment.
// Parks: no.
void countSample(const uintptr_t* pcs, uint32_t n, const LabelSet* labels,
                 int64_t ticks) {
  if (!tryLockTable()) {
    samples.lost.add(ticks, relaxed);  // (H5); read when all have been counted
    return;
  }
  if (samples.open) {
    if (SampleBucket* b = sampleBucket(pcs, n, labels)) {
      b->count += ticks;
    } else {
      samples.lost.add(ticks, relaxed);
    }
  }
  unlockTable();
}

// stackEnd returns the end of the stack that sp points into, or 0 (H2).
uintptr_t stackEnd(const G* gp, const M* mp, uintptr_t sp) {
  if (mp != nullptr && sp - mp->signalStackLo < mp->signalStackSize) {
    return mp->signalStackLo + mp->signalStackSize;
  }
  const bool own =
      gp != nullptr && sp - gp->stack.lo < gp->stack.hi - gp->stack.lo;
  return own ? gp->stack.hi : 0;
}

// lostProfileEvent stands in a profile for the samples that were lost.
GUMP_NOINLINE void lostProfileEvent() { asm volatile(""); }

// ---- Timers

// KernelSigevent is struct sigevent as the kernel has it. libc does not show
// the field for the thread under one name everywhere.
struct KernelSigevent {
  const void* value;
  int32_t signo;
  int32_t notify;
  int32_t tid;
  char rest[64 - 20];
};
static_assert(sizeof(KernelSigevent) == 64);

// startTimer makes the timer of mp's thread, if there is a profile. If the
// kernel refuses (ulimit -i), the thread counts as one that is not ours.
// On: any.  P: either.  Locks: timersLock is held.  Parks: no.
void startTimer(M* mp, int32_t tid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(timersLock) {
  // The clock of a thread's processor time: pthread_getcpuclockid.
  const auto clock = static_cast<int32_t>(~static_cast<uint32_t>(tid) << 3 | 6);
  KernelSigevent event = {};
  event.value = &samples;
  event.signo = SIGPROF;
  event.notify = SIGEV_THREAD_ID;
  event.tid = tid;
  int32_t id = 0;
  if (rawSyscall(SYS_timer_create, clock, asArg(&event), asArg(&id), 0, 0, 0) !=
      0) {
    return;
  }
  // The first signal comes after a random part of the period. Otherwise threads
  // that live for less than a period would never be seen.
  const auto every = static_cast<uint32_t>(samplePeriod);
  const int64_t first = 1 + cheaprandn(getg()->m, every);
  constexpr int64_t kSecond = 1'000'000'000;
  const itimerspec when = {{samplePeriod / kSecond, samplePeriod % kSecond},
                           {first / kSecond, first % kSecond}};
  (void)rawSyscall(SYS_timer_settime, id, 0, asArg(&when), 0, 0, 0);
  mp->profileTimer.store(id, relaxed);  // read by handlers of that thread
}

// stopTimer deletes the timer of mp's thread.
// On: any.  P: either.  Locks: timersLock is held.  Parks: no.
void stopTimer(M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(timersLock) {
  const int32_t id = mp->profileTimer.load(relaxed);  // under the lock
  if (id < 0) return;
  (void)rawSyscall(SYS_timer_delete, id, 0, 0, 0, 0, 0);
  mp->profileTimer.store(kNoProfileTimer, relaxed);
}

// startProcessTimer arms ITIMER_PROF, unless the program has done so.
// On: any.  P: either.  Locks: timersLock is held.  Parks: no.
void startProcessTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(timersLock) {
  itimerval now = {};
  (void)rawSyscall(SYS_getitimer, ITIMER_PROF, asArg(&now), 0, 0, 0, 0);
  const bool free = now.it_value.tv_sec == 0 && now.it_value.tv_usec == 0;
  processTimer.store(free, relaxed);  // no signal of it is on its way
  if (!free) return;
  const int64_t us = std::max<int64_t>(samplePeriod / 1000, 1);
  const itimerval every = {{us / 1'000'000, us % 1'000'000},
                           {us / 1'000'000, us % 1'000'000}};
  (void)rawSyscall(SYS_setitimer, ITIMER_PROF, asArg(&every), 0, 0, 0, 0);
}

void stopProcessTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(timersLock) {
  if (!processTimer.load(relaxed)) return;  // written under the lock
  const itimerval off = {};
  (void)rawSyscall(SYS_setitimer, ITIMER_PROF, asArg(&off), 0, 0, 0, 0);
}

// ---- Start and stop

CpuProfileStart startSampling(int hz) {
  LockScope l(&timersLock);
  if (profileState != ProfileState::kOff) return CpuProfileStart::kInUse;
  void* memory = sysReserve(kTableSize);
  if (memory == nullptr) return CpuProfileStart::kNoMemory;
  sysName(memory, kTableSize, "gump: profile");
  // No handler uses the table while it is closed.
  std::fill(std::begin(samples.chains), std::end(samples.chains), nullptr);
  samples.memory = reinterpret_cast<uintptr_t>(memory);
  samples.next = samples.memory;
  samples.lost.store(0, relaxed);
  while (!tryLockTable()) osyield();
  samples.open = true;
  unlockTable();
  profileState = ProfileState::kOn;
  samplePeriod = 1'000'000'000 / hz;
  takeSigprof();
  // Acquire: pairs with mcommoninit.
  for (M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    // Both are written under this lock, or before minit takes it.
    if (mp->profileTimer.load(relaxed) != kNoProfileTimer) continue;
    startTimer(mp, mp->procid.load(relaxed));
  }
  startProcessTimer();
  return CpuProfileStart::kOk;
}

// signalsWait returns true if a signal of a timer that has been deleted may
// still wait for its thread. (Linux 6.13 and later drop the signals of a timer
// of timer_create, but not those of ITIMER_PROF.)
// On: any.  P: either.  Locks: none.  Parks: no.
bool signalsWait() {
  if (isPending(gettid(), SIGPROF) != Pending::kNo) return true;
  for (M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    const int32_t tid = mp->procid.load(relaxed);
    if (tid == 0 || isPending(tid, SIGPROF) == Pending::kNo) continue;
    // A thread that has ended meanwhile took its signals with it.
    if (mp->procid.load(relaxed) == tid) return true;
  }
  return false;
}

// awaitSignals waits until the last signals of our timers have come to our
// handler, so that none comes to the program's. It sleeps for 10 ms at most.
// Returns false if a signal may still wait then, because its thread has no
// processor or blocks it, or because /proc cannot be read.
// On: any.  P: either, but with m.locks == 0: a thread with such a signal may
// need the caller's P to get on.  Locks: none.  Parks: no.
bool awaitSignals() {
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; i++) {
    M* mp = acquirem();
    const bool wait = signalsWait();
    releasem(mp);
    if (!wait) return true;
    usleep(500);
  }
  return false;
}

// stopTimers begins the end of sampling. Returns false if there is no profile.
// On: any.  P: either, with m.locks > 0.  Locks: takes timersLock.  Parks: no.
bool stopTimers() {
  LockScope l(&timersLock);
  if (profileState != ProfileState::kOn) return false;
  profileState = ProfileState::kEnding;
  for (M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    stopTimer(mp);
  }
  stopProcessTimer();
  return true;
}

// stopSampling ends sampling. Returns false if there is no profile. Otherwise
// the table is the caller's. No other profile begins or ends meanwhile
// (kEnding).
// On: any.  P: either, with m.locks == 0.  Locks: takes timersLock.  Parks: no.
bool stopSampling() {
  M* mp = acquirem();
  const bool had = stopTimers();
  releasem(mp);
  if (!had) return false;
  const bool late = !awaitSignals();
  mp = acquirem();
  giveBackSigprof(late);
  while (!tryLockTable()) osyield();
  samples.open = false;
  unlockTable();
  releasem(mp);
  return true;
}

}  // namespace

void cpuProfileThreadStarts(M* mp) {
  if constexpr (kModelBuild) return;
  LockScope l(&timersLock);
  mp->profileTimer.store(kNoProfileTimer, relaxed);
  if (profileState != ProfileState::kOn) return;
  startTimer(mp, mp->procid.load(relaxed));
}

void cpuProfileThreadEnds(M* mp) {
  if constexpr (kModelBuild) return;
  LockScope l(&timersLock);
  stopTimer(mp);
  mp->profileTimer.store(kNoProfiledThread, relaxed);
}

bool cpuProfileSignal(const siginfo_t* info, const void* context) {
  const bool own =
      info->si_code == SI_TIMER && info->si_value.sival_ptr == &samples;
  // Relaxed: see startProcessTimer. A child of fork has the timer only if the
  // program has armed it.
  const bool shared = info->si_code == SI_KERNEL &&
                      processTimer.load(relaxed) && inOwnProcess();
  if (!own && !shared) return false;
  const G* gp = getg();  // (H3)
  const M* mp = gp == nullptr ? nullptr : gp->m;
  // Relaxed: a thread that is only now given a timer may be counted twice.
  if (!own && mp != nullptr && mp->profileTimer.load(relaxed) >= 0) return true;
  const Registers r = registersOf(context);
  uintptr_t pcs[kMostSampled];
  const uint32_t n = walkFrames(r, stackEnd(gp, mp, r.sp), pcs, kMostSampled);
  const LabelSet* labels = gp == nullptr ? nullptr : labelsOf(gp);
  // A kernel looks at such timers once a tick. If the period is shorter, or if
  // the signal was blocked, a signal stands for several periods.
  const int overrun = own ? std::max(info->si_overrun, 0) : 0;
  countSample(pcs, n, labels, 1 + overrun);
  traceCpuSample(gp, pcs, n);
  return true;
}

CpuProfileStart startCpuProfile(int hz) noexcept {
  (void)runtimeEntry();
  M* mp = acquirem();
  const CpuProfileStart result = startSampling(hz);
  releasem(mp);
  return result;
}

bool stopCpuProfile(StackVisitor visit, void* arg) noexcept {
  (void)runtimeEntry();
  if (!stopSampling()) return false;
  for (SampleBucket* chain : samples.chains) {
    for (const SampleBucket* b = chain; b != nullptr; b = b->next) {
      visit(arg, {b->pcs, b->n, b->labels, b->count});
      releaseLabels(b->labels);
    }
  }
  const auto lost = reinterpret_cast<uintptr_t>(&lostProfileEvent);
  if (const int64_t n = samples.lost.load(relaxed); n != 0) {
    visit(arg, {&lost, 1, nullptr, n});
  }
  sysFree(reinterpret_cast<void*>(samples.memory), kTableSize);
  M* mp = acquirem();
  {
    LockScope l(&timersLock);
    profileState = ProfileState::kOff;
  }
  releasem(mp);
  return true;
}

}  // namespace gump::rt
