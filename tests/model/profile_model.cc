// The goroutine profile (runtime/diag/goroutine_profile.cc): the claims, the
// hook in casgstatus, and the end. The Ms, Ps and goroutines are bare structs.
// The goroutines have no stacks. In place of a stack each has its start
// function, which a goroutine that runs may change.
#include <cstring>

#include "runtime/diag/goroutine_profile.h"
#include "runtime/diag/trace.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/tls.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

constexpr int kMs = 3;
rt::M ms[kMs];
rt::G* selves[kMs];
rt::P ps[kMs];
rt::G* goroutines[3];

alignas(16) char bytes[512];
rt::Note worldStarts[kMs];

void heldRun(void*) {}
void freeRun(void*) {}
void laterRun(void*) {}
const rt::FuncType kHeld = {heldRun, [](void*) {}, nullptr};
const rt::FuncType kFree = {freeRun, [](void*) {}, nullptr};
const rt::FuncType kLater = {laterRun, [](void*) {}, nullptr};

void make(int i, rt::GStatus status, const rt::FuncType* fn) {
  goroutines[i] = rt::malg(nullptr);
  goroutines[i]->goid = static_cast<uint64_t>(i + 10);
  goroutines[i]->fn = fn;
  goroutines[i]->atomicstatus.store(status, rt::relaxed);
  nameWord(&goroutines[i]->profiled, "profiled");
  nameWord(&goroutines[i]->atomicstatus, "status");
}

void setUpProfile() {
  rt::modelTraces = true;
  rt::scanners.store(1, rt::relaxed);
  for (int i = 0; i < kMs; i++) {
    selves[i] = rt::malg(nullptr);
    selves[i]->m = &ms[i];
    selves[i]->atomicstatus.store(rt::kGrunning, rt::relaxed);
    ms[i].curg.store(selves[i], rt::relaxed);
    ms[i].p = &ps[i];
  }
  nameWord(&rt::goroutineProfile, "goroutineProfile");
}

// become makes the calling thread the M of this number, with its P or without.
void become(int i, bool withP) {
  rt::setg(selves[i]);
  if (!withP) ms[i].p = nullptr;
}

// run lets g run, which changes its function.
void run(rt::G* g, const rt::FuncType* fn) {
  rt::casgstatus(g, rt::kGrunnable, rt::kGrunning);
  g->fn = fn;
}

// begin begins a profile, and lets the world start.
void begin() {
  rt::profileBegin(rt::kStackProfile, bytes, sizeof(bytes), nullptr);
  for (rt::Note& n : worldStarts) rt::notewakeup(&n);
}

// Found is how often each function is in a profile.
struct Found {
  int held, free, later;
};
Found found[2];

// end ends the profile, counts what is in it, and gives the memory away.
void end(Found* f) {
  uint64_t lost;
  const size_t used = rt::profileEnd(&lost);
  check(lost == 0, "no room");
  for (size_t at = 0; at < used;) {
    uint64_t head[2];  // labels, n
    uintptr_t pc;
    std::memcpy(head, bytes + at, sizeof(head));
    check(head[0] == 0 && head[1] == 1, "a torn entry");
    std::memcpy(&pc, bytes + at + sizeof(head), sizeof(pc));
    if (pc == reinterpret_cast<uintptr_t>(heldRun)) f->held++;
    if (pc == reinterpret_cast<uintptr_t>(freeRun)) f->free++;
    if (pc == reinterpret_cast<uintptr_t>(laterRun)) f->later++;
    at += sizeof(head) + sizeof(pc);
  }
  std::memset(bytes, 0xff, sizeof(bytes));
}

// ---- A token is handed on ---------------------------------------------------

