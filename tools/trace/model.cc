#include "tools/trace/model.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/trace/event_reader.h"

namespace trace_tool {

namespace {

class Builder {
 public:
  explicit Builder(Model* model) : model_(model) {
    model_->texts.emplace_back();
    text_ids_[""] = 0;
    model_->stacks.emplace_back();
    model_->whys.emplace_back();
    why_ids_[0] = 0;
  }

  void BeginGeneration(const Generation& g);
  void EndGeneration();
  void Use(const Event& e);
  void Finish();

 private:
  TextId Text(absl::string_view text);
  TextId TextOf(uint64_t id) { return Text(*generation_->String(id)); }
  StackId Stack(uint64_t id);
  WhyId WhyOf(uint64_t reason, uint64_t stack);
  uint32_t P(uint64_t id);
  Goroutine& G(uint32_t index) { return model_->gs[index]; }
  // The index of the goroutine with that id. Makes one if there is none.
  uint32_t Find(uint64_t id);
  void NameBy(uint32_t g, uint64_t stack);
  void Set(uint32_t g, GoStatus state, uint32_t detail, uint64_t ns);
  void SetP(uint64_t id, uint32_t g, bool in_call, uint64_t ns);
  void AddWake(const Event& e, uint32_t to);
  void Create(const Event& e);
  void Status(const Event& e);
  void End(uint64_t id, uint64_t ns);
  void Switch(const Event& e);
  void Annotate(const Event& e);
  void AddSamples(uint64_t until);
  void Sum(Goroutine* g, size_t index);

