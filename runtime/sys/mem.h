// Memory that never comes from malloc: type-stable slabs over mmap. The owner
// recycles cells through its own free list, and never gives memory back to
// another type. So a stale pointer to a G, M or P gives a wrong answer, not a
// fault.
#ifndef RUNTIME_SYS_MEM_H_
#define RUNTIME_SYS_MEM_H_

#include <cstddef>
#include <cstdint>
#include <new>

#include "runtime/sys/base.h"

namespace gump::rt {

// meminit prepares what LeakSanitizer needs (root_range.h). Called by
// schedinit.
void meminit();
// persistentalloc returns n zeroed bytes that live as long as the process,
// aligned to align (a power of two, at most a page). Returns nullptr if the
// kernel has no memory.
// On: any.  P: either.  Locks: takes a kMem lock.  Parks: no.
[[nodiscard]] void* persistentalloc(size_t n, size_t align);

// persistentBytes is the size of all memory that persistentalloc has mapped.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] uint64_t persistentBytes();

template <class T>
[[nodiscard]] T* persistentallocOf() {
  void* p = persistentalloc(sizeof(T), alignof(T));
  return p == nullptr ? nullptr : new (p) T();
}

}  // namespace gump::rt

#endif  // RUNTIME_SYS_MEM_H_
