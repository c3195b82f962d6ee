#include "runtime/sys/mem.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace gump {
namespace {

bool IsZero(const void* p, size_t n) {
  const auto* bytes = static_cast<const unsigned char*>(p);
  for (size_t i = 0; i < n; i++) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

TEST(PersistentallocTest, MemoryIsZeroAlignedAndDisjoint) {
  std::set<std::pair<uintptr_t, uintptr_t>> ranges;
  for (const int bytes :
       {1, 8, 255, 256, 4096, 100000, 262144, 262145, 3000000}) {
    for (const unsigned align : {1u, 8u, 64u, 128u, 4096u}) {
      const auto n = static_cast<size_t>(bytes);
      void* p = rt::persistentalloc(n, align);
      ASSERT_NE(p, nullptr);
      const auto lo = reinterpret_cast<uintptr_t>(p);
      EXPECT_EQ(lo % align, 0u) << n << " bytes aligned to " << align;
      EXPECT_TRUE(IsZero(p, n));
      memset(p, 0xff, n);
      ranges.emplace(lo, lo + n);
    }
  }
  EXPECT_EQ(ranges.size(), 45u);
  uintptr_t end = 0;
  for (const auto& [lo, hi] : ranges) {
    EXPECT_GE(lo, end);
    end = hi;
  }
}

TEST(PersistentallocTest, ThreadsNeverGetTheSameBytes) {
  constexpr int kThreads = 4;
  constexpr int kCells = 20000;
  std::vector<std::vector<uintptr_t>> got(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&got, i] {
      for (int k = 0; k < kCells; k++) {
        got[static_cast<size_t>(i)].push_back(
            reinterpret_cast<uintptr_t>(rt::persistentalloc(48, 16)));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::set<uintptr_t> all;
  for (const auto& v : got) all.insert(v.begin(), v.end());
  ASSERT_EQ(all.size(), size_t{kThreads} * kCells);
  uintptr_t last = 0;
  for (const uintptr_t p : all) {
    EXPECT_GE(p - last, 48u);
    last = p;
  }
}

TEST(PersistentallocTest, RefusalIsANullPointer) {
  EXPECT_EQ(rt::persistentalloc(~size_t{0} / 4, 8), nullptr);
}

TEST(PersistentallocTest, TypedCellsAreConstructed) {
  struct Cell {
    int x = 42;
    alignas(128) char line[128];
  };
  Cell* c = rt::persistentallocOf<Cell>();
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->x, 42);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(c) % 128, 0u);
}

}  // namespace
}  // namespace gump
