// The window for gump/pprof.h: labels of goroutines. linkname.h gives the
// rules.
#ifndef GUMP_INTERNAL_LINKNAME_PPROF_H_
#define GUMP_INTERNAL_LINKNAME_PPROF_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/compiler.h"
#include "gump/internal/linkname_gls.h"

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

}  // namespace gump::rt

#endif  // GUMP_INTERNAL_LINKNAME_PPROF_H_
