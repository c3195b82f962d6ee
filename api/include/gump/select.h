// select: waits until one of several channel operations can proceed, and does
// exactly that one.
//
//   // With handlers. The chosen one runs when the operation is complete and
//   // every channel is unlocked.
//   int i = gump::select(
//       gump::Recv(c, [&](int v) { sum += v; }),
//       gump::Send(d, next, [&] { next++; }),
//       gump::Default([] { std::puts("nobody ready"); }));
//
//   // With pointers, for a switch. The result is the index of the case.
//   switch (gump::select(gump::Recv(c, &v), gump::Recv(e, &w, &ok))) {
//     case 0: ...
//   }
//
//   // With a number of cases that is known only at run time.
//   std::vector<gump::SelectCase> cases;
//   for (auto& in : inputs) cases.push_back(gump::Recv(in, &v));
//   int chosen = gump::select(absl::MakeSpan(cases));
//
// Without Default, select parks until a case can proceed. select() parks for
// ever. If several cases are ready, the choice among them is uniformly random.
// A nil channel is never ready. A closed channel always is: a receive from it
// delivers "closed", and a send to it panics "send on closed channel". The same
// channel may appear any number of times, in both directions.
//
// A handler of Recv takes (T), (T, bool ok), (std::optional<T>) or (). On
// chan<void> it takes (bool ok) or (). When the channel is closed and drained,
// ok is false, the optional is empty, and a T is T{}. A T that is not
// default-constructible needs the optional. In the pointer form, a closed
// channel leaves *v untouched, as Recv(T&) does, and sets *ok to false.
//
// The value of a Send is evaluated once. It is moved from only if that case is
// chosen.
//
// All functions may be called from goroutines and from plain threads.
//
// Memory ordering: the case that proceeds orders memory as its operation does.
// The other cases order nothing.
#ifndef GUMP_SELECT_H_
#define GUMP_SELECT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/types/span.h"
#include "gump/chan.h"
#include "gump/internal/chan_handle.h"
#include "gump/internal/linkname_select.h"

