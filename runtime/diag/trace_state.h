// The state of the execution trace, which only the files trace*.cc share.
#ifndef RUNTIME_DIAG_TRACE_STATE_H_
#define RUNTIME_DIAG_TRACE_STATE_H_

#include <cstdint>

#include "runtime/diag/trace.h"
#include "runtime/diag/trace_buf.h"
#include "runtime/diag/trace_clock.h"
#include "runtime/sched/g.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

// The numbers of internal/trace/tracev2.
enum class TraceEv : uint8_t {
  kEventBatch = 1,
  kStacks = 2,
  kStack = 3,
  kStrings = 4,
  kString = 5,
  kCPUSamples = 6,
  kCPUSample = 7,
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
  kSTWBegin = 26,
  kSTWEnd = 27,
  kUserTaskBegin = 40,
  kUserTaskEnd = 41,
  kUserRegionBegin = 42,
  kUserRegionEnd = 43,
  kUserLog = 44,
};
enum class TraceGo : uint8_t {
  kRunnable = 1,
  kRunning = 2,
  kSyscall = 3,
  kWaiting = 4,
};
enum class TraceProc : uint8_t {
  kRunning = 1,
  kIdle = 2,
  kSyscall = 3,
  kSyscallAbandoned = 4,
};

// The ids of strings that every generation has. The ids of all others follow.
enum TraceString : uint32_t {
  kTraceGosched = 1,
  kTracePreempted = 2,
  kTraceBlockFirst = 3,  // and from here on one for each WaitReason
  kTraceStringFirst = 64,
};

// The format only has goroutines that a running P creates. Where a thread
// without a P creates one, the trace shows this P on this thread.
inline constexpr uint64_t kNoProcP = 1024;
inline constexpr uint64_t kNoProcThread = uint64_t{1} << 40;

// The P of a CPU sample of a thread that has none.
inline constexpr uint64_t kNoTraceProc = ~uint64_t{0};
// The first word of the stack of a CPU sample in TraceState::stacks. It is no
// address. It says that readers also get the innermost frames of the runtime.
inline constexpr uintptr_t kTraceWholeStack = ~uintptr_t{0};

struct TraceState {
  // The current generation, or 0 if no trace is being written.
  Atomic<uint64_t> gen;
  // Bytes of full buffers since the generation began: a hint for sysmon.
  Atomic<uint64_t> bytes;
  // The number of the main goroutine in the trace. Each Run has a goroutine 1,
  // and readers could not tell whether the next one is created after the last
  // one has ended.
  Atomic<uint64_t> mainId{kMainGoid};

  // The arrays below are indexed by the parity of the generation.
  // The kernel had no memory for an event, so the generation is of no use.
  Atomic<bool> failed[2];
  TraceBufs full[2];
  TraceTable stacks[2];
  TraceTable strings[2];
  // By parity of the generation. Written before `gen`.
  TraceClock clock[2];

  // now returns the time of an event of this generation.
  int64_t now(uint64_t generation) const { return clock[generation % 2].now(); }
};
extern TraceState traceState;

// traceGoid returns the number by which the trace knows goroutine goid.
inline uint64_t traceGoid(uint64_t goid) {
  return goid == kMainGoid ? traceState.mainId.load(relaxed) : goid;
}

// TraceScope makes one or more events, and the changes that they report, one
// step for the thread that ends the generation (trace.cc). It may be nested.
class TraceScope {
 public:
  // gp is used where the thread has no current G yet.
  explicit TraceScope(const G* gp = nullptr);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  bool on() const { return gen_ != 0; }
  uint64_t gen() const { return gen_; }
  M* m() const { return mp_; }

  // room returns a buffer of this thread with room for an event, or nullptr if
  // the kernel has no memory.
  TraceBuf* room();
  // event writes an event of this thread.
  template <class... Args>
  void event(TraceEv type, Args... args) {
    if (TraceBuf* b = room()) b->event(type, now(), args...);
  }
  // ownP writes the status of this thread's P, if it is not known.
  void ownP(TraceProc status);
  // procStatus writes the status of pp.
  void procStatus(const P* pp, TraceProc status);
  // goStatus writes the status of gp if it is not known.
  void goStatus(G* gp, TraceGo status);
  // claimLoss writes the event that TraceM::Loss stands for, if it is of this
  // generation.
  void claimLoss();
  uint64_t stackHere();              // of the current goroutine
  uint64_t stackSaved(const G* gp);  // of gp, whose context is saved
  uint64_t string(const char* text, size_t size) const;

 private:
  void goStatusEvent(const G* gp, TraceGo status);
  // now returns the time of all events of the outermost TraceScope.
  int64_t now();

  M* mp_ = nullptr;
  uint64_t gen_ = 0;
};

// traceThread returns the number by which the trace knows the thread of mp.
// Foreign threads have numbers of their own. A thread that uses the library and
// then calls Run is two threads in a trace: a foreign thread with a pseudo-G,
// and then m0.
uint64_t traceThread(const M* mp);
// traceMarkOf returns the mark of gp. It makes one at the first call. Returns
// nullptr if there is no memory.
TraceMark* traceMarkOf(G* gp);
// traceTakeSamples moves the CPU samples of mp in generation gen, which has
// ended, to the list of full buffers.
// On: any.  P: either.  Locks: traceSema is held.  Parks: no.
void traceTakeSamples(M* mp, uint64_t gen);
// traceWriteLoss writes the event of the loss of mp into *b.
void traceWriteLoss(const TraceM::Loss& loss, uint64_t gen, uint64_t tid,
                    TraceBuf* b);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACE_STATE_H_
