// Contexts: a tree of nodes with counted references.
//
// A node is of one of three kinds. A CancelNode can be cancelled, a ValueNode
// has a value, and a plain node has neither (TODO, WithoutCancel). Each node
// knows the nearest node of the first two kinds from itself upwards, so a
// search skips the nodes that have nothing for it. A function registered with
// AfterFunc is a CancelNode too. It has no visible handle as a Context, and its
// cancellation starts f.
//
// Two links go up from a CancelNode, and one comes down:
//   parent  A reference, for the values. A child keeps the values above it.
//   up_     The nearest CancelNode above, by a weak reference. It keeps the
//           memory of that node, because its lock may be taken at any time.
//   the list of up_
//           The node is in it until it is cancelled or destroyed. The list is
//           no reference at all.
//
// Invariants:
//  (N1) A node in the list of a CancelNode p is valid memory: it leaves the
//       list, under p->mu_, before its own memory is freed. So a thread that
//       walks the list under p->mu_ may call TryRef, which fails if the node is
//       being destroyed already.
//  (N2) A node is cancelled once, in Close, under mu_. The thread that stores
//       to state_ has won, and does all the work of the cancellation.
//  (N3) A node leaves the list by its own cancellation or destruction, or by
//       that of up_. If up_ removed it, next_ belongs to the thread that
//       cancels or destroys up_. That thread uses next_ to chain the remaining
//       work. So nothing here recurses, however deep the tree.
//  (N4) A node lingers (lingers_) if it has no handle any more, but an observer
//       still waits for the cancellation, and it can still come. The last
//       reference is then not given up. It passes to the cancellation, which
//       drops it. OnParentDestroyed drops it when the cancellation can come no
//       more. Leave drops it when the last child has left for which the node
//       lingered. Nothing reports the end of the last channel: Sweep finds it
//       out. A lingering node has no parent, because it would keep the nodes
//       alive that are to cancel it.
//
//  (N5) While mu_ of a cancelled node is held, all its descendants are
//       cancelled too. Only its canceller may still be at work, because it
//       holds mu_ until they are. So when a CancelFunc returns, all is done, no
//       matter which thread did it.
//
// Lock order: a node's lock, then those of nodes below it; never upwards. Under
// these locks no user code runs, so no reference is given up. A destroyed value
// or function may call anything here.
//
// Rejected: lists that own their children, as in Go. A child that is never
// cancelled would stay until the parent is. Also rejected: one lock for the
// tree, for which all requests of a server would queue.
#include "gump/context.h"

#include <mutex>
#include <new>
#include <utility>

#include "gump/sync/mutex.h"
#include "gump/synctest.h"

namespace gump::internal {

class CancelNode;
class ValueNode;

struct ContextNode {
  // Takes a reference to up, which may be null.
  explicit ContextNode(ContextNode* up) noexcept;
  virtual ~ContextNode() = default;
  ContextNode(const ContextNode&) = delete;
  ContextNode& operator=(const ContextNode&) = delete;

  // Drop gives up one reference. Returns a node of which the caller must give
  // up one reference next, or nullptr. It puts nodes before *lost, and the
  // caller must call OnParentDestroyed on these.
  virtual ContextNode* Drop(CancelNode** lost);

  rt::Atomic<uint32_t> refs{1};
  ContextNode* parent;  // may be null
  CancelNode* cancel;   // the nearest, starting at this node; may be null
  ValueNode* values;    // the same
};

namespace {

// ContextState is the value of a CancelNode's state_. kClosing is set on top of
// the others while the channel is not closed yet.
enum ContextState : uint32_t {
  kLive = 0,
  kCanceled = 1,
  kDeadlineExceeded = 2,
  kClosing = 4,
};

const absl::Status& ErrOf(uint32_t state) {
  static const auto* const canceled =
      new absl::Status(absl::CancelledError("context canceled"));
  static const auto* const exceeded = new absl::Status(
      absl::DeadlineExceededError("context deadline exceeded"));
  return (state & kDeadlineExceeded) != 0 ? *exceeded : *canceled;
}

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

class ValueNode final : public ContextNode {
 public:
  ValueNode(ContextNode* up, uint64_t key, void* value,
            void (*destroy)(void*)) noexcept
      : ContextNode(up), key_(key), value_(value), destroy_(destroy) {
    values = this;
  }
  ~ValueNode() override { destroy_(value_); }

  uint64_t key() const { return key_; }
  const void* value() const { return value_; }

