// net: connections, listeners and datagrams that look as if they blocked.
//
//   absl::StatusOr<net::Listener> l = net::Listen("tcp", ":7");
//   if (!l.ok()) return l.status();
//   for (;;) {
//     absl::StatusOr<net::Conn> c = l->Accept();
//     if (!c.ok()) return c.status();
//     go([conn = *c]() mutable {
//       char buf[4096];
//       for (;;) {
//         absl::StatusOr<size_t> n = conn.Read(buf);
//         if (!n.ok() || *n == 0) return;  // the last handle closes
//         if (!conn.Write({buf, *n}).ok()) return;
//       }
//     });
//   }
//
// Networks are "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6", "unix" and
// "unixgram". Addresses are Go's: "host:port", ":8080" (all interfaces),
// "[::1]:80", "127.0.0.1:0" (any free port), and for unix sockets a path, or
// "@name" in the abstract name space. Ports may be names of services. A NUL
// cuts nothing short: there is no host and no service of such a name, and a
// path with one is "invalid argument".
//
// Conn, Listener and PacketConn are cheap handles: a copy is the same socket,
// which is closed when the last handle is destroyed, or by Close. Every
// function may be called from goroutines and plain threads, and at the same
// time: reads of one Conn take turns among themselves, and so do writes. What
// has to wait parks the goroutine. Default-constructed handles are nil; to use
// one is the panic "invalid memory address or nil pointer dereference".
//
// Errors are values, in Go's words, such as "dial tcp 127.0.0.1:1: connect:
// connection refused", with the errno where there is one (gump::Errno). Two
// have codes of their own: DeadlineExceeded "i/o timeout" and Cancelled "use of
// closed network connection". Running out of memory throws std::bad_alloc.
//
// Source: Go's package net.
#ifndef GUMP_NET_H_
#define GUMP_NET_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/context.h"
#include "gump/time.h"

namespace gump::net {

class Conn;
class Listener;
class PacketConn;

}  // namespace gump::net

namespace gump::internal {
struct NetAccess;
struct Socket;
}  // namespace gump::internal

namespace gump::net {

// Addr is where a socket is, or where its peer is.
class Addr {
 public:
  Addr() = default;  // nowhere: network and string are empty

  // Network is "tcp", "udp", "unix" or "unixgram".
  const std::string& Network() const { return network_; }
  // String is the address as Dial takes it: "127.0.0.1:80", "[::1]:80", a path;
  // "@" is a unix socket without a name, such as most that dial. Of an address
  // that was resolved without a host, ":80".
  std::string String() const;
  // Port is 0 where there is none.
  int Port() const;

