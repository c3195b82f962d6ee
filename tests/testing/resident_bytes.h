// The size of the process's resident memory.
#ifndef TESTS_TESTING_RESIDENT_BYTES_H_
#define TESTS_TESTING_RESIDENT_BYTES_H_

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace gump::testing {

inline int64_t ResidentBytes() {
  int64_t size = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_RESIDENT_BYTES_H_
