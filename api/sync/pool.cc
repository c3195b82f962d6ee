// The machinery under sync::Pool.
//
// Each P has a slot with two generations of cache. Put fills the primary one,
// and Get empties it. Get takes from the other one, the victims, when there is
// nothing else. A generation is one item in `own`, the fast path, and a chain
// of rings. Its P pushes and pops at one end of the chain, while others take
// from the other end.
//
// Invariants:
//  (I1) Only a goroutine that is pinned to P p uses `own` and the pushing end
//       of the chain of slot p. So one goroutine at a time uses them, and it
//       sees the stores of the one before.
//  (I2) Rings are freed only by the registry's round, or with the pool. So a
//       thief may hold on to a ring that has been drained and passed by.
//  (I3) Between pinning and unpinning, no code allocates, parks, or runs user
//       code.
//
// Every reclamation cycle runs a round of the registry. For every pool, it
// makes the victims garbage and the primary generation the next victims:
//   1. State in phase_ that the victims are off limits.
//   2. Wait until every P has passed a safe point (forEachP). A safe point does
//      not interrupt a pinned section. So a goroutine that read the old phase
//      has finished, and one that pins from now on reads the new phase.
//   3. Detach the victims, which no goroutine uses now. Swap the roles in
//      phase_. A goroutine that still acts on the phase of step 1 goes on with
//      the generation that was the primary one. That generation now holds the
//      victims. Everything that is allowed in the primary one is allowed there
//      too.
//   4. Delete the garbage with no lock held, because destructors are user code.
// Plain threads do not pin. They hold shared_mu_, and so does step 3.
//
// Unlike Go, which rotates with the world stopped, nothing here stops other
// goroutines. No lock is held across the wait of step 2. A goroutine holds
// locks only while it is pinned (PinnedLock). So a plain thread can use and
// destroy pools even if the program's end has left a round unfinished.
#include "gump/sync/pool.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#include "api/sync/pool_ring.h"
#include "gump/internal/linkname_runtime.h"
#include "gump/internal/linkname_sync.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stw.h"
#include "runtime/sys/base.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"

namespace gump::sync::internal {

namespace {

struct Generation {
  void* own = nullptr;
  PoolChain chain;
};

constexpr uint32_t kPrimary = 1;  // bit of phase_: index of the primary one
constexpr uint32_t kVictims = 2;  // bit of phase_: the other may be used

}  // namespace

struct alignas(rt::kFalseSharing) PoolLocal {
  Generation generation[2];
};

// PoolGarbage is detached by a round from one slot of a pool. The pool itself
// may be gone by the time the garbage is deleted.
struct PoolGarbage {
  void (*destroy)(void*) = nullptr;
  void* own = nullptr;
  PoolRing* rings = nullptr;
  PoolItems items;  // of plain threads
};

namespace {

// deleteGarbage deletes items and rings. It runs user code, so no lock is held.
void deleteGarbage(PoolGarbage* g) noexcept {
  if (g->own != nullptr) g->destroy(std::exchange(g->own, nullptr));
  while (PoolRing* r = g->rings) {
    while (void* item = r->PopTail()) g->destroy(item);
    g->rings = r->older;
    delete r;
  }
  const PoolItems items = std::exchange(g->items, PoolItems());
  for (size_t i = 0; i < items.size; i++) g->destroy(items.items[i]);
  delete[] items.items;
}

}  // namespace

// ---- Locking ----------------------------------------------------------------

namespace {

// PinnedLock holds mu for a scope. A goroutine that holds it is pinned, so it
// unlocks mu even if main has ended.
//
// A waiter yields its thread but keeps its P. That cannot deadlock. A holder
// that is a goroutine has a P of its own. A holder that is a plain thread may
// call malloc, and so wait for a goroutine that was preempted inside malloc.
// The waiter is not pinned between two tries, so its P can be retaken for that
// goroutine.
//
// A goroutine must not wait for a second lock while it holds this one. It is
// pinned then, so it is neither preempted nor presumed blocked, and would keep
// its P for ever.
class PinnedLock {
 public:
  explicit PinnedLock(Mutex* mu) : mu_(mu) {
    for (int tries = 0; !TryLock(); tries++) {
      // A child of fork has no other thread, so none could unlock it. Relaxed:
      // `forked` is written by this very thread.
      if (rt::forked.load(rt::relaxed)) rt::dieForked();
      if (tries < kYields) {
        rt::osyield();
      } else {
        rt::usleep(kNapUs);  // the holder may be of a lower priority
      }
    }
  }
  ~PinnedLock() {
    mu_->Unlock();
    if (pinned_) rt::procUnpin();
  }
  PinnedLock(const PinnedLock&) = delete;
  PinnedLock& operator=(const PinnedLock&) = delete;

