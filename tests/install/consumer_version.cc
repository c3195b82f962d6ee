// gump/version.h: the versions of the headers and of the library.
#include <gump/version.h>

#include <cstring>

#if GUMP_VERSION < GUMP_MAKE_VERSION(0, 2, 0)
#error "gump/version.h counts wrongly"
#endif

int main() {
  return gump::LibraryVersionNumber() == GUMP_VERSION &&
                 std::strcmp(gump::LibraryVersion(), GUMP_VERSION_STRING) == 0
             ? 0
             : 1;
}
