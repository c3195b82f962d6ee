// runtime.Goexit ends the goroutine from wherever it is called. The objects
// that the goroutine owns are destroyed with it, in order.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "gump/chan.h"
#include "gump/defer.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/testing/counted.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;

class GoexitTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(GoexitTest);

// Note writes a letter when it is destroyed.
struct Note {
  Note(std::string& l, char c) : log(l), letter(c) {}
  ~Note() { log += letter; }
  std::string& log;
  char letter;
};

// Ended runs f in a goroutine and returns the log that f wrote until its end.
template <class F>
std::string Ended(F f) {
  std::string log;
  sync::WaitGroup wg;
  wg.Go([&] { f(log); });
  wg.Wait();
  return log;
}

// The compiler must not know that Goexit does not return. It would warn of a
// recursion without end.
void (*volatile exit_here)() = [] { runtime::Goexit(); };

__attribute__((noinline)) void Nested(std::string& log, int depth) {
  Note note(log, static_cast<char>('a' + depth));
  if (depth > 0) {
    Nested(log, depth - 1);
  } else {
    exit_here();
  }
  log += '!';
}

TEST_P(GoexitTest, RunsDestructorsOfEveryFrameInnermostFirst) {
  Run([] {
    EXPECT_EQ(Ended([](std::string& log) {
                Note first(log, '1');
                Note second(log, '2');
                Nested(log, 3);
                log += '!';
              }),
              "abcd21");
  });
}

TEST_P(GoexitTest, RunsDeferredFunctions) {
  Run([] {
    EXPECT_EQ(Ended([](std::string& log) {
                defer a{[&] { log += 'a'; }};
                defer b{[&] { log += 'b'; }};
                runtime::Goexit();
              }),
              "ba");
  });
}

TEST_P(GoexitTest, PassesThroughHandlersThatRethrow) {
  Run([] {
    EXPECT_EQ(Ended([](std::string& log) {
                Note outer(log, 'o');
                try {
                  try {
                    Note inner(log, 'i');
                    runtime::Goexit();
                  } catch (...) {
                    log += '1';
                    throw;
                  }
                } catch (...) {
                  log += '2';
                  throw;
                }
              }),
              "i12o");
  });
}

TEST_P(GoexitTest, IsNoExceptionOfAnyType) {
  Run([] {
    EXPECT_EQ(Ended([](std::string& log) {
                try {
                  runtime::Goexit();
                } catch (const std::exception&) {
                  log += 'e';
                } catch (int) {
                  log += 'i';
                }
              }),
              "");
  });
}

TEST_P(GoexitTest, WorksFromAHandlerAndFromADestructor) {
  Run([] {
    EXPECT_EQ(Ended([](std::string& log) {
                Note outer(log, 'o');
                try {
                  throw std::runtime_error("x");
                } catch (const std::exception& e) {
                  log += e.what();
                  runtime::Goexit();
                }
              }),
              "xo");
    struct Exits {
      ~Exits() noexcept(false) { runtime::Goexit(); }
    };
    EXPECT_EQ(Ended([](std::string& log) {
                Note outer(log, 'o');
                Exits e;
              }),
              "o");
  });
}

TEST_P(GoexitTest, DestructorsMayParkOnTheWay) {
  Run([] {
    struct Parks {
      explicit Parks(std::string& l) : log(l) {}
      ~Parks() {
        auto c = make_chan<int>();
        go([c] { c.Send(7); });
        log += static_cast<char>('0' + *c.Recv());
        runtime::Gosched();
      }
      std::string& log;
    };
    for (int i = 0; i < 50; i++) {
      EXPECT_EQ(Ended([](std::string& log) {
                  Parks a(log);
                  Parks b(log);
                  runtime::Goexit();
                }),
                "77");
    }
  });
}

TEST_P(GoexitTest, DestructorsMayThrowAndCatchOnTheWay) {
  Run([] {
    struct Throws {
      ~Throws() {
        try {
          throw 1;
        } catch (int) {
          *caught = *caught + 1;
        }
      }
      int* caught;
    };
    int caught = 0;
    sync::WaitGroup wg;
    wg.Go([&] {
      Throws a{&caught};
      Throws b{&caught};
      runtime::Goexit();
    });
    wg.Wait();
    EXPECT_EQ(caught, 2);
  });
}

// Fill writes to a frame of n bytes and returns their sum.
template <size_t n>
__attribute__((noinline)) size_t Fill() {
  char bytes[n];
  char* volatile p = bytes;
  for (size_t i = 0; i < n; i++) p[i] = 1;
  size_t sum = 0;
  for (size_t i = 0; i < n; i++) sum += static_cast<size_t>(p[i]);
  return sum;
}

// Fill writes where Goexit's own frames have been. ASan once took the remains
// of those frames for an overflow of Fill's.
TEST_P(GoexitTest, DestructorsUseTheStackOfTheFramesThatAreLeft) {
  Run([] {
    size_t sum = 0;
    sync::WaitGroup wg;
    wg.Go([&] {
      defer fill([&] {
        sum = [&]<size_t... k>(std::index_sequence<k...>) {
          return (Fill<16 * (k + 1)>() + ...);
        }
        (std::make_index_sequence<64>());
      });
      exit_here();
    });
    wg.Wait();
    EXPECT_EQ(sum, 16 * 64 * 65 / 2);
  });
}

