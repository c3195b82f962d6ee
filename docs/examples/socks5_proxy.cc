// A SOCKS5 proxy (RFC 1928, CONNECT without authentication). One goroutine per
// client finds out where the client wants to go. Then two goroutines carry the
// bytes, one in each direction.
//
//   socks5_proxy [ADDRESS]       default 127.0.0.1:1080; or unix:PATH
//   curl --socks5-hostname 127.0.0.1:1080 http://example.org/
#include <arpa/inet.h>
#include <gump/gump.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "address.h"

using namespace gump;

namespace {

const absl::Duration kHandshake = absl::Seconds(10);  // to name the target
const absl::Duration kConnect = absl::Seconds(10);    // to connect to it

enum Reply : uint8_t {
  kSucceeded = 0,
  kNetworkUnreachable = 3,
  kHostUnreachable = 4,
  kConnectionRefused = 5,
  kCommandNotSupported = 7,
  kAddressNotSupported = 8
};

// Take reads n bytes and not more, because the bytes that follow belong to
// another reader. Returns false if the connection ends or fails before.
bool Take(const net::Conn& conn, size_t n, std::string& bytes) {
  bytes.resize(n);
  for (size_t at = 0; at < n;) {
    const auto k = conn.Read(absl::MakeSpan(&bytes[at], n - at));
    if (!k.ok() || *k == 0) return false;
    at += *k;
  }
  return true;
}

bool Answer(const net::Conn& client, Reply reply) {
  const char answer[] = {5, static_cast<char>(reply), 0, 1, 0, 0, 0, 0, 0, 0};
  return client.Write({answer, sizeof(answer)}).ok();
}

// Greet agrees with the client to use no authentication. Returns false if the
// client does not offer that.
bool Greet(const net::Conn& client) {
  std::string s;
  if (!Take(client, 2, s) || s[0] != 5) return false;
  if (!Take(client, static_cast<uint8_t>(s[1]), s)) return false;
  const bool agreed = s.find('\0') != s.npos;
  return client.Write({agreed ? "\5\0" : "\5\xff", 2}).ok() && agreed;
}

// Target reads the address that the client wants to reach and returns it in the
// form that Dial accepts. Returns "" if the request is refused or broken.
std::string Target(const net::Conn& client) {
  std::string s, host;
  if (!Take(client, 4, s) || s[0] != 5) return "";
  const char command = s[1], type = s[3];
  if (type == 3) {  // a name
    if (!Take(client, 1, s)) return "";
    if (!Take(client, static_cast<uint8_t>(s[0]), host)) return "";
  } else if (type == 1 || type == 4) {  // IPv4, IPv6
    char text[INET6_ADDRSTRLEN];
    if (!Take(client, type == 1 ? 4 : 16, s)) return "";
    inet_ntop(type == 1 ? AF_INET : AF_INET6, s.data(), text, sizeof(text));
    host = type == 1 ? text : absl::StrCat("[", text, "]");
  } else {
    (void)Answer(client, kAddressNotSupported);
    return "";
  }
  if (!Take(client, 2, s)) return "";
  if (command != 1) {
    (void)Answer(client, kCommandNotSupported);
    return "";
  }
  const int port = static_cast<uint8_t>(s[0]) << 8 | static_cast<uint8_t>(s[1]);
  return absl::StrCat(host, ":", port);
}

// Carry passes on all that it reads, and then the end of the stream.
void Carry(const net::Conn& from, const net::Conn& to) {
  char buf[16 << 10];
  for (;;) {
    const absl::StatusOr<size_t> n = from.Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0) break;
    if (!to.Write({buf, *n}).ok()) break;
  }
  (void)to.CloseWrite();
}

Reply ReplyTo(const absl::Status& s) {
  switch (Errno(s)) {
    case 0:
      return s.ok() ? kSucceeded : kHostUnreachable;  // no such name, too late
    case ECONNREFUSED:
      return kConnectionRefused;
    case ENETUNREACH:
      return kNetworkUnreachable;
  }
  return kHostUnreachable;
}

void Serve(const net::Conn& client) {
  (void)client.SetDeadline(absl::Now() + kHandshake);
  if (!Greet(client)) return;
  const std::string target = Target(client);
  if (target.empty()) return;
  const absl::StatusOr<net::Conn> server =
      net::DialTimeout("tcp", target, kConnect);
  (void)client.SetDeadline(absl::InfiniteFuture());
  if (!Answer(client, ReplyTo(server.status())) || !server.ok()) return;
  sync::WaitGroup there;
  there.Go([&] { Carry(client, *server); });
  Carry(*server, client);
  there.Wait();
}

int ServeAll(const char* address) {
  const auto [ctx, stop] =
      signal::NotifyContext(context::Background(), {SIGINT, SIGTERM});
  const absl::StatusOr<net::Listener> listener = ListenAt(address);
  if (!listener.ok()) {
    std::fprintf(stderr, "%s\n", listener.status().ToString().c_str());
    return 1;
  }
  context::AfterFunc(ctx, [l = *listener] { (void)l.Close(); });
  while (ctx.Err().ok()) {
    const absl::StatusOr<net::Conn> conn = listener->Accept();
    if (conn.ok()) {
      go([c = *conn] { Serve(c); });
    } else {
      time::Sleep(absl::Milliseconds(5));  // perhaps no descriptor is free
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return Run([address = argc > 1 ? argv[1] : "127.0.0.1:1080"] {
    return ServeAll(address);
  });
}
