#include "runtime/sys/topology_linux.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

namespace gump {
namespace {

namespace fs = std::filesystem;
using rt::CpuSet;
using rt::Topology;

CpuSet Cpus(std::initializer_list<int32_t> cpus) {
  CpuSet s;
  for (int32_t cpu : cpus) s.add(cpu);
  return s;
}

CpuSet FirstCpus(int32_t n) {
  CpuSet s;
  for (int32_t cpu = 0; cpu < n; cpu++) s.add(cpu);
  return s;
}

// PerNode is how many processors each node has.
std::vector<int32_t> PerNode(const Topology& t) {
  std::vector<int32_t> n;
  for (int32_t i = 0; i < t.nnodes; i++) n.push_back(t.nodes[i].processors);
  return n;
}

using Counts = std::vector<int32_t>;

// ---- Lists ------------------------------------------------------------------

TEST(CpuListTest, HasNumbersAndRanges) {
  CpuSet s;
  EXPECT_EQ(rt::parseCpuList("0-3,8,10-11", &s), nullptr);
  EXPECT_EQ(s, Cpus({0, 1, 2, 3, 8, 10, 11}));
}

TEST(CpuListTest, MalformedListIsRefused) {
  for (const char* list :
       {"", ",", "0,", ",0", "-", "0-", "-3", "3-1", "0--1", "0-1-2", "a", "0 ",
        " 0", "0;1", "+1", "0x3", "1.5", "0-3\n"}) {
    CpuSet s;
    EXPECT_NE(rt::parseCpuList(list, &s), nullptr) << list;
  }
}

TEST(CpuListTest, ProcessorNamedTwiceIsRefused) {
  CpuSet s;
  EXPECT_STREQ(rt::parseCpuList("0-3,2", &s), "it names a processor twice");
}

TEST(CpuListTest, ProcessorBeyondTheLargestIsRefused) {
  CpuSet s;
  EXPECT_EQ(rt::parseCpuList("8191", &s), nullptr);
  for (const char* list : {"8192", "0-9999", "99999999999999999999"}) {
    EXPECT_STREQ(rt::parseCpuList(list, &s), "it has a processor above 8191")
        << list;
  }
}

// ---- Simulated --------------------------------------------------------------

TEST(SimulatedTopologyTest, NodesTimesProcessorsNumbersThemInOrder) {
  Topology t;
  ASSERT_EQ(rt::parseTopology("2x4", &t), nullptr);
  EXPECT_TRUE(t.simulated);
  EXPECT_EQ(PerNode(t), Counts({4, 4}));
  EXPECT_EQ(t.nodeOf[3], 0);
  EXPECT_EQ(t.nodeOf[4], 1);
  EXPECT_EQ(t.nodeOf[8], Topology::kNoNode);
  EXPECT_EQ(t.distance[0][0], Topology::kOwnDistance);
  EXPECT_EQ(t.distance[0][1], Topology::kOtherDistance);
}

TEST(SimulatedTopologyTest, ListsGiveEachNodeItsProcessors) {
  Topology t;
  ASSERT_EQ(rt::parseTopology("0-3,8-11/4-7/12", &t), nullptr);
  EXPECT_EQ(PerNode(t), Counts({8, 4, 1}));
  EXPECT_EQ(t.nodeOf[9], 0);
  EXPECT_EQ(t.nodeOf[5], 1);
  EXPECT_EQ(t.nodeOf[12], 2);
}

TEST(SimulatedTopologyTest, LargestSizesAreAccepted) {
  Topology t;
  for (const char* text : {"64x1", "64x128", "1x8192", "0-8191"}) {
    EXPECT_EQ(rt::parseTopology(text, &t), nullptr) << text;
  }
}

TEST(SimulatedTopologyTest, MalformedTextIsRefused) {
  Topology t;
  for (const char* text :
       {"2x", "x4", "x", "0x4", "2x0", "2x4x2", "2X4", "-1x4", "2 x 4", "/",
        "0/", "/0", "0//1", "nonsense", "2*4", "2x4\n"}) {
    EXPECT_STREQ(rt::parseTopology(text, &t),
                 "it is neither like 2x4 nor like 0-3/4-7")
        << text;
  }
}

TEST(SimulatedTopologyTest, ProcessorOnTwoNodesIsRefused) {
  Topology t;
  EXPECT_STREQ(rt::parseTopology("0-3/3-7", &t), "it names a processor twice");
  EXPECT_STREQ(rt::parseTopology("0-3,3/4", &t), "it names a processor twice");
}

TEST(SimulatedTopologyTest, TooManyNodesOrProcessorsAreRefused) {
  Topology t;
  EXPECT_STREQ(rt::parseTopology("65x1", &t), "it has more than 64 nodes");
  EXPECT_STREQ(rt::parseTopology("10000x1", &t), "it has more than 64 nodes");
  for (const char* text :
       {"1x10000", "2x4097", "0-9999/10000", "2x99999999999999999999"}) {
    EXPECT_STREQ(rt::parseTopology(text, &t), "it has a processor above 8191")
        << text;
  }
  std::string many = "0";
  for (int i = 1; i <= rt::kMaxNodes; i++) many += "/" + std::to_string(i);
  EXPECT_STREQ(rt::parseTopology(many, &t), "it has more than 64 nodes");
}

// ---- The kernel's files, in a folder of our own -----------------------------

class TopologyFilesTest : public testing::Test {
 protected:
  TopologyFilesTest()
      : root_(fs::path(testing::TempDir()) /
              ("topology_test_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
  }
  ~TopologyFilesTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const fs::path file = root_.string() + "/sys/devices/system/" + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Node(int id, const std::string& cpus, const std::string& distance) {
    const std::string dir = "node/node" + std::to_string(id) + "/";
    Write(dir + "cpulist", cpus);
    Write(dir + "distance", distance);
  }
  void TwoNodes() {
    Write("node/online", "0-1\n");
    Node(0, "0-3\n", "10 21\n");
    Node(1, "4-7\n", "21 10\n");
  }
  void Read(const CpuSet& mask) {
    rt::readTopology(root_.c_str(), mask, &topology_);
  }
  CpuSet Bound(int32_t node, const CpuSet& mask) {
    CpuSet s;
    rt::nodeProcessors(topology_, node, mask, &s);
    return s;
  }
  const fs::path root_;
  Topology topology_;
};

TEST_F(TopologyFilesTest, NodesHaveTheirProcessorsAndDistances) {
  TwoNodes();
  Read(FirstCpus(8));
  EXPECT_FALSE(topology_.simulated);
  EXPECT_EQ(PerNode(topology_), Counts({4, 4}));
  EXPECT_EQ(topology_.nodeOf[4], 1);
  EXPECT_EQ(topology_.distance[0][1], 21);
  EXPECT_EQ(Bound(1, FirstCpus(8)), Cpus({4, 5, 6, 7}));
}

TEST_F(TopologyFilesTest, AffinityMaskCutsNodesDown) {
  TwoNodes();
  Read(Cpus({3, 4, 5}));
  EXPECT_EQ(PerNode(topology_), Counts({1, 2}));
  EXPECT_EQ(Bound(0, Cpus({3, 4, 5})), Cpus({3}));
}

TEST_F(TopologyFilesTest, NodeOutsideOfTheMaskDoesNotCount) {
  TwoNodes();
  Read(Cpus({5, 6}));
  EXPECT_EQ(PerNode(topology_), Counts({2}));
  EXPECT_EQ(topology_.nodes[0].id, 1);
}

TEST_F(TopologyFilesTest, NodeWithoutProcessorsDoesNotCount) {
  Write("node/online", "0,2-3\n");
  Node(0, "\n", "10 20 40\n");
  Node(2, "0-1\n", "20 10 30\n");
  Node(3, "2-3\n", "40 32 10\n");
  Read(FirstCpus(4));
  EXPECT_EQ(PerNode(topology_), Counts({2, 2}));
  EXPECT_EQ(topology_.nodes[1].id, 3);
  // The columns are those of the nodes that are online.
  EXPECT_EQ(topology_.distance[0][1], 30);
  EXPECT_EQ(topology_.distance[1][0], 32);
}

TEST_F(TopologyFilesTest, MissingFilesGiveOneNode) {
  Read(Cpus({1, 5}));
  EXPECT_EQ(PerNode(topology_), Counts({2}));
  EXPECT_EQ(Bound(0, Cpus({1, 5})), Cpus({1, 5}));
}

TEST_F(TopologyFilesTest, NodeWithoutAListGivesOneNode) {
  TwoNodes();
  fs::remove(root_ / "sys/devices/system/node/node1/cpulist");
  Read(FirstCpus(8));
  EXPECT_EQ(PerNode(topology_), Counts({8}));
}

TEST_F(TopologyFilesTest, ContradictoryFilesGiveOneNode) {
  for (const char* cpus : {"3-7\n", "nonsense\n", "4-9999\n", "7-4\n"}) {
    TwoNodes();
    Node(1, cpus, "21 10\n");
    topology_ = Topology();
    Read(FirstCpus(8));
    EXPECT_EQ(PerNode(topology_), Counts({8})) << cpus;
  }
}

TEST_F(TopologyFilesTest, TooManyNodesGiveOneNode) {
  Write("node/online", "0-64\n");
  for (int i = 0; i <= 64; i++) Node(i, std::to_string(i) + "\n", "10\n");
  Read(FirstCpus(65));
  EXPECT_EQ(PerNode(topology_), Counts({65}));
}

TEST_F(TopologyFilesTest, MalformedListOfNodesGivesOneNode) {
  for (const char* online : {"", "\n", "0-\n", "0-4000\n", "0-1023,0\n"}) {
    TwoNodes();
    Write("node/online", online);
    topology_ = Topology();
    Read(FirstCpus(8));
    EXPECT_EQ(PerNode(topology_), Counts({8})) << online;
  }
}

TEST_F(TopologyFilesTest, MalformedDistancesAreOrdinaryOnes) {
  TwoNodes();
  Node(0, "0-3\n", "10\n");
  Node(1, "4-7\n", "21 10 30\n");
  Read(FirstCpus(8));
  EXPECT_EQ(topology_.distance[0][1], Topology::kOtherDistance);
  EXPECT_EQ(topology_.distance[1][0], Topology::kOtherDistance);
}

TEST_F(TopologyFilesTest, ErrnoIsKept) {
  errno = 42;
  Read(FirstCpus(8));
  EXPECT_EQ(errno, 42);
}

// ---- What changes -----------------------------------------------------------

TEST_F(TopologyFilesTest, NodeThatLeavesTheMaskKeepsItsIndex) {
  TwoNodes();
  Read(FirstCpus(8));
  Read(Cpus({6}));
  EXPECT_EQ(PerNode(topology_), Counts({0, 1}));
  Read(FirstCpus(8));
  EXPECT_EQ(PerNode(topology_), Counts({4, 4}));
}

TEST_F(TopologyFilesTest, NodeThatComesOnlineFollowsTheOthers) {
  TwoNodes();
  Write("node/online", "1\n");
  Node(1, "4-7\n", "10\n");
  Read(Cpus({4, 5, 6, 7}));
  EXPECT_EQ(topology_.nodes[0].id, 1);
  TwoNodes();
  Read(FirstCpus(8));
  EXPECT_EQ(PerNode(topology_), Counts({4, 4}));
  EXPECT_EQ(topology_.nodes[0].id, 1);
  EXPECT_EQ(topology_.nodes[1].id, 0);
  EXPECT_EQ(topology_.nodeOf[0], 1);
}

TEST_F(TopologyFilesTest, NodeThatGoesOfflineHasNoProcessors) {
  TwoNodes();
  Read(FirstCpus(8));
  Write("node/online", "0\n");
  Read(FirstCpus(4));
  EXPECT_EQ(PerNode(topology_), Counts({4, 0}));
  EXPECT_EQ(Bound(1, FirstCpus(8)), CpuSet());
}

TEST_F(TopologyFilesTest, LostFilesLeaveTheKnownNodes) {
  TwoNodes();
  Read(FirstCpus(8));
  fs::remove_all(root_);
  Read(Cpus({0, 1, 4}));
  EXPECT_EQ(PerNode(topology_), Counts({2, 1}));
}

TEST_F(TopologyFilesTest, NodesThatAllGoOfflineStayKnown) {
  TwoNodes();
  Read(FirstCpus(8));
  // A node without a processor of the mask is all that is left.
  Write("node/online", "2\n");
  Node(2, "8-9\n", "10\n");
  Read(Cpus({0, 4, 5}));
  EXPECT_EQ(PerNode(topology_), Counts({1, 2}));
  EXPECT_EQ(Bound(1, Cpus({0, 4, 5})), Cpus({4, 5}));
  TwoNodes();
  Read(FirstCpus(8));
  EXPECT_EQ(PerNode(topology_), Counts({4, 4}));
}

TEST_F(TopologyFilesTest, ProcessorsOnNoKnownNodeAreOnTheFirst) {
  TwoNodes();
  Read(FirstCpus(8));
  fs::remove_all(root_);
  Read(Cpus({8, 9}));
  EXPECT_EQ(PerNode(topology_), Counts({2, 0}));
  EXPECT_EQ(Bound(0, Cpus({8, 9})), Cpus({8, 9}));
}

// ---- Which simulated nodes bind threads -------------------------------------

TEST_F(TopologyFilesTest, SimulatedNodeBindsIfItsProcessorsExist) {
  ASSERT_EQ(rt::parseTopology("2x4", &topology_), nullptr);
  Write("cpu/online", "0-5\n");
  rt::findProcessors(root_.c_str(), FirstCpus(6), &topology_);
  EXPECT_TRUE(topology_.nodes[0].bindable);
  EXPECT_FALSE(topology_.nodes[1].bindable);
  EXPECT_EQ(Bound(0, FirstCpus(6)), FirstCpus(4));
  EXPECT_EQ(Bound(1, FirstCpus(6)), CpuSet());
}

TEST_F(TopologyFilesTest, SimulatedNodeDoesNotLeaveTheMask) {
  ASSERT_EQ(rt::parseTopology("2x4", &topology_), nullptr);
  Write("cpu/online", "0-7\n");
  rt::findProcessors(root_.c_str(), Cpus({0, 1}), &topology_);
  EXPECT_EQ(Bound(0, Cpus({0, 1})), Cpus({0, 1}));
  EXPECT_EQ(Bound(1, Cpus({0, 1})), CpuSet());
}

TEST_F(TopologyFilesTest, WithoutTheListOfProcessorsThoseOfTheMaskExist) {
  ASSERT_EQ(rt::parseTopology("2x2", &topology_), nullptr);
  rt::findProcessors(root_.c_str(), Cpus({0, 1, 2}), &topology_);
  EXPECT_TRUE(topology_.nodes[0].bindable);
  EXPECT_FALSE(topology_.nodes[1].bindable);
}

TEST(ThreadAffinityTest, HasOnlyProcessorsOfTheMachine) {
  CpuSet s;
  for (int32_t cpu = 0; cpu < rt::kMaxProcessors; cpu++) s.add(cpu);
  ASSERT_TRUE(rt::threadAffinity(/*tid=*/0, &s));
  EXPECT_GE(s.count(), 1);
  EXPECT_LE(s.count(), sysconf(_SC_NPROCESSORS_CONF));
}

}  // namespace
}  // namespace gump
