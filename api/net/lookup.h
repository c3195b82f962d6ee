// Lookups of names, for other parts of the library.
#ifndef API_NET_LOOKUP_H_
#define API_NET_LOOKUP_H_

#include "gump/sync/semaphore.h"

namespace gump::internal {

// LookupSlots limits how many threads are busy with lookups of names at a time.
sync::Semaphore& LookupSlots();

}  // namespace gump::internal

#endif  // API_NET_LOOKUP_H_
