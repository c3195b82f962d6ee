// Signals for channels. A handler sets the bit of the signal in a word. It
// wakes a goroutine of the runtime by an eventfd. This goroutine delivers the
// recorded signals to the channels. Each caller that changes the registry
// delivers them too, before the change takes effect.
//
// Invariants:
//  (K1) The registry changes with its lock held, and so do the dispositions of
//       signals as far as they are ours. Bits of pending are taken and sent to
//       channels with the lock held. So after a channel has left the registry,
//       nothing is sent to it.
//  (K2) A handler that finds kNotify as the use of its signal sets the bit in
//       pending. At that time at least one channel wants the signal. The last
//       such channel leaves the registry only after one more call of Deliver.
//  (K3) A signal is given up in four steps:
//         1. The disposition is put back.
//         2. The use changes.
//         3. AwaitHandlers waits until no handler is between its load of the
//            use and its store of the bit (inflight).
//         4. The pending signals are delivered.
//       So a signal is either delivered or has its former effect. It is not
//       lost.
//
// The handler takes no lock, allocates nothing, and keeps errno. It may run on
// any thread, ours or not, and on a signal stack or not.
//
// Rejected: signalfd, which needs the signal blocked in every thread of the
// process; a thread in sigwait, for the same reason.
#include "gump/signal.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "api/signal_name.h"
#include "gump/go.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/mutex.h"
#include "netpoll/fd.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/proc.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/signal.h"

