// Which file a descriptor is of.
#ifndef TESTS_TESTING_IDENTITY_H_
#define TESTS_TESTING_IDENTITY_H_

#include <sys/stat.h>

#include <utility>

namespace gump::testing {

// Identity tells files apart: the runtime opens some of its own now and then,
// which get the numbers that are free. {0, 0}: not open.
inline std::pair<dev_t, ino_t> Identity(int number) {
  struct stat st {};
  if (::fstat(number, &st) != 0) return {0, 0};
  return {st.st_dev, st.st_ino};
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_IDENTITY_H_
