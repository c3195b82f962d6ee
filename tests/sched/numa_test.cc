#include "runtime/sched/numa.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "gump/go.h"
#include "gump/os/file.h"
#include "gump/runtime.h"
#include "gump/runtime/thread.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/topology_linux.h"
#include "tests/testing/scoped_env.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::ScopedEnv;

// Each test runs a program with a topology of its own, which says on standard
// error what it sees.

[[noreturn]] void Say(const std::string& text) {
  std::fprintf(stderr, "%s", text.c_str());
  std::exit(0);
}

[[noreturn]] void SayNodes() {
  Run([] {});
  Run([] {});
  Say("nodes=" + std::to_string(rt::topology.nnodes));
}

// SayPsByNode says how many Ps each node has.
std::string PsByNode() {
  const rt::LockScope l(&rt::sched.lock);
  std::string text;
  for (int k = 0; k < rt::sched.nnodes.load(rt::relaxed); k++) {
    if (k > 0) text += "+";
    text += std::to_string(rt::sched.nodes[k].nprocs.load(rt::relaxed));
  }
  return text;
}

// OnEachP runs f once on every P at the same time.
void OnEachP(const std::function<void()>& f) {
  const int n = runtime::GOMAXPROCS(0);
  std::atomic<int> arrived = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < n; i++) {
    wg.Go([&] {
      arrived++;
      while (arrived < n) {
      }
      f();
    });
  }
  wg.Wait();
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
  const ScopedEnv env("GUMP_TOPOLOGY", "");
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

// ---- Dealing ----------------------------------------------------------------

[[noreturn]] void SayDealing(int procs) {
  runtime::GOMAXPROCS(procs);
  Say(std::to_string(runtime::NumNode()) + " nodes: " + PsByNode());
}

TEST(NumaDeathTest, PsAreDealtInProportion) {
  struct Case {
    const char* topology;
    int procs;
    const char* want;
  };
  for (const Case& c :
       {Case{"2x4", 8, "2 nodes: 4\\+4"}, Case{"2x4", 3, "2 nodes: 2\\+1"},
        Case{"2x4", 1, "1 nodes: 1"}, Case{"4x2", 8, "4 nodes: 2\\+2\\+2\\+2"},
        Case{"4x2", 2, "2 nodes: 1\\+1"}, Case{"1x8", 8, "1 nodes: 8"},
        Case{"0-5/6-7", 8, "2 nodes: 6\\+2"},
        Case{"0-2/3/4-7", 16, "3 nodes: 6\\+2\\+8"},
        Case{"64x1", 1024, "64 nodes: 16\\+16"}}) {
    const ScopedEnv env("GUMP_TOPOLOGY", c.topology);
    EXPECT_EXIT(SayDealing(c.procs), ::testing::ExitedWithCode(0), c.want)
        << c.topology;
  }
}

[[noreturn]] void SayOwnNodes() {
  std::atomic<int> good = 0;
  Run([&] {
    runtime::GOMAXPROCS(8);
    OnEachP([&] {
      rt::M* mp = rt::acquirem();  // keeps the P
      const int node = mp->p->id < 4 ? 0 : 1;
      if (runtime::Node() == node) good++;
      rt::releasem(mp);
    });
  });
  std::thread([&] {
    if (runtime::Node() == 0) good++;
  }).join();
  Say(good == 9 ? "good" : "bad");
}

TEST(NumaDeathTest, NodeIsThatOfTheCallersP) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x4");
  EXPECT_EXIT(SayOwnNodes(), ::testing::ExitedWithCode(0), "^good$");
}

[[noreturn]] void SayNodesOfCalls() {
  std::atomic<bool> good = true;
  Run([&] {
    runtime::GOMAXPROCS(8);
    OnEachP([&] {
      if (blocking([] { return runtime::Node(); }) != 0) good = false;
    });
  });
  Say(good ? "good" : "bad");
}

TEST(NumaDeathTest, NodeOfADeclaredCallIsZero) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x4");
  EXPECT_EXIT(SayNodesOfCalls(), ::testing::ExitedWithCode(0), "^good$");
}

// Work goes on while the number of nodes changes beneath it.
[[noreturn]] void ResizeUnderLoad() {
  std::atomic<int64_t> done = 0;
  Run([&] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 100; i++) {
      wg.Go([&] {
        while (!stop) {
          runtime::Gosched();
          done++;
        }
      });
    }
    for (int i = 0; i < 200; i++) {
      const int64_t before = done;
      runtime::GOMAXPROCS(1 + i * 7 % 9);
      while (done < before + 10) runtime::Gosched();
    }
    stop = true;
    wg.Wait();
    const rt::LockScope l(&rt::sched.lock);
    if (rt::sched.runqsize.load(rt::relaxed) != 0) Say("queued");
  });
  Say("good");
}

