#include "gump/exec.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using exec::Cmd;
using exec::CommandContext;
using os::File;
using sync::WaitGroup;
using testing::Text;
using ExecTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(ExecTest);

// Output is the output of cmd, or "!" and the error.
std::string Output(Cmd cmd) {
  const auto out = cmd.Output();
  if (!out.ok()) return std::string("!").append(Text(out.status()));
  return *out;
}

std::string ReadAll(const File& f) {
  std::string all;
  char buf[8192];
  for (;;) {
    const auto n = f.Read(buf);
    if (!n.ok()) return std::string("!").append(Text(n.status()));
    if (*n == 0) return all;
    all.append(buf, *n);
  }
}

Cmd Sh(std::string_view script) { return Cmd("sh", "-c", script); }

TEST_P(ExecTest, RunsAndGivesTheOutput) {
  Run([] {
    EXPECT_EQ(Output(Cmd("echo", "a  b", std::string("c"))), "a  b c\n");
    EXPECT_EQ(Output(Cmd("printf", std::vector<std::string>{"%s|", "x", "y"})),
              "x|y|");
    EXPECT_EQ(Output(Sh("echo seen; echo unseen >&2")), "seen\n");
    EXPECT_EQ(Sh("echo one; echo two >&2").CombinedOutput().value(),
              "one\ntwo\n");
    EXPECT_TRUE(Cmd("true").Run().ok());
    EXPECT_EQ(Output(Cmd("cat")), "");  // reads /dev/null
  });
}

TEST_P(ExecTest, TheHeadersExampleWorks) {
  Run([] {
    Cmd cmd("sort", "-n");
    absl::StatusOr<File> in = cmd.StdinPipe();
    absl::StatusOr<File> out = cmd.StdoutPipe();
    ASSERT_TRUE(cmd.Start().ok());
    go([in = *in] {
      in.Write("3\n1\n2\n").IgnoreError();
      in.Close().IgnoreError();
    });
    EXPECT_EQ(ReadAll(*out), "1\n2\n3\n");
    EXPECT_TRUE(cmd.Wait().ok());
  });
}

TEST_P(ExecTest, TheEndOfAChildIsAStatus) {
  Run([] {
    Cmd seven = Sh("exit 7");
    EXPECT_EQ(seven.ExitCode(), -1);
    const absl::Status s = seven.Run();
    EXPECT_EQ(Text(s), "exit status 7");
    EXPECT_EQ(s.code(), absl::StatusCode::kUnknown);
    EXPECT_EQ(seven.ExitCode(), 7);
    Cmd term = Sh("kill -TERM $$");
    EXPECT_EQ(Text(term.Run()), "signal: terminated");
    EXPECT_EQ(term.ExitCode(), -1);
    Cmd none("true");
    EXPECT_TRUE(none.Run().ok());
    EXPECT_EQ(none.ExitCode(), 0);
    // The output that comes before the exit is not lost.
    std::string out = "so far: ";
    EXPECT_EQ(Text(Sh("echo this; exit 1").Output(&out)), "exit status 1");
    EXPECT_EQ(out, "so far: this\n");
    EXPECT_EQ(Output(Sh("exit 2")), "!exit status 2");
  });
}

TEST_P(ExecTest, ErrorsAreInGosWords) {
  Run([] {
    const absl::Status none = Cmd("gump-no-such\tprogram").Run();
    EXPECT_EQ(Text(none),
              "exec: \"gump-no-such\\tprogram\": executable file not found in "
              "$PATH");
    EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
    const absl::Status missing = Cmd("/nowhere/x").Run();
    EXPECT_EQ(Text(missing), "fork/exec /nowhere/x: no such file or directory");
    EXPECT_EQ(Errno(missing), ENOENT);
    EXPECT_EQ(Text(Cmd("/").Run()), "fork/exec /: permission denied");
    EXPECT_EQ(Text(Cmd("").Run()), "exec: no command");
    Cmd dir("true");
    dir.SetDir("/nowhere");
    EXPECT_EQ(Text(dir.Run()), "chdir /nowhere: no such file or directory");
    Cmd closed("true");
    File f = os::Open("/dev/null").value();
    EXPECT_TRUE(f.Close().ok());
    closed.SetStdin(f);
    EXPECT_TRUE(Text(closed.Run()).ends_with("/true: file already closed"));
  });
}

