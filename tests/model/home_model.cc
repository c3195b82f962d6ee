// Homes (runtime/sched/home.cc): (T2), that no wake-up of a home is lost, and
// (T4), that its goroutines come back from calls. The whole scheduler, with two
// Ps, two Ms and one home. There is no sysmon, so a lost wake-up is not
// repaired.
#include "gump/internal/linkname.h"
#include "runtime/sched/home.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

rt::Home* home;

bool isThere() { return rt::getg()->m->home == home; }

// startThere starts a goroutine on the home.
void startThere(void (*f)()) {
  rt::SpawnOptions o;
  o.thread = home;
  check(rt::newprocOn(&kType, reinterpret_cast<void*>(&f), &o, 0) ==
            rt::SpawnResult::kOk,
        "newprocOn");
}

// park parks the calling goroutine until `waker` finds it in *where.
void park(rt::G** where) {
  (void)rt::acquirem();  // gopark ends it
  rt::gopark(
      [](rt::G* gp, void* at) {
        *static_cast<rt::G**>(at) = gp;
        return true;
      },
      where, rt::WaitReason::kSleep);
  check(isThere(), "woken elsewhere");
}

// makeHomeOf makes the home on a scheduler that setUp starts, and has it run
// something.
void makeHomeOf(void (*setUp)()) {
  setUp();
  plainThread("make", [] { home = rt::newHome("home", 4); });
  settle();
  plainThread("warm", [] { startThere([] {}); });
  settle();
  check(ran.load(rt::relaxed) == 1, "warming up");
  ran.store(0, rt::relaxed);
  nameWord(&home->state, "state");
  nameWord(&home->incoming, "incoming");
}

void makeHome() { makeHomeOf(setUpScheduler); }
// One P on each of two nodes, or two on the first and one on the second.
void makeHomeOnNodes() {
  makeHomeOf([] { setUpNodes("2x1", "2"); });
}
void makeHomeOnThreePs() {
  makeHomeOf([] { setUpNodes("0-1/2", "3"); });
}

// asleep: the goroutines have run, and the home sleeps without a P.
template <int n>
void asleep() {
  allRan<n>();
  check(home->state.load(rt::relaxed) == rt::kHomeAsleep, "state");
  check(home->incoming.load(rt::relaxed) == nullptr, "incoming");
  check(rt::readgstatus(&home->token) == rt::kGwaiting, "the token");
  check(home->m->lockedg == &home->token, "lockedg");
}

// Two plain threads start a goroutine each while the home wakes and goes back
// to sleep.
void wake() {
  plainThread("go0", [] { startThere([] { check(isThere(), "elsewhere"); }); });
  plainThread("go1", [] { startThere([] { check(isThere(), "elsewhere"); }); });
}

// A goroutine elsewhere readies one of the home and keeps its P.
rt::G* parked;

void ready() {
  plainThread("park", [] { startThere([] { park(&parked); }); });
  settle();
  check(parked != nullptr, "not parked");
  plainThread("go", [] {
    startG([] {
      rt::goready(parked);
      rt::notesleep(&first);
    });
    startThere([] { rt::notewakeup(&first); });
  });
}

// The home blocks in the poller, and is woken there from outside, and by the
// time. Time passes only when no thread can run.
int64_t begin;

void poll() {
  plainThread("sleep", [] {
    startThere([] {
      rt::timeSleep(1000);
      check(isThere(), "elsewhere");
    });
  });
  plainThread("go", [] {
    begin = rt::nanotime();
    startThere([] {
      check(isThere(), "elsewhere");
      check(rt::nanotime() == begin, "woken by the time only");
    });
  });
}

// The same, beside an M that polls for a later time.
void place() {
  poll();
  plainThread("other", [] { startG([] { rt::timeSleep(2000); }); });
}

// A call loses its P to another goroutine. Meanwhile a goroutine of the home
// becomes runnable.
void call() {
  plainThread("go", [] {
    startThere([] {
      callUntil(&first);
      check(isThere(), "back elsewhere");
      check(home->m->lockedg == &home->token, "lockedg");
    });
    startG([] { rt::notewakeup(&first); });
    startThere([] { check(isThere(), "elsewhere"); });
  });
  plainThread("sysmon", [] { retakeFromCalls(0); });
}

// A goroutine visits the home and comes back.
void visit() {
  plainThread("go", [] {
    startG([] {
      rt::HomeVisitor visitor;
      check(rt::homeEnter(home, &visitor) == rt::HomeVisit::kWent, "went");
      check(isThere(), "elsewhere");
      rt::homeLeave(&visitor);
      check(!isThere(), "still there");
    });
    startThere([] {});
  });
}

// The world stops while a goroutine of the home begins and yields.
int data;

void stop() {
  plainThread("go", [] {
    startThere([] {
      data++;
      rt::gosched();
      data++;
    });
  });
  plainThread("stopper", [] {
    rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
    data++;
    rt::startTheWorld();
  });
}

void stopped() {
  asleep<1>();
  check(data == 3, "data");
}

// The last handle goes while a goroutine ends on the home.
void end() {
  plainThread("go", [] {
    startThere([] {});
    rt::homeRelease(home);
  });
}

void ended() {
  allRan<1>();
  check(home->m->home == nullptr, "the home has not ended");
  check(home->m->procid.load(rt::relaxed) == 0, "its thread has not ended");
}

