// The kernel refuses calls on demand. This replaces libc's functions by ones
// that count their calls and fail the n-th time.
//
// GUMP_FAULT=NAME:N:ERRNO in the environment makes the N-th call of NAME fail,
// GUMP_FAULT=NAME:N:ERRNO:ever that call and all that follow. Include this in
// one file, and not under a sanitizer, which replaces some of them itself.
#ifndef TESTS_FAULT_INTERPOSE_H_
#define TESTS_FAULT_INTERPOSE_H_

#include <dlfcn.h>
#include <liburing.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "runtime/sys/lock_futex.h"

namespace gump::testing {

// Fault is one function that may fail. It is constant-initialised, because libc
// calls some of these functions before main.
struct Fault {
  const char* name;
  std::atomic<int> calls{0};
  std::atomic<int> refusals{0};
};

inline constinit Fault faults[] = {
    {"mmap"},
    {"madvise"},
    {"mprotect"},
    {"process_madvise"},
    {"pthread_create"},
    {"futex"},
    {"epoll_pwait2"},
    {"epoll_create1"},
    {"epoll_ctl"},
    {"epoll_ctl_del"},
    {"epoll_wait"},
    {"eventfd"},
    {"sigaltstack"},
    {"socket"},
    {"bind"},
    {"listen"},
    {"accept4"},
    {"connect"},
    {"io_uring_setup"},
    {"io_uring_enter"},
    {"io_uring_submit"},
    {"io_uring_register"},
};

struct Order {
  const char* name = "";
  int n = 0;
  int error = 0;
  bool ever = false;
  int most = 1 << 30;  // refusals
  bool told = false;   // the first refusal is printed: kRefused
};

// A process that has been refused something may not live to say so later.
inline constexpr char kRefused[] = "<refused>\n";

// order is read from the environment once, before there are threads.
inline Order order;
inline std::atomic<bool> faultsOn{false};

inline void ReadOrder() {
  const char* text = std::getenv("GUMP_FAULT");
  if (text == nullptr) return;
  static char copy[64];
  std::strncpy(copy, text, sizeof(copy) - 1);
  char* rest = nullptr;
  order.name = strtok_r(copy, ":", &rest);
  order.n = std::atoi(strtok_r(nullptr, ":", &rest));
  order.error = std::atoi(strtok_r(nullptr, ":", &rest));
  order.ever = strtok_r(nullptr, ":", &rest) != nullptr;
  order.told = true;
}

// Refuse counts a call of name. Returns true if it must fail with *error.
inline bool Refuse(const char* name, int* error) {
  if (!faultsOn.load(std::memory_order_relaxed)) return false;
  for (Fault& f : faults) {
    if (std::strcmp(f.name, name) != 0) continue;
    const int call = f.calls.fetch_add(1) + 1;
    if (std::strcmp(order.name, name) != 0) return false;
    if (call != order.n && !(order.ever && call > order.n)) return false;
    if (f.refusals.load() >= order.most) return false;
    if (f.refusals.fetch_add(1) == 0 && order.told) {
      (void)!::write(STDOUT_FILENO, kRefused, sizeof(kRefused) - 1);
    }
    *error = order.error;
    return true;
  }
  return false;
}

// RefuseErrno is Refuse for functions that set errno.
inline bool RefuseErrno(const char* name) {
  int error = 0;
  if (!Refuse(name, &error)) return false;
  errno = error;
  return true;
}

// While it is true, the thread that owns the ring does not enter the kernel.
inline std::atomic<bool> ringHeld{false};
inline void WaitIfRingHeld() {
  while (ringHeld.load()) ::usleep(100);
}

// While it is true, new threads do not get further than their signal stacks.
inline std::atomic<bool> threadsHeld{false};
inline void WaitIfThreadsHeld() {
  while (threadsHeld.load() && ::gettid() != ::getpid()) ::usleep(100);
}

// The functions of libc and liburing. All are looked up before main, or at the
// first call of any of them before that, and never later, because the loader
// has a lock. A thread that reports the end of the process may call one of
// them. It must not wait for a goroutine that was preempted with that lock.
// clang-format off
#define GUMP_REPLACED(each)                                                    \
  each(mmap) each(madvise) each(mprotect) each(pthread_create) each(syscall)   \
  each(epoll_create1) each(epoll_ctl) each(epoll_wait) each(eventfd)           \
  each(sigaltstack) each(socket) each(bind) each(listen) each(accept4)         \
  each(connect) each(io_uring_queue_init_params) each(io_uring_submit)         \
  each(io_uring_submit_and_wait) each(io_uring_submit_and_get_events)
// clang-format on

struct Originals {
#define GUMP_POINTER(name) decltype(&::name) name;
  GUMP_REPLACED(GUMP_POINTER)
#undef GUMP_POINTER
};

inline const Originals& Real() {
  static constinit Originals found{};
  static constinit bool looked = false;
  if (!looked) {
#define GUMP_LOOK(name) \
  found.name = reinterpret_cast<decltype(found.name)>(dlsym(RTLD_NEXT, #name));
    GUMP_REPLACED(GUMP_LOOK)
#undef GUMP_LOOK
    looked = true;
  }
  return found;
}
#undef GUMP_REPLACED

__attribute__((constructor)) inline void LookBeforeMain() { Real(); }

}  // namespace gump::testing

extern "C" {

void* mmap(void* p, size_t n, int prot, int flags, int fd, off_t at) noexcept {
  if (gump::testing::RefuseErrno("mmap")) return MAP_FAILED;
  return gump::testing::Real().mmap(p, n, prot, flags, fd, at);
}

int madvise(void* p, size_t n, int advice) noexcept {
  if (gump::testing::RefuseErrno("madvise")) return -1;
  return gump::testing::Real().madvise(p, n, advice);
}

int mprotect(void* p, size_t n, int prot) noexcept {
  if (gump::testing::RefuseErrno("mprotect")) return -1;
  return gump::testing::Real().mprotect(p, n, prot);
}

int pthread_create(pthread_t* t, const pthread_attr_t* attr, void* (*f)(void*),
                   void* arg) noexcept {
  int error = 0;
  if (gump::testing::Refuse("pthread_create", &error)) return error;
  return gump::testing::Real().pthread_create(t, attr, f, arg);
}

long syscall(long nr, ...) noexcept {
  va_list args;
  va_start(args, nr);
  long a[6];
  for (long& x : a) x = va_arg(args, long);
  va_end(args);
  if (nr == SYS_process_madvise &&
      gump::testing::RefuseErrno("process_madvise")) {
    return -1;
  }
  if (nr == SYS_epoll_pwait2 && gump::testing::RefuseErrno("epoll_pwait2")) {
    return -1;
  }
  // Calls that the library makes without liburing.
  if (nr == SYS_io_uring_enter &&
      gump::testing::RefuseErrno("io_uring_enter")) {
    return -1;
  }
  if (nr == SYS_io_uring_register &&
      gump::testing::RefuseErrno("io_uring_register")) {
    return -1;
  }
  return gump::testing::Real().syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int epoll_create1(int flags) noexcept {
  if (gump::testing::RefuseErrno("epoll_create1")) return -1;
  return gump::testing::Real().epoll_create1(flags);
}

int epoll_ctl(int ep, int op, int fd, struct epoll_event* e) noexcept {
  if (op == EPOLL_CTL_ADD && gump::testing::RefuseErrno("epoll_ctl")) return -1;
  if (op == EPOLL_CTL_DEL && gump::testing::RefuseErrno("epoll_ctl_del")) {
    return -1;
  }
  return gump::testing::Real().epoll_ctl(ep, op, fd, e);
}

int epoll_wait(int ep, struct epoll_event* e, int n, int timeout) {
  if (gump::testing::RefuseErrno("epoll_wait")) return -1;
  return gump::testing::Real().epoll_wait(ep, e, n, timeout);
}

int eventfd(unsigned count, int flags) noexcept {
  if (gump::testing::RefuseErrno("eventfd")) return -1;
  return gump::testing::Real().eventfd(count, flags);
}

int sigaltstack(const stack_t* now, stack_t* before) noexcept {
  gump::testing::WaitIfThreadsHeld();
  if (gump::testing::RefuseErrno("sigaltstack")) return -1;
  return gump::testing::Real().sigaltstack(now, before);
}

int socket(int domain, int type, int protocol) noexcept {
  if (gump::testing::RefuseErrno("socket")) return -1;
  return gump::testing::Real().socket(domain, type, protocol);
}

int bind(int fd, const struct sockaddr* a, socklen_t n) noexcept {
  if (gump::testing::RefuseErrno("bind")) return -1;
  return gump::testing::Real().bind(fd, a, n);
}

int listen(int fd, int backlog) noexcept {
  if (gump::testing::RefuseErrno("listen")) return -1;
  return gump::testing::Real().listen(fd, backlog);
}

int accept4(int fd, struct sockaddr* a, socklen_t* n, int flags) {
  if (gump::testing::RefuseErrno("accept4")) return -1;
  return gump::testing::Real().accept4(fd, a, n, flags);
}

int connect(int fd, const struct sockaddr* a, socklen_t n) {
  if (gump::testing::RefuseErrno("connect")) return -1;
  return gump::testing::Real().connect(fd, a, n);
}

// liburing makes its system calls itself. These are its functions.
int io_uring_queue_init_params(unsigned n, struct io_uring* ring,
                               struct io_uring_params* p) {
  int error = 0;
  if (gump::testing::Refuse("io_uring_setup", &error)) return -error;
  return gump::testing::Real().io_uring_queue_init_params(n, ring, p);
}

int io_uring_submit_and_wait(struct io_uring* ring, unsigned n) {
  gump::testing::WaitIfRingHeld();
  int error = 0;
  if (gump::testing::Refuse("io_uring_enter", &error)) return -error;
  return gump::testing::Real().io_uring_submit_and_wait(ring, n);
}

int io_uring_submit_and_get_events(struct io_uring* ring) {
  gump::testing::WaitIfRingHeld();
  int error = 0;
  if (gump::testing::Refuse("io_uring_enter", &error)) return -error;
  return gump::testing::Real().io_uring_submit_and_get_events(ring);
}

// Called only when the queue of submissions is full.
int io_uring_submit(struct io_uring* ring) {
  int error = 0;
  if (gump::testing::Refuse("io_uring_submit", &error)) return -error;
  return gump::testing::Real().io_uring_submit(ring);
}

// The runtime's futex calls do not go through libc, so the linker puts this in
// the place of futexsleep (--wrap). A refusal ends the sleep at once. The
// kernel does nothing worse than that.
void __real__ZN4gump2rt10futexsleepEPNS0_6AtomicIjEEjl(
    gump::rt::Atomic<uint32_t>* addr, uint32_t val, int64_t ns);
void __wrap__ZN4gump2rt10futexsleepEPNS0_6AtomicIjEEjl(
    gump::rt::Atomic<uint32_t>* addr, uint32_t val, int64_t ns) {
  int error = 0;
  if (gump::testing::Refuse("futex", &error)) return;
  __real__ZN4gump2rt10futexsleepEPNS0_6AtomicIjEEjl(addr, val, ns);
}
}

#endif  // TESTS_FAULT_INTERPOSE_H_
