// Files and pipes at their ends, with more than a system call takes, and under
// signals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync.h"
#include "runtime/sys/sanitizer.h"
#include "tests/api/os/file_testing.h"
#include "tests/testing/parked.h"
#include "tests/testing/pattern.h"
#include "tests/testing/scratch.h"
#include "tests/testing/signal_storm.h"
#include "tests/testing/status.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using os::File;
using testing::Block;
using testing::EventuallyParked;
using testing::Evict;
using testing::kBlock;
using testing::Pattern;
using testing::Ready;
using testing::Scratch;
using testing::TakesDirect;

// Mapped is a large range of memory that has not been touched.
class Mapped {
 public:
  explicit Mapped(size_t size) : size_(size) {
    p_ = mmap(nullptr, size, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(p_, MAP_FAILED) << errno;
  }
  ~Mapped() { munmap(p_, size_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  absl::Span<char> span() const { return {static_cast<char*>(p_), size_}; }
  std::string_view text() const { return {static_cast<char*>(p_), size_}; }

 private:
  const size_t size_;
  void* p_;
};

using OsFileTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(OsFileTest);

// ---- The end ----------------------------------------------------------------

TEST_P(OsFileTest, UncachedReadsEndAtTheEndOfTheFile) {
  Run([] {
    constexpr size_t kSize = 3 * kBlock + 1000;
    const std::string data = Pattern(kSize);
    const File f = Scratch();
    EXPECT_EQ(Ready(f.Write(data)), kSize);
    std::string buf(2 * kBlock, '\0');
    const absl::Span<char> to = absl::MakeSpan(buf.data(), buf.size());
    Evict(f);
    EXPECT_EQ(Ready(f.ReadAt(to, 3 * kBlock)), 1000u);
    EXPECT_EQ(buf.substr(0, 1000), data.substr(3 * kBlock));
    Evict(f);
    EXPECT_EQ(Ready(f.ReadAt(to, kSize)), 0u);
    EXPECT_EQ(Ready(f.ReadAt(to, 100 * kBlock)), 0u);
    Evict(f);
    EXPECT_EQ(Ready(f.Seek(0, SEEK_SET)), 0);
    std::string all;
    while (const size_t n = Ready(f.Read(to))) all += buf.substr(0, n);
    EXPECT_TRUE(all == data);
    EXPECT_EQ(Ready(f.Read(to)), 0u) << "still";
    EXPECT_EQ(Ready(f.Write("more")), 4u);
    EXPECT_EQ(Ready(f.Read(to)), 0u);
    EXPECT_EQ(Ready(f.ReadAt(to, kSize)), 4u);
  });
}

// ---- More than the kernel takes at a time -----------------------------------

// The lower 32 bits of this size are 0.
constexpr size_t kHuge = size_t{1} << 32;
constexpr const char kNoRoom[] = "the shadow of so much takes all memory";

TEST_P(OsFileTest, AHugeBufferGetsTheWholeFile) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << kNoRoom;
  Run([] {
    const Mapped huge(kHuge);
    const std::string data = Pattern(300 * kBlock);
    std::vector<File> files = {Scratch()};
    if (TakesDirect(::testing::TempDir())) files.push_back(Scratch(O_DIRECT));
    if (access("/dev/shm", W_OK) == 0) files.push_back(Scratch(0, "/dev/shm"));
    for (const File& f : files) {
      Block b(data.size());
      std::copy(data.begin(), data.end(), b.span().begin());
      EXPECT_EQ(Ready(f.WriteAt(b.text(), 0)), data.size());
      EXPECT_EQ(Ready(f.ReadAt(huge.span(), 0)), data.size());
      EXPECT_TRUE(huge.text().substr(0, data.size()) == data);
      EXPECT_EQ(Ready(f.ReadAt(huge.span(), 299 * kBlock)), kBlock);
      size_t n = 0;
      while (const size_t some = Ready(f.Read(huge.span()))) {
        EXPECT_TRUE(huge.text().substr(0, some) == data.substr(n, some));
        n += some;
      }
      EXPECT_EQ(n, data.size());
    }
  });
}

// Holes in a file cost nothing, so an offset beyond 4 GiB is as cheap as
// others.
TEST_P(OsFileTest, OffsetsBeyond32BitsAreKept) {
  Run([] {
    constexpr int64_t kFar = (int64_t{5} << 30) + 2 * int64_t{kBlock};
    std::vector<File> files = {Scratch()};
    if (TakesDirect(::testing::TempDir())) files.push_back(Scratch(O_DIRECT));
    for (const File& f : files) {
      const Block b(kBlock, 'x');
      EXPECT_EQ(Ready(f.WriteAt(b.text(), kFar)), kBlock);
      EXPECT_EQ(Ready(f.Stat()).Size(), kFar + int64_t{kBlock});
      Evict(f);
      const Block in(2 * kBlock, '?');
      EXPECT_EQ(Ready(f.ReadAt(in.span(), kFar - int64_t{kBlock})), 2 * kBlock);
      EXPECT_EQ(in.text(),
                std::string(kBlock, '\0') + std::string(kBlock, 'x'));
      EXPECT_EQ(Ready(f.ReadAt(in.span(), kFar)), kBlock);
    }
  });
}

TEST_P(OsFileTest, AHugeWriteIsWhole) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << kNoRoom;
  Run([] {
    const Mapped huge(kHuge);
    const File null = Ready(os::OpenFile("/dev/null", O_WRONLY));
    EXPECT_EQ(Ready(null.Write(huge.text())), kHuge);
    EXPECT_EQ(Ready(null.WriteAt(huge.text(), 0)), kHuge);
  });
}

// ---- Pipes ------------------------------------------------------------------

TEST_P(OsFileTest, AWriteToAPipeThatTimesOutSaysHowFarItGot) {
  Run([] {
    auto [r, w] = Ready(os::Pipe());
    const std::string data = Pattern(1 << 20);
    size_t written = 0;
    sync::WaitGroup writer;
    writer.Go([&, &w = w] {
      const auto n = w.Write(data);
      EXPECT_EQ(std::string(n.status().message()), "write |1: i/o timeout");
      written = BytesWritten(n.status());
    });
    EXPECT_TRUE(EventuallyParked("IO wait", 1));
    std::string got(1000, '\0');  // too little for the writer to go on
    EXPECT_EQ(Ready(r.Read(absl::MakeSpan(got.data(), got.size()))), 1000u);
    EXPECT_TRUE(w.SetWriteDeadline(absl::Now() + absl::Milliseconds(2)).ok());
    writer.Wait();
    // The read end has no deadline, and a writer that goes on loses and repeats
    // nothing.
    EXPECT_TRUE(w.SetWriteDeadline(absl::InfiniteFuture()).ok());
    writer.Go([&, &w = w] {
      EXPECT_EQ(Ready(w.Write(std::string_view(data).substr(written))),
                data.size() - written);
      EXPECT_TRUE(w.Close().ok());
    });
    std::string buf(100'000, '\0');
    while (const size_t n =
               Ready(r.Read(absl::MakeSpan(buf.data(), buf.size()))))
      got += buf.substr(0, n);
    writer.Wait();
    EXPECT_TRUE(got == data);
  });
}

// Where a goroutine must not park, the thread waits for the ring.
TEST_P(OsFileTest, ACallMayBeInsideBlocking) {
  Run([] {
    const File f = Scratch();
    const std::string text = Pattern(100'000);
    ASSERT_TRUE(f.WriteAt(text, 0).ok());
    Evict(f);
    blocking([&] {
      std::string got(text.size(), '\0');
      const auto n = f.ReadAt(absl::MakeSpan(got), 0);
      EXPECT_TRUE(n.ok() && got == text) << n.status();
      EXPECT_TRUE(f.WriteAt("abc", 3).ok());
      EXPECT_TRUE(f.Sync().ok());
    });
  });
}

// ---- Signals ----------------------------------------------------------------

// Calls that the kernel interrupts: those of pipes that block, of FIFOs that
// wait for the other side, and of files.
TEST_P(OsFileTest, AStormOfSignalsChangesNothing) {
  const std::string fifo =
      ::testing::TempDir() + "/gump_os_ring_fifo" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  Run([&] {
    constexpr int kSignals = rt::kSanitizerBuild ? 100 : 1000;
    const std::string data = Pattern(rt::kSanitizerBuild ? 20'000 : 200'000);
    const testing::SignalStorm storm;
    const auto more = [] { return testing::SignalStorm::Handled() < kSignals; };
    const auto transfer = [&](const File& r, const File& w) {
      sync::WaitGroup writer;
      writer.Go([&] {
        EXPECT_EQ(Ready(w.Write(data)), data.size());
        EXPECT_TRUE(w.Close().ok());
      });
      std::string got;
      std::string buf(7'000, '\0');
      while (const size_t n =
                 Ready(r.Read(absl::MakeSpan(buf.data(), buf.size())))) {
        got += buf.substr(0, n);
      }
      EXPECT_TRUE(got == data);
      writer.Wait();
    };
    sync::WaitGroup all;
    all.Go([&] {
      do {
        int fds[2];
        EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);  // blocks
        transfer(Ready(os::NewFile(fds[0], "r")),
                 Ready(os::NewFile(fds[1], "w")));
      } while (more());
    });
    all.Go([&] {
      do {
        File r;
        sync::WaitGroup opener;
        opener.Go([&] { r = Ready(os::Open(fifo)); });
        for (int i = 0; i < 100; i++) runtime::Gosched();
        const File w = Ready(os::OpenFile(fifo, O_WRONLY));
        opener.Wait();
        transfer(r, w);
      } while (more());
    });
    all.Go([&] {
      const File f = Scratch();
      EXPECT_EQ(Ready(f.Write(data)), data.size());
      do {
        Evict(f);
        std::string buf(data.size() + 1, '\0');
        const absl::Span<char> to = absl::MakeSpan(buf.data(), buf.size());
        EXPECT_EQ(Ready(f.ReadAt(to, 0)), data.size());
        EXPECT_TRUE(buf.substr(0, data.size()) == data);
      } while (more());
    });
    all.Wait();
  });
  unlink(fifo.c_str());
}

}  // namespace
}  // namespace gump
