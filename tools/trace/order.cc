#include "tools/trace/order.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trace_tool {

// ---- The order --------------------------------------------------------------

absl::Status Order::Run(const Generation& generation,
                        absl::FunctionRef<void(const Event&)> use) {
  generation_ = &generation;
  if (first_ == 0) first_ = generation.number;
  threads_.clear();
  heap_.clear();
  error_.clear();
  threads_.reserve(generation.threads.size());
  for (const auto& [m, batches] : generation.threads) {
    threads_.push_back({m, &batches, 0, Cursor({}, 0), 0, {}});
    if (Read(&threads_.back())) {
      heap_.push_back(threads_.size() - 1);
    } else if (!error_.empty()) {
      return Broken(threads_.back());
    }
  }
  const auto later = [this](size_t a, size_t b) {
    return threads_[a].next.ns > threads_[b].next.ns;
  };
  std::make_heap(heap_.begin(), heap_.end(), later);
  const auto finish = [&](Event* e) {
    e->ns = last_ns_ = std::max(e->ns, last_ns_);
    use(*e);
  };

  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Thread* t = &threads_[heap_.back()];
    // Most often an M has the earliest event many times in a row.
    Step step = Step::kDone;
    bool more = true;
    const size_t rest = heap_.size() - 1;
    while (more && (rest == 0 || t->next.ns <= threads_[heap_[0]].next.ns)) {
      step = Try(t);
      if (step != Step::kDone) break;
      finish(&t->next);
      more = Read(t);
    }
    if (step == Step::kWait) {
      // An event of another M must come first. The earliest event that is
      // possible is most likely the right one.
      std::vector<size_t> others(heap_.begin(),
                                 heap_.begin() + static_cast<ptrdiff_t>(rest));
      std::sort(others.begin(), others.end(),
                [&](size_t a, size_t b) { return later(b, a); });
      const auto it = std::find_if(others.begin(), others.end(), [&](size_t i) {
        t = &threads_[i];
        step = Try(t);
        return step != Step::kWait;
      });
      if (it == others.end()) return Stuck();
      if (step == Step::kDone) {
        finish(&t->next);
        more = Read(t);
        if (!more) heap_.erase(std::find(heap_.begin(), heap_.end(), *it));
      }
      if (step == Step::kError || !error_.empty()) return Broken(*t);
      std::make_heap(heap_.begin(), heap_.end(), later);
      continue;
    }
    if (step == Step::kError || !error_.empty()) return Broken(*t);
    if (more) {
      std::push_heap(heap_.begin(), heap_.end(), later);
    } else {
      heap_.pop_back();
    }
  }
  return absl::OkStatus();
}

bool Order::Read(Thread* t) {
  while (t->in.done()) {
    if (t->batch == t->batches->size()) return false;
    const Batch& batch = (*t->batches)[t->batch++];
    t->in = Cursor(batch.data, batch.offset);
    t->ticks = batch.base;
  }
  return ReadEvent(t);
}

bool Order::ReadEvent(Thread* t) {
  Event& e = t->next;
  e.offset = t->in.offset();
  uint8_t type = 0;
  t->in.Byte(&type);
  e.type = static_cast<Ev>(type);
  const EventSpec& spec = SpecOf(type);
  if (!spec.timed || spec.since > generation_->version) {
    Fail(spec.name.empty() || spec.timed
             ? absl::StrCat("event ", int{type}, " does not exist in go 1.",
                            generation_->version)
             : "it may not stand between events");
    return false;
  }
  uint64_t delta;
  bool ok = t->in.Number(&delta);
  for (size_t i = 0; ok && i < spec.args; ++i) ok = t->in.Number(&e.args[i]);
  if (!ok) {
    Fail("it leaves its batch");
    return false;
  }
  t->ticks += delta;
  e.ns = generation_->Nanoseconds(t->ticks);
  for (size_t i = 0; i < spec.args; ++i) {
    const uint64_t id = e.args[i];
    const Arg kind = spec.kinds[i];
    if (kind == Arg::kNumber || id == 0) continue;
    const bool found = kind == Arg::kStack ? generation_->HasStack(id)
                                           : generation_->strings.contains(id);
    if (found) continue;
    Fail(absl::StrCat("it refers to ",
                      kind == Arg::kStack ? "stack " : "string ", id,
                      ", which this generation does not define"));
    return false;
  }
  return true;
}

