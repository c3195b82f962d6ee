#include "gump/scope.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/runtime/group.h"
#include "gump/runtime/thread.h"
#include "gump/sync/waitgroup.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::EventuallyParked;
using testing::PanicText;

// The texts that the header promises.
constexpr char kOutside[] = "scope: Go by a goroutine outside of the scope";
constexpr char kAfterWait[] = "scope: Go after Wait";
constexpr char kNotOwner[] =
    "scope: Wait by a goroutine that does not own the scope";
constexpr char kEmptyHandle[] = "scope: Join of an empty Handle";
constexpr char kGoexit[] = "scope: Join of a goroutine that called Goexit";

using ScopeTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(ScopeTest);

// ThrowText calls f and returns the text of its runtime_error, or "nothing".
template <class F>
std::string ThrowText(F&& f) {
  try {
    f();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "nothing";
}

// AwaitCancel returns when ctx is cancelled.
void AwaitCancel(const context::Context& ctx) { (void)ctx.Done().Recv(); }

static_assert(!std::is_copy_constructible_v<Scope> &&
              !std::is_move_constructible_v<Scope>);
static_assert(!std::is_copy_constructible_v<Scope::Handle<int>> &&
              std::is_nothrow_move_constructible_v<Scope::Handle<int>>);

// ---- Joining

TEST_P(ScopeTest, GoroutineRunsOnTheThreadOrInTheGroupThatTheOptionsName) {
  Run([] {
    runtime::Thread t;
    runtime::Group g("tenant");
    const pid_t there = t.Run([] { return gettid(); });
    Scope scope;
    auto on = scope.Go(GoOptions{.thread = &t}, [] { return gettid(); });
    auto in = scope.Go(GoOptions{.group = &g},
                       [] { return std::string(runtime::GroupName()); });
    EXPECT_EQ(on.Join(), there);
    EXPECT_EQ(in.Join(), "tenant");
    EXPECT_EQ(PanicText([&] {
                scope.Go(GoOptions{.thread = &t, .group = &g}, [] {});
              }),
              "runtime: goroutine of both a Thread and a group");
    EXPECT_TRUE(scope.Wait().ok());
  });
}

TEST_P(ScopeTest, WaitReturnsWhenAllHaveEnded) {
  Run([] {
    Scope scope;
    std::atomic<int> n = 0;
    for (int i = 0; i < 1000; i++) {
      scope.Go([&] {
        runtime::Gosched();
        n++;
      });
    }
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_EQ(n, 1000);
  });
}

TEST_P(ScopeTest, DestructorCancelsAndWaits) {
  Run([] {
    bool ended = false;
    {
      Scope scope;
      scope.Go([&](context::Context ctx) {
        AwaitCancel(ctx);
        ended = true;
      });
    }
    EXPECT_TRUE(ended);
  });
}

TEST_P(ScopeTest, ScopeWithoutGoroutinesIsOverAtOnce) {
  Run([] {
    Scope unused;
    Scope scope;
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_TRUE(scope.Wait().ok());
  });
}

TEST_P(ScopeTest, GoroutinesOfTheScopeStartMoreWhileWaitRuns) {
  Run([] {
    std::atomic<int> n = 0;
    Scope scope;
    std::function<void(int)> tree = [&](int depth) {
      n++;
      if (depth == 0) return;
      for (int i = 0; i < 3; i++) scope.Go([&, depth] { tree(depth - 1); });
    };
    scope.Go([&] { tree(5); });
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_EQ(n, 1 + 3 + 9 + 27 + 81 + 243);
  });
}

TEST_P(ScopeTest, ClosureIsGoneWhenWaitReturns) {
  struct Late {
    std::shared_ptr<int> held;
    explicit Late(std::shared_ptr<int> p) : held(std::move(p)) {}
    Late(Late&&) = default;
    ~Late() {
      if (held == nullptr) return;
      for (int i = 0; i < 20; i++) runtime::Gosched();
    }
  };
  Run([] {
    const auto p = std::make_shared<int>(1);
    char large[200] = {};
    {
      Scope scope;
      for (int i = 0; i < 20; i++) {
        scope.Go([late = Late(p), large] { (void)large; });
      }
      EXPECT_TRUE(scope.Wait().ok());
      EXPECT_EQ(p.use_count(), 1);
    }
    Scope scope;  // Join promises the same
    auto handle = scope.Go([late = Late(p)] {});
    handle.Join();
    EXPECT_EQ(p.use_count(), 1);
  });
}

TEST_P(ScopeTest, LocalValuesAreDestroyedBeforeTheGoroutineCountsAsEnded) {
  Run([] {
    static std::atomic<int> alive;
    struct Counted {
      Counted() { alive++; }
      ~Counted() {
        for (int i = 0; i < 20; i++) runtime::Gosched();
        alive--;
      }
    };
    static gls<Counted> local;
    Scope scope;
    for (int i = 0; i < 20; i++) scope.Go([] { (void)*local; });
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_EQ(alive, 0);
  });
}

TEST_P(ScopeTest, DestructorOfALocalValueMayStillCallGo) {
  Run([] {
    static std::atomic<int> ran;
    ran = 0;
    struct Starter {
      Scope* scope = nullptr;
      ~Starter() {
        if (scope != nullptr) scope->Go([] { ran++; });
      }
    };
    static gls<Starter> local;
    Scope scope;
    scope.Go([&] { local->scope = &scope; });
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_EQ(ran, 1);
  });
}

// ---- Handles

TEST_P(ScopeTest, JoinGivesTheResult) {
  Run([] {
    Scope scope;
    auto number = scope.Go([] { return 7; });
    auto text = scope.Go([] { return std::make_unique<std::string>("seven"); });
    auto nothing = scope.Go([] {});
    int x = 0;
    Scope::Handle<int&> reference = scope.Go([&]() -> int& { return x; });
    auto status = scope.Go([] { return absl::OkStatus(); });
    auto maybe = scope.Go([]() -> absl::StatusOr<int> { return 8; });
    EXPECT_EQ(number.Join(), 7);
    EXPECT_EQ(*text.Join(), "seven");
    nothing.Join();
    EXPECT_EQ(&reference.Join(), &x);
    EXPECT_TRUE(status.Join().ok());
    EXPECT_EQ(*maybe.Join(), 8);
  });
}

TEST_P(ScopeTest, JoinWaitsForItsGoroutineAlone) {
  Run([] {
    Scope scope;
    const chan<int> gate = make_chan<int>();
    scope.Go([](context::Context ctx) { AwaitCancel(ctx); });
    auto handle = scope.Go([&] { return *gate.Recv(); });
    go([&] {
      EXPECT_TRUE(EventuallyParked("Scope.Join", 1));
      gate.Send(5);
    });
    EXPECT_EQ(handle.Join(), 5);
    scope.Cancel();
    EXPECT_TRUE(scope.Wait().ok());
  });
}

TEST_P(ScopeTest, HandleMayOutliveItsScope) {
  Run([] {
    Scope::Handle<std::string> handle;
    {
      Scope scope;
      handle = scope.Go([] { return std::string("late"); });
      scope.Go([] { return std::string("dropped"); });
    }
    EXPECT_EQ(handle.Join(), "late");
  });
}

TEST_P(ScopeTest, JoinEmptiesTheHandle) {
  Run([] {
    Scope scope;
    auto handle = scope.Go([] { return 1; });
    Scope::Handle<int> moved = std::move(handle);
    EXPECT_EQ(moved.Join(), 1);
    EXPECT_EQ(PanicText([&] { moved.Join(); }), kEmptyHandle);
    EXPECT_EQ(PanicText([&] { handle.Join(); }), kEmptyHandle);
    Scope::Handle<void> never;
    EXPECT_EQ(PanicText([&] { never.Join(); }), kEmptyHandle);
  });
}

TEST_P(ScopeTest, AnotherGoroutineOrThreadMayJoin) {
  Run([] {
    Scope scope;
    const chan<int> gate = make_chan<int>();
    auto first = scope.Go([&] { return *gate.Recv(); });
    auto second = scope.Go([&] { return *gate.Recv(); });
    std::atomic<int> sum = 0;
    sync::WaitGroup others;
    others.Go([&] { sum += first.Join(); });
    std::thread t = testing::KnownThread([&] { sum += second.Join(); });
    EXPECT_TRUE(EventuallyParked("Scope.Join", 2));
    gate.Send(1);
    gate.Send(2);
    others.Wait();
    blocking([&] { t.join(); });
    EXPECT_EQ(sum, 3);
  });
}

// ---- Failures

TEST_P(ScopeTest, FirstStatusThatIsNotOkCancelsAndIsReturnedAgain) {
  Run([] {
    Scope scope;
    scope.Go([](context::Context ctx) {
      AwaitCancel(ctx);
      EXPECT_EQ(context::Cause(ctx), absl::DataLossError("first"));
      return absl::InternalError("second");
    });
    auto handle = scope.Go([] { return absl::DataLossError("first"); });
    EXPECT_EQ(scope.Wait(), absl::DataLossError("first"));
    EXPECT_EQ(scope.Wait(), absl::DataLossError("first"));
    EXPECT_EQ(handle.Join(), absl::DataLossError("first"));
  });
}

TEST_P(ScopeTest, StatusOrThatIsNotOkIsAFailure) {
  Run([] {
    Scope scope;
    auto handle = scope.Go([]() -> absl::StatusOr<std::unique_ptr<int>> {
      return absl::NotFoundError("page");
    });
    EXPECT_EQ(scope.Wait(), absl::NotFoundError("page"));
    EXPECT_EQ(handle.Join().status(), absl::NotFoundError("page"));
  });
}

TEST_P(ScopeTest, FirstExceptionCancelsAndIsRethrownByWait) {
  Run([] {
    Scope scope;
    scope.Go([](context::Context ctx) {
      AwaitCancel(ctx);
      EXPECT_EQ(context::Cause(ctx), absl::AbortedError("first"));
      throw std::runtime_error("second");
    });
    scope.Go([] { throw std::runtime_error("first"); });
    EXPECT_EQ(ThrowText([&] { (void)scope.Wait(); }), "first");
    EXPECT_EQ(ThrowText([&] { (void)scope.Wait(); }), "first");
  });  // the destructor does not throw it a third time
}

TEST_P(ScopeTest, ExceptionWinsOverAStatusBesideIt) {
  Run([] {
    Scope scope;
    auto status = scope.Go([] { return absl::InternalError("status"); });
    (void)status.Join();
    scope.Go([] { panic("panic"); });
    EXPECT_EQ(PanicText([&] { (void)scope.Wait(); }), "panic");
  });
}

TEST_P(ScopeTest, ExceptionOfAnyTypePasses) {
  Run([] {
    Scope scope;
    auto handle = scope.Go([]() -> int { throw 7; });
    EXPECT_THROW(handle.Join(), int);
    EXPECT_EQ(context::Cause(scope.Context()), absl::AbortedError("exception"));
    EXPECT_THROW((void)scope.Wait(), int);
  });
}

TEST_P(ScopeTest, DestructorRethrowsWithoutWait) {
  Run([] {
    EXPECT_EQ(ThrowText([] {
                Scope scope;
                scope.Go([] { throw std::runtime_error("child"); });
              }),
              "child");
  });
}

TEST_P(ScopeTest, DestructorKeepsQuietWhileAnExceptionLeavesTheBlock) {
  Run([] {
    bool cancelled = false;
    EXPECT_EQ(ThrowText([&] {
                Scope scope;
                scope.Go([&](context::Context ctx) {
                  AwaitCancel(ctx);
                  cancelled = true;
                  throw std::runtime_error("child");
                });
                throw std::runtime_error("owner");
              }),
              "owner");
    EXPECT_TRUE(cancelled);
  });
}

TEST_P(ScopeTest, ScopeInsideADestructorOfAnUnwindingRethrowsThere) {
  struct Cleaner {
    std::string* text;
    ~Cleaner() {
      *text = ThrowText([] {
        Scope scope;
        scope.Go([] { throw std::runtime_error("cleaner"); });
      });
    }
  };
  Run([] {
    std::string text;
    EXPECT_EQ(ThrowText([&] {
                const Cleaner c{&text};
                throw std::runtime_error("owner");
              }),
              "owner");
    EXPECT_EQ(text, "cleaner");
  });
}

TEST_P(ScopeTest, JoinRethrowsAndWaitRethrowsAgain) {
  Run([] {
    Scope scope;
    auto handle = scope.Go([]() -> int { throw std::runtime_error("x"); });
    EXPECT_EQ(ThrowText([&] { handle.Join(); }), "x");
    EXPECT_EQ(ThrowText([&] { (void)scope.Wait(); }), "x");
  });
}

TEST_P(ScopeTest, ExceptionOfAnInnerScopePassesToTheOuterOwner) {
  Run([] {
    EXPECT_EQ(ThrowText([] {
                Scope outer;
                outer.Go([] {
                  Scope inner;
                  inner.Go([] { throw std::runtime_error("deep"); });
                  (void)inner.Wait();
                });
                (void)outer.Wait();
              }),
              "deep");
  });
}

// ---- Goexit

TEST_P(ScopeTest, GoexitOfAFunctionEndsItsGoroutineAndIsNoFailure) {
  Run([] {
    Scope scope;
    const auto p = std::make_shared<int>(1);
    auto none = scope.Go([held = p] { runtime::Goexit(); });
    auto number = scope.Go([held = p]() -> int { runtime::Goexit(); });
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_EQ(p.use_count(), 1);
    none.Join();
    EXPECT_EQ(PanicText([&] { number.Join(); }), kGoexit);
  });
}

TEST_P(ScopeTest, GoexitOfTheOwnerCancelsAndWaits) {
  Run([] {
    bool ended = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      Scope scope;
      scope.Go([&](context::Context ctx) {
        AwaitCancel(ctx);
        ended = true;
        throw std::runtime_error("lost");
      });
      runtime::Goexit();
    });
    wg.Wait();
    EXPECT_TRUE(ended);
  });
}

