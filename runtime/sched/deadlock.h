// The scheduler's functions, by the file that defines them. The essay is at the
// head of proc.cc. The names are Go's.
//
// The last line of each comment is its context.
//  * On: the stack on which the function may run (g0: the M's scheduler stack;
//    user: a goroutine's; any).
//  * P: whether the M must hold one.
//  * Locks: the locks that the function takes.
//  * Parks: whether the goroutine may be switched away.
// A context line that applies to several functions says so.
//
// A function that runs on user with m.locks at 0 enters the runtime by an
// acquirem of its own. That outermost acquirem may park too, if the P was taken
// meanwhile (reenter). Only after it is the M certain. "Parks: no" does not
// count that.
//
// Nothing throws inside the runtime except the forced unwind of goexit and
// exceptions of the user's closure, which pass gumpGoroutineMain.
#ifndef RUNTIME_SCHED_PROC_H_
#define RUNTIME_SCHED_PROC_H_

#include "runtime/sched/runtime2.h"

namespace gump::rt {

// ---- asm_*.S ----------------------------------------------------------------

extern "C" {
// gumpMcall saves the user G's context, switches to g0 and calls fn(gp) there.
// fn returns the G to run next, and its context is then resumed. gumpMcall
// returns when gp is resumed.
// On: user.  P: either.  Locks: fn's.  Parks: yes.
void gumpMcall(G* (*fn)(G*));
// gumpMstart makes the current stack the M's g0 and calls fn(g0) on it. fn
// returns the first G to run. gumpMstart returns when such a function returns
// nullptr, which abandons the context that the M was running last.
// On: a thread with setg(g0) done.  P: either.  Parks: blocks the thread.
void gumpMstart(G* g0, G* (*fn)(G*));
// gumpOnG0 is called by both. It is the g0 half of every switch (proc_park.cc).
// On: g0.  P: either.  Locks: fn's.  Parks: as fn.
G* gumpOnG0(G* gp, G* (*fn)(G*));
// gumpGoroutineMain is called by gumpGostart. It runs the closure, then goexit1
// (proc_new.cc).
// On: user, the first call.  P: needed.  Parks: yes.
[[noreturn]] void gumpGoroutineMain(G* gp);
// gumpSwitch saves the context of the user G from and calls commit(from, m) on
// the stack of to, which is current on this M. Then it sets m.locks to 0, and
// resumes or starts to.
// On: user.  P: needed; m.locks is 1.  Locks: commit's.  Parks: yes.
void gumpSwitch(G* from, G* to, void (*commit)(G*, M*));
// gumpCallSaved calls fn(gp) while gp->sched is the context of the caller, for
// walkParked. No M resumes that context.
// On: any.  P: either.  Parks: as fn.
void gumpCallSaved(void (*fn)(G*), G* gp);
// gumpCallAtop calls fn(arg) so that an unwinder walks from fn into the context
// saved at sp, wherever that lies.
// On: any.  P: either.  Parks: no.
void gumpCallAtop(uintptr_t sp, void (*fn)(void*), void* arg);
// gumpGostart is the first frame of every goroutine; unwinders stop there.
void gumpGostart();
}

// ---- proc.cc: schedule, findRunnable, stealWork, wakep ----------------------

// schedule finds a G and makes it current; the caller, on g0, returns it to
// gumpMcall, which resumes it. (Unlike Go, where schedule never returns: a
// balanced call stack on g0 keeps the processor's return predictor right.)
// Returns nullptr only to leave the scheduler for good: m0 at the end of Run,
// and an M that is retired.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
[[nodiscard]] G* schedule();
// directNext makes current, and returns, the G that schedule would pick.
// Returns nullptr if a look at the local queues does not tell, or if there is
// anything else to do; then the caller calls schedule.
// On: user.  P: needed; m.locks is 1.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] G* directNext(M* mp);
struct Runnable {
  G* gp;
  bool inheritTime;  // runs in the rest of the current slice
};
// findRunnable looks for work everywhere, and sleeps until there is some.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
[[nodiscard]] Runnable findRunnable();
// execute binds a stack if gp never ran, marks gp running and returns it.
// Returns nullptr if gp cannot begin because there is no memory.
// On: g0, or user from directNext.  P: needed; m.locks is 1.
// Locks: as bindStack.  Parks: no.
[[nodiscard]] G* execute(G* gp, bool inheritTime);
// resetspinning ends the search of an M that has found work, and lets another M
// search.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.
void resetspinning();
// wakeNextSpinner is called after a spinner has found work, or turns out not to
// begin. It wakes another M to look for goroutines. If there is no P for one,
// it makes sysmon look at the timers, because a thread that set one meanwhile
// relied on the first spinner.
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
// must have published the G to be found by a seq_cst read-modify-write or under
// sched.lock. That RMW and the load of nmspinning in wakep are one half of the
// lost-wakeup argument in proc.cc.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void wakep();
// injectglist makes every G of the list (all kGwaiting) runnable and starts Ms
// for them.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void injectglist(GList* glist);

// ---- proc_status.cc ---------------------------------------------------------

// scanners is above 0 while a thread may set scan bits although the world runs.
// It is raised a grace period before the first bit is set, and lowered after
// the last bit is cleared.
extern Atomic<int32_t> scanners;

// All functions:
// On: any.  P: either.  Locks: none.  Parks: no.

// readgstatus includes the scan bit.
uint32_t readgstatus(const G* gp);
// casgstatus moves gp along one edge of the diagram in runtime2.h, or throws.
// It waits while another thread holds the scan bit.
void casgstatus(G* gp, uint32_t oldval, uint32_t newval);
// castogscanstatus sets the scan bit on a waiting or syscall G. Returns false
// if gp is in another state. casfrom_Gscanstatus clears the bit.
[[nodiscard]] bool castogscanstatus(G* gp, uint32_t oldval);
void casfrom_Gscanstatus(G* gp, uint32_t oldval);
// pcasstatus tries to move pp from one status to another. It throws if the edge
// is not in the diagram. setPStatus does the same for the only owner of pp. It
// also throws if the status was not oldval.
[[nodiscard]] bool pcasstatus(P* pp, uint32_t oldval, uint32_t newval);
void setPStatus(P* pp, uint32_t oldval, uint32_t newval);

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
// goready makes a parked gp runnable. It runs next on this P. If there is no P,
// it goes to the tail of the global queue.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void goready(G* gp);
// goreadyQuiet is goready for timers. If there is a P here, it does not wake an
// M for gp, because the owner of the P is about to schedule, or calls wakep.
// On: any, m.locks > 0.  P: either.  Locks: takes sched.lock.  Parks: no.
void goreadyQuiet(G* gp);
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
// gopreempt gives up the P because of a request to yield. Apart from that it
// does the same as Gosched.
// On: user.  P: needed.  Locks: takes sched.lock.  Parks: yes.
void gopreempt();

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
// belongs to, or nullptr.
// On: any.  P: either.  Locks: as newproc1; takes sched.lock.  Parks: no.
[[nodiscard]] bool newprocTimer(const FuncType* ft, void* closure, uintptr_t pc,
                                Bubble* b);
// startSystemG starts a goroutine of the runtime's own, with an empty closure.
// Returns false if there is no memory.
// On: any.  P: either.  Locks: as newproc1; takes sched.lock.  Parks: no.
[[nodiscard]] bool startSystemG(const FuncType* ft);
// systemFunc is the type of such a closure.
constexpr FuncType systemFunc(void (*run)(void*)) noexcept {
  return {run, [](void*) {}, [](void*, void*) noexcept {}};
}
// gfget takes a free cell from pp's list, and refills that from the global
// list. Returns nullptr if both are empty. gfput puts a cell back, gfpurge
// moves all of them to the global list. All three:
// On: any.  P: pp.  Locks: takes kGFree.  Parks: no.
[[nodiscard]] G* gfget(P* pp);
void gfput(P* pp, G* gp);
void gfpurge(P* pp);
// goexit1 is the goroutine's last call. It destroys the values that the program
// gave it.
// On: user.  P: needed.  Locks: none held.  Parks: yes.
[[noreturn]] void goexit1();
// nostackWake lets one of the Gs that wait for a stack try again.
// On: g0.  P: either.  Locks: takes sched.lock.  Parks: no.
void nostackWake();
// forEachG calls f for every G ever made, in creation order. Gs are never
// freed.
// On: any.  P: either.  Locks: none.  Parks: no.
void forEachG(void (*f)(G*, void*), void* arg);
// The same, a slab at a time. nextGSlab(nullptr) is the first slab, and nullptr
// comes after the last.
// On: any.  P: either.  Locks: none.  Parks: no.
struct GSlab;
[[nodiscard]] GSlab* nextGSlab(const GSlab* after);
void forEachGIn(const GSlab* slab, void (*f)(G*, void*), void* arg);
// gcountAll is the number of Gs ever made.
// On: any.  P: either.  Locks: none.  Parks: no.
uint64_t gcountAll();
// malg returns a fresh cell, which is kGdead, or nullptr if there is no memory.
// On: any.  P: either.  Locks: takes kAllg, kMem.  Parks: no.
[[nodiscard]] G* malg();

// ---- proc_runq.cc: uses a bare P only, except to overflow to the global queue

// Unless a comment says otherwise:
// On: any.  P: pp, owned by the caller.  Locks: none.  Parks: no.

// runqput queues gp on pp. With next, gp takes runnext, and the old runnext is
// kicked into the ring.
// Locks: takes sched.lock if the ring is full.
void runqput(P* pp, G* gp, bool next);
// runqputNow is runqput without schedule fuzzing, even if that is on.
// Locks: as runqput.
void runqputNow(P* pp, G* gp, bool next);
// runqputslow moves half of the full ring [h, t), and gp behind it, to the
// global queue. Returns false if a thief has made room meanwhile.
// Locks: takes sched.lock.
[[nodiscard]] bool runqputslow(P* pp, G* gp, uint32_t h, uint32_t t);
// runqputbatch moves as many Gs of q as fit into the ring. The rest stays in q.
void runqputbatch(P* pp, GQueue* q);
// runqget takes runnext, which inherits the slice, or the head of the ring. gp
// is nullptr if there is neither.
struct RunqGet {
  G* gp;
  bool inheritTime;
};
[[nodiscard]] RunqGet runqget(P* pp);
// runqempty and runqlen (ring only) may be called for any P.
[[nodiscard]] bool runqempty(const P* pp);
[[nodiscard]] uint32_t runqlen(const P* pp);
// runqdrain empties pp into a queue. runnext comes first.
[[nodiscard]] GQueue runqdrain(P* pp);
// runqgrab takes half of pp's ring (rounded up), or its runnext, into batch
// starting at batchHead. Returns how many it took. pp may be any P.
[[nodiscard]] uint32_t runqgrab(P* pp, Atomic<G*>* batch, uint32_t batchHead,
                                bool stealRunNextG);
// runqsteal takes half of the victim's Gs. It returns one and puts the rest
// into pp's empty ring.
[[nodiscard]] G* runqsteal(P* pp, P* victim, bool stealRunNextG);

// soleP tells whether there is only one P. Then no M can steal from it, and its
// owner needs no atomic read-modify-write. The number of Ps changes only while
// the world is stopped.
inline bool soleP() { return gomaxprocs.load(relaxed) == 1; }
// pp->yielded is for a sole P.
//  * pushYielded queues gp at the tail of the global queue, all of which is
//    then in yielded.
//  * popYielded takes from the head of yielded. Returns nullptr if it is empty.
//    With adopt it looks at sched.runq as well.
//  * flushYielded moves yielded to the front of sched.runq.
// Locks: take sched.lock, unless that queue, or yielded, is empty; popYielded
// without adopt takes none.
void pushYielded(P* pp, G* gp);
[[nodiscard]] G* popYielded(P* pp, bool adopt);
void flushYielded(P* pp);
// globrunqput and globrunqputbatch queue at the tail, globrunqputhead at the
// head. globrunqget takes one from the head. globrunqgetbatch returns one and
// moves up to n-1 more to pp's empty ring, but at most size/gomaxprocs+1 in
// all. All of them:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void globrunqput(G* gp);
void globrunqputhead(G* gp);
void globrunqputbatch(GQueue* q);
[[nodiscard]] G* globrunqget();
[[nodiscard]] G* globrunqgetbatch(P* pp, int32_t n);

// ---- proc_m.cc, thread.cc, proc_locked.cc -----------------------------------

// mcommoninit names an M and enters it into allm.
// On: any.  P: either.  Locks: none.  Parks: no.
void mcommoninit(M* mp, int64_t id);
// startm gives pp (nullptr: an idle P, if any) to one of these: the goroutine
// preempted in place that is next in the queue, an idle M, the goroutine that
// has been preempted in place for longest, or a new M.
// On: any.  P: pp, handed over.  Locks: takes sched.lock.  Parks: no.
void startm(P* pp, bool spinning);
// stopm parks the thread until it is given a P. It returns without one in two
// cases: m0 when Run must return, and an M that is retired because its thread
// must end.
// On: g0.  P: none.  Locks: takes sched.lock.  Parks: blocks the thread.
void stopm();
// mPark sleeps until a waker hands over a P, and takes it. A waker may also
// hand over none.
// On: g0.  P: none; then maybe one.  Locks: none.  Parks: blocks the thread.
void mPark(M* mp);
// gcstopm gives the P to the thread that stops the world, then calls stopm.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
void gcstopm();
// retireIdleMs ends the threads of idle Ms until keep are left. trimIdleMs ends
// those that were not needed since it was called last, except one per P. Both:
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void retireIdleMs(int32_t keep);
void trimIdleMs();
// handoffp finds an M for pp if there is any reason to, or else makes pp idle.
// On: any.  P: none; pp owned by the caller.  Locks: takes sched.lock.
// Parks: no.
void handoffp(P* pp);
// newm makes an M that calls fn (nullptr: nothing) and then schedules on pp
// (nullptr: on the P that it is handed later). id comes from mReserveID, or is
// -1: reserve one now.
// On: any.  P: pp, handed over.  Locks: takes a leaf; sched.lock if id is -1.
// Parks: no.
void newm(void (*fn)(), P* pp, int64_t id);
// takeStartingP takes back a P that waits for a thread which is being made.
// With ofSafePoint it takes only a P that forEachP waits for. The P is the
// caller's then, and kPidle. Returns nullptr if there is none. On: any.  P:
// either.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] P* takeStartingP(bool ofSafePoint);
// idleThread tells whether there is a thread for a P: an idle M, or one with a
// goroutine that is preempted in place. threadForP tells whether there is one
// or one may be made. (Some threads are held in reserve for declared calls and
// LockOSThread.) A P for which there is no thread should stay where it is.
//
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] bool idleThread();
[[nodiscard]] bool threadForP();
// mput and mget are the list of idle Ms. mReserveID counts an M that will be
// made. mReserveID and checkmcount throw "thread exhaustion". mcount is the
// number of Ms without those of foreign threads. All five:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void mput(M* mp);
[[nodiscard]] M* mget();
[[nodiscard]] int64_t mReserveID();
[[nodiscard]] int64_t mcount();
void checkmcount();
// mstart is the thread of mp, from its first call to its last.
// On: g0.  P: none.  Locks: takes sched.lock.  Parks: blocks the thread.
void mstart(M* mp);
// startTemplateThread starts the thread that makes all others. Called by
// schedinit.
// On: a thread of the user's.  P: none.  Locks: takes sched.lock.  Parks: no.
void startTemplateThread();
// mexit ends this thread because its locked goroutine has ended. Returns
// nullptr, for gumpMcall. m0 sleeps instead.
// On: g0.  P: needed, given away.  Locks: takes sched.lock.  Parks: m0 blocks.
[[nodiscard]] G* mexit();
// minit sets the fields of mp that only the thread itself can determine.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
void minit(M* mp);
// unminit undoes minit.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
void unminit(M* mp);
// threadsinit enables minit to notice a thread that a goroutine ends. Called by
// schedinit.
// On: a thread of the user's.  P: none.  Locks: none.  Parks: no.
void threadsinit();
// incidlelocked changes the number of Ms that count as idle although they are
// not in midle. It calls checkdead if the number grew.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void incidlelocked(int32_t v);
// becomeSystemThread removes this thread, which is sysmon's, the template
// thread or the ring's, from those that could still wake a goroutine, and calls
// checkdead. Each of them calls it itself, once it runs: an M on order is in
// mcount but is no thread of the process yet, so it would hide a thread that we
// do not know (hasUnknownThreads). Until then it counts as running, so
// checkdead is silent. On: the thread of a new M.  P: none.  Locks: takes
// sched.lock.  Parks: no.
void becomeSystemThread();
// AwakeScope is for a thread that checkdead does not count otherwise, sysmon's
// or the ring's. For the scope checkdead counts it as one that may still wake
// goroutines. It is needed while a P or a goroutine is on its way from that
// thread to an M, because every M may look idle then. At the end checkdead
// looks again.
// On: a thread that nmsys counts.  P: none.  Locks: takes sched.lock, twice.
// Parks: no.
class AwakeScope {
 public:
  AwakeScope() { incidlelocked(-1); }
  ~AwakeScope() { incidlelocked(1); }
  AwakeScope(const AwakeScope&) = delete;
  AwakeScope& operator=(const AwakeScope&) = delete;
};
// m0Stop sleeps until Run is to return. m0 runs main and nothing else. Any
// other goroutine that it ran when main ends could keep Run from returning for
// as long as it likes.
// On: g0 of m0.  P: none.  Locks: takes sched.lock.  Parks: blocks the thread.
void m0Stop();
// m0Sleeps tells whether m0 sleeps without a P.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] bool m0Sleeps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);
// wakeM0ToLeave wakes m0 wherever it sleeps, after mainEnded has been set.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void wakeM0ToLeave();
// stoplockedm gives the P away and sleeps until the M's locked G must run. m0
// returns without a P if it must leave Run. If a P comes while the world stops,
// stoplockedm gives it back, but not twice in a row (requeueDuringStop).
// On: g0.  P: given away, then needed.  Locks: takes sched.lock.
// Parks: blocks the thread.
void stoplockedm();
// startlockedm gives our P to the M that gp is locked to, then calls stopm. In
// two cases it queues gp again and keeps the P: while the world stops
// (requeueDuringStop), and if that M is m0 and main has ended.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread,
// unless gp is queued again.
void startlockedm(G* gp);

