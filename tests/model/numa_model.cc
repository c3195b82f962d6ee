// The scheduler with two NUMA nodes: rules N1 to N3 of proc_node.cc, and the
// argument there that no wake-up is lost. The topology is simulated. Most
// models have one P a node.
//
// The table at the end lists the models. Its `setup` names the function that
// starts the threads.
#include "gump/internal/linkname.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/group.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/proc_node.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

// ---- Plain threads ----------------------------------------------------------

// A thread without a P wakes any node.
void wake() {
  plainThread("go0", [] { startG([] {}); });
  plainThread("go1", [] { startG([] {}); });
}

// ---- N3: to the node where it ran last --------------------------------------

// The poller finds ready a goroutine of the other node, on an M that keeps its
// P until that goroutine has run. Meanwhile the M of the other node may be
// going to sleep.
rt::G* parked;

void inject() {
  plainThread("park", [] {
    startG([] {
      (void)rt::acquirem();  // gopark ends it
      rt::gopark(
          [](rt::G* gp, void*) {
            parked = gp;
            return true;
          },
          nullptr, rt::WaitReason::kIOWait);
      rt::notewakeup(&first);
    });
  });
  settle();
  check(parked != nullptr, "not parked");
  plainThread("go", [] {
    startG([] {
      parked->node = static_cast<uint8_t>(1 - node());
      rt::GList ready;
      ready.push(parked);
      rt::injectglist(&ready);
      rt::notesleep(&first);
    });
  });
}

// A thread without a P finds ready a goroutine of node 1, and GOMAXPROCS
// changes, so that node 1 loses its P. The goroutine runs, in each order of the
// two.
void injectWithoutNode() {
  plainThread("park", [] {
    startG([] {
      (void)rt::acquirem();  // gopark ends it
      rt::gopark(
          [](rt::G* gp, void*) {
            parked = gp;
            return true;
          },
          nullptr, rt::WaitReason::kIOWait);
    });
  });
  settle();
  check(parked != nullptr, "not parked");
  parked->node = 1;
  plainThread("inject", [] {
    rt::GList ready;
    ready.push(parked);
    rt::injectglist(&ready);
  });
  plainThread("resize", [] { (void)rt::setGOMAXPROCS(1); });
}

// ---- N3: the next one of a group --------------------------------------------

// A goroutine of a group with one slot has run on the other node. There an M
// finds that the group is full. The goroutine that has the slot gives it up in
// a call, which lasts until the other one has run, and keeps its P.
rt::Group* group;

void startMember(void (*f)()) {
  rt::SpawnOptions options;
  options.group = rt::groupId(group);
  check(rt::newproc(&kType, reinterpret_cast<void*>(&f), &options, 0) ==
            rt::SpawnResult::kOk,
        "newproc");
}

void release() {
  plainThread("park", [] {
    startMember([] {
      (void)rt::acquirem();  // gopark ends it
      rt::gopark(
          [](rt::G* gp, void*) {
            parked = gp;
            return true;
          },
          nullptr, rt::WaitReason::kIOWait);
      rt::notewakeup(&first);
    });
  });
  settle();
  check(parked != nullptr, "not parked");
  plainThread("go", [] {
    startMember([] {
      parked->node = static_cast<uint8_t>(1 - node());
      rt::GList ready;
      ready.push(parked);
      rt::injectglist(&ready);
      callUntil(&first);
    });
  });
}

void allReleased() {
  allRan<2>();
  check(group->state.load(rt::relaxed) == 0, "a slot is lost");
  check(group->queued.load(rt::relaxed) == 0, "queued");
}

bool ofSchedOrGroup(const void* addr) {
  return ofSchedOrP(addr) || reinterpret_cast<uintptr_t>(addr) -
                                     reinterpret_cast<uintptr_t>(group) <
                                 sizeof(rt::Group);
}

// ---- N1: leaving work to the node -------------------------------------------

