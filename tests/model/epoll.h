// The kernel's side of one-shot waits (netpoll/once.cc): files, numbers, and
// one epoll instance. See epoll.cc.
#ifndef TESTS_MODEL_EPOLL_H_
#define TESTS_MODEL_EPOLL_H_

#include <cstdint>

namespace gump::model {

// kernelOpen makes a number name a file. kernelClose makes it name none. The
// files live on, as if they had duplicates.
void kernelOpen(int fd, int file);
void kernelClose(int fd);
// kernelReady sets events of poll(2) that a file has from then on.
void kernelReady(int file, uint32_t events);

}  // namespace gump::model

#endif  // TESTS_MODEL_EPOLL_H_