TEST_P(ScopeTest, ScopeInsideADestructorOfAGoexitRethrowsThere) {
  Run([] {
    std::string text;
    sync::WaitGroup wg;
    wg.Go([&] {
      defer _{[&] {
        text = ThrowText([] {
          Scope scope;
          scope.Go([] { throw std::runtime_error("cleaner"); });
        });
      }};
      runtime::Goexit();
    });
    wg.Wait();
    EXPECT_EQ(text, "cleaner");
  });
}

// ---- Cancellation

TEST_P(ScopeTest, CancelMayComeFromOutside) {
  Run([] {
    Scope scope;
    std::atomic<int> ended = 0;
    for (int i = 0; i < 10; i++) {
      scope.Go([&](context::Context ctx) {
        AwaitCancel(ctx);
        ended++;
      });
    }
    std::thread t = testing::KnownThread([&] { scope.Cancel(); });
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_EQ(ended, 10);
    blocking([&] { t.join(); });
  });
}

TEST_P(ScopeTest, ContextIsBelowTheParentAndEndsWithTheScope) {
  const context::Key<int> key;
  Run([&] {
    auto [parent, cancel] =
        context::WithCancel(context::WithValue(context::Background(), key, 7));
    context::Context ctx;
    {
      Scope scope(parent);
      ctx = scope.Context();
      EXPECT_EQ(*ctx.Value(key), 7);
      EXPECT_EQ(ctx, scope.Context());
      EXPECT_TRUE(ctx.Err().ok());
      EXPECT_TRUE(scope.Wait().ok());
      EXPECT_EQ(ctx.Err(), absl::CancelledError("context canceled"));
    }
    Scope scope(parent);
    cancel();
    auto handle = scope.Go([](context::Context c) { return c.Err(); });
    EXPECT_EQ(handle.Join(), absl::CancelledError("context canceled"));
    EXPECT_EQ(scope.Wait(), absl::CancelledError("context canceled"));
  });
}

