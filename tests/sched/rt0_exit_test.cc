// The process ends when any of its threads ends it, regardless of its
// goroutines. Until then the goroutines go on, so handlers of exit and static
// destructors may use them.
//
// Each case is a process of its own, which hangs if the promise is broken.
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

void Say(const char* text) {
  const std::string s(text);
  if (write(STDERR_FILENO, s.data(), s.size()) < 0) std::_Exit(98);
}

// ---- The other goroutines

std::atomic<int> begun;
sync::Mutex held;

void Compute() {
  begun++;
  for (std::atomic<uint64_t> x = 0;;) x.fetch_add(1, std::memory_order_relaxed);
}

// Malloc is inside malloc most of the time, under the lock of the one arena. It
// keeps its pointers in a global, where LeakSanitizer finds them. On the stack
// LeakSanitizer might miss them, because AddressSanitizer may keep locals in a
// frame of its own, and LeakSanitizer reads such frames only for running
// threads.
void* volatile allocated[4][16];
void Malloc() {
  void* volatile(&p)[16] = allocated[begun++];
  for (;;) {
    for (size_t i = 0; i < 16; i++) p[i] = std::malloc(size_t{2048} << (i % 5));
    for (void* volatile& q : p) std::free(q);
  }
}

// Stdio prints under the lock of standard output, which exit takes as well.
void Stdio() {
  begun++;
  for (;;) std::fprintf(stdout, "%d %s %f\n", 1, "two", 3.0);
}

void ReadRaw() {
  int fds[2];
  if (pipe(fds) != 0) std::_Exit(98);
  begun++;
  char c;
  (void)!read(fds[0], &c, 1);
}

void ReadDeclared() { blocking(ReadRaw); }

void Park() {
  begun++;
  make_chan<int>().Recv();
}

void WaitForLock() {
  begun++;
  held.Lock();
}

void Yield() {
  begun++;
  for (;;) runtime::Gosched();
}

void Spawn() {
  begun++;
  auto c = make_chan<int>(8);
  for (;;) {
    go([c] { c.Send(1); });
    c.Recv();
  }
}

struct Crowd {
  const char* name;
  void (*f)();
};
const Crowd kCrowds[] = {
    {"Compute", Compute},
    {"Malloc", Malloc},
    {"Stdio", Stdio},
    {"ReadRaw", ReadRaw},
    {"Park", Park},
    {"Yield", Yield},
    {"ReadDeclared", ReadDeclared},
    {"Spawn", Spawn},
    {"WaitForLock", WaitForLock},
};

// Gather starts four goroutines of a kind and waits until all have begun. If
// they compute, it also waits until one has been preempted in place.
void Gather(const Crowd& crowd) {
  for (int i = 0; i < 4; i++) go(crowd.f);
  while (begun < 4) runtime::Gosched();
  const bool computes =
      crowd.f == Compute || crowd.f == Malloc || crowd.f == Stdio;
  if (!computes || rt::kSanitizerBuild) return;
  while (rt::sched.ninplace.load(rt::relaxed) == 0) runtime::Gosched();
}

// ---- The end of the process

std::atomic<bool> serving;

// UseLocks takes the locks of libc that goroutines may hold.
void UseLocks() {
  void* volatile p = std::malloc(100000);
  std::free(p);
  std::fprintf(stdout, "%s\n", "the end");
}

// UseAll uses the runtime as well.
void UseAll() {
  auto c = make_chan<int>();
  auto d = make_chan<int>(2);
  sync::WaitGroup wg;
  sync::Mutex mu;
  int n = 0;
  for (int i = 0; i < 4; i++) {
    wg.Go([&, c, d] {
      std::string big(100000, static_cast<char>('a' + *c.Recv()));
      mu.Lock();
      n += static_cast<int>(big.size());
      mu.Unlock();
      d.Send(big[7]);
    });
  }
  for (int i = 0; i < 4; i++) c.Send(1);
  for (int i = 0; i < 4; i++) {
    if (d.Recv() != 'b') std::_Exit(99);
  }
  wg.Wait();
  if (n != 400000) std::_Exit(99);
}

// Service is a static object with a goroutine that serves it to the very end.
class Service {
 public:
  ~Service() {
    if (!serving) return;
    for (int i = 0; i < 10; i++) {
      in_.Send(i);
      if (out_.Recv() != 2 * i) std::_Exit(99);
    }
    in_.Close();
    if (out_.Recv().has_value()) std::_Exit(99);
    Say("destroyed ");
  }
  void Start() {
    // The goroutine has handles of its own. Run may leave it over, and then the
    // object goes first.
    go([in = in_, out = out_] {
      while (auto v = in.Recv()) out.Send(*v * 2);
      out.Close();
    });
    serving = true;
  }

 private:
  chan<int> in_ = make_chan<int>();
  chan<int> out_ = make_chan<int>();
};
Service service;

