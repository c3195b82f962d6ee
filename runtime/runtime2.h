// G, M, P and sched: the data of the scheduler, who owns each word, and the
// status machines.
//
// All of it is type-stable: Gs, Ms and Ps come from slabs, are recycled through
// free lists and never freed, so a stale pointer reads a wrong answer, not
// unmapped memory. Fields without a remark belong to the owner of the struct: a
// G's to the M that runs it (or, while it is queued or parked, to whoever takes
// it from there), an M's to its thread, a P's to the M that holds it.
#ifndef RUNTIME_RUNTIME2_H_
#define RUNTIME_RUNTIME2_H_

#include <signal.h>

#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname.h"
#include "runtime/atomic.h"
#include "runtime/base.h"
#include "runtime/gqueue.h"
#include "runtime/lock_futex.h"
#include "runtime/stack.h"
#include "runtime/time.h"
#include "runtime/waitreason.h"

namespace gump::rt {

struct G;
struct Ancestors;
struct Bubble;
struct M;
struct P;
struct Sudog;
struct Hchan;

// ---- Status of a G ----------------------------------------------------------
//
//  kGdead ─newproc─▶ kGrunnable ─── execute ───▶ kGrunning ─goexit0─▶ kGdead
//                     ▲  ▲  ▲                      │ │ │ ▲
//                     │  │  └── gosched, preempt ──┘ │ │ │ exitsyscall,
//                     │  │                           │ ▼ │ still has a P
//                     │  └── exitsyscall, no P left ─┼─kGsyscall
//                     └─ goready ── kGwaiting ◀─gopark
//                                         each arrow: one casgstatus()
//
// kGscan is a lock bit on kGwaiting and kGsyscall: while it is set, the status
// cannot be left, so its setter may walk the stack. A G in any other state is
// looked at only while the world is stopped. And the bit itself is set only
// then, or while `scanners` is raised; so who leaves kGwaiting or kGsyscall
// needs a CAS only then, or if he has no P (noScanner); every other transition,
// which only the G's one owner can make, is a checked store in any case.
enum GStatus : uint32_t {
  // In a fresh slab, never used. Owned by the allocator.
  kGidle = 0,
  // On exactly one run queue, which owns it; its context is saved, or it never
  // ran, or its thread has it (inPlace). Left by whoever takes it from there
  // (execute, letGo).
  kGrunnable = 1,
  // Owned by M gp->m, which has a P unless that was taken from outside
  // (preempt.cc); on no queue. Left by that M.
  kGrunning = 2,
  // Owned by M gp->m, which has no P of its own; on no queue. Left by that M.
  kGsyscall = 3,
  // Parked; recorded where it waits (wait queue, semaphore root, note). Left by
  // the one waker who took it from there (goready).
  kGwaiting = 4,
  // Exited or fresh; on a free list, or held by newproc or goexit0.
  kGdead = 6,
  kGscan = 0x1000,
};

// Status of a P
//
//   kPidle ──acquirep─▶ kPrunning ──releasep─▶ kPidle
//     │                   │   ▲
//     │       entersyscall│   │exitsyscall (CAS)
//     │                   ▼   │
//     │                 kPsyscall ──retake, forEachP (CAS)──▶ kPidle
//     │                   │
//     └───────────────────┴── stopTheWorld, gcstopm ──▶ kPgcstop
//   kPgcstop ──procresize──▶ kPidle, kPrunning, kPdead;  kPdead ─▶ kPgcstop
enum PStatus : uint32_t {
  // On sched.pidle with an empty ring, or in the hands of the one who moves it.
  kPidle = 0,
  // Held by M pp->m, which alone leaves the status, but for whoever presumes
  // that M blocked (A4 of preempt.cc).
  kPrunning = 1,
  // Nobody's, though an M remembers it in oldp: whoever wins the CAS owns it.
  kPsyscall = 2,
  // Owned by the one who stops the world.
  kPgcstop = 3,
  // Beyond GOMAXPROCS; only procresize touches it.
  kPdead = 4,
};

// Gobuf is a saved context: only the stack pointer, everything else lies on the
// stack below it (asm_*.S draws the frame). Not saved: the signal mask (it is
// the thread's), and caller-saved registers (mcall is a call). errno and the
// exception globals are copied by gumpOnG0 and switchTo (proc_park.cc), not by
// assembly.
struct Gobuf {
  uintptr_t sp = 0;
  // 1: never ran, start at gumpGostart with sp = top of the stack; 0: resume
  // the frame at sp.
  uintptr_t fresh = 0;
};

// What the C++ ABI keeps per thread about exceptions in flight
// (__cxa_eh_globals). It travels with the goroutine.
struct EhGlobals {
  void* caughtExceptions = nullptr;
  unsigned int uncaughtExceptions = 0;
};

// G is a goroutine. At most 256 bytes, because a program may queue millions
// that have not begun; the closure that go() was given lives inside it. A G
// without a stack (stack.lo == 0) has not begun or has ended.
struct alignas(kCacheLine) G {
  Gobuf sched;     // valid unless running
  M* m = nullptr;  // the M that runs it; nullptr unless running or in a syscall
                   // (or foreign)
  Stack stack;     // bound by execute, returned by goexit0
  Atomic<uint32_t> atomicstatus;  // casgstatus only
  Atomic<uint32_t> selectDone;  // 0→1 by the waker that wins a select; reset by
                                // the owner when it is in no queue any more
  uint64_t goid = 0;
  G* schedlink = nullptr;   // next in a GQueue, GList or free list
  void* param = nullptr;    // set by the waker before goready: the Sudog that
                            // fired; its `success` tells a value from close
  EhGlobals eh;             // while not running
  int savedErrno = 0;       // while not running
  WaitReason waitreason{};  // last reason for parking; read by dumps
  Atomic<bool> preempt;     // somebody wants this G to yield at its next entry
                            // into the runtime
  bool foreign = false;  // pseudo-G of a thread that is not ours: parks on its
                         // M's note, is never queued
  bool systemG = false;  // not counted by NumGoroutine, not shown by default
  bool isMain = false;   // the goroutine of Run
  // And its function has returned, rather than called Goexit.
  bool mainReturned = false;
  bool goexited = false;   // it called Goexit
  bool unguarded = false;  // its stack has a canary in place of a guard page
  // Preempted in place: only its thread resumes it; sched is good for dumps,
  // (P4) of preempt.cc.
  bool inPlace = false;
  // It waits while on a stack of the program's (a coroutine's), not on its own:
  // preempted in place, or for a P (awaitP). Nobody walks what lies above.
  bool onOtherStack = false;
  // It has given its P back for a stop (putBackInStop), and not run since.
  // Written under sched.lock while queued, else by the M that holds the G.
  bool putBack = false;
  // foreign, or in a bubble: parks, and is readied, the long way.
  bool special = false;
  uint32_t nestedSyscalls = 0;  // declared inside a declared one; its own
  // Odd: preempted in place since it last entered the runtime by itself, and
  // may be in the middle of anything. The first entry after that, or after its
  // P was taken from outside, counts it up to the next even number.
  Atomic<uint32_t> interrupted;

