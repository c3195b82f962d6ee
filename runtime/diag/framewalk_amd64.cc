#include <ucontext.h>

#include <cstring>

#include "runtime/diag/framewalk.h"

namespace gump::rt {

namespace {

uintptr_t readWord(uintptr_t at) {
  uintptr_t word = 0;
  return readMemory(&word, at, sizeof(word)) ? word : 0;
}

// relative returns the target of a displacement of 32 bits at the address `at`,
// which ends the instruction. `bytes` holds a copy of it.
uintptr_t relative(uintptr_t at, const unsigned char* bytes) {
  int32_t d;
  std::memcpy(&d, bytes, sizeof(d));
  return at + sizeof(d) + static_cast<uintptr_t>(intptr_t{d});
}

// contains returns true if pc may be in the function that begins at `start`.
bool contains(uintptr_t start, uintptr_t pc) {
  constexpr uintptr_t kLargest = 16 << 10;
  return pc - start < kLargest;
}

// throughPlt returns the function to which the entry of a procedure linkage
// table at `at` leads. An entry is `jmp *d(%rip)` or `bnd jmp *d(%rip)`,
// perhaps with an endbr64 before it. Returns 0 if there is no such entry.
uintptr_t throughPlt(uintptr_t at) {
  unsigned char code[16];
  if (!readMemory(code, at, sizeof(code))) return 0;
  constexpr unsigned char kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
  size_t i = 0;
  if (std::memcmp(code, kEndbr64, sizeof(kEndbr64)) == 0) i = sizeof(kEndbr64);
  if (code[i] == 0xf2) i++;
  if (code[i] != 0xff || code[i + 1] != 0x25) return 0;
  return readWord(relative(at + i + 2, code + i + 2));
}

// hasCalled returns true if the instruction before `ret` calls the function
// around pc. That is `call rel32`, perhaps of an entry of a procedure linkage
// table, or `call *d(%rip)`. The target of other calls is not in their code.
bool hasCalled(uintptr_t ret, uintptr_t pc) {
  unsigned char code[6];
  if (ret < sizeof(code) || !readMemory(code, ret - sizeof(code), sizeof(code)))
    return false;
  if (code[1] == 0xe8) {
    const uintptr_t target = relative(ret - 4, code + 2);
    return contains(target, pc) || contains(throughPlt(target), pc);
  }
  return code[0] == 0xff && code[1] == 0x15 &&
         contains(readWord(relative(ret - 4, code + 2)), pc);
}

}  // namespace

Registers registersOf(const void* context) {
  const auto& regs = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return {static_cast<uintptr_t>(regs[REG_RIP]),
          static_cast<uintptr_t>(regs[REG_RSP]),
          static_cast<uintptr_t>(regs[REG_RBP]), 0};
}

// At the first and the last instruction of a function, and behind its push of
// %rbp, the place of the return address is certain. Compilers leave the frame
// out on paths that call nothing, and functions of libc in assembly have none.
// There the return address is most likely at the stack pointer. But a function
// with a frame may have an old return address there. So hasCalled looks at the
// call before it.
uintptr_t callerOfFrameless(const Registers& r) {
  unsigned char code[5] = {};  // the byte before pc, and what is at pc
  if (!readMemory(code, r.pc - 1, sizeof(code))) return 0;
  constexpr unsigned char kMovRspRbp[] = {0x48, 0x89, 0xe5};
  constexpr unsigned char kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
  constexpr unsigned char kPushRbp = 0x55, kRet = 0xc3;
  if (code[0] == kPushRbp &&
      std::memcmp(code + 1, kMovRspRbp, sizeof(kMovRspRbp)) == 0) {
    return readWord(r.sp + sizeof(uintptr_t));
  }
  const uintptr_t ret = readWord(r.sp);
  if (code[1] == kPushRbp || code[1] == kRet ||
      std::memcmp(code + 1, kEndbr64, sizeof(kEndbr64)) == 0) {
    return ret;
  }
  return hasCalled(ret, r.pc) ? ret : 0;
}

uintptr_t stripReturn(uintptr_t pc) { return pc; }

}  // namespace gump::rt
