// gump/trace.h: what Start, Stop, the recorder and annotations promise, and
// that every trace can be read. The rules of the format are those of Go's
// reader (tools/trace/order.h).
#include "gump/trace.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "gump/gump.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/parked.h"
#include "tests/testing/trace_file.h"
#include "tests/testing/with_gomaxprocs.h"
#include "tools/trace/format.h"

namespace gump {
namespace {

using namespace std::chrono_literals;
using testing::ReadTrace;
using testing::TempFile;
using testing::Traced;
using testing::Work;
using trace_tool::Ev;

using TraceTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(TraceTest);

TEST_P(TraceTest, TraceShowsStatesReasonsAndFunctions) {
  const TempFile file;
  Run([&] {
    ASSERT_TRUE(trace::Start(file.path()).ok());
    EXPECT_TRUE(trace::IsEnabled());
    Work();
    chan<int> c = make_chan<int>();
    go([=] { (void)c.Recv(); });
    EXPECT_TRUE(testing::EventuallyParked("chan receive", 1));
    c.Send(1);
    trace::Stop();
    EXPECT_FALSE(trace::IsEnabled());
  });
  const Traced t = ReadTrace(file.Contents());
  EXPECT_GE(t.generations, 1u);
  EXPECT_GE(t.count.at(Ev::kGoCreate), 7u);
  EXPECT_GE(t.count.at(Ev::kGoDestroy), 7u);
  EXPECT_GE(t.count.at(Ev::kGoUnblock), 100u);
  EXPECT_GE(t.count.at(Ev::kGoSyscallBegin), 1u);
  EXPECT_TRUE(t.reasons.contains("chan receive"));
  EXPECT_TRUE(t.reasons.contains("sleep"));
  EXPECT_TRUE(t.functions.contains("gump::testing::Serve"));
}

// YieldLeft and YieldRight differ only in their addresses: a stack has the same
// depth in both.
__attribute__((noinline)) void YieldLeft() {
  runtime::Gosched();
  asm volatile("");
}
__attribute__((noinline)) void YieldRight() {
  runtime::Gosched();
  asm volatile("# right");
}

TEST_P(TraceTest, FunctionsThatYieldInTurnAreToldApart) {
  const TempFile file;
  constexpr uint64_t kGoroutines = 3, kTurns = 200;
  Run([&] {
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    sync::WaitGroup wg;
    for (uint64_t i = 0; i < kGoroutines; i++) {
      wg.Go([] {
        for (uint64_t turn = 0; turn < kTurns; turn++) {
          YieldLeft();
          YieldRight();
        }
      });
    }
    wg.Wait();
    trace::Stop();
  });
  const Traced t = ReadTrace(file.Contents());
  const auto stops = [&t](const char* name) {
    uint64_t n = 0;
    for (const auto& [function, count] : t.stops) {
      if (function.find(name) != function.npos) n += count;
    }
    return n;
  };
  // A goroutine may also be preempted in there.
  EXPECT_GE(stops("YieldLeft"), kGoroutines * kTurns);
  EXPECT_GE(stops("YieldRight"), kGoroutines * kTurns);
  EXPECT_LE(stops("YieldLeft"), kGoroutines * kTurns * 11 / 10);
}

TEST_P(TraceTest, StartWhileATraceIsWrittenFailsAndTouchesNoFile) {
  const TempFile file, other;
  Run([&] {
    ASSERT_EQ(::write(other.fd(), "keep", 4), 4);
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    const absl::Status s = trace::Start(other.path());
    EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(s.message(), "tracing already enabled");
    EXPECT_EQ(trace::Start(other.fd()).message(), "tracing already enabled");
    trace::Stop();
    EXPECT_EQ(other.Contents(), "keep");
  });
  (void)ReadTrace(file.Contents());
}

TEST_P(TraceTest, StartOfAFileThatCannotBeMadeFails) {
  Run([] {
    const absl::Status s = trace::Start("/no/such/directory/trace");
    EXPECT_EQ(s.code(), absl::StatusCode::kNotFound) << s;
    EXPECT_FALSE(trace::IsEnabled());
  });
}

TEST_P(TraceTest, StopWithoutStartDoesNothing) {
  Run([] { trace::Stop(); });
}

TEST_P(TraceTest, EachTraceCanBeReadAlone) {
  Run([] {
    for (int i = 0; i < 5; i++) {
      const TempFile file;
      ASSERT_TRUE(trace::Start(file.fd()).ok());
      Work();
      trace::Stop();
      EXPECT_GE(ReadTrace(file.Contents()).count.at(Ev::kGoStart), 7u);
    }
  });
}

TEST_P(TraceTest, ManyGoroutinesMayStartAndStopAtOnce) {
  Run([] {
    sync::WaitGroup wg;
    std::atomic<int> started{0};
    for (int i = 0; i < 10; i++) {
      wg.Go([&started] {
        for (int k = 0; k < 5; k++) {
          const TempFile file;
          if (trace::Start(file.fd()).ok()) {
            started++;
            Work();
            trace::Stop();
          } else {
            runtime::Gosched();
          }
          // Another goroutine may have stopped the trace, so it may be short.
          if (!file.Contents().empty()) (void)ReadTrace(file.Contents());
        }
      });
    }
    wg.Wait();
    EXPECT_GE(started, 1);
    trace::Stop();
  });
}

// Of the two goroutines that meet at a channel without a buffer, the first one
// parks, and the second one readies it. So each round trip has two wake-ups.
TEST_P(TraceTest, TraceThatBeginsWhileGoroutinesSwitchMissesNoWakeUp) {
  constexpr uint64_t kRounds = 20;
  constexpr int kTraces = rt::kSanitizerBuild ? 2 : 8;
  Run([] {
    chan<int> requests = make_chan<int>();
    chan<int> answers = make_chan<int>();
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> rounds{0};
    sync::WaitGroup wg;
    wg.Go([=] { testing::Serve(requests, answers); });
    wg.Go([&] {
      for (; !stop; rounds++) {
        requests.Send(0);
        (void)answers.Recv();
      }
      requests.Close();
    });
    wg.Go([&] {
      while (!stop) runtime::Gosched();
    });
    // await_rounds returns how many round trips have ended.
    const auto await_rounds = [&] {
      const uint64_t before = rounds;
      while (rounds < before + kRounds) runtime::Gosched();
      return rounds - before;
    };
    for (int i = 0; i < kTraces; i++) {
      (void)await_rounds();  // without a trace
      const TempFile file;
      EXPECT_TRUE(trace::Start(file.fd()).ok());
      const uint64_t whole = await_rounds() - 1;
      trace::Stop();
      const Traced t = ReadTrace(file.Contents());
      EXPECT_GE(t.count.at(Ev::kGoUnblock), 2 * whole);
    }
    stop = true;
    wg.Wait();
  });
}

TEST_P(TraceTest, GenerationsOfALongTraceFitTogether) {
  const TempFile file;
  Run([&] {
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < 2500ms) Work();
    trace::Stop();
  });
  EXPECT_GE(ReadTrace(file.Contents()).generations, 2u);
}

// The goroutine that ends a generation has run since before it began. So it has
// no event of its own in that generation.
TEST_P(TraceTest, GoroutineThatOnlyComputesMayEndTheGeneration) {
  if (GetParam() == 1) GTEST_SKIP() << "two goroutines run at once";
  const TempFile file, null;
  Run([&] {
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    trace::FlightRecorder recorder;
    ASSERT_TRUE(recorder.Start().ok());
    for (int i = 0; i < 20; i++) {
      std::atomic<bool> begun{false};
      go([&] {
        EXPECT_TRUE(recorder.WriteTo(null.fd()).ok());
        begun = true;
      });
      while (!begun) {
      }
      EXPECT_TRUE(recorder.WriteTo(null.fd()).ok());
    }
    recorder.Stop();
    trace::Stop();
  });
  EXPECT_GE(ReadTrace(file.Contents()).generations, 40u);
}

TEST_P(TraceTest, GoroutinesThatLoseTheirPInManyGenerationsAreInIt) {
  constexpr int kGenerations = rt::kSanitizerBuild ? 60 : 300;
  const TempFile file;
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(null, 0);
  Run([&] {
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    trace::FlightRecorder recorder;
    ASSERT_TRUE(recorder.Start().ok());
    std::atomic<bool> over = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 16; i++) {
      wg.Go([&over, i] {
        while (!over) {
          ::usleep(static_cast<useconds_t>(100 + 50 * i));  // not declared
          runtime::Gosched();
        }
      });
    }
    // A generation ends with each.
    for (int i = 0; i < kGenerations; i++) {
      EXPECT_TRUE(recorder.WriteTo(null).ok());
    }
    over = true;
    wg.Wait();
    recorder.Stop();
    trace::Stop();
  });
  ::close(null);
  EXPECT_GE(ReadTrace(file.Contents()).generations, size_t{kGenerations});
}

