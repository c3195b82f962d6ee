// FdMutex: who uses a descriptor, and that it is not closed under them.
//
// Two locks in one word, one for readers and one for writers, beside a count of
// all who are inside and a flag that says no more may enter. Source: Go's
// internal/poll.fdMutex.
//
//   |1|  20: wwait  |  20: rwait  |  20: refs  | wlock | rlock | closed |
//
// Invariants:
//  (F1) refs counts one for each lock held, one for each incref, and one for a
//       close under way. Who takes it to 0 with closed set destroys the FD.
//  (F2) rwait (wwait) goroutines sleep on rsema (wsema), or are about to. Who
//       unlocks takes one away and wakes it; a close takes all away, and they
//       fail.
#ifndef NETPOLL_FD_MUTEX_H_
#define NETPOLL_FD_MUTEX_H_

#include <cstdint>

#include "netpoll/polldesc.h"
#include "runtime/atomic.h"

namespace gump::rt {

class FdMutex {
 public:
  enum class Lock : uint8_t {
    kOk,
    kClosed,
    kOverflow,  // more than kMaxUsers at once
  };
  static constexpr uint64_t kMaxUsers = (1 << 20) - 1;

  // All of these:
  // On: user, m.locks == 0, or a plain thread.  Parks: rwlock only.

  // incref enters without a lock. decref leaves; true: the caller destroys.
  [[nodiscard]] Lock incref();
  [[nodiscard]] bool decref();
  // close lets nobody enter any more, wakes those who sleep here, and takes a
  // reference; false: it is closed already.
  [[nodiscard]] Lock close();
  // rwlock enters with the lock for a direction. rwunlock gives it up and
  // leaves; true: the caller destroys.
  [[nodiscard]] Lock rwlock(PollMode mode);
  [[nodiscard]] bool rwunlock(PollMode mode);

 private:
  Atomic<uint64_t> state_;
  Atomic<uint32_t> rsema_;
  Atomic<uint32_t> wsema_;
};

}  // namespace gump::rt

#endif  // NETPOLL_FD_MUTEX_H_
