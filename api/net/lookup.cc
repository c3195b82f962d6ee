// Looking up names.
//
// Names are looked up by getaddrinfo. It knows all the sources that the system
// is configured to ask, and it blocks. Each lookup runs on a goroutine of its
// own as a declared call, so it costs a thread while it lasts. The caller waits
// for it or for its context. At most kMaxLookups run at once. The others wait
// in a queue, also only until their context is done.
#include "gump/net/lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/net/address.h"
#include "api/net/lookup.h"
#include "api/net/socket.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/select.h"
#include "gump/sync/semaphore.h"
#include "runtime/sys/descriptor.h"

namespace gump::internal {

sync::Semaphore& LookupSlots() {
  // This many threads may be busy with lookups at the same time. (Go: 500.)
  constexpr int64_t kMaxLookups = 128;
  static auto* const slots = new sync::Semaphore(kMaxLookups);
  return *slots;
}

namespace {

// LooksLikeAnAddress returns true for a text in the form of an address. As in
// Go, no host has such a name. The C library would take "127.1", "0x7f.1" and
// "2130706433" for addresses, and 0127 to be octal. A program that checks an
// address as text would then mean another address than the one that is dialled.
// Proper addresses have been recognised before.
bool LooksLikeAnAddress(const std::string& host) {
  in_addr any;
  return host.find_first_not_of("0123456789.") == std::string::npos ||
         inet_aton(host.c_str(), &any) != 0;
}

// getaddrinfo and the modules that it loads need more than a goroutine's stack.
constexpr size_t kLookupStack = size_t{1} << 20;

// LookupSlot is the permission to make one lookup, until it is destroyed.
class LookupSlot {
 public:
  LookupSlot() = default;
  LookupSlot(LookupSlot&& o) noexcept : held_(std::exchange(o.held_, false)) {}
  ~LookupSlot() { Release(); }

  // Acquire waits for a slot. Returns false if ctx is done.
  bool Acquire(const context::Context& ctx) {
    return held_ = LookupSlots().Acquire(ctx).ok();
  }
  void Release() {
    if (std::exchange(held_, false)) LookupSlots().Release();
  }

