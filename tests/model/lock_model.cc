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

const Registered kMutexFour({
    .name = "mutex_four",
    .about = "Mutex: no sleeper forgotten, four threads",
    .setup =
        [] {
          nameWord(&mutex, "key");
          for (const char* t : {"a", "b", "c", "d"}) thread(t, increment);
        },
    .finish = [] { check(done == 4, "a section is missing"); },
    .quick = {2, 0, 3000},
    .full = {2, 1, 100000},
});

// (L4): two locks that share a slot, and a thread that takes both.
struct TwoOfASlot {
  rt::Mutex a;
  char between[rt::kLockSleeperSlots * rt::kCacheLine - sizeof(rt::Mutex)];
  rt::Mutex b;
};
alignas(rt::kCacheLine) TwoOfASlot two;

void takeA() {
  rt::lock(&two.a);
  done++;
  rt::unlock(&two.a);
}
int doneB;
void takeB() {
  rt::lock(&two.b);
  doneB++;
  rt::unlock(&two.b);
}
void takeBoth() {
  rt::lock(&two.a);
  takeB();
  done++;
  rt::unlock(&two.a);
}
void nameTwo() {
  check(rt::lockSleepersOf(&two.a) == rt::lockSleepersOf(&two.b), "two slots");
  nameWord(&two.a, "a");
  nameWord(&two.b, "b");
}

const Registered kMutexSlot({
    .name = "mutex_slot",
    .about = "Mutex: two locks that share a slot forget no sleeper",
    .setup =
        [] {
          nameTwo();
          for (const char* t : {"a1", "a2"}) thread(t, takeA);
          for (const char* t : {"b1", "b2"}) thread(t, takeB);
        },
    .finish = [] { check(done == 2 && doneB == 2, "a section is missing"); },
    .quick = {2, 0, 3000},
    .full = {3, 0, 100000},
});

// futexWake goes by the order of the threads, so there is one for each order.
template <int order>
void nested() {
  nameTwo();
  if (order == 0) thread("b", takeB);
  if (order != 2) thread("a", takeA);
  if (order == 1) thread("b", takeB);
  thread("both", takeBoth);
  if (order == 2) {
    thread("a", takeA);
    thread("b", takeB);
  }
}
void nestedDone() { check(done == 2 && doneB == 2, "a section is missing"); }

const Registered kMutexNested({
    .name = "mutex_nested",
    .about = "Mutex: a thread waits for a lock while it holds one of its slot",
    .setup = nested<0>,
    .finish = nestedDone,
    .quick = {4, 0, 3000},
    .full = {5, 0, 100000},
});
const Registered kMutexNestedOther({
    .name = "mutex_nested_other",
    .about = "the same, with the other two threads in another order",
    .setup = nested<1>,
    .finish = nestedDone,
    .quick = {3, 0, 3000},
    .full = {4, 0, 100000},
});
const Registered kMutexNestedFirst({
    .name = "mutex_nested_first",
    .about = "the same, with that thread as the first",
    .setup = nested<2>,
    .finish = nestedDone,
    .quick = {3, 0, 3000},
    .full = {4, 0, 100000},
});

// (L6): the last thread to unlock frees the lock at once.
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
