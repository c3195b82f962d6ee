// What checkdead and schedtrace print: reports of deadlocks, and lines about
// the scheduler.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "runtime/sys/sanitizer.h"
#include "tests/sched/crash_testing.h"

// Functions whose names the tests look for in dumps. The empty asm prevents
// tail calls and clones.
namespace crashtest {

__attribute__((noinline)) void ParkedSender(gump::chan<int> c) {
  c.Send(1);
  asm volatile("");
}

}  // namespace crashtest

namespace gump {
namespace {

using testing::AwaitParked;
using testing::CrashDeathTest;
using testing::Died;
using testing::Matches;

TEST_F(CrashDeathTest, DeadlockOfMainAloneIsReported) {
  EXPECT_EXIT(RunWith({}, [] { make_chan<int>().Recv(); }), Died(),
              "^fatal error: all goroutines are asleep - deadlock!\n\n"
              "goroutine 1 \\[chan receive\\]:\n");
}

TEST_F(CrashDeathTest, DeadlockShowsEveryGoroutineAndItsMaker) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        auto c = make_chan<int>();
                        auto d = make_chan<int>();
                        crashtest::Spawner(c);
                        go([d] { crashtest::ParkedSender(d); });
                        chan<int>().Recv();
                      }),
              Died(),
              "^fatal error: all goroutines are asleep - deadlock!\n\n"
              "goroutine 1 \\[chan receive \\(nil chan\\)\\]:\n.*"
              "\n\ngoroutine [0-9]+ \\[chan receive\\]:\n.*"
              "crashtest::ParkedReceiver\\(\\.\\.\\.\\)\n"
              "\t/[^\n]+ \\+0x[0-9a-f]+\n.*"
              "created by crashtest::Spawner in goroutine 1\n"
              "\t/[^\n]+ \\+0x[0-9a-f]+\n\n"
              "goroutine [0-9]+ \\[chan send\\]:\n.*"
              "crashtest::ParkedSender\\(\\.\\.\\.\\)\n.*"
              "created by [^\n]+ in goroutine 1\n");
}

TEST_F(CrashDeathTest, DeadlockIsSeenOnAnyNumberOfPs) {
  for (const char* procs : {"1", "2", "4", "8"}) {
    EXPECT_EXIT(RunWith({{"GOMAXPROCS", procs}},
                        [] {
                          auto c = make_chan<int>();
                          for (int i = 0; i < 100; i++) {
                            go([c] { crashtest::ParkedReceiver(c); });
                          }
                          c.Recv();
                        }),
                Died(), "all goroutines are asleep - deadlock!");
  }
}

TEST_F(CrashDeathTest, GoexitOfMainWithNoGoroutineLeftIsFatal) {
  EXPECT_EXIT(RunWith({}, [] { runtime::Goexit(); }), Died(),
              "^fatal error: no goroutines \\(main called runtime.Goexit\\) - "
              "deadlock!\n");
}

TEST_F(CrashDeathTest, GoexitOfMainWithOthersAsleepIsADeadlock) {
  EXPECT_EXIT(RunWith({},
                      [] {
                        auto c = make_chan<int>();
                        go([c] { crashtest::ParkedReceiver(c); });
                        runtime::Goexit();
                      }),
              Died(),
              "^fatal error: all goroutines are asleep - deadlock!\n\n"
              "goroutine [0-9]+ \\[chan receive\\]:\n");
}

// ShortOfStacks starts a goroutine that cannot begin, and parks.
void ShortOfStacks() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  // Enough for threads, and for the memory that malloc reserves for each.
  limit.rlim_cur = static_cast<rlim_t>(pages) * 4096 + (512 << 20);
  setrlimit(RLIMIT_AS, &limit);
  go(GoOptions{.stack_size = 1 << 30, .name = {}}, [] {});
  make_chan<int>().Recv();
}

TEST_F(CrashDeathTest, NoMemoryForAStackIsNotCalledADeadlock) {
  if (rt::kSanitizerBuild)
    GTEST_SKIP() << "the shadow does not fit under RLIMIT_AS";
  // Many times. Sysmon makes the goroutine try again, and must not do so
  // between the last look of the last M at the queues and the sleep of that M.
  for (int i = 0; i < 30; i++) {
    EXPECT_EXIT(
        RunWith({}, ShortOfStacks), Died(),
        "runtime: 1 goroutines cannot begin: .*\nfatal error: all other "
        "goroutines are asleep and no memory for a stack - "
        "deadlock!\n");
  }
}

