// A profiler, a debugger or an exception that walks a stack finds its end, from
// every instruction, in particular from those that change the stack.
//
// The processor's trap flag stops the thread after each instruction, and the
// handler walks from there. AArch64 has no such flag that a program could set,
// and sanitizers put handlers of their own in between.
#include <gtest/gtest.h>
#include <signal.h>
#include <ucontext.h>
#include <unwind.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/with_gomaxprocs.h"

#if defined(__x86_64__)

extern "C" {
void gumpMcall();
void gumpSwitch();
void gumpMstart();
void gumpGostart();
void gumpCallSaved();
void gumpCallAtop();
}

namespace gump {
namespace {

constexpr int kMostFrames = 100;
constexpr uint64_t kTrap = 0x100;  // the trap flag

// Tells whether threads are stepped. A thread may still have the flag when this
// ends, because the goroutine that set it went on elsewhere. The thread loses
// it at its next instruction.
std::atomic<bool> stepping;
// Counted by the handler.
std::atomic<int> steps;
std::atomic<int> inMcall;
std::atomic<int> inSwitch;
std::atomic<int> inGostart;
std::atomic<int> lost;          // walks that did not end where they should
std::atomic<uintptr_t> lostAt;  // an instruction from which one began

struct Walk {
  int frames = 0;
  uintptr_t last = 0;
};

_Unwind_Reason_Code Count(_Unwind_Context* context, void* arg) {
  auto* w = static_cast<Walk*>(arg);
  const uintptr_t pc = _Unwind_GetIP(context);
  if (pc != 0) w->last = pc;  // 0: the first frame has no caller
  return ++w->frames > kMostFrames ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

// Between tells whether pc is in function f, which `next` follows.
bool Between(uintptr_t pc, void (*f)(), void (*next)()) {
  return pc >= reinterpret_cast<uintptr_t>(f) &&
         pc < reinterpret_cast<uintptr_t>(next);
}

void OnStep(int, siginfo_t*, void* context) {
  auto* uc = static_cast<ucontext_t*>(context);
  if (!stepping) {
    uc->uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(kTrap);
    return;
  }
  const int saved = errno;
  const auto pc = static_cast<uintptr_t>(uc->uc_mcontext.gregs[REG_RIP]);
  steps++;
  if (Between(pc, gumpMcall, gumpSwitch)) inMcall++;
  if (Between(pc, gumpSwitch, gumpMstart)) inSwitch++;
  if (Between(pc, gumpGostart, gumpCallSaved)) inGostart++;
  Walk w;
  const _Unwind_Reason_Code end = _Unwind_Backtrace(Count, &w);
  // A goroutine begins in gumpGostart, the scheduler in gumpMcall.
  if (end != _URC_END_OF_STACK || !Between(w.last, gumpMcall, gumpCallSaved)) {
    lost++;
    lostAt = pc;
  }
  errno = saved;
}

// Step begins to step the thread, which keeps the flag over switches. (pushf
// and popf would write where compilers keep variables.)
void Step() {
  stepping = true;
  __writeeflags(__readeflags() | kTrap);
}

// TalkInSteps starts a goroutine, talks with it, and sees it end.
void TalkInSteps() {
  auto there = make_chan<int>();
  auto back = make_chan<int>();
  sync::WaitGroup inner;
  Step();
  inner.Go([=] {
    for (int v : there) back.Send(v);
  });
  for (int i = 0; i < 3; i++) {
    there.Send(i);
    EXPECT_EQ(back.Recv(), i);
    runtime::Gosched();
  }
  there.Close();
  inner.Wait();
  stepping = false;
}

TEST(UnwindTest, EveryInstructionOfASwitchKnowsTheEndOfItsStack) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "its handlers come between";
  struct sigaction action = {};
  action.sa_sigaction = OnStep;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ASSERT_EQ(sigaction(SIGTRAP, &action, nullptr), 0);  // for good
  testing::RunWith(1, [] {
    sync::WaitGroup wg;
    // The main goroutine has a thread of its own.
    wg.Go([] {
      // Again, if the stepped thread did not do all of it.
      const auto all = [] {
        return inMcall > 0 && inSwitch > 0 && inGostart > 0;
      };
      for (int i = 0; i < 1000 && !all(); i++) TalkInSteps();
    });
    wg.Wait();
  });
  EXPECT_GT(inMcall, 0);
  EXPECT_GT(inSwitch, 0);
  EXPECT_GT(inGostart, 0);
  EXPECT_EQ(lost, 0) << "of " << steps << ", from " << std::hex << lostAt;
}

}  // namespace
}  // namespace gump

#endif
