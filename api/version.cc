// The version that this build of the library has. The macros give a program the
// version of its headers, and these functions that of the library.
#include "gump/version.h"

namespace gump {

const char* LibraryVersion() noexcept { return GUMP_VERSION_STRING; }

int LibraryVersionNumber() noexcept { return GUMP_VERSION; }

}  // namespace gump