namespace gump {
namespace internal {

[[noreturn]] void PanicSpentCase();

template <class C>
concept ReceivesFrom = std::is_same_v<C, chan<typename C::value_type>> ||
    std::is_same_v<C, recv_chan<typename C::value_type>>;
template <class C>
concept SendsTo = std::is_same_v<C, chan<typename C::value_type>> ||
    std::is_same_v<C, send_chan<typename C::value_type>>;

// ---- The arguments that a handler takes -------------------------------------

enum class Wants { kNothing, kValue, kValueAndOk, kOptional, kOk };

// ArgsOf is the parameter list of a callable that has only one. For other
// callables, such as generic lambdas, it is void.
template <class F>
struct ArgsOf {
  using type = void;
};
template <class R, class... A>
struct ArgsOf<R (*)(A...)> {
  using type = std::tuple<A...>;
};
template <class R, class... A>
struct ArgsOf<R (*)(A...) noexcept> : ArgsOf<R (*)(A...)> {};
template <class F, class R, class... A>
struct ArgsOf<R (F::*)(A...)> : ArgsOf<R (*)(A...)> {};
template <class F, class R, class... A>
struct ArgsOf<R (F::*)(A...) const> : ArgsOf<R (*)(A...)> {};
template <class F, class R, class... A>
struct ArgsOf<R (F::*)(A...) noexcept> : ArgsOf<R (*)(A...)> {};
template <class F, class R, class... A>
struct ArgsOf<R (F::*)(A...) const noexcept> : ArgsOf<R (*)(A...)> {};
template <class F>
requires requires { &F::operator(); }
struct ArgsOf<F> : ArgsOf<decltype(&F::operator())> {};

template <class T, class Args>
struct WantsOfArgs;
template <class T>
struct WantsOfArgs<T, std::tuple<>> {
  static constexpr Wants kWants = Wants::kNothing;
};
template <class T, class A>
struct WantsOfArgs<T, std::tuple<A>> {
  static constexpr Wants kWants =
      std::is_same_v<std::remove_cvref_t<A>, std::optional<T>>
          ? Wants::kOptional
          : Wants::kValue;
};
template <class A>
struct WantsOfArgs<void, std::tuple<A>> {
  static constexpr Wants kWants = Wants::kOk;
};
template <class T, class A, class B>
struct WantsOfArgs<T, std::tuple<A, B>> {
  static constexpr Wants kWants = Wants::kValueAndOk;
};

template <class T, class H>
constexpr Wants HandlerWants() {
  using Args = typename ArgsOf<H>::type;
  if constexpr (!std::is_void_v<Args>) {
    return WantsOfArgs<T, Args>::kWants;
  } else if constexpr (std::is_void_v<T>) {
    return std::is_invocable_v<H&> ? Wants::kNothing : Wants::kOk;
  } else if constexpr (std::is_invocable_v<H&, T>) {
    return Wants::kValue;
  } else if constexpr (std::is_invocable_v<H&, T, bool>) {
    return Wants::kValueAndOk;
  } else {
    return Wants::kNothing;
  }
}

// Deliver calls the handler with the arguments that it takes. v is nullptr if
// the channel is closed and drained.
template <class T, class H>
void Deliver(H& handler, T* v) {
  constexpr Wants kWants = HandlerWants<T, H>();
  if constexpr (kWants == Wants::kNothing) {
    std::invoke(handler);
  } else if constexpr (kWants == Wants::kOptional) {
    std::optional<T> arg;
    if (v != nullptr) arg.emplace(std::move(*v));
    std::invoke(handler, std::move(arg));
  } else {
    static_assert(std::is_default_constructible_v<T>,
                  "a handler that takes T gets T{} when the channel is closed; "
                  "this T cannot be made so: take std::optional<T>");
    auto call = [&](T&& arg) {
      if constexpr (kWants == Wants::kValue) {
        std::invoke(handler, std::move(arg));
      } else {
        std::invoke(handler, std::move(arg), v != nullptr);
      }
    };
    v != nullptr ? call(std::move(*v)) : call(T{});
  }
}

struct NoHandler {
  void operator()() const {}
};
template <class H>
concept Handler =
    !std::is_pointer_v<H> || std::is_function_v<std::remove_pointer_t<H>>;

// ---- Cases ------------------------------------------------------------------
// A case has Arm(), which describes it to selectgo, and Finish(r), which is
// called if this case has proceeded. A case lives for the full expression that
// contains the select. It borrows its channel from that expression, and its
// value where it can. A SelectCase keeps its own copy (Kept).

struct CaseBase {
  CaseBase() = default;
  CaseBase(const CaseBase&) = delete;
  CaseBase& operator=(const CaseBase&) = delete;
};
template <class C>
concept SelectArm = std::is_base_of_v<CaseBase, std::remove_cvref_t<C>>;

// RecvCase receives a T for a handler.
template <class T, class H>
class RecvCase : public CaseBase {
 public:
  using Kept = RecvCase;
  static constexpr bool kIsDefault = false;
  RecvCase(rt::Hchan* c, H handler) : c_(c), handler_(std::move(handler)) {}
  explicit RecvCase(RecvCase* o) : RecvCase(o->c_, std::move(o->handler_)) {}

  rt::Scase Arm() {
    if constexpr (kKeepsValue) {
      return {c_, std::addressof(slot_.value), rt::SelectDir::kRecv};
    } else {
      return {c_, nullptr, rt::SelectDir::kRecv};
    }
  }
  void Finish(rt::ChanResult r) {
    const bool ok = r == rt::ChanResult::kOk;
    if constexpr (kWants == Wants::kOk) {
      std::invoke(handler_, ok);
    } else if constexpr (!kKeepsValue) {
      std::invoke(handler_);
    } else if (ok) {
      SlotGuard<T> guard{slot_};
      Deliver<T>(handler_, std::addressof(slot_.value));
    } else {
      Deliver<T>(handler_, static_cast<T*>(nullptr));
    }
  }
  rt::Hchan* channel() const { return c_; }

