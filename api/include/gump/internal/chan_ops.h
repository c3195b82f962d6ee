// The operations of channels, on which chan<T> and its views stand.
#ifndef GUMP_INTERNAL_CHAN_OPS_H_
#define GUMP_INTERNAL_CHAN_OPS_H_

#include <memory>
#include <optional>

#include "gump/internal/chan_element.h"
#include "gump/internal/linkname_chan.h"

namespace gump::internal {

[[noreturn]] void PanicSendOnClosedChannel();
[[noreturn]] void PanicMakechan();
void CheckClose(rt::CloseResult r);  // panics unless kOk

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

}  // namespace gump::internal

#endif  // GUMP_INTERNAL_CHAN_OPS_H_
