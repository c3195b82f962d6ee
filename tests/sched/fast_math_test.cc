// A program that is linked with -ffast-math: crtfastmath.o makes the first
// thread flush denormal numbers to zero, before main. Goroutines do so too.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/sync.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

// FlushesToZero tells whether half of the smallest normal number is 0.
bool FlushesToZero() {
  volatile double x = std::numeric_limits<double>::min();
  x = x / 2;
  return x == 0;
}

using FastMathTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(FastMathTest);

TEST_P(FastMathTest, GoroutinesFlushAsTheThreadOfRunDoes) {
  if (!FlushesToZero()) GTEST_SKIP() << "the linker has no crtfastmath.o";
  Run([] {
    EXPECT_TRUE(FlushesToZero());
    sync::WaitGroup wg;
    for (int i = 0; i < 100; i++) {
      wg.Go([] { EXPECT_TRUE(FlushesToZero()); });
    }
    wg.Wait();
  });
  EXPECT_TRUE(FlushesToZero());
}

// Library mode: the first thread that needs the runtime counts.
TEST(FastMathDeathTest, GoroutinesWithoutRunFlushAsTheFirstCallerDoes) {
  if (!FlushesToZero()) GTEST_SKIP() << "the linker has no crtfastmath.o";
  EXPECT_EXIT(
      {
        bool flushed = false;
        std::thread([&flushed] {  // as a thread does: the same modes
          const auto c = make_chan<bool>();
          go([c] { c.Send(FlushesToZero()); });
          flushed = *c.Recv();
        })
            .join();
        std::_Exit(flushed ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gump
