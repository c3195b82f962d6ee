// Execution traces when the file, the memory or the process fails: the program
// goes on as without a trace, and what is in the file can be read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gump/gump.h"
#include "gump/trace.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/scoped_env.h"
#include "tests/testing/trace_file.h"
#include "tests/testing/with_gomaxprocs.h"
#include "tools/trace/format.h"

namespace gump {
namespace {

using testing::Cut;
using testing::ReadTrace;
using testing::ScopedEnv;
using testing::TempFile;
using testing::Work;
using trace_tool::Ev;

// ExpectTraces writes a trace and reads it.
void ExpectTraces() {
  const TempFile file;
  ASSERT_TRUE(trace::Start(file.fd()).ok());
  Work();
  trace::Stop();
  EXPECT_GE(ReadTrace(file.Contents()).count[Ev::kGoUnblock], 100u);
}

using TraceFailureTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TraceFailureTest);

// ---- The file ---------------------------------------------------------------

TEST_P(TraceFailureTest, StartOfADescriptorThatCannotBeWrittenFails) {
  Run([] {
    const int reads = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(reads, 0);
    for (const int fd : {-1, reads, 1'000'000}) {
      const absl::Status s = trace::Start(fd);
      EXPECT_FALSE(s.ok()) << fd;
      EXPECT_FALSE(trace::IsEnabled());
    }
    ::close(reads);
    ExpectTraces();
  });
}

TEST_P(TraceFailureTest, DescriptorThatIsClosedTooEarlyLosesTheTraceOnly) {
  Run([] {
    const TempFile file;
    const int fd = ::fcntl(file.fd(), F_DUPFD_CLOEXEC, 200);
    ASSERT_GE(fd, 200);
    ASSERT_TRUE(trace::Start(fd).ok());
    ::close(fd);
    Work();
    trace::Stop();
    EXPECT_EQ(file.Contents(), "");
    ExpectTraces();
  });
}

TEST_P(TraceFailureTest, PipeWithoutAReaderLosesTheTraceOnly) {
  Run([] {
    int fds[2];
    ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    ::close(fds[0]);
    ASSERT_TRUE(trace::Start(fds[1]).ok());
    Work();
    trace::Stop();  // no SIGPIPE
    ::close(fds[1]);
    const TempFile file;
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    trace::Stop();
    (void)ReadTrace(file.Contents());
  });
}

TEST_P(TraceFailureTest, FullDiskLosesTheTraceOnly) {
  Run([] {
    const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    ASSERT_GE(full, 0);
    ASSERT_TRUE(trace::Start(full).ok());
    Work();
    trace::Stop();
    ::close(full);
  });
}

TEST_P(TraceFailureTest, ChildOfForkWritesNoTrace) {
  const TempFile file;
  Run([&] {
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    const pid_t child = ::fork();
    if (child == 0) {
      const bool enabled = trace::IsEnabled();
      trace::Stop();
      ::_exit(enabled ? 1 : 0);
    }
    int status = 0;
    blocking([&] { ::waitpid(child, &status, 0); });
    EXPECT_EQ(status, 0);
    trace::Stop();
  });
  (void)ReadTrace(file.Contents());
}

// NarrowPipe is a pipe with room for less than a generation.
class NarrowPipe {
 public:
  NarrowPipe() {
    EXPECT_EQ(::pipe2(fds_, O_CLOEXEC), 0);
    EXPECT_GT(::fcntl(fds_[1], F_SETPIPE_SZ, 4096), 0);
  }
  ~NarrowPipe() {
    ::close(fds_[0]);
    CloseEnd();
  }
  NarrowPipe(const NarrowPipe&) = delete;
  NarrowPipe& operator=(const NarrowPipe&) = delete;

