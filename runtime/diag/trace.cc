// Starting, advancing and stopping the execution trace.
//
// A trace consists of generations of about a second. Each can be read without
// the others: it names the state of every goroutine and P, and has its own
// strings and stacks. So a file that ends in the middle is good up to the last
// whole generation.
//
// A thread writes events to a buffer of its M, one for each of two generations,
// inside of a TraceScope. A goroutine of the runtime ends a generation:
//  1. It notes the goroutines that have no event in the generation (collect).
//  2. It visits every P (forEachP), so that each P is named in the generation,
//     and no P stays in a system call. It keeps worldsema until the next step
//     is done, so no stop of the world lies in two generations.
//  3. It stores the new generation (gen).
//  4. It waits until no M is in a TraceScope, one after the other. A TraceScope
//     that begins later has the new generation.
//  5. The buffers of the old generation are its own now. It writes the
//     goroutines of step 1 that still have no event: a change between 1 and 3
//     would have been an event. Then it writes the strings and stacks.
//
// Between generations no event is out of order: a TraceScope loads the
// generation after its owner got the goroutine or the P, and the one who had it
// before loaded the generation earlier.
//
// Only that goroutine writes to the file, in a declared call. If the file takes
// no more, the rest of the trace is thrown away.
#include "runtime/diag/trace.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gump/internal/linkname.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/trace_state.h"
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

// Held while a trace starts or stops, or a generation ends.
constinit Atomic<uint32_t> traceSema(1);

// A file that gets the generations from `first` on. Guarded by traceSema.
struct File {
  int fd = -1;         // -1: there is none
  bool owned = false;  // closed at the end
  bool headerWritten = false;
  bool broken = false;  // it takes no more
  uint64_t first = 0;
};
File file;

// A flight recorder: the last generations, in memory. Guarded by traceSema.
struct Recorder {
  struct Generation {
    int64_t end;  // nanotime
    std::string bytes;
  };
  bool on = false;
  int64_t minAge = 0;
  size_t maxBytes = 0;
  size_t bytes = 0;  // of `kept`
  std::deque<Generation> kept;

  void add(std::string generation);
  void clear() {
    kept.clear();
    bytes = 0;
  }
};
Recorder recorder;

// Guarded by traceSema.
uint64_t lastGen = 0;
// The first batch of each generation, by parity. It is made while m.locks > 0,
// so without malloc.
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
// file.fd >= 0, for a look without traceSema.
Atomic<bool> fileOpen;
// The main goroutine has ended, and no other goroutine runs. Changes with
// traceSema.
Atomic<bool> mainOver;

const char* blockReason(WaitReason r) {
  switch (r) {
    case WaitReason::kIOWait:
      return "network";
    case WaitReason::kChanReceiveNilChan:
    case WaitReason::kChanSendNilChan:
    case WaitReason::kSelectNoCases:
      return "forever";
    case WaitReason::kSyncMutexLock:
    case WaitReason::kSyncRWMutexLock:
    case WaitReason::kSyncRWMutexRLock:
    case WaitReason::kSyncWaitGroupWait:
    case WaitReason::kSemacquire:
      return "sync";
    case WaitReason::kSyncCondWait:
      return "sync.(*Cond).Wait";
    case WaitReason::kFinalizerWait:
    case WaitReason::kForceGCIdle:
    case WaitReason::kGCWorkerIdle:
      return "system goroutine wait";
    default:
      return waitReasonString(r);
  }
}

// ---- What a generation consists of ------------------------------------------

void number(std::string* out, uint64_t n) {
  uint8_t bytes[kMostNumber];
  out->append(reinterpret_cast<const char*>(bytes), putNumber(bytes, n));
}

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

