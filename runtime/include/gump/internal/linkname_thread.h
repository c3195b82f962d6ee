// The window for gump/runtime/thread.h: threads that goroutines share.
// linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_THREAD_H_
#define GUMP_INTERNAL_LINKNAME_THREAD_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"
#include "gump/internal/linkname_go.h"

#pragma GCC visibility push(default)

namespace gump::rt {

struct M;

// newHome makes a thread for goroutines, with one reference. name need not end
// with a NUL. Returns nullptr if there is no memory.
[[nodiscard]] Home* newHome(const char* name, size_t size) noexcept;
// homeRetain adds a reference, and homeRelease takes one away. The thread ends
// when there is neither a reference nor a goroutine.
void homeRetain(Home* h) noexcept;
void homeRelease(Home* h) noexcept;
// homeName returns the name, which may be cut, and which ends with a NUL.
const char* homeName(const Home* h) noexcept;
// newprocOn is newproc for a goroutine of options->thread. (newproc itself does
// not look there, so that a plain go() does not pay for the question.)
[[nodiscard]] SpawnResult newprocOn(const FuncType* ft, void* closure,
                                    const SpawnOptions* options,
                                    uintptr_t pc) noexcept;

// HomeVisit is how a caller got to a home.
enum class HomeVisit : uint8_t {
  kHere,         // it was there already
  kWent,         // it has changed its thread, and must call homeLeave
  kPlainThread,  // it is no goroutine, and cannot go there
};
// HomeVisitor is what a goroutine takes up again when it leaves a home.
struct HomeVisitor {
  M* from = nullptr;   // the M to which it is bound, or nullptr
  uint32_t group = 0;  // its Group::id, with a reference, or 0
};
// homeEnter moves the calling goroutine to h, and out of its group. homeLeave
// moves it back. Both use the same *v, and may park.
[[nodiscard]] HomeVisit homeEnter(Home* h, HomeVisitor* v) noexcept;
void homeLeave(HomeVisitor* v) noexcept;

// homeCountLocks tells the home of the calling goroutine where to find how many
// locks of its thread are held. The variable belongs to that thread, and lives
// as long. A goroutine that parks while it is above 0 keeps the thread: no
// other goroutine of the home runs before it. homeCountsLocks tells whether the
// caller is a goroutine of a home to which that was told.
void homeCountLocks(const int32_t* locks) noexcept;
[[nodiscard]] bool homeCountsLocks() noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_THREAD_H_
