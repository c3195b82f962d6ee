// Pages that are sent while they are made: traces and dumps, to clients that
// read slowly, vanish, or do not read at all.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "gump/trace.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/debug_server.h"
#include "tests/testing/stress.h"
#include "tests/testing/trace_file.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

// The bytes of operator new that are in use, and the most that were. A
// sanitizer has an operator new of its own. Then both are 0.
std::atomic<size_t> in_use = 0;
std::atomic<size_t> most_in_use = 0;

[[maybe_unused]] void* Allocated(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  const size_t size = malloc_usable_size(p);
  const size_t now = in_use.fetch_add(size) + size;
  size_t most = most_in_use.load();
  while (now > most && !most_in_use.compare_exchange_weak(most, now)) {
  }
  return p;
}

[[maybe_unused]] void Free(void* p) {
  if (p == nullptr) return;
  in_use.fetch_sub(malloc_usable_size(p));
  std::free(p);
}

}  // namespace
}  // namespace gump

#ifndef GUMP_TESTING_SANITIZED
void* operator new(size_t n) { return gump::Allocated(std::malloc(n)); }
void* operator new[](size_t n) { return gump::Allocated(std::malloc(n)); }
void* operator new(size_t n, const std::nothrow_t& /*tag*/) noexcept {
  void* const p = std::malloc(n);
  return p == nullptr ? nullptr : gump::Allocated(p);
}
void operator delete(void* p) noexcept { gump::Free(p); }
void operator delete[](void* p) noexcept { gump::Free(p); }
void operator delete(void* p, const std::nothrow_t& /*tag*/) noexcept {
  gump::Free(p);
}
void operator delete(void* p, size_t) noexcept { gump::Free(p); }
void operator delete[](void* p, size_t) noexcept { gump::Free(p); }
#endif

namespace gump {
namespace {

using testing::Client;
using testing::Eventually;
using testing::Reply;
using testing::Request;
using testing::Server;

constexpr size_t kMiB = size_t{1} << 20;

// PeakOf returns how many bytes f needs at most beyond those in use.
template <class F>
size_t PeakOf(F&& f) {
  const size_t before = in_use;
  most_in_use = before;
  f();
  return most_in_use - before;
}

// ParkedGoroutines are goroutines that wait until the object is destroyed.
class ParkedGoroutines {
 public:
  explicit ParkedGoroutines(int n) {
    for (int i = 0; i < n; i++) {
      wg_.Go([this] {
        ready_++;
        (void)c_.Recv();
      });
    }
    EXPECT_TRUE(Eventually([&] { return ready_ == n; }));
  }
  ~ParkedGoroutines() {
    c_.Close();
    wg_.Wait();
  }

 private:
  chan<void> c_ = make_chan<void>();
  std::atomic<int> ready_ = 0;
  sync::WaitGroup wg_;
};

// Events makes events of traces until it is destroyed: with a pause, less than
// a megabyte in a second.
class Events {
 public:
  explicit Events(absl::Duration pause = absl::ZeroDuration()) {
    wg_.Go([this, pause] {
      while (!stop_) {
        ping_.Send();
        (void)pong_.Recv();
        if (pause != absl::ZeroDuration()) time::Sleep(pause);
      }
      ping_.Close();
    });
    wg_.Go([this] {
      while (ping_.Recv()) pong_.Send();
    });
  }
  ~Events() {
    stop_ = true;
    wg_.Wait();
  }

