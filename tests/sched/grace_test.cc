// runtime::Retire: a retired object is deleted when no reader can hold it, and
// no earlier. preempt_test.cc has readers that lose their P.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/linkname_runtime.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;

class RetireTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(RetireTest);

// Node is alive while `magic` says so.
struct Node {
  static constexpr uint32_t kAlive = 0x600d600d;
  explicit Node(std::atomic<int>* d) : deleted(d) {}
  ~Node() {
    magic = 0;
    deleted->fetch_add(1);
  }
  std::atomic<uint32_t> magic = kAlive;
  std::atomic<int>* deleted;
};

TEST_P(RetireTest, RetiredNodeIsDeletedWhenNoReaderCanHoldIt) {
  Run([] {
    std::atomic<int> deleted = 0;
    std::atomic<Node*> head = new Node(&deleted);
    std::atomic<bool> stop = false;
    sync::WaitGroup readers;
    for (int i = 0; i < 4; i++) {
      readers.Go([&] {
        while (!stop) {
          for (int k = 0; k < 100; k++) {
            EXPECT_EQ(head.load()->magic, Node::kAlive);
          }
          runtime::Gosched();
        }
      });
    }
    constexpr int kN = 200;
    for (int i = 0; i < kN; i++) {
      runtime::Retire(head.exchange(new Node(&deleted)));
      runtime::Gosched();
    }
    EXPECT_TRUE(Eventually([&] { return deleted == kN; }));
    stop = true;
    readers.Wait();
    delete head.load();
  });
}

// There is no wait for every P for each of them.
TEST_P(RetireTest, OneGracePeriodServesAllNodesRetiredBefore) {
  Run([] {
    constexpr int kN = 1000;
    std::atomic<int> deleted = 0;
    auto gate = make_chan<void>();
    runtime::SetFinalizer([gate] { gate.Recv(); });
    for (int i = 0; i < kN; i++) runtime::Retire(new Node(&deleted));
    const uint64_t begun = rt::gracePeriodsBegun();
    gate.Close();
    EXPECT_TRUE(Eventually([&] { return deleted == kN; }));
    EXPECT_EQ(rt::gracePeriodsBegun(), begun + 1);
  });
}

// The reader sleeps in an undeclared call, so the period waits for it.
TEST_P(RetireTest, NodeRetiredDuringAGracePeriodWaitsForTheNext) {
  Run([] {
    std::atomic<bool> reading = false;
    std::atomic<int> deleted = 0;
    std::array<int, 2> fds;
    ASSERT_EQ(pipe(fds.data()), 0);
    sync::WaitGroup reader;
    reader.Go([&] {
      reading = true;
      char byte;
      EXPECT_EQ(read(fds[0], &byte, 1), 1);
    });
    EXPECT_TRUE(Eventually([&] { return reading.load(); }));
    const uint64_t begun = rt::gracePeriodsBegun();
    runtime::Retire(new Node(&deleted));
    EXPECT_TRUE(
        Eventually([&] { return rt::gracePeriodsBegun() == begun + 1; }));
    for (int i = 0; i < 2; i++) runtime::Retire(new Node(&deleted));
    EXPECT_EQ(deleted, 0);
    EXPECT_EQ(write(fds[1], "x", 1), 1);
    reader.Wait();
    EXPECT_TRUE(Eventually([&] { return deleted == 3; }));
    EXPECT_EQ(rt::gracePeriodsBegun(), begun + 2);
    close(fds[0]);
    close(fds[1]);
  });
}

}  // namespace
}  // namespace gump
