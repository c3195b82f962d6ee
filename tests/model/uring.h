// The kernel's side of the ring (netpoll/ring.cc). A model says which requests
// are done, and when. See uring.cc.
#ifndef TESTS_MODEL_URING_H_
#define TESTS_MODEL_URING_H_

namespace gump::model {

// kernelCompletes lets one more transfer or sync be done, of those that the
// ring has handed over or will hand over.
void kernelCompletes();
// kernelReadable makes a descriptor readable, for good. Each call is an edge
// for a watch of it.
void kernelReadable(int fd);

}  // namespace gump::model

#endif  // TESTS_MODEL_URING_H_
