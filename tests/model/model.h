// The model checker, as models see it. docs/model.md tells how to write one.
//
// A model is a handful of virtual threads that run the library's own code. The
// checker (schedule.cc) runs them one at a time. At every access to an Atomic,
// every futex call and every yield it decides which thread goes on. It goes
// through all schedules up to a bound on preemptions, and then through random
// ones. Before each schedule the program's memory is put back to its state
// after setup, so globals are a model's state.
#ifndef TESTS_MODEL_MODEL_H_
#define TESTS_MODEL_MODEL_H_

#include <climits>
#include <cstddef>
#include <cstdint>

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
  // setup runs once, on no virtual thread. It makes the state and names the
  // threads. Models of one table may have a `common` part, which runs first.
  void (*common)() = nullptr;
  void (*setup)() = nullptr;
  // finish runs when no thread can go on any more. It is nullptr if there is
  // nothing to check.
  void (*finish)() = nullptr;
  // Tells whether a store to this word may be delayed. nullptr means all words.
  bool (*delayable)(const void* addr) = nullptr;
  // A thread that sleeps for a time may run although other threads can. To them
  // its sleep seems to end early. If this is false, time passes only when no
  // thread can run.
  bool hasty = true;
  // sysmon runs as well. A schedule still ends when only sysmon could go on, so
  // a mistake that only sysmon would repair later is a failure.
  bool sysmon = false;
  Bounds quick = {2, 1, 200};
  Bounds full = {3, 1, 20000};
};

// Registers a model before main.
struct Registered {
  explicit Registered(const Model& m);
};

// thread, in setup, adds a virtual thread, which must come to its end in every
// schedule.
//
// plainThread adds one with a pseudo-G, such as a foreign thread gets from
// needm. It parks by sleeping on its M's note, so all that goroutines block on
// works without a scheduler.
void thread(const char* name, void (*body)());
void plainThread(const char* name, void (*body)());
// onPlainThread runs f at once, in setup, as such a thread.
void onPlainThread(void (*f)());
// spawn adds a thread that may be asleep in the end. A virtual thread may call
// it, too.
void spawn(const char* name, void (*body)(void*), void* arg);
// spawnDaemon adds a thread for which time does not pass unless another thread
// waits for a time, too.
void spawnDaemon(const char* name, void (*body)(void*), void* arg);
// wantsSysmon returns the model's `sysmon`.
bool wantsSysmon();
// settle, in setup, runs all threads, in one fixed order, until no thread can
// go on. Every schedule begins with that state.
void settle();

// check fails the schedule unless ok. Both may be called from anywhere.
void check(bool ok, const char* what);
[[noreturn]] void fail(const char* what);
// step returns the number of the current point of the schedule. Everything that
// one thread has done by a step is before everything that another begins at
// that step or later. A call of step is not a point.
uint32_t step();
// choose, called by a virtual thread, returns an input: all values below n are
// explored.
int choose(int n);
// nameWord sets the name of an address in traces.
void nameWord(const void* addr, const char* name);

}  // namespace gump::model

#endif  // TESTS_MODEL_MODEL_H_
