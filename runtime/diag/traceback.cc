// How a goroutine's stack becomes text.
//
// There are two kinds of dump. They print alike and differ in how they collect.
//
// A dying process (tracebackCrash) prints as it goes. It does not wait for the
// other threads. The scan bit bounds what they may do to a stack that is being
// walked, and a fault in the walk ends in the signal handler (panic.cc, I2).
//
// A living process (stackDump) stops the world only to collect addresses, into
// memory of its own, and prints after the world has started again. It stops
// once, however long the text is: the text grows as it is printed.
//
// (I1) Nothing here calls malloc, stdio or the dynamic linker, because a
//      stopped or interrupted thread may be inside them.
//
// (I2) The stack of a G that is kGwaiting is read only under its scan bit,
//      because a foreign thread can ready the G at any time.
//
// Rejected: asking running goroutines for their stacks by a signal, and waiting
// for the answer. A fatal error must not depend on the co-operation of threads
// that may be the reason for it. GOTRACEBACK=crash asks them, last of all. A
// goroutine that computes is preempted in place when the world stops, and when
// a dying process tries to stop it (freezetheworld). Then its stack can be
// walked without its help.
#include "runtime/diag/traceback.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gump/internal/linkname_debug.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/leaks.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/scopetree.h"
#include "runtime/diag/trace_buf.h"
#include "runtime/diag/unwind.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/group.h"
#include "runtime/sched/home.h"
#include "runtime/sched/labels.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/scope.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/thread.h"
#include "runtime/sched/tracking.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/synctest.h"

namespace gump::rt {

namespace {

constexpr int64_t kMinute = 60'000'000'000;

TracebackMode environment;

// ---- goroutines

// printCreatedBy prints where the goroutine was created. If parent is 0 it does
// not name the creator. r may be nullptr.
void printCreatedBy(Writer* w, uint64_t goid, uintptr_t gopc, uint64_t parent,
                    const GRecord* r, FrameTexts* known) {
  if (gopc == 0 || goid == kMainGoid) return;
  printCreator(w, gopc - 1, parent, r, known);
}

void printAncestors(Writer* w, const Ancestors& all, int32_t level,
                    FrameTexts* known) {
  for (uint32_t i = 0; i < all.count; i++) {
    const Ancestors::One& a = all.of[i];
    print(w, "[originating from goroutine %U]:\n", a.goid);
    for (uint32_t k = 0; k < a.kept; k++) {
      printFrame(w, a.pcs[k], level, known);
    }
    if (a.more) print(w, "...additional frames elided...\n");
    printCreatedBy(w, a.goid, a.gopc, 0, nullptr, known);
  }
}

void printGoroutine(Writer* w, const GRecord& r, const Frames& frames,
                    int32_t level, bool showPointers, uint32_t first = 0,
                    FrameTexts* known = nullptr) {
  printHeader(w, r, showPointers);
  switch (r.stack) {
    case GRecord::Stack::kWalked:
      printFrames(w, frames, level, first, known);
      break;
    case GRecord::Stack::kRunning:
      print(w, "\tgoroutine running on other thread; stack unavailable\n");
      break;
    case GRecord::Stack::kForeignThread:
      print(w, "\tplain thread %d; stack unavailable\n", r.tid);
      break;
  }
  printCreatedBy(w, r.goid, r.gopc, r.parentGoid, &r, known);
  if (r.ancestors != nullptr) printAncestors(w, *r.ancestors, level, known);
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
  // Pairs with extraOf.
  const GExtra* extra = gp->extra.load(acquire);
  r->ancestors = extra == nullptr ? nullptr : extra->ancestors;
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

// takeSelf describes the goroutine that the calling thread runs. The caller
// collects the frames.
void takeSelf(const G* gp, GRecord* r) {
  describe(gp, readgstatus(gp), r);
  copyNames(gp, r);
}

// takeParked describes and walks gp, which cannot run in the meantime.
void takeParked(G* gp, uint32_t status, int64_t now, GRecord* r,
                Frames* frames) {
  describe(gp, status, r);
  copyNames(gp, r);
  if ((status & ~uint32_t{kGscan}) == kGwaiting) {
    // Parking does not read the clock, so the age of a wait counts from the
    // first dump that saw it. If the status had the scan bit, another thread
    // may hold it.
    if (status == kGwaiting) noteWaitSince(gp, now);
    if (gp->waitsince != 0) {
      r->waitNanos = std::max<int64_t>(now - gp->waitsince, 0);
      r->minutes = r->waitNanos / kMinute;
    }
  }
  frames->clear();
  if (gp->foreign) {
    // Its thread sleeps on a futex, and we have no context of its stack.
    r->stack = GRecord::Stack::kForeignThread;
    r->tid = gp->m->procid.load(acquire);  // pairs with needm
  } else if (gp->stack.lo != 0 && gp->sched.fresh == 0) {
    walkParked(gp, frames);
  }
}

// takeOther describes a goroutine that the calling thread does not run, and
// walks its stack if it has a saved context. Returns false if gp is dead, or is
// the pseudo-G of a foreign thread that is not parked. A stop of the world does
// not hold such a thread still. If gp has labels, *r has a reference to them
// ((L1) of labels.cc).
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
      // here, or a reclamation cycle has taken it.
      case kGrunnable:
      case kGwaiting | kGscan:
        takeParked(gp, status, now, r, frames);
        retainLabels(r->labels);
        return true;
      default:
        frames->clear();
        describe(gp, status, r);
        r->stack = GRecord::Stack::kRunning;
        return true;
    }
  }
}

