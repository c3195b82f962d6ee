// PollDesc: the poller's record of an open descriptor.
//
// A PollDesc is never freed, only used again. An event that comes late finds
// another descriptor's PollDesc at worst, and its tag shows that it is late.
//
// rg and wg hold the state of each direction and its waiter:
//
//             ready: an event             consumed by
//      ┌──────────────────────▶ pdReady ──────────────┐
//      │                           ▲                  │
//    pdNil ◀──────────────────────────────────────────┘
//      │  ▲                        │ ready, before it sleeps
//      │  └─ closed, deadline ─┐   │
//      │ about to sleep        │   │
//      └─────────────────▶ pdWait ─┴──────▶ a G*: asleep
//                              ▲              │ ready: pdReady. Closed or
//                              └──────────────┘ deadline: pdNil. The thread
//                                               that moves it from there
//                                               readies the G.
//
//   Only the one goroutine that the FD's lock admits in this direction moves
//   pdNil → pdWait → G*. Any thread may make the other moves. So an edge that
//   is seen before the wait is remembered.
//
// No wake-up is lost to a deadline or a close. Both store info and then take
// rg; the waiter stores pdWait to rg and then loads info. All four are seq_cst,
// so one side sees the other. Either the waiter does not sleep, or the deadline
// or close finds its G*, or finds pdWait, which makes the waiter's last step
// fail.
//
// Invariants:
//  (N1) info holds a copy of the state that lock guards: closing, and which
//       deadlines have passed. It also holds eventErr and gone, which an event
//       sets. It is read without the lock. The bits above them are the tag. An
//       event that comes late cannot set the eventErr of the next owner,
//       because its CAS fails.
//  (N2) If there is a deadline that has not passed, the timer is armed for the
//       earlier of the two deadlines, or before. It may be armed for nothing,
//       even after the close, because its function looks at the clock. So a
//       move to a later deadline, as servers make with each request, touches no
//       heap. The timer's f and arg are set once, when the PollDesc is made,
//       because the timer of an old owner's deadline may read them at any time.
//  (N3) The tag changes when the PollDesc is given back, before it has its next
//       owner.
#ifndef NETPOLL_POLLDESC_H_
#define NETPOLL_POLLDESC_H_

#include <cstdint>

#include "runtime/sched/netpoll.h"
#include "runtime/sched/time.h"
#include "runtime/sys/lock_futex.h"

