// The runtime as a library: yielding, exiting, tuning, looking.
//
//   std::printf("%d goroutines on %d processors\n%s",
//               gump::runtime::NumGoroutine(), gump::runtime::GOMAXPROCS(0),
//               gump::runtime::Stack(/*all=*/true).c_str());
//
// All functions may be called from goroutines and from plain threads, Goexit
// excepted; the first call starts the runtime. They neither park nor throw
// unless their comment says so.
#ifndef GUMP_RUNTIME_H_
#define GUMP_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "gump/go.h"
#include "gump/internal/linkname.h"

namespace gump::runtime {

// Gosched lets other goroutines run: the caller goes to the tail of the global
// queue. On a plain thread it yields the thread.
inline void Gosched() { rt::gosched(); }

// Goexit ends the calling goroutine: its stack is unwound, destructors and
// deferred functions run; no other goroutine is affected. A catch (...) on the
// way must rethrow; one that does not is the fatal error "runtime.Goexit:
// exception not rethrown". Goexit from the main goroutine ends it without Run
// returning; when the others have ended too, that is the fatal error "no
// goroutines (main called runtime.Goexit) - deadlock!". On a plain thread it is
// a fatal error. Through a noexcept function, and from what runs while the
// goroutine unwinds already, it ends the process, as any exception does there:
// "panic: std::terminate called without an active exception", or, by clang, the
// fatal error above.
[[noreturn]] inline void Goexit() { rt::goexit(); }

// GOMAXPROCS sets the number of Ps, i.e. of threads that run goroutines at the
// same time, and returns the previous one. n <= 0 only reads. Values above 1024
// are taken as 1024. A change stops the world: it waits until every running
// goroutine has entered the library, or been preempted, or been found asleep.
// Until the first call with n > 0 the number follows the affinity mask and the
// cgroup's quota, looked at once a second. Parks if there is a change.
inline int GOMAXPROCS(int n) { return rt::setGOMAXPROCS(n); }

// SetDefaultGOMAXPROCS returns to what the machine suggests: processors in the
// affinity mask, limited by cgroup CPU quota, both read anew and followed from
// now on. Stops the world as GOMAXPROCS does. Parks.
inline void SetDefaultGOMAXPROCS() { rt::setDefaultGOMAXPROCS(); }

// NumCPU is the number of processors in the affinity mask when the runtime
// started.
inline int NumCPU() { return rt::numCPU(); }

// NumGoroutine is the number of goroutines that exist, the runtime's own
// excluded; at least 1. Approximate while others start and end.
inline int NumGoroutine() { return rt::numGoroutine(); }

// Goid is the number of the calling goroutine, as dumps show it; never reused
// (but 1 is main in every Run). A plain thread has one too, once it has used
// the runtime; before that it is 0.
inline uint64_t Goid() { return rt::currentGoid(); }

// LockOSThread binds the calling goroutine to its thread: it runs on no other,
// and no other goroutine runs there, until UnlockOSThread has been called as
// often. A goroutine that ends locked takes its thread with it. Panics
// "LockOSThread nesting overflow" after 2^32-1 calls. On a plain thread it only
// counts; if that thread then calls Run, main begins locked to it, with the
// same count.
void LockOSThread();
// UnlockOSThread undoes one LockOSThread; without one it does nothing.
void UnlockOSThread();

// Stack is a traceback in Go's form: of the caller, or of all goroutines, for
// which the world is stopped as by GOMAXPROCS. Plain threads that are parked in
// a channel, a lock and the like (not in time::Sleep) are there too, by number,
// without their stacks. Parks if all. Throws std::bad_alloc.
std::string Stack(bool all);

// GC runs one reclamation cycle and returns when it is done. Caches of
// sync::Pool age by one step, and what falls out of them is deleted here. Then
// memory goes back to the kernel: of stacks that no goroutine uses, of parked
// goroutines below their stack pointers, of threads that have nothing to do.
// One runs by itself two minutes after the last. Parks until every P has passed
// a safe point; a goroutine also while another goroutine's cycle runs. A plain
// thread does it all itself, also when no Run is active.
void GC();

// SetFinalizer hands f to the finalizer goroutine, which runs such functions
// one after the other. f may block; it then holds up the ones behind it. An
// exception that leaves it ends the process. Throws std::bad_alloc; an empty f
// is the fatal error "go of nil func value". Unlike Go: no object is involved,
// and f runs at once.
void SetFinalizer(std::function<void()> f);

// Retire deletes p once no goroutine that is running now can still hold it:
// when each has since entered the library, or ended; one that sleeps in the
// kernel or computes meanwhile is waited for. For structures that are
// read without a lock: unlink first, then Retire. A goroutine must not keep a
// pointer read from such a structure across any call into this library, for any
// of them may yield, nor read one inside blocking(). Plain threads are not
// waited for: they must not read such structures. Does not
// park; the deletion runs on the finalizer goroutine, and one wait serves all
// that was retired before it began. Throws std::bad_alloc, and p is the
// caller's then.
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

// FreeOSMemory is runtime::GC, which gives memory back at once here. Parks.
void FreeOSMemory();

// SchedStats is what the scheduler counts. The first group tells how things
// are, the others what has happened since the start of the process.
//
//   procs, idle_procs               Ps; Ps without work
//   threads, idle_threads,          threads of the scheduler, with the monitor
//   spinning_threads                and the one that makes threads; those
//                                   without work; those that look for some
//   goroutines, runnable            goroutines; those that wait for a P
//   preempted_in_place              those stopped in the middle of their code
//   presumed_blocked                those asleep in an undeclared system call,
//                                   or just back from one, without a P
//
//   preemptions, presumptions       how often that has happened
//   world_stops, world_stop_ns      stops of the world, and ns until it stood
//                                   still, in total
//   reclaim_cycles,                 reclamation cycles, and those of them that
//   forced_reclaim_cycles           were due to the time alone
//   reclaim_worker_slabs            shares of a cycle (256 goroutines each)
//                                   that were done by a P with nothing to do
//   stack_bytes_reclaimed           bytes of the stacks of parked goroutines
//   threads_retired                 threads that ended for want of work
//   stalls                          times that work waited for 10 ms although a
//                                   P was idle; 0, unless the library has a bug
//                                   or a thread was kept from running for 1 s
//   stale_events                    of the network, for a descriptor that had
//                                   been closed by then
using SchedStats = rt::SchedStats;

// ReadSchedStats reads all of it. The figures are read one after the other,
// while the program goes on: they need not fit together. Does not park.
SchedStats ReadSchedStats();

// SetMaxThreads limits the number of threads (10,000 at start) and returns the
// previous limit. Exceeding it is the fatal error "thread exhaustion". Plain
// threads do not count.
int SetMaxThreads(int n);

// SetMaxStack limits the stack size that GoOptions may ask for, in bytes, and
// returns the previous limit (1 GiB at start, which is also the most; the least
// is 16 KiB). Running goroutines keep theirs.
size_t SetMaxStack(size_t bytes);

}  // namespace gump::debug

#endif  // GUMP_RUNTIME_H_
