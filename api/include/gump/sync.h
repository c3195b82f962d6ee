// All of gump::sync: locks, counters and containers that goroutines and plain
// threads may share. Each header documents its types.
#ifndef GUMP_SYNC_H_
#define GUMP_SYNC_H_

#include "gump/cond.h"          // IWYU pragma: export
#include "gump/errgroup.h"      // IWYU pragma: export
#include "gump/list.h"          // IWYU pragma: export
#include "gump/map.h"           // IWYU pragma: export
#include "gump/mutex.h"         // IWYU pragma: export
#include "gump/once.h"          // IWYU pragma: export
#include "gump/pool.h"          // IWYU pragma: export
#include "gump/queue.h"         // IWYU pragma: export
#include "gump/rwmutex.h"       // IWYU pragma: export
#include "gump/semaphore.h"     // IWYU pragma: export
#include "gump/singleflight.h"  // IWYU pragma: export
#include "gump/stack.h"         // IWYU pragma: export
#include "gump/waitgroup.h"     // IWYU pragma: export

#endif  // GUMP_SYNC_H_
