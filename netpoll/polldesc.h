// PollDesc: what the poller knows of an open descriptor.
//
// A PollDesc is never freed, only used again: an event that comes late finds
// another descriptor's, at worst, and the tag that it carries tells so.
//
// rg and wg say, for each direction, who waits:
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
//                              └──────────────┘ deadline: pdNil. Who moves it
//                                               from there readies the G.
//
//   pdNil → pdWait → G* is done by the one goroutine that the FD's lock admits
//   in this direction, everything else by anybody. An edge that is seen before
//   the wait is thus remembered.
//
// No wake-up is lost to a deadline or a close: both store info, then take rg;
// the waiter stores pdWait to rg, then loads info. All four are seq_cst, so one
// of them sees the other: either the waiter does not sleep, or its G* (or
// pdWait, which makes its last step fail) is found.
//
// Invariants:
//  (N1) info is what lock guards, copied: closing, and which deadlines have
//       passed; and eventErr and gone, which an event sets. Read without the
//       lock. Above them is the tag, so that an event that comes late cannot
//       set the eventErr of the next owner: its CAS fails.
//  (N2) The timer is armed, if there is a deadline that has not passed, for
//       the earlier one or before. It may be armed for nothing, even after the
//       close: what it calls looks at the clock. So moving a deadline back, as
//       servers do with each request, touches no heap. Its f and arg are set
//       once, when the PollDesc is made: what is left of an old owner's
//       deadline may read them at any time.
//  (N3) The tag changes when the PollDesc is given back, before anybody else
//       gets it.
#ifndef NETPOLL_POLLDESC_H_
#define NETPOLL_POLLDESC_H_

#include <cstdint>

#include "runtime/lock_futex.h"
#include "runtime/netpoll.h"
#include "runtime/runtime2.h"
#include "runtime/time.h"

namespace gump::rt {

inline constexpr uintptr_t pdNil = 0;
inline constexpr uintptr_t pdReady = 1;
inline constexpr uintptr_t pdWait = 2;

enum PollInfo : uint32_t {
  kPollClosing = 1,
  kPollEventErr = 2,  // the last event was an error alone
  kPollReadExpired = 4,
  kPollWriteExpired = 8,
  kPollGone = 16,  // no event will come any more
};
inline constexpr int kPollTagShift = 5;

enum class PollMode : uint8_t { kRead = 1, kWrite = 2, kBoth = 3 };

// PollError says why an operation cannot wait. These travel where an errno
// would, so they are negative.
enum PollError : int {
  kPollOk = 0,
  kErrClosing = -1,      // the descriptor is being closed
  kErrTimeout = -2,      // the deadline has passed
  kErrNotPollable = -3,  // the kernel reports an error alone, or nothing
};

struct RingCall;

// PollDesc is one of these. Aligned, because pointers to it lend their low bits
// to the tag.
struct alignas(kCacheLine) PollDesc {
  // Of the free list, under its lock; of one of the ring's while it is open.
  PollDesc* link = nullptr;
  int fd = -1;            // constant while in use
  Atomic<uint32_t> tag;   // (N3)
  Atomic<uint32_t> info;  // (N1)
  Atomic<uintptr_t> rg;
  Atomic<uintptr_t> wg;
  // The peer has sent its last byte, or urgent data, or an error has been seen:
  // there may be no further edge, so a reader must ask the kernel. Set by
  // events, for good.
  Atomic<bool> hungUp;
  // Guards what follows, and orders closing and deadlines. Forbidden while
  // holding it: everything but timers and the scheduler.
  Mutex lock{LockRank::kPollDesc};
  bool closing ABSL_GUARDED_BY(lock) = false;
  // nanotime; 0: none; -1: passed.
  int64_t rd ABSL_GUARDED_BY(lock) = 0;
  int64_t wd ABSL_GUARDED_BY(lock) = 0;
  int64_t armed ABSL_GUARDED_BY(lock) = 0;  // the timer's `when`; 0: stopped
  Timer timer;                              // (N2)
  // The ring's (ring.cc), if that is the back end; only its thread looks.
  bool watched = false;           // the kernel has a request for it
  bool changes = false;           // that has told of more than the first state
  bool ended = false;             // it is to have a new one
  RingCall* watcher = nullptr;    // who waits for the first to begin
  RingCall* unwatcher = nullptr;  // who waits for the end of that
};

// Unless it says otherwise:
// On: any.  P: either.  Locks: takes kPollDesc.  Parks: no.

// pollOpen registers a descriptor, which must be non-blocking, until pollClose.
// nullptr: the kernel refuses, as it does for regular files; *err is why.
// On: user, m.locks == 0, or a plain thread.  Locks: takes the free list's.
// Parks: yes.
[[nodiscard]] PollDesc* pollOpen(int fd, int* err);
// pollClose gives pd back. pollUnblock has been called, and nobody waits.
// On: user, m.locks == 0, or a plain thread.  Locks: takes the free list's.
// Parks: yes.
void pollClose(PollDesc* pd);
// pollUnblock makes whoever waits, or will, get kErrClosing.
void pollUnblock(PollDesc* pd);
// pollReset forgets readiness, before a system call finds out what is the case.
// Locks: none.
[[nodiscard]] int pollReset(PollDesc* pd, PollMode mode);
// pollWait waits until the descriptor is ready; the caller is the only one in
// this direction.
// On: user, m.locks == 0, or a plain thread.  Locks: none.  Parks: yes.
[[nodiscard]] int pollWait(PollDesc* pd, PollMode mode);
// pollSetDeadline sets deadlines: nanotime; 0: none; at most now: passed.
void pollSetDeadline(PollDesc* pd, int64_t when, PollMode mode);

// netpollready marks pd as ready and moves those who waited to r.
// Locks: none.
void netpollready(NetpollResult* r, PollDesc* pd, bool read, bool write);
// netpolldeliver readies gp, which has been taken from where it waited and was
// counted as a waiter, or moves it to r.
// Locks: none.
void netpolldeliver(NetpollResult* r, G* gp);
// pollSetEventErr notes whether an event was an error alone, unless pd's tag
// has changed.
// Locks: none.
void pollSetEventErr(PollDesc* pd, bool err, uint32_t tag);
// pollSetGone notes that the back end cannot watch pd any more: who waits, or
// will, is told so (netpollready comes next). pd is open.
// Locks: none.
void pollSetGone(PollDesc* pd);

}  // namespace gump::rt

#endif  // NETPOLL_POLLDESC_H_
