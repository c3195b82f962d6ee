// Which calls on a file the ring makes (netpoll/ring.h), and which the kernel
// makes at once. The linker sends the library's calls of the ring through this
// file (--wrap), which counts them. So this is not for unity builds, such as
// those of the sanitizers.
#include "netpoll/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/types/span.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/sync.h"
#include "tests/api/os/file_testing.h"
#include "tests/testing/pattern.h"
#include "tests/testing/scoped_env.h"
#include "tests/testing/scratch.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

std::atomic<int> ring_reads = 0;
std::atomic<int> ring_writes = 0;
std::atomic<int> ring_syncs = 0;

}  // namespace
}  // namespace gump

extern "C" {

int64_t __real__ZN4gump2rt8ringReadEiPvml(int, void*, size_t, int64_t);
int64_t __real__ZN4gump2rt9ringWriteEiPKvml(int, const void*, size_t, int64_t);

int64_t __real__ZN4gump2rt8ringSyncEi(int);

int64_t __wrap__ZN4gump2rt8ringReadEiPvml(int fd, void* buf, size_t n,
                                          int64_t offset) {
  gump::ring_reads++;
  return __real__ZN4gump2rt8ringReadEiPvml(fd, buf, n, offset);
}

int64_t __wrap__ZN4gump2rt9ringWriteEiPKvml(int fd, const void* buf, size_t n,
                                            int64_t offset) {
  gump::ring_writes++;
  return __real__ZN4gump2rt9ringWriteEiPKvml(fd, buf, n, offset);
}

int64_t __wrap__ZN4gump2rt8ringSyncEi(int fd) {
  gump::ring_syncs++;
  return __real__ZN4gump2rt8ringSyncEi(fd);
}

}  // extern "C"

namespace gump {
namespace {

using os::File;
using testing::Block;
using testing::Eventually;
using testing::Evict;
using testing::kBlock;
using testing::Pattern;
using testing::Ready;
using testing::Scratch;
using testing::ScratchFd;
using testing::TakesDirect;
using testing::Text;

// RingCalls counts the calls since it was made.
class RingCalls {
 public:
  int Reads() const { return ring_reads - reads_; }
  int Writes() const { return ring_writes - writes_; }
  int Syncs() const { return ring_syncs - syncs_; }

