// A channel carries values of one type between goroutines, and lets them wait
// for each other.
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
// receiving from it block for ever. send_chan<T> and recv_chan<T> are views of
// a chan<T>, which converts to both.
//
// An unbuffered channel hands a value from sender to receiver directly. A
// buffered channel queues up to Cap() values. Values arrive in the order in
// which they were sent, and waiting goroutines are served in the order in which
// they arrived.
//
// Requires: the caller holds a handle of its own during an operation. So
// capture a channel by value, not by reference, if another goroutine may drop
// its handle.
//
// Requires: element types are nothrow-move-constructible. They may be
// move-only, over-aligned, large, or not default-constructible. Values are
// moved while the channel is locked, so a move constructor must not block.
// Destructors of values run after the channel is unlocked.
//
// All functions may be called from goroutines and from plain threads, several
// at a time. A plain thread sleeps where a goroutine would park.
//
// Memory ordering, on a channel of capacity n:
//   * A send happens before the return of the receive that gets its value.
//   * The k-th receive happens before the return of the (k+n)-th send.
//   * Close happens before the return of a receive that finds the channel
//     closed.
#ifndef GUMP_CHAN_H_
#define GUMP_CHAN_H_

// Another library may have defined a macro of such a name.
#if defined(chan) || defined(make_chan)
#error "chan or make_chan is a macro here: #undef it before gump/chan.h"
#include "gump/internal/see_the_error_above.h"
#endif

#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "gump/internal/chan_element.h"
#include "gump/internal/chan_handle.h"
#include "gump/internal/chan_ops.h"
#include "gump/internal/linkname_chan.h"

#pragma GCC visibility push(default)

namespace gump {

template <class T>
class send_chan;
template <class T>
class recv_chan;

// chan is a handle to a channel of T that can send and receive. On the nil
// channel, the operations that park block for ever, and the Try functions find
// nothing ready.
//
// chan<void> has Send(), TrySend(), bool Recv() and TryRecv() without a value,
// and no iteration.
template <class T>
class chan {
 public:
  using value_type = T;
  chan() noexcept = default;        // nil
  chan(std::nullptr_t) noexcept {}  // NOLINT: implicit, as nil

  // Send sends v. Parks until the channel has room or a receiver takes v.
  // Panics "send on closed channel" if the channel is closed, or is closed
  // meanwhile.
  void Send(T v) const { internal::ChanSend(raw(), std::addressof(v)); }
  // TrySend sends v if it can do so without waiting, and never parks. Returns
  // false, and leaves the argument untouched, if it would have to wait. Panics
  // as Send does.
  bool TrySend(T&& v) const {
    return internal::ChanTrySend(raw(), std::addressof(v));
  }
  bool TrySend(const T& v) const { return internal::ChanTrySendCopy(raw(), v); }
  // Close closes the channel: receivers get the queued values and then
  // "closed". Never parks. Panics "close of closed channel" and "close of nil
  // channel".
  void Close() const { internal::CheckClose(rt::closechan(raw())); }

  // Recv receives the next value. Parks until there is one or the channel is
  // closed. Returns nullopt if the channel is closed and drained.
  std::optional<T> Recv() const { return internal::ChanRecv<T>(raw()); }
  // Recv(out) receives into a variable. Parks as Recv() does. Returns false,
  // and leaves `out` untouched, if the channel is closed and drained. If the
  // move assignment of T throws, the exception passes through and the value is
  // lost.
  bool Recv(T& out) const { return internal::ChanRecvInto(raw(), out); }
  // TryRecv receives a value if it can do so without waiting, and never parks.
  // The `kind` of the result is kValue if it received one. Otherwise it is
  // kClosed if the channel is closed and drained, and kEmpty if there is no
  // value now.
  RecvResult<T> TryRecv() const { return internal::ChanTryRecv<T>(raw()); }

  // for (T v : c) receives until the channel is closed and drained. begin() and
  // each step park until there is a value. Requires: this handle, or a copy of
  // it, outlives the loop.
  using iterator = internal::ChanIterator<T>;
  using sentinel = std::default_sentinel_t;
  iterator begin() const { return iterator(raw()); }
  sentinel end() const { return {}; }

  // Send, chained: c << 1 << 2. Parks as Send does.
  template <internal::ConvertsTo<T> U>
  chan& operator<<(U&& v) {
    Send(std::forward<U>(v));
    return *this;
  }
  template <internal::ConvertsTo<T> U>
  const chan& operator<<(U&& v) const {
    Send(std::forward<U>(v));
    return *this;
  }
  // The same as Recv(out): while (c >> v) { ... }
  bool operator>>(T& out) const { return Recv(out); }

  // Len returns the number of values queued now, and Cap returns the capacity.
  // Both return 0 for the nil channel, and never park.
  size_t Len() const noexcept { return rt::chanlen(raw()); }
  size_t Cap() const noexcept { return rt::chancap(raw()); }
  // IsClosed returns whether the channel has been closed. Values may still be
  // queued. It returns false for the nil channel, and never parks. A channel
  // that is open now may be closed at the next moment, so IsClosed is for logs
  // and for early exits. Recv and TryRecv say for certain how a channel ends.
  // The Close happens before a return of true. Unlike Go, which has no such
  // function.
  bool IsClosed() const noexcept { return rt::chanclosed(raw()); }

