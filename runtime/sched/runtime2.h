// M, P and sched: the data of the scheduler, the owner of each word, and the
// status machine of a P. G is in g.h.
//
// All of it is type-stable. Ms and Ps are recycled and never freed, so a stale
// pointer reads a wrong answer, not unmapped memory. A field without a remark
// belongs to the owner of its struct: an M's to its thread, a P's to the M that
// holds it.
#ifndef RUNTIME_SCHED_RUNTIME2_H_
#define RUNTIME_SCHED_RUNTIME2_H_

#include <signal.h>

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/g.h"
#include "runtime/sched/globq.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/time.h"
#include "runtime/sched/timehist.h"
#include "runtime/sched/tracemark.h"
#include "runtime/sched/tracking.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/topology_linux.h"

namespace gump::rt {

struct Group;
struct P;
struct Hchan;
struct Home;
struct ThreadBinding;

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
  // On an idle list with an empty ring, or held by the thread that moves it.
  kPidle = 0,
  // Held by M pp->m. Only that M changes this status, except that an asker
  // which presumes the M blocked may do so too (A4 of preempt_blocked.cc).
  kPrunning = 1,
  // Owned by no thread, though an M remembers it in oldp. The thread that wins
  // the CAS owns it.
  kPsyscall = 2,
  // Owned by the thread that stops the world.
  kPgcstop = 3,
  // Beyond GOMAXPROCS; only procresize touches it.
  kPdead = 4,
};

// Bits of M::presumed; the protocol is in preempt_blocked.cc.
enum Presumed : uint32_t {
  kPresumedNot = 0,
  kPresumedAsked = 1,  // an asker finds out whether the thread is blocked
  // The M has lost its P (presumeBlocked, markPLost). presumeBlocked adds a
  // generation (P6).
  kPresumedTaken = 2,
  // Since the goroutine last entered the runtime, it was preempted in place, or
  // its P was taken and given back.
  kPresumedMarked = 4,
  kPresumedForked = 8,  // this is a child of fork (fork.cc); never cleared
  kPresumedHook = 16,   // this thread is in a hook of the program's
                        // (threadhooks.cc); written by the thread
  kPresumedGiven = 32,  // its P was taken and given back, for the trace
};
// The generation of kPresumedTaken is stored above these bits. Each question
// uses one up.
inline constexpr int kPresumedGenShift = 6;

// Values of M::profileTimer: between minit and unminit the M has no timer;
// there is no thread that could have one.
inline constexpr int32_t kNoProfileTimer = -1;
inline constexpr int32_t kNoProfiledThread = -2;

// M is a thread. g0 is its scheduler stack, which is the thread's own stack.
struct M {
  G g0;
  // Floating-point control words as the last goroutine left them (asm_*.S).
  uint32_t mxcsr = 0;
  uint32_t x87cw = 0;
  // The four words that a switch reads: curg, p, eh, errnoAddr.
  Atomic<G*> curg;  // the user G that this thread runs; the owner stores a G
                    // with release
  P* p = nullptr;   // the P it holds
  EhGlobals* eh = nullptr;   // this thread's exception globals; the address is
                             // taken once, on the thread itself
  int* errnoAddr = nullptr;  // the address of errno, taken in the same way

