// libnats, whose callers wait for a condition variable, and nats-server.
#include <gtest/gtest.h>
#include <nats/nats.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/go.h"
#include "tests/clients/harness.h"
#include "tests/testing/held_port.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("nats-server");

class NatsTest : public Clients {};

// A connection makes three threads, and the library a few more.
constexpr int kOwnThreads = 8;

// Nats is a server on a loopback port.
class Nats {
 public:
  Nats()
      : server_({"nats-server", "-a", "127.0.0.1", "-p",
                 absl::StrCat(port_.Port())}) {
    server_.Says("Server is ready");
  }
  LocalServer& operator*() { return server_; }
  std::string Url() const {
    return absl::StrCat("nats://127.0.0.1:", port_.Port());
  }

 private:
  HeldPort port_;
  LocalServer server_;
};

std::string Text(natsStatus s) { return natsStatus_GetText(s); }

class Connection {
 public:
  explicit Connection(const std::string& url) {
    EXPECT_EQ(Text(natsConnection_ConnectTo(&c_, url.c_str())), "OK");
  }
  ~Connection() { natsConnection_Destroy(c_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  natsConnection* get() const { return c_; }

  std::string Publish(const std::string& subject, const std::string& text) {
    return Text(natsConnection_Publish(c_, subject.c_str(), text.data(),
                                       static_cast<int>(text.size())));
  }
  // Ask returns the answer, or the error.
  std::string Ask(const std::string& subject, const std::string& text,
                  int64_t ms) {
    natsMsg* m = nullptr;
    const natsStatus s =
        natsConnection_Request(&m, c_, subject.c_str(), text.data(),
                               static_cast<int>(text.size()), ms);
    return TextOf(s, m);
  }
  static std::string TextOf(natsStatus s, natsMsg* m) {
    if (s != NATS_OK) return "error " + Text(s);
    std::string text(natsMsg_GetData(m),
                     static_cast<size_t>(natsMsg_GetDataLength(m)));
    natsMsg_Destroy(m);
    return text;
  }

 private:
  natsConnection* c_ = nullptr;
};

class Subscription {
 public:
  Subscription(const Connection& c, const std::string& subject) {
    EXPECT_EQ(Text(natsConnection_SubscribeSync(&s_, c.get(), subject.c_str())),
              "OK");
  }
  ~Subscription() { natsSubscription_Destroy(s_); }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;
  // Next returns the next message, or the error.
  std::string Next(int64_t ms) {
    natsMsg* m = nullptr;
    const natsStatus s = natsSubscription_NextMsg(&m, s_, ms);
    return Connection::TextOf(s, m);
  }

 private:
  natsSubscription* s_ = nullptr;
};

// Answers a request with its text, on a thread of libnats.
void Echo(natsConnection* c, natsSubscription*, natsMsg* m, void*) {
  natsConnection_Publish(c, natsMsg_GetReply(m), natsMsg_GetData(m),
                         natsMsg_GetDataLength(m));
  natsMsg_Destroy(m);
}

class Echoes {
 public:
  explicit Echoes(const Connection& c) {
    EXPECT_EQ(
        Text(natsConnection_Subscribe(&s_, c.get(), "echo", &Echo, nullptr)),
        "OK");
    EXPECT_EQ(Text(natsConnection_Flush(c.get())), "OK");
  }
  ~Echoes() { natsSubscription_Destroy(s_); }

 private:
  natsSubscription* s_ = nullptr;
};

TEST_F(NatsTest, Crowd) {
  Run([this] {
    Nats nats;
    Connection c(nats.Url());
    // "nats-server: v2.9.10"
    const std::string version = OutputOf("nats-server", "--version");
    About(absl::StrCat("libnats ", nats_GetVersion()),
          absl::StrCat("nats-server ",
                       version.substr(version.find('v', 10) + 1, 6)),
          "parks in `pthread_cond_timedwait`");
    constexpr int kGoroutines = 1000;
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int i) {
      const std::string subject = absl::StrCat("s", i);
      auto s = std::make_shared<Subscription>(c, subject);
      return [s, subject, &c](int seconds) {
        EXPECT_EQ(s->Next(1000 * seconds), "error Timeout");
        EXPECT_EQ(c.Publish(subject, subject), "OK");
        EXPECT_EQ(s->Next(60'000), subject);
      };
    });
    ExpectFewThreads(f, kOwnThreads);
    Shows(f.Text());
  });
}

TEST_F(NatsTest, Faults) {
  Run([this] {
    {
      Nats nats;
      ExpectSame([&]() -> Transcript {
        Transcript t;
        Connection c(nats.Url());
        t.push_back(c.Ask("nobody", "x", 1000));
        Subscription s(c, "silent");
        const absl::Time begin = absl::Now();
        t.push_back(s.Next(50));
        EXPECT_GE(absl::Now() - begin, absl::Milliseconds(49));
        return t;
      });
      natsOptions* o = nullptr;
      natsOptions_Create(&o);
      natsOptions_SetURL(o, nats.Url().c_str());
      natsOptions_SetAllowReconnect(o, false);
      natsConnection* c = nullptr;
      EXPECT_EQ(Text(natsConnection_Connect(&c, o)), "OK");
      ExpectAllDie(*nats, kWaiters, [c](int i) {
        natsSubscription* s = nullptr;
        natsConnection_SubscribeSync(&s, c, absl::StrCat("w", i).c_str());
        return [s] {
          natsMsg* m = nullptr;
          const natsStatus e = natsSubscription_NextMsg(&m, s, 600'000);
          natsSubscription_Destroy(s);
          return e == NATS_CONNECTION_CLOSED;
        };
      });
      natsConnection_Destroy(c);
      natsOptions_Destroy(o);
    }
    const HeldPort none;
    ExpectSame([&]() -> Transcript {
      natsConnection* c = nullptr;
      return {Text(natsConnection_ConnectTo(
          &c, absl::StrCat("nats://127.0.0.1:", none.Port()).c_str()))};
    });
    Shows("server killed, refused, no responder, time limit");
  });
}

TEST_F(NatsTest, Mixed) {
  Run([this] {
    Nats nats;
    Connection c(nats.Url());
    const Echoes echoes(c);
    constexpr int kGoroutines = 50;
    constexpr int kRequests = 20;
    std::atomic<int> right = 0;
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        for (int k = 0; k < kRequests; k++) {
          const std::string text = absl::StrCat(i, " ", k);
          right += c.Ask("echo", text, 60'000) == text ? 1 : 0;
        }
      });
    }
    EXPECT_EQ(right, kGoroutines * kRequests);
    Shows(absl::StrCat(kGoroutines * kRequests, " requests"));
  });
}

TEST_F(NatsTest, Differential) {
  Run([this] {
    Nats nats;
    const size_t calls = ExpectSame([&]() -> Transcript {
      Transcript t;
      Connection c(nats.Url());
      const Echoes echoes(c);
      Subscription s(c, "news.*");
      t.push_back(c.Publish("news.a", "one"));
      t.push_back(c.Publish("other", "two"));
      t.push_back(c.Publish("news.b", "three"));
      t.push_back(s.Next(60'000));
      t.push_back(s.Next(60'000));
      t.push_back(s.Next(10));
      const std::string much(900'000, 'x');
      t.push_back(absl::StrCat(c.Ask("echo", much, 60'000) == much));
      t.push_back(c.Publish("too.much", std::string(2'000'000, 'x')));
      t.push_back(Text(natsConnection_FlushTimeout(c.get(), 60'000)));
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
