// The workloads with Boost.Fiber. With one thread, fibers have the default
// scheduler. With more, each thread has the algorithm work_stealing, and sleeps
// if it finds no work. Stacks are the default ones: 128 KiB, from malloc.
// malloc keeps the memory of freed stacks here. Otherwise it would give that
// back to the kernel after each batch of W1, and W1 would take many times as
// long.
#include "tools/bench/peers/peer.h"

#include <malloc.h>

#include <atomic>
#include <boost/fiber/all.hpp>
#include <memory>

namespace peer {
namespace {

namespace fibers = boost::fibers;
using Group = std::vector<fibers::fiber>;

template <class F>
fibers::fiber Start(F f) {
  return fibers::fiber(fibers::launch::post, std::move(f));
}

void Join(Group& group) {
  for (fibers::fiber& f : group) f.join();
  group.clear();
}

// Workers are the threads beside main that run fibers.
class Workers {
 public:
  explicit Workers(int threads) {
    if (threads < 2) return;
    const auto n = static_cast<uint32_t>(threads);
    for (int i = 1; i < threads; i++) {
      threads_.emplace_back([this, n] {
        fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(n, true);
        std::unique_lock lock(mu_);
        ended_.wait(lock, [this] { return end_; });
      });
    }
    fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(n, true);
  }
  ~Workers() {
    {
      std::unique_lock lock(mu_);
      end_ = true;
    }
    ended_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

 private:
  fibers::mutex mu_;
  fibers::condition_variable ended_;
  bool end_ = false;
  std::vector<std::thread> threads_;
};

int64_t Spawn(int64_t batches) {
  int64_t count = 0;
  Group group;
  for (int64_t b = 0; b < batches; b++) {
    Marks ran(kBatch);
    for (int64_t i = 0; i < kBatch; i++) {
      group.push_back(Start([&ran, i] { ran.Set(i); }));
    }
    Join(group);
    count += ran.Count();
  }
  return count;
}

int64_t Yields(int64_t tasks, int64_t each) {
  std::atomic<int64_t> yields = 0;
  Group group;
  for (int64_t t = 0; t < tasks; t++) {
    group.push_back(Start([&yields, each] {
      for (int64_t i = 0; i < each; i++) boost::this_fiber::yield();
      yields += each;
    }));
  }
  Join(group);
  return yields;
}

int64_t Trips(int64_t n) {
  fibers::unbuffered_channel<int64_t> ping;
  fibers::unbuffered_channel<int64_t> pong;
  fibers::fiber other = Start([&] {
    int64_t v;
    while (ping.pop(v) == fibers::channel_op_status::success) pong.push(v);
    pong.close();
  });
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i++) {
    ping.push(i);
    sum += pong.value_pop();
  }
  ping.close();
  other.join();
  return sum;
}

int64_t Count(int64_t tasks, int64_t each) {
  fibers::mutex mu;
  int64_t counter = 0;
  Group group;
  for (int64_t t = 0; t < tasks; t++) {
    group.push_back(Start([&] {
      for (int64_t i = 0; i < each; i++) {
        const std::lock_guard lock(mu);
        counter++;
      }
    }));
  }
  Join(group);
  return counter;
}

// A node runs each child at once (launch::dispatch). To queue them takes longer
// here.
int64_t Node(int64_t first, int64_t leaves) {
  if (leaves == 1) return first;
  int64_t sums[kFanOut];
  Group group;
  group.reserve(kFanOut);
  for (int i = 0; i < kFanOut; i++) {
    group.emplace_back(fibers::launch::dispatch, [&sums, i, first, leaves] {
      sums[i] = Node(first + i * (leaves / kFanOut), leaves / kFanOut);
    });
  }
  Join(group);
  int64_t sum = 0;
  for (const int64_t s : sums) sum += s;
  return sum;
}

int64_t Tree(int64_t leaves) {
  int64_t sum = 0;
  Start([&] { sum = Node(0, leaves); }).join();
  return sum;
}

void Sleep(int64_t tasks, int64_t* late) {
  Group group;
  for (int64_t t = 0; t < tasks; t++) {
    group.push_back(Start([t, out = late + t * kSleeps] {
      Naps naps(t);
      for (int64_t i = 0; i < kSleeps; i++) {
        const int64_t ns = naps.Next();
        const int64_t due = NowNanos() + ns;
        boost::this_fiber::sleep_for(std::chrono::nanoseconds(ns));
        out[i] = NowNanos() - due;
      }
    }));
  }
  Join(group);
}

}  // namespace
}  // namespace peer

int main(int argc, char** argv) {
  using namespace peer;
  const Options o = ParseOptions(argc, argv);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const Workers workers(Threads());
  SpawnJoin(o, Spawn);
  Yield(o, Yields);
  PingPong(o, Trips);
  Mutex(o, Count);
  Skynet(o, Tree);
  Sleepers(o, Sleep);
}
