// ContextRef: the counted reference in a Context and its functions. This header
// also declares the functions of api/context that templates call.
#ifndef GUMP_INTERNAL_CONTEXT_REF_H_
#define GUMP_INTERNAL_CONTEXT_REF_H_

#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "gump/internal/linkname_go.h"

#pragma GCC visibility push(default)

namespace gump::internal {

// The implementation is in api/context/context.cc. A null ContextNode is
// Background().
struct ContextNode;
void ContextRetain(ContextNode* n) noexcept;
void ContextRelease(ContextNode* n) noexcept;

// ContextRef is a counted reference to a ContextNode.
class ContextRef {
 public:
  ContextRef() noexcept = default;
  explicit ContextRef(ContextNode* adopted) noexcept : n_(adopted) {}
  ContextRef(const ContextRef& o) noexcept : n_(o.n_) {
    if (n_ != nullptr) ContextRetain(n_);
  }
  ContextRef(ContextRef&& o) noexcept : n_(std::exchange(o.n_, nullptr)) {}
  ContextRef& operator=(const ContextRef& o) noexcept {
    ContextRef copy(o);
    std::swap(n_, copy.n_);
    return *this;
  }
  ContextRef& operator=(ContextRef&& o) noexcept {
    ContextRef moved(std::move(o));
    std::swap(n_, moved.n_);
    return *this;
  }
  ~ContextRef() {
    if (n_ != nullptr) ContextRelease(n_);
  }
  ContextNode* get() const noexcept { return n_; }

 private:
  ContextNode* n_ = nullptr;
};

// NewContextKey returns a key that no context::Key has had before.
uint64_t NewContextKey() noexcept;
// ContextValue returns the value under key, in n or its nearest ancestor that
// has one, or nullptr. n may be null.
const void* ContextValue(const ContextNode* n, uint64_t key) noexcept;
// ContextTimeLeft returns the time until n's deadline, or an infinite duration
// if there is none. Setting the wall clock does not change it. n may be null.
absl::Duration ContextTimeLeft(const ContextNode* n) noexcept;
// NewContextValue takes ownership of value, and NewContextFunc of closure (as
// rt::newproc does). They do so even if they throw.
ContextRef NewContextValue(const ContextRef& parent, uint64_t key, void* value,
                           void (*destroy)(void*));
ContextRef NewContextFunc(const ContextRef& parent, const rt::FuncType* ft,
                          void* closure, uintptr_t pc);

// ContextAccess makes a handle from a ContextRef, and reads the ContextRef of a
// handle.
struct ContextAccess {
  template <class Handle>
  static Handle Make(ContextRef&& ref) {
    Handle h;
    h.ref_ = std::move(ref);
    return h;
  }
  template <class Handle>
  static const ContextRef& ref(const Handle& h) {
    return h.ref_;
  }
};

}  // namespace gump::internal

#pragma GCC visibility pop

#endif  // GUMP_INTERNAL_CONTEXT_REF_H_
