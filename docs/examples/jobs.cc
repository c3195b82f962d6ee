// Counts the words of a text on many processes, which may be on many machines.
// Processes may be killed, stalled and started again at any moment, and the
// result is still exact. docs/distributed.md explains why.
//
//   jobs_redis coordinator HOST:PORT FILE [LEASE]
//   jobs_redis worker HOST:PORT NAME [LEASE]          and jobs_nats likewise
//
// Each line of FILE is a shard. The coordinator puts the shards on the queue of
// a server, collects the results, and ends when it has one for each shard. The
// workers take shards, count their words and store the results. They end at
// SIGTERM, after they have finished the jobs that they have taken.
//
// A process that loses the server ends with exit code 1, and is simply started
// again: all that must survive is on the server. LEASE, such as 500ms, is the
// same for all processes (default 30s). A server has the shards and results of
// one text; empty it before the next one.
#include "jobs.h"

#include <gump/gump.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

using namespace gump;
using jobs::Job;
using jobs::Queue;
using jobs::QueueOptions;

namespace {

// ---- Worker ----
//
// Fetch ─ jobs, bounded ─▶ Work, kAtOnce goroutines

constexpr int kAtOnce = 16;
constexpr int kAhead = 16;  // jobs that wait in the process for a goroutine

// Tally counts jobs. It is read when all goroutines have ended.
struct Tally {
  std::atomic<int64_t> taken = 0;
  std::atomic<int64_t> finished = 0;
  std::atomic<int64_t> late = 0;
};

// CountWords stands for work that takes time: it computes, and then waits for
// another service until ctx is done.
absl::StatusOr<int64_t> CountWords(const context::Context& ctx,
                                   const std::string& text) {
  std::istringstream in(text);
  int64_t words = 0;
  for (std::string word; in >> word;) words++;
  const auto service = time::After(absl::Milliseconds(20));
  select(Recv(service), Recv(ctx.Done()));
  if (const absl::Status s = ctx.Err(); !s.ok()) return s;
  return words;
}

absl::Status Work(Queue& queue, recv_chan<Job> todo, Tally& tally) {
  for (const Job& job : todo) {
    if (job.again) std::printf("again: %s\n", absl::StrCat(job.shard).c_str());
    // The job has waited in the channel, and its lease with it. So the deadline
    // is that of the delivery, not a time from now.
    auto [ctx, cancel] =
        context::WithDeadline(context::Background(), job.deadline);
    defer _{cancel};
    const absl::StatusOr<int64_t> words = CountWords(ctx, job.text);
    if (!words.ok()) {
      // Another worker has the job by now, so this one neither stores a result
      // nor acknowledges the job. To do so would be useless, but not wrong.
      std::printf("late: %s\n", absl::StrCat(job.shard).c_str());
      tally.late++;
      continue;
    }
    if (absl::Status s = queue.Finish(job, *words); !s.ok()) return s;
    tally.finished++;
  }
  return absl::OkStatus();
}

// Fetch takes jobs until stop is done. While the channel is full it takes none,
// and leaves them to workers that have time for them. So a worker has at most
// kAtOnce jobs under way, kAhead in the channel, and kAhead in Fetch. After
// stop it finishes all of them, unless a goroutine fails, which ends ctx.
absl::Status Fetch(const context::Context& stop, const context::Context& ctx,
                   Queue& queue, send_chan<Job> todo, Tally& tally) {
  defer _{[&] { todo.Close(); }};
  while (stop.Err().ok() && ctx.Err().ok()) {
    absl::StatusOr<std::vector<Job>> taken = queue.Take(kAhead);
    if (!taken.ok()) return taken.status();
    for (Job& job : *taken) {
      if (select(Send(todo, std::move(job)), Recv(ctx.Done())) == 1) {
        return ctx.Err();
      }
      tally.taken++;
    }
  }
  return absl::OkStatus();
}

absl::Status RunWorker(Queue& queue, const std::string& name) {
  const auto [stop, restore] =
      signal::NotifyContext(context::Background(), {SIGTERM, SIGINT});
  defer _{restore};
  auto [group, ctx] = sync::ErrGroup::WithContext(context::Background());
  chan<Job> todo = make_chan<Job>(kAhead);
  Tally tally;
  for (int i = 0; i < kAtOnce; i++) {
    group.Go([&, todo] { return Work(queue, todo, tally); });
  }
  group.Go([&, todo, stop = stop, ctx = ctx] {
    return Fetch(stop, ctx, queue, todo, tally);
  });
  std::printf("worker %s is ready\n", name.c_str());
  const absl::Status s = group.Wait();
  const std::string text =
      absl::StrCat("worker ", name, " took ", tally.taken.load(),
                   " jobs: ", tally.finished.load(), " finished, ",
                   tally.late.load(), " late");
  std::puts(text.c_str());
  return s;
}

// ---- Coordinator ----

// The coordinator has at most kWindow shards on the server for which it has no
// result yet. So the queue stays short, however large the file.
constexpr size_t kWindow = 256;
constexpr int64_t kProgress = 50;  // results from one line to the next

// PutAll puts the lines of the file, and returns their number.
absl::StatusOr<int64_t> PutAll(const context::Context& ctx, Queue& queue,
                               const std::string& path,
                               send_chan<void> window) {
  std::ifstream in;
  blocking([&] { in.open(path); });
  if (!in) return absl::NotFoundError(path);
  int64_t shard = 0;
  std::string line;
  while (blocking([&] { return static_cast<bool>(std::getline(in, line)); })) {
    if (select(Send(window), Recv(ctx.Done())) == 1) return ctx.Err();
    if (absl::Status s = queue.Put(++shard, line); !s.ok()) return s;
  }
  return shard;
}

// Words has the words of each shard. A shard counts once, however often its
// result arrives.
using Words = absl::flat_hash_map<int64_t, int64_t>;

// Collect returns when there are as many results as shards. The number of
// shards is negative until it is known.
absl::Status Collect(const context::Context& ctx, Queue& queue,
                     const std::atomic<int64_t>& shards, recv_chan<void> window,
                     Words& words) {
  while (std::cmp_not_equal(words.size(), shards.load())) {
    if (!ctx.Err().ok()) return ctx.Err();
    const absl::StatusOr<std::vector<jobs::Result>> results = queue.Results();
    if (!results.ok()) return results.status();
    for (const jobs::Result& r : *results) {
      const auto [it, first] = words.try_emplace(r.shard, r.words);
      if (it->second != r.words) {
        return absl::DataLossError(absl::StrCat("two results of ", r.shard));
      }
      if (!first) continue;
      // The shard may have been put by a coordinator that was killed. Then this
      // one has yet to put it, and Recv waits for that.
      if (select(Recv(window), Recv(ctx.Done())) == 1) return ctx.Err();
      if (words.size() % kProgress == 0) {
        std::printf("counted %s\n", absl::StrCat(words.size()).c_str());
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RunCoordinator(Queue& queue, const std::string& path) {
  auto [group, ctx] = sync::ErrGroup::WithContext(context::Background());
  chan<void> window = make_chan<void>(kWindow);
  std::atomic<int64_t> shards = -1;
  Words words;  // Collect's, until Wait has returned
  group.Go([&, window, ctx = ctx] {
    const absl::StatusOr<int64_t> all = PutAll(ctx, queue, path, window);
    if (all.ok()) shards = *all;
    return all.status();
  });
  group.Go([&, window, ctx = ctx] {
    return Collect(ctx, queue, shards, window, words);
  });
  if (absl::Status s = group.Wait(); !s.ok()) return s;
  int64_t sum = 0;
  for (const auto& [shard, n] : words) sum += n;
  std::printf("%s shards, %s words\n", absl::StrCat(shards.load()).c_str(),
              absl::StrCat(sum).c_str());
  return absl::OkStatus();
}

int Main(std::string_view role, const QueueOptions& options,
         const std::string& argument) {
  absl::StatusOr<std::unique_ptr<Queue>> queue = jobs::OpenQueue(options);
  absl::Status s = queue.status();
  if (s.ok()) {
    s = role == "worker" ? RunWorker(**queue, argument)
                         : RunCoordinator(**queue, argument);
  }
  if (s.ok()) return 0;
  std::fprintf(stderr, "jobs: %s\n", s.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  QueueOptions options;
  options.lease = absl::Seconds(30);
  const bool valid =
      (args.size() == 3 || args.size() == 4) &&
      (args[0] == "coordinator" || args[0] == "worker") &&
      (args.size() == 3 || absl::ParseDuration(args[3], &options.lease));
  if (!valid) {
    std::fprintf(stderr,
                 "usage: jobs_... coordinator HOST:PORT FILE [LEASE]\n"
                 "       jobs_... worker HOST:PORT NAME [LEASE]\n");
    return 2;
  }
  options.address = args[1];
  options.worker = args[2];
  // Lines are complete when they appear, even if the process is killed. And a
  // write to a server that has died is an error of the call, as in all programs
  // with such clients.
  (void)std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  (void)std::signal(SIGPIPE, SIG_IGN);
  return Run([&] { return Main(args[0], options, args[2]); });
}
