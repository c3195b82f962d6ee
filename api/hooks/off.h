// hooks::Off, for the calls.
#ifndef API_HOOKS_OFF_H_
#define API_HOOKS_OFF_H_

namespace gump::hooks {

// IsOff tells whether the calling goroutine has an Off.
// On: user.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool IsOff();

}  // namespace gump::hooks

#endif  // API_HOOKS_OFF_H_
