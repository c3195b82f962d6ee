// What models do in the kernel's place.
#ifndef TESTS_MODEL_OS_H_
#define TESTS_MODEL_OS_H_

#include "netpoll/polldesc.h"

namespace gump::model {

// kernelEdge lets the poller report that pd, of which it knows no other at the
// same time, has become readable.
void kernelEdge(rt::PollDesc* pd);

}  // namespace gump::model

#endif  // TESTS_MODEL_OS_H_
