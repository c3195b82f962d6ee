// Package runtime tunes and inspects the scheduler, and lets a goroutine yield
// or exit.
//
//   std::printf("%d goroutines on %d processors\n%s",
//               gump::runtime::NumGoroutine(), gump::runtime::GOMAXPROCS(0),
//               gump::runtime::Stack(/*all=*/true).c_str());
//
// All functions except Goexit may be called from goroutines and from plain
// threads. The first call starts the runtime. A function parks or throws only
// if its comment says so.
#ifndef GUMP_RUNTIME_H_
#define GUMP_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "gump/go.h"
#include "gump/internal/linkname_runtime.h"
#include "gump/runtime/group.h"   // IWYU pragma: export
#include "gump/runtime/thread.h"  // IWYU pragma: export

#pragma GCC visibility push(default)

namespace gump::runtime {

// Gosched lets other goroutines run, and returns when it is the caller's turn
// again. On a plain thread it yields the thread.
inline void Gosched() { rt::gosched(); }

// Goexit ends the calling goroutine and affects no other. It unwinds the stack,
// so destructors and deferred functions run.
//   * A catch (...) on the way must rethrow. If one does not, that is the fatal
//     error "runtime.Goexit: exception not rethrown".
//   * On the main goroutine, Goexit ends that goroutine, but Run does not
//     return. When the other goroutines have ended too, that is the fatal error
//     "no goroutines (main called runtime.Goexit) - deadlock!".
//   * On a plain thread, Goexit is a fatal error.
//   * If a noexcept function is on the way, or if the goroutine is already
//     unwinding, Goexit ends the process, as any exception would. The text is
//     "panic: std::terminate called without an active exception". In code that
//     clang compiled, it may be "exception not rethrown", as above.
[[noreturn]] inline void Goexit() { rt::goexit(); }

// GOMAXPROCS sets the number of Ps, that is, of threads that run goroutines at
// the same time, and returns the previous number. n <= 0 only reads it. Values
// above 1024 count as 1024.
//
// A change stops the world: it waits until every running goroutine has entered
// the library, has been preempted, or has been found asleep. Until the first
// call with n > 0, the number follows the affinity mask and the cgroup's CPU
// quota, which are read once a second. Parks if the number changes.
inline int GOMAXPROCS(int n) { return rt::setGOMAXPROCS(n); }

// SetDefaultGOMAXPROCS sets the number of Ps to the machine's default: the
// processors in the affinity mask, limited by the cgroup's CPU quota. It reads
// both again, and from now on the number follows them. Stops the world as
// GOMAXPROCS does. Parks.
inline void SetDefaultGOMAXPROCS() { rt::setDefaultGOMAXPROCS(); }

// NumCPU returns the number of processors that were in the affinity mask when
// the runtime started.
inline int NumCPU() { return rt::numCPU(); }

// NumNode returns the number of NUMA nodes that have Ps. It changes only when
// the number of Ps or the affinity mask does. GUMP_TOPOLOGY simulates other
// nodes than those of the machine: "2x4" is two nodes with four processors
// each, and "0-3/4-7" lists the processors of each node.
inline int NumNode() { return rt::numNode(); }

// Node returns the number of the node whose P runs the caller: at least 0, and
// less than NumNode(). On a plain thread, and inside of blocking, it is 0. The
// goroutine may be on another node as soon as Node has returned, so the result
// is a hint about where to put data, for example in an array with an element
// for each node.
//
//   Shard shards[8];
//   Shard& near = shards[gump::runtime::Node() % 8];
inline int Node() { return rt::nodeOfCaller(); }

// NumGoroutine returns the number of goroutines, without the runtime's own. It
// is at least 1. It is approximate while goroutines start and end.
inline int NumGoroutine() { return rt::numGoroutine(); }

// Goid returns the number of the calling goroutine, as dumps show it. A number
// is never reused, except that main is 1 in every Run. A plain thread gets a
// number when it first uses the runtime; before that, Goid returns 0.
inline uint64_t Goid() { return rt::currentGoid(); }

// LockOSThread binds the calling goroutine to its thread. Until the binding
// ends, the goroutine runs on no other thread, and the thread runs no other
// goroutine. The binding ends when UnlockOSThread has been called as often as
// LockOSThread. A goroutine that ends while locked ends its thread too. Panics
// "LockOSThread nesting overflow" after 2^32-1 calls. A goroutine of a Thread
// is bound to that, and LockOSThread only counts.
//
// On a plain thread, LockOSThread only counts its calls. If that thread then
// calls Run, main begins locked to it, with the same count.
void LockOSThread();
// UnlockOSThread undoes one call of LockOSThread. It does nothing if all have
// been undone.
void UnlockOSThread();

// Affinity says to which processors the threads of the runtime are bound.
enum class Affinity {
  kNone,  // to none: the kernel chooses
  kNode,  // to the processors of the NUMA node of the thread's P
  kCore,  // to one processor for each P
};
// SetAffinity binds the threads that run goroutines. Without it they are bound
// as GUMP_AFFINITY=none|node|core says, or else by kNode if the machine has
// several NUMA nodes, and by kNone if it has one.
//
//   * A thread is bound when it gets a P. With kCore each P has one processor.
//     The Ps are dealt to the nodes in blocks, in proportion to the processors
//     of each node, and within a node in the order of its processors. If a node
//     has more Ps than processors, they share.
//   * The runtime never leaves the processors that taskset or a cpuset has
//     given the process, and follows a change of these within about a second.
//   * A thread that a goroutine has locked (LockOSThread) is not bound, and
//     neither is that of a runtime::Thread. If the program itself has set the
//     mask of a thread, that thread is left alone.
//   * A child of exec::Cmd begins with the mask of the program, and so does a
//     child of fork. A std::thread that a goroutine makes inherits the mask of
//     the goroutine's thread. If it should not, the goroutine calls
//     LockOSThread before.
//   * A call in blocking() stays on the processors of its thread.
//   * If the kernel refuses, threads are not bound.
//
// Binding helps programs that own their processors: no thread moves away from
// its caches. It harms those that share them with other programs. A change
// stops the world as GOMAXPROCS does, and parks. Before the runtime has
// started, SetAffinity only notes the choice, and does not start it. Panics
// "runtime: SetAffinity of an unknown Affinity" for any other value.
//
// Source: marl's Thread::Affinity::Policy::oneOf; the order of the processors
// is the kernel's.
void SetAffinity(Affinity affinity);

// ThreadHooks are functions for the threads that run goroutines. An empty one
// is not called.
struct ThreadHooks {
  // Each thread calls it before its first goroutine.
  std::function<void()> on_start = {};
  // Each thread that ends calls it after its last goroutine.
  std::function<void()> on_end = {};
};
// SetThreadHooks sets functions that prepare the threads of the runtime: a
// context of a library for each thread, a signal mask, a priority, a profiler.
//
//   * Each thread that the runtime makes to run goroutines calls on_start
//     before its first goroutine. It calls on_end before it ends: because it
//     was not needed any more, or because its goroutine ended locked to it. The
//     threads that are left when the process ends do not call on_end.
//   * The thread of Run calls on_start in each Run, before main, and on_end
//     after main has returned.
//   * Other threads call neither: plain threads, and the runtime's own, which
//     run no goroutines.
//
// Several threads may be in the same hook at once. A hook runs on the thread's
// own stack. It may allocate, lock and block. If it blocks, only its own thread
// waits: the goroutines run on other threads meanwhile. They need a thread that
// has finished its hook. There may be none, for example just after the start.
// So a hook must not wait for something that a goroutine is to do: both could
// wait for ever. This includes a lock that a goroutine holds while it waits for
// other goroutines.
//
// A hook must not use goroutines: no go, no channel, no Gosched, nothing of
// this library that needs to know its goroutine or might park. That is the
// fatal error "use of goroutines in a thread hook". A lock of gump::sync that
// is free may be taken. An exception that leaves a hook ends the process with a
// panic report.
//
// Call SetThreadHooks before the first use of the library, for example at the
// beginning of main. Panics "runtime: SetThreadHooks after the start" if the
// runtime has started. A second call before the start replaces the hooks.
// Throws std::bad_alloc. Does not park, and does not start the runtime.
//
//   gump::runtime::SetThreadHooks({.on_start = [] { OpenGpuContext(); },
//                                  .on_end = [] { CloseGpuContext(); }});
//   return gump::Run(Serve);
//
// Source: marl's Scheduler::Config::setWorkerThreadInitializer.
void SetThreadHooks(ThreadHooks hooks);

// Stack returns a traceback in Go's format, of the caller or of all goroutines.
// Throws std::bad_alloc. If `all` is true, the traceback shows all goroutines
// as they were at one moment. To mark the moment, it stops the world as
// GOMAXPROCS does, and parks. The traceback then also lists the plain threads
// that are parked, for example in a channel or a lock, but not in time::Sleep.
// It shows their numbers, but not their stacks.
std::string Stack(bool all);

// GC runs one reclamation cycle and returns when it is done. The runtime runs a
// cycle itself two minutes after the last one.
//
// A cycle first ages the caches of sync::Pool by one step. The values that fall
// out of them are deleted on the calling goroutine or thread. Then the cycle
// gives memory back to the kernel:
//   * stacks that no goroutine uses;
//   * stack pages of parked goroutines below their stack pointers;
//   * memory of threads that have nothing to do.
//
// Parks until every P has passed a safe point. A goroutine also parks while
// another goroutine's cycle runs. A plain thread does all the work itself, also
// when no Run is active.
void GC();

// SetFinalizer hands f to the finalizer goroutine, which runs such functions
// one after the other. f may block, which delays the functions behind it. An
// exception that leaves f ends the process. Throws std::bad_alloc. An empty f
// is the fatal error "go of nil func value". Unlike in Go, f does not wait for
// an object to become unreachable. It runs as soon as the functions before it
// are done.
void SetFinalizer(std::function<void()> f);

// Retire deletes p, which new has made, once no goroutine that is running now
// can still hold it. That is when each of these goroutines has entered the
// library or has ended. So a goroutine that sleeps in the kernel or computes
// delays the deletion. Retire is for structures that are read without a lock:
// unlink first, then call Retire.
//
// Requires:
//   * A goroutine does not keep a pointer read from such a structure across a
//     call into this library, because any call may yield.
//   * A goroutine does not read such a pointer inside blocking().
//   * Plain threads do not read such structures, because Retire does not wait
//     for them.
//
// Does not park. The deletion runs on the finalizer goroutine, and one wait
// serves all pointers that were retired before it began. Throws std::bad_alloc;
// then p is still the caller's.
//
//   Node* old = head.exchange(fresh);
//   gump::runtime::Retire(old);
template <class T>
void Retire(T* p) {
  SetFinalizer([p, since = rt::gracePeriodsBegun()] {
    rt::awaitGracePeriod(since);
    delete p;
  });
}

}  // namespace gump::runtime

