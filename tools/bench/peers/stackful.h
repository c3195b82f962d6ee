// The workloads of libraries whose tasks have stacks, and so wait in any
// function.
#ifndef TOOLS_BENCH_PEERS_STACKFUL_H_
#define TOOLS_BENCH_PEERS_STACKFUL_H_

#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include "tools/bench/peers/peer.h"

namespace peer {

// KeepFreedStacks makes malloc keep the memory of freed stacks. Otherwise it
// would give that back to the kernel after each batch of W1, and W1 would take
// many times as long.
inline void KeepFreedStacks() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

// Stackful is a base of what a program says about its library, Library:
//
// * All(n, f) starts the tasks f(0) to f(n - 1), and waits for them;
// * Children(root, n, f) does so for the children of a node of the tree, which
//   may be the root. If the library says nothing else, it is All;
// * Yield() lets other tasks run. A library may have none;
// * Channel passes numbers, with << and >>;
// * Mutex is a lock;
// * Sleep(duration) sleeps.
template <class Library>
class Stackful {
 public:
  static peer::Workloads Workloads() {
    peer::Workloads w;
    w.spawn = Spawn;
    if constexpr (requires { Library::Yield(); }) w.yields = Yields;
    w.trips = Trips;
    w.count = Count;
    w.tree = Tree;
    w.sleep = Sleeping;
    return w;
  }

  template <class F>
  static void Children(bool /*root*/, int64_t n, F f) {
    Library::All(n, f);
  }

 private:
  static int64_t Spawn(int64_t batches) {
    int64_t count = 0;
    for (int64_t b = 0; b < batches; b++) {
      Marks ran(kBatch);
      Library::All(kBatch, [&ran](int64_t i) { ran.Set(i); });
      count += ran.Count();
    }
    return count;
  }

  static int64_t Yields(int64_t tasks, int64_t each) {
    std::atomic<int64_t> yields = 0;
    Library::All(tasks, [&yields, each](int64_t) {
      for (int64_t i = 0; i < each; i++) Library::Yield();
      yields += each;
    });
    return yields;
  }

  static int64_t Trips(int64_t n) {
    typename Library::Channel ping;
    typename Library::Channel pong;
    int64_t sum = 0;
    Library::All(2, [&ping, &pong, &sum, n](int64_t task) {
      int64_t v = 0;
      for (int64_t i = 0; i < n; i++) {
        if (task == 0) {
          ping << i;
          pong >> v;
          sum += v;
        } else {
          ping >> v;
          pong << v;
        }
      }
    });
    return sum;
  }

  static int64_t Count(int64_t tasks, int64_t each) {
    typename Library::Mutex mu;
    int64_t counter = 0;
    Library::All(tasks, [&mu, &counter, each](int64_t) {
      for (int64_t i = 0; i < each; i++) {
        const std::lock_guard lock(mu);
        counter++;
      }
    });
    return counter;
  }

  static int64_t Tree(int64_t leaves) {
    int64_t sum = 0;
    Library::All(1, [&sum, leaves](int64_t) { sum = Node(true, 0, leaves); });
    return sum;
  }

  static void Sleeping(int64_t tasks, int64_t* late) {
    Library::All(tasks, [late](int64_t task) {
      Naps naps(task);
      for (int64_t i = 0; i < kSleeps; i++) {
        const int64_t ns = naps.Next();
        const int64_t due = NowNanos() + ns;
        Library::Sleep(std::chrono::nanoseconds(ns));
        late[task * kSleeps + i] = NowNanos() - due;
      }
    });
  }

  static int64_t Node(bool root, int64_t first, int64_t leaves) {
    if (leaves == 1) return first;
    const int64_t part = leaves / kFanOut;
    int64_t sums[kFanOut];
    Library::Children(root, kFanOut, [&sums, first, part](int64_t i) {
      sums[i] = Node(false, first + i * part, part);
    });
    int64_t sum = 0;
    for (const int64_t s : sums) sum += s;
    return sum;
  }
};

}  // namespace peer

#endif  // TOOLS_BENCH_PEERS_STACKFUL_H_
