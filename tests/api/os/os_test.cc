#include "gump/os.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "tests/testing/errno_access.h"
#include "tests/testing/identity.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/status.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using os::File;
using sync::WaitGroup;
using testing::Identity;
using testing::Text;

// A directory of its own for each test.
class OsTest : public testing::WithGomaxprocs {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "gump_os_XXXXXX";
    ASSERT_NE(mkdtemp(dir_.data()), nullptr) << errno;
  }
  void TearDown() override {
    for (const std::string& path : made_) unlink(path.c_str());
    rmdir(dir_.c_str());
  }
  // Path names a file that is removed at the end.
  std::string Path(const std::string& name) {
    made_.push_back(dir_ + "/" + name);
    return made_.back();
  }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
  std::vector<std::string> made_;
};
GUMP_INSTANTIATE_GOMAXPROCS(OsTest);

std::pair<File, File> MustPipe() {
  auto p = os::Pipe();
  EXPECT_TRUE(p.ok()) << p.status();
  return *std::move(p);
}

// ReadSome is the text of one Read, or "!" and the error if it fails.
std::string ReadSome(const File& f, size_t n = 100) {
  std::string buf(n, '\0');
  const auto got = f.Read(absl::MakeSpan(buf.data(), buf.size()));
  if (!got.ok()) return std::string("!").append(Text(got.status()));
  buf.resize(*got);
  return buf;
}

std::string ReadAll(const File& f) {
  std::string all;
  for (;;) {
    const std::string s = ReadSome(f, 4096);
    if (s.empty()) return all;
    all += s;
    if (s[0] == '!') return all;
  }
}

