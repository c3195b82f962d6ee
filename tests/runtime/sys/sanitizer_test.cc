// What the sanitizers must not take from a program.
#include "runtime/sys/sanitizer.h"

#include <gtest/gtest.h>
#include <gump/gump.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack.h"
#include "runtime/sys/tls.h"

namespace gump::rt {
namespace {

std::atomic<int> handled;

// Arrived waits until n signals were handled, for at most ten seconds. It lets
// the goroutines run meanwhile.
bool Arrived(int n) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (handled < n) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Every 64th goroutine of a slot has a new fiber, whose first blocking call
// makes TSan allocate. The sender waits for each signal, so that no two merge.
TEST(SanitizerTest, NoSignalIsLostThatComesWhileAFiberIsNew) {
  constexpr int kSignals = 10000;
  struct sigaction count = {};
  count.sa_handler = [](int) { handled++; };
  count.sa_flags = SA_ONSTACK | SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &count, nullptr), 0);
  std::atomic<bool> done = false;
  gump::Run([&] {
    const int before = runtime::GOMAXPROCS(1);
    std::thread sender([&] {
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGUSR1);
      pthread_sigmask(SIG_BLOCK, &set, nullptr);
      for (int i = 0; i < kSignals && !::testing::Test::HasFailure(); i++) {
        ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
        EXPECT_TRUE(Arrived(i + 1));
      }
      done = true;
    });
    while (!done) {
      sync::WaitGroup wg;
      for (int i = 0; i < 64; i++) wg.Go([] { usleep(0); });
      wg.Wait();
    }
    sender.join();
    runtime::GOMAXPROCS(before);
  });
}

#if defined(GUMP_ASAN)
// interruptTheMaking does what a handler of the runtime does on the thread of
// gp if it interrupts ASan while that makes the fake stack of gp.
GUMP_NO_SANITIZE void interruptTheMaking(G* gp, M* mp) {
  auto* top = reinterpret_cast<StackTop*>(gp->stack.hi);
  sanitizerEnterSignal(gp, mp);
  top->asanFakeStack = reinterpret_cast<void*>(uintptr_t{1});  // as ASan does
  sanitizerLeaveSignal(gp);
}

GUMP_NOINLINE int sumOfFrame(int n) {
  volatile int frame[16];
  for (int i = 0; i < 16; i++) frame[i] = n;
  return frame[0] + frame[15];
}

TEST(SanitizerTest, AHandlerMayInterruptTheMakingOfAFakeStack) {
  gump::Run([] {
    sync::WaitGroup wg;
    wg.Go([] {
      M* mp = acquirem();
      interruptTheMaking(getg(), mp);
      EXPECT_EQ(sumOfFrame(4), 8);  // on a fake stack
      releasem(mp);
    });
    wg.Wait();
  });
}

constexpr size_t kLarge = (1 << 20) + 1;

// LiesBehind returns true if `page` is the first page behind what ASan has
// mapped for a block of kLarge bytes.
bool LiesBehind(const char* page, const char* block) {
  const char* end = block + kLarge;
  if (page < end || page - end > 4 * 4096) return false;
  return std::all_of(end, page, [](const char& c) {
    return __asan_address_is_poisoned(&c) != 0;
  });
}

TEST(SanitizerTest, APageBehindALargeBlockIsInNoBlock) {
  // The kernel maps a block just below what was mapped before it, unless there
  // is a gap elsewhere. Each try takes one gap.
  std::vector<std::unique_ptr<char[]>> others;
  std::unique_ptr<char[]> block;
  const char* page = nullptr;
  for (int tries = 0; tries < 100; tries++) {
    void* mapped = mmap(nullptr, kLarge, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    page = static_cast<char*>(mapped);
    block = std::make_unique<char[]>(kLarge);
    if (LiesBehind(page, block.get())) break;
    others.push_back(std::move(block));
  }
  ASSERT_NE(block, nullptr);
  const auto of = [](const char* p) {
    uintptr_t begin;
    size_t size;
    return sanitizerBlockOf(reinterpret_cast<uintptr_t>(p), &begin, &size);
  };
  EXPECT_EQ(of(page), SanitizerBlock::kNone);
  EXPECT_EQ(of(block.get()), SanitizerBlock::kAllocated);
  EXPECT_EQ(of(block.get() + kLarge - 1), SanitizerBlock::kAllocated);
  EXPECT_EQ(of(block.get() + kLarge), SanitizerBlock::kFree);
  const char* was = block.get();
  block.reset();  // ASan keeps the mapping for some time
  EXPECT_EQ(of(page), SanitizerBlock::kNone);
  EXPECT_EQ(of(was), SanitizerBlock::kFree);
}
#endif

}  // namespace
}  // namespace gump::rt
