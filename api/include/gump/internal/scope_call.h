// ScopeCall: a function that runs in a goroutine of a Scope, with its result.
// And the result types of gump::Race.
#ifndef GUMP_INTERNAL_SCOPE_CALL_H_
#define GUMP_INTERNAL_SCOPE_CALL_H_

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gump/context.h"
#include "gump/internal/closure.h"
#include "gump/internal/linkname_go.h"
#include "gump/internal/linkname_scope.h"
#include "gump/internal/scope_join.h"
#include "gump/sync/mutex.h"

#pragma GCC visibility push(default)

namespace gump {
class Scope;
}  // namespace gump

namespace gump::internal {

[[noreturn]] void PanicEmptyHandle();

// CallInScope calls f(ctx()) or, if f does not take a Context, f().
template <class F, class Ctx>
decltype(auto) CallInScope(F& f, const Ctx& ctx) {
  if constexpr (std::is_invocable_v<F&, context::Context>) {
    return CallVisibly(f, ctx());
  } else {
    static_assert(std::is_invocable_v<F&>,
                  "a function of a gump::Scope takes a context::Context, or "
                  "no argument");
    return CallVisibly(f);
  }
}

// ScopeResultOf is the result type of a function that Scope::Go takes.
template <class F>
using ScopeResultOf = decltype(CallInScope(
    std::declval<std::decay_t<F>&>(), std::declval<context::Context (&)()>()));

template <class T>
inline constexpr bool kIsStatusOr = false;
template <class T>
inline constexpr bool kIsStatusOr<absl::StatusOr<T>> = true;

// ScopeGoroutine is a goroutine of a Scope, without its function. Both the
// goroutine and its Handle hold it.
class ScopeGoroutine : public ScopeTask {
 public:
  ScopeGoroutine(Scope* scope, void (*destroy)(ScopeTask*)) noexcept
      : ScopeTask(destroy), scope_(scope) {}

 protected:
  ~ScopeGoroutine() = default;

  [[nodiscard]] context::Context Context() const;
  // Failed reports a status that is not OK to the scope. Caught reports the
  // exception that is being handled. It rethrows a Goexit, which is none.
  void Failed(const absl::Status& status);
  void Caught();
  // Finish is what a goroutine does last. The object may be gone then.
  void Finish();
  // RethrowAny rethrows the exception of the function, if there was one.
  void RethrowAny() const {
    if (exception_ != nullptr) std::rethrow_exception(exception_);
  }

 private:
  friend class gump::Scope;

  Scope* const scope_;  // lives until Finish
  std::exception_ptr exception_;
};

[[noreturn]] void PanicNoResult();

// ScopeResult is a ScopeGoroutine whose function returns R.
template <class R>
class ScopeResult : public ScopeGoroutine {
 public:
  using ScopeGoroutine::ScopeGoroutine;

  // Take returns the result, after Join.
  R Take() {
    RethrowAny();
    if (!value_) PanicNoResult();
    if constexpr (std::is_reference_v<R>) {
      return static_cast<R>(**value_);
    } else {
      return std::move(*value_);
    }
  }

 protected:
  ~ScopeResult() = default;

  template <class F>
  void Store(F& f) {
    const auto ctx = [this] { return Context(); };
    if constexpr (std::is_reference_v<R>) {
      R r = CallInScope(f, ctx);
      value_ = std::addressof(r);
    } else {
      value_.emplace(CallInScope(f, ctx));
      if constexpr (std::is_same_v<R, absl::Status>) {
        if (!value_->ok()) Failed(*value_);
      } else if constexpr (kIsStatusOr<R>) {
        if (!value_->ok()) Failed(value_->status());
      }
    }
  }

 private:
  using Stored =
      std::conditional_t<std::is_reference_v<R>, std::remove_reference_t<R>*,
                         std::remove_cv_t<R>>;
  std::optional<Stored> value_;
};

template <>
class ScopeResult<void> : public ScopeGoroutine {
 public:
  using ScopeGoroutine::ScopeGoroutine;

  void Take() { RethrowAny(); }

 protected:
  ~ScopeResult() = default;

  template <class F>
  void Store(F& f) {
    CallInScope(f, [this] { return Context(); });
  }
};

// ScopeCall is a ScopeResult with the function.
template <class F>
class ScopeCall final : public ScopeResult<ScopeResultOf<F>> {
 public:
  template <class G>
  ScopeCall(Scope* scope, G&& f)
      : ScopeResult<ScopeResultOf<F>>(
            scope,
            [](ScopeTask* task) { delete static_cast<ScopeCall*>(task); }),
        f_(std::in_place, std::forward<G>(f)) {}

