// ScopeCount and ScopeTask: how a Scope waits for its goroutines, and how a
// Handle waits for one of them. api/scope_join.cc has the arguments.
#ifndef GUMP_INTERNAL_SCOPE_JOIN_H_
#define GUMP_INTERNAL_SCOPE_JOIN_H_

#include <cstdint>

#include "gump/internal/atomic.h"
#include "gump/internal/linkname_sync.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// ScopeCount counts the goroutines of a scope until the scope is over.
class ScopeCount {
 public:
  ScopeCount() noexcept = default;
  ScopeCount(const ScopeCount&) = delete;
  ScopeCount& operator=(const ScopeCount&) = delete;

  // Enter counts one goroutine more. Returns false if the scope is over. The
  // owner calls EnterByOwner, which does the same in less time.
  [[nodiscard]] bool Enter() noexcept;
  [[nodiscard]] bool EnterByOwner() noexcept {
    if (credit_ == 0 && !Refill()) return false;
    credit_--;
    return true;
  }
  // Leave is the last use of the count by a goroutine that has been counted.
  void Leave() noexcept;
  // Join parks until no goroutine is left. From then on the scope is over, and
  // nothing but Enter and Over uses the count. Only the owner calls it.
  void Join() noexcept;
  // Over returns true when the scope is over. On the owner.
  [[nodiscard]] bool Over() const noexcept {
    // Relaxed: only the owner's own Join is of interest.
    return word_.load(rt::relaxed) == kJoining;
  }

 private:
  // word_:  | goroutines : 31 | the owner is in Join, or has been : 1 |
  static constexpr uint32_t kJoining = 1;
  static constexpr uint32_t kOne = 2;
  static constexpr uint32_t kCredit = 64;

  [[nodiscard]] bool Refill() noexcept;

  rt::Atomic<uint32_t> word_;
  rt::WaitList list_;  // the owner in Join
  // Counted in word_, but not started yet. The owner's alone.
  uint32_t credit_ = 0;
};

// ScopeTask is the part of a goroutine of a scope that its Handle shares. The
// last of the two to let go of it destroys it.
class ScopeTask {
 public:
  explicit ScopeTask(void (*destroy)(ScopeTask*)) noexcept;
  ScopeTask(const ScopeTask&) = delete;
  ScopeTask& operator=(const ScopeTask&) = delete;

  // End reports that the goroutine has its result, and lets go.
  void End() noexcept;
  // Join parks until End. Only the holder of the handle calls it.
  void Join() noexcept;
  // Drop lets go of the task, for the handle.
  void Drop() noexcept;
  // Discard destroys a task whose goroutine was never started.
  void Discard() noexcept { destroy_(this); }

 private:
  static constexpr uint32_t kEnded = 1;
  static constexpr uint32_t kWaiting = 2;  // the handle is in Join
  static constexpr uint32_t kDropped = 4;  // there is no handle

  void (*const destroy_)(ScopeTask*);
  rt::Atomic<uint32_t> state_;
  const uint32_t bubble_;  // of the goroutine; 0: none
  rt::WaitList list_;      // the handle in Join
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_SCOPE_JOIN_H_
