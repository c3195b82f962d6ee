#include "runtime/diag/trace_generation.h"

#include <cstring>
#include <utility>

#include "runtime/diag/traceback.h"
#include "runtime/sched/extram.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

TraceBuf* traceEndNoP(uint64_t gen);  // trace_event.cc

namespace {

constexpr int64_t kPeriod = 1'000'000'000;          // of a generation, ns
constexpr uint64_t kMostBytes = uint64_t{1} << 24;  // or so many, if sooner

uint64_t lastGen = 0;  // guarded by traceSema
TraceHead heads[2];    // by parity of the generation
// When the current generation began. For sysmon.
Atomic<int64_t> genSince;

}  // namespace

uint64_t traceLastGeneration() { return lastGen; }

const TraceHead& traceHead(uint64_t gen) { return heads[gen % 2]; }

bool traceAdvanceDue(int64_t now) {
  return mayTrace() && (now - genSince.load(relaxed) >= kPeriod ||  // hints
                        traceState.bytes.load(relaxed) >= kMostBytes);
}

void TraceHead::make(uint64_t gen, int64_t now) {
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
  std::memcpy(bytes + size, frequency, n);
  size += n;
}

void traceBeginGeneration(uint64_t gen) {
  if (gen != 0) {
    const int64_t now = nanotime();
    heads[gen % 2].make(gen, now);
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

}  // namespace gump::rt
