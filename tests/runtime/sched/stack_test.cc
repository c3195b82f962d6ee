// Stacks: their sizes, guards, caches and pools. stack_arena_test.cc has stacks
// where address space is scarce.
#include "runtime/sched/stack.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/diag/debugvars.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "tests/runtime/sched/stack_testing.h"

namespace gump {
namespace {

using rt::G;
using rt::GuardMode;
using rt::kPageSize;
using rt::P;
using rt::Stack;
using testing::StackTest;
using StackDeathTest = StackTest;

constexpr size_t kMany = rt::kSanitizerBuild ? 2000 : 100000;
// Each of these sizes belongs to one test, so that the test carves fresh slots.
constexpr size_t kOwnSize[] = {16 << 10, 32 << 10, 64 << 10, 2 << 20, 4 << 20};

size_t SizeOf(const G& g) { return g.stack.hi - g.stack.lo; }

void Poke(uintptr_t addr) { *reinterpret_cast<volatile char*>(addr) = 1; }

// ResidentPages counts the pages of [lo, hi) that are in memory.
size_t ResidentPages(uintptr_t lo, uintptr_t hi) {
  std::vector<unsigned char> in((hi - lo) / kPageSize);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(lo), hi - lo, in.data()), 0);
  size_t n = 0;
  for (const unsigned char c : in) n += c & 1u;
  return n;
}

TEST_F(StackTest, IsAsLargeAsAskedAndUsableToBothEnds) {
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{16} << 10, (size_t{64} << 10) + 1,
        size_t{100000}, size_t{1} << 20, size_t{8} << 20, size_t{64} << 20}) {
    G g;
    ASSERT_TRUE(rt::stackalloc(nullptr, &g, size)) << size;
    EXPECT_GE(SizeOf(g), size == 0 ? rt::defaultStackSize : size);
    EXPECT_EQ(g.stack.hi % 16, 0u);
    EXPECT_EQ(g.sched.sp, g.stack.hi);
    EXPECT_EQ(g.sched.fresh, 1u);
    Poke(g.stack.lo);
    Poke(g.stack.hi - 1);
    rt::stackfree(nullptr, &g);
    EXPECT_EQ(g.stack.lo, 0u);
  }
}

TEST_F(StackTest, LargestSizeIsAGibibyte) {
  G g;
  ASSERT_TRUE(rt::stackalloc(nullptr, &g, rt::kMaxStackSizeLimit));
  EXPECT_GE(SizeOf(g), rt::kMaxStackSizeLimit);
  Poke(g.stack.lo);
  rt::stackfree(nullptr, &g);
  ASSERT_TRUE(rt::stackalloc(nullptr, &g, 8 * rt::kMaxStackSizeLimit));
  EXPECT_GE(SizeOf(g), rt::kMaxStackSizeLimit);
  rt::stackfree(nullptr, &g);
}

