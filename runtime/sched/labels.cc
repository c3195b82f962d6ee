// Labels of goroutines (gump/pprof.h).
//
// The labels of a goroutine are a node in its list of local values, as scopes
// are (scope.cc). So a G has no field for them but the flag `labelled`, and the
// end of a goroutine costs nothing more. The newest node of the list decides:
//
//  * pprof::Do adds a node that lies in its own frame (kDoKey).
//  * A goroutine that was started with labels has a node from malloc
//    (kLabelsKey), which the end of the goroutine frees.
//
// A set of labels never changes. Nodes, contexts and dumps refer to it, and the
// last reference frees it.
//
// (L1) A dump or a profile reads the labels of a goroutine that was stopped
//      anywhere. The list is whole at each instruction, as gls.cc says. A node
//      is unlinked before its reference is dropped. So a set that is found in
//      the list of a goroutine that is kept where it is has a reference, and
//      the reader can add another before it lets the goroutine go on.
//
// (L2) `labelled` is false only if the list has no node of labels, so that
//      go() looks at the list only for goroutines that have labels.
//
// A hook of a thread has a list on g0, as for all local values (glsOwner). So
// pprof::Do works there, and its labels end with it. A hook starts no
// goroutines that could inherit them.
//
// Rejected: a pointer in G. It costs the end of each goroutine a test, and G
// has no byte to spare.
#include "runtime/sched/labels.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "gump/internal/linkname.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/gls.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

const char kDoKey = 0;  // their addresses count
const char kLabelsKey = 0;

namespace {

char* appendText(char* at, const char* text, size_t size) {
  if (size != 0) std::memcpy(at, text, size);
  at[size] = '\0';
  return at + size + 1;
}

// endLabels runs when a goroutine that has inherited labels ends.
void endLabels(void* set) {
  getg()->labelled = false;  // the inherited node is older than those of Do
  releaseLabels(static_cast<const LabelSet*>(set));
}

}  // namespace

LabelSet* newLabelSet(const Label* labels, size_t n) noexcept {
  size_t size = sizeof(LabelSet) + n * sizeof(Label);
  for (size_t i = 0; i < n; i++) {
    size += labels[i].key_size + labels[i].value_size + 2;
  }
  void* p = std::malloc(size);
  if (p == nullptr) return nullptr;
  auto* set = new (p) LabelSet;
  set->n = static_cast<uint32_t>(n);
  char* text = reinterpret_cast<char*>(&set->of[n]);
  for (size_t i = 0; i < n; i++) {
    Label* to = new (&set->of[i]) Label(labels[i]);
    to->key = text;
    text = appendText(text, labels[i].key, labels[i].key_size);
    to->value = text;
    text = appendText(text, labels[i].value, labels[i].value_size);
  }
  return set;
}

void retainLabels(const LabelSet* set) noexcept {
  // Relaxed: the caller knows of a reference, and nothing is published.
  if (set != nullptr) set->refs.add(1, relaxed);
}

void releaseLabels(const LabelSet* set) noexcept {
  // Release and acquire: all uses of the set happen before its end.
  if (set == nullptr || set->refs.add(UINT32_MAX, acq_rel) != 0) return;
  std::free(const_cast<LabelSet*>(set));
}

const Label* labelsIn(const LabelSet* set, size_t* n) noexcept {
  *n = set == nullptr ? 0 : set->n;
  return set == nullptr ? nullptr : set->of;
}

void enterLabels(LabelFrame* frame, const LabelSet* set) noexcept {
  G* gp = glsOwner();
  frame->node = {&kDoKey, const_cast<LabelSet*>(set), nullptr, gp->gls};
  frame->labelled = gp->labelled;
  compilerFence();  // (L1)
  gp->gls = &frame->node;
  gp->labelled = true;
}

void leaveLabels(LabelFrame* frame) noexcept {
  G* gp = glsOwner();
  LocalNode** at = &gp->gls;  // values that are not of labels may be in front
  while (*at != nullptr && *at != &frame->node) at = &(*at)->next;
  if (*at == nullptr) {
    fatal("pprof: Do has ended on another goroutine than it began on");
  }
  *at = frame->node.next;
  compilerFence();  // (L1): the caller drops the reference now
  gp->labelled = frame->labelled;
}

LocalNode* inheritedLabels(const G* gp) {
  const LabelSet* set = labelsOf(gp);
  size_t n;
  (void)labelsIn(set, &n);
  if (n == 0) return nullptr;
  void* p = std::malloc(sizeof(LocalNode));
  if (p == nullptr) fatalAll("out of memory");
  retainLabels(set);
  return new (p)
      LocalNode{&kLabelsKey, const_cast<LabelSet*>(set), endLabels, nullptr};
}

void addLabels(G* gp, LocalNode* node) {
  node->next = gp->gls;
  gp->gls = node;
  gp->labelled = true;
}

void dropLabels(LocalNode* node) {
  if (node == nullptr) return;
  releaseLabels(static_cast<const LabelSet*>(node->value));
  std::free(node);
}

GUMP_NO_SANITIZE const LabelSet* labelsOf(const G* gp) {
  if (!gp->labelled) return nullptr;  // (L2)
  for (const LocalNode* n = gp->gls; n != nullptr; n = n->next) {
    if (n->key == &kDoKey || n->key == &kLabelsKey) {
      return static_cast<const LabelSet*>(n->value);
    }
  }
  return nullptr;
}

}  // namespace gump::rt
