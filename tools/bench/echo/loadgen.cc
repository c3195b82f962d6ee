// The client of W13, the same for every server. On each of its connections it
// sends a 64-byte message, waits for the answer and then sends the next. It has
// one thread and epoll, and does not use gumption.
//
//   bench_loadgen PORT CONNECTIONS WARMUP_MS MEASURE_MS
//
// It prints "begin" when the warm-up is over. At the end it prints
// "end <requests> <p50 in us> <p99 in us>", the results since "begin".
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t kMessage = 64;

int64_t NowNanos() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

struct Connection {
  int fd = -1;
  size_t received = 0;
  int64_t sent_at = 0;

  void Send() {
    static const char kText[kMessage] = "ping";
    received = 0;
    sent_at = NowNanos();
    if (send(fd, kText, kMessage, MSG_NOSIGNAL) != kMessage) Die("send");
  }
};

int Connect(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  if (fd < 0 ||
      connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    Die("connect");
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s PORT CONNECTIONS WARMUP_MS MEASURE_MS\n",
                 argv[0]);
    return 2;
  }
  rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const auto port = static_cast<uint16_t>(std::atoi(argv[1]));
  std::vector<Connection> connections(static_cast<size_t>(std::atoi(argv[2])));
  const int64_t warmup = int64_t{std::atoi(argv[3])} * 1'000'000;
  const int64_t measure = int64_t{std::atoi(argv[4])} * 1'000'000;
  const int ep = epoll_create1(0);
  for (size_t i = 0; i < connections.size(); i++) {
    connections[i].fd = Connect(port);
    epoll_event ev{};
    ev.events = EPOLLIN;
    ev.data.u64 = i;
    if (epoll_ctl(ep, EPOLL_CTL_ADD, connections[i].fd, &ev) != 0) Die("epoll");
  }
  for (Connection& c : connections) c.Send();
  const int64_t begin = NowNanos() + warmup;
  const int64_t end = begin + measure;
  bool begun = false;
  std::vector<int64_t> latencies;
  latencies.reserve(1 << 20);
  for (;;) {
    epoll_event events[256];
    const int n = epoll_wait(ep, events, 256, 1000);
    if (n <= 0) Die("epoll_wait: the server has stopped answering");
    for (int i = 0; i < n; i++) {
      Connection& c = connections[events[i].data.u64];
      char buf[kMessage];
      const ssize_t k = recv(c.fd, buf, kMessage - c.received, 0);
      if (k <= 0) Die("recv");
      c.received += static_cast<size_t>(k);
      if (c.received < kMessage) continue;
      if (begun) latencies.push_back(NowNanos() - c.sent_at);
      c.Send();
    }
    const int64_t now = NowNanos();
    if (!begun && now >= begin) {
      begun = true;
      std::puts("begin");
      std::fflush(stdout);
    }
    if (now >= end) break;
  }
  std::sort(latencies.begin(), latencies.end());
  const auto micros = [&](size_t percent) {
    return static_cast<double>(latencies[latencies.size() * percent / 100]) /
           1e3;
  };
  std::printf("end %zu %.1f %.1f\n", latencies.size(), micros(50), micros(99));
}