// One P a node: the other P is idle, or goes idle, or looks for work. sysmon
// must give it the goroutine in time.
void leave() {
  nameWord(&rt::sched.sysmonLook, "sysmonLook");
  plainThread("go", [] {
    startG([] {
      // sysmon sleeps for long.
      while (rt::sched.sysmonLook.load(rt::relaxed) - rt::nanotime() <
             9'000'000) {
        rt::usleep(500);
      }
      rt::notesleep(&first);
      // It was asked to yield meanwhile.
      rt::getg()->preempt.store(false, rt::relaxed);
      keepsP();
    });
  });
  settle();
  plainThread("begin", [] {
    // At once, or at the very moment at which sysmon looks and begins its next
    // short sleep.
    const int64_t look = rt::sched.sysmonLook.load(rt::relaxed);
    if (choose(2) == 1 && look != 0) {
      rt::usleep(static_cast<uint32_t>((look - rt::nanotime()) / 1000));
    }
    rt::notewakeup(&first);
  });
  // While this thread waits for a time, time passes for sysmon, too.
  plainThread("end", [] { rt::usleep(26'000); });
}

// Two Ps on node 0. The goroutine of one of them starts another, and keeps its
// P. The M of the other one goes idle meanwhile, without a search, because the
// M of node 1 searches.
void leaveToIdler() {
  static rt::Note notes[3];
  static rt::Atomic<int> begun;
  for (int i = 0; i < 3; i++) {
    plainThread("go", [] {
      startG([] {
        begun.add(1, rt::relaxed);
        rt::M* mp = rt::acquirem();
        const int id = mp->p->id;
        rt::releasem(mp);
        rt::notesleep(&notes[id]);
        if (id == 0) keepsP();
      });
    });
    settle();
  }
  check(begun.load(rt::relaxed) == 3, "not on three Ps");
  plainThread("begin", [] {
    for (rt::Note& n : notes) rt::notewakeup(&n);
  });
}

// Two Ps on node 0. The goroutine of one of them starts another, and keeps its
// P. The other P is in a declared call. It is retaken and goes idle meanwhile,
// and no M searches with it.
void leaveToRetaken() {
  plainThread("go", [] {
    startG([] {
      rt::notesleep(&first);
      keepsP();
      rt::notewakeup(&second);
    });
  });
  settle();
  plainThread("call", [] { startG([] { callUntil(&second); }); });
  settle();
  check(rt::sched.nodes[0].npidle.load(rt::relaxed) == 0 &&
            rt::sched.nodes[1].npidle.load(rt::relaxed) == 1,
        "not both on node 0");
  plainThread("begin", [] { rt::notewakeup(&first); });
  plainThread("sysmon", [] { retakeFromCalls(0); });
}

// ---- The table --------------------------------------------------------------

void setUpTwo() { setUpNodes("2x1", "2"); }
void setUpGroup() {
  setUpTwo();
  onPlainThread([] { group = rt::newGroup("", 0, 1); });
  check(group != nullptr, "newGroup");
  nameWord(&group->state, "state");
  nameWord(&group->queued, "queued");
}
void setUpThree() { setUpNodes("0-1/2", "3"); }

Registered row(Model m, void (*common)() = setUpTwo) {
  m.common = common;
  m.delayable = common == setUpGroup ? ofSchedOrGroup : ofSchedOrP;
  return Registered(m);
}

const Registered kModels[] = {
    row({.name = "sched_wake_numa",
         .about = "two plain threads start a goroutine each; two nodes",
         .setup = wake,
         .finish = allRan<2>,
         .quick = {1, 1, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_inject_numa",
         .about = "injectglist of a goroutine of the other node",
         .setup = inject,
         .finish = allRan<2>,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_resize_numa",
         .about = "injectglist without a P, while the node loses its P",
         .setup = injectWithoutNode,
         .finish = allRan<1>,
         .quick = {1, 0, 1000},
         .full = {2, 1, 20000, 1}}),
    row({.name = "sched_group_numa",
         .about = "a group's slot passes to a goroutine of the other node",
         .setup = release,
         .finish = allReleased,
         .quick = {2, 0, 3000},
         .full = {2, 1, 20000, 1}},
        setUpGroup),
    row({.name = "sched_leave_numa",
         .about = "a goroutine is left to a busy node, and sysmon sees to it",
         .setup = leave,
         .finish = allRan<2>,
         .hasty = false,
         .sysmon = true,
         .quick = {1, 1, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_idler_numa",
         .about = "a goroutine is left to a node whose other P goes idle",
         .setup = leaveToIdler,
         .finish = allRan<4>,
         .hasty = false,
         .quick = {1, 0, 30000},
         .full = {2, 1, 20000, 1}},
        setUpThree),
    row({.name = "sched_retaken_numa",
         .about = "a goroutine is left to a node whose other P is retaken",
         .setup = leaveToRetaken,
         .finish = allRan<3>,
         .hasty = false,
         .quick = {0, 0, 20000},
         .full = {1, 0, 100000}},
        setUpThree),
};

}  // namespace
}  // namespace gump::model
