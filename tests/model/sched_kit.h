// Helpers that the models of the whole scheduler share.
#ifndef TESTS_MODEL_SCHED_KIT_H_
#define TESTS_MODEL_SCHED_KIT_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "gump/internal/linkname.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/os_linux.h"
#include "sysmon/retake.h"
#include "tests/model/model.h"

namespace gump::model {

// The number of goroutines of startG that have ended.
inline rt::Atomic<int> ran;
inline rt::Note first, second;

inline constexpr rt::FuncType kType = {[](void* closure) {
                                         (*static_cast<void (**)()>(closure))();
                                         ran.add(1, rt::relaxed);
                                       },
                                       [](void*) {},
                                       [](void* dst, void* src) noexcept {
                                         *static_cast<void**>(dst) =
                                             *static_cast<void**>(src);
                                       }};

// startG starts a goroutine.
inline void startG(void (*f)()) {
  check(rt::newproc(&kType, reinterpret_cast<void*>(&f), nullptr, 0) ==
            rt::SpawnResult::kOk,
        "newproc");
}

// setUpSchedulerOf starts the runtime with that many Ps and Ms. Two of the Ms
// have run something before, so that cells and stacks are at hand.
// setUpScheduler does so with two Ps.
inline void setUpSchedulerOf(const char* procs, int ms = 2) {
  rt::gomaxprocs.store(0, rt::relaxed);
  setenv("GOMAXPROCS", procs, 1);
  rt::schedinit();
  for (int n = ms; n > 0; n--) rt::newm(nullptr, nullptr, -1);
  rt::sched.nmextra = 8;  // plain threads may come at any time
  settle();
  plainThread("warm", [] {
    startG([] { rt::notesleep(&first); });
    startG([] { rt::notewakeup(&first); });
  });
  settle();
  rt::noteclear(&first);
  check(ran.load(rt::relaxed) == 2, "warming up");
  ran.store(0, rt::relaxed);
  nameWord(&rt::sched.nmspinning, "nmspinning");
  nameWord(&rt::sched.needspinning, "needspinning");
  nameWord(&rt::sched.npidle, "npidle");
  nameWord(&rt::sched.runqsize, "runqsize");
  nameWord(&rt::sched.posted, "posted");
  nameWord(&rt::sched.lock, "sched.lock");
  nameWord(&rt::allp[0]->runnext, "P0.runnext");
  nameWord(&rt::allp[1]->runnext, "P1.runnext");
  nameWord(&rt::allp[0]->status, "P0.status");
  nameWord(&rt::allp[1]->status, "P1.status");
}
inline void setUpScheduler() { setUpSchedulerOf("2"); }

// setUpNodes does so with two NUMA nodes.
inline void setUpNodes(const char* topology, const char* ps) {
  setenv("GUMP_TOPOLOGY", topology, 1);
  setUpSchedulerOf(ps, std::atoi(ps));
  check(rt::sched.nnodes.load(rt::relaxed) == 2, "not two nodes");
  nameWord(&rt::sched.nodes[0].npidle, "N0.npidle");
  nameWord(&rt::sched.nodes[1].npidle, "N1.npidle");
  nameWord(&rt::sched.nodes[0].needspinning, "N0.needspinning");
  nameWord(&rt::sched.nodes[0].waits, "N0.waits");
}

// node returns the node of the calling goroutine.
inline int node() {
  rt::M* mp = rt::acquirem();
  const int k = mp->p->node.load(rt::relaxed);
  rt::releasem(mp);
  return k;
}

// keepsP starts a goroutine and keeps its P until that one has run.
inline rt::Note ranNote;
inline int64_t keepsSince;

inline void keepsP() {
  keepsSince = rt::nanotime();
  startG([] {
    check(rt::nanotime() - keepsSince < 1'000'000,
          "a goroutine waited beside an idle P");
    rt::notewakeup(&ranNote);
  });
  rt::notesleep(&ranNote);
}

// callUntil is a declared call that lasts until another thread wakes n.
inline void callUntil(rt::Note* n) {
  rt::entersyscall();
  rt::notesleep(n);
  rt::exitsyscall();
}

// retakeFromCalls looks twice at each P, as sysmon does, and retakes the Ps of
// goroutines in declared calls.
inline void retakeFromCalls(int64_t now) {
  rt::M* mp = rt::acquirem();
  for (int64_t at : {now, now + 20'000'000}) {
    const int n = rt::gomaxprocs.load(rt::relaxed);
    for (int i = 0; i < n; i++) (void)rt::retakeSyscall(rt::allp[i], at);
  }
  rt::releasem(mp);
}

// allRan: n goroutines have ended, and everything is idle again.
inline void allRan(int n) {
  check(ran.load(rt::relaxed) == n, "a goroutine has not run");
  check(rt::sched.npidle.load(rt::relaxed) == rt::gomaxprocs.load(rt::relaxed),
        "a P is not idle");
  check(rt::sched.nmspinning.load(rt::relaxed) == 0, "an M spins asleep");
  check(rt::globalSize(rt::relaxed) == 0, "the global queue is not empty");
}

template <int n>
void allRan() {
  allRan(n);
}

// The words that the model's store buffers may hold back. m.locks is not among
// them, because assembly, which knows no such buffers, writes it, too.
inline bool ofSchedOrP(const void* addr) {
  const auto in = [addr](const void* object, size_t n) {
    return reinterpret_cast<uintptr_t>(addr) -
               reinterpret_cast<uintptr_t>(object) <
           n;
  };
  for (int i = 0; i < rt::gomaxprocs.load(rt::relaxed); i++) {
    if (in(rt::allp[i], sizeof(rt::P))) return true;
  }
  return in(&rt::sched, sizeof(rt::sched));
}

}  // namespace gump::model

#endif  // TESTS_MODEL_SCHED_KIT_H_
