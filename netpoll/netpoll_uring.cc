// The io_uring back end. The ring watches each descriptor, for both directions,
// from open to close. The ring's thread sees the events and readies the
// waiters; a poll only sleeps.
//
// The ring holds on to the file as long as it watches it. So close waits until
// the watch has ended, because closing the descriptor alone would keep a
// connection open. That is why no event is stale.
//
// The ring does not ask for urgent data. It reports the events that the
// kernel's wake-up names, and for sockets those always include urgent data.
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "netpoll/backend.h"
#include "netpoll/ring.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {
namespace {

// Used to ask epoll which descriptors can be polled at all. Written by init,
// before the back end is published.
int scratch = -1;
Atomic<uint32_t> broken;  // 1: a poll must end; the futex word

int uringInit() {
  const int err = ringStart();
  if (err != 0) return err;
  if (!ringWatches()) return EINVAL;
  scratch = aboveStandard(tryMake([] { return epoll_create1(EPOLL_CLOEXEC); }));
  return scratch < 0 ? -scratch : 0;
}

int uringOpen(PollDesc* pd) {
  // Some files are always ready, such as regular files. The ring would accept
  // them, and epoll refuses them. So ask epoll.
  epoll_event ev{};
  if (epoll_ctl(scratch, EPOLL_CTL_ADD, pd->fd, &ev) != 0) return errno;
  epoll_ctl(scratch, EPOLL_CTL_DEL, pd->fd, &ev);
  return ringWatch(pd);
}

bool uringPoll(int64_t delay, NetpollResult*) {
  if (delay == 0) return false;
  // Acquire: pairs with uringWake; makes the waker's earlier stores visible.
  if (broken.xchg(0, acquire) != 0) return true;
  futexsleep(&broken, 0, delay);
  return broken.xchg(0, acquire) != 0;
}

void uringWake() {
  broken.store(1, release);
  futexwakeup(&broken, 1);
}

// state returns the whole state of a descriptor, as poll(2) events.
int state(int fd) {
  pollfd p{fd, POLLIN | POLLOUT | POLLRDHUP, 0};
  while (poll(&p, 1, 0) < 0 && errno == EINTR) {
  }
  return p.revents;
}

}  // namespace

void uringEvent(PollDesc* pd, int events, NetpollResult* r) {
  constexpr int kGone = POLLRDHUP | POLLHUP | POLLERR;
  // Waiters that come later must not sleep either.
  if (events < 0) pollSetGone(pd);
  // The ring reports changes. So an error that it reports alone need not be the
  // whole state. Another thread may also have taken the error since.
  const bool alone = events == POLLERR;
  if (alone) events = state(pd->fd);
  const bool err = events < 0 || (alone && events == POLLERR);
  // seq_cst: see FD::read. Store hungUp first, because netpollready wakes the
  // reader, or keeps the edge for its next wait.
  if (err || (events & kGone) != 0) pd->hungUp.store(true, seq_cst);
  pollSetEventErr(pd, err, pd->tag.load(relaxed));  // ours until close returns
  netpollready(r, pd, err || alone || (events & (POLLIN | kGone)) != 0,
               err || alone || (events & (POLLOUT | POLLHUP | POLLERR)) != 0);
}

constinit const NetpollBackend kUringBackend = {
    "uring", uringInit, uringOpen, ringUnwatch, uringPoll, uringWake};

}  // namespace gump::rt
