// The window for gump/time.h: timers, and the monotonic clock. Durations are in
// ns. 0 or less means now, and INT64_MAX means for ever. linkname.h gives the
// rules.
#ifndef GUMP_INTERNAL_LINKNAME_TIME_H_
#define GUMP_INTERNAL_LINKNAME_TIME_H_

#include <cstdint>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

struct ElemType;
struct FuncTimer;
struct FuncType;
struct Hchan;

// monotonicNanos returns the monotonic clock, which no bubble changes.
int64_t monotonicNanos() noexcept;
// timeSleep parks for ns, on the clock of the caller's bubble if it is in one.
void timeSleep(int64_t ns) noexcept;

// newTimerChan makes a channel of time with one reference. Its timer does not
// run yet. Returns nullptr if there is no memory. Elements are trivially
// copyable, and of at most 16 bytes. encode makes an element from a time in ns
// since the Unix epoch.
[[nodiscard]] Hchan* newTimerChan(const ElemType* t,
                                  void (*encode)(void* elem,
                                                 int64_t unixNanos)) noexcept;
// timerChanReset sets the timer to send the time after ns, and then every
// period, if period is above 0. timerChanStop stops it. Both return true if the
// timer was running. The value that it would have sent can then not be received
// any more.
bool timerChanReset(Hchan* c, int64_t ns, int64_t period) noexcept;
bool timerChanStop(Hchan* c) noexcept;

// newFuncTimer makes a timer that starts a goroutine each time it fires. It
// does not run yet. The closure of those goroutines is a pointer, `closure`.
// Returns nullptr if there is no memory.
//
// funcTimerStart sets the timer to fire after ns. It is called once, and before
// the functions below. funcTimerReset does the same at any later time.
// funcTimerStop stops the timer. The last two return true if the timer was
// running. The goroutine that it would have started is then not started.
//
// funcTimerFree frees a timer. Requires: the timer has been stopped or has
// fired.
[[nodiscard]] FuncTimer* newFuncTimer(const FuncType* ft, void* closure,
                                      uintptr_t pc) noexcept;
void funcTimerStart(FuncTimer* t, int64_t ns) noexcept;
bool funcTimerReset(FuncTimer* t, int64_t ns) noexcept;
bool funcTimerStop(FuncTimer* t) noexcept;
void funcTimerFree(FuncTimer* t) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_TIME_H_
