// On which NUMA node the cells of goroutines and their stacks lie, and where
// free ones go. The nodes are simulated: each P of a test is told its node.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/stack_arena.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/runtime/sched/stack_testing.h"

namespace gump {
namespace {

using rt::G;
using rt::P;

// SetNodes makes the runtime believe that there are two nodes, and returns a P
// of each.
void SetNodes(P* zero, P* one) {
  for (int16_t k = 0; k < 2; k++) {
    rt::sched.nodes[k].topologyIndex.store(k, rt::relaxed);
  }
  rt::sched.places.store(true, rt::relaxed);
  zero->node.store(0, rt::relaxed);
  one->node.store(1, rt::relaxed);
}

class MemoryNodeTest : public testing::StackTest {
 protected:
  void SetUp() override {
    StackTest::SetUp();
    SetNodes(zero_.get(), one_.get());
  }
  void TearDown() override {
    for (P* pp : {zero_.get(), one_.get()}) {
      rt::gfpurge(pp);
      rt::stackcacheFlush(pp);
    }
    rt::sched.places.store(false, rt::relaxed);
    StackTest::TearDown();
  }

  std::unique_ptr<P> zero_ = std::make_unique<P>();
  std::unique_ptr<P> one_ = std::make_unique<P>();
};

uint32_t NodeOf(const G& g) { return rt::topOf(g.stack)->node; }

std::vector<G> Stacks(P* pp, size_t n) {
  std::vector<G> gs(n);
  for (G& g : gs) EXPECT_TRUE(rt::stackalloc(pp, &g, 0));
  return gs;
}

void FreeStacks(P* pp, std::vector<G>* gs) {
  for (G& g : *gs) rt::stackfree(pp, &g);
  rt::stackcacheFlush(pp);
}

std::set<uintptr_t> Places(const std::vector<G>& gs) {
  std::set<uintptr_t> los;
  for (const G& g : gs) los.insert(g.stack.lo);
  return los;
}

// ---- Stacks -----------------------------------------------------------------

TEST_F(MemoryNodeTest, StackThatEndsElsewhereGoesHomeAndIsReusedThere) {
  constexpr size_t kStacks = 96;  // three refills
  std::vector<G> gs = Stacks(zero_.get(), kStacks);
  for (const G& g : gs) EXPECT_EQ(NodeOf(g), 0u);
  const std::set<uintptr_t> before = Places(gs);
  rt::stackcacheFlush(zero_.get());
  const uint32_t pooled = rt::stackpoolSize(0);
  FreeStacks(one_.get(), &gs);
  EXPECT_EQ(rt::stackpoolSize(0), pooled + kStacks);
  EXPECT_EQ(rt::stackpoolSize(1), 0u);

  std::vector<G> others = Stacks(one_.get(), 10);
  for (const G& g : others) EXPECT_EQ(NodeOf(g), 1u);
  gs = Stacks(zero_.get(), kStacks);
  EXPECT_EQ(Places(gs), before);
  FreeStacks(zero_.get(), &gs);
  FreeStacks(one_.get(), &others);
}

TEST_F(MemoryNodeTest, DroppedStackStaysOnItsNode) {
  std::vector<G> gs = Stacks(one_.get(), 10);
  const std::set<uintptr_t> before = Places(gs);
  FreeStacks(zero_.get(), &gs);
  rt::stackpoolRelease();
  EXPECT_EQ(rt::stackpoolSize(1), 0u);
  gs = Stacks(zero_.get(), 10);
  for (const G& g : gs) EXPECT_EQ(NodeOf(g), 0u);
  std::vector<G> others = Stacks(one_.get(), rt::kStackCacheMax);
  const std::set<uintptr_t> after = Places(others);
  for (const uintptr_t lo : before) EXPECT_TRUE(after.contains(lo));
  for (const G& g : others) EXPECT_EQ(NodeOf(g), 1u);
  FreeStacks(zero_.get(), &gs);
  FreeStacks(one_.get(), &others);
}

// Work that moves to the other node takes the stacks that it has left behind,
// once the first arena there is full.
TEST_F(MemoryNodeTest, WorkThatMovesDoesNotMapAllItsStacksAgain) {
  std::vector<G> gs = Stacks(zero_.get(), 1000);
  const size_t perArena = rt::arenaOf(gs[0].stack.lo)->nslots;
  ASSERT_LT(perArena, 500u);
  FreeStacks(zero_.get(), &gs);
  gs = Stacks(one_.get(), 1000);
  size_t own = 0;
  for (const G& g : gs) own += NodeOf(g);
  EXPECT_GE(own, perArena);
  // It has taken others until no more than half of all slots were free.
  EXPECT_LE(own, 700u);
  FreeStacks(one_.get(), &gs);
}

TEST_F(MemoryNodeTest, WithoutMemoryEachNodeServes) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "shadow memory exceeds any limit";
  std::vector<G> kept = Stacks(zero_.get(), 50);  // they keep the arena
  std::vector<G> gs = Stacks(zero_.get(), 100);
  FreeStacks(zero_.get(), &gs);
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old), 0);
  rlimit none = old;
  none.rlim_cur = 1 << 20;  // less than is mapped, so every mmap fails
  G g;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  const bool served = rt::stackalloc(one_.get(), &g, 0);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &old), 0);
  ASSERT_TRUE(served);
  EXPECT_EQ(NodeOf(g), 0u);
  rt::stackfree(one_.get(), &g);
  FreeStacks(zero_.get(), &kept);
}

