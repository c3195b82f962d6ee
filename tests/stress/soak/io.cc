// Trades with descriptors: connections, pipes, files, and system calls that are
// not declared.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/os.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/stress/soak/soak.h"

namespace gump::soak {
namespace {

// Letter goes over a connection. It holds the tag of the connection, its
// number, and its size. Its bytes follow from these, and have a checksum.
struct Letter {
  uint64_t tag;
  uint64_t seq;
  uint64_t size;
  uint64_t check;
};

uint64_t CheckOf(const Letter& l, std::string_view body) {
  uint64_t sum = Checksum(l.tag ^ Checksum(l.seq ^ Checksum(l.size)));
  for (const char c : body) {
    sum = sum * 31 + static_cast<unsigned char>(c);
  }
  return sum;
}

std::string Contents(uint64_t seed, size_t size) {
  Rng rng(seed);
  std::string s(size, '\0');
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = rng.Next();
    std::memcpy(s.data() + i, &word, std::min(sizeof(word), size - i));
  }
  return s;
}

std::string Sealed(uint64_t tag, uint64_t seq, size_t size) {
  Letter l = {tag, seq, size, 0};
  const std::string body = Contents(tag + seq, size);
  l.check = CheckOf(l, body);
  return std::string(reinterpret_cast<const char*>(&l), sizeof(l)) + body;
}

// Inbox takes a stream apart.
class Inbox {
 public:
  explicit Inbox(uint64_t tag) : tag_(tag) {}
  void Add(std::string_view bytes) {
    in_ += bytes;
    Letter l;
    while (in_.size() >= sizeof(l)) {
      std::memcpy(&l, in_.data(), sizeof(l));
      ASSERT_EQ(l.tag, tag_) << "a letter of another connection";
      ASSERT_EQ(l.seq, letters_);
      if (in_.size() < sizeof(l) + l.size) return;
      ASSERT_EQ(l.check,
                CheckOf(l, std::string_view(in_).substr(sizeof(l), l.size)));
      in_.erase(0, sizeof(l) + l.size);
      letters_++;
    }
  }
  uint64_t letters() const { return letters_; }
  bool Empty() const { return in_.empty(); }

 private:
  const uint64_t tag_;
  std::string in_;
  uint64_t letters_ = 0;
};

// Connections to a server that returns all that it gets, over TCP and over Unix
// sockets. Some end in order, some are closed under their reader.
class EchoTrade : public Trade {
 public:
  EchoTrade() {
    static std::atomic<uint64_t> names = 0;
    const std::string name = "@gump-soak-" + std::to_string(getpid()) + "-" +
                             std::to_string(names++);
    Serve(net::Listen("tcp", "127.0.0.1:0"));
    Serve(net::Listen("unix", name));
  }

  void Piece(Rng& rng) override {
    const net::Addr where =
        listeners_[rng.Below(listeners_.size())].LocalAddr();
    absl::StatusOr<net::Conn> c = net::Dial(where.Network(), where.String());
    ASSERT_TRUE(c.ok()) << c.status();
    const uint64_t tag = rng.Next();
    const uint64_t letters = rng.Below(20);
    const bool torn = rng.OneIn(4);
    const bool hurried = rng.OneIn(2);
    Inbox inbox(tag);
    sync::WaitGroup wg;
    wg.Go([&, seed = rng.Next()] { Write(*c, tag, letters, torn, seed); });
    if (hurried) wg.Go([&, seed = rng.Next()] { Hurry(*c, seed); });
    if (torn) {
      wg.Go([&, d = Short(rng)] {
        time::Sleep(d);
        EXPECT_TRUE(c->Close().ok());
      });
    }
    Read(*c, inbox, torn);
    wg.Wait();
    if (!torn) {
      EXPECT_EQ(inbox.letters(), letters);
      EXPECT_TRUE(inbox.Empty());
      EXPECT_TRUE(c->Close().ok());
    }
  }

  void Close() override {
    for (const net::Listener& l : listeners_) EXPECT_TRUE(l.Close().ok());
    servers_.Wait();
  }

