// gRPC by its callbacks, which send on a channel. The tests make all calls
// outside of a Scope. gRPC takes locks of Abseil, which hooks do not see. A
// hooked goroutine may park in the middle of such a lock, and another one of
// its home would then use the same state (docs/hooks.md).
//
// The service is generic: its method has no description. The request is the
// number of milliseconds after which the answer comes.
#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/select.h"
#include "gump/sync/waitgroup.h"
#include "tests/clients/harness.h"

namespace gump::testing {
namespace {

class GrpcTest : public Clients {};

// gRPC has executors, timers and pollers, for the client and the server.
constexpr int kOwnThreads = 48;

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

std::string TextOf(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return "";
  std::string text;
  for (const grpc::Slice& s : slices) {
    text.append(reinterpret_cast<const char*>(s.begin()), s.size());
  }
  return text;
}

// Slow answers a request with itself, after so many milliseconds.
class Slow : public grpc::ServerGenericBidiReactor {
 public:
  explicit Slow(const std::string& method) {
    if (method != "/slow") {
      Finish({grpc::StatusCode::UNIMPLEMENTED, "no such method"});
      return;
    }
    StartRead(&bytes_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::CANCELLED);
      return;
    }
    bytes_ = Bytes(TextOf(bytes_));
    const auto at = std::chrono::system_clock::now() +
                    std::chrono::milliseconds(std::stol(TextOf(bytes_)));
    alarm_.Set(at, [this](bool) {
      StartWriteAndFinish(&bytes_, {}, grpc::Status::OK);
    });
  }
  void OnCancel() override { alarm_.Cancel(); }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer bytes_;
  grpc::Alarm alarm_;
};

class Service : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* ctx) override {
    return new Slow(ctx->method());
  }
};

class Server {
 public:
  Server() {
    grpc::ServerBuilder b;
    b.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                       &port_);
    b.RegisterCallbackGenericService(&service_);
    server_ = b.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~Server() { Stop(); }
  // Stop ends the server, and the calls that it has not answered.
  void Stop() {
    if (server_ == nullptr) return;
    blocking([this] {
      server_->Shutdown(std::chrono::system_clock::now());
      server_->Wait();
    });
    server_ = nullptr;
  }
  std::string Address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Stub makes calls, and its goroutine waits on a channel for their end.
class Stub {
 public:
  explicit Stub(const std::string& address)
      : stub_(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}

  // Ask returns the answer, or the error. The end of ctx cancels the call.
  std::string Ask(const context::Context& ctx, const std::string& method,
                  const std::string& text) {
    grpc::ClientContext call;
    call.set_wait_for_ready(false);
    const grpc::ByteBuffer request = Bytes(text);
    grpc::ByteBuffer reply;
    grpc::Status status;
    chan<void> done = make_chan<void>(1);
    stub_.UnaryCall(&call, method, {}, &request, &reply,
                    [&status, done](grpc::Status s) mutable {
                      status = std::move(s);
                      done.Send();
                    });
    select(Recv(done, [] {}), Recv(ctx.Done(), [&] {
             call.TryCancel();
             done.Recv();
           }));
    if (status.ok()) return TextOf(reply);
    return absl::StrCat("error ", static_cast<int>(status.error_code()));
  }
  std::string Ask(const std::string& text) {
    return Ask(context::Background(), "/slow", text);
  }
  // AskBlocking blocks the thread until the answer is there.
  std::string AskBlocking(const std::string& text) {
    grpc::ClientContext call;
    grpc::ByteBuffer reply;
    grpc::Status status;
    grpc::CompletionQueue events;
    const auto rpc =
        stub_.PrepareUnaryCall(&call, "/slow", Bytes(text), &events);
    rpc->StartCall();
    rpc->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(blocking([&] { return events.Next(&tag, &ok); }));
    events.Shutdown();
    return ok && status.ok() ? TextOf(reply) : "error";
  }

 private:
  grpc::GenericStub stub_;
};

TEST_F(GrpcTest, Crowd) {
  Run([this] {
    About(absl::StrCat("gRPC ", grpc::Version()), "itself",
          "its callback sends on a channel; outside of a Scope");
    Server server;
    Stub stub(server.Address());
    constexpr int kGoroutines = 1000;
    const auto connect = [&](int) {
      return [&](int seconds) {
        const std::string text = absl::StrCat(1000 * seconds);
        EXPECT_EQ(stub.Ask(text), text);
      };
    };
    const CrowdFigures f =
        gump::testing::Crowd(kGoroutines, connect, Goroutines::kPlain);
    ExpectFewThreads(f, kOwnThreads);
    Shows(f.Text());
  });
}

TEST_F(GrpcTest, Faults) {
  Run([this] {
    Server server;
    Stub stub(server.Address());
    const HeldPort none;
    Stub nowhere(absl::StrCat("127.0.0.1:", none.Port()));
    EXPECT_EQ(nowhere.Ask("0"), "error 14");  // UNAVAILABLE
    EXPECT_EQ(stub.Ask(context::Background(), "/other", "0"), "error 12");
    const auto [ctx, cancel] =
        context::WithTimeout(context::Background(), absl::Milliseconds(50));
    EXPECT_EQ(stub.Ask(ctx, "/slow", "600000"), "error 1");  // CANCELLED
    cancel();
    std::atomic<int> ready = 0;
    std::atomic<int> died = 0;
    sync::WaitGroup all;
    for (int i = 0; i < kWaiters; i++) {
      all.Go([&] {
        EXPECT_EQ(stub.Ask("0"), "0");
        ready++;
        died += stub.Ask("600000").starts_with("error") ? 1 : 0;
      });
    }
    EXPECT_TRUE(Eventually([&] { return ready == kWaiters; }));
    server.Stop();
    all.Wait();
    EXPECT_EQ(died, kWaiters);
    Shows("server stopped, refused, no method, context cancelled");
  });
}

TEST_F(GrpcTest, Mixed) {
  Run([this] {
    Server server;
    Stub stub(server.Address());
    constexpr int kGoroutines = 50;
    constexpr int kRequests = 10;
    std::atomic<int> right = 0;
    {
      const Unrest unrest;
      sync::WaitGroup all;
      for (int i = 0; i < kGoroutines; i++) {
        all.Go([&, i] {
          for (int k = 0; k < kRequests; k++) {
            const std::string text = absl::StrCat(i % 3);
            right += stub.Ask(text) == text ? 1 : 0;
          }
        });
      }
      all.Wait();
    }
    EXPECT_EQ(right, kGoroutines * kRequests);
    Shows(absl::StrCat(kGoroutines * kRequests, " calls"));
  });
}

// There are no hooks, so the transcripts are those of a plain thread and of a
// goroutine.
TEST_F(GrpcTest, Differential) {
  Run([this] {
    Server server;
    const size_t calls = ExpectSame(
        [&]() -> Transcript {
          Transcript t;
          Stub stub(server.Address());
          t.push_back(stub.Ask("0"));
          t.push_back(stub.Ask("10"));
          t.push_back(stub.AskBlocking("20"));
          t.push_back(stub.Ask(context::Background(), "/other", "0"));
          const std::string much = "1" + std::string(1'000'000, ' ');
          t.push_back(absl::StrCat(stub.Ask(much) == much));
          return t;
        },
        Goroutines::kPlain);
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