Order::Step Order::Try(Thread* t) {
  Event& e = t->next;
  e.m = t->m;
  event_ = &e;
  if (t->m == kNoId) {  // not an M: it keeps no state
    MState none;
    e.p = e.g = kNoId;
    return Advance(&none);
  }
  // A copy, because an event may add an M, which moves the others.
  MState ms = ms_[t->m];
  e.p = ms.p;
  e.g = ms.g;
  const Step step = Advance(&ms);
  if (step == Step::kDone) ms_[t->m] = ms;
  return step;
}

Order::Step Order::Advance(MState* ms) {
  switch (event_->type) {
    case Ev::kProcStatus:
      return ProcStatusEvent(ms);
    case Ev::kProcStart:
      return ProcStart(ms);
    case Ev::kProcStop:
      return ProcStop(ms);
    case Ev::kProcSteal:
      return ProcSteal(ms);
    case Ev::kGoStatus:
    case Ev::kGoStatusStack:
      return GoStatusEvent(ms);
    case Ev::kGoCreate:
    case Ev::kGoCreateBlocked:
      return GoCreate(ms);
    case Ev::kGoCreateSyscall:
      return GoCreateSyscall(ms);
    case Ev::kGoDestroySyscall:
      return GoDestroySyscall(ms);
    case Ev::kGoStart:
      return GoStart(ms);
    case Ev::kGoDestroy:
    case Ev::kGoStop:
    case Ev::kGoBlock:
      return GoStopping(ms);
    case Ev::kGoUnblock:
      return GoUnblock();
    case Ev::kGoSwitch:
    case Ev::kGoSwitchDestroy:
      return GoSwitch(ms);
    case Ev::kGoSyscallBegin:
      return GoSyscallBegin(ms);
    case Ev::kGoSyscallEnd:
      return GoSyscallEnd(ms);
    case Ev::kGoSyscallEndBlocked:
      return GoSyscallEndBlocked(ms);
    case Ev::kStwBegin:
    case Ev::kStwEnd:
    case Ev::kGcSweepActive:
    case Ev::kGcSweepBegin:
    case Ev::kGcSweepEnd:
    case Ev::kGcMarkAssistActive:
    case Ev::kGcMarkAssistBegin:
    case Ev::kGcMarkAssistEnd:
      return RangeEvent(ms);
    case Ev::kGcActive:
    case Ev::kGcBegin:
    case Ev::kGcEnd:
      return Gc(ms);
    case Ev::kHeapAlloc:
    case Ev::kHeapGoal:
      return Needs(*ms, Must::kHave, Must::kMay) ? Step::kDone : Step::kError;
    case Ev::kProcsChange:
    case Ev::kGoLabel:
    case Ev::kUserLog:
      return Needs(*ms, Must::kHave, Must::kHave) ? Step::kDone : Step::kError;
    case Ev::kUserTaskBegin:
    case Ev::kUserTaskEnd:
    case Ev::kUserRegionBegin:
    case Ev::kUserRegionEnd:
      return TaskOrRegion(ms);
    default:
      return Fail("it may not stand between events");
  }
}

// ---- Messages ---------------------------------------------------------------

Order::Step Order::Fail(std::string what) {
  error_ = std::move(what);
  return Step::kError;
}

