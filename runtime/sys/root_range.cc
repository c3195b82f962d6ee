// A bitmap of blocks, searched from where the last search ended.
#include "runtime/sys/root_range.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <initializer_list>

#include "runtime/sys/base.h"
#include "runtime/sys/raw_syscall.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {
namespace {

// mapOver replaces what is mapped at p by fresh memory, or by addresses that
// cannot be accessed. It keeps errno, and is not inlined (see KeepErrno).
GUMP_NOINLINE bool mapOver(uintptr_t p, size_t n, int protection) {
  const int saved = errno;
  void* const at =
      mmap(reinterpret_cast<void*>(p), n, protection,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  errno = saved;
  return at != MAP_FAILED;
}

// reserveAddresses reserves n addresses. It does so without libc, whose mmap
// some sanitizers replace by one that prepares all n bytes for use. Returns 0
// if the kernel refuses.
uintptr_t reserveAddresses(size_t n) {
  const long p = rawSyscall(SYS_mmap, 0, static_cast<long>(n), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p < 0 && p > -4096 ? 0 : static_cast<uintptr_t>(p);
}

}  // namespace

void RootRange::init() {
  if (tried_) return;
  tried_ = true;
  constexpr size_t kFewest = 64;  // less is not worth it
  for (size_t n = kBlocks; n >= kFewest; n /= 2) {
    const uintptr_t p = reserveAddresses((n + 1) * block_);
    if (p == 0) continue;
    base_ = alignUp(p, block_);
    blocks_ = n;
    sanitizerRootRegion(reinterpret_cast<const void*>(base_), n * block_);
    return;
  }
}

// find returns the first of n free blocks, or blocks_ if there are not as many
// in a row. It looks from next_ to the end first, and then at all of them.
size_t RootRange::find(size_t n) const {
  for (const size_t from : {next_, size_t{0}}) {
    size_t run = 0;
    for (size_t i = from; i < blocks_; i++) {
      run = isUsed(i) ? 0 : run + 1;
      if (run == n) return i + 1 - n;
    }
  }
  return blocks_;
}

void RootRange::set(size_t first, size_t n, bool used) {
  for (size_t i = first; i < first + n; i++) {
    const uint64_t bit = uint64_t{1} << (i % 64);
    used_[i / 64] = used ? used_[i / 64] | bit : used_[i / 64] & ~bit;
  }
}

uintptr_t RootRange::map(size_t n) {
  const size_t need = alignUp(n, block_) / block_;
  const size_t first = find(need);
  if (first == blocks_) return 0;
  const uintptr_t p = base_ + first * block_;
  // The block counts as used even if the call fails. A kernel may have unmapped
  // the addresses by then, and another mapping of the process may have them.
  set(first, need, true);
  next_ = first + need;
  return mapOver(p, n, PROT_READ | PROT_WRITE) ? p : 0;
}

bool RootRange::hide(uintptr_t p, size_t n) { return mapOver(p, n, PROT_NONE); }

void RootRange::free(uintptr_t p, size_t n) {
  set((p - base_) / block_, alignUp(n, block_) / block_, false);
}

}  // namespace gump::rt
