#include "api/pprof/proto.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "gump/os.h"

namespace gump::internal {

namespace {

// The numbers of fields, by message.
namespace profile {
constexpr int kSampleType = 1, kSample = 2, kMapping = 3, kLocation = 4,
              kFunction = 5, kStringTable = 6, kTimeNanos = 9,
              kDurationNanos = 10, kPeriodType = 11, kPeriod = 12;
}
namespace value_type {
constexpr int kType = 1, kUnit = 2;
}
namespace sample {
constexpr int kLocationId = 1, kValue = 2, kLabel = 3;
}
namespace label {
constexpr int kKey = 1, kStr = 2;
}
namespace mapping {
constexpr int kId = 1, kStart = 2, kLimit = 3, kOffset = 4, kFilename = 5,
              kBuildId = 6, kHasFunctions = 7;
}
namespace location {
constexpr int kId = 1, kMappingId = 2, kAddress = 3, kLine = 4;
}
namespace line {
constexpr int kFunctionId = 1;
}
namespace function {
constexpr int kId = 1, kName = 2, kSystemName = 3;
}

// ---- Wire format

void PutVarint(std::string* out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out->push_back(static_cast<char>(v | 0x80));
  out->push_back(static_cast<char>(v));
}

// PutInt leaves out zeros, which are the default.
void PutInt(std::string* out, int field, uint64_t v) {
  if (v == 0) return;
  PutVarint(out, static_cast<uint64_t>(field) << 3);
  PutVarint(out, v);
}

void PutBytes(std::string* out, int field, std::string_view bytes) {
  PutVarint(out, static_cast<uint64_t>(field) << 3 | 2);
  PutVarint(out, bytes.size());
  out->append(bytes);
}

template <class T>
void PutPacked(std::string* out, int field, const T& values) {
  std::string bytes;
  for (const auto v : values) PutVarint(&bytes, static_cast<uint64_t>(v));
  PutBytes(out, field, bytes);
}

// ---- Gzip

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  constexpr uint32_t kPolynomial = 0xedb88320;
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++)
      c = (c & 1) != 0 ? c >> 1 ^ kPolynomial : c >> 1;
    table[i] = c;
  }
  return table;
}();

uint32_t Crc32(std::string_view data) {
  uint32_t c = ~uint32_t{0};
  for (const char b : data) {
    c = kCrcTable[(c ^ static_cast<unsigned char>(b)) & 0xff] ^ c >> 8;
  }
  return ~c;
}

void PutLittleEndian(std::string* out, uint64_t v, int bytes) {
  for (; bytes > 0; bytes--, v >>= 8) out->push_back(static_cast<char>(v));
}

// ---- Mappings

// BuildIdIn returns the build id in a segment of notes.
std::string BuildIdIn(const char* notes, size_t size) {
  constexpr uint32_t kBuildId = 3;  // NT_GNU_BUILD_ID
  const auto padded = [](size_t n) { return (n + 3) & ~size_t{3}; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes, sizeof(head));
    const size_t name = sizeof(head);
    const size_t desc = name + padded(head.n_namesz);
    const size_t next = desc + padded(head.n_descsz);
    if (next > size) break;
    if (head.n_type == kBuildId && head.n_namesz == 4 &&
        std::memcmp(notes + name, "GNU", 4) == 0) {
      std::string hex;
      for (size_t i = 0; i < head.n_descsz; i++) {
        constexpr char kDigits[] = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(notes[desc + i]);
        hex += {kDigits[byte >> 4], kDigits[byte & 15]};
      }
      return hex;
    }
    notes += next;
    size -= next;
  }
  return "";
}

// AddBuildId gives the mappings of a module its build id.
int AddBuildId(dl_phdr_info* info, size_t, void* arg) {
  auto& mappings = *static_cast<std::vector<Mapping>*>(arg);
  std::string id;
  for (size_t i = 0; i < info->dlpi_phnum && id.empty(); i++) {
    const ElfW(Phdr)& p = info->dlpi_phdr[i];
    if (p.p_type != PT_NOTE) continue;
    const uintptr_t at = info->dlpi_addr + p.p_vaddr;
    id = BuildIdIn(reinterpret_cast<const char*>(at), p.p_memsz);
  }
  for (size_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)& p = info->dlpi_phdr[i];
    if (p.p_type != PT_LOAD) continue;
    const uint64_t start = info->dlpi_addr + p.p_vaddr;
    for (Mapping& m : mappings) {
      if (m.start < start + p.p_memsz && start < m.limit) m.build_id = id;
    }
  }
  return 0;
}

}  // namespace

std::vector<Mapping> ParseMaps(std::string_view text) {
  std::vector<Mapping> all;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    // start-limit permissions offset device inode, spaces, file
    Mapping m;
    char perms[5] = {};
    int file = 0;
    const int n = std::sscanf(
        line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %n",
        &m.start, &m.limit, perms, &m.offset, &file);
    if (n != 4 || file == 0 || perms[2] != 'x') continue;
    m.file = line.substr(static_cast<size_t>(file));
    if (!m.file.empty()) all.push_back(std::move(m));
  }
  return all;
}

std::vector<Mapping> Mappings() {
  const absl::StatusOr<std::string> maps = os::ReadFile("/proc/self/maps");
  if (!maps.ok()) return {};
  std::vector<Mapping> all = ParseMaps(*maps);
  dl_iterate_phdr(AddBuildId, &all);
  return all;
}

std::string FunctionName(uintptr_t pc) {
  char name[512];
  return std::string(name, rt::symbolText(pc, name, sizeof(name)));
}

