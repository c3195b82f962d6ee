// The window for gump/metrics.h: the figures of the runtime. linkname.h gives
// the rules.
#ifndef GUMP_INTERNAL_LINKNAME_METRICS_H_
#define GUMP_INTERNAL_LINKNAME_METRICS_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"

namespace gump::rt {

// The number of counts of a histogram of times: first the negative times, last
// those that are too long.
inline constexpr size_t kTimeHistCounts = 162;

}  // namespace gump::rt

#endif  // GUMP_INTERNAL_LINKNAME_METRICS_H_
