// The rt::Atomic of the model checker. Every access is a point at which another
// thread may run, and goes through tests/model/seam.cc. GUMP_ATOMIC_HEADER puts
// it in the place of the ordinary one, so the checker explores the library's
// own code.
#ifndef TESTS_MODEL_ATOMIC_H_
#define TESTS_MODEL_ATOMIC_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gump::model {

// The operations of the seam. size is the size of the word in bytes. Outside of
// an exploration they are plain accesses.
uint64_t atomicLoad(const void* addr, unsigned size, std::memory_order order);
void atomicStore(void* addr, unsigned size, uint64_t value,
                 std::memory_order order);
enum class Rmw : uint8_t { kXchg, kAdd, kAnd, kOr };
// atomicRmw returns the old value.
uint64_t atomicRmw(void* addr, unsigned size, Rmw op, uint64_t arg,
                   std::memory_order order);
// atomicCas leaves the value that it saw in *expected.
bool atomicCas(void* addr, unsigned size, uint64_t* expected, uint64_t desired,
               std::memory_order order);
void atomicFence(std::memory_order order);

}  // namespace gump::model

namespace gump::rt {

inline constexpr std::memory_order relaxed = std::memory_order_relaxed;
inline constexpr std::memory_order acquire = std::memory_order_acquire;
inline constexpr std::memory_order release = std::memory_order_release;
inline constexpr std::memory_order acq_rel = std::memory_order_acq_rel;
inline constexpr std::memory_order seq_cst = std::memory_order_seq_cst;

template <class T>
class Atomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);

 public:
  constexpr Atomic() noexcept : v_() {}
  explicit constexpr Atomic(T v) noexcept : v_(v) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order order) const noexcept {
    return value(model::atomicLoad(&v_, sizeof(T), order));
  }
  void store(T v, std::memory_order order) noexcept {
    model::atomicStore(&v_, sizeof(T), bits(v), order);
  }
  T xchg(T v, std::memory_order order) noexcept {
    return rmw(model::Rmw::kXchg, v, order);
  }
  bool cas(T expected, T desired, std::memory_order order) noexcept {
    return casWeak(expected, desired, order);
  }
  bool casWeak(T& expected, T desired, std::memory_order order) noexcept {
    uint64_t seen = bits(expected);
    const bool done =
        model::atomicCas(&v_, sizeof(T), &seen, bits(desired), order);
    if (!done) expected = value(seen);
    return done;
  }
  T add(T delta, std::memory_order order) noexcept {
    return static_cast<T>(rmw(model::Rmw::kAdd, delta, order) + delta);
  }
  T and_(T mask, std::memory_order order) noexcept {
    return rmw(model::Rmw::kAnd, mask, order);
  }
  T or_(T mask, std::memory_order order) noexcept {
    return rmw(model::Rmw::kOr, mask, order);
  }
  void* rawAddress() noexcept { return &v_; }

 private:
  static uint64_t bits(T v) noexcept {
    uint64_t b = 0;
    memcpy(&b, &v, sizeof(T));
    return b;
  }
  static T value(uint64_t b) noexcept {
    T v;
    memcpy(static_cast<void*>(&v), &b, sizeof(T));
    return v;
  }
  T rmw(model::Rmw op, T arg, std::memory_order order) noexcept {
    return value(model::atomicRmw(&v_, sizeof(T), op, bits(arg), order));
  }

  T v_;
};

inline void fence(std::memory_order order) noexcept {
  model::atomicFence(order);
}
// Reordering by the compiler is not explored, only the accesses themselves are.
inline void compilerFence() noexcept {}

}  // namespace gump::rt

#endif  // TESTS_MODEL_ATOMIC_H_
