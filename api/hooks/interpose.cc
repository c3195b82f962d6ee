// The interposer. interpose.h says what it is.
//
// A function is hooked if the program and its libraries find our symbol before
// libc's. The loader looks at the program first, then at its libraries in the
// order in which they were linked, and at those that are loaded later last. So
// the clients that dlopen loads find our symbols, too. Calls within libc do not
// come here: getaddrinfo is hooked as a whole, stdio is not hooked.
//
// The functions of libc are looked up by a constructor that runs before all
// others (-z initfirst). A call that comes even earlier looks them up itself.
// So no call ever finds a null pointer.
//
// Counting locks. `locks` counts the locks that a home of hooks has taken. It
// is written by the thread itself. A lock that was taken before the thread
// became a home, or by another thread, may be given back here. It is not among
// those that are held, so the count stays. Beyond the eight whose addresses are
// remembered, any lock that is given back counts. pthread_cond_wait gives its
// lock back by a call within libc, and takes it again: the count stays right.
// pthread_once, dlopen and the initialisation of a function's static variable
// are like locks, because other threads wait until they are over.
#include "api/hooks/interpose.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types and lists

// Sanitizers would intercept what this file defines.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#error "the interposer is not built with -fsanitize=thread"
#endif
#endif

namespace gump::hooks {
namespace {

#define GUMP_HOOK_LIKELY(x) __builtin_expect(!!(x), 1)
#define GUMP_HOOK_UNLIKELY(x) __builtin_expect(!!(x), 0)

// CMake makes thread-local variables initial-exec: no call is needed for them.
constinit thread_local ThreadState state;

std::atomic<const Table*> table{nullptr};

// Functions that only the interposer calls.
struct MoreCalls {
  ssize_t (*read_chk)(int, void*, size_t, size_t) = nullptr;
  ssize_t (*pread_chk)(int, void*, size_t, off_t, size_t) = nullptr;
  ssize_t (*recv_chk)(int, void*, size_t, size_t, int) = nullptr;
  ssize_t (*recvfrom_chk)(int, void*, size_t, size_t, int, sockaddr*,
                          socklen_t*) = nullptr;
  int (*poll_chk)(pollfd*, nfds_t, int, size_t) = nullptr;
  int (*ppoll_chk)(pollfd*, nfds_t, const timespec*, const sigset_t*,
                   size_t) = nullptr;
  int (*pthread_once)(pthread_once_t*, void (*)()) = nullptr;
  void (*call_once)(once_flag*, void (*)()) = nullptr;
  void* (*dlopen)(const char*, int) = nullptr;
  int (*dlclose)(void*) = nullptr;
  void (*flockfile)(FILE*) = nullptr;
  int (*ftrylockfile)(FILE*) = nullptr;
  void (*funlockfile)(FILE*) = nullptr;
  int (*cxa_guard_acquire)(int64_t*) = nullptr;
  void (*cxa_guard_release)(int64_t*) = nullptr;
  void (*cxa_guard_abort)(int64_t*) = nullptr;
};

// What a call that comes before the constructor finds. It looks up all
// functions, and goes on. While this very thread looks up (dlsym may allocate,
// and malloc may lock), a lock is taken to be free: no other thread runs yet.
void findAll();
constinit thread_local bool finding = false;

#define GUMP_CALL(result, name, parameters, arguments) \
  result first_##name parameters;
GUMP_HOOKED_CALLS(GUMP_CALL)
GUMP_WAKING_CALLS(GUMP_CALL)
#undef GUMP_CALL
#define GUMP_CALL(name, parameters, arguments) int first_##name parameters;
GUMP_LOCK_CALLS(GUMP_CALL)
GUMP_UNLOCK_CALLS(GUMP_CALL)
#undef GUMP_CALL

constinit Calls libc = {
#define GUMP_CALL(result, name, parameters, arguments) .name = first_##name,
    GUMP_HOOKED_CALLS(GUMP_CALL) GUMP_WAKING_CALLS(GUMP_CALL)
#undef GUMP_CALL
#define GUMP_CALL(name, parameters, arguments) .name = first_##name,
        GUMP_LOCK_CALLS(GUMP_CALL) GUMP_UNLOCK_CALLS(GUMP_CALL)
#undef GUMP_CALL
};
constinit MoreCalls more;

#define GUMP_CALL(result, name, parameters, arguments) \
  result first_##name parameters {                     \
    findAll();                                         \
    return libc.name arguments;                        \
  }
GUMP_HOOKED_CALLS(GUMP_CALL)
GUMP_WAKING_CALLS(GUMP_CALL)
#undef GUMP_CALL
#define GUMP_CALL(name, parameters, arguments) \
  int first_##name parameters {                \
    if (finding) return 0;                     \
    findAll();                                 \
    return libc.name arguments;                \
  }