  // Returns false for the nil channel.
  explicit operator bool() const noexcept { return raw() != nullptr; }
  // Handles are equal if they are the same channel. std::hash and absl::Hash
  // hash this identity.
  friend bool operator==(const chan& a, const chan& b) noexcept {
    return a.raw() == b.raw();
  }
  // swap exchanges the channels of two handles.
  friend void swap(chan& a, chan& b) noexcept { swap(a.handle_, b.handle_); }
  template <class H>
  friend H AbslHashValue(H h, const chan& c) {
    return H::combine(std::move(h), c.raw());
  }

  // For the library itself. The constructor takes over a reference, and raw()
  // returns the channel without a new one.
  explicit chan(rt::Hchan* adopted) noexcept : handle_(adopted) {}
  rt::Hchan* raw() const noexcept { return handle_.get(); }

 private:
  friend class send_chan<T>;
  friend class recv_chan<T>;
  internal::ChanHandle handle_;
};

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

// make_chan makes a channel with room for cap values. If cap is 0, the channel
// is unbuffered. Never parks. Panics "makechan: size out of range" if there is
// no memory for the channel, or if cap is above 4,294,967,295 and T is not
// void.
template <class T>
[[nodiscard]] chan<T> make_chan(size_t cap = 0) {
  rt::Hchan* c = rt::makechan(&internal::kElemType<T>, cap);
  if (c == nullptr) [[unlikely]]
    internal::PanicMakechan();
  return chan<T>(c);
}

// send_chan is a view of a chan that can only send and close. Its functions are
// those of chan with the same names.
template <class T>
class send_chan {
 public:
  using value_type = T;
  send_chan() noexcept = default;
  send_chan(std::nullptr_t) noexcept {}  // NOLINT: implicit, as nil
  send_chan(chan<T> c) noexcept          // NOLINT: implicit, as in Go
      : handle_(std::move(c.handle_)) {}

  void Send(T v) const { internal::ChanSend(raw(), std::addressof(v)); }
  bool TrySend(T&& v) const {
    return internal::ChanTrySend(raw(), std::addressof(v));
  }
  bool TrySend(const T& v) const { return internal::ChanTrySendCopy(raw(), v); }
  void Close() const { internal::CheckClose(rt::closechan(raw())); }
  template <internal::ConvertsTo<T> U>
  const send_chan& operator<<(U&& v) const {
    Send(std::forward<U>(v));
    return *this;
  }
  size_t Len() const noexcept { return rt::chanlen(raw()); }
  size_t Cap() const noexcept { return rt::chancap(raw()); }
  bool IsClosed() const noexcept { return rt::chanclosed(raw()); }

  explicit operator bool() const noexcept { return raw() != nullptr; }
  friend bool operator==(const send_chan& a, const send_chan& b) noexcept {
    return a.raw() == b.raw();
  }
  friend void swap(send_chan& a, send_chan& b) noexcept {
    swap(a.handle_, b.handle_);
  }
  template <class H>
  friend H AbslHashValue(H h, const send_chan& c) {
    return H::combine(std::move(h), c.raw());
  }

  rt::Hchan* raw() const noexcept { return handle_.get(); }

 private:
  internal::ChanHandle handle_;
};

// recv_chan is a view of a chan that can only receive. Its functions are those
// of chan with the same names.
template <class T>
class recv_chan {
 public:
  using value_type = T;
  recv_chan() noexcept = default;
  recv_chan(std::nullptr_t) noexcept {}  // NOLINT: implicit, as nil
  recv_chan(chan<T> c) noexcept          // NOLINT: implicit, as in Go
      : handle_(std::move(c.handle_)) {}

  std::optional<T> Recv() const { return internal::ChanRecv<T>(raw()); }
  bool Recv(T& out) const { return internal::ChanRecvInto(raw(), out); }
  RecvResult<T> TryRecv() const { return internal::ChanTryRecv<T>(raw()); }
  using iterator = internal::ChanIterator<T>;
  using sentinel = std::default_sentinel_t;
  iterator begin() const { return iterator(raw()); }
  sentinel end() const { return {}; }
  bool operator>>(T& out) const { return Recv(out); }
  size_t Len() const noexcept { return rt::chanlen(raw()); }
  size_t Cap() const noexcept { return rt::chancap(raw()); }
  bool IsClosed() const noexcept { return rt::chanclosed(raw()); }

  explicit operator bool() const noexcept { return raw() != nullptr; }
  friend bool operator==(const recv_chan& a, const recv_chan& b) noexcept {
    return a.raw() == b.raw();
  }
  friend void swap(recv_chan& a, recv_chan& b) noexcept {
    swap(a.handle_, b.handle_);
  }
  template <class H>
  friend H AbslHashValue(H h, const recv_chan& c) {
    return H::combine(std::move(h), c.raw());
  }

  rt::Hchan* raw() const noexcept { return handle_.get(); }

 private:
  internal::ChanHandle handle_;
};

}  // namespace gump

#pragma GCC visibility pop

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

#include "gump/internal/chan_void.h"  // IWYU pragma: export

#endif  // GUMP_CHAN_H_
