// Descriptors that come and go. Their numbers and PollDescs are used again at
// once, under readers, writers, deadlines and closers. No byte, edge, deadline
// or close ever reaches another owner.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/mutex.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "netpoll/fd.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/netpoll/fd_testing.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/stress/stress_testing.h"
#include "tests/testing/known_thread.h"
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
using rt::PollMode;

// Listener hands out connected TCP sockets.
class Listener {
 public:
  Listener() : l_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    addr_.sin_family = AF_INET;
    addr_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof(addr_);
    EXPECT_EQ(::bind(l_.fd(), sa(), len), 0);
    EXPECT_EQ(::listen(l_.fd(), 128), 0);
    EXPECT_EQ(::getsockname(l_.fd(), sa(), &len), 0);
  }
  // Connect serves one caller at a time, so that both ends are of one
  // connection.
  std::pair<File, File> Connect() {
    std::lock_guard<sync::Mutex> hold(mu_);
    File a(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(a.fd(), sa(), sizeof(addr_)), 0);
    File b(::accept4(l_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    EXPECT_GE(b.fd(), 0);
    EXPECT_EQ(::fcntl(a.fd(), F_SETFL, O_NONBLOCK), 0);
    // Avoid TIME_WAIT, because there are more connections than ports.
    const linger now{1, 0};
    EXPECT_EQ(::setsockopt(a.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof(now)),
              0);
    return {std::move(a), std::move(b)};
  }

 private:
  sockaddr* sa() { return reinterpret_cast<sockaddr*>(&addr_); }
  File l_;
  sockaddr_in addr_{};
  sync::Mutex mu_;
};

// Record goes over a connection: the connection's tag, and a number.
struct Record {
  uint64_t tag;
  uint64_t seq;
};

std::atomic<uint64_t> tags = 0;

struct Counts {
  std::atomic<int64_t> connections = 0;
  std::atomic<int64_t> records = 0;
  std::atomic<int64_t> timeouts = 0;
  std::atomic<int64_t> closes = 0;
  std::atomic<int64_t> strangers = 0;  // records of another connection
};

// Reader reads records until the end, and checks that they are of our tag.
void Reader(FD* fd, uint64_t tag, uint64_t seed, Counts* counts) {
  Rng rng(seed);
  Record in[16];
  uint64_t seq = 0;
  size_t have = 0;  // bytes
  for (;;) {
    const IoResult r = fd->read(reinterpret_cast<char*>(in) + have,
                                1 + rng.Below(sizeof(in) - have));
    if (r.err == kErrTimeout) {
      counts->timeouts++;
      const int err = fd->setDeadline(0, PollMode::kRead);
      if (err == 0) continue;
      ASSERT_EQ(err, kErrClosing);
      return;
    }
    if (r.err != 0) {
      ASSERT_TRUE(r.err == kErrClosing || r.err == ECONNRESET) << r.err;
      return;
    }
    if (r.n == 0) return;
    have += r.n;
    const size_t whole = have / sizeof(Record);
    for (size_t i = 0; i < whole; i++) {
      if (in[i].tag != tag) counts->strangers++;
      ASSERT_EQ(in[i].tag, tag) << "a record of another connection";
      ASSERT_EQ(in[i].seq, seq++);
      counts->records++;
    }
    have -= whole * sizeof(Record);
    std::copy_n(reinterpret_cast<const char*>(in + whole), have,
                reinterpret_cast<char*>(in));
  }
}

// Writer writes a random number of records, or until a write fails.
void Writer(FD* fd, uint64_t tag, uint64_t seed) {
  Rng rng(seed);
  const uint64_t total = rng.Below(200);
  for (uint64_t seq = 0; seq < total; seq++) {
    const Record out = {tag, seq};
    // (A write that times out in the middle of a record ends the stream.)
    const IoResult r = fd->write(&out, sizeof(out));
    if (r.err != 0) {
      ASSERT_TRUE(r.err == kErrClosing || r.err == kErrTimeout ||
                  r.err == EPIPE || r.err == ECONNRESET)
          << r.err;
      return;
    }
    ASSERT_EQ(r.n, sizeof(out));
    if (rng.OneIn(16)) runtime::Gosched();
  }
}

// Tamper sets deadlines, and closes in the end.
void Tamper(FD* fd, uint64_t seed, Counts* counts) {
  Rng rng(seed);
  for (uint64_t i = rng.Below(10); i > 0; i--) {
    const auto mode = static_cast<PollMode>(1 + rng.Below(3));
    const int64_t when =
        rng.OneIn(3) ? 0 : nanotime() + static_cast<int64_t>(rng.Below(30'000));
    if (fd->setDeadline(when, mode) != 0) return;
    if (rng.OneIn(2)) {
      time::Sleep(std::chrono::nanoseconds(rng.Below(20'000)));
    } else {
      runtime::Gosched();
    }
  }
  if (rng.OneIn(4)) {
    const int err = fd->setDeadline(0, PollMode::kBoth);
    ASSERT_TRUE(err == 0 || err == kErrClosing);
    return;
  }
  const int err = fd->close();
  ASSERT_TRUE(err == 0 || err == kErrClosing) << err;
  counts->closes++;
}

// Connection is the life of one connection: both ends read, write and are
// tampered with.
void Connection(std::pair<File, File> ends, Rng& rng, Counts* counts) {
  const uint64_t tag = ++tags;
  auto a = Open(std::move(ends.first), FdKind::kStream);
  auto b = Open(std::move(ends.second), FdKind::kStream);
  counts->connections++;
  // Each direction has a tag of its own.
  const uint64_t there = tag << 1;
  const uint64_t back = there | 1;
  sync::WaitGroup wg;
  wg.Go([&, seed = rng.Next()] { Reader(b.get(), there, seed, counts); });
  if (rng.OneIn(2)) {
    wg.Go([&, seed = rng.Next()] { Reader(a.get(), back, seed, counts); });
    wg.Go([&, seed = rng.Next()] { Writer(b.get(), back, seed); });
  }
  if (rng.OneIn(2)) {
    wg.Go([&, seed = rng.Next()] { Tamper(a.get(), seed, counts); });
  }
  if (rng.OneIn(2)) {
    wg.Go([&, seed = rng.Next()] { Tamper(b.get(), seed, counts); });
  }
  Writer(a.get(), there, rng.Next());
  if (rng.OneIn(2)) {
    (void)a->close();
  } else {
    (void)b->close();
    // A goroutine that still reads a finds the end.
  }
  wg.Wait();
}

TEST(NetpollStressTest, NoByteReachesAnotherConnection) {
  constexpr int kGoroutines = 64;
  Counts counts;
  gump::Run([&] {
    Listener listener;
    StressLoop([&](Rng& rng) {
      RandomProcs(rng);
      InGoroutines(rng, kGoroutines, [&](Rng& own) {
        for (int k = 0; k < (rt::kSanitizerBuild ? 2 : 10); k++) {
          if (own.OneIn(4)) {
            Connection(listener.Connect(), own, &counts);
          } else {
            Ends e;
            Connection({std::move(e.out), std::move(e.in)}, own, &counts);
          }
        }
      });
    });
  });
  EXPECT_EQ(counts.strangers, 0);
  EXPECT_GT(counts.records, 0);
  std::printf("%lld connections, %lld records, %lld timeouts, %lld closes\n",
              static_cast<long long>(counts.connections),
              static_cast<long long>(counts.records),
              static_cast<long long>(counts.timeouts),
              static_cast<long long>(counts.closes));
}

TEST(NetpollStressTest, ThreadsAndGoroutinesPassOneDescriptorAround) {
  gump::Run([] {
    StressLoop([](Rng& rng) {
      RandomProcs(rng);
      Ends e;
      auto out = Open(std::move(e.out), FdKind::kStream);
      auto in = Open(std::move(e.in), FdKind::kStream);
      std::atomic<int64_t> sent = 0;
      std::atomic<int64_t> received = 0;
      const auto reader = [&] {
        uint64_t record;
        while (out->read(&record, sizeof(record)).n == sizeof(record)) {
          received += static_cast<int64_t>(record);
        }
      };
      const auto writer = [&](uint64_t seed) {
        Rng own(seed);
        for (int i = 0; i < 100; i++) {
          const uint64_t record = own.Below(1000);
          ASSERT_EQ(in->write(&record, sizeof(record)).n, sizeof(record));
          sent += static_cast<int64_t>(record);
        }
      };
      sync::WaitGroup readers;
      sync::WaitGroup writers;
      std::vector<std::thread> threads;
      for (int i = 0; i < 3; i++) {
        readers.Go(reader);
        writers.Go([&, seed = rng.Next()] { writer(seed); });
      }
      threads.push_back(KnownThread(reader));
      std::thread t = KnownThread([&, seed = rng.Next()] { writer(seed); });
      writers.Wait();
      blocking([&] { t.join(); });
      ASSERT_EQ(in->close(), 0);
      readers.Wait();
      blocking([&] {
        for (auto& r : threads) r.join();
      });
      EXPECT_EQ(sent, received);
    });
  });
}

// Goroutines open each number, wait on it and close it, as fast as they can. A
// wake-up or a deadline of the old owner would end a wait early.
TEST(NetpollStressTest, NoEventReachesTheNextOwner) {
  gump::Run([] {
    StressLoop([](Rng& rng) {
      RandomProcs(rng);
      std::atomic<int64_t> cycles = 0;
      InGoroutines(rng, 16, [&](Rng& own) {
        for (int k = 0; k < (rt::kSanitizerBuild ? 20 : 200); k++) {
          Ends e;
          auto fd = Open(std::move(e.out), FdKind::kStream);
          const uint64_t what = own.Below(4);
          char c = 0;
          switch (what) {
            case 0: {  // data is left, and edges with it
              EXPECT_EQ(::write(e.in.fd(), "xx", 2), 2);
              EXPECT_EQ(fd->read(&c, 1).n, 1u);
              break;
            }
            case 1: {  // a deadline is left
              const int64_t when =
                  nanotime() + static_cast<int64_t>(own.Below(100'000));
              EXPECT_EQ(fd->setDeadline(when, PollMode::kBoth), 0);
              break;
            }
            case 2: {  // only the writer may end this read
              auto in = Open(std::move(e.in), FdKind::kStream);
              std::atomic<bool> written = false;
              sync::WaitGroup one;
              one.Go([&] {
                const IoResult r = fd->read(&c, 1);
                EXPECT_EQ(r.err, 0);
                EXPECT_EQ(r.n, 1u);
                EXPECT_TRUE(written);
              });
              for (uint64_t y = own.Below(5); y > 0; y--) runtime::Gosched();
              written = true;
              EXPECT_EQ(in->write("x", 1).n, 1u);
              one.Wait();
              break;
            }
            default: {  // the peer has gone
              e.in.Close();
              EXPECT_EQ(fd->read(&c, 1).n, 0u);
              break;
            }
          }
          EXPECT_EQ(fd->close(), 0);
          cycles++;
        }
      });
      EXPECT_GT(cycles, 0);
    });
  });
}

// ReadRecord reads one whole record. Returns false if the stream ended first,
// or with the error `ends`, if that is not 0.
bool ReadRecord(FD* fd, Record* to, int ends) {
  size_t have = 0;
  while (have < sizeof(*to)) {
    const IoResult r =
        fd->read(reinterpret_cast<char*>(to) + have, sizeof(*to) - have);
    if (r.err != 0) {
      EXPECT_EQ(r.err, ends);
      return false;
    }
    if (r.n == 0) return false;
    have += r.n;
  }
  return true;
}

// Cycle opens two descriptors, sends a record through each with the tag of this
// cycle, and closes them. rng decides in which state they are left.
void Cycle(Rng& rng, Counts* counts) {
  const uint64_t tag = ++tags;
  Ends e;
  auto a = Open(std::move(e.in), FdKind::kStream);
  auto b = Open(std::move(e.out), FdKind::kStream);
  const auto expect = [&](const Record& r, uint64_t seq) {
    if (r.tag != tag) counts->strangers++;
    EXPECT_EQ(r.tag, tag) << "a record of another cycle";
    EXPECT_EQ(r.seq, seq);
    counts->records++;
  };
  const auto send = [&](FD* fd, uint64_t seq) {
    const Record out = {tag, seq};
    EXPECT_EQ(fd->write(&out, sizeof(out)).n, sizeof(out));
  };
  const auto receive = [&](FD* fd, uint64_t seq) {
    Record in;
    const bool whole = ReadRecord(fd, &in, 0);
    EXPECT_TRUE(whole);
    if (whole) expect(in, seq);
  };
  sync::WaitGroup wg;
  switch (rng.Below(5)) {
    case 0:  // the reader waits
      wg.Go([&] { receive(b.get(), 0); });
      runtime::Gosched();
      send(a.get(), 0);
      send(b.get(), 1);
      receive(a.get(), 1);
      wg.Wait();
      break;
    case 1:  // data is left, both ways
      send(a.get(), 0);
      receive(b.get(), 0);
      send(a.get(), 1);
      send(b.get(), 2);
      break;
    case 2: {  // deadlines are left
      const auto soon = [&] {
        return nanotime() + 1'000'000 +
               static_cast<int64_t>(rng.Below(1'000'000));
      };
      send(a.get(), 0);
      receive(b.get(), 0);
      EXPECT_EQ(a->setDeadline(soon(), PollMode::kBoth), 0);
      EXPECT_EQ(b->setDeadline(soon(), PollMode::kRead), 0);
      break;
    }
    case 3:  // closed under a reader, which may be anywhere in its read
      wg.Go([&] {
        Record in;
        if (ReadRecord(b.get(), &in, kErrClosing)) expect(in, 0);
      });
      if (rng.OneIn(2)) runtime::Gosched();
      if (rng.OneIn(2)) send(a.get(), 0);
      break;
    default: {  // the peer goes first
      send(a.get(), 0);
      EXPECT_EQ(a->close(), 0);
      receive(b.get(), 0);
      Record in;
      EXPECT_FALSE(ReadRecord(b.get(), &in, 0));
      break;
    }
  }
  const int closed = a->close();
  EXPECT_TRUE(closed == 0 || closed == kErrClosing) << closed;
  if (rng.OneIn(2)) wg.Wait();  // for the end of the stream
  EXPECT_EQ(b->close(), 0);
  wg.Wait();
  counts->closes++;
}

// A minute or two are enough for a million cycles (GUMP_STRESS_SECONDS).
TEST(NetpollStressTest, EachCycleOfOpenAndCloseFindsItsOwnPayload) {
  constexpr int kGoroutines = 64;
  Counts counts;
  gump::Run([&] {
    StressLoop([&](Rng& rng) {
      RandomProcs(rng);
      InGoroutines(rng, kGoroutines, [&](Rng& own) {
        for (int k = 0; k < (rt::kSanitizerBuild ? 10 : 100); k++) {
          Cycle(own, &counts);
        }
      });
    });
  });
  EXPECT_EQ(counts.strangers, 0);
  EXPECT_GT(counts.records, 0);
  std::printf("%lld cycles, %lld records\n",
              static_cast<long long>(counts.closes),
              static_cast<long long>(counts.records));
}

}  // namespace
}  // namespace gump::testing