absl::Status Order::Broken(const Thread& t) const {
  absl::string_view name = NameOf(t.next.type);
  return absl::InvalidArgumentError(absl::StrCat(
      "generation ", generation_->number, ", M ",
      t.m == kNoId ? "none" : absl::StrCat(t.m), ", ",
      name.empty() ? "event" : name, " at byte ", t.next.offset, ": ", error_));
}

absl::Status Order::Stuck() {
  std::sort(heap_.begin(), heap_.end(), [this](size_t a, size_t b) {
    return threads_[a].next.ns < threads_[b].next.ns;
  });
  std::string all = absl::StrCat("generation ", generation_->number,
                                 ": no event is possible");
  constexpr size_t kMost = 8;
  for (size_t i = 0; i < heap_.size() && i < kMost; ++i) {
    const Thread& t = threads_[heap_[i]];
    absl::StrAppend(&all, "\n  M ", t.m == kNoId ? "none" : absl::StrCat(t.m),
                    ", ", NameOf(t.next.type), " at byte ", t.next.offset, ": ",
                    Explain(t));
  }
  if (heap_.size() > kMost) {
    absl::StrAppend(&all, "\n  and ", heap_.size() - kMost, " other Ms");
  }
  return absl::InvalidArgumentError(all);
}

std::string Order::Explain(const Thread& t) {
  const Event& e = t.next;
  const uint64_t id = e.args[0], seq = e.args[1];
  switch (e.type) {
    case Ev::kGoStart:
      return ExplainG(FindG(id), id, GoStatus::kRunnable, seq);
    case Ev::kGoUnblock:
    case Ev::kGoSwitch:
    case Ev::kGoSwitchDestroy:
      return ExplainG(FindG(id), id, GoStatus::kWaiting, seq);
    case Ev::kProcStart:
      if (const PState* p = FindP(id);
          e.p != kNoId && p != nullptr && p->status == ProcStatus::kIdle) {
        return absl::StrCat("its M still has P ", e.p);
      }
      return ExplainP(FindP(id), id, seq, "idle");
    case Ev::kProcSteal:
      return ExplainP(FindP(id), id, seq, "in a call");
    case Ev::kGoSyscallEndBlocked:
      return absl::StrCat("P ", e.p, " has not been taken from its M");
    default:
      return absl::StrCat("the number of the cycle is ", id, ", and ",
                          gc_seq_ + 1, " is next");
  }
}

std::string Order::ExplainG(const GState* g, uint64_t id, GoStatus want,
                            uint64_t seq) const {
  if (g == nullptr) return absl::StrCat("goroutine ", id, " has no status yet");
  if (g->generation != generation_->number) {
    return absl::StrCat("goroutine ", id, " has no status in this generation");
  }
  if (g->status != want) {
    return absl::StrCat("goroutine ", id, " is ", NameOf(g->status), ", not ",
                        NameOf(want));
  }
  return absl::StrCat("its sequence number is ", seq, ", and goroutine ", id,
                      " has had ", g->seq);
}

std::string Order::ExplainP(const PState* p, uint64_t id, uint64_t seq,
                            absl::string_view want) const {
  if (p == nullptr) return absl::StrCat("P ", id, " has no status yet");
  if (p->generation != generation_->number) {
    return absl::StrCat("P ", id, " has no status in this generation");
  }
  if (p->seq + 1 == seq) {
    return absl::StrCat("P ", id, " is ", NameOf(p->status), ", not ", want);
  }
  return absl::StrCat("its sequence number is ", seq, ", and P ", id,
                      " has had ", p->seq);
}

// ---- What events need -------------------------------------------------------

Order::GState* Order::FindG(uint64_t id) {
  const auto it = gs_.find(id);
  return it == gs_.end() ? nullptr : &it->second;
}

Order::PState* Order::FindP(uint64_t id) {
  const auto it = ps_.find(id);
  return it == ps_.end() ? nullptr : &it->second;
}

bool Order::Follows(const GState& g, uint64_t seq) const {
  return g.generation == generation_->number && g.seq + 1 == seq;
}

