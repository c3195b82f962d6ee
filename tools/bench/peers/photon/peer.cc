// The workloads with PhotonLibOS. A task stays on the thread where the program
// puts it, so the program spreads tasks over the threads in turn. Stacks have
// 128 KiB, and the library keeps freed ones.
#include "tools/bench/peers/peer.h"

#include <photon/common/alog.h>
#include <photon/net/socket.h>
#include <photon/photon.h>
#include <photon/thread/go.h>
#include <photon/thread/workerpool.h>

#include <memory>

#include "tools/bench/peers/stackful.h"

namespace peer {
namespace {

constexpr uint64_t kStack = 128 << 10;

// The threads beside main that run tasks.
std::unique_ptr<photon::WorkPool> others;

template <class F>
photon::thread* Start(F f) {
  photon::thread* const task = photon::go(kStack, std::move(f));
  photon::thread_enable_join(task);
  return task;
}

void Join(const std::vector<photon::thread*>& tasks) {
  for (photon::thread* t : tasks) {
    photon::thread_join(reinterpret_cast<photon::join_handle*>(t));
  }
}

struct Photon : Stackful<Photon> {
  using Channel = photon::channel<int64_t>;
  using Mutex = photon::mutex;

  template <class F>
  static void All(int64_t n, F f) {
    std::vector<photon::thread*> tasks;
    for (int64_t i = 0; i < n; i++) {
      tasks.push_back(Start([&f, i] { f(i); }));
      const auto thread = static_cast<size_t>(i % Threads());
      if (thread == 0) continue;
      Check("thread_migrate", others->thread_migrate(tasks.back(), thread - 1),
            0);
    }
    Join(tasks);
  }

  // The children of the root are on all threads. The other nodes run each child
  // at once, so few stacks exist at a time.
  template <class F>
  static void Children(bool root, int64_t n, F f) {
    if (root) return All(n, f);
    std::vector<photon::thread*> tasks;
    for (int64_t i = 0; i < n; i++) {
      tasks.push_back(Start([&f, i] { f(i); }));
      photon::thread_yield_to(tasks.back());
    }
    Join(tasks);
  }

  static void Yield() { photon::thread_yield(); }
  // Photon reads its clock now and then, and cuts it to whole microseconds.
  // Some sleeps end early without __update_now(), and some without the + 1.
  static void Sleep(std::chrono::nanoseconds d) {
    photon::__update_now();
    const auto micros = std::chrono::ceil<std::chrono::microseconds>(d).count();
    photon::thread_usleep(static_cast<uint64_t>(micros) + 1);
  }
};

void Serve(photon::net::ISocketStream* socket) {
  char buf[4096];
  ssize_t n;
  while ((n = socket->recv(buf, sizeof(buf))) > 0 &&
         socket->write(buf, static_cast<size_t>(n)) == n) {
  }
}

void Echo(const Options& o) {
  for (int r = 0; r < o.reps; r++) {
    photon::semaphore ended;
    auto handler = [&ended](photon::net::ISocketStream* socket) {
      Serve(socket);
      ended.signal(1);
      return 0;
    };
    const std::unique_ptr<photon::net::ISocketServer> server(
        photon::net::new_tcp_socket_server());
    server->set_handler(handler);
    Check("W13/100, errors of the listener",
          server->bind_v4localhost() | server->listen() | server->start_loop(),
          0);
    photon::semaphore done;
    std::thread client =
        Drive(o, server->getsockname().port, [&] { done.signal(1); });
    done.wait(1);
    ended.wait(kConnections);
    client.join();
  }
}

}  // namespace
}  // namespace peer

int main(int argc, char** argv) {
  using namespace peer;
  const Options o = ParseOptions(argc, argv);
  set_log_output(log_output_stderr);
  set_log_output_level(ALOG_WARN);
  photon::PhotonOptions options;
  options.use_pooled_stack_allocator = photon::STACK_ALLOCATOR_POOLED;
  Check("photon::init",
        photon::init(photon::INIT_EVENT_EPOLL, photon::INIT_IO_NONE, options),
        0);
  if (Threads() > 1) {
    others = std::make_unique<photon::WorkPool>(Threads() - 1,
                                                photon::INIT_EVENT_EPOLL);
  }
  Workloads w = Photon::Workloads();
  // A trip between threads takes many times as long as one on a thread.
  if (Threads() > 1) w.divide_trips = 20;
  w.echo = Echo;
  Measure(o, w);
  others.reset();
  photon::fini();
}
