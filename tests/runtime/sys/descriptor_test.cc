// Holding and moving descriptors, in a process that closes standard ones. Whole
// programs that start without them: api/os/standard_test.
#include "runtime/sys/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

namespace gump::rt {
namespace {

bool isOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// WithoutStdin closes standard input for a while.
class WithoutStdin {
 public:
  WithoutStdin() : saved_(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10)) {
    close(STDIN_FILENO);
    standardFree.store(false, relaxed);  // as if it had been open so far
  }
  ~WithoutStdin() {
    if (saved_ < 0) return;
    dup2(saved_, STDIN_FILENO);
    close(saved_);
  }
  WithoutStdin(const WithoutStdin&) = delete;
  WithoutStdin& operator=(const WithoutStdin&) = delete;

 private:
  const int saved_;
};

int makeEvent() { return eventfd(0, EFD_CLOEXEC); }

TEST(DescriptorTest, LowNumber_IsMovedAndFreed) {
  const WithoutStdin without;
  const int fd = newDescriptor(makeEvent);
  EXPECT_GE(fd, kFirstDescriptor);
  EXPECT_FALSE(isOpen(STDIN_FILENO));
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  EXPECT_TRUE(standardFree.load(relaxed));
  close(fd);
}

TEST(DescriptorTest, Hold_KeepsTheNumberUnreadable) {
  const WithoutStdin without;
  lookAtStandard();
  {
    const StandardHold hold;
    char c;
    EXPECT_EQ(read(STDIN_FILENO, &c, 1), -1);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(fcntl(STDIN_FILENO, F_GETFD), FD_CLOEXEC);
    const int fd = makeEvent();
    EXPECT_GE(fd, kFirstDescriptor);
    close(fd);
    { const StandardHold inner; }
    EXPECT_TRUE(isOpen(STDIN_FILENO)) << "the inner one took it away";
  }
  EXPECT_FALSE(isOpen(STDIN_FILENO));
}

TEST(DescriptorTest, DuplicateOfAHeldNumber_IsEBADF) {
  const WithoutStdin without;
  lookAtStandard();
  EXPECT_EQ(dupOfProgram(STDIN_FILENO), -EBADF);
  {
    const StandardHold hold;
    EXPECT_EQ(dupOfProgram(STDIN_FILENO), -EBADF);
    const int fd = dupOfProgram(STDOUT_FILENO);  // that one is open
    EXPECT_GE(fd, kFirstDescriptor);
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
  }
  EXPECT_EQ(dupOfProgram(STDIN_FILENO), -EBADF);
  EXPECT_EQ(dupOfProgram(-1), -EBADF);
}

TEST(DescriptorTest, CallOnAHeldNumber_IsEBADF) {
  const WithoutStdin without;
  const auto flagsOf = [](int fd) {
    return onProgram(
        fd, [fd] { return tryMake([fd] { return fcntl(fd, F_GETFL); }); });
  };
  EXPECT_EQ(flagsOf(STDIN_FILENO), -EBADF);
  lookAtStandard();
  EXPECT_EQ(flagsOf(STDIN_FILENO), -EBADF);
  const StandardHold hold;
  EXPECT_TRUE(hold.holds());
  EXPECT_TRUE(isHeld(STDIN_FILENO));
  EXPECT_FALSE(isHeld(STDOUT_FILENO));
  EXPECT_EQ(flagsOf(STDIN_FILENO), -EBADF);
  EXPECT_GE(flagsOf(STDOUT_FILENO), 0);
  EXPECT_EQ(flagsOf(-1), -EBADF);
}

// Another thread may notice during a call that a standard descriptor is closed,
// and hold it before the call looks.
TEST(DescriptorTest, CallDuringWhichTheNumberIsHeld_IsMadeAgain) {
  const WithoutStdin without;
  int calls = 0;
  EXPECT_EQ(
      onProgram(STDIN_FILENO,
                [&] {
                  calls++;
                  lookAtStandard();
                  const StandardHold other;
                  return tryMake([] { return fcntl(STDIN_FILENO, F_GETFL); });
                }),
      -EBADF);
  EXPECT_EQ(calls, 2);
}

// The program's standard input may itself be an O_PATH descriptor, which is how
// the library recognises its placeholders.
TEST(DescriptorTest, OPathDescriptorOfTheProgram_IsDuplicated) {
  const WithoutStdin without;
  ASSERT_EQ(open("/", O_PATH | O_CLOEXEC), STDIN_FILENO);
  standardFree.store(true, relaxed);
  {
    const StandardHold hold;
    const int fd = dupOfProgram(STDIN_FILENO);
    EXPECT_GE(fd, kFirstDescriptor);
    close(fd);
  }
  EXPECT_TRUE(isOpen(STDIN_FILENO));
}

TEST(DescriptorTest, FileThatReplacesAPlaceholder_Stays) {
  const WithoutStdin without;
  lookAtStandard();
  const int file = newDescriptor(makeEvent);
  {
    const StandardHold hold;
    EXPECT_EQ(dup2(file, STDIN_FILENO), STDIN_FILENO);
  }
  EXPECT_TRUE(isOpen(STDIN_FILENO));
  close(file);
}

TEST(DescriptorTest, PairOnLowNumbers_IsMoved) {
  const WithoutStdin without;
  int fds[2];
  EXPECT_EQ(newDescriptorPair(fds, [&] { return pipe2(fds, O_CLOEXEC); }), 0);
  EXPECT_GE(fds[0], kFirstDescriptor);
  EXPECT_GE(fds[1], kFirstDescriptor);
  EXPECT_EQ(write(fds[1], "x", 1), 1);
  EXPECT_FALSE(isOpen(STDIN_FILENO));
  close(fds[0]);
  close(fds[1]);
}

// No number is left to move to: the low one is closed, and the caller is told.
TEST(DescriptorTest, NoNumberLeft_IsEMFILEAndLeavesNothing) {
  const WithoutStdin without;
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit few = old;
  few.rlim_cur = kFirstDescriptor;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  errno = EDOM;
  EXPECT_EQ(aboveStandard(makeEvent()), -EMFILE);
  EXPECT_EQ(errno, EDOM);
  int fds[2] = {makeEvent(), -EMFILE};
  EXPECT_EQ(raisePair(fds), -EMFILE);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_FALSE(isOpen(STDIN_FILENO));
}

TEST(DescriptorTest, AllOpen_CostsNoCall) {
  standardFree.store(false, relaxed);
  lookAtStandard();
  EXPECT_FALSE(standardFree.load(relaxed));
  EXPECT_EQ(aboveStandard(7), 7);
  EXPECT_EQ(aboveStandard(-EMFILE), -EMFILE);
}

}  // namespace
}  // namespace gump::rt
