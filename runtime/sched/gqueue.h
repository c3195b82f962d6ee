// Lists of Gs threaded through schedlink. A G is on at most one list. The lists
// have no locks. Their owner synchronises them.
#ifndef RUNTIME_SCHED_GQUEUE_H_
#define RUNTIME_SCHED_GQUEUE_H_

#include <cstdint>

#include "runtime/sched/g.h"

namespace gump::rt {

// GQueue is a FIFO with O(1) push at both ends and O(1) append. It keeps its
// size, because a P takes only its share of the global queue
// (globrunqgetbatch).
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

inline void GQueue::push(G* gp) {
  gp->schedlink = head;
  head = gp;
  if (tail == nullptr) tail = gp;
  size++;
}
inline void GQueue::pushBack(G* gp) {
  gp->schedlink = nullptr;
  if (tail != nullptr) {
    tail->schedlink = gp;
  } else {
    head = gp;
  }
  tail = gp;
  size++;
}
inline void GQueue::pushBackAll(GQueue* q) {
  if (q->head == nullptr) return;
  if (tail != nullptr) {
    tail->schedlink = q->head;
  } else {
    head = q->head;
  }
  tail = q->tail;
  size += q->size;
  *q = GQueue();
}
inline G* GQueue::pop() {
  G* gp = head;
  if (gp == nullptr) return nullptr;
  head = gp->schedlink;
  if (head == nullptr) tail = nullptr;
  size--;
  return gp;
}
inline void GList::push(G* gp) {
  gp->schedlink = head;
  head = gp;
}
inline void GList::pushAll(GQueue* q) {
  if (q->head == nullptr) return;
  q->tail->schedlink = head;
  head = q->head;
  *q = GQueue();
}
inline G* GList::pop() {
  G* gp = head;
  if (gp != nullptr) head = gp->schedlink;
  return gp;
}

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_GQUEUE_H_