  Atomic<int32_t> locks;  // >0: in the runtime or holding a Mutex, so it must
                          // not be preempted. Written by the owner.
  Atomic<uint32_t> presumed;  // bits of Presumed; askers change them by CAS
  uint32_t presumedGen = 0;   // the last generation (P6); used by askers (P5)
  // When the SIGURG that is on its way was sent (nanotime); 0: none is on its
  // way.
  Atomic<int64_t> signalSent;
  // A look at the thread that found it running: the first such look since the
  // thread last slept. The three words below are the time of the look, the
  // thread's CPU time then, and how often the thread had slept by then. Times
  // are in ns. The function `computes` writes all three, relaxed, except that
  // it stores forcePreemptSleeps with release, to publish the other two. minit
  // sets the time to 0, which means that there was no look yet.
  Atomic<int64_t> forcePreemptTime;
  Atomic<int64_t> forcePreemptCpu;
  Atomic<uint64_t> forcePreemptSleeps;
  // How often the thread had slept when it last went on after it was preempted
  // in place. If that is still its number of sleeps, it last slept in our
  // handler, and not in a call. Then a signal cuts no sleep short. The thread
  // writes it, relaxed. It is a hint that saves looks.
  Atomic<uint64_t> resumedSleeps;
  // The last look at the thread's CPU clock: its time, and the clock then, in
  // ns. lookAtClock writes both, relaxed. minit sets the time to 0.
  Atomic<int64_t> clockTime;
  Atomic<int64_t> clockCpu;
  // Out of work and searching; counted in sched.nmspinning.
  bool spinning = false;
  // A thread without a P woke this M to spin. resetspinning reads and clears
  // it.
  bool wokenByThread = false;
  // The node that counts this M in SchedNode::nmspinning; -1: none does.
  int8_t spinningNode = -1;
  // Index in topology.nodes: the node of the last P that this M held. Written
  // only if there have been several nodes (placeThread).
  int8_t node = 0;
  // The goroutine that parks has added the earliest timer of the P. If this M
  // finds work instead of going idle, it must tell other Ms (wakeNetPoller).
  bool timerAdded = false;
  // Asleep on a note, on a lock's futex, in the poller or in the ring. Written
  // by its own thread, relaxed. Dumps and sysmon's Watchdog read it as a hint.
  Atomic<bool> blocked;
  // Of a foreign thread: it is past the commit in parkForeign, and has not
  // woken up again (F3, F4 of findDeadAfterMain). Written by the thread.
  Atomic<bool> asleep;
  bool retired = false;  // its thread must end; set by the waker that ends it
  // This struct served an earlier thread and is on allm already.
  bool recycled = false;
  bool preciseSleeps = false;  // this thread has called preciseSleeps
  long timerSlack = 0;         // the thread's slack before that, in ns
  // Children that threads of this M have made and that have not ended
  // (child.cc). While it is above 0, the thread does not end for being idle.
  Atomic<int32_t> children;
  uint32_t schedrand = 0;  // state of cheaprand
  int64_t id = -1;
  Atomic<int32_t> procid;  // kernel thread id; 0: there is no thread
  P* nextp = nullptr;      // handed over by the waker
  bool starting = false;   // nextp may be taken back; under sched.lock
  // While `starting`: since when (nanotime), and whether sysmon has given up
  // waiting for it (takeStartingP). Under sched.lock.
  int64_t startingSince = 0;
  bool startsLate = false;
  P* oldp = nullptr;  // held before a syscall
  // When the declared call began (entersyscallLong); 0 unless that is expected
  // to be long. Only the thread itself uses this.
  int64_t callBegan = 0;
  // To what the thread is bound (affinity.cc), or would be if the program had
  // not set the thread's mask itself; 0: to nothing. Written by the thread,
  // relaxed. sysmon reads it as a hint.
  Atomic<uint32_t> binding;
  // The mask of the thread is one that the runtime has set. Written and read as
  // `binding`.
  Atomic<bool> bound;
  ThreadBinding* masks = nullptr;  // made when the M is first bound
  void (*mstartfn)() = nullptr;    // runs before the first schedule
  // The name of a thread of the runtime's own, which runs no goroutines. All
  // other threads are named by their id.
  const char* systemName = nullptr;
  Note park;
  M* schedlink = nullptr;  // in SchedNode::midle, newmHandoff or freem
  M* schedprev = nullptr;  // in SchedNode::midle: the M before this one
  bool idle = false;       // on such a list; guarded by sched.lock
  int8_t idleNode = 0;     // the index of the SchedNode of that list
  // allm; set once by mcommoninit, the list only grows at its head.
  M* alllink = nullptr;
  // The group of the goroutine that is about to leave this M, while directNext
  // looks for the next one (groupNext); else nullptr. handingYields tells
  // whether the one that leaves stays runnable.
  Group* handing = nullptr;
  bool handingYields = false;
  // The goroutine that is locked to this thread. Of a home: its token, or its
  // exclusive goroutine (T4 of home.cc).
  G* lockedg = nullptr;
  // LockOSThread count. Of a home at least 1, so that goexit0 comes to mexit.
  uint32_t lockedExt = 0;
  // The home whose thread this is (home.cc), or nullptr. Constant while the
  // thread runs goroutines.
  Home* home = nullptr;
  // The home that this M has woken since it last came to the poller, or
  // nullptr.
  Home* wokenHome = nullptr;
  // lockedg was kept over a stop of the world and goes on with its slice. Set
  // under sched.lock by the thread that hands over the P.
  bool keepsSlice = false;

