// ListenAt: what Listen and ListenPacket share.
#ifndef API_NET_LISTEN_H_
#define API_NET_LISTEN_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "api/net/socket.h"
#include "gump/net/listener.h"

namespace gump::internal {

// ListenAt makes a socket that is bound to the address. If `stream` is true,
// the network must be one of streams, and the socket listens. If it is false,
// the network must be one of datagrams.
absl::StatusOr<std::shared_ptr<Socket>> ListenAt(
    std::string_view network, std::string_view address,
    const net::ListenOptions& options, bool stream);

}  // namespace gump::internal

#endif  // API_NET_LISTEN_H_
