// Waits on connections and listeners that end: by closing, or by a deadline.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/api/net/net_testing.h"
#include "tests/testing/held_port.h"
#include "tests/testing/identity.h"
#include "tests/testing/parked.h"
#include "tests/testing/status.h"
#include "tests/testing/wall_now.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::HeldPort;
using testing::Pair;
using testing::ReadAll;
using testing::ReadExactly;
using testing::Ready;
using testing::Silent;
using testing::Text;
using namespace std::chrono_literals;

using NetTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NetTest);

// ---- Closing ----------------------------------------------------------------

TEST_P(NetTest, CloseEndsEverythingThatWaits) {
  constexpr int kStep = rt::kSanitizerBuild ? 4 : 1;
  Run([] {
    const std::string flood(10 << 20, 'x');
    const HeldPort port;
    for (int round = 0; round < 20; round += kStep) {
      auto [a, b] = Pair();
      net::Listener l = Ready(net::Listen("tcp", port.Address()));
      sync::WaitGroup wg;
      for (int i = 0; i < 3; i++) {
        wg.Go([&, a = a] {
          char c[1];
          const auto r = a.Read(absl::MakeSpan(c));
          EXPECT_TRUE(absl::IsCancelled(r.status())) << r.status();
          EXPECT_TRUE(Text(r).ends_with("use of closed network connection"));
        });
        wg.Go([&, a = a] {
          const auto w = a.Write(flood);
          EXPECT_TRUE(absl::IsCancelled(w.status())) << w.status();
          EXPECT_LT(BytesWritten(w.status()), flood.size());
        });
        wg.Go([&] {
          const auto c = l.Accept();
          EXPECT_TRUE(absl::IsCancelled(c.status())) << c.status();
        });
      }
      for (int i = 0; i < round; i++) runtime::Gosched();
      EXPECT_TRUE(l.Close().ok());
      EXPECT_TRUE(a.Close().ok());
      wg.Wait();
      EXPECT_TRUE(absl::IsCancelled(a.Close()));
      EXPECT_EQ(a.Fd(), -1);
      EXPECT_EQ(Errno(net::Dial("tcp", port.Address()).status()), ECONNREFUSED);
      EXPECT_EQ(ReadAll(b).find_first_not_of('x'), std::string::npos);
    }
  });
}

// Wait is an operation that waits, and the call that ends it.
struct Wait {
  const char* what;
  const char* error;
  std::function<absl::Status()> wait;
  std::function<void()> end;
};

// Waits are one of each kind, all of which would wait for ever. `silent` does
// not answer.
std::vector<Wait> Waits(const net::Listener& silent,
                        std::vector<net::Conn>* keep) {
  const auto [a, b] = Pair();
  const auto [c, d] = Pair();
  const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
  const net::PacketConn p = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
  keep->insert(keep->end(), {b, d});
  const auto [ctx, cancel] = context::WithCancel(context::Background());
  const char* const closed = "use of closed network connection";
  return {{"Read", closed,
           [a = a] {
             char buf[1];
             return a.Read(absl::MakeSpan(buf)).status();
           },
           [a = a] { EXPECT_TRUE(a.Close().ok()); }},
          {"Write", closed,
           [c = c] {
             static const std::string much(10 << 20, 'x');
             return c.Write(much).status();
           },
           [c = c] { EXPECT_TRUE(c.Close().ok()); }},
          {"Accept", closed, [l] { return l.Accept().status(); },
           [l] { EXPECT_TRUE(l.Close().ok()); }},
          {"ReadFrom", closed,
           [p] {
             char buf[1];
             return p.ReadFrom(absl::MakeSpan(buf)).status();
           },
           [p] { EXPECT_TRUE(p.Close().ok()); }},
          {"Dial", "operation was canceled",
           [silent, ctx = ctx] {
             return net::DialContext(ctx, "tcp", silent.LocalAddr().String())
                 .status();
           },
           cancel}};
}