// A goroutine whose call ends after main gets no P. Most of the time, no thread
// has taken the P of the call by then.
TEST_P(TraceTest, CallThatEndsAfterMainHasLostItsP) {
  const TempFile file;
  ASSERT_TRUE(trace::Start(file.fd()).ok());
  for (int i = 0; i < 40; i++) {
    int fds[2];
    ASSERT_EQ(::pipe(fds), 0);
    std::atomic<bool> in_call = false;
    std::atomic<bool> back = false;
    Run([&] {
      go([&, fd = fds[0]] {
        blocking([&] {
          in_call = true;
          char c;
          EXPECT_EQ(::read(fd, &c, 1), 0);
        });
        back = true;
      });
      EXPECT_TRUE(testing::Eventually([&] { return in_call.load(); }));
    });
    ::close(fds[1]);
    Run([&] { EXPECT_TRUE(testing::Eventually([&] { return back.load(); })); });
    ::close(fds[0]);
  }
  trace::Stop();
  ReadTrace(file.Contents());
}

TEST_P(TraceTest, TraceShowsPlainThreadsAndTheirGoroutines) {
  const TempFile file;
  Run([&] {
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    std::thread t([] {
      chan<int> c = make_chan<int>();
      go([=] { c.Send(1); });
      EXPECT_EQ(c.Recv(), 1);
    });
    t.join();
    trace::Stop();
  });
  const Traced t = ReadTrace(file.Contents());
  EXPECT_EQ(t.count.at(Ev::kGoCreateSyscall), 1u);
  EXPECT_EQ(t.count.at(Ev::kGoDestroySyscall), 1u);
}

