// Labels of goroutines: how a context carries them, which goroutines have them,
// and how dumps show them. Tests with a name of Go's are those of
// runtime/pprof/label_test.go and runtime_test.go.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/runtime/thread.h"
#include "gump/scope.h"
#include "gump/sync/errgroup.h"
#include "gump/sync/waitgroup.h"
#include "gump/time/timer.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using pprof::Label;
using pprof::Labels;
using pprof::WithLabels;

// Mine returns the labels of the caller as the header of its dump shows them,
// without braces; "" if it has none.
std::string Mine() {
  const std::string dump = runtime::Stack(false);
  const std::string header = dump.substr(0, dump.find('\n'));
  const size_t open = header.find("] {");
  if (open == std::string::npos) return "";
  return header.substr(open + 3, header.rfind('}') - open - 3);
}

std::string InDo(const context::Context& ctx, const Labels& labels) {
  std::string mine;
  pprof::Do(ctx, labels, [&](context::Context) { mine = Mine(); });
  return mine;
}

using PprofLabelsTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PprofLabelsTest);

TEST(PprofContextTest, TestContextLabels) {
  const context::Context ctx =
      WithLabels(context::Background(), {{"key", "value"}});
  EXPECT_EQ(Label(ctx, "key"), "value");
  EXPECT_EQ(Label(ctx, "key2"), std::nullopt);

  const context::Context two =
      WithLabels(ctx, {{"key", "override"}, {"key2", "value2"}});
  EXPECT_EQ(Label(two, "key"), "override");
  EXPECT_EQ(Label(two, "key2"), "value2");
  EXPECT_EQ(Label(ctx, "key"), "value");

  const context::Context last =
      WithLabels(context::Background(), {{"k", "1"}, {"k", "2"}, {"j", "3"}});
  EXPECT_EQ(Label(last, "k"), "2");
}

TEST(PprofContextTest, EmptyTextsAndTextsWithNulAreKept) {
  const std::string_view nul("a\0b", 3);
  const context::Context ctx =
      WithLabels(context::Background(), {{"", "empty"}, {nul, nul}, {"v", ""}});
  EXPECT_EQ(Label(ctx, ""), "empty");
  EXPECT_EQ(Label(ctx, nul), nul);
  EXPECT_EQ(Label(ctx, "v"), "");
  EXPECT_EQ(Label(ctx, "a"), std::nullopt);
}

TEST(PprofContextTest, TextsAreCopied) {
  std::string key = "key";
  std::string value = "value";
  const Labels labels{{key, value}};
  key = value = "gone";
  EXPECT_EQ(Label(WithLabels(context::Background(), labels), "key"), "value");
}

TEST(PprofContextTest, EmptySetChangesNothing) {
  const context::Context ctx = WithLabels(context::Background(), {{"k", "v"}});
  EXPECT_EQ(Label(WithLabels(ctx, Labels()), "k"), "v");
}

TEST_P(PprofLabelsTest, TestDo) {
  Run([] {
    EXPECT_EQ(Mine(), "");
    pprof::Do(context::Background(), {{"key1", "value1"}, {"key2", "value2"}},
              [](context::Context ctx) {
                EXPECT_EQ(Mine(), "key1: value1, key2: value2");
                EXPECT_EQ(Label(ctx, "key2"), "value2");
                chan<std::string> c = make_chan<std::string>();
                go([c] { c.Send(Mine()); });
                EXPECT_EQ(c.Recv(), "key1: value1, key2: value2");
              });
    EXPECT_EQ(Mine(), "");
  });
}

TEST_P(PprofLabelsTest, NestedDoAddsToItsContextAndIsUndone) {
  Run([] {
    pprof::Do(
        context::Background(), {{"a", "1"}, {"b", "2"}},
        [](const context::Context& ctx) {
          EXPECT_EQ(InDo(ctx, {{"b", "3"}, {"c", "4"}}), "a: 1, b: 3, c: 4");
          EXPECT_EQ(Mine(), "a: 1, b: 2");
          EXPECT_EQ(InDo(context::Background(), {{"x", "y"}}), "x: y");
          EXPECT_EQ(Mine(), "a: 1, b: 2");
          EXPECT_EQ(InDo(context::Background(), Labels()), "");
        });
  });
}

