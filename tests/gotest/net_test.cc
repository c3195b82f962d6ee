// The claims of Go's net/timeout_test.go, net/net_test.go and others of that
// package, under its names, in our words.
#include "gump/net.h"

#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/status.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/api/net/net_testing.h"
#include "tests/testing/parked.h"
#include "tests/testing/status.h"
#include "tests/testing/wall_now.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using absl::IsDeadlineExceeded;
using absl::Milliseconds;
using net::Conn;
using net::Listener;
using sync::WaitGroup;
using testing::Eventually;
using testing::EventuallyParked;
using testing::Pair;
using testing::ReadAll;
using testing::ReadExactly;
using testing::Ready;
using testing::RunWith;
using testing::WallNow;

using GoNetTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GoNetTest);

constexpr int Rounds(int n) { return rt::kSanitizerBuild ? n / 10 : n; }

absl::StatusOr<size_t> ReadByte(const Conn& c) {
  char b[1];
  return c.Read(absl::MakeSpan(b));
}

Listener LocalListener() { return Ready(net::Listen("tcp", "127.0.0.1:0")); }

bool IsClosed(const absl::Status& s) {
  return absl::IsCancelled(s) &&
         absl::EndsWith(s.message(), "use of closed network connection");
}

// ---- timeout_test.go

// A timeout that has passed already, or passes while the listener answers
// nothing, ends the dial, and no earlier than asked.
TEST_P(GoNetTest, TestDialTimeout) {
  Run([] {
    std::vector<Conn> fillers;
    const Listener l = testing::Silent(&fillers);
    const std::string address = l.LocalAddr().String();
    for (const absl::Duration d : {absl::Seconds(-5), -absl::InfiniteDuration(),
                                   absl::Nanoseconds(1), Milliseconds(5)}) {
      const absl::Time start = WallNow();
      const auto c = net::DialTimeout("tcp", address, d);
      EXPECT_TRUE(IsDeadlineExceeded(c.status())) << d << ": " << c.status();
      EXPECT_GE(WallNow() - start, d);
    }
    for (const Conn& c : fillers) c.Close().IgnoreError();
  });
}

TEST_P(GoNetTest, TestDialTimeoutMaxDuration) {
  Run([] {
    const Listener l = LocalListener();
    for (const absl::Duration d :
         {absl::Nanoseconds(INT64_MAX), absl::InfiniteDuration()}) {
      const Conn c = Ready(net::DialTimeout("tcp", l.LocalAddr().String(), d));
      EXPECT_TRUE(c.Close().ok());
      EXPECT_TRUE(Ready(l.Accept()).Close().ok());
    }
  });
}

// A deadline that has passed fails, even if a connection is queued.
TEST_P(GoNetTest, TestAcceptTimeout) {
  Run([] {
    const Listener l = LocalListener();
    const Conn c = Ready(net::Dial("tcp", l.LocalAddr().String()));
    for (int i = 0; i < 2; i++) {
      EXPECT_TRUE(l.SetDeadline(absl::Now() - absl::Seconds(5)).ok());
      EXPECT_TRUE(IsDeadlineExceeded(l.Accept().status()));
    }
    EXPECT_TRUE(l.SetDeadline(absl::InfiniteFuture()).ok());
    EXPECT_TRUE(Ready(l.Accept()).Close().ok());
    EXPECT_TRUE(l.SetDeadline(absl::Now() + Milliseconds(5)).ok());
    for (int i = 0; i < 2; i++) {
      EXPECT_TRUE(IsDeadlineExceeded(l.Accept().status()));
    }
  });
}

TEST_P(GoNetTest, TestAcceptTimeoutMustReturn) {
  Run([] {
    const Listener l = LocalListener();
    EXPECT_TRUE(l.SetDeadline(absl::InfiniteFuture()).ok());
    EXPECT_TRUE(l.SetDeadline(absl::Now() + Milliseconds(5)).ok());
    EXPECT_TRUE(IsDeadlineExceeded(l.Accept().status()));
  });
}

