// Channels as a program sees them, at several GOMAXPROCS.
#include "gump/chan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "gtest/gtest.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "tests/testing/counted.h"
#include "tests/testing/fuzzsched.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_counted.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;
using testing::Eventually;
using testing::EventuallyParked;
using testing::KnownThread;
using testing::PanicText;

using ChanTest = testing::WithCounted;
GUMP_INSTANTIATE_GOMAXPROCS(ChanTest);

TEST_P(ChanTest, UnbufferedHandsEachValueOver) {
  Run([] {
    chan<int> c = make_chan<int>();
    go([c] {
      for (int i = 0; i < 1000; i++) c.Send(i);
      c.Close();
    });
    for (int i = 0; i < 1000; i++) EXPECT_EQ(c.Recv(), i);
    EXPECT_EQ(c.Recv(), std::nullopt);
  });
}

TEST_P(ChanTest, UnbufferedSendWaitsForTheReceiver) {
  Run([] {
    chan<int> c = make_chan<int>();
    std::atomic<bool> sent{false};
    go([c, &sent] {
      c.Send(1);
      sent = true;
    });
    for (int i = 0; i < 100; i++) {
      runtime::Gosched();
      EXPECT_FALSE(sent);
    }
    EXPECT_EQ(c.Recv(), 1);
    EXPECT_TRUE(Eventually([&] { return sent.load(); }));
  });
}

TEST_P(ChanTest, BufferedSendWaitsOnlyWhenFull) {
  Run([] {
    chan<int> c = make_chan<int>(3);
    for (int i = 0; i < 3; i++) c.Send(i);
    EXPECT_EQ(c.Len(), 3u);
    EXPECT_EQ(c.Cap(), 3u);
    EXPECT_FALSE(c.TrySend(3));
    go([c] { c.Send(3); });
    for (int i = 0; i < 4; i++) EXPECT_EQ(c.Recv(), i);
  });
}

TEST_P(ChanTest, WaitersAreServedInOrder) {
  Run([] {
    chan<int> c = make_chan<int>();
    for (int i = 0; i < 20; i++) {
      go([c, i] { c.Send(i); });
      ASSERT_TRUE(EventuallyParked("chan send", static_cast<size_t>(i) + 1));
    }
    for (int i = 0; i < 20; i++) EXPECT_EQ(c.Recv(), i);
    chan<int> got[20];
    for (int i = 0; i < 20; i++) {
      got[i] = make_chan<int>(1);
      go([c, to = got[i]] { to.Send(*c.Recv()); });
      ASSERT_TRUE(EventuallyParked("chan receive", static_cast<size_t>(i) + 1));
    }
    for (int i = 0; i < 20; i++) c.Send(i);
    for (int i = 0; i < 20; i++) EXPECT_EQ(got[i].Recv(), i);
  });
}

TEST_P(ChanTest, RecvIntoAVariableLeavesItAloneWhenClosed) {
  Run([] {
    chan<std::string> c = make_chan<std::string>(1);
    c.Send("x");
    c.Close();
    std::string v = "old";
    EXPECT_TRUE(c.Recv(v));
    EXPECT_EQ(v, "x");
    EXPECT_FALSE(c.Recv(v));
    EXPECT_EQ(v, "x");
    EXPECT_FALSE(c >> v);
    chan<int> d = make_chan<int>();
    d.Close();
    int n = 5;
    EXPECT_FALSE(d.Recv(n));
    EXPECT_EQ(n, 5);
  });
}

TEST_P(ChanTest, TrySendOnFalseLeavesTheArgument) {
  Run([] {
    chan<std::unique_ptr<int>> c = make_chan<std::unique_ptr<int>>(1);
    auto a = std::make_unique<int>(1);
    EXPECT_TRUE(c.TrySend(std::move(a)));
    EXPECT_EQ(a, nullptr);
    auto b = std::make_unique<int>(2);
    EXPECT_FALSE(c.TrySend(std::move(b)));
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(*b, 2);
    const std::string s = "s";
    chan<std::string> d = make_chan<std::string>(1);
    EXPECT_TRUE(d.TrySend(s));
    EXPECT_EQ(s, "s");
    EXPECT_EQ(d.Recv(), "s");
  });
}

TEST_P(ChanTest, TryRecvTellsValueEmptyAndClosed) {
  Run([] {
    chan<int> c = make_chan<int>(1);
    using R = RecvResult<int>;
    EXPECT_EQ(c.TryRecv().kind, R::kEmpty);
    c.Send(4);
    R r = c.TryRecv();
    EXPECT_EQ(r.kind, R::kValue);
    EXPECT_EQ(r.value, 4);
    c.Close();
    r = c.TryRecv();
    EXPECT_EQ(r.kind, R::kClosed);
    EXPECT_FALSE(r.value.has_value());
  });
}

