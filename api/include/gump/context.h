// A context carries a deadline, a cancellation and the values of one piece of
// work down the calls and goroutines that do it.
//
//   auto [ctx, cancel] = context::WithTimeout(parent, absl::Seconds(2));
//   defer _{cancel};                    // frees the context's resources
//   go([ctx = ctx, answer] {
//     select(Send(answer, Compute()), Recv(ctx.Done()));  // never stuck
//   });
//   select(Recv(answer, [](int v) { ... }),
//          Recv(ctx.Done(), [&ctx = ctx] { Log(ctx.Err()); }));
//
// A Context is a handle: a copy is the same context. Unlike Go's, a Context is
// never null: a default-constructed or moved-from one is Background(). Contexts
// form a tree: WithCancel, WithDeadline, WithTimeout and AfterFunc make
// children. Cancelling a context cancels all its descendants before the call
// returns, in time linear in their number. That wakes the goroutines that wait
// for Done(), and starts the functions given to AfterFunc.
//
// Lifetime. A context holds its parent. Unlike in Go, a parent does not hold
// its children. When a child is cancelled, or its last handle is gone, it
// leaves its parent's list at once, and its timer is stopped. The handles of a
// context are a Context, its CancelFunc, a StopFunc, and each child.
//
// Two things outlast the handles, as in Go: a function registered with
// AfterFunc, and a channel from Done() that the program still holds. The
// function still runs, and the channel is still closed, when the deadline
// passes or an ancestor is cancelled. If no deadline is left, and no ancestor
// that could be cancelled, the function is destroyed without a call, and the
// channel stays open. If the program drops the channel after the last handle,
// the context is not freed at once. It is freed after its parent has got some
// more children, or at the latest when it would have been cancelled.
//
// Dropping a CancelFunc cancels nothing. If a function holds the very context
// with which it is registered, the context lives until it is cancelled or the
// function is stopped. Let the function hold a copy of the data that it needs
// instead.
//
// All functions may be called from goroutines and from plain threads, several
// at a time, and also from functions that AfterFunc starts. No function waits
// for a context to end; receive from Done() for that. A call, or the destructor
// of a last handle, may park while another call uses the same contexts. It then
// waits for a sync::Mutex, at most for as long as one cancellation takes.
//
// In a bubble (synctest.h), deadlines use the bubble's clock.
//
// Memory ordering: the call of a CancelFunc that cancels happens before:
//   * a receive from Done() that returns because of it;
//   * the return of an Err() that is not OK;
//   * the start of a function given to AfterFunc.
//
// std::stop_token is the cancellation of the standard library. WithStopToken
// and StopToken connect the two.
//
// Source: package context of Go 1.25.
#ifndef GUMP_CONTEXT_H_
#define GUMP_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/arch.h"
#include "gump/internal/closure.h"
#include "gump/internal/context_ref.h"
#include "gump/internal/duration_arg.h"
#include "gump/time.h"

#pragma GCC visibility push(default)

namespace gump::context {

template <class V>
class Key;

// Context is the handle described above.
class Context {
 public:
  // Makes a handle of Background().
  Context() noexcept = default;

  // Deadline returns the time at which the context is cancelled at the latest,
  // or nullopt if there is no such time. The context may be cancelled earlier.
  [[nodiscard]] std::optional<absl::Time> Deadline() const;

  // Done returns the channel that is closed when the context is cancelled. It
  // is always the same channel. Returns the nil channel if the context cannot
  // be cancelled. The first call makes the channel, and panics as make_chan
  // does if there is no memory for it.
  [[nodiscard]] recv_chan<void> Done() const;

  // Err returns OK until the context is cancelled. After that it always returns
  // the same error: Cancelled "context canceled" or DeadlineExceeded "context
  // deadline exceeded". Done() is closed if and only if Err() is not OK.
  [[nodiscard]] absl::Status Err() const;

  // Value returns the value that WithValue has put under key, into this context
  // or its nearest ancestor that has one. Returns nullptr if there is none. The
  // value may not be changed, and lives as long as any context that has it.
  // Takes time linear in the number of values.
  template <class V>
  [[nodiscard]] const V* Value(const Key<V>& key) const noexcept {
    return static_cast<const V*>(internal::ContextValue(ref_.get(), key.id()));
  }

  // Two handles are equal if they are the same context.
  friend bool operator==(const Context& a, const Context& b) noexcept {
    return a.ref_.get() == b.ref_.get();
  }
  template <class H>
  friend H AbslHashValue(H h, const Context& c) {
    return H::combine(std::move(h), c.ref_.get());
  }