TEST(NumaDeathTest, ResizingLosesNoGoroutine) {
  for (const char* topology : {"2x4", "4x2", "0/1-7", "8x1"}) {
    const ScopedEnv env("GUMP_TOPOLOGY", topology);
    EXPECT_EXIT(ResizeUnderLoad(), ::testing::ExitedWithCode(0), "^good$")
        << topology;
  }
}

// Goroutines wait for pipes while the number of nodes changes between one and
// two. A poll that ends during a stop of the world finds no P, so its thread
// queues what it has found without one (injectOnNodes).
[[noreturn]] void LoseNodesUnderPolls() {
  constexpr int kPairs = 8;
  std::string text = "good";
  Run([&] {
    runtime::GOMAXPROCS(8);
    std::atomic<int64_t> done[kPairs] = {};
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    for (int i = 0; i < kPairs; i++) {
      auto there = os::Pipe();
      auto back = os::Pipe();
      if (!there.ok() || !back.ok()) Say("no pipe");
      wg.Go([r = there->first, w = back->second] {
        char c;
        for (;;) {
          const absl::StatusOr<size_t> n = r.Read(absl::MakeSpan(&c, 1));
          if (!n.ok() || *n == 0 || !w.Write(std::string_view(&c, 1)).ok())
            break;
        }
        (void)w.Close();
      });
      wg.Go([&stop, &done = done[i], w = there->second, r = back->first] {
        char c = 'x';
        while (!stop && w.Write(std::string_view(&c, 1)).ok() &&
               r.Read(absl::MakeSpan(&c, 1)).ok()) {
          done++;
        }
        (void)w.Close();
      });
    }
    for (int i = 0; i < 100; i++) {
      int64_t before[kPairs];
      for (int k = 0; k < kPairs; k++) before[k] = done[k];
      runtime::GOMAXPROCS(i % 2 == 0 ? 1 : 8);
      for (int k = 0; k < kPairs; k++) {
        if (!testing::Eventually([&] { return done[k] > before[k]; })) {
          text = "a pipe stands still";
        }
      }
    }
    stop = true;
    wg.Wait();
    const rt::LockScope l(&rt::sched.lock);
    if (rt::sched.runqsize.load(rt::relaxed) != 0) text = "queued";
  });
  Say(text);
}

TEST(NumaDeathTest, PollsThatEndWhileNodesGoLoseNoGoroutine) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x4");
  EXPECT_EXIT(LoseNodesUnderPolls(), ::testing::ExitedWithCode(0), "^good$");
}

// SetProcessors says that the nodes have so many processors, as topologyAdopt
// does when processors go offline or leave the affinity mask.
void SetProcessors(std::pair<int, int> processors) {
  rt::stopTheWorld(rt::WaitReason::kStoppingTheWorld);
  rt::topology.nodes[0].processors = processors.first;
  rt::topology.nodes[1].processors = processors.second;
  rt::startTheWorld();
}

// Goroutines that are queued on a node, that sleep, or that wait for a slot of
// their group or for their thread, go on while the node comes and goes.
[[noreturn]] void LoseNodesUnderLoad() {
  constexpr int kKinds = 4;
  struct Case {
    std::pair<int, int> processors;
    const char* want;
  };
  std::string text = "good";
  Run([&] {
    runtime::GOMAXPROCS(8);
    std::atomic<int64_t> done[kKinds] = {};
    std::atomic<bool> stop = false;
    runtime::Thread thread("home");
    runtime::Group group("two", {.max_procs = 2});
    sync::WaitGroup wg;
    const auto start = [&](int kind, void (*wait)(), const GoOptions& how) {
      wg.Add(1);
      go(how, [&, kind, wait] {
        while (!stop) {
          wait();
          done[kind]++;
        }
        wg.Done();
      });
    };
    const auto yield = [] { runtime::Gosched(); };
    for (int i = 0; i < 16; i++) {
      start(0, yield, {});
      start(1, [] { time::Sleep(absl::Microseconds(100)); }, {});
      start(2, yield, {.group = &group});
      start(3, yield, {.thread = &thread});
    }
    const Case kCases[] = {
        {{4, 0}, "8"}, {{0, 4}, "8"}, {{4, 4}, "4+4"}, {{1, 7}, "1+7"}};
    for (int round = 0; round < 40; round++) {
      const Case& c = kCases[round % 4];
      SetProcessors(c.processors);
      if (PsByNode() != c.want) text = PsByNode();
      for (std::atomic<int64_t>& n : done) {
        const int64_t before = n;
        while (n < before + 10) runtime::Gosched();
      }
    }
    stop = true;
    wg.Wait();
  });
  Say(text);
}

