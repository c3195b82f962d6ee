// What the sanitizers must not take from a program.
#include "runtime/sys/sanitizer.h"

#include <gtest/gtest.h>
#include <gump/gump.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

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

}  // namespace
}  // namespace gump::rt
