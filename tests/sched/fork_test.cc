// fork. A child may exec, exit, and use all that needs no goroutine. Any other
// use ends it with an error that says so, and never hangs. There are also tests
// of other ways to start a process, beside goroutines that compute.
#include <gtest/gtest.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "gump/chan.h"
#include "gump/gls.h"
#include "gump/go.h"
#include "gump/os.h"
#include "gump/panic.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "tests/testing/scratch.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

extern char** environ;

namespace gump {
namespace {

constexpr char kSentence[] =
    "fatal error: use of goroutines in a child of fork: their threads stayed "
    "in the parent; the child can only exec or exit\n";

struct Ended {
  int status;          // of waitpid
  std::string errors;  // its standard error
  bool Exited(int code) const {
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
  }
};

int Await(pid_t pid) {
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Child runs f in a child of fork, which ends with code 3 if f returns.
template <class F>
Ended Child(F f) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(fds[1], STDERR_FILENO);
    close(fds[0]);
    close(fds[1]);
    f();
    _exit(3);
  }
  EXPECT_GT(pid, 0);
  close(fds[1]);
  Ended e;
  char buf[512];
  for (ssize_t n; (n = read(fds[0], buf, sizeof(buf))) > 0;) {
    e.errors.append(buf, static_cast<size_t>(n));
  }
  close(fds[0]);
  e.status = Await(pid);
  return e;
}

// Place is a place from which a program may fork.
struct Place {
  const char* name;
  void (*in)(const std::function<void()>& f);
};

void OnThread(const std::function<void()>& f) {
  std::thread t(f);
  blocking([&] { t.join(); });
}

const Place kPlaces[] = {
    {"Main", [](const std::function<void()>& f) { f(); }},
    {"Goroutine",
     [](const std::function<void()>& f) {
       sync::WaitGroup wg;
       wg.Go(f);
       wg.Wait();
     }},
    {"RuntimeThread",
     [](const std::function<void()>& f) {
       runtime::Thread t;
       t.Run(f);
     }},
    {"LockedGoroutine",
     [](const std::function<void()>& f) {
       sync::WaitGroup wg;
       wg.Go([&f] {
         runtime::LockOSThread();
         f();
         runtime::UnlockOSThread();
       });
       wg.Wait();
     }},
    {"DeclaredCall",
     [](const std::function<void()>& f) { blocking([&f] { f(); }); }},
    {"NewThread", OnThread},
    {"KnownThread",
     [](const std::function<void()>& f) {
       OnThread([&f] {
         make_chan<int>(1).Send(1);
         f();
       });
     }},
};

class ForkTest : public ::testing::TestWithParam<Place> {
 protected:
  // From runs f at the place of the parameter.
  static void From(const std::function<void()>& f) {
    gump::Run([&f] {
      runtime::GOMAXPROCS(2);
      GetParam().in(f);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(, ForkTest, ::testing::ValuesIn(kPlaces),
                         [](const auto& param) {
                           return std::string(param.param.name);
                         });

// Scratch is a file without a name that has been synced, by the ring if there
// is one.
os::File Scratch() {
  absl::StatusOr<os::File> f = os::NewFile(testing::ScratchFd(), "scratch");
  EXPECT_TRUE(f.ok() && f->Sync().ok()) << f.status();
  return *std::move(f);
}

// Things are the objects that the uses of the runtime below work with.
struct Things {
  chan<int> buffered = make_chan<int>(1);
  chan<int> unbuffered = make_chan<int>();
  sync::Mutex held;
  sync::WaitGroup waited;
  sync::RWMutex read;
  sync::Mutex mu;
  sync::Cond cond{mu};
  os::File file = Scratch();
};

struct Use {
  const char* name;
  void (*f)(Things* t);
};

const Use kUses[] = {
    {"go", [](Things*) { go([] {}); }},
    {"Run", [](Things*) { gump::Run([] {}); }},
    {"Send", [](Things* t) { t->unbuffered.Send(1); }},
    {"buffered Send", [](Things* t) { t->buffered.Send(1); }},
    {"TrySend", [](Things* t) { (void)t->buffered.TrySend(1); }},
    {"Recv", [](Things* t) { t->unbuffered.Recv(); }},
    {"nil Recv", [](Things*) { chan<int>().Recv(); }},
    {"Close", [](Things* t) { t->buffered.Close(); }},
    {"select",
     [](Things* t) {
       select(Recv(t->buffered, [](int) {}), Recv(t->unbuffered, [](int) {}));
     }},
    {"empty select", [](Things*) { select(); }},
    {"Mutex::Lock", [](Things* t) { t->held.Lock(); }},
    {"RWMutex::Lock", [](Things* t) { t->read.Lock(); }},
    {"WaitGroup::Wait", [](Things* t) { t->waited.Wait(); }},
    {"WaitGroup::Go", [](Things* t) { t->waited.Go([] {}); }},
    {"Cond::Wait",
     [](Things* t) {
       t->mu.Lock();
       t->cond.Wait();
     }},
    {"Gosched", [](Things*) { runtime::Gosched(); }},
    {"GOMAXPROCS", [](Things*) { runtime::GOMAXPROCS(3); }},
    {"NumGoroutine", [](Things*) { (void)runtime::NumGoroutine(); }},
    {"File::Sync", [](Things* t) { (void)t->file.Sync(); }},
    {"Stack", [](Things*) { (void)runtime::Stack(true); }},
    {"WriteProfile",
     [](Things*) { (void)pprof::WriteProfile("goroutine", STDERR_FILENO); }},
    {"FreeOSMemory", [](Things*) { debug::FreeOSMemory(); }},
    {"LockOSThread", [](Things*) { runtime::LockOSThread(); }},
    {"SetMaxThreads", [](Things*) { debug::SetMaxThreads(100); }},
};

TEST_P(ForkTest, ChildThatUsesTheRuntimeIsFatal) {
  From([] {
    Things t;
    t.held.Lock();
    t.read.RLock();
    t.waited.Add(1);
    for (const Use& use : kUses) {
      const Ended e = Child([&] { use.f(&t); });
      EXPECT_TRUE(e.Exited(2)) << use.name << ": " << e.status;
      EXPECT_EQ(e.errors, kSentence) << use.name;
    }
    t.held.Unlock();
    t.read.RUnlock();
    t.waited.Done();
    // The parent is not affected.
    t.buffered.Send(1);
    EXPECT_EQ(t.buffered.Recv(), 1);
  });
}

TEST_P(ForkTest, ChildMayUseAllThatNeedsNoGoroutine) {
  From([] {
    static gls<int> local{5};
    *local = 6;
    const Ended e = Child([] {
      auto c = make_chan<std::string>(3);
      sync::Mutex mu;
      sync::RWMutex rw;
      sync::WaitGroup wg;
      bool ok = c.Len() == 0 && c.Cap() == 3 && *local == 6;
      mu.Lock();
      ok = ok && !mu.TryLock();
      mu.Unlock();
      rw.RLock();
      rw.RUnlock();
      wg.Add(1);
      wg.Done();
      try {
        panic("caught");
      } catch (const PanicError&) {
        ok = ok && std::string(400, 'x').size() == 400;
      }
      _exit(ok ? 0 : 1);
    });
    EXPECT_TRUE(e.Exited(0)) << e.status;
    EXPECT_EQ(e.errors, "");
  });
}

TEST_P(ForkTest, RequestToYieldStaysWithTheParent) {
  From([] {
    auto c = make_chan<int>(3);
    (void)c.Len();  // a plain thread has a pseudo-G from here on
    if (rt::G* gp = rt::getg()) gp->preempt.store(true, rt::relaxed);
    const Ended e = Child([&c] { _exit(static_cast<int>(c.Len())); });
    EXPECT_TRUE(e.Exited(0)) << e.status;
    EXPECT_EQ(e.errors, "");
  });
}

TEST_P(ForkTest, ChildMayExec) {
  From([] {
    const Ended e = Child([] {
      execl("/bin/sh", "sh", "-c", "echo hello >&2; exit 5", nullptr);
    });
    EXPECT_TRUE(e.Exited(5)) << e.status;
    EXPECT_EQ(e.errors, "hello\n");
  });
}

TEST_P(ForkTest, ChildMayForkAgain) {
  From([] {
    const Ended e = Child([] {
      const pid_t pid = fork();
      if (pid == 0) make_chan<int>().Recv();
      const int status = Await(pid);
      _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    });
    EXPECT_TRUE(e.Exited(2)) << e.status;
    EXPECT_EQ(e.errors, kSentence);
  });
}

std::atomic<bool> inTheChild;

// Static destructors and atexit handlers run in the child, and the library does
// not wait for threads that are not there.
TEST_P(ForkTest, ChildMayExit) {
#if defined(GUMP_ASAN)
  GTEST_SKIP() << "at exit LeakSanitizer asks for the threads of the parent";
#endif
  static const bool registered = [] {
    std::atexit([] {
      if (inTheChild) (void)!write(STDERR_FILENO, "atexit\n", 7);
    });
    return true;
  }();
  (void)registered;
  From([] {
    const Ended e = Child([] {
      inTheChild = true;
      std::exit(6);
    });
    EXPECT_TRUE(e.Exited(6)) << e.status;
    EXPECT_EQ(e.errors, "atexit\n");
  });
}

// SIGURG has no effect in a child, even if the parent's goroutine had been
// asked to yield.
TEST_P(ForkTest, ChildIsNotPreempted) {
  From([] {
    const Ended e = Child([] {
      if (rt::G* gp = rt::getg()) {
        gp->preempt.store(true, rt::relaxed);  // from here, the child's own
        if (rt::P* pp = gp->m->p) pp->preempt.store(true, rt::relaxed);
      }
      for (int i = 0; i < 100; i++) raise(SIGURG);
      _exit(0);
    });
    EXPECT_TRUE(e.Exited(0)) << e.status;
    EXPECT_EQ(e.errors, "");
  });
}

TEST(ForkEndTest, GoroutineOfAChildCannotEnd) {
  gump::Run([] {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    std::atomic<pid_t> child = -1;
    sync::WaitGroup wg;
    wg.Go([&] {
      const pid_t pid = fork();
      if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        return;
      }
      child = pid;
    });
    wg.Wait();
    const int status = Await(child);
    char buf[512];
    const ssize_t n = read(fds[0], buf, sizeof(buf));
    EXPECT_EQ(std::string(buf, static_cast<size_t>(n > 0 ? n : 0)), kSentence);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << status;
    close(fds[0]);
    close(fds[1]);
  });
}

// The function of a plain thread that forked may return. Its thread is the last
// one, so the process ends.
TEST(ForkEndTest, ThreadOfAChildMayEnd) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "keeps threads of its own";
  std::atomic<pid_t> child = -1;
  std::thread t([&child] {
    static gls<int> local{0};
    ++*local;
    const pid_t pid = fork();
    if (pid == 0) pthread_exit(nullptr);
    child = pid;
  });
  t.join();
  const int status = Await(child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// A child may begin while another thread has the lock of the standard
// descriptors. The thread that forks has no G, so acquirem does not tell it
// that it is in a child (F3).
TEST(ForkEndTest, ChildThatHoldsStandardDescriptors_IsFatal) {
  gump::Run([] {
    rt::standardFree.store(true, rt::relaxed);  // each hold takes the lock
    std::atomic<bool> over = false;
    std::thread holder([&over] {
      while (!over) const rt::StandardHold hold;
    });
    OnThread([] {
      for (int i = 0; i < 20; i++) {
        const Ended e = Child([] {
          alarm(20);
          const rt::StandardHold hold;
        });
        ASSERT_TRUE(e.Exited(2)) << e.status;
        EXPECT_EQ(e.errors, kSentence);
      }
    });
    over = true;
    blocking([&] { holder.join(); });
    rt::standardFree.store(false, rt::relaxed);
    rt::lookAtStandard();
  });
}

TEST(ForkEndTest, PanicOfAChildEndsIt) {
  gump::Run([] {
    sync::WaitGroup wg;
    wg.Go([] {
      const Ended e = Child([]() noexcept { panic("boom"); });
      EXPECT_TRUE(e.Exited(2)) << e.status;
      EXPECT_EQ(e.errors.find("panic: boom\n\ngoroutine "), 0u) << e.errors;
      EXPECT_EQ(e.errors.find("\n\ngoroutine 1 "), std::string::npos);
    });
    wg.Wait();
  });
}

// A child of a process in which the runtime has not begun is a process like any
// other.
TEST(ForkDeathTest, RuntimeMayBeginInAChild) {
  EXPECT_EXIT(
      {
        const pid_t pid = fork();
        if (pid == 0) {
          gump::Run([] {
            auto c = make_chan<int>();
            go([c] { c.Send(1); });
            c.Recv();
          });
          _exit(8);
        }
        const int status = Await(pid);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
      },
      ::testing::ExitedWithCode(8), "^$");
}

// ---- Beside others

// Hogs hold the locks of malloc and stdio for most of the time, and are
// preempted while they hold them.
class Hogs {
 public:
  explicit Hogs(int n) {
    for (int i = 0; i < n; i++) {
      wg_.Go([this] {
        begun_++;
        while (!stop_) {
          void* volatile p[16];
          for (size_t k = 0; k < 16; k++) p[k] = std::malloc(size_t{16} << k);
          for (void* volatile& q : p) std::free(q);
          std::fprintf(null_, "%d %s\n", 1, "two");
        }
      });
    }
    while (begun_ < n) runtime::Gosched();
  }
  ~Hogs() {
    stop_ = true;
    wg_.Wait();
    std::fclose(null_);
  }

 private:
  FILE* const null_ = std::fopen("/dev/null", "w");
  std::atomic<bool> stop_ = false;
  std::atomic<int> begun_ = 0;
  sync::WaitGroup wg_;
};

using ForkHogTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(ForkHogTest);

TEST_P(ForkHogTest, ForksWorkBesideHogs) {
  Run([] {
    constexpr int kForks = 20;  // or as many as GUMP_STRESS_SECONDS allows
    const auto end = std::chrono::steady_clock::now() + testing::StressTime(0);
    std::atomic<int> forks = 0;
    const Hogs hogs(4);
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        while (forks++ < kForks || std::chrono::steady_clock::now() < end) {
          const pid_t pid = fork();
          if (pid == 0) {
// The sanitizers' mallocs forget their locks in a fork (ASan's before LLVM 17,
// TSan's before LLVM 19).
#if !defined(GUMP_ASAN) && !defined(GUMP_TSAN)
            void* volatile p = std::malloc(1000);
            std::free(p);
#endif
            std::fprintf(stdout, "%s", "");
            _exit(9);
          }
          const int status = Await(pid);
          EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9) << status;
        }
      });
    }
    wg.Wait();
    std::printf("%d forks\n", forks - 4);
  });
}

// Line runs a command by popen and returns the first line of its output.
std::string Line(const char* command) {
  FILE* f = popen(command, "r");
  if (f == nullptr) return "popen failed";
  std::array<char, 64> buf = {};
  const bool got = std::fgets(buf.data(), buf.size(), f) != nullptr;
  EXPECT_EQ(pclose(f), 0);
  return got ? buf.data() : "nothing";
}

TEST_P(ForkHogTest, OtherWaysToStartAProcessWorkBesideHogs) {
  Run([] {
    const Hogs hogs(3);
    sync::WaitGroup wg;
    for (int i = 0; i < 2; i++) {
      wg.Go([] { EXPECT_EQ(Line("echo popen"), "popen\n"); });
      wg.Go([] { EXPECT_EQ(WEXITSTATUS(std::system("exit 4")), 4); });
      wg.Go([] {
        char* argv[] = {const_cast<char*>("sh"), const_cast<char*>("-c"),
                        const_cast<char*>("exit 5"), nullptr};
        pid_t pid;
        ASSERT_EQ(posix_spawn(&pid, "/bin/sh", nullptr, nullptr, argv, environ),
                  0);
        EXPECT_EQ(WEXITSTATUS(Await(pid)), 5);
      });
#if !defined(GUMP_TSAN)  // TSan makes a fork of it, and then fails
      wg.Go([] {
        const pid_t pid = vfork();
        if (pid == 0) {
          execl("/bin/sh", "sh", "-c", "exit 6", nullptr);
          _exit(1);
        }
        EXPECT_EQ(WEXITSTATUS(Await(pid)), 6);
      });
#endif
    }
    wg.Wait();
  });
}

}  // namespace
}  // namespace gump
