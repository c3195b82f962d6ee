// Writes a trace as one HTML page that needs nothing else: no network, and no
// other file.
#ifndef TOOLS_TRACE_HTML_H_
#define TOOLS_TRACE_HTML_H_

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "tools/trace/model.h"

namespace trace_tool {

// WriteHtml passes the page to `write`, piece by piece. The title is the name
// of the trace.
void WriteHtml(const Model& model, absl::string_view title,
               absl::FunctionRef<void(absl::string_view)> write);

// The parts of the page: tools/trace/page, without data.
extern const char kPageHead[];
extern const char kPageBody[];
extern const char kPageScript[];

}  // namespace trace_tool

#endif  // TOOLS_TRACE_HTML_H_
