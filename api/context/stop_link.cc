#include "api/context/stop_link.h"

#include <memory>
#include <mutex>
#include <new>
#include <stop_token>
#include <utility>

#include "api/context/context_node.h"
#include "gump/context.h"
#include "gump/internal/closure.h"
#include "gump/internal/context_ref.h"
#include "gump/internal/linkname_go.h"
#include "gump/internal/linkname_panic.h"
#include "gump/runtime.h"

namespace gump::internal {

void StopLink::Request::operator()() const noexcept {
  CancelNode* const n = node;
  if (!n->TryRef()) return;
  runtime::LockOSThread();  // (S1)
  n->Cancel(kCanceled, ErrOf(kCanceled));
  ContextRelease(n);
  runtime::UnlockOSThread();
}

void CancelNode::LinkStop(std::stop_token token) {
  stop_link_ = std::make_unique<StopLink>(this, std::move(token));
}

std::stop_token CancelNode::StopToken() {
  {
    const std::scoped_lock hold(mu_);
    // Relaxed: written under the lock.
    if (state_.load(rt::relaxed) == kLive) {
      if (!stop_source_.stop_possible()) stop_source_ = std::stop_source();
      return stop_source_.get_token();
    }
  }
  std::stop_source stopped;
  stopped.request_stop();
  return stopped.get_token();
}

void CancelNode::StartStop() {
  if (!stop_source_.stop_possible()) return;
  // The callbacks run on this goroutine. They may park, so it keeps the thread
  // that the standard library has noted.
  auto request = [source = std::move(stop_source_)]() mutable {
    runtime::LockOSThread();
    source.request_stop();
    runtime::UnlockOSThread();
  };
  using C = Closure<decltype(request)>;
  static_assert(kFitsInG<C>);
  alignas(C) unsigned char closure[sizeof(C)];  // the goroutine moves it away
  ::new (closure) C(C::Of(std::move(request)));
  rt::SpawnOptions options;
  options.stack_later = true;  // as in StartFunc
  options.group = rt::kNoGroup;
  if (rt::newproc(&kInPlace<C>, closure, &options, rt::callerPC()) !=
      rt::SpawnResult::kOk) {
    rt::fatalErrorAll("out of memory");
  }
}

}  // namespace gump::internal

namespace gump::context {

std::pair<Context, CancelFunc> WithStopToken(const Context& parent,
                                             std::stop_token token) {
  auto made = WithCancel(parent);
  if (token.stop_possible()) {
    internal::ContextAccess::ref(made.first)
        .get()
        ->cancel->LinkStop(std::move(token));
  }
  return made;
}

std::stop_token StopToken(const Context& ctx) {
  internal::ContextNode* n = internal::ContextAccess::ref(ctx).get();
  if (n == nullptr || n->cancel == nullptr) return {};
  return n->cancel->StopToken();
}

}  // namespace gump::context
