#include "gump/defer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using DeferTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(DeferTest);

TEST_P(DeferTest, RunsAtTheEndOfTheScopeInReverseOrder) {
  Run([] {
    std::string log;
    {
      defer a{[&] { log += 'a'; }};
      defer b{[&] { log += 'b'; }};
      log += '-';
    }
    EXPECT_EQ(log, "-ba");
  });
}

TEST_P(DeferTest, RunsWhenAnExceptionLeavesTheScope) {
  Run([] {
    bool ran = false;
    try {
      defer _{[&] { ran = true; }};
      throw std::runtime_error("x");
    } catch (const std::runtime_error&) {
      EXPECT_TRUE(ran);
    }
  });
}

TEST_P(DeferTest, RunsOnGoexit) {
  Run([] {
    bool ran = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      defer _{[&] { ran = true; }};
      runtime::Goexit();
    });
    wg.Wait();
    EXPECT_TRUE(ran);
  });
}

TEST_P(DeferTest, MayPark) {
  Run([] {
    sync::WaitGroup wg;
    for (int i = 0; i < 10; i++) {
      wg.Go([] {
        try {
          defer _{[&] {
            for (int j = 0; j < 3; j++) runtime::Gosched();
          }};
          panic("x");
        } catch (const PanicError&) {
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(DeferTest, APanicInItGoesToTheCaller) {
  Run([] {
    bool outer = false;
    try {
      defer a{[&] { outer = true; }};
      defer b{[] { panic("late"); }};
    } catch (const PanicError& e) {
      EXPECT_STREQ(e.what(), "late");
    }
    EXPECT_TRUE(outer);
  });
}

TEST_P(DeferTest, APanicInsideACatchBlockIsNotASecondOne) {
  Run([] {
    try {
      panic("first");
    } catch (const PanicError&) {
      try {
        defer _{[] { panic("second"); }};
      } catch (const PanicError& e) {
        EXPECT_STREQ(e.what(), "second");
      }
    }
  });
}

TEST_P(DeferTest, APanicCaughtInsideItDoesNotDisturbTheFirst) {
  Run([] {
    try {
      defer _{[] {
        try {
          defer inner{[] { panic("inner"); }};
        } catch (const PanicError& e) {
          EXPECT_STREQ(e.what(), "inner");
        }
      }};
      panic("outer");
    } catch (const PanicError& e) {
      EXPECT_STREQ(e.what(), "outer");
    }
  });
}

TEST_P(DeferTest, HoldsMoveOnlyFunctionsAndNamedOnes) {
  Run([] {
    int got = 0;
    std::function<void()> named = [&] { got += 1; };
    {
      defer a{[&got, p = std::make_unique<int>(2)] { got += *p; }};
      defer b = named;
    }
    EXPECT_EQ(got, 3);
  });
}

TEST(DeferDeathTest, SecondPanicEndsTheProcessWithBoth) {
  EXPECT_EXIT(gump::Run([] {
                try {
                  defer _{[] { panic("second"); }};
                  panic("first");
                } catch (...) {
                }
              }),
              ::testing::ExitedWithCode(2), "panic: first\n\tpanic: second\n");
}

TEST(DeferDeathTest, SecondMayBeAnyException) {
  EXPECT_EXIT(gump::Run([] {
                try {
                  defer _{[] { throw std::runtime_error("disk on fire"); }};
                  panic("first");
                } catch (...) {
                }
              }),
              ::testing::ExitedWithCode(2),
              "panic: first\n\tpanic: disk on fire\n");
}

TEST(DeferDeathTest, FirstThatIsNoPanicHasNoText) {
  EXPECT_EXIT(gump::Run([] {
                try {
                  panic("recovered long ago");
                } catch (const PanicError&) {
                }
                try {
                  defer _{[] { panic("second"); }};
                  throw 42;
                } catch (...) {
                }
              }),
              ::testing::ExitedWithCode(2),
              "panic: exception\n\tpanic: second\n");
}

TEST(PanicTest, ThrowsItsText) {
  try {
    panic(std::string_view("abcdef").substr(0, 3));
    ADD_FAILURE();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "abc");
  }
}

TEST(PanicTest, ErrorsMayBeCopiedKeptAndThrownElsewhere) {
  std::unique_ptr<PanicError> kept;
  try {
    panic("kept");
  } catch (const PanicError& e) {
    kept = std::make_unique<PanicError>(e);
  }
  EXPECT_STREQ(kept->what(), "kept");
  testing::RunWith(2, [&] {
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_THROW(throw PanicError(*kept), PanicError); });
    wg.Wait();
  });
}

TEST(PanicDeathTest, UncaughtEndsTheProcess) {
  EXPECT_EXIT(gump::Run([] { panic("spilled milk"); }),
              ::testing::ExitedWithCode(2),
              "^panic: spilled milk\n\ngoroutine 1 \\[running\\]:");
}

}  // namespace
}  // namespace gump
