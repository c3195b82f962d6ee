// The rules of the partial order. For each rule there is a trace that keeps it
// and one that breaks it.
#include "tools/trace/order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/trace/made_trace.h"
#include "tools/trace/event_reader.h"

namespace trace_tool {
namespace {

struct Result {
  std::vector<Event> events;
  std::string fault;
};

Result Ordered(MadeTrace* trace) {
  const std::string bytes = trace->Bytes();
  Result result;
  absl::StatusOr<EventReader> reader = EventReader::Open(bytes);
  EXPECT_TRUE(reader.ok());
  bool kept = true;
  while (reader->Next()) {
    kept = reader->ForEachEvent(
        [&](const Event& e) { result.events.push_back(e); });
  }
  EXPECT_EQ(reader->status().ok(), kept) << reader->status();
  result.fault = std::string(reader->status().message());
  return result;
}

// The fault of a trace with one generation and these events of M 7 and M 8.
std::string Fault(absl::string_view on7, absl::string_view on8 = "") {
  MadeTrace trace;
  trace.Generation(1).M(7, on7);
  if (!on8.empty()) trace.M(8, on8);
  return Ordered(&trace.String(1, "one").String(2, "two")).fault;
}

std::string FaultOfTwo(absl::string_view first, absl::string_view second) {
  MadeTrace trace;
  trace.Generation(1).M(7, first).Generation(2).M(7, second);
  return Ordered(&trace).fault;
}

#define EXPECT_FAULT(fault, text)                                 \
  do {                                                            \
    const std::string the_fault = fault;                          \
    EXPECT_TRUE(absl::StrContains(the_fault, text)) << the_fault; \
  } while (false)

// M 7 runs goroutine 1 on P 0.
#define RUNNING "ProcStatus 0 1, GoStatus 1 7 2"

// ---- Messages ---------------------------------------------------------------

TEST(OrderTest, FaultNamesGenerationMEventAndByte) {
  MadeTrace trace;
  trace.Generation(1).M(7, RUNNING);
  const size_t size = trace.size();
  trace.M(9, "GoDestroy");
  EXPECT_EQ(Ordered(&trace).fault,
            absl::StrCat("generation 1, M 9, GoDestroy at byte ", size + 6,
                         ": its M has no P"));
}

TEST(OrderTest, WhereNoEventIsPossibleEachMSaysWhy) {
  const std::string fault =
      Fault(RUNNING ", GoUnblock 1 1 0", "ProcStatus 1 1, GoStart 2 1");
  EXPECT_FAULT(fault, "generation 1: no event is possible\n");
  EXPECT_FAULT(fault, "M 7, GoUnblock");
  EXPECT_FAULT(fault, "goroutine 1 is running, not waiting\n");
  EXPECT_FAULT(fault, "M 8, GoStart");
  EXPECT_FAULT(fault, "goroutine 2 has no status yet");
}

// ---- Events and their ids ---------------------------------------------------

TEST(OrderTest, EventRefersToDefinedStringsAndStacks) {
  MadeTrace good, string, stack;
  good.Generation(1).M(7, RUNNING ", GoBlock 5 6").String(5, "a").Stack(6, {});
  EXPECT_EQ(Ordered(&good).fault, "");
  string.Generation(1).M(7, RUNNING ", GoBlock 5 0").Stack(5, {});
  EXPECT_FAULT(Ordered(&string).fault, "it refers to string 5");
  stack.Generation(1).M(7, RUNNING ", GoBlock 0 6").String(6, "a");
  EXPECT_FAULT(Ordered(&stack).fault, "it refers to stack 6");
}

TEST(OrderTest, IdsOfAnotherGenerationAreNotDefined) {
  MadeTrace trace;
  trace.Generation(1).M(7, RUNNING).String(5, "a");
  trace.Generation(2).M(7, RUNNING ", GoBlock 5 0");
  EXPECT_FAULT(Ordered(&trace).fault, "generation 2, M 7, GoBlock");
}

TEST(OrderTest, UnknownEventIsRefused) {
  MadeTrace trace;
  trace.Generation(1).Batch(7, "\xc8\x01");
  EXPECT_FAULT(Ordered(&trace).fault, "event 200 does not exist");
  MadeTrace structure;
  structure.Generation(1).M(7, RUNNING).Batch(7, "\x0b\x01\x05\x01");
  EXPECT_FAULT(Ordered(&structure).fault, "String at byte");
  EXPECT_FAULT(Ordered(&structure).fault, "it may not stand between events");
}

TEST(OrderTest, EventOfALaterVersionIsRefused) {
  MadeTrace old(22), young(23);
  old.Generation(1).M(7, RUNNING ", GoCreateBlocked 2 0 0");
  EXPECT_FAULT(Ordered(&old).fault, "event 47 does not exist in go 1.22");
  young.Generation(1).M(7, RUNNING ", GoCreateBlocked 2 0 0");
  EXPECT_EQ(Ordered(&young).fault, "");
}

TEST(OrderTest, EventThatLeavesItsBatchIsRefused) {
  MadeTrace trace;
  trace.Generation(1).Batch(7, "\x0d\x01");
  EXPECT_FAULT(Ordered(&trace).fault, "ProcStatus at byte");
  EXPECT_FAULT(Ordered(&trace).fault, "it leaves its batch");
}

// ---- Statuses ---------------------------------------------------------------

TEST(OrderTest, GoroutineNeedsAStatusFirst) {
  EXPECT_EQ(Fault("ProcStatus 0 1, GoStatus 2 none 1, GoStart 2 1"), "");
  EXPECT_FAULT(Fault("ProcStatus 0 1, GoStart 2 1"),
               "goroutine 2 has no status yet");
}

TEST(OrderTest, PNeedsAStatusFirst) {
  EXPECT_EQ(Fault("ProcStatus 3 2, ProcStart 3 1"), "");
  EXPECT_FAULT(Fault("ProcStart 3 1"), "P 3 has no status yet");
}

TEST(OrderTest, EachGenerationNeedsStatusesAgain) {
  EXPECT_EQ(FaultOfTwo("ProcStatus 0 1, GoStatus 2 none 1",
                       "ProcStatus 0 1, GoStatus 2 none 1, GoStart 2 1"),
            "");
  EXPECT_FAULT(FaultOfTwo("ProcStatus 0 1, GoStatus 2 none 1",
                          "ProcStatus 0 1, GoStart 2 1"),
               "goroutine 2 has no status in this generation");
  EXPECT_FAULT(FaultOfTwo("ProcStatus 0 2", "ProcStart 0 1"),
               "P 0 has no status in this generation");
}

TEST(OrderTest, StatusAgreesWithTheGenerationBefore) {
  EXPECT_EQ(FaultOfTwo(RUNNING, RUNNING), "");
  EXPECT_FAULT(FaultOfTwo(RUNNING, "ProcStatus 0 1, GoStatus 1 none 4"),
               "goroutine 1 is waiting, but was running");
  EXPECT_FAULT(FaultOfTwo(RUNNING, "ProcStatus 0 2"),
               "P 0 is idle, but was running");
}

TEST(OrderTest, StatusOfANewGoroutineIsForTheFirstGeneration) {
  EXPECT_FAULT(FaultOfTwo(RUNNING, RUNNING ", GoStatus 5 none 4"),
               "goroutine 5 has not been created");
  EXPECT_EQ(FaultOfTwo(RUNNING, RUNNING ", GoCreate 5 0 0"), "");
}

TEST(OrderTest, StatusOutOfRangeIsRefused) {
  EXPECT_FAULT(Fault("GoStatus 1 7 5"), "goroutine 1 has the status 5");
  EXPECT_FAULT(Fault("ProcStatus 1 0"), "P 1 has the status 0");
}

// ---- Creation and end -------------------------------------------------------

TEST(OrderTest, IdOfALivingGoroutineIsNotUsedAgain) {
  EXPECT_EQ(
      Fault(RUNNING ", GoCreate 2 0 0, GoDestroy, GoStart 2 1, GoCreate 1 0 0"),
      "");
  EXPECT_FAULT(Fault(RUNNING ", GoCreate 2 0 0, GoCreate 2 0 0"),
               "goroutine 2 exists already");
  EXPECT_FAULT(Fault(RUNNING ", GoCreate 1 0 0"), "goroutine 1 exists already");
}

TEST(OrderTest, CreationNeedsAPButNoGoroutine) {
  EXPECT_EQ(Fault("ProcStatus 0 1, GoCreate 2 0 0"), "");
  EXPECT_FAULT(Fault("GoCreate 2 0 0"), "its M has no P");
  EXPECT_FAULT(Fault(RUNNING ", GoSyscallBegin 1 0, GoCreate 2 0 0"),
               "goroutine 1 is in a call, not running");
}

// ---- Sequence numbers -------------------------------------------------------

TEST(OrderTest, SequenceOfAGoroutineHasNoGaps) {
  EXPECT_EQ(Fault(RUNNING ", GoBlock 0 0, GoUnblock 1 1 0, GoStart 1 2"), "");
  EXPECT_FAULT(Fault(RUNNING ", GoBlock 0 0, GoUnblock 1 1 0, GoStart 1 3"),
               "its sequence number is 3, and goroutine 1 has had 1");
  EXPECT_FAULT(Fault(RUNNING ", GoBlock 0 0, GoUnblock 1 2 0"),
               "its sequence number is 2, and goroutine 1 has had 0");
}

TEST(OrderTest, SequenceOfAPHasNoGaps) {
  EXPECT_EQ(
      Fault(RUNNING ", GoSyscallBegin 1 0, GoSyscallEnd, GoSyscallBegin 2 0"),
      "");
  EXPECT_FAULT(Fault(RUNNING ", GoSyscallBegin 2 0"),
               "its sequence number is 2, and P 0 has had 0");
  EXPECT_FAULT(Fault("ProcStatus 0 1, ProcStop, ProcStart 0 2"),
               "its sequence number is 2, and P 0 has had 0");
}

TEST(OrderTest, SequencesBeginAgainInEachGeneration) {
  MadeTrace trace;
  trace.Generation(1).M(7,
                        RUNNING ", GoBlock 0 0, GoUnblock 1 1 0, GoStart 1 2");
  trace.Generation(2).M(7,
                        RUNNING ", GoBlock 0 0, GoUnblock 1 1 0, GoStart 1 2");
  EXPECT_EQ(Ordered(&trace).fault, "");
}

// The start is 5 µs too early by the clock of its M.
TEST(OrderTest, SequenceDecidesAndNotTheClock) {
  MadeTrace trace;
  trace.Generation(1).M(7,
                        "ProcStatus 0 1, GoStatus 1 7 2, +5000 GoCreate 2 0 0");
  trace.At(1000).M(8, "ProcStatus 1 1, +20 GoStart 2 1, GoBlock 0 0");
  const Result r = Ordered(&trace);
  ASSERT_EQ(r.fault, "");
  ASSERT_EQ(r.events.size(), 6u);
  EXPECT_EQ(r.events[3].type, Ev::kGoCreate);
  EXPECT_EQ(r.events[4].type, Ev::kGoStart);
  for (size_t i = 1; i < r.events.size(); ++i) {
    EXPECT_GE(r.events[i].ns, r.events[i - 1].ns);
  }
}

// ---- What an M has ----------------------------------------------------------

TEST(OrderTest, StartNeedsAPAndNoGoroutine) {
  EXPECT_FAULT(Fault("GoStatus 2 none 1, GoStart 2 1"), "its M has no P");
  EXPECT_FAULT(Fault(RUNNING ", GoStatus 2 none 1, GoStart 2 1"),
               "its M runs goroutine 1 already");
}

TEST(OrderTest, StopNeedsARunningGoroutine) {
  EXPECT_EQ(Fault(RUNNING ", GoStop 1 0"), "");
  for (const char* event : {"GoStop 0 0", "GoBlock 0 0", "GoDestroy"}) {
    EXPECT_FAULT(Fault(absl::StrCat("ProcStatus 0 1, ", event)),
                 "its M runs no goroutine");
    EXPECT_FAULT(Fault(absl::StrCat(RUNNING ", GoSyscallBegin 1 0, ", event)),
                 "goroutine 1 is in a call, not running");
  }
}

TEST(OrderTest, AnyThreadMayUnblock) {
  MadeTrace trace;
  trace.Generation(1).M(7, "GoStatus 1 none 4").M(kNoId, "GoUnblock 1 1 0");
  EXPECT_EQ(Ordered(&trace).fault, "");
}

TEST(OrderTest, OnlyAnMMayDoMost) {
  MadeTrace trace;
  trace.Generation(1).M(kNoId, "ProcStatus 0 1, ProcStop");
  EXPECT_FAULT(Ordered(&trace).fault, "M none, ProcStop");
  EXPECT_FAULT(Ordered(&trace).fault, "only an M can do that");
}

TEST(OrderTest, MStartsAPOnlyWithoutOne) {
  EXPECT_EQ(Fault("ProcStatus 0 1, ProcStatus 1 2, ProcStop, ProcStart 1 1"),
            "");
  EXPECT_FAULT(Fault("ProcStatus 0 1, ProcStatus 1 2, ProcStart 1 1"),
               "its M still has P 0");
}

TEST(OrderTest, MStopsAPOnlyWithOne) {
  EXPECT_EQ(Fault("ProcStatus 0 1, ProcStop"), "");
  EXPECT_FAULT(Fault("ProcStatus 0 2, ProcStop"), "its M has no P");
}

TEST(OrderTest, RunningPIsNotStarted) {
  EXPECT_FAULT(Fault("ProcStatus 0 1", "ProcStart 0 1"),
               "P 0 is running, not idle");
}

TEST(OrderTest, AnnotationsNeedARunningGoroutine) {
  for (const char* event :
       {"ProcsChange 2 0", "GoLabel 1", "UserLog 1 1 2 0", "STWBegin 1 0",
        "UserTaskBegin 1 0 1 0", "UserRegionBegin 0 1 0"}) {
    EXPECT_EQ(Fault(absl::StrCat(RUNNING ", ", event)), "");
    EXPECT_FAULT(Fault(absl::StrCat("ProcStatus 0 1, ", event)),
                 "its M runs no goroutine");
  }
}

TEST(OrderTest, HeapNeedsAP) {
  EXPECT_EQ(Fault("ProcStatus 0 1, HeapAlloc 100, HeapGoal 200"), "");
  EXPECT_FAULT(Fault("HeapAlloc 100"), "its M has no P");
}

// ---- Calls ------------------------------------------------------------------

TEST(OrderTest, CallBeginsOnceAndEndsOnce) {
  EXPECT_EQ(Fault(RUNNING ", GoSyscallBegin 1 0, GoSyscallEnd"), "");
  EXPECT_FAULT(Fault(RUNNING ", GoSyscallEnd"),
               "goroutine 1 is running, not in a call");
  EXPECT_FAULT(Fault(RUNNING ", GoSyscallBegin 1 0, GoSyscallBegin 2 0"),
               "goroutine 1 is in a call, not running");
}

TEST(OrderTest, BlockedCallEndsAfterThePIsStolen) {
  // The clock of M 7 says that the call ends before the theft.
  EXPECT_EQ(Fault(RUNNING ", GoSyscallBegin 1 0, GoSyscallEndBlocked",
                  "+900 ProcSteal 0 2 7, ProcStart 0 3, GoStart 1 1"),
            "");
  EXPECT_FAULT(Fault(RUNNING ", GoSyscallBegin 1 0, GoSyscallEndBlocked"),
               "P 0 has not been taken from its M");
  EXPECT_FAULT(Fault(RUNNING ", GoSyscallEndBlocked"),
               "goroutine 1 is running, not in a call");
}

TEST(OrderTest, MStopsItsPInACall) {
  EXPECT_EQ(
      Fault(
          RUNNING
          ", GoSyscallBegin 1 0, ProcStop, GoSyscallEndBlocked, ProcStart 0 2, "
          "GoStart 1 1"),
      "");
  EXPECT_EQ(
      Fault(
          RUNNING
          ", GoSyscallBegin 1 0, ProcStop, ProcStart 0 2, GoSyscallEndBlocked"),
      "");
}

TEST(OrderTest, CallWithoutItsPDoesNotEndAsAnother) {
  MadeTrace trace;
  trace.Generation(1).M(7, RUNNING ", GoSyscallBegin 1 0, +900 GoSyscallEnd");
  trace.At(1100).M(8, "ProcSteal 0 2 7");
  EXPECT_FAULT(Ordered(&trace).fault, "M 7, GoSyscallEnd");
  EXPECT_FAULT(Ordered(&trace).fault, "its M has no P");
}

TEST(OrderTest, TheftNamesTheMThatHasTheP) {
  EXPECT_FAULT(Fault(RUNNING ", GoSyscallBegin 1 0", "ProcSteal 0 2 9"),
               "from M 9, which is not known");
  MadeTrace trace;
  trace.Generation(1)
      .M(7, RUNNING ", GoSyscallBegin 1 0")
      .M(9, "ProcStatus 5 1");
  trace.M(8, "ProcSteal 0 2 9");
  EXPECT_FAULT(Ordered(&trace).fault, "from M 9, which has P 5");
}

TEST(OrderTest, OnlyAPInACallIsStolen) {
  EXPECT_FAULT(Fault(RUNNING, "ProcSteal 0 1 7"),
               "P 0 is running, not in a call");
  EXPECT_FAULT(Fault(RUNNING ", GoSyscallBegin 1 0", "ProcSteal 0 3 7"),
               "its sequence number is 3, and P 0 has had 1");
}

TEST(OrderTest, MStealsItsOwnP) {
  EXPECT_EQ(Fault(RUNNING
                  ", GoSyscallBegin 1 0, ProcSteal 0 2 7, GoSyscallEndBlocked"),
            "");
  EXPECT_FAULT(Fault("ProcStatus 0 3, ProcStatus 5 3, ProcSteal 0 1 7"),
               "P 0 is stolen from its own M, which has P 5");
}

TEST(OrderTest, GoroutineInACallNamesItsM) {
  EXPECT_EQ(Fault("ProcStatus 0 1, GoStatus 2 9 3"), "");
  EXPECT_FAULT(Fault("ProcStatus 0 1, GoStatus 2 none 3"),
               "is in a call without an M");
  EXPECT_FAULT(Fault("ProcStatus 0 1, GoStatus 2 9 3, GoStatus 3 9 3"),
               "goroutine 3 is in a call, but M 9 had goroutine 2");
}

TEST(OrderTest, CallMayLastThroughAGeneration) {
  MadeTrace good, bad;
  good.Generation(1)
      .M(7, RUNNING ", GoSyscallBegin 1 0")
      .M(8, "ProcStatus 1 1, ProcSteal 0 2 7");
  good.Generation(2).M(8, "ProcStatus 1 1, ProcStatus 0 2, GoStatus 1 7 3");
  good.Generation(3)
      .M(8, "ProcStatus 1 1, ProcStatus 0 2, GoStatus 1 7 3")
      .M(7, "GoSyscallEndBlocked");
  EXPECT_EQ(Ordered(&good).fault, "");
  bad.Generation(1)
      .M(7, RUNNING ", GoSyscallBegin 1 0")
      .M(8, "ProcStatus 1 1, ProcSteal 0 2 7");
  bad.Generation(2).M(8, "ProcStatus 1 1, GoStatus 1 8 3");
  EXPECT_FAULT(Ordered(&bad).fault,
               "goroutine 1 is in a call, but M 8 had none");
}

TEST(OrderTest, ThreadThatBorrowsAGoroutineIsInACall) {
  EXPECT_EQ(Fault("GoCreateSyscall 5, GoDestroySyscall, GoCreateSyscall 5"),
            "");
  EXPECT_FAULT(Fault("GoCreateSyscall 5, GoCreateSyscall 6"),
               "its M runs goroutine 5 already");
  EXPECT_FAULT(Fault(RUNNING ", GoDestroySyscall"),
               "goroutine 1 is running, not in a call");
  EXPECT_FAULT(Fault("GoCreateSyscall 5", "GoCreateSyscall 5"),
               "goroutine 5 exists already");
}

// The id of the thread may be another thread's by the time of the theft.
TEST(OrderTest, PThatItsThreadAbandonsIsStolenFromNoM) {
  EXPECT_EQ(Fault("ProcStatus 0 3, GoCreateSyscall 5, GoDestroySyscall",
                  "ProcStatus 1 1, +900 ProcSteal 0 1 none"),
            "");
  EXPECT_FAULT(Fault("ProcStatus 0 1, GoCreateSyscall 5, GoDestroySyscall"),
               "P 0 is not in a call");
}

TEST(OrderTest, AbandonedPIsOneThatAnMHad) {
  MadeTrace good, bad;
  good.Generation(1)
      .M(7, "ProcStatus 0 3")
      .Generation(2)
      .M(8, "ProcStatus 0 4, ProcSteal 0 1 7");
  EXPECT_EQ(Ordered(&good).fault, "");
  bad.Generation(1).M(7, "ProcStatus 0 2").Generation(2).M(8, "ProcStatus 0 4");
  EXPECT_FAULT(Ordered(&bad).fault, "P 0 is abandoned in a call, but was idle");
}

// ---- Switches ---------------------------------------------------------------

TEST(OrderTest, SwitchStartsAWaitingGoroutine) {
  EXPECT_EQ(Fault(RUNNING ", GoCreateBlocked 2 0 0, GoSwitch 2 1, GoSwitch 1 "
                          "1, GoSwitchDestroy 2 2, "
                          "GoCreate 1 0 0"),
            "");
  EXPECT_FAULT(Fault(RUNNING ", GoCreate 2 0 0, GoSwitch 2 1"),
               "goroutine 2 is runnable, not waiting");
  EXPECT_FAULT(Fault("ProcStatus 0 1, GoSwitch 2 1"),
               "its M runs no goroutine");
}

// ---- Ranges -----------------------------------------------------------------

TEST(OrderTest, StopOfTheWorldBeginsOnce) {
  EXPECT_EQ(Fault(RUNNING ", STWBegin 1 0, STWEnd, STWBegin 1 0, STWEnd"), "");
  EXPECT_FAULT(Fault(RUNNING ", STWBegin 1 0, STWBegin 1 0"),
               "it has begun already");
  EXPECT_FAULT(Fault(RUNNING ", STWEnd"), "no STWBegin precedes it");
}

TEST(OrderTest, SweepIsOfAPAndAssistOfAGoroutine) {
  EXPECT_EQ(Fault(RUNNING ", GCSweepBegin 0, GCMarkAssistBegin 0, "
                          "GCMarkAssistEnd, GCSweepEnd 1 2"),
            "");
  EXPECT_FAULT(Fault(RUNNING ", GCSweepBegin 0, GCSweepBegin 0"),
               "it has begun already");
  EXPECT_FAULT(Fault(RUNNING ", GCMarkAssistEnd"),
               "no GCMarkAssistBegin precedes it");
}

TEST(OrderTest, ActiveRangeContinuesOneOfTheGenerationBefore) {
  EXPECT_EQ(FaultOfTwo(RUNNING ", GCMarkAssistActive 1",
                       RUNNING ", GCMarkAssistActive 1"),
            "");
  EXPECT_FAULT(FaultOfTwo(RUNNING, RUNNING ", GCMarkAssistActive 1"),
               "no GCMarkAssistBegin precedes it");
  EXPECT_FAULT(FaultOfTwo(RUNNING, RUNNING ", GCSweepActive 0"),
               "no GCSweepBegin precedes it");
  EXPECT_FAULT(Fault(RUNNING ", GCMarkAssistBegin 0, GCMarkAssistActive 1"),
               "active already");
}

TEST(OrderTest, RegionsNest) {
  EXPECT_EQ(Fault(RUNNING ", UserRegionBegin 0 1 0, UserRegionBegin 0 2 0, "
                          "UserRegionEnd 0 2 0, "
                          "UserRegionEnd 0 1 0"),
            "");
  EXPECT_EQ(Fault(RUNNING ", UserRegionEnd 0 1 0"),
            "");  // it began before the trace
  EXPECT_FAULT(
      Fault(RUNNING ", UserRegionBegin 0 1 0, UserRegionBegin 0 2 0, "
                    "UserRegionEnd 0 1 0"),
      "region \"one\" of task 0 ends inside of region \"two\" of task 0");
  EXPECT_FAULT(Fault(RUNNING ", UserRegionBegin 4 1 0, UserRegionEnd 5 1 0"),
               "task 5 ends inside");
}

TEST(OrderTest, RegionsNestByNameAndNotById) {
  MadeTrace trace;
  trace.Generation(1).M(7, RUNNING ", UserRegionBegin 0 1 0").String(1, "one");
  trace.Generation(2).M(7, RUNNING ", UserRegionEnd 0 5 0").String(5, "one");
  EXPECT_EQ(Ordered(&trace).fault, "");
}

TEST(OrderTest, GoroutineThatEndsTakesItsRegionsAlong) {
  EXPECT_EQ(Fault(RUNNING ", UserRegionBegin 0 1 0, GoCreate 2 0 0, GoDestroy, "
                          "GoStart 2 1, GoCreate 1 0 0, "
                          "GoDestroy, GoStart 1 1, UserRegionEnd 0 2 0"),
            "");
}

TEST(OrderTest, TaskBeginsOnce) {
  EXPECT_EQ(
      Fault(RUNNING
            ", UserTaskBegin 3 0 1 0, UserTaskEnd 3 0, UserTaskBegin 3 0 1 0"),
      "");
  EXPECT_EQ(Fault(RUNNING ", UserTaskEnd 3 0"), "");
  EXPECT_FAULT(Fault(RUNNING ", UserTaskBegin 3 0 1 0, UserTaskBegin 3 0 1 0"),
               "task 3 has begun already");
}

TEST(OrderTest, CyclesOfTheCollectorAlternate) {
  EXPECT_EQ(Fault(RUNNING ", GCBegin 4 0, GCEnd 5, GCBegin 6 0"), "");
  EXPECT_EQ(Fault(RUNNING ", GCActive 4, GCEnd 5"), "");
  EXPECT_FAULT(Fault(RUNNING ", GCBegin 4 0, GCBegin 5 0"),
               "a cycle is active already");
  EXPECT_FAULT(Fault(RUNNING ", GCEnd 1"), "no cycle is active");
  EXPECT_FAULT(Fault(RUNNING ", GCBegin 4 0, GCEnd 6"),
               "the number of the cycle is 6, and 5 is next");
  EXPECT_FAULT(Fault(RUNNING ", GCBegin 4 0, GCActive 4"),
               "not the first event of the collector");
}

}  // namespace
}  // namespace trace_tool
