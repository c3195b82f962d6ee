// Hibernation: a goroutine that has been parked for long gives the pages of its
// stack away. What stays is a copy of the bytes that it will use when it goes
// on, its image. In these files, such a goroutine sleeps. hibernate.cc has the
// protocol.
#ifndef RUNTIME_SCHED_HIBERNATE_H_
#define RUNTIME_SCHED_HIBERNATE_H_

#include <cstdint>

#include "runtime/sched/stack.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct Arena;
struct G;

// SleepWords has a word for each slot of an arena, which says where the bytes
// of the stack there are (hibernate.cc).
struct SleepWords {
  Arena* arena = nullptr;      // constant, as is its cell once it has words
  SleepWords* next = nullptr;  // in the list of all; constant
  Atomic<bool> watched;        // written under a lock, and by a pass
  Atomic<bool> gone;           // the arena is being unmapped, or was
  Atomic<int32_t> asleep;      // slots whose stack is away
  // Bit i is set if a stack of the arena's i-th page table has gone away since
  // the table was last freed. Set by hibernateStack, cleared by hibernateTidy.
  Atomic<uint64_t> tables;
  Atomic<uintptr_t> words[1];
};

// hibernateAfter is the time in ns for which a goroutine has to be parked
// before it sleeps; 0: none sleeps. hibernateinit, called by schedinit, takes
// it from GODEBUG.
// On: any.  P: either.  Locks: none.  Parks: no.
extern Atomic<int64_t> hibernateAfter;
void hibernateinit();

// stacksAway is false if no stack is away. If it is true, some may be. Written
// by passes. It is on a line of its own, because all wakers read it.
struct alignas(kCacheLine) HibernateHint {
  Atomic<bool> stacksAway;
};
extern HibernateHint hibernateHint;
// bringNear brings back the stack in which p lies, if it is away. The goroutine
// goes on sleeping. It is a hint: if there is no memory, nothing happens.
// On: any.  P: either.  Locks: none.  Parks: no.
void bringNear(const void* p);
// A waker calls nearStack before it touches memory of a goroutine that may be
// asleep. If the stack is away, that takes a third of the time of the fault
// that it avoids (decision 014).
// On, P, Locks, Parks: as bringNear.
GUMP_ALWAYS_INLINE void nearStack(const void* p) {
  if (GUMP_UNLIKELY(hibernateHint.stacksAway.load(relaxed))) bringNear(p);
}

// hibernateDue starts a pass if one is due. hibernateSleep returns the time in
// ns for which sysmon may sleep although all Ps are idle.
// On: sysmon.  P: none.  Locks: takes sched.lock.  Parks: no.
void hibernateDue(int64_t now);
[[nodiscard]] int64_t hibernateSleep(int64_t now);

// A pass (hibernatePass of reclaim.cc) calls these. hibernateBegin returns
// false if goroutines cannot hibernate, or not yet. If they never can, it says
// so once on standard error. hibernateVisit puts gp to sleep if it has been
// parked for long enough. hibernateEnd is called when all goroutines have been
// visited.
// On: a goroutine.  P: either.  Locks: takes leaves.  Parks: no.
[[nodiscard]] bool hibernateBegin();
void hibernateVisit(G* gp, void*);
void hibernateEnd();

// hibernateSoon lets passes come at their usual rate again.
// On: any.  P: either.  Locks: none.  Parks: no.
void hibernateSoon();

// hibernatePages maps the pages that the functions below need. Called once.
// Returns false if there is no memory.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool hibernatePages();
// hibernateStack takes the pages of gp's stack away. The caller holds gp's scan
// bit. Returns false if that cannot be done now.
// On: any, m.locks > 0.  P: either.  Locks: takes leaves.  Parks: no.
[[nodiscard]] bool hibernateStack(G* gp);
// wakeStack brings them back. gp was kGhibernated, and has just left kGwaiting.
// The caller is its waker, and has not queued gp yet.
// On: any.  P: either.  Locks: none.  Parks: no.
void wakeStack(const G* gp);
// freeTable frees the page table of [at, at + n), in which slots first to last
// have memory, if all of their stacks are away. Returns false if they are not.
// On: any, m.locks > 0.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool freeTable(SleepWords* words, uint32_t first, uint32_t last,
                             uintptr_t at, size_t n);
// answerFault answers a fault at a page of a watched range. Returns false if it
// must be called again later, because the word of the slot is locked.
// On: the thread that answers faults.  P: none.  Locks: none.  Parks: no.
[[nodiscard]] bool answerFault(uintptr_t page);
// answerFaults reads faults and answers them, for ever.
// On: gump-faults.  P: none.  Locks: none.  Parks: no.
[[noreturn]] void answerFaults();

// hibernateTidy frees page tables of which all stacks are away, ends watches
// that are no longer needed, and frees images. hibernateImagesLeft returns true
// if there are images to free.
// On: the goroutine of a pass; any.  P: either.  Locks: takes leaves.
// Parks: no.
void hibernateTidy();
[[nodiscard]] bool hibernateImagesLeft();

// hibernateForget is called before an arena is unmapped. No slot of it is in
// use. Its cell must not be used again.
// On: any.  P: either.  Locks: none.  Parks: no.
void hibernateForget(Arena* a);

// The handlers of fork (fork.cc).
void hibernateBeforeFork();
void hibernateAfterFork();
void hibernateInChild();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_HIBERNATE_H_
