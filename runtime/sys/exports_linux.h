// Exports: functions that the modules of a process define for others, without
// the loader's lock.
#ifndef RUNTIME_SYS_EXPORTS_LINUX_H_
#define RUNTIME_SYS_EXPORTS_LINUX_H_

#include <cstddef>

namespace gump::rt {

inline constexpr size_t kMaxExports = 4;

// forEachExporter calls visit(found, arg) for each module that is loaded now
// and defines the first of the n names, which are at most kMaxExports.
// found[i] is the function of that module with the name names[i], or nullptr.
// visit must not load modules. Unlike dlsym, it does not wait for a thread that
// runs the constructors of a module.
// On: any.  P: either.  Locks: none (a short one of the loader's).  Parks: no.
void forEachExporter(const char* const* names, size_t n,
                     void (*visit)(void* const* found, void* arg), void* arg);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_EXPORTS_LINUX_H_
