// All functions of the scheduler, at random and at once: trees of goroutines,
// channels, yields, Goexit, exceptions, blocking calls, bound threads, plain
// threads, changes of GOMAXPROCS, and a stopped world every 10 ms.
//
// tests/testing/stress.h says how to run it longer, or again.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "tests/testing/counted.h"
#include "tests/testing/errno_access.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;
using testing::GetErrno;
using testing::Rng;
using testing::SetErrno;

// Mix is the load. Each piece of work counts itself when it begins and when it
// is complete, and carries a Counted. So work that is lost, done twice or
// leaked shows at the end.
class Mix {
 public:
  explicit Mix(uint64_t seed)
      : seed_(seed),
        end_(std::chrono::steady_clock::now() + testing::StressTime()) {}

  bool Over() const { return std::chrono::steady_clock::now() >= end_; }

  // Root does random work until the time is over.
  void Root(uint64_t who) {
    Rng rng(seed_ + who);
    while (!Over()) Spawn(rng.Next(), 3);
  }

  void Check() const {
    EXPECT_EQ(begun_, finished_);
    EXPECT_EQ(Counted::objects(), 0);
    EXPECT_EQ(wrong_, 0);
  }

 private:
  // Spawn runs one piece of work, which may start others, and waits for it.
  void Spawn(uint64_t seed, int depth) {
    auto done = make_chan<int>(1);
    begun_++;
    go([this, seed, depth, done, life = Counted(1)] {
      struct AtEnd {
        ~AtEnd() {
          m->finished_++;
          done.Send(1);
        }
        Mix* m;
        chan<int> done;
      } at_end{this, done};
      if (!life.full()) wrong_++;
      Work(seed, depth);
    });
    done.Recv();
  }

  void Work(uint64_t seed, int depth) {
    Rng rng(seed);
    const int mark = static_cast<int>(rng.Below(100000)) + 1;
    SetErrno(mark);
    for (uint64_t n = 1 + rng.Below(6); n > 0; n--) {
      Step(rng, depth);
      if (GetErrno() != mark) wrong_++;
    }
  }

  void Step(Rng& rng, int depth) {
    switch (rng.Below(11)) {
      case 0:
        for (uint64_t n = rng.Below(10); n > 0; n--) runtime::Gosched();
        break;
      case 1:
        Pipeline(rng.Below(4), rng.Below(50));
        break;
      case 2:
        if (depth > 0) Tree(rng, depth - 1);
        break;
      case 3:
        Exceptions(rng);
        break;
      case 4:
        if (rng.OneIn(3)) runtime::Goexit();
        break;
      case 5:
        blocking([&] { std::this_thread::yield(); });
        break;
      case 6:
        if (rng.OneIn(4)) Bound(rng);
        break;
      case 7: {
        sync::WaitGroup wg;
        const int before = shared_;
        for (int i = 0; i < 4; i++) {
          wg.Go([this] {
            mu_.Lock();
            shared_ = shared_ + 1;
            mu_.Unlock();
          });
        }
        wg.Wait();
        if (shared_ < before + 4) wrong_++;
        break;
      }
      case 8:
        if (rng.OneIn(8)) runtime::SetFinalizer([life = Life()] {});
        break;
      case 9:
        if (rng.OneIn(8)) runtime::Retire(new Counted(1));
        break;
      default:
        if (rng.OneIn(16)) debug::FreeOSMemory();
        break;
    }
  }

  static std::shared_ptr<Counted> Life() {
    return std::make_shared<Counted>(1);
  }

  void Pipeline(size_t cap, uint64_t n) {
    auto c = make_chan<uint64_t>(cap);
    go([c, n] {
      for (uint64_t i = 0; i < n; i++) c.Send(i);
      c.Close();
    });
    uint64_t sum = 0;
    for (uint64_t v : c) sum += v;
    if (n > 0 && sum != n * (n - 1) / 2) wrong_++;
  }

