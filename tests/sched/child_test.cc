// Children of exec::Cmd: what they inherit, and what becomes of the threads
// that make them. Each death test starts this program again, so that its
// process has attributes of its own before the runtime begins.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "tests/testing/sleep_on_threads.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

extern char** environ;

namespace gump {
namespace {

using debug::ReadSchedStats;
using exec::Cmd;
using testing::Eventually;
using testing::RunWith;
using testing::SleepOnThreads;
using testing::Text;

// ---- What a child says about itself -----------------------------------------

// From linux/ioprio.h. Some versions of that header name a parameter `class`,
// so they are not C++.
constexpr int kIoPriorityOfProcess = 1;
constexpr int kBestEffort = 2 << 13;

// SchedAttr is sched_attr(2), which some headers lack.
struct SchedAttr {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t slice;
  uint64_t deadline;
  uint64_t period;
};

void Line(const char* name, long value) {
  std::printf("%s %ld\n", name, value);
}

// File prints the lines of a file that begin with one of the words.
void File(const char* path, const std::vector<std::string_view>& words) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const bool wanted =
        words.empty() ||
        std::any_of(words.begin(), words.end(),
                    [&](std::string_view w) { return line.starts_with(w); });
    if (wanted) std::printf("%s\n", line.c_str());
  }
}

// PrintAttributes prints what a program inherits from its parent.
void PrintAttributes() {
  Line("timer slack", prctl(PR_GET_TIMERSLACK));
  prctl(PR_SET_TIMERSLACK, 0);
  Line("default timer slack", prctl(PR_GET_TIMERSLACK));
  SchedAttr attr = {};
  syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0);
  Line("scheduling class", attr.policy);
  Line("scheduling flags", static_cast<long>(attr.flags));
  Line("nice value", attr.nice);
  Line("priority", attr.priority);
  Line("slice", static_cast<long>(attr.slice));
  for (int i = 0; i < RLIM_NLIMITS; i++) {
    rlimit limit = {};
    getrlimit(static_cast<__rlimit_resource>(i), &limit);
    std::printf("limit %d: %ld %ld\n", i, static_cast<long>(limit.rlim_cur),
                static_cast<long>(limit.rlim_max));
  }
  Line("personality", personality(0xffffffff));
  Line("umask", umask(0));
  Line("process group", getpgrp());
  Line("session", getsid(0));
  Line("I/O priority", syscall(SYS_ioprio_get, kIoPriorityOfProcess, 0));
  int policy = -1;
  syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0);
  Line("memory policy", policy);
  Line("dumpable", prctl(PR_GET_DUMPABLE));
  Line("secure bits", prctl(PR_GET_SECUREBITS));
  Line("keeps capabilities", prctl(PR_GET_KEEPCAPS));
  Line("huge pages disabled", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
  int value = -1;
  prctl(PR_GET_CHILD_SUBREAPER, &value);
  Line("subreaper", value);
  prctl(PR_GET_PDEATHSIG, &value);
  Line("death signal", value);
  File("/proc/self/status",
       {"Umask", "Uid", "Gid", "Groups", "SigPnd", "ShdPnd", "SigBlk", "SigIgn",
        "SigCgt", "Cap", "NoNewPrivs", "Seccomp", "Speculation", "Cpus_allowed",
        "Mems_allowed", "CoreDumping", "THP_enabled"});
  File("/proc/self/cgroup", {});
  File("/proc/self/oom_score_adj", {});
  File("/proc/self/coredump_filter", {});
  char link[256];
  for (const char* path :
       {"/proc/self/cwd", "/proc/self/root", "/proc/self/ns/mnt",
        "/proc/self/ns/net", "/proc/self/ns/pid", "/proc/self/ns/user",
        "/proc/self/ns/uts", "/proc/self/ns/ipc", "/proc/self/ns/cgroup"}) {
    const ssize_t n = readlink(path, link, sizeof(link));
    std::printf("%s %.*s\n", path, static_cast<int>(n), link);
  }
  for (int fd = 0; fd < 64; fd++) {
    if (fcntl(fd, F_GETFD) >= 0) Line("descriptor", fd);
  }
}

// kAsk asks a child of this program to be one of the following.
constexpr char kAsk[] = "GUMP_CHILD_TEST";

