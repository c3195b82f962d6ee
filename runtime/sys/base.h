// What every file of the runtime may assume: the platform floor, the cache
// line, attributes. This file has the only #if on a compiler, and chooses the
// header of the architecture.
#ifndef RUNTIME_SYS_BASE_H_
#define RUNTIME_SYS_BASE_H_

#include <cstddef>
#include <cstdint>

#if defined(__linux__) && defined(__x86_64__)
#include "runtime/sys/arch_amd64.h"
#elif defined(__linux__) && defined(__aarch64__)
#include "runtime/sys/arch_arm64.h"
#else
#error "gumption runs on Linux on x86-64 and AArch64"
#endif

#define GUMP_LIKELY(x) __builtin_expect(!!(x), 1)
#define GUMP_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define GUMP_NOINLINE __attribute__((noinline))
#define GUMP_COLD __attribute__((noinline, cold))
#define GUMP_ALWAYS_INLINE inline __attribute__((always_inline))

#if defined(__clang__)
// (no_sanitize("thread") would leave the calls at function entry and exit.)
#define GUMP_NO_SANITIZE                            \
  __attribute__((disable_sanitizer_instrumentation, \
                 no_sanitize("address", "undefined"), noinline))
#else
#define GUMP_NO_SANITIZE                                  \
  __attribute__((no_sanitize_address, no_sanitize_thread, \
                 no_sanitize_undefined, noinline))
#endif

// A function with another set of sanitizers is never inlined, so only builds
// with sanitizers call peek. The models look for races by such a one.
#if defined(GUMP_SANITIZE) || defined(GUMP_MODEL)
#define GUMP_PEEK GUMP_NO_SANITIZE
#else
#define GUMP_PEEK GUMP_ALWAYS_INLINE
#endif

namespace gump::rt {

// kModelBuild is true for the model checker (tests/model). Tables are small in
// that build, so that rare events happen all the time.
#if defined(GUMP_MODEL)
inline constexpr bool kModelBuild = true;
#else
inline constexpr bool kModelBuild = false;
#endif

// kFalseSharing is two lines, because the adjacent-line prefetcher of x86 pairs
// them and some AArch64 cores have 128-byte lines.
inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kFalseSharing = 128;
inline constexpr size_t kPageSize = 4096;

constexpr uintptr_t alignUp(uintptr_t n, uintptr_t a) {
  return (n + a - 1) & ~(a - 1);
}

// procyield pauses the core n times. It is the polite way to wait some tens of
// nanoseconds for another core.
inline void procyield(int n) {
  for (int i = 0; i < n; i++) archPause();
}

// prefetch starts loading the cache line of p, which may be any address. It is
// always inlined: g++ takes a function that only prefetches for one without an
// effect, and drops the calls.
GUMP_ALWAYS_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

// peek reads a word that another thread writes and that is not atomic. The
// value may be stale, but it is not torn. For traces, and for requests that are
// best effort anyway. If the word is a pointer to a G, M or P, it can be
// followed even if it is stale, because memory is type-stable.
template <class T>
GUMP_PEEK T peek(const T& word) {
  static_assert(sizeof(T) <= sizeof(uintptr_t));
  return *const_cast<const volatile T*>(&word);
}

}  // namespace gump::rt

#endif  // RUNTIME_SYS_BASE_H_
