// Socket: the state behind a Conn, Listener or PacketConn, and its errors.
#ifndef API_NET_SOCKET_H_
#define API_NET_SOCKET_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/net/address.h"
#include "gump/context.h"
#include "gump/net/addr.h"
#include "gump/panic.h"
#include "gump/sync/once.h"
#include "netpoll/fd.h"

namespace gump::internal {

// Socket is the state that the handles of net share. It is immutable once it
// has a handle, except for fd and unlink_once, which guard themselves.
struct Socket {
  Socket(int sysfd, const Network& n)
      : fd(sysfd, n.stream() ? rt::FdKind::kStream : rt::FdKind::kDatagram),
        network(n.family) {}
  ~Socket();

  absl::Status Close();

  rt::FD fd;
  const std::string network;
  // The local address when the socket was made. The kernel forgets it at Close.
  net::Addr local;
  net::Addr remote;         // empty if not known, or none
  bool borrowed = false;    // a listener with options that are not ours to set
  std::string unlink_path;  // of a listening unix socket
  sync::Once unlink_once;
};

// IoError is an error of an operation: an errno or a PollError. It also names
// the system call that gave the errno, because Go's error text does.
struct IoError {
  int err = 0;
  const char* call = nullptr;
};

// OpText returns "op net source->addr", without the empty parts.
std::string OpText(std::string_view op, std::string_view network,
                   std::string_view source, std::string_view addr);
// OpError describes a failure, in the form "<OpText>: error". `bytes` is the
// number of bytes written before the error.
absl::Status OpError(std::string_view op, std::string_view network,
                     std::string_view source, std::string_view addr, IoError e,
                     size_t bytes = 0);
// The same, about s. SocketError names both ends of s, LocalError the local
// one.
absl::Status SocketError(std::string_view op, const Socket& s, IoError e,
                         size_t bytes = 0);
absl::Status LocalError(std::string_view op, const Socket& s, IoError e);
// Prefixed returns status with "op net addr: " before its message.
absl::Status Prefixed(std::string_view op, std::string_view network,
                      std::string_view addr, const absl::Status& status);
// ContextError returns the error of an operation that ends because its context
// is done: "operation was canceled" or "i/o timeout".
absl::Status ContextError(const context::Context& ctx);

// NewSocket makes a non-blocking socket. Returns -1, with the errno in *err, on
// failure.
int NewSocket(const Network& network, int family, int* err);
// SetStreamOptions sets the options that every socket of the family "tcp" has:
// NoDelay and keep-alive. Connections inherit the options of their listener.
void SetStreamOptions(int fd, std::string_view family);
// Adopt gives a descriptor that is bound or connecting to a new Socket. If that
// fails, it closes the descriptor.
absl::StatusOr<std::shared_ptr<Socket>> Adopt(int fd, const Network& network,
                                              IoError* error);

// Duplicate makes a Socket from a duplicate of fd.
absl::StatusOr<std::shared_ptr<Socket>> Duplicate(int fd);

// ---- What handles share -----------------------------------------------------

// Check returns the socket of a handle. Panics if the handle is nil.
inline Socket* Check(const std::shared_ptr<Socket>& s) {
  if (s == nullptr) {
    panic("invalid memory address or nil pointer dereference");
  }
  return s.get();
}
// Hold is Check for a call that wakes other goroutines. They may drop the
// handle on which the call was made.
inline std::shared_ptr<Socket> Hold(const std::shared_ptr<Socket>& s) {
  (void)Check(s);
  return s;
}

// TrySetOption sets a socket option to an int. Returns 0 or an errno.
int TrySetOption(Socket* s, int level, int option, int value);
// SetBuffer sets the size of a buffer of the kernel.
absl::Status SetBuffer(Socket* s, int option, int bytes);
// SetDeadlineOf sets the deadlines of one or both directions.
absl::Status SetDeadlineOf(Socket* s, absl::Time t, rt::PollMode mode);
// FdOf returns the descriptor, or -1 if the socket is closed.
int FdOf(const std::shared_ptr<Socket>& socket);

}  // namespace gump::internal

#endif  // API_NET_SOCKET_H_
