// synctest tests code that waits, with a clock that jumps over the waiting
// times.
//
//   TEST(Client, GivesUpAfterAnHour) {
//     gump::Run([] {
//       gump::synctest::Run([] {
//         Client client;
//         auto gave_up = gump::make_chan<void>();
//         client.Call([gave_up] { gave_up.Close(); });
//         gump::synctest::Sleep(absl::Minutes(59));  // takes microseconds
//         EXPECT_EQ(gave_up.TryRecv().kind,
//                   gump::RecvResult<void>::kEmpty);
//         gump::synctest::Sleep(absl::Minutes(1));
//         EXPECT_EQ(gave_up.TryRecv().kind,
//                   gump::RecvResult<void>::kClosed);
//       });
//     });
//   }
//
// synctest::Run runs a function in a bubble. The goroutine of that function,
// the goroutines that it starts, and those that they start in turn have a clock
// of their own. The clock begins at midnight UTC, 1 January 2000, and stands
// still while one of them can run. Once all of them are durably blocked, the
// clock jumps to the time at which the next of them wakes or the next timer
// fires.
//
// Sleep, Timer, Ticker, After, Tick and AfterFunc use that clock. So do the
// times that channels of time deliver, the deadlines of contexts, and
// rate::Limiter. (absl::Now does not. Code under test can use synctest::Now,
// which is absl::Now elsewhere.) SetDeadline of a connection, listener or file
// takes a time of that clock, too. But a wait for the network is no matter of
// the bubble, so the time that is left until then passes outside.
//
// A goroutine is durably blocked when nothing outside the bubble can wake it:
//   * in a send, a receive or a select, if all its channels were made in the
//     bubble or are nil, or if it has none;
//   * in a wait for a Cond or an Event (the signaller should be inside the
//     bubble), also with a time limit;
//   * in WaitGroup::Wait, if the counter was raised from zero in the bubble;
//   * in time::Sleep and in synctest::Wait.
// A goroutine is not durably blocked in any other wait. Examples are waits for
// the network, for another process, in blocking(), for a channel from outside,
// and for a Mutex or RWMutex, which goroutines outside may hold. The clock then
// stands still until that wait is over. The time of a TryLockFor passes
// outside.
//
// Requires: channels, timers and tickers that are made in a bubble are used
// only inside it. Otherwise it is a fatal error, with Go's text: "send on
// synctest channel from outside bubble", "receive on ...", "close of ...",
// "select on ...", "stop of synctest timer from outside bubble", "reset of
// ...". Handles may be kept and dropped anywhere. A goroutine of a bubble may
// wait for a channel from outside, but is then not durably blocked.
//
// Timers that are due at the same moment fire in no particular order. A timer
// that is set to fire at once does so before the call that sets it returns,
// unless another goroutine waits for its earlier setting.
//
// Unlike in Go, a timer or ticker does not make the clock advance if no
// goroutine waits for its channel. See docs/divergences.md.
//
// Memory ordering: the actions of the other goroutines of a bubble, before they
// block durably or end, happen before the return of Wait.
//
// Source: package testing/synctest of Go 1.27.
#ifndef GUMP_SYNCTEST_H_
#define GUMP_SYNCTEST_H_

#include <utility>

#include "absl/time/time.h"
#include "gump/go.h"
#include "gump/internal/bubble_scope.h"
#include "gump/internal/closure.h"
#include "gump/internal/duration_arg.h"

#pragma GCC visibility push(default)

namespace gump::synctest {

// Run calls f in a new goroutine, in a new bubble. Parks until all goroutines
// of the bubble have ended. f is decay-copied, and destroyed in the bubble.
// Then, if a function given to AfterFunc in the bubble has not been called, it
// is destroyed in the bubble, too. Run may be called from a goroutine or a
// plain thread.
//
// Panics, in the caller:
//   * "deadlock: all goroutines in bubble are blocked", if all are durably
//     blocked and no timer will ever fire;
//   * "deadlock: main bubble goroutine has exited but blocked goroutines
//     remain", if f has returned and all the others are durably blocked. The
//     clock does not move after f has returned, so f must wait for goroutines
//     that sleep;
//   * "synctest.Run called from within a synctest bubble", because bubbles do
//     not nest.
// It also panics as go() does, and throws std::bad_alloc. After a deadlock the
// blocked goroutines stay where they are, for good, and goroutine dumps show
// them.
//
// An exception that leaves f ends the process, as for every goroutine.
template <class F>
__attribute__((always_inline)) inline void Run(F&& f) {
  internal::CheckCallable(f);
  internal::BubbleScope bubble;
  go(std::forward<F>(f));
  bubble.Run();
}

// Wait parks until all other goroutines of the caller's bubble are durably
// blocked or have ended. By then all that can happen at this moment has
// happened.
//
// Panics "goroutine is not in a bubble". Panics "wait already in progress" if
// another goroutine of the bubble is in Wait.
void Wait();

// Sleep is time::Sleep(d) and then Wait(). A goroutine that sleeps as long as
// the test may wake before or after it. After Sleep, that goroutine has done
// what it does at that moment.
//
//   cache.Put(key, value, absl::Minutes(5));
//   gump::synctest::Sleep(absl::Minutes(5));
//   EXPECT_FALSE(cache.Has(key));   // the cache has dropped it by now
//
// Parks. If d <= 0, it is Wait(). Panics as Wait does, and outside of a bubble
// before it sleeps.
void Sleep(internal::DurationArg d);

// Now returns the time of the clock of the caller's bubble, or absl::Now()
// outside of bubbles. Does not park.
absl::Time Now();

}  // namespace gump::synctest

#pragma GCC visibility pop

#endif  // GUMP_SYNCTEST_H_
