#include "api/debug/goroutines.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "api/cat.h"
#include "api/debug/json.h"
#include "api/pprof/proto.h"
#include "gump/debug.h"
#include "gump/internal/linkname_debug.h"
#include "gump/pprof.h"

namespace gump::internal {

namespace {

// Goroutine is a copy of a GoroutineInfo.
struct Goroutine {
  explicit Goroutine(const rt::GoroutineInfo& info)
      : id(info.id),
        parent(info.parent),
        state(info.state),
        reason(info.reason),
        wait_ns(info.wait_ns),
        name(info.name),
        group(info.group),
        pcs(info.pcs, info.pcs + info.n),
        before_lost(info.before_lost),
        lost(info.lost),
        creator(info.creator) {
    rt::retainLabels(info.labels);
    labels = LabelsAccess::Adopt(info.labels);
    if (info.in_scope) {
      scope = *info.scope != '\0' ? info.scope
                                  : Cat("of goroutine ", info.scope_owner);
    }
  }

  std::string_view Status() const { return reason.empty() ? state : reason; }

  uint64_t id;
  uint64_t parent;
  std::string_view state;  // these two are constants
  std::string_view reason;
  int64_t wait_ns;
  std::string name;
  pprof::Labels labels;
  std::string group;
  std::string scope;
  std::vector<uintptr_t> pcs;
  size_t before_lost;
  uint64_t lost;
  uintptr_t creator;
};

// Collected holds the goroutines that a query selects.
class Collected {
 public:
  explicit Collected(const GoroutineQuery& query) : query_(query) {
    const uint64_t elided = rt::visitGoroutineInfos(Visit, this);
    if (elided != 0 || out_of_memory_) throw std::bad_alloc();
    std::sort(
        found_.begin(), found_.end(),
        [](const Goroutine& a, const Goroutine& b) { return a.id < b.id; });
  }

  const std::vector<Goroutine>& found() const { return found_; }
  const std::string& group() const { return query_.group; }
  size_t total() const { return total_; }

  static bool IsGrouping(std::string_view group) {
    return group == "state" || group == "where" || group == "maker";
  }

 private:
  static void Visit(void* arg, const rt::GoroutineInfo& info) noexcept {
    auto* all = static_cast<Collected*>(arg);
    try {
      all->Add(info);
    } catch (...) {  // a program's operator new may throw anything
      all->out_of_memory_ = true;
    }
  }

  void Add(const rt::GoroutineInfo& info) {
    total_++;
    const std::string_view state = query_.state;
    const std::string_view group = query_.group;
    if (!state.empty() && state != info.state && state != info.reason) return;
    if (!group.empty() && !IsGrouping(group) &&
        (!info.in_group || group != info.group)) {
      return;
    }
    found_.emplace_back(info);
  }

  const GoroutineQuery query_;
  std::vector<Goroutine> found_;
  size_t total_ = 0;
  bool out_of_memory_ = false;
};

// Functions finds the texts of addresses, each once.
class Functions {
 public:
  struct Text {
    std::string name;
    std::string location;
    bool hidden;  // it belongs to the runtime
  };

  const Text& Of(uintptr_t pc) {
    const auto [at, is_new] = known_.try_emplace(pc);
    if (is_new) {
      Text text{.name = FunctionName(pc), .location = {}, .hidden = false};
      char location[512];
      text.location.assign(location,
                           rt::locationText(pc, location, sizeof(location)));
      text.hidden = rt::hidesFromUsers(text.name.c_str());
      at->second = std::move(text);
    }
    return at->second;
  }