// wakeLocked records that mp's locked goroutine is about to run. The caller
// then hands mp a P and wakes it.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void wakeLocked(const M* mp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sched.lock);

// ---- extram.cc --------------------------------------------------------------

// needm lends a pseudo-G to a foreign thread. A TLS destructor gives it back
// through dropm.
// On: a foreign thread without a G.  P: none.
// Locks: takes sched.lock, a leaf.  Parks: no.
G* needm();
// dropm takes the pseudo-G of the ending thread back.
// On: the foreign thread.  P: none.  Locks: takes sched.lock, a leaf.
// Parks: no.
void dropm(M* mp);
// forEachForeign calls f for every pseudo-G ever lent. They are never freed.
// On: any.  P: either.  Locks: none.  Parks: no.
void forEachForeign(void (*f)(G*, void*), void* arg);

// ---- rt0.cc -----------------------------------------------------------------

// schedinit starts the runtime; idempotent.
// On: any thread.  P: either.  Locks: takes sched.lock.  Parks: no.
void schedinit();
// mainBegins is the first call of main. From here on main may move to another
// thread, unless the caller of Run has locked it to m0.
// On: G, main.  P: needed.  Locks: none.  Parks: as acquirem.
void mainBegins(G* gp);
// endMain ends the scheduling, because the main goroutine's function has
// returned.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.
void endMain();
// unsetInitialised makes schedinit check again whether the runtime can start.
// On: the only thread of a child of fork.  P: either.  Locks: none.  Parks: no.
void unsetInitialised();

