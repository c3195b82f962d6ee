// The treap of a SemaRoot: the distinct addresses that have waiters, as a
// search tree by address and a heap by a random ticket. The node of an address
// is its first waiter. The other waiters on that address hang on the node in a
// list, which is linked both ways, so that a waiter whose time has passed
// leaves it at once.
//
// Every function is called with the root's lock held. sema.cc has the protocol.
#include <cstdint>

#include "runtime/sched/hibernate.h"
#include "runtime/sched/runtime2.h"
#include "runtime/wait/sema.h"

namespace gump::rt {

namespace {

uintptr_t key(const void* addr) { return reinterpret_cast<uintptr_t>(addr); }

// passCount moves a count of waiters from a node to the one that takes its
// place, or leaves it there, and adds `more`. The links have their new values,
// but for those of a waiter that comes. A count that has saturated is right
// again when the list ends.
// On: any.  P: either.  Locks: the root's is held.  Parks: no.
GUMP_COLD void passCount(Sudog* from, Sudog* to, int more) {
  int n = from->waiters;
  from->waiters = 0;
  if (n != UINT16_MAX) n += more;
  if (more < 0 && to->waitlink == nullptr) n = 0;
  to->waiters = static_cast<uint16_t>(n);
}

}  // namespace

void SemaRoot::queue(Atomic<uint32_t>* addr, Sudog* s, bool lifo,
                     uint32_t priority) {
  s->elem = addr;
  s->next = nullptr;
  s->prev = nullptr;
  s->waitlink = nullptr;
  s->waittail = nullptr;
  s->ticket = 0;

  Sudog* last = nullptr;
  Sudog* t = treap;
  while (t != nullptr) {
    nearStack(t);
    if (t->elem == addr) break;
    last = t;
    t = key(addr) < key(t->elem) ? t->prev : t->next;
  }
  if (t != nullptr && t->waittail != nullptr) nearStack(t->waittail);
  if (t != nullptr && lifo) {
    // s becomes the node, with t's place and heap key. t becomes the head of
    // the list below s.
    s->ticket = t->ticket;
    s->prev = t->prev;
    s->next = t->next;
    if (s->prev != nullptr) s->prev->parent = s;
    if (s->next != nullptr) s->next->parent = s;
    replaceChild(t->parent, t, s);
    s->waitlink = t;
    s->waittail = t->waittail == nullptr ? t : t->waittail;
    t->parent = nullptr;
    t->prev = s;
    t->next = nullptr;
    t->waittail = nullptr;
    t->ticket = 0;
    if (GUMP_UNLIKELY(t->waiters != 0)) passCount(t, s, +1);
    // As in Go: the head's time is that of the longest wait.
    if (t->acquiretime != 0) s->acquiretime = t->acquiretime;
    return;
  }
  if (t != nullptr) {
    if (GUMP_UNLIKELY(t->waiters != 0)) passCount(t, t, +1);
    s->prev = t->waittail == nullptr ? t : t->waittail;
    s->prev->waitlink = s;
    t->waittail = s;
    return;
  }
  // A new address: insert a leaf and lift it until its parent's ticket is not
  // greater.
  s->ticket = priority;
  s->parent = last;
  if (last == nullptr) {
    treap = s;
  } else if (key(addr) < key(last->elem)) {
    last->prev = s;
  } else {
    last->next = s;
  }
  while (s->parent != nullptr && s->parent->ticket > s->ticket) {
    if (s->parent->prev == s) {
      rotateRight(s->parent);
    } else {
      rotateLeft(s->parent);
    }
  }
}

Sudog* SemaRoot::find(const Atomic<uint32_t>* addr) const {
  for (Sudog* s = treap; s != nullptr;) {
    nearStack(s);
    if (s->elem == addr) return s;
    s = key(addr) < key(s->elem) ? s->prev : s->next;
  }
  return nullptr;
}

Sudog* SemaRoot::dequeue(Atomic<uint32_t>* addr) {
  Sudog* s = find(addr);
  if (s == nullptr) return nullptr;
  for (const Sudog* x : {s->waitlink, s->prev, s->next, s->parent}) {
    if (x != nullptr) nearStack(x);
  }

  if (Sudog* t = s->waitlink; t != nullptr) {
    // The next waiter takes over the node.
    t->ticket = s->ticket;
    t->prev = s->prev;
    t->next = s->next;
    if (t->prev != nullptr) t->prev->parent = t;
    if (t->next != nullptr) t->next->parent = t;
    replaceChild(s->parent, s, t);
    t->waittail = t->waitlink == nullptr ? nullptr : s->waittail;
    if (GUMP_UNLIKELY(s->waiters != 0)) passCount(s, t, -1);
  } else {
    // Rotate s down until it is a leaf, each time below its smaller child.
    while (s->prev != nullptr || s->next != nullptr) {
      if (s->next == nullptr ||
          (s->prev != nullptr && s->prev->ticket < s->next->ticket)) {
        rotateRight(s);
      } else {
        rotateLeft(s);
      }
    }
    replaceChild(s->parent, s, nullptr);
  }
  s->parent = nullptr;
  s->elem = nullptr;
  s->next = nullptr;
  s->prev = nullptr;
  s->waitlink = nullptr;
  s->waittail = nullptr;
  s->ticket = 0;
  return s;
}

int64_t SemaRoot::chargeWaits(const Atomic<uint32_t>* addr, int64_t now) {
  Sudog* head = find(addr);
  if (head == nullptr || head->acquiretime == 0) return 0;
  const int64_t longest = now - head->acquiretime;
  head->acquiretime = now;
  Sudog* tail = head->waittail;
  if (tail == nullptr) return longest;
  if (head->waiters == 0) {
    for (Sudog* s = head->waitlink; s != nullptr; s = s->waitlink) {
      if (++head->waiters == UINT16_MAX) break;
    }
  }
  const int64_t shortest = tail->acquiretime == 0 ? 0 : now - tail->acquiretime;
  head->waitlink->acquiretime = now;
  tail->acquiretime = now;
  return longest + (longest + shortest) / 2 * head->waiters;
}

Sudog* SemaRoot::dequeueThread(Atomic<uint32_t>* addr) {
  Sudog* node = find(addr);
  if (node == nullptr || node->g->foreign) return dequeue(addr);
  Sudog* s = node->waitlink;
  while (s != nullptr && !s->g->foreign) s = s->waitlink;
  if (s != nullptr) unlink(node, s);
  return s;
}

bool SemaRoot::remove(Sudog* s) {
  if (s->elem == nullptr || s->ticket == kSemaHanded) return false;
  auto* addr = static_cast<Atomic<uint32_t>*>(s->elem);
  Sudog* node = find(addr);
  if (node == s) {
    (void)dequeue(addr);
  } else {
    unlink(node, s);
  }
  nwait.add(UINT32_MAX, relaxed);  // under the lock
  return true;
}

void SemaRoot::unlink(Sudog* node, Sudog* s) {
  s->prev->waitlink = s->waitlink;
  if (s->waitlink != nullptr) s->waitlink->prev = s->prev;
  if (node->waittail == s) node->waittail = s->prev == node ? nullptr : s->prev;
  if (GUMP_UNLIKELY(node->waiters != 0)) passCount(node, node, -1);
  s->elem = nullptr;
  s->prev = nullptr;
  s->waitlink = nullptr;
}

void SemaRoot::addHanded(Atomic<uint32_t>* addr, Sudog* s) {
  s->elem = addr;
  s->prev = nullptr;
  s->next = handed;
  if (handed != nullptr) handed->prev = s;
  handed = s;
}

void SemaRoot::removeHanded(Sudog* s) {
  (s->prev == nullptr ? handed : s->prev->next) = s->next;
  if (s->next != nullptr) s->next->prev = s->prev;
  s->elem = nullptr;
  nwait.add(UINT32_MAX, relaxed);  // under the lock
}

void SemaRoot::replaceChild(Sudog* parent, const Sudog* from, Sudog* to) {
  if (to != nullptr) to->parent = parent;
  if (parent == nullptr) {
    treap = to;
  } else if (parent->prev == from) {
    parent->prev = to;
  } else {
    parent->next = to;
  }
}

void SemaRoot::rotateLeft(Sudog* x) {
  Sudog* y = x->next;
  Sudog* middle = y->prev;
  replaceChild(x->parent, x, y);
  y->prev = x;
  x->parent = y;
  x->next = middle;
  if (middle != nullptr) middle->parent = x;
}

void SemaRoot::rotateRight(Sudog* x) {
  Sudog* y = x->prev;
  Sudog* middle = y->next;
  replaceChild(x->parent, x, y);
  y->next = x;
  x->parent = y;
  x->prev = middle;
  if (middle != nullptr) middle->parent = x;
}

}  // namespace gump::rt
