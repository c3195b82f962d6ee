// W18: 64 goroutines read blocks of 4 KiB at random places of a file of 1 GiB,
// without the page cache. We measure the time and the CPU time for a read.
#include <fcntl.h>
#include <gump/go.h>
#include <gump/os.h>
#include <gump/sync.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int kReaders = 64;
constexpr size_t kBlock = 4096;
constexpr int64_t kBlocks = (int64_t{1} << 30) / int64_t{kBlock};

os::File OpenData() {
  const char* path = std::getenv("BENCH_DATA");  // run.py writes it
  if (path == nullptr) {
    std::fprintf(stderr, "W18: BENCH_DATA names no file\n");
    std::exit(2);
  }
  absl::StatusOr<os::File> f = os::OpenFile(path, O_RDONLY | O_DIRECT);
  if (!f.ok()) {
    std::fprintf(stderr, "W18: %s\n", f.status().ToString().c_str());
    std::exit(2);
  }
  return *f;
}

void Reader(const os::File& f, unsigned seed, int64_t end,
            std::atomic<int64_t>* reads) {
  auto free_block = [](char* p) { std::free(p); };
  const std::unique_ptr<char, decltype(free_block)> block(
      static_cast<char*>(std::aligned_alloc(kBlock, kBlock)), free_block);
  std::minstd_rand random(seed);
  int64_t n = 0;
  while (NowNanos() < end) {
    const int64_t at = static_cast<int64_t>(random()) % kBlocks;
    const absl::StatusOr<size_t> got =
        f.ReadAt(absl::MakeSpan(block.get(), kBlock), at * int64_t{kBlock});
    if (!got.ok() || *got != kBlock) std::abort();
    n++;
  }
  reads->fetch_add(n);
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const gump::os::File f = OpenData();
    for (int r = 0; r < o.reps && o.Selected("W18"); r++) {
      const int64_t cpu = CpuNanos();
      const int64_t start = NowNanos();
      const int64_t end = start + o.Scaled(5000) * 1'000'000;
      std::atomic<int64_t> reads = 0;
      gump::sync::WaitGroup wg;
      for (unsigned i = 0; i < kReaders; i++) {
        wg.Go([&, i] { Reader(f, i + 1, end, &reads); });
      }
      wg.Wait();
      const auto n = static_cast<double>(reads.load());
      Print("W18", "ns/read", static_cast<double>(NowNanos() - start) / n);
      Print("W18", "cpu-us", static_cast<double>(CpuNanos() - cpu) / 1e3 / n);
    }
  });
}
