#include "runtime/diag/leak_memory.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cstring>

#include "runtime/sys/os_linux.h"
#include "runtime/sys/raw_syscall.h"

namespace gump::rt {

bool LeakStore::reserve(size_t n) {
  constexpr size_t kLeast = 16 << 20;
  for (n = alignUp(n, kPageSize); n >= kLeast; n = alignUp(n / 2, kPageSize)) {
    if (void* p = sysReserve(n); p != nullptr) {
      base_ = reinterpret_cast<uintptr_t>(p);
      size_ = n;
      return true;
    }
  }
  return false;
}

void LeakStore::free() {
  if (size_ != 0) sysFree(reinterpret_cast<void*>(base_), size_);
}

namespace {

long openProc(const char* path) {
  return rawSyscall(SYS_openat, AT_FDCWD, asArg(path), O_RDONLY | O_CLOEXEC, 0,
                    0, 0);
}

void closeProc(long fd) {
  if (fd >= 0) (void)rawSyscall(SYS_close, fd, 0, 0, 0, 0, 0);
}

// readHex reads a number in hexadecimal digits and moves *at behind it.
uintptr_t readHex(const char** at) {
  uintptr_t n = 0;
  for (;; (*at)++) {
    const char c = **at;
    if (c >= '0' && c <= '9') {
      n = n * 16 + static_cast<uintptr_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      n = n * 16 + static_cast<uintptr_t>(c - 'a' + 10);
    } else {
      return n;
    }
  }
}

// skipField moves *at to the next field of a line.
void skipField(const char** at) {
  while (**at != '\0' && **at != ' ') (*at)++;
  while (**at == ' ') (*at)++;
}

// parseMapping reads a line of /proc/self/maps, which ends in NUL. Returns
// false for a mapping in which the program keeps no pointers: one that it
// cannot read, and one of a file that it cannot write.
bool parseMapping(const char* line, Mapping* m) {
  m->lo = readHex(&line);
  if (*line++ != '-') return false;
  m->hi = readHex(&line);
  if (*line++ != ' ' || strlen(line) < 5) return false;
  const bool readable = line[0] == 'r';
  const bool writable = line[1] == 'w';
  skipField(&line);  // the permissions
  skipField(&line);  // the offset
  skipField(&line);  // the device
  m->anonymous = line[0] == '0' && (line[1] == ' ' || line[1] == '\0');
  skipField(&line);
  m->mainStack = strncmp(line, "[stack]", 7) == 0;
  if (strncmp(line, "[v", 2) == 0) return false;  // the kernel's: [vdso]
  return readable && (writable || m->anonymous);
}

}  // namespace

bool ProcessMemory::open() {
  pid_ = rawSyscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
  maps_ = openProc("/proc/self/maps");
  pagemap_ = openProc("/proc/self/pagemap");
  mem_ = openProc("/proc/self/mem");
  return maps_ >= 0;
}

void ProcessMemory::close() const {
  closeProc(maps_);
  closeProc(pagemap_);
  closeProc(mem_);
}

bool ProcessMemory::readMaps(Table<Mapping>* to) {
  auto* const text = reinterpret_cast<char*>(buffer_);
  size_t have = 0;
  for (;;) {
    const long got = rawSyscall(SYS_read, maps_, asArg(text + have),
                                static_cast<long>(kBuffer - have), 0, 0, 0);
    if (got < 0) return false;
    have += static_cast<size_t>(got);
    size_t done = 0;
    while (auto* end =
               static_cast<char*>(memchr(text + done, '\n', have - done))) {
      *end = '\0';
      Mapping m;
      if (parseMapping(text + done, &m)) to->push(m);
      done = static_cast<size_t>(end - text) + 1;
    }
    if (got == 0) return to->size() != 0;
    memmove(text, text + done, have - done);
    have -= done;
    if (have == kBuffer) return false;
  }
}

bool ProcessMemory::read(uintptr_t from, void* to, size_t n) const {
  const iovec here{to, n};
  const iovec there{reinterpret_cast<void*>(from), n};
  const long got = rawSyscall(SYS_process_vm_readv, pid_, asArg(&here), 1,
                              asArg(&there), 1, 0);
  if (got == static_cast<long>(n)) return true;
  constexpr long kDenied = -1;   // EPERM
  constexpr long kNoCall = -38;  // ENOSYS
  if ((got != kDenied && got != kNoCall) || mem_ < 0) return false;
  return rawSyscall(SYS_pread64, mem_, asArg(to), static_cast<long>(n),
                    static_cast<long>(from), 0, 0) == static_cast<long>(n);
}

uint64_t ProcessMemory::presentBits(uintptr_t addr) {
  constexpr size_t kPages = 64;
  constexpr uint64_t kPresent = 1ULL << 63;
  constexpr uint64_t kSwapped = 1ULL << 62;
  if (pagemap_ < 0) return ~uint64_t{0};
  const uintptr_t from = addr - addr % (kPages * kPageSize);
  const size_t first = (addr - from) / kPageSize;
  if (from != knownFrom_) {
    uint64_t entries[kPages];
    const long got = rawSyscall(
        SYS_pread64, pagemap_, asArg(entries), sizeof(entries),
        static_cast<long>(from / kPageSize * sizeof(entries[0])), 0, 0);
    known_ = got == sizeof(entries) ? 0 : ~uint64_t{0};
    for (size_t i = 0; got == sizeof(entries) && i < kPages; i++) {
      if ((entries[i] & (kPresent | kSwapped)) != 0) known_ |= uint64_t{1} << i;
    }
    knownFrom_ = from;
  }
  return known_ >> first;
}

Span ProcessMemory::nextPresent(Span s) {
  while (s.lo < s.hi) {
    const uintptr_t page = s.lo - s.lo % kPageSize;
    const uint64_t bits = presentBits(s.lo);
    if (bits == 0) {  // none up to the next multiple of 64 pages
      s.lo = alignUp(page + 1, 64 * kPageSize);
      continue;
    }
    if ((bits & 1) == 0) {
      s.lo = page + kPageSize;
      continue;
    }
    uintptr_t end = page;
    while (end < s.hi && end - page + kPageSize <= kBuffer &&
           (presentBits(end) & 1) != 0) {
      end += kPageSize;
    }
    return {s.lo, std::min(s.hi, end)};
  }
  return {s.hi, s.hi};
}

}  // namespace gump::rt
