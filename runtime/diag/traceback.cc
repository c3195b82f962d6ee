// How a goroutine's stack becomes text.
//
// There are two kinds of dump. They print alike and differ in how they collect.
//
// A dying process (tracebackCrash) prints as it goes. It does not wait for the
// other threads. The scan bit bounds what they may do to a stack that is being
// walked, and a fault in the walk ends in the signal handler (panic.cc, I2).
//
// A living process (stackDump) collects addresses, into memory of its own, and
// prints them later. It stops the world only to mark a moment, and shows all
// goroutines as they were then (goroutine_profile.cc). Two kinds of dump
// collect with the world stopped: a search for leaks, and the dump of a plain
// thread that finds another dump or profile under way.
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
#include "runtime/diag/snapshot.h"
#include "runtime/diag/trace_buf.h"
#include "runtime/diag/unwind.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/labels.h"
#include "runtime/sched/mfinal.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/scope.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/synctest.h"

namespace gump::rt {

namespace {

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
  if (gp == d->self || gp == d->curg || hiddenInDump(gp, d->mode.level)) return;
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

// printSnapshot prints the goroutines of s behind `self`, which is printed.
void printSnapshot(Writer* w, Snapshot* s, const GRecord& self) {
  ScopeTree scopes;
  scopes.start();
  scopes.add(self);
  // If there is no memory, known is nullptr. Then the dump takes longer, and
  // its text is the same.
  auto* known = static_cast<FrameTexts*>(sysReserve(sizeof(FrameTexts)));
  for (size_t at = 0; at < s->memory.used;) {
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
  if (s->memory.lost != 0) {
    print(w, "\n...%U goroutines elided for want of memory...\n",
          s->memory.lost);
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

// leakSema is 1 while no goroutine searches for leaks, and plainLeakSema while
// no plain thread does. They bound the memory that searches take.
//
// There are two, because a goroutine that searches when main ends goes on only
// with the next Run, and a plain thread must not wait for that. The price: of
// two searches at a time, each may miss leaks. The tables of the other have
// addresses of everything, and are memory as any other.
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
    for (size_t at = 0; at < s.memory.used;) {
      const GRecord r = readSnapshot(&s, &at);
      visit(arg, {s.frames.pcs, s.frames.kept, r.labels, 1, 0, r.leak});
      releaseLabels(r.labels);
    }
    freeSnapshot(s);
    const bool some = s.memory.lost != 0 && status == LeakStatus::kDone;
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
  (void)takeStopped(&s, self);
  for (size_t at = 0; at < s.memory.used;) {
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
  return s.memory.lost == 0;
}

uint64_t visitGoroutineInfos(GoroutineVisitor visit, void* arg) noexcept {
  G* gp = runtimeEntry();
  Snapshot s;
  GRecord self;
  walkHere(&s.frames);
  takeSelf(gp, &self);
  visitInfo(visit, arg, self, s.frames);
  takeSnapshot(&s, gp);
  for (size_t at = 0; at < s.memory.used;) {
    const GRecord r = readSnapshot(&s, &at);
    visitInfo(visit, arg, r, s.frames);
    releaseLabels(r.labels);
  }
  freeSnapshot(s);
  return s.memory.lost;
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
