// A test of the example jobs, for any queue: real processes die, stall and are
// started again, and the number of words is exact.
//
// The test decides the moments by the progress that the processes report, with
// a seed, and never by time. It feeds the text through a FIFO and ends it when
// it has done enough harm, so the work is never over before that.
#ifndef TESTS_PEERS_JOBS_H_
#define TESTS_PEERS_JOBS_H_

#include <fcntl.h>
#include <gump/gump.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/peers/peers.h"
#include "tests/testing/held_port.h"
#include "tests/testing/status.h"
#include "tests/testing/stress.h"

namespace gump::testing {

// QueueServer says how to run the example on a queue.
struct QueueServer {
  std::string example;
  std::string package;  // without it, the example is not built
  // The command that serves at a port and keeps all data in a folder.
  std::function<std::vector<std::string>(const std::string& port,
                                         const std::string& folder)>
      command;
  std::string ready;  // the text that it prints when it serves
};

// NeedsExample ends a test program with 77, which ctest takes for "skipped", if
// the example was not built.
class NeedsExample : public ::testing::Environment {
 public:
  explicit NeedsExample(const QueueServer& q) : q_(q) {}
  void SetUp() override {
    if (access(Example(q_.example).c_str(), X_OK) == 0) return;
    std::printf(
        "skipped: no %s, because %s was not installed when the "
        "examples were configured\n",
        q_.example.c_str(), q_.package.c_str());
    std::fflush(stdout);
    _exit(77);
  }

 private:
  const QueueServer& q_;
};

// Mortal returns a command that the kernel kills when this process ends,
// however it ends. Otherwise a test that is killed would leave servers behind.
inline std::vector<std::string> Mortal(std::vector<std::string> command) {
  command.insert(command.begin(), {"setpriv", "--pdeathsig", "KILL", "--"});
  return command;
}

// RandomText is lines of random words. Each call of Line makes one more.
class RandomText {
 public:
  explicit RandomText(uint64_t seed) : rng_(seed) {}
  std::string Line() {
    std::string line;
    const uint64_t n = rng_.Below(12);  // some lines have no word
    for (uint64_t i = 0; i < n; i++) {
      absl::StrAppend(&line, i > 0 ? " " : "", "w", rng_.Below(100));
    }
    lines_++;
    words_ += n;
    return line + "\n";
  }
  // Total returns the last line that a coordinator must print.
  std::string Total() const {
    return absl::StrCat(lines_, " shards, ", words_, " words\n");
  }

 private:
  Rng rng_;
  uint64_t lines_ = 0;
  uint64_t words_ = 0;
};

// Jobs is a server, a coordinator and some workers, in a folder of their own.
class Jobs {
 public:
  // Long enough for a worker on a busy machine, which has many jobs at once.
  static constexpr const char* kLease = "1s";

  explicit Jobs(const QueueServer& q) : q_(q) { StartServer(); }

  void StartServer() {
    server_ = std::make_unique<Program>(
        Mortal(q_.command(absl::StrCat(port_.Port()), dir_ / "")));
    server_->Says(q_.ready);
  }
  void StartCoordinator(const std::string& file) {
    coordinator_ = std::make_unique<Program>(Mortal(
        {Example(q_.example), "coordinator", port_.Address(), file, kLease}));
  }
  // StartWorker starts a worker, or starts it again.
  void StartWorker(size_t i) {
    if (i >= workers_.size()) workers_.resize(i + 1);
    Bury(i);
    const std::string name = absl::StrCat("w", i);
    workers_[i] = std::make_unique<Program>(
        Mortal({Example(q_.example), "worker", port_.Address(), name, kLease}));
    workers_[i]->Says("is ready");
  }

  // DrainWorker asks a worker to end. It finishes the jobs that it has.
  void DrainWorker(size_t i) {
    EXPECT_EQ(workers_[i]->Stop(), absl::OkStatus());
    ExpectDrained(workers_[i]->Said());
  }

  void KillServer() { server_ = nullptr; }
  void KillCoordinator() { coordinator_ = nullptr; }
  void KillWorker(size_t i) { Bury(i); }
  void Send(size_t i, int signal) const {
    EXPECT_EQ(kill(workers_[i]->Pid(), signal), 0);
  }

