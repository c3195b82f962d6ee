// A Scope runs goroutines that cannot outlive a block. When the block is left,
// all of them have ended.
//
//   absl::StatusOr<Page> Fetch(const context::Context& ctx, Url url) {
//     Scope scope(ctx, "fetch");
//     auto head = scope.Go([&](context::Context c) { return Head(c, url); });
//     scope.Go([&](context::Context c) { return Warm(c, url); });
//     if (absl::Status s = scope.Wait(); !s.ok()) return s;
//     return Page(*head.Join());
//   }
//
// The goroutine that makes a Scope owns it. Go starts a goroutine of the scope.
// Wait waits for all of them. The destructor cancels the scope's context and
// waits for them, however the block is left: by return, exception or Goexit. So
// the functions may use the variables of the block that were defined before
// the Scope. Each function, all that it holds, and the goroutine's values of
// gls are destroyed before the goroutine counts as having ended.
//
// Failures. A function fails if it throws, or returns an absl::Status or
// absl::StatusOr that is not OK. The first failure cancels the scope's context,
// which asks the other functions to end. The owner learns of it from Wait. An
// exception does not end the process, as it does in other goroutines: Wait
// rethrows the first one, or else the destructor does. The destructor does not
// if it runs because of another exception or a Goexit; then the exception of
// the goroutine is lost, as its Status is without Wait. A Goexit of a function
// ends its goroutine, and is no failure.
//
// The owner calls Wait, and destroys the Scope. The owner, the goroutines of
// the scope, and those of scopes inside of it may call Go. Any goroutine or
// thread may call Cancel and Context while the Scope lives. A goroutine started
// by other means, such as gump::go, is in no scope, so it may not call Go.
// These are panics:
//   "scope: Go by a goroutine outside of the scope"
//   "scope: Go after Wait"
//   "scope: Wait by a goroutine that does not own the scope"
//   "scope: Join of an empty Handle"
//   "scope: Join of a goroutine that called Goexit"
// Scopes are destroyed in reverse order, by their owners, as local variables
// are. These are fatal errors:
//   "scope: Scope destroyed by a goroutine that does not own it"
//   "scope: Scope destroyed before a Scope inside of it"
//   "scope: a goroutine has ended without destroying its Scope"
//
// A plain thread may own a Scope as a goroutine does. The goroutine dumps of
// goroutines of a scope name it, behind `created by`:
//   created by Fetch in goroutine 7 in scope "fetch" of goroutine 7
// With GODEBUG=scopes=1, a dump of all goroutines ends in the tree of scopes.
//
// sync::ErrGroup is Go's way to do this. It has a limit, and no owner.
//
// Memory ordering: a call of Go happens before its f begins. The return of each
// function happens before the return of Wait, of the destructor, and of its
// Handle's Join.
//
// Source: structured concurrency as in Java's StructuredTaskScope (JEP 505),
// Python's trio and std::execution's counting_scope.
#ifndef GUMP_SCOPE_H_
#define GUMP_SCOPE_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/internal/arch.h"
#include "gump/internal/closure.h"
#include "gump/internal/linkname_scope.h"
#include "gump/internal/scope_call.h"
#include "gump/internal/scope_join.h"
#include "gump/sync/mutex.h"

#pragma GCC visibility push(default)

namespace gump {

// Scope is described above. It cannot be copied or moved.
class Scope {
 public:
  template <class R>
  class Handle;

  // Makes a scope that the caller owns. Its context is a child of parent. Dumps
  // show the first 47 bytes of the name. Throws std::bad_alloc.
  explicit Scope(context::Context parent = context::Background(),
                 std::string_view name = {});
  // Calls Cancel, unless Wait has returned, and parks until all goroutines have
  // ended. Then rethrows the first exception of a goroutine, unless Wait did,
  // or another exception or a Goexit is leaving the block.
  ~Scope() noexcept(false);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Context returns the scope's context. It is cancelled at the first failure,
  // by Cancel, by the parent, and when Wait returns. After a failure with a
  // Status, context::Cause returns this Status. After an exception, the cause
  // is Aborted with the exception's text. The first call makes the context, and
  // throws std::bad_alloc.
  [[nodiscard]] context::Context Context() const;

  // Go calls f(Context()) or, if f does not take that, f() in a new goroutine
  // of the scope. f is decay-copied and may be move-only. Go never parks. The
  // result of f, any type or void, can be had by the Handle, which need not be
  // kept. Panics as described above, and as go does if there is no memory for a
  // goroutine. Throws std::bad_alloc. A null f is the fatal error "go of nil
  // func value".
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, GoOptions>) __attribute__((
      always_inline)) Handle<internal::ScopeResultOf<F>> Go(F&& f) {
    return Start(nullptr, rt::callerPC(), std::forward<F>(f));
  }
  // Go(options, f) is Go with the options of gump::go.
  //
  //   scope.Go(GoOptions{.name = "reader"}, Read);
  template <class F>
  __attribute__((always_inline)) Handle<internal::ScopeResultOf<F>> Go(
      const GoOptions& options, F&& f) {
    return Start(&options, rt::callerPC(), std::forward<F>(f));
  }

  // Cancel cancels the scope's context, and so asks the functions to end. It
  // does not wait for them.
  void Cancel();

  // Wait parks until all goroutines of the scope have ended. Returns the first
  // Status that was not OK, or OK. If a function threw, it rethrows the first
  // exception instead. The scope is over then: Go panics, and Wait returns or
  // throws the same again. Panics as described above.
  absl::Status Wait();

