// What a hook of a thread must not do. Each test starts this program again,
// because hooks are set before the runtime starts.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/net.h"
#include "gump/os.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/scope.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/synctest.h"
#include "gump/time.h"
#include "tests/testing/sleep_on_threads.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::RunWith;
using testing::SleepOnThreads;

struct Use {
  const char* name;
  void (*use)();
};

chan<int> Unbuffered() {
  static auto c = make_chan<int>();
  return c;
}

const Use kUses[] = {
    {"Go", [] { go([] {}); }},
    {"GoWithOptions", [] { go(GoOptions{.name = "x"}, [] {}); }},
    {"Send", [] { Unbuffered().Send(1); }},
    {"Recv", [] { (void)Unbuffered().Recv(); }},
    {"NilRecv", [] { (void)chan<int>().Recv(); }},
    {"TryRecv", [] { (void)Unbuffered().TryRecv(); }},
    {"Close", [] { Unbuffered().Close(); }},
    {"Select", [] { select(Recv(Unbuffered(), [](int) {})); }},
    {"EmptySelect", [] { select(); }},
    {"Gosched", [] { runtime::Gosched(); }},
    {"Goexit", [] { runtime::Goexit(); }},
    {"LockOSThread", [] { runtime::LockOSThread(); }},
    {"UnlockOSThread", [] { runtime::UnlockOSThread(); }},
    {"Gomaxprocs", [] { (void)runtime::GOMAXPROCS(3); }},
    {"SetAffinity", [] { runtime::SetAffinity(runtime::Affinity::kCore); }},
    {"Stack", [] { (void)runtime::Stack(true); }},
    {"GC", [] { runtime::GC(); }},
    {"SetFinalizer", [] { runtime::SetFinalizer([] {}); }},
    {"Blocking", [] { blocking([] {}); }},
    {"Sleep", [] { time::Sleep(absl::Milliseconds(1)); }},
    {"After", [] { (void)time::After(absl::Milliseconds(1)).Recv(); }},
    {"AfterFunc", [] { (void)time::AfterFunc(absl::Hours(1), [] {}); }},
    {"MutexThatIsHeld",
     [] {
       static sync::Mutex mu;
       mu.Lock();
       mu.Lock();
     }},
    {"WaitGroup",
     [] {
       static sync::WaitGroup wg;
       wg.Add(1);
       wg.Wait();
     }},
    {"Cond",
     [] {
       static sync::Mutex mu;
       static sync::Cond cond(mu);
       mu.Lock();
       cond.Wait();
     }},
    {"MutexWithATimeLimit",
     [] {
       static sync::Mutex mu;
       mu.Lock();
       (void)mu.TryLockFor(absl::Milliseconds(1));
     }},
    {"Event",
     [] {
       static sync::Event event;
       event.Wait();
     }},
    {"Scope", [] { const Scope scope; }},
    {"Timeout",
     [] {
       auto [ctx, cancel] =
           context::WithTimeout(context::Background(), absl::Hours(1));
       (void)ctx.Done().Recv();
     }},
    {"Listen", [] { (void)net::Listen("tcp", "127.0.0.1:0"); }},
    {"ReadFile", [] { (void)os::ReadFile("/proc/self/exe"); }},
    {"Pipe", [] { (void)os::Pipe(); }},
    {"Cmd", [] { (void)exec::Cmd("/bin/true").Run(); }},
    {"Synctest", [] { synctest::Run([] {}); }},
};

class HookUseTest : public ::testing::TestWithParam<Use> {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};
INSTANTIATE_TEST_SUITE_P(, HookUseTest, ::testing::ValuesIn(kUses),
                         [](const auto& use) {
                           return std::string(use.param.name);
                         });

constexpr char kSentence[] =
    "fatal error: use of goroutines in a thread hook: on_start runs before the "
    "thread's first goroutine, and on_end after its last one\n";

TEST_P(HookUseTest, UseOfGoroutinesInStartIsFatal) {
  const auto program = [] {
    runtime::SetThreadHooks({.on_start = GetParam().use});
    gump::Run([] {});
    std::_Exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2), kSentence);
}

