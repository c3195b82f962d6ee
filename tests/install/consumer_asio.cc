// gump/asio.h: both directions. Does nothing where asio is not installed, or
// cannot be compiled.
#if defined(__cpp_rtti) && __has_include(<asio.hpp>)
#include <gump/asio.h>

#include <asio.hpp>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#endif

#include <gump/gump.h>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

#if defined(__cpp_rtti) && __has_include(<asio.hpp>)
int Main() {
  asio::io_context io;
  auto work = asio::make_work_guard(io);
  std::thread loop([&io] { io.run(); });
  asio::steady_timer timer(io, std::chrono::milliseconds(1));
  timer.async_wait(use_goroutine);
  auto [ctx, cancel] = context::WithCancel(context::Background());
  cancel();
  timer.expires_after(std::chrono::hours(1));
  std::error_code ec;
  timer.async_wait(use_goroutine(ctx)[ec]);
  chan<int> answer = make_chan<int>(1);
  AsyncGo(
      io.get_executor(), [] { return 42; },
      [answer](std::exception_ptr, int n) { answer.Send(n); });
  const bool ok =
      ec == asio::error::operation_aborted && answer.Recv().value_or(0) == 42;
  work.reset();
  blocking([&loop] { loop.join(); });
  return ok ? 0 : 1;
}
#else
int Main() { return 0; }
#endif

}  // namespace

int main() { return Run(Main); }
