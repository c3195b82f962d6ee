// Like header_examples_test.cc, for gump/asio.h.
#include <gtest/gtest.h>

#if __has_include(<asio.hpp>)
#include <asio.hpp>
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "gump/asio.h"
#include "gump/gump.h"

namespace examples {

using namespace gump;
using namespace std::string_view_literals;

std::string Ask() { return "42"; }

// Serve answers one line, and a last one without an end.
void Serve(asio::ip::tcp::acceptor& acceptor) {
  asio::ip::tcp::socket s = acceptor.async_accept(use_goroutine);
  std::string line;
  asio::async_read_until(s, asio::dynamic_buffer(line), '\n', use_goroutine);
  EXPECT_EQ(line, "PING\r\n");
  asio::async_write(s, asio::buffer("PONG\r\n."sv), use_goroutine);
}

void ReadOn(asio::ip::tcp::socket& s, const context::Context& ctx) {
  char bytes[8];
  const asio::mutable_buffer buffer(bytes, sizeof(bytes));
  size_t n = s.async_read_some(buffer, use_goroutine(ctx));
  EXPECT_GE(n, 1u);
  chan<void> read = make_chan<void>();
  const auto handler = [&](std::error_code ec, size_t) {
    EXPECT_EQ(ec, asio::error::eof);
    read.Send();
  };
  s.async_read_some(buffer, asio::bind_executor(goroutines, handler));
  read.Recv();
}

const chan<void> answered = make_chan<void>(1);
void AsyncAsk(asio::io_context& io) {
  gump::AsyncGo(
      io.get_executor(), [] { return Ask(); },
      [](std::exception_ptr e, std::string answer) {
        EXPECT_EQ(e, nullptr);
        EXPECT_EQ(answer, "42");
        answered.Send();
      });
}

void Main() {
  asio::io_context io;
  auto work = asio::make_work_guard(io);
  std::thread loop([&] { io.run(); });
  Run([&] {
    asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
    const auto server = acceptor.local_endpoint();
    sync::WaitGroup serving;
    serving.Go([&] { Serve(acceptor); });
    asio::ip::tcp::socket s(io);
    s.async_connect(server, use_goroutine);  // parks; throws system_error
    asio::async_write(s, asio::buffer("PING\r\n"sv), use_goroutine);
    std::string line;
    std::error_code ec;
    asio::async_read_until(s, asio::dynamic_buffer(line), '\n',
                           use_goroutine[ec]);
    asio::post(goroutines, [] { /* runs on a goroutine */ });
    EXPECT_FALSE(ec);
    serving.Wait();
    if (line.size() == 6) {
      ReadOn(s, context::Background());
    } else {
      EXPECT_EQ(line, "PONG\r\n.");
    }
    AsyncAsk(io);
    answered.Recv();
  });
  work.reset();
  loop.join();
}

TEST(HeaderExamplesAsioTest, ExamplesWork) { Main(); }

}  // namespace examples

#else

TEST(HeaderExamplesAsioTest, AsioIsAbsent) {
  GTEST_SKIP() << "asio is not installed";
}

#endif
