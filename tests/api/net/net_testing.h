// Helpers for tests of connections.
#ifndef TESTS_API_NET_NET_TESTING_H_
#define TESTS_API_NET_NET_TESTING_H_

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "gump/net.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

// ReadSome reads once, at most so many bytes.
inline std::string ReadSome(const net::Conn& c, size_t most) {
  std::string buf(most, '\0');
  buf.resize(Ready(c.Read(absl::MakeSpan(buf.data(), most))));
  return buf;
}

// ReadAll reads to the end of the stream.
inline std::string ReadAll(const net::Conn& c) {
  std::string all;
  for (;;) {
    const std::string part = ReadSome(c, 100'000);
    if (part.empty()) return all;
    all += part;
  }
}

// ReadExactly reads n bytes, or fewer at the end of the stream.
inline std::string ReadExactly(const net::Conn& c, size_t n) {
  std::string all(n, '\0');
  for (size_t at = 0; at < n;) {
    const size_t k = Ready(c.Read(absl::MakeSpan(&all[at], n - at)));
    EXPECT_NE(k, 0u) << "end after " << at << " of " << n;
    if (k == 0) return all.substr(0, at);
    at += k;
  }
  return all;
}

// Abstract is a unix address of this process alone.
inline std::string Abstract(const std::string& name) {
  return "@gump-" + std::to_string(getpid()) + "-" + name;
}

// Pair is a connection, where `a` is the end that dialled.
struct Pair {
  explicit Pair(const std::string& network = "tcp") {
    const net::Listener l = Ready(net::Listen(
        network, network == "unix" ? Abstract("pair") : "127.0.0.1:0"));
    a = Ready(net::Dial(network, l.LocalAddr().String()));
    b = Ready(l.Accept());
  }
  // Names is "network a->b", as in the errors of a.
  std::string Names() const {
    return a.LocalAddr().Network() + " " + a.LocalAddr().String() + "->" +
           a.RemoteAddr().String();
  }
  net::Conn a, b;
};

// Silent is a listener without an Accept. Its queue is full, so it answers no
// further SYN.
inline net::Listener Silent(std::vector<net::Conn>* fillers) {
  net::ListenOptions options;
  options.backlog = 1;
  net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0", options));
  for (int i = 0; i <= options.backlog; i++) {
    fillers->push_back(Ready(net::Dial("tcp", l.LocalAddr().String())));
  }
  EXPECT_TRUE(Eventually([&] {
    tcp_info info{};
    socklen_t size = sizeof(info);
    EXPECT_EQ(getsockopt(l.Fd(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_unacked == fillers->size();
  }));
  return l;
}

}  // namespace gump::testing

#endif  // TESTS_API_NET_NET_TESTING_H_