bool Order::Follows(const PState& p, uint64_t seq) const {
  return p.generation == generation_->number && p.seq + 1 == seq;
}

// Needs checks that the event is of an M, and that this M has or lacks a P and
// a goroutine.
bool Order::Needs(const MState& ms, Must p, Must g) {
  if (event_->m == kNoId) {
    Fail("only an M can do that");
  } else if (p == Must::kHave && ms.p == kNoId) {
    Fail("its M has no P");
  } else if (p == Must::kLack && ms.p != kNoId) {
    Fail(absl::StrCat("its M has P ", ms.p, " already"));
  } else if (g == Must::kHave && ms.g == kNoId) {
    Fail("its M runs no goroutine");
  } else if (g == Must::kLack && ms.g != kNoId) {
    Fail(absl::StrCat("its M runs goroutine ", ms.g, " already"));
  } else {
    return true;
  }
  return false;
}

// CurrentG returns the state of the goroutine of the M. If its status is not
// `want`, CurrentG sets error_ and returns nullptr.
Order::GState* Order::CurrentG(const MState& ms, GoStatus want) {
  GState* g = FindG(ms.g);
  if (g == nullptr) {
    Fail(absl::StrCat("goroutine ", ms.g, " does not exist"));
    return nullptr;
  }
  if (g->status != want) {
    Fail(absl::StrCat("goroutine ", ms.g, " is ", NameOf(g->status), ", not ",
                      NameOf(want)));
    return nullptr;
  }
  return g;
}

// Destroy forgets a goroutine, whose id may be used again.
void Order::Destroy(uint64_t id) {
  gs_.erase(id);
  g_ranges_.erase(id);
  regions_.erase(id);
}

// ---- Ps ---------------------------------------------------------------------

Order::Step Order::ProcStatusEvent(MState* ms) {
  const uint64_t id = event_->args[0], number = event_->args[1];
  if (number < 1 || number > 4) {
    return Fail(absl::StrCat("P ", id, " has the status ", number));
  }
  const ProcStatus status = static_cast<ProcStatus>(number);
  const auto [it, added] = ps_.try_emplace(id);
  PState& p = it->second;
  if (added) {
    p.status = status;
  } else if (status == ProcStatus::kSyscallAbandoned &&
             p.status == ProcStatus::kSyscall) {
    // The writer does not know the M any more, but the reader does. The P stays
    // with that M until it is stolen.
    const bool found = std::any_of(ms_.begin(), ms_.end(), [&](const auto& m) {
      return m.second.p == id;
    });
    if (!found) {
      return Fail(absl::StrCat("P ", id, " is abandoned, but no M had it"));
    }
  } else if (p.status != status) {
    return Fail(absl::StrCat("P ", id, " is ", NameOf(status), ", but was ",
                             NameOf(p.status)));
  }
  p.generation = generation_->number;
  p.seq = 0;
  if (status == ProcStatus::kRunning || status == ProcStatus::kSyscall) {
    ms->p = id;
  }
  return Step::kDone;
}

Order::Step Order::ProcStart(MState* ms) {
  const uint64_t id = event_->args[0], seq = event_->args[1];
  PState* p = FindP(id);
  // An M that has a P may be in a call from which the P will be taken.
  if (p == nullptr || p->status != ProcStatus::kIdle || !Follows(*p, seq) ||
      ms->p != kNoId) {
    return Step::kWait;
  }
  if (!Needs(*ms, Must::kLack, Must::kMay)) return Step::kError;
  p->status = ProcStatus::kRunning;
  p->seq = seq;
  ms->p = id;
  return Step::kDone;
}

Order::Step Order::ProcStop(MState* ms) {
  if (!Needs(*ms, Must::kHave, Must::kMay)) return Step::kError;
  PState* p = FindP(ms->p);
  if (p == nullptr || (p->status != ProcStatus::kRunning &&
                       p->status != ProcStatus::kSyscall)) {
    return Fail(absl::StrCat(
        "P ", ms->p, " is ",
        NameOf(p == nullptr ? ProcStatus::kNone : p->status), ", not running"));
  }
  p->status = ProcStatus::kIdle;
  ms->p = kNoId;
  return Step::kDone;
}

