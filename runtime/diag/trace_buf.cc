#include "runtime/diag/trace_buf.h"

#include <cstring>

#include "runtime/sys/os_linux.h"

namespace gump::rt {

namespace {

// Buffers that are free. A slot is taken by an exchange, so there is no ABA.
constexpr size_t kSpares = kModelBuild ? 2 : 64;
Atomic<TraceBuf*> spares[kSpares];

uint64_t hashOf(const void* bytes, size_t size) {
  const auto* p = static_cast<const unsigned char*>(bytes);
  uint64_t h = 0x9e3779b97f4a7c15 ^ size;
  for (; size >= 8; p += 8, size -= 8) {
    uint64_t w;
    memcpy(&w, p, 8);
    h = (h ^ w) * 0xff51afd7ed558ccd;
    h ^= h >> 32;
  }
  for (; size > 0; p++, size--) h = (h ^ *p) * 0x100000001b3;
  return h ^ (h >> 29);
}

// equal is memcmp by words. A stack has just been written word by word, and the
// wider loads of memcmp would wait until those stores are in the cache.
bool equal(const void* a, const void* b, size_t size) {
  const auto* p = static_cast<const unsigned char*>(a);
  const auto* q = static_cast<const unsigned char*>(b);
  for (; size >= 8; p += 8, q += 8, size -= 8) {
    uint64_t v, w;
    memcpy(&v, p, 8);
    memcpy(&w, q, 8);
    if (v != w) return false;
  }
  return size == 0 || memcmp(p, q, size) == 0;
}

}  // namespace

void TraceBuf::begin(uint64_t generation, uint64_t thread, int64_t now) {
  next = nullptr;
  gen = generation;
  tid = thread;
  lastTime = now;
  memset(stacks, 0, sizeof(stacks));
  pos = 0;
  byte(1);  // a batch
  number(generation);
  number(thread);
  number(static_cast<uint64_t>(now));
  lengthAt = pos;
  pos += 4;
}

void TraceBuf::finish() {
  uint32_t length = pos - (lengthAt + 4);
  for (int i = 0; i < 4; i++, length >>= 7) {
    const uint32_t more = i < 3 ? 0x80 : 0;
    bytes[lengthAt + static_cast<uint32_t>(i)] =
        static_cast<uint8_t>((length & 0x7f) | more);
  }
}

void TraceBufs::push(TraceBuf* b) {
  TraceBuf* top = top_.load(relaxed);  // the CAS decides
  do {
    b->next = top;
  } while (!top_.casWeak(top, b, release));  // pairs with takeAll
}

TraceBuf* TraceBufs::takeAll() {
  TraceBuf* newest = top_.xchg(nullptr, acquire);  // pairs with push
  TraceBuf* oldest = nullptr;
  while (newest != nullptr) {
    TraceBuf* rest = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = rest;
  }
  return oldest;
}

TraceBuf* newTraceBuf() {
  for (auto& spare : spares) {
    if (spare.load(relaxed) == nullptr) continue;  // a hint
    if (TraceBuf* b = spare.xchg(nullptr, acquire)) return b;
  }
  return static_cast<TraceBuf*>(sysReserve(sizeof(TraceBuf)));
}

void freeTraceBuf(TraceBuf* b) {
  for (auto& spare : spares) {
    if (spare.load(relaxed) == nullptr &&
        spare.cas(nullptr, b, release)) {  // pairs with newTraceBuf
      return;
    }
  }
  sysFree(b, sizeof(TraceBuf));
}

void* TraceArena::allocate(size_t n) {
  n = (n + 7) & ~size_t{7};
  for (;;) {
    Chunk* c = chunk_.load(acquire);
    if (c != nullptr) {
      const size_t end = c->used.add(n, relaxed);  // the part is ours alone
      if (end <= Chunk::kSize) return c->bytes + (end - n);
    }
    auto* fresh = static_cast<Chunk*>(sysReserve(sizeof(Chunk)));
    if (fresh == nullptr) return nullptr;
    fresh->next = c;
    if (!chunk_.cas(c, fresh, acq_rel)) sysFree(fresh, sizeof(Chunk));
  }
}

void TraceArena::clear() {
  Chunk* c = chunk_.xchg(nullptr, relaxed);
  while (c != nullptr) {
    Chunk* next = c->next;
    sysFree(c, sizeof(Chunk));
    c = next;
  }
}

const TraceNode* TraceTable::put(const void* bytes, size_t size) {
  const uint64_t hash = hashOf(bytes, size);
  Atomic<TraceNode*>& head = heads_[hash % kHeads];
  TraceNode* fresh = nullptr;
  // An earlier round has compared the nodes from here.
  TraceNode* looked = nullptr;
  for (;;) {
    TraceNode* first = head.load(acquire);  // pairs with the cas below
    for (TraceNode* n = first; n != looked; n = n->next) {
      if (n->hash == hash && n->size == size &&
          equal(n->bytes(), bytes, size)) {
        return n;
      }
    }
    looked = first;
    if (fresh == nullptr) {
      fresh =
          static_cast<TraceNode*>(arena_.allocate(sizeof(TraceNode) + size));
      if (fresh == nullptr) return nullptr;
      fresh->hash = hash;
      fresh->id = ids_.add(1, relaxed);  // only its uniqueness matters
      fresh->size = static_cast<uint32_t>(size);
      memcpy(fresh + 1, bytes, size);
    }
    fresh->next = first;
    if (head.cas(first, fresh, release)) return fresh;
  }
}

void TraceTable::clear() {
  for (auto& head : heads_) head.store(nullptr, relaxed);
  ids_.store(0, relaxed);
  arena_.clear();
}

}  // namespace gump::rt