  // gopark's parameters for park_m, which runs after the switch.
  bool (*waitunlockf)(G*, void*) = nullptr;
  void* waitlock = nullptr;

  sigset_t sigmask = {};        // the thread begins with it; set by newosproc
  uintptr_t signalStackLo = 0;  // sigaltstack mapping
  size_t signalStackSize = 0;
  // The timer of the CPU profile (cpuprof.cc): the kernel's number, or one of
  // the values above. Written under a lock there.
  Atomic<int32_t> profileTimer{kNoProfiledThread};
  void* tsanFiber = nullptr;  // of g0
  // Bounds of the thread's stack, for the sanitizers.
  uintptr_t g0lo = 0, g0hi = 0;
  void* asanFakeStack = nullptr;  // of g0
  // For lockrank.cc: channel locks held. They share one entry of ranksheld.
  uint32_t nhchansheld = 0;
  uint8_t nlocksheld = 0;  // lock ranks held, for lockrank.cc
  uint8_t ranksheld[15] = {};
  const void* locksheld[15] = {};
  bool diesInHook = false;  // a hook of the program's ends the process
  // Of a foreign thread: free cells for the goroutines that it starts, at most
  // a batch. Of any M: the numbers that it may yet give to goroutines that it
  // starts without a P. Only the thread writes these; gcount reads gFreeN.
  GList gFree;
  uint32_t gFreeN = 0;
  uint32_t goidsLeft = 0;
  uint64_t goidNext = 0;
  TraceM trace;
  int32_t throwing = 0;  // 1 fatal, 2 throw
  int32_t dying = 0;
};

inline constexpr int64_t kForcePreemptNS = 10'000'000;  // a time slice
// The cells of a batch, which a P gives to a pool or takes from it as a whole
// (GPool). A P has at most one batch and one less than another one.
inline constexpr uint32_t kCellBatch = 32;
inline constexpr uint32_t kStackCacheMax = 64;  // the same for free stacks
inline constexpr uint32_t kGoidBatch = 16;

// Bits of P::records.
enum Records : uint8_t {
  kRecordThread = 1,  // fuzzsched.h: the thread
  kRecordNode = 2,    // proc_node.cc: the node
  // goroutine_profile.cc: nothing is recorded, but no goroutine switches
  // straight to the next one.
  kRecordProfile = 4,
};

// NodeCounts are figures for humans. The owner of the P counts, and only while
// there are several nodes. Others read, relaxed.
struct NodeCounts {
  Atomic<uint64_t> runs;    // goroutines that became current again
  Atomic<uint64_t> moves;   // of these, how many ran on another node before
  Atomic<uint64_t> steals;  // successful ones
  Atomic<uint64_t> stealsAcross;  // of these, how many from another node
};

