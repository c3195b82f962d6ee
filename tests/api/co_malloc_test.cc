// What tasks and their waits allocate.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <optional>

#include "gump/chan.h"
#include "gump/co.h"
#include "gump/go.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "tests/testing/malloc_hook.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {

constinit std::atomic<bool> counting = false;
constinit std::atomic<int> mallocs = 0;
// Only those of goroutines count: the runtime may make a thread meanwhile.
void testing::OnMalloc(size_t) {
  if (!counting.load(std::memory_order_relaxed)) return;
  const rt::G* gp = rt::getg();
  if (gp != nullptr && gp != &gp->m->g0) mallocs++;
}
void testing::OnFree() {}

namespace {

class CoMallocTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (rt::kSanitizerBuild) GTEST_SKIP() << "it has a malloc of its own";
  }
};

// Mallocs returns how often f calls malloc.
template <class F>
int Mallocs(F&& f) {
  int n = 0;
  testing::RunWith(1, [&] {
    mallocs = 0;
    counting = true;
    f();
    counting = false;
    n = mallocs;
  });
  return n;
}

co::task<int> One() { co_return 1; }
co::task<int> Loop(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) sum += co_await One();
  co_return sum;
}
co::task<int> Total(chan<int> c) {
  int sum = 0;
  while (std::optional<int> v = co_await co::Recv(c)) sum += *v;
  co_return sum;
}

TEST_F(CoMallocTest, TaskAllocatesItsFrameOnly) {
  EXPECT_EQ(Mallocs([] { EXPECT_EQ(co::Wait(One()), 1); }), 1);
  EXPECT_EQ(Mallocs([] { EXPECT_EQ(co::Wait(Loop(100)), 100); }), 101);
}

TEST_F(CoMallocTest, ReadyReceiveAllocatesNothing) {
  chan<int> c = make_chan<int>(100);
  for (int i = 0; i < 100; i++) c.Send(1);
  c.Close();
  EXPECT_EQ(Mallocs([&] { EXPECT_EQ(co::Wait(Total(c)), 100); }), 1);
}

TEST_F(CoMallocTest, WaitsOfOneLoopAllocateTogetherTwice) {
  chan<int> c = make_chan<int>();
  EXPECT_EQ(Mallocs([&] {
              go([c] {
                for (int i = 0; i < 100; i++) c.Send(1);
                c.Close();
              });
              EXPECT_EQ(co::Wait(Total(c)), 100);
            }),
            3);  // the frame, a CoWait, and its channel
}

}  // namespace
}  // namespace gump
