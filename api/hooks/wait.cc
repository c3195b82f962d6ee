#include "api/hooks/wait.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>

#include <algorithm>
#include <cstring>

#include "api/hooks/off.h"
#include "gump/go.h"
#include "gump/internal/linkname_time.h"
#include "netpoll/fd.h"
#include "netpoll/once.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::hooks {

const Interposer* interposer = nullptr;
rt::Atomic<int64_t> descriptorWaiters;
rt::Atomic<int64_t> condWaiters;

// ---- Who may park -----------------------------------------------------------

Way WayHere() {
  const rt::G* gp = rt::getg();
  if (gp == nullptr || gp->foreign) return Way::kDirect;
  const rt::M* mp = gp->m;
  // m.locks: the runtime itself makes the call, or a signal handler in it.
  if (gp == &mp->g0 || mp->locks.load(rt::relaxed) != 0 || !rt::onceMayPark() ||
      gp->bubble != nullptr) {
    return Way::kDirect;
  }
  // A goroutine whose calls never wait would keep the home for itself.
  if (gp->preempt.load(rt::relaxed) && Clean()) (void)rt::runtimeEntry();
  return IsOff() ? Way::kStay : Way::kPark;
}

int32_t LocksHere() { return interposer->self()->locks; }

// ---- OpenSSL ----------------------------------------------------------------
//
// SSL_get_error looks at the queue of errors of its thread, which must be empty
// before the operation. If a goroutine parked with an error in the queue,
// another goroutine of the home would find it. A process may have several
// copies of libcrypto.

namespace {

using PeekError = unsigned long (*)();
constexpr size_t kMaxCopies = 4;
rt::Atomic<PeekError> peekError[kMaxCopies];
rt::Atomic<bool> lookAgain{true};

void addPeekError(PeekError f) {
  for (rt::Atomic<PeekError>& p : peekError) {
    if (p.load(rt::relaxed) == f) return;
    // Relaxed: code that the loader has mapped before.
    if (p.load(rt::relaxed) == nullptr && p.cas(nullptr, f, rt::relaxed))
      return;
  }
}

// findOpenSSL looks at the libraries that are loaded now.
void findOpenSSL() {
  struct Found {
    char names[kMaxCopies][512];
    size_t n = 0;
  };
  Found found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* arg) {
        auto* f = static_cast<Found*>(arg);
        if (f->n == kMaxCopies ||
            std::strstr(info->dlpi_name, "libcrypto.so") == nullptr ||
            std::strlen(info->dlpi_name) >= sizeof(f->names[0])) {
          return 0;
        }
        std::strcpy(f->names[f->n++], info->dlpi_name);
        return 0;
      },
      &found);
  for (size_t i = 0; i < found.n; i++) {
    void* lib = dlopen(found.names[i], RTLD_LAZY | RTLD_NOLOAD);
    if (lib == nullptr) continue;
    if (void* f = dlsym(lib, "ERR_peek_error")) {
      addPeekError(reinterpret_cast<PeekError>(f));
    }
    // Not closed: our pointer must stay valid.
  }
}

}  // namespace

void LookForOpenSSL() { lookAgain.store(true, rt::relaxed); }

bool Clean() {
  ThreadState* s = interposer->self();
  if (s->locks != 0) return false;
  if (lookAgain.load(rt::relaxed)) {
    lookAgain.store(false, rt::relaxed);
    const ErrnoGuard guard;
    findOpenSSL();
    (void)guard.Return(0);
  }
  for (const rt::Atomic<PeekError>& p : peekError) {
    const PeekError f = p.load(rt::relaxed);
    if (f == nullptr) return true;
    if (f() != 0) return false;
  }
  return true;
}

// ---- Waiting ----------------------------------------------------------------

namespace {

// A raw system call that closes a descriptor wakes no goroutine. One that waits
// for it finds out after this time.
constexpr int64_t kAskAgainAfter = 10'000'000'000;

}  // namespace

int64_t TimeFromNow(int64_t ns) {
  return ns == kNever ? kNever : rt::timeAfter(rt::nanotime(), ns);
}

int64_t Nanoseconds(const timespec& t) {
  constexpr int64_t kSecond = 1'000'000'000;
  if (t.tv_sec >= kNever / kSecond - 1) return kNever;
  return t.tv_sec * kSecond + t.tv_nsec;
}

int64_t Nanoseconds(const timeval& t) {
  return Nanoseconds(timespec{t.tv_sec, t.tv_usec * 1000});
}

Awaited Await(const pollfd* fds, size_t n, int64_t when) {
  const int64_t until = std::min(when, TimeFromNow(kAskAgainAfter));
  // seq_cst, here and where a thread closes (attach.cc): if that thread does
  // not see this waiter, the waiter's look at the kernel, which follows, sees
  // what the thread has done.
  descriptorWaiters.add(1, rt::seq_cst);
  const int err = rt::onceWait(fds, n, until);
  descriptorWaiters.add(-1, rt::relaxed);
  if (err == 0) return Awaited::kAsk;
  if (err != rt::kErrTimeout) return Awaited::kImpossible;
  return until == when ? Awaited::kTimeout : Awaited::kAsk;
}

Awaited Await(int fd, short events, int64_t when) {
  const pollfd p{fd, events, 0};
  return Await(&p, 1, when);
}

// A signal that is pending ends even a poll that does not wait.
int LookAt(pollfd* fds, size_t n) {
  for (;;) {
    const int r = Libc().poll(fds, n, 0);
    if (r >= 0 || errno != EINTR) return r;
  }
}

bool IsNonBlocking(int fd) {
  const int flags = Libc().fcntl(fd, F_GETFL, 0);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

// ---- Lending ----------------------------------------------------------------

bool LendCall(void (*f)(void*), void* arg) {
  // The resolver and the modules that it loads need more than a goroutine has.
  constexpr size_t kStack = size_t{1} << 20;
  struct Errand {
    void (*f)(void*);
    void* arg;
    rt::Atomic<uint32_t> done{0};
  };
  Errand e{f, arg};
  try {
    go(GoOptions{.stack_size = kStack, .name = "hooks"}, [&e] {
      blocking([&e] { e.f(e.arg); });
      rt::semrelease(&e.done, /*handoff=*/false);
    });
  } catch (...) {  // no memory; nothing else is thrown
    return false;
  }
  rt::semacquire(&e.done, /*lifo=*/false, rt::SemaReason::kSemacquire);
  return true;
}

}  // namespace gump::hooks