// P is the right to run goroutines. GOMAXPROCS of them are not kPdead.
struct alignas(kFalseSharing) P {
  int32_t id = 0;
  // A PStatus. Changed only by pcasstatus, by the owner's setPStatus, and by
  // entersyscall.
  Atomic<uint32_t> status;
  // To what it binds the threads that hold it (affinity.cc); 0: to nothing.
  // Written with the world stopped, relaxed. sysmon reads it as a hint.
  Atomic<uint32_t> binding;
  P* link = nullptr;             // SchedNode::pidle
  Atomic<uint32_t> schedtick;    // +1 per slice that begins (beginSlice); read
                                 // by sysmon and traces
  Atomic<uint32_t> syscalltick;  // +1 per return from a syscall and per retake
  // The M that holds this P, stored with release; nullptr when idle.
  Atomic<M*> m;
  Atomic<bool> preempt;  // a request: the G that runs here should yield
  // 1: forEachP asks the holder to run sched.safePointFn.
  Atomic<uint32_t> runSafePointFn;
  uint32_t fuzz = 0;  // state of fuzzsched.h; 0: off
  // Bits of Records: what must be recorded of each goroutine that becomes
  // current here. Written with the world stopped, or at a safe point.
  Atomic<uint8_t> records;
  // The index of its node in sched.nodes. Written with the world stopped, but
  // Ms without a P read it, relaxed.
  Atomic<uint8_t> node;
  uint32_t takenAs = 0;  // the M::presumed with which it was last taken (P6)
  // The M that gave this P up last. It may run another P by now, or its thread
  // may have ended. Written by the owner.
  M* oldm = nullptr;
  // When a goroutine was first kept here over a stop of the world in the slice
  // keptTick: see keepsNext.
  int64_t keptSince = 0;
  uint32_t keptTick = 0;

  // The ring. The indices run freely; slot = i % kRunqSize. Only the owner
  // writes runqtail, and its store-release publishes the slots below. The owner
  // and thieves advance runqhead by cas-release after they have read the slots
  // they take.
  alignas(kFalseSharing) Atomic<uint32_t> runqhead;
  alignas(kFalseSharing) Atomic<uint32_t> runqtail;
  // How often execute is yet to be called here until a measurement begins
  // (tracking.h). Only the owner uses it. It lies here because a P that runs
  // goroutines writes this line anyway.
  uint32_t untilTracked = kTrackingPeriod;
  // runnext, if set, is a G that the running G readied and that inherits its
  // slice. Only the owner makes it non-null. The owner and thieves may clear
  // it.
  Atomic<G*> runnext;
  Atomic<G*> runq[kRunqSize];

  // The front part of the global queue, mostly all of it, while this is the
  // only P. No other M can take from it, so the owner needs no lock. Empty
  // whenever no running M holds the P (flushYielded).
  GQueue yielded;
  Atomic<int32_t> nyielded;    // its length, for others; written by the owner
  bool globalSkipped = false;  // globalTurn has postponed the global queue
  // How many goroutines have yielded into the ring since one of them last found
  // the global queue empty, or moved a share of it here (yieldInRing). Only the
  // owner uses it.
  uint32_t ringYields = 0;

  RunqBatch* spareBatch = nullptr;  // memory for the next runqputslow
  // Free cells, last in first out; and a whole batch of them, or none.
  GList gFree;
  GList gSpare;
  uint32_t gFreeN = 0;  // in both
  uint32_t stackCacheN = 0;
  // Free default-sized stacks, last in first out.
  StackTop* stackCache = nullptr;
  // Goroutines that this P has created. Written by the owner, and read by
  // metrics. It only grows.
  Atomic<uint64_t> created;
  // The P takes numbers of goroutines in batches. The next one of the batch is
  // goidBase + created, modulo 2^64. A batch ends when kGoidBatch divides
  // created.
  uint64_t goidBase = 0;

  Timers timers;
  // For AfterFunc, channels of time, and goroutines that sleep.
  TimerCells funcCells, chanCells, sleepCells;

  // The change in the number of runnable goroutines of countedGroup on this P
  // that is not yet part of Group::runnable (countRunnable of group.cc).
  // Written by the owner.
  Atomic<Group*> countedGroup;
  Atomic<int32_t> countedRunnable;
  NodeCounts counts;
  int64_t idleSince = 0;  // nanotime when it was put on SchedNode::pidle
  TrackingPace pace;
  // How long goroutines were runnable before this P ran them. Written by the
  // owner, and read by metrics.
  TimeHistogram timeToRun;
  TraceMark trace;       // used by the owner
  int32_t traceTid = 0;  // the thread that took it into a system call; likewise