// Capture turns standard error into a pipe, so that a program can read what its
// own runtime prints.
class Capture {
 public:
  Capture() {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    in_ = fdopen(ends[0], "r");
  }
  std::string Line() {
    char* line = nullptr;
    size_t size = 0;
    ssize_t n = getline(&line, &size, in_);
    std::string text(line, n > 0 ? static_cast<size_t>(n) : 0);
    std::free(line);
    return text;
  }

 private:
  FILE* in_;
};

// Check ends the death test's process with the verdict.
void Check(bool ok, const std::string& text) {
  if (!ok) std::printf("unexpected: <%s>\n", text.c_str());
  std::fflush(stdout);
  std::_Exit(ok ? 0 : 1);
}

TEST_F(CrashDeathTest, SchedtraceLineIsGos) {
  EXPECT_EXIT(
      {
        setenv("GODEBUG", "schedtrace=10", 1);
        setenv("GOMAXPROCS", "2", 1);
        Capture err;
        gump::Run([&err] {
          std::string first = blocking([&err] { return err.Line(); });
          std::string second = blocking([&err] { return err.Line(); });
          std::string form(
              "SCHED [0-9]+ms: gomaxprocs=2 idleprocs=[0-2] threads=[0-9]+ "
              "spinningthreads=[0-9]+ needspinning=[01] idlethreads=[0-9]+ "
              "runqueue=[0-9]+ \\[ [0-9]+ [0-9]+ \\] "
              "schedticks=\\[ [0-9]+ [0-9]+ \\]\n");
          Check(first.find("SCHED 0ms: ") == 0 && Matches(first, form) &&
                    Matches(second, form),
                first + second);
        });
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CrashDeathTest, SchedtraceBeginsAtOnce) {
  EXPECT_EXIT(
      {
        setenv("GODEBUG", "schedtrace=1000000", 1);
        Capture err;
        gump::Run([&err] {
          const std::string first = blocking([&err] { return err.Line(); });
          Check(first.find("SCHED 0ms: ") == 0, first);
        });
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CrashDeathTest, ScheddetailIsGos) {
  EXPECT_EXIT(
      {
        setenv("GODEBUG", "schedtrace=10,scheddetail=1", 1);
        setenv("GOMAXPROCS", "2", 1);
        Capture err;
        gump::Run([&err] {
          auto c = make_chan<int>();
          go([c] { crashtest::ParkedReceiver(c); });
          AwaitParked(1);
          std::string text = blocking([&err] {
            std::string all = err.Line();  // the first trace ...
            while (all.find("(chan receive)") == std::string::npos ||
                   all.rfind("\nSCHED ") == std::string::npos) {
              all += err.Line();  // ... up to the head of a later one
            }
            return all;
          });
          std::string form(
              "(SCHED [0-9]+ms: gomaxprocs=2 idleprocs=[0-2] threads=[0-9]+ "
              "spinningthreads=[0-9]+ needspinning=[01] idlethreads=[0-9]+ "
              "runqueue=[0-9]+ gcwaiting=(true|false) nmidlelocked=-?[0-9]+ "
              "stopwait=[0-9]+ sysmonwait=(true|false)\n"
              "|  P[01]: status=[0-4] schedtick=[0-9]+ syscalltick=[0-9]+ "
              "m=([0-9]+|nil) runqsize=[0-9]+ gfreecnt=[0-9]+ timerslen=0\n"
              "|  M[0-9]+: p=([0-9]+|nil) curg=([0-9]+|nil) mallocing=0 "
              "throwing=0 preemptoff= locks=[0-9]+ dying=0 "
              "spinning=(true|false) blocked=(true|false) "
              "lockedg=([0-9]+|nil)\n"
              "|  G[0-9]+: status=[0-9]+\\([a-z() ]*\\) m=([0-9]+|nil) "
              "lockedm=([0-9]+|nil)\n)+");
          Check(Matches(text, form), text);
          // The line of the template thread, at least.
          Check(text.find("curg=nil mallocing=0 throwing=0 preemptoff= "
                          "locks=0 ") != std::string::npos,
                text);
        });
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CrashDeathTest, SchedtraceIsPrintedBeforeTheStacks) {
  EXPECT_EXIT(RunWith({{"GODEBUG", "schedtrace=1000000,scheddetail=1"}},
                      [] { panic("boom"); }),
              Died(),
              "SCHED [0-9]+ms: .*\n  G1: status=2\\([^\n]*\n.*"
              "panic: boom\n\ngoroutine 1 ");
}

}  // namespace
}  // namespace gump
