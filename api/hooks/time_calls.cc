// Hooked sleeps. A signal does not end them, as if it had no handler.
#include <algorithm>

#include "api/hooks/wait.h"
#include "gump/internal/linkname_time.h"

namespace gump::hooks {
namespace {

bool IsValid(const timespec* t) {
  return t != nullptr && t->tv_sec >= 0 && t->tv_nsec >= 0 &&
         t->tv_nsec < 1'000'000'000;
}

// Park parks for ns, if the goroutine may. Returns false if it has to stay.
bool Park(int64_t ns) {
  if (!Clean()) return false;
  const ErrnoGuard guard;
  rt::timeSleep(ns);
  (void)guard.Return(0);
  return true;
}

// KeepsThread returns true for a sleep that does not even yield. Abseil's Mutex
// sleeps for 10 us when it meets another thread, in the middle of an operation
// whose state belongs to the thread. If the goroutine parked there, the next
// one of the home that used such a Mutex would end the process. A loop that
// polls by such sleeps would keep the home, so after kMany in a row they park.
bool KeepsThread(int64_t ns) {
  constexpr int64_t kShort = 20'000;  // ns
  constexpr int kMany = 1000;
  static thread_local int inARow = 0;
  if (ns > kShort) {
    inARow = 0;
    return false;
  }
  if (inARow == kMany) return false;
  inARow++;
  return true;
}

int NanoSleep(const timespec* d, timespec* left) {
  const auto call = [=] { return Libc().nanosleep(d, left); };
  if (IsValid(d) && KeepsThread(Nanoseconds(*d))) return call();
  const Way way = WayHere();
  if (way == Way::kDirect || !IsValid(d)) return call();
  if (way == Way::kStay || !Park(Nanoseconds(*d))) return Stay(call);
  return 0;
}

// ParkUntil parks until the clock shows t. A change of the clock is
// noticed within ten seconds.
bool ParkUntil(clockid_t clock, const timespec& t) {
  constexpr int64_t kMost = 10'000'000'000;
  for (;;) {
    timespec now{};
    if (clock_gettime(clock, &now) != 0) return false;
    const int64_t seconds = t.tv_sec - now.tv_sec;
    const int64_t rest = Nanoseconds(timespec{seconds, 0});
    const int64_t ns = rest == kNever ? kMost : rest + t.tv_nsec - now.tv_nsec;
    if (ns <= 0) return true;
    if (!Park(std::min(ns, kMost))) return false;
  }
}

// It returns an error, and leaves errno alone.
int ClockNanoSleep(clockid_t clock, int flags, const timespec* t,
                   timespec* left) {
  const auto call = [=] {
    return Libc().clock_nanosleep(clock, flags, t, left);
  };
  if (flags == 0 && IsValid(t) && KeepsThread(Nanoseconds(*t))) return call();
  const Way way = WayHere();
  const bool known = clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC;
  if (way == Way::kDirect || !IsValid(t)) return call();
  if (way == Way::kStay || !known || (flags & ~TIMER_ABSTIME) != 0) {
    return Stay(call);
  }
  const bool parked = (flags & TIMER_ABSTIME) != 0 ? ParkUntil(clock, *t)
                                                   : Park(Nanoseconds(*t));
  return parked ? 0 : Stay(call);
}

int USleep(useconds_t us) {
  const auto call = [=] { return Libc().usleep(us); };
  if (KeepsThread(int64_t{us} * 1000)) return call();
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || !Park(int64_t{us} * 1000)) return Stay(call);
  return 0;
}

unsigned Sleep(unsigned s) {
  const Way way = WayHere();
  const auto call = [=] { return Libc().sleep(s); };
  if (way == Way::kDirect) return call();
  if (way == Way::kStay || !Park(int64_t{s} * 1'000'000'000)) {
    return Stay(call);
  }
  return 0;
}

}  // namespace

void AddTimeCalls(Table* t) {
  t->nanosleep = NanoSleep;
  t->clock_nanosleep = ClockNanoSleep;
  t->usleep = USleep;
  t->sleep = Sleep;
}

}  // namespace gump::hooks