 private:
  chan<void> ping_ = make_chan<void>();
  chan<void> pong_ = make_chan<void>();
  std::atomic<bool> stop_ = false;
  sync::WaitGroup wg_;
};

// DeafClient asks for a page, and reads nothing. Its kernel takes little.
net::Conn DeafClient(const Server& s, std::string_view target) {
  net::Conn c = s.Dial();
  EXPECT_TRUE(c.SetReadBuffer(4096).ok());
  EXPECT_TRUE(c.Write(Request("GET", target, "Connection: close\r\n")).ok());
  return c;
}

// SocketPath is the address of a Unix socket. The kernel buffers a fifth of a
// megabyte for it. For TCP it buffers some, which a trace takes minutes to fill
// on a busy machine with a sanitizer.
std::string SocketPath() {
  return ::testing::TempDir() + "/stream." + std::to_string(getpid());
}

// These wait without many events, which Eventually makes. They wait for at most
// a minute.
template <class C>
bool EventuallyQuietly(const C& condition) {
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (!condition() && absl::Now() < end) time::Sleep(absl::Milliseconds(1));
  return condition();
}
bool TraceBegins() {
  return EventuallyQuietly([] { return trace::IsEnabled(); });
}
bool TraceEnds() {
  return EventuallyQuietly([] { return !trace::IsEnabled(); });
}

constexpr internal::ServeLimits kImpatient = {
    .write_timeout = absl::Milliseconds(50), .write_rate = int64_t{64} << 20};
constexpr char kLongTrace[] = "/debug/pprof/trace?seconds=100000";

using HttpStreamTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(HttpStreamTest);

// ---- Dumps

size_t GoroutinesIn(std::string_view dump) {
  size_t n = 0;
  for (size_t at = 0; (at = dump.find("goroutine ", at)) != dump.npos; at++) {
    n += at == 0 || dump[at - 1] == '\n';
  }
  return n;
}

TEST_P(HttpStreamTest, DumpComesInChunks_ConnectionStays) {
  Run([] {
    constexpr int kMany = 500;
    const ParkedGoroutines parked(kMany);
    const Server s;
    Client c(s);
    for (int i = 0; i < 2; i++) {
      c.Write(Request("GET", "/debug/pprof/goroutine?debug=2"));
      const Reply r = c.Next();
      EXPECT_EQ(r.line, "200 OK");
      EXPECT_EQ(r.Field("Transfer-Encoding"), "chunked");
      EXPECT_GE(GoroutinesIn(r.body), size_t{kMany});
      EXPECT_TRUE(r.body.ends_with("\n"));
    }
    c.Write(Request("HEAD", "/debug/goroutines"));
    EXPECT_EQ(c.Next(/*head=*/true).Field("Transfer-Encoding"), "chunked");
    c.Write(Request("GET", "/debug/goroutines?format=json"));
    const Reply json = c.Next();
    EXPECT_EQ(json.line, "200 OK");
    EXPECT_TRUE(json.body.ends_with("}\n]\n"));
  });
}

TEST_P(HttpStreamTest, OldClientReadsADumpUntilTheEnd) {
  Run([] {
    constexpr int kMany = 500;
    const ParkedGoroutines parked(kMany);
    const Server s;
    Client c(s);
    c.Write(
        "GET /debug/pprof/goroutine?debug=2 HTTP/1.0\r\n"
        "Connection: keep-alive\r\n\r\n");
    const Reply r = c.Next();
    EXPECT_EQ(r.line, "200 OK");
    EXPECT_EQ(r.Field("Transfer-Encoding"), "absent");
    EXPECT_EQ(r.Field("Content-Length"), "absent");
    EXPECT_EQ(r.Field("Connection"), "close");
    EXPECT_GE(GoroutinesIn(r.body), size_t{kMany});
    EXPECT_TRUE(r.body.ends_with("\n"));
  });
}

TEST_P(HttpStreamTest, TextOfADumpIsNeverInMemory) {
  Run([] {
    const ParkedGoroutines parked(testing::kManyGoroutines / 5);
    const Server s;
    Client c(s);
    size_t size = 0;
    const size_t peak = PeakOf([&] {
      c.Write(Request("GET", "/debug/pprof/goroutine?debug=2",
                      "Connection: close\r\n"));
      size = c.Skip();
    });
    std::printf("%zu bytes of text, %zu bytes of memory\n", size, peak);
    EXPECT_LT(peak, std::max(size / 10, kMiB / 2));
  });
}

// With a sanitizer there are too few goroutines for that, and the kernel takes
// the whole dump.
TEST_P(HttpStreamTest, ClientThatReadsNoDumpIsGivenUp) {
  Run([] {
    const ParkedGoroutines parked(testing::kManyGoroutines / 5);
    Server s(kImpatient);
    for (const char* target :
         {"/debug/pprof/goroutine?debug=2", "/debug/goroutines?format=json"}) {
      const int before = runtime::NumGoroutine();
      Client deaf(DeafClient(s, target));
      EXPECT_TRUE(deaf.Await("HTTP/1.1"));
      EXPECT_TRUE(Eventually([&] { return runtime::NumGoroutine() == before; }))
          << target;
    }
    EXPECT_TRUE(s.Close().ok());
  });
}

// ---- Traces

TEST_P(HttpStreamTest, TraceIsSentWhileItIsWritten) {
  // The whole trace is checked, which is slow with a sanitizer.
  constexpr int kPause = rt::kSanitizerBuild ? 200 : 0;
  Run([] {
    const Server s;
    const Events events(absl::Microseconds(kPause));
    Client c(s);
    c.Write(Request("GET", kLongTrace));
    EXPECT_TRUE(c.Await("go 1.23 trace"));
    EXPECT_TRUE(trace::IsEnabled());
    EXPECT_TRUE(c.conn().CloseWrite().ok());
    const Reply r = c.Next();
    EXPECT_EQ(r.line, "200 OK");
    EXPECT_FALSE(trace::IsEnabled());
    EXPECT_GE(testing::ReadTrace(r.body).generations, 2U);
  });
}

TEST_P(HttpStreamTest, OldClientReadsATraceUntilTheEnd) {
  Run([] {
    const Server s;
    Client c(s);
    c.Write("GET /debug/pprof/trace?seconds=0.05 HTTP/1.0\r\n\r\n");
    const Reply r = c.Next();
    EXPECT_EQ(r.line, "200 OK");
    EXPECT_EQ(r.Field("Transfer-Encoding"), "absent");
    EXPECT_EQ(testing::ReadTrace(r.body).generations, 1U);
  });
}

// The client begins to read when the trace has ended, which takes some seconds.
TEST(HttpStreamSlowTest, SlowReaderGetsTheBeginningOfATrace) {
  testing::RunWith(2, [] {
    // The kernel takes little for a unix socket, and gives it fast.
    const Server s({.backlog = kMiB}, "unix", SocketPath());
    const size_t peak = PeakOf([&] {
      const Events events(absl::Microseconds(200));
      Client slow(s);
      slow.Write(Request("GET", kLongTrace));
      ASSERT_TRUE(TraceBegins());
      ASSERT_TRUE(TraceEnds());
      const Reply r = slow.Next();
      EXPECT_EQ(r.line, "cut off");
      EXPECT_GE(testing::ReadTrace(r.body).generations, 1U);
    });
    std::printf("%zu bytes of memory\n", peak);
  });
}

TEST_P(HttpStreamTest, TraceOfAReaderThatReadsNothingTakesLittleMemory) {
  Run([] {
    constexpr size_t kBacklog = rt::kSanitizerBuild ? kMiB / 4 : 4 * kMiB;
    const Server s({.backlog = kBacklog}, "unix", SocketPath());
    const Events events;
    const size_t peak = PeakOf([&] {
      const Client deaf(DeafClient(s, kLongTrace));
      ASSERT_TRUE(TraceBegins());
      ASSERT_TRUE(TraceEnds());
    });
    std::printf("%zu bytes of memory\n", peak);
    EXPECT_LT(peak, kBacklog + kMiB);
  });
}

TEST_P(HttpStreamTest, ReaderThatReadsNothingEndsATraceInTime) {
  Run([] {
    Server s(kImpatient, "unix", SocketPath());
    const Events events;
    const Client deaf(DeafClient(s, kLongTrace));
    ASSERT_TRUE(TraceBegins());
    ASSERT_TRUE(TraceEnds());
    EXPECT_TRUE(s.Close().ok());
  });
}

TEST_P(HttpStreamTest, ReaderThatVanishesEndsATrace) {
  Run([] {
    Server s;
    for (const bool reset : {false, true}) {
      const net::Conn c = s.Dial();
      ASSERT_TRUE(c.Write(Request("GET", kLongTrace)).ok());
      ASSERT_TRUE(TraceBegins());
      if (reset) (void)c.SetLinger(0);
      (void)c.Close();
      ASSERT_TRUE(TraceEnds());
    }
    EXPECT_TRUE(s.Close().ok());
  });
}

TEST_P(HttpStreamTest, CloseEndsATraceOfAReaderThatReadsNothing) {
  Run([] {
    Server s;
    const Events events;
    const Client deaf(DeafClient(s, kLongTrace));
    ASSERT_TRUE(TraceBegins());
    EXPECT_TRUE(s.Close().ok());
    EXPECT_FALSE(trace::IsEnabled());
  });
}

// A recorder keeps its own events, and a second trace of the program is left
// alone.
TEST_P(HttpStreamTest, ReaderThatReadsNothingHoldsUpNoOtherTrace) {
  Run([] {
    Server s({.backlog = kMiB / 4}, "unix", SocketPath());
    const Events events;
    trace::FlightRecorder recorder;
    ASSERT_TRUE(recorder.Start().ok());
    const Client deaf(DeafClient(s, kLongTrace));
    ASSERT_TRUE(TraceBegins());
    ASSERT_TRUE(TraceEnds());
    const testing::TempFile recorded;
    EXPECT_TRUE(recorder.WriteTo(recorded.fd()).ok());
    EXPECT_GE(testing::ReadTrace(recorded.Contents()).generations, 1U);
    const testing::TempFile file;
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    EXPECT_TRUE(s.Close().ok());
    EXPECT_TRUE(trace::IsEnabled());
    trace::Stop();
    EXPECT_GE(testing::ReadTrace(file.Contents()).generations, 1U);
    recorder.Stop();
  });
}

// HEAD has no body, so the server takes no trace for it.
TEST_P(HttpStreamTest, HeadTakesNoTrace) {
  Run([] {
    const Server s;
    Client c(s);
    c.Write(Request("HEAD", kLongTrace));
    EXPECT_EQ(c.Next(/*head=*/true).line, "200 OK");
    EXPECT_TRUE(TraceEnds());
  });
}

}  // namespace
}  // namespace gump
