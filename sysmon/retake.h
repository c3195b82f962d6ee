// Taking back what goroutines hold too long. Apart from the loop, so that it
// can be tested with a clock of one's own and Ps made by hand.
#ifndef SYSMON_RETAKE_H_
#define SYSMON_RETAKE_H_

#include <cstdint>

#include "runtime/runtime2.h"

namespace gump::rt {

inline constexpr int64_t kForcePreemptNS = 10'000'000;  // a slice

// retakeP looks at one P at time now. True: it has run without a new slice for
// kForcePreemptNS, and the goroutine on it has been asked to yield at its next
// entry into the runtime; asked again at each later look, for the request may
// have hit another goroutine.
// On: sysmon.  P: none.  Locks: none.  Parks: no.
bool retakeP(P* pp, int64_t now);
// retake does so for all Ps.
// On: sysmon.  P: none.  Locks: takes allpLock.  Parks: no.
void retake(int64_t now);

}  // namespace gump::rt

#endif  // SYSMON_RETAKE_H_
