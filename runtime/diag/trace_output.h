// Where a trace goes: a generation in the file's format, the file or sink that
// gets it, and the flight recorder. The holder of traceSema (trace.cc) uses all
// of this.
#ifndef RUNTIME_DIAG_TRACE_OUTPUT_H_
#define RUNTIME_DIAG_TRACE_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "gump/internal/linkname_trace.h"
#include "runtime/diag/trace_buf.h"
#include "runtime/diag/trace_generation.h"

namespace gump::rt {

// TraceOutput is a generation in the file's format.
struct TraceOutput {
  const TraceHead* head;
  TraceBuf* events;
  std::string tail;
};

// TraceFile is the file, or the sink, that gets the generations from `first`
// on.
struct TraceFile {
  int fd = -1;
  bool owned = false;  // closed at the end
  TraceSink sink = nullptr;
  void* arg = nullptr;
  bool headerWritten = false;
  bool broken = false;  // a write has failed
  uint64_t first = 0;

  bool on() const { return fd >= 0 || sink != nullptr; }
  // add writes a generation, unless it is too early, or a write has failed.
  // On: user, or a foreign thread, in a declared call.  Parks: no.
  void add(uint64_t gen, const TraceOutput& o);
  // close closes the file if it is owned, and forgets it.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void close();
};

// TraceRecorder is a flight recorder: the last generations, in memory. It may
// start in a static constructor, and goes on when exit has run destructors.
struct TraceRecorder {
  struct Generation {
    Generation* next;  // the next newer one
    int64_t end;       // nanotime
    std::string bytes;
  };
  bool on = false;
  int64_t minAge = 0;
  size_t maxBytes = 0;
  size_t bytes = 0;  // of all generations
  Generation* oldest = nullptr;
  Generation* newest = nullptr;

  // add appends a generation, and drops those that ended more than minAge ago,
  // or that are too much for maxBytes. As in Go, maxBytes is a hint: one
  // generation is always kept. Throws std::bad_alloc.
  void add(const TraceOutput& o);
  void clear();
  // write writes a whole trace to fd. Returns its size, or -errno.
  // On: user, or a foreign thread, in a declared call.  Parks: no.
  int64_t write(int fd) const;

 private:
  void drop();  // the oldest
};
static_assert(std::is_trivially_destructible_v<TraceRecorder>);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACE_OUTPUT_H_
