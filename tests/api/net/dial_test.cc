// Dialling names that have several addresses. The resolver is this file's own:
// it defines getaddrinfo, so that names have the addresses that a test wants.
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync.h"
#include "tests/testing/held_port.h"
#include "tests/testing/parked.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;
using testing::EventuallyParked;
using testing::Ready;
using testing::Text;

// ---- Names ------------------------------------------------------------------

// Resolver knows some names and their addresses, in the order in which
// getaddrinfo returns them.
struct Resolver {
  std::mutex mu;
  std::condition_variable speaks;
  std::map<std::string, std::vector<std::string>> hosts;
  std::map<std::string, int> errors;  // of getaddrinfo, for other names
  int failures = 0;                   // lookups that will fail for no reason
  bool silent = false;                // lookups wait
  int waiting = 0;
};

Resolver& resolver() {
  static auto* const r = new Resolver;
  return *r;
}

// Name gives a name to addresses.
void Name(const std::string& name, std::vector<std::string> addresses) {
  const std::lock_guard lock(resolver().mu);
  resolver().hosts[name] = std::move(addresses);
}

void SetSilent(bool silent) {
  const std::lock_guard lock(resolver().mu);
  resolver().silent = silent;
  resolver().speaks.notify_all();
}

int WaitingForTheResolver() {
  const std::lock_guard lock(resolver().mu);
  return resolver().waiting;
}

// Entry is an element of the list that getaddrinfo returns.
struct Entry {
  addrinfo info{};
  net::Addr addr;
};

int Ask(const char* name, int family, addrinfo** list) {
  Resolver& r = resolver();
  std::unique_lock lock(r.mu);
  r.waiting++;
  r.speaks.wait(lock, [&] { return !r.silent; });
  r.waiting--;
  if (r.failures > 0) {
    r.failures--;
    return EAI_SYSTEM;  // errno is as it was
  }
  if (r.errors.contains(name)) return r.errors[name];
  for (const std::string& host : r.hosts[name]) {
    const std::string at = "[" + host + "]:0";
    const auto addr = net::ResolveAddr(context::Background(), "tcp", at);
    if (!addr.ok()) return EAI_FAIL;
    if (family != AF_UNSPEC && family != addr->Sockaddr()->sa_family) continue;
    auto* const e = new Entry{{}, *addr};
    e->info.ai_family = e->addr.Sockaddr()->sa_family;
    e->info.ai_addr = const_cast<sockaddr*>(e->addr.Sockaddr());
    e->info.ai_addrlen = e->addr.Length();
    *list = &e->info;
    list = &e->info.ai_next;
  }
  return 0;
}

}  // namespace
}  // namespace gump

extern "C" int getaddrinfo(const char* name, const char* /*service*/,
                           const addrinfo* hints, addrinfo** list) {
  addrinfo* found = nullptr;
  const int err = gump::Ask(name, hints->ai_family, &found);
  if (err != 0 || found == nullptr) return err != 0 ? err : EAI_NONAME;
  *list = found;
  return 0;
}

extern "C" void freeaddrinfo(addrinfo* list) noexcept {
  while (list != nullptr) {
    addrinfo* const next = list->ai_next;
    delete reinterpret_cast<gump::Entry*>(list);
    list = next;
  }
}

namespace gump {
namespace {

// ---- Listeners --------------------------------------------------------------

int FamilyOf(const net::Addr& a) { return a.Sockaddr()->sa_family; }

// OpenSockets counts the sockets of this process.
size_t OpenSockets() {
  size_t n = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.string().starts_with("socket:")) n++;
  }
  return n;
}

// SocketsAlone counts the sockets when no goroutine of an earlier dial is left.
// Such a goroutine may still have a socket, or make one, even in the next test.
size_t SocketsAlone() {
  EXPECT_TRUE(Eventually([] { return runtime::NumGoroutine() == 1; }));
  return OpenSockets();
}

