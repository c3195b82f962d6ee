#include "tests/clients/harness.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/hooks.h"
#include "gump/os/file.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/peers/peers.h"
#include "tests/testing/known_thread.h"
#include "tests/testing/status.h"

namespace gump::testing {
namespace {

// The file that gets the results, or nullptr. Its name is that of the test.
std::FILE* Results() {
  static std::FILE* const file = [] {
    const char* path = std::getenv("GUMP_CLIENT_RESULTS");
    return path == nullptr ? nullptr : std::fopen(path, "we");
  }();
  return file;
}

void Result(const std::string& row, const std::string& text) {
  const std::string line = row + "\t" + text + "\n";
  std::fputs(line.c_str(), stdout);
  if (Results() == nullptr) return;
  std::fputs(line.c_str(), Results());
  std::fflush(Results());
}

// CpuSeconds returns the processor time of all threads of this process.
double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Clients::SetUp() {
#if defined(GUMP_TSAN)
  Skip("hooks do nothing under ThreadSanitizer");
#endif
  Peers::SetUp();
  // As in all programs with such clients: a write to a server that has died is
  // an error of the call.
  std::signal(SIGPIPE, SIG_IGN);
}

void Clients::TearDown() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  Result(test->name(), HasFailure() ? "fails" : shown_);
}

void Clients::About(const std::string& client, const std::string& server,
                    const std::string& way) {
  Result("client", client);
  Result("server", server);
  Result("way", way);
}

void Skip(const std::string& reason) {
  std::printf("skipped: %s\n", reason.c_str());
  std::fflush(stdout);
  _exit(77);
}

// ---- Servers ----------------------------------------------------------------

std::vector<std::string> AsUser(const std::string& user,
                                std::vector<std::string> command) {
  if (user.empty() || getuid() != 0) return command;
  std::vector<std::string> all = {"setpriv", "--reuid=" + user,
                                  "--regid=" + user, "--clear-groups", "--"};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

void RunToEnd(std::vector<std::string> command) {
  const std::string program = command[0];
  command.erase(command.begin());
  std::string said;
  EXPECT_EQ(exec::Cmd(program, command).CombinedOutput(&said), absl::OkStatus())
      << said;
}

std::string ProgramIn(const std::string& pattern) {
  glob_t found;
  std::string path;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    path = found.gl_pathv[found.gl_pathc - 1];
  }
  globfree(&found);
  return path;
}

// The guard is a shell that waits for the end of its input. The input ends when
// this process closes it, or dies.
LocalServer::LocalServer(const std::vector<std::string>& command,
                         const std::string& user)
    : program_(AsUser(user, command)),
      guard_("sh", "-c", absl::StrCat("read x; kill -KILL ", program_.Pid())),
      life_(Ready(guard_.StdinPipe())) {
  EXPECT_EQ(guard_.Start(), absl::OkStatus());
}

LocalServer::~LocalServer() {
  if (!ended_) Kill();
}

void LocalServer::Kill() {
  ended_ = true;
  // The guard ends first, so it never kills another process that has got the
  // number of the server.
  EXPECT_EQ(guard_.Kill(), absl::OkStatus());
  guard_.Wait().IgnoreError();  // "signal: killed"
  (void)program_.Stop(SIGKILL);
}

WebServer::WebServer(Transport transport)
    : transport_(transport), server_(Command()) {
  server_.Says("listening");
}

std::string WebServer::Url(const std::string& path) const {
  return absl::StrCat(transport_ == Transport::kTls ? "https" : "http",
                      "://127.0.0.1:", port_.Port(), path);
}

std::vector<std::string> WebServer::Command() {
  std::vector<std::string> command = {
      "python3",
      std::string(std::getenv("GUMP_CLIENT_TESTS")) + "/web_server.py",
      absl::StrCat(port_.Port())};
  if (transport_ == Transport::kPlain) return command;
  const std::string key = dir_ / "key.pem";
  OutputOf("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
           "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out",
           Certificate(), "-days", "2", "-subj", "/CN=localhost", "-addext",
           "subjectAltName=DNS:localhost,IP:127.0.0.1");
  command.push_back(Certificate());
  command.push_back(key);
  return command;
}

// ---- C: a crowd -------------------------------------------------------------

int ThreadCount() {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return INT_MAX;
  int n = 0;
  while (const dirent* e = readdir(tasks)) n += e->d_name[0] != '.' ? 1 : 0;
  closedir(tasks);
  return n;
}

namespace {

struct Load {
  double wall = 0;
  double cpu = 0;
};

// Quietest returns the least load of all times of that length, in percent, or
// -1 if there is none. So the time in which the calls begin does not count: a
// client's threads may still send requests then.
double Quietest(const std::vector<Load>& loads, double length) {
  double least = -1;
  for (size_t from = 0, to = 0; to < loads.size(); to++) {
    while (from < to && loads[to].wall - loads[from + 1].wall >= length) {
      from++;
    }
    const double wall = loads[to].wall - loads[from].wall;
    if (wall < length) continue;
    const double load = 100 * (loads[to].cpu - loads[from].cpu) / wall;
    if (least < 0 || load < least) least = load;
  }
  return least;
}

// Throng is the goroutines of a crowd.
class Throng {
 public:
  Throng(int n, const std::function<Waits(int)>& connect, Goroutines kind) {
    for (int i = 0; i < n; i++) gates_.push_back(make_chan<int>(1));
    for (int i = 0; i < n; i++) {
      const auto life = [this, i, &connect] {
        Live(connect(i), gates_[static_cast<size_t>(i)]);
        all_.Done();
      };
      all_.Add(1);
      if (kind == Goroutines::kHooked) {
        hooks::Go(life);
      } else {
        go(life);
      }
    }
  }
  ~Throng() {
    for (chan<int>& gate : gates_) gate.Close();
    all_.Wait();
  }