// hidden returns true if a dump passes over gp, because it is dead or is the
// runtime's own. The status is read first because it publishes the other field,
// and foreign threads make goroutines while the world is stopped.
bool hidden(const G* gp, int32_t level) {
  const uint32_t status = readgstatus(gp);
  return status == kGidle || status == kGdead ||
         (level < 2 && isSystemGoroutine(gp));
}

// ---- ancestors

// maxAncestors is how many ancestors are kept. More would not help a reader.
uint32_t maxAncestors() {
  constexpr int32_t kMost = 100;
  return static_cast<uint32_t>(std::min(debug.tracebackancestors, kMost));
}
size_t ancestorsRoom() {
  if (debug.tracebackancestors <= 0) return 0;
  return sizeof(Ancestors) + maxAncestors() * sizeof(Ancestors::One);
}

// ---- dumps of a dying process

// startpanic (panic.cc) lets one thread at a time print. Only that thread uses
// these.
Frames crashFrames;
char crashText[4096];

struct CrashDump {
  Writer* w;
  TracebackMode mode;
  const G* self;  // already printed
  const G* curg;  // also already printed
  int64_t now;
  ScopeTree scopes;
};

void crashOther(G* gp, void* arg) {
  auto* d = static_cast<CrashDump*>(arg);
  if (gp == d->self || gp == d->curg || hidden(gp, d->mode.level)) return;
  GRecord r;
  if (!takeOther(gp, d->now, &r, &crashFrames)) return;
  d->scopes.add(r);
  print(d->w, "\n");
  printGoroutine(d->w, r, crashFrames, d->mode.level, d->mode.level >= 2);
  flush(d->w);
  // The reference to the labels stays: to drop the last one would call free.
}

// crashSelf prints the stack of this thread, whether or not it runs a
// goroutine, and records in d the goroutines that it has printed.
void crashSelf(CrashDump* d, G* gp, int32_t throwing, StackFrom from) {
  int32_t level = d->mode.level;
  bool pointers = level >= 2 || throwing >= 2;
  if (gp != nullptr && gp != &gp->m->g0) {
    GRecord r;
    takeSelf(gp, &r);
    d->scopes.add(r);
    print(d->w, "\n");
    uint32_t first = throwing == 0 && level < 2 ? throwSite(crashFrames) : 0;
    printGoroutine(d->w, r, crashFrames, level, pointers, first);
    d->self = gp;
    return;
  }
  bool interrupted = from == StackFrom::kSignal;
  const bool inHook = gp != nullptr && gp->m->diesInHook;
  if (gp == nullptr || level >= 2 || interrupted || inHook) {
    print(d->w, "\n%s:\n",
          interrupted ? "goroutine 0 [idle]"
          : inHook    ? "thread hook"
                      : "runtime stack");
    printFrames(d->w, crashFrames, /*level=*/2, /*first=*/0,
                /*known=*/nullptr);
  }
  // On g0: the goroutine that led here has its context saved.
  G* curg = gp == nullptr ? nullptr : gp->m->curg.load(relaxed);  // our own M
  if (curg == nullptr) return;
  GRecord r;
  takeParked(curg, readgstatus(curg), d->now, &r, &crashFrames);
  d->scopes.add(r);
  print(d->w, "\n");
  printGoroutine(d->w, r, crashFrames, level, pointers);
  d->curg = curg;
}

