// FD: operations that look as if they blocked, over sockets and pipes.
#include "netpoll/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/time.h"
#include "gump/waitgroup.h"
#include "runtime/os_linux.h"
#include "runtime/sanitizer.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/errno_access.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/parked.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::rt {
static bool operator==(const IoResult& a, const IoResult& b) {
  return a.n == b.n && a.err == b.err;
}
static std::ostream& operator<<(std::ostream& os, const IoResult& r) {
  return os << r.n << " bytes, error " << r.err;
}
}  // namespace gump::rt

namespace gump {
namespace {

using rt::FD;
using rt::FdKind;
using rt::IoResult;
using rt::kErrClosing;
using rt::kErrNoDeadline;
using rt::kErrTimeout;
using rt::nanotime;
using rt::PollMode;
using testing::Ends;
using testing::Eventually;
using testing::EventuallyParked;
using testing::File;
using testing::Harvest;
using testing::kHour;
using testing::Kind;
using testing::kMillisecond;
using testing::KnownThread;
using testing::Rng;
using testing::StressLoop;
using namespace std::chrono_literals;

constexpr PollMode kRead = PollMode::kRead;
constexpr PollMode kWrite = PollMode::kWrite;
constexpr PollMode kBoth = PollMode::kBoth;

IoResult Bytes(size_t n) { return {n, 0}; }
IoResult Error(int err) { return {0, err}; }

// Open is an FD that took over f.
std::unique_ptr<FD> Open(File f, FdKind kind) {
  auto fd = std::make_unique<FD>(f.fd(), kind);
  const int err = fd->init();
  EXPECT_EQ(err, 0);
  if (err == 0) (void)f.Release();
  return fd;
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = port;
  return a;
}

// Listen is a listening socket on a port of the kernel's choice.
File Listen(sockaddr_in* addr) {
  File l(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  *addr = Loopback(0);
  socklen_t len = sizeof(*addr);
  auto* sa = reinterpret_cast<sockaddr*>(addr);
  EXPECT_EQ(::bind(l.fd(), sa, len), 0);
  EXPECT_EQ(::listen(l.fd(), 128), 0);
  EXPECT_EQ(::getsockname(l.fd(), sa, &len), 0);
  return l;
}

enum class Over { kUnix, kTcp };
constexpr Over kStreams[] = {Over::kUnix, Over::kTcp};

// RawPair is two connected non-blocking stream sockets.
std::pair<File, File> RawPair(Over over) {
  if (over == Over::kUnix) {
    Ends e;
    return {std::move(e.out), std::move(e.in)};
  }
  sockaddr_in addr;
  File l = Listen(&addr);
  File a(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(a.fd(), reinterpret_cast<sockaddr*>(&addr), sizeof(addr)),
            0);
  EXPECT_EQ(::fcntl(a.fd(), F_SETFL, O_NONBLOCK), 0);
  const int on = 1;
  EXPECT_EQ(::setsockopt(a.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
  File b;
  EXPECT_TRUE(Eventually([&] {
    b = File(::accept4(l.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return b.fd() >= 0;
  }));
  EXPECT_EQ(::setsockopt(b.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
  return {std::move(a), std::move(b)};
}

// Pair is two connected streams.
struct Pair {
  explicit Pair(Over over = Over::kUnix) {
    auto [x, y] = RawPair(over);
    a = Open(std::move(x), FdKind::kStream);
    b = Open(std::move(y), FdKind::kStream);
  }
  std::unique_ptr<FD> a;
  std::unique_ptr<FD> b;
};

// Byte is what stands at a place of an endless stream.
char Byte(uint64_t seed, uint64_t i) {
  const uint64_t x = (i + seed) * 0x9e3779b97f4a7c15;
  return static_cast<char>(x >> 56);
}

// SendStream writes so many bytes of stream `seed`, in parts of random sizes.
void SendStream(FD* fd, uint64_t seed, size_t total, size_t maxPart) {
  Rng rng(seed);
  std::vector<char> buf(maxPart);
  for (size_t done = 0; done < total;) {
    const size_t n = std::min(total - done, size_t{1} + rng.Below(maxPart));
    for (size_t i = 0; i < n; i++) buf[i] = Byte(seed, done + i);
    ASSERT_EQ(fd->write(buf.data(), n), Bytes(n));
    done += n;
  }
}

// ReceiveStream reads stream `seed` until the end; how much there was.
size_t ReceiveStream(FD* fd, uint64_t seed, size_t maxPart) {
  Rng rng(seed + 1);
  std::vector<char> buf(maxPart);
  for (size_t done = 0;;) {
    const IoResult r = fd->read(buf.data(), 1 + rng.Below(maxPart));
    EXPECT_EQ(r.err, 0);
    if (r.err != 0 || r.n == 0) return done;
    size_t wrong = 0;
    for (size_t i = 0; i < r.n; i++) wrong += buf[i] != Byte(seed, done + i);
    EXPECT_EQ(wrong, 0u) << "of " << r.n << " from " << done;
    if (wrong != 0) return done;
    done += r.n;
  }
}

int CloseWrite(FD* fd) {
  return fd->with(
      [](int s) { return ::shutdown(s, SHUT_WR) == 0 ? 0 : errno; });
}

bool IsOpen(int number) { return ::fcntl(number, F_GETFD) >= 0; }

// FillUp writes until the descriptor takes no more.
void FillUp(FD* fd) {
  EXPECT_EQ(fd->with([](int s) {
    static const char zeros[4096] = {};
    while (::write(s, zeros, sizeof(zeros)) > 0) {
    }
    return 0;
  }),
            0);
}

using FDTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(FDTest);

// ---- Reading and writing

TEST_P(FDTest, WhatIsWrittenIsRead) {
  Run([] {
    for (const Over over : kStreams) {
      Pair p(over);
      char buf[64];
      for (int i = 0; i < 10; i++) {
        sync::WaitGroup wg;
        if (i % 2 == 0) {
          wg.Go([&] { EXPECT_EQ(p.a->read(buf, sizeof(buf)), Bytes(5)); });
          EXPECT_TRUE(EventuallyParked("IO wait", 1));
          EXPECT_EQ(p.b->write("hello", 5), Bytes(5));
        } else {
          EXPECT_EQ(p.b->write("hello", 5), Bytes(5));
          EXPECT_EQ(p.a->read(buf, sizeof(buf)), Bytes(5));
        }
        wg.Wait();
        EXPECT_EQ(std::string_view(buf, 5), "hello");
      }
      EXPECT_EQ(p.b->close(), 0);
      EXPECT_EQ(p.a->read(buf, sizeof(buf)), Bytes(0));
      EXPECT_EQ(p.a->read(buf, sizeof(buf)), Bytes(0)) << "again";
    }
  });
}

TEST_P(FDTest, PipesAreReadAndWritten) {
  Run([] {
    Ends e(Kind::kPipe);
    auto out = Open(std::move(e.out), FdKind::kPipe);
    auto in = Open(std::move(e.in), FdKind::kPipe);
    constexpr size_t kTotal = 1 << 20;
    sync::WaitGroup wg;
    wg.Go([&] {
      SendStream(in.get(), 7, kTotal, 10'000);
      EXPECT_EQ(in->close(), 0);
    });
    EXPECT_EQ(ReceiveStream(out.get(), 7, 10'000), kTotal);
    wg.Wait();
  });
}

TEST_P(FDTest, BothDirectionsAtOnce) {
  Run([] {
    constexpr size_t kTotal = size_t{rt::kSanitizerBuild ? 2 : 64} << 20;
    for (const Over over : kStreams) {
      Pair p(over);
      sync::WaitGroup wg;
      for (FD* fd : {p.a.get(), p.b.get()}) {
        FD* peer = fd == p.a.get() ? p.b.get() : p.a.get();
        wg.Go([=] {
          SendStream(fd, 1, kTotal, 300'000);
          EXPECT_EQ(CloseWrite(fd), 0);
        });
        wg.Go([=] { EXPECT_EQ(ReceiveStream(peer, 1, 300'000), kTotal); });
      }
      wg.Wait();
    }
  });
}

TEST_P(FDTest, ASlowReaderStopsTheWriter) {
  Run([] {
    constexpr size_t kTotal = 16 << 20;  // more than TCP buffers
    for (const Over over : kStreams) {
      Pair p(over);
      std::atomic<bool> written = false;
      sync::WaitGroup wg;
      wg.Go([&] {
        // One write, which waits many times.
        std::string all(kTotal, 'x');
        EXPECT_EQ(p.a->write(all.data(), all.size()), Bytes(kTotal));
        written = true;
        EXPECT_EQ(p.a->close(), 0);
      });
      EXPECT_TRUE(EventuallyParked("IO wait", 1));
      EXPECT_FALSE(written);
      std::vector<char> buf(8192);
      size_t n = 0;
      for (IoResult r; (r = p.b->read(buf.data(), buf.size())).n > 0;) {
        n += r.n;
        if (n / buf.size() % 16 == 0) runtime::Gosched();
      }
      EXPECT_EQ(n, kTotal);
      wg.Wait();
    }
  });
}

TEST_P(FDTest, ManyDribble) {
  Run([] {
    constexpr int kWriters = 16;
    constexpr int kEach = rt::kSanitizerBuild ? 50 : 500;
    for (const Over over : kStreams) {
      Pair p(over);
      sync::WaitGroup wg;
      for (int i = 0; i < kWriters; i++) {
        wg.Go([&, i] {
          const char c = static_cast<char>('a' + i);
          for (int k = 0; k < kEach; k++) {
            ASSERT_EQ(p.a->write(&c, 1), Bytes(1));
            if (k % 8 == 0) runtime::Gosched();
          }
        });
      }
      sync::WaitGroup closer;
      closer.Go([&] {
        wg.Wait();
        EXPECT_EQ(p.a->close(), 0);
      });
      int count[kWriters] = {};
      char buf[256];
      for (IoResult r; (r = p.b->read(buf, sizeof(buf))).n > 0;) {
        for (size_t i = 0; i < r.n; i++) count[buf[i] - 'a']++;
      }
      closer.Wait();
      for (const int n : count) EXPECT_EQ(n, kEach);
    }
  });
}

TEST_P(FDTest, NothingToReadOrWrite) {
  Run([] {
    Pair p;
    char c;
    EXPECT_EQ(p.a->read(&c, 0), Bytes(0)) << "without waiting";
    EXPECT_EQ(p.a->write(&c, 0), Bytes(0));
    const iovec none[3] = {};
    EXPECT_EQ(p.a->readv(none, 0), Bytes(0));
    EXPECT_EQ(p.a->readv(none, 3), Bytes(0));
    EXPECT_EQ(p.a->writev(none, 0), Bytes(0));
    EXPECT_EQ(p.a->writev(none, 3), Bytes(0));
    FillUp(p.a.get());
    EXPECT_EQ(p.a->write(&c, 0), Bytes(0)) << "without waiting";
    EXPECT_EQ(p.a->close(), 0);
    EXPECT_EQ(p.a->read(&c, 0), Error(kErrClosing));
    EXPECT_EQ(p.a->write(&c, 0), Error(kErrClosing));
    EXPECT_EQ(p.a->writev(none, 3), Error(kErrClosing));
  });
}

TEST_P(FDTest, ManyBuffers) {
  Run([] {
    constexpr size_t kMany = 5000;
    for (const Over over : kStreams) {
      Pair p(over);
      // Of 0 to 6 bytes, so that some lists are empty at their ends.
      std::string data;
      std::vector<iovec> iov(kMany);
      for (size_t i = 0; i < kMany; i++) {
        iov[i].iov_len = i < 2000 || i >= 4990 ? 0 : i % 7;
        data.append(iov[i].iov_len, static_cast<char>('a' + i % 26));
      }
      size_t at = 0;
      for (iovec& v : iov) {
        v.iov_base = data.data() + at;
        at += v.iov_len;
      }
      const std::vector<iovec> before = iov;
      EXPECT_EQ(p.a->writev(iov.data(), iov.size()), Bytes(data.size()));
      for (size_t i = 0; i < kMany; i++) {
        ASSERT_EQ(iov[i].iov_len, before[i].iov_len) << "the caller's";
      }
      std::string got(data.size(), '\0');
      for (size_t n = 0; n < got.size();) {
        std::vector<iovec> in;
        for (size_t i = 0; i < 2000; i++) in.push_back({nullptr, 0});
        for (size_t i = n; i < got.size() && in.size() < kMany; i++) {
          in.push_back({&got[i], 1});
        }
        const IoResult r = p.b->readv(in.data(), in.size());
        ASSERT_EQ(r.err, 0);
        ASSERT_NE(r.n, 0u);
        n += r.n;
      }
      EXPECT_EQ(got, data);
    }
  });
}

TEST_P(FDTest, LargeVectorsWaitInTheMiddle) {
  Run([] {
    constexpr size_t kTotal = 3'000'000;
    for (const Over over : kStreams) {
      Pair p(over);
      std::string data(kTotal, '\0');
      for (size_t i = 0; i < kTotal; i++) data[i] = Byte(5, i);
      std::vector<iovec> iov;
      Rng rng(5);
      for (size_t at = 0; at < kTotal;) {
        const size_t n = std::min(kTotal - at, size_t{rng.Below(3000)});
        iov.push_back({data.data() + at, n});
        at += n;
      }
      sync::WaitGroup wg;
      wg.Go([&] {
        EXPECT_EQ(p.a->writev(iov.data(), iov.size()), Bytes(kTotal));
        EXPECT_EQ(CloseWrite(p.a.get()), 0);
      });
      if (over == Over::kUnix) {
        EXPECT_TRUE(EventuallyParked("IO wait", 1));
      }
      EXPECT_EQ(ReceiveStream(p.b.get(), 5, 50'000), kTotal);
      wg.Wait();
    }
  });
}

TEST_P(FDTest, TwoReadersTakeTurns) {
  Run([] {
    constexpr uint64_t kRecords = 2000;
    Pair p;
    std::vector<std::atomic<int>> seen(kRecords);
    std::atomic<uint64_t> left = kRecords;
    const auto reader = [&] {
      uint64_t record;
      while (p.a->read(&record, sizeof(record)) == Bytes(sizeof(record))) {
        ASSERT_LT(record, kRecords);
        seen[record]++;
        left--;
      }
    };
    sync::WaitGroup wg;
    wg.Go(reader);
    wg.Go(reader);
    EXPECT_TRUE(EventuallyParked("IO wait", 1));
    EXPECT_TRUE(EventuallyParked("semacquire", 1));
    for (uint64_t i = 0; i < kRecords; i++) {
      ASSERT_EQ(p.b->write(&i, sizeof(i)), Bytes(sizeof(i)));
    }
    EXPECT_TRUE(Eventually([&] { return left == 0; }));
    EXPECT_EQ(p.b->close(), 0);
    wg.Wait();
    for (const auto& n : seen) EXPECT_EQ(n, 1);
  });
}

TEST_P(FDTest, PlainThreadsReadAndWrite) {
  Run([] {
    constexpr size_t kTotal = size_t{rt::kSanitizerBuild ? 1 : 8} << 20;
    Pair p(Over::kTcp);
    auto done = make_chan<size_t>();
    std::thread reader = KnownThread(
        [&, done] { done.Send(ReceiveStream(p.b.get(), 3, 100'000)); });
    std::thread writer = KnownThread([&] {
      SendStream(p.a.get(), 3, kTotal, 100'000);
      EXPECT_EQ(p.a->close(), 0);
    });
    EXPECT_EQ(done.Recv(), kTotal);
    blocking([&] {
      reader.join();
      writer.join();
    });
  });
}

// ---- Reads that take all there is

// A reader with a large buffer does not ask the kernel after a short read;
// whatever the writer does then, it hears of it.
TEST_P(FDTest, WhatFollowsAShortReadIsNotLost) {
  Run([] {
    StressLoop([](Rng& rng) {
      for (const Over over : kStreams) {
        Pair p(over);
        const size_t total = rng.Below(2000);
        const uint64_t end = rng.Below(3);
        sync::WaitGroup wg;
        wg.Go([&, seed = rng.Next()] {
          Rng own(seed);
          std::string part;
          for (size_t done = 0; done < total;) {
            const size_t n = std::min(total - done, size_t{1} + own.Below(100));
            part.resize(n);
            for (size_t i = 0; i < n; i++) part[i] = Byte(9, done + i);
            ASSERT_EQ(p.a->write(part.data(), n), Bytes(n));
            done += n;
            for (uint64_t k = own.Below(4); k > 0; k--) runtime::Gosched();
          }
          // Data and FIN in one go, or FIN later.
          if (end == 0) time::Sleep(50us);
          EXPECT_EQ(end == 1 ? CloseWrite(p.a.get()) : p.a->close(), 0);
        });
        EXPECT_EQ(ReceiveStream(p.b.get(), 9, 4096), total);
        if (end == 1) {
          // The other half goes on.
          EXPECT_EQ(p.b->write("bye", 3), Bytes(3));
          char buf[8];
          EXPECT_EQ(p.a->read(buf, sizeof(buf)), Bytes(3));
        }
        wg.Wait();
      }
    });
  });
}

TEST_P(FDTest, DataAndFinAtOnce) {
  Run([] {
    for (const Over over : kStreams) {
      for (const bool poll : {true, false}) {
        Pair p(over);
        EXPECT_EQ(p.a->write("last", 4), Bytes(4));
        EXPECT_EQ(p.a->close(), 0);
        if (poll) Harvest();  // the only edge comes before the read
        char buf[64];
        EXPECT_EQ(p.b->read(buf, sizeof(buf)), Bytes(4));
        EXPECT_EQ(p.b->read(buf, sizeof(buf)), Bytes(0));
      }
    }
  });
}

TEST_P(FDTest, AFinInTheMiddleOfASleep) {
  Run([] {
    for (const Over over : kStreams) {
      Pair p(over);
      char buf[64];
      EXPECT_EQ(p.a->write("x", 1), Bytes(1));
      EXPECT_EQ(p.b->read(buf, sizeof(buf)), Bytes(1));
      sync::WaitGroup wg;
      wg.Go([&] { EXPECT_EQ(p.b->read(buf, sizeof(buf)), Bytes(0)); });
      EXPECT_TRUE(EventuallyParked("IO wait", 1));
      EXPECT_EQ(CloseWrite(p.a.get()), 0);
      wg.Wait();
      EXPECT_EQ(p.b->write("y", 1), Bytes(1));
      EXPECT_EQ(p.a->read(buf, sizeof(buf)), Bytes(1));
    }
  });
}

TEST_P(FDTest, AResetEndsReadsAndWrites) {
  Run([] {
    for (const bool asleep : {true, false}) {
      Pair p(Over::kTcp);
      char buf[64];
      EXPECT_EQ(p.a->write("x", 1), Bytes(1));
      EXPECT_EQ(p.b->read(buf, sizeof(buf)), Bytes(1));
      sync::WaitGroup wg;
      const auto read = [&] {
        EXPECT_EQ(p.b->read(buf, sizeof(buf)), Error(ECONNRESET));
      };
      if (asleep) {
        wg.Go(read);
        EXPECT_TRUE(EventuallyParked("IO wait", 1));
      }
      EXPECT_EQ(p.a->with([](int s) {
        const linger now{1, 0};
        return ::setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
      }),
                0);
      EXPECT_EQ(p.a->close(), 0);
      if (!asleep) {
        Harvest();
        read();
      }
      wg.Wait();
      EXPECT_EQ(p.b->write("y", 1), Error(EPIPE)) << "and no SIGPIPE";
      EXPECT_EQ(p.b->read(buf, sizeof(buf)), Bytes(0));
    }
  });
}

TEST_P(FDTest, AResetEndsAWriterWhoSleeps) {
  Run([] {
    Pair p(Over::kTcp);
    FillUp(p.a.get());
    std::string more(8 << 20, 'x');
    sync::WaitGroup wg;
    wg.Go([&] {
      const IoResult r = p.a->write(more.data(), more.size());
      EXPECT_TRUE(r.err == ECONNRESET || r.err == EPIPE) << r;
      EXPECT_LT(r.n, more.size());
    });
    EXPECT_TRUE(EventuallyParked("IO wait", 1));
    EXPECT_EQ(p.b->close(), 0);  // with unread data: a reset
    wg.Wait();
  });
}

TEST_P(FDTest, DescriptorsAmongTheDataHideNothing) {
  Run([] {
    auto [x, y] = RawPair(Over::kUnix);
    auto b = Open(std::move(y), FdKind::kStream);
    // The kernel ends a read behind a message with descriptors.
    char first[] = "first";
    iovec iov{first, 5};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr m{};
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof(control);
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    const int passed = x.fd();
    std::memcpy(CMSG_DATA(c), &passed, sizeof(passed));
    ASSERT_EQ(::sendmsg(x.fd(), &m, 0), 5);
    ASSERT_EQ(::send(x.fd(), "second", 6, 0), 6);
    Harvest();  // all edges come before the first read
    ASSERT_EQ(b->setDeadline(nanotime() + 10'000 * kMillisecond, kRead), 0);
    char buf[64];
    EXPECT_EQ(b->read(buf, sizeof(buf)), Bytes(5));
    EXPECT_EQ(b->read(buf, sizeof(buf)), Bytes(6));
    EXPECT_EQ(std::string_view(buf, 6), "second");
  });
}

TEST_P(FDTest, UrgentDataHidesNothing) {
  Run([] {
    for (const bool poll : {true, false}) {
      auto [x, y] = RawPair(Over::kTcp);
      const int raw = y.fd();
      auto b = Open(std::move(y), FdKind::kStream);
      char buf[64];
      ASSERT_EQ(b->setDeadline(nanotime() + 10'000 * kMillisecond, kRead), 0);
      uint64_t sent = 0;
      for (int i = 0; i < 5; i++) {
        // A read ends at the mark; the urgent byte is no part of the stream.
        ASSERT_EQ(::send(x.fd(), "first", 5, 0), 5);
        ASSERT_EQ(::send(x.fd(), "!", 1, MSG_OOB), 1);
        ASSERT_EQ(::send(x.fd(), "second", 6, 0), 6);
        sent += 12;
        ASSERT_TRUE(Eventually([&] {
          tcp_info info{};
          socklen_t len = sizeof(info);
          return ::getsockopt(raw, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
                 info.tcpi_bytes_received >= sent;
        }));
        if (poll) Harvest();
        ASSERT_EQ(b->read(buf, sizeof(buf)), Bytes(5));
        ASSERT_EQ(b->read(buf, sizeof(buf)), Bytes(6));
        ASSERT_EQ(std::string_view(buf, 6), "second");
      }
    }
  });
}

// withWrite once wrote the flag that only readers may touch.
TEST_P(FDTest, WaitingToWriteLeavesReadersAlone) {
  Run([] {
    constexpr int kRounds = rt::kSanitizerBuild ? 500 : 5000;
    Pair p(Over::kTcp);
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++) {
      threads.push_back(KnownThread([&] {
        while (!stop) EXPECT_EQ(p.b->withWrite([](int) { return true; }), 0);
      }));
    }
    ASSERT_EQ(p.b->setDeadline(nanotime() + 60'000 * kMillisecond, kRead), 0);
    sync::WaitGroup wg;
    wg.Go([&] {
      for (int i = 0; i < kRounds; i++) {
        ASSERT_EQ(p.a->write("abc", 3), Bytes(3));
        // All of it has been read, before there is more.
        char c;
        ASSERT_EQ(p.a->read(&c, 1), Bytes(1));
      }
    });
    for (int i = 0; i < kRounds; i++) {
      // A short read or none, then one that leaves something.
      char buf[8];
      for (size_t left = 3; left > 0;) {
        const IoResult r = p.b->read(buf, i % 2 == 0 ? sizeof(buf) : size_t{1});
        ASSERT_EQ(r.err, 0);
        ASSERT_NE(r.n, 0u);
        left -= r.n;
      }
      ASSERT_EQ(p.b->write("k", 1), Bytes(1));
    }
    wg.Wait();
    stop = true;
    blocking([&] {
      for (auto& t : threads) t.join();
    });
  });
}

TEST_P(FDTest, WaysToReadMayBeMixed) {
  Run([] {
    StressLoop([](Rng& rng) {
      constexpr size_t kTotal = 3000;
      Pair p(rng.OneIn(2) ? Over::kTcp : Over::kUnix);
      sync::WaitGroup wg;
      wg.Go([&, seed = rng.Next()] {
        SendStream(p.a.get(), seed % 100, kTotal, 40);
        EXPECT_EQ(CloseWrite(p.a.get()), 0);
      });
      size_t done = 0;
      for (;;) {
        char buf[64];
        iovec iov{buf, sizeof(buf)};
        IoResult r;
        switch (rng.Below(4)) {
          case 0:
            r = p.b->read(buf, 1 + rng.Below(sizeof(buf)));
            break;
          case 1:
            r = p.b->readv(&iov, 1);
            break;
          case 2: {
            msghdr m{};
            m.msg_iov = &iov;
            m.msg_iovlen = 1;
            r = p.b->recvmsg(&m, 0);
            break;
          }
          default:
            r.err = p.b->withRead([&](int s) {
              const ssize_t n = ::read(s, buf, sizeof(buf));
              if (n < 0) return false;
              r.n = static_cast<size_t>(n);
              return true;
            });
            break;
        }
        ASSERT_EQ(r.err, 0);
        if (r.n == 0) break;
        done += r.n;
      }
      EXPECT_EQ(done, kTotal);
      wg.Wait();
    });
  });
}

// ---- Messages

TEST_P(FDTest, MessagesKeepTheirBounds) {
  Run([] {
    int fd[2];
    ASSERT_EQ(
        ::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd),
        0);
    auto a = Open(File(fd[0]), FdKind::kDatagram);
    auto b = Open(File(fd[1]), FdKind::kDatagram);
    char buf[16];
    EXPECT_EQ(a->write("one", 3), Bytes(3));
    EXPECT_EQ(a->write("", 0), Bytes(0)) << "a message as well";
    char three[] = "three";
    iovec parts[2] = {{three, 2}, {three + 2, 3}};
    msghdr m{};
    m.msg_iov = parts;
    m.msg_iovlen = 2;
    EXPECT_EQ(a->sendmsg(&m, 0), Bytes(5));
    EXPECT_EQ(a->write("0123456789", 10), Bytes(10));
    EXPECT_EQ(b->read(buf, sizeof(buf)), Bytes(3));
    EXPECT_EQ(b->read(buf, sizeof(buf)), Bytes(0));
    EXPECT_EQ(b->read(buf, sizeof(buf)), Bytes(5));
    EXPECT_EQ(std::string_view(buf, 5), "three");
    iovec small{buf, 4};
    msghdr in{};
    in.msg_iov = &small;
    in.msg_iovlen = 1;
    EXPECT_EQ(b->recvmsg(&in, 0), Bytes(4));
    EXPECT_NE(in.msg_flags & MSG_TRUNC, 0);
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_EQ(b->read(buf, sizeof(buf)), Bytes(4)); });
    EXPECT_TRUE(EventuallyParked("IO wait", 1));
    EXPECT_EQ(a->write("late", 4), Bytes(4));
    wg.Wait();
  });
}

// ---- Listeners, and connecting

TEST_P(FDTest, AcceptWaitsForConnections) {
  Run([] {
    constexpr int kMany = rt::kSanitizerBuild ? 20 : 200;
    sockaddr_in addr;
    auto l = Open(Listen(&addr), FdKind::kDatagram);
    sync::WaitGroup wg;
    wg.Go([&] {
      for (int i = 0; i < kMany; i++) {
        int fd = -1;
        sockaddr_in peer{};
        socklen_t len = sizeof(peer);
        ASSERT_EQ(l->accept(&fd, reinterpret_cast<sockaddr*>(&peer), &len), 0);
        EXPECT_EQ(len, sizeof(peer));
        EXPECT_EQ(peer.sin_family, AF_INET);
        EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
        EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
        auto conn = Open(File(fd), FdKind::kStream);
        char c;
        EXPECT_EQ(conn->read(&c, 1), Bytes(1));
        EXPECT_EQ(conn->write(&c, 1), Bytes(1));
      }
    });
    EXPECT_TRUE(EventuallyParked("IO wait", 1));
    for (int i = 0; i < kMany; i++) {
      File f(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      auto c = std::make_unique<FD>(f.fd(), FdKind::kStream);
      // As api/ does it: connect, register, wait.
      const int r =
          ::connect(f.fd(), reinterpret_cast<sockaddr*>(&addr), sizeof(addr));
      ASSERT_TRUE(r == 0 || errno == EINPROGRESS);
      ASSERT_EQ(c->init(), 0);
      (void)f.Release();
      for (;;) {
        ASSERT_EQ(c->waitWrite(), 0);
        sockaddr_in peer;
        socklen_t len = sizeof(peer);
        if (::getpeername(c->sysfd(), reinterpret_cast<sockaddr*>(&peer),
                          &len) == 0) {
          break;
        }
      }
      char byte = static_cast<char>(i);
      EXPECT_EQ(c->write(&byte, 1), Bytes(1));
      EXPECT_EQ(c->read(&byte, 1), Bytes(1));
      EXPECT_EQ(byte, static_cast<char>(i));
    }
    wg.Wait();
  });
}

TEST_P(FDTest, AcceptEndsWithItsListener) {
  Run([] {
    sockaddr_in addr;
    auto l = Open(Listen(&addr), FdKind::kDatagram);
    int fd;
    sockaddr_in peer;
    socklen_t len = sizeof(peer);
    const auto accept = [&] {
      return l->accept(&fd, reinterpret_cast<sockaddr*>(&peer), &len);
    };
    EXPECT_EQ(l->setDeadline(nanotime() + kMillisecond, kBoth), 0);
    EXPECT_EQ(accept(), kErrTimeout);
    EXPECT_EQ(l->setDeadline(0, kBoth), 0);
    sync::WaitGroup wg;
    wg.Go([&] { EXPECT_EQ(accept(), kErrClosing); });
    EXPECT_TRUE(EventuallyParked("IO wait", 1));
    EXPECT_EQ(l->close(), 0);
    wg.Wait();
    EXPECT_EQ(accept(), kErrClosing);
  });
}

TEST_P(FDTest, WithoutDescriptorsAcceptFailsAndRecovers) {
  Run([] {
    sockaddr_in addr;
    auto l = Open(Listen(&addr), FdKind::kDatagram);
    Harvest();
    File client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(client.fd(), reinterpret_cast<sockaddr*>(&addr),
                        sizeof(addr)),
              0);
    int fd = -1;
    sockaddr_in peer;
    socklen_t len = sizeof(peer);
    const auto accept = [&] {
      return l->accept(&fd, reinterpret_cast<sockaddr*>(&peer), &len);
    };
    rlimit old;
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
    File next(::fcntl(client.fd(), F_DUPFD_CLOEXEC, 0));
    rlimit none = old;
    none.rlim_cur = static_cast<rlim_t>(next.fd());
    next.Close();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 3; i++) EXPECT_EQ(accept(), EMFILE);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
    // The connection is still there, though its edge has come and gone.
    EXPECT_EQ(accept(), 0);
    File conn(fd);
  });
}

// ---- Deadlines

TEST_P(FDTest, DeadlinesEndReadsAndWrites) {
  Run([] {
    for (const Over over : kStreams) {
      Pair p(over);
      char buf[64];
      for (int i = 0; i < 3; i++) {
        // The second time after a short read.
        const int64_t when = nanotime() + 5 * kMillisecond;
        ASSERT_EQ(p.a->setDeadline(when, kRead), 0);
        EXPECT_EQ(p.a->read(buf, sizeof(buf)), Error(kErrTimeout));
        EXPECT_GE(nanotime(), when);
        EXPECT_EQ(p.b->write("x", 1), Bytes(1));
        EXPECT_EQ(p.a->read(buf, sizeof(buf)), Error(kErrTimeout)) << "still";
        ASSERT_EQ(p.a->setDeadline(0, kRead), 0);
        EXPECT_EQ(p.a->read(buf, sizeof(buf)), Bytes(1));
      }
      std::string much(32 << 20, 'x');
      ASSERT_EQ(p.a->setDeadline(nanotime() + 20 * kMillisecond, kWrite), 0);
      const IoResult r = p.a->write(much.data(), much.size());
      EXPECT_EQ(r.err, kErrTimeout);
      EXPECT_GT(r.n, 0u) << "some went out";
      EXPECT_LT(r.n, much.size());
      EXPECT_EQ(p.a->write(much.data(), 1), Error(kErrTimeout));
      ASSERT_EQ(p.a->setDeadline(0, kBoth), 0);
      ASSERT_EQ(CloseWrite(p.a.get()), 0);
      size_t n = 0;
      std::vector<char> in(100'000);
      for (IoResult k; (k = p.b->read(in.data(), in.size())).n > 0;) n += k.n;
      EXPECT_EQ(n, r.n) << "as many as it said";
    }
  });
}

TEST_P(FDTest, ADeadlineOnAWriteVectorSaysHowFarItCame) {
  Run([] {
    Pair p;
    std::string part(100'000, 'x');
    std::vector<iovec> iov(300, iovec{part.data(), part.size()});
    ASSERT_EQ(p.a->setDeadline(nanotime() + 20 * kMillisecond, kWrite), 0);
    const IoResult r = p.a->writev(iov.data(), iov.size());
    EXPECT_EQ(r.err, kErrTimeout);
    EXPECT_EQ(p.a->close(), 0);
    size_t n = 0;
    std::vector<char> in(100'000);
    for (IoResult k; (k = p.b->read(in.data(), in.size())).n > 0;) n += k.n;
    EXPECT_EQ(n, r.n);
  });
}

// ---- Closing

TEST_P(FDTest, CloseEndsWhateverGoesOn) {
  Run([] {
    for (const bool byThread : {true, false}) {
      for (const Over over : kStreams) {
        Pair p(over);
        FillUp(p.a.get());
        const int number = p.a->sysfd();
        std::atomic<int> ended = 0;
        std::string much(8 << 20, 'x');
        const auto read = [&] {
          char buf[8];
          EXPECT_EQ(p.a->read(buf, sizeof(buf)), Error(kErrClosing));
          ended++;
        };
        const auto write = [&] {
          EXPECT_EQ(p.a->write(much.data(), much.size()).err, kErrClosing);
          ended++;
        };
        // Of each two, one sleeps in the poller and one for the lock.
        sync::WaitGroup wg;
        for (int i = 0; i < 2; i++) {
          wg.Go(read);
          wg.Go(write);
        }
        ASSERT_TRUE(EventuallyParked("IO wait", 2));
        ASSERT_TRUE(EventuallyParked("semacquire", 2));
        const int64_t start = nanotime();
        const auto close = [&] {
          EXPECT_EQ(p.a->close(), 0);
          EXPECT_FALSE(IsOpen(number)) << "when close returns";
        };
        if (byThread) {
          std::thread t = KnownThread(close);
          blocking([&] { t.join(); });
        } else {
          close();
        }
        wg.Wait();
        EXPECT_LT(nanotime() - start, 5'000 * kMillisecond);
        EXPECT_EQ(ended, 4);
        char c = 0;
        EXPECT_EQ(p.a->read(&c, 1), Error(kErrClosing));
        EXPECT_EQ(p.a->write(&c, 1), Error(kErrClosing));
        EXPECT_EQ(p.a->setDeadline(0, kBoth), kErrClosing);
        EXPECT_EQ(p.a->with([](int) { return 0; }), kErrClosing);
        EXPECT_EQ(p.a->withRead([](int) { return true; }), kErrClosing);
        EXPECT_EQ(p.a->withWrite([](int) { return true; }), kErrClosing);
        EXPECT_EQ(p.a->waitWrite(), kErrClosing);
        EXPECT_EQ(p.a->close(), kErrClosing) << "twice";
      }
    }
  });
}

TEST_P(FDTest, CloseWaitsForThoseWhoUseTheDescriptor) {
  Run([] {
    Pair p;
    const int number = p.a->sysfd();
    auto inside = make_chan<void>();
    auto leave = make_chan<void>();
    std::atomic<bool> closed = false;
    sync::WaitGroup wg;
    wg.Go([&] {
      EXPECT_EQ(p.a->with([&](int fd) {
        inside.Close();
        leave.Recv();
        EXPECT_TRUE(IsOpen(fd));
        EXPECT_FALSE(closed);
        return 0;
      }),
                0);
    });
    inside.Recv();
    wg.Go([&] {
      EXPECT_EQ(p.a->close(), 0);
      closed = true;
      EXPECT_FALSE(IsOpen(number));
    });
    EXPECT_TRUE(EventuallyParked("semacquire", 1));
    EXPECT_TRUE(IsOpen(number));
    leave.Close();
    wg.Wait();
  });
}

TEST_P(FDTest, TheNumberIsFreeAtOnce) {
  Run([] {
    for (int i = 0; i < 200; i++) {
      Pair p;
      Ends e;
      const int number = p.a->sysfd();
      sync::WaitGroup wg;
      wg.Go([&] {
        char c;
        EXPECT_EQ(p.a->read(&c, 1), Error(kErrClosing));
      });
      if (i % 2 == 0) {
        EXPECT_TRUE(EventuallyParked("IO wait", 1));
      }
      EXPECT_EQ(p.a->close(), 0);
      // Somebody else's from here on, whoever is still on his way out.
      File mine(::fcntl(e.out.fd(), F_DUPFD_CLOEXEC, number));
      ASSERT_EQ(mine.fd(), number);
      auto next = Open(std::move(mine), FdKind::kStream);
      EXPECT_EQ(::write(e.in.fd(), "x", 1), 1);
      char c;
      EXPECT_EQ(next->read(&c, 1), Bytes(1));
      wg.Wait();
      EXPECT_TRUE(IsOpen(number));
    }
  });
}

TEST_P(FDTest, TheDestructorCloses) {
  Run([] {
    int number;
    {
      Pair p;
      number = p.a->sysfd();
      EXPECT_TRUE(IsOpen(number));
    }
    EXPECT_FALSE(IsOpen(number));
    // One that was never registered is the caller's.
    Ends e;
    { FD fd(e.out.fd(), FdKind::kStream); }
    EXPECT_TRUE(IsOpen(e.out.fd()));
    // And so is one that was refused.
    char name[] = "/tmp/gump_fd_XXXXXX";
    File file(::mkstemp(name));
    ASSERT_GE(file.fd(), 0);
    ::unlink(name);
    {
      FD fd(file.fd(), FdKind::kStream);
      EXPECT_EQ(fd.init(), EPERM);
    }
    EXPECT_TRUE(IsOpen(file.fd()));
  });
}

TEST_P(FDTest, ClosersRaceWithEverything) {
  Run([] {
    StressLoop([](Rng& rng) {
      Pair p(rng.OneIn(2) ? Over::kTcp : Over::kUnix);
      const int number = p.a->sysfd();
      std::atomic<int> closes = 0;
      sync::WaitGroup wg;
      for (int i = 0; i < 8; i++) {
        wg.Go([&, i, seed = rng.Next()] {
          Rng own(seed);
          char buf[1000] = {};
          for (;;) {
            int err = 0;
            switch (i % 4) {
              case 0:
                err = p.a->read(buf, own.Below(sizeof(buf))).err;
                break;
              case 1:
                err = p.a->write(buf, own.Below(sizeof(buf))).err;
                break;
              case 2:
                err = p.a->setDeadline(
                    own.OneIn(2)
                        ? 0
                        : nanotime() + static_cast<int64_t>(own.Below(50'000)),
                    own.OneIn(2) ? kRead : kBoth);
                runtime::Gosched();
                break;
              default:
                if (own.OneIn(20)) {
                  if (p.a->close() == 0) {
                    closes++;
                    EXPECT_FALSE(IsOpen(number));
                  }
                  return;
                }
                runtime::Gosched();
                break;
            }
            if (err == kErrClosing) return;
            EXPECT_TRUE(err == 0 || err == kErrTimeout) << err;
          }
        });
      }
      wg.Go([&] {
        // The peer feeds and drains, until the end.
        char buf[1000];
        while (p.b->read(buf, sizeof(buf)).n > 0) {
          if (p.b->write(buf, 500).err != 0) return;
        }
      });
      wg.Wait();
      EXPECT_EQ(closes, 1);
    });
  });
}

// ---- Signals, files, descriptor 0

TEST_P(FDTest, SignalsAreNotSeen) {
  struct sigaction act {};
  struct sigaction old {};
  act.sa_handler = [](int) {};
  act.sa_flags = SA_ONSTACK;  // and no SA_RESTART
  ASSERT_EQ(::sigaction(SIGALRM, &act, &old), 0);
  itimerval often{};
  often.it_interval.tv_usec = often.it_value.tv_usec =
      rt::kSanitizerBuild ? 2000 : 200;
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  Run([] {
    constexpr size_t kTotal = size_t{rt::kSanitizerBuild ? 1 : 16} << 20;
    Pair p(Over::kTcp);
    Ends e(Kind::kPipe);
    // A blocking pipe, whose calls the kernel interrupts.
    ASSERT_EQ(::fcntl(e.out.fd(), F_SETFL, 0), 0);
    ASSERT_EQ(::fcntl(e.in.fd(), F_SETFL, 0), 0);
    auto out = Open(std::move(e.out), FdKind::kFile);
    auto in = Open(std::move(e.in), FdKind::kFile);
    sync::WaitGroup wg;
    wg.Go([&] {
      SendStream(p.a.get(), 1, kTotal, 100'000);
      EXPECT_EQ(CloseWrite(p.a.get()), 0);
    });
    wg.Go([&] { EXPECT_EQ(ReceiveStream(p.b.get(), 1, 100'000), kTotal); });
    wg.Go([&] {
      for (int i = 0; i < 20; i++) {
        EXPECT_EQ(in->write("x", 1), Bytes(1));
        time::Sleep(2ms);
      }
      EXPECT_EQ(in->close(), 0);
    });
    char c;
    for (int i = 0; i < 20; i++) EXPECT_EQ(out->read(&c, 1), Bytes(1));
    EXPECT_EQ(out->read(&c, 1), Bytes(0));
    wg.Wait();
  });
  const itimerval never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  ASSERT_EQ(::sigaction(SIGALRM, &old, nullptr), 0);
}

TEST_P(FDTest, FilesBlock) {
  Run([] {
    char name[] = "/tmp/gump_fd_XXXXXX";
    File file(::mkstemp(name));
    ASSERT_GE(file.fd(), 0);
    ::unlink(name);
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

// A goroutine that was in the kernel goes on on another thread, more often
// than not; the errno that it leaves behind is somebody else's.
TEST_P(FDTest, ErrorsOfBlockingCallsStayWithTheirCaller) {
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
        // Keeps an errno of its own, whatever thread it is on.
        while (!stop) {
          testing::SetErrno(1000 + i);
          const int64_t end = nanotime() + kMillisecond / 10;
          while (nanotime() < end) {
            ASSERT_EQ(testing::GetErrno(), 1000 + i);
          }
          runtime::Gosched();
          ASSERT_EQ(testing::GetErrno(), 1000 + i);
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

TEST_P(FDTest, DescriptorZero) {
  Run([] {
    File saved(::fcntl(0, F_DUPFD_CLOEXEC, 3));
    {
      auto [x, y] = RawPair(Over::kTcp);
      ASSERT_EQ(::dup2(x.fd(), 0), 0);
      x.Close();
      auto zero = Open(File(0), FdKind::kStream);
      auto b = Open(std::move(y), FdKind::kStream);
      sync::WaitGroup wg;
      wg.Go([&] {
        char c;
        EXPECT_EQ(zero->read(&c, 1), Bytes(1));
        EXPECT_EQ(zero->write(&c, 1), Bytes(1));
      });
      EXPECT_EQ(b->write("x", 1), Bytes(1));
      char c;
      EXPECT_EQ(b->read(&c, 1), Bytes(1));
      wg.Wait();
      EXPECT_EQ(zero->close(), 0);
      EXPECT_FALSE(IsOpen(0));
    }
    if (saved.fd() >= 0) {
      ASSERT_EQ(::dup2(saved.fd(), 0), 0);
    }
  });
}

}  // namespace
}  // namespace gump
