// The window for gump/pprof.h: labels of goroutines, and profiles. linkname.h
// gives the rules.
#ifndef GUMP_INTERNAL_LINKNAME_PPROF_H_
#define GUMP_INTERNAL_LINKNAME_PPROF_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"
#include "gump/internal/linkname_gls.h"
#include "gump/internal/linkname_runtime.h"

#pragma GCC visibility push(default)

namespace gump::rt {

// Label is a pair of texts that a program attaches to a goroutine. Each ends in
// NUL. The sizes do not count that.
struct Label {
  const char* key = nullptr;
  const char* value = nullptr;
  size_t key_size = 0;
  size_t value_size = 0;
};

// LabelSet is a constant set of labels, sorted by key. It is freed with its
// last reference.
struct LabelSet;

// newLabelSet copies n labels, which are sorted and have different keys. The
// result is the caller's only reference. Returns nullptr if there is no memory.
[[nodiscard]] LabelSet* newLabelSet(const Label* labels, size_t n) noexcept;
// retainLabels adds a reference, and releaseLabels drops one. The argument may
// be nullptr.
void retainLabels(const LabelSet* set) noexcept;
void releaseLabels(const LabelSet* set) noexcept;
// labelsIn returns the labels of set, which may be nullptr, and their number.
const Label* labelsIn(const LabelSet* set, size_t* n) noexcept;

// LabelFrame is the part of a pprof::Do in the goroutine's list of local
// values.
struct LabelFrame {
  LocalNode node;
  bool labelled = false;  // whether the goroutine had labels before
};

// enterLabels gives the caller's goroutine or foreign thread the labels of set
// in place of those that it has. leaveLabels, with the same frame, gives those
// back. Each pair is properly nested in others, and ends on the goroutine on
// which it began. The caller keeps a reference to set in between.
void enterLabels(LabelFrame* frame, const LabelSet* set) noexcept;
void leaveLabels(LabelFrame* frame) noexcept;

// Leak says whether a goroutine is leaked: whether nothing can ever wake it
// (runtime/diag/leaks.h).
enum class Leak : uint8_t { kNone, kSuspected, kCertain };

// StackRecord is a call stack in a profile. An address lies inside the calling
// instruction, so it is the one to look up. The innermost is the first.
struct StackRecord {
  const uintptr_t* pcs = nullptr;
  size_t n = 0;
  const LabelSet* labels = nullptr;
  int64_t count = 1;
  int64_t nanos = 0;  // block and mutex profiles: time lost
  Leak leak = Leak::kNone;
};

// A StackVisitor is called with one stack after the other, on the caller's
// goroutine, with no lock held and while the world runs. It throws nothing.
using StackVisitor = void (*)(void* arg, const StackRecord& stack);

// visitGoroutines visits the stack of each goroutine of the program, as they
// are at one moment, and visitThreads the start of each thread of the library.
// visitGoroutines returns false if there was no memory for all goroutines.
[[nodiscard]] bool visitGoroutines(StackVisitor visit, void* arg) noexcept;
void visitThreads(StackVisitor visit, void* arg) noexcept;

// LeakStatus is the result of a search for leaked goroutines.
enum class LeakStatus : uint8_t {
  kDone,
  kNoMemory,
  kNoMaps,     // /proc/self/maps cannot be read
  kSanitizer,  // the library has ThreadSanitizer, which hides leaks
};

// visitLeaks searches for leaked goroutines and visits the stack of each.
// leakDump is stackDump(true, ...) with marks at those goroutines. It stores
// the size of the text in *size. Both stop the world for the search. One
// goroutine and one plain thread search at a time, and the others park.
[[nodiscard]] LeakStatus visitLeaks(StackVisitor visit, void* arg) noexcept;
[[nodiscard]] LeakStatus leakDump(BufferGrower grow, void* arg,
                                  size_t* size) noexcept;

// setBlockProfileRate and setMutexProfileFraction switch the profiles of
// waiting and of making others wait (runtime/diag/mprof.cc); 0 is off. The
// latter returns the fraction before, and changes nothing if rate < 0. The
// visitors visit the stacks that have been recorded, some of them twice.
void setBlockProfileRate(int64_t ns) noexcept;
int64_t setMutexProfileFraction(int64_t rate) noexcept;
void visitBlockedStacks(StackVisitor visit, void* arg) noexcept;
void visitMutexStacks(StackVisitor visit, void* arg) noexcept;

// CpuProfileStart is what startCpuProfile has done.
enum class CpuProfileStart : uint8_t {
  kOk,
  kInUse,     // there is a profile already
  kNoMemory,  // for its table
};

// startCpuProfile begins to sample all threads, each `hz` times for each second
// of processor time that it uses. hz is 1 to 1'000'000. stopCpuProfile ends
// that and visits the stacks. StackRecord::count is the number of samples.
// Returns false if there is no profile.
[[nodiscard]] CpuProfileStart startCpuProfile(int hz) noexcept;
bool stopCpuProfile(StackVisitor visit, void* arg) noexcept;

// symbolText writes the name of the function around pc, or "?", to out, without
// a NUL, and returns its size. The name is cut at `size`. hidesFromUsers tells
// whether dumps leave out a function of that name.
size_t symbolText(uintptr_t pc, char* out, size_t size) noexcept;
[[nodiscard]] bool hidesFromUsers(const char* name) noexcept;

}  // namespace gump::rt

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_LINKNAME_PPROF_H_