Order::Step Order::ProcSteal(MState* ms) {
  const uint64_t id = event_->args[0], seq = event_->args[1];
  const uint64_t victim = event_->args[2];
  PState* p = FindP(id);
  if (p == nullptr || !Follows(*p, seq) ||
      (p->status != ProcStatus::kSyscall &&
       p->status != ProcStatus::kSyscallAbandoned)) {
    return Step::kWait;
  }
  if (!Needs(*ms, Must::kMay, Must::kMay)) return Step::kError;
  const bool abandoned = p->status == ProcStatus::kSyscallAbandoned;
  p->status = ProcStatus::kIdle;
  p->seq = seq;
  if (abandoned) return Step::kDone;
  if (victim == event_->m) {
    if (ms->p != id) {
      return Fail(
          absl::StrCat("P ", id, " is stolen from its own M, which has ",
                       ms->p == kNoId ? "none" : absl::StrCat("P ", ms->p)));
    }
    ms->p = kNoId;
    return Step::kDone;
  }
  const auto it = ms_.find(victim);
  if (it == ms_.end()) {
    return Fail(absl::StrCat("P ", id, " is stolen from M ", victim,
                             ", which is not known"));
  }
  if (it->second.p != id) {
    return Fail(absl::StrCat(
        "P ", id, " is stolen from M ", victim, ", which has ",
        it->second.p == kNoId ? "none" : absl::StrCat("P ", it->second.p)));
  }
  // The victim waits at its GoSyscallEndBlocked for this.
  it->second.p = kNoId;
  return Step::kDone;
}

// ---- Goroutines -------------------------------------------------------------

Order::Step Order::GoStatusEvent(MState* ms) {
  const uint64_t id = event_->args[0], m = event_->args[1];
  const uint64_t number = event_->args[2];
  if (number < 1 || number > 4) {
    return Fail(absl::StrCat("goroutine ", id, " has the status ", number));
  }
  const GoStatus status = static_cast<GoStatus>(number);
  GState* g = FindG(id);
  if (g == nullptr && generation_->number != first_) {
    return Fail(absl::StrCat("goroutine ", id,
                             " has not been created, and this is not the first "
                             "generation"));
  }
  if (g == nullptr) g = &(gs_[id] = {status, 0, 0});
  if (g->status != status) {
    return Fail(absl::StrCat("goroutine ", id, " is ", NameOf(status),
                             ", but was ", NameOf(g->status)));
  }
  g->generation = generation_->number;
  g->seq = 0;
  if (status == GoStatus::kRunning) ms->g = id;
  if (status == GoStatus::kSyscall) return GoSyscallStatus(ms, id, m);
  return Step::kDone;
}

// A goroutine in a call is bound to an M. That may be another M than the
// event's: one that has been in the call for the whole generation and owns no
// P.
Order::Step Order::GoSyscallStatus(MState* ms, uint64_t id, uint64_t m) {
  if (m == kNoId) {
    return Fail(absl::StrCat("goroutine ", id, " is in a call without an M"));
  }
  if (m == event_->m) {
    if (generation_->number != first_ && ms->g != id) {
      return Fail(absl::StrCat("goroutine ", id, " is in a call, but M ", m,
                               ms->g == kNoId
                                   ? std::string(" had none")
                                   : absl::StrCat(" had goroutine ", ms->g)));
    }
    ms->g = id;
    return Step::kDone;
  }
  const auto [it, added] = ms_.try_emplace(m);
  if (added) it->second.g = id;
  if (it->second.g != id) {
    return Fail(absl::StrCat(
        "goroutine ", id, " is in a call, but M ", m,
        it->second.g == kNoId ? std::string(" had none")
                              : absl::StrCat(" had goroutine ", it->second.g)));
  }
  return Step::kDone;
}

