// The layout of glibc's heaps that the walk expects. A chunk at p has its size
// at p + 8, with three flags in the low bits, and its block begins at p + 16
// and ends 8 bytes behind the next chunk's address. The main heap begins at the
// first break. Each other heap begins at a multiple of its greatest size with a
// header, whose third word is the size now. Behind the header the first heap of
// an arena has the arena itself, whose size depends on the version. So the walk
// tries all beginnings in the first page. A large block has a mapping of its
// own, with the flag kMappedChunk.
//
// A chunk is free if the next one says so, or if it is in the cache of a
// thread. The cache is a block with 64 counts of chunks and 64 lists, for
// chunks of 32, 48, ... bytes. Links are encoded (kLinkShift). If the walk did
// not know caches, a freed block would keep alive the nodes to which it still
// refers.
#include "runtime/diag/leak_heap.h"

#include <algorithm>

#include "runtime/sys/sanitizer.h"

namespace gump::rt {

namespace {

constexpr uintptr_t kSizeFlags = 7;
constexpr uintptr_t kMappedChunk = 2;
constexpr uintptr_t kChunkHeader = 16;
constexpr uintptr_t kChunkOverlap = 8;  // of a block and the next chunk
constexpr uintptr_t kLeastChunk = 32;
constexpr uintptr_t kHeapAlign = 64 << 20;
constexpr uintptr_t kPreviousInUse = 1;
constexpr int kLinkShift = 12;

// TCache is a cache of a thread.
struct TCache {
  static constexpr size_t kLists = 64;

