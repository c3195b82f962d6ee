// CondWatch: the part of Cond::Wait that waits for a context.
#ifndef GUMP_INTERNAL_COND_WATCH_H_
#define GUMP_INTERNAL_COND_WATCH_H_

#include <memory>

#include "gump/context.h"

#pragma GCC visibility push(default)

namespace gump::sync {

class Cond;

}  // namespace gump::sync

namespace gump::internal {

// CondWatch wakes all waiters of a Cond when a context is done, for as long as
// the CondWatch lives.
class CondWatch {
 public:
  CondWatch(sync::Cond* cond, const context::Context& ctx);
  ~CondWatch();
  CondWatch(const CondWatch&) = delete;
  CondWatch& operator=(const CondWatch&) = delete;

  // Wait is cond->Wait(), and returns true. If the context is done already, it
  // only unlocks and locks L, and returns false.
  bool Wait();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  context::StopFunc stop_;
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_COND_WATCH_H_
