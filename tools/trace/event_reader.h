// Reads a whole trace: one generation after the other, and the events of each
// in an order that keeps all rules.
//
//   absl::StatusOr<EventReader> reader = EventReader::Open(bytes);
//   if (!reader.ok()) return reader.status();
//   while (reader->Next()) {
//     reader->ForEachEvent([&](const Event& e) { Use(e); });
//   }
//   return reader->status();
#ifndef TOOLS_TRACE_EVENT_READER_H_
#define TOOLS_TRACE_EVENT_READER_H_

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/trace/order.h"
#include "tools/trace/reader.h"

namespace trace_tool {

class EventReader {
 public:
  // Open is Reader::Open.
  static absl::StatusOr<EventReader> Open(absl::string_view bytes);

  // Next reads the next generation. Returns false at the end, or if something
  // is wrong.
  bool Next();
  // generation returns the generation that Next has read.
  const Generation& generation() const { return generation_; }
  // ForEachEvent calls use(event) for each event of that generation, in order.
  // Returns false if an event breaks a rule; it has used the events before that
  // one. Requires: it is called once for each generation, and for each, because
  // the state at its beginning comes from the generations before.
  bool ForEachEvent(absl::FunctionRef<void(const Event&)> use);

  // status returns what is wrong and where, or OK. A trace that is not whole is
  // wrong, too: see cut_off of Reader.
  const absl::Status& status() const {
    return broken_.ok() ? reader_.status() : broken_;
  }
  bool cut_off() const { return broken_.ok() && reader_.cut_off(); }
  int version() const { return reader_.version(); }

 private:
  explicit EventReader(Reader reader) : reader_(std::move(reader)) {}

  Reader reader_;
  Order order_;
  Generation generation_;
  absl::Status broken_;  // the rule that the events break, or OK
};

}  // namespace trace_tool

#endif  // TOOLS_TRACE_EVENT_READER_H_
