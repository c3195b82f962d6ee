// The state of another thread of this process, as /proc tells it.
#ifndef RUNTIME_SYS_THREADSTATE_LINUX_H_
#define RUNTIME_SYS_THREADSTATE_LINUX_H_

#include <cstdint>

namespace gump::rt {

enum class ThreadState : uint8_t { kRunning, kAsleep, kUnknown, kUnseen };
// threadState asks /proc for the state of the thread, and how often it has gone
// to sleep so far. Returns kUnseen if it cannot be read, for example because no
// descriptor is free.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] ThreadState threadState(int32_t tid, uint64_t* sleeps);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_THREADSTATE_LINUX_H_
