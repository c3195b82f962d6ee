// The window for gump/runtime.h: yielding, ending, tuning, inspecting, and
// reclamation. linkname.h gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_RUNTIME_H_
#define GUMP_INTERNAL_LINKNAME_RUNTIME_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump::rt {

struct FuncType;

// gosched lets other goroutines run, or yields a foreign thread.
void gosched() noexcept;
// goexit unwinds the goroutine and ends it. It is not noexcept, because a
// forced unwind passes through it.
[[noreturn]] void goexit();
// setGOMAXPROCS sets the number of Ps, if n > 0, and returns the previous
// number.
int32_t setGOMAXPROCS(int32_t n) noexcept;
// setDefaultGOMAXPROCS sets the number of Ps to the machine's default. From
// then on the number follows that default.
void setDefaultGOMAXPROCS() noexcept;
// numCPU returns the number of processors that the process started with.
int32_t numCPU() noexcept;
// numNode returns the number of NUMA nodes that have Ps. nodeOfCaller returns
// the number of that of the caller's P, or 0 if it has none.
int32_t numNode() noexcept;
int32_t nodeOfCaller() noexcept;
// numGoroutine returns the number of goroutines, without the runtime's own.
int32_t numGoroutine() noexcept;
// currentGoid returns the number of the calling goroutine or foreign thread.
// Returns 0 on a foreign thread that has no pseudo-G yet.
uint64_t currentGoid() noexcept;
// lockOSThreadExternal binds the calling goroutine to its thread, and counts
// its calls. Returns false if the count would overflow.
[[nodiscard]] bool lockOSThreadExternal() noexcept;
// unlockOSThreadExternal undoes one call of lockOSThreadExternal, if there is
// one.
void unlockOSThreadExternal() noexcept;
// ThreadHookFuncs are the functions of runtime::SetThreadHooks. A function that
// is nullptr is not called.
struct ThreadHookFuncs {
  void (*on_start)(void* arg) = nullptr;
  void (*on_end)(void* arg) = nullptr;
  void* arg = nullptr;
};
// setThreadHooks sets the hooks and stores the arg of the previous ones in
// *old. Returns false if the runtime has started; then nothing is changed.
[[nodiscard]] bool setThreadHooks(const ThreadHookFuncs& next,
                                  void** old) noexcept;
// ThreadAffinity is runtime::Affinity. setAffinity sets how threads are bound
// from now on.
enum class ThreadAffinity : uint8_t { kNone, kNode, kCore };
void setAffinity(ThreadAffinity wanted) noexcept;
// setMaxThreads and setMaxStack set the limits of debug::SetMaxThreads and
// debug::SetMaxStack, and return the previous limit.
int32_t setMaxThreads(int32_t n) noexcept;
size_t setMaxStack(size_t n) noexcept;
// setHibernation sets the time in ns after which parked goroutines hibernate,
// or 0, and returns the previous one.
int64_t setHibernation(int64_t after) noexcept;
// runtimeGC runs one reclamation cycle.
void runtimeGC() noexcept;
// gracePeriodsBegun returns how many grace periods have begun.
uint64_t gracePeriodsBegun() noexcept;
// awaitGracePeriod parks until a grace period with a number above `since` has
// ended. By then, each goroutine that was running when the period began has
// entered the runtime or ended, even if it was preempted or presumed blocked
// meanwhile. Only the finalizer goroutine calls it.
void awaitGracePeriod(uint64_t since) noexcept;

// SchedStats is the result of debug::ReadSchedStats, and documented there.
struct SchedStats {
  int32_t procs = 0;
  int32_t idle_procs = 0;
  int32_t threads = 0;
  int32_t idle_threads = 0;
  int32_t spinning_threads = 0;
  int32_t goroutines = 0;
  int32_t runnable = 0;
  int32_t preempted_in_place = 0;
  int32_t presumed_blocked = 0;
  uint64_t preemptions = 0;
  uint64_t presumptions = 0;
  uint64_t world_stops = 0;
  uint64_t world_stop_ns = 0;
  uint64_t reclaim_cycles = 0;
  uint64_t forced_reclaim_cycles = 0;
  uint64_t reclaim_worker_slabs = 0;
  uint64_t stack_bytes_reclaimed = 0;
  uint64_t threads_retired = 0;
  uint64_t stalls = 0;
  uint64_t stale_events = 0;
  int32_t nodes = 0;
  uint64_t node_runs = 0;
  uint64_t node_moves = 0;
  uint64_t node_steals = 0;
  uint64_t node_steals_across = 0;
};
// readSchedStats reads the counters one after the other.
void readSchedStats(SchedStats* out) noexcept;

// reclaimRegister makes every reclamation cycle call hook. A hook that is
// registered several times is called once in a cycle. Returns false if there
// are too many hooks.
[[nodiscard]] bool reclaimRegister(void (*hook)()) noexcept;
// queueFinalizer relocates *closure to the queue of the finalizer goroutine.
// Returns false if there is no memory; then *closure is still the caller's.
[[nodiscard]] bool queueFinalizer(const FuncType* ft, void* closure) noexcept;
// A BufferGrower makes a buffer at least *size bytes large. It keeps the bytes
// that are in the buffer, stores the new size in *size and returns the new
// address. Returns nullptr if there is no memory. It throws nothing.
using BufferGrower = char* (*)(void* arg, size_t* size);
// stackDump writes a traceback in Go's format, of the current goroutine or of
// all, into the buffer that grow(arg, ...) makes. The buffer is empty at first.
// stackDump calls grow on the caller's goroutine, and never while the world is
// stopped. Returns the number of bytes that the whole text needs. If grow has
// failed, the buffer has only the beginning of the text.
size_t stackDump(bool all, BufferGrower grow, void* arg) noexcept;
// A TextSink takes n bytes of a text. Returns false if it takes no more. It may
// park. It throws nothing.
using TextSink = bool (*)(void* arg, const char* text, size_t n);
// stackStream passes the text of stackDump, of all goroutines, to sink(arg,
// ...) on the caller's goroutine. The text goes through `buffer`, in parts of
// up to `size` bytes, so it is never in memory as a whole. stackStream stops
// the world as stackDump does, but not while it calls sink. Returns false if
// sink has.
bool stackStream(char* buffer, size_t size, TextSink sink, void* arg) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_RUNTIME_H_