Order::Step Order::GoCreate(MState* ms) {
  if (!Needs(*ms, Must::kHave, Must::kMay)) return Step::kError;
  const GState* maker = FindG(ms->g);
  if (maker != nullptr && maker->status != GoStatus::kRunning) {
    return Fail(absl::StrCat("goroutine ", ms->g, " is ", NameOf(maker->status),
                             ", not running"));
  }
  const GoStatus status =
      event_->type == Ev::kGoCreate ? GoStatus::kRunnable : GoStatus::kWaiting;
  const uint64_t id = event_->args[0];
  if (!gs_.try_emplace(id, GState{status, generation_->number, 0}).second) {
    return Fail(absl::StrCat("goroutine ", id, " exists already"));
  }
  return Step::kDone;
}

Order::Step Order::GoCreateSyscall(MState* ms) {
  if (!Needs(*ms, Must::kMay, Must::kLack)) return Step::kError;
  const uint64_t id = event_->args[0];
  const GState state{GoStatus::kSyscall, generation_->number, 0};
  if (!gs_.try_emplace(id, state).second) {
    return Fail(absl::StrCat("goroutine ", id, " exists already"));
  }
  ms->g = id;
  return Step::kDone;
}

Order::Step Order::GoDestroySyscall(MState* ms) {
  if (!Needs(*ms, Must::kMay, Must::kHave)) return Step::kError;
  if (CurrentG(*ms, GoStatus::kSyscall) == nullptr) return Step::kError;
  if (ms->p != kNoId) {
    // The M loses its P too. Its id may be that of another thread soon, so the
    // P belongs to no M until it is stolen.
    PState* p = FindP(ms->p);
    if (p == nullptr || p->status != ProcStatus::kSyscall) {
      return Fail(absl::StrCat("P ", ms->p, " is not in a call"));
    }
    p->status = ProcStatus::kSyscallAbandoned;
    ms->p = kNoId;
  }
  Destroy(ms->g);
  ms->g = kNoId;
  return Step::kDone;
}

Order::Step Order::GoStart(MState* ms) {
  const uint64_t id = event_->args[0], seq = event_->args[1];
  GState* g = FindG(id);
  if (g == nullptr || g->status != GoStatus::kRunnable || !Follows(*g, seq)) {
    return Step::kWait;
  }
  if (!Needs(*ms, Must::kHave, Must::kLack)) return Step::kError;
  g->status = GoStatus::kRunning;
  g->seq = seq;
  ms->g = id;
  return Step::kDone;
}

Order::Step Order::GoStopping(MState* ms) {
  if (!Needs(*ms, Must::kHave, Must::kHave)) return Step::kError;
  GState* g = CurrentG(*ms, GoStatus::kRunning);
  if (g == nullptr) return Step::kError;
  if (event_->type == Ev::kGoDestroy) {
    Destroy(ms->g);
  } else {
    g->status =
        event_->type == Ev::kGoStop ? GoStatus::kRunnable : GoStatus::kWaiting;
  }
  ms->g = kNoId;
  return Step::kDone;
}

Order::Step Order::GoUnblock() {
  const uint64_t id = event_->args[0], seq = event_->args[1];
  GState* g = FindG(id);
  if (g == nullptr || g->status != GoStatus::kWaiting || !Follows(*g, seq)) {
    return Step::kWait;
  }
  g->status = GoStatus::kRunnable;
  g->seq = seq;
  return Step::kDone;
}