// Queued returns the number of connections that wait for an Accept.
uint32_t Queued(const net::Listener& l) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  EXPECT_EQ(getsockopt(l.Fd(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  return info.tcpi_unacked;
}

// Both is a listener in each family, at the same port.
class Both {
 public:
  Both() {
    net::ListenOptions options;
    options.backlog = kBacklog;
    four_ = Ready(net::Listen("tcp4", held_.four().Address(), options));
    six_ = Ready(net::Listen("tcp6", held_.six().Address(), options));
  }

  // At is that port of a host.
  std::string At(const std::string& host) const {
    return host + ":" + std::to_string(held_.four().Port());
  }
  const net::Listener& of(int family) const {
    return family == AF_INET ? four_ : six_;
  }
  // Refuse makes a family refuse connections.
  void Refuse(int family) const { EXPECT_TRUE(of(family).Close().ok()); }
  // Hang fills the queue of a family, which leaves connections unanswered.
  void Hang(int family) {
    const net::Listener& l = of(family);
    for (int i = 0; i <= kBacklog; i++) {
      fillers_.push_back(Ready(net::Dial("tcp", l.LocalAddr().String())));
    }
    EXPECT_TRUE(Eventually([&] { return Queued(l) == kBacklog + 1; }));
  }

 private:
  static constexpr int kBacklog = 60;

  const testing::HeldPorts held_;
  net::Listener four_;
  net::Listener six_;
  std::vector<net::Conn> fillers_;
};

// ExpectTalk expects that data from a Conn arrives at l, and the answer at c.
void ExpectTalk(const net::Conn& c, const net::Listener& l) {
  net::Conn peer = Ready(l.Accept());
  while (!(peer.RemoteAddr() == c.LocalAddr())) peer = Ready(l.Accept());
  char buf[10];
  EXPECT_EQ(Ready(c.Write("question")), 8u);
  EXPECT_EQ(Ready(peer.Read(absl::MakeSpan(buf))), 8u);
  EXPECT_EQ(Ready(peer.Write("answer")), 6u);
  EXPECT_EQ(Ready(c.Read(absl::MakeSpan(buf))), 6u);
}

// Families is one of the two orders in which a resolver may put the addresses
// of "both.test": the addresses, and the families of the first and the second.
struct Families {
  std::vector<std::string> addresses;
  int first;
  int second;
};

std::vector<Families> Orders() {
  return {{{"::1", "127.0.0.1"}, AF_INET6, AF_INET},
          {{"127.0.0.1", "::1"}, AF_INET, AF_INET6}};
}

// DialLate dials "both.test" with a timeout that ends after the lookup. It
// repeats the dial with a longer timeout if the lookup was too slow.
absl::StatusOr<net::Conn> DialLate(const Both& at, net::DialOptions options) {
  options.timeout = absl::Milliseconds(5);
  for (;;) {
    const auto c = net::Dial("tcp", at.At("both.test"), options);
    EXPECT_TRUE(absl::IsDeadlineExceeded(c.status())) << c.status();
    if (Text(c) != "dial tcp: lookup both.test: i/o timeout") return c;
    options.timeout *= 2;
  }
}

// kNever is more than a test takes.
constexpr absl::Duration kNever = absl::Hours(1);
// kSoon is the time for a dial that must not wait for kNever.
constexpr absl::Duration kSoon = absl::Seconds(30);

class NetDialTest : public testing::WithGomaxprocs {
 protected:
  void SetUp() override {
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_addr = in6addr_loopback;
    const bool here =
        bind(fd, reinterpret_cast<sockaddr*>(&in6), sizeof(in6)) == 0;
    close(fd);
    if (!here) GTEST_SKIP() << "no IPv6";
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(NetDialTest);

// ---- Several addresses ------------------------------------------------------

TEST_P(NetDialTest, TheSecondAddressIsTriedIfTheFirstRefuses) {
  Run([] {
    const Both at;
    Name("four.test", {"127.0.0.2", "127.0.0.3", "127.0.0.1"});
    for (const char* network : {"tcp", "tcp4"}) {
      const net::Conn c = Ready(net::Dial(network, at.At("four.test")));
      EXPECT_EQ(c.RemoteAddr().String(), at.At("127.0.0.1"));
      ExpectTalk(c, at.of(AF_INET));
    }
  });
}

// The unspecified address of this host is of both families. A connection to it
// leads to a specific address.
TEST_P(NetDialTest, TheAnyAddressIsOfBothFamilies) {
  Run([] {
    const Both at;
    net::DialOptions options;
    for (const char* local : {":0", "0.0.0.0:0", "[::]:0"}) {
      options.local_address = local;
      for (const char* host : {"127.0.0.1", "[::1]"}) {
        const net::Conn c = Ready(net::Dial("tcp", at.At(host), options));
        EXPECT_EQ(c.RemoteAddr().String(), at.At(host)) << local;
        ExpectTalk(c, at.of(FamilyOf(c.RemoteAddr())));
      }
    }
    options.local_address = "127.0.0.1:0";
    EXPECT_EQ(Text(net::Dial("tcp", at.At("[::1]"), options)),
              "dial tcp: address " + at.At("[::1]") +
                  ": mismatched local address type");
    const net::Conn c = Ready(net::Dial("tcp", at.At("0.0.0.0")));
    EXPECT_EQ(c.RemoteAddr().String(), at.At("127.0.0.1"));
    ExpectTalk(c, at.of(AF_INET));
  });
}

TEST_P(NetDialTest, IfAllRefuseTheFirstErrorIsReturned) {
  Run([] {
    Both at;
    at.Refuse(AF_INET6);
    const auto refused = [&](const std::string& host) {
      return "dial tcp " + at.At(host) + ": connect: connection refused";
    };
    Name("refuse.test", {"127.0.0.3", "127.0.0.2"});
    const auto c = net::Dial("tcp", at.At("refuse.test"));
    EXPECT_EQ(Text(c), refused("127.0.0.3"));
    EXPECT_EQ(Errno(c.status()), ECONNREFUSED);
    // With two families, it is the error of the one that the resolver puts
    // first.
    for (const absl::Duration delay : {kNever, absl::ZeroDuration()}) {
      net::DialOptions options;
      options.timeout = kSoon;
      options.fallback_delay = delay;
      Name("refuse.test", {"127.0.0.2", "::1", "127.0.0.3"});
      EXPECT_EQ(Text(net::Dial("tcp", at.At("refuse.test"), options)),
                refused("127.0.0.2"));
      Name("refuse.test", {"::1", "127.0.0.3", "127.0.0.2"});
      EXPECT_EQ(Text(net::Dial("tcp", at.At("refuse.test"), options)),
                refused("[::1]"));
    }
  });
}

// The first address hangs, and must not use up the time that the others need.
TEST(NetDialTimeTest, TheTimeIsDividedAmongTheAddresses) {
  testing::RunWith(2, [] {
    Both at;
    at.Hang(AF_INET);
    const net::Listener second = Ready(net::Listen("tcp4", at.At("127.0.0.2")));
    std::vector<std::string> many(30, "127.0.0.2");
    many[0] = "127.0.0.1";
    Name("many.test", many);
    const auto start = std::chrono::steady_clock::now();
    const net::Conn c =
        Ready(net::DialTimeout("tcp", at.At("many.test"), absl::Seconds(30)));
    EXPECT_EQ(c.RemoteAddr(), second.LocalAddr());
    // A thirtieth of the time would be less than Go's minimum for an address.
    EXPECT_GE(std::chrono::steady_clock::now() - start,
              std::chrono::milliseconds(1990));
  });
}

// ---- Two families -----------------------------------------------------------

TEST_P(NetDialTest, IfTheFirstFamilyRefusesTheOtherNeedNotWait) {
  Run([] {
    for (const Families& f : Orders()) {
      Both at;
      at.Refuse(f.first);
      Name("both.test", f.addresses);
      net::DialOptions options;
      options.fallback_delay = kNever;
      options.timeout = kSoon;
      const net::Conn c = Ready(net::Dial("tcp", at.At("both.test"), options));
      EXPECT_EQ(FamilyOf(c.RemoteAddr()), f.second);
      ExpectTalk(c, at.of(f.second));
    }
  });
}

TEST_P(NetDialTest, TheFirstFamilyIsTriedAlone) {
  Run([] {
    for (const Families& f : Orders()) {
      const Both at;
      Name("both.test", f.addresses);
      net::DialOptions options;
      options.fallback_delay = kNever;
      const net::Conn c = Ready(net::Dial("tcp", at.At("both.test"), options));
      EXPECT_EQ(FamilyOf(c.RemoteAddr()), f.first);
      EXPECT_EQ(Queued(at.of(f.second)), 0u);
    }
  });
}

TEST_P(NetDialTest, IfTheFirstFamilyHangsTheOtherIsTriedAfterTheDelay) {
  Run([] {
    for (const Families& f : Orders()) {
      Both at;
      at.Hang(f.first);
      Name("both.test", f.addresses);
      const size_t before = SocketsAlone();
      net::DialOptions options;
      options.fallback_delay = absl::Milliseconds(20);
      const auto start = std::chrono::steady_clock::now();
      const net::Conn c = Ready(net::Dial("tcp", at.At("both.test"), options));
      EXPECT_GE(std::chrono::steady_clock::now() - start,
                std::chrono::milliseconds(20));
      EXPECT_EQ(FamilyOf(c.RemoteAddr()), f.second);
      ExpectTalk(c, at.of(f.second));
      // The attempt that hung is given up.
      EXPECT_TRUE(Eventually([&] { return OpenSockets() == before + 1; }));
    }
  });
}

TEST_P(NetDialTest, WithANegativeDelayOneFamilyIsTriedAfterTheOther) {
  Run([] {
    for (const Families& f : Orders()) {
      Both at;
      at.Hang(f.first);
      Name("both.test", f.addresses);
      net::DialOptions options;
      options.fallback_delay = -absl::Nanoseconds(1);
      const std::string first = at.of(f.first).LocalAddr().String();
      EXPECT_EQ(Text(DialLate(at, options)),
                "dial tcp " + first + ": i/o timeout");
      EXPECT_EQ(Queued(at.of(f.second)), 0u) << "no dial has gone there";
      at.Refuse(f.first);
      options.timeout = kSoon;
      const net::Conn c = Ready(net::Dial("tcp", at.At("both.test"), options));
      ExpectTalk(c, at.of(f.second));
    }
  });
}

// Both attempts connect at the same time, and one connection is dropped.
TEST_P(NetDialTest, TheLosersConnectionIsClosed) {
  Run([] {
    const Both at;
    Name("both.test", {"::1", "127.0.0.1"});
    const size_t before = SocketsAlone();
    net::DialOptions options;
    options.fallback_delay = absl::ZeroDuration();
    for (int round = 0; round < 50; round++) {
      const net::Conn c = Ready(net::Dial("tcp", at.At("both.test"), options));
      ExpectTalk(c, at.of(FamilyOf(c.RemoteAddr())));
      EXPECT_TRUE(c.Close().ok());
      for (const int family : {AF_INET, AF_INET6}) {
        while (Queued(at.of(family)) > 0) {
          char buf[1];
          const net::Conn lost = Ready(at.of(family).Accept());
          const auto n = lost.Read(absl::MakeSpan(buf));
          EXPECT_TRUE(n.ok() ? *n == 0 : Errno(n.status()) == ECONNRESET);
        }
      }
    }
    EXPECT_TRUE(Eventually([&] { return SocketsAlone() == before; }));
  });
}

TEST_P(NetDialTest, FromAnAddressOnlyItsFamilyIsDialled) {
  Run([] {
    for (const Families& f : Orders()) {
      Both at;
      Name("both.test", f.addresses);
      net::DialOptions options;
      options.local_address = f.second == AF_INET ? "127.0.0.1:0" : "[::1]:0";
      const net::Conn c = Ready(net::Dial("tcp", at.At("both.test"), options));
      EXPECT_EQ(FamilyOf(c.RemoteAddr()), f.second);
      EXPECT_EQ(Queued(at.of(f.first)), 0u);
      at.Refuse(f.second);
      EXPECT_EQ(Errno(net::Dial("tcp", at.At("both.test"), options).status()),
                ECONNREFUSED);
    }
  });
}

// ---- Giving up --------------------------------------------------------------

// The context ends while both families are dialled, or only the first of them.
TEST_P(NetDialTest, ADoneContextEndsAllAttempts) {
  Run([] {
    Both at;
    at.Hang(AF_INET);
    at.Hang(AF_INET6);
    Name("both.test", {"::1", "127.0.0.1"});
    const std::string prefix = "dial tcp " + at.At("[::1]") + ": ";
    const size_t before = SocketsAlone();
    const size_t waited = testing::CountParked("IO wait");
    for (const bool both : {true, false}) {
      net::DialOptions options;
      options.fallback_delay = both ? absl::ZeroDuration() : kNever;
      for (const bool by_thread : {false, true}) {
        const auto [ctx, cancel] = context::WithCancel(context::Background());
        sync::WaitGroup dialler;
        dialler.Go([&, ctx = ctx] {
          const auto c =
              net::DialContext(ctx, "tcp", at.At("both.test"), options);
          EXPECT_TRUE(absl::IsCancelled(c.status())) << c.status();
          EXPECT_EQ(Text(c), prefix + "operation was canceled");
        });
        EXPECT_TRUE(EventuallyParked("IO wait", waited + (both ? 2 : 1)));
        if (by_thread) {
          std::thread t(cancel);
          blocking([&] { t.join(); });
        } else {
          cancel();
        }
        dialler.Wait();
        EXPECT_TRUE(Eventually([&] { return OpenSockets() == before; }));
      }
      EXPECT_EQ(Text(DialLate(at, options)), prefix + "i/o timeout");
      EXPECT_TRUE(Eventually([&] { return OpenSockets() == before; }));
    }
  });
}

// A dial that was in time has a Conn that works.
TEST_P(NetDialTest, AContextThatIsDoneLaterLeavesTheConnAlone) {
  Run([] {
    const Both at;
    const net::Listener& l = at.of(AF_INET);
    for (int round = 0; round < 200; round++) {
      const auto [ctx, cancel] = context::WithCancel(context::Background());
      sync::WaitGroup other;
      if (round % 2 == 0) {
        other.Go([&, cancel = cancel] {
          for (int i = 0; i < round / 8; i++) runtime::Gosched();
          cancel();
        });
      }
      const auto c = net::DialContext(ctx, "tcp", l.LocalAddr().String());
      cancel();
      other.Wait();
      if (c.ok()) {
        ExpectTalk(*c, l);
      } else {
        EXPECT_TRUE(absl::IsCancelled(c.status())) << c.status();
        EXPECT_EQ(round % 2, 0) << "not cancelled yet";
      }
    }
  });
}

TEST_P(NetDialTest, ADoneContextEndsALookup) {
  Run([] {
    SetSilent(true);
    const auto [ctx, cancel] = context::WithCancel(context::Background());
    sync::WaitGroup dialler;
    dialler.Go([ctx = ctx] {
      const auto c = net::DialContext(ctx, "tcp", "slow.test:80");
      EXPECT_TRUE(absl::IsCancelled(c.status())) << c.status();
      EXPECT_EQ(Text(c), "dial tcp: lookup slow.test: operation was canceled");
    });
    EXPECT_TRUE(Eventually([] { return WaitingForTheResolver() == 1; }));
    cancel();
    dialler.Wait();
    EXPECT_EQ(WaitingForTheResolver(), 1) << "nothing ends that one";
    SetSilent(false);
    EXPECT_TRUE(Eventually([] { return WaitingForTheResolver() == 0; }));
  });
}

TEST_P(NetDialTest, AResolverThatFailsIsMisbehaving) {
  Run([] {
    for (const int error : {EAI_AGAIN, EAI_FAIL}) {
      const std::string host = "fails" + std::to_string(error) + ".test";
      {
        const std::lock_guard lock(resolver().mu);
        resolver().errors[host] = error;
      }
      const std::string why = "lookup " + host + ": server misbehaving";
      const auto hosts = net::LookupHost(context::Background(), host);
      EXPECT_EQ(Text(hosts), why);
      EXPECT_TRUE(absl::IsUnavailable(hosts.status())) << hosts.status();
      EXPECT_EQ(Text(net::Dial("tcp", host + ":80")), "dial tcp: " + why);
    }
  });
}

// glibc's resolver fails for no reason now and then, if other lookups run at
// the same time.
TEST_P(NetDialTest, AResolverThatFailsForNoReasonIsAskedAgain) {
  Run([] {
    Name("moody.test", {"127.0.0.1"});
    const auto after = [](int failures) {
      {
        const std::lock_guard lock(resolver().mu);
        resolver().failures = failures;
      }
      return net::LookupHost(context::Background(), "moody.test");
    };
    EXPECT_EQ(Ready(after(2)), std::vector<std::string>{"127.0.0.1"});
    EXPECT_EQ(Text(after(3)), "lookup moody.test: server misbehaving");
  });
}

TEST_P(NetDialTest, ATimeoutOfZeroIsNone) {
  Run([] {
    const Both at;
    Name("both.test", {"::1", "127.0.0.1"});
    EXPECT_TRUE(
        net::DialTimeout("tcp", at.At("both.test"), absl::ZeroDuration()).ok());
    EXPECT_EQ(Text(net::DialTimeout("tcp", at.At("127.0.0.1"),
                                    -absl::Nanoseconds(1))),
              "dial tcp " + at.At("127.0.0.1") + ": i/o timeout");
  });
}

// ---- Networks ---------------------------------------------------------------

TEST_P(NetDialTest, ANetworkWithAVersionHasOneFamily) {
  Run([] {
    std::optional<Both> tcp;
    absl::StatusOr<net::PacketConn> udp4;
    absl::StatusOr<net::PacketConn> udp6;
    do {  // another program may have the port's number there
      tcp.emplace();
      udp4 = net::ListenPacket("udp4", tcp->At("127.0.0.1"));
      udp6 = net::ListenPacket("udp6", tcp->At("[::1]"));
    } while (Errno(udp4.status()) == EADDRINUSE ||
             Errno(udp6.status()) == EADDRINUSE);
    const Both& at = *tcp;
    for (const Families& f : Orders()) {
      Name("both.test", f.addresses);
      for (const std::string host : {"both.test", ""}) {
        for (const std::string network : {"tcp", "udp"}) {
          const net::Conn four = Ready(net::Dial(network + "4", at.At(host)));
          EXPECT_EQ(four.RemoteAddr().String(), at.At("127.0.0.1"));
          EXPECT_EQ(FamilyOf(four.LocalAddr()), AF_INET);
          const net::Conn six = Ready(net::Dial(network + "6", at.At(host)));
          EXPECT_EQ(six.RemoteAddr().String(), at.At("[::1]"));
          EXPECT_EQ(FamilyOf(six.LocalAddr()), AF_INET6);
        }
      }
      // Without a version, udp takes the first, because nothing can refuse.
      EXPECT_EQ(
          FamilyOf(Ready(net::Dial("udp", at.At("both.test"))).RemoteAddr()),
          f.first);
    }
    const net::Conn c = Ready(net::Dial("udp6", at.At("both.test")));
    Ready(c.Write("six"));
    char buf[10];
    EXPECT_EQ(Ready(udp6->ReadFrom(absl::MakeSpan(buf))).n, 3u);
  });
}

TEST_P(NetDialTest, AddressesOfTheOtherFamilyAreErrors) {
  Run([] {
    Name("four.test", {"127.0.0.1"});
    Name("six.test", {"::1"});
    for (const std::string network : {"tcp", "udp"}) {
      const auto dial = [&](const char* version, const char* address) {
        return Text(net::Dial(network + version, address));
      };
      const std::string four = "dial " + network + "4: ";
      const std::string six = "dial " + network + "6: ";
      EXPECT_EQ(dial("4", "[::1]:80"),
                four + "address ::1: no suitable address found");
      EXPECT_EQ(dial("6", "127.0.0.1:80"),
                six + "address 127.0.0.1: no suitable address found");
      EXPECT_EQ(dial("4", "six.test:80"),
                four + "lookup six.test: no such host");
      EXPECT_EQ(dial("6", "four.test:80"),
                six + "lookup four.test: no such host");
      EXPECT_EQ(dial("", "none.test:80"),
                "dial " + network + ": lookup none.test: no such host");
    }
  });
}

}  // namespace
}  // namespace gump