  // -- what was started, and by whom
  // How to run and destroy the closure; nullptr once destroyed.
  const FuncType* fn = nullptr;
  uintptr_t gopc = 0;  // return address of the go() that made it
  uint64_t parentGoid = 0;
  // The M it is bound to: LockOSThread, main until it begins, preempted in
  // place, waiting on a stack of the program's (awaitP).
  M* lockedm = nullptr;
  void* gls = nullptr;         // head of the goroutine-local values
  const char* name = nullptr;  // GoOptions::name, malloc'ed by go(), freed by
                               // the goroutine itself; or nullptr
  // nanotime when a dump first saw it waiting; 0: not seen.
  int64_t waitsince = 0;
  uint32_t stacksize = 0;  // GoOptions::stack_size in KiB; 0: default
  // Of fuzzsched.h: the M that ran this cell last, by fuzzMName; 0: none has.
  // By who makes it current.
  uint32_t fuzzM = 0;
  Bubble* bubble = nullptr;  // of synctest, inherited; (B1) of synctest.h
  // Under tracebackancestors; the cell's for good.
  Ancestors* ancestors = nullptr;

  // Initialised only so that m0 is a constant: static constructors of the
  // program may use the runtime before ours would run.
  alignas(16) unsigned char closure[kClosureSize] = {};
};
static_assert(
    sizeof(G) <= 256,
    "a goroutine that has not begun costs one slab cell of 256 bytes");

// Bits of M::presumed; the protocol is in preempt.cc.
enum Presumed : uint32_t {
  kPresumedNot = 0,
  kPresumedAsked = 1,  // somebody finds out whether the thread is blocked
  kPresumedTaken = 2,  // it was, and its P is gone; with a generation (P6)
  // Its goroutine was preempted in place since it last entered the runtime.
  kPresumedMarked = 4,
  kPresumedForked = 8,  // this is a child of fork (fork.cc); for good
};
// The generation of kPresumedTaken is above them; each question uses one up.
inline constexpr int kPresumedGenShift = 4;

// M is a thread. g0 is its scheduler stack: the thread's own.
struct M {
  G g0;
  // Floating-point control words as the last goroutine left them (asm_*.S).
  uint32_t mxcsr = 0;
  uint32_t x87cw = 0;
  // The four words that a switch reads.
  Atomic<G*> curg;  // the user G this thread is running; by the owner, release
  P* p = nullptr;   // the P it holds
  EhGlobals* eh = nullptr;   // this thread's exception globals; the address is
                             // taken once, on the thread itself
  int* errnoAddr = nullptr;  // likewise

