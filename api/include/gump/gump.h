// All public headers. A program includes this one, or those that it needs.
#ifndef GUMP_GUMP_H_
#define GUMP_GUMP_H_

#include "gump/chan.h"      // IWYU pragma: export
#include "gump/co.h"        // IWYU pragma: export
#include "gump/context.h"   // IWYU pragma: export
#include "gump/debug.h"     // IWYU pragma: export
#include "gump/defer.h"     // IWYU pragma: export
#include "gump/exec.h"      // IWYU pragma: export
#include "gump/gls.h"       // IWYU pragma: export
#include "gump/go.h"        // IWYU pragma: export
#include "gump/metrics.h"   // IWYU pragma: export
#include "gump/net.h"       // IWYU pragma: export
#include "gump/os.h"        // IWYU pragma: export
#include "gump/panic.h"     // IWYU pragma: export
#include "gump/pprof.h"     // IWYU pragma: export
#include "gump/rate.h"      // IWYU pragma: export
#include "gump/runtime.h"   // IWYU pragma: export
#include "gump/scope.h"     // IWYU pragma: export
#include "gump/select.h"    // IWYU pragma: export
#include "gump/signal.h"    // IWYU pragma: export
#include "gump/status.h"    // IWYU pragma: export
#include "gump/sync.h"      // IWYU pragma: export
#include "gump/synctest.h"  // IWYU pragma: export
#include "gump/time.h"      // IWYU pragma: export
#include "gump/trace.h"     // IWYU pragma: export
#include "gump/version.h"   // IWYU pragma: export

#endif  // GUMP_GUMP_H_
