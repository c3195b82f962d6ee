// The workloads with marl. marl has no yield, no channels and no I/O. So W2 and
// W13 are left out, and W3 passes each value through a variable and an event.
#include "tools/bench/peers/peer.h"

#include <marl/event.h>
#include <marl/mutex.h>
#include <marl/scheduler.h>
#include <marl/waitgroup.h>

#include "tools/bench/peers/stackful.h"

namespace peer {
namespace {

// A channel is a variable and an event.
class Channel {
 public:
  void operator<<(int64_t v) {
    value_ = v;
    ready_.signal();
  }
  void operator>>(int64_t& v) {
    ready_.wait();
    v = value_;
  }

 private:
  int64_t value_ = 0;
  marl::Event ready_;
};

struct Marl : Stackful<Marl> {
  using Channel = peer::Channel;
  using Mutex = marl::mutex;

  template <class F>
  static void All(int64_t n, F f) {
    const marl::WaitGroup wg(static_cast<unsigned>(n));
    for (int64_t i = 0; i < n; i++) {
      marl::schedule([&f, wg, i] {
        f(i);
        wg.done();
      });
    }
    wg.wait();
  }

  // A task sleeps in the wait for an event that is never signalled.
  static void Sleep(std::chrono::nanoseconds d) {
    const marl::Event never;
    never.wait_for(d);
  }
};

}  // namespace
}  // namespace peer

int main(int argc, char** argv) {
  using namespace peer;
  const Options o = ParseOptions(argc, argv);
  marl::Scheduler::Config config;
  config.setWorkerThreadCount(Threads());
  marl::Scheduler scheduler(config);
  scheduler.bind();
  // The main thread only waits.
  Marl::All(1, [&o](int64_t) { Measure(o, Marl::Workloads()); });
  scheduler.unbind();
}