  Atomic<int32_t> locks;  // >0: in the runtime or holding a Mutex: not to be
                          // preempted. Written by the owner.
  Atomic<uint32_t> presumed;  // Presumed; by CAS
  uint32_t presumedGen = 0;   // the last one (P6); by the asker (P5)
  // When the SIGURG of ours that is on its way was sent, nanotime; 0: none is.
  Atomic<int64_t> signalSent;
  // When a presser first saw the thread run since it last slept, its CPU time
  // then, and how often it had slept by then; ns. By whoever presses, relaxed:
  // published by pressSleeps, release, and read with it in computes. A time of
  // 0, by minit: not seen yet.
  Atomic<int64_t> pressTime;
  Atomic<int64_t> pressCpu;
  Atomic<uint64_t> pressSleeps;
  // How often it had slept when it last went on after being preempted in place:
  // if it has not slept since, it is in no call in which it slept. By the
  // thread, relaxed: a hint, which costs or saves a look.
  Atomic<uint64_t> resumedSleeps;
  // As pressTime and pressCpu, where /proc cannot be read: the last look, and
  // the CPU time then; ns. By whoever presses, relaxed.
  Atomic<int64_t> clockTime;
  Atomic<int64_t> clockCpu;
  // Out of work and looking; counted in sched.nmspinning.
  bool spinning = false;
  // The goroutine that parks has added the earliest timer of the P: whoever
  // finds work here instead of idling must tell others (wakeNetPoller).
  bool timerAdded = false;
  // Asleep on a note, on a lock's futex, in the poller or in the ring. Written
  // by its own thread, relaxed; read by dumps and by sysmon's Watchdog, as a
  // hint.
  Atomic<bool> blocked;
  // Of a plain thread: it is past the commit in parkForeign, and not awake
  // again (F3, F4 of findDeadAfterMain). By the thread.
  Atomic<bool> asleep;
  bool retired = false;  // its thread is to end; by whoever wakes it for that
  // This struct served an earlier thread and is on allm already.
  bool recycled = false;
  bool preciseSleeps = false;  // done, by this thread
  uint32_t schedrand = 0;      // state of cheaprand
  int64_t id = -1;
  Atomic<int32_t> procid;        // kernel thread id; 0 before it runs
  P* nextp = nullptr;            // handed over by whoever wakes it
  bool unborn = false;           // nextp may be taken back; under sched.lock
  P* oldp = nullptr;             // held before a syscall
  void (*mstartfn)() = nullptr;  // runs before the first schedule
  Note park;
  M* schedlink = nullptr;  // in sched.midle or the newm hand-off
  // allm; set once by mcommoninit, the list only grows at its head.
  M* alllink = nullptr;
  G* lockedg = nullptr;
  uint32_t lockedExt = 0;  // LockOSThread count

