// Helpers for tests of FD: pairs of connected streams, and data to send.
#ifndef TESTS_NETPOLL_FD_TESTING_H_
#define TESTS_NETPOLL_FD_TESTING_H_

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "netpoll/fd.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::rt {
inline bool operator==(const IoResult& a, const IoResult& b) {
  return a.n == b.n && a.err == b.err;
}
inline std::ostream& operator<<(std::ostream& os, const IoResult& r) {
  return os << r.n << " bytes, error " << r.err;
}
}  // namespace gump::rt

namespace gump::testing {

inline rt::IoResult Bytes(size_t n) { return {n, 0}; }
inline rt::IoResult Error(int err) { return {0, err}; }

// Open returns an FD that took over f.
inline std::unique_ptr<rt::FD> Open(File f, rt::FdKind kind) {
  auto fd = std::make_unique<rt::FD>(f.fd(), kind);
  const int err = fd->init();
  EXPECT_EQ(err, 0);
  if (err == 0) (void)f.Release();
  return fd;
}

inline sockaddr_in Loopback(uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = port;
  return a;
}

// Listen is a listening socket on a port of the kernel's choice.
inline File Listen(sockaddr_in* addr) {
  File l(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  *addr = Loopback(0);
  socklen_t len = sizeof(*addr);
  auto* sa = reinterpret_cast<sockaddr*>(addr);
  EXPECT_EQ(::bind(l.fd(), sa, len), 0);
  EXPECT_EQ(::listen(l.fd(), 128), 0);
  EXPECT_EQ(::getsockname(l.fd(), sa, &len), 0);
  return l;
}

enum class Over { kUnix, kTcp };
inline constexpr Over kStreams[] = {Over::kUnix, Over::kTcp};

// RawPair is two connected non-blocking stream sockets.
inline std::pair<File, File> RawPair(Over over) {
  if (over == Over::kUnix) {
    Ends e;
    return {std::move(e.out), std::move(e.in)};
  }
  sockaddr_in addr;
  File l = Listen(&addr);
  File a(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(a.fd(), reinterpret_cast<sockaddr*>(&addr), sizeof(addr)),
            0);
  EXPECT_EQ(::fcntl(a.fd(), F_SETFL, O_NONBLOCK), 0);
  const int on = 1;
  EXPECT_EQ(::setsockopt(a.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
  File b;
  EXPECT_TRUE(Eventually([&] {
    b = File(::accept4(l.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return b.fd() >= 0;
  }));
  EXPECT_EQ(::setsockopt(b.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
  return {std::move(a), std::move(b)};
}

// Pair is two connected streams.
struct Pair {
  explicit Pair(Over over = Over::kUnix) {
    auto [x, y] = RawPair(over);
    a = Open(std::move(x), rt::FdKind::kStream);
    b = Open(std::move(y), rt::FdKind::kStream);
  }
  std::unique_ptr<rt::FD> a;
  std::unique_ptr<rt::FD> b;
};

// Byte returns the byte at a place of an endless stream.
inline char Byte(uint64_t seed, uint64_t i) {
  const uint64_t x = (i + seed) * 0x9e3779b97f4a7c15;
  return static_cast<char>(x >> 56);
}

// SendStream writes `total` bytes of stream `seed`, in parts of random sizes.
inline void SendStream(rt::FD* fd, uint64_t seed, size_t total,
                       size_t maxPart) {
  Rng rng(seed);
  std::vector<char> buf(maxPart);
  for (size_t done = 0; done < total;) {
    const size_t n = std::min(total - done, size_t{1} + rng.Below(maxPart));
    for (size_t i = 0; i < n; i++) buf[i] = Byte(seed, done + i);
    ASSERT_EQ(fd->write(buf.data(), n), Bytes(n));
    done += n;
  }
}

// ReceiveStream reads stream `seed` until its end, and returns its length.
inline size_t ReceiveStream(rt::FD* fd, uint64_t seed, size_t maxPart) {
  Rng rng(seed + 1);
  std::vector<char> buf(maxPart);
  for (size_t done = 0;;) {
    const rt::IoResult r = fd->read(buf.data(), 1 + rng.Below(maxPart));
    EXPECT_EQ(r.err, 0);
    if (r.err != 0 || r.n == 0) return done;
    size_t wrong = 0;
    for (size_t i = 0; i < r.n; i++) wrong += buf[i] != Byte(seed, done + i);
    EXPECT_EQ(wrong, 0u) << "of " << r.n << " from " << done;
    if (wrong != 0) return done;
    done += r.n;
  }
}

inline int CloseWrite(rt::FD* fd) {
  return fd->with(
      [](int s) { return ::shutdown(s, SHUT_WR) == 0 ? 0 : errno; });
}

// FillUp writes until the descriptor takes no more.
inline void FillUp(rt::FD* fd) {
  EXPECT_EQ(fd->with([](int s) {
    static const char zeros[4096] = {};
    while (::write(s, zeros, sizeof(zeros)) > 0) {
    }
    return 0;
  }),
            0);
}

}  // namespace gump::testing

#endif  // TESTS_NETPOLL_FD_TESTING_H_
