// What a debugger must know of the runtime: where its lists begin, and where
// the fields are. tools/gdb/gump_gdb.py reads it from a process or a core, so
// it needs neither the debug information of this library nor a call into the
// program.
#ifndef RUNTIME_DIAG_DEBUGGER_H_
#define RUNTIME_DIAG_DEBUGGER_H_

#include "gump/internal/layout_entry.h"

namespace gump::rt {

// keepDebuggerTable makes the linker keep gump_rt_layout, which only debuggers
// read. schedinit calls it.
// On: any.  P: either.  Locks: none.  Parks: no.
void keepDebuggerTable();

}  // namespace gump::rt

extern "C" const gump::rt::LayoutEntry gump_rt_layout[];

#endif  // RUNTIME_DIAG_DEBUGGER_H_
