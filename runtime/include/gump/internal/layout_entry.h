// LayoutEntry: one fact for debuggers. The tables gump_rt_layout (runtime) and
// gump_context_layout (contexts) consist of these. tools/gdb/gump_gdb.py reads
// them from a process or a core.
#ifndef GUMP_INTERNAL_LAYOUT_ENTRY_H_
#define GUMP_INTERNAL_LAYOUT_ENTRY_H_

#include <cstdint>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// Most facts are numbers: offsets, sizes, values of enumerations. `address` is
// that of an object of the library, or nullptr. A table ends with a null name.
struct LayoutEntry {
  const char* name;
  uint64_t number;
  const void* address;
};

}  // namespace gump::rt

#pragma GCC visibility pop

// A table is an exported C symbol, so that a debugger finds it in a stripped
// shared library as well.
#define GUMP_LAYOUT_TABLE                                 \
  extern "C" __attribute__((visibility("default"), used)) \
  const ::gump::rt::LayoutEntry

#endif  // GUMP_INTERNAL_LAYOUT_ENTRY_H_
