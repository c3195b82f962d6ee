// A program that shows its goroutines and profiles while it runs. It serves the
// pages of debug::ServeHTTP, and does some work that shows there.
//
//   debug_server ADDRESS    such as 127.0.0.1:6060; until SIGINT or SIGTERM
//
//   go tool pprof -top http://127.0.0.1:6060/debug/pprof/goroutine
//   go tool pprof -top http://127.0.0.1:6060/debug/pprof/profile?seconds=5
//   curl http://127.0.0.1:6060/debug/goroutines?group=where
//   curl http://127.0.0.1:6060/metrics
//
// Without an argument the program asks itself for some pages, and prints the
// status and the type of each answer.
#include <gump/gump.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

using namespace gump;

namespace {

// Work keeps some workers busy until ctx is done. Each job has a label, by
// which profiles tell the customers apart.
void Work(const context::Context& ctx) {
  const chan<int> jobs = make_chan<int>();
  sync::WaitGroup workers;
  for (int i = 0; i < 4; i++) {
    workers.Go([jobs, ctx] {
      for (const int job : jobs) {
        const char* customer = job % 2 == 0 ? "acme" : "initech";
        pprof::Do(ctx, {{"customer", customer}}, [](const context::Context& c) {
          select(Recv(time::After(absl::Milliseconds(2))), Recv(c.Done()));
        });
      }
    });
  }
  for (int job = 0; ctx.Err().ok(); job++) {
    select(Send(jobs, job), Recv(ctx.Done()));
  }
  jobs.Close();
  workers.Wait();
}

// Get returns the first line and the type of the answer for a path.
std::string Get(const std::string& address, const std::string& path) {
  const absl::StatusOr<net::Conn> conn = net::Dial("tcp", address);
  if (!conn.ok()) return std::string(conn.status().message());
  (void)conn->Write("GET " + path + " HTTP/1.0\r\n\r\n");
  std::string answer;
  char buf[4096];
  for (;;) {
    const absl::StatusOr<size_t> n = conn->Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0) break;
    answer.append(buf, *n);
  }
  (void)conn->Close();
  const std::string_view key = "Content-Type: ";
  const size_t type = answer.find(key);
  if (type == answer.npos) return "no answer";
  return answer.substr(0, answer.find('\r')) + ", " +
         answer.substr(type + key.size(),
                       answer.find('\r', type) - type - key.size());
}

void ShowPages(const std::string& address) {
  for (const char* path :
       {"/debug/pprof/", "/debug/pprof/goroutine", "/debug/vars", "/metrics",
        "/debug/goroutines", "/debug/goroutines?format=json"}) {
    std::printf("%-30s %s\n", path, Get(address, path).c_str());
  }
}

int Serve(const char* address) {
  const auto [ctx, stop] =
      signal::NotifyContext(context::Background(), {SIGINT, SIGTERM});
  const absl::StatusOr<net::Listener> listener =
      net::Listen("tcp", address != nullptr ? address : "127.0.0.1:0");
  if (!listener.ok()) {
    std::fprintf(stderr, "debug_server: %s\n",
                 listener.status().ToString().c_str());
    return 1;
  }
  sync::WaitGroup running;
  running.Go([l = *listener] { (void)debug::ServeHTTP(l); });
  running.Go([c = ctx] { Work(c); });
  const std::string at = listener->LocalAddr().String();
  if (address != nullptr) {
    std::printf("http://%s/debug/pprof/\n", at.c_str());
    std::fflush(stdout);
    (void)ctx.Done().Recv();
  } else {
    ShowPages(at);
  }
  stop();
  (void)listener->Close();
  running.Wait();
  std::printf("all home\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return Run(
      [address = argc > 1 ? argv[1] : nullptr] { return Serve(address); });
}
