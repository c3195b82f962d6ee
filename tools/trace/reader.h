// Reads the structure of a trace: generation by generation, the batches of each
// M, strings, stacks and the clock.
//
//   absl::StatusOr<Reader> reader = Reader::Open(bytes);
//   if (!reader.ok()) return reader.status();
//   Generation generation;
//   while (reader->Next(&generation)) Use(generation);
//   if (!reader->status().ok()) Report(reader->status());
//
// The events of a generation may still contradict each other. Order (order.h)
// checks that.
#ifndef TOOLS_TRACE_READER_H_
#define TOOLS_TRACE_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/trace/format.h"

namespace trace_tool {

struct Frame {
  uint64_t pc = 0;
  uint64_t function = 0;  // ids of strings
  uint64_t file = 0;
  uint64_t line = 0;
  bool operator==(const Frame&) const = default;
};

struct CpuSample {
  uint64_t ns = 0;
  uint64_t m = kNoId, p = kNoId, g = kNoId;
  uint64_t stack = 0;
};

// The events of one M, as they are in the file.
struct Batch {
  uint64_t base = 0;       // the time before the first event, in ticks
  absl::string_view data;  // points into the bytes of the reader
  size_t offset = 0;       // of data, in the file
};

struct Generation {
  uint64_t number = 0;
  int version = 0;     // 22, 23, 25 or 26
  size_t offset = 0;   // of its first batch
  uint64_t hertz = 0;  // ticks for each second
  size_t batches = 0;
  std::vector<std::pair<uint64_t, std::vector<Batch>>> threads;
  absl::flat_hash_map<uint64_t, absl::string_view> strings;
  absl::flat_hash_map<uint64_t, std::vector<Frame>> stacks;  // innermost first
  std::vector<CpuSample> samples;

  // String returns the text of a string, which is "" for the id 0. Returns
  // nullopt for an id without a string.
  std::optional<absl::string_view> String(uint64_t id) const;
  bool HasStack(uint64_t id) const { return id == 0 || stacks.contains(id); }
  // Nanoseconds converts a time or a duration.
  uint64_t Nanoseconds(uint64_t ticks) const;
};

// Cursor reads numbers and bytes of a part of the file.
class Cursor {
 public:
  // offset is the place of data in the file.
  Cursor(absl::string_view data, size_t offset)
      : next_(data.data()),
        end_(data.data() + data.size()),
        begin_(next_),
        offset_(offset) {}
  bool done() const { return next_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - next_); }
  size_t offset() const {
    return offset_ + static_cast<size_t>(next_ - begin_);
  }
  // Each returns false at the end. Number also returns false for a number that
  // does not fit 64 bits.
  bool Byte(uint8_t* byte) {
    if (next_ == end_) return false;
    *byte = static_cast<uint8_t>(*next_++);
    return true;
  }
  bool Number(uint64_t* number) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      uint8_t byte;
      if (!Byte(&byte)) return false;
      if (shift == 63 && byte > 1) return false;
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) {
        *number = value;
        return true;
      }
    }
    return false;
  }
  bool Bytes(size_t size, absl::string_view* bytes) {
    if (left() < size) return false;
    *bytes = {next_, size};
    next_ += size;
    return true;
  }

 private:
  const char* next_;
  const char* end_;
  const char* begin_;
  size_t offset_;
};

class Reader {
 public:
  // Open checks the header. The bytes must outlive the reader and its
  // generations.
  static absl::StatusOr<Reader> Open(absl::string_view bytes);

  // Next reads the next whole generation. Returns false at the end. Then
  // status() is OK if the trace is whole. If a generation is not whole, or its
  // structure is damaged, status() says where. Next has returned all
  // generations before that.
  bool Next(Generation* generation);
  const absl::Status& status() const { return status_; }

  // cut_off returns true if status() is not OK because the file ends in the
  // middle. A process that dies while it writes a trace leaves such a file.
  bool cut_off() const { return cut_off_; }
  int version() const { return version_; }

 private:
  struct RawBatch {
    bool end = false;  // the mark at the end of a generation
    bool experimental = false;
    uint64_t generation = 0;
    uint64_t m = 0;
    Batch batch;
    size_t offset = 0;  // of its first byte
  };

  Reader(absl::string_view bytes, int version);
  bool Fail(size_t offset, absl::string_view what);
  bool CutOff(uint64_t generation);
  bool ReadBatch(RawBatch* raw);
  bool Collect(Generation* g);
  bool CutOffNext(const RawBatch& raw, const Generation& g);
  bool Add(const RawBatch& raw, Generation* g);
  bool AddStrings(const RawBatch& raw, Generation* g);
  bool AddStacks(const RawBatch& raw, Generation* g);
  bool AddSamples(const RawBatch& raw, Generation* g);
  bool AddClock(const RawBatch& raw, Generation* g);
  bool CheckWhole(Generation* g);
  bool CheckFrames(const Generation& g);

  absl::string_view bytes_;
  int version_;
  size_t next_ = kHeaderSize;  // the offset of the next batch
  uint64_t current_ = 0;       // the generation that is being read
  uint64_t last_ = 0;          // the one before it
  bool has_clock_ = false;
  absl::flat_hash_map<uint64_t, Frame> frames_;  // of this generation
  absl::flat_hash_map<uint64_t, size_t> thread_index_;
  bool done_ = false;
  bool cut_off_ = false;
  absl::Status status_;
};

}  // namespace trace_tool

#endif  // TOOLS_TRACE_READER_H_
