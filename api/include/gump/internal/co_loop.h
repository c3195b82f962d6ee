// CoLoop and CoWait: how coroutines run and wait. gump/co.h has the public
// side, co_task.h the tasks, and co_ops.h the operations.
//
// Transfer. A task that ends does not resume the coroutine that awaits it. It
// stores that coroutine in the loop at the bottom of its stack, and returns. A
// coroutine that awaits a task starts it, up to a small depth. Beyond that it
// stores the task in the loop too, and returns. So the stack does not grow,
// however long a chain of tasks is, with every compiler and every option.
// (Rejected: an await_suspend that returns a handle. It needs a tail call,
// which g++ 12 makes only at -O2 and without a sanitizer. clang 14 writes to
// the frame behind it, when another thread may have freed that. LLVM's issues
// 56301 and 65018 describe it. CoForeign passes on the handle of an awaitable
// that returns one itself.)
//
// (C1) The promise of a task that runs has a pointer to its loop. The pointer
//      is null if the loop is not known, because another library resumed the
//      coroutine. A null pointer is always right. A loop that is missing is
//      made where it is needed.
// (C2) A loop belongs to one stack, and only coroutines on that stack use it.
//      A coroutine gets the pointer from the coroutine or the loop that resumes
//      it. It clears the pointer before it suspends in an awaitable that is not
//      ours.
// (C3) One chain of coroutines runs in a loop. When it stops, because its last
//      coroutine waits, the stack of the loop has nothing else to do. So the
//      loop itself may wait for that coroutine, if its stack is a goroutine's.
//      The loop of a coroutine that is not a task must not do so: the code that
//      resumed that coroutine may have other things to do.
//
// Waiting. A goroutine waits in place of a coroutine. By (C3) that is the
// goroutine on which the coroutine ran in a loop, or else a new one. It then
// resumes the coroutine. The coroutine may be destroyed meanwhile. This must
// cancel the operation, and the goroutine must not touch the frame any more.
//
// (W1) Neither the waiting goroutine nor a goroutine that serves it touches the
//      frame before Claim. The operation, with the value of a send and the room
//      for a received one, lies on the goroutine's stack.
// (W2) Claim and Cancel change one word from kWaiting, so only one of them
//      succeeds. If Claim does, the coroutine is resumed. If Cancel does, the
//      frame may be freed.
// (W3) Cancel first closes `stop`. The goroutine selects on `stop` and on its
//      channel, in this order. selectgoInOrder sees both at one moment. So an
//      operation that has not happened when Cancel closes `stop` never happens.
//      A receive takes no value after Cancel, and a send delivers none.
// (W4) The operation may have happened just before Cancel, and its Claim come
//      after it. A value that was received then is destroyed, as if the
//      coroutine had been destroyed just after the receive.
#ifndef GUMP_INTERNAL_CO_LOOP_H_
#define GUMP_INTERNAL_CO_LOOP_H_

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/atomic.h"
#include "gump/internal/linkname_select.h"
#include "gump/sync/waitgroup.h"

#pragma GCC visibility push(default)

namespace gump::internal {

class CoLoop;
struct CoWaiter;

[[noreturn]] void PanicSpentTask();
[[noreturn]] void PanicSpentAwaitable();
[[noreturn]] void PanicGoexitInGo();

// CoClaim decides whether a coroutine that waits is resumed or destroyed.
class CoClaim {
 public:
  // Arm makes ready for a wait. No other goroutine uses the object yet.
  void Arm() { state_.store(kWaiting, rt::relaxed); }
  // Claim returns false if the coroutine was destroyed. If it returns true, the
  // caller resumes the coroutine. All accesses are relaxed: only the order of
  // values in this word decides, and neither side hands data to the other.
  [[nodiscard]] bool Claim() {
    return state_.cas(kWaiting, kResumed, rt::relaxed);
  }
  // TryCancel returns false if the coroutine was resumed. If it returns true,
  // the coroutine may be destroyed.
  [[nodiscard]] bool TryCancel() {
    return state_.cas(kWaiting, kCancelled, rt::relaxed);
  }
  // Cancel is TryCancel for a destructor, where a failure is a fatal error.
  void Cancel();

 private:
  enum : uint32_t { kWaiting, kResumed, kCancelled };
  rt::Atomic<uint32_t> state_{kResumed};
};

// CoWait is the shared part of a wait: the goroutine that waits has one
// reference, and the coroutine has another while it is suspended.
class CoWait {
 public:
  // Makes a CoWait with one reference. If `stoppable`, it has a `stop`, which
  // Do needs. Throws std::bad_alloc.
  explicit CoWait(bool stoppable);
  CoWait(const CoWait&) = delete;
  CoWait& operator=(const CoWait&) = delete;

