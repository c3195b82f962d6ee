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
GUMP_ALWAYS_INLINE G* getg() {
  G* gp;
#if defined(__x86_64__)
  asm volatile(
      "movq gumpTlsG@gottpoff(%%rip), %0\n\t"
      "movq %%fs:(%0), %0"
      : "=r"(gp));
#else
  uintptr_t tmp;
  asm volatile(
      "adrp %0, :gottprel:gumpTlsG\n\t"
      "ldr %0, [%0, :gottprel_lo12:gumpTlsG]\n\t"
      "mrs %1, tpidr_el0\n\t"
      "ldr %0, [%0, %1]"
      : "=&r"(gp), "=&r"(tmp));
#endif
  return gp;
}

// setg makes gp the current G of this thread. For thread start-up and for
// foreign threads.
// On: any.  P: either.  Locks: none.  Parks: no.
void setg(G* gp);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_TLS_H_
