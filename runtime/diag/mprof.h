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

// waitProfiles has the settings: nanoseconds per sample of the block profile in
// the low half, and events per sample of the mutex profile in the high one. 0:
// the profile is off. One load tells whether an operation that may be in both
// is in neither. Relaxed: an event may be sampled by the setting before.
extern Atomic<uint64_t> waitProfiles;

// blockProfiled returns true if the block profile is on, mutexProfiled if the
// mutex profile is, and waitsProfiled if one of them is. An operation asks when
// it is about to park or to wake, and leaves all the rest to a cold function.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE bool blockProfiled() {
  if constexpr (kModelBuild) return false;
  return GUMP_UNLIKELY(static_cast<uint32_t>(waitProfiles.load(relaxed)) != 0);
}
GUMP_ALWAYS_INLINE bool mutexProfiled() {
  if constexpr (kModelBuild) return false;
  return GUMP_UNLIKELY(waitProfiles.load(relaxed) >> 32 != 0);
}
GUMP_ALWAYS_INLINE bool waitsProfiled() {
  if constexpr (kModelBuild) return false;
  return GUMP_UNLIKELY(waitProfiles.load(relaxed) != 0);
}
// blockStart returns the time if the block profile is on, and 0 otherwise.
// On: any.  P: either.  Locks: none.  Parks: no.
GUMP_ALWAYS_INLINE int64_t blockStart() {
  return blockProfiled() ? nanotime() : 0;
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
