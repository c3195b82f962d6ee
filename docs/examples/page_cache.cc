// A cache in front of something slow.
//
// * When several goroutines want the same page at the same time, one of them
//   fetches it for all (SingleFlight).
// * At most three pages are fetched at once (Semaphore).
// * A caller whose context is done does not start a fetch (Context).
// * Any goroutine may walk through the list of the fetched pages (List).
//
//   page_cache [READERS [PAGES]]        default 200 readers, 20 pages
#include <gump/gump.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace gump;

namespace {

class Cache {
 public:
  absl::StatusOr<std::string> Get(const context::Context& ctx, int page) {
    if (auto text = pages_.Load(page)) return *text;
    // The page may have been fetched between this look and our flight. So the
    // flight looks again.
    return flight_
        .Do(page,
            [&]() -> absl::StatusOr<std::string> {
              if (auto text = pages_.Load(page)) return *text;
              if (absl::Status s = slots_.Acquire(ctx); !s.ok()) return s;
              defer _{[&] { slots_.Release(); }};
              return Fetch(page);
            })
        .value;
  }

  // Fetched returns the length of the list. AtOnce is the largest number of
  // fetches that ran at the same time.
  int Fetched() {
    int n = 0;
    fetched_.Range([&](int) { n++; });
    return n;
  }
  int AtOnce() const { return most_; }

 private:
  std::string Fetch(int page) {
    const int now = ++fetching_;
    for (int most = most_;
         most < now && !most_.compare_exchange_weak(most, now);) {
    }
    time::Sleep(absl::Milliseconds(2));
    fetched_.PushBack(page);
    std::string text = "page " + std::to_string(page);
    pages_.Store(page, text);
    fetching_--;
    return text;
  }

  sync::Map<int, std::string> pages_;
  sync::SingleFlight<int, absl::StatusOr<std::string>> flight_;
  sync::Semaphore slots_{3};
  sync::List<int> fetched_;
  std::atomic<int> fetching_ = 0;
  std::atomic<int> most_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int readers = argc > 1 ? std::atoi(argv[1]) : 200;
  const int pages = argc > 2 ? std::max(1, std::atoi(argv[2])) : 20;
  return Run([=] {
    Cache cache;
    // A caller that has given up before it begins gets no page and disturbs no
    // other caller.
    const auto [late, cancel] = context::WithCancel(context::Background());
    cancel();
    std::printf("late: %s\n",
                std::string(cache.Get(late, 0).status().message()).c_str());

    std::atomic<int> right = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < readers; i++) {
      wg.Go([&, page = i % pages] {
        const auto text = cache.Get(context::Background(), page);
        if (text.ok() && *text == "page " + std::to_string(page)) right++;
      });
    }
    wg.Wait();
    std::printf("%d answers, %d pages fetched, %s\n", right.load(),
                cache.Fetched(),
                cache.AtOnce() <= 3 ? "never more than three at once"
                                    : "too many at once");
  });
}