 private:
  const uint64_t key_;
  void* const value_;
  void (*const destroy_)(void*);
};

class CancelNode final : public ContextNode {
 public:
  explicit CancelNode(ContextNode* up) noexcept;

  // Before Join: sets the deadline, and the function of AfterFunc.
  void SetDeadline(absl::Time t, absl::Duration in);
  void SetFunc(const rt::FuncType* ft, void* closure, uintptr_t pc);
  // Join puts the node into the list of up_, or cancels it if up_ is cancelled.
  void Join();
  // StartTimer arms the deadline's timer, unless the node is cancelled.
  void StartTimer(int64_t ns, absl::Status cause);

  // Cancel cancels the node, and all nodes below. Returns false if another
  // thread was faster. That thread is done by then. The caller has a reference.
  bool Cancel(uint32_t why, const absl::Status& cause);
  // StopFunc cancels the node of an AfterFunc. The node's f is not called then.
  bool StopFunc();
  // OnParentDestroyed notes that up_ has been destroyed without having been
  // cancelled. The caller has a reference, which it gives up next.
  void OnParentDestroyed();
  CancelNode* next() const { return next_; }  // (N3)

  absl::Time deadline() const { return deadline_; }
  absl::Duration TimeLeft() const;
  absl::Status Err();
  absl::Status Cause() const;
  rt::Hchan* Done();  // the node's

  ContextNode* Drop(CancelNode** lost) override;
  [[nodiscard]] bool TryRef() noexcept;
  void WeakRef() noexcept;
  void WeakUnref() noexcept;

 private:
  [[nodiscard]] bool Close(uint32_t why, const absl::Status& cause);
  [[nodiscard]] CancelNode* TakeChild();
  void Sweep(CancelNode* (&idle)[2]);
  [[nodiscard]] CancelNode* Leave();
  void StartFunc();
  [[nodiscard]] bool Observed() const;
  bool KeepForObservers(ContextNode** held);
  [[nodiscard]] bool EndLinger();
  [[nodiscard]] CancelNode* Destroy(CancelNode** lost);

  // Counts references to the memory. All counted references together hold one.
  rt::Atomic<uint32_t> weak_{1};
  CancelNode* const up_;  // with a weak reference; may be null
  // Guarded by up_->mu_ until the node is out of the list (N3).
  bool listed_ = false;
  CancelNode* prev_ = nullptr;
  CancelNode* next_ = nullptr;

  // Constant from Join on.
  absl::Time deadline_ = absl::InfiniteFuture();  // infinite: no deadline
  // The deadline on the clock of the timers, which cannot be set, and the
  // bubble that this clock belongs to. 0 means no bubble.
  int64_t due_ = 0;
  uint32_t clock_ = 0;
  const rt::FuncType* ft_ = nullptr;  // only for AfterFunc
  uintptr_t pc_ = 0;

  sync::Mutex mu_;
  // state_ and all that follows are written under mu_.
  rt::Atomic<uint32_t> state_;   // ContextState
  rt::Atomic<rt::Hchan*> done_;  // null: Done was not called yet
  absl::Status cause_;           // constant once state_ is not kLive
  CancelNode* first_ = nullptr;  // the list of children
  CancelNode* sweep_ = nullptr;  // where Sweep goes on; null: at first_
  FuncTimerHandle timer_;        // null: no timer that could still fire
  uint32_t timer_bubble_ = 0;    // the bubble in which it was made; 0: none
  bool lingers_ = false;         // (N4)
  bool parent_gone_ = false;     // up_ has been destroyed
  void* closure_ = nullptr;      // of AfterFunc; taken when it is started
};

// ---- References -------------------------------------------------------------

ContextNode::ContextNode(ContextNode* up) noexcept
    : parent(up),
      cancel(up == nullptr ? nullptr : up->cancel),
      values(up == nullptr ? nullptr : up->values) {
  if (up != nullptr) ContextRetain(up);
}

// The caller's reference keeps it above 0; nothing is published.
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
    // is the only reference, and only a canceller can get another. Acquire: all
    // that the others did is done.
  } while (!refs.casWeak(n, 1, rt::acquire));
  ContextNode* held = nullptr;
  if (KeepForObservers(&held)) return held;
  // As in ContextNode::Drop. A canceller may have a reference by now.
  if (refs.add(static_cast<uint32_t>(-1), rt::acq_rel) != 0) return nullptr;
  held = parent;
  CancelNode* up = Destroy(lost);
  // Never both: with a parent we hold up_, and then up_ does not linger.
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
  // From a clock that is not the caller's, only the date carries over.
  if (clock_ != rt::currentBubble()) return deadline_ - synctest::Now();
  return absl::Nanoseconds(due_) - absl::Nanoseconds(TimerNanos());
}