  struct SysmonTick {  // sysmon's private copy
    uint32_t schedtick = 0, syscalltick = 0;
    int64_t schedwhen = 0, syscallwhen = 0;
    int64_t forcewhen = 0, forcedelay = 0;  // next forcePreempt in this slice
    int64_t lookwhen = 0, lookdelay = 0;    // next look at the thread's state
    int64_t latewhen = 0;     // when timers were last late; 0: never
    int64_t expectwhen = -1;  // the last expectForce; -1: never
    // CPU time, ns, of thread cpuTid at the first look at it in this slice.
    // cpuTid is 0 if there was no look.
    int32_t cpuTid = 0;
    int64_t cpu = 0;
  } sysmontick;
};

// PMask is a bitmap with a bit per P, read without a lock.
class PMask {
 public:
  bool read(uint32_t id) const {
    // Pairs with set/clear. The answer is a hint, and is checked again.
    return (words_[id / 32].load(acquire) & (1u << (id % 32))) != 0;
  }
  void set(uint32_t id) { words_[id / 32].or_(1u << (id % 32), acq_rel); }
  void clear(uint32_t id) { words_[id / 32].and_(~(1u << (id % 32)), acq_rel); }

 private:
  Atomic<uint32_t> words_[1024 / 32];
};
inline constexpr int32_t kMaxGomaxprocs = 1024;

// SchedNode is the part of that state which each NUMA node has for itself
// (proc_node.cc). sched.lock guards every field that is not atomic. The first
// four are written with the world stopped. They are atomic because the last
// reads by a thread whose P is taken from outside have no order with that. If
// there is only one node, only runq, pidle and midle are used.
struct alignas(kFalseSharing) SchedNode {
  Atomic<int16_t> topologyIndex;  // in topology.nodes
  Atomic<int16_t> firstP;         // its Ps are allp[firstP .. firstP+nprocs)
  Atomic<int16_t> nprocs;
  // The indices of all nodes in sched.nodes, nearest first. The first is its
  // own.
  Atomic<uint8_t> nearest[kMaxNodes];

  GlobalQueue runq;          // the node's part of the global queue
  Atomic<int32_t> runqsize;  // its length, a hint outside of the lock
  P* pidle = nullptr;        // last in first out
  M* midle = nullptr;        // parked Ms, last in first out
  // Written under the lock. See proc_node.cc for the protocol.
  Atomic<int32_t> npidle;
  // An M that is about to give up a P of this node must look for work first.
  Atomic<uint32_t> needspinning;
  // How many Ms with a P of this node spin. A hint, which saves wake-ups. After
  // a stop of the world it may be too low, by one for each M that has just
  // given up its P, until the next stop.
  Atomic<int32_t> nmspinning;
  // nanotime when the last idle P of the node was taken. A hint outside of the
  // lock. It means nothing while the node has an idle P.
  Atomic<int64_t> busySince;
  // A goroutine of this node may wait beside an idle P of another node, so
  // sysmon looks (lookAtNodes).
  Atomic<uint32_t> waits;
};

// GPool holds the free cells that lie on a node, and that no P has in its list.
struct GPool {
  // Guarded by sched.gFreeLock. Whole batches: each is the list of its first
  // cell, whose G::param is the first cell of the next batch. A P that takes
  // one need not walk through it.
  G* batches = nullptr;
  GList free;         // cells that are in no batch; guarded by the same lock
  Atomic<int32_t> n;  // all of them; written under that lock, a hint outside
  // The cells that lie on the node. Written under allgLock.
  Atomic<int32_t> made;
};

// WakeMode chooses what wakep does. Written with the world stopped.
enum class WakeMode : uint8_t {
  kOneNode,       // at least two Ps, all on one node
  kOneP,          // one P
  kSeveralNodes,  // at least two nodes with Ps
};

// Schedt is the state that all Ms share. `lock` guards every field that is not
// atomic.
struct Schedt {
  Atomic<uint64_t> goidgen;
  // Goroutines that threads without a P have created. A figure.
  Atomic<uint64_t> createdNoP;
  alignas(kFalseSharing)
      Atomic<int64_t> lastpoll;  // time of the last poll; 0: an M is blocked in
                                 // the poller now
  // Until when that M sleeps there (nanotime). 0: for ever, or no M is in the
  // poller.
  Atomic<int64_t> pollUntil;
  Atomic<int32_t> pollingNet;  // a non-blocking poll is in progress

