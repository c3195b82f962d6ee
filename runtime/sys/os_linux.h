// The kernel, as the runtime sees it. Nothing here allocates from malloc or
// takes a lock of libc. newosproc is the exception, which only the template
// thread and foreign threads may call.
#ifndef RUNTIME_SYS_OS_LINUX_H_
#define RUNTIME_SYS_OS_LINUX_H_

#include <cstddef>
#include <cstdint>

#include "runtime/sys/atomic.h"

namespace gump::rt {

struct M;

// Unless a comment says otherwise:
// On: any.  P: either.  Locks: none.  Parks: no, but functions that sleep block
// the thread.

int64_t nanotime();  // CLOCK_MONOTONIC, ns
int64_t walltime();  // CLOCK_REALTIME, ns
void usleep(uint32_t usec);
void osyield();
int32_t gettid();
void tgkill(int32_t tid, int sig);

// taskDirInit opens /proc/self/task and keeps it. So the functions below still
// work after a chroot into a directory that has no /proc.
// On: schedinit.
void taskDirInit();
// readTaskFile reads the first n bytes of a file below /proc/self/task, as far
// as one read(2) gives them. Returns how many it read, or -1.
int64_t readTaskFile(const char* name, char* buf, size_t n);
// threadCount returns how many threads the process has, or 0 if that is
// unknown.
int64_t threadCount();
// inertThreads finds threads that run no code of the program: those that the
// kernel made for an io_uring, and the first thread, if it has ended before the
// others. It writes them to tids, which has room for n, and returns how many it
// wrote. Some may be missing, because a listing ends early at a thread that is
// just ending.
size_t inertThreads(int32_t* tids, size_t n);

// futexsleep sleeps while *addr == val, at most ns (negative: for ever). It may
// wake spuriously.
void futexsleep(Atomic<uint32_t>* addr, uint32_t val, int64_t ns);
// futexwakeup wakes up to cnt sleepers. Returns how many it woke.
int32_t futexwakeup(Atomic<uint32_t>* addr, uint32_t cnt);

// threadCpuTime returns the CPU time, in ns, that a thread of this process has
// used so far, or -1 if there is no such thread.
[[nodiscard]] int64_t threadCpuTime(int32_t tid);
// ownSleeps returns how often the calling thread has gone to sleep so far.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] uint64_t ownSleeps();

// preciseSleeps sets the timer slack of this thread, mp's, to 2 ns instead of
// 50 µs. A sleep still ends late by the time that the processor takes to wake
// (netpoll/wakeup_lead.h).
//
// The kernel gives that slack to the children and the threads that this thread
// makes. So ordinarySleeps restores the old slack before a child is made, and
// when a thread goes back to the program. It also does so on a thread that has
// inherited the slack; mp is nullptr on a thread that is not ours. The next
// call of preciseSleeps sets it again. sleepsInit notes the slack with which
// the runtime starts.
void sleepsInit();
void preciseSleeps(M* mp);
void ordinarySleeps(M* mp);

// declineSignals blocks the signals that are sent to the process, so that its
// other threads get them. It does not block SIGABRT, nor the signals that this
// thread's own faults cause. Nor does it block SIGQUIT (crashAbort), except
// under ThreadSanitizer. It is for threads that sleep where ThreadSanitizer
// does not see it. ThreadSanitizer runs handlers only around the calls that it
// knows, so a handler would never run on such a thread.
void declineSignals();

// runOnWake asks the kernel to let this thread run as soon as it wakes, even if
// that cuts the turn of a thread that computes. Without it the thread waits
// until the next tick, or for ever if it is SCHED_FIFO among threads that never
// sleep. It is for threads that do little while other threads wait for them.
//  * In the class SCHED_OTHER, it asks for short slices. That needs Linux 6.12;
//    earlier kernels ignore it.
//  * In SCHED_FIFO and SCHED_RR it is raisePriority.
//  * In other classes it does nothing.
// The class stays the same. undoRunOnWake undoes it, given its result.
struct RunOnWake {
  uint64_t slice = 0;     // the slice before, in ns; 0: not changed
  uint32_t priority = 0;  // the priority before; 0: not changed
};
[[nodiscard]] RunOnWake runOnWake();
void undoRunOnWake(RunOnWake before);
// queueOnWake is the opposite of runOnWake. When this thread wakes, it runs at
// once if a processor is idle. Otherwise it waits for its turn, and interrupts
// no thread. It is for a thread that collects work for threads that are busy.
//  * In the class SCHED_OTHER, this thread changes to SCHED_BATCH.
//  * In other classes it does nothing.
void queueOnWake();
// raisePriority raises the priority of this thread by one if it is SCHED_FIFO
// or SCHED_RR. Returns the old priority, or 0 if there was no change: the class
// is another one, the priority is the highest, or the kernel refuses because
// the process has neither CAP_SYS_NICE nor a large enough RLIMIT_RTPRIO.
// lowerPriority undoes it, also on a thread that this one has made. It does
// nothing on a thread that does not have the raised priority.
[[nodiscard]] uint32_t raisePriority();
void lowerPriority(uint32_t old);

// threadName writes the name of the calling thread.
inline constexpr size_t kThreadNameMax = 16;  // with the final NUL
void threadName(char (*name)[kThreadNameMax]);

// membarrierInit registers the process for membarrier(2) and sets
// membarrierState (lock_futex.h). Several threads may call it, at any time.
void membarrierInit();
// asymmetricHeavy is the expensive side of an asymmetric barrier: a full fence
// on every running thread of the process. It takes a few microseconds. Where
// membarrier(2) is denied, both sides are ordinary fences.
void asymmetricHeavy();

// getproccount returns the number of processors in this process's affinity mask
// now.
int32_t getproccount();

// sysReserve maps n bytes of zeroed, lazily backed memory (MAP_NORESERVE).
// Returns nullptr if the kernel refuses.
void* sysReserve(size_t n);
// sysReserveAt is sysReserve at an address. Returns 0, or the errno, which is
// EEXIST if that place is taken.
[[nodiscard]] int sysReserveAt(uintptr_t at, size_t n);
void sysFree(void* p, size_t n);
// sysName names the n bytes of anonymous memory at p, which begin and end at a
// page, as /proc/PID/maps shows them: `[anon:gump: stacks]`. name is a constant
// string. A kernel without such names (before 5.17, or built without
// CONFIG_ANON_VMA_NAME) refuses, which does no harm.
void sysName(void* p, size_t n, const char* name);

// sysPreferNode asks the kernel to back the n bytes at p, which begin and end
// at a page, with memory of a NUMA node (the kernel's number), if there is
// some. A kernel without NUMA, or a container that forbids it, refuses. Then
// the pages come from the node of the thread that touches them first.
void sysPreferNode(void* p, size_t n, int32_t node);

// setThreadName gives the calling thread a name of at most 15 bytes, which top
// and debuggers show.
// On: any.  P: either.  Locks: none.  Parks: no.
void setThreadName(const char* name);
// newosproc starts a detached thread that runs mstart(mp). Returns 0 or the
// errno of pthread_create.
// On: the template thread, or a thread of the user's.  Locks: libc's.
int newosproc(M* mp);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_OS_LINUX_H_
