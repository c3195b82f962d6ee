// Addresses in the form that the examples accept: "HOST:PORT", or "unix:PATH".
#ifndef DOCS_EXAMPLES_ADDRESS_H_
#define DOCS_EXAMPLES_ADDRESS_H_

#include <gump/net.h>

#include <cstdio>
#include <string_view>

inline std::string_view NetworkOf(std::string_view& address) {
  const bool is_unix = address.starts_with("unix:");
  if (is_unix) address.remove_prefix(5);
  return is_unix ? "unix" : "tcp";
}

// ListenAt listens at the address and prints it. For port 0 the kernel chooses
// a port, and that port is printed.
inline absl::StatusOr<gump::net::Listener> ListenAt(std::string_view address) {
  const std::string_view network = NetworkOf(address);
  const auto listener = gump::net::Listen(network, address);
  if (listener.ok()) {
    std::printf("listening on %s\n", listener->LocalAddr().String().c_str());
    std::fflush(stdout);
  }
  return listener;
}

inline absl::StatusOr<gump::net::Conn> DialAt(std::string_view address) {
  const std::string_view network = NetworkOf(address);
  return gump::net::Dial(network, address);
}

#endif  // DOCS_EXAMPLES_ADDRESS_H_
