// The scheduler as a whole: real Ms with their g0s, two Ps, goroutines on
// stacks of their own. Only the kernel is replaced. There is no sysmon, so a
// lost wake-up is not repaired. Every schedule begins with all Ms asleep.
//
// The table at the end lists the models: what each explores, what must hold,
// and how far it goes. Its `setup` names the function that starts the threads.
#include "gump/internal/linkname.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/wait/sema.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

// ---- Goroutines begin, park and wake ----------------------------------------

void wake1() {
  plainThread("go0", [] { startG([] {}); });
}

void wake() {
  plainThread("go0", [] { startG([] {}); });
  plainThread("go1", [] { startG([] {}); });
}

// The thread that posts the second goroutine collects both.
void post() {
  plainThread("go0", [] {
    for (int i = 0; i < 3; i++) startG([] {});
  });
  plainThread("go1", [] { startG([] {}); });
}

// One goroutine keeps its M until the other one has run.
void wakeBusy() {
  plainThread("go0", [] { startG([] { rt::notesleep(&first); }); });
  plainThread("go1", [] { startG([] { rt::notewakeup(&first); }); });
}

// The goroutine that starts another keeps its M. So the other one must be
// stolen, by an M that may be about to sleep.
void steal() {
  plainThread("go", [] {
    startG([] {
      startG([] {});  // wakes the other M
      startG([] { rt::notewakeup(&first); });
      rt::notesleep(&first);
    });
  });
}

// Goroutines that the poller finds ready go into the ring without runqput. The
// goroutine that injects keeps its M, so the other M must come and steal.
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
      startG([] {});  // wakes the other M
      rt::GList ready;
      ready.push(parked);
      rt::injectglist(&ready);
      rt::notesleep(&first);
    });
  });
}

// Two goroutines park on a channel that they share, on any Ms.
rt::Hchan* c;
int data[2];

void park() {
  onPlainThread([] {
    static constexpr rt::ElemType kEmpty = {};
    c = rt::makechan(&kEmpty, 0);
  });
  plainThread("go", [] {
    startG([] {
      data[0] = 1;
      (void)rt::chansend(c, nullptr, true);
      (void)rt::chanrecv(c, nullptr, true);
      check(data[1] == 1, "data");
    });
    startG([] {
      (void)rt::chanrecv(c, nullptr, true);
      check(data[0] == 1, "data");
      data[1] = 1;
      (void)rt::chansend(c, nullptr, true);
    });
  });
}

// A goroutine yields, and the next one keeps the M until the first has run
// again. So the first must be stolen, by an M that may be about to sleep.
void yieldToBusy() {
  plainThread("go", [] {
    startG([] {
      startG([] { rt::notesleep(&first); });
      rt::gosched();
      rt::notewakeup(&first);
    });
  });
}

rt::Atomic<bool> awaitedRan;

void yieldUntilAwaited(int most) {
  for (int yields = 0; !awaitedRan.load(rt::relaxed); yields++) {
    check(yields < most, "the awaited goroutine gets no turn");
    rt::gosched();
  }
}

// One goroutine blocks its M. On the other P, two goroutines yield to each
// other until a third, from the global queue, has run.
void yieldInTurns() {
  plainThread("keep", [] { startG([] { rt::notesleep(&first); }); });
  settle();
  plainThread("go", [] {
    startG([] {
      rt::notesleep(&second);
      startG([] { yieldUntilAwaited(8); });
      yieldUntilAwaited(8);
      rt::notewakeup(&first);
    });
    startG([] { awaitedRan.store(true, rt::relaxed); });
    rt::notewakeup(&second);
  });
}

// As yieldInTurns, but with kRunqSize + 1 goroutines that yield. While one of
// them runs, the others fill the ring.
void yieldInFullRing() {
  plainThread("keep", [] { startG([] { rt::notesleep(&first); }); });
  settle();
  plainThread("go", [] {
    startG([] {
      rt::notesleep(&second);
      for (uint32_t i = 0; i < rt::kRunqSize; i++) {
        startG([] { yieldUntilAwaited(16); });
      }
      yieldUntilAwaited(16);
      rt::notewakeup(&first);
    });
    startG([] { awaitedRan.store(true, rt::relaxed); });
    rt::notewakeup(&second);
  });
}

