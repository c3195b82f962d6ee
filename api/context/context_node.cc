#include "api/context/context_node.h"

#include <cstddef>
#include <mutex>
#include <new>
#include <stop_token>
#include <utility>

#include "gump/internal/layout_entry.h"
#include "gump/internal/linkname_panic.h"
#include "gump/internal/linkname_synctest.h"
#include "gump/internal/linkname_time.h"
#include "gump/synctest.h"

namespace gump::internal {

namespace {

constinit rt::Atomic<rt::Hchan*> closed_chan;

// ClosedChan is the Done channel of contexts that were cancelled before Done
// was called. It is never freed. All contexts share it, so it is in no bubble,
// even if a goroutine in a bubble needs it first.
rt::Hchan* ClosedChan() {
  // Acquire: pairs with the release below.
  rt::Hchan* c = closed_chan.load(rt::acquire);
  if (c != nullptr) return c;
  chan<void> fresh = make_chan<void>();
  rt::chanLeaveBubble(fresh.raw());
  fresh.Close();
  // Release: the channel and that it is closed.
  if (closed_chan.cas(nullptr, fresh.raw(), rt::release)) {
    rt::chanRetain(fresh.raw());
    return fresh.raw();
  }
  return closed_chan.load(rt::acquire);  // another thread's
}

}  // namespace

const absl::Status& ErrOf(uint32_t state) {
  static const auto* const canceled =
      new absl::Status(absl::CancelledError("context canceled"));
  static const auto* const exceeded = new absl::Status(
      absl::DeadlineExceededError("context deadline exceeded"));
  return (state & kDeadlineExceeded) != 0 ? *exceeded : *canceled;
}

// ---- References -------------------------------------------------------------

ContextNode::ContextNode(ContextNode* up) noexcept
    : parent(up),
      cancel(up == nullptr ? nullptr : up->cancel),
      values(up == nullptr ? nullptr : up->values) {
  if (up != nullptr) ContextRetain(up);
}

// Relaxed: the caller's reference keeps refs above 0, and nothing is published.
void ContextRetain(ContextNode* n) noexcept { n->refs.add(1, rt::relaxed); }

void ContextRelease(ContextNode* n) noexcept {
  CancelNode* lost = nullptr;
  for (;;) {
    while (n != nullptr) n = n->Drop(&lost);
    if (lost == nullptr) return;
    CancelNode* c = std::exchange(lost, lost->next());
    c->OnParentDestroyed();
    n = c;
  }
}

ContextNode* ContextNode::Drop(CancelNode**) {
  // Release: orders our use of the node before its destruction. Acquire: orders
  // the use by all others before it.
  if (refs.add(static_cast<uint32_t>(-1), rt::acq_rel) != 0) return nullptr;
  ContextNode* next = parent;
  delete this;
  return next;
}

ContextNode* CancelNode::Drop(CancelNode** lost) {
  uint32_t n = refs.load(rt::relaxed);  // a guess; the CAS decides
  do {
    while (n != 1) {
      // Release: pairs with the acquire of the thread that is last.
      if (refs.casWeak(n, n - 1, rt::release)) return nullptr;
    }
    // Only a read-modify-write can tell that the count really is 1. Then ours
    // is the only reference, and only a canceller can get another. Acquire:
    // pairs with the releases above, by which the other references were given
    // up.
  } while (!refs.casWeak(n, 1, rt::acquire));
  ContextNode* held = nullptr;
  if (KeepForObservers(&held)) return held;
  // As in ContextNode::Drop. A canceller may have a reference by now.
  if (refs.add(static_cast<uint32_t>(-1), rt::acq_rel) != 0) return nullptr;
  held = parent;
  CancelNode* up = Destroy(lost);
  // At most one of held and up is set. A node with a parent has a reference to
  // up_ through its parent, so up_ does not linger.
  return held != nullptr ? held : up;
}

bool CancelNode::TryRef() noexcept {
  // Relaxed: the lock under which the node was found, or the start of the
  // timer's goroutine, has ordered us after its construction.
  uint32_t n = refs.load(rt::relaxed);
  while (n != 0) {
    if (refs.casWeak(n, n + 1, rt::relaxed)) return true;
  }
  return false;
}

void CancelNode::WeakRef() noexcept { weak_.add(1, rt::relaxed); }
void CancelNode::WeakUnref() noexcept {
  // As in ContextNode::Drop.
  if (weak_.add(static_cast<uint32_t>(-1), rt::acq_rel) == 0) delete this;
}

// ---- The tree ---------------------------------------------------------------

// TimerNanos is the current time on the clock of the caller's timers.
int64_t TimerNanos() {
  return rt::currentBubble() != 0 ? rt::bubbleNanos() : rt::monotonicNanos();
}

CancelNode::CancelNode(ContextNode* up) noexcept
    : ContextNode(up), up_(cancel) {
  cancel = this;
  if (up_ == nullptr) return;
  up_->WeakRef();
  deadline_ = up_->deadline_;
  due_ = up_->due_;
  clock_ = up_->clock_;
}

void CancelNode::SetDeadline(absl::Time t, absl::Duration in) {
  deadline_ = t;
  clock_ = rt::currentBubble();
  const int64_t ns = absl::ToInt64Nanoseconds(in);  // saturates
  if (__builtin_add_overflow(TimerNanos(), ns, &due_)) {
    due_ = ns < 0 ? INT64_MIN : INT64_MAX;
  }
}

absl::Duration CancelNode::TimeLeft() const {
  if (deadline_ == absl::InfiniteFuture()) return absl::InfiniteDuration();
  // If the deadline is on another clock than the caller's, compare dates.
  if (clock_ != rt::currentBubble()) return deadline_ - synctest::Now();
  return absl::Nanoseconds(due_) - absl::Nanoseconds(TimerNanos());
}

void CancelNode::SetFunc(const rt::FuncType* ft, void* closure, uintptr_t pc) {
  ft_ = ft;
  closure_ = closure;
  pc_ = pc;
  group_ = rt::currentGroupId();
  rt::groupRefId(group_);
}

void CancelNode::Join() {
  if (up_ == nullptr) return;
  CancelNode* idle[2] = {};
  bool joined = false;
  {
    std::scoped_lock hold(up_->mu_);
    // Relaxed: written under the lock.
    if (up_->state_.load(rt::relaxed) == kLive) {
      next_ = up_->first_;
      if (next_ != nullptr) next_->prev_ = this;
      up_->first_ = this;
      listed_ = joined = true;
      up_->Sweep(idle);
    }
  }
  if (joined) {
    for (CancelNode* c : idle) {
      if (c != nullptr) ContextRelease(c);
    }
    return;
  }
  // Relaxed: the lock has ordered us after the cancellation.
  Cancel(up_->state_.load(rt::relaxed), up_->cause_);
}

// Cancel goes depth first. The nodes from this one down to n stay locked until
// all their children are cancelled (N5).
bool CancelNode::Cancel(uint32_t why, const absl::Status& cause) {
  mu_.Lock();
  if (!Close(why, cause)) {
    mu_.Unlock();
    return false;
  }
  StartFunc();
  CancelNode* done = nullptr;  // cancelled nodes of which we have a reference
  for (CancelNode* n = this;;) {
    if (CancelNode* c = n->TakeChild()) {
      c->mu_.Lock();
      if (c->Close(why, cause)) {
        c->StartFunc();
        n = c;
        continue;
      }
      c->mu_.Unlock();
      c->next_ = std::exchange(done, c);
      continue;
    }
    n->mu_.Unlock();
    if (n == this) break;
    n->next_ = std::exchange(done, n);
    n = n->up_;
  }
  CancelNode* up = Leave();
  while (done != nullptr) {
    ContextRelease(std::exchange(done, done->next_));
  }
  if (up != nullptr) ContextRelease(up);
  return true;
}

// Leave takes the node off the list of up_, if it is still there. Returns up_
// if up_ has lingered for this node alone. The caller must then give up the
// reference.
CancelNode* CancelNode::Leave() {
  if (up_ == nullptr) return nullptr;
  std::scoped_lock hold(up_->mu_);
  if (!listed_) return nullptr;
  listed_ = false;
  if (up_->sweep_ == this) up_->sweep_ = next_;
  if (next_ != nullptr) next_->prev_ = prev_;
  (prev_ != nullptr ? prev_->next_ : up_->first_) = next_;
  return up_->EndLinger() ? up_ : nullptr;
}

// Sweep looks at the next two children. It runs once for each child that joins,
// so it looks at children faster than they join. So the children that linger
// for no observer never outnumber the rest for long. Sweep returns such
// children in idle, with a reference that the caller gives up.
// mu_ is held. The node must not be cancelled, because a cancellation takes
// children off the list without updating sweep_.
void CancelNode::Sweep(CancelNode* (&idle)[2]) {
  for (CancelNode*& found : idle) {
    CancelNode* c = sweep_ != nullptr ? sweep_ : first_;
    sweep_ = c->next_;                // c exists: a child has just joined
    if (!c->mu_.TryLock()) continue;  // it is in use: look next time
    if (c->EndLinger()) found = c;
    c->mu_.Unlock();
  }
}

// TakeChild takes the first child off the list, with a reference. Returns
// nullptr if there is none. mu_ is held.
CancelNode* CancelNode::TakeChild() {
  while (CancelNode* c = first_) {
    first_ = c->next_;
    if (first_ != nullptr) first_->prev_ = nullptr;
    c->listed_ = false;
    if (c->TryRef()) return c;  // (N1)
  }
  return nullptr;
}

// Close cancels this node alone. Returns false if it was cancelled already. mu_
// is held, and the caller has a reference.
bool CancelNode::Close(uint32_t why, const absl::Status& cause) {
  // Relaxed: written under the lock.
  if (state_.load(rt::relaxed) != kLive) return false;
  cause_ = cause;
  // In this order, so that a goroutine that finds Done closed also finds an
  // Err. One that finds an Err and kClosing waits for the lock. Release: pairs
  // with the acquire in Err and Cause, for cause_.
  state_.store(why | kClosing, rt::release);
  // Relaxed: written under the lock.
  if (rt::Hchan* c = done_.load(rt::relaxed)) CheckClose(rt::closechan(c));
  // Release: pairs with the same acquires; the channel is closed.
  state_.store(why, rt::release);
  if (timer_.get() != nullptr) {
    timer_.get()->Stop();
    timer_ = {};
  }
  // This is not the last reference: the caller has one.
  if (std::exchange(lingers_, false)) {
    refs.add(static_cast<uint32_t>(-1), rt::release);
  }
  return true;
}

// ---- The end of a node ------------------------------------------------------

// Observed returns whether anything but a handle waits for the cancellation.
// mu_ is held.
bool CancelNode::Observed() const {
  // A child that does not linger has a reference to this node. There is none
  // now, so each child in the list lingers.
  if (closure_ != nullptr || first_ != nullptr) return true;
  if (stop_source_.stop_possible()) return true;  // tokens cannot be counted
  // Relaxed: written under the lock.
  rt::Hchan* c = done_.load(rt::relaxed);
  return c != nullptr && rt::chanShared(c);
}

// CanBeCancelled returns whether a timer or a stop token may still cancel the
// node. mu_ is held.
bool CancelNode::CanBeCancelled() const {
  return timer_.get() != nullptr ||
         (stop_link_ != nullptr && stop_link_->CanCome());
}

// KeepForObservers passes the caller's reference, the only one, to the
// cancellation. It does so if an observer waits for the cancellation and it can
// still come (N4). The caller then owns the reference to *held, and must not
// touch the node any more.
bool CancelNode::KeepForObservers(ContextNode** held) {
  if (state_.load(rt::acquire) != kLive) return false;  // and it stays so
  std::scoped_lock hold(mu_);
  const bool can_come = (up_ != nullptr && !parent_gone_) || CanBeCancelled();
  if (state_.load(rt::relaxed) != kLive || !can_come || !Observed()) {
    return false;
  }
  lingers_ = true;
  *held = std::exchange(parent, nullptr);
  return true;
}

// EndLinger returns true if the node lingers but has no observer any more. The
// caller then owns the reference. mu_ is held.
bool CancelNode::EndLinger() {
  return lingers_ && !Observed() && std::exchange(lingers_, false);
}

void CancelNode::OnParentDestroyed() {
  std::scoped_lock hold(mu_);
  parent_gone_ = true;
  if (CanBeCancelled() || !std::exchange(lingers_, false)) return;
  // This is not the last reference: the caller has one.
  refs.add(static_cast<uint32_t>(-1), rt::release);
}

// Destroy runs when the last reference is gone. No thread can get a new one.
// Returns the result of Leave.
CancelNode* CancelNode::Destroy(CancelNode** lost) {
  CancelNode* up = Leave();
  stop_link_.reset();  // (S3) of stop_link.h
  // Not an assignment: that of libstdc++ 12 keeps counting the old source.
  std::stop_source(std::nostopstate).swap(stop_source_);
  {
    std::scoped_lock hold(mu_);  // children may be leaving at this moment
    while (CancelNode* c = TakeChild()) c->next_ = std::exchange(*lost, c);
  }
  if (timer_.get() != nullptr) {
    // Any thread may drop the last handle, but only code inside of a bubble may
    // stop the bubble's timers. A timer that is not stopped fires, or is
    // destroyed with its bubble: see DeadlinePassed.
    if (timer_bubble_ == 0 || timer_bubble_ == rt::currentBubble()) {
      timer_.get()->Stop();
    }
    timer_ = {};
  }
  // Relaxed: the count of references has ordered us after all others.
  rt::Hchan* c = done_.load(rt::relaxed);
  if (c != nullptr && c != closed_chan.load(rt::relaxed)) rt::chanRelease(c);
  if (closure_ != nullptr) ft_->destroy(&closure_);
  if (up_ != nullptr) up_->WeakUnref();
  WeakUnref();
  return up;
}

// ---- What happens at the end ------------------------------------------------

// StartFunc starts the function of AfterFunc, if there is one, and the request
// of the stop, if StopToken was called. The caller is the winner of (N2). mu_
// is held.
void CancelNode::StartFunc() {
  StartStop();
  if (closure_ == nullptr) return;
  void* closure = std::exchange(closure_, nullptr);
  rt::SpawnOptions options;
  options.stack_later = true;  // the canceller could not handle a failure
  options.group = group_ != 0 ? group_ : rt::kNoGroup;  // not the canceller's
  if (rt::newproc(ft_, &closure, &options, pc_) != rt::SpawnResult::kOk) {
    rt::fatalErrorAll("out of memory");
  }
}

namespace {

// DeadlinePassed is the function that the timer of a deadline calls. It has a
// weak reference to the node. When a node has no handle any more, its timer is
// stopped. If that is too late, or not allowed, the function finds nothing to
// do. A pending FuncTimer has a reference to itself. So it is destroyed after
// the call, or with the rest of the bubble. With it goes the function's weak
// reference, and with that the memory of the node.
class DeadlinePassed {
 public:
  DeadlinePassed(CancelNode* n, absl::Status cause) noexcept
      : node_(n), cause_(std::move(cause)) {
    n->WeakRef();
  }
  DeadlinePassed(DeadlinePassed&& o) noexcept
      : node_(std::exchange(o.node_, nullptr)), cause_(std::move(o.cause_)) {}
  DeadlinePassed& operator=(DeadlinePassed&&) = delete;
  ~DeadlinePassed() {
    if (node_ != nullptr) node_->WeakUnref();
  }

