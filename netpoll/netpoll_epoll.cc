// The epoll back end. It registers each descriptor once, for both directions,
// edge-triggered. An eventfd, level-triggered, breaks a blocking poll.
//
// Only a poll that waits drains the eventfd. A poll that does not wait may see
// it first. It leaves the eventfd alone, so that the eventfd ends the sleep
// that the break was meant for.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

#include "netpoll/backend.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {
namespace {

constexpr uint64_t kBreak = 0;      // no PollDesc is at address 0
constexpr int kEventsAtOnce = 128;  // as in Go

// Written by init, before the back end is published.
int epfd = -1;
int breakfd = -1;

// True if epoll_pwait2 is not there, which is the case before Linux 5.11.
// Sanitizer builds do not use it either, because TSan knows only epoll_wait.
// From that call TSan learns that the stores before an epoll_ctl happened
// earlier. And TSan runs signal handlers only in calls that it knows.
Atomic<bool> noPwait2{kSanitizerBuild};

uint32_t interest() {
  return EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET;
}

int epollInit() {
  epfd = aboveStandard(tryMake([] { return epoll_create1(EPOLL_CLOEXEC); }));
  if (epfd < 0) return -epfd;
  breakfd = aboveStandard(
      tryMake([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }));
  int err = -breakfd;
  if (breakfd >= 0) {
    epoll_event ev{};
    ev.events = EPOLLIN;
    ev.data.u64 = kBreak;
    err = -tryMake(
        [&ev] { return epoll_ctl(epfd, EPOLL_CTL_ADD, breakfd, &ev); });
    if (err == 0) return 0;
    close(breakfd);
  }
  close(epfd);
  return err;
}

int epollOpen(PollDesc* pd) {
  epoll_event ev{};
  ev.events = interest();
  // Relaxed: the caller owns pd.
  ev.data.u64 = PollTag::pack(pd, pd->tag.load(relaxed));
  return epoll_ctl(epfd, EPOLL_CTL_ADD, pd->fd, &ev) == 0 ? 0 : errno;
}

void epollClose(PollDesc* pd) {
  // The descriptor may have a duplicate, which would keep the registration.
  epoll_event ev{};
  epoll_ctl(epfd, EPOLL_CTL_DEL, pd->fd, &ev);
}

// epollWait is epoll_wait with a timeout in ns. It does not use libc's
// epoll_pwait2, because Debian 11 has none.
int epollWait(epoll_event* events, int64_t delay) {
  if (delay == 0) return epoll_wait(epfd, events, kEventsAtOnce, 0);
  if (delay < 0) return epoll_wait(epfd, events, kEventsAtOnce, -1);
  const timespec ts{delay / 1'000'000'000, delay % 1'000'000'000};
  // Relaxed: it only saves the attempt.
  if (GUMP_LIKELY(!noPwait2.load(relaxed))) {
    const long n = syscall(SYS_epoll_pwait2, epfd, events, kEventsAtOnce, &ts,
                           nullptr, sizeof(uint64_t));
    // EPERM: old seccomp filters answer so to calls that they do not know.
    if (n >= 0 || (errno != ENOSYS && errno != EPERM)) {
      return static_cast<int>(n);
    }
    noPwait2.store(true, relaxed);  // as above
  }
  pollfd p{epfd, POLLIN, 0};
  if (ppoll(&p, 1, &ts, nullptr) <= 0) return 0;
  return epoll_wait(epfd, events, kEventsAtOnce, 0);
}

void handle(const epoll_event& ev, NetpollResult* r) {
  PollDesc* pd = PollTag::desc(ev.data.u64);
  const uint32_t tag = PollTag::tag(ev.data.u64);
  // If the tags differ, the descriptor has been closed since, and the event is
  // stale. (If it is closed only after this check, the next owner of pd sees an
  // edge that is not there.) Acquire: pairs with the add in PollCache::free.
  if (((pd->tag.load(acquire) ^ tag) & PollTag::kMask) != 0) {
    stats.staleEvents.add(1, relaxed);
    return;
  }
  constexpr uint32_t kGone = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  // seq_cst: see FD::read. Store hungUp first, because netpollready wakes the
  // reader, or keeps the edge for its next wait.
  if ((ev.events & (kGone | EPOLLPRI)) != 0) pd->hungUp.store(true, seq_cst);
  pollSetEventErr(pd, (ev.events & ~uint32_t{EPOLLPRI}) == EPOLLERR, tag);
  netpollready(r, pd, (ev.events & (EPOLLIN | kGone)) != 0,
               (ev.events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0);
}

bool epollPoll(int64_t delay, NetpollResult* r) {
  epoll_event events[kEventsAtOnce];
  int n = epollWait(events, delay);
  while (n < 0 && errno == EINTR && delay < 0) n = epollWait(events, delay);
  if (n < 0) {
    // The sleep was interrupted. A caller that waits for a time looks at the
    // clock again.
    if (errno == EINTR) return false;
    printf("runtime: epollwait on fd %d failed with %d\n", epfd, errno);
    fatalthrow("runtime: netpoll failed");
  }
  bool broken = false;
  // Backwards, because the goroutine that is pushed last runs first.
  for (int i = n - 1; i >= 0; i--) {
    if (events[i].data.u64 == kBreak) {
      broken = delay != 0;
    } else if (events[i].events != 0) {
      handle(events[i], r);
    }
  }
  if (broken) {
    uint64_t count;
    while (read(breakfd, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
  }
  return broken;
}

void epollWake() {
  const uint64_t one = 1;
  while (write(breakfd, &one, sizeof(one)) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return;  // the count is full, so the poll ends anyway
    printf("runtime: netpollBreak write failed with %d\n", errno);
    fatalthrow("runtime: netpollBreak write failed");
  }
}

}  // namespace

constinit const NetpollBackend kEpollBackend = {
    "epoll", epollInit, epollOpen, epollClose, epollPoll, epollWake};

}  // namespace gump::rt
