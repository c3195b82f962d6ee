#include "gump/runtime.h"

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "api/grow_text.h"

namespace gump::runtime {

void LockOSThread() {
  if (!rt::lockOSThreadExternal()) panic("LockOSThread nesting overflow");
}

void UnlockOSThread() { rt::unlockOSThreadExternal(); }

void SetAffinity(Affinity affinity) {
  switch (affinity) {
    case Affinity::kNone:
      return rt::setAffinity(rt::ThreadAffinity::kNone);
    case Affinity::kNode:
      return rt::setAffinity(rt::ThreadAffinity::kNode);
    case Affinity::kCore:
      return rt::setAffinity(rt::ThreadAffinity::kCore);
  }
  panic("runtime: SetAffinity of an unknown Affinity");
}

namespace {

// CallStart and CallEnd call a hook of the ThreadHooks at `hooks`.
void CallStart(void* hooks) { static_cast<ThreadHooks*>(hooks)->on_start(); }
void CallEnd(void* hooks) { static_cast<ThreadHooks*>(hooks)->on_end(); }

}  // namespace

void SetThreadHooks(ThreadHooks hooks) {
  // Never destroyed once the runtime has started: threads call the hooks until
  // the process is gone.
  auto next = std::make_unique<ThreadHooks>(std::move(hooks));
  rt::ThreadHookFuncs funcs;
  if (next->on_start) funcs.on_start = CallStart;
  if (next->on_end) funcs.on_end = CallEnd;
  funcs.arg = next.get();
  void* old = nullptr;
  if (!rt::setThreadHooks(funcs, &old)) {
    panic("runtime: SetThreadHooks after the start");
  }
  (void)next.release();
  delete static_cast<ThreadHooks*>(old);
}

std::string Stack(bool all) {
  std::string text;
  const size_t size = rt::stackDump(all, internal::GrowText, &text);
  if (size > text.size()) throw std::bad_alloc();
  text.resize(size);
  return text;
}

void GC() { rt::runtimeGC(); }

void SetFinalizer(std::function<void()> f) {
  using C = std::function<void()>;
  internal::CheckCallable(f);
  if (!rt::queueFinalizer(&internal::kInPlace<C>, &f)) throw std::bad_alloc();
  ::new (&f) C();  // f was relocated, and its destructor needs an object
}

}  // namespace gump::runtime

namespace gump::debug {

void FreeOSMemory() { rt::runtimeGC(); }

SchedStats ReadSchedStats() {
  SchedStats s;
  rt::readSchedStats(&s);
  return s;
}

int SetMaxThreads(int n) { return rt::setMaxThreads(n); }

size_t SetMaxStack(size_t bytes) { return rt::setMaxStack(bytes); }

absl::Duration SetHibernation(absl::Duration after) {
  return absl::Nanoseconds(rt::setHibernation(absl::ToInt64Nanoseconds(after)));
}

}  // namespace gump::debug
