// Faults of the network, which lose nothing.
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gump/gump.h"
#include "tests/api/net/net_testing.h"
#include "tests/testing/no_descriptors.h"
#include "tests/testing/parked.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Pair;
using testing::Ready;
using testing::Text;

std::string ReadAll(const net::Conn& c) {
  std::string all;
  char buf[1000];
  for (;;) {
    const absl::StatusOr<size_t> n = c.Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0) return all;
    all.append(buf, *n);
  }
}

// Reset closes with a reset.
void Reset(const net::Conn& c) {
  EXPECT_TRUE(c.SetLinger(0).ok());
  EXPECT_TRUE(c.Close().ok());
}

using NetFaultTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NetFaultTest);

// ---- No descriptor is free --------------------------------------------------

// A server that pauses as Go's does. Clients wait in the kernel meanwhile.
TEST_P(NetFaultTest, AStormOfConnectionsLosesNone) {
  Run([] {
    constexpr int kClients = 100;
    const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    std::vector<net::Conn> clients;
    for (int i = 0; i < kClients; i++) {
      clients.push_back(Ready(net::Dial("tcp", l.LocalAddr().String())));
    }
    const testing::NoDescriptors none;
    std::atomic<int> failed = 0;
    sync::WaitGroup server;
    server.Go([&] {
      absl::Duration pause = absl::Milliseconds(5);
      for (int served = 0; served < kClients;) {
        const absl::StatusOr<net::Conn> conn = l.Accept();
        if (conn.ok()) {
          Ready(conn->Write("welcome"));
          served++;
          pause = absl::Milliseconds(5);
          continue;
        }
        EXPECT_EQ(Errno(conn.status()), EMFILE);
        EXPECT_EQ(Text(conn),
                  absl::StrCat("accept tcp ", l.LocalAddr().String(),
                               ": accept4: too many open files"));
        failed++;
        time::Sleep(pause);
        pause = std::min(2 * pause, absl::Seconds(1));
      }
    });
    while (failed < 3) time::Sleep(absl::Milliseconds(1));
    none.FreeOne();  // enough for one after the other
    for (const net::Conn& c : clients) EXPECT_EQ(ReadAll(c), "welcome");
    server.Wait();
  });
}

TEST_P(NetFaultTest, DialWithoutDescriptorsFailsAndLeavesNothing) {
  Run([] {
    const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    const std::string address = l.LocalAddr().String();
    {
      const testing::NoDescriptors none;
      const auto conn = net::Dial("tcp", address);
      EXPECT_EQ(Errno(conn.status()), EMFILE);
      EXPECT_EQ(Text(conn), absl::StrCat("dial tcp ", address,
                                         ": socket: too many open files"));
      EXPECT_EQ(Errno(net::Listen("tcp", "127.0.0.1:0").status()), EMFILE);
      EXPECT_EQ(Errno(net::Pipe().status()), EMFILE);
    }
    Ready(net::Dial("tcp", address));
  });
}

// ---- Peers that go ----------------------------------------------------------

TEST_P(NetFaultTest, AResetEndsARead) {
  Run([] {
    const Pair pair;
    sync::WaitGroup reader;
    reader.Go([&] {
      char buf[1];
      const auto n = pair.a.Read(absl::MakeSpan(buf));
      EXPECT_EQ(Errno(n.status()), ECONNRESET);
      EXPECT_EQ(Text(n), absl::StrCat("read ", pair.Names(),
                                      ": read: connection reset by peer"));
    });
    EXPECT_TRUE(testing::EventuallyParked("IO wait", 1));
    Reset(pair.b);
    reader.Wait();
    EXPECT_EQ(Errno(pair.a.Write("x").status()), EPIPE);
  });
}

TEST_P(NetFaultTest, AResetEndsAWriteWhichSaysHowFarItGot) {
  Run([] {
    const Pair pair;
    const std::string data(64 << 20, 'x');
    sync::WaitGroup writer;
    writer.Go([&] {
      const auto n = pair.a.Write(data);
      EXPECT_TRUE(Errno(n.status()) == ECONNRESET || Errno(n.status()) == EPIPE)
          << n.status();
      EXPECT_GE(BytesWritten(n.status()), 1'000'000u);
      EXPECT_LT(BytesWritten(n.status()), data.size());
    });
    char buf[1000];
    for (size_t read = 0; read < 1'000'000;) {
      read += Ready(pair.b.Read(absl::MakeSpan(buf)));
    }
    EXPECT_TRUE(testing::EventuallyParked("IO wait", 1));
    Reset(pair.b);
    writer.Wait();
  });
}

