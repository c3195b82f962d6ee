// Happens-before for accesses that are not atomic. The library and the models
// are compiled with -fsanitize=thread. Its hooks are here instead of in the
// sanitizer's own library, so each explored schedule is also checked for races,
// with the vector clocks that seam.cc keeps. This check finds a missing release
// or acquire.
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "tests/model/checker.h"
#include "tests/model/model.h"

namespace gump::model {

namespace {

constexpr uint32_t kCells = 1 << 16;

// Cell records the accesses that begin at one address. An access that overlaps
// them but begins elsewhere is not compared with them.
struct Cell {
  uintptr_t addr;
  uint32_t schedule;
  int8_t writer;  // -1: none
  uint32_t written;
  uint32_t read[kMaxThreads];
  const void* writerPc;
  const void* readerPc[kMaxThreads];
};

struct Shadow {
  uint32_t schedule;
  uint32_t used;
  Cell cells[kCells];
};

Shadow* shadow;

Cell* cellOf(uintptr_t addr) {
  auto h = addr * 0x9e3779b97f4a7c15u >> 48;
  for (;; h = (h + 1) % kCells) {
    Cell& c = shadow->cells[h];
    if (c.schedule != shadow->schedule) {
      if (shadow->used++ > kCells / 2) return nullptr;
      c = Cell();
      c.addr = addr;
      c.schedule = shadow->schedule;
      c.writer = -1;
    }
    if (c.addr == addr) return &c;
  }
}

}  // namespace

void racesBegin() {
  if (shadow == nullptr) {
    shadow = static_cast<Shadow*>(mmap(nullptr, sizeof(Shadow),
                                       PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  shadow->schedule++;
  shadow->used = 0;
}

void plainAccess(uintptr_t addr, unsigned, bool write, const void* pc) {
  int me;
  const Clocks* clocks = currentClocks(&me);
  if (clocks == nullptr || !isShared(addr)) return;
  if (isFreed(addr)) fail("an access to memory that has been freed");
  Cell* c = cellOf(addr);
  if (c == nullptr) return;
  const Clock& now = clocks->now;
  if (c->writer >= 0 && c->writer != me && c->written > now.at[c->writer]) {
    failRace(addr, write, c->writer, true, pc, c->writerPc);
  }
  if (!write) {
    c->read[me] = now.at[me];
    c->readerPc[me] = pc;
    return;
  }
  for (int i = 0; i < kMaxThreads; i++) {
    if (i != me && c->read[i] > now.at[i]) {
      failRace(addr, write, i, false, pc, c->readerPc[i]);
    }
    c->read[i] = 0;
  }
  c->writer = static_cast<int8_t>(me);
  c->written = now.at[me];
  c->writerPc = pc;
}

}  // namespace gump::model

#define GUMP_MODEL_HOOK(size)                                             \
  void __tsan_read##size(void* p) {                                       \
    gump::model::plainAccess(reinterpret_cast<uintptr_t>(p), size, false, \
                             __builtin_return_address(0));                \
  }                                                                       \
  void __tsan_write##size(void* p) {                                      \
    gump::model::plainAccess(reinterpret_cast<uintptr_t>(p), size, true,  \
                             __builtin_return_address(0));                \
  }                                                                       \
  void __tsan_unaligned_read##size(void* p) { __tsan_read##size(p); }     \
  void __tsan_unaligned_write##size(void* p) { __tsan_write##size(p); }

extern "C" {
GUMP_MODEL_HOOK(1)
GUMP_MODEL_HOOK(2)
GUMP_MODEL_HOOK(4)
GUMP_MODEL_HOOK(8)
GUMP_MODEL_HOOK(16)
void __tsan_read_range(void*, unsigned long) {}
void __tsan_write_range(void*, unsigned long) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// liburing accesses the indices of its queues, which only one thread uses here.
unsigned __tsan_atomic32_load(const volatile unsigned* p, int) { return *p; }
void __tsan_atomic32_store(volatile unsigned* p, unsigned v, int) { *p = v; }
}
