// WriteProfile and the CPU profile. proto.cc has the encoding.
#include "api/pprof/profile.h"

#include <fcntl.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/grow_text.h"
#include "api/os/file.h"
#include "api/pprof/proto.h"
#include "api/status_util.h"
#include "gump/os.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/sync/mutex.h"

namespace gump::pprof {

namespace {

using internal::FunctionName;
using internal::ProfileBuilder;

// Stack is a copy of the stacks of several StackRecords with the same labels
// and, except for InnerFrames::kMerge, the same addresses.
struct Stack {
  std::vector<uintptr_t> pcs;
  Labels labels;
  int64_t count = 0;
  int64_t nanos = 0;
  rt::Leak leak = rt::Leak::kNone;

  rt::StackRecord record() const {
    return {pcs.data(), pcs.size(), internal::LabelsAccess::set(labels),
            count,      nanos,      leak};
  }
};

std::string Hex(uintptr_t v) {
  char text[2 + 2 * sizeof(v) + 1];
  std::snprintf(text, sizeof(text), "%#" PRIxPTR, v);
  return text;
}

// Quoted is %q of Go for texts that are valid UTF-8.
std::string Quoted(std::string_view s) {
  std::string text = "\"";
  for (const char c : s) {
    constexpr std::string_view kSpecial = "\a\b\f\n\r\t\v\"\\";
    constexpr std::string_view kLetters = "abfnrtv\"\\";
    const size_t at = kSpecial.find(c);
    if (at != std::string_view::npos) {
      text += {'\\', kLetters[at]};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char hex[5];
      std::snprintf(hex, sizeof(hex), "\\x%02x", c);
      text += hex;
    } else {
      text += c;
    }
  }
  return text + '"';
}

// LabelsText returns labels in the form of Go's text profiles, or "".
std::string LabelsText(const rt::StackRecord& r) {
  std::string text;
  for (const auto& [key, value] : internal::LabelsOf(r)) {
    text += text.empty() ? "{" : ", ";
    text.append(Quoted(key)).append(":").append(Quoted(value));
  }
  if (!text.empty()) text += '}';
  return text;
}

// InnerFrames says what becomes of the scheduler's frames in which a stack
// begins.
enum class InnerFrames {
  kKeep,
  // Stacks that differ in nothing else are merged, and one of them is shown. An
  // operation may come to its wait by several ways, as a receive does that
  // finds its channel locked, and users know nothing of them.
  kMerge,
  // As kMerge, and no stack shows them. Stacks of Go's block profile begin with
  // the operation, too.
  kStrip,
};

// Stacks collects stacks, and merges those that are equal.
class Stacks {
 public:
  explicit Stacks(InnerFrames inner) : inner_(inner) {}

  static void Visit(void* arg, const rt::StackRecord& r) noexcept {
    static_cast<Stacks*>(arg)->Add(r);
  }

  bool out_of_memory() const { return out_of_memory_; }

  size_t size() const { return merged_.size(); }

  // Subtract takes the values of `before` from these, and drops the stacks for
  // which nothing is left. Values may become negative.
  void Subtract(const Stacks& before) {
    for (const auto& [key, old] : before.merged_) {
      const auto [at, is_new] = merged_.try_emplace(key);
      Stack& s = at->second;
      if (is_new) {
        s.pcs = old.pcs;
        s.labels = old.labels;
      }
      s.count -= old.count;
      s.nanos -= old.nanos;
      if (s.count == 0 && s.nanos == 0) merged_.erase(at);
    }
  }

  // Sorted returns the stacks, the largest first.
  std::vector<const Stack*> Sorted() const {
    std::vector<const Stack*> all;
    for (const auto& [key, stack] : merged_) all.push_back(&stack);
    std::stable_sort(
        all.begin(), all.end(), [](const Stack* a, const Stack* b) {
          return std::pair(a->nanos, a->count) > std::pair(b->nanos, b->count);
        });
    return all;
  }

 private:
  using Key = std::pair<std::vector<uintptr_t>, std::string>;

  void Add(const rt::StackRecord& r) noexcept {
    try {
      const uintptr_t* end = r.pcs + r.n;
      const uintptr_t* outside = r.pcs;
      if (inner_ != InnerFrames::kKeep) {
        while (end - outside > 1 && InScheduler(*outside)) outside++;
      }
      Stack& s = merged_[Key({outside, end}, LabelsText(r))];
      if (s.count == 0) {
        s.pcs.assign(inner_ == InnerFrames::kStrip ? outside : r.pcs, end);
        rt::retainLabels(r.labels);
        s.labels = internal::LabelsAccess::Adopt(r.labels);
        s.leak = r.leak;
      }
      s.count += r.count;
      s.nanos += r.nanos;
    } catch (...) {  // the operator new of a program may throw anything
      out_of_memory_ = true;
    }
  }

