// Programs that start without some standard descriptors, and programs whose
// standard input is one thing or another.
//
// Each program is a disabled test of this file, in a process of its own
// (own_program.h).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gump/gump.h"
#include "tests/testing/own_program.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;
using testing::Expect;
using testing::Must;
using testing::ProgramEnd;
using testing::Report;
using testing::RunOwnProgram;

constexpr int kStandard = 3;
constexpr char kClosed[] = "GUMP_TEST_CLOSED";  // a mask of descriptors
constexpr char kInput[] = "GUMP_TEST_INPUT";

// ---- A program that uses everything -----------------------------------------

int ClosedMask() { return std::atoi(std::getenv(kClosed)); }
bool IsClosed(int fd) { return (ClosedMask() >> fd & 1) != 0; }

// Watcher reads and writes the closed descriptors all the time, as a program
// does that prints to a closed standard output. Each call must fail with EBADF,
// so no descriptor of the library has such a number for even a moment.
class Watcher {
 public:
  Watcher() : thread_([this] { Watch(); }) {}
  ~Watcher() {
    over_ = true;
    thread_.join();
    Expect(rounds_ > 0, "the watcher has not looked");
  }

 private:
  void Check(const char* call, int fd, ssize_t n) {
    if ((n < 0 && errno == EBADF) || std::exchange(told_, true)) return;
    Report(std::string(call) + " of closed descriptor " + std::to_string(fd) +
           ": " + (n < 0 ? strerrorname_np(errno) : std::to_string(n)));
  }
  void Watch() {
    while (!over_) {
      for (int fd = 0; fd < kStandard; fd++) {
        if (!IsClosed(fd)) continue;
        char buf[8] = "";
        Check("read", fd, read(fd, buf, 0));
        Check("write", fd, write(fd, buf, 0));
      }
      rounds_++;
      sched_yield();
    }
  }

  std::atomic<bool> over_{false};
  long rounds_ = 0;
  bool told_ = false;
  std::thread thread_;
};

void IsAbove(const char* what, int fd) {
  Expect(fd >= kStandard, std::string(what) + " is " + std::to_string(fd));
}

void UseNetwork() {
  auto listener = Must("listen", net::Listen("tcp", "127.0.0.1:0"));
  IsAbove("a listener", listener.Fd());
  sync::WaitGroup wg;
  constexpr int kConns = 20;
  wg.Go([&] {
    for (int i = 0; i < kConns; i++) {
      net::Conn c = Must("accept", listener.Accept());
      IsAbove("an accepted connection", c.Fd());
      wg.Go([c] {
        char buf[8];
        const auto n = c.Read(absl::MakeSpan(buf));
        if (n.ok()) (void)c.Write({buf, *n});
        (void)c.Close();
      });
    }
  });
  for (int i = 0; i < kConns; i++) {
    net::Conn c = Must("dial", net::Dial(
                                   "tcp", "localhost:" + [&] {
                                     const std::string addr =
                                         listener.LocalAddr().String();
                                     return addr.substr(addr.rfind(':') + 1);
                                   }()));
    IsAbove("a connection", c.Fd());
    (void)c.SetDeadline(absl::Now() + absl::Seconds(30));
    Expect(c.Write("hello").ok(), "write");
    char buf[8];
    Expect(Must("read", c.Read(absl::MakeSpan(buf))) == 5, "echo");
    net::Conn copy = Must("file", net::FileConn(c.Fd()));
    IsAbove("a duplicate", copy.Fd());
  }
  wg.Wait();
  auto packets = Must("packet", net::ListenPacket("udp", "127.0.0.1:0"));
  IsAbove("a packet socket", packets.Fd());
  auto [a, b] = Must("pipe", net::Pipe());
  IsAbove("a pair", a.Fd());
  IsAbove("a pair", b.Fd());
}

