// The claims of Go's runtime/chan_test.go and of others about channels, under
// their names.
#include "gump/chan.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;
using testing::EventuallyParked;

using GoChanTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GoChanTest);

// TestChan, in parts, for every capacity up to kMaxCap.
constexpr size_t kMaxCap = 20;

TEST_P(GoChanTest, TestChan_ReceiveFromEmptyBlocks) {
  Run([] {
    for (size_t cap = 0; cap < kMaxCap; cap++) {
      chan<int> c = make_chan<int>(cap);
      std::atomic<int> received{0};
      go([&, c] {
        (void)c.Recv();
        received++;
      });
      go([&, c] {
        (void)c.Recv();
        received++;
      });
      ASSERT_TRUE(EventuallyParked("chan receive", 2));
      EXPECT_EQ(received, 0);
      // Neither does a non-blocking receive find anything.
      EXPECT_EQ(select(Recv(c), Default()), 1);
      c.Send(0);
      c.Send(0);
      ASSERT_TRUE(Eventually([&] { return received == 2; }));
    }
  });
}

TEST_P(GoChanTest, TestChan_SendToFullBlocks) {
  Run([] {
    for (size_t cap = 0; cap < kMaxCap; cap++) {
      chan<int> c = make_chan<int>(cap);
      for (size_t i = 0; i < cap; i++) c.Send(static_cast<int>(i));
      std::atomic<bool> sent{false};
      go([&, c] {
        c.Send(0);
        sent = true;
      });
      ASSERT_TRUE(EventuallyParked("chan send", 1));
      EXPECT_FALSE(sent);
      EXPECT_EQ(select(Send(c, 0), Default()), 1);
      (void)c.Recv();
      ASSERT_TRUE(Eventually([&] { return sent.load(); }));
    }
  });
}

TEST_P(GoChanTest, TestChan_ReceiveFromClosedDrains) {
  Run([] {
    for (size_t cap = 0; cap < kMaxCap; cap++) {
      chan<int> c = make_chan<int>(cap);
      for (size_t i = 0; i < cap; i++) c.Send(static_cast<int>(i));
      c.Close();
      for (size_t i = 0; i < cap; i++) {
        EXPECT_EQ(c.Recv(), static_cast<int>(i));
      }
      EXPECT_EQ(c.Recv(), std::nullopt);
      EXPECT_EQ(c.Recv(), std::nullopt);
    }
  });
}

TEST_P(GoChanTest, TestChan_CloseUnblocksReceive) {
  Run([] {
    for (size_t cap = 0; cap < kMaxCap; cap++) {
      chan<int> c = make_chan<int>(cap);
      chan<bool> done = make_chan<bool>();
      go([=] { done.Send(c.Recv() == std::nullopt); });
      ASSERT_TRUE(EventuallyParked("chan receive", 1));
      c.Close();
      EXPECT_EQ(done.Recv(), true);
    }
  });
}

TEST_P(GoChanTest, TestChan_OrderIsKept) {
  Run([] {
    for (size_t cap = 0; cap < kMaxCap; cap++) {
      chan<int> c = make_chan<int>(cap);
      go([c] {
        for (int i = 0; i < 100; i++) c.Send(i);
      });
      for (int i = 0; i < 100; i++) EXPECT_EQ(c.Recv(), i);
    }
  });
}

TEST_P(GoChanTest, TestChan_NothingIsLostOrDoubledWithManyReceivers) {
  Run([] {
    constexpr int kParties = 4;
    constexpr int kEach = 1000;
    for (size_t cap = 0; cap < kMaxCap; cap += 3) {
      chan<int> c = make_chan<int>(cap);
      for (int p = 0; p < kParties; p++) {
        go([c] {
          for (int i = 0; i < kEach; i++) c.Send(i);
        });
      }
      chan<std::map<int, int>> done = make_chan<std::map<int, int>>();
      for (int p = 0; p < kParties; p++) {
        go([=] {
          std::map<int, int> got;
          for (int i = 0; i < kEach; i++) got[*c.Recv()]++;
          done.Send(std::move(got));
        });
      }
      std::map<int, int> all;
      for (int p = 0; p < kParties; p++) {
        std::optional<std::map<int, int>> part = done.Recv();
        for (auto [v, n] : *part) all[v] += n;
      }
      EXPECT_EQ(all.size(), static_cast<size_t>(kEach));
      for (auto [v, n] : all) EXPECT_EQ(n, kParties) << v;
    }
  });
}

