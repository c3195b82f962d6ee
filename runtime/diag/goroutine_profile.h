// The goroutine profile, as the scheduler sees it (goroutine_profile.cc).
#ifndef RUNTIME_DIAG_GOROUTINE_PROFILE_H_
#define RUNTIME_DIAG_GOROUTINE_PROFILE_H_

#include <cstddef>
#include <cstdint>

#include "runtime/diag/trace.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct G;

// The number of the profile that is being taken; 0: none is. While it is not 0,
// kProfileHint is set.
extern Atomic<uint32_t> goroutineProfile;

// profileDone returns the value of G::profiled that means: done in the profile
// of this number.
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

// ProfileView is how a goroutine was at the moment of the profile.
struct ProfileView {
  uint32_t status;
  // The goroutine is in a call, or runs: its thread may change it meanwhile.
  // Otherwise it stays as it is, and so does its stack.
  bool moves = false;
  // It was waiting at that moment, and has been readied. It has not run since.
  bool woken = false;
  int64_t now;  // nanotime of the moment
};

// ProfileKind says what a profile records of each goroutine.
struct ProfileKind {
  size_t each;  // bytes of one record, at most
  // record records gp in the memory that profileRoom returns. The caller has
  // the claim, and the scan bit if gp still waits.
  // On: any, m.locks > 0.  P: either.  Locks: none.  Parks: no.
  void (*record)(G* gp, const ProfileView& view);
  // If atStop is not nullptr, it is called during the stop, and records what
  // else there is, such as plain threads.
  void (*atStop)(const G* self);
};
// The profile of visitGoroutines.
extern const ProfileKind kStackProfile;

// profileRoom returns n bytes of the profile's memory. Returns nullptr if they
// do not fit, and counts that.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] char* profileRoom(size_t n);

// ProfileMemory is what a profile has recorded.
struct ProfileMemory {
  char* base = nullptr;
  size_t size = 0;
  size_t used = 0;    // the records, one behind the other
  uint64_t lost = 0;  // goroutines that did not fit
};

// reserveProfile reserves memory for records of all goroutines and plain
// threads, of `each` bytes at most. Only the pages that are filled take memory.
// If there is none, the size is 0.
// On: any.  P: either.  Locks: takes sched.lock.  Parks: no.
[[nodiscard]] ProfileMemory reserveProfile(size_t each);

// takeProfile takes a profile of all goroutines but `self`, the caller's. The
// world stops only to mark the moment. Returns false if the caller is a plain
// thread and another profile is being taken. The caller frees *out.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: yes.
[[nodiscard]] bool takeProfile(const ProfileKind& kind, G* self,
                               ProfileMemory* out);
// On: any.  P: either.  Locks: none.  Parks: no.
void freeProfile(const ProfileMemory& m);

// The steps of takeProfile, which models take, too.
//
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
void profileBegin(const ProfileKind& kind, char* base, size_t size, G* self);
void profileVisit(G* gp);
[[nodiscard]] size_t profileEnd(uint64_t* lost);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_GOROUTINE_PROFILE_H_
