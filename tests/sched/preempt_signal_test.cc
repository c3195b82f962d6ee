// Preemption beside the effects of the kernel and of other programs:
// * signals for every thread, and handlers that do not restart calls
// * a thread that has given its signal stack up
// * a kernel without membarrier
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/no_descriptors.h"
#include "tests/testing/talk.h"
#include "tests/testing/with_gomaxprocs.h"

extern char** environ;

namespace gump {
namespace {

using testing::Talk;
using namespace std::chrono_literals;

// Hogs compute, and never enter the runtime.
class Hogs {
 public:
  explicit Hogs(int n) {
    for (int i = 0; i < n; i++) {
      wg_.Go([this] {
        begun_++;
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
    }
    while (begun_ < n) runtime::Gosched();
  }
  ~Hogs() {
    stop_ = true;
    wg_.Wait();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> begun_ = 0;
  sync::WaitGroup wg_;
};

using PreemptKernelTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(PreemptKernelTest);

// Readers block n goroutines in raw reads until they are released.
class Readers {
 public:
  explicit Readers(int n) : n_(n) {
    EXPECT_EQ(pipe(fds_), 0);
    for (int i = 0; i < n; i++) {
      wg_.Go([this] {
        begun_++;
        char c = 0;
        EXPECT_EQ(read(fds_[0], &c, 1), 1) << strerror(errno);
      });
    }
    while (begun_ < n) runtime::Gosched();
  }
  ~Readers() {
    const std::string text(static_cast<size_t>(n_), 'x');
    EXPECT_EQ(write(fds_[1], text.data(), text.size()), n_);
    wg_.Wait();
    close(fds_[0]);
    close(fds_[1]);
  }

 private:
  const int n_;
  int fds_[2];
  std::atomic<int> begun_ = 0;
  sync::WaitGroup wg_;
};

TEST_P(PreemptKernelTest, TickerTicksBesideHogs) {
#if defined(GUMP_TSAN)
  GTEST_SKIP() << "never calls libc";
#endif
  Run([] {
    const Hogs hogs(4);
    auto ticker = time::NewTicker(1ms);
    absl::Time last = *ticker.C.Recv();
    for (int i = 0; i < 20; i++) {
      const absl::Time now = *ticker.C.Recv();
      EXPECT_GT(now, last);
      last = now;
    }
  });
}

// More raw calls of waitpid than Ps. None is interrupted.
TEST_P(PreemptKernelTest, ChildrenAreWaitedFor) {
  Run([] {
    constexpr int kChildren = 12;
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[0], STDIN_FILENO);
    std::atomic<int> begun = 0;
    std::atomic<int> ended = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < kChildren; i++) {
      char* argv[] = {const_cast<char*>("sh"), const_cast<char*>("-c"),
                      const_cast<char*>("read x; exit 5"), nullptr};
      pid_t pid = -1;
      ASSERT_EQ(posix_spawn(&pid, "/bin/sh", &actions, nullptr, argv, environ),
                0);
      wg.Go([&, pid] {
        begun++;
        int status = -1;
        EXPECT_EQ(waitpid(pid, &status, 0), pid) << strerror(errno);
        EXPECT_EQ(WEXITSTATUS(status), 5);
        ended++;
      });
    }
    posix_spawn_file_actions_destroy(&actions);
    while (begun < kChildren) runtime::Gosched();
    Talk(100);
    EXPECT_EQ(ended, 0);
    close(fds[0]);
    close(fds[1]);
    wg.Wait();
  });
}

// Storm sends SIGURG to every thread but its own, every 50 µs or so.
class Storm {
 public:
  Storm()
      : thread_([this] {
          while (!stop_) {
            Signal();
            rounds_++;
            usleep(50);
          }
        }) {}
  ~Storm() {
    stop_ = true;
    blocking([this] { thread_.join(); });
  }
  // Over returns whether there has been enough of it.
  bool Over() const { return rounds_ >= (rt::kSanitizerBuild ? 100 : 1000); }

 private:
  static void Signal() {
    DIR* tasks = opendir("/proc/self/task");
    if (tasks == nullptr) return;
    while (const dirent* d = readdir(tasks)) {
      const pid_t tid = std::atoi(d->d_name);
      if (tid > 0 && tid != gettid())
        syscall(SYS_tgkill, getpid(), tid, SIGURG);
    }
    closedir(tasks);
  }

  std::atomic<bool> stop_ = false;
  std::atomic<int> rounds_ = 0;
  std::thread thread_;
};

// NoRestart takes SA_RESTART from the handler of SIGURG.
class NoRestart {
 public:
  NoRestart() {
    sigaction(SIGURG, nullptr, &before_);
    struct sigaction action = before_;
    action.sa_flags &= ~SA_RESTART;
    sigaction(SIGURG, &action, nullptr);
  }
  ~NoRestart() { sigaction(SIGURG, &before_, nullptr); }

