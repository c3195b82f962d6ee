// io_uring, as netpoll/ring.cc sees it, for one ring with one thread. Requests
// are taken when the ring enters the kernel, and completions are made when it
// asks for them, as with IORING_SETUP_DEFER_TASKRUN. liburing's functions that
// enter the kernel are here instead of in the library. eventfd, write and
// syscall come here by the linker's --wrap.
//
// An event (a transfer is done, a descriptor is ready) sets an atomic word and
// then counts up `rung`, on which the ring's thread sleeps. The thread reads
// rung, then looks at the words, then sleeps unless rung has changed.
//
// A full completion queue behaves as the kernel's. A completion for which it
// has no room is kept, and handed over at the next entry. A watch ends with
// such an event.
#include "tests/model/uring.h"

#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include "runtime/sys/atomic.h"
#include "runtime/sys/os_linux.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

constexpr unsigned kMaxEntries = 8;
constexpr unsigned kMaxHeld = 16;
constexpr int kFds = 8;
constexpr int kRingFd = 6;
constexpr int kEventFd = 7;

rt::Atomic<uint32_t> rung;
rt::Atomic<uint32_t> mayComplete;
rt::Atomic<uint32_t> readable[kFds];  // 1: there is something
rt::Atomic<uint32_t> edge[kFds];      // not reported yet

void ring() {
  rung.add(1, rt::seq_cst);
  rt::futexwakeup(&rung, 1);
}

// Held is up to kMaxHeld of something, in order.
template <class T>
struct Held {
  T at[kMaxHeld];
  unsigned n = 0;

  void add(const T& e) {
    check(n < kMaxHeld, "model: the kernel has no room");
    at[n++] = e;
  }
  T take(unsigned i) {
    const T e = at[i];
    for (n--; i < n; i++) at[i] = at[i + 1];
    return e;
  }
};

// Completion is an io_uring_cqe without its flexible end.
struct Completion {
  uint64_t about = 0;
  int32_t result = 0;
  uint32_t flags = 0;
};
struct Transfer {
  uint64_t about = 0;
  uint64_t buffer = 0;  // of a read
};
struct Watch {
  uint64_t about = 0;
  int fd = -1;
};

// Only the ring's thread uses it.
struct Kernel {
  unsigned sqHead, cqHead, cqTail, flags;
  io_uring_sqe requests[kMaxEntries];
  io_uring_cqe completions[kMaxEntries];
  unsigned room;  // of completions
  Held<Completion> late;
  Held<Transfer> transfers;
  Held<Watch> watches;
};
Kernel kernel;

bool full() { return kernel.cqTail - kernel.cqHead == kernel.room; }
// roomy tells that a completion need not be kept.
bool roomy() { return !full() && kernel.late.n == 0; }

// place puts a completion where the ring's thread finds it.
void place(const Completion& c) {
  io_uring_cqe* cqe = &kernel.completions[kernel.cqTail++ % kernel.room];
  cqe->user_data = c.about;
  cqe->res = c.result;
  cqe->flags = c.flags;
}

void complete(const Completion& c) {
  if (roomy()) {
    place(c);
    return;
  }
  kernel.late.add(c);
  kernel.flags |= IORING_SQ_CQ_OVERFLOW;
}

// tell reports that a watched descriptor is ready. Returns false if the watch
// ends with that report.
bool tell(const Watch& w) {
  const bool more = roomy();
  complete({w.about, POLLIN, more ? uint32_t{IORING_CQE_F_MORE} : 0});
  return more;
}

void take(const io_uring_sqe& request) {
  switch (request.opcode) {
    case IORING_OP_READ:
      kernel.transfers.add({request.user_data, request.addr});
      break;
    case IORING_OP_WRITE:
    case IORING_OP_FSYNC:
      kernel.transfers.add({request.user_data, 0});
      break;
    case IORING_OP_POLL_ADD: {
      const Watch w{request.user_data, request.fd};
      edge[w.fd].store(0, rt::seq_cst);
      const bool now = readable[w.fd].load(rt::seq_cst) != 0;
      if (!now || tell(w)) kernel.watches.add(w);
      break;
    }
    case IORING_OP_ASYNC_CANCEL: {
      int result = -ENOENT;
      for (unsigned i = 0; i < kernel.watches.n; i++) {
        if (kernel.watches.at[i].about != request.addr) continue;
        complete({kernel.watches.take(i).about, -ECANCELED, 0});
        result = 0;
        break;
      }
      complete({request.user_data, result, 0});
      break;
    }
    default:
      fail("model: an unknown request");
  }
}

