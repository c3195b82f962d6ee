// The functions of gump::context, on the nodes of context_node.h.
#include "gump/context.h"

#include <optional>
#include <utility>

#include "api/context/context_node.h"
#include "gump/synctest.h"

namespace gump::context {

namespace {

using internal::CancelNode;
using internal::ContextAccess;
using internal::ContextRef;

CancelNode* CancelNodeOf(const ContextRef& ref) {
  return ref.get() == nullptr ? nullptr : ref.get()->cancel;
}

// NewCancel makes a child that has not joined its parent yet.
ContextRef NewCancel(const Context& parent) {
  return ContextRef(new CancelNode(ContextAccess::ref(parent).get()));
}

template <class Func>
std::pair<Context, Func> Handles(ContextRef ref) {
  Func f = ContextAccess::Make<Func>(ContextRef(ref));
  return {ContextAccess::Make<Context>(std::move(ref)), std::move(f)};
}

// CancelBy does the work of the CancelFuncs. It gets a reference of its own,
// because a goroutine that it wakes may destroy the CancelFunc.
void CancelBy(ContextRef&& ref, const absl::Status& cause) {
  const ContextRef held = std::move(ref);
  if (held.get() == nullptr) return;
  const absl::Status why =
      cause.ok() ? internal::ErrOf(internal::kCanceled) : cause;
  CancelNodeOf(held)->Cancel(internal::kCanceled, why);
}

// MakeDeadline does the work of all functions with a deadline. `in` is the time
// until the deadline.
std::pair<Context, CancelFunc> MakeDeadline(const Context& parent,
                                            absl::Time deadline,
                                            internal::DurationArg in,
                                            absl::Status cause) {
  ContextRef ref = NewCancel(parent);
  CancelNode* n = CancelNodeOf(ref);
  if (n->TimeLeft() < in.duration() || deadline == absl::InfiniteFuture()) {
    n->Join();  // the parent's deadline comes first, or this one is infinite
    return Handles<CancelFunc>(std::move(ref));
  }
  n->SetDeadline(deadline, in.duration());
  n->Join();
  if (cause.ok()) cause = internal::ErrOf(internal::kDeadlineExceeded);
  if (in.duration() <= absl::ZeroDuration()) {
    n->Cancel(internal::kDeadlineExceeded, cause);
  } else {
    n->StartTimer(in.Nanoseconds(), std::move(cause));
  }
  return Handles<CancelFunc>(std::move(ref));
}

}  // namespace

std::optional<absl::Time> Context::Deadline() const {
  const CancelNode* n = CancelNodeOf(ref_);
  if (n == nullptr || n->deadline() == absl::InfiniteFuture()) return {};
  return n->deadline();
}

recv_chan<void> Context::Done() const {
  CancelNode* n = CancelNodeOf(ref_);
  if (n == nullptr) return {};
  rt::Hchan* c = n->Done();
  rt::chanRetain(c);
  return chan<void>(c);
}

absl::Status Context::Err() const {
  CancelNode* n = CancelNodeOf(ref_);
  return n == nullptr ? absl::OkStatus() : n->Err();
}

absl::Status Cause(const Context& ctx) {
  const CancelNode* n = CancelNodeOf(ContextAccess::ref(ctx));
  return n == nullptr ? absl::OkStatus() : n->Cause();
}

void CancelFunc::operator()() const {
  CancelBy(ContextRef(ref_), absl::OkStatus());
}

void CancelCauseFunc::operator()(const absl::Status& cause) const {
  CancelBy(ContextRef(ref_), cause);
}

bool StopFunc::operator()() const {
  const ContextRef ref = ref_;  // our own reference, as in CancelBy
  return ref.get() != nullptr && CancelNodeOf(ref)->StopFunc();
}

Context TODO() {
  // This reference is held for ever.
  static auto* const todo = new ContextRef(new internal::ContextNode(nullptr));
  return ContextAccess::Make<Context>(ContextRef(*todo));
}

std::pair<Context, CancelFunc> WithCancel(const Context& parent) {
  ContextRef ref = NewCancel(parent);
  CancelNodeOf(ref)->Join();
  return Handles<CancelFunc>(std::move(ref));
}

std::pair<Context, CancelCauseFunc> WithCancelCause(const Context& parent) {
  ContextRef ref = NewCancel(parent);
  CancelNodeOf(ref)->Join();
  return Handles<CancelCauseFunc>(std::move(ref));
}

std::pair<Context, CancelFunc> WithDeadline(const Context& parent,
                                            absl::Time deadline) {
  return WithDeadlineCause(parent, deadline, absl::OkStatus());
}

std::pair<Context, CancelFunc> WithTimeout(const Context& parent,
                                           internal::DurationArg d) {
  return WithTimeoutCause(parent, d, absl::OkStatus());
}

std::pair<Context, CancelFunc> WithDeadlineCause(const Context& parent,
                                                 absl::Time deadline,
                                                 absl::Status cause) {
  return MakeDeadline(parent, deadline, deadline - synctest::Now(),
                      std::move(cause));
}

std::pair<Context, CancelFunc> WithTimeoutCause(const Context& parent,
                                                internal::DurationArg d,
                                                absl::Status cause) {
  return MakeDeadline(parent, synctest::Now() + d.duration(), d,
                      std::move(cause));
}

Context WithoutCancel(const Context& parent) {
  const ContextRef& ref = ContextAccess::ref(parent);
  // The new node takes the values of parent. It refers to the nearest
  // ValueNode, so it does not keep the nodes in between alive.
  auto* n = new internal::ContextNode(ref.get() == nullptr ? nullptr
                                                           : ref.get()->values);
  n->cancel = nullptr;
  return ContextAccess::Make<Context>(ContextRef(n));
}

}  // namespace gump::context