void Prepare() {
  // There is one arena, so that a preempted goroutine holds the lock that all
  // others need. Our output goes nowhere.
  mallopt(M_ARENA_MAX, 1);
  if (std::freopen("/dev/null", "w", stdout) == nullptr) std::_Exit(98);
  service.Start();
  held.Lock();
  std::atexit([] {
    UseLocks();
    if (serving) UseAll();
    Say("atexit ");
  });
  std::at_quick_exit([] {
    UseLocks();
    if (serving) UseAll();
    Say("at_quick_exit ");
  });
}

constexpr char kExitSays[] = "^atexit destroyed $";
constexpr char kQuickExitSays[] = "^at_quick_exit $";
constexpr char kLostThread[] =
    "fatal error: pthread_exit or pthread_cancel of a goroutine's thread\n";

#if defined(GUMP_TSAN)
constexpr bool kTsan = true;
#else
constexpr bool kTsan = false;
#endif

class ExitDeathTest : public ::testing::TestWithParam<std::tuple<Crowd, int>> {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void SetUp() override {
#if defined(GUMP_TSAN)
    if (crowd().f == Compute) GTEST_SKIP() << "never calls libc";
#endif
  }
  const Crowd& crowd() const { return std::get<0>(GetParam()); }
  // Among runs f as main, beside the crowd.
  template <class F>
  void Among(F f) const {
    Prepare();
    gump::Run([&] {
      runtime::GOMAXPROCS(std::get<1>(GetParam()));
      Gather(crowd());
      f();
    });
  }
};
// A process takes long to begin and end with a sanitizer.
const std::vector<int> kProcs =
    rt::kSanitizerBuild ? std::vector<int>{3} : std::vector<int>{1, 3};
INSTANTIATE_TEST_SUITE_P(, ExitDeathTest,
                         ::testing::Combine(::testing::ValuesIn(kCrowds),
                                            ::testing::ValuesIn(kProcs)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param).name) +
                                  "GOMAXPROCS" +
                                  std::to_string(std::get<1>(param.param));
                         });

TEST_P(ExitDeathTest, ExitInMainEndsTheProcess) {
  EXPECT_EXIT(Among([] { std::exit(7); }), ::testing::ExitedWithCode(7),
              kExitSays);
}

TEST_P(ExitDeathTest, ExitInAGoroutineEndsTheProcess) {
  EXPECT_EXIT(Among([] {
                go([] { std::exit(7); });
                make_chan<int>().Recv();
              }),
              ::testing::ExitedWithCode(7), kExitSays);
}

TEST_P(ExitDeathTest, ExitInAPlainThreadEndsTheProcess) {
  EXPECT_EXIT(Among([] {
                std::thread([] { std::exit(7); }).detach();
                for (;;) runtime::Gosched();
              }),
              ::testing::ExitedWithCode(7), kExitSays);
}

TEST_P(ExitDeathTest, QuickExitInAGoroutineEndsTheProcess) {
  EXPECT_EXIT(Among([] {
                go([] { std::quick_exit(7); });
                make_chan<int>().Recv();
              }),
              ::testing::ExitedWithCode(7), kQuickExitSays);
}

TEST_P(ExitDeathTest, UnderscoreExitInAGoroutineEndsTheProcess) {
  EXPECT_EXIT(Among([] {
                go([] { _exit(7); });
                make_chan<int>().Recv();
              }),
              ::testing::ExitedWithCode(7), "^$");
}

// A signal that kills does so regardless of the goroutines.
TEST_P(ExitDeathTest, SignalsKillAsEver) {
  for (const int sig : {SIGTERM, SIGABRT}) {
    EXPECT_EXIT(Among([sig] {
                  go([sig] { raise(sig); });
                  make_chan<int>().Recv();
                }),
                ::testing::KilledBySignal(sig), "^$");
  }
}

// A goroutine must not end its thread, because the P would be lost.
TEST_P(ExitDeathTest, PthreadExitInAGoroutineIsFatal) {
  if (kTsan) GTEST_SKIP() << "it ends such a program itself";
  EXPECT_EXIT(Among([] {
                go([] { pthread_exit(nullptr); });
                make_chan<int>().Recv();
              }),
              ::testing::ExitedWithCode(2), kLostThread);
}

TEST_P(ExitDeathTest, PthreadExitInMainIsFatal) {
  if (kTsan) GTEST_SKIP() << "it ends such a program itself";
  EXPECT_EXIT(Among([] { pthread_exit(nullptr); }),
              ::testing::ExitedWithCode(2), kLostThread);
}

// Main returns while the other goroutines stay where they are. Then the process
// ends as it does at the end of main(). Nothing is scheduled any more, but
// malloc and stdio work.
TEST_P(ExitDeathTest, ExitAfterRunEndsTheProcess) {
  EXPECT_EXIT(
      {
        Among([] {});
        serving = false;
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "^atexit $");
}

TEST_P(ExitDeathTest, QuickExitAfterRunEndsTheProcess) {
  EXPECT_EXIT(
      {
        Among([] {});
        serving = false;
        std::quick_exit(7);
      },
      ::testing::ExitedWithCode(7), "^at_quick_exit $");
}

}  // namespace
}  // namespace gump
