// The lock-free containers: sync::Stack and the free list of its NodeArena,
// sync::Queue, sync::List, and the rings of sync::Pool.
//
// Stack and Queue are checked against their definition. There must be an order
// of all calls in which an ordinary stack or queue gives the same answers. A
// call that began after another had returned must come after it in that order.
// So nothing is lost, nothing comes twice, and the order is right, also across
// threads.
#include <cstdint>
#include <iterator>
#include <utility>

#include "api/sync/pool_ring.h"
#include "gump/sync/list.h"
#include "gump/sync/queue.h"
#include "gump/sync/stack.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

constexpr int kNothing = 0;  // the result of a Pop of an empty container

// ---- Histories --------------------------------------------------------------

struct Call {
  bool push;
  int value;
  uint32_t begin, end;  // steps of the schedule
};
// Each thread has a row of calls, so that recording them orders no threads.
constexpr int kRows = 3;
constexpr int kCalls = 8;
struct Row {
  Call calls[kCalls];
  int n = 0;
};
Row rows[kRows];
bool lifo;

int contents[kRows * kCalls];
int first, last;  // of contents

// explains tells whether the results of the remaining calls are right in some
// order of these calls, if the container now has `contents`.
bool explains(const int (&done)[kRows]) {
  const auto call = [](int row, int i) -> const Call* {
    return i < rows[row].n ? &rows[row].calls[i] : nullptr;
  };
  uint32_t firstEnd = UINT32_MAX;
  for (int r = 0; r < kRows; r++) {
    const Call* c = call(r, done[r]);
    if (c != nullptr && c->end < firstEnd) firstEnd = c->end;
  }
  if (firstEnd == UINT32_MAX) return true;
  for (int r = 0; r < kRows; r++) {
    const Call* c = call(r, done[r]);
    // A call that began after another had returned does not come before it.
    if (c == nullptr || (c->begin >= firstEnd && c->end != firstEnd)) continue;
    int next[kRows];
    for (int k = 0; k < kRows; k++) next[k] = done[k] + (k == r ? 1 : 0);
    bool ok = false;
    if (c->push) {
      contents[last++] = c->value;
      ok = explains(next);
      last--;
    } else if (first == last) {
      ok = c->value == kNothing && explains(next);
    } else if (lifo && contents[last - 1] == c->value) {
      last--;
      ok = explains(next);
      contents[last++] = c->value;
    } else if (!lifo && contents[first] == c->value) {
      first++;
      ok = explains(next);
      contents[--first] = c->value;
    }
    if (ok) return true;
  }
  return false;
}

void explained() {
  static constexpr int kNone[kRows] = {};
  check(explains(kNone), "no order of the calls explains what they returned");
}

// Subject is a container with a row of calls for each thread. The last thread
// to leave takes out the remaining values. It does so within the schedule,
// where it cannot take values for ever.
template <class Container>
struct Subject {
  Container* container;
  rt::Atomic<int> left;  // relaxed, so that only the container orders accesses

  void setUp(bool isLifo) {
    container = new Container;
    lifo = isLifo;
  }
  void push(int row, int v) {
    Call& c = rows[row].calls[rows[row].n++];
    c = {true, v, step(), 0};
    container->Push(v);
    c.end = step();
  }
  int pop(int row) {
    Call& c = rows[row].calls[rows[row].n++];
    c = {false, kNothing, step(), 0};
    c.value = container->Pop().value_or(kNothing);
    c.end = step();
    return c.value;
  }
  void leave(int row, int users) {
    if (left.add(1, rt::relaxed) != users) return;
    while (pop(row) != kNothing) {
      check(rows[row].n < kCalls, "more comes out than has been put in");
    }
    check(container->Empty(), "not empty when nothing comes out");
  }
};

// ---- Stack ------------------------------------------------------------------

Subject<sync::Stack<int>> stack;

