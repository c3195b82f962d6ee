// The version of the library: of these headers, and of the library that the
// program has loaded.
//
//   std::printf("built with %s, runs with %s\n", GUMP_VERSION_STRING,
//               gump::LibraryVersion());
//
// Until 1.0, a new minor version may change the ABI, and a new patch may not.
// So the shared library is called libgump.so.MAJOR.MINOR, and the loader finds
// only the minor version that the program was built with. docs/versions.md says
// what may change when.
//
// CMakeLists.txt reads the version of the project from here.
#ifndef GUMP_VERSION_H_
#define GUMP_VERSION_H_

#include "gump/internal/compiler.h"

#define GUMP_VERSION_MAJOR 0
#define GUMP_VERSION_MINOR 2
#define GUMP_VERSION_PATCH 0

// GUMP_MAKE_VERSION is a version as a number that can be compared. #if can use
// it.
#define GUMP_MAKE_VERSION(major, minor, patch) \
  ((major)*1000000 + (minor)*1000 + (patch))

// GUMP_VERSION is the version of these headers as such a number.
#define GUMP_VERSION \
  GUMP_MAKE_VERSION(GUMP_VERSION_MAJOR, GUMP_VERSION_MINOR, GUMP_VERSION_PATCH)

// GUMP_VERSION_STRING is the version of these headers as text, such as "0.2.0".
#define GUMP_VERSION_STRING                                    \
  GUMP_INTERNAL_DOTTED(GUMP_VERSION_MAJOR, GUMP_VERSION_MINOR, \
                       GUMP_VERSION_PATCH)

#define GUMP_INTERNAL_DOTTED(a, b, c) GUMP_INTERNAL_DOTTED_OF(a, b, c)
#define GUMP_INTERNAL_DOTTED_OF(a, b, c) #a "." #b "." #c

#pragma GCC visibility push(default)

namespace gump {

// LibraryVersion returns the version of the library that the program has
// loaded, as text such as "0.2.0". It differs from GUMP_VERSION_STRING after
// another patch of a shared library was installed. Does not park. May be called
// from goroutines and from plain threads, also before the runtime starts.
const char* LibraryVersion() noexcept;

// LibraryVersionNumber returns the same as a number that can be compared with
// GUMP_MAKE_VERSION. May be called where LibraryVersion may be called.
int LibraryVersionNumber() noexcept;

}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_VERSION_H_
