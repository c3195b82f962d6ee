// Keeping the library's descriptors out of the standard ones.
//
// The kernel gives a new descriptor the lowest free number. Only a duplicate
// can have a lower bound (F_DUPFD_CLOEXEC). So there are two ways to stay above
// the standard descriptors, and both are used.
//
//  * Hold: before a descriptor is made, the closed standard descriptors are
//    occupied by placeholders. A placeholder is opened with O_PATH: it cannot
//    be read, written or polled, and such calls say EBADF as for a closed one.
//    A child that execs does not get it. The last holder closes them.
//  * Move: a descriptor that is below 3 in spite of that is duplicated, and
//    closed.
//
// The first way alone would cost several system calls for each descriptor of
// each program, and in nearly all programs all three standard descriptors are
// open. So nothing is held until the runtime has seen that one is closed
// (standardFree). It looks at all three when it starts. After that, a new
// descriptor that needs a move shows it.
//
// The second way alone leaves a moment in which the low number means an object
// of ours. A program that prints to a closed standard output then writes to the
// peer of a connection that is just being accepted. With a hold there is no
// such moment. There is one only for the first descriptor after the program has
// closed a standard descriptor under our feet.
//
// Invariants:
//  (D1) Between the return of holdStandard and the call of releaseStandard no
//       standard descriptor is free, unless the program closes one meanwhile,
//       or moveAboveStandard closes one that was made without a hold, or the
//       process has no descriptors left.
//       Proof: holders changes, and placeholders come and go, only under the
//       lock. Each holder fills what is free before it unlocks. releaseStandard
//       closes the placeholders only when it makes `holders` 0. Then no thread
//       is between the two calls.
//  (D2) When there is no holder, no placeholder is left.
//  (D3) A descriptor that aboveStandard returns is 3 or above, and no number
//       below 3 means the same object. A failure closes it, too.
//  (D4) dupOfProgram does not duplicate a placeholder.
//       Proof: it looks and duplicates under the lock. No number becomes a
//       placeholder in between.
//  (D5) onProgram does not return what a call has seen of a placeholder.
//       Proof: if onProgram has a hold, a placeholder that the call has seen is
//       still there when onProgram looks after the call. A look before the call
//       would not do: a descriptor of ours that is being moved (D1) may have
//       fd then, and a placeholder may follow it. If onProgram has no hold,
//       it has read standardFree as false. A thread that makes a placeholder
//       has read it as true before. The kernel orders its open before a call
//       that sees the placeholder. So the load after that call reads true as
//       well, and the call is made again, with a hold.
//
// Why (D4) and (D5): read, write and poll fail on a placeholder by themselves.
// But dup duplicates it, and fstat and fcntl describe it, like any open file. A
// child that gets the duplicate as its standard input would find an open
// directory there instead of a closed descriptor.
//
// A program that puts a file on a closed standard descriptor (dup2) while other
// threads make descriptors has a race of its own: without us, too, those
// threads may get that number just before. We close a placeholder only if it
// is one still, so a file that has replaced it stays. Between that look and the
// close there remains a moment, which no system call can close.
//
// Rejected:
//  * /dev/null on each closed one, as Go does (checkfds). A read would be the
//    end of the file, and a write would succeed.
//  * Placeholders for ever. They are simpler, but a library has no business to
//    change what the process sees of its standard descriptors, and what a later
//    open of the program returns.
#include "runtime/sys/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/sched/fork.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lock_futex.h"

namespace gump::rt {

Atomic<bool> standardFree;

namespace {

struct Placeholders {
  // Guards the members. It is held for some microseconds, in a program without
  // all standard descriptors. Forbidden while holding it: everything.
  Mutex lock;
  int holders ABSL_GUARDED_BY(lock) = 0;
  bool placed[kFirstDescriptor] ABSL_GUARDED_BY(lock) = {};
};
// Call dieIfForked before locking: in a child of fork the holder of the lock
// may be a thread that does not exist there.
constinit Placeholders placeholders;

// The next three functions keep errno. They are not inlined, because the lock
// that their callers take first may let the goroutine change threads (see
// KeepErrno).

// isPlaceholder returns true if fd, which is below 3, is still a placeholder.
// The program may have closed or replaced it. If the program has put an O_PATH
// descriptor of its own there, that counts as the placeholder.
GUMP_NOINLINE bool isPlaceholder(const bool* placed, int fd) {
  if (!placed[fd]) return false;
  const int saved = errno;
  const int flags = fcntl(fd, F_GETFL);
  errno = saved;
  return flags >= 0 && (flags & O_PATH) != 0;
}

// fill occupies all standard descriptors that are free. The kernel gives out
// the lowest number first.
GUMP_NOINLINE void fill(bool* placed) {
  const int saved = errno;
  for (;;) {
    const int fd = open("/", O_PATH | O_CLOEXEC);
    if (fd < 0) break;  // no descriptor is left, so the caller gets none either
    if (fd >= kFirstDescriptor) {
      close(fd);
      break;
    }
    placed[fd] = true;
  }
  errno = saved;
}

GUMP_NOINLINE void removeAll(bool* placed) {
  const int saved = errno;
  for (int fd = 0; fd < kFirstDescriptor; fd++) {
    if (isPlaceholder(placed, fd)) close(fd);
    placed[fd] = false;
  }
  errno = saved;
}

}  // namespace

GUMP_NOINLINE void lookAtStandard() {
  const int saved = errno;
  for (int fd = 0; fd < kFirstDescriptor; fd++) {
    // Relaxed: see StandardHold.
    if (fcntl(fd, F_GETFD) < 0) standardFree.store(true, relaxed);
  }
  errno = saved;
}

void holdStandard() {
  dieIfForked();
  LockScope l(&placeholders.lock);
  placeholders.holders++;
  // Also if there are others: the program may have closed one since.
  fill(placeholders.placed);
}

void releaseStandard() {
  dieIfForked();
  LockScope l(&placeholders.lock);
  if (--placeholders.holders == 0) removeAll(placeholders.placed);
}

bool isHeld(int fd) {
  dieIfForked();
  LockScope l(&placeholders.lock);
  return isPlaceholder(placeholders.placed, fd);
}

int dupOfProgram(int fd) {
  const auto dup = [fd] {
    return fcntl(fd, F_DUPFD_CLOEXEC, kFirstDescriptor);
  };
  if (fd < 0 || fd >= kFirstDescriptor) return tryMake(dup);
  dieIfForked();
  LockScope l(&placeholders.lock);
  return isPlaceholder(placeholders.placed, fd) ? -EBADF : tryMake(dup);
}

GUMP_NOINLINE int moveAboveStandard(int fd) {
  const int saved = errno;
  standardFree.store(true, relaxed);  // as above
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, kFirstDescriptor);
  // EINVAL: the limit of descriptors is 3 or less.
  const int err = errno == EINVAL ? EMFILE : errno;
  close(fd);
  errno = saved;
  return moved < 0 ? -err : moved;
}

GUMP_NOINLINE int raisePair(int* fds) {
  const int saved = errno;
  int err = 0;
  for (int i = 0; i < 2; i++) {
    fds[i] = aboveStandard(fds[i]);
    if (fds[i] < 0 && err == 0) err = fds[i];
  }
  for (int i = 0; i < 2 && err != 0; i++) {
    if (fds[i] >= 0) close(fds[i]);
  }
  errno = saved;
  return err;
}

}  // namespace gump::rt
