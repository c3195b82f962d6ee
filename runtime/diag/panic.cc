// How the process ends when it must. One thread at a time prints, the others
// are stopped as far as possible, and exit code 2 says that we ended it on
// purpose.
//
// (I1) Nothing here waits for another goroutine. It waits for another thread
//      only if that thread is already ending the process.
//
// (I2) A thread that fails while it is failing does less each time. The second
//      failure prints `panic during panic` and tries again, the third prints
//      `stack trace unavailable` and exits with code 4, the fourth exits with
//      code 5. Faults count, because the signal handler comes here.
//
// (I3) No malloc, no stdio, no ranked lock that another thread may hold: the
//      failure may lie in any of them.
//
// Several threads may fail at once, each for a reason of its own. Each prints
// its stacks while it holds paniclk, so the stacks do not mix. The last one
// exits the process, so that all of them are heard.
//
// (I4) A reason that several threads can find in the same state of the runtime
//      is printed once. Go keeps sched.lock while it prints such a reason, so
//      the other finders wait for that lock. Our dump takes sched.lock, so the
//      finder claims the end of the process (dyingThread) before it unlocks.
//      The claim is a CAS under the lock under which the state was read. A
//      second finder takes the lock after that, sees the claim and stays
//      silent. Its silence loses nothing: the claimant ends the process, and it
//      waits for no thread that has not begun to print (I1).
#include "runtime/diag/panic.h"

#include <unistd.h>

#include <cstring>

#include "runtime/diag/debugvars.h"
#include "runtime/diag/traceback.h"
#include "runtime/sched/deadlock.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/print.h"
#include "runtime/sys/signal.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

// The number of threads between startpanic and the end. It changes with
// acq_rel, so the thread that finds itself the last comes after all others.
Atomic<int32_t> panicking;

namespace {

constexpr int kExitCode = 2;
constexpr int32_t kFreezeStopWait = 0x7fffffff;

enum Throwing : int32_t { kThrowPanic = 0, kThrowUser = 1, kThrowRuntime = 2 };

// Goroutines says which goroutines a report shows at least. GOTRACEBACK may ask
// for more.
enum class Goroutines : uint8_t { kCurrent, kAll };

// paniclk: 0 is free, 1 is held, 2 is held and another thread may be asleep. A
// Mutex would not do, because paniclk is taken under any lock and has no rank.
Atomic<uint32_t> paniclk;

// The thread that has claimed the end of the process (I4), or 0. All accesses
// are relaxed: the claim publishes nothing, and one CAS succeeds.
Atomic<int32_t> dyingThread;

// The counterparts of M::dying and M::throwing for all threads without an M.
// Two such threads that fail at once are taken for one that fails twice. That
// only costs the second one its output.
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
  // Acquire pairs with unlockPanic: the dump's static buffers change hands.
  if (paniclk.cas(0, 1, acquire)) return;
  while (paniclk.xchg(2, acquire) != 0) futexsleep(&paniclk, 2, -1);
}

void unlockPanic() {
  // A sleeper stored 2 before it slept, and its futexsleep sleeps only while
  // the word is 2. So the sleeper sees this 0 or is woken.
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

// signalOthers makes goroutines that compute stop where they are, so that the
// dump can show their stacks.
void signalOthers(const M* self) {
  int32_t n = gomaxprocs.load(acquire);  // pairs with procresize
  for (int32_t i = 0; i < n; i++) {
    M* mp = allp[i]->m.load(acquire);  // pairs with acquirep
    if (mp != nullptr && mp != self) preemptM(mp);
  }
}

// freezetheworld asks all other threads to stop, gives them some milliseconds,
// and does not check whether they did. A thread that is stopping the world
// properly at this moment will never be told that it has succeeded.
GUMP_NO_SANITIZE void freezetheworld()
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the holder of sched.lock may be why we
                                      // are here
  if (debug.dontfreezetheworld > 0) {
    usleep(1000);
    return;
  }
  M* mp = thisM();
  if (mp == nullptr) {
    // startpanic has raised scanners. After this sleep noScanner sees that, on
    // every thread (proc_status.cc).
    usleep(1000);
    return;
  }
  fence(seq_cst);  // pairs with checkStopped: dying before stopwait
  for (int i = 0; i < 5; i++) {
    sched.stopwait = kFreezeStopWait;
    sched.gcwaiting.store(true, seq_cst);  // as in stopTheWorld
    if (i > 0 && !othersRun(mp)) return;
    preemptall();
    signalOthers(mp);
    usleep(1000);  // at least once, as above
  }
}

