// Go's names of signals, for texts of errors and causes of contexts.
#ifndef API_SIGNAL_NAME_H_
#define API_SIGNAL_NAME_H_

#include <string>

namespace gump::internal {

// SignalName returns Go's name of sig, or "signal N" if it has none.
std::string SignalName(int sig);

}  // namespace gump::internal

#endif  // API_SIGNAL_NAME_H_
