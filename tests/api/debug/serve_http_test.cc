// debug::ServeHTTP, with clients that are ordinary, slow, silent or hostile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/pprof/profile.h"
#include "gump/chan.h"
#include "gump/debug.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/metrics.h"
#include "gump/net.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "gump/trace.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/debug_server.h"
#include "tests/testing/json_reader.h"
#include "tests/testing/panic_text.h"
#include "tests/testing/parked.h"
#include "tests/testing/profile_reader.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace livetest {

__attribute__((noinline)) void Receiver(gump::chan<int> c) {
  c.Recv();
  asm volatile("");
}

__attribute__((noinline)) void Burn(const std::atomic<bool>& stop) {
  while (!stop) {
    for (int i = 0; i < 1000; i++) asm volatile("");
  }
}

}  // namespace livetest

namespace gump {
namespace {

using testing::Client;
using testing::Eventually;
using testing::Reply;
using testing::Request;
using testing::Server;

Reply Ask(const Server& s, std::string_view method, std::string_view target,
          std::string_view fields = "") {
  Client c(s);
  c.Write(Request(method, target, fields));
  return c.Next(method == "HEAD");
}
Reply Get(const Server& s, std::string_view target,
          std::string_view fields = "") {
  return Ask(s, "GET", target, fields);
}

constexpr char kPlain[] = "text/plain; charset=utf-8";
constexpr char kBinary[] = "application/octet-stream";

// IsPprofError checks a reply that serveError of net/http/pprof would write.
void IsPprofError(const Reply& r, std::string_view line,
                  std::string_view text) {
  EXPECT_EQ(r.line, line);
  EXPECT_EQ(r.body, std::string(text) + "\n");
  EXPECT_EQ(r.Field("Content-Type"), kPlain);
  EXPECT_EQ(r.Field("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(r.Field("X-Go-Pprof"), "1");
  EXPECT_EQ(r.Field("Content-Disposition"), "absent");
}

using ServeHttpTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(ServeHttpTest);

TEST_P(ServeHttpTest, ProfilesHaveGosFields) {
  Run([] {
    const Server s;
    for (const std::string name :
         {"goroutine", "threadcreate", "block", "mutex"}) {
      const std::string path = "/debug/pprof/" + name;
      const Reply proto = Get(s, path);
      EXPECT_EQ(proto.line, "200 OK");
      EXPECT_EQ(proto.Field("Content-Type"), kBinary);
      EXPECT_EQ(proto.Field("Content-Disposition"),
                "attachment; filename=\"" + name + "\"");
      EXPECT_EQ(proto.Field("X-Content-Type-Options"), "nosniff");
      EXPECT_EQ(proto.Field("X-Go-Pprof"), "absent");
      EXPECT_EQ(testing::ReadProfile(proto.body).error, "");
      const Reply text = Get(s, path + "?debug=1");
      EXPECT_EQ(text.line, "200 OK");
      EXPECT_EQ(text.Field("Content-Type"), kPlain);
      EXPECT_EQ(text.Field("Content-Disposition"), "absent");
      EXPECT_EQ(text.Field("X-Content-Type-Options"), "nosniff");
    }
    EXPECT_TRUE(Get(s, "/debug/pprof/goroutine?debug=1")
                    .body.starts_with("goroutine profile: total "));
    EXPECT_TRUE(Get(s, "/debug/pprof/goroutine?debug=2")
                    .body.starts_with("goroutine "));
    EXPECT_TRUE(
        Get(s, "/debug/pprof/block?debug=1").body.starts_with("--- cont"));
    EXPECT_EQ(Get(s, "/debug/pprof/goroutine?debug=x").Field("Content-Type"),
              kBinary);
  });
}

TEST_P(ServeHttpTest, BadProfileRequestsHaveGosErrors) {
  Run([] {
    const Server s;
    for (const char* name : {"nothing", "goroutine/", "..", "heap"}) {
      IsPprofError(Get(s, std::string("/debug/pprof/") + name), "404 Not Found",
                   "Unknown profile");
    }
    for (const char* seconds :
         {"0", "-1", "x", "1.5", "%20", "99999999999999999999"}) {
      IsPprofError(
          Get(s, std::string("/debug/pprof/block?seconds=") + seconds),
          "400 Bad Request",
          "invalid value for \"seconds\" - must be a positive integer");
    }
    IsPprofError(Get(s, "/debug/pprof/mutex?seconds=1&debug=1"),
                 "400 Bad Request",
                 "seconds and debug params are incompatible");
  });
}

TEST_P(ServeHttpTest, OtherPathsAndMethodsAreRefusedAsInGo) {
  Run([] {
    const Server s;
    for (const char* path : {"/", "/debug", "/debug/", "/debug/varsx",
                             "/metrics/", "/debug/goroutines/"}) {
      const Reply r = Get(s, path);
      EXPECT_EQ(r.line, "404 Not Found") << path;
      EXPECT_EQ(r.body, "404 page not found\n");
      EXPECT_EQ(r.Field("Content-Type"), kPlain);
      EXPECT_EQ(r.Field("X-Content-Type-Options"), "nosniff");
      EXPECT_EQ(Ask(s, "POST", path).line, "404 Not Found");
    }
    for (const char* path :
         {"/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/symbol",
          "/debug/vars", "/metrics", "/debug/goroutines"}) {
      for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
        const Reply r = Ask(s, method, path);
        EXPECT_EQ(r.line, "405 Method Not Allowed") << method << path;
        EXPECT_EQ(r.Field("Allow"), "GET, HEAD");
        EXPECT_EQ(r.body, "Method Not Allowed\n");
      }
    }
    const Reply r = Get(s, "/debug/pprof?a=%22<");
    EXPECT_EQ(r.line, "307 Temporary Redirect");
    EXPECT_EQ(r.Field("Location"), "/debug/pprof/?a=%22<");
    EXPECT_EQ(r.body,
              "<a href=\"/debug/pprof/?a=%22&lt;\">Temporary "
              "Redirect</a>.\n\n");
  });
}

TEST_P(ServeHttpTest, HeadRequestGetsTheFieldsOfGet) {
  Run([] {
    const Server s;
    Client c(s);
    for (const char* path :
         {"/debug/pprof/", "/debug/pprof/cmdline", "/metrics", "/nothing"}) {
      c.Write(Request("HEAD", path));
      const Reply head = c.Next(/*head=*/true);
      c.Write(Request("GET", path));
      const Reply get = c.Next();
      EXPECT_EQ(head.line, get.line);
      EXPECT_EQ(head.Field("Content-Type"), get.Field("Content-Type"));
      EXPECT_NE(head.Field("Content-Length"), "absent");
    }
  });
}

TEST_P(ServeHttpTest, IndexListsTheProfiles) {
  Run([] {
    const Server s;
    const Reply r = Get(s, "/debug/pprof/");
    EXPECT_EQ(r.line, "200 OK");
    EXPECT_EQ(r.Field("Content-Type"), "text/html; charset=utf-8");
    EXPECT_EQ(r.Field("X-Content-Type-Options"), "nosniff");
    for (const char* name :
         {"block", "cmdline", "goroutine", "mutex", "profile", "symbol",
          "threadcreate", "trace", "goroutineleak"}) {
      EXPECT_NE(r.body.find(std::string("<a href='") + name + "?debug=1'>" +
                            name + "</a>"),
                r.body.npos)
          << name;
      // Each link leads to a page. Three pages are left out, because they take
      // long or fail with ThreadSanitizer.
      const std::string_view page = name;
      if (page != "profile" && page != "trace" && page != "goroutineleak") {
        EXPECT_EQ(Get(s, std::string("/debug/pprof/") + name).line, "200 OK");
      }
    }
  });
}

TEST_P(ServeHttpTest, CmdlinePageShowsTheCommandLine) {
  Run([] {
    const Server s;
    const Reply r = Get(s, "/debug/pprof/cmdline");
    EXPECT_EQ(r.Field("Content-Type"), kPlain);
    const std::string first = r.body.substr(0, r.body.find('\0'));
    EXPECT_EQ(first, program_invocation_name);
    EXPECT_FALSE(r.body.ends_with('\0'));
  });
}

TEST_P(ServeHttpTest, SymbolNamesFunctions) {
  Run([] {
    const Server s;
    char query[128];
    std::snprintf(query, sizeof(query), "%p+1+0x+zz+%zu",
                  reinterpret_cast<void*>(&livetest::Receiver),
                  reinterpret_cast<size_t>(&livetest::Burn));
    const Reply r = Get(s, std::string("/debug/pprof/symbol?") + query);
    char want[256];
    std::snprintf(want, sizeof(want),
                  "num_symbols: 1\n%p livetest::Receiver\n%p livetest::Burn\n",
                  reinterpret_cast<void*>(&livetest::Receiver),
                  reinterpret_cast<void*>(&livetest::Burn));
    EXPECT_EQ(r.body, want);
    EXPECT_EQ(Get(s, "/debug/pprof/symbol").body, "num_symbols: 1\n");
  });
}

TEST_P(ServeHttpTest, DeltaCountsGoroutinesThatCameAndWent) {
  Run([] {
    chan<int> before = make_chan<int>();
    chan<int> after = make_chan<int>();
    for (int i = 0; i < 2; i++) go([before] { livetest::Receiver(before); });
    ASSERT_TRUE(testing::EventuallyParked("chan receive", 2));
    const absl::StatusOr<internal::ProfileDelta> delta =
        internal::ProfileDelta::Begin("goroutine");
    ASSERT_TRUE(delta.ok());
    for (int i = 0; i < 3; i++) go([after] { livetest::Receiver(after); });
    ASSERT_TRUE(testing::EventuallyParked("chan receive", 5));
    testing::Profile p = testing::ReadProfile(delta->End().value());
    EXPECT_EQ(p.error, "");
    EXPECT_GT(p.duration_nanos, 0);
    EXPECT_EQ(p.Sum("livetest::Receiver"), 3);
    before.Close();
    after.Close();
    ASSERT_TRUE(Eventually([] { return runtime::NumGoroutine() == 1; }));
    p = testing::ReadProfile(delta->End().value());
    EXPECT_EQ(p.Sum("livetest::Receiver"), -2);
    EXPECT_TRUE(
        absl::IsNotFound(internal::ProfileDelta::Begin("nothing").status()));
  });
}

TEST_P(ServeHttpTest, DeltaHasGosFields) {
  Run([] {
    const Server s;
    const Reply r = Get(s, "/debug/pprof/goroutine?seconds=1");
    EXPECT_EQ(r.line, "200 OK");
    EXPECT_EQ(r.Field("Content-Type"), kBinary);
    EXPECT_EQ(r.Field("Content-Disposition"),
              "attachment; filename=\"goroutine-delta\"");
    const testing::Profile p = testing::ReadProfile(r.body);
    EXPECT_EQ(p.error, "");
    EXPECT_GE(p.duration_nanos, 1'000'000'000);
  });
}

TEST_P(ServeHttpTest, CpuProfileIsTaken) {
  Run([] {
    const Server s;
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    wg.Go([&] { livetest::Burn(stop); });
    const Reply r = Get(s, "/debug/pprof/profile?seconds=1");
    stop = true;
    wg.Wait();
    EXPECT_EQ(r.line, "200 OK");
    EXPECT_EQ(r.Field("Content-Type"), kBinary);
    EXPECT_EQ(r.Field("Content-Disposition"),
              "attachment; filename=\"profile\"");
    EXPECT_EQ(testing::ReadProfile(r.body).error, "");
  });
}

TEST_P(ServeHttpTest, SecondCpuProfileIsRefused) {
  Run([] {
    const Server s;
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ASSERT_TRUE(pprof::StartCPUProfile(fd).ok());
    IsPprofError(
        Get(s, "/debug/pprof/profile?seconds=1"), "500 Internal Server Error",
        "Could not enable CPU profiling: cpu profiling already in use");
    pprof::StopCPUProfile();
    close(fd);
  });
}

TEST_P(ServeHttpTest, ExecutionTraceIsTaken) {
  Run([] {
    const Server s;
    const Reply r = Get(s, "/debug/pprof/trace?seconds=0.05");
    EXPECT_EQ(r.line, "200 OK");
    EXPECT_EQ(r.Field("Content-Type"), kBinary);
    EXPECT_EQ(r.Field("Content-Disposition"), "attachment; filename=\"trace\"");
    EXPECT_EQ(r.body.substr(0, 5), "go 1.");
    EXPECT_FALSE(trace::IsEnabled());
  });
}

TEST_P(ServeHttpTest, SecondTraceIsRefused) {
  Run([] {
    const Server s;
    ASSERT_TRUE(trace::Start("/dev/null").ok());
    IsPprofError(Get(s, "/debug/pprof/trace"), "500 Internal Server Error",
                 "Could not enable tracing: tracing already enabled");
    trace::Stop();
  });
}

// The client closes its half, as `nc -N` does. Go cancels the request then.
TEST_P(ServeHttpTest, WaitEndsWhenTheClientLeaves) {
  Run([] {
    const Server s;
    Client delta(s);
    delta.Write(Request("GET", "/debug/pprof/block?seconds=100000"));
    ASSERT_TRUE(delta.conn().CloseWrite().ok());
    IsPprofError(delta.Next(), "500 Internal Server Error", "context canceled");
    Client cpu(s);
    cpu.Write(Request("GET", "/debug/pprof/profile?seconds=100000"));
    ASSERT_TRUE(cpu.conn().CloseWrite().ok());
    const Reply r = cpu.Next();
    EXPECT_EQ(r.line, "200 OK");
    EXPECT_EQ(testing::ReadProfile(r.body).error, "");
  });
}

TEST_P(ServeHttpTest, VarsAreJson) {
  Run([] {
    const Server s;
    const Reply r = Get(s, "/debug/vars");
    EXPECT_EQ(r.Field("Content-Type"), "application/json; charset=utf-8");
    std::string error;
    const testing::Json v = testing::ReadJson(r.body, &error);
    EXPECT_EQ(error, "");
    EXPECT_EQ(v.names,
              (std::vector<std::string>{"cmdline", "godebug", "goroutines",
                                        "memstats", "schedstats"}));
    ASSERT_FALSE(v.At("cmdline").items.empty());
    EXPECT_EQ(v.At("cmdline").items[0].text, program_invocation_name);
    EXPECT_NE(v.At("schedstats").At("procs").text, "");
    EXPECT_NE(v.At("memstats").At("NumGC").text, "");
    EXPECT_TRUE(r.body.starts_with("{\n\"cmdline\": ["));
  });
}

TEST_P(ServeHttpTest, MetricsPageIsMetricsPrometheus) {
  Run([] {
    const Server s;
    const Reply r = Get(s, "/metrics");
    EXPECT_EQ(r.Field("Content-Type"),
              "text/plain; version=0.0.4; charset=utf-8");
    EXPECT_NE(r.body.find("\ngo_sched_gomaxprocs_threads "), r.body.npos);
    const std::string direct = metrics::Prometheus();
    EXPECT_EQ(std::count(r.body.begin(), r.body.end(), '\n'),
              std::count(direct.begin(), direct.end(), '\n'));
  });
}

TEST_P(ServeHttpTest, GoroutinesComeAsTextOrJson) {
  Run([] {
    const Server s;
    const Reply text = Get(s, "/debug/goroutines");
    EXPECT_EQ(text.Field("Content-Type"), kPlain);
    EXPECT_TRUE(text.body.starts_with("goroutines: total "));
    const std::string json = "application/json; charset=utf-8";
    EXPECT_EQ(Get(s, "/debug/goroutines?format=json").Field("Content-Type"),
              json);
    const Reply r = Get(s, "/debug/goroutines?state=running",
                        "Accept: application/json\r\n");
    EXPECT_EQ(r.Field("Content-Type"), json);
    std::string error;
    EXPECT_EQ(testing::ReadJson(r.body, &error).items.size(), 1U);
    EXPECT_EQ(error, "");
    EXPECT_EQ(
        Get(s, "/debug/goroutines?format=text", "Accept: application/json\r\n")
            .Field("Content-Type"),
        kPlain);
    const Reply bad = Get(s, "/debug/goroutines?format=xml");
    EXPECT_EQ(bad.line, "400 Bad Request");
    EXPECT_EQ(bad.body,
              "invalid value for \"format\" - must be json or text\n");
  });
}

// ---- Connections

TEST_P(ServeHttpTest, ConnectionStaysForPipelinedRequests) {
  Run([] {
    const Server s;
    Client c(s);
    std::string many;
    for (int i = 0; i < 100; i++) many += Request("GET", "/debug/vars");
    many += Request("GET", "/nothing", "Connection: close\r\n");
    sync::WaitGroup wg;
    wg.Go([&] { c.Write(many); });
    for (int i = 0; i < 100; i++) ASSERT_EQ(c.Next().line, "200 OK") << i;
    const Reply last = c.Next();
    EXPECT_EQ(last.line, "404 Not Found");
    EXPECT_EQ(last.Field("Connection"), "close");
    EXPECT_TRUE(c.IsClosed());
    wg.Wait();
  });
}

TEST_P(ServeHttpTest, OldClientsAreClosedUnlessTheyAskToStay) {
  Run([] {
    const Server s;
    Client once(s);
    once.Write("GET /metrics HTTP/1.0\r\n\r\n");
    EXPECT_EQ(once.Next().Field("Connection"), "close");
    EXPECT_TRUE(once.IsClosed());
    Client stays(s);
    for (int i = 0; i < 2; i++) {
      stays.Write("GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
      EXPECT_EQ(stays.Next().Field("Connection"), "keep-alive");
    }
  });
}

TEST_P(ServeHttpTest, BadRequestsAreAnsweredAndClosed) {
  Run([] {
    const Server s;
    struct Case {
      std::string request;
      std::string line;
      std::string body;
    };
    for (const Case& c : std::vector<Case>{
             {"GET /\r\n\r\n", "400 Bad Request", "400 Bad Request"},
             {"\n\n", "400 Bad Request", "400 Bad Request"},
             {"GET / HTTP/1.1\r\n\r\n", "400 Bad Request",
              "400 Bad Request: missing required Host header"},
             {"GET / HTTP/3.0\r\nHost: x\r\n\r\n",
              "505 HTTP Version Not Supported",
              "505 HTTP Version Not Supported: unsupported protocol version"},
             {"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n",
              "501 Not Implemented",
              "501 Not Implemented: Unsupported transfer encoding"},
             {"GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(20 << 10, 'x') +
                  "\r\n\r\n",
              "431 Request Header Fields Too Large",
              "431 Request Header Fields Too Large"},
             {std::string(17 << 10, 'x'), "431 Request Header Fields Too Large",
              "431 Request Header Fields Too Large"}}) {
      Client client(s);
      client.Write(c.request);
      const Reply r = client.Next();
      EXPECT_EQ(r.line, c.line);
      EXPECT_EQ(r.body, c.body);
      EXPECT_EQ(r.Field("Content-Type"), kPlain);
      EXPECT_EQ(r.Field("Connection"), "close");
      EXPECT_TRUE(client.IsClosed());
    }
  });
}

TEST_P(ServeHttpTest, RequestWithBodyIsTheLast) {
  Run([] {
    const Server s;
    Client c(s);
    c.Write(Request("POST", "/debug/vars", "Content-Length: 5\r\n") + "hello" +
            Request("GET", "/debug/vars"));
    EXPECT_EQ(c.Next().line, "405 Method Not Allowed");
    EXPECT_TRUE(c.IsClosed());
  });
}

TEST_P(ServeHttpTest, RequestMayComeByteByByte) {
  Run([] {
    const Server s;
    Client c(s);
    for (const char byte : Request("GET", "/metrics")) c.Write({&byte, 1});
    EXPECT_EQ(c.Next().line, "200 OK");
  });
}

// The head is not complete within 5 s. Others are served meanwhile.
TEST(ServeHttpTimeTest, SlowRequestIsGivenUp) {
  gump::Run([] {
    const Server s;
    Client slow(s);
    slow.Write("GET /metrics HTTP/1.1\r\nHo");
    EXPECT_EQ(Get(s, "/metrics").line, "200 OK");
    EXPECT_EQ(slow.Next().line, "408 Request Timeout");
    EXPECT_TRUE(slow.IsClosed());
  });
}

// The client asks for more than the kernel's buffers hold, and reads nothing.
TEST_P(ServeHttpTest, DeafClientHoldsUpOnlyItself) {
  Run([] {
    Server s;
    Client deaf(s);
    std::string many;
    for (int i = 0; i < 2000; i++) many += Request("GET", "/metrics");
    sync::WaitGroup wg;
    wg.Go([&] { deaf.Write(many); });
    for (int i = 0; i < 20; i++) EXPECT_EQ(Get(s, "/metrics").line, "200 OK");
    EXPECT_TRUE(s.Close().ok());  // and the deaf one is closed
    (void)deaf.conn().Close();
    wg.Wait();
  });
}

TEST_P(ServeHttpTest, ClientMayLeaveAtAnyTime) {
  Run([] {
    Server s;
    const std::string whole = Request("GET", "/debug/goroutines");
    for (size_t i = 0; i <= whole.size(); i += 3) {
      const Client c(s);
      c.Write(std::string_view(whole).substr(0, i));
      if (i % 2 == 0) (void)c.conn().SetLinger(0);  // a reset
    }
    EXPECT_EQ(Get(s, "/metrics").line, "200 OK");
    EXPECT_TRUE(s.Close().ok());
  });
}

// Each dump shows the goroutines of all clients, so the work grows with the
// square of their number.
TEST_P(ServeHttpTest, ManyClientsAreServedAtATime) {
  constexpr int kClients = rt::kSanitizerBuild ? 20 : 100;
  Run([] {
    const Server s;
    sync::WaitGroup wg;
    std::atomic<int> served = 0;
    for (int i = 0; i < kClients; i++) {
      wg.Go([&s, &served, i] {
        constexpr const char* kPaths[] = {"/metrics",
                                          "/debug/vars",
                                          "/debug/goroutines",
                                          "/debug/goroutines?format=json",
                                          "/debug/pprof/goroutine",
                                          "/debug/pprof/goroutine?debug=2"};
        Client c(s);
        for (int k = 0; k < 3; k++) {
          c.Write(Request("GET", kPaths[(i + k) % 6]));
          served += c.Next().line == "200 OK";
        }
      });
    }
    wg.Wait();
    EXPECT_EQ(served, 3 * kClients);
  });
}

// 300 idle connections take all 256 places. A new one takes the place of that
// which has been idle longest.
TEST_P(ServeHttpTest, IdleConnectionsMakeRoom) {
  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  Run([] {
    const Server s;
    std::vector<net::Conn> idle;
    for (int i = 0; i < 300; i++) idle.push_back(s.Dial());
    EXPECT_EQ(Get(s, "/metrics").line, "200 OK");
    char byte;
    EXPECT_EQ(idle.front().Read(absl::MakeSpan(&byte, 1)).value_or(99), 0U);
    for (const net::Conn& c : idle) (void)c.Close();
  });
}

// Seventeen clients ask. Sixteen get their answers when the server closes.
TEST_P(ServeHttpTest, OnlySixteenProfilesAreTakenAtATime) {
  Run([] {
    Server s;
    const chan<std::string> lines = make_chan<std::string>(17);
    sync::WaitGroup wg;
    for (int i = 0; i < 17; i++) {
      wg.Go([&s, lines] {
        lines.Send(Get(s, "/debug/pprof/block?seconds=9999").line);
      });
    }
    EXPECT_EQ(lines.Recv(), "503 Service Unavailable");
    EXPECT_EQ(Get(s, "/metrics").line, "200 OK");
    EXPECT_EQ(lines.Len(), 0U);
    EXPECT_TRUE(s.Close().ok());
    wg.Wait();
    for (int i = 0; i < 16; i++) {
      EXPECT_EQ(lines.Recv(), "500 Internal Server Error");
    }
  });
}

// ---- The end

// WaitsIn counts the goroutines that read from a connection in a function.
int64_t WaitsIn(std::string_view function) {
  const testing::Profile p =
      testing::ReadProfile(internal::ProfileText("goroutine", 0).value());
  int64_t n = 0;
  for (const testing::Profile::Sample& sample : p.samples) {
    const auto has = [&](std::string_view name) {
      return std::any_of(
          sample.stack.begin(), sample.stack.end(),
          [&](const std::string& f) { return f.find(name) != f.npos; });
    };
    if (has(function) && has("gump::net::Conn::Read")) n += sample.values[0];
  }
  return n;
}

size_t ServingGoroutines() {
  const std::string all = runtime::Stack(true);
  size_t n = 0;
  for (size_t at = 0; (at = all.find("debug::ServeHTTP", at)) != all.npos; at++)
    n++;
  return n;
}

TEST_P(ServeHttpTest, CloseEndsAllThatIsUnderWay) {
  Run([] {
    Server s;
    const Client silent(s);
    const Client half(s);
    half.Write("GET /met");
    Client served(s);
    served.Write(Request("GET", "/metrics"));
    EXPECT_EQ(served.Next().line, "200 OK");
    Client delta(s);
    delta.Write(Request("GET", "/debug/pprof/mutex?seconds=9999"));
    Client cpu(s);
    cpu.Write(Request("GET", "/debug/pprof/profile?seconds=9999"));
    ASSERT_TRUE(Eventually([] { return WaitsIn("CpuProfile") == 1; }));
    EXPECT_TRUE(s.Close().ok());
    EXPECT_EQ(ServingGoroutines(), 0U);
    EXPECT_EQ(cpu.Next().line, "200 OK");
    EXPECT_TRUE(served.IsClosed());
    EXPECT_FALSE(net::Dial("tcp", s.address()).ok());
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ASSERT_TRUE(pprof::StartCPUProfile(fd).ok());
    pprof::StopCPUProfile();
    close(fd);
  });
}

TEST_P(ServeHttpTest, CloseWhileClientsComeLeavesNothing) {
  Run([] {
    for (int round = 0; round < 10; round++) {
      Server s;
      sync::WaitGroup wg;
      for (int i = 0; i < 8; i++) {
        wg.Go([address = s.address()] {
          for (;;) {
            const absl::StatusOr<net::Conn> c = net::Dial("tcp", address);
            if (!c.ok()) return;
            (void)c->Write(Request("GET", "/debug/vars"));
            char buf[4096];
            (void)c->Read(absl::MakeSpan(buf));
            (void)c->Close();
          }
        });
      }
      EXPECT_EQ(Get(s, "/metrics").line, "200 OK");
      EXPECT_TRUE(s.Close().ok());
      wg.Wait();
      EXPECT_EQ(ServingGoroutines(), 0U);
    }
  });
}

TEST_P(ServeHttpTest, ClosedListenerReturnsAtOnce) {
  Run([] {
    absl::StatusOr<net::Listener> l = net::Listen("tcp", "127.0.0.1:0");
    ASSERT_TRUE(l.ok());
    ASSERT_TRUE(l->Close().ok());
    EXPECT_TRUE(debug::ServeHTTP(*l).ok());
    EXPECT_EQ(
        testing::PanicText([] { (void)debug::ServeHTTP(net::Listener()); }),
        "invalid memory address or nil pointer dereference");
  });
}

TEST_P(ServeHttpTest, DeadlineOfTheListenerIsAnError) {
  Run([] {
    absl::StatusOr<net::Listener> l = net::Listen("tcp", "127.0.0.1:0");
    ASSERT_TRUE(l.ok());
    ASSERT_TRUE(l->SetDeadline(absl::Now() - absl::Seconds(1)).ok());
    EXPECT_TRUE(absl::IsDeadlineExceeded(debug::ServeHTTP(*l)));
    (void)l->Close();
  });
}

// ---- Go's own client

TEST_P(ServeHttpTest, GoToolPprofReadsFromTheServer) {
  if (testing::GoTool().empty()) GTEST_SKIP() << "go is not installed";
  Run([] {
    const Server s;
    chan<int> c = make_chan<int>();
    for (int i = 0; i < 5; i++) go([c] { livetest::Receiver(c); });
    ASSERT_TRUE(testing::EventuallyParked("chan receive", 5));
    std::string folder = ::testing::TempDir() + "pprof-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    for (const char* path : {"goroutine", "goroutine?seconds=1",
                             "profile?seconds=1", "block", "threadcreate"}) {
      const std::string command = "PPROF_TMPDIR=" + folder + " " +
                                  testing::GoTool() +
                                  " tool pprof -top 'http://" + s.address() +
                                  "/debug/pprof/" + path + "' 2>&1";
      const absl::StatusOr<std::string> out =
          exec::Cmd("/bin/sh", "-c", command).CombinedOutput();
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_NE(out->find("Showing nodes"), out->npos) << *out;
      if (std::string_view(path) == "goroutine") {
        EXPECT_NE(out->find("livetest::Receiver"), out->npos) << *out;
      }
    }
    EXPECT_TRUE(exec::Cmd("/bin/rm", "-rf", folder).Run().ok());
    c.Close();
  });
}

}  // namespace
}  // namespace gump
