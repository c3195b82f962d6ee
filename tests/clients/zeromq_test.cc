// ZeroMQ, whose callers wait in poll for its own threads.
#include <gtest/gtest.h>
#include <zmq.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/go.h"
#include "tests/clients/harness.h"
#include "tests/testing/known_thread.h"

namespace gump::testing {
namespace {

class ZeromqTest : public Clients {};

// A context makes two threads of its own.
constexpr int kOwnThreads = 2;

class Context {
 public:
  Context() : ctx_(zmq_ctx_new()) {
    constexpr int kSockets = 4000;
    EXPECT_EQ(zmq_ctx_set(ctx_, ZMQ_MAX_SOCKETS, kSockets), 0);
  }
  ~Context() { EXPECT_EQ(zmq_ctx_term(ctx_), 0); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void* get() const { return ctx_; }

 private:
  void* const ctx_;
};

class Socket {
 public:
  Socket(const Context& c, int kind) : s_(zmq_socket(c.get(), kind)) {
    const int now = 0;
    EXPECT_EQ(zmq_setsockopt(s_, ZMQ_LINGER, &now, sizeof(now)), 0);
  }
  ~Socket() { EXPECT_EQ(zmq_close(s_), 0); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  void* get() const { return s_; }

  void Connect(const std::string& to) const {
    EXPECT_EQ(zmq_connect(s_, to.c_str()), 0);
  }
  void Limit(int ms) const {
    EXPECT_EQ(zmq_setsockopt(s_, ZMQ_RCVTIMEO, &ms, sizeof(ms)), 0);
  }
  void Send(const std::string& text, int flags = 0) const {
    EXPECT_EQ(zmq_send(s_, text.data(), text.size(), flags),
              static_cast<int>(text.size()));
  }
  // Recv returns a part of a message, or the error.
  std::string Recv() const {
    zmq_msg_t m;
    zmq_msg_init(&m);
    std::string text;
    if (zmq_msg_recv(&m, s_, 0) < 0) {
      text = absl::StrCat("error ", zmq_strerror(zmq_errno()));
    } else {
      text.assign(static_cast<char*>(zmq_msg_data(&m)), zmq_msg_size(&m));
    }
    zmq_msg_close(&m);
    return text;
  }
  std::string Ask(const std::string& text) const {
    Send(text);
    return Recv();
  }

 private:
  void* const s_;
};

// Router answers "S text" with "S text" after S seconds. It runs on a plain
// thread, with a context of its own.
class Router {
 public:
  Router() {
    thread_ = KnownThread([this] { Serve(); });
    EXPECT_TRUE(Eventually([this] { return serving_.load(); }));
  }
  ~Router() {
    stop_ = true;
    blocking([this] { thread_.join(); });
  }
  std::string Address() const { return address_; }

 private:
  void Serve() {
    const Context c;
    const Socket s(c, ZMQ_ROUTER);
    EXPECT_EQ(zmq_bind(s.get(), "tcp://127.0.0.1:*"), 0);
    char name[256];
    size_t size = sizeof(name);
    EXPECT_EQ(zmq_getsockopt(s.get(), ZMQ_LAST_ENDPOINT, name, &size), 0);
    address_ = name;
    serving_ = true;
    std::multimap<absl::Time, std::pair<std::string, std::string>> answers;
    while (!stop_) {
      s.Limit(10);
      for (;;) {
        std::string peer = s.Recv();
        if (peer.starts_with("error")) break;  // there is none
        s.Recv();                              // the empty part
        std::string text = s.Recv();
        const absl::Time at = absl::Now() + absl::Seconds(std::stoi(text));
        answers.emplace(at, std::pair(std::move(peer), std::move(text)));
        if (answers.begin()->first <= absl::Now()) break;
      }
      while (!answers.empty() && answers.begin()->first <= absl::Now()) {
        const auto [peer, text] = answers.begin()->second;
        answers.erase(answers.begin());
        s.Send(peer, ZMQ_SNDMORE);
        s.Send("", ZMQ_SNDMORE);
        s.Send(text);
      }
    }
  }

