// W19: unmodified clients of databases in a closed loop: each of N clients has
// a connection, and sends its next request when it has the last answer. The
// server and the clients share the processors. The clients run
//
//   hooked   in hooked goroutines, which park
//   plain    in goroutines without hooks, which keep a thread each
//   thread   on a std::thread each
//
// The code of the clients is the same in all three. Each way runs in a process
// of its own, which run.py's servers outlive: see Child.
#include <gump/hooks.h>
#include <hiredis/hiredis.h>
#include <libpq-fe.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

// ---- Clients ----------------------------------------------------------------

// A client connects in its constructor, and ends the process if it cannot.
[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "W19: %s\n", why.c_str());
  std::_Exit(1);
}

std::string Setting(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) Die(std::string(name) + " is not set");
  return value;
}

class Redis {
 public:
  Redis()
      : c_(redisConnect("127.0.0.1", std::stoi(Setting("BENCH_REDIS"))),
           redisFree) {
    if (c_ == nullptr || c_->err != 0) Die("cannot connect to Redis");
  }
  void Request() {
    auto* r = static_cast<redisReply*>(redisCommand(c_.get(), "GET key"));
    if (r == nullptr || r->type != REDIS_REPLY_STRING) Die("no answer of GET");
    freeReplyObject(r);
  }

 private:
  std::unique_ptr<redisContext, void (*)(redisContext*)> c_;
};

class Postgres {
 public:
  Postgres() : c_(PQconnectdb(Setting("BENCH_POSTGRES").c_str()), PQfinish) {
    if (PQstatus(c_.get()) != CONNECTION_OK) Die(PQerrorMessage(c_.get()));
  }
  void Request() {
    PGresult* r = PQexec(c_.get(), "SELECT 1");
    if (PQresultStatus(r) != PGRES_TUPLES_OK) Die(PQerrorMessage(c_.get()));
    PQclear(r);
  }

 private:
  std::unique_ptr<PGconn, void (*)(PGconn*)> c_;
};

// ---- One way, in a process of its own ---------------------------------------

// Latencies counts times in ns, eight buckets for each power of two.
class Latencies {
 public:
  void Add(int64_t ns) { count_[BucketOf(static_cast<uint64_t>(ns))]++; }
  void Add(const Latencies& other) {
    for (size_t i = 0; i < count_.size(); i++) count_[i] += other.count_[i];
  }
  // Quantile returns the upper end of the bucket in which the quantile lies.
  int64_t Quantile(double q) const {
    int64_t all = 0;
    for (const int64_t n : count_) all += n;
    int64_t below = 0;
    for (size_t i = 0; i < count_.size(); i++) {
      below += count_[i];
      if (static_cast<double>(below) >= q * static_cast<double>(all)) {
        return UpperEnd(i);
      }
    }
    return 0;
  }

 private:
  static size_t BucketOf(uint64_t ns) {
    if (ns < 8) return static_cast<size_t>(ns);
    const auto power = static_cast<size_t>(std::bit_width(ns)) - 4;
    return std::min(size_t{8} * (power + 1) + ((ns >> power) & 7),
                    kBuckets - 1);
  }
  static int64_t UpperEnd(size_t bucket) {
    if (bucket < 8) return static_cast<int64_t>(bucket) + 1;
    return static_cast<int64_t>(bucket % 8 + 9) << (bucket / 8 - 1);
  }
  static constexpr size_t kBuckets = 8 * 36;
  std::array<uint32_t, kBuckets> count_{};
};

// Load is the closed loop.
class Load {
 public:
  Load(int clients, int64_t ns)
      : ns_(ns), results_(static_cast<size_t>(clients)) {}

  // Client is the life of client i. It connects, waits for the others, and then
  // sends requests until the time is over.
  template <class C>
  void Client(size_t i) {
    C client;
    client.Request();
    connected_++;
    while (!begun_) usleep(10'000);
    Result* r = &results_[i];
    for (int64_t now = NowNanos(); now < end_;) {
      client.Request();
      const int64_t then = std::exchange(now, NowNanos());
      r->latencies.Add(now - then);
      r->requests++;
      if (now < end_) r->seconds |= uint32_t{1} << ((now - start_) / kSecond);
    }
    ended_++;
  }

  // Measure waits until all clients are connected, lets them begin, and waits
  // until all have ended. sleep(ns) is how the caller waits.
  template <class Sleep>
  void Measure(Sleep sleep) {
    const auto all = static_cast<int>(results_.size());
    while (connected_ < all) sleep(kSecond / 100);
    sleep(kSecond / 2);  // the server has finished with the connections, too
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/self/task")) {
      (void)task;
      threads_++;
    }
    const int64_t before = CpuNanos();
    start_ = NowNanos();
    end_ = start_ + ns_;
    begun_ = true;
    sleep(ns_);
    cpu_ = CpuNanos() - before;
    rss_ = RssBytes();
    while (ended_ < all) sleep(kSecond / 100);
  }

