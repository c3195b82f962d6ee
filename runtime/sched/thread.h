// Threads (thread.cc): how an M gets one, what a thread of ours does first and
// last, and how many Ms there are.
#ifndef RUNTIME_SCHED_THREAD_H_
#define RUNTIME_SCHED_THREAD_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/runtime2.h"

namespace gump::rt {

// If newm's id is this, newm reserves one.
inline constexpr int64_t kReserveID = -1;
// What the names of the threads that run goroutines begin with: gump-m3 is the
// thread of M 3.
inline constexpr char kThreadNamePrefix[] = "gump-m";

// newm makes an M that calls fn (nullptr: nothing) and then schedules on pp
// (nullptr: on the P that it is handed later). id comes from mReserveID, or
// is kReserveID. The M runs only the goroutines of home, unless that is
// nullptr. Before all that, the thread calls the hook of the program's
// (threadStarts).
// On: any.  P: pp, handed over.  Locks: takes sched.lock, a leaf.  Parks: no.
void newm(void (*fn)(), P* pp, int64_t id, Home* home = nullptr);
// newSystemM makes an M whose thread only runs fn, which does not return. name
// is the name of the thread: at most 15 bytes, constant.
// On: any.  P: either.  Locks: takes sched.lock, a leaf.  Parks: no.
void newSystemM(void (*fn)(), const char* name);
// mstart is the thread of mp, from its first call to its last.
// On: g0.  P: none.  Locks: takes sched.lock.  Parks: blocks the thread.
void mstart(M* mp);
// startTemplateThread starts the thread that makes all others. Called by
// schedinit.
// On: a thread of the user's.  P: none.  Locks: takes sched.lock.  Parks: no.
void startTemplateThread();
// systemThreadRunsOnWake is runOnWake for sysmon and for the ring's thread. In
// a real-time class they have inherited the priority of the template thread,
// which is that of the goroutines' threads plus one.
// On: sysmon, or the ring's thread.  P: none.  Locks: none.  Parks: no.
void systemThreadRunsOnWake();
// systemThreadQueuesOnWake is queueOnWake for the ring's thread. In a real-time
// class the thread keeps the priority that it has inherited.
// On: the ring's thread.  P: none.  Locks: none.  Parks: no.
void systemThreadQueuesOnWake();
// mexit ends this thread because its locked goroutine has ended. Returns
// nullptr, for gumpMcall. m0 sleeps instead, and a home goes on.
// On: g0.  P: needed, given away.  Locks: takes sched.lock.  Parks: m0 blocks.
[[nodiscard]] G* mexit();
// minit sets the fields of mp that only the thread itself can determine.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
void minit(M* mp);
// unminit undoes minit.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
void unminit(M* mp);
// threadsinit prepares for goroutines that end their threads by pthread_exit,
// which is a mistake. Each such thread then reports it (threadLost). Called by
// schedinit.
// On: a thread of the user's.  P: none.  Locks: none.  Parks: no.
void threadsinit();
// retireIdleMs ends the threads of idle Ms until keep are left. trimIdleMs ends
// those that were not needed since it was called last, except one per P. Both:
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void retireIdleMs(int32_t keep);
void trimIdleMs();
// mcommoninit names an M and enters it into allm.
// On: any.  P: either.  Locks: none.  Parks: no.
void mcommoninit(M* mp, int64_t id);
// mReserveID counts an M that will be made. mReserveID and checkmcount throw
// "thread exhaustion". mcount is the number of Ms without those of foreign
// threads. All three:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] int64_t mReserveID() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
[[nodiscard]] int64_t mcount() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
void checkmcount() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_THREAD_H_
