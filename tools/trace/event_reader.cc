#include "tools/trace/event_reader.h"

namespace trace_tool {

absl::StatusOr<EventReader> EventReader::Open(absl::string_view bytes) {
  absl::StatusOr<Reader> reader = Reader::Open(bytes);
  if (!reader.ok()) return reader.status();
  return EventReader(*std::move(reader));
}

bool EventReader::Next() { return broken_.ok() && reader_.Next(&generation_); }

bool EventReader::ForEachEvent(absl::FunctionRef<void(const Event&)> use) {
  broken_ = order_.Run(generation_, use);
  return broken_.ok();
}

}  // namespace trace_tool
