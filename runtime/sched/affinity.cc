// Binding threads to processors.
//
// A P may bind the M that holds it: to the processors of the P's node, or to
// one processor. P.binding says to what, and M.binding to what the thread of
// the M is bound. A thread that gets a P compares the two words (acquirep). If
// they differ, it sets its own affinity mask. So a thread that takes the same P
// again makes no system call, and nothing happens while no P binds threads,
// because then both words are 0.
//
// The mask of the program is what taskset, a cpuset or the program itself has
// given the process. It is the mask of sysmon's thread, which is never bound,
// so the kernel keeps it for us. taskset -a and a changed cpuset change the
// masks of all threads, and so that one.
//
// Invariants:
//  (B1) A thread is never bound to a processor outside of the program's mask.
//       bindThread reads that mask, sets a part of it, and reads it again. If
//       it has changed in between, bindThread starts again.
//  (B2) bindThread changes a mask only if that is the program's, or one that
//       the runtime has set, or what a shrinking cpuset has left of such a one.
//       Any other mask was set by the program for this thread, or from outside,
//       and stays.
//  (B3) A thread that a goroutine has locked (LockOSThread) is not bound, and
//       neither is the thread of a home. If a thread is bound when a goroutine
//       locks it, it gets the program's mask back. So does the thread of Run
//       when Run returns.
//  (B4) What a bound thread makes begins with the mask of the program, where
//       the runtime has a say: a child of exec::Cmd (childAffinity), and a
//       child of fork (unbindThread in fork.cc). The threads of the runtime are
//       made by the template thread, which is never bound. A std::thread that a
//       goroutine makes inherits the mask of the goroutine's thread. If the
//       kernel does not tell a mask, the thread keeps the one that it has.
//
// P.binding changes only while the world is stopped. A stop takes every P from
// its M, and the M passes acquirep when it gets a P again. The M that stops the
// world keeps its P, so startTheWorld compares the words for it. An M that
// comes back from a declared call to a P that it finds in kPsyscall does not
// compare. It is nearly always the P that the M has left, and otherwise the M
// is bound to a neighbour for a while.
//
// Rejected:
//  * Setting the mask of another thread, when its P changes. The thread may
//    just lock itself, or set its own mask.
//  * A list of bound threads instead of (B2). A thread can be changed from
//    outside, and only its mask tells.
#include "runtime/sched/affinity.h"

#include <sys/syscall.h>

#include <string_view>

#include "absl/base/thread_annotations.h"
#include "gump/internal/linkname.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/numa.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/raw_syscall.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

// ThreadBinding is what an M knows about the mask of its thread. It is made
// when the M is first bound, and its sets are not on a stack, because those of
// goroutines may be small.
struct ThreadBinding {
  CpuSet set;                   // that the runtime has set, if M.bound
  CpuSet now, program, wanted;  // of bindThread and unbindThread
  CpuSet child;                 // of childAffinity
};

