// The queue of the example jobs on Redis Streams, through hiredis, a client
// that knows nothing of goroutines. Its calls are hooked (docs/hooks.md), so a
// goroutine that waits for the server parks in read.
//
// | on the server | |
// |---|---|
// | stream `jobs` | the shards; the number of a shard is its ID |
// | group `workers` of `jobs` | which worker has which shard, and since when |
// | stream `results` | the results, some of them more than once |
#include <gump/gump.h>
#include <gump/hooks.h>
#include <hiredis/hiredis.h>
#include <sys/time.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "jobs.h"

using namespace gump;

namespace jobs {
namespace {

// A connection serves one caller at a time. Take and Results hold theirs while
// they wait.
constexpr size_t kConnections = 8;

struct Free {
  void operator()(redisContext* c) const { redisFree(c); }
  void operator()(redisReply* r) const { freeReplyObject(r); }
};
using Connection = std::unique_ptr<redisContext, Free>;
using Reply = std::unique_ptr<redisReply, Free>;

absl::StatusOr<Connection> Dial(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == address.npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(address);
  }
  // All waits are bounded, or a server whose machine is gone would keep the
  // caller for ever. A goroutine that waits keeps to these limits as well.
  constexpr timeval kLimit{10, 0};
  Connection c = hooks::Hooked([&] {
    return Connection(redisConnectWithTimeout(address.substr(0, colon).c_str(),
                                              port, kLimit));
  });
  if (c == nullptr) return absl::ResourceExhaustedError("no memory");
  if (c->err != 0) return absl::UnavailableError(c->errstr);
  redisSetTimeout(c.get(), kLimit);
  return c;
}

// Do makes one command, and waits for its answer. An error of the server is
// Aborted, and one of the connection is Unavailable.
absl::StatusOr<Reply> Do(redisContext& c,
                         const std::vector<std::string>& command) {
  std::vector<const char*> words;
  std::vector<size_t> sizes;
  for (const std::string& word : command) {
    words.push_back(word.data());
    sizes.push_back(word.size());
  }
  Reply reply = hooks::Hooked([&] {
    return Reply(static_cast<redisReply*>(redisCommandArgv(
        &c, static_cast<int>(words.size()), words.data(), sizes.data())));
  });
  if (reply == nullptr) return absl::UnavailableError(c.errstr);
  if (reply->type == REDIS_REPLY_ERROR) {
    return absl::AbortedError(std::string(reply->str, reply->len));
  }
  return reply;
}

// An entry of a stream is [ID, [field, value]]. Each entry here has one field.
// `jobs` has ["text", text]. `results` has [shard, words]: the name of the
// field is the number of the shard.
struct Entry {
  std::string id;
  std::string field;
  std::string value;
};

std::vector<Entry> EntriesOf(const redisReply& list) {
  const auto text = [](const redisReply& r) {
    return std::string(r.str, r.len);
  };
  std::vector<Entry> entries;
  for (size_t i = 0; i < list.elements; i++) {
    const redisReply& e = *list.element[i];
    if (e.elements != 2 || e.element[1]->elements != 2) continue;
    const redisReply& pair = *e.element[1];
    entries.push_back(
        {text(*e.element[0]), text(*pair.element[0]), text(*pair.element[1])});
  }
  return entries;
}

// Streamed returns the entries of an answer to XREAD or XREADGROUP from one
// stream: [[stream, entries]], or nil if there is none.
std::vector<Entry> Streamed(const redisReply& answer) {
  if (answer.type != REDIS_REPLY_ARRAY || answer.elements != 1) return {};
  return EntriesOf(*answer.element[0]->element[1]);
}

std::string Ms(absl::Duration d) {
  return absl::StrCat(absl::ToInt64Milliseconds(d));
}

class RedisQueue final : public Queue {
 public:
  RedisQueue(QueueOptions options, chan<Connection> idle)
      : options_(std::move(options)), idle_(std::move(idle)) {}

  // The server refuses an ID that is not above all others. So it has a shard at
  // most once, even after the entry was deleted.
  absl::Status Put(int64_t shard, const std::string& text) override {
    const auto r = Ask({"XADD", "jobs", IdOf(shard), "text", text});
    if (absl::IsAborted(r.status()) &&
        absl::StrContains(r.status().message(), "equal or smaller")) {
      return absl::OkStatus();
    }
    return r.status();
  }

