// The examples at the head of the public headers, as they stand there. The code
// that a reader copies compiles, and does as the header says. Around each
// example is the code that it leaves out. tools/lint/check_examples.py compares
// the two.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "gump/gump.h"
#include "tests/testing/with_gomaxprocs.h"

namespace examples {

using namespace gump;

namespace barrier_h {
const int workers = 3;
const int rounds = 4;

void Compute(const std::vector<int>& now, std::vector<int>& next, int w) {
  const auto at = static_cast<size_t>(w);
  next[at] = now[at] + now[(at + 1) % now.size()];
}

void Main() {
  std::vector<int> now = {1, 1, 1};
  std::vector<int> next(3);
  sync::WaitGroup wg;
  sync::Barrier round(workers, [&]() noexcept { std::swap(now, next); });
  for (int w = 0; w < workers; w++) {
    wg.Go([&, w] {
      for (int i = 0; i < rounds; i++) {
        Compute(now, next, w);
        round.arrive_and_wait();  // may park
      }
    });
  }
  wg.Wait();
  EXPECT_EQ(now, (std::vector<int>{16, 16, 16}));
}
}  // namespace barrier_h

namespace chan_h {
void Main() {
  gump::chan<int> c = gump::make_chan<int>(16);  // or (), unbuffered
  gump::go([c] {
    for (int i = 0; i < 100; i++) c.Send(i);
    c.Close();
  });
  int sum = 0;
  for (int v : c) sum += v;  // until closed and drained
  EXPECT_EQ(sum, 4950);
}
}  // namespace chan_h

namespace co_h {
co::task<int> Total(chan<int> c) {
  int sum = 0;
  while (std::optional<int> v = co_await co::Recv(c)) sum += *v;
  co_return sum;
}

co::task<int> Count(chan<int> c) {
  int n = 0;
  while (co_await co::Recv(c)) n++;
  co_return n;
}

co::task<int> Twice(chan<int> c) {
  int n = co_await Count(c);
  co::task<int> t = Count(c);
  int m = co_await std::move(t);
  co_return n + m;
}

std::string ReadAll(int file) { return std::to_string(file); }

co::task<bool> Stopped(chan<int> c, context::Context ctx) {
  int file = 3;
  std::string text = co_await co::Go([&] { return ReadAll(file); });
  EXPECT_EQ(text, "3");
  bool stop = false;
  gump::select(gump::Recv(c, [&](int v) { EXPECT_EQ(v, 0); }),
               gump::Recv(ctx.Done(), [&] { stop = true; }));
  co_return stop;
}

co::task<std::pair<int, int>> Fetch(const std::string& url) {
  co_return std::pair(1, static_cast<int>(url.size()));
}

void Main() {
  chan<int> c = make_chan<int>();
  go([c] {
    for (int i : {1, 2, 3}) c.Send(i);
    c.Close();
  });
  int total = co::Wait(Total(c));  // a goroutine parks, a thread blocks
  EXPECT_EQ(total, 6);
  EXPECT_EQ(co::Wait(Twice(c)), 0);
  auto [ctx, cancel] = context::WithCancel(context::Background());
  cancel();
  EXPECT_TRUE(co::Wait(Stopped(make_chan<int>(), ctx)));
  const std::string url = "gump";
  auto [a, b] = co::Wait(Fetch(url));
  EXPECT_EQ(a + b, 5);
}
}  // namespace co_h

namespace cond_h {
using Job = std::unique_ptr<int>;

sync::Mutex mu;
sync::Cond changed{mu};
std::deque<Job> jobs;  // guarded by mu

void Put(Job j) {
  std::scoped_lock hold(mu);
  jobs.push_back(std::move(j));
  changed.Signal();
}
Job Take() {
  std::scoped_lock hold(mu);
  changed.Wait([&] { return !jobs.empty(); });
  Job j = std::move(jobs.front());
  jobs.pop_front();
  return j;
}
absl::Status Await(const context::Context& ctx) {
  std::scoped_lock hold(mu);
  if (absl::Status s = changed.Wait(ctx, [&] { return !jobs.empty(); });
      !s.ok()) {
    return s;  // with mu locked, as ever
  }
  return absl::OkStatus();
}
std::optional<Job> TakeSoon() {
  std::scoped_lock hold(mu);
  if (!changed.WaitFor(absl::Seconds(1), [&] { return !jobs.empty(); })) {
    return std::nullopt;  // with mu locked, as always
  }
  Job j = std::move(jobs.front());
  jobs.pop_front();
  return j;
}

void Main() {
  Put(std::make_unique<int>(8));
  EXPECT_EQ(**TakeSoon(), 8);
  go([] { Put(std::make_unique<int>(7)); });
  EXPECT_EQ(*Take(), 7);
  auto [ctx, cancel] = context::WithCancel(context::Background());
  cancel();
  EXPECT_TRUE(absl::IsCancelled(Await(ctx)));
  Put(nullptr);
  EXPECT_TRUE(Await(ctx).ok());
}
}  // namespace cond_h

namespace defer_h {
void Main() {
  sync::Mutex mu;
  {
    mu.Lock();
    defer _{[&] { mu.Unlock(); }};
    EXPECT_FALSE(mu.TryLock());
  }
  EXPECT_TRUE(mu.TryLock());
  mu.Unlock();
}
}  // namespace defer_h

namespace errgroup_h {
absl::Status Fetch(const std::string& url) {
  return url.empty() ? absl::NotFoundError("no URL") : absl::OkStatus();
}

absl::Status FetchAll(const std::vector<std::string>& urls) {
  sync::ErrGroup group;
  group.SetLimit(8);  // at a time; optional
  for (const std::string& url : urls) {
    group.Go([&url] { return Fetch(url); });  // an absl::Status
  }
  absl::Status s = group.Wait();  // all have returned
  return s;
}

absl::Status Serve(const context::Context& ctx) {
  ctx.Done().Recv();
  return ctx.Err();
}
absl::Status ServeUnder(const context::Context& parent) {
  auto [group, ctx] = sync::ErrGroup::WithContext(parent);
  group.Go([&ctx = ctx] { return Serve(ctx); });
  return group.Wait();
}

void Main() {
  auto [parent, cancel] = context::WithCancel(context::Background());
  go(cancel);
  EXPECT_TRUE(absl::IsCancelled(ServeUnder(parent)));
  EXPECT_TRUE(FetchAll({"a", "b"}).ok());
  EXPECT_EQ(FetchAll({"a", ""}).message(), "no URL");
}
}  // namespace errgroup_h

namespace event_h {
std::atomic<int> done = 0;
void DoAllWork() { done++; }

int Read() { return 1; }
std::optional<int> ReadUnlessClosed(sync::Event& readable,
                                    sync::Event& closed) {
  switch (sync::WaitAny({&readable, &closed})) {
    case 0:
      return Read();
    case 1:
      return std::nullopt;
  }
  return -1;
}

void Main() {
  sync::Event work(sync::Event::Mode::kAuto);
  sync::Event stop(sync::Event::Mode::kManual);
  sync::WaitGroup wg;
  wg.Go([&] {
    while (sync::WaitAny({&stop, &work}) != 0) {  // may park
      DoAllWork();
    }
  });
  work.Set();
  while (done == 0) runtime::Gosched();
  stop.Set();
  wg.Wait();
  EXPECT_EQ(ReadUnlessClosed(work, stop), std::nullopt);
}
}  // namespace event_h

namespace gls_h {
struct Node {
  std::vector<Node> children;
};
int deepest = 0;

gump::gls<int> depth{0};
void Visit(const Node& n) {
  ++*depth;  // this goroutine's own
  defer _{[] { --*depth; }};
  deepest = std::max(deepest, *depth);
  for (const Node& child : n.children) Visit(child);
}

void Main() {
  *depth = 100;
  auto done = make_chan<void>();
  go([done] {
    Visit({{Node{}, Node{{Node{}}}}});
    done.Close();
  });
  done.Recv();
  EXPECT_EQ(deepest, 3);
}
}  // namespace gls_h

namespace go_h {
int main() {
  return gump::Run([] {
    auto c = gump::make_chan<int>();
    gump::go([c] { c.Send(42); });
    std::printf("%d\n", *c.Recv());
  });
}

void Compute() { EXPECT_EQ(std::fegetround(), FE_UPWARD); }
void ComputeRoundingUp() {
  std::fesetround(FE_UPWARD);
  gump::Run([] { Compute(); });  // rounds up
  std::fesetround(FE_TONEAREST);
}

chan<std::string> parsed;
void Parse(const std::string& text) { parsed.Send("parsed " + text); }

void Main() {
  static const auto c = make_chan<int>();
  auto compute = [] { return 7; };
  gump::go([&] { c.Send(compute()); });
  EXPECT_EQ(c.Recv(), 7);

  parsed = make_chan<std::string>();
  const std::string text = "text";
  gump::go(gump::GoOptions{.stack_size = 1 << 20, .name = "parser"}, Parse,
           text);
  EXPECT_EQ(parsed.Recv(), "parsed text");
}
}  // namespace go_h

namespace latch_h {
std::atomic<int> parts = 0;
void LoadUsers() { parts++; }
void LoadPrices() { parts++; }

void Main() {
  sync::Latch loaded(2);
  go([&] {
    LoadUsers();
    loaded.count_down();
  });
  go([&] {
    LoadPrices();
    loaded.count_down();
  });
  loaded.wait();  // both are loaded; may park
  EXPECT_EQ(parts, 2);
}
}  // namespace latch_h

namespace list_h {
struct Watcher {
  explicit Watcher(chan<std::string> c) : to(std::move(c)) {}
  void Tell(const std::string& news) const { to.Send(news); }
  chan<std::string> to;
};

void Main() {
  const std::string news = "spring";
  auto c = make_chan<std::string>(1);
  sync::List<Watcher> watchers;
  sync::List<Watcher>::Element me = watchers.PushBack(Watcher(c));
  watchers.Range([&](Watcher& w) { w.Tell(news); });
  watchers.Remove(me);
  EXPECT_EQ(c.Recv(), news);
}
}  // namespace list_h

namespace map_h {
int sum = 0;

void Main() {
  sync::Map<std::string, int> hits;
  hits.Store("/", 1);
  if (std::optional<int> n = hits.Load("/")) std::printf("%d\n", *n);
  auto [value, loaded] = hits.LoadOrStore("/about", 7);
  hits.Range([](const std::string& k, int n) {
    if (!k.empty()) sum += n;
    return true;
  });
  EXPECT_EQ(value, 7);
  EXPECT_FALSE(loaded);
  EXPECT_EQ(sum, 8);
}
}  // namespace map_h

namespace metrics_h {
void Main() {
  metrics::Sample samples[] = {{"/sched/goroutines:goroutines", {}},
                               {"/sched/latencies:seconds", {}}};
  metrics::Read(absl::MakeSpan(samples));
  std::printf("%d goroutines\n", static_cast<int>(samples[0].value.Uint64()));
  const metrics::Float64Histogram& h = samples[1].value.Histogram();
  for (size_t i = 0; i < h.counts.size(); i++) {
    if (h.counts[i] == 0) continue;
    std::printf("%d waited for %g s or more, and less than %g s\n",
                static_cast<int>(h.counts[i]), h.buckets[i], h.buckets[i + 1]);
  }
  EXPECT_GE(samples[0].value.Uint64(), 1u);
}
}  // namespace metrics_h

namespace mutex_h {
int destroyed = 0;
struct Shared {
  ~Shared() { destroyed++; }
  void Unref() {
    mu.Lock();
    bool last = --refs == 0;
    mu.Unlock();
    if (last) delete this;
  }
  sync::Mutex mu;
  int refs = 2;
};

void Main() {
  sync::Mutex mu;
  int balance = 0;
  {
    std::scoped_lock hold(mu);  // or Lock, and Unlock in a defer
    balance += 10;
  }
  {
    std::unique_lock hold(mu, std::chrono::milliseconds(10));
    if (hold) balance += 10;
  }
  EXPECT_EQ(balance, 20);
  Shared* shared = new Shared;
  shared->Unref();
  shared->Unref();
  EXPECT_EQ(destroyed, 1);
}
}  // namespace mutex_h

namespace once_h {
int loaded = 0;
void LoadTables() { loaded++; }
std::string ParseConfig(const std::string& name) { return "parsed " + name; }
void Use(const std::string& config) { EXPECT_EQ(config, "parsed app.conf"); }

void Main() {
  sync::Once once;
  once.Do([] { LoadTables(); });  // the first call runs it, others wait

  auto config = sync::OnceValue([] { return ParseConfig("app.conf"); });
  Use(config());  // parsed at the first call, then kept
  EXPECT_EQ(loaded, 1);

  auto open_once = sync::OnceValues(
      [] { return std::pair(std::string("app.conf"), ++loaded); });
  for (int i = 0; i < 2; i++) {
    const auto& [file, error] = open_once();
    EXPECT_EQ(file, "app.conf");
    EXPECT_EQ(error, 2) << "opened again";
  }
}
}  // namespace once_h

namespace panic_h {
void Main() {
  chan<int> c = make_chan<int>();
  c.Close();
  try {
    c.Close();
  } catch (const gump::PanicError& e) {
    std::fprintf(stderr, "recovered: %s\n", e.what());
  }
}
}  // namespace panic_h

namespace pool_h {
struct Conn {
  std::string sent;
};

sync::Pool<std::string> buffers{[] { return std::make_unique<std::string>(); }};
void Reply(Conn& c) {
  std::unique_ptr<std::string> b = buffers.Get();
  b->clear();
  b->append("hello");
  c.sent += *b;
  buffers.Put(std::move(b));
}

void Main() {
  Conn c;
  Reply(c);
  Reply(c);
  EXPECT_EQ(c.sent, "hellohello");
}
}  // namespace pool_h

namespace queue_h {
int ran = 0;
struct Job {
  explicit Job(std::string w) : what(std::move(w)) {}
  void Run() const { ran += what == "paint"; }
  std::string what;
};

void Main() {
  sync::Queue<Job> todo;
  todo.Push(Job("paint"));
  while (std::optional<Job> job = todo.Pop()) job->Run();  // until empty
  EXPECT_EQ(ran, 1);
}
}  // namespace queue_h

namespace rate_h {
context::CancelFunc stop;
int polls = 0;
bool refused = false;
void Poll() {
  if (++polls == 3) stop();
}
void TooBusy() { refused = true; }

void Serve(const context::Context& ctx) {
  rate::Limiter limiter(10, 3);            // 10 a second, at most 3 at once
  while (limiter.Wait(ctx).ok()) Poll();   // slow down
  if (!limiter.Allow()) return TooBusy();  // or turn away
}

int acted = 0;
void Act() { acted++; }
void ActWhenAllowed(rate::Limiter& limiter) {
  rate::Reservation r = limiter.Reserve();
  if (!r.OK()) return;  // never: see Burst
  time::Sleep(r.Delay());
  Act();
}

void Main() {
  rate::Limiter limiter(1000, 1);
  for (int i = 0; i < 3; i++) ActWhenAllowed(limiter);
  limiter.SetBurst(0);
  ActWhenAllowed(limiter);
  EXPECT_EQ(acted, 3);
  synctest::Run([] {  // where a busy machine lets no token flow in
    auto [ctx, cancel] = context::WithCancel(context::Background());
    stop = cancel;
    Serve(ctx);
  });
  EXPECT_EQ(polls, 3);
  EXPECT_TRUE(refused);
}
}  // namespace rate_h

namespace runtime_h {
std::atomic<int> deleted = 0;
struct Node {
  ~Node() { deleted++; }
};
std::atomic<Node*> head{new Node};
void Replace(Node* fresh) {
  Node* old = head.exchange(fresh);
  gump::runtime::Retire(old);
}

struct Shard {
  int n = 0;
};
void CountNear() {
  Shard shards[8];
  Shard& near = shards[gump::runtime::Node() % 8];
  near.n++;
}

void Main() {
  Replace(nullptr);
  EXPECT_TRUE(gump::testing::Eventually([] { return deleted == 1; }));
  CountNear();
  std::printf("%d goroutines on %d processors\n%s",
              gump::runtime::NumGoroutine(), gump::runtime::GOMAXPROCS(0),
              gump::runtime::Stack(/*all=*/true).c_str());
}

std::atomic<int> contexts = 0;
void OpenGpuContext() { contexts++; }
void CloseGpuContext() { contexts--; }
void Serve() { EXPECT_GT(contexts, 0); }
int main() {
  gump::runtime::SetThreadHooks({.on_start = [] { OpenGpuContext(); },
                                 .on_end = [] { CloseGpuContext(); }});
  return gump::Run(Serve);
}
}  // namespace runtime_h

namespace group_h {
std::atomic<int> compressed = 0;
void Compress() {
  std::string tenant(gump::runtime::GroupName());
  if (tenant == "batch") compressed++;
}

void Main() {
  gump::runtime::Group batch("batch", {.max_procs = 1});
  gump::go({.group = &batch}, [] { Compress(); });
  EXPECT_TRUE(gump::testing::Eventually([] { return compressed == 1; }));
}
}  // namespace group_h

namespace rwmutex_h {
sync::RWMutex mu;
std::map<std::string, int> ages;
int Age(const std::string& who) {
  std::shared_lock hold(mu);  // or: mu.RLock(); … mu.RUnlock();
  auto it = ages.find(who);
  return it == ages.end() ? 0 : it->second;
}
std::optional<size_t> Count() {
  std::shared_lock hold(mu, std::chrono::milliseconds(10));
  if (!hold) return std::nullopt;
  return ages.size();
}

void Main() {
  EXPECT_EQ(Count(), 0u);
  {
    std::scoped_lock hold(mu);
    ages["Ada"] = 36;
  }
  EXPECT_EQ(Age("Ada"), 36);
  EXPECT_EQ(Age("Bob"), 0);
}
}  // namespace rwmutex_h

namespace select_h {
void Handlers(chan<int> c, chan<int> d) {
  int sum = 0;
  int next = 0;
  c.Send(5);
  // With handlers. The chosen one runs when the operation is complete and
  // every channel is unlocked.
  int i = gump::select(gump::Recv(c, [&](int v) { sum += v; }),
                       gump::Send(d, next, [&] { next++; }),
                       gump::Default([] { std::puts("nobody ready"); }));
  EXPECT_EQ(i, 0);
  EXPECT_EQ(sum, 5);
}

void Pointers(chan<int> c, chan<int> e) {
  int v = 0;
  int w = 0;
  bool ok = false;
  e.Send(6);
  // With pointers, for a switch. The result is the index of the case.
  switch (gump::select(gump::Recv(c, &v), gump::Recv(e, &w, &ok))) {
    case 0:
      ADD_FAILURE() << v;
  }
  EXPECT_TRUE(ok);
  EXPECT_EQ(w, 6);
}

void Many(std::vector<chan<int>> inputs) {
  int v = 0;
  inputs[1].Send(7);
  // A number of cases known at run time.
  std::vector<gump::SelectCase> cases;
  for (auto& in : inputs) cases.push_back(gump::Recv(in, &v));
  int chosen = gump::select(absl::MakeSpan(cases));
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(v, 7);
}

void Main() {
  Handlers(make_chan<int>(1), make_chan<int>());
  Pointers(make_chan<int>(1), make_chan<int>(1));
  Many({make_chan<int>(1), make_chan<int>(1)});
}
}  // namespace select_h

namespace scope_h {
using Url = std::string;
using Page = std::string;

absl::StatusOr<std::string> Head(const context::Context&, const Url& url) {
  return "head of " + url;
}
absl::Status Warm(const context::Context&, const Url&) {
  return absl::OkStatus();
}

absl::StatusOr<Page> Fetch(const context::Context& ctx, Url url) {
  Scope scope(ctx, "fetch");
  auto head = scope.Go([&](context::Context c) { return Head(c, url); });
  scope.Go([&](context::Context c) { return Warm(c, url); });
  if (absl::Status s = scope.Wait(); !s.ok()) return s;
  return Page(*head.Join());
}

absl::Status LoadUser(const context::Context&, int id, int* user) {
  *user = id;
  return absl::OkStatus();
}
absl::Status LoadCart(const context::Context&, int id, int* cart) {
  *cart = id + 1;
  return absl::OkStatus();
}
absl::StatusOr<Page> Get(const context::Context& ctx, const Url& mirror) {
  return Head(ctx, mirror);
}

void Main() {
  EXPECT_EQ(*Fetch(context::Background(), "a"), "head of a");
  const context::Context ctx;
  {
    Scope scope;
    std::atomic<bool> read = false;
    auto Read = [&] { read = true; };
    scope.Go(GoOptions{.name = "reader"}, Read);
    EXPECT_TRUE(scope.Wait().ok());
    EXPECT_TRUE(read);
  }
  const int id = 7;
  int user = 0;
  int cart = 0;
  absl::Status s = All(
      ctx, [&](context::Context c) { return LoadUser(c, id, &user); },
      [&](context::Context c) { return LoadCart(c, id, &cart); });
  EXPECT_TRUE(s.ok());
  EXPECT_EQ(user + cart, 15);
  const Url mirror_a = "a";
  const Url mirror_b = "b";
  absl::StatusOr<Page> page = Race(
      ctx, [&](context::Context c) { return Get(c, mirror_a); },
      [&](context::Context c) { return Get(c, mirror_b); });
  EXPECT_TRUE(page.ok());
}
}  // namespace scope_h

namespace semaphore_h {
struct Image {
  int64_t bytes;
};

absl::Status Load(context::Context ctx, const Image& image) {
  sync::Semaphore memory(1 << 30);  // bytes
  if (absl::Status s = memory.Acquire(ctx, image.bytes); !s.ok()) return s;
  defer _{[&] { memory.Release(image.bytes); }};
  return absl::OkStatus();
}

void Main() { EXPECT_TRUE(Load(context::Background(), Image{1 << 20}).ok()); }
}  // namespace semaphore_h

namespace pprof_h {
void Serve() {}

void ProfileTo(int fd) {
  if (!pprof::StartCPUProfile(fd).ok()) return;
  Serve();
  pprof::StopCPUProfile();
  close(fd);
}

std::string labels;
void Checkout(const context::Context& ctx) {
  labels = std::string(pprof::Label(ctx, "tenant").value_or("none"));
}

void Main() {
  const context::Context ctx = context::Background();
  const std::string tenant = "acme";
  pprof::Do(ctx, {{"tenant", tenant}, {"op", "checkout"}},
            [](context::Context labelled) {
              Checkout(labelled);  // and the goroutines that it starts
            });
  EXPECT_EQ(labels, "acme");
  ProfileTo(open("/dev/null", O_WRONLY));
}
}  // namespace pprof_h

namespace singleflight_h {
using Page = std::string;
Page Fetch(const std::string& url) { return "<" + url + ">"; }

void Select(const context::Context& ctx) {
  const std::string url = "gump";
  Page page;
  using Flight = sync::SingleFlight<std::string, Page>;
  Flight flight;
  select(Recv(flight.DoChan(url, [url] { return Fetch(url); }),
              [&](std::optional<Flight::Outcome> o) {
                if (o) page = o->value();  // empty: it called Goexit
              }),
         Recv(ctx.Done(), [] { ADD_FAILURE(); }));  // the call goes on
  EXPECT_EQ(page, "<gump>");
}

void Main() {
  const std::string url = "gump";
  sync::SingleFlight<std::string, Page> flight;
  // In any number of goroutines: one fetches, the others wait for it.
  auto [page, shared] = flight.Do(url, [&] { return Fetch(url); });
  EXPECT_EQ(page, "<gump>");
  EXPECT_FALSE(shared);
  Select(context::Background());
}
}  // namespace singleflight_h

namespace stack_h {
struct Buffer {};
int used = 0;
void Use(std::unique_ptr<Buffer> b) { used += b != nullptr; }

void Main() {
  auto buffer = std::make_unique<Buffer>();
  sync::Stack<std::unique_ptr<Buffer>> spare;
  spare.Push(std::move(buffer));
  if (auto b = spare.Pop()) Use(std::move(*b));
  EXPECT_EQ(used, 1);
}
}  // namespace stack_h

namespace thread_h {
std::atomic<int> drawn = 0;
void DrawLoop() { drawn++; }
int QueryWidth() { return 80; }

void Main() {
  gump::runtime::Thread gui("gui");
  gump::go(gump::GoOptions{.thread = &gui}, [] { DrawLoop(); });
  int width = gui.Run([] { return QueryWidth(); });
  EXPECT_EQ(width, 80);
  EXPECT_TRUE(gump::testing::Eventually([] { return drawn == 1; }));
}
}  // namespace thread_h

namespace trace_h {
int served = 0;
void Serve() { served++; }

absl::Status Trace() {
  if (auto s = gump::trace::Start("trace.out"); !s.ok()) return s;
  Serve();
  gump::trace::Stop();
  return absl::OkStatus();
}

absl::Status Record(bool slow, int fd) {
  gump::trace::FlightRecorder recorder;
  if (auto s = recorder.Start(); !s.ok()) return s;
  Serve();
  if (slow) recorder.WriteTo(fd).IgnoreError();
  return absl::OkStatus();
}

void Annotate(const context::Context& ctx, const std::string& name) {
  gump::trace::Task task(ctx, "request");
  gump::trace::Region region(task.Context(), "parse");
  gump::trace::Log(task.Context(), "user", name);
  Serve();
}

void Main() {
  EXPECT_TRUE(Trace().ok());
  unlink("trace.out");
  EXPECT_TRUE(Record(/*slow=*/true, /*fd=*/-1).ok());
  Annotate(context::Background(), "gopher");
  EXPECT_EQ(served, 3);
}
}  // namespace trace_h

namespace waitgroup_h {
std::atomic<int> fetched = 0;
void Fetch(const std::string&) { fetched++; }
struct Log {
  bool flushed = false;
};
void Flush(Log& log) { log.flushed = true; }

void Main() {
  const std::vector<std::string> urls = {"a", "b", "c"};
  sync::WaitGroup wg;
  for (const std::string& url : urls) {
    wg.Go([&url] { Fetch(url); });
  }
  wg.Wait();  // all have returned; may park
  EXPECT_EQ(fetched, 3);

  Log log;
  wg.Go(gump::GoOptions{.name = "flusher"}, [&] { Flush(log); });
  wg.Wait();
  EXPECT_TRUE(log.flushed);
}
}  // namespace waitgroup_h

TEST(HeaderExamplesTest, WorkAsDocumented) {
  EXPECT_EQ(runtime_h::main(), 0);  // first: the runtime has not started
  for (void (*example)() :
       {barrier_h::Main, chan_h::Main,      co_h::Main,           cond_h::Main,
        defer_h::Main,   errgroup_h::Main,  event_h::Main,        gls_h::Main,
        go_h::Main,      group_h::Main,     latch_h::Main,        list_h::Main,
        map_h::Main,     metrics_h::Main,   mutex_h::Main,        once_h::Main,
        panic_h::Main,   pool_h::Main,      pprof_h::Main,        queue_h::Main,
        rate_h::Main,    runtime_h::Main,   rwmutex_h::Main,      scope_h::Main,
        select_h::Main,  semaphore_h::Main, singleflight_h::Main, stack_h::Main,
        thread_h::Main,  trace_h::Main,     waitgroup_h::Main}) {
    gump::testing::RunWith(2, example);
  }
  EXPECT_EQ(go_h::main(), 0);
  go_h::ComputeRoundingUp();
}

}  // namespace examples