 private:
  friend class internal::ScopeGoroutine;

  template <class F>
  Handle<internal::ScopeResultOf<F>> Start(const GoOptions* options,
                                           uintptr_t pc, F&& f);
  // Launch owns g until it returns.
  void Launch(internal::ScopeGoroutine* g, const rt::FuncType* ft,
              const GoOptions* options, uintptr_t pc);
  void Fail(const absl::Status& status, std::exception_ptr exception);
  void CancelWith(const absl::Status& cause);
  [[nodiscard]] bool Unwinding() const;

  rt::ScopeRecord record_;
  internal::ScopeCount count_;
  // Exceptions in flight when the scope was made, and whether it was made in a
  // destructor that a Goexit runs.
  const int uncaught_;
  bool goexiting_ = false;
  bool rethrown_ = false;  // the owner's alone
  const std::string name_;
  const context::Context parent_;

  mutable sync::Mutex mu_;
  // Guarded by mu_, but the owner may read the first two once all goroutines
  // have ended.
  absl::Status status_;           // the first that was not OK
  std::exception_ptr exception_;  // the first
  bool cancelled_ = false;
  absl::Status cause_;  // if cancelled_
  // Made by the first call of Context, because a context costs more than a
  // goroutine.
  mutable std::optional<std::pair<context::Context, context::CancelCauseFunc>>
      context_;
};

// A Handle gives the result of one goroutine of a Scope. It is moved, not
// copied, and may outlive the Scope. Dropping it neither waits nor cancels. One
// goroutine or thread uses it at a time.
template <class R>
class Scope::Handle {
 public:
  // Makes an empty Handle.
  Handle() noexcept = default;
  Handle(Handle&& other) noexcept : g_(std::exchange(other.g_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    Handle old(std::exchange(g_, std::exchange(other.g_, nullptr)));
    return *this;
  }
  ~Handle() {
    if (g_ != nullptr) g_->Drop();
  }

  // Join parks until the goroutine has ended. Returns the result of its
  // function, or rethrows its exception. (Wait rethrows it as well, because the
  // scope has failed.) The Handle is empty afterwards. Panics as described
  // above: a function that called Goexit has no result, unless it returns void.
  // A goroutine that joins itself waits for ever.
  R Join() {
    const Handle taken(std::move(*this));  // drops it at the end
    if (taken.g_ == nullptr) internal::PanicEmptyHandle();
    taken.g_->Join();
    return taken.g_->Take();
  }

 private:
  friend class Scope;
  explicit Handle(internal::ScopeResult<R>* g) noexcept : g_(g) {}

  internal::ScopeResult<R>* g_ = nullptr;
};

template <class F>
inline Scope::Handle<internal::ScopeResultOf<F>> Scope::Start(
    const GoOptions* options, uintptr_t pc, F&& f) {
  using Call = internal::ScopeCall<std::decay_t<F>>;
  internal::CheckCallable(f);
  auto* call = new Call(this, std::forward<F>(f));
  Launch(call, &internal::kScopeCall<Call>, options, pc);
  return Handle<internal::ScopeResultOf<F>>(call);
}

// All runs the functions side by side, each in a goroutine of one Scope, and
// parks until all have ended. Each is called as by Scope::Go, and returns
// void or absl::Status. The first failure cancels the context of the others.
// Returns the first Status that was not OK, or OK; rethrows the first
// exception. The functions are called in place and need not be copyable.
//
//   absl::Status s = All(ctx,
//       [&](context::Context c) { return LoadUser(c, id, &user); },
//       [&](context::Context c) { return LoadCart(c, id, &cart); });
template <class... F>
absl::Status All(context::Context ctx, F&&... f) {
  static_assert((internal::kReturnsStatus<F> && ...),
                "gump::All: each function returns void or absl::Status; use "
                "Scope::Go for other results");
  Scope scope(std::move(ctx), "All");
  (scope.Go([&f](context::Context c) {
    return internal::CallInScope(f, [&c] { return c; });
  }),
   ...);
  return scope.Wait();
}

// Race runs the functions side by side, each in a goroutine of one Scope. The
// first result that is OK wins. Race then cancels the context of the others,
// parks until they have ended, and returns the winner's result. Each function
// is called as by Scope::Go, in place.
//
// If the functions return T or absl::StatusOr<T>, for a common T, the result is
// absl::StatusOr<T>. If they return void or absl::Status, it is absl::Status. A
// T and a void are always OK. A failure cancels nothing. If no function
// succeeds, Race rethrows the first exception or, if there was none, returns
// the first Status. A function that called Goexit fails with Aborted.
//
//   absl::StatusOr<Page> page = Race(ctx,
//       [&](context::Context c) { return Get(c, mirror_a); },
//       [&](context::Context c) { return Get(c, mirror_b); });
template <class... F>
auto Race(context::Context ctx, F&&... f) -> internal::RaceResultOf<F...> {
  internal::RaceOutcome<internal::RaceResultOf<F...>> outcome;
  Scope scope(std::move(ctx), "Race");
  (scope.Go([&f, &outcome, &scope](context::Context c) {
    const auto call = [&] {
      return internal::CallInScope(f, [&c] { return c; });
    };
    if (outcome.Run(call)) scope.Cancel();
  }),
   ...);
  static_cast<void>(scope.Wait());
  return outcome.Take();
}

}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_SCOPE_H_
