// The wire format of Go's execution traces, version 2: the numbers of the
// events, and what their arguments are.
//
// A trace begins with a header of 16 bytes, such as "go 1.23 trace" and three
// zeros. Batches follow. Each is of one M and one generation, and a generation
// is readable without those after it. The source of all this is Go's package
// internal/trace/tracev2.
#ifndef TOOLS_TRACE_FORMAT_H_
#define TOOLS_TRACE_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace trace_tool {

enum class Ev : uint8_t {
  kNone = 0,
  kEventBatch = 1,
  kStacks = 2,
  kStack = 3,
  kStrings = 4,
  kString = 5,
  kCpuSamples = 6,
  kCpuSample = 7,
  kFrequency = 8,
  kProcsChange = 9,
  kProcStart = 10,
  kProcStop = 11,
  kProcSteal = 12,
  kProcStatus = 13,
  kGoCreate = 14,
  kGoCreateSyscall = 15,
  kGoStart = 16,
  kGoDestroy = 17,
  kGoDestroySyscall = 18,
  kGoStop = 19,
  kGoBlock = 20,
  kGoUnblock = 21,
  kGoSyscallBegin = 22,
  kGoSyscallEnd = 23,
  kGoSyscallEndBlocked = 24,
  kGoStatus = 25,
  kStwBegin = 26,
  kStwEnd = 27,
  kGcActive = 28,
  kGcBegin = 29,
  kGcEnd = 30,
  kGcSweepActive = 31,
  kGcSweepBegin = 32,
  kGcSweepEnd = 33,
  kGcMarkAssistActive = 34,
  kGcMarkAssistBegin = 35,
  kGcMarkAssistEnd = 36,
  kHeapAlloc = 37,
  kHeapGoal = 38,
  kGoLabel = 39,
  kUserTaskBegin = 40,
  kUserTaskEnd = 41,
  kUserRegionBegin = 42,
  kUserRegionEnd = 43,
  kUserLog = 44,
  kGoSwitch = 45,
  kGoSwitchDestroy = 46,
  kGoCreateBlocked = 47,
  kGoStatusStack = 48,
  kExperimentalBatch = 49,
  kSync = 50,
  kClockSnapshot = 51,
  kEndOfGeneration = 52,
};

enum class GoStatus : uint8_t {
  kNone = 0,  // a goroutine that does not exist
  kRunnable = 1,
  kRunning = 2,
  kSyscall = 3,
  kWaiting = 4,
};

enum class ProcStatus : uint8_t {
  kNone = 0,
  kRunning = 1,
  kIdle = 2,
  kSyscall = 3,
  kSyscallAbandoned = 4,  // in a call, and its M is not known
};

// The id of an M, P or G that is absent.
inline constexpr uint64_t kNoId = ~uint64_t{0};

inline constexpr size_t kHeaderSize = 16;
inline constexpr size_t kMaxBatchSize = 64 << 10;
inline constexpr size_t kMaxFrames = 128;
inline constexpr size_t kMaxString = 1 << 10;
inline constexpr size_t kMaxArgs = 5;

// The kinds of arguments that a reader must tell apart.
enum class Arg : uint8_t { kNumber, kString, kStack };

struct EventSpec {
  absl::string_view name;
  // The arguments after the time. An event that is not timed has none.
  size_t args = 0;
  std::array<absl::string_view, kMaxArgs> names = {};
  std::array<Arg, kMaxArgs> kinds = {};
  bool timed = false;
  // The first version that has the event: 22 is "go 1.22".
  int since = 22;
};

// Returns the spec of an event. Its name is empty if there is no such event.
const EventSpec& SpecOf(uint8_t type);
inline absl::string_view NameOf(Ev type) {
  return SpecOf(static_cast<uint8_t>(type)).name;
}
absl::string_view NameOf(GoStatus status);
absl::string_view NameOf(ProcStatus status);

}  // namespace trace_tool

#endif  // TOOLS_TRACE_FORMAT_H_
