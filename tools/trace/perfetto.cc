#include "tools/trace/perfetto.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/trace/json.h"

namespace trace_tool {

namespace {

// The "processes" that group the tracks.
constexpr int kPs = 1, kGoroutines = 2, kProgram = 3;

class Writer {
 public:
  Writer(const Model& model, absl::FunctionRef<void(absl::string_view)> write)
      : model_(model), write_(write) {}

  void All();

 private:
  // Begin adds everything up to the arguments of an event.
  void Begin(char phase, int pid, uint64_t tid, absl::string_view name);
  void Time(absl::string_view key, uint64_t ns);
  void Field(absl::string_view key, absl::string_view text);
  void End();
  void Name(int pid, uint64_t tid, absl::string_view kind,
            absl::string_view name);
  void Order(int pid, uint64_t tid, size_t index);
  void Async(absl::string_view category, size_t id, uint64_t tid,
             absl::string_view name, uint64_t begin, uint64_t end);
  std::string NameOfG(size_t index) const;
  void Procs();
  void Goroutines();
  void Slice(const Goroutine& g, size_t tid, size_t index);
  void Stack(StackId id);
  void Wakes();
  void Annotations();
  void Samples();

  const Model& model_;
  absl::FunctionRef<void(absl::string_view)> write_;
  std::string out_;
  bool first_ = true;
};

void Writer::Begin(char phase, int pid, uint64_t tid, absl::string_view name) {
  absl::StrAppend(&out_, first_ ? "" : ",\n", "{\"ph\":\"",
                  absl::string_view(&phase, 1), "\",\"pid\":", pid,
                  ",\"tid\":", tid, ",\"name\":");
  first_ = false;
  AppendQuoted(name, &out_);
}

// A double of µs has enough digits for 104 days of nanoseconds.
void Writer::Time(absl::string_view key, uint64_t ns) {
  const auto digit = [](uint64_t n) { return static_cast<char>('0' + n % 10); };
  const char fraction[] = {digit(ns / 100), digit(ns / 10), digit(ns), 0};
  absl::StrAppend(&out_, ",\"", key, "\":", ns / 1000, ".", fraction);
}

void Writer::Field(absl::string_view key, absl::string_view text) {
  absl::StrAppend(&out_, ",\"", key, "\":");
  AppendQuoted(text, &out_);
}

void Writer::End() {
  out_.push_back('}');
  if (out_.size() < 1 << 16) return;
  write_(out_);
  out_.clear();
}

void Writer::Name(int pid, uint64_t tid, absl::string_view kind,
                  absl::string_view name) {
  Begin('M', pid, tid, kind);
  absl::StrAppend(&out_, ",\"args\":{\"name\":");
  AppendQuoted(name, &out_);
  out_.push_back('}');
  End();
}

void Writer::Order(int pid, uint64_t tid, size_t index) {
  Begin('M', pid, tid, "thread_sort_index");
  absl::StrAppend(&out_, ",\"args\":{\"sort_index\":", index, "}");
  End();
}

std::string Writer::NameOfG(size_t index) const {
  const Goroutine& g = model_.gs[index];
  return absl::StrCat("G", g.id, " ",
                      model_.texts[g.role != 0 ? g.role : g.name]);
}

void Writer::Procs() {
  std::vector<size_t> by_id(model_.ps.size());
  std::iota(by_id.begin(), by_id.end(), size_t{0});
  std::sort(by_id.begin(), by_id.end(), [&](size_t a, size_t b) {
    return model_.ps[a].id < model_.ps[b].id;
  });
  for (size_t index = 0; index < by_id.size(); ++index) {
    const Proc& p = model_.ps[by_id[index]];
    const size_t tid = by_id[index] + 1;
    Name(kPs, tid, "thread_name", absl::StrCat("P", p.id));
    Order(kPs, tid, index);
    for (size_t i = 0; i < p.changes.size(); ++i) {
      const PChange& c = p.changes[i];
      if (c.g < kPFirstG) continue;
      const uint64_t end =
          i + 1 < p.changes.size() ? p.changes[i + 1].ns : model_.end;
      Begin('X', kPs, tid, NameOfG(c.g - kPFirstG));
      Field("cat", c.in_call ? "call" : "running");
      Time("ts", c.ns - model_.begin);
      Time("dur", end - c.ns);
      End();
    }
  }
}

void Writer::Slice(const Goroutine& g, size_t tid, size_t index) {
  const GChange& c = g.changes[index];
  if (c.state == GoStatus::kNone) return;
  const uint64_t end =
      index + 1 < g.changes.size() ? g.changes[index + 1].ns : model_.end;
  const bool has_why =
      c.state == GoStatus::kWaiting || c.state == GoStatus::kRunnable;
  const Why& why = model_.whys[has_why ? c.detail : 0];
  const std::string& reason = model_.texts[why.reason];
  Begin('X', kGoroutines, tid,
        reason.empty() ? NameOf(c.state)
                       : absl::StrCat(NameOf(c.state), ": ", reason));
  Field("cat", NameOf(c.state));
  Time("ts", c.ns - model_.begin);
  Time("dur", end - c.ns);
  if (!has_why && c.detail != kNoP) {
    absl::StrAppend(&out_, ",\"args\":{\"p\":", model_.ps[c.detail].id, "}");
  } else {
    Stack(why.stack);
  }
  End();
}

// Stack adds a stack, if there is one, as the arguments of an event.
void Writer::Stack(StackId id) {
  if (id == 0) return;
  std::string stack;
  for (const ModelFrame& f : model_.stacks[id]) {
    absl::StrAppend(&stack, stack.empty() ? "" : "\n",
                    model_.texts[f.function]);
    if (f.file != 0) absl::StrAppend(&stack, " ", model_.texts[f.file]);
    if (f.line != 0) absl::StrAppend(&stack, ":", f.line);
  }
  absl::StrAppend(&out_, ",\"args\":{\"stack\":");
  AppendQuoted(stack, &out_);
  out_.push_back('}');
}

void Writer::Goroutines() {
  for (size_t index = 0; index < model_.gs.size(); ++index) {
    const Goroutine& g = model_.gs[index];
    Name(kGoroutines, index + 1, "thread_name", NameOfG(index));
    Order(kGoroutines, index + 1, index);
    for (size_t i = 0; i < g.changes.size(); ++i) Slice(g, index + 1, i);
  }
}

// A flow binds to the slices around its ends: the waker's and the one that
// begins when the goroutine becomes runnable.
void Writer::Wakes() {
  for (size_t i = 0; i < model_.wakes.size(); ++i) {
    const Wake& w = model_.wakes[i];
    if (w.from_g == 0) continue;
    for (const char phase : {'s', 'f'}) {
      Begin(phase, kGoroutines, phase == 's' ? w.from_g : w.to + 1, "wakes");
      absl::StrAppend(&out_, ",\"cat\":\"wake\",\"id\":", i);
      if (phase == 'f') Field("bp", "e");
      Time("ts", w.ns - model_.begin);
      End();
    }
  }
}

void Writer::Async(absl::string_view category, size_t id, uint64_t tid,
                   absl::string_view name, uint64_t begin, uint64_t end) {
  for (const char phase : {'b', 'e'}) {
    Begin(phase, tid == 0 ? kProgram : kGoroutines, tid, name);
    Field("cat", category);
    absl::StrAppend(&out_, ",\"id\":", id);
    Time("ts", (phase == 'b' ? begin : end) - model_.begin);
    End();
  }
}

void Writer::Annotations() {
  for (size_t i = 0; i < model_.regions.size(); ++i) {
    const Region& r = model_.regions[i];
    Async("region", i, r.g + 1, model_.texts[r.name], r.begin, r.end);
  }
  for (size_t i = 0; i < model_.tasks.size(); ++i) {
    const Task& t = model_.tasks[i];
    Async("task", i, 0, model_.texts[t.name], t.begin, t.end);
  }
  for (size_t i = 0; i < model_.pauses.size(); ++i) {
    const Pause& p = model_.pauses[i];
    Async("stop-the-world", i, 0, model_.texts[p.reason], p.begin, p.end);
  }
  for (const Log& log : model_.logs) {
    Begin('i', kGoroutines, log.g + 1, model_.texts[log.text]);
    Field("cat", "log");
    Field("s", "t");
    Time("ts", log.ns - model_.begin);
    End();
  }
}

void Writer::Samples() {
  for (const Sample& s : model_.samples) {
    if (s.g == 0) continue;
    const std::vector<ModelFrame>& frames = model_.stacks[s.stack];
    Begin('i', kGoroutines, s.g,
          frames.empty() ? "?" : model_.texts[frames[0].function]);
    Field("cat", "cpu sample");
    Field("s", "t");
    Time("ts", s.ns - model_.begin);
    Stack(s.stack);
    End();
  }
}

void Writer::All() {
  out_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  Name(kPs, 0, "process_name", "Ps");
  Name(kGoroutines, 0, "process_name", "Goroutines");
  Name(kProgram, 0, "process_name", "Program");
  Procs();
  Goroutines();
  Wakes();
  Annotations();
  Samples();
  out_ += "\n]}\n";
  write_(out_);
}

}  // namespace

void WritePerfetto(const Model& model,
                   absl::FunctionRef<void(absl::string_view)> write) {
  Writer(model, write).All();
}

}  // namespace trace_tool
