// Which thread has a P: a goroutine that blocks, declared or not, against
// threads that take the P from it (runtime/sched/proc_syscall.cc,
// preempt_blocked.cc, sysmon/retake.cc). There is one M with its goroutine, on
// bare structs. Two more Ps are idle, so that a goroutine that has lost its P
// finds another, and no thread has to switch stacks.
#include "gump/internal/linkname.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "sysmon/retake.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

constexpr int kPs = 3;
rt::P ps[kPs];
rt::M mine;
rt::G gp;
int used[kPs];  // stands for the data that the holder of a P uses
int rounds;

// holdP enters the runtime, as a goroutine does, and checks that it has a P.
void holdP() {
  rt::M* mp = rt::acquirem();
  check(mp->p != nullptr, "no P in the runtime");
  check(mp->p->m.load(rt::relaxed) == mp, "another M's P in the runtime");
  used[mp->p->id]++;
  rt::releasem(mp);
  rounds++;
}

void setUpP() {
  rt::sched.nmextra = 8;
  rt::sched.mnext = 2;
  rt::sched.lastpoll.store(1, rt::relaxed);
  for (int i = 0; i < kPs; i++) {
    ps[i].id = i;
    rt::allp[i] = &ps[i];
  }
  mine.g0.m = &mine;
  mine.procid.store(1, rt::relaxed);
  mine.p = &ps[0];
  mine.curg.store(&gp, rt::relaxed);
  gp.m = &mine;
  gp.goid = 1;
  gp.atomicstatus.store(rt::kGrunning, rt::relaxed);
  ps[0].m.store(&mine, rt::relaxed);
  ps[0].status.store(rt::kPrunning, rt::relaxed);
  rt::lock(&rt::sched.lock);
  for (int i = kPs - 1; i > 0; i--) rt::pidleput(&ps[i]);
  rt::unlock(&rt::sched.lock);
  nameWord(&mine.presumed, "presumed");
  nameWord(&mine.locks, "m.locks");
  nameWord(&ps[0].status, "P0.status");
  nameWord(&ps[1].status, "P1.status");
  nameWord(&ps[2].status, "P2.status");
  nameWord(&ps[0].m, "P0.m");
}

void idleP(rt::P* pp) {
  used[pp->id]++;
  rt::M* mp = rt::acquirem();
  rt::lock(&rt::sched.lock);
  rt::pidleput(pp);
  rt::unlock(&rt::sched.lock);
  rt::releasem(mp);
}

void goroutine() {
  rt::setg(&gp);
  holdP();
  holdP();
}

void ask(rt::P* pp, bool giveBack) {
  rt::M* mp = rt::acquirem();
  if (rt::presumeBlocked(pp, &mine, &gp)) {
    used[pp->id]++;
    if (!giveBack || !rt::giveBackP(pp, &mine)) idleP(pp);
  }
  rt::releasem(mp);
}

// finished checks that no round is missing, and that each P is either idle or
// the goroutine's.
void finished() {
  check(rounds == 2, "a round is missing");
  const bool lost =
      (mine.presumed.load(rt::relaxed) & rt::kPresumedTaken) != 0;  // (P1)
  for (rt::P& pp : ps) {
    const bool held = mine.p == &pp && !lost;
    check(held != (pp.status.load(rt::relaxed) == rt::kPidle),
          "a P is lost, or has two owners");
  }
}

const Registered kPresumed({
    .name = "presumed",
    .about = "presumed blocked: the goroutine keeps its P, or knows it has not",
    .setup =
        [] {
          setUpP();
          thread("goroutine", goroutine);
          plainThread("asker", [] { ask(&ps[0], false); });
        },
    .finish = finished,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kGiveBack({
    .name = "presumed_back",
    .about = "the same, and the P is given back while its M may be coming in",
    .setup =
        [] {
          setUpP();
          thread("goroutine", goroutine);
          plainThread("asker", [] { ask(&ps[0], true); });
        },
    .finish = finished,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kTwoAskers({
    .name = "presumed_two",
    .about = "two threads ask at a time (P5)",
    .setup =
        [] {
          setUpP();
          thread("goroutine", goroutine);
          plainThread("asker0", [] { ask(&ps[0], true); });
          plainThread("asker1", [] { ask(&ps[0], false); });
        },
    .finish = finished,
});

const Registered kTwoPs({
    .name = "presumed_again",
    .about =
        "the first P is to be given back when its M has lost a second (P6)",
    .setup =
        [] {
          setUpP();
          thread("goroutine", goroutine);
          plainThread("asker0", [] { ask(&ps[0], true); });
          plainThread("asker1", [] { ask(&ps[1], false); });
        },
    .finish = finished,
});

// ---- Declared calls ---------------------------------------------------------

void calls() {
  rt::setg(&gp);
  for (int i = 0; i < 2; i++) {
    holdP();
    rt::entersyscall();
    rt::exitsyscall();
  }
  holdP();
}

const Registered kRetake({
    .name = "syscall_retake",
    .about = "entersyscall and exitsyscall against retake",
    .setup =
        [] {
          setUpP();
          thread("goroutine", calls);
          plainThread("sysmon", [] {
            rt::M* mp = rt::acquirem();
            for (int64_t now : {0, 20'000'000, 40'000'000}) {
              for (rt::P& pp : ps) (void)rt::retakeSyscall(&pp, now);
            }
            rt::releasem(mp);
          });
        },
    .finish = [] { check(rounds == 3, "a round is missing"); },
});

// The taker takes the P as stopTheWorld does, and uses it at once.
const Registered kTake({
    .name = "syscall_take",
    .about = "entersyscall and exitsyscall against a thread that takes the P",
    .setup =
        [] {
          setUpP();
          thread("goroutine", calls);
          plainThread("taker", [] {
            rt::P* pp = &ps[0];
            if (pp->status.load(rt::seq_cst) == rt::kPsyscall &&
                rt::pcasstatus(pp, rt::kPsyscall, rt::kPidle)) {
              idleP(pp);
            }
          });
        },
    .finish = [] { check(rounds == 3, "a round is missing"); },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

}  // namespace
}  // namespace gump::model
