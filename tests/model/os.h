// Functions with which models play the kernel.
#ifndef TESTS_MODEL_OS_H_
#define TESTS_MODEL_OS_H_

#include "netpoll/polldesc.h"

namespace gump::model {

// kernelEdge makes the poller report that pd has become readable. It holds only
// one such report at a time.
void kernelEdge(rt::PollDesc* pd);

}  // namespace gump::model

#endif  // TESTS_MODEL_OS_H_
