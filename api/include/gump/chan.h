// Channels: chan<T>, its directional views send_chan<T> and recv_chan<T>, and
// make_chan.
//
//   gump::chan<int> c = gump::make_chan<int>(16);   // or (), unbuffered
//   gump::go([c] {
//     for (int i = 0; i < 100; i++) c.Send(i);
//     c.Close();
//   });
//   int sum = 0;
//   for (int v : c) sum += v;                       // until closed and drained
//
// A chan<T> is a handle of one pointer: a copy is the same channel. When the
// last handle is destroyed, the values that are still queued are destroyed too.
// Operations are const, so a lambda may capture a handle by value. A
// default-constructed or null handle is the nil channel: sending to it and
// receiving from it block for ever.
//
// Requires: the caller holds a handle of its own during an operation. So
// capture a channel by value, not by reference, if another goroutine may drop
// its handle.
//
// An unbuffered channel hands a value from sender to receiver directly. A
// buffered channel queues up to Cap() values. Values arrive in the order in
// which they were sent, and waiting goroutines are served in the order in which
// they arrived.
//
// Requires: element types are nothrow-move-constructible. They may be
// move-only, over-aligned, large, or not default-constructible. Values are
// moved while the channel is locked, so a move constructor must not block.
// Destructors of values run after the channel is unlocked. chan<void> carries
// no value.
//
// All functions may be called from goroutines and from plain threads. A plain
// thread sleeps where a goroutine would park.
//
// Memory ordering, on a channel of capacity n:
//   * A send happens before the return of the receive that gets its value.
//   * The k-th receive happens before the return of the send k+n.
//   * Close happens before a receive that returns because of it.
#ifndef GUMP_CHAN_H_
#define GUMP_CHAN_H_

#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "gump/internal/chan_element.h"
#include "gump/internal/chan_handle.h"
#include "gump/internal/chan_ops.h"
#include "gump/internal/linkname_chan.h"

namespace gump {

template <class T>
class chan;
template <class T>
class send_chan;
template <class T>
class recv_chan;

// RecvResult is the result of TryRecv. `value` is set if and only if kind is
// kValue.
template <class T>
struct RecvResult {
  enum Kind { kValue, kEmpty, kClosed };
  Kind kind;
  std::optional<T> value;
};
template <>
struct RecvResult<void> {
  enum Kind { kValue, kEmpty, kClosed };
  Kind kind;
};

namespace internal {

// SendOps and RecvOps are the two halves of a channel's operations. A handle
// type inherits the halves that it has. On the nil channel, an operation that
// parks blocks for ever, and the others find nothing ready.
template <class T, class Base>
class SendOps : public Base {
 public:
  SendOps() noexcept = default;
  explicit SendOps(ChanHandle h) noexcept : Base(std::move(h)) {}

  // Send sends v. Parks until the channel has room or a receiver takes v.
  // Panics "send on closed channel".
  void Send(T v) const {
    if (rt::chansend(this->c_, std::addressof(v), true) != rt::ChanResult::kOk)
        [[unlikely]] {
      PanicSendOnClosedChannel();
    }
  }
  // TrySend sends v if it can do so without waiting, and never parks. Returns
  // false, and leaves the argument untouched, if it would have to wait. Panics
  // as Send does.
  bool TrySend(T&& v) const { return TrySendFrom(std::addressof(v)); }
  bool TrySend(const T& v) const {
    static_assert(std::is_copy_constructible_v<T>,
                  "TrySend copies what is not an rvalue; use std::move");
    if constexpr (kPlainElement<T>) {
      return TrySendFrom(const_cast<T*>(std::addressof(v)));  // only read
    } else {
      T copy(v);
      return TrySendFrom(std::addressof(copy));
    }
  }
  // Close closes the channel: receivers get the queued values and then
  // "closed". Never parks. Panics "close of closed channel" and "close of nil
  // channel".
  void Close() const { CheckClose(rt::closechan(this->c_)); }

 private:
  bool TrySendFrom(T* v) const {
    rt::ChanResult r = rt::chansend(this->c_, v, false);
    if (r == rt::ChanResult::kClosed) [[unlikely]]
      PanicSendOnClosedChannel();
    return r == rt::ChanResult::kOk;
  }
};

template <class Base>
class SendOps<void, Base> : public Base {
 public:
  SendOps() noexcept = default;
  explicit SendOps(ChanHandle h) noexcept : Base(std::move(h)) {}

