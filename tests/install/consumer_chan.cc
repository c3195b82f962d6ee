// gump/chan.h: all functions of a channel and its views.
#include <gump/chan.h>
#include <gump/go.h>

#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

namespace {

int Sum(gump::recv_chan<int> in) {
  int sum = 0;
  for (int v : in) sum += v;
  return sum;
}

int Main() {
  auto c = gump::make_chan<int>(4);
  gump::send_chan<int> out = c;
  out << 1 << 2;
  int v = 0;
  bool ok = c >> v && v == 1 && c.Len() == 1 && c.Cap() == 4;
  ok = ok && out.TrySend(3) && c.Recv() == 2;
  gump::go([out] {
    out.Send(4);
    out.Close();
  });
  ok = ok && Sum(c) == 7 && !c.Recv(v) && !c.Recv().has_value();
  ok = ok && c.TryRecv().kind == gump::RecvResult<int>::kClosed;

  auto boxes = gump::make_chan<std::unique_ptr<int>>(1);
  auto box = std::make_unique<int>(5);
  ok = ok && boxes.TrySend(std::move(box)) && !boxes.TrySend(nullptr);
  ok = ok && **boxes.Recv() == 5 && boxes.TryRecv().kind == 1;

  auto done = gump::make_chan<void>();
  gump::go([done] { done.Send(); });
  ok = ok && done.Recv() && !done.TrySend();
  gump::recv_chan<void> view = done;
  ok = ok && view.TryRecv().kind == gump::RecvResult<void>::kEmpty;

  gump::chan<int> nil;
  ok = ok && !nil && nil == nullptr && c != nil;
  return ok && std::unordered_set<gump::chan<int>>{c, c}.size() == 1 ? 0 : 1;
}

}  // namespace

int main() { return gump::Run(Main); }
