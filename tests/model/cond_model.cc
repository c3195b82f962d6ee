// The table of goroutines that wait for condition variables of pthread
// (api/hooks/cond_table.cc), between plain threads. A sync::Mutex is in the
// place of pthread's.
#include <optional>

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
// A waiter lies on the stack of its goroutine. The goroutine uses that memory
// for other things as soon as it is awake.
std::optional<CondWaiter> waiters[2];

// takeToken waits for a token, as a client does.
void takeToken(int self) {
  mutex.Lock();
  while (tokens == 0) {
    waiters[self].emplace(&cond);
    mutex.Unlock();
    waiters[self]->Wait();
    waiters[self].reset();
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

void nobodyWaits() {
  check(!hooks::CondIsAwaited(&cond), "a waiter is left in the table");
}

const Registered kSignal({
    .name = "cond_signal",
    .about = "condition variables of hooks: two wait, and two signals come",
    .common =
        rt::forkinit,  // a signaller asks whether it is in a child of fork
    .setup =
        [] {
          plainThread("a", [] { takeToken(0); });
          plainThread("b", [] { takeToken(1); });
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
          nobodyWaits();
        },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

const Registered kAll({
    .name = "cond_all",
    .about = "the same, and one signal for all",
    .common =
        rt::forkinit,  // a signaller asks whether it is in a child of fork
    .setup =
        [] {
          plainThread("a", [] { takeToken(0); });
          plainThread("b", [] { takeToken(1); });
          plainThread("signal", [] {
            mutex.Lock();
            tokens = 2;
            mutex.Unlock();
            CondSignalled(&cond, /*all=*/true);
          });
        },
    .finish = nobodyWaits,
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

// waitForLimit waits once. Returns true if it was signalled.
bool waitForLimit(int self) {
  waiters[self].emplace(&cond);
  mutex.Unlock();
  const bool woken = waiters[self]->WaitUntil(
                         rt::semaDeadline(rt::SemaReason::kCondWait, kLimit)) ||
                     !waiters[self]->Leave();
  waiters[self].reset();
  mutex.Lock();
  return woken;
}

// There is one token and one signal. A waiter that is told that its time is
// over leaves both to the other. One that gets the token passes it on.
const Registered kTimed({
    .name = "cond_timed",
    .about = "a waiter whose time is over does not use up a signal",
    .common =
        rt::forkinit,  // a signaller asks whether it is in a child of fork
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
    .finish = nobodyWaits,
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

}  // namespace
}  // namespace gump::model