  // Forbidden while holding it: malloc, parking, taking a lock of lower rank
  // (see lockrank.h).
  alignas(kFalseSharing) Mutex lock{LockRank::kSched};

  int32_t nmidle ABSL_GUARDED_BY(lock) = 0;  // parked Ms, of all nodes
  // How many idle Ms the last retireIdleMs has kept for their children. A hint
  // for sysmon, written relaxed.
  Atomic<int32_t> nmidleKept;
  // The lowest nmidle since trimIdleMs last ran.
  int32_t nmidleLow ABSL_GUARDED_BY(lock) = 0;
  // Ms that are parked until their locked G runs.
  int32_t nmidlelocked ABSL_GUARDED_BY(lock) = 0;
  int64_t mnext ABSL_GUARDED_BY(lock) = 0;  // Ms made so far = the next id
  int64_t nmfreed ABSL_GUARDED_BY(lock) = 0;
  int32_t maxmcount ABSL_GUARDED_BY(lock) = 10000;
  // Ms with startsLate.
  int32_t nmlate ABSL_GUARDED_BY(lock) = 0;
  // A spare M is on order.
  bool spareOrdered ABSL_GUARDED_BY(lock) = false;
  // sysmon, the template thread and the ring thread (becomeSystemThread).
  int32_t nmsys ABSL_GUARDED_BY(lock) = 0;
  // Ms ever made for foreign threads. mnext counts them, although they are not
  // ours.
  int64_t nmextraAll ABSL_GUARDED_BY(lock) = 0;
  // Foreign threads that hold an M, and may use the library again. While main
  // runs, they keep checkdead silent.
  int32_t nmextra ABSL_GUARDED_BY(lock) = 0;

  // For metrics: how long Ps have been on the list, ns, without those that are
  // on it now; and GOMAXPROCS times ns until it last changed, at resizeTime.
  int64_t idleNS ABSL_GUARDED_BY(lock) = 0;
  int64_t totalNS ABSL_GUARDED_BY(lock) = 0;
  int64_t resizeTime ABSL_GUARDED_BY(lock) = 0;
  // Idle Ps, of all nodes. Written under lock.
  alignas(kFalseSharing) Atomic<int32_t> npidle;
  // Ms that look for work; see the essay in proc.cc.
  Atomic<int32_t> nmspinning;
  // An M that is about to give up its P must look for work first.
  Atomic<uint32_t> needspinning;

  // The goroutines that threads without a P have posted and that no M has
  // collected yet (globrunqpost). They are linked by schedlink, the last one
  // first.
  alignas(kFalseSharing) Atomic<G*> posted;
  // At least their number. For tests of emptiness and for figures: globalSize.
  Atomic<int32_t> nposted;

  // How many nodes have Ps, and so the number of nodes in use. Written with the
  // world stopped.
  alignas(kFalseSharing) Atomic<int32_t> nnodes{1};
  Atomic<WakeMode> wakeMode;
  // There have been several nodes: see placeThread and memoryNode.
  Atomic<bool> places;
  // The length of the global queue, which is the queues of all nodes. It does
  // not count what is posted. Written under lock. Outside of the lock, read
  // globalSize.
  Atomic<int32_t> runqsize;
  SchedNode nodes[kMaxNodes];
  // By index in topology.nodes: the index in `nodes`, or 0 if that node has no
  // Ps. Written with the world stopped, under lock.
  uint8_t nodeIndex[kMaxNodes] ABSL_GUARDED_BY(lock) = {};
  // Gs that could not begin because there was no stack; see proc_new.cc.
  GQueue nostack ABSL_GUARDED_BY(lock);
  Atomic<int32_t> nnostack;

