// Goroutines that wait while they are on a stack of the program's own, for
// example in a coroutine that is made with ucontext.
#include <gtest/gtest.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

ucontext_t self;
ucontext_t caller;
alignas(16) char stack[256 << 10];

// OnOtherStack calls f on a stack that is not the goroutine's.
void OnOtherStack(void (*f)()) {
  if (getcontext(&self) != 0) std::abort();
  self.uc_stack.ss_sp = stack;
  self.uc_stack.ss_size = sizeof(stack);
  self.uc_link = &caller;
  makecontext(&self, f, 0);
  if (swapcontext(&caller, &self) != 0) std::abort();
}

// WaitsOnOtherStack calls OnOtherStack(f) while another goroutine could run
// instead.
void WaitsOnOtherStack(int gomaxprocs, void (*f)()) {
  testing::RunWith(gomaxprocs, [f] {
    sync::WaitGroup wg;
    wg.Go([] {
      for (int i = 0; i < 1000; i++) runtime::Gosched();
    });
    runtime::Gosched();
    OnOtherStack(f);
    wg.Wait();
  });
  std::_Exit(0);
}

class OtherStackDeathTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void SetUp() override {
    if (rt::kSanitizerBuild) GTEST_SKIP() << "they do not know that stack";
  }
};

constexpr const char kText[] =
    "^fatal error: park: sp outside of the goroutine's stack\n";

TEST_P(OtherStackDeathTest, YieldIsFatal) {
  EXPECT_EXIT(WaitsOnOtherStack(
                  GetParam(), +[] { runtime::Gosched(); }),
              ::testing::ExitedWithCode(2), kText);
}

TEST_P(OtherStackDeathTest, ReceiveIsFatal) {
  EXPECT_EXIT(WaitsOnOtherStack(
                  GetParam(), +[] { make_chan<int>().Recv(); }),
              ::testing::ExitedWithCode(2), kText);
}

TEST_P(OtherStackDeathTest, OperationThatDoesNotWaitIsNotFatal) {
  EXPECT_EXIT(WaitsOnOtherStack(
                  GetParam(), +[] { make_chan<int>(1).Send(1); }),
              ::testing::ExitedWithCode(0), "^$");
}

TEST_P(OtherStackDeathTest, ReclamationCycleDoesNotYield) {
  EXPECT_EXIT(WaitsOnOtherStack(
                  GetParam(), +[] { runtime::GC(); }),
              ::testing::ExitedWithCode(0), "^$");
}

// The goroutine has had its turn, and others wait. It must not yield at an
// entry, because only a signal may preempt it there.
TEST_P(OtherStackDeathTest, RequestToYieldIsIgnoredAtAnEntry) {
  EXPECT_EXIT(WaitsOnOtherStack(
                  GetParam(),
                  +[] {
                    rt::getg()->preempt.store(true, rt::relaxed);
                    make_chan<int>(1).Send(1);
                  }),
              ::testing::ExitedWithCode(0), "^$");
}

// ---- Calls that block -------------------------------------------------------

// Hog is a goroutine that takes the P of its maker while the maker is in a
// call. It keeps the P until the maker is back and waits for a P.
class Hog {
 public:
  explicit Hog(sync::WaitGroup* wg) {
    latest = this;
    wg->Go([this] {
      runs_ = true;
      while (rt::sched.runqsize.load(rt::relaxed) == 0 && !over_) {
      }
      waits_ = rt::readgstatus(of_) == rt::kGrunnable && !of_->inPlace;
      // The dump includes the maker, if the hog still has the P. The stack of
      // the maker must not be walked.
      EXPECT_NE(runtime::Stack(/*all=*/true).find("goroutine "),
                std::string::npos);
    });
  }
  static inline const Hog* latest = nullptr;

