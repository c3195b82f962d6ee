// Conns that are held up by the peer, an option, a deadline or a signal.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync.h"
#include "runtime/sys/sanitizer.h"
#include "tests/api/net/net_testing.h"
#include "tests/testing/parked.h"
#include "tests/testing/pattern.h"
#include "tests/testing/signal_storm.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Abstract;
using testing::EventuallyParked;
using testing::Pair;
using testing::Pattern;
using testing::ReadAll;
using testing::ReadSome;
using testing::Ready;
using testing::Text;

constexpr const char* kStreams[] = {"tcp", "unix"};

// More than the kernel keeps for a connection. A sanitizer makes bytes slow, so
// with one there are fewer, and the kernel's buffers are small (MakeNarrow).
constexpr size_t kFlood = (rt::kSanitizerBuild ? 1 : 16) << 20;
void MakeNarrow(const Pair& p) {
  if (!rt::kSanitizerBuild) return;
  EXPECT_TRUE(p.a.SetWriteBuffer(32 << 10).ok());
  EXPECT_TRUE(p.b.SetReadBuffer(32 << 10).ok());
}

template <class T>
T Option(int fd, int level, int option) {
  T value{};
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, option, &value, &size), 0);
  return value;
}

using NetConnTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NetConnTest);

// ---- Closing one half -------------------------------------------------------

TEST_P(NetConnTest, CloseReadEndsReadsAndLeavesWritesAlone) {
  Run([] {
    for (const char* network : kStreams) {
      const Pair p(network);
      sync::WaitGroup reader;
      reader.Go([&] { EXPECT_EQ(ReadSome(p.a, 10), ""); });
      EXPECT_TRUE(EventuallyParked("IO wait", 1));
      EXPECT_TRUE(p.a.CloseRead().ok());
      reader.Wait();
      EXPECT_EQ(ReadSome(p.a, 10), "") << "and so does the next";
      EXPECT_EQ(Ready(p.a.Write("still")), 5u);
      EXPECT_EQ(ReadSome(p.b, 10), "still");
      EXPECT_TRUE(p.a.CloseWrite().ok());
      EXPECT_EQ(ReadSome(p.b, 10), "");
    }
    // A unix socket tells its peer.
    const Pair p("unix");
    EXPECT_TRUE(p.a.CloseRead().ok());
    EXPECT_EQ(Errno(p.b.Write("x").status()), EPIPE);
  });
}

TEST_P(NetConnTest, CloseWriteEndsAWriteThatWaits) {
  Run([] {
    for (const char* network : kStreams) {
      const Pair p(network);
      MakeNarrow(p);
      const std::string data = Pattern(kFlood);
      size_t written = 0;
      sync::WaitGroup writer;
      writer.Go([&] {
        const auto n = p.a.Write(data);
        EXPECT_EQ(Text(n), "write " + p.Names() + ": write: broken pipe");
        EXPECT_EQ(Errno(n.status()), EPIPE);
        written = BytesWritten(n.status());
      });
      EXPECT_TRUE(EventuallyParked("IO wait", 1));
      EXPECT_TRUE(p.a.CloseWrite().ok());
      // (The writer of a unix socket is told when there is room.)
      const std::string got = ReadAll(p.b);
      writer.Wait();
      EXPECT_TRUE(got == data.substr(0, written)) << got.size();
      EXPECT_EQ(Ready(p.b.Write("answer")), 6u);
      EXPECT_EQ(ReadSome(p.a, 10), "answer");
    }
  });
}

// ---- Deadlines --------------------------------------------------------------

