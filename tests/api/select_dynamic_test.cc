// The dynamic form of select: cases in an array.
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/select.h"
#include "tests/testing/counted.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;
using testing::PanicText;

using SelectDynamicTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(SelectDynamicTest);

TEST_P(SelectDynamicTest, DynamicCasesDoTheSame) {
  Run([] {
    chan<int> c = make_chan<int>(1);
    chan<std::string> d = make_chan<std::string>(1);
    int v = 0;
    std::string handled;
    std::vector<SelectCase> cases;
    cases.push_back(Recv(c, &v));
    cases.push_back(Recv(d, [&](const std::string& s) { handled = s; }));
    cases.push_back(Default());
    EXPECT_EQ(select(absl::MakeSpan(cases)), 2);
    c.Send(3);
    EXPECT_EQ(select(absl::MakeSpan(cases)), 0);
    EXPECT_EQ(v, 3);
    d.Send("s");
    EXPECT_EQ(select(absl::MakeSpan(cases)), 1);
    EXPECT_EQ(handled, "s");
    EXPECT_EQ(select(absl::MakeSpan(cases)), 2);
    cases.pop_back();
    go([=] { d.Send("late"); });
    EXPECT_EQ(select(absl::MakeSpan(cases)), 1);
    EXPECT_EQ(handled, "late");
  });
}

TEST_P(SelectDynamicTest, DynamicCasesHoldTheirChannels) {
  Run([] {
    std::vector<SelectCase> cases;
    {
      chan<Counted> c = make_chan<Counted>(1);
      c.Send(Counted(1));
      cases.push_back(Recv(c));
    }
    EXPECT_EQ(Counted::values(), 1);
    EXPECT_EQ(select(absl::MakeSpan(cases)), 0);
    EXPECT_EQ(Counted::values(), 0);
  });
}

TEST_P(SelectDynamicTest, ADynamicSendGivesItsValueOnce) {
  Run([] {
    chan<std::string> c = make_chan<std::string>(2);
    std::vector<SelectCase> cases;
    std::string text = "value";
    cases.push_back(Send(c, text));
    EXPECT_EQ(select(absl::MakeSpan(cases)), 0);
    EXPECT_EQ(text, "value");
    EXPECT_EQ(c.Recv(), "value");
    EXPECT_EQ(PanicText([&] { select(absl::MakeSpan(cases)); }),
              "select: send case used again after its value was sent");
    chan<int> d = make_chan<int>(2);
    std::vector<SelectCase> again;
    again.push_back(Send(d, 4));
    EXPECT_EQ(select(absl::MakeSpan(again)), 0);
    EXPECT_EQ(select(absl::MakeSpan(again)), 0);
    EXPECT_EQ(*d.Recv() + *d.Recv(), 8);
  });
}

TEST_P(SelectDynamicTest, TakesAnyNumberOfCasesUpTo65536) {
  Run([] {
    for (size_t n : {1u, 2u, 16u, 17u, 1000u, 65536u}) {
      std::vector<chan<int>> chans;
      std::vector<SelectCase> cases;
      int v = 0;
      for (size_t i = 0; i < n; i++) {
        chans.push_back(make_chan<int>());
        cases.push_back(Recv(chans[i], &v));
      }
      chan<int> last = chans.back();
      go([last] { last.Send(42); });
      EXPECT_EQ(select(absl::MakeSpan(cases)), static_cast<int>(n) - 1);
      EXPECT_EQ(v, 42);
      for (const chan<int>& c : chans) EXPECT_FALSE(c.TrySend(1));
    }
  });
}

TEST_P(SelectDynamicTest, MisuseOfTheDynamicFormPanics) {
  Run([] {
    chan<int> c;
    std::vector<SelectCase> many;
    for (int i = 0; i < 65537; i++) many.push_back(Recv(c));
    EXPECT_EQ(PanicText([&] { select(absl::MakeSpan(many)); }),
              "reflect.Select: too many cases (max 65536)");
    std::vector<SelectCase> two;
    two.push_back(Default());
    two.push_back(Default());
    EXPECT_EQ(PanicText([&] { select(absl::MakeSpan(two)); }),
              "reflect.Select: multiple default cases");
  });
}

}  // namespace
}  // namespace gump
