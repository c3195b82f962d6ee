// What the parts of the model checker know of each other.
#ifndef TESTS_MODEL_CHECKER_H_
#define TESTS_MODEL_CHECKER_H_

#include <cstddef>
#include <cstdint>

namespace gump::model {

inline constexpr int kMaxThreads = 10;

// ---- seam.cc: what os.cc makes of the kernel -------------------------------

// inSchedule tells whether a virtual thread is running.
bool inSchedule();
// futexWait sleeps while *addr == val, at most ns (negative: for ever).
void futexWait(const void* addr, uint32_t val, int64_t ns);
void futexWake(const void* addr, uint32_t cnt);
void yieldThread();
void sleepThread(int64_t ns);
int64_t clockNow();
// barrierAll makes the delayed stores of all threads visible.
void barrierAll();
// beforeFree: an allocator synchronises who frees with who gets the memory.
void beforeFree();

// ---- world.cc: memory -------------------------------------------------------

// One range of addresses, the same in every process, holds the stacks of
// virtual threads and all that the library allocates.
char* stackOf(int thread, size_t* size);
void* sysPages(size_t n);
bool isFreed(uintptr_t addr);
// isShared tells whether addr is in that range or one of the program's
// variables; a thread-local is not, virtual threads having none of their own.
bool isShared(uintptr_t addr);
// While this is set operator new takes from that range, and what is freed stays
// unused, so that an access to it is noticed.
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
// What synchronises a thread.
struct Clocks {
  Clock now;
  Clock released;  // at the last release fence
  Clock observed;  // by relaxed loads, for the next acquire fence
};
// racesBegin forgets all plain accesses.
void racesBegin();
// plainAccess checks an access that is not atomic against all earlier ones.
void plainAccess(uintptr_t addr, unsigned size, bool write, const void* pc);
// current is the running thread and its clocks; nullptr: none.
Clocks* currentClocks(int* thread);
[[noreturn]] void failRace(uintptr_t addr, bool write, int other,
                           bool otherWrote, const void* pc,
                           const void* otherPc);

}  // namespace gump::model

#endif  // TESTS_MODEL_CHECKER_H_
