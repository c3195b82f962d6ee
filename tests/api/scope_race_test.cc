// gump::All and gump::Race.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/scope.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::PanicText;

using AllTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(AllTest);
using RaceTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(RaceTest);

const context::Context kNone = context::Background();

void AwaitCancel(const context::Context& ctx) { (void)ctx.Done().Recv(); }

TEST_P(AllTest, RunsEveryFunctionAndWaits) {
  Run([] {
    std::atomic<int> n = 0;
    EXPECT_TRUE(All(
                    kNone, [&] { n++; }, [&](context::Context) { n++; },
                    [&] {
                      n++;
                      return absl::OkStatus();
                    })
                    .ok());
    EXPECT_EQ(n, 3);
    EXPECT_TRUE(All(kNone).ok());
  });
}

TEST_P(AllTest, FirstFailureCancelsTheOthersAndIsReturned) {
  Run([] {
    const absl::Status s = All(
        kNone, [] { return absl::DataLossError("first"); },
        [](context::Context ctx) {
          AwaitCancel(ctx);
          return ctx.Err();
        });
    EXPECT_EQ(s, absl::DataLossError("first"));
  });
}

TEST_P(AllTest, ExceptionIsRethrown) {
  Run([] {
    EXPECT_EQ(PanicText([] {
                (void)All(
                    kNone, [] { panic("all"); }, AwaitCancel);
              }),
              "all");
  });
}

TEST_P(AllTest, FunctionsAreCalledInPlace) {
  struct Fixed {
    int calls = 0;
    Fixed() = default;
    Fixed(const Fixed&) = delete;
    void operator()() { calls++; }
  };
  Run([] {
    Fixed f;
    Fixed g;
    EXPECT_TRUE(All(kNone, f, g).ok());
    EXPECT_EQ(f.calls + g.calls, 2);
  });
}

TEST_P(AllTest, ParentPassesItsDeadlineAndCancellation) {
  Run([] {
    synctest::Run([] {
      auto [ctx, cancel] = context::WithTimeout(kNone, absl::Seconds(1));
      EXPECT_EQ(All(ctx,
                    [](context::Context c) {
                      AwaitCancel(c);
                      return c.Err();
                    }),
                absl::DeadlineExceededError("context deadline exceeded"));
    });
  });
}

TEST_P(RaceTest, FirstResultWinsAndTheOthersAreCancelledAndJoined) {
  Run([] {
    bool joined = false;
    absl::StatusOr<int> r = Race(
        kNone,
        [&](context::Context ctx) {
          AwaitCancel(ctx);
          joined = true;
          return 1;  // OK, but later
        },
        [](context::Context) { return 2; });
    EXPECT_EQ(*r, 2);
    EXPECT_TRUE(joined);
  });
}

TEST_P(RaceTest, FailureDoesNotCancelTheOthers) {
  Run([] {
    synctest::Run([] {
      absl::StatusOr<std::string> r = Race(
          kNone,
          []() -> absl::StatusOr<std::string> {
            return absl::NotFoundError("a");
          },
          []() -> std::string { panic("b"); },
          [](context::Context ctx) -> absl::StatusOr<std::string> {
            time::Sleep(absl::Seconds(1));
            EXPECT_TRUE(ctx.Err().ok());
            return "c";
          });
      EXPECT_EQ(*r, "c");
    });
  });
}

TEST_P(RaceTest, WithoutSuccessTheFirstStatusIsReturned) {
  Run([] {
    synctest::Run([] {
      absl::StatusOr<int> r = Race(
          kNone,
          []() -> absl::StatusOr<int> {
            time::Sleep(absl::Seconds(1));
            return absl::InternalError("late");
          },
          []() -> absl::StatusOr<int> { return absl::NotFoundError("early"); });
      EXPECT_EQ(r.status(), absl::NotFoundError("early"));
    });
  });
}

TEST_P(RaceTest, WithoutSuccessTheFirstExceptionIsRethrown) {
  Run([] {
    EXPECT_EQ(PanicText([] {
                (void)Race(
                    kNone, [] { return absl::NotFoundError("a"); },
                    []() -> absl::Status { panic("b"); });
              }),
              "b");
  });
}

TEST_P(RaceTest, ResultTypesAreJoined) {
  Run([] {
    static_assert(std::is_same_v<decltype(Race(kNone, [] {})), absl::Status>);
    static_assert(
        std::is_same_v<decltype(Race(
                           kNone, [] {}, [] { return absl::OkStatus(); })),
                       absl::Status>);
    static_assert(
        std::is_same_v<decltype(Race(
                           kNone, [] { return 1; },
                           []() -> absl::StatusOr<double> { return 2.0; })),
                       absl::StatusOr<double>>);
    EXPECT_TRUE(Race(kNone, [] {}).ok());
    absl::StatusOr<std::unique_ptr<int>> p =
        Race(kNone, [] { return std::make_unique<int>(3); });
    EXPECT_EQ(**p, 3);
    int x = 4;
    absl::StatusOr<int> copy = Race(kNone, [&]() -> int& { return x; });
    EXPECT_EQ(*copy, 4);
  });
}

TEST_P(RaceTest, GoexitIsAFailure) {
  Run([] {
    EXPECT_EQ(*Race(
                  kNone, []() -> int { runtime::Goexit(); }, [] { return 1; }),
              1);
    EXPECT_EQ(Race(kNone, [] { runtime::Goexit(); }),
              absl::AbortedError("a function of a race called Goexit"));
  });
}

TEST_P(RaceTest, ResultOfALoserIsDestroyed) {
  Run([] {
    const auto p = std::make_shared<int>(1);
    auto winner = Race(
        kNone, [&] { return p; }, [&] { return p; }, [&] { return p; });
    EXPECT_EQ(p.use_count(), 2);
  });
}

TEST_P(RaceTest, CancelledParentReachesAll) {
  Run([] {
    auto [ctx, cancel] = context::WithCancel(kNone);
    cancel();
    const auto f = [](context::Context c) {
      AwaitCancel(c);
      return c.Err();
    };
    EXPECT_EQ(Race(ctx, f, f), absl::CancelledError("context canceled"));
  });
}

}  // namespace
}  // namespace gump
