// The n-th call of a function of the kernel's fails, for every n, while a
// program starts, spawns, sleeps, makes threads, listens and dials. The same is
// done for every n while its main ends and other goroutines have not ended.
//
// The program must end in an error that it can handle, or in a panic or a fatal
// error with the cause. It must never hang. If it goes on, it must be able to
// do all of it again. In the end it must have no more descriptors, goroutines
// and threads than a program that is refused nothing.
//
// The program is this file again, in a process of its own (FaultProgram). The
// number of its calls differs from run to run. So n goes up until there is no
// n-th call in several runs in a row. n only goes up after a run that had an
// n-th call.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gump/gump.h"
#include "runtime/sys/os_linux.h"
#include "tests/fault/interpose.h"
#include "tests/fault/program.h"

extern char** environ;

namespace gump {
namespace {

using testing::Errors;
using testing::faults;
using testing::faultsOn;
using testing::order;
using testing::Rest;

// ---- The program ------------------------------------------------------------

void PrintCalls() {
  for (const testing::Fault& f : faults) {
    std::printf("calls %s=%d\n", f.name, f.calls.load());
  }
}

// DoAgain does the work once more. That must be possible when refusals have
// ended.
void DoAgain() {
  Errors errors;
  testing::Work(&errors);
  const Rest r = testing::LookUntilAtRest();
  std::printf(
      "again errors=%d\ndescriptors=%d\ngoroutines=%d\nthreads=%d\n"
      "uncounted=%d\n",
      errors.n, r.descriptors, r.goroutines, r.threads, r.uncounted);
}

// Conclude ends the refusals, reports them, and does the work once more.
void Conclude(const Errors& first) {
  faultsOn = false;
  std::printf("errors=%d\n", first.n);
  PrintCalls();
  DoAgain();
}

TEST(FaultProgram, DISABLED_FromTheStart) {
  testing::ReadOrder();
  faultsOn = true;
  setvbuf(stdout, nullptr, _IONBF, 0);
  const int code = gump::Run([] {
    runtime::GOMAXPROCS(3);
    Errors first;
    testing::Work(&first);
    if (order.ever) testing::Work(&first);
    Conclude(first);
    return 0;
  });
  std::printf("returned=%d\n", code);
}

TEST(FaultProgram, DISABLED_AtTheEnd) {
  testing::ReadOrder();
  setvbuf(stdout, nullptr, _IONBF, 0);
  Errors first;
  std::unique_ptr<testing::Service> service;
  gump::Run([&] {
    runtime::GOMAXPROCS(3);
    testing::Work(&first);
    service = std::make_unique<testing::Service>(&first);
    runtime::GC();  // few threads are left: more will be needed
    faultsOn = true;
    service->Shutdown();
  });
  faultsOn = false;
  std::printf("errors=%d\n", first.n);
  PrintCalls();
  const int code = gump::Run([&] {
    service->EndLeftovers();
    service.reset();
    DoAgain();
    return 0;
  });
  std::printf("returned=%d\n", code);
}

TEST(FaultProgram, DISABLED_Watches) {
  testing::ReadOrder();
  setvbuf(stdout, nullptr, _IONBF, 0);
  const int code = gump::Run([] {
    Errors first;
    faultsOn = true;
    testing::Watch(&first);
    Conclude(first);
    return 0;
  });
  std::printf("returned=%d\n", code);
}

// New threads are held until Run wants more threads than sysmon's. So the
// template thread, which makes the others, begins late.
TEST(FaultProgram, DISABLED_FirstThreadIsLate) {
  testing::ReadOrder();
  faultsOn = true;
  testing::threadsHeld = true;
  const int code = gump::Run([] {
    runtime::GOMAXPROCS(2);
    auto done = make_chan<void>();
    go([done] { done.Send(); });
    testing::threadsHeld = false;
    done.Recv();
    return 0;
  });
  std::printf("returned=%d\n", code);
}

// ---- The runner -------------------------------------------------------------

struct Ended {
  int code = -1;  // -1: by a signal; -2: hung
  std::string out;
  std::string err;

