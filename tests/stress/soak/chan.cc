// Trades with channels: sending, selecting, closing, timers, contexts.
#include "gump/chan.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gump/context.h"
#include "gump/panic.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/stress/soak/soak.h"
#include "tests/testing/contexts.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::soak {
namespace {

using std::chrono::nanoseconds;
using testing::Eventually;

// All that is sent arrives, through a channel of any size.
class SendTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    const auto c = make_chan<Parcel>(rng.Below(5));
    const uint64_t each = rng.Below(40);
    Balance b;
    sync::WaitGroup senders;
    sync::WaitGroup receivers;
    Crowd(rng, 3, senders, [&, each](Rng& own) {
      for (uint64_t i = 0; i < each; i++) {
        Parcel p(own.Next());
        b.In(p.tag());
        c.Send(std::move(p));
        Pause(own);
      }
    });
    Crowd(rng, 3, receivers, [&](Rng& own) {
      for (const Parcel& p : c) {
        b.Out(p);
        Pause(own);
      }
    });
    senders.Wait();
    c.Close();
    receivers.Wait();
    b.Check();
  }
};

// The same with selects of all forms at both ends.
class SelectTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    const Streets s{make_chan<uint64_t>(rng.Below(3)),
                    make_chan<uint64_t>(rng.Below(3)), make_chan<void>()};
    const uint64_t each = rng.Below(30);
    Balance b;
    sync::WaitGroup senders;
    sync::WaitGroup receivers;
    Crowd(rng, 3, senders, [&, each](Rng& own) {
      for (uint64_t i = 0; i < each; i++) {
        const uint64_t tag = own.Next();
        b.In(tag);
        SendOne(own, s, tag);
        Pause(own);
      }
    });
    Crowd(rng, 3, receivers, [&](Rng& own) { ReceiveAll(own, s, b); });
    senders.Wait();
    s.quit.Close();
    receivers.Wait();
    b.Check();
  }

 private:
  struct Streets {
    chan<uint64_t> left, right;
    chan<void> quit;  // closed when all has been sent
  };

  static void SendOne(Rng& rng, const Streets& s, uint64_t tag) {
    switch (rng.Below(4)) {
      case 0:
        select(Send(s.left, tag), Send(s.right, tag));
        break;
      case 1:
        while (select(Send(s.left, tag), Default()) == 1) runtime::Gosched();
        break;
      case 2:
        while (select(Send(s.right, tag), Recv(time::After(Short(rng)))) == 1) {
        }
        break;
      default: {
        std::vector<SelectCase> cases;
        cases.push_back(Recv(chan<uint64_t>()));
        cases.push_back(Send(s.left, tag));
        cases.push_back(Send(s.right, tag));
        EXPECT_NE(select(absl::MakeSpan(cases)), 0);
        break;
      }
    }
  }

  static void ReceiveAll(Rng& rng, const Streets& s, Balance& b) {
    const auto take = [&b](uint64_t tag) { b.Out(tag); };
    while (select(Recv(s.left, take), Recv(s.right, take), Recv(s.quit)) != 2) {
      Pause(rng);
    }
    // Take the values that are still buffered.
    while (select(Recv(s.left, take), Recv(s.right, take), Default()) != 2) {
    }
  }
};

// Close ends senders with a panic and receivers without a value. Values that
// were sent before arrive.
class CloseTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    const auto c = make_chan<Parcel>(rng.Below(3));
    Balance b;
    sync::WaitGroup wg;
    Crowd(rng, 3, wg, [&](Rng& own) {
      for (;;) {
        Parcel p(own.Next());
        const uint64_t tag = p.tag();
        try {
          c.Send(std::move(p));
        } catch (const PanicError& e) {
          EXPECT_STREQ(e.what(), "send on closed channel");
          return;
        }
        b.In(tag);
        Pause(own);
      }
    });
    Crowd(rng, 3, wg, [&](Rng& own) {
      while (std::optional<Parcel> p = c.Recv()) {
        b.Out(*p);
        Pause(own);
      }
    });
    time::Sleep(Short(rng));
    c.Close();
    try {
      c.Close();
      ADD_FAILURE() << "closed twice";
    } catch (const PanicError& e) {
      EXPECT_STREQ(e.what(), "close of closed channel");
    }
    wg.Wait();
    b.Check();
  }
};

