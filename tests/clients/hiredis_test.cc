// hiredis, a client that waits in read and poll, and redis-server.
#include <gtest/gtest.h>
#include <hiredis/hiredis.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/go.h"
#include "tests/clients/harness.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("redis-server");

class HiredisTest : public Clients {};

// Redis is a server on a loopback port.
class Redis {
 public:
  Redis()
      : server_({"redis-server", "--port", absl::StrCat(port_.Port()), "--bind",
                 "127.0.0.1", "--save", "", "--dir", dir_ / "", "--maxclients",
                 "4000", "--tcp-backlog", "4000"}) {
    server_.Says("eady to accept connections");
  }
  LocalServer& operator*() { return server_; }
  int Port() const { return port_.Port(); }

 private:
  HeldPort port_;
  TempDir dir_;
  LocalServer server_;
};

struct Disconnect {
  void operator()(redisContext* c) const { redisFree(c); }
};
using Connection = std::unique_ptr<redisContext, Disconnect>;

Connection Connect(int port) {
  Connection c(redisConnect("127.0.0.1", port));
  EXPECT_EQ(c->err, 0) << c->errstr;
  return c;
}

// Text returns a reply, or the error of a connection without one.
std::string Text(const redisReply* r) {
  std::string all;
  switch (r->type) {
    case REDIS_REPLY_INTEGER:
      return absl::StrCat(r->integer);
    case REDIS_REPLY_NIL:
      return "nil";
    case REDIS_REPLY_ARRAY:
      for (size_t i = 0; i < r->elements; i++) {
        absl::StrAppend(&all, i == 0 ? "" : " ", Text(r->element[i]));
      }
      return all;
    case REDIS_REPLY_ERROR:
      return absl::StrCat("error ", r->str);
    default:
      return std::string(r->str, r->len);
  }
}

template <class... Args>
std::string Ask(redisContext* c, const char* format, Args... args) {
  auto* r = static_cast<redisReply*>(redisCommand(c, format, args...));
  if (r == nullptr) return absl::StrCat("broken ", c->err, " ", c->errstr);
  std::string text = Text(r);
  freeReplyObject(r);
  return text;
}

std::string VersionOf(redisContext* c) {
  const std::string info = Ask(c, "INFO server");
  const std::string key = "redis_version:";
  const size_t at = info.find(key) + key.size();
  return info.substr(at, info.find('\r', at) - at);
}

TEST_F(HiredisTest, Crowd) {
  Run([this] {
    Redis redis;
    std::string version;
    InHooked(1, [&](int) { version = VersionOf(Connect(redis.Port()).get()); });
    About(absl::StrCat("hiredis ", HIREDIS_MAJOR, ".", HIREDIS_MINOR, ".",
                       HIREDIS_PATCH),
          absl::StrCat("Redis ", version), "parks in `read` and `poll`");
    constexpr int kGoroutines = 1000;
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int i) {
      std::shared_ptr<redisContext> c = Connect(redis.Port());
      return [c, i](int seconds) {
        EXPECT_EQ(Ask(c.get(), "BLPOP none:%d %d", i, seconds), "nil");
        EXPECT_EQ(Ask(c.get(), "ECHO %d", i), absl::StrCat(i));
      };
    });
    ExpectFewThreads(f);
    Shows(f.Text());
  });
}

// IsDeath returns true for the errors that a client of a dead server reports.
bool IsDeath(const std::string& text) {
  return text == "broken 3 Server closed the connection" ||
         text == "broken 1 Connection reset by peer" ||
         text == "broken 1 Broken pipe";
}

