// One-shot waits. They have an epoll instance of their own, the inner instance.
// It is itself a descriptor of the poller, so every back end serves it. The
// thread that polls handles its events (takeEvents).
//
//   waiter                                   thread that polls
//   W1 poll(fds, 0); ready: done             P1 epoll_wait, inner instance
//   W2 lock the number's entry               P2 lock the number's entry
//   W3 put a node into its list              P3 another generation: stale
//   W4 arm: MOD, or ADD if there is none     P4 ready the waiters that want the
//   W5 unlock                                   event, and take their nodes
//   W6 park, for a limited time              P5 others are left: arm
//   W7 lock, take the node out, unlock       P6 unlock
//   W8 from W1 again
//
// Arming is one call of epoll_ctl, with EPOLLONESHOT, for the events that all
// waiters of the number want. The kernel then reports one event, and nothing
// after that until the next arming. So there is nothing to undo when a wait
// ends or the descriptor is closed. The data of an event carry the number and
// the entry's generation, which each arming increments.
//
// Invariants:
//  (O1) While the list of an entry is not empty, the last arming that succeeded
//       wants at least the events of all nodes in it. The exceptions are nodes
//       of a file that the kernel has refused (EPERM). W2 to W5 and P2 to P6
//       are under the lock, so a later arming is never of an older list.
//  (O2) An event of the current generation has used up the last arming. P4 and
//       P5 restore (O1). If P5 fails, all are readied.
//  (O3) An event of an older generation is dropped. An arming has succeeded
//       since, and (O1) holds for it.
//  (O4) A node is touched only under the lock of its entry. W7 takes the lock
//       even if the node has been taken. So the stack of a waiter that goes on
//       is touched by no other thread, and neither is its PollDesc.
//  (O5) The answer of a wait is never taken from an event. W1 asks the kernel.
//       So a waiter may be readied for nothing at any time.
//
// Why no wake-up is lost. Let a descriptor become ready.
//  * Before W1: W1 sees it.
//  * Between W1 and W4: MOD and ADD look at the present state, and report it.
//  * After W4: the kernel puts the event into the list of the inner instance.
//    That is an edge for the back end. A thread polls, because the waiter has
//    counted itself before it parks (netpoll.cc), or the ring's thread is told.
//  * An edge that a thread has taken from the back end covers all events that
//    were in that list at that time. P1 goes on until the list is empty. An
//    event that comes later makes a new edge.
//  * Between W5 and W6: netpollready notes it in the waiter's PollDesc. W6 then
//    does not park.
// The time limit is the deadline of that PollDesc, which is bare: it stands for
// the waiter, not for a descriptor. polldesc.h argues that a deadline is not
// lost.
//
// Several waiters of one number, and one waiter with several entries of one
// number, are nodes of one list. A reader does not wake a writer: P4 compares
// the events. HUP and ERR wake all, as in poll(2).
//
// A wait that has timed out leaves its arming behind. The event that comes
// finds no node of that waiter. It costs one look, and one arming if there are
// others.
//
// Numbers that change hands. The kernel knows a registration by the file and
// the number. An arming is for the file that the number names at that moment.
//  * Closed, and the file is gone: so is its registration. MOD and ADD fail
//    with EBADF. The waiter does not park, and W1 reports POLLNVAL.
//  * Closed, but a duplicate keeps the file: its registration stays, with an
//    old generation. That gives one stale event at most (O3).
//  * Used for another file: MOD fails with ENOENT, and ADD follows. Waiters of
//    the old file, which poll(2) would leave waiting for that, wait for the new
//    one from then on.
//  * Closed while a goroutine waits: no event comes. The caller of onceClosed
//    wakes the waiters. If onceClosed takes the lock before W2, W4 finds the
//    descriptor closed, or the next file of the number. If it takes it after
//    W5, it finds the node. Another thread may get the number between the close
//    and onceClosed, and wait for it. So only nodes that onceClosing has marked
//    are told of the close. A waiter that came after onceClosing has begun its
//    call while the number was being closed. It asks the kernel, and finds the
//    old file, none, or the next one, as poll(2) might.
//
// EPERM: regular files and the like are always ready for reading and writing,
// which W1 has seen. For other events they never are. The node stays in the
// list for onceClosed.
//
// Other failures (ENOMEM, ENOSPC; ELOOP: an epoll instance inside too many
// others; EINVAL: a file in some 500 nested instances, by its duplicates) mean
// that this wait is not possible. The waiter then blocks its
// thread in poll(2), in a declared call. The same happens if the process has no
// descriptor left for the inner instance.
//
// Callers. Nothing here belongs to a P or an M.
//  * A goroutine that is locked to its thread, or belongs to a home, a group or
//    a bubble, parks as it does for an FD. To a bubble it is busy meanwhile,
//    and its time limit is real time.
//  * A plain thread gains nothing by all this, and calls poll(2).
//  * In a child of fork the inner instance is the parent's. A call of epoll_ctl
//    there would change what the parent waits for. So the child calls poll(2).
//  * When main ends, parked waiters stay in their lists. They go on in the next
//    Run.
//  * A call without any descriptor is a sleep, or a select without cases.
//
// Many waiters. An arming takes the same time however many nodes are in the
// list, because `wanted` only grows until P4 computes it anew. If it has a bit
// that no node wants, that costs one event for nothing, and then `wanted` is
// exact. An event that all of 10,000 waiters want readies them in one pass.
//
// Rejected:
//  - A PollDesc for each descriptor. It is registered from open to close, and
//    we see neither.
//  - A duplicate for each wait: two more calls, and close would not end the
//    connection.
//  - Registering in the back end's own epoll. The ring has none, and its events
//    carry PollDescs.
//  - A goroutine that reads the events of the inner instance. It would cost a
//    switch for each wake-up, and would not run once main has ended.
#include "netpoll/once.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <new>