GUMP_LOCK_CALLS(GUMP_CALL)
GUMP_UNLOCK_CALLS(GUMP_CALL)
#undef GUMP_CALL

// Before glibc 2.36, dlsym(RTLD_NEXT) finds the oldest version of a symbol. The
// oldest condition variables are of another size.
void* findCond(const char* name) {
#if defined(__x86_64__)
  constexpr const char* kVersion = "GLIBC_2.3.2";
#else
  constexpr const char* kVersion = "GLIBC_2.17";
#endif
  return dlvsym(RTLD_NEXT, name, kVersion);
}

// hasOldVersion returns true for the functions of condition variables that
// glibc has in two versions. (A lookup that fails allocates, and a sanitizer
// may not be ready for that yet.)
bool hasOldVersion(const char* name) {
  return __builtin_strncmp(name, "pthread_cond_", 13) == 0 &&
         __builtin_strcmp(name, "pthread_cond_clockwait") != 0;
}

// find sets *to to the next definition of `name`, if there is one.
template <class F>
void find(F** to, const char* name) {
  void* p = nullptr;
  if (hasOldVersion(name)) p = findCond(name);
  if (p == nullptr) p = dlsym(RTLD_NEXT, name);
  // Other threads may do the same, and find the same.
  if (p != nullptr) {
    __atomic_store_n(to, reinterpret_cast<F*>(p), __ATOMIC_RELAXED);
  }
}

void findAll() {
  finding = true;
  const int saved = errno;
#define GUMP_CALL(result, name, parameters, arguments) find(&libc.name, #name);
  GUMP_HOOKED_CALLS(GUMP_CALL)
  GUMP_WAKING_CALLS(GUMP_CALL)
#undef GUMP_CALL
#define GUMP_CALL(name, parameters, arguments) find(&libc.name, #name);
  GUMP_LOCK_CALLS(GUMP_CALL)
  GUMP_UNLOCK_CALLS(GUMP_CALL)
#undef GUMP_CALL
  find(&more.read_chk, "__read_chk");
  find(&more.pread_chk, "__pread_chk");
  find(&more.recv_chk, "__recv_chk");
  find(&more.recvfrom_chk, "__recvfrom_chk");
  find(&more.poll_chk, "__poll_chk");
  find(&more.ppoll_chk, "__ppoll_chk");
  find(&more.pthread_once, "pthread_once");
  find(&more.call_once, "call_once");
  find(&more.dlopen, "dlopen");
  find(&more.dlclose, "dlclose");
  find(&more.flockfile, "flockfile");
  find(&more.ftrylockfile, "ftrylockfile");
  find(&more.funlockfile, "funlockfile");
  find(&more.cxa_guard_acquire, "__cxa_guard_acquire");
  find(&more.cxa_guard_release, "__cxa_guard_release");
  find(&more.cxa_guard_abort, "__cxa_guard_abort");
  errno = saved;
  finding = false;
}

__attribute__((constructor(101))) void initialise() { findAll(); }

// found returns a function of MoreCalls, which a call before the constructor
// looks up.
template <class F>
F* found(F* const* f) {
  if (GUMP_HOOK_UNLIKELY(*f == nullptr)) findAll();
  return *f;
}

const Table* attached() { return table.load(std::memory_order_acquire); }

void took(const void* lock) {
  const int32_t n = state.locks++;
  if (n < ThreadState::kRemembered) state.held[n] = lock;
}