// As many goroutines yield as one more than fill a ring, while the other M may
// steal.
void yieldBesideThief() {
  plainThread("go", [] {
    startG([] {
      const auto yieldTwice = [] {
        rt::gosched();
        rt::gosched();
      };
      for (uint32_t i = 0; i < rt::kRunqSize + 1; i++) startG(yieldTwice);
      yieldTwice();
    });
  });
}

// A goroutine yields beside an empty ring, and the next one comes from the
// global queue and keeps the M until the first has run again.
void yieldToGlobal() {
  plainThread("go", [] {
    startG([] {
      rt::notesleep(&second);
      rt::gosched();
      rt::notewakeup(&first);
    });
    startG([] { rt::notesleep(&first); });
    rt::notewakeup(&second);
  });
}

// One goroutine has a P to itself and yields until another one has run. That
// one is in the ring of the other P, whose M is kept.
void yieldBesideBusy() {
  plainThread("alone", [] {
    startG([] {
      rt::notesleep(&second);
      yieldUntilAwaited(62);
    });
  });
  settle();
  plainThread("other", [] {
    startG([] {
      startG([] {
        rt::notewakeup(&second);
        rt::notesleep(&first);
      });
      rt::gosched();
      awaitedRan.store(true, rt::relaxed);
      rt::notewakeup(&first);
    });
  });
}

// ---- Stopping the world -----------------------------------------------------

// While the world is stopped, the stopper may use the data that goroutines
// write.
void stopAndLook() {
  rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
  data[0]++;
  data[1]++;
  rt::startTheWorld();
}

// counted: one goroutine has ended, and no count is lost.
template <int kFirst, int kSecond>
void counted() {
  allRan<1>();
  check(data[0] == kFirst && data[1] == kSecond, "data");
}

void stop() {
  plainThread("go", [] {
    startG([] {
      data[0]++;
      rt::gosched();
      data[0]++;
    });
  });
  plainThread("stopper", stopAndLook);
}

// keptAndIdle: also, the list of idle Ms is whole, and no M counts as asleep
// for its goroutine.
void keptAndIdle() {
  counted<3, 1>();
  rt::LockScope l(&rt::sched.lock);
  int32_t n = 0;
  for (const rt::M* mp = rt::sched.nodes[0].midle;
       mp != nullptr && n <= rt::sched.nmidle; mp = mp->schedlink) {
    check(mp->idle && mp->p == nullptr, "an idle M is not idle");
    n++;
  }
  check(n == rt::sched.nmidle, "nmidle");
  check(rt::sched.nmidlelocked == 0, "nmidlelocked");
}

// The goroutine looks at the request of a stop. If it yields, it is kept in
// runnext of its P.
void look() {
  data[0]++;
  (void)rt::runtimeEntry();
  data[0]++;
}

void stopKeeps() {
  plainThread("go", [] { startG(look); });
  plainThread("stopper", stopAndLook);
}

// The same for a goroutine that is bound to its thread. startTheWorld takes it
// out of runnext, and hands the P to that thread.
void stopKeepsLocked() {
  plainThread("go", [] {
    startG([] {
      check(rt::lockOSThreadExternal(), "not locked");
      look();
      rt::unlockOSThreadExternal();
    });
  });
  plainThread("stopper", stopAndLook);
}

void stopTwo() {
  plainThread("stopper", [] {
    startG(stopAndLook);
    stopAndLook();
  });
}

// The call lasts until the world has been stopped.
void stopCall() {
  plainThread("go", [] {
    startG([] {
      data[0]++;
      callUntil(&second);
      data[0]++;
    });
  });
  plainThread("stopper", [] {
    stopAndLook();
    rt::notewakeup(&second);
  });
}

// forEachP visits each P once, and no other thread runs on it then.
int visits[2];

void forEachP() {
  plainThread("go", [] {
    startG([] {
      rt::M* mp = rt::acquirem();
      visits[mp->p->id] += 0;
      rt::releasem(mp);
      rt::entersyscall();
      rt::exitsyscall();
    });
  });
  plainThread("visitor", [] {
    rt::forEachP(rt::WaitReason::kStoppingTheWorld,
                 [](rt::P* pp) { visits[pp->id]++; });
  });
}

