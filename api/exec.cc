// Running other programs.
//
// Start makes the child as vfork does (spawn_linux.cc), on the thread of the
// goroutine that calls it. That thread blocks until the child has called exec,
// so this is a declared call. The runtime does not end the thread for being
// idle before the child has been reaped (child.cc).
//
// The end of a child is an event of its pidfd, which the poller watches. Where
// there is no pidfd (no descriptor left, an old kernel, a denied call), a
// declared call waits.
//
// Invariants of a Process:
//  (X1) The number pid_ belongs to the child until the child is reaped. It is
//       reaped with mu_ held, and reaped_ records that. Signals are sent with
//       mu_ held.
#include "gump/exec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <optional>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "api/os/file.h"
#include "api/signal_name.h"
#include "api/status_util.h"
#include "gump/chan.h"
#include "gump/sync/mutex.h"
#include "netpoll/fd.h"
#include "runtime/sched/child.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/spawn_linux.h"

extern char** environ;

namespace gump {

namespace internal {
namespace {

constexpr auto kPidfd = static_cast<idtype_t>(3);  // P_PIDFD

absl::Status Misuse(const char* text) {
  return absl::FailedPreconditionError(text);
}

absl::Status Failed(std::string_view op, std::string_view path, int err) {
  std::string what(op);
  what.append(" ").append(path);
  return ErrorStatus(what, err, kFileClosed);
}

// Quoted returns the text as Go's %q prints it, except that it leaves bytes
// that are not ASCII alone.
std::string Quoted(std::string_view text) {
  static constexpr std::string_view kPlain = "abfnrtv\\\"";
  static constexpr std::string_view kEscaped = "\a\b\f\n\r\t\v\\\"";
  static constexpr char kHex[] = "0123456789abcdef";
  std::string q = "\"";
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (const size_t i = kEscaped.find(c); i != std::string_view::npos) {
      q.append({'\\', kPlain[i]});
    } else if (u < 0x20 || u == 0x7f) {
      q.append({'\\', 'x', kHex[u >> 4], kHex[u & 15]});
    } else {
      q += c;
    }
  }
  q += '"';
  return q;
}

// ExitStatus returns the way in which a program has ended, as an error. It is
// OK if the program has succeeded.
absl::Status ExitStatus(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) {
    if (info.si_status == 0) return absl::OkStatus();
    return absl::UnknownError("exit status " + std::to_string(info.si_status));
  }
  std::string text = "signal: " + SignalName(info.si_status);
  if (info.si_code == CLD_DUMPED) text += " (core dumped)";
  return absl::UnknownError(text);
}

// Executable returns 0 if path is a program that we may run, or the reason why
// it is not, as an errno.
int Executable(const std::string& path) {
  if (path.find('\0') != std::string::npos) return EINVAL;
  return blocking([&] {
    struct stat st;
    const long n = SysCall([&] { return stat(path.c_str(), &st); });
    if (n < 0) return ErrnoOf(n);
    if (S_ISDIR(st.st_mode)) return EISDIR;
    return ErrnoOf(SysCall([&] { return eaccess(path.c_str(), X_OK); }));
  });
}

// LacksCall returns true for the errors of a newer call where there is none. An
// old kernel says ENOSYS. An old seccomp profile says EPERM of every call that
// it does not know.
bool LacksCall(int err) { return err == ENOSYS || err == EPERM; }

// Process is a started child.
class Process {
 public:
  // Start makes the child, and returns 0 or the errno. It is called once,
  // before any other function.
  int Start(rt::ChildSpec* spec) {
    pid_ = blocking([&] { return rt::childStart(spec, &maker_); });
    return ErrnoOf(pid_);
  }
  // Begin is called once after Start, before any other function.
  void Begin() {
    const pid_t pid = pid_;
    const long fd = NewFd([&] { return syscall(SYS_pidfd_open, pid, 0); });
    if (fd < 0) return;
    pidfd_.emplace(static_cast<int>(fd), rt::FdKind::kPipe);
    if (pidfd_->init() == 0) return;
    close(static_cast<int>(fd));
    pidfd_.reset();
  }

  pid_t pid() const { return pid_; }

  // Await parks until the child has ended, and reaps it. Returns 0 or the
  // errno. Called once.
  int Await(siginfo_t* info) {
    int err = pidfd_ ? AwaitEvent(info) : AwaitCall(info);
    const std::scoped_lock hold(mu_);
    reaped_ = true;  // even if other code of the program has reaped it
    siginfo_t again;
    if (err == 0) err = ErrnoOf(Look(&again, WEXITED | WNOHANG));
    if (pidfd_) (void)pidfd_->close();
    rt::childEnded(maker_);
    return err;
  }

