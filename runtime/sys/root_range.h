// Address ranges that LeakSanitizer searches for pointers.
//
// LeakSanitizer has to know the memory in which goroutines keep pointers:
// stacks and slabs. It learns of memory by a call that takes its lock, and a
// leak check holds that lock to its end. The runtime must not wait for that
// lock. A goroutine may be preempted in place inside a leak check, and the
// thread that waits would hold a P, or a lock of the runtime, or be the handler
// that preempts a goroutine.
//
// So a range of addresses is reserved and told to LeakSanitizer when the
// runtime starts, before there are goroutines, and stacks and slabs lie in it.
// What is not in use is not readable, and LeakSanitizer passes over it.
//
// If the range cannot be reserved (ulimit -v), or is used up, its users map
// memory elsewhere and tell LeakSanitizer of each mapping. Then the runtime may
// wait for a leak check.
//
// Rejected: a list of mappings of which LeakSanitizer is told later, by a
// thread that may wait. A leak check that comes before that reports what those
// mappings point to.
#ifndef RUNTIME_SYS_ROOT_RANGE_H_
#define RUNTIME_SYS_ROOT_RANGE_H_

#include <cstddef>
#include <cstdint>

namespace gump::rt {

// RootRange is such a range, in blocks of one size. Its user guards it by a
// lock of its own. Without a sanitizer that reads stacks it is never used.
class RootRange {
 public:
  static constexpr size_t kBlocks = size_t{1} << 16;

  // block is a power of two, and at least a page.
  explicit constexpr RootRange(size_t block) : block_(block) {}

  // init reserves the addresses, once. Later calls do nothing.
  // On: any, while there is no goroutine.  P: either.  Locks: the user's, and
  // LeakSanitizer's.  Parks: no.
  void init();
  // map maps n zeroed bytes at a multiple of the block. Returns 0 if there are
  // no addresses left, or no memory.
  // On: any.  P: either.  Locks: the user's.  Parks: no.
  [[nodiscard]] uintptr_t map(size_t n);
  // hide gives the memory of a mapping back. Its addresses stay in use until
  // free is called. Returns false if the kernel refuses. Then free must not be
  // called, and the addresses are lost.
  // On: any.  P: either.  Locks: none.  Parks: no.
  [[nodiscard]] static bool hide(uintptr_t p, size_t n);
  // free makes the addresses of a hidden mapping usable again.
  // On: any.  P: either.  Locks: the user's.  Parks: no.
  void free(uintptr_t p, size_t n);
  // contains returns true if p, which map or another mapping has returned, is
  // in this range. Needs no lock after init.
  // On: any.  P: either.  Locks: none.  Parks: no.
  bool contains(uintptr_t p) const { return p - base_ < blocks_ * block_; }

 private:
  bool isUsed(size_t i) const { return (used_[i / 64] >> (i % 64) & 1) != 0; }
  void set(size_t first, size_t n, bool used);
  [[nodiscard]] size_t find(size_t n) const;

  const size_t block_;
  uintptr_t base_ = 0;
  size_t blocks_ = 0;  // 0: there is no range
  bool tried_ = false;
  size_t next_ = 0;  // where find begins
  uint64_t used_[kBlocks / 64] = {};
};

}  // namespace gump::rt

#endif  // RUNTIME_SYS_ROOT_RANGE_H_