void eachVisitedOnce() {
  allRan<1>();
  check(visits[0] == 1 && visits[1] == 1, "a P not visited once");
}

// ---- The end of main --------------------------------------------------------

void endMain() {
  rt::LockScope l(&rt::sched.lock);
  rt::sched.mainEnded.store(true, rt::seq_cst);
}

// After the end of main, no M runs the goroutine any more. A count that the
// goroutine is given must reach the plain thread.
rt::Atomic<uint32_t> sema;

void useSemaphore() {
  rt::semacquire(&sema, /*lifo=*/false, rt::SemaReason::kSemacquire);
  check(++data[0] == 1, "two have the count");
  data[0]--;
  rt::semrelease(&sema, /*handoff=*/false);
}

void end() {
  rt::sched.m0attached = true;  // so that no deadlock is looked for
  nameWord(&sema, "sema");
  plainThread("go", [] { startG(useSemaphore); });
  settle();
  plainThread("wait", [] {
    useSemaphore();
    data[1] = 1;
  });
  plainThread("release",
              [] { rt::semrelease(&sema, /*handoff=*/choose(2) == 1); });
  plainThread("end", [] {
    rt::M* mp = rt::acquirem();
    endMain();
    rt::semaMainEnded();
    rt::releasem(mp);
  });
}

void threadGotTheCount() { check(data[1] == 1, "the thread waits"); }

// A goroutine that main leaves behind starts two more and ends. These two wait
// for each other, so each needs a P. The M of the goroutine that ended finds
// out that main has ended. When it looks, the next Run may have begun and may
// have gone idle again already.
rt::Note here, there;

void nextRun() {
  rt::sched.m0attached = true;  // as above
  plainThread("go", [] {
    startG([] {
      rt::notesleep(&first);
      startG([] {
        rt::notewakeup(&here);
        rt::notesleep(&there);
      });
      startG([] {
        rt::notewakeup(&there);
        rt::notesleep(&here);
      });
      rt::notewakeup(&second);
    });
  });
  settle();
  plainThread("main", [] {
    rt::M* mp = rt::acquirem();
    endMain();
    rt::notewakeup(&first);
    rt::notesleep(&second);
    rt::P* pp;
    {
      rt::LockScope l(&rt::sched.lock);
      rt::sched.mainEnded.store(false, rt::release);
      pp = rt::pidleget(&rt::sched.nodes[0]);
    }
    if (pp != nullptr) {
      rt::wakep();
      rt::handoffp(pp);  // main parks
    }
    rt::releasem(mp);
  });
}

// ---- Calls and timers -------------------------------------------------------

void call() {
  plainThread("go", [] {
    startG([] { callUntil(&first); });
    startG([] { rt::notewakeup(&first); });
  });
  plainThread("sysmon", [] { retakeFromCalls(0); });
}

// The schedule begins when one goroutine is in its call and another one holds
// the other P. So no M spins and no P is idle when sysmon hands off the P of
// the call and the second goroutine starts a third goroutine.
void handoff() {
  plainThread("go", [] {
    startG([] { callUntil(&first); });
    startG([] {
      rt::notesleep(&second);
      startG([] { rt::notewakeup(&first); });
    });
  });
  settle();
  plainThread("sysmon", [] {
    rt::notewakeup(&second);
    retakeFromCalls(0);
  });
}

// Time passes only when all threads sleep. So an M that sleeps in the poller
// until the later timer, without knowing of the earlier one, makes the earlier
// one late.
int64_t begin;

void sleepExactly(int64_t ns) {
  const int64_t now = rt::nanotime();
  rt::timeSleep(ns);
  check(rt::nanotime() == now + ns, "a sleeper was not woken in time");
}

void timer() {
  plainThread("long", [] { startG([] { sleepExactly(9'000'000); }); });
  plainThread("short", [] {
    begin = rt::nanotime();
    rt::FuncTimer* t = rt::newFuncTimer(&kType, reinterpret_cast<void*>(+[] {
      check(rt::nanotime() == begin + 2'000'000, "a timer was late");
    }),
                                        0);
    (void)rt::funcTimerReset(t, 2'000'000);
  });
}

