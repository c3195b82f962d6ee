// sync::Latch is a WaitGroup that is raised once, before any other thread knows
// it. So none of the WaitGroup's kinds of misuse can happen to it, except a
// counter below zero.
#include "gump/sync/latch.h"

#include "gump/panic.h"

namespace gump::sync {

Latch::Latch(ptrdiff_t expected) {
  if (expected < 0 || expected > max()) {
    panic("sync: Latch made with a count that is negative or too large");
  }
  if (expected > 0) count_.Add(static_cast<int>(expected));
}

// The counter may have fallen since the look. Then Add panics, with the text of
// WaitGroup.
void Latch::count_down(ptrdiff_t n) {
  if (n < 0) panic("sync: Latch counted down by a negative number");
  if (n > count_.CountNow()) panic("sync: Latch counted down below zero");
  if (n > 0) count_.Add(-static_cast<int>(n));
}

}  // namespace gump::sync
