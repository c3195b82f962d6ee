// The window for gump/select.h. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_SELECT_H_
#define GUMP_INTERNAL_LINKNAME_SELECT_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname_chan.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// SelectDir is the direction of a case.
enum class SelectDir : uint8_t { kSend, kRecv };
// Scase is one case of a select. A case with c == nullptr is never ready.
struct Scase {
  Hchan* c = nullptr;
  // Send: the value. Receive: raw storage, or nullptr to throw the value away.
  void* elem = nullptr;
  SelectDir dir = SelectDir::kRecv;
};
// SelectResult is the result of selectgo.
struct SelectResult {
  int32_t index;      // the case that proceeded; -1 if none and !block
  ChanResult result;  // of that case: kOk or kClosed
};
// selectgo does one of the n cases, of which there are at most kMaxSelectCases.
// If `block` is true, it parks until a case can proceed.
inline constexpr size_t kMaxSelectCases = 65536;
[[nodiscard]] SelectResult selectgo(const Scase* cases, size_t n,
                                    bool block) noexcept;
// selectgoInOrder parks until one of at most four cases can proceed, and does
// it. Among cases that are ready it takes the first in the order of `cases`. So
// a case that became ready before the call is never passed over for a later
// one. The elem of a receive is nullptr only on a channel whose values need no
// destructor.
[[nodiscard]] SelectResult selectgoInOrder(const Scase* cases,
                                           size_t n) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_SELECT_H_
