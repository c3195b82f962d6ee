// The calls that the ring makes (netpoll/ring.h), and files where there is no
// ring. ring_watch_test.cc has the ring's watches. Where the kernel has no
// io_uring, the tests of the ring itself are skipped.
#include "netpoll/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/diag/debugvars.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/errno_access.h"
#include "tests/testing/scoped_env.h"
#include "tests/testing/scratch.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using rt::ringRead;
using rt::ringStart;
using rt::ringWrite;
using testing::Block;
using testing::Ends;
using testing::File;
using testing::kBlock;
using testing::Kind;
using testing::kManyGoroutines;
using testing::Refuse;
using testing::ScopedEnv;
using testing::ScratchFd;
using namespace std::chrono_literals;

// Scratch is a file that is gone when the test is.
File Scratch() {
  File f(ScratchFd());
  EXPECT_GE(f.fd(), 0);
  return f;
}

class RingTest : public testing::WithGomaxprocs {
 protected:
  void SetUp() override {
    if (!testing::RingIsThere()) GTEST_SKIP() << "no io_uring";
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(RingTest);

TEST_P(RingTest, WrittenDataIsReadBack) {
  Run([] {
    const File f = Scratch();
    EXPECT_EQ(ringWrite(f.fd(), "hello world", 11, 0), 11);
    char buf[20];
    EXPECT_EQ(ringRead(f.fd(), buf, sizeof(buf), 6), 5);
    EXPECT_EQ(std::string(buf, 5), "world");
    EXPECT_EQ(ringRead(f.fd(), buf, sizeof(buf), 100), 0);
  });
}

TEST_P(RingTest, ErrorsAreReturned) {
  Run([] {
    char buf[1];
    EXPECT_EQ(ringRead(-1, buf, 1, 0), -EBADF);
    const File readOnly(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(ringWrite(readOnly.fd(), "x", 1, 0), -EBADF);
  });
}

// errno belongs to the goroutine, and the ring leaves it alone.
TEST_P(RingTest, ErrnoIsLeftAlone) {
  Run([] {
    testing::SetErrno(EDOM);
    char buf[1];
    (void)ringRead(-1, buf, 1, 0);
    EXPECT_EQ(testing::GetErrno(), EDOM);
  });
}

// Many more calls than the submission queue takes, or the kernel at a time.
TEST_P(RingTest, AllOfManyCallsAreAnswered) {
  Run([] {
    const File f = Scratch();
    ASSERT_EQ(::ftruncate(f.fd(), kManyGoroutines), 0);
    std::atomic<int> wrong = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < kManyGoroutines; i++) {
      wg.Go([&, i] {
        const char c = static_cast<char>(i % 251);
        if (ringWrite(f.fd(), &c, 1, i) != 1) wrong++;
      });
    }
    wg.Wait();
    EXPECT_EQ(wrong, 0);
    std::vector<char> all(kManyGoroutines);
    ASSERT_EQ(::pread(f.fd(), all.data(), all.size(), 0), kManyGoroutines);
    for (int i = 0; i < kManyGoroutines; i++) {
      ASSERT_EQ(all[static_cast<size_t>(i)], static_cast<char>(i % 251)) << i;
    }
  });
}

TEST_P(RingTest, ServesPlainThreads) {
  const File f = Scratch();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; i++) {
        const int64_t at = int64_t{t} * 200 + i;
        const char c = static_cast<char>(at % 251);
        EXPECT_EQ(ringWrite(f.fd(), &c, 1, at), 1);
        char back = 0;
        EXPECT_EQ(ringRead(f.fd(), &back, 1, at), 1);
        EXPECT_EQ(back, c);
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

// One call at a time: each finds the ring asleep, or about to be.
TEST_P(RingTest, NoCallIsForgottenWhenTheRingGoesToSleep) {
  Run([] {
    testing::StressLoop([](testing::Rng& rng) {
      static const File f = Scratch();
      const char c = 'x';
      EXPECT_EQ(ringWrite(f.fd(), &c, 1, 0), 1);
      for (uint64_t i = rng.Below(4); i > 0; i--) runtime::Gosched();
    });
  });
}

// Past the page cache, where each read waits for the disk.
TEST_P(RingTest, DirectReadsReturnTheData) {
  const File f(ScratchFd(O_DIRECT));
  if (f.fd() == -EINVAL) GTEST_SKIP() << "no O_DIRECT here";
  ASSERT_GE(f.fd(), 0);
  Run([&] {
    constexpr int kBlocks = 64;
    sync::WaitGroup wg;
    for (int i = 0; i < kBlocks; i++) {
      wg.Go([&, i] {
        const Block out(kBlock, static_cast<char>(i));
        const int64_t at = int64_t{i} * int64_t{kBlock};
        EXPECT_EQ(ringWrite(f.fd(), out.text().data(), kBlock, at), kBlock);
        const Block in(kBlock, '\xff');
        EXPECT_EQ(ringRead(f.fd(), in.span().data(), kBlock, at), kBlock);
        EXPECT_EQ(in.text(), out.text());
      });
    }
    wg.Wait();
  });
}

// ---- Files

// The position moves with each call, through the page cache or past it.
TEST_P(RingTest, FilesKeepTheirPosition) {
  for (const int flags : {0, O_DIRECT}) {
    const int fd = ScratchFd(flags);
    if (fd == -EINVAL) continue;  // no O_DIRECT here
    ASSERT_GE(fd, 0);
    Run([&] {
      const os::File f = *os::NewFile(fd, "scratch");
      for (int i = 0; i < 16; i++) {
        const Block out(kBlock, static_cast<char>(i));
        EXPECT_EQ(f.Write(out.text()).value_or(0), kBlock);
      }
      EXPECT_TRUE(f.Sync().ok());
      ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // reads have to wait
      EXPECT_EQ(f.Seek(0, SEEK_SET).value_or(-1), 0);
      const Block in;
      for (int i = 0; i < 16; i++) {
        EXPECT_EQ(f.Read(in.span()).value_or(0), kBlock);
        EXPECT_EQ(in.text()[0], static_cast<char>(i));
        EXPECT_EQ(f.Seek(0, SEEK_CUR).value_or(-1), (i + 1) * int64_t{kBlock});
      }
      EXPECT_EQ(f.Read(in.span()).value_or(1), 0u);

      // Reads and writes at a given place do not move it.
      constexpr int64_t kThird = 3 * int64_t{kBlock};
      const Block third(kBlock, 'x');
      EXPECT_EQ(f.WriteAt(third.text(), kThird).value_or(0), kBlock);
      EXPECT_TRUE(f.Sync().ok());
      ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // reads have to wait
      for (int64_t at : {kThird, int64_t{0}}) {
        EXPECT_EQ(f.ReadAt(in.span(), at).value_or(0), kBlock);
        EXPECT_EQ(in.text()[0], at == 0 ? '\0' : 'x');
      }
      EXPECT_EQ(f.Seek(0, SEEK_CUR).value_or(-1), 16 * int64_t{kBlock});
    });
  }
}

// No call returns before the kernel is through with its buffer, even if the
// file is closed meanwhile. So a caller can then write to the buffer, and its
// data stay.
TEST_P(RingTest, NothingIsWrittenAfterTheReturn) {
  const File f = Scratch();
  const std::string all(64 * kBlock, 'x');
  ASSERT_EQ(::pwrite(f.fd(), all.data(), all.size(), 0),
            static_cast<ssize_t>(all.size()));
  ASSERT_EQ(::fdatasync(f.fd()), 0);
  const std::string path = "/proc/self/fd/" + std::to_string(f.fd());
  Run([&] {
    std::atomic<int> read = 0;
    testing::StressLoop([&](testing::Rng& rng) {
      ::posix_fadvise(f.fd(), 0, 0, POSIX_FADV_DONTNEED);
      int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
      if (fd < 0) fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      ASSERT_GE(fd, 0);
      const os::File file = *os::NewFile(fd, path);
      sync::WaitGroup wg;
      for (int i = 0; i < 16; i++) {
        wg.Go([&, seed = rng.Next()] {
          testing::Rng own(seed);
          alignas(kBlock) char buf[kBlock];
          for (;;) {
            std::fill_n(buf, kBlock, '?');
            const auto at =
                static_cast<int64_t>(own.Below(64)) * int64_t{kBlock};
            const absl::StatusOr<size_t> n =
                file.ReadAt(absl::MakeSpan(buf), at);
            if (n.ok()) {
              EXPECT_EQ(std::count(buf, buf + *n, 'x'), int64_t{kBlock});
              read++;
            }
            std::fill_n(buf, kBlock, '#');
            for (uint64_t k = own.Below(4); k > 0; k--) runtime::Gosched();
            EXPECT_EQ(std::count(buf, buf + kBlock, '#'), int64_t{kBlock});
            if (!n.ok()) return;  // closed
          }
        });
      }
      const int until = read + static_cast<int>(rng.Below(50));
      EXPECT_TRUE(testing::Eventually([&] { return read > until; }));
      EXPECT_TRUE(file.Close().ok());
      wg.Wait();
    });
  });
}

// DeafThreads returns how many threads of this process block sig. The kernel's
// own threads do not count.
int DeafThreads(int sig) {
  int deaf = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    const std::string all(std::istreambuf_iterator<char>(status), {});
    unsigned long long blocked = 0;
    const size_t at = all.find("SigBlk:");
    if (at == all.npos || all.find("iou-wrk") != all.npos) continue;
    std::sscanf(all.c_str() + at, "SigBlk: %llx", &blocked);
    if ((blocked >> (sig - 1) & 1) != 0) deaf++;
  }
  return deaf;
}

// RingThread returns the ring's thread, or 0.
pid_t RingThread() {
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name == "gump-ring") return std::stoi(task.path().filename());
  }
  return 0;
}

