// Goroutine dumps in Go's form: what fatal errors, SIGQUIT and runtime::Stack
// print.
//
//   goroutine 7 [chan receive, 3 minutes, locked to thread, name "worker"]:
//   shop::Serve(...)
//   	/usr/bin/shop +0x41d2
//   created by main in goroutine 1
//   	/usr/bin/shop +0x3b07
//
// Where Go prints a file and a line, we print the module and an address that
// `addr2line -Cfie MODULE ADDRESS` turns into them: reading DWARF is too much
// for a dying process. A name given by GoOptions stands last in the brackets.
#ifndef RUNTIME_TRACEBACK_H_
#define RUNTIME_TRACEBACK_H_

#include <cstdint>

#include "runtime/print.h"
#include "runtime/runtime2.h"

namespace gump::rt {

// TracebackMode is what GOTRACEBACK asks for.
struct TracebackMode {
  int32_t level = 1;   // 0: no stacks; 1: the user's frames; 2: also ours
  bool all = false;    // every goroutine, not just the one that failed
  bool crash = false;  // end in SIGABRT
};

// parseTraceback reads a value of GOTRACEBACK; nullptr and unknown words as Go
// does.
[[nodiscard]] TracebackMode parseTraceback(const char* value);
// gotraceback is the mode for a failure of this kind: a broken invariant shows
// the runtime's frames, and whatever is no panic shows every goroutine, unless
// the environment says none.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] TracebackMode gotraceback(int32_t throwing);
// tracebackinit reads GOTRACEBACK and readies the unwinder and the symboliser.
// Called by schedinit.
void tracebackinit();

// StackFrom says where the stack of the failing thread begins.
enum class StackFrom : uint8_t {
  kHere,    // in the caller
  kSignal,  // in the code that the running signal handler interrupted
};

// tracebackCrash prints to standard error the current goroutine and, with
// mode.all, all others. It runs while other threads may still run: they are
// shown without a stack.
// On: any.  P: either.  Locks: none (scan bits).  Parks: no.
void tracebackCrash(const TracebackMode& mode, int32_t throwing,
                    StackFrom from);
// tracebackThread prints to standard error what this thread was doing when the
// running signal handler interrupted it.
// On: signal stack.  P: either.  Locks: none.  Parks: no.
void tracebackThread(const TracebackMode& mode);

// Ancestors are the goroutines that led to one: who made it, who made that one,
// and so on, as far as they were asked for, each with the calls by which it
// came to make the next. Written before the goroutine can run, then constant.
struct Ancestors {
  struct One {
    static constexpr uint32_t kKeep = 50;  // as Go

    uint64_t goid;
    uintptr_t gopc;  // as in G
    uint32_t kept;
    bool more;  // there were more calls than these
    uintptr_t pcs[kKeep];
  };

  uint32_t count = 0;  // from here on outwards
  One of[];

  size_t bytes() const { return sizeof(Ancestors) + count * sizeof(One); }
};

// saveAncestors notes who makes gp, which nobody else knows yet.
// On: user, the goroutine that makes gp; or any other.  P: either.
// Locks: none.  Parks: no.
void saveAncestors(G* gp);

// The parts of a dump: goroutines by traceback.cc, frames by
// traceback_frames.cc.

struct Frames;

// GRecord is what a dump says about a goroutine, or a plain thread that is
// parked, taken at one moment, printed at another.
struct GRecord {
  enum class Stack : uint8_t { kWalked, kRunning, kPlainThread };

  const G* gp = nullptr;
  const M* mp = nullptr;
  int64_t mid = -1;
  uint64_t goid = 0;
  uint64_t parentGoid = 0;
  uintptr_t gopc = 0;
  const Ancestors* ancestors = nullptr;
  int64_t minutes = 0;
  uint32_t status = 0;
  uint32_t bubble = 0;  // Bubble::id
  int32_t tid = 0;      // of a plain thread
  WaitReason reason{};
  bool locked = false;
  Stack stack = Stack::kWalked;
  char name[48] = {};
};

// printHeader prints the line above a stack. showPointers: with the addresses
// of G and M.
void printHeader(Writer* w, const GRecord& r, bool showPointers);
// symbolinit readies the symboliser; part of tracebackinit.
void symbolinit();
// printFunction prints the name of the function around pc.
void printFunction(Writer* w, uintptr_t pc);
// printLocation prints the line with module and address below a function.
void printLocation(Writer* w, uintptr_t pc);
// printFrame prints both, unless the function is none that level shows.
void printFrame(Writer* w, uintptr_t pc, int32_t level);
// throwSite is the index of the frame that threw, if the stack is that of
// std::terminate, else 0: what lies within is the C++ library's, and partly
// nameless.
[[nodiscard]] uint32_t throwSite(const Frames& f);
// printFrames prints at most 100 frames: the 50 innermost, a count of those
// left out, the 50 outermost. Those before first are not shown.
void printFrames(Writer* w, const Frames& frames, int32_t level,
                 uint32_t first);

}  // namespace gump::rt

#endif  // RUNTIME_TRACEBACK_H_
