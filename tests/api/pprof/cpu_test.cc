// The CPU profile: what it counts, and that the signal may land anywhere.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/profile_reader.h"
#include "tests/testing/with_gomaxprocs.h"

// Functions whose names the tests look for in profiles.
namespace cputest {

int64_t Nanos(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Spin computes for n rounds.
__attribute__((noinline)) uint64_t Spin(uint64_t n) {
  uint64_t x = n;
  for (uint64_t i = 0; i < n; i++) x = x * 6364136223846793005u + i;
  return x;
}

std::atomic<uint64_t> sink;

// Busy uses about `ms` of processor time. It counts rounds, because a goroutine
// may change its thread, and other goroutines may run on that.
__attribute__((noinline)) void Busy(int64_t ms) {
  static const uint64_t rounds = [] {  // in 1 ms
    const int64_t begin = Nanos(CLOCK_THREAD_CPUTIME_ID);
    constexpr uint64_t kRounds = 1'000'000;
    sink.store(Spin(kRounds), std::memory_order_relaxed);
    const int64_t ns = Nanos(CLOCK_THREAD_CPUTIME_ID) - begin;
    return kRounds * 1'000'000 / static_cast<uint64_t>(ns + 1) + 1;
  }();
  for (; ms > 0; ms--) {
    sink.store(Spin(rounds), std::memory_order_relaxed);
  }
}

__attribute__((noinline)) void Hot() {
  Busy(300);
  asm volatile("");
}

__attribute__((noinline)) void Cold() {
  Busy(30);
  asm volatile("");
}

}  // namespace cputest

namespace gump {
namespace {

using cputest::Busy;
using cputest::Cold;
using cputest::Hot;
using testing::ByGo;
using testing::GoTool;
using testing::Profile;
using testing::ReadProfile;
using testing::TempFile;

// True if samples have the stacks of the moment of the signal. TSan calls
// handlers later.
constexpr bool kStacksCount = !rt::kSanitizerDefersHandlers;

template <class F>
Profile Profiled(F&& f, int hz = 100) {
  const TempFile file;
  const absl::Status s = pprof::StartCPUProfile(file.fd(), hz);
  EXPECT_TRUE(s.ok()) << s;
  std::forward<F>(f)();
  pprof::StopCPUProfile();
  Profile p = ReadProfile(file.Read());
  EXPECT_EQ(p.error, "");
  return p;
}

struct sigaction SigprofNow() {
  struct sigaction now = {};
  sigaction(SIGPROF, nullptr, &now);
  return now;
}

using CpuProfileTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(CpuProfileTest);

TEST_P(CpuProfileTest, HotFunctionHasMostSamples) {
  Run([] {
    const int64_t begin = cputest::Nanos(CLOCK_PROCESS_CPUTIME_ID);
    int64_t used = 0;
    const Profile p = Profiled([&] {
      sync::WaitGroup wg;
      wg.Go(Hot);
      wg.Go(Cold);
      wg.Wait();
      used = cputest::Nanos(CLOCK_PROCESS_CPUTIME_ID) - begin;
    });
    EXPECT_EQ(p.types,
              (std::vector<std::string>{"samples count", "cpu nanoseconds"}));
    EXPECT_EQ(p.period_type, "cpu nanoseconds");
    EXPECT_EQ(p.period, 10'000'000);
    EXPECT_GT(p.duration_nanos, 0);
    for (const Profile::Sample& s : p.samples) {
      EXPECT_EQ(s.values[1], s.values[0] * p.period);
    }
    if (!kStacksCount) return;
    // All time but that before the first and after the last tick of a thread.
    const int64_t total = p.Sum("", 1);
    EXPECT_GT(total, used / 2);
    EXPECT_LT(total, used * 3 / 2);
    EXPECT_GT(p.Sum("cputest::Hot", 1), total / 2);
    EXPECT_GT(p.Sum("cputest::Hot"), 2 * p.Sum("cputest::Cold"));
    EXPECT_GT(p.Sum("gumpGostart", 1), total / 2) << "stacks are not complete";
  });
}

TEST_P(CpuProfileTest, SamplesHaveTheLabelsOfTheirGoroutine) {
  Run([] {
    const Profile p = Profiled([] {
      sync::WaitGroup wg;
      for (const char* tenant : {"acme", "globex"}) {
        pprof::Do(context::Background(), {{"tenant", tenant}},
                  [&](context::Context) { wg.Go([] { Busy(100); }); });
      }
      wg.Wait();
    });
    if (!kStacksCount) return;
    for (const char* tenant : {"acme", "globex"}) {
      EXPECT_GT(p.Sum("cputest::Busy", 0, {{"tenant", tenant}}), 2) << tenant;
    }
    for (const Profile::Sample& s : p.samples) {
      EXPECT_LE(s.labels.size(), 1u);
    }
  });
}

TEST_P(CpuProfileTest, ThreadsOfTheProgramAreSampled) {
  Run([] {
    const Profile p = Profiled([] {
      std::thread t(Hot);
      t.join();
    });
    if (kStacksCount) {
      EXPECT_GT(p.Sum("cputest::Spin"), 10);
      EXPECT_GT(p.Sum("cputest::Hot"), 10);
    }
  });
}

TEST_P(CpuProfileTest, ThreadsThatStartLaterAreSampled) {
  Run([] {
    const Profile p = Profiled([] {
      sync::WaitGroup wg;
      for (int i = 0; i < 8; i++) {
        wg.Go([] {
          runtime::LockOSThread();  // the thread ends with the goroutine
          Busy(50);
        });
      }
      wg.Wait();
    });
    if (kStacksCount) {
      EXPECT_GT(p.Sum("cputest::Busy"), 15);
    }
  });
}

TEST_P(CpuProfileTest, HigherRateTakesMoreSamples) {
  Run([] {
    const Profile p = Profiled([] { Busy(200); }, 1000);
    EXPECT_EQ(p.period, 1'000'000);
    if (kStacksCount) {
      EXPECT_GT(p.Sum("cputest::Busy"), 100);
    }
  });
}

TEST(CpuProfileErrorTest, SecondStartIsRefused) {
  testing::RunWith(2, [] {
    const TempFile a, b;
    ASSERT_TRUE(pprof::StartCPUProfile(a.fd()).ok());
    EXPECT_EQ(pprof::StartCPUProfile(b.fd()),
              absl::FailedPreconditionError("cpu profiling already in use"));
    pprof::StopCPUProfile();
    EXPECT_EQ(b.Read(), "");
    EXPECT_EQ(ReadProfile(a.Read()).error, "");
    // Now there is none, so this may not write to a again.
    const size_t size = a.Read().size();
    pprof::StopCPUProfile();
    EXPECT_EQ(a.Read().size(), size);
  });
}

TEST(CpuProfileErrorTest, BadRateIsRefused) {
  for (const int hz : {0, -1, 1'000'001}) {
    const absl::Status s = pprof::StartCPUProfile(1, hz);
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(s.message(), "pprof: cpu profiling rate " + std::to_string(hz) +
                               " Hz is not in 1 to 1000000");
  }
}

TEST(CpuProfileErrorTest, BadDescriptorLosesTheProfileOnly) {
  testing::RunWith(2, [] {
    ASSERT_TRUE(pprof::StartCPUProfile(-1).ok());
    pprof::StopCPUProfile();
    (void)Profiled([] {});
  });
}

TEST(CpuProfilePlainThreadTest, ProfileNeedsNoGoroutines) {
  std::thread([] {
    const Profile p = Profiled(Hot);
    if (kStacksCount) {
      EXPECT_GT(p.Sum("cputest::Hot"), 10);
    }
  }).join();
}

// Each file gets one whole profile, or nothing.
TEST_P(CpuProfileTest, RacedStartAndStopTakeTurns) {
  Run([] {
    constexpr int kGoroutines = 10, kRounds = rt::kSanitizerBuild ? 5 : 20;
    std::vector<TempFile> files(kGoroutines * kRounds);
    std::atomic<int> started{0};
    sync::WaitGroup wg;
    for (int g = 0; g < kGoroutines; g++) {
      wg.Go([&, g] {
        for (int i = 0; i < kRounds; i++) {
          const TempFile& f = files[static_cast<size_t>(g * kRounds + i)];
          const absl::Status s = pprof::StartCPUProfile(f.fd(), 1000);
          if (s.ok()) {
            started++;
          } else {
            EXPECT_EQ(s.message(), "cpu profiling already in use");
          }
          Busy(1);
          pprof::StopCPUProfile();
        }
      });
    }
    wg.Wait();
    int whole = 0;
    for (const TempFile& f : files) {
      const std::string text = f.Read();
      if (text.empty()) continue;
      EXPECT_EQ(ReadProfile(text).error, "");
      whole++;
    }
    EXPECT_EQ(whole, started);
    EXPECT_GT(whole, 0);
    (void)Profiled([] {});
  });
}

// ---- SIGPROF

std::atomic<int> handled{0};
std::atomic<bool> blocked{false};  // a signal was blocked in the handler
void Handle(int) {
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  if (sigismember(&now, SIGUSR1) != 0) blocked = true;
  handled++;
}
void HandleInfo(int, siginfo_t*, void*) { handled++; }

class CpuProfileSignalTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void SetUp() override { sigaction(SIGPROF, nullptr, &before_); }
  void TearDown() override { sigaction(SIGPROF, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

TEST_F(CpuProfileSignalTest, DispositionIsRestored) {
  testing::RunWith(2, [] {
    struct sigaction a = {};
    for (auto handler : {SIG_DFL, SIG_IGN, &Handle}) {
      a.sa_handler = handler;
      a.sa_flags = SA_RESTART;
      ASSERT_EQ(sigaction(SIGPROF, &a, nullptr), 0);
      (void)Profiled([] { Busy(50); });
      EXPECT_EQ(SigprofNow().sa_handler, handler);
      EXPECT_EQ(SigprofNow().sa_flags & SA_RESTART, SA_RESTART);
    }
    a.sa_sigaction = HandleInfo;
    a.sa_flags = SA_SIGINFO;
    ASSERT_EQ(sigaction(SIGPROF, &a, nullptr), 0);
    (void)Profiled([] { Busy(50); });
    EXPECT_EQ(SigprofNow().sa_sigaction, HandleInfo);
    itimerval timer = {};
    getitimer(ITIMER_PROF, &timer);
    EXPECT_EQ(timer.it_interval.tv_usec, 0);
    EXPECT_EQ(timer.it_value.tv_usec, 0);
  });
}

TEST_F(CpuProfileSignalTest, HandlerOfTheProgramGetsItsOwnSignalsOnly) {
  testing::RunWith(2, [] {
    struct sigaction a = {};
    a.sa_handler = Handle;
    ASSERT_EQ(sigaction(SIGPROF, &a, nullptr), 0);
    handled = 0;
    (void)Profiled(
        [] {
          Busy(100);
          EXPECT_EQ(handled, 0);
          raise(SIGPROF);
          EXPECT_TRUE(testing::Eventually([] { return handled == 1; }));
          Busy(100);
          std::thread([] { Busy(100); }).join();
        },
        1000);
    EXPECT_EQ(handled, 1);
    EXPECT_FALSE(blocked) << "the handler has the mask of the profile's";
  });
}

// No instant of the profile's end drops a signal of the program.
TEST_F(CpuProfileSignalTest, HandlerOfTheProgramMissesNoSignal) {
  if (!kStacksCount) GTEST_SKIP() << "handlers run later";
  testing::RunWith(2, [] {
    struct sigaction a = {};
    a.sa_handler = Handle;
    ASSERT_EQ(sigaction(SIGPROF, &a, nullptr), 0);
    handled = 0;
    int raised = 0;
    std::atomic<bool> stop{false};
    std::thread thread([&] {
      for (; !stop; raised++) raise(SIGPROF);
    });
    for (int i = 0; i < 200; i++) (void)Profiled([] {});
    stop = true;
    thread.join();
    EXPECT_EQ(handled, raised);
  });
}

// As if our handler were not there.
TEST_F(CpuProfileSignalTest, CommandIgnoresTheSignalIfTheProgramDid) {
  ::signal(SIGPROF, SIG_IGN);
  testing::RunWith(2, [] {
    (void)Profiled([] {
      exec::Cmd cmd("sh", "-c", "kill -PROF $$; exit 3");
      EXPECT_EQ(cmd.Run().message(), "exit status 3");
    });
  });
}

TEST_F(CpuProfileSignalTest, HandlerThatComesLaterStays) {
  testing::RunWith(2, [] {
    struct sigaction a = {};
    a.sa_handler = Handle;
    (void)Profiled([&] { ASSERT_EQ(sigaction(SIGPROF, &a, nullptr), 0); });
    EXPECT_EQ(SigprofNow().sa_handler, &Handle);
  });
}

TEST_F(CpuProfileSignalTest, TimerOfTheProgramGoesOn) {
  testing::RunWith(2, [] {
    struct sigaction a = {};
    a.sa_handler = Handle;
    a.sa_flags = SA_RESTART;
    ASSERT_EQ(sigaction(SIGPROF, &a, nullptr), 0);
    const itimerval every = {{0, 10'000}, {0, 10'000}};
    ASSERT_EQ(setitimer(ITIMER_PROF, &every, nullptr), 0);
    handled = 0;
    const Profile p = Profiled([] { Busy(300); });
    if (kStacksCount) {
      EXPECT_GT(p.Sum("cputest::Busy"), 10);
    }
    EXPECT_GT(handled, 5);
    itimerval now = {};
    const itimerval off = {};
    ASSERT_EQ(setitimer(ITIMER_PROF, &off, &now), 0);
    EXPECT_EQ(now.it_interval.tv_usec, 10'000);
  });
}

TEST_F(CpuProfileSignalTest, SignalFromKillStillEndsTheProgram) {
  ::signal(SIGPROF, SIG_DFL);
  EXPECT_EXIT(testing::RunWith(2,
                               [] {
                                 (void)pprof::StartCPUProfile(1);
                                 kill(getpid(), SIGPROF);
                                 Busy(60'000);
                               }),
              ::testing::KilledBySignal(SIGPROF), "");
}

// A signal that comes after the end would end the program.
TEST_F(CpuProfileSignalTest, NoSignalComesAfterTheEnd) {
  constexpr int kRounds = rt::kSanitizerBuild ? 30 : 100;
  ::signal(SIGPROF, SIG_DFL);
  testing::RunWith(4, [] {
    std::atomic<bool> stop{false};
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        while (!stop) Busy(1);
      });
    }
    std::thread thread([&] {
      while (!stop) Busy(1);
    });
    for (int i = 0; i < kRounds; i++) {
      (void)Profiled([] { Busy(2); }, 10'000);
    }
    stop = true;
    wg.Wait();
    thread.join();
  });
}

// ---- Where signals land

// Loads open and close a library while `stop` is false.
void LoadLibraries(const std::atomic<bool>& stop) {
  while (!stop) {
    void* lib =
        blocking([] { return dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL); });
    ASSERT_NE(lib, nullptr);
    volatile bool found = dlsym(lib, "cbrt") != nullptr;
    (void)found;
    blocking([&] { dlclose(lib); });
  }
}

void Allocate(const std::atomic<bool>& stop) {
  void* kept[64] = {};
  for (size_t i = 0; !stop; i++) {
    void*& p = kept[i % 64];
    std::free(p);
    p = std::malloc(16 + i * 61 % 5000);
  }
  for (void* p : kept) std::free(p);
}

void Switch(const std::atomic<bool>& stop) {
  chan<int> c = make_chan<int>();
  sync::WaitGroup wg;
  wg.Go([c] {
    while (c.Recv()) {
    }
  });
  while (!stop) c.Send(1);
  c.Close();
  wg.Wait();
}

void EndThreads(const std::atomic<bool>& stop) {
  while (!stop) {
    sync::WaitGroup wg;
    wg.Go([] {
      runtime::LockOSThread();
      Busy(1);
    });
    wg.Wait();
    std::thread([] { go([] {}); }).join();
  }
}

void Relabel(const std::atomic<bool>& stop) {
  for (int i = 0; !stop; i++) {
    const std::string n = std::to_string(i % 100);
    pprof::Do(context::Background(), {{"a", n}, {"b", n}},
              [](context::Context) {
                sync::WaitGroup wg;
                wg.Go([] {});
                wg.Wait();
              });
  }
}

TEST_P(CpuProfileTest, SignalsMayLandAnywhere) {
  Run([] {
    std::atomic<bool> stop{false};
    const Profile p = Profiled(
        [&] {
          sync::WaitGroup wg;
          for (auto* f :
               {LoadLibraries, Allocate, Switch, EndThreads, Relabel}) {
            for (int i = 0; i < 2; i++) wg.Go([&stop, f] { f(stop); });
          }
          std::thread thread([&] { Allocate(stop); });
          const int64_t begin = cputest::Nanos(CLOCK_PROCESS_CPUTIME_ID);
          while (cputest::Nanos(CLOCK_PROCESS_CPUTIME_ID) - begin <
                 800'000'000) {
            runtime::Gosched();
          }
          stop = true;
          wg.Wait();
          thread.join();
        },
        5000);
    EXPECT_GT(p.Sum(""), 0);
    for (const Profile::Sample& s : p.samples) {
      if (s.labels.empty()) continue;
      ASSERT_EQ(s.labels.size(), 2u);
      EXPECT_EQ(s.labels.at("a"), s.labels.at("b"));
    }
  });
}

TEST_P(CpuProfileTest, ChildOfForkIsNotSampled) {
  Run([] {
    const Profile p = Profiled(
        [] {
          Busy(50);
          const pid_t child = fork();
          if (child == 0) {
            Busy(50);
            _exit(7);
          }
          int status = 0;
          EXPECT_EQ(blocking([&] { return waitpid(child, &status, 0); }),
                    child);
          EXPECT_TRUE(WIFEXITED(status)) << status;
          EXPECT_EQ(WEXITSTATUS(status), 7);
          Busy(50);
        },
        1000);
    if (kStacksCount) {
      EXPECT_GT(p.Sum("cputest::Busy"), 20);
    }
  });
}

TEST_P(CpuProfileTest, CommandHasTheDefaultDisposition) {
  Run([] {
    (void)Profiled([] {
      exec::Cmd cmd("sh", "-c", "kill -PROF $$; exit 3");
      const absl::Status s = cmd.Run();
      EXPECT_NE(s.ToString().find("signal: profiling timer expired"),
                std::string::npos)
          << s;
    });
  });
}

TEST(CpuProfileGoToolTest, PprofReadsTheProfile) {
  if (GoTool().empty()) {
    GTEST_SKIP() << "no Go command is installed: set GUMP_TEST_GO, or PATH";
  }
  if (!kStacksCount) GTEST_SKIP() << "the stacks are those of later moments";
  testing::RunWith(2, [] {
    const TempFile f;
    ASSERT_TRUE(pprof::StartCPUProfile(f.fd()).ok());
    pprof::Do(context::Background(), {{"tenant", "acme"}},
              [](context::Context) { Hot(); });
    pprof::StopCPUProfile();
    const std::string top = ByGo("-top", f.path());
    EXPECT_NE(top.find("Type: cpu"), std::string::npos) << top;
    EXPECT_NE(top.find("cputest::Spin"), std::string::npos) << top;
    EXPECT_NE(top.find("Duration: "), std::string::npos) << top;
    const std::string some = ByGo("-top -tagfocus=tenant=acme", f.path());
    EXPECT_NE(some.find("cputest::Hot"), std::string::npos) << some;
  });
}

}  // namespace
}  // namespace gump
