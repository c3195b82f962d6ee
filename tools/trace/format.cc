#include "tools/trace/format.h"

#include <initializer_list>

namespace trace_tool {

namespace {

using Specs = std::array<EventSpec, 256>;

struct ArgSpec {
  absl::string_view name;
  Arg kind = Arg::kNumber;
};
constexpr ArgSpec kStackArg = {"stack", Arg::kStack};

constexpr void Add(Specs* specs, Ev type, absl::string_view name,
                   std::initializer_list<ArgSpec> args, int since = 22) {
  EventSpec& spec = (*specs)[static_cast<size_t>(type)];
  spec.name = name;
  spec.since = since;
  spec.timed = true;
  for (const ArgSpec& arg : args) {
    spec.names[spec.args] = arg.name;
    spec.kinds[spec.args] = arg.kind;
    ++spec.args;
  }
}

// Structure is not in the stream of an M's events.
constexpr void AddStructure(Specs* specs, Ev type, absl::string_view name,
                            int since = 22) {
  EventSpec& spec = (*specs)[static_cast<size_t>(type)];
  spec.name = name;
  spec.since = since;
}

constexpr ArgSpec Str(absl::string_view name) { return {name, Arg::kString}; }
constexpr ArgSpec Num(absl::string_view name) { return {name, Arg::kNumber}; }

constexpr Specs MakeSpecs() {
  Specs s;
  AddStructure(&s, Ev::kEventBatch, "EventBatch");
  AddStructure(&s, Ev::kStacks, "Stacks");
  AddStructure(&s, Ev::kStack, "Stack");
  AddStructure(&s, Ev::kStrings, "Strings");
  AddStructure(&s, Ev::kString, "String");
  AddStructure(&s, Ev::kCpuSamples, "CPUSamples");
  AddStructure(&s, Ev::kCpuSample, "CPUSample");
  AddStructure(&s, Ev::kFrequency, "Frequency");
  AddStructure(&s, Ev::kExperimentalBatch, "ExperimentalBatch", 23);
  AddStructure(&s, Ev::kSync, "Sync", 25);
  AddStructure(&s, Ev::kClockSnapshot, "ClockSnapshot", 25);
  AddStructure(&s, Ev::kEndOfGeneration, "EndOfGeneration", 26);
  Add(&s, Ev::kProcsChange, "ProcsChange", {Num("procs"), kStackArg});
  Add(&s, Ev::kProcStart, "ProcStart", {Num("p"), Num("p_seq")});
  Add(&s, Ev::kProcStop, "ProcStop", {});
  Add(&s, Ev::kProcSteal, "ProcSteal", {Num("p"), Num("p_seq"), Num("m")});
  Add(&s, Ev::kProcStatus, "ProcStatus", {Num("p"), Num("status")});
  const ArgSpec new_stack = {"new_stack", Arg::kStack};
  Add(&s, Ev::kGoCreate, "GoCreate", {Num("g"), new_stack, kStackArg});
  Add(&s, Ev::kGoCreateSyscall, "GoCreateSyscall", {Num("g")});
  Add(&s, Ev::kGoStart, "GoStart", {Num("g"), Num("g_seq")});
  Add(&s, Ev::kGoDestroy, "GoDestroy", {});
  Add(&s, Ev::kGoDestroySyscall, "GoDestroySyscall", {});
  Add(&s, Ev::kGoStop, "GoStop", {Str("reason"), kStackArg});
  Add(&s, Ev::kGoBlock, "GoBlock", {Str("reason"), kStackArg});
  Add(&s, Ev::kGoUnblock, "GoUnblock", {Num("g"), Num("g_seq"), kStackArg});
  Add(&s, Ev::kGoSyscallBegin, "GoSyscallBegin", {Num("p_seq"), kStackArg});
  Add(&s, Ev::kGoSyscallEnd, "GoSyscallEnd", {});
  Add(&s, Ev::kGoSyscallEndBlocked, "GoSyscallEndBlocked", {});
  Add(&s, Ev::kGoStatus, "GoStatus", {Num("g"), Num("m"), Num("status")});
  Add(&s, Ev::kStwBegin, "STWBegin", {Str("kind"), kStackArg});
  Add(&s, Ev::kStwEnd, "STWEnd", {});
  Add(&s, Ev::kGcActive, "GCActive", {Num("gc_seq")});
  Add(&s, Ev::kGcBegin, "GCBegin", {Num("gc_seq"), kStackArg});
  Add(&s, Ev::kGcEnd, "GCEnd", {Num("gc_seq")});
  Add(&s, Ev::kGcSweepActive, "GCSweepActive", {Num("p")});
  Add(&s, Ev::kGcSweepBegin, "GCSweepBegin", {kStackArg});
  Add(&s, Ev::kGcSweepEnd, "GCSweepEnd", {Num("swept"), Num("reclaimed")});
  Add(&s, Ev::kGcMarkAssistActive, "GCMarkAssistActive", {Num("g")});
  Add(&s, Ev::kGcMarkAssistBegin, "GCMarkAssistBegin", {kStackArg});
  Add(&s, Ev::kGcMarkAssistEnd, "GCMarkAssistEnd", {});
  Add(&s, Ev::kHeapAlloc, "HeapAlloc", {Num("bytes")});
  Add(&s, Ev::kHeapGoal, "HeapGoal", {Num("bytes")});
  Add(&s, Ev::kGoLabel, "GoLabel", {Str("label")});
  Add(&s, Ev::kUserTaskBegin, "UserTaskBegin",
      {Num("task"), Num("parent"), Str("name"), kStackArg});
  Add(&s, Ev::kUserTaskEnd, "UserTaskEnd", {Num("task"), kStackArg});
  Add(&s, Ev::kUserRegionBegin, "UserRegionBegin",
      {Num("task"), Str("name"), kStackArg});
  Add(&s, Ev::kUserRegionEnd, "UserRegionEnd",
      {Num("task"), Str("name"), kStackArg});
  Add(&s, Ev::kUserLog, "UserLog",
      {Num("task"), Str("key"), Str("value"), kStackArg});
  Add(&s, Ev::kGoSwitch, "GoSwitch", {Num("g"), Num("g_seq")}, 23);
  Add(&s, Ev::kGoSwitchDestroy, "GoSwitchDestroy", {Num("g"), Num("g_seq")},
      23);
  Add(&s, Ev::kGoCreateBlocked, "GoCreateBlocked",
      {Num("g"), new_stack, kStackArg}, 23);
  Add(&s, Ev::kGoStatusStack, "GoStatusStack",
      {Num("g"), Num("m"), Num("status"), kStackArg}, 23);
  return s;
}

constexpr Specs kSpecs = MakeSpecs();

}  // namespace

const EventSpec& SpecOf(uint8_t type) { return kSpecs[type]; }

absl::string_view NameOf(GoStatus status) {
  switch (status) {
    case GoStatus::kNone:
      return "not known";
    case GoStatus::kRunnable:
      return "runnable";
    case GoStatus::kRunning:
      return "running";
    case GoStatus::kSyscall:
      return "in a call";
    case GoStatus::kWaiting:
      return "waiting";
  }
  return "invalid";
}

absl::string_view NameOf(ProcStatus status) {
  switch (status) {
    case ProcStatus::kNone:
      return "not known";
    case ProcStatus::kRunning:
      return "running";
    case ProcStatus::kIdle:
      return "idle";
    case ProcStatus::kSyscall:
      return "in a call";
    case ProcStatus::kSyscallAbandoned:
      return "abandoned in a call";
  }
  return "invalid";
}

}  // namespace trace_tool
