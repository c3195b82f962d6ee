// Contexts: how a deadline, a request to stop, and values of one request travel
// down the calls and goroutines that work for it.
//
//   auto [ctx, cancel] = context::WithTimeout(parent, absl::Seconds(2));
//   defer _{cancel};                    // gives up what the context holds
//   go([ctx = ctx, answer] {
//     select(Send(answer, Compute()), Recv(ctx.Done()));  // never stuck
//   });
//   select(Recv(answer, [](int v) { ... }),
//          Recv(ctx.Done(), [&ctx = ctx] { Log(ctx.Err()); }));
//
// A Context is a handle: a copy is the same context. Unlike Go's, it is never
// null: one default-constructed, or moved from, is Background(). Contexts form
// a tree: WithCancel, WithDeadline, WithTimeout and AfterFunc make children.
// Cancelling one cancels all below it before the call returns, in time linear
// in their number; those who wait for Done() and what AfterFunc was told to do
// then run.
//
// Lifetime. A context holds its parent. Unlike in Go, a parent does not hold
// its children: a child that was cancelled, or whose last handle is gone, is
// off its parent's list at once, and its timer is stopped. Handles are a
// Context, its CancelFunc, a StopFunc, and each child. Two things outlast the
// handles, as in Go: a function registered with AfterFunc, and a channel got
// from Done() that somebody still holds. They get to know of a deadline and of
// the cancellation of an ancestor as long as that can happen at all; when
// nobody is left who could cancel, the function is destroyed without a call,
// and the channel stays open. A channel that goes after the handles takes the
// context with it, though not at once: when the parent has got some more
// children, or at the latest when the context would have been cancelled.
// Dropping a CancelFunc cancels nothing. A function that holds the very context
// it is registered with keeps it alive until it is cancelled or the function
// stopped; let it hold a copy of what it needs instead.
//
// All functions may be called from goroutines and from plain threads, several
// at a time, also from what AfterFunc runs. None waits for a context to end:
// that is done with the channel. They may wait for one another, and so may the
// destructor of a last handle, for the length of a list operation, as for any
// sync::Mutex.
//
// In a bubble of synctest.h, deadlines go by the bubble's clock.
//
// Memory ordering: the call of a CancelFunc that cancels happens before a
// receive from Done() that returns because of it, before the return of an Err()
// that is not OK, and before the start of a function of AfterFunc.
//
// Source: package context of Go 1.25.
#ifndef GUMP_CONTEXT_H_
#define GUMP_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/linkname.h"
#include "gump/time.h"

namespace gump {

namespace internal {

// The mechanism is in api/context.cc. A null ContextNode is the background.
struct ContextNode;
void ContextRetain(ContextNode* n) noexcept;
void ContextRelease(ContextNode* n) noexcept;

// ContextRef is a counted reference.
class ContextRef {
 public:
  ContextRef() noexcept = default;
  explicit ContextRef(ContextNode* adopted) noexcept : n_(adopted) {}
  ContextRef(const ContextRef& o) noexcept : n_(o.n_) {
    if (n_ != nullptr) ContextRetain(n_);
  }
  ContextRef(ContextRef&& o) noexcept : n_(std::exchange(o.n_, nullptr)) {}
  ContextRef& operator=(const ContextRef& o) noexcept {
    ContextRef copy(o);
    std::swap(n_, copy.n_);
    return *this;
  }
  ContextRef& operator=(ContextRef&& o) noexcept {
    ContextRef moved(std::move(o));
    std::swap(n_, moved.n_);
    return *this;
  }
  ~ContextRef() {
    if (n_ != nullptr) ContextRelease(n_);
  }
  ContextNode* get() const noexcept { return n_; }

