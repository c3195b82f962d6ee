// The scheduler's functions, by the file that defines them. The essay is at the
// head of proc.cc; the words are Go's.
//
// The last line of each comment is its context. On: which stack it may run on
// (g0: the M's scheduler stack; user: a goroutine's; any). P: whether the M
// must hold one. Locks: what it takes. Parks: whether the goroutine may be
// switched away. A context line that speaks of several functions says so. What
// runs on user with m.locks at 0 enters the runtime by an acquirem of its own:
// that outermost one may park too, if the P was taken meanwhile (reenter), and
// only behind it is the M certain. "Parks: no" does not count that.
// Nothing throws inside the runtime, but for the forced unwind of goexit and
// what the user's closure throws through gumpGoroutineMain.
#ifndef RUNTIME_PROC_H_
#define RUNTIME_PROC_H_

#include "runtime/runtime2.h"

namespace gump::rt {

// ---- asm_*.S ----------------------------------------------------------------

extern "C" {
// gumpMcall saves the user G's context, switches to g0 and calls fn(gp) there;
// fn returns the G to run next, whose context is then resumed. It returns when
// somebody resumes gp.
// On: user.  P: either.  Locks: fn's.  Parks: yes.
void gumpMcall(G* (*fn)(G*));
// gumpMstart makes the current stack the M's g0 and calls fn(g0) on it; fn
// returns the first G to run. It returns when such a function returns nullptr,
// which abandons whatever the M was running last.
// On: a thread with setg(g0) done.  P: either.  Parks: blocks the thread.
void gumpMstart(G* g0, G* (*fn)(G*));
// gumpOnG0 is what both call: the g0 half of every switch (proc_park.cc).
// On: g0.  P: either.  Locks: fn's.  Parks: as fn.
G* gumpOnG0(G* gp, G* (*fn)(G*));
// gumpGoroutineMain is what gumpGostart calls: runs the closure, then goexit1
// (proc_new.cc).
// On: user, the first call.  P: needed.  Parks: yes.
[[noreturn]] void gumpGoroutineMain(G* gp);
// gumpSwitch saves the context of the user G from, calls commit(from, m) on the
// stack of to, which is current on this M, sets m.locks to 0, and resumes or
// starts to.
// On: user.  P: needed; m.locks is 1.  Locks: commit's.  Parks: yes.
void gumpSwitch(G* from, G* to, void (*commit)(G*, M*));
// gumpCallSaved calls fn(gp), with gp->sched the context of its caller: for
// walkParked, nobody resumes it.
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
// directNext makes current, and returns, the G that schedule would pick, if a
// look at the local queues tells and nothing else is to be done; nullptr: call
// schedule.
// On: user.  P: needed; m.locks is 1.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] G* directNext(M* mp);
struct Runnable {
  G* gp;
  bool inheritTime;  // runs in the rest of the current slice
};
// findRunnable looks everywhere, and sleeps until there is something to run.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
[[nodiscard]] Runnable findRunnable();
// execute binds a stack if gp never ran, marks it running and returns it;
// nullptr if it cannot begin for want of memory.
// On: g0, or user from directNext.  P: needed; m.locks is 1.
// Locks: as bindStack.  Parks: no.
[[nodiscard]] G* execute(G* gp, bool inheritTime);
// resetspinning ends the search of an M that has found work, and lets the next
// one search.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.
void resetspinning();
// wakeNextSpinner follows the end of a spinner that found work, or was not to
// begin after all: another is to look for goroutines; and if there is no P for
// one, sysmon for timers, since whoever set one meanwhile relied on the first.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void wakeNextSpinner();
// stopSpinning ends mp's search: S1 of the essay in proc.cc. Who calls it must
// look once more, or let another look.
// On: g0.  P: either.  Locks: none.  Parks: no.
void stopSpinning(M* mp);
// uncountSpinner takes one M out of nmspinning: one that ends its search, or
// will never begin it. negative: what is wrong if none was counted.
// On: any.  P: either.  Locks: none.  Parks: no.
void uncountSpinner(const char* negative);
// runSafePointFn runs for pp what forEachP asks, unless somebody else does.
// On: any.  P: pp, owned by the caller.  Locks: takes sched.lock.  Parks: no.
void runSafePointFn(P* pp);
// wakep starts one more M, spinning, if a P is idle and nobody spins. The G to
// be found must have been published by a seq_cst read-modify-write or under
// sched.lock: that RMW and the load of nmspinning in here are one half of the
// lost-wakeup argument in proc.cc.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void wakep();
// injectglist makes every G of the list (all kGwaiting) runnable and starts Ms
// for them.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void injectglist(GList* glist);

// ---- proc_status.cc ---------------------------------------------------------

// scanners: above 0, somebody may set scan bits while the world runs. Raised a
// grace period before the first is set, lowered after the last is cleared.
extern Atomic<int32_t> scanners;

// All functions:
// On: any.  P: either.  Locks: none.  Parks: no.

// readgstatus includes the scan bit.
uint32_t readgstatus(const G* gp);
// casgstatus moves gp along one edge of the diagram in runtime2.h, or throws;
// it waits while somebody holds the scan bit.
void casgstatus(G* gp, uint32_t oldval, uint32_t newval);
// castogscanstatus sets the scan bit on a waiting or syscall G; false if gp is
// in another state. casfrom_Gscanstatus clears it.
[[nodiscard]] bool castogscanstatus(G* gp, uint32_t oldval);
void casfrom_Gscanstatus(G* gp, uint32_t oldval);
// pcasstatus tries to move pp from one status to another; throws if the edge is
// not in the diagram. setPStatus does so as its only owner; throws if it was
// not oldval.
[[nodiscard]] bool pcasstatus(P* pp, uint32_t oldval, uint32_t newval);
void setPStatus(P* pp, uint32_t oldval, uint32_t newval);

// ---- proc_park.cc -----------------------------------------------------------

// gopark parks the current goroutine. On g0, after its context is saved and it
// is kGwaiting, unlockf(gp, lock) runs; if that returns false the goroutine
// goes on at once. From the moment unlockf makes gp reachable for a waker, gp
// may run elsewhere: touch nothing of it. On a plain thread the thread sleeps.
// gopark is called with exactly one acquirem() outstanding (m.locks == 1) and
// consumes it: the caller holds no M when it returns, must not call releasem
// for it, and must fetch getg()->m anew, for it may be on another thread.
// On: user, or a plain thread.  P: needed.  Locks: unlockf's.  Parks: yes.
void gopark(bool (*unlockf)(G*, void*), void* lock, WaitReason reason);
// goparkcommit is gopark for an unlockf that never returns false. It may run on
// the stack of the next goroutine instead of g0's, so it must be shallow.
// On: user, or a plain thread.  P: needed.  Locks: unlockf's.  Parks: yes.
void goparkcommit(bool (*unlockf)(G*, void*), void* lock, WaitReason reason);
// goparkunlock parks and releases l once the goroutine is kGwaiting.
// On: user, or a plain thread.  P: needed.  Locks: releases l.  Parks: yes.
void goparkunlock(Mutex* l, WaitReason reason);
// goready makes a parked gp runnable: next on this P, or, without a P, at the
// tail of the global queue.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void goready(G* gp);
// goreadyQuiet is goready for timers: it does not wake an M for gp if there is
// a P here, whose owner is about to schedule, or calls wakep.
// On: any, m.locks > 0.  P: either.  Locks: takes sched.lock.  Parks: no.
void goreadyQuiet(G* gp);
// goyield puts the current goroutine at the tail of the local ring and runs
// another.
// On: user.  P: needed.  Locks: takes sched.lock.  Parks: yes.
void goyield();
// dropg dissociates the M and its curg.
// On: g0.  P: either.  Locks: none.  Parks: no.
void dropg();
// runtimeEntry gives the current G, lending one to a plain thread; it honours a
// pending request to yield.
// On: user, or a plain thread.  P: either.  Locks: as goyield.
// Parks: may yield.
G* runtimeEntry();
// gopreempt gives up the P because somebody asked for it; otherwise as Gosched.
// On: user.  P: needed.  Locks: takes sched.lock.  Parks: yes.
void gopreempt();

// ---- proc_new.cc ------------------------------------------------------------

// bindStack gives gp its stack. False: there is none to be had, and gp now
// waits in sched.nostack.
// On: g0, or user from directNext, which has seen a stack in pp's cache.
// P: pp.  Locks: takes kStack, sched.lock; none if the cache has one.
// Parks: no.
[[nodiscard]] bool bindStack(P* pp, G* gp);
// newproc1 makes a goroutine; nullptr: no memory. It is still kGdead: the
// caller completes it and makes it kGrunnable, from when on dumps look at its
// fields.
// On: any.  P: either.  Locks: takes kGFree, kAllg, kStack, and sched.lock if
// stacks are short.  Parks: no.
[[nodiscard]] G* newproc1(const FuncType* ft, void* closure,
                          const SpawnOptions* o, uintptr_t pc);
// newprocTimer is newproc for a timer, and wakes nobody, as goreadyQuiet: no
// memory for a stack is no failure, the goroutine waits for some. False: none
// for a G. b: the bubble it belongs to, or nullptr.
// On: any.  P: either.  Locks: as newproc1; takes sched.lock.  Parks: no.
[[nodiscard]] bool newprocTimer(const FuncType* ft, void* closure, uintptr_t pc,
                                Bubble* b);
// startSystemG starts a goroutine of the runtime's own, whose closure is empty.
// False: no memory.
// On: any.  P: either.  Locks: as newproc1; takes sched.lock.  Parks: no.
[[nodiscard]] bool startSystemG(const FuncType* ft);
// systemFunc is the type of such a closure.
constexpr FuncType systemFunc(void (*run)(void*)) noexcept {
  return {run, [](void*) {}, [](void*, void*) noexcept {}};
}
// gfget takes a free cell from pp's list, which it refills from the global one;
// nullptr: both are empty. gfput gives one back, gfpurge all of them to the
// global list. All three:
// On: any.  P: pp.  Locks: takes kGFree.  Parks: no.
[[nodiscard]] G* gfget(P* pp);
void gfput(P* pp, G* gp);
void gfpurge(P* pp);
// goexit1 is the goroutine's last call: destroys what the program gave it.
// On: user.  P: needed.  Locks: none held.  Parks: yes.
[[noreturn]] void goexit1();
// nostackWake lets one of the Gs that wait for a stack try again.
// On: g0.  P: either.  Locks: takes sched.lock.  Parks: no.
void nostackWake();
// forEachG calls f for every G ever made, in creation order; they are never
// freed.
// On: any.  P: either.  Locks: none.  Parks: no.
void forEachG(void (*f)(G*, void*), void* arg);
// The same, a slab at a time: nextGSlab(nullptr) is the first, and nullptr
// comes after the last.
// On: any.  P: either.  Locks: none.  Parks: no.
struct GSlab;
[[nodiscard]] GSlab* nextGSlab(const GSlab* after);
void forEachGIn(const GSlab* slab, void (*f)(G*, void*), void* arg);
// gcountAll is the number of Gs ever made.
// On: any.  P: either.  Locks: none.  Parks: no.
uint64_t gcountAll();
// malg returns a fresh cell, kGdead; nullptr: no memory.
// On: any.  P: either.  Locks: takes kAllg, kMem.  Parks: no.
[[nodiscard]] G* malg();

// ---- proc_runq.cc: pure on a bare P, but for the overflow to the global queue

// Unless it says otherwise:
// On: any.  P: pp, owned by the caller.  Locks: none.  Parks: no.

// runqput queues gp on pp. With next, gp takes runnext and the old runnext is
// kicked into the ring.
// Locks: takes sched.lock if the ring is full.
void runqput(P* pp, G* gp, bool next);
// runqputNow is runqput, schedule fuzzing or not.
// Locks: as runqput.
void runqputNow(P* pp, G* gp, bool next);
// runqputslow moves half of the full ring [h, t), and gp behind it, to the
// global queue. False: a thief has made room meanwhile.
// Locks: takes sched.lock.
[[nodiscard]] bool runqputslow(P* pp, G* gp, uint32_t h, uint32_t t);
// runqputbatch moves as many Gs of q as fit into the ring; what is left stays
// in q.
void runqputbatch(P* pp, GQueue* q);
// runqget takes runnext, which inherits the slice, or the head of the ring; gp
// is nullptr if there is neither.
struct RunqGet {
  G* gp;
  bool inheritTime;
};
[[nodiscard]] RunqGet runqget(P* pp);
// runqempty and runqlen (ring only) may be asked of anybody's P.
[[nodiscard]] bool runqempty(const P* pp);
[[nodiscard]] uint32_t runqlen(const P* pp);
// runqdrain empties pp into a queue: runnext first.
[[nodiscard]] GQueue runqdrain(P* pp);
// runqgrab takes half of pp's ring (rounded up), or its runnext, into batch
// starting at batchHead, and returns how many. pp is anybody's.
[[nodiscard]] uint32_t runqgrab(P* pp, Atomic<G*>* batch, uint32_t batchHead,
                                bool stealRunNextG);
// runqsteal takes half of the victim's Gs: returns one, the rest go into pp's
// empty ring.
[[nodiscard]] G* runqsteal(P* pp, P* victim, bool stealRunNextG);

// soleP: there is one P, so nobody can steal from it, and its owner needs no
// atomic read-modify-write. The number of Ps changes only while the world is
// stopped.
inline bool soleP() { return gomaxprocs.load(relaxed) == 1; }
// pp->yielded is for a sole P. pushYielded queues gp at the tail of the global
// queue, all of which is then in yielded; popYielded takes from its head,
// nullptr if it is empty, and with adopt looks at sched.runq as well.
// flushYielded moves yielded to the front of sched.runq.
// Locks: take sched.lock, unless that queue, or yielded, is empty; popYielded
// without adopt takes none.
void pushYielded(P* pp, G* gp);
[[nodiscard]] G* popYielded(P* pp, bool adopt);
void flushYielded(P* pp);
// globrunqput and globrunqputbatch queue at the tail, globrunqputhead at the
// head; globrunqget takes one from the head. globrunqgetbatch returns one and
// moves up to n-1 more, but at most size/gomaxprocs+1 in all, to pp's empty
// ring. All of them:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void globrunqput(G* gp);
void globrunqputhead(G* gp);
void globrunqputbatch(GQueue* q);
[[nodiscard]] G* globrunqget();
[[nodiscard]] G* globrunqgetbatch(P* pp, int32_t n);

// ---- proc_m.cc --------------------------------------------------------------

// mcommoninit names an M and enters it into allm.
// On: any.  P: either.  Locks: none.  Parks: no.
void mcommoninit(M* mp, int64_t id);
// startm gives pp (nullptr: an idle one, if any) to the goroutine preempted in
// place whose turn it is, to an idle M, to the oldest preempted in place, or to
// a new M.
// On: any.  P: pp, handed over.  Locks: takes sched.lock.  Parks: no.
void startm(P* pp, bool spinning);
// stopm parks the thread until it is given a P. m0 returns without one when Run
// is to return, an M whose thread is to end when it is retired.
// On: g0.  P: none.  Locks: takes sched.lock.  Parks: blocks the thread.
void stopm();
// gcstopm gives the P to whoever stops the world, then is stopm.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread.
void gcstopm();
// retireIdleMs ends the threads of idle Ms until keep are left. trimIdleMs ends
// those that nobody has needed since it was called last, but for one per P.
// Both:
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void retireIdleMs(int32_t keep);
void trimIdleMs();
// handoffp finds pp an M if there is any reason to, else idles it.
// On: any.  P: none; pp owned by the caller.  Locks: takes sched.lock.
// Parks: no.
void handoffp(P* pp);
// newm makes an M that calls fn (or nothing) and then schedules on pp (or what
// it finds). id: from mReserveID; -1: reserve one now.
// On: any.  P: pp, handed over.  Locks: takes a leaf; sched.lock if id is -1.
// Parks: no.
void newm(void (*fn)(), P* pp, int64_t id);
// claimUnborn takes back a P that waits for a thread which is being made, with
// ofSafePoint only one that forEachP waits for; nullptr: there is none. It is
// the caller's, kPidle.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] P* claimUnborn(bool ofSafePoint);
// idleThread tells whether a thread is there for a P: an idle M, or one whose
// goroutine is preempted in place. threadForP: or one may be made: some are
// held in reserve for declared calls and LockOSThread. A P for which there is
// none had better stay where it is.
//
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] bool idleThread();
[[nodiscard]] bool threadForP();
// mput and mget are the list of idle Ms. mReserveID counts an M that is to
// come; it and checkmcount throw "thread exhaustion". mcount is how many there
// are, without those of plain threads. All five:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void mput(M* mp);
[[nodiscard]] M* mget();
[[nodiscard]] int64_t mReserveID();
[[nodiscard]] int64_t mcount();
void checkmcount();
// mstart is the thread of mp, from its first call to its last.
// On: g0.  P: none.  Locks: takes sched.lock.  Parks: blocks the thread.
void mstart(M* mp);
// startTemplateThread starts the thread that makes all others; by schedinit.
// On: a thread of the user's.  P: none.  Locks: takes sched.lock.  Parks: no.
void startTemplateThread();
// mexit ends this thread because its locked goroutine ended; returns nullptr,
// for gumpMcall. m0 sleeps instead.
// On: g0.  P: needed, given away.  Locks: takes sched.lock.  Parks: m0 blocks.
[[nodiscard]] G* mexit();
// minit finds out what only the thread itself can.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
void minit(M* mp);
// unminit ends what minit began.
// On: the thread of mp.  P: either.  Locks: none.  Parks: no.
void unminit(M* mp);
// threadsinit makes minit able to notice a thread that a goroutine ends. By
// schedinit.
// On: a thread of the user's.  P: none.  Locks: none.  Parks: no.
void threadsinit();
// incidlelocked changes the number of Ms that count as idle although they are
// not in midle, and calls checkdead if it grew.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void incidlelocked(int32_t v);
// becomeSystemThread takes this thread, sysmon's, the template thread's or the
// ring's, out of those that could still wake somebody, and calls checkdead.
// Each does so itself, once it is there: an M on order is in mcount, but no
// thread of the process yet, and would hide one that we do not know
// (strangers). Until then it counts as running, so checkdead is silent.
// On: the thread of a new M.  P: none.  Locks: takes sched.lock.  Parks: no.
void becomeSystemThread();
// AwakeScope makes checkdead count a thread that it does not count otherwise,
// sysmon's or the ring's, as one who may still wake others: for while a P or a
// goroutine is on its way from there to an M. Every M may look idle then. At
// the end checkdead looks again.
// On: a thread that nmsys counts.  P: none.  Locks: takes sched.lock, twice.
// Parks: no.
class AwakeScope {
 public:
  AwakeScope() { incidlelocked(-1); }
  ~AwakeScope() { incidlelocked(1); }
  AwakeScope(const AwakeScope&) = delete;
  AwakeScope& operator=(const AwakeScope&) = delete;
};
// wakeM0ToLeave fetches m0 from wherever it sleeps; mainEnded has been set.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void wakeM0ToLeave();
// stoplockedm gives the P away and sleeps until the M's locked G is to run; m0
// returns without a P if it is to leave Run. A P that comes while the world
// stops is given back, but not twice in a row (putBackInStop).
// On: g0.  P: given away, then needed.  Locks: takes sched.lock.
// Parks: blocks the thread.
void stoplockedm();
// startlockedm gives our P to the M that gp is locked to, then is stopm. Or it
// queues gp again and keeps the P: while the world stops (putBackInStop), or if
// that M is m0 and main has ended.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: blocks the thread,
// unless gp is queued again.
void startlockedm(G* gp);

// ---- extram.cc --------------------------------------------------------------

// needm lends a pseudo-G to a plain thread; a TLS destructor gives it back
// through dropm.
// On: a plain thread without a G.  P: none.  Locks: takes sched.lock, a leaf.
// Parks: no.
G* needm();
// dropm takes the pseudo-G of the ending thread back.
// On: the plain thread.  P: none.  Locks: takes sched.lock, a leaf.  Parks: no.
void dropm(M* mp);
// forEachForeign calls f for every pseudo-G ever lent; they are never freed.
// On: any.  P: either.  Locks: none.  Parks: no.
void forEachForeign(void (*f)(G*, void*), void* arg);

// ---- rt0.cc -----------------------------------------------------------------

// schedinit starts the runtime; idempotent.
// On: any thread.  P: either.  Locks: takes sched.lock.  Parks: no.
void schedinit();
// mainBegins is the first that main does: from here on it may be moved, unless
// the caller of Run has locked it to m0.
// On: G, main.  P: needed.  Locks: none.  Parks: as acquirem.
void mainBegins(G* gp);
// endMain ends the scheduling: the main goroutine's function has returned.
// On: g0.  P: needed.  Locks: takes sched.lock.  Parks: no.
void endMain();
// unsetInitialised makes schedinit look again whether the runtime can start.
// On: the only thread of a child of fork.  P: either.  Locks: none.  Parks: no.
void unsetInitialised();

// ---- fork.cc ----------------------------------------------------------------

// forked: this is a child of fork, without threads of ours. Looked at on slow
// paths only.
extern Atomic<bool> forked;
// forkinit makes children of fork know that they are. By schedinit.
// On: any.  P: either.  Locks: libc's.  Parks: no.
void forkinit();
// inOwnProcess tells whether this process is the one in which the runtime
// started; a child of fork is none from its first instruction on.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool inOwnProcess();
// dieForked ends a child of fork that uses what it does not have.
// On: any.  P: either.  Locks: none.  Parks: no.
[[noreturn]] void dieForked();

// ---- proc_p.cc --------------------------------------------------------------

// acquirep gives pp, which is idle and the caller's, to this M; releasep takes
// the M's P from it, idle. Both:
// On: any.  P: none; needed.  Locks: none.  Parks: no.
void acquirep(P* pp);
[[nodiscard]] P* releasep();
// pidleput and pidleget are the list of idle Ps; pidleget wakes sysmon from its
// deep sleep. pidlegetSpinning sets needspinning if there is none. All three:
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void pidleput(P* pp);
[[nodiscard]] P* pidleget();
[[nodiscard]] P* pidlegetSpinning();
// wakeSysmonLocked ends sysmon's deep sleep, if it is in one.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void wakeSysmonLocked();
// procresize makes n Ps live and returns those with local work, linked by
// pp->link.
// On: any.  P: world stopped.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] P* procresize(int32_t n);

// ---- proc_stw.cc ------------------------------------------------------------

// stopTheWorld returns when every P is kPgcstop; the caller goes on, and keeps
// its M, until it calls startTheWorld. Goroutines that run are asked to yield,
// and soon pressed (pressP); before that, it waits for another stop to end.
// On: user, or a plain thread.  P: either.  Locks: takes worldsema, sched.lock.
// Parks: yes.
void stopTheWorld(WaitReason reason);
// countStopped gives pp, which is idle and the caller's, to who stops the
// world.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void countStopped(P* pp);
// startTheWorld resizes the Ps if GOMAXPROCS asked for it, and lets them run.
// On: as stopTheWorld.  P: stopped.
// Locks: takes sched.lock; releases worldsema.  Parks: no.
void startTheWorld();
// updateMaxProcs starts a goroutine that adapts the number of Ps, if affinity
// or quota say another number than is in force, and the program has not chosen
// one.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
void updateMaxProcs();
// forEachP runs fn once for every P, at a safe point of it: idle, in a system
// call, or in the scheduler, and presses those that reach none (pressP). fn may
// be called with sched.lock held.
// On: user, or a plain thread.  P: either.  Locks: takes worldsema, sched.lock.
// Parks: yes.
void forEachP(WaitReason reason, void (*fn)(P*));
// preemptone asks the goroutine on pp to yield at its next entry into the
// runtime; false: nobody there to ask. preemptall asks all. Best effort. Both:
// On: any.  P: either.  Locks: none.  Parks: no.
void preemptall();
bool preemptone(P* pp);

// ---- preempt.cc -------------------------------------------------------------

// mayLeaveStackAt tells whether sp, which is not on the goroutine's stack, is
// on one of the program's, a coroutine's, and not in a handler. Never while
// this thread dies, nor with a sanitizer, which has to be told which stack is
// left. On: the thread of mp.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool mayLeaveStackAt(const M* mp, uintptr_t sp);
// presumeBlocked takes pp from mp, whose thread is asleep in a call that nobody
// declared while it runs gp. True: pp is the caller's, kPidle.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool presumeBlocked(P* pp, M* mp, G* gp);
// giveBackP undoes a presumeBlocked of mp that took pp. False: mp has come back
// meanwhile, without the P, which stays the caller's.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool giveBackP(P* pp, M* mp);
// preemptM sends mp's thread the signal, unless asyncpreemptoff is set, or one
// has been on its way for less than a slice; under kSanitizerDefersHandlers
// that one may never be run, so another is sent.
// On: any.  P: either.  Locks: none.  Parks: no.
void preemptM(M* mp);
// A thread is taken to compute if it has not slept for so many ns and has used
// half of them: for sysmon, and for a stop of the world.
inline constexpr int64_t kPressGap = 50'000;
inline constexpr int64_t kStopGap = 20'000;
// pressP makes the goroutine on pp give it up without coming by: takes pp if
// the thread is asleep, signals it if it runs. Not nullptr: taken, as by
// presumeBlocked, from that M. Costs some system calls.
// On: any, but pp's M.  P: either.  Locks: takes sched.lock.  Parks: no.
enum class Press : uint8_t {
  kStop,      // for the caller's own purposes
  kHandOff,   // for others: only if there is a thread for it
  kIfAsleep,  // likewise, and who runs is left alone
};
[[nodiscard]] M* pressP(P* pp, Press how);
// pressStrays signals those whose P was taken and who now run without one.
// On: sysmon.  P: none.  Locks: none.  Parks: no.
void pressStrays();
// preemptedBySignal is what SIGURG does; sp: where the interrupted code had its
// stack.
// On: the signal stack.  P: either.  Locks: takes sched.lock.
// Parks: blocks the thread.
void preemptedBySignal(uintptr_t sp);
// letGo releases the goroutines in the global queue that are preempted in
// place: they go on without a P, until they enter the runtime.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void letGo();
// EntryWatch tells whether a goroutine that had lost its P from outside when
// the watch began has entered the runtime since, by itself; of one that had
// not, sooner or later, that it has.
// On: user.  P: either.  Locks: none.  Parks: no.
struct EntryWatch {
  explicit EntryWatch(const G* g);
  bool entered();

