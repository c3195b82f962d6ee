// The connections of debug::ServeHTTP. pages.cc has what they serve.
//
// A connection is a Session, with a goroutine that calls Run. A session either
// reads a request or serves one. Server::mu_ guards that state and the set of
// sessions, so each of these is one step:
//
//   * a session begins to read, unless the server is stopping;
//   * a session begins to serve, unless it has been closed;
//   * the server stops: it closes the sessions that read, and ends the input of
//     those that serve, which ends their waits;
//   * the server makes room: it closes the session that has read longest.
//
// So each session ends when the server stops. If it was reading, it is closed.
// If it was serving, it ends its wait and sends its answer, until its deadline
// or until the server closes it. It does not begin to read again.
//
// A page may make its answer while it is sent (HttpResponse::stream). Then its
// length is not known in advance. A client of HTTP/1.1 gets chunks, and one of
// HTTP/1.0 reads until the connection ends. If the page fails in between, the
// last chunk is missing.
#include "api/debug/http_server.h"

#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "api/cat.h"
#include "api/debug/http_message.h"
#include "api/debug/http_response.h"
#include "api/debug/pages.h"
#include "gump/chan.h"
#include "gump/debug.h"
#include "gump/net/conn.h"
#include "gump/net/listener.h"
#include "gump/select.h"
#include "gump/status.h"
#include "gump/sync/mutex.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"

namespace gump::internal {

namespace {

constexpr size_t kMaxHead = 16 << 10;
constexpr size_t kMaxSessions = 256;
constexpr int kMaxPlaces = 16;
constexpr absl::Duration kIdleTimeout = absl::Seconds(60);
constexpr absl::Duration kHeadTimeout = absl::Seconds(5);
constexpr size_t kMaxChunk = 64 << 10;
constexpr absl::Duration kGrace = absl::Seconds(1);

class Session;

class Server {
 public:
  Server(net::Listener l, const ServeLimits& limits)
      : limits_(limits), listener_(std::move(l)) {}

  absl::Status Serve();

  // The steps of a session. A result of false ends it.
  bool BeginReading(Session* s);
  bool BeginServing(Session* s);

  // TakePlace takes one of the places for pages that last. Returns false if
  // there is none.
  bool TakePlace() {
    if (places_taken_.fetch_add(1) < kMaxPlaces) return true;
    GivePlaceBack();
    return false;
  }
  void GivePlaceBack() { places_taken_.fetch_sub(1); }
  const ServeLimits& limits() const { return limits_; }

 private:
  void Admit(const net::Conn& conn);
  void RunSession(Session* s);
  bool Forget(Session* s);
  bool MakeRoom();
  void Stop();

  const ServeLimits limits_;
  const net::Listener listener_;
  sync::WaitGroup running_;
  std::atomic<int> places_taken_ = 0;
  sync::Mutex mu_;  // guards what follows, and three fields of each session
  bool stopping_ = false;
  size_t open_ = 0;  // sessions that are not closed
  absl::flat_hash_set<Session*> sessions_;
  const chan<void> empty_ = make_chan<void>();  // closed: the last has ended
};

class Session final : public PageClient {
 public:
  Session(Server* server, net::Conn conn)
      : conn_(std::move(conn)), server_(server) {}

  void Run() {
    for (;;) {
      HttpRequest r;
      Refusal refusal;
      if (!ReadRequest(&r, &refusal)) return;
      if (refusal.status != 0 || r.has_body) r.keep_alive = false;
      const absl::Cleanup end = [this] {
        if (std::exchange(has_place_, false)) server_->GivePlaceBack();
      };
      HttpResponse answer =
          refusal.status != 0 ? AnswerRefusal(refusal) : Answer(r);
      if (answer.stream != nullptr && r.minor == 0) r.keep_alive = false;
      const Sent sent = Send(r, &answer);
      if (sent == Sent::kFailed) return;
      answer.stream = nullptr;  // ends what a HEAD has begun
      if (sent == Sent::kCutOff || !r.keep_alive) return Linger();
    }
  }

  // The functions below may be called by other goroutines.
  void Close() const { (void)conn_.Close(); }
  void EndReads() const { (void)conn_.CloseRead(); }

 private:
  friend Server;

  enum class Filled : uint8_t { kSome, kLate, kGone };
  enum class Sent : uint8_t {
    kWhole,
    kCutOff,  // the page has failed
    kFailed,  // the client is gone
  };

  // Fill waits for more input, and appends it to in_.
  Filled Fill() {
    char buf[4 << 10];
    const absl::StatusOr<size_t> n = conn_.Read(absl::MakeSpan(buf));
    if (absl::IsDeadlineExceeded(n.status())) return Filled::kLate;
    if (!n.ok() || *n == 0) return Filled::kGone;
    in_.append(buf, *n);
    return Filled::kSome;
  }

