// Profiles, as a reader of their own checks them, and `go tool pprof` where it
// is installed. Tests with a name of Go's are those of
// runtime/pprof/pprof_test.go.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "api/pprof/proto.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/status.h"
#include "gump/sync/mutex.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/parked.h"
#include "tests/testing/profile_reader.h"
#include "tests/testing/with_gomaxprocs.h"

// Functions whose names the tests look for in profiles.
namespace proftest {

__attribute__((noinline)) void Receiver(gump::chan<int> c) {
  c.Recv();
  asm volatile("");
}

__attribute__((noinline)) void Sleeper(int fd) {
  char b;
  gump::blocking([&] { return ::read(fd, &b, 1); });
  asm volatile("");
}

}  // namespace proftest

namespace gump {
namespace {

using testing::ByGo;
using testing::GoTool;
using testing::Profile;
using testing::ReadProfile;
using testing::TempFile;

std::string Written(std::string_view name, int debug = 0) {
  const TempFile f;
  const absl::Status s = pprof::WriteProfile(name, f.fd(), debug);
  EXPECT_TRUE(s.ok()) << s;
  return f.Read();
}

Profile Read(std::string_view name) {
  Profile p = ReadProfile(Written(name));
  EXPECT_EQ(p.error, "");
  return p;
}

using ProfileTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(ProfileTest);

// Parked starts goroutines that wait in Receiver, and ends them.
class Parked {
 public:
  explicit Parked(int n) {
    for (int i = 0; i < n; i++) {
      wg_.Go([c = c_] { proftest::Receiver(c); });
    }
  }
  void Await(size_t n) {
    EXPECT_TRUE(testing::Eventually([n] {
      const std::string all = runtime::Stack(true);
      size_t found = 0;
      for (size_t at = 0;
           (at = all.find("[chan receive", at)) != std::string::npos; at++) {
        found++;
      }
      return found >= n;
    }));
  }
  ~Parked() {
    c_.Close();
    wg_.Wait();
  }

