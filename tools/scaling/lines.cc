#include "tools/scaling/lines.h"

#include <sched.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"

// This file is compiled without -fsanitize=thread.

namespace gump::scaling {
namespace {

constexpr uintptr_t kLine = 64;
constexpr int kEntryBits = 21;
constexpr size_t kEntries = size_t{1} << kEntryBits;
constexpr int kOutside = 64;  // the cache of all threads without a P

// CacheSet is a set of caches.
class CacheSet {
 public:
  bool has(int c) const { return (words_[c / 64] >> (c % 64) & 1) != 0; }
  bool empty() const { return words_[0] == 0 && words_[1] == 0; }
  bool only(int c) const {
    CacheSet one;
    one.add(c);
    return words_[0] == one.words_[0] && words_[1] == one.words_[1];
  }
  void add(int c) { words_[c / 64] |= uint64_t{1} << (c % 64); }
  void clear() { words_[0] = words_[1] = 0; }
  int size() const {
    return std::popcount(words_[0]) + std::popcount(words_[1]);
  }

 private:
  uint64_t words_[2] = {};
};

struct Entry {
  std::atomic<uintptr_t> key{0};  // the line's address; 0: free
  std::atomic<bool> busy{false};  // guards the rest
  CacheSet holders;
  CacheSet ever;
  Line line;
};

Entry* entries;
std::atomic<bool> counting{false};
std::atomic<int64_t> missed{0};
// A signal handler may run in a thread that is counting an access.
thread_local bool inside = false;

int Cache() {
  const rt::G* gp = rt::getg();
  if (gp == nullptr || gp->m == nullptr || gp->m->p == nullptr) return kOutside;
  return gp->m->p->id;
}

// EntryOf returns the entry of a line, or nullptr if there is no room.
Entry* EntryOf(uintptr_t address) {
  size_t at = (address / kLine * 0x9E3779B97F4A7C15u) >> (64 - kEntryBits);
  for (int tries = 0; tries < 64; tries++, at = (at + 1) % kEntries) {
    Entry* e = &entries[at];
    uintptr_t key = e->key.load(std::memory_order_acquire);
    if (key == 0 && e->key.compare_exchange_strong(key, address)) return e;
    if (key == address) return e;
  }
  return nullptr;
}

// Lock gives up after some seconds, because a signal handler might hold the
// owner for ever.
bool Lock(Entry* e) {
  for (int tries = 0; tries < 1'000'000; tries++) {
    if (!e->busy.exchange(true, std::memory_order_acquire)) return true;
    if (tries > 100) sched_yield();
  }
  return false;
}

void Count(Entry* e, int cache, bool write, uintptr_t pc) {
  const bool moves = write ? !e->holders.empty() && !e->holders.only(cache)
                           : !e->holders.empty() && !e->holders.has(cache);
  if (write) e->holders.clear();
  e->holders.add(cache);
  e->ever.add(cache);
  if (!write && !moves) return;
  Line& line = e->line;
  line.writes += write ? 1 : 0;
  line.moves += moves ? 1 : 0;
  for (Site& site : line.sites) {
    if (site.pc != pc && site.pc != 0) continue;
    site.pc = pc;
    site.writes += write ? 1 : 0;
    site.moves += moves ? 1 : 0;
    return;
  }
}

// Access is on the path of every access to memory. pc lies in the function that
// makes the access.
void Access(const volatile void* at, size_t size, bool write, void* pc) {
  if (!counting.load(std::memory_order_relaxed) || inside || size == 0) return;
  inside = true;
  const int cache = Cache();
  const auto first = reinterpret_cast<uintptr_t>(at) / kLine * kLine;
  const uintptr_t end = reinterpret_cast<uintptr_t>(at) + size;
  for (uintptr_t address = first; address < end; address += kLine) {
    Entry* e = EntryOf(address);
    if (e == nullptr || !Lock(e)) {
      missed.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    Count(e, cache, write, reinterpret_cast<uintptr_t>(pc));
    e->busy.store(false, std::memory_order_release);
  }
  inside = false;
}

Range RangeOf(const char* name, const void* at, size_t size) {
  const auto start = reinterpret_cast<uintptr_t>(at);
  return {name, start, start + size};
}

}  // namespace

std::vector<Range> RuntimeObjects() {
  std::vector<Range> ranges;
  for (int32_t i = 0; i < rt::gomaxprocs.load(rt::relaxed); i++) {
    ranges.push_back(RangeOf("a P", rt::allp[i], sizeof(rt::P)));
  }
  for (rt::M* mp = rt::allm.load(rt::acquire); mp != nullptr;
       mp = mp->alllink) {
    ranges.push_back(RangeOf("an M", mp, sizeof(rt::M)));
  }
  rt::forEachG(
      [](rt::G* gp, void* arg) {
        auto* out = static_cast<std::vector<Range>*>(arg);
        out->push_back(RangeOf("a G", gp, sizeof(rt::G)));
        if (gp->stack.lo == 0) return;
        out->push_back({"a stack", gp->stack.lo, gp->stack.hi});
      },
      &ranges);
  return ranges;
}

void StartCounting() {
  std::free(entries);
  entries = static_cast<Entry*>(std::calloc(kEntries, sizeof(Entry)));
  if (entries == nullptr) std::abort();
  missed = 0;
  counting = true;
}

std::vector<Line> StopCounting() {
  counting = false;
  std::vector<Line> lines;
  for (size_t i = 0; i < kEntries; i++) {
    Entry& e = entries[i];
    if (e.ever.size() < 2 || e.line.writes == 0) continue;
    e.line.address = e.key;
    e.line.caches = e.ever.size();
    lines.push_back(e.line);
  }
  return lines;
}

int64_t Missed() { return missed; }

}  // namespace gump::scaling

// ---- What the compiler calls ------------------------------------------------

using gump::scaling::Access;
using Byte = unsigned char;
#define GUMP_PC __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_atomic_thread_fence(int) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
void __tsan_atomic_signal_fence(int) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
void __tsan_vptr_update(void** at, void*) { Access(at, 8, true, GUMP_PC); }
void __tsan_vptr_read(void** at) { Access(at, 8, false, GUMP_PC); }
void __tsan_read_range(void* at, size_t n) { Access(at, n, false, GUMP_PC); }
void __tsan_write_range(void* at, size_t n) { Access(at, n, true, GUMP_PC); }

#define GUMP_PLAIN(size)                                                 \
  void __tsan_read##size(void* at) { Access(at, size, false, GUMP_PC); } \
  void __tsan_write##size(void* at) { Access(at, size, true, GUMP_PC); } \
  void __tsan_unaligned_read##size(void* at) {                           \
    Access(at, size, false, GUMP_PC);                                    \
  }                                                                      \
  void __tsan_unaligned_write##size(void* at) {                          \
    Access(at, size, true, GUMP_PC);                                     \
  }                                                                      \
  void __tsan_volatile_read##size(void* at) {                            \
    Access(at, size, false, GUMP_PC);                                    \
  }                                                                      \
  void __tsan_volatile_write##size(void* at) {                           \
    Access(at, size, true, GUMP_PC);                                     \
  }