  // gopark's parameters for park_m, which runs after the switch
  bool (*waitunlockf)(G*, void*) = nullptr;
  void* waitlock = nullptr;

  sigset_t sigmask = {};        // what its thread begins with; by newosproc
  uintptr_t signalStackLo = 0;  // sigaltstack mapping
  size_t signalStackSize = 0;
  void* tsanFiber = nullptr;  // of g0
  // Bounds of the thread's stack, for the sanitizers.
  uintptr_t g0lo = 0, g0hi = 0;
  void* asanFakeStack = nullptr;  // of g0
  // lockrank.cc: channel locks held; they share one entry below.
  uint32_t nhchansheld = 0;
  uint8_t nlocksheld = 0;  // lock ranks held, for lockrank.cc
  uint8_t ranksheld[15] = {};
  const void* locksheld[15] = {};
  int32_t throwing = 0;  // 1 fatal, 2 throw
  int32_t dying = 0;
};

inline constexpr int64_t kForcePreemptNS = 10'000'000;  // a slice
inline constexpr uint32_t kRunqSize = kModelBuild ? 4 : 256;
// per-P free Gs before half go to the global list.
inline constexpr uint32_t kGFreeMax = 64;
inline constexpr uint32_t kStackCacheMax = 64;  // per-P free stacks, likewise
inline constexpr uint32_t kGoidBatch = 16;

// P is the right to run goroutines. GOMAXPROCS of them are not dead.
struct alignas(kFalseSharing) P {
  int32_t id = 0;
  // PStatus; pcasstatus and the owner's setPStatus only.
  Atomic<uint32_t> status;
  P* link = nullptr;             // sched.pidle
  Atomic<uint32_t> schedtick;    // +1 per execute that does not inherit its
                                 // slice; read by sysmon and traces
  Atomic<uint32_t> syscalltick;  // +1 per return from a syscall and per theft
  Atomic<M*> m;          // back link; nullptr when idle; by the holder, release
  Atomic<bool> preempt;  // whatever runs here should yield
  // forEachP: 1 asks the holder to run sched.safePointFn.
  Atomic<uint32_t> runSafePointFn;
  uint32_t fuzz = 0;     // state of fuzzsched.h; 0: off
  uint32_t takenAs = 0;  // M::presumed when it was taken (P6); by who took it

  // The ring. Free-running indices, slot = i % kRunqSize. Only the owner writes
  // runqtail (store-release publishes the slots below it); owner and thieves
  // advance runqhead by cas-release after reading the slots they take.
  alignas(kFalseSharing) Atomic<uint32_t> runqhead;
  alignas(kFalseSharing) Atomic<uint32_t> runqtail;
  // runnext, if set, is a G that the running G readied and that inherits its
  // slice. Only the owner makes it non-null; owner and thieves may clear it.
  Atomic<G*> runnext;
  Atomic<G*> runq[kRunqSize];

  // The front part of the global queue, mostly all of it, while this is the
  // only P: nobody else can take from it, and here the owner needs no lock.
  // Empty whenever the P is not held by a running M (flushYielded).
  GQueue yielded;
  Atomic<int32_t> nyielded;  // its length, for others; written by the owner
  bool globalTurn = false;   // the global queue was passed over, see findWithP

  GList gFree;  // dead Gs
  uint32_t gFreeN = 0;
  uint32_t stackCacheN = 0;
  // Free default-sized stacks, last in first out.
  StackTop* stackCache = nullptr;
  uint64_t goidcache = 0, goidcacheend = 0;

  Timers timers;
  TimerCells funcCells, chanCells;  // of AfterFunc, and of channels of time

