// The keys of gls. They are numbers in the form of pointers. No number is used
// twice.
#include "gump/gls.h"

#include <cstdint>

#include "gump/internal/atomic.h"

namespace gump::internal {

namespace {
constinit rt::Atomic<uintptr_t> last_key;
}  // namespace

const void* NewGlsKey() noexcept {
  // Relaxed: only uniqueness matters. Odd, so that no key is the address of an
  // object that the library itself uses as a key.
  return reinterpret_cast<const void*>(last_key.add(2, rt::relaxed) | 1);
}

}  // namespace gump::internal
