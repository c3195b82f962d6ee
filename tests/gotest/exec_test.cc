// The claims of Go's os/exec tests, under its names, in our words. Copies
// between a process and the program's readers and writers, which a Cmd of Go's
// makes, are goroutines of the test here.
#include "gump/exec.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/signal.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using exec::Cmd;
using exec::CommandContext;
using os::File;
using sync::WaitGroup;
using testing::Ready;
using testing::Text;

using GoExecTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(GoExecTest);

Cmd Sh(std::string_view script) { return Cmd("sh", "-c", script); }

std::string ReadAll(const File& f) {
  std::string all;
  char buf[8192];
  for (;;) {
    const size_t n = Ready(f.Read(buf));
    if (n == 0) return all;
    all.append(buf, n);
  }
}

std::set<int> OpenDescriptors() {
  std::set<int> open;
  for (const auto& e : std::filesystem::directory_iterator("/proc/self/fd")) {
    open.insert(std::stoi(e.path().filename().string()));
  }
  return open;
}

TEST_P(GoExecTest, TestEcho) {
  Run([] {
    EXPECT_EQ(Ready(Cmd("echo", "foo bar", "baz").Output()), "foo bar baz\n");
  });
}

TEST_P(GoExecTest, TestCommandRelativeName) {
  Run([] {
    Cmd cmd("./sh", "-c", "echo foo");
    cmd.SetDir("/bin");
    EXPECT_EQ(Ready(cmd.Output()), "foo\n");
  });
}

TEST_P(GoExecTest, TestCatStdin) {
  Run([] {
    Cmd cmd("cat");
    const File in = Ready(cmd.StdinPipe());
    WaitGroup wg;
    wg.Go([&] {
      EXPECT_EQ(Ready(in.Write("Input string\nLine 2")), 19u);
      EXPECT_TRUE(in.Close().ok());
    });
    EXPECT_EQ(Ready(cmd.Output()), "Input string\nLine 2");
    wg.Wait();
  });
}

// The child writes while the parent still writes to it.
TEST_P(GoExecTest, TestEchoFileRace) {
  Run([] {
    Cmd cmd = Sh("echo; read line");
    const File in = Ready(cmd.StdinPipe());
    ASSERT_TRUE(cmd.Start().ok());
    WaitGroup wg;
    wg.Go([&] { EXPECT_EQ(Ready(in.Write("\n")), 1u); });
    EXPECT_TRUE(cmd.Wait().ok());
    wg.Wait();
  });
}

TEST_P(GoExecTest, TestCatGoodAndBadFile) {
  Run([] {
    std::string out;
    Cmd cmd("cat", "/bogus/file.foo", "/proc/self/cmdline");
    const absl::Status s = cmd.CombinedOutput(&out);
    EXPECT_EQ(Text(s), "exit status 1");
    EXPECT_NE(out.find("/bogus/file.foo"), std::string::npos) << out;
    EXPECT_NE(out.find("cat"), std::string::npos) << out;
  });
}

TEST_P(GoExecTest, TestNoExistExecutable) {
  Run([] { EXPECT_FALSE(Cmd("/no-exist-executable").Run().ok()); });
}

TEST_P(GoExecTest, TestExitStatusAndTestExitCode) {
  Run([] {
    for (int code : {0, 1, 42, 255}) {
      Cmd cmd = Sh("exit " + std::to_string(code));
      EXPECT_EQ(cmd.ExitCode(), -1);
      const absl::Status s = cmd.Run();
      EXPECT_EQ(cmd.ExitCode(), code);
      EXPECT_EQ(Text(s),
                code == 0 ? "" : "exit status " + std::to_string(code));
    }
    Cmd killed = Sh("kill -KILL $$");
    EXPECT_FALSE(killed.Run().ok());
    EXPECT_EQ(killed.ExitCode(), -1);
  });
}

TEST_P(GoExecTest, TestPipes) {
  Run([] {
    Cmd cmd =
        Sh("while read line; do case $line in O:*) echo \"$line\" ;; "
           "E:*) echo \"$line\" >&2 ;; esac; done");
    const File in = Ready(cmd.StdinPipe());
    const File out = Ready(cmd.StdoutPipe());
    const File err = Ready(cmd.StderrPipe());
    ASSERT_TRUE(cmd.Start().ok());
    char buf[100];
    auto line = [&](const File& f) {
      return std::string(buf, Ready(f.Read(buf)));
    };
    Ready(in.Write("O:I am output\n"));
    EXPECT_EQ(line(out), "O:I am output\n");
    Ready(in.Write("E:I am error\n"));
    EXPECT_EQ(line(err), "E:I am error\n");
    Ready(in.Write("O:I am output2\n"));
    EXPECT_EQ(line(out), "O:I am output2\n");
    EXPECT_TRUE(in.Close().ok());
    EXPECT_TRUE(cmd.Wait().ok());
  });
}

