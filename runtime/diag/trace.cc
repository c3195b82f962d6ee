// Starting, advancing and stopping the execution trace.
//
// A trace consists of generations of about a second. A generation is readable
// without those after it: it names the state of every goroutine and P, and has
// its own strings and stacks. So a file that ends in the middle is good up to
// the last whole generation.
//
// A thread writes events to a buffer of its M, inside of a TraceScope. An M has
// two buffers, one for each parity of the generation. A goroutine of the
// runtime ends a generation:
//  1. It notes the goroutines that have no event in the generation
//     (traceCollect).
//  2. It visits every P (forEachP), so that each P is named in the generation,
//     and no P stays in a system call. It keeps worldsema until the next step
//     is done, so no stop of the world lies in two generations.
//  3. It stores the number of the new generation (gen).
//  4. It looks at one M after the other, and waits until that M is in no
//     TraceScope. A TraceScope that begins later has the new generation.
//  5. The buffers of the old generation are its own now. It writes the status
//     of the goroutines of step 1 that still have no event: a change between
//     steps 1 and 3 would have been an event. Then it writes the strings and
//     stacks.
//
// No event is in an earlier generation than the event before it. A TraceScope
// loads the generation after its owner got the goroutine or the P. The owner
// before loaded the generation earlier.
//
// A Session brackets all of this. Steps 1 to 4 need Ps. Step 5 needs none, and
// is done in a declared call, because a write to the file may block. If a write
// fails, the rest of the trace is thrown away.
#include "runtime/diag/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gump/internal/linkname.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/trace_generation.h"
#include "runtime/diag/trace_output.h"
#include "runtime/diag/trace_state.h"
#include "runtime/diag/trace_tables.h"
#include "runtime/diag/traceback.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/numa.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sched/waitreason.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/sema.h"

