// go(): its arguments, where it keeps them, its options, and its failures.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "absl/functional/any_invocable.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/diag/debugvars.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/counted.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;

class GoTest : public testing::WithGomaxprocs {
 protected:
  void TearDown() override { EXPECT_EQ(Counted::objects(), 0); }
  static bool NoneLeft() {
    return testing::Eventually([] { return Counted::objects() == 0; });
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(GoTest);

std::atomic<int> calls;
void Function() { calls++; }
int FunctionWithResult(int n, const std::string& s) {
  calls += n + static_cast<int>(s.size());
  return n;
}
struct Object {
  void Method(int n) { sum += n; }
  std::atomic<int> sum = 0;
};

TEST_P(GoTest, TakesAnythingThatCanBeInvoked) {
  Run([] {
    calls = 0;
    auto object = std::make_shared<Object>();
    go(Function);
    go(&Function);
    go(FunctionWithResult, 2, "three");
    go(std::function<void()>(Function));
    go(&Object::Method, object, 5);
    go(&Object::Method, object.get(), 6);
    go([](int&& n) { calls += ++n; }, 3);
    EXPECT_TRUE(testing::Eventually(
        [&] { return calls == 1 + 1 + 7 + 1 + 4 && object->sum == 11; }));
    EXPECT_TRUE(testing::Eventually([&] { return object.use_count() == 1; }));
  });
}

TEST_P(GoTest, TakesCallablesWithUnusualOperators) {
  Run([] {
    auto c = make_chan<int>();
    // Its operator() belongs to a private base class.
    go(absl::AnyInvocable<void()>([c] { c.Send(1); }));
    EXPECT_EQ(c.Recv(), 1);
    go([c](int n = 2) { c.Send(n); });
    EXPECT_EQ(c.Recv(), 2);
    time::AfterFunc(absl::ZeroDuration(), [c](int n = 3) { c.Send(n); });
    EXPECT_EQ(c.Recv(), 3);
  });
}

TEST_P(GoTest, CopiesItsArguments) {
  Run([] {
    std::string text = "before, and long enough for the heap";
    auto c = make_chan<std::string>();
    go([c](const std::string& s) { c.Send(s); }, text);
    text = "after";
    EXPECT_EQ(c.Recv(), "before, and long enough for the heap");
    int n = 1;
    sync::WaitGroup wg;
    wg.Add(1);
    go(
        [&wg](int& r) {
          r = 2;
          wg.Done();
        },
        std::ref(n));
    wg.Wait();
    EXPECT_EQ(n, 2);
  });
}

TEST_P(GoTest, TakesMoveOnlyClosuresAndArguments) {
  Run([] {
    auto c = make_chan<int>();
    go([c, p = std::make_unique<int>(1)]() mutable { c.Send(*p); });
    EXPECT_EQ(c.Recv(), 1);
    go([c](std::unique_ptr<int> p) { c.Send(*p); }, std::make_unique<int>(2));
    EXPECT_EQ(c.Recv(), 2);
    go([c, n = Counted(3)] { c.Send(n.n()); });
    EXPECT_EQ(c.Recv(), 3);
    EXPECT_TRUE(NoneLeft());
  });
}

template <size_t kSize>
void ClosureOf() {
  auto c = make_chan<int>();
  std::array<unsigned char, kSize> bytes;
  for (size_t i = 0; i < kSize; i++) bytes[i] = static_cast<unsigned char>(i);
  go([c, bytes, n = Counted(1)] {
    int wrong = n.full() ? 0 : 1;
    for (size_t i = 0; i < kSize; i++) {
      wrong += bytes[i] != static_cast<unsigned char>(i);
    }
    c.Send(wrong);
  });
  EXPECT_EQ(c.Recv(), 0) << kSize;
}

TEST_P(GoTest, TakesClosuresOfAnySize) {
  Run([] {
    ClosureOf<1>();
    ClosureOf<32>();
    ClosureOf<40>();  // with the other two captures: 64 bytes, the last to fit
    ClosureOf<41>();
    ClosureOf<1000>();
    ClosureOf<100000>();
    EXPECT_TRUE(NoneLeft());
  });
}

template <size_t kAlign>
void AlignedClosure() {
  struct alignas(kAlign) Aligned {
    int n = 7;
  };
  auto c = make_chan<bool>();
  go([c, a = Aligned()] {
    const Aligned* p = &a;
    asm volatile("" : "+r"(p));
    c.Send(reinterpret_cast<uintptr_t>(p) % kAlign == 0 && p->n == 7);
  });
  EXPECT_EQ(c.Recv(), true) << kAlign;
}

TEST_P(GoTest, TakesOverAlignedClosures) {
  Run([] {
    AlignedClosure<16>();
    AlignedClosure<32>();
    AlignedClosure<64>();
    AlignedClosure<4096>();
  });
}

// ThrowsWhen throws when it is copied, or when it is moved, for the n-th time.
struct ThrowsWhen {
  ThrowsWhen(int copies_left, int moves_left)
      : copies(copies_left), moves(moves_left) {}
  ThrowsWhen(const ThrowsWhen& o) : copies(o.copies - 1), moves(o.moves) {
    if (copies < 0) throw std::runtime_error("copy");
  }
  ThrowsWhen(ThrowsWhen&& o) : copies(o.copies), moves(o.moves - 1) {
    if (moves < 0) throw std::runtime_error("move");
  }
  void operator()() const {}
  int copies;
  int moves;
  std::shared_ptr<Counted> alive = std::make_shared<Counted>(1);
};

TEST_P(GoTest, ExceptionOfACopyOrMoveReachesTheCallerAndNothingLeaks) {
  Run([] {
    const int before = runtime::NumGoroutine();
    {
      ThrowsWhen f(0, 100);
      EXPECT_THROW(go(f), std::runtime_error);
      EXPECT_THROW(go([](const ThrowsWhen&) {}, f), std::runtime_error);
      EXPECT_THROW(go(GoOptions{.stack_size = 0, .name = "throws"}, f),
                   std::runtime_error);
      for (int moves = 0; moves < 6; moves++) {
        try {
          go(ThrowsWhen(100, moves));
        } catch (const std::runtime_error& e) {
          EXPECT_STREQ(e.what(), "move");
        }
      }
    }
    EXPECT_TRUE(NoneLeft());
    // Not "equal", because a goroutine of an earlier Run may end meanwhile.
    EXPECT_TRUE(
        testing::Eventually([&] { return runtime::NumGoroutine() <= before; }));
  });
}

// ---- Options

// UseStack recurses through that many bytes. Large stacks need large frames,
// because ThreadSanitizer counts at most 65,536 frames.
template <size_t kFrame>
__attribute__((noinline)) size_t UseStack(size_t bytes) {
  volatile char frame[kFrame];
  frame[0] = static_cast<char>(bytes);
  size_t n = kFrame;
  if (bytes > 2 * kFrame) n += UseStack<kFrame>(bytes - kFrame - 128);
  return n + (frame[0] == static_cast<char>(bytes) ? 0 : SIZE_MAX / 2);
}

TEST_P(GoTest, WithoutAGuardStrictIsAPanicThatNamesTheSysctl) {
  Run([] {
    rt::debug.stackguardStrict = 1;
    rt::stackSetGuardMode(rt::GuardMode::kNone);
    std::atomic<int> ended = 0;
    int started = 0;
    std::string text;
    // There is no panic until the first of them has begun, and found that it
    // cannot.
    EXPECT_TRUE(testing::Eventually([&] {
      text = testing::PanicText([&] {
        // A size for which there is no stack yet.
        go(GoOptions{.stack_size = 30 << 20, .name = {}}, [&] { ended++; });
        started++;
      });
      return text.find("vm.max_map_count") != std::string::npos;
    })) << text;
    EXPECT_EQ(ended, 0);
    rt::stackinit();  // looks again at the limits of the kernel
    go([&] { ended++; });
    EXPECT_TRUE(testing::Eventually([&] { return ended == started + 1; }))
        << "those that waited run as soon as they can";
    rt::debug.stackguardStrict = 0;  // goroutines that waited have read it
  });
}

// A goroutine that has not begun costs only its cell.
static_assert(sizeof(rt::G) <= 256);

TEST_P(GoTest, GoroutineHasNoStackUntilItFirstRuns) {
  if (GetParam() != 1) return;  // other Ps would begin it
  Run([] {
    constexpr int kQueued = 10'000;
    std::atomic<int> ran = 0;
    rt::M* mp = rt::acquirem();  // so no other goroutine runs
    for (int i = 0; i < kQueued; i++) go([&] { ran++; });
    struct Count {
      int queued = 0;
      int with_stack = 0;
    } count;
    rt::forEachG(
        [](rt::G* gp, void* arg) {
          auto* n = static_cast<Count*>(arg);
          if (gp->systemG || rt::readgstatus(gp) != rt::kGrunnable) return;
          n->queued++;
          n->with_stack += gp->stack.lo != 0;
        },
        &count);
    rt::releasem(mp);
    EXPECT_EQ(count.queued, kQueued);
    EXPECT_EQ(count.with_stack, 0);
    EXPECT_TRUE(testing::Eventually([&] { return ran == kQueued; }));
  });
}

TEST_P(GoTest, StackIsAtLeastAsLargeAsAsked) {
  Run([] {
    struct {
      size_t asked;
      size_t usable;
    } const kCases[] = {
        {0, 200 << 10},
        {1, 8 << 10},
        {64 << 10, 56 << 10},
        {size_t{1} << 20, 1000 << 10},
        {size_t{1} << 30, 512 << 20},
        {SIZE_MAX, 512 << 20},
    };
    for (const auto& k : kCases) {
      auto c = make_chan<size_t>();
      go(GoOptions{.stack_size = k.asked, .name = {}}, [c, &k] {
        c.Send(k.usable > (2 << 20) ? UseStack<65536>(k.usable)
                                    : UseStack<4096>(k.usable));
      });
      EXPECT_GE(c.Recv(), k.usable / 2);
    }
  });
}

TEST_P(GoTest, MaxStackLimitsTheStackSizeOption) {
  Run([] {
    const size_t old = debug::SetMaxStack(1 << 20);
    EXPECT_EQ(old, size_t{1} << 30);
    auto c = make_chan<size_t>();
    go(GoOptions{.stack_size = 1 << 30, .name = {}},
       [c] { c.Send(UseStack<4096>(900 << 10)); });
    EXPECT_GT(c.Recv(), 100u);
    EXPECT_EQ(debug::SetMaxStack(old), size_t{1} << 20);
  });
}

TEST_P(GoTest, NameIsCopiedAndShownInDumps) {
  Run([] {
    auto c = make_chan<int>();
    {
      std::string name = "the worker";
      go(GoOptions{.stack_size = 0, .name = name}, [c] { c.Recv(); });
      name = "something else";
    }
    EXPECT_TRUE(testing::Eventually([] {
      return runtime::Stack(true).find(
                 " [chan receive] {name: \"the worker\"}:\n") !=
             std::string::npos;
    }));
    c.Send(1);
    EXPECT_TRUE(testing::Eventually([] {
      return runtime::Stack(true).find("the worker") == std::string::npos;
    }));
  });
}

TEST_P(GoTest, LongNameIsCutBetweenCharacters) {
  Run([] {
    auto c = make_chan<int>();
    const std::string fits(45, 'n');  // two bytes are left
    for (const char* last : {"\u03a3!", "\u1234", "\U00045678"}) {
      go(GoOptions{.name = fits + last}, [c] { c.Recv(); });
    }
    const std::string header = "[chan receive] {name: ";
    std::string text;
    EXPECT_TRUE(testing::Eventually([&] {
      text = runtime::Stack(true);
      const size_t first = text.find(header + fits + "}:\n");
      return first != std::string::npos &&
             text.find(header + fits + "}:\n", first + 1) !=
                 std::string::npos &&
             text.find(header + '"' + fits + "\\u03a3\"}:\n") !=
                 std::string::npos;
    })) << text;
    for (int i = 0; i < 3; i++) c.Send(1);
  });
}

TEST_P(GoTest, OptionsTakeArguments) {
  Run([] {
    auto c = make_chan<int>();
    go(
        GoOptions{}, [c](int a, int b) { c.Send(a + b); }, 1, 2);
    EXPECT_EQ(c.Recv(), 3);
  });
}

// ---- Failures

class GoDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(GoDeathTest, NilFunctionIsFatal) {
  constexpr char kText[] = "^fatal error: go of nil func value\n";
  EXPECT_EXIT(gump::Run([] { go(std::function<void()>()); }),
              ::testing::ExitedWithCode(2), kText);
  EXPECT_EXIT(gump::Run([] { go(static_cast<void (*)()>(nullptr)); }),
              ::testing::ExitedWithCode(2), kText);
  EXPECT_EXIT(
      gump::Run([] { go(GoOptions{}, static_cast<void (*)()>(nullptr)); }),
      ::testing::ExitedWithCode(2), kText);
  EXPECT_EXIT(go(std::function<void()>()), ::testing::ExitedWithCode(2), kText)
      << "on a plain thread";
  EXPECT_EXIT(gump::Run(std::function<void()>()), ::testing::ExitedWithCode(2),
              kText);
}

}  // namespace
}  // namespace gump
