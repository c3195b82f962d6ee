// The table of goroutines that wait for condition variables of pthread
// (api/hooks/cond_table.cc), between plain threads. A sync::Mutex is in the
// place of pthread's.
#include <new>

#include "api/hooks/cond_table.h"
#include "gump/internal/linkname.h"
#include "gump/internal/linkname_sync.h"
#include "gump/sync/mutex.h"
#include "runtime/sched/fork.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

using hooks::CondSignalled;
using hooks::CondWaiter;

constexpr int64_t kLimit = 1000;  // ns

sync::Mutex mutex;
char cond;  // only its address counts
int tokens;

// Place is a part of a goroutine's stack. A waiter lies in it during a wait,
// and the goroutine uses it for other things as soon as it is awake.
class Place {
 public:
  CondWaiter* Begin() { return new (bytes_) CondWaiter(&cond); }
  void End() {
    for (unsigned char& b : bytes_) b = kOther;
  }
  // Check finds out whether the place was written after the wait.
  void Check() const {
    const bool used = bytes_[0] != 0 || bytes_[sizeof(bytes_) - 1] != 0;
    for (unsigned char b : bytes_) {
      check(b == (used ? kOther : 0), "the signaller writes to a place in use");
    }
  }

 private:
  static constexpr unsigned char kOther = 0xee;
  alignas(CondWaiter) unsigned char bytes_[sizeof(CondWaiter)];
};
Place places[2];

// takeToken waits for a token, as a client does.
void takeToken(int self) {
  mutex.Lock();
  while (tokens == 0) {
    CondWaiter* w = places[self].Begin();
    mutex.Unlock();
    w->Wait();
    places[self].End();
    mutex.Lock();
  }
  tokens--;
  mutex.Unlock();
}

void putToken() {
  mutex.Lock();
  tokens++;
  mutex.Unlock();
}

void noWaiterIsLeft() {
  check(!hooks::CondIsAwaited(&cond), "a waiter is left in the table");
  for (const Place& p : places) p.Check();
}

// setUpWaiters makes two threads that wait for a token each.
void setUpWaiters() {
  plainThread("a", [] { takeToken(0); });
  plainThread("b", [] { takeToken(1); });
}

// A signaller asks whether it is in a child of fork. So the common part of
// these models is forkinit.

const Registered kSignal({
    .name = "cond_signal",
    .about = "condition variables of hooks: two wait, and two signals come",
    .common = rt::forkinit,
    .setup =
        [] {
          setUpWaiters();
          plainThread("signal", [] {
            for (int i = 0; i < 2; i++) {
              putToken();
              CondSignalled(&cond, /*all=*/false);
            }
          });
        },
    .finish =
        [] {
          check(tokens == 0, "a token is left");
          noWaiterIsLeft();
        },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

const Registered kAll({
    .name = "cond_all",
    .about = "the same, and one signal for all",
    .common = rt::forkinit,
    .setup =
        [] {
          setUpWaiters();
          plainThread("signal", [] {
            mutex.Lock();
            tokens = 2;
            mutex.Unlock();
            CondSignalled(&cond, /*all=*/true);
          });
        },
    .finish = noWaiterIsLeft,
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

// waitForLimit waits once. Returns true if it was signalled.
bool waitForLimit(int self) {
  CondWaiter* w = places[self].Begin();
  mutex.Unlock();
  const bool woken =
      w->WaitUntil(rt::semaDeadline(rt::SemaReason::kCondWait, kLimit)) ||
      !w->Leave();
  places[self].End();
  mutex.Lock();
  return woken;
}

// There is one token and one signal. A waiter that is told that its time is
// over leaves both to the other. One that gets the token passes it on.
const Registered kTimed({
    .name = "cond_timed",
    .about = "a waiter whose time is over does not use up a signal",
    .common = rt::forkinit,
    .setup =
        [] {
          plainThread("limit", [] {
            mutex.Lock();
            const bool got = tokens == 0 && waitForLimit(0) && tokens != 0;
            if (got) tokens--;
            mutex.Unlock();
            if (!got) return;
            putToken();
            CondSignalled(&cond, /*all=*/false);
          });
          plainThread("wait", [] { takeToken(1); });
          plainThread("signal", [] {
            putToken();
            CondSignalled(&cond, /*all=*/false);
          });
        },
    .finish = noWaiterIsLeft,
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

}  // namespace
}  // namespace gump::model
