// The elements of channels: functions with which the runtime moves and destroys
// them, and raw storage for one.
#ifndef GUMP_INTERNAL_CHAN_ELEMENT_H_
#define GUMP_INTERNAL_CHAN_ELEMENT_H_

#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "gump/internal/linkname_chan.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// kPlainElement: a T may be copied as bytes.
template <class T>
inline constexpr bool kPlainElement = std::is_trivially_copyable_v<T>;
// kWrittenInPlace: a received T may be written over an existing value. Some
// plain elements may not, because the padding of a base class, or of a
// [[no_unique_address]] member, may hold another object.
template <class T>
inline constexpr bool kWrittenInPlace =
    kPlainElement<T> &&
    (std::is_scalar_v<T> || std::has_unique_object_representations_v<T>);
// kCheapToMake: constructing a T before one is received costs nothing.
template <class T>
inline constexpr bool kCheapToMake =
    kPlainElement<T>&& std::is_trivially_default_constructible_v<T> &&
    sizeof(T) <= 64;

template <class T>
void MoveElement(void* dst, void* src) noexcept {
  ::new (dst) T(std::move(*static_cast<T*>(src)));
}
template <class T>
void DestroyElement(void* elem) noexcept {
  static_cast<T*>(elem)->~T();
}

template <class T>
constexpr rt::ElemType MakeElemType() {
  static_assert(std::is_object_v<T> && std::is_same_v<T, std::remove_cv_t<T>>,
                "gump::chan<T>: T must be an object type without const");
  static_assert(std::is_nothrow_move_constructible_v<T>,
                "gump::chan<T>: T must be nothrow-move-constructible, because "
                "values are moved while the channel is locked; declare its "
                "move constructor noexcept, or send a std::unique_ptr<T>");
  static_assert(std::is_nothrow_destructible_v<T>,
                "gump::chan<T>: the destructor of T must not throw");
  if constexpr (kPlainElement<T>) {
    return {sizeof(T), alignof(T), nullptr, nullptr};
  } else {
    return {sizeof(T), alignof(T), MoveElement<T>,
            std::is_trivially_destructible_v<T> ? nullptr : DestroyElement<T>};
  }
}
template <>
constexpr rt::ElemType MakeElemType<void>() {
  return {};
}
template <class T>
inline constexpr rt::ElemType kElemType = MakeElemType<T>();

// RawSlot is room for a T. Its owner keeps track of whether the T exists.
template <class T>
union RawSlot {
  RawSlot() {}
  ~RawSlot() {}
  T value;
};
// SlotGuard destroys the value of a RawSlot at the end of a scope.
template <class T>
struct SlotGuard {
  RawSlot<T>& slot;
  ~SlotGuard() { slot.value.~T(); }
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_CHAN_ELEMENT_H_
