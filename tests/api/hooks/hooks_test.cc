// Hooked calls park. The calls in these tests are those of an unmodified
// client: libc's functions, and the locks of the standard library.
#include "gump/hooks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/runtime/thread.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using namespace std::chrono_literals;

// One home, so that any goroutine that blocks it stops the others.
class HooksTest : public WithGomaxprocs {
 protected:
  HooksTest() { hooks::SetThreads(1); }
  void SetUp() override {
#if defined(GUMP_TSAN)
    GTEST_SKIP() << "hooks do nothing under ThreadSanitizer";
#endif
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(HooksTest);

// Pair is a pair of Unix sockets, or a pipe.
struct Pair {
  static Pair Sockets(int type = SOCK_STREAM) {
    Pair p;
    EXPECT_EQ(socketpair(AF_UNIX, type, 0, p.fd), 0);
    return p;
  }
  static Pair Pipe() {
    Pair p;
    EXPECT_EQ(pipe(p.fd), 0);
    return p;
  }
  Pair() = default;
  Pair(Pair&& o) noexcept : fd{o.fd[0], o.fd[1]} { o.fd[0] = o.fd[1] = -1; }
  ~Pair() {
    if (fd[0] >= 0) close(fd[0]);
    if (fd[1] >= 0) close(fd[1]);
  }

  int fd[2] = {-1, -1};
};

// BothOnOneHome runs `waits`, which is to park, and then `wakes`, both hooked
// and on the same home.
template <class Waits, class Wakes>
void BothOnOneHome(Waits waits, Wakes wakes) {
  sync::WaitGroup all;
  chan<void> begun = make_chan<void>(1);
  all.Add(2);
  hooks::Go([&] {
    begun.Send();
    waits();
    all.Done();
  });
  hooks::Go([&] {
    begun.Recv();
    wakes();
    all.Done();
  });
  all.Wait();
}

TEST_P(HooksTest, RecvParksUntilThereAreData) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Sockets();
    char got[8] = {};
    BothOnOneHome([&] { EXPECT_EQ(recv(p.fd[0], got, sizeof(got), 0), 3); },
                  [&] { EXPECT_EQ(send(p.fd[1], "abc", 3, 0), 3); });
    EXPECT_STREQ(got, "abc");
  });
}

TEST_P(HooksTest, ReadOfASocketAndOfAPipeParks) {
  for (const bool socket : {true, false}) {
    RunWith(GetParam(), [socket] {
      Pair p = socket ? Pair::Sockets() : Pair::Pipe();
      char got[8] = {};
      BothOnOneHome([&] { EXPECT_EQ(read(p.fd[0], got, sizeof(got)), 3); },
                    [&] { EXPECT_EQ(write(p.fd[1], "abc", 3), 3); });
      EXPECT_STREQ(got, "abc");
    });
  }
}

TEST_P(HooksTest, ASendOfMuchParksUntilAllIsTaken) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Sockets();
    const std::string much(4 << 20, 'x');
    size_t got = 0;
    BothOnOneHome(
        [&] {
          EXPECT_EQ(send(p.fd[0], much.data(), much.size(), 0),
                    static_cast<ssize_t>(much.size()));
          shutdown(p.fd[0], SHUT_WR);
        },
        [&] {
          char buf[4096];
          ssize_t n;
          while ((n = recv(p.fd[1], buf, sizeof(buf), 0)) > 0) {
            got += static_cast<size_t>(n);
          }
        });
    EXPECT_EQ(got, much.size());
  });
}

TEST_P(HooksTest, PollAndSelectPark) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Pipe();
    BothOnOneHome(
        [&] {
          pollfd fds[] = {{p.fd[0], POLLIN, 0}};
          EXPECT_EQ(poll(fds, 1, -1), 1);
          EXPECT_EQ(fds[0].revents, POLLIN);
        },
        [&] { EXPECT_EQ(write(p.fd[1], "a", 1), 1); });
    char c;
    EXPECT_EQ(read(p.fd[0], &c, 1), 1);
    BothOnOneHome(
        [&] {
          fd_set r;
          FD_ZERO(&r);
          FD_SET(p.fd[0], &r);
          timeval limit{10, 0};
          EXPECT_EQ(select(p.fd[0] + 1, &r, nullptr, nullptr, &limit), 1);
          EXPECT_TRUE(FD_ISSET(p.fd[0], &r));
          EXPECT_LT(limit.tv_sec, 10);
        },
        [&] { EXPECT_EQ(write(p.fd[1], "a", 1), 1); });
  });
}