// Two goroutines are due at once. The M that runs their timers runs one of
// them, and that goroutine keeps the M. So the M must wake another M for the
// second goroutine.
rt::Atomic<int> meet;

void timers() {
  plainThread("go", [] {
    for (int i = 0; i < 2; i++) {
      startG([] {
        rt::timeSleep(1000);
        if (meet.add(1, rt::relaxed) == 1) {
          rt::notesleep(&first);
        } else {
          rt::notewakeup(&first);
        }
      });
    }
  });
}

// Timers that are due soon after one another share a wake-up. None of them may
// be later than kTogetherNS for that:
//  * Two are due within that time after the first, and one after it.
//  * Another thread adds one that is due before the first, or one that is due
//    soon after the first and does not break the poll.
constexpr int64_t kShare = rt::kTogetherNS;
constexpr int64_t kFirst = 20 * kShare;
rt::Timer shared[4];
int firedShared;

void checkShared(int64_t when) {
  const int64_t late = rt::nanotime() - when;
  check(late >= 0, "a timer was early");
  check(late <= kShare, "a timer was later than kTogetherNS");
}

void startShared(int i, int64_t after) {
  shared[i].f = [](void*, uint64_t, int64_t when) {
    checkShared(when);
    firedShared++;
  };
  rt::M* mp = rt::acquirem();
  rt::timerStart(&shared[i], begin + after);
  rt::releasem(mp);
}

void timersTogether() {
  onPlainThread([] { begin = rt::nanotime(); });
  plainThread("sleeper", [] {
    startG([] {
      const int64_t when = begin + kFirst + kShare * 8 / 10;
      rt::timeSleep(when - rt::nanotime());
      checkShared(when);
    });
  });
  plainThread("first", [] {
    startShared(0, kFirst);
    startShared(1, kFirst + kShare * 4 / 10);
    startShared(2, kFirst + kShare * 16 / 10);
  });
  plainThread("other", [] {
    startShared(3, choose(2) == 1 ? kFirst + kShare * 6 / 10
                                  : kFirst - kShare * 9 / 10);
  });
}

void allShared() {
  allRan<1>();
  check(firedShared == 4, "a timer has not fired");
}

// ---- The table --------------------------------------------------------------

// row adds what all of them have in common.
Registered row(Model m) {
  m.common = setUpScheduler;
  m.delayable = ofSchedOrP;
  return Registered(m);
}

