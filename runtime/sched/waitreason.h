// Why a G is parked: Go's reasons and words, as goroutine dumps show them.
#ifndef RUNTIME_SCHED_WAITREASON_H_
#define RUNTIME_SCHED_WAITREASON_H_

#include <cstddef>
#include <cstdint>

namespace gump::rt {

enum class WaitReason : uint8_t {
  kZero,
  kIOWait,
  kPanicWait,
  kFinalizerWait,
  kForceGCIdle,
  kUpdateGOMAXPROCSIdle,
  kSemacquire,
  kSleep,
  kChanReceiveNilChan,
  kChanSendNilChan,
  kSelectNoCases,
  kSelect,
  kChanReceive,
  kChanSend,
  kSyncCondWait,
  kSyncMutexLock,
  kSyncRWMutexRLock,
  kSyncRWMutexLock,
  kSyncWaitGroupWait,
  kTraceReaderBlocked,
  kWaitForGCCycle,
  kGCWorkerIdle,
  kGCWorkerActive,
  kPreempted,
  kStoppingTheWorld,
  kFlushProcCaches,
  kSynctestRun,
  kSynctestWait,
  kSynctestChanReceive,
  kSynctestChanSend,
  kSynctestSelect,
  kSynctestWaitGroupWait,
  kSyncEventWait,  // not of Go
  kSynctestScopeJoin,
  kScopeJoin,
  kScopeWait,
  kRingWait,  // in the ring, with a buffer
  kNumWaitReasons,
};

// Go's texts, and ours for scopes, by WaitReason; "" for kZero. Debuggers read
// them, too.
inline constexpr size_t kNumWaitReasonTexts =
    static_cast<size_t>(WaitReason::kNumWaitReasons);
extern const char* const kWaitReasonText[kNumWaitReasonTexts];

// waitReasonString returns the text. It returns "" for kZero, and "unknown
// wait reason" beyond the last reason.
const char* waitReasonString(WaitReason r);

// isIdleInSynctest returns true if a goroutine of a bubble that parks for this
// reason is durably blocked (synctest.h).
bool isIdleInSynctest(WaitReason r);

// isMutexWait returns true if a goroutine that parks for this reason waits for
// a Mutex or an RWMutex.
inline bool isMutexWait(WaitReason r) {
  return r >= WaitReason::kSyncMutexLock && r <= WaitReason::kSyncRWMutexLock;
}

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_WAITREASON_H_