void takeAll(io_uring* r) {
  for (; r->sq.sqe_head != r->sq.sqe_tail; r->sq.sqe_head++) {
    take(r->sq.sqes[r->sq.sqe_head & r->sq.ring_mask]);
  }
  kernel.sqHead = r->sq.sqe_head;
}

// work makes the completions of all that has happened.
void work() {
  while (kernel.late.n != 0 && !full()) place(kernel.late.take(0));
  if (kernel.late.n == 0) kernel.flags &= ~unsigned{IORING_SQ_CQ_OVERFLOW};
  while (kernel.transfers.n != 0 && mayComplete.load(rt::acquire) != 0) {
    mayComplete.add(static_cast<uint32_t>(-1), rt::acq_rel);
    // Any of them may be the first.
    const auto i =
        static_cast<unsigned>(choose(static_cast<int>(kernel.transfers.n)));
    const Transfer t = kernel.transfers.take(i);
    if (t.buffer != 0) *reinterpret_cast<char*>(t.buffer) = 'x';
    complete({t.about, 1, 0});
  }
  for (unsigned i = 0; i < kernel.watches.n;) {
    const Watch w = kernel.watches.at[i];
    if (edge[w.fd].load(rt::seq_cst) == 0) {
      i++;
      continue;
    }
    edge[w.fd].store(0, rt::seq_cst);
    if (tell(w)) {
      i++;
    } else {
      (void)kernel.watches.take(i);
    }
  }
}

}  // namespace

void kernelCompletes() {
  mayComplete.add(1, rt::acq_rel);
  ring();
}

void kernelReadable(int fd) {
  readable[fd].store(1, rt::seq_cst);
  edge[fd].store(1, rt::seq_cst);
  ring();
}

}  // namespace gump::model

extern "C" {

using gump::model::kernel;

int io_uring_queue_init_params(unsigned entries, io_uring* r,
                               io_uring_params* p) {
  gump::model::check(entries <= gump::model::kMaxEntries &&
                         p->cq_entries <= gump::model::kMaxEntries,
                     "model: the ring is too large");
  *r = {};
  r->flags = p->flags;
  r->ring_fd = gump::model::kRingFd;
  r->sq.khead = &kernel.sqHead;
  r->sq.kflags = &kernel.flags;
  r->sq.sqes = kernel.requests;
  r->sq.ring_entries = entries;
  r->sq.ring_mask = entries - 1;
  r->cq.khead = &kernel.cqHead;
  r->cq.ktail = &kernel.cqTail;
  r->cq.cqes = kernel.completions;
  r->cq.ring_entries = p->cq_entries;
  r->cq.ring_mask = p->cq_entries - 1;
  kernel.room = p->cq_entries;
  p->features = ~0U;
  return 0;
}
void io_uring_queue_exit(io_uring*) {}
int io_uring_ring_dontfork(io_uring*) { return 0; }

int io_uring_submit(io_uring* r) {
  gump::model::takeAll(r);
  return 0;
}
int io_uring_submit_and_get_events(io_uring* r) {
  gump::model::takeAll(r);
  gump::model::work();
  return 0;
}
int io_uring_submit_and_wait(io_uring* r, unsigned) {
  gump::model::takeAll(r);
  for (;;) {
    const uint32_t seen = gump::model::rung.load(gump::rt::seq_cst);
    gump::model::work();
    if (kernel.cqTail != kernel.cqHead) return 0;
    gump::rt::futexsleep(&gump::model::rung, seen, -1);
  }
}

int __wrap_eventfd(unsigned, int) { return gump::model::kEventFd; }

ssize_t __real_write(int fd, const void* buf, size_t n);
ssize_t __wrap_write(int fd, const void* buf, size_t n) {
  if (fd != gump::model::kEventFd) return __real_write(fd, buf, n);
  gump::model::kernelReadable(fd);
  return static_cast<ssize_t>(n);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  if (number == SYS_io_uring_enter || number == SYS_io_uring_register) return 0;
  long a[6];
  va_list args;
  va_start(args, number);
  for (long& arg : a) arg = va_arg(args, long);
  va_end(args);
  return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
