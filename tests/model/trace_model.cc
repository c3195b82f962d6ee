// The execution trace: the buffers that change hands, the change of the
// generation, and the marks and tables that all threads share
// (runtime/diag/trace_generation.cc, trace_event.cc, trace_buf.cc,
// tracemark.h). The Ms, Ps and goroutines are bare structs.
// trace_session_model.cc has the models of the whole scheduler.
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/diag/trace.h"
#include "runtime/diag/trace_buf.h"
#include "runtime/diag/trace_generation.h"
#include "runtime/diag/trace_state.h"
#include "runtime/diag/traceback.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/preempt.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"
#include "tests/model/model.h"

namespace gump::rt {
bool modelTraces = false;
}  // namespace gump::rt

namespace gump::model {
namespace {

using rt::TraceBuf;
using rt::TraceEv;

constexpr int kMs = 3;
constexpr int kPs = kMs + 1;
rt::M ms[kMs];
rt::G* gs[kMs];
rt::P ps[kPs];  // the last one is idle

// The last M ends the generation.
constexpr int kEnder = kMs - 1;
constexpr uint64_t kFirstGoid = 10;
constexpr int kGens = 3;  // 1 and 2 are used

// setUpTrace makes Ms with a goroutine and a P each, and begins generation 1.
void setUpTrace() {
  rt::modelTraces = true;
  for (int i = 0; i < kMs; i++) {
    gs[i] = rt::malg(nullptr);
    gs[i]->m = &ms[i];
    gs[i]->goid = kFirstGoid + static_cast<uint64_t>(i);
    gs[i]->atomicstatus.store(rt::kGrunning, rt::relaxed);
    ms[i].g0.m = &ms[i];
    ms[i].procid.store(i + 1, rt::relaxed);
    ms[i].curg.store(gs[i], rt::relaxed);
    ms[i].p = &ps[i];
    ms[i].alllink = i == 0 ? nullptr : &ms[i - 1];
    ps[i].m.store(&ms[i], rt::relaxed);
    ps[i].status.store(rt::kPrunning, rt::relaxed);
  }
  for (int i = 0; i < kPs; i++) {
    ps[i].id = i;
    rt::allp[i] = &ps[i];
  }
  rt::allm.store(&ms[kMs - 1], rt::relaxed);
  rt::traceHint.store(1, rt::relaxed);
  rt::traceBeginGeneration(1);
  nameWord(&rt::traceState.gen, "gen");
  nameWord(&rt::traceState.full[0], "full[0]");
  nameWord(&rt::traceState.full[1], "full[1]");
  nameWord(&ms[0].trace.writing, "M0.writing");
  nameWord(&ms[1].trace.writing, "M1.writing");
}

// A Reader decodes the events of one buffer.
class Reader {
 public:
  explicit Reader(const TraceBuf* b) : b_(b) {
    check(number() == 1, "not a batch");
    check(number() == b->gen, "a batch of another generation");
    check(number() == b->tid, "a batch of another thread");
    (void)number();  // the time
    at_ += 4;        // the length
  }
  bool more() const { return at_ < b_->pos; }
  uint64_t number() {
    uint64_t n = 0;
    for (int shift = 0;; shift += 7) {
      check(at_ < b_->pos, "an event is cut off");
      const uint8_t byte = b_->bytes[at_++];
      n |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return n;
    }
  }
  TraceEv type() {
    const auto t = static_cast<TraceEv>(number());
    (void)number();  // the time since the event before
    return t;
  }

