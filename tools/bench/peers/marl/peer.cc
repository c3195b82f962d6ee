// The workloads with marl. marl has no yield, no channels and no I/O. So W2 and
// W13 are left out, and W3 passes its values through a variable and two events.
#include "tools/bench/peers/peer.h"

#include <marl/event.h>
#include <marl/mutex.h>
#include <marl/scheduler.h>
#include <marl/waitgroup.h>

namespace peer {
namespace {

// OnWorker runs f on a task and waits for it. The main thread itself only
// waits.
template <class F>
auto OnWorker(F f) {
  decltype(f()) result;
  marl::WaitGroup done(1);
  marl::schedule([&] {
    result = f();
    done.done();
  });
  done.wait();
  return result;
}

int64_t Spawn(int64_t batches) {
  int64_t count = 0;
  for (int64_t b = 0; b < batches; b++) {
    Marks ran(kBatch);
    const marl::WaitGroup wg(kBatch);
    for (int64_t i = 0; i < kBatch; i++) {
      marl::schedule([&ran, wg, i] {
        ran.Set(i);
        wg.done();
      });
    }
    wg.wait();
    count += ran.Count();
  }
  return count;
}

int64_t Trips(int64_t n) {
  const marl::Event ping;
  const marl::Event pong;
  const marl::WaitGroup ended(1);
  int64_t value = 0;
  marl::schedule([&value, ping, pong, ended, n] {
    for (int64_t i = 0; i < n; i++) {
      ping.wait();
      value++;
      pong.signal();
    }
    ended.done();
  });
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i++) {
    value = i - 1;
    ping.signal();
    pong.wait();
    sum += value;
  }
  ended.wait();
  return sum;
}

int64_t Count(int64_t tasks, int64_t each) {
  marl::mutex mu;
  int64_t counter = 0;
  const marl::WaitGroup wg(static_cast<unsigned>(tasks));
  for (int64_t t = 0; t < tasks; t++) {
    marl::schedule([&, wg] {
      for (int64_t i = 0; i < each; i++) {
        const marl::lock lock(mu);
        counter++;
      }
      wg.done();
    });
  }
  wg.wait();
  return counter;
}

int64_t Node(int64_t first, int64_t leaves) {
  if (leaves == 1) return first;
  int64_t sums[kFanOut];
  const marl::WaitGroup wg(kFanOut);
  for (int i = 0; i < kFanOut; i++) {
    marl::schedule([&sums, wg, i, first, leaves] {
      sums[i] = Node(first + i * (leaves / kFanOut), leaves / kFanOut);
      wg.done();
    });
  }
  wg.wait();
  int64_t sum = 0;
  for (const int64_t s : sums) sum += s;
  return sum;
}

// A task sleeps in the wait for an event that is never signalled.
void Sleep(int64_t tasks, int64_t* late) {
  const marl::WaitGroup wg(static_cast<unsigned>(tasks));
  for (int64_t t = 0; t < tasks; t++) {
    marl::schedule([t, wg, out = late + t * kSleeps] {
      const marl::Event never;
      Naps naps(t);
      for (int64_t i = 0; i < kSleeps; i++) {
        const int64_t ns = naps.Next();
        const int64_t due = NowNanos() + ns;
        never.wait_for(std::chrono::nanoseconds(ns));
        out[i] = NowNanos() - due;
      }
      wg.done();
    });
  }
  wg.wait();
}

}  // namespace
}  // namespace peer

int main(int argc, char** argv) {
  using namespace peer;
  const Options o = ParseOptions(argc, argv);
  marl::Scheduler::Config config;
  config.setWorkerThreadCount(Threads());
  marl::Scheduler scheduler(config);
  scheduler.bind();
  SpawnJoin(o, [](int64_t n) { return OnWorker([=] { return Spawn(n); }); });
  PingPong(o, [](int64_t n) { return OnWorker([=] { return Trips(n); }); });
  Mutex(o, Count);
  Skynet(o, [](int64_t n) { return OnWorker([=] { return Node(0, n); }); });
  Sleepers(o, Sleep);
  scheduler.unbind();
}