TEST_P(ChanTest, TryOperationsPairWithWaiters) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<int> done = make_chan<int>(1);
    go([=] { done.Send(*c.Recv()); });
    EXPECT_TRUE(Eventually([&] { return c.TrySend(3); }));
    EXPECT_EQ(done.Recv(), 3);
    go([=] { c.Send(8); });
    EXPECT_TRUE(Eventually(
        [&] { return c.TryRecv().kind == RecvResult<int>::kValue; }));
  });
}

TEST_P(ChanTest, IsClosedTurnsTrueOnceAndDoesNotTakeValues) {
  Run([] {
    auto c = make_chan<int>(2);
    const send_chan<int> s = c;
    const recv_chan<int> r = c;
    c.Send(7);
    EXPECT_FALSE(c.IsClosed());
    EXPECT_FALSE(r.IsClosed());
    c.Close();
    EXPECT_TRUE(c.IsClosed());
    EXPECT_TRUE(s.IsClosed());
    EXPECT_TRUE(r.IsClosed());
    EXPECT_EQ(c.Recv(), 7);
    EXPECT_EQ(c.Recv(), std::nullopt);
    EXPECT_TRUE(c.IsClosed());
    EXPECT_FALSE(chan<int>().IsClosed());
    auto v = make_chan<void>();
    EXPECT_FALSE(v.IsClosed());
    v.Close();
    EXPECT_TRUE(recv_chan<void>(v).IsClosed());
    EXPECT_TRUE(send_chan<void>(v).IsClosed());
  });
}

// Under TSan this fails if IsClosed does not acquire.
TEST_P(ChanTest, CloseHappensBeforeIsClosedReturnsTrue) {
  Run([] {
    auto c = make_chan<void>();
    int written = 0;
    go([&, c] {
      written = 1;
      c.Close();
    });
    while (!c.IsClosed()) runtime::Gosched();
    EXPECT_EQ(written, 1);
  });
}

TEST_P(ChanTest, CloseWakesAllReceivers) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<bool> got = make_chan<bool>();
    for (int i = 0; i < 100; i++) {
      go([=] { got.Send(c.Recv().has_value()); });
    }
    ASSERT_TRUE(EventuallyParked("chan receive", 100));
    c.Close();
    for (int i = 0; i < 100; i++) EXPECT_EQ(got.Recv(), false);
  });
}

TEST_P(ChanTest, CloseMakesWaitingSendersPanic) {
  Run([] {
    chan<Counted> c = make_chan<Counted>(1);
    c.Send(Counted(0));
    chan<std::string> texts = make_chan<std::string>(10);
    for (int i = 0; i < 10; i++) {
      go([=] { texts.Send(PanicText([&] { c.Send(Counted(i)); })); });
    }
    ASSERT_TRUE(EventuallyParked("chan send", 10));
    c.Close();
    for (int i = 0; i < 10; i++) {
      EXPECT_EQ(texts.Recv(), "send on closed channel");
    }
    EXPECT_EQ(c.Recv()->n(), 0) << "values that were queued before stay";
    EXPECT_FALSE(c.Recv().has_value());
  });
}

TEST_P(ChanTest, MisuseIsAPanicWithGosText) {
  Run([] {
    chan<int> c = make_chan<int>(1);
    c.Close();
    EXPECT_EQ(PanicText([&] { c.Send(1); }), "send on closed channel");
    EXPECT_EQ(PanicText([&] { c.TrySend(1); }), "send on closed channel");
    EXPECT_EQ(PanicText([&] { c.Close(); }), "close of closed channel");
    EXPECT_EQ(PanicText([] { chan<int>().Close(); }), "close of nil channel");
    EXPECT_EQ(PanicText([] { (void)make_chan<int>(SIZE_MAX); }),
              "makechan: size out of range");
    EXPECT_EQ(PanicText([] { (void)make_chan<void>(SIZE_MAX); }),
              "makechan: size out of range");
    chan<void> v = make_chan<void>();
    v.Close();
    EXPECT_EQ(PanicText([&] { v.Send(); }), "send on closed channel");
    EXPECT_EQ(PanicText([&] { v.TrySend(); }), "send on closed channel");
  });
}

