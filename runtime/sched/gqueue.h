// Lists of Gs threaded through schedlink. A G is on at most one list. The lists
// have no locks. Their owner synchronises them.
#ifndef RUNTIME_SCHED_GQUEUE_H_
#define RUNTIME_SCHED_GQUEUE_H_

#include <cstdint>

namespace gump::rt {

struct G;

// GQueue is a FIFO with O(1) push at both ends and O(1) append. It keeps its
// size because the batch rules need it.
struct GQueue {
  G* head = nullptr;
  G* tail = nullptr;
  int32_t size = 0;

  bool empty() const { return head == nullptr; }
  void push(G* gp);  // at the head
  void pushBack(G* gp);
  void pushBackAll(GQueue* q);  // empties q
  G* pop();                     // from the head; nullptr if empty
};

// GList is a LIFO.
struct GList {
  G* head = nullptr;

  bool empty() const { return head == nullptr; }
  void push(G* gp);
  void pushAll(GQueue* q);  // puts q before the present Gs; empties q
  G* pop();
};

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_GQUEUE_H_
