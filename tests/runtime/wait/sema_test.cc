// The fast paths of semaphores, which need no goroutine.
#include "runtime/wait/sema.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "gump/internal/linkname.h"

namespace gump {
namespace {

using Addr = rt::Atomic<uint32_t>;

TEST(SemaTest, AcquireOfAPositiveCountTakesOne) {
  Addr a(2);
  rt::semacquire(&a, /*lifo=*/false, rt::SemaReason::kSemacquire);
  EXPECT_EQ(a.load(rt::relaxed), 1u);
}

TEST(SemaTest, ReleaseWithoutWaitersCountsUp) {
  Addr a;
  rt::semrelease(&a, /*handoff=*/false);
  rt::semrelease(&a, /*handoff=*/true);
  EXPECT_EQ(a.load(rt::relaxed), 2u);
}

}  // namespace
}  // namespace gump