  absl::Status Signal(int sig) {
    const std::scoped_lock hold(mu_);
    int err = ESRCH;
    if (!reaped_) {
      err = ErrnoOf(SysCall([&]() -> long {
        if (pidfd_) {
          const long n =
              syscall(SYS_pidfd_send_signal, pidfd_->sysfd(), sig, nullptr, 0);
          if (n == 0 || !LacksCall(errno)) return n;
        }
        // The number still belongs to the child (X1). If the EPERM means that
        // we may not signal the child, kill fails with it as well.
        return kill(pid_, sig);
      }));
    }
    if (err == 0) return absl::OkStatus();
    if (err == ESRCH) return Misuse("os: process already finished");
    return ErrorStatus("", err, kFileClosed);
  }

 private:
  // Look is waitid for the child.
  long Look(siginfo_t* info, int options) {
    *info = {};
    return SysCall([&]() -> long {
      if (pidfd_) {
        const int n =
            waitid(kPidfd, static_cast<id_t>(pidfd_->sysfd()), info, options);
        // EINVAL: Linux 5.3 has pidfds, and cannot wait for them.
        if (n == 0 || (errno != EINVAL && !LacksCall(errno))) return n;
      }
      return waitid(P_PID, static_cast<id_t>(pid_), info, options);
    });
  }
  int AwaitEvent(siginfo_t* info) {
    long n = 0;
    const int err = pidfd_->withRead([&](int) {
      n = Look(info, WEXITED | WNOHANG | WNOWAIT);
      return n < 0 || info->si_pid != 0;
    });
    return err != 0 ? err : ErrnoOf(n);
  }
  int AwaitCall(siginfo_t* info) {
    return ErrnoOf(blocking([&] { return Look(info, WEXITED | WNOWAIT); }));
  }

  pid_t pid_ = 0;
  rt::M* maker_ = nullptr;  // for childEnded
  std::optional<rt::FD> pidfd_;
  sync::Mutex mu_;
  bool reaped_ = false;  // (X1)
};

// Killer ends a Process when its context is done.
struct Killer {
  explicit Killer(std::shared_ptr<Process> p) : process(std::move(p)) {}

  void operator()() {
    sent = process->Signal(SIGKILL).ok();
    over.Close();
  }

  const std::shared_ptr<Process> process;
  bool sent = false;  // written before over is closed
  const chan<void> over = make_chan<void>();
};

// Stream is a standard descriptor of the child. It is a file, or a pipe.
struct Stream {
  bool set = false;
  os::File file;    // the file that the user has set
  OwnedFd child;    // the child's end of the pipe, until Start
  os::File parent;  // our end of the pipe, until Wait
};

// Reopen makes a new open file description for a pipe that was opened
// non-blocking. The new one blocks. Returns a value below 0 if that is not
// possible. It is only for pipes, because opening a device may have other
// effects.
long Reopen(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode)) return -1;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const long flags = SysCall([&] { return fcntl(fd, F_GETFL); });
  if (flags < 0) return flags;
  const int keep = static_cast<int>(flags) & (O_ACCMODE | O_APPEND);
  // Non-blocking at first, because opening a FIFO would wait for the other
  // side.
  const long n = NewFd([&] {
    return open(path.c_str(), keep | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  });
  if (n >= 0) fcntl(static_cast<int>(n), F_SETFL, keep);
  return n;
}

