// The atomics seam under its internal name. Public headers need it too, so it
// is installed with linkname.h.
#ifndef RUNTIME_SYS_ATOMIC_H_
#define RUNTIME_SYS_ATOMIC_H_

#include "gump/internal/atomic.h"  // IWYU pragma: export

#endif  // RUNTIME_SYS_ATOMIC_H_
