// A way to make the runtime start threads.
#ifndef TESTS_TESTING_SLEEP_ON_THREADS_H_
#define TESTS_TESTING_SLEEP_ON_THREADS_H_

#include <unistd.h>

#include <atomic>

#include "gump/go.h"
#include "gump/sync/waitgroup.h"

namespace gump::testing {

// SleepOnThreads blocks n goroutines in declared calls at the same time, each
// on a thread of its own.
inline void SleepOnThreads(int n) {
  std::atomic<int> asleep = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < n; i++) {
    wg.Go([&] {
      blocking([&] {
        asleep++;
        while (asleep < n) usleep(1000);
      });
    });
  }
  wg.Wait();
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_SLEEP_ON_THREADS_H_
