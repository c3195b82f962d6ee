// A service of asio whose requests are served by goroutines, and goroutines
// that ask it.
//
//   asio_service [clients]
//
// One plain thread runs the io_context. All handlers of asio run there, one at
// a time, and never wait. What takes time runs on goroutines:
//   * The service reads a line in a handler. AsyncGo looks the answer up on a
//     goroutine, and posts the next handler when that is done.
//   * The clients are goroutines. use_goroutine parks them until asio has
//     completed an operation.
//   * A client that gives up cancels its context, which cancels the operation.
#include <asio.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "gump/asio.h"
#include "gump/gump.h"

using namespace gump;
using asio::ip::tcp;

namespace {

// Look stands for work that waits, such as a query of a database.
std::string Look(const std::string& key) {
  time::Sleep(absl::Microseconds(100));
  return "value of " + key + "\n";
}

// Session serves one connection. All but Look runs on asio's thread, so nothing
// here needs a lock. Each handler holds the session, so it lives as long as one
// of them is due.
class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(tcp::socket socket) : socket_(std::move(socket)) {}

  void Read() {
    asio::async_read_until(
        socket_, asio::dynamic_buffer(line_), '\n',
        [self = shared_from_this()](std::error_code ec, size_t n) {
          if (!ec) self->Answer(n);
        });
  }

 private:
  void Answer(size_t n) {
    const std::string key = line_.substr(0, n - 1);
    line_.erase(0, n);
    if (key == "nothing") return Read();  // never answered
    AsyncGo(
        socket_.get_executor(), [key] { return Look(key); },
        [self = shared_from_this()](std::exception_ptr e, std::string value) {
          if (e == nullptr) self->Write(std::move(value));
        });
  }
  void Write(std::string value) {
    answer_ = std::move(value);
    asio::async_write(socket_, asio::buffer(answer_),
                      [self = shared_from_this()](std::error_code ec, size_t) {
                        if (!ec) self->Read();
                      });
  }

  tcp::socket socket_;
  std::string line_;
  std::string answer_;
};

void Accept(tcp::acceptor& acceptor) {
  acceptor.async_accept([&acceptor](std::error_code ec, tcp::socket socket) {
    if (ec) return;  // closed
    std::make_shared<Session>(std::move(socket))->Read();
    Accept(acceptor);
  });
}

// Ask asks the service for key. Throws system_error, for example if ctx is
// cancelled.
std::string Ask(asio::io_context& io, const tcp::endpoint& service,
                const std::string& key, const context::Context& ctx) {
  tcp::socket s(io);
  s.async_connect(service, use_goroutine(ctx));
  asio::async_write(s, asio::buffer(key + "\n"), use_goroutine(ctx));
  std::string line;
  asio::async_read_until(s, asio::dynamic_buffer(line), '\n',
                         use_goroutine(ctx));
  return line;
}

void Main(asio::io_context& io, const tcp::endpoint& service, int clients) {
  std::atomic<int> right = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < clients; i++) {
    wg.Go([&, i] {
      const std::string key = std::to_string(i);
      const std::string value = Ask(io, service, key, context::Background());
      if (value == "value of " + key + "\n") right++;
    });
  }
  wg.Wait();
  std::printf("%d of %d clients were answered\n", right.load(), clients);

  auto [ctx, cancel] =
      context::WithTimeout(context::Background(), absl::Milliseconds(10));
  defer _{cancel};
  try {
    Ask(io, service, "nothing", ctx);
  } catch (const std::system_error& e) {
    if (e.code() != asio::error::operation_aborted) throw;
    std::printf("one gave up: %s\n", ctx.Err().ToString().c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int clients = argc > 1 ? std::atoi(argv[1]) : 100;
  asio::io_context io(1);  // one thread runs it
  tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  const tcp::endpoint service = acceptor.local_endpoint();
  Accept(acceptor);
  std::thread loop([&io] { io.run(); });
  Run([&] { Main(io, service, clients); });
  asio::post(io, [&acceptor] { acceptor.close(); });
  loop.join();  // run returns when no handler is due
}
