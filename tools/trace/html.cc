#include "tools/trace/html.h"

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

// The goroutines that the table of waits may show.
constexpr size_t kMostRows = 500;

// Base64 turns bytes into text, three at a time.
class Base64 {
 public:
  explicit Base64(absl::FunctionRef<void(absl::string_view)> write)
      : write_(write) {}

  void Byte(uint8_t byte) {
    bits_ = bits_ << 8 | byte;
    if (++count_ < 3) return;
    for (int shift = 18; shift >= 0; shift -= 6) Digit(bits_ >> shift);
    bits_ = count_ = 0;
    if (size_ + 4 > sizeof text_) Flush();
  }
  void Number(uint64_t number) {
    while (number >= 0x80) {
      Byte(static_cast<uint8_t>(number | 0x80));
      number >>= 7;
    }
    Byte(static_cast<uint8_t>(number));
  }
  void Finish() {
    // The reader knows how many numbers there are, so it ignores zeros.
    while (count_ != 0) Byte(0);
    Flush();
  }

 private:
  void Digit(uint32_t six) {
    constexpr char kDigits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    text_[size_++] = kDigits[six & 63];
  }
  void Flush() {
    write_({text_, size_});
    size_ = 0;
  }

  absl::FunctionRef<void(absl::string_view)> write_;
  uint32_t bits_ = 0;
  uint32_t count_ = 0;
  size_t size_ = 0;
  char text_[1 << 16];
};

// ---- Data: numbers of seven bits a byte, in the order that page/data.js reads

// A change of a goroutine: the time since the one before, and then the detail
// and the state in one number.
void WriteChanges(const Model& model, const Goroutine& g, Base64* out) {
  uint64_t last = model.begin;
  out->Number(g.changes.size());
  for (const GChange& c : g.changes) {
    const bool on_p =
        c.state == GoStatus::kRunning || c.state == GoStatus::kSyscall;
    const uint64_t detail = !on_p              ? c.detail
                            : c.detail == kNoP ? 0
                                               : uint64_t{c.detail} + 1;
    out->Number(c.ns - last);
    out->Number(detail << 3 | static_cast<uint64_t>(c.state));
    last = c.ns;
  }
}

void WriteChanges(const Model& model, const Proc& p, Base64* out) {
  uint64_t last = model.begin;
  out->Number(p.changes.size());
  for (const PChange& c : p.changes) {
    out->Number(c.ns - last);
    out->Number(uint64_t{c.g} << 1 | (c.in_call ? 1 : 0));
    last = c.ns;
  }
}

void WriteWakes(const Model& model, Base64* out) {
  uint64_t last = model.begin;
  for (const Wake& w : model.wakes) {
    out->Number(w.ns - last);
    // 0, or an odd number for a goroutine, or an even one for a P.
    out->Number(w.from_g != 0      ? uint64_t{w.from_g} << 1 | 1
                : w.from_p != kNoP ? (uint64_t{w.from_p} + 1) << 1
                                   : 0);
    out->Number(w.to);
    last = w.ns;
  }
}

void WriteData(const Model& model, Base64* out) {
  for (const Proc& p : model.ps) WriteChanges(model, p, out);
  for (const Goroutine& g : model.gs) {
    out->Number(g.id);
    out->Number(g.name);
    out->Number(g.role);
    out->Number(g.maker);
    WriteChanges(model, g, out);
  }
  WriteWakes(model, out);
  for (const Region& r : model.regions) {
    out->Number(r.g);
    out->Number(r.begin - model.begin);
    out->Number(r.end - r.begin);
    out->Number(r.name);
  }
  for (const Log& log : model.logs) {
    out->Number(log.ns - model.begin);
    out->Number(log.g);
    out->Number(log.text);
  }
  uint64_t last = model.begin;
  for (const Sample& s : model.samples) {
    out->Number(s.ns - last);
    out->Number(s.g);
    out->Number(s.stack);
    last = s.ns;
  }
  out->Finish();
}

// ---- Data in JSON -----------------------------------------------------------

class Meta {
 public:
  explicit Meta(const Model& model) : model_(model) {}
  std::string All(absl::string_view title);

 private:
  template <class List, class F>
  void Array(absl::string_view key, const List& list, F each) {
    absl::StrAppend(&out_, ",\n\"", key, "\":[");
    bool first = true;
    for (const auto& item : list) {
      if (!first) out_.push_back(',');
      first = false;
      each(item);
    }
    out_.push_back(']');
  }
  void Add(const Distribution& d);
  std::vector<uint32_t> Rows() const;

  const Model& model_;
  std::string out_;
};

void Meta::Add(const Distribution& d) {
  absl::StrAppend(&out_, "{\"count\":", d.count, ",\"sum\":", d.sum,
                  ",\"p50\":", d.p50, ",\"p90\":", d.p90, ",\"p99\":", d.p99,
                  ",\"max\":", d.max, ",\"buckets\":[");
  size_t used = Distribution::kBuckets;
  while (used > 0 && d.buckets[used - 1] == 0) --used;
  for (size_t i = 0; i < used; ++i) {
    absl::StrAppend(&out_, i == 0 ? "" : ",", d.buckets[i]);
  }
  absl::StrAppend(&out_, "]}");
}

