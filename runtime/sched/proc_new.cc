// Birth and death of goroutines.
//
// A goroutine begins as one cell of 256 bytes with its closure inside. It gets
// a stack when it first runs (bindStack) and loses it when it ends. So a
// million goroutines that wait to begin cost a million cells and no stack, and
// short ones follow each other on the same warm pages.
//
// Cells are cut from slabs in allocation order, recycled through per-P lists
// and a pool, and never freed. So a stale G* reads a wrong answer, not unmapped
// memory. The slabs are chained in creation order, so that a dump can walk all
// Gs without a table (forEachG). Ps and the pool exchange whole batches, as the
// magazines of Bonwick and Adams (USENIX 2001): so no thread walks through a
// list of cold cells.
//
// With several NUMA nodes, each slab lies on one, and so does each pool. A P
// fills its list from the pool of its own node. Each cell that it gives back
// goes to the pool of the node on which the cell lies. A P's own list takes
// whatever ends on it, because only the slow paths look at nodes. A node whose
// pool is empty makes new cells, or takes those of another node: see poolFor.
//
// When the kernel has no memory for a stack, a goroutine that is about to run
// for the first time waits in sched.nostack until another one ends. Meanwhile
// go() reserves a stack up front. If there is none, it reports that to its
// caller as a panic, because the caller can react.
#include <unwind.h>

#include <bit>
#include <cstdlib>
#include <utility>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/goroutine_profile.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/trace.h"
#include "runtime/diag/traceback.h"
#include "runtime/sched/gls.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/group.h"
#include "runtime/sched/home.h"
#include "runtime/sched/labels.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/numa.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/switch.h"
#include "runtime/sched/thread.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sys/fpmodes.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/synctest.h"