  bool InScheduler(uintptr_t pc) {
    const auto [at, is_new] = in_scheduler_.try_emplace(pc, false);
    if (is_new) at->second = FunctionName(pc).starts_with("gump::rt::");
    return at->second;
  }

  const InnerFrames inner_;
  std::map<uintptr_t, bool> in_scheduler_;
  std::map<Key, Stack> merged_;
  bool out_of_memory_ = false;
};

int64_t NowNanos() { return absl::ToUnixNanos(absl::Now()); }

// ---- Text

void AppendAddresses(std::string* text, const Stack& s) {
  *text += '@';
  for (const uintptr_t pc : s.pcs) text->append(" ").append(Hex(pc));
  *text += '\n';
}

// AppendFrames appends a line for each frame. As in Go it leaves out the
// runtime's frames in front of the program's, unless `all` is set.
void AppendFrames(std::string* text, const Stack& s, bool all) {
  std::vector<std::string> names;
  for (const uintptr_t pc : s.pcs) names.push_back(FunctionName(pc));
  size_t i = 0;
  while (!all && i < names.size() && rt::hidesFromUsers(names[i].c_str())) i++;
  if (i == names.size()) i = 0;
  for (; i < names.size(); i++) {
    text->append("#\t").append(Hex(s.pcs[i])).append("\t");
    text->append(names[i]).append("\n");
  }
  *text += '\n';
}

// ---- The profiles

// Taken says when a profile was taken. A profile of what happened in between
// two moments has a length.
struct Taken {
  int64_t nanos = NowNanos();
  int64_t length = 0;
};

std::string CountProfile(std::string_view name, const Stacks& stacks,
                         bool text_form, Taken taken) {
  const std::vector<const Stack*> all = stacks.Sorted();
  if (!text_form) {
    const ProfileBuilder::ValueType type{name, "count"};
    ProfileBuilder b({type}, type, /*period=*/1, internal::Mappings());
    for (const Stack* s : all) b.Add(s->record(), {s->count});
    return internal::Gzip(std::move(b).Build(taken.nanos, taken.length));
  }
  int64_t total = 0;
  for (const Stack* s : all) total += s->count;
  std::string text(name);
  text.append(" profile: total ").append(std::to_string(total)).append("\n");
  for (const Stack* s : all) {
    text.append(std::to_string(s->count)).append(" ");
    AppendAddresses(&text, *s);
    const std::string labels = LabelsText(s->record());
    if (!labels.empty()) text.append("# labels: ").append(labels).append("\n");
    AppendFrames(&text, *s, /*all=*/false);
  }
  return text;
}

// ContentionProfile is the block or mutex profile.
std::string ContentionProfile(std::string_view name, const Stacks& stacks,
                              bool text_form, Taken taken) {
  const std::vector<const Stack*> all = stacks.Sorted();
  if (!text_form) {
    const ProfileBuilder::ValueType count{"contentions", "count"};
    ProfileBuilder b({count, {"delay", "nanoseconds"}}, count, /*period=*/1,
                     internal::Mappings());
    for (const Stack* s : all) b.Add(s->record(), {s->count, s->nanos});
    return internal::Gzip(std::move(b).Build(taken.nanos, taken.length));
  }
  std::string text("--- ");
  text.append(name == "block" ? "contention" : name).append(":\n");
  text.append("cycles/second=1000000000\n");
  if (name == "mutex") {
    text.append("sampling period=")
        .append(std::to_string(SetMutexProfileFraction(-1)))
        .append("\n");
  }
  for (const Stack* s : all) {
    text.append(std::to_string(s->nanos)).append(" ");
    text.append(std::to_string(s->count)).append(" ");
    AppendAddresses(&text, *s);
    AppendFrames(&text, *s, /*all=*/true);
  }
  return text;
}

// Kind is a kind of profile, and how it collects its stacks.
struct Kind {
  std::string_view name;
  // Returns false if there is no memory. Of goroutineleak it is nullptr.
  bool (*collect)(rt::StackVisitor visit, void* arg) noexcept;
  InnerFrames inner = InnerFrames::kKeep;
  bool contention = false;  // counts contentions and delays
};

bool Threads(rt::StackVisitor visit, void* arg) noexcept {
  rt::visitThreads(visit, arg);
  return true;
}

bool Blocked(rt::StackVisitor visit, void* arg) noexcept {
  rt::visitBlockedStacks(visit, arg);
  return true;
}

bool Mutexes(rt::StackVisitor visit, void* arg) noexcept {
  rt::visitMutexStacks(visit, arg);
  return true;
}

constexpr Kind kKinds[] = {
    {"block", Blocked, InnerFrames::kStrip, /*contention=*/true},
    {"mutex", Mutexes, InnerFrames::kStrip, /*contention=*/true},
    {"goroutine", rt::visitGoroutines, InnerFrames::kMerge},
    {"goroutineleak", /*collect=*/nullptr, InnerFrames::kMerge},
    {"threadcreate", Threads},
};

const Kind* FindKind(std::string_view name) {
  const auto* at = std::find_if(std::begin(kKinds), std::end(kKinds),
                                [&](const Kind& k) { return k.name == name; });
  return at == std::end(kKinds) ? nullptr : at;
}

absl::Status Unknown(std::string_view name) {
  return absl::NotFoundError("pprof: unknown profile " + Quoted(name));
}

absl::Status NoMemory(std::string_view name) {
  return absl::ResourceExhaustedError(
      std::string("pprof: no memory for profile ").append(name));
}

absl::Status LeakError(rt::LeakStatus status) {
  switch (status) {
    case rt::LeakStatus::kDone:
      return absl::OkStatus();
    case rt::LeakStatus::kNoMemory:
      return NoMemory("goroutineleak");
    case rt::LeakStatus::kNoMaps:
      return absl::UnavailableError(
          "pprof: profile goroutineleak needs /proc/self/maps");
    case rt::LeakStatus::kSanitizer:
      return absl::UnimplementedError(
          "pprof: no profile goroutineleak with ThreadSanitizer");
  }
  return absl::InternalError("pprof: bad status");
}

absl::Status Collect(const Kind& kind, Stacks* stacks) {
  if (kind.collect == nullptr) {
    absl::Status s = LeakError(rt::visitLeaks(Stacks::Visit, stacks));
    if (!s.ok()) return s;
  } else if (!kind.collect(Stacks::Visit, stacks)) {
    return NoMemory(kind.name);
  }
  return stacks->out_of_memory() ? NoMemory(kind.name) : absl::OkStatus();
}

// LeakDump is goroutineleak with debug 2.
absl::StatusOr<std::string> LeakDump() {
  std::string text;
  size_t size = 0;
  absl::Status s = LeakError(rt::leakDump(internal::GrowText, &text, &size));
  if (!s.ok()) return s;
  if (size > text.size()) return NoMemory("goroutineleak");
  text.resize(size);
  return text;
}

std::string Encode(const Kind& kind, const Stacks& stacks, bool text_form,
                   Taken taken = {}) {
  return (kind.contention ? ContentionProfile : CountProfile)(kind.name, stacks,
                                                              text_form, taken);
}

// WriteTo writes data to fd, which stays open. A File of a duplicate knows how
// to wait, and sends no SIGPIPE.
absl::Status WriteTo(int fd, std::string_view data) {
  const long copy =
      internal::NewFd([fd] { return fcntl(fd, F_DUPFD_CLOEXEC, 0); });
  if (copy < 0) {
    return internal::ErrorStatus("write profile", internal::ErrnoOf(copy),
                                 internal::kFileClosed);
  }
  internal::OwnedFd owned(static_cast<int>(copy));
  absl::StatusOr<os::File> file = os::NewFile(owned.get(), "profile");
  if (!file.ok()) return file.status();
  (void)owned.Release();
  const absl::Status written = file->Write(data).status();
  const absl::Status closed = file->Close();
  return written.ok() ? closed : written;
}

// Cpu is the CPU profile that is being taken. `mu` is also held while it is
// written, so that two profiles do not mix.
struct Cpu {
  sync::Mutex mu;
  // Of the profile that is on:
  int fd = -1;
  int hz = 0;
  absl::Time begin;
};
constinit Cpu cpu;

// CpuProfile is the CPU profile: samples and the time that they stand for.
std::string CpuProfile(const Stacks& stacks, int hz, absl::Time begin,
                       absl::Duration length) {
  const int64_t period = 1'000'000'000 / hz;
  const ProfileBuilder::ValueType time{"cpu", "nanoseconds"};
  ProfileBuilder b({{"samples", "count"}, time}, time, period,
                   internal::Mappings());
  for (const Stack* s : stacks.Sorted()) {
    b.Add(s->record(), {s->count, s->count * period});
  }
  return internal::Gzip(std::move(b).Build(absl::ToUnixNanos(begin),
                                           absl::ToInt64Nanoseconds(length)));
}

}  // namespace

absl::Status StartCPUProfile(int fd, int hz) {
  constexpr int kMostHz = 1'000'000;  // as Go's
  if (hz < 1 || hz > kMostHz) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pprof: cpu profiling rate ", hz, " Hz is not in 1 to ", kMostHz));
  }
  cpu.mu.Lock();
  const absl::Cleanup unlock = [] { cpu.mu.Unlock(); };
  switch (rt::startCpuProfile(hz)) {
    case rt::CpuProfileStart::kInUse:
      return absl::FailedPreconditionError("cpu profiling already in use");
    case rt::CpuProfileStart::kNoMemory:
      return absl::ResourceExhaustedError("pprof: no memory for profile cpu");
    case rt::CpuProfileStart::kOk:
      break;
  }
  cpu.fd = fd;
  cpu.hz = hz;
  cpu.begin = absl::Now();
  return absl::OkStatus();
}