// A child: prints its attributes, or asks for a signal at the end of its parent
// and then waits to be killed.
[[maybe_unused]] const bool kNoChild = [] {
  const char* ask = std::getenv(kAsk);
  if (ask == nullptr) return true;
  if (std::string_view(ask) == "attributes") {
    PrintAttributes();
    std::fflush(stdout);
    _exit(0);
  }
  if (std::string_view(ask) == "mortal") {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (write(1, "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  return true;
}();

std::vector<std::string> Asking(const char* what) {
  std::vector<std::string> env;
  for (char** kv = environ; *kv != nullptr; kv++) env.emplace_back(*kv);
  env.push_back(std::string(kAsk) + "=" + what);
  return env;
}

// PlainAttributes asks a child of fork, with the descriptors that a Cmd would
// give it. (posix_spawn of glibc lets its children ignore the two signals that
// glibc keeps for itself.)
std::string PlainAttributes() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) std::abort();
  std::vector<std::string> env = Asking("attributes");
  std::vector<char*> envp;
  for (std::string& kv : env) envp.push_back(kv.data());
  envp.push_back(nullptr);
  char self[] = "/proc/self/exe";
  char* argv[] = {self, nullptr};
  const pid_t pid = fork();
  if (pid < 0) std::abort();
  if (pid == 0) {
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    dup2(fds[1], 1);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
    execve(self, argv, envp.data());
    _exit(127);
  }
  close(fds[1]);
  std::string all;
  char buf[4096];
  for (ssize_t n; (n = read(fds[0], buf, sizeof(buf))) > 0;) {
    all.append(buf, static_cast<size_t>(n));
  }
  close(fds[0]);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return all;
}

std::string CmdAttributes() {
  Cmd cmd("/proc/self/exe");
  cmd.SetEnv(Asking("attributes"));
  const auto out = cmd.Output();
  return out.ok() ? *out : Text(out.status());
}

// ValueOf returns what follows the name in the lines of attributes.
std::string ValueOf(const std::string& attributes, const std::string& name) {
  const size_t at = attributes.find("\n" + name);
  if (at == std::string::npos) return "none";
  const size_t from = at + 1 + name.size();
  return attributes.substr(from, attributes.find('\n', from) - from);
}

// Differences lists the lines that differ.
std::string Differences(const std::string& want, const std::string& got) {
  std::string all;
  size_t w = 0;
  size_t g = 0;
  while (w < want.size() || g < got.size()) {
    const auto next = [](const std::string& text, size_t* at) {
      const size_t from = std::min(*at, text.size());
      const size_t to = std::min(text.find('\n', from), text.size());
      *at = to + 1;
      return text.substr(from, to - from);
    };
    const std::string a = next(want, &w);
    const std::string b = next(got, &g);
    if (a != b) all += "want " + a + ", got " + b + "; ";
  }
  return all;
}

// ---- What a child inherits --------------------------------------------------

constexpr long kSlack = 77'000;  // ns
constexpr int kNicest = 19;      // the largest nice value

// SetAttributes gives this process attributes that are not the usual ones. The
// signals that the runtime handles are ignored.
void SetAttributes() {
  prctl(PR_SET_TIMERSLACK, kSlack);
  if (nice(3) == -1) std::abort();
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof(cpus), &cpus);
  for (int i = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET(i, &cpus)) continue;
    CPU_ZERO(&cpus);
    CPU_SET(i, &cpus);
  }
  sched_setaffinity(0, sizeof(cpus), &cpus);
  sigset_t set;
  sigemptyset(&set);
  for (const int sig : {SIGUSR1, SIGTERM, SIGURG, SIGRTMIN + 3}) {
    sigaddset(&set, sig);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  for (const int sig : {SIGHUP, SIGPIPE, SIGURG, SIGSEGV, SIGBUS, SIGQUIT}) {
    ::signal(sig, SIG_IGN);
  }
  const rlimit files = {200, 300};
  setrlimit(RLIMIT_NOFILE, &files);
  const rlimit cores = {0, 1 << 20};
  setrlimit(RLIMIT_CORE, &cores);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  umask(027);
  syscall(SYS_ioprio_set, kIoPriorityOfProcess, 0, kBestEffort | 6);
  SchedAttr attr = {};
  syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0);
  attr.policy = SCHED_BATCH;
  syscall(SYS_sched_setattr, 0, &attr, 0);
}

void SleepPrecisely() {
  EXPECT_TRUE(Eventually([] {
    time::Sleep(absl::Milliseconds(1));
    return prctl(PR_GET_TIMERSLACK) < 1000;
  }));
}

// Compare ends this process with code 0 if a child that f makes is like a
// child of fork that was made before the runtime began.
template <class F>
[[noreturn]] void Compare(int procs, F f) {
  const int usual = getpriority(PRIO_PROCESS, 0);
  SetAttributes();
  const std::string want = PlainAttributes();
  std::string got;
  RunWith(procs, [&] { f(&got); });
  const std::string differences = Differences(want, got);
  std::fprintf(stderr, "%s", differences.c_str());
  const bool set = ValueOf(want, "default timer slack ") == "77000" &&
                   ValueOf(want, "nice value ") ==
                       std::to_string(std::min(usual + 3, kNicest));
  std::_Exit(differences.empty() && set ? 0 : 1);
}

class ChildTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  template <class F>
  void ExpectSame(F f) {
    EXPECT_EXIT(Compare(GetParam(), f), ::testing::ExitedWithCode(0), "");
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(ChildTest);

TEST_P(ChildTest, ChildOfMainInheritsTheStateBeforeTheRuntime) {
  ExpectSame([](std::string* got) { *got = CmdAttributes(); });
}

TEST_P(ChildTest, ChildAfterAStopOfTheWorldInheritsTheStateBeforeTheRuntime) {
  ExpectSame([](std::string* got) {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      while (!stop) {
      }
    });
    for (int i = 0; i < 20; i++) (void)runtime::GOMAXPROCS(2 + i % 2);
    *got = CmdAttributes();
    stop = true;
    wg.Wait();
  });
}

TEST_P(ChildTest, ChildAfterAPreciseSleepInheritsTheStateBeforeTheRuntime) {
  ExpectSame([](std::string* got) {
    sync::WaitGroup wg;
    wg.Go([got] {
      SleepPrecisely();
      *got = CmdAttributes();
    });
    wg.Wait();
  });
}

TEST_P(ChildTest, ChildAfterDeclaredCallsInheritsTheStateBeforeTheRuntime) {
  ExpectSame([](std::string* got) {
    sync::WaitGroup wg;
    for (int i = 0; i < 8; i++) {
      wg.Go([] { blocking([] { usleep(20'000); }); });
    }
    wg.Go([got] {
      blocking([] { usleep(30'000); });
      *got = CmdAttributes();
    });
    wg.Wait();
  });
}

TEST_P(ChildTest, ChildOfALockedGoroutineInheritsTheStateBeforeTheRuntime) {
  ExpectSame([](std::string* got) {
    sync::WaitGroup wg;
    wg.Go([got] {
      SleepPrecisely();
      runtime::LockOSThread();
      *got = CmdAttributes();
      runtime::UnlockOSThread();
    });
    wg.Wait();
  });
}

TEST_P(ChildTest, ChildOfAPlainThreadInheritsTheStateBeforeTheRuntime) {
  ExpectSame([](std::string* got) {
    // The thread inherits the timer slack of the goroutine's thread.
    SleepPrecisely();
    blocking([got] { std::thread([got] { *got = CmdAttributes(); }).join(); });
  });
}

// A locked goroutine has the thread for itself, so what it sets there is meant
// for its children.
void SetOnPurpose(int procs) {
  SetAttributes();
  std::string got;
  RunWith(procs, [&] {
    sync::WaitGroup wg;
    wg.Go([&] {
      SleepPrecisely();
      runtime::LockOSThread();
      prctl(PR_SET_TIMERSLACK, 12345);
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNicest);
      sigset_t usr2;
      sigemptyset(&usr2);
      sigaddset(&usr2, SIGUSR2);
      pthread_sigmask(SIG_SETMASK, &usr2, nullptr);
      got = CmdAttributes();
    });
    wg.Wait();
  });
  got = "\n" + got;
  std::fprintf(stderr, "%s", got.c_str());
  const std::string blocked = ValueOf(got, "SigBlk:\t");
  // SIGUSR2 is 12, and SIGURG, which the process blocked at the start, is 23.
  const bool same = ValueOf(got, "timer slack ") == "12345" &&
                    ValueOf(got, "nice value ") == std::to_string(kNicest) &&
                    blocked == "0000000000400800";
  std::_Exit(same ? 0 : 1);
}

TEST_P(ChildTest, ChildOfALockedGoroutineInheritsTheStateOfItsThread) {
  EXPECT_EXIT(SetOnPurpose(GetParam()), ::testing::ExitedWithCode(0), "");
}

// A thread that came to Run goes back as it was.
void SlackAfterRun(int procs) {
  prctl(PR_SET_TIMERSLACK, kSlack);
  bool precise = false;
  for (int round = 0; round < 1000 && !precise; round++) {
    RunWith(procs, [&] {
      const pid_t first = getpid();
      std::atomic<bool> stop = false;
      sync::WaitGroup wg;
      wg.Go([&] {
        while (!stop) {
        }
      });
      for (int i = 0; i < 10; i++) (void)runtime::GOMAXPROCS(2 + i % 2);
      stop = true;
      precise = gettid() == first && prctl(PR_GET_TIMERSLACK) < 1000;
      wg.Wait();
    });
    if (prctl(PR_GET_TIMERSLACK) != kSlack) std::_Exit(1);
  }
  std::_Exit(precise ? 0 : 2);
}

TEST_P(ChildTest, RunRestoresTheTimerSlackOfItsThread) {
  EXPECT_EXIT(SlackAfterRun(GetParam()), ::testing::ExitedWithCode(0), "");
}

TEST_P(ChildTest, ChildOfForkHasTheTimerSlackFromBeforeTheRuntime) {
  RunWith(GetParam(), [] {
    SleepPrecisely();
    runtime::LockOSThread();
    const pid_t pid = fork();
    if (pid == 0) _exit(prctl(PR_GET_TIMERSLACK) < 1000 ? 1 : 0);
    int status = -1;
    blocking([&] { return waitpid(pid, &status, 0); });
    EXPECT_EQ(status, 0);
    runtime::UnlockOSThread();
  });
}

// ---- Which threads make children --------------------------------------------

// MortalChildren makes n children on n threads. Each child asks for SIGTERM at
// the end of its maker. The threads are idle when it returns.
std::vector<std::unique_ptr<Cmd>> MortalChildren(int n) {
  std::vector<std::unique_ptr<Cmd>> children(static_cast<size_t>(n));
  std::atomic<int> made = 0;
  sync::WaitGroup wg;
  for (auto& child : children) {
    wg.Go([&child, &made, n] {
      runtime::LockOSThread();  // a thread makes one child
      child = std::make_unique<Cmd>("/proc/self/exe");
      child->SetEnv(Asking("mortal"));
      os::File out = child->StdoutPipe().value();
      const absl::Status s = child->Start();
      EXPECT_TRUE(s.ok()) << Text(s);
      char ready = 0;
      EXPECT_EQ(out.Read({&ready, 1}).value(), 1u);
      made++;
      while (made < n) time::Sleep(absl::Milliseconds(1));
      runtime::UnlockOSThread();
    });
  }
  wg.Wait();
  return children;
}

// EndIdleThreads makes all idle threads end that may.
void EndIdleThreads() {
  const uint64_t before = ReadSchedStats().threads_retired;
  SleepOnThreads(40);
  EXPECT_TRUE(Eventually([&] {
    runtime::GC();
    return ReadSchedStats().threads_retired >= before + 20;
  }));
  for (int i = 0; i < 3; i++) runtime::GC();
}

using MakerTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(MakerTest);

TEST_P(MakerTest, IdleThreadOutlivesTheChildrenThatItMade) {
  Run([] {
    auto children = MortalChildren(12);
    EndIdleThreads();
    // A child whose maker has ended has got SIGTERM by now.
    for (auto& child : children) {
      EXPECT_TRUE(child->Kill().ok());
      EXPECT_EQ(Text(child->Wait()), "signal: killed");
    }
  });
}

TEST_P(MakerTest, IdleThreadEndsAfterTheChildrenThatItMade) {
  Run([] {
    auto children = MortalChildren(12);
    EndIdleThreads();
    const int32_t with = ReadSchedStats().threads;
    EXPECT_GE(with, 12);
    for (auto& child : children) {
      EXPECT_TRUE(child->Kill().ok());
      EXPECT_EQ(Text(child->Wait()), "signal: killed");
    }
    EXPECT_TRUE(Eventually([&] {
      runtime::GC();
      return ReadSchedStats().threads <= with - 3;
    }));
  });
}

TEST_P(MakerTest, FailedStartKeepsNoThread) {
  Run([] {
    SleepOnThreads(40);
    std::atomic<int> failed = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < 12; i++) {
      wg.Go([&] {
        runtime::LockOSThread();
        Cmd none("/proc/self/status");  // not a program
        EXPECT_EQ(Text(none.Start()),
                  "fork/exec /proc/self/status: permission denied");
        failed++;
        while (failed < 12) time::Sleep(absl::Milliseconds(1));
        runtime::UnlockOSThread();
      });
    }
    wg.Wait();
    EXPECT_TRUE(Eventually([] {
      runtime::GC();
      return ReadSchedStats().threads <= runtime::GOMAXPROCS(0) + 8;
    }));
  });
}

// A locked goroutine that ends takes its thread along, and the kernel sends
// the signal, as in Go.
TEST_P(MakerTest, EndOfALockedGoroutineIsTheEndOfItsThread) {
  Run([] {
    Cmd child("/proc/self/exe");
    child.SetEnv(Asking("mortal"));
    os::File out = child.StdoutPipe().value();
    sync::WaitGroup wg;
    wg.Go([&] {
      runtime::LockOSThread();
      EXPECT_TRUE(child.Start().ok());
      char ready = 0;
      EXPECT_EQ(out.Read({&ready, 1}).value(), 1u);
    });
    wg.Wait();
    EXPECT_EQ(Text(child.Wait()), "signal: terminated");
  });
}

}  // namespace
}  // namespace gump
