// Readying a goroutine, on bare structs: no scheduler runs.
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/chan.h"
#include "tests/runtime/bare_p.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::rt {
namespace {

// ReadyTest is BareP with one P, so that wakep wakes no M.
class ReadyTest : public BareP {
 protected:
  ReadyTest() {
    allp[0] = &p_;
    gomaxprocs.store(1, relaxed);
    sched.wakeMode.store(WakeMode::kOneP, relaxed);
    g_.atomicstatus.store(kGwaiting, relaxed);
  }
  ~ReadyTest() override {
    sched.wakeMode.store(mode_, relaxed);
    gomaxprocs.store(0, relaxed);
    allp[0] = nullptr;
  }

  // Ready readies gp, and checks that m.locks is what it was before.
  void Ready(G* gp) {
    readyAndRelease(acquirem(), gp, kGwaiting);
    EXPECT_EQ(m_.locks.load(relaxed), 1);
  }

  G g_;

 private:
  const WakeMode mode_ = sched.wakeMode.load(relaxed);
};
using ReadyDeathTest = ReadyTest;

TEST_F(ReadyTest, ReadiedGoroutineIsNextAndTheOldNextOneIsLast) {
  G ring;
  G old;
  runqput(&p_, &ring, /*next=*/false);
  runqput(&p_, &old, /*next=*/true);
  Ready(&g_);
  EXPECT_EQ(readgstatus(&g_), uint32_t{kGrunnable});
  for (const G* want : {&g_, &ring, &old}) {
    EXPECT_EQ(runqget(&p_).gp, want);
  }
}

TEST_F(ReadyTest, WithoutAPItGoesToTheGlobalQueue) {
  m_.p = nullptr;
  sched.nmspinning.add(1, relaxed);  // so that wakep relies on another M
  Ready(&g_);
  sched.nmspinning.add(-1, relaxed);
  EXPECT_EQ(readgstatus(&g_), uint32_t{kGrunnable});
  LockScope l(&sched.lock);
  EXPECT_EQ(globrunqget(&sched.nodes[0]), &g_);
}

TEST_F(ReadyTest, TrackedGoroutineStaysTrackedAndItsTimeBegins) {
  g_.atomicstatus.store(kGwaiting | kGtracked, relaxed);
  g_.trackedWeight = 1;
  Ready(&g_);
  EXPECT_EQ(g_.atomicstatus.load(relaxed), kGrunnable | kGtracked);
  EXPECT_NE(g_.waitsince, 0);
  EXPECT_EQ(runqget(&p_).gp, &g_);
}

TEST_F(ReadyDeathTest, SecondWakerIsFatal) {
  EXPECT_EXIT(
      {
        Ready(&g_);
        Ready(&g_);
      },
      ::testing::ExitedWithCode(2),
      "casgstatus goid=0 4->1 but status is 1\n"
      "fatal error: casgstatus: bad transition\n");
}

// If the waker stored the status although a scanner may set the bit, it would
// overwrite the bit, and the scanner would end the process.
TEST_F(ReadyTest, ScanBitIsNotLostToAWaker) {
  constexpr int kBits = kSanitizerBuild ? 1'000 : 20'000;
  scanners.add(1, seq_cst);
  Atomic<bool> done;
  std::thread scanner([&] {
    for (int bits = 0; bits < kBits;) {
      if (!castogscanstatus(&g_, kGwaiting)) continue;
      casfrom_Gscanstatus(&g_, kGwaiting);
      bits++;
    }
    done.store(true, relaxed);
  });
  while (!done.load(relaxed)) {
    Ready(&g_);
    EXPECT_EQ(runqget(&p_).gp, &g_);
    g_.atomicstatus.store(kGwaiting, release);
  }
  scanner.join();
  scanners.add(-1, seq_cst);
}

// A channel readies by a path of its own.
TEST_F(ReadyTest, ChannelWaitsForAThreadThatHoldsTheScanBit) {
  scanners.add(1, seq_cst);
  Hchan* c = makechan(&internal::kElemType<int>, 0);
  constexpr int kRounds = kSanitizerBuild ? 10 : 40;
  for (int round = 0; round < kRounds; round++) {
    g_.atomicstatus.store(kGwaiting, relaxed);
    int received = 0;
    Sudog sg;
    sg.g = &g_;
    sg.elem = &received;
    sg.c = c;
    enqueue(&c->recvq, &sg);
    Atomic<bool> held;
    Atomic<bool> woken;
    std::thread scanner([&] {
      EXPECT_TRUE(castogscanstatus(&g_, kGwaiting));
      held.store(true, release);
      // The sender takes the sudog, and then readies its goroutine.
      while (!full(c)) {
      }
      for (int i = 0; i < round * 100; i++) {
        EXPECT_FALSE(woken.load(acquire));
        EXPECT_EQ(readgstatus(&g_), kGwaiting | kGscan);
      }
      casfrom_Gscanstatus(&g_, kGwaiting);
    });
    while (!held.load(acquire)) {
    }
    int value = round + 1;
    EXPECT_EQ(chansend(c, &value, /*block=*/false), ChanResult::kOk);
    woken.store(true, release);
    scanner.join();
    EXPECT_EQ(readgstatus(&g_), uint32_t{kGrunnable});
    EXPECT_EQ(received, value);
    EXPECT_EQ(runqget(&p_).gp, &g_);
    if (HasFailure()) break;
  }
  chanRelease(c);
  scanners.add(-1, seq_cst);
}

// ---- In a runtime that is otherwise whole -----------------------------------

TEST(ChannelDeathTest, SenderThatIsTheSecondWakerIsFatal) {
  EXPECT_EXIT(testing::RunWith(1,
                               [] {
                                 chan<int> c = make_chan<int>();
                                 Atomic<G*> receiver;
                                 go([&] {
                                   receiver.store(getg(), release);
                                   (void)c.Recv();
                                 });
                                 (void)testing::Eventually([&] {
                                   const G* gp = receiver.load(acquire);
                                   return gp != nullptr &&
                                          readgstatus(gp) == kGwaiting;
                                 });
                                 // With this it is not preempted in between.
                                 M* mp = acquirem();
                                 goready(receiver.load(acquire));
                                 c.Send(1);
                                 releasem(mp);
                               }),
              ::testing::ExitedWithCode(2),
              "casgstatus goid=[0-9]+ 4->1 but status is 1\n"
              "fatal error: casgstatus: bad transition\n");
}

}  // namespace
}  // namespace gump::rt
