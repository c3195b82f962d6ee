// The verbs of failure. fatalthrow is for a broken invariant of ours. fatal is
// for a mistake of the current goroutine that breaks the program beyond repair.
// fatalAll is for a failure of the program as a whole, such as a deadlock. (A
// panic is an exception and belongs to api/; see gump/panic.h.) None of these
// allocates or takes a lock that user code can hold. The text is Go's own where
// Go has one, because people will search for it.
#ifndef RUNTIME_DIAG_PANIC_H_
#define RUNTIME_DIAG_PANIC_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/lock_futex.h"

namespace gump::rt {

struct G;

// panicking counts the threads that are ending the process.
extern Atomic<int32_t> panicking;

// fatalthrow prints "fatal error: <text>" and the stacks of all goroutines with
// runtime frames, and exits with code 2. The caller prints details before it,
// with printf and the prefix "runtime: ".
// On: any.  P: either.  Parks: no.
[[noreturn]] void fatalthrow(const char* text);
// fatal prints "fatal error: <text>" and the stack of the current goroutine,
// and exits with code 2. The mistake is at this call, as in an unlock of an
// unlocked Mutex, so the other goroutines would only hide it.
// On: any.  P: either.  Parks: no.
[[noreturn]] void fatal(const char* text);
// fatalAll is fatal with the stacks of all user goroutines. It is for failures
// that no goroutine causes alone: deadlock, and want of memory.
// On: any.  P: either.  Parks: no.
[[noreturn]] void fatalAll(const char* text);
// fatalpanic prints "panic: <text>", a blank line and the current goroutine's
// stack, and exits with code 2. type is the type of the exception, printed on a
// line of its own in brackets. It is nullptr for a panic, because the text of a
// panic says everything.
//
// For all these functions GOTRACEBACK decides how much is printed, and with
// `crash` they end in abort().
// On: any.  P: either.  Parks: no.
[[noreturn]] void fatalpanic(const char* text, uint32_t len,
                             const char* type = nullptr);

// claimDeath claims the end of the process for the calling thread. Returns true
// at the first call in the life of the process, and false at every later call.
// If several threads can find the same reason to end the process, each of them
// calls this before it prints the reason. Only the thread that gets true prints
// it.
// On: any, signal stack.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool claimDeath();
// claimDeathAndUnlock is for a reason that was found under `held`, which the
// dump may take. It unlocks `held`, and returns on the thread that has claimed
// the end of the process. On every other thread it never returns.
// On: any.  P: either.  Locks: caller holds `held`.  Parks: may block for ever.
void claimDeathAndUnlock(Mutex* held) ABSL_UNLOCK_FUNCTION(held);
// isDeathClaimed returns true if a thread has claimed the end of the process.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool isDeathClaimed();
// isPanicking returns true if some thread has begun to end the process.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool isPanicking();
// isPanickingHere returns true if the calling thread has begun to end the
// process.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool isPanickingHere();
// panicAfterFork forgets the threads that were ending the parent of this child.
// On: the only thread of a child of fork.  P: either.  Locks: none.  Parks: no.
void panicAfterFork();
// dieInSignal is the second half of fatalAll, for a signal handler that has
// printed the reason. It shows the stack of the code that the signal
// interrupted first.
// On: signal stack.  P: either.  Parks: no.
[[noreturn]] void dieInSignal();

// printf writes to standard error without buffering or allocating. It knows %d
// %u %x (int32), %D %U %X (int64), %s (nullptr is "nil"), %p (as 0x…), %c, %%.
// One call is one write(2) up to 512 bytes.
void printf(const char* format, ...);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_PANIC_H_
