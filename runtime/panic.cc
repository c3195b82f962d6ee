// How the process ends when it must: one thread at a time prints, the rest is
// stopped as far as it lets itself be stopped, and exit code 2 says that we
// meant it.
//
// (I1) Nothing here waits for another goroutine, and for another thread only if
//      that one is ending the process already.
//
// (I2) A thread that fails while it is failing makes less noise each time:
//      `panic during panic` and another attempt, `stack trace unavailable` and
//      exit code 4, exit code 5. Faults count: the signal handler comes here.
//
// (I3) No malloc, no stdio, no ranked lock that somebody may hold: the failure
//      may lie in any of them.
//
// Several threads may fail at once. Each prints its message and then waits for
// paniclk, so the stacks do not mix; the last one exits, so that everyone is
// heard.
#include "runtime/panic.h"

#include <unistd.h>

#include <cstring>

#include "runtime/os_linux.h"
#include "runtime/print.h"
#include "runtime/proc.h"
#include "runtime/signal.h"
#include "runtime/traceback.h"

namespace gump::rt {

// A count of the threads between startpanic and the end, so acq_rel makes the
// last one last.
Atomic<int32_t> panicking;

namespace {

constexpr int kExitCode = 2;
constexpr int32_t kFreezeStopWait = 0x7fffffff;

enum Throwing : int32_t { kThrowPanic = 0, kThrowUser = 1, kThrowRuntime = 2 };

// paniclk: 0 free, 1 held, 2 held and somebody may sleep. Not a Mutex: it has
// no rank, and is taken under any lock.
Atomic<uint32_t> paniclk;

// What an M counts in `dying` and `throwing`, for all threads without one: two
// of them that fail at once are taken for one that fails twice, which only
// costs the second one its say.
int32_t orphanDying;
int32_t orphanThrowing;

M* thisM() {
  G* gp = getg();
  return gp == nullptr ? nullptr : gp->m;
}

int32_t* dying() {
  M* mp = thisM();
  return mp == nullptr ? &orphanDying : &mp->dying;
}

int32_t* throwing() {
  M* mp = thisM();
  return mp == nullptr ? &orphanThrowing : &mp->throwing;
}

void lockPanic() {
  // acquire pairs with unlockPanic: the dump's static buffers change hands.
  if (paniclk.cas(0, 1, acquire)) return;
  while (paniclk.xchg(2, acquire) != 0) futexsleep(&paniclk, 2, -1);
}

void unlockPanic() {
  // The sleeper stored 2 before it slept, and its futexsleep sleeps only while
  // 2 is there; so it sees this 0 or is woken.
  if (paniclk.xchg(0, release) == 2) futexwakeup(&paniclk, 1);
}

bool othersRun(const M* self) {
  int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    P* pp = allp[i];
    if (pp->status.load(acquire) == kPrunning && pp != self->p) return true;
  }
  return false;
}

// signalOthers makes those who compute stop where they are, so that the dump
// can show their stacks.
void signalOthers(const M* self) {
  int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    M* mp = allp[i]->m.load(acquire);  // pairs with acquirep
    if (mp != nullptr && mp != self) preemptM(mp);
  }
}

// freezetheworld asks everyone to stop, gives them some milliseconds, and does
// not look whether they did. A thread that stops the world properly at this
// moment will never be told that it has succeeded.
GUMP_NO_SANITIZE void freezetheworld()
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // who holds sched.lock may be why we are
                                      // here
  if (debug.dontfreezetheworld > 0) {
    usleep(1000);
    return;
  }
  M* mp = thisM();
  if (mp == nullptr) {
    usleep(1000);  // noScanner (proc_status.cc) sees scanners by then
    return;
  }
  for (int i = 0; i < 5; i++) {
    sched.stopwait = kFreezeStopWait;
    sched.gcwaiting.store(true, seq_cst);  // as in stopTheWorld
    if (i > 0 && !othersRun(mp)) return;
    preemptall();
    signalOthers(mp);
    usleep(1000);  // once at least, as above
  }
}