  bool WasRefused() const {
    return out.find(testing::kRefused) != std::string::npos;
  }
  int Figure(const std::string& name) const {
    const size_t at = out.find("\n" + name + "=");
    return at == std::string::npos
               ? -1
               : std::atoi(out.c_str() + at + name.size() + 2);
  }
};

// The tests of FaultProgram.
enum class Program { kFromTheStart, kAtTheEnd, kWatches, kFirstThreadIsLate };
constexpr const char* kPrograms[] = {"FromTheStart", "AtTheEnd", "Watches",
                                     "FirstThreadIsLate"};

// How it is run.
struct Way {
  bool ring = false;  // with io_uring for everything
  Program program = Program::kFromTheStart;
  std::string rest;  // its limits in the end: GUMP_FAULT_REST
};

Ended RunProgram(const std::string& fault, const Way& way) {
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
  for (char** e = environ; *e != nullptr; e++) {
    // The choice of tests here does not concern the program.
    if (!absl::StartsWith(*e, "GTEST_")) env.emplace_back(*e);
  }
  env.push_back("GUMP_FAULT=" + fault);
  if (way.ring) env.push_back("GODEBUG=netpoll=uring");
  if (!way.rest.empty()) env.push_back("GUMP_FAULT_REST=" + way.rest);
  std::vector<char*> envp;
  for (std::string& e : env) envp.push_back(e.data());
  envp.push_back(nullptr);
  std::string args[] = {self, "--gtest_also_run_disabled_tests",
                        std::string("--gtest_filter=FaultProgram.DISABLED_") +
                            kPrograms[static_cast<int>(way.program)]};
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

struct Kind {
  const char* name;
  int error;
  // Set if there may be no way to go on. The program then ends with these
  // words.
  const char* cause = nullptr;
  bool may_be_ever = true;  // the kernel may refuse for good

  bool OfRing() const { return std::string(name).rfind("io_uring", 0) == 0; }
  std::string Name() const {
    return std::string(name) + "_" + strerrorname_np(error);
  }
};

void PrintTo(const Kind& k, std::ostream* os) { *os << k.Name(); }

// Died tells whether a program that could not go on ended as it should.
bool Died(const Ended& e, const Kind& k) {
  return k.cause != nullptr && e.code == 2 &&
         e.err.find("fatal error: ") != std::string::npos &&
         e.err.find(k.cause) != std::string::npos;
}

// Usual holds the figures of programs that are refused nothing.
class Usual {
 public:
  static const Usual& Of(bool ring, Program program) {
    static std::unique_ptr<Usual> all[2][2];
    std::unique_ptr<Usual>& u = all[ring][program == Program::kAtTheEnd];
    if (u == nullptr) u.reset(new Usual(ring, program));
    return *u;
  }
  // Calls returns how many of these calls each program makes at least.
  int Calls(const char* name) const {
    int least = INT_MAX;
    for (const Ended& e : runs_) {
      least = std::min(least, e.Figure(std::string("calls ") + name));
    }
    return least;
  }
  // Most returns the largest figure that any of them has in the end.
  int Most(const char* what) const {
    int most = -1;
    for (const Ended& e : runs_) most = std::max(most, e.Figure(what));
    return most;
  }
  Way Again() const {
    Way way = way_;
    for (const char* what : kWhat) {
      if (!way.rest.empty()) way.rest += ":";
      way.rest += std::to_string(Most(what));
    }
    return way;
  }

  static constexpr const char* kWhat[] = {"descriptors", "goroutines",
                                          "threads", "uncounted"};

 private:
  Usual(bool ring, Program program) : way_{ring, program, ""} {
    for (int i = 0; i < 3; i++) {
      const Ended e = RunProgram("none:0:0", way_);
      EXPECT_EQ(e.code, 0) << e.out << e.err;
      EXPECT_EQ(e.Figure("errors"), 0) << e.out;
      EXPECT_EQ(e.Figure("goroutines"), 1) << e.out;
      EXPECT_FALSE(e.WasRefused());
      runs_.push_back(e);
    }
  }

  Way way_;
  std::vector<Ended> runs_;
};

// IsUsable checks a program that has gone on.
void IsUsable(const Ended& e, const Usual& usual) {
  EXPECT_EQ(e.code, 0);
  EXPECT_EQ(e.Figure("again errors"), 0);
  EXPECT_EQ(e.Figure("returned"), 0);
  for (const char* what : Usual::kWhat) {
    EXPECT_GE(e.Figure(what), 0) << what;
    EXPECT_LE(e.Figure(what), usual.Most(what)) << what;
  }
}

class FaultTest : public ::testing::TestWithParam<Kind> {
 protected:
  static std::string Of(int n, const char* how) {
    const Kind& k = GetParam();
    return std::string(k.name) + ":" + std::to_string(n) + ":" +
           std::to_string(k.error) + how;
  }
  // Bound returns the figures that a program may reach if its n-th call is
  // refused. They are those of programs that are refused nothing. If the
  // refusal costs the program its ring, they are those of programs without a
  // ring.
  static const Usual& Bound(int n, Program program) {
    const std::string name = GetParam().name;
    const bool lost = n == 1 && program == Program::kFromTheStart &&
                      (name == "io_uring_setup" || name == "io_uring_register");
    return Usual::Of(GetParam().OfRing() && !lost, program);
  }
  // Run refuses the n-th call. how is "" or ":ever".
  static Ended Run(int n, const char* how, Program program) {
    Way way = Bound(n, program).Again();
    way.ring = GetParam().OfRing();
    return RunProgram(Of(n, how), way);
  }
  // EachInTurn refuses the n-th call, for every n.
  static void EachInTurn(Program program);
};

void FaultTest::EachInTurn(Program program) {
  const Kind& k = GetParam();
  const Usual& usual = Usual::Of(k.OfRing(), program);
  const int calls = usual.Calls(k.name);
  // Some runs make far fewer calls than others.
  const auto tries = [calls](int n) { return n <= calls ? 12 : 4; };
  int died = 0;
  int tried = 0;
  int last = 0;
  int in_vain = 0;
  for (int n = 1; in_vain < tries(n);) {
    const Ended e = Run(n, "", program);
    SCOPED_TRACE(Of(n, "") + "\n" + e.out + e.err);
    tried++;
    if (!e.WasRefused()) in_vain++;
    if (e.WasRefused() && Died(e, k)) {
      died++;
    } else {
      IsUsable(e, Bound(n, program));
    }
    if (HasFailure()) break;  // one is enough to read
    if (!e.WasRefused()) continue;
    in_vain = 0;
    last = n;
    n++;
  }
  std::printf(
      "%s, %s: %d calls or more; n = 1 to %d refused; %d runs, %d fatal\n",
      k.Name().c_str(), kPrograms[static_cast<int>(program)], calls, last,
      tried, died);
  // Nothing would be tested if nothing were refused. Ask for a quarter of the
  // calls only, because a run may make fewer calls than any before it.
  EXPECT_GE(last * 4, calls);
}

TEST_P(FaultTest, EachRefusalIsSurvived) {
  const Kind& k = GetParam();
  const int calls = Usual::Of(k.OfRing(), Program::kFromTheStart).Calls(k.name);
  if (calls == 0 && k.OfRing()) GTEST_SKIP() << "no io_uring";
  EXPECT_GT(calls, 0);
  EachInTurn(Program::kFromTheStart);
}

TEST_P(FaultTest, EachRefusalAtTheEndOfMainIsSurvived) {
  EachInTurn(Program::kAtTheEnd);
}

TEST(FaultEndTest, EndOfMainMakesCallsThatCanBeRefused) {
  const Usual& usual = Usual::Of(/*ring=*/false, Program::kAtTheEnd);
  for (const char* name :
       {"mmap", "pthread_create", "futex", "epoll_ctl_del", "sigaltstack"}) {
    EXPECT_GT(usual.Calls(name), 0) << name;
  }
}

TEST(FaultRingTest, WatchesWaitIfTheirQueueIsFullAndSubmittingIsRefused) {
  const Usual& usual = Usual::Of(/*ring=*/true, Program::kFromTheStart);
  if (usual.Calls("io_uring_enter") == 0) GTEST_SKIP() << "no io_uring";
  Way way = usual.Again();
  way.program = Program::kWatches;
  for (int error : {EAGAIN, EBUSY, EINTR}) {
    for (const char* how : {"", ":ever"}) {
      const Ended e =
          RunProgram("io_uring_submit:1:" + std::to_string(error) + how, way);
      SCOPED_TRACE(std::to_string(error) + how + "\n" + e.out + e.err);
      EXPECT_TRUE(e.WasRefused());
      EXPECT_EQ(e.Figure("errors"), 0);
      IsUsable(e, usual);
    }
  }
}

TEST_P(FaultTest, RefusalsWithoutEndDoNotHang) {
  const Kind& k = GetParam();
  if (!k.may_be_ever) return;
  const Usual& usual = Usual::Of(k.OfRing(), Program::kFromTheStart);
  for (int n : {1, 3, 20}) {
    const Ended e = Run(n, ":ever", Program::kFromTheStart);
    SCOPED_TRACE(Of(n, ":ever") + "\n" + e.out + e.err);
    EXPECT_TRUE(n > 1 || usual.Calls(k.name) == 0 || e.WasRefused());
    if (e.WasRefused() && Died(e, k)) continue;
    IsUsable(e, Bound(n, Program::kFromTheStart));
  }
}

TEST(FaultStackTest, AStackRefusedForAMomentIsNoDeadlock) {
  gump::Run([] {
    auto done = make_chan<void>();
    order = {"mmap", 1, ENOMEM, /*ever=*/true, /*most=*/4};
    faultsOn = true;
    go(GoOptions{.stack_size = 64 << 20}, [done] { done.Send(); });
    done.Recv();  // there is no other goroutine
    faultsOn = false;
    EXPECT_EQ(faults[0].refusals, 4);
  });
}

TEST(FaultThreadTest, NoThreadAtAllIsFatalInGosWords) {
  struct Case {
    int error;
    std::string advice;
  };
  // There are no more threads (EAGAIN), or retrying does not help (EPERM).
  for (const Case& c :
       {Case{EAGAIN,
             "runtime: may need to increase max user processes (ulimit -u)\n"},
        Case{EPERM, ""}}) {
    const std::string error = std::to_string(c.error);
    const Ended e = RunProgram("pthread_create:1:" + error + ":ever", Way());
    EXPECT_EQ(e.code, 2) << e.err;
    EXPECT_EQ(e.err.find("runtime: failed to create new OS thread (have "), 0u)
        << e.err;
    EXPECT_NE(e.err.find(" already; errno=" + error + ")\n" + c.advice +
                         "fatal error: newosproc\n"),
              std::string::npos)
        << e.err;
  }
}

// If the third thread is refused, the program has sysmon and the thread that
// makes all others. If it had no sysmon instead, no thread would take the Ps of
// threads that do not come and hand them to threads that are there.
TEST(FaultThreadTest, SysmonIsNotTheMissingThread) {
  Way way;
  way.program = Program::kFirstThreadIsLate;
  EXPECT_EQ(RunProgram("pthread_create:4:11:ever", way).code, 0);
  const Ended e = RunProgram("pthread_create:3:11:ever", way);
  EXPECT_EQ(e.code, 2) << e.out << e.err;
  EXPECT_NE(e.err.find("fatal error: newosproc\n"), std::string::npos) << e.err;
}

TEST(FaultStackTest, StackRefusedAgainAfterAGoroutineHasRunIsNoDeadlock) {
  gump::Run([] {
    auto done = make_chan<void>();
    const int before = faults[0].refusals;
    for (int i = 1; i <= 3; i++) {
      order = {"mmap", 1, ENOMEM, /*ever=*/true,
               /*most=*/before + 4 * i};
      faultsOn = true;
      // No stack of this size has been left behind.
      const size_t size = static_cast<size_t>(64 + i) << 20;
      go(GoOptions{.stack_size = size}, [done] { done.Send(); });
      done.Recv();
      faultsOn = false;
      EXPECT_EQ(faults[0].refusals, before + 4 * i);
      // Longer than the runtime waits for a stack before it reports a deadlock
      // (kStackWait). A new wait begins when a goroutine has run.
      const int64_t end = rt::nanotime() + 150'000'000;
      while (rt::nanotime() < end) {
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    , FaultTest,
    ::testing::Values(Kind{"mmap", ENOMEM, "memory"}, Kind{"madvise", ENOMEM},
                      Kind{"mprotect", ENOMEM}, Kind{"process_madvise", EPERM},
                      Kind{"pthread_create", EAGAIN, "newosproc"},
                      Kind{"futex", EINTR}, Kind{"epoll_pwait2", ENOSYS},
                      Kind{"epoll_pwait2", EINTR, nullptr, false},
                      Kind{"epoll_create1", EMFILE}, Kind{"epoll_ctl", ENOSPC},
                      Kind{"epoll_ctl_del", ENOMEM},
                      Kind{"epoll_wait", EINTR, nullptr, false},
                      Kind{"epoll_wait", EBADF, "runtime: epollwait on fd "},
                      Kind{"eventfd", EMFILE}, Kind{"sigaltstack", ENOMEM},
                      Kind{"socket", EMFILE}, Kind{"bind", EADDRINUSE},
                      Kind{"listen", EADDRINUSE}, Kind{"accept4", EMFILE},
                      Kind{"connect", ENETUNREACH},
                      Kind{"io_uring_setup", ENOMEM},
                      Kind{"io_uring_enter", EINTR, nullptr, false},
                      Kind{"io_uring_enter", EAGAIN, nullptr, false},
                      Kind{"io_uring_enter", EBUSY, nullptr, false},
                      Kind{"io_uring_enter", EBADF,
                           "runtime: io_uring_enter failed with 9"},
                      Kind{"io_uring_register", EPERM,
                           "runtime: io_uring_register failed with 1"}),
    [](const ::testing::TestParamInfo<Kind>& kind) {
      return kind.param.Name();
    });

}  // namespace
}  // namespace gump
