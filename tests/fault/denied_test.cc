// Newer system calls are denied, one at a time and all together, and programs
// work nevertheless.
//
// A kernel that does not know a call says ENOSYS. An old seccomp profile, such
// as those of older container runtimes, does not know it either, and says
// EPERM. The library, and libc on its behalf, must do without the call in both
// cases. So each call is denied with each of the two.
//
// The program is a disabled test of this file, in a process of its own that has
// installed a filter (own_program.h). It goes through everything that may use
// one of the calls.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/wait.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "gump/gump.h"
#include "tests/testing/own_program.h"

namespace gump {
namespace {

using testing::Expect;
using testing::kReportFd;
using testing::Must;
using testing::ProgramEnd;
using testing::Report;
using testing::RunOwnProgram;

// ---- The program ------------------------------------------------------------

// Stacks with guards, in batches; goroutines that are preempted; sleeps of less
// than a millisecond; declared and undeclared calls that sleep.
void UseScheduler() {
  sync::WaitGroup wg;
  auto c = make_chan<int>();
  for (int i = 0; i < 200; i++) wg.Go([c, i] { c.Send(i); });
  for (int i = 0; i < 200; i++) (void)c.Recv();
  std::atomic<bool> over{false};
  for (int i = 0; i < 4; i++) {
    wg.Go([&] {
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
  }
  for (int i = 0; i < 3; i++) time::Sleep(absl::Microseconds(300));
  over = true;
  for (int i = 0; i < 4; i++) {
    wg.Go([] { ::usleep(20'000); });
    wg.Go([] { blocking([] { ::usleep(1000); }); });
  }
  wg.Go([] { runtime::LockOSThread(); });  // its thread ends with it
  wg.Wait();
  runtime::GC();
  Expect(!runtime::Stack(true).empty(), "Stack");
}

void UseNetwork() {
  auto listener = Must("listen", net::Listen("tcp", "127.0.0.1:0"));
  go([listener] {
    net::Conn c = Must("accept", listener.Accept());
    char buf[8];
    const auto n = c.Read(absl::MakeSpan(buf));
    if (n.ok()) (void)c.Write({buf, *n});
  });
  net::Conn c = Must("dial", net::Dial("tcp", listener.LocalAddr().String()));
  (void)c.SetDeadline(absl::Now() + absl::Seconds(30));
  Must("write", c.Write("hello").status());
  char buf[8];
  Expect(Must("read", c.Read(absl::MakeSpan(buf))) == 5, "echo");
  (void)c.SetReadDeadline(absl::Now() + absl::Milliseconds(2));
  (void)c.Read(absl::MakeSpan(buf));
  (void)net::LookupHost(context::Background(), "localhost");
}

void UseFiles() {
  // Before any Sync, which learns by itself that the flag of preadv2 is denied.
  Expect(Must("ReadFile", os::ReadFile("/proc/self/exe")).size() > 1000,
         "ReadFile");
  os::File f = Must(
      "open", os::OpenFile(::testing::TempDir(), O_TMPFILE | O_RDWR, 0600));
  const std::string text(300'000, 'x');
  Must("write a file", f.Write(text).status());
  Must("sync", f.Sync());
  (void)posix_fadvise(f.Fd(), 0, 0, POSIX_FADV_DONTNEED);
  std::string back(text.size(), '\0');
  Expect(Must("read a file", f.ReadAt(absl::MakeSpan(back), 0)) == text.size(),
         "ReadAt is short");
  Expect(back == text, "ReadAt");
  Must("seek", f.Seek(0, SEEK_SET).status());
  back.assign(text.size(), '\0');
  size_t n = 0;
  while (n < back.size()) {
    const size_t part = Must(
        "read on", f.Read(absl::MakeSpan(back.data() + n, back.size() - n)));
    if (part == 0) break;
    n += part;
  }
  Expect(back == text, "Read");
  Must("write at", f.WriteAt("y", 7).status());
  Must("truncate", f.Truncate(10));
  Expect(Must("stat", f.Stat()).Size() == 10, "Stat");
  // A write to a pipe without readers, which must not send SIGPIPE.
  auto [r, w] = Must("os::Pipe", os::Pipe());
  Must("write to a pipe", w.Write("hello").status());
  (void)r.Close();
  Expect(Errno(w.Write("hello").status()) == EPIPE, "EPIPE");
}

void UsePrograms() {
  (void)Must("LookPath", exec::LookPath("sh"));
  Expect(absl::IsNotFound(exec::LookPath("no-such-program").status()),
         "LookPath finds what is not there");
  exec::Cmd echo("sh", {"-c", "cat; exit 3"});
  os::File in = Must("StdinPipe", echo.StdinPipe());
  go([in] {
    (void)in.Write("to the shell");
    (void)in.Close();
  });
  std::string out;
  const absl::Status s = echo.Output(&out);
  Expect(s.message() == "exit status 3", "exit: " + std::string(s.message()));
  Expect(out == "to the shell" && echo.ExitCode() == 3, "output");
  exec::Cmd sleeps("sleep", {"100"});
  Must("start", sleeps.Start());
  Must("signal", sleeps.Signal(SIGTERM));
  Expect(sleeps.Wait().message() == "signal: terminated", "Wait after Signal");
  auto [ctx, cancel] =
      context::WithTimeout(context::Background(), absl::Milliseconds(20));
  exec::Cmd late = exec::CommandContext(ctx, "sleep", "100");
  Expect(absl::IsDeadlineExceeded(late.Run()), "a context's program");
}

void UseSignals() {
  auto c = make_chan<int>(1);
  signal::Notify(c, {SIGUSR1});
  raise(SIGUSR1);
  Expect(c.Recv().value_or(0) == SIGUSR1, "signal");
}

TEST(DeniedProgram, DISABLED_UsesEverything) {
  testing::OwnReport();
  dup2(kReportFd, STDERR_FILENO);  // why it dies
  const int code = gump::Run([] {
    runtime::GOMAXPROCS(2);
    UseScheduler();
    UseNetwork();
    UseFiles();
    UsePrograms();
    UseSignals();
    runtime::SetAffinity(runtime::Affinity::kCore);
    UseScheduler();  // now that there is a back end
    return 0;
  });
  Expect(code == 0, "Run");
  Report("done");
}

// ---- The filter -------------------------------------------------------------

// Call is a system call that is denied. If `argument` is not negative, it is
// denied only if the low half of that argument is `value`.
struct Call {
  const char* name;
  uint32_t number;
  int argument = -1;
  uint32_t value = 0;
};

// Newer numbers are the same on all architectures. Headers may lack them.
constexpr uint32_t kMadvGuardInstall = 102;
constexpr uint32_t kPrSetVma = 0x53564d41;

constexpr Call kCalls[] = {
    // Calls of the library.
    {"pwritev2", SYS_pwritev2},
    {"preadv2", SYS_preadv2},
    {"pidfd_open", 434},
    {"pidfd_send_signal", 424},
    {"waitid_pidfd", SYS_waitid, 0, 3},  // P_PIDFD
    {"epoll_pwait2", 441},
    {"membarrier", SYS_membarrier},
    {"io_uring_setup", 425},
    {"io_uring_enter", 426},
    {"io_uring_register", 427},
    {"process_madvise", 440},
    {"madvise_guard", SYS_madvise, 2, kMadvGuardInstall},
    {"sched_getattr", SYS_sched_getattr},
    {"sched_setattr", SYS_sched_setattr},
    {"timer_slack", SYS_prctl, 0, PR_SET_TIMERSLACK},
    {"get_name", SYS_prctl, 0, PR_GET_NAME},
    {"set_name", SYS_prctl, 0, PR_SET_NAME},
    {"name_mapping", SYS_prctl, 0, kPrSetVma},
    {"sched_getaffinity", SYS_sched_getaffinity},
    {"sched_setaffinity", SYS_sched_setaffinity},
    // Calls of libc and of the C++ library, on our behalf.
    {"faccessat2", 439},
    {"rseq", SYS_rseq},
    {"set_robust_list", SYS_set_robust_list},
    {"getrandom", SYS_getrandom},
    {"statx", SYS_statx},
    {"sendmmsg", SYS_sendmmsg},
    {"close_range", 436},
    // Calls that nothing uses today.
    {"openat2", 437},
    {"copy_file_range", SYS_copy_file_range},
    {"sendfile", SYS_sendfile},
    {"splice", SYS_splice},
    {"memfd_create", SYS_memfd_create},
    {"pidfd_getfd", 438},
    {"futex_waitv", 449},
};

constexpr Call kClone3 = {"clone3", 435};

// Append adds the instructions that deny a call with an errno.
void Append(const Call& c, int err, std::vector<sock_filter>* f) {
  const auto add = [f](sock_filter i) { f->push_back(i); };
  const auto at = [](int i) {
    return static_cast<uint32_t>(offsetof(seccomp_data, args[0]) +
                                 static_cast<size_t>(i) * 8);
  };
  const uint8_t skip = c.argument < 0 ? 1 : 3;
  add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, c.number, 0, skip));
  if (c.argument >= 0) {
    add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(c.argument)));
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, c.value, 0, 1));
  }
  add(BPF_STMT(BPF_RET | BPF_K,
               SECCOMP_RET_ERRNO | static_cast<uint32_t>(err)));
}

ProgramEnd RunDenied(const std::vector<Call>& calls, int err,
                     const char* backend) {
  std::vector<sock_filter> filter;
  for (const Call& c : calls) Append(c, err, &filter);
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog prog = {static_cast<unsigned short>(filter.size()),
                           filter.data()};
  return RunOwnProgram(
      "DeniedProgram.DISABLED_UsesEverything",
      {std::string("GODEBUG=netpoll=") + backend}, [&prog] {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) != 0) {
          _exit(77);
        }
      });
}

