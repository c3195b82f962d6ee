// The default of GOMAXPROCS: affinity, and the control group's processor limit,
// by the rules of Go 1.27.
//
// /proc/self/cgroup names the group. A mount shows the part of the hierarchy
// below its root, so the group's files are below the first mount whose root is
// the group or an ancestor of it. A container may have several such mounts, and
// others that show foreign parts.
//
// Go reads only the group that the process is in. We also read its ancestors,
// up to the root of the mount, because the kernel applies all their limits. The
// tightest limit wins.
//
// Files are opened once, because the process may later call chroot or lose the
// right to open them. So a process that is moved to another group keeps the
// limits of the old one. Files are read again, at offset 0, each time the
// number is asked for.
//
// Nothing here allocates, because it runs on goroutines, and before main on
// behalf of static constructors.
#include "runtime/sys/cgroup_linux.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "runtime/diag/debugvars.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/keep_errno.h"
#include "runtime/sys/next_field.h"

namespace gump::rt {
namespace {

constexpr std::string_view kController = "cpu";
// A limit file that fills a buffer of this size is malformed.
constexpr size_t kLimitFileSize = 64;

bool listContains(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    if (nextField(&list, ',') == item) return true;
  }
  return false;
}

bool parseDecimal(std::string_view s, int64_t* out) {
  const char* end = s.data() + s.size();
  const auto [at, err] = std::from_chars(s.data(), end, *out);
  return err == std::errc() && at == end;
}

// Path is a file name under construction. Once a part did not fit, ok() stays
// false.
class Path {
 public:
  void append(std::string_view s) {
    ok_ = ok_ && s.size() < sizeof(text_) - size_;
    if (!ok_) return;
    memcpy(text_ + size_, s.data(), s.size());
    truncate(size_ + s.size());
  }
  void truncate(size_t n) {
    size_ = n;
    text_[n] = '\0';
  }
  bool ok() const { return ok_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {text_, size_}; }
  // open opens the file for reading. Returns a value below 0 if it fails.
  int open() const {
    if (!ok_) return -1;
    return newDescriptor([&] { return ::open(text_, O_RDONLY | O_CLOEXEC); });
  }