  struct SysmonTick {  // sysmon's private copy
    uint32_t schedtick = 0, syscalltick = 0;
    int64_t schedwhen = 0, syscallwhen = 0;
    int64_t presswhen = 0, pressdelay = 0;  // next pressP in this slice
    int64_t lookwhen = 0, lookdelay = 0;    // next look whether it sleeps
    // CPU time, ns, of thread cpuTid at the first look at it in this slice; 0:
    // there was none.
    int32_t cpuTid = 0;
    int64_t cpu = 0;
  } sysmontick;
};

// PMask is a bitmap with a bit per P, read without a lock.
class PMask {
 public:
  bool read(uint32_t id) const {
    // Pairs with set/clear: a hint, rechecked.
    return (words_[id / 32].load(acquire) & (1u << (id % 32))) != 0;
  }
  void set(uint32_t id) { words_[id / 32].or_(1u << (id % 32), acq_rel); }
  void clear(uint32_t id) { words_[id / 32].and_(~(1u << (id % 32)), acq_rel); }

 private:
  Atomic<uint32_t> words_[1024 / 32];
};
inline constexpr int32_t kMaxGomaxprocs = 1024;

// Schedt is what all Ms share. `lock` guards every field that is not atomic.
struct Schedt {
  Atomic<uint64_t> goidgen;
  alignas(kFalseSharing)
      Atomic<int64_t> lastpoll;  // time of the last poll; 0: an M is blocked in
                                 // the poller now
  // Until when that M sleeps there, nanotime; 0: for ever, or nobody does.
  Atomic<int64_t> pollUntil;
  Atomic<int32_t> pollingNet;  // a non-blocking poll is in progress

  // Forbidden while holding it: malloc, parking, taking a lock of lower rank
  // (see lockrank.h).
  alignas(kFalseSharing) Mutex lock{LockRank::kSched};

  M* midle ABSL_GUARDED_BY(lock) = nullptr;  // parked Ms, last in first out
  int32_t nmidle ABSL_GUARDED_BY(lock) = 0;
  int32_t nmidleLow ABSL_GUARDED_BY(lock) = 0;  // least since trimIdleMs
  // Ms parked until their locked G runs.
  int32_t nmidlelocked ABSL_GUARDED_BY(lock) = 0;
  int64_t mnext ABSL_GUARDED_BY(lock) = 0;  // Ms made so far = the next id
  int64_t nmfreed ABSL_GUARDED_BY(lock) = 0;
  int32_t maxmcount ABSL_GUARDED_BY(lock) = 10000;
  // An M that is to start without a P has been ordered.
  bool spareOrdered ABSL_GUARDED_BY(lock) = false;
  // sysmon, the template thread and the ring's (becomeSystemThread).
  int32_t nmsys ABSL_GUARDED_BY(lock) = 0;
  // Ms ever made for foreign threads; in mnext, but not ours.
  int64_t nmextraAll ABSL_GUARDED_BY(lock) = 0;
  // Ms lent to foreign threads that may come back; they suppress checkdead.
  int32_t nmextra ABSL_GUARDED_BY(lock) = 0;

  P* pidle ABSL_GUARDED_BY(lock) = nullptr;       // last in first out
  alignas(kFalseSharing) Atomic<int32_t> npidle;  // written under lock
  // Ms that look for work; see the essay in proc.cc.
  Atomic<int32_t> nmspinning;
  // An M that is about to give its P up should look first.
  Atomic<uint32_t> needspinning;

  alignas(kFalseSharing) GQueue runq ABSL_GUARDED_BY(lock);  // the global queue
  Atomic<int32_t> runqsize;  // copy of runq's length for unlocked emptiness
                             // tests; written under lock
  // Gs that could not begin for want of a stack; see proc_new.cc.
  GQueue nostack ABSL_GUARDED_BY(lock);
  Atomic<int32_t> nnostack;

  // Stop-the-world (proc_stw.cc)
  Atomic<bool> gcwaiting;
  int32_t stopwait ABSL_GUARDED_BY(lock) = 0;
  Note stopnote;
  Atomic<bool> sysmonwait;   // written under lock
  Atomic<bool> deadSuspect;  // checkdead awaits threads it does not know;
                             // written under lock
  // When sysmon ends its nap, nanotime; 0: it is awake, or sleeps deeply.
  Atomic<int64_t> sysmonLook;
  Atomic<uint32_t> sysmonHurry;  // 1: end it now; the futex word
  // When sysmon's deep sleep ends by itself, nanotime.
  int64_t sysmonUntil ABSL_GUARDED_BY(lock) = 0;
  Note sysmonnote;
  void (*safePointFn)(P*) = nullptr;
  int32_t safePointWait ABSL_GUARDED_BY(lock) = 0;
  Note safePointNote;

