// Mutex and Note (runtime/sys/lock_futex.cc).
#include "runtime/sys/lock_futex.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

rt::Mutex mutex;
int inside;
int done;

void increment() {
  rt::lock(&mutex);
  check(++inside == 1, "two hold the lock");
  inside--;
  done++;
  rt::unlock(&mutex);
}

const Registered kMutex({
    .name = "mutex",
    .about = "Mutex: exclusion, no sleeper forgotten, three threads",
    .setup =
        [] {
          nameWord(&mutex, "key");
          for (const char* t : {"a", "b", "c"}) thread(t, increment);
        },
    .finish = [] { check(done == 3, "a section is missing"); },
    .quick = {3, 1, 200},
    .full = {4, 1, 20000},
});

// (L5) needs one preemption more, and no delayed store.
const Registered kMutexSkips({
    .name = "mutex_skips",
    .about = "Mutex: an unlock that skips a wake-up forgets no sleeper",
    .setup =
        [] {
          nameWord(&mutex, "key");
          for (const char* t : {"a", "b", "c"}) thread(t, increment);
        },
    .finish = [] { check(done == 3, "a section is missing"); },
    .quick = {4, 0, 0},
    .full = {5, 0, 20000},
});

// (L4): the last thread to unlock frees the lock at once.
struct Owned {
  rt::Mutex mu;
  int users = 2;
};
Owned* owned;

void useAndFree() {
  rt::lock(&owned->mu);
  const bool last = --owned->users == 0;
  rt::unlock(&owned->mu);
  if (last) delete owned;
}

const Registered kMutexFree({
    .name = "mutex_free",
    .about = "Mutex: the last thread to lock it may free it at once",
    .setup =
        [] {
          owned = new Owned;
          nameWord(&owned->mu, "key");
          thread("a", useAndFree);
          thread("b", useAndFree);
        },
    .quick = {3, 1, 200},
    .full = {4, 1, 20000},
});

rt::Note there, back;
int message;

const Registered kNote({
    .name = "note",
    .about = "Note: a wake-up before or after the sleep, and used again",
    .setup =
        [] {
          nameWord(&there.key, "there");
          nameWord(&back.key, "back");
          thread("sleeper", [] {
            for (int i = 1; i <= 2; i++) {
              rt::notesleep(&there);
              rt::noteclear(&there);
              check(message == i, "woken without the message");
              rt::notewakeup(&back);
            }
          });
          thread("waker", [] {
            for (int i = 1; i <= 2; i++) {
              message = i;
              rt::notewakeup(&there);
              rt::notesleep(&back);
              rt::noteclear(&back);
            }
          });
        },
    .quick = {4, 1, 200},
    .full = {5, 1, 20000},
});

bool signalled;

const Registered kNoteTimed({
    .name = "note_timed",
    .about = "Note: a sleep with a limit, and a wake-up at that moment",
    .setup =
        [] {
          thread("sleeper", [] {
            signalled = rt::notetsleep(&there, 1000);
            if (signalled) check(message == 1, "woken without the message");
            if (!signalled) rt::notesleep(&there);
            check(message == 1, "woken without the message");
          });
          thread("waker", [] {
            message = 1;
            rt::notewakeup(&there);
          });
        },
    .quick = {4, 1, 200},
    .full = {5, 1, 20000},
});

}  // namespace
}  // namespace gump::model
