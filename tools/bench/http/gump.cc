// W13 over HTTP: a server on one core, wrk on the other. "http" is the server
// of docs/examples. "rawhttp" only looks for the end of a request and then
// sends an answer that it has ready.
#include <gump/gump.h>

#include <thread>

#include "docs/examples/http_server.h"
#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr const char* kBody = "Hello, World!";

// Micros reads a time as wrk prints it, 812.00us, 1.20ms or 1.05s, and returns
// microseconds.
double Micros(double value, const std::string& unit) {
  if (unit == "us") return value;
  return unit == "ms" ? value * 1e3 : value * 1e6;
}

// Wrk runs wrk once and returns all that it prints.
std::string Wrk(int port, int connections, int64_t seconds) {
  const std::string command =
      "exec taskset -c 1 wrk --latency -t1 -c" + std::to_string(connections) +
      " -d" + std::to_string(seconds) +
      "s http://127.0.0.1:" + std::to_string(port) + "/ 2>&1";
  std::string all;
  FILE* out = popen(command.c_str(), "r");
  char line[200];
  while (out != nullptr && std::fgets(line, sizeof(line), out) != nullptr) {
    all += line;
  }
  if (out != nullptr) pclose(out);
  return all;
}

void Report(const std::string& workload, const std::string& said, double cpu) {
  double requests = 0;
  double per_second = 0;
  double p50 = 0;
  double p99 = 0;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    double value;
    char word[20];
    if (std::sscanf(line.c_str(), " 50%% %lf%19s", &value, word) == 2) {
      p50 = Micros(value, word);
    } else if (std::sscanf(line.c_str(), " 99%% %lf%19s", &value, word) == 2) {
      p99 = Micros(value, word);
    }
    (void)std::sscanf(line.c_str(), " %lf requests in", &requests);
    (void)std::sscanf(line.c_str(), "Requests/sec: %lf", &per_second);
  }
  if (per_second == 0 || said.find("Non-2xx") != said.npos ||
      said.find("Socket errors") != said.npos) {
    std::fprintf(stderr, "%s: wrk failed:\n%s", workload.c_str(), said.c_str());
    std::exit(1);
  }
  Print(workload.c_str(), "cpu-us", cpu / 1e3 / requests);
  Print(workload.c_str(), "req/s", per_second);
  Print(workload.c_str(), "p50-us", p50);
  Print(workload.c_str(), "p99-us", p99);
}

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
