// Random numbers for decisions of the scheduler.
#ifndef RUNTIME_SCHED_RAND_H_
#define RUNTIME_SCHED_RAND_H_

#include <cstdint>

#include "runtime/sched/runtime2.h"

namespace gump::rt {

// All:
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

// RandomOrder visits each of 0..count-1 once, in an order fixed by a start and
// by a stride that is coprime to count.
class RandomOrder {
 public:
  RandomOrder(uint32_t count, M* mp)
      : count_(count), pos_(cheaprandn(mp, count)) {
    do {
      stride_ = 1 + cheaprandn(mp, count);
    } while (gcd(stride_, count) != 1);
  }
  bool done() const { return i_ == count_; }
  void next() {
    i_++;
    pos_ = (pos_ + stride_) % count_;
  }
  uint32_t position() const { return pos_; }

 private:
  static uint32_t gcd(uint32_t a, uint32_t b) {
    while (b != 0) {
      uint32_t t = a % b;
      a = b;
      b = t;
    }
    return a;
  }
  uint32_t count_;
  uint32_t pos_;
  uint32_t stride_;
  uint32_t i_ = 0;
};

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_RAND_H_
