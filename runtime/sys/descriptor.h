// Descriptors of the library, all of which are 3 or above.
//
// A program may start with standard descriptors closed, or close them later.
// The kernel gives the lowest free number to a new descriptor. Suppose that a
// connection of the library got the number 0, 1 or 2. The program's reads of
// its standard input would then take the data of the connection, and what the
// program prints would go to the peer.
//
// Every function of the library that makes a descriptor does so by
// newDescriptor or its relatives. This is also true of descriptors that the
// user asks for, such as those of os::Open and of net::Dial. descriptor.cc has
// the protocol.
#ifndef RUNTIME_SYS_DESCRIPTOR_H_
#define RUNTIME_SYS_DESCRIPTOR_H_

#include <cerrno>

#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

// kFirstDescriptor is the lowest number that a descriptor of the library has.
inline constexpr int kFirstDescriptor = 3;

// standardFree is true once the runtime has seen that a standard descriptor is
// closed. It never becomes false again.
extern Atomic<bool> standardFree;

// lookAtStandard sets standardFree if a standard descriptor is closed.
// On: any.  P: either.  Locks: none.  Parks: no.
void lookAtStandard();

// These two are StandardHold's. In a child of fork they end the process
// (dieForked), because the holder of their lock may not exist there.
// On: any.  P: either.  Locks: takes a leaf.  Parks: the outermost acquirem of
// a goroutine may.
void holdStandard();
void releaseStandard();

// StandardHold occupies the standard descriptors that are closed, for a scope.
// Meanwhile the kernel gives out no number below 3, and a read or a write of
// those is EBADF as before. It costs a load where all are open. The scope may
// park and may change threads.
class StandardHold {
 public:
  // Relaxed: a hint. A descriptor that is made without a hold is moved.
  StandardHold() : held_(GUMP_UNLIKELY(standardFree.load(relaxed))) {
    if (held_) holdStandard();
  }
  ~StandardHold() {
    if (held_) releaseStandard();
  }
  StandardHold(const StandardHold&) = delete;
  StandardHold& operator=(const StandardHold&) = delete;

  // holds returns false if all standard descriptors are open, as far as the
  // runtime knows.
  bool holds() const { return held_; }

 private:
  const bool held_;
};

// moveAboveStandard is the slow path of aboveStandard.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] int moveAboveStandard(int fd);

// aboveStandard takes a new descriptor, or -errno. It returns a descriptor of 3
// or above for the same object, or -errno. Unless it returns fd, fd is closed.
// Both keep errno.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] inline int aboveStandard(int fd) {
  return GUMP_UNLIKELY(fd >= 0 && fd < kFirstDescriptor) ? moveAboveStandard(fd)
                                                         : fd;
}

// dupOfProgram duplicates a descriptor of the program. Returns a descriptor of
// 3 or above, which exec closes, or -errno. If fd is a standard descriptor that
// the program has closed, returns -EBADF, even while the library holds fd. If
// fd is below 3 in a child of fork, it ends the process, as holdStandard does.
// On: any.  P: either.  Locks: may take a leaf.  Parks: as StandardHold.
[[nodiscard]] int dupOfProgram(int fd);

// isHeld returns true if fd, which is 0, 1 or 2, is closed by the program and
// held by the library. What is held stays so while the caller has a
// StandardHold, unless the program closes or replaces it. In a child of fork it
// ends the process, as holdStandard does.
// On: any.  P: either.  Locks: takes a leaf.  Parks: the outermost acquirem of
// a goroutine may.
[[nodiscard]] bool isHeld(int fd);

// onProgram makes a call on a descriptor of the program, and returns what the
// call returns: a result, or -errno. If fd is a standard descriptor that the
// program has closed, it returns -EBADF, even while the library holds fd. It is
// for calls that the kernel lets succeed on what the library holds: fstat and
// fcntl. It may make the call twice, and on what the library holds.
//
//   const long err = onProgram(fd, [&] { return statOf(fd, &st); });
//
// On: any.  P: either.  Locks: may take a leaf.  Parks: as StandardHold.
template <class Call>
[[nodiscard]] long onProgram(int fd, const Call& call) {
  if (fd < 0 || fd >= kFirstDescriptor) return call();
  for (;;) {
    const StandardHold hold;
    const long r = call();
    if (hold.holds()) return isHeld(fd) ? -EBADF : r;  // see (D5)
    // A thread that fills a free number has read standardFree as true before.
    // The call comes after what it has seen, and this load after the call.
    fence(seq_cst);
    if (!standardFree.load(relaxed)) return r;
  }
}

// tryMake makes a call of libc's that returns a descriptor, or 0. Returns its
// result, or -errno. It is not inlined: compilers take the address of errno to
// be the same in a whole function, and the caller may park.
template <class Make>
[[nodiscard]] GUMP_NOINLINE int tryMake(const Make& make) {
  const auto fd = static_cast<int>(make());
  return fd < 0 ? -errno : fd;
}

// newDescriptor makes a call of libc's that returns a new descriptor. Returns a
// descriptor of 3 or above, or -errno. It does not repeat a call that a signal
// has interrupted.
//
//   const int fd = newDescriptor([] { return eventfd(0, EFD_CLOEXEC); });
//
// On: any.  P: either.  Locks: may take a leaf.  Parks: as StandardHold.
template <class Make>
[[nodiscard]] int newDescriptor(const Make& make) {
  const StandardHold hold;
  return aboveStandard(tryMake(make));
}

// raisePair does what aboveStandard does for two descriptors. Returns 0 or
// -errno. If it fails, both are closed.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] int raisePair(int* fds);

// newDescriptorPair makes a call that stores two new descriptors in fds, as
// pipe2. Returns 0 or -errno.
// On, P, Locks, Parks: as newDescriptor.
template <class Make>
[[nodiscard]] int newDescriptorPair(int* fds, const Make& make) {
  const StandardHold hold;
  const int err = tryMake(make);
  return err < 0 ? err : raisePair(fds);
}

}  // namespace gump::rt

#endif  // RUNTIME_SYS_DESCRIPTOR_H_