 private:
  const TraceBuf* b_;
  uint32_t at_ = 0;
};

// ---- Scopes and buffers -----------------------------------------------------

constexpr uint64_t kPad = ~uint64_t{0};  // two such events fill a buffer

// How many events each writer has written to each generation, and how many were
// found there.
int wrote[kGens][kMs], found[kGens][kMs];
uint64_t nextSeq[kMs];
bool goesOn;

void writeEvent(rt::TraceScope* s, int i) {
  rt::TraceScope inner;  // as in functions that call each other
  check(inner.gen() == s->gen(), "an inner scope of another generation");
  check(s->gen() < kGens, "no such generation");
  const auto seq = static_cast<uint64_t>(wrote[1][i] + wrote[2][i]);
  inner.event(TraceEv::kUserLog, i, seq, kPad, kPad, kPad, kPad, kPad, kPad,
              kPad);
  wrote[s->gen()][i]++;
}

// A writer fills more than one buffer, so its second scope may hand one over.
void writer(int i) {
  rt::setg(gs[i]);
  for (int events : {1, 2}) {
    rt::TraceScope s;
    for (int k = 0; s.on() && k < events; k++) writeEvent(&s, i);
  }
}

// look checks that the buffers have each writer's next events, in order.
void look(uint64_t gen, TraceBuf* b) {
  while (b != nullptr) {
    check(b->gen == gen, "a buffer of another generation");
    Reader r(b);
    while (r.more()) {
      check(r.type() == TraceEv::kUserLog, "another event");
      const uint64_t i = r.number();
      check(i < kMs && b->tid == i + 1, "an event of another thread");
      check(r.number() == nextSeq[i]++, "an event is missing, or comes twice");
      for (int k = 0; k < 7; k++) check(r.number() == kPad, "another argument");
      found[gen][i]++;
    }
    rt::freeTraceBuf(std::exchange(b, b->next));
  }
}

// endGeneration ends generation 1. Then the trace goes on, or ends.
void endGeneration() {
  rt::setg(gs[kEnder]);
  goesOn = choose(2) == 0;
  rt::traceBeginGeneration(goesOn ? 2 : 0);
  rt::traceAwaitScopes();
  look(1, rt::traceTakeEvents(1, {}));
}

const Registered kScope({
    .name = "trace_scope",
    .about = "two threads write events, and a third ends the generation",
    .setup =
        [] {
          setUpTrace();
          thread("writer 0", [] { writer(0); });
          thread("writer 1", [] { writer(1); });
          thread("ender", endGeneration);
        },
    .finish =
        [] {
          rt::setg(gs[kEnder]);
          look(2, rt::traceTakeEvents(2, {}));
          rt::setg(nullptr);
          for (int gen = 1; gen < kGens; gen++) {
            for (int i = 0; i < kMs; i++) {
              check(wrote[gen][i] == found[gen][i], "an event is lost");
            }
          }
          for (int i = 0; goesOn && i < kEnder; i++) {
            check(nextSeq[i] == 3, "an event is not written");
          }
        },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

// ---- Marks ------------------------------------------------------------------

// A Tally is what a generation tells of one goroutine or one P.
struct Tally {
  int statuses = 0;
  int events = 0;  // others
  bool byEnder = false;
  uint32_t numbers = 0;  // a bit for each sequence number

  void number(uint64_t n) {
    check(n != 0 && n < 31 && (numbers >> n & 1) == 0,
          "a sequence number comes twice");
    numbers |= 1u << n;
    events++;
  }
  // ends checks the tally of a whole generation. known: there must be a status.
  void ends(bool known) const {
    check(statuses < 2, "a status is written twice");
    check(statuses == 1 || !known, "a status is missing");
    check(statuses == 1 || events == 0, "events without a status");
    check(!byEnder || events == 0, "a status that contradicts the events");
    check((numbers & (numbers + 2)) == 0, "a sequence number is missing");
  }
};

constexpr int kGoroutines = kMs + 2;
bool alive[kGoroutines];

// An Account checks the events of a generation as go tool trace does.
class Account {
 public:
  // read takes all buffers of the generation, and frees them.
  void read(TraceBuf* b) {
    while (b != nullptr) {
      readBuffer(b);
      rt::freeTraceBuf(std::exchange(b, b->next));
    }
    for (int i = 0; i < kGoroutines; i++) {
      gs_[i].ends(alive[i]);
      alive[i] = (alive[i] || born_[i]) && !dead_[i];
    }
    for (const Tally& p : ps_) p.ends(/*known=*/false);
  }

 private:
  static int goroutine(Reader* r) {
    const uint64_t i = r->number() - kFirstGoid;
    check(i < kGoroutines, "a goroutine that does not exist");
    return static_cast<int>(i);
  }
  static int proc(Reader* r) {
    const uint64_t i = r->number();
    check(i < kPs, "a P that does not exist");
    return static_cast<int>(i);
  }
  // goStatus reads a status in a batch of thread tid. *g is the goroutine that
  // this thread runs.
  void goStatus(Reader* r, uint64_t tid, int* g) {
    const int i = goroutine(r);
    const uint64_t on = r->number();
    const uint64_t status = r->number();
    gs_[i].statuses++;
    check(!born_[i], "a status after the birth");
    check(gs_[i].events == 0 || tid > kMs, "a status after an event");
    if (tid > kMs) gs_[i].byEnder = true;
    if (on == tid && status == static_cast<uint64_t>(rt::TraceGo::kRunning)) {
      *g = i;
    }
  }
  // procStatus reads the status of a P. *p is the P that the thread holds.
  void procStatus(Reader* r, int* p) {
    const int i = proc(r);
    ps_[i].statuses++;
    if (r->number() == static_cast<uint64_t>(rt::TraceProc::kRunning)) *p = i;
  }
  void readBuffer(const TraceBuf* b) {
    Reader r(b);
    int* g = b->tid <= kMs ? &running_[b->tid - 1] : nullptr;
    int* p = b->tid <= kMs ? &held_[b->tid - 1] : nullptr;
    while (r.more()) {
      const TraceEv type = r.type();
      check(b->tid <= kMs || type == TraceEv::kGoStatus, "an event of no M");
      switch (type) {
        case TraceEv::kGoStatus:
          goStatus(&r, b->tid, g);
          break;
        case TraceEv::kProcStatus:
          procStatus(&r, p);
          break;
        case TraceEv::kGoCreate:
          create(goroutine(&r));
          skip(&r, 2);
          break;
        case TraceEv::kGoUnblock:
          gs_[goroutine(&r)].number(r.number());
          skip(&r, 1);
          break;
        case TraceEv::kGoStart:
          *g = goroutine(&r);
          gs_[*g].number(r.number());
          break;
        case TraceEv::kGoDestroy:
          dead_[current(g)] = true;
          break;
        case TraceEv::kGoSyscallBegin:
          gs_[current(g)].events++;
          ps_[current(p)].number(r.number());
          skip(&r, 1);
          break;
        case TraceEv::kGoSyscallEndBlocked:
          break;
        case TraceEv::kProcSteal:
          ps_[proc(&r)].number(r.number());
          skip(&r, 1);
          break;
        case TraceEv::kProcStart:
          *p = proc(&r);
          ps_[*p].number(r.number());
          break;
        default:
          fail("another event");
      }
    }
  }
  void create(int i) {
    check(!alive[i] && !born_[i], "a goroutine is born twice");
    born_[i] = true;
    gs_[i].statuses++;  // a birth stands for a status
  }
  static int current(const int* i) {
    check(i != nullptr && *i >= 0, "an event of an unknown goroutine or P");
    return *i;
  }
  static void skip(Reader* r, int n) {
    while (n-- > 0) (void)r->number();
  }

  Tally gs_[kGoroutines], ps_[kPs];
  bool born_[kGoroutines] = {}, dead_[kGoroutines] = {};
  int running_[kMs] = {-1, -1, -1}, held_[kMs] = {-1, -1, -1};
};

void endMarks(uint64_t gen) {
  rt::setg(gs[kEnder]);
  const std::vector<rt::TraceUntraced> untraced = rt::traceCollect(gen);
  rt::traceBeginGeneration(gen + 1);
  rt::traceAwaitScopes();
  Account().read(rt::traceTakeEvents(gen, untraced));
}

void finishMarks() {
  endMarks(2);
  rt::setg(nullptr);
}

// The cell of a parked goroutine, and after that of another one.
rt::G* cell;
constexpr int kOld = kMs, kNew = kMs + 1;

void runCell() {
  rt::M* mp = &ms[0];
  rt::setg(&mp->g0);
  cell->m = mp;
  mp->curg.store(cell, rt::relaxed);
  rt::casgstatus(cell, rt::kGrunnable, rt::kGrunning);
}

// M 0 readies the goroutine, runs it until it ends, and starts another.
void owner() {
  rt::setg(gs[0]);
  rt::casgstatus(cell, rt::kGwaiting, rt::kGrunnable);
  runCell();
  rt::casgstatus(cell, rt::kGrunning, rt::kGdead);
  ms[0].curg.store(gs[0], rt::relaxed);
  cell->m = nullptr;
  cell->goid = kFirstGoid + kNew;
  rt::setg(gs[0]);
  rt::casgstatus(cell, rt::kGdead, rt::kGrunnable);
  runCell();
}

void setUpMarks() {
  setUpTrace();
  for (int i = 0; i < kMs; i++) alive[i] = true;
}

const Registered kMark({
    .name = "trace_mark",
    .about = "a goroutine is readied and ends, and its cell is used again, "
             "while the generation ends",
    .setup =
        [] {
          setUpMarks();
          cell = rt::malg(nullptr);
          cell->goid = kFirstGoid + kOld;
          cell->atomicstatus.store(rt::kGwaiting, rt::relaxed);
          alive[kOld] = true;
          thread("owner", owner);
          thread("ender", [] { endMarks(1); });
        },
    .finish =
        [] {
          finishMarks();
          check(!alive[kOld] && alive[kNew], "an event is missing");
        },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

// The goroutine of M 0 sleeps in an undeclared call, and enters the runtime.
// Its status may have been written before.
void victim() {
  rt::setg(gs[0]);
  if (choose(2) != 0) {
    rt::TraceScope s;
    s.goStatus(gs[0], rt::TraceGo::kRunning);
  }
  for (int i = 0; i < 2; i++) rt::releasem(rt::acquirem());
}

void asker() {
  rt::setg(gs[1]);
  rt::M* mp = rt::acquirem();
  if (rt::presumeBlocked(&ps[0], &ms[0], gs[0])) {
    rt::lock(&rt::sched.lock);
    rt::pidleput(&ps[0]);
    rt::unlock(&rt::sched.lock);
  }
  rt::releasem(mp);
}

const Registered kLoss({
    .name = "trace_loss",
    .about = "a goroutine loses its P in an undeclared call, and comes back, "
             "while the generation ends",
    .setup =
        [] {
          setUpMarks();
          rt::sched.nmextra = 8;
          rt::sched.mnext = kMs;
          rt::sched.lastpoll.store(1, rt::relaxed);
          rt::lock(&rt::sched.lock);
          rt::pidleput(&ps[kPs - 1]);
          rt::unlock(&rt::sched.lock);
          nameWord(&ms[0].presumed, "presumed");
          nameWord(&ms[0].locks, "m.locks");
          thread("victim", victim);
          thread("asker", asker);
          thread("ender", [] { endMarks(1); });
        },
    .finish = finishMarks,
    .quick = {1, 1, 1000},
    .full = {2, 1, 20000, 1},
});

// ---- Tables -----------------------------------------------------------------

rt::TraceTable table;

// Two sequences fill a chunk of the arena.
constexpr int kSequences = 3;
struct Sequence {
  uint64_t words[26];
};
uint64_t ids[kMs][kSequences];

void put(int i, int which) {
  Sequence s;
  for (uint64_t& w : s.words) w = static_cast<uint64_t>(which);
  ids[i][which] = table.put(&s, sizeof(s))->id;
  check(ids[i][which] != 0, "no id");
}

const Registered kTable({
    .name = "trace_table",
    .about = "two threads put equal and other sequences into a table",
    .setup =
        [] {
          nameWord(&table, "head");
          thread("a", [] {
            put(0, 0);
            put(0, 1);
          });
          thread("b", [] {
            put(1, 0);
            put(1, 2);
            put(1, 1);
          });
        },
    .finish =
        [] {
          int nodes[kSequences] = {};
          table.forEach([&](const rt::TraceNode& n) {
            check(n.size == sizeof(Sequence), "the size is wrong");
            const auto* s = static_cast<const Sequence*>(n.bytes());
            const uint64_t which = s->words[0];
            check(which < kSequences, "the bytes are wrong");
            for (uint64_t w : s->words) check(w == which, "bytes of two nodes");
            nodes[which]++;
            for (const auto& of : ids) {
              check(of[which] == 0 || of[which] == n.id,
                    "a thread has got another id");
            }
            check(n.id <= table.count(), "the id is not counted");
          });
          for (int n : nodes) check(n == 1, "not one node for a sequence");
          for (int a = 0; a < kSequences; a++) {
            for (int b = 0; b < a; b++) {
              check(ids[1][a] != ids[1][b], "two sequences have one id");
            }
          }
        },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

// ---- The list of full buffers, and the free ones ----------------------------

rt::TraceBufs list;
constexpr int kPushes = 2;  // of each thread
int pushed[kMs], taken[kMs];
TraceBuf* spare[2];

// A thread fills a buffer, which no other thread may have, and pushes it.
void pusher(int i) {
  for (int k = 0; k < kPushes; k++) {
    TraceBuf* b = rt::newTraceBuf();
    b->tid = static_cast<uint64_t>(i);
    b->pos = static_cast<uint32_t>(pushed[i]++);
    list.push(b);
  }
}

void take() {
  for (TraceBuf* b = list.takeAll(); b != nullptr;) {
    check(b->pos == static_cast<uint32_t>(taken[b->tid]++),
          "a buffer is missing, or comes twice");
    rt::freeTraceBuf(std::exchange(b, b->next));
  }
}

const Registered kBufs({
    .name = "trace_bufs",
    .about = "two threads push full buffers, and a third takes and frees them",
    .setup =
        [] {
          for (TraceBuf*& b : spare) b = rt::newTraceBuf();
          for (TraceBuf* b : spare) rt::freeTraceBuf(b);
          thread("push 0", [] { pusher(0); });
          thread("push 1", [] { pusher(1); });
          thread("take", [] {
            take();
            take();
          });
        },
    .finish =
        [] {
          take();
          for (int i = 0; i < kEnder; i++) {
            check(pushed[i] == kPushes && taken[i] == kPushes,
                  "a buffer is lost");
          }
        },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

}  // namespace
}  // namespace gump::model