// (T7): a goroutine readies one of the home and keeps its P. The other P, which
// is idle, is of another node. (If an M spun there, it might leave the home's
// token to the node of the waker, until sysmon looks.)
void readyAcross() {
  plainThread("park", [] {
    startThere([] {
      park(&parked);
      rt::notewakeup(&second);
    });
  });
  settle();
  check(parked != nullptr, "not parked");
  plainThread("go", [] {
    startG([] {
      rt::notesleep(&first);
      rt::goready(parked);
      rt::notesleep(&second);
    });
  });
  settle();
  check(rt::sched.npidle.load(rt::relaxed) == 1, "no P is idle");
  plainThread("begin", [] { rt::notewakeup(&first); });
}

// (T7), I1 of proc_node.cc: the home has one P of node 0, and goes idle. The
// goroutine on the other P of that node starts one meanwhile, and keeps its P.
// The P of node 1 is idle, so the new goroutine is left to node 0.
void leave() {
  static rt::Note notes[2];
  plainThread("stay", [] { startThere([] { rt::notesleep(&second); }); });
  settle();
  for (int i = 0; i < 2; i++) {
    plainThread("go", [] {
      startG([] {
        const int k = node();
        rt::notesleep(&notes[k]);
        if (k == 0) keepsP();
      });
    });
    settle();
  }
  check(rt::sched.npidle.load(rt::relaxed) == 0, "not on three Ps");
  check(home->m->p->node.load(rt::relaxed) == 0, "the home is on node 1");
  plainThread("free", [] { rt::notewakeup(&notes[1]); });
  settle();
  check(rt::sched.nodes[1].npidle.load(rt::relaxed) == 1, "node 1 is busy");
  plainThread("begin", [] {
    rt::notewakeup(&notes[0]);
    rt::notewakeup(&second);
  });
}

// (T8): a goroutine that holds a lock parks. Another goroutine of the home
// comes meanwhile, and a goroutine elsewhere readies the first.
int32_t locks;
bool keeperDone;

void keep() {
  plainThread("park", [] {
    startThere([] {
      rt::homeCountLocks(&locks);
      locks = 1;
      park(&parked);
      locks = 0;
      keeperDone = true;
    });
  });
  settle();
  check(parked != nullptr, "not parked");
  plainThread("other", [] {
    startThere([] { check(keeperDone, "ran before the keeper"); });
  });
  plainThread("ready", [] { startG([] { rt::goready(parked); }); });
}

// The same for a goroutine that yields.
void keepYielding() {
  plainThread("go", [] {
    startThere([] {
      rt::homeCountLocks(&locks);
      startThere([] { check(keeperDone, "ran before the keeper"); });
      locks = 1;
      rt::gosched();
      locks = 0;
      keeperDone = true;
    });
  });
  plainThread("other", [] { startG([] {}); });
}

Registered row(Model m, void (*common)() = makeHome) {
  m.common = common;
  m.delayable = [](const void* addr) {
    return ofSchedOrP(addr) || addr == &home->state || addr == &home->incoming;
  };
  return Registered(m);
}

const Registered kModels[] = {
    row({.name = "home_wake",
         .about = "two plain threads start a goroutine each on a home",
         .setup = wake,
         .finish = asleep<2>,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "home_ready",
         .about = "a goroutine readies one of a home and keeps its P",
         .setup = ready,
         .finish = asleep<3>,
         .quick = {1, 1, 300},
         .full = {1, 1, 20000}}),
    row({.name = "home_poll",
         .about = "a home in the poller is woken from outside and by the time",
         .setup = poll,
         .finish = asleep<2>,
         .hasty = false,
         .quick = {1, 1, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "home_place",
         .about = "the same, beside an M that polls for a later time",
         .setup = place,
         .finish = asleep<3>,
         .hasty = false,
         .quick = {0, 0, 20000},  // a mistake shows up in one of about 8,000
         .full = {0, 0, 200000}}),
    row({.name = "home_call",
         .about = "a call on a home loses its P while others come",
         .setup = call,
         .finish = asleep<3>,
         .quick = {1, 1, 300},
         .full = {1, 1, 20000}}),
    row({.name = "home_visit",
         .about = "a goroutine goes to a home and comes back",
         .setup = visit,
         .finish = asleep<2>,
         .quick = {1, 1, 300},
         .full = {1, 1, 20000}}),
    row({.name = "home_stop",
         .about = "the world stops beside a goroutine of a home that yields",
         .setup = stop,
         .finish = stopped,
         .hasty = false,
         .quick = {1, 1, 300},
         .full = {1, 1, 20000}}),
    row({.name = "home_end",
         .about = "the last handle goes while the last goroutine ends",
         .setup = end,
         .finish = ended,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "home_keeper",
         .about = "a goroutine with a lock parks, and others come",
         .setup = keep,
         .finish = asleep<3>,
         .quick = {1, 1, 300},
         .full = {2, 1, 20000, 1}}),
    row({.name = "home_keeper_yield",
         .about = "a goroutine with a lock yields beside another one",
         .setup = keepYielding,
         .finish = asleep<3>,
         .quick = {1, 1, 300},
         .full = {1, 1, 20000}}),
    row({.name = "home_ready_numa",
         .about =
             "a goroutine readies one of a home, beside a P of another node",
         .setup = readyAcross,
         .finish = asleep<2>,
         .quick = {2, 1, 300},
         .full = {3, 1, 20000}},
        makeHomeOnNodes),
    row({.name = "home_leave_numa",
         .about = "a goroutine is left to a node on which a home goes idle",
         .setup = leave,
         .finish = asleep<4>,
         .hasty = false,
         .quick = {1, 0, 30000},
         .full = {2, 1, 20000, 1}},
        makeHomeOnThreePs),
};

}  // namespace
}  // namespace gump::model
