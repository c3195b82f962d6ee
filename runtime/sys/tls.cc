// The thread's current G; tls.h says why reads go through assembly. setg is out
// of line, so a write computes the address afresh at each call, and no address
// survives a switch.
#include "runtime/sys/tls.h"

namespace gump::rt {

extern "C" {
thread_local G* gumpTlsG __attribute__((tls_model("initial-exec"))) = nullptr;
}

GUMP_NOINLINE void setg(G* gp) { gumpTlsG = gp; }

}  // namespace gump::rt