 private:
  char text_[PATH_MAX] = "";
  size_t size_ = 0;
  bool ok_ = true;
};

// readSome calls read(2), and repeats the call if a signal has interrupted it.
// It is not inlined, because it reads errno, and its callers may run on a
// goroutine that changes threads (see KeepErrno).
GUMP_NOINLINE ssize_t readSome(int fd, char* buf, size_t n) {
  ssize_t got;
  do {
    got = read(fd, buf, n);
  } while (got < 0 && errno == EINTR);
  return got;
}

// LineReader returns the lines of a file, without their newlines. Of a line
// that is longer than buf_ it returns only the beginning. That is enough here.
// Such a line describes a mount with very many options, and in mountinfo these
// come last: after the root, the mount point and the type of the file system.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}
  ~LineReader() {
    if (fd_ >= 0) close(fd_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool next(std::string_view* line) {
    for (;;) {
      std::string_view rest(buf_ + pos_, end_ - pos_);
      const size_t n = rest.find('\n');
      if (n == rest.npos && fill()) continue;
      if (n == rest.npos && rest.empty()) return false;
      rest = rest.substr(0, n);
      pos_ += std::min(rest.size() + 1, end_ - pos_);
      // If next has returned the beginning of a long line, skip the rest of it.
      const bool rest_of_line = cut_;
      cut_ = n == rest.npos && pos_ == sizeof(buf_);
      if (rest_of_line) continue;
      *line = rest;
      return true;
    }
  }

 private:
  // fill reads more. Returns false at the end of the file, and if there is no
  // room for more of this line.
  bool fill() {
    if (fd_ < 0 || (pos_ == 0 && end_ == sizeof(buf_))) return false;
    memmove(buf_, buf_ + pos_, end_ - pos_);
    end_ -= pos_;
    pos_ = 0;
    const ssize_t n = readSome(fd_, buf_ + end_, sizeof(buf_) - end_);
    if (n <= 0) return false;
    end_ += static_cast<size_t>(n);
    return true;
  }

  int fd_;
  // A mount's root and mount point, each with every second byte escaped, fit.
  char buf_[4 * PATH_MAX];
  size_t pos_ = 0;
  size_t end_ = 0;
  bool cut_ = false;  // the line before pos_ was cut
};

int openFile(const char* prefix, std::string_view file) {
  Path path;
  path.append(prefix);
  path.append(file);
  return path.open();
}

// findGroup returns the group that limits the process: that of the hierarchy of
// version 1 with the cpu controller if there is one, else that of version 2.
// Its path is copied to keep.
CgroupLine findGroup(const char* prefix, char* keep, size_t n) {
  LineReader reader(openFile(prefix, "/proc/self/cgroup"));
  CgroupLine best;
  std::string_view line;
  while (best.version != CgroupVersion::kV1 && reader.next(&line)) {
    CgroupLine found = parseSelfCgroupLine(line);
    if (found.version == CgroupVersion::kNone ||
        found.version == best.version || found.path.size() > n) {
      continue;
    }
    memcpy(keep, found.path.data(), found.path.size());
    found.path = {keep, found.path.size()};
    best = found;
  }
  return best;
}

// below tells whether the path p is root or is below it.
bool below(std::string_view p, std::string_view root) {
  if (root == "/") return true;
  return p.starts_with(root) &&
         (p.size() == root.size() || p[root.size()] == '/');
}

// withoutRoot removes from a group's path the root of a mount. What remains is
// relative to the mount point: empty, or with a slash in front. Returns false
// if the mount does not show the group. That is also the case if the path would
// lead up from the mount point: the process is outside of its cgroup namespace,
// and the names on the way down are unknown.
bool withoutRoot(std::string_view root, std::string_view* group) {
  if (!below(*group, root)) return false;
  if (root != "/" || *group == "/") group->remove_prefix(root.size());
  return !below(*group, "/..");
}

// Directory is that of a group's limit files. Its first `top` bytes are the
// mount point.
struct Directory {
  Path path;
  size_t top = 0;
};

// findMount finds the directory of group. Returns false if no mount shows it.
bool findMount(const char* prefix, const CgroupLine& group, Directory* dir) {
  LineReader reader(openFile(prefix, "/proc/self/mountinfo"));
  char text[PATH_MAX];
  std::string_view line;
  while (reader.next(&line)) {
    const CgroupLine mount = parseMountinfoLine(line);
    std::string_view rest = group.path;
    if (mount.version != group.version ||
        !unescapePath(mount.root, text, sizeof(text)) ||
        !withoutRoot(text, &rest) ||
        !unescapePath(mount.path, text, sizeof(text))) {
      continue;
    }
    dir->path = Path();
    dir->path.append(prefix);
    dir->path.append(text);
    dir->top = dir->path.size();
    dir->path.append(rest);
    return dir->path.ok();
  }
  return false;
}

// readLimit reads a limit file from its start. Returns an empty view if the
// file is unreadable or too long.
std::string_view readLimit(int fd, char (&buf)[kLimitFileSize]) {
  ssize_t n;
  do {
    n = pread(fd, buf, sizeof(buf), 0);
  } while (n < 0 && errno == EINTR);
  if (n <= 0 || static_cast<size_t>(n) == sizeof(buf)) return {};
  return {buf, static_cast<size_t>(n)};
}

// openLevel opens the limit files of the directory dir. Returns false if it has
// none.
bool openLevel(Path* dir, CgroupVersion version, CgroupCpu::Level* level) {
  const size_t size = dir->size();
  dir->append(version == CgroupVersion::kV2 ? "/cpu.max" : "/cpu.cfs_quota_us");
  level->quotaFd = dir->open();
  dir->truncate(size);
  if (version == CgroupVersion::kV1 && level->quotaFd >= 0) {
    dir->append("/cpu.cfs_period_us");
    level->periodFd = dir->open();
    dir->truncate(size);
  }
  if (level->quotaFd < 0) return false;
  if (version == CgroupVersion::kV1 && level->periodFd < 0) {
    close(level->quotaFd);
    return false;
  }
  return true;
}

bool levelCpus(const CgroupCpu::Level& level, CgroupVersion version,
               double* cpus) {
  char buf[kLimitFileSize];
  if (version == CgroupVersion::kV2) {
    return parseCpuMax(readLimit(level.quotaFd, buf), cpus);
  }
  int64_t quota;
  int64_t period;
  if (!parseCfsNumber(readLimit(level.quotaFd, buf), &quota)) return false;
  if (!parseCfsNumber(readLimit(level.periodFd, buf), &period)) return false;
  if (quota < 0 || period <= 0) return false;
  *cpus = static_cast<double>(quota) / static_cast<double>(period);
  return true;
}

CgroupCpu processLimit;  // written by defaultGOMAXPROCSInit only

}  // namespace

// "hierarchy:controllers:path"
CgroupLine parseSelfCgroupLine(std::string_view line) {
  const std::string_view hierarchy = nextField(&line, ':');
  const std::string_view controllers = nextField(&line, ':');
  if (line.empty() || line.front() != '/') return {};
  if (hierarchy == "0") return {CgroupVersion::kV2, line, {}};
  if (!listContains(controllers, kController)) return {};
  return {CgroupVersion::kV1, line, {}};
}

// "id parent major:minor root mountpoint options optional* - type source
// superoptions"
CgroupLine parseMountinfoLine(std::string_view line) {
  for (int i = 0; i < 3; i++) nextField(&line, ' ');
  const std::string_view root = nextField(&line, ' ');
  const std::string_view point = nextField(&line, ' ');
  const size_t dash = line.find(" - ");
  if (dash == line.npos || !root.starts_with('/')) return {};
  line.remove_prefix(dash + 3);
  const std::string_view type = nextField(&line, ' ');
  if (type == "cgroup2") return {CgroupVersion::kV2, point, root};
  nextField(&line, ' ');  // source
  if (type != "cgroup" || !listContains(line, kController)) return {};
  return {CgroupVersion::kV1, point, root};
}

bool unescapePath(std::string_view s, char* out, size_t n) {
  size_t len = 0;
  for (size_t i = 0; i < s.size(); i++) {
    char c = s[i];
    if (c == '\\') {
      if (s.size() - i < 4) return false;
      int v = 0;
      for (size_t k = 1; k <= 3; k++) {
        if (s[i + k] < '0' || s[i + k] > '7') return false;
        v = v * 8 + (s[i + k] - '0');
      }
      if (v > 0xff) return false;
      c = static_cast<char>(v);
      i += 3;
    }
    if (len + 1 >= n) return false;
    out[len++] = c;
  }
  if (len >= n) return false;
  out[len] = '\0';
  return true;
}

bool parseCpuMax(std::string_view text, double* cpus) {
  if (text.empty() || text.back() != '\n') return false;
  text.remove_suffix(1);
  const std::string_view quotaText = nextField(&text, ' ');
  int64_t quota;
  int64_t period;
  if (!parseDecimal(quotaText, &quota) || !parseDecimal(text, &period)) {
    return false;  // also if the quota is "max", which means no limit
  }
  if (quota < 0 || period <= 0) return false;
  *cpus = static_cast<double>(quota) / static_cast<double>(period);
  return true;
}

bool parseCfsNumber(std::string_view text, int64_t* n) {
  if (text.empty() || text.back() != '\n') return false;
  text.remove_suffix(1);
  return parseDecimal(text, n);
}

void cgroupOpen(const char* prefix, CgroupCpu* c) {
  *c = CgroupCpu{};
  char text[PATH_MAX];
  const CgroupLine group = findGroup(prefix, text, sizeof(text));
  if (group.version == CgroupVersion::kNone) return;
  Directory dir;
  if (!findMount(prefix, group, &dir)) return;
  c->version = group.version;
  // From the group itself up to the mount point.
  while (c->nlevels < CgroupCpu::kMaxLevels) {
    if (openLevel(&dir.path, c->version, &c->levels[c->nlevels])) c->nlevels++;
    if (dir.path.size() <= dir.top) break;
    dir.path.truncate(std::max(dir.top, dir.path.view().rfind('/')));
  }
}

void cgroupClose(CgroupCpu* c) {
  for (int i = 0; i < c->nlevels; i++) {
    close(c->levels[i].quotaFd);
    if (c->levels[i].periodFd >= 0) close(c->levels[i].periodFd);
  }
  *c = CgroupCpu{};
}

double cgroupCpus(const CgroupCpu* c) {
  double tightest = 0;
  for (int i = 0; i < c->nlevels; i++) {
    double cpus;
    if (!levelCpus(c->levels[i], c->version, &cpus)) continue;
    if (tightest == 0 || cpus < tightest) tightest = cpus;
  }
  return tightest;
}

int32_t adjustMaxProcs(int32_t procs, double cpus) {
  if (cpus <= 0 || cpus >= procs) return procs;
  const auto whole = static_cast<int32_t>(cpus);
  const int32_t up = static_cast<double>(whole) < cpus ? whole + 1 : whole;
  return std::min(procs, std::max(2, up));
}

// The two functions below keep errno, because goroutines and static
// constructors call them.
void defaultGOMAXPROCSInit() {
  if (debug.containermaxprocs == 0) return;
  const KeepErrno kept;
  cgroupOpen("", &processLimit);
}

int32_t defaultGOMAXPROCS(int32_t ncpuNow) {
  const KeepErrno kept;
  const double cpus = cgroupCpus(&processLimit);
  return std::min(adjustMaxProcs(ncpuNow, cpus), kMaxGomaxprocs);
}

}  // namespace gump::rt
