// The queue of the example jobs on NATS JetStream, through libnats, a client
// with threads of its own. There are two bridges between its threads and
// goroutines, and both are here:
//
// * Calls that wait for the server, such as Fetch and Publish, wait for a
//   condition variable that a thread of libnats signals. Hooked, they park
//   (docs/hooks.md). `blocking` would be right as well, at a thread a call.
// * A callback runs on a thread of libnats that delivers the messages of the
//   whole connection, so it must not wait. It hands the message to a channel by
//   TrySend. The channel has room for as many messages as the server sends
//   without an acknowledgement, so TrySend finds room, and the channel is the
//   back-pressure.
//
// | on the server | |
// |---|---|
// | stream JOBS, subjects `jobs.<shard>` | the shards that are not finished |
// | consumer `workers` of JOBS | which shard is out, and since when |
// | stream RESULTS, subjects `results.<shard>` | one result for each shard |
#include <gump/gump.h>
#include <gump/hooks.h>
#include <nats/nats.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "jobs.h"

using namespace gump;

namespace jobs {
namespace {

struct Free {
  void operator()(natsConnection* p) const { natsConnection_Destroy(p); }
  void operator()(natsOptions* p) const { natsOptions_Destroy(p); }
  void operator()(natsSubscription* p) const { natsSubscription_Destroy(p); }
  void operator()(natsMsg* p) const { natsMsg_Destroy(p); }
  void operator()(jsCtx* p) const { jsCtx_Destroy(p); }
  void operator()(jsMsgMetaData* p) const { jsMsgMetaData_Destroy(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;
using Message = Owned<natsMsg>;

// Call makes a call of libnats, and parks while it waits. The text of an error
// comes from its code: nats_GetLastError is a variable of the thread, which
// other goroutines share.
template <class F>
absl::Status Call(const char* what, F f) {
  const natsStatus s = hooks::Hooked(f);
  if (s == NATS_OK) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", natsStatus_GetText(s));
  if (s == NATS_TIMEOUT) return absl::DeadlineExceededError(text);
  return absl::UnavailableError(text);
}

// NumberOf returns the shard of the subject "jobs.17" or "results.17".
int64_t NumberOf(const natsMsg* m) {
  const std::string subject = natsMsg_GetSubject(m);
  return std::atoll(subject.c_str() + subject.find('.') + 1);
}

std::string TextOf(const natsMsg* m) {
  return {natsMsg_GetData(m), static_cast<size_t>(natsMsg_GetDataLength(m))};
}

class NatsQueue final : public Queue {
 public:
  explicit NatsQueue(QueueOptions options) : options_(std::move(options)) {}
  ~NatsQueue() override {
    // The connection joins its threads, which no hook makes park.
    blocking([this] {
      pull_.reset();
      push_.reset();
      js_.reset();
      connection_.reset();
    });
  }

  absl::Status Open() {
    natsOptions* o = nullptr;
    if (absl::Status s =
            Call("options", [&] { return natsOptions_Create(&o); });
        !s.ok()) {
      return s;
    }
    const Owned<natsOptions> options(o);
    (void)natsOptions_SetURL(o, ("nats://" + options_.address).c_str());
    // A process that has lost the server ends, and is started again. Without
    // this, libnats would connect again by itself, after two seconds.
    (void)natsOptions_SetAllowReconnect(o, false);
    natsConnection* c = nullptr;
    absl::Status s =
        Call("connect", [&] { return natsConnection_Connect(&c, o); });
    connection_.reset(c);
    if (!s.ok()) return s;
    jsCtx* js = nullptr;
    s = Call("JetStream",
             [&] { return natsConnection_JetStream(&js, c, nullptr); });
    js_.reset(js);
    if (s.ok()) s = AddStreams();
    if (s.ok()) s = AddConsumer();
    return s;
  }

  // The server drops a message if one of the last two minutes had the same ID.
  // A shard that comes back later than that is done again, and has the same
  // result.
  absl::Status Put(int64_t shard, const std::string& text) override {
    const std::string id = absl::StrCat("jobs.", shard);
    jsPubOptions once;
    (void)jsPubOptions_Init(&once);
    once.MsgId = id.c_str();
    return Publish(id, text, &once);
  }

  absl::StatusOr<std::vector<Job>> Take(int most) override {
    if (absl::Status s = Subscribe(); !s.ok()) return s;
    const absl::Time start = absl::Now();
    natsMsgList list{};
    const absl::Status s = Call("fetch", [&] {
      return natsSubscription_Fetch(
          &list, pull_.get(), most,
          absl::ToInt64Milliseconds(options_.Patience()), nullptr);
    });
    std::vector<Job> jobs;
    if (absl::IsDeadlineExceeded(s)) return jobs;
    if (!s.ok()) return s;
    for (int i = 0; i < list.Count; i++) {
      jobs.push_back(MakeJob(std::exchange(list.Msgs[i], nullptr), start));
    }
    natsMsgList_Destroy(&list);
    return jobs;
  }

  // RESULTS keeps one message for each subject. If a shard is done twice, the
  // second result replaces the first one.
  absl::Status Finish(const Job& job, int64_t words) override {
    absl::Status s = Publish(absl::StrCat("results.", job.shard),
                             absl::StrCat(words), nullptr);
    if (!s.ok()) return s;
    auto* m = static_cast<natsMsg*>(job.receipt.get());
    return Call("acknowledge",
                [&] { return natsMsg_AckSync(m, nullptr, nullptr); });
  }

  absl::StatusOr<std::vector<Result>> Results() override {
    if (absl::Status s = Listen(); !s.ok()) return s;
    std::vector<Result> results;
    Message m;
    const auto patience = time::After(options_.Patience());
    if (select(Recv(results_, &m), Recv(patience)) == 1) {
      if (natsConnection_IsClosed(connection_.get())) {
        return absl::UnavailableError("the connection is closed");
      }
      return results;
    }
    int64_t words = 0;
    if (!absl::SimpleAtoi(TextOf(m.get()), &words)) {
      return absl::DataLossError("a result is not a number");
    }
    results.push_back({NumberOf(m.get()), words});
    // The message has left the channel, so the server may send another one. A
    // coordinator that is started again reads all results again, acknowledged
    // or not: it has a consumer of its own.
    const absl::Status s =
        Call("acknowledge", [&] { return natsMsg_Ack(m.get(), nullptr); });
    if (!s.ok()) return s;
    return results;
  }

 private:
  using Inbox = chan<Message>;
  static constexpr size_t kInbox = 256;

  // Each process makes the streams and the consumer. The calls have no effect
  // if these exist with the same settings.
  absl::Status AddStreams() {
    const char* jobs = "jobs.*";
    jsStreamConfig c;
    (void)jsStreamConfig_Init(&c);
    c.Name = "JOBS";
    c.Subjects = &jobs;
    c.SubjectsLen = 1;
    c.Retention = js_WorkQueuePolicy;  // an acknowledged message is deleted
    const absl::Status s = AddStream(&c);
    if (!s.ok()) return s;
    const char* results = "results.*";
    (void)jsStreamConfig_Init(&c);
    c.Name = "RESULTS";
    c.Subjects = &results;
    c.SubjectsLen = 1;
    c.MaxMsgsPerSubject = 1;
    return AddStream(&c);
  }

  // Two processes may make the same stream at the same moment. The server looks
  // for the stream's name first, then for its subjects. If the other process
  // makes the stream between these two looks, the server answers that the
  // subjects overlap. The second call finds the stream by its name.
  absl::Status AddStream(jsStreamConfig* c) {
    jsErrCode code{};
    const auto add = [&] {
      return js_AddStream(nullptr, js_.get(), c, nullptr, &code);
    };
    absl::Status s = Call("add stream", add);
    if (!s.ok() && code == JSStreamSubjectOverlapErr) {
      s = Call("add stream", add);
    }
    if (s.ok() || code == 0) return s;
    return absl::UnavailableError(
        absl::StrCat(s.message(), ", JetStream's code ", code));
  }

  absl::Status AddConsumer() {
    jsConsumerConfig c;
    (void)jsConsumerConfig_Init(&c);
    c.Durable = "workers";
    c.AckPolicy = js_AckExplicit;
    c.AckWait = absl::ToInt64Nanoseconds(options_.lease);
    return Call("add consumer", [&] {
      return js_AddConsumer(nullptr, js_.get(), "JOBS", &c, nullptr, nullptr);
    });
  }

  absl::Status Publish(const std::string& subject, const std::string& data,
                       jsPubOptions* options) {
    return Call("publish", [&] {
      return js_Publish(nullptr, js_.get(), subject.c_str(), data.data(),
                        static_cast<int>(data.size()), options, nullptr);
    });
  }

  // Subscribe makes the subscription of Take, in the first call.
  absl::Status Subscribe() {
    if (pull_ != nullptr) return absl::OkStatus();
    jsSubOptions o;
    (void)jsSubOptions_Init(&o);
    o.Stream = "JOBS";
    o.Consumer = "workers";
    natsSubscription* sub = nullptr;
    const absl::Status s = Call("subscribe", [&] {
      return js_PullSubscribe(&sub, js_.get(), "jobs.*", "workers", nullptr, &o,
                              nullptr);
    });
    pull_.reset(sub);
    return s;
  }

  // Listen makes the subscription of Results, in the first call.
  absl::Status Listen() {
    if (push_ != nullptr) return absl::OkStatus();
    jsSubOptions o;
    (void)jsSubOptions_Init(&o);
    o.Stream = "RESULTS";
    o.ManualAck = true;
    o.Config.DeliverPolicy = js_DeliverAll;
    o.Config.AckPolicy = js_AckExplicit;
    o.Config.MaxAckPending = kInbox;
    // The callback has a handle of its own. It may still run when the
    // subscription is destroyed. OnComplete runs after the last OnResult.
    auto inbox = std::make_unique<Inbox>(results_);
    natsSubscription* sub = nullptr;
    absl::Status s = Call("subscribe", [&] {
      return js_Subscribe(&sub, js_.get(), "results.*", OnResult, inbox.get(),
                          nullptr, &o, nullptr);
    });
    push_.reset(sub);
    if (!s.ok()) return s;
    s = Call("subscribe", [&] {
      return natsSubscription_SetOnCompleteCB(sub, OnComplete, inbox.get());
    });
    (void)inbox.release();
    return s;
  }

  // OnResult runs on a thread of libnats. The inbox has room for all messages
  // that are not acknowledged. It may be full nevertheless: if a coordinator
  // was stalled, the server sends these messages again. Then the message is
  // dropped here, and comes once more.
  static void OnResult(natsConnection*, natsSubscription*, natsMsg* m,
                       void* inbox) {
    Message message(m);
    (void)static_cast<Inbox*>(inbox)->TrySend(std::move(message));
  }
  static void OnComplete(void* inbox) { delete static_cast<Inbox*>(inbox); }

  Job MakeJob(natsMsg* m, absl::Time start) const {
    Job job;
    job.receipt = std::shared_ptr<natsMsg>(m, Free());
    job.shard = NumberOf(m);
    job.text = TextOf(m);
    job.deadline = start + options_.lease;
    jsMsgMetaData* about = nullptr;
    if (natsMsg_GetMetaData(&about, m) == NATS_OK) {
      job.again = Owned<jsMsgMetaData>(about)->NumDelivered > 1;
    }
    return job;
  }

  const QueueOptions options_;
  const Inbox results_ = make_chan<Message>(kInbox);
  Owned<natsConnection> connection_;
  Owned<jsCtx> js_;
  Owned<natsSubscription> pull_;  // of JOBS; used by Take
  Owned<natsSubscription> push_;  // of RESULTS; used by Results
};

}  // namespace

absl::StatusOr<std::unique_ptr<Queue>> OpenQueue(const QueueOptions& options) {
  auto queue = std::make_unique<NatsQueue>(options);
  if (absl::Status s = queue->Open(); !s.ok()) return s;
  return queue;
}

}  // namespace jobs