 private:
  static constexpr Wants kWants = HandlerWants<T, H>();
  static constexpr bool kKeepsValue =
      kWants != Wants::kNothing && kWants != Wants::kOk;
  struct NoSlot {};
  rt::Hchan* c_;
  [[no_unique_address]] H handler_;
  [[no_unique_address]] std::conditional_t<kKeepsValue, RawSlot<T>, NoSlot>
      slot_;
};

// RecvIntoCase receives a T into a variable.
template <class T>
class RecvIntoCase : public CaseBase {
 public:
  using Kept = RecvIntoCase;
  static constexpr bool kIsDefault = false;
  RecvIntoCase(rt::Hchan* c, T* out, bool* ok) : c_(c), out_(out), ok_(ok) {}
  explicit RecvIntoCase(RecvIntoCase* o)
      : RecvIntoCase(o->c_, o->out_, o->ok_) {}

  rt::Scase Arm() {
    if constexpr (kDirect) {
      return {c_, out_, rt::SelectDir::kRecv};
    } else {
      return {c_, std::addressof(slot_.value), rt::SelectDir::kRecv};
    }
  }
  void Finish(rt::ChanResult r) {
    const bool ok = r == rt::ChanResult::kOk;
    if (ok_ != nullptr) *ok_ = ok;
    if constexpr (!kDirect) {
      if (!ok) return;
      SlotGuard<T> guard{slot_};
      if (out_ != nullptr) *out_ = std::move(slot_.value);
    }
  }
  rt::Hchan* channel() const { return c_; }

 private:
  static_assert(std::is_move_assignable_v<T>,
                "Recv(c, &v) assigns; use a handler for this element type");
  static constexpr bool kDirect = kWrittenInPlace<T>;
  struct NoSlot {};
  rt::Hchan* c_;
  T* out_;
  bool* ok_;
  [[no_unique_address]] std::conditional_t<kDirect, NoSlot, RawSlot<T>> slot_;
};

// SendCase sends a T that it owns or borrows.
template <class T, class H, bool kOwns>
class SendCase : public CaseBase {
 public:
  using Kept = SendCase<T, H, true>;
  static constexpr bool kIsDefault = false;
  template <class V>
  SendCase(rt::Hchan* c, V&& v, H handler)
      : c_(c), value_(std::forward<V>(v)), handler_(std::move(handler)) {}
  template <bool kOther>
  explicit SendCase(SendCase<T, H, kOther>* o)
      : SendCase(o->channel(), std::move(*o->value()), o->TakeHandler()) {}

  rt::Scase Arm() {
    if (spent_) PanicSpentCase();
    return {c_, value(), rt::SelectDir::kSend};
  }
  void Finish(rt::ChanResult r) {
    if (r == rt::ChanResult::kClosed) PanicSendOnClosedChannel();
    spent_ = !kPlainElement<T>;
    std::invoke(handler_);
  }
  rt::Hchan* channel() const { return c_; }
  T* value() {
    if constexpr (kOwns) {
      return std::addressof(value_);
    } else {
      return value_;
    }
  }
  H TakeHandler() { return std::move(handler_); }

 private:
  rt::Hchan* c_;
  std::conditional_t<kOwns, T, T*> value_;
  bool spent_ = false;
  [[no_unique_address]] H handler_;
};
template <class H, bool kOwns>
class SendCase<void, H, kOwns> : public CaseBase {
 public:
  using Kept = SendCase;
  static constexpr bool kIsDefault = false;
  SendCase(rt::Hchan* c, H handler) : c_(c), handler_(std::move(handler)) {}
  explicit SendCase(SendCase* o) : SendCase(o->c_, std::move(o->handler_)) {}

