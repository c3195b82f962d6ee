// Two goroutines on two threads write one int without synchronisation.
// ThreadSanitizer must say so, and show both stacks. These must hold nothing of
// goroutines that had the same stacks before.
#include <gump/go.h>
#include <gump/runtime.h>
#include <gump/sync.h>
#include <sched.h>

#include <atomic>
#include <cstdio>

int main() {
  return gump::Run([] {
    gump::runtime::GOMAXPROCS(2);
    for (int i = 0; i < 50; i++) {
      gump::sync::WaitGroup before;
      before.Go([i] {
        if (i % 2 == 0) gump::runtime::Goexit();
      });
      before.Wait();
    }
    int shared = 0;
    // There are many rounds. On a busy machine the second goroutine may start
    // on the P that the first one lost, and handing over a P orders them.
    for (int round = 0; round < 100; round++) {
      std::atomic<int> started = 0;
      gump::sync::WaitGroup wg;
      for (int i = 0; i < 2; i++) {
        wg.Go([&] {
          // Relaxed, so that meeting here orders nothing. Both goroutines run
          // when the loop ends, so they are on two threads.
          started.fetch_add(1, std::memory_order_relaxed);
          while (started.load(std::memory_order_relaxed) < 2) sched_yield();
          shared++;
        });
      }
      wg.Wait();
    }
    std::printf("%d\n", shared);
  });
}
