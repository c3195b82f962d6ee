#include "tools/trace/reader.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trace_tool {

namespace {

// Returns the version in a header such as "go 1.23 trace" and three zeros, or 0
// if this program cannot read it.
int VersionOf(absl::string_view bytes) {
  if (bytes.size() < kHeaderSize) return 0;
  const absl::string_view header = bytes.substr(0, kHeaderSize);
  for (int version : {22, 23, 25, 26}) {
    const std::string want = absl::StrCat("go 1.", version, " trace",
                                          absl::string_view("\0\0\0", 3));
    if (header == want) return version;
  }
  return 0;
}

bool Is(absl::string_view data, Ev type) {
  return !data.empty() &&
         static_cast<uint8_t>(data[0]) == static_cast<uint8_t>(type);
}

}  // namespace

std::optional<absl::string_view> Generation::String(uint64_t id) const {
  if (id == 0) return absl::string_view();
  const auto it = strings.find(id);
  if (it == strings.end()) return std::nullopt;
  return it->second;
}

uint64_t Generation::Nanoseconds(uint64_t ticks) const {
  constexpr uint64_t kBillion = 1'000'000'000;
  if (hertz == kBillion) return ticks;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(ticks) *
                               kBillion / hertz);
}

// ---- Batches ----------------------------------------------------------------

absl::StatusOr<Reader> Reader::Open(absl::string_view bytes) {
  const int version = VersionOf(bytes);
  if (version != 0) return Reader(bytes, version);
  if (bytes.size() >= kHeaderSize && bytes.substr(0, 5) == "go 1.") {
    return absl::InvalidArgumentError(
        absl::StrCat("the header is \"", bytes.substr(0, 13),
                     "\"; this program reads go 1.22, 1.23, 1.25 and 1.26"));
  }
  return absl::InvalidArgumentError("not an execution trace: no header");
}

Reader::Reader(absl::string_view bytes, int version)
    : bytes_(bytes), version_(version) {}

bool Reader::Fail(size_t offset, absl::string_view what) {
  const std::string where =
      current_ == 0 ? "" : absl::StrCat("generation ", current_, ", ");
  status_ =
      absl::DataLossError(absl::StrCat(where, "byte ", offset, ": ", what));
  done_ = true;
  return false;
}

bool Reader::CutOff(uint64_t generation) {
  cut_off_ = true;
  status_ = absl::DataLossError(absl::StrCat(
      "the file ends in the middle, at byte ", bytes_.size(),
      generation == 0 ? std::string()
                      : absl::StrCat("; generation ", generation,
                                     " is incomplete and is left out")));
  done_ = true;
  return false;
}

// ReadBatch reads the batch at next_. If the file ends inside of it, ReadBatch
// calls CutOff with the generation that the batch has, or with the current one.
bool Reader::ReadBatch(RawBatch* raw) {
  Cursor in(bytes_.substr(next_), next_);
  raw->offset = next_;
  uint8_t type = 0;
  if (!in.Byte(&type)) return CutOff(current_);
  raw->end =
      version_ >= 26 && type == static_cast<uint8_t>(Ev::kEndOfGeneration);
  if (raw->end) {
    next_ = in.offset();
    return true;
  }
  raw->experimental =
      version_ >= 23 && type == static_cast<uint8_t>(Ev::kExperimentalBatch);
  if (!raw->experimental && type != static_cast<uint8_t>(Ev::kEventBatch)) {
    return Fail(raw->offset,
                absl::StrCat("a batch begins with 1, not with ", int{type}));
  }
  uint8_t experiment;
  if (raw->experimental && !in.Byte(&experiment)) return CutOff(current_);
  uint64_t size;
  raw->generation = 0;
  for (uint64_t* number :
       {&raw->generation, &raw->m, &raw->batch.base, &size}) {
    if (in.Number(number)) continue;
    if (in.left() > 0) return Fail(in.offset(), "a number above 64 bits");
    return CutOff(raw->generation != 0 ? raw->generation : current_);
  }
  if (raw->generation == 0) return Fail(raw->offset, "a batch of generation 0");
  if (size > kMaxBatchSize) {
    return Fail(raw->offset, absl::StrCat("a batch of ", size,
                                          " bytes; at most 65536 are allowed"));
  }
  raw->batch.offset = in.offset();
  if (!in.Bytes(size, &raw->batch.data)) return CutOff(raw->generation);
  next_ = in.offset();
  return true;
}

// ---- Generations ------------------------------------------------------------

