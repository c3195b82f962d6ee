// W13 over HTTP: a server on one core, wrk on the other. "http" is the server
// of docs/examples. "rawhttp" only looks for the end of a request and then
// sends an answer that it has ready.
#include <gump/gump.h>

#include <thread>

#include "docs/examples/http_server.h"
#include "tools/bench/harness.h"
#include "tools/bench/wrk.h"

namespace gump::bench {
namespace {

constexpr const char* kBody = "Hello, World!";

// Drive runs wrk against a listener on a thread of its own: once to warm up,
// and once for the figures. Then it closes the listener.
std::thread Drive(const Options& o, const std::string& workload,
                  const net::Listener& l, int connections) {
  return std::thread([=, &o] {
    const int port = l.LocalAddr().Port();
    (void)Wrk(port, connections, 1);
    const int64_t cpu = CpuNanos();
    const std::string said = Wrk(port, connections, o.Scaled(3));
    Report(workload, said, static_cast<double>(CpuNanos() - cpu));
    (void)l.Close();
  });
}

void Http(const Options& o, const std::string& workload, int connections) {
  const net::Listener l = *net::Listen("tcp", "127.0.0.1:0");
  std::thread client = Drive(o, workload, l, connections);
  http::Server server([](const http::Request&) {
    return http::Response{200, kBody};
  });
  (void)server.Serve(context::Background(), l);
  client.join();
}

void ServeRaw(const net::Conn& conn) {
  const std::string answer =
      std::string("HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n") + kBody;
  char buf[4096];
  size_t have = 0;
  for (;;) {
    const auto n = conn.Read(absl::MakeSpan(buf).subspan(have));
    if (!n.ok() || *n == 0) return;
    have += *n;
    if (!std::string_view(buf, have).ends_with("\r\n\r\n")) continue;
    have = 0;
    if (!conn.Write(answer).ok()) return;
  }
}

void RawHttp(const Options& o, const std::string& workload, int connections) {
  const net::Listener l = *net::Listen("tcp", "127.0.0.1:0");
  std::thread client = Drive(o, workload, l, connections);
  for (;;) {
    const absl::StatusOr<net::Conn> conn = l.Accept();
    if (!conn.ok()) break;
    go([conn = *conn] { ServeRaw(conn); });
  }
  client.join();
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  PinTo(0);
  gump::Run([&] {
    for (const int connections : {100, 1000}) {
      const std::string n = std::to_string(connections);
      for (int r = 0; r < o.reps; r++) {
        if (o.Selected("W13http/" + n)) Http(o, "W13http/" + n, connections);
        if (o.Selected("W13rawhttp/" + n)) {
          RawHttp(o, "W13rawhttp/" + n, connections);
        }
      }
    }
  });
}
