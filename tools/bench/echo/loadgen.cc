// The client of W13, the same for every server. On each of its connections it
// sends a 64-byte message, waits for the answer and then sends the next. It has
// one thread and epoll, and does not use gumption.
//
//   bench_loadgen PORT CONNECTIONS WARMUP_MS MEASURE_MS [BYTES [ACTIVE [EACH]]]
//
// With BYTES, a message has so many bytes instead of 64. With ACTIVE, only so
// many connections have a message under way at a time: after an answer, the
// next connection that is idle sends. With EACH, the client resets a connection
// after so many messages, and opens another in its place.
//
// It prints "begin" when the warm-up is over. At the end it prints
// "end <requests> <p50 in us> <p99 in us>", the results since "begin".
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "tools/bench/file_limit.h"

namespace {

size_t message = 64;
std::vector<char> text;
std::vector<char> buf;

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
  int messages = 0;

  void Send() {
    received = 0;
    messages++;
    sent_at = NowNanos();
    if (send(fd, text.data(), message, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(message)) {
      Die("send");
    }
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

void Watch(int ep, int fd, size_t connection) {
  epoll_event ev{};
  ev.events = EPOLLIN;
  ev.data.u64 = connection;
  if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) != 0) Die("epoll");
}

// Reset closes a connection so that its port is free at once.
void Reset(int fd) {
  const linger now{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 8) {
    std::fprintf(stderr,
                 "usage: %s PORT CONNECTIONS WARMUP_MS MEASURE_MS "
                 "[BYTES [ACTIVE [EACH]]]\n",
                 argv[0]);
    return 2;
  }
  gump::bench::RaiseFileLimit();
  const auto port = static_cast<uint16_t>(std::atoi(argv[1]));
  std::vector<Connection> connections(static_cast<size_t>(std::atoi(argv[2])));
  const int64_t warmup = int64_t{std::atoi(argv[3])} * 1'000'000;
  const int64_t measure = int64_t{std::atoi(argv[4])} * 1'000'000;
  if (argc > 5) message = static_cast<size_t>(std::atoi(argv[5]));
  text.assign(message, 'p');
  buf.resize(message);
  size_t active = connections.size();
  if (argc > 6) active = static_cast<size_t>(std::atoi(argv[6]));
  const int each = argc > 7 ? std::atoi(argv[7]) : 0;
  const int ep = epoll_create1(0);
  for (size_t i = 0; i < connections.size(); i++) {
    connections[i].fd = Connect(port);
    Watch(ep, connections[i].fd, i);
  }
  // The connections without a message under way. The first one sends next.
  std::deque<size_t> idle;
  for (size_t i = 0; i < connections.size(); i++) {
    if (i < active) {
      connections[i].Send();
    } else {
      idle.push_back(i);
    }
  }
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
      const size_t index = events[i].data.u64;
      Connection& c = connections[index];
      const ssize_t k = recv(c.fd, buf.data(), message - c.received, 0);
      if (k <= 0) Die("recv");
      c.received += static_cast<size_t>(k);
      if (c.received < message) continue;
      if (begun) latencies.push_back(NowNanos() - c.sent_at);
      if (each != 0 && c.messages >= each) {
        Reset(c.fd);
        c = Connection();
        c.fd = Connect(port);
        Watch(ep, c.fd, index);
      }
      size_t next = index;
      if (!idle.empty()) {
        next = idle.front();
        idle.pop_front();
        idle.push_back(index);
      }
      connections[next].Send();
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
