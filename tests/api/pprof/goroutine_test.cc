// The goroutine profile shows all goroutines as they were at one moment, and
// stops the world only to mark that moment.
//
// The tests read the raw profile (visitGoroutines), which takes microseconds
// where the file with its names takes milliseconds. They know goroutines by
// their labels, which the profile takes at the same time as the stacks.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/internal/linkname_debug.h"
#include "gump/internal/linkname_pprof.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/sync/mutex.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

// Shown is what a profile shows.
struct Shown {
  int all = 0;
  int token = 0;                   // with the label token
  int begun = 0;                   // of these, those that have begun
  std::string value;               // of one of these labels
  std::set<std::string> children;  // values of the label child
  bool whole = false;
};

Shown Take() {
  Shown shown;
  shown.whole = rt::visitGoroutines(
      [](void* arg, const rt::StackRecord& r) {
        auto* to = static_cast<Shown*>(arg);
        to->all++;
        size_t n;
        const rt::Label* labels = rt::labelsIn(r.labels, &n);
        for (size_t i = 0; i < n; i++) {
          if (std::strcmp(labels[i].key, "child") == 0) {
            to->children.insert(labels[i].value);
          } else if (std::strcmp(labels[i].key, "token") == 0) {
            to->token++;
            to->value = labels[i].value;
            if (r.n >= 3) to->begun++;
          }
        }
      },
      &shown);
  return shown;
}

