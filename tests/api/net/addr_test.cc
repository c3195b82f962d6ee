// Addresses of sockets: when they are known, how they print, and how a socket
// treats addresses of another family.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/context.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync.h"
#include "tests/testing/held_port.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Ready;
using testing::Text;

// Path is a path of this process alone.
std::string Path(const std::string& name) {
  return ::testing::TempDir() + "gump" + std::to_string(getpid()) + name;
}

using NetAddrTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NetAddrTest);

// ---- After Close ------------------------------------------------------------

constexpr const char* kClosed = ": use of closed network connection";

// ExpectClosed expects that c has been closed and still knows its addresses.
void ExpectClosed(const net::Conn& c, const net::Addr& local,
                  const net::Addr& remote) {
  EXPECT_EQ(c.LocalAddr(), local);
  EXPECT_EQ(c.RemoteAddr(), remote);
  const std::string here = local.Network() + " " + local.String();
  const std::string both = here + "->" + remote.String();
  char buf[1];
  EXPECT_EQ(Text(c.Read(absl::MakeSpan(buf))), "read " + both + kClosed);
  EXPECT_EQ(Text(c.Write("x")), "write " + both + kClosed);
  EXPECT_EQ(Text(c.CloseRead()), "close " + both + kClosed);
  EXPECT_EQ(Text(c.CloseWrite()), "close " + both + kClosed);
  EXPECT_EQ(Text(c.Close()), "close " + both + kClosed);
  EXPECT_EQ(Text(c.SetNoDelay(true)), "set " + both + kClosed);
  EXPECT_EQ(Text(c.SetLinger(0)), "set " + both + kClosed);
  EXPECT_EQ(Text(c.SetDeadline(absl::Now())), "set " + here + kClosed);
  EXPECT_EQ(Text(c.SetReadBuffer(4096)), "set " + here + kClosed);
  EXPECT_EQ(Text(c.SyscallConn([](int) {})), "raw-control " + here + kClosed);
}

// CloseOneEnd closes an end of a connection while a goroutine reads there.
void CloseOneEnd(const std::string& network, const net::Listener& l,
                 bool dialled) {
  const net::Conn d = Ready(net::Dial(network, l.LocalAddr().String()));
  const net::Conn a = Ready(l.Accept());
  EXPECT_EQ(d.RemoteAddr(), l.LocalAddr());
  EXPECT_EQ(a.LocalAddr(), l.LocalAddr());
  EXPECT_EQ(d.LocalAddr(), a.RemoteAddr());
  const net::Conn c = dialled ? d : a;
  const net::Addr local = c.LocalAddr();
  const net::Addr remote = c.RemoteAddr();
  EXPECT_NE(local.Length(), 0u);
  sync::WaitGroup wg;
  wg.Go([&] {
    char buf[1];
    EXPECT_EQ(Text(c.Read(absl::MakeSpan(buf))), "read " + network + " " +
                                                     local.String() + "->" +
                                                     remote.String() + kClosed);
  });
  for (int i = 0; i < 10; i++) runtime::Gosched();
  EXPECT_TRUE(c.CloseWrite().ok());  // closes a half, which changes nothing
  EXPECT_EQ(c.LocalAddr(), local);
  EXPECT_TRUE(c.Close().ok());
  wg.Wait();
  ExpectClosed(c, local, remote);
}

TEST_P(NetAddrTest, ConnKnowsItsAddressesAfterClose) {
  Run([] {
    for (const char* at : {"127.0.0.1:0", "[::1]:0"}) {
      const auto l = net::Listen("tcp", at);
      if (!l.ok() && at[0] == '[') continue;  // no IPv6 here
      CloseOneEnd("tcp", Ready(l), /*dialled=*/true);
      CloseOneEnd("tcp", Ready(l), /*dialled=*/false);
    }
    const net::Listener l = Ready(net::Listen("unix", Path("conn")));
    CloseOneEnd("unix", l, /*dialled=*/true);
    CloseOneEnd("unix", l, /*dialled=*/false);
    EXPECT_TRUE(l.Close().ok());
    const net::PacketConn server =
        Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    const net::Conn c = Ready(net::Dial("udp", server.LocalAddr().String()));
    const net::Addr local = c.LocalAddr();
    EXPECT_NE(local.Port(), 0);
    EXPECT_TRUE(c.Close().ok());
    ExpectClosed(c, local, server.LocalAddr());
  });
}

