// Waits with a time limit (runtime/wait/sema_timed.cc), and the types that have
// them: sync::Mutex, RWMutex, the notification lists of Cond, and Event. Most
// models are between plain threads. The last ones have goroutines and timers.
#include <chrono>

#include "gump/internal/linkname.h"
#include "gump/sync/mutex.h"
#include "gump/sync/rwmutex.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/wait/sema.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

constexpr int64_t kLimit = 1000;  // ns

int inside;
int data;

void section() {
  check(++inside == 1, "two hold the lock");
  data++;
  inside--;
}

// ---- Semaphores -------------------------------------------------------------

rt::Atomic<uint32_t> sema;
rt::Atomic<int> got;

// acquireFor takes a count within kLimit. Returns true if it did.
bool acquireFor(rt::SemaReason reason) {
  return rt::semacquireUntil(&sema, /*lifo=*/false, reason,
                             rt::semaDeadline(reason, kLimit));
}

// There is one count. A waiter with a limit that gives up leaves it to the
// other, and one that gets it passes it on.
const Registered kTimed({
    .name = "timed_sema",
    .about = "a semaphore: a waiter that gives up leaves the count to the next",
    .setup =
        [] {
          nameWord(&sema, "sema");
          plainThread("limit", [] {
            if (!acquireFor(rt::SemaReason::kSemacquire)) return;
            check(data == 1, "a wait before the release");
            rt::semrelease(&sema, /*handoff=*/false);
          });
          plainThread("wait", [] {
            rt::semacquire(&sema, false, rt::SemaReason::kSemacquire);
            check(data == 1, "a wait before the release");
          });
          plainThread("post", [] {
            data = 1;
            rt::semrelease(&sema, /*handoff=*/choose(2) == 0);
          });
        },
    .finish =
        [] {
          check(sema.load(rt::relaxed) == 0, "there is a count too many");
          check(rt::semroot(&sema)->nwait.load(rt::relaxed) == 0, "nwait");
        },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

// ---- sync::Mutex ------------------------------------------------------------

sync::Mutex mutex;

void lockFor() {
  if (!mutex.TryLockFor(std::chrono::nanoseconds(kLimit))) return;
  section();
  mutex.Unlock();
}

void lockWithout() {
  mutex.Lock();
  section();
  mutex.Unlock();
}

// lockSlowly holds the lock while time passes.
void lockSlowly() {
  mutex.Lock();
  rt::usleep(1);
  section();
  mutex.Unlock();
}

// nothingLeft: the Mutex is as new: no waiter, no flag, no count.
void nothingLeft() {
  const auto* words = reinterpret_cast<const rt::Atomic<uint32_t>*>(&mutex);
  check(words[0].load(rt::relaxed) == 0, "the state word is not 0");
  check(words[1].load(rt::relaxed) == 0, "a wake-up is left over");
}

const Registered kMutex({
    .name = "timed_mutex",
    .about = "sync::Mutex: one waits with a limit, one without",
    .setup =
        [] {
          plainThread("a", lockSlowly);
          plainThread("limit", lockFor);
          plainThread("b", lockSlowly);
        },
    .finish =
        [] {
          check(data >= 2, "a section is missing");
          nothingLeft();
        },
    .quick = {2, 1, 1000},
    .full = {3, 1, 20000},
});

const Registered kMutexTwo({
    .name = "timed_mutex_two",
    .about = "sync::Mutex: two wait with a limit",
    .setup =
        [] {
          plainThread("limit0", lockFor);
          plainThread("limit1", lockFor);
          plainThread("a", [] {
            lockWithout();
            lockWithout();
          });
        },
    .finish =
        [] {
          check(data >= 2, "a section is missing");
          nothingLeft();
        },
    .quick = {2, 1, 1000},
    .full = {3, 1, 20000},
});

const Registered kMutexStarving({
    .name = "timed_starving",
    .about = "sync::Mutex in starvation mode: the waiter may give up",
    .setup =
        [] {
          plainThread("slow", [] {
            for (int i = 0; i < 2; i++) {
              mutex.Lock();
              rt::usleep(2000);
              section();
              mutex.Unlock();
            }
          });
          plainThread("a", lockWithout);
          plainThread("limit", [] {
            if (!mutex.TryLockFor(std::chrono::microseconds(2500))) return;
            section();
            mutex.Unlock();
          });
        },
    .finish =
        [] {
          check(data >= 3, "a section is missing");
          nothingLeft();
        },
    .quick = {2, 1, 2000},
    .full = {3, 1, 20000},
});

// ---- sync::RWMutex ----------------------------------------------------------

sync::RWMutex* rw;
rt::Atomic<int> readers;

void readSection() {
  readers.add(1, rt::relaxed);
  check(inside == 0, "a reader beside a writer");
  readers.add(-1, rt::relaxed);
}

void writeSection() {
  check(readers.load(rt::relaxed) == 0, "a writer beside a reader");
  section();
}

// anyoneMayLock: no reader, no writer and no wake-up is left over.
void anyoneMayLock() {
  const auto* words = reinterpret_cast<const rt::Atomic<uint32_t>*>(rw);
  check(words[4].load(rt::relaxed) == 0, "writer_sem_ is not 0");
  check(words[5].load(rt::relaxed) == 0, "reader_sem_ is not 0");
  check(rw->TryRLock(), "a writer is left over");
  rw->RUnlock();
  check(rw->TryLock(), "a reader is left over");
  rw->Unlock();
}

const Registered kWriter({
    .name = "timed_writer",
    .about = "RWMutex: a writer that may give up, two readers",
    .setup =
        [] {
          rw = new sync::RWMutex;
          plainThread("writer", [] {
            if (!rw->TryLockFor(std::chrono::nanoseconds(kLimit))) return;
            writeSection();
            rw->Unlock();
          });
          for (const char* t : {"reader0", "reader1"}) {
            plainThread(t, [] {
              rw->RLock();
              readSection();
              rw->RUnlock();
            });
          }
        },
    .finish = anyoneMayLock,
    .quick = {2, 1, 1000},
    .full = {3, 1, 20000},
});

const Registered kWriterTwo({
    .name = "timed_writer_two",
    .about = "RWMutex: a writer that may give up, another that does not",
    .setup =
        [] {
          rw = new sync::RWMutex;
          plainThread("limit", [] {
            if (!rw->TryLockFor(std::chrono::nanoseconds(kLimit))) return;
            writeSection();
            rw->Unlock();
          });
          plainThread("writer", [] {
            rw->Lock();
            writeSection();
            rw->Unlock();
          });
          plainThread("reader", [] {
            for (int i = 0; i < 2; i++) {
              rw->RLock();
              readSection();
              rw->RUnlock();
            }
          });
        },
    .finish =
        [] {
          check(data >= 1, "a section is missing");
          anyoneMayLock();
        },
    .quick = {2, 1, 1000},
    .full = {3, 1, 20000},
});

const Registered kReader({
    .name = "timed_reader",
    .about = "RWMutex: a reader that may give up, one that does not, a writer",
    .setup =
        [] {
          rw = new sync::RWMutex;
          plainThread("writer", [] {
            for (int i = 0; i < 2; i++) {
              rw->Lock();
              writeSection();
              rw->Unlock();
            }
          });
          plainThread("limit", [] {
            if (!rw->TryRLockFor(std::chrono::nanoseconds(kLimit))) return;
            readSection();
            rw->RUnlock();
          });
          plainThread("reader", [] {
            rw->RLock();
            readSection();
            rw->RUnlock();
          });
        },
    .finish =
        [] {
          check(data == 2, "a section is missing");
          anyoneMayLock();
        },
    .quick = {2, 1, 1000},
    .full = {3, 1, 20000},
});

// ---- The list of a Cond -----------------------------------------------------

rt::NotifyList list;
rt::Atomic<int> waiting;

// There is one notification. A waiter with a limit that gives up leaves it to
// the other, and one that gets it passes it on.
const Registered kNotify({
    .name = "timed_notify",
    .about = "a waiter that gives up leaves its notification to the next",
    .setup =
        [] {
          plainThread("limit", [] {
            constexpr auto kReason = rt::SemaReason::kCondWait;
            rt::NotifyWaiter w;
            rt::notifyListEnter(&list, &w);
            waiting.add(1, rt::relaxed);
            if (!rt::semacquireUntil(&w.woken, false, kReason,
                                     rt::semaDeadline(kReason, kLimit))) {
              if (rt::notifyListLeave(&list, &w)) return;
              rt::semacquire(&w.woken, false, kReason);
            }
            rt::notifyListNotifyOne(&list);
          });
          plainThread("wait", [] {
            if (choose(2) == 0) {
              const uint32_t t = rt::notifyListAdd(&list);
              waiting.add(1, rt::relaxed);
              rt::notifyListWait(&list, t);
            } else {
              rt::NotifyWaiter w;
              rt::notifyListEnter(&list, &w);
              waiting.add(1, rt::relaxed);
              rt::semacquire(&w.woken, false, rt::SemaReason::kCondWait);
            }
          });
          plainThread("notify", [] {
            while (waiting.load(rt::relaxed) != 2) rt::gosched();
            rt::notifyListNotifyOne(&list);
          });
        },
    .finish =
        [] {
          check(list.head == nullptr, "a waiter is left in the list");
          check(list.wait.load(rt::relaxed) == list.notify.load(rt::relaxed),
                "a ticket, or the mark, is left over");
        },
    .quick = {1, 1, 1000},
    .full = {2, 1, 20000},
});

// ---- Event ------------------------------------------------------------------

rt::Event* events[2];

// waitAny waits for both Events, in the order that `first` says. Returns the
// one that has fired, or -1.
int waitAny(int first, int64_t ns) {
  rt::EventNode nodes[2];
  nodes[0].event = events[first];
  nodes[1].event = events[1 - first];
  const uint32_t fired = rt::eventWait(nodes, 2, ns);
  if (fired == rt::EventWaiter::kTimedOut) return -1;
  return fired == 0 ? first : 1 - first;
}

bool waitOne(int i, int64_t ns) {
  if (rt::eventTryWait(events[i])) return true;
  rt::EventNode node;
  node.event = events[i];
  return rt::eventWait(&node, 1, ns) == 0;
}

rt::Atomic<int> through[2];

const Registered kEvent({
    .name = "event",
    .about = "Event, kAuto: two wait, two settings that the first has seen",
    .setup =
        [] {
          events[0] = new rt::Event(/*autoReset=*/true, /*set=*/false);
          for (const char* t : {"a", "b"}) {
            plainThread(t, [] {
              check(waitOne(0, INT64_MAX), "timed out");
              check(data == 1, "a wait before the Set");
              through[0].add(1, rt::relaxed);
            });
          }
          plainThread("set", [] {
            data = 1;
            rt::eventSet(events[0]);
            while (through[0].load(rt::relaxed) == 0) rt::gosched();
            rt::eventSet(events[0]);
          });
        },
    .quick = {2, 1, 1000},
    .full = {3, 1, 20000},
});

// A producer adds and sets, a consumer waits and takes all. With `data` under
// no lock but the Event's, the last Set counts although the Event may be set.
rt::Atomic<int> produced;

const Registered kEventAgain({
    .name = "event_again",
    .about = "Event, kAuto: a Set of a set Event is seen by the wait",
    .setup =
        [] {
          events[0] = new rt::Event(true, false);
          plainThread("produce", [] {
            for (int i = 0; i < 2; i++) {
              produced.store(i + 1, rt::relaxed);
              rt::eventSet(events[0]);
            }
          });
          plainThread("consume", [] {
            while (produced.load(rt::relaxed) != 2) {
              check(waitOne(0, INT64_MAX), "timed out");
            }
          });
        },
    .quick = {3, 1, 1000},
    .full = {4, 1, 20000},
});

const Registered kEventFree({
    .name = "event_free",
    .about = "Event: the waiter destroys it as soon as it is awake",
    .setup =
        [] {
          events[0] = new rt::Event(choose(2) == 0, false);
          plainThread("wait", [] {
            check(waitOne(0, INT64_MAX), "timed out");
            delete events[0];
          });
          plainThread("set", [] { rt::eventSet(events[0]); });
        },
    .quick = {4, 1, 1000},
    .full = {5, 1, 20000},
});

const Registered kEventAny({
    .name = "event_any",
    .about = "Events, kAuto: two wait for either of two, each is set once",
    .setup =
        [] {
          for (rt::Event*& e : events) e = new rt::Event(true, false);
          plainThread(
              "a", [] { through[waitAny(0, INT64_MAX)].add(1, rt::relaxed); });
          plainThread(
              "b", [] { through[waitAny(1, INT64_MAX)].add(1, rt::relaxed); });
          plainThread("set", [] {
            rt::eventSet(events[0]);
            rt::eventSet(events[1]);
          });
        },
    .finish =
        [] {
          for (int i = 0; i < 2; i++) {
            check(through[i].load(rt::relaxed) == 1,
                  "an Event has let none through, or two");
            check(events[i]->state.load(rt::relaxed) == rt::Event::kAuto,
                  "an Event is set, or has waiters");
          }
        },
    .quick = {2, 1, 1000},
    .full = {3, 1, 20000},
});

const Registered kEventAnyTimed({
    .name = "event_any_timed",
    .about = "Events, kAuto: a wait for two that may give up; no Set is lost",
    .setup =
        [] {
          for (rt::Event*& e : events) e = new rt::Event(true, false);
          plainThread("limit", [] {
            const int i = waitAny(0, kLimit);
            if (i >= 0) through[i].add(1, rt::relaxed);
          });
          plainThread("set0", [] { rt::eventSet(events[0]); });
          plainThread("set1", [] { rt::eventSet(events[1]); });
        },
    .finish =
        [] {
          for (int i = 0; i < 2; i++) {
            const uint32_t s = events[i]->state.load(rt::relaxed);
            const int set = (s & rt::Event::kSet) != 0 ? 1 : 0;
            check(through[i].load(rt::relaxed) + set == 1,
                  "a Set is lost, or counts twice");
            check((s & rt::Event::kWaiters) == 0, "an Event has waiters");
          }
        },
    .quick = {2, 1, 1000},
    .full = {3, 1, 20000},
});

// ---- Goroutines with timers -------------------------------------------------

// A goroutine waits with a limit while a plain thread releases, and perhaps
// takes the count back before the goroutine that it has woken.
void timedGoroutine() {
  plainThread("go", [] {
    startG([] {
      if (!acquireFor(rt::SemaReason::kSemacquire)) return;
      check(data == 1, "a wait before the release");
      got.add(1, rt::relaxed);
    });
  });
  plainThread("post", [] {
    rt::usleep(1);
    data = 1;
    const bool handoff = choose(2) == 0;
    rt::semrelease(&sema, handoff);
    if (!handoff &&
        rt::semacquireUntil(&sema, false, rt::SemaReason::kSemacquire, 0)) {
      got.add(1, rt::relaxed);
    }
  });
}

// cells counts the free cells of timers and the timers in heaps.
uint32_t cells() {
  uint32_t n = 0;
  for (int i = 0; i < 2; i++) {
    n += rt::allp[i]->funcCells.n;
    n += rt::allp[i]->timers.len.load(rt::relaxed);
  }
  return n;
}

const Registered kGoroutine({
    .name = "timed_goroutine",
    .about = "a goroutine whose time passes while its count comes",
    .common = setUpScheduler,
    .setup = timedGoroutine,
    .finish =
        [] {
          allRan(1);
          check(got.load(rt::relaxed) +
                        static_cast<int>(sema.load(rt::relaxed)) ==
                    1,
                "the count is lost");
          check(rt::semroot(&sema)->nwait.load(rt::relaxed) == 0, "nwait");
          check(cells() <= 1, "a cell was freed twice");
        },
    .delayable = ofSchedOrP,
    .quick = {1, 0, 1000},
    .full = {2, 1, 5000, 1},
});

}  // namespace
}  // namespace gump::model
