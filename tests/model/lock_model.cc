// Mutex and Note (runtime/lock_futex.cc).
#include "runtime/lock_futex.h"
#include "runtime/proc.h"
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

const Model kMutex2 = {
    .name = "mutex",
    .about = "three threads take a Mutex",
    .setup =
        [] {
          nameWord(&mutex, "key");
          for (const char* t : {"a", "b", "c"}) thread(t, increment);
        },
    .finish = [] { check(done == 3, "a section is missing"); },
};
const Registered kMutexRegistered(kMutex2);

}  // namespace
}  // namespace gump::model
