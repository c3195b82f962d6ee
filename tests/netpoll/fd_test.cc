// FD: operations that look as if they blocked, over sockets and pipes.
#include "netpoll/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/netpoll/fd_testing.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/no_descriptors.h"
#include "tests/testing/parked.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

using rt::FD;
using rt::FdKind;
using rt::IoResult;
using rt::kErrClosing;
using rt::kErrTimeout;
using rt::nanotime;
using namespace std::chrono_literals;

using FDTest = WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(FDTest);

// ---- Reading and writing

TEST_P(FDTest, WrittenDataIsRead) {
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

TEST_P(FDTest, BothDirectionsWorkAtOnce) {
  Run([] {
    constexpr size_t kTotal = size_t{rt::kSanitizerBuild ? 2 : 16} << 20;
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

TEST_P(FDTest, SmallWritesOfManyWritersAllArrive) {
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

TEST_P(FDTest, EmptyReadsAndWritesDoNotWait) {
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

TEST_P(FDTest, VectorsOfManyBuffersAreReadAndWritten) {
  Run([] {
    constexpr size_t kMany = 5000;
    for (const Over over : kStreams) {
      Pair p(over);
      // Buffers of 0 to 6 bytes, so that some lists are empty at their ends.
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

// A reader with a large buffer does not ask the kernel after a short read. It
// learns of each later write all the same.
TEST_P(FDTest, DataAfterAShortReadIsNotLost) {
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
          // The other direction still works.
          EXPECT_EQ(p.b->write("bye", 3), Bytes(3));
          char buf[8];
          EXPECT_EQ(p.a->read(buf, sizeof(buf)), Bytes(3));
        }
        wg.Wait();
      }
    });
  });
}

TEST_P(FDTest, DataAndFinThatComeAtOnceAreBothRead) {
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

TEST_P(FDTest, AFinEndsASleepingRead) {
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

// Another process has the pipe, too, and does not expect EAGAIN, so the
// descriptor blocks.
TEST_P(FDTest, CloseOfABlockingDescriptorDoesNotWaitForACallInTheKernel) {
  Run([] {
    Ends e;
    ASSERT_EQ(::fcntl(e.in.fd(), F_SETFL, 0), 0);
    auto in = Open(std::move(e.in), FdKind::kPipe);
    in->setBlocks();
    sync::WaitGroup wg;
    wg.Go([&] {
      char c;
      EXPECT_EQ(in->read(&c, 1), Bytes(1));
    });
    EXPECT_TRUE(EventuallyParked("syscall", 1));
    EXPECT_EQ(in->close(), 0);
    EXPECT_EQ(::write(e.out.fd(), "x", 1), 1);
    wg.Wait();
  });
}

// The readers of a blocking pipe go away in the middle of a write. The kernel
// sends SIGPIPE, although the call returns how much there was room for.
TEST_P(FDTest, SigpipeAfterAPartOfAWriteDoesNotArrive) {
  Run([] {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    File in(ends[0]);
    auto out = Open(File(ends[1]), FdKind::kFile);
    const std::string data(1 << 20, 'x');
    sync::WaitGroup wg;
    wg.Go([&] {
      const IoResult r = out->write(data.data(), data.size());
      EXPECT_EQ(r.err, EPIPE);
      EXPECT_GE(r.n, 4096u);
      EXPECT_LT(r.n, data.size());
    });
    char buf[4096];
    EXPECT_EQ(blocking([&] { return ::read(in.fd(), buf, sizeof(buf)); }),
              ssize_t{sizeof(buf)});
    EXPECT_TRUE(EventuallyParked("syscall", 1));
    in = File();
    wg.Wait();
  });
}

TEST_P(FDTest, AResetEndsASleepingWriter) {
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
        // All of it has been read before there is more.
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
    JoinAll(threads);
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
      // The same steps as in api/: connect, register, wait.
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
    {
      const NoDescriptors none;
      for (int i = 0; i < 3; i++) EXPECT_EQ(accept(), EMFILE);
    }
    // The connection is still there, though its edge has come and gone.
    EXPECT_EQ(accept(), 0);
    File conn(fd);
  });
}

}  // namespace
}  // namespace gump::testing
