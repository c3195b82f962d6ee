// The clock of the execution trace. It shows what nanotime shows. Where the
// kernel's own clock reads the processor's counter, this one does so too: a
// trace reads the clock at each switch, and nanotime takes twice as long.
#ifndef RUNTIME_DIAG_TRACE_CLOCK_H_
#define RUNTIME_DIAG_TRACE_CLOCK_H_

#include <cstdint>

#include "runtime/sys/base.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

// TraceClock turns ticks of the counter into nanoseconds for one generation.
// Each generation has a new one, so that it does not drift away from nanotime.
class TraceClock {
 public:
  // On: any.  P: either.  Locks: none.  Parks: no.
  int64_t now() const {
    if (mult_ == 0) return nanotime();
    // The counter may be read just before the clock begins: the processor reads
    // it early, or its counter is a little behind.
    const auto passed = static_cast<int64_t>(ticks() - ticks_);
    if (GUMP_UNLIKELY(passed < 0)) return base_;
    return base_ + static_cast<int64_t>(
                       (static_cast<unsigned __int128>(passed) * mult_) >> 32);
  }

  // next returns the clock of the generation that begins now. This clock is
  // that of the generation before. The new clock has the rate at which the
  // counter has gone since this clock began. If that time was too short to
  // measure the rate, next returns this clock.
  // On: any.  P: either.  Locks: traceSema is held.  Parks: no.
  TraceClock next() const;

 private:
  static uint64_t ticks();

  int64_t base_ = 0;    // nanotime
  uint64_t ticks_ = 0;  // at base_; 0: not read
  uint64_t mult_ = 0;   // nanoseconds a tick, times 2^32; 0: use nanotime
};

inline uint64_t TraceClock::ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t n;
  asm volatile("mrs %0, cntvct_el0" : "=r"(n));
  return n;
#endif
}

// traceProbeCounter finds out whether the kernel trusts the counter now.
// On: user, or a foreign thread.  P: either.  Locks: traceSema is held.
// Parks: as newDescriptor.
void traceProbeCounter();

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACE_CLOCK_H_
