#include "runtime/sys/cgroup_linux.h"

#include <gtest/gtest.h>
#include <limits.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/sched/runtime2.h"

namespace gump {
namespace {

namespace fs = std::filesystem;
using rt::CgroupCpu;
using rt::CgroupLine;
using rt::CgroupVersion;

constexpr char kV2Mount[] =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 "
    "rw,nsdelegate\n";
constexpr char kV1Mount[] =
    "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup "
    "rw,cpu,cpuacct\n";

// A file system of our own in a fresh directory.
class CgroupFilesTest : public testing::Test {
 protected:
  CgroupFilesTest()
      : root_(fs::path(testing::TempDir()) /
              ("cgroup_test_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
  }
  ~CgroupFilesTest() override {
    rt::cgroupClose(&cpu_);
    fs::remove_all(root_);
  }
  void Write(const std::string& path, const std::string& text) {
    const fs::path file = root_.string() + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Process(const std::string& cgroup, const std::string& mountinfo) {
    Write("/proc/self/cgroup", cgroup);
    Write("/proc/self/mountinfo", mountinfo);
  }
  double Cpus() {
    rt::cgroupClose(&cpu_);
    rt::cgroupOpen(root_.c_str(), &cpu_);
    return rt::cgroupCpus(&cpu_);
  }
  const fs::path root_;
  CgroupCpu cpu_;
};

TEST(CpuMaxTest, IsQuotaOverPeriod) {
  double cpus = 0;
  EXPECT_TRUE(rt::parseCpuMax("150000 100000\n", &cpus));
  EXPECT_DOUBLE_EQ(cpus, 1.5);
}

TEST(CpuMaxTest, MaxAndMalformedAreNoLimit) {
  double cpus = 0;
  for (const char* s :
       {"max 100000\n", "", "\n", "150000 100000", "150000\n", "a b\n",
        "150000 0\n", "150000 100000 \n", "-1 100000\n", " 1 1\n",
        "99999999999999999999 1\n", "500000us 100000\n", "500000 100000us\n"}) {
    EXPECT_FALSE(rt::parseCpuMax(s, &cpus)) << s;
  }
}

TEST(CpuMaxTest, MayBeAsLargeAsTheKernelsNumbers) {
  double cpus = 0;
  EXPECT_TRUE(
      rt::parseCpuMax("9223372036854775807 9223372036854775807\n", &cpus));
  EXPECT_DOUBLE_EQ(cpus, 1);
  int64_t n = 0;
  EXPECT_TRUE(rt::parseCfsNumber("9223372036854775807\n", &n));
  EXPECT_EQ(n, INT64_MAX);
}

TEST(CfsNumberTest, WantsANewline) {
  int64_t n = 0;
  EXPECT_TRUE(rt::parseCfsNumber("-1\n", &n));
  EXPECT_EQ(n, -1);
  EXPECT_TRUE(rt::parseCfsNumber("200000\n", &n));
  EXPECT_EQ(n, 200000);
  for (const char* s : {"", "5", "x\n", "-\n", "5 5\n", "123max\n"}) {
    EXPECT_FALSE(rt::parseCfsNumber(s, &n)) << s;
  }
}

TEST(SelfCgroupTest, HierarchyZeroIsVersion2) {
  const CgroupLine l = rt::parseSelfCgroupLine("0::/user.slice/a:b");
  EXPECT_EQ(l.version, CgroupVersion::kV2);
  EXPECT_EQ(l.path, "/user.slice/a:b");
}

TEST(SelfCgroupTest, CpuControllerIsVersion1) {
  const CgroupLine l = rt::parseSelfCgroupLine("4:cpuacct,cpu:/docker/x");
  EXPECT_EQ(l.version, CgroupVersion::kV1);
  EXPECT_EQ(l.path, "/docker/x");
}

TEST(SelfCgroupTest, CpuControllerMayStandAnywhereInTheList) {
  for (const char* s :
       {"cpu", "memory,cpu", "cpu,memory", "memory,cpu,block"}) {
    const std::string line = std::string("4:") + s + ":/a";
    EXPECT_EQ(rt::parseSelfCgroupLine(line).version, CgroupVersion::kV1) << s;
  }
}

TEST(SelfCgroupTest, OtherLinesSayNothing) {
  for (const char* s : {"", ":", "::", "0", "0:", "0::", "5:cpuset:/a",
                        "5:cpuacct:/a", "5:,:/a", "5:memory,cpuacct,block:/a",
                        "1:name=systemd:/", "0::relative"}) {
    EXPECT_EQ(rt::parseSelfCgroupLine(s).version, CgroupVersion::kNone) << s;
  }
}

TEST(MountinfoTest, FieldsAroundTheDashAreFound) {
  const CgroupLine l = rt::parseMountinfoLine(
      "30 23 0:26 /root /mnt/a\\040b rw shared:4 master:1 - cgroup2 none rw");
  EXPECT_EQ(l.version, CgroupVersion::kV2);
  EXPECT_EQ(l.path, "/mnt/a\\040b");
  EXPECT_EQ(l.root, "/root");
}

TEST(MountinfoTest, Version1NeedsTheCpuOption) {
  const std::string head = "31 23 0:27 / /c rw - cgroup cgroup ";
  EXPECT_EQ(rt::parseMountinfoLine(head + "rw,cpu").version,
            CgroupVersion::kV1);
  EXPECT_EQ(rt::parseMountinfoLine(head + "rw,cpuset,cpuacct").version,
            CgroupVersion::kNone);
}

TEST(MountinfoTest, OtherLinesSayNothing) {
  for (const char* s :
       {"", "1", "1 2 3", "1 2 3 /", "1 2 3 / /c", "1 2 3 / /c rw",
        "1 2 3 / /c rw -", "1 2 3 / /c rw - ", "1 2 3 / /c rw - cgroup",
        "1 2 3 / /c rw - cgroup cgroup", "1 2 3 a /c rw - cgroup cgroup cpu",
        "1 2 3 / /tmp rw - tmpfs tmpfs rw",
        "1 2 3 / /cgroup2 rw cgroup2 cgroup2 rw"}) {
    EXPECT_EQ(rt::parseMountinfoLine(s).version, CgroupVersion::kNone) << s;
  }
}

TEST(UnescapeTest, OctalIsResolved) {
  char out[16];
  EXPECT_TRUE(rt::unescapePath("/a\\040b\\134", out, sizeof(out)));
  EXPECT_STREQ(out, "/a b\\");
  EXPECT_FALSE(rt::unescapePath("/a\\04", out, sizeof(out)));
  EXPECT_FALSE(rt::unescapePath("/a\\0x9", out, sizeof(out)));
  EXPECT_FALSE(rt::unescapePath("/0123456789abcdef", out, sizeof(out)));
}

TEST(UnescapeTest, EscapeMayStandAnywhere) {
  const std::pair<const char*, const char*> kCases[] = {
      {"/a/b/c", "/a/b/c"},          {"/a/b\\040b/c", "/a/b b/c"},
      {"/a/b\\011b/c", "/a/b\tb/c"}, {"/a/b\\012b/c", "/a/b\nb/c"},
      {"/a/b\\134b/c", "/a/b\\b/c"}, {"\\134b/c", "\\b/c"},
      {"/a/\\134", "/a/\\"},         {"/a/b\xff\\040/c", "/a/b\xff /c"},
  };
  for (auto [escaped, plain] : kCases) {
    char out[16];
    EXPECT_TRUE(rt::unescapePath(escaped, out, sizeof(out))) << escaped;
    EXPECT_STREQ(out, plain);
  }
}

TEST(UnescapeTest, WrongEscapeIsRefused) {
  for (const char* s :
       {"/a/b\\c", "/a/b\\01", "/a/b\\018", "/a/b\\01c", "/a/b\\777",
        "\\001\\002\\003\\004\\005\\006\\007\\010"}) {
    char out[8];
    EXPECT_FALSE(rt::unescapePath(s, out, sizeof(out))) << s;
  }
}

TEST(AdjustMaxProcsTest, RoundsUpWithinTwoAndTheProcessors) {
  EXPECT_EQ(rt::adjustMaxProcs(8, 0), 8);
  EXPECT_EQ(rt::adjustMaxProcs(8, 0.5), 2);
  EXPECT_EQ(rt::adjustMaxProcs(8, 1), 2);
  EXPECT_EQ(rt::adjustMaxProcs(8, 2), 2);
  EXPECT_EQ(rt::adjustMaxProcs(8, 2.01), 3);
  EXPECT_EQ(rt::adjustMaxProcs(8, 7.5), 8);
  EXPECT_EQ(rt::adjustMaxProcs(8, 1e18), 8);
  EXPECT_EQ(rt::adjustMaxProcs(1, 0.5), 1);
}

TEST_F(CgroupFilesTest, LimitOfAVersion2LeafIsFound) {
  Process("0::/app\n", kV2Mount);
  Write("/sys/fs/cgroup/app/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 3);
}

TEST_F(CgroupFilesTest, TightestAncestorWins) {
  Process("0::/a/b/c\n", kV2Mount);
  Write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "600000 100000\n");
  Write("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 2.5);
}

TEST_F(CgroupFilesTest, NothingAboveTheMountPointCounts) {
  Process("0::/a\n", kV2Mount);
  Write("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  Write("/sys/fs/cpu.max", "100000 100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 4);
}

TEST_F(CgroupFilesTest, GroupAtTheMountPointIsFound) {
  Process("0::/\n", kV2Mount);
  Write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 4);
}

TEST_F(CgroupFilesTest, GroupInAMountedPartOfTheHierarchyIsFound) {
  Process("0::/docker/x/sub\n",
          "30 23 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  Write("/sys/fs/cgroup/sub/cpu.max", "500000 100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 5);
}

TEST_F(CgroupFilesTest, GroupOutsideOfTheNamespaceIsIgnored) {
  Process("0::/../other\n", kV2Mount);
  Write("/sys/fs/other/cpu.max", "100000 100000\n");
  EXPECT_EQ(Cpus(), 0);
}

// ---- Which mount shows the group

// Mount is a line of mountinfo.
struct Mount {
  const char* root;
  const char* point;
  const char* options;  // nullptr: version 2
};

// Where is a case of the test below: what the process reads in /proc, and the
// directory in which its group's limit files then are. The cases are those of
// Go's TestParseCPUCgroup and TestParseCPUMount, and more.
struct Where {
  const char* name;
  const char* cgroup;         // the text of /proc/self/cgroup
  std::vector<Mount> mounts;  // the lines of /proc/self/mountinfo
  const char* want;  // the directory, or nullptr if no mount shows the group
};

const std::vector<Mount> kHybrid = {
    {"/", "/sys/fs/cgroup", nullptr},
    {"/", "/sys/fs/cgroup/memory", "rw,memory"},
    {"/", "/sys/fs/cgroup/io", "rw,io"},
    {"/", "/sys/fs/cgroup/cpu", "rw,cpu,cpuacct"},
    {"/", "/sys/fs/cgroup/net", "rw,net"},
    {"/", "/sys/fs/cgroup/cpuset", "rw,cpuset"},
};
const std::vector<Mount> kPartsOfTheHierarchy = {
    {"/sand", "/other/1", nullptr},
    {"/stone", "/other/2", nullptr},
    {"/sandbox/container/group", "/sys/fs/cgroup/mygroup", nullptr},
    {"/sandbox", "/sys/fs/cgroup", nullptr},
    {"/", "/second", nullptr},
};
const std::vector<Mount> kPartsOfVersion1 = {
    {"/sandbox", "/sys/fs/cgroup", nullptr},
    {"/sandbox", "/sys/fs/cgroup/memory", "rw,memory"},
    {"/sand", "/other/1", "rw,cpu,cpuacct"},
    {"/stone", "/other/2", "rw,cpu,cpuacct"},
    {"/sandbox", "/sys/fs/cgroup/cpu", "rw,cpu,cpuacct"},
    {"/sandbox/container/group", "/sys/fs/cgroup/cpu/mygroup", "rw,cpu"},
    {"/", "/second", "rw,cpu,cpuacct"},
};
// The cgroup namespace of the process begins four levels down.
const std::vector<Mount> kAboveTheNamespace = {
    {"/../../..", "/mnt", nullptr},
    {"/../../../..", "/sys/fs/cgroup", nullptr},
};

const Where kWhere[] = {
    {"no mounts", "0::/a\n", {}, nullptr},
    {"v1", "3:cpu,cpuacct:/\n", kHybrid, "/sys/fs/cgroup/cpu"},
    {"v2", "0::/\n", kHybrid, "/sys/fs/cgroup"},
    {"v1 wins", "2:cpu,cpuacct:/a/b\n1:blkio:/c\n0::/d\n", kHybrid,
     "/sys/fs/cgroup/cpu/a/b"},
    {"v2 below a v1 of others", "1:blkio:/c\n0::/d\n", kHybrid,
     "/sys/fs/cgroup/d"},
    {"v1 without its mount",
     "2:cpu,cpuacct:/a\n0::/a\n",
     {{"/", "/sys/fs/cgroup", nullptr}},
     nullptr},
    {"group below the root of a mount", "0::/sandbox/container\n",
     kPartsOfTheHierarchy, "/sys/fs/cgroup/container"},
    {"group at the root of a mount", "0::/sandbox\n", kPartsOfTheHierarchy,
     "/sys/fs/cgroup"},
    {"group of the innermost mount", "0::/sandbox/container/group/x\n",
     kPartsOfTheHierarchy, "/sys/fs/cgroup/mygroup/x"},
    {"group of the whole hierarchy only", "0::/sandstone\n",
     kPartsOfTheHierarchy, "/second/sandstone"},
    {"v1 group below the root of a mount",
     "3:cpu:/sandbox/container\n0::/sandbox\n", kPartsOfVersion1,
     "/sys/fs/cgroup/cpu/container"},
    {"no mount shows the group",
     "0::/a\n",
     {{"/b", "/sys/fs/cgroup", nullptr}, {"/a/b", "/mnt", nullptr}},
     nullptr},
    {"group above the namespace", "0::/../../../../init.scope\n",
     kAboveTheNamespace, "/sys/fs/cgroup/init.scope"},
    {"root of the hierarchy, above the namespace", "0::/../../../..\n",
     kAboveTheNamespace, "/sys/fs/cgroup"},
    {"group outside of every mount", "0::/../../../../../x\n",
     kAboveTheNamespace, nullptr},
    {"name with two dots in front", "0::/..x\n", kHybrid, "/sys/fs/cgroup/..x"},
    {"escaped mount point",
     "0::/\n",
     {{"/", "/sys/fs/cgroup/tab\\011tab", nullptr}},
     "/sys/fs/cgroup/tab\ttab"},
    {"escaped root",
     "0::/tab\ttab/container\n",
     {{"/tab\\011tab", "/sys/fs/cgroup", nullptr}},
     "/sys/fs/cgroup/container"},
    {"wrong escape in the root",
     "0::/a\n",
     {{"/\\1", "/sys/fs/cgroup", nullptr}},
     nullptr},
    {"wrong escape in the mount point",
     "0::/a\n",
     {{"/", "/sys/fs/cgroup/\\1", nullptr}},
     nullptr},
};

class CgroupMountTest : public CgroupFilesTest {
 protected:
  void Limit(const std::string& directory, const char* cpus) {
    const std::string quota = std::string(cpus) + "00000";
    Write(directory + "/cpu.max", quota + " 100000\n");
    Write(directory + "/cpu.cfs_quota_us", quota + "\n");
    Write(directory + "/cpu.cfs_period_us", "100000\n");
  }
  static std::string Mountinfo(const std::vector<Mount>& mounts) {
    std::string text =
        "22 1 8:1 / / rw,relatime - ext4 /dev/root rw\n"
        "20 22 0:19 / /proc rw,nosuid - proc proc rw\n";
    for (const Mount& m : mounts) {
      text +=
          std::string("25 21 0:22 ") + m.root + " " + m.point +
          " rw,nosuid shared:4 - " +
          (m.options == nullptr ? "cgroup2 cgroup2 rw"
                                : "cgroup cgroup " + std::string(m.options)) +
          "\n";
    }
    return text;
  }
};

TEST_F(CgroupMountTest, FirstMountThatShowsTheGroupCounts) {
  for (const Where& w : kWhere) {
    SCOPED_TRACE(w.name);
    fs::remove_all(root_);
    Process(w.cgroup, Mountinfo(w.mounts));
    // What a wrong choice finds. The group itself has the tightest limit.
    for (const Mount& m : w.mounts) {
      for (const char* group : {"/sandbox/container", "/sandbox", "/a", "/x"}) {
        Limit(m.point + std::string(group), "9");
      }
    }
    if (w.want != nullptr) Limit(w.want, "7");
    EXPECT_DOUBLE_EQ(Cpus(), w.want == nullptr ? 0 : 7);
  }
}

TEST_F(CgroupMountTest, LongOptionsOfAnotherMountDoNotMatter) {
  std::string options = "rw,lowerdir=/layers";
  for (int i = 0; options.size() < 100'000; i++) {
    options += ":/layers/" + std::to_string(i);
  }
  Process("0::/app\n", "1 1 0:1 / /merged rw - overlay overlay " + options +
                           "\n" + Mountinfo({{"/", "/cg", nullptr}}));
  Limit("/cg/app", "3");
  EXPECT_DOUBLE_EQ(Cpus(), 3);
}

TEST_F(CgroupMountTest, PathMayBeLongerWhileItIsEscaped) {
  std::string plain;
  std::string escaped;
  for (int i = 0; i < 6; i++) {
    plain += "/" + std::string(200, ' ') + "x";
    escaped += "/";
    for (int k = 0; k < 200; k++) escaped += "\\040";
    escaped += "x";
  }
  ASSERT_GT(escaped.size(), size_t{PATH_MAX});
  Process("0::/app\n",
          "25 21 0:22 / " + escaped + " rw - cgroup2 cgroup2 rw\n");
  Limit(plain + "/app", "3");
  EXPECT_DOUBLE_EQ(Cpus(), 3);
  // With the group behind it, the path is too long.
  Process("0::/" + std::string(3000, 'a') + "\n",
          "25 21 0:22 / " + escaped + " rw - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(Cpus(), 0);
}

TEST_F(CgroupMountTest, LastLineNeedsNoNewline) {
  Process("0::/app", "25 21 0:22 / /cg rw - cgroup2 cgroup2 rw");
  Limit("/cg/app", "3");
  EXPECT_DOUBLE_EQ(Cpus(), 3);
}

TEST_F(CgroupFilesTest, Version1WinsOverVersion2) {
  Process("0::/two\n3:cpu,cpuacct:/one\n", std::string(kV2Mount) + kV1Mount);
  Write("/sys/fs/cgroup/two/cpu.max", "100000 100000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_quota_us", "350000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 3.5);
}

TEST_F(CgroupFilesTest, AQuotaWithoutItsPeriodIsNoLimit) {
  Process("3:cpu,cpuacct:/one\n", kV1Mount);
  Write("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_quota_us", "350000\n");
  EXPECT_EQ(Cpus(), 0);
}

TEST_F(CgroupFilesTest, LimitIsReadAgain) {
  Process("0::/app\n", kV2Mount);
  Write("/sys/fs/cgroup/app/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 3);
  Write("/sys/fs/cgroup/app/cpu.max", "500000 100000\n");
  EXPECT_DOUBLE_EQ(rt::cgroupCpus(&cpu_), 5);
}

TEST_F(CgroupFilesTest, EscapedMountPointIsResolved) {
  Process("0::/app\n", "30 23 0:26 / /my\\040cg rw - cgroup2 cgroup2 rw\n");
  Write("/my cg/app/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 3);
}

TEST_F(CgroupFilesTest, EndlessLineIsSkipped) {
  Process("0::/app\n", "1 1 0:1 / /" + std::string(100000, 'x') +
                           " rw - cgroup2 cgroup2 rw\n" + kV2Mount);
  Write("/sys/fs/cgroup/app/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 3);
}

TEST_F(CgroupFilesTest, MountAfterManyLinesIsFound) {
  std::string mounts;
  for (int i = 0; i < 2000; i++) {
    mounts +=
        "40 23 0:30 / /mnt/" + std::to_string(i) + " rw - ext4 /dev/x rw\n";
  }
  Process("0::/app\n", mounts + kV2Mount);
  Write("/sys/fs/cgroup/app/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(Cpus(), 3);
}

TEST_F(CgroupFilesTest, OverlongLimitFileIsNoLimit) {
  Process("0::/app\n", kV2Mount);
  Write("/sys/fs/cgroup/app/cpu.max",
        "300000 100000" + std::string(60, ' ') + "\n");
  EXPECT_EQ(Cpus(), 0);
}

TEST_F(CgroupFilesTest, MissingFilesAreNoLimit) {
  EXPECT_EQ(Cpus(), 0);  // no /proc
  Process("", "");
  EXPECT_EQ(Cpus(), 0);
  Process("0::/app\n", "");
  EXPECT_EQ(Cpus(), 0);
  Process("", kV2Mount);
  EXPECT_EQ(Cpus(), 0);
  Process("0::/app\n", kV2Mount);
  EXPECT_EQ(Cpus(), 0);  // no cpu.max
  Process("0::/app\n", kV1Mount);
  EXPECT_EQ(Cpus(), 0);  // versions do not match
}

TEST_F(CgroupFilesTest, VeryLongGroupPathIsNoLimit) {
  std::string path;
  for (int i = 0; i < 600; i++) path += "/deepdeep";
  Process("0::" + path + "\n", kV2Mount);
  EXPECT_EQ(Cpus(), 0);
}

TEST(DefaultGomaxprocsTest, IsAtMostTheProcessorsAndAtLeastOne) {
  rt::defaultGOMAXPROCSInit();
  EXPECT_EQ(rt::defaultGOMAXPROCS(1), 1);
  EXPECT_LE(rt::defaultGOMAXPROCS(100000), rt::kMaxGomaxprocs);
}

}  // namespace
}  // namespace gump
