#include <ucontext.h>

#include "runtime/diag/framewalk.h"

namespace gump::rt {

Registers registersOf(const void* context) {
  const auto& m = static_cast<const ucontext_t*>(context)->uc_mcontext;
  constexpr int kFp = 29, kLr = 30;
  return {m.pc, m.sp, m.regs[kFp], m.regs[kLr]};
}

// The link register has the return address at the first instructions of a
// function, until the function sets its frame pointer, and at its last one.
// Elsewhere a call inside the function may have left another address in it.
uintptr_t callerOfFrameless(const Registers& r) {
  constexpr uint32_t kPaciasp = 0xd503233f, kBtiC = 0xd503245f;
  constexpr uint32_t kRet = 0xd65f03c0;
  // stp x29, x30, [sp, #n]!
  constexpr uint32_t kPush = 0xa9807bfd, kPushMask = 0xffc07fff;
  uint32_t code[2];  // the instruction before pc, and the one at pc
  if (!readMemory(code, r.pc - sizeof(code[0]), sizeof(code))) return 0;
  const bool frameless = code[1] == kPaciasp || code[1] == kBtiC ||
                         code[1] == kRet || (code[1] & kPushMask) == kPush ||
                         (code[0] & kPushMask) == kPush;
  return frameless ? stripReturn(r.lr) : 0;
}

uintptr_t stripReturn(uintptr_t pc) {
  register uintptr_t x30 asm("x30") = pc;
  asm("hint #7" : "+r"(x30));  // xpaclri, which older processors ignore
  return x30;
}

}  // namespace gump::rt