// GoSwitch blocks the current goroutine, makes another one runnable and starts
// it, in one step.
Order::Step Order::GoSwitch(MState* ms) {
  if (!Needs(*ms, Must::kHave, Must::kHave)) return Step::kError;
  if (CurrentG(*ms, GoStatus::kRunning) == nullptr) return Step::kError;
  const uint64_t id = event_->args[0], seq = event_->args[1];
  GState* next = FindG(id);
  if (next == nullptr || next->status != GoStatus::kWaiting ||
      !Follows(*next, seq)) {
    return Step::kWait;
  }
  next->status = GoStatus::kRunning;
  next->seq = seq;
  if (event_->type == Ev::kGoSwitch) {
    FindG(ms->g)->status = GoStatus::kWaiting;
  } else {
    Destroy(ms->g);
  }
  ms->g = id;
  return Step::kDone;
}

Order::Step Order::GoSyscallBegin(MState* ms) {
  if (!Needs(*ms, Must::kHave, Must::kHave)) return Step::kError;
  GState* g = CurrentG(*ms, GoStatus::kRunning);
  if (g == nullptr) return Step::kError;
  const uint64_t seq = event_->args[0];
  PState* p = FindP(ms->p);
  // The sequence number of the P tells which call a ProcSteal ends. The P is
  // this M's, so no event of another M can come between.
  if (p == nullptr || !Follows(*p, seq)) {
    return Fail(ExplainP(p, ms->p, seq, "running"));
  }
  g->status = GoStatus::kSyscall;
  p->status = ProcStatus::kSyscall;
  p->seq = seq;
  return Step::kDone;
}

Order::Step Order::GoSyscallEnd(MState* ms) {
  if (!Needs(*ms, Must::kHave, Must::kHave)) return Step::kError;
  GState* g = CurrentG(*ms, GoStatus::kSyscall);
  if (g == nullptr) return Step::kError;
  PState* p = FindP(ms->p);
  if (p == nullptr || p->status != ProcStatus::kSyscall) {
    return Fail(absl::StrCat("P ", ms->p, " is not in a call"));
  }
  g->status = GoStatus::kRunning;
  p->status = ProcStatus::kRunning;
  return Step::kDone;
}

Order::Step Order::GoSyscallEndBlocked(MState* ms) {
  // The event says that the M loses its P during the call. A P that the M has
  // got since is not in a call.
  if (ms->p != kNoId) {
    const PState* p = FindP(ms->p);
    if (p != nullptr && p->status == ProcStatus::kSyscall) return Step::kWait;
  }
  if (!Needs(*ms, Must::kMay, Must::kHave)) return Step::kError;
  GState* g = CurrentG(*ms, GoStatus::kSyscall);
  if (g == nullptr) return Step::kError;
  g->status = GoStatus::kRunnable;
  ms->g = kNoId;
  return Step::kDone;
}

// ---- Ranges, cycles of the collector, tasks, regions ------------------------

Order::Step Order::RangeBegin(std::vector<Range>* ranges, uint64_t kind) {
  const Range range{event_->type, kind};
  if (std::find(ranges->begin(), ranges->end(), range) != ranges->end()) {
    return Fail("it has begun already");
  }
  ranges->push_back(range);
  return Step::kDone;
}

Order::Step Order::RangeEnd(std::vector<Range>* ranges, Ev begin) {
  const auto it =
      std::find_if(ranges->begin(), ranges->end(),
                   [&](const Range& r) { return r.begin == begin; });
  if (it == ranges->end()) {
    return Fail(absl::StrCat("no ", NameOf(begin), " precedes it"));
  }
  ranges->erase(it);
  return Step::kDone;
}

Order::Step Order::RangeActive(std::vector<Range>* ranges, Ev begin) {
  const Range range{begin, 0};
  const bool known =
      std::find(ranges->begin(), ranges->end(), range) != ranges->end();
  const bool first = generation_->number == first_;
  if (first && known) return Fail("it is known to be active already");
  if (!first && !known)
    return Fail(absl::StrCat("no ", NameOf(begin), " precedes it"));
  if (first) ranges->push_back(range);
  return Step::kDone;
}

