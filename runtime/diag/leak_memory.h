// The memory of the process, as the goroutineleak profile reads it: what is
// mapped, and the words in it. leaks.h has the profile.
//
// The kernel copies the words (process_vm_readv), so a mapping that another
// thread unmaps meanwhile is an error and not a fault.
#ifndef RUNTIME_DIAG_LEAK_MEMORY_H_
#define RUNTIME_DIAG_LEAK_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/sys/base.h"

namespace gump::rt {

// Span is the addresses [lo, hi).
struct Span {
  uintptr_t lo = 0;
  uintptr_t hi = 0;
};

// Table is an array in memory of a LeakStore. It has room for a fixed number of
// elements, and memory only for those that it holds.
template <class T>
class Table {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  // push appends an element. If there is no room, it notes that in full().
  void push(const T& t) {
    if (size_ == room_) {
      full_ = true;
    } else {
      data_[size_++] = t;
    }
  }
  void truncate(size_t n) { size_ = n; }
  bool full() const { return full_; }
  size_t size() const { return size_; }
  size_t room() const { return room_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  friend class LeakStore;
  T* data_ = nullptr;
  size_t size_ = 0;
  size_t room_ = 0;
  bool full_ = false;
};

// LeakStore is address space for the tables of one profile. It is reserved
// before the stop of the world, in which the profile must not call malloc. Its
// pages cost memory once they are touched.
class LeakStore {
 public:
  // reserve reserves about n bytes, or less if there is not so much. Returns
  // false if there are less than 16 MiB.
  // On: any.  P: either.  Locks: none.  Parks: no.
  [[nodiscard]] bool reserve(size_t n);
  void free();
  // carve gives a share of the store, in 64ths, to a table.
  template <class T>
  void carve(Table<T>* t, size_t share) {
    const size_t bytes = alignUp(size_ / 64 * share, kPageSize) - kPageSize;
    t->data_ = reinterpret_cast<T*>(base_ + used_);
    t->room_ = bytes / sizeof(T);
    used_ += bytes;
  }
  Span span() const { return {base_, base_ + size_}; }

 private:
  uintptr_t base_ = 0;
  size_t size_ = 0;
  size_t used_ = 0;
};

// Mapping is a part of the address space that the process can read, and in
// which it may keep pointers.
struct Mapping {
  uintptr_t lo = 0;
  uintptr_t hi = 0;
  bool anonymous = false;
  bool mainStack = false;  // the stack of the first thread
  // The elements of LeakHeap's table for it.
  size_t firstChunk = 0;
  size_t chunks = 0;
};

// ProcessMemory reads the memory of the process.
class ProcessMemory {
 public:
  static constexpr size_t kBuffer = 64 << 10;

  // open opens the files of /proc that it needs. Returns false if there are
  // none. The caller holds a StandardHold.
  // On: any.  P: either.  Locks: none.  Parks: no.
  [[nodiscard]] bool open();
  void close() const;
  // readMaps appends the mappings to *to, by their addresses. Returns false if
  // they cannot be read.
  // On: any.  P: either.  Locks: none.  Parks: no.
  [[nodiscard]] bool readMaps(Table<Mapping>* to);
  // read copies n bytes. Returns false if it cannot read all of them.
  // On: any.  P: either.  Locks: none.  Parks: no.
  [[nodiscard]] bool read(uintptr_t from, void* to, size_t n) const;
  // The number of pages that scan could not read.
  uint64_t unreadable() const { return unreadable_; }

  // scan calls f(address, word) for each aligned word in s. It passes over
  // pages that the process has not touched.
  template <class F>
  void scan(Span s, const F& f) {
    s.lo = alignUp(s.lo, sizeof(uintptr_t));
    s.hi -= s.hi % sizeof(uintptr_t);
    while (s.lo < s.hi) {
      const Span part = nextPresent(s);
      if (part.lo >= part.hi) return;
      s.lo = part.hi;
      if (!read(part.lo, buffer_, part.hi - part.lo)) {
        scanByPage(part, f);
        continue;
      }
      eachWord(part, f);
    }
  }

 private:
  template <class F>
  void eachWord(Span part, const F& f) const {
    const size_t n = (part.hi - part.lo) / sizeof(uintptr_t);
    for (size_t i = 0; i < n; i++) {
      f(part.lo + i * sizeof(uintptr_t), buffer_[i]);
    }
  }
  template <class F>
  void scanByPage(Span part, const F& f) {
    while (part.lo < part.hi) {
      const Span page{part.lo,
                      std::min(part.hi, alignUp(part.lo + 1, kPageSize))};
      if (read(page.lo, buffer_, page.hi - page.lo)) {
        eachWord(page, f);
      } else {
        unreadable_++;
      }
      part.lo = page.hi;
    }
  }
  // nextPresent returns the first part of s, of at most kBuffer bytes, that may
  // have been touched. It is empty if there is none.
  [[nodiscard]] Span nextPresent(Span s);
  // presentBits has a bit for each page that is present, of up to 64 pages. Bit
  // 0 is for the page of addr.
  [[nodiscard]] uint64_t presentBits(uintptr_t addr);

  long maps_ = -1;
  long pagemap_ = -1;  // -1: every page counts as present
  long mem_ = -1;
  long pid_ = 0;
  uint64_t unreadable_ = 0;
  uintptr_t knownFrom_ = 1;  // of presentBits: the answer that it keeps
  uint64_t known_ = 0;
  uintptr_t* buffer_ = nullptr;  // kBuffer bytes, given by useBuffer

 public:
  void useBuffer(void* p) { buffer_ = static_cast<uintptr_t*>(p); }
};

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_LEAK_MEMORY_H_
