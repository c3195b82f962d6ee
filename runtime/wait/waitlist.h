// What a dump, a debugger or a profile can ask about a WaitList. waitlist.cc
// has the protocol.
#ifndef RUNTIME_WAIT_WAITLIST_H_
#define RUNTIME_WAIT_WAITLIST_H_

#include "gump/internal/linkname_sync.h"

namespace gump::rt {

struct G;

// WaitNode is one waiter. It lies on the waiter's stack.
struct WaitNode {
  WaitNode* next = nullptr;  // the waiter that came before
  G* g = nullptr;
  WaitList* list = nullptr;
};

// waitListOf returns the list in which gp waits, or nullptr if it waits in
// none.
// On: any.  P: either.  Locks: none; gp does not go on meanwhile.  Parks: no.
[[nodiscard]] const WaitList* waitListOf(const G* gp);

}  // namespace gump::rt

#endif  // RUNTIME_WAIT_WAITLIST_H_