 private:
  void Serve(const absl::StatusOr<net::Listener>& l) {
    ASSERT_TRUE(l.ok()) << l.status();
    listeners_.push_back(*l);
    servers_.Go([this, l = *l] {
      for (;;) {
        const absl::StatusOr<net::Conn> c = l.Accept();
        if (!c.ok()) {
          EXPECT_EQ(c.status().code(), absl::StatusCode::kCancelled)
              << c.status();
          return;
        }
        servers_.Go([c = *c] { Echo(c); });
      }
    });
  }

  static void Echo(const net::Conn& c) {
    std::array<char, 4096> buf;
    for (;;) {
      const absl::StatusOr<size_t> n = c.Read(absl::MakeSpan(buf));
      if (!n.ok() || *n == 0) return;  // the last handle closes
      if (!c.Write({buf.data(), *n}).ok()) return;
    }
  }

  static void Write(const net::Conn& c, uint64_t tag, uint64_t letters,
                    bool torn, uint64_t seed) {
    Rng rng(seed);
    for (uint64_t seq = 0; seq < letters; seq++) {
      const size_t size = rng.Below(rng.OneIn(16) ? 100'000 : 2000);
      const absl::StatusOr<size_t> n = c.Write(Sealed(tag, seq, size));
      if (!n.ok()) {
        EXPECT_TRUE(torn) << n.status();
        return;
      }
      Pause(rng);
    }
    const absl::Status s = c.CloseWrite();
    EXPECT_TRUE(s.ok() || torn) << s;
  }

  // Hurry sets deadlines under the reader. In the end there is none.
  static void Hurry(const net::Conn& c, uint64_t seed) {
    Rng rng(seed);
    for (uint64_t n = rng.Below(10); n > 0; n--) {
      if (!c.SetReadDeadline(absl::Now() + absl::FromChrono(Short(rng))).ok())
        return;
      Pause(rng);
    }
    (void)c.SetReadDeadline(absl::InfiniteFuture());  // unless it was closed
  }

  static void Read(const net::Conn& c, Inbox& inbox, bool torn) {
    std::array<char, 3000> buf;
    for (;;) {
      const absl::StatusOr<size_t> n = c.Read(absl::MakeSpan(buf));
      if (n.ok()) {
        if (*n == 0) return;
        inbox.Add({buf.data(), *n});
      } else if (n.status().code() != absl::StatusCode::kDeadlineExceeded) {
        EXPECT_TRUE(torn) << n.status();
        EXPECT_EQ(n.status().code(), absl::StatusCode::kCancelled);
        return;
      } else {
        runtime::Gosched();  // until Hurry takes the deadline away
      }
    }
  }

  std::vector<net::Listener> listeners_;
  sync::WaitGroup servers_;
};

// A read that waits ends for one reason, and its result gives that reason.
class WaitTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    if (rng.OneIn(2)) {
      auto p = net::Pipe();
      ASSERT_TRUE(p.ok()) << p.status();
      Wait(rng, p->first, p->second);
    } else {
      auto p = os::Pipe();
      ASSERT_TRUE(p.ok()) << p.status();
      Wait(rng, p->first, p->second);
    }
  }

 private:
  enum How : uint8_t { kClosed, kPeerClosed, kTimedOut, kWritten };

