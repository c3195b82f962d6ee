#include "gump/runtime.h"

#include <utility>

namespace gump::runtime {

void LockOSThread() {
  if (!rt::lockOSThreadExternal()) panic("LockOSThread nesting overflow");
}

void UnlockOSThread() { rt::unlockOSThreadExternal(); }

std::string Stack(bool all) {
  std::string text(16 << 10, '\0');
  for (;;) {
    size_t need = rt::stackDump(all, text.data(), text.size());
    if (need <= text.size()) {
      text.resize(need);
      return text;
    }
    text.resize(need + need / 4);  // the next dump may be longer
  }
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

}  // namespace gump::debug
