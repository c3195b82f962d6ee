// cpp-httplib, a client and a server in headers alone.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/hooks.h"
#include "gump/sync/waitgroup.h"
#include "tests/clients/harness.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("python3");

class HttplibTest : public Clients {};

std::string Text(const httplib::Result& r) {
  if (!r) return "error " + httplib::to_string(r.error());
  return absl::StrCat(r->status, " ", r->body);
}

std::shared_ptr<httplib::Client> Connect(int port) {
  auto c = std::make_shared<httplib::Client>("127.0.0.1", port);
  c->set_keep_alive(true);
  c->set_read_timeout(std::chrono::minutes(5));
  return c;
}

// HookedQueue serves each connection in a hooked goroutine.
class HookedQueue : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> f) override {
    all_.Add(1);
    hooks::Go([this, f = std::move(f)] {
      f();
      all_.Done();
    });
  }
  void shutdown() override { all_.Wait(); }

 private:
  sync::WaitGroup all_;
};

// Visitor is a connection that sends requests without a client.
class Visitor {
 public:
  explicit Visitor(int port)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  }
  ~Visitor() { close(fd_); }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

  // Expects an answer that ends with `text`.
  void Ask(const std::string& path, const std::string& text) const {
    const std::string request = "GET " + path + " HTTP/1.1\r\n\r\n";
    EXPECT_EQ(send(fd_, request.data(), request.size(), 0),
              static_cast<ssize_t>(request.size()));
    std::string got;
    char buf[4096];
    while (!got.ends_with("\r\n\r\n" + text)) {
      const ssize_t n = recv(fd_, buf, sizeof(buf), 0);
      ASSERT_GT(n, 0) << got;
      got.append(buf, static_cast<size_t>(n));
    }
  }

 private:
  const int fd_;
};

// The client holds a lock for the length of a request, so its goroutine keeps
// the thread. The server parks: each connection is a goroutine.
TEST_F(HttplibTest, Crowd) {
  Run([this] {
    About("cpp-httplib " CPPHTTPLIB_VERSION, "itself",
          "the server parks; the client keeps the thread, because it holds a "
          "lock over a request");
    httplib::Server server;
    server.new_task_queue = [] { return new HookedQueue; };
    server.Get(R"(/wait/(\d+))",
               [](const httplib::Request& q, httplib::Response& r) {
                 sleep(static_cast<unsigned>(std::stoi(q.matches[1])));
                 r.set_content(q.matches[1], "text/plain");
               });
    server.set_keep_alive_timeout(600);
    server.set_keep_alive_max_count(1000);
    const int port = server.bind_to_any_port("127.0.0.1");
    sync::WaitGroup serving;
    serving.Add(1);
    hooks::Go([&] {
      EXPECT_TRUE(server.listen_after_bind());
      serving.Done();
    });
    // The server waits in select, which knows only the descriptors below 1024,
    // and both ends of each connection are in this process.
    constexpr int kGoroutines = 400;
    // The server's listener has room for five connections.
    constexpr int kAtATime = 4;
    chan<void> turns = make_chan<void>(kAtATime);
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int) {
      turns.Send();
      auto visitor = std::make_shared<Visitor>(port);
      visitor->Ask("/wait/0", "0");
      turns.Recv();
      return [visitor](int seconds) {
        const std::string text = absl::StrCat(seconds);
        visitor->Ask("/wait/" + text, text);
      };
    });
    server.stop();
    serving.Wait();
    ExpectFewThreads(f);
    Shows(absl::StrCat(f.Text(), " of ", kGoroutines, " connections"));
  });
}

TEST_F(HttplibTest, Faults) {
  Run([this] {
    WebServer web(WebServer::Transport::kPlain);
    const RudeServer silent(RudeServer::Manner::kIsSilent);
    const RudeServer resets(RudeServer::Manner::kResets);
    const HeldPort none;
    ExpectSame([&]() -> Transcript {
      Transcript t;
      t.push_back(Text(Connect(web.Port())->Get("/reset")));
      t.push_back(Text(Connect(web.Port())->Get("/half/100000")));
      t.push_back(Text(Connect(resets.Port())->Get("/")));
      t.push_back(Text(Connect(none.Port())->Get("/")));
      const auto slow = Connect(silent.Port());
      slow->set_read_timeout(std::chrono::milliseconds(50));
      const absl::Time begin = absl::Now();
      t.push_back(Text(slow->Get("/")));
      EXPECT_GE(absl::Now() - begin, absl::Milliseconds(49));
      return t;
    });
    // One for each home, because a client keeps its thread.
    constexpr int kHomes = 4;
    ExpectAllDie(*web, kHomes, [&](int) {
      const auto c = Connect(web.Port());
      EXPECT_EQ(Text(c->Get("/bytes/1")), "200 x");
      return [c] { return Text(c->Get("/wait/600")).starts_with("error"); };
    });
    Shows("server killed, reset, half a body, refused, time limit");
  });
}

TEST_F(HttplibTest, Mixed) {
  Run([this] {
    const WebServer web(WebServer::Transport::kPlain);
    constexpr int kGoroutines = 10;
    constexpr int kRequests = 10;
    std::atomic<int> right = 0;
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        const auto c = Connect(web.Port());
        for (int k = 0; k < kRequests; k++) {
          const std::string text = absl::StrCat("request ", i, " ", k);
          const std::string answer = Text(c->Post("/", text, "text/plain"));
          EXPECT_EQ(answer, absl::StrCat("200 ", text));
          right += answer == absl::StrCat("200 ", text) ? 1 : 0;
        }
      });
    }
    EXPECT_EQ(right, kGoroutines * kRequests);
    Shows(absl::StrCat(kGoroutines * kRequests, " requests"));
  });
}

TEST_F(HttplibTest, Differential) {
  Run([this] {
    const WebServer web(WebServer::Transport::kPlain);
    const size_t calls = ExpectSame([&]() -> Transcript {
      Transcript t;
      const auto c = Connect(web.Port());
      t.push_back(Text(c->Get("/bytes/10")));
      t.push_back(Text(c->Get("/nowhere")));
      t.push_back(absl::StrCat(Text(c->Get("/bytes/3000000")).size()));
      t.push_back(absl::StrCat(
          Text(c->Post("/", std::string(2'000'000, 'y'), "text/plain"))
              .size()));
      httplib::Client name("localhost", web.Port());
      t.push_back(Text(name.Get("/bytes/5")));
      t.push_back(Text(c->Get("/wait/0.01")));
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