namespace gump::rt {

inline constexpr uintptr_t pdNil = 0;
inline constexpr uintptr_t pdReady = 1;
inline constexpr uintptr_t pdWait = 2;

enum PollInfo : uint32_t {
  kPollClosing = 1,
  kPollEventErr = 2,  // the last event was an error and nothing else
  kPollReadExpired = 4,
  kPollWriteExpired = 8,
  kPollGone = 16,  // no event will come any more
};
inline constexpr int kPollTagShift = 5;

enum class PollMode : uint8_t { kRead = 1, kWrite = 2, kBoth = 3 };

// PollError is the reason why an operation cannot wait. These values take the
// place of an errno, so they are negative.
enum PollError : int {
  kPollOk = 0,
  kErrClosing = -1,      // the descriptor is being closed
  kErrTimeout = -2,      // the deadline has passed
  kErrNotPollable = -3,  // the kernel reports only an error, or nothing
};

struct RingCall;

// PollHandler takes the events of a descriptor on which no goroutine waits. It
// moves the goroutines that these events wake to r. It may be called without an
// event, and by several threads at a time.
// On: any, m.locks > 0.  P: either.  Locks: takes kPollNumber.  Parks: no.
using PollHandler = void (*)(NetpollResult* r);

// PollDesc is aligned, because pointers to it lend their low bits to the tag.
struct alignas(kCacheLine) PollDesc {
  // Links pd into the free list, under that list's lock. While pd is open,
  // links it into the ring's list of watches to re-arm.
  PollDesc* link = nullptr;
  int fd = -1;            // constant while in use; -1: bare
  Atomic<uint32_t> tag;   // (N3)
  Atomic<uint32_t> info;  // (N1)
  Atomic<uintptr_t> rg;
  Atomic<uintptr_t> wg;
  // Takes the events, if it is not nullptr. Constant while in use.
  Atomic<PollHandler> handler;
  // The peer has sent its last byte or urgent data, or an error has been seen.
  // There may be no further edge, so a reader must ask the kernel. Events set
  // it, and it stays set while the descriptor is open.
  Atomic<bool> hungUp;
  // Guards the members marked with it, so closing and changes of deadlines come
  // one after the other. Forbidden while holding it: everything but timers and
  // the scheduler.
  Mutex lock{LockRank::kPollDesc};
  bool closing ABSL_GUARDED_BY(lock) = false;
  // Deadlines: nanotime; 0: none; -1: passed.
  int64_t rd ABSL_GUARDED_BY(lock) = 0;
  int64_t wd ABSL_GUARDED_BY(lock) = 0;
  int64_t armed ABSL_GUARDED_BY(lock) = 0;  // the timer's `when`; 0: stopped
  Timer timer;                              // (N2)
  // Used by the ring (ring.cc), if it is the back end, and only by its thread.
  bool watched = false;           // the kernel has a watch request for it
  bool changes = false;           // the request has delivered an event
  bool ended = false;             // it needs a new request
  RingCall* watcher = nullptr;    // the call that waits for the watch to begin
  RingCall* unwatcher = nullptr;  // the call that waits for the watch to end
};

// Unless it says otherwise:
// On: any.  P: either.  Locks: takes kPollDesc.  Parks: no.

// pollOpen registers a descriptor, which must be non-blocking, until pollClose.
// Returns nullptr and sets *err if the kernel refuses it, as it refuses regular
// files. If there is a handler, it takes the events, and no goroutine may wait
// on the PollDesc.
// On: user, m.locks == 0, or a foreign thread.  Locks: takes the free list's.
// Parks: yes.
[[nodiscard]] PollDesc* pollOpen(int fd, int* err,
                                 PollHandler handler = nullptr);
// pollClose gives pd back. The caller has called pollUnblock, and no goroutine
// waits.
// On: user, m.locks == 0, or a foreign thread.  Locks: takes the free list's.
// Parks: yes.
void pollClose(PollDesc* pd);
// pollOpenBare returns a PollDesc that belongs to no descriptor, so no back end
// reports events for it. One goroutine waits on it for reading, until another
// thread calls netpollready or the deadline has passed. pollCloseBare gives it
// back. No thread calls netpollready for it any more.
// On: user, m.locks == 0, or a foreign thread.  Locks: takes the free list's.
// Parks: no; pollOpenBare may, when the back end starts.
[[nodiscard]] PollDesc* pollOpenBare(int* err);
void pollCloseBare(PollDesc* pd);
// pollUnblock makes every present and future waiter get kErrClosing.
void pollUnblock(PollDesc* pd);
// pollReset clears readiness, before a system call asks the kernel itself.
// Locks: none.
[[nodiscard]] int pollReset(PollDesc* pd, PollMode mode);
// pollWait waits until the descriptor is ready; the caller is the only one in
// this direction.
// On: user, m.locks == 0, or a foreign thread.  Locks: none.  Parks: yes.
[[nodiscard]] int pollWait(PollDesc* pd, PollMode mode);
// pollSetDeadline sets deadlines: nanotime; 0: none; not after now: passed.
void pollSetDeadline(PollDesc* pd, int64_t when, PollMode mode);

// netpollready marks pd as ready and moves the waiters that this wakes to r. If
// pd has a handler, it calls that instead.
// Locks: none, or the handler's.
void netpollready(NetpollResult* r, PollDesc* pd, bool read, bool write);
// netpolldeliver readies gp, or moves it to r. gp has been taken from where it
// waited, and was counted as a waiter.
// Locks: none.
void netpolldeliver(NetpollResult* r, G* gp);
// pollSetEventErr records whether an event was an error and nothing else,
// unless pd's tag has changed.
// Locks: none.
void pollSetEventErr(PollDesc* pd, bool err, uint32_t tag);
// pollSetGone records that the back end cannot watch pd any more. The caller
// then calls netpollready, so present waiters fail, as future ones do. pd is
// open.
// Locks: none.
void pollSetGone(PollDesc* pd);

}  // namespace gump::rt

#endif  // NETPOLL_POLLDESC_H_