 private:
  friend struct internal::ContextAccess;
  internal::ContextRef ref_;
};

// Key names a value of type V in contexts. A key is usually a global. Each key
// that is made differs from all others; a copy is the same key.
//
//   const context::Key<std::string> kUser;
//   ctx = context::WithValue(ctx, kUser, "gopher");
//   if (const std::string* user = ctx.Value(kUser)) { ... }
template <class V>
class Key {
  static_assert(std::is_object_v<V> && std::is_same_v<V, std::remove_cv_t<V>>,
                "gump::context::Key<V>: V must be an object type without const "
                "(a const char* is one, a const char is not)");

 public:
  using value_type = V;
  // Makes a new key. Never parks or throws.
  Key() noexcept : id_(internal::NewContextKey()) {}
  uint64_t id() const noexcept { return id_; }  // for the library itself

 private:
  uint64_t id_;
};

// CancelFunc cancels the context with which it was made, and all its
// descendants: Err() becomes "context canceled". Only the first call has an
// effect. When any of the calls returns, everything is cancelled. Call it when
// the work is done, if only to stop the timer. A CancelFunc is a handle: a copy
// cancels the same context. A default-constructed CancelFunc does nothing.
class CancelFunc {
 public:
  CancelFunc() noexcept = default;
  void operator()() const;

 private:
  friend struct internal::ContextAccess;
  internal::ContextRef ref_;
};

// CancelCauseFunc is a CancelFunc that takes a reason, which Cause returns. If
// cause is OK, the reason is "context canceled".
class CancelCauseFunc {
 public:
  CancelCauseFunc() noexcept = default;
  void operator()(const absl::Status& cause) const;

 private:
  friend struct internal::ContextAccess;
  internal::ContextRef ref_;
};

// StopFunc ends a registration made by AfterFunc. A call returns true if it
// ended the registration: the function will not run, and is destroyed before
// the return. It returns false if the function was stopped before or has been
// started. It does not wait for the function. A StopFunc is a handle: a copy
// ends the same registration. A default-constructed StopFunc returns false.
class StopFunc {
 public:
  StopFunc() noexcept = default;
  bool operator()() const;