TEST(NumaDeathTest, NodesThatComeAndGoLoseNoGoroutine) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x4");
  EXPECT_EXIT(LoseNodesUnderLoad(), ::testing::ExitedWithCode(0), "^good$");
}

// With fewer Ps than nodes, the nodes without a P have no part.
[[noreturn]] void RunOnFewPs(int procs) {
  std::atomic<bool> good = true;
  Run([&] {
    runtime::GOMAXPROCS(procs);
    if (runtime::NumNode() != procs) good = false;
    sync::WaitGroup wg;
    for (int i = 0; i < 1000; i++) {
      wg.Go([&] {
        if (runtime::Node() >= procs) good = false;
        runtime::Gosched();
        time::Sleep(absl::Microseconds(10));
      });
    }
    wg.Wait();
  });
  Say(good ? "good" : "bad");
}

TEST(NumaDeathTest, FewerPsThanNodesUseSomeOfTheNodes) {
  for (const char* topology : {"8x1", "8x4", "64x2"}) {
    for (const int procs : {1, 2, 5}) {
      const ScopedEnv env("GUMP_TOPOLOGY", topology);
      EXPECT_EXIT(RunOnFewPs(procs), ::testing::ExitedWithCode(0), "^good$")
          << topology << " " << procs;
    }
  }
}

// ---- Waking, N1 to N3 -------------------------------------------------------

// SayLatency starts a goroutine on node 0 while all Ps of that node compute,
// and those of the other are idle.
[[noreturn]] void SayLatency() {
  std::string text = "good";
  Run([&] {
    runtime::GOMAXPROCS(4);
    std::atomic<bool> stop = false;
    std::atomic<int> computing = 0;
    // Fill all four Ps, then let those of node 1 end.
    sync::WaitGroup wg;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        computing++;
        while (computing < 4) {
        }
        if (runtime::Node() == 1) return;
        std::atomic<bool> ran = false;
        if (computing.fetch_add(1) == 4) {
          // Only one of the two goroutines starts another, and neither enters
          // the scheduler until that one has run, or time is up.
          wg.Go([&] { ran = true; });
          const auto end =
              std::chrono::steady_clock::now() + std::chrono::seconds(20);
          while (!ran && std::chrono::steady_clock::now() < end) {
          }
          if (!ran) text = "not run";
          stop = true;
        }
        while (!stop) {
        }
      });
    }
    wg.Wait();
  });
  Say(text);
}

TEST(NumaDeathTest, GoroutineOfABusyNodeGetsAPOfAnother) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x2");
  const ScopedEnv debug("GODEBUG", "asyncpreemptoff=1");
  EXPECT_EXIT(SayLatency(), ::testing::ExitedWithCode(0), "^good$");
}

// A sleeper goes on where it slept, although the M in the poller may be one of
// the other node.
[[noreturn]] void SaySleepers() {
  std::string text;
  Run([&] {
    runtime::GOMAXPROCS(8);
    sync::WaitGroup wg;
    std::atomic<int> moves = 0;
    for (int i = 0; i < 64; i++) {
      wg.Go([&] {
        for (int k = 0; k < 20; k++) {
          const int before = runtime::Node();
          time::Sleep(absl::Milliseconds(1));
          if (runtime::Node() != before) moves++;
        }
      });
    }
    wg.Wait();
    const debug::SchedStats s = debug::ReadSchedStats();
    if (s.nodes != 2) text += "nodes";
    if (s.node_runs < 64 * 20) text += " runs " + std::to_string(s.node_runs);
    // A few may move by N2: on a starved machine, threads that hold the Ps of a
    // node have no processor, and the node is crowded. By chance alone, half of
    // them would.
    if (moves > 64 * 20 / 5) text += " moves " + std::to_string(moves);
  });
  Say(text + "end");
}

TEST(NumaDeathTest, SleepersGoOnOnTheirNode) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x4");
  EXPECT_EXIT(SaySleepers(), ::testing::ExitedWithCode(0), "^end$");
}

