// Goroutine dumps in Go's form, as fatal errors, SIGQUIT and runtime::Stack
// print them.
//
//   goroutine 7 [chan receive, 3 minutes, locked to thread] {name: worker}:
//   shop::Serve(...)
//   	/usr/bin/shop +0x41d2
//   created by main in goroutine 1
//   	/usr/bin/shop +0x3b07
//
// Where Go prints a file and a line, we print the module and an address, and
// `addr2line -Cfie MODULE ADDRESS` turns them into the file and the line.
// Reading DWARF is too much for a dying process. Labels stand in braces behind
// the brackets, as in Go since 1.27. A name given by GoOptions is the label
// `name`.
//
// For a goroutine of a gump::Scope, the line `created by` also says
//   created by shop::Fetch in goroutine 7 in scope "fetch" of goroutine 7
// Parsers of Go's dumps take any text behind `created by `, and most of them
// take the function's name from before ` in goroutine`. A text in the brackets,
// or a line below the location, makes some of them drop the goroutine or all
// that follow.
#ifndef RUNTIME_DIAG_TRACEBACK_H_
#define RUNTIME_DIAG_TRACEBACK_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname.h"
#include "gump/internal/linkname_pprof.h"
#include "runtime/sched/tracemark.h"
#include "runtime/sched/waitreason.h"
#include "runtime/sys/print.h"

namespace gump::rt {

struct G;
struct M;
struct ScopeRecord;

// TracebackMode is the output that GOTRACEBACK asks for.
struct TracebackMode {
  int32_t level = 1;   // 0: no stacks; 1: the user's frames; 2: also ours
  bool all = false;    // every goroutine, not just the one that failed
  bool crash = false;  // end in SIGABRT
};

// parseTraceback reads a value of GOTRACEBACK. It treats nullptr and unknown
// words as Go does.
[[nodiscard]] TracebackMode parseTraceback(const char* value);
// gotraceback returns the mode for a failure of this kind. A broken invariant
// shows every goroutine and the runtime's frames. Other failures show the
// current goroutine (panic.h has the exceptions). With GOTRACEBACK=none, no
// failure shows a stack.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] TracebackMode gotraceback(int32_t throwing);
// tracebackinit reads GOTRACEBACK and prepares the unwinder and the symboliser.
// Called by schedinit.
void tracebackinit();

// StackFrom says where the stack of the failing thread begins.
enum class StackFrom : uint8_t {
  kHere,    // in the caller
  kSignal,  // in the code that the running signal handler interrupted
};

// tracebackCrash prints to standard error the current goroutine and, with
// mode.all, all others. Other threads may still run; their goroutines are shown
// without a stack.
// On: any.  P: either.  Locks: none (scan bits).  Parks: no.
void tracebackCrash(const TracebackMode& mode, int32_t throwing,
                    StackFrom from);
// tracebackThread prints to standard error the stack of this thread at the
// point where the running signal handler interrupted it.
// On: signal stack.  P: either.  Locks: none.  Parks: no.
void tracebackThread(const TracebackMode& mode);

// Ancestors are the goroutines that led to one: its creator, the creator of
// that goroutine, and so on, as many as GODEBUG tracebackancestors asks for.
// For each ancestor they record the call stack that it had when it started its
// child. Ancestors are written before the goroutine can run, and are constant
// from then on.
struct Ancestors {
  struct One {
    static constexpr uint32_t kKeep = 50;  // as Go

    uint64_t goid;
    uintptr_t gopc;  // as in G
    uint32_t kept;
    bool more;  // there were more calls than these
    uintptr_t pcs[kKeep];
  };

  uint32_t count = 0;  // the nearest is the first
  One of[];

  size_t bytes() const { return sizeof(Ancestors) + count * sizeof(One); }
};

// GExtra is what few goroutines need (G::extra).
struct GExtra {
  Ancestors* ancestors = nullptr;  // used with tracebackancestors
  TraceMark trace;
};
// extraOf returns gp's, and makes it at the first call. Returns nullptr if the
// kernel has no memory.
// On: any.  P: either.  Locks: none.  Parks: no.
GExtra* extraOf(G* gp);

// saveAncestors records the ancestors of gp. The caller makes gp, and no other
// thread knows gp yet.
// On: user, the goroutine that makes gp; or any other.  P: either.
// Locks: none.  Parks: no.
void saveAncestors(G* gp);

// The parts of a dump: goroutines by traceback.cc, frames by
// traceback_frames.cc.

struct Frames;

// GRecord describes one goroutine, or one parked foreign thread, for a dump. It
// is taken at one moment and printed at another.
struct GRecord {
  enum class Stack : uint8_t { kWalked, kRunning, kForeignThread };

