#include "tests/tools/trace/made_trace.h"

#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace trace_tool {

namespace {

char Byte(Ev type) { return static_cast<char>(type); }

}  // namespace

uint8_t TypeOf(absl::string_view name) {
  for (int type = 1; type < 256; ++type) {
    if (SpecOf(static_cast<uint8_t>(type)).name == name) {
      return static_cast<uint8_t>(type);
    }
  }
  return 0;
}

std::string MadeTrace::Number(uint64_t number) {
  std::string out;
  for (; number >= 0x80; number >>= 7) {
    out.push_back(static_cast<char>(number | 0x80));
  }
  out.push_back(static_cast<char>(number));
  return out;
}

MadeTrace::MadeTrace(int version) : version_(version) {
  bytes_ = absl::StrCat("go 1.", version, " trace");
  bytes_.append(3, '\0');
}

MadeTrace& MadeTrace::Generation(uint64_t number) {
  BareGeneration(number);
  std::string clock;
  if (version_ >= 25) clock.push_back(Byte(Ev::kSync));
  clock.push_back(Byte(Ev::kFrequency));
  clock += Number(1'000'000'000);
  if (version_ >= 25) {
    clock.push_back(Byte(Ev::kClockSnapshot));
    for (const uint64_t n : {0u, 5u, 6u, 7u}) clock += Number(n);
  }
  return Batch(kNoId, clock);
}

MadeTrace& MadeTrace::BareGeneration(uint64_t number) {
  EndGeneration();
  generation_ = number;
  return *this;
}

MadeTrace& MadeTrace::M(uint64_t m, absl::string_view events) {
  const uint64_t base = now_;
  std::string data;
  for (absl::string_view event : absl::StrSplit(events, ',')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(event, ' ', absl::SkipWhitespace());
    size_t i = 0;
    uint64_t delta = 10;
    if (absl::ConsumePrefix(&event, "+") || words[0][0] == '+') {
      EXPECT_TRUE(absl::SimpleAtoi(words[i++].substr(1), &delta));
    }
    const uint8_t type = TypeOf(words[i++]);
    EXPECT_NE(type, 0) << event;
    data.push_back(static_cast<char>(type));
    data += Number(delta);
    now_ += delta;
    EXPECT_EQ(words.size() - i, SpecOf(type).args) << event;
    for (; i < words.size(); ++i) {
      uint64_t argument = kNoId;
      if (words[i] != "none") {
        EXPECT_TRUE(absl::SimpleAtoi(words[i], &argument)) << event;
      }
      data += Number(argument);
    }
  }
  const uint64_t after = now_;
  now_ = base;
  Batch(m, data);
  now_ = after;
  return *this;
}

MadeTrace& MadeTrace::At(uint64_t ns) {
  now_ = ns;
  return *this;
}

MadeTrace& MadeTrace::String(uint64_t id, absl::string_view text) {
  absl::StrAppend(&strings_, std::string(1, Byte(Ev::kString)), Number(id),
                  Number(text.size()), text);
  return *this;
}

MadeTrace& MadeTrace::Stack(uint64_t id, std::vector<Frame> frames) {
  absl::StrAppend(&stacks_, std::string(1, Byte(Ev::kStack)), Number(id),
                  Number(frames.size()));
  for (const Frame& f : frames) {
    for (uint64_t n : {f.pc, f.function, f.file, f.line}) stacks_ += Number(n);
  }
  return *this;
}

MadeTrace& MadeTrace::Batch(uint64_t m, absl::string_view data) {
  bytes_.push_back(Byte(Ev::kEventBatch));
  for (uint64_t n : {generation_, m, now_, uint64_t{data.size()}}) {
    bytes_ += Number(n);
  }
  absl::StrAppend(&bytes_, data);
  return *this;
}

MadeTrace& MadeTrace::Raw(absl::string_view bytes) {
  absl::StrAppend(&bytes_, bytes);
  return *this;
}

MadeTrace& MadeTrace::WithoutEnd() {
  end_mark_ = false;
  return *this;
}

void MadeTrace::EndGeneration() {
  if (generation_ == 0) return;
  if (!stacks_.empty()) Batch(kNoId, Byte(Ev::kStacks) + stacks_);
  if (!strings_.empty()) Batch(kNoId, Byte(Ev::kStrings) + strings_);
  stacks_.clear();
  strings_.clear();
  if (version_ >= 26 && end_mark_) bytes_.push_back(Byte(Ev::kEndOfGeneration));
  generation_ = 0;
}

std::string MadeTrace::Bytes() {
  EndGeneration();
  return bytes_;
}

}  // namespace trace_tool