const Registered kModels[] = {
    row({.name = "sched_wake1",
         .about = "a plain thread starts a goroutine; two Ms",
         .setup = wake1,
         .finish = allRan<1>,
         .quick = {2, 1, 300},
         .full = {3, 1, 5000}}),
    row({.name = "sched_wake",
         .about = "two plain threads start a goroutine each; two Ms",
         .setup = wake,
         .finish = allRan<2>,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_post",
         .about = "a plain thread starts three goroutines beside another",
         .setup = post,
         .finish = allRan<4>,
         .quick = {1, 1, 300, 1},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_wake_busy",
         .about = "two plain threads, and one goroutine waits on its M for the "
                  "other",
         .setup = wakeBusy,
         .finish = allRan<2>,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_steal",
         .about = "a goroutine starts two and waits on its M for the second",
         .setup = steal,
         .finish = allRan<3>,
         .quick = {2, 1, 300},
         .full = {3, 1, 5000, 2}}),
    row({.name = "sched_yield",
         .about = "a goroutine yields, and the next one waits on its M for it",
         .setup = yieldToBusy,
         .finish = allRan<2>,
         .quick = {2, 1, 300, 1},
         .full = {3, 1, 5000, 2}}),
    row({.name = "sched_yield_global",
         .about =
             "a goroutine yields to one from the global queue, which waits "
             "on its M for it",
         .setup = yieldToGlobal,
         .finish = allRan<2>,
         .quick = {2, 1, 300, 1},
         .full = {3, 1, 5000, 2}}),
    row({.name = "sched_yield_steal",
         .about = "a goroutine yields alone until one in another ring has run",
         .setup = yieldBesideBusy,
         .finish = allRan<3>,
         .quick = {1, 0, 300},
         .full = {1, 1, 5000}}),
    row({.name = "sched_yield_turns",
         .about =
             "two goroutines yield until one from the global queue has run; "
             "the other M is blocked",
         .setup = yieldInTurns,
         .finish = allRan<4>,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_yield_full",
         .about = "as sched_yield_turns, with a full ring",
         .setup = yieldInFullRing,
         .finish = allRan<3 + rt::kRunqSize>,
         .quick = {1, 0, 300},
         .full = {1, 1, 5000}}),
    row({.name = "sched_yield_thief",
         .about = "more goroutines yield than a ring holds, beside a thief",
         .setup = yieldBesideThief,
         .finish = allRan<2 + rt::kRunqSize>,
         .quick = {1, 0, 3000},
         .full = {1, 1, 30000}}),
    row({.name = "sched_inject",
         .about = "injectglist into the own ring while another M goes to sleep",
         .setup = inject,
         .finish = allRan<3>,
         .quick = {2, 1, 300},
         .full = {3, 1, 5000, 2}}),
    row({.name = "sched_park",
         .about = "two goroutines that park and ready each other",
         .setup = park,
         .finish = allRan<2>,
         .quick = {2, 1, 300},
         .full = {2, 1, 5000}}),

    row({.name = "sched_stop",
         .about = "stopTheWorld against a goroutine that begins and yields",
         .setup = stop,
         .finish = counted<3, 1>,
         .hasty = false,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "sched_keep",
         .about = "a goroutine that yields to a stop is kept on its P",
         .setup = stopKeeps,
         .finish = keptAndIdle,
         .hasty = false,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "sched_keep_locked",
         .about = "a goroutine bound to its thread is kept over a stop",
         .setup = stopKeepsLocked,
         .finish = keptAndIdle,
         .hasty = false,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "sched_stop_two",
         .about = "worldsema: a plain thread and a goroutine stop the world",
         .setup = stopTwo,
         .finish = counted<2, 2>,
         .hasty = false,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),
    row({.name = "sched_stop_call",
         .about = "stopTheWorld against a goroutine on its way into a call",
         .setup = stopCall,
         .finish = counted<3, 1>,
         .hasty = false,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_foreach",
         .about = "forEachP: each P once, in every state of it",
         .setup = forEachP,
         .finish = eachVisitedOnce,
         .hasty = false,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 5000}}),

    row({.name = "sched_end",
         .about =
             "main ends while a goroutine and a thread wait for a semaphore",
         .setup = end,
         .finish = threadGotTheCount,
         .hasty = false,
         .quick = {1, 1, 300},
         .full = {2, 1, 20000, 1}}),
    row({.name = "sched_next_run",
         .about = "Run again, while an M still clears up after the last one",
         .setup = nextRun,
         .finish = allRan<3>,
         .hasty = false,
         .quick = {2, 1, 300, 1},
         .full = {2, 1, 20000}}),

    row({.name = "sched_call",
         .about = "a goroutine in a declared call, its P retaken for another",
         .setup = call,
         .finish = allRan<2>,
         .quick = {1, 1, 300},
         .full = {2, 1, 20000, 1}}),
    row({.name = "sched_handoff",
         .about = "a P is handed off while a goroutine starts another",
         .setup = handoff,
         .finish = allRan<3>,
         .quick = {1, 0, 3000},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_timer",
         .about = "a timer is added while others go to sleep until a later one",
         .setup = timer,
         .finish = allRan<2>,
         .hasty = false,
         .quick = {1, 1, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_timers",
         .about =
             "two goroutines are readied by timers, while an M goes to sleep",
         .setup = timers,
         .finish = allRan<2>,
         .quick = {1, 1, 300},
         .full = {2, 1, 5000, 1}}),
    row({.name = "sched_timer_together",
         .about = "timers share a wake-up; another thread adds one",
         .setup = timersTogether,
         .finish = allShared,
         .hasty = false,
         .quick = {0, 0, 3000},
         .full = {2, 1, 5000, 1}}),
};

}  // namespace
}  // namespace gump::model
