// Loops, sleeps, and the panics of <gump/co.h>.
#include "gump/co.h"

#include "gump/internal/arch.h"
#include "gump/internal/linkname_panic.h"
#include "gump/internal/linkname_sync.h"
#include "gump/panic.h"

namespace gump::internal {

void PanicSpentTask() { panic("co: task is awaited twice, or was moved from"); }

void PanicSpentAwaitable() { panic("co: Go or Send is awaited twice"); }

void PanicGoexitInGo() { panic("co: function of Go called Goexit"); }

void CoGoexitGuard::Die() { rt::fatalError("co: Goexit in a coroutine"); }

// ---- Loops ------------------------------------------------------------------

CoWait* CoLoop::Armed() {
  if (wait_ == nullptr || !wait_->stoppable()) {
    wait_.reset(new CoWait(/*stoppable=*/true));
  }
  wait_->Arm();
  return wait_.get();
}

void CoLoop::FindOut() {
  const bool goroutine = rt::procPin() >= 0;
  rt::procUnpin();
  where_ = goroutine ? Where::kGoroutine : Where::kMustReturn;
}

void CoEndSlow(CoPromise& p) noexcept {
  if (!p.continuation) {
    CoWaiter* const waiter = p.waiter;
    if (p.loop == waiter->loop) {
      waiter->done = true;  // the Wait is below us on this stack
    } else {
      waiter->wg.Done();  // the Wait may return, and free the frame
    }
    return;
  }
  CoLoop mine(CoLoop::Where::kMustReturn);
  mine.Next(p.continuation, p.parent);
  mine.Run();
}

bool CoStart(std::coroutine_handle<> task, CoPromise* promise,
             std::coroutine_handle<> h, CoPromise* parent) {
  CoLoop mine(CoLoop::Where::kMustReturn);
  // A task that waits keeps this pointer, but by (C2) it gets another one
  // before it uses it. The asm hides from g++ that the pointer will dangle.
  CoLoop* loop = &mine;
  asm volatile("" : "+r"(loop));
  loop->Next(task, promise);
  if (!loop->RunUntil(h)) return false;
  if (parent != nullptr) parent->loop = nullptr;
  return true;
}

// ---- Sleep ------------------------------------------------------------------

// The timer may fire, and the coroutine go on and end, before Start returns.
// Start does not touch the timer any more then, and we do not touch *this.
void CoSleepAwaiter::Begin() {
  auto* timer = new CoTimer(this);
  timer_ = timer;
  try {
    timer->Start(ns_, rt::callerPC());
  } catch (...) {
    timer_ = nullptr;
    timer->Unref();
    throw;
  }
}

void CoSleepAwaiter::Cancel() {
  timer_->Cancel();
  timer_->Unref();
}

void CoTimer::Call() {
  if (!claim_.Claim()) return;
  CoLoop loop(CoLoop::Where::kGoroutine);
  loop.Next(awaiter_->handle_, awaiter_->promise_);
  loop.Run();
}

}  // namespace gump::internal