// Rows returns the goroutines with the longest single waits and those with the
// largest sums.
std::vector<uint32_t> Meta::Rows() const {
  const auto by = [&](auto key) {
    std::vector<uint32_t> all(model_.gs.size());
    std::iota(all.begin(), all.end(), 0u);
    const size_t most = std::min(all.size(), kMostRows / 2);
    std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(most),
                      all.end(), [&](uint32_t a, uint32_t b) {
                        return key(model_.gs[a]) > key(model_.gs[b]);
                      });
    all.resize(most);
    return all;
  };
  std::vector<uint32_t> rows = by([](const Goroutine& g) { return g.longest; });
  const std::vector<uint32_t> sums = by([](const Goroutine& g) {
    return g.total[static_cast<size_t>(GoStatus::kWaiting)] +
           g.total[static_cast<size_t>(GoStatus::kRunnable)];
  });
  rows.insert(rows.end(), sums.begin(), sums.end());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::string Meta::All(absl::string_view title) {
  size_t changes = 0;
  for (const Goroutine& g : model_.gs) changes += g.changes.size();
  for (const Proc& p : model_.ps) changes += p.changes.size();
  out_ = "{\"title\":";
  AppendQuoted(title, &out_);
  out_ += ",\"problem\":";
  AppendQuoted(model_.problem, &out_);
  absl::StrAppend(
      &out_, ",\"version\":", model_.version, ",\"procs\":", model_.procs,
      ",\"generations\":", model_.generations, ",\"events\":", model_.events,
      ",\"duration\":", model_.end - model_.begin, ",\"gs\":", model_.gs.size(),
      ",\"changes\":", changes, ",\"wakes\":", model_.wakes.size(),
      ",\"regions\":", model_.regions.size(), ",\"logs\":", model_.logs.size(),
      ",\"samples\":", model_.samples.size());
  Array("ps", model_.ps, [&](const Proc& p) { absl::StrAppend(&out_, p.id); });
  Array("texts", model_.texts,
        [&](const std::string& text) { AppendQuoted(text, &out_); });
  Array("stacks", model_.stacks, [&](const std::vector<ModelFrame>& stack) {
    out_.push_back('[');
    for (size_t i = 0; i < stack.size(); ++i) {
      absl::StrAppend(&out_, i == 0 ? "" : ",", stack[i].function, ",",
                      stack[i].file, ",", stack[i].line);
    }
    out_.push_back(']');
  });
  Array("whys", model_.whys, [&](const Why& why) {
    absl::StrAppend(&out_, "[", why.reason, ",", why.stack, ",");
    AppendQuoted(model_.Where(why.stack), &out_);
    out_.push_back(']');
  });
  Array("pauses", model_.pauses, [&](const Pause& p) {
    absl::StrAppend(&out_, "[", p.begin - model_.begin, ",", p.end - p.begin,
                    ",", p.reason, "]");
  });
  Array("tasks", model_.tasks, [&](const Task& t) {
    absl::StrAppend(&out_, "[", t.begin - model_.begin, ",", t.end - t.begin,
                    ",", t.name, "]");
  });
  out_ += ",\n\"latency\":";
  Add(model_.latency);
  Array("blocking", model_.blocking, [&](const Blocking& b) {
    absl::StrAppend(&out_, "{\"reason\":", b.reason, ",\"waits\":");
    Add(b.waits);
    out_.push_back('}');
  });
  Array("rows", Rows(), [&](uint32_t index) {
    const Goroutine& g = model_.gs[index];
    absl::StrAppend(
        &out_, "\n[", index, ",", g.longest, ",",
        g.longest_at < model_.begin ? 0 : g.longest_at - model_.begin, ",",
        g.longest_waiting ? 1 : 0, ",", g.longest_why, ",",
        g.longest_open ? 1 : 0);
    for (GoStatus s : {GoStatus::kWaiting, GoStatus::kRunnable,
                       GoStatus::kRunning, GoStatus::kSyscall}) {
      absl::StrAppend(&out_, ",", g.total[static_cast<size_t>(s)]);
    }
    out_.push_back(']');
  });
  out_ += "}";
  return out_;
}

std::string Escaped(absl::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

void WriteHtml(const Model& model, absl::string_view title,
               absl::FunctionRef<void(absl::string_view)> write) {
  write(kPageHead);
  write(absl::StrCat("<title>", Escaped(title), " - trace</title>\n"));
  write(kPageBody);
  write("<script type=\"application/json\" id=\"meta\">\n");
  write(Meta(model).All(title));
  write("\n</script>\n<script type=\"text/plain\" id=\"data\">");
  Base64 data(write);
  WriteData(model, &data);
  write("</script>\n<script>\n");
  write(kPageScript);
  write("</script>\n</body>\n</html>\n");
}

}  // namespace trace_tool