  uint16_t counts[kLists];
  uintptr_t lists[kLists];  // addresses of blocks
};
constexpr uintptr_t kTCacheChunk = sizeof(TCache) + kChunkHeader;

// An element of the table of chunks is an address, with this bit if the chunk
// is free.
constexpr uintptr_t kFreeBit = 1;
uintptr_t addressOfChunk(uintptr_t chunk) { return chunk & ~kFreeBit; }

}  // namespace

bool LeakHeap::hasExact() { return sanitizerKnowsBlocks(); }

Span LeakHeap::shadow() {
  Span s;
  sanitizerShadow(&s.lo, &s.hi);
  return s;
}

LeakHeap::Found LeakHeap::findExact(uintptr_t addr, Span* block) const {
  uintptr_t begin;
  size_t size;
  switch (sanitizerBlockOf(addr, &begin, &size)) {
    case SanitizerBlock::kNone:
      return Found::kNothing;
    case SanitizerBlock::kFree:
      return Found::kFree;
    case SanitizerBlock::kAllocated:
      *block = {begin, begin + size};
      return Found::kBlock;
  }
  return Found::kNothing;
}

uintptr_t* LeakHeap::chunkOf(uintptr_t addr) const {
  const Mapping* m = std::upper_bound(
      mappings_->begin(), mappings_->end(), addr,
      [](uintptr_t a, const Mapping& other) { return a < other.hi; });
  if (m == mappings_->end() || addr < m->lo || m->chunks == 0) return nullptr;
  uintptr_t* first = chunks_->begin() + m->firstChunk;
  uintptr_t* last = first + m->chunks;  // the last element is the end
  uintptr_t* next = std::upper_bound(
      first, last, addr - kChunkOverlap,
      [](uintptr_t a, uintptr_t chunk) { return a < addressOfChunk(chunk); });
  return next == first || next == last ? nullptr : next - 1;
}

LeakHeap::Found LeakHeap::find(uintptr_t addr, Span* block) {
  if (exact_) return findExact(addr, block);
  const uintptr_t* chunk = chunkOf(addr);
  if (chunk == nullptr) return Found::kNothing;
  *block = {addressOfChunk(chunk[0]) + kChunkHeader,
            addressOfChunk(chunk[1]) + kChunkOverlap};
  if (addr < block->lo) return Found::kNothing;  // the header
  return chunk[0] == addressOfChunk(chunk[0]) ? Found::kBlock : Found::kFree;
}

uintptr_t LeakHeap::heapEnd(uintptr_t at, uintptr_t limit) {
  const uintptr_t arena = wordAt(at);
  const uintptr_t previous = wordAt(at + 8);
  const uintptr_t size = wordAt(at + 16);
  const bool looksLikeIt = arena != 0 && previous % kHeapAlign == 0 &&
                           size != 0 && size % kPageSize == 0 &&
                           size <= std::min(kHeapAlign, limit - at);
  return looksLikeIt ? at + size : 0;
}

void LeakHeap::cut(Mapping m, Table<Mapping>* to) {
  if (hasExact() || !m.anonymous) return to->push(m);
  const uintptr_t end = m.hi;
  for (uintptr_t at = alignUp(m.lo, kHeapAlign); at < end; at += kHeapAlign) {
    const uintptr_t heap = heapEnd(at, end);
    if (heap == 0) continue;
    m.hi = at;
    if (m.lo < m.hi) to->push(m);
    m.lo = at;
    m.hi = heap;
    to->push(m);
    m.lo = heap;
  }
  m.hi = end;
  if (m.lo < m.hi) to->push(m);
}

void LeakHeap::prepare() {
  if (hasExact()) return;  // its heap is not glibc's
  for (Mapping& m : *mappings_) walk(&m);
  for (const Mapping& m : *mappings_) {
    uintptr_t* chunk = chunks_->begin() + m.firstChunk;
    for (size_t i = 0; i + 1 < m.chunks; i++, chunk++) {
      const uintptr_t size =
          addressOfChunk(chunk[1]) - addressOfChunk(chunk[0]);
      if (size == kTCacheChunk) freeCached(chunk);
    }
  }
}

void LeakHeap::freeCached(uintptr_t* chunk) {
  TCache cache;
  if (!memory_->read(addressOfChunk(*chunk) + kChunkHeader, &cache,
                     sizeof(cache))) {
    return;
  }
  bool any = false;
  for (size_t i = 0; i < TCache::kLists; i++) {
    if ((cache.counts[i] == 0) != (cache.lists[i] == 0)) return;
    if (cache.lists[i] == 0) continue;
    const uintptr_t* first = chunkOf(cache.lists[i]);
    if (first == nullptr ||
        addressOfChunk(first[0]) + kChunkHeader != cache.lists[i] ||
        addressOfChunk(first[1]) - addressOfChunk(first[0]) !=
            kLeastChunk + i * kChunkHeader) {
      return;
    }
    any = true;
  }
  if (!any) return;
  *chunk |= kFreeBit;
  for (size_t i = 0; i < TCache::kLists; i++) {
    uintptr_t block = cache.lists[i];
    for (size_t n = cache.counts[i]; n > 0 && block != 0; n--) {
      uintptr_t* one = chunkOf(block);
      if (one == nullptr || addressOfChunk(*one) + kChunkHeader != block) break;
      *one |= kFreeBit;
      block = wordAt(block) ^ (block >> kLinkShift);
    }
  }
}

uintptr_t LeakHeap::wordAt(uintptr_t addr) {
  const uintptr_t page = addr - addr % sizeof(window_);
  if (page != windowLo_) {
    windowLo_ = page;
    if (!memory_->read(page, window_, sizeof(window_))) {
      windowLo_ = 1;
      return 0;
    }
  }
  return window_[(addr - page) / sizeof(window_[0])];
}

void LeakHeap::walk(Mapping* m) {
  m->firstChunk = chunks_->size();
  if (!m->anonymous) return;
  if ((wordAt(m->lo + 8) & kMappedChunk) != 0) return walkMapped(m);
  const uintptr_t last = std::min(m->lo + kPageSize, m->hi);
  for (uintptr_t at = m->lo; at < last; at += kChunkHeader) {
    if (walkFrom(m, at, m->hi)) return;
  }
}

bool LeakHeap::walkFrom(Mapping* m, uintptr_t at, uintptr_t end) {
  constexpr size_t kFew = 3;  // fewer chunks prove nothing
  while (at < end) {
    const uintptr_t head = wordAt(at + 8);
    const uintptr_t size = head & ~kSizeFlags;
    if ((head & kPreviousInUse) == 0 && chunks_->size() > m->firstChunk) {
      chunks_->end()[-1] |= kFreeBit;
    }
    if (size < kLeastChunk || size % kChunkHeader != 0 || size > end - at ||
        chunks_->full()) {
      chunks_->truncate(m->firstChunk);
      return false;
    }
    chunks_->push(at);
    at += size;
  }
  if (chunks_->size() - m->firstChunk < kFew) {
    chunks_->truncate(m->firstChunk);
    return false;
  }
  m->chunks = chunks_->size() - m->firstChunk;
  chunks_->push(end);
  m->chunks++;
  return true;
}

void LeakHeap::walkMapped(Mapping* m) {
  uintptr_t at = m->lo;
  while (at < m->hi) {
    const uintptr_t head = wordAt(at + 8);
    const uintptr_t size = head & ~kSizeFlags;
    if ((head & kSizeFlags) != kMappedChunk || size == 0 ||
        size % kPageSize != 0 || size > m->hi - at) {
      break;
    }
    chunks_->push(at);
    at += size;
  }
  if (at == m->lo) return;
  chunks_->push(at);
  m->chunks = chunks_->size() - m->firstChunk;
}

}  // namespace gump::rt
