// The treap of the semaphore table on bare structs, against a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "gump/internal/linkname.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/wait/sema.h"

namespace gump {
namespace {

using rt::LockScope;
using rt::SemaRoot;
using rt::Sudog;
using Addr = rt::Atomic<uint32_t>;

// Check returns a fault of the treap, or nullptr.
const char* Check(const Sudog* s, const Sudog* parent, uintptr_t low,
                  uintptr_t high) {
  if (s == nullptr) return nullptr;
  const auto key = reinterpret_cast<uintptr_t>(s->elem);
  if (s->parent != parent) return "parent link";
  if (key < low || key >= high) return "not a search tree";
  if (parent != nullptr && parent->ticket > s->ticket) return "not a heap";
  if ((s->ticket & 1) == 0) return "even ticket";
  const Sudog* last = s;
  uint16_t waiters = 0;
  for (; last->waitlink != nullptr; waiters++) last = last->waitlink;
  if (s->waiters != 0 && s->waiters != waiters) return "waiters";
  if (s->waittail != (last == s ? nullptr : last)) return "waittail";
  if (const char* e = Check(s->prev, s, low, key)) return e;
  return Check(s->next, s, key + 1, high);
}

const char* Check(SemaRoot* root) ABSL_EXCLUSIVE_LOCKS_REQUIRED(root->lock) {
  return Check(root->treap, nullptr, 0, UINTPTR_MAX);
}

TEST(SemaRootTest, WaitersOfOneAddressLeaveInOrderOfArrival) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a;
  Sudog s[4];
  for (Sudog& x : s) root.queue(&a, &x, /*lifo=*/false, 7);
  EXPECT_EQ(Check(&root), nullptr);
  for (Sudog& x : s) EXPECT_EQ(root.dequeue(&a), &x);
  EXPECT_EQ(root.dequeue(&a), nullptr);
  EXPECT_EQ(root.treap, nullptr);
}

TEST(SemaRootTest, LifoGoesToTheFront) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a;
  Sudog first, second, front;
  root.queue(&a, &first, /*lifo=*/false, 7);
  root.queue(&a, &second, /*lifo=*/false, 9);
  root.queue(&a, &front, /*lifo=*/true, 11);
  EXPECT_EQ(Check(&root), nullptr);
  EXPECT_EQ(front.ticket, 7u) << "the heap key belongs to the position";
  EXPECT_EQ(root.dequeue(&a), &front);
  EXPECT_EQ(root.dequeue(&a), &first);
  EXPECT_EQ(root.dequeue(&a), &second);
}

TEST(SemaRootTest, ChargeWaitsTakesTheAverageOfTheEnds) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a, none;
  Sudog s[3];
  for (int i = 0; i < 3; i++) {
    s[i].acquiretime = 100 * (i + 1);
    root.queue(&a, &s[i], /*lifo=*/false, 7);
  }
  EXPECT_EQ(root.chargeWaits(&none, 1000), 0);
  // The first has waited for 900, the last for 700, and two are behind it.
  EXPECT_EQ(root.chargeWaits(&a, 1000), 900 + (900 + 700) / 2 * 2);
  EXPECT_EQ(root.dequeue(&a), &s[0]);
  EXPECT_EQ(root.chargeWaits(&a, 1010), 10 + 10);  // only since then
  Sudog front;
  front.acquiretime = 1020;
  root.queue(&a, &front, /*lifo=*/true, 9);
  EXPECT_EQ(front.acquiretime, 1010);  // of the longest wait
  EXPECT_EQ(root.dequeue(&a), &front);
  EXPECT_EQ(root.dequeue(&a), &s[1]);
  EXPECT_EQ(root.dequeue(&a), &s[2]);
  EXPECT_EQ(root.chargeWaits(&a, 1030), 0);
}

TEST(SemaRootTest, WaiterThatCameWithTheProfileOffIsNotCharged) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a;
  Sudog first, last;
  root.queue(&a, &first, /*lifo=*/false, 7);
  last.acquiretime = 100;
  root.queue(&a, &last, /*lifo=*/false, 9);
  EXPECT_EQ(root.chargeWaits(&a, 1000), 0);
  EXPECT_TRUE(root.remove(&first));
  EXPECT_EQ(root.chargeWaits(&a, 1000), 900);
  EXPECT_TRUE(root.remove(&last));
}

