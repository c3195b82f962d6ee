// How many files a benchmark may have open.
#ifndef TOOLS_BENCH_FILE_LIMIT_H_
#define TOOLS_BENCH_FILE_LIMIT_H_

#include <sys/resource.h>

namespace gump::bench {

// RaiseFileLimit lets this process open as many files as the system allows it.
inline void RaiseFileLimit() {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace gump::bench

#endif  // TOOLS_BENCH_FILE_LIMIT_H_