 private:
  std::map<uintptr_t, Text> known_;  // texts do not move
};

// ForEachFrame calls frame(text) for each frame that is not the runtime's, and
// elided(n) where n frames are missing.
template <class Frame, class Elided>
void ForEachFrame(const Goroutine& g, Functions* functions, Frame frame,
                  Elided elided) {
  for (size_t i = 0; i < g.pcs.size(); i++) {
    if (g.lost != 0 && i == g.before_lost) elided(g.lost);
    const Functions::Text& text = functions->Of(g.pcs[i]);
    if (!text.hidden) frame(text);
  }
}

// ---- JSON

void AppendLabels(std::string* out, const pprof::Labels& labels) {
  size_t n;
  const rt::Label* all = rt::labelsIn(LabelsAccess::set(labels), &n);
  if (n == 0) {
    *out += "null";
    return;
  }
  for (size_t i = 0; i < n; i++) {
    *out += i == 0 ? '{' : ',';
    AppendJsonString(out, {all[i].key, all[i].key_size});
    *out += ':';
    AppendJsonString(out, {all[i].value, all[i].value_size});
  }
  *out += '}';
}

void AppendFrames(std::string* out, const Goroutine& g, Functions* functions) {
  *out += '[';
  const char* comma = "";
  ForEachFrame(
      g, functions,
      [&](const Functions::Text& text) {
        *out += std::exchange(comma, ",");
        AppendJsonString(out, Cat(text.name, " ", text.location));
      },
      [&](uint64_t n) {
        Append(out, std::exchange(comma, ","), "\"...", n,
               " frames elided...\"");
      });
  *out += ']';
}

void AppendGoroutine(std::string* out, const Goroutine& g,
                     Functions* functions) {
  Append(out, "{\"id\":", g.id, ",\"state\":");
  AppendJsonString(out, g.state);
  *out += ",\"reason\":";
  AppendJsonString(out, g.reason);
  *out += ",\"wait_ms\":";
  if (g.wait_ns < 0) {
    *out += "null";
  } else {
    Append(out, g.wait_ns / 1'000'000);
  }
  *out += ",\"name\":";
  AppendJsonString(out, g.name);
  *out += ",\"labels\":";
  AppendLabels(out, g.labels);
  *out += ",\"group\":";
  AppendJsonString(out, g.group);
  *out += ",\"scope\":";
  AppendJsonString(out, g.scope);
  Append(out, ",\"parent\":", g.parent, ",\"frames\":");
  AppendFrames(out, g, functions);
  *out += '}';
}

// ---- Text

std::string Line(const Functions::Text& text) {
  return Cat("#\t", text.name, "\t", text.location, "\n");
}

std::string StackText(const Goroutine& g, Functions* functions) {
  std::string out;
  ForEachFrame(
      g, functions, [&](const Functions::Text& text) { out += Line(text); },
      [&](uint64_t n) { Append(&out, "#\t...", n, " frames elided...\n"); });
  if (g.creator != 0) {
    const Functions::Text& text = functions->Of(g.creator);
    Append(&out, "#\tcreated by ", text.name, "\t", text.location, "\n");
  }
  return out;
}

// Where is the innermost function of g that is not the runtime's.
std::string Where(const Goroutine& g, Functions* functions) {
  for (const uintptr_t pc : g.pcs) {
    const Functions::Text& text = functions->Of(pc);
    if (!text.hidden) return text.name;
  }
  return "stack unavailable";
}

std::string Maker(const Goroutine& g, Functions* functions) {
  if (g.creator == 0) return "no maker";
  return Cat("created by ", functions->Of(g.creator).name);
}

// Key is what goroutines of one entry have in common, as the entry shows it.
std::string Key(const Goroutine& g, std::string_view group,
                Functions* functions) {
  if (group == "state") return Cat("[", g.Status(), "]");
  if (group == "where") return Where(g, functions);
  if (group == "maker") return Maker(g, functions);
  return Cat("[", g.Status(), "]");
}

// Entry is a set of goroutines that a text shows together.
struct Entry {
  std::string key;
  std::string stack;
  std::vector<const Goroutine*> of;
};

std::vector<Entry> Entries(const std::vector<Goroutine>& found,
                           std::string_view group) {
  const bool counts = Collected::IsGrouping(group);
  Functions functions;
  absl::flat_hash_map<std::string, size_t> index;
  std::vector<Entry> entries;
  for (const Goroutine& g : found) {
    std::string key = Key(g, group, &functions);
    std::string stack = counts ? "" : StackText(g, &functions);
    const auto [at, is_new] =
        index.try_emplace(Cat(key, "\n", stack), entries.size());
    if (is_new) entries.push_back({std::move(key), std::move(stack), {}});
    entries[at->second].of.push_back(&g);
  }
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const Entry& a, const Entry& b) { return a.of.size() > b.of.size(); });
  return entries;
}

void AppendEntry(std::string* out, const Entry& e) {
  constexpr size_t kMostIds = 20;
  const size_t n = e.of.size();
  int64_t oldest = -1;
  for (const Goroutine* g : e.of) oldest = std::max(oldest, g->wait_ns);
  Append(out, "\n", n, n == 1 ? " goroutine " : " goroutines ", e.key);
  if (oldest >= 0) {
    Append(out, ", for ", oldest / 1'000'000, " ms", n == 1 ? "" : " or less");
  }
  *out += ':';
  for (size_t i = 0; i < std::min(n, kMostIds); i++) {
    Append(out, " ", e.of[i]->id);
  }
  Append(out, n > kMostIds ? " ...\n" : "\n", e.stack);
}

// FullParts writes a text in parts of about 32 KiB.
class FullParts {
 public:
  FullParts(GoroutineList::Write write, std::string* out)
      : write_(write), out_(out) {}
  // Look writes what is in *out, if that is enough for a part.
  bool Look() { return out_->size() < kPartSize || Flush(); }
  bool Flush() {
    const bool more = write_(*out_);
    out_->clear();
    return more;
  }

 private:
  static constexpr size_t kPartSize = 32 << 10;
  const GoroutineList::Write write_;
  std::string* const out_;
};

}  // namespace

struct GoroutineList::State {
  explicit State(const GoroutineQuery& query) : all(query) {}
  Collected all;
};

GoroutineList::GoroutineList(const GoroutineQuery& query)
    : state_(std::make_unique<const State>(query)) {}
GoroutineList::GoroutineList(GoroutineList&&) noexcept = default;
GoroutineList::~GoroutineList() = default;

bool GoroutineList::WriteText(Write write) const {
  const Collected& all = state_->all;
  std::string out = Cat("goroutines: total ", all.total(), ", shown ",
                        all.found().size(), "\n");
  FullParts parts(write, &out);
  for (const Entry& e : Entries(all.found(), all.group())) {
    AppendEntry(&out, e);
    if (!parts.Look()) return false;
  }
  return parts.Flush();
}

bool GoroutineList::WriteJson(Write write) const {
  Functions functions;
  std::string out = "[";
  FullParts parts(write, &out);
  const char* comma = "\n";
  for (const Goroutine& g : state_->all.found()) {
    out += std::exchange(comma, ",\n");
    AppendGoroutine(&out, g, &functions);
    if (!parts.Look()) return false;
  }
  out += "\n]\n";
  return parts.Flush();
}

}  // namespace gump::internal

namespace gump::debug {

std::string GoroutinesJSON() {
  std::string text;
  (void)internal::GoroutineList({}).WriteJson([&text](std::string_view part) {
    text += part;
    return true;
  });
  return text;
}

}  // namespace gump::debug
