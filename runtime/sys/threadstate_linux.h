// The state of another thread of this process, as /proc tells it, and whether
// the thread can run beside the caller.
#ifndef RUNTIME_SYS_THREADSTATE_LINUX_H_
#define RUNTIME_SYS_THREADSTATE_LINUX_H_

#include <cstdint>

namespace gump::rt {

// kUnseen means that /proc does not tell.
enum class ThreadState : uint8_t { kRunning, kAsleep, kUnknown, kUnseen };
// threadState asks /proc for the state of the thread, and how often it has gone
// to sleep so far. Returns kUnseen if it cannot be read, for example because no
// descriptor is free, or as parseThreadStatus does.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] ThreadState threadState(int32_t tid, uint64_t* sleeps);
// parseThreadStatus finds these two in the text of a status file. Returns
// kUnseen in three cases:
//  * The text has no state.
//  * The thread runs, and the text does not say how often it has gone to sleep
//    (as in gVisor). Then it may be about to sleep again.
//  * The text is about another thread. That happens if /proc belongs to another
//    PID namespace.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] ThreadState parseThreadStatus(const char* text, int32_t tid,
                                            uint64_t* sleeps);
// Pending tells whether a signal waits to be delivered. kUnknown: /proc does
// not tell, for example because the thread has ended.
enum class Pending : uint8_t { kNo, kYes, kUnknown };
// isPending tells whether sig waits for the thread tid, or for any thread of
// the process.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] Pending isPending(int32_t tid, int sig);
// isConfinedHere returns true if the thread may use one processor only, and the
// caller is on that processor now. Returns false if the kernel does not tell.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool isConfinedHere(int32_t tid);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_THREADSTATE_LINUX_H_
