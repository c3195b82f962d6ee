// The client of CONNS, the same for every server. It has one thread and epoll,
// and does not use gumption.
//
//   bench_dialer PORT COUNT AT_ONCE
//
// It makes COUNT connections, AT_ONCE of them at a time. On each a byte goes to
// the server and back, and then the client resets the connection. At the end it
// prints "end <connections> <ns>".
//
// If AT_ONCE is 0, the connections stay open. The client prints "idle", and
// ends when the server closes the first connection.
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tools/bench/file_limit.h"

namespace {

int64_t NowNanos() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

sockaddr_in to{};

int Connect(int flags) {
  const int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
  if (fd < 0) Die("socket");
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0 &&
      errno != EINPROGRESS) {
    Die("connect");
  }
  return fd;
}

void Hold(int count) {
  std::vector<int> fds;
  char c = 'x';
  for (int i = 0; i < count; i++) {
    fds.push_back(Connect(0));
    if (send(fds.back(), &c, 1, MSG_NOSIGNAL) != 1) Die("send");
    if (recv(fds.back(), &c, 1, 0) != 1) Die("recv");
  }
  std::puts("idle");
  std::fflush(stdout);
  (void)recv(fds.front(), &c, 1, 0);
}

void Churn(int count, int at_once) {
  const int ep = epoll_create1(0);
  const int64_t start = NowNanos();
  int begun = 0;
  const auto begin = [&] {
    if (begun == count) return;
    begun++;
    epoll_event ev{};
    ev.events = EPOLLOUT;
    ev.data.fd = Connect(SOCK_NONBLOCK);
    if (epoll_ctl(ep, EPOLL_CTL_ADD, ev.data.fd, &ev) != 0) Die("epoll_ctl");
  };
  while (begun < at_once) begin();
  for (int done = 0; done < count;) {
    epoll_event events[256];
    const int n = epoll_wait(ep, events, 256, 5000);
    if (n <= 0) Die("epoll_wait: the server has stopped answering");
    for (int i = 0; i < n; i++) {
      const int fd = events[i].data.fd;
      char c = 'x';
      if ((events[i].events & EPOLLOUT) != 0) {
        if (send(fd, &c, 1, MSG_NOSIGNAL) != 1) Die("send");
        events[i].events = EPOLLIN;
        epoll_ctl(ep, EPOLL_CTL_MOD, fd, &events[i]);
        continue;
      }
      if (recv(fd, &c, 1, 0) != 1) Die("recv");
      const linger reset{1, 0};  // leaves no TIME_WAIT
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
      close(fd);
      done++;
      begin();
    }
  }
  std::printf("end %d %lld\n", count,
              static_cast<long long>(NowNanos() - start));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s PORT COUNT AT_ONCE\n", argv[0]);
    return 2;
  }
  gump::bench::RaiseFileLimit();
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[1])));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int count = std::atoi(argv[2]);
  const int at_once = std::atoi(argv[3]);
  at_once == 0 ? Hold(count) : Churn(count, at_once);
}