// ---- fork.cc ----------------------------------------------------------------

// forked is set in a child of fork, which has no threads of ours. Only slow
// paths look at it.
extern Atomic<bool> forked;
// forkinit lets children of fork know that they are. Called by schedinit.
// On: any.  P: either.  Locks: libc's.  Parks: no.
void forkinit();
// inOwnProcess tells whether this process is the one in which the runtime
// started. In a child of fork it returns false from the first instruction on.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool inOwnProcess();
// dieForked ends a child of fork that uses the runtime.
// On: any.  P: either.  Locks: none.  Parks: no.
[[noreturn]] void dieForked();

// ---- proc_p.cc --------------------------------------------------------------

// acquirep gives pp, which is idle and the caller's, to this M. releasep takes
// the M's P from it and returns it idle. Both:
// On: any.  P: none; needed.  Locks: none.  Parks: no.
void acquirep(P* pp);
[[nodiscard]] P* releasep();
// pidleput and pidleget are the list of idle Ps. pidleget wakes sysmon from its
// deep sleep. pidlegetSpinning sets needspinning if the list is empty. All
// three:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void pidleput(P* pp);
[[nodiscard]] P* pidleget();
[[nodiscard]] P* pidlegetSpinning();
// wakeSysmonLocked ends sysmon's deep sleep, if sysmon is in one.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void wakeSysmonLocked();
// procresize makes n Ps live and returns those that have local work, linked by
// pp->link.
// On: any.  P: world stopped.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] P* procresize(int32_t n);

