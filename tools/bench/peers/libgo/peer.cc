// The workloads with libgo. Blocking calls of the C library are its interface
// to sleep and to sockets: libgo replaces them, and a coroutine that calls one
// waits in it. Stacks have 128 KiB, from malloc, which keeps freed ones.
#include "tools/bench/peers/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "tools/bench/peers/stackful.h"
// The last one, because it defines macros such as go and co_yield.
#include <libgo/libgo.h>

namespace peer {
namespace {

using Done = co_chan<void>;

// Join counts tasks that have ended. The last one wakes the coroutine that
// waits.
class Join {
 public:
  explicit Join(int64_t n) : left_(n) {}
  void Ended() {
    if (left_.fetch_sub(1) != 1) return;
    // A copy, because the coroutine that wakes destroys this object.
    const Done all = all_;
    all << nullptr;
  }
  void Wait() { all_ >> nullptr; }

 private:
  std::atomic<int64_t> left_;
  Done all_ = Done(1);
};

struct Libgo : Stackful<Libgo> {
  using Channel = co_chan<int64_t>;
  using Mutex = co_mutex;

  template <class F>
  static void All(int64_t n, F f) {
    Join join(n);
    for (int64_t i = 0; i < n; i++) {
      go[&join, &f, i] {
        f(i);
        join.Ended();
      };
    }
    join.Wait();
  }

  static void Yield() { co_yield; }
  static void Sleep(std::chrono::nanoseconds d) {
    std::this_thread::sleep_for(d);
  }
};

void Serve(int fd) {
  char buf[4096];
  ssize_t n;
  while ((n = read(fd, buf, sizeof(buf))) > 0 &&
         write(fd, buf, static_cast<size_t>(n)) == n) {
  }
  close(fd);
}

void Echo(const Options& o) {
  for (int r = 0; r < o.reps; r++) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    Check("W13/100, errors of the listener",
          bind(listener, name, size) | listen(listener, 128) |
              getsockname(listener, name, &size),
          0);
    std::thread client = Drive(o, ntohs(address.sin_port),
                               [=] { shutdown(listener, SHUT_RDWR); });
    int fd;
    while ((fd = accept(listener, nullptr, nullptr)) >= 0) {
      go[fd] { Serve(fd); };
    }
    client.join();
    close(listener);
  }
}

}  // namespace
}  // namespace peer

int main(int argc, char** argv) {
  using namespace peer;
  const Options o = ParseOptions(argc, argv);
  KeepFreedStacks();
  co_opt.stack_size = 128 << 10;
  co_sched.goStart(Threads(), Threads());
  std::promise<void> ended;
  go[&] {
    Workloads w = Libgo::Workloads();
    w.echo = Echo;
    Measure(o, w);
    ended.set_value();
  };
  ended.get_future().wait();
  // libgo does not wait for its threads. So the program ends without the
  // destruction of what they use.
  std::_Exit(0);
}
