// Hooked waits for condition variables of pthread and of C11.
//
// A goroutine of a home does not wait in libc's condition variable, but in a
// table of the hooks (cond_table.cc).
//
// A waiter that holds another lock besides the mutex stays (H1): it waits in
// libc, and S1 wakes it. If the variable is shared with other processes, the
// waiter stays, too, because those know nothing of the table.
#include <pthread.h>
#include <threads.h>

#include <algorithm>

#include "api/hooks/cond_table.h"
#include "api/hooks/wait.h"
#include "gump/internal/linkname_time.h"

namespace gump::hooks {
namespace {

// Signalled is S2 and S3 of cond_table.cc.
void Signalled(const void* cond, bool all) {
  const ErrnoGuard guard;
  CondSignalled(cond, all);
  (void)guard.Return(0);
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
  CondWaiter waiter(cond);
  int result = unlock(mutex);
  if (result != 0) {  // it is not ours
    if (!waiter.Leave()) Signalled(cond, /*all=*/false);
    return result;
  }
  ThreadState* s = interposer->self();
  s->locks = 0;
  if (t == nullptr) {
    waiter.Wait();
  } else {
    YieldIfAsked();  // the time may be over already
    bool woken = false;
    while (!woken && !IsOver(clock, *t)) {
      woken = waiter.WaitUntil(TimeOf(clock, *t));
    }
    if (!woken && waiter.Leave()) result = ETIMEDOUT;
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
