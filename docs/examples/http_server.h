// An HTTP/1.1 server with one goroutine per connection. The goroutine calls
// Read and Write as if it were a thread that may block in them.
//
// * It keeps connections alive, and clients may pipeline requests.
// * Bodies are chunked or have a length.
// * A client that is too slow or sends too much gets an error response, and
//   does not hold up other clients.
//
//   http::Server server([](const http::Request& r) {
//     return http::Response{200, "You asked for " + std::string(r.target)};
//   });
//   absl::Status s = server.Serve(ctx, *gump::net::Listen("tcp", ":8080"));
//
// When ctx is done, the server answers the requests that are under way and
// closes idle connections.
#ifndef DOCS_EXAMPLES_HTTP_SERVER_H_
#define DOCS_EXAMPLES_HTTP_SERVER_H_

#include <gump/gump.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "http_message.h"

namespace http {

inline constexpr size_t kMaxHead = 16 << 10;
inline constexpr size_t kMaxBody = 8 << 20;
inline constexpr size_t kSendAtOnce = 64 << 10;
inline constexpr size_t kMaxLine = 4 << 10;  // before a chunk
inline const absl::Duration kIdleTimeout = absl::Seconds(60);
inline const absl::Duration kHeadTimeout =
    absl::Seconds(5);  // from its 1st byte
inline const absl::Duration kBodyTimeout = absl::Seconds(30);
inline const absl::Duration kWriteTimeout = absl::Seconds(30);
inline const absl::Duration kGrace = absl::Seconds(10);  // to finish requests

// Send takes a piece of a body. If it returns an error, the client receives no
// more.
using Send = std::function<absl::Status(std::string_view)>;

struct Response {
  int status = 200;
  std::string body;
  std::string fields = "Content-Type: text/plain\r\n";
  // Used instead of `body` if it is set. It sends a body whose length is not
  // known beforehand.
  std::function<absl::Status(const Send&)> stream = nullptr;
};

using Handler = std::function<Response(const Request&)>;

inline std::string_view Reason(int status) {
  static constexpr std::pair<int, std::string_view> kReasons[] = {
      {200, "OK"},
      {400, "Bad Request"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {417, "Expectation Failed"},
      {431, "Request Header Fields Too Large"},
      {501, "Not Implemented"},
      {505, "HTTP Version Not Supported"}};
  for (const auto& [code, reason] : kReasons) {
    if (code == status) return reason;
  }
  return "Internal Server Error";
}

inline Response Failure(int status) {
  return {status, std::string(Reason(status)) + "\n"};
}

inline Response Call(const Handler& handler, const Request& r) {
  try {
    return handler(r);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "http_server: %s\n", e.what());
    return Failure(500);
  }
}

// Session is one connection. Its goroutine calls Serve; other goroutines may
// call Retire or Close.
class Session {
 public:
  Session(gump::net::Conn conn, const std::atomic<bool>& stopping)
      : conn_(std::move(conn)), stopping_(stopping) {}

  void Serve(const Handler& handler) {
    for (;;) {
      Request r;
      const int refused = ReadRequest(r);
      if (refused == kNoMore) return;
      if (refused != 0) r.keep_alive = false;
      const Response answer =
          refused == 0 ? Call(handler, r) : Failure(refused);
      if (!Answer(r, answer).ok()) return;
      if (!r.keep_alive) return Linger();
    }
  }

  // Retire ends the connection unless a request is under way. The session
  // still reads the bytes that have arrived, and then the end of the stream.
  void Retire() {
    if (idle_.exchange(false)) (void)conn_.CloseRead();
  }
  void Close() { (void)conn_.Close(); }

 private:
  // The functions that read return 0, the status with which to refuse the
  // request, or kNoMore if the client has gone.
  static constexpr int kNoMore = -1;

  int ReadRequest(Request& r) {
    int failed = in_.empty() ? AwaitRequest() : 0;
    if (failed == 0) failed = TakeHead(r.head);
    if (failed == 0) failed = ParseHead(r);
    if (failed != 0) return failed;
    if (r.content_length > kMaxBody) return 413;
    if (r.content_length == 0 && !r.chunked) return 0;
    (void)conn_.SetReadDeadline(absl::Now() + kBodyTimeout);
    if (r.expects_continue) out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    return r.chunked ? TakeChunks(r.body) : Take(r.content_length, r.body);
  }

