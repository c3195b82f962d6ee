// Group. runtime/sched/group.cc has the mechanism.
#include "gump/runtime/group.h"

#include <new>
#include <string>

#include "gump/panic.h"

namespace gump::runtime {

namespace {

// CheckMaxProcs panics if n is no limit for a group of that name.
void CheckMaxProcs(std::string_view name, int n) {
  if (n >= 0) return;
  panic("runtime: max_procs of group \"" + std::string(name) + "\" is " +
        std::to_string(n) + ", less than 0");
}

}  // namespace

Group::Group(std::string_view name, GroupOptions options) {
  CheckMaxProcs(name, options.max_procs);
  g_ = rt::newGroup(name.data(), name.size(), options.max_procs);
  if (g_ == nullptr) throw std::bad_alloc();
}

void Group::SetMaxProcs(int n) {
  CheckMaxProcs(Name(), n);
  rt::setGroupMaxProcs(g_, n);
}

std::string_view Group::Name() const noexcept {
  size_t size;
  const char* name = rt::groupName(g_, &size);
  return {name, size};
}

std::string_view GroupName() noexcept {
  const rt::Group* g = rt::currentGroup();
  if (g == nullptr) return {};
  size_t size;
  const char* name = rt::groupName(g, &size);
  return {name, size};
}

}  // namespace gump::runtime

namespace gump::internal {

uint32_t GroupNumber(const runtime::Group& group) noexcept {
  return rt::groupId(group.g_);
}

}  // namespace gump::internal