// To readers the goroutine of a plain thread is always in a call. Here the
// generation ends between the wake-up of the thread and the moment when it
// runs.
TEST_P(TraceTest, PlainThreadThatIsBeingWokenIsInACall) {
  // ThreadSanitizer delays the signals of threads that sleep.
  if (rt::kSanitizerBuild) GTEST_SKIP();
  static std::atomic<bool> hold = false;
  static std::atomic<bool> held = false;
  struct sigaction wait = {}, before;
  wait.sa_handler = [](int) {
    held = true;
    while (hold) ::usleep(100);
    held = false;
  };
  wait.sa_flags = SA_RESTART | SA_ONSTACK;
  ASSERT_EQ(sigaction(SIGUSR1, &wait, &before), 0);
  const TempFile waiting, woken;
  Run([&] {
    trace::FlightRecorder recorder;
    ASSERT_TRUE(recorder.Start().ok());
    chan<int> c = make_chan<int>();
    std::thread plain([&] { EXPECT_EQ(c.Recv(), 7); });
    ASSERT_TRUE(testing::EventuallyParked("chan receive", 1));
    EXPECT_TRUE(recorder.WriteTo(waiting.fd()).ok());
    hold = true;
    pthread_kill(plain.native_handle(), SIGUSR1);
    ASSERT_TRUE(testing::Eventually([] { return held.load(); }));
    c.Send(7);
    EXPECT_TRUE(recorder.WriteTo(woken.fd()).ok());
    hold = false;
    blocking([&] { plain.join(); });
  });
  sigaction(SIGUSR1, &before, nullptr);
  ReadTrace(waiting.Contents());
  ReadTrace(woken.Contents());
}

