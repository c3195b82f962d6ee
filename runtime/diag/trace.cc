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
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gump/internal/linkname.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
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

TraceBuf* traceEndNoP(uint64_t gen);  // trace_event.cc

namespace {

constexpr int64_t kPeriod = 1'000'000'000;          // of a generation, ns
constexpr uint64_t kMostBytes = uint64_t{1} << 24;  // or so many, if sooner

// Held while a trace starts or stops, or a generation ends, until the file has
// the bytes that it gets.
constinit Atomic<uint32_t> traceSema(1);

// kSwitching: a goroutine is in the part of a Session that needs Ps. Main does
// not end meanwhile. kMainOver: main has ended, and no goroutine enters that
// part, because it would keep traceSema until the next Run.
enum Phase : uint32_t { kCalm, kSwitching, kMainOver };
constinit Atomic<uint32_t> phase(kCalm);

// The file, or the sink, that gets the generations from `first` on. Guarded by
// traceSema.
struct File {
  int fd = -1;
  bool owned = false;  // closed at the end
  TraceSink sink = nullptr;
  void* arg = nullptr;
  bool headerWritten = false;
  bool broken = false;  // a write has failed
  uint64_t first = 0;

  bool on() const { return fd >= 0 || sink != nullptr; }
  // put writes n bytes. Returns false if that fails.
  bool put(const void* bytes, size_t n) const;
};
constinit File file;

// A flight recorder: the last generations, in memory. Guarded by traceSema. It
// may start in a static constructor, and goes on when exit has run destructors.
struct Recorder {
  struct Generation {
    Generation* next;  // the next newer one
    int64_t end;       // nanotime
    std::string bytes;
  };
  bool on = false;
  int64_t minAge = 0;
  size_t maxBytes = 0;
  size_t bytes = 0;  // of all generations
  Generation* oldest = nullptr;
  Generation* newest = nullptr;

  void add(std::string generation);
  void drop();  // the oldest
  void clear() {
    while (oldest != nullptr) drop();
  }
};
static_assert(std::is_trivially_destructible_v<Recorder>);
constinit Recorder recorder;

// Guarded by traceSema.
uint64_t lastGen = 0;
// The first batch of a generation. It is made while m.locks > 0, so without
// malloc. There is one for each parity of the generation.
struct SyncBatch {
  uint8_t bytes[48];  // 38 at most
  size_t size;

  void make(uint64_t gen, int64_t now);
  void number(uint64_t n) { size += putNumber(bytes + size, n); }
  void byte(TraceEv kind) { bytes[size++] = static_cast<uint8_t>(kind); }
};
SyncBatch syncBatch[2];

// When the current generation began. For sysmon.
Atomic<int64_t> genSince;
Atomic<bool> advancing;
// The same as file.on(), for readers without traceSema.
Atomic<bool> fileOpen;

void SyncBatch::make(uint64_t gen, int64_t now) {
  constexpr uint64_t kNanoseconds = 1'000'000'000;  // units of time per second
  uint8_t frequency[kMostNumber];
  const size_t n = putNumber(frequency, kNanoseconds);
  size = 0;
  byte(TraceEv::kEventBatch);
  number(gen);
  number(kNoTraceThread);
  number(static_cast<uint64_t>(now));
  number(1 + n);
  byte(TraceEv::kFrequency);
  memcpy(bytes + size, frequency, n);
  size += n;
}

// lookAt notes gp if it has no event in generation gen. gp may change its
// status meanwhile. Then it has an event.
void lookAt(G* gp, uint64_t gen, std::vector<TraceUntraced>* out) {
  const GExtra* extra = gp->extra.load(acquire);  // pairs with extraOf
  if (extra != nullptr && extra->trace.marked(gen)) return;
  const uint64_t goid = peek(gp->goid);
  TraceUntraced u{gp, traceGoid(goid), kNoTraceThread, TraceGo::kWaiting};
  const M* mp = peek(gp->m);
  switch (readgstatus(gp) & ~uint32_t{kGscan}) {
    // The goroutine of a plain thread is in a call for as long as it lives.
    case kGrunnable:
      u.status = gp->foreign ? TraceGo::kSyscall : TraceGo::kRunnable;
      break;
    case kGwaiting:
      u.status = gp->foreign ? TraceGo::kSyscall : TraceGo::kWaiting;
      break;
    case kGrunning:
      // It is a plain thread's, or it has lost its P. Otherwise it would have
      // an event.
    case kGsyscall:
      u.status = mp != nullptr && mp->trace.hidden.load(relaxed)
                     ? TraceGo::kRunnable
                     : TraceGo::kSyscall;
      break;
    default:
      return;
  }
  if (goid == 0) return;
  if (u.status == TraceGo::kSyscall) {
    if (mp == nullptr) return;
    u.tid = traceThread(mp);
  }
  out->push_back(u);
}

}  // namespace