namespace gump::debug {

// FreeOSMemory is the same as runtime::GC, because in this library GC gives
// memory back at once. Parks.
void FreeOSMemory();

// SchedStats holds the counters of the scheduler. The first group describes the
// present state. The second counts events since the process started.
//
//   procs, idle_procs               Ps; Ps without work
//   threads, idle_threads,          threads of the scheduler, including sysmon
//   spinning_threads                and the template thread; threads without
//                                   work; threads that look for work
//   goroutines, runnable            goroutines; goroutines that wait for a P
//   preempted_in_place              goroutines stopped in the middle of their
//                                   code
//   presumed_blocked                goroutines without a P that are asleep in
//                                   an undeclared system call, or just back
//                                   from one
//
//   preemptions, presumptions       how often a goroutine was preempted in
//                                   place; how often one was presumed blocked
//   world_stops, world_stop_ns      stops of the world; the total time in ns
//                                   until the world stood still
//   reclaim_cycles,                 reclamation cycles; those of them that ran
//   forced_reclaim_cycles           only because of the time
//   reclaim_worker_slabs            shares of a cycle (256 goroutines each)
//                                   done by a P that had nothing else to do
//   stack_bytes_reclaimed           bytes given back from the stacks of parked
//                                   goroutines
//   threads_retired                 threads that ended for lack of work
//   stalls                          times that work waited for 10 ms although a
//                                   P was idle; 0, unless the library has a bug
//                                   or a thread was kept from running for 1 s
//   stale_events                    network events for a descriptor that had
//                                   already been closed
//
// The third group is about NUMA nodes. With one node, only the first is not 0.
//
//   nodes                           nodes that have Ps
//   node_runs, node_moves           how often a goroutine went on; of these,
//                                   how often on another node than before
//   node_steals,                    how often a P without work took some from
//   node_steals_across              another; of these, how often from another
//                                   node
using SchedStats = rt::SchedStats;

// ReadSchedStats reads all counters. It reads them one after the other while
// the program continues, so they need not be consistent. Does not park.
SchedStats ReadSchedStats();

// SetMaxThreads limits the number of threads to n and returns the previous
// limit, which is 10,000 at start. Exceeding the limit is the fatal error
// "thread exhaustion". Plain threads do not count.
int SetMaxThreads(int n);

// SetMaxStack limits the stack size in bytes for which GoOptions can ask, and
// returns the previous limit. The limit is 1 GiB at start, which is also its
// maximum. Its minimum is 16 KiB. Running goroutines keep their stacks.
size_t SetMaxStack(size_t bytes);

// SetHibernation lets goroutines hibernate once they have been parked for
// `after`, or for up to twice that, and returns the previous setting. Zero
// means that none does. That is the setting at start, unless
// GODEBUG=hibernate=SECONDS has set another.
//
// A goroutine that hibernates keeps a few hundred bytes of memory in place of
// the page of its stack. Its stack comes back when it is woken, or when
// a thread or the kernel touches it. So captured references, dumps and system
// calls work as ever. Waking it takes about 6 microseconds more.
//
// It needs Linux 6.8 and userfaultfd(2) for faults in system calls (root,
// CAP_SYS_PTRACE, vm.unprivileged_userfaultfd=1 or access to
// /dev/userfaultfd). Where there is none, and under AddressSanitizer,
// LeakSanitizer and ThreadSanitizer, one line on standard error says so, and
// goroutines keep their pages. A goroutine never hibernates while it has more
// than 2 KiB of live stack, waits for a read or a write of a file, is locked to
// a thread, or is in a synctest bubble.
absl::Duration SetHibernation(absl::Duration after);

}  // namespace gump::debug

#pragma GCC visibility pop

#endif  // GUMP_RUNTIME_H_
