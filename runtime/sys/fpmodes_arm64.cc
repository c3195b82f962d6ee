// All modes are in FPCR. The flags of exceptions are in another register.
#include <cstdint>

#include "runtime/sys/atomic.h"
#include "runtime/sys/fpmodes.h"

namespace gump::rt {

extern "C" {
// Read by asm_arm64.S. Hidden, so it reads it relative to its own place.
// Relaxed: a goroutine that begins during a store gets the old modes or the new
// ones. The default is the ABI's.
__attribute__((visibility("hidden"))) constinit Atomic<uint32_t> gumpStartFpcr{
    0};
}

void inheritFpModes() {
  uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  gumpStartFpcr.store(static_cast<uint32_t>(fpcr), relaxed);
}

}  // namespace gump::rt
