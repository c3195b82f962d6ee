// The other side of the ring (netpoll/ring.cc), for models: what it gets done,
// and when, is theirs to say. See uring.cc.
#ifndef TESTS_MODEL_URING_H_
#define TESTS_MODEL_URING_H_

namespace gump::model {

// kernelCompletes says that one more of the transfers and syncs that the ring
// has handed over, or will, is done.
void kernelCompletes();
// kernelReadable makes a descriptor readable, for good: an edge for whoever
// watches it.
void kernelReadable(int fd);

}  // namespace gump::model

#endif  // TESTS_MODEL_URING_H_
