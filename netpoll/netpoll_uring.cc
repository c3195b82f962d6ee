// The io_uring back end: the ring watches each descriptor, for both directions,
// from open to close. Its thread sees the events and readies who waits; a poll
// only sleeps.
//
// The ring holds on to the file for as long as it watches, so close waits until
// it does not: closing the descriptor alone would keep a connection open. No
// event is stale, therefore.
//
// Urgent data is not asked for: the ring tells what whoever wakes it says, and
// for sockets that is always "urgent, too".
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "netpoll/backend.h"
#include "netpoll/ring.h"
#include "runtime/atomic.h"
#include "runtime/os_linux.h"

namespace gump::rt {
namespace {

// Asked which descriptors can be polled at all. Written by init, before the
// back end is published.
int scratch = -1;
Atomic<uint32_t> broken;  // 1: a poll is to end; the futex word

int uringInit() {
  const int err = ringStart();
  if (err != 0) return err;
  if (!ringWatches()) return EINVAL;
  scratch = epoll_create1(EPOLL_CLOEXEC);
  return scratch < 0 ? errno : 0;
}

int uringOpen(PollDesc* pd) {
  // The ring would report files that cannot wait as ready; epoll knows them.
  epoll_event ev{};
  if (epoll_ctl(scratch, EPOLL_CTL_ADD, pd->fd, &ev) != 0) return errno;
  epoll_ctl(scratch, EPOLL_CTL_DEL, pd->fd, &ev);
  return ringWatch(pd);
}

bool uringPoll(int64_t delay, NetpollResult*) {
  if (delay == 0) return false;
  // Acquire: pairs with uringWake; what was done before is seen.
  if (broken.xchg(0, acquire) != 0) return true;
  futexsleep(&broken, 0, delay);
  return broken.xchg(0, acquire) != 0;
}

void uringWake() {
  broken.store(1, release);
  futexwakeup(&broken, 1);
}

// state is all that is the case with a descriptor.
int state(int fd) {
  pollfd p{fd, POLLIN | POLLOUT | POLLRDHUP, 0};
  while (poll(&p, 1, 0) < 0 && errno == EINTR) {
  }
  return p.revents;
}

}  // namespace

void uringEvent(PollDesc* pd, int events, NetpollResult* r) {
  constexpr int kGone = POLLRDHUP | POLLHUP | POLLERR;
  // Whoever comes later must not sleep either.
  if (events < 0) pollSetGone(pd);
  // The ring tells what has changed, so an error that it tells alone may not be
  // alone; or somebody may have taken it.
  const bool alone = events == POLLERR;
  if (alone) events = state(pd->fd);
  const bool err = events < 0 || (alone && events == POLLERR);
  // seq_cst: FD::read. Before the reader is woken, or asked whether it may
  // sleep.
  if (err || (events & kGone) != 0) pd->hungUp.store(true, seq_cst);
  pollSetEventErr(pd, err, pd->tag.load(relaxed));  // ours until close returns
  netpollready(r, pd, err || alone || (events & (POLLIN | kGone)) != 0,
               err || alone || (events & (POLLOUT | POLLHUP | POLLERR)) != 0);
}

constinit const NetpollBackend kUringBackend = {
    "uring", uringInit, uringOpen, ringUnwatch, uringPoll, uringWake};

}  // namespace gump::rt
