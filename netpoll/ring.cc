// The thread that owns the ring, and how goroutines ask it.
//
// A goroutine that wants an operation parks, and pushes a RingCall, which is on
// its own stack, to `submitted`. Inside a declared call its thread sleeps on a
// Note instead of parking. The ring thread takes all calls at once. In one
// system call it hands them to the kernel and waits for completions. It then
// readies the goroutines whose calls are complete.
//
// No call is forgotten. A thread that pushes to an empty `submitted` then loads
// `asleep`; the ring thread stores asleep and then loads submitted. All four
// are seq_cst, so one sees the other. Either the ring thread does not sleep, or
// the eventfd, which the ring watches, ends its sleep. A thread that pushes
// behind a call that has not been taken yet leaves the wake-up to the pusher of
// that call.
//
// A goroutine's call is pushed by the commit of its park, when its status is
// already kGwaiting. So the goroutine can be readied at once, and the commit
// touches neither it nor the RingCall after the push.
//
// The kernel ends a watch when it has no room for an event of that watch. The
// event is the watch's last, and is handed over when there is room again.
// Re-arm these watches only after draining the completion queue, a few at a
// time: arming reports the current state at once and so needs a free completion
// slot. If there were no room for that either, all of them would be ended and
// re-armed for ever. No edge is missed, because the state that arming reports
// includes the changes that happened in between.
#include "netpoll/ring.h"

#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <utility>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/gqueue.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

struct RingCall {
  enum class Op : uint8_t { kRead, kWrite, kSync, kWatch, kUnwatch };

  Op op;
  int fd = -1;
  uint64_t addr = 0;  // the buffer, or the PollDesc
  uint32_t len = 0;
  int64_t offset = 0;
  int64_t result = 0;
  G* gp = nullptr;           // the parked goroutine; or
  Note* done = nullptr;      // the Note of its thread, in a declared call
  RingCall* link = nullptr;  // in submitted, then in one of Ring's queues
};

namespace {

// Fifo holds calls, or PollDescs, in the order in which they came.
template <class T>
struct Fifo {
  T* head = nullptr;
  T* tail = nullptr;