Order::Step Order::RangeEvent(MState* ms) {
  const uint64_t id = event_->args[0];
  switch (event_->type) {
    case Ev::kGcSweepActive:
      if (FindP(id) == nullptr)
        return Fail(absl::StrCat("P ", id, " has no status yet"));
      return RangeActive(&p_ranges_[id], Ev::kGcSweepBegin);
    case Ev::kGcMarkAssistActive:
      if (FindG(id) == nullptr)
        return Fail(absl::StrCat("goroutine ", id, " has no status yet"));
      return RangeActive(&g_ranges_[id], Ev::kGcMarkAssistBegin);
    case Ev::kGcSweepBegin:
      if (!Needs(*ms, Must::kHave, Must::kMay)) return Step::kError;
      return RangeBegin(&p_ranges_[ms->p], 0);
    case Ev::kGcSweepEnd:
      if (!Needs(*ms, Must::kHave, Must::kMay)) return Step::kError;
      return RangeEnd(&p_ranges_[ms->p], Ev::kGcSweepBegin);
    default:
      break;
  }
  if (!Needs(*ms, Must::kHave, Must::kHave)) return Step::kError;
  std::vector<Range>* ranges = &g_ranges_[ms->g];
  switch (event_->type) {
    case Ev::kStwBegin:
      return RangeBegin(ranges, id);
    case Ev::kStwEnd:
      return RangeEnd(ranges, Ev::kStwBegin);
    case Ev::kGcMarkAssistBegin:
      return RangeBegin(ranges, 0);
    default:
      return RangeEnd(ranges, Ev::kGcMarkAssistBegin);
  }
}

// The begin and the end of a cycle may be events of different Ms, so both have
// a number. Any M may report an active cycle in the first generation.
Order::Step Order::Gc(MState* ms) {
  const uint64_t seq = event_->args[0];
  const Ev type = event_->type;
  const bool known = gc_ != GcState::kUnknown;
  const bool first = generation_->number == first_;
  if (type == Ev::kGcActive && first) {
    if (known) return Fail("it is not the first event of the collector");
  } else if (known || type != Ev::kGcBegin) {
    if (seq != gc_seq_ + 1) return Step::kWait;
    const GcState want = type == Ev::kGcBegin ? GcState::kOff : GcState::kOn;
    if (gc_ != want) {
      return Fail(type == Ev::kGcBegin ? "a cycle is active already"
                                       : "no cycle is active");
    }
    if (!Needs(*ms, Must::kHave, Must::kHave)) return Step::kError;
  }
  gc_seq_ = seq;
  gc_ = type == Ev::kGcEnd ? GcState::kOff : GcState::kOn;
  return Step::kDone;
}

Order::Step Order::TaskOrRegion(MState* ms) {
  if (!Needs(*ms, Must::kHave, Must::kHave)) return Step::kError;
  const uint64_t task = event_->args[0];
  if (event_->type == Ev::kUserTaskBegin) {
    if (tasks_.try_emplace(task, true).second) return Step::kDone;
    return Fail(absl::StrCat("task ", task, " has begun already"));
  }
  if (event_->type == Ev::kUserTaskEnd) {  // its begin may be before the trace
    tasks_.erase(task);
    return Step::kDone;
  }
  if (FindG(ms->g) == nullptr) {
    return Fail(absl::StrCat("goroutine ", ms->g, " does not exist"));
  }
  const Region region{task, *generation_->String(event_->args[1])};
  std::vector<Region>& open = regions_[ms->g];
  if (event_->type == Ev::kUserRegionBegin) {
    open.push_back(region);
    return Step::kDone;
  }
  if (open.empty()) return Step::kDone;  // it began before the trace
  if (open.back() != region) {
    return Fail(absl::StrCat("region \"", region.name, "\" of task ", task,
                             " ends inside of region \"", open.back().name,
                             "\" of task ", open.back().task));
  }
  open.pop_back();
  return Step::kDone;
}

}  // namespace trace_tool