  std::atomic<bool> stop_ = false;
  std::atomic<bool> serving_ = false;
  std::string address_;
  std::thread thread_;
};

std::string Version() {
  int major = 0;
  int minor = 0;
  int patch = 0;
  zmq_version(&major, &minor, &patch);
  return absl::StrCat("libzmq ", major, ".", minor, ".", patch);
}

TEST_F(ZeromqTest, Crowd) {
  Run([this] {
    About(Version(), "a ROUTER on a plain thread", "parks in `poll`");
    const Router router;
    const Context c;
    constexpr int kGoroutines = 1000;
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int i) {
      auto s = std::make_shared<Socket>(c, ZMQ_REQ);
      s->Connect(router.Address());
      EXPECT_EQ(s->Ask("0 hello"), "0 hello");
      return [s, i](int seconds) {
        const std::string text = absl::StrCat(seconds, " ", i);
        EXPECT_EQ(s->Ask(text), text);
      };
    });
    // The router has a thread and a context, too.
    ExpectFewThreads(f, 1 + 2 * kOwnThreads);
    Shows(f.Text());
  });
}

TEST_F(ZeromqTest, Faults) {
  Run([this] {
    ExpectSame([]() -> Transcript {
      Transcript t;
      const Context c;
      const Socket s(c, ZMQ_REQ);
      s.Connect("tcp://127.0.0.1:1");
      s.Limit(50);
      t.push_back(s.Ask("0 nobody"));
      t.push_back(s.Recv());
      const Socket again(c, ZMQ_REP);
      again.Limit(10);
      t.push_back(again.Recv());
      return t;
    });
    // The end of the context ends the waits.
    ExpectSame([]() -> Transcript {
      void* const ctx = zmq_ctx_new();
      void* const s = zmq_socket(ctx, ZMQ_PULL);
      std::thread other([&] { zmq_ctx_shutdown(ctx); });
      char c;
      const int n = zmq_recv(s, &c, 1, 0);
      const std::string text = absl::StrCat(n, " ", zmq_strerror(zmq_errno()));
      other.join();
      zmq_close(s);
      zmq_ctx_term(ctx);
      return {text};
    });
    Shows("time limit, wrong state, end of the context");
  });
}

TEST_F(ZeromqTest, Mixed) {
  Run([this] {
    const Router router;
    const Context c;
    constexpr int kGoroutines = 30;
    constexpr int kRequests = 20;
    std::atomic<int> right = 0;
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        const Socket s(c, ZMQ_REQ);
        s.Connect(router.Address());
        for (int k = 0; k < kRequests; k++) {
          const std::string text = absl::StrCat("0 ", i, " ", k);
          right += s.Ask(text) == text ? 1 : 0;
        }
      });
    }
    EXPECT_EQ(right, kGoroutines * kRequests);
    Shows(absl::StrCat(kGoroutines * kRequests, " requests"));
  });
}

TEST_F(ZeromqTest, Differential) {
  Run([this] {
    const size_t calls = ExpectSame([]() -> Transcript {
      Transcript t;
      const Context c;
      const Socket pub(c, ZMQ_XPUB);
      EXPECT_EQ(zmq_bind(pub.get(), "tcp://127.0.0.1:*"), 0);
      char name[256];
      size_t size = sizeof(name);
      zmq_getsockopt(pub.get(), ZMQ_LAST_ENDPOINT, name, &size);
      const Socket sub(c, ZMQ_SUB);
      EXPECT_EQ(zmq_setsockopt(sub.get(), ZMQ_SUBSCRIBE, "a", 1), 0);
      sub.Connect(name);
      t.push_back(pub.Recv());  // the subscription
      for (const char* text : {"b0", "a1", "b2", "a3"}) pub.Send(text);
      t.push_back(sub.Recv());
      t.push_back(sub.Recv());
      const std::string much(5'000'000, 'a');
      pub.Send(much);
      t.push_back(absl::StrCat(sub.Recv() == much));
      sub.Limit(10);
      t.push_back(sub.Recv());
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
