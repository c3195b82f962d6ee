// All modes are in FPCR. The flags of exceptions are in another register.
#include <cstdint>

#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/fpmodes.h"

namespace gump::rt {

extern "C" {
// asm_arm64.S reads this word. It is hidden, so that asm_arm64.S can address it
// relative to the program counter. Relaxed: a goroutine that begins during a
// store gets the old value or the new one. Until inheritFpModes is called, it
// has the value with which the kernel starts a process.
__attribute__((visibility("hidden"))) constinit Atomic<uint32_t> gumpStartFpcr{
    0};
}

void inheritFpModes() {
  uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  gumpStartFpcr.store(static_cast<uint32_t>(fpcr), relaxed);
}

// To write the register is slow, so that is done only if it differs.
void startFpModes() {
  uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  const uint64_t start = gumpStartFpcr.load(relaxed);
  if (GUMP_UNLIKELY(fpcr != start)) asm volatile("msr fpcr, %0" : : "r"(start));
}

}  // namespace gump::rt
