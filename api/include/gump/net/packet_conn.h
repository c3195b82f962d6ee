// A net::PacketConn sends and receives datagrams, each to or from any address.
//
//   absl::StatusOr<net::PacketConn> socket = net::ListenPacket("udp", ":7");
//   if (!socket.ok()) return socket.status();
//   char buf[1500];
//   for (;;) {
//     auto packet = socket->ReadFrom(buf);
//     if (!packet.ok()) return packet.status();
//     socket->WriteTo({buf, packet->n}, packet->from).IgnoreError();
//   }
//
// A PacketConn is a cheap handle: a copy is the same socket. It is closed by
// Close, or when its last handle is destroyed. gump/net.h says how networks and
// addresses are written, and describes the errors.
//
// Requires: the handle is not default-constructed. Using such a handle panics,
// as gump/net.h says.
//
// All functions may be called from goroutines and from plain threads, several
// at a time. A function parks only if its comment says so.
#ifndef GUMP_NET_PACKET_CONN_H_
#define GUMP_NET_PACKET_CONN_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/net/addr.h"
#include "gump/net/listener.h"

#pragma GCC visibility push(default)

namespace gump::internal {
struct NetAccess;
struct Socket;
}  // namespace gump::internal

namespace gump::net {

// PacketConn is the handle described above.
class PacketConn {
 public:
  PacketConn() = default;  // nil
  // Returns false for nil. Handles are equal if they are of the same socket.
  explicit operator bool() const { return socket_ != nullptr; }
  friend bool operator==(const PacketConn&, const PacketConn&) = default;

  // Packet is the result of ReadFrom.
  struct Packet {
    size_t n = 0;            // bytes put into the buffer
    Addr from;               // no address if the sender has no name
    bool truncated = false;  // the datagram was longer; the rest is lost
  };
  // ReadFrom receives one datagram into buf. Parks until there is one. An empty
  // datagram has n 0.
  absl::StatusOr<Packet> ReadFrom(absl::Span<char> buf) const;
  // WriteTo sends one datagram, whole or not at all, and returns its size.
  // Parks while the kernel's buffer is full. A datagram that is too long is the
  // error "message too long". An IPv4 address may also have its IPv6-mapped
  // form.
  //
  // On unixgram, that buffer is the queue of the receiver. The wait for room in
  // it costs CPU time, as in Go, because after each failed attempt Linux
  // reports at once that another attempt may succeed.
  absl::StatusOr<size_t> WriteTo(std::string_view data, const Addr& to) const;

  // These functions are as those of Conn.
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

// ListenPacket opens a socket for datagrams ("udp…", "unixgram"). Its errors
// are like those of Listen, and it parks as Listen does.
absl::StatusOr<PacketConn> ListenPacket(std::string_view network,
                                        std::string_view address,
                                        ListenOptions options = {});

}  // namespace gump::net

#pragma GCC visibility pop

#endif  // GUMP_NET_PACKET_CONN_H_
