// errno in tests that park. Its address is that of a thread, and compilers take
// it to be constant within a function. So a function that uses errno across a
// park must reach it through one that is not inlined.
#ifndef TESTS_TESTING_ERRNO_ACCESS_H_
#define TESTS_TESTING_ERRNO_ACCESS_H_

#include <cerrno>

namespace gump::testing {

__attribute__((noinline)) inline int* ErrnoAddress() {
  asm volatile("");
  return &errno;
}
__attribute__((noinline)) inline void SetErrno(int e) { *ErrnoAddress() = e; }
__attribute__((noinline)) inline int GetErrno() { return *ErrnoAddress(); }

}  // namespace gump::testing

#endif  // TESTS_TESTING_ERRNO_ACCESS_H_
