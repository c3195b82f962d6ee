// One-shot waits: waiting for descriptors that the library does not own.
//
// An FD (fd.h) is registered from open to close, because the library makes both
// calls. The descriptors here belong to the program. It may close them, use
// their numbers for other files, or pass them to other processes, at any time
// and unseen. So nothing is kept about a descriptor between two waits, and the
// kernel alone says what its state is. os::Poll waits in this way. Hooks of
// libc's calls can do so, too.
#ifndef NETPOLL_ONCE_H_
#define NETPOLL_ONCE_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>

namespace gump::rt {

// oncePoll is poll(2), but only the goroutine waits. ns is the time limit; if
// it is below 0 or INT64_MAX, there is none. Returns the number of entries
// whose revents are not 0, or -errno. It never returns -EINTR. It blocks the
// thread, in a declared call, where onceMayPark returns false or onceWait
// fails.
// On: user, m.locks == 0, or any thread.  P: either.  Locks: as onceWait.
// Parks: yes.
[[nodiscard]] int oncePoll(pollfd* fds, size_t n, int64_t ns);

// onceWait parks until one of the descriptors has changed, as far as the poller
// knows, or until the time `when` (nanotime; kMaxWhen: never). It looks only at
// fd and events, and ignores entries with a negative fd. Returns:
//  * 0: the caller must ask the kernel again. There may be nothing new.
//  * kErrTimeout: the time has come.
//  * kErrClosing: one of the descriptors was closed while the caller waited.
//  * an errno: this wait is not possible here, and the caller must block.
// Requires: onceMayPark().
// On: user, m.locks == 0.  P: needed.  Locks: takes kPollNumber, kPollDesc, the
// free list's.  Parks: yes.
[[nodiscard]] int onceWait(const pollfd* fds, size_t n, int64_t when);

// onceMayPark returns true if the caller is a goroutine that may park here. It
// returns false for plain threads, inside a declared call, on a stack that the
// program made, and in a child of fork.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool onceMayPark();

// A thread that closes a descriptor, or replaces it (dup2), calls onceClosing
// before, and onceClosed after it. `gone` is false if the close has failed.
// onceClosed wakes the waiters of the number fd. If `gone`, it tells those that
// have waited since before onceClosing that their descriptor is closed. The
// others may wait for the next file of the number, so they ask the kernel.
// On: any, m.locks > 0.  P: either.  Locks: takes kPollNumber; onceClosed takes
// sched.lock, too.  Parks: no.
void onceClosing(int fd);
void onceClosed(int fd, bool gone);

}  // namespace gump::rt

#endif  // NETPOLL_ONCE_H_
