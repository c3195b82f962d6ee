// Where an example serves: "HOST:PORT", or "unix:PATH".
#ifndef DOCS_EXAMPLES_LISTEN_H_
#define DOCS_EXAMPLES_LISTEN_H_

#include <gump/net.h>

#include <cstdio>
#include <string_view>

// Listen opens the address and prints which it is: of port 0, the kernel chose
// one.
inline absl::StatusOr<gump::net::Listener> Listen(std::string_view address) {
  const bool is_unix = address.starts_with("unix:");
  if (is_unix) address.remove_prefix(5);
  absl::StatusOr<gump::net::Listener> listener =
      gump::net::Listen(is_unix ? "unix" : "tcp", address);
  if (listener.ok()) {
    std::printf("listening on %s\n", listener->LocalAddr().String().c_str());
    std::fflush(stdout);
  }
  return listener;
}

#endif  // DOCS_EXAMPLES_LISTEN_H_
