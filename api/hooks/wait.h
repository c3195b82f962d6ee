// How a hooked call waits. There are three ways:
//
//   park   Another goroutine of the home runs, until a descriptor is ready, a
//          time has come, or a condition variable is signalled.
//   lend   A helper goroutine makes the call on a thread of its own, and the
//          caller parks meanwhile.
//   stay   The thread of the home waits in libc's call, as a declared system
//          call. Its P goes to other threads. Goroutines of the same home wait.
//
// (H1) A goroutine parks in a hooked call only if it is clean: its thread holds
//      no lock, and OpenSSL's queue of errors, which belongs to the thread, is
//      empty. Otherwise it stays. Elsewhere, such as in a channel, a goroutine
//      with a lock keeps its thread ((T8) of home.cc).
//
// So if the thread of a home waits for a lock, the goroutine that holds the
// lock is on another thread, and is not parked there. Then the chain of those
// that wait for each other ends at a thread that runs, or is in the kernel for
// another reason, as it does without hooks.
//
// A call of libc is made from the beginning if a wait is over. So what it
// returns is always the kernel's word, and a wait may end too early.
#ifndef API_HOOKS_WAIT_H_
#define API_HOOKS_WAIT_H_

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <type_traits>
#include <utility>

#include "api/hooks/interpose.h"
#include "gump/internal/linkname_go.h"
#include "gump/internal/linkname_sync.h"
#include "runtime/sched/runtime2.h"

namespace gump::hooks {

// The interposer of this process. Set before any thread becomes a home.
extern const Interposer* interposer;
inline const Calls& Libc() { return *interposer->libc; }

// How many goroutines wait in hooked calls for descriptors. A thread that
// closes one looks at it first.
extern rt::Atomic<int64_t> descriptorWaiters;
// Way is how the calling goroutine may make a hooked call.
enum class Way : uint8_t {
  kDirect,  // it is none, or is inside the runtime: libc's call and no more
  kStay,
  kPark,  // if it is clean
};
// WayHere also honours a request to yield.
// On: any.  Parks: may yield.
[[nodiscard]] Way WayHere();

// YieldIfAsked honours a request to yield, if the caller is clean. A goroutine
// whose calls never wait would keep the home for itself.
// On: any.  Parks: may yield.
void YieldIfAsked();

// Clean is (H1).
[[nodiscard]] bool Clean();
// ForgetErrors empties OpenSSL's queue of this thread.
void ForgetErrors();
// LookForOpenSSL is called when a library is about to be loaded.
void LookForOpenSSL();

// ErrnoGuard restores errno at the end of a call that succeeds, as libc leaves
// it. A home's goroutine stays on its thread, so errno is one variable.
class ErrnoGuard {
 public:
  ErrnoGuard() : saved_(errno) {}
  // Returns r, the result of the call. errno is what it was if that is not -1.
  template <class R>
  R Return(R r) const {
    if (r != R{} - 1) errno = saved_;
    return r;
  }

 private:
  const int saved_;
};

// Stay calls f, which blocks in the kernel, as a declared system call.
template <class F>
auto Stay(F&& f) -> decltype(f()) {
  rt::entersyscall();
  auto r = f();
  const int err = errno;
  rt::exitsyscall();
  errno = err;
  return r;
}

// Lend calls f on another thread. The caller parks. f's errno becomes that of
// the caller. LendCall returns false if there is no memory for a goroutine; the
// caller then stays.
[[nodiscard]] bool LendCall(void (*f)(void*), void* arg);
template <class F>
auto Lend(F&& f) -> decltype(f()) {
  struct Call {
    std::remove_reference_t<F>* f;
    std::invoke_result_t<F&> result = {};
    int err = 0;
    int hostErr = 0;
  };
  Call call{&f};
  const bool lent = LendCall(
      [](void* arg) {
        auto* c = static_cast<Call*>(arg);
        c->result = (*c->f)();
        c->err = errno;
        c->hostErr = h_errno;
      },
      &call);
  if (!lent) return Stay(f);
  errno = call.err;
  h_errno = call.hostErr;
  return call.result;
}

// kNever is the time that does not come.
inline constexpr int64_t kNever = INT64_MAX;
// TimeFromNow returns the time that is ns from now, on the clock of Await.
[[nodiscard]] int64_t TimeFromNow(int64_t ns);
// Nanoseconds returns the length of t, or kNever if it is too long.
[[nodiscard]] int64_t Nanoseconds(const timespec& t);
[[nodiscard]] int64_t Nanoseconds(const timeval& t);

// Await parks until one of the n descriptors may be ready, or until `when`.
enum class Awaited : uint8_t {
  kAsk,         // the caller asks the kernel
  kTimeout,     // the time has come
  kClosed,      // the call fails with EBADF
  kImpossible,  // the caller stays
};
[[nodiscard]] Awaited Await(const pollfd* fds, size_t n, int64_t when);
[[nodiscard]] Awaited Await(int fd, short events, int64_t when);

// IsNonBlocking tells whether the program has set O_NONBLOCK.
[[nodiscard]] bool IsNonBlocking(int fd);
inline bool WouldBlock(int err) { return err == EAGAIN || err == EWOULDBLOCK; }

// LookAt is poll(2) with a time limit of 0.
[[nodiscard]] int LookAt(pollfd* fds, size_t n);

// Hooked calls on sockets. They fail with ENOTSOCK on other descriptors.
ssize_t RecvSocket(int fd, void* buf, size_t n, int flags);
ssize_t RecvMsgSocket(int fd, msghdr* m, int flags);
ssize_t SendSocket(int fd, const void* buf, size_t n, int flags);
ssize_t SendMsgSocket(int fd, const msghdr* m, int flags);

// The functions of the table, by the source that defines them.
void AddSocketCalls(Table* t);
void AddFileCalls(Table* t);
void AddPollCalls(Table* t);
void AddTimeCalls(Table* t);
void AddCondCalls(Table* t);
void AddLentCalls(Table* t);

}  // namespace gump::hooks

#endif  // API_HOOKS_WAIT_H_
