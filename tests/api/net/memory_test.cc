// Package net without memory. The caller gets std::bad_alloc, and nothing is
// lost. Every allocation fails in turn, in any goroutine.
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/context.h"
#include "gump/net.h"
#include "gump/time.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

// The allocation that fails, counted down. At 0, none fails any more.
std::atomic<int> left = 0;

bool Fails() {
  int n = left.load();
  while (n > 0 && !left.compare_exchange_weak(n, n - 1)) {
  }
  return n == 1;
}

}  // namespace
}  // namespace gump

void* operator new(size_t n) {
  void* const p = gump::Fails() ? nullptr : std::malloc(n);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
// It never fails, because a channel that cannot be made is a panic (chan.h).
void* operator new(size_t n, const std::nothrow_t& /*tag*/) noexcept {
  return std::malloc(n);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t& /*tag*/) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace gump {
namespace {

// "both.test" is this host in both families, or there is no memory to say so.
std::atomic<bool> resolver_has_memory = true;
std::atomic<int> lists = 0;  // results of getaddrinfo that are not freed yet

}  // namespace
}  // namespace gump

extern "C" int getaddrinfo(const char* /*name*/, const char* /*service*/,
                           const addrinfo* /*hints*/, addrinfo** list) {
  if (!gump::resolver_has_memory) return EAI_MEMORY;
  struct Both {
    addrinfo info[2];
    sockaddr_in6 six;
    sockaddr_in four;
  };
  auto* const b = static_cast<Both*>(std::calloc(1, sizeof(Both)));
  b->six.sin6_family = AF_INET6;
  b->six.sin6_addr = in6addr_loopback;
  b->four.sin_family = AF_INET;
  b->four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  b->info[0].ai_addr = reinterpret_cast<sockaddr*>(&b->six);
  b->info[0].ai_addrlen = sizeof(b->six);
  b->info[0].ai_next = &b->info[1];
  b->info[1].ai_addr = reinterpret_cast<sockaddr*>(&b->four);
  b->info[1].ai_addrlen = sizeof(b->four);
  *list = &b->info[0];
  gump::lists++;
  return 0;
}
extern "C" void freeaddrinfo(addrinfo* list) noexcept {
  gump::lists--;
  std::free(list);
}

namespace gump {
namespace {

using testing::Eventually;
using testing::Ready;

size_t OpenDescriptors() {
  size_t n = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    n += entry.exists() ? 1 : 0;
  }
  return n;
}

// FailEach calls f over and over. First the first allocation of f fails, then
// the second, until f makes no more. Each of them fails `times` times. FailEach
// returns how many times f threw.
template <class F>
int FailEach(int times, const F& f) {
  int thrown = 0;
  for (int n = 1;; n++) {
    EXPECT_LT(n, 1000);
    bool reached = false;
    for (int i = 0; i < times; i++) {
      left = n;
      try {
        f();
      } catch (const std::bad_alloc&) {
        thrown++;
      }
      reached = left.exchange(0) == 0 || reached;
    }
    if (!reached || n == 1000) return thrown;
  }
}

using NetMemoryTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NetMemoryTest);

// More lookups fail than may be under way at a time.
TEST_P(NetMemoryTest, ALookupThatFailsTakesNoOthersPlace) {
  Run([] {
    const auto lookup = [] {
      return net::LookupHost(context::Background(), "both.test").status();
    };
    EXPECT_TRUE(lookup().ok());
    EXPECT_GT(FailEach(130, [&] { EXPECT_TRUE(lookup().ok()); }), 500);
    const auto [ctx, cancel] =
        context::WithTimeout(context::Background(), absl::Seconds(30));
    EXPECT_TRUE(net::LookupHost(ctx, "both.test").ok());
    cancel();
    EXPECT_TRUE(Eventually([] { return lists == 0; }));
  });
}

TEST_P(NetMemoryTest, AResolverWithoutMemoryIsBadAlloc) {
  Run([] {
    resolver_has_memory = false;
    EXPECT_THROW((void)net::LookupHost(context::Background(), "both.test"),
                 std::bad_alloc);
    resolver_has_memory = true;
  });
}

TEST_P(NetMemoryTest, ADialThatFailsLeavesNoDescriptor) {
  Run([] {
    const net::Listener l = Ready(net::Listen("tcp", ":0"));
    const std::string at = "both.test:" + std::to_string(l.LocalAddr().Port());
    net::DialOptions options;
    options.fallback_delay = absl::ZeroDuration();  // both families at once
    const size_t before = OpenDescriptors();
    const int thrown = FailEach(3, [&] {
      (void)net::Dial("tcp", at, options);
      (void)net::Pipe();
    });
    EXPECT_GT(thrown, 20);
    EXPECT_TRUE(Eventually([&] {
      while (true) {  // takes the connections that no dial kept
        EXPECT_TRUE(l.SetDeadline(absl::Now() + absl::Milliseconds(1)).ok());
        if (!l.Accept().ok()) break;
      }
      return OpenDescriptors() <= before;  // before may count sysmon's
    }));
  });
}

}  // namespace
}  // namespace gump