  // Counted returns how many shards the coordinator has counted, or a little
  // less.
  int64_t Counted() {
    const std::string said = coordinator_->Said();
    const std::string_view label = "counted ";
    const size_t at = said.rfind(label);
    int64_t n = 0;
    if (at == said.npos) return n;
    const size_t begin = at + label.size();
    const size_t end = said.find('\n', begin);
    if (end == said.npos) return n;
    EXPECT_TRUE(absl::SimpleAtoi(said.substr(begin, end - begin), &n));
    return n;
  }
  // AwaitCounted waits until the coordinator has counted n more.
  void AwaitCounted(int64_t n) {
    const int64_t goal = Counted() + n;
    EXPECT_TRUE(Eventually([&] { return Counted() >= goal; }));
  }
  // Reported returns how many times the workers have printed this text. Those
  // that were killed count, too.
  int64_t Reported(std::string_view text) {
    int64_t n = CountIn(dead_, text);
    for (const auto& w : workers_) {
      if (w != nullptr) n += CountIn(w->Said(), text);
    }
    return n;
  }

  // Expects that the coordinator ends by itself, and has printed this total.
  void ExpectTotal(const std::string& total) {
    EXPECT_EQ(coordinator_->Wait(), absl::OkStatus());
    const std::string said = coordinator_->Said();
    EXPECT_TRUE(said.ends_with("\n" + total)) << said << "not " << total;
  }
  // Expects that each worker ends when it is asked to.
  void ExpectWorkersEnd() {
    for (size_t i = 0; i < workers_.size(); i++) DrainWorker(i);
  }
  // Expects that the workers end by themselves, because their server is gone.
  void ExpectWorkersFail() {
    for (auto& w : workers_) EXPECT_EQ(Text(w->Wait()), "exit status 1");
  }

  std::string operator/(std::string_view name) const { return dir_ / name; }

 private:
  static int64_t CountIn(std::string_view all, std::string_view text) {
    int64_t n = 0;
    for (size_t at = 0; (at = all.find(text, at)) != all.npos; at++) n++;
    return n;
  }
  // Expects that each job that a worker has taken is finished or late.
  static void ExpectDrained(const std::string& said) {
    int64_t taken = -1;
    int64_t finished = 0;
    int64_t late = 0;
    const size_t at = said.rfind(" took ");
    EXPECT_NE(at, said.npos);
    if (at == said.npos) return;
    EXPECT_EQ(std::sscanf(said.c_str() + at,
                          " took %" SCNd64 " jobs: %" SCNd64
                          " finished, %" SCNd64 " late",
                          &taken, &finished, &late),
              3);
    EXPECT_EQ(taken, finished + late);
  }
  // Bury kills a worker, if it still runs, and keeps what it has printed.
  void Bury(size_t i) {
    if (workers_[i] != nullptr) dead_ += workers_[i]->Said();
    workers_[i] = nullptr;
  }

  const QueueServer& q_;
  const TempDir dir_;
  const HeldPort port_;
  std::unique_ptr<Program> server_;
  std::unique_ptr<Program> coordinator_;
  std::vector<std::unique_ptr<Program>> workers_;
  std::string dead_;  // the output of the workers that were killed
};

// Feeder writes a text to a FIFO until it is told that this is enough. It waits
// while the coordinator takes no more.
class Feeder {
 public:
  Feeder(const std::string& path, uint64_t seed) : text_(seed) {
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    // To open it for reading too does not wait for a reader.
    fifo_ = Ready(os::OpenFile(path, O_RDWR));
    writer_.Go([this] {
      while (!enough_) EXPECT_TRUE(fifo_.Write(text_.Line()).ok());
      EXPECT_EQ(fifo_.Close(), absl::OkStatus());
    });
  }
  // Finish ends the text, and returns the total of it.
  std::string Finish() {
    enough_ = true;
    writer_.Wait();
    return text_.Total();
  }