  Model* model_;
  const Generation* generation_ = nullptr;
  std::vector<CpuSample> samples_;  // of this generation
  size_t next_sample_ = 0;
  absl::flat_hash_map<std::string, TextId> text_ids_;
  // The ids of this generation.
  absl::flat_hash_map<uint64_t, StackId> stack_ids_;
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, WhyId> why_of_;
  // The ids of the model.
  absl::flat_hash_map<std::string, StackId> stack_texts_;
  absl::flat_hash_map<uint64_t, WhyId> why_ids_;
  absl::flat_hash_map<uint64_t, uint32_t> g_index_, p_index_;
  std::vector<bool> role_wanted_;  // by the index of a goroutine
  absl::flat_hash_map<uint64_t, size_t> open_tasks_, open_pauses_;
  absl::flat_hash_map<uint32_t, std::vector<size_t>> open_regions_;
  std::vector<uint64_t> latencies_;
  absl::flat_hash_map<TextId, std::vector<uint64_t>> waits_;
};

// ---- Tables -----------------------------------------------------------------

TextId Builder::Text(absl::string_view text) {
  const auto [it, added] = text_ids_.try_emplace(
      std::string(text), static_cast<TextId>(model_->texts.size()));
  if (added) model_->texts.emplace_back(text);
  return it->second;
}

StackId Builder::Stack(uint64_t id) {
  if (id == 0) return 0;
  const auto [it, added] = stack_ids_.try_emplace(id, 0);
  if (!added) return it->second;
  std::vector<ModelFrame> frames;
  std::string key;
  for (const Frame& f : generation_->stacks.at(id)) {
    frames.push_back({TextOf(f.function), TextOf(f.file), f.line});
    const ModelFrame& m = frames.back();
    absl::StrAppend(&key, m.function, ",", m.file, ",", m.line, ";");
  }
  const auto [known, is_new] = stack_texts_.try_emplace(
      std::move(key), static_cast<StackId>(model_->stacks.size()));
  if (is_new) model_->stacks.push_back(std::move(frames));
  it->second = known->second;
  return known->second;
}

WhyId Builder::WhyOf(uint64_t reason, uint64_t stack) {
  const auto [it, added] = why_of_.try_emplace({reason, stack}, 0);
  if (!added) return it->second;
  const Why why{TextOf(reason), Stack(stack)};
  const auto [known, is_new] =
      why_ids_.try_emplace(uint64_t{why.reason} << 32 | why.stack,
                           static_cast<WhyId>(model_->whys.size()));
  if (is_new) model_->whys.push_back(why);
  // The insertions above did not touch why_of_, so `it` is still valid.
  it->second = known->second;
  return known->second;
}

uint32_t Builder::P(uint64_t id) {
  const auto [it, added] =
      p_index_.try_emplace(id, static_cast<uint32_t>(model_->ps.size()));
  if (added) model_->ps.push_back({id, {}});
  return it->second;
}

uint32_t Builder::Find(uint64_t id) {
  const auto [it, added] =
      g_index_.try_emplace(id, static_cast<uint32_t>(model_->gs.size()));
  if (added) {
    model_->gs.emplace_back();
    model_->gs.back().id = id;
    role_wanted_.push_back(true);
  }
  return it->second;
}

bool OfTheLibrary(absl::string_view function) {
  return function.empty() || function == "?" || function == "gumpGostart" ||
         absl::StartsWith(function, "gump::") ||
         absl::StartsWith(function, "std::");
}

bool IsLambda(absl::string_view function) {
  return absl::StrContains(function, "{lambda");
}

// A goroutine that is older than the trace has no start function. Its outermost
// frame of the program stands for it.
void Builder::NameBy(uint32_t g, uint64_t stack) {
  if (stack == 0 || (G(g).name != 0 && !role_wanted_[g])) return;
  const std::vector<ModelFrame>& frames = model_->stacks[Stack(stack)];
  if (frames.empty()) return;
  TextId outermost = frames.back().function, role = 0;
  bool found = false;
  for (auto f = frames.rbegin(); f != frames.rend() && role == 0; ++f) {
    const std::string& function = model_->texts[f->function];
    if (OfTheLibrary(function)) continue;
    if (!found) outermost = f->function;
    found = true;
    if (!IsLambda(function)) role = f->function;
  }
  if (G(g).name == 0) G(g).name = outermost;
  if (!IsLambda(model_->texts[G(g).name])) {
    role_wanted_[g] = false;
  } else if (role != 0) {
    G(g).role = role;
    role_wanted_[g] = false;
  }
}

// ---- Changes ----------------------------------------------------------------

void Builder::Set(uint32_t g, GoStatus state, uint32_t detail, uint64_t ns) {
  std::vector<GChange>& changes = G(g).changes;
  changes.push_back({ns, state, detail});
  if (changes.size() >= 2) Sum(&G(g), changes.size() - 2);
}

// Sum adds the time in a state that has ended to the sums.
void Builder::Sum(Goroutine* g, size_t index) {
  const GChange& c = g->changes[index];
  const bool open = index + 1 == g->changes.size();
  const uint64_t end = open ? model_->end : g->changes[index + 1].ns;
  const uint64_t ns = end - c.ns;
  g->total[static_cast<size_t>(c.state)] += ns;
  const bool waiting = c.state == GoStatus::kWaiting;
  if (!waiting && c.state != GoStatus::kRunnable) return;
  if (!open) {
    if (waiting) {
      waits_[model_->whys[c.detail].reason].push_back(ns);
    } else if (g->changes[index + 1].state == GoStatus::kRunning) {
      latencies_.push_back(ns);
    }
  }
  if (ns <= g->longest) return;
  g->longest = ns;
  g->longest_at = c.ns;
  g->longest_why = c.detail;
  g->longest_waiting = waiting;
  g->longest_open = open;
}

void Builder::SetP(uint64_t id, uint32_t g, bool in_call, uint64_t ns) {
  if (id == kNoId) return;
  std::vector<PChange>& changes = model_->ps[P(id)].changes;
  if (!changes.empty() && changes.back().ns == ns) changes.pop_back();
  if (!changes.empty() && changes.back().g == g &&
      changes.back().in_call == in_call) {
    return;
  }
  changes.push_back({ns, g, in_call});
}

void Builder::AddWake(const Event& e, uint32_t to) {
  Wake wake;
  wake.ns = e.ns;
  wake.to = to;
  if (e.g != kNoId) {
    wake.from_g = Find(e.g) + 1;
  } else if (e.p != kNoId) {
    wake.from_p = P(e.p);
  }
  model_->wakes.push_back(wake);
}

void Builder::Create(const Event& e) {
  const uint32_t g = Find(e.args[0]);
  if (e.g != kNoId) G(g).maker = Find(e.g) + 1;
  if (e.type == Ev::kGoCreateSyscall) {
    Set(g, GoStatus::kSyscall, kNoP, e.ns);
    return;
  }
  NameBy(g, e.args[1]);
  if (e.type == Ev::kGoCreateBlocked) {
    Set(g, GoStatus::kWaiting, 0, e.ns);
    return;
  }
  Set(g, GoStatus::kRunnable, 0, e.ns);
  AddWake(e, g);
}

void Builder::Status(const Event& e) {
  const bool known = g_index_.contains(e.args[0]);
  const uint32_t g = Find(e.args[0]);
  const auto state = static_cast<GoStatus>(e.args[2]);
  if (e.type == Ev::kGoStatusStack) NameBy(g, e.args[3]);
  const bool on_p = state == GoStatus::kRunning ||
                    (state == GoStatus::kSyscall && e.args[1] == e.m);
  if (on_p) SetP(e.p, g + kPFirstG, state == GoStatus::kSyscall, e.ns);
  if (known) return;  // nothing but a new generation
  uint32_t detail = 0;
  if (state == GoStatus::kRunning || state == GoStatus::kSyscall) {
    detail = on_p && e.p != kNoId ? P(e.p) : kNoP;
  } else if (e.type == Ev::kGoStatusStack) {
    detail = WhyOf(0, e.args[3]);
  }
  Set(g, state, detail, e.ns);
}

void Builder::End(uint64_t id, uint64_t ns) {
  const uint32_t g = Find(id);
  Set(g, GoStatus::kNone, 0, ns);
  for (size_t open : open_regions_[g]) model_->regions[open].end = ns;
  open_regions_.erase(g);
  g_index_.erase(id);
}

void Builder::Switch(const Event& e) {
  const uint32_t next = Find(e.args[0]);
  AddWake(e, next);
  Set(next, GoStatus::kRunnable, 0, e.ns);
  if (e.type == Ev::kGoSwitch) {
    Set(Find(e.g), GoStatus::kWaiting, 0, e.ns);
  } else {
    End(e.g, e.ns);
  }
  Set(next, GoStatus::kRunning, P(e.p), e.ns);
  SetP(e.p, next + kPFirstG, false, e.ns);
}

// AddSamples adds the samples before `until`. Only its time gives a sample a
// place among the events. So a sample may come before the first event of its
// goroutine, and then it has no goroutine. The id may be in use again later.
void Builder::AddSamples(uint64_t until) {
  for (; next_sample_ < samples_.size(); ++next_sample_) {
    const CpuSample& s = samples_[next_sample_];
    if (s.ns >= until) break;
    const auto g = g_index_.find(s.g);
    model_->samples.push_back({std::max(s.ns, model_->begin),
                               g == g_index_.end() ? 0 : g->second + 1,
                               Stack(s.stack)});
  }
}

void Builder::Use(const Event& e) {
  if (model_->events++ == 0) model_->begin = e.ns;
  AddSamples(e.ns);
  model_->end = e.ns;
  switch (e.type) {
    case Ev::kProcStart:
      SetP(e.args[0], kPSearches, false, e.ns);
      break;
    case Ev::kProcStop:
      SetP(e.p, kPIdle, false, e.ns);
      break;
    case Ev::kProcSteal:
      SetP(e.args[0], kPIdle, false, e.ns);
      break;
    case Ev::kProcStatus: {
      const auto status = static_cast<ProcStatus>(e.args[1]);
      const uint32_t p = P(e.args[0]);
      if (!model_->ps[p].changes.empty()) break;
      SetP(e.args[0], status == ProcStatus::kIdle ? kPIdle : kPSearches,
           status == ProcStatus::kSyscall, e.ns);
      break;
    }
    case Ev::kGoStatus:
    case Ev::kGoStatusStack:
      Status(e);
      break;
    case Ev::kGoCreate:
    case Ev::kGoCreateBlocked:
    case Ev::kGoCreateSyscall:
      Create(e);
      break;
    case Ev::kGoStart: {
      const uint32_t g = Find(e.args[0]);
      Set(g, GoStatus::kRunning, P(e.p), e.ns);
      SetP(e.p, g + kPFirstG, false, e.ns);
      break;
    }
    case Ev::kGoStop:
    case Ev::kGoBlock: {
      const uint32_t g = Find(e.g);
      NameBy(g, e.args[1]);
      Set(g, e.type == Ev::kGoStop ? GoStatus::kRunnable : GoStatus::kWaiting,
          WhyOf(e.args[0], e.args[1]), e.ns);
      SetP(e.p, kPSearches, false, e.ns);
      break;
    }
    case Ev::kGoDestroy:
      End(e.g, e.ns);
      SetP(e.p, kPSearches, false, e.ns);
      break;
    case Ev::kGoDestroySyscall:
      End(e.g, e.ns);
      SetP(e.p, kPIdle, false, e.ns);
      break;
    case Ev::kGoUnblock: {
      const uint32_t g = Find(e.args[0]);
      if (e.g != kNoId) NameBy(Find(e.g), e.args[2]);
      Set(g, GoStatus::kRunnable, 0, e.ns);
      AddWake(e, g);
      break;
    }
    case Ev::kGoSwitch:
    case Ev::kGoSwitchDestroy:
      Switch(e);
      break;
    case Ev::kGoSyscallBegin: {
      const uint32_t g = Find(e.g);
      NameBy(g, e.args[1]);
      Set(g, GoStatus::kSyscall, P(e.p), e.ns);
      SetP(e.p, g + kPFirstG, true, e.ns);
      break;
    }
    case Ev::kGoSyscallEnd: {
      const uint32_t g = Find(e.g);
      Set(g, GoStatus::kRunning, P(e.p), e.ns);
      SetP(e.p, g + kPFirstG, false, e.ns);
      break;
    }
    case Ev::kGoSyscallEndBlocked:
      Set(Find(e.g), GoStatus::kRunnable, 0, e.ns);
      break;
    default:
      Annotate(e);
      break;
  }
}

// Annotate handles tasks, regions, logs and stops of the world.
void Builder::Annotate(const Event& e) {
  switch (e.type) {
    case Ev::kProcsChange:
      model_->procs = std::max(model_->procs, e.args[0]);
      break;
    case Ev::kStwBegin:
      open_pauses_[e.g] = model_->pauses.size();
      model_->pauses.push_back({e.ns, kNoId, TextOf(e.args[0])});
      break;
    case Ev::kStwEnd:
      if (const auto it = open_pauses_.find(e.g); it != open_pauses_.end()) {
        model_->pauses[it->second].end = e.ns;
        open_pauses_.erase(it);
      }
      break;
    case Ev::kUserTaskBegin:
      open_tasks_[e.args[0]] = model_->tasks.size();
      model_->tasks.push_back(
          {e.args[0], e.args[1], e.ns, kNoId, TextOf(e.args[2])});
      break;
    case Ev::kUserTaskEnd:
      if (const auto it = open_tasks_.find(e.args[0]);
          it != open_tasks_.end()) {
        model_->tasks[it->second].end = e.ns;
        open_tasks_.erase(it);
      }
      break;
    case Ev::kUserRegionBegin: {
      const uint32_t g = Find(e.g);
      open_regions_[g].push_back(model_->regions.size());
      model_->regions.push_back({g, e.ns, kNoId, TextOf(e.args[1])});
      break;
    }
    case Ev::kUserRegionEnd: {
      const uint32_t g = Find(e.g);
      std::vector<size_t>& open = open_regions_[g];
      if (open.empty()) {  // it began before the trace
        model_->regions.push_back({g, model_->begin, e.ns, TextOf(e.args[1])});
        break;
      }
      model_->regions[open.back()].end = e.ns;
      open.pop_back();
      break;
    }
    case Ev::kUserLog: {
      const std::string text =
          absl::StrCat(*generation_->String(e.args[1]), ": ",
                       *generation_->String(e.args[2]));
      model_->logs.push_back({e.ns, Find(e.g), Text(text)});
      break;
    }
    default:
      break;
  }
}

// ---- The whole --------------------------------------------------------------

void Builder::BeginGeneration(const Generation& g) {
  generation_ = &g;
  ++model_->generations;
  model_->batches += g.batches;
  stack_ids_.clear();
  why_of_.clear();
  samples_ = g.samples;
  next_sample_ = 0;
  std::stable_sort(
      samples_.begin(), samples_.end(),
      [](const CpuSample& a, const CpuSample& b) { return a.ns < b.ns; });
}

void Builder::EndGeneration() {
  AddSamples(kNoId);
  generation_ = nullptr;
}

void Builder::Finish() {
  Model& m = *model_;
  for (Goroutine& g : m.gs) {
    if (!g.changes.empty()) Sum(&g, g.changes.size() - 1);
  }
  const auto close = [&](auto* all) {
    for (auto& each : *all) each.end = std::min(each.end, m.end);
  };
  close(&m.pauses);
  close(&m.tasks);
  close(&m.regions);
  for (Sample& s : m.samples) s.ns = std::min(s.ns, m.end);
  std::stable_sort(
      m.samples.begin(), m.samples.end(),
      [](const Sample& a, const Sample& b) { return a.ns < b.ns; });
  m.latency = Distribution::Of(&latencies_);
  for (auto& [reason, waits] : waits_) {
    m.blocking.push_back({reason, Distribution::Of(&waits)});
  }
  std::sort(m.blocking.begin(), m.blocking.end(),
            [&](const Blocking& a, const Blocking& b) {
              if (a.waits.sum != b.waits.sum) return a.waits.sum > b.waits.sum;
              return m.texts[a.reason] < m.texts[b.reason];
            });
}

}  // namespace

Distribution Distribution::Of(std::vector<uint64_t>* values) {
  Distribution d;
  d.count = values->size();
  if (d.count == 0) return d;
  for (uint64_t value : *values) {
    d.sum += value;
    d.max = std::max(d.max, value);
    const auto bucket = static_cast<size_t>(std::bit_width(value));
    ++d.buckets[std::min(bucket, kBuckets - 1)];
  }
  const auto percentile = [&](uint64_t per_cent) {
    const auto nth = values->begin() +
                     static_cast<ptrdiff_t>((d.count - 1) * per_cent / 100);
    std::nth_element(values->begin(), nth, values->end());
    return *nth;
  };
  d.p50 = percentile(50);
  d.p90 = percentile(90);
  d.p99 = percentile(99);
  values->clear();
  return d;
}

absl::string_view Model::Where(StackId stack) const {
  const std::vector<ModelFrame>& frames = stacks[stack];
  for (const ModelFrame& f : frames) {
    if (!OfTheLibrary(texts[f.function])) return texts[f.function];
  }
  return frames.empty() ? absl::string_view() : texts[frames[0].function];
}

absl::StatusOr<Model> BuildModel(absl::string_view bytes) {
  absl::StatusOr<EventReader> reader = EventReader::Open(bytes);
  if (!reader.ok()) return reader.status();
  Model model;
  model.version = reader->version();
  Builder builder(&model);
  while (reader->Next()) {
    builder.BeginGeneration(reader->generation());
    if (reader->ForEachEvent([&](const Event& e) { builder.Use(e); })) {
      builder.EndGeneration();
    }
  }
  model.problem = std::string(reader->status().message());
  builder.Finish();
  return model;
}

}  // namespace trace_tool