TEST_P(ChanTest, NilChannelsNeverProceed) {
  Run([] {
    chan<int> c;
    EXPECT_FALSE(c);
    EXPECT_FALSE(c.TrySend(1));
    EXPECT_EQ(c.TryRecv().kind, RecvResult<int>::kEmpty);
    EXPECT_EQ(c.Len(), 0u);
    EXPECT_EQ(c.Cap(), 0u);
    std::atomic<int> started{0};
    std::atomic<int> passed{0};
    go([c, &started, &passed] {
      started++;
      c.Send(1);
      passed++;
    });
    go([c, &started, &passed] {
      started++;
      (void)c.Recv();
      passed++;
    });
    EXPECT_TRUE(Eventually([&] { return started == 2; }));
    for (int i = 0; i < 100; i++) runtime::Gosched();
    EXPECT_EQ(passed, 0);
  });
}

TEST_P(ChanTest, RangeEndsWhenClosedAndDrained) {
  Run([] {
    chan<int> c = make_chan<int>(4);
    go([c] {
      for (int i = 1; i <= 100; i++) c << i;
      c.Close();
    });
    int sum = 0;
    for (int v : c) sum += v;
    EXPECT_EQ(sum, 5050);
    chan<std::unique_ptr<int>> d = make_chan<std::unique_ptr<int>>(2);
    d << std::make_unique<int>(1) << std::make_unique<int>(2);
    d.Close();
    sum = 0;
    for (std::unique_ptr<int> p : d) sum += *p;
    EXPECT_EQ(sum, 3);
  });
}

TEST_P(ChanTest, VoidChannelsCarrySignals) {
  Run([] {
    chan<void> c = make_chan<void>(2);
    c.Send();
    EXPECT_TRUE(c.TrySend());
    EXPECT_FALSE(c.TrySend());
    EXPECT_EQ(c.Len(), 2u);
    EXPECT_TRUE(c.Recv());
    EXPECT_EQ(c.TryRecv().kind, RecvResult<void>::kValue);
    EXPECT_EQ(c.TryRecv().kind, RecvResult<void>::kEmpty);
    go([c] { c.Close(); });
    EXPECT_FALSE(c.Recv());
    EXPECT_EQ(c.TryRecv().kind, RecvResult<void>::kClosed);
  });
}

TEST_P(ChanTest, ViewsAreTheSameChannel) {
  Run([] {
    chan<int> c = make_chan<int>(2);
    send_chan<int> s = c;
    recv_chan<int> r = c;
    s.Send(1);
    EXPECT_EQ(r.Len(), 1u);
    EXPECT_EQ(r.Recv(), 1);
    EXPECT_TRUE(r == c);
    EXPECT_TRUE(s == c);
    EXPECT_TRUE(r == recv_chan<int>(c));
    s.Close();
    EXPECT_EQ(r.TryRecv().kind, RecvResult<int>::kClosed);
    auto produce = [](send_chan<int> out) { out.Send(5); };
    auto consume = [](recv_chan<int> in) { return *in.Recv(); };
    chan<int> d = make_chan<int>(1);
    produce(d);
    EXPECT_EQ(consume(d), 5);
    chan<int> e = make_chan<int>(2);
    send_chan<int>(e) << 6 << 7;
    int six = 0;
    int seven = 0;
    EXPECT_TRUE(recv_chan<int>(e) >> six);
    EXPECT_TRUE(recv_chan<int>(e) >> seven);
    EXPECT_EQ(six, 6);
    EXPECT_EQ(seven, 7);
  });
}

static_assert(std::is_convertible_v<chan<int>, send_chan<int>>);
static_assert(std::is_convertible_v<chan<int>, recv_chan<int>>);
static_assert(!std::is_convertible_v<send_chan<int>, chan<int>>);
static_assert(!std::is_convertible_v<recv_chan<int>, chan<int>>);
static_assert(!std::is_convertible_v<send_chan<int>, recv_chan<int>>);
static_assert(!std::is_convertible_v<chan<int>, chan<double>>);
static_assert(sizeof(chan<int>) == sizeof(void*));
static_assert(std::is_nothrow_move_constructible_v<chan<int>>);
static_assert(std::input_iterator<chan<int>::iterator>);

TEST(ChanHandleTest, HasIdentity) {
  chan<int> a = make_chan<int>();
  chan<int> b = make_chan<int>();
  chan<int> a2 = a;
  EXPECT_TRUE(a == a2);
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(a != b);
  EXPECT_FALSE(a == nullptr);
  EXPECT_TRUE(chan<int>() == nullptr);
  EXPECT_EQ(std::hash<chan<int>>()(a), std::hash<chan<int>>()(a2));
  EXPECT_EQ(std::hash<recv_chan<int>>()(a), std::hash<recv_chan<int>>()(a2));
  EXPECT_EQ(absl::HashOf(a), absl::HashOf(a2));
  absl::flat_hash_set<chan<int>> set{a, a2, b};
  EXPECT_EQ(set.size(), 2u);
  using std::swap;
  swap(a, b);
  EXPECT_TRUE(b == a2);
  b = nullptr;
  EXPECT_FALSE(b);
  chan<int>& self = a2;
  a2 = self;
  EXPECT_TRUE(a2);
  chan<int> moved = std::move(a2);
  EXPECT_TRUE(moved);
  moved = std::move(a);
  EXPECT_TRUE(moved);
}

