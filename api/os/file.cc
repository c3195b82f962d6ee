// Files, on netpoll's FD. Only the kernel knows which files can be polled. So
// files are registered with the poller, and a file that it refuses (EPERM) is a
// blocking one. A descriptor is made non-blocking only after it has been
// registered. So no file becomes non-blocking without a poller to wait for it.
#include "gump/os/file.h"

#include <fcntl.h>

#include <algorithm>
#include <new>

#include "api/os/file.h"
#include "api/status_util.h"
#include "gump/internal/duration_arg.h"
#include "gump/internal/linkname_synctest.h"
#include "gump/synctest.h"
#include "runtime/sched/time.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/os_linux.h"

namespace gump {

namespace internal {

int64_t PollDeadline(absl::Time t) {
  if (t == absl::InfiniteFuture()) return 0;
  // absl::Now is an estimate from the cycle counter, off by microseconds.
  const absl::Time now = rt::currentBubble() == 0
                             ? absl::FromUnixNanos(rt::walltime())
                             : synctest::Now();
  // The poller's clock is read second: the time between is added.
  return rt::timeAfter(rt::nanotime(), DurationArg(t - now).Nanoseconds());
}

os::File AdoptFile(OwnedFd&& fd, std::string name, bool poll) {
  std::shared_ptr<OsFile> file;
  if (poll) {
    file = std::make_shared<OsFile>(fd.get(), rt::FdKind::kPipe, name);
    if (file->fd.init() == 0) {
      const int sysfd = fd.Release();
      const int flags = fcntl(sysfd, F_GETFL);
      file->append = (flags & O_APPEND) != 0;
      file->pollable = true;
      if ((flags & O_NONBLOCK) == 0) fcntl(sysfd, F_SETFL, flags | O_NONBLOCK);
      return OsFileAccess::Make(std::move(file));
    }
  }
  // A standard descriptor may be closed. It then has no flags.
  const int flags = std::max(fcntl(fd.get(), F_GETFL), 0);
  if ((flags & O_NONBLOCK) != 0) {  // no poller could wait for it
    fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
  }
  file = std::make_shared<OsFile>(fd.get(), rt::FdKind::kFile, std::move(name));
  file->append = (flags & O_APPEND) != 0;
  (void)file->fd.init();  // cannot fail for this kind
  (void)fd.Release();
  return OsFileAccess::Make(std::move(file));
}

}  // namespace internal

namespace os {
namespace {

using internal::AdoptFile;
using internal::BlockingSysCall;
using internal::ErrnoOf;
using internal::ErrorStatus;
using internal::kFileClosed;
using internal::OsFile;
using internal::OwnedFd;
using internal::SysCall;

absl::Status NoFile() { return ErrorStatus("", EINVAL, kFileClosed); }

// PathError returns Go's error of this name: "op path: error".
absl::Status PathError(std::string_view op, std::string_view path, int err,
                       size_t written = 0) {
  std::string what(op);
  what.append(" ").append(path);
  return ErrorStatus(what, err, kFileClosed, written);
}

absl::Status PathError(std::string_view op, std::string_view path,
                       const char* text) {
  std::string message(op);
  message.append(" ").append(path).append(": ").append(text);
  return absl::InvalidArgumentError(message);
}

// StatusOf converts an IoResult to the result of a File's function.
absl::StatusOr<size_t> StatusOf(const char* op, const OsFile& f,
                                rt::IoResult r) {
  if (r.err != 0) return PathError(op, f.name, r.err, r.n);
  return r.n;
}

// Control makes a call on the descriptor that may block. Returns 0, or an error
// for PathError.
template <class F>
int Control(OsFile* f, const F& call) {
  return f->fd.with([&](int fd) {
    return ErrnoOf(BlockingSysCall([&] { return call(fd); }));
  });
}

absl::Status SetDeadlineOf(OsFile* f, absl::Time t, rt::PollMode mode) {
  if (f == nullptr) return NoFile();
  const int err = f->fd.setDeadline(gump::internal::PollDeadline(t), mode);
  if (err == 0) return absl::OkStatus();
  return ErrorStatus("", err, "use of closed file");
}

// BaseOf returns the last element of a path.
std::string BaseOf(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  if (path.size() > 1) path.remove_prefix(path.rfind('/') + 1);
  return std::string(path);
}

// StandardFile returns one of descriptors 0 to 2. Dropping it never closes it.
File StandardFile(int fd, const char* name) {
  absl::StatusOr<File> f = NewFile(fd, name);
  if (f.ok()) return *std::move(f);
  // The descriptor is not open. Its operations will report that.
  return AdoptFile(OwnedFd(fd), name, /*poll=*/false);
}

}  // namespace

absl::StatusOr<size_t> File::Read(absl::Span<char> buf) const {
  if (file_ == nullptr) return NoFile();
  return StatusOf("read", *file_, file_->fd.read(buf.data(), buf.size()));
}

absl::StatusOr<size_t> File::Write(std::string_view data) const {
  if (file_ == nullptr) return NoFile();
  return StatusOf("write", *file_, file_->fd.write(data.data(), data.size()));
}

absl::StatusOr<size_t> File::ReadAt(absl::Span<char> buf,
                                    int64_t offset) const {
  if (file_ == nullptr) return NoFile();
  if (offset < 0) return PathError("readat", file_->name, "negative offset");
  size_t n = 0;
  while (n < buf.size()) {
    const rt::IoResult r = file_->fd.pread(buf.data() + n, buf.size() - n,
                                           offset + static_cast<int64_t>(n));
    if (r.err != 0) return PathError("read", file_->name, r.err);
    if (r.n == 0) break;
    n += r.n;
  }
  return n;
}

absl::StatusOr<size_t> File::WriteAt(std::string_view data,
                                     int64_t offset) const {
  if (file_ == nullptr) return NoFile();
  if (file_->append) {
    return absl::InvalidArgumentError(
        "os: invalid use of WriteAt on file opened with O_APPEND");
  }
  if (offset < 0) return PathError("writeat", file_->name, "negative offset");
  return StatusOf("write", *file_,
                  file_->fd.pwrite(data.data(), data.size(), offset));
}

absl::StatusOr<int64_t> File::Seek(int64_t offset, int whence) const {
  if (file_ == nullptr) return NoFile();
  int64_t at = 0;
  const int err = Control(file_.get(), [&](int fd) {
    at = lseek(fd, offset, whence);
    return at;
  });
  if (err != 0) return PathError("seek", file_->name, err);
  return at;
}

absl::Status File::Sync() const {
  if (file_ == nullptr) return NoFile();
  const int err = file_->fd.sync();
  return err == 0 ? absl::OkStatus() : PathError("sync", file_->name, err);
}

absl::Status File::Truncate(int64_t size) const {
  if (file_ == nullptr) return NoFile();
  const int err =
      Control(file_.get(), [&](int fd) { return ftruncate(fd, size); });
  return err == 0 ? absl::OkStatus() : PathError("truncate", file_->name, err);
}

absl::StatusOr<FileInfo> File::Stat() const {
  if (file_ == nullptr) return NoFile();
  struct stat st;
  const int err = file_->fd.with([&](int fd) {
    return ErrnoOf(rt::onProgram(
        fd, [&] { return BlockingSysCall([&] { return fstat(fd, &st); }); }));
  });
  if (err != 0) return PathError("stat", file_->name, err);
  return FileInfo(BaseOf(file_->name), st);
}

absl::Status File::Close() const {
  if (file_ == nullptr) return NoFile();
  // A goroutine that Close wakes may drop the handle *this.
  const std::shared_ptr<OsFile> file = file_;
  const int err = file->fd.close();
  return err == 0 ? absl::OkStatus() : PathError("close", file->name, err);
}

// These functions wake other goroutines, too.
absl::Status File::SetDeadline(absl::Time t) const {
  return SetDeadlineOf(std::shared_ptr(file_).get(), t, rt::PollMode::kBoth);
}
absl::Status File::SetReadDeadline(absl::Time t) const {
  return SetDeadlineOf(std::shared_ptr(file_).get(), t, rt::PollMode::kRead);
}
absl::Status File::SetWriteDeadline(absl::Time t) const {
  return SetDeadlineOf(std::shared_ptr(file_).get(), t, rt::PollMode::kWrite);
}

int File::Fd() const noexcept {
  int number = -1;
  if (file_ == nullptr) return number;
  (void)file_->fd.with([&](int fd) {
    number = fd;
    return 0;
  });
  return number;
}

const std::string& File::Name() const noexcept {
  static const auto* const none = new std::string;
  return file_ == nullptr ? *none : file_->name;
}

absl::StatusOr<File> OpenFile(std::string_view path, int flags, mode_t mode) {
  std::string name(path);
  if (name.find('\0') != std::string::npos) {
    return PathError("open", path, EINVAL);
  }
  const rt::StandardHold hold;
  const int n = rt::aboveStandard(static_cast<int>(BlockingSysCall(
      [&] { return open(name.c_str(), flags | O_CLOEXEC, mode); })));
  if (n < 0) return PathError("open", path, -n);
  OwnedFd fd(n);
  struct stat st;
  // The poller would refuse these. Not asking it is cheaper.
  const bool plain =
      fstat(fd.get(), &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
  return AdoptFile(std::move(fd), std::move(name), !plain);
}

absl::StatusOr<File> Open(std::string_view path) {
  return OpenFile(path, O_RDONLY);
}

absl::StatusOr<File> Create(std::string_view path) {
  return OpenFile(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
}

absl::StatusOr<std::pair<File, File>> Pipe() {
  int fds[2];
  const int n = rt::newDescriptorPair(
      fds, [&] { return pipe2(fds, O_CLOEXEC | O_NONBLOCK); });
  if (n < 0) return ErrorStatus("pipe2", -n, kFileClosed);
  OwnedFd r(fds[0]);
  OwnedFd w(fds[1]);
  File reader = AdoptFile(std::move(r), "|0", /*poll=*/true);
  return std::make_pair(std::move(reader),
                        AdoptFile(std::move(w), "|1", /*poll=*/true));
}

absl::StatusOr<File> NewFile(int fd, std::string_view name) {
  const long flags = rt::onProgram(
      fd, [&] { return SysCall([&] { return fcntl(fd, F_GETFL); }); });
  if (flags < 0) return PathError("file", name, ErrnoOf(flags));
  OwnedFd owned(fd);
  try {
    return AdoptFile(std::move(owned), std::string(name),
                     (flags & O_NONBLOCK) != 0);
  } catch (...) {  // no memory
    (void)owned.Release();
    throw;
  }
}

File Stdin() {
  static const File* const f = new File(StandardFile(0, "/dev/stdin"));
  return *f;
}
File Stdout() {
  static const File* const f = new File(StandardFile(1, "/dev/stdout"));
  return *f;
}
File Stderr() {
  static const File* const f = new File(StandardFile(2, "/dev/stderr"));
  return *f;
}

absl::StatusOr<std::string> ReadFile(std::string_view path) {
  absl::StatusOr<File> f = Open(path);
  if (!f.ok()) return f.status();
  size_t room = 512;
  if (absl::StatusOr<FileInfo> info = f->Stat(); info.ok()) {
    // One byte more, to meet the end without growing. Files of /proc report 0.
    room = std::max(room, static_cast<size_t>(info->Size()) + 1);
  }
  std::string all;
  size_t n = 0;
  for (;;) {
    if (n == all.size()) all.resize(std::max(room, 2 * n));
    absl::StatusOr<size_t> got =
        f->Read(absl::MakeSpan(all.data() + n, all.size() - n));
    if (!got.ok()) return got.status();
    if (*got == 0) break;
    n += *got;
  }
  all.resize(n);
  return all;
}

absl::Status WriteFile(std::string_view path, std::string_view data,
                       mode_t mode) {
  absl::StatusOr<File> f = OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
  if (!f.ok()) return f.status();
  const absl::Status written = f->Write(data).status();
  const absl::Status closed = f->Close();
  return written.ok() ? closed : written;
}

}  // namespace os
}  // namespace gump