std::string Gzip(std::string_view data) {
  constexpr size_t kMostStored = 65535;  // bytes in a stored block
  // Deflate, no flags, no time, no hint, on Unix.
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  std::string_view rest = data;
  do {
    const std::string_view part = rest.substr(0, kMostStored);
    rest.remove_prefix(part.size());
    out.push_back(rest.empty() ? 1 : 0);  // the last block; stored
    PutLittleEndian(&out, part.size(), 2);
    PutLittleEndian(&out, ~part.size(), 2);
    out.append(part);
  } while (!rest.empty());
  PutLittleEndian(&out, Crc32(data), 4);
  PutLittleEndian(&out, data.size(), 4);
  return out;
}

// ---- ProfileBuilder

ProfileBuilder::ProfileBuilder(absl::Span<const ValueType> types,
                               ValueType period_type, int64_t period,
                               std::vector<Mapping> mappings)
    : mappings_(std::move(mappings)) {
  (void)StringIndex("");  // must be 0
  const auto put = [this](int field, const ValueType& v) {
    std::string message;
    PutInt(&message, value_type::kType, StringIndex(v.type));
    PutInt(&message, value_type::kUnit, StringIndex(v.unit));
    PutBytes(&out_, field, message);
  };
  put(profile::kPeriodType, period_type);
  PutInt(&out_, profile::kPeriod, static_cast<uint64_t>(period));
  for (const ValueType& v : types) put(profile::kSampleType, v);
}

uint64_t ProfileBuilder::StringIndex(std::string_view s) {
  const auto [at, is_new] = strings_.try_emplace(std::string(s), table_.size());
  if (is_new) table_.emplace_back(s);
  return at->second;
}

namespace {
// WithoutParentheses writes (anonymous namespace) as {anonymous}. pprof takes
// what is in parentheses for parameters, and leaves it out.
std::string WithoutParentheses(std::string name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  for (size_t at = 0; (at = name.find(kAnonymous, at)) != std::string::npos;) {
    name.replace(at, kAnonymous.size(), "{anonymous}");
  }
  return name;
}
}  // namespace

// The name of a function without a symbol is that of its file, in brackets.
uint64_t ProfileBuilder::FunctionOf(uintptr_t pc, const Mapping* mapping) {
  std::string name = FunctionName(pc);
  if (name == "?" && mapping != nullptr && !mapping->file.empty()) {
    name.assign(1, '[').append(mapping->file, mapping->file.rfind('/') + 1);
    name += ']';
  }
  const auto [at, is_new] =
      functions_.try_emplace(std::move(name), functions_.size() + 1);
  if (is_new) {
    std::string message;
    PutInt(&message, function::kId, at->second);
    PutInt(&message, function::kName,
           StringIndex(WithoutParentheses(at->first)));
    PutInt(&message, function::kSystemName, StringIndex(at->first));
    PutBytes(&out_, profile::kFunction, message);
  }
  return at->second;
}

uint64_t ProfileBuilder::LocationOf(uintptr_t pc) {
  const auto [at, is_new] = locations_.try_emplace(pc, locations_.size() + 1);
  const uint64_t id = at->second;
  if (!is_new) return id;
  const auto mapping = std::find_if(
      mappings_.begin(), mappings_.end(),
      [pc](const Mapping& m) { return m.start <= pc && pc < m.limit; });
  std::string message;
  PutInt(&message, location::kId, id);
  if (mapping != mappings_.end()) {
    const auto index = static_cast<uint64_t>(mapping - mappings_.begin());
    PutInt(&message, location::kMappingId, index + 1);
  }
  PutInt(&message, location::kAddress, pc);
  std::string line;
  PutInt(&line, line::kFunctionId,
         FunctionOf(pc, mapping == mappings_.end() ? nullptr : &*mapping));
  PutBytes(&message, location::kLine, line);
  PutBytes(&out_, profile::kLocation, message);
  return id;
}

void ProfileBuilder::Add(const rt::StackRecord& stack,
                         absl::Span<const int64_t> values) {
  std::vector<uint64_t> ids;
  ids.reserve(stack.n);
  for (size_t i = 0; i < stack.n; i++) ids.push_back(LocationOf(stack.pcs[i]));
  std::string message;
  PutPacked(&message, sample::kLocationId, ids);
  PutPacked(&message, sample::kValue, values);
  size_t n;
  const rt::Label* labels = rt::labelsIn(stack.labels, &n);
  for (size_t i = 0; i < n; i++) {
    std::string pair;
    PutInt(&pair, label::kKey,
           StringIndex({labels[i].key, labels[i].key_size}));
    PutInt(&pair, label::kStr,
           StringIndex({labels[i].value, labels[i].value_size}));
    PutBytes(&message, sample::kLabel, pair);
  }
  PutBytes(&out_, profile::kSample, message);
}

std::string ProfileBuilder::Build(int64_t time_nanos,
                                  int64_t duration_nanos) && {
  for (size_t i = 0; i < mappings_.size(); i++) {
    const Mapping& m = mappings_[i];
    std::string message;
    PutInt(&message, mapping::kId, i + 1);
    PutInt(&message, mapping::kStart, m.start);
    PutInt(&message, mapping::kLimit, m.limit);
    PutInt(&message, mapping::kOffset, m.offset);
    PutInt(&message, mapping::kFilename, StringIndex(m.file));
    PutInt(&message, mapping::kBuildId, StringIndex(m.build_id));
    PutInt(&message, mapping::kHasFunctions, 1);
    PutBytes(&out_, profile::kMapping, message);
  }
  PutInt(&out_, profile::kTimeNanos, static_cast<uint64_t>(time_nanos));
  PutInt(&out_, profile::kDurationNanos, static_cast<uint64_t>(duration_nanos));
  for (const std::string& s : table_) PutBytes(&out_, profile::kStringTable, s);
  return std::move(out_);
}

}  // namespace gump::internal
