// Channels under load: random shapes, many goroutines, plain threads among
// them. In every schedule:
// * every value arrives exactly once, and is destroyed once,
// * the values that one receiver gets from one sender are in order,
// * all goroutines and threads come to an end.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "tests/stress/stress_testing.h"
#include "tests/testing/counted.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;
using testing::Eventually;
using testing::RandomProcs;
using testing::Rng;
using testing::StressLoop;

// A value tells which sender sent it, and the sender's number for it.
constexpr int kPerSender = 1 << 16;

void Produce(chan<Counted> c, int sender, int values, Rng rng) {
  for (int i = 0; i < values; i++) {
    Counted v(sender * kPerSender + i);
    if (rng.OneIn(3)) {
      while (!c.TrySend(std::move(v))) {
        ASSERT_TRUE(v.full()) << "a refused value was moved";
        runtime::Gosched();
      }
    } else {
      c.Send(std::move(v));
    }
    if (rng.OneIn(16)) runtime::Gosched();
  }
}

// Tally counts the values that all receivers of a round got.
struct Tally {
  explicit Tally(int senders, int values)
      : per_sender(static_cast<size_t>(values)),
        seen(static_cast<size_t>(senders * values)) {}
  size_t per_sender;
  std::vector<std::atomic<int>> seen;
};

void Consume(chan<Counted> c, Tally* tally, int senders, Rng rng) {
  std::vector<int> last(static_cast<size_t>(senders), -1);
  auto take = [&](const Counted& v) {
    auto sender = static_cast<size_t>(v.n() / kPerSender);
    int i = v.n() % kPerSender;
    EXPECT_GT(i, last[sender]) << "out of order";
    last[sender] = i;
    tally->seen[sender * tally->per_sender + static_cast<size_t>(i)]++;
  };
  for (;;) {
    if (rng.OneIn(3)) {
      auto r = c.TryRecv();
      if (r.kind == RecvResult<Counted>::kClosed) return;
      if (r.kind == RecvResult<Counted>::kEmpty) {
        runtime::Gosched();
        continue;
      }
      take(*r.value);
    } else {
      auto v = c.Recv();
      if (!v.has_value()) return;
      take(*v);
    }
    if (rng.OneIn(16)) runtime::Gosched();
  }
}

void ManyToMany(Rng& rng) {
  const auto cap = static_cast<size_t>(rng.OneIn(3) ? 0 : rng.Below(5));
  const int senders = 1 + static_cast<int>(rng.Below(6));
  const int receivers = 1 + static_cast<int>(rng.Below(6));
  const int values = 1 + static_cast<int>(rng.Below(200));
  const bool threads = rng.OneIn(8);
  (void)RandomProcs(rng);
  chan<Counted> c = make_chan<Counted>(cap);
  Tally tally(senders, values);
  std::atomic<int> sending{senders};
  std::atomic<int> receiving{receivers};
  std::vector<std::thread> plain;
  auto start = [&](auto f) {
    if (threads && rng.OneIn(2)) {
      plain.emplace_back(std::move(f));
    } else {
      go(std::move(f));
    }
  };
  for (int i = 0; i < receivers; i++) {
    start([&, c, seed = rng.Next()] {
      Consume(c, &tally, senders, Rng(seed));
      receiving--;
    });
  }
  for (int i = 0; i < senders; i++) {
    start([&, c, i, seed = rng.Next()] {
      Produce(c, i, values, Rng(seed));
      if (--sending == 0) c.Close();
    });
  }
  ASSERT_TRUE(Eventually([&] { return receiving == 0; }))
      << "senders left: " << sending << ", receivers left: " << receiving;
  for (std::thread& t : plain) t.join();
  for (const std::atomic<int>& n : tally.seen) ASSERT_EQ(n, 1);
  ASSERT_TRUE(Eventually([] { return Counted::objects() == 0; }));
}

TEST(ChanStressTest, EveryValueArrivesExactlyOnce) {
  gump::Run([] { StressLoop([](Rng& rng) { ManyToMany(rng); }); });
}

// The last handle may go the moment an operation returns, while the other side
// of that operation is still on its way out.
void LetGoAtOnce(Rng& rng) {
  (void)RandomProcs(rng);
  std::atomic<int> left{0};
  for (int i = 0; i < 200; i++) {
    // Rings beyond malloc's threshold for mmap vanish when freed.
    size_t cap = rng.OneIn(4) ? 100000 : rng.Below(2);
    chan<int> c = make_chan<int>(cap);
    left += 2;
    go([&left, c]() mutable {
      std::exchange(c, nullptr).Send(1);
      left--;
    });
    go([&left, c]() mutable {
      EXPECT_EQ(std::exchange(c, nullptr).Recv(), 1);
      left--;
    });
  }
  ASSERT_TRUE(Eventually([&] { return left == 0; }));
}

TEST(ChanStressTest, AChannelMayGoTheMomentItsLastUserReturns) {
  gump::Run([] { StressLoop([](Rng& rng) { LetGoAtOnce(rng); }); });
}

// Close comes at a random moment. Senders panic or have sent, and a value that
// was sent is received, or destroyed with the channel.
void CloseUnderLoad(Rng& rng) {
  (void)RandomProcs(rng);
  chan<Counted> c = make_chan<Counted>(rng.Below(4));
  std::atomic<int> sent{0};
  std::atomic<int> received{0};
  std::atomic<int> left{0};
  const int goroutines = 1 + static_cast<int>(rng.Below(8));
  for (int i = 0; i < goroutines; i++) {
    left += 2;
    go([&, c] {
      try {
        for (;;) {
          c.Send(Counted(1));
          sent++;
        }
      } catch (const PanicError& e) {
        EXPECT_STREQ(e.what(), "send on closed channel");
      }
      left--;
    });
    go([&, c] {
      while (c.Recv().has_value()) received++;
      left--;
    });
  }
  // If there is one P, a sender and a receiver that ready each other may run
  // for a whole slice before each of these calls returns.
  for (uint64_t n = rng.Below(8); n > 0; n--) runtime::Gosched();
  c.Close();
  ASSERT_TRUE(Eventually([&] { return left == 0; }));
  EXPECT_EQ(sent, received);
  c = nullptr;
  ASSERT_TRUE(Eventually([] { return Counted::objects() == 0; }));
}

TEST(ChanStressTest, CloseAtAnyMomentLosesNothing) {
  gump::Run([] { StressLoop([](Rng& rng) { CloseUnderLoad(rng); }); });
}

TEST(ChanStressTest, VeryManyGoroutinesShareOneChannel) {
  gump::Run([] {
    constexpr int kN = testing::kManyGoroutines;
    chan<int> c = make_chan<int>();
    std::atomic<int64_t> sum{0};
    std::atomic<int> left{kN};
    for (int i = 0; i < kN; i++) {
      go([&, c] {
        sum += *c.Recv();
        left--;
      });
    }
    for (int i = 0; i < kN / 2; i++) c.Send(i);
    for (int i = kN / 2; i < kN; i++) c.Send(i);
    ASSERT_TRUE(Eventually([&] { return left == 0; }));
    EXPECT_EQ(sum, int64_t{kN} * (kN - 1) / 2);
    // Now close ends all of them at once.
    left = kN;
    for (int i = 0; i < kN; i++) {
      go([&, c] {
        EXPECT_FALSE(c.Recv().has_value());
        left--;
      });
    }
    runtime::Gosched();
    c.Close();
    ASSERT_TRUE(Eventually([&] { return left == 0; }));
  });
}

}  // namespace
}  // namespace gump
