// select under load: random cases over few channels, so that selects meet each
// other and plain operations, win and lose races, and leave queues from the
// middle. Values sent and received must balance, per channel and in all. No
// select may pair with itself, and all goroutines must come to an end.
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
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

struct World {
  std::vector<chan<Counted>> chans;
  std::vector<std::atomic<int>> balance;  // sent minus received
  chan<void> stop = make_chan<void>();
  std::atomic<int> left{0};
  bool unbuffered;  // a ring may return a value to its sender
  World(size_t n, bool direct) : balance(n), unbuffered(direct) {}
};

// Actor does random selects until stop is closed.
void Actor(World* w, int self, Rng rng) {
  const size_t n = w->chans.size();
  bool stopped = false;
  auto received = [&](size_t i) {
    return [=](std::optional<Counted> v) {
      ASSERT_TRUE(v.has_value());
      EXPECT_TRUE(!w->unbuffered || v->n() != self) << "paired with itself";
      w->balance[i]--;
    };
  };
  auto sent = [&](size_t i) { return [=] { w->balance[i]++; }; };
  while (!stopped) {
    const size_t a = rng.Below(n);
    const size_t b = rng.Below(n);
    const chan<Counted>& ca = w->chans[a];
    const chan<Counted>& cb = w->chans[b];
    auto stop = [&] { stopped = true; };
    switch (rng.Below(5)) {
      case 0:
        select(Recv(ca, received(a)), Recv(cb, received(b)),
               Recv(w->stop, stop));
        break;
      case 1:
        select(Send(ca, Counted(self), sent(a)),
               Send(cb, Counted(self), sent(b)), Recv(w->stop, stop));
        break;
      case 2:
        select(Send(ca, Counted(self), sent(a)), Recv(ca, received(a)),
               Recv(w->stop, stop));
        break;
      case 3:
        select(Send(ca, Counted(self), sent(a)), Recv(w->stop, stop),
               Default());
        break;
      case 4: {
        std::vector<SelectCase> cases;
        cases.push_back(Recv(w->stop, stop));
        for (uint64_t k = 1 + rng.Below(30); k > 0; k--) {
          const size_t i = rng.Below(n);
          cases.push_back(Send(w->chans[i], Counted(self), sent(i)));
        }
        select(absl::MakeSpan(cases));
        break;
      }
    }
    if (rng.OneIn(8)) runtime::Gosched();
  }
  w->left--;
}

void Round(Rng& rng) {
  (void)RandomProcs(rng);
  World w(1 + rng.Below(5), rng.OneIn(2));
  for (size_t i = 0; i < w.balance.size(); i++) {
    w.chans.push_back(make_chan<Counted>(w.unbuffered ? 0 : rng.Below(3)));
  }
  const int actors = 2 + static_cast<int>(rng.Below(12));
  w.left = actors;
  for (int i = 0; i < actors; i++) {
    go([&w, i, seed = rng.Next()] { Actor(&w, i, Rng(seed)); });
  }
  for (uint64_t n = rng.Below(20); n > 0; n--) runtime::Gosched();
  w.stop.Close();
  ASSERT_TRUE(Eventually([&] { return w.left == 0; }))
      << w.left << " of " << actors << " do not come to an end";
  for (size_t i = 0; i < w.chans.size(); i++) {
    EXPECT_EQ(static_cast<size_t>(w.balance[i].load()), w.chans[i].Len());
  }
  w.chans.clear();
  ASSERT_TRUE(Eventually([] { return Counted::objects() == 0; }));
}

TEST(SelectStressTest, SentAndReceivedBalance) {
  gump::Run([] { StressLoop([](Rng& rng) { Round(rng); }); });
}

// Similar to Go's TestSelectStress: two parties and four channels. Every
// operation is in a select with three others that must not fire by mistake.
void Duel(Rng& rng) {
  (void)RandomProcs(rng);
  constexpr int kN = 500;
  std::vector<chan<int>> c;
  for (int i = 0; i < 4; i++) c.push_back(make_chan<int>(i < 2 ? 0 : 2));
  std::atomic<int> left{4 * 2};
  for (size_t k = 0; k < 4; k++) {
    go([&, k] {
      for (int i = 0; i < kN; i++) c[k].Send(i);
      left--;
    });
    go([&, k] {
      for (int i = 0; i < kN; i++) EXPECT_EQ(c[k].Recv(), i);
      left--;
    });
  }
  ASSERT_TRUE(Eventually([&] { return left == 0; }));
  left = 2;
  go([&] {
    int next[4] = {};
    chan<int> on[4] = {c[0], c[1], c[2], c[3]};
    for (int i = 0; i < 4 * kN; i++) {
      int k = select(Send(on[0], next[0]), Send(on[1], next[1]),
                     Send(on[2], next[2]), Send(on[3], next[3]));
      if (++next[k] == kN) on[k] = nullptr;
    }
    left--;
  });
  go([&] {
    int next[4] = {};
    int v[4] = {};
    chan<int> on[4] = {c[0], c[1], c[2], c[3]};
    for (int i = 0; i < 4 * kN; i++) {
      int k = select(Recv(on[0], &v[0]), Recv(on[1], &v[1]), Recv(on[2], &v[2]),
                     Recv(on[3], &v[3]));
      EXPECT_EQ(v[k], next[k]) << "out of order";
      if (++next[k] == kN) on[k] = nullptr;
    }
    left--;
  });
  ASSERT_TRUE(Eventually([&] { return left == 0; }));
}

TEST(SelectStressTest, TwoSelectsFeedEachOtherInOrder) {
  gump::Run([] { StressLoop([](Rng& rng) { Duel(rng); }); });
}

}  // namespace
}  // namespace gump
