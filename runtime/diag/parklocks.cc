// The lock functions of libc are watched through the import slots of all
// modules (runtime/sys/import_slots.h). So a program without the setting pays
// nothing. The locks of the runtime and of libc do not count, because calls of
// them go through no slot.
//
// A HeldLock stands for a lock that a goroutine holds. The goroutine's thread
// makes it when the lock function has succeeded, and removes it before it calls
// the unlock function. A goroutine that has made one is `special`, so it parks
// and yields by the slow paths, and those look for its entries. The fast paths
// know nothing of this.
//
// A goroutine leaves its thread in four ways:
//  * a park;
//  * a yield, asked for by the program or by the scheduler;
//  * a wait for a P behind a declared call;
//  * a visit of a runtime::Thread.
// After each of these it may continue on another thread, and would unlock there
// a lock that it has taken here. (A goroutine that is preempted in place keeps
// its thread. A wait for a condition variable of pthread is a wait in the
// kernel, also on the same thread.)
//
//  (PL1) The watch must not park, because the goroutine has a lock. So it does
//        not enter the runtime, and takes its own lock inside acquiremNoPark.
//  (PL2) It does nothing if m.locks > 0: in code of the runtime, and in a
//        signal handler that interrupts the watch itself.
//  (PL3) It does nothing on plain threads and on g0, and nothing in a child of
//        fork, where the holder of its lock may not exist. A handler of
//        pthread_atfork may run in the child before ours, so it compares
//        process ids.
//  (PL4) The stack is walked before the lock function is called. The unwinder
//        may take a pthread mutex, which could be the one that is locked.
//  (PL5) There is no protocol between threads beyond a lock, and so no model.
//        All entries lie under heldLock. `held` saves taking that lock: a
//        goroutine that has an entry has counted it itself, and a goroutine
//        that unlocks a lock for another one is ordered behind that one by the
//        program. So neither reads 0 while the entry is there. G::special is
//        written by the goroutine itself. The slots are set before the program
//        has threads of the library.
//
// Rejected: a count of locks for each thread. A goroutine that continues on
// another thread would leave its count behind, and the next goroutine of the
// thread would be blamed.
#include "runtime/diag/parklocks.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <iterator>

#include "absl/base/thread_annotations.h"
#include "gump/internal/linkname_pprof.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/traceback.h"
#include "runtime/diag/unwind.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/import_slots.h"
#include "runtime/sys/keep_errno.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/print.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace parklocks {
namespace {

enum class Kind : uint8_t { kMutex, kRead, kWrite };

// HeldLock is a lock that a goroutine holds, and the stack that has locked it.
struct HeldLock {
  static constexpr uint32_t kMaxStack = 32;

  HeldLock* next;
  const void* lock;
  uint64_t goid;
  Kind kind;
  uint32_t n;
  uintptr_t pcs[kMaxStack];
};

constexpr size_t kLockChains = 256;
constexpr size_t kMaxSeen = 4096;

Mutex heldLock{LockRank::kLeaf};
HeldLock* chains[kLockChains] ABSL_GUARDED_BY(heldLock);  // by goid
HeldLock* freeEntries ABSL_GUARDED_BY(heldLock);
// Hashes of what has been reported: of pairs of stacks, and of pairs of places.
uint64_t seen[kMaxSeen] ABSL_GUARDED_BY(heldLock);
size_t nseen ABSL_GUARDED_BY(heldLock);
Atomic<int64_t> held;  // entries in chains; a hint, but for their owner

#if defined(GUMP_TSAN)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// probe is the lock with which parklocksinit tries the watch.
pthread_mutex_t probe = PTHREAD_MUTEX_INITIALIZER;
Atomic<bool> probed;
Atomic<bool> watching;

// watched returns the goroutine of the caller if its locks are watched, or
// nullptr: (PL2) and (PL3).
G* watched() {
  if (!watching.load(relaxed)) return nullptr;
  G* gp = getg();
  if (gp == nullptr || gp->foreign) return nullptr;
  M* mp = gp->m;
  if (gp == &mp->g0 || mp->locks.load(relaxed) != 0) return nullptr;
  return inOwnProcess() ? gp : nullptr;
}

// NoPark brackets code that takes heldLock (PL1).
class NoPark {
 public:
  explicit NoPark(M* mp) : mp_(mp), lost_(acquiremNoPark(mp)) {}
  ~NoPark() {
    if (lost_) markPLost(mp_);
    releasem(mp_);
  }
  NoPark(const NoPark&) = delete;
  NoPark& operator=(const NoPark&) = delete;