TEST_P(HookUseTest, UseOfGoroutinesInTheEndOfAnotherThreadIsFatal) {
  const auto program = [] {
    static const pid_t self = gettid();
    runtime::SetThreadHooks({.on_end = [] {
      if (gettid() != self) GetParam().use();
    }});
    gump::Run([] {
      sync::WaitGroup wg;
      wg.Go([] { runtime::LockOSThread(); });
      wg.Wait();
      time::Sleep(absl::InfiniteDuration());
    });
    std::_Exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2), kSentence);
}

// ---- What leaves a hook, or ends it -----------------------------------------

class HookDeathTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};
INSTANTIATE_TEST_SUITE_P(, HookDeathTest, ::testing::Values(1, 4),
                         testing::GomaxprocsName);

TEST_P(HookDeathTest, ExceptionThatLeavesAHookOfMainIsAPanic) {
  const auto program = [] {
    runtime::SetThreadHooks(
        {.on_start = [] { throw std::runtime_error("boom"); }});
    try {
      RunWith(GetParam(), [] {});
    } catch (...) {  // a hook's exception does not come here
      std::_Exit(0);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2),
              "^panic: boom\n\\[exception "
              "std::runtime_error\\]\n(fuzzsched=[0-9]+\n)?\n"
              "thread hook:\n");
}

TEST_P(HookDeathTest, PanicThatLeavesAHookOfAnotherThreadEndsTheProcess) {
  const auto program = [] {
    static const pid_t self = gettid();
    runtime::SetThreadHooks({.on_start = [] {
      if (gettid() != self) panic("boom");
    }});
    RunWith(GetParam(), [] {
      SleepOnThreads(2);
      time::Sleep(absl::InfiniteDuration());
    });
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2),
              "^panic: boom\n(fuzzsched=[0-9]+\n)?\n");
}

TEST_P(HookDeathTest, ExceptionThatLeavesTheEndOfRunIsAPanic) {
  const auto program = [] {
    runtime::SetThreadHooks({.on_end = [] { throw 7; }});
    RunWith(GetParam(), [] {});
    std::_Exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2),
              "^panic: int\n(fuzzsched=[0-9]+\n)?\n");
}

TEST_P(HookDeathTest, ExceptionThatLeavesTheEndOfAnotherThreadIsAPanic) {
  const auto program = [] {
    static const pid_t self = gettid();
    runtime::SetThreadHooks({.on_end = [] {
      if (gettid() != self) throw std::runtime_error("boom");
    }});
    RunWith(GetParam(), [] {
      go([] { runtime::LockOSThread(); });  // its thread ends
      time::Sleep(absl::InfiniteDuration());
    });
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2),
              "^panic: boom\n\\[exception "
              "std::runtime_error\\]\n(fuzzsched=[0-9]+\n)?\n"
              "thread hook:\n");
}

TEST_P(HookDeathTest, ExceptionThatLeavesAHookInLibraryModeIsAPanic) {
  const auto program = [] {
    runtime::SetThreadHooks({.on_start = [] { panic("boom"); }});
    auto c = make_chan<int>();
    go([c] { c.Send(1); });
    (void)c.Recv();
    std::_Exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2),
              "^panic: boom\n(fuzzsched=[0-9]+\n)?\n");
}

TEST_P(HookDeathTest, SetThreadHooksInAHookIsAPanic) {
  const auto program = [] {
    runtime::SetThreadHooks({.on_start = [] { runtime::SetThreadHooks({}); }});
    RunWith(GetParam(), [] {});
    std::_Exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2),
              "^panic: runtime: SetThreadHooks after the start\n");
}

TEST_P(HookDeathTest, PthreadExitInAHookIsFatal) {
  const auto program = [] {
    static const pid_t self = gettid();
    runtime::SetThreadHooks({.on_start = [] {
      if (gettid() != self) pthread_exit(nullptr);
    }});
    RunWith(GetParam(), [] {
      SleepOnThreads(2);
      time::Sleep(absl::InfiniteDuration());
    });
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2),
              "fatal error: pthread_exit or pthread_cancel");
}

TEST_P(HookDeathTest, DeadlockIsFoundBesideHooks) {
  const auto program = [] {
    runtime::SetThreadHooks({.on_start = [] {}, .on_end = [] {}});
    RunWith(GetParam(), [] {
      SleepOnThreads(4);
      (void)Unbuffered().Recv();
    });
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(2),
              "all goroutines are asleep - deadlock!");
}

}  // namespace
}  // namespace gump
