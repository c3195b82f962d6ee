// One schedule: virtual threads, the points at which they may be switched, and
// the choices that are made there.
//
// A schedule is determined by the choice at each point. All points of a
// schedule are numbered, so the choices that were not the usual one identify
// it, for every kind of search. The usual choice is to go on.
//
// The search (main.cc) is depth first through the choices. It executes one
// schedule after the other, with a bound on preemptions. Two reductions leave
// out schedules, but only those for which an equal one remains:
//  (E1) A thread is preempted only before an access to a word that several
//       threads use and one of them writes. The search learns which words these
//       are. Whenever there is a new one, the search begins again.
//  (E2) A preempted thread may go on only if another thread has done something
//       meanwhile that conflicts with the access before which it was stopped.
//       Otherwise it could as well have made that access first, and the
//       schedule in which it does is explored, too.
//
// Delayed stores. A thread may make further steps before its store is visible
// to other threads. The store becomes visible when the thread has been
// preempted and goes on, or before its next fence, release or system call,
// whichever comes first. A store buffer does the same to a store and a later
// load. docs/model.md says which effects of store buffers this leaves out.
#include <unistd.h>

#include <cinttypes>
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/debugging/symbolize.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "tests/model/state.h"

extern "C" void modelSwitch(void** save, void* to);

