// When a node counts as crowded (N1 of proc_node.cc).
#include "runtime/sched/proc_node.h"

#include <gtest/gtest.h>

#include <memory>

#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"

namespace gump {
namespace {

using rt::SchedNode;

// Busy returns a node with four Ps, none of which has been idle for ns.
std::unique_ptr<SchedNode> Busy(int64_t ns, int32_t queued) {
  auto np = std::make_unique<SchedNode>();
  np->nprocs.store(4, rt::relaxed);
  np->runqsize.store(queued, rt::relaxed);
  np->busySince.store(rt::nanotime() - ns, rt::relaxed);
  return np;
}

TEST(CrowdedTest, BurstOnNodeThatHadAnIdlePIsNoCrowd) {
  constexpr int64_t kHour = 3'600'000'000'000;
  EXPECT_FALSE(rt::crowded(Busy(-kHour, 100).get(), /*pp=*/nullptr));
}

TEST(CrowdedTest, NodeThatStaysBusyIsCrowdedAboveItsPs) {
  EXPECT_TRUE(rt::crowded(Busy(rt::kCrowdPatience, 5).get(), /*pp=*/nullptr));
  EXPECT_FALSE(rt::crowded(Busy(rt::kCrowdPatience, 4).get(), /*pp=*/nullptr));
}

TEST(CrowdedTest, RingOfThePCounts) {
  const auto pp = std::make_unique<rt::P>();
  const auto np = Busy(rt::kCrowdPatience, 4);
  EXPECT_FALSE(rt::crowded(np.get(), pp.get()));
  pp->runqtail.store(1, rt::relaxed);
  EXPECT_TRUE(rt::crowded(np.get(), pp.get()));
}

}  // namespace
}  // namespace gump
