// BubbleScope: the bubble of a synctest::Run.
#ifndef GUMP_INTERNAL_BUBBLE_SCOPE_H_
#define GUMP_INTERNAL_BUBBLE_SCOPE_H_

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// BubbleScope makes the calling goroutine or thread the root of a bubble, until
// Run returns or the scope ends.
class BubbleScope {
 public:
  // Panics if the caller is in a bubble already. Throws std::bad_alloc.
  BubbleScope();
  ~BubbleScope();
  BubbleScope(const BubbleScope&) = delete;
  BubbleScope& operator=(const BubbleScope&) = delete;
  // Run parks until the goroutines of the bubble have ended. Panics in a
  // deadlock.
  void Run();

 private:
  bool open_ = true;
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_BUBBLE_SCOPE_H_
