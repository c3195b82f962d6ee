// A goroutine dies while another looks up names for the first time. The
// symboliser asks for the size of a page when it makes its arenas, and gets the
// answer from this file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "gump/go.h"
#include "gump/runtime.h"
#include "runtime/diag/panic.h"
#include "tests/testing/with_gomaxprocs.h"

namespace {
std::atomic<int> asked = 0;
std::atomic<bool> armed = false;   // the next question is answered late
std::atomic<bool> inside = false;  // it has been asked, or there is no lookup
}  // namespace

extern "C" long __sysconf(int name) noexcept;

// If `armed`, the lookup computes until another goroutine dies, which preempts
// the one that looks up. Then it goes on for a while longer.
extern "C" long sysconf(int name) noexcept {
  if (name == _SC_PAGESIZE) asked++;
  if (name == _SC_PAGESIZE && armed.exchange(false)) {
    inside = true;
    while (!gump::rt::isPanicking()) {
    }
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  return __sysconf(name);
}

namespace gump {
namespace {

TEST(TracebackFramesDeathTest, AFatalErrorDoesNotWaitForALookupOfNames) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(60);  // it hung
        testing::RunWith(2, [] {
          const int before = asked;
          armed = true;
          go([before] {
            (void)runtime::Stack(/*all=*/false);
            if (asked == before) std::_Exit(1);  // nothing is tested
            inside = true;
          });
          while (!inside) std::this_thread::yield();
          rt::fatal("as it must");
        });
      },
      ::testing::ExitedWithCode(2), "^fatal error: as it must\n\ngoroutine 1 ");
}

}  // namespace
}  // namespace gump