// Batches makes batches that belong to no thread.
class Batches {
 public:
  Batches(uint64_t gen, TraceEv kind) : gen_(gen), kind_(kind) {}
  // item adds an item, which is never split.
  void item(const std::string& bytes) {
    if (data_.size() + bytes.size() > TraceBuf::kSize) close();
    if (data_.empty()) data_.push_back(static_cast<char>(kind_));
    data_ += bytes;
  }
  std::string take() {
    close();
    return std::move(out_);
  }

 private:
  void close() {
    if (data_.empty()) return;
    out_.push_back(static_cast<char>(TraceEv::kEventBatch));
    number(&out_, gen_);
    number(&out_, kNoTraceThread);
    number(&out_, static_cast<uint64_t>(nanotime()));
    number(&out_, data_.size());
    out_ += data_;
    data_.clear();
  }

  const uint64_t gen_;
  const TraceEv kind_;
  std::string data_;
  std::string out_;
};

// Names are the strings of a generation that are made when it ends.
class Names {
 public:
  explicit Names(uint64_t gen)
      : strings_(gen, TraceEv::kStrings),
        next_(kTraceStringFirst + traceState.strings[gen % 2].count() + 1) {
    add(kTraceGosched, "runtime.Gosched");
    add(kTracePreempted, "preempted");
    for (size_t i = 0; i < static_cast<size_t>(WaitReason::kNumWaitReasons);
         i++) {
      add(kTraceBlockFirst + i, blockReason(static_cast<WaitReason>(i)));
    }
    traceState.strings[gen % 2].forEach([this](const TraceTable::Node& n) {
      add(kTraceStringFirst + n.id,
          std::string(static_cast<const char*>(n.bytes()), n.size));
    });
  }
  uint64_t id(const std::string& text) {
    if (text.empty()) return 0;
    auto [it, fresh] = ids_.try_emplace(text, next_);
    if (fresh) add(next_++, text);
    return it->second;
  }
  std::string take() { return strings_.take(); }

 private:
  void add(uint64_t id, const std::string& text) {
    const size_t n = std::min(text.size(), size_t{1024});
    std::string item(1, static_cast<char>(TraceEv::kString));
    number(&item, id);
    number(&item, n);
    item.append(text, 0, n);
    strings_.item(item);
  }

  Batches strings_;
  uint64_t next_;
  std::unordered_map<std::string, uint64_t> ids_;
};

struct Function {
  std::string name;
  bool ours = false;
};

// functionAt returns the function around pc. The names stay for the life of the
// process: they are few, and finding one is slow.
const Function& functionAt(uintptr_t pc) {
  static auto* known = new std::unordered_map<uintptr_t, Function>();
  auto [it, fresh] = known->try_emplace(pc);
  if (fresh) {
    char name[FrameText::kMaxName];
    it->second.ours = !frameName(pc, name);
    it->second.name = name;
  }
  return it->second;
}

std::string dumpStacks(uint64_t gen, Names* names) {
  Batches stacks(gen, TraceEv::kStacks);
  traceState.stacks[gen % 2].forEach([&](const TraceTable::Node& n) {
    const auto* pcs = static_cast<const uintptr_t*>(n.bytes());
    size_t count = n.size / sizeof(pcs[0]);
    // The innermost frames are those of the runtime. One stays if all are.
    while (count > 1 && functionAt(*pcs).ours) {
      pcs++;
      count--;
    }
    while (count > 1 && functionAt(pcs[count - 1]).ours) count--;
    std::string item(1, static_cast<char>(TraceEv::kStack));
    number(&item, n.id);
    number(&item, count);
    for (size_t i = 0; i < count; i++) {
      number(&item, pcs[i]);
      number(&item, names->id(functionAt(pcs[i]).name));
      number(&item, 0);  // file
      number(&item, 0);  // line
    }
    stacks.item(item);
  });
  return stacks.take();
}

struct Untraced {
  G* gp;
  uint64_t goid;
  uint64_t tid;
  TraceGo status;
};

