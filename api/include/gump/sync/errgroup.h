// sync::ErrGroup: goroutines that work on parts of one task, and the first
// error among them.
//
//   sync::ErrGroup group;
//   group.SetLimit(8);                          // at a time; optional
//   for (const std::string& url : urls) {
//     group.Go([&url] { return Fetch(url); });  // an absl::Status
//   }
//   absl::Status s = group.Wait();              // all have returned
//
// A function that returns nothing counts as one that returns OK. An exception
// that leaves a function ends the process, as in every goroutine.
//
// An ErrGroup is never copied or moved. It may be destroyed when Wait has
// returned. As with WaitGroup, a Go that may find no active goroutine must
// happen before Wait. A goroutine of the group may always call Go.
//
// Memory ordering: the return of every function happens before the return of
// Wait. The return of a function happens before the start of a function that
// waited for it because of the limit.
//
// Source: golang.org/x/sync/errgroup.
#ifndef GUMP_SYNC_ERRGROUP_H_
#define GUMP_SYNC_ERRGROUP_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/internal/atomic.h"
#include "gump/sync/once.h"
#include "gump/sync/waitgroup.h"

namespace gump::sync {

// ErrGroup is described above. All functions may be called from goroutines and
// from plain threads.
class ErrGroup {
 public:
  // GroupAndContext is the result of WithContext: a group and its context. It
  // is never moved either.
  struct GroupAndContext;

  ErrGroup() noexcept = default;
  ErrGroup(const ErrGroup&) = delete;
  ErrGroup& operator=(const ErrGroup&) = delete;

  // WithContext makes a group and a context below parent. The context is
  // cancelled at the first error, with this error as its Cause, or when Wait
  // returns. Throws std::bad_alloc.
  //
  //   auto [group, ctx] = sync::ErrGroup::WithContext(parent);
  //   group.Go([&ctx = ctx] { return Serve(ctx); });
  [[nodiscard]] static GroupAndContext WithContext(
      const context::Context& parent);

  // Go calls f() in a new goroutine. Parks until fewer goroutines are active
  // than the limit allows. f is decay-copied, and destroyed before the
  // goroutine counts as having returned. A Goexit counts as returning OK.
  // Panics if no goroutine can be started. Throws std::bad_alloc.
  template <class F>
  void Go(F&& f);

  // TryGo is Go if the limit allows one more goroutine now. It returns false,
  // and starts nothing, otherwise. Never parks.
  template <class F>
  [[nodiscard]] bool TryGo(F&& f);

  // SetLimit limits the number of active goroutines to n. A negative n means no
  // limit, which is the initial state. With a limit of 0 no further goroutine
  // can be started. Panics "errgroup: modify limit while N goroutines in the
  // group are still active" if a goroutine is active. A goroutine stays active
  // for a moment after its place is free. Requires: no other function of the
  // group runs at the same time. Throws std::bad_alloc.
  void SetLimit(int n);

  // Wait parks until all goroutines have returned. It returns the first status
  // of theirs that is not OK. The context of WithContext is done when Wait
  // returns.
  absl::Status Wait();

 private:
  explicit ErrGroup(context::CancelCauseFunc cancel)
      : cancel_(std::move(cancel)) {}

  void Enter();
  [[nodiscard]] bool TryEnter();
  void Leave();
  void Fail(absl::Status status);

  template <class F>
  void Start(F&& f);

  // Call calls the function in task and destroys it. After that its place in
  // the limit is free again.
  template <class Fn>
  void Call(std::optional<Fn>& task);

  WaitGroup wg_;
  chan<void> places_;          // one value per place taken; nil: no limit
  rt::Atomic<size_t> active_;  // goroutines that have not left yet
  Once failed_;
  absl::Status error_;               // written by the first failure, in failed_
  context::CancelCauseFunc cancel_;  // of WithContext, or empty
};

struct ErrGroup::GroupAndContext {
  ErrGroup group;
  context::Context ctx;
};

template <class F>
inline void ErrGroup::Go(F&& f) {
  Enter();
  Start(std::forward<F>(f));
}

template <class F>
inline bool ErrGroup::TryGo(F&& f) {
  if (!TryEnter()) return false;
  Start(std::forward<F>(f));
  return true;
}

template <class F>
inline void ErrGroup::Start(F&& f) {
  using Task = std::optional<std::decay_t<F>>;
  try {
    wg_.Go([this, fn = Task(std::in_place, std::forward<F>(f))]() mutable {
      Call(fn);
    });
  } catch (...) {
    Leave();
    throw;
  }
}

template <class Fn>
inline void ErrGroup::Call(std::optional<Fn>& task) {
  struct LeaveAtEnd {
    ErrGroup* group;
    std::optional<Fn>& task;
    ~LeaveAtEnd() {
      task.reset();
      group->Leave();
    }
  } at_end{this, task};
  if constexpr (std::is_void_v<std::invoke_result_t<Fn&>>) {
    std::invoke(*task);
  } else {
    absl::Status status = std::invoke(*task);
    if (!status.ok()) Fail(std::move(status));
  }
}

}  // namespace gump::sync

#endif  // GUMP_SYNC_ERRGROUP_H_
