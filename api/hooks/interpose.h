// The interposer: a shared object, libgump_interpose.so, that defines functions
// of libc. Clients of databases and the like call these in place of libc's.
//
//   client ─▶ interposer ─▶ not on a home of hooks: libc
//                      └──▶ on a home of hooks: the table of hooks.cc
//
// It refers to nothing of the library, so it works with a program that links
// the library statically, with a shared one, and by LD_PRELOAD. Until the
// library attaches its table, it only calls on. Elsewhere than on the homes of
// hooks, a call costs one look at a thread-local byte more than libc's.
#ifndef API_HOOKS_INTERPOSE_H_
#define API_HOOKS_INTERPOSE_H_

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace gump::hooks {

// GUMP_HOOKED_CALLS lists the functions that may park: result, name,
// parameters, arguments. Each has a place in Calls.
//
// The parameters of fcntl are those of the commands that take one. A variable
// argument travels as an ordinary one does, on both processors.
#define GUMP_HOOKED_CALLS(CALL)                                                \
  CALL(ssize_t, recv, (int fd, void* buf, size_t n, int flags),                \
       (fd, buf, n, flags))                                                    \
  CALL(ssize_t, recvfrom,                                                      \
       (int fd, void* buf, size_t n, int flags, sockaddr* from,                \
        socklen_t* size),                                                      \
       (fd, buf, n, flags, from, size))                                        \
  CALL(ssize_t, recvmsg, (int fd, msghdr* m, int flags), (fd, m, flags))       \
  CALL(ssize_t, read, (int fd, void* buf, size_t n), (fd, buf, n))             \
  CALL(ssize_t, readv, (int fd, const iovec* v, int n), (fd, v, n))            \
  CALL(ssize_t, pread, (int fd, void* buf, size_t n, off_t at),                \
       (fd, buf, n, at))                                                       \
  CALL(ssize_t, send, (int fd, const void* buf, size_t n, int flags),          \
       (fd, buf, n, flags))                                                    \
  CALL(ssize_t, sendto,                                                        \
       (int fd, const void* buf, size_t n, int flags, const sockaddr* to,      \
        socklen_t size),                                                       \
       (fd, buf, n, flags, to, size))                                          \
  CALL(ssize_t, sendmsg, (int fd, const msghdr* m, int flags), (fd, m, flags)) \
  CALL(ssize_t, write, (int fd, const void* buf, size_t n), (fd, buf, n))      \
  CALL(ssize_t, writev, (int fd, const iovec* v, int n), (fd, v, n))           \
  CALL(int, connect, (int fd, const sockaddr* to, socklen_t size),             \
       (fd, to, size))                                                         \
  CALL(int, accept, (int fd, sockaddr* from, socklen_t* size),                 \
       (fd, from, size))                                                       \
  CALL(int, accept4, (int fd, sockaddr* from, socklen_t* size, int flags),     \
       (fd, from, size, flags))                                                \
  CALL(int, poll, (pollfd * fds, nfds_t n, int ms), (fds, n, ms))              \
  CALL(int, ppoll,                                                             \
       (pollfd * fds, nfds_t n, const timespec* limit, const sigset_t* mask),  \
       (fds, n, limit, mask))                                                  \
  CALL(int, select, (int n, fd_set* r, fd_set* w, fd_set* e, timeval* limit),  \
       (n, r, w, e, limit))                                                    \
  CALL(int, pselect,                                                           \
       (int n, fd_set* r, fd_set* w, fd_set* e, const timespec* limit,         \
        const sigset_t* mask),                                                 \
       (n, r, w, e, limit, mask))                                              \
  CALL(int, nanosleep, (const timespec* d, timespec* left), (d, left))         \
  CALL(int, clock_nanosleep,                                                   \
       (clockid_t clock, int flags, const timespec* t, timespec* left),        \
       (clock, flags, t, left))                                                \
  CALL(int, usleep, (useconds_t us), (us))                                     \
  CALL(unsigned, sleep, (unsigned s), (s))                                     \
  CALL(int, getaddrinfo,                                                       \
       (const char* node, const char* service, const addrinfo* hints,          \
        addrinfo** found),                                                     \
       (node, service, hints, found))                                          \
  CALL(int, getnameinfo,                                                       \
       (const sockaddr* a, socklen_t size, char* host, socklen_t hostSize,     \
        char* service, socklen_t serviceSize, int flags),                      \
       (a, size, host, hostSize, service, serviceSize, flags))                 \
  CALL(int, gethostbyname_r,                                                   \
       (const char* name, hostent* h, char* buf, size_t n, hostent** found,    \
        int* err),                                                             \
       (name, h, buf, n, found, err))                                          \
  CALL(int, gethostbyname2_r,                                                  \
       (const char* name, int family, hostent* h, char* buf, size_t n,         \
        hostent** found, int* err),                                            \
       (name, family, h, buf, n, found, err))                                  \
  CALL(int, gethostbyaddr_r,                                                   \
       (const void* a, socklen_t size, int family, hostent* h, char* buf,      \
        size_t n, hostent** found, int* err),                                  \
       (a, size, family, h, buf, n, found, err))                               \
  CALL(int, flock, (int fd, int op), (fd, op))                                 \
  CALL(int, lockf, (int fd, int op, off_t n), (fd, op, n))                     \
  CALL(int, fcntl, (int fd, int op, long arg), (fd, op, arg))                  \
  CALL(pid_t, waitpid, (pid_t pid, int* status, int options),                  \
       (pid, status, options))                                                 \
  CALL(pid_t, wait4, (pid_t pid, int* status, int options, rusage* use),       \
       (pid, status, options, use))                                            \
  CALL(int, waitid, (idtype_t type, id_t id, siginfo_t * info, int options),   \
       (type, id, info, options))                                              \
  CALL(int, fsync, (int fd), (fd))                                             \
  CALL(int, fdatasync, (int fd), (fd))                                         \
  CALL(int, pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t * m),      \
       (c, m))                                                                 \
  CALL(int, pthread_cond_timedwait,                                            \
       (pthread_cond_t * c, pthread_mutex_t * m, const timespec* t),           \
       (c, m, t))                                                              \
  CALL(int, pthread_cond_clockwait,                                            \
       (pthread_cond_t * c, pthread_mutex_t * m, clockid_t clock,              \
        const timespec* t),                                                    \
       (c, m, clock, t))                                                       \
  CALL(int, cnd_wait, (cnd_t * c, mtx_t * m), (c, m))                          \
  CALL(int, cnd_timedwait, (cnd_t * c, mtx_t * m, const timespec* t), (c, m, t))

