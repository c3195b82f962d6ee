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
// that leaves one ends the process, as in every goroutine.
//
// Never copied or moved. It may be destroyed when Wait has returned. As with
// WaitGroup, a Go that may find no goroutine active must happen before Wait;
// one from inside a goroutine of the group always may.
//
// Memory ordering: the return of every function happens before the return of
// Wait; the return of one happens before the start of one that waited for it
// because of the limit.
//
// Source: golang.org/x/sync/errgroup.
#ifndef GUMP_ERRGROUP_H_
#define GUMP_ERRGROUP_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/internal/linkname.h"
#include "gump/once.h"
#include "gump/waitgroup.h"

namespace gump::sync {

// ErrGroup is described above. All functions may be called from goroutines and
// from plain threads.
class ErrGroup {
 public:
  // What WithContext returns: a group and its context. Never moved either.
  struct GroupAndContext;

  ErrGroup() noexcept = default;
  ErrGroup(const ErrGroup&) = delete;
  ErrGroup& operator=(const ErrGroup&) = delete;

  // WithContext makes a group and a context below parent, which is cancelled at
  // the first error, with that as its Cause, or when Wait returns. Throws
  // std::bad_alloc.
  //
  //   auto [group, ctx] = sync::ErrGroup::WithContext(parent);
  //   group.Go([&ctx = ctx] { return Serve(ctx); });
  [[nodiscard]] static GroupAndContext WithContext(
      const context::Context& parent);

  // Go calls f() in a new goroutine. Parks until there are fewer active ones
  // than the limit says. f is decay-copied, and destroyed before it counts as
  // having returned. A Goexit counts as returning OK. Panics if no goroutine
  // can be started; throws std::bad_alloc.
  template <class F>
  void Go(F&& f) {
    Enter();
    Start(std::forward<F>(f));
  }

  // TryGo does so if that needs no waiting for others to return, and tells
  // whether it did. Never parks.
  template <class F>
  [[nodiscard]] bool TryGo(F&& f) {
    if (!TryEnter()) return false;
    Start(std::forward<F>(f));
    return true;
  }

  // SetLimit limits the number of active goroutines to n; below 0: no limit,
  // as at first. With 0 none can be started any more. Panics "errgroup: modify
  // limit while N goroutines in the group are still active", which they are, if
  // only just, after their place is free. Not to be called at the same time as
  // another function. Throws std::bad_alloc.
  void SetLimit(int n);

  // Wait waits until all goroutines have returned, and returns the first status
  // among theirs that is not OK. Parks. The context of WithContext is done
  // then.
  absl::Status Wait();

 private:
  explicit ErrGroup(context::CancelCauseFunc cancel)
      : cancel_(std::move(cancel)) {}

  void Enter();
  [[nodiscard]] bool TryEnter();
  void Leave();
  void Fail(absl::Status status);

  template <class F>
  void Start(F&& f) {
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

  // Call calls what is in task, and destroys it; the place in the limit is free
  // again then.
  template <class Fn>
  void Call(std::optional<Fn>& task) {
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

  WaitGroup wg_;
  chan<void> places_;          // as many values as are taken; nil: no limit
  rt::Atomic<size_t> active_;  // goroutines that have not left yet
  Once failed_;
  absl::Status error_;               // written by the first failure, in failed_
  context::CancelCauseFunc cancel_;  // of WithContext, or empty
};

struct ErrGroup::GroupAndContext {
  ErrGroup group;
  context::Context ctx;
};

}  // namespace gump::sync

#endif  // GUMP_ERRGROUP_H_