// ---- proc_stw.cc ------------------------------------------------------------

// stopTheWorld returns when every P is kPgcstop. The caller goes on, and keeps
// its M, until it calls startTheWorld. Running goroutines are asked to yield,
// and soon forced to (forcePreempt). First the caller waits for another stop to
// end. On: user, or a foreign thread.  P: either. Locks: takes worldsema,
// sched.lock.  Parks: yes.
void stopTheWorld(WaitReason reason);
// countStopped gives pp, which is idle and the caller's, to the thread that
// stops the world.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void countStopped(P* pp);
// startTheWorld resizes the Ps if GOMAXPROCS asked for it, and lets the Ps run.
// On: as stopTheWorld.  P: stopped.
// Locks: takes sched.lock; releases worldsema.  Parks: no.
void startTheWorld();
// updateMaxProcs starts a goroutine that adapts the number of Ps. It does so if
// affinity or quota give another number than the current one, and the program
// has not chosen one.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
void updateMaxProcs();
// forEachP runs fn once for every P, at a safe point of that P: idle, in a
// system call, or in the scheduler. It forces Ps that reach none
// (forcePreempt). fn may be called with sched.lock held. On: user, or a foreign
// thread.  P: either. Locks: takes worldsema, sched.lock.  Parks: yes.
void forEachP(WaitReason reason, void (*fn)(P*));