  // Report prints what the parent reads.
  void Report() const {
    Latencies latencies;
    int64_t requests = 0;
    const auto seconds = static_cast<uint32_t>(ns_ / kSecond);
    int most = 0;  // clients without an answer in a second
    for (const Result& r : results_) {
      latencies.Add(r.latencies);
      requests += r.requests;
    }
    for (uint32_t s = 0; s < seconds; s++) {
      int without = 0;
      for (const Result& r : results_) without += ((r.seconds >> s) & 1) == 0;
      most = std::max(most, without);
    }
    std::printf("%g %g %g %g %d %d\n",
                static_cast<double>(requests) * 1e9 / static_cast<double>(ns_),
                static_cast<double>(cpu_) / 1e3 / static_cast<double>(requests),
                static_cast<double>(latencies.Quantile(0.99)) / 1e3,
                static_cast<double>(rss_) / 1e6, most, threads_);
  }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;
  struct Result {
    Latencies latencies;
    int64_t requests = 0;
    uint32_t seconds = 0;  // a bit for each second in which an answer came
  };

  const int64_t ns_;
  std::vector<Result> results_;
  std::atomic<int> connected_ = 0;
  std::atomic<int> ended_ = 0;
  std::atomic<bool> begun_ = false;
  int64_t start_ = 0;  // written before begun_
  int64_t end_ = 0;    // as start_
  int64_t cpu_ = 0;
  int64_t rss_ = 0;
  int threads_ = 0;
};

template <class C>
int RunWay(std::string_view way, int clients, int64_t ns) {
  Load load(clients, ns);
  const auto n = static_cast<size_t>(clients);
  if (way == "thread") {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < n; i++) {
      threads.emplace_back([&load, i] { load.Client<C>(i); });
    }
    load.Measure(SleepNanos);
    for (std::thread& t : threads) t.join();
    load.Report();
    return 0;
  }
  return Run([&] {
    for (size_t i = 0; i < n; i++) {
      const auto f = [&load, i] { load.Client<C>(i); };
      way == "hooked" ? hooks::Go(f) : go(f);
    }
    load.Measure([](int64_t t) { time::Sleep(std::chrono::nanoseconds(t)); });
    load.Report();
  });
}

int Child(std::string_view server, std::string_view way, int clients,
          int64_t ns) {
  return server == "redis" ? RunWay<Redis>(way, clients, ns)
                           : RunWay<Postgres>(way, clients, ns);
}

// ---- The comparison ---------------------------------------------------------

struct Figures {
  double rate = 0;  // requests a second
  double cpu = 0;   // us of this process for a request
  double p99 = 0;   // us
  double rss = 0;   // MB
  int without = 0;  // the most clients without an answer in a second
  int threads = 0;
};

Figures Start(const std::string& server, const char* way, int clients,
              int64_t ns) {
  const std::string command =
      "exec " + std::filesystem::read_symlink("/proc/self/exe").string() +
      " --way " + server + " " + way + " " + std::to_string(clients) + " " +
      std::to_string(ns);
  FILE* out = popen(command.c_str(), "r");
  Figures f;
  if (out == nullptr ||
      std::fscanf(out, "%lf %lf %lf %lf %d %d", &f.rate, &f.cpu, &f.p99, &f.rss,
                  &f.without, &f.threads) != 6) {
    Die("no figures from " + command);
  }
  pclose(out);
  return f;
}

void PrintWay(const char* workload, const std::string& way, const Figures& f) {
  Print(workload, (way + "-req/s").c_str(), f.rate);
  Print(workload, (way + "-cpu-us").c_str(), f.cpu);
  Print(workload, (way + "-p99-us").c_str(), f.p99);
  Print(workload, (way + "-rss-MB").c_str(), f.rss);
  Print(workload, (way + "-unserved").c_str(), f.without);
  Print(workload, (way + "-threads").c_str(), f.threads);
}

void Compare(const Options& o, const char* workload, const std::string& server,
             int clients) {
  if (!o.Selected(workload)) return;
  const int64_t ns = std::max<int64_t>(1, 10 / o.divide) * 1'000'000'000;
  for (int r = 0; r < o.reps; r++) {
    const Figures hooked = Start(server, "hooked", clients, ns);
    const Figures thread = Start(server, "thread", clients, ns);
    const Figures plain = Start(server, "plain", clients, ns);
    PrintWay(workload, "hooked", hooked);
    PrintWay(workload, "thread", thread);
    PrintWay(workload, "plain", plain);
    Print(workload, "cpu-ratio", hooked.cpu / thread.cpu);
    Print(workload, "rate-ratio", thread.rate / hooked.rate);
    Print(workload, "p99-ratio", hooked.p99 / thread.p99);
    Print(workload, "rss-ratio", hooked.rss / thread.rss);
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  if (argc == 6 && std::string_view(argv[1]) == "--way") {
    return Child(argv[2], argv[3], std::stoi(argv[4]), std::stoll(argv[5]));
  }
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    Compare(o, "W19/redis-64", "redis", 64);
    Compare(o, "W19/redis-1000", "redis", 1000);
    Compare(o, "W19/postgres-64", "postgres", 64);
    Compare(o, "W19/postgres-1000", "postgres", 1000);
  });
}
