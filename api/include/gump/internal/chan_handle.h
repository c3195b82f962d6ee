// ChanHandle: the counted reference to a channel in chan<T> and its views.
#ifndef GUMP_INTERNAL_CHAN_HANDLE_H_
#define GUMP_INTERNAL_CHAN_HANDLE_H_

#include <utility>

#include "gump/internal/linkname_chan.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// ChanHandle is a counted reference to a channel, without its type. Null is the
// nil channel. One thread at a time changes a handle, but many may use its
// channel.
class ChanHandle {
 public:
  ChanHandle() noexcept = default;
  // Takes over a reference.
  explicit ChanHandle(rt::Hchan* adopted) noexcept : c_(adopted) {}
  ChanHandle(const ChanHandle& o) noexcept : c_(o.c_) {
    if (c_ != nullptr) rt::chanRetain(c_);
  }
  ChanHandle(ChanHandle&& o) noexcept : c_(std::exchange(o.c_, nullptr)) {}
  ChanHandle& operator=(const ChanHandle& o) noexcept {
    ChanHandle copy(o);
    std::swap(c_, copy.c_);
    return *this;
  }
  ChanHandle& operator=(ChanHandle&& o) noexcept {
    ChanHandle moved(std::move(o));
    std::swap(c_, moved.c_);
    return *this;
  }
  ~ChanHandle() {
    if (c_ != nullptr) rt::chanRelease(c_);
  }
  friend void swap(ChanHandle& a, ChanHandle& b) noexcept {
    std::swap(a.c_, b.c_);
  }

  rt::Hchan* get() const noexcept { return c_; }

 private:
  rt::Hchan* c_ = nullptr;
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_CHAN_HANDLE_H_
