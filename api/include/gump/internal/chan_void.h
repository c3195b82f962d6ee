// chan<void> and its views. gump/chan.h, which includes this file, says what
// their functions do.
#ifndef GUMP_INTERNAL_CHAN_VOID_H_
#define GUMP_INTERNAL_CHAN_VOID_H_

#include <cstddef>
#include <utility>

#include "gump/chan.h"
#include "gump/internal/chan_handle.h"
#include "gump/internal/chan_ops.h"
#include "gump/internal/linkname_chan.h"

#pragma GCC visibility push(default)

namespace gump {
namespace internal {

inline bool ChanRecvNothing(rt::Hchan* c) {
  return rt::chanrecv(c, nullptr, /*block=*/true) == rt::ChanResult::kOk;
}

inline RecvResult<void> ChanTryRecvNothing(rt::Hchan* c) {
  using Result = RecvResult<void>;
  const rt::ChanResult r = rt::chanrecv(c, nullptr, /*block=*/false);
  return {r == rt::ChanResult::kOk           ? Result::kValue
          : r == rt::ChanResult::kWouldBlock ? Result::kEmpty
                                             : Result::kClosed};
}

}  // namespace internal

template <>
class chan<void> {
 public:
  using value_type = void;
  chan() noexcept = default;        // nil
  chan(std::nullptr_t) noexcept {}  // NOLINT: implicit, as nil

  void Send() const { internal::ChanSend(raw(), nullptr); }
  bool TrySend() const { return internal::ChanTrySend(raw(), nullptr); }
  bool Recv() const { return internal::ChanRecvNothing(raw()); }
  RecvResult<void> TryRecv() const {
    return internal::ChanTryRecvNothing(raw());
  }
  void Close() const { internal::CheckClose(rt::closechan(raw())); }
  size_t Len() const noexcept { return rt::chanlen(raw()); }
  size_t Cap() const noexcept { return rt::chancap(raw()); }
  bool IsClosed() const noexcept { return rt::chanclosed(raw()); }

  explicit operator bool() const noexcept { return raw() != nullptr; }
  friend bool operator==(const chan& a, const chan& b) noexcept {
    return a.raw() == b.raw();
  }
  friend void swap(chan& a, chan& b) noexcept { swap(a.handle_, b.handle_); }
  template <class H>
  friend H AbslHashValue(H h, const chan& c) {
    return H::combine(std::move(h), c.raw());
  }

  explicit chan(rt::Hchan* adopted) noexcept : handle_(adopted) {}
  rt::Hchan* raw() const noexcept { return handle_.get(); }

 private:
  friend class send_chan<void>;
  friend class recv_chan<void>;
  internal::ChanHandle handle_;
};

template <>
class send_chan<void> {
 public:
  using value_type = void;
  send_chan() noexcept = default;
  send_chan(std::nullptr_t) noexcept {}  // NOLINT: implicit, as nil
  send_chan(chan<void> c) noexcept       // NOLINT: implicit, as in Go
      : handle_(std::move(c.handle_)) {}

  void Send() const { internal::ChanSend(raw(), nullptr); }
  bool TrySend() const { return internal::ChanTrySend(raw(), nullptr); }
  void Close() const { internal::CheckClose(rt::closechan(raw())); }
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

template <>
class recv_chan<void> {
 public:
  using value_type = void;
  recv_chan() noexcept = default;
  recv_chan(std::nullptr_t) noexcept {}  // NOLINT: implicit, as nil
  recv_chan(chan<void> c) noexcept       // NOLINT: implicit, as in Go
      : handle_(std::move(c.handle_)) {}

  bool Recv() const { return internal::ChanRecvNothing(raw()); }
  RecvResult<void> TryRecv() const {
    return internal::ChanTryRecvNothing(raw());
  }
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

#endif  // GUMP_INTERNAL_CHAN_VOID_H_