TEST_F(HiredisTest, Faults) {
  Run([this] {
    {
      Redis redis;
      ExpectAllDie(*redis, kWaiters, [&](int i) {
        std::shared_ptr<redisContext> c = Connect(redis.Port());
        EXPECT_EQ(Ask(c.get(), "PING"), "PONG");
        return [c, i] { return IsDeath(Ask(c.get(), "BLPOP none:%d 0", i)); };
      });
    }
    const RudeServer resets(RudeServer::Manner::kResets);
    const RudeServer silent(RudeServer::Manner::kIsSilent);
    ExpectSame([&]() -> Transcript {
      return {Ask(Connect(resets.Port()).get(), "PING")};
    });
    // A time limit of the client: SO_RCVTIMEO.
    ExpectSame([&]() -> Transcript {
      const Connection c = Connect(silent.Port());
      const timeval limit{0, 50'000};
      EXPECT_EQ(redisSetTimeout(c.get(), limit), REDIS_OK);
      const absl::Time begin = absl::Now();
      std::string text = Ask(c.get(), "PING");
      EXPECT_GE(absl::Now() - begin, absl::Milliseconds(49));
      return {std::move(text)};
    });
    // Another thread ends the wait for the answer.
    ExpectSame([&]() -> Transcript {
      const Connection c = Connect(silent.Port());
      int written = 0;
      EXPECT_EQ(redisAppendCommand(c.get(), "PING"), REDIS_OK);
      while (written == 0) {
        EXPECT_EQ(redisBufferWrite(c.get(), &written), REDIS_OK);
      }
      std::thread other([&] { shutdown(c->fd, SHUT_RDWR); });
      void* reply = nullptr;
      EXPECT_EQ(redisGetReply(c.get(), &reply), REDIS_ERR);
      other.join();
      return {absl::StrCat(c->err, " ", c->errstr)};
    });
    // No server at all.
    const HeldPort none;
    ExpectSame([&]() -> Transcript {
      const Connection c(redisConnect("127.0.0.1", none.Port()));
      return {absl::StrCat(c->err, " ", c->errstr)};
    });
    Shows("server killed, reset, time limit, shutdown, refused");
  });
}

TEST_F(HiredisTest, Mixed) {
  Run([this] {
    Redis redis;
    constexpr int kGoroutines = 50;
    constexpr int kRequests = 20;
    std::string total;
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        const Connection c = Connect(redis.Port());
        for (int k = 0; k < kRequests; k++) {
          EXPECT_EQ(Ask(c.get(), "SET key:%d %d", i, k), "OK");
          EXPECT_EQ(Ask(c.get(), "GET key:%d", i), absl::StrCat(k));
          Ask(c.get(), "INCR total");
        }
      });
      InHooked(1, [&](int) {
        total = Ask(Connect(redis.Port()).get(), "GET total");
      });
    }
    EXPECT_EQ(total, absl::StrCat(kGoroutines * kRequests));
    Shows(absl::StrCat(3 * kGoroutines * kRequests, " requests"));
  });
}

TEST_F(HiredisTest, Differential) {
  Run([this] {
    Redis redis;
    const size_t calls = ExpectSame([&]() -> Transcript {
      const Connection c = Connect(redis.Port());
      Transcript t;
      t.push_back(Ask(c.get(), "FLUSHALL"));
      t.push_back(Ask(c.get(), "SET a %b", "x\0y", size_t{3}));
      t.push_back(Ask(c.get(), "GET a"));
      t.push_back(Ask(c.get(), "INCR a"));
      t.push_back(Ask(c.get(), "NONSENSE"));
      t.push_back(Ask(c.get(), "RPUSH l a b c"));
      t.push_back(Ask(c.get(), "LRANGE l 0 -1"));
      t.push_back(Ask(c.get(), "GET none"));
      const std::string much(8 << 20, 'x');
      t.push_back(Ask(c.get(), "SET big %b", much.data(), much.size()));
      t.push_back(absl::StrCat(Ask(c.get(), "GET big") == much));
      // A pipeline.
      for (int i = 0; i < 100; i++) {
        EXPECT_EQ(redisAppendCommand(c.get(), "INCRBY n %d", i), REDIS_OK);
      }
      for (int i = 0; i < 100; i++) {
        void* r = nullptr;
        EXPECT_EQ(redisGetReply(c.get(), &r), REDIS_OK);
        t.push_back(Text(static_cast<redisReply*>(r)));
        freeReplyObject(r);
      }
      t.push_back(Ask(c.get(), "BLPOP none 0.01"));
      t.push_back(Ask(c.get(), "QUIT"));
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
