// LOOP: how much CPU time io_uring could save a server over epoll. It runs the
// same server with a goroutine for each connection, and as a loop of one thread
// without a runtime, in each form of raw_server.h. The server is on one
// processor and its client on the other, as in W13. The names are
// LOOP/<shape>/<server>/<connections>.
//
// The shapes:
//   echo    a message of 64 bytes on each connection
//   big     a message of 64 KiB on each connection
//   few     a message of 64 bytes on 50 of the connections, in turn
//   accept  a connection for each message
//   http    a request of wrk on each connection; the answer is always the same
//
// decisions/024-sockets-stay-with-epoll.md has the figures.
#include <gump/net.h>
#include <gump/runtime.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "tools/bench/echo_client.h"
#include "tools/bench/file_limit.h"
#include "tools/bench/harness.h"
#include "tools/bench/raw_server.h"
#include "tools/bench/wrk.h"

namespace gump::bench {
namespace {

constexpr std::string_view kAnswer =
    "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World!";

struct Shape {
  std::string name;
  Load load;
  size_t buffer;  // as RawJob::buffer
  bool http = false;
};

// Client runs the client of the shape on a thread of its own, and calls `done`.
std::thread Client(const Options& o, const std::string& workload, int port,
                   const Shape& shape, std::function<void()> done,
                   const std::atomic<uint64_t>* calls) {
  if (!shape.http) {
    return DriveEcho(o, workload, port, shape.load, std::move(done), calls);
  }
  return std::thread([=, &o, connections = shape.load.connections] {
    (void)Wrk(port, connections, 1);
    const int64_t cpu = CpuNanos();
    const std::string said = Wrk(port, connections, o.Scaled(3));
    Report(workload, said, static_cast<double>(CpuNanos() - cpu));
    done();
  });
}

void Goroutines(const Options& o, const std::string& workload,
                const Shape& shape) {
  const net::Listener l = *net::Listen("tcp", "127.0.0.1:0");
  std::thread client = Client(
      o, workload, l.LocalAddr().Port(), shape, [l] { (void)l.Close(); },
      /*calls=*/nullptr);
  const auto serve = [&shape](const net::Conn& conn) {
    char buf[65536];
    for (;;) {
      const auto n = conn.Read(absl::MakeSpan(buf, shape.buffer));
      if (!n.ok() || *n == 0) break;
      if (!conn.Write(shape.http ? kAnswer : std::string_view(buf, *n)).ok()) {
        break;
      }
    }
    (void)conn.Close();
  };
  for (;;) {
    const absl::StatusOr<net::Conn> conn = l.Accept();
    if (!conn.ok()) break;
    go([conn = *conn, serve] { serve(conn); });
  }
  blocking([&] { client.join(); });
}

// Raw runs `serve` with a listener, on a thread that does not use the library.
// The caller's goroutine waits in a declared call, so the runtime sleeps.
void Raw(const Options& o, const std::string& workload, const Shape& shape,
         const std::function<void(const RawJob&)>& serve) {
  const int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* sa = reinterpret_cast<sockaddr*>(&at);
  int stop[2];
  if (bind(l, sa, size) != 0 || listen(l, 4096) != 0 ||
      getsockname(l, sa, &size) != 0 || pipe(stop) != 0) {
    std::perror("loops: no listener");
    std::exit(1);
  }
  std::atomic<uint64_t> calls = 0;
  const RawJob job{l, stop[0], shape.buffer, shape.http ? kAnswer : "", &calls};
  std::thread client = Client(
      o, workload, ntohs(at.sin_port), shape, [&] { close(stop[1]); }, &calls);
  std::thread server([&] { serve(job); });
  blocking([&] {
    server.join();
    client.join();
  });
  close(l);
  close(stop[0]);
}

void Measure(const Options& o, const Shape& shape) {
  const auto name = [&](const std::string& server) {
    return "LOOP/" + shape.name + "/" + server + "/" +
           std::to_string(shape.load.connections);
  };
  if (o.Selected(name("goroutines"))) {
    Goroutines(o, name("goroutines"), shape);
  }
  for (const auto& [server, form] :
       {std::pair{"epoll", EpollForm::kLevel},
        std::pair{"epoll-edge", EpollForm::kEdge},
        std::pair{"epoll-again", EpollForm::kAgain},
        std::pair{"epoll-batch", EpollForm::kBatch}}) {
    if (!o.Selected(name(server))) continue;
    Raw(o, name(server), shape,
        [form = form](const RawJob& job) { ServeEpoll(job, form); });
  }
  for (const UringForm& form : UringForms()) {
    if (!o.Selected(name(form.name))) continue;
    Raw(o, name(form.name), shape, [&](const RawJob& job) {
      if (ServeUring(job, form)) return;
      std::fprintf(stderr, "loops: the kernel has no ring for %s\n",
                   form.name.c_str());
      std::exit(1);
    });
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  PinTo(0);
  RaiseFileLimit();
  std::vector<Shape> shapes;
  for (const int n : {100, 1000, 5000}) {
    shapes.push_back({"echo", {n}, 4096});
  }
  shapes.push_back({"big", {100, 65536}, 65536});
  shapes.push_back({"few", {5000, 64, 50}, 4096});
  shapes.push_back({"accept", {100, 64, 100, 1}, 4096});
  shapes.push_back({"http", {100}, 4096, true});
  gump::Run([&] {
    for (int r = 0; r < o.reps; r++) {
      for (const Shape& shape : shapes) Measure(o, shape);
    }
  });
}
