#include "runtime/sched/waitreason.h"

#include <cstddef>

namespace gump::rt {

const char* const kWaitReasonText[] = {
    "",
    "IO wait",
    "panicwait",
    "finalizer wait",
    "force gc (idle)",
    "GOMAXPROCS updater (idle)",
    "semacquire",
    "sleep",
    "chan receive (nil chan)",
    "chan send (nil chan)",
    "select (no cases)",
    "select",
    "chan receive",
    "chan send",
    "sync.Cond.Wait",
    "sync.Mutex.Lock",
    "sync.RWMutex.RLock",
    "sync.RWMutex.Lock",
    "sync.WaitGroup.Wait",
    "trace reader (blocked)",
    "wait for GC cycle",
    "GC worker (idle)",
    "GC worker (active)",
    "preempted",
    "stopping the world",
    "flushing proc caches",
    "synctest.Run",
    "synctest.Wait",
    "chan receive (durable)",
    "chan send (durable)",
    "select (durable)",
    "sync.WaitGroup.Wait (durable)",
    "sync.Event.Wait",
    "Scope.Join (durable)",
    "Scope.Join",
    "Scope.Wait",
    "IO wait",
};
static_assert(sizeof(kWaitReasonText) / sizeof(kWaitReasonText[0]) ==
              kNumWaitReasonTexts);

const char* waitReasonString(WaitReason r) {
  return r < WaitReason::kNumWaitReasons
             ? kWaitReasonText[static_cast<size_t>(r)]
             : "unknown wait reason";
}

bool isIdleInSynctest(WaitReason r) {
  switch (r) {
    case WaitReason::kChanReceiveNilChan:
    case WaitReason::kChanSendNilChan:
    case WaitReason::kSelectNoCases:
    case WaitReason::kSleep:
    case WaitReason::kSyncCondWait:
    case WaitReason::kSynctestRun:
    case WaitReason::kSynctestWait:
    case WaitReason::kSynctestChanReceive:
    case WaitReason::kSynctestChanSend:
    case WaitReason::kSynctestSelect:
    case WaitReason::kSynctestWaitGroupWait:
    case WaitReason::kSyncEventWait:
    case WaitReason::kSynctestScopeJoin:
    case WaitReason::kScopeWait:
      return true;
    default:
      return false;
  }
}

}  // namespace gump::rt