 private:
  M* const mp_;
  const bool lost_;
};

// The functions that take heldLock are called inside of a NoPark, or with
// m.locks raised.
HeldLock* takeFree() {
  lock(&heldLock);
  HeldLock* e = freeEntries;
  if (e != nullptr) freeEntries = e->next;
  unlock(&heldLock);
  return e != nullptr ? e : persistentallocOf<HeldLock>();
}

// tookLock notes that gp has locked l.
GUMP_NOINLINE void tookLock(G* gp, const void* l, Kind kind, const Frames& at) {
  const NoPark hold(gp->m);
  HeldLock* e = takeFree();
  if (e == nullptr) return;  // no memory: this lock is not watched
  e->lock = l;
  e->goid = gp->goid;
  e->kind = kind;
  e->n = std::min(at.kept, HeldLock::kMaxStack);
  std::memcpy(e->pcs, at.pcs, e->n * sizeof(e->pcs[0]));
  lock(&heldLock);
  HeldLock** chain = &chains[gp->goid % kLockChains];
  e->next = *chain;
  *chain = e;
  unlock(&heldLock);
  held.add(1, relaxed);
  gp->special = true;
}

// takeHeldLock unlinks the first entry of a chain that is for l and, if goid is
// not 0, of that goroutine.
HeldLock* takeHeldLock(HeldLock** chain, const void* l, uint64_t goid) {
  for (HeldLock** at = chain; *at != nullptr; at = &(*at)->next) {
    HeldLock* e = *at;
    if (e->lock != l || (goid != 0 && e->goid != goid)) continue;
    *at = e->next;
    return e;
  }
  return nullptr;
}

// gaveLock notes that gp unlocks l, which another goroutine may have locked.
GUMP_NOINLINE void gaveLock(const G* gp, const void* l)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // takeHeldLock
  if (held.load(relaxed) == 0) return;
  const NoPark hold(gp->m);
  lock(&heldLock);
  HeldLock* e = takeHeldLock(&chains[gp->goid % kLockChains], l, gp->goid);
  for (size_t i = 0; e == nullptr && i < kLockChains; i++) {
    e = takeHeldLock(&chains[i], l, /*goid=*/0);
  }
  if (e != nullptr) {
    e->next = freeEntries;
    freeEntries = e;
  }
  unlock(&heldLock);
  if (e != nullptr) held.add(-1, relaxed);
}

// ---- The functions in the slots

constexpr size_t kNumFunctions = 14;
Atomic<void*> originals[kNumFunctions];

// lockFunction is the replacement of a function that locks.
template <size_t I, Kind kKind, class L, class... A>
int lockFunction(L* l, A... args) {
  const auto original =
      reinterpret_cast<int (*)(L*, A...)>(originals[I].load(relaxed));
  G* gp = watched();
  if (gp == nullptr) {
    if (static_cast<const void*>(l) == &probe) probed.store(true, relaxed);
    return original(l, args...);
  }
  Frames here;
  {
    const KeepErrno keep;
    walkHere(&here);  // (PL4)
  }
  const int result = original(l, args...);
  if (result == 0 || result == EOWNERDEAD) {
    const KeepErrno keep;
    tookLock(gp, l, kKind, here);
  }
  return result;
}