  // ReadRequest waits for a request. *refusal says whether to refuse it.
  // Returns false if the session ends without an answer.
  bool ReadRequest(HttpRequest* r, Refusal* refusal) {
    if (!server_->BeginReading(this)) return false;
    if (in_.empty()) {
      in_ = std::string();  // a session that waits keeps no memory
      (void)conn_.SetReadDeadline(absl::Now() + kIdleTimeout);
      if (Fill() != Filled::kSome) return false;
    }
    (void)conn_.SetReadDeadline(absl::Now() + kHeadTimeout);
    size_t end = 0;
    for (size_t seen = 0; (end = EndOfHead(in_, seen)) == 0;) {
      seen = in_.size();
      if (seen > kMaxHead) break;
      const Filled filled = Fill();
      if (filled == Filled::kGone) return false;
      if (filled == Filled::kLate) {
        *refusal = {408, ""};
        return server_->BeginServing(this);
      }
    }
    if (end == in_.npos) {
      *refusal = {400, ""};
    } else if (end == 0 || end > kMaxHead) {
      *refusal = {431, ""};
    } else {
      r->head.assign(in_, 0, end);
      in_.erase(0, end);
      *refusal = ParseHead(r);
    }
    return server_->BeginServing(this);
  }

  HttpResponse Answer(const HttpRequest& r) {
    try {
      return AnswerRequest(r, *this);
    } catch (const std::exception& e) {
      return {500, "Content-Type: text/plain; charset=utf-8\r\n",
              Cat(e.what(), "\n")};
    } catch (...) {  // a program's operator new may throw anything
      return {500, "", ""};
    }
  }

  bool Reserve() override { return has_place_ = server_->TakePlace(); }

  // Wait waits for d, or until the client leaves or the server stops. Both show
  // as the end of the input. Wait keeps the bytes that the client sends
  // meanwhile, up to the size of a request.
  bool Wait(absl::Duration d) override {
    (void)conn_.SetReadDeadline(absl::Now() + d);
    Filled filled = Filled::kSome;
    while (filled == Filled::kSome && in_.size() <= kMaxHead) filled = Fill();
    return filled == Filled::kLate;
  }

  size_t Backlog() const override { return server_->limits().backlog; }

  bool Write(std::string_view part) override {
    bool sent = true;
    while (sent && !part.empty()) {
      const std::string_view piece = part.substr(0, kMaxChunk);
      part.remove_prefix(piece.size());
      if (!chunked_) {
        sent = Deliver({piece});
        continue;
      }
      char size[16 + 2 + 1];
      const int n = std::snprintf(size, sizeof(size), "%zx\r\n", piece.size());
      sent = Deliver({{size, static_cast<size_t>(n)}, piece, "\r\n"});
    }
    return sent;
  }

  // Deliver sends pieces, within the time that the client has left. Returns
  // false if that fails. Throws nothing.
  bool Deliver(std::initializer_list<std::string_view> pieces) {
    iovec vectors[3];
    size_t n = 0;
    int64_t size = 0;
    for (const std::string_view p : pieces) {
      if (p.empty()) continue;
      vectors[n++] = {const_cast<char*>(p.data()), p.size()};
      size += static_cast<int64_t>(p.size());
    }
    const absl::Time begin = absl::Now();
    // Time that a fast client has not used does not pile up.
    time_left_ = std::min(time_left_, server_->limits().write_timeout) +
                 absl::Seconds(1) * size / server_->limits().write_rate;
    try {
      (void)conn_.SetWriteDeadline(begin + time_left_);
      failed_ |= !conn_.Writev(absl::MakeConstSpan(vectors, n)).ok();
    } catch (...) {  // a program's operator new may throw anything
      failed_ = true;
    }
    time_left_ -= absl::Now() - begin;
    return !failed_;
  }

  Sent Send(const HttpRequest& r, HttpResponse* answer) {
    const bool streams = answer->stream != nullptr;
    chunked_ = streams && r.minor == 1;
    time_left_ = server_->limits().write_timeout;
    const std::string date = absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT",
                                              absl::Now(), absl::UTCTimeZone());
    std::string head =
        Cat("HTTP/1.1 ", answer->status, " ", ReasonOf(answer->status), "\r\n",
            "Date: ", date, "\r\n", answer->fields);
    if (!streams)
      Append(&head, "Content-Length: ", answer->body.size(), "\r\n");
    if (chunked_) head += "Transfer-Encoding: chunked\r\n";
    if (!r.keep_alive) head += "Connection: close\r\n";
    if (r.keep_alive && r.minor == 0) head += "Connection: keep-alive\r\n";
    head += "\r\n";
    if (r.method == "HEAD") {
      (void)Deliver({head});
      return failed_ ? Sent::kFailed : Sent::kWhole;
    }
    bool whole = Deliver({head, answer->body});
    if (whole && streams) whole = Stream(answer);
    return failed_ ? Sent::kFailed : whole ? Sent::kWhole : Sent::kCutOff;
  }

  // Stream sends a body in parts. Returns false if it is not whole.
  bool Stream(HttpResponse* answer) {
    try {
      if (!answer->stream(*this)) return false;
    } catch (...) {  // a program's operator new may throw anything
      return false;
    }
    return !chunked_ || Deliver({"0\r\n\r\n"});
  }