TEST_P(ChanTest, PlainThreadsTakePart) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<int> back = make_chan<int>(1);
    std::thread t = KnownThread([=] {
      int sum = 0;
      for (int v : c) sum += v;
      back.Send(sum);
    });
    go([=] {
      for (int i = 0; i < 100; i++) c.Send(i);
      c.Close();
    });
    EXPECT_EQ(back.Recv(), 4950);
    t.join();
  });
}

TEST(ChanThreadsTest, WorkBetweenPlainThreadsAlone) {
  chan<int> c = make_chan<int>();
  chan<int> back = make_chan<int>(1);
  std::thread t([=] {
    int sum = 0;
    for (int v : c) sum += v;
    back.Send(sum);
  });
  for (int i = 0; i < 1000; i++) c.Send(i);
  c.Close();
  EXPECT_EQ(back.Recv(), 499500);
  t.join();
}

TEST_P(ChanTest, OperationsMayParkInsideACatchBlock) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<std::string> texts = make_chan<std::string>();
    for (int i = 0; i < 10; i++) {
      go([=] {
        try {
          throw std::runtime_error("error " + std::to_string(i));
        } catch (const std::runtime_error& e) {
          (void)c.Recv();
          texts.Send(e.what());
        }
      });
    }
    for (int i = 0; i < 10; i++) c.Send(i);
    std::vector<std::string> got;
    for (int i = 0; i < 10; i++) got.push_back(*texts.Recv());
    std::sort(got.begin(), got.end());
    for (int i = 0; i < 10; i++) {
      EXPECT_EQ(got[static_cast<size_t>(i)], "error " + std::to_string(i));
    }
  });
}

TEST_P(ChanTest, TheReceiverMayLetTheChannelGoAtOnce) {
  Run([] {
    for (int i = 0; i < 2000; i++) {
      chan<int> c = make_chan<int>(static_cast<size_t>(i % 2));
      go([c = c] { c.Send(1); });
      EXPECT_EQ(std::exchange(c, nullptr).Recv(), 1);
    }
  });
}

// The orders below hold as long as no goroutine is preempted, and a slice may
// end at any moment. So they must hold in nearly every round. If the scheduler
// shuffles, no round has to be right.
template <class F>
void ExpectOrderMostly(F&& round_is_right) {
  constexpr int kRounds = 50;
  int right = 0;
  testing::RunWith(1, [&] {
    for (int i = 0; i < kRounds; i++) right += round_is_right() ? 1 : 0;
  });
  EXPECT_GE(right, testing::FuzzSched() ? 0 : kRounds - 5);
}

// Order is the order in which at most kMost goroutines came. Even with one P a
// goroutine may be preempted in the middle of Add, while others go on.
struct Order {
  static constexpr size_t kMost = 5;
  std::atomic<size_t> begun = 0;
  std::atomic<size_t> n = 0;  // calls of Add that are complete
  std::array<std::atomic<int>, kMost> who = {};
  void Add(int i) {
    who[begun++] = i;
    n++;
  }
  bool Is(const std::vector<int>& expected) const {
    return std::equal(expected.begin(), expected.end(), who.begin());
  }
};

TEST(ChanOrderTest, OnOnePTheSenderGoesOnAndTheReceiverIsNext) {
  ExpectOrderMostly([] {
    chan<int> c = make_chan<int>();
    Order order;
    go([&, c] {
      (void)c.Recv();
      order.Add('R');
    });
    runtime::Gosched();
    go([&] { order.Add('x'); });
    c.Send(1);
    order.Add('S');
    EXPECT_TRUE(Eventually([&] { return order.n == 3; }));
    return order.Is({'S', 'R', 'x'});
  });
}

TEST(ChanOrderTest, OnOnePCloseRunsTheFirstReceiverThenTheOthersBackwards) {
  ExpectOrderMostly([] {
    chan<int> c = make_chan<int>();
    Order order;
    for (int i = 1; i <= 5; i++) {
      go([&, c, i] {
        (void)c.Recv();
        order.Add(i);
      });
      EXPECT_TRUE(EventuallyParked("chan receive", static_cast<size_t>(i)));
    }
    c.Close();
    EXPECT_TRUE(Eventually([&] { return order.n == 5; }));
    return order.Is({1, 5, 4, 3, 2});
  });
}

}  // namespace
}  // namespace gump
