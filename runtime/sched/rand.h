// Random numbers for decisions of the scheduler.
#ifndef RUNTIME_SCHED_RAND_H_
#define RUNTIME_SCHED_RAND_H_

#include <cstdint>

#include "runtime/sched/runtime2.h"

namespace gump::rt {

// Both:
// On: any, the thread of mp.  P: either.  Locks: none.  Parks: no.

// cheaprand returns 32 random bits from xorshift, with one state per M. It is
// not for secrets.
inline uint32_t cheaprand(M* mp) {
  uint32_t x = mp->schedrand;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  mp->schedrand = x;
  return x;
}
// cheaprandn returns a number in [0, n) by Lemire's multiplication. The bias is
// below 2^-22 for the n we use.
inline uint32_t cheaprandn(M* mp, uint32_t n) {
  return static_cast<uint32_t>((uint64_t{cheaprand(mp)} * n) >> 32);
}

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_RAND_H_
