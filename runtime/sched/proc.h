// The scheduler: which goroutine runs next, on which M and P. The functions are
// grouped by the source file that defines them. The essay is at the head of
// proc.cc. The names are Go's.
//
// The other proc_*.cc have headers of their own: runq.h, locked.h, stw.h,
// syscall.h, deadlock.h.
//
// The last line of each comment is its context, here and in the other headers
// of the runtime.
//  * On: the stack on which the function may run (g0: the M's scheduler stack;
//    user: a goroutine's; any).
//  * P: whether the M must hold one.
//  * Locks: the locks that the function takes.
//  * Parks: whether the goroutine may be switched away.
// A context line that applies to several functions says so.
//
// A function that runs on user with m.locks at 0 enters the runtime by an
// acquirem of its own. That outermost acquirem may park too, if the P was taken
// meanwhile (reenter). Until it returns, the M is not certain. "Parks: no" says
// nothing about that acquirem.
//
// Nothing throws inside the runtime except the forced unwind of goexit and
// exceptions of the user's closure, which go through gumpGoroutineMain.
#ifndef RUNTIME_SCHED_PROC_H_
#define RUNTIME_SCHED_PROC_H_

#include <cstdint>

#include "gump/internal/linkname.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/waitreason.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lock_futex.h"

namespace gump::rt {

// ---- proc.cc, proc_next.cc --------------------------------------------------

// schedule finds a G and makes it current; the caller, on g0, returns it to
// gumpMcall, which resumes it. (Unlike Go, where schedule never returns: a
// balanced call stack on g0 keeps the processor's return predictor right.)
// Returns nullptr only to leave the scheduler for good: m0 at the end of Run,
// and an M that is retired.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
[[nodiscard]] G* schedule();
// directNext makes current, and returns, the G that schedule would pick.
// Returns nullptr if no G is obvious from the local queues, or if schedule has
// anything else to do. Then the caller calls schedule.
// On: user.  P: needed; m.locks is 1.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] G* directNext(M* mp);
// nothingElseToRun tells whether schedule would find no G in the local queues
// and the global one, and has nothing else to do. Then a caller that has found
// a G elsewhere may run it at once, and a caller that was to yield need not.
// On: user, or g0.  P: needed; m.locks is 1.  Locks: none.  Parks: no.
[[nodiscard]] bool nothingElseToRun(const M* mp);
// goOnAlone gives gp, the current goroutine of mp, a new time slice and returns
// true if nothingElseToRun(mp). Otherwise it changes nothing and returns false.
// It returns false at each 61st slice, so that the caller looks further, and
// while a trace is written.
// On: user.  P: needed; m.locks is 1.  Locks: none.  Parks: no.
[[nodiscard]] bool goOnAlone(const M* mp, G* gp);
// beginSlice begins a time slice of pp. A request to yield belongs to the slice
// before it. A call would make directNext save registers in each switch
// (check_switch_code.py).
// On: any.  P: pp.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE void beginSlice(P* pp) {
  pp->preempt.store(false, relaxed);  // best effort: requests are repeated
  // Written by us; sysmon only compares values.
  pp->schedtick.store(pp->schedtick.load(relaxed) + 1, relaxed);
}
struct Runnable {
  G* gp;
  bool inheritTime;  // runs in the rest of the current slice
};
// findRunnable looks for work everywhere, and sleeps until there is some.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
[[nodiscard]] Runnable findRunnable();
// execute binds a stack if gp never ran, marks gp running and returns it.
// Returns nullptr if gp cannot begin because there is no memory, or if its
// group is full. gp is then queued where it waits for that.
// On: g0, or user from directNext.  P: needed; m.locks is 1.
// Locks: as bindStack, groupAdmit.  Parks: no.
[[nodiscard]] G* execute(G* gp, bool inheritTime);
// resetspinning ends the search of an M that has found work, and lets another M
// search.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.
void resetspinning();
// wakeNextSpinner is called after a spinner has found work, or when an M that
// was counted as a spinner will not search. It wakes another M to look for
// goroutines. If there is no P for that M, it makes sysmon look at the timers,
// because a thread that set a timer meanwhile relied on the first spinner.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void wakeNextSpinner();
// stopSpinning ends mp's search: S1 of the essay in proc.cc. The caller must
// look once more, or make another M look.
// On: g0.  P: either.  Locks: none.  Parks: no.
void stopSpinning(M* mp);
// uncountSpinner takes one M out of nmspinning: an M that ends its search, or
// that will never begin it. It throws with the text `negative` if none was
// counted.
// On: any.  P: either.  Locks: none.  Parks: no.
void uncountSpinner(const char* negative);
// runSafePointFn runs for pp the function of forEachP, unless another thread
// runs it.
// On: any.  P: pp, owned by the caller.  Locks: takes sched.lock.  Parks: no.
void runSafePointFn(P* pp);
// wakep starts one more M, spinning, if a P is idle and no M spins. The caller
// must have published the G to be found by a seq_cst read-modify-write, by a
// store that a seq_cst fence follows, or under sched.lock. That RMW or fence,
// and the load of nmspinning in wakep, are one half of the lost-wakeup argument
// in proc.cc. If the caller has a P, the G must be in its
// queues or in those of its node: with several nodes, wakep then prefers that
// node, and may leave a P of another one idle (N1 of proc_node.cc).
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void wakep();
// wakepAnywhere is wakep for work that is of no node, and for goroutines in
// the queues of any nodes.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void wakepAnywhere();
// injectglist makes every G of the list (all kGwaiting) runnable and starts Ms
// for them.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void injectglist(GList* glist);

