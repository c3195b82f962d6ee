// The n-th call of a function of the kernel's fails, for every n, while a
// program starts, spawns, sends, sleeps, makes threads, listens, dials and
// ends. It must end in an error that it can handle, or in a panic or a fatal
// error with the cause; never hang, and when it goes on, it must be able to do
// all of it again, and have no more descriptors than ever.
//
// The program is this file again, in a process of its own (FaultProgram).
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gump/gump.h"
#include "runtime/os_linux.h"
#include "tests/fault/interpose.h"
#include "tests/testing/with_gomaxprocs.h"

extern char** environ;

namespace gump {
namespace {

using testing::faults;

// ---- The program ------------------------------------------------------------

// Errors counts what went wrong, and said so.
struct Errors {
  sync::Mutex mu;
  int n = 0;
  void Add(const char* where, absl::string_view what) {
    mu.Lock();
    n++;
    std::printf("error: %s: %.*s\n", where, static_cast<int>(what.size()),
                what.data());
    mu.Unlock();
  }
  void Check(const char* where, const absl::Status& s) {
    if (!s.ok()) Add(where, s.message());
  }
};

// Guarded calls f, and counts what it throws.
template <class F>
void Guarded(Errors* errors, const char* where, F f) {
  try {
    f();
  } catch (const std::exception& e) {
    errors->Add(where, e.what());
  }
}

void Spawn(Errors* errors) {
  sync::WaitGroup wg;
  auto c = make_chan<int>();
  int started = 0;
  for (int i = 0; i < 200; i++) {
    Guarded(errors, "go", [&] {
      wg.Go([c, i] { c.Send(i); });
      started++;
    });
  }
  for (int i = 0; i < started; i++) c.Recv();
  for (size_t size : {size_t{1} << 20, size_t{8} << 20}) {
    Guarded(errors, "go, large", [&] {
      auto done = make_chan<void>();
      go(GoOptions{.stack_size = size, .name = "large"},
         [done] { done.Send(); });
      done.Recv();
    });
  }
  wg.Wait();
}

void Sleep(Errors* errors) {
  sync::WaitGroup wg;
  for (int i = 0; i < 20; i++) {
    Guarded(errors, "sleep",
            [&] { wg.Go([i] { time::Sleep(absl::Microseconds(i * 50)); }); });
  }
  Guarded(errors, "timer", [&] {
    auto c = make_chan<void>(1);
    auto t = time::AfterFunc(absl::Microseconds(300), [c] { c.Send(); });
    c.Recv();
    time::After(absl::Microseconds(100)).Recv();
  });
  wg.Wait();
}

void Threads(Errors* errors) {
  sync::WaitGroup wg;
  for (int i = 0; i < 4; i++) {
    Guarded(errors, "blocking",
            [&] { wg.Go([] { blocking([] { ::usleep(1000); }); }); });
  }
  Guarded(errors, "LockOSThread", [&] {
    wg.Go([] { runtime::LockOSThread(); });  // its thread ends with it
  });
  wg.Wait();
}

void Serve(Errors* errors, const net::Listener& listener) {
  auto conn = listener.Accept();
  errors->Check("accept", conn.status());
  if (!conn.ok()) {
    (void)listener.Close();  // who dials must not wait for us
    return;
  }
  char buf[8];
  auto n = conn->Read(absl::MakeSpan(buf));
  errors->Check("read", n.status());
  if (n.ok()) errors->Check("write", conn->Write({buf, *n}).status());
  (void)conn->Close();
}

void Network(Errors* errors) {
  auto listener = net::Listen("tcp", "127.0.0.1:0");
  errors->Check("listen", listener.status());
  if (!listener.ok()) return;
  sync::WaitGroup wg;
  bool serving = false;
  Guarded(errors, "go", [&] {
    wg.Go([&] { Serve(errors, *listener); });
    serving = true;
  });
  if (serving) {
    auto conn = net::Dial("tcp", listener->LocalAddr().String());
    errors->Check("dial", conn.status());
    if (!conn.ok()) (void)listener->Close();  // nobody will come
    if (conn.ok()) {
      (void)conn->SetDeadline(absl::Now() + absl::Seconds(30));
      errors->Check("write", conn->Write("hello").status());
      char buf[8];
      auto n = conn->Read(absl::MakeSpan(buf));
      if (n.ok() && *n != 5) errors->Add("read", "cut short");
      errors->Check("read", n.status());
      (void)conn->Close();
    }
  }
  (void)listener->Close();
  wg.Wait();
}

void Everything(Errors* errors) {
  Spawn(errors);
  Sleep(errors);
  Threads(errors);
  Network(errors);
  Sleep(errors);  // in the poller's back end, now that there is one
  Guarded(errors, "GC", [] { runtime::GC(); });
  (void)runtime::Stack(true);
}

size_t Descriptors() {
  size_t n = 0;
  for ([[maybe_unused]] auto& e :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    n++;
  }
  return n;
}

TEST(FaultProgram, DISABLED_Everything) {
  testing::ReadOrder();
  testing::faultsOn = true;
  setvbuf(stdout, nullptr, _IONBF, 0);
  const int code = gump::Run([] {
    runtime::GOMAXPROCS(3);
    Errors first;
    Everything(&first);
    testing::faultsOn = testing::order.ever;
    std::printf("errors=%d\n", first.n);
    for (const testing::Fault& f : faults) {
      std::printf("calls %s=%d refused=%d\n", f.name, f.calls.load(),
                  f.refusals.load());
    }
    // Once more, whole; and a second time to compare.
    Errors second;
    Everything(&second);
    const size_t before = Descriptors();
    Everything(&second);
    // sysmon may have one open for a moment.
    const bool leaked =
        !testing::Eventually([before] { return Descriptors() <= before; });
    std::printf("again errors=%d\nleaked=%d\n", second.n, leaked);
    std::printf("descriptors=%zu\n", before);
    return 0;
  });
  std::printf("returned=%d\n", code);
}

// ---- The one who runs it ----------------------------------------------------

struct Ended {
  int code = -1;  // -1: by a signal; -2: hung
  std::string out;
  std::string err;