TEST(SemaRootTest, DequeueOfAnAddressWithoutWaitersFindsNothing) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a[2];
  Sudog s;
  EXPECT_EQ(root.dequeue(&a[0]), nullptr);
  root.queue(&a[0], &s, /*lifo=*/false, 7);
  EXPECT_EQ(root.dequeue(&a[1]), nullptr);
  EXPECT_EQ(root.dequeue(&a[0]), &s);
}

TEST(SemaRootTest, ThreadsMayBeTakenFirst) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a[2];
  rt::G goroutine, thread;
  thread.foreign = true;
  // g t g t, then g at the other address.
  Sudog s[5];
  for (int i = 0; i < 5; i++) {
    s[i].g = i % 2 == 1 ? &thread : &goroutine;
    root.queue(&a[i / 4], &s[i], /*lifo=*/false, 7);
  }
  EXPECT_EQ(root.dequeueThread(&a[1]), nullptr);
  EXPECT_EQ(root.dequeueThread(&a[0]), &s[1]);
  EXPECT_EQ(s[1].waitlink, nullptr);
  EXPECT_EQ(s[1].elem, nullptr);
  EXPECT_EQ(Check(&root), nullptr);
  EXPECT_EQ(root.dequeueThread(&a[0]), &s[3]) << "the last in the list";
  EXPECT_EQ(Check(&root), nullptr);
  EXPECT_EQ(root.dequeueThread(&a[0]), nullptr);
  EXPECT_EQ(root.dequeue(&a[0]), &s[0]);
  EXPECT_EQ(root.dequeueThread(&a[0]), nullptr) << "a goroutine by itself";
  root.queue(&a[0], &s[1], /*lifo=*/true, 9);
  EXPECT_EQ(root.dequeueThread(&a[0]), &s[1]) << "the node";
  EXPECT_EQ(Check(&root), nullptr);
  EXPECT_EQ(root.dequeue(&a[0]), &s[2]);
  EXPECT_EQ(root.dequeueThread(&a[0]), nullptr) << "an address without waiters";
}

TEST(SemaRootTest, WaiterMayLeaveFromAnyPlace) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a[2];
  Sudog s[6];
  for (int leaver = 0; leaver < 5; leaver++) {
    for (int i = 0; i < 6; i++) {
      root.queue(&a[i / 5], &s[i], /*lifo=*/false, 7);
      root.nwait.add(1, rt::relaxed);
    }
    EXPECT_TRUE(root.remove(&s[leaver]));
    EXPECT_EQ(Check(&root), nullptr);
    EXPECT_FALSE(root.remove(&s[leaver])) << "it has left already";
    for (int i = 0; i < 5; i++) {
      if (i == leaver) continue;
      EXPECT_EQ(root.dequeue(&a[0]), &s[i]);
    }
    EXPECT_EQ(root.dequeue(&a[0]), nullptr);
    EXPECT_TRUE(root.remove(&s[5])) << "the only waiter of its address";
    EXPECT_EQ(root.treap, nullptr);
    EXPECT_EQ(root.nwait.load(rt::relaxed), 4u);
    root.nwait.store(0, rt::relaxed);
  }
}

TEST(SemaRootTest, WaiterThatWasDisplacedAtTheFrontMayLeave) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a;
  Sudog s[4];
  root.queue(&a, &s[1], /*lifo=*/false, 7);
  root.queue(&a, &s[2], /*lifo=*/false, 7);
  root.queue(&a, &s[0], /*lifo=*/true, 7);
  root.queue(&a, &s[3], /*lifo=*/false, 7);
  EXPECT_TRUE(root.remove(&s[1]));
  EXPECT_TRUE(root.remove(&s[3]));
  EXPECT_EQ(Check(&root), nullptr);
  EXPECT_EQ(root.dequeue(&a), &s[0]);
  EXPECT_TRUE(root.remove(&s[2]));
  EXPECT_EQ(root.treap, nullptr);
}

TEST(SemaRootTest, WaiterThatWasHandedTheCountDoesNotLeave) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a;
  Sudog s;
  root.queue(&a, &s, /*lifo=*/false, 7);
  ASSERT_EQ(root.dequeue(&a), &s);
  EXPECT_FALSE(root.remove(&s)) << "woken";
  s.ticket = rt::kSemaHanded;
  root.addHanded(&a, &s);
  EXPECT_FALSE(root.remove(&s));
  root.removeHanded(&s);
}

