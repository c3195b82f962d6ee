#include "gump/net.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync.h"
#include "tests/api/net/net_testing.h"
#include "tests/testing/held_port.h"
#include "tests/testing/no_descriptors.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Abstract;
using testing::HeldPort;
using testing::Pair;
using testing::PanicText;
using testing::ReadAll;
using testing::ReadExactly;
using testing::Ready;
using testing::Silent;
using testing::Text;
using namespace std::chrono_literals;

using NetTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NetTest);

// ---- Connections ------------------------------------------------------------

TEST_P(NetTest, EchoWorksOverEveryStreamNetwork) {
  Run([] {
    struct Case {
      const char* network;
      const char* address;
    };
    const std::string abstract = Abstract("echo");
    for (const Case& c : {Case{"tcp", "127.0.0.1:0"}, Case{"tcp4", ":0"},
                          Case{"tcp", "localhost:0"}, Case{"tcp", ":0"},
                          Case{"unix", abstract.c_str()}}) {
      net::Listener l = Ready(net::Listen(c.network, c.address));
      sync::WaitGroup wg;
      wg.Go([&] {
        net::Conn conn = Ready(l.Accept());
        const std::string all = ReadAll(conn);
        Ready(conn.Write(all));
        EXPECT_TRUE(conn.Close().ok());
      });
      const std::string at =
          l.LocalAddr().Network() == "unix"
              ? l.LocalAddr().String()
              : "127.0.0.1:" + std::to_string(l.LocalAddr().Port());
      net::Conn conn = Ready(
          net::Dial(l.LocalAddr().Network() == "unix" ? "unix" : "tcp", at));
      std::string big(300'000, 'x');
      std::iota(big.begin(), big.end(), '\0');
      EXPECT_EQ(Ready(conn.Write(big)), big.size());
      EXPECT_TRUE(conn.CloseWrite().ok());
      EXPECT_EQ(ReadAll(conn), big);
      wg.Wait();
      EXPECT_TRUE(l.Close().ok());
    }
  });
}

TEST_P(NetTest, ManyConnectionsWorkAtOnce) {
  Run([] {
    constexpr int kConns = 100;
    constexpr int kRounds = 30;
    net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    sync::WaitGroup wg;
    wg.Go([&] {
      for (int i = 0; i < kConns; i++) {
        go([conn = Ready(l.Accept())] {
          char buf[64];
          for (;;) {
            absl::StatusOr<size_t> n = conn.Read(absl::MakeSpan(buf));
            if (!n.ok() || *n == 0) return;
            if (!conn.Write({buf, *n}).ok()) return;
          }
        });
      }
    });
    for (int i = 0; i < kConns; i++) {
      wg.Go([&, i] {
        net::Conn conn = Ready(net::Dial("tcp", l.LocalAddr().String()));
        for (int r = 0; r < kRounds; r++) {
          const std::string sent =
              std::to_string(i) + "/" + std::to_string(r) + ";";
          Ready(conn.Write(sent));
          ASSERT_EQ(ReadExactly(conn, sent.size()), sent);
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(NetTest, VectoredFormsAreOneStream) {
  Run([] {
    auto [a, b] = Pair();
    std::vector<std::string> parts;
    std::vector<iovec> pieces;
    std::string all;
    for (int i = 0; i < 3000; i++) {
      parts.push_back(std::string(static_cast<size_t>(i % 7),
                                  static_cast<char>('a' + i % 26)));
      all += parts.back();
    }
    for (std::string& p : parts) pieces.push_back({p.data(), p.size()});
    sync::WaitGroup wg;
    wg.Go([&, a = a] {
      EXPECT_EQ(Ready(a.Writev(pieces)), all.size());
      EXPECT_TRUE(a.Close().ok());
    });
    std::string got;
    char left[10];
    char right[90];
    for (;;) {
      const iovec to[] = {{left, sizeof(left)}, {right, sizeof(right)}};
      const size_t n = Ready(b.Readv(to));
      if (n == 0) break;
      got.append(left, std::min(n, sizeof(left)));
      if (n > sizeof(left)) got.append(right, n - sizeof(left));
    }
    EXPECT_EQ(got, all);
    wg.Wait();
  });
}

TEST_P(NetTest, HalvesCloseByThemselves) {
  Run([] {
    auto [a, b] = Pair();
    Ready(a.Write("question"));
    EXPECT_TRUE(a.CloseWrite().ok());
    EXPECT_EQ(ReadAll(b), "question");
    Ready(b.Write("answer"));
    EXPECT_TRUE(b.CloseWrite().ok());
    EXPECT_EQ(ReadAll(a), "answer");
    EXPECT_EQ(Errno(a.Write("more").status()), EPIPE);
  });
}

TEST_P(NetTest, EmptyReadsAndWritesDoNotWait) {
  Run([] {
    auto [a, b] = Pair();
    EXPECT_EQ(Ready(a.Read({})), 0u) << "does not wait";
    EXPECT_EQ(Ready(a.Write("")), 0u);
    Ready(a.Write("x"));
    EXPECT_EQ(ReadExactly(b, 1), "x");
  });
}

TEST_P(NetTest, PlainThreadsDoTheSame) {
  Run([] {
    auto [a, b] = Pair();
    std::thread peer([b = b] {
      for (int i = 0; i < 100; i++) {
        const std::string got = ReadExactly(b, 4);
        Ready(b.Write(got));
      }
    });
    for (int i = 0; i < 100; i++) {
      Ready(a.Write("ping"));
      EXPECT_EQ(ReadExactly(a, 4), "ping");
    }
    peer.join();
  });
}

// Two plain threads and no goroutine: the runtime has to poll for them.
TEST(NetThreadTest, NoGoroutineIsNeeded) {
  auto [a, b] = Ready(net::Pipe());
  std::thread peer([b = b] {
    for (int i = 0; i < 100; i++) Ready(b.Write(ReadExactly(b, 4)));
  });
  for (int i = 0; i < 100; i++) {
    Ready(a.Write("ping"));
    EXPECT_EQ(ReadExactly(a, 4), "ping");
  }
  peer.join();
}

// ---- Dialling ---------------------------------------------------------------

TEST_P(NetTest, ErrorsAreInGosWords) {
  Run([] {
    const auto dial = [](const char* n, const char* a) {
      return Text(net::Dial(n, a));
    };
    EXPECT_EQ(dial("foo", "x"), "dial foo: unknown network foo");
    EXPECT_EQ(dial("tcp", ""), "dial tcp: missing address");
    EXPECT_EQ(dial("tcp", "127.0.0.1"),
              "dial tcp: address 127.0.0.1: missing port in address");
    EXPECT_EQ(dial("tcp", "::1:80"),
              "dial tcp: address ::1:80: too many colons in address");
    EXPECT_EQ(dial("tcp", "[::1:80"),
              "dial tcp: address [::1:80: missing ']' in address");
    EXPECT_EQ(dial("tcp", "127.0.0.1:99999"),
              "dial tcp: address 99999: invalid port");
    EXPECT_EQ(dial("tcp", "127.0.0.1:nosuch"),
              "dial tcp: lookup tcp/nosuch: unknown port");
    EXPECT_EQ(dial("tcp4", "[::1]:80"),
              "dial tcp4: address ::1: no suitable address found");
    // A port with a listener, and then without one.
    const HeldPort port;
    const std::string at = port.Address();
    net::Listener l = Ready(net::Listen("tcp", at));
    const auto again = net::Listen("tcp", at);
    EXPECT_EQ(Text(again),
              "listen tcp " + at + ": bind: address already in use");
    EXPECT_EQ(Errno(again.status()), EADDRINUSE);
    EXPECT_TRUE(l.Close().ok());
    const auto refused = net::Dial("tcp", at);
    EXPECT_EQ(Text(refused),
              "dial tcp " + at + ": connect: connection refused");
    EXPECT_EQ(Errno(refused.status()), ECONNREFUSED);
    EXPECT_EQ(Text(net::Listen("udp", ":0")),
              "listen udp :0: address :0: unexpected address type");
  });
}

TEST_P(NetTest, ServicesHaveNames) {
  Run([] {
    const net::Addr a =
        Ready(net::ResolveAddr(context::Background(), "tcp", "127.0.0.1:http"));
    EXPECT_EQ(a.String(), "127.0.0.1:80");
    EXPECT_EQ(Ready(net::ResolveAddr(context::Background(), "udp", "[::1]:53"))
                  .String(),
              "[::1]:53");
  });
}

TEST_P(NetTest, DialEndsWithItsTimeoutOrContext) {
  Run([] {
    std::vector<net::Conn> fillers;
    net::Listener l = Silent(&fillers);
    const std::string at = l.LocalAddr().String();
    const auto late = net::DialTimeout("tcp", at, 5ms);
    EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
    EXPECT_EQ(Text(late), "dial tcp " + at + ": i/o timeout");
    auto [ctx, cancel] = context::WithCancel(context::Background());
    sync::WaitGroup wg;
    wg.Go([&, ctx = ctx] {
      const auto r = net::DialContext(ctx, "tcp", at);
      EXPECT_TRUE(absl::IsCancelled(r.status())) << r.status();
      EXPECT_EQ(Text(r), "dial tcp " + at + ": operation was canceled");
    });
    for (int i = 0; i < 10; i++) runtime::Gosched();
    cancel();
    wg.Wait();
    EXPECT_EQ(Text(net::DialContext(ctx, "tcp", at)),
              "dial tcp " + at + ": operation was canceled");
  });
}

TEST_P(NetTest, NamesAreLookedUp) {
  Run([] {
    const auto hosts =
        Ready(net::LookupHost(context::Background(), "localhost"));
    EXPECT_NE(std::find(hosts.begin(), hosts.end(), "127.0.0.1"), hosts.end());
    EXPECT_EQ(Ready(net::LookupHost(context::Background(), "192.0.2.7")),
              std::vector<std::string>{"192.0.2.7"});
    auto [ctx, cancel] = context::WithCancel(context::Background());
    cancel();
    const auto r = net::LookupHost(ctx, "localhost");
    EXPECT_EQ(Text(r), "lookup localhost: operation was canceled");
    // Both families of a name are tried.
    const testing::HeldPorts ports;
    net::Listener l = Ready(net::Listen("tcp4", ports.four().Address()));
    net::Conn c = Ready(
        net::Dial("tcp", "localhost:" + std::to_string(ports.four().Port())));
    EXPECT_EQ(c.RemoteAddr(), l.LocalAddr());
  });
}

// A C library would take these for 127.0.0.1, or for a path that exists.
TEST_P(NetTest, NamesWithNulAreRefused) {
  using namespace std::string_literals;
  Run([] {
    const context::Context bg = context::Background();
    const std::string path =
        ::testing::TempDir() + "gump-nul" + std::to_string(getpid());
    net::Listener tcp = Ready(net::Listen("tcp", "127.0.0.1:0"));
    net::Listener unix = Ready(net::Listen("unix", path));
    net::PacketConn udp = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    for (const auto& host : {"127.0.0.1\0.evil.example"s, "::1\0"s, "\0"s,
                             "localhost\0.evil.example"s, "::1%lo\0x"s}) {
      const std::string why = "lookup " + host + ": no such host";
      EXPECT_EQ(Text(net::LookupHost(bg, host)), why);
      for (const std::string network : {"tcp", "udp"}) {
        const int port =
            network == "tcp" ? tcp.LocalAddr().Port() : udp.LocalAddr().Port();
        const std::string at = "[" + host + "]:" + std::to_string(port);
        EXPECT_EQ(Text(net::Dial(network, at)), "dial " + network + ": " + why);
        EXPECT_EQ(Text(net::ResolveAddr(bg, network, at)), why);
      }
      const std::string any = "[" + host + "]:0";
      EXPECT_EQ(Text(net::Listen("tcp", any)), "listen tcp: " + why);
      EXPECT_EQ(Text(net::ListenPacket("udp", any)), "listen udp: " + why);
      net::DialOptions from;
      from.local_address = any;
      EXPECT_EQ(Text(net::Dial("tcp", tcp.LocalAddr().String(), from)),
                "dial tcp: " + why);
    }
    EXPECT_EQ(Text(net::ResolveAddr(bg, "tcp", "127.0.0.1:http\0x"s)),
              "lookup tcp/http\0x: unknown port"s);
    EXPECT_EQ(Text(net::Dial("tcp", "127.0.0.1:80\0"s)),
              "dial tcp: lookup tcp/80\0: unknown port"s);

    const std::string nul = path + "\0.evil"s;
    net::DialOptions from;
    from.local_address = path + "2\0"s;
    for (const absl::Status& s :
         {net::Dial("unix", nul).status(), net::Listen("unix", nul).status(),
          net::Dial("unixgram", nul).status(),
          net::ListenPacket("unixgram", path + "2\0"s).status(),
          net::Dial("unix", path, from).status(),
          net::ResolveAddr(bg, "unix", nul).status()}) {
      EXPECT_EQ(Errno(s), EINVAL) << s;
      EXPECT_TRUE(Text(s).ends_with(": invalid argument")) << s;
    }
    EXPECT_NE(access((path + "2").c_str(), F_OK), 0) << "made by a Listen";

    // An abstract name may contain NULs, and may begin with one instead of "@".
    const std::string name = Abstract("nul\0here"s);
    net::Listener abstract = Ready(net::Listen("unix", name));
    EXPECT_EQ(abstract.LocalAddr().String(), name);
    net::Conn c = Ready(net::Dial("unix", "\0"s + name.substr(1)));
    EXPECT_EQ(c.RemoteAddr(), abstract.LocalAddr());
    EXPECT_EQ(Errno(net::Dial("unix", Abstract("nul")).status()), ECONNREFUSED);
    Ready(abstract.Accept());
    EXPECT_TRUE(unix.Close().ok());
  });
}

TEST_P(NetTest, LocalAddressIsAsAsked) {
  Run([] {
    net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    net::DialOptions options;
    options.local_address = "127.0.0.2:0";
    net::Conn c = Ready(net::Dial("tcp", l.LocalAddr().String(), options));
    EXPECT_EQ(Ready(l.Accept()).RemoteAddr(), c.LocalAddr());
    EXPECT_TRUE(c.LocalAddr().String().starts_with("127.0.0.2:"));
    options.local_address = "[::1]:0";
    EXPECT_EQ(Text(net::Dial("tcp", l.LocalAddr().String(), options)),
              "dial tcp: address " + l.LocalAddr().String() +
                  ": mismatched local address type");
  });
}

// ---- Options ----------------------------------------------------------------

int IntOption(net::Conn c, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_TRUE(c.SyscallConn([&](int fd) {
                 EXPECT_EQ(getsockopt(fd, level, option, &value, &size), 0);
               }).ok());
  return value;
}

void ExpectNoDelayAndKeepAlive(net::Conn c) {
  EXPECT_EQ(IntOption(c, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(IntOption(c, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(IntOption(c, IPPROTO_TCP, TCP_KEEPIDLE), 15);
  EXPECT_EQ(IntOption(c, IPPROTO_TCP, TCP_KEEPINTVL), 15);
  EXPECT_EQ(IntOption(c, IPPROTO_TCP, TCP_KEEPCNT), 9);
}

TEST_P(NetTest, BothEndsHaveNoDelayAndKeepAlive) {
  Run([] {
    auto [a, b] = Pair();
    for (net::Conn c : {a, b}) {
      ExpectNoDelayAndKeepAlive(c);
      EXPECT_EQ(fcntl(c.Fd(), F_GETFD), FD_CLOEXEC);
      EXPECT_TRUE(c.SetNoDelay(false).ok());
      EXPECT_EQ(IntOption(c, IPPROTO_TCP, TCP_NODELAY), 0);
      EXPECT_TRUE(c.SetKeepAlive(true, 1500ms).ok());
      EXPECT_EQ(IntOption(c, IPPROTO_TCP, TCP_KEEPIDLE), 2) << "rounded up";
      EXPECT_TRUE(c.SetKeepAlive(false).ok());
      EXPECT_EQ(IntOption(c, SOL_SOCKET, SO_KEEPALIVE), 0);
    }
  });
}

// Sockets that other code has made, and that have nothing to inherit.
TEST_P(NetTest, DescriptorsOfOthersHaveNoDelayAndKeepAlive) {
  Run([] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* sa = reinterpret_cast<sockaddr*>(&in);
    socklen_t length = sizeof(in);
    ASSERT_EQ(bind(fd, sa, length), 0);
    ASSERT_EQ(listen(fd, 10), 0);
    ASSERT_EQ(getsockname(fd, sa, &length), 0);
    const net::Listener l = Ready(net::FileListener(fd));
    const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(peer, sa, length), 0);
    ExpectNoDelayAndKeepAlive(Ready(l.Accept()));
    ExpectNoDelayAndKeepAlive(Ready(net::FileConn(peer)));
    // The listening socket itself must not have the option. Other code may
    // accept there, too, and has not asked for it.
    int on = -1;
    socklen_t size = sizeof(on);
    ASSERT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
    EXPECT_EQ(on, 0);
    close(peer);
    close(fd);
  });
}

TEST_P(NetTest, LingerOfZeroResets) {
  Run([] {
    auto [a, b] = Pair();
    EXPECT_TRUE(a.SetLinger(0).ok());
    EXPECT_TRUE(a.Close().ok());
    char c[1];
    const auto r = b.Read(absl::MakeSpan(c));
    EXPECT_EQ(Errno(r.status()), ECONNRESET) << r.status();
    EXPECT_TRUE(Text(r).ends_with(": read: connection reset by peer"));
  });
}

// ---- Datagrams --------------------------------------------------------------

TEST_P(NetTest, DatagramsGoBackAndForth) {
  Run([] {
    for (const char* at : {"127.0.0.1:0", ":0"}) {
      net::PacketConn server = Ready(net::ListenPacket("udp", at));
      const std::string to =
          "127.0.0.1:" + std::to_string(server.LocalAddr().Port());
      net::Conn client = Ready(net::Dial("udp", to));
      Ready(client.Write("hello"));
      Ready(client.Write(""));
      char buf[100];
      auto p = Ready(server.ReadFrom(absl::MakeSpan(buf)));
      EXPECT_EQ(std::string(buf, p.n), "hello");
      EXPECT_EQ(p.from.String(), client.LocalAddr().String());
      EXPECT_EQ(Ready(server.ReadFrom(absl::MakeSpan(buf))).n, 0u);
      EXPECT_EQ(Ready(server.WriteTo("answer", p.from)), 6u);
      EXPECT_EQ(Ready(client.Read(absl::MakeSpan(buf))), 6u);
      Ready(client.Write("too long"));
      p = Ready(server.ReadFrom(absl::MakeSpan(buf, 3)));
      EXPECT_EQ(p.n, 3u);
      EXPECT_TRUE(p.truncated);
      EXPECT_TRUE(server.SetReadDeadline(absl::UnixEpoch()).ok());
      EXPECT_TRUE(absl::IsDeadlineExceeded(
          server.ReadFrom(absl::MakeSpan(buf)).status()));
      EXPECT_FALSE(server.WriteTo("x", net::Addr()).ok());
    }
  });
}

TEST_P(NetTest, UnixDatagramsTellTheirSender) {
  Run([] {
    net::PacketConn a = Ready(net::ListenPacket("unixgram", Abstract("a")));
    net::PacketConn b = Ready(net::ListenPacket("unixgram", Abstract("b")));
    EXPECT_EQ(Ready(a.WriteTo("x", b.LocalAddr())), 1u);
    char buf[10];
    const auto p = Ready(b.ReadFrom(absl::MakeSpan(buf)));
    EXPECT_EQ(p.n, 1u);
    EXPECT_EQ(p.from.String(), Abstract("a"));
  });
}

// The path of a listener is removed. The path of datagrams stays, as in Go.
TEST_P(NetTest, APathOfUnixDatagramsStays) {
  Run([] {
    const std::string path =
        ::testing::TempDir() + "gump_datagrams." + std::to_string(::getpid());
    const net::PacketConn c = Ready(net::ListenPacket("unixgram", path));
    EXPECT_TRUE(c.Close().ok());
    EXPECT_EQ(::unlink(path.c_str()), 0);
  });
}

// ---- The rest ---------------------------------------------------------------

TEST_P(NetTest, DescriptorsOfOthersAreDuplicated) {
  Run([] {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    net::Conn c = Ready(net::FileConn(fds[0]));
    EXPECT_NE(c.Fd(), fds[0]);
    close(fds[0]);
    Ready(c.Write("abc"));
    char buf[10];
    EXPECT_EQ(read(fds[1], buf, sizeof(buf)), 3);
    close(fds[1]);
    EXPECT_EQ(ReadAll(c), "");
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    EXPECT_EQ(Errno(net::FileConn(pipe_fds[0]).status()), ENOTSOCK);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    net::Listener same = Ready(net::FileListener(l.Fd()));
    net::Conn d = Ready(net::Dial("tcp", l.LocalAddr().String()));
    EXPECT_EQ(Ready(same.Accept()).RemoteAddr(), d.LocalAddr());
  });
}

TEST_P(NetTest, NilHandlesPanic) {
  Run([] {
    const std::string text =
        "invalid memory address or nil pointer dereference";
    EXPECT_EQ(PanicText([] { (void)net::Conn().Write("x"); }), text);
    EXPECT_EQ(PanicText([] { (void)net::Listener().Accept(); }), text);
    EXPECT_EQ(PanicText([] { (void)net::PacketConn().Close(); }), text);
    EXPECT_FALSE(net::Conn());
  });
}

// No descriptor is free. Accept says so, and goes on when there are some.
TEST_P(NetTest, AcceptRecoversFromEMFILE) {
  Run([] {
    net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    net::Conn c = Ready(net::Dial("tcp", l.LocalAddr().String()));
    {
      const testing::NoDescriptors none;
      const auto conn = l.Accept();
      EXPECT_EQ(Errno(conn.status()), EMFILE) << conn.status();
    }
    EXPECT_EQ(Ready(l.Accept()).RemoteAddr(), c.LocalAddr());
  });
}

TEST_P(NetTest, DumpsShowTheWaitReason) {
  Run([] {
    auto [a, b] = Pair();
    sync::WaitGroup wg;
    wg.Go([a = a] {
      char c[1];
      (void)a.Read(absl::MakeSpan(c));
    });
    EXPECT_TRUE(testing::Eventually([] {
      return runtime::Stack(true).find("[IO wait") != std::string::npos;
    }));
    EXPECT_TRUE(b.Close().ok());
    wg.Wait();
  });
}

}  // namespace
}  // namespace gump