namespace {

// BindMode is what the program wants. kAuto means kNode if there are several
// nodes, and else kNone.
enum class BindMode : uint8_t { kNone, kNode, kCore, kAuto };

// A binding is 0 (none) or
//
//   | generation : 14 | kNodeBit : 1 | number + 1 : 17 |
//
// where the number is that of a processor or, with kNodeBit, the index of a
// node in `topology`. The generation changes when all threads have to look at
// their masks again (updateAffinity).
constexpr uint32_t kNumberBits = 17;
constexpr uint32_t kNodeBit = 1u << kNumberBits;
constexpr uint32_t kNumberMask = kNodeBit - 1;
constexpr uint32_t kGeneration = kNodeBit << 1;
static_assert(kMaxProcessors < kNumberMask);

int32_t numberOf(uint32_t binding) {
  return static_cast<int32_t>(binding & kNumberMask) - 1;
}

BindMode bindMode ABSL_GUARDED_BY(sched.lock) = BindMode::kAuto;
// GUMP_AFFINITY counts only if the program has not called SetAffinity before.
bool modeChosen ABSL_GUARDED_BY(sched.lock) = false;
// The mode that the Ps have now. Not kAuto.
BindMode inForce ABSL_GUARDED_BY(sched.lock) = BindMode::kNone;
// The mask of the program for which the Ps were bound; empty if they must be
// bound anew. And how often that has happened.
constinit CpuSet masked ABSL_GUARDED_BY(sched.lock);
uint32_t generation ABSL_GUARDED_BY(sched.lock) = 0;

// The mask of the thread that started the runtime, while sysmon has no thread.
// Written by schedinit.
constinit CpuSet startSet;
// sysmon's thread; 0 while it has none. Relaxed: it publishes nothing else.
Atomic<int32_t> follower;

// ownM returns the M of the calling thread, or nullptr if it has none.
M* ownM() {
  G* gp = getg();
  return gp == nullptr ? nullptr : gp->m;
}

// setAffinityHere sets the mask of the calling thread. Returns false if the
// kernel refuses.
bool setAffinityHere(const CpuSet& set) {
  return rawSyscall(SYS_sched_setaffinity, 0, kMaxProcessors / 8,
                    asArg(set.words()), 0, 0, 0) == 0;
}

bool isEmpty(const CpuSet& set) { return set.count() == 0; }

// isPart returns true if `now` is what is left of `set` in `program`.
bool isPart(const CpuSet& now, const CpuSet& set, const CpuSet& program) {
  for (int32_t i = 0; i < kMaxProcessors / 64; i++) {
    if (now.words()[i] != (set.words()[i] & program.words()[i])) return false;
  }
  return true;
}

// isOurs returns true if the runtime may change the mask `now` of mp (B2).
bool isOurs(const M* mp) {
  const ThreadBinding* b = mp->masks;
  if (b->now == b->program) return true;
  return mp->bound.load(relaxed) &&
         (b->now == b->set || isPart(b->now, b->set, b->program));
}

// wants writes the processors of a binding into b->wanted. The set is empty if
// none of them is in the mask of the program.
void wants(uint32_t binding, ThreadBinding* b) {
  if (binding == 0) {
    b->wanted = b->program;
  } else if ((binding & kNodeBit) != 0) {
    nodeProcessors(topology, numberOf(binding), b->program, &b->wanted);
  } else {
    b->wanted = CpuSet();
    const int32_t cpu = numberOf(binding);
    if (b->program.has(cpu)) b->wanted.add(cpu);
  }
}

// setMask gives this thread the mask `wanted`, and notes whether that binds it.
void setMask(M* mp, bool binds) {
  ThreadBinding* b = mp->masks;
  if (b->wanted != b->now && !setAffinityHere(b->wanted)) return;
  // As the kernel has it: a cpuset may have cut it down.
  mp->bound.store(binds && threadAffinity(0, &b->set), relaxed);
}

// tryBind is one turn of bindThread. Returns false if the mask of the program
// has changed meanwhile.
bool tryBind(uint32_t binding, M* mp) {
  ThreadBinding* b = mp->masks;
  if (!threadAffinity(0, &b->now) || !programAffinity(&b->program)) return true;
  if (!isOurs(mp)) return true;
  wants(binding, b);
  // Its processors have left the mask, and sysmon will soon bind the P anew.
  const bool none = isEmpty(b->wanted);
  if (none) b->wanted = b->program;
  setMask(mp, binding != 0 && !none);
  return programAffinity(&b->now) && b->now == b->program;  // (B1)
}

// ---- Which P binds to what --------------------------------------------------

// nthOf returns the member of a set that has n others before it, counted round
// and round. The set is not empty.
int32_t nthOf(const CpuSet& set, int32_t n) {
  n %= set.count();
  int32_t cpu = 0;
  while (!set.has(cpu) || n-- > 0) cpu++;
  return cpu;
}

// effective returns the mode that counts now.
BindMode effective() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (bindMode != BindMode::kAuto) return bindMode;
  return topology.nnodes > 1 ? BindMode::kNode : BindMode::kNone;
}