  // Send, TrySend and Close are as above, without a value.
  void Send() const {
    if (rt::chansend(this->c_, nullptr, true) != rt::ChanResult::kOk)
        [[unlikely]] {
      PanicSendOnClosedChannel();
    }
  }
  bool TrySend() const {
    rt::ChanResult r = rt::chansend(this->c_, nullptr, false);
    if (r == rt::ChanResult::kClosed) [[unlikely]]
      PanicSendOnClosedChannel();
    return r == rt::ChanResult::kOk;
  }
  void Close() const { CheckClose(rt::closechan(this->c_)); }
};

template <class T, class Base>
class RecvOps : public Base {
 public:
  RecvOps() noexcept = default;
  explicit RecvOps(ChanHandle h) noexcept : Base(std::move(h)) {}

  // Recv receives the next value. Parks until there is one or the channel is
  // closed. Returns nullopt if the channel is closed and drained.
  std::optional<T> Recv() const {
    std::optional<T> v;
    const rt::ChanResult r = RecvOptional(this->c_, v, true);
    // g++ 12 warns at -O2 that copying an empty optional reads its contents.
    if constexpr (kPlainElement<T> && sizeof(T) <= sizeof(uint64_t)) {
      if (r != rt::ChanResult::kOk) return std::nullopt;
    }
    return v;
  }
  // Recv(out) receives into a variable. Parks as Recv() does. Returns false,
  // and leaves `out` untouched, if the channel is closed and drained. If the
  // move assignment of T throws, the exception passes through and the value is
  // lost.
  bool Recv(T& out) const {
    static_assert(std::is_move_assignable_v<T>,
                  "Recv(T&) assigns; use Recv() for this element type");
    if constexpr (kWrittenInPlace<T>) {
      return rt::chanrecv(this->c_, std::addressof(out), true) ==
             rt::ChanResult::kOk;
    } else {
      RawSlot<T> slot;
      if (rt::chanrecv(this->c_, std::addressof(slot.value), true) !=
          rt::ChanResult::kOk) {
        return false;
      }
      SlotGuard<T> guard{slot};
      out = std::move(slot.value);
      return true;
    }
  }
  // TryRecv receives a value if it can do so without waiting, and never parks.
  // Otherwise `kind` is kClosed if the channel is closed and drained, and
  // kEmpty if there is no value now.
  RecvResult<T> TryRecv() const {
    using Result = RecvResult<T>;
    Result result{Result::kValue, std::nullopt};
    rt::ChanResult r = RecvOptional(this->c_, result.value, false);
    if (r == rt::ChanResult::kWouldBlock) result.kind = Result::kEmpty;
    if (r == rt::ChanResult::kClosed) result.kind = Result::kClosed;
    return result;
  }
  // The same as Recv(out): while (c >> v) { ... }
  bool operator>>(T& out) const { return Recv(out); }

  // for (T v : c) receives until the channel is closed and drained. Each step
  // parks until there is a value. Requires: this handle, or a copy of it,
  // outlives the loop.
  class iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    explicit iterator(rt::Hchan* c) : c_(c) { ++*this; }
    T&& operator*() const { return std::move(*v_); }
    iterator& operator++() {
      v_.reset();
      RecvOptional(c_, v_, true);
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& it, std::default_sentinel_t) {
      return !it.v_.has_value();
    }

   private:
    rt::Hchan* c_;
    mutable std::optional<T> v_;
  };
  using sentinel = std::default_sentinel_t;
  iterator begin() const { return iterator(this->c_); }
  sentinel end() const { return {}; }
};

template <class Base>
class RecvOps<void, Base> : public Base {
 public:
  RecvOps() noexcept = default;
  explicit RecvOps(ChanHandle h) noexcept : Base(std::move(h)) {}

  // Recv parks until there is something to receive or the channel is closed.
  // Returns false if the channel is closed and drained.
  bool Recv() const {
    return rt::chanrecv(this->c_, nullptr, true) == rt::ChanResult::kOk;
  }
  // TryRecv is Recv without waiting. Never parks.
  RecvResult<void> TryRecv() const {
    rt::ChanResult r = rt::chanrecv(this->c_, nullptr, false);
    return {r == rt::ChanResult::kOk           ? RecvResult<void>::kValue
            : r == rt::ChanResult::kWouldBlock ? RecvResult<void>::kEmpty
                                               : RecvResult<void>::kClosed};
  }
};

}  // namespace internal