// ---- preempt*.cc, grace.cc --------------------------------------------------

// preemptone asks the goroutine on pp to yield at its next entry into the
// runtime. Returns false if there is no goroutine to ask. preemptall asks all.
// They are best effort. Both:
// On: any.  P: either.  Locks: none.  Parks: no.
void preemptall();
bool preemptone(P* pp);
// mayLeaveStackAt tells whether sp, which is not on the goroutine's stack, is
// on a stack that the program made (a coroutine's), and not in a handler. It
// returns false while this thread dies, and with a sanitizer, which must be
// told which stack is left.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool mayLeaveStackAt(const M* mp, uintptr_t sp);
// presumeBlocked takes pp from mp while mp runs gp and its thread is asleep in
// an undeclared call. Returns true if it has taken pp, which is then the
// caller's and kPidle.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool presumeBlocked(P* pp, M* mp, G* gp);
// giveBackP undoes a presumeBlocked that took pp from mp. Returns false if mp
// has come back meanwhile, without the P, which stays the caller's.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool giveBackP(P* pp, M* mp);
// endPresumption ends a presumption about mp, which is in the runtime again.
// Returns true if its P is gone.
// On: the thread of mp.  P: maybe lost.  Locks: none.  Parks: no.
[[nodiscard]] bool endPresumption(M* mp);
// preemptM sends mp's thread the signal. It does nothing if asyncpreemptoff is
// set, or if a signal has been on its way for less than a slice. Under
// kSanitizerDefersHandlers that signal may never be handled, so another one is
// sent.
// On: any.  P: either.  Locks: none.  Parks: no.
void preemptM(M* mp);
// A thread is taken to compute if it has not slept for so many ns and has used
// half of them. kForcePreemptGap is for sysmon, kStopGap for a stop of the
// world.
inline constexpr int64_t kForcePreemptGap = 50'000;
inline constexpr int64_t kStopGap = 20'000;
// forcePreempt forces the goroutine on pp to give it up before its next entry
// into the runtime. It takes pp if the thread is asleep, and signals the thread
// if it runs. If it has taken pp, as presumeBlocked does, it returns the M that
// it took pp from, else nullptr. It costs some system calls. On: any, but pp's
// M.  P: either.  Locks: takes sched.lock.  Parks: no.
enum class ForcePreempt : uint8_t {
  kStop,      // for the caller's own purposes
  kHandOff,   // for other goroutines: only if there is a thread for the P
  kIfAsleep,  // the same, but a thread that runs is left alone
};
[[nodiscard]] M* forcePreempt(P* pp, ForcePreempt how);
// preemptPless signals the threads that have lost their P and run without one
// now.
// On: sysmon.  P: none.  Locks: none.  Parks: no.
void preemptPless();
// preemptedBySignal is the scheduler's part of the handler of SIGURG. sp is the
// stack pointer of the interrupted code.
// On: the signal stack.  P: either.  Locks: takes sched.lock.
// Parks: blocks the thread.
void preemptedBySignal(uintptr_t sp);
// releasePreempted releases the goroutines in the global queue that are
// preempted in place. They go on without a P until they enter the runtime. On:
// any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void releasePreempted();
// EntryWatch is for a goroutine that had lost its P from outside when the watch
// began. It tells whether the goroutine has entered the runtime by itself since
// then. Of a goroutine that had not lost its P it says, sooner or later, that
// it has.
// On: user.  P: either.  Locks: none.  Parks: no.
struct EntryWatch {
  explicit EntryWatch(const G* g);
  bool entered();

