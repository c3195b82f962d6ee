// The ring of a P (runtime/sched/proc_runq.cc), of four slots.
#include "runtime/sched/gqueue.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

constexpr int kGs = 8;
rt::P owner, thief, thief2;
rt::G gs[kGs];
rt::Atomic<int> taken[kGs];
int made;

void take(rt::G* gp) {
  if (gp == nullptr) return;
  check(gp->param == gp, "a G whose fields are not those that were published");
  taken[gp - gs].add(1, rt::relaxed);
}

rt::G* make() {
  rt::G* gp = &gs[made++];
  gp->param = gp;
  return gp;
}

void put(bool next) { rt::runqput(&owner, make(), next); }

void takeAll(rt::P* pp) {
  while (rt::G* gp = rt::runqget(pp).gp) take(gp);
}

void steal(rt::P* pp, bool runnext) {
  take(rt::runqsteal(pp, &owner, runnext));
  takeAll(pp);
}

// The indices are about to wrap around.
void setUpRing() {
  for (rt::P* pp : {&owner, &thief, &thief2}) {
    pp->runqhead.store(UINT32_MAX - 1, rt::relaxed);
    pp->runqtail.store(UINT32_MAX - 1, rt::relaxed);
    pp->status.store(rt::kPrunning, rt::relaxed);
  }
  nameWord(&owner.runqhead, "head");
  nameWord(&owner.runqtail, "tail");
  nameWord(&owner.runnext, "runnext");
}

void eachOnce() {
  takeAll(&owner);
  takeAll(&thief);
  takeAll(&thief2);
  while (rt::G* gp = rt::sched.nodes[0].runq.pop()) take(gp);
  for (int i = 0; i < made; i++) {
    const int n = taken[i].load(rt::relaxed);
    check(n >= 1, "a G is lost");
    check(n <= 1, "a G is run twice");
  }
}

const Registered kRunq({
    .name = "runq_steal",
    .about = "runqput, runqget against runqsteal: each G once",
    .setup =
        [] {
          setUpRing();
          put(false);
          thread("owner", [] {
            put(true);
            put(true);
            put(false);
            takeAll(&owner);
          });
          thread("thief", [] {
            steal(&thief, choose(2) == 1);
            steal(&thief, true);
          });
        },
    .finish = eachOnce,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kRunqThieves({
    .name = "runq_thieves",
    .about = "runqgrab: two thieves and the owner",
    .setup =
        [] {
          setUpRing();
          for (int i = 0; i < 3; i++) put(false);
          thread("owner", [] {
            take(rt::runqget(&owner).gp);
            put(true);
          });
          thread("thief", [] { steal(&thief, true); });
          thread("thief2", [] { steal(&thief2, true); });
        },
    .finish = eachOnce,
});

const Registered kRunqOverflow({
    .name = "runq_overflow",
    .about = "runqputslow against a thief: half of a full ring goes",
    .setup =
        [] {
          setUpRing();
          for (int i = 0; i < 4; i++) put(false);
          thread("owner", [] {
            put(false);
            put(false);
            take(rt::runqget(&owner).gp);
          });
          thread("thief", [] {
            steal(&thief, true);
            steal(&thief, true);
          });
        },
    .finish = eachOnce,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kRunqBatch({
    .name = "runq_batch",
    .about = "runqputslow, twice, against an M that takes from the global "
             "queue",
    .setup =
        [] {
          setUpRing();
          rt::gomaxprocs.store(2, rt::relaxed);
          for (int i = 0; i < 4; i++) put(false);
          thread("owner", [] {
            for (int i = 0; i < 4; i++) put(false);
          });
          thread("taker", [] {
            for (int i = 0; i < 2; i++) {
              rt::G* gp;
              {
                rt::LockScope l(&rt::sched.lock);
                gp = rt::globrunqgetbatch(&rt::sched.nodes[0], &thief,
                                          rt::kRunqSize / 2);
              }
              take(gp);
              takeAll(&thief);
            }
          });
        },
    .finish = eachOnce,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kRunqDrain({
    .name = "runq_drain",
    .about = "runqdrain and runqputbatch against a thief",
    .setup =
        [] {
          setUpRing();
          put(true);
          put(false);
          put(false);
          thread("owner", [] {
            rt::GQueue q = rt::runqdrain(&owner);
            q.pushBack(make());
            rt::runqputbatch(&owner, &q);
          });
          thread("thief", [] {
            for (int i = 0; i < 3; i++) steal(&thief, true);  // runnext, too
          });
        },
    .finish = eachOnce,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

// The owner always has work, in runnext or in the ring. A thread that looks
// must see it, or the P and the G would both wait.
const Registered kRunqEmpty({
    .name = "runq_empty",
    .about = "runqempty does not miss a G on its way into the ring",
    .setup =
        [] {
          setUpRing();
          put(true);
          thread("owner", [] {
            put(true);
            take(rt::runqget(&owner).gp);
            put(true);
          });
          thread("looker", [] {
            check(!rt::runqempty(&owner), "runqempty: a G is missed");
            check(!rt::runqempty(&owner), "runqempty: a G is missed");
          });
        },
    .finish = eachOnce,
    .quick = {4, 1, 500},
    .full = {5, 1, 20000},
});

// allm is the library's lock-free list. Ms are only pushed, never removed.
rt::M ms[3];

const Registered kAllm({
    .name = "allm",
    .about = "mcommoninit: the list of all Ms, pushed to and walked",
    .setup =
        [] {
          thread("a", [] { rt::mcommoninit(&ms[0], 7); });
          thread("b", [] { rt::mcommoninit(&ms[1], 8); });
          thread("walker", [] {
            for (rt::M* mp = rt::allm.load(rt::acquire); mp != nullptr;
                 mp = mp->alllink) {
              check(mp->id >= 7, "an M that is not complete");
            }
          });
        },
    .finish =
        [] {
          int n = 0;
          for (rt::M* mp = rt::allm.load(rt::acquire); mp != nullptr;
               mp = mp->alllink) {
            n++;
          }
          check(n == 2, "an M is missing");
        },
    .quick = {4, 1, 200},
    .full = {5, 1, 20000},
});

}  // namespace
}  // namespace gump::model