  int Figure(const std::string& name) const {
    const size_t at = out.find("\n" + name + "=");
    return at == std::string::npos
               ? -1
               : std::atoi(out.c_str() + at + name.size() + 2);
  }
};

// RunProgram; ring: with io_uring for everything.
Ended RunProgram(const std::string& fault, bool ring) {
  char self[PATH_MAX] = {};
  EXPECT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  int out[2];
  int err[2];
  EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  std::vector<std::string> env;
  for (char** e = environ; *e != nullptr; e++) env.emplace_back(*e);
  env.push_back("GUMP_FAULT=" + fault);
  if (ring) env.push_back("GODEBUG=netpoll=uring");
  std::vector<char*> envp;
  for (std::string& e : env) envp.push_back(e.data());
  envp.push_back(nullptr);
  std::string args[] = {self, "--gtest_also_run_disabled_tests",
                        "--gtest_filter=FaultProgram.*"};
  char* argv[] = {args[0].data(), args[1].data(), args[2].data(), nullptr};
  pid_t pid = -1;
  EXPECT_EQ(posix_spawn(&pid, self, &actions, nullptr, argv, envp.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(err[1]);
  Ended ended;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  pollfd fds[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  for (int open = 2; open > 0;) {
    if (std::chrono::steady_clock::now() > end) {
      kill(pid, SIGQUIT);  // it tells where it hangs
      ended.code = -2;
    }
    if (poll(fds, 2, 1000) <= 0) continue;
    for (pollfd& p : fds) {
      if ((p.revents & (POLLIN | POLLHUP)) == 0) continue;
      char buf[4096];
      const ssize_t n = read(p.fd, buf, sizeof(buf));
      if (n > 0) {
        (p.fd == out[0] ? ended.out : ended.err)
            .append(buf, static_cast<size_t>(n));
      } else {
        p.fd = -p.fd;
        open--;
      }
    }
  }
  close(out[0]);
  close(err[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (ended.code != -2 && WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

// Died tells whether a program ended as one should that cannot go on.
bool Died(const Ended& e) {
  return e.code == 2 && (e.err.find("fatal error: ") != std::string::npos ||
                         e.err.find("panic: ") != std::string::npos);
}

struct Kind {
  const char* name;
  int error;
  bool may_die;             // without it there is no way to go on
  bool may_be_ever = true;  // the kernel may refuse for good

  bool OfRing() const { return std::string(name).rfind("io_uring", 0) == 0; }
  std::string Name() const {
    return std::string(name) + "_" + strerrorname_np(error);
  }
};

void PrintTo(const Kind& k, std::ostream* os) { *os << k.Name(); }

class FaultTest : public ::testing::TestWithParam<Kind> {
 protected:
  static std::string Of(int n, bool ever) {
    const Kind& k = GetParam();
    return std::string(k.name) + ":" + std::to_string(n) + ":" +
           std::to_string(k.error) + (ever ? ":ever" : "");
  }
  // Calls is how many of them a program makes to which nothing happens.
  static int Calls() {
    const Ended e = RunProgram("none:0:0", GetParam().OfRing());
    EXPECT_EQ(e.code, 0) << e.out << e.err;
    EXPECT_EQ(e.Figure("errors"), 0) << e.out;
    return e.Figure(std::string("calls ") + GetParam().name);
  }
  // Upto are the numbers from 1 to n, or some of them if they are many.
  static std::vector<int> Upto(int n) {
    std::vector<int> some;
    constexpr int kMost = 16;
    const int step = n / kMost + 1;
    for (int i = 1; i <= n; i += i < kMost / 2 ? 1 : step) some.push_back(i);
    return some;
  }
};

TEST_P(FaultTest, OneRefusalIsSurvived) {
  const int calls = Calls();
  if (calls == 0 && GetParam().OfRing()) GTEST_SKIP() << "no io_uring";
  EXPECT_GT(calls, 0);
  int died = 0;
  for (int n : Upto(calls)) {
    const Ended e = RunProgram(Of(n, /*ever=*/false), GetParam().OfRing());
    SCOPED_TRACE(Of(n, false) + "\n" + e.out + e.err);
    if (GetParam().may_die && Died(e)) {
      died++;
      continue;
    }
    EXPECT_EQ(e.code, 0);
    EXPECT_EQ(e.Figure("again errors"), 0);
    EXPECT_EQ(e.Figure("leaked"), 0);
    EXPECT_EQ(e.Figure("returned"), 0);
  }
  RecordProperty("calls", calls);
  RecordProperty("died", died);
  std::printf("%s: %d calls, %zu refused in turn, %d of them fatal\n",
              GetParam().Name().c_str(), calls, Upto(calls).size(), died);
}

TEST_P(FaultTest, RefusalsWithoutEndDoNotHang) {
  if (!GetParam().may_be_ever) return;
  for (int n : {1, 3, 20}) {
    const Ended e = RunProgram(Of(n, /*ever=*/true), GetParam().OfRing());
    SCOPED_TRACE(Of(n, true) + "\n" + e.out + e.err);
    EXPECT_TRUE(e.code == 0 || Died(e)) << e.code;
  }
}

TEST(FaultStackTest, OneThatIsRefusedForAMomentIsNoDeadlock) {
  gump::Run([] {
    auto done = make_chan<void>();
    testing::order = {"mmap", 1, ENOMEM, /*ever=*/true, /*most=*/4};
    testing::faultsOn = true;
    go(GoOptions{.stack_size = 64 << 20}, [done] { done.Send(); });
    done.Recv();  // nobody else is there
    testing::faultsOn = false;
    EXPECT_EQ(faults[0].refusals, 4);
  });
}

TEST(FaultThreadTest, NoThreadAtAllIsFatalInGosWords) {
  struct Case {
    int error;
    std::string advice;
  };
  // Short of threads for good; and for a reason that retrying does not help.
  for (const Case& c :
       {Case{EAGAIN,
             "runtime: may need to increase max user processes (ulimit -u)\n"},
        Case{EPERM, ""}}) {
    const std::string error = std::to_string(c.error);
    const Ended e =
        RunProgram("pthread_create:1:" + error + ":ever", /*ring=*/false);
    EXPECT_EQ(e.code, 2) << e.err;
    EXPECT_EQ(e.err.find("runtime: failed to create new OS thread (have "), 0u)
        << e.err;
    EXPECT_NE(e.err.find(" already; errno=" + error + ")\n" + c.advice +
                         "fatal error: newosproc\n"),
              std::string::npos)
        << e.err;
  }
}

TEST(FaultStackTest, AnotherRefusalSoonAfterIsNoDeadlockEither) {
  gump::Run([] {
    auto done = make_chan<void>();
    const int before = faults[0].refusals;
    for (int i = 1; i <= 3; i++) {
      testing::order = {"mmap", 1, ENOMEM, /*ever=*/true,
                        /*most=*/before + 4 * i};
      testing::faultsOn = true;
      // Of a size that nobody has left behind.
      const size_t size = static_cast<size_t>(64 + i) << 20;
      go(GoOptions{.stack_size = size}, [done] { done.Send(); });
      done.Recv();
      testing::faultsOn = false;
      EXPECT_EQ(faults[0].refusals, before + 4 * i);
      // Longer than anybody without a stack is given in all.
      const int64_t end = rt::nanotime() + 150'000'000;
      while (rt::nanotime() < end) {
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    , FaultTest,
    ::testing::Values(
        Kind{"mmap", ENOMEM, true}, Kind{"madvise", ENOMEM, false},
        Kind{"mprotect", ENOMEM, false}, Kind{"process_madvise", EPERM, false},
        Kind{"pthread_create", EAGAIN, false}, Kind{"futex", EINTR, false},
        Kind{"epoll_pwait2", ENOSYS, false},
        Kind{"epoll_create1", EMFILE, true}, Kind{"epoll_ctl", ENOSPC, true},
        Kind{"epoll_wait", EINTR, false, false}, Kind{"eventfd", EMFILE, true},
        Kind{"sigaltstack", ENOMEM, false}, Kind{"socket", EMFILE, false},
        Kind{"bind", EADDRINUSE, false}, Kind{"listen", EADDRINUSE, false},
        Kind{"accept4", EMFILE, false}, Kind{"connect", ENETUNREACH, false},
        Kind{"io_uring_setup", ENOMEM, false},
        Kind{"io_uring_enter", EINTR, false, false},
        Kind{"io_uring_enter", EAGAIN, false, false},
        Kind{"io_uring_enter", EBUSY, false, false}),
    [](const ::testing::TestParamInfo<Kind>& kind) {
      return kind.param.Name();
    });

}  // namespace
}  // namespace gump
