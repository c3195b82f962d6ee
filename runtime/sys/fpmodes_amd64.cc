// The modes are in two control words: mxcsr, for SSE and AVX, and that of the
// x87, for long double.
#include <cstdint>

#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"
#include "runtime/sys/fpmodes.h"

namespace gump::rt {

extern "C" {
// asm_amd64.S reads these two words. They are hidden, so that it can address
// them relative to the instruction pointer. Relaxed: a goroutine that begins
// during a store gets the old or the new value of each word. Until
// inheritFpModes is called, they have the values that the ABI prescribes for
// the start of a process.
__attribute__((visibility("hidden"))) constinit Atomic<uint32_t> gumpStartMxcsr{
    0x1f80};
__attribute__((visibility("hidden"))) constinit Atomic<uint32_t> gumpStartX87cw{
    0x037f};
}

namespace {
// The flags of exceptions that have occurred on this thread.
constexpr uint32_t kFlags = 0x3f;
}  // namespace

void inheritFpModes() {
  uint32_t mxcsr;
  uint16_t x87cw;
  asm volatile("stmxcsr %0" : "=m"(mxcsr));
  asm volatile("fnstcw %0" : "=m"(x87cw));
  gumpStartMxcsr.store(mxcsr & ~kFlags, relaxed);
  gumpStartX87cw.store(x87cw, relaxed);
}

// To load a word is slow, so that is done only if it differs.
void startFpModes() {
  uint32_t mxcsr;
  uint16_t x87cw;
  asm volatile("stmxcsr %0" : "=m"(mxcsr));
  asm volatile("fnstcw %0" : "=m"(x87cw));
  const uint32_t startMxcsr = gumpStartMxcsr.load(relaxed);
  if (GUMP_UNLIKELY((mxcsr & ~kFlags) != startMxcsr)) {
    asm volatile("ldmxcsr %0" : : "m"(startMxcsr));
  }
  const auto startX87cw = static_cast<uint16_t>(gumpStartX87cw.load(relaxed));
  if (GUMP_UNLIKELY(x87cw != startX87cw)) {
    asm volatile("fldcw %0" : : "m"(startX87cw));
  }
}

}  // namespace gump::rt