void CancelNode::SetFunc(const rt::FuncType* ft, void* closure, uintptr_t pc) {
  ft_ = ft;
  closure_ = closure;
  pc_ = pc;
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

// Cancel goes depth first. The nodes from this one down to n are locked. They
// still have children to be cancelled (N5).
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

// Sweep looks at the next two children: one for each child that joins, and one
// more. So the children that linger for no observer never outnumber the rest
// for long. It returns them in idle, with a reference that the caller gives up.
// mu_ is held, and the node is not cancelled, because TakeChild does not
// maintain sweep_.
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
  // Children in the list linger, since the others have references to this node.
  if (closure_ != nullptr || first_ != nullptr) return true;
  // Relaxed: written under the lock.
  rt::Hchan* c = done_.load(rt::relaxed);
  return c != nullptr && rt::chanShared(c);
}

// KeepForObservers passes the caller's reference, the only one, to the
// cancellation. It does so if an observer waits for the cancellation and it can
// still come (N4). The caller then owns the reference to *held, and must not
// touch the node any more.
bool CancelNode::KeepForObservers(ContextNode** held) {
  if (state_.load(rt::acquire) != kLive) return false;  // and it stays so
  std::scoped_lock hold(mu_);
  const bool can_come =
      (up_ != nullptr && !parent_gone_) || timer_.get() != nullptr;
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
  if (timer_.get() != nullptr || !std::exchange(lingers_, false)) return;
  // This is not the last reference: the caller has one.
  refs.add(static_cast<uint32_t>(-1), rt::release);
}

