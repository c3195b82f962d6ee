// runtime::Retire: a retired object is deleted when no reader can hold it, and
// no earlier, even if the reader loses its P.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <vector>

#include "gump/chan.h"
#include "gump/internal/linkname_runtime.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sys/sanitizer.h"
#include "tests/sched/preempt_testing.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Begun;
using testing::Eventually;
using namespace std::chrono_literals;

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

// A thousand retired nodes do not need a thousand waits for every P.
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

// ---- Readers that lose their P

using PreemptTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PreemptTest);

// ReadersAreWaitedFor retires, again and again, a node at which readers look.
// Each reader looks before and after it calls its `between`.
void ReadersAreWaitedFor(std::vector<std::function<void()>> betweens) {
  // A deleted node keeps its memory. Otherwise another object in its place
  // might look alive.
  struct KeptNode {
    static void operator delete(KeptNode* n, std::destroying_delete_t) {
      n->alive = false;
    }
    std::atomic<bool> alive = true;
  };
  constexpr size_t kRetired = 20;
  std::array<KeptNode, kRetired + 1> nodes;
  std::atomic<KeptNode*> head = &nodes[0];
  std::atomic<bool> stop = false;
  sync::WaitGroup readers;
  for (const auto& between : betweens) {
    readers.Go([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const KeptNode* node = head.load();
        between();
        EXPECT_TRUE(node->alive);
        runtime::Gosched();
      }
    });
  }
  for (size_t i = 1; i <= kRetired; i++) {
    runtime::Retire(head.exchange(&nodes[i]));
    usleep(5000);
  }
  stop = true;
  readers.Wait();
  EXPECT_TRUE(Eventually([&] {
    return std::none_of(nodes.begin(), nodes.end() - 1,
                        [](const KeptNode& n) { return n.alive.load(); });
  }));
}

void ComputeFor(std::chrono::milliseconds d) {
  const auto until = std::chrono::steady_clock::now() + d;
  while (std::chrono::steady_clock::now() < until) {
  }
}

// A reader without a lock is waited for, even if it is preempted or asleep.
TEST_P(PreemptTest, RetireWaitsForReadersThatLostTheirP) {
  Run([] {
    const auto compute = [] { ComputeFor(25ms); };
    const auto sleep = [] { usleep(25'000); };
    ReadersAreWaitedFor({compute, sleep, compute, sleep});
  });
}

// The readers sleep all the time. Their Ps are borrowed for the safe point and
// given back.
TEST_P(PreemptTest, RetireWaitsForReadersThatSleep) {
  Run([] {
    const auto sleep = [] { usleep(15'000); };
    ReadersAreWaitedFor({sleep, sleep, sleep, sleep});
  });
}

// A reader that lost its P while asleep wakes up, computes, and is preempted.
// It has still not entered the runtime.
TEST_P(PreemptTest, RetireWaitsForReadersThatSleepAndThenCompute) {
  Run([] {
    const auto both = [] {
      usleep(15'000);
      ComputeFor(40ms);
    };
    ReadersAreWaitedFor({both, both, both, both});
  });
}

// There is one hog and no other goroutine that computes, and every P has to
// pass a safe point. The P of the hog must not go straight back to the hog.
TEST_P(PreemptTest, GracePeriodsEndUnderOneHog) {
#if defined(GUMP_TSAN)
  GTEST_SKIP() << "never calls libc";
#endif
  Run([] {
    std::atomic<bool> stop = false;
    Begun begun;
    sync::WaitGroup wg;
    wg.Go([&] {
      begun.Count();
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
    begun.Wait(1);
    for (int i = 0; i < 5; i++) debug::FreeOSMemory();
    stop = true;
    wg.Wait();
  });
}

}  // namespace
}  // namespace gump