// A deadline that has passed and was removed ends no later wait. A close ends
// it, and its error is no timeout.
TEST_P(GoNetTest, TestAcceptTimeoutMustNotReturn) {
  Run([] {
    const Listener l = LocalListener();
    EXPECT_TRUE(l.SetDeadline(absl::Now() - absl::Seconds(5)).ok());
    EXPECT_TRUE(l.SetDeadline(absl::InfiniteFuture()).ok());
    std::atomic<bool> returned = false;
    WaitGroup wg;
    wg.Go([&] {
      const absl::Status s = l.Accept().status();
      returned = true;
      EXPECT_TRUE(IsClosed(s)) << s;
    });
    ASSERT_TRUE(EventuallyParked("IO wait", 1));
    time::Sleep(Milliseconds(10));
    EXPECT_FALSE(returned);
    EXPECT_TRUE(l.Close().ok());
    wg.Wait();
  });
}

TEST_P(GoNetTest, TestReadTimeout) {
  Run([] {
    const Pair p;
    Ready(p.b.Write("READ TIMEOUT TEST"));
    // It has passed: an error, though there is data to read.
    EXPECT_TRUE(p.a.SetReadDeadline(absl::Now() - absl::Seconds(5)).ok());
    for (int i = 0; i < 2; i++) {
      EXPECT_TRUE(IsDeadlineExceeded(ReadByte(p.a).status()));
    }
    // It is to come: first the data, then errors without data.
    EXPECT_TRUE(p.a.SetReadDeadline(absl::Now() + absl::Seconds(60)).ok());
    EXPECT_EQ(ReadExactly(p.a, 17), "READ TIMEOUT TEST");
    EXPECT_TRUE(p.a.SetReadDeadline(absl::Now() + Milliseconds(5)).ok());
    for (int i = 0; i < 2; i++) {
      EXPECT_TRUE(IsDeadlineExceeded(ReadByte(p.a).status()));
    }
  });
}

// Neither a deadline that was removed nor that of the other direction ends a
// read.
TEST_P(GoNetTest, TestReadTimeoutMustNotReturn) {
  Run([] {
    const Pair p;
    const absl::Time past = absl::Now() - absl::Seconds(5);
    EXPECT_TRUE(p.a.SetDeadline(past).ok());
    EXPECT_TRUE(p.a.SetWriteDeadline(past).ok());
    EXPECT_TRUE(p.a.SetReadDeadline(absl::InfiniteFuture()).ok());
    std::atomic<bool> returned = false;
    WaitGroup wg;
    wg.Go([&] {
      const absl::Status s = ReadByte(p.a).status();
      returned = true;
      EXPECT_TRUE(IsClosed(s)) << s;
    });
    ASSERT_TRUE(EventuallyParked("IO wait", 1));
    time::Sleep(Milliseconds(10));
    EXPECT_FALSE(returned);
    EXPECT_TRUE(p.a.Close().ok());
    wg.Wait();
  });
}

TEST_P(GoNetTest, TestReadFromTimeout) {
  Run([] {
    const auto c = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    char buf[32];
    for (const absl::Duration d : {absl::Seconds(-5), Milliseconds(5)}) {
      EXPECT_TRUE(c.SetReadDeadline(absl::Now() + d).ok());
      for (int i = 0; i < 2; i++) {
        EXPECT_TRUE(
            IsDeadlineExceeded(c.ReadFrom(absl::MakeSpan(buf)).status()));
      }
    }
  });
}

TEST_P(GoNetTest, TestWriteTimeout) {
  Run([] {
    const Pair p;
    for (const absl::Duration d : {absl::Seconds(-5), Milliseconds(5)}) {
      EXPECT_TRUE(p.a.SetWriteDeadline(absl::Now() + d).ok());
      absl::StatusOr<size_t> n;
      do {
        n = p.a.Write("WRITE TIMEOUT TEST");
      } while (n.ok());
      EXPECT_TRUE(IsDeadlineExceeded(n.status())) << n.status();
      n = p.a.Write("WRITE TIMEOUT TEST");
      EXPECT_TRUE(IsDeadlineExceeded(n.status())) << n.status();
      EXPECT_EQ(BytesWritten(n.status()), 0u);
    }
  });
}