  // Linger ends the stream to the client. Then it discards what the client
  // still sends, for at most a second. A close with unread data would be a
  // reset, which may overtake the answer.
  void Linger() {
    if (!server_->BeginReading(this) || !conn_.CloseWrite().ok()) return;
    (void)conn_.SetReadDeadline(absl::Now() + absl::Seconds(1));
    do in_.clear();
    while (Fill() == Filled::kSome);
  }

  const net::Conn conn_;
  Server* const server_;
  std::string in_;  // received, but not taken yet
  bool has_place_ = false;
  // Of the answer that is being sent:
  bool chunked_ = false;
  absl::Duration time_left_;  // for what is still to be sent
  bool failed_ = false;       // a write has failed: the connection is of no use
  // Guarded by Server::mu_:
  bool reading_ = true;  // it waits for a request, or reads one
  absl::Time since_ = absl::Now();
  bool closed_ = false;  // by MakeRoom
};

bool Server::BeginReading(Session* s) {
  mu_.Lock();
  const bool goes_on = !stopping_ && !s->closed_;
  s->reading_ = true;
  s->since_ = absl::Now();
  mu_.Unlock();
  return goes_on;
}

bool Server::BeginServing(Session* s) {
  mu_.Lock();
  const bool goes_on = !stopping_ && !s->closed_;
  s->reading_ = false;
  mu_.Unlock();
  return goes_on;
}

// MakeRoom closes a session if there are too many. Returns false if there may
// not be one more. The caller holds mu_.
bool Server::MakeRoom() {
  if (open_ < kMaxSessions) return true;
  Session* oldest = nullptr;
  for (Session* s : sessions_) {
    if (s->closed_ || !s->reading_) continue;
    if (oldest == nullptr || s->since_ < oldest->since_) oldest = s;
  }
  if (oldest == nullptr) return false;
  oldest->closed_ = true;
  oldest->Close();
  open_--;
  return true;
}

void Server::Admit(const net::Conn& conn) {
  const auto session = std::make_shared<Session>(this, conn);
  bool room = false;
  {
    const std::lock_guard hold(mu_);
    room = MakeRoom();
    if (room) {
      sessions_.insert(session.get());
      open_++;
    }
  }
  if (!room) {
    // The socket is new, so this does not wait.
    (void)conn.Write(
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
        "Content-Length: 0\r\n\r\n");
    (void)conn.Close();
    return;
  }
  absl::Cleanup forget = [&] { Forget(session.get()); };  // no goroutine
  running_.Go([this, session] { RunSession(session.get()); });
  std::move(forget).Cancel();
}

void Server::RunSession(Session* s) {
  s->Run();
  s->Close();
  if (Forget(s)) empty_.Close();
}

// Forget takes s off the list. Returns true if it was the last one, and the
// server stops.
bool Server::Forget(Session* s) {
  const std::lock_guard hold(mu_);
  sessions_.erase(s);
  if (!s->closed_) open_--;
  return stopping_ && sessions_.empty();
}

// Stop ends all sessions, and waits until they have ended. Its caller admits no
// new ones.
void Server::Stop() {
  mu_.Lock();
  stopping_ = true;
  const bool none = sessions_.empty();
  for (const Session* s : sessions_) {
    if (s->reading_) {
      s->Close();
    } else {
      s->EndReads();
    }
  }
  mu_.Unlock();
  if (!none) {
    select(Recv(empty_), Recv(time::After(kGrace), [this] {
             mu_.Lock();
             for (const Session* s : sessions_) s->Close();
             mu_.Unlock();
           }));
  }
  running_.Wait();
}

// Passes returns true if Accept may succeed later. Connections wait until then.
bool Passes(const absl::Status& s) {
  const int e = Errno(s);
  return e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM ||
         e == ECONNABORTED || e == ECONNRESET || e == EPROTO || e == EPERM;
}

// Serve throws if there is no memory or no goroutine. It ends the sessions
// first, because they use the server.
absl::Status Server::Serve() {
  const absl::Cleanup stop = [this] { Stop(); };
  absl::Duration pause;
  for (;;) {
    const absl::StatusOr<net::Conn> conn = listener_.Accept();
    if (conn.ok()) {
      pause = absl::ZeroDuration();
      Admit(*conn);
    } else if (Passes(conn.status())) {
      pause = std::clamp(2 * pause, absl::Milliseconds(5), absl::Seconds(1));
      time::Sleep(pause);
    } else {
      const bool closed = listener_.Fd() < 0;
      return closed ? absl::OkStatus() : conn.status();
    }
  }
}

}  // namespace

absl::Status ServeHttp(net::Listener listener, const ServeLimits& limits) {
  return Server(std::move(listener), limits).Serve();
}

}  // namespace gump::internal

namespace gump::debug {

absl::Status ServeHTTP(net::Listener listener) {
  return internal::ServeHttp(std::move(listener), {});
}

}  // namespace gump::debug
