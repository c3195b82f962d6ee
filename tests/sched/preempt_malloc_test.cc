// The runtime does not allocate where a preempted goroutine may hold malloc's
// lock: on g0, while m.locks > 0, in the signal handler, in sysmon.
//
// This program replaces malloc, and so operator new, by functions that abort
// there.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "tests/testing/malloc_hook.h"
#include "tests/testing/with_gomaxprocs.h"

namespace {

std::atomic<int64_t> allocations;
// The template thread, and the thread that starts the runtime, may allocate.
std::atomic<bool> started;

void Check() {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const gump::rt::G* gp = gump::rt::getg();
  if (!started || gp == nullptr || gp->foreign) return;
  const gump::rt::M* mp = gp->m;
  const bool user = gp != &mp->g0;
  if (user && mp->locks.load(gump::rt::relaxed) == 0) return;
  if (!user && mp->mstartfn != nullptr && mp->id == 1) return;  // template
  constexpr char kText[] = "malloc in a forbidden place\n";
  (void)!write(2, kText, sizeof(kText) - 1);
  std::abort();
}

// While this is set, an allocation takes a lock, and one of kSlowSize computes
// for some slices while it holds the lock.
std::atomic<bool> guarded;
pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
constexpr size_t kSlowSize = 12345;

void Guard(size_t n) {
  if (!guarded) return;
  pthread_mutex_lock(&guard);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
  while (n == kSlowSize && std::chrono::steady_clock::now() < end) {
  }
  pthread_mutex_unlock(&guard);
}

}  // namespace

void gump::testing::OnMalloc(size_t n) {
  Check();
  Guard(n);
}
void gump::testing::OnFree() { Check(); }

namespace gump {
namespace {

using PreemptMallocTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PreemptMallocTest);

// Everything at once: hogs inside malloc, blocked threads, exchanges, stops of
// the world, dumps, exits, panics, new threads.
TEST_P(PreemptMallocTest, NoForbiddenPlaceAllocates) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "has its own malloc";
  Run([] {
    started = true;
    const int64_t before = allocations;
    std::atomic<bool> stop = false;
    sync::WaitGroup hogs;
    for (size_t i = 0; i < 4; i++) {
      hogs.Go([&stop, i] {
        while (!stop.load(std::memory_order_relaxed)) {
          void* volatile p = std::malloc(100 + i);
          std::free(p);
        }
      });
      hogs.Go([&stop] {
        while (!stop.load(std::memory_order_relaxed)) usleep(12'000);
      });
    }
    for (int round = 0; round < 3; round++) {
      sync::WaitGroup wg;
      auto c = make_chan<std::string>(1);
      for (int i = 0; i < 20; i++) {
        wg.Go([&] { c.Send(std::string(100, 'x')); });
        wg.Go([&] {
          auto none = make_chan<std::string>(1);
          std::string s;
          select(Recv(none, &s), Send(none, s), Default([] {}));
          try {
            panic("expected");
          } catch (const PanicError&) {
          }
          blocking([] { usleep(100); });
          runtime::Goexit();
        });
      }
      for (int i = 0; i < 10; i++) c.Recv();
      runtime::GOMAXPROCS(runtime::GOMAXPROCS(0) == 2 ? 3 : 2);
      EXPECT_FALSE(runtime::Stack(true).empty());
      runtime::GC();
      go([c]() mutable {
        while (c.Recv()) {
        }
      });
      wg.Wait();
      c.Close();
    }
    stop = true;
    hogs.Wait();
    started = false;
    EXPECT_GT(allocations, before);
  });
}

// pthread_create needs malloc. If the goroutine that holds malloc's lock is
// preempted, and every P waits for a thread that is being made, then this
// goroutine has to get a P.
TEST(PreemptMallocDeathTest, HolderOfTheLockGoesOnWhileThreadsAreMade) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "has its own malloc";
  EXPECT_EXIT(
      {
        runtime::GOMAXPROCS(1);
        gump::Run([] {
          guarded = true;
          std::atomic<bool> done = false;
          go([&] {
            void* volatile p = std::malloc(kSlowSize);
            std::free(p);
            done = true;
          });
          while (!done) runtime::Gosched();
          guarded = false;
        });
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gump