  // Stop-the-world (proc_stw.cc)
  Atomic<bool> gcwaiting;
  int32_t stopwait ABSL_GUARDED_BY(lock) = 0;
  Note stopnote;
  Atomic<bool> sysmonwait;   // written under lock
  Atomic<bool> deadSuspect;  // checkdead awaits threads it does not know;
                             // written under lock
  // nanotime when sysmon ends its short sleep; 0: it is awake or sleeps deeply.
  Atomic<int64_t> sysmonLook;
  Atomic<uint32_t> sysmonWakeNow;  // 1: end that sleep now; its futex word
  // nanotime when sysmon's deep sleep ends by itself.
  int64_t sysmonUntil ABSL_GUARDED_BY(lock) = 0;
  Note sysmonnote;
  void (*safePointFn)(P*) = nullptr;
  int32_t safePointWait ABSL_GUARDED_BY(lock) = 0;
  Note safePointNote;

  // Start and end of main (rt0.cc)
  // Main has ended: nothing is scheduled until the next Run. Written under
  // `lock`: by endMain with seq_cst, by Run with release. semrelease and
  // parkForeign read it with seq_cst, the schedulers with acquire.
  Atomic<bool> mainEnded;
  bool m0attached ABSL_GUARDED_BY(lock) = false;  // a thread is inside Run

  Atomic<int32_t> ngsys;       // system Gs
  Atomic<int32_t> nmstarting;  // Ms with a thread that has not begun yet
  // The kernel refused the last thread that was asked for. Written by the
  // threads that make threads. A hint.
  Atomic<bool> threadsShort;
  Atomic<int32_t> ninplace;   // Gs that are preempted in place
  Atomic<int32_t> npresumed;  // Ms with kPresumedTaken in presumed

  // By index in topology.nodes. With one node only the first is used.
  alignas(kFalseSharing) Mutex gFreeLock{LockRank::kGFree};
  GPool gPools[kMaxNodes];
  Atomic<int32_t> gFreeN;  // the cells in all pools, a hint outside of the lock

  bool customGOMAXPROCS ABSL_GUARDED_BY(lock) = false;
};

extern Schedt sched;
// Written by procresize with the world stopped. Entries are never unset.
extern P* allp[kMaxGomaxprocs];
extern Atomic<int32_t> gomaxprocs;      // written with the world stopped
extern Atomic<int32_t> gomaxprocsEver;  // its highest value so far
extern Atomic<int32_t> ncpu;            // 0 until schedinit, then constant
extern PMask idlepMask;   // bit set: that P is idle, nothing to steal
extern PMask timerpMask;  // bit clear: that P has no timers
extern Atomic<M*> allm;   // push only
extern M m0;

// Sudog is a G in a wait queue, of a channel or of a semaphore. One G may be on
// several queues (select), and one queue holds several Gs. It lies on the
// waiting goroutine's own stack, because stacks do not move (unlike Go's). So
// the waker of the G must not touch it after goready.
struct Sudog {
  G* g = nullptr;
  // Channel, notifyList: the next in the wait queue. Semaphore: the right child
  // in the treap, or the next in SemaRoot::handed.
  Sudog* next = nullptr;
  // Channel: the previous in the wait queue. Semaphore: the left child, or the
  // previous in SemaRoot::handed, or the previous waiter of the address.
  Sudog* prev = nullptr;
  // Channel: where the value is or goes. Semaphore: the address on which g
  // waits, while the sudog is in the table or in `handed`; nullptr afterwards.
  // notifyList: nullptr, or the semaphore of a waiter with a time limit.
  void* elem = nullptr;
  bool isSelect = false;  // must win g->selectDone to be woken
  bool success = false;  // woken by a value, not by close. Written by the waker
                         // before goready. notifyList: a notifier has taken it
                         // off the list; only for waiters with a time limit
  uint16_t waiters = 0;  // semaphore: how many are behind the node,
                         // saturating, if chargeWaits has counted; else 0
  uint32_t ticket = 0;   // semaphore: heap key; once woken, a SemaTicket;
                         // notifyList: ticket
  Sudog* parent = nullptr;  // treap
  // Select: next case; semaphore: next waiter of the address.
  Sudog* waitlink = nullptr;
  Sudog* waittail = nullptr;  // semaphore: last waiter of the address
  union {
    Hchan* c = nullptr;  // channel
    // Semaphore: when it began to wait, or when the delay of the waiters was
    // last charged to an unlock. 0: the mutex profile does not count it.
    int64_t acquiretime;
  };
};

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_RUNTIME2_H_