TEST_P(ScopeTest, ContextThatIsMadeAfterCancelIsCancelled) {
  Run([] {
    Scope scope;
    scope.Go([] { return absl::DataLossError("x"); }).Join().IgnoreError();
    EXPECT_EQ(context::Cause(scope.Context()), absl::DataLossError("x"));
    scope.Cancel();  // later than the failure: changes nothing
    EXPECT_EQ(context::Cause(scope.Context()), absl::DataLossError("x"));
  });
}

TEST_P(ScopeTest, FunctionThatTakesAContextGetsTheScopes) {
  Run([] {
    Scope scope;
    const context::Context ctx = scope.Context();
    scope.Go([&](context::Context c) { EXPECT_EQ(c, ctx); });
    scope.Go([&](const context::Context& c) { EXPECT_EQ(c, ctx); });
    EXPECT_TRUE(scope.Wait().ok());
  });
}

// ---- Who may do what

TEST_P(ScopeTest, GoAfterWaitPanics) {
  Run([] {
    Scope scope;
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_EQ(PanicText([&] { scope.Go([] {}); }), kAfterWait);
  });
}

TEST_P(ScopeTest, GoByAGoroutineOrThreadOutsidePanics) {
  Run([] {
    Scope scope;
    sync::WaitGroup others;
    others.Go(
        [&] { EXPECT_EQ(PanicText([&] { scope.Go([] {}); }), kOutside); });
    others.Wait();
    std::thread t(
        [&] { EXPECT_EQ(PanicText([&] { scope.Go([] {}); }), kOutside); });
    blocking([&] { t.join(); });
    // What a goroutine of the scope starts by other means is outside, too.
    scope.Go([&] {
      sync::WaitGroup wg;
      wg.Go([&] { EXPECT_EQ(PanicText([&] { scope.Go([] {}); }), kOutside); });
      wg.Wait();
    });
    EXPECT_TRUE(scope.Wait().ok());
  });
}