TEST_P(OsTest, WritesReadsAndSeeks) {
  const std::string path = Path("x");
  Run([&] {
    auto f = os::Create(path);
    ASSERT_TRUE(f.ok()) << f.status();
    EXPECT_EQ(f->Name(), path);
    EXPECT_GE(f->Fd(), 0);
    EXPECT_NE(fcntl(f->Fd(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(f->Write("hello, world").value(), 12u);
    EXPECT_EQ(ReadSome(*f), "");  // the end
    EXPECT_EQ(f->Seek(7, SEEK_SET).value(), 7);
    EXPECT_EQ(ReadSome(*f), "world");
    EXPECT_EQ(f->Seek(-5, SEEK_END).value(), 7);
    EXPECT_EQ(f->Seek(-2, SEEK_CUR).value(), 5);
    EXPECT_EQ(ReadSome(*f, 2), ", ");
    EXPECT_EQ(f->Write("").value(), 0u);
    char none;
    EXPECT_EQ(f->Read(absl::MakeSpan(&none, 0)).value(), 0u);
    EXPECT_TRUE(f->Sync().ok());
    EXPECT_TRUE(f->Truncate(5).ok());
    const auto info = f->Stat();
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->Size(), 5);
    EXPECT_EQ(info->Name(), "x");
    EXPECT_FALSE(info->IsDir());
    EXPECT_TRUE(S_ISREG(info->Mode()));
    EXPECT_LT(absl::AbsDuration(absl::Now() - info->ModTime()), absl::Hours(1));
    EXPECT_TRUE(f->Close().ok());
  });
}

TEST_P(OsTest, ReadsAndWritesAtOffsets) {
  const std::string path = Path("x");
  Run([&] {
    auto f = os::Create(path);
    ASSERT_TRUE(f.ok());
    EXPECT_EQ(f->WriteAt("abc", 3).value(), 3u);
    EXPECT_EQ(f->WriteAt("xyz", 0).value(), 3u);
    char buf[10];
    EXPECT_EQ(f->ReadAt(buf, 2).value(), 4u);  // short: the end
    EXPECT_EQ(std::string(buf, 4), "zabc");
    EXPECT_EQ(f->ReadAt(buf, 6).value(), 0u);
    EXPECT_EQ(f->ReadAt(buf, 600).value(), 0u);
    EXPECT_EQ(f->Seek(0, SEEK_CUR).value(), 0);  // has not moved
    EXPECT_EQ(Text(f->ReadAt(buf, -1).status()),
              "readat " + path + ": negative offset");
    EXPECT_EQ(Text(f->WriteAt("a", -1).status()),
              "writeat " + path + ": negative offset");
    auto log = os::OpenFile(path, O_WRONLY | O_APPEND);
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(Text(log->WriteAt("a", 0).status()),
              "os: invalid use of WriteAt on file opened with O_APPEND");
  });
}

TEST_P(OsTest, ReadFileReturnsTheBytesOfWriteFile) {
  const std::string path = Path("x");
  Run([&] {
    std::string big;
    for (int i = 0; i < 300000; i++) big += static_cast<char>('a' + i % 26);
    EXPECT_TRUE(os::WriteFile(path, big, 0640).ok());
    EXPECT_EQ(os::ReadFile(path).value(), big);
    struct stat st;
    ASSERT_EQ(stat(path.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777 & ~0640u, 0u);
    EXPECT_TRUE(os::WriteFile(path, "short", 0600).ok());
    EXPECT_EQ(os::ReadFile(path).value(), "short");
    EXPECT_TRUE(os::WriteFile(path, "", 0600).ok());
    EXPECT_EQ(os::ReadFile(path).value(), "");
    // Its size is reported as 0.
    EXPECT_NE(os::ReadFile("/proc/self/status").value().find("Name:"),
              std::string::npos);
  });
}

TEST_P(OsTest, ErrorsAreInGosWords) {
  const std::string path = Path("x");
  Run([&] {
    const absl::Status none = os::Open(path).status();
    EXPECT_EQ(Text(none), "open " + path + ": no such file or directory");
    EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(Errno(none), ENOENT);
    EXPECT_EQ(Text(os::ReadFile(path).status()), Text(none));
    EXPECT_EQ(Text(os::WriteFile(dir(), "x", 0600)),
              "open " + dir() + ": is a directory");
    auto d = os::Open(dir());
    ASSERT_TRUE(d.ok());
    EXPECT_EQ(ReadSome(*d), "!read " + dir() + ": is a directory");
    EXPECT_TRUE(d->Stat().value().IsDir());
    ASSERT_TRUE(os::WriteFile(path, "x", 0600).ok());
    auto f = os::Open(path);
    ASSERT_TRUE(f.ok());
    const absl::Status ro = f->Write("x").status();
    EXPECT_EQ(Text(ro), "write " + path + ": bad file descriptor");
    EXPECT_EQ(Errno(ro), EBADF);
    EXPECT_EQ(Text(f->Truncate(0)), "truncate " + path + ": invalid argument");
    EXPECT_EQ(Text(f->Seek(-1, SEEK_SET).status()),
              "seek " + path + ": invalid argument");
    EXPECT_EQ(Text(f->SetDeadline(absl::Now())),
              "file type does not support deadline");
    auto [r, w] = MustPipe();
    EXPECT_EQ(Text(r.Seek(0, SEEK_CUR).status()), "seek |0: illegal seek");
    EXPECT_EQ(Text(os::NewFile(-1, "y").status()),
              "file y: bad file descriptor");
  });
}

TEST_P(OsTest, NamesWithNulAreRefused) {
  const std::string path = Path("x");
  const std::string nul = path + std::string("\0y", 2);
  Run([&] {
    EXPECT_TRUE(os::WriteFile(path, "x", 0600).ok());
    for (const absl::Status& s :
         {os::Open(nul).status(), os::Create(nul).status(),
          os::OpenFile(nul, O_RDWR).status(), os::ReadFile(nul).status(),
          os::WriteFile(nul, "y", 0600)}) {
      EXPECT_EQ(Text(s), "open " + nul + ": invalid argument");
      EXPECT_EQ(Errno(s), EINVAL);
    }
    EXPECT_EQ(os::ReadFile(path).value(), "x");
  });
}

TEST_P(OsTest, ADefaultFileIsNone) {
  Run([] {
    const File f;
    EXPECT_FALSE(f);
    EXPECT_EQ(f.Fd(), -1);
    EXPECT_EQ(f.Name(), "");
    const std::vector<absl::Status> all = {
        f.Write("x").status(), f.Sync(),
        f.Truncate(0),         f.Close(),
        f.Stat().status(),     f.SetDeadline(absl::Now()),
        f.Seek(0, 0).status()};
    for (const absl::Status& s : all) {
      EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(Text(s), "invalid argument");
    }
    EXPECT_EQ(ReadSome(f), "!invalid argument");
  });
}

TEST_P(OsTest, TheLastHandleCloses) {
  const std::string path = Path("x");
  Run([&] {
    File a = os::Create(path).value();
    const int fd = a.Fd();
    File b = a;
    EXPECT_TRUE(a == b);
    EXPECT_FALSE(a == os::Open(path).value());
    a = File();
    EXPECT_TRUE(b.Write("x").ok());
    const auto self = Identity(fd);
    EXPECT_NE(fcntl(fd, F_GETFD), -1);
    b = File();
    EXPECT_NE(Identity(fd), self);
  });
}

TEST_P(OsTest, EveryCallAfterCloseFails) {
  const std::string path = Path("x");
  Run([&] {
    auto [r, w] = MustPipe();
    for (const File& f : {os::Create(path).value(), r}) {
      const File same = f;
      EXPECT_TRUE(f.Close().ok());
      const std::string closed = f.Name() + ": file already closed";
      EXPECT_EQ(Text(same.Close()), "close " + closed);
      EXPECT_EQ(ReadSome(same), "!read " + closed);
      const absl::Status s = same.Write("x").status();
      EXPECT_EQ(Text(s), "write " + closed);
      EXPECT_EQ(s.code(), absl::StatusCode::kCancelled);
      char buf[1];
      EXPECT_EQ(Text(same.ReadAt(buf, 0).status()), "read " + closed);
      EXPECT_EQ(Text(same.WriteAt("x", 0).status()), "write " + closed);
      EXPECT_EQ(Text(same.Sync()), "sync " + closed);
      EXPECT_EQ(Text(same.Truncate(0)), "truncate " + closed);
      EXPECT_EQ(Text(same.Stat().status()), "stat " + closed);
      EXPECT_EQ(Text(same.Seek(0, 0).status()), "seek " + closed);
      EXPECT_EQ(Text(same.SetDeadline(absl::Now())), "use of closed file");
      EXPECT_EQ(same.Fd(), -1);
      // The number may now belong to another file.
      const File next = os::Open("/dev/null").value();
      EXPECT_GE(next.Fd(), 0);
      EXPECT_EQ(same.Fd(), -1);
    }
  });
}

TEST_P(OsTest, APipeCarriesBytes) {
  Run([] {
    auto [r, w] = MustPipe();
    EXPECT_EQ(r.Name(), "|0");
    EXPECT_EQ(w.Name(), "|1");
    EXPECT_NE(fcntl(r.Fd(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(fcntl(w.Fd(), F_GETFD) & FD_CLOEXEC, 0);
    std::string got;
    WaitGroup wg;
    wg.Go([&, &r = r] { got = ReadAll(r); });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    EXPECT_TRUE(w.Write("one").ok());
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    EXPECT_TRUE(w.Write("two").ok());
    EXPECT_TRUE(w.Close().ok());
    wg.Wait();
    EXPECT_EQ(got, "onetwo");
  });
}

TEST_P(OsTest, ALargeWriteWaitsForTheReader) {
  Run([] {
    auto [r, w] = MustPipe();
    std::string data;
    for (int i = 0; i < 2'000'000; i++) data += static_cast<char>(i * 7);
    std::string got;
    WaitGroup wg;
    wg.Go([&, &w = w] {
      EXPECT_EQ(w.Write(data).value(), data.size());
      EXPECT_TRUE(w.Close().ok());
    });
    wg.Go([&, &r = r] { got = ReadAll(r); });
    wg.Wait();
    EXPECT_TRUE(got == data);
  });
}

TEST_P(OsTest, DeadlinesEndReadsAndWrites) {
  Run([] {
    auto [r, w] = MustPipe();
    const std::string timeout = "!read |0: i/o timeout";
    EXPECT_TRUE(r.SetReadDeadline(absl::Now() - absl::Seconds(1)).ok());
    EXPECT_EQ(ReadSome(r), timeout);
    EXPECT_TRUE(w.Write("x").ok());
    EXPECT_EQ(ReadSome(r), timeout);  // even if there is something
    EXPECT_TRUE(r.SetReadDeadline(absl::InfiniteFuture()).ok());
    EXPECT_EQ(ReadSome(r), "x");
    const absl::Time start = absl::Now();
    EXPECT_TRUE(r.SetDeadline(start + absl::Milliseconds(30)).ok());
    EXPECT_EQ(ReadSome(r), timeout);
    EXPECT_GE(absl::Now() - start, absl::Milliseconds(29));
    // A deadline that is moved during a wait.
    EXPECT_TRUE(r.SetDeadline(absl::Now() + absl::Hours(1)).ok());
    WaitGroup wg;
    wg.Go([&, &r = r] { EXPECT_EQ(ReadSome(r), timeout); });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    EXPECT_TRUE(r.SetReadDeadline(absl::UnixEpoch()).ok());
    wg.Wait();
    // A write, part of which has been done when the deadline is set.
    const std::string big(1 << 20, 'x');
    wg.Go([&, &w = w] {
      const absl::Status s = w.Write(big).status();
      EXPECT_EQ(Text(s), "write |1: i/o timeout");
      EXPECT_EQ(s.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_GT(BytesWritten(s), 0u);
      EXPECT_LT(BytesWritten(s), big.size());
    });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    EXPECT_TRUE(w.SetWriteDeadline(absl::Now() + absl::Milliseconds(10)).ok());
    wg.Wait();
    EXPECT_TRUE(w.SetDeadline(absl::InfinitePast()).ok());
    EXPECT_EQ(Text(w.Write("x").status()), "write |1: i/o timeout");
  });
}

TEST_P(OsTest, CloseEndsReadsAndWrites) {
  Run([] {
    auto [r, w] = MustPipe();
    WaitGroup wg;
    for (int i = 0; i < 3; i++) {  // one waits for the pipe, two for that one
      wg.Go([&, &r = r] {
        EXPECT_EQ(ReadSome(r), "!read |0: file already closed");
      });
    }
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    ASSERT_TRUE(testing::EventuallyParked("semacquire", 2));
    const int fd = r.Fd();
    const auto self = Identity(fd);
    EXPECT_TRUE(r.Close().ok());
    EXPECT_NE(Identity(fd), self);  // free when Close returns
    wg.Wait();
    auto [r2, w2] = MustPipe();
    const std::string big(1 << 20, 'x');
    wg.Go([&, &w2 = w2] {
      const absl::Status s = w2.Write(big).status();
      EXPECT_EQ(Text(s), "write |1: file already closed");
      EXPECT_GT(BytesWritten(s), 0u);
    });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    EXPECT_TRUE(w2.Close().ok());
    wg.Wait();
  });
}

// ---- SIGPIPE

std::atomic<int> pipeSignals{0};

TEST_P(OsTest, WriteWithoutAReaderIsAnErrorAndNoSignal) {
  struct sigaction count = {};
  struct sigaction before = {};
  count.sa_handler = [](int) { pipeSignals++; };
  pipeSignals = 0;
  sigaction(SIGPIPE, &count, &before);
  const std::string path = Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Run([&] {
    auto [r, w] = MustPipe();
    EXPECT_TRUE(r.Close().ok());
    for (int i = 0; i < 3; i++) {
      const absl::Status s = w.Write("x").status();
      EXPECT_EQ(Text(s), "write |1: broken pipe");
      EXPECT_EQ(Errno(s), EPIPE);
    }
    // The reader goes while the write waits.
    auto [r2, w2] = MustPipe();
    WaitGroup wg;
    wg.Go([&, &w2 = w2] {
      EXPECT_EQ(Text(w2.Write(std::string(1 << 20, 'x')).status()),
                "write |1: broken pipe");
    });
    ASSERT_TRUE(testing::EventuallyParked("IO wait", 1));
    EXPECT_TRUE(r2.Close().ok());
    wg.Wait();
    // A pipe that blocks.
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
    close(fds[0]);
    auto blocks = os::NewFile(fds[1], "out");
    EXPECT_EQ(Text(blocks->Write("x").status()), "write out: broken pipe");
    // A socket.
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    close(fds[0]);
    auto socket = os::NewFile(fds[1], "sock");
    EXPECT_EQ(Text(socket->Write("x").status()), "write sock: broken pipe");
  });
  sigset_t none;
  pthread_sigmask(SIG_BLOCK, nullptr, &none);
  EXPECT_EQ(sigismember(&none, SIGPIPE), 0);
  struct sigaction now = {};
  sigaction(SIGPIPE, &before, &now);
  EXPECT_EQ(now.sa_handler, count.sa_handler);  // the handler is still there
  EXPECT_EQ(pipeSignals, 0);
}

TEST(OsSigpipeTest, LeavesAPendingSignalAlone) {
  // By hand: a thread that has blocked SIGPIPE keeps a signal that was pending.
  sigset_t sigpipe;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  sigset_t old;
  pthread_sigmask(SIG_BLOCK, &sigpipe, &old);
  auto [r, w] = MustPipe();
  EXPECT_TRUE(r.Close().ok());
  EXPECT_EQ(Errno(w.Write("x").status()), EPIPE);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  pthread_kill(pthread_self(), SIGPIPE);
  EXPECT_EQ(Errno(w.Write("x").status()), EPIPE);
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 1);
  int sig = 0;
  EXPECT_EQ(sigwait(&sigpipe, &sig), 0);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

TEST_P(OsTest, DevicesThatTakeNoFlagsAreWritten) {
  Run([] {
    auto full = os::OpenFile("/dev/full", O_WRONLY);
    ASSERT_TRUE(full.ok());
    for (int i = 0; i < 2; i++) {
      EXPECT_EQ(Text(full->Write("x").status()),
                "write /dev/full: no space left on device");
    }
    auto null = os::OpenFile("/dev/null", O_RDWR);
    ASSERT_TRUE(null.ok());
    EXPECT_EQ(null->Write("abc").value(), 3u);
    EXPECT_EQ(ReadSome(*null), "");
  });
}

// ---- Calls that block

TEST_P(OsTest, OpeningAFifoHoldsUpNoOtherGoroutine) {
  const std::string path = Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Run([&] {
    std::string got;
    std::atomic<bool> opened = false;
    WaitGroup wg;
    wg.Go([&] {
      auto r = os::Open(path);  // waits for a writer
      opened = true;
      ASSERT_TRUE(r.ok());
      EXPECT_TRUE(r->SetDeadline(absl::InfiniteFuture()).ok());  // is polled
      got = ReadAll(*r);
    });
    std::atomic<int> turns = 0;
    wg.Go([&] {
      for (int i = 0; i < 100; i++, turns++)
        time::Sleep(absl::Microseconds(50));
    });
    EXPECT_TRUE(testing::Eventually([&] { return turns == 100; }));
    EXPECT_FALSE(opened);
    auto w = os::OpenFile(path, O_WRONLY);
    ASSERT_TRUE(w.ok());
    EXPECT_TRUE(w->Write("through").ok());
    EXPECT_TRUE(w->Close().ok());
    wg.Wait();
    EXPECT_EQ(got, "through");
  });
}

TEST_P(OsTest, ABlockingDescriptorHoldsUpNoOtherGoroutine) {
  Run([] {
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
    File r = os::NewFile(fds[0], "in").value();
    File w = os::NewFile(fds[1], "out").value();
    EXPECT_EQ(Text(r.SetDeadline(absl::Now())),
              "file type does not support deadline");
    EXPECT_EQ(fcntl(fds[0], F_GETFL) & O_NONBLOCK, 0);
    WaitGroup wg;
    wg.Go([&] {
      EXPECT_EQ(ReadSome(r), "x");
      EXPECT_EQ(ReadSome(r), "!read in: file already closed");
    });
    ASSERT_TRUE(testing::EventuallyParked("syscall", 1));
    // Close does not wait for a call that nothing would end.
    const auto self = Identity(fds[0]);
    EXPECT_TRUE(r.Close().ok());
    EXPECT_TRUE(w.Write("x").ok());
    wg.Wait();
    EXPECT_NE(Identity(fds[0]), self);
  });
}

TEST_P(OsTest, NonBlockingDescriptorsArePolled) {
  Run([] {
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    File r = os::NewFile(fds[0], "in").value();
    EXPECT_TRUE(r.SetDeadline(absl::Now() + absl::Milliseconds(5)).ok());
    EXPECT_EQ(ReadSome(r), "!read in: i/o timeout");
    close(fds[1]);
  });
}

TEST_P(OsTest, ManyGoroutinesMayReadTheSameFile) {
  const std::string path = Path("x");
  Run([&] {
    constexpr int kBlocks = 64;
    constexpr size_t kBlock = 1000;
    std::string data;
    for (int i = 0; i < kBlocks; i++) data.append(kBlock, static_cast<char>(i));
    ASSERT_TRUE(os::WriteFile(path, data, 0600).ok());
    File f = os::OpenFile(path, O_RDWR).value();
    WaitGroup wg;
    for (int g = 0; g < 50; g++) {
      wg.Go([&, g] {
        std::string buf(kBlock, '\0');
        for (int i = 0; i < kBlocks; i++) {
          const int block = (i * 7 + g) % kBlocks;
          const int64_t at = block * static_cast<int64_t>(kBlock);
          EXPECT_EQ(f.ReadAt(absl::MakeSpan(buf.data(), kBlock), at).value(),
                    kBlock);
          EXPECT_EQ(buf, std::string(kBlock, static_cast<char>(block)));
          if (g == 0) {
            EXPECT_EQ(f.WriteAt(buf, at).value(), kBlock);
          }
        }
      });
    }
    wg.Wait();
  });
}

TEST_P(OsTest, CloseEndsTheCallsOfManyUsers) {
  const std::string path = Path("x");
  Run([&] {
    ASSERT_TRUE(os::WriteFile(path, std::string(5000, 'x'), 0600).ok());
    for (int round = 0; round < 5; round++) {
      File f = os::Open(path).value();
      std::atomic<int> started = 0;
      WaitGroup wg;
      for (int g = 0; g < 8; g++) {
        wg.Go([&] {
          char buf[100];
          started++;
          for (;;) {
            const auto n = f.ReadAt(buf, 4000);
            if (!n.ok()) {
              EXPECT_EQ(n.status().code(), absl::StatusCode::kCancelled);
              return;
            }
            EXPECT_EQ(*n, 100u);
          }
        });
      }
      EXPECT_TRUE(testing::Eventually([&] { return started == 8; }));
      EXPECT_TRUE(f.Close().ok());
      wg.Wait();
    }
  });
}

TEST_P(OsTest, AWriteIsWhole) {
  // Writes of one File wait for one another.
  Run([] {
    auto [r, w] = MustPipe();
    constexpr size_t kSize = 100'000;
    WaitGroup wg;
    for (char c : {'a', 'b', 'c', 'd'}) {
      wg.Go([&, &w = w, c] {
        EXPECT_EQ(w.Write(std::string(kSize, c)).value(), kSize);
      });
    }
    std::string all;
    while (all.size() < 4 * kSize) all += ReadSome(r, 70'000);
    for (size_t i = 0; i < all.size(); i += kSize) {
      EXPECT_EQ(all.substr(i, kSize), std::string(kSize, all[i]));
    }
    wg.Wait();
  });
}

TEST_P(OsTest, MixesWithPlainThreads) {
  Run([] {
    auto [r, w] = MustPipe();
    std::atomic<int64_t> read = 0;
    std::atomic<int> writers = 4;  // two threads, two goroutines
    testing::OnBothSides(
        [&, &w = w] {
          for (int i = 0; i < 500; i++) EXPECT_TRUE(w.Write("12345678").ok());
          if (--writers == 0) {
            EXPECT_TRUE(w.Close().ok());
          }
        },
        [&, &r = r] {
          for (;;) {
            const std::string s = ReadSome(r, 24);
            if (s.empty()) return;
            ASSERT_NE(s[0], '!') << s;
            read += static_cast<int64_t>(s.size());
          }
        });
    EXPECT_EQ(read, 4 * 500 * 8);
  });
}

TEST(OsThreadTest, PlainThreadsNeedNoRun) {
  auto [r, w] = MustPipe();
  EXPECT_TRUE(r.SetDeadline(absl::Now() + absl::Milliseconds(20)).ok());
  EXPECT_EQ(ReadSome(r), "!read |0: i/o timeout");
  EXPECT_TRUE(r.SetDeadline(absl::InfiniteFuture()).ok());
  std::thread t([&, &w = w] {
    EXPECT_TRUE(w.Write("from a thread").ok());
    EXPECT_TRUE(w.Close().ok());
  });
  EXPECT_EQ(ReadAll(r), "from a thread");
  t.join();
  EXPECT_EQ(Text(os::Open("/nowhere/x").status()),
            "open /nowhere/x: no such file or directory");
}

TEST(OsStandardTest, StreamsAreTheDescriptors0To2) {
  EXPECT_EQ(os::Stdin().Fd(), 0);
  EXPECT_EQ(os::Stdout().Fd(), 1);
  EXPECT_EQ(os::Stderr().Fd(), 2);
  EXPECT_EQ(os::Stdout().Name(), "/dev/stdout");
  EXPECT_TRUE(os::Stdout() == os::Stdout());
  EXPECT_NE(fcntl(1, F_GETFD), -1);
}

// A call that a goroutine makes in the kernel must not be seen in the errno of
// another goroutine, although it comes back on another thread.
TEST_P(OsTest, LeavesTheErrnoOfOthersAlone) {
  Run([] {
    std::atomic<bool> stop = false;
    WaitGroup readers;
    WaitGroup others;
    std::vector<File> writers;
    for (int i = 0; i < 4; i++) {
      int fds[2];
      ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
      writers.push_back(os::NewFile(fds[1], "out").value());
      readers.Go([r = os::NewFile(fds[0], "in").value()] {
        while (!ReadSome(r).empty()) testing::SetErrno(1000);
      });
    }
    for (int i = 0; i < 8; i++) {
      others.Go([&, i] {
        while (!stop) {
          testing::SetErrno(2000 + i);
          for (int k = 0; k < 200 && !stop; k++) {
            ASSERT_EQ(testing::GetErrno(), 2000 + i);
          }
          runtime::Gosched();
        }
      });
    }
    const absl::Time end =
        absl::Now() + absl::FromChrono(testing::StressTime(0.3));
    while (absl::Now() < end) {
      for (const File& w : writers) EXPECT_TRUE(w.Write("x").ok());
      time::Sleep(absl::Microseconds(100));
    }
    stop = true;
    for (const File& w : writers) EXPECT_TRUE(w.Close().ok());
    readers.Wait();
    others.Wait();
  });
}

}  // namespace
}  // namespace gump
