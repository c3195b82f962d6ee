// A panic is the way in which the library reports an error of its caller.
//
// It is an exception of type PanicError. Its what() is the bare text, which is
// Go's where Go has one ("send on closed channel"). Catching it is recovering:
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
#ifndef GUMP_PANIC_H_
#define GUMP_PANIC_H_

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gump {

namespace internal {
struct PanicRecord;
}  // namespace internal

// panic throws PanicError(msg), which keeps a copy of msg. Throws
// std::bad_alloc instead if there is no memory. Does not park. May be called
// from goroutines and from plain threads.
[[noreturn]] void panic(std::string_view msg);

// PanicError is the exception that panic() throws. what() is the bare text. A
// value: it may be copied, kept, and thrown on another goroutine.
class PanicError : public std::runtime_error {
 public:
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

#endif  // GUMP_PANIC_H_
