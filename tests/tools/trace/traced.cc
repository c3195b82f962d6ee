// traced FILE [NUMBERS]: writes a trace of goroutines in every state, with
// samples of a CPU profile. Each of NUMBERS numbers (default 2000) that two of
// them exchange makes about six events.
#include <fcntl.h>
#include <gump/gump.h>
#include <gump/pprof.h>
#include <gump/trace.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>

using namespace gump;

namespace {

[[gnu::noinline]] void Produce(const chan<int>& numbers, int count) {
  for (int i = 0; i < count; i++) numbers.Send(i);
  numbers.Close();
}

[[gnu::noinline]] void Consume(const chan<int>& numbers) {
  while (numbers.Recv()) {
  }
}

[[gnu::noinline]] void Compute() {
  volatile uint64_t sum = 0;
  for (uint64_t i = 0; i < 5'000'000; i++) sum = sum + i;
}

[[gnu::noinline]] void Lock(sync::Mutex* mutex) {
  for (int i = 0; i < 100; i++) {
    mutex->Lock();
    runtime::Gosched();
    mutex->Unlock();
  }
}

void RunAll(int count) {
  trace::Task task(context::Background(), "round");
  const trace::Region region(task.Context(), "all of a round");
  trace::Log(task.Context(), "numbers", std::to_string(count));
  sync::WaitGroup all;
  const auto numbers = make_chan<int>();
  all.Go([=] { Produce(numbers, count); });
  all.Go([=] { Consume(numbers); });
  sync::Mutex mutex;
  for (int i = 0; i < 4; i++) {
    all.Go([] { Compute(); });
    all.Go([&] { Lock(&mutex); });
    all.Go([] { blocking([] { usleep(2000); }); });
    all.Go([] { time::Sleep(absl::Milliseconds(3)); });
  }
  std::thread thread([] {
    const auto answer = make_chan<int>();
    go([=] { answer.Send(1); });
    answer.Recv();
  });
  all.Wait();
  thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int count = argc > 2 ? std::atoi(argv[2]) : 2000;
  return Run([&] {
    if (const absl::Status s = trace::Start(argv[1]); !s.ok()) {
      std::fprintf(stderr, "%s\n", s.ToString().c_str());
      return 1;
    }
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (const absl::Status s = pprof::StartCPUProfile(null, 1000); !s.ok()) {
      std::fprintf(stderr, "%s\n", s.ToString().c_str());
      return 1;
    }
    // The kernel takes a sample at most at each of its ticks.
    const std::clock_t end = std::clock() + CLOCKS_PER_SEC / 5;
    while (std::clock() < end) Compute();
    RunAll(count);
    runtime::GOMAXPROCS(runtime::GOMAXPROCS(0) + 1);
    RunAll(count);
    trace::Stop();
    pprof::StopCPUProfile();
    close(null);
    return 0;
  });
}
