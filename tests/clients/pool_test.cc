// A pool of connections, as programs with threads write it: with a std::mutex
// and a std::condition_variable.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "tests/clients/harness.h"

namespace gump::testing {
namespace {

class PoolTest : public Clients {};

// Connection is a connection to a server that sends back what it gets.
class Connection {
 public:
  explicit Connection(uint16_t port)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int Ask(int question) const {
    int answer = -1;
    EXPECT_EQ(send(fd_, &question, sizeof(question), 0), sizeof(question));
    EXPECT_EQ(recv(fd_, &answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
    return answer;
  }

 private:
  const int fd_;
};

class Pool {
 public:
  Connection* Take() {
    std::unique_lock hold(mu_);
    some_.wait(hold, [this] { return !free_.empty(); });
    return Pop();
  }
  // Returns nullptr if there is none in time.
  template <class Duration>
  Connection* TakeWithin(Duration limit) {
    std::unique_lock hold(mu_);
    waiting_++;
    const bool got =
        some_.wait_for(hold, limit, [this] { return !free_.empty(); });
    waiting_--;
    return got ? Pop() : nullptr;
  }
  void Give(Connection* c) {
    const std::scoped_lock hold(mu_);
    free_.push_back(c);
    some_.notify_one();
  }
  int Waiting() {
    const std::scoped_lock hold(mu_);
    return waiting_;
  }

 private:
  Connection* Pop() {
    Connection* c = free_.back();
    free_.pop_back();
    return c;
  }

  std::mutex mu_;
  std::condition_variable some_;
  std::vector<Connection*> free_;
  int waiting_ = 0;
};

TEST_F(PoolTest, Crowd) {
  Run([this] {
    About("std::condition_variable", "none", "parks in `pthread_cond_wait`");
    Pool empty;
    constexpr int kGoroutines = 1000;
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int) {
      return [&empty](int seconds) {
        EXPECT_EQ(empty.TakeWithin(std::chrono::seconds(seconds)), nullptr);
      };
    });
    ExpectFewThreads(f);
    Shows(f.Text());
  });
}

TEST_F(PoolTest, Faults) {
  Run([this] {
    const RudeServer server(RudeServer::Manner::kEchoes);
    Connection c(server.Port());
    Pool pool;
    // A plain thread gives the only connection while a hundred wait for it.
    // Each goroutine fails, and gives it back on its way out.
    constexpr int kGoroutines = 100;
    std::atomic<int> failed = 0;
    chan<void> done = make_chan<void>(1);
    go([&] {
      InHooked(kGoroutines, [&](int) {
        try {
          Connection* mine = pool.TakeWithin(std::chrono::minutes(1));
          struct Return {
            ~Return() { pool->Give(c); }
            Pool* pool;
            Connection* c;
          } const on_exit{&pool, mine};
          if (mine->Ask(7) == 7) throw std::runtime_error("after the answer");
        } catch (const std::runtime_error&) {
          failed++;
        }
      });
      done.Send();
    });
    EXPECT_TRUE(Eventually([&] { return pool.Waiting() == kGoroutines; }));
    std::thread plain([&] { pool.Give(&c); });
    done.Recv();
    blocking([&] { plain.join(); });
    EXPECT_EQ(failed, kGoroutines);
    Shows("signal from a plain thread, exceptions, time limit");
  });
}

TEST_F(PoolTest, Mixed) {
  Run([this] {
    const RudeServer server(RudeServer::Manner::kEchoes);
    Pool pool;
    constexpr int kConnections = 10;
    constexpr int kGoroutines = 500;
    constexpr int kRequests = 4;
    std::vector<std::unique_ptr<Connection>> connections;
    for (int i = 0; i < kConnections; i++) {
      connections.push_back(std::make_unique<Connection>(server.Port()));
      pool.Give(connections.back().get());
    }
    std::atomic<int> right = 0;
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        for (int k = 0; k < kRequests; k++) {
          Connection* c = pool.Take();
          right += c->Ask(kRequests * i + k) == kRequests * i + k ? 1 : 0;
          pool.Give(c);
        }
      });
    }
    EXPECT_EQ(right, kGoroutines * kRequests);
    Shows(absl::StrCat(kGoroutines * kRequests, " requests on ", kConnections,
                       " connections"));
  });
}

TEST_F(PoolTest, Differential) {
  Run([this] {
    const RudeServer server(RudeServer::Manner::kEchoes);
    const size_t calls = ExpectSame([&]() -> Transcript {
      Transcript t;
      Pool pool;
      Connection c(server.Port());
      t.push_back(absl::StrCat(pool.TakeWithin(std::chrono::milliseconds(10)) ==
                               nullptr));
      pool.Give(&c);
      t.push_back(absl::StrCat(pool.TakeWithin(std::chrono::hours(1)) == &c));
      t.push_back(absl::StrCat(c.Ask(3)));
      std::mutex mu;
      std::condition_variable_any any;
      std::unique_lock hold(mu);
      const auto status = any.wait_for(hold, std::chrono::milliseconds(1));
      t.push_back(absl::StrCat(status == std::cv_status::timeout));
      t.push_back(absl::StrCat(any.wait_until(
          hold, std::chrono::system_clock::now(), [] { return false; })));
      t.push_back(absl::StrCat(hold.owns_lock()));
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