void gave(const void* lock) {
  const int32_t n = state.locks;
  const int32_t known =
      n < ThreadState::kRemembered ? n : ThreadState::kRemembered;
  for (int32_t i = known - 1; i >= 0; i--) {
    if (state.held[i] != lock) continue;
    // One that is not remembered takes its place, under no address.
    state.held[i] = n > known ? nullptr : state.held[n - 1];
    state.locks = n - 1;
    return;
  }
  // It may be one that is not remembered, or one that has lost its address.
  for (int32_t i = known - 1; i >= 0 && n <= known; i--) {
    if (state.held[i] != nullptr) continue;
    state.held[i] = state.held[n - 1];
    state.locks = n - 1;
    return;
  }
  if (n > known) state.locks = n - 1;
}

// first returns the first of its arguments, which is the lock.
template <class L, class... A>
const void* first(L* lock, A... /*more*/) {
  return const_cast<const void*>(static_cast<const volatile void*>(lock));
}

// ThreadState may be asked for by the library on any thread.
ThreadState* self() { return &state; }
void attach(const Table* t) { table.store(t, std::memory_order_release); }

// Counted counts as a lock while it lives.
class Counted {
 public:
  explicit Counted(const void* what) : what_(what) { took(what); }
  ~Counted() { gave(what_); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  const void* const what_;
};

}  // namespace

extern "C" __attribute__((visibility("default")))
const Interposer gump_interposer = {sizeof(Interposer), &libc, self, attach};

// Our functions have names of their own, because libc's headers declare libc's
// with other attributes. The symbols have libc's names.
#define GUMP_EXPORT(symbol) \
  __asm__(symbol) __attribute__((visibility("default")))

extern "C" {

#define GUMP_CALL(result, name, parameters, arguments)           \
  result gumpHook_##name parameters GUMP_EXPORT(#name);          \
  result gumpHook_##name parameters {                            \
    if (GUMP_HOOK_LIKELY(!state.on)) return libc.name arguments; \
    const Table* hooks = attached();                             \
    if (hooks == nullptr) return libc.name arguments;            \
    return hooks->name arguments;                                \
  }
GUMP_HOOKED_CALLS(GUMP_CALL)
#undef GUMP_CALL

// The names for files of more than 2 GiB are the same functions.
ssize_t gumpHook_pread64(int fd, void* buf, size_t n, off_t at)
    GUMP_EXPORT("pread64");
ssize_t gumpHook_pread64(int fd, void* buf, size_t n, off_t at) {
  return gumpHook_pread(fd, buf, n, at);
}
int gumpHook_fcntl64(int fd, int op, long arg) GUMP_EXPORT("fcntl64");
int gumpHook_fcntl64(int fd, int op, long arg) {
  return gumpHook_fcntl(fd, op, arg);
}
int gumpHook_lockf64(int fd, int op, off_t n) GUMP_EXPORT("lockf64");
int gumpHook_lockf64(int fd, int op, off_t n) {
  return gumpHook_lockf(fd, op, n);
}

// The functions of _FORTIFY_SOURCE. libc's ends the program if the buffer is
// too small.
ssize_t gumpHook_read_chk(int fd, void* buf, size_t n, size_t size)
    GUMP_EXPORT("__read_chk");
ssize_t gumpHook_read_chk(int fd, void* buf, size_t n, size_t size) {
  if (!state.on || n > size) return found(&more.read_chk)(fd, buf, n, size);
  return gumpHook_read(fd, buf, n);
}
ssize_t gumpHook_pread_chk(int fd, void* buf, size_t n, off_t at, size_t size)
    GUMP_EXPORT("__pread_chk");
ssize_t gumpHook_pread_chk(int fd, void* buf, size_t n, off_t at, size_t size) {
  if (!state.on || n > size) {
    return found(&more.pread_chk)(fd, buf, n, at, size);
  }
  return gumpHook_pread(fd, buf, n, at);
}
ssize_t gumpHook_pread64_chk(int fd, void* buf, size_t n, off_t at, size_t size)
    GUMP_EXPORT("__pread64_chk");
ssize_t gumpHook_pread64_chk(int fd, void* buf, size_t n, off_t at,
                             size_t size) {
  return gumpHook_pread_chk(fd, buf, n, at, size);
}
ssize_t gumpHook_recv_chk(int fd, void* buf, size_t n, size_t size, int flags)
    GUMP_EXPORT("__recv_chk");
