// The panics of <gump/chan.h>. They are out of line because they are rare, and
// so that user code stays small.
#include "gump/chan.h"

#include "gump/panic.h"

namespace gump::internal {

void PanicSendOnClosedChannel() { panic("send on closed channel"); }

void PanicMakechan() { panic("makechan: size out of range"); }

void CheckClose(rt::CloseResult r) {
  if (r == rt::CloseResult::kNilChannel) panic("close of nil channel");
  if (r == rt::CloseResult::kAlreadyClosed) panic("close of closed channel");
}

}  // namespace gump::internal