// startpanic makes this thread the one that prints. Returns false if it has
// been that already.
bool startpanic() {
  // A dying thread is not preempted any more.
  if (M* mp = thisM()) mp->locks.store(mp->locks.load(relaxed) + 1, relaxed);
  switch ((*dying())++) {
    case 0:
      panicking.add(1, acq_rel);
      scanners.add(1, relaxed);  // for ever: see noScanner (proc_status.cc)
      lockPanic();
      if (forked.load(relaxed)) return true;  // there is no other thread
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

// isLast takes this thread, which has printed, out of the count. Returns true
// if no other thread is in the count. If `stay` is set, the last thread stays
// in: the process is still dying (isPanicking), although everything has been
// printed.
bool isLast(bool stay) {
  // Relaxed: a thread that printed before us left the count, then released
  // paniclk, which we then took. A thread that fails from now on waits for
  // paniclk.
  if (stay && panicking.load(relaxed) == 1) return true;
  return panicking.add(-1, acq_rel) == 0;
}

// dopanic prints the stacks and ends the process.
[[noreturn]] void dopanic(StackFrom from, Goroutines least) {
  TracebackMode mode = gotraceback(*throwing());
  if (least == Goroutines::kAll) mode.all = true;
  if (forked.load(relaxed)) mode.all = false;  // the others are the parent's
  if (debug.fuzzsched != 0) printf("fuzzsched=%d\n", debug.fuzzsched);
  tracebackCrash(mode, *throwing(), from);
  if (isLast(mode.crash)) {
    // The lock is kept, so a thread that fails from now on waits for it.
    if (mode.crash) crashAbort(mode);
    _exit(kExitCode);
  }
  // Other threads have yet to print. The last one exits.
  unlockPanic();
  for (;;) usleep(1'000'000);
}

[[noreturn]] void fatalUser(const char* text, Goroutines least) {
  *throwing() = kThrowUser;
  printf("fatal error: %s\n", text);
  startpanic();
  dopanic(StackFrom::kHere, least);
}

// printpanic writes the text of the panic. The lines after the first get a tab,
// so that no line looks like a goroutine's stack (as in Go since 1.23).
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

bool claimDeath() { return dyingThread.cas(0, gettid(), relaxed); }

void claimDeathAndUnlock(Mutex* held) {
  // The claimant may come here again, if it fails while it prints. It goes on
  // then, and (I2) ends it.
  const bool mine = claimDeath() || dyingThread.load(relaxed) == gettid();
  unlock(held);
  if (mine) return;
  for (;;) usleep(1'000'000);
}

bool isDeathClaimed() { return dyingThread.load(relaxed) != 0; }

bool isPanicking() {
  return panicking.load(acquire) != 0;  // pairs with startpanic
}

void panicAfterFork() {
  // There is only one thread, so nothing needs ordering.
  panicking.store(0, relaxed);
  paniclk.store(0, relaxed);
  dyingThread.store(0, relaxed);
}

bool isPanickingHere() { return *dying() != 0; }

void fatalthrow(const char* text) {
  *throwing() = kThrowRuntime;
  printf("fatal error: %s\n", text);
  startpanic();
  dopanic(StackFrom::kHere, Goroutines::kAll);
}

void fatal(const char* text) { fatalUser(text, Goroutines::kCurrent); }

void fatalAll(const char* text) { fatalUser(text, Goroutines::kAll); }

void dieInSignal() {
  if (*throwing() == kThrowPanic) *throwing() = kThrowUser;
  startpanic();
  dopanic(StackFrom::kSignal, Goroutines::kAll);
}

void fatalpanic(const char* text, uint32_t len, const char* type) {
  if (startpanic()) {
    char buf[512];
    Writer w{.buf = buf, .cap = sizeof(buf), .fd = STDERR_FILENO};
    printpanic(&w, text, len);
    if (type != nullptr) print(&w, "[exception %s]\n", type);
    flush(&w);
  }
  dopanic(StackFrom::kHere, Goroutines::kCurrent);
}

void fatalError(const char* go_text) noexcept { fatal(go_text); }
void fatalErrorAll(const char* text) noexcept { fatalAll(text); }
void fatalInvariant(const char* go_text) noexcept { fatalthrow(go_text); }

void fatalPanicTwice(const char* text, size_t n, const char* second) noexcept {
  if (startpanic()) {
    char buf[512];
    Writer w{.buf = buf, .cap = sizeof(buf), .fd = STDERR_FILENO};
    printpanic(&w, text, n);
    print(&w, "\t");
    printpanic(&w, second, strlen(second));
    flush(&w);
  }
  dopanic(StackFrom::kHere, Goroutines::kCurrent);
}

}  // namespace gump::rt