  // Jobs whose lease is over come first.
  absl::StatusOr<std::vector<Job>> Take(int most) override {
    absl::Time start = absl::Now();
    const std::string count = absl::StrCat(most);
    const auto claimed = Ask({"XAUTOCLAIM", "jobs", "workers", options_.worker,
                              Ms(options_.lease), cursor_, "COUNT", count});
    if (!claimed.ok()) return claimed.status();
    // [where to go on, entries, IDs of entries that were deleted]
    const redisReply& answer = **claimed;
    cursor_ = std::string(answer.element[0]->str, answer.element[0]->len);
    std::vector<Job> jobs;
    for (Entry& e : EntriesOf(*answer.element[1])) {
      jobs.push_back(MakeJob(std::move(e), true, start));
    }
    if (!jobs.empty()) return jobs;

    start = absl::Now();
    const auto fresh =
        Ask({"XREADGROUP", "GROUP", "workers", options_.worker, "COUNT", count,
             "BLOCK", Ms(options_.Patience()), "STREAMS", "jobs", ">"});
    if (!fresh.ok()) return fresh.status();
    for (Entry& e : Streamed(**fresh)) {
      jobs.push_back(MakeJob(std::move(e), false, start));
    }
    return jobs;
  }

  // Three commands and not one MULTI: Redis does not undo a transaction if a
  // command in it fails, and would acknowledge a job whose result it refused.
  absl::Status Finish(const Job& job, int64_t words) override {
    const std::string id = IdOf(job.shard);
    absl::Status s = Ask({"XADD", "results", "*", absl::StrCat(job.shard),
                          absl::StrCat(words)})
                         .status();
    if (s.ok()) s = Ask({"XACK", "jobs", "workers", id}).status();
    if (s.ok()) s = Ask({"XDEL", "jobs", id}).status();
    return s;
  }

  absl::StatusOr<std::vector<Result>> Results() override {
    const auto r = Ask({"XREAD", "COUNT", "100", "BLOCK",
                        Ms(options_.Patience()), "STREAMS", "results", seen_});
    if (!r.ok()) return r.status();
    std::vector<Result> results;
    for (const Entry& e : Streamed(**r)) {
      results.push_back(
          {std::atoll(e.field.c_str()), std::atoll(e.value.c_str())});
      seen_ = e.id;
    }
    return results;
  }

  absl::StatusOr<Reply> Ask(const std::vector<std::string>& command) {
    Connection c = *idle_.Recv();
    defer _{[&] { idle_.Send(std::move(c)); }};
    return Do(*c, command);
  }

 private:
  static std::string IdOf(int64_t shard) { return absl::StrCat(shard, "-0"); }

  // The lease began at the server between `start` and now.
  Job MakeJob(Entry e, bool again, absl::Time start) const {
    Job job;
    job.shard = std::atoll(e.id.c_str());
    job.text = std::move(e.value);
    job.again = again;
    job.deadline = start + options_.lease;
    return job;
  }

  const QueueOptions options_;
  // The connections that no goroutine uses. A channel is a pool: Recv waits for
  // a connection, and Send gives it back.
  const chan<Connection> idle_;
  std::string cursor_ = "0-0";  // where XAUTOCLAIM goes on; used by Take
  std::string seen_ = "0-0";    // the last result; used by Results
};

}  // namespace

absl::StatusOr<std::unique_ptr<Queue>> OpenQueue(const QueueOptions& options) {
  chan<Connection> idle = make_chan<Connection>(kConnections);
  for (size_t i = 0; i < kConnections; i++) {
    absl::StatusOr<Connection> c = Dial(options.address);
    if (!c.ok()) return c.status();
    idle.Send(*std::move(c));
  }
  auto queue = std::make_unique<RedisQueue>(options, std::move(idle));
  const absl::Status s =
      queue->Ask({"XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM"})
          .status();
  // The first process has made the group.
  if (!s.ok() && !absl::StartsWith(s.message(), "BUSYGROUP")) return s;
  return queue;
}

}  // namespace jobs