// If the ring's thread interrupted the threads that run goroutines for each
// event of a socket, a busy server would take half as much CPU time again. With
// files, a disk waits for the ring's thread.
TEST_P(RingTest, RingThreadIsBatchOnlyIfItWatchesSockets) {
  Run([] {
    const File f = Scratch();
    EXPECT_EQ(ringWrite(f.fd(), "hello", 5, 0), 5);  // so the thread runs
    const int ours = sched_getscheduler(0);
    const bool sockets =
        rt::debug.netpoll == rt::NetpollChoice::kUring && rt::ringWatches();
    EXPECT_EQ(sched_getscheduler(RingThread()),
              sockets && ours == SCHED_OTHER ? SCHED_BATCH : ours);
  });
}

// A signal that came to the ring's thread while it slept was lost, under TSan.
TEST_P(RingTest, RingThreadBlocksSIGTERMButNotSIGQUIT) {
  Run([] {
    const File f = Scratch();
    EXPECT_EQ(ringWrite(f.fd(), "hello", 5, 0), 5);  // so the thread runs
    // A thread that is starting, or starts another, is deaf for a moment.
    EXPECT_TRUE(testing::Eventually(
        [] { return DeafThreads(SIGTERM) == 1 + rt::kSanitizerThreads; }));
    // A dying process would wait a second for a thread that is deaf to SIGQUIT.
    EXPECT_TRUE(testing::Eventually([] {
      return DeafThreads(SIGQUIT) ==
             rt::kSanitizerThreads + (rt::kSanitizerDefersHandlers ? 1 : 0);
    }));
  });
}

