// FlightCall: one call of a sync::SingleFlight.
#ifndef GUMP_INTERNAL_FLIGHT_CALL_H_
#define GUMP_INTERNAL_FLIGHT_CALL_H_

#include <exception>
#include <optional>
#include <vector>

#include "gump/chan.h"
#include "gump/sync/waitgroup.h"

#pragma GCC visibility push(default)

namespace gump::sync {

template <class V>
class SingleFlightOutcome;

namespace internal {

// FlightCall is one call of a user's function. value, error, shared and chans
// do not change once wg is done.
template <class V>
struct FlightCall {
  std::optional<V> value;
  std::exception_ptr error;  // error and value are both empty after a Goexit
  bool shared = false;       // guarded by the flight's mutex until wg is done
  std::vector<chan<SingleFlightOutcome<V>>> chans;  // guarded like shared
  WaitGroup wg;
};

}  // namespace internal

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_FLIGHT_CALL_H_
