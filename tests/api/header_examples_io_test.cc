// Like header_examples_test.cc, for the headers that deal with the outside
// world, with time or with versions.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gump/gump.h"
#include "gump/hooks.h"
#include "tests/testing/wall_now.h"
#include "tests/testing/with_gomaxprocs.h"

namespace examples {

using namespace gump;
using namespace std::chrono_literals;

namespace hooks_h {
struct Result {
  int rows = 0;
};
struct Client {
  explicit Client(const char* /*host*/) {}
  Result Query(const char* /*sql*/) { return {++queries}; }
  static inline std::atomic<int> queries{0};
};
void ManyClients(sync::WaitGroup& all) {
  for (int i = 0; i < 1000; i++) {
    all.Go([] {
      gump::hooks::Scope scope;
      Client c("127.0.0.1");          // any client, unmodified
      c.Query("SELECT pg_sleep(1)");  // parks in poll
    });
  }
}
int OneCall(Client& c, const char* sql) {
  Result r = gump::hooks::Hooked([&] { return c.Query(sql); });
  return r.rows;
}
TEST(HeaderExamples, Hooks) {
  gump::Run([] {
    sync::WaitGroup all;
    ManyClients(all);
    all.Wait();
    Client c("localhost");
    EXPECT_EQ(OneCall(c, "SELECT 1"), 1001);
  });
}
}  // namespace hooks_h

namespace context_h {
int got = 0;
int Compute() { return 42; }
void Log(const absl::Status& s) { ADD_FAILURE() << s; }

void Ask(const context::Context& parent) {
  auto answer = make_chan<int>();
  auto [ctx, cancel] = context::WithTimeout(parent, absl::Seconds(2));
  defer _{cancel};  // frees the context's resources
  go([ctx = ctx, answer] {
    select(Send(answer, Compute()), Recv(ctx.Done()));  // never stuck
  });
  select(Recv(answer, [](int v) { got = v; }),
         Recv(ctx.Done(), [&ctx = ctx] { Log(ctx.Err()); }));
}

void Values(context::Context ctx) {
  const context::Key<std::string> kUser;
  ctx = context::WithValue(ctx, kUser, "gopher");
  if (const std::string* user = ctx.Value(kUser)) {
    EXPECT_EQ(*user, "gopher");
    return;
  }
  ADD_FAILURE() << "no value";
}

void Causes(const context::Context& parent) {
  auto [ctx, cancel] = context::WithCancelCause(parent);
  cancel(absl::DataLossError("checksum"));
  absl::Status err = ctx.Err();              // Cancelled "context canceled"
  absl::Status cause = context::Cause(ctx);  // DataLoss "checksum"
  EXPECT_EQ(err, absl::CancelledError("context canceled"));
  EXPECT_EQ(cause, absl::DataLossError("checksum"));
}

struct Conn {
  void Close() const { closed.Close(); }
  chan<void> closed = make_chan<void>();
};
void Serve(const context::Context& ctx, const Conn& conn) {
  auto stop = context::AfterFunc(ctx, [conn] { conn.Close(); });
  defer _{stop};
  conn.closed.Recv();
}

void Serve(const context::Context& ctx) { ctx.Done().Recv(); }
void StopTokens() {
  std::jthread server([](std::stop_token stop) {
    auto [ctx, cancel] = context::WithStopToken(context::Background(), stop);
    defer _{cancel};
    Serve(ctx);
  });
}

std::atomic<int> steps;
void Step() { steps++; }
void Compute(const context::Context& ctx) {
  std::stop_token stop = context::StopToken(ctx);
  while (!stop.stop_requested()) Step();
}

void Main() {
  StopTokens();
  Ask(context::Background());
  EXPECT_EQ(got, 42);
  Values(context::Background());
  Causes(context::Background());
  auto [ctx, cancel] = context::WithCancel(context::Background());
  go(cancel);
  Compute(ctx);
  Serve(ctx, Conn());
}
}  // namespace context_h

namespace debug_h {
bool served = false;
std::string address;

void Serve() {
  const absl::StatusOr<net::Conn> conn = net::Dial("tcp", address);
  ASSERT_TRUE(conn.ok());
  (void)conn->Write("HEAD /metrics HTTP/1.0\r\n\r\n");
  char b[64];
  const absl::StatusOr<size_t> n = conn->Read(absl::MakeSpan(b));
  served = n.ok() && std::string_view(b, *n).starts_with("HTTP/1.1 200 OK");
  (void)conn->Close();
}

void ServeAndDebug(const net::Listener& pages) {  // at 127.0.0.1:6060
  sync::WaitGroup serving;
  serving.Go([pages] { (void)debug::ServeHTTP(pages); });
  Serve();
  (void)pages.Close();
  serving.Wait();
}

void Main() {
  const absl::StatusOr<net::Listener> l = net::Listen("tcp", "127.0.0.1:0");
  ASSERT_TRUE(l.ok());
  address = l->LocalAddr().String();
  ServeAndDebug(*l);
  EXPECT_TRUE(served);
}
}  // namespace debug_h

namespace exec_h {
absl::StatusOr<std::string> Sort() {
  std::string sorted;
  exec::Cmd cmd("sort", "-n");
  absl::StatusOr<os::File> in = cmd.StdinPipe();
  absl::StatusOr<os::File> out = cmd.StdoutPipe();
  if (absl::Status s = cmd.Start(); !s.ok()) return s;
  go([in = *in] {
    in.Write("3\n1\n2\n").IgnoreError();
    in.Close().IgnoreError();
  });
  char buf[64];
  while (size_t n = out->Read(buf).value_or(0)) sorted.append(buf, n);
  if (absl::Status s = cmd.Wait(); !s.ok()) return s;  // "exit status 2"
  return sorted;
}

void Tar(const std::string& path) {
  exec::Cmd cmd("tar", "-xf", path);
  exec::Cmd same("tar", std::vector<std::string>{"-xf", path});
  const absl::Status s = cmd.Run();
  EXPECT_FALSE(s.ok()) << "there is no such file, or no tar";
  EXPECT_EQ(s, same.Run());
}

void Main() {
  EXPECT_EQ(*Sort(), "1\n2\n3\n");

  absl::StatusOr<std::string> date = exec::Cmd("date", "-u").Output();
  EXPECT_TRUE(date.ok());

  const context::Context parent = context::Background();
  auto [ctx, cancel] = context::WithTimeout(parent, absl::Seconds(5));
  absl::Status s = exec::CommandContext(ctx, "make").Run();
  EXPECT_FALSE(s.ok());  // there is nothing to make, or no make
  cancel();
  Tar("gump.tar");
}
}  // namespace exec_h

namespace go_h {
void Main() {
  int fd = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  char buf[16];
  ssize_t n = gump::blocking([&] { return ::read(fd, buf, sizeof buf); });
  EXPECT_EQ(n, 16);
  ::close(fd);
}
}  // namespace go_h

namespace net_h {
void Echo(const net::Conn& conn) {
  char buf[4096];
  for (;;) {
    absl::StatusOr<size_t> n = conn.Read(buf);
    if (!n.ok() || *n == 0) return;  // the last handle closes
    if (!conn.Write({buf, *n}).ok()) return;
  }
}

// The port of echo belongs to root, and may be taken. The test is that this
// compiles.
[[maybe_unused]] absl::Status Serve() {
  absl::StatusOr<net::Listener> l = net::Listen("tcp", ":7");
  if (!l.ok()) return l.status();
  for (;;) {
    absl::StatusOr<net::Conn> c = l->Accept();
    if (!c.ok()) return c.status();
    go([conn = *c] { Echo(conn); });
  }
}

[[maybe_unused]] absl::Status ServePackets() {
  absl::StatusOr<net::PacketConn> socket = net::ListenPacket("udp", ":7");
  if (!socket.ok()) return socket.status();
  char buf[1500];
  for (;;) {
    auto packet = socket->ReadFrom(buf);
    if (!packet.ok()) return packet.status();
    socket->WriteTo({buf, packet->n}, packet->from).IgnoreError();
  }
}

[[maybe_unused]] absl::Status Ask() {
  absl::StatusOr<net::Conn> c = net::Dial("tcp", "localhost:6379");
  if (!c.ok())
    return c.status();  // "dial tcp 127.0.0.1:6379: connect:
                        // connection refused"
  return c->Close();
}

void Say(const net::Listener& listener) {
  net::Addr at = listener.LocalAddr();
  std::printf("listening on %s\n", at.String().c_str());  // "[::]:8080"
}

void Main() {
  auto [here, there] = *net::Pipe();
  go([there = std::move(there)] { Echo(there); });
  EXPECT_TRUE(here.Write("ping").ok());
  char answer[4];
  EXPECT_EQ(*here.Read(answer), 4u);
  EXPECT_TRUE(here.Close().ok());
  Say(*net::Listen("tcp", "127.0.0.1:0"));
  const context::Context ctx = context::Background();
  absl::StatusOr<std::vector<std::string>> hosts =
      net::LookupHost(ctx, "localhost");  // "::1", "127.0.0.1"
  EXPECT_TRUE(hosts.ok()) << hosts.status();
}
}  // namespace net_h

namespace os_h {
absl::Status ReadTwice() {
  absl::StatusOr<os::File> f = os::Open("/etc/hostname");
  if (!f.ok())
    return f.status();  // NotFound: "open /etc/hostname: no such
                        // file or directory"
  char buf[512];
  absl::StatusOr<size_t> n = f->Read(buf);  // 0 at the end

  absl::StatusOr<std::string> all = os::ReadFile("/etc/hostname");
  EXPECT_EQ(all->substr(0, *n), std::string_view(buf, *n));
  return absl::OkStatus();
}

absl::Status Look(const os::File& f) {
  absl::StatusOr<os::FileInfo> info = f.Stat();
  if (info.ok() && info->IsDir()) return absl::OkStatus();
  return absl::NotFoundError("no directory");
}

void ReadFrom(int fd) {
  char c;
  EXPECT_EQ(::read(fd, &c, 1), 1);
}

absl::Status Wait(int sock, int pipe) {
  pollfd p[] = {{sock, POLLIN, 0}, {pipe, POLLIN, 0}};
  absl::StatusOr<int> n = os::Poll(p, absl::Milliseconds(250));
  if (!n.ok()) return n.status();
  if (*n == 0) return absl::DeadlineExceededError("no answer");
  if ((p[0].revents & POLLIN) != 0) ReadFrom(sock);
  return absl::OkStatus();
}

void WaitTwice() {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  EXPECT_EQ(::write(fds[1], "x", 1), 1);
  EXPECT_TRUE(Wait(fds[0], -1).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(Wait(-1, fds[0])));
  ::close(fds[0]);
  ::close(fds[1]);
}

void Main() {
  WaitTwice();
  EXPECT_TRUE(Look(*os::Open("/")).ok());
  absl::StatusOr<std::pair<os::File, os::File>> p = os::Pipe();
  auto& [r, w] = *p;
  EXPECT_TRUE(w.Write("x").ok());
  EXPECT_TRUE(w.Close().ok());
  char buf[8];
  EXPECT_EQ(*r.Read(buf), 1u);
  const absl::Status s = ReadTwice();
  EXPECT_TRUE(s.ok() || absl::IsNotFound(s)) << s;
}
}  // namespace os_h

namespace signal_h {
void Serve(const context::Context& ctx) {
  ::raise(SIGINT);
  ctx.Done().Recv();
}
void UntilInterrupted() {
  auto [ctx, stop] = signal::NotifyContext(context::Background(), {SIGINT});
  defer _{stop};
  Serve(ctx);  // until the user presses ^C
}

void Main() {
  static auto stopped = make_chan<int>();
  chan<int> signals = make_chan<int>(1);
  signal::Notify(signals, {SIGINT, SIGTERM});
  go([signals] {
    int sig = *signals.Recv();
    stopped.Send(sig);
  });
  ::raise(SIGTERM);
  EXPECT_EQ(stopped.Recv(), SIGTERM);
  signal::Stop(signals);
  UntilInterrupted();
}
}  // namespace signal_h

namespace status_h {
bool missing = false;

absl::Status SendAll(const os::File& w, std::string_view data) {
  absl::StatusOr<size_t> n = w.Write(data);
  if (!n.ok()) data.remove_prefix(gump::BytesWritten(n.status()));
  return data.size() == 2 ? n.status() : absl::OkStatus();
}

void Main() {
  absl::StatusOr<os::File> f = os::Open("/etc/gumption");
  if (gump::Errno(f.status()) == ENOENT) {
    missing = true;
  }
  EXPECT_TRUE(missing);
  absl::StatusOr<std::pair<os::File, os::File>> p = os::Pipe();
  EXPECT_TRUE(p->second.Close().ok());
  EXPECT_FALSE(SendAll(p->second, "hi").ok());
}
}  // namespace status_h

namespace synctest_h {
// Client gives up a call after an hour.
struct Client {
  static void Call(std::function<void()> give_up) {
    time::AfterFunc(absl::Hours(1), std::move(give_up));
  }
};

TEST(Client, GivesUpAfterAnHour) {
  gump::Run([] {
    gump::synctest::Run([] {
      Client client;
      auto gave_up = gump::make_chan<void>();
      client.Call([gave_up] { gave_up.Close(); });
      gump::synctest::Sleep(absl::Minutes(59));  // takes microseconds
      EXPECT_EQ(gave_up.TryRecv().kind, gump::RecvResult<void>::kEmpty);
      gump::synctest::Sleep(absl::Minutes(1));
      EXPECT_EQ(gave_up.TryRecv().kind, gump::RecvResult<void>::kClosed);
    });
  });
}

// Cache has one entry, and drops it after a while.
struct Cache {
  void Put(std::string k, std::string v, absl::Duration keep) {
    entry = {std::move(k), std::move(v)};
    gump::go([this, keep] {
      gump::time::Sleep(keep);
      entry = {};
    });
  }
  bool Has(const std::string& k) const { return entry.first == k; }
  std::pair<std::string, std::string> entry;
};

TEST(SynctestTest, CacheDropsAnEntry) {
  Cache cache;
  const std::string key = "k";
  const std::string value = "v";
  gump::Run([&] {
    gump::synctest::Run([&] {
      cache.Put(key, value, absl::Minutes(5));
      gump::synctest::Sleep(absl::Minutes(5));
      EXPECT_FALSE(cache.Has(key));  // the cache has dropped it by now
    });
  });
}
}  // namespace synctest_h

namespace time_h {
bool timed_out = false;
bool in_time = false;
int got = 0;

void InTime() {
  auto timer = gump::time::NewTimer(absl::Seconds(1));
  EXPECT_FALSE(in_time);
  if (timer.Stop()) {
    in_time = true;
  }  // in time
  EXPECT_TRUE(in_time);
}

void Later() {
  auto c = make_chan<void>();
  gump::time::AfterFunc(absl::Seconds(1), [c] { c.Close(); });
  EXPECT_FALSE(c.Recv());
}

void Main() {
  auto c = make_chan<int>();
  gump::time::Sleep(absl::Milliseconds(10));
  gump::time::Sleep(std::chrono::milliseconds(10));  // the same

  select(Recv(c, [](int v) { got = v; }),
         Recv(gump::time::After(absl::Seconds(1)),
              [] { timed_out = true; }));  // time out
  EXPECT_TRUE(timed_out);
  EXPECT_EQ(got, 0);

  gump::time::Ticker ticker = gump::time::NewTicker(1s);
  for (absl::Time t : ticker.C) {
    EXPECT_LE(t, gump::testing::WallNow());
    break;
  }

  InTime();
  synctest::Run(Later);
}
}  // namespace time_h

namespace version_h {
void Main() {
  std::printf("built with %s, runs with %s\n", GUMP_VERSION_STRING,
              gump::LibraryVersion());
  EXPECT_STREQ(gump::LibraryVersion(), GUMP_VERSION_STRING);
  EXPECT_EQ(gump::LibraryVersionNumber(), GUMP_VERSION);
}
}  // namespace version_h

TEST(HeaderExamplesTest, WorkAsDocumented) {
  for (void (*example)() : {context_h::Main, debug_h::Main, exec_h::Main,
                            go_h::Main, net_h::Main, os_h::Main, signal_h::Main,
                            status_h::Main, time_h::Main, version_h::Main}) {
    gump::testing::RunWith(2, example);
  }
}

}  // namespace examples