// epoll reports events in their order, and callers expect the same of the ring.
// A goroutine notes its turn, calls, and notes its return. If its slice ends
// before or after the call, others may overtake it. But not half of the calls
// may be overtaken.
TEST_P(RingTest, CallsThatEndTogetherReturnInTheOrderInWhichTheyCame) {
  if (GetParam() != 1) return;  // where "before" means the order of running
  Run([] {
    constexpr int kCalls = 200;
    int turn = 0;
    std::vector<int> begun(kCalls);
    std::vector<int> ended;  // of each, when it had begun
    sync::WaitGroup wg;
    for (int i = 0; i < kCalls; i++) {
      wg.Go([&, i] {
        begun[static_cast<size_t>(i)] = turn++;
        char c;
        (void)ringRead(-1, &c, 1, 0);
        ended.push_back(begun[static_cast<size_t>(i)]);
      });
    }
    wg.Wait();
    int overtakings = 0;
    for (size_t i = 1; i < ended.size(); i++) {
      if (ended[i] < ended[i - 1]) overtakings++;
    }
    EXPECT_LT(overtakings, kCalls / 2);
  });
}

// Later waits fail as well, not only a wait at that moment.
TEST_P(RingTest, WaitsFailIfNoEventWillCome) {
  Run([] {
    Ends e(Kind::kPipe);
    testing::Polled p(e.in.fd());
    testing::Harvest();
    const std::string some(4096, 'x');
    while (::write(e.in.fd(), some.data(), some.size()) > 0) {
    }
    rt::NetpollResult r;
    rt::uringEvent(p.get(), -EIO, &r);
    EXPECT_TRUE(r.toRun.empty());
    p.SetDeadline(rt::nanotime() + 60'000 * testing::kMillisecond,
                  rt::PollMode::kBoth);
    for (const rt::PollMode mode :
         {rt::PollMode::kRead, rt::PollMode::kWrite}) {
      for (int i = 0; i < 2; i++) {
        EXPECT_EQ(p.Wait(mode), rt::kErrNotPollable);
      }
    }
  });
}