  const G* gp;
  const uint32_t n;  // interrupted exceeds this only after an entry
  bool looked = false;
};
// computes tells whether mp's thread, tid, seen running now, has computed for
// long enough (kForcePreemptGap, kStopGap). It has if two things hold: at a
// look so long ago it had slept as often as now, and since then its CPU clock
// has moved by half of that time. For a stop of the world it is enough that the
// look is a ms ago. computes remembers this look. On: any, but mp's thread.  P:
// either.  Locks: none.  Parks: no.
[[nodiscard]] bool computes(M* mp, int32_t tid, uint64_t sleeps,
                            ForcePreempt how);

// ---- proc_syscall.cc --------------------------------------------------------

// onOwnStack tells whether, at sp, gp is on its own stack and not on one that
// the program made.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] GUMP_ALWAYS_INLINE bool onOwnStack(const G* gp, uintptr_t sp) {
  return sp - gp->stack.lo <= gp->stack.hi - gp->stack.lo;
}
// exitsyscallNoP ends a system call after its P has been taken. It gets another
// P, or parks. Returns the M that the goroutine is on then.
// On: user; m.locks is 1, and so it is afterwards.  P: none.
// Locks: takes sched.lock.  Parks: yes.
[[nodiscard]] M* exitsyscallNoP();