TEST_P(HooksTest, ATimeLimitOfASocketHolds) {
  RunWith(GetParam(), [] {
    hooks::Hooked([] {
      Pair p = Pair::Sockets();
      const timeval limit{0, 20'000};
      ASSERT_EQ(
          setsockopt(p.fd[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)),
          0);
      const auto begin = std::chrono::steady_clock::now();
      char c;
      errno = 0;
      EXPECT_EQ(recv(p.fd[0], &c, 1, 0), -1);
      EXPECT_EQ(errno, EAGAIN);
      EXPECT_GE(std::chrono::steady_clock::now() - begin, 19ms);
      errno = 0;
      EXPECT_EQ(recv(p.fd[0], &c, 1, MSG_DONTWAIT), -1);
      EXPECT_EQ(errno, EAGAIN);
    });
  });
}

TEST_P(HooksTest, ANonBlockingSocketStaysOne) {
  RunWith(GetParam(), [] {
    hooks::Hooked([] {
      Pair p = Pair::Sockets(SOCK_STREAM | SOCK_NONBLOCK);
      char c;
      EXPECT_EQ(recv(p.fd[0], &c, 1, 0), -1);
      EXPECT_EQ(errno, EAGAIN);
      EXPECT_EQ(read(p.fd[0], &c, 1), -1);
      EXPECT_EQ(errno, EAGAIN);
    });
  });
}

TEST_P(HooksTest, ConnectAndAcceptPark) {
  RunWith(GetParam(), [] {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in addr{};
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(addr);
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&addr), size), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&addr), &size),
              0);
    BothOnOneHome(
        [&] {
          const int c = accept(listener, nullptr, nullptr);
          ASSERT_GE(c, 0);
          char got[2];
          EXPECT_EQ(recv(c, got, 2, MSG_WAITALL), 2);
          close(c);
        },
        [&] {
          const int s = socket(AF_INET, SOCK_STREAM, 0);
          EXPECT_EQ(connect(s, reinterpret_cast<sockaddr*>(&addr), size), 0);
          EXPECT_EQ(fcntl(s, F_GETFL) & O_NONBLOCK, 0);
          EXPECT_EQ(send(s, "a", 1, 0), 1);
          usleep(1000);
          EXPECT_EQ(send(s, "b", 1, 0), 1);
          close(s);
        });
    close(listener);
  });
}

TEST_P(HooksTest, SleepsPark) {
  RunWith(GetParam(), [] {
    constexpr int kSleepers = 50;
    std::atomic<int> begun = 0;
    sync::WaitGroup all;
    all.Add(kSleepers);
    for (int i = 0; i < kSleepers; i++) {
      hooks::Go([&] {
        begun++;
        // If a sleep blocked the home, no other goroutine would begin.
        for (int turn = 0; begun < kSleepers && turn < 5000; turn++) {
          usleep(1000);
          std::this_thread::sleep_for(1ms);
        }
        EXPECT_EQ(begun, kSleepers);
        all.Done();
      });
    }
    all.Wait();
  });
}

TEST_P(HooksTest, ASleepLastsItsTime) {
  RunWith(GetParam(), [] {
    const hooks::Scope scope;
    const auto begin = std::chrono::steady_clock::now();
    usleep(50'000);
    std::this_thread::sleep_for(50ms);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 100ms);
  });
}

