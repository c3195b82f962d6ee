// The window for gump/chan.h. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_CHAN_H_
#define GUMP_INTERNAL_LINKNAME_CHAN_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

struct Hchan;

// ElemType says how to move and destroy a channel's elements. A null move means
// memcpy of size bytes. A null destroy means that there is nothing to do.
struct ElemType {
  size_t size = 0;  // 0: chan<void>
  size_t align = 1;
  // Move-constructs dst. src stays, to be destroyed by its owner.
  void (*move)(void* dst, void* src) noexcept = nullptr;
  void (*destroy)(void* elem) noexcept = nullptr;
};

// ChanResult is the result of a send or a receive.
enum class ChanResult : uint8_t {
  kOk,          // sent, or received a value
  kWouldBlock,  // only when block is false
  // Send: the channel is closed, which is a panic. Receive: the channel is
  // closed and drained, and *elem is untouched.
  kClosed,
};
// CloseResult is the result of closechan.
enum class CloseResult : uint8_t { kOk, kNilChannel, kAlreadyClosed };

// makechan returns a channel with one reference. Returns nullptr if the size is
// out of range or there is no memory.
[[nodiscard]] Hchan* makechan(const ElemType* t, size_t cap) noexcept;
// chanLeaveBubble takes c out of the bubble in which it was made. No other
// thread knows c yet.
void chanLeaveBubble(Hchan* c) noexcept;
// chanRetain adds a reference.
void chanRetain(Hchan* c) noexcept;
// chanRelease gives up a reference. The last call destroys the queued values.
void chanRelease(Hchan* c) noexcept;
// chanShared returns true if the caller's handle is not the only one. The
// answer may be late: a handle that was just given up can still count.
[[nodiscard]] bool chanShared(const Hchan* c) noexcept;
// chansend moves *elem into the channel or straight into a receiver. If `block`
// is true, it parks until it can. If the result is not kOk, *elem is untouched.
[[nodiscard]] ChanResult chansend(Hchan* c, void* elem, bool block) noexcept;
// chanrecv move-constructs a value at elem, which is raw storage. If elem is
// nullptr, it throws the value away. If `block` is true, it parks until there
// is a value or c is closed.
[[nodiscard]] ChanResult chanrecv(Hchan* c, void* elem, bool block) noexcept;
// closechan closes c and wakes all goroutines and threads that wait for it.
[[nodiscard]] CloseResult closechan(Hchan* c) noexcept;
// chanlen and chancap return the number of queued values and the capacity. They
// return 0 for nullptr.
size_t chanlen(const Hchan* c) noexcept;
size_t chancap(const Hchan* c) noexcept;
// chanclosed returns whether c has been closed. It returns false for nullptr.
bool chanclosed(const Hchan* c) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_CHAN_H_
