// Helpers for tests that run programs: the examples, which serve, and their
// peers, which come from Debian.
//
// Everything runs on the main goroutine of a Run. A test waits for the end of a
// program or for a line that it prints. No program outlives its test.
//
// GUMP_EXAMPLES is the folder of the examples. The programs inherit the
// environment, and with it GODEBUG, which names the poller's back end.
#ifndef TESTS_PEERS_PEERS_H_
#define TESTS_PEERS_PEERS_H_

#include <gump/gump.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/status.h"

namespace gump::testing {

// Eventually waits until condition() holds, for at most a minute. Returns false
// if it never did. It sleeps in between, which leaves the core to the program
// that it waits for.
template <class C>
bool Eventually(C&& condition) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    time::Sleep(absl::Milliseconds(1));
  }
  return true;
}

// NeedsPrograms ends a test program with 77, which ctest takes for "skipped",
// if one of these is not installed.
class NeedsPrograms : public ::testing::Environment {
 public:
  explicit NeedsPrograms(std::vector<std::string> names)
      : names_(std::move(names)) {}
  void SetUp() override {
    for (const std::string& name : names_) {
      if (exec::LookPath(name).ok()) continue;
      std::printf("skipped: %s is not installed\n", name.c_str());
      std::fflush(stdout);
      _exit(77);
    }
  }

 private:
  const std::vector<std::string> names_;
};
#define GUMP_NEEDS_PROGRAMS(...)                       \
  const ::testing::Environment* const kNeedsPrograms = \
      ::testing::AddGlobalTestEnvironment(             \
          new ::gump::testing::NeedsPrograms({__VA_ARGS__}))

// Peers is a fixture that hides the Run of GoogleTest.
class Peers : public ::testing::Test {
 protected:
  // A thousand clients need as many descriptors, here and in the server, which
  // inherits the limit.
  void SetUp() override {
    rlimit files;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  }

  template <class F>
  void Run(F&& f) {
    gump::Run(std::forward<F>(f));
  }
};

// TempDir is a directory that goes with its owner.
class TempDir {
 public:
  TempDir() {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { (void)exec::Cmd("rm", "-rf", path_).Run(); }
  std::string operator/(std::string_view name) const {
    return path_ + "/" + std::string(name);
  }

 private:
  std::string path_ = "/tmp/gump-peers-XXXXXX";
};

// OutputOf runs a program to its end and returns its output, errors too. The
// program has to exit with 0 within a minute.
template <class... Args>
std::string OutputOf(std::string_view program, const Args&... args) {
  const auto [ctx, cancel] =
      context::WithTimeout(context::Background(), absl::Minutes(1));
  exec::Cmd cmd = exec::CommandContext(ctx, program, args...);
  std::string output;
  const absl::Status s = cmd.CombinedOutput(&output);
  EXPECT_TRUE(s.ok()) << program << ": " << s << "\n" << output;
  cancel();
  return output;
}

// OutputOfShell is OutputOf, for a line of the shell.
inline std::string OutputOfShell(const std::string& line) {
  return OutputOf("bash", "-c", "set -o pipefail\n" + line);
}

inline std::string Example(const std::string& name) {
  const char* folder = std::getenv("GUMP_EXAMPLES");
  EXPECT_NE(folder, nullptr);
  return std::string(folder == nullptr ? "." : folder) + "/" + name;
}

// Program runs beside the test. It ends at Stop, or is killed.
class Program {
 public:
  explicit Program(const std::vector<std::string>& command)
      : cmd_(command[0], {command.begin() + 1, command.end()}) {
    const auto [output, input] = Ready(os::Pipe());
    cmd_.SetStdout(input);
    cmd_.SetStderr(input);
    EXPECT_EQ(cmd_.Start(), absl::OkStatus());
    EXPECT_EQ(input.Close(), absl::OkStatus());
    reader_.Go([this, output = output] {
      char buf[4096];
      for (;;) {
        const absl::StatusOr<size_t> n = output.Read(absl::MakeSpan(buf));
        if (!n.ok() || *n == 0) break;
        mu_.Lock();
        said_.append(buf, *n);
        mu_.Unlock();
      }
      closed_ = true;
    });
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (ended_) return;
    EXPECT_EQ(cmd_.Kill(), absl::OkStatus());
    reader_.Wait();
    cmd_.Wait().IgnoreError();  // "signal: killed"
  }

  // Says waits until the program has printed a line that contains text, and
  // returns what comes after it on that line. It fails at once if the program
  // has ended.
  std::string Says(std::string_view text) {
    std::string rest;
    bool found = false;
    const bool decided = Eventually([&] {
      const bool closed = closed_;  // read first, so no output is missed
      mu_.Lock();
      defer _{[this] { mu_.Unlock(); }};
      const size_t at = said_.find(text);
      const size_t end = said_.find('\n', at);
      if (at == said_.npos || end == said_.npos) return closed;
      rest = said_.substr(at + text.size(), end - at - text.size());
      found = true;
      return true;
    });
    EXPECT_TRUE(found) << "no \"" << text << "\" in what it says"
                       << (decided ? " until its end: " : ": ") << Said();
    return rest;
  }

  // Said returns all that the program has printed so far.
  std::string Said() {
    mu_.Lock();
    defer _{[this] { mu_.Unlock(); }};
    return said_;
  }
  bool HasSaid(std::string_view text) {
    return Said().find(text) != std::string::npos;
  }

  pid_t Pid() const { return cmd_.Pid(); }

  // Stop asks the program to end and waits until it has. A program that has not
  // ended a minute later gets a SIGQUIT, so that its dump tells why.
  absl::Status Stop(int signal = SIGTERM) {
    EXPECT_EQ(cmd_.Signal(signal), absl::OkStatus());
    return Wait();
  }
  absl::Status Wait() {
    ended_ = true;
    if (!Eventually([this] { return closed_.load(); })) {
      EXPECT_EQ(cmd_.Signal(SIGQUIT), absl::OkStatus());
    }
    reader_.Wait();
    const absl::Status s = cmd_.Wait();
    if (!s.ok()) std::fputs(said_.c_str(), stderr);
    return s;
  }

 private:
  exec::Cmd cmd_;
  sync::WaitGroup reader_;
  sync::Mutex mu_;  // guards said_
  std::string said_;
  std::atomic<bool> closed_ = false;  // the program's output has ended
  bool ended_ = false;
};

// Server is an example that prints the address at which it serves.
class Server : public Program {
 public:
  // A shell runs `before` first, and the example inherits its effects:
  // "ulimit -n 40".
  explicit Server(const std::string& example,
                  const std::vector<std::string>& args = {"127.0.0.1:0"},
                  const std::string& before = ":")
      : Program(CommandOf(example, args, before)),
        address_(Says("listening on ")) {}

  const std::string& Address() const { return address_; }
  std::string Port() const { return address_.substr(address_.rfind(':') + 1); }

 private:
  static std::vector<std::string> CommandOf(
      const std::string& example, const std::vector<std::string>& args,
      const std::string& before) {
    std::vector<std::string> command = {"bash", "-c", before + "; exec \"$@\"",
                                        "bash", Example(example)};
    command.insert(command.end(), args.begin(), args.end());
    return command;
  }

  const std::string address_;
};

}  // namespace gump::testing

#endif  // TESTS_PEERS_PEERS_H_