// The node of 2 comes back on top with nothing below it, while a Pop that is
// about to make 1 the top is under way.
const Registered kStack({
    .name = "stack",
    .about = "sync::Stack: three threads pop, and two push into freed nodes",
    .setup =
        [] {
          stack.setUp(/*isLifo=*/true);
          stack.push(0, 1);
          stack.push(0, 2);
          thread("a", [] {
            stack.pop(0);
            stack.leave(0, 3);
          });
          thread("b", [] {
            stack.pop(1);
            stack.push(1, 3);
            stack.leave(1, 3);
          });
          thread("c", [] {
            stack.pop(2);
            stack.push(2, 4);
            stack.leave(2, 3);
          });
        },
    .finish = explained,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kStackPush({
    .name = "stack_push",
    .about = "sync::Stack: two that push, one that pops",
    .setup =
        [] {
          stack.setUp(/*isLifo=*/true);
          thread("a", [] {
            stack.push(0, 1);
            stack.push(0, 2);
            stack.leave(0, 3);
          });
          thread("b", [] {
            stack.push(1, 3);
            stack.leave(1, 3);
          });
          thread("c", [] {
            stack.pop(2);
            stack.pop(2);
            stack.leave(2, 3);
          });
        },
    .finish = explained,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

// ---- NodeArena --------------------------------------------------------------

struct Cell {
  Cell() { mark = kMark; }
  static constexpr int kMark = 7;
  int mark;       // plain: the thread that gets a node must see it constructed
  int owner = 0;  // plain: owners follow one another
  rt::Atomic<uint32_t> free_next;
};
sync::internal::NodeArena<Cell>* arena;
rt::Atomic<int> users[8];

uint32_t take(int who) {
  const uint32_t i = arena->Alloc();
  check(i < std::size(users), "a new node although one is free");
  Cell& c = (*arena)[i];
  check(c.mark == Cell::kMark, "a node that is not constructed");
  check(users[i].add(1, rt::relaxed) == 1, "two have one node");
  c.owner = who;
  return i;
}
void give(uint32_t i, int who) {
  Cell& c = (*arena)[i];
  check(c.owner == who, "another thread's node");
  users[i].add(-1, rt::relaxed);
  arena->Free(i);
}

const Registered kNodeArena({
    .name = "node_arena",
    .about = "NodeArena: a node comes back while a thread is about to take it",
    .setup =
        [] {
          arena = new sync::internal::NodeArena<Cell>;
          const uint32_t a = take(1), b = take(1);
          give(b, 1);
          give(a, 1);
          thread("a", [] {
            take(2);
            give(take(2), 2);
          });
          thread("b", [] {
            const uint32_t i = take(3);
            take(3);
            give(i, 3);
            take(3);
          });
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kNodeArenaFresh({
    .name = "node_arena_fresh",
    .about = "NodeArena: the first nodes, for three at a time",
    .setup =
        [] {
          arena = new sync::internal::NodeArena<Cell>;
          thread("a", [] { give(take(1), 1); });
          thread("b", [] { take(2); });
          thread("c", [] { take(3); });
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

// ---- Queue ------------------------------------------------------------------

Subject<sync::Queue<int>> queue;

const Registered kQueue({
    .name = "queue",
    .about = "sync::Queue: two threads push, and a third pops",
    .setup =
        [] {
          queue.setUp(/*isLifo=*/false);
          thread("a", [] {
            queue.push(0, 1);
            queue.push(0, 2);
            queue.leave(0, 3);
          });
          thread("b", [] {
            queue.push(1, 3);
            queue.leave(1, 3);
          });
          thread("c", [] {
            queue.pop(2);
            queue.pop(2);
            queue.leave(2, 3);
          });
        },
    .finish = explained,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kQueueReuse({
    .name = "queue_reuse",
    .about = "sync::Queue: two that pop and push, in nodes used before",
    .setup =
        [] {
          queue.setUp(/*isLifo=*/false);
          queue.push(0, 1);
          queue.push(0, 2);
          thread("a", [] {
            queue.pop(0);
            queue.push(0, 3);
            queue.pop(0);
            queue.leave(0, 2);
          });
          thread("b", [] {
            queue.pop(1);
            queue.push(1, 4);
            queue.pop(1);
            queue.push(1, 5);
            queue.leave(1, 2);
          });
        },
    .finish = explained,
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

// ---- List -------------------------------------------------------------------

// Item is destroyed once, and after its last use: a thread that looks at an
// item checks its `alive`, too.
bool alive[9];
struct Item {
  explicit Item(int i) : value(i) { alive[i] = true; }
  Item(Item&& o) noexcept : value(o.value) { o.value = kNothing; }
  ~Item() {
    if (value == kNothing) return;
    check(alive[value], "destroyed twice");
    alive[value] = false;
  }
  int value;
};
using List = sync::List<Item>;
List* list;
List::Element elements[3];
unsigned kept;  // the items that are never removed, by bit
rt::Atomic<int> walkers;

// seen walks through the list and returns the items that it finds, by bit.
// Items below 7 are in the order of their values. All others are put in at the
// end.
unsigned seen() {
  unsigned found = 0;
  int before = 0;
  list->Range([&](Item& item) {
    check(alive[item.value], "an item that has been destroyed");
    check((found & 1u << item.value) == 0, "an item twice");
    check(item.value > before || item.value >= 7, "an item out of order");
    before = item.value;
    found |= 1u << item.value;
  });
  return found;
}

void setUpList() {
  list = new List;
  elements[0] = list->PushBack(Item(1));
  elements[1] = list->PushBack(Item(2));
  elements[2] = list->PushBack(Item(6));
  kept = 1u << 6;
}

// leaveList: the last thread to leave checks the remaining items.
void leaveList() {
  if (walkers.add(1, rt::acq_rel) != 3) return;
  check(seen() == kept, "an item is lost, or one that was removed is there");
  size_t n = 0;
  for (unsigned k = kept; k != 0; k &= k - 1) n++;
  check(list->Len() == n, "Len");
  for (List::Element& e : elements) e = List::Element();
  delete list;
  for (const bool a : alive) check(!a, "an item is never destroyed");
}

const Registered kList({
    .name = "list_remove",
    .about = "sync::List: neighbours are removed while one walks by",
    .setup =
        [] {
          setUpList();
          thread("a", [] {
            check(list->Remove(std::exchange(elements[0], {})), "Remove");
            leaveList();
          });
          thread("b", [] {
            check(list->Remove(std::exchange(elements[1], {})), "Remove");
            leaveList();
          });
          thread("walker", [] {
            check((seen() & 1u << 6) != 0, "an item was passed over");
            leaveList();
          });
        },
});

const Registered kListInsert({
    .name = "list_insert",
    .about = "sync::List: put in behind one that is removed, and at the end",
    .setup =
        [] {
          setUpList();
          kept |= 1u << 1 | 1u << 7;
          thread("insert", [] {
            if (list->InsertAfter(elements[1], Item(3))) kept |= 1u << 3;
            leaveList();
          });
          thread("remove", [] {
            check(list->Remove(elements[1]), "Remove");
            check((seen() & 1u << 2) == 0, "an item that was removed is there");
            leaveList();
          });
          thread("push", [] {
            check(bool{list->PushBack(Item(7))}, "PushBack");
            leaveList();
          });
        },
});

const Registered kListReuse({
    .name = "list_reuse",
    .about =
        "sync::List: a node is used again at the end, where two threads push",
    .setup =
        [] {
          setUpList();
          kept |= 1u << 2 | 1u << 7 | 1u << 8;
          thread("a", [] {
            check(list->Remove(std::exchange(elements[0], {})), "Remove");
            (void)list->PushBack(Item(7));
            leaveList();
          });
          thread("b", [] {
            (void)list->PushBack(Item(8));
            leaveList();
          });
          thread("walker", [] {
            check((seen() & 1u << 6) != 0, "an item was passed over");
            leaveList();
          });
        },
});

// ---- The rings of a Pool ----------------------------------------------------

using sync::internal::PoolChain;
using sync::internal::PoolRing;

struct Thing {
  int value = 0;
  rt::Atomic<int> taken;
};
constexpr int kThings = 16;
Thing things[kThings];
int nthings;
PoolRing* ring;
PoolChain chain;
PoolRing* spare;

Thing* newThing() {
  Thing* t = &things[nthings++];
  t->value = nthings;
  return t;
}
// got checks an item that was taken out. Returns false if there was none.
bool got(void* item) {
  if (item == nullptr) return false;
  auto* t = static_cast<Thing*>(item);
  check(t->value == static_cast<int>(t - things) + 1, "not what was put in");
  check(t->taken.add(1, rt::relaxed) == 1, "an item twice");
  t->value = 0;
  return true;
}
void noneIsLost(int n) {
  for (int i = 0; i < n; i++) {
    check(things[i].taken.load(rt::relaxed) == 1, "an item is lost");
  }
}

// The producer keeps an item that does not fit.
void pushOrKeep() {
  Thing* t = newThing();
  if (!ring->PushHead(t)) got(t);
}

const Registered kPoolRing({
    .name = "pool_ring",
    .about = "PoolRing: the producer at one end, two thieves at the other",
    .setup =
        [] {
          ring = PoolRing::Make(2);
          pushOrKeep();
          thread("producer", [] {
            pushOrKeep();
            pushOrKeep();
            got(ring->PopHead());
            pushOrKeep();
          });
          for (const char* t : {"thief0", "thief1"}) {
            thread(t, [] { got(ring->PopTail()); });
          }
        },
    .finish =
        [] {
          while (got(ring->PopTail())) {
          }
          noneIsLost(nthings);
        },
    .quick = {4, 1, 500},
    .full = {5, 1, 20000},
});

void pushChain() {
  Thing* t = newThing();
  if (const uint32_t size = chain.PushHead(t, &spare)) {
    spare = PoolRing::Make(size);
    check(chain.PushHead(t, &spare) == 0, "a ring does not fit");
  }
}

// The producer fills the first ring and begins a second one, while the thief
// takes items.
const Registered kPoolChain({
    .name = "pool_chain",
    .about = "PoolChain: a second ring is begun while the first is emptied",
    .setup =
        [] {
          // So that the indices wrap around.
          for (int i = 0; i < 3; i++) pushChain();
          while (got(chain.PopTail())) {
          }
          thread("producer", [] {
            for (uint32_t i = 0; i <= PoolRing::kMinSize; i++) pushChain();
            got(chain.PopHead());
            got(chain.PopHead());
          });
          thread("thief", [] {
            for (int i = 0; i < 3; i++) got(chain.PopTail());
          });
        },
    .finish =
        [] {
          while (got(chain.PopTail())) {
          }
          noneIsLost(nthings);
        },
    .quick = {4, 1, 500},
    .full = {5, 1, 20000},
});

}  // namespace
}  // namespace gump::model
