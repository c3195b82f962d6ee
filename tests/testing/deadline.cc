// A test that hangs says where. At nine tenths of ctest's limit, counted from
// its own start, it gets a SIGQUIT, which dumps all goroutines. The process of
// a death test gets it after six tenths. If that process began within the first
// three tenths, its parent lives to show the dump. Its output up to then is
// seen, too, because lines are not kept back.
#include <gtest/gtest.h>
#include <sys/types.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace gump::testing {
namespace {

// ctest's limit in seconds. It is absent if the test is not run by ctest.
constexpr char kLimitVariable[] = "GUMP_TEST_TIMEOUT";

class Deadline : public ::testing::Environment {
  // A timer of the process: it takes no thread, and neither fork nor exec
  // passes it on.
  void SetUp() override {
    const char* seconds = std::getenv(kLimitVariable);
    if (seconds == nullptr) return;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const bool child = !GTEST_FLAG_GET(internal_run_death_test).empty();
    sigevent quit = {};
    quit.sigev_notify = SIGEV_SIGNAL;
    quit.sigev_signo = SIGQUIT;
    itimerspec at = {};
    at.it_value.tv_sec = std::atol(seconds) * (child ? 6 : 9) / 10;
    timer_t timer;
    ASSERT_EQ(timer_create(CLOCK_MONOTONIC, &quit, &timer), 0);
    ASSERT_EQ(timer_settime(timer, 0, &at, nullptr), 0);
  }
};

[[maybe_unused]] ::testing::Environment* const deadline =
    ::testing::AddGlobalTestEnvironment(new Deadline);

}  // namespace
}  // namespace gump::testing
