// The floating-point modes with which goroutines begin: rounding, masks of
// exceptions, flush-to-zero, and the precision of the x87.
//
// A thread begins with the modes of the thread that made it. A goroutine has no
// such thread, so it begins with the modes of the thread of Run. In library
// mode, that is the first thread that needs the runtime. So a program keeps the
// modes that it sets before Run, and those that crtfastmath.o sets for
// -ffast-math.
//
// The words are read only where a goroutine begins (asm_*.S, startFpModes). A
// goroutine that has begun has its own modes, in its saved context.
#ifndef RUNTIME_SYS_FPMODES_H_
#define RUNTIME_SYS_FPMODES_H_

namespace gump::rt {

// inheritFpModes gives the calling thread's modes to the goroutines that begin
// from now on. Those that have begun keep theirs.
// On: a thread of the user's.  P: none.  Locks: none.  Parks: no.
void inheritFpModes();
// startFpModes gives the calling thread the modes with which a goroutine
// begins.
// On: user.  P: either.  Locks: none.  Parks: no.
void startFpModes();

}  // namespace gump::rt

#endif  // RUNTIME_SYS_FPMODES_H_