TEST_P(GoChanTest, TestChan_LenAndCap) {
  Run([] {
    for (size_t cap = 0; cap < kMaxCap; cap++) {
      chan<int> c = make_chan<int>(cap * 2);
      EXPECT_EQ(c.Len(), 0u);
      EXPECT_EQ(c.Cap(), cap * 2);
      for (size_t i = 0; i < cap; i++) c.Send(0);
      EXPECT_EQ(c.Len(), cap);
      EXPECT_EQ(c.Cap(), cap * 2);
    }
  });
}

// A receive that finds a channel closed must not miss the value before.
TEST_P(GoChanTest, TestNonblockRecvRace) {
  Run([] {
    for (int i = 0; i < 1000; i++) {
      chan<int> c = make_chan<int>(1);
      c.Send(1);
      go([c] {
        EXPECT_NE(c.TryRecv().kind, RecvResult<int>::kEmpty)
            << "neither the value nor the close is seen";
      });
      c.Close();
      (void)c.Recv();
    }
  });
}

// Of two channels one is always ready: a select with default must find it.
TEST_P(GoChanTest, TestNonblockSelectRace) {
  Run([] {
    chan<bool> done = make_chan<bool>(1);
    for (int i = 0; i < 1000; i++) {
      chan<int> c1 = make_chan<int>(1);
      chan<int> c2 = make_chan<int>(1);
      c1.Send(1);
      go([=] { done.Send(select(Recv(c1), Recv(c2), Default()) != 2); });
      c2.Send(1);
      select(Recv(c1), Default());
      EXPECT_EQ(done.Recv(), true) << "no channel was ready";
    }
  });
}

TEST_P(GoChanTest, TestNonblockSelectRace2) {
  Run([] {
    chan<bool> done = make_chan<bool>(1);
    for (int i = 0; i < 1000; i++) {
      chan<int> c1 = make_chan<int>(1);
      chan<int> c2 = make_chan<int>();
      c1.Send(1);
      go([=] { done.Send(select(Recv(c1), Recv(c2), Default()) != 2); });
      c2.Close();
      select(Recv(c1), Default());
      EXPECT_EQ(done.Recv(), true) << "no channel was ready";
    }
  });
}

// Selects that may both send to and receive from one channel do not pair with
// themselves.
TEST_P(GoChanTest, TestSelfSelect) {
  Run([] {
    for (size_t cap : {0u, 10u}) {
      sync::WaitGroup wg;
      wg.Add(2);
      chan<int> c = make_chan<int>(cap);
      for (int p = 0; p < 2; p++) {
        go([&wg, c, cap, p] {
          for (int i = 0; i < 1000; i++) {
            auto check = [&](int from) {
              if (cap == 0) {
                EXPECT_NE(from, p) << "self receive";
              }
            };
            if (p == 0 || i % 2 == 0) {
              select(Send(c, p), Recv(c, check));
            } else {
              select(Recv(c, check), Send(c, p));
            }
          }
          wg.Done();
        });
      }
      wg.Wait();
    }
  });
}

TEST_P(GoChanTest, TestSelectFairness) {
  Run([] {
    constexpr int kTrials = 10000;
    chan<uint8_t> c1 = make_chan<uint8_t>(kTrials + 1);
    chan<uint8_t> c2 = make_chan<uint8_t>(kTrials + 1);
    for (int i = 0; i < kTrials + 1; i++) {
      c1.Send(1);
      c2.Send(2);
    }
    chan<uint8_t> c3 = make_chan<uint8_t>();
    chan<uint8_t> c4 = make_chan<uint8_t>();
    chan<uint8_t> out = make_chan<uint8_t>();
    chan<void> done = make_chan<void>();
    sync::WaitGroup wg;
    wg.Add(1);
    go([&, c1, c2, c3, c4, out, done] {
      for (bool more = true; more;) {
        uint8_t b = 0;
        select(Recv(c3, &b), Recv(c4, &b), Recv(c1, &b), Recv(c2, &b));
        select(Send(out, b), Recv(done, [&] { more = false; }));
      }
      wg.Done();
    });
    int n1 = 0;
    int n2 = 0;
    for (int i = 0; i < kTrials; i++) {
      uint8_t b = *out.Recv();
      ASSERT_TRUE(b == 1 || b == 2);
      (b == 1 ? n1 : n2)++;
    }
    // A binomial distribution: 10 sigma is 1 in 1e23.
    const double r = static_cast<double>(n1) / kTrials;
    const double sigma = std::sqrt(0.25 / kTrials);
    EXPECT_LT(std::fabs(r - 0.5), 10 * sigma) << n1 << " : " << n2;
    done.Close();
    wg.Wait();
  });
}