TEST_P(GoexitTest, LeavesNoExceptionStateBehind) {
  Run([] {
    for (int i = 0; i < 100; i++) {
      EXPECT_EQ(Ended([](std::string&) {
                  try {
                    throw 1;
                  } catch (...) {
                    runtime::Goexit();
                  }
                }),
                "");
      EXPECT_EQ(std::uncaught_exceptions(), 0);
      EXPECT_EQ(std::current_exception(), nullptr);
      sync::WaitGroup wg;
      wg.Go([] {  // on the stack, and the M, of the goroutine that has left
        EXPECT_EQ(std::uncaught_exceptions(), 0);
        EXPECT_EQ(std::current_exception(), nullptr);
      });
      wg.Wait();
    }
  });
}

TEST_P(GoexitTest, DestroysTheClosureAndTheArguments) {
  Run([] {
    sync::WaitGroup wg;
    wg.Add(2);
    go(
        [&wg](const Counted& c) {
          EXPECT_TRUE(c.full());
          wg.Done();
          runtime::Goexit();
        },
        Counted(1));
    struct Big {
      char bytes[200] = {};
    };
    go([c = std::make_unique<Counted>(2), big = Big(), &wg] {
      EXPECT_TRUE(c->full());
      EXPECT_EQ(big.bytes[199], 0);
      wg.Done();
      runtime::Goexit();
    });
    wg.Wait();
    EXPECT_TRUE(testing::Eventually([] { return Counted::objects() == 0; }));
  });
}

TEST_P(GoexitTest, DestroysGoroutineLocalValuesAfterEverythingElse) {
  Run([] {
    std::atomic<int> destroyed = 0;
    struct Value {
      ~Value() {
        if (at != nullptr) at->fetch_add(1);
      }
      std::atomic<int>* at = nullptr;
    };
    gls<Value> value;
    go([&] {
      value->at = &destroyed;
      defer d{[&] { EXPECT_EQ(destroyed, 0); }};
      runtime::Goexit();
    });
    EXPECT_TRUE(testing::Eventually([&] { return destroyed == 1; }));
  });
}

TEST_P(GoexitTest, CellAndStackAreUsedAgain) {
  Run([] {
    sync::WaitGroup wg;
    for (int i = 0; i < 5000; i++) {
      wg.Go([] { runtime::Goexit(); });
      if (i % 50 == 49) wg.Wait();
    }
    wg.Wait();
  });
}

TEST_P(GoexitTest, OtherGoroutinesAreNotAffected) {
  Run([] {
    auto c = make_chan<int>();
    go([c] {
      runtime::Gosched();
      c.Send(1);
    });
    go([] { runtime::Goexit(); });
    EXPECT_EQ(c.Recv(), 1);
  });
}

// ---- Goexit of main, and misuse: seen from outside.

class GoexitDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(GoexitDeathTest, SwallowedGoexitIsFatal) {
  EXPECT_EXIT(gump::Run([] {
                try {
                  runtime::Goexit();
                } catch (...) {
                }
              }),
              ::testing::ExitedWithCode(2),
              "^fatal error: runtime.Goexit: exception not rethrown\n");
}

TEST_F(GoexitDeathTest, OnAPlainThreadIsFatal) {
  EXPECT_EXIT(runtime::Goexit(), ::testing::ExitedWithCode(2),
              "^fatal error: runtime.Goexit called on a thread that is not a "
              "goroutine\n");
}

// Either text is right: it depends on the compiler.
constexpr char kTerminated[] =
    "^(panic: std::terminate called without an active exception|"
    "fatal error: runtime.Goexit: exception not rethrown)\n";

void ExitsAlthoughNoexcept() noexcept { runtime::Goexit(); }

TEST_F(GoexitDeathTest, ThroughNoexceptEndsTheProcess) {
  EXPECT_EXIT(gump::Run([] { ExitsAlthoughNoexcept(); }),
              ::testing::ExitedWithCode(2), kTerminated);
}

TEST_F(GoexitDeathTest, WhileAPanicUnwindsEndsTheProcess) {
  EXPECT_EXIT(gump::Run([] {
                try {
                  defer d([] { runtime::Goexit(); });
                  panic("x");
                } catch (const PanicError&) {
                }
              }),
              ::testing::ExitedWithCode(2), kTerminated);
}

TEST_F(GoexitDeathTest, OfMainLeavesTheOthersRunning) {
  EXPECT_EXIT(gump::Run([] {
                go([] {
                  for (int i = 0; i < 100; i++) runtime::Gosched();
                  std::_Exit(7);
                });
                runtime::Goexit();
              }),
              ::testing::ExitedWithCode(7), "^$");
}

// The cell of a main that has left by Goexit is used again, and is not special
// then. So Run goes on.
TEST_F(GoexitDeathTest, OfMainDoesNotMakeItsSuccessorMain) {
  EXPECT_EXIT(
      {
        gump::Run([] {
          runtime::GOMAXPROCS(1);
          go([] {
            for (int i = 0; i < 1000; i++) {
              go([] {});
              runtime::Gosched();
            }
            std::_Exit(7);
          });
          runtime::Goexit();
        });
        std::_Exit(1);  // Run must not return
      },
      ::testing::ExitedWithCode(7), "^$");
}

}  // namespace
}  // namespace gump