  const G* gp;
  const uint32_t n;  // interrupted is no more than this without an entry
  bool looked = false;
};
// awaitInterrupted returns when every goroutine that had lost its P from
// outside when it was called has entered the runtime by itself, or ended.
// On: user.  P: needed.  Locks: none.  Parks: yields.
void awaitInterrupted();
enum class ThreadState : uint8_t { kRunning, kAsleep, kUnknown, kUnseen };
// threadState asks /proc how the thread is, and how often it has gone to sleep
// so far. kUnseen: it cannot be read; no descriptor is free, say.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] ThreadState threadState(int32_t tid, uint64_t* sleeps);
// computes tells whether mp's thread, tid, seen running now, has computed for
// long enough (kPressGap, kStopGap): at a look so long ago it had slept as
// often as now, and its CPU clock has moved since. For a stop of the world it
// is enough that the look is a ms ago. Remembers this look.
// On: any, but mp's thread.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool computes(M* mp, int32_t tid, uint64_t sleeps, Press how);

// ---- proc_syscall.cc --------------------------------------------------------

// onOwnStack: at sp, gp is on its own stack, not on one of the program's.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] GUMP_ALWAYS_INLINE bool onOwnStack(const G* gp, uintptr_t sp) {
  return sp - gp->stack.lo <= gp->stack.hi - gp->stack.lo;
}
// exitsyscallNoP ends a system call whose P is gone: gets another, or parks.
// Returns the M that the goroutine is on then.
// On: user; m.locks is 1, and so it is afterwards.  P: none.
// Locks: takes sched.lock.  Parks: yes.
[[nodiscard]] M* exitsyscallNoP();