std::vector<TraceUntraced> traceCollect(uint64_t gen) {
  struct Arg {
    uint64_t gen;
    std::vector<TraceUntraced> out;
  };
  Arg arg{gen, {}};
  const auto look = [](G* gp, void* p) {
    auto* a = static_cast<Arg*>(p);
    lookAt(gp, a->gen, &a->out);
  };
  forEachG(look, &arg);
  forEachForeign(look, &arg);
  return std::move(arg.out);
}

namespace {

// EventBatches makes batches of events that belong to no thread.
class EventBatches {
 public:
  explicit EventBatches(uint64_t gen) : gen_(gen) {}
  void status(const TraceUntraced& u) {
    if (b_ == nullptr || b_->pos + TraceBuf::kMostEvent > TraceBuf::kSize) {
      close();
      b_ = newTraceBuf();
      if (b_ == nullptr) {
        traceState.failed[gen_ % 2].store(true, relaxed);
        return;
      }
      b_->begin(gen_, kNoTraceThread, traceState.now(gen_));
    }
    b_->time(static_cast<uint8_t>(TraceEv::kGoStatus), traceState.now(gen_));
    b_->number(u.goid);
    b_->number(u.tid);
    b_->number(static_cast<uint64_t>(u.status));
  }
  void close() {
    if (b_ != nullptr) traceState.full[gen_ % 2].push(b_);
    b_ = nullptr;
  }

