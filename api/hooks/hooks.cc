// The homes of hooks, and how goroutines come and go.
#include "gump/hooks.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "api/hooks/off.h"
#include "api/hooks/wait.h"
#include "api/hooks/waking.h"
#include "gump/gls.h"
#include "gump/runtime.h"
#include "gump/sync/mutex.h"
#include "netpoll/once.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rt0.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/sanitizer.h"
#include "runtime/sys/tls.h"

namespace gump::hooks {
namespace {

// ThreadSanitizer intercepts locks itself.
#if defined(GUMP_TSAN)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// ---- The interposer ---------------------------------------------------------

// WithWaiters calls f if goroutines wait for descriptors. Descriptors that the
// runtime closes are its own, so no hooked call waits for them.
template <class F>
void WithWaiters(int fd, F f) {
  // seq_cst: see Await.
  if (descriptorWaiters.load(rt::seq_cst) == 0 || fd < 0) return;
  const int saved = errno;
  const Waking here;
  // Inside of the runtime, the caller may hold one of its locks: a handler of a
  // signal may close a descriptor. The waiters find out later (Await).
  if (!here.inside()) f();
  errno = saved;
}

void Closing(int fd) {
  WithWaiters(fd, [fd] { rt::onceClosing(fd); });
}
void Closed(int fd, bool gone) {
  WithWaiters(fd, [=] { rt::onceClosed(fd, gone); });
}

const Table* MakeTable() {
  static Table t;
  AddSocketCalls(&t);
  AddFileCalls(&t);
  AddPollCalls(&t);
  AddTimeCalls(&t);
  AddCondCalls(&t);
  AddLentCalls(&t);
  t.closing = Closing;
  t.closed = Closed;
  t.loaded = LookForOpenSSL;
  return &t;
}

// InFront returns true if the program finds the interposer's functions before
// libc's. AddressSanitizer has its own poll, which calls the interposer's, but
// no lockf.
bool InFront(const void* ours) {
  Dl_info mine;
  Dl_info found;
  void* f = dlsym(RTLD_DEFAULT, rt::kSanitizerBuild ? "lockf" : "poll");
  return f != nullptr && dladdr(ours, &mine) != 0 && dladdr(f, &found) != 0 &&
         mine.dli_fbase == found.dli_fbase;
}

void Refuse(const char* why) {
  rt::printf("gump: hooks: %s, so calls block their threads\n", why);
}

// Attach finds the interposer. Returns nullptr if there is none.
const Interposer* Attach() {
  rt::schedinit();
  if (rt::debug.hooks == 0 || kThreadSanitizer) return nullptr;
  const auto* i =
      static_cast<const Interposer*>(dlsym(RTLD_DEFAULT, kInterposerName));
  if (i == nullptr) {
    Refuse("the program is not linked with gump::hooks");
    return nullptr;
  }
  if (i->size != sizeof(Interposer)) {
    Refuse("libgump_interpose.so is of another version");
    return nullptr;
  }
  if (!InFront(i)) {
    Refuse("another library defines poll before libgump_interpose.so");
    return nullptr;
  }
  interposer = i;
  i->attach(MakeTable());
  return i;
}

// Attached returns whether there is an interposer.
bool Attached() {
  static const Interposer* const found = Attach();
  return found != nullptr;
}

// ---- Homes ------------------------------------------------------------------

constexpr int kMaxThreads = 64;
constexpr int kMinDefault = 4;

struct HookedHome {
  rt::Atomic<rt::Home*> home;  // made when it is first needed, and kept
  rt::Atomic<int64_t> users;
};
constinit HookedHome homes[kMaxThreads];
constinit rt::Atomic<int> threads{0};  // 0: the default
constinit sync::Mutex making;          // guards the making of homes

int Threads() {
  const int n = threads.load(rt::relaxed);
  return n > 0 ? n
               : std::clamp(runtime::GOMAXPROCS(0), kMinDefault, kMaxThreads);
}

// Take returns a home with the fewest goroutines, and counts one more. Returns
// nullptr if there is no memory.
rt::Home* Take(int* number) {
  int best = 0;
  for (int i = 1; i < Threads(); i++) {  // the counts are hints
    if (homes[i].users.load(rt::relaxed) <
        homes[best].users.load(rt::relaxed)) {
      best = i;
    }
  }
  HookedHome* h = &homes[best];
  h->users.add(1, rt::relaxed);
  *number = best;
  rt::Home* home = h->home.load(rt::acquire);  // pairs with the store below
  if (home != nullptr) return home;
  const std::scoped_lock hold(making);
  home = h->home.load(rt::relaxed);  // written under `making`
  if (home == nullptr) {
    constexpr std::string_view kName = "gump-hooks";
    home = rt::newHome(kName.data(), kName.size());
    h->home.store(home, rt::release);
  }
  if (home == nullptr) h->users.add(-1, rt::relaxed);
  return home;
}

void Drop(int number) { homes[number].users.add(-1, rt::relaxed); }

// MayMove returns whether goroutines of the caller may go to a home. It may be
// a plain thread.
bool MayMove() {
  if (rt::forked.load(rt::relaxed)) return false;
  const rt::G* gp = rt::getg();
  return gp == nullptr || gp->bubble == nullptr;
}

// ---- Off --------------------------------------------------------------------

rt::Atomic<int64_t> offs;  // Offs of all goroutines

gls<int>& OffDepth() {
  static auto* const depth = new gls<int>(0);
  return *depth;
}

}  // namespace

bool IsOff() {
  // The caller's own Offs are counted by its own thread, or by one before it.
  return offs.load(rt::relaxed) != 0 && *OffDepth() != 0;
}

Off::Off() noexcept {
  offs.add(1, rt::relaxed);
  ++*OffDepth();
}

Off::~Off() {
  --*OffDepth();
  offs.add(-1, rt::relaxed);
}

// ---- Scope ------------------------------------------------------------------

Scope::Scope() noexcept {
  if (rt::homeCountsLocks() || !MayMove() || !Attached()) return;
  if (!rt::onceMayPark()) return;  // a plain thread, or inside a declared call
  rt::Home* h = Take(&number_);
  if (h == nullptr) return;
  if (rt::homeEnter(h, &visitor_) != rt::HomeVisit::kWent) {
    Drop(number_);
    return;
  }
  home_ = h;
  internal::BeginHooked();
}

Scope::~Scope() {
  if (home_ == nullptr) return;
  internal::EndHooked();
  rt::homeLeave(&visitor_);
  Drop(number_);
}

void SetThreads(int n) noexcept {
  threads.store(std::clamp(n, 1, kMaxThreads), rt::relaxed);
}

}  // namespace gump::hooks

namespace gump::internal {

// Not inlined: the caller may have come from another thread.
__attribute__((noinline)) void BeginHooked() noexcept {
  asm volatile("");
  hooks::ThreadState* s = hooks::interposer->self();
  if (s->on) return;
  s->locks = 0;
  rt::homeCountLocks(&s->locks);
  s->on = true;
}

// A lock that is still counted may be one that another thread gives back, such
// as a mutex that is used as a semaphore. An error that is still in OpenSSL's
// queue would be found by the next goroutine.
__attribute__((noinline)) void EndHooked() noexcept {
  asm volatile("");
  hooks::interposer->self()->locks = 0;
  hooks::ForgetErrors();
}

HomeTicket::HomeTicket() noexcept {
  if (!hooks::MayMove() || !hooks::Attached()) return;
  home_ = hooks::Take(&number_);
}

HomeTicket::~HomeTicket() {
  if (home_ != nullptr) hooks::Drop(number_);
}

}  // namespace gump::internal
