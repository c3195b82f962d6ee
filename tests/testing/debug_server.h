// A server of debug pages, and clients for it.
#ifndef TESTS_TESTING_DEBUG_SERVER_H_
#define TESTS_TESTING_DEBUG_SERVER_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "api/debug/http_server.h"
#include "gump/debug.h"
#include "gump/net.h"
#include "gump/sync/waitgroup.h"

namespace gump::testing {

// Server serves until it is closed or destroyed.
class Server {
 public:
  Server() { Start(debug::ServeHTTP); }
  explicit Server(const internal::ServeLimits& limits,
                  std::string network = "tcp",
                  std::string address = "127.0.0.1:0")
      : network_(std::move(network)), address_(std::move(address)) {
    Start([limits](net::Listener l) {
      return internal::ServeHttp(std::move(l), limits);
    });
  }
  ~Server() { (void)Close(); }
  // Close closes the listener and returns what ServeHTTP has returned.
  absl::Status Close() {
    (void)listener_.Close();
    running_.Wait();
    return status_;
  }
  const std::string& address() const { return address_; }
  net::Conn Dial() const {
    absl::StatusOr<net::Conn> c = net::Dial(network_, address_);
    EXPECT_TRUE(c.ok()) << c.status();
    return *c;
  }

 private:
  using Serve = std::function<absl::Status(net::Listener)>;
  void Start(const Serve& serve) {
    absl::StatusOr<net::Listener> l = net::Listen(network_, address_);
    EXPECT_TRUE(l.ok()) << l.status();
    listener_ = *l;
    address_ = listener_.LocalAddr().String();
    running_.Go([this, serve] { status_ = serve(listener_); });
  }

  net::Listener listener_;
  std::string network_ = "tcp";
  std::string address_ = "127.0.0.1:0";
  absl::Status status_;
  sync::WaitGroup running_;
};

struct Reply {
  std::string line;  // without "HTTP/1.1 "
  std::vector<std::pair<std::string, std::string>> fields;
  std::string body;

  std::string Field(std::string_view name) const {
    for (const auto& [n, v] : fields) {
      if (n == name) return v;
    }
    return "absent";
  }
};

// Client reads replies from a connection.
class Client {
 public:
  explicit Client(const Server& s) : Client(s.Dial()) {}
  explicit Client(net::Conn conn) : conn_(std::move(conn)) {}
  ~Client() { (void)conn_.Close(); }

  const net::Conn& conn() const { return conn_; }
  void Write(std::string_view text) const { (void)conn_.Write(text); }

  // Next reads a reply. `head`: it is for HEAD, so no body follows. If the body
  // is not whole, the line is "cut off".
  Reply Next(bool head = false) {
    Reply r;
    size_t end;
    while ((end = in_.find("\r\n\r\n")) == in_.npos) {
      if (!Fill()) {
        r.line = "closed";
        return r;
      }
    }
    std::string_view rest = std::string_view(in_).substr(0, end + 2);
    const auto line = [&] {
      const size_t n = rest.find("\r\n");
      const std::string_view one = rest.substr(0, n);
      rest.remove_prefix(n + 2);
      return one;
    };
    const std::string_view first = line();
    EXPECT_TRUE(first.starts_with("HTTP/1.1 ")) << first;
    r.line = first.substr(9);
    while (!rest.empty()) {
      const std::string_view field = line();
      const size_t colon = field.find(": ");
      EXPECT_NE(colon, field.npos) << field;
      if (colon == field.npos) return r;
      r.fields.emplace_back(field.substr(0, colon), field.substr(colon + 2));
    }
    in_.erase(0, end + 4);
    if (head) return r;
    if (!Body(&r)) r.line = "cut off";
    return r;
  }

  // Await reads until the input has `text`, and takes nothing.
  bool Await(std::string_view text) {
    while (in_.find(text) == in_.npos) {
      if (!Fill()) return false;
    }
    return true;
  }
  // Skip reads to the end, and drops what comes. Returns how much that was.
  size_t Skip() {
    size_t n = 0;
    do n += std::exchange(in_, {}).size();
    while (Fill());
    return n;
  }
  // IsClosed reads to the end, and returns whether nothing came before it.
  bool IsClosed() {
    const bool some = !in_.empty() || Fill();
    return !some;
  }

 private:
  // Body reads the body of *r. Returns false if it is not whole.
  bool Body(Reply* r) {
    if (r->Field("Transfer-Encoding") == "chunked") {
      EXPECT_EQ(r->Field("Content-Length"), "absent");
      return Chunks(&r->body);
    }
    const std::string length = r->Field("Content-Length");
    if (length == "absent") {  // the end of the connection ends the body
      EXPECT_EQ(r->Field("Connection"), "close");
      while (Fill()) {
      }
      r->body = std::exchange(in_, {});
      return true;
    }
    return Take(std::strtoul(length.c_str(), nullptr, 10), &r->body);
  }

  bool Chunks(std::string* body) {
    for (;;) {
      size_t end;
      while ((end = in_.find("\r\n")) == in_.npos) {
        if (!Fill()) return false;
      }
      const size_t size = std::strtoul(in_.c_str(), nullptr, 16);
      in_.erase(0, end + 2);
      std::string line_end;
      if (!Take(size, body) || !Take(2, &line_end)) return false;
      EXPECT_EQ(line_end, "\r\n");
      if (size == 0) return true;
    }
  }

  // Take moves n bytes of the input to *to. Returns false if there are fewer.
  bool Take(size_t n, std::string* to) {
    while (in_.size() < n) {
      if (!Fill()) {
        *to += std::exchange(in_, {});
        return false;
      }
    }
    to->append(in_, 0, n);
    in_.erase(0, n);
    return true;
  }

  bool Fill() {
    char buf[4096];
    const absl::StatusOr<size_t> n = conn_.Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0) return false;
    in_.append(buf, *n);
    return true;
  }

  const net::Conn conn_;
  std::string in_;
};

inline std::string Request(std::string_view method, std::string_view target,
                           std::string_view fields = "") {
  std::string text(method);
  return text.append(" ")
      .append(target)
      .append(" HTTP/1.1\r\nHost: x\r\n")
      .append(fields)
      .append("\r\n");
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_DEBUG_SERVER_H_