TEST_P(PprofLabelsTest, ExceptionAndGoexitEndADo) {
  Run([] {
    try {
      pprof::Do(context::Background(), {{"k", "v"}},
                [](context::Context) { throw std::runtime_error("x"); });
      FAIL();
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(Mine(), "");
    std::string after = "never";
    sync::WaitGroup wg;
    wg.Go([&after] {
      defer _{[&after] { after = Mine(); }};
      pprof::Do(context::Background(), {{"k", "v"}},
                [](context::Context) { runtime::Goexit(); });
    });
    wg.Wait();
    EXPECT_EQ(after, "");
  });
}

TEST_P(PprofLabelsTest, AllWaysToStartAGoroutineInherit) {
  Run([] {
    chan<std::string> c = make_chan<std::string>(16);
    const auto send = [c] { c.Send(Mine()); };
    runtime::Thread thread;
    pprof::Do(context::Background(), {{"k", "v"}}, [&](context::Context ctx) {
      go(send);
      go({.name = "named"}, send);
      sync::WaitGroup wg;
      wg.Go(send);
      wg.Wait();
      sync::ErrGroup group;
      group.Go([&] {
        send();
        return absl::OkStatus();
      });
      EXPECT_TRUE(group.Wait().ok());
      Scope scope(ctx);
      scope.Go(send);
      EXPECT_TRUE(scope.Wait().ok());
      go({.thread = &thread}, send);
      go([send] { go(send); });  // a grandchild
      auto [cancelled, cancel] = context::WithCancel(context::Background());
      (void)context::AfterFunc(cancelled, send);
      cancel();
      int named = 0;
      for (int i = 0; i < 8; i++) {
        const std::string got = *c.Recv();
        if (got == "k: v, name: named") {
          named++;
        } else {
          EXPECT_EQ(got, "k: v");
        }
      }
      EXPECT_EQ(named, 1);
      (void)time::AfterFunc(absl::ZeroDuration(), send);
      EXPECT_EQ(c.Recv(), "");  // as in Go
    });
    go(send);
    EXPECT_EQ(c.Recv(), "");
  });
}

TEST_P(PprofLabelsTest, RecycledGoroutinesHaveNoLabels) {
  Run([] {
    for (int i = 0; i < 200; i++) {
      std::string mine;
      sync::WaitGroup wg;
      pprof::Do(context::Background(), {{"i", std::to_string(i)}},
                [&](context::Context) { wg.Go([&] { mine = Mine(); }); });
      wg.Wait();
      EXPECT_EQ(mine, "i: " + std::to_string(i));
      wg.Go([&] { mine = Mine(); });
      wg.Wait();
      EXPECT_EQ(mine, "");
    }
  });
}

TEST_P(PprofLabelsTest, LocalValuesSeeTheLabelsUntilTheEnd) {
  Run([] {
    static std::string last;
    struct AtEnd {
      ~AtEnd() { last = Mine(); }
    };
    static gls<AtEnd> local;
    last = "none";
    chan<void> done = make_chan<void>();
    pprof::Do(context::Background(), {{"k", "v"}}, [&](context::Context) {
      sync::WaitGroup wg;
      wg.Go([] {
        pprof::Do(context::Background(), {{"x", "y"}},
                  [](context::Context) { (void)*local; });
      });
      wg.Wait();
    });
    EXPECT_EQ(last, "k: v");
  });
}

TEST(PprofThreadTest, PlainThreadsHaveLabels) {
  std::string before, during, after, child;
  std::thread([&] {
    before = Mine();
    pprof::Do(context::Background(), {{"k", "v"}}, [&](context::Context) {
      during = Mine();
      testing::RunWith(2, [&] {
        sync::WaitGroup wg;
        wg.Go([&] { child = Mine(); });
        wg.Wait();
      });
    });
    after = Mine();
  }).join();
  EXPECT_EQ(before, "");
  EXPECT_EQ(during, "k: v");
  EXPECT_EQ(after, "");
  EXPECT_EQ(child, "");  // Run begins a tree of its own
}

TEST_P(PprofLabelsTest, DumpsOfAllShowLabelsSortedAndQuoted) {
  Run([] {
    chan<void> stop = make_chan<void>();
    sync::WaitGroup wg;
    pprof::Do(context::Background(), {{"z", "a b"}, {"a/b", "1\n"}},
              [&](context::Context) { wg.Go([&] { (void)stop.Recv(); }); });
    EXPECT_TRUE(testing::Eventually([] {
      return runtime::Stack(true).find(
                 "[chan receive] {a/b: \"1\\n\", z: \"a b\"}:\n") !=
             std::string::npos;
    }));
    stop.Close();
    wg.Wait();
  });
}

// Dumps read and hold sets while goroutines enter and leave Do, and end.
TEST_P(PprofLabelsTest, LabelsMayChangeWhileDumpsReadThem) {
  Run([] {
    std::atomic<bool> stop{false};
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&stop, i] {
        for (int k = 0; !stop; k++) {
          pprof::Do(context::Background(),
                    {{"i", std::to_string(i)}, {"k", std::to_string(k)}},
                    [](context::Context) {
                      sync::WaitGroup inner;
                      inner.Go([] { runtime::Gosched(); });
                      inner.Wait();
                    });
        }
      });
    }
    for (int i = 0; i < 50; i++) {
      EXPECT_NE(runtime::Stack(true), "");
      runtime::Gosched();
    }
    stop = true;
    wg.Wait();
  });
}

}  // namespace
}  // namespace gump