namespace gump::signal {
namespace {

constexpr int kSignals = 64;  // signals are 1 to this; also the bits of a mask

constexpr uint64_t BitOf(int sig) { return uint64_t{1} << (sig - 1); }

// MaskOf returns the set of a list of signals. An empty list means all signals.
uint64_t MaskOf(std::initializer_list<int> signals) {
  if (signals.size() == 0) return ~uint64_t{0};
  uint64_t mask = 0;
  for (const int sig : signals) {
    if (sig >= 1 && sig <= kSignals) mask |= BitOf(sig);
  }
  return mask;
}

// ForEach calls f(sig) for each signal of a set.
template <class F>
void ForEach(uint64_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(1 + std::countr_zero(mask));
}

// ---- The handler's side

enum class Use : uint32_t {
  kNone,    // not ours
  kNotify,  // our handler is installed, unless the program has replaced it
  kIgnore,
};

struct Slot {
  // Written under the registry's lock.
  rt::Atomic<Use> use{Use::kNone};
  // The action to be put back. It is never freed, because a handler may load it
  // at any time. Equal actions are the same object.
  rt::Atomic<struct sigaction*> before{nullptr};
  rt::Atomic<int32_t> inflight{0};  // (K3)
  // True once the program was seen to have replaced our handler. The program
  // may then call our handler itself. Never reset.
  rt::Atomic<bool> covered{false};
};
constinit Slot slots[kSignals + 1];

constinit rt::Atomic<uint64_t> pending;
constinit rt::Atomic<int> event_fd{-1};  // written once, before any use is set

bool IsFunction(const struct sigaction& a) {
  return (a.sa_flags & SA_SIGINFO) != 0 ||
         (a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN);
}

void Post(int sig) {
  // Release: orders all that the sender did before. Pairs with Deliver.
  if ((pending.or_(BitOf(sig), rt::acq_rel) & BitOf(sig)) != 0) return;
  // The write fails if the counter is full. Then the counter is not 0 either.
  const uint64_t one = 1;
  const ssize_t n = write(event_fd.load(rt::relaxed), &one, sizeof(one));
  (void)n;
}

void OnSignal(int sig, siginfo_t* info, void* context);

bool IsOurs(const struct sigaction& a) {
  return (a.sa_flags & SA_SIGINFO) != 0 && a.sa_sigaction == OnSignal;
}

// Refuse runs if the signal was given up after the kernel had called our
// handler. By now another disposition is in force. Refuse sends the signal to
// this thread again, and the signal arrives when the handler returns. If the
// program has put a handler of its own over ours, that handler may have called
// ours, and would call it again for each signal that we send. In this case it
// is enough that the program's handler has the signal.
void Refuse(int sig, siginfo_t* info, void* context, Slot* s) {
  if (!s->covered.load(rt::relaxed)) {  // published by the use
    rt::tgkill(rt::gettid(), sig);
    return;
  }
  // The program may also have restored our handler, as system(3) does. Then
  // nothing else takes the signal, so *before gets it. But not if *before is a
  // handler of the program, because that may call our handler again. The
  // runtime's handler that ends process 1 does not, and stands for the default
  // action.
  struct sigaction now = {};
  struct sigaction* before = s->before.load(rt::acquire);  // pairs with Take
  if (sigaction(sig, nullptr, &now) == 0 && IsOurs(now) &&
      (!IsFunction(*before) || rt::endsProcess1(*before))) {
    rt::forwardsig(sig, info, context, before);
  }
}

void Receive(int sig, siginfo_t* info, void* context) {
  Slot& s = slots[sig];
  struct sigaction* before = s.before.load(rt::acquire);  // pairs with Take
  // These are not for us: a fault; any signal in a child of fork; the signal by
  // which a dying process asks its threads for their stacks.
  if (rt::isFault(sig, info) || !rt::inOwnProcess() ||
      (sig == SIGQUIT && rt::isPanicking())) {
    rt::forwardsig(sig, info, context, before);
    return;
  }
  // SIGURG is the runtime's own signal too. Forward it before inflight is
  // raised, because the runtime's handler may sleep for a long time.
  if (sig == SIGURG && IsFunction(*before)) {
    rt::forwardsig(sig, info, context, before);
  }
  // seq_cst: (K3). Here we store inflight and then load the use. The other side
  // stores the use and then loads inflight. So one side sees the other's store.
  s.inflight.add(1, rt::seq_cst);
  const Use use = s.use.load(rt::seq_cst);
  if (use == Use::kNotify) Post(sig);
  s.inflight.add(-1, rt::release);  // pairs with AwaitHandlers
  if (use == Use::kNone) Refuse(sig, info, context, &s);
}

void OnSignal(int sig, siginfo_t* info, void* context) {
  const int saved = errno;
  Receive(sig, info, context);
  errno = saved;
}

// MustArrive returns true if a signal must reach our handler even if the
// program ignores it. These are the runtime's own signal, and the signals by
// which the kernel reports a fault. If a fault's signal were ignored, the
// kernel would end the process.
bool MustArrive(int sig) {
  switch (sig) {
    case SIGSEGV:
    case SIGBUS:
    case SIGURG:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
      return true;
    default:
      return false;
  }
}

// ---- The registry

class Registry {
 public:
  void Add(const send_chan<int>& c, uint64_t mask);
  void Remove(const send_chan<int>& c);
  // Release ends all use of these signals. If `then` is kIgnore, they are
  // ignored afterwards.
  void Release(uint64_t mask, Use then);
  // Run is the body of the receiver goroutine.
  void Run();

 private:
  struct Entry {
    send_chan<int> c;
    uint64_t wants;
  };

  // All of these are called with mu_ held.
  void Start();
  // Noexcept: if the program has closed a channel without calling Stop first,
  // the send panics. That panic ends the process, as in Go, and is no exception
  // for the caller that delivers.
  void Deliver() noexcept;
  void Take(int sig, Use use);
  void GiveBack(int sig);
  void AwaitHandlers(uint64_t mask);
  struct sigaction* Remember(const struct sigaction& a);
  uint64_t Wanted() const;

