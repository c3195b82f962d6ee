// The text of a panic.
#ifndef TESTS_TESTING_PANIC_TEXT_H_
#define TESTS_TESTING_PANIC_TEXT_H_

#include <string>
#include <utility>

#include "gump/panic.h"

namespace gump::testing {

// PanicText calls f and returns the text of its panic, or "no panic".
template <class F>
std::string PanicText(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const PanicError& e) {
    return e.what();
  }
  return "no panic";
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_PANIC_TEXT_H_