  rt::Scase Arm() { return {c_, nullptr, rt::SelectDir::kSend}; }
  void Finish(rt::ChanResult r) {
    if (r == rt::ChanResult::kClosed) PanicSendOnClosedChannel();
    std::invoke(handler_);
  }
  rt::Hchan* channel() const { return c_; }

 private:
  rt::Hchan* c_;
  [[no_unique_address]] H handler_;
};

// DefaultCase proceeds when no other case can. selectgo sees it as a nil
// channel.
template <class H>
class DefaultCase : public CaseBase {
 public:
  using Kept = DefaultCase;
  static constexpr bool kIsDefault = true;
  explicit DefaultCase(H handler) : handler_(std::move(handler)) {}
  explicit DefaultCase(DefaultCase* o) : handler_(std::move(o->handler_)) {}

  rt::Scase Arm() { return {}; }
  void Finish(rt::ChanResult) { std::invoke(handler_); }
  rt::Hchan* channel() const { return nullptr; }

 private:
  [[no_unique_address]] H handler_;
};

// AnyCase is a case with its type erased. It holds a handle to its channel.
class AnyCase {
 public:
  AnyCase(rt::Hchan* c, bool is_default);
  virtual ~AnyCase() = default;
  virtual rt::Scase Arm() = 0;
  virtual void Finish(rt::ChanResult r) = 0;
  bool is_default() const { return is_default_; }

 private:
  ChanHandle hold_;
  const bool is_default_;
};
template <class Case>
class AnyCaseOf final : public AnyCase {
 public:
  template <class Borrowed>
  explicit AnyCaseOf(Borrowed* c)
      : AnyCase(c->channel(), Borrowed::kIsDefault), case_(c) {}
  rt::Scase Arm() override { return case_.Arm(); }
  void Finish(rt::ChanResult r) override { case_.Finish(r); }

 private:
  Case case_;
};

}  // namespace internal

// ---- Making cases -----------------------------------------------------------
// The result must be used in the same expression, in the call of select or for
// a SelectCase. None of these functions parks; select does.

// Recv(c, handler)
template <internal::ReceivesFrom C, internal::Handler H>
[[nodiscard]] auto Recv(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND, H handler) {
  return internal::RecvCase<typename C::value_type, H>(c.raw(),
                                                       std::move(handler));
}
// Recv(c, &v), Recv(c, &v, &ok)
template <internal::ReceivesFrom C>
requires(!std::is_void_v<typename C::value_type>)
    [[nodiscard]] auto Recv(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND,
                            typename C::value_type* v, bool* ok = nullptr) {
  return internal::RecvIntoCase<typename C::value_type>(c.raw(), v, ok);
}
// Recv(c) discards the value.
template <internal::ReceivesFrom C>
[[nodiscard]] auto Recv(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND) {
  return Recv(c, internal::NoHandler());
}
// Recv(c, &ok) on chan<void>
template <internal::ReceivesFrom C>
requires std::is_void_v<typename C::value_type>
[[nodiscard]] auto Recv(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND, bool* ok) {
  return Recv(c, [ok](bool received) { *ok = received; });
}

// Send(c, v), Send(c, v, handler)
template <internal::SendsTo C, internal::Handler H = internal::NoHandler>
requires(!std::is_void_v<typename C::value_type>) [[nodiscard]] auto Send(
    const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND,
    typename C::value_type&& v ABSL_ATTRIBUTE_LIFETIME_BOUND, H handler = {}) {
  return internal::SendCase<typename C::value_type, H, false>(
      c.raw(), std::addressof(v), std::move(handler));
}
template <internal::SendsTo C, internal::Handler H = internal::NoHandler>
requires(!std::is_void_v<typename C::value_type>) [[nodiscard]] auto Send(
    const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND,
    const typename C::value_type& v ABSL_ATTRIBUTE_LIFETIME_BOUND,
    H handler = {}) {
  using T = typename C::value_type;
  static_assert(std::is_copy_constructible_v<T>,
                "Send copies what is not an rvalue; use std::move");
  if constexpr (internal::kPlainElement<T>) {  // only read
    return internal::SendCase<T, H, false>(
        c.raw(), const_cast<T*>(std::addressof(v)), std::move(handler));
  } else {
    return internal::SendCase<T, H, true>(c.raw(), v, std::move(handler));
  }
}
// Send(c), Send(c, handler) on chan<void>
template <internal::SendsTo C, internal::Handler H = internal::NoHandler>
requires std::is_void_v<typename C::value_type>
[[nodiscard]] auto Send(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND,
                        H handler = {}) {
  return internal::SendCase<void, H, false>(c.raw(), std::move(handler));
}

// Default() and Default(handler) proceed if no other case can proceed at once.
template <internal::Handler H = internal::NoHandler>
[[nodiscard]] auto Default(H handler = {}) {
  return internal::DefaultCase<H>(std::move(handler));
}

// SelectCase is a case of any type. It is movable, holds its channel, and owns
// the value of a Send.
//
// It may be used in one select after another. A Send of a trivially copyable
// type sends the same value again. Any other Send must not be used again once
// its value was sent (panic "select: send case used again after its value was
// sent").
//
// Requires: the variables to which its pointers and its handler refer outlive
// it. Only one goroutine or thread uses it at a time.
class SelectCase {
 public:
  // Takes the result of Recv, Send or Default. Throws std::bad_alloc.
  template <internal::SelectArm Case>
  SelectCase(Case&& c)  // NOLINT: implicit, for push_back(Recv(...))
      requires(!std::is_lvalue_reference_v<Case>)
      : case_(std::make_unique<internal::AnyCaseOf<typename Case::Kept>>(&c)) {}

