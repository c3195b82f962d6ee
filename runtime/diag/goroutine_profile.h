// The goroutine profile, as the scheduler sees it (goroutine_profile.cc).
#ifndef RUNTIME_DIAG_GOROUTINE_PROFILE_H_
#define RUNTIME_DIAG_GOROUTINE_PROFILE_H_

#include <cstdint>

#include "runtime/diag/trace.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct G;

// The number of the profile that is being taken; 0: none is. While it is not 0,
// kProfileHint is set.
extern Atomic<uint32_t> goroutineProfile;

// profileDone returns the value of G::profiled of a goroutine that is done in the
// profile of a number.
inline uint8_t profileDone(uint32_t number) {
  return static_cast<uint8_t>(2 * number + 1);
}

// profilesGoroutines returns true while a profile is being taken. For a thread
// without a P it is a hint.
// On: any.  P: either.  Locks: none.  Parks: no.
inline bool profilesGoroutines() {
  // Acquire: the thread that sees the profile sees its memory.
  return (traceHints() & kProfileHint) != 0 &&
         goroutineProfile.load(acquire) != 0;
}

// profileBefore records gp, if need be, before its status changes, and
// profileBind before gp gets a stack. The caller is the one thread that may
// change gp. Both wait while another thread records gp, for some microseconds.
// On: any; on g0 if newval is kGrunning.  P: either.  Locks: none.  Parks: no.
void profileBefore(G* gp, uint32_t oldval, uint32_t newval);
void profileBind(G* gp);

// profileBegin begins a profile, with `size` bytes of memory at base. `self` is
// the goroutine that takes the profile, and is not recorded, or nullptr.
// Requires: the world is stopped, and `scanners` was raised before.
//
// profileVisit records gp. If another thread does so, it waits for that thread.
//
// profileEnd ends the profile, waits until no thread writes to its memory, and
// returns how many bytes are used. It stores in *lost how many goroutines did
// not fit. The hint stays set.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: no.
void profileBegin(char* base, size_t size, G* self);
void profileVisit(G* gp);
[[nodiscard]] size_t profileEnd(uint64_t* lost);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_GOROUTINE_PROFILE_H_