std::atomic<int> forks = 0;

// A fork would copy the page tables of all stacks. It would also run the
// handlers of pthread_atfork, with the locks that they take.
TEST_P(ExecTest, NoHandlerOfForkRuns) {
  static const int registered =
      pthread_atfork([] { forks++; }, [] { forks++; }, [] { forks++; });
  ASSERT_EQ(registered, 0);
  Run([] {
    const int before = forks;
    EXPECT_EQ(Output(Cmd("echo", "here")), "here\n");
    Cmd started("true");
    EXPECT_TRUE(started.Start().ok());
    EXPECT_TRUE(started.Wait().ok());
    EXPECT_FALSE(Cmd("/nowhere/x").Run().ok());
    EXPECT_EQ(forks, before);
  });
}

TEST_P(ExecTest, NamesWithNulAreRefused) {
  using namespace std::string_literals;
  Run([] {
    EXPECT_EQ(Text(exec::LookPath("true\0x"s).status()),
              "exec: \"true\\x00x\": executable file not found in $PATH");
    EXPECT_EQ(
        Text(exec::LookPath("/bin/true\0x"s).status()),
        "exec: \"/bin/true\\x00x\": stat /bin/true\0x: invalid argument"s);
    EXPECT_EQ(Text(Cmd("true\0x"s).Run()),
              "exec: \"true\\x00x\": executable file not found in $PATH");
    EXPECT_EQ(Text(Cmd("/bin/true\0x"s).Run()),
              "fork/exec /bin/true\0x: invalid argument"s);
    EXPECT_TRUE(
        Text(Cmd("true", "a\0b"s).Run()).ends_with("/true: invalid argument"));
    Cmd env("true");
    env.SetEnv({"A=\0"s});
    EXPECT_EQ(Text(env.Run()), "exec: environment variable contains NUL");
    Cmd dir("true");
    dir.SetDir("/\0x"s);
    EXPECT_EQ(Text(dir.Run()), "exec: environment variable contains NUL")
        << "PWD";
    Cmd bare("true");
    bare.SetDir("/\0x"s);
    bare.SetEnv({});
    const absl::Status s = bare.Run();
    EXPECT_EQ(Text(s), "chdir /\0x: invalid argument"s);
    EXPECT_EQ(Errno(s), EINVAL);
  });
}

TEST_P(ExecTest, MisuseIsAnError) {
  Run([] {
    Cmd cmd("true");
    EXPECT_EQ(Text(cmd.Wait()), "exec: not started");
    EXPECT_EQ(Text(cmd.Kill()), "exec: not started");
    EXPECT_EQ(cmd.Pid(), 0);
    File kept = cmd.StdinPipe().value();
    EXPECT_EQ(Text(cmd.StdinPipe().status()), "exec: Stdin already set");
    EXPECT_TRUE(cmd.StdoutPipe().ok());
    EXPECT_EQ(Text(cmd.Output().status()), "exec: Stdout already set");
    EXPECT_TRUE(cmd.Start().ok());
    EXPECT_GT(cmd.Pid(), 0);
    EXPECT_EQ(Text(cmd.Start()), "exec: already started");
    EXPECT_EQ(Text(cmd.StderrPipe().status()),
              "exec: StderrPipe after process started");
    EXPECT_TRUE(cmd.Wait().ok());
    EXPECT_EQ(Text(cmd.Wait()), "exec: Wait was already called");
    EXPECT_EQ(Text(cmd.Kill()), "os: process already finished");
    EXPECT_EQ(Text(kept.Write("x").status()), "write |1: file already closed");
    Cmd err("true");
    err.SetStderr(os::Stderr());
    EXPECT_EQ(Text(err.CombinedOutput().status()), "exec: Stderr already set");
  });
}