 private:
  ContextNode* n_ = nullptr;
};

uint64_t NewContextKey() noexcept;
const void* ContextValue(const ContextNode* n, uint64_t key) noexcept;
// ContextTimeLeft is the time until n's deadline, whatever the wall clock has
// been set to since; infinite if there is none. n may be null.
absl::Duration ContextTimeLeft(const ContextNode* n) noexcept;
// These two take over value, and closure (as rt::newproc), also if they throw.
ContextRef NewContextValue(const ContextRef& parent, uint64_t key, void* value,
                           void (*destroy)(void*));
ContextRef NewContextFunc(const ContextRef& parent, const rt::FuncType* ft,
                          void* closure, uintptr_t pc);
struct ContextAccess;

}  // namespace internal

namespace context {

// Key names a value of type V in contexts. A key is usually a global; each one
// made differs from all others, a copy is the same key.
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
  Key() noexcept : id_(internal::NewContextKey()) {}
  uint64_t id() const noexcept { return id_; }  // for the library itself

 private:
  uint64_t id_;
};

// Context is the handle described above.
class Context {
 public:
  Context() noexcept = default;  // Background()

  // Deadline is when the context is cancelled at the latest; nullopt: no such
  // time. It may be cancelled earlier.
  [[nodiscard]] std::optional<absl::Time> Deadline() const;

  // Done is the channel that is closed when the context is cancelled; always
  // the same. The nil channel if that cannot happen. Panics as make_chan if
  // there is no memory for it, which is made at the first call.
  [[nodiscard]] recv_chan<void> Done() const;

  // Err is OK until the context is cancelled, and from then on always the same:
  // Cancelled "context canceled" or DeadlineExceeded "context deadline
  // exceeded". If it is not OK, Done() is closed, and the other way round.
  [[nodiscard]] absl::Status Err() const;

  // Value is what WithValue has put under that key, into this context or the
  // nearest above it; nullptr if nobody has. It may not be changed, and lives
  // as long as some context that has it. Takes time linear in the number of
  // values.
  template <class V>
  [[nodiscard]] const V* Value(const Key<V>& key) const noexcept {
    return static_cast<const V*>(internal::ContextValue(ref_.get(), key.id()));
  }

  // Identity.
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

// CancelFunc cancels the context it was made with, and all below: Err() becomes
// "context canceled". Only the first call has an effect. When any of them
// returns, all is cancelled. A default-constructed one does nothing. Call it
// when the work is done, if only to stop the timer.
class CancelFunc {
 public:
  CancelFunc() noexcept = default;
  void operator()() const;

 private:
  friend struct internal::ContextAccess;
  internal::ContextRef ref_;
};

// CancelCauseFunc is a CancelFunc that gives a reason, which Cause returns. An
// OK cause stands for "context canceled".
class CancelCauseFunc {
 public:
  CancelCauseFunc() noexcept = default;
  void operator()(const absl::Status& cause) const;

 private:
  friend struct internal::ContextAccess;
  internal::ContextRef ref_;
};

// StopFunc ends a registration made by AfterFunc. True: this call did, the
// function will not run, and is destroyed before the return. False: it was
// stopped before, or has been started; the call does not wait for it. A
// default-constructed one returns false.
class StopFunc {
 public:
  StopFunc() noexcept = default;
  bool operator()() const;

