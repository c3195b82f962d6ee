// Memory of the execution trace: buffers for events, and tables that give equal
// stacks and equal strings one id. All of it works in signal handlers and under
// every lock, because it takes memory from the kernel and has no locks of its
// own.
#ifndef RUNTIME_DIAG_TRACE_BUF_H_
#define RUNTIME_DIAG_TRACE_BUF_H_

#include <cstddef>
#include <cstdint>

#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

// The thread, in the trace's format, of a batch that belongs to no thread.
inline constexpr uint64_t kNoTraceThread = ~uint64_t{0};

// putNumber writes n as a uvarint. Returns its length.
inline constexpr size_t kMostNumber = 10;
GUMP_ALWAYS_INLINE size_t putNumber(uint8_t* to, uint64_t n) {
  size_t size = 0;
  for (; n >= 0x80; n >>= 7) to[size++] = static_cast<uint8_t>(n | 0x80);
  to[size++] = static_cast<uint8_t>(n);
  return size;
}

// TraceNode is a sequence of bytes in a TraceTable.
struct TraceNode {
  TraceNode* next;
  uint64_t hash;
  uint32_t id;
  uint32_t size;
  const void* bytes() const { return this + 1; }
};

// TraceBuf is a batch: a header, and events of one thread.
struct TraceBuf {
  // The format allows 65,536.
  static constexpr uint32_t kSize = kModelBuild ? 256 : 64'000;
  static constexpr uint32_t kMostEvent = 128;  // bytes of one event

  TraceBuf* next;
  uint64_t gen;
  uint64_t tid;
  int64_t lastTime;
  uint32_t lengthAt;  // where the length of the events is
  uint32_t pos;
  // Stacks of the buffer's generation that the thread has met last. The thread
  // need not look for these in the table. stackFrom chooses the places.
  static constexpr size_t kStacks = kModelBuild ? 2 : 64;
  const TraceNode* stacks[kStacks];
  uint8_t bytes[kSize];

  // begin writes the header, with room for the length.
  void begin(uint64_t generation, uint64_t thread, int64_t now);
  void byte(uint8_t b) { bytes[pos++] = b; }
  void number(uint64_t n) {
    pos += static_cast<uint32_t>(putNumber(bytes + pos, n));
  }
  // time writes the type of an event and its time.
  void time(uint8_t type, int64_t now) {
    // Times strictly increase: readers order the events of a thread by them.
    if (now <= lastTime) now = lastTime + 1;
    uint8_t* at = bytes + pos;
    *at++ = type;
    at += putNumber(at, static_cast<uint64_t>(now - lastTime));
    pos = static_cast<uint32_t>(at - bytes);
    lastTime = now;
  }
  // event writes a whole event. A local variable has the place meanwhile,
  // because the compiler must assume that a store of a byte changes `pos`.
  template <class Type, class... Args>
  void event(Type type, int64_t now, Args... args) {
    time(static_cast<uint8_t>(type), now);
    uint8_t* at = bytes + pos;
    ((at += putNumber(at, static_cast<uint64_t>(args))), ...);
    pos = static_cast<uint32_t>(at - bytes);
  }
  void finish();  // writes the length
};

// TraceBufs is a list of buffers that any thread may push to.
class TraceBufs {
 public:
  void push(TraceBuf* b);
  // takeAll empties the list. Returns its buffers in the order of the pushes.
  TraceBuf* takeAll();

 private:
  Atomic<TraceBuf*> top_;
};

// newTraceBuf returns nullptr if the kernel has no memory.
[[nodiscard]] TraceBuf* newTraceBuf();
// freeTraceBuf keeps the buffer for later, or returns it to the kernel.
void freeTraceBuf(TraceBuf* b);

// TraceArena is memory that is freed as a whole. Any thread may allocate.
class TraceArena {
 public:
  // allocate returns n zeroed bytes, aligned to 8, or nullptr. n is at most
  // Chunk::kSize.
  [[nodiscard]] void* allocate(size_t n);
  // clear frees all of it. No other thread may use the arena meanwhile.
  void clear();

 private:
  struct Chunk {
    static constexpr size_t kSize = kModelBuild ? 512 : size_t{1} << 18;
    Chunk* next;
    Atomic<size_t> used;
    alignas(8) unsigned char bytes[kSize];
  };
  Atomic<Chunk*> chunk_;
};

// TraceTable gives each sequence of bytes an id, from 1. Any thread may put.
// The other functions are for the thread that ends the generation, when no
// thread puts any more.
class TraceTable {
 public:
  // put returns the node of these bytes, or nullptr if the kernel has no
  // memory. The node stays until clear.
  const TraceNode* put(const void* bytes, size_t size);
  uint32_t count() const { return ids_.load(relaxed); }
  template <class F>
  void forEach(F&& f) const {
    for (const auto& head : heads_) {
      for (const TraceNode* n = head.load(acquire); n != nullptr; n = n->next) {
        f(*n);
      }
    }
  }
  void clear();

 private:
  static constexpr size_t kHeads = kModelBuild ? 2 : 4096;
  Atomic<TraceNode*> heads_[kHeads];
  Atomic<uint32_t> ids_;
  TraceArena arena_;
};

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACE_BUF_H_
