// The operations of channels: the code between the functions of chan<T> and its
// views, and the runtime. gump/chan.h says what those functions promise.
#ifndef GUMP_INTERNAL_CHAN_OPS_H_
#define GUMP_INTERNAL_CHAN_OPS_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "gump/internal/chan_element.h"
#include "gump/internal/linkname_chan.h"

#pragma GCC visibility push(default)

namespace gump {

template <class T>
struct RecvResult;

namespace internal {

[[noreturn]] void PanicSendOnClosedChannel();
[[noreturn]] void PanicMakechan();
void CheckClose(rt::CloseResult r);  // panics unless kOk

// ConvertsTo: a U converts to the element type T.
template <class U, class T>
concept ConvertsTo = std::is_convertible_v<U&&, T>;

// ---- Sending ----------------------------------------------------------------
// *elem is a T to move from, or elem is nullptr on a chan<void>.

inline void ChanSend(rt::Hchan* c, void* elem) {
  if (rt::chansend(c, elem, /*block=*/true) != rt::ChanResult::kOk)
      [[unlikely]] {
    PanicSendOnClosedChannel();
  }
}

// ChanTrySend sends if it need not wait. Returns whether it did.
inline bool ChanTrySend(rt::Hchan* c, void* elem) {
  const rt::ChanResult r = rt::chansend(c, elem, /*block=*/false);
  if (r == rt::ChanResult::kClosed) [[unlikely]]
    PanicSendOnClosedChannel();
  return r == rt::ChanResult::kOk;
}

// ChanTrySendCopy is ChanTrySend for a value that must not be moved from.
template <class T>
inline bool ChanTrySendCopy(rt::Hchan* c, const T& v) {
  static_assert(std::is_copy_constructible_v<T>,
                "TrySend copies what is not an rvalue; use std::move");
  if constexpr (kPlainElement<T>) {
    return ChanTrySend(c, const_cast<T*>(std::addressof(v)));  // only read
  } else {
    T copy(v);
    return ChanTrySend(c, std::addressof(copy));
  }
}

// ---- Receiving --------------------------------------------------------------

// RecvOptional receives into `out`. Requires: `out` is empty. Afterwards `out`
// is empty unless the result is kOk.
template <class T>
rt::ChanResult RecvOptional(rt::Hchan* c, std::optional<T>& out, bool block) {
  if constexpr (kCheapToMake<T>) {
    rt::ChanResult r = rt::chanrecv(c, std::addressof(out.emplace()), block);
    if (r != rt::ChanResult::kOk) out.reset();
    return r;
  } else {
    RawSlot<T> slot;
    rt::ChanResult r = rt::chanrecv(c, std::addressof(slot.value), block);
    if (r == rt::ChanResult::kOk) {
      SlotGuard<T> guard{slot};
      out.emplace(std::move(slot.value));
    }
    return r;
  }
}

template <class T>
inline std::optional<T> ChanRecv(rt::Hchan* c) {
  if constexpr (kCheapToMake<T> && sizeof(T) <= sizeof(uint64_t)) {
    // The value is written and read by itself. A std::optional would be copied
    // as one word, and the load of that word would wait for the stores of its
    // two parts.
    RawSlot<T> slot;
    if (rt::chanrecv(c, std::addressof(slot.value), /*block=*/true) !=
        rt::ChanResult::kOk) {
      return std::nullopt;
    }
    return std::optional<T>(std::in_place, slot.value);
  } else {
    std::optional<T> v;
    const rt::ChanResult r = RecvOptional(c, v, /*block=*/true);
    // g++ 12 warns at -O2 that copying an empty optional reads its contents.
    if constexpr (kPlainElement<T> && sizeof(T) <= sizeof(uint64_t)) {
      if (r != rt::ChanResult::kOk) return std::nullopt;
    }
    return v;
  }
}

template <class T>
inline bool ChanRecvInto(rt::Hchan* c, T& out) {
  static_assert(std::is_move_assignable_v<T>,
                "Recv(T&) assigns; use Recv() for this element type");
  if constexpr (kWrittenInPlace<T>) {
    return rt::chanrecv(c, std::addressof(out), /*block=*/true) ==
           rt::ChanResult::kOk;
  } else {
    RawSlot<T> slot;
    if (rt::chanrecv(c, std::addressof(slot.value), /*block=*/true) !=
        rt::ChanResult::kOk) {
      return false;
    }
    SlotGuard<T> guard{slot};
    out = std::move(slot.value);
    return true;
  }
}

template <class T>
inline RecvResult<T> ChanTryRecv(rt::Hchan* c) {
  using Result = RecvResult<T>;
  Result result{Result::kValue, std::nullopt};
  const rt::ChanResult r = RecvOptional(c, result.value, /*block=*/false);
  if (r == rt::ChanResult::kWouldBlock) result.kind = Result::kEmpty;
  if (r == rt::ChanResult::kClosed) result.kind = Result::kClosed;
  return result;
}

// ChanIterator is the input iterator of a range-based for. It holds the value
// that it received last. Its constructor and ++ receive the next value, and so
// may park.
template <class T>
class ChanIterator {
 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;
  explicit ChanIterator(rt::Hchan* c) : c_(c) { ++*this; }
  T&& operator*() const { return std::move(*v_); }
  ChanIterator& operator++() {
    v_.reset();
    RecvOptional(c_, v_, /*block=*/true);
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const ChanIterator& it, std::default_sentinel_t) {
    return !it.v_.has_value();
  }

 private:
  rt::Hchan* c_;
  mutable std::optional<T> v_;
};

}  // namespace internal
}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_CHAN_OPS_H_
