// Helpers for tests of os::File: files without a name, in or out of the page
// cache.
#ifndef TESTS_API_OS_FILE_TESTING_H_
#define TESTS_API_OS_FILE_TESTING_H_

#include <fcntl.h>

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "gump/os.h"
#include "tests/testing/scratch.h"
#include "tests/testing/status.h"

namespace gump::testing {

// Scratch opens a file that no longer has a name.
inline os::File Scratch(int flags = 0,
                        std::string folder = ::testing::TempDir()) {
  const int fd = ScratchFd(flags, std::move(folder));
  EXPECT_GE(fd, 0);
  return Ready(os::NewFile(fd, "scratch"));
}

// Evict drops the pages of a file from the page cache, or most of them.
inline void Evict(const os::File& f) {
  EXPECT_TRUE(f.Sync().ok());
  EXPECT_EQ(posix_fadvise(f.Fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
}

}  // namespace gump::testing

#endif  // TESTS_API_OS_FILE_TESTING_H_
