// The processor limit of the control group that this process is in: Linux's
// cpu.max, or cpu.cfs_quota_us of version 1. Parsing is separate from reading,
// and files are found below a prefix, so that tests bring their own.
#ifndef RUNTIME_SYS_CGROUP_LINUX_H_
#define RUNTIME_SYS_CGROUP_LINUX_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gump::rt {

enum class CgroupVersion : uint8_t { kNone, kV1, kV2 };

// CgroupLine is the content of one line of /proc/self/cgroup or
// /proc/self/mountinfo about the cpu controller. Views point into the line. The
// paths of a mount are still escaped.
struct CgroupLine {
  CgroupVersion version = CgroupVersion::kNone;  // kNone: nothing
  // In a cgroup file the group's path, in mountinfo the mount point.
  std::string_view path;
  std::string_view root;  // mountinfo: the part of the hierarchy mounted there
};
[[nodiscard]] CgroupLine parseSelfCgroupLine(std::string_view line);
[[nodiscard]] CgroupLine parseMountinfoLine(std::string_view line);

// unescapePath writes s, with \ooo resolved and a final NUL, to out. Returns
// false if s does not fit into n bytes or is malformed.
[[nodiscard]] bool unescapePath(std::string_view s, char* out, size_t n);

// parseCpuMax parses "Q P\n", and parseCfsNumber parses "N\n". Both return
// false for malformed text, such as text without a newline. parseCpuMax also
// returns false if there is no limit.
[[nodiscard]] bool parseCpuMax(std::string_view text, double* cpus);
[[nodiscard]] bool parseCfsNumber(std::string_view text, int64_t* n);

// CgroupCpu is the open limit files of the group and of its ancestors.
struct CgroupCpu {
  // Only the innermost levels are kept; deeper nestings do not occur.
  static constexpr int kMaxLevels = 16;
  struct Level {
    int quotaFd = -1;   // cpu.max, or cpu.cfs_quota_us
    int periodFd = -1;  // cpu.cfs_period_us
  };
  CgroupVersion version = CgroupVersion::kNone;
  int nlevels = 0;
  Level levels[kMaxLevels];
};

// cgroupOpen finds the group and opens its limit files. prefix comes before
// every path; outside of tests it is "". Without a group, or without limit
// files, c has no levels.
// On: any.  P: either.  Locks: none.  Parks: no.
void cgroupOpen(const char* prefix, CgroupCpu* c);
void cgroupClose(CgroupCpu* c);

// cgroupCpus returns how many processors' worth of time the group may use now.
// This is the tightest limit of all levels, or 0 if there is no limit.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] double cgroupCpus(const CgroupCpu* c);

// adjustMaxProcs applies a limit (0: none) to a number of processors. Returns
// the limit, rounded up and at least 2, or procs if that is less.
[[nodiscard]] int32_t adjustMaxProcs(int32_t procs, double cpus);

// defaultGOMAXPROCSInit opens the limit files. It is called once, before there
// are threads. defaultGOMAXPROCS returns the number of Ps for ncpuNow
// processors under those limits. Both:
// On: any.  P: either.  Locks: none.  Parks: no.
void defaultGOMAXPROCSInit();
[[nodiscard]] int32_t defaultGOMAXPROCS(int32_t ncpuNow);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_CGROUP_LINUX_H_
