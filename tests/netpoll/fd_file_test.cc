// FD: descriptors that block, which are mostly files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "netpoll/fd.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/netpoll/fd_testing.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/errno_access.h"
#include "tests/testing/scratch.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using rt::FdKind;
using rt::kErrClosing;
using rt::kErrNoDeadline;
using rt::nanotime;
using namespace std::chrono_literals;

using FDCloseTest = WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(FDCloseTest);

TEST_P(FDCloseTest, FilesBlock) {
  Run([] {
    File file(ScratchFd());
    ASSERT_GE(file.fd(), 0);
    auto f = Open(std::move(file), FdKind::kFile);
    EXPECT_EQ(f->write("0123456789", 10), Bytes(10));
    char buf[16];
    EXPECT_EQ(f->pread(buf, 4, 3), Bytes(4));
    EXPECT_EQ(std::string_view(buf, 4), "3456");
    EXPECT_EQ(f->pwrite("xy", 2, 8), Bytes(2));
    EXPECT_EQ(f->pread(buf, sizeof(buf), 6), Bytes(4));
    EXPECT_EQ(std::string_view(buf, 4), "67xy");
    EXPECT_EQ(f->read(buf, sizeof(buf)), Bytes(0)) << "at the end";
    EXPECT_EQ(f->pread(buf, sizeof(buf), 100), Bytes(0));
    EXPECT_EQ(f->pread(buf, 1, -1), Error(EINVAL));
    EXPECT_EQ(f->pwrite(buf, 1, -1), Error(EINVAL));
    EXPECT_EQ(f->setDeadline(nanotime() + kHour, kBoth), kErrNoDeadline);
    EXPECT_EQ(f->close(), 0);
    EXPECT_EQ(f->pread(buf, 1, 0), Error(kErrClosing));
    EXPECT_EQ(f->pwrite(buf, 1, 0), Error(kErrClosing));
  });
}

// A goroutine that was in the kernel mostly goes on on another thread. The
// errno that it leaves behind belongs to another goroutine.
TEST_P(FDCloseTest, ErrorsOfBlockingCallsStayWithTheirCaller) {
  Run([] {
    constexpr int kRounds = rt::kSanitizerBuild ? 20 : 100;
    Ends e(Kind::kPipe);
    ASSERT_EQ(::fcntl(e.out.fd(), F_SETFL, 0), 0);
    auto out = Open(std::move(e.out), FdKind::kFile);
    auto in = Open(std::move(e.in), FdKind::kPipe);
    auto dir = Open(File(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                    FdKind::kFile);
    std::atomic<bool> stop = false;
    sync::WaitGroup keepers;
    for (int i = 0; i < 4; i++) {
      keepers.Go([&, i] {
        // Keeps an errno of its own, on any thread.
        while (!stop) {
          SetErrno(1000 + i);
          const int64_t end = nanotime() + kMillisecond / 10;
          while (nanotime() < end) {
            ASSERT_EQ(GetErrno(), 1000 + i);
          }
          runtime::Gosched();
          ASSERT_EQ(GetErrno(), 1000 + i);
        }
      });
    }
    sync::WaitGroup wg;
    wg.Go([&] {
      char c;
      for (int i = 0; i < kRounds; i++) ASSERT_EQ(out->read(&c, 1), Bytes(1));
    });
    wg.Go([&] {
      for (int i = 0; i < kRounds; i++) {
        ASSERT_EQ(in->write("x", 1), Bytes(1));
        time::Sleep(100us);
      }
    });
    for (int i = 0; i < 2; i++) {
      wg.Go([&] {
        char buf[8];
        for (int k = 0; k < kRounds; k++) {
          ASSERT_EQ(dir->read(buf, sizeof(buf)), Error(EISDIR));
          ASSERT_EQ(dir->pread(buf, 1, -1), Error(EINVAL));
        }
      });
    }
    wg.Wait();
    stop = true;
    keepers.Wait();
  });
}

}  // namespace
}  // namespace gump::testing