// The parts of step 10 that need no P. Each becomePoller that returns true is
// followed by one pollUntilTime or one leavePoller.
//  * becomePoller takes the place of the M that blocks in the poller. Returns
//    false if another M has it.
//  * pollUntilTime blocks there until an event, or until the time pollUntil (0:
//    for ever), or until the poll is broken. Then it leaves the place.
//  * leavePoller leaves the place.
// On: g0.  P: none.  Locks: takes sched.lock.
// Parks: pollUntilTime blocks the thread.
[[nodiscard]] bool becomePoller(int64_t pollUntil);
[[nodiscard]] NetpollResult pollUntilTime(M* mp, int64_t pollUntil);
void leavePoller();
// runDueTimers runs the timers of all Ps that are due, and returns true if
// there were any. It calls no wakep for the goroutines that they ready.
// On: g0.  P: needed.  Locks: as timersCheck.  Parks: no.
[[nodiscard]] bool runDueTimers();
// nextTimer is S3 of the essay. It returns the time at which the first timer of
// any P is due, or 0 if there is none.
// On: g0.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] int64_t nextTimer();
// announceTimer tells the M in the poller about the timer that this M's
// goroutine has set as it parked.
// On: g0.  P: either.  Locks: takes sched.lock.  Parks: no.
void announceTimer(M* mp);

// ---- proc_status.cc ---------------------------------------------------------

// scanners is above 0 while a thread may set scan bits although the world runs.
// It is raised a grace period before the first bit is set, and lowered after
// the last bit is cleared.
extern Atomic<int32_t> scanners;

// All functions:
// On: any.  P: either.  Locks: none.  Parks: no.

// readgstatus includes the scan bit, and hides kGtracked.
uint32_t readgstatus(const G* gp);
// casgstatus moves gp along one edge of the diagram in g.h, or throws.
// It waits while another thread holds the scan bit.
void casgstatus(G* gp, uint32_t oldval, uint32_t newval);
// setgstatus is casgstatus without an event of the execution trace.
void setgstatus(G* gp, uint32_t oldval, uint32_t newval);
// castogscanstatus sets the scan bit on a waiting or syscall G. Returns false
// if gp is in another state. casfrom_Gscanstatus clears the bit.
[[nodiscard]] bool castogscanstatus(G* gp, uint32_t oldval);
void casfrom_Gscanstatus(G* gp, uint32_t oldval);
// pcasstatus tries to move pp from one status to another. It throws if the edge
// is not in the diagram of runtime2.h. setPStatus does the same for the only
// owner of pp. It also throws if the status was not oldval.
[[nodiscard]] bool pcasstatus(P* pp, uint32_t oldval, uint32_t newval);
void setPStatus(P* pp, uint32_t oldval, uint32_t newval);
// takeFromCall is pcasstatus for a P in a system call.
[[nodiscard]] bool takeFromCall(P* pp, uint32_t newval);

