// FdMutex counts the users of a descriptor, so that it is not closed while they
// use it.
//
// One word holds two locks, one for readers and one for writers, and a count of
// all users that are inside. It also holds a flag that says that no more may
// enter. Source: Go's internal/poll.fdMutex.
//
//   |1|  20: wwait  |  20: rwait  |  20: refs  | wlock | rlock | closed |
//
// Invariants:
//  (F1) refs counts one for each lock held, one for each incref, and one for a
//       close under way. The user that takes it to 0 with closed set destroys
//       the FD.
//  (F2) rwait (wwait) goroutines sleep on rsema (wsema), or are about to. An
//       unlock subtracts one and wakes that waiter. A close subtracts all, and
//       the waiters fail.
#ifndef NETPOLL_FD_MUTEX_H_
#define NETPOLL_FD_MUTEX_H_

#include <cstdint>

#include "netpoll/polldesc.h"
#include "runtime/sys/atomic.h"

namespace gump::rt {

class FdMutex {
 public:
  enum class Lock : uint8_t {
    kOk,
    kClosed,
    kOverflow,  // more than kMaxUsers at once
  };
  static constexpr uint64_t kMaxUsers = (1 << 20) - 1;

  // All operations:
  // On: user, m.locks == 0, or a foreign thread.  Parks: rwlock only.

  // incref enters without a lock. decref leaves, and returns true if the caller
  // must destroy the FD.
  [[nodiscard]] Lock incref();
  [[nodiscard]] bool decref();
  // close lets no more users enter, wakes the goroutines that sleep here, and
  // takes a reference. Returns kClosed if it is closed already.
  [[nodiscard]] Lock close();
  // rwlock enters with the lock for a direction. rwunlock gives it up and
  // leaves, and returns true if the caller must destroy the FD.
  [[nodiscard]] Lock rwlock(PollMode mode);
  [[nodiscard]] bool rwunlock(PollMode mode);

 private:
  Atomic<uint64_t> state_;
  Atomic<uint32_t> rsema_;
  Atomic<uint32_t> wsema_;
};

}  // namespace gump::rt

#endif  // NETPOLL_FD_MUTEX_H_
