// Slabs: memory over mmap that is never freed.
//
// Invariants:
//  (A1) A byte is handed out once. Its owner may recycle it, but only as the
//       same type (mem.h).
//  (A2) Every byte is zero when it is handed out, because chunks are fresh
//       anonymous memory.
//
// Rejected: malloc. A goroutine may be switched away, or its thread stopped,
// anywhere in the user's allocator, and the scheduler must still be able to
// work then.
#include "runtime/sys/mem.h"

#include "runtime/sched/mlocks.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/root_range.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {
namespace {

constexpr size_t kChunkSize = 1 << 20;
// Larger requests get a mapping of their own, so that at most a quarter of a
// chunk is lost at its end.
constexpr size_t kMaxChunked = kChunkSize / 4;

// The chunk that is being carved. A holder of the lock calls nothing but
// reserve.
struct Persistent {
  Mutex lock{LockRank::kMem};
  uintptr_t next ABSL_GUARDED_BY(lock) = 0;
  uintptr_t end ABSL_GUARDED_BY(lock) = 0;
  RootRange roots ABSL_GUARDED_BY(lock){kChunkSize};
};
constinit Persistent persistent;

// named gives the n bytes at p their name, if there are any, and returns p.
void* named(void* p, size_t n) {
  if (p != nullptr) sysName(p, n, "gump: runtime");
  return p;
}
Atomic<uint64_t> mapped;  // a figure

void* reserve(size_t n) ABSL_EXCLUSIVE_LOCKS_REQUIRED(persistent.lock) {
  if (!sanitizerReadsStacks()) return named(sysReserve(n), n);
  if (const uintptr_t p = persistent.roots.map(n)) {
    return named(reinterpret_cast<void*>(p), n);
  }
  void* p = sysReserve(n);
  if (p != nullptr) sanitizerRootRegion(p, n);
  return named(p, n);
}

// count counts n bytes at p, if there is memory. Returns p.
void* count(void* p, size_t n) {
  if (p != nullptr) mapped.add(n, relaxed);
  return p;
}

}  // namespace

uint64_t persistentBytes() { return mapped.load(relaxed); }

void meminit() {
  if (!sanitizerReadsStacks()) return;
  LockScope scope(&persistent.lock);
  persistent.roots.init();
}

void* persistentalloc(size_t n, size_t align) {
  const bool chunked = n <= kMaxChunked;
  if (!chunked && !sanitizerReadsStacks()) {
    const size_t pages = alignUp(n, kPageSize);
    return count(named(sysReserve(pages), pages), pages);
  }
  LockScope scope(&persistent.lock);
  if (!chunked)
    return count(reserve(alignUp(n, kPageSize)), alignUp(n, kPageSize));
  uintptr_t p = alignUp(persistent.next, align);
  if (p + n > persistent.end) {
    void* chunk = count(reserve(kChunkSize), kChunkSize);
    if (chunk == nullptr) return nullptr;
    p = reinterpret_cast<uintptr_t>(chunk);
    persistent.end = p + kChunkSize;
  }
  persistent.next = p + n;
  return reinterpret_cast<void*>(p);
}

}  // namespace gump::rt
