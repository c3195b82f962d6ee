// A sync::Map is a hash map that goroutines and plain threads may share.
//
//   sync::Map<std::string, int> hits;
//   hits.Store("/", 1);
//   if (std::optional<int> n = hits.Load("/")) std::printf("%d\n", *n);
//   auto [value, loaded] = hits.LoadOrStore("/about", 7);
//   hits.Range([](const std::string& k, int n) { …; return true; });
//
// Values are copied in and out, so V is best small or a shared_ptr. Each
// function on one key is atomic. Clear and Range are not atomic as a whole.
// Every function may park for a moment while another goroutine or thread is
// inside the map.
//
// Requires: the copying, moving, hashing and comparing of keys and values does
// not use the same map, because it runs under a lock of the map. Destructors of
// keys and values may use the map. Exceptions of all of them, and
// std::bad_alloc, pass through, and the lock is released.
//
// Requires: no goroutine or thread uses a map that is being destroyed.
//
// Memory ordering: a function that stores a value happens before one that
// observes it.
//
// The design: there are 64 shards. Each is a flat hash map under an RWMutex of
// its own, made when the first key falls into it. Go's concurrent hash trie
// reads without any lock, but leaves removed nodes to the garbage collector. In
// C++ a reader would have to announce itself by a store, which costs as much as
// taking a read lock. The trie has one more advantage: writers of different
// keys do not meet. Shards nearly give that too. If eight cores work on random
// keys, at most one operation in nine finds another one in its shard. It then
// waits only for the length of one table probe.
#ifndef GUMP_SYNC_MAP_H_
#define GUMP_SYNC_MAP_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "gump/internal/atomic.h"
#include "gump/sync/rwmutex.h"

#pragma GCC visibility push(default)

namespace gump::sync {

// Map is the map described above. Requires: Hash can hash a K, and Eq can
// compare two. A Map is never copied or moved.
template <class K, class V,
          class Hash = typename absl::flat_hash_map<K, V>::hasher,
          class Eq = typename absl::flat_hash_map<K, V>::key_equal>
class Map {
 public:
  Map() = default;
  ~Map() {
    // Relaxed: the destruction of the map is ordered after all its users.
    for (auto& slot : shards_) delete slot.load(rt::relaxed);
  }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;

  // Load returns a copy of the value of key, or nullopt if key has none.
  [[nodiscard]] std::optional<V> Load(const K& key) const;

  // Store sets the value of key, and replaces an earlier one.
  void Store(K key, V value) {
    static_cast<void>(Swap(std::move(key), std::move(value)));
  }

  // LoadOrStore returns a copy of the value of key and true, if key has a
  // value. Otherwise it stores value, and returns a copy of it and false.
  std::pair<V, bool> LoadOrStore(K key, V value);

  // LoadAndDelete removes key. It returns the value that key had, or nullopt.
  std::optional<V> LoadAndDelete(const K& key) {
    return Extract(key, [](const V&) { return true; });
  }
  // Delete removes key if it is there.
  void Delete(const K& key) { static_cast<void>(LoadAndDelete(key)); }

  // Swap stores value. It returns the value that key had before, or nullopt.
  std::optional<V> Swap(K key, V value);

  // CompareAndSwap stores desired if key has a value equal to expected (==).
  // It returns whether it did.
  bool CompareAndSwap(const K& key, const V& expected, V desired);

  // CompareAndDelete removes key if it has a value equal to expected (==). It
  // returns whether it did.
  bool CompareAndDelete(const K& key, const V& expected) {
    return Extract(key, [&](const V& v) { return v == expected; }).has_value();
  }

  // Range calls f(key, value) for the entries until f returns false. An f that
  // returns nothing sees all entries. No key is visited twice. An entry that is
  // stored or removed during the call may be visited or not. The value is one
  // that the key had during the call. No lock is held while f runs, so f may
  // call any function of the map.
  template <class F>
  void Range(F&& f) const;

  // Clear removes all entries. An entry stored during the call may remain.
  void Clear();

 private:
  using Table = absl::flat_hash_map<K, V, Hash, Eq>;
  struct alignas(128) Shard {  // two cache lines: no false sharing
    mutable RWMutex mu;
    Table map;  // guarded by mu
  };
  static constexpr size_t kShards = 64;

  // The multiplication spreads hashes that are not well mixed, such as
  // std::hash of an integer. The table uses the low bits of the hash, and the
  // choice of the shard uses the high bits of the product.
  static size_t Index(const K& key) {
    const uint64_t h = uint64_t{Hash()(key)} * 0x9e3779b97f4a7c15;
    return h >> (64 - std::countr_zero(kShards));
  }

