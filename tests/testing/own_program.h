// Runs a disabled test of this executable as a program of its own, in a process
// that has been prepared for it.
//
// The program reports what is wrong by Report. Its standard descriptors may be
// closed, so gtest's own words may be lost.
#ifndef TESTS_TESTING_OWN_PROGRAM_H_
#define TESTS_TESTING_OWN_PROGRAM_H_

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"

extern char** environ;

namespace gump::testing {

inline constexpr int kReportFd = 100;

// OwnReport is the program's first step: its children get no kReportFd.
inline void OwnReport() { fcntl(kReportFd, F_SETFD, FD_CLOEXEC); }

// Report says that something is wrong, or that all is done.
inline void Report(std::string_view text) {
  std::string line(text);
  line += '\n';
  while (::write(kReportFd, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}
// Expect reports `text` unless ok.
inline void Expect(bool ok, std::string_view text) {
  if (!ok) Report(text);
}
// Must reports the error of `what` if there is one. The second form returns the
// value, and ends the program if there is none.
inline void Must(const char* what, const absl::Status& s) {
  Expect(s.ok(), std::string(what) + ": " + std::string(s.message()));
}
template <class T>
T Must(const char* what, absl::StatusOr<T> v) {
  Must(what, v.status());
  if (!v.ok()) _exit(3);
  return *std::move(v);
}

struct ProgramEnd {
  int code = -1;  // -1: a signal has ended it
  std::string said;
};

// RunOwnProgram runs the test of that name (SUITE.DISABLED_NAME) and waits for
// it. `prepare` runs in the child, before exec, and may only make system calls.
// kReportFd and the descriptors that `prepare` makes are open in the program.
//
// Requires: this process has no threads yet.
inline ProgramEnd RunOwnProgram(const std::string& test,
                                const std::vector<std::string>& settings,
                                absl::FunctionRef<void()> prepare) {
  char self[PATH_MAX] = {};
  EXPECT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  std::vector<std::string> env;
  for (char** e = environ; *e != nullptr; e++) {
    // The choice of tests here does not concern the program.
    if (!absl::StartsWith(*e, "GTEST_")) env.emplace_back(*e);
  }
  for (const std::string& s : settings) {
    // The first one counts.
    env.insert(env.begin(), s);
  }
  std::string args[] = {self, "--gtest_also_run_disabled_tests",
                        "--gtest_filter=" + test, "--gtest_brief=1"};
  char* argv[] = {args[0].data(), args[1].data(), args[2].data(),
                  args[3].data(), nullptr};
  std::vector<char*> envp;
  for (std::string& e : env) envp.push_back(e.data());
  envp.push_back(nullptr);
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    if (dup2(fds[1], kReportFd) < 0) _exit(126);
    prepare();
    execve(self, argv, envp.data());
    _exit(127);
  }
  EXPECT_GT(pid, 0);
  close(fds[1]);
  ProgramEnd end;
  char buf[4096];
  ssize_t n;
  while ((n = read(fds[0], buf, sizeof(buf))) > 0 ||
         (n < 0 && errno == EINTR)) {
    if (n > 0) end.said.append(buf, static_cast<size_t>(n));
  }
  close(fds[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) end.code = WEXITSTATUS(status);
  return end;
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_OWN_PROGRAM_H_