// Works checks a program that has done without the calls.
void Works(const ProgramEnd& end) {
  if (end.code == 77) GTEST_SKIP() << "filters are denied here";
  EXPECT_EQ(end.code, 0);
  std::string said = end.said;
  // The one thing that it may say: what it uses instead.
  if (const size_t note = said.find("using epoll\n"); note != said.npos) {
    EXPECT_EQ(said.rfind("runtime: no io_uring here", 0), 0u) << said;
    said.erase(0, note + 12);
  }
  EXPECT_EQ(said, "done\n");
}

using Way = std::tuple<Call, int, const char*>;  // call, errno, back end

void PrintTo(const Way& way, std::ostream* os) {
  *os << std::get<0>(way).name << " " << strerrorname_np(std::get<1>(way));
}

class DeniedTest : public ::testing::TestWithParam<Way> {};

TEST_P(DeniedTest, OneCall_IsDoneWithout) {
  const auto& [call, err, backend] = GetParam();
  Works(RunDenied({call}, err, backend));
}

std::string WayName(const ::testing::TestParamInfo<Way>& info) {
  const auto& [call, err, backend] = info.param;
  return std::string(call.name) + "_" + strerrorname_np(err) + "_" + backend;
}

INSTANTIATE_TEST_SUITE_P(, DeniedTest,
                         ::testing::Combine(::testing::ValuesIn(kCalls),
                                            ::testing::Values(EPERM, ENOSYS),
                                            ::testing::Values("epoll",
                                                              "uring")),
                         WayName);

