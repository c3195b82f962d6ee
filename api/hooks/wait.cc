#include "api/hooks/wait.h"

#include <fcntl.h>
#include <link.h>

#include <algorithm>

#include "api/hooks/off.h"
#include "gump/go.h"
#include "gump/internal/linkname_time.h"
#include "netpoll/fd.h"
#include "netpoll/once.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/exports_linux.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::hooks {

const Interposer* interposer = nullptr;
rt::Atomic<int64_t> descriptorWaiters;

// ---- Who may park -----------------------------------------------------------

void YieldIfAsked() {
  if (rt::getg()->preempt.load(rt::relaxed) && Clean()) {
    (void)rt::runtimeEntry();
  }
}

Way WayHere() {
  const rt::G* gp = rt::getg();
  if (gp == nullptr || gp->foreign) return Way::kDirect;
  const rt::M* mp = gp->m;
  // m.locks: the runtime itself makes the call, or a signal handler in it.
  if (gp == &mp->g0 || mp->locks.load(rt::relaxed) != 0 || !rt::onceMayPark() ||
      gp->bubble != nullptr) {
    return Way::kDirect;
  }
  YieldIfAsked();
  return IsOff() ? Way::kStay : Way::kPark;
}

// ---- OpenSSL ----------------------------------------------------------------
//
// SSL_get_error looks at the queue of errors of its thread, which must be empty
// before the operation. If a goroutine parked with an error in the queue,
// another goroutine of the home would find it. A process may have several
// copies of libcrypto.
//
// The address of ERR_peek_error is looked up in the symbol tables of the
// modules. dlsym would take the loader's lock, which a thread holds while it
// runs the constructors of a library, and such a constructor may wait for a
// hooked goroutine.

namespace {

struct OpenSSL {
  unsigned long (*peek_error)() = nullptr;
  void (*clear_error)() = nullptr;
};
constexpr size_t kMaxCopies = 8;
// Written by the holder of `looking`, and never changed once `n` counts it.
OpenSSL copies[kMaxCopies];
rt::Atomic<size_t> ncopies;
rt::Atomic<bool> lookAgain{true};
rt::Atomic<bool> looking;
// dlpi_adds of the last look: how many modules have ever been loaded.
rt::Atomic<unsigned long long> lastAdds;

unsigned long long Adds() {
  unsigned long long adds = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* arg) {
        *static_cast<unsigned long long*>(arg) = info->dlpi_adds;
        return 1;
      },
      &adds);
  return adds;
}

void Look() {
  constexpr const char* kNames[] = {"ERR_peek_error", "ERR_clear_error"};
  rt::forEachExporter(
      kNames, 2,
      [](void* const* found, void* /*arg*/) {
        const OpenSSL c{reinterpret_cast<unsigned long (*)()>(found[0]),
                        reinterpret_cast<void (*)()>(found[1])};
        const size_t n = ncopies.load(rt::relaxed);
        for (size_t i = 0; i < n; i++) {
          if (copies[i].peek_error == c.peek_error) return;
        }
        if (n == kMaxCopies) return;
        copies[n] = c;
        ncopies.store(n + 1, rt::release);  // pairs with Clean
      },
      nullptr);
}

// LookIfLoaded looks at the modules if there are new ones. The flag stays set
// until the load that it announces is over.
void LookIfLoaded() {
  const unsigned long long adds = Adds();
  if (adds == lastAdds.load(rt::relaxed)) return;
  if (!looking.cas(false, true, rt::acquire)) return;  // another thread looks
  lookAgain.store(false, rt::relaxed);
  lastAdds.store(adds, rt::relaxed);
  Look();
  looking.store(false, rt::release);
}

}  // namespace

void LookForOpenSSL() { lookAgain.store(true, rt::relaxed); }

bool Clean() {
  if (interposer->self()->locks != 0) return false;
  if (lookAgain.load(rt::relaxed)) LookIfLoaded();
  const size_t n = ncopies.load(rt::acquire);
  for (size_t i = 0; i < n; i++) {
    if (copies[i].peek_error() != 0) return false;
  }
  return true;
}

void ForgetErrors() {
  const size_t n = ncopies.load(rt::acquire);
  for (size_t i = 0; i < n; i++) {
    if (copies[i].peek_error() != 0 && copies[i].clear_error != nullptr) {
      copies[i].clear_error();
    }
  }
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
  // seq_cst, here and where a thread closes (hooks.cc): if that thread does
  // not see this waiter, the waiter's look at the kernel, which follows, sees
  // what the thread has done.
  descriptorWaiters.add(1, rt::seq_cst);
  const int err = rt::onceWait(fds, n, until);
  descriptorWaiters.add(-1, rt::relaxed);
  if (err == 0) return Awaited::kAsk;
  if (err == rt::kErrClosing) return Awaited::kClosed;
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
