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

namespace gump::os {

// FileInfo is the result of Stat. A value.
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

}  // namespace gump::os

#endif  // GUMP_OS_FILE_INFO_H_
