// The modes are in two control words: mxcsr, for SSE and AVX, and that of the
// x87, for long double.
#include <cstdint>

#include "runtime/sys/atomic.h"
#include "runtime/sys/fpmodes.h"

namespace gump::rt {

extern "C" {
// Read by asm_amd64.S. Hidden, so it reads them relative to its own place.
// Relaxed: a goroutine that begins during a store gets the old mode or the new
// one. The defaults are the ABI's.
__attribute__((visibility("hidden"))) constinit Atomic<uint32_t> gumpStartMxcsr{
    0x1f80};
__attribute__((visibility("hidden"))) constinit Atomic<uint32_t> gumpStartX87cw{
    0x037f};
}

void inheritFpModes() {
  constexpr uint32_t kFlags = 0x3f;  // of exceptions; they belong to the thread
  uint32_t mxcsr;
  uint16_t x87cw;
  asm volatile("stmxcsr %0" : "=m"(mxcsr));
  asm volatile("fnstcw %0" : "=m"(x87cw));
  gumpStartMxcsr.store(mxcsr & ~kFlags, relaxed);
  gumpStartX87cw.store(x87cw, relaxed);
}

}  // namespace gump::rt
