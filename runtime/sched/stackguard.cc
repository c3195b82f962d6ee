// Guard pages below stacks.
//
// MADV_GUARD_INSTALL marks page table entries and needs no VMA. It takes half a
// microsecond for each guard, a little less in batches. Where the kernel lacks
// it, and under AddressSanitizer, we use mprotect, which splits the mapping.
// The kernel allows a process vm.max_map_count mappings. malloc, thread stacks
// and files need some of them as well, so we stop at three quarters.
//
// Nothing here changes errno. A goroutine that starts another one may need a
// stack for it, and must find its own errno unchanged.
#include "runtime/sched/stackguard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/diag/panic.h"
#include "runtime/sched/stack.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/keep_errno.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/raw_syscall.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {
namespace {

// These are newer than the headers we build with: Linux 6.13 and 6.15.
constexpr int kMadvGuardInstall = 102;
constexpr int kMadvGuardRemove = 103;
constexpr int kPidfdSelf = -10000;

// With mprotect, each slot has two mappings: its guard, and the memory above
// the guard.
constexpr int64_t kMappingsPerGuard = 2;
constexpr int64_t kDefaultMaxMapCount = 65530;
// guardsOf returns how many guards mprotect may make. A quarter of the mappings
// is left to the program.
constexpr int64_t guardsOf(int64_t maxMapCount) {
  return maxMapCount / 4 * 3 / kMappingsPerGuard;
}

constexpr uint64_t kCanary = 0x6b636174735f7275;
constexpr size_t kCanaryWords = 4;

// Written by stackguardinit and by tests. Each is a flag or a count that stands
// alone, so all accesses are relaxed.
Atomic<GuardMode> guardMode{GuardMode::kMprotect};
Atomic<bool> batchGuards;
// Guards that may yet be made by mprotect.
Atomic<int64_t> mprotectBudget{guardsOf(kDefaultMaxMapCount)};
Atomic<bool> toldUnguarded;

GUMP_NOINLINE bool adviseGuard(uintptr_t at) {
  const int saved = errno;
  const int err =
      madvise(reinterpret_cast<void*>(at), kGuardSize, kMadvGuardInstall);
  errno = saved;
  return err == 0;
}

GUMP_NOINLINE bool adviseGuards(uintptr_t first, size_t stride, uint32_t n) {
  const int saved = errno;
  iovec v[kMaxGuardBatch];
  for (uint32_t k = 0; k < n; k++) {
    v[k] = {reinterpret_cast<void*>(first + k * stride), kGuardSize};
  }
  const long done =
      syscall(SYS_process_madvise, kPidfdSelf, v, n, kMadvGuardInstall, 0);
  errno = saved;
  return done == static_cast<long>(n * kGuardSize);
}

GUMP_NOINLINE bool mprotectGuard(uintptr_t at) {
  const int saved = errno;
  const bool ok =
      mprotectBudget.add(-1, relaxed) >= 0 &&  // only a count
      mprotect(reinterpret_cast<void*>(at), kGuardSize, PROT_NONE) == 0;
  if (!ok) mprotectBudget.add(1, relaxed);  // as above
  errno = saved;
  return ok;
}

bool installGuard(uintptr_t at) {
  switch (guardMode.load(relaxed)) {  // constant, except in tests
    case GuardMode::kMadvise:
      return adviseGuard(at);
    case GuardMode::kMprotect:
      return mprotectGuard(at);
    case GuardMode::kNone:
      break;
  }
  return false;
}

// readMaxMapCount returns vm.max_map_count, or the kernel's default for it.
GUMP_NOINLINE int64_t readMaxMapCount() {
  const KeepErrno kept;
  char buf[32];
  const int fd = newDescriptor(
      [] { return open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC); });
  const ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
  if (fd >= 0) close(fd);
  int64_t v = 0;
  for (ssize_t i = 0; i < n && buf[i] >= '0' && buf[i] <= '9'; i++) {
    v = v * 10 + (buf[i] - '0');
  }
  return v > 0 ? v : kDefaultMaxMapCount;
}

}  // namespace

// If the kernel's pages are larger than kGuardSize, both kinds of guard fail at
// every stack, and stacks have no guard.
void stackguardinit() {
  bool one = false;
  bool many = false;
  constexpr size_t kStride = 2 * kGuardSize;
  void* probe = sysReserve(2 * kStride);
  if (probe != nullptr) {
    const auto at = reinterpret_cast<uintptr_t>(probe);
    one = adviseGuard(at);
    many = one && adviseGuards(at, kStride, 2);
    sysFree(probe, 2 * kStride);
  }
  // LeakSanitizer reads all memory that the list of mappings calls readable.
  // Marks in page tables are not in that list, so such a guard would kill it.
  const bool marks = one && !sanitizerReadsStacks();
  if (!marks) mprotectBudget.store(guardsOf(readMaxMapCount()), relaxed);
  stackSetGuardMode(marks ? GuardMode::kMadvise : GuardMode::kMprotect);
  batchGuards.store(many, relaxed);
}

void stackSetGuardMode(GuardMode mode) {
  guardMode.store(mode, relaxed);  // no stack exists yet, except in tests
}

uint32_t installGuards(uintptr_t first, size_t stride, uint32_t n) {
  if (n > 1 && n <= kMaxGuardBatch &&
      guardMode.load(relaxed) == GuardMode::kMadvise &&  // constant
      batchGuards.load(relaxed) &&                       // constant too
      adviseGuards(first, stride, n)) {
    return n;
  }
  for (uint32_t k = 0; k < n; k++) {
    if (!installGuard(first + k * stride)) return k;
  }
  return n;
}

bool guardsAreMarks() {
  return guardMode.load(relaxed) == GuardMode::kMadvise;  // constant
}

bool removeGuards(uintptr_t at, size_t n) {
  return rawSyscall(SYS_madvise, static_cast<long>(at), static_cast<long>(n),
                    kMadvGuardRemove, 0, 0, 0) == 0;
}

int restoreGuard(uintptr_t at) {
  const auto start = static_cast<long>(at);
  const long r =
      rawSyscall(SYS_madvise, start, kGuardSize, kMadvGuardInstall, 0, 0, 0);
  if (r == 0 || r == -ENOMEM || r == -EAGAIN || r == -EINTR) {
    return static_cast<int>(-r);
  }
  return static_cast<int>(
      -rawSyscall(SYS_mprotect, start, kGuardSize, PROT_NONE, 0, 0, 0));
}

void guardUnmapped() {
  if (guardMode.load(relaxed) == GuardMode::kMprotect) {  // constant
    mprotectBudget.add(1, relaxed);                       // only a count
  }
}

void tellUnguarded() {
  // Relaxed: it only decides which thread prints.
  if (toldUnguarded.xchg(true, relaxed)) return;
  printf(
      "runtime: goroutine stacks are made without guard pages from now on "
      "(no more memory mappings: see vm.max_map_count); overflow is found "
      "late. GUMP_DEBUG=stackguard=strict makes go() fail instead\n");
}

void setCanary(uintptr_t lo) {
  auto* words = reinterpret_cast<uint64_t*>(lo);
  for (size_t i = 0; i < kCanaryWords; i++) words[i] = kCanary;
}

bool canaryIntact(uintptr_t lo) {
  const auto* words = reinterpret_cast<const uint64_t*>(lo);
  for (size_t i = 0; i < kCanaryWords; i++) {
    if (words[i] != kCanary) return false;
  }
  return true;
}

}  // namespace gump::rt
