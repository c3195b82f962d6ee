// Package sync has locks, counters and containers that goroutines and plain
// threads may share.
//
//   gump/sync/barrier.h       Barrier
//   gump/sync/cond.h          Cond
//   gump/sync/errgroup.h      ErrGroup
//   gump/sync/event.h         Event, WaitAny
//   gump/sync/latch.h         Latch
//   gump/sync/list.h          List
//   gump/sync/map.h           Map
//   gump/sync/mutex.h         Mutex, Locker
//   gump/sync/once.h          Once, OnceFunc, OnceValue, OnceValues
//   gump/sync/pool.h          Pool
//   gump/sync/queue.h         Queue
//   gump/sync/rwmutex.h       RWMutex
//   gump/sync/semaphore.h     Semaphore
//   gump/sync/singleflight.h  SingleFlight
//   gump/sync/stack.h         Stack
//   gump/sync/waitgroup.h     WaitGroup
#ifndef GUMP_SYNC_H_
#define GUMP_SYNC_H_

#include "gump/sync/barrier.h"       // IWYU pragma: export
#include "gump/sync/cond.h"          // IWYU pragma: export
#include "gump/sync/errgroup.h"      // IWYU pragma: export
#include "gump/sync/event.h"         // IWYU pragma: export
#include "gump/sync/latch.h"         // IWYU pragma: export
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