namespace gump::rt {

Atomic<GSlab*> gSlabs;

namespace {

constexpr size_t kSlabCells = 256;

Mutex allgLock{LockRank::kAllg};
GSlab* slabTail ABSL_GUARDED_BY(allgLock) = nullptr;
// The slab of each node that cells are cut from; by index in topology.nodes.
GSlab* slabOf[kMaxNodes] ABSL_GUARDED_BY(allgLock) = {};
Atomic<uint64_t> ngs;                             // cells handed out
Atomic<size_t> maxStackSize{kMaxStackSizeLimit};  // debug::SetMaxStack

GSlab* newSlab(uint32_t node) {
  static_assert(kSlabCells * sizeof(G) % kPageSize == 0);
  void* cells = persistentalloc(kSlabCells * sizeof(G), kPageSize);
  GSlab* slab = persistentallocOf<GSlab>();
  if (cells == nullptr || slab == nullptr) return nullptr;
  preferNode(cells, kSlabCells * sizeof(G), node);
  sysName(cells, kSlabCells * sizeof(G), "gump: gs");
  slab->cells = static_cast<G*>(cells);
  return slab;
}

uint64_t nextGoid(M* mp, P* pp) {
  // Only uniqueness matters, not order. The counts are figures.
  if (pp == nullptr) {
    sched.createdNoP.add(1, relaxed);
    if (mp->goidsLeft-- == 0) {
      mp->goidNext = sched.goidgen.add(kGoidBatch, relaxed) - kGoidBatch + 1;
      mp->goidsLeft = kGoidBatch - 1;
    }
    return mp->goidNext++;
  }
  const uint64_t n = pp->created.load(relaxed);
  if (n % kGoidBatch == 0) {  // the batch is used up
    pp->goidBase = sched.goidgen.add(kGoidBatch, relaxed) - kGoidBatch + 1 - n;
  }
  pp->created.store(n + 1, relaxed);
  return pp->goidBase + n;
}

// endCarefully does what a goroutine needs at its end only if it is `careful`.
// gp still has its stack.
// On: g0.  P: needed.  Locks: none.  Parks: no.
GUMP_NOINLINE void endCarefully(G* gp, M* mp) {
  if (gp->systemG) sched.ngsys.add(-1, relaxed);  // a count for humans
  if (!sanitizerOfProgram()) return;
  sanitizerAnnounceEndedG(gp, mp);
}

// endSpecial makes a goroutine that has ended leave its bubble and its group.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.
GUMP_NOINLINE void endSpecial(Bubble* b, uint64_t goid, uint32_t group) {
  if (b != nullptr) bubbleLeave(b, goid);
  if (group != 0) groupEnd(groupAt(group));
}

// retire makes gp, which has ended, ready to be used again.
// On: any; m.locks > 0.  P: needed.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE void retire(G* gp) {
  gp->eh = EhGlobals();
  if (GUMP_LIKELY(isPlain(gp, kGrunning))) {
    gp->atomicstatus.store(kGdead, release);  // as in casgstatus
  } else {
    casgstatus(gp, kGrunning, kGdead);
  }
  gp->lockedm = nullptr;
  gp->param = nullptr;
  gp->waitreason = WaitReason::kZero;
  gp->savedErrno = 0;
}

// gdestroy takes gp apart after its last instruction.
// On: g0.  P: needed.  Locks: takes kStack, kGFree, sched.lock.  Parks: no.
void gdestroy(G* gp) {
  M* mp = getg()->m;
  P* pp = mp->p;
  // gumpOnG0 saved the exception globals. The goroutine began with no exception
  // in flight. Only the exception of Goexit may remain in them: once a
  // catch (...) has rethrown it, it counts as uncaught for good.
  if (GUMP_UNLIKELY((gp->eh.caughtExceptions != nullptr ||
                     gp->eh.uncaughtExceptions != 0) &&
                    !gp->goexited)) {
    fatalthrow("goexit: exceptions in flight");
  }
  gp->goexited = false;
  gp->mainReturned = false;
  retire(gp);
  if (GUMP_UNLIKELY(gp->careful)) endCarefully(gp, mp);
  gp->systemG = false;
  mp->lockedg = nullptr;
  const bool special = gp->special;
  Bubble* b = gp->bubble;
  const uint32_t group = gp->group;
  const uint64_t goid = gp->goid;
  gp->bubble = nullptr;
  gp->group = 0;
  gp->special = false;
  dropg();
  stackfree(pp, gp);
  if (GUMP_UNLIKELY(sched.nnostack.load(relaxed) != 0)) nostackWake();
  gfput(pp, gp);
  if (GUMP_UNLIKELY(special)) endSpecial(b, goid, group);
}

G* goexit0(G* gp) {
  M* mp = getg()->m;
  bool locked = mp->lockedExt != 0;
  const bool ended = gp->mainReturned;
  gdestroy(gp);
  if (GUMP_UNLIKELY(ended)) endMain();
  if (GUMP_UNLIKELY(locked)) return mexit();
  return schedule();
}

// Uninstrumented, as gumpGoroutineMain is.
GUMP_NO_SANITIZE _Unwind_Reason_Code goexitStop(int, _Unwind_Action actions,
                                                _Unwind_Exception_Class,
                                                _Unwind_Exception* e,
                                                _Unwind_Context*, void*) {
  // The end of the stack is gumpGostart, so every destructor has run.
  if ((actions & _UA_END_OF_STACK) != 0) {
    std::free(e);
    // Before goexit1, which runs more destructors on this stack.
    if (sanitizerOfProgram()) sanitizerCleanStack(getg());
    goexit1();
  }
  return _URC_NO_REASON;
}

void goexitCaught(_Unwind_Reason_Code, _Unwind_Exception*) {
  // A catch (...) that did not rethrow has deleted our exception.
  fatal("runtime.Goexit: exception not rethrown");
}

}  // namespace

G* malg(P* pp) {
  const uint32_t node = memoryNode(pp);
  LockScope l(&allgLock);
  GSlab* slab = slabOf[node];
  // Written under this lock.
  if (slab == nullptr || slab->used.load(relaxed) == kSlabCells) {
    slab = newSlab(node);
    if (slab == nullptr) return nullptr;
    if (slabTail == nullptr) {
      gSlabs.store(slab, release);  // pairs with forEachG
    } else {
      slabTail->next.store(slab, release);  // pairs with forEachG
    }
    slabTail = slab;
    slabOf[node] = slab;
  }
  uint32_t i = slab->used.load(relaxed);
  G* gp = new (&slab->cells[i]) G();
  gp->careful = sanitizerOfProgram();
  gp->memoryNode = static_cast<uint8_t>(node);
  casgstatus(gp, kGidle, kGdead);
  // Pairs with forEachG. The cell is constructed.
  slab->used.store(i + 1, release);
  sched.gPools[node].made.add(1, relaxed);  // a count
  ngs.add(1, relaxed);                      // a count
  return gp;
}