// ---- proc_dead.cc -----------------------------------------------------------

// checkdead ends the process if no thread is left that could wake a goroutine.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void checkdead();
// recheckdead is checkdead for sysmon, which repeats the question
// (deadSuspect). It also looks which of the threads that we do not know run no
// code of the program. That costs 14 µs for each thread of the process.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void recheckdead();
// checkIdleLists throws unless the lists of idle Ps and Ms agree with their
// counts and with the Ps' statuses. It also throws if a P or M is on its list
// twice, or if a P is lost.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void checkIdleLists();
// timersPending tells whether a timer of some P will fire one day. The answer
// is exact while no M runs.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool timersPending();
// isUselessPoll tells whether the only M that is not idle sleeps in the poller,
// or is about to, for timers that have all been stopped.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] bool isUselessPoll();
// schedtrace prints a line to standard error, or many lines if detailed.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void schedtrace(bool detailed);
// schedtraceCrash is schedtrace(true) for a process that is ending.
// On: any.  P: either.  Locks: sched.lock, if it is free.  Parks: no.
void schedtraceCrash();
// gcount is the number of goroutines of the program, at least 1.
// On: any.  P: either.  Locks: none.  Parks: no.
int32_t gcount();

// ---- gls.cc -----------------------------------------------------------------

