// How signals end a program that is process 1, the first of a PID namespace. A
// container runs its program so. The kernel discards there each signal with the
// default action.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/signal.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"

namespace gump {
namespace {

constexpr int kNoNamespace = 77;

// NewPidNamespace puts the next child of this process into a new PID namespace.
// Returns 0 or an errno.
int NewPidNamespace() {
  if (unshare(CLONE_NEWPID) == 0) return 0;
  return unshare(CLONE_NEWPID | CLONE_NEWUSER) == 0 ? 0 : errno;
}

// The program tells the test by this pipe that it is ready for signals.
int ready[2];

void SayReady() { (void)!write(ready[1], "r", 1); }

[[noreturn]] void RunForGood() {
  gump::Run([] {
    SayReady();
    for (;;) time::Sleep(absl::Milliseconds(1));
  });
  std::abort();
}

// ExitAs ends this process as the process with this status has ended.
[[noreturn]] void ExitAs(int status) {
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  ::signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  std::abort();
}

// RunAsProcess1 runs a program as process 1, sends it a signal from outside
// once it is ready, and ends as the program has ended.
[[noreturn]] void RunAsProcess1(void (*program)(), int sig) {
  alarm(60);
  if (pipe(ready) != 0 || NewPidNamespace() != 0) _exit(kNoNamespace);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // the kernel does not discard this one
    if (getpid() == 1) program();
    _exit(kNoNamespace);
  }
  char c;
  close(ready[1]);
  const bool is_ready = read(ready[0], &c, 1) == 1;
  if (is_ready && sig != 0) kill(pid, sig);
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) _exit(kNoNamespace);
  ExitAs(status);
}

// WhyNot returns the reason why there can be no process 1, or 0.
int WhyNot() {
  const pid_t pid = fork();
  if (pid == 0) {
    const int err = NewPidNamespace();
    if (err != 0) _exit(err);
    const pid_t first = fork();
    if (first == 0) _exit(0);
    _exit(first > 0 ? 0 : errno);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return ECHILD;
  return WEXITSTATUS(status);
}

class Process1DeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void SetUp() override {
    if (rt::kSanitizerBuild) {
      GTEST_SKIP() << "a sanitizer holds back signals to sleepers";
    }
    const int err = WhyNot();
    if (err != 0) GTEST_SKIP() << "no PID namespace: " << std::strerror(err);
  }
};

::testing::ExitedWithCode SignalCode(int sig) {
  return ::testing::ExitedWithCode(128 + sig);
}

// Go's test, under its name.
TEST_F(Process1DeathTest, TestSignalPid1) {
  EXPECT_EXIT(RunAsProcess1(RunForGood, SIGTERM), SignalCode(SIGTERM), "^$");
}

TEST_F(Process1DeathTest, SignalThatAsksForTheEndIsTheExitCode) {
  for (const int sig : {SIGHUP, SIGINT}) {
    EXPECT_EXIT(RunAsProcess1(RunForGood, sig), SignalCode(sig), "^$");
  }
}

TEST_F(Process1DeathTest, FaultThatIsSentIsTheExitCode) {
  for (const int sig : {SIGSEGV, SIGBUS}) {
    EXPECT_EXIT(RunAsProcess1(RunForGood, sig), SignalCode(sig), "^$");
  }
}

TEST_F(Process1DeathTest, TracebackCrashExitsWithTheCodeOfAbort) {
  EXPECT_EXIT(RunAsProcess1(
                  [] {
                    setenv("GOTRACEBACK", "crash", 1);
                    gump::Run([] {
                      SayReady();
                      panic("boom");
                    });
                  },
                  0),
              SignalCode(SIGABRT), "^panic: boom\n");
}

TEST_F(Process1DeathTest, QuitDumpsAsElsewhere) {
  EXPECT_EXIT(RunAsProcess1(RunForGood, SIGQUIT), ::testing::ExitedWithCode(2),
              "^SIGQUIT: quit\n");
}

TEST_F(Process1DeathTest, SignalsThatTheProgramWantsReachIt) {
  EXPECT_EXIT(RunAsProcess1(
                  [] {
                    gump::Run([] {
                      auto c = make_chan<int>(1);
                      signal::Notify(c, {SIGTERM});
                      SayReady();
                      _exit(c.Recv() == SIGTERM ? 7 : 8);
                    });
                  },
                  SIGTERM),
              ::testing::ExitedWithCode(7), "^$");
}

TEST_F(Process1DeathTest, SignalThatTheProgramGivesUpEndsIt) {
  EXPECT_EXIT(RunAsProcess1(
                  [] {
                    gump::Run([] {
                      auto c = make_chan<int>(1);
                      signal::Notify(c, {SIGTERM});
                      signal::Stop(c);
                      SayReady();
                      for (;;) time::Sleep(absl::Milliseconds(1));
                    });
                  },
                  SIGTERM),
              SignalCode(SIGTERM), "^$");
}

// The program replaces our handler and restores it later, as system(3) does. So
// the kernel calls our handler although the program has given up the signal.
TEST_F(Process1DeathTest, SignalGivenUpUnderAnotherHandler_EndsIt) {
  EXPECT_EXIT(RunAsProcess1(
                  [] {
                    gump::Run([] {
                      auto c = make_chan<int>(1);
                      signal::Notify(c, {SIGTERM});
                      struct sigaction theirs = {};
                      struct sigaction ours = {};
                      theirs.sa_handler = SIG_IGN;
                      sigaction(SIGTERM, &theirs, &ours);
                      signal::Stop(c);
                      sigaction(SIGTERM, &ours, nullptr);
                      SayReady();
                      time::Sleep(absl::Seconds(10));
                      _exit(4);  // the signal was lost
                    });
                  },
                  SIGTERM),
              SignalCode(SIGTERM), "^$");
}

TEST_F(Process1DeathTest, IgnoredSignalStaysIgnored) {
  EXPECT_EXIT(RunAsProcess1(
                  [] {
                    ::signal(SIGTERM, SIG_IGN);
                    gump::Run([] {
                      raise(SIGTERM);
                      SayReady();
                      for (;;) time::Sleep(absl::Milliseconds(1));
                    });
                  },
                  SIGINT),
              SignalCode(SIGINT), "^$");
}

TEST_F(Process1DeathTest, HandlerOfTheProgramIsKept) {
  EXPECT_EXIT(RunAsProcess1(
                  [] {
                    ::signal(SIGTERM, [](int) { _exit(9); });
                    RunForGood();
                  },
                  SIGTERM),
              ::testing::ExitedWithCode(9), "^$");
}

TEST_F(Process1DeathTest, ChildOfProcess1DiesByTheSignal) {
  EXPECT_EXIT(RunAsProcess1(
                  [] {
                    gump::Run([] {
                      const pid_t pid = fork();
                      if (pid == 0) {
                        raise(SIGTERM);
                        _exit(1);
                      }
                      int status = 0;
                      waitpid(pid, &status, 0);
                      _exit(WIFSIGNALED(status) ? WTERMSIG(status) : 1);
                    });
                  },
                  0),
              ::testing::ExitedWithCode(SIGTERM), "^$");
}

TEST_F(Process1DeathTest, OtherProcessKeepsItsDispositions) {
  EXPECT_EXIT(gump::Run([] {
                for (const int sig : {SIGHUP, SIGINT, SIGTERM}) {
                  struct sigaction now = {};
                  sigaction(sig, nullptr, &now);
                  if (now.sa_handler != SIG_DFL) _exit(1);
                }
                _exit(3);
              }),
              ::testing::ExitedWithCode(3), "^$");
}

}  // namespace
}  // namespace gump
