// Tells which file a descriptor refers to.
#ifndef TESTS_TESTING_IDENTITY_H_
#define TESTS_TESTING_IDENTITY_H_

#include <sys/stat.h>

#include <utility>

namespace gump::testing {

// Identity tells files apart. Their numbers do not, because the runtime opens
// files of its own now and then, which get free numbers. Returns {0, 0} if the
// descriptor is not open.
inline std::pair<dev_t, ino_t> Identity(int number) {
  struct stat st {};
  if (::fstat(number, &st) != 0) return {0, 0};
  return {st.st_dev, st.st_ino};
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_IDENTITY_H_