// Such a sleep may be in the middle of an operation of Abseil's Mutex.
TEST_P(HooksTest, AVeryShortSleepKeepsTheThread) {
  RunWith(GetParam(), [] {
    BothOnOneHome([] {},
                  [] {
                    bool ran = false;
                    sync::WaitGroup other;
                    other.Add(1);
                    hooks::Go([&] {
                      ran = true;
                      other.Done();
                    });
                    usleep(10);
                    std::this_thread::sleep_for(10us);
                    EXPECT_FALSE(ran);
                    other.Wait();
                  });
  });
}

TEST_P(HooksTest, APollByVeryShortSleepsLetsOthersRun) {
  RunWith(GetParam(), [] {
    std::atomic<bool> ran = false;
    BothOnOneHome([] {},
                  [&] {
                    sync::WaitGroup other;
                    other.Add(1);
                    hooks::Go([&] {
                      ran = true;
                      other.Done();
                    });
                    while (!ran) usleep(10);
                    other.Wait();
                  });
  });
}

TEST_P(HooksTest, ACloseWakesAGoroutineThatWaits) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Sockets();
    BothOnOneHome(
        [&] {
          char c;
          EXPECT_EQ(recv(p.fd[0], &c, 1, 0), -1);
          EXPECT_EQ(errno, EBADF);
        },
        [&] {
          usleep(1000);
          const int fd = std::exchange(p.fd[0], -1);
          close(fd);
        });
  });
}

TEST_P(HooksTest, AConditionVariableParks) {
  RunWith(GetParam(), [] {
    std::mutex mu;
    std::condition_variable cond;
    int turn = 0;
    const auto play = [&](int mine) {
      for (int i = 0; i < 100; i++) {
        std::unique_lock hold(mu);
        cond.wait(hold, [&] { return turn % 2 == mine; });
        turn++;
        cond.notify_one();
      }
    };
    BothOnOneHome([&] { play(0); }, [&] { play(1); });
    EXPECT_EQ(turn, 200);
  });
}

// As the times are over, no wait parks.
TEST_P(HooksTest, TimedWaitsThatAreOverLetOthersRun) {
  RunWith(GetParam(), [] {
    std::mutex mu;
    std::condition_variable cond;
    bool ready = false;
    BothOnOneHome(
        [&] {
          std::unique_lock hold(mu);
          while (!ready) cond.wait_for(hold, 0us);
        },
        [&] {
          const std::lock_guard hold(mu);
          ready = true;
        });
  });
}

TEST_P(HooksTest, APlainThreadWakesAConditionVariable) {
  RunWith(GetParam(), [] {
    std::mutex mu;
    std::condition_variable cond;
    bool done = false;
    std::thread other;
    hooks::Hooked([&] {
      std::unique_lock hold(mu);
      other = KnownThread([&] {
        const std::scoped_lock lock(mu);
        done = true;
        cond.notify_all();
      });
      cond.wait(hold, [&] { return done; });
      EXPECT_EQ(cond.wait_for(hold, 1ms), std::cv_status::timeout);
    });
    other.join();
  });
}

// A home goes over to another goroutine only if no lock of its thread is held.
// Otherwise the second goroutine would lock a mutex whose holder waits for the
// same thread.
TEST_P(HooksTest, AGoroutineWithALockKeepsItsThread) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Sockets();
    std::mutex mu;
    chan<void> go_on = make_chan<void>();
    std::vector<int> order;
    std::thread sender = KnownThread([&] {
      usleep(2000);
      EXPECT_EQ(send(p.fd[1], "a", 1, 0), 1);
      go_on.Send();
    });
    BothOnOneHome(
        [&] {
          const std::scoped_lock hold(mu);
          char c;
          EXPECT_EQ(recv(p.fd[0], &c, 1, 0), 1);  // stays
          go_on.Recv();                           // parks, keeps the thread
          runtime::Gosched();
          order.push_back(1);
        },
        [&] {
          const std::scoped_lock hold(mu);
          order.push_back(2);
        });
    sender.join();
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
  });
}