 private:
  RandomText text_;
  os::File fifo_;
  std::atomic<bool> enough_ = false;
  sync::WaitGroup writer_;
};

// Workers end in the middle of jobs and are started again: first because they
// are asked to, then because they are killed. Then workers are stopped for
// longer than a lease, and go on.
inline void KilledAndStalledWorkersLeaveTheTotalExact(const QueueServer& q) {
  constexpr size_t kWorkers = 3;
  constexpr int kKills = 4;
  constexpr int kStalls = 3;
  constexpr int kMost = 200;
  const uint64_t seed = StressSeed();
  Rng rng(seed);
  Jobs jobs(q);
  Feeder feeder(jobs / "text", seed);
  jobs.StartCoordinator(jobs / "text");
  for (size_t i = 0; i < kWorkers; i++) jobs.StartWorker(i);
  const auto moment = [&] {
    jobs.AwaitCounted(static_cast<int64_t>(1 + rng.Below(200)));
    return rng.Below(kWorkers);
  };

  for (size_t i = 0; i < kWorkers; i++) {
    (void)moment();
    jobs.DrainWorker(i);
    jobs.StartWorker(i);
  }

  // A worker nearly always has a job when it is killed. Go on until one had,
  // and its lease has ended.
  int kills = 0;
  while (kills < kKills || (jobs.Reported("again: ") == 0 && kills < kMost)) {
    const size_t victim = moment();
    jobs.KillWorker(victim);
    if (rng.OneIn(2)) jobs.AwaitCounted(1);  // the others go on meanwhile
    jobs.StartWorker(victim);
    kills++;
  }
  EXPECT_GT(jobs.Reported("again: "), 0);

  // A worker that stalls comes back, and finds that its jobs are late. Until
  // then other workers have got some of them, or have done many others: the
  // victim may have had none.
  int stalls = 0;
  while (stalls < kStalls || (jobs.Reported("late: ") == 0 && stalls < kMost)) {
    const size_t victim = moment();
    const int64_t again = jobs.Reported("again: ");
    jobs.Send(victim, SIGSTOP);
    const int64_t most = jobs.Counted() + 10'000;
    EXPECT_TRUE(Eventually([&] {
      return jobs.Reported("again: ") > again || jobs.Counted() > most;
    }));
    jobs.Send(victim, SIGCONT);
    jobs.AwaitCounted(1);
    stalls++;
  }
  EXPECT_GT(jobs.Reported("late: "), 0);

  jobs.ExpectTotal(feeder.Finish());
  std::printf("%s: %d kills, %d stalls, %lld delivered again, %lld late\n",
              q.example.c_str(), kills, stalls,
              static_cast<long long>(jobs.Reported("again: ")),
              static_cast<long long>(jobs.Reported("late: ")));
  jobs.ExpectWorkersEnd();
}

// The coordinator and the server are killed in the middle, so the workers fail.
// All start again, and the coordinator with the whole text.
inline void KilledServerAndCoordinatorLeaveTheTotalExact(const QueueServer& q) {
  const uint64_t seed = StressSeed();
  Rng rng(seed);
  Jobs jobs(q);
  RandomText text(seed);
  std::string begin;
  for (int i = 0; i < 1000; i++) begin += text.Line();
  std::string all = begin;
  for (int i = 0; i < 500; i++) all += text.Line();
  ASSERT_EQ(os::WriteFile(jobs / "all", all, 0600), absl::OkStatus());

  // The first coordinator gets the first lines, and never the end of the text.
  ASSERT_EQ(mkfifo((jobs / "begin").c_str(), 0600), 0);
  const os::File fifo = Ready(os::OpenFile(jobs / "begin", O_RDWR));
  sync::WaitGroup writer;
  writer.Go([&] { EXPECT_TRUE(fifo.Write(begin).ok()); });
  jobs.StartCoordinator(jobs / "begin");
  for (size_t i = 0; i < 2; i++) jobs.StartWorker(i);
  // The window of the coordinator is less than what is left after that, and a
  // pipe holds the whole. So the writer is never stuck.
  jobs.AwaitCounted(static_cast<int64_t>(1 + rng.Below(600)));
  writer.Wait();
  jobs.KillCoordinator();
  jobs.KillServer();
  jobs.ExpectWorkersFail();

  jobs.StartServer();
  for (size_t i = 0; i < 2; i++) jobs.StartWorker(i);
  jobs.StartCoordinator(jobs / "all");
  jobs.ExpectTotal(text.Total());
  jobs.ExpectWorkersEnd();
}

}  // namespace gump::testing

#endif  // TESTS_PEERS_JOBS_H_
