// The explorer: virtual threads, the points at which they may be switched, and
// the search through the choices that there are.
//
// A schedule is determined by what was chosen at each point; all points of a
// schedule are numbered, so the choices that were not the usual one identify
// it, whatever search found it. The usual one is to go on.
//
// Search. Depth first through the choices, by executing again and again, with a
// bound on preemptions that is raised from 0. Two reductions, both of which
// leave out schedules only for which an equal one remains:
//  (E1) A thread is preempted only before an access to a word that several
//       threads use and one of them writes. Which words these are is learnt
//       while searching; whenever there is a new one, the search begins again.
//  (E2) A preempted thread may go on only if somebody has done something in
//       between that conflicts with the access before which it was stopped.
//       Otherwise it could as well have made that access first, and the
//       schedule in which it does is explored too.
//
// Delayed stores. A store may be made visible to others later: not before the
// thread is preempted, but before its next fence, release or system call, or
// when it goes on. That is what a store buffer does to a store and a later
// load; see docs/model.md for what it leaves out.
#include "tests/model/model.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cinttypes>
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/debugging/symbolize.h"
#include "runtime/proc.h"
#include "tests/model/atomic.h"
#include "tests/model/checker.h"

extern "C" void modelSwitch(void** save, void* to);

namespace gump::model {

namespace {

using std::memory_order;

constexpr uint32_t kMaxPoints = 10000;  // more: nobody gets anywhere
constexpr uint32_t kMaxChoices = kMaxPoints;
constexpr uint32_t kWords = 1 << 14;
constexpr int kMaxDelayed = 8;
constexpr int kMaxNames = 64;
constexpr int kMaxModels = 64;
constexpr int kChangePoints = 3;  // of a random schedule

bool acquires(memory_order o) {
  return o == rt::acquire || o == rt::acq_rel || o == rt::seq_cst;
}
bool releases(memory_order o) {
  return o == rt::release || o == rt::acq_rel || o == rt::seq_cst;
}

// ---- State ------------------------------------------------------------------

enum class State : uint8_t { kUnused, kRunnable, kAsleep, kDone };

struct Delayed {
  const void* addr;
  unsigned size;
  uint64_t value;
  Clock released;  // what an acquire of it brings
};

struct Thread {
  const char* name;
  void (*body)(void*);
  void* arg;
  bool mustEnd;
  State state;
  const void* futex;  // asleep on it; nullptr: for a time
  int64_t deadline;   // -1: none
  bool yielded;       // and went on although nobody else had run
  bool preempted;
  bool justified;  // (E2)
  const void* pending;
  bool pendingWrite;
  bool delayIdle;  // a delay that nobody has noticed so far
  int delayed;
  Delayed stores[kMaxDelayed];
  void* sp;
  rt::G* g;
  Clocks clocks;
  int priority;
};

struct Word {
  const void* addr;
  uint16_t readers, writers;
  bool shared;  // (E1)
  uint32_t schedule;
  Clock released;
};

struct Choice {
  uint8_t taken, of;
};

// Note says that at a point something else than the usual was chosen.
struct Note {
  uint32_t point;
  char kind;  // s: switch to thread, d: delay a store, i: input
  int value;
};

enum class Search : uint8_t { kExhaustive, kRandom, kReplay };
enum class End : uint8_t { kDone, kEqual, kFailed };

// Checker lies outside of what a restore touches.
struct Checker {
  const Model* model;
  Search search;
  Bounds bounds;
  bool trace;

  int nthreads;
  int nthreadsThen;
  Thread threads[kMaxThreads];
  Thread threadsThen[kMaxThreads];
  int current;  // -1: none
  void* mainSp;
  End end;
  bool finishing;
  char why[512];

  uint32_t points;
  uint32_t maxPoints;
  int preemptions;
  int delays;
  int64_t now;
  int64_t nowThen;

  Choice choices[kMaxChoices];
  uint32_t depth;
  uint32_t nchoices;
  Note notes[kMaxChoices];
  uint32_t nnotes;
  Note replay[kMaxChoices];
  uint32_t nreplay;

  Word words[kWords];
  uint32_t nwords;
  bool newShared;
  uint32_t schedule;

  uint64_t rand;
  uint32_t changes[kChangePoints];

