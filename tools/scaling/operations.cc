// The operations whose shared cache lines are counted (lines.h).
//
//   gump_scaling PROCS [operation...]
//
// Prints tab-separated lines, which report.py reads:
//   operation <name> <procs> <operations counted> <accesses missed>
//   range <start> <end> <name>              of an object of the runtime
//   line <address> <writes> <moves> <caches>
//   site <pc> <writes> <moves>              (of the line above)
//
// Each P gets a goroutine, or a pair of goroutines, that shares nothing with
// the others. So what is counted is what the runtime shares. In the operations
// named "one ..." the goroutines share the object itself.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gump/gump.h"
#include "tools/scaling/lines.h"

namespace gump::scaling {
namespace {

// Workers runs f(i) in n goroutines, and waits for them.
void Workers(int n, const std::function<void(int)>& f) {
  sync::WaitGroup wg;
  for (int i = 0; i < n; i++) wg.Go([&f, i] { f(i); });
  wg.Wait();
}

// Each operation does `each` of itself per P.
using Operation = void (*)(int procs, int each);

void Spawn(int procs, int each) {
  Workers(procs, [&](int) {
    for (int i = 0; i < each; i += 50) {
      sync::WaitGroup wg;
      for (int k = 0; k < 50; k++) wg.Go([] {});
      wg.Wait();
    }
  });
}

void Yield(int procs, int each) {
  Workers(2 * procs, [&](int) {
    for (int i = 0; i < each / 2; i++) runtime::Gosched();
  });
}

// An operation is half a round trip: one goroutine parks, the other is woken.
void PassOn(const chan<int>& in, const chan<int>& out, int n, bool first) {
  for (int i = 0; i < n; i++) {
    if (first) out.Send(i);
    (void)in.Recv();
    if (!first) out.Send(i);
  }
}

void ParkAndWake(int procs, int each) {
  std::vector<std::pair<chan<int>, chan<int>>> pairs;
  for (int i = 0; i < procs; i++) {
    pairs.emplace_back(make_chan<int>(), make_chan<int>());
  }
  Workers(2 * procs, [&](int i) {
    const auto& [a, b] = pairs[static_cast<size_t>(i / 2)];
    if (i % 2 == 0) {
      PassOn(a, b, each / 2, /*first=*/true);
    } else {
      PassOn(b, a, each / 2, /*first=*/false);
    }
  });
}

void SendAndRecv(const chan<int>& c, int i, int n) {
  if (i % 2 == 0) {
    for (int k = 0; k < n; k++) c.Send(k);
  } else {
    for (int k = 0; k < n; k++) (void)c.Recv();
  }
}

void Channel(int procs, int each) {
  std::vector<chan<int>> channels;
  for (int i = 0; i < procs; i++) channels.push_back(make_chan<int>(128));
  Workers(2 * procs, [&](int i) {
    SendAndRecv(channels[static_cast<size_t>(i / 2)], i, each);
  });
}

void OneChannel(int procs, int each) {
  const auto c = make_chan<int>(128);
  Workers(2 * procs, [&](int i) { SendAndRecv(c, i, each); });
}

void OneMutex(int procs, int each) {
  sync::Mutex mu;
  int shared = 0;
  Workers(procs, [&](int) {
    for (int k = 0; k < each; k++) {
      mu.Lock();
      shared++;
      mu.Unlock();
    }
  });
}

void Timer(int procs, int each) {
  Workers(procs, [&](int) {
    for (int k = 0; k < each; k++) time::Sleep(absl::Microseconds(20));
  });
}

void Echo(int procs, int each) {
  auto l = net::Listen("tcp", "127.0.0.1:0");
  if (!l.ok()) std::abort();
  const std::string address = l->LocalAddr().String();
  std::vector<std::pair<net::Conn, net::Conn>> pairs;
  for (int i = 0; i < procs; i++) {
    auto client = net::Dial("tcp", address);
    auto server = l->Accept();
    if (!client.ok() || !server.ok()) std::abort();
    pairs.emplace_back(*std::move(client), *std::move(server));
  }
  Workers(2 * procs, [&](int i) {
    auto& [client, server] = pairs[static_cast<size_t>(i / 2)];
    net::Conn& conn = i % 2 == 0 ? client : server;
    char message[64] = {};
    for (int k = 0; k < each; k++) {
      if (i % 2 == 0) (void)conn.Write(std::string_view(message, 64));
      (void)conn.Read(absl::Span<char>(message, 64));
      if (i % 2 != 0) (void)conn.Write(std::string_view(message, 64));
    }
  });
}

struct Row {
  const char* name;
  Operation run;
  int divisor;  // of how often it is done; greater for slow ones
};

constexpr Row kRows[] = {
    {"spawn", Spawn, 1},
    {"yield", Yield, 1},
    {"park and wake", ParkAndWake, 1},
    {"channel", Channel, 1},
    {"one channel", OneChannel, 1},
    {"one mutex", OneMutex, 1},
    {"timer", Timer, 20},
    {"echo", Echo, 10},
};

void Print(const Row& row, int procs, int each) {
  each /= row.divisor;
  row.run(procs, each);  // what is made on first use exists now
  StartCounting();
  row.run(procs, each);
  const std::vector<Line> lines = StopCounting();
  std::printf("operation\t%s\t%d\t%lld\t%lld\n", row.name, procs,
              static_cast<long long>(procs) * each,
              static_cast<long long>(Missed()));
  for (const Range& r : RuntimeObjects()) {
    std::printf("range\t%#lx\t%#lx\t%s\n", r.start, r.end, r.name);
  }
  for (const Line& line : lines) {
    std::printf("line\t%#lx\t%lld\t%lld\t%d\n", line.address,
                static_cast<long long>(line.writes),
                static_cast<long long>(line.moves), line.caches);
    for (const Site& site : line.sites) {
      if (site.pc == 0) break;
      std::printf("site\t%#lx\t%lld\t%lld\n", site.pc,
                  static_cast<long long>(site.writes),
                  static_cast<long long>(site.moves));
    }
  }
}

}  // namespace
}  // namespace gump::scaling

int main(int argc, char** argv) {
  using namespace gump::scaling;
  if (argc < 2) {
    std::fprintf(stderr, "usage: gump_scaling PROCS [operation...]\n");
    return 2;
  }
  const int procs = std::atoi(argv[1]);
  return gump::Run([&] {
    gump::runtime::GOMAXPROCS(procs);
    for (const Row& row : kRows) {
      bool wanted = argc == 2;
      for (int i = 2; i < argc; i++)
        wanted |= argv[i] == std::string_view(row.name);
      if (wanted) Print(row, procs, 32'000 / procs / 100 * 100);
    }
  });
}
