// A process that has used up its descriptors.
#ifndef TESTS_TESTING_NO_DESCRIPTORS_H_
#define TESTS_TESTING_NO_DESCRIPTORS_H_

#include <sys/resource.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace gump::testing {

// NoDescriptors lowers the limit below all free descriptors. It does not take
// them, because one that the runtime holds for a moment (threadState) would be
// free afterwards.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &old_), 0);
    // Not 0, because poll(2) counts against the limit as well.
    Limit(STDERR_FILENO + 1);
  }
  ~NoDescriptors() { Limit(old_.rlim_cur); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

  // FreeOne makes one descriptor free. Others may be free, too, that the
  // runtime holds at this moment.
  void FreeOne() const {
    Limit(old_.rlim_cur);
    const int fd = dup(STDERR_FILENO);
    EXPECT_GE(fd, 0);
    close(fd);
    Limit(static_cast<rlim_t>(fd) + 1);
  }

 private:
  void Limit(rlim_t n) const {
    rlimit now = old_;
    now.rlim_cur = n;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
  }

  rlimit old_;
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_NO_DESCRIPTORS_H_
