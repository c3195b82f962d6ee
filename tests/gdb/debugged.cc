// The program that tests/gdb/goroutines.sh looks at in gdb. It has a goroutine
// in each state, and variables of the types that have printers. When all
// goroutines are where they should be, main calls Ready, the place for a
// breakpoint. Then the program ends by abort(), so that it can leave a core.
#include <gump/gump.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

using namespace gump;

extern "C" __attribute__((noinline)) void Ready() { asm volatile(""); }

// Keep makes the compiler keep an object in memory.
void Keep(void* object) { asm volatile("" : : "r"(object) : "memory"); }

namespace shop {

__attribute__((noinline)) void Serve(chan<int> orders, int number) {
  int served = number;
  for (int order : orders) served += order;
  std::printf("%d\n", served);
}

__attribute__((noinline)) void WaitForMutex(sync::Mutex* mu) {
  mu->Lock();
  mu->Unlock();
}

__attribute__((noinline)) void BlockInTheKernel() {
  blocking([] { std::this_thread::sleep_for(std::chrono::hours(1)); });
}

__attribute__((noinline)) void Compute(std::atomic<bool>* computes,
                                       const std::atomic<bool>* stop) {
  computes->store(true);
  while (!stop->load(std::memory_order_relaxed)) {
  }
}

}  // namespace shop

// Parked returns how many goroutines are parked or in a declared call.
int Parked() {
  const std::string dump = runtime::Stack(true);
  int n = 0;
  for (const char* state : {"[chan receive]", "[sync.Mutex.Lock]", "[sleep",
                            "[sync.WaitGroup.Wait]", "[syscall]"}) {
    for (size_t at = 0; (at = dump.find(state, at)) != std::string::npos; at++)
      n++;
  }
  return n;
}

int main() {
  runtime::GOMAXPROCS(2);
  return Run([] {
    chan<int> orders;  // nil at first
    chan<int> nil_channel;
    orders = make_chan<int>();
    chan<int> buffered = make_chan<int>(4);
    buffered.Send(11);
    buffered.Send(22);
    chan<int> closed = make_chan<int>(1);
    closed.Close();
    for (int i = 0; i < 20; i++) {
      go(GoOptions{.name = "server"}, [=] { shop::Serve(orders, 100 + i); });
    }
    sync::Mutex mutex;
    sync::Mutex free_mutex;
    Keep(&free_mutex);
    mutex.Lock();
    go([&] { shop::WaitForMutex(&mutex); });
    sync::RWMutex rwmutex;
    rwmutex.RLock();
    sync::WaitGroup wg;
    wg.Add(3);
    go([&] { wg.Wait(); });
    pprof::Do(
        context::Background(), {{"tenant", "acme"}, {"op", "sleep"}},
        [](context::Context) { go([] { time::Sleep(absl::Hours(1)); }); });
    go([] { shop::BlockInTheKernel(); });
    runtime::Thread gui("gui");
    go(GoOptions{.thread = &gui}, [] { time::Sleep(absl::Hours(1)); });
    runtime::Group batch("batch");
    go(GoOptions{.group = &batch}, [] { time::Sleep(absl::Hours(1)); });
    context::Context background;
    auto [canceled, cancel] = context::WithCancel(background);
    cancel();
    auto [timed, cancel_timed] =
        context::WithDeadline(background, absl::FromUnixSeconds(4102444800));
    auto live = context::WithCancel(timed).first;
    context::Key<int> key;
    auto with_value =
        context::WithValue(context::WithCancel(background).first, key, 7);
    Keep(&with_value);
    absl::Status ok;
    absl::Status not_found = absl::NotFoundError("no such order");
    absl::Status code_only(absl::StatusCode::kAborted, "");

    // When all others have parked, the dump shows each with its reason.
    while (Parked() < 26) runtime::Gosched();
    std::atomic<bool> computes{false};
    std::atomic<bool> stop{false};
    go([&] { shop::Compute(&computes, &stop); });
    while (!computes.load()) runtime::Gosched();
    // It waits for a P for as long as this goroutine does not park.
    go([] { std::printf("never\n"); });
    Ready();
    stop.store(true);
    std::abort();
  });
}
