// The window for gump/debug.h: facts about each goroutine. linkname.h gives the
// rules.
#ifndef GUMP_INTERNAL_LINKNAME_DEBUG_H_
#define GUMP_INTERNAL_LINKNAME_DEBUG_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"
#include "gump/internal/linkname_pprof.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// GoroutineInfo describes a goroutine, or a plain thread that is parked. Texts
// end in NUL, and are empty if there is nothing to say. All is valid during the
// visit.
struct GoroutineInfo {
  uint64_t id = 0;
  uint64_t parent = 0;     // the goroutine that started it; 0: none, or unknown
  const char* state = "";  // waiting, runnable, running or syscall
  const char* reason = "";  // what it waits for, as it stands in dumps
  int64_t wait_ns = -1;     // since a dump first saw it waiting; -1: not known
  const char* name = "";    // GoOptions::name, at most 47 bytes
  const LabelSet* labels = nullptr;
  bool in_group = false;
  const char* group = "";  // the name of its Group, at most 39 bytes
  bool in_scope = false;
  const char* scope = "";    // the name of its Scope, at most 47 bytes
  uint64_t scope_owner = 0;  // the goroutine that made the scope
  // The stack, as in StackRecord: the innermost frames and the outermost ones,
  // with `lost` frames in between, which would follow pcs[before_lost - 1].
  const uintptr_t* pcs = nullptr;
  size_t n = 0;
  size_t before_lost = 0;
  uint64_t lost = 0;
  uintptr_t creator = 0;  // an address in the function that called go(), or 0
};

// A GoroutineVisitor is called with one goroutine after the other, on the
// caller's goroutine, with no lock held and while the world runs. It throws
// nothing.
using GoroutineVisitor = void (*)(void* arg, const GoroutineInfo& info);

// visitGoroutineInfos visits each goroutine of the program, as they are at one
// moment, and each plain thread that is parked. It stops the world as
// stackDump does. Returns how many goroutines there was no memory for.
[[nodiscard]] uint64_t visitGoroutineInfos(GoroutineVisitor visit,
                                           void* arg) noexcept;

// locationText writes the module of pc and the offset in it, as a dump prints
// them below a function, to out. It writes no NUL, and returns the size. The
// text is cut at `size`.
size_t locationText(uintptr_t pc, char* out, size_t size) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_DEBUG_H_
