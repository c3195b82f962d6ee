// malloc, and so operator new, with a look at each call.
//
// A program that includes this replaces malloc by wrappers that call OnMalloc
// first, and OnFree before a free. Under a sanitizer, which has a malloc of its
// own, neither is ever called. Include this in one file.
#ifndef TESTS_TESTING_MALLOC_HOOK_H_
#define TESTS_TESTING_MALLOC_HOOK_H_

#include <cstddef>

#include "runtime/sys/sanitizer.h"

namespace gump::testing {

// n: the bytes asked for (of calloc, the number of elements).
void OnMalloc(size_t n);
void OnFree();

}  // namespace gump::testing

#if !defined(GUMP_ASAN) && !defined(GUMP_TSAN)
extern "C" {
void* __libc_malloc(size_t n);
void* __libc_calloc(size_t n, size_t size);
void* __libc_realloc(void* p, size_t n);
void* __libc_memalign(size_t align, size_t n);
void __libc_free(void* p);

void* malloc(size_t n) {
  gump::testing::OnMalloc(n);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  gump::testing::OnMalloc(n);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  gump::testing::OnMalloc(n);
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t align, size_t n) {
  gump::testing::OnMalloc(n);
  return __libc_memalign(align, n);
}
int posix_memalign(void** p, size_t align, size_t n) {
  *p = aligned_alloc(align, n);
  return *p == nullptr ? 12 : 0;
}
void free(void* p) {
  if (p != nullptr) gump::testing::OnFree();
  __libc_free(p);
}
}
#endif

#endif  // TESTS_TESTING_MALLOC_HOOK_H_
