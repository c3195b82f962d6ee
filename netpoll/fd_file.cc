// Files that no poller takes: regular files, block devices, and descriptors
// that another process shares and needs as blocking ones.
//
// The caller itself reads data that is in the page cache. The ring (ring.h)
// waits for all other data, and for transfers past the page cache (O_DIRECT).
// The ring does not make the call itself in these cases:
//  - A transfer at the file's position, which the ring does not move as read(2)
//    does. If a read through the page cache would wait, the ring only fills the
//    cache. The caller then reads from it.
//  - A file system that cannot tell which call would wait, as those on a
//    network. There the kernel would leave every call to one of the ring's few
//    workers, and a server that is gone would keep them all.
//  - A buffered write. It goes to the page cache and seldom waits, so it is an
//    ordinary call.
//  - Pipes and devices that another process needs as blocking ones. They could
//    keep the ring's workers for ever.
// Ordinary calls are declared. An fsync nearly always waits for the disk. On
// file systems that can tell which call would wait it goes to the ring. The
// ring's workers then wait in the goroutine's place.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "netpoll/fd.h"
#include "netpoll/fd_calls.h"
#include "netpoll/ring.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/base.h"

namespace gump::rt {
namespace {

// The most that one call copies from the page cache: some 50 µs.
constexpr size_t kMaxCached = size_t{1} << 18;
// An offset past the end of any file. An RWF_NOWAIT read there shows whether
// the file system supports RWF_NOWAIT.
constexpr int64_t kPastAnyEnd = int64_t{1} << 62;

// needsBlockingCall returns true if r means that the call has not been made, so
// that the caller's thread must make it. In the order of the errors below: the
// kernel would have to wait, or cannot tell, or had no worker for the ring
// (because the limit of processes is reached).
bool needsBlockingCall(int64_t r) {
  return r == -EAGAIN || r == -EOPNOTSUPP || r == -ECANCELED;
}

}  // namespace

// No lock: the call has an offset of its own, and the kernel allows parallel
// calls.
IoResult FD::pread(void* buf, size_t n, int64_t offset) {
  if (offset < 0) return {0, EINVAL};
  IoResult r;
  r.err = enter();
  if (r.err != 0) return r;
  n = std::min(n, kMaxRW);
  r = uninterrupted([&] { return fileRead(buf, n, offset); });
  leave();
  return r;
}

IoResult FD::pwrite(const void* buf, size_t n, int64_t offset) {
  if (offset < 0) return {0, EINVAL};
  IoResult done;
  done.err = enter();
  if (done.err != 0) return done;
  const char* p = static_cast<const char*>(buf);
  while (done.n < n && done.err == 0) {
    const size_t part = std::min(n - done.n, kMaxRW);
    const auto at = offset + static_cast<int64_t>(done.n);
    const IoResult r =
        uninterrupted([&] { return fileWrite(p + done.n, part, at); });
    done.n += r.n;
    done.err = r.err == 0 && r.n == 0 ? EIO : r.err;
  }
  leave();
  return done;
}

int FD::sync() {
  const int err = enter();
  if (err != 0) return err;
  const IoResult r = uninterrupted([&] { return fileSync(); });
  leave();
  return r.err;
}

FD::FileWay FD::fileWay() {
  // Relaxed: a thread that finds out again gets the same answer.
  const FileWay known = fileWay_.load(relaxed);
  if (GUMP_LIKELY(known != FileWay::kUnknown)) return known;
  FileWay way = FileWay::kKernel;
  struct stat st;
  if (fstat(fd_, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)) &&
      // A hint: without a new thread the ring cannot start.
      !sched.threadsShort.load(relaxed) && ringStart() == 0) {
    const bool direct = (fcntl(fd_, F_GETFL) & O_DIRECT) != 0;
    if (!direct) {
      way = FileWay::kCached;
    } else if (supportsNowait()) {
      way = FileWay::kRing;
    }
  }
  fileWay_.store(way, relaxed);
  return way;
}

