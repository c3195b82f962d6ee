// Select: the working memory of selectgo, and its steps, for select.cc and its
// tests.
//
// A select goes through up to four passes.
// 0. Peek at the cases, without locks. Choose at random one that looks ready,
//    lock its channel alone and try it. Most selects that can proceed end here,
//    with one lock.
// 1. Lock all channels, in address order, and look again. One case that is
//    ready proceeds. Only this pass may conclude that no case is ready, because
//    it sees all channels at one moment. That ends a select with a default.
// 2. Enqueue a sudog per case, while all channels are locked, and park. The
//    locks are released once the G is kGwaiting.
// 3. Awake: a waker has won selectDone for one sudog and done that case. Take
//    the other sudogs out of their queues.
//
// (Go has no pass 0, and its pass 3 locks all channels together. Here pass 3
// locks them one after another. It does not lock the channel of the case that
// was done, unless another case names that channel too. This is sound for three
// reasons.
// - selectDone stays 1 until the last sudog is out, so no waker can win one.
// - A waker touches them only under their channel's lock.
// - Once we have taken each of these locks, no waker is still between dequeuing
//   a sudog of ours and passing it over.)
//
// Select is fair: both random choices, in pass 0 and of the order, are uniform.
// So cases that are ready at the same time are equally likely. Waiters are
// FIFO: a select's sudog takes its place in the queue like any other.
#ifndef RUNTIME_WAIT_SELECT_H_
#define RUNTIME_WAIT_SELECT_H_

#include <cstddef>
#include <cstdint>

#include "runtime/wait/chan.h"

namespace gump::rt {

// A select of up to kStackSelect cases keeps everything on its stack. One of up
// to kSmallSelect cases uses a smaller frame.
inline constexpr size_t kSmallSelect = 4;
inline constexpr size_t kStackSelect = 16;

// Select is a select in progress. It lies on the goroutine's stack. The arrays
// belong to the caller.
struct Select {
  const Scase* cases = nullptr;
  size_t n = 0;                   // cases, nil channels included
  uint32_t norder = 0;            // cases whose channel is not nil
  uint16_t* pollorder = nullptr;  // indices of those, shuffled
  uint16_t* lockorder = nullptr;  // the same, by address of the channel; those
                                  // of one channel in poll order
  Sudog* sudogs = nullptr;  // raw storage; sudogs[i] belongs to lockorder[i]
  void* discard = nullptr;  // for a received value that the caller does not
                            // want and that must be destroyed
  bool hasTimer = false;    // waits on a channel of time
};

// pollOrder fills pollorder with the cases that can ever be ready, in uniformly
// random order.
// On: any.  P: either, mp is the caller's.  Locks: none.  Parks: no.
void pollOrder(Select* s, M* mp);
// lockOrder fills lockorder with the same cases, in O(n log n).
// On: any.  P: either.  Locks: none.  Parks: no.
void lockOrder(Select* s);
// sellock locks every channel of the select once. selunlock unlocks them.
// On: any.  P: either.  Parks: no.
void sellock(const Select* s);
void selunlock(const Select* s);

}  // namespace gump::rt

#endif  // RUNTIME_WAIT_SELECT_H_
