// Plain threads in tests.
//
// The deadlock report counts the threads that have entered the runtime. A
// thread that has only used fast paths so far, such as locking a free Mutex, is
// not among them, and goroutines that all wait for it look dead. So threads
// that goroutines wait for introduce themselves first.
#ifndef TESTS_TESTING_KNOWN_THREAD_H_
#define TESTS_TESTING_KNOWN_THREAD_H_

#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "gump/sync/waitgroup.h"

namespace gump::testing {

// KnownThread starts a thread that runs f, and returns once the runtime knows
// it. It must be called from a goroutine. It is not a template, because tests
// would spend a tenth of their compile time on it.
std::thread KnownThread(absl::AnyInvocable<void()> f);

// CurrentThread returns the id of the thread on which the caller runs now. In a
// function that parks, and in a coroutine, a compiler may read
// this_thread::get_id() once and keep it. So this is not inline.
std::thread::id CurrentThread();

// JoinAll joins threads from a goroutine, in one declared blocking call.
void JoinAll(std::vector<std::thread>& threads);

// InThreadsAndGoroutines runs each f in so many plain threads and in so many
// goroutines, and returns when all have returned. It must be called from a
// goroutine.
template <class... F>
void InThreadsAndGoroutines(int threads, int goroutines, const F&... f) {
  std::vector<std::thread> plain;
  sync::WaitGroup wg;
  for (int i = 0; i < threads; i++) (plain.push_back(KnownThread(f)), ...);
  for (int i = 0; i < goroutines; i++) (wg.Go(f), ...);
  wg.Wait();
  JoinAll(plain);
}

// OnBothSides runs each f in two plain threads and in two goroutines.
template <class... F>
void OnBothSides(const F&... f) {
  InThreadsAndGoroutines(2, 2, f...);
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_KNOWN_THREAD_H_
