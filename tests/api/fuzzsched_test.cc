// Schedule fuzzing (runtime/fuzzsched.h): it shuffles, it repeats itself, and
// who fails under it learns the seed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

// Order is the order in which goroutines of one P have run; printed by a
// process of its own, whose environment says how.
TEST(FuzzSchedTest, DISABLED_PrintOrder) {
  std::string log;
  testing::RunWith(1, [&log] {
    sync::WaitGroup wg;
    auto c = make_chan<int>(1);
    for (char name = 'A'; name <= 'H'; name++) {
      wg.Go([&log, name, c] {
        for (int i = 0; i < 3; i++) {
          c.Send(1);
          log += name;
          c.Recv();
        }
      });
    }
    wg.Wait();
  });
  std::printf("order=%s.\n", log.c_str());
}

std::string OrderWith(const std::string& godebug) {
  char self[PATH_MAX] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) return "";
  const std::string command =
      "GOMAXPROCS=1 GODEBUG=" + godebug + " '" + self +
      "' --gtest_also_run_disabled_tests --gtest_filter=*.DISABLED_PrintOrder";
  FILE* f = popen(command.c_str(), "r");
  if (f == nullptr) return "";
  std::string text;
  char buf[256];
  while (fgets(buf, sizeof(buf), f) != nullptr) text += buf;
  pclose(f);
  const size_t at = text.find("order=");
  return at == text.npos ? ""
                         : text.substr(at + 6, text.find('.', at) - at - 6);
}

TEST(FuzzSchedTest, EachSeedHasItsOrder) {
  std::set<std::string> orders;
  for (int seed = 1; seed <= 8; seed++) {
    orders.insert(OrderWith("fuzzsched=" + std::to_string(seed)));
  }
  EXPECT_GE(orders.size(), 6u);
  for (const std::string& order : orders) EXPECT_EQ(order.size(), 24u);
}

TEST(FuzzSchedTest, OnePRepeatsItself) {
  const std::string godebug = "fuzzsched=5,asyncpreemptoff=1";
  const std::string first = OrderWith(godebug);
  for (int i = 0; i < 10; i++) EXPECT_EQ(OrderWith(godebug), first);
}

void RunFuzzed(void (*main)()) {
  setenv("GODEBUG", "fuzzsched=1234", 1);
  Run(main);
}

TEST(FuzzSchedDeathTest, PanicTellsTheSeed) {
  EXPECT_EXIT(RunFuzzed([] { panic("boom"); }), ::testing::ExitedWithCode(2),
              "^panic: boom\nfuzzsched=1234\n\ngoroutine 1 ");
}

TEST(FuzzSchedDeathTest, FatalErrorTellsTheSeed) {
  EXPECT_EXIT(RunFuzzed([] {
                sync::Mutex mu;
                mu.Unlock();
              }),
              ::testing::ExitedWithCode(2),
              "^fatal error: sync: unlock of unlocked mutex\n"
              "fuzzsched=1234\n\ngoroutine 1 ");
}

TEST(FuzzSchedDeathTest, DeadlockTellsTheSeed) {
  EXPECT_EXIT(RunFuzzed([] { make_chan<int>().Recv(); }),
              ::testing::ExitedWithCode(2),
              "^fatal error: all goroutines are asleep - deadlock!\n"
              "fuzzsched=1234\n\ngoroutine 1 ");
}

}  // namespace
}  // namespace gump
