// The ring: operations that the kernel carries out by io_uring while the
// goroutine is parked.
//
// One thread of the runtime owns the ring. It submits the requests of
// goroutines, waits for the kernel, and readies the goroutines. Submitting from
// the goroutine's own thread was rejected for two reasons:
//  - A completion would interrupt that thread's sleep, so that calls of the
//    user would fail with EINTR.
//  - A request dies with the thread that submitted it.
//
// An operation returns only after the kernel has said that it is done with it,
// so buffers may be on the caller's stack. Therefore operations cannot be
// cancelled, and operations that may take for ever are not here.
#ifndef NETPOLL_RING_H_
#define NETPOLL_RING_H_

#include <cstddef>
#include <cstdint>

#include "netpoll/polldesc.h"
#include "runtime/sched/netpoll.h"

namespace gump::rt {

// Unless it says otherwise:
// On: user, m.locks == 0, or a foreign thread.  P: either.  Locks: none.
// Parks: yes; inside a declared call its thread sleeps instead.

// ringStart starts the ring when it is first called. Returns 0, or the errno
// that makes it unusable in this process: usually ENOSYS, EPERM or ENOMEM, and
// EINVAL if the kernel is older than 5.13.
// Locks: takes a leaf, and sched.lock.  Parks: no.
[[nodiscard]] int ringStart();

// A caller of the functions below has started the ring. These three are like
// pread, pwrite and fsync, but return -errno. n is at most 2^31.
[[nodiscard]] int64_t ringRead(int fd, void* buf, size_t n, int64_t offset);
[[nodiscard]] int64_t ringWrite(int fd, const void* buf, size_t n,
                                int64_t offset);
[[nodiscard]] int64_t ringSync(int fd);

// ringWatches tells whether the ring misses no edge (Linux 6.1).
// Parks: no.
[[nodiscard]] bool ringWatches();
// ringWatch makes the ring call uringEvent for each edge of pd->fd. Returns
// when the watch has begun: 0, or the errno that prevents it.
[[nodiscard]] int ringWatch(PollDesc* pd);
// ringUnwatch returns when there will be no further event, and the kernel has
// released the file.
void ringUnwatch(PollDesc* pd);

// uringEvent is defined in netpoll_uring.cc. events are as in poll(2), or
// -errno if there will be no more of them.
// On: the ring's thread.  P: none.  Parks: no.
void uringEvent(PollDesc* pd, int events, NetpollResult* r);

}  // namespace gump::rt

#endif  // NETPOLL_RING_H_