  // AwaitRequest waits for the first byte of a request. It stores idle_ and
  // then loads stopping_. Shutdown stores stopping_ and then retires all
  // sessions, which loads idle_. So at least one of them sees the other's store
  // and retires this session.
  int AwaitRequest() {
    if (!Flush().ok()) return kNoMore;
    in_ = std::string();  // a session that waits keeps no memory
    out_ = std::string();
    (void)conn_.SetReadDeadline(absl::Now() + kIdleTimeout);
    idle_ = true;
    if (stopping_) Retire();
    const int failed = Fill();
    idle_ = false;
    return failed == 0 ? 0 : kNoMore;
  }

  int TakeHead(std::string& head) {
    size_t end = EndOfHead(in_, 0);
    if (end == 0) (void)conn_.SetReadDeadline(absl::Now() + kHeadTimeout);
    while (end == 0) {
      const size_t seen = in_.size();
      if (seen > kMaxHead) return 431;
      if (const int failed = Fill(); failed != 0) return failed;
      end = EndOfHead(in_, seen);
    }
    if (end == in_.npos) return 400;
    if (end > kMaxHead) return 431;
    if (const int failed = Take(end, head); failed != 0) return failed;
    if (head.starts_with("\r\n")) head.erase(0, 2);  // some send one too many
    return 0;
  }

  int TakeChunks(std::string& body) {
    std::string line;
    for (uint64_t size = 1; size > 0;) {
      int failed = TakeLine(line);
      if (failed == 0) failed = ParseChunkSize(line, size);
      if (failed == 0 && size > kMaxBody - body.size()) failed = 413;
      if (failed == 0) failed = Take(size, body);
      if (failed == 0 && size > 0) failed = TakeLine(line);
      if (failed != 0) return failed;
      if (size > 0 && !line.empty()) return 400;
    }
    for (size_t trailer = 0; trailer <= kMaxHead; trailer += line.size()) {
      if (const int failed = TakeLine(line); failed != 0) return failed;
      if (line.empty()) return 0;
    }
    return 431;
  }

  int TakeLine(std::string& line) {
    size_t lf;
    for (size_t seen = 0; (lf = in_.find('\n', seen)) == in_.npos;) {
      seen = in_.size();
      if (seen > kMaxLine) return 400;
      if (const int failed = Fill(); failed != 0) return failed;
    }
    if (lf == 0 || in_[lf - 1] != '\r') return 400;
    line = in_.substr(0, lf - 1);
    in_.erase(0, lf + 1);
    return 0;
  }

  // Take appends n bytes to `to`.
  int Take(size_t n, std::string& to) {
    while (in_.size() < n) {
      if (const int failed = Fill(); failed != 0) return failed;
    }
    to.append(in_, 0, n);
    in_.erase(0, n);
    return 0;
  }

  // Fill waits for more bytes. It first sends the output, because the client
  // may be waiting for that.
  int Fill() {
    if (!Flush().ok()) return kNoMore;
    char buf[8 << 10];
    const absl::StatusOr<size_t> n = conn_.Read(absl::MakeSpan(buf));
    if (absl::IsDeadlineExceeded(n.status())) return 408;
    if (!n.ok() || *n == 0) return kNoMore;
    in_.append(buf, *n);
    return 0;
  }

  // Answer appends the answer to out_. out_ is sent when it is large, or when
  // there is no further request to read.
  absl::Status Answer(Request& r, const Response& response) {
    const bool stream = response.stream != nullptr;
    const bool chunked = stream && r.minor == 1;
    if (stopping_ || (stream && !chunked)) r.keep_alive = false;
    out_ += "HTTP/1.1 " + std::to_string(response.status) + " ";
    out_ += Reason(response.status);
    out_ += "\r\nDate: " + Date() + "\r\n" + response.fields;
    if (chunked) out_ += "Transfer-Encoding: chunked\r\n";
    if (!stream) {
      out_ += "Content-Length: " + std::to_string(response.body.size());
      out_ += "\r\n";
    }
    if (!r.keep_alive) out_ += "Connection: close\r\n";
    if (r.keep_alive && r.minor == 0) out_ += "Connection: keep-alive\r\n";
    out_ += "\r\n";
    if (r.method != "HEAD" && stream) {
      const absl::Status s = response.stream([&](std::string_view piece) {
        if (piece.empty()) return absl::OkStatus();
        if (chunked) AppendChunkSize(piece.size());
        out_ += piece;
        if (chunked) out_ += "\r\n";
        return out_.size() < kSendAtOnce ? absl::OkStatus() : Flush();
      });
      if (!s.ok()) return s;  // the client notices that the end is missing
      if (chunked) out_ += "0\r\n\r\n";
    } else if (r.method != "HEAD") {
      out_ += response.body;
    }
    return out_.size() < kSendAtOnce ? absl::OkStatus() : Flush();
  }

