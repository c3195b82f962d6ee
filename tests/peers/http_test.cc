// http_server and clients that no ordinary program would be. They send
// ambiguous requests, are slow, never read, or are connected when the server
// stops.
#include <gump/gump.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/peers/peers.h"
#include "tests/testing/held_port.h"

namespace gump::testing {
namespace {

using HttpTest = Peers;

const std::string kGet = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const std::string kGreeting = "\r\n\r\nHello, gopher!\n";

net::Conn Dial(const Server& server) {
  return Ready(net::Dial("tcp", server.Address()));
}

// ReadUntil reads until what was read ends in `end`, or to the end of the
// stream.
std::string ReadUntil(const net::Conn& conn, std::string_view end) {
  std::string all;
  char buf[4096];
  while (end.empty() || !all.ends_with(end)) {
    const absl::StatusOr<size_t> n = conn.Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0) break;
    all.append(buf, *n);
  }
  return all;
}

// Talk sends text and returns all that comes back until the server closes.
std::string Talk(const Server& server, std::string_view text) {
  const net::Conn conn = Dial(server);
  Ready(conn.Write(text));
  return ReadUntil(conn, "");
}

int Count(std::string_view text, std::string_view what) {
  int n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at++) n++;
  return n;
}

std::string StatusOf(std::string_view answer) {
  return std::string(answer.substr(0, answer.find("\r\n")));
}

