#include "gump/gls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/errgroup.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using GlsTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GlsTest);

TEST_P(GlsTest, EachGoroutineHasItsOwnValue) {
  Run([] {
    gls<int> x{5};
    *x = 1;
    sync::WaitGroup wg;
    for (int i = 0; i < 100; i++) {
      wg.Go([&, i] {
        EXPECT_EQ(*x, 5);
        *x = i;
        for (int j = 0; j < 5; j++) {
          runtime::Gosched();
          EXPECT_EQ(*x, i);
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(*x, 1);
  });
}

TEST_P(GlsTest, ValuesAreMadeByCopyOrByAFunctionOrByDefault) {
  Run([] {
    gls<std::string> copied{std::string("abc")};
    gls<std::unique_ptr<int>> made{[] { return std::make_unique<int>(3); }};
    gls<std::vector<int>> plain;
    EXPECT_EQ(copied->size(), 3u);
    EXPECT_EQ(**made, 3);
    EXPECT_TRUE(plain->empty());
  });
}

TEST_P(GlsTest, AFunctionMayUseTheValueThatItMakes) {
  Run([] {
    gls<int>* self = nullptr;
    int calls = 0;
    gls<int> v{[&] { return ++calls == 1 ? **self + 1 : 10; }};
    self = &v;
    EXPECT_EQ(*v, 10);
    EXPECT_EQ(*v, 10);
    EXPECT_EQ(calls, 2);
  });
}

struct Noisy {
  explicit Noisy(std::vector<int>* l, int number) : log(l), n(number) {}
  Noisy(Noisy&& o) noexcept : log(std::exchange(o.log, nullptr)), n(o.n) {}
  ~Noisy() {
    if (log != nullptr) log->push_back(n);
  }
  std::vector<int>* log;
  int n;
};

TEST_P(GlsTest, ValuesAreDestroyedInReverseOrderOfFirstUse) {
  Run([] {
    std::vector<int> log;
    gls<Noisy> a{[&] { return Noisy(&log, 1); }};
    gls<Noisy> b{[&] { return Noisy(&log, 2); }};
    gls<Noisy> c{[&] { return Noisy(&log, 3); }};
    sync::WaitGroup wg;
    wg.Go([&] {
      b.get();
      a.get();
      c.get();
      b.get();
    });
    wg.Wait();
    EXPECT_EQ(log, (std::vector<int>{3, 1, 2}));
  });
}

// SlowValue returns a value whose destructor parks, and then sets *gone.
std::shared_ptr<void> SlowValue(std::atomic<bool>* gone) {
  return {gone, [gone](void*) {
            for (int i = 0; i < 100; i++) runtime::Gosched();
            *gone = true;
          }};
}

TEST_P(GlsTest, ValuesAreDestroyedBeforeDone) {
  for (const bool exits : {false, true}) {
    Run([exits] {
      std::atomic<bool> gone = false;
      gls<std::shared_ptr<void>> x{[&] { return SlowValue(&gone); }};
      sync::WaitGroup wg;
      wg.Go([&] {
        x.get();
        if (exits) runtime::Goexit();
      });
      wg.Wait();
      EXPECT_TRUE(gone);
    });
  }
}

TEST_P(GlsTest, ValuesOfAGroupAreDestroyedBeforeThePlaceIsFree) {
  for (const bool exits : {false, true}) {
    Run([exits] {
      std::atomic<bool> gone = false;
      gls<std::shared_ptr<void>> x{[&] { return SlowValue(&gone); }};
      sync::ErrGroup group;
      group.SetLimit(1);
      group.Go([&] {
        x.get();
        if (exits) runtime::Goexit();
      });
      group.Go([&] { EXPECT_TRUE(gone); });
      EXPECT_TRUE(group.Wait().ok());
    });
  }
}

TEST_P(GlsTest, ValuesOfAGroupAreDestroyedBeforeWaitReturns) {
  Run([] {
    std::atomic<bool> gone = false;
    gls<std::shared_ptr<void>> x{[&] { return SlowValue(&gone); }};
    sync::ErrGroup group;
    group.Go([&] { x.get(); });
    EXPECT_TRUE(group.Wait().ok());
    EXPECT_TRUE(gone);
  });
}

// The destructor of a value may use another value, as at a goroutine's end.
TEST_P(GlsTest, ValuesThatDestructorsMakeAreDestroyedBeforeDone) {
  Run([] {
    std::atomic<bool> gone = false;
    gls<std::shared_ptr<void>> late{[&] { return SlowValue(&gone); }};
    gls<std::shared_ptr<void>> x{[&] {
      return std::shared_ptr<void>(&gone, [&](void*) { late.get(); });
    }};
    sync::WaitGroup wg;
    wg.Go([&] { x.get(); });
    wg.Wait();
    EXPECT_TRUE(gone);
  });
}

TEST_P(GlsTest, ValuesAreDestroyedAfterGoexit) {
  Run([] {
    auto watched = std::make_shared<int>(0);
    gls<std::shared_ptr<int>> x{watched};
    std::atomic<bool> used = false;
    go([&] {
      x.get();
      used = true;
      runtime::Goexit();
    });
    EXPECT_TRUE(
        testing::Eventually([&] { return used && watched.use_count() == 2; }));
  });
}

TEST_P(GlsTest, DestructorsMayUseOtherValues) {
  Run([] {
    static std::atomic<int> destroyed;
    destroyed = 0;
    static gls<std::string> name{std::string("x")};
    struct UsesName {
      ~UsesName() {
        EXPECT_EQ(*name, "x");  // made anew if need be
        destroyed++;
      }
    };
    static gls<UsesName> user;
    go([] {
      user.get();
      name.get();
    });
    go([] { user.get(); });
    EXPECT_TRUE(testing::Eventually([] { return destroyed == 2; }));
  });
}

TEST_P(GlsTest, ANewVariableNeverSeesAnOldOnesValue) {
  Run([] {
    for (int i = 0; i < 100; i++) {
      gls<int> x{0};  // likely at the address of the last one
      EXPECT_EQ(*x, 0);
      *x = 1;
    }
  });
}

TEST(GlsThreadTest, PlainThreadsHaveValuesToo) {
  auto watched = std::make_shared<int>(0);
  gls<std::shared_ptr<int>> x{watched};
  const auto main_value = x.get();
  std::thread([&] {
    EXPECT_NE(x.get(), main_value);
    EXPECT_EQ(x.get(), x.get());
    EXPECT_EQ(watched.use_count(), 4);
  }).join();
  EXPECT_EQ(watched.use_count(), 3) << "destroyed at the thread's end";
}

}  // namespace
}  // namespace gump
