// The scheduler's functions, by the file that defines them. The essay is at the
// head of proc.cc; the words are Go's.
//
// The last line of each comment is its context. On: which stack it may run on
// (g0: the M's scheduler stack; user: a goroutine's; any). P: whether the M
// must hold one. Locks: what it takes. Parks: whether the goroutine may be
// switched away. Every function here is noexcept: nothing throws inside the
// runtime.
#ifndef RUNTIME_PROC_H_
#define RUNTIME_PROC_H_

#include "runtime/runtime2.h"

namespace gump::rt {

// ---- asm_*.S
// -----------------------------------------------------------------------------------------------------------

extern "C" {
// gumpMcall saves the user G's context, switches to g0 and calls fn(gp) there;
// fn returns the G to run next, whose context is then resumed. It returns when
// somebody resumes gp. On: user.  P: either.
void gumpMcall(G* (*fn)(G*));
// gumpMstart makes the current stack the M's g0 and calls fn(g0) on it; fn
// returns the first G to run. It returns when such a function returns nullptr,
// which abandons whatever the M was running last. On: a thread with setg(g0)
// done.  P: either.
void gumpMstart(G* g0, G* (*fn)(G*));
// gumpOnG0 is what both call: the g0 half of every switch (proc_park.cc).
G* gumpOnG0(G* gp, G* (*fn)(G*));
// gumpGoroutineMain is what gumpGostart calls: runs the closure, then goexit
// (proc_new.cc).
[[noreturn]] void gumpGoroutineMain(G* gp);
// gumpCallOnStack calls fn(arg) on the stack of a parked context so that an
// unwinder walks from fn into it.
void gumpCallOnStack(uintptr_t sp, void (*fn)(void*), void* arg);
// gumpGostart is the first frame of every goroutine; unwinders stop there.
void gumpGostart();
}

// ---- proc.cc: schedule, findRunnable, stealWork, wakep
// -------------------------------------------------------------

// schedule finds a G and makes it current; the caller, on g0, returns it to
// gumpMcall, which resumes it. (Unlike Go, where schedule never returns: a
// balanced call stack on g0 keeps the processor's return predictor right.)
// Returns nullptr only to leave the scheduler for good (m0 at the end of Run,
// or an exiting M). On: g0.  P: needed.  Locks: takes sched.lock.  Parks:
// blocks the thread.
[[nodiscard]] G* schedule();
struct Runnable {
  G* gp;             // nullptr: leave the scheduler (see schedule)
  bool inheritTime;  // runs in the rest of the current slice
  bool tryWakeP;     // a special G: wake another P for what it displaces
};
[[nodiscard]] Runnable findRunnable();
// execute binds a stack if gp never ran, marks it running and returns it;
// nullptr if it cannot begin for want of memory.
[[nodiscard]] G* execute(G* gp, bool inheritTime);
void resetspinning();
// wakep starts one more M, spinning, if a P is idle and nobody spins. The G to
// be found must have been published by a seq_cst read-modify-write or under
// sched.lock: that RMW and the load of nmspinning in here are one half of the
// lost-wakeup argument in proc.cc.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void wakep();
// injectglist makes every G of the list (all kGwaiting) runnable and starts Ms
// for them. On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
void injectglist(GList* glist);

// ---- proc_status.cc
// ----------------------------------------------------------------------------------------------------

uint32_t readgstatus(const G* gp);
// casgstatus moves gp along one edge of the diagram in runtime2.h, or throws.
// On: any.  P: either.  Parks: no.
void casgstatus(G* gp, uint32_t oldval, uint32_t newval);
// castogscanstatus sets the scan bit on a waiting or syscall G; false if gp is
// in another state.
[[nodiscard]] bool castogscanstatus(G* gp, uint32_t oldval);
void casfrom_Gscanstatus(G* gp, uint32_t oldval);
// pcasstatus tries to move pp from one status to another; throws if the edge is
// not in the diagram.
[[nodiscard]] bool pcasstatus(P* pp, uint32_t oldval, uint32_t newval);
void setPStatus(
    P* pp, uint32_t oldval,
    uint32_t newval);  // as its only owner; throws if it was not oldval

// ---- proc_park.cc
// ------------------------------------------------------------------------------------------------------

// gopark parks the current goroutine. On g0, after its context is saved and it
// is kGwaiting, unlockf(gp, lock) runs; if that returns false the goroutine
// goes on at once. From the moment unlockf makes gp reachable for a waker, gp
// may run elsewhere: touch nothing of it. On a plain thread the thread sleeps.
// gopark is called with exactly one acquirem() outstanding (m.locks == 1) and
// consumes it: the caller holds no M when it returns, must not call releasem
// for it, and must fetch getg()->m anew, for it may be on another thread. On:
// user, or a plain thread.  P: needed.  Locks: unlockf's.  Parks: yes.
void gopark(bool (*unlockf)(G*, void*), void* lock, WaitReason reason);
// goparkunlock parks and releases l.
void goparkunlock(Mutex* l, WaitReason reason);
// goready makes a parked gp runnable: next on this P, or, without a P, at the
// tail of the global queue. On: any.  P: either.  Locks: takes sched.lock.
// Parks: no.
void goready(G* gp);
// goyield puts the current goroutine at the tail of the local ring and runs
// another. On: user.  P: needed.  Parks: yes.
void goyield();
// dropg dissociates m.curg. On: g0.
void dropg();
// runtimeEntry gives the current G, lending one to a plain thread; it honours a
// pending request to yield. On: user, or a plain thread.  P: either.  Parks:
// may yield.
G* runtimeEntry();
// gopreempt gives up the P because somebody asked for it: as Gosched, without
// the wake-up. On: user.  Parks: yes.
void gopreempt();

// ---- proc_new.cc
// -------------------------------------------------------------------------------------------------------

// bindStack gives gp its stack. False: there is none to be had, and gp now
// waits in sched.nostack. On: g0.  P: pp.  Locks: takes kStack, sched.lock.
// Parks: no.
[[nodiscard]] bool bindStack(P* pp, G* gp);
[[nodiscard]] G* newproc1(const FuncType* ft, void* closure,
                          const SpawnOptions* o, uintptr_t pc);
[[nodiscard]] G* gfget(P* pp);
void gfput(P* pp, G* gp);
void gfpurge(P* pp);
[[noreturn]] void
goexit1();           // the goroutine's last call. On: user.  Parks: yes.
void nostackWake();  // lets Gs that waited for a stack try again
// forEachG calls f for every G ever made, in creation order; they are never
// freed. On: any.  Locks: none.
void forEachG(void (*f)(G*, void*), void* arg);
uint64_t gcountAll();
G* malg();  // a fresh cell, kGdead; nullptr: no memory

// ---- proc_runq.cc: pure on a bare P, but for the overflow to sched.runq
// ------------------------------------------------

// runqput queues gp on pp. With next, gp takes runnext and the old runnext is
// kicked into the ring. On: any.  P: pp, owned by the caller.  Locks: takes
// sched.lock if the ring is full.  Parks: no.
void runqput(P* pp, G* gp, bool next);
[[nodiscard]] bool runqputslow(P* pp, G* gp, uint32_t h, uint32_t t);
// runqputbatch moves as many Gs of q as fit into the ring; what is left stays
// in q.
void runqputbatch(P* pp, GQueue* q);
struct RunqGet {
  G* gp;
  bool inheritTime;
};
[[nodiscard]] RunqGet runqget(P* pp);
[[nodiscard]] bool runqempty(const P* pp);
[[nodiscard]] uint32_t runqlen(const P* pp);  // ring only
// runqdrain empties pp into a queue: runnext first.
[[nodiscard]] GQueue runqdrain(P* pp);
// runqgrab takes half of pp's ring (rounded up), or its runnext, into batch
// starting at batchHead. On: any.  P: needed (another one).  Locks: none.
// Parks: no.
[[nodiscard]] uint32_t runqgrab(P* pp, Atomic<G*>* batch, uint32_t batchHead,
                                bool stealRunNextG);
[[nodiscard]] G* runqsteal(P* pp, P* victim, bool stealRunNextG);

// soleP: there is one P, so nobody can steal from it, and its owner needs no
// atomic read-modify-write. The number of Ps changes only while the world is
// stopped.
inline bool soleP() { return gomaxprocs.load(relaxed) == 1; }
// flushYielded moves pp->yielded to the front of the global queue. On: any.  P:
// pp.  Locks: takes sched.lock.
void flushYielded(P* pp);
void globrunqput(G* gp);           // tail.   Locks: caller holds sched.lock.
void globrunqputhead(G* gp);       // head.   Locks: caller holds sched.lock.
void globrunqputbatch(GQueue* q);  // tail.   Locks: caller holds sched.lock.
[[nodiscard]] G* globrunqget();    // one.    Locks: caller holds sched.lock.
// globrunqgetbatch returns one and moves up to n-1 more, but at most
// size/gomaxprocs+1 in all, to pp's empty ring.
[[nodiscard]] G* globrunqgetbatch(P* pp, int32_t n);

// ---- proc_m.cc
// ---------------------------------------------------------------------------------------------------------

void mcommoninit(M* mp, int64_t id);
// startm gives pp (nullptr: an idle one, if any) to an idle M, or to a new one.
// On: any.  P: pp, handed over.  Locks: takes sched.lock.  Parks: no.
void startm(P* pp, bool spinning);
void stopm();    // parks the thread until it is given a P. On: g0.  P: none.
void gcstopm();  // gives the P to whoever stops the world. On: g0.  P: needed.
void handoffp(P* pp);  // finds pp an M if there is any reason to, else idles
                       // it. On: any.  P: none; pp owned.
void newm(void (*fn)(), P* pp, int64_t id);
void mput(M* mp);  // Locks: caller holds sched.lock
[[nodiscard]] M* mget();
[[nodiscard]] int64_t
mReserveID();  // Locks: caller holds sched.lock. Throws "thread exhaustion".
int64_t mcount();    // Locks: caller holds sched.lock
void mstart(M* mp);  // thread entry
void startTemplateThread();
// mexit ends this thread because its locked goroutine ended; returns nullptr,
// for gumpMcall. m0 sleeps instead. On: g0.  P: needed, given away.  Locks:
// takes sched.lock.
[[nodiscard]] G* mexit();
void minit(
    M* mp);  // what only the thread itself can find out. On: the thread of mp.
void incidlelocked(int32_t v);
void checkmcount();    // Locks: caller holds sched.lock. Throws "thread
                       // exhaustion".
void wakeM0ToLeave();  // Locks: caller holds sched.lock and has set mainEnded
void stoplockedm();
void startlockedm(G* gp);
// needm lends a pseudo-G to a plain thread; a TLS destructor gives it back. On:
// plain thread without a G.
G* needm();
void dropm(M* mp);

// ---- rt0.cc
// ------------------------------------------------------------------------------------------------------------

void schedinit();  // idempotent; any thread
void endMain();  // the main goroutine's function has returned. On: g0.  Locks:
                 // takes sched.lock.

// ---- proc_p.cc
// ---------------------------------------------------------------------------------------------------------

void acquirep(P* pp);
[[nodiscard]] P* releasep();
void pidleput(P* pp);         // Locks: caller holds sched.lock
[[nodiscard]] P* pidleget();  // Locks: caller holds sched.lock
[[nodiscard]] P*
pidlegetSpinning();  // as pidleget; sets needspinning if there is none
// procresize makes n Ps live and returns those with local work, linked by
// pp->link. On: any.  P: world stopped.  Locks: caller holds sched.lock.
[[nodiscard]] P* procresize(int32_t n);

// ---- proc_stw.cc
// -------------------------------------------------------------------------------------------------------

void stopTheWorld(
    WaitReason reason);  // Parks: may wait for another stop-the-world.
void startTheWorld();
void forEachP(WaitReason reason, void (*fn)(P*));
void preemptall();
bool preemptone(P* pp);

// ---- proc_dead.cc
// ------------------------------------------------------------------------------------------------------

void checkdead();                // Locks: caller holds sched.lock
void schedtrace(bool detailed);  // Locks: takes sched.lock
void schedtraceCrash();  // detailed; for a process that is ending. Locks:
                         // sched.lock if it is free.
int32_t gcount();

// ---- gls.cc
// ------------------------------------------------------------------------------------------------------------

void glsDestroyAll(G* gp);  // On: user, gp itself

// ---- reclaim.cc: what Go's collector is here; see docs/scheduler.md
// ----------------------------------------------------

[[nodiscard]] G* wakefing();  // the finalizer goroutine, if it should run now
                              // (step 1 of findRunnable)
[[nodiscard]] bool reclaimWorkAvailable(P* pp);  // steps 6 and 9
[[nodiscard]] G* reclaimIdleWorker(P* pp);

// ---- cgroup_linux.cc
// ---------------------------------------------------------------------------------------------------

void defaultGOMAXPROCSInit();  // opens the limit files; once, before threads
[[nodiscard]] int32_t defaultGOMAXPROCS(int32_t ncpuNow);

// ---- debugvars.cc
// ------------------------------------------------------------------------------------------------------

struct DebugVars {
  int32_t schedtrace = 0;  // ms
  int32_t scheddetail = 0;
  int32_t asyncpreemptoff = 0;
  int32_t dontfreezetheworld = 0;
  int32_t tracebackancestors = 0;
  int32_t containermaxprocs = 1;
  int32_t updatemaxprocs = 1;
  int32_t stackguardStrict = 0;  // stackguard=strict
};
extern DebugVars debug;
void parsedebugvars();  // GODEBUG and GUMP_DEBUG, GOTRACEBACK; once
const char* gogetenv(
    const char* goName,
    const char* gumpName);  // GUMP_ wins; nullptr if neither is set
// parseGOMAXPROCS reads a value of the variable; larger than kMaxGomaxprocs is
// that. 0: nullptr, or no positive number.
[[nodiscard]] int32_t parseGOMAXPROCS(const char* value);

}  // namespace gump::rt

#endif  // RUNTIME_PROC_H_