  sync::Mutex mu_;  // guards all
  std::vector<Entry> entries_;
  std::list<struct sigaction> remembered_;
  rt::FD* fd_ = nullptr;  // written before the receiver starts; never freed
  bool started_ = false;
};

// TheRegistry is never destroyed, because signals come until the very end.
Registry& TheRegistry() {
  static auto* const registry = new Registry();
  return *registry;
}

constexpr rt::FuncType kReceiver =
    rt::systemFunc([](void*) { TheRegistry().Run(); });

void Registry::Run() {
  for (;;) {
    uint64_t n;
    const rt::IoResult r = fd_->read(&n, sizeof(n));
    // Other code has closed the descriptor, which it does not own.
    if (r.err != 0) rt::fatalAll("os/signal: lost the descriptor for signals");
    std::scoped_lock hold(mu_);
    Deliver();
  }
}

// Start makes the descriptor and the receiver, if they do not exist.
void Registry::Start() {
  if (started_) return;
  if (fd_ == nullptr) {
    const int n = rt::newDescriptor(
        [] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    int err = n < 0 ? -n : 0;
    if (err == 0) {
      auto fd = std::make_unique<rt::FD>(n, rt::FdKind::kPipe);
      err = fd->init();
      if (err == 0) {
        fd_ = fd.release();
      } else {
        close(n);
      }
    }
    if (err != 0) {
      panic("os/signal: Notify: " + std::string(std::strerror(err)));
    }
    event_fd.store(n, rt::relaxed);  // published by the use of a signal
  }
  if (!rt::startSystemG(&kReceiver)) panic(rt::stackErrorText());
  started_ = true;
}

void Registry::Deliver() noexcept {
  // Acquire: pairs with Post.
  ForEach(pending.xchg(0, rt::acq_rel), [this](int sig) {
    for (const Entry& e : entries_) {
      if ((e.wants & BitOf(sig)) != 0) (void)e.c.TrySend(sig);
    }
  });
}

uint64_t Registry::Wanted() const {
  uint64_t wanted = 0;
  for (const Entry& e : entries_) wanted |= e.wants;
  return wanted;
}

struct sigaction* Registry::Remember(const struct sigaction& a) {
  for (struct sigaction& old : remembered_) {
    // Compare only the part of the mask that the kernel has.
    if (old.sa_handler == a.sa_handler && old.sa_flags == a.sa_flags &&
        std::memcmp(&old.sa_mask, &a.sa_mask, kSignals / 8) == 0) {
      return &old;
    }
  }
  return &remembered_.emplace_back(a);
}

// Take makes a signal ours, whether its disposition was ours before or not.
void Registry::Take(int sig, Use use) {
  struct sigaction now = {};
  if (sigaction(sig, nullptr, &now) != 0) return;  // it cannot be caught
  Slot& s = slots[sig];
  const Use was = s.use.load(rt::relaxed);  // written under mu_
  const bool ignored =
      was == Use::kIgnore && now.sa_handler == SIG_IGN && !MustArrive(sig);
  const bool theirs = !IsOurs(now) && !ignored;
  if (theirs && was != Use::kNone) s.covered.store(true, rt::relaxed);
  // Release: pairs with Receive.
  if (theirs) s.before.store(Remember(now), rt::release);
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  if (use == Use::kIgnore && !MustArrive(sig)) {
    action.sa_handler = SIG_IGN;
  } else {
    action.sa_sigaction = OnSignal;
    // The runtime's handlers count on a second fault to arrive while they
    // handle the first.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART |
                      (sig == SIGSEGV || sig == SIGBUS ? SA_NODEFER : 0);
  }
  // Set the use before our handler can load it. When a signal is given up,
  // follow the order of (K3).
  const bool first = use == Use::kNotify || was == Use::kNone;
  if (first) s.use.store(use, rt::seq_cst);
  (void)sigaction(sig, &action, nullptr);  // cannot fail: see above
  if (!first) s.use.store(use, rt::seq_cst);
}

// GiveBack restores the former action of a signal, unless the program has
// changed it.
void Registry::GiveBack(int sig) {
  Slot& s = slots[sig];
  const Use was = s.use.load(rt::relaxed);  // written under mu_
  struct sigaction now = {};
  if (was == Use::kNone || sigaction(sig, nullptr, &now) != 0) return;
  const bool ignored =
      was == Use::kIgnore && now.sa_handler == SIG_IGN && !MustArrive(sig);
  if (IsOurs(now) || ignored) {
    // Relaxed: as above.
    (void)sigaction(sig, s.before.load(rt::relaxed), nullptr);
  } else {
    s.covered.store(true, rt::relaxed);
  }
  s.use.store(Use::kNone, rt::seq_cst);  // (K3)
}

void Registry::AwaitHandlers(uint64_t mask) {
  ForEach(mask, [](int sig) {
    // (K3). seq_cst: see Receive.
    while (slots[sig].inflight.load(rt::seq_cst) != 0) runtime::Gosched();
  });
}

void Registry::Add(const send_chan<int>& c, uint64_t mask) {
  if (mask == 0) return;
  std::scoped_lock hold(mu_);
  Start();
  Deliver();  // to the channels that wanted the signal when it came
  Entry* entry = nullptr;
  for (Entry& e : entries_) {
    if (e.c == c) entry = &e;
  }
  const uint64_t fresh = mask & ~Wanted();
  if (entry == nullptr) entry = &entries_.emplace_back(Entry{c, 0});
  ForEach(fresh, [&](int sig) {
    Take(sig, Use::kNotify);  // may throw
    entry->wants |= BitOf(sig);
  });
  entry->wants |= mask;
}

void Registry::Remove(const send_chan<int>& c) {
  std::scoped_lock hold(mu_);
  uint64_t mine = 0;
  uint64_t others = 0;
  for (const Entry& e : entries_) (e.c == c ? mine : others) |= e.wants;
  const uint64_t last = mine & ~others;
  ForEach(last, [this](int sig) { GiveBack(sig); });
  AwaitHandlers(last);
  Deliver();
  std::erase_if(entries_, [&](const Entry& e) { return e.c == c; });
}

void Registry::Release(uint64_t mask, Use then) {
  std::scoped_lock hold(mu_);
  ForEach(mask, [&](int sig) {
    if (then == Use::kIgnore) {
      Take(sig, then);
    } else {
      GiveBack(sig);
    }
  });
  AwaitHandlers(mask);
  Deliver();
  for (Entry& e : entries_) e.wants &= ~mask;
  std::erase_if(entries_, [](const Entry& e) { return e.wants == 0; });
}

}  // namespace

// Each of these first starts the runtime, because our handlers must find the
// runtime's handlers below them.

void Notify(const send_chan<int>& c, std::initializer_list<int> signals) {
  if (!c) panic("os/signal: Notify using nil channel");
  (void)rt::runtimeEntry();
  TheRegistry().Add(c, MaskOf(signals));
}

void Stop(const send_chan<int>& c) {
  (void)rt::runtimeEntry();
  TheRegistry().Remove(c);
}

void Ignore(std::initializer_list<int> signals) {
  (void)rt::runtimeEntry();
  TheRegistry().Release(MaskOf(signals), Use::kIgnore);
}

void Reset(std::initializer_list<int> signals) {
  (void)rt::runtimeEntry();
  TheRegistry().Release(MaskOf(signals), Use::kNone);
}

bool Ignored(int signal) {
  if (signal < 1 || signal > kSignals) return false;
  struct sigaction now = {};
  if (sigaction(signal, nullptr, &now) != 0) return false;
  // Relaxed: the answer is only about this moment.
  if (IsOurs(now)) return slots[signal].use.load(rt::relaxed) == Use::kIgnore;
  return !IsFunction(now) && now.sa_handler == SIG_IGN;
}

void StopFunc::operator()() const {
  if (!c_) return;
  const chan<int> c = c_;  // a goroutine that is told may drop *this
  cancel_(absl::OkStatus());
  Stop(c);
}

std::pair<context::Context, StopFunc> NotifyContext(
    const context::Context& parent, std::initializer_list<int> signals) {
  auto [ctx, cancel] = context::WithCancelCause(parent);
  StopFunc stop;
  stop.cancel_ = cancel;
  stop.c_ = make_chan<int>(1);
  try {
    Notify(stop.c_, signals);
    if (!ctx.Err().ok()) return {ctx, stop};
    go([c = stop.c_, ctx = ctx, cancel = cancel] {
      const auto cause = [&](int sig) {
        cancel(absl::CancelledError(internal::SignalName(sig) +
                                    " signal received"));
      };
      select(Recv(c, cause), Recv(ctx.Done(), [] {}));
    });
  } catch (...) {  // no memory, no descriptor, no goroutine
    stop();
    throw;
  }
  return {ctx, stop};
}

}  // namespace gump::signal