GSlab* nextGSlab(const GSlab* after) {
  // Both pair with the stores in malg.
  return after == nullptr ? gSlabs.load(acquire) : after->next.load(acquire);
}

void forEachGIn(const GSlab* slab, void (*f)(G*, void*), void* arg) {
  const uint32_t n = slab->used.load(acquire);  // pairs with the store in malg
  for (uint32_t i = 0; i < n; i++) f(&slab->cells[i], arg);
}

void forEachG(void (*f)(G*, void*), void* arg) {
  for (GSlab* s = nextGSlab(nullptr); s != nullptr; s = nextGSlab(s)) {
    forEachGIn(s, f, arg);
  }
}

uint64_t gcountAll() { return ngs.load(relaxed); }

namespace {

// A node that has made fewer cells than this (1 MiB) does not take those of
// other nodes.
constexpr int32_t kOwnCells = 4096;

// fullestPool returns the pool that can spare cells most easily. It may be
// empty.
GPool* fullestPool() {
  GPool* most = &sched.gPools[0];
  for (GPool& pool : sched.gPools) {
    // Hints, here and below. A stale one costs a fresh cell.
    if (pool.n.load(relaxed) > most->n.load(relaxed)) most = &pool;
  }
  return most;
}

// poolFor returns the pool from which a P of a node takes cells, or nullptr if
// new ones are to be made. The own pool goes first. If that is empty, the node
// makes cells of its own, which stay on it for good, unless that would be a
// waste: it has made kOwnCells already, and more than half of all cells lie in
// pools, so in those of other nodes. Without that bound, work that moves from
// node to node would leave behind on each node as many cells as it needs at
// most. With it the cells are at most twice as many as were in use at once,
// besides kOwnCells for each node.
GPool* poolFor(uint32_t node) {
  GPool* own = &sched.gPools[node];
  // Written with the world stopped.
  if (!sched.places.load(relaxed) || own->n.load(relaxed) > 0) return own;
  if (own->made.load(relaxed) < kOwnCells ||
      2 * int64_t{sched.gFreeN.load(relaxed)} <=
          static_cast<int64_t>(ngs.load(relaxed))) {
    return nullptr;
  }
  return fullestPool();
}

// countPooled counts n cells more in a pool.
void countPooled(GPool* pool, int32_t n)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.gFreeLock) {
  pool->n.add(n, relaxed);  // hints outside the lock
  sched.gFreeN.add(n, relaxed);
}

// putCells empties q into the pools of the nodes on which its cells lie.
GUMP_NOINLINE void putCells(GQueue* q) {
  LockScope l(&sched.gFreeLock);
  if (!sched.places.load(relaxed)) {  // as in poolFor
    countPooled(&sched.gPools[0], q->size);
    sched.gPools[0].free.pushAll(q);
    return;
  }
  while (G* gp = q->pop()) {
    GPool* pool = &sched.gPools[gp->memoryNode];
    pool->free.push(gp);
    countPooled(pool, 1);
  }
}

// putBatch gives batch, which has kCellBatch cells, to the pool; with several
// nodes to the pools of those on which its cells lie.
void putBatch(GList batch) {
  if (sched.places.load(relaxed)) {  // as in poolFor
    GQueue q;
    while (G* gp = batch.pop()) q.pushBack(gp);
    putCells(&q);
    return;
  }
  GPool* pool = &sched.gPools[0];
  LockScope l(&sched.gFreeLock);
  batch.head->param = pool->batches;
  pool->batches = batch.head;
  countPooled(pool, kCellBatch);
}