const Registered kToken({
    .name = "profile_token",
    .about = "a goroutine hands a token on, another ends and its cell is used "
             "again, while the goroutines are visited",
    .setup =
        [] {
          setUpProfile();
          make(0, rt::kGrunnable, &kHeld);
          make(1, rt::kGwaiting, &kFree);
          make(2, rt::kGdead, nullptr);
          thread("visit", [] {
            become(0, /*withP=*/false);
            begin();
            rt::profileVisit(goroutines[0]);
            rt::profileVisit(goroutines[1]);
            rt::profileVisit(goroutines[2]);
            end(&found[0]);
          });
          thread("run", [] {
            rt::notesleep(&worldStarts[0]);
            become(1, /*withP=*/true);
            rt::G* a = goroutines[0];
            rt::G* b = goroutines[1];
            run(a, &kFree);
            rt::casgstatus(b, rt::kGwaiting, rt::kGrunnable);
            rt::casgstatus(a, rt::kGrunning, rt::kGwaiting);
            run(b, &kHeld);
            rt::casgstatus(b, rt::kGrunning, rt::kGdead);
            b->fn = &kLater;
            rt::casgstatus(b, rt::kGdead, rt::kGrunnable);
            run(b, &kLater);
            goroutines[2]->fn = &kLater;
            rt::casgstatus(goroutines[2], rt::kGdead, rt::kGrunnable);
          });
        },
    .finish =
        [] {
          check(found[0].held == 1, "the token is not in one place");
          check(found[0].free == 1, "the other goroutine is not shown once");
          check(found[0].later == 0,
                "a goroutine that was made later is shown");
        },
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

// ---- States -----------------------------------------------------------------

struct SeenState {
  rt::Atomic<int32_t> waiting, runnable, other;
};
SeenState states[2];

// recordState counts how goroutine 0 or 1 is seen.
void recordState(rt::G* gp, const rt::ProfileView& view) {
  SeenState* s = &states[gp == goroutines[0] ? 0 : 1];
  rt::Atomic<int32_t>* n = view.status == rt::kGwaiting    ? &s->waiting
                           : view.status == rt::kGrunnable ? &s->runnable
                                                           : &s->other;
  n->add(1, rt::relaxed);
}
constexpr rt::ProfileKind kStates = {
    .each = 0, .record = recordState, .atStop = nullptr};

// profileStates takes a profile. The world starts with it.
void profileStates(rt::Note* starts) {
  rt::profileBegin(kStates, bytes, sizeof(bytes), nullptr);
  if (starts != nullptr) rt::notewakeup(starts);
  rt::profileVisit(goroutines[0]);
  rt::profileVisit(goroutines[1]);
  uint64_t lost;
  (void)rt::profileEnd(&lost);
}

int64_t seen(const rt::Atomic<int32_t>& n) { return n.load(rt::relaxed); }

// The second profile begins when the goroutines are as the first has found
// them, but the one that waited has become runnable.
const Registered kWokenUp({
    .name = "profile_woken",
    .about = "a goroutine is readied, and another one parks, while the "
             "goroutines are visited; then all are visited again",
    .setup =
        [] {
          setUpProfile();
          make(0, rt::kGrunnable, &kHeld);
          make(1, rt::kGwaiting, &kFree);
          thread("visit", [] {
            become(0, /*withP=*/false);
            profileStates(&worldStarts[0]);
            rt::notesleep(&worldStarts[1]);
            check(seen(states[0].runnable) == 1 && seen(states[0].waiting) == 0,
                  "the one that ran later is not runnable");
            check(seen(states[1].waiting) == 1 && seen(states[1].runnable) == 0,
                  "the one that was readied later does not wait");
            profileStates(nullptr);
          });
          thread("run", [] {
            rt::notesleep(&worldStarts[0]);
            become(1, /*withP=*/true);
            rt::casgstatus(goroutines[1], rt::kGwaiting, rt::kGrunnable);
            run(goroutines[0], &kFree);
            rt::casgstatus(goroutines[0], rt::kGrunning, rt::kGwaiting);
            rt::notewakeup(&worldStarts[1]);
          });
        },
    .finish =
        [] {
          check(seen(states[0].waiting) == 1 && seen(states[1].runnable) == 1,
                "the second profile shows states of the first");
          check(seen(states[0].other) + seen(states[1].other) == 0,
                "a state that there was not");
        },
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

// ---- The scan bit -----------------------------------------------------------

const Registered kScan({
    .name = "profile_scan",
    .about = "a goroutine that waits is visited, while a reclamation cycle has "
             "its stack",
    .setup =
        [] {
          setUpProfile();
          make(0, rt::kGwaiting, &kHeld);
          thread("visit", [] {
            become(0, /*withP=*/false);
            begin();
            rt::profileVisit(goroutines[0]);
            end(&found[0]);
          });
          thread("cycle", [] {
            become(1, /*withP=*/false);
            rt::G* a = goroutines[0];
            if (!rt::castogscanstatus(a, rt::kGwaiting)) return;
            a->stack.lo = 0;  // as if it dropped pages
            rt::casfrom_Gscanstatus(a, rt::kGwaiting);
          });
        },
    .finish =
        [] {
          check(found[0].held == 1 && found[0].free == 0,
                "not shown as it was");
        },
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

// ---- Threads without a P ----------------------------------------------------

const Registered kLate({
    .name = "profile_late",
    .about = "a thread without a P comes back from a call, and another makes a "
             "goroutine, while the profile begins",
    .setup =
        [] {
          setUpProfile();
          make(0, rt::kGsyscall, &kHeld);
          make(1, rt::kGdead, nullptr);
          thread("visit", [] {
            become(0, /*withP=*/false);
            begin();
            rt::profileVisit(goroutines[0]);
            // A new cell may lie behind the end of the visit.
            if (choose(2) == 0) rt::profileVisit(goroutines[1]);
            end(&found[0]);
          });
          thread("call", [] {
            become(1, /*withP=*/false);
            rt::G* a = goroutines[0];
            rt::casgstatus(a, rt::kGsyscall, rt::kGrunnable);
            rt::notesleep(&worldStarts[1]);
            ms[1].p = &ps[1];
            run(a, &kFree);
            rt::casgstatus(a, rt::kGrunning, rt::kGdead);
          });
          thread("make", [] {
            become(2, /*withP=*/false);
            rt::G* b = goroutines[1];
            b->fn = &kLater;
            rt::casgstatus(b, rt::kGdead, rt::kGrunnable);
            rt::notesleep(&worldStarts[2]);
            ms[2].p = &ps[2];
            run(b, &kFree);
          });
        },
    .finish =
        [] {
          check(found[0].held == 1, "the goroutine of the call is not shown");
          check(found[0].later <= 1, "a new goroutine is shown twice");
          check(found[0].free == 0, "a goroutine is shown as it was later");
        },
    .quick = {1, 1, 200},
    .full = {2, 1, 20000},
});

// ---- Profiles one after the other -------------------------------------------

rt::Atomic<bool> made;
bool madeBefore;

const Registered kTwice({
    .name = "profile_twice",
    .about = "a goroutine is made in a cell that was in an earlier profile, "
             "while another profile ends and a third begins",
    .setup =
        [] {
          setUpProfile();
          make(0, rt::kGrunnable, &kFree);
          thread("visit", [] {
            become(0, /*withP=*/false);
            rt::profileBegin(rt::kStackProfile, bytes, sizeof(bytes), nullptr);
            rt::profileVisit(goroutines[0]);
            end(&found[0]);
            madeBefore = made.load(rt::acquire);
            rt::profileBegin(rt::kStackProfile, bytes, sizeof(bytes), nullptr);
            rt::profileVisit(goroutines[0]);
            end(&found[1]);
          });
          thread("make", [] {
            become(1, /*withP=*/false);
            goroutines[0]->fn = &kLater;
            rt::casgstatus(goroutines[0], rt::kGdead, rt::kGrunnable);
            made.store(true, rt::release);
          });
          // The first profile, and the end of the goroutine.
          rt::setg(selves[2]);
          rt::profileBegin(rt::kStackProfile, bytes, sizeof(bytes), nullptr);
          rt::profileVisit(goroutines[0]);
          end(&found[0]);
          found[0] = {};
          goroutines[0]->atomicstatus.store(rt::kGdead, rt::relaxed);
        },
    .finish =
        [] {
          check(!madeBefore || found[1].later == 1, "a goroutine is missing");
          check(found[0].later + found[0].free <= 1, "shown twice");
        },
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

}  // namespace
}  // namespace gump::model