// ---- dumps of a living process

// Snapshot is a sequence of GRecords, each followed by its frames and its
// ancestors. Its memory is reserved generously and touched only as far as
// needed.
struct Snapshot {
  char* base = nullptr;
  size_t size = 0;
  size_t used = 0;
  uint64_t elided = 0;  // goroutines that did not fit
  const G* self = nullptr;
  int64_t now = 0;
  LeakSearch* leaks = nullptr;  // marks leaked goroutines, unless nullptr
  bool leaksOnly = false;       // and leaves out the others
  Frames frames;                // of the goroutine at hand
};

struct SnapshotEntry {
  GRecord record;
  uint64_t lost;
  uint32_t kept;
  bool truncated;
  // uintptr_t pcs[kept] follow, and record.ancestors->bytes()
};

void reserveSnapshot(Snapshot* s) {
  constexpr size_t kLeast = 1 << 20;
  constexpr size_t kMost = size_t{1} << 32;
  const size_t each = sizeof(SnapshotEntry) +
                      2 * Frames::kKeep * sizeof(uintptr_t) + ancestorsRoom();
  constexpr uint64_t kNewcomers = 256;  // started between now and the stop
  uint64_t all = gcountAll() + kNewcomers;
  {
    LockScope l(&sched.lock);
    all += static_cast<uint64_t>(sched.nmextraAll);  // of foreign threads
  }
  size_t want = all * each;
  if (want > kMost) want = kMost;
  do {
    want = alignUp(want, kPageSize);
    s->base = static_cast<char*>(sysReserve(want));
    if (s->base != nullptr) {
      s->size = want;
      return;
    }
    want /= 2;
  } while (want >= kLeast);
}

void snapshotOther(G* gp, void* arg) {
  auto* s = static_cast<Snapshot*>(arg);
  if (gp == s->self || hidden(gp, /*level=*/1)) return;
  const Leak leak = s->leaks == nullptr ? Leak::kNone : s->leaks->of(gp);
  if (s->leaksOnly && leak == Leak::kNone) return;
  SnapshotEntry e{};
  if (!takeOther(gp, s->now, &e.record, &s->frames)) return;
  e.record.leak = leak;
  const Frames& f = s->frames;
  e.lost = f.lost;
  e.kept = f.kept;
  e.truncated = f.truncated;
  const size_t pcs = f.kept * sizeof(uintptr_t);
  const Ancestors* ancestors = e.record.ancestors;
  const size_t more = ancestors == nullptr ? 0 : ancestors->bytes();
  const size_t need = sizeof(e) + pcs + more;
  if (s->size - s->used < need) {
    s->elided++;
    releaseLabels(e.record.labels);
    return;
  }
  char* at = s->base + s->used;
  memcpy(at, &e, sizeof(e));
  memcpy(at + sizeof(e), f.pcs, pcs);
  if (more != 0) memcpy(at + sizeof(e) + pcs, ancestors, more);
  s->used += need;
}

// takeSnapshot fills s with all goroutines but `self`, and with the parked
// foreign threads. If s->leaks is set, it searches for leaks in the same stop.
// Unless that succeeds, s is empty.
LeakStatus takeSnapshot(Snapshot* s, const G* self) {
  reserveSnapshot(s);
  s->self = self;
  s->now = nanotime();
  LeakStatus status = LeakStatus::kDone;
  stopTheWorld(WaitReason::kStoppingTheWorld);
  if (s->leaks != nullptr) status = s->leaks->run();
  if (status == LeakStatus::kDone) {
    forEachG(snapshotOther, s);
    forEachForeign(snapshotOther, s);
  }
  startTheWorld();
  return status;
}