 private:
  static constexpr int kYields = 100;
  static constexpr uint32_t kNapUs = 50;

  bool TryLock() {
    if (pinned_) (void)rt::procPin();
    if (mu_->TryLock()) return true;
    if (pinned_) rt::procUnpin();
    return false;
  }

  // isPinnable returns false for plain threads, which run on after main has
  // ended, and may start or end without the runtime. It also returns false in a
  // child of fork, where nothing preempts or stops the thread.
  static bool isPinnable() {
    const rt::G* gp = rt::getg();
    // Relaxed: `forked` is written by this very thread.
    return gp != nullptr && !gp->foreign && !rt::forked.load(rt::relaxed);
  }

  Mutex* mu_;
  const bool pinned_ = isPinnable();
};

}  // namespace

// ---- The registry -----------------------------------------------------------

// PoolRegistry knows every pool that has ever held something.
struct PoolRegistry {
  // Guards the list, and next_, prev_, registered_, retire_next_ of every pool.
  // A holder must not run user code or wait for Ps.
  Mutex mu;
  PoolCore* head = nullptr;
  // True while a round is going on. The round that set it clears it.
  rt::Atomic<bool> busy;

  void add(PoolCore* p) noexcept;
  void remove(PoolCore* p) noexcept;
  void beginRetirement() noexcept;
  [[nodiscard]] bool detachNext(PoolGarbage* out) noexcept;
  void round() noexcept;
};

namespace {
constinit PoolRegistry registry;  // never destroyed: pools may outlive main
}  // namespace

void PoolRegistry::add(PoolCore* p) noexcept {
  if (p->registered_.load(rt::relaxed)) return;  // registered for ever
  {
    PinnedLock l(&mu);
    if (p->registered_.xchg(true, rt::relaxed)) return;  // under mu
    p->next_ = head;
    if (head != nullptr) head->prev_ = p;
    head = p;
  }
  // If the registry cannot be registered, pools do not age. All else works.
  static_cast<void>(rt::reclaimRegister([] { registry.round(); }));
}

void PoolRegistry::remove(PoolCore* p) noexcept {
  PinnedLock l(&mu);
  if (p->registered_.load(rt::relaxed)) {  // no thread uses the pool now
    (p->prev_ == nullptr ? head : p->prev_->next_) = p->next_;
    if (p->next_ != nullptr) p->next_->prev_ = p->prev_;
  }
}

// Step 1 of a round. Pools registered later have no victims yet.
void PoolRegistry::beginRetirement() noexcept {
  PinnedLock l(&mu);
  for (PoolCore* p = head; p != nullptr; p = p->next_) {
    p->retire_next_ = 0;
    // Written under mu. Release: a thread that reads this phase also sees that
    // the last round emptied the primary generation (DetachNext). Loads and
    // stores after step 2 must not move up; forEachP ensures that.
    p->phase_.store(p->phase_.load(rt::relaxed) & ~kVictims, rt::release);
  }
}

// Step 3 of a round, for one slot of one pool. Returns false if all are done.
bool PoolRegistry::detachNext(PoolGarbage* out) noexcept {
  for (;; rt::osyield()) {  // yields without being pinned
    PinnedLock l(&mu);
    PoolCore* p = head;
    while (p != nullptr && p->retire_next_ == PoolCore::kNotRetiring) {
      p = p->next_;
    }
    if (p == nullptr) return false;
    if (p->DetachNext(out)) return true;
  }
}

void PoolRegistry::round() noexcept {
  // Acquire and release: rounds are in order.
  if (!busy.cas(false, true, rt::acquire)) return;  // one is as good as two
  beginRetirement();
  rt::forEachP(rt::WaitReason::kFlushProcCaches, [](rt::P*) {});  // step 2
  PoolGarbage garbage;
  while (detachNext(&garbage)) deleteGarbage(&garbage);
  busy.store(false, rt::release);
}

// ---- The pool ---------------------------------------------------------------

// Push allocates under shared_mu_, as PinnedLock allows to a plain thread.
bool PoolItems::Push(void* item) noexcept {
  if (size == capacity) {
    const size_t more = std::max<size_t>(8, 2 * capacity);
    auto* moved = new (std::nothrow) void*[more];
    if (moved == nullptr) return false;
    std::copy_n(items, size, moved);
    delete[] std::exchange(items, moved);
    capacity = more;
  }
  items[size++] = item;
  return true;
}

PoolCore::~PoolCore() {
  registry.remove(this);
  PoolGarbage garbage;
  garbage.destroy = destroy_;
  const uint32_t limit = limit_.load(rt::relaxed);  // no thread uses the pool
  for (uint32_t pid = 0; pid < limit; pid++) {
    PoolLocal* l = Local(pid);
    if (l == nullptr) continue;
    for (Generation& g : l->generation) {
      garbage.own = std::exchange(g.own, nullptr);
      garbage.rings = g.chain.Take();
      deleteGarbage(&garbage);
    }
  }
  for (PoolItems& items : shared_) {
    garbage.items = std::exchange(items, PoolItems());
    deleteGarbage(&garbage);
  }
  for (auto& segment : segments_) delete[] segment.load(rt::relaxed);
}

// Local returns the slot of P pid, or nullptr if it is not made yet.
PoolLocal* PoolCore::Local(uint32_t pid) const noexcept {
  const auto k = static_cast<unsigned>(std::bit_width(pid + 1)) - 1;
  PoolLocal* segment = segments_[k].load(rt::acquire);  // pairs with Grow
  return segment == nullptr ? nullptr : segment + (pid + 1 - (1U << k));
}

// Grow makes the slot of P pid. Returns false if there is no memory.
bool PoolCore::Grow(uint32_t pid) noexcept {
  const auto k = static_cast<unsigned>(std::bit_width(pid + 1)) - 1;
  auto* made = new (std::nothrow) PoolLocal[size_t{1} << k];
  if (made == nullptr) return false;
  // Release: publishes the slots.
  if (!segments_[k].cas(nullptr, made, rt::release)) delete[] made;
  const uint32_t end = (2U << k) - 1;
  uint32_t limit = limit_.load(rt::relaxed);  // the CAS decides
  // Release: pairs with the load in Steal.
  while (limit < end && !limit_.casWeak(limit, end, rt::release)) {
  }
  registry.add(this);
  return true;
}

void PoolCore::Put(void* item) noexcept {
  PoolRing* spare = nullptr;
  for (;;) {
    const int32_t pid = rt::procPin();
    if (pid < 0) {
      rt::procUnpin();
      PutShared(item);
      break;
    }
    PoolLocal* l = Local(static_cast<uint32_t>(pid));
    if (l == nullptr) {
      rt::procUnpin();
      if (!Grow(static_cast<uint32_t>(pid))) {
        destroy_(item);
        break;
      }
      continue;
    }
    // Acquire: pairs with DetachNext, so we see that it emptied the generation.
    Generation& g = l->generation[phase_.load(rt::acquire) & kPrimary];
    uint32_t ring_size = 0;
    if (g.own == nullptr) {
      g.own = item;
    } else {
      ring_size = g.chain.PushHead(item, &spare);
    }
    rt::procUnpin();
    if (ring_size == 0) break;
    delete spare;  // too small for the P that runs us now
    spare = PoolRing::Make(ring_size);
    if (spare == nullptr) {
      destroy_(item);
      break;
    }
  }
  delete spare;
}

void* PoolCore::Get() noexcept {
  const int32_t pid = rt::procPin();
  if (pid < 0) {
    rt::procUnpin();
    return GetShared(/*may_steal=*/true);
  }
  const uint32_t phase = phase_.load(rt::acquire);  // pairs with DetachNext
  void* item = nullptr;
  if (PoolLocal* l = Local(static_cast<uint32_t>(pid))) {
    Generation& g = l->generation[phase & kPrimary];
    item = std::exchange(g.own, nullptr);
    if (item == nullptr) item = g.chain.PopHead();
  }
  if (item == nullptr) item = GetSlow(static_cast<uint32_t>(pid), phase);
  rt::procUnpin();
  // Relaxed: a hint. The lock is taken unpinned, since taking it may wait.
  if (item == nullptr && nshared_.load(rt::relaxed) != 0) [[unlikely]] {
    item = GetShared(/*may_steal=*/false);
  }
  return item;
}

// GetSlow looks into other slots and into the victims. The caller is pinned to
// P pid.
void* PoolCore::GetSlow(uint32_t pid, uint32_t phase) noexcept {
  const uint32_t primary = phase & kPrimary;
  if (void* item = Steal(pid + 1, primary)) return item;
  if ((phase & kVictims) == 0) return nullptr;
  if (PoolLocal* l = Local(pid)) {
    void*& own = l->generation[primary ^ 1].own;
    if (own != nullptr) return std::exchange(own, nullptr);
  }
  return Steal(pid, primary ^ 1);
}

// Steal takes from any chain of a generation. It looks at slot `first` first.
// The caller is pinned, or holds shared_mu_.
void* PoolCore::Steal(uint32_t first, uint32_t generation) noexcept {
  const uint32_t limit = limit_.load(rt::acquire);  // pairs with Grow
  for (uint32_t i = 0; i < limit; i++) {
    PoolLocal* l = Local((first + i) % limit);
    if (l == nullptr) continue;
    if (void* item = l->generation[generation].chain.PopTail()) return item;
  }
  return nullptr;
}

// GetShared takes an item that plain threads have put. If may_steal is true, it
// steals too. A plain thread needs that, since it does not call GetSlow.
void* PoolCore::GetShared(bool may_steal) noexcept {
  void* item = nullptr;
  PinnedLock l(&shared_mu_);
  const uint32_t phase = phase_.load(rt::acquire);  // as in Get
  const uint32_t primary = phase & kPrimary;
  for (const uint32_t generation : {primary, primary ^ 1}) {
    if (generation != primary && (phase & kVictims) == 0) break;
    PoolItems& items = shared_[generation];
    if (items.size != 0) {
      item = items.Pop();
      nshared_.add(UINT32_MAX, rt::relaxed);  // a hint, under shared_mu_
    } else if (may_steal) {
      item = Steal(0, generation);
    }
    if (item != nullptr) break;
  }
  return item;
}

void PoolCore::PutShared(void* item) noexcept {
  registry.add(this);
  bool kept;
  {
    PinnedLock l(&shared_mu_);
    // Acquire: as in Put.
    kept = shared_[phase_.load(rt::acquire) & kPrimary].Push(item);
    if (kept) nshared_.add(1, rt::relaxed);  // a hint, under shared_mu_
  }
  if (!kept) destroy_(item);
}

// DetachNext moves the victims of the next slot to out, which is empty. After
// the last slot it moves those of plain threads, and swaps the generations. The
// registry is locked, and step 2 of the round is over. Returns false if the
// caller has to try again later: see PinnedLock.
bool PoolCore::DetachNext(PoolGarbage* out) noexcept {
  out->destroy = destroy_;
  if (!shared_mu_.TryLock()) return false;  // plain threads steal too
  const std::lock_guard lock(shared_mu_, std::adopt_lock);
  const uint32_t phase = phase_.load(rt::relaxed);  // written by rounds only
  const uint32_t victims = (phase & kPrimary) ^ 1;
  const uint32_t limit = limit_.load(rt::acquire);  // pairs with Grow
  while (retire_next_ < limit) {
    PoolLocal* l = Local(retire_next_++);
    if (l == nullptr) continue;
    Generation& g = l->generation[victims];
    out->own = std::exchange(g.own, nullptr);
    out->rings = g.chain.Take();
    if (out->own != nullptr || out->rings != nullptr) return true;
  }
  retire_next_ = kNotRetiring;
  out->items = std::exchange(shared_[victims], PoolItems());
  nshared_.add(-static_cast<uint32_t>(out->items.size), rt::relaxed);
  // Release: a thread that finds itself in the new phase finds the primary
  // empty.
  phase_.store(victims | kVictims, rt::release);
  return true;
}

}  // namespace gump::sync::internal