// startpanic makes this thread the one that prints. False: it has been that
// already.
bool startpanic() {
  // A dying thread is not preempted any more.
  if (M* mp = thisM()) mp->locks.store(mp->locks.load(relaxed) + 1, relaxed);
  switch ((*dying())++) {
    case 0:
      panicking.add(1, acq_rel);
      scanners.add(1, relaxed);  // for good: see noScanner (proc_status.cc)
      lockPanic();
      if (forked.load(relaxed)) return true;  // we are all there is
      if (debug.schedtrace > 0 || debug.scheddetail > 0) schedtraceCrash();
      freezetheworld();
      return true;
    case 1:
      printf("panic during panic\n");
      return false;
    case 2:
      printf("stack trace unavailable\n");
      _exit(4);
    default:
      _exit(5);
  }
}

// isLast takes this thread, which has been heard, out of the count, and tells
// whether no other is in it. Then it stays in, if told so: the process is still
// dying (isPanicking), though all has been said.
bool isLast(bool stay) {
  // Relaxed: who is heard after another has his lock; newcomers wait for it.
  if (stay && panicking.load(relaxed) == 1) return true;
  return panicking.add(-1, acq_rel) == 0;
}

// dopanic prints the stacks and ends the process.
[[noreturn]] void dopanic(StackFrom from) {
  TracebackMode mode = gotraceback(*throwing());
  if (forked.load(relaxed)) mode.all = false;  // the others are the parent's
  if (debug.fuzzsched != 0) printf("fuzzsched=%d\n", debug.fuzzsched);
  tracebackCrash(mode, *throwing(), from);
  if (isLast(mode.crash)) {
    // The lock is kept: who dies from now on waits there.
    if (mode.crash) crashAbort(mode);
    _exit(kExitCode);
  }
  // Others still want to be heard; the last one exits.
  unlockPanic();
  for (;;) usleep(1'000'000);
}

// printpanic writes the line, or lines, that say what the panic was; those
// after the first get a tab, so that nothing in them looks like a goroutine's
// stack (as of Go 1.23).
void printpanic(Writer* w, const char* text, size_t n) {
  print(w, "panic: ");
  while (const void* end = memchr(text, '\n', n)) {
    const auto line =
        static_cast<size_t>(static_cast<const char*>(end) - text) + 1;
    put(w, text, line);
    put(w, "\t", 1);
    text += line;
    n -= line;
  }
  put(w, text, n);
  put(w, "\n", 1);
}

}  // namespace

bool isPanicking() {
  return panicking.load(acquire) != 0;  // pairs with startpanic
}

void panicAfterFork() {
  // One thread; nothing is ordered.
  panicking.store(0, relaxed);
  paniclk.store(0, relaxed);
}

bool isPanickingHere() { return *dying() != 0; }

void fatalthrow(const char* text) {
  *throwing() = kThrowRuntime;
  printf("fatal error: %s\n", text);
  startpanic();
  dopanic(StackFrom::kHere);
}

void fatal(const char* text) {
  *throwing() = kThrowUser;
  printf("fatal error: %s\n", text);
  startpanic();
  dopanic(StackFrom::kHere);
}

void dieInSignal() {
  if (*throwing() == kThrowPanic) *throwing() = kThrowUser;
  startpanic();
  dopanic(StackFrom::kSignal);
}

void fatalpanic(const char* text, uint32_t len, const char* type) {
  if (startpanic()) {
    char buf[512];
    Writer w{.buf = buf, .cap = sizeof(buf), .fd = STDERR_FILENO};
    printpanic(&w, text, len);
    if (type != nullptr) print(&w, "[exception %s]\n", type);
    flush(&w);
  }
  dopanic(StackFrom::kHere);
}

void fatalError(const char* go_text) noexcept { fatal(go_text); }

void fatalPanicTwice(const char* text, size_t n, const char* second) noexcept {
  if (startpanic()) {
    char buf[512];
    Writer w{.buf = buf, .cap = sizeof(buf), .fd = STDERR_FILENO};
    printpanic(&w, text, n);
    print(&w, "\t");
    printpanic(&w, second, strlen(second));
    flush(&w);
  }
  dopanic(StackFrom::kHere);
}

}  // namespace gump::rt
