// Files without a name, and memory for transfers that go past the page cache.
#ifndef TESTS_TESTING_SCRATCH_H_
#define TESTS_TESTING_SCRATCH_H_

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace gump::testing {

inline constexpr size_t kBlock = 4096;

// Block is memory as O_DIRECT wants it.
class Block {
 public:
  explicit Block(size_t size = kBlock, char c = '\0')
      : size_(size),
        p_(static_cast<char*>(std::aligned_alloc(kBlock, size)), &std::free) {
    std::fill_n(p_.get(), size, c);
  }
  absl::Span<char> span() const { return {p_.get(), size_}; }
  std::string_view text() const { return {p_.get(), size_}; }

 private:
  const size_t size_;
  const std::unique_ptr<char, decltype(&std::free)> p_;
};

// ScratchFd opens a file for reading and writing and removes its name. Returns
// -errno if that fails. With O_DIRECT that is -EINVAL on a file system that has
// no O_DIRECT.
//
// It is not inlined because its callers park (errno_access.h).
__attribute__((noinline)) inline int ScratchFd(
    int flags = 0, std::string folder = ::testing::TempDir()) {
  std::string name = std::move(folder) + "/gump_scratch_XXXXXX";
  const int fd = mkostemp(name.data(), flags | O_CLOEXEC);
  const int err = errno;
  unlink(name.c_str());  // the file may be there although it was not opened
  return fd >= 0 ? fd : -err;
}

// TakesDirect returns whether a file system has O_DIRECT.
inline bool TakesDirect(const std::string& folder) {
  const int fd = ScratchFd(O_DIRECT, folder);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_SCRATCH_H_