TEST_F(StackTest, LargeStackGoesBackToTheKernel) {
  G g;
  ASSERT_TRUE(rt::stackalloc(nullptr, &g, 100 << 20));
  const Stack was = g.stack;
  Stack out;
  EXPECT_TRUE(rt::stackOfGuard(was.lo - 1, &out));
  rt::stackfree(nullptr, &g);
  EXPECT_FALSE(rt::stackOfGuard(was.lo - 1, &out));
  // LeakSanitizer's range keeps the addresses (root_range.h), but not the
  // memory.
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  EXPECT_EQ(syscall(SYS_write, fds[1], was.lo, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  close(fds[0]);
  close(fds[1]);
}

TEST_F(StackTest, GuardIsRecognisedToTheByte) {
  for (size_t size : {size_t{0}, kOwnSize[0], size_t{50} << 20}) {
    G g;
    ASSERT_TRUE(rt::stackalloc(nullptr, &g, size));
    Stack out;
    for (uintptr_t below : {uintptr_t{1}, kPageSize, 2 * kPageSize}) {
      out = {};
      EXPECT_TRUE(rt::stackOfGuard(g.stack.lo - below, &out));
      EXPECT_EQ(out.lo, g.stack.lo);
      EXPECT_EQ(out.hi, g.stack.hi);
    }
    EXPECT_FALSE(rt::stackOfGuard(g.stack.lo, &out));
    EXPECT_FALSE(rt::stackOfGuard(g.stack.lo - 2 * kPageSize - 1, &out));
    EXPECT_FALSE(rt::stackOfGuard(g.stack.hi, &out));
    rt::stackfree(nullptr, &g);
  }
}

TEST_F(StackTest, OtherAddressesAreNoGuards) {
  int local = 0;
  Stack out;
  for (uintptr_t addr : {uintptr_t{0}, uintptr_t{1} << 40, ~uintptr_t{0},
                         reinterpret_cast<uintptr_t>(&local),
                         reinterpret_cast<uintptr_t>(&rt::stackinit)}) {
    EXPECT_FALSE(rt::stackOfGuard(addr, &out)) << addr;
  }
}

TEST_F(StackDeathTest, TouchingTheGuardKills) {
  for (GuardMode mode : {GuardMode::kMadvise, GuardMode::kMprotect}) {
    rt::stackSetGuardMode(mode);
    G g;
    // A stack of this size has a mapping of its own. So it gets a guard of the
    // new mode, and it is unmapped before the leak check.
    ASSERT_TRUE(rt::stackalloc(nullptr, &g, 40 << 20));
    EXPECT_DEATH(Poke(g.stack.lo - 1), "");
    EXPECT_DEATH(Poke(g.stack.lo - 2 * kPageSize), "");
    rt::stackfree(nullptr, &g);
  }
}

TEST_F(StackTest, ManyStacksAreDisjointAndAllGuarded) {
  std::vector<G> gs(kMany);
  auto pp = std::make_unique<P>();
  std::set<uintptr_t> los;
  for (G& g : gs) {
    ASSERT_TRUE(rt::stackalloc(pp.get(), &g, 0)) << rt::stackLastError();
    los.insert(g.stack.lo);
    Stack out;
    ASSERT_TRUE(rt::stackOfGuard(g.stack.lo - 1, &out));
    ASSERT_EQ(out.lo, g.stack.lo);
    ASSERT_EQ(reinterpret_cast<rt::StackTop*>(g.stack.hi)->unguarded, 0u);
  }
  EXPECT_EQ(los.size(), kMany);
  uintptr_t last = 0;
  for (const uintptr_t lo : los) {
    EXPECT_GE(lo - last, rt::defaultStackSize + 2 * kPageSize);
    last = lo;
  }
  for (G& g : gs) rt::stackfree(pp.get(), &g);
  rt::stackcacheFlush(pp.get());
}

TEST_F(StackTest, LastFreedIsFirstReused) {
  auto pp = std::make_unique<P>();
  G a;
  G b;
  ASSERT_TRUE(rt::stackalloc(pp.get(), &a, 0));
  ASSERT_TRUE(rt::stackalloc(pp.get(), &b, 0));
  const uintptr_t lo = b.stack.lo;
  rt::stackfree(pp.get(), &a);
  rt::stackfree(pp.get(), &b);
  ASSERT_TRUE(rt::stackalloc(pp.get(), &a, 0));
  EXPECT_EQ(a.stack.lo, lo);
  rt::stackfree(pp.get(), &a);
  rt::stackcacheFlush(pp.get());
}

TEST_F(StackTest, FullCacheGivesHalfToThePool) {
  auto pp = std::make_unique<P>();
  std::vector<G> gs(3 * rt::kStackCacheMax);
  for (G& g : gs) ASSERT_TRUE(rt::stackalloc(pp.get(), &g, 0));
  rt::stackcacheFlush(pp.get());
  uint32_t most = 0;
  for (G& g : gs) {
    const uint32_t before = pp->stackCacheN;
    rt::stackfree(pp.get(), &g);
    if (before == rt::kStackCacheMax) {
      EXPECT_EQ(pp->stackCacheN, rt::kStackCacheMax / 2 + 1);
    }
    most = std::max(most, pp->stackCacheN);
  }
  EXPECT_EQ(most, rt::kStackCacheMax);
  rt::stackcacheFlush(pp.get());
  EXPECT_EQ(pp->stackCacheN, 0u);
  EXPECT_EQ(pp->stackCache, nullptr);
}

TEST_F(StackTest, StacksThatOnePFlushedServeAnother) {
  auto one = std::make_unique<P>();
  auto two = std::make_unique<P>();
  G g;
  ASSERT_TRUE(rt::stackalloc(one.get(), &g, 0));
  const uintptr_t lo = g.stack.lo;
  rt::stackcacheFlush(one.get());
  rt::stackfree(one.get(), &g);
  rt::stackcacheFlush(one.get());
  std::vector<G> gs(rt::kStackCacheMax);
  bool found = false;
  for (G& other : gs) {
    ASSERT_TRUE(rt::stackalloc(two.get(), &other, 0));
    found = found || other.stack.lo == lo;
  }
  EXPECT_TRUE(found);
  for (G& other : gs) rt::stackfree(two.get(), &other);
  rt::stackcacheFlush(two.get());
}

TEST_F(StackTest, OtherSizesAreReusedToo) {
  G g;
  ASSERT_TRUE(rt::stackalloc(nullptr, &g, kOwnSize[3]));
  const uintptr_t lo = g.stack.lo;
  rt::stackfree(nullptr, &g);
  ASSERT_TRUE(rt::stackalloc(nullptr, &g, kOwnSize[3]));
  EXPECT_EQ(g.stack.lo, lo);
  rt::stackfree(nullptr, &g);
}

TEST_F(StackTest, ThreadsNeverShareAStack) {
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([] {
      auto pp = std::make_unique<P>();
      std::vector<G> gs(100);
      for (int round = 0; round < 30; round++) {
        for (size_t k = 0; k < gs.size(); k++) {
          G& g = gs[k];
          ASSERT_TRUE(rt::stackalloc(pp.get(), &g, k % 3 == 0 ? 100000 : 0));
          *reinterpret_cast<G**>(g.stack.hi - 64) = &g;
        }
        for (G& g : gs) {
          ASSERT_EQ(*reinterpret_cast<G**>(g.stack.hi - 64), &g);
          rt::stackfree(pp.get(), &g);
        }
      }
      rt::stackcacheFlush(pp.get());
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST_F(StackTest, TopsOfNeighboursFallIntoDifferentLines) {
  std::vector<G> gs(24);
  std::set<uintptr_t> lines;
  std::set<uintptr_t> pages;
  for (G& g : gs) {
    ASSERT_TRUE(rt::stackalloc(nullptr, &g, kOwnSize[2]));
    lines.insert(g.stack.hi % kPageSize);
    pages.insert(g.stack.hi / kPageSize % 16);
  }
  EXPECT_GE(lines.size(), 20u);
  EXPECT_EQ(pages.size(), 16u);  // an odd stride meets every set of a TLB
  for (G& g : gs) rt::stackfree(nullptr, &g);
}

TEST_F(StackTest, ParkedGoroutineCostsOnePage) {
  std::vector<G> gs(48);
  for (G& g : gs) {
    ASSERT_TRUE(rt::stackalloc(nullptr, &g, kOwnSize[4]));
    memset(reinterpret_cast<void*>(g.stack.hi - 2048), 1, 2048);
    const uintptr_t end = rt::alignUp(g.stack.hi, kPageSize);
    EXPECT_EQ(ResidentPages(g.stack.lo, end), 1u);
  }
  for (G& g : gs) rt::stackfree(nullptr, &g);
}

// The next two tests fill the budget of memory mappings, in a process of their
// own.
[[noreturn]] void FillMappings(bool strict) {
  rt::stackSetGuardMode(GuardMode::kMprotect);
  rt::debug.stackguardStrict = strict ? 1 : 0;
  auto* gs = new std::vector<G>(40000);
  size_t made = 0;
  size_t unguarded = 0;
  for (G& g : *gs) {
    if (!rt::stackalloc(nullptr, &g, kOwnSize[1])) break;
    made++;
    unguarded += reinterpret_cast<rt::StackTop*>(g.stack.hi)->unguarded;
    rt::stackCheckCanary(&g);
  }
  // In both cases there are mappings left for others.
  void* p =
      mmap(nullptr, kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) _exit(3);
  fprintf(stderr, "made %s, unguarded %s, error: %s\n",
          made == gs->size() ? "all"
          : made > 1000      ? "some"
                             : "none",
          unguarded == 0 ? "none" : "some", rt::stackLastError());
  // A stack that ends makes room for the next.
  rt::stackfree(nullptr, &gs->front());
  _exit(rt::stackalloc(nullptr, &gs->front(), kOwnSize[1]) ? 0 : 4);
}

TEST_F(StackDeathTest, BestGoesOnWithoutGuardsAndSaysSoOnce) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "more stacks than TSan has fibers";
  EXPECT_EXIT(FillMappings(/*strict=*/false), ::testing::ExitedWithCode(0),
              "^runtime: goroutine stacks [^\n]*vm.max_map_count[^\n]*\n"
              "made all, unguarded some");
}

TEST_F(StackDeathTest, StrictFailsAndNamesTheSysctl) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "more stacks than TSan has fibers";
  EXPECT_EXIT(FillMappings(/*strict=*/true), ::testing::ExitedWithCode(0),
              "^made some, unguarded none, error: [^\n]*vm.max_map_count");
}

TEST_F(StackTest, StrictRetriesWhenGuardsCanBeHadAgain) {
  rt::debug.stackguardStrict = 1;
  rt::stackSetGuardMode(GuardMode::kNone);
  G g;
  constexpr size_t kSize = kOwnSize[1];
  EXPECT_FALSE(rt::stackalloc(nullptr, &g, kSize));
  EXPECT_FALSE(rt::stackalloc(nullptr, &g, 30 << 20));
  EXPECT_NE(std::string(rt::stackLastError()).find("vm.max_map_count"),
            std::string::npos);
  EXPECT_FALSE(rt::stackalloc(nullptr, &g, kSize)) << "not yet";
  rt::stackinit();
  ASSERT_TRUE(rt::stackalloc(nullptr, &g, kSize));
  EXPECT_FALSE(g.unguarded);
  rt::stackfree(nullptr, &g);
}

TEST_F(StackTest, UnmappedStacksGiveTheirMappingsBack) {
  rt::stackSetGuardMode(GuardMode::kMprotect);
  rt::debug.stackguardStrict = 1;
  constexpr int kRounds = rt::kSanitizerBuild ? 1000 : 30000;
  for (int i = 0; i < kRounds; i++) {
    G g;
    ASSERT_TRUE(rt::stackalloc(nullptr, &g, 20 << 20)) << i;
    rt::stackfree(nullptr, &g);
  }
}

TEST_F(StackDeathTest, OverrunCanaryThrows) {
  rt::stackSetGuardMode(GuardMode::kNone);
  G g;
  g.goid = 17;
  ASSERT_TRUE(rt::stackalloc(nullptr, &g, 40 << 20));
  EXPECT_TRUE(g.unguarded);
  rt::stackCheckCanary(&g);
  Poke(g.stack.lo + 8);
  EXPECT_DEATH(rt::stackCheckCanary(&g),
               "goroutine 17 overran its stack.*\nfatal error: stack overflow");
  rt::stackfree(nullptr, &g);
}

TEST_F(StackTest, ErrnoIsLeftAlone) {
  rt::stackSetGuardMode(GuardMode::kMprotect);
  errno = 4711;
  G g;
  ASSERT_TRUE(rt::stackalloc(nullptr, &g, 70 << 20));
  rt::stackfree(nullptr, &g);
  rt::stackinit();
  EXPECT_EQ(errno, 4711);
}

}  // namespace
}  // namespace gump