 private:
  struct sigaction before_;
};

void Echo() {
  auto listener = net::Listen("tcp", "127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  sync::WaitGroup wg;
  wg.Go([&] {
    auto conn = listener->Accept();
    ASSERT_TRUE(conn.ok()) << conn.status();
    char buf[64];
    for (;;) {
      auto n = conn->Read(absl::MakeSpan(buf));
      ASSERT_TRUE(n.ok()) << n.status();
      if (*n == 0) break;
      EXPECT_TRUE(conn->Write({buf, *n}).ok());
    }
  });
  auto conn = net::Dial("tcp", listener->LocalAddr().String());
  ASSERT_TRUE(conn.ok()) << conn.status();
  for (int i = 0; i < 50; i++) {
    EXPECT_TRUE(conn->Write("hello").ok());
    char buf[5];
    for (size_t got = 0; got < 5;) {
      auto n = conn->Read(absl::MakeSpan(buf).subspan(got));
      ASSERT_TRUE(n.ok()) << n.status();
      ASSERT_GT(*n, 0u);
      got += *n;
    }
    EXPECT_EQ(std::string(buf, 5), "hello");
  }
  EXPECT_TRUE(conn->Close().ok());
  wg.Wait();
  EXPECT_TRUE(listener->Close().ok());
}

void UseFiles(int who) {
  const std::string path = ::testing::TempDir() + "/gump_storm_" +
                           std::to_string(getpid()) + "_" + std::to_string(who);
  const std::string data(100'000, 'd');
  for (int i = 0; i < 5; i++) {
    const absl::Status s = os::WriteFile(path, data, 0600);
    EXPECT_TRUE(s.ok()) << s;
    const auto read = os::ReadFile(path);
    EXPECT_TRUE(read.ok() && *read == data) << read.status();
    auto file = os::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    char buf[100];
    const auto n = file->ReadAt(absl::MakeSpan(buf), 5000);
    EXPECT_TRUE(n.ok() && *n == sizeof(buf)) << n.status();
    EXPECT_TRUE(file->Close().ok());
  }
  unlink(path.c_str());
}

void RunPrograms() {
  for (int i = 0; i < 3; i++) {
    const auto out = exec::Cmd("/bin/sh", "-c", "echo hello").Output();
    EXPECT_TRUE(out.ok() && *out == "hello\n") << out.status();
  }
}

void LookUp() {
  for (int i = 0; i < 3; i++) {
    const auto hosts = net::LookupHost({}, "localhost");
    EXPECT_TRUE(hosts.ok()) << hosts.status();
  }
}

void KeepTime() {
  for (int i = 0; i < 10; i++) {
    const auto end = std::chrono::steady_clock::now() + 2ms;
    time::Sleep(2ms);
    EXPECT_GE(std::chrono::steady_clock::now(), end);
  }
}

// No call of the library returns because of a signal, even of one that
// interrupts system calls without a restart.
TEST_P(PreemptKernelTest, StormChangesNoCallOfOurs) {
  Run([] {
    const NoRestart no_restart;
    const Storm storm;
    sync::WaitGroup wg;
    const auto throughout = [&](auto f) {
      wg.Go([&storm, f] {
        do {
          f();
        } while (!storm.Over() && !::testing::Test::HasFailure());
      });
    };
    for (int i = 0; i < 2; i++) {
      throughout(Echo);
      throughout([i] { UseFiles(i); });
      throughout(RunPrograms);
      throughout(LookUp);
      throughout(KeepTime);
      throughout([] { Talk(500); });
    }
    // A plain thread that waits.
    std::thread t([] { KeepTime(); });
    blocking([&t] { t.join(); });
    wg.Wait();
  });
}

// HogsAreStopped makes locked goroutines compute on threads that have a signal
// stack of `size` bytes. At 0, they have none.
void HogsAreStopped(size_t size) {
  constexpr int kHogs = 3;
  std::atomic<bool> stop = false;
  std::atomic<int> begun = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < kHogs; i++) {
    wg.Go([&] {
      runtime::LockOSThread();
      std::vector<char> memory(size);
      stack_t own = {};
      own.ss_sp = memory.data();
      own.ss_size = size;
      own.ss_flags = size == 0 ? SS_DISABLE : 0;
      stack_t before = {};
      EXPECT_EQ(sigaltstack(&own, &before), 0);
      begun++;
      while (!stop.load(std::memory_order_relaxed)) {
      }
      EXPECT_EQ(sigaltstack(&before, nullptr), 0);
      runtime::UnlockOSThread();
    });
  }
  while (begun < kHogs) runtime::Gosched();
  Talk(20);
  stop = true;
  wg.Wait();
}

// A thread that has no signal stack takes the signal on the goroutine's.
TEST_P(PreemptKernelTest, ThreadsNeedNoSignalStack) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "wants to know the stack";
  Run([] { HogsAreStopped(0); });
}

// The usual size is enough, small as it is.
TEST_P(PreemptKernelTest, SignalStacksMayBeSmall) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "has large frames";
  Run([] { HogsAreStopped(static_cast<size_t>(sysconf(_SC_SIGSTKSZ))); });
}

// TimeWithoutP is how long main is without its P, the only one, while another
// goroutine sleeps in the kernel.
std::chrono::nanoseconds TimeWithoutP() {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  std::atomic<std::chrono::steady_clock::time_point> start;
  sync::WaitGroup wg;
  wg.Go([&] {
    start = std::chrono::steady_clock::now();
    char c;
    EXPECT_EQ(read(fds[0], &c, 1), 1) << strerror(errno);
  });
  runtime::Gosched();
  const auto time = std::chrono::steady_clock::now() - start.load();
  EXPECT_EQ(write(fds[1], "x", 1), 1);
  wg.Wait();
  close(fds[0]);
  close(fds[1]);
  return time;
}

// The best of a few, since the machine may be busy.
TEST(PreemptKernelTimeTest, SleeperLosesItsPWithinMilliseconds) {
  testing::RunWith(1, [] {
    auto best = TimeWithoutP();
    for (int i = 0; i < 10; i++) best = std::min(best, TimeWithoutP());
    EXPECT_LT(best, 25ms);
  });
}

// A change that a locked goroutine makes to its thread stays with that thread.
// The goroutines that it starts are not bound to the thread, and threads that
// are made for them do not have the change.
TEST_P(PreemptKernelTest, ThreadsDoNotInheritFromALockedOne) {
  Run([] {
    constexpr int kChildren = 8;
    sync::WaitGroup wg;
    wg.Go([] {
      runtime::LockOSThread();
      char name[16];
      prctl(PR_GET_NAME, name);
      prctl(PR_SET_NAME, "tainted");
      sigset_t blocked;
      sigset_t before;
      sigemptyset(&blocked);
      sigaddset(&blocked, SIGUSR2);
      pthread_sigmask(SIG_BLOCK, &blocked, &before);
      const pid_t tid = gettid();
      sync::WaitGroup children;
      std::atomic<int> inside = 0;
      for (int i = 0; i < kChildren; i++) {
        children.Go([&] {
          EXPECT_NE(gettid(), tid);
          // All at once, so that there has to be a thread for each.
          blocking([&] {
            inside++;
            while (inside < kChildren) usleep(1000);
          });
          EXPECT_NE(gettid(), tid);
          char own[16];
          prctl(PR_GET_NAME, own);
          EXPECT_STRNE(own, "tainted");
          sigset_t mask;
          pthread_sigmask(SIG_SETMASK, nullptr, &mask);
          EXPECT_FALSE(sigismember(&mask, SIGUSR2));
        });
      }
      children.Wait();
      EXPECT_EQ(gettid(), tid);
      prctl(PR_SET_NAME, name);
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      runtime::UnlockOSThread();
    });
    wg.Wait();
  });
}

// A kernel without membarrier. The signal is sent to sleepers as well. Calls
// that SA_RESTART restarts go on, and no goroutine holds up another.
TEST(PreemptKernelDeathTest, PreemptionWorksWithoutMembarrier) {
#if defined(GUMP_TSAN)
  GTEST_SKIP() << "never calls libc";
#endif
  EXPECT_EXIT(
      {
        testing::Refuse(SYS_membarrier, EPERM);
        testing::RunWith(2, [] {
          EXPECT_FALSE(rt::haveMembarrier());
          const Readers readers(6);
          const Hogs hogs(3);
          Talk(20);
          runtime::GOMAXPROCS(3);
          runtime::GC();
        });
        std::exit(::testing::Test::HasFailure() ? 1 : 7);
      },
      ::testing::ExitedWithCode(7), "");
}

// Without descriptors, the state of a thread is seen by its clock.
TEST_P(PreemptKernelTest, PreemptionWorksWithoutDescriptors) {
  Run([] {
    const testing::NoDescriptors none;
    std::latch open(1);
    sync::WaitGroup asleep;
    for (int i = 0; i < 6; i++) asleep.Go([&] { open.wait(); });
    {
      const Hogs hogs(3);
      Talk(20);
      EXPECT_FALSE(runtime::Stack(true).empty());  // in a stopped world
    }
    open.count_down();
    asleep.Wait();
  });
}

// GODEBUG=asyncpreemptoff=1. No goroutine is preempted in place. But goroutines
// that enter the runtime yield, and those that sleep lose their P.
TEST(PreemptKernelDeathTest, AsyncpreemptoffLeavesTheOtherWays) {
  EXPECT_EXIT(
      {
        setenv("GODEBUG", "asyncpreemptoff=1", /*overwrite=*/1);
        testing::RunWith(1, [] {
          const Readers readers(3);
          std::atomic<bool> stop = false;
          sync::WaitGroup wg;
          wg.Go([&] {
            wg.Go([&] { stop = true; });
            auto c = make_chan<int>(1);
            while (!stop) {
              for (int i = 0; i < 100'000 && !stop; i++) {
              }
              (void)c.TrySend(1);
            }
          });
          Talk(20);
          wg.Wait();
        });
        const bool none = debug::ReadSchedStats().preemptions == 0;
        std::exit(none && !::testing::Test::HasFailure() ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gump