 private:
  const uint64_t gen_;
  TraceBuf* b_ = nullptr;
};

// ---- The file ---------------------------------------------------------------

// writeAll writes n bytes. Returns 0, or the error of the write that failed. A
// pipe without a reader sends no SIGPIPE.
// On: user, or a foreign thread, in a declared call.  Parks: no.
int writeAll(int fd, const void* bytes, size_t n) {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const auto* p = static_cast<const char*>(bytes);
  int error = 0;
  while (n > 0 && error == 0) {
    const ssize_t w = ::write(fd, p, n);
    if (w > 0) {
      p += w;
      n -= static_cast<size_t>(w);
    } else if (w == 0) {
      error = EIO;  // no file does that
    } else if (errno != EINTR) {
      error = errno;  // the calls below may change it
    }
  }
  if (error == EPIPE && sigismember(&before, SIGPIPE) == 0) {
    const timespec now = {};
    while (sigtimedwait(&pipe, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

bool File::put(const void* bytes, size_t n) const {
  return sink != nullptr ? sink(arg, bytes, n) : writeAll(fd, bytes, n) == 0;
}

constexpr std::string_view kHeader("go 1.23 trace\0\0\0", 16);

// Output is a generation in the file's format.
struct Output {
  const SyncBatch* head;
  TraceBuf* events;
  std::string tail;
};

// forEachPart calls f(bytes, size) for each part, until it returns false.
template <class F>
bool forEachPart(const Output& o, F&& f) {
  if (!f(o.head->bytes, o.head->size)) return false;
  for (const TraceBuf* b = o.events; b != nullptr; b = b->next) {
    if (!f(b->bytes, b->pos)) return false;
  }
  return f(o.tail.data(), o.tail.size());
}

bool writeOutput(File* f, const Output& o) {
  if (!std::exchange(f->headerWritten, true) &&
      !f->put(kHeader.data(), kHeader.size())) {
    return false;
  }
  return forEachPart(o,
                     [f](const void* p, size_t n) { return f->put(p, n); }) &&
         (f->sink == nullptr || f->sink(f->arg, nullptr, 0));
}

std::string flatten(const Output& o) {
  std::string all;
  forEachPart(o, [&all](const void* p, size_t n) {
    all.append(static_cast<const char*>(p), n);
    return true;
  });
  return all;
}

// add appends a generation, and drops those that ended more than minAge ago, or
// that are too much for maxBytes. As in Go, maxBytes is a hint: one generation
// is always kept.
void Recorder::add(std::string generation) {
  const int64_t now = nanotime();
  auto* g = new Generation{nullptr, now, std::move(generation)};
  bytes += g->bytes.size();
  (oldest == nullptr ? oldest : newest->next) = g;
  newest = g;
  while (oldest != newest && (bytes > maxBytes || now - oldest->end > minAge)) {
    drop();
  }
}

void Recorder::drop() {
  Generation* g = oldest;
  oldest = g->next;
  bytes -= g->bytes.size();
  delete g;
}

// ---- Generations ------------------------------------------------------------

}  // namespace

void traceBeginGeneration(uint64_t gen) {
  if (gen != 0) {
    const int64_t now = nanotime();
    syncBatch[gen % 2].make(gen, now);
    genSince.store(now, relaxed);
    traceState.bytes.store(0, relaxed);
    // No thread reads the clock of the generation before the last any more.
    traceState.clock[gen % 2] = traceState.clock[(gen + 1) % 2].next();
    lastGen = gen;
  }
  traceState.gen.store(gen, seq_cst);
  asymmetricHeavy();  // see TraceScope
}

void traceAwaitScopes() {
  for (M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    if (mp == getg()->m) continue;
    constexpr int kSpins = kModelBuild ? 1 : 100;
    for (int i = 0; mp->trace.writing.load(acquire); i++) {
      if (i < kSpins) {
        procyield(10);
      } else {
        usleep(50);
      }
    }
  }
}

namespace {

// takeBuffers moves the buffers of generation gen, which has ended, to the list
// of full ones.
void takeBuffers(uint64_t gen) {
  for (M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    traceTakeSamples(mp, gen);
    TraceBuf* b = std::exchange(mp->trace.buf[gen % 2], nullptr);
    const TraceM::Loss& loss = mp->trace.loss[gen % 2];
    if (loss.gen.load(relaxed) == gen) {
      const uint64_t tid = traceThread(mp);
      if (b == nullptr || b->pos + 2 * TraceBuf::kMostEvent > TraceBuf::kSize) {
        if (b != nullptr) traceState.full[gen % 2].push(b);
        b = newTraceBuf();
        if (b == nullptr) {
          traceState.failed[gen % 2].store(true, relaxed);
          continue;
        }
        b->begin(gen, tid, loss.time);
      }
      traceWriteLoss(loss, gen, tid, b);
    }
    if (b != nullptr) traceState.full[gen % 2].push(b);
  }
  if (TraceBuf* b = traceEndNoP(gen)) traceState.full[gen % 2].push(b);
}

}  // namespace

TraceBuf* traceTakeEvents(uint64_t gen,
                          const std::vector<TraceUntraced>& untraced) {
  takeBuffers(gen);
  EventBatches states(gen);
  for (const TraceUntraced& u : untraced) {
    const GExtra* extra = u.gp->extra.load(acquire);  // pairs with extraOf
    if (extra == nullptr || !extra->trace.marked(gen)) states.status(u);
  }
  states.close();
  TraceBuf* events = traceState.full[gen % 2].takeAll();
  for (TraceBuf* b = events; b != nullptr; b = b->next) b->finish();
  return events;
}

namespace {

void giveBack(Output* o) {
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
void keep(uint64_t gen, Output* o) {
  o->tail = traceTables(gen);
  if (recorder.on) recorder.add(flatten(*o));
  if (file.on() && !file.broken && gen >= file.first) {
    file.broken = !writeOutput(&file, *o);
  }
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
  Output o = {&syncBatch[gen % 2], traceTakeEvents(gen, untraced), {}};
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
  traceState.clock[lastGen % 2] = {};
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
  traceBeginGeneration(lastGen + 1);
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
bool startFile(const File& f) {
  schedinit();
  Session session;
  if (file.on()) return false;
  const bool beside = runs();  // beside the recorder
  if (beside) advance(&session, /*stops=*/false);
  file = f;
  file.first = lastGen + (beside ? 0 : 1);
  if (!beside) begin();
  fileOpen.store(true, relaxed);  // a hint
  return true;
}

// stopFile ends the trace to `file`.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: yes.
void stopFile(Session* session) {
  advance(session, /*stops=*/!recorder.on);
  if (file.owned) ::close(file.fd);
  file = File();
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
  auto n = static_cast<int64_t>(kHeader.size());
  int error = writeAll(fd, kHeader.data(), kHeader.size());
  if (error != 0) return -error;
  for (const auto* g = recorder.oldest; g != nullptr; g = g->next) {
    error = writeAll(fd, g->bytes.data(), g->bytes.size());
    if (error != 0) return -error;
    n += static_cast<int64_t>(g->bytes.size());
  }
  return n;
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

bool traceAdvanceDue(int64_t now) {
  return mayTrace() && (now - genSince.load(relaxed) >= kPeriod ||  // hints
                        traceState.bytes.load(relaxed) >= kMostBytes);
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
