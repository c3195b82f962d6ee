// The cases of a select, as gump/select.h makes them, and the select itself.
//
// A case has two functions. Arm() describes it to selectgo. Finish(r) is called
// if this case has proceeded. A case lives for the full expression that
// contains the select. It borrows its channel from that expression, and its
// value where it can. The case in a SelectCase is of the type Kept, which owns
// its value.
#ifndef GUMP_INTERNAL_SELECT_CASE_H_
#define GUMP_INTERNAL_SELECT_CASE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "gump/chan.h"
#include "gump/internal/chan_element.h"
#include "gump/internal/chan_handle.h"
#include "gump/internal/chan_ops.h"
#include "gump/internal/linkname_select.h"
#include "gump/internal/select_handler.h"

#pragma GCC visibility push(default)

namespace gump::internal {

[[noreturn]] void PanicSpentCase();

// The channels that Recv and Send take: any channel, a channel with a value,
// and a channel without one (chan<void>).
template <class C>
concept ReceivesFrom = std::is_same_v<C, chan<typename C::value_type>> ||
    std::is_same_v<C, recv_chan<typename C::value_type>>;
template <class C>
concept ReceivesValue =
    ReceivesFrom<C> && !std::is_void_v<typename C::value_type>;
template <class C>
concept ReceivesNothing =
    ReceivesFrom<C> && std::is_void_v<typename C::value_type>;
template <class C>
concept SendsTo = std::is_same_v<C, chan<typename C::value_type>> ||
    std::is_same_v<C, send_chan<typename C::value_type>>;
template <class C>
concept SendsValue = SendsTo<C> && !std::is_void_v<typename C::value_type>;
template <class C>
concept SendsNothing = SendsTo<C> && std::is_void_v<typename C::value_type>;

template <class C>
using ValueOf = typename C::value_type;

// ---- Cases ------------------------------------------------------------------

// CaseBase marks the classes of cases.
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

// SendCase sends a T. It owns the T (kValue) or borrows it (kReference).
enum class Keeps { kReference, kValue };
template <class T, class H, Keeps kKeeps>
class SendCase : public CaseBase {
 public:
  using Kept = SendCase<T, H, Keeps::kValue>;
  static constexpr bool kIsDefault = false;
  template <class V>
  SendCase(rt::Hchan* c, V&& v, H handler)
      : c_(c), value_(std::forward<V>(v)), handler_(std::move(handler)) {}
  template <Keeps kOther>
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
    if constexpr (kKeeps == Keeps::kValue) {
      return std::addressof(value_);
    } else {
      return value_;
    }
  }
  H TakeHandler() { return std::move(handler_); }

 private:
  rt::Hchan* c_;
  std::conditional_t<kKeeps == Keeps::kValue, T, T*> value_;
  bool spent_ = false;
  [[no_unique_address]] H handler_;
};
template <class H, Keeps kKeeps>
class SendCase<void, H, kKeeps> : public CaseBase {
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

// SendOf makes the case that sends v. If sending moves from the value, the case
// sends a copy of v. handler is an rvalue.
template <class T, class H>
auto SendOf(rt::Hchan* c, const T& v, H&& handler) {
  static_assert(std::is_copy_constructible_v<T>,
                "Send copies what is not an rvalue; use std::move");
  if constexpr (kPlainElement<T>) {  // only read
    return SendCase<T, H, Keeps::kReference>(
        c, const_cast<T*>(std::addressof(v)), std::forward<H>(handler));
  } else {
    return SendCase<T, H, Keeps::kValue>(c, v, std::forward<H>(handler));
  }
}

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

// ---- The select -------------------------------------------------------------

// SelectOf does one of the cases and returns its index.
template <class... Cases>
int SelectOf(Cases&... cases) {
  constexpr size_t kN = sizeof...(Cases);
  constexpr bool kIsDefault[] = {Cases::kIsDefault...};
  constexpr int kDefaults = (int{Cases::kIsDefault} + ...);
  static_assert(kDefaults <= 1, "select: multiple default cases");
  rt::Scase scases[] = {cases.Arm()...};
  rt::SelectResult r;
  // One operation and Default: an operation that does not wait.
  if constexpr (kN == 2 && kDefaults == 1) {
    constexpr int kOp = kIsDefault[0] ? 1 : 0;
    r = rt::selectgo(&scases[kOp], 1, /*block=*/false);
    r.index = r.index < 0 ? 1 - kOp : kOp;
  } else {
    r = rt::selectgo(scases, kN, /*block=*/kDefaults == 0);
    for (int i = 0; kDefaults == 1 && r.index < 0; i++) {
      if (kIsDefault[i]) r.index = i;
    }
  }
  int i = 0;
  (void)((i++ == r.index ? (cases.Finish(r.result), true) : false) || ...);
  return r.index;
}

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_SELECT_CASE_H_
