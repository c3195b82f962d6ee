// Import slots: the words through which the modules of a process call functions
// of other modules (the GOT). A diagnostic puts its own function into the slots
// of a function, without any cost for programs that do not ask for it.
#ifndef RUNTIME_SYS_IMPORT_SLOTS_H_
#define RUNTIME_SYS_IMPORT_SLOTS_H_

#include <cstddef>

#include "runtime/sys/atomic.h"

namespace gump::rt {

// Import is a function that modules import by name.
struct Import {
  const char* name;
  void* replacement;
  // The function that calls reached before. Set by redirectImports. nullptr if
  // there is none.
  Atomic<void*>* original;
};

// Redirected says what redirectImports has done.
struct Redirected {
  size_t slots = 0;  // that lead to a replacement
  // The program defines one of the functions itself, so its own calls go
  // through no slot. Nothing has been redirected.
  bool defined_by_program = false;
};

// redirectImports makes all modules that are loaded now call the replacements.
// It first sets each `original`. Calls that are under way, pointers to the
// functions, and the calls inside libc stay as they are. The pages with the
// slots stay writable. It may miss a module that another thread is loading.
// On: any.  P: either.  Locks: none (the loader's).  Parks: no.
Redirected redirectImports(const Import* imports, size_t n);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_IMPORT_SLOTS_H_
