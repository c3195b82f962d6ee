// Files and pipes.
//
//   absl::StatusOr<os::File> f = os::Open("/etc/hostname");
//   if (!f.ok()) return f.status();  // NotFound: "open /etc/hostname: no such
//                                    // file or directory"
//   char buf[512];
//   absl::StatusOr<size_t> n = f->Read(buf);  // 0: the end
//
//   absl::StatusOr<std::string> all = os::ReadFile("/etc/hostname");
//
// A File is a handle: a copy is the same file. The last handle closes it. A
// default-constructed one is no file: its operations fail, InvalidArgument
// "invalid argument".
//
// Operations look as if they blocked. On pipes, FIFOs, terminals and what else
// the poller takes, only the goroutine waits, and deadlines and Close end the
// wait. Regular files are read through io_uring, where the kernel has it (Linux
// 5.13) and lets us, unless what is wanted is in the page cache. ReadAt and
// WriteAt of a file opened with O_DIRECT go that way too, and so does Sync.
// Only the goroutine waits then, for as long as the disk takes. All other calls
// block in the kernel while other goroutines run in this one's place, and so do
// those on file systems that cannot tell what would wait, such as NFS and
// tmpfs.
//
// All functions may be called from goroutines and from plain threads, several
// at a time also on the same File: reads wait for one another, and so do
// writes, but not ReadAt and WriteAt. Unless they say otherwise they may park,
// and throw nothing but std::bad_alloc.
//
// Errors are statuses in Go's words, with the errno (status.h): "read /tmp: is
// a directory". A deadline that has passed is DeadlineExceeded "read |0: i/o
// timeout", a File that has been closed Cancelled "read |0: file already
// closed". Writing to a pipe that nobody reads is "write |1: broken pipe", and
// sends no SIGPIPE, whatever the program has that signal do. (Go dies of it if
// it is standard output or error that nobody reads.)
//
// Descriptors are close-on-exec, but for those given to NewFile.
//
// Source: package os of Go.
#ifndef GUMP_OS_H_
#define GUMP_OS_H_

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

namespace gump {

namespace internal {
struct OsFile;
struct OsFileAccess;
}  // namespace internal

namespace os {

// FileInfo is what Stat knows of a file. A value.
class FileInfo {
 public:
  FileInfo() = default;
  FileInfo(std::string name, const struct stat& st)
      : name_(std::move(name)), stat_(st) {}

  const std::string& Name() const { return name_; }  // without directories
  int64_t Size() const { return stat_.st_size; }     // bytes
  mode_t Mode() const { return stat_.st_mode; }      // as of stat(2)
  bool IsDir() const { return S_ISDIR(stat_.st_mode); }
  absl::Time ModTime() const { return absl::TimeFromTimespec(stat_.st_mtim); }
  const struct stat& Sys() const { return stat_; }

 private:
  std::string name_;
  struct stat stat_ = {};
};

// File is the handle described above.
class File {
 public:
  File() noexcept = default;

  // Read reads at most buf.size() bytes, and waits until there is at least one.
  // 0 with a non-empty buf: the end.
  [[nodiscard]] absl::StatusOr<size_t> Read(absl::Span<char> buf) const;

  // Write writes all of data and returns its size, or fails: then
  // BytesWritten(status) is how much of it was written.
  absl::StatusOr<size_t> Write(std::string_view data) const;

  // ReadAt reads buf.size() bytes from an offset on; fewer only if the file
  // ends before. Does not move the position.
  [[nodiscard]] absl::StatusOr<size_t> ReadAt(absl::Span<char> buf,
                                              int64_t offset) const;

  // WriteAt is Write from an offset on. Does not move the position. Not for
  // files opened with O_APPEND.
  absl::StatusOr<size_t> WriteAt(std::string_view data, int64_t offset) const;

  // Seek sets the position of the next Read or Write, relative to the start,
  // the position or the end (SEEK_SET, SEEK_CUR, SEEK_END), and returns it.
  absl::StatusOr<int64_t> Seek(int64_t offset, int whence) const;

  // Sync returns when all that was written is on the disk.
  absl::Status Sync() const;
  // Truncate makes the file `size` bytes long. Does not move the position.
  absl::Status Truncate(int64_t size) const;
  // Stat is what fstat(2) says of the file.
  [[nodiscard]] absl::StatusOr<FileInfo> Stat() const;

  // Close makes all operations fail, those under way too, but for calls that
  // block in the kernel, which end as they would. The second one fails. Other
  // errors are those that writing the rest has met; it is closed all the same.
  absl::Status Close() const;

  // A read (write) that would have to wait past the deadline fails, also one
  // under way. InfiniteFuture: no deadline; the past: none may wait. Fails on
  // files that have none: "file type does not support deadline". The time left
  // is measured now: setting the clock later moves nothing.
  absl::Status SetDeadline(absl::Time t) const;
  absl::Status SetReadDeadline(absl::Time t) const;
  absl::Status SetWriteDeadline(absl::Time t) const;

  // Fd is the descriptor, valid until the File is closed; -1 without a file,
  // and since Close. Those that the poller takes are non-blocking. (Go's Fd
  // makes them block.)
  int Fd() const noexcept;
  // Name is the path as given to Open; "|0" and "|1" for the ends of a pipe.
  const std::string& Name() const noexcept;

  explicit operator bool() const noexcept { return file_ != nullptr; }
  friend bool operator==(const File& a, const File& b) noexcept {
    return a.file_ == b.file_;  // identity
  }

 private:
  friend struct internal::OsFileAccess;
  std::shared_ptr<internal::OsFile> file_;
};

// OpenFile is open(2): flags are O_RDONLY and so on, mode is that of a file
// which it makes, before umask. Opening a FIFO waits for the other side.
[[nodiscard]] absl::StatusOr<File> OpenFile(std::string_view path, int flags,
                                            mode_t mode = 0);
// Open opens a file to read it.
[[nodiscard]] absl::StatusOr<File> Open(std::string_view path);
// Create makes a file, or empties the one that is there, to read and write it;
// mode 0666 before umask.
[[nodiscard]] absl::StatusOr<File> Create(std::string_view path);

// Pipe makes a pipe; what is written to the second can be read from the first.
//
//   absl::StatusOr<std::pair<os::File, os::File>> p = os::Pipe();
//   auto& [r, w] = *p;
[[nodiscard]] absl::StatusOr<std::pair<File, File>> Pipe();

// NewFile takes over a descriptor; if it fails, it still is the caller's. One
// that is non-blocking goes to the poller, as Pipe's do; all others block in
// the kernel.
[[nodiscard]] absl::StatusOr<File> NewFile(int fd, std::string_view name);

// The standard descriptors, named as in Go: "/dev/stdin". Always the same
// handles; never closed, unless by Close.
File Stdin();
File Stdout();
File Stderr();

// ReadFile is all that is in a file.
[[nodiscard]] absl::StatusOr<std::string> ReadFile(std::string_view path);
// WriteFile makes a file with these contents, or replaces those of the one that
// is there, which keeps its mode. When it fails, part may have been written.
absl::Status WriteFile(std::string_view path, std::string_view data,
                       mode_t mode);

}  // namespace os
}  // namespace gump

#endif  // GUMP_OS_H_
