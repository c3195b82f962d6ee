// Two small protocols, apart from scope.cc so that tests/model can check them.
//
// ScopeCount. (J1) The value kJoining, with a count of zero, is final: Enter
// refuses it, and no Leave is left. It is reached in one step, by the owner in
// Join or by the last Leave after it. So exactly one of the two sees the final
// value as the result of its step. If that is the owner, Join returns. If it is
// a Leave, the owner waits in the list, and this Leave alone lets it go, also
// if the owner is still on its way into the list. No wake-up is lost, and none
// is left over.
//
// The owner counts goroutines by kCredit at once, before it starts them, and
// takes back in Join what it has not used. So the count is never too low.
//
// (J2) The object may be destroyed when Join returns. If Join saw the
// final value, each Leave was done with the object when it had changed the
// word. If the list ended it, waitListRelease has let the owner go, after which
// it does not touch the list (WL2 of waitlist.cc).
//
// ScopeTask. (J3) End sets kEnded, Join sets kWaiting, Drop sets kDropped, each
// in one step that returns what was there before. So of End and Join the later
// one sees the other: either Join does not wait, or End lets the handle go.
// Of End and Drop the later one sees the other, and destroys the task. The
// handle does not call Drop before its Join has returned, so the task is alive
// when End lets the handle go, and (J2) holds here as well.
#include "gump/internal/scope_join.h"

#include "gump/internal/linkname_sync.h"
#include "gump/internal/linkname_synctest.h"

namespace gump::internal {

bool ScopeCount::Enter() noexcept {
  uint32_t w = word_.load(rt::relaxed);  // a guess; the CAS decides
  do {
    if (w == kJoining) return false;  // (J1)
    // Relaxed: it publishes nothing. The goroutine is started afterwards.
  } while (!word_.casWeak(w, w + kOne, rt::relaxed));
  return true;
}

void ScopeCount::Leave() noexcept {
  // Release: pairs with the acquire in Join. Acquire: the last one passes on
  // what the others have released, by way of the list.
  if (word_.add(-kOne, rt::acq_rel) == kJoining) {
    rt::waitListRelease(&list_, 1);
  }
}

bool ScopeCount::Refill() noexcept {
  if (Over()) return false;
  word_.add(kCredit * kOne, rt::relaxed);  // as in Enter
  credit_ = kCredit;
  return true;
}

void ScopeCount::Join() noexcept {
  if (Over()) return;
  // Acquire: pairs with each Leave, if the result is final.
  const uint32_t w = word_.add(kJoining - credit_ * kOne, rt::acquire);
  credit_ = 0;
  if (w == kJoining) return;
  rt::waitListWait(&list_, rt::SemaReason::kScopeWait);
}

ScopeTask::ScopeTask(void (*destroy)(ScopeTask*)) noexcept
    : destroy_(destroy),
      // Relaxed: see nbubbles.
      bubble_(rt::nbubbles.load(rt::relaxed) == 0 ? 0 : rt::currentBubble()) {}

void ScopeTask::End() noexcept {
  // Most handles are dropped at once. Then nothing changes the state any more.
  // Acquire: pairs with Drop.
  if (state_.load(rt::acquire) == kDropped) {
    destroy_(this);
    return;
  }
  // Release: publishes the result to Join. Acquire: for destroy_, whatever the
  // handle did.
  const uint32_t was = state_.or_(kEnded, rt::acq_rel);
  if ((was & kDropped) != 0) {
    destroy_(this);
  } else if ((was & kWaiting) != 0) {
    rt::waitListRelease(&list_, 1);
  }
}

void ScopeTask::Join() noexcept {
  // Acquire: pairs with End.
  if ((state_.load(rt::acquire) & kEnded) != 0) return;
  // Acquire: as above, if End comes in between.
  if ((state_.or_(kWaiting, rt::acquire) & kEnded) != 0) return;
  const bool durable = bubble_ != 0 && bubble_ == rt::currentBubble();
  rt::waitListWait(&list_, durable ? rt::SemaReason::kScopeJoinDurable
                                   : rt::SemaReason::kScopeJoin);
}

void ScopeTask::Drop() noexcept {
  // Acquire: pairs with End, which does not touch the task any more: Join has
  // returned, or was never called.
  if ((state_.load(rt::acquire) & kEnded) != 0) {
    destroy_(this);
    return;
  }
  // As in End, with the sides exchanged.
  if ((state_.or_(kDropped, rt::acq_rel) & kEnded) != 0) destroy_(this);
}

}  // namespace gump::internal
