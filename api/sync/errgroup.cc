// sync::ErrGroup. The limit is a buffered channel with a value for each active
// goroutine, so callers that wait for a place are served in order. active_ also
// counts the goroutines, with or without a limit, until they have left. Only
// then may SetLimit replace the channel.
#include "gump/sync/errgroup.h"

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
  // Acquire: pairs with Leave.
  if (const size_t active = active_.load(rt::acquire); active != 0) {
    panic(absl::StrCat("errgroup: modify limit while ", active,
                       " goroutines in the group are still active"));
  }
  places_ = n < 0 ? nullptr : make_chan<void>(static_cast<size_t>(n));
}

void ErrGroup::Enter() {
  if (places_) places_.Send();
  active_.add(1, rt::relaxed);  // publishes nothing
}

bool ErrGroup::TryEnter() {
  if (places_ && !places_.TrySend()) return false;
  active_.add(1, rt::relaxed);  // publishes nothing
  return true;
}

void ErrGroup::Leave() {
  if (places_) (void)places_.TryRecv();  // never empty: our own value is there
  // Release: our use of the channel is over.
  active_.add(static_cast<size_t>(-1), rt::release);
}

void ErrGroup::Fail(absl::Status status) {
  failed_.Do([&] {
    error_ = std::move(status);
    cancel_(error_);
  });
}

absl::Status ErrGroup::Wait() {
  wg_.Wait();
  cancel_(error_);  // if error_ is OK, the cause is "context canceled"
  return error_;
}

}  // namespace gump::sync