// First a goroutine closes, then a thread. Each wait ends 21 times, and the
// median counts. A busy machine gets further tries. (Sanitizers take longer.)
TEST_P(NetTest, CloseEndsEachWaitWithinAMillisecond) {
  Run([] {
    using Clock = std::chrono::steady_clock;
    constexpr auto kSoon = rt::kSanitizerBuild ? 1s : 1ms;
    for (const bool by_thread : {false, true}) {
      std::map<std::string, std::vector<Clock::duration>> took;
      std::string slow;
      std::vector<net::Conn> fillers;
      const net::Listener silent = Silent(&fillers);
      const auto try_each = [&] {
        std::vector<net::Conn> keep;
        for (const Wait& w : Waits(silent, &keep)) {
          Clock::time_point returned;
          sync::WaitGroup waiter;
          waiter.Go([&] {
            const absl::Status s = w.wait();
            returned = Clock::now();
            EXPECT_TRUE(absl::EndsWith(s.message(), w.error)) << s;
          });
          EXPECT_TRUE(testing::EventuallyParked("IO wait", 1)) << w.what;
          Clock::time_point closed;
          const auto close = [&] {
            closed = Clock::now();
            w.end();
          };
          if (by_thread) {
            std::thread t(close);
            blocking([&] { t.join(); });
          } else {
            close();
          }
          waiter.Wait();
          took[w.what].push_back(returned - closed);
        }
      };
      EXPECT_TRUE(testing::Eventually([&] {
        took.clear();
        slow.clear();
        constexpr int kTries = 21;
        for (int i = 0; i < kTries; i++) try_each();
        EXPECT_EQ(took.size(), 5u);
        for (auto& [what, times] : took) {
          std::sort(times.begin(), times.end());
          if (times[kTries / 2] > kSoon) slow += what + " ";
        }
        return slow.empty();
      })) << slow;
    }
  });
}

TEST_P(NetTest, LastHandleCloses) {
  Run([] {
    auto [a, b] = Pair();
    net::Conn copy = a;
    EXPECT_TRUE(copy == a);
    a = net::Conn();
    Ready(copy.Write("x"));
    copy = net::Conn();
    EXPECT_EQ(ReadAll(b), "x");
  });
}

TEST_P(NetTest, NumberIsFreeWhenCloseReturns) {
  Run([] {
    auto [a, b] = Pair();
    const int fd = a.Fd();
    const auto self = testing::Identity(fd);
    sync::WaitGroup wg;
    wg.Go([&, a = a] {
      char c[1];
      EXPECT_FALSE(a.Read(absl::MakeSpan(c)).ok());
    });
    runtime::Gosched();
    EXPECT_TRUE(a.Close().ok());
    EXPECT_NE(testing::Identity(fd), self);
    wg.Wait();
  });
}

TEST_P(NetTest, UnixPathsAreRemoved) {
  Run([] {
    const std::string path =
        ::testing::TempDir() + "gump" + std::to_string(getpid()) + ".sock";
    net::Listener l = Ready(net::Listen("unix", path));
    EXPECT_EQ(l.LocalAddr().String(), path);
    net::Conn c = Ready(net::Dial("unix", path));
    EXPECT_EQ(c.RemoteAddr().String(), path);
    EXPECT_EQ(Errno(net::Listen("unix", path).status()), EADDRINUSE);
    EXPECT_TRUE(l.Close().ok());
    struct stat st;
    EXPECT_EQ(stat(path.c_str(), &st), -1);
    EXPECT_EQ(Errno(net::Dial("unix", path).status()), ENOENT);
  });
}

// ---- Deadlines --------------------------------------------------------------

TEST_P(NetTest, DeadlinesEndWaits) {
  Run([] {
    auto [a, b] = Pair();
    char c[1];
    const auto read = [&, a = a] { return a.Read(absl::MakeSpan(c)); };
    const absl::Time start = testing::WallNow();
    EXPECT_TRUE(a.SetReadDeadline(start + absl::Milliseconds(5)).ok());
    const auto r = read();
    EXPECT_GE(testing::WallNow(), start + absl::Milliseconds(5));
    EXPECT_TRUE(absl::IsDeadlineExceeded(r.status())) << r.status();
    EXPECT_EQ(Text(r), "read tcp " + a.LocalAddr().String() + "->" +
                           a.RemoteAddr().String() + ": i/o timeout");
    // The deadline stays even if there is data to read. It can be removed.
    Ready(b.Write("xy"));
    EXPECT_TRUE(absl::IsDeadlineExceeded(read().status()));
    EXPECT_TRUE(a.SetReadDeadline(absl::InfiniteFuture()).ok());
    EXPECT_EQ(Ready(read()), 1u);
    EXPECT_TRUE(a.SetReadDeadline(absl::UnixEpoch()).ok());
    EXPECT_TRUE(absl::IsDeadlineExceeded(read().status()));
    EXPECT_TRUE(a.SetDeadline(absl::Now() + absl::Hours(1)).ok());
    EXPECT_EQ(Ready(read()), 1u);
  });
}

