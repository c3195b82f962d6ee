// The window for gump/select.h. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_SELECT_H_
#define GUMP_INTERNAL_LINKNAME_SELECT_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname_chan.h"

namespace gump::rt {

enum class SelectDir : uint8_t { kSend, kRecv };
// Scase is one case of a select. A case with c == nullptr is never ready.
struct Scase {
  Hchan* c = nullptr;
  // Send: the value. Receive: raw storage, or nullptr to throw the value away.
  void* elem = nullptr;
  SelectDir dir = SelectDir::kRecv;
};
struct SelectResult {
  int32_t index;      // the case that proceeded; -1 if none and !block
  ChanResult result;  // of that case: kOk or kClosed
};
[[nodiscard]] SelectResult selectgo(const Scase* cases, size_t n,
                                    bool block) noexcept;
inline constexpr size_t kMaxSelectCases = 65536;

}  // namespace gump::rt

#endif  // GUMP_INTERNAL_LINKNAME_SELECT_H_
