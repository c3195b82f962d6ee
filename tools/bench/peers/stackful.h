// The workloads of libraries whose tasks have stacks, and so wait in any
// function.
#ifndef TOOLS_BENCH_PEERS_STACKFUL_H_
#define TOOLS_BENCH_PEERS_STACKFUL_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include "tools/bench/peers/peer.h"

namespace peer {

// Stackful is a base of what a program says about its library, Library:
//
// * All(n, f) starts the tasks f(0) to f(n - 1), and waits for them;
// * Children(n, f) does so in the tree, below the children of the root. If the
//   library says nothing else, it is All;
// * Yield() lets other tasks run;
// * Mutex is a lock;
// * Sleep(duration) sleeps.
template <class Library>
class Stackful {
 public:
  static int64_t Spawns(int64_t batches) {
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

  static int64_t Counts(int64_t tasks, int64_t each) {
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
    Library::All(1, [&sum, leaves](int64_t) { sum = Node<true>(0, leaves); });
    return sum;
  }

  static void Sleeps(int64_t tasks, int64_t* late) {
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

  template <class F>
  static void Children(int64_t n, F f) {
    Library::All(n, f);
  }

 private:
  template <bool kRoot>
  static int64_t Node(int64_t first, int64_t leaves) {
    if (leaves == 1) return first;
    const int64_t part = leaves / kFanOut;
    int64_t sums[kFanOut];
    auto child = [&sums, first, part](int64_t i) {
      sums[i] = Node<false>(first + i * part, part);
    };
    if constexpr (kRoot) {
      Library::All(kFanOut, child);
    } else {
      Library::Children(kFanOut, child);
    }
    int64_t sum = 0;
    for (const int64_t s : sums) sum += s;
    return sum;
  }
};

}  // namespace peer

#endif  // TOOLS_BENCH_PEERS_STACKFUL_H_