#include "absl/base/thread_annotations.h"
#include "gump/internal/linkname.h"
#include "netpoll/polldesc.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/hibernate.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/base.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/chan.h"

namespace gump::rt {
namespace {

struct OnceEntry;

// OnceNode is one descriptor of a call that waits. It lies on the stack of the
// waiter, or in memory of its own.
struct OnceNode {
  OnceEntry* entry = nullptr;  // nullptr: ignored
  PollDesc* pd = nullptr;      // the waiter's
  uint32_t events = 0;
  bool queued = false;   // (O4), like the links
  bool closing = false;  // likewise: it was there at onceClosing
  bool closed = false;   // likewise: onceClosed has told it of the close
  OnceNode* next = nullptr;
  OnceNode* prev = nullptr;
};

// OnceEntry belongs to one descriptor number. It is never freed.
struct alignas(kCacheLine) OnceEntry {
  // Guards the rest, and all nodes of the list. It is held during one or two
  // calls of epoll_ctl, which wait only for the server of a FUSE file.
  // Forbidden while holding it: malloc, and locks other than those that
  // readying a goroutine takes.
  Mutex lock{LockRank::kPollNumber};
  uint32_t generation ABSL_GUARDED_BY(lock) = 0;
  // At least the events of all nodes; 0 if there are none.
  uint32_t wanted ABSL_GUARDED_BY(lock) = 0;
  OnceNode* first ABSL_GUARDED_BY(lock) = nullptr;
};

// ---- The entries ------------------------------------------------------------

constexpr unsigned kChunkSize = kModelBuild ? 4 : 1024;
constexpr unsigned kChunks = kModelBuild ? 2 : 16384;

Atomic<OnceEntry*> chunks[kChunks];

// findEntry returns the entry of fd, or nullptr if there is none yet.
OnceEntry* findEntry(int fd) {
  const auto i = static_cast<unsigned>(fd);
  if (i / kChunkSize >= kChunks) return nullptr;
  // Acquire: pairs with the release in makeEntry.
  OnceEntry* chunk = chunks[i / kChunkSize].load(acquire);
  return chunk == nullptr ? nullptr : &chunk[i % kChunkSize];
}

// makeEntry returns the entry of fd, and makes it if there is none yet. Returns
// nullptr if there is no memory, or if fd is above 16,777,215.
OnceEntry* makeEntry(int fd) {
  if (OnceEntry* e = findEntry(fd)) return e;
  const auto i = static_cast<unsigned>(fd);
  if (i / kChunkSize >= kChunks) return nullptr;
  // Guards the making of chunks. Forbidden while holding it: everything but
  // kMem.
  static constinit Mutex growing{LockRank::kPollCache};
  LockScope l(&growing);
  Atomic<OnceEntry*>* chunk = &chunks[i / kChunkSize];
  if (chunk->load(relaxed) == nullptr) {  // written under `growing`
    void* p =
        persistentalloc(sizeof(OnceEntry) * kChunkSize, alignof(OnceEntry));
    if (p == nullptr) return nullptr;
    auto* entries = static_cast<OnceEntry*>(p);
    for (unsigned k = 0; k < kChunkSize; k++) new (&entries[k]) OnceEntry;
    chunk->store(entries, release);  // pairs with findEntry
  }
  return &chunk->load(relaxed)[i % kChunkSize];
}

// ---- The inner epoll instance -----------------------------------------------

Atomic<int> innerFd{-1};

// packData makes the 64 bits that the kernel hands back with an event.
// numberOf and generationOf take them apart.
uint64_t packData(int fd, uint32_t generation) {
  return uint64_t{static_cast<uint32_t>(fd)} << 32 | generation;
}
int numberOf(uint64_t data) { return static_cast<int>(data >> 32); }
uint32_t generationOf(uint64_t data) { return static_cast<uint32_t>(data); }

[[noreturn]] void innerFailed(const char* call, int fd, int err) {
  printf("runtime: %s on fd %d failed with %d\n", call, fd, err);
  fatalthrow("runtime: netpoll failed");
}

// checkInner ends the program if it has closed the inner instance. Otherwise
// waiters would take its EBADF for that of their descriptor, and ask again for
// ever.
void checkInner(int inner) {
  if (kModelBuild) return;
  const int flags = tryMake([=] { return fcntl(inner, F_GETFD); });
  if (flags < 0) innerFailed("epollctl", inner, -flags);
}

// control registers a one-shot wait. Returns 0 or the errno. If other threads
// exchange the file between the two calls, ADD may find it registered.
int control(int fd, epoll_event* ev) {
  const int inner = innerFd.load(relaxed);  // startOnce has seen it
  for (int i = 0; i < 3; i++) {
    int err = -tryMake([=] { return epoll_ctl(inner, EPOLL_CTL_MOD, fd, ev); });
    if (err == EBADF) checkInner(inner);
    if (err != ENOENT) return err;
    err = -tryMake([=] { return epoll_ctl(inner, EPOLL_CTL_ADD, fd, ev); });
    if (err != EEXIST) return err;
  }
  return EBADF;  // as if it were closed: the caller asks again
}

// arm is W4 and P5. Returns 0 or the errno.
int arm(OnceEntry* e, int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(e->lock) {
  epoll_event ev{};
  ev.events = e->wanted | EPOLLONESHOT;
  ev.data.u64 = packData(fd, e->generation + 1);
  const int err = control(fd, &ev);
  // Otherwise an older arming is in force, with the older generation (O2).
  if (err == 0) e->generation++;
  return err;
}

void unlinkNode(OnceEntry* e, OnceNode* n)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(e->lock) {
  // Nodes lie on the stacks of their waiters, which may hibernate.
  if (n->prev != nullptr) nearStack(n->prev);
  if (n->next != nullptr) nearStack(n->next);
  n->queued = false;
  (n->prev == nullptr ? e->first : n->prev->next) = n->next;
  if (n->next != nullptr) n->next->prev = n->prev;
  if (e->first == nullptr) e->wanted = 0;
}

// takeNodes takes out the nodes that want one of the events, and moves their
// waiters to r. It leaves in e->wanted what the other nodes want. `gone` tells
// the waiters that were there at onceClosing that their descriptor is closed.
void takeNodes(OnceEntry* e, uint32_t events, NetpollResult* r,
               bool gone = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(e->lock) {
  uint32_t wanted = 0;
  for (OnceNode *n = e->first, *next; n != nullptr; n = next) {
    nearStack(n);
    next = n->next;
    if (((n->events | EPOLLERR | EPOLLHUP) & events) == 0) {
      wanted |= n->events;
      continue;
    }
    unlinkNode(e, n);
    n->closed = gone && n->closing;
    netpollready(r, n->pd, /*read=*/true, /*write=*/false);
  }
  e->wanted = wanted;
}

constexpr uint32_t kForAll = EPOLLERR;  // every waiter wants it

// takeEvent is P2 to P6.
// On: any, m.locks > 0.  P: either.  Locks: takes kPollNumber.  Parks: no.
void takeEvent(const epoll_event& ev, NetpollResult* r) {
  const int fd = numberOf(ev.data.u64);
  OnceEntry* e = findEntry(fd);
  LockScope l(&e->lock);
  if (e->generation != generationOf(ev.data.u64) || e->first == nullptr) {
    stats.staleEvents.add(1, relaxed);  // a figure
    return;
  }
  takeNodes(e, ev.events, r);
  if (e->first != nullptr && arm(e, fd) != 0) takeNodes(e, kForAll, r);
}

// takeEvents is P1: the handler of the inner instance's PollDesc.
void takeEvents(NetpollResult* r) {
  constexpr int kAtOnce = kModelBuild ? 1 : 64;
  epoll_event events[kAtOnce];
  const int inner = innerFd.load(acquire);  // pairs with tryStart
  int n;
  do {
    n = tryMake([&] { return epoll_wait(inner, events, kAtOnce, 0); });
    if (n < 0 && n != -EINTR) {
      // A stale event of the PollDesc, while tryStart fails.
      if (innerFd.load(relaxed) != inner || inner < 0) return;
      innerFailed("epollwait", inner, -n);
    }
    for (int i = 0; i < n; i++) takeEvent(events[i], r);
  } while (n == kAtOnce || n == -EINTR);
}

// tryStart makes the inner instance and registers it. Returns 0 or the errno.
// One thread at a time calls it.
int tryStart() {
  const int fd = newDescriptor([] { return epoll_create1(EPOLL_CLOEXEC); });
  if (fd < 0) return -fd;
  // Release: pairs with startOnce and takeEvents.
  innerFd.store(fd, release);
  int err;
  if (pollOpen(fd, &err, takeEvents) != nullptr) return 0;
  innerFd.store(-1, relaxed);
  close(fd);
  return err;
}

Atomic<bool> started;

// startOnce makes the inner instance if there is none yet. Returns 0, or the
// errno of the attempt. A later call tries again.
// On: user, m.locks == 0.  P: needed.  Locks: as pollOpen.  Parks: yes.
int startOnce() {
  // A semaphore, because pollOpen may park.
  static constinit Atomic<uint32_t> starting{1};
  if (GUMP_LIKELY(started.load(acquire))) return 0;  // pairs with the store
  semacquire(&starting, /*lifo=*/false, SemaReason::kSemacquire);
  int err = 0;
  if (!started.load(relaxed)) {  // written by the holder of `starting`
    err = tryStart();
    if (err == 0) started.store(true, release);
  }
  semrelease(&starting, /*handoff=*/false);
  return err;
}

// ---- A wait -----------------------------------------------------------------

// Nodes holds the nodes of one call, one for each descriptor.
class Nodes {
 public:
  explicit Nodes(size_t n)
      : n_(n), nodes_(n <= kHere ? here_ : new (std::nothrow) OnceNode[n]) {}
  ~Nodes() {
    if (nodes_ != here_) delete[] nodes_;
  }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  // Returns false if there is no memory.
  bool made() const { return nodes_ != nullptr; }
  // enlist is W2 to W5 for all descriptors. Returns 0, or -1 if a descriptor is
  // closed, or the errno that makes the wait impossible.
  int enlist(const pollfd* fds, PollDesc* pd);
  // withdraw is W7. Returns true if a descriptor has been closed meanwhile.
  bool withdraw();

 private:
  static constexpr size_t kHere = 8;

  static int enlistOne(OnceNode* n, int fd);

  const size_t n_;
  OnceNode here_[kHere];
  OnceNode* const nodes_;
};

constexpr int kAskAgain = -100;  // no PollError

int Nodes::enlistOne(OnceNode* n, int fd) {
  OnceEntry* e = n->entry;
  LockScope l(&e->lock);
  n->next = e->first;
  n->prev = nullptr;
  if (e->first != nullptr) {
    nearStack(e->first);
    e->first->prev = n;
  }
  e->first = n;
  n->queued = true;
  e->wanted |= n->events;
  const int err = arm(e, fd);
  if (err == EBADF) return kAskAgain;
  return err == EPERM ? 0 : err;
}

int Nodes::enlist(const pollfd* fds, PollDesc* pd) {
  for (size_t i = 0; i < n_; i++) {
    if (fds[i].fd < 0) continue;
    OnceNode* n = &nodes_[i];
    OnceEntry* e = makeEntry(fds[i].fd);
    if (e == nullptr) return ENOMEM;
    n->entry = e;
    n->pd = pd;
    n->events = static_cast<uint16_t>(fds[i].events);
    const int err = enlistOne(n, fds[i].fd);
    if (err != 0) return err;
  }
  return 0;
}

bool Nodes::withdraw() {
  bool closed = false;
  for (size_t i = 0; i < n_; i++) {
    OnceEntry* e = nodes_[i].entry;
    if (e == nullptr) continue;
    LockScope l(&e->lock);
    if (nodes_[i].queued) unlinkNode(e, &nodes_[i]);
    closed = closed || nodes_[i].closed;
  }
  return closed;
}

// ---- poll(2) ----------------------------------------------------------------

// lookAt is W1.
int lookAt(pollfd* fds, size_t n) {
  int got;
  do {
    got = tryMake([=] { return poll(fds, n, 0); });
  } while (got == -EINTR);
  return got;
}

// blockAt blocks the thread until a descriptor is ready or the time has come.
int blockAt(pollfd* fds, size_t n, int64_t when) {
  for (;;) {
    timespec ts{};
    if (when != kMaxWhen) {
      const int64_t left = when - nanotime();
      if (left <= 0) return lookAt(fds, n);
      ts = {left / 1'000'000'000, left % 1'000'000'000};
    }
    const timespec* limit = when == kMaxWhen ? nullptr : &ts;
    const int got = tryMake([=] { return ppoll(fds, n, limit, nullptr); });
    // After a time-out look at the clock again, because the kernel's is not
    // always ours.
    if (got > 0 || (got < 0 && got != -EINTR)) return got;
  }
}

bool watchesAny(const pollfd* fds, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (fds[i].fd >= 0) return true;
  }
  return false;
}

}  // namespace

int onceWait(const pollfd* fds, size_t n, int64_t when) {
  int err = startOnce();
  if (err != 0) return err;
  Nodes nodes(n);
  if (!nodes.made()) return ENOMEM;
  PollDesc* pd = pollOpenBare(&err);
  if (pd == nullptr) return err;
  if (when != kMaxWhen) pollSetDeadline(pd, when, PollMode::kRead);
  err = nodes.enlist(fds, pd);
  if (err == 0) err = pollWait(pd, PollMode::kRead);  // W6
  if (nodes.withdraw() && err <= 0) err = kErrClosing;
  pollCloseBare(pd);
  return err == kAskAgain ? 0 : err;
}

bool onceMayPark() {
  if (forked.load(relaxed)) return false;  // this very thread has set it
  const G* gp = getg();
  return gp != nullptr && !gp->foreign &&
         (readgstatus(gp) & ~uint32_t{kGscan}) != kGsyscall &&
         onOwnStack(gp,
                    reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
}

void onceClosing(int fd) {
  OnceEntry* e = findEntry(fd);
  if (e == nullptr || forked.load(relaxed)) return;
  LockScope l(&e->lock);
  for (OnceNode* n = e->first; n != nullptr; n = n->next) {
    nearStack(n);
    n->closing = true;
  }
}

void onceClosed(int fd, bool gone) {
  OnceEntry* e = findEntry(fd);
  if (e == nullptr || forked.load(relaxed)) return;
  NetpollResult r;
  {
    LockScope l(&e->lock);
    takeNodes(e, kForAll, &r, gone);
  }
  injectglist(&r.toRun);
  netpollAdjustWaiters(r.delta);
}

namespace {

// pollParked is oncePoll for a goroutine that may park, and that has found
// nothing ready.
int pollParked(pollfd* fds, size_t n, int64_t when) {
  for (;;) {
    const int err = onceWait(fds, n, when);
    if (err > 0) {
      entersyscall();
      const int got = blockAt(fds, n, when);
      exitsyscall();
      return got;
    }
    const int got = lookAt(fds, n);
    if (got != 0 || err == kErrTimeout) return got;
  }
}

// sleepOnly is oncePoll without descriptors.
void sleepOnly(int64_t ns) {
  if (ns < 0 || ns == kMaxWhen) {
    (void)selectgo(nullptr, 0, /*block=*/true);
  } else {
    timeSleep(ns);
  }
}

}  // namespace

int oncePoll(pollfd* fds, size_t n, int64_t ns) {
  pollPreempt();
  const int got = lookAt(fds, n);
  if (got != 0 || ns == 0) return got;
  const bool forEver = ns < 0 || ns == kMaxWhen;
  const int64_t when = forEver ? kMaxWhen : timeAfter(nanotime(), ns);
  if (!onceMayPark()) {
    if (getg() == nullptr || forked.load(relaxed)) return blockAt(fds, n, when);
    entersyscall();
    const int late = blockAt(fds, n, when);
    exitsyscall();
    return late;
  }
  if (watchesAny(fds, n)) return pollParked(fds, n, when);
  sleepOnly(ns);
  return 0;
}

}  // namespace gump::rt
