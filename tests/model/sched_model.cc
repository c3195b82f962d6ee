// The scheduler as a whole: real Ms with their g0s, two Ps, goroutines on
// stacks of their own. Only the kernel is another, and there is no sysmon, so a
// wake-up that is lost is not repaired. Every schedule begins with all Ms
// asleep.
#include <cstdlib>

#include "gump/internal/linkname.h"
#include "runtime/netpoll.h"
#include "runtime/os_linux.h"
#include "runtime/proc.h"
#include "sysmon/retake.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

rt::Atomic<int> ran;
rt::Atomic<int> running;
rt::Note first, second;

void startG(void (*f)()) {
  static constexpr rt::FuncType kType = {
      [](void* closure) {
        running.add(1, rt::relaxed);
        (*static_cast<void (**)()>(closure))();
        running.add(-1, rt::relaxed);
        ran.add(1, rt::relaxed);
      },
      [](void*) {},
      [](void* dst, void* src) noexcept {
        *static_cast<void**>(dst) = *static_cast<void**>(src);
      }};
  check(rt::newproc(&kType, reinterpret_cast<void*>(&f), nullptr, 0) ==
            rt::SpawnResult::kOk,
        "newproc");
}

// setUpScheduler starts the runtime with two Ms, which have run something
// before, so that cells and stacks are at hand.
void setUpScheduler() {
  rt::gomaxprocs.store(0, rt::relaxed);
  setenv("GOMAXPROCS", "2", 1);
  rt::schedinit();
  rt::newm(nullptr, nullptr, -1);
  rt::newm(nullptr, nullptr, -1);
  rt::sched.nmextra = 8;  // plain threads may come at any time
  settle();
  plainThread("warm", [] {
    startG([] { rt::notesleep(&first); });
    startG([] { rt::notewakeup(&first); });
  });
  settle();
  rt::noteclear(&first);
  check(ran.load(rt::relaxed) == 2, "warming up");
  ran.store(0, rt::relaxed);
  nameWord(&rt::sched.nmspinning, "nmspinning");
  nameWord(&rt::sched.needspinning, "needspinning");
  nameWord(&rt::sched.npidle, "npidle");
  nameWord(&rt::sched.runqsize, "runqsize");
  nameWord(&rt::sched.lock, "sched.lock");
  nameWord(&rt::allp[0]->runnext, "P0.runnext");
  nameWord(&rt::allp[1]->runnext, "P1.runnext");
  nameWord(&rt::allp[0]->status, "P0.status");
  nameWord(&rt::allp[1]->status, "P1.status");
}

// allRan: n goroutines have ended, and everything is idle again.
void allRan(int n) {
  check(ran.load(rt::relaxed) == n, "a goroutine has not run");
  check(rt::sched.npidle.load(rt::relaxed) == 2, "a P is not idle");
  check(rt::sched.nmspinning.load(rt::relaxed) == 0, "somebody spins asleep");
  check(rt::sched.runq.empty(), "the global queue is not empty");
}

const Registered kWake({
    .name = "sched_wake",
    .about = "two plain threads start a goroutine each; two Ms",
    .setup =
        [] {
          setUpScheduler();
          plainThread("go0", [] { startG([] {}); });
          plainThread("go1", [] { startG([] {}); });
        },
    .finish = [] { allRan(2); },
    .quick = {1, 0, 300},
    .full = {2, 0, 5000},
});

// The goroutine that starts another keeps its M: the other one must be stolen,
// by somebody who may be on his way to sleep.
const Registered kSteal({
    .name = "sched_steal",
    .about = "a goroutine starts another and waits for it on its M",
    .setup =
        [] {
          setUpScheduler();
          plainThread("go", [] {
            startG([] {
              startG([] { rt::notewakeup(&first); });
              rt::notesleep(&first);
            });
          });
        },
    .finish = [] { allRan(2); },
    .quick = {2, 0, 300},
    .full = {3, 0, 5000},
});

}  // namespace
}  // namespace gump::model