 private:
  chan<int> c_ = make_chan<int>();
  sync::WaitGroup wg_;
};

TEST_P(ProfileTest, TestGoroutineCounts) {
  Run([] {
    constexpr int kPlain = 100;
    constexpr int kLabelled = 90;
    Parked plain(kPlain);
    std::optional<Parked> self;
    pprof::Do(context::Background(), {{"self-label", "x y"}, {"a", "\"1\""}},
              [&](context::Context) { self.emplace(kLabelled); });
    plain.Await(kPlain + kLabelled);

    const Profile p = Read("goroutine");
    EXPECT_EQ(p.types, std::vector<std::string>{"goroutine count"});
    EXPECT_EQ(p.period_type, "goroutine count");
    EXPECT_EQ(p.period, 1);
    EXPECT_GT(p.time_nanos, 0);
    EXPECT_EQ(p.Sum("proftest::Receiver"), kPlain + kLabelled);
    EXPECT_EQ(
        p.Sum("proftest::Receiver", 0, {{"self-label", "x y"}, {"a", "\"1\""}}),
        kLabelled);
    ASSERT_GE(p.samples.size(), 3u);
    EXPECT_GE(p.samples[0].values[0], p.samples[1].values[0]);
    EXPECT_EQ(p.Sum("WriteProfile"), 1);  // the caller
    EXPECT_GE(p.Sum("gump::{anonymous}::"), kPlain);
    EXPECT_EQ(p.Sum("(anonymous namespace)"), 0);

    const std::string text = Written("goroutine", 1);
    EXPECT_EQ(text.find("goroutine profile: total "), 0u);
    const size_t first = text.find("\n100 @ 0x");
    const size_t second = text.find("\n90 @ 0x");
    EXPECT_NE(first, std::string::npos) << text;
    EXPECT_NE(second, std::string::npos) << text;
    EXPECT_LT(first, second);
    EXPECT_NE(text.find("\n# labels: {\"a\":\"\\\"1\\\"\", \"self-label\":\"x "
                        "y\"}\n#\t0x"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("\tproftest::Receiver\n"), std::string::npos) << text;

    const std::string dump = Written("goroutine", 2);
    EXPECT_EQ(dump.find("goroutine "), 0u);
    EXPECT_NE(dump.find("{a: \"\\\"1\\\"\", \"self-label\": \"x y\"}:\n"),
              std::string::npos);
  });
}

TEST_P(ProfileTest, WaysToOneWaitCountAsOneStack) {
  Run([] {
    Parked plain(3);
    plain.Await(3);
    // From now on the wait of a receive has a frame more.
    pprof::SetBlockProfileRate(1);
    Parked profiled(4);
    profiled.Await(3 + 4);
    pprof::SetBlockProfileRate(0);

    const std::string text = Written("goroutine", 1);
    EXPECT_NE(text.find("\n7 @ 0x"), std::string::npos) << text;
  });
}

TEST_P(ProfileTest, GoroutineInADeclaredCallCountsAtItsStart) {
  Run([] {
    std::array<int, 2> ends;
    ASSERT_EQ(pipe(ends.data()), 0);
    sync::WaitGroup wg;
    pprof::Do(context::Background(), {{"k", "sleeper"}}, [&](context::Context) {
      wg.Go([&] { proftest::Sleeper(ends[0]); });
    });
    EXPECT_TRUE(testing::Eventually([] {
      return runtime::Stack(true).find("[syscall") != std::string::npos;
    }));
    int64_t all = 0;
    for (const Profile::Sample& s : Read("goroutine").samples) {
      all += s.values[0];
    }
    EXPECT_EQ(all, 2);
    close(ends[1]);
    wg.Wait();
    close(ends[0]);
  });
}

TEST_P(ProfileTest, ThreadcreateCountsTheThreadsOfTheLibrary) {
  Run([] {
    const Profile p = Read("threadcreate");
    EXPECT_EQ(p.types, std::vector<std::string>{"threadcreate count"});
    EXPECT_EQ(p.Sum("gump::rt::runMain"), 1);
    EXPECT_GE(p.Sum("gump::rt::mstart"), 1);
    const std::string text = Written("threadcreate", 1);
    EXPECT_EQ(text.find("threadcreate profile: total "), 0u);
  });
}

TEST(ProfileFileTest, MappingsHaveBuildIds) {
  const Profile p = Read("goroutine");
  ASSERT_FALSE(p.mappings.empty());
  std::array<char, 4096> exe{};
  ASSERT_GT(readlink("/proc/self/exe", exe.data(), exe.size() - 1), 0);
  EXPECT_EQ(p.mappings[0].file, exe.data());
  for (const Profile::Mapping& m : p.mappings) {
    EXPECT_TRUE(m.has_functions);
    if (m.file.find("libc.so") != std::string::npos) {
      EXPECT_GE(m.build_id.size(), 16u) << m.file;
    }
  }
}

TEST(ProfileFileTest, MapsAreParsed) {
  const auto all = internal::ParseMaps(
      "55d0-55f0 r-xp 00001000 fd:00 123    /usr/bin/a b (deleted)\n"
      "6000-7000 rw-p 00000000 00:00 0\n"
      "7000-8000 r-xp 00000000 00:00 0\n"
      "nonsense\n"
      "9000-a000 r-xp 00000000 00:00 0      [vdso]");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].start, 0x55d0u);
  EXPECT_EQ(all[0].limit, 0x55f0u);
  EXPECT_EQ(all[0].offset, 0x1000u);
  EXPECT_EQ(all[0].file, "/usr/bin/a b (deleted)");
  EXPECT_EQ(all[1].file, "[vdso]");
}

TEST(ProfileFileTest, LongDataTakesSeveralBlocks) {
  // 4 is the size of the header's extra; the reader checks sizes and CRC.
  std::string proto = "\x32";  // an empty first string, then a long one
  proto.push_back('\0');
  const std::string text(200'000, 'x');
  proto += "\x32\xc0\x9a\x0c" + text;
  const Profile p = ReadProfile(internal::Gzip(proto));
  EXPECT_EQ(p.error, "no sample type");  // everything before that was right
}

TEST(ProfileFileTest, UnknownNameIsNotFound) {
  const TempFile f;
  const absl::Status s = pprof::WriteProfile("heap\"", f.fd());
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(s.message(), "pprof: unknown profile \"heap\\\"\"");
  EXPECT_EQ(f.Read(), "");
}

TEST(ProfileFileTest, ErrorsOfTheDescriptorAreStatuses) {
  EXPECT_EQ(Errno(pprof::WriteProfile("goroutine", -1)), EBADF);
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  const absl::Status broken = pprof::WriteProfile("goroutine", ends[1]);
  EXPECT_EQ(Errno(broken), EPIPE);
  EXPECT_EQ(broken.message(), "write profile: broken pipe");
  EXPECT_EQ(fcntl(ends[1], F_GETFD), 0);  // still open
  close(ends[1]);
  EXPECT_EQ(Errno(pprof::WriteProfile("goroutine", ends[1])), EBADF);
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  EXPECT_EQ(Errno(pprof::WriteProfile("goroutine", full)), ENOSPC);
  close(full);
  const int read_only = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(Errno(pprof::WriteProfile("goroutine", read_only)), EBADF);
  close(read_only);
}

// A pipe that is full makes the caller wait, also if it is non-blocking.
TEST_P(ProfileTest, SlowReaderGetsTheWholeProfile) {
  Run([] {
    auto pipe = os::Pipe();
    ASSERT_TRUE(pipe.ok());
    const int fd = fcntl(pipe->second.Fd(), F_DUPFD_CLOEXEC, 0);
    ASSERT_GE(fd, 0);
    ASSERT_TRUE(pipe->second.Close().ok());
    sync::WaitGroup wg;
    wg.Go([fd] {
      EXPECT_TRUE(pprof::WriteProfile("goroutine", fd).ok());
      EXPECT_TRUE(pprof::WriteProfile("unknown", fd).code() ==
                  absl::StatusCode::kNotFound);
      close(fd);
    });
    std::string all;
    std::array<char, 1000> part;
    for (;;) {
      const auto n = pipe->first.Read(absl::MakeSpan(part));
      ASSERT_TRUE(n.ok());
      if (*n == 0) break;
      all.append(part.data(), *n);
      runtime::Gosched();
    }
    wg.Wait();
    EXPECT_EQ(ReadProfile(all).error, "");
  });
}

TEST(ProfileThreadTest, PlainThreadsWriteProfilesBeforeAndAfterRun) {
  std::thread([] {
    (void)Read("goroutine");
    (void)Read("threadcreate");
    testing::RunWith(
        2, [] { std::thread([] { (void)Read("goroutine"); }).join(); });
    (void)Read("goroutine");
  }).join();
}

// With a sanitizer a profile among goroutines that compute takes long.
constexpr int kReads = rt::kSanitizerBuild ? 3 : 10;

// Goroutines run, park and end while profiles are taken by several others.
TEST_P(ProfileTest, TestGoroutineProfileConcurrency) {
  Run([] {
    std::atomic<bool> stop{false};
    sync::WaitGroup load;
    for (int i = 0; i < 4; i++) {
      load.Go([&stop, i] {
        while (!stop) {
          pprof::Do(context::Background(), {{"i", std::to_string(i)}},
                    [](context::Context) {
                      sync::WaitGroup wg;
                      chan<int> c = make_chan<int>();
                      wg.Go([c] { c.Send(1); });
                      wg.Go([c] { (void)c.Recv(); });
                      wg.Wait();
                    });
        }
      });
    }
    sync::WaitGroup wg;
    for (int i = 0; i < 3; i++) {
      wg.Go([] {
        for (int k = 0; k < kReads; k++) {
          EXPECT_GE(Read("goroutine").Sum(""), 5);
        }
      });
    }
    wg.Wait();
    stop = true;
    load.Wait();
  });
}

// A goroutine that sets its labels again and again appears with one set of
// them, never with a torn one.
TEST_P(ProfileTest, TestGoroutineProfileLabelRace) {
  Run([] {
    std::atomic<bool> stop{false};
    sync::WaitGroup load;
    for (int i = 0; i < 10; i++) {
      load.Go([&stop, i] {
        for (int k = 0; !stop; k++) {
          const std::string v = std::to_string(i) + "/" + std::to_string(k);
          pprof::Do(context::Background(), {{"a", v}, {"b", v}},
                    [](context::Context) { runtime::Gosched(); });
        }
      });
    }
    for (int k = 0; k < 2 * kReads; k++) {
      for (const Profile::Sample& s : Read("goroutine").samples) {
        if (s.labels.empty()) continue;
        ASSERT_EQ(s.labels.size(), 2u);
        EXPECT_EQ(s.labels.at("a"), s.labels.at("b"));
      }
    }
    stop = true;
    load.Wait();
  });
}

TEST(GoToolTest, PprofReadsTheProfiles) {
  if (GoTool().empty()) {
    GTEST_SKIP() << "no Go command is installed: set GUMP_TEST_GO, or PATH";
  }
  testing::RunWith(2, [] {
    const TempFile goroutine;
    const TempFile threads;
    {
      std::optional<Parked> parked;
      pprof::Do(context::Background(), {{"tenant", "acme"}},
                [&](context::Context) { parked.emplace(7); });
      parked->Await(7);
      ASSERT_TRUE(pprof::WriteProfile("goroutine", goroutine.fd()).ok());
      ASSERT_TRUE(pprof::WriteProfile("threadcreate", threads.fd()).ok());
    }
    pprof::SetBlockProfileRate(1);
    pprof::SetMutexProfileFraction(1);
    sync::Mutex mu;
    mu.Lock();
    sync::WaitGroup wg;
    wg.Go([&mu] {
      mu.Lock();
      mu.Unlock();
    });
    EXPECT_TRUE(testing::EventuallyParked("sync.Mutex.Lock", 1));
    mu.Unlock();
    wg.Wait();
    pprof::SetBlockProfileRate(0);
    pprof::SetMutexProfileFraction(0);
    for (const char* name : {"block", "mutex"}) {
      const TempFile f;
      ASSERT_TRUE(pprof::WriteProfile(name, f.fd()).ok());
      const std::string delays = ByGo("-top -sample_index=delay", f.path());
      EXPECT_NE(delays.find("Type: delay"), std::string::npos) << delays;
      EXPECT_NE(delays.find("gump::sync::Mutex::"), std::string::npos)
          << delays;
    }

    const std::string top = ByGo("-top", goroutine.path());
    EXPECT_NE(top.find("Type: goroutine"), std::string::npos) << top;
    EXPECT_NE(top.find("proftest::Receiver"), std::string::npos) << top;
    const std::string raw = ByGo("-raw", goroutine.path());
    EXPECT_NE(raw.find("tenant:[acme]"), std::string::npos) << raw;
    const std::string traces = ByGo("-traces", goroutine.path());
    EXPECT_NE(traces.find("acme"), std::string::npos) << traces;
    const std::string some =
        ByGo("-top -tagfocus=tenant=acme", goroutine.path());
    EXPECT_NE(some.find("7 "), std::string::npos) << some;
    EXPECT_NE(ByGo("-top", threads.path()).find("gump::rt::mstart"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace gump