// ---- proc_park.cc -----------------------------------------------------------

// gopark parks the current goroutine. After its context is saved and it is
// kGwaiting, unlockf(gp, lock) runs on g0. If that returns false, the goroutine
// goes on at once. From the moment unlockf makes gp reachable for a waker, gp
// may run elsewhere, so nothing here may touch it any more. On a foreign thread
// the thread sleeps.
//
// gopark is called with exactly one acquirem() outstanding (m.locks == 1) and
// consumes it. When it returns, the caller holds no M, must not call releasem
// for it, and must fetch getg()->m anew, because it may be on another thread.
// On: user, or a foreign thread.  P: needed.  Locks: unlockf's.  Parks: yes.
void gopark(bool (*unlockf)(G*, void*), void* lock, WaitReason reason);
// goparkcommit is gopark for an unlockf that never returns false. unlockf may
// run on the stack of the next goroutine instead of g0's, so it must be
// shallow.
// On: user, or a foreign thread.  P: needed.  Locks: unlockf's.  Parks: yes.
void goparkcommit(bool (*unlockf)(G*, void*), void* lock, WaitReason reason);
// goparkunlock parks and releases l once the goroutine is kGwaiting.
// On: user, or a foreign thread.  P: needed.  Locks: releases l.  Parks: yes.
void goparkunlock(Mutex* l, WaitReason reason);
// goparkthread is goparkunlock for a foreign thread that waits until `when`
// (nanotime). At that time it calls withdraw(arg), which takes the thread from
// where it waits, so that no waker finds it. Then goparkthread returns false.
// If a waker has found the thread already, withdraw returns false, and
// goparkthread goes on to wait. It returns true when the thread has been
// readied. On: a foreign thread; m.locks is 1.  P: none. Locks: releases l;
// withdraw's.  Parks: blocks the thread.
bool goparkthread(Mutex* l, WaitReason reason, int64_t when,
                  bool (*withdraw)(void*), void* arg);
// goready makes a parked gp runnable. It runs next on this P. If there is no P,
// it goes to the tail of the global queue.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void goready(G* gp);
// readyAndRelease is goready, and then releasem(mp). gp has status `from`. If
// that is kGwaiting, gp is not special. If it is kGdead, gp is new. The caller
// has called acquirem.
// On: any, m.locks > 0.  P: either.  Locks: takes sched.lock.  Parks: no.
void readyAndRelease(M* mp, G* gp, uint32_t from);
// goreadyQuiet is goready for timers. If there is a P here, it does not wake an
// M for gp, because the owner of the P is about to schedule, or calls wakep.
// On: any, m.locks > 0.  P: either.  Locks: takes sched.lock.  Parks: no.
void goreadyQuiet(G* gp);
// mcallAnnounced is gumpMcall, and announces the switch if the program's
// sanitizer must know about it (sanitizer.h).
// On, P, Locks, Parks: as gumpMcall.
void mcallAnnounced(G* (*fn)(G*));
// goyield puts the current goroutine at the tail of the local ring and runs
// another.
// On: user.  P: needed.  Locks: takes sched.lock.  Parks: yes.
void goyield();
// dropg dissociates the M and its curg.
// On: g0.  P: either.  Locks: none.  Parks: no.
void dropg();
// runtimeEntry returns the current G, and lends one to a foreign thread. It
// honours a pending request to yield.
// On: user, or a foreign thread.  P: either.  Locks: as goyield.
// Parks: may yield.
G* runtimeEntry();
// gopreempt is Gosched for a request to yield, which it clears.
// On: user.  P: needed.  Locks: takes sched.lock.  Parks: yes.
void gopreempt();
// onOwnStack tells whether, at sp, gp is on its own stack and not on one that
// the program made.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] GUMP_ALWAYS_INLINE bool onOwnStack(const G* gp, uintptr_t sp) {
  return sp - gp->stack.lo <= gp->stack.hi - gp->stack.lo;
}