bool Reader::Next(Generation* generation) {
  if (done_) return false;
  Generation g;
  g.version = version_;
  g.offset = next_;
  current_ = 0;
  has_clock_ = false;
  frames_.clear();
  thread_index_.clear();
  if (!Collect(&g)) return false;
  last_ = current_;
  *generation = std::move(g);
  return true;
}

// Collect reads batches until the generation ends: at its mark from version
// 1.26 on, and before that at a batch of the next one or at the end of the
// file.
bool Reader::Collect(Generation* g) {
  for (;;) {
    if (next_ == bytes_.size() && (version_ < 26 || current_ == 0)) {
      done_ = true;
      if (current_ != 0) return CheckWhole(g);
      if (last_ == 0) return CutOff(0);  // nothing but a header
      return false;
    }
    RawBatch raw;
    if (!ReadBatch(&raw)) {
      if (cut_off_ && CutOffNext(raw, *g)) return CheckWhole(g);
      return false;
    }
    if (raw.end) {
      if (current_ == 0) return Fail(raw.offset, "the end of no generation");
      return CheckWhole(g);
    }
    if (current_ == 0) {
      const bool follows =
          version_ < 26 ? raw.generation == last_ + 1 : raw.generation > last_;
      if (last_ != 0 && !follows) {
        return Fail(raw.offset, absl::StrCat("generation ", raw.generation,
                                             " follows generation ", last_));
      }
      current_ = g->number = raw.generation;
    }
    if (raw.generation != current_) {
      if (version_ < 26 && raw.generation == current_ + 1) {
        next_ = raw.offset;  // read again by the next call
        return CheckWhole(g);
      }
      return Fail(raw.offset, absl::StrCat("a batch of generation ",
                                           raw.generation, " is mixed in"));
    }
    if (!Add(raw, g)) return false;
  }
}

// The batch in which the file ends may belong to the generation after g. In
// this case g is whole, if g needs no mark at its end.
bool Reader::CutOffNext(const RawBatch& raw, const Generation& g) {
  return version_ < 26 && current_ != 0 && raw.generation == g.number + 1;
}

bool Reader::CheckWhole(Generation* g) {
  // Nothing after the last batch of a file tells that the generation is whole.
  // A generation without a clock is not.
  if (g->hertz == 0 || (version_ >= 25 && !has_clock_)) {
    if (next_ == bytes_.size()) return CutOff(current_);
    return Fail(g->offset, g->hertz == 0
                               ? "the generation has no Frequency"
                               : "the generation has no ClockSnapshot");
  }
  for (CpuSample& sample : g->samples) sample.ns = g->Nanoseconds(sample.ns);
  return CheckFrames(*g);
}

bool Reader::CheckFrames(const Generation& g) {
  for (const auto& [pc, frame] : frames_) {
    for (uint64_t id : {frame.function, frame.file}) {
      if (g.String(id).has_value()) continue;
      return Fail(g.offset,
                  absl::StrCat("the frame at pc ", pc, " refers to string ", id,
                               ", which is not defined"));
    }
  }
  for (const CpuSample& sample : g.samples) {
    if (g.HasStack(sample.stack)) continue;
    return Fail(g.offset, absl::StrCat("a CPUSample refers to stack ",
                                       sample.stack, ", which is not defined"));
  }
  return true;
}

bool Reader::Add(const RawBatch& raw, Generation* g) {
  ++g->batches;
  const absl::string_view data = raw.batch.data;
  if (raw.experimental || data.empty()) return true;
  if (Is(data, Ev::kStrings)) return AddStrings(raw, g);
  if (Is(data, Ev::kStacks)) return AddStacks(raw, g);
  if (Is(data, Ev::kCpuSamples)) return AddSamples(raw, g);
  if (Is(data, version_ >= 25 ? Ev::kSync : Ev::kFrequency)) {
    return AddClock(raw, g);
  }
  const auto [it, added] = thread_index_.try_emplace(raw.m, g->threads.size());
  if (added) g->threads.push_back({raw.m, {}});
  g->threads[it->second].second.push_back(raw.batch);
  return true;
}

// ---- Structural batches -----------------------------------------------------