  const G* gp = nullptr;
  const M* mp = nullptr;
  int64_t mid = -1;
  uint64_t goid = 0;
  uint64_t parentGoid = 0;
  uintptr_t gopc = 0;
  const FuncType* fn = nullptr;  // as in G
  const Ancestors* ancestors = nullptr;
  int64_t minutes = 0;
  int64_t waitNanos = -1;  // of which minutes is a part; -1: not known
  uint32_t status = 0;
  uint32_t bubble = 0;  // Bubble::id
  int32_t tid = 0;      // of a foreign thread
  WaitReason reason{};
  bool locked = false;
  bool onThread = false;  // it belongs to a home, which is called `thread`
  char thread[16] = {};
  bool inGroup = false;
  bool groupFull = false;  // waits for a slot of its group
  Leak leak = Leak::kNone;
  Stack stack = Stack::kWalked;
  char name[48] = {};
  // The scope that it is a goroutine of, or nullptr. It may be gone by the time
  // that this is read, so the pointers are only compared.
  const ScopeRecord* scope = nullptr;
  const ScopeRecord* scopeOuter = nullptr;
  uint64_t scopeOwner = 0;
  char scopeName[48] = {};
  char group[40] = {};  // the name of its group
  // Those of pprof::Do, or nullptr. A snapshot holds a reference.
  const LabelSet* labels = nullptr;
};

// printLabels prints n labels as they follow the brackets of a header:
// ` {key: value, k2: "v 2"}`. It quotes texts with characters outside of
// [A-Za-z0-9./_]. The caller has sorted the labels by their keys. printLabels
// prints nothing for n == 0, or if GODEBUG has tracebacklabels=0.
// On: any.  P: either.  Locks: none.  Parks: no.
void printLabels(Writer* w, const Label* labels, size_t n);
// statusText returns the state of r as it stands in brackets.
const char* statusText(const GRecord& r);
// printHeader prints the line above a stack. With showPointers it includes the
// addresses of G and M.
void printHeader(Writer* w, const GRecord& r, bool showPointers);
// symbolinit prepares the symboliser. It is part of tracebackinit.
void symbolinit();

// FrameText is what a dump says about one address.
struct FrameText {
  static constexpr int kMaxName = 512;      // with the NUL
  static constexpr int kMaxLocation = 640;  // enough for most paths

  uintptr_t pc;
  bool interestsUsers;    // if false, only level 2 and above show the frame
  uint16_t nameSize;      // of name, without the NUL
  uint16_t locationSize;  // of location, or 0 if it does not fit
  char name[kMaxName];
  char location[kMaxLocation];  // as printLocation prints it, without a NUL
};

// FrameTexts is a cache of frame texts for one dump. Most goroutines of a
// program wait in a few functions, and finding a text costs more than printing
// it.
//
// The cache is direct-mapped: an address determines its place, and a place
// keeps the text of the latest address that used it. All bytes must be 0 at
// first. A dump takes the memory from sysReserve, so places without a text cost
// no memory.
struct FrameTexts {
  static constexpr size_t kPlaces = 512;

  FrameText places[kPlaces];
};

// The functions below take texts from *known and add new ones to it. If known
// is nullptr, they find each text anew.

// frameName writes the name of the function around pc. Returns false if only
// dumps of level 2 and above show the frame.
bool frameName(uintptr_t pc, char (&out)[FrameText::kMaxName]);
// printLocation prints the line with module and address below a function.
void printLocation(Writer* w, uintptr_t pc);
// printCreator prints "created by", the function around pc and its location. If
// parent is 0, it does not name the goroutine that called go(). If r is not
// nullptr, it names r's scope.
void printCreator(Writer* w, uintptr_t pc, uint64_t parent, const GRecord* r,
                  FrameTexts* known);
// printScope prints `scope "fetch" of goroutine 7` for r's scope, or `scope of
// goroutine 7` if it has no name.
void printScope(Writer* w, const GRecord& r);
// printFrame prints the function around pc and its location, unless level hides
// the function.
void printFrame(Writer* w, uintptr_t pc, int32_t level, FrameTexts* known);
// throwSite returns the index of the frame that threw if the stack is that of
// std::terminate, and 0 otherwise. The frames inside of it belong to the C++
// library and are partly nameless.
[[nodiscard]] uint32_t throwSite(const Frames& f);
// printFrames prints at most 100 frames: the 50 innermost, a count of those
// left out, the 50 outermost. It leaves out the frames before `first`.
void printFrames(Writer* w, const Frames& frames, int32_t level, uint32_t first,
                 FrameTexts* known);

// visitStopped visits the stacks of all goroutines but `self`, as they are at
// one moment. The world is stopped meanwhile. Returns false if there was no
// memory for all.
// On: user, or a foreign thread.  P: either.  Locks: takes worldsema.
// Parks: yes.
[[nodiscard]] bool visitStopped(StackVisitor visit, void* arg, const G* self);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACEBACK_H_
