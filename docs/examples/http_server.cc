// A small web server, built on http_server.h. The first SIGINT or SIGTERM stops
// it gracefully, a second one at once.
//
//   http_server [ADDRESS]    default 127.0.0.1:8080; or unix:PATH
//
//   GET /           a greeting              GET /bytes/N   N bytes, in chunks
//   POST /echo      the body comes back     GET /sleep/MS  answers after MS ms
#include "http_server.h"

#include <gump/gump.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include "address.h"

using namespace gump;
using http::Request;
using http::Response;

namespace {

Response Greet(const Request&, uint64_t) { return {200, "Hello, gopher!\n"}; }

Response Echo(const Request& r, uint64_t) { return {200, r.body}; }

Response Sleep(const Request&, uint64_t ms) {
  time::Sleep(absl::Milliseconds(ms));
  return {200, "slept " + std::to_string(ms) + " ms\n"};
}

Response Bytes(const Request&, uint64_t n) {
  Response response;
  response.stream = [n](const http::Send& send) {
    const std::string piece(std::min<uint64_t>(n, 8 << 10), 'x');
    absl::Status s;
    for (uint64_t left = n; left > 0 && s.ok();) {
      const uint64_t now = std::min<uint64_t>(left, piece.size());
      s = send(std::string_view(piece).substr(0, now));
      left -= now;
    }
    return s;
  };
  return response;
}

struct Route {
  std::string_view method;
  std::string_view path;  // a path that ends in N takes a number there
  Response (*handle)(const Request&, uint64_t n);
};

constexpr Route kRoutes[] = {{"GET", "/", Greet},
                             {"POST", "/echo", Echo},
                             {"GET", "/bytes/N", Bytes},
                             {"GET", "/sleep/N", Sleep}};

bool Matches(const Route& route, std::string_view path, uint64_t& n) {
  if (!route.path.ends_with("/N")) return path == route.path;
  const std::string_view prefix = route.path.substr(0, route.path.size() - 1);
  return path.starts_with(prefix) &&
         http::ParseNumber(path.substr(prefix.size()), 10, n);
}

Response Handle(const Request& r) {
  for (const Route& route : kRoutes) {
    uint64_t n = 0;
    if (!Matches(route, r.Path(), n)) continue;
    const bool head = r.method == "HEAD" && route.method == "GET";
    if (r.method == route.method || head) return route.handle(r, n);
    Response response = http::Failure(405);
    response.fields += "Allow: " + std::string(route.method);
    response.fields += route.method == "GET" ? ", HEAD\r\n" : "\r\n";
    return response;
  }
  return http::Failure(404);
}

int Serve(std::string_view address) {
  const auto [ctx, stop] =
      signal::NotifyContext(context::Background(), {SIGINT, SIGTERM});
  context::AfterFunc(ctx, stop);  // a second signal ends the process at once
  const absl::StatusOr<net::Listener> listener = ListenAt(address);
  const absl::Status s = listener.ok()
                             ? http::Server(Handle).Serve(ctx, *listener)
                             : listener.status();
  if (!s.ok()) std::fprintf(stderr, "http_server: %s\n", s.ToString().c_str());
  return s.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return Run([address = argc > 1 ? argv[1] : "127.0.0.1:8080"] {
    return Serve(address);
  });
}