TEST_P(NetAddrTest, ListenersAndPacketConnsKnowTheirAddressAfterClose) {
  Run([] {
    const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    const net::Addr at = l.LocalAddr();
    const std::string tcp = " tcp " + at.String();
    EXPECT_TRUE(l.Close().ok());
    EXPECT_EQ(l.LocalAddr(), at);
    EXPECT_EQ(Text(l.Accept()), "accept" + tcp + kClosed);
    EXPECT_EQ(Text(l.SetDeadline(absl::Now())), "set" + tcp + kClosed);
    EXPECT_EQ(Text(l.Close()), "close" + tcp + kClosed);

    const net::PacketConn p = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    const net::PacketConn q = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    const net::Addr here = p.LocalAddr();
    const std::string udp = " udp " + here.String();
    EXPECT_TRUE(p.Close().ok());
    EXPECT_EQ(p.LocalAddr(), here);
    char buf[1];
    EXPECT_EQ(Text(p.ReadFrom(absl::MakeSpan(buf))), "read" + udp + kClosed);
    EXPECT_EQ(Text(p.WriteTo("x", q.LocalAddr())),
              "write" + udp + "->" + q.LocalAddr().String() + kClosed);
    EXPECT_EQ(Text(p.WriteTo("x", net::Addr())),
              "write" + udp + ": missing address");
    EXPECT_EQ(Text(p.SetReadBuffer(4096)), "set" + udp + kClosed);
    EXPECT_EQ(Text(p.Close()), "close" + udp + kClosed);
  });
}

// A closed socket still knows its address, but does not own it any more.
TEST_P(NetAddrTest, SecondCloseRemovesNoPathOfOthers) {
  Run([] {
    const std::string path = Path("again");
    const net::Listener first = Ready(net::Listen("unix", path));
    EXPECT_TRUE(first.Close().ok());
    const net::Listener second = Ready(net::Listen("unix", path));
    EXPECT_EQ(Text(first.Close()), "close unix " + path + kClosed);
    Ready(net::Dial("unix", path));
    EXPECT_TRUE(second.Close().ok());
    EXPECT_NE(access(path.c_str(), F_OK), 0);
  });
}

// ---- Families ---------------------------------------------------------------

// ExpectSent expects that `from` can write to `to`, which is at `at`.
void ExpectSent(const net::PacketConn& from, const net::PacketConn& to,
                const net::Addr& at) {
  EXPECT_EQ(Ready(from.WriteTo("hello", at)), 5u);
  char buf[10];
  const auto packet = Ready(to.ReadFrom(absl::MakeSpan(buf)));
  EXPECT_EQ(packet.n, 5u);
  EXPECT_EQ(packet.from.Port(), from.LocalAddr().Port());
}

TEST_P(NetAddrTest, DatagramsGoBetweenFamilies) {
  Run([] {
    const context::Context bg = context::Background();
    const net::PacketConn both = Ready(net::ListenPacket("udp", ":0"));
    const net::PacketConn four = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    const net::PacketConn other =
        Ready(net::ListenPacket("udp4", "127.0.0.1:0"));
    const std::string port = std::to_string(both.LocalAddr().Port());
    const net::Addr there =
        Ready(net::ResolveAddr(bg, "udp", "127.0.0.1:" + port));
    ExpectSent(four, both, there);
    ExpectSent(both, four, four.LocalAddr());
    // `both` sees the address of four as a mapped one. `other` can use that.
    Ready(four.WriteTo("x", there));
    char buf[1];
    const net::Addr seen = Ready(both.ReadFrom(absl::MakeSpan(buf))).from;
    EXPECT_EQ(seen.Sockaddr()->sa_family,
              both.LocalAddr().Sockaddr()->sa_family);
    EXPECT_EQ(seen, four.LocalAddr());
    ExpectSent(other, four, seen);
    ExpectSent(both, four, seen);
    // Written as text, a mapped address is of version 4.
    ExpectSent(
        four, both,
        Ready(net::ResolveAddr(bg, "udp4", "[::ffff:127.0.0.1]:" + port)));

    const net::Addr six = Ready(net::ResolveAddr(bg, "udp", "[::1]:53"));
    EXPECT_EQ(Text(four.WriteTo("x", six)),
              "write udp " + four.LocalAddr().String() +
                  "->[::1]:53: address ::1: non-IPv4 address");
  });
}

TEST_P(NetAddrTest, MappedAddressIsOfVersion4) {
  Run([] {
    const net::Listener l = Ready(net::Listen("tcp4", "[::ffff:127.0.0.1]:0"));
    EXPECT_EQ(l.LocalAddr().Sockaddr()->sa_family, AF_INET);
    const std::string port = std::to_string(l.LocalAddr().Port());
    const std::string mapped = "[::ffff:127.0.0.1]:" + port;
    for (const char* network : {"tcp", "tcp4"}) {
      const net::Conn c = Ready(net::Dial(network, mapped));
      EXPECT_EQ(c.LocalAddr().Sockaddr()->sa_family, AF_INET);
      EXPECT_EQ(c.RemoteAddr().String(), "127.0.0.1:" + port);
    }
    EXPECT_EQ(Text(net::Dial("tcp6", mapped)),
              "dial tcp6: address ::ffff:127.0.0.1: no suitable address found");
  });
}