TEST_P(TraceTest, TraceShowsChangesOfGomaxprocs) {
  const TempFile file;
  Run([&] {
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    const int before = runtime::GOMAXPROCS(3);
    Work();
    runtime::GOMAXPROCS(1);
    Work();
    runtime::GOMAXPROCS(before);
    trace::Stop();
  });
  const Traced t = ReadTrace(file.Contents());
  EXPECT_GE(t.count.at(Ev::kProcsChange), 2u);
  EXPECT_EQ(t.count.at(Ev::kStwBegin), t.count.at(Ev::kStwEnd));
}

TEST_P(TraceTest, TraceShowsTasksRegionsAndMessages) {
  const TempFile file;
  Run([&] {
    ASSERT_TRUE(trace::Start(file.fd()).ok());
    {
      trace::Task task(context::Background(), "request");
      trace::Region region(task.Context(), "parse");
      trace::Log(task.Context(), "user", "gopher");
    }
    trace::Stop();
  });
  const Traced t = ReadTrace(file.Contents());
  EXPECT_TRUE(t.names.contains("task request"));
  EXPECT_TRUE(t.names.contains("region parse"));
  EXPECT_TRUE(t.names.contains("user: gopher"));
  EXPECT_EQ(t.count.at(Ev::kUserRegionBegin), t.count.at(Ev::kUserRegionEnd));
}

TEST_P(TraceTest, RegionMayOutliveTheTrace) {
  const TempFile first, second;
  Run([&] {
    ASSERT_TRUE(trace::Start(first.fd()).ok());
    {
      trace::Region region(context::Background(), "long");
      trace::Stop();
      ASSERT_TRUE(trace::Start(second.fd()).ok());
    }
    trace::Stop();
  });
  (void)ReadTrace(first.Contents());
  (void)ReadTrace(second.Contents());
}

TEST_P(TraceTest, RecorderWritesTheLastEvents) {
  const TempFile file;
  Run([&] {
    trace::FlightRecorder recorder;
    EXPECT_FALSE(recorder.Enabled());
    EXPECT_EQ(recorder.WriteTo(file.fd()).status().message(),
              "flight recorder is not running");
    ASSERT_TRUE(recorder.Start().ok());
    EXPECT_TRUE(recorder.Enabled());
    trace::FlightRecorder second;
    EXPECT_EQ(second.Start().message(), "flight recorder already enabled");
    Work();
    const absl::StatusOr<size_t> n = recorder.WriteTo(file.fd());
    ASSERT_TRUE(n.ok()) << n.status();
    EXPECT_EQ(*n, file.Contents().size());
    recorder.Stop();
    EXPECT_FALSE(recorder.Enabled());
  });
  EXPECT_GE(ReadTrace(file.Contents()).count.at(Ev::kGoUnblock), 100u);
}

TEST_P(TraceTest, RecorderAndTraceRunSideBySide) {
  const TempFile trace_file, recorded;
  Run([&] {
    trace::FlightRecorder recorder;
    ASSERT_TRUE(recorder.Start().ok());
    Work();
    ASSERT_TRUE(trace::Start(trace_file.fd()).ok());
    Work();
    EXPECT_TRUE(recorder.WriteTo(recorded.fd()).ok());
    trace::Stop();
    Work();
  });
  EXPECT_GE(ReadTrace(trace_file.Contents()).count.at(Ev::kGoUnblock), 100u);
  EXPECT_GE(ReadTrace(recorded.Contents()).count.at(Ev::kGoUnblock), 200u);
}

TEST_P(TraceTest, RecorderForgetsOldGenerations) {
  const TempFile file;
  Run([&] {
    trace::FlightRecorder recorder({.max_bytes = 1});
    ASSERT_TRUE(recorder.Start().ok());
    for (int i = 0; i < 3; i++) {
      Work();
      ASSERT_EQ(::ftruncate(file.fd(), 0), 0);
      ASSERT_EQ(::lseek(file.fd(), 0, SEEK_SET), 0);
      ASSERT_TRUE(recorder.WriteTo(file.fd()).ok());
    }
  });
  EXPECT_EQ(ReadTrace(file.Contents()).generations, 1u);
}

}  // namespace
}  // namespace gump
