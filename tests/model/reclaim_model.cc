// The reclamation cycle (runtime/reclaim.cc) against those whose stacks it
// gives back: who wakes a goroutine waits for the scan bit, or nobody sets one.
#include "gump/internal/linkname.h"
#include "runtime/proc.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

rt::Hchan* c;

// Two goroutines take turns in parking.
int turns;
void send() {
  for (int i = 0; i < turns; i++) (void)rt::chansend(c, nullptr, true);
}
void receive() {
  for (int i = 0; i < turns; i++) (void)rt::chanrecv(c, nullptr, true);
}

// One is parked, and there has been a cycle before, so that its workers are
// there.
void setUpParked(int n) {
  turns = n;
  setUpScheduler();
  onPlainThread([] {
    static constexpr rt::ElemType kEmpty = {};
    c = rt::makechan(&kEmpty, 0);
  });
  plainThread("before", [] { startG(rt::runtimeGC); });
  settle();
  check(ran.load(rt::relaxed) == 1, "no cycle");
  ran.store(0, rt::relaxed);
  plainThread("park", [] { startG(receive); });
  settle();
}

const Registered kPlain({
    .name = "reclaim_plain",
    .about = "a plain thread's cycle, while goroutines park and are woken",
    .setup =
        [] {
          setUpParked(2);
          plainThread("cycle", rt::runtimeGC);
          plainThread("go", [] { startG(send); });
        },
    .finish = [] { allRan(2); },
    .delayable = ofSchedOrP,
    .hasty = false,
    .quick = {1, 1, 300},
    .full = {2, 1, 5000, 1},
});

const Registered kCycle({
    .name = "reclaim_cycle",
    .about = "a goroutine's cycle with a worker, while another is woken",
    .setup =
        [] {
          setUpParked(1);
          plainThread("cycle", [] { startG(rt::runtimeGC); });
          plainThread("go", [] { startG(send); });
        },
    .finish = [] { allRan(3); },
    .delayable = ofSchedOrP,
    .hasty = false,
    .quick = {1, 0, 300},
    .full = {2, 1, 5000, 1},
});

}  // namespace
}  // namespace gump::model
