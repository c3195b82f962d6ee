// CoWait and CoClaim: the wait of a coroutine, which ends by resumption or by
// destruction. gump/internal/co_loop.h has the protocol.
#include <new>

#include "gump/internal/chan_element.h"
#include "gump/internal/co_loop.h"
#include "gump/internal/linkname_chan.h"
#include "gump/internal/linkname_panic.h"
#include "gump/internal/linkname_select.h"

namespace gump::internal {

void CoClaim::Cancel() {
  if (!TryCancel()) rt::fatalError("co: coroutine destroyed while it runs");
}

CoWait::CoWait(bool stoppable) {
  if (!stoppable) return;
  rt::Hchan* c = rt::makechan(&kElemType<void>, 0);
  if (c == nullptr) throw std::bad_alloc();
  stop_ = chan<void>(c);
}

void CoWait::Cancel() {
  // (W3): first close `stop`.
  if (stop_) (void)rt::closechan(stop_.raw());
  claim_.Cancel();
}

void CoWait::Unref() {
  // Release: our use of the object happens before its destruction. Acquire: so
  // does that of the other side.
  if (refs_.add(static_cast<uint32_t>(-1), rt::acq_rel) == 0) delete this;
}

rt::ChanResult CoWait::Do(rt::Hchan* c, void* elem, rt::SelectDir dir) {
  const rt::Scase cases[] = {{stop_.raw(), nullptr, rt::SelectDir::kRecv},
                             {c, elem, dir}};
  const rt::SelectResult r = rt::selectgoInOrder(cases, 2);
  return r.index == 0 ? rt::ChanResult::kWouldBlock : r.result;
}

}  // namespace gump::internal
