// select as a program sees it, at several GOMAXPROCS.
#include "gump/select.h"

#include <sys/select.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_counted.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;
using testing::Eventually;
using testing::KnownThread;
using testing::PanicText;

using SelectTest = testing::WithCounted;
GUMP_INSTANTIATE_GOMAXPROCS(SelectTest);

TEST_P(SelectTest, DoesTheOneCaseThatIsReady) {
  Run([] {
    chan<int> a = make_chan<int>(1);
    chan<int> b = make_chan<int>(1);
    int got = 0;
    b.Send(5);
    EXPECT_EQ(select(Recv(a, [&](int) { got = -1; }),
                     Recv(b, [&](int v) { got = v; })),
              1);
    EXPECT_EQ(got, 5);
    EXPECT_EQ(
        select(Recv(b, [&](int) { got = -1; }), Send(a, 7, [&] { got = 70; })),
        1);
    EXPECT_EQ(got, 70);
    EXPECT_EQ(a.Recv(), 7);
  });
}

TEST_P(SelectTest, DefaultRunsOnlyIfNothingIsReady) {
  Run([] {
    chan<int> c = make_chan<int>(1);
    chan<int> d = make_chan<int>(1);
    int defaults = 0;
    EXPECT_EQ(select(Recv(c, [](int) {}), Default([&] { defaults++; })), 1);
    EXPECT_EQ(select(Default([&] { defaults++; }), Recv(c), Recv(d)), 0);
    EXPECT_EQ(defaults, 2);
    EXPECT_EQ(select(Send(c, 1), Default()), 0);
    EXPECT_EQ(select(Send(c, 2), Default()), 1);
    EXPECT_EQ(select(Default(), Recv(c)), 1);
    EXPECT_EQ(select(Default()), 0);
    EXPECT_EQ(defaults, 2);
  });
}

TEST_P(SelectTest, ParksUntilACaseCanProceed) {
  Run([] {
    chan<int> a = make_chan<int>();
    chan<int> b = make_chan<int>();
    chan<int> c = make_chan<int>();
    chan<int> done = make_chan<int>();
    go([=] {
      int n = 0;
      for (int i = 0; i < 300; i++) {
        select(Recv(a, [&](int v) { n += v; }), Recv(b, [&](int v) { n += v; }),
               Recv(c, [&](int v) { n += v; }));
      }
      done.Send(n);
    });
    go([=] {
      for (int i = 0; i < 100; i++) a.Send(1);
    });
    go([=] {
      for (int i = 0; i < 100; i++) b.Send(1000);
    });
    for (int i = 0; i < 100; i++) c.Send(1000000);
    EXPECT_EQ(done.Recv(), 100100100);
  });
}

TEST_P(SelectTest, HandlersMayTakeAnyFormOfTheValue) {
  Run([] {
    chan<int> c = make_chan<int>(10);
    for (int i = 1; i <= 6; i++) c.Send(i);
    int got = 0;
    bool ok = false;
    select(Recv(c, [&](int v) { got = v; }));
    EXPECT_EQ(got, 1);
    select(Recv(c, [&](int v, bool o) {
      got = v;
      ok = o;
    }));
    EXPECT_EQ(got, 2);
    EXPECT_TRUE(ok);
    select(Recv(c, [&](std::optional<int> v) { got = *v; }));
    EXPECT_EQ(got, 3);
    select(Recv(c, [&] { got = 40; }));
    EXPECT_EQ(got, 40);
    std::function<void(const int&)> f = [&](const int& v) { got = v; };
    select(Recv(c, f));
    EXPECT_EQ(got, 5);
    select(Recv(c, [&](auto v) { got = static_cast<int>(v); }));
    EXPECT_EQ(got, 6);
    c.Close();
    select(Recv(c, [&](int v) { got = v; }));
    EXPECT_EQ(got, 0);
    select(Recv(c, [&](int v, bool o) {
      got = v + 1;
      ok = o;
    }));
    EXPECT_EQ(got, 1);
    EXPECT_FALSE(ok);
    select(Recv(c, [&](std::optional<int> v) { ok = !v.has_value(); }));
    EXPECT_TRUE(ok);
    chan<void> v = make_chan<void>(1);
    v.Send();
    select(Recv(v, [&](bool o) { ok = o; }));
    EXPECT_TRUE(ok);
    v.Close();
    select(Recv(v, &ok), Recv(v, &ok));
    EXPECT_FALSE(ok);
  });
}

