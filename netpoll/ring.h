// The ring: what the kernel carries out by io_uring while the goroutine is
// parked.
//
// One thread of the runtime owns the ring: it submits what goroutines ask for,
// waits for the kernel, and readies them. Were it the goroutine's own thread
// that submits, a completion would interrupt that thread's sleep, so that calls
// of the user's fail with EINTR; and requests die with the thread that has
// submitted them.
//
// Nobody returns from an operation before the kernel has said that it is done
// with it, so buffers may be on the caller's stack. Operations cannot be
// cancelled, therefore; those that may take for ever are not here.
#ifndef NETPOLL_RING_H_
#define NETPOLL_RING_H_

#include <cstddef>
#include <cstdint>

#include "netpoll/polldesc.h"
#include "runtime/netpoll.h"

namespace gump::rt {

// Unless it says otherwise:
// On: user, m.locks == 0, or a plain thread.  P: either.  Locks: none.
// Parks: yes; inside a declared call its thread sleeps instead.

// ringStart starts the ring when it is first called. 0, or the errno that makes
// it unusable in this process: ENOSYS, EPERM or ENOMEM as a rule, EINVAL if the
// kernel is older than 5.13.
// Locks: takes a leaf, and sched.lock.  Parks: no.
[[nodiscard]] int ringStart();

// The rest is for those who have started the ring. These are like pread, pwrite
// and fsync, but return -errno. n is at most 2^31.
[[nodiscard]] int64_t ringRead(int fd, void* buf, size_t n, int64_t offset);
[[nodiscard]] int64_t ringWrite(int fd, const void* buf, size_t n,
                                int64_t offset);
[[nodiscard]] int64_t ringSync(int fd);

// ringWatches tells whether the ring misses no edge (Linux 6.1).
// Parks: no.
[[nodiscard]] bool ringWatches();
// ringWatch has the ring call uringEvent for each edge of pd->fd. Returns when
// that has begun, 0, or the errno that forbids it.
[[nodiscard]] int ringWatch(PollDesc* pd);
// ringUnwatch returns when there will be no further event, and the kernel has
// let go of the file.
void ringUnwatch(PollDesc* pd);

// uringEvent is netpoll_uring.cc's: events as of poll(2), or -errno if there
// will be none any more.
// On: the ring's thread.  P: none.  Parks: no.
void uringEvent(PollDesc* pd, int events, NetpollResult* r);

}  // namespace gump::rt

#endif  // NETPOLL_RING_H_
