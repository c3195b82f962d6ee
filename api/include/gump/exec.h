// An exec::Cmd is another program, which this process runs as a child.
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
// A goroutine that waits for a program to end parks. No thread waits for the
// program, if the kernel has pidfds (Linux 5.4). The child is made without
// fork, so no memory is copied and no handler of pthread_atfork runs. It gets
// only the three standard descriptors, and those descriptors of this process
// that are not close-on-exec. The descriptors of this library are all
// close-on-exec.
//
// The child inherits what it would inherit if this library were not there:
// limits, ignored signals, nice value, affinity, timer slack, and so on. It
// inherits them from the thread that calls Start. A goroutine that changes an
// attribute of its thread for a child calls LockOSThread first. The signals
// that the child blocks are those that were blocked when the runtime started.
// If Start is called from a plain thread or after LockOSThread, they are those
// that the thread blocks.
//
// A child that asks for a signal at the end of its parent (PR_SET_PDEATHSIG)
// gets it when the process ends. It gets it earlier in two cases: a plain
// thread has called Start and ends, or a goroutine has called it and ends while
// it is locked to its thread.
//
// A program that ends badly is a status of code Unknown: "exit status 1",
// "signal: killed", "signal: aborted (core dumped)". A program that could not
// be started is a status with an errno (status.h): "fork/exec ./x: exec format
// error". Mistakes of the caller are FailedPrecondition: "exec: already
// started". Functions throw std::bad_alloc if there is no memory.
//
// Source: package os/exec of Go.
#ifndef GUMP_EXEC_H_
#define GUMP_EXEC_H_

#include <sys/types.h>

#include <cstddef>
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

#pragma GCC visibility push(default)

namespace gump::internal {
struct Command;
}  // namespace gump::internal

namespace gump::exec {

// Cmd is a program that is run once. It can be moved, not copied.
//
// Requires: one goroutine or plain thread uses a Cmd at a time. Kill, Signal
// and Pid are exceptions: they may be called while another goroutine or thread
// is in Wait, Run or Output. A Cmd that was moved from is only assigned to or
// destroyed.
//
// A function whose comment does not mention parking may park only while a file
// is opened, or a mutex is held for a few instructions. If a Cmd is dropped,
// the program continues. If Wait is never called, an ended program remains a
// zombie until this process ends.
class Cmd {
 public:
  // Makes a Cmd that has not started. When it starts, the program is looked up
  // as LookPath does. The arguments are those after the name.
  //
  //   exec::Cmd cmd("tar", "-xf", path);
  //   exec::Cmd same("tar", std::vector<std::string>{"-xf", path});
  template <class... Args>
  requires(std::is_convertible_v<const Args&, std::string_view>&&...)  //
      explicit Cmd(std::string_view name, const Args&... args)
      : Cmd(name,
            std::vector<std::string>{std::string(std::string_view(args))...}) {}
  Cmd(std::string_view name, std::vector<std::string> args)
      : Cmd(name, args.data(), args.size()) {}
  Cmd(Cmd&&) noexcept;
  Cmd& operator=(Cmd&&) noexcept;
  ~Cmd();

  // Requires, for the functions down to StderrPipe: Start has not been called.

  // SetDir sets the directory in which the program runs. A relative program
  // name with a slash is relative to that directory.
  void SetDir(std::string_view dir);
  // SetEnv sets the whole environment. Each string is a "KEY=value". If a key
  // occurs twice, the last one counts. Without SetEnv, the program gets the
  // environment that this process has at Start, and PWD if SetDir was called.
  void SetEnv(std::vector<std::string> env) { SetEnv(env.data(), env.size()); }
  // SetStdin, SetStdout and SetStderr set the standard descriptors of the
  // program, which are /dev/null by default. A File stays the caller's, and
  // stays open. A terminal becomes blocking, as the program will expect. Calls
  // of this process on it then wait in the kernel, without deadlines.
  void SetStdin(os::File f);
  void SetStdout(os::File f);
  void SetStderr(os::File f);

  // StdinPipe returns a pipe to the standard input of the program. StdoutPipe
  // and StderrPipe return pipes from its outputs. Wait closes them, so read to
  // the end before Wait. Close the pipe of StdinPipe when there is no more
  // input. Fails if the descriptor is already set ("exec: Stdin already set").
  [[nodiscard]] absl::StatusOr<os::File> StdinPipe();
  [[nodiscard]] absl::StatusOr<os::File> StdoutPipe();
  [[nodiscard]] absl::StatusOr<os::File> StderrPipe();

  // Start starts the program. Parks until the program runs or could not be
  // started. If it fails, or if the context is already done, there is no
  // process, and the pipes are closed. A second Start fails ("exec: already
  // started"), even if the first one has failed.
  [[nodiscard]] absl::Status Start();

  // Wait waits for the program to end, and closes the pipes. Parks until it has
  // ended. Returns OK if the exit status is 0. If the context has ended the
  // program, returns the context's Err(). (Go returns "signal: killed".) A
  // second Wait fails.
  absl::Status Wait();

  // Run is Start and Wait. Parks as Wait does.
  absl::Status Run();

  // Output is Run, and returns the data that the program wrote to its standard
  // output. CombinedOutput includes standard error. Both park until no process,
  // such as a child of the program, can write to that output any more. The
  // forms that take a string append the data to it, even if the program fails.
  [[nodiscard]] absl::StatusOr<std::string> Output();
  [[nodiscard]] absl::StatusOr<std::string> CombinedOutput();
  absl::Status Output(std::string* out);
  absl::Status CombinedOutput(std::string* out);

  // Kill is Signal(SIGKILL). Signal sends a signal to the process. It fails
  // before Start. After Wait has returned, it fails with "os: process already
  // finished". It never reaches another process with the same number.
  absl::Status Kill() const;
  absl::Status Signal(int sig) const;

  // Pid returns the process id, or 0 before Start.
  pid_t Pid() const noexcept;
  // ExitCode returns the exit status. Returns -1 before Wait has returned, and
  // if a signal ended the program.
  int ExitCode() const noexcept;

 private:
  friend Cmd CommandContextOf(const context::Context& ctx, Cmd cmd);

  // These move the n strings. No std::vector is passed to the library, because
  // with -D_GLIBCXX_DEBUG the program has another std::vector.
  Cmd(std::string_view name, std::string* args, size_t n);
  void SetEnv(std::string* env, size_t n);

  std::unique_ptr<internal::Command> c_;
};

// CommandContextOf is CommandContext for a Cmd that already exists: it binds
// cmd to ctx and returns it.
[[nodiscard]] Cmd CommandContextOf(const context::Context& ctx, Cmd cmd);

// CommandContext makes a Cmd and binds it to ctx: when ctx is done, and the
// program has not ended before, the program is killed, and Wait returns
// ctx.Err(). Children of the program are not killed.
template <class... Args>
[[nodiscard]] Cmd CommandContext(const context::Context& ctx,
                                 std::string_view name, Args&&... args) {
  return CommandContextOf(ctx, Cmd(name, std::forward<Args>(args)...));
}

// LookPath returns the path of the program `file`. It looks in the directories
// of $PATH, or, if the name has a slash, only at that path. Fails with NotFound
// `exec: "x": executable file not found in $PATH`. Also fails if the program is
// found in the current directory only because $PATH names that directory. May
// park.
[[nodiscard]] absl::StatusOr<std::string> LookPath(std::string_view file);

}  // namespace gump::exec

#pragma GCC visibility pop

#endif  // GUMP_EXEC_H_