  // Runs returns whether the hog has the P.
  bool Runs() const { return runs_; }
  // Release tells the hog that the maker is back, perhaps without a wait.
  void Release() { over_ = true; }
  // Waits returns whether the maker waited for a P. A maker that was only
  // preempted in place does not count.
  bool Waits() const { return waits_; }

 private:
  const rt::G* of_ = rt::getg();
  std::atomic<bool> runs_ = false;
  std::atomic<bool> over_ = false;
  bool waits_ = false;
};

// BlocksForTheHog is a declared call that ends once the hog has the P.
void BlocksForTheHog() {
  blocking([] {
    while (!Hog::latest->Runs()) usleep(10);
  });
}

// ComesBack calls f, which blocks until the hog runs, on a stack of ours.
void ComesBack(void (*f)()) {
  testing::RunWith(1, [f] {
    int waited = 0;
    for (int i = 0; i < 20; i++) {
      sync::WaitGroup wg;
      Hog h(&wg);
      OnOtherStack(f);
      h.Release();
      wg.Wait();
      EXPECT_TRUE(h.Runs());
      if (h.Waits()) waited++;
      EXPECT_EQ(rt::getg()->lockedm, nullptr) << "it may leave its thread";
      EXPECT_FALSE(rt::getg()->onOtherStack);
    }
    EXPECT_TRUE(waited > 0 || !rt::haveMembarrier());
  });
}

TEST(OtherStackTest, GoroutineBackFromADeclaredCallWaitsForAP) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "they do not know that stack";
  ComesBack([] {
    const pid_t tid = gettid();
    BlocksForTheHog();
    EXPECT_EQ(gettid(), tid) << "what is on the stack may be the thread's";
  });
}

TEST(OtherStackTest, GoroutinePresumedBlockedWaitsForAP) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "they do not know that stack";
  ComesBack([] {
    const pid_t tid = gettid();
    while (!Hog::latest->Runs()) usleep(1000);
    auto c = make_chan<int>(1);
    c.Send(1);
    EXPECT_EQ(gettid(), tid);
  });
}

TEST(OtherStackTest, LockedGoroutineStaysLocked) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "they do not know that stack";
  testing::RunWith(1, [] {
    runtime::LockOSThread();
    sync::WaitGroup wg;
    Hog h(&wg);
    OnOtherStack(BlocksForTheHog);
    h.Release();
    EXPECT_NE(rt::getg()->lockedm, nullptr);
    wg.Wait();
    runtime::UnlockOSThread();
    EXPECT_EQ(rt::getg()->lockedm, nullptr);
  });
}

TEST_P(OtherStackDeathTest, ReceiveAfterAWaitForAPIsFatal) {
  EXPECT_EXIT(testing::RunWith(GetParam(),
                               [] {
                                 sync::WaitGroup wg;
                                 Hog h(&wg);
                                 OnOtherStack([] {
                                   BlocksForTheHog();
                                   (void)!write(STDERR_FILENO, "back\n", 5);
                                   make_chan<int>().Recv();
                                 });
                               }),
              ::testing::ExitedWithCode(2),
              std::string("^back\n") + (kText + 1));
}

// Main has ended meanwhile. The goroutine waits for ever, unless a scheduler
// that did not know that yet has given it a P.
TEST_P(OtherStackDeathTest, GoroutineBackAfterTheEndOfMainWaits) {
  EXPECT_EXIT(
      {
        static std::atomic<bool> went_on = false;
        testing::RunWith(GetParam(), [] {
          static chan<void> blocks = make_chan<void>();
          go([] {
            OnOtherStack([] {
              blocks.Close();
              blocking([] {
                while (!rt::sched.mainEnded.load(rt::relaxed)) usleep(10);
              });
              went_on = true;
            });
          });
          blocks.Recv();
        });
        while (rt::sched.runqsize.load(rt::relaxed) == 0 && !went_on)
          usleep(10);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

INSTANTIATE_TEST_SUITE_P(Procs, OtherStackDeathTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace gump
