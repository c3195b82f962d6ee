// Functions with which models play the kernel.
#ifndef TESTS_MODEL_OS_H_
#define TESTS_MODEL_OS_H_

#include <cstdint>

#include "netpoll/polldesc.h"

namespace gump::model {

// kernelEdge makes the poller report that pd has become readable. It holds only
// one such report at a time.
void kernelEdge(rt::PollDesc* pd);
// kernelEdgeOfEpoll does so for the instance of epoll.cc.
void kernelEdgeOfEpoll();

// One page of a stack may be missing (userfaultfd). usePage says which one.
// addAt and valueAt are accesses to a word in it. An access to a missing page
// is a fault, and waits until there is a page again.
void usePage(uintptr_t page);
bool isPageAway();
void addAt(uintptr_t addr, uint64_t n);
uint64_t valueAt(uintptr_t addr);
// raiseFault reports a fault at that page, and awaitFault waits for one.
void raiseFault();
void awaitFault();

}  // namespace gump::model

#endif  // TESTS_MODEL_OS_H_
