#include "runtime/diag/trace_clock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "runtime/sys/descriptor.h"

namespace gump::rt {

namespace {

// In nanoseconds. Each of the two readings is off by some 10 ns, so the rate is
// off by about one part in ten million.
constexpr int64_t kShortestMeasurement = 100'000'000;

bool trusted = false;  // guarded by traceSema

// kernelTrusts returns true if the kernel's own clock reads the counter. It
// does so only if the counters of all processors agree and never stop.
bool kernelTrusts() {
#if defined(__x86_64__)
  const int fd = newDescriptor([] {
    return ::open(
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        O_RDONLY | O_CLOEXEC);
  });
  if (fd < 0) return false;
  char name[8];
  const ssize_t n = ::read(fd, name, sizeof(name));
  ::close(fd);
  return n == 4 && memcmp(name, "tsc\n", 4) == 0;
#else
  return true;  // the architecture promises it
#endif
}

}  // namespace

void traceProbeCounter() { trusted = kernelTrusts(); }

TraceClock TraceClock::next() const {
  TraceClock c;
  if (!trusted) return c;
  // Of five readings, take the one that was interrupted least. The counter is
  // read before and after nanotime.
  uint64_t narrowest = UINT64_MAX;
  for (int i = 0; i < 5; i++) {
    const uint64_t before = ticks();
    const int64_t now = nanotime();
    const uint64_t width = ticks() - before;
    if (width >= narrowest) continue;
    narrowest = width;
    c.ticks_ = before + width / 2;
    c.base_ = now;
  }
  if (ticks_ == 0) return c;
  const int64_t passed = c.base_ - base_;
  if (passed < kShortestMeasurement) return *this;
  const uint64_t counted = c.ticks_ - ticks_;
  // The counter has gone back, so it gives no rate.
  if (static_cast<int64_t>(counted) <= 0) return c;
  const auto mult = static_cast<uint64_t>(
      (static_cast<unsigned __int128>(passed) << 32) / counted);
  // The machine was suspended: the counter has gone on, and nanotime has not.
  const uint64_t change = mult > mult_ ? mult - mult_ : mult_ - mult;
  if (mult_ != 0 && change > mult_ / 1000) return c;
  c.mult_ = mult;
  return c;
}

}  // namespace gump::rt
