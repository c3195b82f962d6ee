// The dynamic form of select, and the parts of <gump/select.h> that need not be
// in every caller.
#include "gump/select.h"

#include <vector>

#include "gump/panic.h"

namespace gump {
namespace internal {

void PanicSpentCase() {
  panic("select: send case used again after its value was sent");
}

AnyCase::AnyCase(rt::Hchan* c, bool is_default) : is_default_(is_default) {
  if (c == nullptr) return;
  rt::chanRetain(c);
  hold_ = ChanHandle(c);
}

}  // namespace internal

int select(absl::Span<SelectCase> cases) {
  // Go's text. A Default counts as a case there too.
  if (cases.size() > rt::kMaxSelectCases) {
    panic("reflect.Select: too many cases (max 65536)");
  }
  rt::Scase few[16];
  std::vector<rt::Scase> many;
  rt::Scase* scases = few;
  if (cases.size() > std::size(few)) {
    many.resize(cases.size());
    scases = many.data();
  }
  int default_case = -1;
  for (size_t i = 0; i < cases.size(); i++) {
    internal::AnyCase* c = cases[i].case_.get();
    if (c->is_default()) {
      if (default_case >= 0) panic("reflect.Select: multiple default cases");
      default_case = static_cast<int>(i);
    }
    scases[i] = c->Arm();
  }
  rt::SelectResult r =
      rt::selectgo(scases, cases.size(), /*block=*/default_case < 0);
  if (r.index < 0) r.index = default_case;
  cases[static_cast<size_t>(r.index)].case_->Finish(r.result);
  return r.index;
}

void select() {
  for (;;) (void)rt::selectgo(nullptr, 0, /*block=*/true);
}

}  // namespace gump
