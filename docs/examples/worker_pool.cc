// A fixed number of workers take jobs from one channel and send results to
// another. Closing the first channel tells the workers that there are no more
// jobs. Closing the second tells main that all workers have ended.
//
//   worker_pool [JOBS [WORKERS]]        default 1000 jobs, 4 workers
#include <gump/gump.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace gump;

namespace {

struct Result {
  int worker;
  uint64_t start;
  int steps;
};

// Steps returns how many steps the Collatz sequence takes from n to 1.
int Steps(uint64_t n) {
  int steps = 0;
  for (; n != 1; steps++) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
  return steps;
}

}  // namespace

int main(int argc, char** argv) {
  const int jobs = argc > 1 ? std::atoi(argv[1]) : 1000;
  const int workers = argc > 2 ? std::atoi(argv[2]) : 4;
  if (jobs < 1 || workers < 1) {
    std::fprintf(stderr, "usage: worker_pool [JOBS [WORKERS]]\n");
    return 2;
  }
  return Run([jobs, workers] {
    chan<uint64_t> todo = make_chan<uint64_t>(16);
    chan<Result> done = make_chan<Result>(16);
    sync::WaitGroup pool;
    for (int w = 0; w < workers; w++) {
      pool.Go([=] {
        for (uint64_t n : todo) done.Send({w, n, Steps(n)});
      });
    }
    go([=] {
      for (int j = 1; j <= jobs; j++) todo.Send(static_cast<uint64_t>(j));
      todo.Close();
    });
    go([&pool, done] {
      pool.Wait();
      done.Close();
    });

    std::vector<int> share(static_cast<size_t>(workers));
    Result longest{};
    int results = 0;
    for (const Result& r : done) {
      results++;
      share[static_cast<size_t>(r.worker)]++;
      const bool longer = r.steps > longest.steps ||
                          (r.steps == longest.steps && r.start < longest.start);
      if (longer) longest = r;
    }
    for (size_t w = 0; w < share.size(); w++) {
      std::fprintf(stderr, "worker %zu did %d jobs\n", w, share[w]);
    }
    std::printf("%d results; longest sequence below %d starts at %llu: %d\n",
                results, jobs + 1,
                static_cast<unsigned long long>(longest.start), longest.steps);
  });
}