// unlockFunction is the replacement of a function that unlocks.
template <size_t I, class L>
int unlockFunction(L* l) {
  const auto original =
      reinterpret_cast<int (*)(L*)>(originals[I].load(relaxed));
  if (const G* gp = watched()) {
    const KeepErrno keep;
    gaveLock(gp, l);
  }
  return original(l);
}

using When = const timespec*;
using Mu = pthread_mutex_t;
using Rw = pthread_rwlock_t;

template <class F>
void* address(F* f) {
  return reinterpret_cast<void*>(f);
}

bool redirect() {
  const Import imports[kNumFunctions] = {
      {"pthread_mutex_lock", address(lockFunction<0, Kind::kMutex, Mu>),
       &originals[0]},
      {"pthread_mutex_trylock", address(lockFunction<1, Kind::kMutex, Mu>),
       &originals[1]},
      {"pthread_mutex_timedlock",
       address(lockFunction<2, Kind::kMutex, Mu, When>), &originals[2]},
      {"pthread_mutex_clocklock",
       address(lockFunction<3, Kind::kMutex, Mu, clockid_t, When>),
       &originals[3]},
      {"pthread_mutex_unlock", address(unlockFunction<4, Mu>), &originals[4]},
      {"pthread_rwlock_rdlock", address(lockFunction<5, Kind::kRead, Rw>),
       &originals[5]},
      {"pthread_rwlock_tryrdlock", address(lockFunction<6, Kind::kRead, Rw>),
       &originals[6]},
      {"pthread_rwlock_timedrdlock",
       address(lockFunction<7, Kind::kRead, Rw, When>), &originals[7]},
      {"pthread_rwlock_clockrdlock",
       address(lockFunction<8, Kind::kRead, Rw, clockid_t, When>),
       &originals[8]},
      {"pthread_rwlock_wrlock", address(lockFunction<9, Kind::kWrite, Rw>),
       &originals[9]},
      {"pthread_rwlock_trywrlock", address(lockFunction<10, Kind::kWrite, Rw>),
       &originals[10]},
      {"pthread_rwlock_timedwrlock",
       address(lockFunction<11, Kind::kWrite, Rw, When>), &originals[11]},
      {"pthread_rwlock_clockwrlock",
       address(lockFunction<12, Kind::kWrite, Rw, clockid_t, When>),
       &originals[12]},
      {"pthread_rwlock_unlock", address(unlockFunction<13, Rw>),
       &originals[13]},
  };
  return !redirectImports(imports, kNumFunctions).defined_by_program;
}

// ---- Reports

using Name = char[FrameText::kMaxName];

// isLibraryFunction returns true for functions of the standard library and of
// this one, such as std::lock_guard and time::Sleep. Compilers inline them, or
// not. The place is in their caller.
bool isLibraryFunction(const char* name) {
  static constexpr const char* kPrefixes[] = {
      "std::",         "__gth",        "pthread_",        "gump::runtime::",
      "gump::sync::",  "gump::time::", "gump::context::", "gump::net::",
      "gump::os::",    "gump::rate::", "gump::exec::",    "gump::signal::",
      "gump::select<", "gump::Scope::"};
  return std::any_of(
      std::begin(kPrefixes), std::end(kPrefixes),
      [&](const char* p) { return strncmp(name, p, strlen(p)) == 0; });
}

// placeOf returns the address of the innermost frame of the program, and writes
// the name of its function to *name.
uintptr_t placeOf(const uintptr_t* pcs, uint32_t n, Name* name) {
  for (uint32_t i = 0; i < n; i++) {
    (*name)[symbolText(pcs[i], *name, sizeof(*name) - 1)] = '\0';
    if (!hidesFromUsers(*name) && !isLibraryFunction(*name)) return pcs[i];
  }
  strcpy(*name, "?");
  return n > 0 ? pcs[0] : 0;
}

uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15;
  return h ^ h >> 32;
}

uint64_t hashOf(uint64_t h, const uintptr_t* pcs, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) h = mix(h, pcs[i]);
  return h;
}

