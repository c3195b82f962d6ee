// Semaphores (runtime/wait/sema.cc) and the types that build on them:
// sync::Mutex, RWMutex, WaitGroup and condition variables, between plain
// threads.
#include "gump/internal/linkname.h"
#include "gump/sync/mutex.h"
#include "gump/sync/rwmutex.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sys/os_linux.h"
#include "runtime/wait/sema.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

int inside;
int data;
int done;

void section() {
  check(++inside == 1, "two hold the lock");
  data++;
  inside--;
}

// ---- Semaphores -------------------------------------------------------------

rt::Atomic<uint32_t> sema;

void useSemaphore() {
  rt::semacquire(&sema, /*lifo=*/false, rt::SemaReason::kSemacquire);
  section();
  rt::semrelease(&sema, /*handoff=*/false);
}

void handSemaphore() {
  rt::semacquire(&sema, /*lifo=*/false, rt::SemaReason::kSemacquire);
  section();
  rt::semrelease(&sema, /*handoff=*/true);
}

const Registered kSema({
    .name = "sema",
    .about = "a semaphore of one: no waiter forgotten",
    .setup =
        [] {
          sema.store(1, rt::relaxed);
          nameWord(&sema, "sema");
          for (const char* t : {"a", "b", "c"}) plainThread(t, useSemaphore);
        },
    .finish = [] { check(data == 3, "a section is missing"); },
});

const Registered kSemaHandoff({
    .name = "sema_handoff",
    .about = "the same, the count being handed over",
    .setup =
        [] {
          sema.store(1, rt::relaxed);
          nameWord(&sema, "sema");
          for (const char* t : {"a", "b", "c"}) plainThread(t, handSemaphore);
        },
    .finish = [] { check(data == 3, "a section is missing"); },
});

// Two semaphores in one root: each wakes its own waiter.
rt::Atomic<uint32_t> words[64];
rt::Atomic<uint32_t>* semas[2];

const Registered kSemaTwo({
    .name = "sema_two",
    .about = "waiters on two addresses",
    .setup =
        [] {
          semas[0] = semas[1] = &words[0];
          while (semas[1] == semas[0] ||
                 rt::semroot(semas[1]) != rt::semroot(semas[0])) {
            semas[1]++;
          }
          plainThread("wait0", [] {
            rt::semacquire(semas[0], false, rt::SemaReason::kSemacquire);
          });
          plainThread("wait1", [] {
            rt::semacquire(semas[1], false, rt::SemaReason::kSemacquire);
          });
          plainThread("post", [] {
            rt::semrelease(semas[1], false);
            rt::semrelease(semas[0], false);
          });
        },
});

rt::Atomic<uint32_t> notifyWord;
rt::NotifyList notify;
sync::Mutex mutex;

const Registered kNotify({
    .name = "notify",
    .about = "a condition variable's tickets: a notification in between",
    .setup =
        [] {
          plainThread("wait", [] {
            mutex.Lock();
            while (data == 0) {
              const uint32_t t = rt::notifyListAdd(&notify);
              mutex.Unlock();
              rt::notifyListWait(&notify, t);
              mutex.Lock();
            }
            mutex.Unlock();
          });
          plainThread("notify", [] {
            mutex.Lock();
            data = 1;
            mutex.Unlock();
            if (choose(2) == 0) {
              rt::notifyListNotifyOne(&notify);
            } else {
              rt::notifyListNotifyAll(&notify);
            }
          });
        },
    .quick = {3, 1, 200},
    .full = {4, 1, 20000},
});

// ---- sync::Mutex ------------------------------------------------------------

const Registered kSyncMutex({
    .name = "sync_mutex",
    .about = "sync::Mutex, three threads",
    .setup =
        [] {
          for (const char* t : {"a", "b", "c"}) {
            plainThread(t, [] {
              mutex.Lock();
              section();
              mutex.Unlock();
            });
          }
        },
    .finish = [] { check(data == 3, "a section is missing"); },
});

const Registered kSyncStarving({
    .name = "sync_starving",
    .about = "sync::Mutex in starvation mode: handed over",
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
          for (const char* t : {"a", "b"}) {
            plainThread(t, [] {
              mutex.Lock();
              section();
              mutex.Unlock();
            });
          }
        },
    .finish = [] { check(data == 4, "a section is missing"); },
});

struct Owned {
  sync::Mutex mu;
  int users = 2;
};
Owned* owned;