void freeSnapshot(const Snapshot& s) {
  if (s.base != nullptr) sysFree(s.base, s.size);
}

// readSnapshot reads the entry at *at, puts its frames into s->frames, and
// moves *at to the next one. The caller drops the reference to its labels.
GRecord readSnapshot(Snapshot* s, size_t* at) {
  SnapshotEntry e;
  memcpy(&e, s->base + *at, sizeof(e));
  *at += sizeof(e);
  Frames& f = s->frames;
  f.kept = e.kept;
  f.lost = e.lost;
  f.truncated = e.truncated;
  memcpy(f.pcs, s->base + *at, e.kept * sizeof(uintptr_t));
  *at += e.kept * sizeof(uintptr_t);
  if (e.record.ancestors != nullptr) {
    e.record.ancestors = reinterpret_cast<const Ancestors*>(s->base + *at);
    *at += e.record.ancestors->bytes();
  }
  return e.record;
}

// printSnapshot prints the goroutines of s behind `self`, which is printed.
void printSnapshot(Writer* w, Snapshot* s, const GRecord& self) {
  ScopeTree scopes;
  scopes.start();
  scopes.add(self);
  // If there is no memory, known is nullptr. Then the dump takes longer, and
  // its text is the same.
  auto* known = static_cast<FrameTexts*>(sysReserve(sizeof(FrameTexts)));
  for (size_t at = 0; at < s->used;) {
    const GRecord r = readSnapshot(s, &at);
    if (!w->refused) {
      scopes.add(r);
      print(w, "\n");
      printGoroutine(w, r, s->frames, /*level=*/1, /*showPointers=*/false,
                     /*first=*/0, known);
    }
    releaseLabels(r.labels);
  }
  if (known != nullptr) sysFree(known, sizeof(*known));
  if (s->elided != 0) {
    print(w, "\n...%U goroutines elided for want of memory...\n", s->elided);
  }
  scopes.finish(w);
}

}  // namespace

GExtra* extraOf(G* gp) {
  GExtra* extra = gp->extra.load(acquire);  // pairs with the cas
  if (GUMP_LIKELY(extra != nullptr)) return extra;
  static constinit TraceArena arena;
  auto* fresh = static_cast<GExtra*>(arena.allocate(sizeof(GExtra)));
  if (fresh == nullptr) return nullptr;
  new (fresh) GExtra();
  return gp->extra.cas(nullptr, fresh, acq_rel) ? fresh
                                                : gp->extra.load(acquire);
}

void saveAncestors(G* gp) {
  if (debug.tracebackancestors <= 0) return;
  GExtra* extra = extraOf(gp);
  if (extra == nullptr) return;
  if (extra->ancestors == nullptr) {
    extra->ancestors = static_cast<Ancestors*>(
        persistentalloc(ancestorsRoom(), alignof(Ancestors)));
    if (extra->ancestors == nullptr) return;
  }
  Ancestors* all = extra->ancestors;
  all->count = 0;
  const G* me = getg();
  if (me->goid == 0) return;  // the runtime, or a foreign thread
  Frames here;
  walkHere(&here);
  Ancestors::One* a = &all->of[0];
  a->goid = me->goid;
  a->gopc = me->gopc;
  a->kept = std::min(here.kept, Ancestors::One::kKeep);
  a->more = here.kept > a->kept;
  memcpy(a->pcs, here.pcs, a->kept * sizeof(a->pcs[0]));
  all->count = 1;
  const GExtra* mine = me->extra.load(acquire);  // pairs with extraOf
  if (mine == nullptr || mine->ancestors == nullptr) return;
  const uint32_t n = std::min(mine->ancestors->count, maxAncestors() - 1);
  memcpy(a + 1, mine->ancestors->of, n * sizeof(*a));
  all->count += n;
}

TracebackMode parseTraceback(const char* value) {
  if (value == nullptr || value[0] == '\0' || strcmp(value, "single") == 0) {
    return {.level = 1};
  }
  if (strcmp(value, "none") == 0) return {.level = 0};
  if (strcmp(value, "all") == 0) return {.level = 1, .all = true};
  if (strcmp(value, "system") == 0) return {.level = 2, .all = true};
  if (strcmp(value, "crash") == 0) {
    return {.level = 2, .all = true, .crash = true};
  }
  int32_t level = 0;
  for (const char* c = value; *c != '\0'; c++) {
    if (*c < '0' || *c > '9' || level > 1000) return {.level = 0, .all = true};
    level = level * 10 + (*c - '0');
  }
  return {.level = level, .all = true};
}

