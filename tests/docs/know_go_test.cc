// The right column of the table "If you know Go" in README.md. check_pages.py
// looks whether each piece of code of that column is here.

#include <gtest/gtest.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gump/gump.h"

namespace gump {
namespace {

template <class T>
absl::Status statusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

TEST(KnowGoTest, AChannelIsMadeSentToAndClosed) {
  gump::Run([] {
    auto c = make_chan<int>(4);
    c.Send(7);
    {
      int v = 8;
      c.Send(v);
    }
    c.Close();
    {
      std::optional<int> v = c.Recv();
      EXPECT_EQ(v, 7);
    }
    int v = 0;
    {
      bool ok = c.Recv(v);
      EXPECT_TRUE(ok);
    }
    EXPECT_EQ(v, 8);
    bool ok = c.Recv(v);
    EXPECT_FALSE(ok);
  });
}

TEST(KnowGoTest, ALoopReceivesUntilTheChannelIsClosed) {
  gump::Run([] {
    auto c = make_chan<int>(4);
    c.Send(1);
    c.Send(2);
    c.Close();
    int sum = 0;
    for (int v : c) sum += v;
    EXPECT_EQ(sum, 3);
  });
}

TEST(KnowGoTest, ASelectTakesTheCaseThatIsReadyOrTheDefault) {
  gump::Run([] {
    auto c = make_chan<int>(1);
    const absl::Duration d = absl::Hours(1);
    int got = 0;
    auto round = [&] {
      // clang-format off
      select(Recv(c, [&](int v) { got = v; }), Recv(time::After(d), [&] { got = -1; }), Default());
      // clang-format on
    };
    round();
    EXPECT_EQ(got, 0);
    c.Send(3);
    round();
    EXPECT_EQ(got, 3);
  });
}

TEST(KnowGoTest, AGoroutineGetsItsArgument) {
  gump::Run([] {
    auto out = make_chan<int>();
    auto f = [out](int x) { out.Send(x); };
    int x = 5;
    go(f, x);
    EXPECT_EQ(out.Recv(), 5);
  });
}

TEST(KnowGoTest, ADeferRunsAtTheEndOfItsScope) {
  gump::Run([] {
    int ran = 0;
    auto f = [&] { ran++; };
    {
      defer d([&] { f(); });
      EXPECT_EQ(ran, 0);
    }
    EXPECT_EQ(ran, 1);
  });
}

TEST(KnowGoTest, APanicIsCaughtAsAnException) {
  gump::Run([] {
    bool caught = false;
    try {
      panic("no");
    } catch (const PanicError& e) {
      caught = true;
    }
    EXPECT_TRUE(caught);
  });
}

TEST(KnowGoTest, AWaitGroupWaitsForItsGoroutines) {
  gump::Run([] {
    bool ran = false;
    auto f = [&] { ran = true; };
    sync::WaitGroup wg;
    wg.Go(f);
    wg.Wait();
    EXPECT_TRUE(ran);
  });
}

TEST(KnowGoTest, AContextHasATimeLimit) {
  gump::Run([] {
    auto parent = context::Background();
    const absl::Duration d = absl::Milliseconds(1);
    auto [ctx, cancel] = context::WithTimeout(parent, d);
    defer c([&cancel = cancel] { cancel(); });
    ctx.Done().Recv();
    EXPECT_TRUE(absl::IsDeadlineExceeded(ctx.Err()));
  });
}

TEST(KnowGoTest, AnErrorIsAStatus) {
  gump::Run([] {
    absl::StatusOr<os::File> file = os::Open("/nonexistent/file");
    absl::Status status = statusOf(file);
    EXPECT_TRUE(absl::IsNotFound(status));
  });
}

}  // namespace
}  // namespace gump