TEST_P(ScopeTest, GoroutineOfAnOuterScopeIsOutsideOfTheInnerOne) {
  Run([] {
    Scope outer;
    outer.Go([&] {
      Scope inner;
      outer
          .Go([&] { EXPECT_EQ(PanicText([&] { inner.Go([] {}); }), kOutside); })
          .Join();
    });
    EXPECT_TRUE(outer.Wait().ok());
  });
}

TEST_P(ScopeTest, GoroutineOfAnInnerScopeMayCallGoOfTheOuterOnes) {
  Run([] {
    std::atomic<int> n = 0;
    Scope outer;
    {
      Scope inside;  // of the same owner
      inside.Go([&] {
        Scope deeper;
        deeper.Go([&] {
          outer.Go([&] { n++; });
          inside.Go([&] { n++; });
        });
        (void)deeper.Wait();
      });
      EXPECT_TRUE(inside.Wait().ok());
    }
    EXPECT_TRUE(outer.Wait().ok());
    EXPECT_EQ(n, 2);
  });
}

TEST_P(ScopeTest, GoOfAnOuterScopeAfterItsWaitPanicsInAnInnerOne) {
  Run([] {
    Scope outer;
    Scope inner;
    const chan<void> over = make_chan<void>();
    inner.Go([&] {
      (void)over.Recv();
      EXPECT_EQ(PanicText([&] { outer.Go([] {}); }), kAfterWait);
    });
    EXPECT_TRUE(outer.Wait().ok());
    over.Close();
    EXPECT_TRUE(inner.Wait().ok());
  });
}

