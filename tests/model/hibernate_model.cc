// Hibernation (runtime/sched/hibernate.cc): the stack of a goroutine is taken
// away, while other threads use it and wake the goroutine.
//
// The kernel's part is in os.cc: a page that may be missing, and faults, which
// a thread of the model answers.
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/sched/hibernate.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/stack_arena.h"
#include "runtime/sys/os_linux.h"
#include "tests/model/model.h"
#include "tests/model/os.h"

namespace gump::model {
namespace {

alignas(rt::G) unsigned char cell[sizeof(rt::G)];
rt::G* sleeper;
uintptr_t local;            // a variable of the goroutine, in a live frame
rt::Atomic<uint32_t> over;  // the goroutine has been woken

// A pass visits the goroutine.
void visit() {
  if (!rt::castogscanstatus(sleeper, rt::kGwaiting)) return;
  (void)rt::hibernateStack(sleeper);
  rt::casfrom_Gscanstatus(sleeper, rt::kGwaiting);
}

// Another thread has a reference to the variable.
void use() { addAt(local, 1); }

// Guards are the kernel's, and the checker resets only memory. So the first
// thread of each schedule installs the guard.
// It makes one step, because it uses no other atomic.
rt::Atomic<uint32_t> armed;
void arm() {
  if (armed.xchg(1, rt::acq_rel) != 0) return;
  constexpr int kMadvGuardInstall = 102;
  check(madvise(reinterpret_cast<void*>(sleeper->stack.lo - rt::kGuardSize),
                rt::kGuardSize, kMadvGuardInstall) == 0,
        "no guard");
}

// isGuarded returns true if the kernel cannot read the guard.
bool isGuarded() {
  char byte;
  const iovec to = {&byte, 1};
  const iovec from = {reinterpret_cast<void*>(sleeper->stack.lo - 1), 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) < 0;
}

// The goroutine is woken, and goes on.
void wake() {
  rt::casgstatus(sleeper, rt::kGwaiting, rt::kGrunnable);
  check(!isPageAway(), "a goroutine runs without its stack");
  check(armed.load(rt::relaxed) == 0 || isGuarded(),
        "a goroutine runs without a guard");
  addAt(local, 10);
  over.store(1, rt::relaxed);
  raiseFault();
}

// A pass frees the page table of the stack.
void freeTable() {
  rt::Arena* a = rt::arenaOf(sleeper->stack.hi);
  rt::SleepWords* words = a->sleepWords.load(rt::acquire);
  if (words == nullptr) return;
  const auto i =
      static_cast<uint32_t>((sleeper->stack.lo - a->base) / a->stride);
  (void)rt::freeTable(words, i, i, rt::slotBase(a, i), a->stride);
}

// A thread has faulted, and a signal has taken it out of the fault.
void oldFault() { raiseFault(); }

// The thread that answers faults. Once the goroutine is awake, no page is
// missing, and nothing takes it away.
void answer() {
  while (over.load(rt::relaxed) == 0) {
    awaitFault();
    if (!rt::answerFault(sleeper->stack.hi & ~(rt::kPageSize - 1))) {
      raiseFault();
      rt::usleep(1);
    }
  }
}

void setUpSleeper() {
  rt::stackinit();
  sleeper = new (cell) rt::G();
  check(rt::stackalloc(nullptr, sleeper, 0), "no stack");
  sleeper->sched = {.sp = sleeper->stack.hi - 256, .fresh = 0};
  local = sleeper->stack.hi - 64;
  addAt(local, 100);
  check(rt::hibernatePages(), "no pages");
  usePage(sleeper->stack.hi & ~(rt::kPageSize - 1));
  sleeper->atomicstatus.store(rt::kGwaiting, rt::relaxed);
  nameWord(&sleeper->atomicstatus, "status");
  over.store(0, rt::relaxed);
  thread("faults", answer);
}

void finish(uint64_t sum) {
  check(!isPageAway(), "the stack stayed away");
  check(valueAt(local) == sum, "a write to the stack is lost");
}

const Registered kUse({
    .name = "hibernate_use",
    .about = "a stack is taken away while it is used and its goroutine woken",
    .setup =
        [] {
          setUpSleeper();
          thread("visit", visit);
          thread("use", use);
          thread("wake", wake);
        },
    .finish = [] { finish(111); },
    .quick = {1, 0, 200},
    .full = {2, 0, 20000},
});

const Registered kAgain({
    .name = "hibernate_again",
    .about = "a stack is taken away twice, and faults bring it back",
    .setup =
        [] {
          setUpSleeper();
          thread("visit", [] {
            visit();
            visit();
          });
          thread("use", [] {
            use();
            use();
          });
          thread("wake", wake);
        },
    .finish = [] { finish(112); },
    .quick = {1, 0, 200},
    .full = {2, 0, 20000},
});

// A waker reads a Sudog on the stack before it readies the goroutine.
void wakeNear() {
  rt::bringNear(reinterpret_cast<void*>(local));
  use();
  wake();
}

const Registered kNear({
    .name = "hibernate_near",
    .about = "a waker brings a stack back that is used, and taken away again",
    .setup =
        [] {
          setUpSleeper();
          thread("visit", [] {
            visit();
            visit();
          });
          thread("use", use);
          thread("wake", wakeNear);
        },
    .finish = [] { finish(112); },
    .quick = {1, 0, 200},
    .full = {2, 0, 20000},
});

const Registered kTable({
    .name = "hibernate_table",
    .about = "a page table is freed while a stack comes back",
    .setup =
        [] {
          setUpSleeper();
          thread("visit", [] {
            arm();
            visit();
            freeTable();
            visit();
            freeTable();
          });
          thread("use", [] {
            arm();
            use();
          });
          thread("wake", [] {
            arm();
            wakeNear();
          });
        },
    .finish = [] { finish(112); },
    .quick = {1, 0, 200},
    .full = {2, 0, 20000},
});

const Registered kOldFault({
    .name = "hibernate_fault",
    .about = "an old fault is answered while a stack is taken away",
    .setup =
        [] {
          setUpSleeper();
          thread("visit", visit);
          thread("old fault", oldFault);
          thread("wake", wake);
        },
    .finish = [] { finish(110); },
    .quick = {1, 0, 200},
    .full = {2, 0, 20000},
});

}  // namespace
}  // namespace gump::model
