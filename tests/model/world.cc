// The memory that schedules share, and how it is put back.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "tests/model/checker.h"

// The program's variables; the linker's names for their bounds.
extern "C" {
extern char __data_start;
extern char _end;
}

namespace gump::model {

namespace {

constexpr uintptr_t kBase = 0x5a0000000000;
constexpr size_t kStackSize = size_t{256} << 10;
constexpr size_t kStacks = kMaxThreads * kStackSize;
constexpr size_t kHeap = size_t{4} << 20;
constexpr size_t kSys = size_t{1} << 31;
constexpr uintptr_t kHeapAt = kBase + kStacks;
constexpr uintptr_t kSysAt = kHeapAt + kHeap;
constexpr size_t kPage = 4096;
constexpr size_t kBlock = 1024;  // compared at once

struct Freed {
  uintptr_t lo, hi;
};

struct Pages {
  uintptr_t at;
  size_t n;
  std::vector<char> bytes;
};

// Not among the program's variables, so that it survives a restore. Its own
// vectors come from malloc.
struct World {
  bool useArena = false;
  uintptr_t heapNext = kHeapAt, sysNext = kSysAt;
  uintptr_t heapThen = kHeapAt, sysThen = kSysAt;
  uintptr_t sysMax = kSysAt;  // touched by some schedule
  std::vector<Freed> freed;
  size_t freedThen = 0;
  std::vector<Pages> saved;
  std::vector<char> known;  // the pages of the range that are in it
  long faults = 0;
};
World* world;

World& w() {
  if (world != nullptr) return *world;
  if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) {
    perror("model: prctl");
    _exit(2);
  }
  void* p = mmap(
      reinterpret_cast<void*>(kBase), kStacks + kHeap + kSys,
      PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (p != reinterpret_cast<void*>(kBase)) {
    perror("model: mmap");
    _exit(2);
  }
  void* cell = malloc(sizeof(World));
  world = new (cell) World;
  return *world;
}

char* variables() { return &__data_start; }
size_t variablesSize() { return static_cast<size_t>(&_end - &__data_start); }

// putBack restores the saved bytes. Most pages are as they were, and to compare
// them costs less than to write them.
void putBack(const Pages& pages) {
  for (size_t done = 0; done < pages.n;) {
    const size_t n = std::min(pages.n - done, kBlock);
    void* at = reinterpret_cast<void*>(pages.at + done);
    const char* bytes = pages.bytes.data() + done;
    if (memcmp(at, bytes, n) != 0) memcpy(at, bytes, n);
    done += n;
  }
}

// touched has a byte for each page of [lo, hi). Its lowest bit says whether the
// page was ever touched.
std::vector<unsigned char> touched(uintptr_t lo, uintptr_t hi) {
  std::vector<unsigned char> in((hi - lo + kPage - 1) / kPage);
  if (!in.empty() &&
      mincore(reinterpret_cast<void*>(lo), hi - lo, in.data()) != 0) {
    perror("model: mincore");
    _exit(2);
  }
  return in;
}

// save remembers the pages of [lo, hi) that were ever written and are not
// remembered yet. With fresh it takes them to be as the kernel gave them, zero.
void save(uintptr_t lo, uintptr_t hi, bool fresh) {
  const std::vector<unsigned char> in = touched(lo, hi);
  if (in.empty()) return;
  const size_t first = (lo - kBase) / kPage;
  if (w().known.size() < first + in.size()) w().known.resize(first + in.size());
  char* known = w().known.data() + first;
  const auto wants = [&](size_t i) {
    return i < in.size() && (in[i] & 1) != 0 && known[i] == 0;
  };
  // wantsAny looks at eight pages at once, because almost none is wanted.
  const auto wantsAny = [&](size_t i) {
    if (i + 8 > in.size()) return true;
    uint64_t is, was;
    memcpy(&is, in.data() + i, sizeof(is));
    memcpy(&was, known + i, sizeof(was));
    return (is & ~was & 0x0101010101010101) != 0;
  };
  for (size_t i = 0; i < in.size();) {
    if (!wantsAny(i)) {
      i += 8;
      continue;
    }
    size_t n = 0;
    for (; wants(i + n); n++) known[i + n] = 1;
    if (n != 0) {
      Pages p{lo + i * kPage, n * kPage, {}};
      p.bytes.resize(p.n);
      if (!fresh) {
        memcpy(p.bytes.data(), reinterpret_cast<void*>(p.at), p.n);
      }
      w().saved.push_back(std::move(p));
    }
    i += n + 1;
  }
}

// pageFaults counts the pages that were touched for the first time. Huge pages
// are off, so each page has a fault of its own.
long pageFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// freshFaults counts the pages that this schedule has got from sysPages and
// touched. Each had at least one fault, and none is put back. So if there were
// no other faults, no page of the snapshot was touched for the first time.
long freshFaults() {
  long n = 0;
  for (unsigned char in : touched(w().sysThen, w().sysNext)) n += in & 1;
  return n;
}

}  // namespace

char* stackOf(int thread, size_t* size) {
  (void)w();
  *size = kStackSize;
  return reinterpret_cast<char*>(kBase) + thread * kStackSize;
}

void* sysPages(size_t n) {
  n = (n + kPage - 1) / kPage * kPage;
  World& x = w();
  const uintptr_t p = x.sysNext;
  if (p + n > kSysAt + kSys) return nullptr;
  x.sysNext += n;
  // An earlier schedule has used these pages. The kernel would give zeroes, and
  // no guards.
  if (p < x.sysMax &&
      mmap(reinterpret_cast<void*>(p), n, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0) == MAP_FAILED) {
    return nullptr;
  }
  if (x.sysNext > x.sysMax) x.sysMax = x.sysNext;
  return reinterpret_cast<void*>(p);
}

bool isFreed(uintptr_t addr) {
  if (addr - kHeapAt >= kHeap) return false;
  for (const Freed& f : w().freed) {
    if (addr >= f.lo && addr < f.hi) return true;
  }
  return false;
}

bool isShared(uintptr_t addr) {
  return addr - kBase < kStacks + kHeap + kSys ||
         addr - reinterpret_cast<uintptr_t>(variables()) < variablesSize();
}

void useArena(bool on) { w().useArena = on; }

void snapshot() {
  World& x = w();
  x.useArena = false;
  x.saved.clear();
  x.heapThen = x.heapNext;
  x.sysThen = x.sysNext;
  x.freedThen = x.freed.size();
  Pages p{reinterpret_cast<uintptr_t>(variables()), variablesSize(), {}};
  p.bytes.assign(variables(), variables() + variablesSize());
  x.saved.push_back(std::move(p));
  x.known.clear();
  save(kBase, x.sysNext, /*fresh=*/false);
  x.faults = pageFaults();
}

void restore() {
  World& x = *world;
  // A page that has been mapped for long may be written to for the first time
  // only in some schedule.
  const long faults = pageFaults() - x.faults;
  if (faults != 0 && faults != freshFaults()) {
    save(kSysAt, x.sysThen, /*fresh=*/true);
  }
  for (const Pages& p : x.saved) putBack(p);
  x.faults = pageFaults();
  x.heapNext = x.heapThen;
  x.sysNext = x.sysThen;
  x.freed.resize(x.freedThen);
}

namespace {

void* allocate(size_t n, size_t align) {
  if (world == nullptr || !world->useArena) {
    return align <= 16 ? malloc(n)
                       : aligned_alloc(align, (n + align - 1) / align * align);
  }
  World& x = *world;
  if (align < 16) align = 16;
  // The size lies before the memory.
  const uintptr_t p = (x.heapNext + sizeof(size_t) + align - 1) / align * align;
  x.heapNext = p + n;
  if (x.heapNext > kHeapAt + kHeap) return nullptr;
  reinterpret_cast<size_t*>(p)[-1] = n;
  return reinterpret_cast<void*>(p);
}

void release(void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  if (at - kHeapAt >= kHeap) {
    free(p);
    return;
  }
  beforeFree();
  World& x = *world;
  const bool arena = x.useArena;
  x.useArena = false;
  const size_t n = reinterpret_cast<size_t*>(at)[-1];
  // The free is ordered behind every earlier access to the memory.
  for (size_t i = 0; i < n; i += sizeof(uint32_t)) {
    plainAccess(at + i, sizeof(uint32_t), true, __builtin_return_address(0));
  }
  x.freed.push_back({at, at + n});
  x.useArena = arena;
}

}  // namespace
}  // namespace gump::model

void* operator new(size_t n) {
  void* p = gump::model::allocate(n, 1);
  if (p == nullptr) abort();
  return p;
}
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return gump::model::allocate(n, 1);
}
void* operator new(size_t n, std::align_val_t a) {
  void* p = gump::model::allocate(n, static_cast<size_t>(a));
  if (p == nullptr) abort();
  return p;
}
void* operator new(size_t n, std::align_val_t a,
                   const std::nothrow_t&) noexcept {
  return gump::model::allocate(n, static_cast<size_t>(a));
}
void operator delete(void* p) noexcept { gump::model::release(p); }
void operator delete(void* p, size_t) noexcept { gump::model::release(p); }
void operator delete(void* p, std::align_val_t) noexcept {
  gump::model::release(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  gump::model::release(p);
}
