// The workloads with Boost.Fiber. With one thread, fibers have the default
// scheduler. With more, each thread has the algorithm work_stealing, and sleeps
// if it finds no work. Stacks are the default ones: 128 KiB, from malloc.
#include "tools/bench/peers/peer.h"

#include <boost/fiber/all.hpp>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/bench/peers/stackful.h"

namespace peer {
namespace {

namespace fibers = boost::fibers;

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

class Channel {
 public:
  void operator<<(int64_t v) { values_.push(v); }
  void operator>>(int64_t& v) { v = values_.value_pop(); }

 private:
  fibers::unbuffered_channel<int64_t> values_;
};

template <class F>
void Join(fibers::launch when, int64_t n, F f) {
  std::vector<fibers::fiber> group;
  group.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) {
    group.emplace_back(when, [&f, i] { f(i); });
  }
  for (fibers::fiber& task : group) task.join();
}

struct BoostFiber : Stackful<BoostFiber> {
  using Channel = peer::Channel;
  using Mutex = fibers::mutex;

  template <class F>
  static void All(int64_t n, F f) {
    Join(fibers::launch::post, n, f);
  }

  // A node runs each child at once. To queue them takes longer here.
  template <class F>
  static void Children(bool /*root*/, int64_t n, F f) {
    Join(fibers::launch::dispatch, n, f);
  }

  static void Yield() { boost::this_fiber::yield(); }
  static void Sleep(std::chrono::nanoseconds d) {
    boost::this_fiber::sleep_for(d);
  }
};

}  // namespace
}  // namespace peer

int main(int argc, char** argv) {
  using namespace peer;
  const Options o = ParseOptions(argc, argv);
  KeepFreedStacks();
  const Workers workers(Threads());
  Measure(o, BoostFiber::Workloads());
}