  struct Name {
    const void* addr;
    const char* name;
  } names[kMaxNames];
  int nnames;
};

Checker* ck;
constinit Model models[kMaxModels];
int nmodels;

Thread& self() { return ck->threads[ck->current]; }

uint64_t random64() {
  uint64_t& x = ck->rand;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

Word& wordOf(const void* addr) {
  auto h = reinterpret_cast<uintptr_t>(addr) * 0x9e3779b97f4a7c15u >> 50;
  for (;; h = (h + 1) % kWords) {
    Word& w = ck->words[h];
    if (w.addr == nullptr) {
      if (++ck->nwords > kWords / 2) fail("model: too many words");
      w.addr = addr;
    }
    if (w.addr == addr) {
      if (w.schedule != ck->schedule) {
        w.schedule = ck->schedule;
        w.released = Clock();
      }
      return w;
    }
  }
}

const char* wordName(const void* addr, char* buf, size_t n) {
  for (int i = 0; i < ck->nnames; i++) {
    if (ck->names[i].addr == addr) return ck->names[i].name;
  }
  const auto a = reinterpret_cast<uintptr_t>(addr);
  const auto off = a - reinterpret_cast<uintptr_t>(&rt::sched);
  if (off < sizeof(rt::sched)) {
    snprintf(buf, n, "sched+%zu", static_cast<size_t>(off));
  } else {
    snprintf(buf, n, "%p", addr);
  }
  return buf;
}

// say prints a line of the trace.
__attribute__((format(printf, 2, 3))) void say(const void* pc,
                                               const char* format, ...) {
  if (!ck->trace) return;
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  char where[160] = "";
  if (pc != nullptr) {
    const void* at = static_cast<const char*>(pc) - 1;
    if (!absl::Symbolize(at, where, sizeof(where))) where[0] = '\0';
  }
  printf("%6u  %-10s %-58s %s\n", ck->points,
         ck->current < 0 ? "-" : self().name, text, where);
}

// ---- Switching --------------------------------------------------------------

// leave ends the schedule.
[[noreturn]] void leave(End end) {
  ck->end = end;
  void* unused;
  ck->current = -1;
  modelSwitch(&unused, ck->mainSp);
  abort();
}

// stopHere ends the schedule because nobody can go on. After settle the thread
// may go on from here.
void stopHere() {
  Thread& t = self();
  t.g = rt::getg();
  ck->end = End::kDone;
  ck->current = -1;
  modelSwitch(&t.sp, ck->mainSp);
}

void flush(Thread& t);

// switchTo lets another thread go on; it returns when this one does.
void switchTo(int next) {
  Thread& from = self();
  Thread& to = ck->threads[next];
  say(nullptr, "-> %s", to.name);
  from.g = rt::getg();
  ck->current = next;
  rt::setg(to.g);
  modelSwitch(&from.sp, to.sp);
}

const Delayed* delayedAt(const Thread& t, const void* addr) {
  for (int i = t.delayed; i-- > 0;) {
    if (t.stores[i].addr == addr) return &t.stores[i];
  }
  return nullptr;
}

// touch says that the current thread has accessed a word.
void touch(const void* addr, bool write) {
  Word& w = wordOf(addr);
  const auto bit = static_cast<uint16_t>(1u << ck->current);
  (write ? w.writers : w.readers) |= bit;
  const unsigned all = w.readers | w.writers;
  if (!w.shared && w.writers != 0 && (all & (all - 1)) != 0) {
    w.shared = true;
    ck->newShared = true;
  }
  for (int i = 0; i < ck->nthreads; i++) {
    Thread& t = ck->threads[i];
    if (i == ck->current) continue;
    if (t.preempted && t.pending == addr && (write || t.pendingWrite)) {
      t.justified = true;
    }
    if (delayedAt(t, addr) != nullptr) {
      t.justified = true;
      t.delayIdle = false;
    }
  }
}

void note(char kind, int value) {
  if (ck->nnotes < kMaxChoices) {
    ck->notes[ck->nnotes++] = {ck->points, kind, value};
  }
}

// replayed returns what the schedule that is being replayed chose here; -1: the
// usual.
int replayed(char kind) {
  for (uint32_t i = 0; i < ck->nreplay; i++) {
    const Note& n = ck->replay[i];
    if (n.point == ck->points && n.kind == kind) return n.value;
  }
  return -1;
}

// decide returns a number below n, 0 being the usual: the next one of the
// search.
int decide(int n) {
  if (n == 1) return 0;
  if (ck->depth < ck->nchoices) {
    Choice& c = ck->choices[ck->depth++];
    if (c.of != n) fail("model: a schedule cannot be repeated");
    return c.taken;
  }
  if (ck->nchoices == kMaxChoices) fail("model: too many choices");
  ck->choices[ck->nchoices++] = {0, static_cast<uint8_t>(n)};
  ck->depth++;
  return 0;
}

void countPoint() {
  if (++ck->points > kMaxPoints) fail("livelock: too many steps");
}

// Candidates are the threads that could go on now.
struct Candidates {
  int n = 0;
  int id[kMaxThreads];
  void add(int i) { id[n++] = i; }
};

// others lists those who could run instead of the current one, beginning behind
// it; those that sleep for a time as well, if timed is set: their time comes.
Candidates others(bool timed) {
  Candidates c;
  for (int pass = 0; pass < (timed ? 2 : 1); pass++) {
    // The current thread is among them if it has just gone to sleep.
    const int n = pass == 0 ? ck->nthreads - 1 : ck->nthreads;
    for (int k = 1; k <= n; k++) {
      const int i = (ck->current + k) % ck->nthreads;
      const Thread& t = ck->threads[i];
      if (pass == 0 ? t.state == State::kRunnable
                    : t.state == State::kAsleep && t.deadline >= 0) {
        c.add(i);
      }
    }
  }
  return c;
}

// wakeIfTimed ends the sleep of a thread that is to run although nobody has
// woken it: its time has come.
void wakeIfTimed(int i) {
  Thread& t = ck->threads[i];
  if (t.state != State::kAsleep) return;
  if (t.deadline > ck->now) {
    ck->now = t.deadline;
    touch(&ck->now, true);
  }
  t.state = State::kRunnable;
}

int highest(const Candidates& c) {
  int best = c.id[0];
  for (int k = 1; k < c.n; k++) {
    if (ck->threads[c.id[k]].priority > ck->threads[best].priority) {
      best = c.id[k];
    }
  }
  return best;
}

// resumed is the first thing that a preempted thread does.
void resumed(Thread& t) {
  t.preempted = false;
  if (ck->search == Search::kExhaustive && !t.justified) leave(End::kEqual);
  flush(t);
}

// maybePreempt is the choice before an access.
void maybePreempt(const void* addr, bool write) {
  const bool random = ck->search == Search::kRandom;
  int next = ck->current;
  if (ck->search == Search::kReplay) {
    const int v = replayed('s');
    if (v >= 0) next = v;
  } else {
    if (!wordOf(addr).shared) return;
    if (!random && ck->preemptions == ck->bounds.preemptions) return;
    Candidates c = others(ck->model->hasty);
    if (c.n == 0) return;
    if (random) {
      for (uint32_t at : ck->changes) {
        if (at == ck->points) self().priority = -static_cast<int>(at) - 1;
      }
      if (others(false).n != 0) next = highest(others(false));
      if (ck->threads[next].priority <= self().priority) next = ck->current;
      // Now and then somebody's time comes early.
      if (random64() % 64 == 0) next = c.id[random64() % unsigned(c.n)];
    } else {
      const int k = decide(c.n + 1);
      if (k != 0) next = c.id[k - 1];
    }
  }
  if (next == ck->current) return;
  note('s', next);
  ck->preemptions++;
  Thread& t = self();
  t.preempted = true;
  t.justified = false;
  t.pending = addr;
  t.pendingWrite = write;
  wakeIfTimed(next);
  switchTo(next);
  resumed(t);
}

// point is what every access begins with.
void point(const void* addr, bool write) {
  countPoint();
  if (isFreed(reinterpret_cast<uintptr_t>(addr))) {
    fail("an atomic access to memory that has been freed");
  }
  maybePreempt(addr, write);
  for (int i = 0; i < ck->nthreads; i++) {
    if (i != ck->current) ck->threads[i].yielded = false;
  }
}

// pass lets another thread run because this one cannot go on, or does not want
// to (mayStay: it may all the same).
void pass(bool mayStay) {
  countPoint();
  Candidates c = others(/*timed=*/false);
  const int usual = c.n;
  if (c.n == 0) c = others(/*timed=*/true);
  if (c.n != 0 && usual == 0 && !mayStay) {
    // Nobody can run, so time passes until the first can.
    int first = c.id[0];
    for (int k = 1; k < c.n; k++) {
      if (ck->threads[c.id[k]].deadline < ck->threads[first].deadline) {
        first = c.id[k];
      }
    }
    c.n = 1;
    c.id[0] = first;
  }
  if (c.n == 0) {
    if (!mayStay) stopHere();
    return;
  }
  int next;
  const int v = ck->search == Search::kReplay ? replayed('s') : -1;
  if (ck->search == Search::kReplay) {
    next = v >= 0 ? v : c.id[0];
  } else if (ck->search == Search::kRandom) {
    next = highest(c);
    if (mayStay) self().priority = -static_cast<int>(ck->points) - 1;
  } else {
    if (mayStay) c.add(ck->current);
    next = c.id[decide(c.n)];
  }
  if (next != c.id[0]) note('s', next);
  wakeIfTimed(next);
  if (next != ck->current) switchTo(next);
}

// ---- Delayed stores ---------------------------------------------------------

uint64_t readWord(const void* addr, unsigned size) {
  uint64_t v = 0;
  memcpy(&v, addr, size);
  return v;
}

void flushOne(Thread& t, const Delayed& d) {
  memcpy(const_cast<void*>(d.addr), &d.value, d.size);
  touch(d.addr, true);
  wordOf(d.addr).released = d.released;
  say(nullptr, "(visible now: %s's store of %" PRIx64 ")", t.name, d.value);
}

// flush makes all delayed stores of t visible.
void flush(Thread& t) {
  if (t.delayed == 0) return;
  // Nobody has looked in between: the store might as well have been prompt.
  if (t.delayIdle && ck->search == Search::kExhaustive) leave(End::kEqual);
  for (int i = 0; i < t.delayed; i++) flushOne(t, t.stores[i]);
  t.delayed = 0;
}

// drain is flush with the choice whether others run before it: while the store
// was delayed, t may have read what it should not.
void drain() {
  if (self().delayed == 0) return;
  point(self().stores[0].addr, true);
  flush(self());
}

// mayDelay is the choice at a store that is not seq_cst.
bool mayDelay(const void* addr) {
  if (ck->search == Search::kReplay) return replayed('d') >= 0;
  if (ck->delays == ck->bounds.delays || !wordOf(addr).shared) return false;
  if (self().delayed == kMaxDelayed || others(true).n == 0) return false;
  if (ck->model->delayable != nullptr && !ck->model->delayable(addr)) {
    return false;
  }
  if (ck->search == Search::kRandom) return random64() % 16 == 0;
  // To be of use, it takes a preemption while it lasts.
  if (ck->preemptions == ck->bounds.preemptions) return false;
  return decide(2) == 1;
}

// ---- Threads ----------------------------------------------------------------

void threadMain() {
  Thread& t = self();
  t.body(t.arg);
  drain();
  say(nullptr, "ends");
  t.state = State::kDone;
  pass(/*mayStay=*/false);
  abort();
}

// What modelSwitch leaves on a stack: registers, of which only the return
// address matters; on x86-64 with a place for that of threadMain above it.
#if defined(__aarch64__)
constexpr int kFrame = 20, kReturn = 1;
#else
constexpr int kFrame = 8, kReturn = 6;
#endif

void makeContext(int i) {
  size_t size;
  char* lo = stackOf(i, &size);
  auto* top = reinterpret_cast<void**>(lo + size) - kFrame;
  for (int r = 0; r < kFrame; r++) top[r] = nullptr;
  top[kReturn] = reinterpret_cast<void*>(threadMain);
  ck->threads[i].sp = top;
}

int addThread(const char* name, void (*body)(void*), void* arg, bool mustEnd) {
  int i = 0;
  while (i < ck->nthreads && ck->threads[i].state != State::kDone) i++;
  if (i == kMaxThreads) fail("model: too many threads");
  if (i == ck->nthreads) ck->nthreads++;
  Thread& t = ck->threads[i];
  t = Thread();
  t.name = name;
  t.body = body;
  t.arg = arg;
  t.mustEnd = mustEnd;
  t.state = State::kRunnable;
  t.priority = static_cast<int>(random64() % 1000) + 1;
  if (ck->current >= 0) t.clocks = self().clocks;
  t.clocks.now.at[i]++;
  makeContext(i);
  return i;
}

void callBody(void* body) { reinterpret_cast<void (*)()>(body)(); }

// Plain threads' Ms and Gs.
struct Plain {
  rt::M m;
  rt::G g;
};
constinit Plain plains[kMaxThreads + 1];
rt::P plainP;

void plainMain(void* body) {
  Plain& p = plains[ck->current];
  rt::setg(&p.g);
  reinterpret_cast<void (*)()>(body)();
}

// ---- One schedule, and all of them ------------------------------------------

jmp_buf finishFailed;

// run executes one schedule.
End run() {
  restore();
  ck->schedule++;
  ck->nthreads = ck->nthreadsThen;
  for (int i = 0; i < ck->nthreads; i++) {
    ck->threads[i] = ck->threadsThen[i];
    ck->threads[i].priority = static_cast<int>(random64() % 1000) + 1;
  }
  ck->points = 0;
  ck->preemptions = 0;
  ck->delays = 0;
  ck->depth = 0;
  ck->nnotes = 0;
  ck->now = ck->nowThen;
  racesBegin();
  rt::G* g = rt::getg();
  useArena(true);
  // Who is first is a choice as well.
  int first = 0;
  Candidates c;
  for (int i = 0; i < ck->nthreads; i++) {
    if (ck->threads[i].state == State::kRunnable) c.add(i);
  }
  if (c.n == 0) fail("model: no thread");
  if (ck->search == Search::kReplay) {
    const int v = replayed('s');
    first = v >= 0 ? v : c.id[0];
  } else if (ck->search == Search::kRandom) {
    first = highest(c);
  } else {
    first = c.id[decide(c.n)];
  }
  if (first != c.id[0]) note('s', first);
  ck->current = first;
  ck->end = End::kDone;
  say(nullptr, "begins");
  rt::setg(ck->threads[first].g);
  modelSwitch(&ck->mainSp, ck->threads[first].sp);
  rt::setg(g);
  useArena(false);
  if (ck->points > ck->maxPoints) ck->maxPoints = ck->points;
  if (ck->end != End::kDone) return ck->end;
  for (int i = 0; i < ck->nthreads; i++) {
    const Thread& t = ck->threads[i];
    if (t.mustEnd && t.state != State::kDone) {
      snprintf(ck->why, sizeof(ck->why), "deadlock: %s never goes on", t.name);
      return End::kFailed;
    }
  }
  ck->finishing = true;
  if (ck->model->finish != nullptr && setjmp(finishFailed) == 0) {
    ck->model->finish();
  }
  ck->finishing = false;
  return ck->end;
}

double seconds() {
  timespec ts;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return static_cast<double>(ts.tv_sec) +
         static_cast<double>(ts.tv_nsec) * 1e-9;
}

// nextChoices moves on to the next schedule; false: that was the last.
bool nextChoices() {
  ck->nchoices = ck->depth;
  while (ck->nchoices > 0) {
    Choice& c = ck->choices[ck->nchoices - 1];
    if (++c.taken < c.of) return true;
    ck->nchoices--;
  }
  return false;
}

struct Tally {
  uint64_t schedules = 0;  // to their end
  uint64_t equal = 0;      // given up by a reduction
  uint64_t points = 0;
};

End searchAll(Tally* tally) {
  ck->nchoices = 0;
  for (;;) {
    ck->newShared = false;
    const End e = run();
    tally->points += ck->points;
    (e == End::kEqual ? tally->equal : tally->schedules)++;
    if (e == End::kFailed) return e;
    if (ck->newShared) {
      ck->nchoices = 0;  // (E1)
    } else if (!nextChoices()) {
      return End::kDone;
    }
  }
}

End searchRandom(int n, Tally* tally) {
  const uint32_t length = ck->maxPoints + 1;
  for (int seed = 1; seed <= n; seed++) {
    ck->rand = static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15u;
    for (uint32_t& at : ck->changes) {
      at = static_cast<uint32_t>(random64() % length);
    }
    const End e = run();
    tally->points += ck->points;
    tally->schedules++;
    if (e == End::kFailed) return e;
  }
  return End::kDone;
}

void printSchedule() {
  printf("  schedule: ");
  for (uint32_t i = 0; i < ck->nnotes; i++) {
    const Note& n = ck->notes[i];
    printf("%s%u%c%d", i == 0 ? "" : ",", n.point, n.kind, n.value);
  }
  printf("%s\n", ck->nnotes == 0 ? "usual" : "");
}

bool parseSchedule(const char* s) {
  ck->nreplay = 0;
  if (strcmp(s, "usual") == 0) return true;
  while (*s != '\0') {
    Note n{};
    int used = 0;
    if (sscanf(s, "%u%c%d%n", &n.point, &n.kind, &n.value, &used) != 3 ||
        ck->nreplay == kMaxChoices) {
      return false;
    }
    ck->replay[ck->nreplay++] = n;
    s += used;
    if (*s == ',') s++;
  }
  return true;
}

// beginHere makes what is the case now what every schedule begins with.
void beginHere() {
  useArena(false);
  memcpy(static_cast<void*>(ck->threadsThen), ck->threads, sizeof(ck->threads));
  ck->nthreadsThen = ck->nthreads;
  ck->nowThen = ck->now;
  snapshot();
}

void setUp(const Model* m) {
  forgetAll();
  memset(static_cast<void*>(ck), 0, offsetof(Checker, choices));
  memset(static_cast<void*>(ck->words), 0, sizeof(ck->words));
  ck->nwords = 0;
  ck->nnames = 0;
  ck->maxPoints = 0;
  ck->model = m;
  ck->current = -1;
  ck->now = 1'000'000'000;
  ck->rand = 88172645463325252u;
  rt::haveMembarrier = true;
  rt::ncpu = 1;  // no spinning before a sleep: it would only cost points
  rt::gomaxprocs.store(2, rt::relaxed);
  useArena(true);
  m->setup();
  useArena(false);
  beginHere();
}

int explore(const Model* m, bool full) {
  const double begin = seconds();
  setUp(m);
  const Bounds bounds = full ? m->full : m->quick;
  Tally all, last;
  End e = End::kDone;
  ck->search = Search::kExhaustive;
  for (int p = 0; p <= bounds.preemptions && e == End::kDone; p++) {
    ck->bounds = {p, p == 0 ? 0 : bounds.delays, 0};
    last = Tally();
    e = searchAll(&last);
    all.points += last.points;
  }
  Tally random;
  if (e == End::kDone) {
    ck->search = Search::kRandom;
    ck->bounds = bounds;
    e = searchRandom(bounds.random, &random);
    all.points += random.points;
  }
  const double s = seconds() - begin;
  printf("%-16s %8" PRIu64 " schedules, %d preemptions, %d delays, %6" PRIu64
         " random, %6.2f s, %.1f M points/s\n",
         m->name, last.schedules, ck->bounds.preemptions, ck->bounds.delays,
         random.schedules, s, static_cast<double>(all.points) / s * 1e-6);
  if (e != End::kFailed) return 0;
  printf("%s: FAILED: %s\n", m->name, ck->why);
  printSchedule();
  return 1;
}

int replay(const Model* m, const char* schedule) {
  setUp(m);
  if (!parseSchedule(schedule)) {
    fprintf(stderr, "model: bad schedule: %s\n", schedule);
    return 2;
  }
  ck->search = Search::kReplay;
  ck->trace = true;
  const End e = run();
  printf("%s: %s%s\n", m->name, e == End::kFailed ? "FAILED: " : "passed",
         e == End::kFailed ? ck->why : "");
  return e == End::kFailed ? 1 : 0;
}

}  // namespace

// ---- For models -------------------------------------------------------------

Registered::Registered(const Model& m) { models[nmodels++] = m; }

void thread(const char* name, void (*body)()) {
  addThread(name, callBody, reinterpret_cast<void*>(body), true);
}

namespace {
void initPlain(int i) {
  Plain& p = plains[i];
  p.g.foreign = true;
  p.g.special = true;
  p.g.systemG = true;
  p.g.goid = static_cast<uint64_t>(i) + 1;
  p.g.m = &p.m;
  p.g.atomicstatus.store(rt::kGrunning, rt::relaxed);
  p.m.id = i;
  p.m.schedrand = static_cast<uint32_t>(i) + 1;
  p.m.curg.store(&p.g, rt::relaxed);
  // Where timers of plain threads are.
  if (rt::allp[0] == nullptr) rt::allp[0] = &plainP;
}
}  // namespace

void plainThread(const char* name, void (*body)()) {
  initPlain(addThread(name, plainMain, reinterpret_cast<void*>(body), true));
}

void onPlainThread(void (*f)()) {
  initPlain(kMaxThreads);
  rt::setg(&plains[kMaxThreads].g);
  f();
  rt::setg(nullptr);
}

void spawn(const char* name, void (*body)(void*), void* arg) {
  addThread(name, body, arg, false);
}

void settle() {
  for (int i = 0; i < ck->nthreads; i++) ck->threads[i].mustEnd = false;
  beginHere();
  static constexpr Model kNothing = {};
  const Model* m = ck->model;
  ck->model = &kNothing;
  ck->search = Search::kReplay;  // of nothing: always the usual
  ck->nreplay = 0;
  ck->trace = getenv("TR") != nullptr;
  if (run() != End::kDone) {
    fprintf(stderr, "model: settle: %s\n", ck->why);
    _exit(2);
  }
  ck->model = m;
  useArena(true);
}

void check(bool ok, const char* what) {
  if (!ok) fail(what);
}

void fail(const char* what) {
  snprintf(ck->why, sizeof(ck->why), "%s", what);
  if (ck->current < 0) {
    if (!ck->finishing) {
      fprintf(stderr, "model: in the setup of %s: %s\n", ck->model->name, what);
      _exit(2);
    }
    ck->end = End::kFailed;
    longjmp(finishFailed, 1);
  }
  say(nullptr, "FAILED: %s", what);
  leave(End::kFailed);
}

int choose(int n) {
  countPoint();
  int v;
  if (ck->search == Search::kReplay) {
    v = replayed('i') >= 0 ? replayed('i') : 0;
  } else if (ck->search == Search::kRandom) {
    v = static_cast<int>(random64() % static_cast<unsigned>(n));
  } else {
    v = decide(n);
  }
  if (v != 0) note('i', v);
  return v;
}

void nameWord(const void* addr, const char* name) {
  if (ck->nnames < kMaxNames) ck->names[ck->nnames++] = {addr, name};
}

// ---- The seam ---------------------------------------------------------------

bool inSchedule() { return ck != nullptr && ck->current >= 0; }

uint64_t atomicLoad(const void* addr, unsigned size, memory_order order) {
  if (!inSchedule()) return readWord(addr, size);
  point(addr, false);
  Thread& t = self();
  const Delayed* own = delayedAt(t, addr);
  const uint64_t v = own != nullptr ? own->value : readWord(addr, size);
  if (own == nullptr) {
    touch(addr, false);
    const Clock& c = wordOf(addr).released;
    (acquires(order) ? t.clocks.now : t.clocks.observed).join(c);
  }
  if (ck->trace) {
    char b[32];
    say(__builtin_return_address(0), "load  %s = %" PRIx64,
        wordName(addr, b, sizeof(b)), v);
  }
  return v;
}

void atomicStore(void* addr, unsigned size, uint64_t value,
                 memory_order order) {
  if (!inSchedule()) {
    memcpy(addr, &value, size);
    return;
  }
  if (releases(order)) drain();
  point(addr, true);
  Thread& t = self();
  const Clock released = releases(order) ? t.clocks.now : t.clocks.released;
  t.clocks.now.at[ck->current]++;
  const bool again = delayedAt(t, addr) != nullptr;
  const bool delay = again || (order != rt::seq_cst && mayDelay(addr));
  if (ck->trace) {
    char b[32];
    say(__builtin_return_address(0), "store %s := %" PRIx64 "%s",
        wordName(addr, b, sizeof(b)), value, delay ? " (delayed)" : "");
  }
  if (!delay) {
    memcpy(addr, &value, size);
    touch(addr, true);
    wordOf(addr).released = released;
    return;
  }
  if (again) flush(t);
  if (t.delayed == 0) t.delayIdle = true;
  if (!again) {
    note('d', 1);
    ck->delays++;
  }
  t.stores[t.delayed++] = {addr, size, value, released};
}

namespace {
// beginRmw and endRmw bracket a read-modify-write; what failed has written
// nothing.
void beginRmw(const void* addr, memory_order order) {
  if (releases(order) || delayedAt(self(), addr) != nullptr) drain();
  point(addr, true);
}
void endRmw(const void* addr, memory_order order, bool wrote) {
  Thread& t = self();
  touch(addr, wrote);
  Word& w = wordOf(addr);
  const bool acq = acquires(order) && (wrote || order == rt::seq_cst);
  (acq ? t.clocks.now : t.clocks.observed).join(w.released);
  if (!wrote) return;
  w.released.join(releases(order) ? t.clocks.now : t.clocks.released);
  t.clocks.now.at[ck->current]++;
}
}  // namespace

uint64_t atomicRmw(void* addr, unsigned size, Rmw op, uint64_t arg,
                   memory_order order) {
  if (inSchedule()) beginRmw(addr, order);
  const uint64_t old = readWord(addr, size);
  uint64_t v = arg;
  if (op == Rmw::kAdd) v = old + arg;
  if (op == Rmw::kAnd) v = old & arg;
  if (op == Rmw::kOr) v = old | arg;
  memcpy(addr, &v, size);
  if (!inSchedule()) return old;
  endRmw(addr, order, true);
  if (ck->trace) {
    char b[32];
    say(__builtin_return_address(0), "rmw   %s: %" PRIx64 " -> %" PRIx64,
        wordName(addr, b, sizeof(b)), old, readWord(addr, size));
  }
  return old;
}

bool atomicCas(void* addr, unsigned size, uint64_t* expected, uint64_t desired,
               memory_order order) {
  if (inSchedule()) beginRmw(addr, order);
  const uint64_t old = readWord(addr, size);
  const bool ok = old == *expected;
  if (ok) memcpy(addr, &desired, size);
  if (inSchedule()) {
    endRmw(addr, order, ok);
    if (ck->trace) {
      char b[32];
      say(__builtin_return_address(0),
          "cas   %s: %" PRIx64 " -> %" PRIx64 "%s%" PRIx64,
          wordName(addr, b, sizeof(b)), *expected, desired,
          ok ? ", done; was " : ", failed: is ", old);
    }
  }
  *expected = old;
  return ok;
}

void atomicFence(memory_order order) {
  if (!inSchedule()) return;
  if (order != rt::acquire) drain();
  Thread& t = self();
  if (acquires(order)) t.clocks.now.join(t.clocks.observed);
  if (releases(order)) t.clocks.released = t.clocks.now;
}

// ---- The kernel -------------------------------------------------------------

void futexWait(const void* addr, uint32_t val, int64_t ns) {
  drain();
  Thread& t = self();
  point(addr, false);
  touch(addr, true);  // it enters the queue
  uint32_t is;
  memcpy(&is, addr, sizeof(is));
  char b[32];
  say(__builtin_return_address(0), "futex %s: sleep while %x%s",
      wordName(addr, b, sizeof(b)), val, is == val ? "" : ": is not");
  if (is != val) return;
  t.state = State::kAsleep;
  t.futex = addr;
  t.deadline = ns < 0 ? -1 : ck->now + ns;
  pass(/*mayStay=*/false);
}

void futexWake(const void* addr, uint32_t cnt) {
  drain();
  point(addr, true);
  touch(addr, true);
  char b[32];
  say(__builtin_return_address(0), "futex %s: wake",
      wordName(addr, b, sizeof(b)));
  for (int k = 1; k < ck->nthreads && cnt > 0; k++) {
    Thread& t = ck->threads[(ck->current + k) % ck->nthreads];
    if (t.state != State::kAsleep || t.futex != addr) continue;
    t.state = State::kRunnable;
    t.futex = nullptr;
    cnt--;
  }
}

void yieldThread() {
  if (self().yielded) {
    pass(/*mayStay=*/others(false).n == 0);
    return;
  }
  self().yielded = true;
  pass(/*mayStay=*/true);
}

void sleepThread(int64_t ns) {
  drain();
  Thread& t = self();
  t.state = State::kAsleep;
  t.futex = nullptr;
  t.deadline = ck->now + ns;
  pass(/*mayStay=*/false);
}

int64_t clockNow() {
  if (!inSchedule()) return ck == nullptr ? 1 : ck->now;
  point(&ck->now, false);
  touch(&ck->now, false);
  return ck->now;
}

void barrierAll() {
  for (int i = 0; i < ck->nthreads; i++) {
    // A barrier on all processors is an access to all their words.
    for (int k = 0; k < ck->threads[i].delayed; k++) {
      flushOne(ck->threads[i], ck->threads[i].stores[k]);
    }
    ck->threads[i].delayed = 0;
    if (ck->threads[i].preempted) ck->threads[i].justified = true;
  }
}

void beforeFree() {
  if (inSchedule()) drain();
}

Clocks* currentClocks(int* i) {
  if (!inSchedule()) return nullptr;
  *i = ck->current;
  return &self().clocks;
}

void failRace(uintptr_t addr, bool write, int other, bool otherWrote,
              const void* pc, const void* otherPc) {
  char here[120] = "?", there[120] = "?";
  absl::Symbolize(static_cast<const char*>(pc) - 1, here, sizeof(here));
  absl::Symbolize(static_cast<const char*>(otherPc) - 1, there, sizeof(there));
  char text[400];
  snprintf(text, sizeof(text),
           "race on %#zx: %s of %s in %s, unordered with a %s of %s in %s",
           static_cast<size_t>(addr), write ? "write" : "read", self().name,
           here, otherWrote ? "write" : "read", ck->threads[other].name, there);
  fail(text);
}

int mainOf(int argc, char** argv) {
  bool full = false;
  const char* schedule = nullptr;
  int failed = 0;
  int ran = 0;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  absl::InitializeSymbolizer(argv[0]);
  void* p = mmap(nullptr, sizeof(Checker), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ck = static_cast<Checker*>(p);
  ck->current = -1;
  racesBegin();  // maps what it needs: forgetAll remembers where
  forgetAll();
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--full") == 0) full = true;
    if (strcmp(argv[i], "--list") == 0) {
      for (int k = 0; k < nmodels; k++) {
        printf("%-16s %s\n", models[k].name, models[k].about);
      }
      return 0;
    }
    if (strcmp(argv[i], "--replay") == 0 && i + 1 < argc) {
      schedule = argv[i + 1];
    }
  }
  bool named = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--replay") == 0) {
      i++;
    } else if (argv[i][0] != '-') {
      named = true;
    }
  }
  for (int k = 0; k < nmodels; k++) {
    bool want = !named;
    for (int i = 1; i < argc; i++) {
      if (strcmp(argv[i], models[k].name) == 0) want = true;
    }
    if (!want) continue;
    ran++;
    const int r = schedule != nullptr ? replay(&models[k], schedule)
                                      : explore(&models[k], full);
    if (r == 2) return 2;
    failed += r;
  }
  if (ran == 0) {
    fprintf(stderr, "model: no such model; --list names them\n");
    return 2;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace gump::model

int main(int argc, char** argv) { return gump::model::mainOf(argc, argv); }