class GoroutineProfileTest : public testing::WithGomaxprocs {
 protected:
  // Run runs f once no goroutine of an earlier test is left. One that has
  // called Done may not have ended when main returned.
  void Run(absl::FunctionRef<void()> f) {
    testing::RunWith(GetParam(), [&] {
      while (Take().all > 1) runtime::Gosched();
      f();
    });
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(GoroutineProfileTest);

template <class F>
void WithLabel(const char* key, const std::string& value, F&& f) {
  pprof::Do(context::Background(), {{key, value}},
            [&](context::Context) { f(); });
}

template <class F>
void WithToken(F&& f) {
  WithLabel("token", "here", std::forward<F>(f));
}

// Ring is a ring of goroutines that hand a token on until Stop.
class Ring {
 public:
  // With `overlap` the new holder has the token before the old one gives it up,
  // and hands it on only when that one has done so. Otherwise the old one gives
  // it up first.
  Ring(int n, bool overlap) : places_(static_cast<size_t>(n)) {
    for (size_t i = 0; i < places_.size(); i++) {
      wg_.Go([this, i, overlap] { overlap ? Overlap(i) : Exclude(i); });
    }
    places_[0].token.Send(true);
    if (!overlap) return;
    (void)places_[0].taken.Recv();
    places_[0].left.Send(true);
  }
  // Stop ends the goroutines.
  void Stop() {
    stop_ = true;
    wg_.Wait();
  }
  int64_t passes() const { return passes_; }

 private:
  struct Place {
    chan<bool> token = make_chan<bool>();
    chan<bool> taken = make_chan<bool>();
    chan<bool> left = make_chan<bool>();
  };

  void Overlap(size_t i) {
    const Place& next = places_[(i + 1) % places_.size()];
    while (places_[i].token.Recv().has_value()) {
      bool last = false;
      WithToken([&] {
        places_[i].taken.Send(true);
        (void)places_[i].left.Recv();
        passes_++;
        last = stop_;
        if (last) return;
        next.token.Send(true);
        (void)next.taken.Recv();
      });
      if (last) {
        CloseAll();
      } else {
        next.left.Send(true);
      }
    }
  }

  void Exclude(size_t i) {
    const Place& next = places_[(i + 1) % places_.size()];
    while (places_[i].token.Recv().has_value()) {
      WithToken([&] { passes_++; });
      if (stop_) {
        CloseAll();
      } else {
        next.token.Send(true);
      }
    }
  }

  void CloseAll() {
    for (const Place& p : places_) p.token.Close();
  }

  std::vector<Place> places_;
  std::atomic<int64_t> passes_{0};
  std::atomic<bool> stop_{false};
  sync::WaitGroup wg_;
};

// ProfilesDuring takes profiles until f() has been true for all of them, the
// time of a stress test has passed, and `passes` has grown.
template <class Passes, class Check>
void ProfilesDuring(const Passes& passes, const Check& check) {
  const int64_t before = passes();
  const auto end = std::chrono::steady_clock::now() + testing::StressTime();
  do {
    const Shown s = Take();
    ASSERT_TRUE(s.whole);
    check(s);
    if (::testing::Test::HasFailure()) return;
    runtime::Gosched();
  } while (std::chrono::steady_clock::now() < end || passes() == before);
}

TEST_P(GoroutineProfileTest, TokenIsNeverNowhere) {
  Run([] {
    Ring ring(100, /*overlap=*/true);
    ProfilesDuring([&] { return ring.passes(); },
                   [](const Shown& s) {
                     EXPECT_GE(s.token, 1);
                     EXPECT_LE(s.token, 2);
                     EXPECT_EQ(s.all, 101);
                   });
    ring.Stop();
  });
}

TEST_P(GoroutineProfileTest, TokenIsNeverInTwoPlaces) {
  Run([] {
    Ring ring(100, /*overlap=*/false);
    ProfilesDuring([&] { return ring.passes(); },
                   [](const Shown& s) {
                     EXPECT_LE(s.token, 1);
                     EXPECT_EQ(s.all, 101);
                   });
    ring.Stop();
  });
}

// Awake returns how many goroutines with the label `ring` do not wait.
int Awake() {
  int awake = 0;
  const uint64_t lost = rt::visitGoroutineInfos(
      [](void* arg, const rt::GoroutineInfo& info) {
        size_t n;
        const rt::Label* labels = rt::labelsIn(info.labels, &n);
        for (size_t i = 0; i < n; i++) {
          *static_cast<int*>(arg) += std::strcmp(labels[i].key, "ring") == 0 &&
                                     std::strcmp(info.state, "waiting") != 0;
        }
      },
      &awake);
  EXPECT_EQ(lost, 0U);
  return awake;
}

// The token wakes one goroutine after the other while they are visited. So many
// would seem to be awake, if states were those of the visit. At one moment the
// holder is awake, the one before and the one behind it, and few that have been
// preempted before they could park.
TEST_P(GoroutineProfileTest, StatesAreOfOneMoment) {
  Run([] {
    constexpr int kMembers = 1000;
    WithLabel("ring", "member", [] {
      Ring ring(kMembers, /*overlap=*/false);
      while (ring.passes() < kMembers) runtime::Gosched();  // all have begun
      int most = 0;
      ProfilesDuring([&] { return ring.passes(); },
                     [&](const Shown&) { most = std::max(most, Awake()); });
      ring.Stop();
      EXPECT_LE(most, 20);
    });
  });
}

TEST_P(GoroutineProfileTest, ProfileByAPlainThreadIsOfOneMomentToo) {
  Run([] {
    Ring ring(100, /*overlap=*/true);
    std::atomic<bool> over{false};
    std::thread thread([&] {
      ProfilesDuring([&] { return ring.passes(); },
                     [](const Shown& s) {
                       EXPECT_GE(s.token, 1);
                       EXPECT_LE(s.token, 2);
                       EXPECT_EQ(s.all, 101);  // with main, without the thread
                     });
      over = true;
    });
    while (!over) runtime::Gosched();
    thread.join();
    ring.Stop();
  });
}

// A goroutine gives up the token, and then starts goroutines that have its
// number. So no profile shows the token and a goroutine with its number.
TEST_P(GoroutineProfileTest, GoroutinesThatBeginLaterAreNotShown) {
  Run([] {
    std::atomic<bool> stop{false};
    std::atomic<int64_t> rounds{0};
    sync::WaitGroup wg;
    // These make the visit last.
    chan<bool> idle = make_chan<bool>();
    for (int i = 0; i < 200; i++) wg.Go([idle] { (void)idle.Recv(); });
    wg.Go([&] {
      for (; !stop; rounds++) {
        const std::string number = std::to_string(rounds);
        WithLabel("token", number, [] { runtime::Gosched(); });
        WithLabel("child", number, [] {
          for (int i = 0; i < 20; i++) go([] {});
        });
      }
    });
    ProfilesDuring([&] { return rounds.load(); },
                   [](const Shown& s) {
                     EXPECT_LE(s.token, 1);
                     EXPECT_FALSE(s.children.contains(s.value)) << s.value;
                   });
    stop = true;
    idle.Close();
    wg.Wait();
  });
}

// The goroutine that takes a profile yields when its slice is over, and when
// the world is to stop.
TEST(GoroutineProfileTurnTest, OthersRunWhileAProfileIsTaken) {
  testing::RunWith(1, [] {
    constexpr int kMany = testing::kManyGoroutines / 2;
    chan<bool> c = make_chan<bool>();
    std::atomic<bool> taking = false;
    std::atomic<bool> done = false;
    std::atomic<int> turns = 0;
    sync::WaitGroup wg;
    wg.Go([&] {
      while (!done) {
        if (taking) turns++;
        runtime::Gosched();
      }
    });
    // The stop at the beginning gives the other goroutine a turn in any case.
    // On a fast machine, a profile of few goroutines may end within a slice.
    for (int round = 0; round < 5 && turns < 3; round++) {
      for (int i = 0; i < kMany; i++) wg.Go([c] { (void)c.Recv(); });
      runtime::Gosched();
      turns = 0;
      taking = true;
      EXPECT_TRUE(Take().whole);
      taking = false;
    }
    EXPECT_GE(turns, 3);
    done = true;
    c.Close();
    wg.Wait();
  });
}

// A goroutine that takes a profile when main returns goes on with the next Run.
TEST(GoroutineProfileTurnTest, PlainThreadWaitsForNoProfileOfAnEndedRun) {
  chan<bool> c = make_chan<bool>();
  gump::Run([&] {
    for (int i = 0; i < testing::kManyGoroutines / 2; i++) {
      go([c] { (void)c.Recv(); });
    }
    runtime::Gosched();
  });
  std::atomic<bool> stop = false;
  std::atomic<bool> stopped = false;
  for (int i = 0; i < 10; i++) {
    gump::Run([&] {
      if (i == 0) {
        go([&] {
          while (!stop) (void)Take();
          stopped = true;
        });
      }
      time::Sleep(absl::Milliseconds(20));
    });
    EXPECT_TRUE(Take().whole);
  }
  gump::Run([&] {
    stop = true;
    c.Close();
    while (!stopped || runtime::NumGoroutine() > 1) runtime::Gosched();
  });
}

// This includes a goroutine that is preempted in place, is in a declared call,
// or is locked to its thread. A goroutine in a call is shown without its
// labels. One that computes may count as such: if it is stopped just when its
// thread wakes, it is presumed blocked.
TEST_P(GoroutineProfileTest, GoroutinesInAllStatesAreShownOnce) {
  Run([] {
    std::atomic<bool> stop{false};
    sync::WaitGroup wg;
    std::atomic<int> ready{0};
    chan<bool> c = make_chan<bool>();
    WithLabel("child", "computes", [&] {
      wg.Go([&] {  // so it is preempted in place
        ready++;
        while (!stop) {
        }
      });
    });
    WithLabel("child", "yields", [&] {
      wg.Go([&] {
        ready++;
        while (!stop) runtime::Gosched();
      });
    });
    WithLabel("child", "is locked", [&] {
      wg.Go([&] {
        runtime::LockOSThread();
        ready++;
        while (!stop) time::Sleep(std::chrono::microseconds(1));
        runtime::UnlockOSThread();
      });
    });
    WithLabel("child", "waits", [&] {
      wg.Go([&] {
        ready++;
        (void)c.Recv();
      });
    });
    wg.Go([&] {  // is in calls, where its labels are not shown
      ready++;
      while (!stop) {
        blocking(
            [] { std::this_thread::sleep_for(std::chrono::microseconds(50)); });
      }
    });
    wg.Go([&] {  // is presumed blocked
      ready++;
      while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    while (ready < 6) runtime::Gosched();
    int64_t profiles = 0;
    ProfilesDuring(
        [&] { return ++profiles; },
        [](Shown s) {
          EXPECT_EQ(s.all, 7);
          s.children.erase("computes");
          EXPECT_EQ(s.children,
                    (std::set<std::string>{"is locked", "waits", "yields"}));
        });
    stop = true;
    c.Close();
    wg.Wait();
  });
}

constexpr int kParked = 50;

// Profiles, dumps, reclamation cycles and changes of GOMAXPROCS disturb neither
// one another nor the goroutines.
TEST_P(GoroutineProfileTest, ProfilesBesideAllThatStopsTheWorldAreWhole) {
  const int procs = GetParam();
  Run([procs] {
    std::atomic<bool> stop{false};
    sync::WaitGroup wg;
    std::atomic<int64_t> work{0};
    chan<bool> c = make_chan<bool>();
    WithToken([&] {
      for (int i = 0; i < kParked; i++) wg.Go([c] { (void)c.Recv(); });
    });
    while (Take().begun < kParked) runtime::Gosched();
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        while (!stop) {
          sync::WaitGroup inner;
          chan<int> ch = make_chan<int>();
          inner.Go([ch] { ch.Send(1); });
          inner.Go([ch] { (void)ch.Recv(); });
          inner.Go([] { runtime::Gosched(); });
          inner.Wait();
          work++;
        }
      });
    }
    wg.Go([&] {
      for (int n = 1; !stop; n++) {
        (void)runtime::Stack(true);
        runtime::GC();
        runtime::GOMAXPROCS(n % 2 == 0 ? procs : procs + 1);
        runtime::Gosched();
      }
      runtime::GOMAXPROCS(procs);
    });
    std::thread thread([&] {
      while (!stop) {
        const Shown s = Take();
        EXPECT_TRUE(s.whole);
        EXPECT_EQ(s.token, kParked);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    ProfilesDuring([&] { return work.load(); },
                   [](const Shown& s) {
                     EXPECT_EQ(s.token, kParked);
                     EXPECT_EQ(s.begun, kParked);
                   });
    stop = true;
    blocking([&] { thread.join(); });
    c.Close();
    wg.Wait();
  });
}

}  // namespace
}  // namespace gump