// TestStart_twice of Go, and the functions that call Start.
TEST_P(ExecTest, StartAfterAFailedOneFails) {
  Run([] {
    const auto started = [](auto again) {
      Cmd cmd("/bin/nonesuch");
      EXPECT_FALSE(cmd.Start().ok());
      EXPECT_EQ(Text(cmd.Wait()), "exec: not started");
      const absl::Status s = again(cmd);
      EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(cmd.Pid(), 0);
      return Text(s);
    };
    const char* kText = "exec: already started";
    EXPECT_EQ(started([](Cmd& c) { return c.Start(); }), kText);
    EXPECT_EQ(started([](Cmd& c) { return c.Run(); }), kText);
    EXPECT_EQ(started([](Cmd& c) { return c.Output().status(); }), kText);
    EXPECT_EQ(started([](Cmd& c) { return c.CombinedOutput().status(); }),
              kText);
    Cmd none("");
    EXPECT_EQ(Text(none.Run()), "exec: no command");
    EXPECT_EQ(Text(none.Run()), kText);
    auto [ctx, cancel] = context::WithCancel(context::Background());
    cancel();
    Cmd late = CommandContext(ctx, "true");
    EXPECT_EQ(Text(late.Run()), "context canceled");
    EXPECT_EQ(Text(late.Run()), kText);
    Cmd twice("true");
    EXPECT_TRUE(twice.Run().ok());
    EXPECT_EQ(Text(twice.Output().status()), kText);
    // Its pipe is closed by the first failure, and stays so.
    Cmd pipe("/bin/nonesuch");
    const File out = pipe.StdoutPipe().value();
    EXPECT_FALSE(pipe.Start().ok());
    EXPECT_EQ(Text(pipe.Output().status()), "exec: Stdout already set");
    EXPECT_EQ(Text(out.Stat().status()), "stat |0: file already closed");
  });
}

TEST_P(ExecTest, LookPathFindsPrograms) {
  Run([] {
    const std::string sh = exec::LookPath("sh").value();
    EXPECT_EQ(sh[0], '/');
    EXPECT_TRUE(sh.ends_with("/sh"));
    EXPECT_EQ(exec::LookPath(sh).value(), sh);
    EXPECT_EQ(Text(exec::LookPath("./nowhere").status()),
              "exec: \"./nowhere\": stat ./nowhere: no such file or directory");
    EXPECT_EQ(Text(exec::LookPath("/etc/passwd").status()),
              "exec: \"/etc/passwd\": permission denied");
    EXPECT_EQ(Text(exec::LookPath("/tmp").status()),
              "exec: \"/tmp\": is a directory");
    EXPECT_EQ(exec::LookPath("").status().code(), absl::StatusCode::kNotFound);
  });
}

TEST(ExecPathTest, TheCurrentDirectoryIsNotSearched) {
  std::string dir = ::testing::TempDir() + "gump_exec_XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const std::string program = dir + "/gump-here";
  ASSERT_TRUE(os::WriteFile(program, "#!/bin/sh\n", 0700).ok());
  const std::string path = getenv("PATH");
  char cwd[4096];
  ASSERT_NE(getcwd(cwd, sizeof(cwd)), nullptr);
  ASSERT_EQ(chdir(dir.c_str()), 0);
  setenv("PATH", ("/nowhere::" + path).c_str(), 1);
  EXPECT_EQ(Text(exec::LookPath("gump-here").status()),
            "exec: \"gump-here\": cannot run executable found relative to "
            "current directory");
  setenv("PATH", "/nowhere:", 1);
  EXPECT_EQ(exec::LookPath("gump-here").status().code(),
            absl::StatusCode::kFailedPrecondition);
  setenv("PATH", ("/nowhere:" + dir + "/").c_str(), 1);
  EXPECT_EQ(exec::LookPath("gump-here").value(), program);
  unsetenv("PATH");
  EXPECT_FALSE(exec::LookPath("sh").ok());
  setenv("PATH", path.c_str(), 1);
  ASSERT_EQ(chdir(cwd), 0);
  unlink(program.c_str());
  rmdir(dir.c_str());
}

