// The kernel has no thread for us, or makes it late. The pthread_create below
// behaves like that.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"

namespace {
std::atomic<bool> refuse;
std::atomic<bool> late;
std::atomic<int> made;
}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attr,
                              void* (*f)(void*), void* arg) noexcept {
  using Create =
      int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static auto* const real =
      reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  for (int i = 0; i < 1000 && late; i++) usleep(1000);
  made++;
  return refuse ? EAGAIN : real(thread, attr, f, arg);
}

namespace gump {
namespace {

class NoThreadDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

constexpr unsigned kTooLong = 60;  // s

// The P of a goroutine that sleeps in a call goes to a thread that does not
// come. A goroutine that is locked to its thread takes the P back itself,
// because there is no other thread to which the P could go.
void LockedComesBack() {
  alarm(kTooLong);
  gump::Run([] {
    runtime::GOMAXPROCS(1);
    sync::WaitGroup wg;
    wg.Go([] {
      runtime::LockOSThread();
      refuse = true;
      blocking([] { usleep(100'000); });
      refuse = false;
      runtime::UnlockOSThread();
    });
    wg.Go([] {
      for (int i = 0; i < 1000; i++) runtime::Gosched();
    });
    wg.Wait();
  });
  std::_Exit(0);
}

TEST_F(NoThreadDeathTest, LockedGoroutineComesBackFromACall) {
  EXPECT_EXIT(LockedComesBack(), ::testing::ExitedWithCode(0), "");
}

// Each time the world stops, the P that waits for a thread is taken back.
void WorldStopsMeanwhile() {
  alarm(kTooLong);
  gump::Run([] {
    runtime::GOMAXPROCS(1);
    sync::WaitGroup wg;
    wg.Go([] {  // not main, as m0 runs no goroutine but main
      while (made + 1 < debug::ReadSchedStats().threads) runtime::Gosched();
      debug::SetMaxThreads(20);
      late = true;
      for (int i = 0; i < 100; i++) {
        sync::WaitGroup other;
        other.Go([] {});  // another P needs a thread to run this one
        runtime::GOMAXPROCS(2 + i % 2);
        other.Wait();
      }
      late = false;
    });
    wg.Wait();
  });
  std::_Exit(0);
}

TEST_F(NoThreadDeathTest, LateThreadIsRequestedOnce) {
  EXPECT_EXIT(WorldStopsMeanwhile(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gump