 private:
  bool held_ = false;
};

struct Answer {
  int error = 0;  // EAI_…
  int sys = 0;    // the errno, if error is EAI_SYSTEM
  std::vector<net::Addr> addrs;
  std::exception_ptr thrown;  // there was no memory for the answer
};

Answer AskSystem(const Network& network, const std::string& host) {
  addrinfo hints{};
  hints.ai_family = network.version == 4   ? AF_INET
                    : network.version == 6 ? AF_INET6
                                           : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;  // one entry per address
  struct Free {
    void operator()(addrinfo* list) const { freeaddrinfo(list); }
  };
  std::unique_ptr<addrinfo, Free> list;
  Answer a;
  const rt::StandardHold hold;  // libc makes sockets and opens files
  blocking([&] {
    // If no nscd runs, glibc records that in a counter and goes on without it.
    // It tries again after a hundred lookups. All of these lookups may be made
    // by other threads between the store to the counter and the load from it.
    // Then glibc wrongly assumes that nscd has failed. It returns EAI_SYSTEM
    // and leaves errno unchanged. (Go, issue 6232.)
    constexpr int kTries = 3;
    for (int i = 0; i < kTries; i++) {
      addrinfo* found = nullptr;
      errno = 0;
      a.error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
      a.sys = errno;
      list.reset(found);
      if (a.error != EAI_SYSTEM || a.sys != 0) break;
    }
  });
  if (a.error == EAI_MEMORY) throw std::bad_alloc();
  for (const addrinfo* i = list.get(); i != nullptr; i = i->ai_next) {
    a.addrs.push_back(
        NetAccess::MakeAddr(network.family, i->ai_addr, i->ai_addrlen));
  }
  return a;
}

absl::Status LookupError(const std::string& host, const Answer& a) {
  const std::string prefix = Cat("lookup ", host, ": ");
  switch (a.error) {
    case 0:
    case EAI_NONAME:
    case EAI_NODATA:
      return absl::NotFoundError(prefix + "no such host");
    case EAI_SYSTEM:
      return absl::UnavailableError(
          Cat(prefix, std::string(a.sys != 0 && strerrorname_np(a.sys)
                                      ? strerrordesc_np(a.sys)
                                      : "server misbehaving")));
    case EAI_AGAIN:  // no server has answered
    case EAI_FAIL:   // a server has reported that it cannot answer
      return absl::UnavailableError(prefix + "server misbehaving");
    default:
      return absl::UnavailableError(Cat(prefix, gai_strerror(a.error)));
  }
}

absl::StatusOr<std::vector<net::Addr>> Lookup(const context::Context& ctx,
                                              const Network& network,
                                              const std::string& host) {
  const auto failed = [&] {
    return Prefixed("lookup", host, "", ContextError(ctx));
  };
  if (HoldsNul(host) || LooksLikeAnAddress(host)) {
    return LookupError(host, Answer());
  }
  LookupSlot slot;
  if (!slot.Acquire(ctx)) return failed();
  // On a goroutine of its own: the caller may go before the answer comes.
  auto answered = make_chan<Answer>(1);
  go(GoOptions{.stack_size = kLookupStack, .name = "lookup"},
     [answered, network, host, slot = std::move(slot)]() mutable {
       Answer a;
       try {
         a = AskSystem(network, host);
       } catch (const std::bad_alloc&) {  // for the caller, as net.h says
         a.thrown = std::current_exception();
       }
       slot.Release();
       answered.Send(std::move(a));
     });
  Answer answer;
  const recv_chan<void> done = ctx.Done();
  if (select(Recv(answered, &answer), Recv(done)) == 1) return failed();
  if (answer.thrown != nullptr) std::rethrow_exception(answer.thrown);
  if (answer.addrs.empty()) return LookupError(host, answer);
  return std::move(answer.addrs);
}

bool Matches(const Network& network, const net::Addr& a) {
  const int family = a.Sockaddr()->sa_family;
  return network.version == 0 ||
         family == (network.version == 4 ? AF_INET : AF_INET6);
}

// Wildcard returns the address of all interfaces to listen at (passive), or of
// this host to connect to.
net::Addr Wildcard(const Network& network, bool passive) {
  static const bool has6 = [] {
    int err;
    const int fd = NewSocket(*ParseNetwork("udp6"), AF_INET6, &err);
    if (fd < 0) return false;
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    const bool ok =
        bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0;
    close(fd);
    return ok;
  }();
  if (network.version == 4 || (network.version == 0 && !(passive && has6))) {
    return LiteralAddr(network, passive ? "0.0.0.0" : "127.0.0.1");
  }
  return LiteralAddr(network, passive ? "::" : "::1");
}

}  // namespace

absl::StatusOr<std::vector<net::Addr>> Resolve(const context::Context& ctx,
                                               const Network& network,
                                               std::string_view address,
                                               bool passive) {
  std::vector<net::Addr> addrs;
  if (address.empty() && !passive) {
    return absl::InvalidArgumentError("missing address");
  }
  if (network.unix_domain()) {
    absl::StatusOr<net::Addr> a = UnixAddr(network, address);
    if (!a.ok()) return a.status();
    addrs.push_back(*std::move(a));
    return addrs;
  }
  HostPort hp;
  if (!address.empty()) {
    absl::StatusOr<HostPort> split = SplitHostPort(address);
    if (!split.ok()) return split.status();
    hp = *std::move(split);
  }
  absl::StatusOr<int> port = ParsePort(network, hp.port);
  if (!port.ok()) return port.status();
  if (hp.host.empty()) {
    addrs.push_back(NetAccess::AsGiven(Wildcard(network, passive), ""));
  } else if (net::Addr a = LiteralAddr(network, hp.host); a.Length() != 0) {
    if (!Matches(network, a)) {
      return AddrError(hp.host, "no suitable address found");
    }
    addrs.push_back(a);
  } else {
    absl::StatusOr<std::vector<net::Addr>> found =
        Lookup(ctx, network, hp.host);
    if (!found.ok()) return found.status();
    addrs = *std::move(found);
  }
  for (net::Addr& a : addrs)
    SetPort(const_cast<sockaddr*>(a.Sockaddr()), *port);
  return addrs;
}

absl::Status LookupHost(const context::Context& ctx, std::string_view name,
                        void (*take)(void* to, std::string address), void* to) {
  const Network network = *ParseNetwork("tcp");
  const std::string host(name);
  std::vector<net::Addr> addrs;
  if (host.empty()) {
    return absl::NotFoundError("lookup : no such host");
  }
  if (net::Addr a = LiteralAddr(network, host); a.Length() != 0) {
    addrs.push_back(a);
  } else {
    absl::StatusOr<std::vector<net::Addr>> found = Lookup(ctx, network, host);
    if (!found.ok()) return found.status();
    addrs = *std::move(found);
  }
  for (const net::Addr& a : addrs) take(to, NetAccess::Host(a));
  return absl::OkStatus();
}

}  // namespace gump::internal

namespace gump::net {

absl::StatusOr<Addr> ResolveAddr(const context::Context& ctx,
                                 std::string_view network,
                                 std::string_view address) {
  absl::StatusOr<internal::Network> n = internal::ParseNetwork(network);
  if (!n.ok()) return n.status();
  absl::StatusOr<std::vector<Addr>> addrs =
      internal::Resolve(ctx, *n, address, /*passive=*/false);
  if (!addrs.ok()) return addrs.status();
  return addrs->front();
}

}  // namespace gump::net
