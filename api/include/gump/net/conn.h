// A net::Conn is a connection: a stream, or a datagram socket with one peer.
//
//   char buf[4096];
//   for (;;) {
//     absl::StatusOr<size_t> n = conn.Read(buf);
//     if (!n.ok() || *n == 0) return;  // the last handle closes
//     if (!conn.Write({buf, *n}).ok()) return;
//   }
//
// Dial and Accept return one. A Conn is a cheap handle: a copy is the same
// connection. The connection is closed by Close, or when its last handle is
// destroyed.
//
// Requires: the handle is not default-constructed. Using such a handle panics,
// as gump/net.h says. That header also describes the errors.
//
// All functions may be called from goroutines and from plain threads, several
// at a time. Reads of one Conn take turns, and so do writes. A function parks
// only if its comment says so.
#ifndef GUMP_NET_CONN_H_
#define GUMP_NET_CONN_H_

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/internal/duration_arg.h"
#include "gump/net/addr.h"

#pragma GCC visibility push(default)

namespace gump::internal {
struct NetAccess;
struct Socket;
}  // namespace gump::internal

namespace gump::net {

// Conn is the handle described above.
class Conn {
 public:
  Conn() = default;  // nil
  // Returns false for nil. Handles are equal if they are of the same socket.
  explicit operator bool() const { return socket_ != nullptr; }
  friend bool operator==(const Conn&, const Conn&) = default;

  // Read reads at most buf.size() bytes, and returns how many it put into buf.
  // Parks until there is at least one. For a non-empty buf, 0 means the end of
  // the stream.
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
  // CloseRead shuts down the reading side: reads then find the end of the
  // stream. CloseWrite shuts down the writing side: the peer then reads the end
  // of the stream.
  absl::Status CloseRead() const;
  absl::Status CloseWrite() const;

  // Reads (or writes) fail with "i/o timeout" once the deadline has passed, and
  // so do those that already wait. SetDeadline sets both deadlines.
  // absl::InfiniteFuture() means no deadline. A deadline closes nothing, and
  // may be moved at any time.
  absl::Status SetDeadline(absl::Time t) const;
  absl::Status SetReadDeadline(absl::Time t) const;
  absl::Status SetWriteDeadline(absl::Time t) const;

  // SetNoDelay, SetKeepAlive and SetLinger are for tcp. SetNoDelay(true) makes
  // the kernel send small writes at once. That is the default.
  absl::Status SetNoDelay(bool on) const;
  // SetKeepAlive(true, period) makes the kernel send a keep-alive probe after
  // each `period` without traffic. The period is rounded up to seconds. The
  // default is on, with 15 s.
  absl::Status SetKeepAlive(
      bool on, internal::DurationArg period = absl::Seconds(15)) const;
  // SetLinger sets how Close treats data that is not sent yet. If seconds < 0,
  // the kernel continues to send it (the default). If 0, the data is discarded,
  // and the peer gets a reset. If positive, the kernel continues for that many
  // seconds.
  absl::Status SetLinger(int seconds) const;

  // SetReadBuffer and SetWriteBuffer set the sizes in bytes of the kernel's
  // buffers (SO_RCVBUF, SO_SNDBUF), for a socket of any network. The kernel
  // doubles a given size and applies limits of its own.
  absl::Status SetReadBuffer(int bytes) const;
  absl::Status SetWriteBuffer(int bytes) const;

  // LocalAddr returns the address of this end, and RemoteAddr that of the peer.
  // They are known also after Close.
  Addr LocalAddr() const;
  Addr RemoteAddr() const;

  // Fd returns the descriptor, or -1 if the Conn is closed. The descriptor
  // still belongs to the Conn. It is non-blocking, and valid as long as the
  // Conn is open.
  int Fd() const;
  // SyscallConn calls f(fd) and ignores its result. The descriptor is not
  // closed during the call. An exception thrown by f passes through. Fails if
  // the Conn is closed.
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

// Pipe makes a connection inside this process and returns its two ends. Does
// not park.
absl::StatusOr<std::pair<Conn, Conn>> Pipe();
// FileConn makes a Conn of a connected socket. It duplicates the descriptor,
// and fd stays the caller's. Both descriptors share one socket, which becomes
// non-blocking. A tcp socket also gets NoDelay and keep-alive, as from Dial.
// Does not park.
absl::StatusOr<Conn> FileConn(int fd);

}  // namespace gump::net

#pragma GCC visibility pop

#endif  // GUMP_NET_CONN_H_