TEST_P(HooksTest, ErrnoBelongsToTheGoroutine) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Sockets();
    BothOnOneHome(
        [&] {
          errno = 77;
          char c;
          EXPECT_EQ(recv(p.fd[0], &c, 1, 0), 1);
          EXPECT_EQ(errno, 77);
        },
        [&] {
          errno = 88;
          EXPECT_EQ(send(p.fd[1], "a", 1, 0), 1);
          EXPECT_EQ(errno, 88);
        });
  });
}

TEST_P(HooksTest, ALargeWriteToAPipeDoesNotHoldUpItsHome) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Pipe();
    const std::string much(1 << 20, 'x');
    size_t got = 0;
    BothOnOneHome(
        [&] {
          EXPECT_EQ(write(p.fd[1], much.data(), much.size()),
                    static_cast<ssize_t>(much.size()));
          close(std::exchange(p.fd[1], -1));
        },
        [&] {
          char buf[4096];
          ssize_t n;
          while ((n = read(p.fd[0], buf, sizeof(buf))) > 0) {
            got += static_cast<size_t>(n);
          }
        });
    EXPECT_EQ(got, much.size());
  });
}

TEST_P(HooksTest, AWaiterDoesNotReadFromTheNextFileOfItsNumber) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Sockets();
    Pair q = Pair::Sockets();
    EXPECT_EQ(write(q.fd[1], "secret", 6), 6);
    BothOnOneHome(
        [&] {
          char c;
          EXPECT_EQ(recv(p.fd[0], &c, 1, 0), -1);
          EXPECT_EQ(errno, EBADF);
        },
        [&] {
          usleep(1000);
          EXPECT_EQ(dup2(q.fd[0], p.fd[0]), p.fd[0]);
        });
    char got[8];
    EXPECT_EQ(recv(p.fd[0], got, sizeof(got), MSG_DONTWAIT), 6);
  });
}

// Connections come and go on several homes, so a number is closed on one thread
// and used again on another at once.
TEST_P(HooksTest, AConnectionDoesNotSeeTheCloseOfAnother) {
  RunWith(GetParam(), [] {
    hooks::SetThreads(4);
    sync::WaitGroup all;
    for (int i = 0; i < 8; i++) {
      all.Add(1);
      hooks::Go([&] {
        for (int k = 0; k < 200; k++) {
          Pair p = Pair::Sockets();
          std::thread answers([&] { EXPECT_EQ(send(p.fd[1], "x", 1, 0), 1); });
          char c = 0;
          EXPECT_EQ(recv(p.fd[0], &c, 1, 0), 1) << std::strerror(errno);
          answers.join();
        }
        all.Done();
      });
    }
    all.Wait();
  });
}

TEST_P(HooksTest, AnExceptionInCallOnceLeavesNoLockBehind) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Sockets();
    BothOnOneHome(
        [&] {
          std::once_flag once;
          EXPECT_THROW(std::call_once(once, [] { throw 1; }), int);
          char c;
          EXPECT_EQ(recv(p.fd[0], &c, 1, 0), 1);  // parks
        },
        [&] { EXPECT_EQ(send(p.fd[1], "a", 1, 0), 1); });
  });
}

// A goroutine in call_once, or in the initialisation of a static variable,
// keeps its thread. Otherwise the second would wait for the first, on its
// thread.
TEST_P(HooksTest, AnInitialiserThatParksKeepsItsThread) {
  RunWith(GetParam(), [] {
    std::once_flag once;
    const auto lazy = [] {
      static const int made = [] {
        time::Sleep(absl::Milliseconds(2));
        return 7;
      }();
      return made;
    };
    const auto both = [&] {
      std::call_once(once, [] { usleep(1000); });
      EXPECT_EQ(lazy(), 7);
    };
    BothOnOneHome(both, both);
  });
}

TEST_P(HooksTest, AVisitWithALockKeepsTheThread) {
  RunWith(GetParam(), [] {
    runtime::Thread other;
    std::mutex mu;
    std::vector<int> order;
    BothOnOneHome(
        [&] {
          const std::scoped_lock hold(mu);
          other.Run([] { time::Sleep(absl::Milliseconds(2)); });
          order.push_back(1);
        },
        [&] {
          const std::scoped_lock hold(mu);
          order.push_back(2);
        });
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
  });
}

