// The atomics seam: the place where a model-checking build puts its own
// atomics. Every atomic word of the library is a gump::rt::Atomic<T>, and every
// access names its memory order.
//
// There are no operators and no default orders. An access that does not name
// its order does not compile. A model-checking build defines
// GUMP_ATOMIC_HEADER, and so puts its own Atomic in place of this one. No other
// file of the library mentions std::atomic, so the code that a model checks is
// the code that runs.
#ifndef GUMP_INTERNAL_ATOMIC_H_
#define GUMP_INTERNAL_ATOMIC_H_

#include <atomic>

#include "gump/internal/compiler.h"

#if defined(GUMP_ATOMIC_HEADER)
#include GUMP_ATOMIC_HEADER
#else

#pragma GCC visibility push(default)

namespace gump::rt {

inline constexpr std::memory_order relaxed = std::memory_order_relaxed;
inline constexpr std::memory_order acquire = std::memory_order_acquire;
inline constexpr std::memory_order release = std::memory_order_release;
inline constexpr std::memory_order acq_rel = std::memory_order_acq_rel;
inline constexpr std::memory_order seq_cst = std::memory_order_seq_cst;

// Atomic is one shared word. It is zero unless initialised otherwise, so that
// structs of atomics can live in zeroed slabs.
template <class T>
class Atomic {
 public:
  constexpr Atomic() noexcept : v_() {}
  explicit constexpr Atomic(T v) noexcept : v_(v) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order order) const noexcept { return v_.load(order); }
  void store(T v, std::memory_order order) noexcept { v_.store(v, order); }
  // xchg returns the value that it replaced.
  T xchg(T v, std::memory_order order) noexcept {
    return v_.exchange(v, order);
  }
  // cas stores desired if the word equals expected, and returns whether it did.
  // It never fails spuriously.
  bool cas(T expected, T desired, std::memory_order order) noexcept {
    return v_.compare_exchange_strong(expected, desired, order,
                                      std::memory_order_relaxed);
  }
  // casWeak is a cas that may fail spuriously. On every failure it stores in
  // `expected` the value that it saw.
  bool casWeak(T& expected, T desired, std::memory_order order) noexcept {
    return v_.compare_exchange_weak(expected, desired, order,
                                    std::memory_order_relaxed);
  }
  // add returns the new value, as Go's atomics do.
  T add(T delta, std::memory_order order) noexcept {
    return static_cast<T>(v_.fetch_add(delta, order) + delta);
  }
  // and_ and or_ return the value before the change.
  T and_(T mask, std::memory_order order) noexcept {
    return v_.fetch_and(mask, order);
  }
  T or_(T mask, std::memory_order order) noexcept {
    return v_.fetch_or(mask, order);
  }
  // rawAddress is for the kernel (futex words) and for tests. No access goes
  // through it.
  void* rawAddress() noexcept { return &v_; }

 private:
  std::atomic<T> v_;
};

// fence is a thread fence. The comment at each use names both sides of the
// pattern that the fence completes.
inline void fence(std::memory_order order) noexcept {
  std::atomic_thread_fence(order);
}
// compilerFence keeps the compiler, not the processor, from moving accesses
// across it.
inline void compilerFence() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_ATOMIC_HEADER
#endif  // GUMP_INTERNAL_ATOMIC_H_