TEST_P(GoNetTest, TestWriteTimeoutMustNotReturn) {
  Run([] {
    const Pair p;
    const absl::Time past = absl::Now() - absl::Seconds(5);
    EXPECT_TRUE(p.a.SetDeadline(past).ok());
    EXPECT_TRUE(p.a.SetReadDeadline(past).ok());
    EXPECT_TRUE(p.a.SetWriteDeadline(absl::InfiniteFuture()).ok());
    std::atomic<bool> returned = false;
    WaitGroup wg;
    wg.Go([&] {
      absl::StatusOr<size_t> n;
      do {
        n = p.a.Write(std::string(100'000, 'x'));
      } while (n.ok());
      returned = true;
      EXPECT_TRUE(IsClosed(n.status())) << n.status();
    });
    ASSERT_TRUE(EventuallyParked("IO wait", 1));
    time::Sleep(Milliseconds(10));
    EXPECT_FALSE(returned);
    EXPECT_TRUE(p.a.Close().ok());
    wg.Wait();
  });
}

TEST_P(GoNetTest, TestWriteToTimeout) {
  Run([] {
    const auto a = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    const auto b = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    EXPECT_TRUE(a.SetWriteDeadline(absl::Now() - absl::Seconds(5)).ok());
    for (int i = 0; i < 2; i++) {
      const auto n = a.WriteTo("x", b.LocalAddr());
      EXPECT_TRUE(IsDeadlineExceeded(n.status())) << n.status();
    }
    EXPECT_TRUE(a.SetWriteDeadline(absl::InfiniteFuture()).ok());
    EXPECT_EQ(Ready(a.WriteTo("x", b.LocalAddr())), 1u);
  });
}

// A deadline is never early. How late it is depends on the machine, and Go's
// bound of a tenth holds on an idle one only.
TEST_P(GoNetTest, TestReadTimeoutFluctuation) {
  Run([] {
    const Pair p;
    for (const absl::Duration d :
         {Milliseconds(1), Milliseconds(5), Milliseconds(20)}) {
      const absl::Time start = WallNow();
      EXPECT_TRUE(p.a.SetReadDeadline(start + d).ok());
      EXPECT_TRUE(IsDeadlineExceeded(ReadByte(p.a).status()));
      EXPECT_GE(WallNow() - start, d);
    }
  });
}

TEST_P(GoNetTest, TestReadFromTimeoutFluctuation) {
  Run([] {
    const auto c = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    char buf[32];
    for (const absl::Duration d :
         {Milliseconds(1), Milliseconds(5), Milliseconds(20)}) {
      const absl::Time start = WallNow();
      EXPECT_TRUE(c.SetReadDeadline(start + d).ok());
      EXPECT_TRUE(IsDeadlineExceeded(c.ReadFrom(absl::MakeSpan(buf)).status()));
      EXPECT_GE(WallNow() - start, d);
    }
  });
}

TEST_P(GoNetTest, TestWriteTimeoutFluctuation) {
  Run([] {
    const Pair p;
    const std::string much(1 << 20, 'x');
    for (const absl::Duration d :
         {Milliseconds(1), Milliseconds(5), Milliseconds(20)}) {
      const absl::Time start = WallNow();
      EXPECT_TRUE(p.a.SetWriteDeadline(start + d).ok());
      absl::StatusOr<size_t> n;
      do {
        n = p.a.Write(much);
      } while (n.ok());
      EXPECT_TRUE(IsDeadlineExceeded(n.status())) << n.status();
      EXPECT_GE(WallNow() - start, d);
    }
  });
}

// Each deadline ends the read, though nothing else wakes the poller.
void VariousDeadlines() {
  const Pair p;
  for (const absl::Duration d :
       {absl::Nanoseconds(1), absl::Nanoseconds(2), absl::Nanoseconds(50),
        absl::Nanoseconds(200), absl::Nanoseconds(750), absl::Microseconds(1),
        absl::Microseconds(5), absl::Microseconds(25), absl::Microseconds(250),
        absl::Microseconds(500), Milliseconds(1), Milliseconds(5),
        Milliseconds(20), Milliseconds(100)}) {
    for (int i = 0; i < 3; i++) {
      EXPECT_TRUE(p.a.SetDeadline(absl::Now() + d).ok());
      EXPECT_TRUE(IsDeadlineExceeded(ReadByte(p.a).status())) << d;
    }
  }
}

TEST(GoNetTimeoutTest, TestVariousDeadlines) {
  RunWith(runtime::NumCPU(), VariousDeadlines);
}

TEST(GoNetTimeoutTest, TestVariousDeadlines1Proc) {
  RunWith(1, VariousDeadlines);
}

TEST(GoNetTimeoutTest, TestVariousDeadlines4Proc) {
  RunWith(4, VariousDeadlines);
}

// Far deadlines are set anew all the time, beside a thousand echoes.
TEST_P(GoNetTest, TestReadWriteProlongedTimeout) {
  Run([] {
    const Pair p;
    WaitGroup wg;
    wg.Go([&] {
      do {
        EXPECT_TRUE(p.b.SetReadDeadline(absl::Now() + absl::Hours(1)).ok());
      } while (ReadByte(p.b).value_or(0) != 0);
    });
    wg.Go([&] {
      for (int i = 0; i < Rounds(1000); i++) {
        EXPECT_TRUE(p.b.SetWriteDeadline(absl::Now() + absl::Hours(1)).ok());
        EXPECT_EQ(Ready(p.b.Write("x")), 1u);
      }
    });
    for (int i = 0; i < Rounds(1000); i++) {
      ASSERT_EQ(Ready(p.a.Write("x")), 1u);
      ASSERT_EQ(Ready(ReadByte(p.a)), 1u);
    }
    EXPECT_TRUE(p.a.Close().ok());
    wg.Wait();
  });
}

// Deadlines 2 µs away are set every 2 µs. Reads and writes return all the same.
TEST_P(GoNetTest, TestReadWriteDeadlineRace) {
  Run([] {
    const int rounds = Rounds(1000);
    const Pair p;
    WaitGroup wg;
    std::atomic<bool> stop = false;
    wg.Go([&] {
      const time::Ticker ticker = time::NewTicker(absl::Microseconds(2));
      while (!stop) {
        const absl::Time soon = absl::Now() + absl::Microseconds(2);
        EXPECT_TRUE(p.a.SetReadDeadline(soon).ok());
        EXPECT_TRUE(p.a.SetWriteDeadline(soon).ok());
        (void)ticker.C.Recv();
      }
      ticker.Stop();
    });
    WaitGroup users;
    users.Go([&] {
      for (int i = 0; i < rounds; i++) ReadByte(p.a).IgnoreError();
    });
    users.Go([&] {
      for (int i = 0; i < rounds; i++) p.a.Write("x").IgnoreError();
    });
    users.Wait();
    stop = true;
    wg.Wait();
  });
}

TEST_P(GoNetTest, TestConcurrentSetDeadline) {
  Run([] {
    constexpr int kGoroutines = 8;
    constexpr int kTries = rt::kSanitizerBuild ? 10 : 100;
    const std::vector<Pair> pairs(10);
    const absl::Time now = absl::Now();
    WaitGroup wg;
    for (int i = 0; i < kGoroutines; i++) {
      wg.Go([&, i] {
        // They become earlier and earlier, which moves timers in the heaps.
        for (int j = kTries; j > 0; j--) {
          for (size_t k = 0; k < pairs.size(); k++) {
            const absl::Duration d = absl::Seconds(i * j * static_cast<int>(k));
            const Conn& c = pairs[k].a;
            EXPECT_TRUE(c.SetReadDeadline(now + absl::Hours(2) + d).ok());
            EXPECT_TRUE(c.SetWriteDeadline(now + absl::Hours(1) + d).ok());
          }
        }
      });
    }
    wg.Wait();
    EXPECT_TRUE(pairs[0].a.SetReadDeadline(now).ok());
    EXPECT_TRUE(IsDeadlineExceeded(ReadByte(pairs[0].a).status()));
  });
}

// ---- net_test.go

TEST_P(GoNetTest, TestCloseRead) {
  Run([] {
    for (const char* network : {"tcp", "unix"}) {
      const Pair p(network);
      EXPECT_TRUE(p.a.CloseRead().ok());
      EXPECT_EQ(ReadByte(p.a).value_or(0), 0u) << network;
    }
  });
}

// Both ends close their writing sides. Each reads the other's bytes to the end,
// and can write no more.
TEST_P(GoNetTest, TestCloseWrite) {
  Run([] {
    for (const char* network : {"tcp", "unix"}) {
      const Pair p(network);
      WaitGroup wg;
      for (const Conn& c : {p.a, p.b}) {
        wg.Go([c] {
          EXPECT_EQ(Ready(c.Write("last")), 4u);
          EXPECT_TRUE(c.CloseWrite().ok());
          EXPECT_FALSE(c.Write("more").ok());
          EXPECT_EQ(ReadAll(c), "last");
          EXPECT_EQ(Ready(ReadByte(c)), 0u);
          EXPECT_FALSE(c.Write("more").ok());
        });
      }
      wg.Wait();
    }
  });
}

TEST_P(GoNetTest, TestConnClose) {
  Run([] {
    for (const char* network : {"tcp", "unix"}) {
      const Pair p(network);
      EXPECT_TRUE(p.a.Close().ok());
      EXPECT_TRUE(IsClosed(ReadByte(p.a).status()));
      EXPECT_TRUE(IsClosed(p.a.Write("x").status()));
      EXPECT_TRUE(IsClosed(p.a.Close()));
    }
  });
}

TEST_P(GoNetTest, TestListenerClose) {
  Run([] {
    const Listener l = LocalListener();
    EXPECT_TRUE(l.Close().ok());
    EXPECT_TRUE(IsClosed(l.Accept().status()));
    EXPECT_TRUE(IsClosed(l.Close()));
    EXPECT_FALSE(net::Dial("tcp", l.LocalAddr().String()).ok());
  });
}

TEST_P(GoNetTest, TestPacketConnClose) {
  Run([] {
    const auto c = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    EXPECT_TRUE(c.Close().ok());
    char buf[1];
    EXPECT_TRUE(IsClosed(c.ReadFrom(absl::MakeSpan(buf)).status()));
    EXPECT_TRUE(IsClosed(c.WriteTo("x", c.LocalAddr()).status()));
  });
}

// Connections that are reset while they are queued do not end Accept.
TEST_P(GoNetTest, TestAcceptIgnoreAbortedConnRequest) {
  Run([] {
    const Listener l = LocalListener();
    for (int i = 0; i < 10; i++) {
      const Conn c = Ready(net::Dial("tcp", l.LocalAddr().String()));
      EXPECT_TRUE(c.SetLinger(0).ok());
      EXPECT_TRUE(c.Close().ok());
    }
    const Conn last = Ready(net::Dial("tcp", l.LocalAddr().String()));
    const std::string name = last.LocalAddr().String();
    for (;;) {
      const Conn c = Ready(l.Accept());
      if (c.RemoteAddr().String() == name) break;
    }
  });
}

TEST_P(GoNetTest, TestZeroByteRead) {
  Run([] {
    for (const char* network : {"tcp", "unix"}) {
      const Pair p(network);
      EXPECT_EQ(Ready(p.a.Read({})), 0u) << "it does not wait";
    }
  });
}

TEST_P(GoNetTest, TestReadTimeoutUnblocksRead) {
  Run([] {
    for (const char* network : {"tcp", "unix"}) {
      const Pair p(network);
      WaitGroup wg;
      wg.Go([&] { EXPECT_TRUE(IsDeadlineExceeded(ReadByte(p.a).status())); });
      ASSERT_TRUE(EventuallyParked("IO wait", 1));
      EXPECT_TRUE(p.a.SetReadDeadline(absl::FromUnixSeconds(1)).ok());
      wg.Wait();
    }
  });
}

TEST_P(GoNetTest, TestCloseUnblocksRead) {
  Run([] {
    for (const char* network : {"tcp", "unix"}) {
      const Pair p(network);
      WaitGroup wg;
      wg.Go([&] { EXPECT_EQ(Ready(ReadByte(p.a)), 0u); });
      ASSERT_TRUE(EventuallyParked("IO wait", 1));
      EXPECT_TRUE(p.b.Close().ok());
      wg.Wait();
    }
  });
}

TEST_P(GoNetTest, TestCloseUnblocksReadUDP) {
  Run([] {
    const auto c = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    WaitGroup wg;
    wg.Go([&] {
      char buf[1];
      EXPECT_TRUE(IsClosed(c.ReadFrom(absl::MakeSpan(buf)).status()));
    });
    ASSERT_TRUE(EventuallyParked("IO wait", 1));
    EXPECT_TRUE(c.Close().ok());
    wg.Wait();
  });
}

// A reset is an error. It is neither the end of the stream nor a timeout.
TEST_P(GoNetTest, TestNotTemporaryRead) {
  Run([] {
    const Pair p;
    EXPECT_TRUE(p.b.SetLinger(0).ok());
    EXPECT_TRUE(p.b.Close().ok());
    const absl::Status s = ReadByte(p.a).status();
    EXPECT_EQ(Errno(s), ECONNRESET) << s;
    EXPECT_FALSE(IsDeadlineExceeded(s));
  });
}

// ---- dial_test.go

TEST_P(GoNetTest, TestDialCancel) {
  Run([] {
    std::vector<Conn> fillers;
    const Listener l = testing::Silent(&fillers);
    auto [ctx, cancel] = context::WithCancel(context::Background());
    WaitGroup wg;
    wg.Go([&, &ctx = ctx] {
      const auto c = net::DialContext(ctx, "tcp", l.LocalAddr().String());
      EXPECT_TRUE(absl::IsCancelled(c.status())) << c.status();
    });
    ASSERT_TRUE(EventuallyParked("IO wait", 1));
    cancel();
    wg.Wait();
    for (const Conn& c : fillers) c.Close().IgnoreError();
  });
}

// A context that ends right after the dial has no power over the connection.
TEST_P(GoNetTest, TestCancelAfterDial) {
  Run([] {
    const Listener l = LocalListener();
    WaitGroup wg;
    wg.Go([&] {
      for (;;) {
        const auto c = l.Accept();
        if (!c.ok()) return;
        Ready(c->Write(ReadExactly(*c, 6)));
        EXPECT_TRUE(c->Close().ok());
      }
    });
    for (int i = 0; i < 10; i++) {
      auto [ctx, cancel] = context::WithCancel(context::Background());
      const Conn c =
          Ready(net::DialContext(ctx, "tcp", l.LocalAddr().String()));
      cancel();
      time::Sleep(Milliseconds(1));
      EXPECT_EQ(Ready(c.Write("echo!\n")), 6u);
      EXPECT_EQ(ReadAll(c), "echo!\n");
      EXPECT_TRUE(c.Close().ok());
    }
    EXPECT_TRUE(l.Close().ok());
    wg.Wait();
  });
}

TEST_P(GoNetTest, TestDialClosedPortFailFast) {
  Run([] {
    const Listener l = LocalListener();
    EXPECT_TRUE(l.Close().ok());
    const auto c = net::Dial("tcp", l.LocalAddr().String());
    EXPECT_EQ(Errno(c.status()), ECONNREFUSED) << c.status();
  });
}

TEST_P(GoNetTest, TestDialWithNonZeroDeadline) {
  Run([] {
    const Listener l = LocalListener();
    auto [ctx, cancel] =
        context::WithTimeout(context::Background(), absl::Hours(1));
    const Conn c = Ready(net::DialContext(ctx, "tcp", l.LocalAddr().String()));
    // The deadline was the dial's.
    EXPECT_EQ(Ready(c.Write("x")), 1u);
    cancel();
    EXPECT_EQ(ReadExactly(Ready(l.Accept()), 1), "x");
  });
}

// ---- tcpsock_test.go, listen_test.go

TEST(GoNetTcpTest, TestTCPConcurrentAccept) {
  RunWith(4, [] {
    constexpr int kAcceptors = 10;
    const Listener l = LocalListener();
    std::atomic<int> accepted = 0;
    WaitGroup wg;
    for (int i = 0; i < kAcceptors; i++) {
      wg.Go([&] {
        for (;;) {
          const auto c = l.Accept();
          if (!c.ok()) return;
          accepted++;
          EXPECT_TRUE(c->Close().ok());
        }
      });
    }
    constexpr int kDials = 10 * kAcceptors;
    for (int i = 0; i < kDials; i++) {
      const Conn c = Ready(net::Dial("tcp", l.LocalAddr().String()));
      EXPECT_TRUE(c.Close().ok());
    }
    EXPECT_TRUE(Eventually([&] { return accepted == kDials; }));
    EXPECT_TRUE(l.Close().ok());
    wg.Wait();
  });
}

TEST_P(GoNetTest, TestTCPStress) {
  Run([] {
    constexpr size_t kLen = 512;
    const int messages = Rounds(1000);
    WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      wg.Go([=] {
        const Pair p;
        const std::string message(kLen, 'm');
        WaitGroup server;
        server.Go([&] {
          for (int n = 0; n < messages; n++) {
            ASSERT_EQ(Ready(p.b.Write(ReadExactly(p.b, kLen))), kLen);
          }
        });
        for (int n = 0; n < messages; n++) {
          ASSERT_EQ(Ready(p.a.Write(message)), kLen);
          ASSERT_EQ(ReadExactly(p.a, kLen), message);
        }
        server.Wait();
      });
    }
    wg.Wait();
  });
}

// More than the kernel takes in one call: Go writes over 1 GiB.
TEST(GoNetTcpTest, TestTCPBig) {
  RunWith(2, [] {
    constexpr size_t kSize = rt::kSanitizerBuild ? 8 << 20 : 256 << 20;
    const Pair p;
    WaitGroup wg;
    wg.Go([&] {
      EXPECT_EQ(Ready(p.a.Write(std::string(kSize, 'b'))), kSize);
      EXPECT_TRUE(p.a.Close().ok());
    });
    std::string buf(1 << 20, '\0');
    size_t sum = 0;
    for (;;) {
      const size_t n = Ready(p.b.Read(absl::MakeSpan(buf.data(), buf.size())));
      if (n == 0) break;
      sum += n;
    }
    EXPECT_EQ(sum, kSize);
    wg.Wait();
  });
}

// A connection that was queued before the close is not accepted after it.
TEST_P(GoNetTest, TestTCPListenAfterClose) {
  Run([] {
    const Listener l = LocalListener();
    const Conn first = Ready(net::Dial("tcp", l.LocalAddr().String()));
    const Conn second = Ready(net::Dial("tcp", l.LocalAddr().String()));
    EXPECT_TRUE(Ready(l.Accept()).Close().ok());
    EXPECT_TRUE(l.Close().ok());
    EXPECT_TRUE(IsClosed(l.Accept().status()));
  });
}

TEST_P(GoNetTest, TestCopyPipeIntoTCP) {
  Run([] {
    const Pair p;
    auto [r, w] = Ready(os::Pipe());
    WaitGroup wg;
    wg.Go([&, &w = w] {
      EXPECT_EQ(Ready(w.Write("from the pipe")), 13u);
      EXPECT_TRUE(w.Close().ok());
    });
    wg.Go([&, &r = r] {
      char buf[100];
      for (;;) {
        const size_t n = Ready(r.Read(absl::MakeSpan(buf)));
        if (n == 0) break;
        EXPECT_EQ(Ready(p.a.Write({buf, n})), n);
      }
      EXPECT_TRUE(p.a.CloseWrite().ok());
    });
    EXPECT_EQ(ReadAll(p.b), "from the pipe");
    wg.Wait();
  });
}

// The address is free as soon as Close returns, though an Accept waits.
TEST_P(GoNetTest, TestClosingListener) {
  Run([] {
    for (int i = 0; i < Rounds(50); i++) {
      const Listener l = LocalListener();
      WaitGroup wg;
      wg.Go([&] {
        while (l.Accept().ok()) {
        }
      });
      runtime::Gosched();
      EXPECT_TRUE(l.Close().ok());
      const auto again = net::Listen("tcp", l.LocalAddr().String());
      EXPECT_TRUE(again.ok()) << again.status();
      wg.Wait();
    }
  });
}

// ---- write_unix_test.go, writev_test.go, unixsock_test.go, file_test.go

// The peer reads nothing and has closed its writing side. The writer waits, and
// a deadline ends the wait.
TEST_P(GoNetTest, TestEndlessWrite) {
  Run([] {
    const Pair p;
    EXPECT_TRUE(p.b.CloseWrite().ok());
    const std::string much(8192, 'a');
    WaitGroup wg;
    wg.Go([&] {
      absl::StatusOr<size_t> n;
      do {
        n = p.a.Write(much);
      } while (n.ok());
      EXPECT_TRUE(IsDeadlineExceeded(n.status())) << n.status();
    });
    ASSERT_TRUE(EventuallyParked("IO wait", 1));
    EXPECT_TRUE(p.a.SetWriteDeadline(absl::Now() + Milliseconds(5)).ok());
    wg.Wait();
  });
}

TEST_P(GoNetTest, TestBuffers_WriteTo) {
  Run([] {
    for (const size_t pieces : {0u, 10u, 1023u, 1024u, 1025u, 2500u}) {
      const Pair p;
      std::vector<std::string> texts(pieces);
      std::vector<iovec> vector(pieces);
      std::string want;
      for (size_t i = 0; i < pieces; i++) {
        texts[i] = std::to_string(i) + ",";
        vector[i] = {texts[i].data(), texts[i].size()};
        want += texts[i];
      }
      WaitGroup wg;
      wg.Go([&] {
        EXPECT_EQ(Ready(p.a.Writev(vector)), want.size());
        EXPECT_TRUE(p.a.Close().ok());
      });
      EXPECT_EQ(ReadAll(p.b), want) << pieces;
      wg.Wait();
    }
  });
}

TEST_P(GoNetTest, TestWritevError) {
  Run([] {
    const Pair p;
    EXPECT_TRUE(p.b.SetLinger(0).ok());
    EXPECT_TRUE(p.b.Close().ok());
    std::string text(1 << 16, 'x');
    const std::vector<iovec> vector(100, iovec{text.data(), text.size()});
    const auto n = p.a.Writev(vector);
    EXPECT_FALSE(n.ok());
    EXPECT_LT(BytesWritten(n.status()), 100 * text.size());
  });
}

// The end of a stream between processes on one machine is no error, whichever
// call meets it. Go's calls say io.EOF, and ours 0 bytes.
TEST_P(GoNetTest, TestUnixConnReadEOF) {
  Run([] {
    const Pair p("unix");
    EXPECT_TRUE(p.b.Close().ok());
    EXPECT_EQ(Ready(ReadByte(p.a)), 0u);
    char buf[1];
    const iovec piece{buf, sizeof(buf)};
    EXPECT_EQ(Ready(p.a.Readv(absl::MakeConstSpan(&piece, 1))), 0u);
  });
}

// A datagram of no bytes is one like others, and so is a buffer of no bytes.
TEST_P(GoNetTest, TestUDPZeroBytePayload) {
  Run([] {
    const auto c = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    EXPECT_EQ(Ready(c.WriteTo("", c.LocalAddr())), 0u);
    char buf[1];
    const auto packet = Ready(c.ReadFrom(absl::MakeSpan(buf)));
    EXPECT_EQ(packet.n, 0u);
    EXPECT_EQ(packet.from, c.LocalAddr());
  });
}

TEST_P(GoNetTest, TestUDPReadTimeout) {
  Run([] {
    const auto server = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    const Conn c = Ready(net::Dial("udp", server.LocalAddr().String()));
    EXPECT_TRUE(c.SetReadDeadline(absl::Now()).ok());
    EXPECT_TRUE(IsDeadlineExceeded(ReadByte(c).status()));
  });
}

TEST_P(GoNetTest, TestUnixUnlink) {
  Run([] {
    const std::string path = (std::filesystem::temp_directory_path() /
                              ("gump-" + std::to_string(getpid()) + ".sock"))
                                 .string();
    const Listener l = Ready(net::Listen("unix", path));
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_TRUE(l.Close().ok());
    EXPECT_FALSE(std::filesystem::exists(path));
    // A second close does not remove what another listener made meanwhile.
    const Listener other = Ready(net::Listen("unix", path));
    EXPECT_FALSE(l.Close().ok());
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_TRUE(other.Close().ok());
  });
}

// A duplicate is made and a handle is closed at the same time.
TEST_P(GoNetTest, TestFileCloseRace) {
  Run([] {
    for (int i = 0; i < Rounds(100); i++) {
      const Pair p;
      WaitGroup wg;
      wg.Go([&] {
        p.a.SyscallConn([](int fd) {
             const auto c = net::FileConn(fd);
             EXPECT_TRUE(c.ok()) << c.status();
           })
            .IgnoreError();
      });
      wg.Go([&] { EXPECT_TRUE(p.a.Close().ok()); });
      wg.Wait();
    }
  });
}

}  // namespace
}  // namespace gump