TracebackMode gotraceback(int32_t throwing) {
  TracebackMode mode = environment;
  if (mode.level == 0) return mode;
  if (throwing >= 2) {
    mode.all = true;
    mode.level = 2;
  }
  return mode;
}

void tracebackinit() {
  environment = parseTraceback(gogetenv("GOTRACEBACK", "GUMP_TRACEBACK"));
  symbolinit();
  unwindinit();
}

namespace {
// saysDurable returns true if the text of r already ends in "(durable)".
bool saysDurable(WaitReason r) {
  return r >= WaitReason::kSynctestChanReceive &&
         r <= WaitReason::kSynctestScopeJoin;
}

// printLabelText prints s, in quotes if a reader of the header could take a
// character of it for the end of the text.
void printLabelText(Writer* w, const char* s) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_";
  print(w, s[strspn(s, kPlain)] == '\0' ? "%s" : "%Q", s);
}

void printLabel(Writer* w, const Label& label, bool first) {
  print(w, first ? " {" : ", ");
  printLabelText(w, label.key);
  print(w, ": ");
  printLabelText(w, label.value);
}
}  // namespace

const char* statusText(const GRecord& r) {
  uint32_t status = r.status & ~uint32_t{kGscan};
  if (status == kGwaiting && r.reason != WaitReason::kZero) {
    return waitReasonString(r.reason);
  }
  switch (status) {
    case kGidle:
      return "idle";
    case kGrunnable:
      return "runnable";
    case kGrunning:
      return "running";
    case kGsyscall:
      return "syscall";
    case kGwaiting:
      return "waiting";
    case kGdead:
      return "dead";
    default:
      return "???";
  }
}

void printScope(Writer* w, const GRecord& r) {
  print(w, "scope ");
  if (r.scopeName[0] != '\0') print(w, "%Q ", r.scopeName);
  print(w, "of goroutine %U", r.scopeOwner);
}

void printLabels(Writer* w, const Label* labels, size_t n) {
  if (n == 0 || debug.tracebacklabels != 1) return;
  for (size_t i = 0; i < n; i++) printLabel(w, labels[i], /*first=*/i == 0);
  print(w, "}");
}

namespace {
// printAllLabels prints r's labels, and its name in their order. A label `name`
// that pprof::Do has set stands in place of the name from GoOptions.
void printAllLabels(Writer* w, const GRecord& r) {
  size_t n;
  const Label* labels = labelsIn(r.labels, &n);
  if (r.name[0] == '\0') return printLabels(w, labels, n);
  if (debug.tracebacklabels != 1) return;
  const Label name = {.key = "name", .value = r.name};
  size_t i = 0;
  bool first = true;
  for (; i < n && strcmp(labels[i].key, name.key) < 0; i++) {
    printLabel(w, labels[i], std::exchange(first, false));
  }
  if (i == n || strcmp(labels[i].key, name.key) != 0) {
    printLabel(w, name, std::exchange(first, false));
  }
  for (; i < n; i++) printLabel(w, labels[i], std::exchange(first, false));
  print(w, "}");
}
}  // namespace

void printHeader(Writer* w, const GRecord& r, bool showPointers) {
  print(w, "goroutine %U", r.goid);
  if (showPointers) {
    print(w, " gp=%p", r.gp);
    if (r.mp == nullptr) {
      print(w, " m=nil");
    } else {
      print(w, " m=%D mp=%p", r.mid, r.mp);
    }
  }
  print(w, " [%s", statusText(r));
  if (r.leak == Leak::kCertain) print(w, " (leaked)");
  if (r.leak == Leak::kSuspected) print(w, " (leak suspected)");
  if ((r.status & kGscan) != 0) print(w, " (scan)");
  if (r.bubble != 0 && (r.status & ~uint32_t{kGscan}) == kGwaiting &&
      isIdleInSynctest(r.reason) && !saysDurable(r.reason)) {
    print(w, " (durable)");
  }
  if (r.minutes >= 1) print(w, ", %D minutes", r.minutes);
  if (r.locked) print(w, ", locked to thread");
  if (r.onThread) print(w, ", on thread %Q", r.thread);
  if (r.bubble != 0) print(w, ", synctest bubble %u", r.bubble);
  if (r.inGroup) print(w, ", group %Q%s", r.group, r.groupFull ? " full" : "");
  print(w, "]");
  printAllLabels(w, r);
  print(w, ":\n");
}