std::vector<Call> All() { return {std::begin(kCalls), std::end(kCalls)}; }

TEST(DeniedTogetherTest, AllCallsWithENOSYS_AreDoneWithout) {
  std::vector<Call> all = All();
  all.push_back(kClone3);
  Works(RunDenied(all, ENOSYS, "epoll"));
}

TEST(DeniedTogetherTest, AllCallsWithEPERM_AreDoneWithout) {
  Works(RunDenied(All(), EPERM, "epoll"));
}

TEST(DeniedClone3Test, ENOSYS_IsDoneWithout) {
  Works(RunDenied({kClone3}, ENOSYS, "uring"));
}

// libc makes no thread then, and std::thread throws: the library has no other
// way to make one. The program must end, and say why.
TEST(DeniedClone3Test, EPERM_EndsTheProgramWithTheReason) {
  const ProgramEnd end = RunDenied({kClone3}, EPERM, "epoll");
  if (end.code == 77) GTEST_SKIP() << "filters are denied here";
  if (end.code == 0) GTEST_SKIP() << "this libc does without it";
  EXPECT_EQ(end.code, 2) << end.said;
  EXPECT_NE(end.said.find("failed to create new OS thread"), std::string::npos)
      << end.said;
}

}  // namespace
}  // namespace gump
