// The model checker, as models see it; docs/model.md tells how to write one.
//
// A model is a handful of virtual threads that run the library's own code.
// schedule.cc runs them one at a time and decides at every access to an Atomic,
// every futex call and every yield who goes on: through all schedules up to a
// bound on preemptions, then through random ones. Before each schedule the
// program's memory is put back to what it was after setup, so globals are a
// model's state.
#ifndef TESTS_MODEL_MODEL_H_
#define TESTS_MODEL_MODEL_H_

#include <climits>
#include <cstddef>
#include <cstdint>

#include "runtime/runtime2.h"

namespace gump::model {

struct Bounds {
  int preemptions;  // switches away from a thread that could go on
  int delays;       // stores that others see later (see docs/model.md)
  int random;       // schedules after the exhaustive search
  // With more preemptions than this the exhaustive search delays no store.
  int delayed = INT_MAX;
};

struct Model {
  const char* name = nullptr;
  const char* about = nullptr;
  // setup runs once, on no virtual thread: makes the state, names the threads.
  void (*setup)() = nullptr;
  // finish runs when nobody can go on any more; nullptr: there is nothing to be
  // said.
  void (*finish)() = nullptr;
  // Which words a store to may be delayed; nullptr: all.
  bool (*delayable)(const void* addr) = nullptr;
  // A sleep for a time may end early, as far as others can tell: its thread may
  // run although others can. Otherwise time passes only when nobody can run.
  bool hasty = true;
  // sysmon runs as well. A schedule ends all the same when nothing but sysmon
  // would go on: what only it would repair later is a failure.
  bool sysmon = false;
  Bounds quick = {2, 1, 200};
  Bounds full = {3, 1, 20000};
};

// Registers a model before main.
struct Registered {
  explicit Registered(const Model& m);
};

// thread, in setup: a virtual thread, which must come to its end in every
// schedule. plainThread is one that has a pseudo-G, as a thread that is not the
// runtime's gets it from needm: it parks by sleeping on its M's note, so all
// that goroutines block on works without a scheduler.
void thread(const char* name, void (*body)());
void plainThread(const char* name, void (*body)());
// onPlainThread runs f at once, in setup, as such a thread.
void onPlainThread(void (*f)());
// spawn adds one that may be asleep in the end; also from a virtual thread.
void spawn(const char* name, void (*body)(void*), void* arg);
// spawnDaemon adds one for which time does not pass while nobody else waits for
// a time.
void spawnDaemon(const char* name, void (*body)(void*), void* arg);
// wantsSysmon is what the model says.
bool wantsSysmon();
// settle, in setup: runs all threads, in one fixed order, until nobody can go
// on, and takes that as what every schedule begins with.
void settle();

// check fails the schedule unless ok. Both may be called from anywhere.
void check(bool ok, const char* what);
[[noreturn]] void fail(const char* what);
// step numbers the points of a schedule: what one thread has done by a step is
// before what another begins at that step or later. Looking is not a point.
uint32_t step();
// choose, of a virtual thread, is an input: all values below n are explored.
int choose(int n);
// nameWord says how traces call an address.
void nameWord(const void* addr, const char* name);

}  // namespace gump::model

#endif  // TESTS_MODEL_MODEL_H_
