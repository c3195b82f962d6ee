#include "runtime/sched/numa.h"

#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "gump/go.h"
#include "runtime/sys/topology_linux.h"
#include "tests/testing/scoped_env.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::ScopedEnv;

// Says prints what the program under test has to say, and ends it.
[[noreturn]] void Say(int nodes) {
  std::fprintf(stderr, "nodes=%d", nodes);
  std::exit(0);
}

[[noreturn]] void SayNodes() {
  Run([] {});
  Run([] {});
  Say(rt::topology.nnodes);
}

TEST(NumaDeathTest, VariableSimulatesATopology) {
  const ScopedEnv env("GUMP_TOPOLOGY", "4x2");
  EXPECT_EXIT(SayNodes(), ::testing::ExitedWithCode(0), "^nodes=4$");
}

TEST(NumaDeathTest, EmptyVariableIsNone) {
  const ScopedEnv env("GUMP_TOPOLOGY", "");
  EXPECT_EXIT(SayNodes(), ::testing::ExitedWithCode(0), "^nodes=[0-9]+$");
}

TEST(NumaDeathTest, MalformedVariableIsIgnoredAndSaidOnce) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x\"4");
  EXPECT_EXIT(SayNodes(), ::testing::ExitedWithCode(0),
              "^runtime: GUMP_TOPOLOGY=\"2x\\\\\"4\" is ignored: it is neither "
              "like 2x4 nor like 0-3/4-7\nnodes=[0-9]+$");
}

// The nodes that the process has without the variable, as SayNodes says them.
std::string WithoutVariable() {
  rt::Topology t;
  rt::CpuSet mask;
  EXPECT_TRUE(rt::threadAffinity(/*tid=*/0, &mask));
  rt::readTopology("", mask, &t);
  return "nodes=" + std::to_string(t.nnodes) + "$";
}

TEST(NumaDeathTest, BadVariableLeavesTheNodesOfTheMachine) {
  const std::string twice = "it names a processor twice";
  const std::string above = "it has a processor above 8191";
  const std::string nodes = "it has more than 64 nodes";
  const std::string neither = "it is neither like 2x4 nor like 0-3/4-7";
  const std::pair<const char*, std::string> kBad[] = {
      {"0-3,2", twice},   {"0/0", twice},    {"0-3/2-5", twice},
      {"1x10000", above}, {"0-9999", above}, {"10000", above},
      {"10000x1", nodes}, {"/", neither},    {"0/", neither},
      {"0x4", neither},   {"4x0", neither},  {"none", neither},
  };
  for (const auto& [text, reason] : kBad) {
    const ScopedEnv env("GUMP_TOPOLOGY", text);
    EXPECT_EXIT(SayNodes(), ::testing::ExitedWithCode(0),
                "^runtime: GUMP_TOPOLOGY=\"" + std::string(text) +
                    "\" is ignored: " + reason + "\n" + WithoutVariable())
        << text;
  }
}

TEST(NumaDeathTest, LargestTopologiesRun) {
  const std::pair<const char*, int> kLarge[] = {
      {"64x128", 64}, {"1x8192", 1}, {"0-8191", 1}};
  for (const auto& [text, nodes] : kLarge) {
    const ScopedEnv env("GUMP_TOPOLOGY", text);
    EXPECT_EXIT(SayNodes(), ::testing::ExitedWithCode(0),
                "^nodes=" + std::to_string(nodes) + "$");
  }
}

// Processors returns the number of processors that the topology gives to nodes.
// It is read on a goroutine, so the world is not stopped.
int Processors() {
  int n = 0;
  for (int i = 0; i < rt::topology.nnodes; i++) {
    n += rt::topology.nodes[i].processors;
  }
  return n;
}

TEST(NumaDeathTest, TopologyIsReadAgainWhenTheMaskChanges) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "needs two processors";
  const auto program = [all] {
    cpu_set_t one;
    CPU_ZERO(&one);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all)) cpu++;
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
    gump::Run([all] {
      if (Processors() != 1) std::_Exit(1);
      // As `taskset -a`.
      for (const auto& e :
           std::filesystem::directory_iterator("/proc/self/task")) {
        (void)sched_setaffinity(std::stoi(e.path().filename()), sizeof(all),
                                &all);
      }
      // sysmon looks once a second.
      if (!testing::Eventually(
              [all] { return Processors() == CPU_COUNT(&all); })) {
        std::_Exit(2);
      }
    });
    std::_Exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gump
