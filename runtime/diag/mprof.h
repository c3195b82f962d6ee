// The block and mutex profiles: which stacks have waited, and which have made
// others wait (gump/pprof.h).
#ifndef RUNTIME_DIAG_MPROF_H_
#define RUNTIME_DIAG_MPROF_H_

#include <cstdint>

#include "gump/internal/linkname.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

// Settings. 0: the profile is off. Relaxed: an event may be sampled by the
// setting before.
extern Atomic<int64_t> blockProfileRate;      // nanoseconds per sample
extern Atomic<int64_t> mutexProfileFraction;  // events per sample

// blockStart returns the time if the block profile is on, and 0 otherwise. An
// operation calls it when it is about to park.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE int64_t blockStart() {
  if constexpr (kModelBuild) return 0;
  return GUMP_UNLIKELY(blockProfileRate.load(relaxed) != 0) ? nanotime() : 0;
}
// mutexProfiled returns true if the mutex profile is on.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE bool mutexProfiled() {
  if constexpr (kModelBuild) return false;
  return GUMP_UNLIKELY(mutexProfileFraction.load(relaxed) != 0);
}

// blockEvent records that the caller has waited since the time `since`.
// On: user, or a foreign thread.  P: either.  Locks: takes a leaf, kMem.
// Parks: no, if m.locks > 0; else the outermost acquirem may.
void blockEvent(int64_t since);
// mutexEvent records that the caller has released a lock for which others have
// waited ns in all, in n waits.
// On: as blockEvent.  P: either.  Locks: as blockEvent.  Parks: as blockEvent.
void mutexEvent(int64_t ns, uint32_t n);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_MPROF_H_