TEST_P(ExecTest, EnvironmentAndDirectoryReachTheChild) {
  setenv("GUMP_EXEC_TEST", "inherited", 1);
  Run([] {
    Cmd pwd = Sh("pwd; echo $PWD");
    pwd.SetDir("/usr/./lib/");
    EXPECT_EQ(pwd.Output().value().substr(0, 9), "/usr/lib\n");
    EXPECT_EQ(Output(Sh("echo $GUMP_EXEC_TEST")), "inherited\n");
    Cmd env("env");
    env.SetEnv({"A=1", "B=2", "A=3", "=odd=1"});
    EXPECT_EQ(env.Output().value(), "B=2\nA=3\n=odd=1\n");
    Cmd none("env");
    none.SetEnv({});
    EXPECT_EQ(none.Output().value(), "");
    // A relative name is relative to the directory.
    Cmd relative("./sh", "-c", "echo yes");
    relative.SetDir("/bin");
    EXPECT_EQ(relative.Output().value(), "yes\n");
  });
  unsetenv("GUMP_EXEC_TEST");
}

TEST_P(ExecTest, PipesCarryMuchInBothDirections) {
  Run([] {
    std::string data;
    for (int i = 0; i < 3'000'000; i++) data += static_cast<char>(i * 31);
    Cmd cat("cat");
    File in = cat.StdinPipe().value();
    File out = cat.StdoutPipe().value();
    File err = cat.StderrPipe().value();
    ASSERT_TRUE(cat.Start().ok());
    WaitGroup wg;
    wg.Go([&] {
      EXPECT_EQ(in.Write(data).value(), data.size());
      EXPECT_TRUE(in.Close().ok());
    });
    wg.Go([&] { EXPECT_EQ(ReadAll(err), ""); });
    EXPECT_TRUE(ReadAll(out) == data);
    wg.Wait();
    EXPECT_TRUE(cat.Wait().ok());
  });
}

TEST_P(ExecTest, AnInputThatIsNotReadIsABrokenPipe) {
  Run([] {
    Cmd cmd("true");
    File in = cmd.StdinPipe().value();
    ASSERT_TRUE(cmd.Start().ok());
    EXPECT_EQ(Text(in.Write(std::string(1 << 20, 'x')).status()),
              "write |1: broken pipe");
    EXPECT_TRUE(cmd.Wait().ok());
  });
}

