// An os::File is an open file, a pipe, or another descriptor.
//
//   absl::StatusOr<os::File> f = os::Open("/etc/hostname");
//   if (!f.ok()) return f.status();  // NotFound: "open /etc/hostname: no such
//                                    // file or directory"
//   char buf[512];
//   absl::StatusOr<size_t> n = f->Read(buf);  // 0 at the end
//
//   absl::StatusOr<std::string> all = os::ReadFile("/etc/hostname");
//
// A File is a handle: a copy is the same file. The last handle closes it. A
// default-constructed File is no file: its operations fail with InvalidArgument
// "invalid argument".
//
// Operations look as if they blocked. They wait in one of three ways:
//   * On pipes, FIFOs, terminals and other files that the poller takes, only
//     the goroutine waits. Deadlines and Close end the wait.
//   * Reads of regular files go through io_uring if the data is not in the page
//     cache, and if the kernel has io_uring (Linux 5.13) and permits it. So do
//     ReadAt and WriteAt of a file opened with O_DIRECT, and so does Sync. Only
//     the goroutine waits, for as long as the disk takes.
//   * All other calls block in the kernel, and so do all calls on file systems
//     that cannot tell whether a read would wait, such as NFS and tmpfs. Other
//     goroutines run in place of this one.
//
// All functions may be called from goroutines and from plain threads, several
// at a time, also on the same File. Reads of one File take turns, and so do
// writes, but not ReadAt and WriteAt. Unless a comment says otherwise, a
// function may park, and throws only std::bad_alloc.
//
// Requires: there are at most 1,048,575 operations on one File at a time. One
// more is a panic.
//
// Errors are statuses with Go's texts and the errno (status.h), such as "read
// /tmp: is a directory". An operation past its deadline fails with
// DeadlineExceeded "read |0: i/o timeout". An operation on a closed File fails
// with Cancelled "read |0: file already closed". A write to a pipe without a
// reader fails with "write |1: broken pipe". It sends no SIGPIPE, whatever the
// disposition of that signal. (Go dies of SIGPIPE if that pipe is standard
// output or standard error.)
//
// Descriptors are close-on-exec, except those given to NewFile. Those that the
// library makes are 3 or above, even if standard descriptors are closed.
#ifndef GUMP_OS_FILE_H_
#define GUMP_OS_FILE_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/os/file_info.h"

#pragma GCC visibility push(default)

namespace gump::internal {
struct OsFile;
struct OsFileAccess;
}  // namespace gump::internal

namespace gump::os {

// File is the handle described above.
class File {
 public:
  File() noexcept = default;  // no file

  // Read reads at most buf.size() bytes, and returns how many it put into buf.
  // Parks until there is at least one. For a non-empty buf, 0 means the end of
  // the file.
  [[nodiscard]] absl::StatusOr<size_t> Read(absl::Span<char> buf) const;

  // Write writes all of data and returns its size. If it fails,
  // BytesWritten(status) is the number of bytes that were written.
  absl::StatusOr<size_t> Write(std::string_view data) const;

  // ReadAt reads buf.size() bytes at offset, in bytes from the start. It reads
  // fewer only if the file ends before. Returns how many it read. Does not move
  // the position.
  [[nodiscard]] absl::StatusOr<size_t> ReadAt(absl::Span<char> buf,
                                              int64_t offset) const;

  // WriteAt is Write at offset. Does not move the position. Requires: the file
  // was not opened with O_APPEND. Otherwise it fails with InvalidArgument.
  absl::StatusOr<size_t> WriteAt(std::string_view data, int64_t offset) const;

  // Seek sets the position of the next Read or Write and returns it. `whence`
  // is SEEK_SET, SEEK_CUR or SEEK_END: offset is relative to the start, the
  // position or the end.
  absl::StatusOr<int64_t> Seek(int64_t offset, int whence) const;

  // Sync returns when all data that was written is on the disk.
  absl::Status Sync() const;
  // Truncate makes the file `size` bytes long. Does not move the position.
  absl::Status Truncate(int64_t size) const;
  // Stat returns the result of fstat(2).
  [[nodiscard]] absl::StatusOr<FileInfo> Stat() const;

  // Close closes the file. Later operations fail, and so do those in progress.
  // The exceptions are calls that block in the kernel, which end as usual. A
  // second Close fails. If a delayed write has failed, Close returns that
  // error, and the file is closed all the same.
  absl::Status Close() const;

  // SetDeadline sets the deadlines of reads and of writes. SetReadDeadline and
  // SetWriteDeadline set one of them. A read (or write) that would have to wait
  // past its deadline fails, also if it is in progress. If the deadline is in
  // the past, no operation may wait. InfiniteFuture means no deadline. On files
  // that have no deadlines the functions fail with "file type does not support
  // deadline". The time left is measured during the call, so setting the wall
  // clock later has no effect.
  absl::Status SetDeadline(absl::Time t) const;
  absl::Status SetReadDeadline(absl::Time t) const;
  absl::Status SetWriteDeadline(absl::Time t) const;

  // Fd returns the descriptor, which is valid until the File is closed. Returns
  // -1 if there is no file or it has been closed. Descriptors that the poller
  // takes are non-blocking. (Go's Fd makes them blocking.)
  int Fd() const noexcept;
  // Name returns the path given to Open, or "|0" and "|1" for the ends of a
  // pipe.
  const std::string& Name() const noexcept;

  // Returns false if there is no file. Handles are equal if they are the same
  // file.
  explicit operator bool() const noexcept { return file_ != nullptr; }
  friend bool operator==(const File& a, const File& b) noexcept {
    return a.file_ == b.file_;
  }

 private:
  friend struct internal::OsFileAccess;
  std::shared_ptr<internal::OsFile> file_;
};

// OpenFile is open(2). flags are O_RDONLY and so on. mode is the mode of a file
// that it creates, before umask. Opening a FIFO waits for the other side. The
// result is closed by its last handle.
[[nodiscard]] absl::StatusOr<File> OpenFile(std::string_view path, int flags,
                                            mode_t mode = 0);
// Open opens a file for reading.
[[nodiscard]] absl::StatusOr<File> Open(std::string_view path);
// Create opens a file for reading and writing. It makes the file, with mode
// 0666 before umask, or empties the existing one.
[[nodiscard]] absl::StatusOr<File> Create(std::string_view path);

// Pipe makes a pipe. Data written to the second File can be read from the
// first.
//
//   absl::StatusOr<std::pair<os::File, os::File>> p = os::Pipe();
//   auto& [r, w] = *p;
[[nodiscard]] absl::StatusOr<std::pair<File, File>> Pipe();

// NewFile takes ownership of a descriptor. If NewFile fails, fd is still the
// caller's. The poller takes a non-blocking descriptor, as it takes those of
// Pipe. The operations of any other descriptor block in the kernel.
[[nodiscard]] absl::StatusOr<File> NewFile(int fd, std::string_view name);

// Stdin, Stdout and Stderr return the standard descriptors, named as in Go:
// "/dev/stdin". The handles are always the same, and only Close closes them. If
// the program runs without that descriptor, reads and writes fail with EBADF.
File Stdin();
File Stdout();
File Stderr();

// ReadFile returns the contents of a file.
[[nodiscard]] absl::StatusOr<std::string> ReadFile(std::string_view path);
// WriteFile makes a file with the contents `data`, or replaces the contents of
// an existing file, which keeps its mode. If it fails, part of data may have
// been written.
absl::Status WriteFile(std::string_view path, std::string_view data,
                       mode_t mode);

}  // namespace gump::os

#pragma GCC visibility pop

#endif  // GUMP_OS_FILE_H_
