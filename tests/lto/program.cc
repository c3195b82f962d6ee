// A program that is optimised at link time checks the state that travels with a
// goroutine. Its goroutines send, select, lock and wait while they handle an
// exception and while errno is theirs. It prints "ok", or the state that was
// lost.
#include <gump/gump.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>

using namespace gump;

namespace {

constexpr int kWorkers = 16;
constexpr int kRounds = 500;

// errno is read and written by functions of their own, because compilers keep
// its address for as long as a function runs.
__attribute__((noinline)) void SetErrno(int e) {
  errno = e;
  asm volatile("");
}
__attribute__((noinline)) int GetErrno() {
  asm volatile("");
  return errno;
}

void Check(bool ok, const char* what) {
  if (ok) return;
  std::printf("lost: %s\n", what);
  std::_Exit(1);
}

// All workers write to the Tally, under a lock.
struct Tally {
  sync::Mutex mu;
  long sum = 0;
};

// Round parks in four ways, one of them inside a destructor during unwinding,
// and throws its value.
void Round(int value, chan<int> even, chan<int> odd, Tally& tally) {
  struct Yields {
    ~Yields() { runtime::Gosched(); }
  } yields;
  switch (value % 4) {
    case 0:
      even.Send(value);
      break;
    case 1:
      odd.Send(value);
      break;
    default:
      select(Send(even, value), Send(odd, value));
  }
  {
    std::lock_guard lock(tally.mu);
    tally.sum += value;
    runtime::Gosched();
  }
  throw std::runtime_error(std::to_string(value));
}

// Worker rethrows each exception once, and parks while it handles it.
void Worker(int id, chan<int> even, chan<int> odd, Tally& tally) {
  for (int i = 0; i < kRounds; i++) {
    const int mine = 1000 + id * kRounds + i;
    SetErrno(mine);
    bool caught = false;
    try {
      try {
        Round(mine, even, odd, tally);
      } catch (const std::exception&) {
        even.Send(mine);
        throw;
      }
    } catch (const std::runtime_error& e) {
      const std::exception_ptr before = std::current_exception();
      odd.Send(mine);
      Check(std::current_exception() == before, "the exception in flight");
      Check(e.what() == std::to_string(mine), "the exception's text");
      caught = true;
    }
    Check(caught, "an exception");
    Check(std::uncaught_exceptions() == 0, "the count of exceptions");
    Check(GetErrno() == mine, "errno");
  }
}

int Main() {
  const char* want = std::getenv("GOMAXPROCS");
  Check(want != nullptr && runtime::GOMAXPROCS(0) == std::atoi(want),
        "GOMAXPROCS");
  auto even = make_chan<int>();
  auto odd = make_chan<int>(3);
  auto done = make_chan<void>();
  Tally tally;
  sync::WaitGroup wg;
  for (int id = 0; id < kWorkers; id++) {
    wg.Go([=, &tally] { Worker(id, even, odd, tally); });
  }
  go([=, &wg] {
    wg.Wait();
    done.Close();
  });
  long received = 0;
  int messages = 0;
  auto take = [&](int v) {
    received += v;
    messages++;
  };
  for (bool open = true; open;) {
    select(Recv(even, take), Recv(odd, take),
           Recv(done, [&](bool) { open = false; }));
  }
  while (auto v = odd.TryRecv().value) take(*v);
  constexpr long kValues = long{kWorkers} * kRounds;
  constexpr long kSum = kValues * 1000 + kValues * (kValues - 1) / 2;
  Check(tally.sum == kSum, "a sum under the lock");
  Check(messages == 3 * kValues && received == 3 * kSum, "a message");
  std::puts("ok");
  return 0;
}

}  // namespace

int main() { return Run(Main); }
