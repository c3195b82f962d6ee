// Scope, without its templates. scope_join.h counts the goroutines, and the
// runtime (runtime/sched/scope.cc) knows which goroutine is in which scope.
//
// Go is refused to goroutines outside of the scope, so a goroutine that calls
// Go is counted itself, or is the owner, or is in a scope inside of this one.
// Such a scope may be the owner's, and the owner may be in Wait already. So the
// count refuses a Go that comes after it was zero (J1 of scope_join.cc).
//
// Wait and the destructor wait on the owner's stack, and the goroutines use the
// Scope until they leave the count. The first failure is kept under mu_, and
// the context is cancelled without it.
#include "gump/scope.h"

#include <mutex>
#include <utility>

#include "gump/internal/linkname_gls.h"
#include "gump/internal/linkname_panic.h"
#include "gump/internal/spawn.h"
#include "gump/panic.h"

namespace gump {

namespace internal {

void PanicEmptyHandle() { panic("scope: Join of an empty Handle"); }

void PanicNoResult() { panic("scope: Join of a goroutine that called Goexit"); }

namespace {

// CauseOf returns the cause for the context of a scope in which e was thrown.
absl::Status CauseOf(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& known) {
    return absl::AbortedError(known.what());
  } catch (...) {
    return absl::AbortedError("exception");
  }
}

}  // namespace

context::Context ScopeGoroutine::Context() const { return scope_->Context(); }

void ScopeGoroutine::Failed(const absl::Status& status) {
  scope_->Fail(status, nullptr);
}

void ScopeGoroutine::Caught() {
  exception_ = std::current_exception();
  if (exception_ == nullptr) throw;  // a Goexit passes through
  scope_->Fail(CauseOf(exception_), exception_);
}

void ScopeGoroutine::Finish() {
  // In the scope until here: the destructors of local values may call Go.
  rt::glsDestroyAll();
  Scope* scope = scope_;
  End();
  scope->count_.Leave();
}

void RaceFailures::Failed(const absl::Status& status) {
  const std::scoped_lock lock(mu_);
  if (status_.ok()) status_ = status;
}

void RaceFailures::Caught() {
  std::exception_ptr e = std::current_exception();
  if (e == nullptr) {
    Failed(absl::AbortedError("a function of a race called Goexit"));
    throw;  // the Goexit passes through
  }
  const std::scoped_lock lock(mu_);
  if (exception_ == nullptr) exception_ = std::move(e);
}

absl::Status RaceFailures::TakeFailure() const {
  if (exception_ != nullptr) std::rethrow_exception(exception_);
  return status_;
}

}  // namespace internal

Scope::Scope(context::Context parent, std::string_view name)
    : uncaught_(std::uncaught_exceptions()),
      name_(name),
      parent_(std::move(parent)) {
  record_.name = name_.c_str();
  rt::scopeOpen(&record_);
  goexiting_ = rt::goexiting();
}

Scope::~Scope() noexcept(false) {
  // Before anything else: another goroutine would join in the owner's place.
  if (!rt::scopeIsOwner(&record_)) rt::scopeClose(&record_);  // fatal
  if (!count_.Over()) {
    Cancel();
    count_.Join();
  }
  rt::scopeClose(&record_);
  if (exception_ == nullptr || rethrown_ || Unwinding()) return;
  std::rethrow_exception(std::exchange(exception_, nullptr));
}

// Unwinding returns true if an exception or a Goexit is leaving the block of
// the scope.
bool Scope::Unwinding() const {
  return std::uncaught_exceptions() > uncaught_ ||
         (rt::goexiting() && !goexiting_);
}

context::Context Scope::Context() const {
  const std::scoped_lock lock(mu_);
  if (!context_) {
    context_ = context::WithCancelCause(parent_);
    if (cancelled_) context_->second(cause_);
  }
  return context_->first;
}

void Scope::Cancel() { CancelWith(absl::OkStatus()); }

// CancelWith cancels the context, for the reason `cause` if it is the first to
// do so. If another thread was first and is not done, this call waits for it or
// does its work, because a context is cancelled when any of the calls returns.
void Scope::CancelWith(const absl::Status& cause) {
  context::CancelCauseFunc cancel;
  absl::Status first;
  {
    const std::scoped_lock lock(mu_);
    if (!cancelled_) cause_ = cause;
    cancelled_ = true;
    if (!context_) return;
    cancel = context_->second;
    first = cause_;
  }
  cancel(first);
}

// Fail keeps the first status and the first exception. exception is nullptr if
// a function returned the status. It notes the cause under the same lock, so
// that the first failure is what Wait returns and also the context's cause.
void Scope::Fail(const absl::Status& status, std::exception_ptr exception) {
  {
    const std::scoped_lock lock(mu_);
    if (exception != nullptr) {
      if (exception_ == nullptr) exception_ = std::move(exception);
    } else if (status_.ok()) {
      status_ = status;
    }
    if (!cancelled_) cause_ = status;
    cancelled_ = true;
  }
  CancelWith(status);
}

absl::Status Scope::Wait() {
  if (!rt::scopeIsOwner(&record_)) {
    panic("scope: Wait by a goroutine that does not own the scope");
  }
  if (!count_.Over()) {
    count_.Join();
    Cancel();  // the context's parent forgets it
  }
  if (exception_ != nullptr) {
    rethrown_ = true;
    std::rethrow_exception(exception_);
  }
  return status_;
}

// Launch starts g, which calls ft with a closure that is g's address. If it
// panics or throws, g is destroyed.
void Scope::Launch(internal::ScopeGoroutine* g, const rt::FuncType* ft,
                   const GoOptions* options, uintptr_t pc) {
  struct Unstarted {
    internal::ScopeGoroutine* g;
    internal::ScopeCount* count = nullptr;
    ~Unstarted() {
      if (count != nullptr) count->Leave();
      if (g != nullptr) g->Discard();
    }
  } unstarted{g};
  if (!rt::scopeContains(&record_)) {
    panic("scope: Go by a goroutine outside of the scope");
  }
  const bool counted_in =
      rt::scopeIsOwner(&record_) ? count_.EnterByOwner() : count_.Enter();
  if (!counted_in) panic("scope: Go after Wait");
  unstarted.count = &count_;

  internal::ScopeClosure closure{rt::scopeMember(&record_), g};
  static_assert(internal::kFitsInG<internal::ScopeClosure>);
  rt::SpawnOptions o;
  std::unique_ptr<char, internal::Free> name;
  if (options != nullptr) {
    name.reset(internal::CopyName(options->name));
    o = internal::MakeSpawnOptions(*options, name.get());
  }
  o.in_scope = true;
  if (internal::NewProc(ft, &closure, &o, pc) != rt::SpawnResult::kOk) {
    internal::PanicNoStack();
  }
  unstarted.count = nullptr;
  unstarted.g = nullptr;
  (void)name.release();  // the goroutine owns it now
}

}  // namespace gump