// A client that is refused gets an answer, and the connection ends. The bytes
// that follow would be a body in one reading, and a second request in the
// other.
TEST_F(HttpTest, AmbiguousRequestsAreRefused) {
  Run([] {
    Server server("http_server");
    const std::string post = "POST /echo HTTP/1.1\r\nHost: x\r\n";
    const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
    struct Case {
      const char* what;
      std::string request;
      const char* status = "400";
    };
    for (const Case& c : std::vector<Case>{
             {"length and coding", post + "Content-Length: 4\r\n"
                                          "Transfer-Encoding: chunked\r\n\r\n"},
             {"coding and length", post + "Transfer-Encoding: chunked\r\n"
                                          "Content-Length: 4\r\n\r\n"},
             {"two lengths",
              post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"},
             {"the same length twice",
              post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"},
             {"a list of lengths", post + "Content-Length: 1, 1\r\n\r\n"},
             {"a positive length", post + "Content-Length: +1\r\n\r\n"},
             {"a negative length", post + "Content-Length: -1\r\n\r\n"},
             {"a length in hex", post + "Content-Length: 0x1\r\n\r\n"},
             {"no length", post + "Content-Length:\r\n\r\n"},
             {"a length beyond all",
              post + "Content-Length: 99999999999999999999\r\n\r\n"},
             {"two codings", post + "Transfer-Encoding: chunked\r\n"
                                    "Transfer-Encoding: chunked\r\n\r\n"},
             {"chunked is not alone",
              post + "Transfer-Encoding: gzip, chunked\r\n\r\n", "501"},
             {"another coding", post + "Transfer-Encoding: xchunked\r\n\r\n",
              "501"},
             {"a coding in 1.0",
              "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
             {"a line without CR", "GET / HTTP/1.1\nHost: x\n\n"},
             {"a field without CR", "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n"},
             {"CR in a field", "GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n"},
             {"CR CR LF", "GET / HTTP/1.1\r\nHost: x\r\r\n\r\n"},
             {"a continued line", "GET / HTTP/1.1\r\nHost: x\r\n y\r\n\r\n"},
             {"a continued first line", "GET / HTTP/1.1\r\n Host: x\r\n\r\n"},
             {"space before the colon", post + "Content-Length : 1\r\n\r\n"},
             {"no name", "GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n"},
             {"no colon", "GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n"},
             {"NUL in a field",
              "GET / HTTP/1.1\r\nHost: x" + std::string(1, '\0') + "\r\n\r\n"},
             {"no host", "GET / HTTP/1.1\r\n\r\n"},
             {"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"},
             {"two spaces", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n"},
             {"a tab", "GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n"},
             {"four words", "GET / / HTTP/1.1\r\nHost: x\r\n\r\n"},
             {"a target without a slash", "GET x HTTP/1.1\r\nHost: x\r\n\r\n"},
             {"no version", "GET /\r\n\r\n"},
             {"small letters", "GET / http/1.1\r\nHost: x\r\n\r\n"},
             {"another version", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", "505"},
             {"a method of none", " / HTTP/1.1\r\nHost: x\r\n\r\n"},
             {"binary", "\x16\x03\x01\x02\r\n\r\n"},
             {"empty lines", "\r\n\r\n\r\n\r\n"},
             {"a chunk of no size", chunked + "\r\n\r\n"},
             {"a chunk of size 0x1", chunked + "0x1\r\na\r\n0\r\n\r\n"},
             {"a chunk of size -1", chunked + "-1\r\na\r\n0\r\n\r\n"},
             {"a chunk without CR", chunked + "1\na\r\n0\r\n\r\n"},
             {"a longer chunk", chunked + "1\r\nab\r\n0\r\n\r\n"},
             {"a chunk of 2^64", chunked + "10000000000000000\r\na\r\n"},
             {"a chunk of 2^64-1", chunked + "ffffffffffffffff\r\na", "413"},
             {"CR in an extension", chunked + "1;a\rb\r\na\r\n0\r\n\r\n"},
             {"a size line without end", chunked + std::string(10'000, '0')},
             {"a trailer without end",
              chunked + "0\r\n" + std::string(10'000, 'x')},
             {"unknown expectations", post + "Expect: miracles\r\n\r\n", "417"},
             {"a body too large", post + "Content-Length: 99999999\r\n\r\n",
              "413"},
             {"a head too large",
              "GET / HTTP/1.1\r\nHost: " + std::string(17'000, 'x'), "431"},
             {"a head too large by far",
              "GET / HTTP/1.1\r\nHost: " + std::string(1'000'000, 'x'), "431"},
         }) {
      const std::string answer = Talk(server, c.request + kGet);
      const std::string status = "HTTP/1.1 " + std::string(c.status) + " ";
      EXPECT_TRUE(answer.starts_with(status)) << c.what << ": " << answer;
      EXPECT_EQ(Count(answer, "HTTP/1.1 "), 1) << c.what << ": " << answer;
      EXPECT_NE(answer.find("\r\nConnection: close\r\n"), answer.npos)
          << c.what;
    }
    EXPECT_EQ(server.Stop(), absl::OkStatus());
  });
}

TEST_F(HttpTest, RareButValidRequestsAreServed) {
  Run([] {
    Server server("http_server");
    const std::string post = "POST /echo HTTP/1.1\r\nHost: x\r\n";
    struct Case {
      const char* what;
      std::string request;
      std::string body;
    };
    for (const Case& c : std::vector<Case>{
             {"as a proxy is asked",
              "GET http://y/bytes/3?a=b HTTP/1.1\r\nHost: y\r\n",
              "3\r\nxxx\r\n0\r\n\r\n"},
             {"a proxy is asked for its root",
              "GET http://y HTTP/1.1\r\nHost: y\r\n", "Hello, gopher!\n"},
             {"an empty line before", "\r\nGET / HTTP/1.1\r\nHost: x\r\n",
              "Hello, gopher!\n"},
             {"an empty host", "GET / HTTP/1.1\r\nHost:\r\n",
              "Hello, gopher!\n"},
             {"bytes beyond ASCII", "GET / HTTP/1.1\r\nhOsT:\t\xc3\xa4 \r\n",
              "Hello, gopher!\n"},
             {"version 1.0", "GET / HTTP/1.0\r\n", "Hello, gopher!\n"},
             {"no chunks in 1.0", "GET /bytes/5 HTTP/1.0\r\n", "xxxxx"},
             {"leading zeros", post + "Content-Length: 003\r\n\r\nabc", "abc"},
             {"extensions and trailers",
              post + "Transfer-Encoding: ChunKed\r\n\r\n"
                     "0002 ;a=\"b\"\r\nab\r\n1\r\nc\r\n000;x\r\nT: 1\r\n",
              "abc"},
         }) {
      for (const size_t piece : {size_t{1}, c.request.size()}) {
        const net::Conn conn = Dial(server);
        std::string request = c.request;
        if (!request.ends_with("abc")) request += "\r\n";
        for (size_t at = 0; at < request.size(); at += piece) {
          Ready(conn.Write(std::string_view(request).substr(at, piece)));
        }
        ASSERT_TRUE(conn.CloseWrite().ok());
        const std::string answer = ReadUntil(conn, "");
        EXPECT_EQ(StatusOf(answer), "HTTP/1.1 200 OK") << c.what;
        EXPECT_TRUE(answer.ends_with("\r\n\r\n" + c.body))
            << c.what << ": " << answer;
        EXPECT_EQ(Count(answer, "HTTP/1.1 "), 1) << c.what << ": " << answer;
      }
    }
  });
}

TEST_F(HttpTest, PipelinedRequestsAreAnsweredInOrder) {
  Run([] {
    Server server("http_server");
    std::string requests, bodies;
    for (int i = 0; i < 500; i++) {
      const std::string body = "request " + std::to_string(i) + "\n";
      requests += "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + body;
      bodies += body;
    }
    const net::Conn conn = Dial(server);
    sync::WaitGroup writer;
    writer.Go([&] {
      Ready(conn.Write(requests));
      EXPECT_TRUE(conn.CloseWrite().ok());
    });
    const std::string answers = ReadUntil(conn, "");
    writer.Wait();
    std::string got;
    for (size_t at = 0; (at = answers.find("\r\n\r\n", at)) != answers.npos;) {
      at += 4;
      got += answers.substr(at, answers.find("HTTP/1.1", at) - at);
    }
    EXPECT_EQ(got, bodies);
  });
}

TEST_F(HttpTest, SlowAndDeafClientsHoldUpNoOtherClient) {
  Run([] {
    Server server("http_server");
    // A thousand healthy clients at a time.
    constexpr int kHealthy = 1000;
    constexpr int kRequests = 4;
    // The time in which 99 % of their requests are answered.
    const auto serve = [&] {
      sync::Mutex mu;
      std::vector<absl::Duration> took;
      sync::WaitGroup healthy;
      for (int i = 0; i < kHealthy; i++) {
        healthy.Go([&] {
          const net::Conn conn = Dial(server);
          for (int r = 0; r < kRequests; r++) {
            const absl::Time start = absl::Now();
            Ready(conn.Write(kGet));
            if (!ReadUntil(conn, kGreeting).ends_with(kGreeting)) continue;
            const std::lock_guard lock(mu);
            took.push_back(absl::Now() - start);
          }
        });
      }
      healthy.Wait();
      EXPECT_EQ(took.size(), size_t{kHealthy * kRequests});
      std::sort(took.begin(), took.end());
      return took[took.size() * 99 / 100];
    };
    const absl::Duration alone = serve();
    // The deaf client asks for more than all buffers hold, and reads nothing.
    const net::Conn deaf = Dial(server);
    Ready(deaf.Write("GET /bytes/1000000000 HTTP/1.1\r\nHost: x\r\n\r\n"));
    // A slow client sends a byte now and then, of a head that never ends, again
    // and again.
    constexpr int kSlow = 20;
    std::atomic<bool> over = false;
    std::atomic<int> told = 0;
    sync::WaitGroup slow;
    for (int i = 0; i < kSlow; i++) {
      slow.Go([&] {
        do {
          const net::Conn conn = Dial(server);
          std::string answer;
          sync::WaitGroup reader;
          reader.Go([&] { answer = ReadUntil(conn, ""); });
          Ready(conn.Write("GET / HTTP/1.1\r\nX: "));
          while (conn.Write("x").ok()) time::Sleep(absl::Milliseconds(50));
          reader.Wait();
          EXPECT_TRUE(answer.starts_with("HTTP/1.1 408 ")) << answer;
          told++;
        } while (!over);
      });
    }
    // Beside these clients it takes hardly longer. The machine may be busy, but
    // no client waits until the server gives up on the slow ones.
    EXPECT_LT(serve(), 10 * alone + absl::Milliseconds(500));
    over = true;
    slow.Wait();
    EXPECT_GE(told, kSlow);
    EXPECT_TRUE(deaf.Close().ok());
    EXPECT_EQ(server.Stop(), absl::OkStatus());
  });
}

TEST_F(HttpTest, RequestsUnderWayAtTheEndAreAnswered) {
  Run([] {
    const HeldPort port;
    Server server("http_server", {port.Address()});
    const net::Conn idle = Dial(server);
    Ready(idle.Write(kGet));
    ReadUntil(idle, kGreeting);
    const net::Conn fresh = Dial(server);
    // The server has read the head once it asks for the body.
    const net::Conn busy = Dial(server);
    Ready(
        busy.Write("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
                   "Expect: 100-continue\r\n\r\n"));
    const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    EXPECT_EQ(ReadUntil(busy, go_on), go_on);

    ASSERT_EQ(kill(server.Pid(), SIGTERM), 0);
    EXPECT_EQ(ReadUntil(idle, ""), "");
    EXPECT_EQ(ReadUntil(fresh, ""), "");
    EXPECT_EQ(Errno(net::Dial("tcp", server.Address()).status()), ECONNREFUSED);
    Ready(busy.Write("hello"));
    const std::string answer = ReadUntil(busy, "");
    EXPECT_EQ(StatusOf(answer), "HTTP/1.1 200 OK");
    EXPECT_NE(answer.find("\r\nConnection: close\r\n"), answer.npos) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\nhello")) << answer;
    EXPECT_TRUE(busy.Close().ok());
    EXPECT_EQ(server.Wait(), absl::OkStatus());
  });
}

// More clients than the server has descriptors: it says so, pauses, and goes on
// when some have left. All are served in the end.
TEST_F(HttpTest, ClientsBeyondTheLimitWaitForTheirTurn) {
  Run([] {
    Server server("http_server", {"127.0.0.1:0"}, "ulimit -n 40");
    constexpr int kClients = 200;
    std::atomic<int> served = 0;
    sync::WaitGroup all;
    const chan<void> full = make_chan<void>();
    for (int i = 0; i < kClients; i++) {
      all.Go([&] {
        const net::Conn conn = Dial(server);
        Ready(conn.Write(kGet));
        if (ReadUntil(conn, kGreeting).ends_with(kGreeting)) served++;
        (void)full.Recv();
      });
    }
    server.Says("accept4: too many open files");
    full.Close();
    all.Wait();
    EXPECT_EQ(served, kClients);
    EXPECT_EQ(server.Stop(), absl::OkStatus());
  });
}

}  // namespace
}  // namespace gump::testing