void UseFiles() {
  const std::string name =
      ::testing::TempDir() + "/gump_standard_" + std::to_string(getpid());
  os::File f = Must("create", os::Create(name));
  IsAbove("a file", f.Fd());
  Expect(f.Write(std::string(100'000, 'x')).ok(), "write a file");
  Expect(f.Sync().ok(), "sync");
  char buf[16];
  Expect(Must("read a file", f.ReadAt(absl::MakeSpan(buf), 5)) == 16, "ReadAt");
  Expect(Must("ReadFile", os::ReadFile(name)).size() == 100'000, "ReadFile");
  unlink(name.c_str());
  auto [r, w] = Must("os::Pipe", os::Pipe());
  IsAbove("a pipe", r.Fd());
  IsAbove("a pipe", w.Fd());
  go([w = w] {
    time::Sleep(absl::Milliseconds(1));
    (void)w.Write("x");
  });
  Expect(Must("read a pipe", r.Read(absl::MakeSpan(buf))) == 1, "pipe");
}

void UseSignals() {
  auto c = make_chan<int>(1);
  signal::Notify(c, {SIGUSR1});
  raise(SIGUSR1);
  Expect(c.Recv().value_or(0) == SIGUSR1, "signal");
  signal::Stop(c);
}

void UsePrograms() {
  std::string out;
  exec::Cmd cat("cat");
  os::File in = Must("StdinPipe", cat.StdinPipe());
  IsAbove("a pipe to a program", in.Fd());
  go([in] {
    (void)in.Write("to the cat");
    (void)in.Close();
  });
  const absl::Status s = cat.Output(&out);
  Expect(s.ok() && out == "to the cat", "cat: " + std::string(s.message()));
  // The child has all three, and none of ours.
  exec::Cmd list("sh", {"-c", "ls -l /proc/self/fd | grep -c 'anon_inode'"});
  out.clear();
  (void)list.Output(&out);
  Expect(out == "0\n", "a child has " + out);
}

// StandardAreAsBefore checks the closed ones, in the library's eyes and in the
// kernel's.
void StandardAreAsBefore() {
  const os::File files[] = {os::Stdin(), os::Stdout(), os::Stderr()};
  for (int fd = 0; fd < kStandard; fd++) {
    const std::string name = files[fd].Name();
    if (!IsClosed(fd)) {
      Expect(fcntl(fd, F_GETFD) >= 0, name + " is closed");
      continue;
    }
    char buf[8];
    Expect(Errno(files[fd].Read(absl::MakeSpan(buf)).status()) == EBADF,
           "Read of " + name);
    Expect(Errno(files[fd].Write("x").status()) == EBADF, "Write of " + name);
    Expect(Errno(files[fd].ReadAt(absl::MakeSpan(buf), 0).status()) == EBADF,
           "ReadAt of " + name);
    Expect(Errno(files[fd].WriteAt("x", 0).status()) == EBADF,
           "WriteAt of " + name);
    // sysmon may be reading a file at this moment, and hold the number.
    Expect(Eventually([&] { return fcntl(fd, F_GETFD) < 0; }),
           name + " stays in use");
  }
}

TEST(StandardProgram, DISABLED_UsesEverything) {
  testing::OwnReport();
  std::atomic<int> slept{0};
  const int code = gump::Run([&] {
    const Watcher watcher;
    UseNetwork();
    UseFiles();
    UseSignals();
    UsePrograms();
    // An undeclared call that sleeps: sysmon reads the state of its thread.
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Go([&] {
        ::usleep(50'000);
        slept++;
      });
    }
    wg.Wait();
    (void)runtime::Stack(true);
    runtime::GC();
    StandardAreAsBefore();
    return 0;
  });
  Expect(code == 0 && slept == 3, "Run");
  Report("done");
}

using Way = std::tuple<int, const char*, int>;  // closed, back end, GOMAXPROCS

class StandardTest : public ::testing::TestWithParam<Way> {};

TEST_P(StandardTest, ClosedOnes_AreEBADFAndNeverOurs) {
  const auto [closed, backend, procs] = GetParam();
  const ProgramEnd end =
      RunOwnProgram("StandardProgram.DISABLED_UsesEverything",
                    {std::string("GODEBUG=netpoll=") + backend,
                     "GOMAXPROCS=" + std::to_string(procs),
                     std::string(kClosed) + "=" + std::to_string(closed)},
                    [closed = closed] {
                      for (int fd = 0; fd < kStandard; fd++) {
                        if ((closed >> fd & 1) != 0) close(fd);
                      }
                    });
  EXPECT_EQ(end.said, "done\n");
  EXPECT_EQ(end.code, 0);
}

std::string WayName(const ::testing::TestParamInfo<Way>& info) {
  static constexpr const char* kNames[] = {
      "None",   "Stdin",          "Stdout",          "StdinStdout",
      "Stderr", "StdinAndStderr", "StdoutAndStderr", "AllThree"};
  return std::string(kNames[std::get<0>(info.param)]) + "_" +
         std::get<1>(info.param) + "_GOMAXPROCS" +
         std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(, StandardTest,
                         ::testing::Combine(::testing::Range(0, 8),
                                            ::testing::Values("epoll", "uring"),
                                            ::testing::Values(1, 4)),
                         WayName);

// ---- A program that closes a standard descriptor while it runs --------------

TEST(StandardProgram, DISABLED_ClosesOneLater) {
  testing::OwnReport();
  gump::Run([&] {
    UseNetwork();
    close(STDIN_FILENO);
    IsAbove("a pair", Must("pipe", net::Pipe()).first.Fd());
    Expect(fcntl(STDIN_FILENO, F_GETFD) < 0 && errno == EBADF, "in use");
    // A file of the program's own, on the number of a placeholder, stays.
    {
      auto [r, w] = Must("os::Pipe", os::Pipe());
      Expect(dup2(r.Fd(), STDIN_FILENO) == STDIN_FILENO, "dup2");
      UseNetwork();
      UseFiles();
      (void)w.Write("mine");
      char buf[8];
      Expect(read(STDIN_FILENO, buf, sizeof(buf)) == 4, "the file has gone");
    }
    return 0;
  });
  Report("done");
}

class StandardLaterTest : public ::testing::TestWithParam<const char*> {};

TEST_P(StandardLaterTest, OneThatIsClosedWhileTheProgramRuns_IsNeverOurs) {
  const ProgramEnd end =
      RunOwnProgram("StandardProgram.DISABLED_ClosesOneLater",
                    {std::string("GODEBUG=netpoll=") + GetParam()}, [] {});
  EXPECT_EQ(end.said, "done\n");
  EXPECT_EQ(end.code, 0);
}

INSTANTIATE_TEST_SUITE_P(, StandardLaterTest,
                         ::testing::Values("epoll", "uring"));

// ---- A closed standard descriptor while a file is being opened --------------

TEST(StandardProgram, DISABLED_UsesAClosedOne) {
  testing::OwnReport();
  const std::string name =
      ::testing::TempDir() + "/gump_fifo_" + std::to_string(getpid());
  gump::Run([&] {
    std::vector<os::File> kept;  // their destructors close standard error
    const auto use = [&](const std::string& when) {
      exec::Cmd cmd("true");
      cmd.SetStdin(os::Stdin());
      Expect(Errno(cmd.Run()) == EBADF, "lent " + when);
      Expect(Errno(os::NewFile(STDIN_FILENO, "0").status()) == EBADF,
             "NewFile " + when);
      const os::File in = os::Stdin();
      char buf[8];
      Expect(Errno(in.Stat().status()) == EBADF, "Stat " + when);
      Expect(Errno(in.Read(absl::MakeSpan(buf)).status()) == EBADF,
             "Read " + when);
      Expect(Errno(in.Write("x").status()) == EBADF, "Write " + when);
      Expect(Errno(in.Seek(0, SEEK_SET).status()) == EBADF, "Seek " + when);
      Expect(Errno(in.Truncate(0)) == EBADF, "Truncate " + when);
      Expect(Errno(in.Sync()) == EBADF, "Sync " + when);
      Expect(Errno(net::FileConn(STDIN_FILENO).status()) == EBADF,
             "FileConn " + when);
      Expect(os::Stderr().Stat().ok(), "Stat of an open one " + when);
      auto open = os::NewFile(STDERR_FILENO, "2");
      Expect(open.ok(), "NewFile of an open one " + when);
      if (open.ok()) kept.push_back(*std::move(open));
    };
    use("while nothing is opened");
    Expect(mkfifo(name.c_str(), 0600) == 0, "mkfifo");
    sync::WaitGroup wg;
    wg.Go([&] { (void)Must("open a FIFO", os::Open(name)).Close(); });
    Expect(Eventually([] { return fcntl(STDIN_FILENO, F_GETFD) >= 0; }),
           "nothing holds the number");
    use("while a file is being opened");
    const os::File writer = Must("writer", os::OpenFile(name, O_WRONLY));
    wg.Wait();
    return 0;
  });
  unlink(name.c_str());
  Report("done");
}

TEST(StandardUseTest, ClosedOneIsEBADF_WhileAFileIsBeingOpened) {
  const ProgramEnd end =
      RunOwnProgram("StandardProgram.DISABLED_UsesAClosedOne", {},
                    [] { close(STDIN_FILENO); });
  EXPECT_EQ(end.said, "done\n");
  EXPECT_EQ(end.code, 0);
}

// ---- Kinds of standard input ------------------------------------------------

TEST(StandardProgram, DISABLED_ReadsInput) {
  testing::OwnReport();
  const std::string kind = std::getenv(kInput);
  gump::Run([&] {
    runtime::GOMAXPROCS(1);
    const os::File in = os::Stdin();
    char buf[64];
    if (kind == "silent") {
      // The deadline works, or is refused in words. The read holds up nothing.
      const absl::Status s =
          in.SetReadDeadline(absl::Now() + absl::Milliseconds(50));
      auto over = make_chan<std::string>(1);
      go([&] {
        const auto n = in.Read(absl::MakeSpan(buf));
        over.Send(std::string(n.status().message()));
      });
      for (int i = 0; i < 50; i++) time::Sleep(absl::Milliseconds(1));
      if (s.ok()) {
        Expect(over.Recv()->find("i/o timeout") != std::string::npos,
               "the deadline was taken");
      } else {
        Expect(!s.message().empty(), "the deadline was refused silently");
      }
      Report("done");
      _exit(0);  // the read need not end
    }
    const auto n = in.Read(absl::MakeSpan(buf));
    const std::string why(n.status().message());
    if (kind == "nothing") Expect(n.ok() && *n == 0, "/dev/null: " + why);
    if (kind == "directory") Expect(Errno(n.status()) == EISDIR, why);
    if (kind == "closed") Expect(Errno(n.status()) == EBADF, why);
    if (kind == "data") {
      Expect(n.ok() && std::string(buf, *n) == "hello", "data: " + why);
      const auto rest = in.Read(absl::MakeSpan(buf));
      Expect(rest.ok() && *rest == 0, "the end");
    }
    return 0;
  });
  Report("done");
}

ProgramEnd ReadInput(const char* kind, absl::FunctionRef<void()> prepare) {
  return RunOwnProgram("StandardProgram.DISABLED_ReadsInput",
                       {std::string(kInput) + "=" + kind}, prepare);
}

// OpenAs opens a file as standard input.
void OpenAs(const char* path, int flags) {
  close(STDIN_FILENO);
  if (open(path, flags) != STDIN_FILENO) _exit(125);
}

// PipeAs makes the read end of a pipe standard input. Returns the other end.
int PipeAs() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) _exit(125);
  if (dup2(fds[0], STDIN_FILENO) != STDIN_FILENO) _exit(125);
  return fds[1];
}

TEST(StdinTest, DevNull_IsAtItsEnd) {
  const auto end = ReadInput("nothing", [] { OpenAs("/dev/null", O_RDONLY); });
  EXPECT_EQ(end.said, "done\n");
}

TEST(StdinTest, File_IsReadToItsEnd) {
  const auto end = ReadInput("data", [] {
    OpenAs("/tmp", O_TMPFILE | O_RDWR);
    if (write(STDIN_FILENO, "hello", 5) != 5) _exit(125);
    lseek(STDIN_FILENO, 0, SEEK_SET);
  });
  EXPECT_EQ(end.said, "done\n");
}

TEST(StdinTest, Pipe_IsReadToItsEnd) {
  const auto end = ReadInput("data", [] {
    if (write(PipeAs(), "hello", 5) != 5) _exit(125);
  });
  EXPECT_EQ(end.said, "done\n");
}

TEST(StdinTest, PipeThatIsWrittenLater_IsReadToItsEnd) {
  const auto end = ReadInput("data", [] {
    const int w = PipeAs();
    if (fork() != 0) return;  // the writer is a process of its own
    close(testing::kReportFd);
    usleep(100'000);
    _exit(write(w, "hello", 5) == 5 ? 0 : 1);
  });
  EXPECT_EQ(end.said, "done\n");
}

TEST(StdinTest, Directory_IsEISDIR) {
  const auto end = ReadInput("directory", [] { OpenAs("/tmp", O_RDONLY); });
  EXPECT_EQ(end.said, "done\n");
}

TEST(StdinTest, Closed_IsEBADF) {
  const auto end = ReadInput("closed", [] { close(STDIN_FILENO); });
  EXPECT_EQ(end.said, "done\n");
}

TEST(StdinTest, SilentPipe_HoldsUpNoGoroutine) {
  const auto end = ReadInput("silent", [] {
    fcntl(PipeAs(), F_SETFD, 0);  // the program itself keeps it open
  });
  EXPECT_EQ(end.said, "done\n");
}

}  // namespace
}  // namespace gump
