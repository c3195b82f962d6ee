#include "gump/rate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace {
std::atomic<bool> out_of_memory = false;
}

// The library allocates channels with this operator. The sanitizers have their
// own.
#if !defined(GUMP_ASAN) && !defined(GUMP_TSAN)
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  if (out_of_memory) return nullptr;
  try {
    return ::operator new(n);
  } catch (...) {
    return nullptr;
  }
}
#endif

namespace gump {
namespace {

using rate::Limiter;
using rate::Reservation;
using Clock = std::chrono::steady_clock;  // as the limiter's
using RateTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(RateTest);

// The time of a test: tenths of a second after a start that is later than any
// limiter's.
absl::Time At(int tenths) {
  static const absl::Time start = absl::FromUnixSeconds(4'000'000'000);
  return start + absl::Milliseconds(100) * tenths;
}

TEST(RateClockTest, EveryIsTheInverse) {
  EXPECT_EQ(rate::Every(absl::Seconds(4)), 0.25);
  EXPECT_EQ(rate::Every(std::chrono::milliseconds(100)), 10);
  EXPECT_EQ(rate::Every(absl::ZeroDuration()), rate::Inf);
  EXPECT_EQ(rate::Every(absl::Seconds(-1)), rate::Inf);
}

TEST(RateClockTest, TokensFlowInEvenly) {
  Limiter l(10, 1);
  const std::vector<std::pair<int, bool>> events = {
      {0, true},  {0, false}, {0, false}, {1, true},
      {1, false}, {1, false}, {2, true},  {2, false}};
  for (auto [t, ok] : events) EXPECT_EQ(l.AllowN(At(t), 1), ok) << t;
}

TEST(RateClockTest, TokensAreSavedUpToTheBurst) {
  Limiter l(10, 3);
  const std::vector<std::pair<int, bool>> events = {
      {0, true},  {0, true},  {0, true}, {0, false}, {0, false}, {1, true},
      {1, false}, {1, false}, {2, true}, {2, false}, {3, true},  {4, true},
      {4, false}, {9, true},  {9, true}, {9, true},  {9, false}};
  for (auto [t, ok] : events) EXPECT_EQ(l.AllowN(At(t), 1), ok) << t;
  EXPECT_FALSE(l.AllowN(At(100), 4));
  EXPECT_TRUE(l.AllowN(At(100), 3));
}

TEST(RateClockTest, TimeMayJumpBack) {
  Limiter l(10, 3);
  EXPECT_TRUE(l.AllowN(At(1), 1));
  EXPECT_TRUE(l.AllowN(At(0), 1));
  EXPECT_TRUE(l.AllowN(At(0), 1));
  EXPECT_FALSE(l.AllowN(At(0), 1));
  EXPECT_TRUE(l.AllowN(At(1), 1));
  EXPECT_FALSE(l.AllowN(At(1), 1));
}

TEST(RateClockTest, TokensCanBeAskedFor) {
  Limiter l(10, 2);
  EXPECT_EQ(l.TokensAt(At(0)), 2);
  EXPECT_TRUE(l.AllowN(At(0), 2));
  EXPECT_EQ(l.TokensAt(At(0)), 0);
  EXPECT_NEAR(l.TokensAt(At(1)), 1, 1e-6);
  EXPECT_EQ(l.TokensAt(At(5)), 2);
  EXPECT_TRUE(l.ReserveN(At(5), 2).OK());
  EXPECT_TRUE(l.ReserveN(At(5), 2).OK());
  EXPECT_EQ(l.TokensAt(At(5)), -2);
}

TEST(RateClockTest, ReservationsQueueUp) {
  Limiter l(10, 2);
  const auto delay = [&](int t, int n) {
    return l.ReserveN(At(t), n).DelayFrom(At(t)) / absl::Milliseconds(1);
  };
  EXPECT_EQ(delay(0, 2), 0);
  EXPECT_NEAR(static_cast<double>(delay(0, 2)), 200, 1);
  EXPECT_NEAR(static_cast<double>(delay(0, 2)), 400, 1);
  EXPECT_NEAR(static_cast<double>(delay(3, 2)), 300, 1);
  EXPECT_FALSE(l.AllowN(At(3), 1));
}

TEST(RateClockTest, MoreThanTheBurstIsNotReserved) {
  Limiter l(10, 2);
  Reservation r = l.ReserveN(At(0), 3);
  EXPECT_FALSE(r.OK());
  EXPECT_EQ(r.Delay(), absl::InfiniteDuration());
  EXPECT_EQ(r.DelayFrom(At(0)), absl::InfiniteDuration());
  r.CancelAt(At(0));
  EXPECT_EQ(l.TokensAt(At(0)), 2);
}

TEST(RateClockTest, CancelGivesBackTokensThatAreNotReserved) {
  Limiter l(10, 2);
  (void)l.ReserveN(At(0), 2);
  Reservation r = l.ReserveN(At(0), 2);  // for 2
  r.CancelAt(At(1));
  EXPECT_NEAR(l.TokensAt(At(1)), 1, 1e-6);
  // A later reservation has already been told its time. So only the tokens that
  // it does not need come back.
  Limiter m(10, 2);
  (void)m.ReserveN(At(0), 2);
  Reservation first = m.ReserveN(At(0), 2);
  Reservation second = m.ReserveN(At(0), 1);  // for 3
  first.CancelAt(At(1));
  EXPECT_NEAR(m.TokensAt(At(1)), -1, 1e-6);
  // It is too late, because the time has come.
  second.CancelAt(At(4));
  EXPECT_NEAR(m.TokensAt(At(4)), 2, 1e-6);
}

TEST(RateClockTest, CancellingTheLastGoesBackToTheOneBefore) {
  Limiter l(10, 2);
  (void)l.ReserveN(At(0), 2);
  Reservation a = l.ReserveN(At(0), 1);  // for 1
  Reservation b = l.ReserveN(At(0), 1);  // for 2
  b.CancelAt(At(0));
  a.CancelAt(At(0));  // now the last, so all of it comes back
  EXPECT_NEAR(l.TokensAt(At(0)), 0, 1e-6);
}

TEST(RateClockTest, CancellingTwiceGivesBackOnce) {
  Limiter l(10, 2);
  (void)l.ReserveN(At(0), 2);
  Reservation last = l.ReserveN(At(0), 2);  // for 2
  for (int i = 0; i < 3; i++) last.CancelAt(At(0));
  EXPECT_NEAR(l.TokensAt(At(0)), 0, 1e-6);
  // The same with one behind it.
  Reservation first = l.ReserveN(At(0), 2);
  (void)l.ReserveN(At(0), 1);
  for (int i = 0; i < 3; i++) first.CancelAt(At(0));
  EXPECT_NEAR(l.TokensAt(At(0)), -2, 1e-6);
}

TEST(RateClockTest, CancelGivesBackNoMoreThanWasTaken) {
  Limiter l(1, 1);
  (void)l.ReserveN(At(0), 1);
  Reservation slow = l.ReserveN(At(0), 1);  // for 10
  l.SetLimitAt(At(0), 100);
  (void)l.ReserveN(At(0), 1);  // later, and yet for a time before that
  slow.CancelAt(At(0));
  EXPECT_NEAR(l.TokensAt(At(0)), -1, 1e-6);
}

TEST(RateClockTest, TheRateCanBeChanged) {
  Limiter l(10, 10);
  EXPECT_TRUE(l.AllowN(At(0), 10));
  l.SetLimitAt(At(5), 100);  // five have come until now
  EXPECT_EQ(l.Limit(), 100);
  EXPECT_NEAR(l.TokensAt(At(5)), 5, 1e-6);
  l.SetBurstAt(At(5), 20);
  EXPECT_EQ(l.Burst(), 20);
  EXPECT_NEAR(l.TokensAt(At(6)), 15, 1e-6);
  l.SetBurstAt(At(6), 3);
  EXPECT_NEAR(l.TokensAt(At(6)), 3, 1e-6);
}

TEST(RateClockTest, InfAllowsEverything) {
  Limiter l(rate::Inf, 0);
  EXPECT_TRUE(l.Allow());
  EXPECT_TRUE(l.AllowN(1'000'000));
  EXPECT_EQ(l.Reserve().Delay(), absl::ZeroDuration());
  Limiter infinite(std::numeric_limits<double>::infinity(), 0);
  EXPECT_TRUE(infinite.AllowN(1'000'000));
  l.SetLimitAt(At(0), 1);
  EXPECT_FALSE(l.AllowN(At(100), 1));
}

TEST(RateClockTest, InfMayBeSetForAWhile) {
  Limiter l(10, 1);
  EXPECT_TRUE(l.AllowN(At(0), 1));
  l.SetLimitAt(At(0), std::numeric_limits<double>::infinity());
  l.SetLimitAt(At(0), 10);
  EXPECT_FALSE(l.AllowN(At(0), 1));
  EXPECT_TRUE(l.AllowN(At(1), 1));
  EXPECT_FALSE(l.AllowN(At(1), 1));
  // A reservation that took nothing gives nothing back.
  l.SetLimitAt(At(1), rate::Inf);
  rate::Reservation r = l.ReserveN(At(1), 1);
  l.SetLimitAt(At(1), 10);
  r.CancelAt(At(1));
  EXPECT_FALSE(l.AllowN(At(1), 1));
}

TEST(RateClockTest, BurstZeroAllowsNothing) {
  for (double limit : {0.0, 0.001, 1000.0, 1e12}) {
    Limiter l(limit, 0);
    EXPECT_FALSE(l.Allow());
    EXPECT_FALSE(l.AllowN(At(1000), 1));
    EXPECT_TRUE(l.AllowN(0));
    Reservation r = l.Reserve();
    EXPECT_FALSE(r.OK());
    EXPECT_EQ(r.Delay(), absl::InfiniteDuration());
    EXPECT_EQ(r.DelayFrom(At(0)), absl::InfiniteDuration());
    r.Cancel();
    EXPECT_FALSE(l.ReserveN(At(1000), 2).OK());
    EXPECT_TRUE(l.ReserveN(At(1000), 0).OK());
    EXPECT_EQ(l.TokensAt(At(2000)), 0);
  }
}

TEST(RateClockTest, WithoutALimitBurstZeroAllowsEverything) {
  Limiter l(rate::Inf, 0);
  EXPECT_TRUE(l.Allow());
  EXPECT_TRUE(l.AllowN(At(0), 1'000'000));
  Reservation r = l.ReserveN(1'000'000);
  EXPECT_TRUE(r.OK());
  EXPECT_EQ(r.Delay(), absl::ZeroDuration());
  r.Cancel();
  EXPECT_TRUE(l.Allow());
}

TEST(RateClockTest, RateZeroGivesTheBurstOnly) {
  Limiter l(0, 2);
  EXPECT_TRUE(l.AllowN(At(0), 2));
  EXPECT_FALSE(l.AllowN(At(1'000'000), 1));
  EXPECT_EQ(l.ReserveN(At(0), 1).DelayFrom(At(0)), absl::InfiniteDuration());
  Limiter negative(-1, 2);
  EXPECT_TRUE(negative.AllowN(At(0), 2));
  EXPECT_FALSE(negative.AllowN(At(1'000'000), 1));
}

TEST(RateClockTest, SlowRatesAndFarTimesDoNotOverflow) {
  Limiter slow(1e-12, 1);
  EXPECT_TRUE(slow.AllowN(At(0), 1));
  EXPECT_EQ(slow.ReserveN(At(0), 1).DelayFrom(At(0)), absl::InfiniteDuration());
  Limiter l(1e9, 1 << 30);
  EXPECT_TRUE(l.AllowN(absl::InfiniteFuture(), 1 << 30));
  EXPECT_FALSE(l.AllowN(absl::InfinitePast(), 1));
  l.SetLimitAt(absl::InfinitePast(), 1e9);
  EXPECT_TRUE(l.AllowN(absl::InfiniteFuture(), 1 << 30));
}

TEST_P(RateTest, WaitLetsAtMostTheRateThrough) {
  Run([] {
    const auto start = Clock::now();
    Limiter l(1000, 1);
    sync::WaitGroup wg;
    std::atomic<int> n = 0;
    for (int g = 0; g < 4; g++) {
      wg.Go([&] {
        for (int i = 0; i < 5; i++) {
          EXPECT_TRUE(l.Wait(context::Background()).ok());
          n++;
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(n, 20);
    // The first token costs nothing. Fractions of a ns are deducted.
    EXPECT_GE(Clock::now() - start,
              std::chrono::milliseconds(19) - std::chrono::nanoseconds(100));
  });
}

// This holds even if takers of tokens overtake one another.
TEST_P(RateTest, NoTokenFlowsInTwice) {
  Run([] {
    constexpr int kEach = 50'000;
    constexpr double kRate = 1e6;
    const auto start = Clock::now();
    Limiter l(kRate, 1);
    testing::OnBothSides([&] {
      for (int i = 0; i < kEach; i++) (void)l.Reserve();
    });
    const double left = l.Tokens();
    const std::chrono::duration<double> time = Clock::now() - start;
    EXPECT_LE(left, 1 + kRate * time.count() - 4 * kEach + 1e-3);
  });
}

TEST_P(RateTest, WaitReturnsTheReasonOfItsFailure) {
  Run([] {
    Limiter l(0.001, 3);
    EXPECT_EQ(l.WaitN(context::Background(), 5),
              absl::InvalidArgumentError(
                  "rate: Wait(n=5) exceeds limiter's burst 3"));
    EXPECT_TRUE(l.WaitN(context::Background(), 3).ok());
    auto [soon, cancel_soon] =
        context::WithTimeout(context::Background(), absl::Seconds(60));
    EXPECT_EQ(l.Wait(soon), absl::DeadlineExceededError(
                                "rate: Wait(n=1) would exceed context "
                                "deadline"));
    cancel_soon();
    EXPECT_EQ(l.Wait(soon), absl::CancelledError("context canceled"));
    EXPECT_NEAR(l.Tokens(), 0, 0.9);  // nothing was taken
  });
}

// Wait says so at once, and names the burst as the reason, for any context.
TEST_P(RateTest, WaitWithBurstZeroFailsAtOnce) {
  Run([] {
    const auto [soon, cancel] =
        context::WithTimeout(context::Background(), absl::Seconds(60));
    const auto none = [](int n) {
      return absl::InvalidArgumentError(
          absl::StrCat("rate: Wait(n=", n, ") exceeds limiter's burst 0"));
    };
    for (double limit : {0.0, 0.001, 1000.0, 1e12}) {
      Limiter l(limit, 0);
      EXPECT_EQ(l.Wait(context::Background()), none(1));
      EXPECT_EQ(l.Wait(soon), none(1));
      EXPECT_EQ(l.WaitN(soon, 7), none(7));
      EXPECT_TRUE(l.WaitN(soon, 0).ok());
      l.SetBurst(1);
      l.SetLimit(1e9);
      EXPECT_TRUE(l.Wait(soon).ok());
      l.SetBurst(0);
      EXPECT_EQ(l.Wait(soon), none(1));
    }
    cancel();
    EXPECT_EQ(Limiter(1, 0).Wait(soon), none(1)) << "before it looks at that";
  });
}

TEST_P(RateTest, WithoutALimitBurstZeroLetsAllThrough) {
  Run([] {
    Limiter l(rate::Inf, 0);
    EXPECT_TRUE(l.Wait(context::Background()).ok());
    EXPECT_TRUE(l.WaitN(context::Background(), 1'000'000).ok());
    const auto [ctx, cancel] = context::WithCancel(context::Background());
    cancel();
    EXPECT_EQ(l.Wait(ctx), absl::CancelledError("context canceled"));
    l.SetLimit(1);
    EXPECT_EQ(
        l.Wait(context::Background()),
        absl::InvalidArgumentError("rate: Wait(n=1) exceeds limiter's burst "
                                   "0"));
  });
}

TEST_P(RateTest, CancellingWaitGivesTheTokensBack) {
  Run([] {
    Limiter l(0.001, 3);
    EXPECT_TRUE(l.AllowN(3));
    auto [ctx, cancel] = context::WithCancel(context::Background());
    sync::WaitGroup wg;
    wg.Go([&, &c = ctx] {
      EXPECT_EQ(l.WaitN(c, 2), absl::CancelledError("context canceled"));
    });
    EXPECT_TRUE(testing::EventuallyParked("select", 1));
    EXPECT_NEAR(l.Tokens(), -2, 0.9);
    cancel();
    wg.Wait();
    EXPECT_NEAR(l.Tokens(), 0, 0.9);
  });
}

TEST_P(RateTest, WaitThatThrowsTakesNothing) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "the sanitizer's operator new";
  Run([] {
    Limiter l(0.001, 3);
    EXPECT_TRUE(l.AllowN(3));
    const auto [ctx, cancel] = context::WithCancel(context::Background());
    out_of_memory = true;
    EXPECT_ANY_THROW((void)l.WaitN(ctx, 2));
    out_of_memory = false;
    EXPECT_NEAR(l.Tokens(), 0, 0.9);
  });
}

TEST_P(RateTest, GoroutinesAndThreadsShareTheBucket) {
  Run([] {
    Limiter l(0, 1000);
    std::atomic<int> allowed = 0;
    const auto work = [&] {
      for (int i = 0; i < 500; i++) {
        if (l.Allow()) allowed++;
      }
    };
    testing::InThreadsAndGoroutines(2, 4, work);
    EXPECT_EQ(allowed, 1000);
  });
}

}  // namespace
}  // namespace gump
