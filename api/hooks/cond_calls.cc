// Hooked waits for condition variables of pthread and of C11.
//
// A goroutine of a home does not wait in libc's condition variable. It has an
// entry under the variable's address in a table of the hooks:
//
//   waiter (on a home)                  signaller (any thread)
//     C1  the bucket's waiters++          S1  libc's signal
//     C2  entry into the table            S2  no waiters? done
//     C3  unlock the mutex (libc)         S3  take one entry, or all, out of
//     C4  park                                the table, and wake them
//     C5  out of the table, if still in
//     C6  lock the mutex (libc)
//
// No wake-up is lost. By POSIX, a thread counts as waiting for a thread that
// takes the mutex after the waiter has given it back. Such a signaller comes
// after C3, so S2 sees C1, and S3 finds the entry of C2. A
// signal wakes one thread that waits in libc and one entry, so one waiter more
// than it must. POSIX allows that.
//
// A signal is not used up by a waiter whose time is over: C5 is under the lock
// of the table. If the entry is gone, a signaller has taken it, and the waiter
// returns 0.
//
// After S3 the signaller does not touch the variable, so the waiter may destroy
// it.
//
// A waiter that holds another lock besides the mutex stays (H1): it waits in
// libc, and S1 wakes it. If the variable is shared with other processes, the
// waiter stays, too, because those know nothing of the table.
#include <pthread.h>
#include <threads.h>

#include <algorithm>

#include "api/hooks/wait.h"
#include "gump/internal/linkname_time.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sys/lock_futex.h"