TEST(SemaRootTest, DequeuedWaiterIsClean) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a[3];
  Sudog s[4];
  for (int i = 0; i < 3; i++) {
    root.queue(&a[i], &s[i], /*lifo=*/false, static_cast<uint32_t>(2 * i + 1));
  }
  root.queue(&a[0], &s[3], /*lifo=*/false, 99);
  Sudog* out = root.dequeue(&a[0]);
  ASSERT_EQ(out, &s[0]);
  EXPECT_EQ(out->parent, nullptr);
  EXPECT_EQ(out->prev, nullptr);
  EXPECT_EQ(out->next, nullptr);
  EXPECT_EQ(out->waitlink, nullptr);
  EXPECT_EQ(out->waittail, nullptr);
  EXPECT_EQ(out->elem, nullptr);
  EXPECT_EQ(out->ticket, 0u) << "0: not handed over";
}

TEST(SemaRootTest, RotationsKeepTheOrderAndUndoEachOther) {
  SemaRoot root;
  LockScope hold(&root.lock);
  Addr a[5];
  Sudog s[5];
  const uint32_t keys[5] = {7, 3, 9, 1, 5};
  for (int i = 0; i < 5; i++) root.queue(&a[i], &s[i], false, keys[i]);
  ASSERT_EQ(Check(&root), nullptr);
  Sudog* x = root.treap;
  ASSERT_NE(x->next, nullptr);
  Sudog* y = x->next;
  root.rotateLeft(x);
  EXPECT_EQ(root.treap, y);
  EXPECT_EQ(y->prev, x);
  root.rotateRight(y);
  EXPECT_EQ(root.treap, x);
  EXPECT_EQ(Check(&root), nullptr);
}

// Random operations, next to the obvious implementation.
TEST(SemaRootTest, BehavesAsAMapOfQueues) {
  SemaRoot root;
  LockScope hold(&root.lock);
  std::mt19937 rng(20240229);
  rt::G goroutine, thread;
  thread.foreign = true;
  std::vector<Addr> addrs(40);
  std::map<Addr*, std::deque<Sudog*>> model;
  std::vector<std::unique_ptr<Sudog>> all;
  std::vector<Sudog*> unused;
  for (int i = 0; i < 100'000; i++) {
    Addr* a = &addrs[rng() % addrs.size()];
    if (rng() % 2 == 0 && all.size() - unused.size() < 200) {
      if (unused.empty()) {
        all.push_back(std::make_unique<Sudog>());
        unused.push_back(all.back().get());
      }
      Sudog* s = unused.back();
      unused.pop_back();
      s->g = rng() % 2 == 0 ? &thread : &goroutine;
      const bool lifo = rng() % 4 == 0;
      root.queue(a, s, lifo, static_cast<uint32_t>(rng()) | 1);
      if (lifo) {
        model[a].push_front(s);
      } else {
        model[a].push_back(s);
      }
    } else {
      std::deque<Sudog*>& q = model[a];
      const bool threads = rng() % 3 == 0;
      const auto it = std::find_if(q.begin(), q.end(), [&](const Sudog* s) {
        return !threads || s->g->foreign;
      });
      Sudog* want = nullptr;
      if (it != q.end()) {
        want = *it;
        q.erase(it);
        unused.push_back(want);
      }
      ASSERT_EQ(threads ? root.dequeueThread(a) : root.dequeue(a), want);
    }
    if (i % 64 == 0) {
      ASSERT_STREQ(Check(&root), nullptr);
    }
  }
}

TEST(SemaRootTest, AddressesSpreadOverTheTable) {
  // Objects of common sizes side by side, as in arrays and slabs.
  for (size_t size : {8u, 16u, 24u, 64u, 128u, 256u, 4096u}) {
    std::set<SemaRoot*> roots;
    for (size_t i = 0; i < 200; i++) {
      const uintptr_t p = 0x7f0000000000 + i * size;
      roots.insert(rt::semroot(reinterpret_cast<Addr*>(p)));
    }
    EXPECT_GT(roots.size(), 100u) << "objects of " << size << " bytes";
  }
}

}  // namespace
}  // namespace gump