ssize_t gumpHook_recv_chk(int fd, void* buf, size_t n, size_t size, int flags) {
  if (!state.on || n > size) {
    return found(&more.recv_chk)(fd, buf, n, size, flags);
  }
  return gumpHook_recv(fd, buf, n, flags);
}
ssize_t gumpHook_recvfrom_chk(int fd, void* buf, size_t n, size_t size,
                              int flags, sockaddr* from, socklen_t* fromSize)
    GUMP_EXPORT("__recvfrom_chk");
ssize_t gumpHook_recvfrom_chk(int fd, void* buf, size_t n, size_t size,
                              int flags, sockaddr* from, socklen_t* fromSize) {
  if (!state.on || n > size) {
    return found(&more.recvfrom_chk)(fd, buf, n, size, flags, from, fromSize);
  }
  return gumpHook_recvfrom(fd, buf, n, flags, from, fromSize);
}
int gumpHook_poll_chk(pollfd* fds, nfds_t n, int ms, size_t size)
    GUMP_EXPORT("__poll_chk");
int gumpHook_poll_chk(pollfd* fds, nfds_t n, int ms, size_t size) {
  if (!state.on || n > size / sizeof(*fds)) {
    return found(&more.poll_chk)(fds, n, ms, size);
  }
  return gumpHook_poll(fds, n, ms);
}
int gumpHook_ppoll_chk(pollfd* fds, nfds_t n, const timespec* limit,
                       const sigset_t* mask, size_t size)
    GUMP_EXPORT("__ppoll_chk");
int gumpHook_ppoll_chk(pollfd* fds, nfds_t n, const timespec* limit,
                       const sigset_t* mask, size_t size) {
  if (!state.on || n > size / sizeof(*fds)) {
    return found(&more.ppoll_chk)(fds, n, limit, mask, size);
  }
  return gumpHook_ppoll(fds, n, limit, mask);
}

// ---- Calls that wake --------------------------------------------------------

int gumpHook_close(int fd) GUMP_EXPORT("close");
int gumpHook_close(int fd) {
  const Table* t = attached();
  if (GUMP_HOOK_LIKELY(t == nullptr)) return libc.close(fd);
  t->closing(fd);
  const int r = libc.close(fd);
  t->closed(fd, r == 0 || errno != EBADF);
  return r;
}
int gumpHook_dup2(int from, int to) GUMP_EXPORT("dup2");
int gumpHook_dup2(int from, int to) {
  const Table* t = attached();
  if (GUMP_HOOK_LIKELY(t == nullptr) || from == to) return libc.dup2(from, to);
  t->closing(to);
  const int r = libc.dup2(from, to);
  t->closed(to, r >= 0);
  return r;
}
int gumpHook_dup3(int from, int to, int flags) GUMP_EXPORT("dup3");
int gumpHook_dup3(int from, int to, int flags) {
  const Table* t = attached();
  if (GUMP_HOOK_LIKELY(t == nullptr)) return libc.dup3(from, to, flags);
  t->closing(to);
  const int r = libc.dup3(from, to, flags);
  t->closed(to, r >= 0);
  return r;
}

#define GUMP_SIGNAL(name, type, all)                            \
  int gumpHook_##name(type* c) GUMP_EXPORT(#name);              \
  int gumpHook_##name(type* c) {                                \
    const int r = libc.name(c);                                 \
    const Table* t = attached();                                \
    if (GUMP_HOOK_UNLIKELY(t != nullptr)) t->signalled(c, all); \
    return r;                                                   \
  }
GUMP_SIGNAL(pthread_cond_signal, pthread_cond_t, false)
GUMP_SIGNAL(pthread_cond_broadcast, pthread_cond_t, true)
GUMP_SIGNAL(cnd_signal, cnd_t, false)
GUMP_SIGNAL(cnd_broadcast, cnd_t, true)

// ---- Locks ------------------------------------------------------------------

// thrd_success is 0, too.
#define GUMP_CALL(name, parameters, arguments)                   \
  int gumpHook_##name parameters GUMP_EXPORT(#name);             \
  int gumpHook_##name parameters {                               \
    if (GUMP_HOOK_LIKELY(!state.on)) return libc.name arguments; \
    const int r = libc.name arguments;                           \
    if (r == 0 || r == EOWNERDEAD) took(first arguments);        \
    return r;                                                    \
  }
