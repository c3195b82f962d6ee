#include "gump/runtime.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <utility>

namespace gump::runtime {

void LockOSThread() {
  if (!rt::lockOSThreadExternal()) panic("LockOSThread nesting overflow");
}

void UnlockOSThread() { rt::unlockOSThreadExternal(); }

namespace {
// GrowText is the rt::BufferGrower of the std::string at `text`.
char* GrowText(void* text, size_t* size) {
  auto& s = *static_cast<std::string*>(text);
  try {
    s.resize(std::max({*size, 2 * s.size(), size_t{16} << 10}));
  } catch (...) {  // whatever a program's operator new throws
    return nullptr;
  }
  *size = s.size();
  return s.data();
}
}  // namespace

std::string Stack(bool all) {
  std::string text;
  const size_t size = rt::stackDump(all, GrowText, &text);
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

}  // namespace gump::debug