void StopCPUProfile() {
  cpu.mu.Lock();
  const absl::Cleanup unlock = [] { cpu.mu.Unlock(); };
  const absl::Duration length = absl::Now() - cpu.begin;
  Stacks stacks(InnerFrames::kKeep);
  if (!rt::stopCpuProfile(Stacks::Visit, &stacks)) return;
  // As in Go, there is no way to report that it could not be written.
  (void)WriteTo(cpu.fd, CpuProfile(stacks, cpu.hz, cpu.begin, length));
}

void SetBlockProfileRate(int ns) { rt::setBlockProfileRate(ns); }

int SetMutexProfileFraction(int rate) {
  return static_cast<int>(rt::setMutexProfileFraction(rate));
}

absl::Status WriteProfile(std::string_view name, int fd, int debug) {
  const absl::StatusOr<std::string> text = internal::ProfileText(name, debug);
  return text.ok() ? WriteTo(fd, *text) : text.status();
}

}  // namespace gump::pprof

namespace gump::internal {

using pprof::FindKind;
using pprof::Kind;
using pprof::Stacks;

std::vector<std::string_view> ProfileNames() {
  std::vector<std::string_view> names;
  for (const Kind& kind : pprof::kKinds) names.push_back(kind.name);
  std::sort(names.begin(), names.end());
  return names;
}

int64_t ProfileCount(std::string_view name) {
  const Kind* kind = FindKind(name);
  if (kind == nullptr) return 0;
  if (name == "goroutine") return runtime::NumGoroutine();
  if (name == "threadcreate") return debug::ReadSchedStats().threads;
  if (kind->collect == nullptr) return 0;  // a search stops the world
  Stacks stacks(kind->inner);
  (void)Collect(*kind, &stacks);
  return static_cast<int64_t>(stacks.size());
}

absl::StatusOr<std::string> ProfileText(std::string_view name, int debug) {
  const Kind* kind = FindKind(name);
  if (kind == nullptr) return pprof::Unknown(name);
  if (debug >= 2) {
    if (name == "goroutine") return runtime::Stack(true);
    if (kind->collect == nullptr) return pprof::LeakDump();
  }
  Stacks stacks(kind->inner);
  const absl::Status s = Collect(*kind, &stacks);
  if (!s.ok()) return s;
  return Encode(*kind, stacks, /*text_form=*/debug > 0);
}

struct ProfileDelta::State {
  explicit State(const Kind& k) : kind(k), before(k.inner) {}
  const Kind& kind;
  Stacks before;
  int64_t begin = pprof::NowNanos();
};

ProfileDelta::ProfileDelta(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
ProfileDelta::ProfileDelta(ProfileDelta&&) noexcept = default;
ProfileDelta::~ProfileDelta() = default;

absl::StatusOr<ProfileDelta> ProfileDelta::Begin(std::string_view name) {
  const Kind* kind = FindKind(name);
  if (kind == nullptr) return pprof::Unknown(name);
  auto state = std::make_unique<State>(*kind);
  const absl::Status s = Collect(*kind, &state->before);
  if (!s.ok()) return s;
  return ProfileDelta(std::move(state));
}

absl::StatusOr<std::string> ProfileDelta::End() const {
  Stacks stacks(state_->kind.inner);
  const absl::Status s = Collect(state_->kind, &stacks);
  if (!s.ok()) return s;
  stacks.Subtract(state_->before);
  const int64_t now = pprof::NowNanos();
  return pprof::Encode(state_->kind, stacks, /*text_form=*/false,
                       {.nanos = now, .length = now - state_->begin});
}

}  // namespace gump::internal