 private:
  const int reads_ = ring_reads;
  const int writes_ = ring_writes;
  const int syncs_ = ring_syncs;
};

// KnowsWhatWaits returns whether a file system has O_DIRECT and can also tell
// that a read would wait. If it cannot, the ring is not used.
bool KnowsWhatWaits(const std::string& folder) {
  const int fd = ScratchFd(O_DIRECT, folder);
  if (fd < 0) return false;
  const Block b;
  const iovec one{b.span().data(), kBlock};
  const bool knows =
      preadv2(fd, &one, 1, 0, RWF_NOWAIT) >= 0 || errno != EOPNOTSUPP;
  close(fd);
  return knows;
}

class OsRingTest : public testing::WithGomaxprocs {
 protected:
  void SetUp() override {
    const int err = rt::ringStart();
    if (err != 0) GTEST_SKIP() << "no io_uring: " << err;
    if (!KnowsWhatWaits(::testing::TempDir())) GTEST_SKIP() << "no O_DIRECT";
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(OsRingTest);

TEST_P(OsRingTest, DirectTransfersAtOffsetsUseTheRing) {
  Run([] {
    constexpr int kBlocks = 16;
    const File f = Scratch(O_DIRECT);
    const RingCalls calls;
    for (int i = 0; i < kBlocks; i++) {
      const Block b(kBlock, static_cast<char>('a' + i));
      EXPECT_EQ(Ready(f.WriteAt(b.text(), i * int64_t{kBlock})), kBlock);
    }
    EXPECT_EQ(calls.Writes(), kBlocks);
    for (int i = kBlocks - 1; i >= 0; i--) {
      const Block b;
      EXPECT_EQ(Ready(f.ReadAt(b.span(), i * int64_t{kBlock})), kBlock);
      EXPECT_EQ(b.text(), std::string(kBlock, static_cast<char>('a' + i)));
    }
    EXPECT_EQ(calls.Reads(), kBlocks);
    // The ring does not move the position, so it makes no calls that do.
    const Block b(kBlock, 'z');
    EXPECT_EQ(Ready(f.Write(b.text())), kBlock);
    EXPECT_EQ(Ready(f.Read(b.span())), kBlock);
    EXPECT_EQ(b.text(), std::string(kBlock, 'b'));
    EXPECT_TRUE(f.Sync().ok());
    EXPECT_EQ(calls.Writes(), kBlocks);
    EXPECT_EQ(calls.Reads(), kBlocks);
  });
}

TEST_P(OsRingTest, CachedPagesAreReadWithoutTheRing) {
  Run([] {
    const std::string data = Pattern(10 * kBlock);
    const File f = Scratch();
    const RingCalls calls;
    EXPECT_EQ(Ready(f.Write(data)), data.size());
    EXPECT_EQ(Ready(f.WriteAt("x", 0)), 1u);
    EXPECT_TRUE(f.Sync().ok());
    EXPECT_EQ(Ready(f.Seek(kBlock, SEEK_SET)), int64_t{kBlock});
    std::string buf(kBlock, '\0');
    const absl::Span<char> to = absl::MakeSpan(buf.data(), buf.size());
    for (const int64_t block : {1, 2}) {
      const int64_t at = block * int64_t{kBlock};
      EXPECT_EQ(Ready(f.Read(to)), kBlock);
      EXPECT_EQ(buf, data.substr(static_cast<size_t>(at), kBlock));
      EXPECT_EQ(Ready(f.ReadAt(to, at + 1)), kBlock);
      EXPECT_EQ(buf, data.substr(static_cast<size_t>(at) + 1, kBlock));
    }
    EXPECT_EQ(calls.Reads(), 0);
    EXPECT_EQ(calls.Writes(), 0);
  });
}

// The page cache had these pages and has dropped them. The kernel may keep some
// of them for a while.
TEST_P(OsRingTest, UncachedPagesAreReadByTheRing) {
  Run([] {
    const std::string data = Pattern(64 * kBlock);
    const File f = Scratch();
    EXPECT_EQ(Ready(f.Write(data)), data.size());
    for (const bool at_position : {false, true}) {
      EXPECT_TRUE(Eventually([&] {
        Evict(f);
        const RingCalls calls;
        std::string buf(data.size(), '\0');
        EXPECT_EQ(Ready(f.Seek(0, SEEK_SET)), 0);
        for (size_t n = 0; n < data.size();) {
          const absl::Span<char> rest =
              absl::MakeSpan(buf.data() + n, std::min(kBlock, data.size() - n));
          const size_t got =
              Ready(at_position ? f.Read(rest)
                                : f.ReadAt(rest, static_cast<int64_t>(n)));
          EXPECT_GT(got, 0u);
          if (got == 0) return true;
          n += got;
        }
        EXPECT_TRUE(buf == data);
        EXPECT_EQ(Ready(f.Seek(0, SEEK_CUR)),
                  at_position ? static_cast<int64_t>(data.size()) : 0);
        return calls.Reads() > 0;
      }));
    }
  });
}

TEST_P(OsRingTest, SyncUsesTheRing) {
  Run([] {
    for (const int flags : {0, O_DIRECT}) {
      const File f = Scratch(flags);
      const RingCalls calls;
      const Block b(kBlock, 'x');
      EXPECT_EQ(Ready(f.Write(b.text())), kBlock);
      EXPECT_TRUE(f.Sync().ok());
      EXPECT_EQ(calls.Syncs(), 1);
      EXPECT_TRUE(f.Close().ok());
      EXPECT_EQ(Text(f.Sync()), "sync scratch: file already closed");
      EXPECT_EQ(calls.Syncs(), 1);
    }
  });
}

// The file cannot be asked whether a read would wait, so the type of its file
// system must do.
TEST_P(OsRingTest, SyncOfAWriteOnlyFileUsesTheRing) {
  struct statfs fs;
  ASSERT_EQ(statfs(::testing::TempDir().c_str(), &fs), 0);
  if (fs.f_type != EXT4_SUPER_MAGIC) GTEST_SKIP() << "no ext4";
  Run([] {
    const std::string name =
        ::testing::TempDir() + "gump_os_ring_log" + std::to_string(getpid());
    const File f = Ready(
        os::OpenFile(name, O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0600));
    unlink(name.c_str());
    const RingCalls calls;
    for (int i = 1; i <= 3; i++) {
      EXPECT_EQ(Ready(f.Write("line\n")), 5u);
      EXPECT_TRUE(f.Sync().ok());
      EXPECT_EQ(calls.Syncs(), i);
    }
    EXPECT_EQ(calls.Writes(), 0);
  });
}

// There are more syncs than the kernel is given at a time. Meanwhile it also
// reads.
TEST_P(OsRingTest, ManySyncsHoldUpNoReader) {
  Run([] {
    constexpr int kMany = 600;
    const File f = Scratch();
    const File direct = Scratch(O_DIRECT);
    const Block b(kBlock, 'y');
    EXPECT_EQ(Ready(direct.WriteAt(b.text(), 0)), kBlock);
    const RingCalls calls;
    sync::WaitGroup wg;
    for (int i = 0; i < kMany; i++) {
      wg.Go([&] { EXPECT_TRUE(f.Sync().ok()); });
      if (i % 10 == 0) {
        wg.Go([&] {
          const Block in;
          EXPECT_EQ(Ready(direct.ReadAt(in.span(), 0)), kBlock);
          EXPECT_EQ(in.text(), b.text());
        });
      }
    }
    wg.Wait();
    EXPECT_EQ(calls.Syncs(), kMany);
  });
}

// A pipe is nothing that could be on a disk.
TEST_P(OsRingTest, SyncOfAPipeIsAnError) {
  Run([] {
    const auto [r, w] = Ready(os::Pipe());
    const RingCalls calls;
    EXPECT_EQ(Text(w.Sync()), "sync |1: invalid argument");
    EXPECT_EQ(calls.Syncs(), 0);
  });
}

// A file system that cannot tell whether a read would wait.
TEST_P(OsRingTest, FilesOnTmpfsDoNotUseTheRing) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  Run([] {
    const std::string data = Pattern(10'000);
    for (const int flags : {0, O_DIRECT}) {
      if (flags != 0 && !TakesDirect("/dev/shm")) continue;  // before Linux 6.6
      const File f = Scratch(flags, "/dev/shm");
      const RingCalls calls;
      EXPECT_TRUE(f.Sync().ok());  // no read has shown that yet
      EXPECT_EQ(Ready(f.WriteAt(data, 0)), data.size());
      EXPECT_TRUE(f.Sync().ok());
      Block b(3 * kBlock);
      EXPECT_EQ(Ready(f.ReadAt(b.span(), 0)), data.size());
      EXPECT_EQ(b.text().substr(0, data.size()), data);
      EXPECT_EQ(Ready(f.Read(b.span())), data.size());
      EXPECT_EQ(calls.Reads(), 0);
      EXPECT_EQ(calls.Writes(), 0);
      EXPECT_EQ(calls.Syncs(), 0);
    }
  });
}

// UseFiles does the same with and without the ring. The exit code is 10 plus
// the number of calls that the ring made, so that it differs from the codes
// with which processes fail.
[[noreturn]] void UseFiles() {
  int code = 100;
  gump::Run([&] {
    const RingCalls calls;
    const File f = Scratch(O_DIRECT);
    const Block out(kBlock, 'x');
    const Block in;
    if (!f.WriteAt(out.text(), kBlock).ok()) return;
    if (!f.Sync().ok()) return;
    if (f.ReadAt(in.span(), kBlock).value_or(0) != kBlock) return;
    if (in.text() != out.text()) return;
    code = 10 + calls.Reads() + calls.Writes() + calls.Syncs();
  });
  std::_Exit(code);
}

[[noreturn]] void TellWhetherThereIsARing() {
  std::_Exit(rt::ringStart() == 0 ? 21 : 20);
}

// Children do everything that starts the runtime, because it reads GODEBUG once
// and does not survive a fork.
TEST(OsRingDeathTest, FilesDoWithoutTheRingUnderNetpollEpoll) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (!KnowsWhatWaits(::testing::TempDir())) GTEST_SKIP() << "no O_DIRECT";
  testing::ScopedEnv godebug("GODEBUG", "netpoll=epoll");
  EXPECT_EXIT(UseFiles(), ::testing::ExitedWithCode(10), "");
  for (const char* with : {"", "netpoll=uring"}) {
    godebug.Set(with);
    int told = 0;
    EXPECT_EXIT(
        TellWhetherThereIsARing(),
        [&](int status) {
          told = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
          return told == 20 || told == 21;
        },
        "");
    EXPECT_EXIT(UseFiles(), ::testing::ExitedWithCode(told == 21 ? 13 : 10),
                "");
  }
}

TEST_P(OsRingTest, ADirectReadIsShortWhereTheFileEnds) {
  Run([] {
    constexpr size_t kSize = 2 * kBlock + 1000;
    const std::string data = Pattern(kSize);
    const File f = Scratch(O_DIRECT);
    Block b(3 * kBlock);
    std::copy(data.begin(), data.end(), b.span().begin());
    EXPECT_EQ(Ready(f.WriteAt(b.text(), 0)), 3 * kBlock);
    EXPECT_TRUE(f.Truncate(kSize).ok());
    const RingCalls calls;
    EXPECT_EQ(Ready(f.ReadAt(b.span(), 2 * kBlock)), 1000u);
    EXPECT_EQ(b.text().substr(0, 1000), data.substr(2 * kBlock));
    EXPECT_EQ(Ready(f.ReadAt(b.span(), 0)), kSize);
    EXPECT_EQ(b.text().substr(0, kSize), data);
    EXPECT_EQ(Ready(f.ReadAt(b.span(), 3 * kBlock)), 0u);
    EXPECT_EQ(Ready(f.ReadAt(b.span(), int64_t{1} << 40)), 0u);
    EXPECT_GE(calls.Reads(), 4);
  });
}

}  // namespace
}  // namespace gump
