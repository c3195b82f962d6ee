// sysmon reports a home of hooks whose thread has run none of its goroutines
// for a second. The rest of homes is in home.cc.
#include <utility>

#include "runtime/diag/panic.h"
#include "runtime/sched/home.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/threadstate_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// The homes of hooks, which never end, last first.
Atomic<Home*> hookedHomes;

constexpr int64_t kLongBlocked = 1'000'000'000;  // ns

// othersWait returns true if goroutines wait until the thread of h runs them.
bool othersWait(const Home* h) {
  return h->waiting.load(relaxed) > 0 ||  // hints
         h->incoming.load(relaxed) != nullptr;
}

// waitsForP returns true if the thread of h cannot run a goroutine because it
// has no P: it is being woken, or its goroutine is preempted in place.
bool waitsForP(const Home* h) {
  const uint32_t state = h->state.load(relaxed);  // hints
  return state == kHomeWaking ||
         (state == kHomeRunning && h->m->curg.load(relaxed) == nullptr);
}

// isBlocked returns true if goroutines have waited for h for long, and its
// thread has run none of them, although it had a P. Whenever such a wait ends,
// one has been taken out of `local`.
bool isBlocked(Home* h, int64_t now) {
  HomeWatch* w = &h->watch;
  if (!othersWait(h) || waitsForP(h)) {
    w->armed = false;
    return false;
  }
  const uint32_t taken = h->taken.load(relaxed);  // a hint
  if (!w->armed || w->taken != taken) {
    *w = {.armed = true, .taken = taken, .since = now};
  }
  return now - w->since >= kLongBlocked;
}

// reportBlocked says what keeps the thread of h. The report may come late: the
// thread may have gone on.
void reportBlocked(const Home* h) {
  constexpr const char* kWaits =
      "hooks: goroutines have waited for thread %d for a second: a goroutine "
      "waits with a lock\n";
  constexpr const char* kSleeps =
      "hooks: goroutines have waited for thread %d for a second: goroutine %U "
      "sleeps in a call that hooks do not know, or with a lock\n";
  constexpr const char* kComputes =
      "hooks: goroutines have waited for thread %d for a second: goroutine %U "
      "computes\n";
  const int32_t tid = h->m->procid.load(relaxed);
  // A cell of a goroutine is never freed. Pairs with the release in execute.
  const G* gp = h->m->curg.load(acquire);
  uint64_t sleeps = 0;
  if (gp == nullptr) {  // (T8)
    printf(kWaits, tid);
  } else if (threadState(tid, &sleeps) == ThreadState::kAsleep) {
    printf(kSleeps, tid, peek(gp->goid));
  } else {
    printf(kComputes, tid, peek(gp->goid));
  }
}

}  // namespace

void homeCountLocks(const int32_t* locks) noexcept {
  M* mp = acquirem();
  Home* h = mp->home;
  h->locks = locks;
  if (!h->hooked.load(relaxed)) {  // only this thread sets it
    h->hooked.store(true, relaxed);
    h->nextHooked = hookedHomes.load(relaxed);
    // Release: pairs with lookAtHomes.
    while (!hookedHomes.casWeak(h->nextHooked, h, release)) {
      h->nextHooked = hookedHomes.load(relaxed);
    }
  }
  releasem(mp);
}

void lookAtHomes(int64_t now) {
  // After a long time without a look, such as in a debugger, begin anew.
  static int64_t last = 0;
  const bool late = now - std::exchange(last, now) > 3 * kLongBlocked;
  for (Home* h = hookedHomes.load(acquire); h != nullptr; h = h->nextHooked) {
    if (late) h->watch.armed = false;
    if (isBlocked(h, now) && !std::exchange(h->watch.reported, true)) {
      reportBlocked(h);
    }
  }
}

int64_t nextLookAtHomes() {
  for (Home* h = hookedHomes.load(acquire); h != nullptr; h = h->nextHooked) {
    if (othersWait(h)) return kLongBlocked;
  }
  return INT64_MAX;
}

}  // namespace gump::rt
