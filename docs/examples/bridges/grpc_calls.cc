// Calls of gRPC from goroutines, and a service whose calls are served by
// goroutines, both by the callback API.
//
//   grpc_calls [calls]
//
// gRPC calls back on its own threads, which must not wait. So a callback of the
// client only sends on a channel with room, and a callback of the service only
// starts a goroutine. Do not use gRPC in a Scope of gump::hooks: it waits for
// locks of Abseil, which hooks do not see (docs/hooks.md, Hazards).
//
// The program uses the generic stub and service, so it needs no generated code.
// With a generated stub, the call is
// stub->async()->Method(&call, &request, &reply, callback).
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gump/gump.h"

using namespace gump;

namespace {

grpc::ByteBuffer ToBuffer(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}
std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!buffer.Dump(&slices).ok()) return text;
  for (const grpc::Slice& s : slices) {
    text.append(reinterpret_cast<const char*>(s.begin()), s.size());
  }
  return text;
}

// Call makes one call, and parks until it has ended. If ctx is cancelled, the
// call is too.
//
// The callback writes the status before it sends, and the Recv that returns
// comes after the Send. Call returns only after the callback, so all that gRPC
// uses may lie on the stack. The callback has its own handle of the channel,
// because the Send may still run when Call returns.
grpc::Status Call(grpc::GenericStub& stub, const context::Context& ctx,
                  const std::string& text, std::string& answer) {
  grpc::ClientContext call;
  const grpc::ByteBuffer request = ToBuffer(text);
  grpc::ByteBuffer reply;
  grpc::Status status;
  chan<void> done = make_chan<void>(1);
  stub.UnaryCall(&call, "/example.Echo/Echo", grpc::StubOptions(), &request,
                 &reply, [&status, done](grpc::Status s) {
                   status = std::move(s);
                   done.Send();
                 });
  select(Recv(done, [] {}), Recv(ctx.Done(), [&] {
           call.TryCancel();  // may be called from any thread
           (void)done.Recv();
         }));
  if (status.ok()) answer = ToString(reply);
  return status;
}

std::atomic<int> given_up = 0;
const chan<void> slow_begun = make_chan<void>(1);

// Echo is one call at the server. gRPC calls its functions on its own threads,
// and OnDone last: after the goroutine has finished the call, and after
// OnCancel. So the goroutine may use the reactor until it finishes the call,
// and not after that.
class Echo : public grpc::ServerGenericBidiReactor {
 public:
  Echo() {
    std::tie(ctx_, cancel_) = context::WithCancel(context::Background());
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::INTERNAL, "no request"));
    go([this] { Serve(); });
  }
  void OnCancel() override { cancel_(); }
  void OnDone() override { delete this; }

 private:
  void Serve() {
    const std::string text = ToString(request_);
    const absl::Duration work =
        text == "slow" ? absl::Hours(1) : absl::Microseconds(100);
    if (text == "slow") slow_begun.Send();
    bool stopped = false;
    select(Recv(time::After(work)), Recv(ctx_.Done(), [&] { stopped = true; }));
    if (stopped) {
      given_up++;
      return Finish(grpc::Status::CANCELLED);
    }
    reply_ = ToBuffer("echo " + text);
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }

  context::Context ctx_;
  context::CancelFunc cancel_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
};

class Service : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    return new Echo;
  }
};

void Main(int calls) {
  Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  grpc::GenericStub stub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));

  std::atomic<int> right = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < calls; i++) {
    wg.Go([&, i] {
      const std::string text = std::to_string(i);
      std::string answer;
      if (Call(stub, context::Background(), text, answer).ok() &&
          answer == "echo " + text) {
        right++;
      }
    });
  }
  wg.Wait();
  std::printf("%d of %d calls were answered\n", right.load(), calls);

  auto [ctx, cancel] = context::WithCancel(context::Background());
  go([cancel = cancel] {
    (void)slow_begun.Recv();
    cancel();
  });
  std::string answer;
  const grpc::Status late = Call(stub, ctx, "slow", answer);
  std::printf("the slow one was cancelled: %d\n",
              late.error_code() == grpc::CANCELLED);
  blocking([&] {
    server->Shutdown();
    server->Wait();
  });
  std::printf("the server gave up %d\n", given_up.load());
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 200;
  return Run([&] { Main(calls); });
}