// The time that is left passes outside, because a wait for the network is not
// durable.
TEST_P(NetTest, DeadlineSetInABubbleIsATimeOfItsClock) {
  Run([] {
    synctest::Run([] {
      auto [a, b] = Pair();
      auto [r, w] = *os::Pipe();
      char c[1];
      const auto is_late = [&](const auto& from) {
        return absl::IsDeadlineExceeded(from.Read(absl::MakeSpan(c)).status());
      };
      time::Sleep(absl::Hours(1));
      const absl::Time now = synctest::Now();
      for (const absl::Time t : {now + absl::Hours(1), absl::Now()}) {
        EXPECT_TRUE(a.SetDeadline(t).ok());
        EXPECT_TRUE(r.SetDeadline(t).ok());
        EXPECT_EQ(Ready(b.Write("x")), 1u);
        EXPECT_EQ(Ready(w.Write("x")), 1u);
        EXPECT_FALSE(is_late(a));
        EXPECT_FALSE(is_late(r));
      }
      for (const absl::Time t : {now, now + absl::Milliseconds(2),
                                 now - absl::Hours(1), absl::InfinitePast()}) {
        EXPECT_TRUE(a.SetReadDeadline(t).ok());
        EXPECT_TRUE(r.SetReadDeadline(t).ok());
        EXPECT_TRUE(is_late(a));
        EXPECT_TRUE(is_late(r));
      }
      EXPECT_EQ(synctest::Now(), now);
    });
  });
}

TEST_P(NetTest, DeadlineMayMoveDuringAWait) {
  Run([] {
    auto [a, b] = Pair();
    for (const bool later_first : {false, true}) {
      EXPECT_TRUE(a.SetDeadline(later_first ? absl::Now() + absl::Hours(1)
                                            : absl::InfiniteFuture())
                      .ok());
      sync::WaitGroup wg;
      wg.Go([&, a = a] {
        char c[1];
        EXPECT_TRUE(
            absl::IsDeadlineExceeded(a.Read(absl::MakeSpan(c)).status()));
      });
      wg.Go([&, a = a] {
        const std::string flood(10 << 20, 'x');
        EXPECT_TRUE(absl::IsDeadlineExceeded(a.Write(flood).status()));
      });
      for (int i = 0; i < 10; i++) runtime::Gosched();
      EXPECT_TRUE(a.SetDeadline(absl::Now() + absl::Milliseconds(2)).ok());
      wg.Wait();
    }
  });
}

// Servers do it like this. Each request moves the deadline, and none passes.
TEST_P(NetTest, DeadlineMovedOnEveryRequestNeverPasses) {
  Run([] {
    auto [a, b] = Pair();
    sync::WaitGroup wg;
    wg.Go([b = b] {
      for (int i = 0; i < 500; i++) Ready(b.Write(ReadExactly(b, 1)));
    });
    for (int i = 0; i < 500; i++) {
      EXPECT_TRUE(a.SetDeadline(absl::Now() + absl::Minutes(2)).ok());
      Ready(a.Write("x"));
      EXPECT_EQ(ReadExactly(a, 1), "x");
    }
    wg.Wait();
    EXPECT_TRUE(a.SetDeadline(absl::Now() + absl::Milliseconds(1)).ok());
    char c[1];
    EXPECT_TRUE(absl::IsDeadlineExceeded(a.Read(absl::MakeSpan(c)).status()));
  });
}

TEST_P(NetTest, AcceptHasADeadline) {
  Run([] {
    net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    EXPECT_TRUE(l.SetDeadline(absl::Now() + absl::Milliseconds(2)).ok());
    const auto c = l.Accept();
    EXPECT_EQ(Text(c),
              "accept tcp " + l.LocalAddr().String() + ": i/o timeout");
    EXPECT_TRUE(l.SetDeadline(absl::InfiniteFuture()).ok());
    net::Conn d = Ready(net::Dial("tcp", l.LocalAddr().String()));
    EXPECT_EQ(Ready(l.Accept()).RemoteAddr(), d.LocalAddr());
  });
}

}  // namespace
}  // namespace gump
