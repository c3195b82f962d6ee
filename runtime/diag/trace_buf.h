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
inline size_t putNumber(uint8_t* to, uint64_t n) {
  size_t size = 0;
  for (; n >= 0x80; n >>= 7) to[size++] = static_cast<uint8_t>(n | 0x80);
  to[size++] = static_cast<uint8_t>(n);
  return size;
}

// TraceBuf is a batch: a header, and events of one thread.
struct TraceBuf {
  // The format allows 65,536.
  static constexpr uint32_t kSize = kModelBuild ? 256 : 65'000;
  static constexpr uint32_t kMostEvent = 128;  // bytes of one event

  TraceBuf* next;
  uint64_t gen;
  uint64_t tid;
  int64_t lastTime;
  uint32_t lengthAt;  // where the length of the events is
  uint32_t pos;
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
    byte(type);
    number(static_cast<uint64_t>(now - lastTime));
    lastTime = now;
  }
  // event writes a whole event.
  template <class Type, class... Args>
  void event(Type type, int64_t now, Args... args) {
    time(static_cast<uint8_t>(type), now);
    (number(static_cast<uint64_t>(args)), ...);
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
  // allocate returns n zeroed bytes, aligned to 8, or nullptr.
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
  struct Node {
    Node* next;
    uint64_t hash;
    uint32_t id;
    uint32_t size;
    const void* bytes() const { return this + 1; }
  };

  // put returns the id, or 0 if the kernel has no memory.
  uint64_t put(const void* bytes, size_t size);
  uint32_t count() const { return ids_.load(relaxed); }
  template <class F>
  void forEach(F&& f) const {
    for (const auto& head : heads_) {
      for (const Node* n = head.load(acquire); n != nullptr; n = n->next) f(*n);
    }
  }
  void clear();

 private:
  static constexpr size_t kHeads = kModelBuild ? 2 : 4096;
  Atomic<Node*> heads_[kHeads];
  Atomic<uint32_t> ids_;
  TraceArena arena_;
};

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACE_BUF_H_
