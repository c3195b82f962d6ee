// The runtime as a library: yielding, exiting, tuning, looking.
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
// queue. On a plain thread it yields the thread. Parks.
inline void Gosched() { rt::gosched(); }

// Goexit ends the calling goroutine: its stack is unwound, destructors and
// deferred functions run; no other goroutine is affected. A catch (...) on the
// way must rethrow; one that does not is a fatal error. Goexit from the main
// goroutine ends it without Run returning; when the others have ended too, that
// is the fatal error "no goroutines (main called runtime.Goexit) - deadlock!".
[[noreturn]] inline void Goexit() { rt::goexit(); }

// GOMAXPROCS sets the number of Ps, i.e. of threads that run goroutines at the
// same time, and returns the previous one. n <= 0 only reads. Values above 1024
// are taken as 1024. Stops the world for a moment; may park.
inline int GOMAXPROCS(int n) { return rt::setGOMAXPROCS(n); }

// SetDefaultGOMAXPROCS returns to what the machine suggests: processors in the
// affinity mask, limited by cgroup CPU quota. Parks.
inline void SetDefaultGOMAXPROCS() { rt::setDefaultGOMAXPROCS(); }

// NumCPU is the number of processors this process could use when it started.
inline int NumCPU() { return rt::numCPU(); }

// NumGoroutine is the number of goroutines that exist, the runtime's own
// excluded; at least 1.
inline int NumGoroutine() { return rt::numGoroutine(); }

// Goid is the number of the calling goroutine, as dumps show it; never reused
// (1 is main). 0 on a thread that has not used the runtime.
inline uint64_t Goid() { return rt::currentGoid(); }

// LockOSThread binds the calling goroutine to its thread: it runs on no other,
// and no other goroutine runs there, until UnlockOSThread has been called as
// often. A goroutine that ends locked takes its thread with it. Panics
// "LockOSThread nesting overflow" after 2^32-1 calls.
void LockOSThread();
void UnlockOSThread();

// Stack is a traceback in Go's form: of the caller, or of all goroutines, for
// which the world is stopped. Parks.
std::string Stack(bool all);

// GC runs one reclamation cycle: caches of sync::Pool age by one step.
void GC();

// SetFinalizer hands f to the finalizer goroutine, which runs such functions
// one after the other. f may block; it then holds up the ones behind it.
void SetFinalizer(std::function<void()> f);

// Retire deletes p once no goroutine that is running now can still hold it:
// when every P has since passed through the scheduler. For structures that are
// read without a lock: unlink first, then Retire. A goroutine must not keep a
// pointer read from such a structure across an operation that parks. Does not
// park; the deletion runs on the finalizer goroutine.
//
//   Node* old = head.exchange(fresh);
//   gump::runtime::Retire(old);
template <class T>
void Retire(T* p) {
  SetFinalizer([p] {
    rt::gracePeriod();
    delete p;
  });
}

}  // namespace gump::runtime

namespace gump::debug {

// FreeOSMemory runs a reclamation cycle and gives the pages of cached stacks
// back to the kernel. Parks.
void FreeOSMemory();

// SetMaxThreads limits the number of threads (10,000 at start) and returns the
// previous limit. Exceeding it is the fatal error "thread exhaustion".
int SetMaxThreads(int n);

// SetMaxStack limits the stack size that GoOptions may ask for, in bytes, and
// returns the previous limit (1 GiB at start).
size_t SetMaxStack(size_t bytes);

}  // namespace gump::debug

#endif  // GUMP_RUNTIME_H_
