// Walks the stack of the code that a signal has interrupted, by its frame
// pointers. Unlike the walks of unwind.h, this one takes no lock and allocates
// nothing. So it is safe wherever the signal lands: in malloc, in dlopen, in a
// switch.
//
// Code without frame pointers cuts a stack short, and at worst adds a wrong
// address to it. It never makes the walk fault.
#ifndef RUNTIME_DIAG_FRAMEWALK_H_
#define RUNTIME_DIAG_FRAMEWALK_H_

#include <signal.h>

#include <cstddef>
#include <cstdint>

namespace gump::rt {

// Registers are those of the code that a signal has interrupted.
struct Registers {
  uintptr_t pc = 0;
  uintptr_t sp = 0;
  uintptr_t fp = 0;  // frame pointer
  uintptr_t lr = 0;  // AArch64: link register
};

// registersOf returns the registers in `context`, the third argument of a
// signal handler.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] Registers registersOf(const void* context);

// readMemory copies n bytes at `from`, an address of this process that need not
// be mapped. Returns false if the bytes are not mapped, or if a sandbox forbids
// the call. The kernel does the copy (process_vm_readv), so it never faults.
// On: any, also in a handler.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool readMemory(void* to, uintptr_t from, size_t n);

// walkFrames stores the call stack of the interrupted code in pcs, at most
// `most` addresses, the innermost first. Returns how many there are. Each is
// the address to look up, as in Frames (unwind.h).
//
// `hi` is the end of the stack that r.sp points into. The bytes from r.sp to hi
// must be mapped. If the caller does not know the stack, hi is 0, and
// walkFrames reads the stack by readMemory.
// On: any, also in a handler.  P: either.  Locks: none.  Parks: no.
uint32_t walkFrames(const Registers& r, uintptr_t hi, uintptr_t* pcs,
                    uint32_t most);

// callerOfFrameless returns the return address of the interrupted function if
// that function has no frame at this instruction. Otherwise it returns 0. A
// function has none at its beginning and its end, and some functions never have
// one. One file for each architecture.
// On: any, also in a handler.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] uintptr_t callerOfFrameless(const Registers& r);

// stripReturn removes what the processor adds to a return address in order to
// authenticate it. One file for each architecture.
// On: any, also in a handler.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] uintptr_t stripReturn(uintptr_t pc);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_FRAMEWALK_H_
