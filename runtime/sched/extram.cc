// Foreign threads: a foreign thread that needs a G is lent a pseudo-G with an M
// of its own.
//
// The M never holds a P and never schedules. Where a goroutine would park, the
// thread sleeps on the M's note (proc_park.cc). The pair is bound to the thread
// through getg() until the thread ends. Then a TLS destructor of pthreads puts
// the pair on a free list. While a thread holds one, it may call us again at
// any time, so checkdead is silent, as Go is once a program uses C threads.
#include "runtime/sched/extram.h"

#include <pthread.h>

#include "runtime/diag/panic.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/gls.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// ExtraM is an M with the pseudo-G that runs on it.
struct ExtraM {
  M m;
  G g;
  ExtraM* next = nullptr;
};

Mutex extraLock{LockRank::kLeaf};
ExtraM* extraFree ABSL_GUARDED_BY(extraLock) = nullptr;
pthread_key_t extraKey;
pthread_once_t extraOnce = PTHREAD_ONCE_INIT;

void threadEnds(void* x) {
  auto* e = static_cast<ExtraM*>(x);
  if (e->g.gls != nullptr) glsDestroyAll(&e->g);
  // A child of fork has no other thread that could use the pair. Relaxed: only
  // this thread writes it.
  if (forked.load(relaxed)) return;
  dropm(&e->m);
}

void makeKey() {
  if (pthread_key_create(&extraKey, threadEnds) != 0) {
    fatalthrow("needm: no thread-specific key");
  }
}

ExtraM* newExtraM() {
  auto* e = persistentallocOf<ExtraM>();
  if (e == nullptr) fatalthrow("needm: out of memory");
  int64_t id;
  {
    LockScope l(&sched.lock);
    sched.nmextraAll++;
    id = sched.mnext++;
  }
  mcommoninit(&e->m, id);
  casgstatus(&e->g, kGidle, kGdead);
  e->g.foreign = true;
  e->g.special = true;
  return e;
}

}  // namespace

G* needm() {
  schedinit();
  pthread_once(&extraOnce, makeKey);
  ExtraM* e;
  {
    LockScope l(&extraLock);
    e = extraFree;
    if (e != nullptr) extraFree = e->next;
  }
  if (e == nullptr) e = newExtraM();
  M* mp = &e->m;
  G* gp = &e->g;
  mp->procid.store(gettid(), release);  // as minit
  mp->curg.store(gp, release);          // pairs with the acquire of traces
  gp->m = mp;
  gp->goid = sched.goidgen.add(1, relaxed);  // uniqueness is all that matters
  casgstatus(gp, kGdead, kGsyscall);
  casgstatus(gp, kGsyscall, kGrunning);
  {
    LockScope l(&sched.lock);
    sched.nmextra++;
  }
  setg(gp);
  // Otherwise we would not notice when the thread ends.
  if (pthread_setspecific(extraKey, e) != 0) {
    fatalthrow("needm: out of memory");
  }
  return gp;
}

void dropm(M* mp) {
  auto* e = reinterpret_cast<ExtraM*>(mp);  // m is its first member
  G* gp = mp->curg.load(relaxed);           // written by us
  mp->lockedExt = 0;  // the next thread has not locked anything
  if (!mp->gFree.empty()) gfpurgeForeign(mp);
  setg(nullptr);
  {
    LockScope l(&sched.lock);
    // Both at once, under the lock. In between, checkdead would take this
    // thread for one that has ended and is accounted for, although it lives on
    // and may wake a goroutine.
    casgstatus(gp, kGrunning, kGdead);
    mp->procid.store(0, release);  // the trace has named the thread
    sched.nmextra--;
    checkdead();  // it may have been the last thread that could wake a G
  }
  LockScope l(&extraLock);
  e->next = extraFree;
  extraFree = e;
}

void forEachForeign(void (*f)(G*, void*), void* arg) {
  for (M* mp = allm.load(acquire); mp != nullptr;
       mp = mp->alllink) {           // pairs with mcommoninit
    G* gp = mp->curg.load(acquire);  // pairs with needm
    if (gp != nullptr && gp->foreign) f(gp, arg);
  }
}

}  // namespace gump::rt
