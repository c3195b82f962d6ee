// poll(2) and one epoll instance, as netpoll/once.cc sees them. They come here
// by the linker's --wrap. All waits are one-shot.
//
// The kernel does each call under a lock of its own. Here, `turn` stands for
// that lock. Each call takes its turn first, and is then one step.
//
// An event is an edge for the PollDesc that watches the instance (os.cc).
#include "tests/model/epoll.h"

#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>

#include "runtime/sys/atomic.h"
#include "tests/model/model.h"
#include "tests/model/os.h"

namespace gump::model {
namespace {

constexpr int kNumbers = 4;
constexpr int kFiles = 4;
constexpr int kInner = 7;  // the number of the instance

// Registration is one of a file under a number.
struct Registration {
  bool exists = false;
  bool armed = false;
  bool queued = false;
  uint32_t events = 0;
  uint64_t data = 0;
};

rt::Atomic<uint32_t> turn;
uint32_t ready[kFiles];
int fileOf[kNumbers] = {-1, -1, -1, -1};
Registration registered[kFiles][kNumbers];

void takeTurn() { turn.add(1, rt::seq_cst); }

uint32_t reports(int file, uint32_t events) {
  return ready[file] & (events | EPOLLERR | EPOLLHUP);
}

// lookAgain queues the registration if there is something to report. Returns
// true if that is an edge.
bool lookAgain(int file, Registration* r) {
  if (!r->armed || reports(file, r->events) == 0) return false;
  r->queued = true;
  return true;
}

int failWith(int err) {
  errno = err;
  return -1;
}

}  // namespace

void kernelOpen(int fd, int file) {
  takeTurn();
  fileOf[fd] = file;
}
void kernelClose(int fd) {
  takeTurn();
  fileOf[fd] = -1;
}

void kernelReady(int file, uint32_t events) {
  takeTurn();
  ready[file] |= events;
  bool edge = false;
  for (Registration& r : registered[file]) edge = lookAgain(file, &r) || edge;
  if (edge) kernelEdgeOfEpoll();
}

}  // namespace gump::model

extern "C" {

using namespace gump::model;  // NOLINT: the wrappers are not in a namespace

int __wrap_epoll_create1(int) { return kInner; }

int __wrap_epoll_ctl(int, int op, int fd, epoll_event* ev) {
  takeTurn();
  const int file = fileOf[fd];
  if (file < 0) return failWith(EBADF);
  Registration* r = &registered[file][fd];
  if (op == EPOLL_CTL_MOD && !r->exists) return failWith(ENOENT);
  if (op == EPOLL_CTL_ADD && r->exists) return failWith(EEXIST);
  check((ev->events & EPOLLONESHOT) != 0, "model: not one-shot");
  *r = {.exists = true,
        .armed = true,
        .events = ev->events & ~uint32_t{EPOLLONESHOT},
        .data = ev->data.u64};
  if (lookAgain(file, r)) kernelEdgeOfEpoll();
  return 0;
}

int __wrap_epoll_wait(int, epoll_event* events, int most, int) {
  takeTurn();
  int n = 0;
  for (int file = 0; file < kFiles; file++) {
    for (Registration& r : registered[file]) {
      if (n == most || !r.queued) continue;
      r.queued = false;
      const uint32_t now = r.armed ? reports(file, r.events) : 0;
      if (now == 0) continue;
      r.armed = false;
      events[n].events = now;
      events[n].data.u64 = r.data;
      n++;
    }
  }
  return n;
}

int __wrap_poll(pollfd* fds, nfds_t n, int) {
  takeTurn();
  int got = 0;
  for (nfds_t i = 0; i < n; i++) {
    fds[i].revents = 0;
    if (fds[i].fd < 0) continue;
    const int file = fileOf[fds[i].fd];
    fds[i].revents = static_cast<int16_t>(
        file < 0 ? uint32_t{POLLNVAL}
                 : reports(file, static_cast<uint16_t>(fds[i].events)));
    if (fds[i].revents != 0) got++;
  }
  return got;
}

}  // extern "C"