  bool empty() const { return head == nullptr; }
  void push(T* e) {
    e->link = nullptr;
    (head == nullptr ? head : tail->link) = e;
    tail = e;
  }
  void pushFront(T* e) {
    e->link = head;
    if (head == nullptr) tail = e;
    head = e;
  }
  T* pop() {
    T* e = head;
    if (e != nullptr) head = e->link;
    return e;
  }
};

constexpr unsigned kSubmissions = kModelBuild ? 2 : 256;
constexpr unsigned kCompletions = kModelBuild ? 2 : 4096;
// Transfers, that is, reads and writes, that the kernel may have at a time.
// Their completions always fit, together with a burst of events. (The kernel
// keeps events that do not fit.) Watches are not counted, and do not wait for
// transfers, because a transfer may take long.
constexpr unsigned kMaxInFlight = kCompletions / 2;
// Syncs that the kernel may have at a time. They have a limit of their own, so
// that they delay no transfer. The kernel has workers for only a few of them;
// the others wait in its queue.
constexpr unsigned kMaxSyncing = kModelBuild ? 1 : kCompletions / 16;
// Watches that are re-armed between two looks at the completions.
constexpr unsigned kMaxAgain = kSubmissions;

// The kind of a completion, in the low bits of its user_data.
enum : uint64_t { kCall, kWatched, kWoken, kIgnored, kKindMask = 3 };

// Newest first; see the top of the file.
Atomic<RingCall*> submitted;
Atomic<uint32_t> asleep;
int wakefd = -1;  // written before there is a thread to wake

void submit(RingCall* c) {
  RingCall* head = submitted.load(relaxed);  // the CAS decides
  do {
    c->link = head;
  } while (!submitted.casWeak(head, c, seq_cst));
  if (head == nullptr && asleep.load(seq_cst) != 0 &&
      asleep.xchg(0, seq_cst) != 0) {
    const uint64_t one = 1;
    // The write can fail only with EINTR: it would need 2^64 wakes to block.
    while (write(wakefd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }
}

bool commitCall(G* gp, void* arg) {
  auto* c = static_cast<RingCall*>(arg);
  c->gp = gp;
  netpollAdjustWaiters(1);  // for checkdead: the ring will ready it
  submit(c);
  return true;
}

int64_t call(RingCall* c) {
  G* gp = runtimeEntry();
  M* mp = acquirem();  // gopark ends it; (F1) of fork.cc
  if ((readgstatus(gp) & ~uint32_t{kGscan}) == kGsyscall) {
    // No goroutine parks in a declared call, but its thread may sleep.
    releasem(mp);
    Note done;
    c->done = &done;
    submit(c);
    notesleep(&done);
    return c->result;
  }
  gopark(commitCall, c, WaitReason::kRingWait);
  return c->result;
}

// Ring is used only by its own thread, once that thread runs.
class Ring {
 public:
  // setup makes the ring, which is not yet enabled. Returns 0 or the errno. The
  // caller has a StandardHold.
  int setup();
  // run never returns.
  void run();
  // defers tells whether completions are made only when the thread asks for
  // them.
  bool defers() const {
    return (ring_.flags & IORING_SETUP_DEFER_TASKRUN) != 0;
  }

 private:
  void takeSubmitted();
  // prepareAll moves as many calls to the submission queue as fit.
  void prepareAll();
  // prepareCalls does so for one queue, while *inFlight is less than `most`.
  // *inFlight is inFlight_ or syncing_, which prepare increments.
  void prepareCalls(Fifo<RingCall>* q, const unsigned* inFlight, unsigned most);
  // These return false if there is no room.
  bool prepare(RingCall* c);
  bool prepareWatch(PollDesc* pd);
  bool prepareUnwatch(RingCall* c, PollDesc* pd);
  bool prepareWake();
  // prepareAgain calls prepareWatch for some of the descriptors whose watch the
  // kernel has ended.
  void prepareAgain();
  // idle tells whether there is nothing to do but wait.
  bool idle() const;
  // enter submits the requests, and waits for a completion if idle.
  void enter();
  void reap();
  // overflows tells whether the kernel keeps completions that do not fit.
  bool overflows() const {
    return (IO_URING_READ_ONCE(*ring_.sq.kflags) & IORING_SQ_CQ_OVERFLOW) != 0;
  }
  // tellWatchers ends the calls whose watch has begun, or has failed to begin.
  void tellWatchers();
  void completed(const io_uring_cqe* cqe);
  void watchedEvent(PollDesc* pd, const io_uring_cqe* cqe);
  void finish(RingCall* c, int64_t result);
  // inject readies the goroutines whose calls are complete.
  void inject();
  // takeTurns chooses when this thread runs after it wakes.
  void takeTurns() const;
  // sqe returns room for one request, or nullptr if there is none at the
  // moment.
  io_uring_sqe* sqe();

  io_uring ring_ = {};
  // Calls that have been taken but not prepared: reads and writes; kSync; and
  // kWatch with kUnwatch.
  Fifo<RingCall> transfers_;
  Fifo<RingCall> syncs_;
  Fifo<RingCall> watches_;
  unsigned inFlight_ = 0;     // transfers that the kernel has
  unsigned syncing_ = 0;      // kSync calls that the kernel has
  Fifo<RingCall> beginning_;  // kWatch calls that have been prepared
  // Descriptors to watch again. (While they are open, no other list uses their
  // links.)
  Fifo<PollDesc> again_;
  bool wakeWatched_ = false;  // the kernel has a request for wakefd
  bool starved_ = false;      // the kernel had no memory for a watch
  // The next reap, or the one under way, includes completions that the kernel
  // had no room for at first.
  bool late_ = false;
  NetpollResult done_;
};

constinit Ring ring;

// deniedCall makes the system calls io_uring_enter and io_uring_register, which
// a seccomp filter may deny although it allows io_uring_setup. Returns the
// errno if one is denied, or 0. The ring is not enabled, so the calls have no
// effect.
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
  // With DEFER_TASKRUN the kernel makes completions when the thread asks for
  // them, and does not interrupt the thread for each. This needs Linux 6.1.
  for (const unsigned flags :
       {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0U}) {
    io_uring_params p{};
    p.flags = flags | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE;
    p.cq_entries = kCompletions;
    const int err = io_uring_queue_init_params(kSubmissions, &ring_, &p);
    if (err == -EINVAL && flags != 0) continue;
    if (err != 0) return -err;
    // liburing has two copies of the number, and no call has used it yet.
    ring_.ring_fd = aboveStandard(ring_.ring_fd);
    ring_.enter_ring_fd = ring_.ring_fd;
    // RSRC_TAGS stands for multishot polls, which have no flag of their own.
    // Both came with Linux 5.13.
    constexpr unsigned kNeeded =
        IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS | IORING_FEAT_RSRC_TAGS;
    wakefd = aboveStandard(tryMake([] { return eventfd(0, EFD_CLOEXEC); }));
    int why = wakefd < 0 ? -wakefd : EINVAL;
    if (ring_.ring_fd < 0) {  // no descriptor was left to move it to
      why = -ring_.ring_fd;
    } else if ((p.features & kNeeded) == kNeeded && wakefd >= 0) {
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
  (void)io_uring_submit(&ring_);  // if it fails, enter will say why
  return io_uring_get_sqe(&ring_);
}

bool Ring::prepareWake() {
  io_uring_sqe* s = sqe();
  if (s == nullptr) return false;
  io_uring_prep_poll_multishot(s, wakefd, POLLIN);
  io_uring_sqe_set_data64(s, kWoken);
  wakeWatched_ = true;
  return true;
}

bool Ring::prepareWatch(PollDesc* pd) {
  io_uring_sqe* s = sqe();
  if (s == nullptr) return false;
  io_uring_prep_poll_multishot(s, pd->fd, POLLIN | POLLOUT | POLLRDHUP);
  io_uring_sqe_set_data64(s, reinterpret_cast<uintptr_t>(pd) | kWatched);
  pd->watched = true;
  return true;
}

bool Ring::prepareUnwatch(RingCall* c, PollDesc* pd) {
  // c ends when the cancelled request has ended. If the request has ended
  // already (pd->ended), prepareAgain ends c, and does not watch pd again.
  if (!pd->ended) {
    if (!pd->watched) {
      finish(c, 0);
      return true;
    }
    io_uring_sqe* s = sqe();
    if (s == nullptr) return false;
    io_uring_prep_cancel64(s, c->addr | kWatched, 0);
    io_uring_sqe_set_data64(s, kIgnored);
  }
  pd->unwatcher = c;
  return true;
}

bool Ring::prepare(RingCall* c) {
  auto* pd = reinterpret_cast<PollDesc*>(c->addr);
  if (c->op == RingCall::Op::kUnwatch) return prepareUnwatch(c, pd);
  if (c->op == RingCall::Op::kWatch) {
    if (!prepareWatch(pd)) return false;
    pd->watcher = c;
    beginning_.push(c);
    return true;
  }
  io_uring_sqe* s = sqe();
  if (s == nullptr) return false;
  void* buf = reinterpret_cast<void*>(c->addr);
  const auto offset = static_cast<uint64_t>(c->offset);
  if (c->op == RingCall::Op::kSync) {
    io_uring_prep_fsync(s, c->fd, /*fsync_flags=*/0);
  } else if (c->op == RingCall::Op::kRead) {
    io_uring_prep_read(s, c->fd, buf, c->len, offset);
  } else {
    io_uring_prep_write(s, c->fd, buf, c->len, offset);
  }
  io_uring_sqe_set_data64(s, reinterpret_cast<uintptr_t>(c) | kCall);
  (c->op == RingCall::Op::kSync ? syncing_ : inFlight_)++;
  stats.ringCalls.add(1, relaxed);  // a figure
  return true;
}

void Ring::takeSubmitted() {
  // seq_cst: the argument at the top. It also makes the calls' fields visible.
  RingCall* c = submitted.xchg(nullptr, seq_cst);
  RingCall* oldest = nullptr;
  while (c != nullptr) {
    oldest = std::exchange(c, std::exchange(c->link, oldest));
  }
  while (oldest != nullptr) {
    c = std::exchange(oldest, oldest->link);
    const bool transfer =
        c->op == RingCall::Op::kRead || c->op == RingCall::Op::kWrite;
    const bool sync = c->op == RingCall::Op::kSync;
    (transfer ? transfers_ : sync ? syncs_ : watches_).push(c);
  }
}

void Ring::prepareCalls(Fifo<RingCall>* q, const unsigned* inFlight,
                        unsigned most) {
  while (!q->empty() && *inFlight < most) {
    RingCall* c = q->pop();  // it may be gone after prepare
    if (prepare(c)) continue;
    q->pushFront(c);
    return;
  }
}

void Ring::prepareAgain() {
  for (unsigned n = 0; n < kMaxAgain && !again_.empty() && !overflows(); n++) {
    PollDesc* pd = again_.head;
    if (pd->unwatcher == nullptr && !prepareWatch(pd)) return;
    (void)again_.pop();
    pd->ended = false;
    if (!pd->watched) finish(std::exchange(pd->unwatcher, nullptr), 0);
  }
}

void Ring::prepareAll() {
  if (std::exchange(starved_, false)) usleep(1000);
  prepareAgain();
  prepareCalls(&watches_, &inFlight_, UINT_MAX);
  prepareCalls(&transfers_, &inFlight_, kMaxInFlight);
  prepareCalls(&syncs_, &syncing_, kMaxSyncing);
  if (!wakeWatched_) (void)prepareWake();
}

bool Ring::idle() const {
  // Calls that there was no room for are tried again.
  return wakeWatched_ && again_.empty() && watches_.empty() &&
         beginning_.empty() &&
         (transfers_.empty() || inFlight_ >= kMaxInFlight) &&
         (syncs_.empty() || syncing_ >= kMaxSyncing);
}

void Ring::enter() {
  asleep.store(1, seq_cst);  // the argument at the top
  const bool wait = submitted.load(seq_cst) == nullptr && idle();
  M* mp = getg()->m;
  mp->blocked.store(wait, relaxed);  // a hint
  stats.ringEnters.add(1, relaxed);  // a figure
  const int n = wait ? io_uring_submit_and_wait(&ring_, 1)
                     : io_uring_submit_and_get_events(&ring_);
  mp->blocked.store(false, relaxed);
  asleep.store(0, relaxed);  // a wake that still comes does no harm
  // EBUSY: the completions must be taken first.
  if (n >= 0 || n == -EINTR || n == -EBUSY) return;
  if (n == -EAGAIN) {  // the kernel has no memory for requests
    usleep(1000);
    return;
  }
  printf("runtime: io_uring_enter failed with %d\n", -n);
  fatalthrow("runtime: io_uring failed");
}

void Ring::finish(RingCall* c, int64_t result) {
  c->result = result;
  if (c->done != nullptr) {
    notewakeup(c->done);
  } else {
    netpolldeliver(&done_, c->gp);
  }
}

void Ring::watchedEvent(PollDesc* pd, const io_uring_cqe* cqe) {
  const bool last = (cqe->flags & IORING_CQE_F_MORE) == 0;
  const bool changed = std::exchange(pd->changes, !last);
  if (last) pd->watched = false;
  if (pd->unwatcher != nullptr) {
    if (last) finish(std::exchange(pd->unwatcher, nullptr), 0);
    return;
  }
  if (cqe->res < 0 && pd->watcher != nullptr) {  // the watch has not begun
    pd->watcher->result = cqe->res;
    return;
  }
  const bool starved = cqe->res == -ENOMEM || cqe->res == -EAGAIN;
  // A descriptor with a handler is an epoll instance, whose state always can
  // change. The kernel also ends a watch of it when the event comes from a ring
  // (EPOLL_URING_WAKE).
  const bool lasting =
      changed || late_ || pd->handler.load(relaxed) != nullptr;  // constant
  // The kernel ends a watch when it has no room or no memory, and then we
  // re-arm the watch. If the state of the file cannot change any more, the
  // kernel ends the watch with its first event, and we do not re-arm it.
  if (last && (starved || (cqe->res >= 0 && lasting))) {
    pd->ended = true;
    again_.push(pd);
  }
  if (starved) {
    starved_ = true;
  } else {
    uringEvent(pd, cqe->res, &done_);
  }
}

void Ring::completed(const io_uring_cqe* cqe) {
  const uint64_t data = cqe->user_data;
  void* about = reinterpret_cast<void*>(data & ~uint64_t{kKindMask});
  switch (data & kKindMask) {
    case kCall: {
      auto* c = static_cast<RingCall*>(about);
      (c->op == RingCall::Op::kSync ? syncing_ : inFlight_)--;
      stats.ringCompleted.add(1, relaxed);  // a figure
      finish(c, cqe->res);
      break;
    }
    case kWatched:
      watchedEvent(static_cast<PollDesc*>(about), cqe);
      break;
    case kWoken:
      if ((cqe->flags & IORING_CQE_F_MORE) == 0) wakeWatched_ = false;
      if (cqe->res < 0) starved_ = true;
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
  // If completions did not fit, the kernel hands them over when this thread
  // next enters it, which is before the next reap. It has not done so yet,
  // because there was no room before the advance above.
  late_ = overflows();
}

void Ring::tellWatchers() {
  // If a watch has failed to begin, its completion has been reaped, unless the
  // request was submitted late or the completion did not fit.
  if (io_uring_sq_ready(&ring_) != 0 || late_) return;
  while (RingCall* c = beginning_.pop()) {
    reinterpret_cast<PollDesc*>(c->addr)->watcher = nullptr;
    finish(c, c->result);
  }
}

void Ring::inject() {
  if (done_.toRun.empty()) return;
  // When this scope ends, checkdead looks again. The goroutines may have run,
  // and gone to sleep for good, while they still counted as waiters.
  const AwakeScope awake;
  NetpollResult r = std::exchange(done_, NetpollResult());
  GList list;  // the goroutine pushed last runs first
  while (G* gp = r.toRun.pop()) list.push(gp);
  injectglist(&list);
  netpollAdjustWaiters(r.delta);
}

void Ring::takeTurns() const {
  // A ring that serves only files: run at once, even if goroutines compute on
  // all processors. Other goroutines wait for the completions, and a disk waits
  // for the next requests.
  //
  // A ring that watches sockets: an event makes work only for a thread that
  // runs goroutines. If all processors are busy, those threads have work
  // already. Each event that interrupted one of them would cost two switches
  // between threads, and that thread would come back to a queue longer by one
  // goroutine. So this thread waits until a thread of the process sleeps or has
  // used up its slice. Then it takes all events that have come meanwhile, as an
  // M asks epoll only when it has no more goroutines to run. This saves up to a
  // third of the CPU time of a busy server. It changes only when this thread
  // runs, not whether it wakes. The kernel's workers of this ring inherit the
  // class.
  if (debug.netpoll == NetpollChoice::kUring && defers()) {
    systemThreadQueuesOnWake();
  } else {
    systemThreadRunsOnWake();
  }
}

void Ring::run() {
  becomeSystemThread();
  // From now on the ring belongs to this thread. (Debian's liburing declares a
  // function for that, but does not define it.)
  if (syscall(SYS_io_uring_register, ring_.ring_fd,
              IORING_REGISTER_ENABLE_RINGS, nullptr, 0) < 0) {
    printf("runtime: io_uring_register failed with %d\n", errno);
    fatalthrow("runtime: io_uring failed");
  }
  declineSignals();  // TSan does not see liburing's system calls
  takeTurns();
  for (;;) {
    takeSubmitted();
    prepareAll();
    inject();
    enter();
    reap();
    tellWatchers();
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
  dieIfForked();
  (void)runtimeEntry();
  const StandardHold hold;
  // While a goroutine waits for the ring, an M polls; see checkdead.
  netpollGenericInit();
  // Do not let this M be preempted between the store to `state` and newm. A
  // thread that sees the state relies on the ring thread.
  M* mp = acquirem();
  bool first;
  {
    LockScope l(&starting);
    err = state.load(relaxed);  // written under the lock
    first = err == kNotTried;
    if (first) {
      err = debug.netpoll == NetpollChoice::kEpoll ? EPERM : ring.setup();
      state.store(err, release);  // `ring` is complete now
    }
  }
  // Calls submitted before the ring thread starts are picked up when it does.
  if (first && err == 0) newSystemM([] { ring.run(); }, "gump-ring");
  releasem(mp);
  return err;
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

int64_t ringSync(int fd) {
  RingCall c{.op = RingCall::Op::kSync, .fd = fd};
  return call(&c);
}

bool ringWatches() { return ring.defers(); }

int ringWatch(PollDesc* pd) {
  RingCall c{.op = RingCall::Op::kWatch,
             .addr = reinterpret_cast<uintptr_t>(pd)};
  return static_cast<int>(-call(&c));
}

void ringUnwatch(PollDesc* pd) {
  RingCall c{.op = RingCall::Op::kUnwatch,
             .addr = reinterpret_cast<uintptr_t>(pd)};
  (void)call(&c);
}

}  // namespace gump::rt
