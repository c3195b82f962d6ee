// The slow paths of sync::WaitGroup. The state word is described in
// gump/sync/waitgroup.h.
//
// Counter and waiters share one word, so that the Done that makes the counter
// zero sees exactly the waiters that it has to release. A Wait counts itself by
// a CAS on the word in which it saw a counter above zero. A Done that makes the
// counter zero and finds waiters owns the word until it has stored zero. An Add
// or Wait in between is misuse. The Done then lets that many waiters go
// (waitlist.cc). No waiter returns before, so the object is alive until the
// last one is let go.
//
// kBubbled is set in a bubble before the Add that raises the counter from zero.
// It is cleared by the Done that finds waiters, or else by the next Wait or the
// next Add from outside. So every Add sees, in the word that it changes,
// whether the WaitGroup belongs to a bubble. An Add that makes the counter zero
// and finds no waiters does not touch the object again.
#include "gump/sync/waitgroup.h"

#include "gump/internal/linkname_gls.h"
#include "gump/internal/linkname_panic.h"
#include "gump/internal/linkname_sync.h"
#include "gump/internal/linkname_synctest.h"
#include "gump/panic.h"

namespace gump::sync {

namespace {
constexpr char kInsideAndOutside[] =
    "sync: WaitGroup.Add called from inside and outside synctest bubble";
}  // namespace

// AddInBubble runs before an Add. It claims the WaitGroup for the caller's
// bubble, if the caller is in one.
void WaitGroup::AddInBubble(int delta) {
  const uint32_t bubble = rt::currentBubble();
  if (bubble == 0) return;
  // All relaxed: the Add that raises the counter from zero happens before the
  // others.
  const uint64_t state = state_.load(rt::relaxed);
  if (Counter(state) == 0 && Waiters(state) == 0) {
    if (delta <= 0) return;
    bubble_.store(bubble, rt::relaxed);
    state_.or_(kBubbled, rt::relaxed);
    return;
  }
  if ((state & kBubbled) == 0) rt::fatalError(kInsideAndOutside);
  if (bubble_.load(rt::relaxed) != bubble) {
    rt::fatalError("sync: WaitGroup.Add called from multiple synctest bubbles");
  }
}

// AddSlow completes an Add that led to `state`.
void WaitGroup::AddSlow(int delta, uint64_t state) {
  const int32_t counter = Counter(state);
  uint32_t waiters = Waiters(state);
  if (counter < 0) panic("sync: negative WaitGroup counter");
  if ((state & kBubbled) != 0 && rt::currentBubble() == 0) {
    // If the counter was 0, the bit is left over from a bubble.
    if (delta <= 0 || counter != delta) rt::fatalError(kInsideAndOutside);
    state_.and_(~kBubbled, rt::relaxed);  // as in AddInBubble
    state &= ~kBubbled;
  }
  if (waiters != 0 && delta > 0 && counter == delta) {
    panic("sync: WaitGroup misuse: Add called concurrently with Wait");
  }
  if (counter > 0 || waiters == 0) return;
  // Relaxed: no thread may change it now. This load only detects one that does.
  if (state_.load(rt::relaxed) != state) {
    panic("sync: WaitGroup misuse: Add called concurrently with Wait");
  }
  // Release: pairs with the acquire of a Wait that is not among the waiters.
  // The list orders the waiters. (Our Add has acquired what the Dones
  // before it released, so this store passes that on.)
  state_.store(0, rt::release);
  rt::waitListRelease(&list_, waiters);
}

void WaitGroup::WaitSlow() {
  uint64_t state = state_.load(rt::acquire);  // pairs with the release in Add
  for (;;) {
    if (Counter(state) == 0) {
      // The CAS clears a bit that is left over from a bubble. If it fails, an
      // Add has come in between, and the bit is now the business of that Add.
      // Relaxed: clearing the bit publishes nothing.
      if (state == kBubbled) (void)state_.cas(state, 0, rt::relaxed);
      return;
    }
    // Relaxed: waiting publishes nothing; the list orders what follows.
    if (state_.casWeak(state, state + 1, rt::relaxed)) break;
    state = state_.load(rt::acquire);  // pairs with the release in Add
  }
  const bool durable = (state & kBubbled) != 0 &&
                       bubble_.load(rt::relaxed) == rt::currentBubble();
  rt::waitListWait(&list_, durable ? rt::SemaReason::kWaitGroupWaitDurable
                                   : rt::SemaReason::kWaitGroupWait);
  if (state_.load(rt::relaxed) != 0) {  // as in AddSlow
    panic("sync: WaitGroup is reused before previous Wait has returned");
  }
}

// RunTask calls run(task), destroys the goroutine's values of gls, and calls
// Done. So a waiter finds them destroyed, as a thread that joins another finds
// the thread_locals of the other destroyed. A Goexit counts as returning,
// because it unwinds this frame. An exception that leaves run does not unwind
// this frame. No frame above catches the exception. So the process ends before
// any frame is unwound, and the report shows the stack that threw.
void WaitGroup::RunTask(void (*run)(void*), void* task) {
  struct DoneAtEnd {
    WaitGroup* wg;
    ~DoneAtEnd() noexcept(false) {
      rt::glsDestroyAll();
      wg->Done();
    }
  } at_end{this};
  run(task);
}

}  // namespace gump::sync