bool FD::supportsNowait() {
  char c;
  const int64_t n = cachedRead(&c, 1, kPastAnyEnd);
  if (n != -EBADF) {
    // EINVAL, of a direct read: it supports the flag, but not this size.
    return n >= 0 || n == -EINVAL || n == -EAGAIN;
  }
  // The descriptor is open for writing only, as that of a log often is. No call
  // on it tells whether the flag is supported. Go by the file system.
  struct statfs fs;
  if (fstatfs(fd_, &fs) != 0) return false;
  switch (static_cast<uint32_t>(fs.f_type)) {
    case EXT4_SUPER_MAGIC:  // and of ext2, ext3
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
      return true;
    default:
      return false;
  }
}

int64_t FD::cachedRead(void* buf, size_t n, int64_t offset) {
  // Linux 5.9 and 5.10 may return 0 here although the file has not ended. They
  // do not come here, because the ring needs 5.13.
  const SysResult s = tryCall([&] {
    const iovec one{buf, n};
    return ::preadv2(fd_, &one, 1, offset, RWF_NOWAIT);
  });
  if (s.n >= 0) return s.n;
  // Replace each error that may mean that there is no such call, or no such
  // flag for this file. If the error is about this read instead, the read(2)
  // that fileRead then makes returns it as well.
  return lacksCall(s.err) ? -EOPNOTSUPP : -s.err;
}

int64_t FD::fileRead(void* buf, size_t n, int64_t offset) {
  const FileWay way = fileWay();
  // A copy out of the page cache must be short, because the goroutine keeps its
  // P meanwhile. A copy by the ring must be short too, because the ring's
  // thread serves one call after the other.
  if (way != FileWay::kKernel) n = std::min(n, kMaxCached);
  int64_t r = -EOPNOTSUPP;
  if (way == FileWay::kCached) {
    r = cachedRead(buf, n, offset);
    if (r == -EAGAIN && offset >= 0) {
      r = ringRead(fd_, buf, n, offset);
    } else if (r == -EAGAIN) {
      // The ring would move the position without taking the kernel's lock on
      // it. So the ring only brings the data into the page cache, and we read
      // them again.
      (void)ringRead(fd_, buf, n,
                     tryCall([&] { return ::lseek(fd_, 0, SEEK_CUR); }).n);
      r = cachedRead(buf, n, offset);
    }
    // The file system cannot tell which call would wait, and so the ring would
    // only give the call to a thread of its own.
    if (r == -EOPNOTSUPP) {
      fileWay_.store(FileWay::kKernel, relaxed);  // as in fileWay
    }
  } else if (way == FileWay::kRing && offset >= 0) {
    r = ringRead(fd_, buf, n, offset);
  }
  if (!needsBlockingCall(r)) return r;
  const SysResult s = blockingCall([&] {
    return offset < 0 ? ::read(fd_, buf, n) : ::pread(fd_, buf, n, offset);
  });
  return s.n < 0 ? -s.err : s.n;
}

int64_t FD::fileWrite(const void* buf, size_t n, int64_t offset) {
  if (offset >= 0 && fileWay() == FileWay::kRing) {
    const int64_t r = ringWrite(fd_, buf, n, offset);
    if (!needsBlockingCall(r)) return r;
  }
  const SysResult s = blockingCall([&] {
    if (offset >= 0) return ::pwrite(fd_, buf, n, offset);
    const iovec one{const_cast<void*>(buf), n};
    return writeQuietly(&one, 1);
  });
  return s.n < 0 ? -s.err : s.n;
}

int64_t FD::fileSync() {
  if (kind_ == FdKind::kFile && fileWay() != FileWay::kKernel) {
    // A kCached file need not have been probed yet. The probe is cheap compared
    // with an fsync.
    if (supportsNowait()) {
      const int64_t r = ringSync(fd_);
      if (!needsBlockingCall(r)) return r;
    } else {
      fileWay_.store(FileWay::kKernel, relaxed);  // as in fileWay
    }
  }
  const SysResult s = blockingCall([&] { return ::fsync(fd_); });
  return s.n < 0 ? -s.err : s.n;
}

}  // namespace gump::rt