  int end() const { return fds_[1]; }
  void CloseEnd() {
    if (fds_[1] >= 0) ::close(fds_[1]);
    fds_[1] = -1;
  }
  int Filled() const {
    int n = 0;
    EXPECT_EQ(::ioctl(fds_[0], FIONREAD, &n), 0);
    return n;
  }
  // Returns what arrives until the other end is closed.
  std::string ReadAll() const {
    std::string all;
    char buf[4096];
    for (ssize_t n; (n = ::read(fds_[0], buf, sizeof(buf))) > 0;) {
      all.append(buf, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  int fds_[2] = {-1, -1};
};

TEST_P(TraceFailureTest, MainEndsAlthoughAPipeTakesNoMore) {
  NarrowPipe pipe;
  Run([&] {
    ASSERT_TRUE(trace::Start(pipe.end()).ok());
    while (pipe.Filled() == 0) Work();  // until a generation is being written
  });
  std::string all;
  std::thread reader([&] { all = pipe.ReadAll(); });
  trace::Stop();
  pipe.CloseEnd();
  reader.join();
  EXPECT_GE(ReadTrace(all).generations, 2u);
  Run([] { ExpectTraces(); });
}

// ---- The process ------------------------------------------------------------

TEST_P(TraceFailureTest, MainMayEndWhileGoroutinesStartAndStopTraces) {
  const int fd = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::atomic<bool> over = false;
  std::atomic<int> running = 0;
  for (int round = 0; round < 20; round++) {
    Run([&] {
      std::atomic<int> begun = 0;
      for (int i = 0; i < 4; i++) {
        running++;
        go([&, fd] {
          begun++;  // in this Run
          while (!over) {
            (void)trace::Start(fd);
            trace::Stop();
          }
          running--;
        });
      }
      while (begun < 4) runtime::Gosched();
    });
    trace::Stop();  // returns, although no goroutine runs
    EXPECT_FALSE(trace::IsEnabled());
  }
  over = true;
  Run([&] {
    EXPECT_TRUE(testing::Eventually([&] { return running == 0; }));
    trace::Stop();
    ExpectTraces();
  });
  ::close(fd);
}

// Stops the trace on a goroutine of its own when it is destroyed.
struct StopsTrace {
  ~StopsTrace() {
    sync::WaitGroup wg;
    wg.Go([] { trace::Stop(); });
    wg.Wait();
    trace::Stop();
    recorder.Stop();
  }
  trace::FlightRecorder recorder{};
};
gls<StopsTrace> stops_trace;

TEST_P(TraceFailureTest, DestructorsOfMainMayStopTheTrace) {
  for (int round = 0; round < 3; round++) {
    const TempFile file;
    Run([&] {
      ASSERT_TRUE(stops_trace->recorder.Start().ok());
      ASSERT_TRUE(trace::Start(file.fd()).ok());
      Work();
    });
    EXPECT_FALSE(trace::IsEnabled());
    EXPECT_GE(ReadTrace(file.Contents()).count[Ev::kGoUnblock], 100u);
  }
}

TEST_P(TraceFailureTest, PlainThreadsMayStartAndStopAtOnce) {
  Run([] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 10; i++) {
      threads.emplace_back([] {
        for (int k = 0; k < 5; k++) {
          const TempFile file;
          if (trace::Start(file.fd()).ok()) trace::Stop();
          // Another thread may have stopped the trace at once.
          const std::string bytes = file.Contents();
          if (!bytes.empty()) (void)ReadTrace(bytes);
        }
      });
    }
    blocking([&] {
      for (std::thread& t : threads) t.join();
    });
    trace::Stop();
    ExpectTraces();
  });
}

// In a process that has this variable, a recorder starts before the static
// constructors of the library, and writes to that file after its destructors.
constexpr char kRecordTo[] = "GUMP_TEST_RECORD_TO";

trace::FlightRecorder* static_recorder = nullptr;

void WriteRecordAtExit() {
  const int fd =
      ::open(std::getenv(kRecordTo), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0 || !static_recorder->WriteTo(fd).ok()) std::_Exit(1);
  ::close(fd);
}

struct StartsRecorder {
  StartsRecorder() {
    if (std::getenv(kRecordTo) == nullptr) return;
    static_recorder = new trace::FlightRecorder;
    if (!static_recorder->Start().ok()) std::_Exit(2);
    std::atexit(WriteRecordAtExit);  // after all that is registered later
  }
};
[[gnu::init_priority(101)]] const StartsRecorder starts_recorder;

class TraceDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  // The child of a death test runs SetUp anew, so the name must be the same.
  TraceDeathTest()
      : path_(::testing::TempDir() + "/gump_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() +
              ".trace") {}
  std::string Contents() const {
    std::ifstream in(path_);
    std::string all(std::istreambuf_iterator<char>(in), {});
    ::unlink(path_.c_str());
    return all;
  }