// Many goroutines, each sending and receiving on four channels through selects
// and plain operations.
TEST_P(GoChanTest, TestSelectStress) {
  Run([] {
    constexpr int kN = 2000;
    std::array<chan<int>, 4> c = {make_chan<int>(), make_chan<int>(),
                                  make_chan<int>(2), make_chan<int>(3)};
    sync::WaitGroup wg;
    for (size_t k = 0; k < 4; k++) {
      wg.Go([&, k] {
        for (int i = 0; i < kN; i++) c[k].Send(0);
      });
      wg.Go([&, k] {
        for (int i = 0; i < kN; i++) (void)c[k].Recv();
      });
    }
    wg.Go([&] {
      int n[4] = {};
      std::array<chan<int>, 4> c1 = c;
      for (int i = 0; i < 4 * kN; i++) {
        auto k = static_cast<size_t>(select(Send(c1[3], 0), Send(c1[2], 0),
                                            Send(c1[0], 0), Send(c1[1], 0)));
        k = std::array<size_t, 4>{3, 2, 0, 1}[k];
        if (++n[k] == kN) c1[k] = nullptr;
      }
    });
    wg.Go([&] {
      int n[4] = {};
      std::array<chan<int>, 4> c1 = c;
      for (int i = 0; i < 4 * kN; i++) {
        auto k = static_cast<size_t>(
            select(Recv(c1[0]), Recv(c1[1]), Recv(c1[2]), Recv(c1[3])));
        if (++n[k] == kN) c1[k] = nullptr;
      }
    });
    wg.Wait();
  });
}

// A value of a polymorphic type arrives unchanged.
TEST_P(GoChanTest, TestChanSendInterface) {
  struct Base {
    virtual ~Base() = default;
    virtual int Id() const { return 0; }
  };
  struct Derived : Base {
    int Id() const override { return 1; }
  };
  Run([] {
    chan<std::unique_ptr<Base>> c = make_chan<std::unique_ptr<Base>>(1);
    c.Send(std::make_unique<Derived>());
    select(Send(c, std::make_unique<Derived>()), Default());
    select(Send(c, std::make_unique<Derived>()),
           Send(c, std::make_unique<Base>()), Default());
    EXPECT_EQ((*c.Recv())->Id(), 1);
  });
}

// With two sends ready, both are chosen about as often.
TEST_P(GoChanTest, TestPseudoRandomSend) {
  Run([] {
    constexpr int kN = 100;
    for (size_t cap = 0; cap < 10; cap++) {
      chan<int> c = make_chan<int>(cap);
      std::vector<int> got(kN);
      sync::WaitGroup wg;
      wg.Go([&] {
        for (int& v : got) {
          runtime::Gosched();
          v = *c.Recv();
        }
      });
      for (int i = 0; i < kN; i++) select(Send(c, 1), Send(c, 0));
      wg.Wait();
      int zeros = 0;
      int ones = 0;
      for (int v : got) (v == 0 ? zeros : ones)++;
      EXPECT_GT(zeros, kN / 10);
      EXPECT_GT(ones, kN / 10);
    }
  });
}

TEST_P(GoChanTest, TestMultiConsumer) {
  Run([] {
    constexpr int kWorkers = 23;
    constexpr int kItems = 20000;
    const int primes[] = {2, 3, 7, 11, 13, 17, 19, 23, 27, 31};
    chan<int> q = make_chan<int>(kWorkers * 3);
    chan<int> r = make_chan<int>(kWorkers * 3);
    sync::WaitGroup wg;
    for (int i = 0; i < kWorkers; i++) {
      wg.Go([=, &primes] {
        for (int v : q) {
          if (primes[static_cast<size_t>(v) % std::size(primes)] == v) {
            runtime::Gosched();
          }
          r.Send(v);
        }
      });
    }
    int64_t expect = 0;
    go([&, q, r] {
      for (int i = 0; i < kItems; i++) {
        int v = primes[static_cast<size_t>(i) % std::size(primes)];
        expect += v;
        q.Send(v);
      }
      q.Close();
      wg.Wait();
      r.Close();
    });
    int n = 0;
    int64_t sum = 0;
    for (int v : r) {
      n++;
      sum += v;
    }
    EXPECT_EQ(n, kItems);
    EXPECT_EQ(sum, expect);
  });
}