namespace gump::model {

Checker* ck;

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

void say(const void* pc, const char* format, ...) {
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

namespace {

// leave ends the schedule.
[[noreturn]] void leave(End end) {
  ck->end = end;
  void* unused;
  ck->current = -1;
  modelSwitch(&unused, ck->mainSp);
  abort();
}

// stopHere ends the schedule because no thread can go on. After settle the
// thread may go on from here.
void stopHere() {
  Thread& t = self();
  t.g = rt::getg();
  ck->end = End::kDone;
  ck->current = -1;
  modelSwitch(&t.sp, ck->mainSp);
}

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

}  // namespace

const Delayed* delayedAt(const Thread& t, const void* addr) {
  for (int i = t.delayed; i-- > 0;) {
    if (t.stores[i].addr == addr) return &t.stores[i];
  }
  return nullptr;
}

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

namespace {

void note(char kind, int value) {
  if (ck->nnotes < kMaxChoices) {
    ck->notes[ck->nnotes++] = {ck->points, kind, value};
  }
}

// replayed returns the choice that the replayed schedule made here, or -1 for
// the usual one.
int replayed(char kind) {
  for (uint32_t i = 0; i < ck->nreplay; i++) {
    const Note& n = ck->replay[i];
    if (n.point == ck->points && n.kind == kind) return n.value;
  }
  return -1;
}

// decide returns the next choice of the search, a number below n. 0 is the
// usual choice.
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

// others lists the threads that could run instead of the current one: first the
// runnable ones, then the sleepers whose time has come. Each group is in the
// order of the numbers from the current one on. With timed, every thread that
// sleeps for a time is among the sleepers.
Candidates others(bool timed) {
  Candidates c;
  const auto comes = [timed](const Thread& t) {
    return t.state == State::kAsleep && t.deadline >= 0 &&
           (timed || t.deadline <= ck->now);
  };
  for (int pass = 0; pass < 2; pass++) {
    // The current thread is among them if it has just gone to sleep.
    const int n = pass == 0 ? ck->nthreads - 1 : ck->nthreads;
    for (int k = 1; k <= n; k++) {
      const int i = (ck->current + k) % ck->nthreads;
      const Thread& t = ck->threads[i];
      if (pass == 0 ? t.state == State::kRunnable : comes(t)) c.add(i);
    }
  }
  return c;
}

// onlyDaemons tells whether all candidates are threads for which time does not
// pass.
bool onlyDaemons(const Candidates& c) {
  for (int k = 0; k < c.n; k++) {
    if (!ck->threads[c.id[k]].daemon) return false;
  }
  return true;
}

// wakeIfTimed ends the sleep of a thread that is to run although no thread has
// woken it, because its time has come.
void wakeIfTimed(int i) {
  Thread& t = ck->threads[i];
  if (t.state != State::kAsleep) return;
  if (t.deadline > ck->now) {
    ck->now = t.deadline;
    touch(&ck->now, true);
  }
  t.state = State::kRunnable;
}

}  // namespace

bool othersCanRun() { return others(false).n != 0; }

namespace {

int highest(const Candidates& c) {
  int best = c.id[0];
  for (int k = 1; k < c.n; k++) {
    if (ck->threads[c.id[k]].priority > ck->threads[best].priority) {
      best = c.id[k];
    }
  }
  return best;
}

// A preempted thread calls resumed first when it goes on.
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
      // Now and then a sleeper's time comes early.
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

}  // namespace

void point(const void* addr, bool write, bool mustLive) {
  countPoint();
  maybePreempt(addr, write);
  if (mustLive && isFreed(reinterpret_cast<uintptr_t>(addr))) {
    fail("an atomic access to memory that has been freed");
  }
  for (int i = 0; i < ck->nthreads; i++) {
    if (i != ck->current) ck->threads[i].yielded = false;
  }
}

void pass(bool mayStay) {
  countPoint();
  Candidates c = others(/*timed=*/false);
  const int usual = c.n;
  if (c.n == 0) {
    c = others(/*timed=*/true);
    if (onlyDaemons(c)) c.n = 0;
  }
  if (c.n != 0 && usual == 0 && !mayStay) {
    // No thread can run, so time passes until the first one can.
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

void flushOne(const Thread& t, const Delayed& d) {
  if (isFreed(reinterpret_cast<uintptr_t>(d.addr))) {
    fail("a delayed store to memory that has been freed");
  }
  memcpy(const_cast<void*>(d.addr), &d.value, d.size);
  touch(d.addr, true);
  wordOf(d.addr).released = d.released;
  say(nullptr, "(visible now: %s's store of %" PRIx64 ")", t.name, d.value);
}

// flush makes all delayed stores of t visible.
void flush(Thread& t) {
  if (t.delayed == 0) return;
  // No thread has looked meanwhile, so the store might as well have been
  // prompt.
  if (t.delayIdle && ck->search == Search::kExhaustive) leave(End::kEqual);
  for (int i = 0; i < t.delayed; i++) flushOne(t, t.stores[i]);
  t.delayed = 0;
}

// drain is flush with a choice whether other threads run before it. These can
// still read the old value, although this thread has made later loads.
void drain() {
  if (self().delayed == 0) return;
  countPoint();
  maybePreempt(self().stores[0].addr, true);
  flush(self());
}

// delay holds back a store. If one to the same word is delayed already, all
// delayed stores become visible first.
void delay(const Delayed& d) {
  Thread& t = self();
  if (delayedAt(t, d.addr) != nullptr) {
    flush(t);
  } else if (t.delayed == 0) {
    note('d', 1);
    ck->delays++;
  }
  if (t.delayed == 0) t.delayIdle = true;
  t.stores[t.delayed++] = d;
}

// mayFollow tells whether a store can wait behind the delayed ones, as in a
// store buffer. m.locks cannot, because assembly, which knows no such buffer,
// writes it, too.
bool mayFollow(const void* addr) {
  const Thread& t = self();
  const rt::G* g = rt::getg();
  return t.delayed != 0 && t.delayed < kMaxDelayed &&
         delayedAt(t, addr) == nullptr &&
         (g == nullptr || g->m == nullptr || addr != &g->m->locks);
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
  // A delay is of use only with a preemption while it lasts.
  if (ck->preemptions == ck->bounds.preemptions) return false;
  return decide(2) == 1;
}

// ---- Threads ----------------------------------------------------------------

namespace {

void threadMain() {
  Thread& t = self();
  t.body(t.arg);
  drain();
  say(nullptr, "ends");
  t.state = State::kDone;
  pass(/*mayStay=*/false);
  abort();
}

// The frame that modelSwitch leaves on a stack. It holds registers, of which
// only the return address matters. On x86-64 there is a place for the return
// address of threadMain above it.
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

// The Ms and Gs of plain threads.
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

}  // namespace

// ---- One schedule ------------------------------------------

namespace {
jmp_buf finishFailed;
}  // namespace

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
  // Which thread is first is a choice as well.
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

void beginHere() {
  useArena(false);
  memcpy(static_cast<void*>(ck->threadsThen), ck->threads, sizeof(ck->threads));
  ck->nthreadsThen = ck->nthreads;
  ck->nowThen = ck->now;
  snapshot();
}

// ---- For models -------------------------------------------------------------

void thread(const char* name, void (*body)()) {
  addThread(name, callBody, reinterpret_cast<void*>(body), true);
}

namespace {

void initPlain(int i) {
  Plain& p = plains[i];
  p.g.foreign = true;
  p.g.special = true;
  p.g.goid = static_cast<uint64_t>(i) + 1;
  p.g.m = &p.m;
  p.g.atomicstatus.store(rt::kGrunning, rt::relaxed);
  p.m.id = i;
  p.m.schedrand = static_cast<uint32_t>(i) + 1;
  p.m.curg.store(&p.g, rt::relaxed);
  // Timers of plain threads go to this P.
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

void spawnDaemon(const char* name, void (*body)(void*), void* arg) {
  ck->threads[addThread(name, body, arg, false)].daemon = true;
}

bool wantsSysmon() { return ck->model->sysmon; }

void settle() {
  for (int i = 0; i < ck->nthreads; i++) ck->threads[i].mustEnd = false;
  beginHere();
  const Model* m = ck->model;
  const Model usual{.name = m->name, .sysmon = m->sysmon};
  ck->model = &usual;
  ck->search = Search::kReplay;  // of nothing: always the usual
  ck->nreplay = 0;
  ck->trace = getenv("GUMP_MODEL_TRACE") != nullptr;
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

uint32_t step() { return ck->points; }

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

}  // namespace gump::model