  // AwaitReady waits until all have a client, and samples meanwhile.
  void AwaitReady(CrowdFigures* f) {
    while (ready_ < Size()) Sample(f);
  }

  // Round makes all wait, and returns whether all waited at the same time for
  // half of the time.
  bool Round(int seconds, CrowdFigures* f) {
    begun_ = 0;
    done_ = 0;
    const double start = Seconds();
    for (chan<int>& gate : gates_) gate.Send(seconds);
    std::vector<Load> loads;  // taken while all wait
    while (done_ < Size()) {
      Sample(f);
      const Load now = {Seconds(), CpuSeconds()};
      if (begun_ == Size() && done_ == 0) loads.push_back(now);
    }
    f->seconds = Seconds() - start;
    f->waited = seconds;
    f->cpu = Quietest(loads, seconds / 2.0);
    return f->cpu >= 0;
  }

 private:
  int Size() const { return static_cast<int>(gates_.size()); }

  void Live(const Waits& waits, chan<int> gate) {
    ready_++;
    while (const std::optional<int> seconds = gate.Recv()) {
      begun_++;
      waits(*seconds);
      done_++;
    }
  }

  static void Sample(CrowdFigures* f) {
    f->threads = std::max(f->threads, ThreadCount());
    // A sample takes 200 µs of the processor, and must not count for much.
    time::Sleep(absl::Milliseconds(50));
  }

  std::vector<chan<int>> gates_;
  std::atomic<int> ready_ = 0;
  std::atomic<int> begun_ = 0;
  std::atomic<int> done_ = 0;
  sync::WaitGroup all_;
};

}  // namespace

std::string CrowdFigures::Text() const {
  return absl::StrFormat("%d threads, %.1f %% CPU, %.2f s for a wait of %d s",
                         threads, cpu, seconds, waited);
}

CrowdFigures Crowd(int n, const std::function<Waits(int)>& connect,
                   Goroutines kind) {
  CrowdFigures f;
  Throng throng(n, connect, kind);
  throng.AwaitReady(&f);
  constexpr int kLongest = 32;
  for (int seconds = 1; seconds <= kLongest; seconds *= 2) {
    if (throng.Round(seconds, &f)) return f;
  }
  ADD_FAILURE() << "in no round did all wait at the same time";
  return f;
}

void ExpectFewThreads(const CrowdFigures& f, int own) {
  constexpr int kThreads = 20;
  constexpr double kCpu = 2;
  EXPECT_LE(f.threads, kThreads + own);
  EXPECT_LE(f.cpu, kCpu);
  // On so few threads a thousand calls that block would take far longer.
  EXPECT_LE(f.seconds, 30.0 * f.waited);
}

// ---- F: faults --------------------------------------------------------------

void ExpectAllDie(LocalServer& server, int n,
                  const std::function<std::function<bool()>(int)>& connect) {
  std::atomic<int> ready = 0;
  std::atomic<int> died = 0;
  chan<void> done = make_chan<void>(1);
  go([&] {
    InHooked(n, [&](int i) {
      const std::function<bool()> fails = connect(i);
      ready++;
      died += fails() ? 1 : 0;
    });
    done.Send();
  });
  EXPECT_TRUE(Eventually([&] { return ready == n; }));
  server.Kill();
  done.Recv();
  EXPECT_EQ(died, n);
}

RudeServer::RudeServer(Manner manner)
    : manner_(manner),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* address = reinterpret_cast<sockaddr*>(&at);
  socklen_t size = sizeof(at);
  EXPECT_EQ(bind(listener_, address, size), 0);
  EXPECT_EQ(listen(listener_, SOMAXCONN), 0);
  EXPECT_EQ(getsockname(listener_, address, &size), 0);
  port_ = ntohs(at.sin_port);
  EXPECT_EQ(pipe2(stop_, O_CLOEXEC), 0);
  thread_ = KnownThread([this] { Serve(); });
}

