// The window for gump/synctest.h: bubbles. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_SYNCTEST_H_
#define GUMP_INTERNAL_LINKNAME_SYNCTEST_H_

#include <cstdint>

#include "gump/internal/atomic.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// nbubbles is the number of bubbles. If it is 0, the caller is in no bubble. A
// caller in a bubble reads at least 1.
extern Atomic<uint32_t> nbubbles;
// currentBubble returns the id of the caller's bubble, or 0 if it is in none.
uint32_t currentBubble() noexcept;
// bubbleNanos returns the clock of the caller's bubble, in ns since the Unix
// epoch. The caller is in a bubble.
int64_t bubbleNanos() noexcept;

// BubbleResult is the result of bubbleEnter and bubbleWait.
enum class BubbleResult : uint8_t {
  kOk,
  kNested,      // Enter: the caller is in one already
  kNoMemory,    // Enter
  kOutside,     // Wait: the caller is in none
  kInProgress,  // Wait: another goroutine waits
};
// BubbleEnd is the result of bubbleRun. kOk: all goroutines have ended.
// kDeadlock: all are durably blocked, and no timer will fire. kLeftovers: the
// main goroutine has ended, and the rest are durably blocked.
enum class BubbleEnd : uint8_t { kOk, kDeadlock, kLeftovers };

// bubbleEnter makes a bubble with the caller as its root. The first goroutine
// that the caller starts is the bubble's main. bubbleRun then parks until all
// goroutines of the bubble have ended, or cannot go on. If the caller could
// start no goroutine, it calls bubbleAbandon in place of bubbleRun. After
// either, the caller is in no bubble.
[[nodiscard]] BubbleResult bubbleEnter() noexcept;
[[nodiscard]] BubbleEnd bubbleRun() noexcept;
void bubbleAbandon() noexcept;
// bubbleWait parks until all other goroutines of the caller's bubble are
// durably blocked or have ended.
[[nodiscard]] BubbleResult bubbleWait() noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_SYNCTEST_H_