  // Start and end of main (rt0.cc)
  // Run has returned: nothing is scheduled until the next Run. Written under
  // `lock`, by endMain seq_cst, by Run release. Read seq_cst by semrelease and
  // parkForeign, by the schedulers acquire.
  Atomic<bool> mainEnded;
  bool m0attached ABSL_GUARDED_BY(lock) = false;  // a thread is inside Run
  bool foundDead ABSL_GUARDED_BY(lock) = false;   // somebody reports it

  Atomic<int32_t> ngsys;       // system Gs
  Atomic<int32_t> nmstarting;  // Ms whose thread has yet to begin
  // The kernel refused the last thread that was asked for. Written by who makes
  // them; a hint.
  Atomic<bool> threadsShort;
  Atomic<int32_t> ninplace;   // Gs that are preempted in place
  Atomic<int32_t> npresumed;  // Ms with presumed == kPresumedTaken

  alignas(kFalseSharing) Mutex gFreeLock{LockRank::kGFree};
  GList gFree ABSL_GUARDED_BY(gFreeLock);
  Atomic<int32_t> gFreeN;

  bool customGOMAXPROCS ABSL_GUARDED_BY(lock) = false;
};

extern Schedt sched;
// Written by procresize, with the world stopped; entries are never unset.
extern P* allp[kMaxGomaxprocs];
extern Atomic<int32_t> gomaxprocs;  // written with the world stopped
extern int32_t ncpu;                // at start-up, constant
extern PMask idlepMask;             // bit set: that P is idle, nothing to steal
extern PMask timerpMask;            // bit clear: that P has no timers
extern Atomic<M*> allm;             // push only
extern M m0;

// Sudog is a G in a wait queue: of a channel, or of a semaphore. One G may be
// on several queues (select) and several Gs on one. It lies on the waiting
// goroutine's own stack (unlike Go, stacks do not move): whoever wakes the G
// must not touch it after goready.
struct Sudog {
  G* g = nullptr;
  Sudog* next = nullptr;  // wait queue of the channel; treap: right; `handed`
  Sudog* prev = nullptr;  // treap: left; `handed`
  // Channel: where the value is or goes; semaphore: the address waited on, also
  // in `handed`, and nullptr once it is on neither list.
  void* elem = nullptr;
  bool isSelect = false;  // must win g->selectDone to be woken
  bool success = false;  // woken by a value, not by close. Written by the waker
                         // before goready.
  uint16_t waiters = 0;  // semaphore: length of the waitlink list, saturating
  uint32_t ticket = 0;   // semaphore: heap key, then 1 if ownership was handed
                         // over; notifyList: ticket
  Sudog* parent = nullptr;  // treap
  // Select: next case; semaphore: next waiter of the address.
  Sudog* waitlink = nullptr;
  Sudog* waittail = nullptr;  // semaphore: last waiter of the address
  Hchan* c = nullptr;
};

}  // namespace gump::rt

#include "runtime/tls.h"