TEST_P(GoExecTest, TestStdinClose) {
  Run([] {
    Cmd cmd = Sh("test \"$(cat)\" = 'Some test string.'");
    const File in = Ready(cmd.StdinPipe());
    ASSERT_TRUE(cmd.Start().ok());
    WaitGroup wg;
    wg.Go([&] {
      Ready(in.Write("Some test string."));
      EXPECT_TRUE(in.Close().ok());
    });
    EXPECT_TRUE(cmd.Wait().ok());
    wg.Wait();
  });
}

// A goroutine kills the child, a second writes to it, and main waits for it.
TEST_P(GoExecTest, TestStdinCloseRace) {
  Run([] {
    for (int i = 0; i < 5; i++) {
      Cmd cmd = Sh("test \"$(cat)\" = right");
      const File in = Ready(cmd.StdinPipe());
      ASSERT_TRUE(cmd.Start().ok());
      WaitGroup wg;
      wg.Go([&] { cmd.Kill().IgnoreError(); });
      wg.Go([&] {
        in.Write("unexpected string").IgnoreError();
        in.Close().IgnoreError();
      });
      EXPECT_FALSE(cmd.Wait().ok());
      wg.Wait();
    }
  });
}

// A command that cannot start leaves no end of its pipes open.
TEST_P(GoExecTest, TestPipeLookPathLeak) {
  Run([] {
    // The runtime's own descriptors are open from now on.
    EXPECT_TRUE(Cmd("true").Run().ok());
    const std::set<int> before = OpenDescriptors();
    for (int i = 0; i < 6; i++) {
      Cmd cmd("something-that-does-not-exist-executable");
      const File out = Ready(cmd.StdoutPipe());
      const File err = Ready(cmd.StderrPipe());
      const File in = Ready(cmd.StdinPipe());
      EXPECT_FALSE(cmd.Run().ok());
    }
    // sysmon opens files of /proc for moments.
    EXPECT_TRUE(testing::Eventually(
        [&] { return OpenDescriptors().size() <= before.size(); }));
  });
}

// The child does not read what is written to it, and ends well. So the run is
// no failure.
TEST_P(GoExecTest, TestIgnorePipeErrorOnSuccess) {
  Run([] {
    Cmd cmd("echo", "foo");
    const File in = Ready(cmd.StdinPipe());
    WaitGroup wg;
    wg.Go([&] {
      EXPECT_FALSE(in.Write(std::string(10 << 20, 'x')).ok());
      in.Close().IgnoreError();
    });
    EXPECT_EQ(Ready(cmd.Output()), "foo\n");
    wg.Wait();
  });
}

TEST_P(GoExecTest, TestContext) {
  Run([] {
    auto [ctx, cancel] = context::WithCancel(context::Background());
    Cmd cmd = CommandContext(ctx, "cat");
    const File in = Ready(cmd.StdinPipe());
    const File out = Ready(cmd.StdoutPipe());
    ASSERT_TRUE(cmd.Start().ok());
    Ready(in.Write("O:hi\n"));
    char buf[100];
    EXPECT_EQ(std::string(buf, Ready(out.Read(buf))), "O:hi\n");
    WaitGroup wg;
    wg.Go([&] {
      EXPECT_EQ(cmd.Wait(), absl::CancelledError("context canceled"));
    });
    cancel();
    wg.Wait();
  });
}

// The context ends while Wait waits, and the child is gone soon after.
TEST_P(GoExecTest, TestContextCancel) {
  Run([] {
    auto [ctx, cancel] = context::WithCancel(context::Background());
    Cmd cmd = CommandContext(ctx, "cat");
    const File in = Ready(cmd.StdinPipe());
    ASSERT_TRUE(cmd.Start().ok());
    EXPECT_TRUE(cmd.Signal(0).ok());
    cancel();
    EXPECT_FALSE(cmd.Wait().ok());
    EXPECT_FALSE(cmd.Signal(0).ok());
    // A context that has ended starts nothing.
    Cmd late = CommandContext(ctx, "cat");
    EXPECT_EQ(late.Start(), absl::CancelledError("context canceled"));
  });
}

TEST_P(GoExecTest, TestDedupEnvEcho) {
  Run([] {
    Cmd cmd = Sh("echo $FOO");
    cmd.SetEnv({"FOO=bad", "PATH=/usr/bin:/bin", "FOO=good"});
    EXPECT_EQ(Ready(cmd.Output()), "good\n");
  });
}

TEST_P(GoExecTest, TestEnvNULCharacter) {
  Run([] {
    Cmd cmd("env");
    cmd.SetEnv({std::string("FOO=foo\0BAR=bar", 15)});
    std::string out;
    EXPECT_FALSE(cmd.CombinedOutput(&out).ok());
    EXPECT_EQ(out, "");
  });
}

TEST_P(GoExecTest, TestNoPath) {
  Run([] { EXPECT_EQ(Text(Cmd("").Start()), "exec: no command"); });
}

