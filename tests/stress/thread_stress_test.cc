// Goroutines on runtime::Threads, among others, under load. Thousands of them
// use channels, locks, timers and sockets, yield, compute and make calls.
// Meanwhile GOMAXPROCS changes, the world stops, and Threads come and go. In
// every schedule:
// * every goroutine comes to its end,
// * a goroutine of a Thread is always on its thread,
// * no two of them run at the same time,
// * a goroutine of a group is in it, except while it visits a Thread.
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/stress/stress_testing.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using runtime::Thread;
using testing::RandomProcs;
using testing::Rng;

// Place is a Thread with what its goroutines check.
struct Place {
  Thread thread;
  const pid_t tid = thread.Run([] { return gettid(); });
  // Plain, because only one goroutine at a time runs on the thread. A race
  // would lose a count, and ThreadSanitizer sees it.
  int64_t steps = 0;
};

// Shared is what all goroutines of a round use.
struct Shared {
  chan<int> values = make_chan<int>(4);
  sync::Mutex mu;
  int64_t locked_steps = 0;
  std::atomic<int64_t> strays = 0;
  std::atomic<int64_t> sent = 0;
  std::atomic<int64_t> received = 0;
};

// Step does one thing that may wait. place is nullptr for a goroutine that any
// thread may run.
void Step(Shared* s, std::vector<Place>* places, Place* place, Rng* rng) {
  switch (rng->Below(10)) {
    case 0:
    case 1:
      s->values.Send(1);
      s->sent++;
      break;
    case 2:
    case 3:
      s->values.Recv();
      s->received++;
      break;
    case 4:
      s->mu.Lock();
      s->locked_steps++;
      if (rng->OneIn(4)) runtime::Gosched();
      s->mu.Unlock();
      break;
    case 5:
      time::Sleep(absl::Microseconds(rng->Below(200)));
      break;
    case 6:
      runtime::Gosched();
      break;
    case 7:
      blocking([] {});
      break;
    case 8:
      select(Recv(s->values, [&](int) { s->received++; }),
             Recv(time::After(absl::Microseconds(rng->Below(50))), [] {}));
      break;
    default: {
      Place& other = (*places)[rng->Below(places->size())];
      const std::string group(runtime::GroupName());
      const int64_t n = other.thread.Run([&] {
        if (gettid() != other.tid) s->strays++;
        if (!runtime::GroupName().empty()) s->strays++;
        return ++other.steps;
      });
      EXPECT_GT(n, 0);
      if (runtime::GroupName() != group) s->strays++;
      break;
    }
  }
  if (place == nullptr) return;
  if (gettid() != place->tid) s->strays++;
  place->steps++;
}

// Talk exchanges bytes over a socket.
void Talk(net::Conn conn, int rounds, bool first) {
  char byte = 'x';
  for (int i = 0; i < rounds; i++) {
    if (first || i > 0) {
      EXPECT_TRUE(conn.Write({&byte, 1}).ok());
    }
    auto n = conn.Read({&byte, 1});
    if (!n.ok() || *n != 1) {
      ADD_FAILURE() << n.status();
      return;
    }
  }
  if (!first) {
    EXPECT_TRUE(conn.Write({&byte, 1}).ok());
  }
}

void Round(Rng& rng) {
  RandomProcs(rng);
  std::vector<Place> places(1 + rng.Below(4));
  runtime::Group small("small",
                       {.max_procs = 1 + static_cast<int>(rng.Below(2))});
  Shared shared;
  sync::WaitGroup wg, drains;
  const int goroutines = 10 + static_cast<int>(rng.Below(200));
  for (int i = 0; i < goroutines; i++) {
    Place* place = rng.OneIn(4) ? nullptr : &places[rng.Below(places.size())];
    wg.Add(1);
    const bool grouped = place == nullptr && rng.OneIn(2);
    go(GoOptions{.thread = place == nullptr ? nullptr : &place->thread,
                 .group = grouped ? &small : nullptr},
       [&, place, own = Rng(rng.Next())]() mutable {
         for (int n = 0; n < 20; n++) Step(&shared, &places, place, &own);
         wg.Done();
       });
  }
  for (int i = 0; i < 4; i++) {
    auto pipe = net::Pipe();
    ASSERT_TRUE(pipe.ok());
    auto [a, b] = *std::move(pipe);
    wg.Add(2);
    go(GoOptions{.thread = &places[rng.Below(places.size())].thread},
       [&wg, a = a] {
         Talk(a, 10, /*first=*/true);
         wg.Done();
       });
    go([&wg, b = b] {
      Talk(b, 10, /*first=*/false);
      wg.Done();
    });
  }
  // Values and receivers need not be of one number, so others make up for it.
  std::atomic<bool> over = false;
  drains.Go([&] {
    while (!over) {
      select(Recv(shared.values, [] {}), Default([] {}));
      select(Send(shared.values, 1, [] {}), Default([] {}));
      runtime::Gosched();
    }
  });
  // A goroutine of a Thread that computes, beside stops of the world.
  if (rng.OneIn(2)) {
    wg.Add(1);
    go(GoOptions{.thread = &places[0].thread}, [&wg] {
      for (int i = 0; i < 20'000; i++) (void)getppid();
      wg.Done();
    });
  }
  if (rng.OneIn(2)) (void)runtime::Stack(true);
  RandomProcs(rng);
  wg.Wait();
  over = true;
  drains.Wait();
  EXPECT_EQ(shared.strays, 0);
}

TEST(ThreadStress, GoroutinesOfSeveralThreadsAmongOthers) {
  gump::Run([] { testing::StressLoop(Round); });
}

TEST(ThreadStress, VeryManyGoroutinesOfAFewThreads) {
  gump::Run([] {
    Rng rng(testing::StressSeed());
    RandomProcs(rng);
    std::vector<Place> places(4);
    std::vector<chan<int>> in;
    for (size_t i = 0; i < places.size(); i++) in.push_back(make_chan<int>());
    auto out = make_chan<int>();
    constexpr int kPerThread = testing::kManyGoroutines / 40;
    for (size_t i = 0; i < places.size(); i++) {
      for (int n = 0; n < kPerThread; n++) {
        go(GoOptions{.thread = &places[i].thread},
           [c = in[i], out, place = &places[i]]() mutable {
             int v;
             while (c.Recv(v)) {
               place->steps++;
               out.Send(gettid() == place->tid ? v : -1);
             }
             out.Send(0);
           });
      }
    }
    for (int i = 0; i < 2000; i++) {
      in[rng.Below(in.size())].Send(7);
      EXPECT_EQ(*out.Recv(), 7);
    }
    for (chan<int>& c : in) c.Close();
    for (int i = 0; i < 4 * kPerThread; i++) EXPECT_EQ(*out.Recv(), 0);
  });
}

}  // namespace
}  // namespace gump
