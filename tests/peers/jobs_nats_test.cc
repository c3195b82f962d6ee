// The example jobs_nats and a nats-server.
#include <gump/gump.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/peers/jobs.h"
#include "tests/peers/peers.h"
#include "tests/testing/held_port.h"
#include "tests/testing/status.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("nats-server", "setpriv");

const QueueServer kNats = {
    .example = "jobs_nats",
    .package = "libnats-dev",
    .command =
        [](const std::string& port, const std::string& folder) {
          return std::vector<std::string>{
              "nats-server", "--addr",      "127.0.0.1",   "--port",
              port,          "--jetstream", "--store_dir", folder};
        },
    .ready = "Server is ready",
};
const ::testing::Environment* const kNeedsExample =
    ::testing::AddGlobalTestEnvironment(new NeedsExample(kNats));

using JobsNatsTest = Peers;

TEST_F(JobsNatsTest, KilledAndStalledWorkersLeaveTheTotalExact) {
  Run([] { KilledAndStalledWorkersLeaveTheTotalExact(kNats); });
}

TEST_F(JobsNatsTest, KilledServerAndCoordinatorLeaveTheTotalExact) {
  Run([] { KilledServerAndCoordinatorLeaveTheTotalExact(kNats); });
}

// RefusingProxy stands between one client and a nats-server. It answers the
// first request for a stream itself, as the server does if another process
// makes the stream between the server's look for its name and the one for its
// subjects. The request does not reach the server. All other data passes.
//
// A client sends lines. After a line "PUB subject [reply] size" it sends as
// many bytes, and an end of line.
class RefusingProxy {
 public:
  explicit RefusingProxy(const std::string& server)
      : listener_(Ready(net::Listen("tcp", "127.0.0.1:0"))) {
    copies_.Go([this, server] {
      client_ = Ready(listener_.Accept());
      server_ = Ready(net::Dial("tcp", server));
      copies_.Go([this] {
        Copy(server_, [this](std::string* data) {
          client_.Write(std::exchange(*data, "")).IgnoreError();
        });
        client_.Close().IgnoreError();
      });
      Copy(client_, [this](std::string* data) {
        while (PassOne(data)) {
        }
      });
      server_.Close().IgnoreError();
    });
  }
  ~RefusingProxy() { copies_.Wait(); }

  std::string Address() const { return listener_.LocalAddr().String(); }
  // Refused returns how many requests it has refused.
  int Refused() const { return refused_; }

 private:
  // Copy gives all that it reads to pass, together with what pass has left.
  template <class F>
  static void Copy(const net::Conn& from, F pass) {
    std::string data;
    char buf[4096];
    for (;;) {
      const absl::StatusOr<size_t> n = from.Read(absl::MakeSpan(buf));
      if (!n.ok() || *n == 0) return;
      data.append(buf, *n);
      pass(&data);
    }
  }

  // PassOne takes the first message from data, and passes it to the server or
  // refuses it. Returns false if data has no whole message.
  bool PassOne(std::string* data) {
    const size_t end = data->find("\r\n");
    if (end == data->npos) return false;
    const std::vector<std::string> words =
        absl::StrSplit(data->substr(0, end), ' ');
    size_t size = end + 2;
    if (words[0] == "PUB" || words[0] == "HPUB") {
      size_t payload = 0;
      EXPECT_TRUE(absl::SimpleAtoi(words.back(), &payload));
      size += payload + 2;
    }
    if (data->size() < size) return false;
    if (words[0] == "SUB") replies_ = words.back();
    if (refused_ == 0 && words.size() == 4 &&
        words[1].starts_with("$JS.API.STREAM.CREATE.")) {
      Refuse(words[2]);
    } else {
      EXPECT_TRUE(server_.Write(data->substr(0, size)).ok());
    }
    data->erase(0, size);
    return true;
  }

  void Refuse(const std::string& reply) {
    const std::string answer =
        R"({"type":"io.nats.jetstream.api.v1.stream_create_response",)"
        R"("error":{"code":400,"err_code":10065,)"
        R"("description":"subjects overlap with an existing stream"}})";
    refused_++;
    EXPECT_TRUE(client_
                    .Write(absl::StrCat("MSG ", reply, " ", replies_, " ",
                                        answer.size(), "\r\n", answer, "\r\n"))
                    .ok());
  }

  const net::Listener listener_;
  net::Conn client_;
  net::Conn server_;
  std::string replies_;  // the id of the client's subscription for replies
  std::atomic<int> refused_ = 0;
  sync::WaitGroup copies_;
};

// Of two processes that make a stream at the same moment, nats-server 2.9
// refuses one in a few of a hundred cases, with code 10065.
TEST_F(JobsNatsTest, AWorkerAsksAgainForARefusedStream) {
  Run([] {
    const TempDir dir;
    const HeldPort port;
    Program server(Mortal(kNats.command(absl::StrCat(port.Port()), dir / "")));
    server.Says(kNats.ready);
    RefusingProxy proxy(port.Address());
    Program worker(
        Mortal({Example("jobs_nats"), "worker", proxy.Address(), "w", "1s"}));
    worker.Says("is ready");
    EXPECT_EQ(proxy.Refused(), 1);
    EXPECT_EQ(worker.Stop(), absl::OkStatus());
  });
}

}  // namespace
}  // namespace gump::testing