// ---- proc_new.cc ------------------------------------------------------------

// bindStack gives gp its stack. Returns false if there is none, and then gp
// waits in sched.nostack.
// On: g0, or user from directNext, which has seen a stack in pp's cache.
// P: pp.  Locks: takes kStack, sched.lock; none if the cache has one.
// Parks: no.
[[nodiscard]] bool bindStack(P* pp, G* gp);
// newproc1 makes a goroutine. Returns nullptr if there is no memory. The
// goroutine is still kGdead: the caller completes it and makes it kGrunnable.
// From then on dumps look at its fields.
// On: any.  P: either.  Locks: takes kGFree, kAllg, kStack, and sched.lock if
// stacks are short.  Parks: no.
[[nodiscard]] G* newproc1(const FuncType* ft, void* closure,
                          const SpawnOptions* o, uintptr_t pc);
// newprocTimer is newproc for a timer. Like goreadyQuiet it wakes no M. If
// there is no memory for a stack, that is no failure, and the goroutine waits
// for some. Returns false if there is no memory for a G. b is the bubble it
// belongs to, or nullptr. group is the id of its group, or 0.
// On: any.  P: either.  Locks: as newproc1; takes sched.lock.  Parks: no.
[[nodiscard]] bool newprocTimer(const FuncType* ft, void* closure, uintptr_t pc,
                                Bubble* b, uint32_t group);
// startSystemG starts a goroutine of the runtime's own, with an empty closure.
// Returns false if there is no memory.
// On: any.  P: either.  Locks: as newproc1; takes sched.lock.  Parks: no.
[[nodiscard]] bool startSystemG(const FuncType* ft);
// systemFunc is the type of such a closure.
constexpr FuncType systemFunc(void (*run)(void*)) noexcept {
  return {run, [](void*) {}, [](void*, void*) noexcept {}};
}
// gfget takes a free cell from pp's list, and refills that from the pool of its
// node, or of another one (poolFor). Returns nullptr if a new cell is to be
// made. gfput puts a cell back, gfpurge moves all of them to the pools of the
// nodes on which they lie. All three:
// On: any.  P: pp, owned by the caller.  Locks: takes kGFree.  Parks: no.
[[nodiscard]] G* gfget(P* pp);
void gfput(P* pp, G* gp);
void gfpurge(P* pp);
// gfpurgeForeign moves the free cells of a foreign thread, which is about to
// end, to the pools.
// On: a foreign thread.  P: none.  Locks: takes kGFree.  Parks: no.
void gfpurgeForeign(M* mp);
// goexit1 is the goroutine's last call. It destroys the closure and the
// goroutine-local values, and ends the goroutine.
// On: user.  P: needed.  Locks: none held.  Parks: yes.
[[noreturn]] void goexit1();
// nostackWake lets one of the Gs that wait for a stack try again.
// On: g0.  P: either.  Locks: takes sched.lock.  Parks: no.
void nostackWake();
// GSlab is a block of cells for Gs. Slabs form a list that only grows.
struct GSlab {
  Atomic<GSlab*> next;
  Atomic<uint32_t> used;  // cells handed out so far; written under allgLock,
                          // read by forEachG
  G* cells;
};
extern Atomic<GSlab*> gSlabs;  // the first; set once, release
// forEachG calls f for every G ever made, in creation order. Gs are never
// freed.
// On: any.  P: either.  Locks: none.  Parks: no.
void forEachG(void (*f)(G*, void*), void* arg);
// The same, a slab at a time. nextGSlab(nullptr) is the first slab, and nullptr
// comes after the last.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] GSlab* nextGSlab(const GSlab* after);
void forEachGIn(const GSlab* slab, void (*f)(G*, void*), void* arg);
// gcountAll is the number of Gs ever made.
// On: any.  P: either.  Locks: none.  Parks: no.
uint64_t gcountAll();
// malg returns a fresh cell, which is kGdead, or nullptr if there is no memory.
// It lies on the node of pp (memoryNode).
// On: any.  P: pp, owned by the caller, or nullptr.  Locks: takes kAllg, kMem.
// Parks: no.
[[nodiscard]] G* malg(P* pp);

