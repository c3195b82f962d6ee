// The loops on epoll.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_set>
#include <utility>

#include "tools/bench/raw_server.h"

namespace gump::bench {
namespace {

constexpr int kEventsAtOnce = 128;

struct Connection {
  int fd;
  std::string unsent;  // the bytes for which the kernel had no room
};

class EpollServer {
 public:
  EpollServer(const RawJob& job, EpollForm form)
      : job_(job),
        form_(form),
        buf_(job.buffer * (form == EpollForm::kBatch ? kEventsAtOnce : 1)) {}

  ~EpollServer() {
    for (Connection* c : open_) {
      close(c->fd);
      delete c;
    }
    close(ep_);
  }

  EpollServer(const EpollServer&) = delete;
  EpollServer& operator=(const EpollServer&) = delete;

  void Serve() {
    Control(EPOLL_CTL_ADD, job_.listener, EPOLLIN, &listener_);
    Control(EPOLL_CTL_ADD, job_.stop, EPOLLIN, &stop_);
    for (;;) {
      epoll_event events[kEventsAtOnce];
      job_.CountCall();
      const int n = epoll_wait(ep_, events, kEventsAtOnce, -1);
      for (int i = 0; i < n; i++) {
        auto* c = static_cast<Connection*>(events[i].data.ptr);
        if (c == &stop_) return;
        if (c == &listener_) {
          Accept();
        } else {
          Handle(c, events[i].events);
        }
      }
      // A connection has one event in a batch, and so at most one answer.
      for (const auto& [c, answer] : std::exchange(answers_, {})) {
        if (!Send(c, answer)) Close(c);
      }
    }
  }

 private:
  void Control(int op, int fd, uint32_t events, Connection* c) {
    epoll_event ev{};
    ev.events = events;
    ev.data.ptr = c;
    job_.CountCall();
    epoll_ctl(ep_, op, fd, &ev);
  }

  uint32_t Interest(const Connection& c) const {
    if (edges_) {
      return EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    }
    return c.unsent.empty() ? EPOLLIN : EPOLLOUT;
  }

  void Accept() {
    job_.CountCall();
    const int fd = accept4(job_.listener, nullptr, nullptr, SOCK_NONBLOCK);
    if (fd < 0) return;
    auto* c = new Connection{fd, {}};
    open_.insert(c);
    Control(EPOLL_CTL_ADD, fd, Interest(*c), c);
  }

  void Close(Connection* c) {
    job_.CountCall();
    close(c->fd);  // also ends the registration with epoll
    open_.erase(c);
    delete c;
  }

  // Send returns false if the connection is gone. Bytes for which the kernel
  // has no room stay in c->unsent.
  bool Send(Connection* c, std::string_view data) {
    job_.CountCall();
    ssize_t n = send(c->fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return false;
    if (n < 0) n = 0;
    const bool waited = !c->unsent.empty();
    // data may be a part of c->unsent.
    c->unsent = std::string(data.substr(static_cast<size_t>(n)));
    if (!edges_ && waited == c->unsent.empty()) {
      Control(EPOLL_CTL_MOD, c->fd, Interest(*c), c);
    }
    return true;
  }

  void Handle(Connection* c, uint32_t events) {
    if (!c->unsent.empty() && (events & EPOLLOUT) != 0 && !Send(c, c->unsent)) {
      return Close(c);
    }
    // While bytes are unsent, receive nothing. (No piece is forgotten: room to
    // send is an edge, too, and after it this receives again.)
    while (c->unsent.empty()) {
      job_.CountCall();
      char* buf = buf_.data() + answers_.size() * job_.buffer;
      const ssize_t n = recv(c->fd, buf, job_.buffer, 0);
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return Close(c);
      const auto got = static_cast<size_t>(n);
      const std::string_view answer =
          job_.answer.empty() ? std::string_view(buf, got) : job_.answer;
      if (form_ == EpollForm::kBatch) return answers_.push_back({c, answer});
      if (!Send(c, answer)) return Close(c);
      if (form_ == EpollForm::kLevel) return;
      // The end of the stream may have come before the recv. Then it has no
      // edge of its own.
      const bool ends = (events & EPOLLRDHUP) != 0;
      if (form_ == EpollForm::kEdge && got < job_.buffer && !ends) return;
    }
  }

  const RawJob job_;
  const EpollForm form_;
  const bool edges_ = form_ == EpollForm::kEdge || form_ == EpollForm::kAgain;
  std::vector<char> buf_;
  std::vector<std::pair<Connection*, std::string_view>> answers_;
  const int ep_ = epoll_create1(0);
  std::unordered_set<Connection*> open_;
  Connection listener_{-1, {}};
  Connection stop_{-1, {}};
};

}  // namespace

void ServeEpoll(const RawJob& job, EpollForm form) {
  EpollServer(job, form).Serve();
}

}  // namespace gump::bench