// takeBatch takes a batch, or what there is of single cells. Returns how many
// cells it has put into *out.
uint32_t takeBatch(GPool* pool, GList* out)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.gFreeLock) {
  uint32_t n = 0;
  if (G* gp = pool->batches) {
    pool->batches = static_cast<G*>(std::exchange(gp->param, nullptr));
    out->head = gp;
    n = kCellBatch;
  } else {
    for (; n < kCellBatch; n++) {
      gp = pool->free.pop();
      if (gp == nullptr) break;
      out->push(gp);
    }
  }
  countPooled(pool, -static_cast<int32_t>(n));
  return n;
}

// refillCells is called if pp->gFree is empty.
GUMP_NOINLINE void refillCells(P* pp) {
  if (!pp->gSpare.empty()) {
    pp->gFree = std::exchange(pp->gSpare, GList());
    return;
  }
  // A stale zero costs a fresh cell.
  if (sched.gFreeN.load(relaxed) == 0) return;
  GPool* pool = poolFor(memoryNode(pp));
  if (pool == nullptr) return;
  LockScope l(&sched.gFreeLock);
  pp->gFreeN += takeBatch(pool, &pp->gFree);
}

// spareCells is called if pp->gFree is a whole batch.
GUMP_NOINLINE void spareCells(P* pp) {
  if (!pp->gSpare.empty()) {
    pp->gFreeN -= kCellBatch;
    putBatch(pp->gSpare);
  }
  pp->gSpare = std::exchange(pp->gFree, GList());
}

// prefetchCell starts loading a cell. newproc1 writes all lines of it.
GUMP_ALWAYS_INLINE void prefetchCell(const G* gp) {
  const auto at = reinterpret_cast<uintptr_t>(gp);  // may be 0
  for (size_t i = 0; i < sizeof(G); i += kCacheLine) {
    prefetch(reinterpret_cast<const void*>(at + i));
  }
}

}  // namespace

void gfput(P* pp, G* gp) {
  pp->gFree.push(gp);
  if (++pp->gFreeN % kCellBatch == 0) spareCells(pp);
}

G* gfget(P* pp) {
  if (pp->gFree.empty()) refillCells(pp);
  G* gp = pp->gFree.pop();
  if (gp == nullptr) return nullptr;
  pp->gFreeN--;
  prefetchCell(pp->gFree.head);
  return gp;
}

namespace {

// gfgetGlobal and gfputGlobal are gfget and gfput for a thread without a P.
G* gfgetGlobal(GPool* pool) {
  if (pool == nullptr || pool->n.load(relaxed) == 0) return nullptr;  // a hint
  LockScope l(&sched.gFreeLock);
  if (pool->free.empty()) {
    const uint32_t n = takeBatch(pool, &pool->free);
    countPooled(pool, static_cast<int32_t>(n));  // they are still there
  }
  G* gp = pool->free.pop();
  if (gp != nullptr) countPooled(pool, -1);
  return gp;
}

void gfputGlobal(G* gp) {
  GQueue q;
  q.pushBack(gp);
  putCells(&q);
}

// refillForeign takes a batch of cells from the pool, if it has some. mp->gFree
// is empty.
GUMP_NOINLINE void refillForeign(M* mp) {
  GPool* pool = poolFor(memoryNode(nullptr));
  if (pool == nullptr || pool->n.load(relaxed) == 0) return;  // a hint
  LockScope l(&sched.gFreeLock);
  mp->gFreeN = takeBatch(pool, &mp->gFree);
}

// gfgetForeign is gfget for a foreign thread. The cells come back from Ps, so
// their lines lie in the caches of other processors. A thread that starts many
// goroutines therefore takes a batch, and loads each cell ahead of its use.
G* gfgetForeign(M* mp) {
  if (mp->gFree.empty()) refillForeign(mp);
  G* gp = mp->gFree.pop();
  if (gp == nullptr) return nullptr;
  mp->gFreeN--;
  prefetchCell(mp->gFree.head);
  return gp;
}

// gfgetWithoutP is gfget for a caller without a P.
GUMP_NOINLINE G* gfgetWithoutP(M* mp) {
  return getg()->foreign ? gfgetForeign(mp)
                         : gfgetGlobal(poolFor(memoryNode(nullptr)));
}

// newCell makes a cell for pp, which may be nullptr. If there is no memory, it
// takes a free one of any node.
GUMP_NOINLINE G* newCell(P* pp) {
  G* gp = malg(pp);
  return gp != nullptr ? gp : gfgetGlobal(fullestPool());
}

}  // namespace