TEST_P(HooksTest, ALockOfAnotherThreadThatIsGivenBackDoesNotCount) {
  RunWith(GetParam(), [] {
    Pair p = Pair::Sockets();
    std::mutex mine;
    pthread_spinlock_t spin;
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&spin);
    std::vector<int> order;
    std::thread sender;
    BothOnOneHome(
        [&] {
          const std::scoped_lock hold(mine);
          pthread_spin_unlock(&spin);
          sender = KnownThread([&] {
            usleep(2000);
            EXPECT_EQ(send(p.fd[1], "a", 1, 0), 1);
          });
          char c;
          EXPECT_EQ(recv(p.fd[0], &c, 1, 0), 1);  // stays, for `mine`
          order.push_back(1);
        },
        [&] {
          const std::scoped_lock hold(mine);
          order.push_back(2);
        });
    sender.join();
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
  });
}

// The holder of a lock that signals must stay on its thread: an error-checking
// mutex refuses another one.
TEST_P(HooksTest, ASignalDoesNotMoveAGoroutineThatIsNotHooked) {
  RunWith(GetParam(), [] {
    pthread_mutexattr_t checks;
    pthread_mutexattr_init(&checks);
    pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_t mu;
    pthread_mutex_init(&mu, &checks);
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    bool stop = false;  // under mu
    sync::WaitGroup all;
    all.Add(1);
    hooks::Go([&] {
      pthread_mutex_lock(&mu);
      while (!stop) pthread_cond_wait(&cond, &mu);
      pthread_mutex_unlock(&mu);
      all.Done();
    });
    sync::WaitGroup signallers;
    for (int g = 0; g < 2; g++) {
      signallers.Go([&] {
        const auto end = std::chrono::steady_clock::now() + 50ms;
        while (std::chrono::steady_clock::now() < end) {
          EXPECT_EQ(pthread_mutex_lock(&mu), 0);
          const int fd = dup(0);
          pthread_cond_signal(&cond);
          close(fd);
          ASSERT_EQ(pthread_mutex_unlock(&mu), 0);
        }
      });
    }
    signallers.Wait();
    pthread_mutex_lock(&mu);
    stop = true;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mu);
    all.Wait();
  });
}

TEST_P(HooksTest, OffAndANestedScopeStayOnTheHome) {
  RunWith(GetParam(), [] {
    const hooks::Scope outer;
    const pid_t home = gettid();
    {
      const hooks::Scope inner;
      EXPECT_EQ(gettid(), home);
      const hooks::Off off;
      EXPECT_EQ(usleep(100), 0);
    }
    EXPECT_EQ(usleep(100), 0);
    EXPECT_EQ(gettid(), home);
  });
}

// OwnStderr is standard error of the process, in a pipe.
class OwnStderr {
 public:
  OwnStderr() : saved_(dup(2)), pipe_(Pair::Pipe()) { dup2(pipe_.fd[1], 2); }
  ~OwnStderr() {
    dup2(saved_, 2);
    close(saved_);
  }
  OwnStderr(const OwnStderr&) = delete;
  OwnStderr& operator=(const OwnStderr&) = delete;

