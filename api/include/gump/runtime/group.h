// A Group limits how many of its goroutines run at the same time. So background
// work, a tenant or a plugin leaves the other processors to the rest of the
// program.
//
//   gump::runtime::Group batch("batch", {.max_procs = 1});
//   gump::go({.group = &batch}, [] { Compress(); });
//
// A goroutine belongs to the group that its go names, or else to the group of
// the goroutine that started it. So all that a goroutine of a group starts is
// of that group: by go, by a time::AfterFunc or a context::AfterFunc, and by
// the functions of this library. A plain thread is in no group, and neither is
// a goroutine while it is on a runtime::Thread (gump/runtime/thread.h).
//
// There are no priorities. What matters runs outside, and what may be slow runs
// in a group that leaves it enough processors.
//
// A goroutine runs while it executes code. It does not run while it
//   * is parked, or waits for its turn;
//   * is inside blocking(), or another call of this library that blocks the
//     thread. When the call is over, it waits until its group has room;
//   * sleeps in a system call that the library was not told of, once its P has
//     been taken for that. (See docs/preemption.md.) When that call is over it
//     goes on at once, for at most a few ms, until it enters the library or is
//     preempted. So that call is to be inside blocking() if the limit must be
//     exact.
//
// When the group is full, the next goroutine waits until another one of the
// group parks, yields, ends or has used its time slice. They take turns, first
// come, first served. A goroutine that holds a lock keeps it while it waits for
// its turn. So a lock that others need is held for longer in a small group
// (docs/hazards.md).
//
// Memory ordering: a group orders nothing. Two goroutines of a group with one
// processor do not run at the same time, but each can be preempted anywhere. So
// they need locks as all others do.
#ifndef GUMP_RUNTIME_GROUP_H_
#define GUMP_RUNTIME_GROUP_H_

#include <cstdint>
#include <string_view>

#include "gump/internal/linkname_group.h"

#pragma GCC visibility push(default)

namespace gump::runtime {

class Group;

}  // namespace gump::runtime

namespace gump::internal {

// GroupNumber returns the number of a group, for rt::SpawnOptions.
uint32_t GroupNumber(const runtime::Group& group) noexcept;

}  // namespace gump::internal

namespace gump::runtime {

// GroupOptions holds the options of a Group.
struct GroupOptions {
  // How many goroutines of the group may run at a time. 0 means no limit.
  int max_procs = 0;
};

// Group is a handle: a copy is the same group. The group lives until the last
// handle is gone and its goroutines have ended. All members may be called from
// goroutines and from plain threads, at the same time, and do not park.
class Group {
 public:
  // Makes a group. The name is for dumps, traces and GroupName; it is copied,
  // and need not be unique. Dumps show its first 39 bytes, as in
  // `goroutine 7 [runnable, group "batch" full]:`.
  //
  // Panics `runtime: max_procs of group "batch" is -1, less than 0` if
  // max_procs is below 0. Throws std::bad_alloc if there is no memory, or if
  // there are 262,143 groups already.
  explicit Group(std::string_view name, GroupOptions options = {});
  Group(const Group& other) noexcept : g_(other.g_) { rt::groupRetain(g_); }
  Group& operator=(const Group& other) noexcept {
    rt::groupRetain(other.g_);
    rt::groupRelease(g_);
    g_ = other.g_;
    return *this;
  }
  ~Group() { rt::groupRelease(g_); }

  // SetMaxProcs changes the limit; 0 removes it. Goroutines that wait begin at
  // once if there is more room now. If more run than may, they are asked to
  // yield. They stop when they next enter the library, or after at most a time
  // slice (10 ms) when they are preempted. Running tells when. Panics as the
  // constructor does.
  void SetMaxProcs(int n);

  // Name returns the name, which lives as long as the group.
  std::string_view Name() const noexcept;
  // Running returns how many goroutines of the group run now. It is at most
  // max_procs, unless SetMaxProcs has just lowered that.
  int Running() const noexcept { return rt::groupRunning(g_); }
  // Runnable returns how many goroutines of the group wait now to run: for a
  // processor, or for room in the group.
  int Runnable() const noexcept { return rt::groupRunnable(g_); }

 private:
  friend uint32_t internal::GroupNumber(const Group& group) noexcept;

  rt::Group* g_;
};

// GroupName returns the name of the group that the caller belongs to, or "" if
// it belongs to none. The name lives until the caller ends.
//
//   std::string tenant(gump::runtime::GroupName());
std::string_view GroupName() noexcept;

}  // namespace gump::runtime

#pragma GCC visibility pop

#endif  // GUMP_RUNTIME_GROUP_H_