// A second Start is refused, and the pipes of the first serve on.
TEST_P(GoExecTest, TestDoubleStartLeavesPipesOpen) {
  Run([] {
    Cmd cmd("cat");
    const File in = Ready(cmd.StdinPipe());
    const File out = Ready(cmd.StdoutPipe());
    ASSERT_TRUE(cmd.Start().ok());
    EXPECT_EQ(Text(cmd.Start()), "exec: already started");
    Ready(in.Write("O:Hello, pipe!\n"));
    EXPECT_TRUE(in.Close().ok());
    EXPECT_EQ(ReadAll(out), "O:Hello, pipe!\n");
    EXPECT_TRUE(cmd.Wait().ok());
  });
}

// No child inherits a pipe by which the start of another is reported. Else the
// other's Start would wait for a child that hangs.
TEST_P(GoExecTest, TestConcurrentExec) {
  Run([] {
    auto [ctx, cancel] = context::WithCancel(context::Background());
    const int n = runtime::GOMAXPROCS(0);
    WaitGroup hangs;
    WaitGroup exits;
    auto start = make_chan<void>();
    for (int i = 0; i < n; i++) {
      hangs.Go([&, &ctx = ctx] {
        Cmd cmd = CommandContext(ctx, "cat");
        const File in = Ready(cmd.StdinPipe());
        start.Recv();
        EXPECT_FALSE(cmd.Run().ok());
      });
      exits.Go([&] {
        Cmd cmd("true");
        start.Recv();
        EXPECT_TRUE(cmd.Run().ok());
      });
    }
    start.Close();
    exits.Wait();
    cancel();
    hangs.Wait();
  });
}

TEST_P(GoExecTest, TestAbsPathExec) {
  Run([] {
    EXPECT_TRUE(Cmd("/bin/true").Run().ok());
    EXPECT_EQ(Text(Cmd("/bin/no-such-program").Run()),
              "fork/exec /bin/no-such-program: no such file or directory");
  });
}

// ---- exec_posix_test.go, lp_unix_test.go

// A signal reaches a child that is stopped while Wait waits for it.
TEST_P(GoExecTest, TestWaitid) {
  Run([] {
    Cmd cmd("cat");
    const File in = Ready(cmd.StdinPipe());
    const File out = Ready(cmd.StdoutPipe());
    ASSERT_TRUE(cmd.Start().ok());
    Ready(in.Write("O:ping\n"));
    char buf[100];
    EXPECT_EQ(std::string(buf, Ready(out.Read(buf))), "O:ping\n");
    EXPECT_TRUE(cmd.Signal(SIGSTOP).ok());
    WaitGroup wg;
    wg.Go([&] { EXPECT_TRUE(cmd.Wait().ok()); });
    time::Sleep(absl::Milliseconds(1));
    EXPECT_TRUE(cmd.Signal(SIGCONT).ok());
    EXPECT_TRUE(in.Close().ok());
    wg.Wait();
  });
}

// PWD names the directory of the child, though the program did not say so.
TEST_P(GoExecTest, TestImplicitPWD) {
  Run([] {
    const std::filesystem::path here = std::filesystem::current_path();
    const std::pair<std::string, std::string> cases[] = {
        {".", here.string()},
        {"..", here.parent_path().string()},
        {"/usr/bin", "/usr/bin"}};
    for (const auto& [dir, want] : cases) {
      Cmd cmd("env");
      cmd.SetDir(dir);
      const std::string env = "\n" + Ready(cmd.Output());
      EXPECT_NE(env.find("\nPWD=" + want + "\n"), std::string::npos) << env;
    }
  });
}

TEST_P(GoExecTest, TestExplicitPWD) {
  Run([] {
    Cmd cmd = Sh("pwd; echo $PWD");
    cmd.SetDir("/usr");
    cmd.SetEnv({"PATH=/usr/bin:/bin", "PWD=/usr"});
    EXPECT_EQ(Ready(cmd.Output()), "/usr\n/usr\n");
  });
}

// The child takes SIGCHLD as any process does.
TEST_P(GoExecTest, TestSIGCHLD) {
  Run([] {
    EXPECT_EQ(
        Ready(Sh("trap 'echo chld' CHLD; kill -CHLD $$; echo end").Output()),
        "chld\nend\n");
  });
}

TEST_P(GoExecTest, TestLookPathUnixEmptyPath) {
  Run([] {
    const char* path = std::getenv("PATH");
    const std::string before = path == nullptr ? "" : path;
    setenv("PATH", "", 1);
    const auto found = exec::LookPath("exec_me");
    setenv("PATH", before.c_str(), 1);
    EXPECT_EQ(Text(found),
              "exec: \"exec_me\": executable file not found in $PATH");
  });
}

TEST_P(GoExecTest, TestLookPathNotFound) {
  Run([] {
    EXPECT_EQ(Text(exec::LookPath("no-such-program-anywhere")),
              "exec: \"no-such-program-anywhere\": executable file not found "
              "in $PATH");
    EXPECT_FALSE(exec::LookPath("/no/such/program").ok());
  });
}

}  // namespace
}  // namespace gump