  // ReadUntil reads until `text` has come. Returns what it has read.
  std::string ReadUntil(std::string_view text) {
    std::string all;
    char buf[256];
    while (all.find(text) == std::string::npos) {
      const ssize_t n = read(pipe_.fd[0], buf, sizeof(buf));
      if (n <= 0) break;
      all.append(buf, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  const int saved_;
  const Pair pipe_;
};

TEST_P(HooksTest, AHomeThatIsBlockedIsReported) {
  OwnStderr err;
  RunWith(GetParam(), [&] {
    sem_t sem;
    ASSERT_EQ(sem_init(&sem, 0, 0), 0);
    chan<void> begun = make_chan<void>(1);
    std::atomic<bool> ran{false};
    sync::WaitGroup all;
    all.Add(2);
    hooks::Go([&] {
      begun.Send();
      while (sem_wait(&sem) != 0) {  // not hooked
      }
      all.Done();
    });
    begun.Recv();
    hooks::Go([&] {
      ran = true;
      all.Done();
    });
    std::string text;
    blocking([&] { text = err.ReadUntil("\n"); });
    EXPECT_TRUE(text.starts_with("hooks: goroutines have waited for thread "))
        << text;
    EXPECT_NE(text.find(" for a second: goroutine "), std::string::npos)
        << text;
    EXPECT_TRUE(text.ends_with(
        " sleeps in a call that hooks do not know, or with a lock\n"))
        << text;
    EXPECT_FALSE(ran);
    EXPECT_EQ(sem_post(&sem), 0);
    all.Wait();
  });
}

// WhatIsReported returns the report on the home of a goroutine that runs
// keeps(done, end). keeps must return when `done` is true and `end` is closed.
template <class Keeps>
std::string WhatIsReported(int procs, Keeps keeps) {
  OwnStderr err;
  std::string text;
  RunWith(procs, [&] {
    chan<void> begun = make_chan<void>(1);
    chan<void> end = make_chan<void>();
    std::atomic<bool> done = false;
    sync::WaitGroup all;
    all.Add(2);
    hooks::Go([&] {
      begun.Send();
      keeps(done, end);
      all.Done();
    });
    begun.Recv();
    hooks::Go([&] { all.Done(); });
    blocking([&] { text = err.ReadUntil("\n"); });
    done = true;
    end.Close();
    all.Wait();
  });
  return text;
}

TEST_P(HooksTest, AReportNamesTheGoroutineThatComputes) {
  const auto compute = [](const std::atomic<bool>& done, const chan<void>&) {
    while (!done) {
    }
  };
  const std::string text = WhatIsReported(GetParam(), compute);
  EXPECT_TRUE(text.ends_with(" computes\n")) << text;
}

TEST_P(HooksTest, AReportSaysThatAGoroutineWaitsWithALock) {
  const auto wait = [](const std::atomic<bool>&, chan<void> end) {
    std::mutex mu;
    const std::lock_guard hold(mu);
    end.Recv();
  };
  const std::string text = WhatIsReported(GetParam(), wait);
  EXPECT_TRUE(text.ends_with(": a goroutine waits with a lock\n")) << text;
}

TEST_P(HooksTest, AThousandWaitOnAHandfulOfThreads) {
  RunWith(GetParam(), [] {
    hooks::SetThreads(4);
    constexpr int kWaiters = 400;
    std::vector<Pair> pairs;
    for (int i = 0; i < kWaiters; i++) pairs.push_back(Pair::Sockets());
    sync::WaitGroup all;
    std::atomic<int> got{0};
    all.Add(kWaiters);
    for (int i = 0; i < kWaiters; i++) {
      go([&, i] {
        const hooks::Scope scope;
        char c;
        if (recv(pairs[static_cast<size_t>(i)].fd[0], &c, 1, 0) == 1) got++;
        all.Done();
      });
    }
    EXPECT_TRUE(
        EventuallyParked("IO wait, on thread \"gump-hooks\"", kWaiters));
    for (Pair& p : pairs) EXPECT_EQ(write(p.fd[1], "a", 1), 1);
    all.Wait();
    EXPECT_EQ(got, kWaiters);
  });
}

// A thread hook cannot wake a goroutine. Its signal would be lost.
TEST_P(HooksTest, AThreadHookThatSignalsAWaitingGoroutineIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto program = [] {
    static std::mutex mu;
    static std::condition_variable cond;
    runtime::SetThreadHooks({.on_end = [] { cond.notify_one(); }});
    RunWith(GetParam(), [] {
      hooks::Go([] {
        std::unique_lock hold(mu);
        cond.wait(hold);
      });
      (void)EventuallyParked("sync.Cond.Wait, on thread \"gump-hooks\"", 1);
      go([] { runtime::LockOSThread(); });  // its thread ends
      time::Sleep(absl::InfiniteDuration());
    });
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2),
              "use of goroutines in a thread hook");
}

}  // namespace
}  // namespace gump::testing