void gfpurgeForeign(M* mp) {
  GQueue q;
  while (G* gp = mp->gFree.pop()) q.pushBack(gp);
  mp->gFreeN = 0;
  putCells(&q);
}

void gfpurge(P* pp) {
  GQueue q;
  while (G* gp = pp->gFree.pop()) q.pushBack(gp);
  while (G* gp = pp->gSpare.pop()) q.pushBack(gp);
  pp->gFreeN = 0;
  putCells(&q);
}

namespace {

// stackallocIdle is stackalloc for when there was no stack. First it moves the
// stacks that idle Ps have cached to the pool.
GUMP_NOINLINE bool stackallocIdle(P* pp, G* gp, size_t size) {
  {
    LockScope l(&sched.lock);  // the holder of this lock owns the idle Ps
    forEachIdleP([](P* idle) { stackcacheFlush(idle); });
  }
  return stackalloc(pp, gp, size);
}

// stackallocAny gives gp its stack. Returns false if there is none anywhere.
GUMP_ALWAYS_INLINE bool stackallocAny(P* pp, G* gp) {
  const size_t size =
      gp->stackClass == 0 ? 0 : kMinStackSize << (gp->stackClass - 1);
  return GUMP_LIKELY(stackalloc(pp, gp, size)) || stackallocIdle(pp, gp, size);
}

}  // namespace

bool bindStack(P* pp, G* gp) {
  if (GUMP_UNLIKELY((traceHints() & kProfileHint) != 0)) profileBind(gp);
  if (stackallocAny(pp, gp)) return true;
  if (gp->special) groupRefuse(gp);
  LockScope l(&sched.lock);
  sched.nostack.pushBack(gp);
  sched.nnostack.store(sched.nostack.size, relaxed);  // a hint outside the lock
  return false;
}

void nostackWake() {
  G* gp;
  {
    LockScope l(&sched.lock);
    // One stack came back, so let one goroutine try. If it fails for another
    // reason, it queues again.
    gp = sched.nostack.pop();
    sched.nnostack.store(sched.nostack.size, relaxed);
    if (gp == nullptr) return;
    if (!gp->special || homeOf(gp) == nullptr) {
      globrunqput(gp);
      return;
    }
  }
  homeReady(gp);
}

namespace {
// identify gives gp, whose closure is in place, its name and its scope. Not
// inlined, because it would cost those goroutines an instruction that have
// neither.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_NOINLINE void identify(G* gp, const SpawnOptions* o) {
  gp->name = o->name;
  if (o->in_scope) gp->gls = reinterpret_cast<LocalNode*>(gp->closure);
}

// stackClassOf returns the G::stackClass of a stack of size bytes.
uint8_t stackClassOf(size_t size) {
  if (size == 0) return 0;
  const size_t units = (size - 1) / kMinStackSize;  // less one, rounded down
  return static_cast<uint8_t>(std::bit_width(units) + 1);
}

}  // namespace

