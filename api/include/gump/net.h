// net: connections, listeners and datagram sockets. A call that has to wait
// parks the goroutine, not its thread.
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
// "unixgram". Addresses are written as in Go: "host:port", ":8080" (all
// interfaces), "[::1]:80", "127.0.0.1:0" (any free port), and for unix sockets
// a path, or "@name" in the abstract name space. A port may be the name of a
// service. A NUL byte does not cut a string short: no host and no service has
// such a name, and a path that contains one is "invalid argument".
//
// Conn, Listener and PacketConn are cheap handles: a copy is the same socket.
// The socket is closed by Close, or when its last handle is destroyed. Every
// function may be called from goroutines and from plain threads, several at a
// time. Reads of one Conn take turns, and so do writes.
//
// Requires: the handle is not default-constructed. Such a handle is nil, and
// using it is the panic "invalid memory address or nil pointer dereference".
//
// Errors are values with Go's texts, such as "dial tcp 127.0.0.1:1: connect:
// connection refused". They carry the errno if there is one (gump::Errno). Two
// errors have codes of their own: DeadlineExceeded "i/o timeout" and Cancelled
// "use of closed network connection". Functions throw std::bad_alloc if there
// is no memory.
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

// Addr is the address of a socket or of its peer.
class Addr {
 public:
  Addr() = default;  // no address: network and string are empty

  // Network is "tcp", "udp", "unix" or "unixgram".
  const std::string& Network() const { return network_; }
  // String is the address in the form that Dial takes: "127.0.0.1:80",
  // "[::1]:80", or a path. A unix socket without a name, such as that of most
  // dialers, is "@". An address that was resolved without a host is ":80".
  std::string String() const;
  // Port is 0 if the address has no port.
  int Port() const;

  // The kernel's form, for system calls of the program. Length is 0 if there is
  // no address.
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
  // The host as it was given, if storage_ cannot express it: an empty host,
  // which stands for every address, or a zone that does not exist.
  std::string host_;
  bool as_given_ = false;  // the host is host_, not that in storage_
  socklen_t length_ = 0;
  sockaddr_storage storage_{};
};

// ListenOptions holds the options of Listen and ListenPacket.
struct ListenOptions {
  // Lets several sockets listen at one address. The kernel spreads the incoming
  // connections or datagrams among them.
  bool reuse_port = false;
  // The number of connections that may wait for Accept. 0 means as many as the
  // kernel allows.
  int backlog = 0;
};

// DialOptions holds the options of Dial and DialContext.
struct DialOptions {
  // The limit for the lookup of the name and all attempts together. Zero, like
  // an infinite duration, means no limit.
  absl::Duration timeout = absl::InfiniteDuration();
  // The time for which Dial tries only addresses of the family that the
  // resolver puts first. After that time it tries the others in parallel. A
  // negative delay makes Dial try all addresses one after the other. Source:
  // RFC 6555.
  absl::Duration fallback_delay = absl::Milliseconds(300);
  // The address of the local end: "host:port", or a path. If it is empty, the
  // kernel chooses.
  std::string local_address;
};

// Listen opens a socket for incoming connections ("tcp…", "unix"). It sets
// SO_REUSEADDR. ":port" accepts IPv6 and IPv4, as far as the system has them.
// Errors read "listen tcp 127.0.0.1:80: bind: address already in use". Parks
// while a name is looked up.
absl::StatusOr<Listener> Listen(std::string_view network,
                                std::string_view address,
                                ListenOptions options = {});

// ListenPacket opens a socket for datagrams ("udp…", "unixgram"). Its errors
// are like those of Listen, and it parks as Listen does.
absl::StatusOr<PacketConn> ListenPacket(std::string_view network,
                                        std::string_view address,
                                        ListenOptions options = {});

// Dial connects to an address. Parks until there is a connection or an error.
// If the name has several addresses, Dial tries them in turn, and IPv6 and IPv4
// in parallel (DialOptions::fallback_delay). If all fail, it returns the first
// error. On tcp, NoDelay and keep-alive (15 s) are on. On "udp", each Read and
// Write of the Conn is a datagram.
absl::StatusOr<Conn> Dial(std::string_view network, std::string_view address,
                          const DialOptions& options = {});
// DialTimeout is Dial with DialOptions::timeout, which covers all attempts and
// the lookup of the name. After that time it fails with "i/o timeout"
// (DeadlineExceeded).
absl::StatusOr<Conn> DialTimeout(std::string_view network,
                                 std::string_view address,
                                 internal::DurationArg timeout);
// DialContext is Dial, but gives up when ctx is done. It then fails with
// "operation was canceled" (Cancelled) or "i/o timeout" (DeadlineExceeded). The
// Conn does not depend on ctx.
absl::StatusOr<Conn> DialContext(const context::Context& ctx,
                                 std::string_view network,
                                 std::string_view address,
                                 const DialOptions& options = {});

// LookupHost returns the addresses of a name, without ports, in the order in
// which they should be tried. Parks while it looks up the name, and stalls no
// other goroutine. Fails with NotFound "lookup x: no such host", and as
// DialContext does if ctx is done.
absl::StatusOr<std::vector<std::string>> LookupHost(const context::Context& ctx,
                                                    std::string_view name);
// ResolveAddr returns the first address of a name as an Addr, such as WriteTo
// needs. Parks while a name is looked up.
absl::StatusOr<Addr> ResolveAddr(const context::Context& ctx,
                                 std::string_view network,
                                 std::string_view address);