void tracebackCrash(const TracebackMode& mode, int32_t throwing,
                    StackFrom from) {
  if (mode.level == 0) return;
  Writer w{.buf = crashText, .cap = sizeof(crashText), .fd = kStderr};
  CrashDump d{.w = &w,
              .mode = mode,
              .self = nullptr,
              .curg = nullptr,
              .now = nanotime(),
              .scopes = {}};
  if (mode.all) d.scopes.start();
  if (from == StackFrom::kSignal) {
    walkSignal(&crashFrames);
  } else {
    walkHere(&crashFrames);
  }
  crashSelf(&d, getg(), throwing, from);
  flush(&w);
  if (mode.all) {
    forEachG(crashOther, &d);
    forEachForeign(crashOther, &d);
    d.scopes.finish(&w);
  }
  flush(&w);
}

void tracebackThread(const TracebackMode& mode) {
  Writer w{.buf = crashText, .cap = sizeof(crashText), .fd = kStderr};
  G* gp = getg();
  GRecord r;
  if (gp != nullptr) takeSelf(gp, &r);
  walkSignal(&crashFrames);
  printGoroutine(&w, r, crashFrames, mode.level, /*showPointers=*/true);
  flush(&w);
}

namespace {

// dump is stackDump and leakDump.
LeakStatus dump(bool all, LeakSearch* leaks, Writer* w) {
  G* gp = runtimeEntry();
  GRecord self;
  {
    Frames here;
    walkHere(&here);
    takeSelf(gp, &self);
    printGoroutine(w, self, here, /*level=*/1, /*showPointers=*/false);
  }
  if (!all) return LeakStatus::kDone;
  Snapshot s;
  s.leaks = leaks;
  const LeakStatus status = takeSnapshot(&s, gp);
  printSnapshot(w, &s, self);
  freeSnapshot(s);
  return status;
}

// 1 while no goroutine, or no plain thread, searches for leaks. They bound the
// memory that searches take. If main ends, a goroutine that has its semaphore
// goes on only with the next Run. So a plain thread does not wait for it. It
// may miss leaks then: the tables of the other search have addresses of
// everything, and are memory as any other.
constinit Atomic<uint32_t> leakSema(1);
constinit Atomic<uint32_t> plainLeakSema(1);

// searchLeaks calls take with a search that is prepared.
template <class F>
LeakStatus searchLeaks(const F& take) {
  const StandardHold hold;  // as in stackDump; and the search opens files
  Atomic<uint32_t>* sema = runtimeEntry()->foreign ? &plainLeakSema : &leakSema;
  semacquire(sema, /*lifo=*/false, SemaReason::kSemacquire);
  LeakSearch search;
  LeakStatus status = search.prepare();
  if (status == LeakStatus::kDone) status = take(&search);
  search.finish();
  semrelease(sema, /*handoff=*/false);
  return status;
}

}  // namespace

size_t stackDump(bool all, BufferGrower grow, void* arg) noexcept {
  const StandardHold hold;  // absl opens the modules, and keeps one open
  Writer w{.grow = grow, .arg = arg};
  (void)dump(all, /*leaks=*/nullptr, &w);
  return w.total;
}

bool stackStream(char* buffer, size_t size, TextSink sink, void* arg) noexcept {
  const StandardHold hold;  // as in stackDump
  Writer w{.buf = buffer, .cap = size, .sink = sink, .arg = arg};
  (void)dump(/*all=*/true, /*leaks=*/nullptr, &w);
  flush(&w);
  return !w.refused;
}

LeakStatus leakDump(BufferGrower grow, void* arg, size_t* size) noexcept {
  Writer w{.grow = grow, .arg = arg};
  const LeakStatus status = searchLeaks(
      [&w](LeakSearch* search) { return dump(/*all=*/true, search, &w); });
  *size = w.total;
  return status;
}

