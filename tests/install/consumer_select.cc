// gump/select.h: the handler form, the pointer form, and the dynamic form.
#include <gump/go.h>
#include <gump/select.h>

#include <optional>
#include <vector>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

int Main() {
  auto c = make_chan<int>(1);
  auto d = make_chan<int>(1);
  auto done = make_chan<void>(1);
  int got = 0;
  int i = select(Recv(c, [&](int v) { got = v; }), Send(d, 2, [&] { got = 1; }),
                 Recv(done, [] {}));
  bool ok = i == 1 && got == 1;
  int v = 0;
  bool more = false;
  switch (select(Recv(c, &v), Recv(d, &v, &more), Default())) {
    case 1:
      ok = ok && v == 2 && more;
      break;
    default:
      ok = false;
  }
  ok = ok && select(Recv(d, [](int, bool) {}), Default([&] { got = 3; })) == 1;
  c.Close();
  select(Recv(c, [&](std::optional<int> o) { ok = ok && got == 3 && !o; }));
  std::vector<SelectCase> cases;
  cases.push_back(Recv(d, &v));
  cases.push_back(Send(done));
  return ok && select(absl::MakeSpan(cases)) == 1 ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
