// Plain threads in tests.
//
// The deadlock report counts the threads that have entered the runtime. A
// thread that has only used fast paths so far, such as locking a free Mutex, is
// not among them, and goroutines that all wait for it look dead. So threads
// that goroutines wait for introduce themselves first.
#ifndef TESTS_TESTING_KNOWN_THREAD_H_
#define TESTS_TESTING_KNOWN_THREAD_H_

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

// KnownThread starts a thread that runs f, and returns once the runtime knows
// it. It must be called from a goroutine.
template <class F>
std::thread KnownThread(F f) {
  static gls<int> introduced{0};
  auto known = std::make_shared<std::atomic<bool>>(false);
  std::thread t([known, f = std::move(f)]() mutable {
    ++*introduced;
    *known = true;
    f();
  });
  EXPECT_TRUE(Eventually([&] { return known->load(); }));
  return t;
}

// JoinAll joins threads from a goroutine, in one declared blocking call.
inline void JoinAll(std::vector<std::thread>& threads) {
  blocking([&] {
    for (std::thread& t : threads) t.join();
  });
}

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
