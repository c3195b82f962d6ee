// select waits until one of several channel operations can proceed, and does
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
// Without Default, select parks until a case can proceed. select() without
// cases parks for ever. If several cases are ready, the choice among them is
// uniformly random. A nil channel is never ready. A closed channel always is: a
// receive from it delivers "closed", and a send to it panics "send on closed
// channel". The same channel may appear any number of times, in both
// directions.
//
// A handler of Recv takes (T), (T, bool ok), (std::optional<T>) or (). On
// chan<void> it takes (bool ok) or (). When the channel is closed and drained,
// ok is false, the optional is empty, and the T is a value-initialised T{}. If
// T is not default-constructible, the handler must take the optional. In the
// pointer form, a closed channel leaves *v untouched, as Recv(T&) does, and
// sets *ok to false.
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

// Another library may have defined a macro of this name.
#ifdef select
#error "select is a macro here: #undef it before gump/select.h"
#include "gump/internal/see_the_error_above.h"
#endif

#include <memory>
#include <type_traits>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/types/span.h"
#include "gump/chan.h"
#include "gump/internal/select_case.h"
#include "gump/internal/select_handler.h"

#pragma GCC visibility push(default)

namespace gump {

class SelectCase;

// select does one of the cases and returns its index. The cases are the results
// of Recv, Send and Default. Parks until a case can proceed, unless one of them
// is Default. Panics "send on closed channel" if the chosen case is a Send to a
// closed channel. An exception thrown by the handler passes through.
template <internal::SelectArm... Cases>
requires(sizeof...(Cases) > 0) int select(Cases&&... cases) {
  static_assert((!std::is_lvalue_reference_v<Cases> && ...),
                "write Recv(...), Send(...) and Default(...) in the call of "
                "select itself");
  return internal::SelectOf(cases...);
}
// This select takes its cases from an array of at most 65,536. An empty array
// blocks for ever. Parks until a case can proceed, unless one of them is
// Default. Panics "reflect.Select: too many cases (max 65536)",
// "reflect.Select: multiple default cases", and as above. Throws std::bad_alloc
// if there are more than sixteen cases and no memory.
int select(absl::Span<SelectCase> cases);
// select without cases parks for ever.
[[noreturn]] void select();

// The functions that make cases. None of them parks; select does. c is a chan,
// a send_chan or a recv_chan. Requires: the result is used in the same
// expression, in the call of select or for a SelectCase.

// Recv(c, handler) receives a value for the handler. Recv(c) discards it.
template <internal::ReceivesFrom C, internal::Handler H>
[[nodiscard]] auto Recv(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND, H handler) {
  return internal::RecvCase<internal::ValueOf<C>, H>(c.raw(),
                                                     std::move(handler));
}
template <internal::ReceivesFrom C>
[[nodiscard]] auto Recv(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND) {
  return Recv(c, internal::NoHandler());
}
// Recv(c, &v) and Recv(c, &v, &ok) receive into a variable. Recv(c, &ok) is for
// a chan<void>.
template <internal::ReceivesValue C>
[[nodiscard]] auto Recv(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND,
                        internal::ValueOf<C>* v, bool* ok = nullptr) {
  return internal::RecvIntoCase<internal::ValueOf<C>>(c.raw(), v, ok);
}
template <internal::ReceivesNothing C>
[[nodiscard]] auto Recv(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND, bool* ok) {
  return Recv(c, [ok](bool received) { *ok = received; });
}

// Send(c, v) and Send(c, v, handler) send a value. An rvalue is moved from only
// if the case is chosen. Any other value is copied. Send(c) and Send(c,
// handler) are for a chan<void>.
template <internal::SendsValue C, internal::Handler H = internal::NoHandler>
[[nodiscard]] auto Send(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND,
                        internal::ValueOf<C>&& v ABSL_ATTRIBUTE_LIFETIME_BOUND,
                        H handler = {}) {
  using Case =
      internal::SendCase<internal::ValueOf<C>, H, internal::Keeps::kReference>;
  return Case(c.raw(), std::addressof(v), std::move(handler));
}
template <internal::SendsValue C, internal::Handler H = internal::NoHandler>
[[nodiscard]] auto Send(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND,
                        const internal::ValueOf<C>& v
                            ABSL_ATTRIBUTE_LIFETIME_BOUND,
                        H handler = {}) {
  return internal::SendOf(c.raw(), v, std::move(handler));
}
template <internal::SendsNothing C, internal::Handler H = internal::NoHandler>
[[nodiscard]] auto Send(const C& c ABSL_ATTRIBUTE_LIFETIME_BOUND,
                        H handler = {}) {
  using Case = internal::SendCase<void, H, internal::Keeps::kReference>;
  return Case(c.raw(), std::move(handler));
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

}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_SELECT_H_