  void AppendChunkSize(size_t n) {
    char hex[16];
    out_.append(hex, std::to_chars(hex, hex + sizeof(hex), n, 16).ptr);
    out_ += "\r\n";
  }

  // Date is formatted once a second.
  const std::string& Date() {
    const absl::Time now = absl::Now();
    if (now >= date_ends_) {
      date_ = absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", now,
                               absl::UTCTimeZone());
      date_ends_ = absl::FromUnixSeconds(absl::ToUnixSeconds(now) + 1);
    }
    return date_;
  }

  absl::Status Flush() {
    if (out_.empty()) return absl::OkStatus();
    (void)conn_.SetWriteDeadline(absl::Now() + kWriteTimeout);
    const absl::Status s = conn_.Write(out_).status();
    out_.clear();
    return s;
  }

  // Linger ends the stream to the client. Then it discards what the client
  // still sends, for at most a second. A close with unread data would be a
  // reset, which may overtake the answer.
  void Linger() {
    if (!Flush().ok() || !conn_.CloseWrite().ok()) return;
    (void)conn_.SetReadDeadline(absl::Now() + absl::Seconds(1));
    do in_.clear();
    while (Fill() == 0);
  }

  const gump::net::Conn conn_;
  const std::atomic<bool>& stopping_;
  std::atomic<bool> idle_ = false;  // waits for a request
  std::string in_;                  // received, but not taken yet
  std::string out_;                 // not sent yet
  std::string date_;
  absl::Time date_ends_ = absl::InfinitePast();
};

class Server {
 public:
  explicit Server(Handler handler) : handler_(std::move(handler)) {}

  // Serve returns OK when ctx is done and the last request is answered. If the
  // listener fails, Serve returns its error.
  absl::Status Serve(const gump::context::Context& ctx,
                     const gump::net::Listener& l) {
    gump::context::AfterFunc(ctx, [l] { (void)l.Close(); });
    absl::Status failure;
    absl::Duration pause;
    while (ctx.Err().ok() && failure.ok()) {
      const absl::StatusOr<gump::net::Conn> conn = l.Accept();
      if (conn.ok()) {
        pause = absl::ZeroDuration();
        running_.Go([this, c = *conn] { ServeConn(c); });
      } else if (Passes(conn.status())) {
        pause = std::clamp(2 * pause, absl::Milliseconds(5), absl::Seconds(1));
        std::fprintf(stderr, "http_server: %s; again in %s\n",
                     std::string(conn.status().message()).c_str(),
                     absl::FormatDuration(pause).c_str());
        gump::select(gump::Recv(gump::time::After(pause)),
                     gump::Recv(ctx.Done()));
      } else {
        failure = conn.status();
      }
    }
    Shutdown();
    return ctx.Err().ok() ? failure : absl::OkStatus();
  }

 private:
  // Passes returns true if Accept may work later. Connections wait until then.
  static bool Passes(const absl::Status& s) {
    const int e = gump::Errno(s);
    return e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM ||
           e == ECONNABORTED || e == ECONNRESET;
  }

  void ServeConn(const gump::net::Conn& conn) {
    Session session(conn, stopping_);
    mu_.Lock();
    sessions_.insert(&session);
    mu_.Unlock();
    session.Serve(handler_);
    mu_.Lock();
    sessions_.erase(&session);
    mu_.Unlock();
  }

  void Shutdown() {
    stopping_ = true;
    ForEachSession(&Session::Retire);
    const auto all_home = gump::make_chan<void>();
    gump::go([this, all_home] {
      running_.Wait();
      all_home.Close();
    });
    gump::select(gump::Recv(all_home),
                 gump::Recv(gump::time::After(kGrace),
                            [this] { ForEachSession(&Session::Close); }));
    (void)all_home.Recv();
  }

  void ForEachSession(void (Session::*f)()) {
    mu_.Lock();
    gump::defer _{[this] { mu_.Unlock(); }};
    for (Session* s : sessions_) (s->*f)();
  }

  const Handler handler_;
  std::atomic<bool> stopping_ = false;
  gump::sync::WaitGroup running_;
  gump::sync::Mutex mu_;  // guards sessions_
  absl::flat_hash_set<Session*> sessions_;
};

}  // namespace http

#endif  // DOCS_EXAMPLES_HTTP_SERVER_H_