GUMP_PLAIN(1)
GUMP_PLAIN(2)
GUMP_PLAIN(4)
GUMP_PLAIN(8)
GUMP_PLAIN(16)

// The orders of the program may be weaker. That changes no count.
#define GUMP_CHANGE(bits, T, name)                           \
  T __tsan_atomic##bits##_##name(volatile T* at, T v, int) { \
    Access(at, sizeof(T), true, GUMP_PC);                    \
    return __atomic_##name(at, v, __ATOMIC_SEQ_CST);         \
  }
#define GUMP_ATOMIC(bits, T)                                                   \
  T __tsan_atomic##bits##_load(const volatile T* at, int) {                    \
    Access(at, sizeof(T), false, GUMP_PC);                                     \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                              \
  }                                                                            \
  void __tsan_atomic##bits##_store(volatile T* at, T v, int) {                 \
    Access(at, sizeof(T), true, GUMP_PC);                                      \
    __atomic_store_n(at, v, __ATOMIC_SEQ_CST);                                 \
  }                                                                            \
  T __tsan_atomic##bits##_exchange(volatile T* at, T v, int) {                 \
    Access(at, sizeof(T), true, GUMP_PC);                                      \
    return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST);                       \
  }                                                                            \
  GUMP_CHANGE(bits, T, fetch_add)                                              \
  GUMP_CHANGE(bits, T, fetch_sub)                                              \
  GUMP_CHANGE(bits, T, fetch_and)                                              \
  GUMP_CHANGE(bits, T, fetch_or)                                               \
  GUMP_CHANGE(bits, T, fetch_xor)                                              \
  int __tsan_atomic##bits##_compare_exchange_strong(                           \
      volatile T* at, T* expected, T desired, int, int) {                      \
    Access(at, sizeof(T), true, GUMP_PC);                                      \
    return __atomic_compare_exchange_n(at, expected, desired, false,           \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
  }                                                                            \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* expected, \
                                                  T desired, int, int) {       \
    Access(at, sizeof(T), true, GUMP_PC);                                      \
    return __atomic_compare_exchange_n(at, expected, desired, true,            \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
  }
GUMP_ATOMIC(8, uint8_t)
GUMP_ATOMIC(16, uint16_t)
GUMP_ATOMIC(32, uint32_t)
GUMP_ATOMIC(64, uint64_t)

// Calls of these are not instrumented, so the linker redirects them (--wrap).
void* __real_memcpy(void* to, const void* from, size_t n);
void* __real_memmove(void* to, const void* from, size_t n);
void* __real_memset(void* to, int c, size_t n);
void* __wrap_memcpy(void* to, const void* from, size_t n) {
  Access(from, n, false, GUMP_PC);
  Access(to, n, true, GUMP_PC);
  return __real_memcpy(to, from, n);
}
void* __wrap_memmove(void* to, const void* from, size_t n) {
  Access(from, n, false, GUMP_PC);
  Access(to, n, true, GUMP_PC);
  return __real_memmove(to, from, n);
}
void* __wrap_memset(void* to, int c, size_t n) {
  Access(to, n, true, GUMP_PC);
  return __real_memset(to, c, n);
}
}  // extern "C"
