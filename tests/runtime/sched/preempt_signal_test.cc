// preemptM: when the signal is sent, and when it is sent again.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "runtime/sched/preempt.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {
namespace {

std::atomic<int> urgents;

TEST(PreemptMTest, SendsAgainAfterASliceWithoutAnAnswer) {
  if (kSanitizerDefersHandlers) GTEST_SKIP() << "always sends";
  schedinit();
  struct sigaction counting = {};
  counting.sa_handler = [](int) { urgents++; };
  struct sigaction before;
  sigaction(SIGURG, &counting, &before);
  M m;
  m.procid.store(gettid(), relaxed);  // so each has come when tgkill returns
  preemptM(&m);
  EXPECT_EQ(urgents, 1);
  // If this thread is kept from running for a slice, the time still looks
  // later.
  const int64_t later = nanotime() + 60'000'000'000;
  m.signalSent.store(later, relaxed);
  preemptM(&m);
  EXPECT_EQ(urgents, 1);
  EXPECT_EQ(m.signalSent.load(relaxed), later);
  m.signalSent.store(nanotime() - kForcePreemptNS, relaxed);
  preemptM(&m);
  EXPECT_EQ(urgents, 2);
  m.signalSent.store(0, relaxed);  // as the handler does
  preemptM(&m);
  EXPECT_EQ(urgents, 3);
  sigaction(SIGURG, &before, nullptr);
}

}  // namespace
}  // namespace gump::rt
