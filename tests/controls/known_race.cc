// Two goroutines on two threads write one int without synchronisation.
// ThreadSanitizer must say so.
#include <gump/go.h>
#include <gump/runtime.h>
#include <gump/sync.h>
#include <sched.h>

#include <atomic>
#include <cstdio>

int main() {
  return gump::Run([] {
    gump::runtime::GOMAXPROCS(2);
    int shared = 0;
    std::atomic<int> started = 0;
    gump::sync::WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      wg.Go([&] {
        // Relaxed, so that meeting here orders nothing. Both are running when
        // the loop ends: on two threads.
        started.fetch_add(1, std::memory_order_relaxed);
        while (started.load(std::memory_order_relaxed) < 2) sched_yield();
        shared++;
      });
    }
    wg.Wait();
    std::printf("%d\n", shared);
  });
}