// GUMP_WAKING_CALLS lists the functions that wake goroutines from any thread:
// libc's is called first, and then the table's, with the result.
#define GUMP_WAKING_CALLS(CALL)                                     \
  CALL(int, close, (int fd), (fd))                                  \
  CALL(int, dup2, (int from, int to), (from, to))                   \
  CALL(int, dup3, (int from, int to, int flags), (from, to, flags)) \
  CALL(int, pthread_cond_signal, (pthread_cond_t * c), (c))         \
  CALL(int, pthread_cond_broadcast, (pthread_cond_t * c), (c))      \
  CALL(int, cnd_signal, (cnd_t * c), (c))                           \
  CALL(int, cnd_broadcast, (cnd_t * c), (c))

// GUMP_LOCK_CALLS lists the functions that lock, with the result of success,
// and GUMP_UNLOCK_CALLS those that unlock.
#define GUMP_LOCK_CALLS(CALL)                                                 \
  CALL(pthread_mutex_lock, (pthread_mutex_t * m), (m))                        \
  CALL(pthread_mutex_trylock, (pthread_mutex_t * m), (m))                     \
  CALL(pthread_mutex_timedlock, (pthread_mutex_t * m, const timespec* t),     \
       (m, t))                                                                \
  CALL(pthread_mutex_clocklock,                                               \
       (pthread_mutex_t * m, clockid_t clock, const timespec* t),             \
       (m, clock, t))                                                         \
  CALL(pthread_rwlock_rdlock, (pthread_rwlock_t * l), (l))                    \
  CALL(pthread_rwlock_tryrdlock, (pthread_rwlock_t * l), (l))                 \
  CALL(pthread_rwlock_timedrdlock, (pthread_rwlock_t * l, const timespec* t), \
       (l, t))                                                                \
  CALL(pthread_rwlock_clockrdlock,                                            \
       (pthread_rwlock_t * l, clockid_t clock, const timespec* t),            \
       (l, clock, t))                                                         \
  CALL(pthread_rwlock_wrlock, (pthread_rwlock_t * l), (l))                    \
  CALL(pthread_rwlock_trywrlock, (pthread_rwlock_t * l), (l))                 \
  CALL(pthread_rwlock_timedwrlock, (pthread_rwlock_t * l, const timespec* t), \
       (l, t))                                                                \
  CALL(pthread_rwlock_clockwrlock,                                            \
       (pthread_rwlock_t * l, clockid_t clock, const timespec* t),            \
       (l, clock, t))                                                         \
  CALL(pthread_spin_lock, (pthread_spinlock_t * l), (l))                      \
  CALL(pthread_spin_trylock, (pthread_spinlock_t * l), (l))                   \
  CALL(mtx_lock, (mtx_t * m), (m))                                            \
  CALL(mtx_trylock, (mtx_t * m), (m))                                         \
  CALL(mtx_timedlock, (mtx_t * m, const timespec* t), (m, t))