// ---- proc_dead.cc -----------------------------------------------------------

// checkdead ends the process if nobody is left who could wake anybody.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void checkdead();
// recheckdead is checkdead for sysmon, which repeats the question
// (deadSuspect): it also looks which of the threads that we do not know run no
// code of the program, at 14 µs for each thread of the process.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void recheckdead();
// checkIdleLists throws unless the lists of idle Ps and Ms are as their counts
// and the Ps' statuses say, with everybody on them once, and no P is lost.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
void checkIdleLists();
// timersPending tells whether a timer of some P will go off one day. Exact
// while nobody runs.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool timersPending();
// pollsInVain tells whether the only M that is not idle sleeps in the poller,
// or is about to, for timers that have all been stopped.
// On: any.  P: either.  Locks: caller holds sched.lock.  Parks: no.
[[nodiscard]] bool pollsInVain();
// schedtrace prints a line, or detailed many, to standard error.
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
// On: user, gp itself, or its plain thread.  P: either.  Parks: as they do.
void glsDestroyAll(G* gp);

// ---- mfinal.cc --------------------------------------------------------------

// fingwake: the finalizer goroutine has work; see mfinal.cc.
extern Atomic<bool> fingwake;
// wakefing returns the finalizer goroutine if it should be readied now, by the
// caller (step 1 of findRunnable).
// On: any.  P: either.  Locks: takes a leaf.  Parks: no.
[[nodiscard]] G* wakefing();