// The goroutine that has just been answered may be the last one that runs.
TEST(RingDeathTest, ADeadlockAfterTheLastCallIsReported) {
  for (int i = 0; i < 20; i++) {
    EXPECT_EXIT(gump::Run([] {
                  if (ringStart() == 0) {
                    char c;
                    (void)ringRead(-1, &c, 1, 0);
                  }
                  make_chan<void>().Recv();
                }),
                ::testing::ExitedWithCode(2), "all goroutines are asleep");
  }
}

// Workers returns how many threads the kernel has made for the ring.
int Workers() {
  int workers = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name.starts_with("iou-wrk")) workers++;
  }
  return workers;
}

// The kernel hands a direct write to a tmpfs to a worker, which stays.
TEST(RingDeathTest, ADeadlockBesideTheKernelsWorkersIsReported) {
  EXPECT_EXIT(
      gump::Run([] {
        const File f(ScratchFd(O_DIRECT, "/dev/shm"));
        // Otherwise the kernel has no O_DIRECT in a tmpfs (before 6.6), or no
        // ring.
        if (f.fd() >= 0 && ringStart() == 0) {
          const Block block(kBlock, 'x');
          constexpr auto kSize = static_cast<int64_t>(kBlock);
          for (int64_t i = 0; i < 16; i++) {
            const int64_t at = i * kSize;
            if (ringWrite(f.fd(), block.text().data(), kBlock, at) != kSize) {
              std::_Exit(1);
            }
          }
          if (Workers() == 0) std::_Exit(3);  // it would prove nothing
        }
        make_chan<void>().Recv();
      }),
      ::testing::ExitedWithCode(2), "all goroutines are asleep - deadlock!");
}

TEST(RingDeathTest, ManyThreadsCanStartTheRingAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::barrier all(8);
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; i++) {
          threads.emplace_back([&] {
            all.arrive_and_wait();
            (void)ringStart();
          });
        }
        threads.clear();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// There are few workers, and a mount that hangs would take them all. So if the
