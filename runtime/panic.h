// The three verbs of failure. fatalthrow: an invariant of ours broke. fatal:
// the user broke the program beyond repair. (The third, a panic, is an
// exception and belongs to api/; see gump/panic.h.) None of these allocates or
// takes a lock that user code can hold. The text is Go's own where Go has one:
// people will search for it.
#ifndef RUNTIME_PANIC_H_
#define RUNTIME_PANIC_H_

#include <cstdint>

#include "runtime/atomic.h"

namespace gump::rt {

struct G;

// panicking counts the threads that are ending the process.
extern Atomic<int32_t> panicking;

// fatalthrow prints "fatal error: <text>", the stacks of all goroutines with
// runtime frames, and exits with code 2. Detail goes before it, with printf,
// prefixed "runtime: ".
// On: any.  P: either.  Parks: no.
[[noreturn]] void fatalthrow(const char* text);
// fatal prints "fatal error: <text>", the stacks of all user goroutines, and
// exits with code 2.
// On: any.  P: either.  Parks: no.
[[noreturn]] void fatal(const char* text);
// fatalpanic prints "panic: <text>", a blank line and the current goroutine's
// stack, and exits with code 2. GOTRACEBACK decides for all three how much is
// printed; `crash` ends in abort(). type: of the exception, printed on a line
// of its own in brackets; nullptr for a panic, whose text says all.
// On: any.  P: either.  Parks: no.
[[noreturn]] void fatalpanic(const char* text, uint32_t len,
                             const char* type = nullptr);

// isPanicking tells whether some thread has begun to end the process.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool isPanicking();
// isPanickingHere tells whether it is this thread.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool isPanickingHere();
// panicAfterFork forgets the threads that were ending the parent of this child.
// On: the only thread of a child of fork.  P: either.  Locks: none.  Parks: no.
void panicAfterFork();
// dieInSignal is the second half of fatal, for a signal handler that has
// printed what happened: the stack shown is that of the code it interrupted.
// On: signal stack.  P: either.  Parks: no.
[[noreturn]] void dieInSignal();

// printf writes to standard error without buffering or allocating. %d %u %x
// (int32), %D %U %X (int64), %s (nullptr is "nil"), %p (as 0x…), %c, %%.  One
// call is one write(2) up to 512 bytes.
void printf(const char* format, ...);

}  // namespace gump::rt

#endif  // RUNTIME_PANIC_H_
