// Spawn: the common part of the functions that start a goroutine.
#ifndef GUMP_INTERNAL_SPAWN_H_
#define GUMP_INTERNAL_SPAWN_H_

#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include "gump/internal/closure.h"
#include "gump/internal/linkname_go.h"
#include "gump/internal/linkname_thread.h"

#pragma GCC visibility push(default)

namespace gump::runtime {
class Thread;
}

namespace gump::internal {

[[noreturn]] void PanicNoStack();         // after a newproc that has failed
[[noreturn]] void PanicThreadAndGroup();  // after a go with both options
[[noreturn]] void PanicRunActive();       // after a runMain that has failed

// CopyName returns a copy made by malloc, or nullptr for an empty name. Throws
// std::bad_alloc.
char* CopyName(std::string_view name);
// Free is the deleter for such a copy.
struct Free {
  void operator()(char* p) const { std::free(p); }
};

// HomeOf returns what the runtime knows a Thread by, or nullptr for nullptr.
rt::Home* HomeOf(const runtime::Thread* thread) noexcept;

// NewProc is newproc, or newprocOn if the goroutine belongs to a Thread.
__attribute__((always_inline)) inline rt::SpawnResult NewProc(
    const rt::FuncType* type, void* closure, const rt::SpawnOptions* options,
    uintptr_t pc) {
  return options != nullptr && options->thread != nullptr
             ? rt::newprocOn(type, closure, options, pc)
             : rt::newproc(type, closure, options, pc);
}

// Spawn starts a goroutine that calls a C made of parts. Panics if there is no
// memory for the goroutine. The public functions that call Spawn, and Spawn
// itself, are inlined into the user's function, so that pc lies there.
template <class C, class... Parts>
__attribute__((always_inline)) inline void Spawn(
    const rt::SpawnOptions* options, uintptr_t pc, Parts&&... parts) {
  rt::SpawnResult result;
  if constexpr (kFitsInG<C>) {
    alignas(C) unsigned char raw[sizeof(C)];
    C* c = ::new (raw) C(C::Of(std::forward<Parts>(parts)...));
    result = NewProc(&kInPlace<C>, c, options, pc);
    if (result != rt::SpawnResult::kOk) c->~C();
  } else {
    C* c = new C(C::Of(std::forward<Parts>(parts)...));
    result = NewProc(&kOnHeap<C>, &c, options, pc);
    if (result != rt::SpawnResult::kOk) delete c;
  }
  if (result != rt::SpawnResult::kOk) PanicNoStack();
}

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_SPAWN_H_
