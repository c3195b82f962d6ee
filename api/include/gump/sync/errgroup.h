// A sync::ErrGroup runs goroutines that work on parts of one task, and keeps
// the first error among them.
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
// returned.
//
// Requires: as with WaitGroup, a call of Go happens before Wait if no goroutine
// of the group is active yet. A goroutine of the group may call Go at any time.
//
// Memory ordering: the return of every function happens before the return of
// Wait. If a Go waits because of the limit, the return of the function that
// made room happens before the start of the function that waited.
//
// Source: golang.org/x/sync/errgroup.
#ifndef GUMP_SYNC_ERRGROUP_H_
#define GUMP_SYNC_ERRGROUP_H_

#include <cstddef>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/internal/atomic.h"
#include "gump/internal/closure.h"
#include "gump/internal/linkname_gls.h"
#include "gump/sync/once.h"
#include "gump/sync/waitgroup.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// ErrGroup is described above. All functions may be called from goroutines and
// from plain threads.
class ErrGroup {
 public:
  // GroupAndContext is the result of WithContext: a group and its context. It
  // cannot be copied or moved.
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
  // than the limit allows. f is decay-copied. f and the goroutine's
  // values of gls are destroyed before the goroutine counts as having returned.
  // A Goexit counts as returning OK. Panics if no goroutine can be started.
  // Throws std::bad_alloc.
  template <class F>
  void Go(F&& f);

  // TryGo is Go if the limit allows one more goroutine now. Otherwise it starts
  // nothing and returns false. Never parks.
  template <class F>
  [[nodiscard]] bool TryGo(F&& f);

  // SetLimit limits the number of active goroutines to n. A negative n means no
  // limit, which is the initial state. With a limit of 0 no further goroutine
  // can be started, and Go parks for ever. Panics "errgroup: modify limit while
  // N goroutines in the group are still active" if a goroutine is active. A
  // goroutine may stay active for a moment after another could start in its
  // place. Requires: no other function of the group runs at the same time.
  // Throws std::bad_alloc.
  void SetLimit(int n);

  // Wait parks until all goroutines have returned. It returns the first status
  // of theirs that is not OK, or OK if there is none. It also cancels the
  // context of WithContext.
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

  // Call calls the function in task, and destroys it and the goroutine's values
  // of gls. After that its place in the limit is free again.
  template <class Fn>
  void Call(gump::internal::Disposable<Fn>& task);

  WaitGroup wg_;
  chan<void> places_;          // one value per place taken; nil: no limit
  rt::Atomic<size_t> active_;  // goroutines that have not left yet
  Once failed_;
  absl::Status error_;               // written by the first failure, in failed_
  context::CancelCauseFunc cancel_;  // of WithContext, or empty
};

// The members of a GroupAndContext are those that a structured binding names.
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
  using Task = gump::internal::Disposable<std::decay_t<F>>;
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
inline void ErrGroup::Call(gump::internal::Disposable<Fn>& task) {
  struct LeaveAtEnd {
    ErrGroup* group;
    gump::internal::Disposable<Fn>& task;
    ~LeaveAtEnd() noexcept(false) {
      task.reset();
      rt::glsDestroyAll();
      group->Leave();
    }
  } at_end{this, task};
  if constexpr (std::is_void_v<decltype(gump::internal::Invoke(*task))>) {
    gump::internal::Invoke(*task);
  } else {
    absl::Status status = gump::internal::Invoke(*task);
    if (!status.ok()) Fail(std::move(status));
  }
}

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_ERRGROUP_H_