// ---- Cells ------------------------------------------------------------------

// Cells takes n cells as newproc does.
std::vector<G*> Cells(P* pp, size_t n) {
  std::vector<G*> gs;
  while (gs.size() < n) {
    G* gp = rt::gfget(pp);
    gs.push_back(gp != nullptr ? gp : rt::malg(pp));
  }
  return gs;
}

void PutCells(P* pp, const std::vector<G*>& gs) {
  for (G* gp : gs) rt::gfput(pp, gp);
  rt::gfpurge(pp);
}

int32_t Pooled(int node) { return rt::sched.gPools[node].n.load(rt::relaxed); }

size_t CountOn(uint8_t node, const std::vector<G*>& gs) {
  size_t n = 0;
  for (const G* gp : gs) n += gp->memoryNode == node ? 1 : 0;
  return n;
}

TEST_F(MemoryNodeTest, CellThatEndsElsewhereGoesHomeAndIsReusedThere) {
  constexpr size_t kCells = 300;
  rt::gfpurge(zero_.get());
  const std::vector<G*> gs = Cells(zero_.get(), kCells);
  EXPECT_EQ(CountOn(0, gs), kCells);
  rt::gfpurge(zero_.get());
  const int32_t before = Pooled(0);
  const int32_t others = Pooled(1);
  PutCells(one_.get(), gs);
  EXPECT_EQ(Pooled(0), before + static_cast<int32_t>(kCells));
  EXPECT_EQ(Pooled(1), others);

  const std::vector<G*> there = Cells(one_.get(), kCells);
  EXPECT_EQ(CountOn(1, there), kCells);
  const std::vector<G*> here = Cells(zero_.get(), kCells);
  EXPECT_EQ(CountOn(0, here), kCells);
  const std::set<G*> old(gs.begin(), gs.end());
  size_t reused = 0;
  for (G* gp : here) reused += old.count(gp);
  EXPECT_GE(reused, kCells - static_cast<size_t>(before));
  PutCells(one_.get(), there);
  PutCells(zero_.get(), here);
}

TEST_F(MemoryNodeTest, WorkThatMovesDoesNotMakeAllItsCellsAgain) {
  constexpr size_t kCells = 50'000;
  PutCells(zero_.get(), Cells(zero_.get(), kCells));
  const uint64_t before = rt::gcountAll();
  const std::vector<G*> gs = Cells(one_.get(), kCells);
  // It makes the first ones of its own, and then takes others.
  EXPECT_GE(CountOn(1, gs), 4096u);
  EXPECT_LE(rt::gcountAll() - before, kCells * 2 / 3);
  EXPECT_LE(rt::gcountAll(), 2 * kCells + 4096);
  PutCells(one_.get(), gs);
  // They are all at home again.
  for (int k = 0; k < 2; k++) {
    for (G* gp = rt::sched.gPools[k].free.head; gp != nullptr;
         gp = gp->schedlink) {
      ASSERT_EQ(gp->memoryNode, k);
    }
  }
}

// ---- The kernel -------------------------------------------------------------

// The kernel may refuse. Then nothing happens.
TEST(PreferNodeTest, PagesCanBeTouched) {
  constexpr size_t kBytes = 4 * rt::kPageSize;
  for (const int32_t node : {0, 63, 1023, 1024, -1}) {
    void* p = rt::sysReserve(kBytes);
    ASSERT_NE(p, nullptr);
    errno = 7;
    rt::sysPreferNode(p, kBytes, node);
    EXPECT_EQ(errno, 7);
    for (size_t i = 0; i < kBytes; i += rt::kPageSize) {
      static_cast<volatile char*>(p)[i] = 1;
    }
    rt::sysFree(p, kBytes);
  }
}

}  // namespace
}  // namespace gump
