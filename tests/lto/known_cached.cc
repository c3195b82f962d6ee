// Two functions with the bug that check_tls.py looks for: each keeps an address
// of its thread across a switch. The checker must report both. They are part of
// lto_program, but it does not call them.
#include <gump/gump.h>

#include <cerrno>

namespace gump::known {

thread_local int counter = 0;

// Assembly, so that the compiler needs the address in a register.
inline void Increment(int* n) {
  asm volatile("incl (%0)" : : "r"(n) : "memory");
}

__attribute__((noinline, used)) int KeepsThreadLocal() {
  Increment(&counter);
  runtime::Gosched();
  Increment(&counter);
  return counter;
}

__attribute__((noinline, used)) int KeepsErrno() {
  errno = 1;
  runtime::Gosched();
  return ++errno;
}

}  // namespace gump::known
