// The block and mutex profiles. The rules of sampling and scaling are those of
// Go (runtime/mprof.go):
//
//  * A wait of d ns is recorded with the probability min(1, d / rate). If d is
//    below the rate, a record stands for rate / d waits and for `rate` ns.
//  * An unlock is recorded with the probability 1 / fraction, and a record
//    stands for `fraction` of them.
//
// Unlike in Go, a wait ends when the waiter runs again, not when it is readied.
// To note the earlier time, each waker would have to look.
//
// A bucket holds the sums of one stack. Buckets are never freed, as in Go. A
// bucket is complete before it is published at the head of its chain, and its
// link does not change, so chains are searched without a lock. Two threads may
// publish buckets for one stack at a time. The profile's reader adds them up.
//
// The stack is walked by the unwinder's tables, which costs microseconds. So
// rates of 1 are for tests, as in Go.
#include "runtime/diag/mprof.h"

#include <algorithm>
#include <cstring>

#include "absl/base/thread_annotations.h"
#include "runtime/diag/unwind.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/rand.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

Atomic<uint64_t> waitProfiles;

namespace {

constexpr uint32_t kMaxStack = 128;  // as Go's profstackdepth
constexpr size_t kChains = 1024;

Mutex sumsLock{LockRank::kLeaf};

struct Bucket {
  Bucket* next;
  uint64_t hash;
  double count ABSL_GUARDED_BY(sumsLock);
  double nanos ABSL_GUARDED_BY(sumsLock);
  uint32_t n;
  uintptr_t pcs[kMaxStack];  // only the first n are allocated
};

struct Table {
  Atomic<Bucket*> chains[kChains];
};
constinit Table blockTable;
constinit Table mutexTable;

int64_t blockRate(uint64_t of) { return static_cast<uint32_t>(of); }
int64_t mutexFraction(uint64_t of) { return static_cast<int64_t>(of >> 32); }
int64_t setting(int64_t n) { return std::clamp<int64_t>(n, 0, UINT32_MAX); }

uint64_t hashOf(const uintptr_t* pcs, uint32_t n) {
  uint64_t h = n;
  for (uint32_t i = 0; i < n; i++) h = (h ^ pcs[i]) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}

// bucketFor returns the bucket of a stack, and makes it if need be. Returns
// nullptr if there is no memory. The event is not recorded then.
Bucket* bucketFor(Table* table, const uintptr_t* pcs, uint32_t n) {
  const uint64_t hash = hashOf(pcs, n);
  Atomic<Bucket*>* chain = &table->chains[hash % kChains];
  Bucket* head = chain->load(acquire);  // pairs with the CAS below
  for (Bucket* b = head; b != nullptr; b = b->next) {
    if (b->hash == hash && b->n == n &&
        std::memcmp(b->pcs, pcs, n * sizeof(*pcs)) == 0) {
      return b;
    }
  }
  auto* b = static_cast<Bucket*>(persistentalloc(
      offsetof(Bucket, pcs) + n * sizeof(*pcs), alignof(Bucket)));
  if (b == nullptr) return nullptr;
  b->hash = hash;
  b->n = n;
  std::memcpy(b->pcs, pcs, n * sizeof(*pcs));
  do {
    b->next = head;
    // Release: the bucket is complete. Acquire: so is the one behind it.
  } while (!chain->casWeak(head, b, acq_rel));
  return b;
}

// record adds to the bucket of the caller's stack.
GUMP_NOINLINE void record(Table* table, double count, double nanos) {
  Frames here;
  walkHere(&here);
  Bucket* b = bucketFor(table, here.pcs, std::min(here.kept, kMaxStack));
  if (b == nullptr) return;
  LockScope l(&sumsLock);
  b->count += count;
  b->nanos += nanos;
}

uint64_t random64() {
  M* mp = getg()->m;
  const uint64_t high = cheaprand(mp);
  return high << 32 | cheaprand(mp);
}

void visitTable(Table* table, StackVisitor visit, void* arg) {
  for (const Atomic<Bucket*>& chain : table->chains) {
    // Acquire: pairs with the CAS in bucketFor.
    for (const Bucket* b = chain.load(acquire); b != nullptr; b = b->next) {
      StackRecord r{b->pcs, b->n, nullptr, 0, 0};
      {
        LockScope l(&sumsLock);
        r.count = static_cast<int64_t>(b->count);
        r.nanos = static_cast<int64_t>(b->nanos);
      }
      if (r.count != 0) visit(arg, r);
    }
  }
}

}  // namespace

void blockEvent(int64_t since) {
  const int64_t ns = std::max<int64_t>(nanotime() - since, 1);
  const int64_t rate = blockRate(waitProfiles.load(relaxed));
  if (rate == 0) return;  // switched off meanwhile
  M* mp = acquirem();     // cheaprand's state, and the walk
  const bool sampled =
      rate <= ns ||
      static_cast<int64_t>(random64() % static_cast<uint64_t>(rate)) <= ns;
  if (sampled && ns < rate) {
    const auto r = static_cast<double>(rate);
    record(&blockTable, r / static_cast<double>(ns), r);
  } else if (sampled) {
    record(&blockTable, 1, static_cast<double>(ns));
  }
  releasem(mp);
}

void mutexEvent(int64_t ns, uint32_t n) {
  const int64_t fraction = mutexFraction(waitProfiles.load(relaxed));
  if (fraction == 0) return;  // switched off meanwhile
  M* mp = acquirem();
  if (random64() % static_cast<uint64_t>(fraction) == 0) {
    const auto f = static_cast<double>(fraction);
    record(&mutexTable, f * n,
           f * static_cast<double>(std::max<int64_t>(ns, 0)));
  }
  releasem(mp);
}

void setBlockProfileRate(int64_t ns) noexcept {
  uint64_t old = waitProfiles.load(relaxed);
  while (!waitProfiles.casWeak(
      old, old >> 32 << 32 | static_cast<uint64_t>(setting(ns)), relaxed)) {
  }
}

int64_t setMutexProfileFraction(int64_t rate) noexcept {
  uint64_t old = waitProfiles.load(relaxed);
  if (rate < 0) return mutexFraction(old);
  while (!waitProfiles.casWeak(
      old,
      static_cast<uint64_t>(setting(rate)) << 32 | static_cast<uint32_t>(old),
      relaxed)) {
  }
  return mutexFraction(old);
}

void visitBlockedStacks(StackVisitor visit, void* arg) noexcept {
  (void)runtimeEntry();
  visitTable(&blockTable, visit, arg);
}

void visitMutexStacks(StackVisitor visit, void* arg) noexcept {
  (void)runtimeEntry();
  visitTable(&mutexTable, visit, arg);
}

}  // namespace gump::rt