// ---- Texts that are no names ------------------------------------------------

// The C library would read them as addresses, "0127.0.0.1" as 87.0.0.1.
TEST_P(NetAddrTest, TextThatOnlyLooksLikeAnAddressIsNoName) {
  Run([] {
    const context::Context bg = context::Background();
    const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    const std::string port = ":" + std::to_string(l.LocalAddr().Port());
    for (const std::string host :
         {"127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1",
          "0127.0.0.1", "127.0.0.01", "127.0.0.0x1", "017700000001", "1.2.3",
          "1.2.3.4.5", "256.1.1.1", "127.0.0.1.", "0", "..", "127.1 x"}) {
      const std::string why = "lookup " + host + ": no such host";
      const auto hosts = net::LookupHost(bg, host);
      EXPECT_EQ(Text(hosts), why);
      EXPECT_TRUE(absl::IsNotFound(hosts.status()));
      EXPECT_EQ(Text(net::Dial("tcp", host + port)), "dial tcp: " + why);
      EXPECT_EQ(Text(net::Dial("udp4", host + port)), "dial udp4: " + why);
      EXPECT_EQ(Text(net::ResolveAddr(bg, "tcp", host + port)), why);
      EXPECT_EQ(Text(net::Listen("tcp", host + ":0")), "listen tcp: " + why);
      EXPECT_EQ(Text(net::ListenPacket("udp", host + ":0")),
                "listen udp: " + why);
    }
    EXPECT_TRUE(net::Dial("tcp", "127.0.0.1" + port).ok());
  });
}

TEST_P(NetAddrTest, PortsAreNumbersAsGoReadsThem) {
  Run([] {
    const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    const std::string port = std::to_string(l.LocalAddr().Port());
    for (const std::string& same : {"+" + port, "000" + port}) {
      EXPECT_EQ(Ready(net::Dial("tcp", "127.0.0.1:" + same)).RemoteAddr(),
                l.LocalAddr());
    }
    const auto resolve = [](const std::string& at) {
      return net::ResolveAddr(context::Background(), "tcp", "127.0.0.1:" + at);
    };
    for (const char* none : {"", "0", "-0", "+", "-"}) {
      EXPECT_EQ(Ready(resolve(none)).Port(), 0) << none;
    }
    EXPECT_EQ(Ready(resolve("65535")).Port(), 65535);
    for (const std::string bad :
         {"-1", "65536", "+65536", "99999999999999999999"}) {
      EXPECT_EQ(Text(resolve(bad)), "address " + bad + ": invalid port");
    }
    for (const std::string bad : {"++80", "+-80", " 80", "80 ", "0x50", "8o"}) {
      EXPECT_EQ(Text(resolve(bad)), "lookup tcp/" + bad + ": unknown port");
    }
  });
}

TEST_P(NetAddrTest, AnAddressWithoutAHostPrintsWithoutOne) {
  Run([] {
    const context::Context bg = context::Background();
    const testing::HeldPort held;
    net::Listener l = Ready(net::Listen("tcp", held.Address()));
    const std::string port = ":" + std::to_string(held.Port());
    EXPECT_EQ(Ready(net::ResolveAddr(bg, "tcp", port)).String(), port);
    EXPECT_EQ(Text(net::Listen("tcp4", port)),
              "listen tcp4 " + port + ": bind: address already in use");
    // A connection has a specific address.
    EXPECT_EQ(Ready(net::Dial("tcp4", port)).RemoteAddr(), l.LocalAddr());
    EXPECT_TRUE(l.Close().ok());
    EXPECT_EQ(Text(net::Dial("tcp4", port)),
              "dial tcp4 " + port + ": connect: connection refused");
    EXPECT_EQ(Text(net::Dial("tcp4", "[]" + port)),
              "dial tcp4 " + port + ": connect: connection refused");
  });
}

TEST_P(NetAddrTest, AnUnknownZoneStaysInTheText) {
  Run([] {
    const context::Context bg = context::Background();
    EXPECT_EQ(Ready(net::LookupHost(bg, "fe80::1%nozone")),
              std::vector<std::string>{"fe80::1%nozone"});
    EXPECT_EQ(
        Ready(net::ResolveAddr(bg, "udp", "[fe80::1%nozone]:53")).String(),
        "[fe80::1%nozone]:53");
    EXPECT_EQ(Ready(net::ResolveAddr(bg, "udp", "[fe80::1%lo]:53")).String(),
              "[fe80::1%lo]:53");
    const auto c = net::Dial("tcp", "[fe80::1%nozone]:80");
    EXPECT_TRUE(Text(c).starts_with("dial tcp [fe80::1%nozone]:80: "))
        << c.status();
  });
}

