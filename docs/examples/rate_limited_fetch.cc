// Fetches pages with a few workers, no faster than the owner of the pages
// allows. The workers share one rate::Limiter. At the end the program checks
// the times: after the first burst, the n-th page must not come before the n-th
// token.
//
//   rate_limited_fetch [PAGES [PER_SECOND]]
//
// The default is 60 pages, at 100 a second.
#include <gump/gump.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

using namespace gump;

namespace {

constexpr int kWorkers = 4;
constexpr int kBurst = 5;
using Clock = std::chrono::steady_clock;

// Fetch stands for an operation that would take a while on a network.
void Fetch(int page) { time::Sleep(absl::Microseconds(500 + page % 7 * 100)); }

}  // namespace

int main(int argc, char** argv) {
  const int pages = argc > 1 ? std::atoi(argv[1]) : 60;
  const double per_second = argc > 2 ? std::atof(argv[2]) : 100;
  if (pages < 1 || per_second <= 0) {
    std::fprintf(stderr, "usage: rate_limited_fetch [PAGES [PER_SECOND]]\n");
    return 2;
  }
  return Run([=] {
    sync::Queue<int> todo;
    for (int page = 0; page < pages; page++) todo.Push(page);

    auto [ctx, cancel] =
        context::WithTimeout(context::Background(), absl::Minutes(5));
    defer _{[c = cancel] { c(); }};
    rate::Limiter limiter(per_second, kBurst);
    sync::Stack<Clock::time_point> times;
    const Clock::time_point start = Clock::now();
    sync::ErrGroup workers;
    for (int w = 0; w < kWorkers; w++) {
      workers.Go([&, &ctx = ctx] {
        while (std::optional<int> page = todo.Pop()) {
          if (absl::Status s = limiter.Wait(ctx); !s.ok()) return s;
          times.Push(Clock::now());
          Fetch(*page);
        }
        return absl::OkStatus();
      });
    }
    if (absl::Status s = workers.Wait(); !s.ok()) {
      std::fprintf(stderr, "rate_limited_fetch: %s\n", s.ToString().c_str());
      return 1;
    }

    std::vector<double> seconds;
    while (std::optional<Clock::time_point> t = times.Pop()) {
      seconds.push_back(std::chrono::duration<double>(*t - start).count());
    }
    std::sort(seconds.begin(), seconds.end());
    int early = 0;
    for (int n = 0; n < static_cast<int>(seconds.size()); n++) {
      const double token = (n + 1 - kBurst) / per_second - 1e-6;  // rounding
      if (seconds[static_cast<size_t>(n)] < token) early++;
    }
    std::fprintf(stderr, "%.1f a second\n", pages / seconds.back());
    std::printf("%zu pages fetched, %d too early\n", seconds.size(), early);
    return early == 0 ? 0 : 1;
  });
}
