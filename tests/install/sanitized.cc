// A program that is built with a sanitizer and linked with a library that is
// not. sanitized.sh builds it. The argument says what the program does:
// `works`, `parked` and `checks` must give no report, and any other argument
// must give the report that it names.
#include <gump/gump.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace gump;  // NOLINT: as api.md writes programs

#define NOINLINE __attribute__((noinline))

namespace {

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
// kDepth frames of Deep need more than 256 KiB under ASan, and less elsewhere.
#if defined(ASAN)
constexpr int kDepth = 800;
#else
constexpr int kDepth = 200;
#endif

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::abort();
}

// ---- What must work ---------------------------------------------------------

// Deep makes n + 1 frames of more than 600 bytes, and yields in the innermost.
NOINLINE size_t Deep(int n) {
  char name[600];
  std::snprintf(name, sizeof(name), "frame %d", n);
  if (n == 0) runtime::Gosched();
  return n == 0 ? 0 : Deep(n - 1) + std::strlen(name);
}

NOINLINE void Throws(int n) {
  char name[64];
  std::snprintf(name, sizeof(name), "a frame with number %d", n);
  const std::string kept(name);
  if (n == 0) {
    runtime::Gosched();
    throw std::runtime_error(kept);
  }
  Throws(n - 1);
  Check(kept == name, "not reached, but keeps `name` alive during the call");
}

void Exceptions() {
  for (int i = 0; i < 20; i++) {
    try {
      Throws(i);
      Check(false, "a throw");
    } catch (const std::runtime_error& e) {
      runtime::Gosched();
      Check(std::string_view(e.what()) == "a frame with number 0", "a catch");
    }
  }
}

void Goexits() {
  auto done = make_chan<void>();
  for (int i = 0; i < 200; i++) {
    go([&] {
      defer last{[&] { done.Send(); }};
      char name[64];
      std::snprintf(name, sizeof(name), "goroutine %d ends by Goexit", i);
      const std::string kept(name);
      defer first{[&] {
        runtime::Gosched();
        Check(kept == name, "a deferred function");
      }};
      runtime::Goexit();
    });
    (void)done.Recv();
  }
}

// Waits has goroutines that leave their Ms in other ways: they wait for a lock,
// a time, a declared call and a channel.
void Waits() {
  sync::Mutex mu;
  sync::WaitGroup wg;
  auto c = make_chan<int>();
  int64_t sum = 0;
  for (int g = 0; g < 20; g++) {
    wg.Go([&, g] {
      int kept[16];
      for (int i = 0; i < 16; i++) kept[i] = g + i;
      if (g % 5 == 0) runtime::LockOSThread();
      for (int r = 0; r < 20; r++) {
        {
          std::scoped_lock hold(mu);
          runtime::Gosched();
          sum += kept[0];
        }
        time::Sleep(absl::Microseconds(10));
        blocking([] { ::usleep(100); });
        if (g % 2 == 0) {
          c.Send(kept[r % 16]);
        } else {
          int v = 0;
          select(Recv(c, &v));
        }
      }
      for (int i = 0; i < 16; i++) Check(kept[i] == g + i, "a local");
    });
  }
  wg.Wait();
  Check(sum == 20 * 190, "a sum");
}

// Computes has goroutines that only compute, so they are preempted in place.
void Computes() {
  std::atomic<int> left{4};
  sync::WaitGroup wg;
  for (int g = 0; g < 3; g++) {
    wg.Go([&] {
      char text[32];
      for (unsigned i = 0; left > 0; i++) {
        std::snprintf(text, sizeof(text), "%u", i);
        Check(text[0] != 0, "a text");
      }
    });
  }
  while (left > 0) {
    time::Sleep(absl::Milliseconds(1));
    left--;
  }
  wg.Wait();
}

void Stacks() {
  sync::WaitGroup wg;
  for (int i = 0; i < 8; i++) {
    wg.Add(1);
    go(GoOptions{.stack_size = size_t{96} << 20}, [&] {
      Check(Deep(20000) > 0, "a large stack");
      wg.Done();
    });
    wg.Go([] { Check(Deep(kDepth) > 0, "a stack of the default size"); });
    wg.Wait();
    debug::FreeOSMemory();
  }
}

void Bubbles() {
  for (int i = 0; i < 10; i++) {
    synctest::Run([] {
      go([] { time::Sleep(absl::Hours(1)); });
      time::Sleep(absl::Hours(2));
      synctest::Wait();
    });
    Exceptions();
  }
}