// One channel in every case of a select that parks: a value wakes it once, and
// no stale waiter is left.
TEST_P(GoChanTest, TestSelectDuplicateChannel) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<int> d = make_chan<int>();
    chan<int> e = make_chan<int>();
    go([=] {
      select(Recv(c), Recv(c), Recv(d));
      e.Send(9);
    });
    ASSERT_TRUE(EventuallyParked("select", 1));
    go([=] { (void)c.Recv(); });
    ASSERT_TRUE(EventuallyParked("chan receive", 1));
    d.Send(7);  // wakes the select, which must leave the middle of c's queue
    EXPECT_EQ(e.Recv(), 9);
    c.Send(8);  // reaches the plain receiver
  });
}

// A goroutine that is blocked deep in its stack, with its variable there, gets
// its value.
int BlockedDeep(const chan<int>& c, int depth) {
  volatile char frame[256];
  frame[0] = static_cast<char>(depth);
  int v = depth == 0 ? *c.Recv() : BlockedDeep(c, depth - 1);
  return v + (frame[0] == static_cast<char>(depth) ? 0 : 1);
}

TEST_P(GoChanTest, TestShrinkStackDuringBlockedSend) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<int> back = make_chan<int>();
    for (int i = 0; i < 10; i++) {
      go([=] { back.Send(BlockedDeep(c, 100)); });
    }
    ASSERT_TRUE(EventuallyParked("chan receive", 10));
    for (int i = 0; i < 10; i++) c.Send(1000);
    for (int i = 0; i < 10; i++) EXPECT_EQ(back.Recv(), 1000);
  });
}

// ---- runtime/chanbarrier_test.go

// The value of a goroutine that ends at once is whole when it arrives.
void SendBarrier(bool use_select) {
  constexpr int kGoroutines = 10;
  constexpr int kRounds = 100;
  sync::WaitGroup wg;
  for (int i = 0; i < kGoroutines; i++) {
    wg.Go([=] {
      for (int j = 0; j < kRounds; j++) {
        chan<std::unique_ptr<int>> c = make_chan<std::unique_ptr<int>>();
        chan<void> done = make_chan<void>();
        if (use_select) {
          go([=] { select(Send(c, std::make_unique<int>(j)), Recv(done)); });
        } else {
          go([=] { c.Send(std::make_unique<int>(j)); });
        }
        ASSERT_EQ(**c.Recv(), j);
        runtime::Gosched();
      }
    });
  }
  wg.Wait();
}

TEST_P(GoChanTest, TestChanSendSelectBarrier) {
  Run([] { SendBarrier(/*use_select=*/true); });
}

TEST_P(GoChanTest, TestChanSendBarrier) {
  Run([] { SendBarrier(/*use_select=*/false); });
}

// ---- test/chan/doubleselect.go

// One select sends over four channels, each with a forwarder. No value comes
// twice, which it would if two cases of a select were chosen.
TEST_P(GoChanTest, Doubleselect) {
  Run([] {
    constexpr int kValues = 5000;
    constexpr int kForwarders = 4;
    chan<int> c[kForwarders];
    chan<int> merged = make_chan<int>();
    sync::WaitGroup forwarders;
    for (chan<int>& one : c) {
      one = make_chan<int>();
      forwarders.Go([one, merged] {
        for (int v : one) merged.Send(v);
      });
    }
    go([=] {
      for (int i = 0; i < kValues; i++) {
        select(Send(c[0], i), Send(c[1], i), Send(c[2], i), Send(c[3], i));
      }
      for (const chan<int>& one : c) one.Close();
    });
    go([&, merged] {
      forwarders.Wait();
      merged.Close();
    });
    std::vector<bool> seen(kValues);
    int n = 0;
    for (int v : merged) {
      ASSERT_FALSE(seen[static_cast<size_t>(v)]) << v;
      seen[static_cast<size_t>(v)] = true;
      n++;
    }
    EXPECT_EQ(n, kValues);
  });
}

}  // namespace
}  // namespace gump
