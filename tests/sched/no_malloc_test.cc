// The scheduler's hot paths do not allocate once they are warm: starting and
// ending goroutines, parking and readying, yielding, contended locks.
//
// This program replaces malloc, and so operator new, by counting wrappers.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/malloc_hook.h"
#include "tests/testing/with_gomaxprocs.h"

namespace {
std::atomic<int64_t> allocations;
}  // namespace

void gump::testing::OnMalloc(size_t) {
  allocations.fetch_add(1, std::memory_order_relaxed);
}
void gump::testing::OnFree() {}

namespace gump {
namespace {

class NoMallocTest : public testing::WithGomaxprocs {
 protected:
  // Steady calls step() until it is warm, and then expects it to allocate
  // nothing. It is warm after a long stretch without an allocation. A thread
  // that is created late allocates, so there may be a few attempts.
  template <class F>
  void Steady(F step) {
    if (rt::kSanitizerBuild) GTEST_SKIP() << "fibres allocate";
    Run([&] {
      constexpr int kSteps = 2000;
      constexpr int kAttempts = 20;
      int64_t made = 0;
      for (int i = 0; i < kAttempts; i++) {
        const int64_t before = allocations;
        for (int k = 0; k < kSteps; k++) step();
        made = allocations - before;
        if (made == 0) break;
      }
      EXPECT_EQ(made, 0);
    });
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(NoMallocTest);

TEST_P(NoMallocTest, CountingWorks) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "the sanitizer's malloc";
  const int64_t before = allocations;
  auto p = std::make_unique<int>(1);
  asm volatile("" ::"r"(p.get()) : "memory");
  EXPECT_EQ(allocations - before, 1);
}

TEST_P(NoMallocTest, StartingAndEndingDoNotAllocate) {
  std::atomic<int> ran = 0;
  int started = 0;
  Steady([&] {
    for (int i = 0; i < 10; i++) {
      started++;
      go([&ran] { ran.fetch_add(1, std::memory_order_release); });
    }
    while (ran.load(std::memory_order_acquire) != started) runtime::Gosched();
  });
}

TEST_P(NoMallocTest, UnbufferedChannelsDoNotAllocate) {
  auto c = make_chan<int>();
  auto d = make_chan<int>();
  bool started = false;
  Steady([&] {
    if (!started) {
      started = true;
      go([=] {
        while (auto v = c.Recv()) d.Send(*v);
      });
    }
    c.Send(1);
    d.Recv();
  });
  Run([&] { c.Close(); });
}

TEST_P(NoMallocTest, BufferedChannelsDoNotAllocate) {
  auto c = make_chan<int>(4);
  Steady([c] {
    go([c] {
      for (int i = 0; i < 20; i++) c.Send(i);
    });
    for (int i = 0; i < 20; i++) c.Recv();
  });
}

TEST_P(NoMallocTest, YieldingDoesNotAllocate) {
  Steady([] { runtime::Gosched(); });
}

TEST_P(NoMallocTest, ContendedMutexAndWaitGroupDoNotAllocate) {
  sync::Mutex mu;
  sync::WaitGroup wg;
  int n = 0;
  Steady([&] {
    for (int i = 0; i < 8; i++) {
      wg.Go([&] {
        mu.Lock();
        n++;
        runtime::Gosched();  // the others must wait
        mu.Unlock();
      });
    }
    wg.Wait();
  });
}

TEST_P(NoMallocTest, SleepingAndTimeoutsDoNotAllocate) {
  auto never = make_chan<int>();
  Steady([never] {
    time::Sleep(absl::Microseconds(1));
    select(Recv(never), Recv(time::After(absl::Microseconds(1))));
    auto t = time::NewTimer(absl::Hours(1));
    t.Reset(absl::Hours(2));
    t.Stop();
  });
}

TEST_P(NoMallocTest, BlockingCallsDoNotAllocate) {
  Steady([] { blocking([] {}); });
}

// As TestTCPReadWriteAllocs of Go: a read that finds data, and one that waits.
TEST_P(NoMallocTest, ReadsAndWritesOfConnsDoNotAllocate) {
  net::Conn client;
  net::Conn server;
  auto write = make_chan<bool>();
  Steady([&] {
    if (!client) {
      const auto l = net::Listen("tcp", "127.0.0.1:0");
      client = *net::Dial("tcp", l->LocalAddr().String());
      server = *l->Accept();
      go([=] {
        while (write.Recv()) {
          EXPECT_TRUE(server.Write("waits").ok());
        }
      });
    }
    char buf[128];
    EXPECT_TRUE(server.Write("there").ok());
    EXPECT_EQ(client.Read(absl::MakeSpan(buf)).value_or(0), 5u);
    write.Send(true);
    EXPECT_EQ(client.Read(absl::MakeSpan(buf)).value_or(0), 5u);
  });
  Run([&] { write.Close(); });
}

}  // namespace
}  // namespace gump
