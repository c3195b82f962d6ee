// Hooked calls in programs with clients that are libraries of their own, with
// constructors, with threads of a client, and with children.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/hooks.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

// One home, so that any goroutine that blocks it stops the others.
class HooksLibraryTest : public WithGomaxprocs {
 protected:
  HooksLibraryTest() { hooks::SetThreads(1); }
  void SetUp() override {
#if defined(GUMP_TSAN)
    GTEST_SKIP() << "hooks do nothing under ThreadSanitizer";
#endif
  }
};
GUMP_INSTANTIATE_GOMAXPROCS(HooksLibraryTest);

// Client is client_library.cc, one of its two copies.
class Client {
 public:
  explicit Client(const char* copy)
      : handle_(dlopen((std::string(CLIENT_FOLDER) + copy).c_str(),
                       RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  template <class R, class... Args>
  R Call(const char* name, Args... args) const {
    auto* f = reinterpret_cast<R (*)(Args...)>(dlsym(handle_, name));
    return f(args...);
  }

 private:
  void* handle_;  // never unloaded, as most programs do it
};
constexpr const char* kA = "/libtest_hooks_client_a.so";
constexpr const char* kB = "/libtest_hooks_client_b.so";

struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0); }
  ~Pair() {
    if (fd[0] >= 0) close(fd[0]);
    if (fd[1] >= 0) close(fd[1]);
  }
  int fd[2] = {-1, -1};
};

// Sleeps returns true if the kernel has put the thread to sleep.
bool Sleeps(pid_t tid) {
  std::ifstream stat("/proc/self/task/" + std::to_string(tid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t at = text.rfind(") ");
  return at != std::string::npos && text[at + 2] == 'S';
}

// ---- Libraries --------------------------------------------------------------

int resultBeforeMain = -1;
// A constructor of priority 101 runs before those of static objects, and long
// before the runtime starts.
[[gnu::constructor(101)]] void CallBeforeMain() {
  int p[2];
  char c = 0;
  if (pipe(p) != 0 || write(p[1], "m", 1) != 1) return;
  pollfd ready{p[0], POLLIN, 0};
  if (poll(&ready, 1, -1) != 1 || read(p[0], &c, 1) != 1) return;
  usleep(1);
  close(p[0]);
  close(p[1]);
  resultBeforeMain = c;
}

TEST(HooksPlainTest, CallsBeforeMainReachLibc) {
  EXPECT_EQ(resultBeforeMain, 'm');
}

TEST_P(HooksLibraryTest, AClientThatIsLoadedLaterParks) {
  RunWith(GetParam(), [] {
    Pair p;
    sync::WaitGroup all;
    all.Add(2);
    hooks::Go([&] {
      const Client a(kA);
      EXPECT_EQ(a.Call<int>("ClientConstructed"), 'x');
      hooks::Go([&] {
        EXPECT_EQ(Client(kA).Call<int>("ClientSend", p.fd[1], 'a'), 1);
        all.Done();
      });
      EXPECT_EQ(a.Call<int>("ClientReceive", p.fd[0]), 'a');
      all.Done();
    });
    all.Wait();
  });
}

TEST_P(HooksLibraryTest, TwoLibrariesParkOnOneHome) {
  RunWith(GetParam(), [] {
    const Client a(kA);
    const Client b(kB);
    Pair p;
    sync::WaitGroup all;
    all.Add(2);
    const auto receive = [](const Client& c, int fd) {
      EXPECT_EQ(c.Call<int>("ClientReceive", fd), 'p');
    };
    const auto send = [](const Client& c, int fd) {
      EXPECT_EQ(c.Call<int>("ClientSend", fd, 'p'), 1);
    };
    hooks::Go([&] {
      for (int i = 0; i < 100; i++) {
        send(a, p.fd[0]);
        receive(a, p.fd[0]);
      }
      all.Done();
    });
    hooks::Go([&] {
      for (int i = 0; i < 100; i++) {
        receive(b, p.fd[1]);
        send(b, p.fd[1]);
      }
      all.Done();
    });
    all.Wait();
  });
}

TEST_P(HooksLibraryTest, AThreadOfTheClientIsNotHooked) {
  RunWith(GetParam(), [] {
    const Client a(kA);
    Pair p;
    a.Call<void>("ClientEchoOnThread", std::exchange(p.fd[1], -1));
    const hooks::Scope scope;
    for (int i = 0; i < 100; i++) {
      EXPECT_EQ(a.Call<int>("ClientSend", p.fd[0], 'e'), 1);
      EXPECT_EQ(a.Call<int>("ClientReceive", p.fd[0]), 'e');
    }
  });
}

// If the goroutine parked, the next one of the home would find its error, and
// take it for its own.
TEST_P(HooksLibraryTest, AnErrorInTheQueueOfOpenSSLKeepsTheThread) {
  RunWith(GetParam(), [] {
    const Client a(kA);
    Pair p;
    std::atomic<pid_t> tid = 0;
    std::atomic<bool> ran = false;
    sync::WaitGroup all;
    all.Add(2);
    hooks::Go([&] {
      tid = gettid();
      a.Call<void>("ClientFails");
      hooks::Go([&] {
        EXPECT_EQ(a.Call<unsigned long>("ERR_peek_error"), 0U);
        ran = true;
        all.Done();
      });
      EXPECT_EQ(a.Call<int>("ClientReceive", p.fd[0]), 'o');
      a.Call<void>("ERR_clear_error");
      all.Done();
    });
    EXPECT_TRUE(Eventually([&] { return tid != 0 && Sleeps(tid); }));
    EXPECT_FALSE(ran);
    EXPECT_EQ(a.Call<int>("ClientSend", p.fd[1], 'o'), 1);
    all.Wait();
  });
}

// ---- Descriptors ------------------------------------------------------------

// A hooking library that keeps a table of the descriptors that it has made
// would take these for files of no kind.
TEST_P(HooksLibraryTest, DescriptorsThatNoHookedCallHasMadePark) {
  RunWith(GetParam(), [] {
    const int event = eventfd(0, 0);
    const int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    sync::WaitGroup all;
    all.Add(2);
    hooks::Go([&] {
      uint64_t n = 0;
      EXPECT_EQ(read(event, &n, sizeof(n)), 8);
      EXPECT_EQ(n, 7U);
      all.Done();
    });
    hooks::Go([&] {
      const itimerspec soon{{}, {0, 1'000'000}};
      EXPECT_EQ(timerfd_settime(timer, 0, &soon, nullptr), 0);
      uint64_t n = 0;
      EXPECT_EQ(read(timer, &n, sizeof(n)), 8);
      EXPECT_GE(n, 1U);
      n = 7;
      EXPECT_EQ(write(event, &n, sizeof(n)), 8);
      all.Done();
    });
    all.Wait();
    close(event);
    close(timer);
  });
}

// ---- Children ---------------------------------------------------------------

// WhileAnotherReceives runs f on a home while another goroutine of the home
// waits for fd. That one must get the byte that is sent after f.
template <class F>
void WhileAnotherReceives(Pair* p, F f) {
  chan<void> begun = make_chan<void>(1);
  sync::WaitGroup all;
  all.Add(2);
  hooks::Go([&] {
    begun.Send();
    char c = 0;
    EXPECT_EQ(recv(p->fd[0], &c, 1, 0), 1);
    EXPECT_EQ(c, 'r');
    all.Done();
  });
  hooks::Go([&] {
    begun.Recv();  // the other one has parked, because this home has one thread
    f();
    EXPECT_EQ(send(p->fd[1], "r", 1, 0), 1);
    all.Done();
  });
  all.Wait();
}

void ExpectExit(pid_t pid, int code) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), code);
}