  // Arm begins a wait, and adds the coroutine's reference.
  void Arm() {
    claim_.Arm();
    refs_.add(1, rt::relaxed);  // the caller's keeps it alive
  }
  [[nodiscard]] bool stoppable() const { return static_cast<bool>(stop_); }
  [[nodiscard]] bool Claim() { return claim_.Claim(); }
  void Cancel();
  void Unref();
  // Do sends *elem to c, or receives from c into raw storage. Parks until it
  // has done so, c is closed, or Cancel was called. Returns kWouldBlock in the
  // last case.
  [[nodiscard]] rt::ChanResult Do(rt::Hchan* c, void* elem, rt::SelectDir dir);

 private:
  rt::Atomic<uint32_t> refs_{1};
  CoClaim claim_;
  chan<void> stop_;
};
struct CoUnref {
  void operator()(CoWait* w) const { w->Unref(); }
};
using CoWaitRef = std::unique_ptr<CoWait, CoUnref>;

// CoPromise is the part of a task's promise that does not depend on its type.
struct CoPromise {
  CoLoop* loop = nullptr;  // (C1)
  // The coroutine that awaits this task. Null if a co::Wait does, or if the
  // task was not started.
  std::coroutine_handle<> continuation;
  union {
    CoPromise* parent = nullptr;  // of continuation, or nullptr: not a task
    CoWaiter* waiter;             // if a co::Wait awaits the task
  };
};

template <class P>
CoPromise* CoPromiseOf(std::coroutine_handle<P> h) {
  if constexpr (std::is_base_of_v<CoPromise, P>) {
    return &h.promise();
  } else {
    return nullptr;
  }
}

// CoGoexitGuard ends the process if a Goexit unwinds the scope. The coroutine
// that called Goexit will never return to the one that awaits it.
class CoGoexitGuard {
 public:
  CoGoexitGuard() = default;
  CoGoexitGuard(const CoGoexitGuard&) = delete;
  CoGoexitGuard& operator=(const CoGoexitGuard&) = delete;
  ~CoGoexitGuard() {
    if (armed_) Die();
  }
  void Disarm() { armed_ = false; }

 private:
  [[noreturn]] static void Die();
  bool armed_ = true;
};

// CoLoop resumes coroutines, one after another, at the bottom of a stack.
class CoLoop {
 public:
  // Where says what has the stack. By (C3) a loop may wait on a goroutine.
  enum class Where : uint8_t { kGoroutine, kUnknown, kMustReturn };
  explicit CoLoop(Where where, CoWaitRef wait = nullptr)
      : where_(where), wait_(std::move(wait)) {}
  CoLoop(const CoLoop&) = delete;
  CoLoop& operator=(const CoLoop&) = delete;

  // Next makes h the coroutine that is resumed next. p is its promise, or
  // nullptr if it is not a task.
  void Next(std::coroutine_handle<> h, CoPromise* p) {
    if (p != nullptr) p->loop = this;
    next_ = h;
  }
  // MayWait returns true if operations may be given to Later.
  [[nodiscard]] bool MayWait() {
    if (where_ == Where::kUnknown) [[unlikely]]
      FindOut();
    return where_ == Where::kGoroutine;
  }
  // kFits: a loop has room for such an operation.
  static constexpr size_t kRoom = 64;
  template <class Op>
  static constexpr bool kFits = sizeof(Op) <= kRoom &&
                                alignof(Op) <= alignof(std::max_align_t) &&
                                std::is_nothrow_move_constructible_v<Op>;
  // Later makes the loop call op.Run once the coroutine has suspended.
  template <class Op>
  void Later(Op&& op) {
    using Stored = std::remove_cvref_t<Op>;
    ::new (static_cast<void*>(room_)) Stored(std::forward<Op>(op));
    later_ = [](CoLoop& loop) {
      auto* stored = std::launder(reinterpret_cast<Stored*>(loop.room_));
      stored->Run(loop);
      stored->~Stored();
    };
  }
  // Armed returns the CoWait of this loop, armed for a wait of a coroutine.
  // Throws std::bad_alloc.
  CoWait* Armed();
  CoWait& wait() { return *wait_; }

