#include "gump/sync/stack.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/counted.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using sync::Stack;
using testing::Counted;
using StackTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(StackTest);

TEST(StackModelTest, ElementsLeaveInReverseOrder) {
  Stack<int> s;
  std::vector<int> model;
  EXPECT_TRUE(s.Empty());
  EXPECT_EQ(s.Pop(), std::nullopt);
  for (int round = 0, next = 0; round < 50; round++) {
    for (int i = 0; i < 3 * round; i++) {
      s.Push(next);
      model.push_back(next++);
    }
    for (int i = 0; i < 2 * round; i++) {
      EXPECT_EQ(s.Pop(), model.back());
      model.pop_back();
    }
    EXPECT_EQ(s.Empty(), model.empty());
  }
  int v = -1;
  while (s.Pop(v)) {
    ASSERT_FALSE(model.empty());
    EXPECT_EQ(v, model.back());
    model.pop_back();
  }
  EXPECT_TRUE(model.empty());
}

TEST(StackModelTest, FailedPopLeavesTheVariableAlone) {
  Stack<std::string> s;
  std::string v = "as it was";
  EXPECT_FALSE(s.Pop(v));
  EXPECT_EQ(v, "as it was");
}

TEST(StackModelTest, DestroysEveryElementOnce) {
  {
    Stack<Counted> s;
    for (int i = 0; i < 100; i++) s.Push(Counted(i));
    for (int i = 0; i < 40; i++) EXPECT_EQ(s.Pop()->n(), 99 - i);
    EXPECT_EQ(Counted::values(), 60);
    EXPECT_EQ(Counted::objects(), 60);
  }
  EXPECT_EQ(Counted::objects(), 0);
}

TEST_P(StackTest, GoroutinesAndThreadsShareATokenEach) {
  Run([] {
    // A worker with a token has the token's number for itself. A token that
    // came out twice would be noticed.
    constexpr int kTokens = 3, kWorkers = 4, kRounds = 3000;
    Stack<std::unique_ptr<int>> s;
    for (int i = 0; i < kTokens; i++) s.Push(std::make_unique<int>(0));
    const auto work = [&s] {
      for (int round = 0; round < kRounds;) {
        std::optional<std::unique_ptr<int>> token = s.Pop();
        if (!token.has_value()) {
          runtime::Gosched();
          continue;
        }
        ++**token;
        s.Push(std::move(*token));
        round++;
      }
    };
    testing::InThreadsAndGoroutines(2, kWorkers, work);
    int sum = 0;
    for (int i = 0; i < kTokens; i++) sum += **s.Pop();
    EXPECT_TRUE(s.Empty());
    EXPECT_EQ(sum, (kWorkers + 2) * kRounds);
  });
}

}  // namespace
}  // namespace gump