G* newproc1(const FuncType* ft, void* closure, const SpawnOptions* o,
            uintptr_t pc) {
  M* mp = acquirem();  // the P's free list is ours until releasem
  P* pp = mp->p;
  G* gp = GUMP_LIKELY(pp != nullptr) ? gfget(pp) : gfgetWithoutP(mp);
  if (GUMP_UNLIKELY(gp == nullptr)) gp = newCell(pp);
  if (GUMP_UNLIKELY(gp == nullptr)) {
    releasem(mp);
    return nullptr;
  }
  if (o != nullptr) {
    size_t max = maxStackSize.load(relaxed);  // a setting; no order needed
    size_t size = o->stack_size > max ? max : o->stack_size;
    gp->stackClass = stackClassOf(size);
  } else {
    gp->stackClass = 0;
  }
  if (GUMP_UNLIKELY(sched.nnostack.load(relaxed) != 0) &&
      !(o != nullptr && o->stack_later)) {
    // Stacks are short. Get one now, or tell the caller.
    if (!stackallocAny(pp, gp)) {
      if (pp != nullptr) {
        gfput(pp, gp);
      } else {
        gfputGlobal(gp);
      }
      releasem(mp);
      return nullptr;
    }
  }
  ft->relocate(gp->closure, closure);
  gp->fn = ft;
  gp->gopc = pc;
  gp->parentGoid = getg()->goid;
  if (GUMP_UNLIKELY(debug.tracebackancestors > 0)) saveAncestors(gp);
  if (GUMP_UNLIKELY(o != nullptr)) {
    identify(gp, o);
  } else {
    gp->name = nullptr;
  }
  gp->goid = nextGoid(mp, pp);
  releasem(mp);
  return gp;
}

namespace {
// Membership is what a goroutine inherits: a bubble, a group and labels.
struct Membership {
  Bubble* bubble = nullptr;
  uint32_t group = 0;           // Group::id
  LocalNode* labels = nullptr;  // of the new goroutine

  bool any() const {
    return bubble != nullptr || group != 0 || labels != nullptr;
  }
};

// join makes gp, which no other thread knows yet, a member. The caller keeps
// the bubble and the group in use.
// On: any, m.locks > 0.  P: either.  Locks: takes a leaf.  Parks: no.
GUMP_NOINLINE void join(G* gp, Membership of) {
  if (of.bubble != nullptr) bubbleJoin(of.bubble, gp);
  if (of.group != 0) groupJoin(gp, of.group);
  if (of.labels != nullptr) addLabels(gp, of.labels);
}

// start makes a goroutine, a member of `of`, and queues it to run next. Returns
// false if there is no memory.
GUMP_ALWAYS_INLINE bool start(const FuncType* ft, void* closure,
                              const SpawnOptions* options, uintptr_t pc,
                              Membership of, bool quiet) {
  M* mp = acquirem();
  G* gp = newproc1(ft, closure, options, pc);
  if (GUMP_UNLIKELY(gp == nullptr)) {
    releasem(mp);
    return false;
  }
  if (GUMP_UNLIKELY(of.any())) join(gp, of);
  if (!quiet || mp->p == nullptr) {
    readyAndRelease(mp, gp, kGdead);
  } else {
    casgstatus(gp, kGdead, kGrunnable);
    runqput(mp->p, gp, /*next=*/true);
    releasem(mp);
  }
  return true;
}

// newprocMember is newproc for a goroutine that inherits something. It also
// serves options that name a group.
// On: user, or a foreign thread.  P: either.  Locks: takes a leaf.  Parks: no.
GUMP_NOINLINE SpawnResult newprocMember(const FuncType* ft, void* closure,
                                        const SpawnOptions* options,
                                        uintptr_t pc, const G* me) {
  Membership of{me->bubble, me->group, inheritedLabels(me)};
  if (options != nullptr && options->group != 0) {
    of.group = options->group == kNoGroup ? 0 : options->group;
  }
  if (start(ft, closure, options, pc, of, /*quiet=*/false)) {
    return SpawnResult::kOk;
  }
  dropLabels(of.labels);
  return SpawnResult::kNoMemory;
}
}  // namespace

SpawnResult newproc(const FuncType* ft, void* closure,
                    const SpawnOptions* options, uintptr_t pc) noexcept {
  const G* me = runtimeEntry();
  if (GUMP_UNLIKELY(passesOn(me)) ||
      (options != nullptr && GUMP_UNLIKELY(options->group != 0))) {
    return newprocMember(ft, closure, options, pc, me);
  }
  return start(ft, closure, options, pc, {}, /*quiet=*/false)
             ? SpawnResult::kOk
             : SpawnResult::kNoMemory;
}