TEST_P(SelectTest, PointersServeASwitch) {
  Run([] {
    chan<int> c = make_chan<int>(2);
    chan<std::string> e = make_chan<std::string>(2);
    int v = -1;
    std::string w = "none";
    bool ok = false;
    e.Send("x");
    switch (select(Recv(c, &v), Recv(e, &w, &ok), Default())) {
      case 0:
      case 2:
        FAIL();
      case 1:
        EXPECT_EQ(w, "x");
        EXPECT_TRUE(ok);
    }
    c.Close();
    EXPECT_EQ(select(Recv(c, &v, &ok), Recv(e, &w)), 0);
    EXPECT_FALSE(ok);
    EXPECT_EQ(v, -1) << "closed leaves the variable alone";
    e.Close();
    EXPECT_EQ(select(Recv(e, &w, &ok)), 0);
    EXPECT_FALSE(ok);
    EXPECT_EQ(w, "x");
  });
}

TEST_P(SelectTest, AValueIsMovedOnlyIfItsCaseIsChosen) {
  Run([] {
    chan<std::unique_ptr<int>> full = make_chan<std::unique_ptr<int>>();
    chan<std::unique_ptr<int>> room = make_chan<std::unique_ptr<int>>(1);
    auto a = std::make_unique<int>(1);
    auto b = std::make_unique<int>(2);
    EXPECT_EQ(select(Send(full, std::move(a)), Send(room, std::move(b))), 1);
    EXPECT_NE(a, nullptr);
    EXPECT_EQ(b, nullptr);
    EXPECT_EQ(select(Send(room, std::move(a)), Default()), 1);
    EXPECT_NE(a, nullptr);
    chan<std::string> s = make_chan<std::string>(1);
    std::string text = "kept";
    EXPECT_EQ(select(Send(s, text), Default()), 0);
    EXPECT_EQ(text, "kept");
    EXPECT_EQ(s.Recv(), "kept");
  });
}

TEST_P(SelectTest, EveryValueIsDestroyedExactlyOnce) {
  Run([] {
    chan<Counted> a = make_chan<Counted>(1);
    chan<Counted> b = make_chan<Counted>();
    chan<void> done = make_chan<void>();
    for (int g = 0; g < 4; g++) {
      go([=] {
        for (int i = 0; i < 200; i++) {
          select(Send(a, Counted(i)), Send(b, Counted(i)));
        }
        done.Send();
      });
      go([=] {
        for (int i = 0; i < 200; i++) {
          select(Recv(a, [](std::optional<Counted> v) { EXPECT_TRUE(v); }),
                 Recv(b));
        }
        done.Send();
      });
    }
    for (int i = 0; i < 8; i++) done.Recv();
    EXPECT_TRUE(Eventually([] { return Counted::objects() == 0; }));
  });
}

TEST_P(SelectTest, ASendToAClosedChannelPanics) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<int> d = make_chan<int>();
    c.Close();
    EXPECT_EQ(PanicText([&] { select(Send(c, 1), Recv(d)); }),
              "send on closed channel");
    EXPECT_EQ(PanicText([&] { select(Send(c, 1), Default()); }),
              "send on closed channel");
    chan<int> e = make_chan<int>();
    chan<std::string> text = make_chan<std::string>();
    go([=] { text.Send(PanicText([&] { select(Send(e, 1), Send(d, 2)); })); });
    ASSERT_TRUE(testing::EventuallyParked("select", 1));
    e.Close();
    EXPECT_EQ(text.Recv(), "send on closed channel");
  });
}

TEST_P(SelectTest, NilChannelsAreNeverReady) {
  Run([] {
    chan<int> nil;
    chan<int> c = make_chan<int>(1);
    c.Send(1);
    for (int i = 0; i < 20; i++) {
      EXPECT_EQ(select(Recv(nil), Send(nil, 1), Recv(c), Default()), 2);
      c.Send(1);
    }
    EXPECT_EQ(select(Recv(nil), Send(nil, 1), Default()), 2);
    EXPECT_EQ(select(Recv(nil), Default()), 1);
  });
}

TEST_P(SelectTest, ASelectThatCanNeverProceedParksForEver) {
  Run([] {
    std::atomic<int> started{0};
    std::atomic<int> passed{0};
    auto begin = [&](auto f) {
      go([&, f] {
        started++;
        f();
        passed++;
      });
    };
    begin([] { select(); });
    begin([] { select(Recv(chan<int>())); });
    begin([] { select(Recv(chan<int>()), Send(chan<int>(), 1)); });
    begin([] { select(absl::Span<SelectCase>()); });
    EXPECT_TRUE(Eventually([&] { return started == 4; }));
    for (int i = 0; i < 200; i++) runtime::Gosched();
    EXPECT_EQ(passed, 0);
  });
}

TEST_P(SelectTest, TheSameChannelMayAppearTwice) {
  Run([] {
    chan<int> c = make_chan<int>();
    chan<int> hits = make_chan<int>(1000);
    go([=] {
      for (int i = 0; i < 1000; i++) {
        hits.Send(select(Recv(c), Recv(c), Recv(c)));
      }
    });
    for (int i = 0; i < 1000; i++) c.Send(i);
    int n[3] = {};
    for (int i = 0; i < 1000; i++) n[*hits.Recv()]++;
    // Parked or not, each of the three takes part. No rule says which one wins.
    EXPECT_EQ(n[0] + n[1] + n[2], 1000);
  });
}