// Handler has a frame that ASan may put onto a fake stack.
void Handler(int) {
  volatile char text[128];
  for (size_t i = 0; i < sizeof(text); i++) text[i] = 'x';
  Check(text[7] == 'x', "a handler");
}

// Signals runs on a foreign thread. Until done is closed, it sends signals to
// the process, which interrupt goroutines anywhere.
void Signals(recv_chan<void> done) {
  int sent = 0;
  while (done.TryRecv().kind == RecvResult<void>::kEmpty) {
    ::kill(::getpid(), SIGUSR1);
    ::usleep(200);
    sent++;
  }
  Check(sent > 0, "signals");
}

int Works() {
  struct sigaction action = {};
  action.sa_handler = Handler;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
  const auto ends = make_chan<void>();
  std::thread foreign([&] { Signals(ends); });
  const int result = Run([&] {
    sync::WaitGroup wg;
    for (int g = 0; g < 10; g++) {
      wg.Go([] {
        for (int r = 0; r < 5; r++) {
          Check(Deep(kDepth) > 0, "depth");
          Exceptions();
        }
      });
    }
    wg.Go(Waits);
    wg.Go(Goexits);
    wg.Wait();
    Computes();
    Stacks();
    Bubbles();
    return 7;
  });
  ends.Close();
  foreign.join();
  Check(result == 7, "a result");
  Check(Run([] { return static_cast<int>(Deep(100) > 0); }) == 1, "a Run");
  std::puts("works");
  return 0;
}

// Parked ends the process while a goroutine is parked. What the goroutine holds
// is not a leak.
int Parked() {
  return Run([] {
    go([] {
      const auto held = std::make_unique<int>(1);
      (void)make_chan<void>().Recv();
      Check(*held == 1, "a value");
    });
    while (runtime::Stack(true).find("[chan receive]") == std::string::npos) {
      runtime::Gosched();
    }
    std::puts("works");
    return 0;
  });
}

// Checks has a goroutine look for leaks while others compute, and others begin
// on new stacks. The goroutine is preempted while it holds LeakSanitizer's
// lock, and none of the others may wait for that.
extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();

int Checks() {
  return Run([] {
    std::atomic<bool> over{false};
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        while (!over) {
        }
      });
    }
    for (int i = 0; i < 20; i++) {
      wg.Go([&, i] {
        for (size_t n = 1; !over; n++) {
          sync::WaitGroup one;
          one.Add(1);
          go(GoOptions{.stack_size = (n % 40 + 1) << 20}, [&] { one.Done(); });
          one.Wait();
          if (i == 0 && n % 50 == 0) debug::FreeOSMemory();
        }
      });
    }
    for (int i = 0; i < 10; i++) (void)__lsan_do_recoverable_leak_check();
    over = true;
    wg.Wait();
    std::puts("works");
    return 0;
  });
}

// ---- What must be reported --------------------------------------------------

NOINLINE void UseAfterFree() {
  auto* p = new int(1);
  delete p;
  runtime::Gosched();
  volatile int v = *p;  // BUG: heap-use-after-free
  (void)v;
}

NOINLINE void Overflow() {
  volatile int a[4] = {};
  volatile int n = 4;
  runtime::Gosched();
  a[n] = 1;  // BUG: stack-buffer-overflow
}

int* volatile escaped;

NOINLINE void Escape() {
  int v = 1;
  escaped = &v;
  runtime::Gosched();
}

NOINLINE void UseAfterReturn() {
  Escape();
  runtime::Gosched();
  *escaped = 2;  // BUG: stack-use-after-return
}

char* volatile block;

NOINLINE void Leak() {
  for (int i = 0; i < 1000; i++) block = new char[64];  // BUG: memory leaks
  block = nullptr;
}

NOINLINE void Overrun(int n) {
  runtime::Gosched();
  volatile int v = INT_MAX;
  v = v + n;  // BUG: signed integer overflow
}

int Fails(std::string_view how) {
  return Run([how] {
    auto done = make_chan<void>();
    go([how, done] {
      if (how == "heap-use-after-free") UseAfterFree();
      if (how == "stack-buffer-overflow") Overflow();
      if (how == "stack-use-after-return") UseAfterReturn();
      if (how == "memory leaks") Leak();
      if (how == "signed integer overflow") Overrun(1);
      done.Send();
    });
    (void)done.Recv();
    return 0;
  });
}

}  // namespace

int main(int, char** argv) {
  const std::string_view how = argv[1];
  if (how == "works") return Works();
  if (how == "parked") return Parked();
  if (how == "checks") return Checks();
  return Fails(how);
}