TEST_P(ScopeTest, WaitByAnyOtherThanTheOwnerPanics) {
  Run([] {
    Scope scope;
    scope.Go(
        [&] { EXPECT_EQ(PanicText([&] { (void)scope.Wait(); }), kNotOwner); });
    sync::WaitGroup others;
    others.Go(
        [&] { EXPECT_EQ(PanicText([&] { (void)scope.Wait(); }), kNotOwner); });
    others.Wait();
    EXPECT_TRUE(scope.Wait().ok());
  });
}

TEST_P(ScopeTest, GoThatPanicsCountsNothing) {
  struct Failing {
    Failing() = default;
    Failing(const Failing&) { throw std::bad_alloc(); }
    void operator()() {}
  };
  Run([] {
    Scope scope;
    const Failing f;
    EXPECT_THROW(scope.Go(f), std::bad_alloc);
    EXPECT_TRUE(scope.Wait().ok());
  });
}

TEST_P(ScopeTest, OptionsNameTheGoroutine) {
  Run([] {
    Scope scope;
    scope.Go(GoOptions{.name = "reader"}, [] {
      EXPECT_NE(runtime::Stack(false).find("{name: reader}"),
                std::string::npos);
    });
    EXPECT_TRUE(scope.Wait().ok());
  });
}