const Registered kSyncMutexFree({
    .name = "sync_mutex_free",
    .about = "sync::Mutex: the last to lock it may destroy it",
    .setup =
        [] {
          owned = new Owned;
          for (const char* t : {"a", "b"}) {
            plainThread(t, [] {
              owned->mu.Lock();
              const bool last = --owned->users == 0;
              owned->mu.Unlock();
              if (last) delete owned;
            });
          }
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

// ---- RWMutex, WaitGroup -----------------------------------------------------

sync::RWMutex* rw;
rt::Atomic<int> readers;

const Registered kRWMutex({
    .name = "rwmutex",
    .about = "RWMutex: a writer, two readers, then it is destroyed",
    .setup =
        [] {
          rw = new sync::RWMutex;
          plainThread("writer", [] {
            rw->Lock();
            check(readers.load(rt::relaxed) == 0, "a reader beside a writer");
            section();
            rw->Unlock();
            rw->Lock();
            check(data == 1, "data");
            rw->Unlock();
          });
          for (const char* t : {"reader0", "reader1"}) {
            plainThread(t, [] {
              rw->RLock();
              readers.add(1, rt::relaxed);
              check(inside == 0, "a reader beside a writer");
              readers.add(-1, rt::relaxed);
              rw->RUnlock();
            });
          }
        },
    .finish = [] { check(data == 1, "a section is missing"); },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

// Unlock must not touch the object once it can be destroyed.
const Registered kRWMutexFree({
    .name = "rwmutex_free",
    .about = "RWMutex: the last thread that is let in may destroy it",
    .setup =
        [] {
          rw = new sync::RWMutex;
          plainThread("writer", [] {
            rw->Lock();
            data = 1;
            rw->Unlock();
          });
          plainThread("destroyer", [] {
            for (bool end = false; !end;) {
              rw->RLock();
              end = data == 1;
              rw->RUnlock();
              if (!end) rt::gosched();
            }
            delete rw;
          });
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

sync::WaitGroup wg;

const Registered kWaitGroup({
    .name = "waitgroup",
    .about = "WaitGroup: two waiters, and used again when they are gone",
    .setup =
        [] {
          wg.Add(2);
          plainThread("main", [] {
            wg.Wait();
            check(data == 1 && done == 1, "Wait returned early");
            wg.Add(1);
            wg.Done();
            wg.Wait();
          });
          plainThread("a", [] {
            data = 1;
            wg.Done();
          });
          plainThread("b", [] {
            done = 1;
            wg.Done();
          });
        },
});

const Registered kWaitGroupLate({
    .name = "waitgroup_late",
    .about = "WaitGroup: two wait, one perhaps when the other has been let go",
    .setup =
        [] {
          wg.Add(1);
          for (const char* t : {"a", "b"}) {
            plainThread(t, [] {
              wg.Wait();
              check(data == 1, "Wait returned early");
            });
          }
          plainThread("done", [] {
            data = 1;
            wg.Done();
          });
        },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

sync::WaitGroup* group;

const Registered kWaitGroupReuse({
    .name = "waitgroup_reuse",
    .about = "WaitGroup: round after round, then destroyed by the waiter",
    .setup =
        [] {
          group = new sync::WaitGroup;
          group->Add(1);
          plainThread("wait", [] {
            group->Wait();
            check(data == 1, "Wait returned early");
            group->Add(1);
            rt::semrelease(&sema, false);
            group->Wait();
            check(data == 2, "Wait returned early");
            delete group;
          });
          plainThread("done", [] {
            data = 1;
            group->Done();
            rt::semacquire(&sema, false, rt::SemaReason::kSemacquire);
            data = 2;
            group->Done();
          });
        },
    .quick = {3, 1, 200},
    .full = {4, 1, 20000},
});

// Two goroutines wait, and each may be between counting itself and its park.
const Registered kWaitGroupTwo({
    .name = "waitgroup_two",
    .about = "WaitGroup: two goroutines wait, and a thread lets them go",
    .common = setUpScheduler,
    .setup =
        [] {
          wg.Add(1);
          plainThread("go", [] {
            for (int i = 0; i < 2; i++) {
              startG([] {
                wg.Wait();
                check(data == 1, "Wait returned early");
              });
            }
          });
          plainThread("done", [] {
            data = 1;
            wg.Done();
          });
        },
    .finish = allRan<2>,
    .quick = {1, 0, 1000},
    .full = {2, 1, 20000},
});

}  // namespace
}  // namespace gump::model