// Vanish closes without a word to the other end, like a machine that loses its
// power. Returns false if that takes a privilege that we do not have.
bool Vanish(const net::Conn& c) {
  bool may = false;
  EXPECT_TRUE(c.SyscallConn([&](int fd) {
                 const int on = 1;
                 may = setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on,
                                  sizeof(on)) == 0;
               }).ok());
  EXPECT_TRUE(c.Close().ok());
  return may;
}

TEST_P(NetFaultTest, KeepAliveNoticesThatThePeerIsGone) {
  Run([] {
    const Pair pair;
    EXPECT_TRUE(pair.a.SetKeepAlive(true, absl::Seconds(1)).ok());
    if (!Vanish(pair.b)) GTEST_SKIP() << "needs CAP_NET_ADMIN";
    char buf[1];
    const auto n = pair.a.Read(absl::MakeSpan(buf));
    EXPECT_EQ(Errno(n.status()), ECONNRESET) << n.status();
  });
}

TEST_P(NetFaultTest, AWriteFindsOutThatThePeerIsGone) {
  Run([] {
    const Pair pair;
    if (!Vanish(pair.b)) GTEST_SKIP() << "needs CAP_NET_ADMIN";
    Ready(pair.a.Write("anybody?"));  // the loss cannot be known yet
    char buf[1];
    const auto n = pair.a.Read(absl::MakeSpan(buf));
    EXPECT_EQ(Errno(n.status()), ECONNRESET) << n.status();
    EXPECT_EQ(Errno(pair.a.Write("x").status()), EPIPE);
  });
}

// ---- Datagrams --------------------------------------------------------------