  Shard* Find(const K& key) const {
    return shards_[Index(key)].load(rt::acquire);  // pairs with MakeShard
  }
  Shard& FindOrMake(const K& key) {
    rt::Atomic<Shard*>& slot = shards_[Index(key)];
    Shard* s = slot.load(rt::acquire);  // pairs with MakeShard
    return s != nullptr ? *s : MakeShard(slot);
  }
  static Shard& MakeShard(rt::Atomic<Shard*>& slot) {
    auto made = std::make_unique<Shard>();
    // Release: publishes the new shard. If several threads race here, one wins.
    if (slot.cas(nullptr, made.get(), rt::release)) return *made.release();
    return *slot.load(rt::acquire);
  }

  template <class Accept>
  std::optional<V> Extract(const K& key, Accept accept);

  template <class F>
  static bool Visit(F& f, const K& key, const V& value) {
    if constexpr (std::is_void_v<
                      std::invoke_result_t<F&, const K&, const V&>>) {
      std::invoke(f, key, value);
      return true;
    } else {
      return std::invoke(f, key, value);
    }
  }

  std::array<rt::Atomic<Shard*>, kShards> shards_{};
};

template <class K, class V, class Hash, class Eq>
inline std::optional<V> Map<K, V, Hash, Eq>::Load(const K& key) const {
  const Shard* s = Find(key);
  if (s == nullptr) return std::nullopt;
  std::shared_lock hold(s->mu);
  auto it = s->map.find(key);
  if (it == s->map.end()) return std::nullopt;
  return it->second;
}

template <class K, class V, class Hash, class Eq>
inline std::pair<V, bool> Map<K, V, Hash, Eq>::LoadOrStore(K key, V value) {
  Shard& s = FindOrMake(key);
  {
    std::shared_lock hold(s.mu);
    auto it = s.map.find(key);
    if (it != s.map.end()) return {it->second, true};
  }
  std::unique_lock hold(s.mu);
  auto [it, inserted] = s.map.try_emplace(std::move(key), std::move(value));
  return {it->second, !inserted};
}

template <class K, class V, class Hash, class Eq>
inline std::optional<V> Map<K, V, Hash, Eq>::Swap(K key, V value) {
  Shard& s = FindOrMake(key);
  std::unique_lock hold(s.mu);
  auto [it, inserted] = s.map.try_emplace(std::move(key), std::move(value));
  if (inserted) return std::nullopt;
  // try_emplace did not move from value.
  return std::exchange(it->second, std::move(value));
}

template <class K, class V, class Hash, class Eq>
inline bool Map<K, V, Hash, Eq>::CompareAndSwap(const K& key, const V& expected,
                                                V desired) {
  Shard* s = Find(key);
  if (s == nullptr) return false;
  std::unique_lock hold(s->mu);
  auto it = s->map.find(key);
  if (it == s->map.end() || !(it->second == expected)) return false;
  std::swap(it->second, desired);
  hold.unlock();  // the old value is destroyed outside the lock
  return true;
}

template <class K, class V, class Hash, class Eq>
template <class F>
inline void Map<K, V, Hash, Eq>::Range(F&& f) const {
  std::vector<K> keys;
  for (const auto& slot : shards_) {
    const Shard* s = slot.load(rt::acquire);  // pairs with MakeShard
    if (s == nullptr) continue;
    keys.clear();
    {
      std::shared_lock hold(s->mu);
      keys.reserve(s->map.size());
      for (const auto& entry : s->map) keys.push_back(entry.first);
    }
    for (const K& key : keys) {
      std::optional<V> value = Load(key);
      if (!value.has_value()) continue;  // removed in between
      if (!Visit(f, key, *value)) return;
    }
  }
}

template <class K, class V, class Hash, class Eq>
inline void Map<K, V, Hash, Eq>::Clear() {
  for (auto& slot : shards_) {
    Shard* s = slot.load(rt::acquire);  // pairs with MakeShard
    if (s == nullptr) continue;
    Table old;
    std::unique_lock hold(s->mu);
    old.swap(s->map);
    hold.unlock();  // the entries are destroyed outside the lock
  }
}

template <class K, class V, class Hash, class Eq>
template <class Accept>
inline std::optional<V> Map<K, V, Hash, Eq>::Extract(const K& key,
                                                     Accept accept) {
  Shard* s = Find(key);
  if (s == nullptr) return std::nullopt;
  typename Table::node_type node;  // destroyed outside the lock
  {
    std::unique_lock hold(s->mu);
    auto it = s->map.find(key);
    if (it == s->map.end() || !accept(std::as_const(it->second))) {
      return std::nullopt;
    }
    node = s->map.extract(it);
  }
  return std::move(node.mapped());
}

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_MAP_H_