namespace gump::hooks {
namespace {

// ---- The table --------------------------------------------------------------

// Entry is a goroutine that waits. It lies on its stack.
struct Entry {
  const void* cond = nullptr;
  Entry* next = nullptr;
  Entry* prev = nullptr;
  bool queued = false;            // like the links, under the bucket's lock
  rt::Atomic<uint32_t> woken{0};  // a semaphore
};

struct alignas(64) Bucket {
  // Guards the list of entries. Forbidden while holding it: malloc, readying a
  // goroutine.
  rt::Mutex lock{rt::LockRank::kLeaf};
  rt::Atomic<int64_t> waiters;
  Entry* first = nullptr;  // in order of arrival
  Entry* last = nullptr;
};
constexpr size_t kBuckets = 251;
constinit Bucket buckets[kBuckets];

Bucket* BucketOf(const void* cond) {
  return &buckets[(reinterpret_cast<uintptr_t>(cond) >> 4) % kBuckets];
}

void Link(Bucket* b, Entry* e) {
  e->queued = true;
  e->next = nullptr;
  e->prev = b->last;
  (b->last == nullptr ? b->first : b->last->next) = e;
  b->last = e;
}

void Unlink(Bucket* b, Entry* e) {
  e->queued = false;
  (e->prev == nullptr ? b->first : e->prev->next) = e->next;
  (e->next == nullptr ? b->last : e->next->prev) = e->prev;
}

// IsAwaited returns true if an entry of b waits for cond.
bool IsAwaited(Bucket* b, const void* cond) {
  const rt::LockScope l(&b->lock);
  for (const Entry* e = b->first; e != nullptr; e = e->next) {
    if (e->cond == cond) return true;
  }
  return false;
}

// DieIfInThreadHook ends the process if the caller is a thread hook of the
// program. A hook can ready no goroutine, so its signal would be lost.
void DieIfInThreadHook(Bucket* b, const void* cond) {
  const rt::G* gp = rt::getg();
  if (!rt::inOwnProcess() || gp == nullptr || !rt::inThreadHook(gp->m)) return;
  if (IsAwaited(b, cond)) rt::dieInThreadHook();
}

// Signalled is S2 and S3.
void Signalled(const void* cond, bool all) {
  Bucket* b = BucketOf(cond);
  if (b->waiters.load(rt::seq_cst) == 0) return;
  const ErrnoGuard guard;
  Entry* taken = nullptr;
  Entry** end = &taken;
  const Waking here;
  if (here.inside()) return DieIfInThreadHook(b, cond);
  rt::lock(&b->lock);
  for (Entry *e = b->first, *next; e != nullptr; e = next) {
    next = e->next;
    if (e->cond != cond) continue;
    Unlink(b, e);
    e->next = nullptr;
    *end = e;
    end = &e->next;
    if (!all) break;
  }
  rt::unlock(&b->lock);
  while (taken != nullptr) {
    Entry* e = taken;
    taken = e->next;  // e is gone when it is awake
    rt::semrelease(&e->woken, /*handoff=*/false);
  }
  (void)guard.Return(0);
}

// ---- Waiting ----------------------------------------------------------------

// Enter is C1 and C2.
void Enter(Entry* e) {
  Bucket* b = BucketOf(e->cond);
  b->waiters.add(1, rt::seq_cst);
  const Waking here;
  rt::lock(&b->lock);
  Link(b, e);
  rt::unlock(&b->lock);
}

// Leave is C5. Returns true if no signaller has taken e.
bool Leave(Entry* e) {
  bool queued;
  {
    const Waking here;
    Bucket* b = BucketOf(e->cond);
    rt::lock(&b->lock);
    queued = e->queued;
    if (queued) Unlink(b, e);
    rt::unlock(&b->lock);
  }
  if (!queued) {
    rt::semacquire(&e->woken, /*lifo=*/false, rt::SemaReason::kCondWait);
  }
  BucketOf(e->cond)->waiters.add(-1, rt::relaxed);
  return queued;
}

// TimeOf returns when the clock will show t, on the clock of semacquireUntil,
// but at most ten seconds from now, in case that the clock is set.
int64_t TimeOf(clockid_t clock, const timespec& t) {
  constexpr int64_t kMost = 10'000'000'000;
  timespec now{};
  (void)clock_gettime(clock, &now);
  int64_t ns = kMost;
  if (t.tv_sec - now.tv_sec < 10) {
    ns = (t.tv_sec - now.tv_sec) * 1'000'000'000 + t.tv_nsec - now.tv_nsec;
  }
  return rt::semaDeadline(rt::SemaReason::kCondWait, std::max<int64_t>(ns, 0));
}

bool IsOver(clockid_t clock, const timespec& t) {
  timespec now{};
  (void)clock_gettime(clock, &now);
  return now.tv_sec > t.tv_sec ||
         (now.tv_sec == t.tv_sec && now.tv_nsec >= t.tv_nsec);
}

// ParkOn is C1 to C6. Returns 0 or ETIMEDOUT. t may be nullptr. The caller has
// one lock, that of `mutex`.
template <class Mutex>
int ParkOn(const void* cond, Mutex* mutex, int (*unlock)(Mutex*),
           int (*lock)(Mutex*), clockid_t clock, const timespec* t) {
  const ErrnoGuard guard;
  Entry e;
  e.cond = cond;
  Enter(&e);
  int result = unlock(mutex);
  if (result != 0) {  // it is not ours
    if (!Leave(&e)) Signalled(cond, /*all=*/false);
    return result;
  }
  ThreadState* s = interposer->self();
  s->locks = 0;
  if (t == nullptr) {
    rt::semacquire(&e.woken, /*lifo=*/false, rt::SemaReason::kCondWait);
    BucketOf(cond)->waiters.add(-1, rt::relaxed);
  } else {
    bool woken = false;
    while (!woken && !IsOver(clock, *t)) {
      woken = rt::semacquireUntil(&e.woken, /*lifo=*/false,
                                  rt::SemaReason::kCondWait, TimeOf(clock, *t));
    }
    if (woken) {
      BucketOf(cond)->waiters.add(-1, rt::relaxed);
    } else if (Leave(&e)) {
      result = ETIMEDOUT;
    }
  }
  const int err = lock(mutex);
  s->locks = err == 0 || err == EOWNERDEAD ? 1 : 0;
  s->held[0] = mutex;
  (void)guard.Return(0);
  return err != 0 ? err : result;
}

// glibc keeps these two properties of a condition variable in a field that its
// header shows.
constexpr unsigned kShared = 1;
constexpr unsigned kMonotonic = 2;
unsigned PropertiesOf(const pthread_cond_t* c) {
  return __atomic_load_n(&c->__data.__wrefs, __ATOMIC_RELAXED);
}

bool IsTime(const timespec* t) {
  return t->tv_nsec >= 0 && t->tv_nsec < 1'000'000'000;
}

// MayPark tells whether the caller holds one lock, which is the mutex of the
// wait, and is clean otherwise.
bool MayPark(const void* mutex) {
  ThreadState* s = interposer->self();
  if (s->locks != 1 || s->held[0] != mutex) return false;
  s->locks = 0;
  const bool clean = Clean();
  s->locks = 1;
  return clean;
}

// WaitOn is the common part of pthread's three functions. block is libc's call.
template <class Block>
int WaitOn(pthread_cond_t* c, pthread_mutex_t* m, clockid_t clock,
           const timespec* t, Block block) {
  const Way way = WayHere();
  if (way == Way::kDirect || (t != nullptr && !IsTime(t))) return block();
  if (way == Way::kStay || !MayPark(m) || (PropertiesOf(c) & kShared) != 0) {
    return Stay(block);
  }
  return ParkOn(c, m, Libc().pthread_mutex_unlock, Libc().pthread_mutex_lock,
                clock, t);
}

int CondWait(pthread_cond_t* c, pthread_mutex_t* m) {
  return WaitOn(c, m, CLOCK_MONOTONIC, nullptr,
                [=] { return Libc().pthread_cond_wait(c, m); });
}

int CondTimedWait(pthread_cond_t* c, pthread_mutex_t* m, const timespec* t) {
  const bool monotonic = (PropertiesOf(c) & kMonotonic) != 0;
  return WaitOn(c, m, monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME, t,
                [=] { return Libc().pthread_cond_timedwait(c, m, t); });
}

int CondClockWait(pthread_cond_t* c, pthread_mutex_t* m, clockid_t clock,
                  const timespec* t) {
  const auto block = [=] {
    return Libc().pthread_cond_clockwait(c, m, clock, t);
  };
  if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME) return block();
  return WaitOn(c, m, clock, t, block);
}

// WaitC11 is the common part of the functions of C11. Their results are those
// of thrd_*.
template <class Block>
int WaitC11(cnd_t* c, mtx_t* m, const timespec* t, Block block) {
  const Way way = WayHere();
  if (way == Way::kDirect || (t != nullptr && !IsTime(t))) return block();
  if (way == Way::kStay || !MayPark(m)) return Stay(block);
  const int r =
      ParkOn(c, m, Libc().mtx_unlock, Libc().mtx_lock, CLOCK_REALTIME, t);
  if (r == ETIMEDOUT) return thrd_timedout;
  return r == 0 ? thrd_success : thrd_error;
}

int CndWait(cnd_t* c, mtx_t* m) {
  return WaitC11(c, m, nullptr, [=] { return Libc().cnd_wait(c, m); });
}

int CndTimedWait(cnd_t* c, mtx_t* m, const timespec* t) {
  return WaitC11(c, m, t, [=] { return Libc().cnd_timedwait(c, m, t); });
}

}  // namespace

void AddCondCalls(Table* t) {
  t->pthread_cond_wait = CondWait;
  t->pthread_cond_timedwait = CondTimedWait;
  t->pthread_cond_clockwait = CondClockWait;
  t->cnd_wait = CndWait;
  t->cnd_timedwait = CndTimedWait;
  t->signalled = Signalled;
}

}  // namespace gump::hooks