  template <class End>
  static void Wait(Rng& rng, const End& in, const End& out) {
    const auto how = static_cast<How>(rng.Below(4));
    const uint64_t word = rng.Next();
    sync::WaitGroup wg;
    wg.Go([&] {
      std::array<char, sizeof(word)> buf;
      const absl::StatusOr<size_t> n = in.Read(absl::MakeSpan(buf));
      switch (how) {
        case kClosed:
          EXPECT_EQ(n.status().code(), absl::StatusCode::kCancelled);
          break;
        case kPeerClosed:
          EXPECT_EQ(n.value_or(1), 0u);
          break;
        case kTimedOut:
          EXPECT_EQ(n.status().code(), absl::StatusCode::kDeadlineExceeded);
          break;
        case kWritten:
          ASSERT_EQ(n.value_or(0), sizeof(word));
          EXPECT_EQ(std::memcmp(buf.data(), &word, sizeof(word)), 0);
          break;
      }
    });
    Pause(rng);
    switch (how) {
      case kClosed:
        EXPECT_TRUE(in.Close().ok());
        break;
      case kPeerClosed:
        EXPECT_TRUE(out.Close().ok());
        break;
      case kTimedOut:
        EXPECT_TRUE(
            in.SetReadDeadline(absl::Now() + absl::FromChrono(Short(rng)))
                .ok());
        break;
      case kWritten:
        EXPECT_TRUE(
            out.Write({reinterpret_cast<const char*>(&word), sizeof(word)})
                .ok());
        break;
    }
    wg.Wait();
  }
};

// Files hold the data that were written, at every place and by every worker.
class FileTrade : public Trade {
 public:
  FileTrade() {
    std::string name = std::filesystem::temp_directory_path() / "soakXXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }

  void Piece(Rng& rng) override {
    const std::string path = folder_ / std::to_string(files_++);
    const std::string want = Contents(rng.Next(), rng.Below(60'000));
    {
      const absl::StatusOr<os::File> f = os::Create(path);
      ASSERT_TRUE(f.ok()) << f.status();
      WriteParts(rng, *f, want);
      for (int i = 0; i < 3; i++) {
        const size_t from = rng.Below(want.size() + 1);
        std::string part(rng.Below(8000), '\0');
        const absl::StatusOr<size_t> n =
            f->ReadAt(absl::MakeSpan(part), static_cast<int64_t>(from));
        ASSERT_TRUE(n.ok()) << n.status();
        EXPECT_EQ(part.substr(0, *n), want.substr(from, part.size()));
      }
    }
    const absl::StatusOr<std::string> got = os::ReadFile(path);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(*got == want);
    EXPECT_EQ(::unlink(path.c_str()), 0);
  }

  void Close() override {
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "files are left";
  }

 private:
  static void WriteParts(Rng& rng, const os::File& f, const std::string& all) {
    sync::WaitGroup wg;
    for (size_t from = 0, size; from < all.size(); from += size) {
      size = std::min(1 + rng.Below(30'000), all.size() - from);
      wg.Go([&f, from, part = std::string_view(all).substr(from, size)] {
        const absl::StatusOr<size_t> n =
            f.WriteAt(part, static_cast<int64_t>(from));
        EXPECT_EQ(n.value_or(0), part.size()) << n.status();
      });
    }
    wg.Wait();
  }

  std::filesystem::path folder_;
  std::atomic<uint64_t> files_ = 0;
};

// Calls that block in the kernel, declared or not.
class KernelTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    if (rng.OneIn(3)) {
      ::usleep(static_cast<useconds_t>(rng.Below(3000)));
      return;
    }
    std::array<int, 2> ends;
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const uint64_t word = rng.Next();
    sync::WaitGroup wg;
    wg.Go([&, d = Short(rng)] {
      time::Sleep(d);
      EXPECT_EQ(::write(ends[1], &word, sizeof(word)), ssize_t{sizeof(word)});
    });
    uint64_t got = 0;
    const auto read = [&] { return ::read(ends[0], &got, sizeof(got)); };
    EXPECT_EQ(rng.OneIn(2) ? read() : blocking(read), ssize_t{sizeof(got)});
    EXPECT_EQ(got, word);
    wg.Wait();
    for (const int fd : ends) EXPECT_EQ(::close(fd), 0);
  }
};

constexpr TradeMaker kTrades[] = {
    MakeTrade<EchoTrade>,
    MakeTrade<WaitTrade>,
    MakeTrade<FileTrade>,
    MakeTrade<KernelTrade>,
};

}  // namespace

std::span<const TradeMaker> IoTrades() { return kTrades; }

}  // namespace gump::soak
