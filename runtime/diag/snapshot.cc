#include "runtime/diag/snapshot.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/leaks.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/group.h"
#include "runtime/sched/home.h"
#include "runtime/sched/labels.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/scope.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/tracking.h"
#include "runtime/sys/os_linux.h"
#include "runtime/wait/synctest.h"

namespace gump::rt {

// ---- One goroutine

namespace {

constexpr int64_t kMinute = 60'000'000'000;

const Ancestors* ancestorsOf(const G* gp) {
  const GExtra* extra = gp->extra.load(acquire);  // pairs with extraOf
  return extra == nullptr ? nullptr : extra->ancestors;
}

// describe fills in all that the caller may read of gp. The caller is gp, or
// keeps gp where it is, or accepts values that may be torn.
GUMP_NO_SANITIZE void describe(const G* gp, uint32_t status, GRecord* r) {
  *r = GRecord{};
  r->gp = gp;
  r->mp = gp->m;
  if (r->mp != nullptr) r->mid = r->mp->id;
  r->goid = gp->goid;
  r->parentGoid = gp->parentGoid;
  r->gopc = gp->gopc;
  r->fn = gp->fn;
  r->ancestors = ancestorsOf(gp);
  r->status = status;
  r->reason = gp->waitreason;
  const Bubble* b = gp->bubble;  // type-stable
  if (b != nullptr) r->bubble = b->id;
  if (const Group* g = groupOf(gp)) {
    r->inGroup = true;
    for (size_t i = 0; i + 1 < sizeof(r->group); i++) {
      r->group[i] = g->shortName[i];
    }
    r->groupFull = gp->groupFlags == kGroupQueued;
  }
  r->locked = gp->lockedm != nullptr && !gp->inPlace && !gp->onOtherStack;
  const Home* h = homeOf(gp);  // type-stable, as its M is
  if (h == nullptr) return;
  r->locked = false;
  r->onThread = true;
  std::memcpy(r->thread, h->name, sizeof(r->thread) - 1);
}

// copyText copies a text that ends in NUL. If it does not fit, it is cut before
// the character that would be cut in two.
template <size_t N>
GUMP_NO_SANITIZE void copyText(const char* from, char (&to)[N]) {
  size_t i = 0;
  for (; i + 1 < N && from[i] != '\0'; i++) to[i] = from[i];
  const auto continues = [](char c) { return (c & 0xc0) == 0x80; };  // UTF-8
  if (from[i] != '\0') {
    const size_t cut = i;
    while (i > 0 && cut - i < 3 && continues(from[i])) i--;
  }
  to[i] = '\0';
}

// copyNames copies gp's name, the scope that it is a goroutine of, and the
// pointer to its labels. gp frees its name when it ends, and leaves its scope,
// so the caller is gp or keeps it from running.
GUMP_NO_SANITIZE void copyNames(const G* gp, GRecord* r) {
  if (gp->name != nullptr) copyText(gp->name, r->name);
  r->labels = labelsOf(gp);
  const ScopeRecord* s = scopeOf(gp);
  if (s == nullptr) return;
  r->scope = s;
  r->scopeOuter = s->outer;
  r->scopeOwner = s->owner_goid;
  copyText(s->name, r->scopeName);
}

// takeStill describes and walks gp, which cannot run in the meantime.
void takeStill(const G* gp, uint32_t status, GRecord* r, Frames* frames) {
  describe(gp, status, r);
  copyNames(gp, r);
  frames->clear();
  if (gp->foreign) {
    // Its thread sleeps on a futex, and we have no context of its stack.
    r->stack = GRecord::Stack::kForeignThread;
    r->tid = gp->m->procid.load(acquire);  // pairs with needm
  } else if (gp->stack.lo != 0 && gp->sched.fresh == 0) {
    walkParked(gp, frames);
  }
}

// takeMoving describes gp, whose thread may change it meanwhile.
void takeMoving(const G* gp, uint32_t status, GRecord* r, Frames* frames) {
  frames->clear();
  describe(gp, status, r);
  r->stack = GRecord::Stack::kRunning;
}

}  // namespace

void takeSelf(const G* gp, GRecord* r) {
  describe(gp, readgstatus(gp), r);
  copyNames(gp, r);
}

void takeParked(G* gp, uint32_t status, int64_t now, GRecord* r,
                Frames* frames) {
  takeStill(gp, status, r, frames);
  if ((status & ~uint32_t{kGscan}) == kGwaiting) {
    // Parking does not read the clock, so the age of a wait counts from the
    // first dump that saw it. If the status had the scan bit, another thread
    // may hold it.
    if (status == kGwaiting) noteWaitSince(gp, now);
    // That thread may write the time just now. Then this dump may miss it.
    const int64_t since = peek(gp->waitsince);
    if (since != 0) {
      r->waitNanos = std::max<int64_t>(now - since, 0);
      r->minutes = r->waitNanos / kMinute;
    }
  }
}

bool takeOther(G* gp, int64_t now, GRecord* r, Frames* frames) {
  for (;;) {
    uint32_t status = readgstatus(gp);
    if (gp->foreign && (status & ~uint32_t{kGscan}) != kGwaiting) return false;
    switch (status) {
      case kGidle:
      case kGdead:
        return false;
      case kGwaiting:
        // If this fails, gp has just been readied: look again.
        if (!castogscanstatus(gp, kGwaiting)) continue;
        takeParked(gp, status, now, r, frames);
        retainLabels(r->labels);
        casfrom_Gscanstatus(gp, kGwaiting);
        return true;
      // kGrunnable: gp is on a queue, and the world has stopped or been told to
      // stop. kGwaiting | kGscan: a thread already holds gp's scan bit. Either
      // this thread took the bit, and then a signal or a failure brought it
      // here, or a reclamation cycle or a dump of another thread has taken it.
      case kGrunnable:
      case kGwaiting | kGscan:
        takeParked(gp, status, now, r, frames);
        retainLabels(r->labels);
        return true;
      default:
        takeMoving(gp, status, r, frames);
        return true;
    }
  }
}

// The status is read first because it publishes the other field, and foreign
// threads make goroutines while the world is stopped.
bool hiddenInDump(const G* gp, int32_t level) {
  const uint32_t status = readgstatus(gp);
  return status == kGidle || status == kGdead ||
         (level < 2 && isSystemGoroutine(gp));
}

// ---- Ancestors

// More ancestors would not help a reader.
uint32_t maxAncestors() {
  constexpr int32_t kMost = 100;
  return static_cast<uint32_t>(std::min(debug.tracebackancestors, kMost));
}
size_t ancestorsRoom() {
  if (debug.tracebackancestors <= 0) return 0;
  return sizeof(Ancestors) + maxAncestors() * sizeof(Ancestors::One);
}

// ---- All goroutines

namespace {

struct SnapshotEntry {
  GRecord record;
  uint64_t lost = 0;
  uint32_t kept = 0;
  bool truncated = false;
  // uintptr_t pcs[kept] follow, and record.ancestors->bytes()
};

// putEntry puts r and f into the memory that room(size) returns. If that is
// nullptr, it drops the reference to the labels.
template <class Room>
void putEntry(const GRecord& r, const Frames& f, const Room& room) {
  SnapshotEntry e{
      .record = r, .lost = f.lost, .kept = f.kept, .truncated = f.truncated};
  const size_t pcs = f.kept * sizeof(uintptr_t);
  const size_t more = r.ancestors == nullptr ? 0 : r.ancestors->bytes();
  char* at = room(sizeof(e) + pcs + more);
  if (at == nullptr) {
    releaseLabels(r.labels);
    return;
  }
  std::memcpy(at, &e, sizeof(e));
  std::memcpy(at + sizeof(e), f.pcs, pcs);
  if (more != 0) std::memcpy(at + sizeof(e) + pcs, r.ancestors, more);
}

// recordMoving and recordStill are recordState for goroutines that move and for
// those that do not. A goroutine that moves may be recorded by its own thread,
// which may have little stack. So recordMoving has no Frames, and makes the
// record in place.
GUMP_NOINLINE void recordMoving(const G* gp, uint32_t status) {
  const Ancestors* ancestors = ancestorsOf(gp);
  const size_t more = ancestors == nullptr ? 0 : ancestors->bytes();
  char* at = profileRoom(sizeof(SnapshotEntry) + more);
  if (at == nullptr) return;
  auto* e = new (at) SnapshotEntry();
  describe(gp, status, &e->record);
  e->record.stack = GRecord::Stack::kRunning;
  e->record.ancestors = ancestors;
  if (more != 0) std::memcpy(at + sizeof(*e), ancestors, more);
}

GUMP_NOINLINE void recordStill(G* gp, const ProfileView& view) {
  GRecord r;
  Frames frames;
  // How long a woken goroutine has waited is no longer known.
  if (view.woken) {
    takeStill(gp, view.status, &r, &frames);
  } else {
    takeParked(gp, view.status, view.now, &r, &frames);
  }
  retainLabels(r.labels);
  putEntry(r, frames, profileRoom);
}

// recordState records gp for a snapshot that is a profile.
void recordState(G* gp, const ProfileView& view) {
  if (view.moves) {
    recordMoving(gp, view.status);
  } else {
    recordStill(gp, view);
  }
}

// recordPlainThreads records the plain threads that are parked. They go on
// during a stop of the world, and so does each of them after its record.
void recordPlainThreads(const G* self) {
  struct Arg {
    const G* self;
    int64_t now;
  };
  Arg arg = {self, nanotime()};
  forEachForeign(
      [](G* gp, void* p) {
        const auto* a = static_cast<Arg*>(p);
        GRecord r;
        Frames frames;
        if (gp == a->self || hiddenInDump(gp, /*level=*/1) ||
            !takeOther(gp, a->now, &r, &frames)) {
          return;
        }
        putEntry(r, frames, profileRoom);
      },
      &arg);
}

size_t snapshotEach() {
  return sizeof(SnapshotEntry) + 2 * Frames::kKeep * sizeof(uintptr_t) +
         ancestorsRoom();
}

// snapshotOther adds gp to a snapshot with the world stopped.
void snapshotOther(G* gp, Snapshot* s, const G* self, int64_t now) {
  if (gp == self || hiddenInDump(gp, /*level=*/1)) return;
  const Leak leak = s->leaks == nullptr ? Leak::kNone : s->leaks->of(gp);
  if (s->leaksOnly && leak == Leak::kNone) return;
  GRecord r;
  if (!takeOther(gp, now, &r, &s->frames)) return;
  r.leak = leak;
  putEntry(r, s->frames, [s](size_t n) -> char* {
    ProfileMemory* m = &s->memory;
    if (m->size - m->used < n) {
      m->lost++;
      return nullptr;
    }
    return m->base + std::exchange(m->used, m->used + n);
  });
}

}  // namespace

LeakStatus takeStopped(Snapshot* s, const G* self) {
  struct Arg {
    Snapshot* s;
    const G* self;
    int64_t now;
  };
  Arg arg = {s, self, nanotime()};
  const auto add = [](G* gp, void* p) {
    const auto* a = static_cast<Arg*>(p);
    snapshotOther(gp, a->s, a->self, a->now);
  };
  s->memory = reserveProfile(snapshotEach());
  LeakStatus status = LeakStatus::kDone;
  stopTheWorld(WaitReason::kStoppingTheWorld);
  if (s->leaks != nullptr) status = s->leaks->run();
  if (status == LeakStatus::kDone) {
    forEachG(add, &arg);
    forEachForeign(add, &arg);
  }
  startTheWorld();
  return status;
}

LeakStatus takeSnapshot(Snapshot* s, G* self) {
  const ProfileKind kind = {.each = snapshotEach(),
                            .record = recordState,
                            .atStop = recordPlainThreads};
  if (s->leaks == nullptr && takeProfile(kind, self, &s->memory)) {
    return LeakStatus::kDone;
  }
  return takeStopped(s, self);
}

void freeSnapshot(const Snapshot& s) { freeProfile(s.memory); }

GRecord readSnapshot(Snapshot* s, size_t* at) {
  SnapshotEntry e;
  std::memcpy(&e, s->memory.base + *at, sizeof(e));
  *at += sizeof(e);
  Frames& f = s->frames;
  f.kept = e.kept;
  f.lost = e.lost;
  f.truncated = e.truncated;
  std::memcpy(f.pcs, s->memory.base + *at, e.kept * sizeof(uintptr_t));
  *at += e.kept * sizeof(uintptr_t);
  if (e.record.ancestors != nullptr) {
    e.record.ancestors =
        reinterpret_cast<const Ancestors*>(s->memory.base + *at);
    *at += e.record.ancestors->bytes();
  }
  return e.record;
}

}  // namespace gump::rt
