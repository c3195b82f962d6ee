// Helpers for tests of how programs end, and of the dumps that they print then.
#ifndef TESTS_SCHED_CRASH_TESTING_H_
#define TESTS_SCHED_CRASH_TESTING_H_

#include <signal.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "tests/testing/with_gomaxprocs.h"

// Functions whose names the tests look for in dumps. The empty asm prevents
// tail calls and clones.
namespace crashtest {

__attribute__((noinline)) inline void ParkedReceiver(gump::chan<int> c) {
  c.Recv();
  asm volatile("");
}

__attribute__((noinline)) inline void Spawner(gump::chan<int> c) {
  gump::go([c] { ParkedReceiver(c); });
  asm volatile("");
}

}  // namespace crashtest

namespace gump::testing {

inline ::testing::ExitedWithCode Died() { return ::testing::ExitedWithCode(2); }

// Matches tells whether the whole text has the form of a regular expression.
inline bool Matches(const std::string& text, const std::string& form) {
  return ::testing::Matcher<const std::string&>(::testing::MatchesRegex(form))
      .Matches(text);
}

class CrashDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // A shell that runs us in the background may ignore it, and then it would
    // stay ignored.
    ::signal(SIGQUIT, SIG_DFL);
  }

  // RunWith sets variables of the environment, which the runtime reads when it
  // starts, and runs f as main.
  template <class F>
  static void RunWith(std::vector<std::pair<const char*, const char*>> env,
                      F f) {
    for (auto [name, value] : env) setenv(name, value, 1);
    gump::Run(f);
    std::exit(0);
  }
};

// AwaitParked yields until n goroutines are parked in ParkedReceiver.
inline void AwaitParked(size_t n) {
  bool ok = testing::Eventually([n] {
    constexpr std::string_view kParked = "[chan receive";
    std::string text = runtime::Stack(true);
    size_t found = 0;
    for (size_t at = text.find(kParked); at != std::string::npos;
         at = text.find(kParked, at + 1)) {
      found++;
    }
    return found == n;
  });
  if (!ok) std::abort();
}

}  // namespace gump::testing

#endif  // TESTS_SCHED_CRASH_TESTING_H_
