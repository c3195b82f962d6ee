// The thread that owns the ring, and how it is asked.
//
// Whoever wants something parks and pushes a RingCall, which is on its own
// stack, to `submitted`. The ring's thread takes all of them at once, hands
// them to the kernel in one system call with the wait for what is done, and
// readies whoever's call is complete.
//
// No call is forgotten: who pushes to an empty `submitted` then looks at
// `asleep`; the thread sets asleep, then looks at submitted. All are seq_cst,
// so one sees the other: either the thread does not sleep, or the eventfd,
// which the ring watches, ends its sleep. Who pushes behind somebody else's
// call, which has not been taken yet, leaves it to that one.
//
// A goroutine is pushed, as a G that is kGwaiting already, by the commit of its
// park; so it can be readied at once, and nothing of it or of the RingCall is
// touched after the push.
#include "netpoll/ring.h"

#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/os_linux.h"
#include "runtime/panic.h"
#include "runtime/proc.h"

namespace gump::rt {

struct RingCall {
  enum class Op : uint8_t { kRead, kWrite, kWatch, kUnwatch };

  Op op;
  int fd = -1;
  uint64_t addr = 0;  // the buffer, or the PollDesc
  uint32_t len = 0;
  int64_t offset = 0;
  int64_t result = 0;
  G* gp = nullptr;
  RingCall* link = nullptr;  // of submitted, then of Ring::waiting_
};

namespace {

constexpr unsigned kSubmissions = 256;
constexpr unsigned kCompletions = 4096;
// Calls that the kernel may have at a time: their completions always fit, and a
// burst of events besides. (Events that do not fit the kernel keeps.)
constexpr unsigned kMaxInFlight = kCompletions / 2;

// What a completion is about, in the low bits of its 64.
enum : uint64_t { kCall, kWatched, kWoken, kIgnored, kKindMask = 3 };

// Newest first; see the top of the file.
Atomic<RingCall*> submitted;
Atomic<uint32_t> asleep;
int wakefd = -1;  // written before there is anybody to wake

bool commitCall(G* gp, void* arg) {
  auto* c = static_cast<RingCall*>(arg);
  c->gp = gp;
  netpollAdjustWaiters(1);  // checkdead: somebody will ready it
  RingCall* head = submitted.load(relaxed);  // the CAS decides
  do {
    c->link = head;
  } while (!submitted.casWeak(head, c, seq_cst));
  if (head == nullptr && asleep.load(seq_cst) != 0 &&
      asleep.xchg(0, seq_cst) != 0) {
    const uint64_t one = 1;
    // It cannot fail: 2^64 wakes would have to come before.
    while (write(wakefd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }
  return true;
}

int64_t call(RingCall* c) {
  (void)runtimeEntry();
  (void)acquirem();  // gopark ends it
  gopark(commitCall, c, WaitReason::kIOWait);
  return c->result;
}

// Ring is what only its thread touches, once it runs.
class Ring {
 public:
  // setup makes the ring, not yet enabled; 0 or the errno.
  int setup();
  // run never returns.
  void run();
  // defers: completions are made when asked for.
  bool defers() const {
    return (ring_.flags & IORING_SETUP_DEFER_TASKRUN) != 0;
  }

 private:
  void takeSubmitted();
  // prepareCalls moves calls to the submission queue, as many as fit.
  void prepareCalls();
  bool prepare(RingCall* c);
  bool prepareWatch(PollDesc* pd);
  void prepareWake();
  // enter submits, and waits for a completion unless there are new calls.
  void enter();
  void reap();
  void completed(const io_uring_cqe* cqe);
  void watchedEvent(PollDesc* pd, const io_uring_cqe* cqe);
  void finish(RingCall* c, int64_t result);
  // inject readies those whose calls are complete.
  void inject();
  // sqe is room for one request; nullptr: there is none at the moment.
  io_uring_sqe* sqe();

  io_uring ring_ = {};
  // Calls that have been taken and not prepared, oldest first.
  RingCall* waiting_ = nullptr;
  RingCall** waitingTail_ = &waiting_;
  unsigned inFlight_ = 0;
  NetpollResult done_;
};

constinit Ring ring;

// deniedCall makes the two other calls of io_uring, which a filter may deny:
// its errno, or 0. The ring is not enabled, so nothing happens.
int deniedCall(int fd) {
  const auto denied = [](long n) {
    return n < 0 && (errno == EPERM || errno == ENOSYS || errno == EACCES);
  };
  if (denied(syscall(SYS_io_uring_enter, fd, 0, 0, 0, nullptr, 0)) ||
      denied(syscall(SYS_io_uring_register, fd, IORING_UNREGISTER_EVENTFD,
                     nullptr, 0))) {
    return errno;
  }
  return 0;
}

int Ring::setup() {
  // Completions are made when the thread asks for them, not in an interrupt of
  // its own; it is Linux 6.1 that can do that.
  for (const unsigned flags :
       {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0U}) {
    io_uring_params p{};
    p.flags = flags | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE;
    p.cq_entries = kCompletions;
    const int err = io_uring_queue_init_params(kSubmissions, &ring_, &p);
    if (err == -EINVAL && flags != 0) continue;
    if (err != 0) return -err;
    // The last came with Linux 5.13, and so did requests that watch.
    constexpr unsigned kNeeded =
        IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS | IORING_FEAT_RSRC_TAGS;
    wakefd = eventfd(0, EFD_CLOEXEC);
    int why = wakefd < 0 ? errno : EINVAL;
    if ((p.features & kNeeded) == kNeeded && wakefd >= 0) {
      why = deniedCall(ring_.ring_fd);
      if (why == 0) {
        (void)io_uring_ring_dontfork(&ring_);
        return 0;
      }
    }
    if (wakefd >= 0) close(wakefd);
    io_uring_queue_exit(&ring_);
    return why;
  }
  return EINVAL;
}

io_uring_sqe* Ring::sqe() {
  io_uring_sqe* s = io_uring_get_sqe(&ring_);
  if (s != nullptr) return s;
  (void)io_uring_submit(&ring_);  // if that fails, enter will say why
  return io_uring_get_sqe(&ring_);
}

void Ring::prepareWake() {
  io_uring_sqe* s = sqe();
  if (s == nullptr) fatalthrow("runtime: io_uring takes no requests");
  io_uring_prep_poll_multishot(s, wakefd, POLLIN);
  io_uring_sqe_set_data64(s, kWoken);
}

bool Ring::prepareWatch(PollDesc* pd) {
  io_uring_sqe* s = sqe();
  if (s == nullptr) return false;
  io_uring_prep_poll_multishot(s, pd->fd, POLLIN | POLLOUT | POLLRDHUP);
  io_uring_sqe_set_data64(s, reinterpret_cast<uintptr_t>(pd) | kWatched);
  pd->watched = true;
  return true;
}

// prepare: false: there is no room.
bool Ring::prepare(RingCall* c) {
  auto* pd = reinterpret_cast<PollDesc*>(c->addr);
  if (c->op == RingCall::Op::kWatch) {
    if (!prepareWatch(pd)) return false;
    finish(c, 0);
    return true;
  }
  if (c->op == RingCall::Op::kUnwatch && !pd->watched) {
    finish(c, 0);
    return true;
  }
  io_uring_sqe* s = sqe();
  if (s == nullptr) return false;
  if (c->op == RingCall::Op::kUnwatch) {
    // The end of the request that is cancelled is what is waited for.
    io_uring_prep_cancel64(s, c->addr | kWatched, 0);
    io_uring_sqe_set_data64(s, kIgnored);
    pd->unwatcher = c;
    return true;
  }
  void* buf = reinterpret_cast<void*>(c->addr);
  const auto offset = static_cast<uint64_t>(c->offset);
  if (c->op == RingCall::Op::kRead) {
    io_uring_prep_read(s, c->fd, buf, c->len, offset);
  } else {
    io_uring_prep_write(s, c->fd, buf, c->len, offset);
  }
  io_uring_sqe_set_data64(s, reinterpret_cast<uintptr_t>(c) | kCall);
  inFlight_++;
  return true;
}

void Ring::takeSubmitted() {
  // seq_cst: the argument at the top; and the calls are complete.
  RingCall* c = submitted.xchg(nullptr, seq_cst);
  RingCall* oldest = nullptr;
  RingCall* newest = c;
  while (c != nullptr) {
    oldest = std::exchange(c, std::exchange(c->link, oldest));
  }
  if (oldest == nullptr) return;
  *waitingTail_ = oldest;
  waitingTail_ = &newest->link;
}

void Ring::prepareCalls() {
  while (waiting_ != nullptr && inFlight_ < kMaxInFlight) {
    RingCall* next = waiting_->link;  // it may be gone afterwards
    if (!prepare(waiting_)) return;
    waiting_ = next;
  }
  if (waiting_ == nullptr) waitingTail_ = &waiting_;
}

void Ring::enter() {
  asleep.store(1, seq_cst);  // the argument at the top
  // What there was no room for is tried again.
  const bool wait = submitted.load(seq_cst) == nullptr &&
                    (waiting_ == nullptr || inFlight_ >= kMaxInFlight);
  const int n = wait ? io_uring_submit_and_wait(&ring_, 1)
                     : io_uring_submit_and_get_events(&ring_);
  asleep.store(0, relaxed);  // a wake that comes nevertheless does no harm
  // EBUSY: completions must be taken first.
  if (n >= 0 || n == -EINTR || n == -EBUSY) return;
  if (n == -EAGAIN) {  // no memory for requests
    usleep(1000);
    return;
  }
  printf("runtime: io_uring_enter failed with %d\n", -n);
  fatalthrow("runtime: io_uring failed");
}

void Ring::finish(RingCall* c, int64_t result) {
  c->result = result;
  netpolldeliver(&done_, c->gp);
}

void Ring::watchedEvent(PollDesc* pd, const io_uring_cqe* cqe) {
  const bool last = (cqe->flags & IORING_CQE_F_MORE) == 0;
  // The kernel gives up when it has no room for an event, and at once with a
  // file whose state does not change any more.
  const bool full =
      (IO_URING_READ_ONCE(*ring_.sq.kflags) & IORING_SQ_CQ_OVERFLOW) != 0;
  const bool again = last && cqe->res >= 0 && (pd->changes || full);
  pd->changes = !last;
  if (last) pd->watched = false;
  if (pd->unwatcher != nullptr) {
    if (last) finish(std::exchange(pd->unwatcher, nullptr), 0);
    return;
  }
  uringEvent(pd, cqe->res, &done_);
  if (again && !prepareWatch(pd)) {
    uringEvent(pd, -ENOMEM, &done_);
  }
}

void Ring::completed(const io_uring_cqe* cqe) {
  const uint64_t data = cqe->user_data;
  void* about = reinterpret_cast<void*>(data & ~uint64_t{kKindMask});
  switch (data & kKindMask) {
    case kCall:
      inFlight_--;
      finish(static_cast<RingCall*>(about), cqe->res);
      break;
    case kWatched:
      watchedEvent(static_cast<PollDesc*>(about), cqe);
      break;
    case kWoken:
      if ((cqe->flags & IORING_CQE_F_MORE) == 0) prepareWake();
      break;
    default:
      break;
  }
}

void Ring::reap() {
  unsigned head;
  unsigned n = 0;
  io_uring_cqe* cqe;
  io_uring_for_each_cqe(&ring_, head, cqe) {
    completed(cqe);
    n++;
  }
  io_uring_cq_advance(&ring_, n);
}

void Ring::inject() {
  if (done_.toRun.empty()) return;
  // At its end checkdead looks again: they may have run, and gone to sleep for
  // good, while they still counted as waiters.
  const AwakeScope awake;
  const NetpollResult r = std::exchange(done_, NetpollResult());
  GList list = r.toRun;
  injectglist(&list);
  netpollAdjustWaiters(r.delta);
}

void Ring::run() {
  // From now on it is this thread's. (Debian's liburing declares a function for
  // that, and does not have it.)
  if (syscall(SYS_io_uring_register, ring_.ring_fd,
              IORING_REGISTER_ENABLE_RINGS, nullptr, 0) < 0) {
    printf("runtime: io_uring_register failed with %d\n", errno);
    fatalthrow("runtime: io_uring failed");
  }
  declineSignals();     // liburing's calls are its own
  (void)shortSlices();  // goroutines wait for what it has
  prepareWake();
  for (;;) {
    takeSubmitted();
    prepareCalls();
    inject();
    enter();
    reap();
    inject();
  }
}

}  // namespace

int ringStart() {
  static constexpr int kNotTried = -1;
  static constinit Atomic<int> state{kNotTried};
  // Guards the attempt. Forbidden while holding it: everything.
  static constinit Mutex starting{LockRank::kLeaf};
  int err = state.load(acquire);  // pairs with the store below
  if (GUMP_LIKELY(err != kNotTried)) return err;
  if (forked.load(relaxed)) dieForked();  // written by this very thread
  (void)runtimeEntry();
  // While anybody waits for the ring, somebody polls; see checkdead.
  netpollGenericInit();
  {
    LockScope l(&starting);
    if (const int other = state.load(relaxed); other != kNotTried) {
      return other;  // written under the lock
    }
    err = debug.netpoll == NetpollChoice::kEpoll ? EPERM : ring.setup();
    state.store(err, release);  // and `ring` is complete
  }
  if (err != 0) return err;
  int64_t id;
  {
    LockScope l(&sched.lock);
    id = mReserveID();
    sched.nmsys++;
  }
  // What is submitted before it runs it finds.
  newm([] { ring.run(); }, nullptr, id);
  return 0;
}

int64_t ringRead(int fd, void* buf, size_t n, int64_t offset) {
  RingCall c{.op = RingCall::Op::kRead,
             .fd = fd,
             .addr = reinterpret_cast<uintptr_t>(buf),
             .len = static_cast<uint32_t>(n),
             .offset = offset};
  return call(&c);
}

int64_t ringWrite(int fd, const void* buf, size_t n, int64_t offset) {
  RingCall c{.op = RingCall::Op::kWrite,
             .fd = fd,
             .addr = reinterpret_cast<uintptr_t>(buf),
             .len = static_cast<uint32_t>(n),
             .offset = offset};
  return call(&c);
}

bool ringWatches() { return ring.defers(); }

void ringWatch(PollDesc* pd) {
  RingCall c{.op = RingCall::Op::kWatch,
             .addr = reinterpret_cast<uintptr_t>(pd)};
  (void)call(&c);
}

void ringUnwatch(PollDesc* pd) {
  RingCall c{.op = RingCall::Op::kUnwatch,
             .addr = reinterpret_cast<uintptr_t>(pd)};
  (void)call(&c);
}

}  // namespace gump::rt
