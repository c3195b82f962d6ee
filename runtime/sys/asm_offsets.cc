#include "runtime/sys/asm_offsets.h"

#include <cstddef>

#include "runtime/sched/runtime2.h"

namespace gump::rt {

static_assert(offsetof(G, sched) + offsetof(Gobuf, sp) == GUMP_G_SCHED_SP);
static_assert(offsetof(G, sched) + offsetof(Gobuf, fresh) ==
              GUMP_G_SCHED_FRESH);
static_assert(offsetof(G, m) == GUMP_G_M);
static_assert(offsetof(M, g0) == GUMP_M_G0);
static_assert(offsetof(M, mxcsr) == GUMP_M_MXCSR);
static_assert(offsetof(M, x87cw) == GUMP_M_X87CW);
static_assert(offsetof(M, locks) == GUMP_M_LOCKS);

}  // namespace gump::rt