TEST_P(NetAddrTest, TheAddressIsJudgedBeforeTheKindOfNetwork) {
  Run([] {
    EXPECT_EQ(Text(net::Listen("udp6", "127.0.0.1:80")),
              "listen udp6: address 127.0.0.1: no suitable address found");
    EXPECT_EQ(Text(net::Listen("udp", "127.0.0.1:nosuch")),
              "listen udp: lookup udp/nosuch: unknown port");
    EXPECT_EQ(Text(net::ListenPacket("tcp4", "[::1]:80")),
              "listen tcp4: address ::1: no suitable address found");
    EXPECT_EQ(Text(net::ListenPacket("tcp", "127.0.0.1:80")),
              "listen tcp 127.0.0.1:80: address 127.0.0.1:80: unexpected "
              "address type");
  });
}

// ---- Unix -------------------------------------------------------------------

TEST_P(NetAddrTest, UnixSocketsWithoutANamePrintAsAt) {
  Run([] {
    char buf[1];
    const std::string path = Path("named");
    const net::Listener l = Ready(net::Listen("unix", path));
    const net::Conn d = Ready(net::Dial("unix", path));
    const net::Conn a = Ready(l.Accept());
    EXPECT_EQ(d.LocalAddr().String(), "@");
    EXPECT_EQ(a.RemoteAddr().String(), "@");
    EXPECT_TRUE(d.SetReadDeadline(absl::UnixEpoch()).ok());
    EXPECT_EQ(Text(d.Read(absl::MakeSpan(buf))),
              "read unix @->" + path + ": i/o timeout");
    EXPECT_TRUE(a.Close().ok());
    EXPECT_EQ(Text(a.Write("x")), "write unix " + path + "->@" + kClosed);
    EXPECT_TRUE(l.Close().ok());

    const auto [p, q] = Ready(net::Pipe());
    EXPECT_EQ(p.LocalAddr().String(), "@");
    EXPECT_EQ(p.LocalAddr().Network(), "unix");
    EXPECT_TRUE(p.Close().ok());
    EXPECT_EQ(Text(p.Write("x")), std::string("write unix @") + kClosed);

    // But the sender of a datagram has no address at all, as in Go.
    const std::string name = "@gump-" + std::to_string(getpid());
    const net::PacketConn server = Ready(net::ListenPacket("unixgram", name));
    const net::Conn client = Ready(net::Dial("unixgram", name));
    EXPECT_EQ(client.LocalAddr().String(), "@");
    EXPECT_EQ(client.RemoteAddr().String(), name);
    Ready(client.Write("x"));
    EXPECT_EQ(Ready(server.ReadFrom(absl::MakeSpan(buf))).from.String(), "");
  });
}

TEST_P(NetAddrTest, UnixPathsHaveALimit) {
  Run([] {
    const std::string longest = "/" + std::string(106, 'x');
    const std::string path = longest + "x";
    const auto expect = [](const absl::Status& s, const std::string& text) {
      EXPECT_EQ(Text(s), text);
      EXPECT_EQ(Errno(s), EINVAL);
    };
    expect(net::Listen("unix", path).status(),
           "listen unix " + path + ": bind: invalid argument");
    expect(net::ListenPacket("unixgram", path).status(),
           "listen unixgram " + path + ": bind: invalid argument");
    expect(net::Dial("unix", path).status(),
           "dial unix " + path + ": connect: invalid argument");
    net::DialOptions from;
    from.local_address = path;
    expect(net::Dial("unixgram", "/y", from).status(),
           "dial unixgram " + path + "->/y: bind: invalid argument");
    from.local_address = "/nowhere/x";
    expect(net::Dial("unixgram", path, from).status(),
           "dial unixgram /nowhere/x->" + path + ": connect: invalid argument");
    expect(net::ResolveAddr(context::Background(), "unix", path).status(),
           "address " + path + ": invalid argument");
    EXPECT_EQ(Text(net::Dial("unix", longest)),
              "dial unix " + longest + ": connect: no such file or directory");
    EXPECT_EQ(Text(net::Dial("unix", "")), "dial unix: missing address");

    // No NUL ends an abstract name, so it has room for one more byte.
    std::string name = "@gump-" + std::to_string(getpid());
    name.resize(108, '-');
    const net::Listener l = Ready(net::Listen("unix", name));
    EXPECT_EQ(l.LocalAddr().String(), name);
    EXPECT_EQ(Ready(net::Dial("unix", name)).RemoteAddr(), l.LocalAddr());
    expect(net::Listen("unix", name + "-").status(),
           "listen unix " + name + "-: bind: invalid argument");
    // Without an address, the kernel chooses a name.
    const net::Listener any = Ready(net::Listen("unix", ""));
    EXPECT_EQ(any.LocalAddr().String().size(), 6u) << any.LocalAddr().String();
  });
}

}  // namespace
}  // namespace gump