 private:
  template <class F>
  friend StopFunc AfterFunc(const Context& ctx, F&& f);
  internal::ContextRef ref_;
};

}  // namespace context

namespace internal {
struct ContextAccess {
  template <class Handle>
  static Handle Make(ContextRef&& ref) {
    Handle h;
    h.ref_ = std::move(ref);
    return h;
  }
  template <class Handle>
  static const ContextRef& ref(const Handle& h) {
    return h.ref_;
  }
};
}  // namespace internal

namespace context {

// Background is the root: no deadline, no values, never cancelled. TODO is
// another one, to be written where it is not clear yet which to use.
[[nodiscard]] inline Context Background() noexcept { return {}; }
[[nodiscard]] Context TODO();

// The following make a child of parent, and throw std::bad_alloc if there is no
// memory for it. If the parent has been cancelled, the child is from the start.

// WithCancel makes a child that can be cancelled by itself.
[[nodiscard]] std::pair<Context, CancelFunc> WithCancel(const Context& parent);
// WithCancelCause is WithCancel, with a reason.
//
//   auto [ctx, cancel] = context::WithCancelCause(parent);
//   cancel(absl::DataLossError("checksum"));
//   absl::Status err = ctx.Err();             // Cancelled "context canceled"
//   absl::Status cause = context::Cause(ctx);  // DataLoss "checksum"
[[nodiscard]] std::pair<Context, CancelCauseFunc> WithCancelCause(
    const Context& parent);

// WithDeadline makes a child that is cancelled at the deadline, with Err()
// "context deadline exceeded", unless it is earlier. If the parent's deadline
// is earlier, it is just WithCancel; so it is with absl::InfiniteFuture(). A
// deadline that is past cancels at once. The time until the deadline is
// measured when it is called: setting the clock later moves nothing.
[[nodiscard]] std::pair<Context, CancelFunc> WithDeadline(const Context& parent,
                                                          absl::Time deadline);
// WithTimeout is WithDeadline(parent, now + d).
[[nodiscard]] std::pair<Context, CancelFunc> WithTimeout(
    const Context& parent, internal::DurationArg d);
// With a reason, which Cause returns if it is this deadline that cancels. The
// CancelFunc gives none.
[[nodiscard]] std::pair<Context, CancelFunc> WithDeadlineCause(
    const Context& parent, absl::Time deadline, absl::Status cause);
[[nodiscard]] std::pair<Context, CancelFunc> WithTimeoutCause(
    const Context& parent, internal::DurationArg d, absl::Status cause);

// Cause says why ctx was cancelled: the reason given by whoever cancelled it,
// or the first of those above it; Err() if none was given. OK as long as it is
// not cancelled.
[[nodiscard]] absl::Status Cause(const Context& ctx);

// WithoutCancel makes a context with the values of parent, but without its
// deadline and cancellation: for what has to be done to the end.
[[nodiscard]] Context WithoutCancel(const Context& parent);

// WithValue makes a child that has v under that key, converted to V. For data
// of a request that passes through interfaces, not for arguments.
template <class V>
[[nodiscard]] Context WithValue(const Context& parent, const Key<V>& key,
                                std::type_identity_t<V> v) {
  auto value = std::make_unique<V>(std::move(v));
  return internal::ContextAccess::Make<Context>(internal::NewContextValue(
      internal::ContextAccess::ref(parent), key.id(), value.release(),
      [](void* p) { delete static_cast<V*>(p); }));
}

// AfterFunc calls f in a goroutine of its own once ctx is cancelled, at once if
// it has been; several of one context run each in its own. No goroutine waits
// meanwhile. f is decay-copied and may be move-only; it is destroyed when it
// can be called no more, on the goroutine or by whoever stopped it. The result
// need not be kept. Throws std::bad_alloc; an f that is null is the fatal error
// "go of nil func value".
//
//   auto stop = context::AfterFunc(ctx, [conn] { conn.Close(); });
//   defer _{stop};
template <class F>
__attribute__((always_inline)) inline StopFunc AfterFunc(const Context& ctx,
                                                         F&& f) {
  using C = internal::Closure<std::decay_t<F>>;
  internal::CheckCallable(f);
  auto closure = std::make_unique<C>(C{{std::forward<F>(f)}});
  StopFunc stop;
  stop.ref_ = internal::NewContextFunc(internal::ContextAccess::ref(ctx),
                                       &internal::kOnHeap<C>, closure.release(),
                                       rt::callerPC());
  return stop;
}

}  // namespace context
}  // namespace gump

template <>
struct std::hash<gump::context::Context> {
  size_t operator()(const gump::context::Context& c) const noexcept {
    return std::hash<const void*>()(
        gump::internal::ContextAccess::ref(c).get());
  }
};

#endif  // GUMP_CONTEXT_H_
