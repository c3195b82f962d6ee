// Groups (runtime/sched/group.cc) on the whole scheduler: two or three Ps, and
// a group with one or two slots. In every schedule all goroutines must run, and
// never more at a time than there are slots. There is no sysmon, so a lost slot
// is not repaired.
#include "gump/internal/linkname.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

rt::Group* group;
rt::Atomic<int> inside;
int most = 1;  // how many goroutines of the group may run at a time

// visit checks that the caller, which is in the group, has a slot.
void visit() {
  rt::M* mp = rt::acquirem();
  check(inside.add(1, rt::relaxed) <= most, "too many goroutines run");
  inside.add(-1, rt::relaxed);
  rt::releasem(mp);
}

// startMember starts a goroutine of the group.
void startMember(void (*f)()) {
  rt::SpawnOptions options;
  options.group = rt::groupId(group);
  check(rt::newproc(&kType, reinterpret_cast<void*>(&f), &options, 0) ==
            rt::SpawnResult::kOk,
        "newproc");
}

void setUpGroupWith(const char* procs) {
  setUpSchedulerOf(procs);
  onPlainThread([] { group = rt::newGroup("", 0, 1); });
  check(group != nullptr, "newGroup");
  nameWord(&group->state, "state");
  nameWord(&group->queued, "queued");
  nameWord(&group->limit, "limit");
  nameWord(&inside, "inside");
}

void setUpGroup() { setUpGroupWith("2"); }
void setUpGroupOfThreePs() { setUpGroupWith("3"); }

bool ofSchedOrGroup(const void* addr) {
  return ofSchedOrP(addr) || reinterpret_cast<uintptr_t>(addr) -
                                     reinterpret_cast<uintptr_t>(group) <
                                 sizeof(rt::Group);
}

// allVisited: also, no slot is lost and no goroutine is left in the queue.
template <int n>
void allVisited() {
  allRan(n);
  check(group->state.load(rt::relaxed) == 0, "a slot is lost");
  check(group->queued.load(rt::relaxed) == 0, "queued");
  onPlainThread([] { check(rt::groupRunnable(group) == 0, "runnable"); });
}

// ---- Slots ------------------------------------------------------------------

// The schedule begins when one goroutine has the slot. It ends while another
// one begins.
void slot() {
  plainThread("go0", [] {
    startMember([] {
      rt::notesleep(&first);
      visit();
    });
  });
  settle();
  plainThread("go1", [] { startMember(visit); });
  plainThread("wake", [] { rt::notewakeup(&first); });
}

void yield() {
  plainThread("go", [] {
    startMember([] {
      visit();
      rt::gosched();
      visit();
    });
    startMember(visit);
  });
}

// Two slots and three goroutines. One of them yields while another one ends.
// The third keeps its slot until the first has run again, so that one must get
// the slot of the second.
void yieldOfTwo() {
  most = 2;
  plainThread("go", [] {
    rt::setGroupMaxProcs(group, 2);
    startMember([] {
      visit();
      rt::gosched();
      rt::notewakeup(&first);
    });
    startMember(visit);
    startMember([] { rt::notesleep(&first); });
  });
}

// The first goroutine parks. Another one, which is in no group, readies it
// while the second goroutine of the group runs.
rt::G* parked;

void park() {
  plainThread("go", [] {
    startMember([] {
      visit();
      (void)rt::acquirem();  // gopark ends it
      rt::gopark(
          [](rt::G* gp, void*) {
            parked = gp;
            rt::notewakeup(&first);
            return true;
          },
          nullptr, rt::WaitReason::kIOWait);
      visit();
    });
    startMember(visit);
  });
  plainThread("ready", [] {
    rt::notesleep(&first);
    rt::goready(parked);
  });
}

// The first goroutine is in a declared call while the second one runs, and
// comes back.
void call() {
  plainThread("go", [] {
    startMember([] {
      rt::entersyscall();
      rt::exitsyscall();
      visit();
    });
    startMember(visit);
  });
}

// The first goroutine keeps its slot until the second one has begun. So the
// second one must get the slot that is new.
void raise() {
  most = 2;
  plainThread("go", [] {
    startMember([] { rt::notesleep(&first); });
    startMember([] { rt::notewakeup(&first); });
  });
  plainThread("raise", [] { rt::setGroupMaxProcs(group, 2); });
}

// The first goroutine sleeps in a call that it has not declared, until the
// second one wakes it. So its P and its slot must be taken from it.
rt::Atomic<rt::G*> sleeper;

void taken() {
  plainThread("go", [] {
    startMember([] {
      sleeper.store(rt::getg(), rt::release);
      rt::notesleep(&first);
      visit();
    });
  });
  settle();
  plainThread("go1", [] {
    startMember([] {
      visit();
      rt::notewakeup(&first);
      visit();
    });
  });
  plainThread("asker", [] {
    rt::M* mp = rt::acquirem();
    for (int i = 0; i < 2; i++) {
      rt::P* pp = rt::allp[i];
      rt::M* holder = pp->m.load(rt::acquire);
      rt::G* gp = sleeper.load(rt::acquire);
      if (holder != nullptr && holder->curg.load(rt::acquire) == gp &&
          rt::presumeBlocked(pp, holder, gp)) {
        rt::handoffp(pp);
      }
    }
    rt::releasem(mp);
  });
}

// ---- The table --------------------------------------------------------------

Registered row(Model m, void (*common)() = setUpGroup) {
  m.common = common;
  m.delayable = ofSchedOrGroup;
  return Registered(m);
}

const Registered kModels[] = {
    row({.name = "group_slot",
         .about = "a goroutine leaves while another one finds the group full",
         .setup = slot,
         .finish = allVisited<2>,
         .quick = {1, 1, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "group_yield",
         .about = "two goroutines of a group, and one of them yields",
         .setup = yield,
         .finish = allVisited<2>,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "group_yield_two",
         .about = "two of three goroutines have slots, and one of them yields",
         .setup = yieldOfTwo,
         .finish = allVisited<3>,
         .quick = {1, 1, 300},
         .full = {1, 1, 5000}},
        setUpGroupOfThreePs),
    row({.name = "group_park",
         .about = "the same, and one of them parks and is readied",
         .setup = park,
         .finish = allVisited<2>,
         .quick = {1, 1, 300},
         .full = {1, 1, 5000}}),
    row({.name = "group_call",
         .about = "the same, and one of them makes a declared call",
         .setup = call,
         .finish = allVisited<2>,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "group_raise",
         .about = "a second slot is added while a goroutine waits for one",
         .setup = raise,
         .finish = allVisited<2>,
         .quick = {1, 1, 300},
         .full = {1, 1, 5000}}),
    row({.name = "group_taken",
         .about = "a goroutine is presumed blocked, and comes back",
         .setup = taken,
         .finish = allVisited<2>,
         .quick = {1, 0, 300},
         .full = {1, 1, 5000}}),
};

}  // namespace
}  // namespace gump::model