  // Run resumes coroutines until none is left. A Goexit in one is fatal.
  void Run() {
    CoGoexitGuard guard;
    RunUnguarded();
    guard.Disarm();
  }
  void RunUnguarded() {
    for (;;) {
      while (next_) std::exchange(next_, nullptr).resume();
      if (later_ == nullptr) return;
      std::exchange(later_, nullptr)(*this);
    }
  }
  // RunAbove resumes h on top of the stack, instead of at its bottom, for the
  // coroutine `after`, which has just suspended. Returns true if `after` is the
  // next one again. Then `after` continues without being resumed, which saves
  // two trips to the bottom. If it returns false, the caller returns to the
  // loop.
  bool RunAbove(std::coroutine_handle<> h, CoPromise* p,
                std::coroutine_handle<> after) {
    if (depth_ == kMaxDepth) {
      Next(h, p);
      return false;
    }
    p->loop = this;
    depth_++;
    h.resume();
    depth_--;
    if (next_ != after) return false;
    next_ = nullptr;
    return true;
  }
  // RunUntil resumes coroutines until none is left or h is the next one. In
  // that case it returns true, and h is not resumed.
  bool RunUntil(std::coroutine_handle<> h) {
    while (next_ && next_ != h) std::exchange(next_, nullptr).resume();
    return static_cast<bool>(next_);
  }

 private:
  void FindOut();

  // RunAbove nests at most this deep. That is enough to make most awaits fast,
  // and takes little stack.
  static constexpr uint32_t kMaxDepth = 8;

  std::coroutine_handle<> next_;
  uint32_t depth_ = 0;
  void (*later_)(CoLoop&) = nullptr;
  Where where_;
  CoWaitRef wait_;
  alignas(std::max_align_t) unsigned char room_[kRoom];
};

// CoWaiter is a co::Wait that waits for a task.
struct CoWaiter {
  explicit CoWaiter(CoLoop* below) : loop(below) {}

  CoLoop* loop;
  bool done = false;   // the task has ended in `loop`
  sync::WaitGroup wg;  // or else elsewhere
};

// CoEnd transfers from a task that has ended to the coroutine that awaits it,
// which then may destroy the task's frame. CoEndSlow does so if a co::Wait
// awaits the task, or if no loop is known.
void CoEndSlow(CoPromise& p) noexcept;
inline void CoEnd(CoPromise& p) noexcept {
  const std::coroutine_handle<> next = p.continuation;
  if (!next || p.loop == nullptr) [[unlikely]] {
    CoEndSlow(p);
    return;
  }
  p.loop->Next(next, p.parent);
}

// CoStart runs `task` in a new loop, for the coroutine h, which has just
// suspended and awaits it. `parent` is the promise of h, or nullptr. Returns
// true if the task has ended in that loop: then h continues without being
// resumed.
[[nodiscard]] bool CoStart(std::coroutine_handle<> task, CoPromise* promise,
                           std::coroutine_handle<> h, CoPromise* parent);

// CoSuspended is the part of an awaiter that waits on a goroutine. It lies in
// the coroutine's frame. Its destructor cancels the wait.
class CoSuspended {
 public:
  CoSuspended() = default;
  CoSuspended(const CoSuspended&) = delete;
  CoSuspended& operator=(const CoSuspended&) = delete;
  ~CoSuspended() {
    if (wait_ != nullptr) [[unlikely]]
      wait_->Cancel();
  }

  // ResumeIn makes the coroutine the next one of the loop. The caller has
  // claimed it.
  void ResumeIn(CoLoop& loop) {
    loop.Next(std::coroutine_handle<>::from_address(frame_), promise_);
  }

 protected:
  template <class P>
  void Attach(std::coroutine_handle<P> h) {
    frame_ = h.address();
    promise_ = CoPromiseOf(h);
  }
  // Begin has op.Run(loop) called on a goroutine, once the coroutine has
  // suspended. The caller must not touch the frame afterwards. Panics if no
  // goroutine can be started. Throws std::bad_alloc.
  template <class Op>
  void Begin(Op op) {
    if constexpr (Op::kInLoop && CoLoop::kFits<Op>) {
      CoLoop* loop = promise_ != nullptr ? promise_->loop : nullptr;
      if (loop != nullptr && loop->MayWait()) {
        wait_.reset(loop->Armed());
        loop->Later(std::move(op));
        return;
      }
    }
    CoWaitRef wait(new CoWait(Op::kInLoop));
    wait->Arm();
    wait_.reset(wait.get());
    try {
      gump::go([wait = std::move(wait),
                op = std::optional<Op>(std::move(op))]() mutable {
        CoLoop loop(CoLoop::Where::kGoroutine, std::move(wait));
        op->Run(loop);
        op.reset();
        loop.Run();
      });
    } catch (...) {
      wait_.reset();
      throw;
    }
  }
  // Resumed ends the wait, if there was one. await_resume calls it first.
  void Resumed() {
    if (wait_ != nullptr) [[unlikely]]
      wait_.reset();
  }

 private:
  CoWaitRef wait_;  // not null while the coroutine waits
  // Set by Attach. An operation that is ready stores nothing here.
  void* frame_;
  CoPromise* promise_;
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_CO_LOOP_H_
