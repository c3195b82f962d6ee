// The window for gump/trace.h. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_TRACE_H_
#define GUMP_INTERNAL_LINKNAME_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// traceStart begins a trace into fd. If `owned`, traceStop closes fd. Returns
// false if a trace is being written already. Parks.
[[nodiscard]] bool traceStart(int fd, bool owned) noexcept;
// A TraceSink takes the next n bytes of a trace. n is 0 at the end of a
// generation: what the sink has got by then is a whole trace. Returns false if
// it takes no more. Then the rest of the trace is lost. It is called where the
// thread has no P, so it must not park. It throws nothing.
using TraceSink = bool (*)(void* arg, const void* bytes, size_t n);
// traceStartTo begins a trace that goes to sink(arg, ...). Returns false if a
// trace is being written already. Parks.
[[nodiscard]] bool traceStartTo(TraceSink sink, void* arg) noexcept;
// traceStop ends the trace, if there is one, and returns when the file has all
// of it. traceStopTo does so if it is a trace of traceStartTo with this arg.
// After that no sink is called with this arg, even if another thread has ended
// the trace. Both park.
void traceStop() noexcept;
void traceStopTo(const void* arg) noexcept;
[[nodiscard]] bool traceEnabled() noexcept;

// The flight recorder keeps what has happened in the last minAge nanoseconds,
// in about maxBytes. traceRecorderStart returns false if there is one already.
// traceRecorderWrite writes it all. Returns the number of bytes, or -errno; it
// is -EBADF if there is none. All three park.
[[nodiscard]] bool traceRecorderStart(int64_t minAge, size_t maxBytes) noexcept;
void traceRecorderStop() noexcept;
[[nodiscard]] int64_t traceRecorderWrite(int fd) noexcept;

// tracesAnnotations returns true while regions and messages go anywhere.
[[nodiscard]] bool tracesAnnotations() noexcept;
// traceTaskBegin returns the number of a new task, whether or not a trace is
// being written. 0 is the parent of tasks that have none. These four may park.
[[nodiscard]] uint64_t traceTaskBegin(uint64_t parent,
                                      std::string_view type) noexcept;
void traceTaskEnd(uint64_t id) noexcept;
// traceRegion writes the begin or the end of a region of the goroutine. Returns
// false if it has written nothing.
bool traceRegion(uint64_t task, bool begins, std::string_view type) noexcept;
void traceLog(uint64_t task, std::string_view category,
              std::string_view message) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_TRACE_H_
