// Running other programs.
//
//   exec::Cmd cmd("sort", "-n");
//   absl::StatusOr<os::File> in = cmd.StdinPipe();
//   absl::StatusOr<os::File> out = cmd.StdoutPipe();
//   if (absl::Status s = cmd.Start(); !s.ok()) return s;
//   go([in = *in] {
//     in.Write("3\n1\n2\n").IgnoreError();
//     in.Close().IgnoreError();
//   });
//   ...  // read *out to its end
//   if (absl::Status s = cmd.Wait(); !s.ok()) return s;  // "exit status 2"
//
//   absl::StatusOr<std::string> date = exec::Cmd("date", "-u").Output();
//
//   auto [ctx, cancel] = context::WithTimeout(parent, absl::Seconds(5));
//   absl::Status s = exec::CommandContext(ctx, "make").Run();
//
// Whoever waits for a program to end parks; no thread waits for it. The child
// is made without fork: no memory is copied, and no handler of pthread_atfork
// runs. It starts with no signal blocked, and ignores those that the program
// ignores. It gets no descriptors but the three standard ones, unless some are
// open that are not close-on-exec; those of this library all are.
//
// A program that ends badly is a status of code Unknown: "exit status 1",
// "signal: killed", "signal: aborted (core dumped)". That it could not be
// started is one with an errno (status.h): "fork/exec ./x: exec format error".
// The caller's mistakes are FailedPrecondition: "exec: already started".
//
// Source: package os/exec of Go.
#ifndef GUMP_EXEC_H_
#define GUMP_EXEC_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gump/context.h"
#include "gump/os.h"

namespace gump {

namespace internal {
struct Command;
}  // namespace internal

namespace exec {

// LookPath is where the program `file` is: in one of the directories of $PATH,
// or, if its name has a slash, there. Fails with NotFound `exec: "x":
// executable file not found in $PATH`, and if it is found in the current
// directory only because $PATH names that. May park.
[[nodiscard]] absl::StatusOr<std::string> LookPath(std::string_view file);

// Cmd is a program to be run, once. It can be moved, not copied. Kill, Signal
// and Pid may be called while somebody else is in Wait, Run or Output; else one
// goroutine or plain thread uses it at a time. Unless they say otherwise its
// functions park only while files are opened.
//
// A Cmd that is dropped lets the program run on; without a Wait it remains a
// zombie when it has ended, until this process ends.
class Cmd {
 public:
  // The program is looked for as LookPath does; the arguments are those after
  // its name.
  //
  //   exec::Cmd cmd("tar", "-xf", path);
  //   exec::Cmd same("tar", std::vector<std::string>{"-xf", path});
  template <class... Args>
  requires(std::is_convertible_v<const Args&, std::string_view>&&...)  //
      explicit Cmd(std::string_view name, const Args&... args)
      : Cmd(name,
            std::vector<std::string>{std::string(std::string_view(args))...}) {}
  Cmd(std::string_view name, std::vector<std::string> args);
  Cmd(Cmd&&) noexcept;
  Cmd& operator=(Cmd&&) noexcept;
  ~Cmd();

  // What follows is said before Start.

  // SetDir: where it runs. A name with a slash that is relative is relative to
  // that.
  void SetDir(std::string_view dir);
  // SetEnv: its whole environment, "KEY=value" each; of two with the same key
  // the last counts. Otherwise it gets ours, as it is at Start, and PWD if
  // there is a Dir.
  void SetEnv(std::vector<std::string> env);
  // Its standard descriptors; /dev/null unless set. A File remains the
  // caller's, and open. A terminal becomes one that blocks, as the child will
  // expect: our own calls on it wait in the kernel then, without deadlines.
  void SetStdin(os::File f);
  void SetStdout(os::File f);
  void SetStderr(os::File f);

  // Pipes to what it reads and from what it writes. Wait closes them: read to
  // the end before. Close the first when there is no more to come. Fail if the
  // descriptor has been set already ("exec: Stdin already set").
  [[nodiscard]] absl::StatusOr<os::File> StdinPipe();
  [[nodiscard]] absl::StatusOr<os::File> StdoutPipe();
  [[nodiscard]] absl::StatusOr<os::File> StderrPipe();

  // Start starts it. If that fails, or its context is done already, there is no
  // process, and the pipes are closed.
  [[nodiscard]] absl::Status Start();

  // Wait parks until it has ended, and closes the pipes. OK: exit status 0. If
  // its context has ended it, that one's Err(). (In Go "signal: killed".)
  absl::Status Wait();

  // Run is Start and Wait.
  absl::Status Run();

  // Output is Run, and what it has written to its standard output. Ends when
  // nobody, such as a child of its own, can write there any more.
  // CombinedOutput has standard error as well. Those that take a string append
  // to it, also when the program fails. Parks.
  [[nodiscard]] absl::StatusOr<std::string> Output();
  [[nodiscard]] absl::StatusOr<std::string> CombinedOutput();
  absl::Status Output(std::string* out);
  absl::Status CombinedOutput(std::string* out);

  // Kill is Signal(SIGKILL). Signal sends a signal to the process, unless Wait
  // has returned: "os: process already finished". Never reaches another process
  // of the same number.
  absl::Status Kill() const;
  absl::Status Signal(int sig) const;

  // Pid is 0 before Start.
  pid_t Pid() const noexcept;
  // ExitCode is the exit status; -1 before Wait has returned, and if a signal
  // has ended it.
  int ExitCode() const noexcept;

 private:
  friend Cmd CommandContextOf(const context::Context& ctx, Cmd cmd);

  std::unique_ptr<internal::Command> c_;
};

[[nodiscard]] Cmd CommandContextOf(const context::Context& ctx, Cmd cmd);

// CommandContext is a Cmd that is killed when ctx is done, if it has not ended
// before; its children are not. Then Wait returns ctx.Err().
template <class... Args>
[[nodiscard]] Cmd CommandContext(const context::Context& ctx,
                                 std::string_view name, Args&&... args) {
  return CommandContextOf(ctx, Cmd(name, std::forward<Args>(args)...));
}

}  // namespace exec
}  // namespace gump

#endif  // GUMP_EXEC_H_
