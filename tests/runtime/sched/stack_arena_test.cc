// Stacks where address space is scarce: arenas, and classes of stacks that give
// it to each other.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>

#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/sanitizer.h"
#include "tests/runtime/sched/stack_testing.h"

namespace gump {
namespace {

using rt::G;
using rt::P;
using testing::StackTest;

TEST_F(StackTest, NoMemoryIsAnErrorAndNothingIsLost) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "shadow memory exceeds any limit";
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old), 0);
  rlimit none = old;
  // Less than is mapped already, so every mmap fails from here on.
  none.rlim_cur = 1 << 20;
  constexpr size_t kSize = 1 << 20;
  // Stacks that were mapped for other tests come first.
  constexpr size_t kMost = 10'000;
  const auto gs = std::make_unique<G[]>(kMost);
  G g;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  size_t n = 0;
  while (n < kMost && rt::stackalloc(nullptr, &gs[n], kSize)) n++;
  const bool large = rt::stackalloc(nullptr, &g, 200 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &old), 0);
  EXPECT_LT(n, kMost);
  EXPECT_FALSE(large);
  EXPECT_STREQ(rt::stackLastError(), "out of memory (goroutine stack)");
  ASSERT_TRUE(rt::stackalloc(nullptr, &g, kSize));
  rt::stackfree(nullptr, &g);
  while (n > 0) rt::stackfree(nullptr, &gs[--n]);
}

// AddressLimit leaves the process `spare` more bytes of address space while it
// lives, besides the needs of malloc for a test and of the library for its
// records.
class AddressLimit {
 public:
  explicit AddressLimit(size_t spare) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    void* volatile heap = std::malloc(24 << 20);
    std::free(heap);
    EXPECT_NE(rt::persistentalloc(1, 1), nullptr);
    getrlimit(RLIMIT_AS, &old_);
    set(spare);
  }
  ~AddressLimit() { setrlimit(RLIMIT_AS, &old_); }
  void set(size_t spare) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit now = old_;
    now.rlim_cur = pages * 4096 + spare;
    setrlimit(RLIMIT_AS, &now);
  }

 private:
  rlimit old_;
};

// Stacks holds goroutines with a stack each, until they are freed.
class Stacks {
 public:
  ~Stacks() {
    while (!gs_.empty()) free();
  }
  // alloc tells whether n more stacks of a size could be had.
  bool alloc(size_t n, size_t size) {
    for (; n > 0; n--) {
      gs_.emplace_back();
      if (rt::stackalloc(nullptr, &gs_.back(), size)) continue;
      gs_.pop_back();
      return false;
    }
    return true;
  }
  // allocAll takes as many stacks of a size as can be had.
  void allocAll(size_t size) {
    while (alloc(1, size)) {
    }
  }
  void free() {  // the oldest
    rt::stackfree(nullptr, &gs_.front());
    gs_.pop_front();
  }

 private:
  std::deque<G> gs_;
};

constexpr size_t kSmall = 128 << 10;
constexpr size_t kMedium = 1 << 20;
constexpr size_t kLarge = 8 << 20;

TEST_F(StackTest, AddressSpaceThatAClassDoesNotUseServesTheOthers) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "shadow memory exceeds any limit";
  {
    Stacks large;
    ASSERT_TRUE(large.alloc(100, kLarge));
  }
  const AddressLimit limit(0);
  for (int i = 0; i < 3; i++) {
    errno = 7;
    {
      Stacks small;
      EXPECT_TRUE(small.alloc(3000, kSmall));
    }
    {
      Stacks large;
      EXPECT_TRUE(large.alloc(50, kLarge));
    }
    EXPECT_EQ(errno, 7);
    {
      G huge;
      EXPECT_TRUE(rt::stackalloc(nullptr, &huge, 100 << 20));
      rt::stackfree(nullptr, &huge);
    }
  }
}

TEST_F(StackTest, WhereNoArenaFitsAStackStillDoes) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "shadow memory exceeds any limit";
  AddressLimit limit(0);
  Stacks all;
  all.allocAll(kMedium);
  EXPECT_FALSE(all.alloc(1, kMedium));
  limit.set(4 << 20);
  EXPECT_TRUE(all.alloc(3, kMedium));
  EXPECT_FALSE(all.alloc(1, kMedium));
}

TEST_F(StackTest, RoomThatIsTooSmallForAnArenaIsUsedToTheEnd) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "shadow memory exceeds any limit";
  AddressLimit limit(0);
  Stacks all;
  all.allocAll(rt::kMinStackSize);
  limit.set(60 << 20);
  EXPECT_TRUE(all.alloc(2000, rt::kMinStackSize));
}

TEST_F(StackTest, ALargerStackServesIfThereIsNoOther) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "shadow memory exceeds any limit";
  Stacks medium;
  ASSERT_TRUE(medium.alloc(2, 512 << 10));  // from one arena, which the second
                                            // keeps
  const AddressLimit limit(0);
  medium.allocAll(512 << 10);
  Stacks small;
  small.allocAll(kSmall);
  medium.free();
  {
    Stacks one;
    ASSERT_TRUE(one.alloc(1, kSmall));
    EXPECT_FALSE(one.alloc(1, kSmall));
  }
  EXPECT_TRUE(medium.alloc(1, 512 << 10)) << "it is what it was";
}

TEST_F(StackTest, StacksThatAnIdlePHasCachedServeOthers) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "shadow memory exceeds any limit";
  const auto idle = std::make_unique<P>();
  const auto needy = std::make_unique<P>();
  G g;
  ASSERT_TRUE(rt::stackalloc(idle.get(), &g, 0));
  rt::stackfree(idle.get(), &g);
  ASSERT_GT(idle->stackCacheN, 0U);
  const AddressLimit limit(0);
  Stacks all;
  all.allocAll(rt::defaultStackSize);
  EXPECT_FALSE(rt::stackalloc(needy.get(), &g, 0));
  const auto setIdle = [](P* pp) {
    rt::LockScope scope(&rt::sched.lock);
    rt::sched.nodes[0].pidle = pp;
  };
  setIdle(idle.get());
  const bool bound = rt::bindStack(needy.get(), &g);
  setIdle(nullptr);
  ASSERT_TRUE(bound);
  rt::stackfree(nullptr, &g);
  rt::stackcacheFlush(needy.get());
}

}  // namespace
}  // namespace gump
