// CONNS: many connections to an echo server. The server runs on one core, its
// client (dialer.cc) on the other.
//
// idle: 10,000 connections have been used once and now wait. We measure what
// each costs, in memory of this process and in CPU time.
//
// accept: clients connect, send a byte, receive it back and go. We measure the
// time for a connection, and the server's CPU time for it.
#include <gump/net.h>

#include <functional>
#include <thread>

#include "tools/bench/file_limit.h"
#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

// DialerPath is BENCH_DIALER, or else the client beside this program.
std::string DialerPath() {
  if (const char* path = std::getenv("BENCH_DIALER")) return path;
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof(self));
  const std::string path(self, n < 0 ? 0 : static_cast<size_t>(n));
  return path.substr(0, path.rfind('/') + 1) + "bench_dialer";
}

// The buffer is smaller than a page. With a buffer of a page, a goroutine that
// waits would hold a second page of stack.
void Serve(const net::Conn& conn) {
  char buf[1024];
  for (;;) {
    const absl::StatusOr<size_t> n = conn.Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0) return;
    if (!conn.Write({buf, *n}).ok()) return;
  }
}

// Drive serves every connection while the dialer runs. It calls `told`, on a
// thread of its own, with the line that the dialer prints. When `told` returns,
// the serving ends.
void Drive(int64_t count, int at_once,
           const std::function<void(const char* line)>& told) {
  const net::Listener l = *net::Listen("tcp", "127.0.0.1:0");
  std::thread client([&] {
    const std::string command = "exec taskset -c 1 " + DialerPath() + " " +
                                std::to_string(l.LocalAddr().Port()) + " " +
                                std::to_string(count) + " " +
                                std::to_string(at_once);
    FILE* out = popen(command.c_str(), "r");
    char line[200];
    if (out != nullptr && std::fgets(line, sizeof(line), out) != nullptr) {
      told(line);
    }
    (void)l.Close();
    if (out != nullptr) pclose(out);
  });
  std::vector<net::Conn> open;
  for (;;) {
    absl::StatusOr<net::Conn> conn = l.Accept();
    if (!conn.ok()) break;
    if (at_once == 0) open.push_back(*conn);
    go([conn = *std::move(conn)] { Serve(conn); });
  }
  for (const net::Conn& conn : open) (void)conn.Close();
  client.join();
}

void Idle(const Options& o) {
  const int64_t count = o.Scaled(10'000);
  Drive(1, 0, [](const char*) {});  // the runtime allocates what it needs
  const int64_t before = RssBytes();
  Drive(count, 0, [&](const char*) {
    SleepNanos(100'000'000);  // until threads that look for work are asleep
    Print(
        "CONNS/idle", "B/conn",
        static_cast<double>(RssBytes() - before) / static_cast<double>(count));
    const int64_t cpu = CpuNanos();
    const int64_t wall = NowNanos();
    SleepNanos(o.Scaled(5000) * 1'000'000);
    Print("CONNS/idle", "cpu-%",
          100.0 * static_cast<double>(CpuNanos() - cpu) /
              static_cast<double>(NowNanos() - wall));
  });
}

void Accept(const Options& o) {
  const int64_t count = o.Scaled(50'000);
  const int64_t cpu = CpuNanos();
  Drive(count, 100, [&](const char* line) {
    double done;
    double nanos;
    if (std::sscanf(line, "end %lf %lf", &done, &nanos) != 2) return;
    Print("CONNS/accept", "us/conn", nanos / 1e3 / done);
    Print("CONNS/accept", "cpu-us",
          static_cast<double>(CpuNanos() - cpu) / 1e3 / done);
  });
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  PinTo(0);
  RaiseFileLimit();
  gump::Run([&] {
    // Idle runs once, because a second time its pages would be warm.
    if (o.Selected("CONNS/idle")) Idle(o);
    if (!o.Selected("CONNS/accept")) return;
    for (int r = 0; r <= o.reps; r++) Accept(o);
  });
}