// A program that goes on from where the error says loses nothing and repeats
// nothing.
TEST_P(NetConnTest, AWriteThatTimesOutSaysHowFarItGot) {
  Run([] {
    const std::string data = Pattern(kFlood);
    for (const char* network : kStreams) {
      for (const bool vectored : {false, true}) {
        const Pair p(network);
        MakeNarrow(p);
        const auto write = [&](std::string_view rest) {
          if (!vectored) return p.a.Write(rest);
          std::vector<iovec> pieces;
          for (size_t at = 0; at < rest.size(); at += 77'777) {
            const std::string_view part = rest.substr(at, 77'777);
            pieces.push_back({const_cast<char*>(part.data()), part.size()});
          }
          return p.a.Writev(pieces);
        };
        absl::StatusOr<size_t> late = 0;
        sync::WaitGroup writer;
        writer.Go([&] { late = write(data); });
        EXPECT_TRUE(EventuallyParked("IO wait", 1));
        EXPECT_TRUE(
            p.a.SetWriteDeadline(absl::Now() + absl::Milliseconds(2)).ok());
        writer.Wait();
        EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
        EXPECT_EQ(Text(late), "write " + p.Names() + ": i/o timeout");
        const size_t written = BytesWritten(late.status());
        EXPECT_GT(written, 0u);
        EXPECT_LT(written, data.size());
        EXPECT_EQ(BytesWritten(write("more").status()), 0u) << "it has passed";
        EXPECT_TRUE(p.a.SetWriteDeadline(absl::InfiniteFuture()).ok());
        writer.Go([&] {
          EXPECT_EQ(Ready(write(std::string_view(data).substr(written))),
                    data.size() - written);
          EXPECT_TRUE(p.a.CloseWrite().ok());
        });
        EXPECT_TRUE(ReadAll(p.b) == data);
        writer.Wait();
      }
    }
  });
}

TEST_P(NetConnTest, ADeadlineIsOfItsDirectionOnly) {
  Run([] {
    const Pair p("tcp");
    EXPECT_TRUE(p.a.SetWriteDeadline(absl::UnixEpoch()).ok());
    EXPECT_TRUE(absl::IsDeadlineExceeded(p.a.Write("x").status()));
    sync::WaitGroup reader;
    reader.Go([&] { EXPECT_EQ(ReadSome(p.a, 10), "hello"); });
    EXPECT_TRUE(EventuallyParked("IO wait", 1));
    EXPECT_TRUE(p.a.SetWriteDeadline(absl::UnixEpoch()).ok());
    Ready(p.b.Write("hello"));
    reader.Wait();
    char buf[1];
    EXPECT_TRUE(p.b.SetReadDeadline(absl::UnixEpoch()).ok());
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(p.b.Read(absl::MakeSpan(buf)).status()));
    EXPECT_EQ(Ready(p.b.Write("y")), 1u);

    const net::PacketConn u = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    EXPECT_TRUE(u.SetReadDeadline(absl::UnixEpoch()).ok());
    EXPECT_EQ(Ready(u.WriteTo("x", u.LocalAddr())), 1u);
    EXPECT_TRUE(u.SetReadDeadline(absl::InfiniteFuture()).ok());
    EXPECT_TRUE(u.SetWriteDeadline(absl::UnixEpoch()).ok());
    const std::string at = u.LocalAddr().String();
    EXPECT_EQ(Text(u.WriteTo("x", u.LocalAddr())),
              "write udp " + at + "->" + at + ": i/o timeout");
    EXPECT_EQ(Ready(u.ReadFrom(absl::MakeSpan(buf))).n, 1u);
    EXPECT_TRUE(u.SetDeadline(absl::UnixEpoch()).ok());
    EXPECT_EQ(Text(u.ReadFrom(absl::MakeSpan(buf))),
              "read udp " + at + ": i/o timeout");
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(u.WriteTo("x", u.LocalAddr()).status()));
  });
}

// ---- Short reads ------------------------------------------------------------

TEST_P(NetConnTest, AReadReturnsTheBytesThatAreThere) {
  Run([] {
    for (const char* network : kStreams) {
      const Pair p(network);
      Ready(p.b.Write("ab"));
      EXPECT_EQ(ReadSome(p.a, 100), "ab");
      Ready(p.b.Write("cdef"));
      EXPECT_EQ(ReadSome(p.a, 3), "cde");
      EXPECT_EQ(ReadSome(p.a, 3), "f");
      Ready(p.b.Write("ghi"));
      char left[2];
      char right[8];
      const iovec to[] = {{left, sizeof(left)}, {right, sizeof(right)}};
      EXPECT_EQ(Ready(p.a.Readv(to)), 3u);
      EXPECT_EQ(std::string(left, 2) + right[0], "ghi");
    }
  });
}

TEST_P(NetConnTest, ByteByByteNothingIsLostOrReadTwice) {
  Run([] {
    constexpr size_t kBytes = rt::kSanitizerBuild ? 300 : 3000;
    const std::string data = Pattern(kBytes);
    for (const char* network : kStreams) {
      for (const bool by_thread : {false, true}) {
        const Pair p(network);
        const auto dribble = [&] {
          for (const char& c : data) {
            EXPECT_EQ(Ready(p.b.Write({&c, 1})), 1u);
          }
          EXPECT_TRUE(p.b.CloseWrite().ok());
        };
        if (by_thread) {
          std::thread writer(dribble);
          EXPECT_TRUE(ReadAll(p.a) == data);
          blocking([&] { writer.join(); });
        } else {
          sync::WaitGroup writer;
          writer.Go(dribble);
          EXPECT_TRUE(ReadAll(p.a) == data);
          writer.Wait();
        }
      }
    }
  });
}