RudeServer::~RudeServer() {
  close(stop_[1]);
  blocking([this] { thread_.join(); });
  close(stop_[0]);
}

void RudeServer::Serve() {
  std::vector<pollfd> fds = {{stop_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
  for (;;) {
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[0].revents != 0) break;
    for (size_t i = 2; i < fds.size(); i++) {
      if (fds[i].revents == 0) continue;
      char buf[4096];
      const ssize_t n = recv(fds[i].fd, buf, sizeof(buf), 0);
      if (n > 0 && manner_ == Manner::kIsSilent) continue;
      if (n > 0 && manner_ == Manner::kEchoes) {
        EXPECT_EQ(send(fds[i].fd, buf, static_cast<size_t>(n), 0), n);
        continue;
      }
      const linger reset{1, 0};
      if (manner_ == Manner::kResets) {
        setsockopt(fds[i].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
      }
      close(fds[i].fd);
      fds[i].fd = -1;
    }
    if (fds[1].revents != 0) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) fds.push_back({fd, POLLIN, 0});
    }
    std::erase_if(fds, [](const pollfd& p) { return p.fd < 0; });
  }
  for (size_t i = 1; i < fds.size(); i++) close(fds[i].fd);
}

// ---- M: mixed load ----------------------------------------------------------

struct Unrest::State {
  std::atomic<bool> stop = false;
  std::atomic<int> stops = 0;
  std::atomic<int> children = 0;
  std::atomic<int> dumps = 0;
  int procs = runtime::GOMAXPROCS(0);
  sync::WaitGroup all;
};

Unrest::Unrest() : state_(std::make_unique<State>()) {
  State* s = state_.get();
  constexpr int kHogs = 2;
  for (int i = 0; i < kHogs; i++) {
    s->all.Go([s] {
      while (!s->stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  s->all.Go([s] {
    while (!s->stop) {
      runtime::GOMAXPROCS(1 + s->stops++ % 2);
      time::Sleep(absl::Milliseconds(5));
    }
  });
  s->all.Go([s] {
    while (!s->stop) {
      EXPECT_EQ(exec::Cmd("true").Run(), absl::OkStatus());
      runtime::GC();
      s->children++;
    }
  });
  s->all.Go([s] {
    while (!s->stop) {
      EXPECT_FALSE(runtime::Stack(/*all=*/true).empty());
      s->dumps++;
      time::Sleep(absl::Milliseconds(10));
    }
  });
}

Unrest::~Unrest() {
  // Each kind of unrest must have come, or the test has shown nothing.
  State* s = state_.get();
  EXPECT_TRUE(Eventually(
      [s] { return s->stops > 1 && s->children > 0 && s->dumps > 0; }));
  s->stop = true;
  s->all.Wait();
  runtime::GOMAXPROCS(s->procs);
}

void InHooked(int n, const std::function<void(int)>& f) {
  sync::WaitGroup all;
  all.Add(n);
  for (int i = 0; i < n; i++) {
    hooks::Go([&all, &f, i] {
      f(i);
      all.Done();
    });
  }
  all.Wait();
}

// ---- D: differential --------------------------------------------------------

size_t ExpectSame(const std::function<Transcript()>& calls, Goroutines kind) {
  Transcript on_thread;
  Transcript here;
  std::thread thread = KnownThread([&] { on_thread = calls(); });
  blocking([&] { thread.join(); });
  if (kind == Goroutines::kHooked) {
    InHooked(1, [&](int) { here = calls(); });
  } else {
    here = calls();
  }
  EXPECT_EQ(here.size(), on_thread.size());
  for (size_t i = 0; i < std::min(here.size(), on_thread.size()); i++) {
    EXPECT_EQ(here[i], on_thread[i]) << "in line " << i;
  }
  EXPECT_FALSE(here.empty());
  return here.size();
}

}  // namespace gump::testing
