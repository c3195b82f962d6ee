// The processor limit of the control group that this process is in: Linux's
// cpu.max, or cpu.cfs_quota_us of version 1. Parsing is apart from reading, and
// files are found below a prefix, so that tests bring their own.
#ifndef RUNTIME_CGROUP_LINUX_H_
#define RUNTIME_CGROUP_LINUX_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gump::rt {

enum class CgroupVersion : uint8_t { kNone, kV1, kV2 };

// CgroupLine is what one line of /proc/self/cgroup or /proc/self/mountinfo says
// about the cpu controller. Views point into the line; a mount's paths are
// still escaped.
struct CgroupLine {
  CgroupVersion version = CgroupVersion::kNone;  // kNone: nothing
  // cgroup file: the group's path; mountinfo: the mount point.
  std::string_view path;
  std::string_view root;  // mountinfo: what of the hierarchy is mounted there
};
[[nodiscard]] CgroupLine parseSelfCgroupLine(std::string_view line);
[[nodiscard]] CgroupLine parseMountinfoLine(std::string_view line);

// unescapePath writes s with \ooo resolved and a final NUL to out; false if it
// does not fit into n bytes.
[[nodiscard]] bool unescapePath(std::string_view s, char* out, size_t n);

// parseCpuMax reads "Q P\n", parseCfsNumber "N\n". False: no limit, or
// malformed (a missing newline is).
[[nodiscard]] bool parseCpuMax(std::string_view text, double* cpus);
[[nodiscard]] bool parseCfsNumber(std::string_view text, int64_t* n);

// CgroupCpu is the open limit files of the group and of its ancestors.
struct CgroupCpu {
  // The innermost ones; deeper nestings do not occur.
  static constexpr int kMaxLevels = 16;
  struct Level {
    int quotaFd = -1;   // cpu.max, or cpu.cfs_quota_us
    int periodFd = -1;  // cpu.cfs_period_us
  };
  CgroupVersion version = CgroupVersion::kNone;
  int nlevels = 0;
  Level levels[kMaxLevels];
};

// cgroupOpen finds the group and opens its limit files; prefix stands before
// every path, "" in earnest. Without a group, or without limit files, c has no
// levels.
// On: any.  P: either.  Locks: none.  Parks: no.
void cgroupOpen(const char* prefix, CgroupCpu* c);
void cgroupClose(CgroupCpu* c);

// cgroupCpus returns how many processors' worth of time the group may use now:
// the tightest limit of all levels; 0: no limit.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] double cgroupCpus(const CgroupCpu* c);

// adjustMaxProcs applies a limit (0: none) to a number of processors: rounded
// up, at least 2, never more than procs.
[[nodiscard]] int32_t adjustMaxProcs(int32_t procs, double cpus);

}  // namespace gump::rt

#endif  // RUNTIME_CGROUP_LINUX_H_
