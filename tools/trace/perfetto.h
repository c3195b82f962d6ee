// Writes a trace as JSON in Chrome's trace event format, which ui.perfetto.dev
// and chrome://tracing open.
#ifndef TOOLS_TRACE_PERFETTO_H_
#define TOOLS_TRACE_PERFETTO_H_

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "tools/trace/model.h"

namespace trace_tool {

// WritePerfetto passes the JSON to `write`, piece by piece. A track for each P
// shows the goroutines that it ran, and a track for each goroutine its states.
// Wake-ups are flows, and regions and tasks are asynchronous slices, because
// they need not nest with the states. Times are microseconds from the first
// event.
void WritePerfetto(const Model& model,
                   absl::FunctionRef<void(absl::string_view)> write);

}  // namespace trace_tool

#endif  // TOOLS_TRACE_PERFETTO_H_