// isNew returns true if hash has not been seen, and notes it. When the table is
// full, nothing is new any more.
bool isNew(uint64_t hash) {
  lock(&heldLock);
  const bool known = std::find(seen, seen + nseen, hash) != seen + nseen;
  const bool added = !known && nseen < kMaxSeen;
  if (added) seen[nseen++] = hash;
  unlock(&heldLock);
  return added;
}

const char* nameOf(Kind kind) {
  switch (kind) {
    case Kind::kMutex:
      return "a mutex";
    case Kind::kRead:
      return "an rwlock for reading";
    case Kind::kWrite:
      return "an rwlock for writing";
  }
  return "?";
}

void printStack(Writer* w, const char* title, const uintptr_t* pcs,
                uint32_t n) {
  print(w, "%s at:\n", title);
  for (uint32_t i = 0; i < n; i++) {
    printFrame(w, pcs[i], /*level=*/1, /*known=*/nullptr);
  }
}

void report(const HeldLock& e, const Frames& here, uint64_t goid,
            const char* verb, const char* reason) {
  if (!isNew(hashOf(hashOf(1, e.pcs, e.n), here.pcs, here.kept))) return;
  const StandardHold hold;  // absl opens the modules, and keeps one open
  Name locked;
  Name leaves;
  const uintptr_t lockPlace = placeOf(e.pcs, e.n, &locked);
  const uintptr_t leavePlace = placeOf(here.pcs, here.kept, &leaves);
  if (!isNew(mix(mix(2, lockPlace), leavePlace))) return;
  // One write, so that reports of several threads do not mix.
  constexpr size_t kSize = 64 << 10;
  char few[256];
  char* text = static_cast<char*>(sysReserve(kSize));
  Writer w{.buf = text != nullptr ? text : few,
           .cap = text != nullptr ? kSize : sizeof(few),
           .fd = kStderr};
  print(&w,
        "parklocks: %s has locked %s (%p), and %s %s [%s], in goroutine %U\n",
        locked, nameOf(e.kind), e.lock, leaves, verb, reason, goid);
  printStack(&w, "locked", e.pcs, e.n);
  printStack(&w, verb, here.pcs, here.kept);
  print(&w, "\n");
  flush(&w);
  if (text != nullptr) sysFree(text, kSize);
}

}  // namespace
}  // namespace parklocks

GUMP_NOINLINE void reportHeldLocks(const G* gp, const char* verb,
                                   const char* reason) {
  using namespace parklocks;
  if (held.load(relaxed) == 0) return;  // our own entries are not missed
  constexpr size_t kMost = 4;
  HeldLock mine[kMost];
  size_t n = 0;
  lock(&heldLock);
  for (const HeldLock* e = chains[gp->goid % kLockChains];
       e != nullptr && n < kMost; e = e->next) {
    if (e->goid == gp->goid) mine[n++] = *e;
  }
  unlock(&heldLock);
  if (n == 0) return;
  // Not KeepErrno: this thread keeps the goroutine, and the address is known.
  int* const at = gp->m->errnoAddr;
  const int savedErrno = *at;
  Frames here;
  walkHere(&here);
  for (size_t i = 0; i < n; i++) report(mine[i], here, gp->goid, verb, reason);
  *at = savedErrno;
}

GUMP_NOINLINE void parklocksinit() {
  using namespace parklocks;
  if (debug.parklocks != 1) return;
  const char* why = nullptr;
  if (kThreadSanitizer) {
    why = "ThreadSanitizer watches the locks itself";
  } else if (!redirect()) {
    why = "the program, or its sanitizer, defines the lock functions";
  } else {
    (void)pthread_mutex_lock(&probe);
    (void)pthread_mutex_unlock(&probe);
    if (!probed.load(relaxed)) why = "the program is linked statically";
  }
  if (why != nullptr) {
    debug.parklocks = 0;
    printf("gump: GODEBUG=parklocks=1 has no effect: %s\n", why);
    return;
  }
  watching.store(true, relaxed);  // threads that know no G do not care
}

}  // namespace gump::rt
