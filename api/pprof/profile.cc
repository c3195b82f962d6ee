// WriteProfile and the CPU profile. proto.cc has the encoding.
#include <fcntl.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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

// Stack is a copy of the stacks of several StackRecords with the same addresses
// and labels.
struct Stack {
  std::vector<uintptr_t> pcs;
  Labels labels;
  int64_t count = 0;
  int64_t nanos = 0;

  rt::StackRecord record() const {
    return {pcs.data(), pcs.size(), internal::LabelsAccess::set(labels), count,
            nanos};
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
std::string LabelsText(const rt::LabelSet* set) {
  size_t n;
  const rt::Label* labels = rt::labelsIn(set, &n);
  std::string text;
  for (size_t i = 0; i < n; i++) {
    text += i == 0 ? "{" : ", ";
    text += Quoted({labels[i].key, labels[i].key_size});
    text += ':';
    text += Quoted({labels[i].value, labels[i].value_size});
  }
  if (n != 0) text += '}';
  return text;
}

// Stacks collects stacks, and merges those that are equal.
class Stacks {
 public:
  // If `strip` is set, stacks begin with the first frame outside of the
  // scheduler, as those of Go's block profile begin with the operation.
  explicit Stacks(bool strip) : strip_(strip) {}

  static void Visit(void* arg, const rt::StackRecord& r) noexcept {
    static_cast<Stacks*>(arg)->Add(r);
  }

  bool out_of_memory() const { return out_of_memory_; }

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
      const uintptr_t* begin = r.pcs;
      while (strip_ && end - begin > 1 && InScheduler(*begin)) begin++;
      Stack& s = merged_[Key({begin, end}, LabelsText(r.labels))];
      if (s.count == 0) {
        s.pcs.assign(begin, end);
        rt::retainLabels(r.labels);
        s.labels = internal::LabelsAccess::Adopt(r.labels);
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

  const bool strip_;
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

std::string CountProfile(std::string_view name, const Stacks& stacks,
                         bool text_form) {
  const std::vector<const Stack*> all = stacks.Sorted();
  if (!text_form) {
    const ProfileBuilder::ValueType type{name, "count"};
    ProfileBuilder b({type}, type, /*period=*/1, internal::Mappings());
    for (const Stack* s : all) b.Add(s->record(), {s->count});
    return internal::Gzip(std::move(b).Build(NowNanos()));
  }
  int64_t total = 0;
  for (const Stack* s : all) total += s->count;
  std::string text(name);
  text.append(" profile: total ").append(std::to_string(total)).append("\n");
  for (const Stack* s : all) {
    text.append(std::to_string(s->count)).append(" ");
    AppendAddresses(&text, *s);
    const std::string labels =
        LabelsText(internal::LabelsAccess::set(s->labels));
    if (!labels.empty()) text.append("# labels: ").append(labels).append("\n");
    AppendFrames(&text, *s, /*all=*/false);
  }
  return text;
}

// ContentionProfile is the block or mutex profile.
std::string ContentionProfile(std::string_view name, const Stacks& stacks,
                              bool text_form) {
  const std::vector<const Stack*> all = stacks.Sorted();
  if (!text_form) {
    const ProfileBuilder::ValueType count{"contentions", "count"};
    ProfileBuilder b({count, {"delay", "nanoseconds"}}, count, /*period=*/1,
                     internal::Mappings());
    for (const Stack* s : all) b.Add(s->record(), {s->count, s->nanos});
    return internal::Gzip(std::move(b).Build(NowNanos()));
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
  bool (*collect)(rt::StackVisitor visit, void* arg) noexcept;
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
    {"block", Blocked, /*contention=*/true},
    {"mutex", Mutexes, /*contention=*/true},
    {"goroutine", rt::visitGoroutines},
    {"threadcreate", Threads},
};

absl::StatusOr<std::string> ProfileText(const Kind& kind, int debug) {
  if (kind.name == "goroutine" && debug >= 2) return runtime::Stack(true);
  Stacks stacks(/*strip=*/kind.contention);
  const bool complete = kind.collect(Stacks::Visit, &stacks);
  if (!complete || stacks.out_of_memory()) {
    return absl::ResourceExhaustedError(
        std::string("pprof: no memory for profile ").append(kind.name));
  }
  return (kind.contention ? ContentionProfile : CountProfile)(
      kind.name, stacks, /*text_form=*/debug > 0);
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
  Stacks stacks(/*strip=*/false);
  if (!rt::stopCpuProfile(Stacks::Visit, &stacks)) return;
  // As in Go, there is no way to report that it could not be written.
  (void)WriteTo(cpu.fd, CpuProfile(stacks, cpu.hz, cpu.begin, length));
}

void SetBlockProfileRate(int ns) { rt::setBlockProfileRate(ns); }

int SetMutexProfileFraction(int rate) {
  return static_cast<int>(rt::setMutexProfileFraction(rate));
}

absl::Status WriteProfile(std::string_view name, int fd, int debug) {
  for (const Kind& kind : kKinds) {
    if (kind.name != name) continue;
    absl::StatusOr<std::string> text = ProfileText(kind, debug);
    return text.ok() ? WriteTo(fd, *text) : text.status();
  }
  return absl::NotFoundError("pprof: unknown profile " + Quoted(name));
}

}  // namespace gump::pprof
