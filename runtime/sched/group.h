// Groups. At most as many goroutines of a group run at any moment as the group
// has slots, however many Ps there are.
//
// A goroutine belongs to the group that go() names, or else to the group of the
// goroutine that started it. It needs a slot of the group to run, as it needs a
// P. group.cc has the protocol, and why no goroutine waits for a slot that is
// free.
#ifndef RUNTIME_SCHED_GROUP_H_
#define RUNTIME_SCHED_GROUP_H_

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/print.h"

namespace gump::rt {

// Bits of G::groupFlags. At most one is set. The owner of the G writes them:
// the M that runs it, or the thread that has taken it from a queue.
enum GroupFlag : uint8_t {
  kGroupQueued = 1,    // in the queue of its group
  kGroupReleased = 2,  // runnable, and a slot is kept for it: (U3)
  kGroupGranted = 4,   // runnable, and it has its slot: (U4)
};

// Group is one group. A cell is type-stable. It is used again when there is no
// handle, no goroutine and no timer of the group any more.
struct alignas(kFalseSharing) Group {
  // Two counts: GroupState in group.cc has the bits.
  Atomic<uint32_t> state;
  // How many goroutines are runnable, with what the Ps have counted since
  // (countRunnable). May be below 0.
  Atomic<int32_t> runnable;
  Atomic<int32_t> limit;   // slots; kMaxGomaxprocs if there is no limit
  Atomic<int32_t> queued;  // queue.size, written under mu with seq_cst
  // A leaf. Guards the queue.
  Mutex mu{LockRank::kLeaf};
  GQueue queue ABSL_GUARDED_BY(mu);
  Atomic<uint32_t> refs;  // handles, goroutines and timers
  uint32_t id = 0;        // constant; never 0
  Group* next = nullptr;  // in the free list
  // The name, malloc'ed; written before the first goroutine joins.
  char* name = nullptr;
  size_t nameSize = 0;
  // The name for dumps, which may outlive `name`: cut to what they show.
  char shortName[40] = {};
};

// kNoGroupLimit is the number of slots of a group without a limit. There are
// never more Ps.
inline constexpr int32_t kNoGroupLimit = kMaxGomaxprocs;

// Group cells lie in chunks, which are made on demand.
inline constexpr uint32_t kGroupChunk = 256;
inline constexpr uint32_t kGroupChunks = 1024;
extern Atomic<Group*> groupChunks[kGroupChunks];

// groupAt returns the group with that id, which is not 0.
// On: any.  P: either.  Locks: none.  Parks: no.
inline Group* groupAt(uint32_t id) {
  // Pairs with takeCell. Only the loops over all groups need that.
  return groupChunks[id / kGroupChunk].load(acquire) + id % kGroupChunk;
}
// groupOf returns the group of gp, or nullptr.
// On: any.  P: either.  Locks: none.  Parks: no.
inline Group* groupOf(const G* gp) {
  return gp->group == 0 ? nullptr : groupAt(gp->group);
}

// All functions that take a G do nothing, and return the answer that lets it
// go on, if the G is in no group. Unless it says otherwise:
// On: any, m.locks > 0.  P: either.  Locks: takes a leaf; takes sched.lock.
// Parks: no.

// ---- A goroutine begins to run ----------------------------------------------

// groupAdmit takes a slot for gp, which execute is about to run. Returns false
// if the group is full. Then gp is in the group's queue, and may run elsewhere
// at once.
// P: needed.
[[nodiscard]] bool groupAdmit(G* gp);
// groupGrant is groupAdmit for a gp whose P is then handed to another M. The
// next groupAdmit of gp succeeds.
// P: needed.
[[nodiscard]] bool groupGrant(G* gp);
// groupGrantInPlace is groupGrant for a gp that is preempted in place. If it
// returns false, gp stays where it is. It also takes a slot that is kept for
// another goroutine (U5).
// Locks: takes a leaf.
[[nodiscard]] bool groupGrantInPlace(G* gp);
// groupUngrant takes the slot of groupGrant back, because gp is queued again.
// Locks: caller holds sched.lock; takes a leaf.
void groupUngrant(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
// groupRefuse takes the slot of groupAdmit back, because there is no stack for
// gp, which stays runnable.
void groupRefuse(G* gp);
// groupEnter takes a slot for gp, which comes back from a system call and has a
// P. Returns false if the group is full.
// Locks: none.
[[nodiscard]] bool groupEnter(const G* gp);

// ---- A goroutine stops running ----------------------------------------------

// groupLeave gives up the slot of a goroutine of g that ends or is in a system
// call, and takes the next of the queue.
void groupLeave(Group* g);
// groupParked is groupLeave for a goroutine that has parked. If it returns a G,
// that one has the slot, and the caller executes it now.
// On: g0.  P: needed.
[[nodiscard]] G* groupParked(Group* g);
// groupTaken is groupLeave for a goroutine that another thread has found
// asleep (presumeBlocked).
void groupTaken(Group* g);
// groupKeep gives gp, whose park has failed, to the execute that follows.
// Locks: none.
void groupKeep(G* gp);
// groupYield gives up the slot of gp, which is runnable again and in no queue.
// Returns true if others wait for a slot: then gp is in the group's queue.
// Otherwise the caller queues gp. *next is as the result of groupParked.
// On: g0.  P: needed.
[[nodiscard]] bool groupYield(G* gp, G** next);
// groupYieldNow is groupYield for a gp that the caller queues in any case.
// On: g0.  P: needed.
void groupYieldNow(G* gp);
// groupHold is groupYieldNow for a gp that stops only because the world does:
// its slot is kept for it.
// Locks: takes a leaf.
void groupHold(G* gp);
// groupPreempted says that gp is preempted in place and queued. `lost`: its P
// had been taken, and with it its slot. Returns true if the caller must call
// wakep after it has dropped the lock.
// Locks: caller holds sched.lock; takes a leaf.
[[nodiscard]] bool groupPreempted(G* gp, bool lost)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
// groupNext is directNext for gp, which is about to leave and is in a group. If
// the next goroutine is of the same group and none waits for a slot, it takes
// over the slot of gp. `yields`: gp stays runnable.
// On: user.  P: needed; m.locks is 1.
[[nodiscard]] G* groupNext(const G* gp, M* mp, bool yields);

// ---- Goroutines that no scheduler looks for ---------------------------------

// groupsTakeInPlace takes out of the groups' queues a goroutine that is
// preempted in place and for which there is a slot, and grants it. Returns
// nullptr if there is none.
// Locks: caller holds sched.lock; takes a leaf.
[[nodiscard]] G* groupsTakeInPlace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
// groupsFlushInPlace moves all goroutines that are preempted in place from the
// groups' queues to the global queue.
// Locks: as groupsTakeInPlace.
void groupsFlushInPlace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
// groupUncount says that gp, which was runnable, runs without a slot, because
// main has ended (releasePreempted).
// Locks: as groupsTakeInPlace.
void groupUncount(G* gp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);

// ---- Members ----------------------------------------------------------------

// groupReady counts gp as runnable. Only the caller may queue it.
// Locks: takes a leaf.
void groupReady(const G* gp);
// groupJoin makes gp, which no other thread knows yet, a runnable goroutine of
// the group `id`. The caller keeps a reference to that group meanwhile.
// Locks: takes a leaf.
void groupJoin(G* gp, uint32_t id);
// groupEnd says that a goroutine of g has ended. It was running.
void groupEnd(Group* g);
// groupRetainId and groupReleaseId count a reference to the group `id`. 0 is no
// group.
// Locks: groupReleaseId takes a leaf.
void groupRetainId(uint32_t id);
void groupReleaseId(uint32_t id);
// groupWants tells whether the goroutine that runs on pp should let another
// goroutine of its group run: one waits for a slot, or SetMaxProcs has lowered
// the limit. A hint.
// Locks: none.
[[nodiscard]] bool groupWants(const P* pp);

// ---- For dumps and traces ---------------------------------------------------

// groupsQueued returns how many goroutines are in the queues of groups.
// Locks: none.
[[nodiscard]] int32_t groupsQueued();
// traceGroups prints a line for each group that is in use.
// Locks: none.
void traceGroups(Writer* w);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_GROUP_H_
