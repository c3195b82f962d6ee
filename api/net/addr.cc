// Addresses: parsing and printing.
#include "gump/net/addr.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/net/address.h"
#include "api/status_util.h"
#include "gump/go.h"
#include "runtime/sys/descriptor.h"

namespace gump::internal {

// ---- Addr -------------------------------------------------------------------

net::Addr NetAccess::MakeAddr(std::string_view network, const sockaddr* sa,
                              socklen_t length) {
  net::Addr a;
  if (length > sizeof(a.storage_)) length = sizeof(a.storage_);
  a.network_ = network;
  a.length_ = length;
  std::memcpy(&a.storage_, sa, length);
  return a;
}

namespace {

constexpr size_t kUnixHeader = offsetof(sockaddr_un, sun_path);

std::string HostText(const sockaddr* sa) {
  char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 1] = "";
  if (sa->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(sa);
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
    return text;
  }
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(sa);
  if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
    inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], text, sizeof(text));
    return text;
  }
  inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
  std::string host = text;
  if (in6->sin6_scope_id != 0) {
    char zone[IF_NAMESIZE];
    if (if_indextoname(in6->sin6_scope_id, zone) != nullptr) {
      host += Cat("%", zone);
    } else {
      host += Cat("%", in6->sin6_scope_id);
    }
  }
  return host;
}

int PortOf(const sockaddr* sa) {
  if (sa->sa_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(sa)->sin_port);
  }
  if (sa->sa_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(sa)->sin6_port);
  }
  return 0;
}

// Unmapped returns the version 4 address that a version 6 address contains.
sockaddr_in Unmapped(const sockaddr_in6& in6) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = in6.sin6_port;
  std::memcpy(&in.sin_addr, &in6.sin6_addr.s6_addr[12], sizeof(in.sin_addr));
  return in;
}

}  // namespace

void SetPort(sockaddr* sa, int port) {
  const auto p = htons(static_cast<uint16_t>(port));
  if (sa->sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(sa)->sin_port = p;
  } else {
    reinterpret_cast<sockaddr_in6*>(sa)->sin6_port = p;
  }
}

net::Addr NetAccess::AsGiven(net::Addr a, std::string_view host) {
  a.host_ = host;
  a.as_given_ = true;
  return a;
}

net::Addr NetAccess::AsIs(net::Addr a) {
  a.host_.clear();
  a.as_given_ = false;
  return a;
}

std::string NetAccess::Host(const net::Addr& a) {
  return a.as_given_ ? a.host_ : HostText(a.Sockaddr());
}

}  // namespace gump::internal

namespace gump::net {

int Addr::Port() const {
  return length_ == 0 ? 0 : internal::PortOf(Sockaddr());
}

std::string Addr::String() const {
  if (length_ == 0) return "";
  if (storage_.ss_family != AF_UNIX) {
    return internal::JoinHostPort(internal::NetAccess::Host(*this), Port());
  }
  // A socket without a name is printed as in Go.
  if (length_ <= internal::kUnixHeader) return "@";
  const char* path = reinterpret_cast<const sockaddr_un&>(storage_).sun_path;
  const size_t n = length_ - internal::kUnixHeader;
  if (path[0] == '\0')
    return internal::Cat("@", std::string_view(path + 1, n - 1));
  return std::string(path, strnlen(path, n));
}

}  // namespace gump::net

namespace gump::internal {

// ---- Parsing ----------------------------------------------------------------

absl::StatusOr<Network> ParseNetwork(std::string_view name) {
  Network n;
  n.name = std::string(name);
  n.family = n.name;
  if (name == "unix" || name == "unixgram") return n;
  if (name.starts_with("tcp") || name.starts_with("udp")) {
    n.family = std::string(name.substr(0, 3));
    const std::string_view version = name.substr(3);
    if (version == "4") n.version = 4;
    if (version == "6") n.version = 6;
    if (version.empty() || n.version != 0) return n;
  }
  return absl::InvalidArgumentError(Cat("unknown network ", name));
}

absl::Status AddrError(std::string_view address, std::string_view why) {
  return absl::InvalidArgumentError(Cat("address ", address, ": ", why));
}

absl::StatusOr<HostPort> SplitHostPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) {
    return AddrError(address, "missing port in address");
  }
  HostPort hp;
  size_t rest = 0;  // no bracket may follow from here on
  if (address[0] == '[') {
    const size_t end = address.find(']');
    if (end == std::string_view::npos) {
      return AddrError(address, "missing ']' in address");
    }
    if (end + 1 == address.size()) {
      return AddrError(address, "missing port in address");
    }
    if (end + 1 != colon) {
      return AddrError(address, address[end + 1] == ':'
                                    ? "too many colons in address"
                                    : "missing port in address");
    }
    hp.host = std::string(address.substr(1, end - 1));
    rest = end + 1;
    if (address.find('[', 1) != std::string_view::npos) {
      return AddrError(address, "unexpected '[' in address");
    }
  } else {
    hp.host = std::string(address.substr(0, colon));
    if (hp.host.find(':') != std::string::npos) {
      return AddrError(address, "too many colons in address");
    }
    if (address.find('[') != std::string_view::npos) {
      return AddrError(address, "unexpected '[' in address");
    }
  }
  if (address.find(']', rest) != std::string_view::npos) {
    return AddrError(address, "unexpected ']' in address");
  }
  hp.port = std::string(address.substr(colon + 1));
  return hp;
}