TEST(ScopeThreadTest, PlainThreadMayOwnAScope) {
  std::atomic<int> n = 0;
  std::thread([&] {
    Scope scope;
    for (int i = 0; i < 10; i++) scope.Go([&] { n++; });
    auto handle = scope.Go([] { return 7; });
    EXPECT_EQ(handle.Join(), 7);
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_EQ(n, 10);
    scope.Cancel();
  }).join();
}

// A scope of m0's thread that is open across a Run.
TEST(ScopeThreadTest, ScopeMayBeOpenAroundRun) {
  Scope scope;
  gump::Run([&] { EXPECT_EQ(PanicText([&] { scope.Go([] {}); }), kOutside); });
  EXPECT_TRUE(scope.Wait().ok());
}

// ---- Bubbles, and the end of main

TEST_P(ScopeTest, WaitAndJoinInABubbleAreDurable) {
  Run([] {
    synctest::Run([] {
      Scope scope(context::Background(), "bubble");
      auto handle = scope.Go([](context::Context ctx) {
        auto [c, cancel] = context::WithTimeout(ctx, absl::Hours(24));
        AwaitCancel(c);
        return c.Err();
      });
      EXPECT_EQ(handle.Join(),
                absl::DeadlineExceededError("context deadline exceeded"));
      Scope sleepers;
      sleepers.Go([] { time::Sleep(absl::Hours(1)); });
      EXPECT_TRUE(sleepers.Wait().ok());
      EXPECT_EQ(scope.Wait(),
                absl::DeadlineExceededError("context deadline exceeded"));
    });
  });
}

TEST_P(ScopeTest, MainMayReturnWhileOtherScopesAreOpen) {
  static std::atomic<bool> ended;
  ended = false;
  const chan<void> go_on = make_chan<void>();
  Run([&] {
    go([&] {
      Scope scope(context::Background(), "left over");
      scope.Go([&] { (void)go_on.Recv(); });
      (void)scope.Wait();
      ended = true;
    });
    EXPECT_TRUE(EventuallyParked("Scope.Wait", 1));
  });
  Run([&] {  // they go on
    go_on.Close();
    EXPECT_TRUE(testing::Eventually([] { return ended.load(); }));
  });
}

}  // namespace
}  // namespace gump