  // The kernel's form, for calls of one's own. Length 0: nowhere.
  const sockaddr* Sockaddr() const {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  socklen_t Length() const { return length_; }

  friend bool operator==(const Addr& a, const Addr& b) {
    return a.network_ == b.network_ && a.String() == b.String();
  }

 private:
  friend struct ::gump::internal::NetAccess;
  std::string network_;
  // The host as it was given, where storage_ cannot tell: none, which stands
  // for every one; or with a zone that there is not.
  std::string host_;
  bool as_given_ = false;  // host_ is it
  socklen_t length_ = 0;
  sockaddr_storage storage_{};
};

struct ListenOptions {
  // Lets several sockets listen at one address; the kernel spreads what comes.
  bool reuse_port = false;
  // How many connections may wait for Accept; 0: as many as the kernel allows.
  int backlog = 0;
};

struct DialOptions {
  // How long all attempts may take together; zero: as long as they want.
  absl::Duration timeout = absl::InfiniteDuration();
  // How long addresses of the family that the resolver puts first are tried
  // alone, before the others are, at the same time; negative: one after the
  // other. Source: RFC 6555.
  absl::Duration fallback_delay = absl::Milliseconds(300);
  // "host:port", or a path, of this end; empty: the kernel chooses.
  std::string local_address;
};

// Listen opens a socket for connections ("tcp…", "unix"). SO_REUSEADDR is set;
// ":port" takes IPv6 and IPv4 alike, as far as the system has them. Errors:
// "listen tcp 127.0.0.1:80: bind: address already in use". Parks while a name
// is looked up.
absl::StatusOr<Listener> Listen(std::string_view network,
                                std::string_view address,
                                ListenOptions options = {});

// ListenPacket opens a socket for datagrams ("udp…", "unixgram"). Errors and
// parking: as Listen.
absl::StatusOr<PacketConn> ListenPacket(std::string_view network,
                                        std::string_view address,
                                        ListenOptions options = {});

// Dial connects. If the name has several addresses, they are tried in turn,
// IPv6 and IPv4 in parallel (DialOptions::fallback_delay), and the first error
// is returned. On tcp, NoDelay is on, and so is keep-alive (15 s). "udp" gives
// a Conn whose Read and Write are datagrams. Parks until there is a connection
// or an error.
absl::StatusOr<Conn> Dial(std::string_view network, std::string_view address,
                          const DialOptions& options = {});
// DialTimeout is Dial with DialOptions::timeout: all attempts and the lookup of
// the name together; then "i/o timeout" (DeadlineExceeded).
absl::StatusOr<Conn> DialTimeout(std::string_view network,
                                 std::string_view address,
                                 internal::DurationArg timeout);
// DialContext gives up when ctx is done: "operation was canceled" (Cancelled)
// or "i/o timeout" (DeadlineExceeded). The Conn does not depend on ctx.
absl::StatusOr<Conn> DialContext(const context::Context& ctx,
                                 std::string_view network,
                                 std::string_view address,
                                 const DialOptions& options = {});

// LookupHost returns the addresses of a name, without ports, in the order in
// which they should be tried. It stalls no other goroutine. Errors: NotFound
// "lookup x: no such host"; ctx done: as DialContext.
absl::StatusOr<std::vector<std::string>> LookupHost(const context::Context& ctx,
                                                    std::string_view name);
// ResolveAddr makes an Addr, such as WriteTo needs, of the first address of a
// name.
absl::StatusOr<Addr> ResolveAddr(const context::Context& ctx,
                                 std::string_view network,
                                 std::string_view address);

// Pipe makes two ends of a connection inside this process.
absl::StatusOr<std::pair<Conn, Conn>> Pipe();
// FileConn makes a Conn of a connected socket, whose descriptor is duplicated:
// fd stays the caller's. Both share one socket, which becomes non-blocking, and
// if it is tcp gets NoDelay and keep-alive, as from Dial.
absl::StatusOr<Conn> FileConn(int fd);
// FileListener makes a Listener of a listening socket, such as systemd hands
// over; likewise duplicated, and non-blocking. NoDelay and keep-alive are set
// on the connections that it accepts. Its Close does not remove the path of a
// unix socket.
absl::StatusOr<Listener> FileListener(int fd);

// Conn is a stream, or a datagram socket with one peer.
class Conn {
 public:
  Conn() = default;
  explicit operator bool() const { return socket_ != nullptr; }
  friend bool operator==(const Conn&, const Conn&) = default;

  // Read waits until there is something to read and returns how many bytes it
  // put into buf. 0 with a buf that is not empty: the end of the stream.
  absl::StatusOr<size_t> Read(absl::Span<char> buf) const;
  // Write writes all of it. On an error, BytesWritten(status) is how much went
  // out.
  absl::StatusOr<size_t> Write(std::string_view data) const;
  // Readv and Writev are Read and Write of several pieces, by few system calls.
  absl::StatusOr<size_t> Readv(absl::Span<const iovec> pieces) const;
  absl::StatusOr<size_t> Writev(absl::Span<const iovec> pieces) const;

  // Close makes all that waits return "use of closed network connection", and
  // frees the descriptor before it returns. A second Close fails with that.
  absl::Status Close() const;
  // CloseRead and CloseWrite shut down one direction; the peer of a CloseWrite
  // reads the end of the stream.
  absl::Status CloseRead() const;
  absl::Status CloseWrite() const;

  // A deadline is a time after which, as long as it is set, reads (writes) fail
  // with "i/o timeout", those included that wait. absl::InfiniteFuture(): none.
  // It closes nothing, and may be moved at any time.
  absl::Status SetDeadline(absl::Time t) const;
  absl::Status SetReadDeadline(absl::Time t) const;
  absl::Status SetWriteDeadline(absl::Time t) const;

