// Pools beside a malloc that has one lock for all, as many have.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/sync/pool.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/malloc_hook.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {

constinit std::mutex heap;
constinit std::atomic<bool> armed = false;
// Small pieces are quick to get, large ones take long.
constexpr size_t kSmall = 16;
constexpr size_t kLarge = 1000;

void testing::OnMalloc(size_t n) {
  if (n <= kSmall || !armed.load(std::memory_order_relaxed)) return;
  const std::scoped_lock lock(heap);
  for (int k = n < kLarge ? 200 : 20'000; k > 0; k--) asm volatile("");
}
void testing::OnFree() {}

namespace {

// A goroutine is preempted while it holds the lock of the heap. A plain thread
// waits for that lock while it holds the lock of a pool. The goroutine that
// ages pools waits for the lock of the pool, and must not keep the first
// goroutine from its P.
TEST(PoolMallocTest, AgingPoolsKeepsNoThreadFromTheHeap) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "it has a malloc of its own";
  constexpr int kCycles = 150;  // each takes one or two slices of the hog's
  testing::RunWith(1, [] {
    std::atomic<bool> over = false;
    armed = true;
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++) {
      threads.emplace_back([&over] {
        while (!over) {
          sync::Pool<int> p;
          for (int i = 0; i < 40; i++) p.Put(std::make_unique<int>(i));
        }
      });
    }
    sync::WaitGroup wg;
    wg.Go([&over] {
      while (!over) {
        void* volatile p = std::malloc(kLarge);
        std::free(p);
      }
    });
    for (int i = 0; i < kCycles; i++) {
      runtime::GC();
      runtime::Gosched();
    }
    over = true;
    wg.Wait();
    for (std::thread& t : threads) t.join();
    armed = false;
  });
}

}  // namespace
}  // namespace gump
