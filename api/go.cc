#include "gump/go.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "gump/internal/linkname_panic.h"
#include "gump/runtime.h"

namespace gump::internal {

namespace {

// Made before memory gets short, and never destroyed. A copy shares its text.
// It is nullptr in a static constructor of the program that runs before ours.
const PanicError* const no_memory =
    new PanicError("out of memory (goroutine stack)");

}  // namespace

void PanicNoStack() {
  try {
    panic(rt::stackErrorText());
  } catch (const std::bad_alloc&) {
    // The C++ runtime keeps room for exceptions, but not for their texts.
    if (no_memory == nullptr) throw;
  }
  throw PanicError(*no_memory);
}

void FatalNilFunc() { rt::fatalError("go of nil func value"); }

void PanicThreadAndGroup() {
  panic("runtime: goroutine of both a Thread and a group");
}

void PanicRunActive() { panic("gump::Run called while another Run is active"); }

char* CopyName(std::string_view name) {
  if (name.empty()) return nullptr;
  auto* copy = static_cast<char*>(std::malloc(name.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, name.data(), name.size());
  copy[name.size()] = '\0';
  return copy;
}

}  // namespace gump::internal
