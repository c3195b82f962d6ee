// The window for gump/trace.h. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_TRACE_H_
#define GUMP_INTERNAL_LINKNAME_TRACE_H_

namespace gump::rt {

// traceStart begins a trace into fd. If `owned`, traceStop closes fd. Returns
// false if a trace is being written already. Parks.
[[nodiscard]] bool traceStart(int fd, bool owned) noexcept;
// traceStop ends the trace, if there is one, and returns when the file has all
// of it. Parks.
void traceStop() noexcept;
[[nodiscard]] bool traceEnabled() noexcept;

}  // namespace gump::rt

#endif  // GUMP_INTERNAL_LINKNAME_TRACE_H_
