// Tracking: how long a goroutine was runnable before it ran, and how long it
// waited for a lock, measured for a sample of all transitions.
//
// Go measures every eighth time that a goroutine stops running, until it runs
// again. So does this file, but it counts on the P, when a goroutine is
// executed (execute), and not in the goroutine. So a goroutine that is not
// tracked pays one decrement of a word that its processor has in its cache.
// Whether it is tracked is a bit of its status word, which every transition
// compares anyway (casgstatus). A cell stays tracked when its goroutine ends.
// So of the goroutines that run once and end, some are measured from their
// start on.
//
// A clock costs as much as a switch: 20 ns. Three of them for every eighth
// switch would make each switch a third slower. So a P begins a measurement
// about once in kTrackingGap, at most. If it executes goroutines more often
// than that, the measurement stands for all executions since the last one
// began. It is recorded once for each eight of them. The histogram then has as
// many entries as Go's, and about the same shape. The distance to the next
// measurement is random, so that goroutines that run in turn are all measured.
//
// Waits for locks are sampled apart, one in eight at random, because they are
// rare and long. With the weight of a fast P, one such wait would count a
// thousandfold. A goroutine may be tracked for its wait, for the time that it
// is runnable, or for both.
//
// A tracked goroutine belongs to the owner of each transition, as all of its
// cell does, so tracking needs no protocol of its own. There is one exception:
// a thread that dumps a parked goroutine, and so holds its scan bit, may write
// waitsince, and track a goroutine that is not tracked, so that the end of the
// wait resets waitsince. So a waker that has waited for the scan bit looks
// again whether the goroutine is tracked. And it writes waitsince only after
// the status has left kGwaiting, and before it queues the goroutine.
//
// Rejected: a count in each goroutine. It is over for one execution in eight,
// and if there are many goroutines, the processor cannot predict for which. A
// wrong prediction costs more than its branch: until then the processor has run
// ahead, and fetched the cells of the goroutines that run next. A yield among
// 1000 goroutines took 2.3 ns (12 %) longer, and as long as without tracking if
// the count was 255.
#ifndef RUNTIME_SCHED_TRACKING_H_
#define RUNTIME_SCHED_TRACKING_H_

#include <algorithm>
#include <cstdint>

#include "runtime/sched/g.h"

namespace gump::rt {

struct M;
struct P;

// One in so many times is counted: Go's gTrackingPeriod.
inline constexpr uint32_t kTrackingPeriod = 8;
// The least time between the beginnings of two measurements of a P, ns, on
// average.
inline constexpr int64_t kTrackingGap = 32'000;
// How often a measurement is recorded, at most.
inline constexpr uint32_t kTrackingWeightMax = 255;

// TrackingPace spaces the measurements of a P. Only the owner of the P uses it.
class TrackingPace {
 public:
  // begin begins a measurement at `now` (nanotime), when as many executions are
  // over as the last call of next said. Before the first call of next these are
  // kTrackingPeriod. Returns how often the measurement is to be recorded, which
  // is at least 1 and at most kTrackingWeightMax.
  //
  // The pace is adapted here, and not when a measurement ends. Otherwise many
  // would begin before the first one ends, if goroutines wait for long.
  [[nodiscard]] uint32_t begin(int64_t now) {
    const int64_t gap = now > last_ ? now - last_ : 1;
    last_ = now;
    least_ = static_cast<uint32_t>(std::clamp<int64_t>(
        int64_t{distance_} * kTrackingGap / gap, kTrackingPeriod, kLeastMax));
    const uint32_t executions = distance_ + rest_;
    rest_ = executions % kTrackingPeriod;
    return executions / kTrackingPeriod;
  }
  // next returns the number of executions until the next measurement. `random`
  // is a random number.
  [[nodiscard]] uint32_t next(uint32_t random) {
    distance_ = least_ + random % (least_ / 2);
    return distance_;
  }

 private:
  // distance_ is below 3/2 of least_, and rest_ is below kTrackingPeriod.
  static constexpr uint32_t kLeastMax =
      kTrackingWeightMax * kTrackingPeriod * 2 / 3;

  uint32_t least_ = kTrackingPeriod;     // executions between two measurements
  uint32_t distance_ = kTrackingPeriod;  // those until the next one
  uint32_t rest_ = 0;  // executions that no measurement has stood for
  int64_t last_ = 0;   // when the last measurement began
};

// trackBegin is called by execute when pp->untilTracked is over. It sets
// pp->untilTracked. A measurement begins that counts as often as it returns.
// trackNext, called when gp is kGrunning, makes it that of gp.
// On: any.  P: needed.  Locks: none.  Parks: no.
[[nodiscard]] uint8_t trackBegin(M* mp, P* pp);
void trackNext(G* gp, uint8_t weight);
// trackLockWait begins to measure the wait of gp, which is about to park.
// sampleLockWait does so for one in eight, if gp waits for a lock and is no
// foreign thread. `random` is a random number.
// On: gp itself.  P: either.  Locks: none.  Parks: no.
void trackLockWait(G* gp);
inline void sampleLockWait(G* gp, WaitReason reason, uint32_t random) {
  if (random % kTrackingPeriod == 0 && isMutexWait(reason) && !gp->foreign) {
    trackLockWait(gp);
  }
}
// trackAfter is called by casgstatus after a transition of a tracked gp.
// On: any.  P: either.  Locks: none.  Parks: no.
void trackAfter(G* gp, uint32_t oldval, uint32_t newval);
// staysTracked tells whether a tracked goroutine is still tracked after a
// transition.
inline bool staysTracked(uint32_t oldval, uint32_t newval) {
  return !(oldval == kGrunnable && newval == kGrunning);
}
// MutexWait measures a wait of a thread that sleeps, if it waits for a Mutex or
// an RWMutex. Such waits are all measured, because to sleep costs far more than
// a clock.
// On: any.  P: either.  Locks: none.  Parks: no.
class MutexWait {
 public:
  explicit MutexWait(WaitReason reason);
  void end() const;

 private:
  int64_t since_;  // nanotime, or 0 if the wait is for another reason
};

// noteWaitSince records in gp, which is parked, that a dump sees it waiting
// now, if no dump has before. The caller holds gp's scan bit.
// On: any.  P: either.  Locks: none.  Parks: no.
void noteWaitSince(G* gp, int64_t now);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_TRACKING_H_
