// The state of the model checker, and the operations of its parts.
#ifndef TESTS_MODEL_STATE_H_
#define TESTS_MODEL_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/model/atomic.h"
#include "tests/model/checker.h"
#include "tests/model/model.h"

namespace gump::rt {
struct G;
}  // namespace gump::rt

namespace gump::model {

inline constexpr uint32_t kMaxPoints = 10000;  // more: no thread gets anywhere
inline constexpr uint32_t kMaxChoices = kMaxPoints;
inline constexpr uint32_t kWords = 1 << 14;
inline constexpr int kMaxDelayed = 8;
inline constexpr int kMaxNames = 64;
inline constexpr int kChangePoints = 3;  // of a random schedule

enum class State : uint8_t { kUnused, kRunnable, kAsleep, kDone };

struct Delayed {
  const void* addr;
  unsigned size;
  uint64_t value;
  Clock released;  // the clock that an acquire of it brings
};

struct Thread {
  const char* name;
  void (*body)(void*);
  void* arg;
  bool mustEnd;
  bool daemon;  // see spawnDaemon
  State state;
  const void* futex;  // it sleeps on this, or for a time if this is nullptr
  int64_t deadline;   // -1: none
  bool yielded;       // it did, and no other thread has run since
  bool preempted;
  bool justified;  // (E2)
  const void* pending;
  bool pendingWrite;
  bool delayIdle;  // a delay that no thread has noticed so far
  int delayed;
  Delayed stores[kMaxDelayed];
  void* sp;
  rt::G* g;
  Clocks clocks;
  int priority;
};

struct Word {
  const void* addr;
  uint16_t readers, writers;
  bool shared;  // (E1)
  uint32_t schedule;
  Clock released;
};

struct Choice {
  uint8_t taken, of;
};

// Note records that at a point something other than the usual was chosen.
struct Note {
  uint32_t point;
  char kind;  // s: switch to thread, d: delay a store, i: input
  int value;
};

enum class Search : uint8_t { kExhaustive, kRandom, kReplay };
enum class End : uint8_t { kDone, kEqual, kFailed };

// Checker lies outside of the memory that a restore touches.
struct Checker {
  const Model* model;
  Search search;
  Bounds bounds;
  bool trace;

  int nthreads;
  int nthreadsThen;
  Thread threads[kMaxThreads];
  Thread threadsThen[kMaxThreads];
  int current;  // -1: none
  void* mainSp;
  End end;
  bool finishing;
  char why[512];

  uint32_t points;
  uint32_t maxPoints;
  int preemptions;
  int delays;
  int64_t now;
  int64_t nowThen;

  Choice choices[kMaxChoices];
  uint32_t depth;
  uint32_t nchoices;
  Note notes[kMaxChoices];
  uint32_t nnotes;
  Note replay[kMaxChoices];
  uint32_t nreplay;

  Word words[kWords];
  uint32_t nwords;
  bool newShared;
  uint32_t schedule;

  uint64_t rand;
  uint32_t changes[kChangePoints];

  struct Name {
    const void* addr;
    const char* name;
  } names[kMaxNames];
  int nnames;
};

extern Checker* ck;

inline uint64_t readWord(const void* addr, unsigned size) {
  uint64_t v = 0;
  memcpy(&v, addr, size);
  return v;
}

inline Thread& self() { return ck->threads[ck->current]; }

// ---- schedule.cc: one schedule ----------------------------------------------

// say prints a line of the trace, if there is one. pc is the place of the
// event.
__attribute__((format(printf, 2, 3))) void say(const void* pc,
                                               const char* format, ...);
const char* wordName(const void* addr, char* buf, size_t n);

uint64_t random64();
Word& wordOf(const void* addr);
// Every access begins with point, where other threads may run. With mustLive it
// fails if the word has been freed.
void point(const void* addr, bool write, bool mustLive = true);
// touch says that the current thread has accessed a word.
void touch(const void* addr, bool write);
// pass lets another thread run, because this one cannot go on or does not want
// to. With mayStay the search may choose this one all the same.
void pass(bool mayStay);
// othersCanRun tells whether there is a thread to pass to.
bool othersCanRun();

// Stores that other threads do not see yet. drain makes those of the current
// thread visible, after other threads may have run. flushOne makes one store of
// any thread visible.
const Delayed* delayedAt(const Thread& t, const void* addr);
bool mayDelay(const void* addr);
bool mayFollow(const void* addr);
void delay(const Delayed& d);
void drain();
void flush(Thread& t);
void flushOne(const Thread& t, const Delayed& d);

// beginHere makes the present state the one with which every schedule begins.
// run executes one schedule.
void beginHere();
End run();

}  // namespace gump::model

#endif  // TESTS_MODEL_STATE_H_
