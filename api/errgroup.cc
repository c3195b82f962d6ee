// sync::ErrGroup. The limit is a buffered channel with a value for each active
// goroutine, so that those who wait for a place are served in order.
#include "gump/errgroup.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gump/panic.h"

namespace gump::sync {

ErrGroup::GroupAndContext ErrGroup::WithContext(
    const context::Context& parent) {
  auto [ctx, cancel] = context::WithCancelCause(parent);
  return {ErrGroup(std::move(cancel)), std::move(ctx)};
}

void ErrGroup::SetLimit(int n) {
  if (const size_t active = active_.Len(); active != 0) {
    panic(absl::StrCat("errgroup: modify limit while ", active,
                       " goroutines in the group are still active"));
  }
  active_ = n < 0 ? nullptr : make_chan<void>(static_cast<size_t>(n));
}

void ErrGroup::Enter() const {
  if (active_) active_.Send();
}

bool ErrGroup::TryEnter() const { return !active_ || active_.TrySend(); }

void ErrGroup::Leave() const {
  if (active_) (void)active_.TryRecv();  // never empty: our own is there
}

void ErrGroup::Fail(absl::Status status) {
  failed_.Do([&] {
    error_ = std::move(status);
    cancel_(error_);
  });
}

absl::Status ErrGroup::Wait() {
  wg_.Wait();
  cancel_(error_);  // OK: without a reason
  return error_;
}

}  // namespace gump::sync
