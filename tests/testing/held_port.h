// A TCP port of the loopback interface that no other program is given.
#ifndef TESTS_TESTING_HELD_PORT_H_
#define TESTS_TESTING_HELD_PORT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace gump::testing {

// HeldPort is a port on which no program listens, so that connections are
// refused. A port that is merely free may be another program's a moment later.
// The socket of a HeldPort is bound and does not listen. So net::Listen, which
// sets SO_REUSEADDR as well, may take the address, but no program is given the
// port.
class HeldPort {
 public:
  // port 0 means a free one. For other ports see Taken.
  explicit HeldPort(int family = AF_INET, uint16_t port = 0)
      : family_(family), fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    (void)setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET) {
      sockaddr_in at{};
      at.sin_family = AF_INET;
      at.sin_port = htons(port);
      at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      Bind(&at, &at.sin_port);
    } else {
      sockaddr_in6 at{};
      at.sin6_family = AF_INET6;
      at.sin6_port = htons(port);
      at.sin6_addr = IN6ADDR_LOOPBACK_INIT;
      Bind(&at, &at.sin6_port);
    }
    EXPECT_TRUE(port_ != 0 || port != 0);
  }
  ~HeldPort() { close(fd_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  // Taken tells whether another program has the port that was asked for.
  bool Taken() const { return taken_; }
  uint16_t Port() const { return port_; }
  // "127.0.0.1:port" or "[::1]:port".
  std::string Address() const {
    return (family_ == AF_INET ? "127.0.0.1:" : "[::1]:") +
           std::to_string(port_);
  }

 private:
  template <class At>
  void Bind(At* at, const in_port_t* port) {
    auto* address = reinterpret_cast<sockaddr*>(at);
    socklen_t size = sizeof(*at);
    if (bind(fd_, address, size) != 0) {
      taken_ = errno == EADDRINUSE;
      return;
    }
    EXPECT_EQ(getsockname(fd_, address, &size), 0);
    port_ = ntohs(*port);
  }

  const int family_;
  const int fd_;
  uint16_t port_ = 0;
  bool taken_ = false;
};

// HeldPorts is the same port for IPv4 and, where that exists, for IPv6.
class HeldPorts {
 public:
  HeldPorts() {
    do {
      four_ = std::make_unique<HeldPort>(AF_INET);
      six_ = std::make_unique<HeldPort>(AF_INET6, four_->Port());
    } while (six_->Taken());
  }
  const HeldPort& four() const { return *four_; }
  const HeldPort& six() const { return *six_; }

 private:
  std::unique_ptr<HeldPort> four_;
  std::unique_ptr<HeldPort> six_;
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_HELD_PORT_H_
