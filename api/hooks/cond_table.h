// The goroutines that wait for condition variables of pthread and of C11, by
// the address of the variable (cond_table.cc).
#ifndef API_HOOKS_COND_TABLE_H_
#define API_HOOKS_COND_TABLE_H_

#include <cstdint>

#include "runtime/sched/runtime2.h"

namespace gump::hooks {

// CondWaiter is one wait for a condition variable, which is known by its
// address only. It lies on the stack of the goroutine that waits. The goroutine
// makes it while it holds the mutex, and gives the mutex back. Then it calls
// Wait, or it calls WaitUntil, as often as it likes, until that returns true.
// To give up, it calls Leave.
class CondWaiter {
 public:
  explicit CondWaiter(const void* cond);
  CondWaiter(const CondWaiter&) = delete;
  CondWaiter& operator=(const CondWaiter&) = delete;

  // Wait parks until the waiter is signalled, and leaves the table.
  void Wait();
  // WaitUntil parks until `when`, on the clock of semaDeadline, at the latest.
  // Returns true if the waiter was signalled, and then it has left the table.
  [[nodiscard]] bool WaitUntil(int64_t when);
  // Leave leaves the table without a wait. Returns false if the waiter was
  // signalled before.
  [[nodiscard]] bool Leave();

 private:
  struct Bucket;
  friend void CondSignalled(const void* cond, bool all);
  friend bool CondIsAwaited(const void* cond);
  static Bucket* BucketOf(const void* cond);

  const void* const cond_;
  // The links and queued_ are under the bucket's lock.
  CondWaiter* next_ = nullptr;
  CondWaiter* prev_ = nullptr;
  bool queued_ = false;
  rt::Atomic<uint32_t> woken_{0};  // a semaphore
};

// CondSignalled wakes the goroutine that has waited longest for cond, or, if
// `all`, each that waits for it. Any thread may call it, after the program's
// signal.
// Parks: no.
void CondSignalled(const void* cond, bool all);
// CondIsAwaited returns true if a goroutine waits for cond.
// Parks: no.
[[nodiscard]] bool CondIsAwaited(const void* cond);

}  // namespace gump::hooks

#endif  // API_HOOKS_COND_TABLE_H_
