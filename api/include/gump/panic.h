// A panic is the way in which the library reports an error of its caller.
//
// A panic is an exception of type PanicError. Its what() is the bare text,
// which is Go's where Go has one ("send on closed channel"). To recover from a
// panic is to catch it:
//
//   try {
//     c.Close();
//   } catch (const gump::PanicError& e) {
//     std::fprintf(stderr, "recovered: %s\n", e.what());
//   }
//
// A panic, or any other exception, that leaves a goroutine's function ends the
// process. The text and the goroutine's stack go to standard error, and the
// exit code is 2.
//
// A fatal error is an error from which the program cannot recover. The library
// prints its text after "fatal error: ", and then the stacks, and ends the
// process with exit code 2.
#ifndef GUMP_PANIC_H_
#define GUMP_PANIC_H_

// Another library may have defined a macro of this name.
#ifdef panic
#error "panic is a macro here: #undef it before gump/panic.h"
#include "gump/internal/see_the_error_above.h"
#endif

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gump/internal/compiler.h"

#pragma GCC visibility push(default)

namespace gump {

namespace internal {
struct PanicRecord;
}  // namespace internal

// panic throws PanicError(msg), which keeps a copy of msg. Throws
// std::bad_alloc instead if there is no memory. Does not park. May be called
// from goroutines and from plain threads.
[[noreturn]] void panic(std::string_view msg);

// PanicError is the exception that panic() throws. It is a value: it may be
// copied, kept, and thrown on another goroutine. No function parks.
class PanicError : public std::runtime_error {
 public:
  // Makes an exception with the text `what`, of which it keeps a copy. Throws
  // std::bad_alloc.
  explicit PanicError(const std::string& what);
  PanicError(const PanicError& other) noexcept;
  PanicError& operator=(const PanicError&) = delete;
  ~PanicError() override;

 private:
  friend void panic(std::string_view msg);
  PanicError(const std::string& what,
             std::shared_ptr<internal::PanicRecord> record);

  // Shared with the goroutine that threw this very object; see panic.cc.
  std::shared_ptr<internal::PanicRecord> record_;
};

}  // namespace gump

#pragma GCC visibility pop

#endif  // GUMP_PANIC_H_