TEST_P(HooksLibraryTest, AChildOfForkWakesNoneAndItsCallsArePlain) {
  RunWith(GetParam(), [] {
    Pair p;
    WhileAnotherReceives(&p, [&] {
      const pid_t pid = fork();
      if (pid == 0) {
        close(p.fd[0]);
        int q[2];
        char c = 0;
        if (pipe(q) != 0) _exit(1);
        pollfd none{q[0], POLLIN, 0};
        if (poll(&none, 1, 1) != 0) _exit(2);
        if (write(q[1], "c", 1) != 1 || read(q[0], &c, 1) != 1) _exit(3);
        usleep(1000);
        _exit(c == 'c' ? 42 : 4);
      }
      ExpectExit(pid, 42);
    });
  });
}

// A child of vfork works in the memory of its parent.
TEST_P(HooksLibraryTest, AChildOfVforkWakesNone) {
  RunWith(GetParam(), [] {
    Pair p;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    WhileAnotherReceives(&p, [&] {
      const int fd = p.fd[0];
      const pid_t pid = vfork();
      if (pid == 0) {
        dup2(null, fd);
        close(fd);
        execl("/bin/sh", "sh", "-c", "exit 42", nullptr);
        _exit(1);
      }
      ExpectExit(pid, 42);
    });
    close(null);
  });
}

TEST_P(HooksLibraryTest, AChildOfPosixSpawnWakesNone) {
  RunWith(GetParam(), [] {
    Pair p;
    WhileAnotherReceives(&p, [&] {
      posix_spawn_file_actions_t actions;
      posix_spawn_file_actions_init(&actions);
      posix_spawn_file_actions_addclose(&actions, p.fd[0]);
      char sh[] = "sh";
      char option[] = "-c";
      char command[] = "exit 42";
      char* argv[] = {sh, option, command, nullptr};
      pid_t pid = 0;
      EXPECT_EQ(posix_spawn(&pid, "/bin/sh", &actions, nullptr, argv, environ),
                0);
      posix_spawn_file_actions_destroy(&actions);
      ExpectExit(pid, 42);
    });
  });
}

}  // namespace
}  // namespace gump::testing