// ---- reclaim.cc: what Go's collector is here; see docs/scheduler.md ---------

// forcegcperiod is how long after the last reclamation cycle sysmon forces one,
// ns; changed by tests. forceReclaim does so, if it is due.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
extern Atomic<int64_t> forcegcperiod;
void forceReclaim(int64_t now);
// Steps 6 and 9 of findRunnable: reclaimWorkAvailable tells whether an idle P
// could help; reclaimIdleWorker returns the goroutine that does, runnable, or
// nullptr. Both:
// On: g0.  P: either.  Locks: take a leaf.  Parks: no.
[[nodiscard]] bool reclaimWorkAvailable();
[[nodiscard]] G* reclaimIdleWorker();

// ---- timechan.cc ------------------------------------------------------------

// timerCellsFlush gives back the free cells of pp, which goes away.
// On: any.  P: pp.  Locks: takes a leaf.  Parks: no.
void timerCellsFlush(P* pp);

// ---- cgroup_linux.cc --------------------------------------------------------

// defaultGOMAXPROCSInit opens the limit files; once, before there are threads.
// defaultGOMAXPROCS is the number for ncpuNow processors under those limits.
// Both:
// On: any.  P: either.  Locks: none.  Parks: no.
void defaultGOMAXPROCSInit();
[[nodiscard]] int32_t defaultGOMAXPROCS(int32_t ncpuNow);

// ---- debugvars.cc -----------------------------------------------------------

// NetpollChoice is GODEBUG=netpoll: what sockets and files go through.
enum class NetpollChoice : uint8_t {
  kAuto,   // whichever measures faster: epoll, and for files io_uring
  kEpoll,  // no io_uring at all
  kUring,  // io_uring for everything, if the kernel lets us
};

// DebugVars is what GODEBUG and GUMP_DEBUG ask for. Written at start-up only.
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
  int32_t watchdog = 0;   // 1: it speaks, 2: it bites; see sysmon.cc
};
extern DebugVars debug;
// parsedebugvars reads GODEBUG and GUMP_DEBUG, once. By schedinit.
// On: a thread of the user's.  P: none.  Locks: none.  Parks: no.
void parsedebugvars();
// gogetenv is the value of gumpName, or, if that is not set, of goName; nullptr
// if neither is.
// On: any.  P: either.  Locks: none.  Parks: no.
const char* gogetenv(const char* goName, const char* gumpName);
// parseGOMAXPROCS reads a value of the variable; larger than kMaxGomaxprocs is
// that. 0: nullptr, or no positive number.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] int32_t parseGOMAXPROCS(const char* value);

}  // namespace gump::rt

#endif  // RUNTIME_PROC_H_