// A goroutine waits in a read, and one of the other node sets the deadline. So
// the only P of that other node has the timer. No P is idle, so no other takes
// it.
[[noreturn]] void SayReaders() {
  constexpr int kReads = 50;
  std::string text;
  Run([&] {
    runtime::GOMAXPROCS(2);
    auto pipe = os::Pipe();
    if (!pipe.ok()) Say(pipe.status().ToString());
    const os::File& r = pipe->first;
    int moves = 0;
    for (int reads = 0; reads < kReads;) {
      std::atomic<int> arrived = 0;
      std::atomic<int> nodes = 0;
      std::atomic<int> apart = 0;  // 2: both goroutines know their nodes
      std::atomic<bool> done = false;
      bool moved = false;
      // Returns true if the two goroutines are on two nodes. Both compute here.
      const auto meet = [&] {
        arrived++;
        while (arrived < 2) {
        }
        nodes += runtime::Node();
        apart++;
        while (apart < 2) {
        }
        return nodes == 1;
      };
      (void)r.SetReadDeadline(absl::InfiniteFuture());
      sync::WaitGroup wg;
      wg.Go([&] {
        if (!meet()) return;
        (void)r.SetReadDeadline(absl::Now() + absl::Microseconds(200));
        while (!done) runtime::Gosched();
      });
      wg.Go([&] {
        if (!meet()) return;
        wg.Go([&] {
          while (!done) runtime::Gosched();
        });
        const int before = runtime::Node();
        char c;
        (void)r.Read(absl::Span<char>(&c, 1));
        moved = runtime::Node() != before;
        done = true;
      });
      wg.Wait();
      if (nodes != 1) continue;
      reads++;
      if (moved) moves++;
    }
    // A few may move by N2, as above.
    text =
        "moves " + std::to_string(moves) + (moves > kReads / 5 ? " bad" : "");
  });
  Say(text);
}

TEST(NumaDeathTest, ReaderGoesOnOnItsNodeAfterADeadline) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x1");
  EXPECT_EXIT(SayReaders(), ::testing::ExitedWithCode(0), "^moves [0-9]+$");
}

// ---- Memory -----------------------------------------------------------------

// PoolsOfCells says if a free cell is in the pool of a node on which it does
// not lie, and if the pool of one of the two nodes is empty.
std::string PoolsOfCells() {
  const rt::LockScope l(&rt::sched.gFreeLock);
  std::string text;
  for (int k = 0; k < 2; k++) {
    int n = 0;
    for (rt::G* gp = rt::sched.gPools[k].free.head; gp != nullptr;
         gp = gp->schedlink) {
      n++;
      if (gp->memoryNode != k) text += "misplaced ";
    }
    if (n == 0) text += "empty ";
    if (n != rt::sched.gPools[k].n.load(rt::relaxed)) text += "miscounted ";
  }
  return text + "end";
}

// Goroutines begin on both nodes, and end on both. A cycle sends their cells
// home.
[[noreturn]] void SayPools() {
  std::string text;
  Run([&] {
    runtime::GOMAXPROCS(8);
    OnEachP([] {
      sync::WaitGroup wg;
      for (int i = 0; i < 1000; i++) wg.Go([] { runtime::Gosched(); });
      wg.Wait();
    });
    runtime::GC();
    text = PoolsOfCells();
  });
  Say(text);
}

TEST(NumaDeathTest, CellsAreInThePoolsOfTheirNodes) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x4");
  EXPECT_EXIT(SayPools(), ::testing::ExitedWithCode(0), "^end$");
}

// ---- Looking inside ---------------------------------------------------------

[[noreturn]] void Trace() {
  Run([] {
    runtime::GOMAXPROCS(4);
    time::Sleep(absl::Milliseconds(50));
  });
  std::exit(0);
}

TEST(NumaDeathTest, ScheddetailShowsNodes) {
  const ScopedEnv env("GUMP_TOPOLOGY", "2x2");
  const ScopedEnv debug("GODEBUG", "schedtrace=10,scheddetail=1");
  EXPECT_EXIT(
      Trace(), ::testing::ExitedWithCode(0),
      "\n  N1: id=1 firstp=2 procs=2 idleprocs=[0-9]+ idlethreads=[0-9]+ "
      "spinningthreads=[0-9]+ needspinning=[01] runqsize=[0-9]+ "
      "gfreecnt=[0-9]+ runs=[0-9]+ moves=[0-9]+ steals=[0-9]+ "
      "stealsacross=[0-9]+\n"
      "(.|\n)*\n  P3: status=.* timerslen=[0-9]+ node=1\n");
}

TEST(NumaDeathTest, ScheddetailOfOneNodeShowsNoNodes) {
  const ScopedEnv env("GUMP_TOPOLOGY", "1x4");
  const ScopedEnv debug("GODEBUG", "schedtrace=10,scheddetail=1");
  EXPECT_EXIT(Trace(), ::testing::ExitedWithCode(0),
              "sysmonwait=[a-z]+\n  P0: .* timerslen=[0-9]+\n");
}

}  // namespace
}  // namespace gump
