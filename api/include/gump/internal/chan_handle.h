// ChanHandle: the counted reference to a channel in chan<T> and its views.
#ifndef GUMP_INTERNAL_CHAN_HANDLE_H_
#define GUMP_INTERNAL_CHAN_HANDLE_H_

#include <cstddef>
#include <utility>

#include "gump/internal/linkname_chan.h"

namespace gump::internal {

// ChanHandle is a counted reference to a channel, without its type.
class ChanHandle {
 public:
  ChanHandle() noexcept = default;
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

  // Len returns the number of values queued now, and Cap returns the capacity.
  // Both return 0 for the nil channel, and never park.
  size_t Len() const noexcept { return rt::chanlen(c_); }
  size_t Cap() const noexcept { return rt::chancap(c_); }
  // Returns false for the nil channel.
  explicit operator bool() const noexcept { return c_ != nullptr; }

  // raw is for the library itself.
  rt::Hchan* raw() const noexcept { return c_; }

 protected:
  rt::Hchan* c_ = nullptr;
};

}  // namespace gump::internal

#endif  // GUMP_INTERNAL_CHAN_HANDLE_H_
