// A net::Addr is the address of a socket or of its peer.
//
//   net::Addr at = listener.LocalAddr();
//   std::printf("listening on %s\n", at.String().c_str());  // "[::]:8080"
//
// An Addr is a value. It comes from a socket, or from ResolveAddr. Copies may
// be used at the same time. No function parks. Functions throw std::bad_alloc
// if there is no memory.
#ifndef GUMP_NET_ADDR_H_
#define GUMP_NET_ADDR_H_

#include <sys/socket.h>

#include <string>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::internal {
struct NetAccess;
}  // namespace gump::internal

namespace gump::net {

// Addr is the value described above.
class Addr {
 public:
  // Makes an Addr that is no address: its network and text are empty.
  Addr() = default;

  // Network returns "tcp", "udp", "unix" or "unixgram".
  const std::string& Network() const { return network_; }
  // String returns the address in the form that Dial takes: "127.0.0.1:80",
  // "[::1]:80", or a path. It is "@" for a unix socket without a name, such as
  // that of most dialers. It is ":80" for an address that was resolved without
  // a host.
  std::string String() const;
  // Port returns the port, or 0 if the address has none.
  int Port() const;

  // Sockaddr returns the kernel's form of the address, for system calls of the
  // program. It is valid as long as the Addr. Length returns the size of that
  // form in bytes, or 0 if there is no address.
  const sockaddr* Sockaddr() const {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  socklen_t Length() const { return length_; }

  // Addresses are equal if their networks and their texts are equal.
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

}  // namespace gump::net

#pragma GCC visibility pop

#endif  // GUMP_NET_ADDR_H_
