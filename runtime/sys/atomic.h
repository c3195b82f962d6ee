// Atomic and its memory orders, under the path that the runtime includes. The
// public headers need them too, so the header is in gump/internal.
#ifndef RUNTIME_SYS_ATOMIC_H_
#define RUNTIME_SYS_ATOMIC_H_

#include "gump/internal/atomic.h"  // IWYU pragma: export

#endif  // RUNTIME_SYS_ATOMIC_H_