  // Run is the whole of the goroutine.
  void Run() {
    struct AtEnd {
      ScopeCall* call;
      ~AtEnd() noexcept(false) {
        call->f_.reset();
        call->Finish();
      }
    } at_end{this};
    try {
      this->Store(*f_);
    } catch (...) {
      this->Caught();
    }
  }

 private:
  Disposable<F> f_;
};

// ScopeClosure is the closure of a goroutine of a Scope.
struct ScopeClosure {
  rt::LocalNode link;  // says in which scope the goroutine is
  ScopeGoroutine* goroutine;
};

// kScopeCall describes to the runtime a ScopeClosure with a Call.
template <class Call>
inline constexpr rt::FuncType kScopeCall = {
    [](void* c) {
      static_cast<Call*>(static_cast<ScopeClosure*>(c)->goroutine)->Run();
    },
    [](void*) {},
    [](void* dst, void* src) noexcept {
      ::new (dst) ScopeClosure(*static_cast<ScopeClosure*>(src));
    }};

template <class F>
inline constexpr bool kReturnsStatus =
    std::is_void_v<ScopeResultOf<F>> ||
    std::is_same_v<ScopeResultOf<F>, absl::Status>;

// RaceValue is what a function with the result R contributes to a race: T for
// T and absl::StatusOr<T>, void for void and absl::Status.
template <class R>
struct RaceValueOf {
  using type = std::decay_t<R>;
};
template <class T>
struct RaceValueOf<absl::StatusOr<T>> {
  using type = T;
};
template <>
struct RaceValueOf<absl::Status> {
  using type = void;
};
template <class F>
using RaceValue = typename RaceValueOf<ScopeResultOf<F>>::type;

template <class... F>
struct RaceResult {
  static_assert(sizeof...(F) > 0, "gump::Race takes at least one function");
  static_assert((std::is_void_v<RaceValue<F>> && ...) ||
                    (!std::is_void_v<RaceValue<F>> && ...),
                "gump::Race: either each function returns a value, or none");
  static constexpr bool kVoid = (std::is_void_v<RaceValue<F>> && ...);
  using Value = std::common_type_t<
      std::conditional_t<std::is_void_v<RaceValue<F>>, int, RaceValue<F>>...>;
  using type = std::conditional_t<kVoid, absl::Status, absl::StatusOr<Value>>;
};
template <class... F>
using RaceResultOf = typename RaceResult<F...>::type;

// RaceFailures keeps what a race returns if no function succeeds.
class RaceFailures {
 protected:
  ~RaceFailures() = default;

  // Failed keeps the status, and Caught the exception that is being handled. It
  // rethrows a Goexit.
  void Failed(const absl::Status& status);
  void Caught();
  // TakeFailure rethrows the first exception, or returns the first status.
  [[nodiscard]] absl::Status TakeFailure() const;

  sync::Mutex mu_;  // guards all that follows, until the race is over

 private:
  absl::Status status_;
  std::exception_ptr exception_;
};

// RaceOutcome is the state of a race. Result is a RaceResultOf.
template <class Result>
class RaceOutcome : private RaceFailures {
 public:
  // Run calls `call`, and returns true if that has won the race.
  template <class Call>
  bool Run(const Call& call) {
    using R = decltype(call());
    try {
      if constexpr (std::is_void_v<R>) {
        call();
        return Win(absl::OkStatus());
      } else {
        R r = call();
        if constexpr (std::is_same_v<R, absl::Status>) {
          if (r.ok()) return Win(std::move(r));
          Failed(r);
        } else if constexpr (kIsStatusOr<R>) {
          if (r.ok()) return Win(*std::move(r));
          Failed(r.status());
        } else {
          return Win(std::forward<R>(r));
        }
      }
    } catch (...) {
      Caught();
    }
    return false;
  }

  // Take returns the result of the race, when it is over.
  Result Take() {
    if (winner_) return *std::move(winner_);
    return TakeFailure();
  }

 private:
  template <class V>
  bool Win(V&& value) {
    Result result(std::forward<V>(value));  // may throw; destroyed if it loses
    const std::scoped_lock lock(mu_);
    if (winner_) return false;
    winner_ = std::move(result);
    return true;
  }

  std::optional<Result> winner_;
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_SCOPE_CALL_H_