// Destroy runs when no reference is left. There will be none. Returns what
// Leave returns.
CancelNode* CancelNode::Destroy(CancelNode** lost) {
  CancelNode* up = Leave();
  {
    std::scoped_lock hold(mu_);  // children may be leaving at this moment
    while (CancelNode* c = TakeChild()) c->next_ = std::exchange(*lost, c);
  }
  if (timer_.get() != nullptr) {
    // Handles are dropped anywhere, but a bubble's timer is stopped only inside
    // the bubble. If it is left alone it fires, or goes with its bubble: see
    // DeadlinePassed.
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

// StartFunc starts the function of AfterFunc, if there is one. The caller is
// the winner of (N2). mu_ is held.
void CancelNode::StartFunc() {
  if (closure_ == nullptr) return;
  void* closure = std::exchange(closure_, nullptr);
  rt::SpawnOptions options;
  options.stack_later = true;  // the canceller could not handle a failure
  if (rt::newproc(ft_, &closure, &options, pc_) != rt::SpawnResult::kOk) {
    rt::fatalError("out of memory");
  }
}

namespace {

// DeadlinePassed is the function that the timer of a deadline calls. It has a
// weak reference to the node. When a node has no handle any more, its timer is
// stopped. If it is too late for that, or not allowed, the function finds
// nothing to do. The FuncTimer that contains it has a reference of its own
// while it is pending. So it goes after the call, or with the rest of the
// bubble, and the node's memory goes with it.
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

namespace gump::context {

namespace {

using internal::CancelNode;
using internal::ContextAccess;
using internal::ContextRef;

CancelNode* CancelNodeOf(const ContextRef& ref) {
  return ref.get() == nullptr ? nullptr : ref.get()->cancel;
}

// NewCancel makes a child that has not joined its parent yet.
ContextRef NewCancel(const Context& parent) {
  return ContextRef(new CancelNode(ContextAccess::ref(parent).get()));
}

template <class Func>
std::pair<Context, Func> Handles(ContextRef ref) {
  Func f = ContextAccess::Make<Func>(ContextRef(ref));
  return {ContextAccess::Make<Context>(std::move(ref)), std::move(f)};
}

// CancelBy does the work of the CancelFuncs. The caller owns ref, because a
// goroutine that is woken may destroy the CancelFunc.
void CancelBy(ContextRef&& ref, const absl::Status& cause) {
  const ContextRef held = std::move(ref);
  if (held.get() == nullptr) return;
  const absl::Status why =
      cause.ok() ? internal::ErrOf(internal::kCanceled) : cause;
  CancelNodeOf(held)->Cancel(internal::kCanceled, why);
}

// MakeDeadline does the work of all functions with a deadline. `in` is the time
// until the deadline.
std::pair<Context, CancelFunc> MakeDeadline(const Context& parent,
                                            absl::Time deadline,
                                            internal::DurationArg in,
                                            absl::Status cause) {
  ContextRef ref = NewCancel(parent);
  CancelNode* n = CancelNodeOf(ref);
  if (n->TimeLeft() < in.duration() || deadline == absl::InfiniteFuture()) {
    n->Join();  // the parent's deadline comes first, or there is none
    return Handles<CancelFunc>(std::move(ref));
  }
  n->SetDeadline(deadline, in.duration());
  n->Join();
  if (cause.ok()) cause = internal::ErrOf(internal::kDeadlineExceeded);
  if (in.duration() <= absl::ZeroDuration()) {
    n->Cancel(internal::kDeadlineExceeded, cause);
  } else {
    n->StartTimer(in.Nanoseconds(), std::move(cause));
  }
  return Handles<CancelFunc>(std::move(ref));
}

}  // namespace

std::optional<absl::Time> Context::Deadline() const {
  const CancelNode* n = CancelNodeOf(ref_);
  if (n == nullptr || n->deadline() == absl::InfiniteFuture()) return {};
  return n->deadline();
}

recv_chan<void> Context::Done() const {
  CancelNode* n = CancelNodeOf(ref_);
  if (n == nullptr) return {};
  rt::Hchan* c = n->Done();
  rt::chanRetain(c);
  return chan<void>(c);
}

absl::Status Context::Err() const {
  CancelNode* n = CancelNodeOf(ref_);
  return n == nullptr ? absl::OkStatus() : n->Err();
}

absl::Status Cause(const Context& ctx) {
  const CancelNode* n = CancelNodeOf(ContextAccess::ref(ctx));
  return n == nullptr ? absl::OkStatus() : n->Cause();
}

void CancelFunc::operator()() const {
  CancelBy(ContextRef(ref_), absl::OkStatus());
}

void CancelCauseFunc::operator()(const absl::Status& cause) const {
  CancelBy(ContextRef(ref_), cause);
}

bool StopFunc::operator()() const {
  const ContextRef ref = ref_;  // as in CancelBy
  return ref.get() != nullptr && CancelNodeOf(ref)->StopFunc();
}

Context TODO() {
  // This reference is held for ever.
  static auto* const todo = new ContextRef(new internal::ContextNode(nullptr));
  return ContextAccess::Make<Context>(ContextRef(*todo));
}

std::pair<Context, CancelFunc> WithCancel(const Context& parent) {
  ContextRef ref = NewCancel(parent);
  CancelNodeOf(ref)->Join();
  return Handles<CancelFunc>(std::move(ref));
}

std::pair<Context, CancelCauseFunc> WithCancelCause(const Context& parent) {
  ContextRef ref = NewCancel(parent);
  CancelNodeOf(ref)->Join();
  return Handles<CancelCauseFunc>(std::move(ref));
}

std::pair<Context, CancelFunc> WithDeadline(const Context& parent,
                                            absl::Time deadline) {
  return WithDeadlineCause(parent, deadline, absl::OkStatus());
}

std::pair<Context, CancelFunc> WithTimeout(const Context& parent,
                                           internal::DurationArg d) {
  return WithTimeoutCause(parent, d, absl::OkStatus());
}

std::pair<Context, CancelFunc> WithDeadlineCause(const Context& parent,
                                                 absl::Time deadline,
                                                 absl::Status cause) {
  return MakeDeadline(parent, deadline, deadline - synctest::Now(),
                      std::move(cause));
}

std::pair<Context, CancelFunc> WithTimeoutCause(const Context& parent,
                                                internal::DurationArg d,
                                                absl::Status cause) {
  return MakeDeadline(parent, synctest::Now() + d.duration(), d,
                      std::move(cause));
}

Context WithoutCancel(const Context& parent) {
  const ContextRef& ref = ContextAccess::ref(parent);
  // Takes the values of parent. The new node refers to the nearest ValueNode,
  // so it does not hold the nodes below that one.
  auto* n = new internal::ContextNode(ref.get() == nullptr ? nullptr
                                                           : ref.get()->values);
  n->cancel = nullptr;
  return ContextAccess::Make<Context>(ContextRef(n));
}

}  // namespace gump::context
