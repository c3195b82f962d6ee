// The status words of Gs and Ps: the legal transitions, and the scan bit.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/real_time.h"

namespace gump::rt {
namespace {

using Edges = std::set<std::pair<uint32_t, uint32_t>>;

const Edges kLegalG = {
    {kGidle, kGdead},        {kGdead, kGrunnable},    {kGdead, kGsyscall},
    {kGrunnable, kGrunning}, {kGrunning, kGrunnable}, {kGrunning, kGsyscall},
    {kGrunning, kGwaiting},  {kGrunning, kGdead},     {kGsyscall, kGrunning},
    {kGsyscall, kGrunnable}, {kGwaiting, kGrunnable},
};
constexpr uint32_t kAllG[] = {kGidle,    kGrunnable, kGrunning,
                              kGsyscall, kGwaiting,  kGdead};

const Edges kLegalP = {
    {kPidle, kPrunning},    {kPidle, kPgcstop},    {kPrunning, kPidle},
    {kPrunning, kPsyscall}, {kPrunning, kPgcstop}, {kPsyscall, kPidle},
    {kPsyscall, kPrunning}, {kPsyscall, kPgcstop}, {kPgcstop, kPidle},
    {kPgcstop, kPrunning},  {kPgcstop, kPdead},    {kPdead, kPgcstop},
};
constexpr uint32_t kAllP[] = {kPidle, kPrunning, kPsyscall, kPgcstop, kPdead};

constexpr char kBadG[] = "fatal error: casgstatus: bad transition";
constexpr char kBadP[] = "fatal error: bad P status transition";

void MoveG(uint32_t from, uint32_t to) {
  G g;
  g.atomicstatus.store(from, relaxed);
  casgstatus(&g, from, to);
  EXPECT_EQ(readgstatus(&g), to);
}

void MoveP(uint32_t from, uint32_t to) {
  P p;
  p.status.store(from, relaxed);
  EXPECT_TRUE(pcasstatus(&p, from, to));
  EXPECT_EQ(p.status.load(relaxed), to);
  p.status.store(from, relaxed);
  setPStatus(&p, from, to);
  EXPECT_EQ(p.status.load(relaxed), to);
}

TEST(GStatusTest, EveryEdgeOfTheDiagramPasses) {
  for (auto [from, to] : kLegalG) MoveG(from, to);
}

TEST(GStatusTest, EveryEdgeKeepsTheTrackingBitButTheOneThatEndsTheWait) {
  for (auto [from, to] : kLegalG) {
    G g;
    g.atomicstatus.store(from | kGtracked, relaxed);
    casgstatus(&g, from, to);
    EXPECT_EQ(readgstatus(&g), to) << "readgstatus hides the bit";
    const bool ends = from == kGrunnable && to == kGrunning;
    EXPECT_EQ(g.atomicstatus.load(relaxed), ends ? to : to | kGtracked)
        << from << " to " << to;
  }
}

TEST(GStatusDeathTest, EveryOtherEdgeIsFatal) {
  for (uint32_t from : kAllG) {
    for (uint32_t to : kAllG) {
      if (kLegalG.count({from, to}) != 0) continue;
      EXPECT_DEATH(MoveG(from, to), kBadG) << from << " to " << to;
    }
  }
}

TEST(GStatusDeathTest, StatusesThatDoNotExistAreFatal) {
  EXPECT_DEATH(MoveG(5, kGrunnable), kBadG);
  EXPECT_DEATH(MoveG(7, kGdead), kBadG);
  EXPECT_DEATH(MoveG(kGwaiting | kGscan, kGwaiting), kBadG);
}

TEST(GStatusDeathTest, WrongExpectationIsFatal) {
  // A double wake-up looks like this.
  for (auto [from, to] : kLegalG) {
    auto wrong = [from = from, to = to] {
      G g;
      g.atomicstatus.store(from == kGdead ? kGrunning : kGdead, relaxed);
      casgstatus(&g, from, to);
    };
    EXPECT_DEATH(wrong(), kBadG) << from << " to " << to;
  }
}

TEST(GStatusDeathTest, WrongExpectationOfATrackedGoroutineIsFatal) {
  auto wrong = [] {
    G g;
    g.atomicstatus.store(kGrunnable | kGtracked, relaxed);
    casgstatus(&g, kGwaiting, kGrunnable);
  };
  EXPECT_DEATH(wrong(), kBadG);
}

TEST(PStatusTest, EveryEdgeOfTheDiagramPasses) {
  for (auto [from, to] : kLegalP) MoveP(from, to);
}

TEST(PStatusDeathTest, EveryOtherEdgeIsFatal) {
  for (uint32_t from : kAllP) {
    for (uint32_t to : kAllP) {
      if (kLegalP.count({from, to}) != 0) continue;
      EXPECT_DEATH(MoveP(from, to), kBadP) << from << " to " << to;
    }
  }
  EXPECT_DEATH(MoveP(kPdead + 1, kPidle), kBadP);
}

TEST(PStatusTest, LoserOfACompetitionChangesNothing) {
  P p;
  p.status.store(kPidle, relaxed);
  EXPECT_FALSE(pcasstatus(&p, kPsyscall, kPidle));
  EXPECT_EQ(p.status.load(relaxed), uint32_t{kPidle});
}

TEST(PStatusDeathTest, OwnerMustKnowTheStatus) {
  P p;
  p.status.store(kPidle, relaxed);
  EXPECT_DEATH(setPStatus(&p, kPrunning, kPidle), kBadP);
}

TEST(GScanTest, OnlyWaitingAndSyscallCanBeScanned) {
  for (uint32_t status : {kGwaiting, kGsyscall}) {
    G g;
    g.atomicstatus.store(status, relaxed);
    EXPECT_TRUE(castogscanstatus(&g, status));
    EXPECT_EQ(readgstatus(&g), status | kGscan);
    EXPECT_FALSE(castogscanstatus(&g, status)) << "one scanner at a time";
    casfrom_Gscanstatus(&g, status);
    EXPECT_EQ(readgstatus(&g), status);
  }
}

TEST(GScanTest, TrackedGoroutinesAreScannedAndStayTracked) {
  for (uint32_t status : {kGwaiting, kGsyscall}) {
    G g;
    g.atomicstatus.store(status | kGtracked, relaxed);
    EXPECT_TRUE(castogscanstatus(&g, status));
    EXPECT_EQ(readgstatus(&g), status | kGscan);
    EXPECT_FALSE(castogscanstatus(&g, status)) << "one scanner at a time";
    casfrom_Gscanstatus(&g, status);
    EXPECT_EQ(g.atomicstatus.load(relaxed), status | kGtracked);
  }
}

TEST(GScanTest, AGoroutineThatHasLeftIsNotScanned) {
  G g;
  g.atomicstatus.store(kGrunnable, relaxed);
  EXPECT_FALSE(castogscanstatus(&g, kGwaiting));
  EXPECT_EQ(readgstatus(&g), uint32_t{kGrunnable});
}

TEST(GScanDeathTest, OtherStatusesHaveNoScanBit) {
  for (uint32_t status : {kGidle, kGrunnable, kGrunning, kGdead}) {
    G g;
    g.atomicstatus.store(status, relaxed);
    EXPECT_DEATH((void)castogscanstatus(&g, status),
                 "fatal error: castogscanstatus: bad status");
  }
}

TEST(GScanDeathTest, BitThatIsNotSetCannotBeCleared) {
  G g;
  g.atomicstatus.store(kGwaiting, relaxed);
  EXPECT_DEATH(casfrom_Gscanstatus(&g, kGwaiting), kBadG);
}

TEST(GScanTest, HoldsTheWakerOfTheGoroutine) {
  for (int round = 0; round < 200; round++) {
    G g;
    const uint32_t tracked = round % 2 == 0 ? 0 : uint32_t{kGtracked};
    g.atomicstatus.store(kGwaiting | tracked, relaxed);
    ASSERT_TRUE(castogscanstatus(&g, kGwaiting));
    Atomic<bool> trying;
    Atomic<bool> woken;
    std::thread waker([&] {
      trying.store(true, release);
      casgstatus(&g, kGwaiting, kGrunnable);
      woken.store(true, release);
    });
    while (!trying.load(acquire)) {
    }
    for (int i = 0; i < round * 20; i++) {
      ASSERT_FALSE(woken.load(acquire));
      ASSERT_EQ(readgstatus(&g), kGwaiting | kGscan);
    }
    casfrom_Gscanstatus(&g, kGwaiting);
    waker.join();
    EXPECT_EQ(readgstatus(&g), uint32_t{kGrunnable});
  }
}

// RaceForOneProcessor holds the scan bit on a SCHED_FIFO thread, while a thread
// of a higher priority waits for it on the same processor.
void RaceForOneProcessor() {
  cpu_set_t all;
  cpu_set_t one;
  CPU_ZERO(&one);
  sched_getaffinity(0, sizeof(all), &all);
  for (int i = CPU_SETSIZE - 1; i >= 0 && CPU_COUNT(&one) == 0; i--) {
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  }
  sched_setaffinity(0, sizeof(one), &one);
  // Ends the process if the waiter never sleeps.
  const rlimit limit = {500'000, 500'000};
  setrlimit(RLIMIT_RTTIME, &limit);
  G g;
  g.atomicstatus.store(kGwaiting, relaxed);
  sched_param p = {};
  p.sched_priority = 10;
  if (sched_setscheduler(0, SCHED_FIFO, &p) != 0) std::_Exit(1);
  if (!castogscanstatus(&g, kGwaiting)) std::_Exit(2);
  Atomic<bool> trying;
  std::thread waker([&] {
    sched_param above = {};
    above.sched_priority = 11;
    if (sched_setscheduler(0, SCHED_FIFO, &above) != 0) std::_Exit(3);
    trying.store(true, release);
    casgstatus(&g, kGwaiting, kGrunnable);
  });
  while (!trying.load(acquire)) usleep(100);
  casfrom_Gscanstatus(&g, kGwaiting);
  waker.join();
  std::_Exit(7);
}

TEST(GScanDeathTest, WakerLetsAHolderOfALowerPriorityRun) {
  if (!testing::MayBeRealTime()) GTEST_SKIP() << "needs CAP_SYS_NICE";
  if (kSanitizerBuild) GTEST_SKIP() << "sanitizers have threads, too";
  EXPECT_EXIT(RaceForOneProcessor(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gump::rt
