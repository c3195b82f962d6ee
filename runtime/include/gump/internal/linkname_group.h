// The window for the groups of gump/runtime/group.h. linkname.h gives the
// rules.
#ifndef GUMP_INTERNAL_LINKNAME_GROUP_H_
#define GUMP_INTERNAL_LINKNAME_GROUP_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

struct Group;

// newGroup makes a group with one reference. It copies the name. max_procs <= 0
// means no limit. Returns nullptr if there is no memory, or if there are too
// many groups.
[[nodiscard]] Group* newGroup(const char* name, size_t size,
                              int32_t max_procs) noexcept;
// groupRetain adds a reference to g, and groupRelease gives one up.
void groupRetain(Group* g) noexcept;
void groupRelease(Group* g) noexcept;
// setGroupMaxProcs changes the limit of g. max_procs <= 0 means no limit.
void setGroupMaxProcs(Group* g, int32_t max_procs) noexcept;
// groupRunning and groupRunnable return how many goroutines of g run, and how
// many wait for a slot or for a P.
int32_t groupRunning(const Group* g) noexcept;
int32_t groupRunnable(Group* g) noexcept;
// groupId returns the number of g, for SpawnOptions::group.
uint32_t groupId(const Group* g) noexcept;
// groupName returns the name of g, which has *size bytes. It lives as long as
// g.
const char* groupName(const Group* g, size_t* size) noexcept;
// currentGroup returns the group of the calling goroutine, or nullptr.
Group* currentGroup() noexcept;
// currentGroupId returns its number, or 0. groupRefId adds a reference to the
// group of that number, and groupUnrefId gives one up. 0 is no group.
uint32_t currentGroupId() noexcept;
void groupRefId(uint32_t id) noexcept;
void groupUnrefId(uint32_t id) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_GROUP_H_
