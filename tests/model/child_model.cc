// Which thread makes a child, and when that thread may end
// (runtime/sched/child.cc). There is one M, on bare structs. Its thread makes a
// child and goes idle. Other threads reap the child and end idle threads.
#include "runtime/sched/child.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/tls.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

rt::M mine;
rt::G gp;
bool alive;  // the child; plain, so that a missing order shows as a race
rt::Note made, idle;

void setUpMaker() {
  rt::sched.nmextra = 8;  // so that no deadlock is looked for
  mine.g0.m = &mine;
  gp.m = &mine;
  nameWord(&mine.children, "children");
  nameWord(&rt::sched.lock, "sched.lock");
}

// makeAndIdle is the thread of the M: it makes a child, and goes idle until it
// is told to end.
void makeAndIdle(void*) {
  rt::setg(&gp);
  check(rt::childBegins() == &mine, "another M makes the child");
  alive = true;
  rt::notewakeup(&made);
  rt::setg(&mine.g0);
  mine.locks.store(1, rt::relaxed);
  rt::lock(&rt::sched.lock);
  rt::mput(&mine);
  rt::unlock(&rt::sched.lock);
  rt::notewakeup(&idle);
  rt::notesleep(&mine.park);
  check(mine.retired, "woken for nothing");
  check(!alive, "the thread that made the child ends before the child");
}

void reap() {
  rt::notesleep(&made);
  check(alive, "no child");
  alive = false;
  rt::childEnded(&mine);
}

void endsAtLast() { check(mine.retired, "a thread without a child stays"); }

const Registered kChild({
    .name = "child",
    .about = "idle threads end while one of them has a child",
    .setup =
        [] {
          setUpMaker();
          spawn("maker", makeAndIdle, nullptr);
          plainThread("reaper", [] {
            reap();
            rt::notesleep(&idle);
            rt::retireIdleMs(0);
          });
          plainThread("retirer", [] { rt::retireIdleMs(0); });
        },
    .finish = endsAtLast,
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

// An earlier thread of the M has ended before its child. The end of that child
// is counted while the next thread has a child, too (C3).
const Registered kChildLeft({
    .name = "child_left",
    .about = "the same, with a child that an earlier thread of the M has left",
    .setup =
        [] {
          setUpMaker();
          onPlainThread([] {
            rt::G* self = rt::getg();
            rt::setg(&gp);
            (void)rt::childBegins();
            rt::setg(self);
          });
          mine.recycled = true;
          rt::mcommoninit(&mine, 7);  // as newm does
          spawn("maker", makeAndIdle, nullptr);
          plainThread("left", [] {
            rt::childEnded(&mine);
            rt::retireIdleMs(0);
          });
          plainThread("reaper", [] {
            reap();
            rt::notesleep(&idle);
            rt::retireIdleMs(0);
          });
        },
    .finish =
        [] {
          // The last thread to count may have been too late to end it.
          check(mine.children.load(rt::relaxed) == 0, "a child is miscounted");
        },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

}  // namespace
}  // namespace gump::model
