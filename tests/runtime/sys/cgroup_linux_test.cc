#include "runtime/sys/cgroup_linux.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

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
  for (const char* s : {"max 100000\n", "", "\n", "150000 100000", "150000\n",
                        "a b\n", "150000 0\n", "150000 100000 \n",
                        "-1 100000\n", " 1 1\n", "99999999999999999999 1\n"}) {
    EXPECT_FALSE(rt::parseCpuMax(s, &cpus)) << s;
  }
}

TEST(CfsNumberTest, WantsANewline) {
  int64_t n = 0;
  EXPECT_TRUE(rt::parseCfsNumber("-1\n", &n));
  EXPECT_EQ(n, -1);
  EXPECT_TRUE(rt::parseCfsNumber("200000\n", &n));
  EXPECT_EQ(n, 200000);
  for (const char* s : {"", "5", "x\n", "-\n", "5 5\n"}) {
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

TEST(SelfCgroupTest, OtherLinesSayNothing) {
  for (const char* s : {"", ":", "::", "0::", "5:cpuset:/a", "5:cpuacct:/a",
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
  for (const char* s : {"", "1 2 3", "1 2 3 / /tmp rw - tmpfs tmpfs rw",
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
