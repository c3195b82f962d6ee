// Labels of goroutines, for dumps and profiles (labels.cc).
#ifndef RUNTIME_SCHED_LABELS_H_
#define RUNTIME_SCHED_LABELS_H_

#include "gump/internal/linkname.h"
#include "runtime/sched/g.h"
#include "runtime/sys/atomic.h"

namespace gump::rt {

// kDoKey is the key of the nodes that lie in a LabelFrame, and kLabelsKey that
// of the others that have labels.
extern const char kDoKey;
extern const char kLabelsKey;

struct LabelSet {
  mutable Atomic<uint32_t> refs{1};
  uint32_t n = 0;
  Label of[];  // the texts follow
};

// inheritedLabels returns a node with the labels of gp, which is the caller,
// for a goroutine that gp starts. Returns nullptr if gp has none. Ends the
// process if there is no memory. The node is for addLabels or dropLabels.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] LocalNode* inheritedLabels(const G* gp);
// addLabels gives node to gp, which no other thread knows yet.
// On: any.  P: either.  Locks: none.  Parks: no.
void addLabels(G* gp, LocalNode* node);
// dropLabels frees a node, or nothing if it is nullptr.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: no.
void dropLabels(LocalNode* node);

// labelsOf returns the labels of gp, or nullptr. The caller is gp, or keeps gp
// where it is. It retains the set if it uses it for longer.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] const LabelSet* labelsOf(const G* gp);

// passesOn returns true if the goroutines that gp starts inherit something. It
// tests `labelled` and `special` with one instruction, since each go() asks.
GUMP_ALWAYS_INLINE bool passesOn(const G* gp) {
  static_assert(offsetof(G, special) == offsetof(G, labelled) + 1);
  static_assert(offsetof(G, labelled) % 2 == 0);
  uint16_t both;
  __builtin_memcpy(&both,
                   reinterpret_cast<const char*>(gp) + offsetof(G, labelled),
                   sizeof(both));
  return both != 0;
}

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_LABELS_H_
