// W13: a TCP echo server on one core, its client (loadgen.cc) on the other. We
// measure requests a second, latencies, and the server's CPU time for a
// request. "raw" is a single-threaded epoll loop, written for the comparison.
#include <fcntl.h>
#include <gump/net.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <thread>

#include "tools/bench/echo_client.h"
#include "tools/bench/file_limit.h"
#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

void Serve(const net::Conn& conn) {
  char buf[4096];
  for (;;) {
    const absl::StatusOr<size_t> n = conn.Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0) return;
    if (!conn.Write({buf, *n}).ok()) return;
  }
}

void Goroutines(const Options& o, const std::string& workload,
                int connections) {
  const Beside beside(o);
  const net::Listener l = *net::Listen("tcp", "127.0.0.1:0");
  std::thread client = DriveEcho(o, workload, l.LocalAddr().Port(),
                                 {connections}, [l] { (void)l.Close(); });
  for (;;) {
    const absl::StatusOr<net::Conn> conn = l.Accept();
    if (!conn.ok()) break;
    go([conn = *conn] { Serve(conn); });
  }
  client.join();
}

// Raw uses level-triggered epoll, as most such servers do.
void Raw(const Options& o, const std::string& workload, int connections) {
  const int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* sa = reinterpret_cast<sockaddr*>(&at);
  bind(l, sa, size);
  listen(l, 4096);
  getsockname(l, sa, &size);
  const int ep = epoll_create1(0);
  const auto add = [ep](int fd) {
    epoll_event ev{};
    ev.events = EPOLLIN;
    ev.data.fd = fd;
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
  };
  add(l);
  int stop[2];
  if (pipe(stop) != 0) return;
  add(stop[0]);
  std::thread client = DriveEcho(o, workload, ntohs(at.sin_port), {connections},
                                 [&] { close(stop[1]); });
  std::vector<int> open;
  for (bool running = true; running;) {
    epoll_event events[128];
    const int n = epoll_wait(ep, events, 128, -1);
    for (int i = 0; i < n; i++) {
      const int fd = events[i].data.fd;
      if (fd == stop[0]) {
        running = false;
      } else if (fd == l) {
        const int c = accept4(l, nullptr, nullptr, SOCK_NONBLOCK);
        if (c < 0) continue;
        add(c);
        open.push_back(c);
      } else {
        char buf[4096];
        const ssize_t k = recv(fd, buf, sizeof(buf), 0);
        if (k > 0) {
          (void)send(fd, buf, static_cast<size_t>(k), MSG_NOSIGNAL);
        } else {
          epoll_ctl(ep, EPOLL_CTL_DEL, fd, nullptr);
        }
      }
    }
  }
  client.join();
  for (const int fd : open) close(fd);
  close(l);
  close(ep);
  close(stop[0]);
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  PinTo(0);
  RaiseFileLimit();
  gump::Run([&] {
    for (const int connections : {100, 1000, 5000}) {
      const std::string n = std::to_string(connections);
      for (int r = 0; r < o.reps; r++) {
        if (o.Selected("W13/" + n)) Goroutines(o, "W13/" + n, connections);
        if (o.Selected("W13raw/" + n)) Raw(o, "W13raw/" + n, connections);
      }
    }
  });
}