  // Of tcp. NoDelay (on): small writes are sent at once.
  absl::Status SetNoDelay(bool on) const;
  // KeepAlive (on, 15 s): so often an idle peer is asked whether it is there.
  absl::Status SetKeepAlive(
      bool on, internal::DurationArg period = absl::Seconds(15)) const;
  // Linger: what Close does with unsent data. seconds < 0: the kernel goes on
  // sending (the default); 0: it is thrown away, and the peer gets a reset;
  // positive: the kernel goes on for so long.
  absl::Status SetLinger(int seconds) const;

  // For every kind of socket: so much the kernel may hold for it (SO_RCVBUF,
  // SO_SNDBUF). It doubles what it is told, and has limits of its own.
  absl::Status SetReadBuffer(int bytes) const;
  absl::Status SetWriteBuffer(int bytes) const;

  // Where this end is, and the other; also after Close.
  Addr LocalAddr() const;
  Addr RemoteAddr() const;

  // Fd is the descriptor, which stays the Conn's: non-blocking, and valid as
  // long as the Conn is open. -1: closed.
  int Fd() const;
  // SyscallConn calls f(fd), during which the descriptor is not closed. What f
  // throws passes through.
  template <class F>
  absl::Status SyscallConn(F&& f) const {
    using Fn = std::remove_reference_t<F>;
    return Control([](void* arg, int fd) { (*static_cast<Fn*>(arg))(fd); },
                   const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  friend struct ::gump::internal::NetAccess;
  absl::Status Control(void (*f)(void*, int), void* arg) const;
  std::shared_ptr<internal::Socket> socket_;
};

// Listener waits for connections.
class Listener {
 public:
  Listener() = default;
  explicit operator bool() const { return socket_ != nullptr; }
  friend bool operator==(const Listener&, const Listener&) = default;

  // Accept waits for the next connection. Errors that pass, such as EMFILE, are
  // returned too; whoever calls in a loop should pause then.
  absl::StatusOr<Conn> Accept() const;
  // Close: as Conn's. The path of a unix socket is removed.
  absl::Status Close() const;
  // After t, Accept fails with "i/o timeout".
  absl::Status SetDeadline(absl::Time t) const;
  // With the port that the kernel chose, if it was asked for 0. Also after
  // Close.
  Addr LocalAddr() const;
  int Fd() const;  // as Conn's

 private:
  friend struct ::gump::internal::NetAccess;
  std::shared_ptr<internal::Socket> socket_;
};

// PacketConn sends and receives datagrams.
class PacketConn {
 public:
  PacketConn() = default;
  explicit operator bool() const { return socket_ != nullptr; }
  friend bool operator==(const PacketConn&, const PacketConn&) = default;

  struct Packet {
    size_t n = 0;            // bytes put into the buffer
    Addr from;               // nowhere: the sender has no name
    bool truncated = false;  // it was longer, and the rest is lost
  };
  // ReadFrom waits for a datagram. One that is empty has n 0.
  absl::StatusOr<Packet> ReadFrom(absl::Span<char> buf) const;
  // WriteTo sends one, whole or not at all; it waits while the kernel's buffer
  // is full. If that is the queue of a unixgram receiver, the wait costs CPU
  // time, as in Go: each attempt that fails tells Linux to have it tried again.
  // Too long a datagram is the error "message too long". An address of IPv4 may
  // also be in the form that IPv6 has for it.
  absl::StatusOr<size_t> WriteTo(std::string_view data, const Addr& to) const;

  // All as Conn's.
  absl::Status Close() const;
  absl::Status SetDeadline(absl::Time t) const;
  absl::Status SetReadDeadline(absl::Time t) const;
  absl::Status SetWriteDeadline(absl::Time t) const;
  absl::Status SetReadBuffer(int bytes) const;
  absl::Status SetWriteBuffer(int bytes) const;
  Addr LocalAddr() const;
  int Fd() const;

 private:
  friend struct ::gump::internal::NetAccess;
  std::shared_ptr<internal::Socket> socket_;
};

}  // namespace gump::net

#endif  // GUMP_NET_H_
