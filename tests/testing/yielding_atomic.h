// An rt::Atomic that now and then gives way before an access, so that
// operations of other threads fall between any two accesses. It is for tests of
// headers that need no compiled part of the library, with
// GUMP_ATOMIC_HEADER="tests/testing/yielding_atomic.h".
#ifndef TESTS_TESTING_YIELDING_ATOMIC_H_
#define TESTS_TESTING_YIELDING_ATOMIC_H_

#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace gump::rt {

inline constexpr std::memory_order relaxed = std::memory_order_relaxed;
inline constexpr std::memory_order acquire = std::memory_order_acquire;
inline constexpr std::memory_order release = std::memory_order_release;
inline constexpr std::memory_order acq_rel = std::memory_order_acq_rel;
inline constexpr std::memory_order seq_cst = std::memory_order_seq_cst;

// GiveWay yields before one access in eight, at random, and sleeps before one
// in 128, long enough for other threads to do a lot. If the thread has set
// before_access, GiveWay calls that instead. The accesses of that function are
// not announced.
inline thread_local std::function<void()>* before_access = nullptr;

inline void GiveWay() {
  if (before_access != nullptr) {
    std::function<void()>* const f = std::exchange(before_access, nullptr);
    (*f)();
    before_access = f;
    return;
  }
  thread_local uint64_t state = reinterpret_cast<uintptr_t>(&state) | 1;
  state = state * 6364136223846793005 + 1442695040888963407;
  const uint64_t r = state >> 57;
  if (r == 0) {
    const timespec moment = {0, 1000};
    nanosleep(&moment, nullptr);
  } else if (r < 16) {
    sched_yield();
  }
}

template <class T>
class Atomic {
 public:
  constexpr Atomic() noexcept : v_() {}
  explicit constexpr Atomic(T v) noexcept : v_(v) {}

  T load(std::memory_order order) const noexcept {
    GiveWay();
    return v_.load(order);
  }
  void store(T v, std::memory_order order) noexcept {
    GiveWay();
    v_.store(v, order);
  }
  bool cas(T expected, T desired, std::memory_order order) noexcept {
    GiveWay();
    return v_.compare_exchange_strong(expected, desired, order,
                                      std::memory_order_relaxed);
  }
  bool casWeak(T& expected, T desired, std::memory_order order) noexcept {
    GiveWay();
    return v_.compare_exchange_weak(expected, desired, order,
                                    std::memory_order_relaxed);
  }
  T add(T delta, std::memory_order order) noexcept {
    GiveWay();
    return static_cast<T>(v_.fetch_add(delta, order) + delta);
  }
  T or_(T mask, std::memory_order order) noexcept {
    GiveWay();
    return v_.fetch_or(mask, order);
  }

 private:
  std::atomic<T> v_;
};

}  // namespace gump::rt

#endif  // TESTS_TESTING_YIELDING_ATOMIC_H_
