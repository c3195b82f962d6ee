// Contexts: a tree of nodes with counted references.
//
// A node is of one of three kinds. A CancelNode can be cancelled, a ValueNode
// has a value, and a plain node has neither (context::TODO, WithoutCancel).
// Each node knows the nearest node of the first two kinds from itself upwards,
// so a search skips the nodes that have nothing for it. A function registered
// with AfterFunc is a CancelNode too. It has no visible handle as a Context,
// and its cancellation starts f.
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
//       still waits for its cancellation, and the cancellation can still come.
//       The last reference is then kept for the cancellation. It is dropped by
//         Close, when the cancellation comes;
//         OnParentDestroyed, when the cancellation can come no more;
//         Leave, when the last child leaves for which the node lingered;
//         Sweep, when it finds that no observer is left. No call tells the node
//         that the last handle of its channel is gone, so Sweep has to look.
//       A lingering node gives up its reference to parent. That reference would
//       keep alive the nodes that are to cancel this one.
//  (N5) The thread that cancels a node holds mu_ until all its descendants are
//       cancelled too. So any other thread that holds mu_ of a cancelled node
//       finds the descendants cancelled. When a CancelFunc returns, all is
//       done, no matter which thread did it.
//
// Lock order: a node's lock, then those of nodes below it; never upwards. Under
// these locks no reference is given up, and so no user code runs. Giving up a
// reference may destroy a value or a function of the program, and the
// destructor may call anything here.
//
// Rejected: lists that own their children, as in Go. A child that is never
// cancelled would stay until the parent is. Also rejected: one lock for the
// tree, for which all requests of a server would queue.
#ifndef API_CONTEXT_CONTEXT_NODE_H_
#define API_CONTEXT_CONTEXT_NODE_H_

#include <cstdint>
#include <memory>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "api/context/stop_link.h"
#include "gump/context.h"
#include "gump/sync/mutex.h"

namespace gump::internal {

class CancelNode;
class ValueNode;
struct ContextLayout;

struct ContextNode {
  // Takes a reference to up, which may be null.
  explicit ContextNode(ContextNode* up) noexcept;
  virtual ~ContextNode() = default;
  ContextNode(const ContextNode&) = delete;
  ContextNode& operator=(const ContextNode&) = delete;

  // Drop gives up one reference. Returns a node of which the caller must give
  // up one reference next, or nullptr. If the node is destroyed, Drop puts its
  // children at the front of the list *lost. The caller must call
  // OnParentDestroyed on these.
  virtual ContextNode* Drop(CancelNode** lost);

  rt::Atomic<uint32_t> refs{1};
  ContextNode* parent;  // may be null
  CancelNode* cancel;   // the nearest, starting at this node; may be null
  ValueNode* values;    // the same
};

// ContextState is the value of a CancelNode's state_. kClosing is set on top of
// the others while the channel is not closed yet.
enum ContextState : uint32_t {
  kLive = 0,
  kCanceled = 1,
  kDeadlineExceeded = 2,
  kClosing = 4,
};

// ErrOf returns the error of a context in `state`, which is not kLive.
const absl::Status& ErrOf(uint32_t state);

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
  ~CancelNode() override { rt::groupUnrefId(group_); }

  // Before Join: sets the deadline, and the function of AfterFunc.
  void SetDeadline(absl::Time t, absl::Duration in);
  void SetFunc(const rt::FuncType* ft, void* closure, uintptr_t pc);
  // Join puts the node into the list of up_, or cancels it if up_ is cancelled.
  void Join();
  // StartTimer arms the deadline's timer, unless the node is cancelled.
  void StartTimer(int64_t ns, absl::Status cause);
  // LinkStop has the node cancelled when a stop is requested of `token`. Called
  // after Join, once, before another thread gets a handle. Throws
  // std::bad_alloc.
  void LinkStop(std::stop_token token);

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
  rt::Hchan* Done();  // gives the caller no reference to the channel
  // StopToken returns a token of which a stop is requested when the node is
  // cancelled. Throws std::bad_alloc.
  std::stop_token StopToken();

  ContextNode* Drop(CancelNode** lost) override;
  [[nodiscard]] bool TryRef() noexcept;
  void WeakRef() noexcept;
  void WeakUnref() noexcept;

 private:
  friend struct ContextLayout;  // for debuggers

  [[nodiscard]] bool Close(uint32_t why, const absl::Status& cause);
  [[nodiscard]] CancelNode* TakeChild();
  void Sweep(CancelNode* (&idle)[2]);
  [[nodiscard]] CancelNode* Leave();
  void StartFunc();
  void StartStop();
  [[nodiscard]] bool CanBeCancelled() const;
  [[nodiscard]] bool Observed() const;
  bool KeepForObservers(ContextNode** held);
  [[nodiscard]] bool EndLinger();
  [[nodiscard]] CancelNode* Destroy(CancelNode** lost);

  // Counts the references to the memory: each weak reference, and one for all
  // those that refs counts.
  rt::Atomic<uint32_t> weak_{1};
  CancelNode* const up_;  // with a weak reference; may be null
  // Guarded by up_->mu_ until the node is out of the list (N3).
  bool listed_ = false;
  CancelNode* prev_ = nullptr;
  CancelNode* next_ = nullptr;

  // Constant from Join on.
  absl::Time deadline_ = absl::InfiniteFuture();  // infinite: no deadline
  // due_ is the deadline on the clock of the timers, which does not jump when
  // the system's time is set. clock_ is the bubble that this clock belongs to,
  // or 0 if it belongs to none.
  int64_t due_ = 0;
  uint32_t clock_ = 0;
  uint32_t group_ = 0;  // rt::Group::id of AfterFunc's caller, with a reference
  const rt::FuncType* ft_ = nullptr;  // only for AfterFunc
  uintptr_t pc_ = 0;
  // stop_link_ is constant once another thread has a handle.
  std::unique_ptr<StopLink> stop_link_;  // nullptr without WithStopToken

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
  // The source of StopToken. It has no state before the first call of
  // StopToken. StartStop takes it.
  std::stop_source stop_source_{std::nostopstate};
};

}  // namespace gump::internal

#endif  // API_CONTEXT_CONTEXT_NODE_H_
