// The one thread-local variable of the tree: the G that a thread is running. It
// is read by volatile assembly, because a compiler may keep the address of a
// thread_local in a register across a call. A goroutine may return from that
// call on another thread. The offset is a link-time constant (initial-exec), so
// a read costs one or two instructions.
#ifndef RUNTIME_SYS_TLS_H_
#define RUNTIME_SYS_TLS_H_

#include "runtime/sys/base.h"

namespace gump::rt {

struct G;

extern "C" {
// Written only by setg and by the switch in asm_*.S.
extern thread_local G* gumpTlsG __attribute__((tls_model("initial-exec")));
}

// getg returns the G that this thread is running: a user G, its M's g0, or
// nullptr on a thread that the runtime does not know. It reads the thread
// pointer afresh at each call, so no address is kept across a switch.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE G* getg() { return static_cast<G*>(archTlsG()); }

// setg makes gp the current G of this thread. For thread start-up and for
// foreign threads.
// On: any.  P: either.  Locks: none.  Parks: no.
void setg(G* gp);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_TLS_H_