 private:
  friend int select(absl::Span<SelectCase> cases);
  std::unique_ptr<internal::AnyCase> case_;
};

// ---- select -----------------------------------------------------------------

// select does one of the cases and returns its index. Parks until a case can
// proceed, unless one of them is Default. Panics "send on closed channel" if
// the chosen case is a Send to a closed channel. An exception thrown by the
// handler passes through.
template <internal::SelectArm... Cases>
requires(sizeof...(Cases) > 0) int select(Cases&&... cases) {
  static_assert((!std::is_lvalue_reference_v<Cases> && ...),
                "write Recv(...), Send(...) and Default(...) in the call of "
                "select itself");
  constexpr size_t kN = sizeof...(Cases);
  constexpr bool kIsDefault[] = {std::remove_cvref_t<Cases>::kIsDefault...};
  constexpr int kDefaults = (int{std::remove_cvref_t<Cases>::kIsDefault} + ...);
  static_assert(kDefaults <= 1, "select: multiple default cases");
  rt::Scase scases[] = {cases.Arm()...};
  rt::SelectResult r;
  // One operation and Default: an operation that does not wait.
  if constexpr (kN == 2 && kDefaults == 1) {
    constexpr int kOp = kIsDefault[0] ? 1 : 0;
    r = rt::selectgo(&scases[kOp], 1, false);
    r.index = r.index < 0 ? 1 - kOp : kOp;
  } else {
    r = rt::selectgo(scases, kN, kDefaults == 0);
    for (int i = 0; kDefaults == 1 && r.index < 0; i++) {
      if (kIsDefault[i]) r.index = i;
    }
  }
  int i = 0;
  (void)((i++ == r.index ? (cases.Finish(r.result), true) : false) || ...);
  return r.index;
}

// select for cases in an array of at most 65,536. An empty array blocks for
// ever. Parks until a case can proceed, unless one of them is Default. Panics
// "reflect.Select: too many cases (max 65536)", "reflect.Select: multiple
// default cases", and as above. Throws std::bad_alloc if there are more than
// sixteen cases and no memory.
int select(absl::Span<SelectCase> cases);

// Parks for ever.
[[noreturn]] void select();

}  // namespace gump

#endif  // GUMP_SELECT_H_