// lookAt notes gp if it has no event in generation gen. gp may change
// meanwhile, and then it has one.
void lookAt(G* gp, uint64_t gen, std::vector<Untraced>* out) {
  const GExtra* extra = gp->extra.load(acquire);  // pairs with extraOf
  if (extra != nullptr && extra->trace.marked(gen)) return;
  const uint64_t goid = peek(gp->goid);
  Untraced u{gp, goid, kNoTraceThread, TraceGo::kWaiting};
  const M* mp = peek(gp->m);
  switch (readgstatus(gp) & ~uint32_t{kGscan}) {
    case kGrunnable:
      u.status = TraceGo::kRunnable;
      break;
    case kGwaiting:
      u.status = gp->foreign ? TraceGo::kSyscall : TraceGo::kWaiting;
      break;
    case kGrunning:
      // It is a plain thread's, or it has lost its P: otherwise it would have
      // an event.
    case kGsyscall:
      u.status = mp != nullptr && mp->trace.hidden ? TraceGo::kRunnable
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

std::vector<Untraced> collect(uint64_t gen) {
  struct Arg {
    uint64_t gen;
    std::vector<Untraced> out;
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

// EventBatches makes batches of events that belong to no thread.
class EventBatches {
 public:
  explicit EventBatches(uint64_t gen) : gen_(gen) {}
  void status(const Untraced& u) {
    if (b_ == nullptr || b_->pos + TraceBuf::kMostEvent > TraceBuf::kSize) {
      close();
      b_ = newTraceBuf();
      if (b_ == nullptr) {
        traceState.failed.store(true, relaxed);
        return;
      }
      b_->begin(gen_, kNoTraceThread, nanotime());
    }
    b_->time(static_cast<uint8_t>(TraceEv::kGoStatus), nanotime());
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

// writeAll writes n bytes. Returns false if the file takes no more. A pipe that
// nobody reads sends no SIGPIPE.
// On: user, or a foreign thread, in a declared call.  Parks: no.
bool writeAll(int fd, const void* bytes, size_t n) {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const auto* p = static_cast<const char*>(bytes);
  bool broke = false;
  while (n > 0) {
    const ssize_t w = ::write(fd, p, n);
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) {
      broke = w < 0 && errno == EPIPE;
      break;
    }
    p += w;
    n -= static_cast<size_t>(w);
  }
  if (broke && sigismember(&before, SIGPIPE) == 0) {
    const timespec now = {};
    while (sigtimedwait(&pipe, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return n == 0;
}

constexpr std::string_view kHeader("go 1.23 trace\0\0\0", 16);

// Output is a generation in the file's format.
struct Output {
  std::string head;  // before the events
  TraceBuf* events = nullptr;
  std::string tail;
};

bool writeOutput(File* f, const Output& o) {
  const int fd = f->fd;
  if (!std::exchange(f->headerWritten, true) &&
      !writeAll(fd, kHeader.data(), kHeader.size())) {
    return false;
  }
  if (!writeAll(fd, o.head.data(), o.head.size())) return false;
  for (TraceBuf* b = o.events; b != nullptr; b = b->next) {
    if (!writeAll(fd, b->bytes, b->pos)) return false;
  }
  return writeAll(fd, o.tail.data(), o.tail.size());
}

std::string flatten(const Output& o) {
  std::string all = o.head;
  for (const TraceBuf* b = o.events; b != nullptr; b = b->next) {
    all.append(reinterpret_cast<const char*>(b->bytes), b->pos);
  }
  return all += o.tail;
}

// add keeps generations until the rest is minAge old. maxBytes is a hint, as in
// Go: one generation is always kept.
void Recorder::add(std::string generation) {
  const int64_t now = nanotime();
  bytes += generation.size();
  kept.push_back({now, std::move(generation)});
  while (kept.size() > 1 &&
         (bytes > maxBytes || now - kept.front().end > minAge)) {
    bytes -= kept.front().bytes.size();
    kept.pop_front();
  }
}

// ---- Generations ------------------------------------------------------------

// beginGeneration makes gen the current one.
// On: any, with worldsema or the world stopped.
void beginGeneration(uint64_t gen) {
  const int64_t now = nanotime();
  syncBatch[gen % 2].make(gen, now);
  genSince.store(now, relaxed);
  traceState.bytes.store(0, relaxed);
  traceState.gen.store(gen, seq_cst);
  lastGen = gen;
  asymmetricHeavy();  // see TraceScope
}

// awaitScopes returns when no M is in a TraceScope that began before.
void awaitScopes() {
  for (M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    if (mp == getg()->m) continue;
    for (int i = 0; mp->trace.writing.load(acquire); i++) {
      if (i < 100) {
        procyield(10);
      } else {
        usleep(50);
      }
    }
  }
}

// takeBuffers moves the buffers of generation gen, which has ended, to the
// list.
void takeBuffers(uint64_t gen) {
  for (M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    TraceBuf* b = std::exchange(mp->trace.buf[gen % 2], nullptr);
    if (mp->trace.loss.gen.load(relaxed) == gen) {
      const uint64_t tid = traceThread(mp);
      if (b == nullptr || b->pos + 2 * TraceBuf::kMostEvent > TraceBuf::kSize) {
        if (b != nullptr) traceState.full[gen % 2].push(b);
        b = newTraceBuf();
        if (b == nullptr) {
          traceState.failed.store(true, relaxed);
          continue;
        }
        b->begin(gen, tid, mp->trace.loss.time);
      }
      traceWriteLoss(mp->trace.loss, gen, tid, b);
    }
    if (b != nullptr) traceState.full[gen % 2].push(b);
  }
  if (TraceBuf* b = traceEndNoP(gen)) traceState.full[gen % 2].push(b);
}

// finish makes what the file gets of generation gen, which has ended.
Output finish(uint64_t gen, const std::vector<Untraced>& untraced) {
  takeBuffers(gen);
  EventBatches states(gen);
  for (const Untraced& u : untraced) {
    const GExtra* extra = u.gp->extra.load(acquire);
    if (extra == nullptr || !extra->trace.marked(gen)) states.status(u);
  }
  states.close();
  Output o;
  const SyncBatch& sync = syncBatch[gen % 2];
  o.head.assign(reinterpret_cast<const char*>(sync.bytes), sync.size);
  o.events = traceState.full[gen % 2].takeAll();
  for (TraceBuf* b = o.events; b != nullptr; b = b->next) b->finish();
  Names names(gen);
  const std::string stacks = dumpStacks(gen, &names);
  o.tail = stacks + names.take();
  traceState.stacks[gen % 2].clear();
  traceState.strings[gen % 2].clear();
  return o;
}

void giveBack(Output* o) {
  while (TraceBuf* b = o->events) {
    o->events = b->next;
    freeTraceBuf(b);
  }
}

// nextGen is the generation that advance goes on to. Guarded by traceSema.
uint64_t nextGen = 0;

void switchGeneration() {
  if (nextGen == 0) {
    traceState.gen.store(0, seq_cst);
    asymmetricHeavy();  // see TraceScope
  } else {
    beginGeneration(nextGen);
    traceProcs(gomaxprocs.load(relaxed));
  }
}

// advance ends the current generation, and begins another unless stops.
// On: user, or a foreign thread, with traceSema.
void advance(bool stops) {
  const uint64_t gen = traceState.gen.load(relaxed);
  if (gen == 0) return;
  const std::vector<Untraced> untraced = collect(gen);
  nextGen = stops ? 0 : gen + 1;
  forEachP(WaitReason::kFlushProcCaches, traceProcStatus, switchGeneration);
  awaitScopes();
  // Not earlier: a scope that spans a switch (TraceM::entering) ends only with
  // the hint. Later ones have generation 0, and write nothing.
  if (stops) traceHint.store(0, relaxed);
  Output o = finish(gen, untraced);
  // Without memory the generation misses events, and readers would refuse it
  // and all that follow.
  const bool whole = !traceState.failed.xchg(false, relaxed);
  if (!whole) file.broken = true;
  if (whole && recorder.on) recorder.add(flatten(o));
  if (!whole) recorder.clear();
  if (file.fd >= 0 && !file.broken && gen >= file.first) {
    entersyscall();
    const bool ok = writeOutput(&file, o);
    exitsyscall();
    file.broken = !ok;
  }
  giveBack(&o);
}

// begin starts tracing.
// On: user, or a foreign thread, with traceSema.  Parks: yes.
void begin() {
  stopTheWorld(WaitReason::kStoppingTheWorld);
  for (M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    TraceM* t = &mp->trace;
    t->hidden = false;
    t->kept = false;
    t->preempted = false;
    t->loss.gen.store(0, relaxed);
  }
  const int32_t n = gomaxprocsEver.load(relaxed);
  for (int32_t i = 0; i < n; i++) allp[i]->traceTid = 0;
  traceHint.store(1, relaxed);
  beginGeneration(lastGen + 1);
  traceProcs(gomaxprocs.load(relaxed));
  traceStopBegins("start trace");
  startTheWorld();
}

// end stops tracing.
// On: user, or a foreign thread, with traceSema.  Parks: yes.
void end() { advance(/*stops=*/true); }

bool runs() { return traceState.gen.load(relaxed) != 0; }

// Sema holds traceSema for a scope. A goroutine that gets it after
// traceMainEnds would keep it until the next Run, so it gives it back: without
// a P, if main has ended, as every goroutine unlocks that comes back late.
class Sema {
 public:
  Sema() {
    const G* gp = runtimeEntry();
    for (;;) {
      semacquire(&traceSema, /*lifo=*/false, SemaReason::kSemacquire);
      if (gp->foreign || !mainOver.load(relaxed)) return;
      release();
      gosched();
    }
  }
  ~Sema() { release(); }
  Sema(const Sema&) = delete;
  Sema& operator=(const Sema&) = delete;

 private:
  static void release() {
    semrelease(&traceSema, /*handoff=*/false, /*yield=*/false);
  }
};

void advancer(void*) {
  {
    const Sema sema;
    advance(/*stops=*/false);
  }
  advancing.store(false, release);  // pairs with traceAdvance
}
constexpr FuncType kAdvancer = systemFunc(advancer);

// The rest of the trace is lost if the process ends otherwise.
void stopAtExit() { traceStop(); }

}  // namespace

bool traceStart(int fd, bool owned) noexcept {
  schedinit();
  const Sema sema;
  if (file.fd >= 0) return false;
  if (runs()) advance(/*stops=*/false);
  file = File{.fd = fd, .owned = owned, .first = lastGen + (runs() ? 0 : 1)};
  if (!runs()) begin();
  fileOpen.store(true, relaxed);  // a hint
  return true;
}

void traceStop() noexcept {
  if (!traceEnabled()) return;
  const Sema sema;
  if (file.fd < 0) return;
  if (recorder.on) {
    advance(/*stops=*/false);
  } else {
    end();
  }
  if (file.owned) ::close(file.fd);
  file = File();
  fileOpen.store(false, relaxed);  // as above
}

bool traceEnabled() noexcept { return fileOpen.load(relaxed); }

bool traceRecorderStart(int64_t minAge, size_t maxBytes) noexcept {
  schedinit();
  const Sema sema;
  if (recorder.on) return false;
  recorder.on = true;
  recorder.minAge = minAge;
  recorder.maxBytes = maxBytes;
  if (!runs()) begin();
  return true;
}

void traceRecorderStop() noexcept {
  const Sema sema;
  if (!recorder.on) return;
  recorder.on = false;
  if (file.fd < 0) end();
  recorder.clear();
}

int64_t traceRecorderWrite(int fd) noexcept {
  const Sema sema;
  if (!recorder.on) return -EBADF;
  advance(/*stops=*/false);
  int64_t n = static_cast<int64_t>(kHeader.size());
  entersyscall();
  bool ok = writeAll(fd, kHeader.data(), kHeader.size());
  for (const Recorder::Generation& g : recorder.kept) {
    if (!ok) break;
    ok = writeAll(fd, g.bytes.data(), g.bytes.size());
    n += static_cast<int64_t>(g.bytes.size());
  }
  const int err = errno;
  exitsyscall();
  return ok ? n : -err;
}

namespace {

// pathFor returns name with the number of the process in place of "%p", so that
// the processes of one program, or a program and its children, do not write to
// one file.
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
  return tracing() && (now - genSince.load(relaxed) >= kPeriod ||  // hints
                       traceState.bytes.load(relaxed) >= kMostBytes);
}

void traceMainEnds() {
  const Sema sema;
  mainOver.store(true, release);  // pairs with traceAdvance
}

void traceMainBegins() { mainOver.store(false, release); }

void traceAdvance() {
  if (mainOver.load(acquire) || !advancing.cas(false, true, acquire)) return;
  if (!startSystemG(&kAdvancer)) advancing.store(false, release);
}

void traceForked() {
  traceHint.store(0, relaxed);  // the child has one thread
  traceState.gen.store(0, relaxed);
  fileOpen.store(false, relaxed);
}

// ---- Annotations of the program ---------------------------------------------

namespace {

M* enterRuntime() {
  (void)runtimeEntry();
  return acquirem();
}

// Annotation is an event that a running goroutine writes about itself.
class Annotation {
 public:
  Annotation() {
    G* gp = getg();
    if (!s_.on() || gp->foreign || s_.m()->p == nullptr) return;
    s_.ownP(TraceProc::kRunning);
    s_.goStatus(gp, TraceGo::kRunning);
    on_ = true;
  }
  bool on() const { return on_; }
  TraceScope* operator->() { return &s_; }
  uint64_t string(std::string_view text) const {
    return s_.string(text.data(), text.size());
  }

 private:
  TraceScope s_;
  bool on_ = false;
};

}  // namespace

bool tracesAnnotations() noexcept { return tracing(); }

uint64_t traceTaskBegin(uint64_t parent, std::string_view type) noexcept {
  static constinit Atomic<uint64_t> ids;
  const uint64_t id = ids.add(1, relaxed);  // only its uniqueness matters
  if (!tracing()) return id;
  M* mp = enterRuntime();
  if (Annotation a; a.on()) {
    a->event(TraceEv::kUserTaskBegin, id, parent, a.string(type),
             a->stackHere());
  }
  releasem(mp);
  return id;
}

void traceTaskEnd(uint64_t id) noexcept {
  if (!tracing()) return;
  M* mp = enterRuntime();
  if (Annotation a; a.on()) {
    a->event(TraceEv::kUserTaskEnd, id, a->stackHere());
  }
  releasem(mp);
}

bool traceRegion(uint64_t task, bool begins, std::string_view type) noexcept {
  if (!tracing()) return false;
  M* mp = enterRuntime();
  bool written = false;
  if (Annotation a; a.on()) {
    a->event(begins ? TraceEv::kUserRegionBegin : TraceEv::kUserRegionEnd, task,
             a.string(type), a->stackHere());
    written = true;
  }
  releasem(mp);
  return written;
}

void traceLog(uint64_t task, std::string_view category,
              std::string_view message) noexcept {
  if (!tracing()) return;
  M* mp = enterRuntime();
  if (Annotation a; a.on()) {
    a->event(TraceEv::kUserLog, task, a.string(category), a.string(message),
             a->stackHere());
  }
  releasem(mp);
}

}  // namespace gump::rt
