// The blocks of the heap, as the goroutineleak profile finds them. C++ has no
// map of the heap, so there are two ways:
//
//  * AddressSanitizer tells the block of an address, and whether it is
//    allocated. Its answers are exact.
//  * Otherwise the heaps of glibc are walked: each chunk begins with its size.
//    A heap counts as one of glibc's if the walk from its first chunk ends
//    exactly where the heap ends. That is a guess, because the layout is not a
//    part of any interface, another allocator may look alike, and some free
//    chunks are taken for blocks. Where it fails, there is no block.
#ifndef RUNTIME_DIAG_LEAK_HEAP_H_
#define RUNTIME_DIAG_LEAK_HEAP_H_

#include <cstddef>
#include <cstdint>

#include "runtime/diag/leak_memory.h"

namespace gump::rt {

class LeakHeap {
 public:
  enum class Found : uint8_t {
    kNothing,  // no block is known there
    kBlock,
    kFree,  // a block that is not allocated
  };

  // `mappings` are sorted. useExact says whether AddressSanitizer may be asked.
  // It takes locks, which no stopped thread may hold.
  LeakHeap(const ProcessMemory* memory, Table<Mapping>* mappings,
           Table<uintptr_t>* chunks, bool useExact)
      : memory_(memory),
        mappings_(mappings),
        chunks_(chunks),
        exact_(useExact && hasExact()) {}

  // hasExact returns true if the process has AddressSanitizer, so that exact
  // answers are possible.
  [[nodiscard]] static bool hasExact();
  // shadow returns where AddressSanitizer keeps its shadow, or nothing.
  [[nodiscard]] static Span shadow();

  bool exact() const { return exact_; }
  // cut appends m to *to, in parts with at most one heap each.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void cut(Mapping m, Table<Mapping>* to);
  // prepare walks the heaps. Nothing is found before that.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void prepare();
  // find finds the block around an address.
  // On: any.  P: either.  Locks: AddressSanitizer's.  Parks: no.
  Found find(uintptr_t addr, Span* block);

 private:
  Found findExact(uintptr_t addr, Span* block) const;
  // chunkOf returns the element of chunks_ for the chunk around addr, or
  // nullptr. The element behind it is the next chunk of that heap, or its end.
  uintptr_t* chunkOf(uintptr_t addr) const;
  // freeCached marks the chunks in a thread's cache as free, if the block of
  // the chunk at `chunk` is such a cache.
  void freeCached(uintptr_t* chunk);
  // walk adds the chunks of m, if it is a heap of glibc or has large blocks.
  void walk(Mapping* m);
  // walkFrom adds the chunks from `at` on. Returns false, and adds none, unless
  // they end at `end`.
  bool walkFrom(Mapping* m, uintptr_t at, uintptr_t end);
  // walkMapped adds the blocks of m that have mappings of their own.
  void walkMapped(Mapping* m);
  // heapEnd returns the end of the heap whose header is at `at`, or 0 if there
  // is none.
  uintptr_t heapEnd(uintptr_t at, uintptr_t limit);
  // wordAt reads a word through a window, or returns 0 if it cannot be read.
  uintptr_t wordAt(uintptr_t addr);

  const ProcessMemory* const memory_;
  Table<Mapping>* const mappings_;
  Table<uintptr_t>* const chunks_;
  const bool exact_;
  uintptr_t windowLo_ = 1;  // of wordAt
  uintptr_t window_[512] = {};
};

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_LEAK_HEAP_H_
