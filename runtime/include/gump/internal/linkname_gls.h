// The window for gump/gls.h. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_GLS_H_
#define GUMP_INTERNAL_LINKNAME_GLS_H_

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// LocalNode is an element of the list of a goroutine's values, newest first.
// glsSet allocates its nodes. The nodes of scopes (linkname_scope.h) and of
// pprof::Do (linkname_pprof.h) lie in objects of the caller.
struct LocalNode {
  const void* key = nullptr;
  void* value = nullptr;
  void (*destroy)(void*) = nullptr;
  LocalNode* next = nullptr;  // set before this one
};

// glsGet returns the value that the current goroutine or foreign thread has for
// key, or nullptr.
void* glsGet(const void* key) noexcept;
// glsSet stores value under key. When the goroutine or foreign thread ends,
// destroy(value) runs. The values of several keys are destroyed in reverse
// order of first use. An earlier value of key is not destroyed. Returns false
// if there is no memory.
[[nodiscard]] bool glsSet(const void* key, void* value,
                          void (*destroy)(void*)) noexcept;

// glsDestroyAll destroys the values of the current goroutine or foreign thread,
// in reverse order of first use, as at its end. A goroutine calls it before it
// reports to another goroutine that it has ended. Parks as the destructors do.
void glsDestroyAll();

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_GLS_H_
