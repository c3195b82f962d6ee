// A fixture for functions that need a P and no scheduler.
#ifndef TESTS_RUNTIME_BARE_P_H_
#define TESTS_RUNTIME_BARE_P_H_

#include "gtest/gtest.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

// BareP runs each case as the g0 of an M that owns a P and is in the runtime.
class BareP : public ::testing::Test {
 protected:
  BareP() {
    m_.g0.m = &m_;
    m_.p = &p_;
    setg(&m_.g0);
    m_.locks.store(1, relaxed);
  }
  ~BareP() override { setg(nullptr); }

  M m_;
  P p_;
};

}  // namespace gump::rt

#endif  // TESTS_RUNTIME_BARE_P_H_
