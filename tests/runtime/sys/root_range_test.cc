// The memory that LeakSanitizer searches. The program has no sanitizer, but
// functions of LeakSanitizer's names, so the library takes it for one that has.
#include "runtime/sys/root_range.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sys/tls.h"

namespace gump {
namespace {

// The regions of LeakSanitizer, by their first addresses.
std::mutex regionsLock;
std::map<uintptr_t, size_t> regions;
std::atomic<int> calls = 0;

bool IsInARegion(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  const std::scoped_lock hold(regionsLock);
  auto next = regions.upper_bound(at);
  return next != regions.begin() && at - (--next)->first < next->second;
}

}  // namespace
}  // namespace gump

extern "C" {
void __lsan_register_root_region(const void* p, size_t n);
void __lsan_unregister_root_region(const void* p, size_t n);

void __lsan_register_root_region(const void* p, size_t n) {
  const std::scoped_lock hold(gump::regionsLock);
  gump::regions.emplace(reinterpret_cast<uintptr_t>(p), n);
  gump::calls++;
}
void __lsan_unregister_root_region(const void* p, size_t n) {
  const std::scoped_lock hold(gump::regionsLock);
  const auto it = gump::regions.find(reinterpret_cast<uintptr_t>(p));
  if (it == gump::regions.end() || it->second != n) std::abort();
  gump::regions.erase(it);
  gump::calls++;
}
}

namespace gump {
namespace {

using rt::RootRange;

// CanRead asks the kernel, which returns EFAULT if it cannot.
bool CanRead(uintptr_t p) {
  int fds[2];
  if (pipe(fds) != 0) std::abort();
  const bool can = write(fds[1], reinterpret_cast<const void*>(p), 1) == 1;
  close(fds[0]);
  close(fds[1]);
  return can;
}

constexpr size_t kBlock = size_t{1} << 16;

TEST(RootRangeTest, IsOneRegionAndNotReadable) {
  static constinit RootRange range{kBlock};
  EXPECT_EQ(range.map(1), 0u) << "before init";
  EXPECT_FALSE(range.contains(0));
  const int before = calls;
  range.init();
  range.init();
  EXPECT_EQ(calls, before + 1);
  const uintptr_t p = range.map(kBlock);
  ASSERT_NE(p, 0u);
  EXPECT_EQ(p % kBlock, 0u);
  EXPECT_TRUE(range.contains(p));
  EXPECT_TRUE(CanRead(p + kBlock - 1));
  EXPECT_FALSE(CanRead(p + kBlock));
  EXPECT_TRUE(IsInARegion(reinterpret_cast<void*>(p)));
  EXPECT_EQ(calls, before + 1);
}

TEST(RootRangeTest, BlocksAreDisjointZeroAndUsedAgain) {
  static constinit RootRange range{kBlock};
  range.init();
  std::map<uintptr_t, size_t> taken;
  for (int round = 0; round < 3; round++) {
    for (size_t n : {size_t{1}, kBlock, kBlock + 1, 5 * kBlock}) {
      const uintptr_t p = range.map(n);
      ASSERT_NE(p, 0u);
      for (size_t i = 0; i < n; i += 64) {
        ASSERT_EQ(*reinterpret_cast<const char*>(p + i), 0);
      }
      std::memset(reinterpret_cast<void*>(p), 1, n);
      EXPECT_TRUE(taken.emplace(p, n).second);
    }
    uintptr_t end = 0;
    for (const auto& [p, n] : taken) {
      EXPECT_GE(p, end);
      end = p + n;
    }
    const auto [p, n] = *taken.begin();
    EXPECT_TRUE(RootRange::hide(p, n));
    EXPECT_FALSE(CanRead(p));
    range.free(p, n);
    taken.erase(taken.begin());
  }
}

TEST(RootRangeTest, FullRange_GivesNothingUntilSomethingIsFreed) {
  static constinit RootRange range{kBlock};
  range.init();
  constexpr size_t kAll = RootRange::kBlocks * kBlock;
  EXPECT_EQ(range.map(kAll + 1), 0u);
  const uintptr_t all = range.map(kAll);
  ASSERT_NE(all, 0u);
  EXPECT_EQ(range.map(1), 0u);
  ASSERT_TRUE(RootRange::hide(all, kAll));
  range.free(all, kAll);
  EXPECT_EQ(range.map(kBlock), all);
}

// ---- Programs ---------------------------------------------------------------

void Fail(const char* why) {
  std::fprintf(stderr, "failed: %s\n", why);
  std::_Exit(1);
}

// UseStacks has goroutines with small and large stacks, many at a time, checks
// that LeakSanitizer would look at them, and gives their memory back.
void UseStacks() {
  for (int round = 0; round < 3; round++) {
    sync::WaitGroup wg;
    auto gate = make_chan<void>();
    for (const size_t size : {size_t{0}, size_t{16} << 10, size_t{96} << 20}) {
      for (int i = 0; i < (size == 0 ? 2000 : 4); i++) {
        wg.Add(1);
        go(GoOptions{.stack_size = size}, [&wg, gate] {
          const char local = 0;
          if (!IsInARegion(&local)) Fail("a stack is in no region");
          if (!IsInARegion(rt::getg())) Fail("a slab is in no region");
          (void)gate.Recv();
          wg.Done();
        });
      }
    }
    for (int i = 0; i < 100; i++) runtime::Gosched();
    gate.Close();
    wg.Wait();
    debug::FreeOSMemory();
  }
}

// LeakSanitizer holds its lock during a leak check, in which a goroutine may be
// preempted. So nothing waits for that lock once goroutines run.
TEST(RootRangeDeathTest, ProgramTellsOfItsMemoryBeforeThereAreGoroutines) {
  EXPECT_EXIT(gump::Run([] {
                const int before = calls;
                if (before == 0) Fail("no region");
                UseStacks();
                if (calls != before) Fail("a region was added, or removed");
                std::_Exit(7);
              }),
              ::testing::ExitedWithCode(7), "");
}

// LeaveFewAddresses leaves the process 3 GiB more of address space.
void LeaveFewAddresses() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const size_t most = pages * 4096 + (size_t{3} << 30);
  rlimit limit;
  limit.rlim_cur = most;
  limit.rlim_max = most;
  if (setrlimit(RLIMIT_AS, &limit) != 0) Fail("setrlimit");
}

TEST(RootRangeDeathTest, ProgramWithFewAddressesTellsOfEachMapping) {
  EXPECT_EXIT(
      {
        LeaveFewAddresses();
        gump::Run([] {
          const int before = calls;
          UseStacks();
          if (calls == before) Fail("no region was added");
          std::_Exit(7);
        });
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gump