namespace gump::rt {

namespace {

// Held while a trace starts or stops, or a generation ends, until the file has
// the bytes that it gets.
constinit Atomic<uint32_t> traceSema(1);

// kSwitching: a goroutine is in the part of a Session that needs Ps. Main does
// not end meanwhile. kMainOver: main has ended, and no goroutine enters that
// part, because it would keep traceSema until the next Run.
enum Phase : uint32_t { kCalm, kSwitching, kMainOver };
constinit Atomic<uint32_t> phase(kCalm);

// Guarded by traceSema.
constinit TraceFile file;
constinit TraceRecorder recorder;

Atomic<bool> advancing;
// The same as file.on(), for readers without traceSema.
Atomic<bool> fileOpen;

void giveBack(TraceOutput* o) {
  while (TraceBuf* b = o->events) {
    o->events = b->next;
    freeTraceBuf(b);
  }
}

// giveWay lets other goroutines run. In a model it also sleeps: there, gosched
// may come back at once, again and again, and no other thread would run.
// On: user.  P: either.  Locks: none.  Parks: yes.
void giveWay() {
  gosched();
  if (kModelBuild) usleep(100);
}

// Session holds traceSema for a scope.
class Session {
 public:
  // The constructor begins the part that needs Ps. A goroutine parks with
  // traceSema only while phase is kSwitching, because main may end otherwise.
  // On: user, or a foreign thread.  P: either.  Locks: none.  Parks: yes.
  Session() : gp_(runtimeEntry()) {
    while (!enter()) giveWay();
  }
  ~Session() {
    // In a declared call, unlock needs no P.
    M* mp = calm_ ? nullptr : acquirem();
    if (!calm_) endSwitching();
    unlock();
    if (calm_) {
      exitsyscall();
    } else {
      releasem(mp);
    }
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // calm begins the part that needs no P. It ends with the Session.
  void calm() {
    if (std::exchange(calm_, true)) return;
    entersyscall();
    endSwitching();
  }

 private:
  // enter returns false if main has ended. The goroutine gives traceSema back
  // even if it has no P, as every goroutine does that returns from a call then.
  bool enter() {
    semacquire(&traceSema, /*lifo=*/false, SemaReason::kSemacquire);
    if (gp_->foreign) return true;  // plain threads may do so after main, too
    M* mp = getg()->m;
    const bool lost = acquiremNoPark(mp);
    const bool entered = phase.cas(kCalm, kSwitching, acq_rel);
    if (!entered) unlock();
    if (lost) markPLost(mp);
    releasem(mp);
    return entered;
  }
  static void unlock() {
    semrelease(&traceSema, /*handoff=*/false, /*yield=*/false);
  }
  void endSwitching() {
    if (!gp_->foreign) phase.store(kCalm, release);  // pairs with traceMainEnds
  }

  const G* const gp_;
  bool calm_ = false;
};

// nextGen is the generation that follows, or 0. Guarded by traceSema.
uint64_t nextGen = 0;

void switchGeneration() {
  traceBeginGeneration(nextGen);
  if (nextGen != 0) traceProcs(gomaxprocs.load(relaxed));
}

// keep gives generation gen to the recorder and to the file. Throws
// std::bad_alloc.
void keep(uint64_t gen, TraceOutput* o) {
  o->tail = traceTables(gen);
  if (recorder.on) recorder.add(*o);
  file.add(gen, *o);
}

// advance ends the current generation. It begins another unless `stops` is set.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: yes.
void advance(Session* session, bool stops) {
  const uint64_t gen = traceState.gen.load(relaxed);
  if (gen == 0) return;
  std::vector<TraceUntraced> untraced;
  bool whole = true;
  try {
    untraced = traceCollect(gen);
  } catch (const std::bad_alloc&) {
    whole = false;
  }
  nextGen = stops ? 0 : gen + 1;
  forEachP(WaitReason::kFlushProcCaches, traceProcStatus, switchGeneration);
  traceAwaitScopes();
  // Not earlier: a scope that spans a switch (TraceM::entering) ends only with
  // the hint. Later ones have generation 0, and write nothing.
  if (stops) (void)traceHint.and_(~kTraceHint, relaxed);
  session->calm();
  TraceOutput o = {&traceHead(gen), traceTakeEvents(gen, untraced), {}};
  if (traceState.failed[gen % 2].xchg(false, relaxed)) whole = false;
  try {
    if (whole) keep(gen, &o);
  } catch (const std::bad_alloc&) {
    whole = false;
  }
  // Without memory the generation misses events, and readers would refuse it
  // and all that follow.
  if (!whole) {
    file.broken = true;
    recorder.clear();
  }
  traceState.stacks[gen % 2].clear();
  traceState.strings[gen % 2].clear();
  giveBack(&o);
}

// begin starts tracing.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: yes.
void begin() {
  traceProbeCounter();
  // The last trace may have ended long ago. So its clock gives no rate.
  traceState.clock[traceLastGeneration() % 2] = {};
  stopTheWorld(WaitReason::kStoppingTheWorld);
  for (M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    TraceM* t = &mp->trace;
    t->hidden.store(false, relaxed);
    t->kept = false;
    t->preempted = false;
    for (TraceM::Loss& loss : t->loss) loss.gen.store(0, relaxed);
  }
  const int32_t n = gomaxprocsEver.load(relaxed);
  for (int32_t i = 0; i < n; i++) allp[i]->traceTid = 0;
  (void)traceHint.or_(kTraceHint, relaxed);
  traceBeginGeneration(traceLastGeneration() + 1);
  traceProcs(gomaxprocs.load(relaxed));
  traceStopBegins("start trace");
  startTheWorld();
}

bool runs() { return traceState.gen.load(relaxed) != 0; }

void advancer(void*) {
  {
    Session session;
    advance(&session, /*stops=*/false);
  }
  advancing.store(false, release);  // pairs with traceAdvance
}
constexpr FuncType kAdvancer = systemFunc(advancer);

// startFile begins a trace to f. Returns false if there is one already.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: yes.
bool startFile(const TraceFile& f) {
  schedinit();
  Session session;
  if (file.on()) return false;
  const bool beside = runs();  // beside the recorder
  if (beside) advance(&session, /*stops=*/false);
  file = f;
  file.first = traceLastGeneration() + (beside ? 0 : 1);
  if (!beside) begin();
  fileOpen.store(true, relaxed);  // a hint
  return true;
}

// stopFile ends the trace to `file`.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: yes.
void stopFile(Session* session) {
  advance(session, /*stops=*/!recorder.on);
  file.close();
  fileOpen.store(false, relaxed);  // a hint
}

// Without it, the last generation would be lost when the process ends.
void stopAtExit() { traceStop(); }

}  // namespace

bool traceStart(int fd, bool owned) noexcept {
  return startFile({.fd = fd, .owned = owned});
}

bool traceStartTo(TraceSink sink, void* arg) noexcept {
  return startFile({.sink = sink, .arg = arg});
}

void traceStop() noexcept {
  if (!traceEnabled()) return;
  Session session;
  if (file.on()) stopFile(&session);
}

void traceStopTo(const void* arg) noexcept {
  Session session;
  if (file.sink != nullptr && file.arg == arg) stopFile(&session);
}

bool traceEnabled() noexcept { return fileOpen.load(relaxed); }

bool traceRecorderStart(int64_t minAge, size_t maxBytes) noexcept {
  schedinit();
  const Session session;
  if (recorder.on) return false;
  recorder.on = true;
  recorder.minAge = minAge;
  recorder.maxBytes = maxBytes;
  if (!runs()) begin();
  return true;
}

void traceRecorderStop() noexcept {
  Session session;
  if (!recorder.on) return;
  recorder.on = false;
  if (!file.on()) advance(&session, /*stops=*/true);
  recorder.clear();
}

int64_t traceRecorderWrite(int fd) noexcept {
  Session session;
  if (!recorder.on) return -EBADF;
  advance(&session, /*stops=*/false);
  return recorder.write(fd);
}

namespace {

// pathFor returns name with the number of the process in place of "%p". So
// several processes of one program do not write to one file.
std::string pathFor(const char* name) {
  std::string path = name;
  if (const size_t at = path.find("%p"); at != path.npos) {
    path.replace(at, 2, std::to_string(::getpid()));
  }
  return path;
}

}  // namespace

void traceFromEnv() {
  constexpr char kVariable[] = "GUMP_TRACE";
  const char* name = gogetenv(kVariable, kVariable);
  if (name == nullptr || name[0] == '\0') return;
  static bool done = false;  // used by main goroutines, one after the other
  if (std::exchange(done, true)) return;
  const std::string path = pathFor(name);
  const int fd = newDescriptor([&] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  });
  if (fd < 0) {
    printf("runtime: GUMP_TRACE=%Q cannot be opened (errno=%d)\n", path.c_str(),
           -fd);
    return;
  }
  if (!traceStart(fd, /*owned=*/true)) {
    ::close(fd);
    return;
  }
  std::atexit(stopAtExit);
}

void traceMainEnds() {
  // A goroutine is in kSwitching only for a short time: it waits for no file.
  while (!phase.cas(kCalm, kMainOver, acq_rel)) giveWay();
}

void traceMainBegins() { (void)phase.cas(kMainOver, kCalm, release); }

void traceAdvance() {
  if (phase.load(relaxed) == kMainOver ||  // a hint: a Session looks again
      !advancing.cas(false, true, acquire)) {
    return;
  }
  if (!startSystemG(&kAdvancer)) advancing.store(false, release);
}

void traceForked() {
  traceHint.store(0, relaxed);  // the child has one thread
  traceState.gen.store(0, relaxed);
  fileOpen.store(false, relaxed);
}

}  // namespace gump::rt
