// A goroutine that neither enters the runtime nor declares its call holds up no
// other, and no signal cuts its sleep short, where the runtime cannot see what
// a thread does: /proc is missing, or the CPU clocks of threads, or both, from
// the start or later.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/deny_calls.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::DenyCalls;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "failed: %s, errno %d\n", why.c_str(), errno);
  std::_Exit(1);
}

// Source is a set of the places where the runtime looks.
enum Source : int {
  kPath = 1,     // /proc, by its path
  kTaskDir = 2,  // the descriptor of /proc/self/task
  kClock = 4,    // the CPU clocks of threads
  kRoot = 8,     // chroot into an empty directory: the path is gone
};

// TakeAway removes the sources from the process, for good.
void TakeAway(int sources) {
  if ((sources & kRoot) != 0) {
    char dir[] = "/tmp/gump-unseen-XXXXXX";
    if (mkdtemp(dir) == nullptr || chroot(dir) != 0 || chdir("/") != 0) {
      Fail("chroot");
    }
  }
  DenyCalls calls;
  if ((sources & kPath) != 0) {
    calls.When(SYS_openat, DenyCalls::If::kEqual, AT_FDCWD, ENOENT);
    calls.When(SYS_newfstatat, DenyCalls::If::kEqual, AT_FDCWD, ENOENT);
  }
  if ((sources & kTaskDir) != 0) {
    calls.When(SYS_openat, DenyCalls::If::kNotEqual, AT_FDCWD, ENOENT);
    calls.When(SYS_fstat, DenyCalls::If::kNotEqual, -2, EBADF);
  }
  // The clock of another thread has a negative number.
  if ((sources & kClock) != 0) {
    calls.When(SYS_clock_gettime, DenyCalls::If::kNegative, 0, EINVAL);
  }
  if (!calls.ForAllThreads()) Fail("seccomp");
}

// RunIn calls f in Run, with n Ps. The sources are gone by then: `later`
// removes them inside Run, after the runtime has used them.
void RunIn(int n, int sources, bool later, absl::FunctionRef<void()> f) {
  if (!later) TakeAway(sources);
  testing::RunWith(n, [&] {
    if (later) {
      time::Sleep(absl::Milliseconds(1));
      TakeAway(sources);
    }
    f();
  });
}

// Ticker is a goroutine that counts, a millisecond apart. It writes to the pipe
// each time that it has counted to a multiple of kRound.
class Ticker {
 public:
  static constexpr int kRound = 10;

  Ticker() {
    if (pipe(fds_) != 0) Fail("pipe");
    wg_.Go([this] {
      while (!stop_) {
        time::Sleep(absl::Milliseconds(1));
        if (++n_ % kRound == 0 && write(fds_[1], "", 1) != 1) Fail("write");
      }
    });
  }
  ~Ticker() {
    stop_ = true;
    wg_.Wait();
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  // ComputeForARound computes until the ticker has ticked kRound times.
  void ComputeForARound() const {
    const int end = n_ + kRound;
    while (n_ < end) {
    }
  }
  // SleepForARound sleeps in the kernel until the ticker writes. A signal ends
  // the call, whatever SA_RESTART says. Then SleepForARound returns false.
  bool SleepForARound() {
    pollfd p = {fds_[0], POLLIN, 0};
    while (poll(&p, 1, 0) == 1) {  // written in the meantime
      char c;
      if (read(fds_[0], &c, 1) != 1) Fail("read");
    }
    const int n = poll(&p, 1, 20'000);
    if (n == 0) Fail("the ticker stands still beside a sleeper");
    return n > 0;
  }

 private:
  int fds_[2] = {-1, -1};
  std::atomic<int> n_ = 0;
  std::atomic<bool> stop_ = false;
  sync::WaitGroup wg_;
};

// ---- The table: the number of Ps, the sources, and when they go

std::string SourcesName(int sources) {
  std::string name;
  if ((sources & kRoot) != 0) name += "Chroot";
  if ((sources & kPath) != 0) name += "Path";
  if ((sources & kTaskDir) != 0) name += "TaskDir";
  if ((sources & kClock) != 0) name += "Clock";
  return name;
}

using Row = std::tuple<int, int, bool>;

std::string RowName(const ::testing::TestParamInfo<Row>& row) {
  const auto [n, sources, later] = row.param;
  return SourcesName(sources) + (later ? "_Later" : "_FromTheStart") +
         "_GOMAXPROCS" + std::to_string(n);
}

class UnseenDeathTest : public ::testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    if (!DenyCalls::Possible()) GTEST_SKIP() << "no seccomp";
    if ((Sources() & kRoot) != 0 && geteuid() != 0) {
      GTEST_SKIP() << "only root may chroot";
    }
    const bool later = std::get<2>(GetParam());
    if (rt::kSanitizerBuild && !later && (Sources() & (kPath | kRoot)) != 0) {
      GTEST_SKIP() << "sanitizers need /proc when they start";
    }
  }
  static int Sources() { return std::get<1>(GetParam()); }
  // Child calls f in Run, as RunIn, and ends the process.
  [[noreturn]] static void Child(absl::FunctionRef<void()> f) {
    const auto [n, sources, later] = GetParam();
    RunIn(n, sources, later, [&] {
      f();
      std::_Exit(7);
    });
    Fail("Run returned");
  }
};

