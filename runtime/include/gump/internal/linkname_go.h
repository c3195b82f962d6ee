// The window for gump/go.h: goroutines, Run, and the brackets of a declared
// system call. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_GO_H_
#define GUMP_INTERNAL_LINKNAME_GO_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// A closure of up to this size and alignment lives inside the G.
inline constexpr size_t kClosureSize = 64;
inline constexpr size_t kClosureAlign = 16;

// FuncType says how to handle a closure of one type. If a closure does not fit
// into the G, or its relocation could throw, go() keeps it on the heap and
// passes a pointer to it.
struct FuncType {
  // Calls the closure.
  // May throw. The process then ends with a panic report.
  void (*run)(void* closure);
  void (*destroy)(void* closure);
  // Move-constructs dst and destroys src.
  void (*relocate)(void* dst, void* src) noexcept;
};

// SpawnResult is the result of newproc.
enum class SpawnResult : uint8_t {
  kOk,
  // There is no memory for a G. Or other goroutines already wait for stacks,
  // and there is none for this one. The text is stackErrorText().
  kNoMemory,
};

struct Home;

// kNoGroup stands for no group at all, where 0 stands for the caller's.
inline constexpr uint32_t kNoGroup = UINT32_MAX;

// SpawnOptions holds the options of newproc.
struct SpawnOptions {
  size_t stack_size = 0;  // bytes; 0: default
  // Allocated by malloc. The goroutine owns it once newproc returns kOk.
  const char* name = nullptr;
  // For newprocOn (linkname_thread.h): where the goroutine runs.
  Home* thread = nullptr;
  // For goroutines of the runtime. If there is no stack, newproc does not fail,
  // and the goroutine waits for one.
  bool stack_later = false;
  // The closure begins with a LocalNode, made by scopeMember.
  bool in_scope = false;
  // The number of its group; 0: that of the caller; kNoGroup: none. The caller
  // keeps the group alive during the call.
  uint32_t group = 0;
};

// newproc starts a goroutine that relocates *closure into itself. pc is the
// address to report as "created by".
[[nodiscard]] SpawnResult newproc(const FuncType* ft, void* closure,
                                  const SpawnOptions* options,
                                  uintptr_t pc) noexcept;
// stackErrorText returns the reason of the last kNoMemory, as a panic's text.
const char* stackErrorText() noexcept;

// runMain is Run. The calling thread becomes m0 and runs ft on goroutine 1.
// runMain returns when that goroutine's function has returned. Returns false if
// another Run is active, or if the caller is a goroutine.
[[nodiscard]] bool runMain(const FuncType* ft, void* closure,
                           uintptr_t pc) noexcept;

// entersyscall and exitsyscall bracket a declared system call. exitsyscall may
// park.
void entersyscall() noexcept;
void exitsyscall() noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_GO_H_