LeakStatus visitLeaks(StackVisitor visit, void* arg) noexcept {
  return searchLeaks([=](LeakSearch* search) {
    Snapshot s;
    s.leaks = search;
    s.leaksOnly = true;
    const LeakStatus status = takeSnapshot(&s, runtimeEntry());
    for (size_t at = 0; at < s.used;) {
      const GRecord r = readSnapshot(&s, &at);
      visit(arg, {s.frames.pcs, s.frames.kept, r.labels, 1, 0, r.leak});
      releaseLabels(r.labels);
    }
    freeSnapshot(s);
    const bool some = s.elided != 0 && status == LeakStatus::kDone;
    return some ? LeakStatus::kNoMemory : status;
  });
}

namespace {
const char* stateOf(const GRecord& r) {
  const bool waits = (r.status & ~uint32_t{kGscan}) == kGwaiting;
  return waits ? "waiting" : statusText(r);
}

void visitInfo(GoroutineVisitor visit, void* arg, const GRecord& r,
               const Frames& f) {
  const bool waits = (r.status & ~uint32_t{kGscan}) == kGwaiting;
  visit(arg,
        {.id = r.goid,
         .parent = r.parentGoid,
         .state = stateOf(r),
         .reason = waits && r.reason != WaitReason::kZero ? statusText(r) : "",
         .wait_ns = r.waitNanos,
         .name = r.name,
         .labels = r.labels,
         .in_group = r.inGroup,
         .group = r.group,
         .in_scope = r.scope != nullptr,
         .scope = r.scopeName,
         .scope_owner = r.scopeOwner,
         .pcs = f.pcs,
         .n = r.stack == GRecord::Stack::kWalked ? f.kept : 0,
         .before_lost = Frames::kKeep,
         .lost = f.lost,
         .creator = r.gopc == 0 || r.goid == kMainGoid ? 0 : r.gopc - 1});
}
}  // namespace

bool visitStopped(StackVisitor visit, void* arg, const G* self) {
  Snapshot s;
  (void)takeSnapshot(&s, self);
  for (size_t at = 0; at < s.used;) {
    const GRecord r = readSnapshot(&s, &at);
    Frames& f = s.frames;
    // A goroutine that has not begun has no frames either.
    if (f.kept == 0 && r.fn != nullptr) {
      f.pcs[f.kept++] = reinterpret_cast<uintptr_t>(r.fn->run);
    }
    if (r.stack != GRecord::Stack::kForeignThread) {
      visit(arg, {f.pcs, f.kept, r.labels});
    }
    releaseLabels(r.labels);
  }
  freeSnapshot(s);
  return s.elided == 0;
}

uint64_t visitGoroutineInfos(GoroutineVisitor visit, void* arg) noexcept {
  G* gp = runtimeEntry();
  Snapshot s;
  GRecord self;
  walkHere(&s.frames);
  takeSelf(gp, &self);
  visitInfo(visit, arg, self, s.frames);
  takeSnapshot(&s, gp);
  for (size_t at = 0; at < s.used;) {
    const GRecord r = readSnapshot(&s, &at);
    visitInfo(visit, arg, r, s.frames);
    releaseLabels(r.labels);
  }
  freeSnapshot(s);
  return s.elided;
}

// Threads are made by the template thread, so the stacks that make them would
// tell nothing. The stack of a thread is its first function.
void visitThreads(StackVisitor visit, void* arg) noexcept {
  (void)runtimeEntry();
  const auto start = reinterpret_cast<uintptr_t>(&mstart);
  const auto run = reinterpret_cast<uintptr_t>(&runMain);
  StackRecord others{&start, 1, nullptr, 0};
  for (const M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    // Relaxed: a thread may end at any time anyway.
    if (mp->procid.load(relaxed) == 0) continue;
    const G* gp = mp->curg.load(acquire);  // pairs with needm
    if (gp != nullptr && gp->foreign) continue;
    if (mp == &m0) {
      visit(arg, {&run, 1, nullptr});
    } else {
      others.count++;
    }
  }
  if (others.count != 0) visit(arg, others);
}

}  // namespace gump::rt