SpawnResult newprocOn(const FuncType* ft, void* closure,
                      const SpawnOptions* options, uintptr_t pc) noexcept {
  const G* me = runtimeEntry();
  LocalNode* labels = inheritedLabels(me);
  M* mp = acquirem();
  G* gp = newproc1(ft, closure, options, pc);
  if (gp != nullptr) {
    if (me->bubble != nullptr) bubbleJoin(me->bubble, gp);
    if (labels != nullptr) addLabels(gp, labels);
    homeJoin(options->thread, gp);
    casgstatus(gp, kGdead, kGrunnable);
    homeReady(gp);
  }
  releasem(mp);
  if (gp != nullptr) return SpawnResult::kOk;
  dropLabels(labels);
  return SpawnResult::kNoMemory;
}

// The goroutine of a timer inherits no labels, as in Go.
bool newprocTimer(const FuncType* ft, void* closure, uintptr_t pc, Bubble* b,
                  uint32_t group) {
  SpawnOptions o;
  o.stack_later = true;
  return start(ft, closure, &o, pc, {b, group, nullptr}, /*quiet=*/true);
}

bool startSystemG(const FuncType* ft) {
  M* mp = acquirem();
  G* gp = newproc1(ft, nullptr, nullptr, 0);
  if (gp != nullptr) {
    gp->systemG = true;
    gp->careful = true;
    sched.ngsys.add(1, relaxed);  // a count for humans
    casgstatus(gp, kGdead, kGrunnable);
    {
      LockScope l(&sched.lock);
      globrunqput(gp);
    }
    wakep();
  }
  releasem(mp);
  return gp != nullptr;
}

size_t setMaxStack(size_t n) noexcept {
  if (n < kMinStackSize) n = kMinStackSize;
  if (n > kMaxStackSizeLimit) n = kMaxStackSizeLimit;
  return maxStackSize.xchg(n, relaxed);  // a setting; no order needed
}

const char* stackErrorText() noexcept { return stackLastError(); }

namespace {

// destroyClosure destroys what the goroutine owns: its closure, its
// goroutine-local values, and its name.
// On: user.  P: needed.  Locks: none held.  Parks: yes.
GUMP_ALWAYS_INLINE void destroyClosure(G* gp) {
  const FuncType* ft = gp->fn;
  gp->fn = nullptr;
  // destroy may park and come back on another M. gp stays the same.
  ft->destroy(gp->closure);
  if (GUMP_UNLIKELY(gp->gls != nullptr)) glsDestroyAll(gp);
  if (GUMP_UNLIKELY(gp->name != nullptr)) {
    // This code still runs as the goroutine, not on g0, so it may call free. If
    // the goroutine is preempted in the middle, dumps show it, and they must
    // not read a name that has been freed.
    const char* name = std::exchange(gp->name, nullptr);
    compilerFence();
    std::free(const_cast<char*>(name));
  }
}

// endCommit retires a goroutine that has switched directly to the next one.
// On: user, the stack of the next goroutine.  P: needed; m.locks is 1.
// Locks: takes kGFree.  Parks: no.
void endCommit(G* gp, M* mp) {
  retire(gp);
  gp->m = nullptr;
  gfput(mp->p, gp);
}

// endDirectly ends gp without a switch to g0, if the next goroutine is obvious
// (directNext). gp first gives its stack to the cache of its P, where it is the
// next one that is taken. So if the next goroutine has not begun, it gets that
// very stack, and runs in the frame of gp's gumpGoroutineMain: endDirectly
// returns it. If it has begun, gp switches to it for good. Returns nullptr, and
// has done nothing, if goexit0 must end gp.
// On: user.  P: needed; m.locks is 1, then 0 unless it returns nullptr.
// Locks: takes kStack, kGFree, sched.lock.  Parks: no.
GUMP_NO_SANITIZE G* endDirectly(G* gp, M* mp) {
  if (kSanitizerBuild || gp->careful || gp->special || mayTrace()) {
    return nullptr;
  }
  if (mp->p == nullptr || mp->p->records.load(relaxed) != 0) return nullptr;
  // goexit0 reports exceptions in flight.
  const EhGlobals* eh = mp->eh;
  if (eh->caughtExceptions != nullptr || eh->uncaughtExceptions != 0) {
    return nullptr;
  }
  P* pp = mp->p;
  const uintptr_t lo = gp->stack.lo;
  if (!stackLend(pp, gp)) return nullptr;
  G* next = directNext(mp);
  if (next == nullptr) {
    stackTakeBack(pp, gp);
    return nullptr;
  }
  *mp->eh = next->eh;
  *mp->errnoAddr = next->savedErrno;
  if (next->stack.lo != lo) {
    gumpSwitch(gp, next, endCommit);
    __builtin_unreachable();
  }
  setg(next);
  endCommit(gp, mp);
  next->sched.fresh = 0;
  startFpModes();
  mp->locks.store(0, release);  // preemptible from here on
  return next;
}

}  // namespace

