// Small traces made by hand.
#ifndef TESTS_TOOLS_TRACE_MADE_TRACE_H_
#define TESTS_TOOLS_TRACE_MADE_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/trace/format.h"
#include "tools/trace/reader.h"

namespace trace_tool {

// MadeTrace writes the wire format:
//
//   MadeTrace(23)
//       .Generation(1)
//       .M(7, "ProcStatus 0 1, GoStatus 1 7 2, +500 GoBlock 1 0")
//       .String(1, "sync")
//       .Bytes();
//
// An event is its name and its arguments. The time before it is 10 ns, or the
// number after a plus sign. An M with the number kNoId is no M.
class MadeTrace {
 public:
  explicit MadeTrace(int version = 23);

  // Ends the generation before, and begins this one with its clock.
  MadeTrace& Generation(uint64_t number);
  // The same without the clock.
  MadeTrace& BareGeneration(uint64_t number);
  MadeTrace& M(uint64_t m, absl::string_view events);
  // The events of the M begin at this time, and not where those of the last
  // batch ended.
  MadeTrace& At(uint64_t ns);
  MadeTrace& String(uint64_t id, absl::string_view text);
  MadeTrace& Stack(uint64_t id, std::vector<Frame> frames);
  // A batch with these bytes.
  MadeTrace& Batch(uint64_t m, absl::string_view data);
  // Bytes of the file.
  MadeTrace& Raw(absl::string_view bytes);
  // Without the mark at the end of the last generation.
  MadeTrace& WithoutEnd();

  std::string Bytes();
  // The size of the file as far as it is written.
  size_t size() const { return bytes_.size(); }

  static std::string Number(uint64_t number);

 private:
  void EndGeneration();

  int version_;
  uint64_t generation_ = 0;
  uint64_t now_ = 1000;
  bool end_mark_ = true;
  std::string bytes_, strings_, stacks_;
};

// The name of an event as a number, or 0.
uint8_t TypeOf(absl::string_view name);

}  // namespace trace_tool

#endif  // TESTS_TOOLS_TRACE_MADE_TRACE_H_