// glsDestroyAll runs the destructors of gp's goroutine-local values.
// On: user, gp itself, or its foreign thread.  P: either.  Parks: as they do.
void glsDestroyAll(G* gp);

// ---- mfinal.cc --------------------------------------------------------------

// fingwake is set while the finalizer goroutine has work; see mfinal.cc.
extern Atomic<bool> fingwake;
// wakefing returns the finalizer goroutine if the caller must ready it now
// (step 1 of findRunnable).
// On: any.  P: either.  Locks: takes a leaf.  Parks: no.
[[nodiscard]] G* wakefing();

// ---- reclaim.cc: stands for Go's collector; see docs/scheduler.md -----------

// forcegcperiod is the time in ns after the last reclamation cycle at which
// sysmon forces one. Tests change it. forceReclaim forces a cycle if it is due.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
extern Atomic<int64_t> forcegcperiod;
void forceReclaim(int64_t now);
// Steps 6 and 9 of findRunnable. reclaimWorkAvailable tells whether an idle P
// could help. reclaimIdleWorker returns the goroutine that helps, runnable, or
// nullptr. Both:
// On: g0.  P: either.  Locks: take a leaf.  Parks: no.
[[nodiscard]] bool reclaimWorkAvailable();
[[nodiscard]] G* reclaimIdleWorker();

// ---- timechan.cc ------------------------------------------------------------

// timerCellsFlush gives back the free cells of pp, which is going away.
// On: any.  P: pp.  Locks: takes a leaf.  Parks: no.
void timerCellsFlush(P* pp);

// ---- cgroup_linux.cc --------------------------------------------------------

// defaultGOMAXPROCSInit opens the limit files. It is called once, before there
// are threads. defaultGOMAXPROCS returns the number of Ps for ncpuNow
// processors under those limits. Both:
// On: any.  P: either.  Locks: none.  Parks: no.
void defaultGOMAXPROCSInit();
[[nodiscard]] int32_t defaultGOMAXPROCS(int32_t ncpuNow);

// ---- debugvars.cc -----------------------------------------------------------

// NetpollChoice is GODEBUG=netpoll: the mechanism for sockets and files.
enum class NetpollChoice : uint8_t {
  kAuto,   // whichever measures faster: epoll, and for files io_uring
  kEpoll,  // no io_uring at all
  kUring,  // io_uring for everything, if the kernel allows it
};

// DebugVars holds the settings of GODEBUG and GUMP_DEBUG. Written at start-up
// only.
struct DebugVars {
  int32_t schedtrace = 0;  // ms
  int32_t scheddetail = 0;
  int32_t asyncpreemptoff = 0;
  int32_t dontfreezetheworld = 0;
  int32_t tracebackancestors = 0;
  int32_t containermaxprocs = 1;
  int32_t updatemaxprocs = 1;
  int32_t stackguardStrict = 0;  // stackguard=strict
  NetpollChoice netpoll = NetpollChoice::kAuto;
  int32_t fuzzsched = 0;  // the seed; see fuzzsched.h
  int32_t watchdog = 0;   // 1: report, 2: die; see sysmon.cc
};
extern DebugVars debug;
// parsedebugvars reads GODEBUG and GUMP_DEBUG, once. Called by schedinit.
// On: a thread of the user's.  P: none.  Locks: none.  Parks: no.
void parsedebugvars();
// gogetenv returns the value of gumpName, or of goName if gumpName is not set.
// Returns nullptr if neither is set.
// On: any.  P: either.  Locks: none.  Parks: no.
const char* gogetenv(const char* goName, const char* gumpName);
// parseGOMAXPROCS reads a value of the variable. A value above kMaxGomaxprocs
// counts as kMaxGomaxprocs. Returns 0 for nullptr, or for a value that is no
// positive number.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] int32_t parseGOMAXPROCS(const char* value);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_PROC_H_