 private:
  template <class F>
  friend StopFunc AfterFunc(const Context& ctx, F&& f);
  internal::ContextRef ref_;
};

// Background returns the root context, which has no deadline and no values, and
// is never cancelled. TODO returns another such context, for code where it is
// not yet clear which context to use.
[[nodiscard]] inline Context Background() noexcept { return {}; }
[[nodiscard]] Context TODO();

// The following functions make a child of parent. They throw std::bad_alloc if
// there is no memory for it. If the parent is already cancelled, so is the
// child.

// WithCancel makes a child that can be cancelled without its parent.
[[nodiscard]] std::pair<Context, CancelFunc> WithCancel(const Context& parent);
// WithCancelCause is WithCancel with a reason.
//
//   auto [ctx, cancel] = context::WithCancelCause(parent);
//   cancel(absl::DataLossError("checksum"));
//   absl::Status err = ctx.Err();             // Cancelled "context canceled"
//   absl::Status cause = context::Cause(ctx);  // DataLoss "checksum"
[[nodiscard]] std::pair<Context, CancelCauseFunc> WithCancelCause(
    const Context& parent);

// WithDeadline makes a child that is cancelled at the deadline, with Err()
// "context deadline exceeded", unless it is cancelled earlier. It is the same
// as WithCancel if the parent's deadline is earlier, or if the deadline is
// absl::InfiniteFuture(). A deadline in the past cancels the child at once. The
// time until the deadline is measured during the call, so setting the wall
// clock later has no effect.
[[nodiscard]] std::pair<Context, CancelFunc> WithDeadline(const Context& parent,
                                                          absl::Time deadline);
// WithTimeout is WithDeadline(parent, now + d).
[[nodiscard]] std::pair<Context, CancelFunc> WithTimeout(
    const Context& parent, internal::DurationArg d);
// WithDeadlineCause and WithTimeoutCause take a reason. Cause returns it if
// this deadline cancels the context. Their CancelFunc gives no reason.
[[nodiscard]] std::pair<Context, CancelFunc> WithDeadlineCause(
    const Context& parent, absl::Time deadline, absl::Status cause);
[[nodiscard]] std::pair<Context, CancelFunc> WithTimeoutCause(
    const Context& parent, internal::DurationArg d, absl::Status cause);

// Cause returns the reason for which ctx was cancelled. It is the reason given
// to the cancellation of ctx, or of the ancestor whose cancellation reached ctx
// first. Returns Err() if no reason was given, and OK if ctx is not cancelled.
[[nodiscard]] absl::Status Cause(const Context& ctx);

// WithStopToken makes a child that is also cancelled when a stop is requested
// of `token`. A request that comes before the call, or during it, counts too.
// When request_stop returns, the child and its descendants are cancelled; Err()
// is "context canceled". Like a deadline, the token still cancels after the
// last handle is gone, if a function or a channel waits for it. If then no stop
// is ever requested, the function is neither called nor destroyed. So call the
// CancelFunc when the work is done.
//
// Any thread or goroutine may request the stop, also while handles are dropped.
// request_stop may then park, as the call of a CancelFunc may. So it must not
// be inside gump::blocking: request the stop first, and then join in a declared
// call. A stop source remembers the thread that runs its callbacks. So if a
// callback of the program parks, a goroutine that requests the stop, or
// destroys that callback, must be locked to its thread (LockOSThread).
// Requires: if the context belongs to a bubble, the stop is requested in the
// bubble.
//
//   std::jthread server([](std::stop_token stop) {
//     auto [ctx, cancel] = context::WithStopToken(context::Background(), stop);
//     defer _{cancel};
//     Serve(ctx);
//   });
[[nodiscard]] std::pair<Context, CancelFunc> WithStopToken(
    const Context& parent, std::stop_token token);

// StopToken returns a token of which a stop is requested when ctx is cancelled.
// If ctx is cancelled already, a stop has been requested of the result. If ctx
// can never be cancelled, the result has no stop state, so stop_possible() is
// false. Does not wait for the cancellation, but may park for a lock.
//
// A goroutine of its own requests the stop, and is locked to its thread. The
// callbacks of the token run on that goroutine, one after another, soon after
// the cancellation. They may park. An exception that leaves one ends the
// process, as the standard says. As long as ctx is not cancelled, each call
// returns the same token. A cancellation still reaches the token after the last
// handle is gone, as it reaches a function of AfterFunc.
// Throws std::bad_alloc.
//
//   std::stop_token stop = context::StopToken(ctx);
//   while (!stop.stop_requested()) Step();
[[nodiscard]] std::stop_token StopToken(const Context& ctx);

// WithoutCancel makes a context with the values of parent, but without its
// deadline and cancellation, for work that must be completed.
[[nodiscard]] Context WithoutCancel(const Context& parent);

// WithValue makes a child that has v, converted to V, under key. Use it only
// for data that accompanies a piece of work through many interfaces, not in
// place of arguments. Throws what the move constructor of V throws.
template <class V>
[[nodiscard]] Context WithValue(const Context& parent, const Key<V>& key,
                                std::type_identity_t<V> v) {
  auto value = std::make_unique<V>(std::move(v));
  return internal::ContextAccess::Make<Context>(internal::NewContextValue(
      internal::ContextAccess::ref(parent), key.id(), value.release(),
      [](void* p) { delete static_cast<V*>(p); }));
}

// AfterFunc calls f in a goroutine of its own once ctx is cancelled, or at once
// if ctx is cancelled already. Each function of one context runs in its own
// goroutine. No goroutine waits in the meantime. The result need not be kept.
//
// f is decay-copied and may be move-only. It is destroyed when it cannot be
// called any more, on its goroutine or by the call that stops it. AfterFunc
// throws std::bad_alloc, and any exception thrown by copying f. A null f is the
// fatal error "go of nil func value".
//
//   auto stop = context::AfterFunc(ctx, [conn] { conn.Close(); });
//   defer _{stop};
template <class F>
__attribute__((always_inline)) inline StopFunc AfterFunc(const Context& ctx,
                                                         F&& f) {
  using C = internal::Closure<std::decay_t<F>>;
  internal::CheckCallable(f);
  std::unique_ptr<C> closure(new C(C::Of(std::forward<F>(f))));
  StopFunc stop;
  stop.ref_ = internal::NewContextFunc(internal::ContextAccess::ref(ctx),
                                       &internal::kOnHeap<C>, closure.release(),
                                       rt::callerPC());
  return stop;
}

}  // namespace gump::context

#pragma GCC visibility pop

template <>
struct std::hash<gump::context::Context> {
  size_t operator()(const gump::context::Context& c) const noexcept {
    return std::hash<const void*>()(
        gump::internal::ContextAccess::ref(c).get());
  }
};

#endif  // GUMP_CONTEXT_H_