bool Reader::AddStrings(const RawBatch& raw, Generation* g) {
  Cursor in(raw.batch.data, raw.batch.offset);
  uint8_t type = 0;
  in.Byte(&type);
  while (!in.done()) {
    const size_t offset = in.offset();
    uint64_t id, size;
    absl::string_view text;
    in.Byte(&type);
    if (type != static_cast<uint8_t>(Ev::kString)) {
      return Fail(offset,
                  absl::StrCat("event ", int{type}, " in a batch of strings"));
    }
    if (!in.Number(&id) || !in.Number(&size)) {
      return Fail(offset, "a String without its id or size");
    }
    if (size > kMaxString) {
      return Fail(offset, absl::StrCat("string ", id, " has ", size,
                                       " bytes; at most 1024 are allowed"));
    }
    if (!in.Bytes(size, &text)) {
      return Fail(offset, absl::StrCat("string ", id, " leaves its batch"));
    }
    if (id == 0)
      return Fail(offset, "string 0 is defined, but means no string");
    if (!g->strings.try_emplace(id, text).second) {
      return Fail(offset, absl::StrCat("string ", id, " is defined twice"));
    }
  }
  return true;
}

bool Reader::AddStacks(const RawBatch& raw, Generation* g) {
  Cursor in(raw.batch.data, raw.batch.offset);
  uint8_t type = 0;
  in.Byte(&type);
  while (!in.done()) {
    const size_t offset = in.offset();
    uint64_t id, count;
    in.Byte(&type);
    if (type != static_cast<uint8_t>(Ev::kStack)) {
      return Fail(offset,
                  absl::StrCat("event ", int{type}, " in a batch of stacks"));
    }
    if (!in.Number(&id) || !in.Number(&count)) {
      return Fail(offset, "a Stack without its id or size");
    }
    if (count > kMaxFrames) {
      return Fail(offset, absl::StrCat("stack ", id, " has ", count,
                                       " frames; at most 128 are allowed"));
    }
    std::vector<Frame> frames(count);
    for (Frame& f : frames) {
      if (!in.Number(&f.pc) || !in.Number(&f.function) || !in.Number(&f.file) ||
          !in.Number(&f.line)) {
        return Fail(offset, absl::StrCat("stack ", id, " leaves its batch"));
      }
      const auto [it, added] = frames_.try_emplace(f.pc, f);
      if (!added && it->second != f) {
        return Fail(offset, absl::StrCat("stack ", id, ": the frame at pc ",
                                         f.pc, " differs from an earlier one"));
      }
    }
    if (id == 0) return Fail(offset, "stack 0 is defined, but means no stack");
    if (!g->stacks.try_emplace(id, std::move(frames)).second) {
      return Fail(offset, absl::StrCat("stack ", id, " is defined twice"));
    }
  }
  return true;
}

bool Reader::AddSamples(const RawBatch& raw, Generation* g) {
  Cursor in(raw.batch.data, raw.batch.offset);
  uint8_t type = 0;
  in.Byte(&type);
  while (!in.done()) {
    const size_t offset = in.offset();
    CpuSample s;
    in.Byte(&type);
    if (type != static_cast<uint8_t>(Ev::kCpuSample)) {
      return Fail(offset,
                  absl::StrCat("event ", int{type}, " in a batch of samples"));
    }
    // The ticks become nanoseconds when the frequency is known.
    if (!in.Number(&s.ns) || !in.Number(&s.m) || !in.Number(&s.p) ||
        !in.Number(&s.g) || !in.Number(&s.stack)) {
      return Fail(offset, "a CPUSample leaves its batch");
    }
    if (s.g == 0) s.g = kNoId;
    g->samples.push_back(s);
  }
  return true;
}

bool Reader::AddClock(const RawBatch& raw, Generation* g) {
  Cursor in(raw.batch.data, raw.batch.offset);
  uint8_t type = 0;
  if (version_ >= 25) in.Byte(&type);
  while (!in.done()) {
    const size_t offset = in.offset();
    in.Byte(&type);
    if (type == static_cast<uint8_t>(Ev::kFrequency)) {
      if (g->hertz != 0) return Fail(offset, "a second Frequency");
      if (!in.Number(&g->hertz)) return Fail(offset, "a Frequency is cut off");
      if (g->hertz == 0) return Fail(offset, "a Frequency of 0");
    } else if (version_ >= 25 &&
               type == static_cast<uint8_t>(Ev::kClockSnapshot)) {
      if (has_clock_) return Fail(offset, "a second ClockSnapshot");
      has_clock_ = true;
      uint64_t number;
      for (int i = 0; i < 4; ++i) {  // the time, mono, and two for the wall
        if (!in.Number(&number))
          return Fail(offset, "a ClockSnapshot is cut off");
      }
    } else {
      return Fail(offset,
                  absl::StrCat("event ", int{type}, " beside the Frequency"));
    }
  }
  return true;
}

}  // namespace trace_tool
