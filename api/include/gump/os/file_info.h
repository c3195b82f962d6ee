// An os::FileInfo describes a file: name, size, mode and time.
//
//   absl::StatusOr<os::FileInfo> info = f.Stat();
//   if (info.ok() && info->IsDir()) return absl::OkStatus();
//
// A FileInfo is a value. Copies may be used at the same time. No function
// parks.
#ifndef GUMP_OS_FILE_INFO_H_
#define GUMP_OS_FILE_INFO_H_

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::os {

// FileInfo is the result of File::Stat. It is a value.
class FileInfo {
 public:
  // Makes a FileInfo of no file: all is empty or 0.
  FileInfo() = default;
  // Makes a FileInfo of the result of stat(2). name has no directories.
  FileInfo(std::string name, const struct stat& st)
      : name_(std::move(name)), stat_(st) {}

  // Name returns the name without directories.
  const std::string& Name() const { return name_; }
  // Size returns the size in bytes.
  int64_t Size() const { return stat_.st_size; }
  // Mode returns the type and the permissions, as stat(2) does.
  mode_t Mode() const { return stat_.st_mode; }
  // IsDir returns true for a directory.
  bool IsDir() const { return S_ISDIR(stat_.st_mode); }
  // ModTime returns the time of the last change of the contents.
  absl::Time ModTime() const { return absl::TimeFromTimespec(stat_.st_mtim); }
  // Sys returns the whole result of stat(2), valid as long as this object.
  const struct stat& Sys() const { return stat_; }

 private:
  std::string name_;
  struct stat stat_ = {};
};

}  // namespace gump::os

#pragma GCC visibility pop

#endif  // GUMP_OS_FILE_INFO_H_