// Release has every row. The rows differ in decisions, and not in memory that
// goroutines share. So with a sanitizer a few rows stand for all.
std::vector<int> Procs() {
  if constexpr (rt::kSanitizerBuild) return {2};
  return {1, 2};
}
std::vector<int> SourcesThatGo() {
  if constexpr (rt::kSanitizerBuild) {
    return {kClock, kPath | kTaskDir | kClock, kRoot | kTaskDir};
  }
  return {kPath,
          kClock,
          kPath | kClock,
          kPath | kTaskDir,
          kPath | kTaskDir | kClock,
          kRoot,
          kRoot | kClock,
          kRoot | kTaskDir};
}
INSTANTIATE_TEST_SUITE_P(
    , UnseenDeathTest,
    ::testing::Combine(::testing::ValuesIn(Procs()),
                       ::testing::ValuesIn(SourcesThatGo()), ::testing::Bool()),
    RowName);

TEST_P(UnseenDeathTest, ComputingHoldsUpNoGoroutine) {
  EXPECT_EXIT(Child([] {
                Ticker t;
                for (int i = 0; i < 3; i++) t.ComputeForARound();
              }),
              ::testing::ExitedWithCode(7), "");
}

// Other goroutines compute on all Ps.
TEST_P(UnseenDeathTest, ComputingTogetherHoldsUpNoGoroutine) {
  EXPECT_EXIT(Child([] {
                Ticker t;
                sync::WaitGroup wg;
                for (int i = 0; i < 4; i++) {
                  wg.Go([&] { t.ComputeForARound(); });
                }
                wg.Wait();
              }),
              ::testing::ExitedWithCode(7), "");
}

TEST_P(UnseenDeathTest, SleepHoldsUpNoGoroutineAndIsNotCutShort) {
  EXPECT_EXIT(Child([] {
                Ticker t;
                for (int i = 0; i < 3; i++) {
                  if (!t.SleepForARound()) Fail("the sleep was cut short");
                }
              }),
              ::testing::ExitedWithCode(7), "");
}

// The thread has used its CPU clock until just before it goes to sleep. A
// thread on its way into the kernel's sleep looks like one that computes, for
// some 10 us, and a signal that meets it there cuts the sleep short. Among
// thousands of such sleeps, one in a thousand met it.
TEST_P(UnseenDeathTest, HardlyAnySleepAfterComputingIsCutShort) {
  EXPECT_EXIT(Child([] {
                Ticker t;
                int cut = 0;
                for (int i = 0; i < 10; i++) {
                  const int64_t end = rt::nanotime() + 2'000'000;
                  while (rt::nanotime() < end) {
                  }
                  if (!t.SleepForARound()) cut++;
                  if (i % 3 == 0) t.ComputeForARound();
                }
                if (cut > 3) Fail("sleeps were cut short");
              }),
              ::testing::ExitedWithCode(7), "");
}

TEST_P(UnseenDeathTest, WorldStopsBesideSleepersAndHogs) {
  EXPECT_EXIT(Child([] {
                Ticker t;
                std::atomic<bool> stop = false;
                std::atomic<int> begun = 0;
                sync::WaitGroup wg;
                wg.Go([&] {
                  begun++;
                  while (!stop) {
                  }
                });
                wg.Go([&] {
                  begun++;
                  while (!stop) (void)t.SleepForARound();
                });
                while (begun < 2) runtime::Gosched();
                for (int i = 0; i < 10; i++) {
                  if (runtime::Stack(true).empty()) Fail("Stack");
                }
                stop = true;
                wg.Wait();
              }),
              ::testing::ExitedWithCode(7), "");
}

// ConfineEveryThread leaves one processor to each thread that there is, and so
// to those that they make.
void ConfineEveryThread() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    const int tid = std::stoi(task.path().filename());
    if (sched_setaffinity(tid, sizeof(one), &one) != 0) Fail("affinity");
  }
}

