// All of gump::sync: locks, counters and containers that goroutines and plain
// threads may share. Each header documents its types.
#ifndef GUMP_SYNC_H_
#define GUMP_SYNC_H_

#include "gump/sync/cond.h"          // IWYU pragma: export
#include "gump/sync/errgroup.h"      // IWYU pragma: export
#include "gump/sync/list.h"          // IWYU pragma: export
#include "gump/sync/map.h"           // IWYU pragma: export
#include "gump/sync/mutex.h"         // IWYU pragma: export
#include "gump/sync/once.h"          // IWYU pragma: export
#include "gump/sync/pool.h"          // IWYU pragma: export
#include "gump/sync/queue.h"         // IWYU pragma: export
#include "gump/sync/rwmutex.h"       // IWYU pragma: export
#include "gump/sync/semaphore.h"     // IWYU pragma: export
#include "gump/sync/singleflight.h"  // IWYU pragma: export
#include "gump/sync/stack.h"         // IWYU pragma: export
#include "gump/sync/waitgroup.h"     // IWYU pragma: export

#endif  // GUMP_SYNC_H_