TEST_P(ExecTest, FilesAreGivenToTheChild) {
  Run([] {
    // A pipe of ours is non-blocking, and the child's must not be.
    auto [in_r, in_w] = os::Pipe().value();
    auto [out_r, out_w] = os::Pipe().value();
    Cmd cat("cat");
    cat.SetStdin(in_r);
    cat.SetStdout(out_w);
    cat.SetStderr(out_w);
    ASSERT_TRUE(cat.Start().ok());
    EXPECT_NE(fcntl(in_r.Fd(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(fcntl(out_w.Fd(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_TRUE(out_w.Close().ok());
    const std::string big(1 << 20, 'x');
    WaitGroup wg;
    wg.Go([&, &w = in_w] {
      time::Sleep(absl::Milliseconds(20));  // it will have to wait
      EXPECT_TRUE(w.Write(big).ok());
      EXPECT_TRUE(w.Close().ok());
    });
    EXPECT_TRUE(ReadAll(out_r) == big);
    wg.Wait();
    EXPECT_TRUE(cat.Wait().ok());

    std::string path = ::testing::TempDir() + "gump_exec_XXXXXX";
    const int fd = mkstemp(path.data());
    ASSERT_GE(fd, 0);
    File f = os::NewFile(fd, path).value();
    for (const char* word : {"one", "two"}) {
      Cmd echo("echo", word);
      echo.SetStdout(f);
      EXPECT_TRUE(echo.Run().ok());
    }
    EXPECT_EQ(os::ReadFile(path).value(), "one\ntwo\n");  // one shared position
    unlink(path.c_str());
  });
}

TEST_P(ExecTest, NoOtherDescriptorsReachTheChild) {
  Run([] {
    std::vector<std::pair<File, File>> pipes;
    for (int i = 0; i < 10; i++) pipes.push_back(os::Pipe().value());
    File f = os::Open("/dev/null").value();
    Cmd other("sleep", "1000");
    File in = other.StdinPipe().value();
    ASSERT_TRUE(other.Start().ok());
    // The descriptors that the test inherited, and the directory that ls reads.
    std::set<std::string> expected;
    std::string lowest;
    for (int fd = 0; fd < 1024; fd++) {
      const int flags = fcntl(fd, F_GETFD);
      if (fd < 3 || (flags != -1 && (flags & FD_CLOEXEC) == 0)) {
        expected.insert(std::to_string(fd));
      } else if (lowest.empty()) {
        lowest = std::to_string(fd);
      }
    }
    expected.insert(lowest);
    std::istringstream listing(Output(Cmd("ls", "/proc/self/fd")));
    EXPECT_EQ(std::set<std::string>(std::istream_iterator<std::string>(listing),
                                    std::istream_iterator<std::string>()),
              expected);
    EXPECT_TRUE(other.Kill().ok());
    EXPECT_EQ(Text(other.Wait()), "signal: killed");
  });
}

TEST(ExecStandardTest, WorksWithoutStandardDescriptors) {
  (void)os::Pipe();  // starts the poller, which must not get 0 or 1
  int saved[2];
  for (int fd : {0, 1}) {
    saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 50);
    close(fd);
  }
  std::string out;
  std::string err;
  absl::Status s;
  {
    Cmd cmd("sh", "-c", "cat; echo done; echo error >&2");
    File errors = cmd.StderrPipe().value();
    EXPECT_GT(errors.Fd(), 2);
    File in = cmd.StdinPipe().value();
    std::thread writer([&] {
      (void)in.Write("text ");
      (void)in.Close();
      err = ReadAll(errors);
    });
    File output = cmd.StdoutPipe().value();
    s = cmd.Start();
    out = ReadAll(output);
    writer.join();
    s.Update(cmd.Wait());
  }
  for (int fd : {0, 1}) {
    dup2(saved[fd], fd);
    close(saved[fd]);
  }
  EXPECT_TRUE(s.ok()) << s;
  EXPECT_EQ(out, "text done\n");
  EXPECT_EQ(err, "error\n");
}

// As without the library. tests/sched/child_test.cc has the goroutines.
TEST(ExecSignalTest, ChildOfAPlainThreadInheritsItsSignalMask) {
  sigset_t usr;
  sigset_t old;
  sigemptyset(&usr);
  sigaddset(&usr, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr, &old);
  EXPECT_EQ(Output(Cmd("grep", "SigBlk", "/proc/self/status")),
            "SigBlk:\t0000000000000200\n");
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

// Another goroutine may call Pid and Kill, even before the child has begun.
TEST_P(ExecTest, KillEndsARun) {
  Run([] {
    Cmd cmd("sleep", "1000");
    WaitGroup wg;
    wg.Go([&] { EXPECT_EQ(Text(cmd.Run()), "signal: killed"); });
    while (!cmd.Kill().ok()) runtime::Gosched();
    EXPECT_GT(cmd.Pid(), 0);
    wg.Wait();
  });
}

TEST_P(ExecTest, KillEndsAWait) {
  Run([] {
    Cmd cmd("sleep", "1000");
    ASSERT_TRUE(cmd.Start().ok());
    const pid_t pid = cmd.Pid();
    WaitGroup wg;
    wg.Go([&] {
      EXPECT_EQ(Text(cmd.Wait()), "signal: killed");
      EXPECT_EQ(kill(pid, 0), -1);  // reaped
    });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    EXPECT_TRUE(cmd.Kill().ok());
    wg.Wait();
    // A signal that is not ignored when tests run in the background.
    Cmd usr("sleep", "1000");
    ASSERT_TRUE(usr.Start().ok());
    EXPECT_TRUE(usr.Signal(SIGUSR1).ok());
    EXPECT_EQ(Text(usr.Wait()), "signal: user defined signal 1");
    // A number that is no signal.
    Cmd odd("sleep", "1000");
    ASSERT_TRUE(odd.Start().ok());
    EXPECT_EQ(Text(odd.Signal(1000)), "invalid argument");
    EXPECT_TRUE(odd.Kill().ok());
    EXPECT_EQ(Text(odd.Wait()), "signal: killed");
  });
}

TEST_P(ExecTest, ItsContextKillsIt) {
  Run([] {
    auto [ctx, cancel] = context::WithCancel(context::Background());
    Cmd cmd = CommandContext(ctx, "sleep", "1000");
    ASSERT_TRUE(cmd.Start().ok());
    WaitGroup wg;
    wg.Go([&] {
      EXPECT_EQ(cmd.Wait(), absl::CancelledError("context canceled"));
    });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    cancel();
    wg.Wait();
    EXPECT_EQ(cmd.ExitCode(), -1);

    auto [late, cancel2] =
        context::WithTimeout(context::Background(), absl::Milliseconds(30));
    EXPECT_EQ(CommandContext(late, "sleep", "1000").Run(),
              absl::DeadlineExceededError("context deadline exceeded"));
    // A command with a context that is already done is not even started.
    Cmd never = CommandContext(late, "true");
    EXPECT_EQ(never.Start(),
              absl::DeadlineExceededError("context deadline exceeded"));
    EXPECT_EQ(never.Pid(), 0);
    EXPECT_EQ(Text(never.Wait()), "exec: not started");
    // The context ends while the output is read.
    auto [ctx3, cancel3] = context::WithCancel(context::Background());
    Cmd out = CommandContext(ctx3, "sleep", "1000");
    wg.Go([&] {
      EXPECT_EQ(out.Output().status(),
                absl::CancelledError("context canceled"));
    });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    cancel3();
    wg.Wait();
  });
}

TEST_P(ExecTest, AContextThatIsNotDoneChangesNothing) {
  Run([] {
    auto [ctx, cancel] =
        context::WithTimeout(context::Background(), absl::Hours(1));
    EXPECT_EQ(Output(CommandContext(ctx, "echo", "x")), "x\n");
    Cmd three = CommandContext(ctx, "sh", "-c", "exit 3");
    EXPECT_EQ(Text(three.Run()), "exit status 3");
    cancel();
    EXPECT_EQ(Text(three.Kill()), "os: process already finished");
    EXPECT_EQ(Output(CommandContext(context::Background(), "echo", "y")),
              "y\n");
  });
}

TEST_P(ExecTest, AnEndBeforeTheCancelKeepsItsStatus) {
  Run([] {
    auto [ctx, cancel] = context::WithCancel(context::Background());
    Cmd cmd = CommandContext(ctx, "sh", "-c", "exit 3");
    File out = cmd.StdoutPipe().value();
    ASSERT_TRUE(cmd.Start().ok());
    EXPECT_EQ(ReadAll(out), "");
    siginfo_t info;  // the child has ended, but has not been reaped
    ASSERT_EQ(blocking([&] {
                return waitid(P_PID, static_cast<id_t>(cmd.Pid()), &info,
                              WEXITED | WNOWAIT);
              }),
              0);
    cancel();
    EXPECT_EQ(Text(cmd.Wait()), "exit status 3");
  });
}

TEST_P(ExecTest, TwoHundredChildrenWaitWithoutThreads) {
  Run([] {
    constexpr size_t kMany = 200;
    std::vector<Cmd> cmds;
    std::vector<File> inputs;
    for (size_t i = 0; i < kMany; i++) {
      cmds.push_back(Sh("read x; exit $x"));
      inputs.push_back(cmds.back().StdinPipe().value());
    }
    WaitGroup started;
    for (Cmd& c : cmds) {
      started.Go([&] { EXPECT_TRUE(c.Start().ok()); });
    }
    started.Wait();
    WaitGroup wg;
    for (size_t i = 0; i < kMany; i++) {
      wg.Go([&, i] {
        const std::string expected =
            "exit status " + std::to_string(1 + i % 99);
        EXPECT_EQ(Text(cmds[i].Wait()), expected);
      });
    }
    // All of them wait as parked goroutines, not as threads.
    ASSERT_TRUE(testing::EventuallyParked("IO wait", kMany));
    for (size_t i = 0; i < kMany; i++) {
      EXPECT_TRUE(inputs[i].Write(std::to_string(1 + i % 99) + "\n").ok());
    }
    wg.Wait();
  });
}

TEST_P(ExecTest, AChildMayOutliveItsCmd) {
  Run([] {
    pid_t pid;
    std::optional<File> out;
    {
      Cmd cmd("cat");
      auto [r, w] = os::Pipe().value();
      cmd.SetStdin(r);
      out = w;
      ASSERT_TRUE(cmd.Start().ok());
      pid = cmd.Pid();
    }
    EXPECT_EQ(kill(pid, 0), 0);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, WNOHANG), 0);  // it still runs
    EXPECT_TRUE(out->Close().ok());
    EXPECT_EQ(blocking([&] { return waitpid(pid, &status, 0); }), pid);
    EXPECT_EQ(status, 0);
  });
}

TEST_P(ExecTest, WaitMayComeAfterTheEnd) {
  Run([] {
    Cmd cmd("true");
    ASSERT_TRUE(cmd.Start().ok());
    siginfo_t info;
    ASSERT_EQ(blocking([&] {
                return waitid(P_PID, static_cast<id_t>(cmd.Pid()), &info,
                              WEXITED | WNOWAIT);
              }),
              0);
    EXPECT_TRUE(cmd.Wait().ok());
  });
}

TEST_P(ExecTest, AChildReapedElsewhereIsAnError) {
  Run([] {
    Cmd cmd("true");
    ASSERT_TRUE(cmd.Start().ok());
    int status;
    ASSERT_EQ(blocking([&] { return waitpid(cmd.Pid(), &status, 0); }),
              cmd.Pid());
    EXPECT_EQ(Text(cmd.Kill()), "os: process already finished");
    const absl::Status s = cmd.Wait();
    EXPECT_EQ(Text(s), "wait: no child processes");
    EXPECT_EQ(Errno(s), ECHILD);
  });
}

TEST_P(ExecTest, MixesWithPlainThreads) {
  Run([] {
    testing::OnBothSides([] {
      for (int i = 0; i < 5; i++) {
        EXPECT_EQ(Output(Cmd("echo", std::to_string(i))),
                  std::to_string(i) + "\n");
      }
    });
  });
}

TEST(ExecThreadTest, PlainThreadsNeedNoRun) {
  EXPECT_EQ(Output(Cmd("echo", "x")), "x\n");
  auto [ctx, cancel] =
      context::WithTimeout(context::Background(), absl::Milliseconds(30));
  EXPECT_EQ(CommandContext(ctx, "sleep", "1000").Run(),
            absl::DeadlineExceededError("context deadline exceeded"));
}

}  // namespace
}  // namespace gump