// Lend makes a descriptor for the child from a user's file. Returns 0, the
// errno, or one of FD's errors.
int Lend(const os::File& f, OwnedFd* out) {
  OsFile* file = OsFileAccess::get(f);
  if (file == nullptr) return EINVAL;
  long n = 0;
  const int err = file->fd.with([&](int fd) {
    n = file->pollable ? Reopen(fd) : -1;
    if (n >= 0) return 0;
    n = rt::dupOfProgram(fd);
    if (n < 0) return ErrnoOf(n);
    // As in Go: programs do not expect EAGAIN. Our descriptor then blocks too.
    if (file->pollable) {
      const int flags = fcntl(fd, F_GETFL);
      file->fd.setBlocks();
      fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
    return 0;
  });
  if (err == 0) *out = OwnedFd(static_cast<int>(n));
  return err;
}

// Strings returns a list of texts in the form that execve takes.
std::vector<char*> Strings(const std::vector<std::string>& texts) {
  std::vector<char*> p;
  p.reserve(texts.size() + 1);
  for (const std::string& t : texts) p.push_back(const_cast<char*>(t.c_str()));
  p.push_back(nullptr);
  return p;
}

bool HasNul(const std::vector<std::string>& texts) {
  return std::any_of(texts.begin(), texts.end(), [](const std::string& t) {
    return t.find('\0') != std::string::npos;
  });
}

// Dedup keeps the last of the variables with the same key.
std::vector<std::string> Dedup(std::vector<std::string> env) {
  std::unordered_set<std::string> seen;
  std::vector<std::string> kept;
  for (auto kv = env.rbegin(); kv != env.rend(); ++kv) {
    const size_t equals = kv->find('=', 1);
    if (equals != std::string::npos &&
        !seen.insert(kv->substr(0, equals)).second) {
      continue;
    }
    kept.push_back(std::move(*kv));
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace

// Command is the state of a Cmd.
struct Command {
  absl::Status Start();
  absl::Status Wait();
  absl::StatusOr<os::File> Pipe(int number);
  absl::Status Capture(std::string* out);
  absl::Status Spawn(const std::string& path, Process* into);
  std::vector<std::string> Environment() const;
  void Abandon();
  void CloseChildEnds();
  void CloseParentEnds();

  std::vector<std::string> args;  // the name first
  std::string dir;
  std::optional<std::vector<std::string>> env;
  Stream streams[3];
  bool stderr_is_stdout = false;
  context::Context ctx;

  bool start_called = false;         // even if that Start has failed
  std::shared_ptr<Process> process;  // set by Start
  rt::Atomic<Process*> started;      // the same, for callers outside of Start
  std::shared_ptr<Killer> killer;    // set if there is a ctx
  context::StopFunc stop;
  rt::Atomic<bool> waited;
  rt::Atomic<int> exit_code{-1};
};

absl::StatusOr<os::File> Command::Pipe(int number) {
  static constexpr const char* kAlready[] = {"exec: Stdin already set",
                                             "exec: Stdout already set",
                                             "exec: Stderr already set"};
  static constexpr const char* kLate[] = {
      "exec: StdinPipe after process started",
      "exec: StdoutPipe after process started",
      "exec: StderrPipe after process started"};
  Stream& s = streams[number];
  if (s.set) return Misuse(kAlready[number]);
  if (process != nullptr) return Misuse(kLate[number]);
  int fds[2];
  const int n =
      rt::newDescriptorPair(fds, [&] { return pipe2(fds, O_CLOEXEC); });
  if (n < 0) return ErrorStatus("pipe2", -n, kFileClosed);
  OwnedFd ends[2] = {OwnedFd(fds[0]), OwnedFd(fds[1])};
  // The child's end of the pipe blocks, our end does not.
  OwnedFd& child = ends[number == 0 ? 0 : 1];
  OwnedFd& parent = ends[number == 0 ? 1 : 0];
  s.parent =
      AdoptFile(std::move(parent), number == 0 ? "|1" : "|0", /*poll=*/true);
  s.child = std::move(child);
  s.set = true;
  return s.parent;
}

void Command::CloseChildEnds() {
  for (Stream& s : streams) s.child = OwnedFd();
}

void Command::CloseParentEnds() {
  for (Stream& s : streams) {
    if (s.parent) (void)s.parent.Close();  // the user may have closed it
    s.parent = os::File();
  }
}

std::vector<std::string> Command::Environment() const {
  if (env) return Dedup(*env);
  std::vector<std::string> e;
  for (char** kv = environ; kv != nullptr && *kv != nullptr; kv++) {
    e.emplace_back(*kv);
  }
  if (!dir.empty()) {
    std::error_code failed;
    std::string pwd =
        std::filesystem::absolute(dir, failed).lexically_normal().string();
    if (pwd.size() > 1 && pwd.back() == '/') pwd.pop_back();
    if (!failed) e.push_back("PWD=" + pwd);
  }
  return Dedup(std::move(e));
}

// Spawn makes a child from a program that has been found.
absl::Status Command::Spawn(const std::string& path, Process* into) {
  const std::vector<std::string> environment = Environment();
  if (HasNul(environment)) {
    return absl::InvalidArgumentError(
        "exec: environment variable contains NUL");
  }
  if (HasNul({dir})) return Failed("chdir", dir, EINVAL);
  if (HasNul(args)) return Failed("fork/exec", path, EINVAL);
  const std::vector<char*> argv = Strings(args);
  const std::vector<char*> envp = Strings(environment);
  rt::ChildSpec spec;
  spec.path = path.c_str();
  spec.argv = argv.data();
  spec.envp = envp.data();
  if (!dir.empty()) {
    struct stat st;  // only to report a missing directory as such
    const long n = BlockingSysCall([&] { return stat(dir.c_str(), &st); });
    if (n < 0) return Failed("chdir", dir, ErrnoOf(n));
    spec.dir = dir.c_str();
  }
  OwnedFd lent[3];
  for (int i = 0; i < 3; i++) {
    Stream& s = streams[i];
    if (s.set && s.child.get() < 0) {
      const int err = Lend(s.file, &lent[i]);
      if (err != 0) return Failed("fork/exec", path, err);
    } else {
      lent[i] = std::move(s.child);
    }
    const int from = i == 2 && stderr_is_stdout ? 1 : i;
    spec.fds[i] = lent[from].get();  // a negative one means /dev/null
  }
  const int err = into->Start(&spec);
  return err == 0 ? absl::OkStatus() : Failed("fork/exec", path, err);
}

absl::Status Command::Start() {
  if (std::exchange(start_called, true)) {
    return Misuse("exec: already started");
  }
  auto prepared =
      std::make_shared<Process>();  // may throw, so before the child
  const auto limited = static_cast<bool>(ctx.Done());  // may throw
  absl::Status s = [&]() -> absl::Status {
    std::string path = args[0];
    if (path.empty()) return Misuse("exec: no command");
    if (path.find('/') == std::string::npos) {
      absl::StatusOr<std::string> found = exec::LookPath(path);
      if (!found.ok()) return found.status();
      path = *std::move(found);
    }
    if (absl::Status done = ctx.Err(); !done.ok()) return done;
    return Spawn(path, prepared.get());
  }();
  CloseChildEnds();
  if (!s.ok()) {
    CloseParentEnds();
    return s;
  }
  process = std::move(prepared);
  process->Begin();
  started.store(process.get(), rt::release);  // pairs with Cmd::Signal, Pid
  if (!limited) return absl::OkStatus();
  try {
    killer = std::make_shared<Killer>(process);
    stop = context::AfterFunc(ctx, [k = killer] { (*k)(); });
  } catch (...) {  // no memory: the child would run without its context
    killer = nullptr;
    Abandon();
    throw;
  }
  return absl::OkStatus();
}

// Abandon ends the program and cleans up after it.
void Command::Abandon() {
  (void)process->Signal(SIGKILL);
  CloseParentEnds();  // so that it ends even if it cannot be killed
  (void)Wait();
}

absl::Status Command::Wait() {
  if (process == nullptr) return Misuse("exec: not started");
  // The first caller goes on; nothing is published.
  if (waited.xchg(true, rt::relaxed))
    return Misuse("exec: Wait was already called");
  siginfo_t info;
  const int err = process->Await(&info);
  bool killed = false;
  if (killer != nullptr && !stop()) {
    (void)killer->over.Recv();
    killed = killer->sent;
  }
  CloseParentEnds();
  if (err != 0) return ErrorStatus("wait", err, kFileClosed);
  const absl::Status ended = ExitStatus(info);
  if (info.si_code == CLD_EXITED) {
    exit_code.store(info.si_status, rt::relaxed);  // only a number
  }
  const bool by_kill = info.si_code == CLD_KILLED && info.si_status == SIGKILL;
  return killed && (ended.ok() || by_kill) ? ctx.Err() : ended;
}

// Capture runs the program and reads its standard output.
absl::Status Command::Capture(std::string* out) {
  if (start_called && !streams[1].set) return Misuse("exec: already started");
  absl::StatusOr<os::File> from = Pipe(1);
  if (!from.ok()) return from.status();
  if (absl::Status s = Start(); !s.ok()) return s;
  absl::Status read;
  for (size_t n = out->size();;) {
    try {
      out->resize(std::max(n + 4096, std::min(2 * n, n + (1 << 20))));
    } catch (...) {  // no other code knows the program
      out->resize(n);
      Abandon();
      throw;
    }
    const auto got =
        from->Read(absl::MakeSpan(out->data() + n, out->size() - n));
    if (got.ok()) n += *got;
    if (!got.ok() || *got == 0) {
      read = got.status();
      out->resize(n);
      break;
    }
  }
  const absl::Status ended = Wait();
  return ended.ok() ? read : ended;
}

}  // namespace internal

namespace exec {

using internal::ErrorStatus;
using internal::kFileClosed;

absl::StatusOr<std::string> LookPath(std::string_view file) {
  const std::string name(file);
  const std::string what = "exec: " + internal::Quoted(file);
  if (name.find('/') != std::string::npos) {
    const int err = internal::Executable(name);
    if (err == 0) return name;
    const bool missing = err != EACCES && err != EISDIR;
    return ErrorStatus(missing ? what + ": stat " + name : what, err,
                       kFileClosed);
  }
  const char* env = std::getenv("PATH");
  std::string_view path = env == nullptr ? "" : env;
  // An empty PATH has no directory. Otherwise there is one directory more than
  // there are colons.
  for (bool more = !path.empty() && !name.empty(); more;) {
    const size_t colon = path.find(':');
    std::string dir(path.substr(0, colon));
    more = colon != path.npos;
    if (more) path.remove_prefix(colon + 1);
    if (dir.empty()) dir.assign(1, '.');  // as shells do
    const bool absolute = dir[0] == '/';
    if (dir.back() != '/') dir += '/';
    dir += name;
    if (internal::Executable(dir) != 0) continue;
    if (absolute) return dir;
    return absl::FailedPreconditionError(
        what + ": cannot run executable found relative to current directory");
  }
  return absl::NotFoundError(what + ": executable file not found in $PATH");
}

Cmd::Cmd(std::string_view name, std::string* args, size_t n)
    : c_(std::make_unique<internal::Command>()) {
  c_->args.reserve(n + 1);
  c_->args.emplace_back(name);
  for (size_t i = 0; i < n; i++) c_->args.push_back(std::move(args[i]));
}
Cmd::Cmd(Cmd&&) noexcept = default;
Cmd& Cmd::operator=(Cmd&&) noexcept = default;
Cmd::~Cmd() = default;

Cmd CommandContextOf(const context::Context& ctx, Cmd cmd) {
  cmd.c_->ctx = ctx;
  return cmd;
}

void Cmd::SetDir(std::string_view dir) { c_->dir = std::string(dir); }
void Cmd::SetEnv(std::string* env, size_t n) {
  c_->env.emplace(std::move_iterator(env), std::move_iterator(env + n));
}

namespace {
void Set(internal::Stream* s, os::File f) {
  *s = internal::Stream();
  s->set = true;
  s->file = std::move(f);
}
}  // namespace
void Cmd::SetStdin(os::File f) { Set(&c_->streams[0], std::move(f)); }
void Cmd::SetStdout(os::File f) { Set(&c_->streams[1], std::move(f)); }
void Cmd::SetStderr(os::File f) { Set(&c_->streams[2], std::move(f)); }

absl::StatusOr<os::File> Cmd::StdinPipe() { return c_->Pipe(0); }
absl::StatusOr<os::File> Cmd::StdoutPipe() { return c_->Pipe(1); }
absl::StatusOr<os::File> Cmd::StderrPipe() { return c_->Pipe(2); }

absl::Status Cmd::Start() { return c_->Start(); }
absl::Status Cmd::Wait() { return c_->Wait(); }

absl::Status Cmd::Run() {
  const absl::Status s = c_->Start();
  return s.ok() ? c_->Wait() : s;
}

absl::Status Cmd::Output(std::string* out) { return c_->Capture(out); }

absl::Status Cmd::CombinedOutput(std::string* out) {
  if (c_->streams[2].set && !c_->streams[1].set) {
    return internal::Misuse("exec: Stderr already set");
  }
  c_->stderr_is_stdout = true;
  return c_->Capture(out);
}

absl::StatusOr<std::string> Cmd::Output() {
  std::string out;
  if (absl::Status s = Output(&out); !s.ok()) return s;
  return out;
}

absl::StatusOr<std::string> Cmd::CombinedOutput() {
  std::string out;
  if (absl::Status s = CombinedOutput(&out); !s.ok()) return s;
  return out;
}

absl::Status Cmd::Kill() const { return Signal(SIGKILL); }

absl::Status Cmd::Signal(int sig) const {
  // Acquire: pairs with Start, in which another thread may be.
  internal::Process* p = c_->started.load(rt::acquire);
  if (p == nullptr) return internal::Misuse("exec: not started");
  return p->Signal(sig);
}

pid_t Cmd::Pid() const noexcept {
  const internal::Process* p = c_->started.load(rt::acquire);  // as above
  return p == nullptr ? 0 : p->pid();
}

int Cmd::ExitCode() const noexcept {
  return c_->exit_code.load(rt::relaxed);  // only a number, as in Wait
}

}  // namespace exec
}  // namespace gump
