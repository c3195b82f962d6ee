// A fixture for the protocol between a sleeper and the M that took its P.
#ifndef TESTS_RUNTIME_SCHED_PRESUMED_H_
#define TESTS_RUNTIME_SCHED_PRESUMED_H_

#include "gtest/gtest.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

// Two Ps, an M that sleeps with the first, and an M that looks at it.
class PresumedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!haveMembarrier()) GTEST_SKIP() << "no membarrier";
  }

  PresumedTest() {
    schedinit();
    asker_.g0.m = &asker_;
    setg(&asker_.g0);
    m_.curg.store(&g_, release);
    g_.m = &m_;
    Running(&p_[0]);
  }
  ~PresumedTest() override { setg(nullptr); }

  void Running(P* pp) {
    m_.p = pp;
    pp->m.store(&m_, release);
    pp->status.store(kPrunning, relaxed);
  }
  // ComesIn does what endPresumption does, and lets the M have the second P.
  void ComesIn() {
    m_.presumed.store(kPresumedNot, relaxed);
    Running(&p_[1]);
  }

  M asker_;
  M m_;
  G g_;
  P p_[2];
};

}  // namespace gump::rt

#endif  // TESTS_RUNTIME_SCHED_PRESUMED_H_