// Scratch of bindPs, which runs while the world is stopped.
constinit CpuSet maskNow ABSL_GUARDED_BY(sched.lock);
constinit CpuSet ofNode ABSL_GUARDED_BY(sched.lock);

// bindingOf returns the binding of a P that is number `place` of its node, of
// which ofNode has the processors.
uint32_t bindingOf(int32_t node, int32_t place)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  if (isEmpty(ofNode)) return 0;
  if (inForce == BindMode::kNode) {
    return generation | kNodeBit | static_cast<uint32_t>(node + 1);
  }
  return generation | static_cast<uint32_t>(nthOf(ofNode, place) + 1);
}

}  // namespace

void bindPs(int32_t nprocs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock) {
  for (int32_t i = 0; i < nprocs; i++) allp[i]->binding.store(0, relaxed);
  inForce = effective();
  if (inForce == BindMode::kNone || !programAffinity(&maskNow)) return;
  if (maskNow != masked) {
    masked = maskNow;
    generation += kGeneration;
  }
  const int32_t n = sched.nnodes.load(relaxed);  // the world is stopped
  for (int32_t k = 0; k < n; k++) {
    const SchedNode* np = &sched.nodes[k];
    const int32_t node = np->topologyIndex.load(relaxed);  // as above
    const int32_t first = np->firstP.load(relaxed);        // as above
    const int32_t procs = np->nprocs.load(relaxed);        // as above
    nodeProcessors(topology, node, maskNow, &ofNode);
    for (int32_t place = 0; place < procs; place++) {
      allp[first + place]->binding.store(bindingOf(node, place), relaxed);
    }
  }
}

// ---- Threads ----------------------------------------------------------------

void bindThread(M* mp) {
  if (mp->lockedExt != 0) return;  // (B3); of a home it is at least 1
  const uint32_t binding = mp->p->binding.load(relaxed);
  if (mp->masks == nullptr) mp->masks = persistentallocOf<ThreadBinding>();
  if (mp->masks == nullptr) return;  // no memory
  while (!tryBind(binding, mp)) {
  }
  mp->binding.store(binding, relaxed);
}

void forgetBinding(M* mp) {
  mp->binding.store(0, relaxed);
  mp->bound.store(false, relaxed);
}

void unbindThread(M* mp) {
  mp->binding.store(0, relaxed);
  if (!mp->bound.load(relaxed)) return;
  while (!tryBind(/*binding=*/0, mp)) {
  }
  mp->bound.store(false, relaxed);
}

const CpuSet* childAffinity(M* mp) {
  if (!mp->bound.load(relaxed)) return nullptr;
  ThreadBinding* b = mp->masks;
  const bool ours =
      threadAffinity(0, &b->now) && programAffinity(&b->program) && isOurs(mp);
  if (!ours) return nullptr;
  b->child = b->program;
  return &b->child;
}

// ---- The mask of the program ------------------------------------------------

void affinityInit() {
  if (!threadAffinity(0, &startSet)) startSet = CpuSet();
  constexpr char kVariable[] = "GUMP_AFFINITY";
  const char* text = gogetenv(kVariable, kVariable);
  if (text == nullptr || text[0] == '\0') return;
  const std::string_view value = text;
  LockScope l(&sched.lock);
  BindMode wanted;
  if (value == "none") {
    wanted = BindMode::kNone;
  } else if (value == "node") {
    wanted = BindMode::kNode;
  } else if (value == "core") {
    wanted = BindMode::kCore;
  } else {
    printf("runtime: %s=%Q is ignored: it is neither none, node nor core\n",
           kVariable, text);
    return;
  }
  if (!modeChosen) bindMode = wanted;
}

void followsAffinity() { follower.store(gettid(), relaxed); }

bool programAffinity(CpuSet* out) {
  const int32_t tid = follower.load(relaxed);
  if (tid != 0) return threadAffinity(tid, out);
  *out = startSet;
  return !isEmpty(startSet);
}

