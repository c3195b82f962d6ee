#include "netpoll/fd_mutex.h"

#include "gump/internal/linkname.h"
#include "runtime/diag/panic.h"
#include "runtime/sys/base.h"

namespace gump::rt {
namespace {

constexpr uint64_t kClosedBit = 1;
constexpr uint64_t kRLock = 1 << 1;
constexpr uint64_t kWLock = 1 << 2;
constexpr uint64_t kRef = 1 << 3;
constexpr uint64_t kRefMask = FdMutex::kMaxUsers << 3;
constexpr uint64_t kRWait = 1 << 23;
constexpr uint64_t kRWaitMask = FdMutex::kMaxUsers << 23;
constexpr uint64_t kWWait = uint64_t{1} << 43;
constexpr uint64_t kWWaitMask = FdMutex::kMaxUsers << 43;

struct Direction {
  uint64_t lock;
  uint64_t wait;
  uint64_t waitMask;
};
constexpr Direction directionOf(PollMode mode) {
  return mode == PollMode::kRead ? Direction{kRLock, kRWait, kRWaitMask}
                                 : Direction{kWLock, kWWait, kWWaitMask};
}

// Each change is one CAS. Acquire makes visible the changes of the last holder;
// release publishes ours.
constexpr auto kOrder = acq_rel;

}  // namespace

FdMutex::Lock FdMutex::incref() {
  uint64_t old = state_.load(relaxed);  // the CAS decides, here and below
  for (;;) {
    if ((old & kClosedBit) != 0) return Lock::kClosed;
    if ((old & kRefMask) == kRefMask) return Lock::kOverflow;
    if (state_.casWeak(old, old + kRef, kOrder)) return Lock::kOk;
  }
}

bool FdMutex::decref() {
  uint64_t old = state_.load(relaxed);
  for (;;) {
    if ((old & kRefMask) == 0) fatalthrow("inconsistent poll.fdMutex");
    const uint64_t next = old - kRef;
    if (state_.casWeak(old, next, kOrder)) {
      return (next & (kClosedBit | kRefMask)) == kClosedBit;
    }
  }
}

FdMutex::Lock FdMutex::close() {
  uint64_t old = state_.load(relaxed);
  for (;;) {
    if ((old & kClosedBit) != 0) return Lock::kClosed;
    if ((old & kRefMask) == kRefMask) return Lock::kOverflow;
    const uint64_t next =
        ((old | kClosedBit) + kRef) & ~(kRWaitMask | kWWaitMask);
    if (state_.casWeak(old, next, kOrder)) break;
  }
  const auto waiters = [old](uint64_t mask, uint64_t one) {
    return static_cast<uint32_t>((old & mask) / one);
  };
  if (const uint32_t n = waiters(kRWaitMask, kRWait)) semreleaseN(&rsema_, n);
  if (const uint32_t n = waiters(kWWaitMask, kWWait)) semreleaseN(&wsema_, n);
  return Lock::kOk;
}

FdMutex::Lock FdMutex::rwlock(PollMode mode) {
  const Direction d = directionOf(mode);
  uint64_t old = state_.load(relaxed);
  for (;;) {
    if ((old & kClosedBit) != 0) return Lock::kClosed;
    const bool held = (old & d.lock) != 0;
    const uint64_t full = held ? d.waitMask : kRefMask;
    if ((old & full) == full) return Lock::kOverflow;
    const uint64_t next = held ? old + d.wait : (old | d.lock) + kRef;
    if (!state_.casWeak(old, next, kOrder)) continue;
    if (!held) return Lock::kOk;
    semacquire(mode == PollMode::kRead ? &rsema_ : &wsema_, /*lifo=*/false,
               SemaReason::kSemacquire);
    // The waker has taken us off the waiters: try again.
    old = state_.load(relaxed);
  }
}

bool FdMutex::rwunlock(PollMode mode) {
  const Direction d = directionOf(mode);
  uint64_t old = state_.load(relaxed);
  for (;;) {
    if ((old & d.lock) == 0 || (old & kRefMask) == 0) {
      fatalthrow("inconsistent poll.fdMutex");
    }
    const bool waiter = (old & d.waitMask) != 0;
    const uint64_t next = (old & ~d.lock) - kRef - (waiter ? d.wait : 0);
    if (!state_.casWeak(old, next, kOrder)) continue;
    if (GUMP_UNLIKELY(waiter)) {
      semrelease(mode == PollMode::kRead ? &rsema_ : &wsema_,
                 /*handoff=*/false);
    }
    return (next & (kClosedBit | kRefMask)) == kClosedBit;
  }
}

}  // namespace gump::rt