// ---- Options ----------------------------------------------------------------

TEST_P(NetConnTest, BuffersAreAsLargeAsAsked) {
  Run([] {
    const Pair p("tcp");
    const net::PacketConn u = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    EXPECT_TRUE(p.a.SetReadBuffer(20'000).ok());
    EXPECT_TRUE(p.a.SetWriteBuffer(30'000).ok());
    EXPECT_TRUE(u.SetReadBuffer(40'000).ok());
    EXPECT_TRUE(u.SetWriteBuffer(50'000).ok());
    // The kernel doubles them.
    EXPECT_EQ(Option<int>(p.a.Fd(), SOL_SOCKET, SO_RCVBUF), 40'000);
    EXPECT_EQ(Option<int>(p.a.Fd(), SOL_SOCKET, SO_SNDBUF), 60'000);
    EXPECT_EQ(Option<int>(u.Fd(), SOL_SOCKET, SO_RCVBUF), 80'000);
    EXPECT_EQ(Option<int>(u.Fd(), SOL_SOCKET, SO_SNDBUF), 100'000);
  });
}

// The data that the kernel holds for a unix socket counts as its writer's.
TEST_P(NetConnTest, ASmallBufferHoldsUpAWriterSooner) {
  Run([] {
    const auto fits = [](int bytes) {
      const Pair p("unix");
      EXPECT_TRUE(p.a.SetWriteBuffer(bytes).ok());
      size_t n = 0;
      sync::WaitGroup writer;
      writer.Go([&] {
        n = BytesWritten(p.a.Write(std::string(10 << 20, 'x')).status());
      });
      EXPECT_TRUE(EventuallyParked("IO wait", 1));
      EXPECT_TRUE(p.a.Close().ok());
      writer.Wait();
      return n;
    };
    EXPECT_LE(fits(10'000), 20'000u);
    EXPECT_GT(fits(100'000), 20'000u);
  });
}

TEST_P(NetConnTest, LingerIsAsAsked) {
  Run([] {
    const Pair p("tcp");
    const auto set = [&](int seconds) {
      EXPECT_TRUE(p.a.SetLinger(seconds).ok());
      return Option<linger>(p.a.Fd(), SOL_SOCKET, SO_LINGER);
    };
    EXPECT_EQ(set(7).l_onoff, 1);
    EXPECT_EQ(set(7).l_linger, 7);
    EXPECT_EQ(set(-1).l_onoff, 0);
    EXPECT_EQ(set(0).l_onoff, 1);
    EXPECT_EQ(set(0).l_linger, 0);
    // A Conn that lingers sends the data that is left.
    EXPECT_TRUE(p.a.SetLinger(60).ok());
    Ready(p.a.Write("last words"));
    EXPECT_TRUE(p.a.Close().ok());
    EXPECT_EQ(ReadAll(p.b), "last words");
  });
}

TEST_P(NetConnTest, TheBacklogIsAsAsked) {
  Run([] {
    const auto backlog = [](int asked) {
      net::ListenOptions options;
      options.backlog = asked;
      const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0", options));
      return Option<tcp_info>(l.Fd(), IPPROTO_TCP, TCP_INFO).tcpi_sacked;
    };
    uint32_t most = 0;
    std::ifstream("/proc/sys/net/core/somaxconn") >> most;
    EXPECT_EQ(backlog(1), 1u);
    EXPECT_EQ(backlog(17), 17u);
    EXPECT_EQ(backlog(0), std::min(most, 65'535u));
  });
}

TEST_P(NetConnTest, WithReusePortSeveralListenAtOneAddress) {
  Run([] {
    net::ListenOptions reuse;
    reuse.reuse_port = true;
    const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0", reuse));
    const std::string at = l.LocalAddr().String();
    const net::Listener m = Ready(net::Listen("tcp", at, reuse));
    EXPECT_EQ(m.LocalAddr(), l.LocalAddr());
    EXPECT_EQ(Errno(net::Listen("tcp", at).status()), EADDRINUSE);
    // The kernel spreads connections by a hash. It is unheard of that one of
    // two listeners gets all 64.
    std::atomic<int> served[2] = {0, 0};
    sync::WaitGroup servers;
    for (const bool second : {false, true}) {
      servers.Go([&, second] {
        const net::Listener& mine = second ? m : l;
        for (;;) {
          const auto c = mine.Accept();
          if (!c.ok()) return;
          served[second ? 1 : 0]++;
          Ready(c->Write("x"));
        }
      });
    }
    for (int i = 0; i < 64; i++) {
      EXPECT_EQ(ReadAll(Ready(net::Dial("tcp", at))), "x");
    }
    EXPECT_TRUE(l.Close().ok());
    EXPECT_TRUE(m.Close().ok());
    servers.Wait();
    EXPECT_GT(served[0], 0);
    EXPECT_GT(served[1], 0);
    EXPECT_EQ(served[0] + served[1], 64);

    const net::PacketConn u =
        Ready(net::ListenPacket("udp", "127.0.0.1:0", reuse));
    Ready(net::ListenPacket("udp", u.LocalAddr().String(), reuse));
    EXPECT_EQ(Errno(net::ListenPacket("udp", u.LocalAddr().String()).status()),
              EADDRINUSE);
  });
}

// The error has Go's words, independent of the system call that is used.
TEST_P(NetConnTest, ADatagramThatIsTooLongIsRefused) {
  Run([] {
    const net::PacketConn a = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    const net::PacketConn b = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    const absl::StatusOr<size_t> n =
        a.WriteTo(std::string(1 << 16, 'x'), b.LocalAddr());
    EXPECT_EQ(Text(n), "write udp " + a.LocalAddr().String() + "->" +
                           b.LocalAddr().String() +
                           ": sendto: message too long");
    EXPECT_EQ(Errno(n.status()), EMSGSIZE);
  });
}

// ---- Closing ----------------------------------------------------------------

// Wait is an operation that would wait for ever, and the call that ends it.
struct Wait {
  const char* what;
  std::function<absl::Status()> wait;
  std::function<absl::Status()> close;
};

// Full is a datagram socket that has no more room.
net::PacketConn Full(const net::PacketConn& from) {
  const net::PacketConn to =
      Ready(net::ListenPacket("unixgram", Abstract("full")));
  sync::WaitGroup writer;
  writer.Go([&] {
    while (from.WriteTo("x", to.LocalAddr()).ok()) {
    }
  });
  EXPECT_TRUE(EventuallyParked("IO wait", 1));
  EXPECT_TRUE(from.SetWriteDeadline(absl::UnixEpoch()).ok());
  writer.Wait();
  EXPECT_TRUE(from.SetWriteDeadline(absl::InfiniteFuture()).ok());
  return to;
}

// The cases that net_test.cc lacks.
TEST_P(NetConnTest, CloseEndsVectorsDatagramsAndPipes) {
  Run([] {
    static const std::string much(10 << 20, 'x');
    for (const bool by_thread : {false, true}) {
      const Pair tcp[2] = {Pair("tcp"), Pair("tcp")};
      const Pair unix[2] = {Pair("unix"), Pair("unix")};
      const std::pair<net::Conn, net::Conn> pipe[2] = {Ready(net::Pipe()),
                                                       Ready(net::Pipe())};
      const net::PacketConn from =
          Ready(net::ListenPacket("unixgram", Abstract("from")));
      const net::PacketConn full = Full(from);
      const net::Listener l = Ready(net::Listen("unix", Abstract("accept")));
      const auto read = [](const net::Conn& c) {
        return [c] {
          char buf[10];
          const iovec to[] = {{buf, 5}, {buf + 5, 5}};
          return c.Readv(to).status();
        };
      };
      const auto write = [](const net::Conn& c) {
        return [c] {
          const iovec all[] = {{const_cast<char*>(much.data()), much.size()}};
          return c.Writev(all).status();
        };
      };
      const auto close = [](const auto& c) {
        return [c] { return c.Close(); };
      };
      for (const Wait& w :
           {Wait{"readv tcp", read(tcp[0].a), close(tcp[0].a)},
            Wait{"writev tcp", write(tcp[1].a), close(tcp[1].a)},
            Wait{"readv unix", read(unix[0].a), close(unix[0].a)},
            Wait{"writev unix", write(unix[1].a), close(unix[1].a)},
            Wait{"readv pipe", read(pipe[0].first), close(pipe[0].first)},
            Wait{"writev pipe", write(pipe[1].first), close(pipe[1].first)},
            Wait{"writeto unixgram",
                 [&] { return from.WriteTo("x", full.LocalAddr()).status(); },
                 close(from)},
            Wait{"accept unix", [&] { return l.Accept().status(); },
                 close(l)}}) {
        sync::WaitGroup waiter;
        waiter.Go([&] {
          const absl::Status status = w.wait();
          EXPECT_TRUE(absl::IsCancelled(status)) << w.what << ": " << status;
          EXPECT_TRUE(
              Text(status).ends_with(": use of closed network connection"))
              << w.what << ": " << status;
        });
        EXPECT_TRUE(EventuallyParked("IO wait", 1)) << w.what;
        if (by_thread) {
          std::thread closer([&] { EXPECT_TRUE(w.close().ok()) << w.what; });
          blocking([&] { closer.join(); });
        } else {
          EXPECT_TRUE(w.close().ok()) << w.what;
        }
        waiter.Wait();
      }
    }
  });
}

// ---- Handles ----------------------------------------------------------------

// A function that uses the descriptor may throw, or end its goroutine. The
// descriptor is released all the same, so that Close returns.
TEST_P(NetConnTest, ACallOnTheDescriptorMayThrow) {
  Run([] {
    for (const char* network : kStreams) {
      const Pair p(network);
      int seen = -1;
      const auto note = [&seen](int fd) { seen = fd; };
      EXPECT_TRUE(p.a.SyscallConn(note).ok());
      EXPECT_EQ(seen, p.a.Fd());
      const auto fail = [](int) { throw std::runtime_error("no"); };
      EXPECT_THROW((void)p.a.SyscallConn(fail), std::runtime_error);
      sync::WaitGroup wg;
      wg.Go([&p] { (void)p.b.SyscallConn([](int) { runtime::Goexit(); }); });
      wg.Wait();
      EXPECT_TRUE(p.a.Close().ok());
      EXPECT_TRUE(p.b.Close().ok());
    }
  });
}

// Where a goroutine must not park, a Conn can still be closed, and its peer is
// told.
TEST_P(NetConnTest, CloseMayBeInsideBlocking) {
  Run([] {
    for (const char* network : kStreams) {
      Pair p(network);
      blocking([&] { blocking([&] { EXPECT_TRUE(p.a.Close().ok()); }); });
      EXPECT_EQ(ReadAll(p.b), "");
      blocking([&] { p.b = net::Conn(); });
    }
  });
}

// The goroutine that is woken may have the last handle, and drop it.
TEST_P(NetConnTest, AWokenReaderMayDropTheConn) {
  Run([] {
    for (const char* network : kStreams) {
      for (int i = 0; i < 50; i++) {
        Pair p(network);
        auto* const session = new net::Conn(std::exchange(p.a, {}));
        sync::WaitGroup wg;
        wg.Go([session] {
          char c;
          EXPECT_FALSE(session->Read({&c, 1}).ok());
          delete session;
        });
        ASSERT_TRUE(EventuallyParked("IO wait", 1));
        if (i % 2 == 0) {
          EXPECT_TRUE(session->Close().ok());
        } else {
          EXPECT_TRUE(session->SetReadDeadline(absl::UnixEpoch()).ok());
        }
        wg.Wait();
      }
    }
  });
}

// ---- Signals ----------------------------------------------------------------

// Echo serves one connection after the other until l is closed.
void Echo(const net::Listener& l) {
  for (;;) {
    const auto c = l.Accept();
    if (!c.ok()) {
      EXPECT_TRUE(absl::IsCancelled(c.status())) << c.status();
      return;
    }
    for (;;) {
      const std::string some = ReadSome(*c, 10'000);
      if (some.empty()) break;
      EXPECT_EQ(Ready(c->Write(some)), some.size());
    }
  }
}

TEST_P(NetConnTest, AStormOfSignalsChangesNothing) {
  Run([] {
    constexpr int kSignals = rt::kSanitizerBuild ? 100 : 1000;
    const std::string data = Pattern(rt::kSanitizerBuild ? 30'000 : 300'000);
    const testing::SignalStorm storm;
    sync::WaitGroup all;
    for (const char* network : kStreams) {
      const net::Listener l = Ready(net::Listen(
          network, *network == 'u' ? Abstract("echo") : "127.0.0.1:0"));
      all.Go([l] { Echo(l); });
      all.Go([&, l, network] {
        do {
          const net::Conn c = Ready(net::Dial(network, l.LocalAddr().String()));
          sync::WaitGroup writer;
          writer.Go([&] {
            EXPECT_EQ(Ready(c.Write(data)), data.size());
            EXPECT_TRUE(c.CloseWrite().ok());
          });
          EXPECT_TRUE(ReadAll(c) == data);
          writer.Wait();
          // A read that waits for its deadline.
          const Pair p(network);
          char buf[1];
          const absl::Time until = absl::Now() + absl::Milliseconds(3);
          EXPECT_TRUE(p.a.SetReadDeadline(until).ok());
          const auto n = p.a.Read(absl::MakeSpan(buf));
          EXPECT_TRUE(absl::IsDeadlineExceeded(n.status())) << n.status();
        } while (testing::SignalStorm::Handled() < kSignals);
        EXPECT_TRUE(l.Close().ok());
      });
    }
    all.Wait();
  });
}

}  // namespace
}  // namespace gump