TEST_P(SelectTest, BothDirectionsOfOneChannelPairWithOthersOnly) {
  Run([] {
    chan<int> c = make_chan<int>();
    EXPECT_EQ(select(Send(c, 1), Recv(c), Default()), 2);
    std::atomic<int> sent{0};
    std::atomic<int> received{0};
    chan<void> done = make_chan<void>();
    for (int g = 0; g < 4; g++) {
      go([=, &sent, &received] {
        for (int i = 0; i < 250; i++) {
          select(Send(c, g, [&] { sent++; }), Recv(c, [&](int from) {
                   EXPECT_NE(from, g) << "a select paired with itself";
                   received++;
                 }));
        }
        done.Send();
      });
    }
    // The selects pair up, so the last one may find no partner among the
    // goroutines. Then main is its partner.
    int finished = 0;
    while (finished < 4) {
      select(Recv(done, [&] { finished++; }), Send(c, -1, [&] { sent++; }),
             Recv(c, [&] { received++; }));
    }
    EXPECT_EQ(sent, received);
  });
}

TEST_P(SelectTest, ReadyCasesAreChosenUniformly) {
  Run([] {
    constexpr int kRounds = 10000;
    chan<int> a = make_chan<int>(1);
    chan<int> b = make_chan<int>(1);
    chan<int> c = make_chan<int>(1);
    chan<int> d = make_chan<int>(1);
    for (chan<int>& x :
         std::array{std::ref(a), std::ref(b), std::ref(c), std::ref(d)}) {
      x.Close();
    }
    int n[4] = {};
    for (int i = 0; i < kRounds; i++) {
      n[select(Recv(a), Recv(b), Recv(c), Recv(d))]++;
    }
    const double sigma = std::sqrt(kRounds * 0.25 * 0.75);
    for (int k : n) EXPECT_NEAR(k, kRounds / 4, 10 * sigma);
  });
}

TEST_P(SelectTest, ALosingCaseLeavesItsQueue) {
  Run([] {
    chan<int> never = make_chan<int>();
    chan<int> c = make_chan<int>();
    go([=] {
      for (int i = 0; i < 1000; i++) c.Send(i);
      c.Close();
    });
    int n = 0;
    bool open = true;
    while (open) {
      select(Recv(never, [](int) { FAIL(); }),
             Recv(c, [&](std::optional<int> v) { v ? n++ : open = false; }));
    }
    EXPECT_EQ(n, 1000);
    EXPECT_FALSE(never.TrySend(1)) << "no receiver waits any more";
  });
}

TEST_P(SelectTest, AHandlerMayThrowAndUseTheChannels) {
  Run([] {
    chan<Counted> c = make_chan<Counted>(2);
    c.Send(Counted(1));
    EXPECT_THROW(select(Recv(c, [](std::optional<Counted>) { throw 1; })), int);
    EXPECT_EQ(Counted::objects(), 0);
    c.Send(Counted(2));
    select(Recv(c, [&](std::optional<Counted> v) { c.Send(std::move(*v)); }));
    EXPECT_EQ(c.Recv()->n(), 2);
  });
}

TEST_P(SelectTest, PlainThreadsMaySelect) {
  Run([] {
    chan<int> a = make_chan<int>();
    chan<int> b = make_chan<int>();
    chan<int> back = make_chan<int>(1);
    std::thread t = KnownThread([=] {
      int n = 0;
      for (int i = 0; i < 200; i++) {
        select(Recv(a, [&](int v) { n += v; }),
               Recv(b, [&](int v) { n += v; }));
      }
      back.Send(n);
    });
    go([=] {
      for (int i = 0; i < 100; i++) a.Send(1);
    });
    for (int i = 0; i < 100; i++) b.Send(100);
    EXPECT_EQ(back.Recv(), 10100);
    t.join();
  });
}

}  // namespace
}  // namespace gump

// A program that says `using namespace gump` and includes <sys/select.h>.
namespace using_test {
using namespace gump;  // NOLINT: this is tested

TEST(SelectNameTest, TheFunctionOfTheCLibraryStaysCallable) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  ASSERT_EQ(write(fds[1], "x", 1), 1);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fds[0], &set);
  timeval tv{};
  EXPECT_EQ(select(fds[0] + 1, &set, nullptr, nullptr, &tv), 1);
  chan<int> c = make_chan<int>(1);
  EXPECT_EQ(select(Send(c, 1), Default()), 0);
  close(fds[0]);
  close(fds[1]);
}

}  // namespace using_test