// chan is a handle to a channel of T that can send and receive.
template <class T>
class chan
    : public internal::SendOps<T, internal::RecvOps<T, internal::ChanHandle>> {
  using Ops = internal::SendOps<T, internal::RecvOps<T, internal::ChanHandle>>;

 public:
  using value_type = T;
  chan() noexcept = default;
  chan(std::nullptr_t) noexcept {}  // NOLINT: implicit, as nil
  explicit chan(rt::Hchan* adopted) noexcept
      : Ops(internal::ChanHandle(adopted)) {}

  // Send, chained: c << 1 << 2. Parks as Send does.
  template <class U>
  requires std::is_convertible_v<U&&, T> chan& operator<<(U&& v) {
    this->Send(std::forward<U>(v));
    return *this;
  }
  template <class U>
  requires std::is_convertible_v<U&&, T>
  const chan& operator<<(U&& v) const {
    this->Send(std::forward<U>(v));
    return *this;
  }

  friend bool operator==(const chan& a, const chan& b) noexcept {
    return a.c_ == b.c_;
  }
  friend void swap(chan& a, chan& b) noexcept { std::swap(a.c_, b.c_); }
  template <class H>
  friend H AbslHashValue(H h, const chan& c) {
    return H::combine(std::move(h), c.c_);
  }
};

// send_chan and recv_chan are views of a chan. A send_chan can only send and
// close; a recv_chan can only receive.
template <class T>
class send_chan : public internal::SendOps<T, internal::ChanHandle> {
 public:
  using value_type = T;
  send_chan() noexcept = default;
  send_chan(std::nullptr_t) noexcept {}  // NOLINT: implicit, as nil
  send_chan(chan<T> c) noexcept          // NOLINT: implicit, as in Go
      : internal::SendOps<T, internal::ChanHandle>(std::move(c)) {}

  // Send, chained: c << 1 << 2. Parks as Send does.
  template <class U>
  requires std::is_convertible_v<U&&, T>
  const send_chan& operator<<(U&& v) const {
    this->Send(std::forward<U>(v));
    return *this;
  }

  friend bool operator==(const send_chan& a, const send_chan& b) noexcept {
    return a.c_ == b.c_;
  }
  friend void swap(send_chan& a, send_chan& b) noexcept {
    std::swap(a.c_, b.c_);
  }
  template <class H>
  friend H AbslHashValue(H h, const send_chan& c) {
    return H::combine(std::move(h), c.c_);
  }
};

template <class T>
class recv_chan : public internal::RecvOps<T, internal::ChanHandle> {
 public:
  using value_type = T;
  recv_chan() noexcept = default;
  recv_chan(std::nullptr_t) noexcept {}  // NOLINT: implicit, as nil
  recv_chan(chan<T> c) noexcept          // NOLINT: implicit, as in Go
      : internal::RecvOps<T, internal::ChanHandle>(std::move(c)) {}

  friend bool operator==(const recv_chan& a, const recv_chan& b) noexcept {
    return a.c_ == b.c_;
  }
  friend void swap(recv_chan& a, recv_chan& b) noexcept {
    std::swap(a.c_, b.c_);
  }
  template <class H>
  friend H AbslHashValue(H h, const recv_chan& c) {
    return H::combine(std::move(h), c.c_);
  }
};

// make_chan makes a channel with room for cap values. A cap of 0 makes it
// unbuffered. Never parks. Panics "makechan: size out of range" if there is no
// memory for the channel, or if cap is above 4,294,967,295 and T is not void.
template <class T>
[[nodiscard]] chan<T> make_chan(size_t cap = 0) {
  rt::Hchan* c = rt::makechan(&internal::kElemType<T>, cap);
  if (c == nullptr) [[unlikely]]
    internal::PanicMakechan();
  return chan<T>(c);
}

}  // namespace gump

template <class T>
struct std::hash<gump::chan<T>> {
  size_t operator()(const gump::chan<T>& c) const noexcept {
    return std::hash<const void*>()(c.raw());
  }
};
template <class T>
struct std::hash<gump::send_chan<T>> {
  size_t operator()(const gump::send_chan<T>& c) const noexcept {
    return std::hash<const void*>()(c.raw());
  }
};
template <class T>
struct std::hash<gump::recv_chan<T>> {
  size_t operator()(const gump::recv_chan<T>& c) const noexcept {
    return std::hash<const void*>()(c.raw());
  }
};

#endif  // GUMP_CHAN_H_