// A timer that was set is stopped, set again, or fires.
class TimerTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    switch (rng.Below(4)) {
      case 0:
        Functions(rng);
        break;
      case 1:
        Values(rng);
        break;
      case 2:
        Ticks(rng);
        break;
      default: {
        const nanoseconds d = Short(rng);
        const auto begin = std::chrono::steady_clock::now();
        time::Sleep(d);
        EXPECT_GE(std::chrono::steady_clock::now() - begin, d);
        break;
      }
    }
  }

 private:
  static void Functions(Rng& rng) {
    std::atomic<uint64_t> fired = 0;
    uint64_t set = 1;
    uint64_t prevented = 0;
    const time::Timer t = time::AfterFunc(Short(rng), [&] { fired++; });
    for (uint64_t n = rng.Below(5); n > 0; n--) {
      Pause(rng);
      if (rng.OneIn(3)) {
        prevented += t.Stop() ? 1 : 0;
      } else {
        prevented += t.Reset(Short(rng)) ? 1 : 0;
        set++;
      }
    }
    if (rng.OneIn(2)) prevented += t.Stop() ? 1 : 0;
    EXPECT_TRUE(Eventually([&] { return fired + prevented == set; }))
        << fired << " fired, " << prevented << " prevented, " << set << " set";
  }

  static void Values(Rng& rng) {
    const time::Timer t = time::NewTimer(Short(rng));
    uint64_t set = 1;
    uint64_t prevented = 0;
    uint64_t received = 0;
    for (uint64_t n = rng.Below(5); n > 0; n--) {
      Pause(rng);
      switch (rng.Below(3)) {
        case 0:
          prevented += t.Stop() ? 1 : 0;
          break;
        case 1:
          received += t.C.TryRecv().value.has_value() ? 1 : 0;
          break;
        default:
          prevented += t.Reset(Short(rng)) ? 1 : 0;
          set++;
          break;
      }
    }
    if (prevented + received < set) {
      EXPECT_TRUE(t.C.Recv().has_value());
      received++;
    }
    EXPECT_EQ(prevented + received, set);
    EXPECT_FALSE(t.C.TryRecv().value.has_value());
  }

  static void Ticks(Rng& rng) {
    time::Ticker t = time::NewTicker(nanoseconds(1000) + Short(rng));
    for (uint64_t n = rng.Below(4); n > 0; n--) {
      EXPECT_TRUE(t.C.Recv().has_value());
      if (rng.OneIn(2)) t.Reset(nanoseconds(1000) + Short(rng));
    }
    t.Stop();
    Pause(rng);
    EXPECT_FALSE(t.C.TryRecv().value.has_value());
  }
};

// Every context below another is told of its end, once, and with the right
// words.
class ContextTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    std::atomic<uint64_t> ran = 0;
    uint64_t registered = 0;
    uint64_t stopped = 0;
    auto [root, cancel] = context::WithCancel(context::Background());
    std::vector<context::Context> all = {root};
    sync::WaitGroup wg;
    for (uint64_t n = rng.Below(12); n > 0; n--) {
      all.push_back(Child(rng, all[rng.Below(all.size())]));
      wg.Go([&, ctx = all.back()] {
        ctx.Done().Recv();
        EXPECT_TRUE(testing::Canceled(ctx) || testing::Exceeded(ctx));
      });
      const auto stop = context::AfterFunc(all.back(), [&] { ran++; });
      registered++;
      Pause(rng);
      if (rng.OneIn(3)) stopped += stop() ? 1 : 0;
    }
    Pause(rng);
    cancel();
    for (const context::Context& ctx : all) EXPECT_FALSE(ctx.Err().ok());
    EXPECT_TRUE(testing::Canceled(root));
    wg.Wait();
    EXPECT_TRUE(Eventually([&] { return ran + stopped == registered; }))
        << ran << " ran, " << stopped << " stopped of " << registered;
  }

 private:
  static context::Context Child(Rng& rng, const context::Context& parent) {
    switch (rng.Below(3)) {
      case 0:
        return context::WithTimeout(parent, Short(rng)).first;
      case 1:
        return testing::Watched(parent);
      default:
        auto [ctx, cancel] = context::WithCancel(parent);
        if (rng.OneIn(4)) cancel();
        return ctx;
    }
  }
};

constexpr TradeMaker kTrades[] = {
    MakeTrade<SendTrade>,  MakeTrade<SelectTrade>,  MakeTrade<CloseTrade>,
    MakeTrade<TimerTrade>, MakeTrade<ContextTrade>,
};

}  // namespace

std::span<const TradeMaker> ChanTrades() { return kTrades; }

}  // namespace gump::soak