TEST_P(NetFaultTest, DatagramsAreCutAndTheNextIsWhole) {
  Run([] {
    const net::PacketConn to = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    const net::PacketConn from = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
    constexpr size_t kSizes[] = {2000, 10, 0, 11, 65'507, 1};
    for (const size_t size : kSizes) {
      Ready(from.WriteTo(std::string(size, 'x'), to.LocalAddr()));
    }
    for (const size_t size : kSizes) {
      char buf[10] = {};
      const auto packet = Ready(to.ReadFrom(absl::MakeSpan(buf)));
      EXPECT_EQ(packet.n, std::min(size, sizeof(buf)));
      EXPECT_EQ(packet.truncated, size > sizeof(buf)) << size;
      EXPECT_EQ(packet.from, from.LocalAddr());
      EXPECT_EQ(std::string(buf, packet.n), std::string(packet.n, 'x'));
    }
    const auto n = from.WriteTo(std::string(65'508, 'x'), to.LocalAddr());
    EXPECT_EQ(Errno(n.status()), EMSGSIZE) << n.status();
  });
}

// ---- Descriptor 0 -----------------------------------------------------------

// TalkAbove0 makes connections and a socket for packets, and uses them. None of
// them gets the number of the standard input, which is closed.
void TalkAbove0() {
  const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
  const net::Conn c = Ready(net::Dial("tcp", l.LocalAddr().String()));
  const net::Conn s = Ready(l.Accept());
  EXPECT_GT(std::min({l.Fd(), c.Fd(), s.Fd()}), STDERR_FILENO);
  Ready(c.Write("hello"));
  EXPECT_TRUE(c.Close().ok());
  EXPECT_EQ(ReadAll(s), "hello");
  EXPECT_TRUE(l.Close().ok());
  EXPECT_TRUE(s.Close().ok());
  const net::PacketConn p = Ready(net::ListenPacket("udp", "127.0.0.1:0"));
  Ready(p.WriteTo("hello", p.LocalAddr()));
  char buf[10];
  EXPECT_EQ(Ready(p.ReadFrom(absl::MakeSpan(buf))).n, 5u);
  EXPECT_GT(p.Fd(), STDERR_FILENO);
}

// CloseDescriptor0 runs in a process of its own. The exit code is 0 if all is
// well.
[[noreturn]] void CloseDescriptor0() {
  Run([] {
    Ready(net::Pipe());  // now the runtime has its descriptors
    close(STDIN_FILENO);
    for (int round = 0; round < 3; round++) TalkAbove0();
  });
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(NetFaultDeathTest, NoConnectionTakesAClosedStandardDescriptor) {
  EXPECT_EXIT(CloseDescriptor0(), ::testing::ExitedWithCode(0), "");
}

// ---- A name server that never answers ---------------------------------------

constexpr int kMayNot = 77;

// EnterDeadDns moves this process, which has one thread, into a network with
// nothing but a loopback interface. The name server of that system is a socket
// there from which nothing reads. Returns false if we may not.
bool EnterDeadDns() {
  constexpr int kSpaces = CLONE_NEWNS | CLONE_NEWNET;
  if (unshare(kSpaces) != 0 && unshare(kSpaces | CLONE_NEWUSER) != 0) {
    return false;
  }
  char path[] = "/tmp/gump-resolv-XXXXXX";
  const int file = mkstemp(path);
  constexpr std::string_view kConf = "nameserver 127.0.0.1\n";
  if (file < 0 || write(file, kConf.data(), kConf.size()) < 0) return false;
  close(file);
  const bool mounted =
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      mount(path, "/etc/resolv.conf", nullptr, MS_BIND, nullptr) == 0;
  unlink(path);
  const int s = socket(AF_INET, SOCK_DGRAM, 0);
  ifreq lo = {};
  std::strcpy(lo.ifr_name, "lo");
  lo.ifr_flags = IFF_UP;
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_port = htons(53);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return mounted && ioctl(s, SIOCSIFFLAGS, &lo) == 0 &&
         bind(s, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
}

// libc waits at least this long for a name server.
constexpr absl::Duration kLibcWaits = absl::Seconds(5);

// More goroutines dial than may look up names at a time. They return in time,
// while libc waits. A goroutine with an address, or a connection, is not
// delayed.
[[noreturn]] void DialByDeadNames() {
  if (!EnterDeadDns()) std::_Exit(kMayNot);
  const int code = Run([] {
    const Pair pair;
    std::atomic<int> rounds = 0;
    sync::WaitGroup ends;
    ends.Go([&] {
      char c[1];
      while (pair.b.Read(absl::MakeSpan(c)).value_or(0) == 1) {
        (void)pair.b.Write({c, 1});
      }
    });
    ends.Go([&] {
      char c[1] = {'x'};
      for (;; rounds++) {
        if (!pair.a.Write({c, 1}).ok()) return;
        if (pair.a.Read(absl::MakeSpan(c)).value_or(0) == 0) return;
      }
    });
    std::atomic<int> in_time = 0;
    constexpr int kDials = 1000;
    const absl::Time start = absl::Now();
    sync::WaitGroup all;
    for (int i = 0; i < kDials; i++) {
      all.Go([&] {
        const auto [ctx, cancel] = context::WithTimeout(
            context::Background(), absl::Milliseconds(100));
        const auto conn = net::DialContext(ctx, "tcp", "gone.example:80");
        const bool text =
            Text(conn) == "dial tcp: lookup gone.example: i/o timeout";
        if (!text) std::fprintf(stderr, "%s\n", Text(conn).c_str());
        if (text && absl::Now() - start < kLibcWaits) in_time++;
        cancel();
      });
    }
    all.Wait();
    constexpr int kRounds = 50;
    while (rounds < kRounds && absl::Now() - start < kLibcWaits) {
      time::Sleep(absl::Milliseconds(1));
    }
    const int meanwhile = rounds;
    const net::Listener l = Ready(net::Listen("tcp", "127.0.0.1:0"));
    Ready(net::Dial("tcp", l.LocalAddr().String()));
    std::fprintf(stderr, "%d of %d in time, %d rounds meanwhile\n",
                 in_time.load(), kDials, meanwhile);
    const bool closed = pair.a.Close().ok();
    ends.Wait();
    return closed && in_time == kDials && meanwhile >= kRounds ? 0 : 1;
  });
  std::_Exit(code);
}

TEST(NetFaultDeathTest, ADeadNameServerDelaysNoDialBeyondItsTime) {
  bool denied = false;
  EXPECT_EXIT(
      DialByDeadNames(),
      [&](int status) {
        denied = WIFEXITED(status) && WEXITSTATUS(status) == kMayNot;
        return denied || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
      },
      "");
  if (denied) GTEST_SKIP() << "it takes namespaces, which are denied";
}

}  // namespace
}  // namespace gump