  const std::string path_;
};

TEST_F(TraceDeathTest, ProcessThatIsKilledLeavesWholeGenerations) {
  EXPECT_EXIT(gump::Run([this] {
                if (!trace::Start(path_).ok()) std::_Exit(1);
                for (;;) {
                  Work();
                  std::ifstream in(path_);
                  const std::string all(std::istreambuf_iterator<char>(in), {});
                  if (all.empty()) continue;
                  if (ReadTrace(all, Cut::kMaybe).generations == 0) continue;
                  ::kill(::getpid(), SIGKILL);
                }
              }),
              ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_GE(ReadTrace(Contents(), Cut::kMaybe).generations, 1u);
}

TEST_F(TraceDeathTest, WithoutMemoryTheTraceEndsAndTheProgramGoesOn) {
  if (rt::kSanitizerBuild) {
    GTEST_SKIP() << "the shadow does not fit under RLIMIT_AS";
  }
  EXPECT_EXIT(
      gump::Run([] {
        runtime::GOMAXPROCS(1);  // no new thread is needed
        const TempFile file;
        const auto ping = make_chan<int>();
        const auto pong = make_chan<int>();
        go([=] {
          while (const auto v = ping.Recv()) pong.Send(*v);
        });
        ping.Send(0);  // the other has its stack now
        if (pong.Recv() != 0) std::_Exit(3);
        rlimit old;
        getrlimit(RLIMIT_AS, &old);
        rlimit none = old;
        none.rlim_cur = 1;  // less than there is: no more is to be had
        if (!trace::Start(file.fd()).ok()) std::_Exit(1);
        if (setrlimit(RLIMIT_AS, &none) != 0) std::_Exit(2);
        for (int i = 0; i < 300'000; i++) {
          ping.Send(i);
          if (pong.Recv() != i) std::_Exit(3);
        }
        if (setrlimit(RLIMIT_AS, &old) != 0) std::_Exit(4);
        trace::Stop();
        // The generation is left out. If there was one before it, that
        // is there.
        const std::string all = file.Contents();
        if (!all.empty()) (void)ReadTrace(all);
        ExpectTraces();
        std::_Exit(::testing::Test::HasFailure() ? 5 : 0);
      }),
      ::testing::ExitedWithCode(0),
      // The scheduler may have wanted a thread meanwhile.
      "^(runtime: (failed to create new OS thread|may need)[^\n]*\n)*$");
}

TEST_F(TraceDeathTest, ARecorderMayBeOnInStaticConstructorsAndDestructors) {
  const ScopedEnv env(kRecordTo, path_.c_str());
  EXPECT_EXIT(gump::Run([] {
                Work();
                trace::FlightRecorder second;
                if (second.Start().ok()) std::_Exit(3);
                std::exit(0);
              }),
              ::testing::ExitedWithCode(0), "^$");
  EXPECT_GE(ReadTrace(Contents()).count[Ev::kGoUnblock], 100u);
}

// ---- GUMP_TRACE -------------------------------------------------------------

TEST_F(TraceDeathTest, VariableTracesEveryRunOfTheProcess) {
  const ScopedEnv env("GUMP_TRACE", path_.c_str());
  EXPECT_EXIT(
      {
        gump::Run([] { Work(); });
        std::thread([] { sync::Mutex().Lock(); }).join();
        gump::Run([] { Work(); });
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
  EXPECT_GE(ReadTrace(Contents()).count[Ev::kGoUnblock], 200u);
}

TEST_F(TraceDeathTest, VariableWorksIfAGoroutineEndsTheProcess) {
  const ScopedEnv env("GUMP_TRACE", path_.c_str());
  EXPECT_EXIT(gump::Run([] {
                Work();
                std::exit(3);
              }),
              ::testing::ExitedWithCode(3), "^$");
  EXPECT_GE(ReadTrace(Contents()).count[Ev::kGoUnblock], 100u);
}

TEST_F(TraceDeathTest, PercentPInTheVariableBecomesTheNumberOfTheProcess) {
  const ScopedEnv env("GUMP_TRACE", (path_ + "%p").c_str());
  EXPECT_EXIT(
      {
        gump::Run([] { Work(); });
        const std::string name = path_ + std::to_string(::getpid());
        std::exit(::rename(name.c_str(), path_.c_str()) == 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
  EXPECT_GE(ReadTrace(Contents()).count[Ev::kGoUnblock], 100u);
}

TEST_F(TraceDeathTest, FileThatCannotBeMadeIsReportedAndTheProgramGoesOn) {
  const ScopedEnv env("GUMP_TRACE", "/no/such/directory/trace");
  EXPECT_EXIT(
      {
        gump::Run([] { Work(); });
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      "^runtime: GUMP_TRACE=\"/no/such/directory/trace\" cannot be opened "
      "\\(errno=2\\)\n$");
}

TEST_F(TraceDeathTest, EmptyVariableStartsNoTrace) {
  const ScopedEnv env("GUMP_TRACE", "");
  EXPECT_EXIT(gump::Run([] { std::_Exit(trace::IsEnabled() ? 1 : 0); }),
              ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace gump