#define GUMP_UNLOCK_CALLS(CALL)                            \
  CALL(pthread_mutex_unlock, (pthread_mutex_t * m), (m))   \
  CALL(pthread_rwlock_unlock, (pthread_rwlock_t * l), (l)) \
  CALL(pthread_spin_unlock, (pthread_spinlock_t * l), (l)) \
  CALL(mtx_unlock, (mtx_t * m), (m))

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types and lists

// Calls are functions of libc, or functions that take their place.
struct Calls {
#define GUMP_CALL(result, name, parameters, arguments) \
  result(*name) parameters = nullptr;
  GUMP_HOOKED_CALLS(GUMP_CALL)
  GUMP_WAKING_CALLS(GUMP_CALL)
#undef GUMP_CALL
#define GUMP_CALL(name, parameters, arguments) int(*name) parameters = nullptr;
  GUMP_LOCK_CALLS(GUMP_CALL)
  GUMP_UNLOCK_CALLS(GUMP_CALL)
#undef GUMP_CALL
};

// Table is what the library attaches. Its functions are called on homes of
// hooks only, but those of GUMP_WAKING_CALLS, which are void here, from any
// thread.
struct Table {
#define GUMP_CALL(result, name, parameters, arguments) \
  result(*name) parameters = nullptr;
  GUMP_HOOKED_CALLS(GUMP_CALL)
#undef GUMP_CALL
  // Called before a descriptor is closed or replaced (dup2), and after that.
  // `gone` is false if the call has failed.
  void (*closing)(int fd) = nullptr;
  void (*closed)(int fd, bool gone) = nullptr;
  // A condition variable has been signalled.
  void (*signalled)(const void* cond, bool all) = nullptr;
  // A library is about to be loaded.
  void (*loaded)() = nullptr;
};

// NOLINTEND(bugprone-macro-parentheses)

// ThreadState is what the interposer keeps for a thread.
struct ThreadState {
  static constexpr int32_t kRemembered = 8;

  // The thread is a home of hooks.
  bool on = false;
  // Locks that it has taken and not given back since `on` was set.
  int32_t locks = 0;
  // The addresses of the first of them, in any order.
  const void* held[kRemembered] = {};
};

// Interposer is what the library gets in return.
struct Interposer {
  uint32_t size;                 // of this structure: another one is refused
  const Calls* libc;             // the functions that the interposer calls
  ThreadState* (*self)();        // of the calling thread
  void (*attach)(const Table*);  // nullptr: detach
};

// The symbol by which the library finds the interposer, if it is there.
inline constexpr const char* kInterposerName = "gump_interposer";

}  // namespace gump::hooks

#endif  // API_HOOKS_INTERPOSE_H_
