// The interfaces between the parts of the model checker.
#ifndef TESTS_MODEL_CHECKER_H_
#define TESTS_MODEL_CHECKER_H_

#include <cstddef>
#include <cstdint>

namespace gump::model {

inline constexpr int kMaxThreads = 10;

// ---- seam.cc: the kernel, for os.cc -----------------------------------------

// inSchedule tells whether a virtual thread is running.
bool inSchedule();
// futexWait sleeps while *addr == val, at most ns (negative: for ever).
void futexWait(const void* addr, uint32_t val, int64_t ns);
int32_t futexWake(const void* addr, uint32_t cnt);
void yieldThread();
void sleepThread(int64_t ns);
int64_t clockNow();
// barrierAll makes the delayed stores of all threads visible.
void barrierAll();
// beforeFree: an allocator orders the thread that frees memory before the
// thread that gets it next.
void beforeFree();

// ---- world.cc: memory -------------------------------------------------------

// One range of addresses, the same in every process, holds the stacks of
// virtual threads and all that the library allocates.
char* stackOf(int thread, size_t* size);
void* sysPages(size_t n);
bool isFreed(uintptr_t addr);
// isShared tells whether addr is in that range or in one of the program's
// variables. A thread-local does not count, because virtual threads have none
// of their own.
bool isShared(uintptr_t addr);
// While it is on, operator new takes memory from that range. Freed memory is
// not used again, so that an access to it is noticed.
void useArena(bool on);
// snapshot remembers the program's variables and the range; restore puts them
// back.
void snapshot();
void restore();

// ---- races.cc: happens-before -----------------------------------------------

struct Clock {
  uint32_t at[kMaxThreads] = {};
  void join(const Clock& c) {
    for (int i = 0; i < kMaxThreads; i++) {
      if (c.at[i] > at[i]) at[i] = c.at[i];
    }
  }
};
// The clocks of a thread.
struct Clocks {
  Clock now;
  Clock released;  // at the last release fence
  Clock observed;  // by relaxed loads, for the next acquire fence
};
// racesBegin forgets all plain accesses.
void racesBegin();
// plainAccess checks an access that is not atomic against all earlier ones.
void plainAccess(uintptr_t addr, unsigned size, bool write, const void* pc);
// currentClocks returns the clocks of the running thread and stores its number
// in *thread. Returns nullptr if no thread is running.
Clocks* currentClocks(int* thread);
[[noreturn]] void failRace(uintptr_t addr, bool write, int other,
                           bool otherWrote, const void* pc,
                           const void* otherPc);

}  // namespace gump::model

#endif  // TESTS_MODEL_CHECKER_H_
