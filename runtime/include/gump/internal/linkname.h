// The window between the public headers and the runtime: all functions of the
// runtime that a template in api/include/gump may call. Go's linker keeps such
// a list for sync, time and internal/poll. Internal: may change in any release.
//
// The window has a part for each package, linkname_*.h. A public header
// includes the parts that it needs. The runtime, which defines all of it,
// includes this file.
//
// Every function of the window except goexit is noexcept, and reports misuse by
// its result. api/ turns results into panics, so that no exception starts while
// a runtime lock is held. All functions may be called from goroutines and from
// foreign threads. The first call starts the runtime. A foreign thread is lent
// a pseudo-G, and blocks on a futex where a goroutine would park.
#ifndef GUMP_INTERNAL_LINKNAME_H_
#define GUMP_INTERNAL_LINKNAME_H_

#include "gump/internal/arch.h"               // IWYU pragma: export
#include "gump/internal/atomic.h"             // IWYU pragma: export
#include "gump/internal/linkname_chan.h"      // IWYU pragma: export
#include "gump/internal/linkname_gls.h"       // IWYU pragma: export
#include "gump/internal/linkname_go.h"        // IWYU pragma: export
#include "gump/internal/linkname_group.h"     // IWYU pragma: export
#include "gump/internal/linkname_panic.h"     // IWYU pragma: export
#include "gump/internal/linkname_pprof.h"     // IWYU pragma: export
#include "gump/internal/linkname_runtime.h"   // IWYU pragma: export
#include "gump/internal/linkname_scope.h"     // IWYU pragma: export
#include "gump/internal/linkname_select.h"    // IWYU pragma: export
#include "gump/internal/linkname_sync.h"      // IWYU pragma: export
#include "gump/internal/linkname_synctest.h"  // IWYU pragma: export
#include "gump/internal/linkname_thread.h"    // IWYU pragma: export
#include "gump/internal/linkname_time.h"      // IWYU pragma: export
#include "gump/internal/linkname_trace.h"     // IWYU pragma: export

#endif  // GUMP_INTERNAL_LINKNAME_H_