// Pipe makes a connection inside this process and returns its two ends.
absl::StatusOr<std::pair<Conn, Conn>> Pipe();
// FileConn makes a Conn of a connected socket. It duplicates the descriptor,
// and fd stays the caller's. Both descriptors share one socket, which becomes
// non-blocking. A tcp socket also gets NoDelay and keep-alive, as from Dial.
absl::StatusOr<Conn> FileConn(int fd);
// FileListener makes a Listener of a listening socket, such as one from
// systemd. It also duplicates the descriptor and makes the socket non-blocking.
// NoDelay and keep-alive are set on the connections that it accepts. Its Close
// does not remove the path of a unix socket.
absl::StatusOr<Listener> FileListener(int fd);

// Conn is a stream, or a datagram socket with one peer.
class Conn {
 public:
  Conn() = default;
  explicit operator bool() const { return socket_ != nullptr; }
  friend bool operator==(const Conn&, const Conn&) = default;

  // Read parks until there is something to read, and returns the number of
  // bytes that it put into buf. For a non-empty buf, 0 means the end of the
  // stream.
  absl::StatusOr<size_t> Read(absl::Span<char> buf) const;
  // Write writes all of data. Parks while the kernel's buffer is full. On an
  // error, BytesWritten(status) is the number of bytes that went out.
  absl::StatusOr<size_t> Write(std::string_view data) const;
  // Readv and Writev are Read and Write for several pieces, with few system
  // calls.
  absl::StatusOr<size_t> Readv(absl::Span<const iovec> pieces) const;
  absl::StatusOr<size_t> Writev(absl::Span<const iovec> pieces) const;

  // Close closes the socket. Operations that wait return "use of closed network
  // connection". The descriptor is freed before Close returns. A second Close
  // fails with the same error.
  absl::Status Close() const;
  // CloseRead and CloseWrite shut down one direction. After CloseWrite, the
  // peer reads the end of the stream.
  absl::Status CloseRead() const;
  absl::Status CloseWrite() const;

  // Reads (writes) fail with "i/o timeout" once the deadline has passed, and so
  // do those that already wait. absl::InfiniteFuture() means no deadline. A
  // deadline closes nothing, and may be moved at any time.
  absl::Status SetDeadline(absl::Time t) const;
  absl::Status SetReadDeadline(absl::Time t) const;
  absl::Status SetWriteDeadline(absl::Time t) const;

  // SetNoDelay, SetKeepAlive and SetLinger are for tcp. NoDelay sends small
  // writes at once (default: on).
  absl::Status SetNoDelay(bool on) const;
  // Sends a keep-alive probe after each `period` without traffic (default: on,
  // 15 s).
  absl::Status SetKeepAlive(
      bool on, internal::DurationArg period = absl::Seconds(15)) const;
  // Sets how Close treats unsent data. If seconds < 0, the kernel continues to
  // send it (the default). If 0, the data is discarded, and the peer gets a
  // reset. If positive, the kernel continues for that many seconds.
  absl::Status SetLinger(int seconds) const;

  // The sizes in bytes of the kernel's buffers for a socket of any network
  // (SO_RCVBUF, SO_SNDBUF). The kernel doubles a given size and applies limits
  // of its own.
  absl::Status SetReadBuffer(int bytes) const;
  absl::Status SetWriteBuffer(int bytes) const;

  // The addresses of this end and of its peer. They are known also after Close.
  Addr LocalAddr() const;
  Addr RemoteAddr() const;

  // Fd returns the descriptor, or -1 if the Conn is closed. The descriptor
  // still belongs to the Conn. It is non-blocking, and valid as long as the
  // Conn is open.
  int Fd() const;
  // SyscallConn calls f(fd). The descriptor is not closed during the call. An
  // exception thrown by f passes through.
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

// Listener accepts connections.
class Listener {
 public:
  Listener() = default;
  explicit operator bool() const { return socket_ != nullptr; }
  friend bool operator==(const Listener&, const Listener&) = default;

  // Accept parks until there is a connection, and returns it. It also returns
  // temporary errors, such as EMFILE. A loop that calls Accept should pause
  // after such an error.
  absl::StatusOr<Conn> Accept() const;
  // Close is as that of Conn. It also removes the path of a unix socket.
  absl::Status Close() const;
  // SetDeadline makes Accept fail with "i/o timeout" after t.
  absl::Status SetDeadline(absl::Time t) const;
  // LocalAddr has the port that the kernel chose if port 0 was asked for. It is
  // known also after Close.
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
    Addr from;               // no address if the sender has no name
    bool truncated = false;  // the datagram was longer; the rest is lost
  };
  // ReadFrom parks until there is a datagram. An empty datagram has n 0.
  absl::StatusOr<Packet> ReadFrom(absl::Span<char> buf) const;
  // WriteTo sends one datagram, whole or not at all. Parks while the kernel's
  // buffer is full. If that buffer is the queue of a unixgram receiver, the
  // wait costs CPU time, as in Go, because each failed attempt makes Linux call
  // for another one. A datagram that is too long is the error "message too
  // long". An IPv4 address may also have its IPv6-mapped form.
  absl::StatusOr<size_t> WriteTo(std::string_view data, const Addr& to) const;

  // All of these are as for Conn.
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
