// Tests of code that waits: a clock that does not make the test wait.
//
//   TEST(Client, GivesUpAfterAnHour) {
//     gump::Run([] {
//       gump::synctest::Run([] {
//         Client client;
//         auto gave_up = gump::make_chan<void>();
//         client.Call([gave_up] { gave_up.Close(); });
//         gump::time::Sleep(absl::Minutes(59));   // takes microseconds
//         gump::synctest::Wait();                 // the client has settled
//         EXPECT_EQ(gave_up.TryRecv().kind,
//                   gump::RecvResult<void>::kEmpty);
//         gump::time::Sleep(absl::Minutes(1));
//         gump::synctest::Wait();
//         EXPECT_EQ(gave_up.TryRecv().kind,
//                   gump::RecvResult<void>::kClosed);
//       });
//     });
//   }
//
// synctest::Run runs a function in a bubble: that goroutine, and those that it
// starts, and that those start, have a clock of their own. It begins at
// midnight UTC, 1 January 2000, and stands still while one of them can run.
// Once all of them are durably blocked, it jumps to where the next of them
// wakes, or the next timer fires. Sleep, Timer, Ticker, After, Tick and
// AfterFunc go by that clock, and so do the times that channels of time
// deliver, the deadlines of contexts, and rate::Limiter. (absl::Now does not:
// code to be tested can use synctest::Now, which is absl::Now elsewhere.)
//
// A goroutine is durably blocked when nobody outside the bubble can wake it:
//   * in a send, a receive, or a select, if all the channels were made in the
//     bubble, or are nil, or there are none;
//   * in Cond::Wait: who signals should be inside;
//   * in WaitGroup::Wait, if the counter was raised from zero in the bubble;
//   * in time::Sleep, and in synctest::Wait.
// Not when it waits for a Mutex or RWMutex, which others may hold, for the
// network or another process, in blocking(), or for a channel from outside:
// time then stands still until it is done.
//
// What is made in a bubble, channels, timers, tickers, stays there. To use it
// from outside is a fatal error, in Go's words: "send on synctest channel from
// outside bubble", "receive on ...", "close of ...", "select on ...", "stop of
// synctest timer from outside bubble", "reset of ...". Handles may be kept and
// dropped anywhere. What a goroutine of a bubble waits for may come from
// outside, but then it is not durably blocked.
//
// Timers that are due at the same moment fire in no particular order.
//
// Unlike Go: a timer or ticker on whose channel nobody waits does not make the
// clock advance. See docs/divergences.md.
//
// Source: package testing/synctest of Go 1.25.
#ifndef GUMP_SYNCTEST_H_
#define GUMP_SYNCTEST_H_

#include <utility>

#include "absl/time/time.h"
#include "gump/go.h"

namespace gump {

namespace internal {
// BubbleScope makes the calling goroutine the root of a bubble.
class BubbleScope {
 public:
  BubbleScope();
  ~BubbleScope();
  BubbleScope(const BubbleScope&) = delete;
  BubbleScope& operator=(const BubbleScope&) = delete;
  // Run waits for the goroutines.
  void Run();

 private:
  bool open_ = true;
};
}  // namespace internal

namespace synctest {

// Run calls f in a new goroutine, in a new bubble, and returns when all
// goroutines of the bubble have ended. f is decay-copied, and destroyed in the
// bubble, and so are the functions given to AfterFunc there whose time has not
// come by then. Parks. May be called from a goroutine or a plain thread.
//
// Panics, in the caller:
//   "deadlock: all goroutines in bubble are blocked"
//     durably, and no timer will ever fire;
//   "deadlock: main bubble goroutine has exited but blocked goroutines remain"
//     the time of a bubble ends with f: sleepers must be waited for;
//   "synctest.Run called from within a synctest bubble"
//     bubbles do not nest;
// or as go() does. After a deadlock the goroutines in question are left where
// they are, for good; goroutine dumps show them.
//
// An exception that leaves f ends the process, as for every goroutine.
template <class F>
__attribute__((always_inline)) inline void Run(F&& f) {
  internal::CheckCallable(f);
  internal::BubbleScope bubble;
  go(std::forward<F>(f));
  bubble.Run();
}

// Wait returns when all other goroutines of the caller's bubble are durably
// blocked, or have ended: what can happen at this moment has happened. Parks.
// What they did before happens before its return.
//
// Panics "goroutine is not in a bubble"; "wait already in progress" if another
// goroutine of the bubble is waiting.
void Wait();

// Now is the time on the clock of the caller's bubble; outside of bubbles it is
// absl::Now(). Does not park.
absl::Time Now();

}  // namespace synctest
}  // namespace gump

#endif  // GUMP_SYNCTEST_H_
