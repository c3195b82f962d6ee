// gump/co.h: tasks, and what they await.
#include <gump/co.h>
#include <gump/go.h>

#include <coroutine>
#include <optional>
#include <string>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

co::task<int> Total(recv_chan<int> c) {
  int sum = 0;
  while (std::optional<int> v = co_await co::Recv(c)) sum += *v;
  co_return sum;
}

co::task<> Produce(chan<int> c, chan<void> done) {
  for (int i = 1; i <= 3; i++) co_await co::Send(c, i);
  c.Close();
  co_await co::Sleep(absl::Microseconds(1));
  co_await co::Send(done);
}

co::task<int&> Self(int& x) { co_return x; }

co::task<bool> All(int& x) {
  auto c = make_chan<int>();
  auto done = make_chan<void>(1);
  go([c, done] { co::Wait(Produce(c, done)); });
  int sum = co_await Total(c);
  const bool signalled = co_await co::Recv(done);
  std::string text = co_await co::Go([] { return std::string("abc"); });
  co_await std::suspend_never();
  co::task<int&> self = Self(x);
  co_await std::move(self) = 5;
  co_return sum == 6 && signalled&& text == "abc";
}

int Main() {
  int x = 0;
  const bool ok = co::Wait(All(x)) && x == 5;
  auto c = make_chan<std::string>(1);
  co::Wait(co::Send(c, "x"));
  return ok && co::Wait(co::Recv(c)) == "x" ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