namespace gump::rt {

inline void GQueue::push(G* gp) {
  gp->schedlink = head;
  head = gp;
  if (tail == nullptr) tail = gp;
  size++;
}
inline void GQueue::pushBack(G* gp) {
  gp->schedlink = nullptr;
  if (tail != nullptr) {
    tail->schedlink = gp;
  } else {
    head = gp;
  }
  tail = gp;
  size++;
}
inline void GQueue::pushBackAll(GQueue* q) {
  if (q->head == nullptr) return;
  if (tail != nullptr) {
    tail->schedlink = q->head;
  } else {
    head = q->head;
  }
  tail = q->tail;
  size += q->size;
  *q = GQueue();
}
inline G* GQueue::pop() {
  G* gp = head;
  if (gp == nullptr) return nullptr;
  head = gp->schedlink;
  if (head == nullptr) tail = nullptr;
  size--;
  return gp;
}
inline void GList::push(G* gp) {
  gp->schedlink = head;
  head = gp;
}
inline void GList::pushAll(GQueue* q) {
  if (q->head == nullptr) return;
  q->tail->schedlink = head;
  head = q->head;
  *q = GQueue();
}
inline G* GList::pop() {
  G* gp = head;
  if (gp != nullptr) head = gp->schedlink;
  return gp;
}

// reenter is acquirem's answer when somebody has taken, or is about to take,
// the P of an M that seemed to be blocked (preempt.cc): it may park the
// goroutine until there is a P, and returns the M that it is on then.
// On: user; m.locks is 1.  P: maybe lost.  Locks: takes sched.lock.
// Parks: yes.
M* reenter(M* mp);
// reenterAsIs is its first half. True: mp has lost its P. What others wait for
// can be done that needs no P; then comes stayLost, which leaves it to the next
// entry to get another. That may take until the next Run, if main has ended.
// On: user; m.locks is 1.  P: maybe lost.  Locks: none.  Parks: no.
[[nodiscard]] bool reenterAsIs(M* mp);
void stayLost(M* mp);

// acquirem and releasem bracket code that must keep its M and P: while m.locks
// > 0 the G is not preempted. The outermost acquirem is where a goroutine
// enters the runtime; what it returns is the M it is on from then.
// On: any.  P: either.  Locks: none.  Parks: the outermost acquirem may
// (reenter), the others and releasem do not.
GUMP_ALWAYS_INLINE M* acquirem(M* mp) {
  // Owner only; others read it after a membarrier. B1 to B3 of preempt.cc,
  // whose B2 is the light side of a membarrier.
  mp->locks.store(mp->locks.load(relaxed) + 1, relaxed);
  compilerFence();
  if (GUMP_UNLIKELY(mp->presumed.load(relaxed) != kPresumedNot)) {
    return reenter(mp);
  }
  return mp;
}
GUMP_ALWAYS_INLINE M* acquirem() { return acquirem(getg()->m); }
// acquiremAsIs is acquirem without a P, if mp has lost that: if this is true,
// the caller has to call stayLost before releasem.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] GUMP_ALWAYS_INLINE bool acquiremAsIs(M* mp) {
  mp->locks.store(mp->locks.load(relaxed) + 1, relaxed);  // as in acquirem
  compilerFence();
  return GUMP_UNLIKELY(mp->presumed.load(relaxed) != kPresumedNot) &&
         reenterAsIs(mp);
}
GUMP_ALWAYS_INLINE void releasem(M* mp) {
  // Pairs with A3 of preempt.cc: who takes our P sees what we did with it.
  mp->locks.store(mp->locks.load(relaxed) - 1, release);
}

// LockScope holds a Mutex for a scope, and m.locks with it: who holds a lock is
// neither preempted nor taken off its P.
class ABSL_SCOPED_LOCKABLE LockScope {
 public:
  explicit LockScope(Mutex* l) ABSL_EXCLUSIVE_LOCK_FUNCTION(l)
      : l_(l), mp_(getg() == nullptr ? nullptr : acquirem()) {
    lock(l);
  }
  ~LockScope() ABSL_UNLOCK_FUNCTION() {
    unlock(l_);
    if (mp_ != nullptr) releasem(mp_);
  }
  LockScope(const LockScope&) = delete;
  LockScope& operator=(const LockScope&) = delete;

 private:
  Mutex* const l_;
  M* const mp_;
};

// cheaprand returns 32 random bits: xorshift, one state per M. Not for secrets.
inline uint32_t cheaprand(M* mp) {
  uint32_t x = mp->schedrand;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  mp->schedrand = x;
  return x;
}
// cheaprandn returns a number in [0, n) (Lemire's multiplication; the bias is
// below 2^-22 for the n we use).
inline uint32_t cheaprandn(M* mp, uint32_t n) {
  return static_cast<uint32_t>((uint64_t{cheaprand(mp)} * n) >> 32);
}

}  // namespace gump::rt

#endif  // RUNTIME_RUNTIME2_H_