  void operator()() {
    if (!node_->TryRef()) return;
    node_->Cancel(kDeadlineExceeded, cause_);
    ContextRelease(node_);
  }

 private:
  CancelNode* node_;
  absl::Status cause_;
};

}  // namespace

void CancelNode::StartTimer(int64_t ns, absl::Status cause) {
  FuncTimerHandle timer(
      new FuncTimerOf<DeadlinePassed>(DeadlinePassed(this, std::move(cause))));
  std::scoped_lock hold(mu_);
  if (state_.load(rt::relaxed) != kLive) return;  // written under the lock
  timer.get()->Start(ns, rt::callerPC());
  timer_ = std::move(timer);
  timer_bubble_ = rt::currentBubble();
}

rt::Hchan* CancelNode::Done() {
  // Acquire: pairs with the release below.
  if (rt::Hchan* c = done_.load(rt::acquire)) return c;
  std::scoped_lock hold(mu_);
  rt::Hchan* c = done_.load(rt::relaxed);  // written under the lock
  if (c != nullptr) return c;
  if (state_.load(rt::relaxed) == kLive) {
    const chan<void> fresh = make_chan<void>();
    c = fresh.raw();
    rt::chanRetain(c);
  } else {
    c = ClosedChan();
  }
  done_.store(c, rt::release);  // publishes the channel
  return c;
}

absl::Status CancelNode::Err() {
  // Acquire: pairs with the release in Close.
  const uint32_t state = state_.load(rt::acquire);
  if (state == kLive) return absl::OkStatus();
  if ((state & kClosing) != 0) {
    std::scoped_lock wait(mu_);  // waits until Done is closed
  }
  return ErrOf(state);
}

absl::Status CancelNode::Cause() const {
  // Acquire: pairs with the release in Close.
  if (state_.load(rt::acquire) == kLive) return absl::OkStatus();
  return cause_;
}

bool CancelNode::StopFunc() {
  void* closure = nullptr;
  {
    std::scoped_lock hold(mu_);
    if (!Close(kCanceled, absl::OkStatus())) return false;
    closure = std::exchange(closure_, nullptr);
  }
  if (CancelNode* up = Leave()) ContextRelease(up);
  ft_->destroy(&closure);
  return true;
}

// ---- What the header offers -------------------------------------------------

namespace {
constinit rt::Atomic<uint64_t> last_context_key;
}  // namespace

uint64_t NewContextKey() noexcept {
  return last_context_key.add(1, rt::relaxed);  // only uniqueness matters
}

const void* ContextValue(const ContextNode* n, uint64_t key) noexcept {
  while (n != nullptr) {
    const ValueNode* v = n->values;
    if (v == nullptr) return nullptr;
    if (v->key() == key) return v->value();
    n = v->parent;
  }
  return nullptr;
}

absl::Duration ContextTimeLeft(const ContextNode* n) noexcept {
  if (n == nullptr || n->cancel == nullptr) return absl::InfiniteDuration();
  return n->cancel->TimeLeft();
}

ContextRef NewContextValue(const ContextRef& parent, uint64_t key, void* value,
                           void (*destroy)(void*)) {
  auto* n = new (std::nothrow) ValueNode(parent.get(), key, value, destroy);
  if (n == nullptr) {
    destroy(value);
    throw std::bad_alloc();
  }
  return ContextRef(n);
}

ContextRef NewContextFunc(const ContextRef& parent, const rt::FuncType* ft,
                          void* closure, uintptr_t pc) {
  auto* n = new (std::nothrow) CancelNode(parent.get());
  if (n == nullptr) {
    ft->destroy(&closure);
    throw std::bad_alloc();
  }
  n->SetFunc(ft, closure, pc);
  ContextRef ref(n);
  n->Join();
  return ref;
}

}  // namespace gump::internal

// What a debugger needs to print a context. offsetof of these classes is right
// with the compilers that we support, though they have virtual functions and
// the standard leaves it open.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
struct gump::internal::ContextLayout {
  static constexpr uint64_t kParent = offsetof(ContextNode, parent);
  static constexpr uint64_t kCancel = offsetof(ContextNode, cancel);
  static constexpr uint64_t kState = offsetof(CancelNode, state_);
  static constexpr uint64_t kDeadline = offsetof(CancelNode, deadline_);
};
#pragma GCC diagnostic pop

GUMP_LAYOUT_TABLE gump_context_layout[] = {
    {"ContextNode.parent", gump::internal::ContextLayout::kParent, nullptr},
    {"ContextNode.cancel", gump::internal::ContextLayout::kCancel, nullptr},
    {"CancelNode.state_", gump::internal::ContextLayout::kState, nullptr},
    {"CancelNode.deadline_", gump::internal::ContextLayout::kDeadline, nullptr},
    {nullptr, 0, nullptr},
};