GUMP_LOCK_CALLS(GUMP_CALL)
#undef GUMP_CALL
#define GUMP_CALL(name, parameters, arguments)                   \
  int gumpHook_##name parameters GUMP_EXPORT(#name);             \
  int gumpHook_##name parameters {                               \
    if (GUMP_HOOK_LIKELY(!state.on)) return libc.name arguments; \
    const int r = libc.name arguments;                           \
    if (r == 0) gave(first arguments);                           \
    return r;                                                    \
  }
GUMP_UNLOCK_CALLS(GUMP_CALL)
#undef GUMP_CALL

void gumpHook_flockfile(FILE* f) GUMP_EXPORT("flockfile");
void gumpHook_flockfile(FILE* f) {
  found (&more.flockfile)(f);
  if (state.on) took(f);
}
int gumpHook_ftrylockfile(FILE* f) GUMP_EXPORT("ftrylockfile");
int gumpHook_ftrylockfile(FILE* f) {
  const int r = found(&more.ftrylockfile)(f);
  if (state.on && r == 0) took(f);
  return r;
}
void gumpHook_funlockfile(FILE* f) GUMP_EXPORT("funlockfile");
void gumpHook_funlockfile(FILE* f) {
  found (&more.funlockfile)(f);
  if (state.on) gave(f);
}

// ---- What is like a lock while it lasts -------------------------------------

int gumpHook_pthread_once(pthread_once_t* once, void (*f)())
    GUMP_EXPORT("pthread_once");
int gumpHook_pthread_once(pthread_once_t* once, void (*f)()) {
  if (GUMP_HOOK_LIKELY(!state.on)) return found(&more.pthread_once)(once, f);
  const Counted hold(once);  // f may throw
  return found(&more.pthread_once)(once, f);
}
void gumpHook_call_once(once_flag* once, void (*f)()) GUMP_EXPORT("call_once");
void gumpHook_call_once(once_flag* once, void (*f)()) {
  if (GUMP_HOOK_LIKELY(!state.on)) {
    found (&more.call_once)(once, f);
    return;
  }
  const Counted hold(once);
  found (&more.call_once)(once, f);
}

// The loader searches the folders that the object names which calls dlopen. So
// that it sees the caller and not this object, the call must be the last thing
// that happens here. On a home something else happens after it. There a plain
// name that has not been found is looked up again, and then not counted.
void* gumpHook_dlopen(const char* file, int mode) GUMP_EXPORT("dlopen");
void* gumpHook_dlopen(const char* file, int mode) {
  const Table* t = attached();
  if (GUMP_HOOK_UNLIKELY(t != nullptr)) t->loaded();
  if (GUMP_HOOK_UNLIKELY(state.on)) {
    took(&more);
    void* p = found(&more.dlopen)(file, mode);
    gave(&more);
    if (p != nullptr || file == nullptr ||
        __builtin_strchr(file, '/') != nullptr) {
      return p;
    }
  }
  return found(&more.dlopen)(file, mode);
}
int gumpHook_dlclose(void* handle) GUMP_EXPORT("dlclose");
int gumpHook_dlclose(void* handle) {
  if (GUMP_HOOK_LIKELY(!state.on)) return found(&more.dlclose)(handle);
  const Counted hold(handle);
  return found(&more.dlclose)(handle);
}

// A static variable of a function is being initialised from an acquire that
// returns 1 to the release, or to the abort.
int gumpHook_cxa_guard_acquire(int64_t* guard)
    GUMP_EXPORT("__cxa_guard_acquire");
int gumpHook_cxa_guard_acquire(int64_t* guard) {
  const int r = found(&more.cxa_guard_acquire)(guard);
  if (state.on && r == 1) took(guard);
  return r;
}
void gumpHook_cxa_guard_release(int64_t* guard)
    GUMP_EXPORT("__cxa_guard_release");
void gumpHook_cxa_guard_release(int64_t* guard) {
  found (&more.cxa_guard_release)(guard);
  if (state.on) gave(guard);
}
void gumpHook_cxa_guard_abort(int64_t* guard) GUMP_EXPORT("__cxa_guard_abort");
void gumpHook_cxa_guard_abort(int64_t* guard) {
  found (&more.cxa_guard_abort)(guard);
  if (state.on) gave(guard);
}

}  // extern "C"

}  // namespace gump::hooks

// NOLINTEND(bugprone-macro-parentheses)
