// The thread's current G; see tls.h for why reads go through assembly. Writes
// go through it too: setg is out of line, so the address is computed afresh at
// each call and none survives a switch.
#include "runtime/tls.h"

namespace gump::rt {

extern "C" {
thread_local G* gumpTlsG __attribute__((tls_model("initial-exec"))) = nullptr;
}

GUMP_NOINLINE void setg(G* gp) { gumpTlsG = gp; }

}  // namespace gump::rt
