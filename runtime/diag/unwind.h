// Walking stacks: this thread's, that of a goroutine which is parked or
// preempted in place, and that of the code which a signal interrupted. All of
// them use the C++ unwinder and its tables. So no frame pointers are needed,
// and optimised code is walked as well as any other.
//
// A walk collects raw addresses in fixed storage. traceback_frames.cc turns
// them into names, perhaps much later: after the world has been started again.
#ifndef RUNTIME_DIAG_UNWIND_H_
#define RUNTIME_DIAG_UNWIND_H_

#include <cstdint>

namespace gump::rt {

struct G;

// Frames is a call stack, inner frame first: the kKeep innermost and the kKeep
// outermost frames, and how many lie between. A stack that overflowed has
// thousands of frames, and its two ends tell the story.
//
// An address is the one to look up, not the one to return to. It lies inside
// the calling instruction, so that a call which is the last instruction of its
// function is not taken for the next function.
struct Frames {
  static constexpr uint32_t kKeep = 96;  // half of kMaxFrames, and room for
                                         // frames that are not shown
  static constexpr uint64_t kMaxWalk = 1 << 20;

  uint32_t kept = 0;       // how many of pcs are filled
  uint64_t lost = 0;       // frames between pcs[kKeep - 1] and pcs[kKeep]
  bool truncated = false;  // the walk stopped at kMaxWalk
  uintptr_t pcs[2 * kKeep];

  void clear();
  void add(uintptr_t pc);  // from kept == 2 * kKeep on, pcs[kKeep...] is a ring
  void finish();           // puts the ring in order
};

// unwindinit makes the unwinder do its one-time work now, because later the
// loader's lock may be held and the stack may be nearly used up.
// On: any.  P: either.  Locks: none.  Parks: no.
void unwindinit();
// walkHere collects the caller's own stack, beginning with the caller.
// On: any.  P: either.  Locks: none.  Parks: no.
void walkHere(Frames* out);
// walkSignal collects, inside a signal handler, the stack of the code that the
// signal interrupted. If the kernel's frame cannot be found (because a
// sanitizer called the handler late), it collects the handler's own stack.
// On: signal stack.  P: either.  Locks: none.  Parks: no.
void walkSignal(Frames* out);
// walkParked collects the stack of a goroutine that is parked or preempted in
// place. The caller keeps it from being resumed, by the scan bit or with the
// world stopped. If the goroutine is on a stack of the program's, which the
// unwinder need not know, walkParked collects only the place where it was
// interrupted, or nothing.
// On: any.  P: either.  Locks: none.  Parks: no.
void walkParked(const G* gp, Frames* out);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_UNWIND_H_
