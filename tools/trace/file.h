// ReadFile, for the two programs.
#ifndef TOOLS_TRACE_FILE_H_
#define TOOLS_TRACE_FILE_H_

#include <cerrno>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace trace_tool {

// ReadFile returns the content of a file. Its error names the file.
inline absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return absl::ErrnoToStatus(errno, path);
  std::string bytes;
  size_t size = 0;
  do {
    bytes.resize(size + (size_t{1} << 20) + size / 2);
    const size_t n = std::fread(&bytes[size], 1, bytes.size() - size, file);
    size += n;
    if (n == 0) break;
  } while (std::feof(file) == 0);
  const bool failed = std::ferror(file) != 0;
  const int error = errno;
  std::fclose(file);
  if (failed) return absl::ErrnoToStatus(error, path);
  bytes.resize(size);
  return bytes;
}

}  // namespace trace_tool

#endif  // TOOLS_TRACE_FILE_H_