// The thread that looks has the only processor, so it never sees the hog have
// it.
TEST(UnseenProcessorDeathTest, HogIsPreemptedAfterTheProcessIsConfined) {
  if (!DenyCalls::Possible()) GTEST_SKIP() << "no seccomp";
  if (rt::kSanitizerDefersHandlers) GTEST_SKIP() << "the hog calls no libc";
  EXPECT_EXIT(
      testing::RunWith(2,
                       [] {
                         time::Sleep(absl::Milliseconds(1));
                         ConfineEveryThread();
                         TakeAway(kPath | kTaskDir);
                         std::atomic<bool> stop = false;
                         sync::WaitGroup wg;
                         for (int i = 0; i < 2; i++) {
                           wg.Go([&] {
                             while (!stop) {
                             }
                           });
                         }
                         if (!testing::Eventually([] {
                               return debug::ReadSchedStats().preemptions > 0;
                             })) {
                           Fail("no hog is preempted");
                         }
                         stop = true;
                         wg.Wait();
                         std::_Exit(7);
                       }),
      ::testing::ExitedWithCode(7), "");
}

// The number of threads is unknown, or known from the descriptor only. Either
// way the thread may wake the goroutine, so there is no deadlock.
TEST_P(UnseenDeathTest, PlainThreadThatTheLibraryHasNotSeenIsNoDeadlock) {
  EXPECT_EXIT(Child([] {
                const chan<int> c = make_chan<int>();
                std::thread plain([c] {
                  usleep(50'000);
                  c.Send(1);
                });
                (void)c.Recv();
                plain.join();
              }),
              ::testing::ExitedWithCode(7), "");
}

// ---- Everything else in such a process

void UseTheLibraryWithoutFiles() {
  sync::WaitGroup wg;
  auto l = net::Listen("tcp", "127.0.0.1:0");
  if (!l.ok()) Fail("Listen");
  wg.Go([&] {
    auto c = l->Accept();
    if (!c.ok() || !c->Write("hello").ok()) Fail("Accept");
  });
  auto c = net::Dial("tcp", l->LocalAddr().String());
  if (!c.ok()) Fail("Dial");
  char buf[16];
  auto n = c->Read(buf);
  if (!n.ok() || *n != 5) Fail("Read");
  wg.Wait();
  if (Errno(exec::Cmd("/bin/true").Run()) != ENOENT) Fail("Cmd");
  if (!absl::IsNotFound(os::ReadFile("/proc/self/stat").status())) {
    Fail("ReadFile");
  }
  if (runtime::Stack(true).find("goroutine") == std::string::npos) {
    Fail("Stack");
  }
  runtime::GOMAXPROCS(2);
  runtime::SetDefaultGOMAXPROCS();
  if (runtime::GOMAXPROCS(0) < 1) Fail("GOMAXPROCS");
}

TEST(ChrootDeathTest, ProgramGoesOnInAnEmptyDirectory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may chroot";
  for (const bool later : {false, true}) {
    if (rt::kSanitizerBuild && !later) continue;  // as above
    EXPECT_EXIT(RunIn(1, kRoot, later,
                      [] {
                        UseTheLibraryWithoutFiles();
                        std::_Exit(7);
                      }),
                ::testing::ExitedWithCode(7), "");
  }
}

// ---- The descriptor of /proc/self/task

// TaskDirOf returns the runtime's descriptor, or -1.
int TaskDirOf() {
  for (int fd = 0; fd < 64; fd++) {
    char target[256];
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t n = readlink(link.c_str(), target, sizeof(target));
    const std::string end = "/task";
    if (n <= 0) continue;
    const std::string s(target, static_cast<size_t>(n));
    if (s.size() > end.size() && s.ends_with(end)) return fd;
  }
  return -1;
}

TEST(TaskDirDeathTest, DescriptorIsAboveTheStandardOnes) {
  EXPECT_EXIT(
      {
        close(STDIN_FILENO);
        testing::RunWith(1, [] {
          if (TaskDirOf() <= STDERR_FILENO) Fail("TaskDirOf");
        });
        std::_Exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(TaskDirDeathTest, ProgramMayCloseAndReuseTheDescriptor) {
  EXPECT_EXIT(testing::RunWith(1,
                               [] {
                                 const int fd = TaskDirOf();
                                 const int null = open("/dev/null", O_RDONLY);
                                 if (fd < 0 || dup2(null, fd) != fd) {
                                   Fail("dup2");
                                 }
                                 Ticker t;
                                 t.SleepForARound();
                                 t.ComputeForARound();
                                 std::_Exit(7);
                               }),
              ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gump
