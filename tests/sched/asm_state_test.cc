// The state that belongs to a goroutine and must travel with it from thread to
// thread: errno, exceptions in flight, floating-point modes, an aligned stack.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/testing/errno_access.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::ErrnoAddress;
using testing::GetErrno;
using testing::SetErrno;

class SchedStateTest : public testing::WithGomaxprocs {
 protected:
  // Together runs f(i) in n goroutines at once.
  template <class F>
  static void Together(int n, F f) {
    sync::WaitGroup wg;
    for (int i = 0; i < n; i++) {
      wg.Go([&f, i] { f(i); });
    }
    wg.Wait();
  }
  // Park parks the goroutine, which may come back on any thread.
  static void Park() {
    auto c = make_chan<int>();
    go([c] { c.Send(1); });
    c.Recv();
    runtime::Gosched();
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(SchedStateTest);

// ---- errno

TEST_P(SchedStateTest, ErrnoTravelsWithTheGoroutine) {
  Run([] {
    Together(16, [](int i) {
      for (int k = 0; k < 200; k++) {
        SetErrno(1000 * i + k);
        if (k % 20 == 0) {
          Park();
        } else {
          runtime::Gosched();
        }
        EXPECT_EQ(GetErrno(), 1000 * i + k);
        EXPECT_EQ(*ErrnoAddress(), 1000 * i + k);
      }
    });
  });
}

TEST_P(SchedStateTest, ErrnoSurvivesABlockingCall) {
  Run([] {
    Together(8, [](int i) {
      for (int k = 0; k < 50; k++) {
        blocking([i] { SetErrno(i + 1); });
        EXPECT_EQ(GetErrno(), i + 1);
      }
    });
  });
}

TEST_P(SchedStateTest, ErrnoOfAFreshGoroutineIsZero) {
  Run([] {
    SetErrno(99);
    Together(50, [](int) {
      EXPECT_EQ(GetErrno(), 0);
      SetErrno(5);
    });
  });
}

// ---- Exceptions

TEST_P(SchedStateTest, HandlerKeepsItsExceptionAcrossAPark) {
  Run([] {
    Together(16, [](int i) {
      for (int k = 0; k < 30; k++) {
        const std::string text = std::to_string(1000 * i + k);
        try {
          throw std::runtime_error(text);
        } catch (const std::exception& e) {
          Park();
          EXPECT_EQ(e.what(), text);
          try {
            throw;  // the current one, on any thread
          } catch (const std::runtime_error& again) {
            runtime::Gosched();
            EXPECT_EQ(again.what(), text);
          }
          EXPECT_NE(std::current_exception(), nullptr);
        }
        EXPECT_EQ(std::current_exception(), nullptr);
      }
    });
  });
}

// ParksInUnwinding parks while an exception is on its way, and counts those in
// flight.
struct ParksInUnwinding {
  explicit ParksInUnwinding(int n) : expected(n) {}
  ~ParksInUnwinding() {
    EXPECT_EQ(std::uncaught_exceptions(), expected);
    auto c = make_chan<int>();
    go([c] {
      EXPECT_EQ(std::uncaught_exceptions(), 0);
      c.Send(1);
    });
    c.Recv();
    runtime::Gosched();
    EXPECT_EQ(std::uncaught_exceptions(), expected);
  }
  int expected;
};

// ThrowsInUnwinding throws and catches another exception while one is on its
// way.
struct ThrowsInUnwinding {
  ~ThrowsInUnwinding() {
    EXPECT_EQ(std::uncaught_exceptions(), 1);
    try {
      ParksInUnwinding p(2);
      throw 2;
    } catch (int n) {
      EXPECT_EQ(n, 2);
      EXPECT_EQ(std::uncaught_exceptions(), 1);
      runtime::Gosched();
    }
    EXPECT_EQ(std::uncaught_exceptions(), 1);
  }
};

TEST_P(SchedStateTest, UnwindingMayPark) {
  Run([] {
    Together(16, [](int) {
      for (int k = 0; k < 20; k++) {
        EXPECT_EQ(std::uncaught_exceptions(), 0);
        try {
          ParksInUnwinding p(1);
          throw 1;
        } catch (int n) {
          EXPECT_EQ(n, 1);
        }
        try {
          ThrowsInUnwinding t;
          throw 3L;
        } catch (long n) {
          EXPECT_EQ(n, 3);
        }
        EXPECT_EQ(std::uncaught_exceptions(), 0);
      }
    });
  });
}

TEST_P(SchedStateTest, NestedHandlersRethrowTheirOwn) {
  Run([] {
    Together(16, [](int i) {
      for (int k = 0; k < 20; k++) {
        try {
          try {
            throw i;
          } catch (int) {
            runtime::Gosched();
            try {
              try {
                throw static_cast<long>(k);
              } catch (long) {
                Park();
                throw;
              }
            } catch (long n) {
              EXPECT_EQ(n, k);
              runtime::Gosched();
            }
            throw;  // the outer one again
          }
        } catch (int n) {
          EXPECT_EQ(n, i);
        }
      }
    });
  });
}

TEST_P(SchedStateTest, ExceptionsTravelBetweenGoroutines) {
  Run([] {
    auto c = make_chan<std::exception_ptr>();
    for (int i = 0; i < 50; i++) {
      go([c, i] {
        // There is one owner at a time, and the last one destroys the
        // exception. The count of owners is in a library that ThreadSanitizer
        // does not see.
        std::exception_ptr e;
        try {
          throw i;
        } catch (...) {
          e = std::current_exception();
        }
        c.Send(std::move(e));
      });
    }
    int sum = 0;
    for (int i = 0; i < 50; i++) {
      try {
        std::rethrow_exception(*c.Recv());
      } catch (int n) {
        sum += n;
      }
    }
    EXPECT_EQ(sum, 49 * 50 / 2);
  });
}

TEST_P(SchedStateTest, VeryManyHandlersMayParkAtOnce) {
  Run([] {
    constexpr int kN =
        testing::kManyGoroutines < 10000 ? testing::kManyGoroutines : 10000;
    auto gate = make_chan<void>();
    sync::WaitGroup in;
    sync::WaitGroup out;
    std::atomic<int> right = 0;
    in.Add(kN);
    for (int i = 0; i < kN; i++) {
      out.Go([&, gate, i] {
        try {
          throw i;
        } catch (int n) {
          in.Done();
          gate.Recv();
          if (n == i && std::current_exception() != nullptr) right++;
        }
      });
    }
    in.Wait();
    gate.Close();
    out.Wait();
    EXPECT_EQ(right, kN);
  });
}

// ---- Floating point

#if defined(__x86_64__)
uint32_t Mxcsr() {
  uint32_t v;
  asm volatile("stmxcsr %0" : "=m"(v));
  return v & ~0x3fu;  // without the flags, which belong to the reader
}
void SetMxcsr(uint32_t v) { asm volatile("ldmxcsr %0" ::"m"(v)); }
uint16_t X87() {
  uint16_t v;
  asm volatile("fnstcw %0" : "=m"(v));
  return v;
}
void SetX87(uint16_t v) { asm volatile("fldcw %0" ::"m"(v)); }
constexpr uint32_t kMxcsrDefault = 0x1f80;
constexpr uint16_t kX87Default = 0x37f;

TEST_P(SchedStateTest, ControlWordsTravelWithTheGoroutine) {
  Run([] {
    Together(16, [](int i) {
      EXPECT_EQ(Mxcsr(), kMxcsrDefault);
      EXPECT_EQ(X87(), kX87Default);
      // The rounding mode depends on i. Some also have flush-to-zero or 53-bit
      // precision.
      const auto rounding = static_cast<uint32_t>(i % 4);
      const uint32_t mxcsr =
          kMxcsrDefault | rounding << 13 | (i % 3 == 0 ? 0x8000u : 0);
      const auto x87 = static_cast<uint16_t>(
          (i % 5 == 0 ? 0x27f : kX87Default) | rounding << 10);
      SetMxcsr(mxcsr);
      SetX87(x87);
      for (int k = 0; k < 100; k++) {
        if (k % 20 == 0) {
          Park();
        } else {
          runtime::Gosched();
        }
        EXPECT_EQ(Mxcsr(), mxcsr);
        EXPECT_EQ(X87(), x87);
      }
    });
    EXPECT_EQ(Mxcsr(), kMxcsrDefault);
    EXPECT_EQ(X87(), kX87Default);
  });
}

// Flush-to-zero, denormals-are-zero, rounding towards zero.
constexpr uint32_t kMxcsr = kMxcsrDefault | 0xe040;
constexpr uint16_t kX87 = kX87Default | 0xc00;

TEST_P(SchedStateTest, GoroutinesBeginWithTheControlWordsOfTheThreadOfRun) {
  SetMxcsr(kMxcsr);
  SetX87(kX87);
  Run([] {
    EXPECT_EQ(Mxcsr(), kMxcsr);
    EXPECT_EQ(X87(), kX87);
    // The words of the goroutine that starts others do not matter, wherever
    // those begin: after a park on g0, or by a switch without g0.
    SetMxcsr(kMxcsrDefault | 0x2000);
    SetX87(kX87Default | 0x400);
    for (int k = 0; k < 10; k++) {
      Together(16, [](int) {
        EXPECT_EQ(Mxcsr(), kMxcsr);
        EXPECT_EQ(X87(), kX87);
        SetMxcsr(kMxcsrDefault | 0x4000);
        SetX87(kX87Default | 0x800);
        Park();
        EXPECT_EQ(Mxcsr(), kMxcsrDefault | 0x4000);
        EXPECT_EQ(X87(), kX87Default | 0x800);
      });
    }
    EXPECT_EQ(Mxcsr(), kMxcsrDefault | 0x2000);
    EXPECT_EQ(X87(), kX87Default | 0x400);
  });
  EXPECT_EQ(Mxcsr(), kMxcsr);
  EXPECT_EQ(X87(), kX87);
  SetMxcsr(kMxcsrDefault);
  SetX87(kX87Default);
}

TEST_P(SchedStateTest, ForeignThreadKeepsItsControlWords) {
  Run([] {
    const auto there = make_chan<int>();
    const auto back = make_chan<int>();
    std::thread plain([=] {
      SetMxcsr(kMxcsrDefault | 0x6000);
      SetX87(kX87Default | 0xc00);
      for (int i = 0; i < 100; i++) {
        go([there] {
          EXPECT_EQ(Mxcsr(), kMxcsrDefault);
          there.Send(1);
        });
        (void)there.Recv();
      }
      EXPECT_EQ(Mxcsr(), kMxcsrDefault | 0x6000);
      EXPECT_EQ(X87(), kX87Default | 0xc00);
      back.Send(1);
    });
    (void)back.Recv();
    plain.join();
  });
}

TEST_P(SchedStateTest, ThreadOfRunGetsItsControlWordsBack) {
  SetMxcsr(kMxcsrDefault | 0x6000);
  SetX87(kX87Default | 0xc00);
  Run([] {
    SetMxcsr(kMxcsrDefault | 0x2000);
    SetX87(kX87Default);
    Park();
  });
  EXPECT_EQ(Mxcsr(), kMxcsrDefault | 0x6000);
  EXPECT_EQ(X87(), kX87Default | 0xc00);
  SetMxcsr(kMxcsrDefault);
  SetX87(kX87Default);
}
#endif

TEST_P(SchedStateTest, RoundingModeIsTheGoroutinesOwn) {
  Run([] {
    constexpr int kModes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD,
                              FE_TOWARDZERO};
    Together(16, [&kModes](int i) {
      EXPECT_EQ(fegetround(), FE_TONEAREST);
      fesetround(kModes[i % 4]);
      for (int k = 0; k < 100; k++) {
        runtime::Gosched();
        EXPECT_EQ(fegetround(), kModes[i % 4]);
      }
    });
    EXPECT_EQ(fegetround(), FE_TONEAREST);
  });
}

TEST_P(SchedStateTest, GoroutinesBeginWithTheRoundingModeOfTheThreadOfRun) {
  fesetround(FE_UPWARD);
  Run([] {
    EXPECT_EQ(fegetround(), FE_UPWARD);
    fesetround(FE_TOWARDZERO);
    Together(16, [](int) { EXPECT_EQ(fegetround(), FE_UPWARD); });
  });
  EXPECT_EQ(fegetround(), FE_UPWARD);
  fesetround(FE_TONEAREST);
  Run([] { EXPECT_EQ(fegetround(), FE_TONEAREST); });
}

// Preemption in place interrupts a computation in the middle.
// A goroutine that has not begun takes over the stack of the one that ends
// before it, without a switch.
TEST(SchedStateFollowTest, NextGoroutineOnTheStackBeginsAfresh) {
  testing::RunWith(1, [] {
    const int before = std::fegetround();
    std::vector<uintptr_t> frames;
    sync::WaitGroup wg;
    for (int i = 0; i < 100; i++) {
      wg.Go([&] {
        EXPECT_EQ(GetErrno(), 0);
        EXPECT_EQ(std::fegetround(), before);
        frames.push_back(
            reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
        SetErrno(EDOM);
        std::fesetround(FE_UPWARD);
      });
    }
    wg.Wait();
    EXPECT_EQ(std::fegetround(), before);
    // The first and the last may have been preceded by another goroutine.
    EXPECT_EQ(std::count(frames.begin(), frames.end(), frames[1]), 100);
  });
}

// One that has begun gets its own stack and state back.
TEST_P(SchedStateTest, GoroutineThatEndsIsFollowedByOneThatHasBegun) {
  Run([] {
    for (int i = 0; i < 1000; i++) {
      SetErrno(i + 1);
      std::fesetround(FE_DOWNWARD);
      auto c = make_chan<int>();
      go([c, i] {
        c.Send(i);
        SetErrno(EDOM);
        std::fesetround(FE_UPWARD);
      });
      EXPECT_EQ(*c.Recv(), i);
      runtime::Gosched();
      EXPECT_EQ(GetErrno(), i + 1);
      EXPECT_EQ(std::fegetround(), FE_DOWNWARD);
    }
    std::fesetround(FE_TONEAREST);
  });
}

TEST_P(SchedStateTest, PreemptedGoroutineKeepsItsRoundingMode) {
  Run([] {
    constexpr int kModes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD,
                              FE_TOWARDZERO};
    std::atomic<int> begun = 0;
    Together(12, [&](int i) {
      fesetround(kModes[i % 4]);
      // All have had a slice, so all but the last have been preempted.
      begun++;
      while (begun < 12) {
      }
      EXPECT_EQ(fegetround(), kModes[i % 4]);
    });
  });
}

// ---- Stack alignment

bool AlignedTo(const void* p, uintptr_t a) {
  asm volatile("" : "+r"(p));  // the compiler must not know
  return reinterpret_cast<uintptr_t>(p) % a == 0;
}

__attribute__((noinline)) bool NestedAlignment(int depth) {
  alignas(64) volatile char line[64];
  alignas(16) volatile char half[16];
  line[0] = static_cast<char>(depth);
  half[0] = static_cast<char>(depth);
  bool ok = AlignedTo(const_cast<char*>(line), 64) &&
            AlignedTo(const_cast<char*>(half), 16) &&
            AlignedTo(__builtin_frame_address(0), 16);
  return ok && (depth == 0 || NestedAlignment(depth - 1)) &&
         line[0] == static_cast<char>(depth);
}

TEST_P(SchedStateTest, StacksAreAlignedAtEntryAndBelow) {
  Run([] {
    // Stacks are coloured: many of them, alive at the same time.
    Together(100, [](int i) {
      EXPECT_TRUE(AlignedTo(__builtin_frame_address(0), 16));
      EXPECT_TRUE(NestedAlignment(i % 10));
      runtime::Gosched();
      EXPECT_TRUE(NestedAlignment(3));
    });
  });
}

}  // namespace
}  // namespace gump