// ---- proc_m.cc --------------------------------------------------------------

// startm gives pp (nullptr: an idle P, if any) to the first of these:
//  * the goroutine at the head of the global queue, if it was preempted in
//    place;
//  * an idle M;
//  * the goroutine that has been preempted in place for longest;
//  * an M on order, or a new M.
// On: any.  P: pp, handed over.  Locks: takes sched.lock.  Parks: no.
void startm(P* pp, bool spinning);
// handoffp finds an M for pp if there is any reason to, or else makes pp idle.
// On: any.  P: none; pp owned by the caller.  Locks: takes sched.lock.
// Parks: no.
void handoffp(P* pp);
// StartingP says which P takeStartingP may take.
enum class StartingP : uint8_t {
  kAny,
  kOfSafePoint,  // one that forEachP waits for
  // One that has waited for a slice's time. Another thread is then ordered for
  // it. There is a limit to the number of threads that are given up in this way
  // and have not come yet.
  kLate,
};
// takeStartingP takes back a P that waits for a thread which is being made, or
// which is in its first hook (threadhooks.cc). The P is the caller's then, and
// kPidle. Returns nullptr if there is none.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] P* takeStartingP(StartingP which);
// idleThread tells whether there is a thread for a P: an idle M, or one with a
// goroutine that is preempted in place. threadForP tells whether there is one
// or one may be made. (Some threads are held in reserve for declared calls and
// LockOSThread.) No caller takes a P for which there is no thread. Both:
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] bool idleThread();
[[nodiscard]] bool threadForP();
// stopm parks the thread until it is given a P. It returns without one in two
// cases: m0 when Run must return, and an M that is retired because its thread
// must end.
// On: g0.  P: none.  Locks: takes sched.lock.  Parks: blocks the thread.
void stopm();
// gcstopm gives the P to the thread that stops the world, then calls stopm.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
void gcstopm();
// mPark sleeps until a waker hands over a P, and takes it. A waker may also
// hand over none.
// On: g0.  P: none; then maybe one.  Locks: none.  Parks: blocks the thread.
void mPark(M* mp);
// mput puts an M on the list of idle Ms of its node. mget takes the last one
// from the list of the node `near`, or, if that is empty, from that of the
// nearest node that has one. mgetSpecific takes mp. Both return nullptr if
// there is none: all lists are empty, or mp is nullptr or not on one. All:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void mput(M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
[[nodiscard]] M* mget(SchedNode* near)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
[[nodiscard]] M* mgetSpecific(M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
// mgetChildless is mget without the Ms whose threads have made children that
// still run.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] M* mgetChildless() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);

// ---- proc_p.cc --------------------------------------------------------------

// acquirep gives pp, which is idle and the caller's, to this M. releasep takes
// the M's P from it and returns it idle. Both:
// On: any.  P: none; needed.  Locks: none.  Parks: no.
void acquirep(P* pp);
// wirep is acquirep for an M that is bound as pp demands, or is bound later.
// On, P, Locks, Parks: as acquirep, but without a kMem lock.
void wirep(P* pp);
[[nodiscard]] P* releasep();
// pidleput puts a P on the idle list of its node. pidleget takes one from the
// list of the node `near`, or, if that is empty, from that of the nearest node
// that has one. pidleget wakes sysmon from its deep sleep. pidlegetSpinning is
// pidleget, but sets needspinning if no P is idle. All three:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void pidleput(P* pp);
[[nodiscard]] P* pidleget(SchedNode* near);
[[nodiscard]] P* pidlegetSpinning(SchedNode* near);
// wakeSysmonLocked ends sysmon's deep sleep, if sysmon is in one.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void wakeSysmonLocked();
// procresize makes n Ps live and returns those that have local work, linked by
// pp->link.
// On: any.  P: world stopped.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] P* procresize(int32_t n);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_PROC_H_