int32_t programProcessors() {
  const M* mp = ownM();
  CpuSet set;
  if (mp == nullptr || mp->binding.load(relaxed) == 0 ||
      !programAffinity(&set)) {
    return getproccount();
  }
  return set.count();
}

namespace {

// From the moment at which sysmon asks for rebind until that has ended.
Atomic<bool> rebinding;
// rebind is to adopt the topology that sysmon has found.
Atomic<bool> topologyFound;

// rebind is the goroutine of updateAffinity. procresize does the work.
// On: user.  P: needed.  Locks: takes worldsema, sched.lock.  Parks: yes.
void rebind(void*) {
  stopTheWorld(WaitReason::kStoppingTheWorld);
  // Relaxed: published by the start of the goroutine.
  if (topologyFound.load(relaxed)) topologyAdopt();
  startTheWorld();
  rebinding.store(false, release);  // pairs with the load in updateAffinity
}

constexpr FuncType kRebind = systemFunc(rebind);

// isFreed returns true if the thread of mp, which the runtime has bound in the
// current generation, may run on all processors of the program. `taskset -a`
// with the mask of the program does that, and so does one that is undone before
// sysmon looks.
// On: sysmon.  P: none.  Locks: none.  Parks: no.
bool isFreed(const M* mp, uint32_t current, const CpuSet& program) {
  static constinit CpuSet set;                         // sysmon's
  const uint32_t binding = mp->binding.load(relaxed);  // hints
  if (!mp->bound.load(relaxed) || binding == 0 ||
      binding / kGeneration != current / kGeneration) {
    return false;
  }
  const int32_t tid = mp->procid.load(acquire);  // pairs with minit
  if (tid == 0 || !threadAffinity(tid, &set) || set != program) return false;
  if ((binding & kNodeBit) == 0) return program.count() > 1;
  nodeProcessors(topology, numberOf(binding), program, &set);
  return !isEmpty(set) && set != program;
}

// anyFreed returns true if there is such a thread. Once the Ps are bound anew,
// the bindings of all threads are of an older generation.
// On: sysmon.  P: none.  Locks: none.  Parks: no.
bool anyFreed(uint32_t current, const CpuSet& program) {
  for (const M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {  // pairs with mcommoninit
    if (isFreed(mp, current, program)) return true;
  }
  return false;
}

// mustRebind returns true if the Ps bind threads, and if the mask of the
// program has changed since, or a thread has been freed.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
bool mustRebind() {
  static constinit CpuSet now;  // sysmon's
  uint32_t current;
  {
    LockScope l(&sched.lock);
    if (inForce == BindMode::kNone) return false;
    current = generation;
  }
  if (!threadAffinity(/*tid=*/0, &now)) return false;
  const bool freed = anyFreed(current, now);
  LockScope l(&sched.lock);
  if (freed) masked = CpuSet();
  return now != masked;
}

}  // namespace

void updateAffinity() {
  // Only sysmon sets it. Pairs with the release in rebind, which may still
  // write the topology.
  if (rebinding.load(acquire)) return;
  const bool moved = topologyChanged();
  if (!moved && !mustRebind()) return;
  topologyFound.store(moved, relaxed);  // published with the goroutine
  rebinding.store(true, relaxed);       // as above
  if (!startSystemG(&kRebind)) rebinding.store(false, release);
}

void setAffinity(ThreadAffinity wanted) noexcept {
  const BindMode m = wanted == ThreadAffinity::kCore   ? BindMode::kCore
                     : wanted == ThreadAffinity::kNode ? BindMode::kNode
                                                       : BindMode::kNone;
  {
    LockScope l(&sched.lock);
    const bool same = modeChosen && bindMode == m;
    modeChosen = true;
    bindMode = m;
    // Written by procresize, under this lock. If the runtime has not started,
    // schedinit will bind the Ps.
    if (same || gomaxprocs.load(relaxed) == 0) return;
  }
  schedinit();  // perhaps it has only begun
  stopTheWorld(WaitReason::kStoppingTheWorld);
  startTheWorld();
}

}  // namespace gump::rt