  void Tree(Rng& rng, int depth) {
    sync::WaitGroup wg;
    for (uint64_t n = rng.Below(4); n > 0; n--) {
      wg.Go([this, seed = rng.Next(), depth] { Work(seed, depth); });
    }
    Spawn(rng.Next(), depth);
    wg.Wait();
  }

  void Exceptions(Rng& rng) {
    struct Parks {
      ~Parks() { runtime::Gosched(); }
    };
    const std::string text = std::to_string(rng.Next());
    try {
      Parks p;
      throw std::runtime_error(text);
    } catch (const std::exception& e) {
      runtime::Gosched();
      if (e.what() != text || std::uncaught_exceptions() != 0) wrong_++;
    }
  }

  void Bound(Rng& rng) {
    sync::WaitGroup wg;
    const bool unlock = !rng.OneIn(3);
    wg.Go([this, unlock] {
      runtime::LockOSThread();
      const long self = syscall(SYS_gettid);
      for (int i = 0; i < 5; i++) {
        runtime::Gosched();
        if (syscall(SYS_gettid) != self) wrong_++;
      }
      if (unlock) runtime::UnlockOSThread();
    });
    wg.Wait();
  }

  const uint64_t seed_;
  const std::chrono::steady_clock::time_point end_;
  std::atomic<int64_t> begun_ = 0, finished_ = 0, wrong_ = 0;
  sync::Mutex mu_;
  std::atomic<int> shared_ = 0;
};

class SchedStressTest : public testing::WithGomaxprocs {};
GUMP_INSTANTIATE_GOMAXPROCS(SchedStressTest);

// Churn starts and ends plain threads that work as well.
void Churn(Mix& mix) {
  while (!mix.Over()) {
    std::thread t = testing::KnownThread([] {
      auto c = make_chan<int>();
      go([c] { c.Send(1); });
      EXPECT_EQ(c.Recv(), 1);
    });
    blocking([&t] { t.join(); });
  }
}

void Resize(Mix& mix, uint64_t seed) {
  Rng rng(seed);
  while (!mix.Over()) {
    runtime::GOMAXPROCS(static_cast<int>(1 + rng.Below(8)));
    blocking([] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
  }
}

void Look(Mix& mix) {
  while (!mix.Over()) {
    EXPECT_FALSE(runtime::Stack(true).empty());
    blocking(
        [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
  }
}

TEST_P(SchedStressTest, AllWorkThatBeginsEndsOnce) {
  const uint64_t seed = testing::StressSeed();
  Mix mix(seed);
  Run([&] {
    sync::WaitGroup wg;
    for (uint64_t i = 0; i < 8; i++) {
      wg.Go([&mix, i] { mix.Root(i); });
    }
    wg.Go([&mix] { Churn(mix); });
    wg.Go([&mix] { Look(mix); });
    wg.Go([&mix, seed] { Resize(mix, seed); });
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 2; i++) {
      threads.push_back(testing::KnownThread([&mix, i] { mix.Root(100 + i); }));
    }
    wg.Wait();
    testing::JoinAll(threads);
    EXPECT_TRUE(testing::Eventually([] { return Counted::objects() == 0; }));
    EXPECT_TRUE(
        testing::Eventually([] { return runtime::NumGoroutine() == 1; }));
  });
  mix.Check();
}

TEST_P(SchedStressTest, RunsFollowEachOtherUnderLoad) {
  const uint64_t seed = testing::StressSeed();
  Mix mix(seed);
  std::atomic<int> roots = 0;
  for (uint64_t i = 0; !mix.Over(); i++) {
    Run([&] {
      if (i < 8) {
        roots++;
        go([&mix, &roots, i] {
          mix.Root(i);
          roots--;
        });
      }
      for (int k = 0; k < 20; k++) runtime::Gosched();
    });
  }
  Run([&] {
    EXPECT_TRUE(testing::Eventually(
        [&] { return roots == 0 && Counted::objects() == 0; }));
  });
  mix.Check();
}

}  // namespace
}  // namespace gump