absl::Status ForFamily(const net::Addr& a, int family, sockaddr_storage* sa,
                       socklen_t* length) {
  const sockaddr* from = a.Sockaddr();
  if (family == AF_INET6 && from->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(from);
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = in->sin_port;
    in6.sin6_addr.s6_addr[10] = in6.sin6_addr.s6_addr[11] = 0xff;
    std::memcpy(&in6.sin6_addr.s6_addr[12], &in->sin_addr, 4);
    std::memcpy(sa, &in6, sizeof(in6));
    *length = sizeof(in6);
    return absl::OkStatus();
  }
  if (family == AF_INET && from->sa_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(from);
    if (!IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
      return AddrError(HostText(from), "non-IPv4 address");
    }
    const sockaddr_in in = Unmapped(*in6);
    std::memcpy(sa, &in, sizeof(in));
    *length = sizeof(in);
    return absl::OkStatus();
  }
  *length = a.Length();
  std::memcpy(sa, from, *length);
  return absl::OkStatus();
}

bool IsAbstract(std::string_view path) {
  return !path.empty() && (path[0] == '@' || path[0] == '\0');
}

std::string JoinHostPort(std::string_view host, int port) {
  if (host.find(':') != std::string_view::npos) {
    return Cat("[", host, "]:", port);
  }
  return Cat(host, ":", port);
}

bool HoldsNul(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

namespace {

// PortNumber reads a number as Go does, with an optional sign. Returns nullopt
// if text is the name of a service.
std::optional<int64_t> PortNumber(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int64_t n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    if (n >= int64_t{1} << 30) break;  // no port is that large
    n = 10 * n + (c - '0');
  }
  return negative ? -n : n;
}

}  // namespace

absl::StatusOr<int> ParsePort(const Network& network, const std::string& text) {
  if (text.empty()) return 0;
  if (const auto port = PortNumber(text); port.has_value()) {
    if (*port < 0 || *port > 65535) return AddrError(text, "invalid port");
    return static_cast<int>(*port);
  }
  servent entry{};
  servent* found = nullptr;
  char buffer[1024];
  if (!HoldsNul(text)) {
    blocking([&] {
      return getservbyname_r(text.c_str(), network.family.c_str(), &entry,
                             buffer, sizeof(buffer), &found);
    });
  }
  if (found != nullptr) return ntohs(static_cast<uint16_t>(found->s_port));
  return absl::NotFoundError(
      Cat("lookup ", network.family, "/", text, ": unknown port"));
}

absl::StatusOr<net::Addr> UnixAddr(const Network& network,
                                   std::string_view path) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const bool abstract = IsAbstract(path);
  // A path is followed by a NUL. Unlike in Go, it must not contain a NUL,
  // because the kernel would end it there.
  const size_t room = sizeof(un.sun_path) - (abstract ? 0 : 1);
  if (path.size() > room || (!abstract && HoldsNul(path))) {
    return ErrorStatus(Cat("address ", path), EINVAL, kNetClosed);
  }
  std::memcpy(un.sun_path, path.data(), path.size());
  size_t length = kUnixHeader + path.size();
  if (abstract) {
    un.sun_path[0] = '\0';
  } else if (!path.empty()) {
    length++;  // the final NUL
  }
  return NetAccess::MakeAddr(network.family, reinterpret_cast<sockaddr*>(&un),
                             static_cast<socklen_t>(length));
}

net::Addr LiteralAddr(const Network& network, const std::string& host) {
  if (HoldsNul(host)) return {};
  sockaddr_in in{};
  in.sin_family = AF_INET;
  if (inet_pton(AF_INET, host.c_str(), &in.sin_addr) == 1) {
    return NetAccess::MakeAddr(network.family, reinterpret_cast<sockaddr*>(&in),
                               sizeof(in));
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  const size_t percent = host.find('%');
  if (inet_pton(AF_INET6, host.substr(0, percent).c_str(), &in6.sin6_addr) !=
      1) {
    return {};
  }
  if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
    in = Unmapped(in6);
    return NetAccess::MakeAddr(network.family, reinterpret_cast<sockaddr*>(&in),
                               sizeof(in));
  }
  std::string zone;
  if (percent != std::string::npos) {
    zone = host.substr(percent + 1);
    const rt::StandardHold hold;  // libc makes a socket
    in6.sin6_scope_id = if_nametoindex(zone.c_str());
    if (in6.sin6_scope_id == 0) {
      (void)std::from_chars(zone.data(), zone.data() + zone.size(),
                            in6.sin6_scope_id);
    }
  }
  net::Addr a = NetAccess::MakeAddr(
      network.family, reinterpret_cast<sockaddr*>(&in6), sizeof(in6));
  if (zone.empty() || in6.sin6_scope_id != 0) return a;
  const std::string known = NetAccess::Host(a);
  return NetAccess::AsGiven(std::move(a), Cat(known, "%", zone));
}

}  // namespace gump::internal
