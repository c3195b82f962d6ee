// Rejected: UFFDIO_WRITEPROTECT, a copy, and then MADV_DONTNEED, which older
// kernels can do. A device that the kernel has given the page to would write
// past the protection, and what it writes between the copy and the release
// would be lost.
#include "runtime/sys/userfault_linux.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/diag/panic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/raw_syscall.h"

namespace gump::rt {

namespace {

int faultfd = -1;  // written by userfaultOpen, before the other functions run

// The kernel's, which older headers do not have.
constexpr uint64_t kFeatureMove = 1 << 16;
struct MoveArgs {
  uint64_t to;
  uint64_t from;
  uint64_t len;
  uint64_t mode;
  int64_t moved;
};
constexpr unsigned long kMove = _IOWR(0xAA, 0x05, MoveArgs);
constexpr unsigned long kNew = _IO(0xAA, 0x00);  // of /dev/userfaultfd

int control(int fd, unsigned long what, void* args) {
  return static_cast<int>(-rawSyscall(SYS_ioctl, fd, static_cast<long>(what),
                                      asArg(args), 0, 0, 0));
}

// openDevice is for a process that has /dev/userfaultfd.
int openDevice() {
  const int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (dev < 0) return -1;
  const int fd = ioctl(dev, kNew, O_CLOEXEC | O_NONBLOCK);
  const int saved = errno;
  close(dev);
  errno = saved;
  return fd;
}

int openAny() {
  const auto fd = static_cast<int>(
      syscall(SYS_userfaultfd, long{O_CLOEXEC} | long{O_NONBLOCK}));
  if (fd >= 0) return fd;
  const int saved = errno;
  const int other = openDevice();
  if (other < 0) errno = saved;  // says more than that there is no device
  return other;
}

}  // namespace

int userfaultOpen() {
  const int fd = newDescriptor(openAny);
  if (fd < 0) return -fd;
  uffdio_api api{UFFD_API, kFeatureMove, 0};
  if (const int err = control(fd, UFFDIO_API, &api)) {
    (void)rawSyscall(SYS_close, fd, 0, 0, 0, 0, 0);
    return err;
  }
  faultfd = fd;
  return 0;
}

int userfaultWatch(uintptr_t p, size_t n) {
  uffdio_register args{{p, n}, UFFDIO_REGISTER_MODE_MISSING, 0};
  return control(faultfd, UFFDIO_REGISTER, &args);
}

int userfaultUnwatch(uintptr_t p, size_t n) {
  uffdio_range range{p, n};
  return control(faultfd, UFFDIO_UNREGISTER, &range);
}

int userfaultMove(uintptr_t to, uintptr_t from) {
  MoveArgs args{to, from, kPageSize, 0, 0};
  return control(faultfd, kMove, &args);
}

void userfaultWake(uintptr_t p) {
  uffdio_range range{p, kPageSize};
  (void)control(faultfd, UFFDIO_WAKE, &range);
}

int userfaultCopy(uintptr_t to, const void* page) {
  uffdio_copy args{to, reinterpret_cast<uintptr_t>(page), kPageSize, 0, 0};
  return control(faultfd, UFFDIO_COPY, &args);
}

int userfaultZero(uintptr_t to) {
  uffdio_zeropage args{{to, kPageSize}, 0, 0};
  const int err = control(faultfd, UFFDIO_ZEROPAGE, &args);
  if (err != EEXIST && err != ENOENT) return err;
  userfaultWake(to);  // there is a page, or `to` is not watched any more
  return 0;
}

bool userfaultDrop(uintptr_t p, size_t n) {
  return rawSyscall(SYS_madvise, static_cast<long>(p), static_cast<long>(n),
                    MADV_DONTNEED, 0, 0, 0) == 0;
}

size_t userfaultNext(uintptr_t* faults, size_t n, bool wait) {
  constexpr size_t kMost = 16;
  uffd_msg messages[kMost];
  for (;;) {
    const long got = rawSyscall(
        SYS_read, faultfd, asArg(messages),
        static_cast<long>(std::min(n, kMost) * sizeof(uffd_msg)), 0, 0, 0);
    if (got > 0) {
      size_t found = 0;
      for (size_t i = 0; i < static_cast<size_t>(got) / sizeof(uffd_msg); i++) {
        if (messages[i].event != UFFD_EVENT_PAGEFAULT) continue;
        faults[found++] = static_cast<uintptr_t>(
            messages[i].arg.pagefault.address & ~(uint64_t{kPageSize} - 1));
      }
      return found;
    }
    if (got != -EAGAIN && got != -EINTR) {
      // The kernel has forgotten which pages are away, so there is no dump.
      printf(
          "fatal error: hibernation: the program has closed the userfaultfd\n");
      _exit(2);
    }
    if (!wait) return 0;
    pollfd fd{faultfd, POLLIN, 0};
    (void)rawSyscall(SYS_ppoll, asArg(&fd), 1, 0, 0, 0, 0);
  }
}

}  // namespace gump::rt