// kernel would use a worker for every call, as it does in a tmpfs, the call is
// an ordinary one.
TEST(RingDeathTest, CallsThatNeedWorkersAreNotLeftToTheRing) {
  EXPECT_EXIT(gump::Run([] {
                const int fd = ScratchFd(O_DIRECT, "/dev/shm");
                if (fd < 0) std::_Exit(0);  // no O_DIRECT there, before 6.6
                const os::File f = *os::NewFile(fd, "scratch");
                alignas(kBlock) char block[kBlock] = {'x'};
                for (int64_t i = 0; i < 16; i++) {
                  const int64_t at = i * int64_t{kBlock};
                  if (!f.WriteAt({block, kBlock}, at).ok()) std::_Exit(1);
                  if (!f.ReadAt(absl::MakeSpan(block), at).ok()) std::_Exit(1);
                }
                std::_Exit(Workers() == 0 ? 0 : 2);
              }),
              ::testing::ExitedWithCode(0), "");
}

// CloseItsDescriptor closes a descriptor that belongs to the ring.
void CloseItsDescriptor() {
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (target != "anon_inode:[io_uring]") continue;
    ::close(std::stoi(entry.path().filename().string()));
    return;
  }
}

// A caller that waits for a completion can neither go on nor give up, because
// the kernel may still use its buffer.
TEST(RingDeathTest, WithoutItsDescriptorTheProgramEnds) {
  constexpr char kText[] = "runtime: io_uring_enter failed with 9\n";
  EXPECT_EXIT(gump::Run([&] {
                if (ringStart() != 0) {
                  std::fputs(kText, stderr);
                  std::_Exit(2);
                }
                char c;
                (void)ringRead(-1, &c, 1, 0);
                CloseItsDescriptor();
                for (;;) (void)ringRead(-1, &c, 1, 0);
              }),
              ::testing::ExitedWithCode(2), kText);
}

// ---- Without it

// WithoutRing uses files and sockets.
void WithoutRing() {
  gump::Run([] {
    const absl::StatusOr<os::File> f = os::NewFile(ScratchFd(), "scratch");
    if (!f.ok() || !f->WriteAt("hello", 0).ok() || !f->Sync().ok()) exit(1);
    char buf[5];
    if (f->ReadAt(absl::MakeSpan(buf), 0).value_or(0) != 5) exit(2);
    const net::Listener l = *net::Listen("tcp", "127.0.0.1:0");
    go([l] { (void)l.Accept()->Write("x"); });
    const net::Conn c = *net::Dial("tcp", l.LocalAddr().String());
    if (c.Read(absl::MakeSpan(buf)).value_or(0) != 1) exit(3);
  });
  std::_Exit(0);
}

// The suite may run with netpoll=uring in its environment. Then the runtime
// would report that the ring is denied.
TEST(RingDeathTest, SystemCallsAndEpollServeWhereItIsDenied) {
  const ScopedEnv godebug("GODEBUG", "netpoll=auto");
  const ScopedEnv gumpDebug("GUMP_DEBUG", "");
  for (const long nr :
       {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register}) {
    for (const int err : {ENOSYS, EPERM}) {
      EXPECT_EXIT(
          {
            Refuse(nr, err);
            WithoutRing();
          },
          ::testing::ExitedWithCode(0), "^$")
          << nr << " " << err;
    }
  }
}

// A program that asked for the ring is told.
TEST(RingDeathTest, ADeniedRingIsReportedOnce) {
  const ScopedEnv godebug("GODEBUG", "netpoll=uring");
  const ScopedEnv gumpDebug("GUMP_DEBUG", "");
  EXPECT_EXIT(
      {
        Refuse(SYS_io_uring_setup, EPERM);
        WithoutRing();
      },
      ::testing::ExitedWithCode(0),
      "^runtime: no io_uring here \\(errno 1; it needs [^)]*\\), using "
      "epoll\n$");
}

TEST(RingDeathTest, NetpollEpollAsksForNoRing) {
  const ScopedEnv godebug("GODEBUG", "netpoll=epoll");
  const ScopedEnv gumpDebug("GUMP_DEBUG", "");
  EXPECT_EXIT({ std::_Exit(ringStart() == EPERM ? 0 : 1); },
              ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace gump