GUMP_NO_SANITIZE void goexit1() {
  G* gp = getg();
  destroyClosure(gp);
  // A destructor of main's, after its function has returned.
  if (GUMP_UNLIKELY(gp->mainReturned)) traceMainEnds();
  (void)acquirem();  // may park here; gumpMcall is the last switch
  gumpMcall(goexit0);
  __builtin_unreachable();
}

namespace {
// beginCarefully does what a goroutine needs before its function runs only if
// it is `careful`.
// On: user.  P: needed.  Locks: none.  Parks: no.
GUMP_NOINLINE void beginCarefully(G* gp) {
  if (sanitizerOfProgram()) {
    gp->special = true;
    sanitizerAnnounceNewG(gp, gp->m);
  }
  if (gp->goid == kMainGoid) {
    traceMainBegins();
    traceFromEnv();
    mainBegins(gp);
  }
}

// endAfterRun ends gp, whose function has returned. It returns only if a
// goroutine that has not begun goes on in the frame of the caller, and then
// that one (endDirectly). Not inlined: what it needs on the stack would lie
// below every goroutine, and the lines that a switch touches would be others.
// On: user.  P: needed.  Locks: none held.  Parks: yes.
GUMP_NOINLINE GUMP_NO_SANITIZE G* endAfterRun(G* gp) {
  const bool main = gp->careful && gp->goid == kMainGoid;
  // Before the destructors: one of them may call Goexit.
  if (GUMP_UNLIKELY(main)) gp->mainReturned = true;
  destroyClosure(gp);
  // Not earlier: a destructor may stop the trace, or wait for a goroutine that
  // does.
  if (GUMP_UNLIKELY(main)) traceMainEnds();
  G* next = endDirectly(gp, acquirem());  // acquirem may park here
  if (next == nullptr) {
    gumpMcall(goexit0);
    __builtin_unreachable();
  }
  return next;
}
}  // namespace

// This is deliberately not noexcept and has no handler. So the search for the
// handler of an uncaught exception ends at gumpGostart, where the unwind
// information says "end of stack", before a single frame is unwound. Then the
// terminate handler can print the stack of the throw.
// Like goexit1 it never returns. If the two were instrumented, each goroutine
// would leave their two frames behind in ThreadSanitizer's shadow call stack,
// and the next goroutine on the same stack would find them there.
GUMP_NO_SANITIZE void gumpGoroutineMain(G* gp) {
  for (;;) {
    const FuncType* ft = gp->fn;
    if (GUMP_UNLIKELY(gp->careful)) beginCarefully(gp);
    ft->run(gp->closure);
    gp = endAfterRun(gp);
  }
}

void goexit() {
  G* gp = getg();
  if (gp == nullptr || gp->foreign) {
    fatal("runtime.Goexit called on a thread that is not a goroutine");
  }
  if (inThreadHook(gp->m)) dieInThreadHook();
  auto* e =
      static_cast<_Unwind_Exception*>(std::malloc(sizeof(_Unwind_Exception)));
  if (e == nullptr) fatalAll("out of memory");
  *e = _Unwind_Exception();
  e->exception_cleanup = goexitCaught;
  gp->goexited = true;
  sanitizerUnwinding();
  _Unwind_ForcedUnwind(e, goexitStop, nullptr);
  fatalthrow("goexit: unwinding failed");
}

}  // namespace gump::rt
